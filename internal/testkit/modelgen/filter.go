package modelgen

import (
	"maps"
	"slices"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model/eval"
)

// Role is the role that a Filter limits.
const Role = "limited"

// Filter limits the rows of some models for Role: a row must have one of the values in the field.
type Filter struct {
	Field  map[string]*Field            // by model
	Values map[string][]canonjson.Value // by model
}

// Filter makes a filter of one or two models, by values that rows hold.
func (g *Generator) Filter() Filter {
	f := Filter{Field: map[string]*Field{}, Values: map[string][]canonjson.Value{}}
	for range 1 + g.rand.IntN(2) {
		m := pick(g.rand, g.world.Models)
		field := g.scalar(m)
		for len(field.Pool) == 0 {
			field = g.scalar(m)
		}
		f.Field[m.Name], f.Values[m.Name] = field, nil
		for range 1 + g.rand.IntN(3) {
			f.Values[m.Name] = append(f.Values[m.Name], pick(g.rand, field.Pool))
		}
	}
	return f
}

// Policy writes the filter as a dynamic policy: one grant for each value.
func (f Filter) Policy() canonjson.Value {
	var grants []canonjson.Value
	for _, name := range slices.Sorted(maps.Keys(f.Field)) {
		field := f.Field[name]
		for _, v := range f.Values[name] {
			grants = append(grants, canonjson.Object(
				canonjson.M("role", canonjson.String(Role)), canonjson.M("model", canonjson.String(name)),
				canonjson.M("actions", canonjson.Array(canonjson.String("read"))),
				canonjson.M("condition", canonjson.Object(canonjson.M(field.Name, v)))))
		}
	}
	return canonjson.Object(canonjson.M("mode", canonjson.String("overlay")),
		canonjson.M("roles", canonjson.Object(canonjson.M(Role, canonjson.Object()))), canonjson.M("grants", canonjson.Array(grants...)))
}

// Passes tells whether a row of a model passes. It compares spellings: rows and filter take their values from one pool.
func (f Filter) Passes(m *Model, row eval.Row) bool {
	field := f.Field[m.Name]
	if field == nil {
		return true
	}
	v := row[field.Name]
	for _, want := range f.Values[m.Name] {
		if !v.IsAbsent() && v.Kind() == want.Kind() && v.String() == want.String() {
			return true
		}
	}
	return false
}
