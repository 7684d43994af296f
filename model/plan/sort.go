package plan

import (
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// sortKey is one key of a $sort as written.
type sortKey struct {
	name string
	desc bool
}

// sortForm is the example for faults of sorts.
const sortForm = `Write {"field": -1, "otherField": 1}, where 1 is ascending and -1 descending`

// sortKeys reads $sort: an object, whose members are in the order written, or an array of objects with one member each.
// A key that comes again adds nothing.
func sortKeys(v canonjson.Value) ([]sortKey, error) {
	var members []canonjson.Member
	switch v.Kind() {
	case canonjson.KindAbsent:
		return nil, nil
	case canonjson.KindObject:
		members = v.Members()
	case canonjson.KindArray:
		for _, item := range v.Items() {
			if item.Kind() != canonjson.KindObject || item.Len() != 1 {
				return nil, model.Errorf(model.BadSort, "$sort as an array holds objects with one key each, not %s. Write [{\"price\": -1}, {\"title\": 1}]", short(item))
			}
			members = append(members, item.Members()[0])
		}
	default:
		return nil, model.Errorf(model.BadSort, "$sort is an object, not %s. %s", short(v), sortForm)
	}
	seen := map[string]bool{}
	var keys []sortKey
	for _, m := range members {
		n, ok := m.Value.Int()
		if !ok || n != 1 && n != -1 {
			return nil, model.Errorf(model.BadSort, "$sort: the direction of %s is 1 or -1, not %s. %s", clip(m.Name), short(m.Value), sortForm)
		}
		if !seen[m.Name] {
			seen[m.Name] = true
			keys = append(keys, sortKey{m.Name, n < 0})
		}
	}
	return keys, nil
}

// sort sets the order of a block: the written keys, then the table's key, so that rows and pages are stable.
func (w *blockBuilder) sort(v canonjson.Value) error {
	keys, err := sortKeys(v)
	if err != nil {
		return err
	}
	for _, k := range keys {
		by, err := w.sortBy(k.name)
		if err != nil {
			return err
		}
		if by.Field != nil && by.Via == nil && by.Field.Column == "" {
			w.b.Order = appendKey(w.b.Order, w.m, k.desc)
			continue
		}
		w.b.Order = append(w.b.Order, Order{by, k.desc})
	}
	w.b.Order = appendKey(w.b.Order, w.m, false)
	return nil
}

// appendKey adds the fields of the key of m that are not in the order yet. A table without a key is ordered by all its
// columns.
func appendKey(order []Order, m *model.Model, desc bool) []Order {
	fields := m.Key
	switch {
	case m.Keyless:
		fields = m.Fields
	case !m.Composite():
		fields = []*model.Field{m.ID()}
	}
	for _, f := range fields {
		if plain(f) && !ordered(order, f) {
			order = append(order, Order{Operand{Field: f, Type: f.Type}, desc})
		}
	}
	return order
}

// ordered tells whether f is a sort key already.
func ordered(order []Order, f *model.Field) bool {
	for _, o := range order {
		if o.By.Field == f && o.By.Via == nil {
			return true
		}
	}
	return false
}

// sortBy finds and judges one sort key (section 7).
func (w *blockBuilder) sortBy(name string) (Operand, error) {
	if f := w.m.Field(name); f != nil {
		if err := w.p.mayReadField(w.m, f); err != nil {
			return Operand{}, err
		}
		if !plain(f) {
			return Operand{}, w.noSort(name, "%s is of type %s, and rows cannot be sorted by it", place(w.m, name), f.Type)
		}
		return Operand{Field: f, Type: f.Type}, nil
	}
	if c := w.m.Compute(name); c != nil {
		return w.sortByCompute(c)
	}
	if w.p.relationOf(w.m, name) != nil {
		return Operand{}, w.noSort(name, "%s is a relation; sort by a field of it when it is to-one, such as teacher.firstName", place(w.m, name))
	}
	if head, rest, ok := split(name); ok {
		return w.sortByPath(name, head, rest)
	}
	return Operand{}, w.unknownSort(name)
}

// noSort refuses a key that the source cannot sort by.
func (w *blockBuilder) noSort(name, format string, args ...any) error {
	e := model.Errorf(model.Pushdown, "$sort: "+format, args...)
	e.Message += hint("", w.p.fieldNames(w.m, plain))
	return e
}

// unknownSort refuses a key that does not exist.
func (w *blockBuilder) unknownSort(name string) error {
	names := append(w.p.fieldNames(w.m, plain), w.p.computeNames(w.m, aggregated)...)
	return model.Errorf(model.UnknownField, "$sort: %s has no field %s%s", w.m.Name, clip(name), hint(name, names))
}

// aggregated tells whether a computed column is an aggregate.
func aggregated(c *model.Compute) bool { return c.Agg != nil }

// sortByCompute sorts by an aggregate column. What a function makes is not known to the database.
func (w *blockBuilder) sortByCompute(c *model.Compute) (Operand, error) {
	if !w.p.Access.ReadCompute(w.m, c) {
		return Operand{}, model.Errorf(model.Denied, "you may not read %s", place(w.m, c.Name))
	}
	if c.Agg == nil {
		return Operand{}, model.Errorf(model.UnknownField, "$sort: %s is made by a function, and rows cannot be sorted by it%s", place(w.m, c.Name), hint("", w.p.fieldNames(w.m, plain)))
	}
	a, err := w.p.aggregate(w.m, c)
	if err != nil {
		return Operand{}, err
	}
	if i, ok := w.aggs[c.Name]; ok {
		a = w.b.Aggs[i]
	}
	return Operand{Agg: a, Type: aggType(a.Op, a.Field)}, nil
}

// sortByPath sorts by a field of a to-one relation that is in the selection, or says why a path is none.
func (w *blockBuilder) sortByPath(name, head, rest string) (Operand, error) {
	if f := w.m.Field(head); f != nil {
		return Operand{}, w.sortIntoField(name, f)
	}
	r := w.p.relationOf(w.m, head)
	if r == nil {
		return Operand{}, w.unknownSort(name)
	}
	l, err := w.p.follow(w.m, r)
	if err != nil {
		return Operand{}, err
	}
	if !r.One {
		return Operand{}, w.noSort(name, "%s goes through %s, which holds many rows", clip(name), place(w.m, head))
	}
	f, err := w.p.targetField(l, name, rest, "$sort")
	if err != nil {
		return Operand{}, err
	}
	if w.kids[head] == nil {
		return Operand{}, w.noSort(name, "%s is sorted by only when the selection holds %s { %s }", clip(name), head, f.Name)
	}
	return w.p.via(l, f), nil
}

// targetField finds and judges a field of a to-one relation's target, for sorting and grouping.
func (p *Planner) targetField(l *link, name, rest, what string) (*model.Field, error) {
	f := l.target.Field(rest)
	if f == nil {
		return nil, model.Errorf(model.UnknownField, "%s: %s has no field %s%s", what, l.target.Name, clip(rest), hint(rest, p.fieldNames(l.target, plain)))
	}
	if err := p.mayReadField(l.target, f); err != nil {
		return nil, err
	}
	if !plain(f) || f.Column == "" {
		return nil, model.Errorf(model.Pushdown, "%s: %s cannot be used%s", what, clip(name), hint("", p.fieldNames(l.target, plain)))
	}
	return f, nil
}

// via is a field of a to-one relation's target, of the caller's rows there.
func (p *Planner) via(l *link, f *model.Field) Operand {
	j := &Join{Relation: l.relation, Target: l.target, Local: l.local, Foreign: l.foreign}
	j.Where = rowCond(p.Access.Rows(l.target, model.ActRead), l.target)
	return Operand{Field: f, Via: j, Type: f.Type}
}

// sortIntoField refuses a path into a stored field.
func (w *blockBuilder) sortIntoField(name string, f *model.Field) error {
	if err := w.p.mayReadField(w.m, f); err != nil {
		return err
	}
	switch {
	case f.Type == model.Array:
		return w.noSort(name, "%s points into an array", place(w.m, name))
	case plain(f):
		return w.unknownSort(name)
	case w.p.Profile.Sandbox:
		return w.p.refuse("object path sort", "%s points into an object, and rows cannot be sorted by it", place(w.m, name))
	}
	return model.Errorf(model.ObjectSort, "$sort: %s points into an object, and rows cannot be sorted by it%s", place(w.m, name), hint("", w.p.fieldNames(w.m, plain)))
}
