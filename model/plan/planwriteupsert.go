package plan

import (
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Upsert plans upsert(model, condition, data). The condition is plain equality on the fields of a unique index, or on the
// key (section 12.6).
func (p *Planner) Upsert(name string, condition, data canonjson.Value, w Writing) (*Write, error) {
	wr, err := p.writer(name, model.ActInsert, false, w)
	if err != nil {
		return nil, err
	}
	match, err := wr.match(condition)
	if err != nil {
		return nil, err
	}
	merged, err := wr.merge(match, data)
	if err != nil {
		return nil, err
	}
	d, err := wr.document(merged, nil)
	if err != nil {
		return nil, err
	}
	out := &Write{
		Kind: Upsert, Model: wr.m, Match: match, Rows: []Row{d.row}, Set: wr.touched(wr.setOf(d, match)),
		Scope: wr.scope(), Check: all(wr.check(), have(d.lacks)), Lacks: wr.places(d.lacks),
	}
	wr.report()
	return out, nil
}

// have asks that fields hold a value.
func have(fields []*model.Field) Cond {
	conds := make([]Cond, len(fields))
	for i, f := range fields {
		conds[i] = HasValue{Operand{Field: f, Type: f.Type}}
	}
	return all(conds...)
}

// places are the fields that may be said to the caller, with the model's name.
func (w *writer) places(fields []*model.Field) []string {
	names := w.said(fields)
	for i := range names {
		names[i] = place(w.m, names[i])
	}
	return names
}

// match reads the condition of an upsert.
func (w *writer) match(condition canonjson.Value) ([]FieldValue, error) {
	if condition.Kind() != canonjson.KindObject || condition.Len() == 0 {
		return nil, model.Errorf(model.BadFilter, "the condition of an upsert is equality on unique fields of %s, not %s. Write {\"_id\": %s}", w.m.Name, emptyOr(condition), sampleID(w.m))
	}
	// All that other conditions are judged for holds here too: names, reading, operators that never are.
	if _, err := w.where(condition); err != nil {
		return nil, err
	}
	var match []FieldValue
	for _, m := range condition.Members() {
		values, err := w.matched(m)
		if err != nil {
			return nil, err
		}
		match = append(match, values...)
	}
	if !w.unique(match) {
		return nil, model.Errorf(model.Constraint, "an upsert finds its row by fields that no two rows of %s share, and %s are not such fields%s", w.m.Name, fieldList(match), w.uniqueHint())
	}
	return match, nil
}

// matched reads one member of an upsert's condition. The _id of a composite key becomes its fields.
func (w *writer) matched(m canonjson.Member) ([]FieldValue, error) {
	f := w.m.Field(m.Name)
	switch m.Value.Kind() {
	case canonjson.KindObject, canonjson.KindArray, canonjson.KindNull:
		f = nil
	}
	if f == nil {
		return nil, model.Errorf(model.BadFilter, "the condition of an upsert is plain equality, and %s is asked for %s. Write {%s: value}", clip(m.Name), short(m.Value), quoted(clip(m.Name)))
	}
	if w.m.Composite() && f == w.m.ID() {
		values, _ := splitKey(w.m, m.Value) // it was read as a condition already
		match := make([]FieldValue, len(values))
		for i, key := range w.m.Key {
			match[i] = FieldValue{key, values[i]}
		}
		return match, nil
	}
	v, err := model.Coerce(f.Type, m.Value)
	if err != nil {
		return nil, wrongValue(w.m, f, err)
	}
	return []FieldValue{{f, v}}, nil
}

// fieldList names the fields of a match.
func fieldList(match []FieldValue) string {
	names := make([]string, len(match))
	for i, v := range match {
		names[i] = v.Field.Name
	}
	return strings.Join(names, ", ")
}

// unique tells whether the fields of a match are those of the key or of a unique index.
func (w *writer) unique(match []FieldValue) bool {
	for _, fields := range uniqueSets(w.m) {
		if len(fields) == len(match) && !slices.ContainsFunc(match, func(v FieldValue) bool { return !slices.Contains(fields, v.Field) }) {
			return true
		}
	}
	return false
}

// uniqueSets are the sets of fields that no two rows share: the key, then the unique indexes.
func uniqueSets(m *model.Model) [][]*model.Field {
	sets := [][]*model.Field{keyFields(m)}
	for _, index := range m.Indexes {
		if !index.Unique {
			continue
		}
		var fields []*model.Field
		for _, k := range index.Keys {
			fields = append(fields, m.Field(k.Field))
		}
		if len(fields) > 0 && !slices.Contains(fields, nil) {
			sets = append(sets, fields)
		}
	}
	return sets
}

// uniqueHint names the sets that the caller may know.
func (w *writer) uniqueHint() string {
	var sets []string
	for _, fields := range uniqueSets(w.m) {
		if names := w.said(fields); len(names) == len(fields) {
			sets = append(sets, strings.Join(names, " with "))
		}
	}
	return "; there are " + strings.Join(sets, ", or ")
}

// merge is the data of the row that an upsert inserts: data, and what the condition says. A field in both is the same in
// both, but for an _id, which may come with a condition on other fields.
func (w *writer) merge(match []FieldValue, data canonjson.Value) (canonjson.Value, error) {
	if data.Kind() != canonjson.KindObject {
		return data, nil
	}
	members := slices.Clone(data.Members())
	for _, v := range match {
		sent := data.Get(v.Field.Name)
		if sent.IsAbsent() {
			members = append(members, canonjson.M(v.Field.Name, v.Value))
		} else if fitted, err := model.Coerce(v.Field.Type, sent); err != nil || !fitted.Equal(v.Value) {
			return data, model.Errorf(model.BadBody, "%s is one thing in the condition and another in the data; send it in the condition alone", place(w.m, v.Field.Name))
		}
		if v.Field != w.m.ID() && !w.writes(v.Field) {
			return data, model.Errorf(model.Denied, "you may not write %s, by which this upsert would find and make its row", place(w.m, v.Field.Name))
		}
	}
	return canonjson.Object(members...), nil
}

// setOf is what an upsert or a mutation changes in a row that is there already: what the caller sent, without the key,
// the time of creation, and who made it.
func (w *writer) setOf(d *document, match []FieldValue) []Assign {
	created, updated := w.times()
	creator := w.creator()
	if w.p.Access.Exempt() {
		creator = nil
	}
	var set []Assign
	for _, f := range w.m.Fields {
		v, given := d.given[f]
		switch {
		case !given, f == created, f == updated, f == creator, f == w.m.ID(), slices.Contains(w.m.Key, f):
		case slices.ContainsFunc(match, func(m FieldValue) bool { return m.Field == f }):
		default:
			set = append(set, Assign{Field: f, Value: v})
		}
	}
	return set
}
