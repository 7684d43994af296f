package sqlgen

import (
	"strconv"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Dialect is how one engine spells what engines spell differently.
type Dialect interface {
	// Name is the engine's name, sqlite or postgres.
	Name() string

	placeholder(n int) string
	count(b *builder, n int64) string // a number of rows as an argument
	noLimit() string                  // LIMIT for an OFFSET without one
	truth(is bool) string

	// read is a column as it is read; compared as it is compared, sorted and grouped by; collate and direction follow it.
	// equal says that only equality is asked.
	read(v value) string
	compared(v value) string
	collate(v value, equal bool) string
	direction(desc, nullable bool) string
	// guard tells cells that hold the declared type from others; "" where all do.
	guard(v value) string
	// derived is the column that an expression over v is outside of the SELECT that computes it.
	derived(v value) *Column
	// joined says that the inner column equals the outer one.
	joined(inner, outer value) string

	// encode gives a value as an argument to compare with v, and the cast after its placeholder.
	encode(v value, x canonjson.Value) (arg any, cast string, err error)
	// stored gives the SQL of a value that is written into the column of v.
	stored(b *builder, v value, x canonjson.Value) (string, error)
	// among is the end of a membership test.
	among(b *builder, v value, xs []canonjson.Value) string
	match(b *builder, v value, r *plan.Regex) string
	find(text, part string) string // the place of part in text, 0 for none

	sum(v value) string
	average(v value) string
	extreme(v value, least bool) value

	// parents makes a table of the argument list of parents, for columns that are compared with its values.
	parents(b *builder, with []value, tuples []Tuple) parents
	crossed(table string) string // joins one more table, to be looked up for each row before it
	// windows is the statement of a relation block with a window for each parent.
	windows(b *builder, c *columns, p place, k *plan.Kid, parents parents) string

	lock() string // after a SELECT that chooses rows to write
	// perInsert is how many rows of so many fields one INSERT takes.
	perInsert(fields int) int
	textCast() string // after the placeholder of a text
}

// Tuple are the values that rows are found by, of the types of the fields they are compared with.
type Tuple []canonjson.Value

// Dialects.
var (
	SQLite   Dialect = sqlite{}
	Postgres Dialect = postgres{}
)

// integer gives a number that is spelled as an integer of 64 bits.
func integer(x canonjson.Value) (int64, bool) {
	n, err := strconv.ParseInt(x.Literal(), 10, 64)
	return n, err == nil
}

// misfit is a value that the planner should not have let through for its field.
func misfit(v value, x canonjson.Value) error {
	return model.Errorf(model.BadValue, "a %s does not fit the type %s", x.Kind(), v.typ)
}
