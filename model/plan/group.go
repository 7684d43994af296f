package plan

import (
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// groupForm is the example for faults of groups.
const groupForm = `Write {"by": ["status"], "agg": {"n": {"$count": "*"}, "total": {"$sum": "price"}}}`

// grouper plans the root of a query that groups (section 9).
type grouper struct {
	p    *Planner
	m    *model.Model
	b    *Block
	outs outputs
}

// groupFault makes an error about $group.
func groupFault(format string, args ...any) error {
	e := model.Errorf(model.Group, format, args...)
	e.Message = "$group: " + e.Message
	return e
}

// grouped plans the root of a query with $group.
func (p *Planner) grouped(m *model.Model, b *gql.Bound) (*Block, error) {
	g := &grouper{p: p, m: m, b: &Block{Model: m, Limit: unlimited, Group: &Group{}}}
	g.outs = outputs{class: model.Having, what: "$having", tests: new(int)}
	var err error
	if err = g.read(b.Values.Group); err != nil {
		return nil, err
	}
	if g.b.Where, err = p.where(m, b.Values.Condition, useGroup); err != nil {
		return nil, err
	}
	if err = g.having(b.Values.Having); err != nil {
		return nil, err
	}
	if err = g.selection(b.Items); err != nil {
		return nil, err
	}
	return g.b, g.sort(b.Values.Sort)
}

// read reads {by, agg}.
func (g *grouper) read(v canonjson.Value) error {
	if v.Kind() != canonjson.KindObject {
		return groupFault("an object is needed, not %s. %s", short(v), groupForm)
	}
	for _, m := range v.Members() {
		if m.Name != "by" && m.Name != "agg" {
			return groupFault("%s is neither by nor agg. %s", clip(m.Name), groupForm)
		}
	}
	if err := g.by(v.Get("by")); err != nil {
		return err
	}
	if err := g.agg(v.Get("agg")); err != nil {
		return err
	}
	if len(g.outs.list) == 0 {
		return groupFault("there is neither a key nor an aggregate. %s", groupForm)
	}
	return nil
}

// absent tells whether a member is not there or null.
func absent(v canonjson.Value) bool { return v.IsAbsent() || v.Kind() == canonjson.KindNull }

// by reads the keys.
func (g *grouper) by(v canonjson.Value) error {
	if absent(v) {
		return nil
	}
	if v.Kind() != canonjson.KindArray {
		return groupFault("by is an array of field names, not %s. %s", short(v), groupForm)
	}
	if v.Len() > maxAggs {
		return model.Errorf(model.Limit, "$group: by may hold %d keys at most", maxAggs)
	}
	for _, item := range v.Items() {
		if item.Kind() != canonjson.KindString {
			return groupFault("by holds names of fields, not %s. %s", short(item), groupForm)
		}
		name := item.Str()
		if g.outs.find(name) != nil {
			return groupFault("by holds %s twice", clip(name))
		}
		by, err := g.key(name)
		if err != nil {
			return err
		}
		g.b.Group.By = append(g.b.Group.By, Key{name, by})
		g.outs.add(output{name: name, subject: subject{Operand: Operand{Alias: name, Type: by.Type}}})
	}
	return nil
}

// key finds and judges one key.
func (g *grouper) key(name string) (Operand, error) {
	f := g.m.Field(name)
	if f == nil {
		return g.keyPath(name)
	}
	if err := g.p.mayReadField(g.m, f); err != nil {
		return Operand{}, err
	}
	if !plain(f) {
		return Operand{}, groupFault("%s is of type %s, and groups have plain keys%s", place(g.m, name), f.Type, g.keyHint(""))
	}
	if f.Column == "" {
		return Operand{}, groupFault("%s is made of several columns; name them instead%s", place(g.m, name), g.keyHint(""))
	}
	return Operand{Field: f, Type: f.Type}, nil
}

// keyHint names fields that can be keys.
func (g *grouper) keyHint(name string) string {
	return hint(name, g.p.fieldNames(g.m, func(f *model.Field) bool { return plain(f) && f.Column != "" }))
}

// keyPath finds a key that is a path: a field of a to-one relation.
func (g *grouper) keyPath(name string) (Operand, error) {
	head, rest, ok := split(name)
	if !ok {
		return Operand{}, groupFault("%s has no field %s that groups could have as a key%s", g.m.Name, clip(name), g.keyHint(name))
	}
	if f := g.m.Field(head); f != nil {
		if err := g.p.mayReadField(g.m, f); err != nil {
			return Operand{}, err
		}
		if !plain(f) && f.Type != model.Array && g.p.Profile.Sandbox {
			return Operand{}, g.p.refuse("group by object path", "%s points into an object, and groups have plain keys", place(g.m, name))
		}
		return Operand{}, groupFault("%s points into a field, and groups have plain keys%s", place(g.m, name), g.keyHint(""))
	}
	r := g.p.relationOf(g.m, head)
	if r == nil {
		return Operand{}, groupFault("%s has no field %s%s", g.m.Name, clip(name), g.keyHint(head))
	}
	l, err := g.p.follow(g.m, r)
	if err != nil {
		return Operand{}, err
	}
	if !r.One {
		return Operand{}, groupFault("%s goes through %s, which holds many rows; group %s instead", clip(name), place(g.m, head), l.target.Name)
	}
	f, err := g.p.targetField(l, name, rest, "$group")
	if e, ok := err.(*model.Error); ok && e.Class != model.Denied {
		e.Class = model.Group
	}
	if err != nil {
		return Operand{}, err
	}
	return g.p.via(l, f), nil
}

// agg reads the aggregates.
func (g *grouper) agg(v canonjson.Value) error {
	if absent(v) {
		return nil
	}
	if v.Kind() != canonjson.KindObject {
		return groupFault("agg is an object of aliases, not %s. %s", short(v), groupForm)
	}
	if v.Len() > maxAggs {
		return model.Errorf(model.Limit, "$group: agg may hold %d aliases at most", maxAggs)
	}
	for _, m := range v.Members() {
		if g.outs.find(m.Name) != nil {
			return groupFault("the alias %s is a key already; choose another", clip(m.Name))
		}
		op, f, err := g.p.aggregateOf(g.m, m, groupFault)
		if err != nil {
			return err
		}
		g.b.Group.Aggs = append(g.b.Group.Aggs, GroupAgg{Alias: m.Name, Op: op, Field: f})
		g.outs.add(output{name: m.Name, subject: subject{Operand: Operand{Alias: m.Name, Type: aggType(op, f)}, count: op == model.Count}})
	}
	return nil
}

// having reads $having.
func (g *grouper) having(v canonjson.Value) error {
	if v.IsAbsent() {
		return nil
	}
	c, err := g.outs.judge().object(v, 0)
	g.b.Group.Having = c
	return err
}

// selection reads which keys and aliases are shown.
func (g *grouper) selection(items []gql.BoundItem) error {
	if len(items) == 0 {
		return groupFault("the selection is empty. Write a block with keys and aliases, such as { %s }", g.outs.list[0].name)
	}
	seen := map[string]bool{}
	for _, item := range items {
		if item.Called {
			return groupFault("%s has a block, and groups have no relations; the selection holds keys and aliases only", clip(item.Name))
		}
		i := g.index(item.Name)
		if i < 0 {
			return groupFault("%s is neither a key nor an alias of $group%s", clip(item.Name), hint(item.Name, g.outs.names()))
		}
		if !seen[item.Name] {
			seen[item.Name] = true
			g.b.Shape.Items = append(g.b.Shape.Items, ShapeItem{Name: item.Name, Group: &i})
		}
	}
	return nil
}

// index is the place of an output: keys, then aggregates. Negative: there is none of this name.
func (g *grouper) index(name string) int {
	for i := range g.outs.list {
		if g.outs.list[i].name == name {
			return i
		}
	}
	return -1
}

// sort sets the order of groups: the written keys, then all group keys, so that it is always the same.
func (g *grouper) sort(v canonjson.Value) error {
	keys, err := sortKeys(v)
	if err != nil {
		return err
	}
	sorted := map[string]bool{}
	add := func(o *output, desc bool) {
		if !sorted[o.name] {
			sorted[o.name] = true
			g.b.Order = append(g.b.Order, Order{o.subject.Operand, desc})
		}
	}
	for _, k := range keys {
		o := g.outs.find(k.name)
		if o == nil {
			return groupFault("$sort: %s is neither a key nor an alias of $group%s", clip(k.name), hint(k.name, g.outs.names()))
		}
		add(o, k.desc)
	}
	for i := range g.b.Group.By {
		add(&g.outs.list[i], false)
	}
	return nil
}
