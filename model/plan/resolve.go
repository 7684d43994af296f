package plan

import (
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
)

// admit refuses a call without a context, before anything else is looked at.
func (p *Planner) admit() error {
	if p.Access != nil && p.Access.Context() != nil {
		return nil
	}
	if p.Profile.Sandbox {
		return p.refuse("no context", "a query here needs to know who asks, and this call has no identity")
	}
	return model.Errorf(model.NoContext, "this call has no identity; nothing may be read or written without one")
}

// refuse makes a refusal of the sandbox: the text holds the feature in brackets (section 15).
func (p *Planner) refuse(feature, format string, args ...any) error {
	e := model.Errorf(model.Sandbox, "["+feature+"] "+format, args...)
	e.Feature = feature
	return e
}

// knows tells whether the caller may know of m.
func (p *Planner) knows(m *model.Model) bool {
	return m != nil && (p.Known == nil || p.Known(m))
}

// model finds a model by its exact name. One that the caller may not know is unknown in the same words.
func (p *Planner) model(name string) (*model.Model, error) {
	if m := p.Registry.Get(name); p.knows(m) {
		return m, nil
	}
	return nil, model.Errorf(model.UnknownModel, "there is no model %s%s", clip(name), hint(name, p.modelNames()))
}

// modelNames are the models that hints may name: known, readable, and no archives unless the caller is told of them.
func (p *Planner) modelNames() []string {
	var names []string
	for _, m := range p.Registry.List() {
		if p.knows(m) && (m.ArchiveOf == nil || p.Known != nil) && p.Access.Read(m) == nil {
			names = append(names, m.Name)
		}
	}
	return names
}

// readable finds a model that the caller may read.
func (p *Planner) readable(name string) (*model.Model, error) {
	m, err := p.model(name)
	if err != nil {
		return nil, err
	}
	return m, p.Access.Read(m)
}

// mayReadField judges a field that the caller used. Whatever it is used for, an unreadable one is refused in the same
// words.
func (p *Planner) mayReadField(m *model.Model, f *model.Field) error {
	if p.Access.ReadField(m, f) {
		return nil
	}
	return model.Errorf(model.Denied, "you may not read %s", place(m, f.Name))
}

// readsSub judges a sub-field of an object field: one without a list of its own is as readable as its object.
func (p *Planner) readsSub(m *model.Model, sub *model.Field) bool {
	return sub.Read == nil || p.Access.ReadField(m, sub)
}

// link is a relation made ready: its target and the fields that join.
type link struct {
	relation       *model.Relation
	target         *model.Model
	local, foreign []*model.Field
}

// relationOf finds a relation of m whose target the caller may know; nil when there is none. A relation that leads to a
// hidden or unregistered model is not there.
func (p *Planner) relationOf(m *model.Model, name string) *model.Relation {
	r := m.Relation(name)
	if r == nil || !p.knows(p.Registry.Get(r.Model)) {
		return nil
	}
	return r
}

// follow judges a relation of m and makes it ready: the relation's list, then the target's (section 13.4).
func (p *Planner) follow(m *model.Model, r *model.Relation) (*link, error) {
	if !p.Access.ReadRelation(m, r) {
		return nil, model.Errorf(model.Denied, "you may not read the relation %s", place(m, r.Name))
	}
	target, err := p.model(r.Model)
	if err != nil {
		return nil, err
	}
	if err := p.Access.Read(target); err != nil {
		return nil, inOtherWords(err, "you may not read the rows that %s leads to", place(m, r.Name))
	}
	if p.SameSource != nil && !p.SameSource(m, target) {
		return nil, model.Errorf(model.Unsupported, "the relation %s leads to a model in another database; ask for the two models in two queries", place(m, r.Name))
	}
	l := &link{relation: r, target: target}
	if l.local, err = joinFields(m, r, r.Local, m); err != nil {
		return nil, err
	}
	l.foreign, err = joinFields(m, r, r.Foreign, target)
	return l, err
}

// inOtherWords is a refusal that does not name what the caller did not name himself.
func inOtherWords(err error, format string, args ...any) error {
	e, ok := err.(*model.Error)
	if !ok || e.Class != model.Denied {
		return err
	}
	said := model.Errorf(e.Class, format, args...)
	said.Policy = e.Policy
	return said
}

// joinFields finds the fields of one side of a relation. They are not judged: the relation's own list speaks for them.
func joinFields(m *model.Model, r *model.Relation, names []string, side *model.Model) ([]*model.Field, error) {
	fields := make([]*model.Field, len(names))
	for i, n := range names {
		f := side.Field(n)
		switch {
		case f == nil || len(r.Local) != len(r.Foreign) || f.Column == "":
			return nil, model.Errorf(model.BadSchema, "the definition of the relation %s does not fit its models: it cannot be joined", place(m, r.Name))
		case f.Type.JSON():
			return nil, model.Errorf(model.Unsupported, "the relation %s joins through a list or an object, which no source here can do", place(m, r.Name))
		}
		fields[i] = f
	}
	return fields, nil
}

// fieldNames are the fields of m that the caller may read, and with it names of further kinds.
func (p *Planner) fieldNames(m *model.Model, keep func(*model.Field) bool) []string {
	var names []string
	for _, f := range m.Fields {
		if p.Access.ReadField(m, f) && (keep == nil || keep(f)) {
			names = append(names, f.Name)
		}
	}
	return names
}

// relationNames are the relations of m that the caller may follow.
func (p *Planner) relationNames(m *model.Model, keep func(*model.Relation) bool) []string {
	var names []string
	for _, r := range m.Relations {
		if p.relationOf(m, r.Name) == nil || keep != nil && !keep(r) {
			continue
		}
		if _, err := p.follow(m, r); err == nil {
			names = append(names, r.Name)
		}
	}
	return names
}

// computeNames are the computed columns of m that the caller may read, and whose operands he may.
func (p *Planner) computeNames(m *model.Model, keep func(*model.Compute) bool) []string {
	var names []string
	for _, c := range m.Computes {
		if !p.Access.ReadCompute(m, c) || keep != nil && !keep(c) {
			continue
		}
		if c.Agg != nil {
			if _, err := p.aggregate(m, c); err != nil {
				continue
			}
		}
		names = append(names, c.Name)
	}
	return names
}

// plain tells whether a field can be filtered, sorted and grouped by.
func plain(f *model.Field) bool { return !f.Type.JSON() }

// split cuts a dotted name at its first dot; ok is false when there is none.
func split(name string) (head, rest string, ok bool) { return strings.Cut(name, ".") }
