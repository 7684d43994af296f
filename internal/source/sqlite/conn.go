package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"time"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
)

// maxStatements is how many prepared statements a connection keeps.
const maxStatements = 256

// conn is one connection with its prepared statements. It speaks to the driver without database/sql between, whose pool
// and conversions cost as much as short statements themselves. It is used by one goroutine at a time.
type conn struct {
	raw   driver.Conn
	db    uintptr // SQLite's handle; 0 when the driver does not show it
	onSQL func(string, int)
	stmts map[string]*stmt
	args  []driver.NamedValue
}

// stmt is a prepared statement.
type stmt struct {
	driver.Stmt
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	cells []any
	busy  bool
}

// dial opens a connection.
func dial(dsn string, onSQL func(string, int)) (*conn, error) {
	raw, err := own.Open(dsn)
	if err != nil {
		return nil, err
	}
	c := &conn{raw: raw, onSQL: onSQL, stmts: map[string]*stmt{}}
	if c.onSQL == nil {
		c.onSQL = func(string, int) {}
	}
	// The driver stops listening to a context once the first row is there, and has no call that interrupts a connection
	// from outside. The handle is all that SQLite's own call needs.
	if v := reflect.ValueOf(raw); v.Kind() == reflect.Pointer {
		if f := v.Elem().FieldByName("db"); f.IsValid() && f.Kind() == reflect.Uintptr {
			c.db = uintptr(f.Uint())
		}
	}
	if c.db == 0 {
		return nil, errors.Join(errors.New("this version of the SQLite driver hides its handle"), raw.Close())
	}
	tls := libc.NewTLS()
	defer tls.Close()
	lib.Xsqlite3_limit(tls, c.db, lib.SQLITE_LIMIT_ATTACHED, 0)
	return c, nil
}

// interruptEvery is how often a connection is interrupted until it notices: SQLite forgets an interrupt that comes between
// two statements.
const interruptEvery = 10 * time.Millisecond

// watch interrupts what the connection does once ctx is done, until the function that it gives is called.
func (c *conn) watch(ctx context.Context) (stop func()) {
	over := make(chan struct{})
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		tls := libc.NewTLS()
		defer tls.Close()
		for {
			lib.Xsqlite3_interrupt(tls, c.db)
			select {
			case <-over:
				return
			case <-time.After(interruptEvery):
			}
		}
	})
	return sync.OnceFunc(func() {
		close(over)
		if !cancel() {
			<-done
		}
	})
}

// prepare gives the statement of a text, prepared at first use.
func (c *conn) prepare(text string) (*stmt, error) {
	if s := c.stmts[text]; s != nil && !s.busy {
		return s, nil
	}
	if len(c.stmts) >= maxStatements {
		c.forget()
	}
	p, err := c.raw.Prepare(text)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	s := &stmt{Stmt: p, exec: p.(driver.StmtExecContext), query: p.(driver.StmtQueryContext)}
	c.stmts[text] = s
	return s, nil
}

// forget closes the statements that are not running.
func (c *conn) forget() {
	for text, s := range c.stmts {
		if !s.busy {
			s.Close()
			delete(c.stmts, text)
		}
	}
}

// bind lays arguments out for the driver, in a buffer that lives until the next call.
func (c *conn) bind(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return c.args
}

// run executes a text without arguments.
func (c *conn) run(ctx context.Context, text string) error {
	_, err := c.Exec(ctx, sqlgen.Statement{Text: text})
	return err
}

// Exec runs a statement to its end.
func (c *conn) Exec(ctx context.Context, s sqlgen.Statement) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	c.onSQL(s.Text, len(s.Args))
	p, err := c.prepare(s.Text)
	if err != nil {
		return 0, err
	}
	result, err := p.exec.ExecContext(context.Background(), c.bind(s.Args))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Query hands rows to each.
func (c *conn) Query(ctx context.Context, s sqlgen.Statement, each func(cells []any) error) error {
	err := c.query(ctx, s, each)
	if primary(err) == codeError && strings.Contains(err.Error(), "integer overflow") {
		return fmt.Errorf("%w: %w", sqlexec.ErrOverflow, err)
	}
	return err
}

// query runs a statement.
func (c *conn) query(ctx context.Context, s sqlgen.Statement, each func(cells []any) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.onSQL(s.Text, len(s.Args))
	p, err := c.prepare(s.Text)
	if err != nil {
		return err
	}
	rows, err := p.query.QueryContext(context.Background(), c.bind(s.Args))
	if err != nil {
		return err
	}
	p.busy = true
	defer func() {
		p.busy = false
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	if n := len(rows.Columns()); len(p.cells) != n {
		p.cells = make([]any, n)
	}
	values := make([]driver.Value, len(p.cells))
	for {
		if err := rows.Next(values); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		for i, v := range values {
			p.cells[i] = v
		}
		if err := each(p.cells); errors.Is(err, sqlexec.ErrStop) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// close ends the statements and the connection. Nil is a connection that was never opened.
func (c *conn) close() error {
	if c == nil {
		return nil
	}
	c.forget()
	return c.raw.Close()
}
