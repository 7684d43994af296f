package plan

import (
	"github.com/tabellion-mcp/tabellion/model"
)

// compute shows a computed column. An unreadable one is left out; one that needs what the caller may not read is an error
// (section 10).
func (w *blockBuilder) compute(c *model.Compute) error {
	if !w.p.Access.ReadCompute(w.m, c) {
		return nil
	}
	if c.Agg != nil {
		i, err := w.agg(c)
		if err != nil {
			return err
		}
		w.show(ShapeItem{Name: c.Name, Compute: c, Agg: i})
		return nil
	}
	for _, d := range c.Depends {
		if err := w.depend(c, d); err != nil {
			return err
		}
	}
	w.show(ShapeItem{Name: c.Name, Compute: c})
	return nil
}

// agg adds an aggregate column to the block, once, and gives its index.
func (w *blockBuilder) agg(c *model.Compute) (int, error) {
	if i, ok := w.aggs[c.Name]; ok {
		return i, nil
	}
	a, err := w.p.aggregate(w.m, c)
	if err != nil {
		return 0, err
	}
	for _, f := range a.Local {
		w.column(f)
	}
	w.aggs[c.Name] = len(w.b.Aggs)
	w.b.Aggs = append(w.b.Aggs, a)
	return w.aggs[c.Name], nil
}

// aggregate judges an aggregate column's dependencies and makes it: the relation, the target, the operand, and the caller's
// row limits on the rows that are counted.
func (p *Planner) aggregate(m *model.Model, c *model.Compute) (*Agg, error) {
	r := p.relationOf(m, c.Agg.Relation)
	if r == nil {
		return nil, model.Errorf(model.UnknownField, "the computed column %s cannot be used: the model that it counts is not there", place(m, c.Name))
	}
	l, err := p.follow(m, r)
	if err != nil {
		return nil, madeOf(m, c, err)
	}
	a := &Agg{Name: c.Name, Op: c.Agg.Op, Target: l.target, Local: l.local, Foreign: l.foreign}
	if c.Agg.Field != "" {
		fault := func(format string, args ...any) error {
			return model.Errorf(model.BadSchema, "the computed column "+place(m, c.Name)+": "+format, args...)
		}
		if a.Field, err = p.operandField(l.target, c.Agg.Op, c.Agg.Field, fault); err != nil {
			return nil, madeOf(m, c, err)
		}
	}
	a.Where = rowCond(p.Access.Rows(l.target, model.ActRead), l.target)
	return a, nil
}

// madeOf refuses a column because of what it is made of, which the caller did not name.
func madeOf(m *model.Model, c *model.Compute, err error) error {
	return inOtherWords(err, "you may not read what the computed column %s is made of", place(m, c.Name))
}

// depend has the source read what a function needs. Fields are read for the function whether the caller may read them or
// not; rows of another model are the caller's rows.
func (w *blockBuilder) depend(c *model.Compute, d model.Depend) error {
	if d.Relation == "" {
		f := w.m.Field(d.Field)
		if f == nil {
			return model.Errorf(model.BadSchema, "the computed column %s depends on %s, which is no field", place(w.m, c.Name), clip(d.Field))
		}
		w.column(f)
		return nil
	}
	kid, err := w.hiddenKid(c, d.Relation)
	if err != nil {
		return err
	}
	target := kid.Block.Model
	for _, name := range d.Fields {
		f := target.Field(name)
		if f == nil {
			return model.Errorf(model.BadSchema, "the computed column %s depends on %s.%s, which is no field", place(w.m, c.Name), d.Relation, clip(name))
		}
		if !has(kid.Block.Columns, f) {
			kid.Block.Columns = append(kid.Block.Columns, f)
		}
		if !shown(kid.Block, f) {
			kid.Block.Shape.Items = append(kid.Block.Shape.Items, ShapeItem{Name: f.Name, Field: f})
		}
	}
	return nil
}

// shown tells whether f is a member of the block's rows.
func shown(b *Block, f *model.Field) bool {
	for _, item := range b.Shape.Items {
		if item.Field == f {
			return true
		}
	}
	return false
}

// hiddenKid finds or adds the kid that functions need of a relation. It is beside a kid that the caller asked for, whose
// condition and window are not the function's.
func (w *blockBuilder) hiddenKid(c *model.Compute, name string) (*Kid, error) {
	if k := w.hidden[name]; k != nil {
		return k, nil
	}
	r := w.p.relationOf(w.m, name)
	if r == nil {
		return nil, model.Errorf(model.UnknownField, "the computed column %s cannot be used: the model that it needs is not there", place(w.m, c.Name))
	}
	l, err := w.p.follow(w.m, r)
	if err != nil {
		return nil, madeOf(w.m, c, err)
	}
	b := &Block{Model: l.target, Limit: unlimited, Where: rowCond(w.p.Access.Rows(l.target, model.ActRead), l.target)}
	b.Columns = append(b.Columns, l.foreign...)
	if id := l.target.ID(); id != nil && !has(b.Columns, id) {
		b.Columns = append(b.Columns, id)
	}
	b.Order = appendKey(nil, l.target, false)
	if r.One && !l.unique() {
		b.Limit = 1
	}
	index := w.addKid(l, b, true)
	w.hidden[name] = w.b.Kids[index]
	return w.hidden[name], nil
}
