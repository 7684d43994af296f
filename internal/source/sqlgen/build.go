package sqlgen

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Statement is one SQL statement with its arguments.
type Statement struct {
	Text string
	Args []any
}

// Generator writes statements for one database. It is safe for concurrent use.
type Generator struct {
	Dialect Dialect
	Layout  Layouts
}

// builder collects the arguments of one statement while its text is put together. Placeholders are numbered in both
// engines, so parts can be made in any order.
type builder struct {
	Generator
	d       Dialect
	args    []any
	aliases int
	outputs map[string]value // of a group, by alias
	err     error
}

// start begins a statement.
func (g Generator) start() *builder { return &builder{Generator: g, d: g.Dialect} }

// done ends a statement.
func (b *builder) done(text string) (Statement, error) {
	return Statement{Text: text, Args: b.args}, b.err
}

// fail keeps the first error.
func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// arg binds a value and gives its placeholder.
func (b *builder) arg(v any) string {
	b.args = append(b.args, v)
	return b.d.placeholder(len(b.args))
}

// count binds a number of rows.
func (b *builder) count(n int64) string { return b.d.count(b, n) }

// place is a table in a FROM clause.
type place struct {
	*Layout
	as string
}

// table opens a table under a new alias.
func (b *builder) table(m *model.Model) place {
	l, err := b.Layout(m)
	if err != nil {
		b.fail(err)
		l = &Layout{Model: m, Table: &Table{}}
	}
	b.aliases++
	return place{l, "t" + strconv.Itoa(b.aliases)}
}

// from names the table with its alias.
func (p place) from() string { return p.Table.quoted() + " AS " + p.as }

// name is a column of the table.
func (p place) name(column string) string {
	if p.as == "" {
		return quote(column)
	}
	return p.as + "." + quote(column)
}

// value is an expression with what is known about it.
type value struct {
	sql      string
	col      *Column // nil: computed
	typ      model.Type
	nullable bool
}

// field is a stored field of a table.
func (b *builder) field(p place, f *model.Field) value {
	c := p.Column(f)
	if c == nil {
		b.fail(p.absent(f))
		return value{sql: "NULL", typ: f.Type}
	}
	return value{sql: p.name(c.Name), col: c, typ: f.Type, nullable: c.Nullable || p.Table.View}
}

// absent is the error for a field without a column.
func (l *Layout) absent(f *model.Field) error {
	if column, ok := l.lacking[f.Name]; ok {
		return fmt.Errorf("table %s has no column %s for %s.%s", l.Table, column, l.Model.Name, f.Name)
	}
	return fmt.Errorf("the field %s of %s has no column of its own", f.Name, l.Model.Name)
}

// fields are several.
func (b *builder) fields(p place, fs []*model.Field) []value {
	out := make([]value, len(fs))
	for i, f := range fs {
		out[i] = b.field(p, f)
	}
	return out
}

// operand is what a condition or sort key looks at.
func (b *builder) operand(p place, o plan.Operand) value {
	switch {
	case o.Alias != "":
		v, ok := b.outputs[o.Alias]
		if !ok {
			b.fail(fmt.Errorf("no output is called %q", o.Alias))
		}
		return v
	case o.Agg != nil:
		return b.aggOperand(p, o.Agg)
	case o.Via != nil:
		return b.viaOperand(p, o)
	}
	return b.field(p, o.Field)
}

// viaOperand is a field of the first row of a to-one relation.
func (b *builder) viaOperand(p place, o plan.Operand) value {
	t := b.table(o.Via.Target)
	v := b.field(t, o.Field)
	v.nullable = true
	text := "(SELECT " + v.sql + " FROM " + t.from() + " WHERE " + b.join(t, o.Via.Foreign, p, o.Via.Local)
	if o.Via.Where != nil {
		text += " AND " + b.cond(t, o.Via.Where, true)
	}
	if !t.unique(o.Via.Foreign) {
		text += " ORDER BY " + b.keyOrder(t) + " LIMIT 1"
	}
	v.sql = text + ")"
	return v
}

// keyOrder sorts by the key, or by all columns where there is none.
func (b *builder) keyOrder(p place) string {
	fields := p.KeyFields()
	if fields == nil {
		for _, f := range p.Model.Fields {
			if !f.Type.JSON() {
				fields = append(fields, f)
			}
		}
	}
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = b.sort(b.field(p, f), false)
	}
	return strings.Join(parts, ", ")
}

// sort is one term of ORDER BY.
func (b *builder) sort(v value, desc bool) string {
	return b.d.compared(v) + b.d.collate(v, false) + b.d.direction(desc, v.nullable)
}

// order is a whole ORDER BY, "" for none.
func (b *builder) order(p place, order []plan.Order) string {
	if len(order) == 0 {
		return ""
	}
	parts := make([]string, len(order))
	for i, o := range order {
		parts[i] = b.sort(b.operand(p, o.By), o.Desc)
	}
	return " ORDER BY " + strings.Join(parts, ", ")
}

// join says that the fields of the inner table equal those of the outer one. The inner side is written first and bare, so
// that its index serves.
func (b *builder) join(inner place, foreign []*model.Field, outer place, local []*model.Field) string {
	parts := make([]string, len(foreign))
	for i := range foreign {
		parts[i] = b.d.joined(b.field(inner, foreign[i]), b.field(outer, local[i]))
	}
	return strings.Join(parts, " AND ")
}

// window is LIMIT and OFFSET; a negative limit is none.
func (b *builder) window(limit, skip int64) string {
	text := ""
	if limit >= 0 {
		text = " LIMIT " + b.count(limit)
	} else if skip > 0 {
		text = b.d.noLimit()
	}
	if skip > 0 {
		text += " OFFSET " + b.count(skip)
	}
	return text
}

// where is a whole WHERE, "" for none.
func (b *builder) where(p place, c plan.Cond) string {
	if c == nil {
		return ""
	}
	return " WHERE " + b.cond(p, c, true)
}

// row is a row value of several expressions, or the one alone.
func row(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return "(" + strings.Join(parts, ", ") + ")"
}
