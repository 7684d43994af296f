package sqlexec

import (
	"context"
	"errors"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
)

// Conn runs statements on one connection, inside the transaction that it was given for.
type Conn interface {
	// Query hands each row to each until it returns an error, which Query returns; ErrStop ends it without one. The cells are
	// those of the driver, valid until each returns. each starts no other statement.
	Query(ctx context.Context, s sqlgen.Statement, each func(cells []any) error) error
	// Exec gives the number of rows that were written.
	Exec(ctx context.Context, s sqlgen.Statement) (int64, error)
}

// Engine is a database. It is safe for concurrent use. Its errors are those of plan.Source, *Refusal, ErrOverflow, and
// others that only an operator reads.
type Engine interface {
	// View runs fn with a connection that cannot write. many says that fn sends several statements, which must see one
	// snapshot.
	View(ctx context.Context, many bool, fn func(Conn) error) error
	// Update runs fn in a transaction of the writing connection and commits it; when fn fails nothing has happened. fn may
	// run again after the database broke a transaction off to make way for another.
	Update(ctx context.Context, fn func(Conn) error) error
	// Decode gives a cell, which is not nil, as a value of the declared type. ok is false where it is none.
	Decode(c *sqlgen.Cell, cell any) (v canonjson.Value, ok bool)
}

// ErrStop ends a Query without an error.
var ErrStop = errors.New("stop")

// ErrOverflow says that the database could not hold the result of an addition.
var ErrOverflow = errors.New("a sum beyond 64 bits")

// Refusal is what a database says when a rule of it refuses a write.
type Refusal struct {
	Kind       string   // unique, required, foreign, check
	Table      string   // "" when it is not known
	Constraint string   // "" when it is not known
	Columns    []string // nil when they are not known
	Cause      error
}

// Error names the rule.
func (r *Refusal) Error() string { return "constraint " + r.Constraint + ": " + r.Kind }

// Unwrap gives the driver's error.
func (r *Refusal) Unwrap() error { return r.Cause }
