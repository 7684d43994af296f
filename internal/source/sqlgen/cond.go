package sqlgen

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// cond writes a condition. only says that unknown means false here, as at the top of a WHERE, which lets tests be written
// so that an index serves; below a NOT unknown must stay unknown.
func (b *builder) cond(p place, c plan.Cond, only bool) string {
	switch c := c.(type) {
	case nil:
		return b.d.truth(true)
	case plan.And:
		return b.all(p, c, " AND ", only)
	case plan.Or:
		return b.all(p, c, " OR ", only)
	case plan.Not:
		return "(NOT " + b.cond(p, c.Cond, false) + ")"
	case plan.Const:
		return b.d.truth(bool(c))
	case plan.Compare:
		return b.compare(p, c, only)
	case plan.In:
		return b.in(p, c, only)
	case plan.IsNull:
		return b.isNull(p, c.By)
	case plan.IsStored:
		return b.isStored(p, c.By)
	case plan.HasValue:
		return "(" + b.operand(p, c.By).sql + " IS NOT NULL)"
	case plan.Match:
		return b.d.match(b, b.operand(p, c.By), c.Pattern)
	case plan.Exists:
		return b.exists(p, c)
	}
	b.fail(fmt.Errorf("sqlgen: no SQL for a %T", c))
	return b.d.truth(false)
}

// all joins conditions; of none AND is true and OR is false.
func (b *builder) all(p place, conds []plan.Cond, op string, only bool) string {
	if len(conds) == 0 {
		return b.d.truth(op == " AND ")
	}
	parts := make([]string, len(conds))
	for i, c := range conds {
		parts[i] = b.cond(p, c, only)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return "(" + strings.Join(parts, op) + ")"
}

// compare is one comparison with a value.
func (b *builder) compare(p place, c plan.Compare, only bool) string {
	v := b.operand(p, c.By)
	equal := c.Op == plan.EQ || c.Op == plan.NE
	text := b.d.compared(v) + b.d.collate(v, equal) + " " + string(c.Op) + " " + b.bind(v, c.Value)
	return b.guarded(v, text, only, c.Op == plan.EQ)
}

// guarded makes a test unknown for cells that do not hold the declared type: such cells are shown as null. safe says that
// no such cell passes the test anyway.
func (b *builder) guarded(v value, test string, only, safe bool) string {
	guard := b.d.guard(v)
	switch {
	case guard == "" || only && safe:
		return "(" + test + ")"
	case only:
		return "(" + test + " AND " + guard + ")"
	}
	return "(CASE WHEN " + guard + " THEN " + test + " END)"
}

// bind writes a value of the type of v as an argument.
func (b *builder) bind(v value, x canonjson.Value) string {
	arg, cast, err := b.d.encode(v, x)
	if err != nil {
		b.fail(err)
	}
	return b.arg(arg) + cast
}

// in is membership in a list, which is one argument however long it is.
func (b *builder) in(p place, c plan.In, only bool) string {
	if len(c.Values) == 0 {
		return b.d.truth(false)
	}
	v := b.operand(p, c.By)
	if len(c.Values) == 1 {
		return b.guarded(v, b.d.compared(v)+b.d.collate(v, true)+" = "+b.bind(v, c.Values[0]), only, true)
	}
	return b.guarded(v, b.d.compared(v)+b.d.collate(v, true)+b.d.among(b, v, c.Values), only, true)
}

// isNull tells an explicit null from a missing field where the table keeps them apart.
func (b *builder) isNull(p place, o plan.Operand) string {
	v := b.operand(p, o)
	if o.Field == nil || o.Via != nil || !p.Present {
		return "(" + v.sql + " IS NULL)"
	}
	return "(" + v.sql + " IS NULL AND " + b.listed(p, o.Field) + ")"
}

// isStored is true for a value and for an explicit null. A value counts even where __present, written by somebody else,
// does not list it.
func (b *builder) isStored(p place, o plan.Operand) string {
	v := b.operand(p, o)
	if o.Field == nil || o.Via != nil || !p.Present {
		return "(" + v.sql + " IS NOT NULL)"
	}
	return "(" + v.sql + " IS NOT NULL OR " + b.listed(p, o.Field) + ")"
}

// listed tells whether __present names a field. The column may be null in rows of others.
func (b *builder) listed(p place, f *model.Field) string {
	return "coalesce(" + b.d.find(p.name(PresentColumn), b.arg(","+f.Name+",")) + ", 0) > 0"
}

// exists is a relation predicate. An aggregate without GROUP BY gives one row even over no children, so that a parent
// without any has the count 0.
func (b *builder) exists(p place, c plan.Exists) string {
	t := b.table(c.Target)
	source := " FROM " + t.from() + " WHERE " + b.join(t, c.Foreign, p, c.Local)
	if c.Where != nil {
		source += " AND " + b.cond(t, c.Where, true)
	}
	if c.Having == nil {
		return "EXISTS (SELECT 1" + source + ")"
	}
	b.aliases++
	g := "g" + strconv.Itoa(b.aliases)
	outer := b.outputs
	b.outputs = map[string]value{}
	columns := make([]string, len(c.Aggs))
	for i, a := range c.Aggs {
		columns[i] = b.output(t, g, "a"+strconv.Itoa(i), a.Alias, b.aggregate(t, a.Op, a.Field))
	}
	text := "EXISTS (SELECT 1 FROM (SELECT " + strings.Join(columns, ", ") + source + ") AS " + g + " WHERE " + b.cond(place{}, c.Having, true) + ")"
	b.outputs = outer
	return text
}

// output is a column of an inner SELECT, which conditions and sort keys outside find by its alias.
func (b *builder) output(p place, from, name, alias string, v value) string {
	outside := v
	outside.sql = from + "." + name
	outside.col = b.d.derived(v)
	b.outputs[alias] = outside
	return v.sql + " AS " + name
}
