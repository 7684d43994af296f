package eval

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// sortKey is one key of an order: nil values come first ascending and last descending.
type sortKey struct {
	name  string
	value func(*record) (any, error)
	desc  bool
}

// sorted gives the rows in order. Every key is computed once a row.
func sorted(rows []*record, keys []sortKey) ([]*record, error) {
	type keyed struct {
		row    *record
		values []any
	}
	all := make([]keyed, len(rows))
	for i, r := range rows {
		all[i].row = r
		for _, k := range keys {
			v, err := k.value(r)
			if err != nil {
				return nil, err
			}
			all[i].values = append(all[i].values, v)
		}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		for i, k := range keys {
			c := compareNulls(a.values[i], b.values[i])
			if k.desc {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
	out := make([]*record, len(all))
	for i := range all {
		out[i] = all[i].row
	}
	return out, nil
}

// compareNulls compares with nil before everything.
func compareNulls(a, b any) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return compare(a, b)
}

// byField orders by a stored field, ascending.
func byField(name string, t model.Type) sortKey {
	return sortKey{name: name, value: func(r *record) (any, error) { return r.value(name, t) }}
}

// keyOrder is the order that makes every other one total: by the key, where there is none by all fields.
func keyOrder(m *model.Model) []sortKey {
	fields := m.Key
	switch {
	case m.Keyless:
		fields = m.Fields
	case !m.Composite():
		fields = []*model.Field{m.ID()}
	}
	var keys []sortKey
	for _, f := range fields {
		if !f.Type.JSON() {
			keys = append(keys, byField(f.Name, f.Type))
		}
	}
	return keys
}

// written gives the members of a $sort, {field: 1 or -1} or an array of such objects of one member, in their order.
func written(v canonjson.Value) ([]canonjson.Member, error) {
	switch v.Kind() {
	case canonjson.KindAbsent, canonjson.KindNull:
		return nil, nil
	case canonjson.KindObject:
		return v.Members(), nil
	case canonjson.KindArray:
		var all []canonjson.Member
		for _, item := range v.Items() {
			if len(item.Members()) != 1 {
				return nil, fmt.Errorf("$sort takes objects of one member")
			}
			all = append(all, item.Members()[0])
		}
		return all, nil
	}
	return nil, fmt.Errorf("$sort is %s", v.Kind())
}

// sortKeys reads a $sort; by makes the key of a name.
func sortKeys(v canonjson.Value, by func(name string) (sortKey, error)) ([]sortKey, error) {
	members, err := written(v)
	if err != nil {
		return nil, err
	}
	var keys []sortKey
	for _, m := range members {
		k, err := by(m.Name)
		if err != nil {
			return nil, err
		}
		n, ok := m.Value.Int()
		if !ok || n != 1 && n != -1 {
			return nil, fmt.Errorf("$sort of %s is neither 1 nor -1", m.Name)
		}
		k.name, k.desc = m.Name, n < 0
		keys = append(keys, k)
	}
	return keys, nil
}

// order gives the order of a model's rows: the written one, then the key.
func (e *Evaluator) order(m *model.Model, v canonjson.Value) ([]sortKey, error) {
	keys, err := sortKeys(v, func(name string) (sortKey, error) { return e.sortKey(m, name) })
	return append(keys, keyOrder(m)...), err
}

// sortKey finds what a sort key of a model names: a field, a field of a to-one relation's row, or an aggregate column.
func (e *Evaluator) sortKey(m *model.Model, name string) (sortKey, error) {
	if c := m.Compute(name); c != nil && c.Agg != nil {
		col, err := e.column(m, c)
		if err != nil {
			return sortKey{}, err
		}
		return sortKey{value: func(r *record) (any, error) {
			v, err := col.of(r)
			if err != nil {
				return nil, err
			}
			return read(col.agg.output(), v)
		}}, nil
	}
	if relation, rest, ok := strings.Cut(name, "."); ok {
		value, _, err := e.through(m, relation, rest)
		return sortKey{value: value}, err
	}
	if m.Composite() && name == "_id" {
		return sortKey{value: func(r *record) (any, error) { return keyParts(m, r) }}, nil
	}
	t, err := e.comparable(m, name)
	return byField(name, t), err
}

// keyParts are the values of a composite key, which is ordered part by part and not as the text that shows it.
func keyParts(m *model.Model, r *record) (any, error) {
	var parts []any
	for _, f := range m.Key {
		v, err := r.value(f.Name, f.Type)
		if err != nil || v == nil {
			return nil, err
		}
		parts = append(parts, v)
	}
	return parts, nil
}

// through reads a field of the row that a to-one relation leads to.
func (e *Evaluator) through(m *model.Model, relation, name string) (func(*record) (any, error), model.Type, error) {
	r := m.Relation(relation)
	if r == nil || !r.One {
		return nil, "", fmt.Errorf("%s has no to-one relation %q", m.Name, relation)
	}
	l, err := e.follow(m, r, canonjson.Value{}, false)
	if err != nil {
		return nil, "", err
	}
	t, err := e.comparable(l.to, name)
	if err != nil {
		return nil, "", err
	}
	return func(rec *record) (any, error) {
		first, err := l.first(rec)
		if err != nil || first == nil {
			return nil, err
		}
		return first.value(name, t)
	}, t, nil
}

// window cuts rows by $skip and $limit, each a whole number from 0 on, or nothing.
type window struct{ skip, limit int }

// readWindow reads the two.
func readWindow(skip, limit canonjson.Value) (window, error) {
	w := window{limit: -1}
	for _, one := range []struct {
		v   canonjson.Value
		to  *int
		def int
	}{{skip, &w.skip, 0}, {limit, &w.limit, -1}} {
		if one.v.IsAbsent() || one.v.Kind() == canonjson.KindNull {
			*one.to = one.def
			continue
		}
		n, ok := one.v.Int()
		if !ok || n < 0 {
			return w, fmt.Errorf("%s is no number of rows", one.v)
		}
		*one.to = int(n)
	}
	return w, nil
}

// cut gives the rows inside.
func (w window) cut(rows []*record) []*record {
	rows = rows[min(w.skip, len(rows)):]
	if w.limit >= 0 {
		rows = rows[:min(w.limit, len(rows))]
	}
	return rows
}
