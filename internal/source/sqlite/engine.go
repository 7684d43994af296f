package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// engine is the database as sqlexec sees it: connections for reads, and one for writes.
type engine struct {
	config            Config
	readDSN, writeDSN string

	readers chan *conn // idle ones; nil stands for one that is not open yet
	writer  chan *conn // the one, when it is idle
	once    sync.Once
	closed  chan struct{}
}

// Parameters of connections. _dqs=0 makes "name" a name and nothing else.
const (
	readParameters  = "mode=ro&_dqs=0&_error_rc=1&_defensive=1&_pragma=trusted_schema(0)&_query_only=1"
	writeParameters = "mode=rw&_dqs=0&_error_rc=1&_defensive=1&_pragma=trusted_schema(0)&_pragma=foreign_keys(1)"
)

// open checks the configuration; connections are opened when they are needed.
func open(config Config) (*engine, error) {
	if err := register(); err != nil {
		return nil, err
	}
	e := &engine{config: config, readers: make(chan *conn, config.Readers), writer: make(chan *conn, 1), closed: make(chan struct{})}
	busy := fmt.Sprintf("&_busy_timeout=%d", config.LockTimeout.Milliseconds())
	var err error
	if e.readDSN, err = dsn(config.Read, readParameters+busy); err != nil {
		return nil, err
	}
	for range config.Readers {
		e.readers <- nil
	}
	e.writer <- nil
	if config.Write == "" {
		return e, nil
	}
	e.writeDSN, err = dsn(config.Write, writeParameters+busy)
	return e, err
}

// borrow takes a connection out of a pool.
func (e *engine) borrow(ctx context.Context, pool chan *conn, dsn string) (*conn, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-e.closed:
		return nil, fmt.Errorf("%w: the source is closed", plan.ErrUnavailable)
	case c := <-pool:
		if c != nil {
			return c, nil
		}
		c, err := dial(dsn, e.config.OnSQL)
		if err != nil {
			pool <- nil
			return nil, fmt.Errorf("%w: %w", plan.ErrUnavailable, err)
		}
		return c, nil
	}
}

// View runs fn on a reading connection, in a transaction when it sends several statements.
func (e *engine) View(ctx context.Context, many bool, fn func(sqlexec.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	c, err := e.borrow(ctx, e.readers, e.readDSN)
	if err != nil {
		return e.fault(ctx, err)
	}
	return e.fault(ctx, lend(e.readers, c, func() error { return c.view(ctx, many, fn) }))
}

// lend gives a borrowed connection back after use; one whose use panicked is in no known state and is closed.
func lend(pool chan *conn, c *conn, use func() error) error {
	sound := false
	defer func() {
		if !sound {
			c.close()
			c = nil
		}
		pool <- c
	}()
	err := use()
	sound = true
	return err
}

// view runs fn, in a transaction when it sends several statements.
func (c *conn) view(ctx context.Context, many bool, fn func(sqlexec.Conn) error) error {
	defer c.watch(ctx)()
	if !many {
		return fn(c)
	}
	if err := c.run(ctx, "BEGIN"); err != nil {
		return err
	}
	err := fn(c)
	return also(err, c.run(context.WithoutCancel(ctx), "ROLLBACK"))
}

// maxTries is how often a write is tried when the database is busy.
const maxTries = 5

// Update runs fn in a transaction of the writing connection.
func (e *engine) Update(ctx context.Context, fn func(sqlexec.Conn) error) error {
	if e.writeDSN == "" {
		return plan.ErrReadOnly
	}
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	c, err := e.borrow(ctx, e.writer, e.writeDSN)
	if err != nil {
		return e.fault(ctx, err)
	}
	return lend(e.writer, c, func() error {
		for try := 1; ; try++ {
			err := e.fault(ctx, c.transact(ctx, fn))
			if !errors.Is(err, plan.ErrBusy) || try == maxTries || ctx.Err() != nil {
				return err
			}
			time.Sleep(time.Duration(rand.Int64N(int64(try) * int64(20*time.Millisecond))))
		}
	})
}

// transact is one attempt.
func (c *conn) transact(ctx context.Context, fn func(sqlexec.Conn) error) error {
	calm := c.watch(ctx) // nothing interrupts the end of a transaction
	defer calm()
	if err := c.run(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := fn(c)
	calm()
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		return also(err, c.run(ctx, "ROLLBACK"))
	}
	err = c.run(ctx, "COMMIT")
	if err == nil {
		return nil
	}
	if rollback := c.run(ctx, "ROLLBACK"); rollback != nil && !c.settled(err) {
		return fmt.Errorf("%w: %w", plan.ErrUnknown, err)
	}
	return err
}

// also adds what went wrong while cleaning up.
func also(err, cleaning error) error {
	if cleaning == nil {
		return err
	}
	return errors.Join(err, cleaning)
}

// settled tells whether a failed COMMIT surely did nothing.
func (c *conn) settled(err error) bool {
	switch primary(err) {
	case codeBusy, codeLocked, codeConstraint, codeFull:
		return true
	}
	return false
}

// Codes of SQLite that are told apart (sqlite.org/rescode.html). An extended code holds the primary one in its low byte.
const (
	codeError      = 1
	codeBusy       = 5
	codeLocked     = 6
	codeInterrupt  = 9
	codeFull       = 13
	codeCantOpen   = 14
	codeConstraint = 19
	codeMismatch   = 20

	codeNotNull = codeConstraint | 5<<8
	codeKey     = codeConstraint | 6<<8
	codeForeign = codeConstraint | 3<<8
	codeUnique  = codeConstraint | 8<<8
	codeRowID   = codeConstraint | 10<<8
)

// codeOf is SQLite's code of an error, 0 for others.
func codeOf(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// primary is codeOf without the extension.
func primary(err error) int { return codeOf(err) & 0xff }

// fault says what an error means for a plan.
func (e *engine) fault(ctx context.Context, err error) error {
	if err == nil || known(err) {
		return err
	}
	switch primary(err) {
	case codeBusy, codeLocked, codeInterrupt:
		return fmt.Errorf("%w: %w", plan.ErrBusy, err)
	case codeCantOpen:
		return fmt.Errorf("%w: %w", plan.ErrUnavailable, err)
	case codeConstraint, codeMismatch:
		return refusal(err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", plan.ErrBusy, err)
	}
	return err
}

// known tells whether an error has its meaning already.
func known(err error) bool {
	return slices.ContainsFunc([]error{plan.ErrBusy, plan.ErrUnavailable, plan.ErrUnknown, plan.ErrReadOnly, sqlexec.ErrOverflow}, func(e error) bool {
		return errors.Is(err, e)
	})
}

// refusal reads which rule refused out of SQLite's words, which name columns as table.column.
func refusal(err error) error {
	r := &sqlexec.Refusal{Kind: "check", Cause: err}
	switch codeOf(err) {
	case codeUnique, codeKey, codeRowID:
		r.Kind = "unique"
	case codeNotNull:
		r.Kind = "required"
	case codeForeign:
		r.Kind = "foreign"
	}
	// The driver's words may stand before SQLite's own: "constraint failed: UNIQUE constraint failed: users.email (2067)".
	const before = "constraint failed: "
	at := strings.LastIndex(err.Error(), before)
	if at < 0 {
		return r
	}
	words := err.Error()[at+len(before):]
	if i := strings.LastIndex(words, " ("); i >= 0 {
		words = words[:i]
	}
	if r.Kind == "check" {
		r.Constraint = words
		return r
	}
	for _, part := range strings.Split(words, ", ") {
		if table, column, ok := strings.Cut(part, "."); ok {
			r.Table, r.Columns = table, append(r.Columns, column)
		}
	}
	return r
}

// close waits for all connections and ends them. Afterwards every call is refused.
func (e *engine) close() error {
	var err error
	e.once.Do(func() {
		close(e.closed)
		for range cap(e.readers) {
			err = errors.Join(err, (<-e.readers).close())
		}
		err = errors.Join(err, (<-e.writer).close())
	})
	return err
}

// Decode reads a cell.
func (e *engine) Decode(c *sqlgen.Cell, cell any) (canonjson.Value, bool) {
	if v, ok := cell.(driver.Value); ok {
		return decode(c, v)
	}
	return canonjson.Value{}, false
}
