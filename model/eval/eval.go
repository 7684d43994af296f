// Package eval answers queries on models from rows in memory, straight from the rules and without any plan: every row is
// looked at, every condition is asked of every row, every relation of every parent. It is the second opinion that tests
// hold against the planner and the sources, so it shares no code with them; nothing that serves a caller uses it.
//
//	e := eval.Evaluator{Registry: registry, Access: access, Data: data}
//	rows, err := e.Query(bound)
//
// What a query may not ask for is an error here too, but without a class: limits, profiles and words of refusals are not
// the matter of this package.
package eval

import (
	"fmt"
	"maps"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// Row holds the stored fields of one row by name. A field without an entry is missing, which is not the same as null.
type Row map[string]canonjson.Value

// Table is the rows of one model, in any order.
type Table struct {
	Rows []Row
	// Ordinary tables cannot tell null from missing (models, section 3): null is missing there, {f: null} is true of it, and
	// $exists asks for a value.
	Ordinary bool
}

// Data are the tables by the names of their models. A model without an entry has no rows.
type Data map[string]Table

// Function is the implementation of a computed column: of a document with integers as int64 and other numbers as float64.
type Function func(doc map[string]any) (any, error)

// Evaluator answers queries of one caller. It is pure and safe for concurrent use.
type Evaluator struct {
	Registry  *model.Registry
	Access    *model.Access
	Data      Data
	Functions map[string]Function // by fnRef
}

// Query answers a query: its rows, or its groups, in their order.
func (e *Evaluator) Query(q *gql.Bound) ([]canonjson.Value, error) {
	m, err := e.model(q.Model)
	if err != nil {
		return nil, err
	}
	if !q.Values.Pipeline.IsAbsent() {
		return nil, fmt.Errorf("$pipeline is not offered")
	}
	if !q.Values.Group.IsAbsent() {
		return e.groups(m, q)
	}
	if !q.Values.Having.IsAbsent() {
		return nil, fmt.Errorf("$having without $group")
	}
	b, err := e.block(m, q.Values, q.Items, true)
	if err != nil {
		return nil, err
	}
	return b.show(b.window(b.rows))
}

// Count answers count(model, condition): how many rows the caller sees that meet the condition.
func (e *Evaluator) Count(name string, condition canonjson.Value) (int64, error) {
	m, err := e.model(name)
	if err != nil {
		return 0, err
	}
	b, err := e.block(m, gql.Values{Condition: condition}, nil, true)
	if err != nil {
		return 0, err
	}
	return int64(len(b.rows)), nil
}

// model finds a model by name.
func (e *Evaluator) model(name string) (*model.Model, error) {
	if m := e.Registry.Get(name); m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("no model %q", name)
}

// record is one row as conditions and sort keys see it: of a model, or of the output of a group.
type record struct {
	cells    Row
	ordinary bool
	// empty marks the aggregates of a relation predicate over no rows: $ne of a count is false for them (case r209 of the
	// golden data), though every other comparison sees the 0.
	empty bool
}

// value is what a field holds, to be compared; nil when it is null or missing.
func (r *record) value(name string, t model.Type) (any, error) { return read(t, r.cells[name]) }

// stored tells whether the field is stored: an explicit null counts, where the table can tell it.
func (r *record) stored(name string) bool {
	v := r.cells[name]
	return !v.IsAbsent() && !(r.ordinary && v.Kind() == canonjson.KindNull)
}

// null tells whether {field: null} is true.
func (r *record) null(name string) bool {
	v := r.cells[name]
	return v.Kind() == canonjson.KindNull || r.ordinary && v.IsAbsent()
}

// visible gives the rows of m that the caller may see: all limits on rows hold for them.
func (e *Evaluator) visible(m *model.Model) ([]*record, error) {
	if err := e.Access.Read(m); err != nil {
		return nil, err
	}
	limits := e.Access.Rows(m, model.ActRead)
	table := e.Data[m.Name]
	var rows []*record
	for _, cells := range table.Rows {
		r := &record{cells: cells, ordinary: table.Ordinary}
		if !m.Keyless && cells["_id"].IsAbsent() {
			r = r.withKey(m)
		}
		ok, err := within(m, r, limits)
		if err != nil {
			return nil, err
		}
		if ok {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// withKey adds the _id to a row that has its key under other names.
func (r *record) withKey(m *model.Model) *record {
	cells := maps.Clone(r.cells)
	if m.Composite() {
		cells["_id"] = composed(m, cells)
	}
	for _, f := range m.Fields {
		if !m.Composite() && f.Column == m.ID().Column && f != m.ID() {
			cells["_id"] = cells[f.Name]
		}
	}
	return &record{cells: cells, ordinary: r.ordinary}
}

// composed is the _id that a composite key makes: the JSON array of its values as text (models, section 2.9).
func composed(m *model.Model, cells Row) canonjson.Value {
	var parts []canonjson.Value
	for _, f := range m.Key {
		v := cells[f.Name]
		text := v.Str()
		if v.Kind() != canonjson.KindString {
			text = v.String()
		}
		parts = append(parts, canonjson.String(text))
	}
	return canonjson.String(canonjson.Array(parts...).String())
}

// within tells whether all limits hold for a row: of each, all of at least one alternative.
func within(m *model.Model, r *record, limits []model.RowLimit) (bool, error) {
	for _, limit := range limits {
		met := false
		for _, alternative := range limit.Any {
			ok, err := equals(m, r, alternative)
			if err != nil {
				return false, err
			}
			met = met || ok
		}
		if !met {
			return false, nil
		}
	}
	return true, nil
}

// equals tells whether every field has its value, neither being null.
func equals(m *model.Model, r *record, all []model.Equal) (bool, error) {
	for _, eq := range all {
		f := m.Field(eq.Field)
		if f == nil {
			return false, nil
		}
		have, err := r.value(f.Name, f.Type)
		if err != nil {
			return false, err
		}
		want, err := read(f.Type, eq.Value)
		if err != nil {
			return false, err
		}
		if have == nil || want == nil || compare(have, want) != 0 {
			return false, nil
		}
	}
	return true, nil
}
