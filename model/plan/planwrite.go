package plan

import (
	"slices"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// maxRows bounds the rows that one call may insert, mutations with all their children included. It is the ceiling of rows
// in the served profile.
const maxRows = 10_000

// Writing is what a write needs beside the caller's input: nothing of it is made in the planner, so that a plan can be
// made twice.
type Writing struct {
	Now   time.Time
	NewID func(prefix string) string
	// Strict refuses fields that the caller may not write, instead of leaving them out (section 13.7).
	Strict bool
	// Dropped is told the names of fields that were left out. Nil: nobody.
	Dropped func(model string, fields []string)
	// Skipped is told of a relation whose data was left out of a mutation (section 12.8).
	Skipped func(model, relation string)
}

// Insert plans insert(model, data), and with many insertMany(model, docs).
func (p *Planner) Insert(name string, docs []canonjson.Value, w Writing) (*Write, error) {
	wr, err := p.writer(name, model.ActInsert, len(docs) != 1, w)
	if err != nil {
		return nil, err
	}
	if len(docs) > maxRows {
		return nil, tooManyRows(len(docs))
	}
	out := &Write{Kind: Insert, Model: wr.m, Check: wr.check()}
	for _, doc := range docs {
		d, err := wr.document(doc, nil)
		if err != nil {
			return nil, err
		}
		if len(d.lacks) > 0 {
			return nil, wr.lacking(d.lacks)
		}
		out.Rows = append(out.Rows, d.row)
	}
	wr.report()
	return out, nil
}

// Update plans update(model, condition, data): exactly one row. expect is the expected version, Absent for none.
func (p *Planner) Update(name string, condition, data, expect canonjson.Value, w Writing) (*Write, error) {
	wr, err := p.writer(name, model.ActUpdate, false, w)
	if err != nil {
		return nil, err
	}
	out := &Write{Kind: Update, Model: wr.m, Scope: wr.scope(), Check: wr.check()}
	if out.Where, err = wr.where(condition); err != nil {
		return nil, err
	}
	wr.hide(out)
	if out.Set, err = wr.changes(data); err != nil {
		return nil, err
	}
	if len(out.Set) == 0 {
		return nil, wr.nothing()
	}
	out.Set = wr.touched(out.Set)
	if out.Expect, err = wr.expect(expect); err != nil {
		return nil, err
	}
	wr.report()
	return out, nil
}

// UpdateMany plans updateMany(model, condition, data). Without data it only touches updatedAt.
func (p *Planner) UpdateMany(name string, condition, data canonjson.Value, w Writing) (*Write, error) {
	wr, err := p.writer(name, model.ActUpdate, true, w)
	if err != nil {
		return nil, err
	}
	out := &Write{Kind: UpdateMany, Model: wr.m, Scope: wr.scope(), Check: wr.check()}
	if out.Where, err = wr.where(condition); err != nil {
		return nil, err
	}
	if out.Set, err = wr.changes(data); err != nil {
		return nil, err
	}
	if out.Set = wr.touched(out.Set); len(out.Set) == 0 {
		return nil, wr.nothing()
	}
	wr.report()
	return out, nil
}

// Remove plans remove(model, condition). one: the condition names one row, and a row outside the caller's rows is an error
// instead of nothing. A condition that is nothing but an _id names one row in any case.
func (p *Planner) Remove(name string, condition, expect canonjson.Value, one bool, w Writing) (*Write, error) {
	wr, err := p.writer(name, model.ActRemove, !one, w)
	if err != nil {
		return nil, err
	}
	out := &Write{Kind: Remove, Model: wr.m, Scope: wr.scope(), Archive: wr.m.Archive}
	if out.Where, err = wr.where(condition); err != nil {
		return nil, err
	}
	if out.One = one || wr.namesRow(out.Where); out.One {
		wr.hide(out)
	}
	if out.Expect, err = wr.expect(expect); err != nil {
		return nil, err
	}
	if !out.Expect.IsAbsent() && !out.One {
		return nil, model.Errorf(model.BadFilter, "an expected version needs a condition on the _id of one row. Write {\"_id\": ...}")
	}
	if out.Archive != nil {
		out.Now = w.now(out.Archive)
	}
	return out, nil
}

// now is the time in the unit of m.
func (w Writing) now(m *model.Model) int64 {
	if m.Times == model.Seconds {
		return w.Now.Unix()
	}
	return w.Now.UnixMilli()
}

// writer plans one write on one model, after the caller was let in.
type writer struct {
	p       *Planner
	m       *model.Model
	action  model.Action
	w       Writing
	dropped []string
}

// writer lets the caller in: the model is known, and the action may be taken on it.
func (p *Planner) writer(name string, action model.Action, many bool, w Writing) (*writer, error) {
	if p.Profile.Sandbox {
		return nil, p.refuse("write", "this profile only reads; nothing can be written in it")
	}
	if err := p.admit(); err != nil {
		return nil, err
	}
	m, err := p.model(name)
	if err != nil {
		return nil, err
	}
	return p.writerOf(m, action, many, w)
}

// writerOf lets the caller write a model that was found.
func (p *Planner) writerOf(m *model.Model, action model.Action, many bool, w Writing) (*writer, error) {
	if err := p.Access.Write(m, action, many); err != nil {
		return nil, err
	}
	switch {
	case m.ReadOnly():
		return nil, model.Errorf(model.ReadOnly, "%s is a view or a table without a key: it can be read and not written", m.Name)
	case m.ArchiveOf != nil && !p.Access.Context().Internal:
		return nil, model.Errorf(model.Denied, "you may not write %s: it holds removed rows and is kept by the server", m.Name)
	case len(m.Triggers) > 0:
		return nil, model.Errorf(model.Unsupported, "%s has triggers, which this version does not run, so it refuses to write the model without them; an operator can remove the triggers from its definition", m.Name)
	}
	return &writer{p: p, m: m, action: action, w: w}, nil
}

// limits are the caller's row limits: those of the actions, and those of reading where he may read the model, so that
// nobody writes a row that he could not see, or moves one out of his sight.
func (w *writer) limits(actions ...model.Action) Cond {
	if w.p.Access.Read(w.m) == nil {
		actions = append(actions, model.ActRead)
	}
	var all []model.RowLimit
	for _, a := range actions {
		for _, l := range w.p.Access.Rows(w.m, a) {
			if !slices.ContainsFunc(all, func(o model.RowLimit) bool { return sameLimit(l, o) }) {
				all = append(all, l)
			}
		}
	}
	return rowCond(all, w.m)
}

// sameLimit tells whether two limits are spelled alike, as those of reading and writing mostly are.
func sameLimit(a, b model.RowLimit) bool {
	return slices.EqualFunc(a.Any, b.Any, func(x, y []model.Equal) bool {
		return slices.EqualFunc(x, y, func(e, f model.Equal) bool { return e.Field == f.Field && e.Value.Equal(f.Value) })
	})
}

// scope are the limits on rows that are changed or removed. An upsert and a mutation are judged as inserts; a row that is
// there already must also be one that the caller may update.
func (w *writer) scope() Cond {
	if w.action == model.ActInsert {
		return w.limits(model.ActInsert, model.ActUpdate)
	}
	return w.limits(w.action)
}

// check are the limits on a row after the write.
func (w *writer) check() Cond { return w.limits(w.action) }

// where reads the condition of a write. One that constrains nothing is refused (section 12.4), and a caller who may not
// read the model may name a row by its _id alone: else the number of rows changed would answer questions about them.
func (w *writer) where(condition canonjson.Value) (Cond, error) {
	if err := noFlags(w.m, condition); err != nil {
		return nil, err
	}
	c, err := w.p.condition(w.m, condition, useWrite)
	if err != nil {
		return nil, err
	}
	if blank(c) {
		return nil, model.Errorf(model.Denied, "a condition that takes every row of %s is refused as a batch write; name the rows. Write {\"_id\": %s}", w.m.Name, sampleID(w.m))
	}
	if err := w.p.Access.Read(w.m); err != nil && !w.namesRow(c) {
		return nil, model.Errorf(model.Denied, "you may not read %s, so the condition may be nothing but an _id. Write {\"_id\": %s}", w.m.Name, sampleID(w.m))
	}
	return c, nil
}

// sampleID is an _id of m for examples.
func sampleID(m *model.Model) string {
	if m.Composite() {
		return sampleKey(m)
	}
	return sample(m.ID().Type)
}

// noFlags refuses $options in a write's condition: what a flag matches differs between databases in the corners, and a
// write must not depend on it (section 6.2).
func noFlags(m *model.Model, condition canonjson.Value) error {
	for _, c := range condition.Members() {
		for _, item := range c.Value.Items() {
			if err := noFlags(m, item); err != nil {
				return err
			}
		}
		if !c.Value.Get("$regex").IsAbsent() && !c.Value.Get("$options").IsAbsent() {
			return model.Errorf(model.BadFilter, "%s: $regex takes no $options where rows are changed; spell the cases out. Write {%s: {\"$regex\": \"[Aa]\"}}", place(m, c.Name), quoted(clip(c.Name)))
		}
		if err := noFlags(m, c.Value); err != nil {
			return err
		}
	}
	return nil
}

// namesRow tells whether a condition is nothing but equality with the key.
func (w *writer) namesRow(c Cond) bool {
	parts, is := c.(And)
	if !is {
		parts = And{c}
	}
	key := keyFields(w.m)
	if len(parts) != len(key) {
		return false
	}
	for _, f := range key {
		if !slices.ContainsFunc(parts, func(part Cond) bool {
			e, is := part.(Compare)
			return is && e.Op == EQ && e.By.Field == f && e.By.Via == nil
		}) {
			return false
		}
	}
	return true
}

// hide makes rows outside the caller's look as if they were not there, unless the condition is nothing but an _id: that
// such a row exists may be told (section 13.6), but what it holds may not be asked by other conditions.
func (w *writer) hide(out *Write) {
	if !w.namesRow(out.Where) {
		out.Where, out.Scope = all(out.Where, out.Scope), nil
	}
}

// keyFields are the stored fields of the primary key.
func keyFields(m *model.Model) []*model.Field {
	if m.Composite() {
		return m.Key
	}
	return []*model.Field{m.ID()}
}

// expect reads the expected version.
func (w *writer) expect(v canonjson.Value) (canonjson.Value, error) {
	f := w.m.VersionOf
	switch {
	case v.IsAbsent() || v.Kind() == canonjson.KindNull:
		return canonjson.Value{}, nil
	case f == nil:
		return v, model.Errorf(model.Unsupported, "%s keeps no version; leave the expected version out", w.m.Name)
	}
	if err := w.p.mayReadField(w.m, f); err != nil {
		return v, err
	}
	version, err := model.Coerce(f.Type, v)
	if err != nil {
		return v, model.Errorf(model.BadValue, "the expected version is a value of %s, of type %s, not %s; read the row and send what it shows", place(w.m, f.Name), f.Type, short(v))
	}
	return version, nil
}

// nothing is the refusal of a change that changes nothing.
func (w *writer) nothing() error {
	return model.Errorf(model.NoFields, "there is nothing to change in %s: give at least one field that you may write%s", w.m.Name, hint("", w.writable()))
}

// tooManyRows is the refusal of a call that writes too much.
func tooManyRows(n int) error {
	return model.Errorf(model.Limit, "one call may write %d rows at most, not %d; send them in several calls", maxRows, n)
}

// report tells which fields were left out.
func (w *writer) report() {
	if len(w.dropped) > 0 && w.w.Dropped != nil {
		slices.Sort(w.dropped)
		w.w.Dropped(w.m.Name, slices.Compact(w.dropped))
	}
}
