package plan

import (
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// condUse says where a condition stands, which decides whether relation predicates are allowed in it and what their
// refusal is called.
type condUse int

// The uses.
const (
	useQuery  condUse = iota // $condition of a root or of a relation block
	useWrite                 // a write's condition
	useCount                 // count, exists, queryWithCount: no relation predicates
	useGroup                 // together with $group: no relation predicates
	useFilter                // the filter of a relation predicate: no further predicate inside
)

// Bounds of one condition. The depth is the specification's (section 15); the number of tests keeps a statement within
// what databases take as parameters.
const (
	maxCondDepth = 32
	maxTests     = 2000
	maxIn        = 10_000
)

// condition reads and judges a condition on m: names are resolved, values are of the declared types, every name is one
// that the caller may read. Nil is no condition.
func (p *Planner) condition(m *model.Model, v canonjson.Value, use condUse) (Cond, error) {
	if v.IsAbsent() || v.Kind() == canonjson.KindNull {
		return nil, nil
	}
	if err := forbidden(v, 0); err != nil {
		return nil, err
	}
	j := &judge{p: p, m: m, use: use, what: "$condition", tests: new(int)}
	j.test = j.modelTest
	return j.object(v, 0)
}

// forbidden refuses the operators that run code, wherever they stand, before anything else is looked at (section 6.1).
func forbidden(v canonjson.Value, depth int) error {
	if depth > 4*maxCondDepth {
		return tooDeep()
	}
	for _, item := range v.Items() {
		if err := forbidden(item, depth+1); err != nil {
			return err
		}
	}
	for _, m := range v.Members() {
		switch m.Name {
		case "$where", "$function", "$accumulator":
			return model.Errorf(model.ForbiddenOp, "%s is never allowed: it would run code in the database. Compare fields instead, such as {\"price\": {\"$gte\": 1}}", m.Name)
		}
		if err := forbidden(m.Value, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// tooDeep is the refusal of a condition with too many levels.
func tooDeep() error {
	return model.Errorf(model.Limit, "a condition may have %d levels at most; write it flatter, for example with $in instead of nested $or", maxCondDepth)
}

// judge reads one condition.
type judge struct {
	p    *Planner
	m    *model.Model // nil in $having
	use  condUse
	what string // for messages: $condition, $having, the relation whose filter it is
	// test reads what stands under a key that is no group of conditions.
	test func(key string, v canonjson.Value, depth int) (Cond, error)
	// class replaces the class of faults where everything has one: $having, relation predicates. "" keeps each.
	class model.Class
	// some asks that there are rows at all, where $ne of a count wants it (see predicate.someRows). Nil: nowhere.
	some  func() Cond
	tests *int // comparisons so far, of the whole condition
}

// fault makes an error of class c, or of the class that everything here has.
func (j *judge) fault(c model.Class, format string, args ...any) error {
	if j.class != "" {
		c = j.class
	}
	e := model.Errorf(c, format, args...)
	e.Message = j.what + ": " + e.Message
	return e
}

// count counts tests against the bound.
func (j *judge) count(n int) error {
	if *j.tests += n; *j.tests > maxTests {
		return model.Errorf(model.Limit, "a condition may have %d comparisons at most; use $in for many values of one field", maxTests)
	}
	return nil
}

// object reads a condition object: its members are joined by AND.
func (j *judge) object(v canonjson.Value, depth int) (Cond, error) {
	if v.Kind() != canonjson.KindObject {
		return nil, j.fault(model.BadFilter, "a condition is an object, not %s. Write for example {\"_id\": \"k1\"}", short(v))
	}
	if depth > maxCondDepth {
		return nil, tooDeep()
	}
	conds := make([]Cond, 0, v.Len())
	for _, m := range v.Members() {
		c, err := j.member(m.Name, m.Value, depth)
		if err != nil {
			return nil, err
		}
		conds = append(conds, c)
	}
	return all(conds...), nil
}

// member reads one member of a condition object.
func (j *judge) member(key string, v canonjson.Value, depth int) (Cond, error) {
	switch key {
	case "$and", "$or", "$nor":
		return j.group(key, v, depth)
	case "$not":
		return j.not(v, depth)
	}
	if len(key) > 0 && key[0] == '$' {
		return nil, j.fault(model.UnsupportedOp, "%s does not exist here; between conditions there are $and, $or and $nor%s", clip(key), hintOp(key, []string{"$and", "$or", "$nor", "$not"}))
	}
	return j.test(key, v, depth)
}

// hintOp names the nearest operator, if one is near.
func hintOp(op string, ops []string) string {
	if near := model.Nearest(op, ops); len(near) > 0 {
		return "; did you mean " + near[0] + "?"
	}
	return ""
}

// group reads $and, $or and $nor.
func (j *judge) group(key string, v canonjson.Value, depth int) (Cond, error) {
	if v.Kind() != canonjson.KindArray {
		return nil, j.fault(model.BadFilter, "%s needs an array of conditions, not %s. Write {\"%s\": [{...}, {...}]}", key, short(v), key)
	}
	if v.Len() == 0 {
		return nil, j.fault(model.EmptyGroup, "%s needs at least one condition; leave it out when there is none", key)
	}
	conds := make([]Cond, 0, v.Len())
	for _, item := range v.Items() {
		c, err := j.object(item, depth+1)
		if err != nil {
			return nil, err
		}
		conds = append(conds, c)
	}
	switch key {
	case "$and":
		return all(conds...), nil
	case "$or":
		return anyOf(conds...), nil
	}
	return negate(anyOf(conds...)), nil
}

// not reads $not between conditions: it stands around exactly one relation predicate (section 8.2).
func (j *judge) not(v canonjson.Value, depth int) (Cond, error) {
	const form = `Write {"$not": {"relation": {"$exists": true}}}; around a comparison it stands inside the field: {"field": {"$not": {"$gt": 1}}}`
	if v.Kind() != canonjson.KindObject || v.Len() == 0 || j.m == nil {
		return nil, j.fault(model.BadFilter, "$not needs exactly one relation predicate, not %s. %s", short(v), form)
	}
	for _, m := range v.Members() {
		if j.p.relationOf(j.m, m.Name) == nil {
			return nil, j.fault(model.BadFilter, "$not stands around exactly one relation predicate, and %s is no relation of %s. %s", clip(m.Name), j.m.Name, form)
		}
	}
	if v.Len() > 1 {
		return nil, j.fault(model.RelationPredicate, "$not stands around exactly one relation predicate, not %d; write several $not in an $and", v.Len())
	}
	c, err := j.object(v, depth+1)
	return negate(c), err
}

// modelTest reads a member whose key is a field or a relation of the model.
func (j *judge) modelTest(key string, v canonjson.Value, depth int) (Cond, error) {
	if r := j.p.relationOf(j.m, key); r != nil {
		return j.relation(r, v, depth)
	}
	f, err := j.field(key)
	if err != nil {
		return nil, err
	}
	return j.operators(fieldOperand(j.m, f), place(j.m, key), key, v, depth)
}

// fieldOperand is f as the side of a comparison.
func fieldOperand(m *model.Model, f *model.Field) subject {
	return subject{Operand: Operand{Field: f, Type: f.Type}, model: m}
}

// field finds the field that a key names, if one may filter by it.
func (j *judge) field(key string) (*model.Field, error) {
	f := j.m.Field(key)
	if f == nil {
		return nil, j.noField(key)
	}
	if err := j.p.mayReadField(j.m, f); err != nil {
		return nil, err
	}
	switch f.Type {
	case model.Array:
		return nil, j.shape("array field condition", model.ArrayFilter, "%s is an array, and arrays cannot be filtered by", place(j.m, key))
	case model.Object, model.Any:
		return nil, j.shape("object field condition", model.ObjectFilter, "%s is an object, and objects cannot be filtered by", place(j.m, key))
	}
	return f, nil
}

// shape refuses what stored JSON cannot do: by the sandbox with the name of the feature, elsewhere by its class.
func (j *judge) shape(feature string, class model.Class, format string, args ...any) error {
	format += "%s"
	args = append(args, ". Filter by a plain field"+j.plainHint())
	if j.p.Profile.Sandbox {
		return j.p.refuse(feature, format, args...)
	}
	return j.fault(class, format, args...)
}

// plainHint lists fields that can be filtered by.
func (j *judge) plainHint() string { return hint("", j.p.fieldNames(j.m, plain)) }

// noField explains a key that is no field: a path, a computed column, or a word that does not exist.
func (j *judge) noField(key string) error {
	if head, _, dotted := split(key); dotted {
		return j.path(key, head)
	}
	if c := j.m.Compute(key); c != nil && j.p.Access.ReadCompute(j.m, c) {
		return j.fault(model.UnknownField, "%s is a computed column, and those cannot be filtered by%s", place(j.m, key), j.plainHint())
	}
	names := append(j.p.fieldNames(j.m, plain), j.relationHints()...)
	return j.fault(model.UnknownField, "%s has no field %s%s", j.m.Name, clip(key), hint(key, names))
}

// relationHints are the relations that a predicate may name here.
func (j *judge) relationHints() []string {
	if j.use == useQuery || j.use == useWrite {
		return j.p.relationNames(j.m, nil)
	}
	return nil
}

// path explains a dotted key.
func (j *judge) path(key, head string) error {
	if r := j.p.relationOf(j.m, head); r != nil {
		if !j.p.Access.ReadRelation(j.m, r) {
			return model.Errorf(model.Denied, "you may not read the relation %s", place(j.m, head))
		}
		return j.fault(model.RelationPredicate, "%s goes through a relation in one key. Write {%s: {\"$filter\": {...}, \"$exists\": true}}", clip(key), quoted(head))
	}
	f := j.m.Field(head)
	if f == nil {
		return j.fault(model.UnknownField, "%s has no field %s%s", j.m.Name, clip(key), hint(head, j.p.fieldNames(j.m, plain)))
	}
	if err := j.p.mayReadField(j.m, f); err != nil {
		return err
	}
	switch f.Type {
	case model.Array:
		return j.fault(model.ArrayFilter, "%s points into an array, and arrays cannot be filtered by%s", place(j.m, key), j.plainHint())
	case model.Object, model.Any:
		return j.shape("object path condition", model.ObjectPath, "%s points into an object, and objects cannot be filtered by", place(j.m, key))
	}
	return j.fault(model.UnknownField, "%s has no field %s: %s is no object%s", j.m.Name, clip(key), head, j.plainHint())
}

// quoted is a name from a definition in JSON quotation marks.
func quoted(name string) string { return `"` + name + `"` }
