package engine

import (
	"context"
	"slices"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Describe answers describeForAi (models, section 20): the models that the caller may read, with what he may read of them.
// Without a context (an Access of nil, or for nil) it gives names alone.
func (e *Engine) Describe(_ context.Context, c Call) canonjson.Value {
	c = e.ready(c)
	list := []canonjson.Value{}
	for _, m := range e.cfg.Registry.List() {
		switch {
		case !e.described(c, m):
		case c.Access.Context() == nil:
			list = append(list, names(m))
		case c.Access.Read(m) == nil:
			list = append(list, e.description(c, m))
		}
	}
	return canonjson.Array(list...)
}

// described tells whether a model is one that callers may know of: not hidden, and no archive of another.
func (e *Engine) described(c Call, m *model.Model) bool {
	return !m.Hidden && m.ArchiveOf == nil && (c.Known == nil || c.Known(m))
}

// names is what everybody is told of a model: its name and those of its fields.
func names(m *model.Model) canonjson.Value {
	var fields []string
	for _, f := range m.Fields {
		if !f.Added {
			fields = append(fields, f.Name)
		}
	}
	slices.Sort(fields)
	return canonjson.Object(canonjson.M("name", canonjson.String(m.Name)), canonjson.M("fields", texts(fields)))
}

// texts is an array of strings.
func texts(list []string) canonjson.Value {
	items := make([]canonjson.Value, len(list))
	for i, s := range list {
		items[i] = canonjson.String(s)
	}
	return canonjson.Array(items...)
}

// text is a string, Absent when it is empty.
func text(s string) canonjson.Value {
	if s == "" {
		return canonjson.Value{}
	}
	return canonjson.String(s)
}

// description is what one caller is told of a model. Members that would say nothing are left out, but for the three that
// the source document always has.
func (e *Engine) description(c Call, m *model.Model) canonjson.Value {
	collation := ""
	if m.SourceText {
		collation = "source"
	}
	return canonjson.Object(
		canonjson.M("name", canonjson.String(m.Name)),
		canonjson.M("description", text(m.Description)),
		canonjson.M("fields", fieldTypes(c, m)),
		canonjson.M("relations", e.relations(c, m)),
		canonjson.M("computes", e.computes(c, m)),
		canonjson.M("details", details(c, m)),
		canonjson.M("key", key(c, m)),
		canonjson.M("unique", uniqueTogether(c, m)),
		canonjson.M("collation", text(collation)),
	)
}

// fieldTypes are the readable fields: those of the definition with their types, then those that the registry added,
// sorted, with null.
func fieldTypes(c Call, m *model.Model) canonjson.Value {
	var members []canonjson.Member
	var added []string
	for _, f := range m.Fields {
		switch {
		case !c.Access.ReadField(m, f):
		case f.Added:
			added = append(added, f.Name)
		default:
			members = append(members, canonjson.M(f.Name, canonjson.String(string(f.Type))))
		}
	}
	slices.Sort(added)
	for _, name := range added {
		members = append(members, canonjson.M(name, canonjson.Null()))
	}
	return canonjson.Object(members...)
}

// relations are those that the caller may follow.
func (e *Engine) relations(c Call, m *model.Model) canonjson.Value {
	var members []canonjson.Member
	for _, r := range m.Relations {
		if !e.follows(c, m, r) {
			continue
		}
		kind := "many"
		if r.One {
			kind = "one"
		}
		members = append(members, canonjson.M(r.Name, canonjson.Object(
			canonjson.M("model", canonjson.String(r.Model)), canonjson.M("type", canonjson.String(kind)), canonjson.M("description", text(r.Description)))))
	}
	return canonjson.Object(members...)
}

// follows tells whether the caller may follow a relation: to a model that he may know and read.
func (e *Engine) follows(c Call, m *model.Model, r *model.Relation) bool {
	target := e.cfg.Registry.Get(r.Model)
	return target != nil && !target.Hidden && (c.Known == nil || c.Known(target)) && c.Access.ReadRelation(m, r) && c.Access.Read(target) == nil
}

// computes are the computed columns that the caller may ask for. One over a relation or a field that he may not read is
// left out: asking for it is an error.
func (e *Engine) computes(c Call, m *model.Model) canonjson.Value {
	var members []canonjson.Member
	for _, column := range m.Computes {
		if !c.Access.ReadCompute(m, column) || (column.Agg != nil && !e.aggregates(c, m, column.Agg)) {
			continue
		}
		members = append(members, canonjson.M(column.Name, canonjson.Object(
			canonjson.M("agg", column.Text.Get("agg")), canonjson.M("type", canonjson.String(string(column.Type))), canonjson.M("description", text(column.Description)))))
	}
	return canonjson.Object(members...)
}

// aggregates tells whether the caller may read all that an aggregate needs.
func (e *Engine) aggregates(c Call, m *model.Model, a *model.Agg) bool {
	r := m.Relation(a.Relation)
	if r == nil || !e.follows(c, m, r) {
		return false
	}
	target := e.cfg.Registry.Get(r.Model)
	f := target.Field(a.Field)
	return a.Field == "" || (f != nil && c.Access.ReadField(target, f))
}

// details are what there is to say about single fields, beside their types.
func details(c Call, m *model.Model) canonjson.Value {
	var members []canonjson.Member
	for _, f := range m.Fields {
		if !c.Access.ReadField(m, f) {
			continue
		}
		var enum, required, unique canonjson.Value
		if f.Enum != nil {
			enum = canonjson.Array(f.Enum...)
		}
		if f.Required {
			required = canonjson.Bool(true)
		}
		if f != m.ID() && isUnique(m, f) {
			unique = canonjson.Bool(true)
		}
		d := canonjson.Object(
			canonjson.M("description", text(f.Description)), canonjson.M("format", text(f.Format)),
			canonjson.M("required", required), canonjson.M("enum", enum), canonjson.M("unique", unique))
		if d.Len() > 0 {
			members = append(members, canonjson.M(f.Name, d))
		}
	}
	if len(members) == 0 {
		return canonjson.Value{}
	}
	return canonjson.Object(members...)
}

// isUnique tells whether f alone has a unique index.
func isUnique(m *model.Model, f *model.Field) bool {
	return slices.ContainsFunc(m.Indexes, func(i model.Index) bool {
		return i.Unique && len(i.Keys) == 1 && i.Keys[0].Field == f.Name
	})
}

// key names the fields of a key of several columns, Absent for other keys.
func key(c Call, m *model.Model) canonjson.Value {
	if !m.Composite() {
		return canonjson.Value{}
	}
	var fields []string
	for _, f := range m.Key {
		if c.Access.ReadField(m, f) {
			fields = append(fields, f.Name)
		}
	}
	return texts(fields)
}

// uniqueTogether are the sets of several fields that no two rows share, as far as the caller may read all of a set.
func uniqueTogether(c Call, m *model.Model) canonjson.Value {
	var sets []canonjson.Value
next:
	for _, index := range m.Indexes {
		if !index.Unique || len(index.Keys) < 2 {
			continue
		}
		var fields []string
		for _, k := range index.Keys {
			f := m.Field(k.Field)
			if f == nil || !c.Access.ReadField(m, f) {
				continue next
			}
			fields = append(fields, f.Name)
		}
		sets = append(sets, texts(fields))
	}
	if sets == nil {
		return canonjson.Value{}
	}
	return canonjson.Array(sets...)
}
