package modelgen

import (
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/eval"
)

// Definitions are the models as a definition file writes them.
func (w *World) Definitions() []canonjson.Value {
	var all []canonjson.Value
	for _, m := range w.Models {
		all = append(all, m.definition())
	}
	return all
}

// definition writes one model.
func (m *Model) definition() canonjson.Value {
	members := []canonjson.Member{canonjson.M("name", canonjson.String(m.Name)), canonjson.M("timestamps", canonjson.Bool(false))}
	if m.Ordinary {
		var key []canonjson.Value
		for _, f := range m.key() {
			key = append(key, canonjson.String(f.Column))
		}
		members = append(members, canonjson.M("table", canonjson.String(m.Table)), canonjson.M("key", canonjson.Array(key...)), canonjson.M("archive", canonjson.Bool(false)))
	} else {
		members = append(members, canonjson.M("collection", canonjson.String(m.Table)))
	}
	var fields, relations, computes []canonjson.Member
	if m.ID != nil {
		fields = append(fields, canonjson.M(m.ID.Name, m.ID.definition()))
	}
	for _, f := range m.Fields {
		fields = append(fields, canonjson.M(f.Name, f.definition()))
	}
	for _, r := range m.Relations {
		relations = append(relations, canonjson.M(r.Name, r.definition()))
	}
	for _, c := range m.Columns {
		computes = append(computes, canonjson.M(c.Name, c.definition()))
	}
	return canonjson.Object(append(members, canonjson.M("fields", canonjson.Object(fields...)),
		canonjson.M("relations", canonjson.Object(relations...)), canonjson.M("computes", canonjson.Object(computes...)),
		canonjson.M("indexes", m.indexes()))...)
}

// keyless tells whether the table has no key.
func (m *Model) keyless() bool { return m.ID == nil && m.Keys == nil }

// key is the fields of the primary key.
func (m *Model) key() []*Field {
	if m.ID != nil {
		return []*Field{m.ID}
	}
	return m.Keys
}

// Key gives the _id of a row, as queries show it; Absent in a table without a key.
func (m *Model) Key(row eval.Row) canonjson.Value {
	if m.keyless() {
		return canonjson.Value{}
	}
	if m.ID != nil {
		return row[m.ID.Name]
	}
	var parts []canonjson.Value
	for _, f := range m.Keys {
		text := row[f.Name].Str()
		if f.Type != model.String {
			text = row[f.Name].String()
		}
		parts = append(parts, canonjson.String(text))
	}
	return canonjson.String(canonjson.Array(parts...).String())
}

// definition writes one field.
func (f *Field) definition() canonjson.Value {
	members := []canonjson.Member{canonjson.M("type", canonjson.String(string(f.Type))), canonjson.M("default", f.Default)}
	if f.Column != f.Name {
		members = append(members, canonjson.M("column", canonjson.String(f.Column)))
	}
	var subs []canonjson.Member
	for _, s := range f.Subs {
		subs = append(subs, canonjson.M(s.Name, canonjson.Object(canonjson.M("type", canonjson.String(string(s.Type))), canonjson.M("default", s.Default))))
	}
	if subs != nil {
		members = append(members, canonjson.M("fields", canonjson.Object(subs...)))
	}
	return canonjson.Object(members...)
}

// names writes one name as text and several as an array.
func names(all []string) canonjson.Value {
	if len(all) == 1 {
		return canonjson.String(all[0])
	}
	return canonjson.Array(strs(all)...)
}

// definition writes one relation.
func (r *Relation) definition() canonjson.Value {
	kind := "many"
	if r.One {
		kind = "one"
	}
	return canonjson.Object(canonjson.M("model", canonjson.String(r.Target.Name)), canonjson.M("type", canonjson.String(kind)),
		canonjson.M("localField", names(r.Local)), canonjson.M("foreignField", names(r.Foreign)))
}

// definition writes one aggregate column.
func (c *Column) definition() canonjson.Value {
	operand, t := c.Relation.Name, model.Int
	if c.Field != nil {
		operand, t = operand+"."+c.Field.Name, c.output()
	}
	return canonjson.Object(canonjson.M("type", canonjson.String(string(t))),
		canonjson.M("agg", canonjson.Object(canonjson.M(string(c.Op), canonjson.String(operand)))))
}

// output is the type of an aggregate column.
func (c *Column) output() model.Type { return output(c.Op, c.Field) }

// output is the type of what an aggregate gives.
func output(op model.AggOp, f *Field) model.Type {
	switch {
	case op == model.Count || op == model.Sum && f.Type.Integer():
		return model.Long
	case op == model.Avg:
		return model.Double
	}
	return f.Type
}

// indexes writes the index of a model.
func (m *Model) indexes() canonjson.Value {
	if m.Index == "" {
		return canonjson.Array()
	}
	keys := canonjson.Object(canonjson.M(m.Index, canonjson.Int(1)))
	return canonjson.Array(canonjson.Object(canonjson.M("keys", keys)))
}
