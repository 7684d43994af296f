package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// engine is the database as sqlexec sees it.
type engine struct {
	config           Config
	readers, writers *pgxpool.Pool // writers is nil for a source that is only read
}

// open makes the pools.
func open(ctx context.Context, config Config) (*engine, error) {
	e := &engine{config: config}
	var err error
	if e.readers, err = pool(ctx, config.Read, config, true); err != nil || config.Write == "" {
		return e, err
	}
	if e.writers, err = pool(ctx, config.Write, config, false); err != nil {
		e.readers.Close()
	}
	return e, err
}

// grace is how much longer than the database this program waits, so that it is the database that ends a statement.
const grace = time.Second

// View runs fn on a reading connection. A statement alone is a read-only transaction by itself.
func (e *engine) View(ctx context.Context, many bool, fn func(sqlexec.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout+grace)
	defer cancel()
	err := e.view(ctx, many, fn)
	// A column's type was changed after its statement was prepared. The driver forgets the statement of this connection; the
	// others of the pool have theirs still.
	for try := 0; codeOf(err) == "0A000" && try < int(e.readers.Config().MaxConns) && ctx.Err() == nil; try++ {
		err = e.view(ctx, many, fn)
	}
	return e.fault(ctx, err)
}

// view is one attempt of View.
func (e *engine) view(ctx context.Context, many bool, fn func(sqlexec.Conn) error) error {
	return e.readers.AcquireFunc(ctx, func(pc *pgxpool.Conn) error {
		c := &conn{pg: pc.Conn(), onSQL: e.config.OnSQL}
		if !many {
			return fn(c)
		}
		if err := c.run(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"); err != nil {
			return err
		}
		err := fn(c)
		return also(err, c.end(ctx, "ROLLBACK"))
	})
}

// maxTries is how often a write is tried that the database broke off to make way for another.
const maxTries = 5

// Update runs fn in a transaction of a writing connection.
func (e *engine) Update(ctx context.Context, fn func(sqlexec.Conn) error) error {
	if e.writers == nil {
		return plan.ErrReadOnly
	}
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout+grace)
	defer cancel()
	for try := 1; ; try++ {
		err := e.writers.AcquireFunc(ctx, func(pc *pgxpool.Conn) error {
			return e.transact(ctx, &conn{pg: pc.Conn(), onSQL: e.config.OnSQL, writing: true}, fn)
		})
		if code := codeOf(err); code != "40001" && code != "40P01" || try == maxTries || ctx.Err() != nil {
			return e.fault(ctx, err)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(try) * int64(20*time.Millisecond))))
	}
}

// transact is one attempt.
func (e *engine) transact(ctx context.Context, c *conn, fn func(sqlexec.Conn) error) error {
	if err := c.run(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE"); err != nil {
		return err
	}
	if err := fn(c); err != nil {
		return also(err, c.end(ctx, "ROLLBACK"))
	}
	err := c.end(ctx, "COMMIT")
	if err != nil && codeOf(err) == "" { // no word of the server: it may have committed
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

// codeOf is the SQLSTATE of an error, "" for errors that are not the server's.
func codeOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// fault says what an error means for a plan.
func (e *engine) fault(ctx context.Context, err error) error {
	var own *model.Error
	if err == nil || known(err) || errors.As(err, &own) {
		return err
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return serverFault(pg, err)
	}
	var network interface{ Timeout() bool }
	var connect *pgconn.ConnectError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", plan.ErrBusy, err)
	case errors.As(err, &connect), errors.As(err, &network), pgconn.SafeToRetry(err), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", plan.ErrUnavailable, err)
	}
	return err
}

// known tells whether an error has its meaning already.
func known(err error) bool {
	return slices.ContainsFunc([]error{plan.ErrBusy, plan.ErrUnavailable, plan.ErrUnknown, plan.ErrReadOnly, sqlexec.ErrOverflow}, func(e error) bool {
		return errors.Is(err, e)
	})
}

// refusals are the kinds of constraints by SQLSTATE.
var refusals = map[string]string{"23502": "required", "23503": "foreign", "23505": "unique", "23514": "check", "23P01": "unique", "23001": "foreign"}

// serverFault says what an error of the server means (postgresql.org/docs/current/errcodes-appendix.html).
func serverFault(pg *pgconn.PgError, err error) error {
	if kind, ok := refusals[pg.Code]; ok {
		r := &sqlexec.Refusal{Kind: kind, Table: pg.TableName, Constraint: pg.ConstraintName, Cause: err}
		if pg.ColumnName != "" {
			r.Columns = []string{pg.ColumnName}
		}
		return r
	}
	switch class := pg.Code[:2]; {
	case pg.Code == "57014", pg.Code == "55P03", class == "40":
		return fmt.Errorf("%w: %w", plan.ErrBusy, err)
	case class == "08", class == "28", class == "53", class == "57", class == "3D":
		return fmt.Errorf("%w: %w", plan.ErrUnavailable, err)
	case class == "22":
		return misfit(pg).Wrap(err)
	}
	return err
}

// misfit is a value that the column cannot hold.
func misfit(pg *pgconn.PgError) *model.Error {
	switch pg.Code {
	case "22001":
		return model.Errorf(model.BadValue, "a text is longer than its column can hold; shorten it")
	case "22003":
		return model.Errorf(model.BadValue, "a number lies beyond what its column can hold")
	}
	return model.Errorf(model.BadValue, "a value does not fit the type of its column; look at the field's type and format in describe_schemas")
}

// conn is one connection.
type conn struct {
	pg      *pgx.Conn
	onSQL   func(string, int)
	writing bool
	cells   []any
}

// endPatience bounds the end of a transaction, which the caller's context does not interrupt.
const endPatience = 10 * time.Second

// end ends a transaction.
func (c *conn) end(ctx context.Context, text string) error {
	if c.pg.IsClosed() {
		if text == "COMMIT" {
			return errors.New("the connection was lost before the commit")
		}
		return nil // and with the connection the transaction
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	return c.run(ctx, text)
}

// run sends a text without arguments.
func (c *conn) run(ctx context.Context, text string) error {
	c.onSQL(text, 0)
	_, err := c.pg.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
	return err
}

// arguments puts the wish for results as text before the arguments.
func arguments(s sqlgen.Statement) []any {
	return append(append(make([]any, 0, len(s.Args)+1), pgx.QueryResultFormats{pgx.TextFormatCode}), s.Args...)
}

// Exec runs a statement to its end.
func (c *conn) Exec(ctx context.Context, s sqlgen.Statement) (int64, error) {
	c.onSQL(s.Text, len(s.Args))
	tag, err := c.pg.Exec(ctx, s.Text, s.Args...)
	return tag.RowsAffected(), err
}

// Query hands rows to each, cells as text.
func (c *conn) Query(ctx context.Context, s sqlgen.Statement, each func(cells []any) error) error {
	c.onSQL(s.Text, len(s.Args))
	rows, err := c.pg.Query(ctx, s.Text, arguments(s)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		raw := rows.RawValues()
		if len(c.cells) != len(raw) {
			c.cells = make([]any, len(raw))
		}
		for i, text := range raw {
			if c.cells[i] = nil; text != nil {
				c.cells[i] = string(text)
			}
		}
		if err := each(c.cells); errors.Is(err, sqlexec.ErrStop) {
			return nil
		} else if err != nil {
			return err
		}
	}
	rows.Close()
	if err := rows.Err(); codeOf(err) == "22003" && !c.writing {
		return fmt.Errorf("%w: %w", sqlexec.ErrOverflow, err)
	}
	return rows.Err()
}

// Decode reads a cell.
func (e *engine) Decode(c *sqlgen.Cell, cell any) (canonjson.Value, bool) {
	text, ok := cell.(string)
	if !ok {
		return canonjson.Value{}, false
	}
	return decode(c.Type, text)
}
