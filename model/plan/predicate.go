package plan

import (
	"strconv"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// predicateForm is the example for faults of relation predicates.
const predicateForm = `Write {"relation": {"$filter": {...}, "$exists": true}} or {"relation": {"$count": {"$gte": 2}}} or {"relation": {"$sum": {"$of": "field", "$gt": 90}}}`

// predicate reads one relation predicate (section 8.2).
type predicate struct {
	p     *Planner
	link  *link
	name  string // of the relation, as a place
	tests *int   // of the condition that it stands in
	out   Exists
}

// relation reads the member of a condition whose key is a relation.
func (j *judge) relation(r *model.Relation, v canonjson.Value, depth int) (Cond, error) {
	if !j.p.Access.ReadRelation(j.m, r) {
		return nil, model.Errorf(model.Denied, "you may not read the relation %s", place(j.m, r.Name))
	}
	if err := j.allowPredicate(r); err != nil {
		return nil, err
	}
	l, err := j.p.follow(j.m, r)
	if err != nil {
		return nil, err
	}
	if err := j.count(1); err != nil {
		return nil, err
	}
	q := &predicate{p: j.p, link: l, name: place(j.m, r.Name), tests: j.tests}
	q.out = Exists{Target: l.target, Local: l.local, Foreign: l.foreign}
	if v.Kind() != canonjson.KindObject || v.Len() == 0 {
		return nil, q.fault("a relation is asked with an object, not %s. %s", emptyOr(v), predicateForm)
	}
	if depth > maxCondDepth {
		return nil, tooDeep()
	}
	if isLong(v) {
		return q.long(v, depth)
	}
	return q.shortForm(v, depth)
}

// allowPredicate refuses predicates where there are none.
func (j *judge) allowPredicate(r *model.Relation) error {
	switch j.use {
	case useCount:
		return model.Errorf(model.RelationPredicate, "%s: count, exists and pages with a total know no relation predicates; ask with query, and count its rows with $group", place(j.m, r.Name))
	case useGroup:
		return model.Errorf(model.Group, "$group cannot stand beside a relation predicate (%s) in $condition; filter by fields of %s alone", r.Name, j.m.Name)
	case useFilter:
		return model.Errorf(model.RelationPredicate, "%s: the filter of a relation predicate knows fields of %s only, and %s is a relation", j.what, j.m.Name, r.Name)
	}
	return nil
}

// emptyOr shows v, or says that an object is empty.
func emptyOr(v canonjson.Value) string {
	if v.Kind() == canonjson.KindObject {
		return "an empty one"
	}
	return short(v)
}

// fault makes an error of a relation predicate.
func (q *predicate) fault(format string, args ...any) error {
	e := model.Errorf(model.RelationPredicate, format, args...)
	e.Message = q.name + ": " + e.Message
	return e
}

// isLong tells the long form from the short one.
func isLong(v canonjson.Value) bool {
	return !v.Get("filter").IsAbsent() || !v.Get("agg").IsAbsent() || !v.Get("having").IsAbsent()
}

// where reads the filter and adds the caller's row limits on the target.
func (q *predicate) where(filter canonjson.Value, depth int) error {
	limits := rowCond(q.p.Access.Rows(q.link.target, model.ActRead), q.link.target)
	if filter.IsAbsent() || filter.Kind() == canonjson.KindNull {
		q.out.Where = limits
		return nil
	}
	j := &judge{p: q.p, m: q.link.target, use: useFilter, what: q.name, tests: q.tests}
	j.test = j.filterTest
	c, err := j.object(filter, depth+1)
	q.out.Where = all(c, limits)
	return err
}

// filterTest reads a member of a filter: a field of the target, in the words of the predicate where it is none.
func (j *judge) filterTest(key string, v canonjson.Value, depth int) (Cond, error) {
	if r := j.p.relationOf(j.m, key); r != nil {
		return j.relation(r, v, depth)
	}
	names := *j
	names.class = model.RelationPredicate
	f, err := names.field(key)
	if err != nil {
		return nil, err
	}
	return j.operators(fieldOperand(j.m, f), place(j.m, f.Name), key, v, depth)
}

// shortForm reads {"$filter"?, one operator}.
func (q *predicate) shortForm(v canonjson.Value, depth int) (Cond, error) {
	var op string
	var operand canonjson.Value
	for _, m := range v.Members() {
		switch m.Name {
		case "$filter":
		case "$exists", "$count", "$sum", "$avg", "$min", "$max":
			if op != "" {
				return nil, q.fault("%s and %s cannot stand together; write two predicates in an $and, or the long form with agg and having", op, m.Name)
			}
			op, operand = m.Name, m.Value
		default:
			return nil, q.fault("%s is no part of a relation predicate%s. %s", clip(m.Name), hintOp(m.Name, []string{"$filter", "$exists", "$count", "$sum", "$avg", "$min", "$max"}), predicateForm)
		}
	}
	if op == "" {
		return nil, q.fault("there is no operator beside $filter. %s", predicateForm)
	}
	if f := v.Get("$filter"); !f.IsAbsent() && f.Kind() != canonjson.KindObject {
		return nil, q.fault("$filter is a condition object, not %s", short(f))
	}
	if err := q.where(v.Get("$filter"), depth); err != nil {
		return nil, err
	}
	if op == "$exists" {
		return q.exists(operand)
	}
	return q.aggregate(model.AggOp(op), operand)
}

// exists finishes {"$exists": true or false}.
func (q *predicate) exists(v canonjson.Value) (Cond, error) {
	if v.Kind() != canonjson.KindBool {
		return nil, q.fault("$exists is true or false, not %s", short(v))
	}
	if v.Bool() {
		return q.out, nil
	}
	return Not{q.out}, nil
}

// aggregate finishes {"$sum": {"$of": field, comparison}}.
func (q *predicate) aggregate(op model.AggOp, v canonjson.Value) (Cond, error) {
	if v.Kind() != canonjson.KindObject {
		return nil, q.fault("%s needs an object with one comparison, not %s. %s", op, short(v), predicateForm)
	}
	var cmp string
	for _, m := range v.Members() {
		switch {
		case m.Name == "$of":
		case comparisons[m.Name] == "":
			return nil, q.fault("%s: %s is neither $of nor one of $gt, $gte, $lt, $lte, $eq, $ne", op, clip(m.Name))
		case cmp != "":
			return nil, q.fault("%s takes one comparison, not both %s and %s; write two predicates in an $and", op, cmp, m.Name)
		default:
			cmp = m.Name
		}
	}
	if cmp == "" {
		return nil, q.fault("%s needs one of $gt, $gte, $lt, $lte, $eq, $ne. %s", op, predicateForm)
	}
	field, err := q.of(op, v.Get("$of"))
	if err != nil {
		return nil, err
	}
	if k := v.Get(cmp).Kind(); k == canonjson.KindNull || k == canonjson.KindObject || k == canonjson.KindArray {
		return nil, q.fault("%s: %s needs a value, not %s", op, cmp, short(v.Get(cmp)))
	}
	out := q.addAgg(op, field)
	q.out.Having, err = q.outputs().judge().comparison(out.subject, string(op), string(op), cmp, v.Get(cmp))
	return q.out, err
}

// outputs are an empty set of what having may name.
func (q *predicate) outputs() *outputs {
	return &outputs{class: model.RelationPredicate, what: q.name, some: q.someRows, tests: q.tests}
}

// someRows asks that the parent has rows at all. $ne of a count wants it: the count of nothing answers $eq, $lt and $gte,
// but a parent without rows differs from no number, as a missing value differs from none (r209).
func (q *predicate) someRows() Cond {
	return Compare{q.addAgg(model.Count, nil).subject.Operand, GT, canonjson.Int(0)}
}

// addAgg adds an aggregate under a name of ours, so that no word of the caller's reaches a statement.
func (q *predicate) addAgg(op model.AggOp, f *model.Field) output {
	a := GroupAgg{Alias: "a" + strconv.Itoa(len(q.out.Aggs)), Op: op, Field: f}
	q.out.Aggs = append(q.out.Aggs, a)
	return output{name: a.Alias, subject: subject{Operand: Operand{Alias: a.Alias, Type: aggType(op, f)}, count: op == model.Count}}
}

// of finds the field that is aggregated: "$of" of the short form.
func (q *predicate) of(op model.AggOp, v canonjson.Value) (*model.Field, error) {
	if v.IsAbsent() && op == model.Count {
		return nil, nil
	}
	if v.Kind() != canonjson.KindString {
		return nil, q.fault("%s needs $of with the name of a field of %s. Write {\"%s\": {\"$of\": \"minutes\", \"$gt\": 90}}", op, q.link.target.Name, op)
	}
	return q.p.operandField(q.link.target, op, v.Str(), q.fault)
}

// operandField finds and judges the field that an aggregate is over.
func (p *Planner) operandField(m *model.Model, op model.AggOp, name string, fault func(string, ...any) error) (*model.Field, error) {
	fits := func(f *model.Field) bool { return plain(f) && (op != model.Sum && op != model.Avg || f.Type.Numeric()) }
	f := m.Field(name)
	if f == nil {
		return nil, fault("%s: %s has no field %s%s", op, m.Name, clip(name), hint(name, p.fieldNames(m, fits)))
	}
	if err := p.mayReadField(m, f); err != nil {
		return nil, err
	}
	switch {
	case f.Column == "" && op == model.Count:
		return nil, nil // a key of several columns is never null: its count is that of the rows
	case f.Column == "":
		return nil, fault("%s: %s is made of several columns; name one of them", op, place(m, name))
	case !fits(f):
		return nil, fault("%s: %s is of type %s, which cannot be taken here%s", op, place(m, name), f.Type, hint("", p.fieldNames(m, fits)))
	}
	return f, nil
}

// aggType is the type of an aggregate's output.
func aggType(op model.AggOp, f *model.Field) model.Type {
	switch {
	case op == model.Count:
		return model.Long
	case op == model.Avg:
		return model.Double
	case op == model.Sum && f.Type.Integer():
		return model.Long
	case op == model.Sum && f.Type == model.Float:
		return model.Double
	}
	return f.Type
}

// long reads {"filter"?, "agg", "having"}.
func (q *predicate) long(v canonjson.Value, depth int) (Cond, error) {
	for _, m := range v.Members() {
		switch m.Name {
		case "filter", "agg", "having":
		default:
			return nil, q.fault("%s cannot stand beside filter, agg and having", clip(m.Name))
		}
	}
	agg, having := v.Get("agg"), v.Get("having")
	if agg.Kind() != canonjson.KindObject || agg.Len() == 0 || having.Kind() != canonjson.KindObject || having.Len() == 0 {
		return nil, q.fault("the long form needs both agg and having. Write {\"agg\": {\"n\": {\"$count\": \"*\"}}, \"having\": {\"n\": {\"$gte\": 2}}}")
	}
	if f := v.Get("filter"); !f.IsAbsent() && f.Kind() != canonjson.KindObject {
		return nil, q.fault("filter is a condition object, not %s", short(f))
	}
	if err := q.where(v.Get("filter"), depth); err != nil {
		return nil, err
	}
	outs, err := q.aliases(agg)
	if err != nil {
		return nil, err
	}
	q.out.Having, err = outs.judge().object(having, depth+1)
	switch {
	case err == nil && !outs.used:
		err = q.fault("having must use at least one alias of agg")
	case err == nil && q.out.Having == nil:
		// It folded to true, for every parent. An Exists without Having would ask for a row.
		return nil, nil
	}
	return q.out, err
}

// aliases reads the agg member of the long form.
func (q *predicate) aliases(agg canonjson.Value) (*outputs, error) {
	outs := q.outputs()
	if agg.Len() > maxAggs {
		return nil, model.Errorf(model.Limit, "%s: agg may hold %d aliases at most", q.name, maxAggs)
	}
	for _, m := range agg.Members() {
		op, field, err := q.p.aggregateOf(q.link.target, m, q.fault)
		if err != nil {
			return nil, err
		}
		o := q.addAgg(op, field)
		o.name = m.Name
		outs.add(o)
	}
	return outs, nil
}
