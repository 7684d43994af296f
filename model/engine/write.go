package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Insert answers insert(model, data): the new document.
func (e *Engine) Insert(ctx context.Context, c Call, name string, data canonjson.Value) (canonjson.Value, error) {
	return e.one(ctx, c, func(p *plan.Planner, w plan.Writing) (*plan.Write, error) {
		return p.Insert(name, []canonjson.Value{data}, w)
	})
}

// InsertMany answers insertMany(model, docs). What is no array counts as an empty one (models, section 12).
func (e *Engine) InsertMany(ctx context.Context, c Call, name string, docs canonjson.Value) ([]canonjson.Value, error) {
	return e.list(ctx, c, func(p *plan.Planner, w plan.Writing) (*plan.Write, error) {
		return p.Insert(name, docs.Items(), w)
	})
}

// Update answers update(model, condition, data): the changed document, or Null.
func (e *Engine) Update(ctx context.Context, c Call, name string, condition, data, expect canonjson.Value) (canonjson.Value, error) {
	return e.one(ctx, c, func(p *plan.Planner, w plan.Writing) (*plan.Write, error) {
		return p.Update(name, condition, data, expect, w)
	})
}

// UpdateMany answers updateMany: how many rows matched.
func (e *Engine) UpdateMany(ctx context.Context, c Call, name string, condition, data canonjson.Value) (int64, error) {
	_, done, err := e.apply(ctx, e.ready(c), func(p *plan.Planner, w plan.Writing) (*plan.Write, error) {
		return p.UpdateMany(name, condition, data, w)
	})
	if err != nil {
		return 0, err
	}
	return done.Modified, nil
}

// Remove answers remove(model, condition). See plan.Planner.Remove for one.
func (e *Engine) Remove(ctx context.Context, c Call, name string, condition, expect canonjson.Value, one bool) (Removed, error) {
	_, done, err := e.apply(ctx, e.ready(c), func(p *plan.Planner, w plan.Writing) (*plan.Write, error) {
		return p.Remove(name, condition, expect, one, w)
	})
	if err != nil {
		return Removed{}, err
	}
	return Removed{done.Deleted, done.Archived}, nil
}

// Upsert answers upsert(model, condition, data).
func (e *Engine) Upsert(ctx context.Context, c Call, name string, condition, data canonjson.Value) (canonjson.Value, error) {
	return e.one(ctx, c, func(p *plan.Planner, w plan.Writing) (*plan.Write, error) {
		return p.Upsert(name, condition, data, w)
	})
}

// Mutation answers mutation(model, data): a document, or an array of them for an array.
func (e *Engine) Mutation(ctx context.Context, c Call, name string, data canonjson.Value) (canonjson.Value, error) {
	docs := []canonjson.Value{data}
	many := data.Kind() == canonjson.KindArray
	if many {
		docs = data.Items()
	}
	rows, err := e.list(ctx, c, func(p *plan.Planner, w plan.Writing) (*plan.Write, error) {
		return p.Mutation(name, docs, w)
	})
	switch {
	case err != nil:
		return canonjson.Value{}, err
	case many:
		return canonjson.Array(rows...), nil
	case len(rows) == 0:
		return canonjson.Null(), nil
	}
	return rows[0], nil
}

// planning makes the plan of a write.
type planning func(*plan.Planner, plan.Writing) (*plan.Write, error)

// one carries out a write of at most one row, and shows it.
func (e *Engine) one(ctx context.Context, c Call, make planning) (canonjson.Value, error) {
	rows, err := e.list(ctx, c, make)
	if err != nil {
		return canonjson.Value{}, err
	}
	if len(rows) == 0 {
		return canonjson.Null(), nil
	}
	return rows[0], nil
}

// list carries out a write, and shows its rows.
func (e *Engine) list(ctx context.Context, c Call, make planning) ([]canonjson.Value, error) {
	c = e.ready(c)
	w, done, err := e.apply(ctx, c, make)
	if err != nil {
		return nil, err
	}
	out := []canonjson.Value{}
	for _, row := range done.Rows {
		out = append(out, e.written(c, w.Model, row))
	}
	return out, nil
}

// apply plans a write and has its source carry it out.
func (e *Engine) apply(ctx context.Context, c Call, make planning) (*plan.Write, *plan.Applied, error) {
	var broken error
	w, err := make(e.planner(c), plan.Writing{
		Now: e.cfg.Clock.Now(), Strict: e.cfg.Strict, Dropped: c.dropped, Skipped: c.skipped,
		NewID: func(prefix string) string {
			id, err := e.newID(prefix)
			broken = errors.Join(broken, err)
			return id
		},
	})
	if err != nil {
		return nil, nil, c.told(err)
	}
	if broken != nil {
		return nil, nil, broken
	}
	if (w.Kind == plan.Insert && len(w.Rows) == 0) || (w.Kind == plan.Mutate && len(w.Nodes) == 0) {
		return w, &plan.Applied{}, nil
	}
	s, err := e.source(w.Model)
	if err != nil {
		return nil, nil, err
	}
	if c.Commit.Key != "" && c.Commit.Keep == 0 {
		c.Commit.Keep = e.cfg.KeepKeys
	}
	done, err := s.Apply(ctx, w, c.Commit)
	if err != nil {
		return nil, nil, e.writeError(ctx, c, w, err)
	}
	return w, done, nil
}

// writeError words the refusal of a source.
func (e *Engine) writeError(ctx context.Context, c Call, w *plan.Write, err error) error {
	var constraint *plan.ConstraintError
	var version *plan.VersionError
	name := w.Model.Name
	switch {
	case errors.As(err, &constraint):
		return e.constraintError(c, w, constraint)
	case errors.As(err, &version):
		return versionError(c, w.Model, version)
	case errors.Is(err, plan.ErrOutside):
		return outside(w).Wrap(err)
	case errors.Is(err, plan.ErrReadOnly):
		return model.Errorf(model.ReadOnly, "the database of %s is connected for reading only; an operator can configure a connection for writes", name).Wrap(err)
	case errors.Is(err, plan.ErrKeyConflict):
		return model.Errorf(model.Idempotency, "this idempotency key was used for another write; make a new key for this one").Wrap(err)
	case errors.Is(err, plan.ErrNoKeys):
		return model.Errorf(model.Idempotency, "the database of %s has no table for idempotency keys; leave the key out, or have an operator create the table that `tabellion models ddl --idempotency --engine sqlite` (or postgres) prints", name).Wrap(err)
	case errors.Is(err, plan.ErrNotAtomic):
		return model.Errorf(model.Unsupported, "the database of %s cannot do this in one transaction; write the rows one by one", name).Wrap(err)
	}
	return e.sourceError(ctx, w.Model, err)
}

// outside is the refusal of a row outside the caller's rows, before the write or after it. Where a row might lack required
// fields instead, it says so.
func outside(w *plan.Write) *model.Error {
	lacks := strings.Join(w.Lacks, ", ")
	switch {
	case lacks != "" && !limited(w):
		return model.Errorf(model.BadValue, "the row is not there yet, and a new one needs %s, and not null", lacks)
	case lacks != "":
		return model.Errorf(model.Denied, "the row lies outside the rows of %s that you may write, or it is new and lacks %s", w.Model.Name, lacks)
	}
	return model.Errorf(model.Denied, "the row lies outside the rows of %s that you may write", w.Model.Name)
}

// limited tells whether a write is bound to rows of the caller.
func limited(w *plan.Write) bool {
	if w.Scope != nil {
		return true
	}
	var nodes func([]*plan.Node) bool
	nodes = func(list []*plan.Node) bool {
		for _, n := range list {
			if n.Scope != nil {
				return true
			}
			for _, k := range n.Kids {
				if nodes(k.Nodes) {
					return true
				}
			}
		}
		return false
	}
	return nodes(w.Nodes)
}

// versionError tells the current version, where the caller may read it.
func versionError(c Call, m *model.Model, v *plan.VersionError) error {
	current := ""
	if m.VersionOf != nil && c.Access.ReadField(m, m.VersionOf) && !v.Current.IsAbsent() {
		current = fmt.Sprintf(" It is %v now.", v.Current)
	}
	return model.Errorf(model.Version, "the %s has another version than expected.%s Read it again, and repeat the change on what it is now", m.Name, current).Wrap(v)
}

// constraintError words what a rule of the database refused. It names models and fields that the caller may know.
func (e *Engine) constraintError(c Call, w *plan.Write, k *plan.ConstraintError) error {
	m := k.Model
	if m == nil || (m != w.Model && (c.Access.Read(m) != nil || (c.Known != nil && !c.Known(m)))) {
		return model.Errorf(model.Constraint, "a rule of the database refused the write (%s); nothing was changed", k.Kind).Wrap(k)
	}
	var names []string
	for _, f := range k.Fields {
		if c.Access.ReadField(m, f) || c.Access.WriteField(m, f, model.ActInsert) {
			names = append(names, f.Name)
		}
	}
	fields := strings.Join(names, ", ")
	if len(names) == 0 || len(names) < len(k.Fields) {
		fields = "a field of " + m.Name
	}
	return model.Errorf(model.Constraint, "%s", constraintWords(k.Kind, m.Name, fields)).Wrap(k)
}

// constraintWords says what is wrong and what to do, for each kind of rule.
func constraintWords(kind, name, fields string) string {
	switch kind {
	case "unique":
		return fmt.Sprintf("another %s has the same %s; nothing was changed. Choose another value, or update the row that is there", name, fields)
	case "required":
		return fmt.Sprintf("the database needs a value for %s of %s; nothing was changed. Send one that is not null", fields, name)
	case "foreign":
		return fmt.Sprintf("the row of %s is tied to others by %s: the row it points to is missing, or rows still point to it; nothing was changed. Write or remove those first", name, fields)
	case "check":
		return fmt.Sprintf("the database does not allow this value of %s in %s; nothing was changed. Send another", fields, name)
	}
	return fmt.Sprintf("a rule of the database refused the %s; nothing was changed", name)
}

// written shows a row after a write: declared defaults, else those of the types, and function columns; all cut to what
// the caller may read (models, sections 2.2 and 12.3). A function that fails leaves its column out, for the write has
// happened.
func (e *Engine) written(c Call, m *model.Model, row plan.ReadRow) canonjson.Value {
	full := make(map[*model.Field]canonjson.Value, len(m.Fields))
	var members []canonjson.Member
	mayRead := c.Access.Read(m) == nil
	for i, f := range m.Fields {
		v := writtenValue(m, f, row.Cells[i])
		full[f] = v
		if f == m.ID() || (mayRead && c.Access.ReadField(m, f)) {
			members = append(members, canonjson.M(f.Name, e.cut(c, m, f, v)))
		}
	}
	for _, compute := range m.Computes {
		if compute.Fn && mayRead && c.Access.ReadCompute(m, compute) && plainDepends(compute) {
			v, err := e.computeRow(m, compute, writtenDocument(m, compute, full))
			if err == nil {
				members = append(members, canonjson.M(compute.Name, v))
			}
		}
	}
	return canonjson.Object(members...)
}

// writtenValue is a stored value with the default that a write result shows for a missing or null one. Rows of an existing
// table show no default of the type: a foreign key that is not there is not 0.
func writtenValue(m *model.Model, f *model.Field, v canonjson.Value) canonjson.Value {
	if v.IsAbsent() || v.Kind() == canonjson.KindNull {
		switch d := f.Type.ImplicitDefault(); {
		case !f.Default.IsAbsent():
			v = f.Default
		case !d.IsAbsent() && m.Table == "":
			v = d
		}
	}
	if f.Type != model.Object || v.Kind() != canonjson.KindObject || len(f.Fields) == 0 {
		return v
	}
	members := make([]canonjson.Member, 0, v.Len()+len(f.Fields))
	for _, member := range v.Members() {
		if f.Sub(member.Name) == nil {
			members = append(members, member)
		}
	}
	for _, sub := range f.Fields {
		members = append(members, canonjson.M(sub.Name, writtenValue(m, sub, v.Get(sub.Name))))
	}
	return canonjson.Object(members...)
}

// cut leaves the parts of an object out that the caller may not read.
func (e *Engine) cut(c Call, m *model.Model, f *model.Field, v canonjson.Value) canonjson.Value {
	if v.Kind() != canonjson.KindObject {
		return v
	}
	for _, sub := range f.Fields {
		if sub.Read != nil && !c.Access.ReadField(m, sub) {
			v = v.Without(sub.Name)
		}
	}
	return v
}

// plainDepends tells whether a function needs nothing but fields of its own row.
func plainDepends(c *model.Compute) bool {
	for _, d := range c.Depends {
		if d.Relation != "" {
			return false
		}
	}
	return true
}

// writtenDocument is what a function column sees of a row that was written.
func writtenDocument(m *model.Model, c *model.Compute, full map[*model.Field]canonjson.Value) map[string]any {
	doc := map[string]any{}
	for _, d := range c.Depends {
		if f := m.Field(d.Field); f != nil && !full[f].IsAbsent() {
			doc[f.Name] = toGo(f.Type, full[f])
		}
	}
	return doc
}
