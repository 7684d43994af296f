// Package plan turns a query or a write into an engine-neutral plan, fully judged: limits, the caller's row filters and
// field lists are part of it. A source carries it out and sees no caller.
//
//	p := plan.Planner{Registry: registry, Access: access, Profile: plan.TextToQuery}
//	q, err := p.Query(bound)
//	rows, err := source.Read(ctx, q)
//
// A plan holds fields and values apart. Fields come from the definitions, values are JSON of the declared type (see
// Value rules at Compare); a source quotes the first and binds the second.
//
// The logic of conditions is three-valued, as in SQL: a comparison with a missing or null field is unknown, Not of
// unknown is unknown, and a row is taken only where the condition is true. IsNull, IsStored and Exists are two-valued.
//
// Experimental until 1.0.
package plan

import (
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Query is one judged query.
type Query struct {
	Root *Block
	// Rows: the rows are wanted. Total: the number of rows that match, ignoring Skip and Limit, is wanted.
	Rows, Total bool
	// MaxBytes bounds the rows together, as JSON text; 0 is no bound. MaxRows bounds the rows of each relation block over all
	// parents; 0 is no bound, one more is an error with the class Limit.
	MaxBytes, MaxRows int64

	own     int64 // the root's $limit as written, negative: none
	ceiling int64 // of one answer, by the profile; negative: none
}

// Block reads rows of one model: the root's, or those of a relation for a set of parents.
type Block struct {
	Model *model.Model
	// Columns are the stored fields to read, each once, in a fixed order: those shown, and those that joins, functions
	// and cursors need. The _id of a composite key is a column too.
	Columns []*model.Field
	Where   Cond // nil: every row. The caller's row limits are part of it
	Order   []Order
	Skip    int64
	Limit   int64 // negative: none. In a relation block Skip and Limit are a window for each parent
	Peek    bool  // the root may read one row more than Limit, to tell whether there are more (Rows.More)
	Aggs    []*Agg
	Kids    []*Kid
	Group   *Group // root only: rows are groups, Columns, Aggs and Kids are empty
	Shape   Shape
}

// Kid is a relation block: the rows of Block whose Foreign fields equal the parent's Local fields, pairwise.
type Kid struct {
	Relation       *model.Relation
	Local, Foreign []*model.Field // Local are among the parent block's Columns, Foreign among Block's
	Block          *Block
	// Hidden: the rows are for the functions of computed columns only, all of them and whatever the caller asked of the
	// relation; no ShapeItem shows them. Block.Shape tells what the functions get.
	Hidden bool
}

// Agg is an aggregate column: an aggregate over a relation's rows that meet Where, for the rows of a page only.
type Agg struct {
	Name           string
	Op             model.AggOp
	Target         *model.Model
	Field          *model.Field // of Target; nil for $count of rows
	Local, Foreign []*model.Field
	Where          Cond // nil: every row
}

// Group makes one row of the rows with equal keys. Without keys there is one group, even over no rows.
type Group struct {
	By     []Key
	Aggs   []GroupAgg
	Having Cond // over Alias operands; nil: every group
}

// Key is one group key.
type Key struct {
	Name    string // as written: a field, or relation.field
	Operand Operand
}

// GroupAgg is one aggregate of a group.
type GroupAgg struct {
	Alias string
	Op    model.AggOp
	Field *model.Field // nil: $count of rows
}

// Order is one sort key. Null and missing come first ascending and last descending, in every engine.
type Order struct {
	By   Operand
	Desc bool
}

// Operand is what a condition or sort key looks at. Exactly one of Field, Agg and Alias is set.
type Operand struct {
	Field *model.Field
	Via   *Join  // Field belongs to the target of this to-one relation: that of its first row by key
	Agg   *Agg   // an aggregate column of the block's model
	Alias string // the output of a Group: a key's name or an aggregate's alias
	// Type is how its values compare.
	Type model.Type
}

// Join is a to-one relation, for sorting and grouping by a field of its target.
type Join struct {
	Relation       *model.Relation
	Target         *model.Model
	Local, Foreign []*model.Field
	Where          Cond // the caller's row limits on the target; nil: none
}

// Cond is a condition: one of the types below.
type Cond interface{ cond() }

// And is true when all are; of none it is true.
type And []Cond

// Or is true when one is; of none it is false.
type Or []Cond

// Not turns true and false around and leaves unknown.
type Not struct{ Cond Cond }

// Const is true or false for every row.
type Const bool

// CompareOp is a comparison.
type CompareOp string

// The comparisons.
const (
	EQ CompareOp = "="
	NE CompareOp = "<>"
	GT CompareOp = ">"
	GE CompareOp = ">="
	LT CompareOp = "<"
	LE CompareOp = "<="
)

// Compare is unknown where the operand is null or missing. Value is not null and fits By.Type: an integer literal of 64
// bits for int, long and date; a number for float, double and number; true or false for boolean; a string for the rest
// (decimal: canonical digits without exponent; timestamp: RFC 3339 in UTC with as many fraction digits as needed; bytes:
// base64). Text compares by code point unless the model says SourceText.
type Compare struct {
	By    Operand
	Op    CompareOp
	Value canonjson.Value
}

// In is unknown where the operand is null or missing. Values are as in Compare, and may be none: then it is false for
// every row, null and missing included.
type In struct {
	By     Operand
	Values []canonjson.Value
}

// IsNull is true where the field is stored as an explicit null. In a table without __present there is one state for null
// and missing, and it is true there.
type IsNull struct{ By Operand }

// IsStored is true where the field is stored, explicit null included. In a table without __present it is true where the
// column is not null.
type IsStored struct{ By Operand }

// HasValue is true where the field holds a value: neither null nor missing.
type HasValue struct{ By Operand }

// Match is an unanchored search with a regular expression; unknown where the operand is null or missing.
type Match struct {
	By      Operand
	Pattern *Regex
}

// Exists is a relation predicate: rows of Target whose Foreign fields equal Local and that meet Where are counted and
// aggregated for each parent, and Having is asked of the result. Having nil asks whether there is a row. A parent without
// rows has $count 0, and null for the other aggregates. It is never unknown: where Having is unknown it is false.
type Exists struct {
	Target         *model.Model
	Local, Foreign []*model.Field
	Where          Cond // nil: every row
	Aggs           []GroupAgg
	Having         Cond // over Alias operands
}

func (And) cond()      {}
func (Or) cond()       {}
func (Not) cond()      {}
func (Const) cond()    {}
func (Compare) cond()  {}
func (In) cond()       {}
func (IsNull) cond()   {}
func (IsStored) cond() {}
func (HasValue) cond() {}
func (Match) cond()    {}
func (Exists) cond()   {}

// Shape says how the rows of a block are shown.
type Shape struct {
	// ID: _id is part of every row, asked for or not (root rows).
	ID    bool
	Items []ShapeItem
}

// ShapeItem is one member of a shown row. Exactly one of Field, Agg, Compute, Kid and Group is set.
type ShapeItem struct {
	Name    string
	Field   *model.Field
	Subs    []*model.Field // of an object field: only these sub-fields; nil: the whole
	Agg     int            // index in Block.Aggs, with Compute set
	Compute *model.Compute // an aggregate or function column
	Kid     *int           // index in Block.Kids
	Group   *int           // index in the group's output: keys, then aggregates
}
