package plan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Source is a database of the organisation, or a place that behaves like one. All methods are safe for concurrent use.
// Errors that are not named below are faults of the source; they may hold a driver's text and never reach a caller.
type Source interface {
	// Bind tells the models that plans will be about, and looks once at their tables: which exist, which columns can be
	// null, which have __present. It may be called again when definitions change. Problems are one sentence a
	// difference that makes plans of a model fail; they are no error.
	Bind(ctx context.Context, models []*model.Model) (problems []string, err error)
	// Read carries out q: all its blocks see one snapshot, in a read-only transaction. ErrBusy, ErrUnavailable, and
	// *model.Error with the class Limit or Unrepresentable.
	Read(ctx context.Context, q *Query) (*Rows, error)
	// Apply carries out w in one transaction. A known key of c with the same fingerprint: w is not carried out, and the
	// recorded outcome is returned with Replayed. Errors, of which all but ErrUnknown mean that nothing was changed:
	// ErrReadOnly, ErrOutside, ErrKeyConflict, ErrNoKeys, ErrNotAtomic, ErrBusy, ErrUnavailable, ErrUnknown,
	// *ConstraintError, *VersionError.
	Apply(ctx context.Context, w *Write, c Commit) (*Applied, error)
	// Explain gives the statements that Read would send, in the source's language, without sending them.
	Explain(ctx context.Context, q *Query) ([]string, error)
	// Tables describes the tables and views of the database, for introspection and checks, ordered by name.
	Tables(ctx context.Context) ([]Table, error)
	// Rights says what the reading role and the writing role can do.
	Rights(ctx context.Context) (RoleReport, error)
	Features() Features
	Close() error
}

// Errors of a Source.
var (
	ErrReadOnly    = errors.New("the source has no connection for writes")
	ErrOutside     = errors.New("the row lies outside the caller's rows")
	ErrKeyConflict = errors.New("the idempotency key was used for another write")
	ErrNoKeys      = errors.New("the source has no table for idempotency keys")
	ErrNotAtomic   = errors.New("the source cannot do this in one transaction")
	ErrBusy        = errors.New("the source is busy or too slow; nothing happened")
	ErrUnavailable = errors.New("the source cannot be reached")
	ErrUnknown     = errors.New("the outcome of the write is not known")
)

// ConstraintError is a refusal by a rule of the database.
type ConstraintError struct {
	Kind   string         // unique, required, foreign, check
	Model  *model.Model   // nil when it is not known
	Fields []*model.Field // that the rule is about; nil when it is not known
	Cause  error
}

// Error names the kind; fields are for the planner's words.
func (e *ConstraintError) Error() string { return "constraint: " + e.Kind }

// Unwrap gives the driver's error, for the operator's log.
func (e *ConstraintError) Unwrap() error { return e.Cause }

// VersionError tells the version that a row has, where another was expected.
type VersionError struct{ Current canonjson.Value }

// Error says so.
func (e *VersionError) Error() string { return "the row has another version" }

// Rows is the outcome of a Query.
type Rows struct {
	Rows  []ReadRow
	Total int64
	// More: there are rows beyond Limit (with Peek) or beyond MaxBytes.
	More bool
	// Unrepresentable are values that were returned as null because JSON or the declared type cannot hold them.
	Unrepresentable []Unrepresentable
	Bytes           int64 // of all cells, as JSON text, roughly
}

// ReadRow is one row: cells in the order of Block.Columns, then Block.Aggs (or of the group's keys and aggregates), and
// the rows of each Kid. A missing field is Absent, an explicit null is null; in a table without __present NULL is Absent.
type ReadRow struct {
	Cells []canonjson.Value
	Kids  [][]ReadRow
}

// Unrepresentable names a field with such values.
type Unrepresentable struct {
	Model string
	Field string
	Count int64
	Keys  []canonjson.Value // _id of the first ten rows
}

// Commit is what settles a repeated write.
type Commit struct {
	Scope       string // whose keys these are: no two callers share one
	Key         string // "" for none
	Fingerprint [32]byte
	Keep        time.Duration // how long keys are remembered
}

// Applied is the outcome of a Write.
type Applied struct {
	// Rows are the rows as stored after an Insert, Update, Upsert or Mutate (of its root nodes, in order): cells in the
	// order of Model.Fields. Update and Upsert: at most one.
	Rows     []ReadRow
	Modified int64 // rows that Where chose, changed or not (UpdateMany)
	Deleted  int64
	Archived int64
	Replayed bool
}

// Features say what a source can do.
type Features struct {
	Engine   string // sqlite, postgres
	Version  string
	Writes   bool
	Keys     bool // it has the table for idempotency keys
	Snapshot bool // blocks of one Read see one snapshot
}

// RoleReport is what the database says about the roles that tabellion uses.
type RoleReport struct {
	Reader, Writer Role // Writer is zero without a connection for writes
}

// Role is one database role.
type Role struct {
	Name string
	// Dangers are sentences about what the role can do and should not: it is a superuser, it owns tables, it can read files
	// or run programs, the reader can write. Each has a short name that an operator can accept by.
	Dangers []Danger
}

// Danger is one right too many.
type Danger struct{ Name, Text string }

// Table is a table or view of a database as it is.
type Table struct {
	Schema, Name string
	View         bool
	Virtual      string // "" or why it is not listed as a model: a virtual or shadow table
	Comment      string
	Columns      []Column
	Key          []string // columns of the primary key, in order
	Foreign      []ForeignKey
	Unique       [][]string
	Indexes      []TableIndex
	Rows         int64 // the engine's estimate; negative: none
}

// Column is one column of a Table.
type Column struct {
	Name      string
	Native    string     // the type as the database writes it
	Type      model.Type // the nearest type of ours; "" when there is none
	Nullable  bool
	Default   bool
	Identity  bool // the database assigns it
	Generated bool // the database computes it
	Comment   string
	Enum      []string // of an enumerated type, or of a check that lists values
	Collation string   // of text, when it is not the database's default
	ByCode    bool     // text compares by code point
	// Found are the storage classes of SQLite that the column holds, when there are others than Type needs.
	Found []string
	// Format says how all texts of an SQLite column look (YYYY-MM-DD), when they look alike; "" otherwise.
	Format string
}

// ForeignKey is one foreign key.
type ForeignKey struct {
	Name          string
	Columns       []string
	Schema, Table string
	References    []string
}

// TableIndex is one index.
type TableIndex struct {
	Name    string
	Columns []string // "" for an expression
	Desc    []bool
	Unique  bool
	ByCode  bool // all text columns of it compare by code point
}

// String is the table's name for a person.
func (t Table) String() string {
	if t.Schema == "" {
		return t.Name
	}
	return fmt.Sprintf("%s.%s", t.Schema, t.Name)
}
