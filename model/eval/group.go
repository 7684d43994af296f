package eval

import (
	"fmt"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// groupKey is one key of a group: a field, or a field of a to-one relation's row.
type groupKey struct {
	name  string
	typ   model.Type
	value func(*record) (any, error)
	show  func(*record) (canonjson.Value, error)
}

// grouping is a $group as read.
type grouping struct {
	keys []groupKey
	aggs aggregates
}

// groups answers a query with $group (models, section 9).
func (e *Evaluator) groups(m *model.Model, q *gql.Bound) ([]canonjson.Value, error) {
	rows, err := e.visible(m)
	if err != nil {
		return nil, err
	}
	t, err := e.scope(m, false).condition(q.Values.Condition)
	if err != nil {
		return nil, err
	}
	if rows, err = filter(rows, t); err != nil {
		return nil, err
	}
	g, err := e.grouping(m, q.Values.Group)
	if err != nil {
		return nil, err
	}
	out, err := g.over(rows)
	if err != nil {
		return nil, err
	}
	if out, err = g.choose(out, q.Values); err != nil {
		return nil, err
	}
	return g.show(out, q.Items)
}

// grouping reads {by, agg}.
func (e *Evaluator) grouping(m *model.Model, v canonjson.Value) (*grouping, error) {
	g := &grouping{}
	for _, item := range v.Get("by").Items() {
		k, err := e.groupKey(m, item.Str())
		if err != nil {
			return nil, err
		}
		g.keys = append(g.keys, k)
	}
	aggs, err := e.aggregates(m, v.Get("agg"))
	if err != nil {
		return nil, err
	}
	if g.aggs = aggs; len(g.keys) == 0 && len(g.aggs) == 0 {
		return nil, fmt.Errorf("$group needs by or agg")
	}
	return g, nil
}

// groupKey reads one name of by.
func (e *Evaluator) groupKey(m *model.Model, name string) (groupKey, error) {
	if relation, rest, ok := strings.Cut(name, "."); ok {
		return e.groupKeyThrough(m, name, relation, rest)
	}
	t, err := e.comparable(m, name)
	return groupKey{
		name: name, typ: t,
		value: func(r *record) (any, error) { return r.value(name, t) },
		show:  func(r *record) (canonjson.Value, error) { return r.cells[name], nil },
	}, err
}

// groupKeyThrough reads relation.field.
func (e *Evaluator) groupKeyThrough(m *model.Model, name, relation, rest string) (groupKey, error) {
	value, t, err := e.through(m, relation, rest)
	if err != nil {
		return groupKey{}, err
	}
	l, err := e.follow(m, m.Relation(relation), canonjson.Value{}, false)
	return groupKey{name: name, typ: t, value: value, show: func(r *record) (canonjson.Value, error) {
		first, err := l.first(r)
		if err != nil || first == nil {
			return canonjson.Value{}, err
		}
		return first.cells[rest], nil
	}}, err
}

// over makes one row of the rows with equal keys, null and missing being equal. Without keys there is one, even of none.
func (g *grouping) over(rows []*record) ([]*record, error) {
	members := map[string][]*record{}
	var names []string
	if len(g.keys) == 0 {
		names, members[""] = []string{""}, rows
	} else {
		for _, r := range rows {
			name, err := g.identity(r)
			if err != nil {
				return nil, err
			}
			if members[name] == nil {
				names = append(names, name)
			}
			members[name] = append(members[name], r)
		}
	}
	var out []*record
	for _, name := range names {
		one, err := g.row(members[name])
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// identity spells the keys of a row.
func (g *grouping) identity(r *record) (string, error) {
	var parts []string
	for _, k := range g.keys {
		v, err := k.value(r)
		if err != nil {
			return "", err
		}
		parts = append(parts, fmt.Sprintf("%q", identity(v)))
	}
	return strings.Join(parts, " "), nil
}

// row makes the row of one group.
func (g *grouping) row(rows []*record) (*record, error) {
	cells, err := g.aggs.over(rows)
	if err != nil {
		return nil, err
	}
	for _, k := range g.keys {
		v, err := k.show(rows[0])
		if err != nil {
			return nil, err
		}
		if v.IsAbsent() {
			v = canonjson.Null()
		}
		cells[k.name] = v
	}
	return &record{cells: cells}, nil
}

// typeOf gives the type of a key or an alias.
func (g *grouping) typeOf(name string) (model.Type, error) {
	for _, k := range g.keys {
		if k.name == name {
			return k.typ, nil
		}
	}
	return g.aggs.scope().typeOf(name)
}

// choose applies $having, $sort (then all keys), $skip and $limit.
func (g *grouping) choose(rows []*record, v gql.Values) ([]*record, error) {
	t, err := (&scope{typeOf: g.typeOf}).condition(v.Having)
	if err != nil {
		return nil, err
	}
	if rows, err = filter(rows, t); err != nil {
		return nil, err
	}
	keys, err := sortKeys(v.Sort, func(name string) (sortKey, error) {
		t, err := g.typeOf(name)
		return byField(name, t), err
	})
	if err != nil {
		return nil, err
	}
	for _, k := range g.keys {
		keys = append(keys, byField(k.name, k.typ))
	}
	if rows, err = sorted(rows, keys); err != nil {
		return nil, err
	}
	w, err := readWindow(v.Skip, v.Limit)
	return w.cut(rows), err
}

// show gives the selected keys and aliases.
func (g *grouping) show(rows []*record, items []gql.BoundItem) ([]canonjson.Value, error) {
	if len(items) == 0 {
		return nil, fmt.Errorf("a query with $group needs a selection")
	}
	out := []canonjson.Value{}
	for _, r := range rows {
		var b builder
		for _, item := range items {
			if _, err := g.typeOf(item.Name); err != nil || item.Called {
				return nil, fmt.Errorf("%s is no key or alias of $group", item.Name)
			}
			b.set(item.Name, r.cells[item.Name])
		}
		out = append(out, b.object())
	}
	return out, nil
}
