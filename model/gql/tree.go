// Package gql reads the query language of models: one root model, arguments that refer to parameters, and a block of
// fields and relations. It knows no model: names are resolved by those who walk the tree.
//
//	q, err := gql.Parse("Course($condition: @c0, $limit: @l) -> { title, lessons { title } }")
//	bound, err := q.Bind(params)
//
// The language has no literals, no aliases, no comments, and no way to express a write. Whatever the grammar does not
// know is an error that names the position, what was expected, and a corrected example.
//
// Experimental until 1.0.
package gql

import "github.com/tabellion-mcp/tabellion/internal/canonjson"

// Query is a parsed query. It is immutable.
type Query struct {
	Model string
	At    int // byte offset of the name in the text
	Args  Args
	Items []Item // of the block; nil for none and for an empty one
}

// Item is one entry of a block: a field (plain name or dotted path) or, when it was written with arguments or a block, a
// relation or an object field.
type Item struct {
	Name   string
	At     int
	Called bool // written with arguments or a block, empty ones included
	Args   Args
	Items  []Item
}

// Args are the arguments in a fixed form, one reference each: the name of the parameter without "@", "" when the argument
// is not written. The last of repeated ones wins.
type Args struct {
	Condition, Sort, Skip, Limit, Group, Having, Pipeline string
}

// Values are arguments with their parameters resolved. Absent: not written, or null. Members keep the order of the
// parameters' text.
type Values struct {
	Condition, Sort, Skip, Limit, Group, Having, Pipeline canonjson.Value
}

// Bound is a query with its parameters.
type Bound struct {
	Model  string
	At     int
	Values Values
	Items  []BoundItem
}

// BoundItem is an Item with its parameters.
type BoundItem struct {
	Name   string
	At     int
	Called bool
	Values Values
	Items  []BoundItem
}

// Bounds of a query (models, section 15): the text and the parameters in bytes.
const (
	MaxText   = 64 << 10
	MaxParams = 1 << 20
)
