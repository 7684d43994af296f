package eval

import (
	"fmt"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// block is the root of a query or one of its relation blocks, ready to be asked for parents.
type block struct {
	rows  []*record // all that meet the condition, in order
	win   window
	parts []part
}

// part puts what one item of a selection asks for into a row.
type part func(*record, *builder) error

// block reads arguments and selection.
func (e *Evaluator) block(m *model.Model, v gql.Values, items []gql.BoundItem, root bool) (*block, error) {
	rows, err := e.visible(m)
	if err != nil {
		return nil, err
	}
	t, err := e.scope(m, true).condition(v.Condition)
	if err != nil {
		return nil, err
	}
	b := &block{}
	if rows, err = filter(rows, t); err != nil {
		return nil, err
	}
	keys, err := e.order(m, v.Sort)
	if err != nil {
		return nil, err
	}
	if b.rows, err = sorted(rows, keys); err != nil {
		return nil, err
	}
	if b.win, err = readWindow(v.Skip, v.Limit); err != nil {
		return nil, err
	}
	if root && !m.Keyless {
		b.parts = append(b.parts, show("_id", canonjson.Value{}))
	}
	for _, item := range items {
		p, err := e.part(m, item)
		if err != nil {
			return nil, err
		}
		b.parts = append(b.parts, p...)
	}
	return b, nil
}

// window cuts rows of the block.
func (b *block) window(rows []*record) []*record { return b.win.cut(rows) }

// show gives rows as the selection asks for them.
func (b *block) show(rows []*record) ([]canonjson.Value, error) {
	out := []canonjson.Value{}
	for _, r := range rows {
		var to builder
		for _, p := range b.parts {
			if err := p(r, &to); err != nil {
				return nil, err
			}
		}
		out = append(out, to.object())
	}
	return out, nil
}

// part reads one item. What the caller may not see is no part, unless it is a relation (models, section 5).
func (e *Evaluator) part(m *model.Model, item gql.BoundItem) ([]part, error) {
	if r := m.Relation(item.Name); r != nil && item.Called {
		p, err := e.related(m, r, item)
		return []part{p}, err
	}
	if c := m.Compute(item.Name); c != nil && !item.Called {
		return e.computed(m, c)
	}
	name, sub, dotted := strings.Cut(item.Name, ".")
	f := m.Field(name)
	if f == nil || item.Called && f.Type != model.Object {
		return nil, fmt.Errorf("%s has no field %q", m.Name, item.Name)
	}
	if !e.Access.ReadField(m, f) {
		return nil, nil
	}
	switch {
	case dotted:
		return subs(f, []string{sub})
	case item.Called && len(item.Items) > 0:
		var names []string
		for _, i := range item.Items {
			names = append(names, i.Name)
		}
		return subs(f, names)
	}
	return []part{show(f.Name, f.Default)}, nil
}

// show gives a stored field: its default when it is missing or null and has one, nothing when it is missing.
func show(name string, def canonjson.Value) part {
	return func(r *record, to *builder) error {
		v := r.cells[name]
		if r.ordinary && v.Kind() == canonjson.KindNull {
			v = canonjson.Value{}
		}
		to.set(name, filled(v, def))
		return nil
	}
}

// filled is v, or the declared default where v is missing or null.
func filled(v, def canonjson.Value) canonjson.Value {
	if (v.IsAbsent() || v.Kind() == canonjson.KindNull) && !def.IsAbsent() && def.Kind() != canonjson.KindNull {
		return def
	}
	return v
}

// subs gives sub-fields of an object, each with its default, inside an object of the field's name. Where there is nothing
// to show, the member is what it would be without a choice of sub-fields: null, or none.
func subs(f *model.Field, names []string) ([]part, error) {
	var parts []part
	for _, name := range names {
		s := f.Sub(name)
		if s == nil {
			return nil, fmt.Errorf("%s has no sub-field %q", f.Name, name)
		}
		parts = append(parts, func(r *record, to *builder) error {
			v := r.cells[f.Name]
			if r.ordinary && v.Kind() == canonjson.KindNull {
				v = canonjson.Value{}
			}
			to.setSub(f.Name, name, filled(v, f.Default), s.Default)
			return nil
		})
	}
	return parts, nil
}

// related gives the rows of a relation block: each parent has a window of its own.
func (e *Evaluator) related(m *model.Model, r *model.Relation, item gql.BoundItem) (part, error) {
	l, err := e.follow(m, r, canonjson.Value{}, false)
	if err != nil {
		return nil, err
	}
	b, err := e.block(l.to, item.Values, item.Items, false)
	if err != nil {
		return nil, err
	}
	l.rows = b.rows
	return func(parent *record, to *builder) error {
		rows, err := l.of(parent)
		if err != nil {
			return err
		}
		shown, err := b.show(b.window(rows))
		switch {
		case err != nil:
			return err
		case !r.One:
			to.set(r.Name, canonjson.Array(shown...))
		case len(shown) == 0:
			to.set(r.Name, canonjson.Null())
		default:
			to.set(r.Name, shown[0])
		}
		return nil
	}, nil
}

// column is an aggregate column: an aggregate over a relation's rows.
type column struct {
	link *link
	agg  aggregate
}

// column judges what an aggregate column depends on.
func (e *Evaluator) column(m *model.Model, c *model.Compute) (*column, error) {
	if !e.Access.ReadCompute(m, c) {
		return nil, fmt.Errorf("%s.%s may not be read", m.Name, c.Name)
	}
	l, err := e.follow(m, m.Relation(c.Agg.Relation), canonjson.Value{}, false)
	if err != nil {
		return nil, err
	}
	operand := c.Agg.Field
	if operand == "" {
		operand = "*"
	}
	a, err := e.aggregate(l.to, c.Name, string(c.Agg.Op), operand)
	return &column{link: l, agg: a}, err
}

// of gives the column's value for a row.
func (c *column) of(r *record) (canonjson.Value, error) {
	rows, err := c.link.of(r)
	if err != nil {
		return canonjson.Value{}, err
	}
	return c.agg.over(rows)
}

// computed gives a computed column.
func (e *Evaluator) computed(m *model.Model, c *model.Compute) ([]part, error) {
	if !e.Access.ReadCompute(m, c) {
		return nil, nil
	}
	if c.Agg == nil {
		return e.function(m, c)
	}
	col, err := e.column(m, c)
	if err != nil {
		return nil, err
	}
	return []part{func(r *record, to *builder) error {
		v, err := col.of(r)
		to.set(c.Name, v)
		return err
	}}, nil
}

// builder collects the members of one row. Setting a name again replaces its value.
type builder struct {
	names  []string
	values map[string]canonjson.Value
}

// set sets a member; Absent leaves it out.
func (b *builder) set(name string, v canonjson.Value) {
	if b.values == nil {
		b.values = map[string]canonjson.Value{}
	}
	if _, ok := b.values[name]; !ok {
		b.names = append(b.names, name)
	}
	b.values[name] = v
}

// setSub adds the sub-field of an object to the member of the object's name.
func (b *builder) setSub(name, sub string, object, def canonjson.Value) {
	v := filled(object.Get(sub), def)
	have := b.values[name]
	if v.IsAbsent() && object.Kind() != canonjson.KindObject {
		if have.IsAbsent() {
			b.set(name, object)
		}
		return
	}
	members := have.Without(sub).Members()
	b.set(name, canonjson.Object(append(members[:len(members):len(members)], canonjson.M(sub, v))...))
}

// object is what was collected.
func (b *builder) object() canonjson.Value {
	var members []canonjson.Member
	for _, name := range b.names {
		members = append(members, canonjson.M(name, b.values[name]))
	}
	return canonjson.Object(members...)
}
