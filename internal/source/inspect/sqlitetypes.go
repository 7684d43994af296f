package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// sampleRows is how many rows at each end of a table are looked at for the types that its columns hold.
const sampleRows = 10_000

// sampleTime bounds the look at one table or view: a view may be as slow as its author made it. What is not looked at in
// time keeps the type that it claims.
const sampleTime = 5 * time.Second

// claimedType is the nearest type to what a column of SQLite claims to hold. It stands where a column holds nothing yet.
func claimedType(native string) model.Type {
	n := strings.ToUpper(native)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(n, p) })
	}
	switch {
	case has("JSON"):
		return model.Any
	case has("BOOL"):
		return model.Boolean
	case has("BIGINT", "INT8"):
		return model.Long
	case has("POINT"): // SQLite's rule would say integer
		return model.String
	case has("INT"):
		return model.Int
	case has("CHAR", "CLOB", "TEXT", "DATE", "TIME", "UUID"):
		return model.String
	case has("BLOB", "BINARY", "BYTEA"):
		return model.Bytes
	case has("REAL", "FLOA", "DOUB", "NUM", "DEC", "MONEY"):
		return model.Double
	}
	return model.String
}

// held counts what a column holds in the sample.
type held struct {
	Nulls, Integers, Reals, Texts, Blobs int64
	Bits                                 int64 // integers that are 0 or 1
	Wide                                 int64 // integers beyond 32 bits
	JSON                                 int64 // texts that are JSON objects or arrays
	Days, Times                          int64 // texts that look like 2021-01-31, and like that with a time behind it
}

// heldExpressions count what held names, in its order. %[1]s is the column.
var heldExpressions = []string{
	"typeof(%[1]s) = 'null'", "typeof(%[1]s) = 'integer'", "typeof(%[1]s) = 'real'", "typeof(%[1]s) = 'text'", "typeof(%[1]s) = 'blob'",
	"typeof(%[1]s) = 'integer' AND %[1]s IN (0, 1)",
	"typeof(%[1]s) = 'integer' AND %[1]s NOT BETWEEN -2147483648 AND 2147483647",
	"typeof(%[1]s) = 'text' AND substr(%[1]s, 1, 1) IN ('{', '[') AND json_valid(%[1]s)",
	"typeof(%[1]s) = 'text' AND %[1]s GLOB '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9]'",
	"typeof(%[1]s) = 'text' AND %[1]s GLOB '[0-9][0-9][0-9][0-9]-[0-1][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9]'",
}

// lastRows is the order that begins with the last rows of a table, "" when there is none that costs nothing.
func lastRows(t *plan.Table, l sqliteTable) string {
	if t.Rows <= sampleRows {
		return ""
	}
	if !l.withoutRowid {
		return "rowid DESC"
	}
	var keys []string
	for _, k := range t.Key {
		keys = append(keys, quote(k)+" DESC")
	}
	return strings.Join(keys, ", ")
}

// maxSampled bounds the columns of one statement; SQLite refuses more than 2,000 results.
const maxSampled = 100

// sample looks at what the columns hold: in the first rows, and in the last ones when last gives an order for them.
func (in *sqliteInspector) sample(ctx context.Context, t *plan.Table, last string) error {
	timed, cancel := context.WithTimeout(ctx, in.patience)
	defer cancel()
	for columns := range slices.Chunk(t.Columns, maxSampled) {
		found := make([]held, len(columns))
		err := in.look(timed, t.Name, columns, found, "")
		if err == nil && last != "" {
			err = in.look(timed, t.Name, columns, found, last)
		}
		if err != nil {
			if ctx.Err() == nil && (t.View || errors.Is(timed.Err(), context.DeadlineExceeded)) {
				return nil // too slow, or a view whose rows fail: the claims stand
			}
			return fmt.Errorf("look at the types that it holds: %w", err)
		}
		for i := range columns {
			judge(&columns[i], found[i])
		}
	}
	return nil
}

// look adds to found what one end of the table holds.
func (in *sqliteInspector) look(ctx context.Context, table string, columns []plan.Column, found []held, order string) error {
	var sums, names []string
	var targets []any
	for i, c := range columns {
		names = append(names, fmt.Sprintf("%s AS c%d", quote(c.Name), i))
		for _, e := range heldExpressions {
			sums = append(sums, "coalesce(sum("+fmt.Sprintf(e, fmt.Sprintf("c%d", i))+"), 0)")
		}
	}
	if order != "" {
		order = " ORDER BY " + order
	}
	counts := make([]int64, len(sums))
	for i := range counts {
		targets = append(targets, &counts[i])
	}
	statement := fmt.Sprintf("SELECT %s FROM (SELECT %s FROM main.%s%s LIMIT %d)",
		strings.Join(sums, ", "), strings.Join(names, ", "), quote(table), order, sampleRows)
	if err := in.conn.QueryRowContext(ctx, statement).Scan(targets...); err != nil {
		return err
	}
	for i := range found {
		found[i].add(counts[i*len(heldExpressions):])
	}
	return nil
}

// add adds counts in the order of heldExpressions.
func (h *held) add(n []int64) {
	for i, p := range []*int64{&h.Nulls, &h.Integers, &h.Reals, &h.Texts, &h.Blobs, &h.Bits, &h.Wide, &h.JSON, &h.Days, &h.Times} {
		*p += n[i]
	}
}

// judge gives a column the type that it holds. Where it holds several, the type is that of most cells, and of the claim
// where that is even; Found then names all of them.
func judge(c *plan.Column, h held) {
	if h.Nulls > 0 {
		c.Nullable = true
	}
	numbers := h.Integers + h.Reals
	cells := numbers + h.Texts + h.Blobs
	if cells == 0 {
		return
	}
	claimed := c.Type
	most := max(numbers, h.Texts, h.Blobs)
	switch {
	case numbers == most && (claimed.Numeric() || claimed == model.Boolean || h.Texts < most && h.Blobs < most):
		c.Type = h.number(claimed)
	case h.Texts == most && (claimed != model.Bytes || h.Blobs < most):
		c.Type = h.text(claimed)
	default:
		c.Type = model.Bytes
	}
	if c.Type == model.String && cells == h.Texts {
		c.Format = h.format()
	}
	c.Found = h.found(c.Type)
}

// number is the type for a column of numbers.
func (h held) number(claimed model.Type) model.Type {
	switch {
	case h.Reals > 0, claimed == model.Double:
		return model.Double
	case claimed == model.Boolean && h.Bits == h.Integers:
		return model.Boolean
	case h.Wide > 0 || claimed == model.Long:
		return model.Long
	}
	return model.Int
}

// text is the type for a column of texts.
func (h held) text(claimed model.Type) model.Type {
	if claimed == model.Any && h.JSON == h.Texts {
		return model.Any
	}
	return model.String
}

// format names the way that all texts look alike, "" when they do not.
func (h held) format() string {
	switch h.Texts {
	case h.Days:
		return "YYYY-MM-DD"
	case h.Times:
		return "YYYY-MM-DD HH:MM:SS"
	}
	return ""
}

// found names the types that the cells have, when there are others than t needs.
func (h held) found(t model.Type) []string {
	fits := map[string]bool{}
	switch {
	case t.Integer() || t == model.Boolean:
		fits["integer"] = true
	case t.Numeric():
		fits["integer"], fits["real"] = true, true
	case t == model.Bytes:
		fits["blob"] = true
	default:
		fits["text"] = true
	}
	var all []string
	other := false
	for _, kind := range []struct {
		name string
		n    int64
	}{{"integer", h.Integers}, {"real", h.Reals}, {"text", h.Texts}, {"blob", h.Blobs}} {
		if kind.n > 0 {
			all = append(all, kind.name)
			other = other || !fits[kind.name]
		}
	}
	if !other {
		return nil
	}
	return all
}
