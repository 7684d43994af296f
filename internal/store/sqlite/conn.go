package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"modernc.org/sqlite"
)

// SQLite's primary result codes that this package tells apart (sqlite.org/rescode.html). An extended code holds the
// primary one in its low byte.
const (
	codeBusy       = 5
	codeLocked     = 6
	codeIO         = 10
	codeFull       = 13
	codeTooBig     = 18
	codeConstraint = 19
	codeMismatch   = 20

	codeSync       = codeIO | 4<<8 // SQLITE_IOERR_FSYNC
	codeFolderSync = codeIO | 5<<8 // SQLITE_IOERR_DIR_FSYNC
)

// code gives SQLite's extended result code of err, 0 when err is not SQLite's.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// primary is code without its extension.
func primary(err error) int { return code(err) & 0xff }

// conn is one connection with its prepared statements. It speaks to the driver without database/sql between: the
// pool, locks and conversions of that package cost as much here as the statements themselves. Not safe for
// concurrent use.
type conn struct {
	raw   driver.Conn
	stmts map[string]*stmt // by SQL text; the texts are constants of this package, so the map is bounded
	args  []driver.NamedValue
}

// stmt is a prepared statement as the driver makes it.
type stmt struct {
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	close func() error
}

// dial opens the database file, which must exist.
func dial(file string, readOnly bool) (*conn, error) {
	mode := "rw"
	if readOnly {
		mode = "ro"
	}
	dsn := url.URL{Scheme: "file", Path: file, RawQuery: "mode=" + mode + "&_dqs=0&_error_rc=1"}
	raw, err := new(sqlite.Driver).Open(dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return &conn{raw: raw, stmts: map[string]*stmt{}}, nil
}

// lockWait is how long a connection waits for a lock of SQLite. Only tools that open the database beside this process
// hold one for longer than a moment.
const lockWait = 5 * time.Second

// patience sets how long the connection waits for a lock.
func (c *conn) patience(d time.Duration) error {
	return c.script(fmt.Sprintf("PRAGMA busy_timeout=%d", d.Milliseconds()))
}

// close ends the statements and the connection. The last connection to close writes the log back into the database.
func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.close())
	}
	c.stmts = nil
	return errors.Join(append(errs, c.raw.Close())...)
}

// prepare gives the statement of a constant text, prepared on first use.
func (c *conn) prepare(text string) (*stmt, error) {
	if s, ok := c.stmts[text]; ok {
		return s, nil
	}
	p, err := c.raw.Prepare(text)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", text, err)
	}
	s := &stmt{exec: p.(driver.StmtExecContext), query: p.(driver.StmtQueryContext), close: p.Close}
	c.stmts[text] = s
	return s, nil
}

// bind lays the arguments out for the driver, in a buffer that lives until the next call. An int, bool, or any
// other type that the driver has no case for is a mistake of this package and reported by the driver.
func (c *conn) bind(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return c.args
}

// exec runs a statement to its end and gives the driver's result. No context reaches SQLite: statements are short,
// and a commit must not be interrupted.
func (c *conn) exec(text string, args ...any) (driver.Result, error) {
	s, err := c.prepare(text)
	if err != nil {
		return nil, err
	}
	return s.exec.ExecContext(context.Background(), c.bind(args))
}

// script runs several statements of one text, unprepared.
func (c *conn) script(text string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
	return err
}

// errStop ends a query early, from each.
var errStop = errors.New("stop")

// query runs a statement and hands each row to each, which must not start another statement of the same text. The
// row is valid until each returns; its blobs may be kept.
func (c *conn) query(text string, each func(row) error, args ...any) (err error) {
	s, err := c.prepare(text)
	if err != nil {
		return err
	}
	rows, err := s.query.QueryContext(context.Background(), c.bind(args))
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	r := make(row, len(rows.Columns()))
	for {
		if err := rows.Next(r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(r); err == errStop {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// one runs a query of at most one row and tells whether there was one.
func (c *conn) one(text string, each func(row), args ...any) (found bool, err error) {
	err = c.query(text, func(r row) error {
		found = true
		each(r)
		return errStop
	}, args...)
	return found, err
}

// number runs a query whose first column is an integer, 0 without a row.
func (c *conn) number(text string, args ...any) (n int64, err error) {
	_, err = c.one(text, func(r row) { n = r.int(0) }, args...)
	return n, err
}

// row is one row of a result. The accessors give the zero value for NULL and for another type: the tables are
// STRICT, so another type cannot come.
type row []driver.Value

// int, text and blob give one column.
func (r row) int(i int) int64   { n, _ := r[i].(int64); return n }
func (r row) text(i int) string { s, _ := r[i].(string); return s }
func (r row) blob(i int) []byte { b, _ := r[i].([]byte); return b }

// array gives a column of 32 bytes.
func (r row) array(i int) (a [32]byte) {
	copy(a[:], r.blob(i))
	return a
}
