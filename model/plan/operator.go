package plan

import (
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// subject is what a test is about.
type subject struct {
	Operand
	model *model.Model // whose field it is; nil for an output of a group
	count bool         // it is the output of $count
}

// composite tells whether the subject is an _id made of several columns.
func (s subject) composite() bool {
	return s.model != nil && s.model.Composite() && s.Field == s.model.ID()
}

// key tells whether the subject is a key of its table, which always holds a value.
func (s subject) key() bool {
	if s.model == nil || s.Via != nil || s.Field == nil {
		return false
	}
	if s.Field == s.model.ID() {
		return true
	}
	for _, f := range s.model.Key {
		if f == s.Field {
			return true
		}
	}
	return false
}

// hasValue, isNull and isStored are the two-valued tests, folded where the subject is a key.
func (s subject) hasValue() Cond {
	if s.key() {
		return nil
	}
	return HasValue{s.Operand}
}

func (s subject) isNull() Cond {
	if s.key() {
		return Const(false)
	}
	return IsNull{s.Operand}
}

func (s subject) isStored() Cond {
	if s.key() {
		return nil
	}
	if s.Alias != "" {
		return nil // a group's outputs are never missing: where there is no value they are null
	}
	return IsStored{s.Operand}
}

// operators reads what stands under a field: a value, or an object of operators joined by AND (section 6.2). name is the
// subject for messages, key as it was written.
func (j *judge) operators(s subject, name, key string, v canonjson.Value, depth int) (Cond, error) {
	if depth > maxCondDepth {
		return nil, tooDeep()
	}
	if v.Kind() != canonjson.KindObject {
		return j.equality(s, name, key, v)
	}
	if !v.Get("$options").IsAbsent() && v.Get("$regex").IsAbsent() {
		return nil, j.fault(model.BadFilter, "%s: $options stands beside a $regex. Write {%s: {\"$regex\": \"^a\", \"$options\": \"i\"}}", name, quoted(clip(key)))
	}
	conds := make([]Cond, 0, v.Len())
	for _, m := range v.Members() {
		c, err := j.operator(s, name, key, m, v, depth)
		if err != nil {
			return nil, err
		}
		conds = append(conds, c)
	}
	return all(conds...), nil
}

// fieldOps are the operators of section 6.2.
var fieldOps = []string{"$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$not", "$regex", "$options"}

// comparisons are the operators that compare with one value.
var comparisons = map[string]CompareOp{"$eq": EQ, "$ne": NE, "$gt": GT, "$gte": GE, "$lt": LT, "$lte": LE}

// operator reads one operator of a field. around is the object that it stands in.
func (j *judge) operator(s subject, name, key string, m canonjson.Member, around canonjson.Value, depth int) (Cond, error) {
	switch m.Name {
	case "$eq", "$ne", "$gt", "$gte", "$lt", "$lte":
		return j.comparison(s, name, key, m.Name, m.Value)
	case "$in", "$nin":
		return j.list(s, name, key, m.Name, m.Value)
	case "$exists":
		// What is not a boolean counts as true (section 6.2).
		if m.Value.Kind() == canonjson.KindBool && !m.Value.Bool() {
			return negate(s.isStored()), nil
		}
		return s.isStored(), nil
	case "$not":
		c, err := j.operators(s, name, key, m.Value, depth+1)
		return negate(c), err
	case "$regex":
		return j.regex(s, name, key, m.Value, around.Get("$options"))
	case "$options":
		return nil, nil
	}
	if len(m.Name) > 0 && m.Name[0] == '$' {
		return nil, j.fault(model.UnsupportedOp, "%s: %s does not exist here%s; there are $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists, $not and $regex", name, clip(m.Name), hintOp(m.Name, fieldOps))
	}
	return nil, j.fault(model.BadFilter, "%s is a plain value and cannot equal an object with %s. Write {%s: %s}", name, clip(m.Name), quoted(clip(key)), sample(s.Type))
}

// equality reads {field: value}.
func (j *judge) equality(s subject, name, key string, v canonjson.Value) (Cond, error) {
	if v.Kind() == canonjson.KindArray {
		return nil, j.fault(model.BadFilter, "%s is a plain value and cannot equal an array. Write {%s: {\"$in\": [%s]}}", name, quoted(clip(key)), sample(s.Type))
	}
	return j.comparison(s, name, key, "$eq", v)
}

// comparison reads one comparison with a value.
func (j *judge) comparison(s subject, name, key, op string, v canonjson.Value) (Cond, error) {
	if err := j.count(1); err != nil {
		return nil, err
	}
	if v.Kind() == canonjson.KindNull {
		switch op {
		case "$eq":
			return s.isNull(), nil
		case "$ne":
			return s.hasValue(), nil
		}
		return nil, j.fault(model.BadFilter, "%s: %s needs a value, and null is neither greater nor less. Write {%s: {\"%s\": %s}}", name, op, quoted(clip(key)), op, sample(s.Type))
	}
	if s.composite() {
		return j.compositeTest(s, name, op, v)
	}
	value, err := j.value(s, name, key, op, v)
	if err != nil {
		return nil, err
	}
	c := Compare{s.Operand, comparisons[op], value}
	if op == "$ne" && s.count && j.some != nil {
		return all(c, j.some()), nil
	}
	return c, nil
}

// value fits v to the subject's type.
func (j *judge) value(s subject, name, key, op string, v canonjson.Value) (canonjson.Value, error) {
	value, err := model.Coerce(s.Type, v)
	if err != nil {
		return value, j.fault(model.BadFilter, "%s: %s %v. Write {%s: {\"%s\": %s}}", name, op, err, quoted(clip(key)), op, sampleOf(op, s.Type))
	}
	if value.Kind() == canonjson.KindString && strings.Contains(value.Str(), "\x00") {
		return value, j.fault(model.BadFilter, "%s: %s takes a text without the character U+0000, which not every database can hold", name, op)
	}
	return value, nil
}

// sampleOf is a sample operand of an operator.
func sampleOf(op string, t model.Type) string {
	if op == "$in" || op == "$nin" {
		return "[" + sample(t) + "]"
	}
	return sample(t)
}

// list reads $in and $nin. Null in a list equals nothing. A row without a value meets no list that has items, and the
// complement of an empty list.
func (j *judge) list(s subject, name, key, op string, v canonjson.Value) (Cond, error) {
	if v.Kind() != canonjson.KindArray {
		return nil, j.fault(model.BadFilter, "%s: %s needs an array, not %s. Write {%s: {\"%s\": [%s]}}", name, op, short(v), quoted(clip(key)), op, sample(s.Type))
	}
	if v.Len() > maxIn {
		return nil, model.Errorf(model.Limit, "%s: %s may list %d values at most, not %d", name, op, maxIn, v.Len())
	}
	if err := j.count(1); err != nil {
		return nil, err
	}
	c, err := j.within(s, name, key, op, v)
	switch {
	case err != nil:
		return nil, err
	case op == "$in":
		return c, nil
	case v.Len() == 0:
		return nil, nil
	}
	if c == Const(false) { // only nulls
		return s.hasValue(), nil
	}
	return negate(c), nil
}

// within is the condition that the subject equals an item.
func (j *judge) within(s subject, name, key, op string, v canonjson.Value) (Cond, error) {
	values := make([]canonjson.Value, 0, v.Len())
	for _, item := range v.Items() {
		if item.Kind() == canonjson.KindNull {
			continue
		}
		if s.composite() {
			values = append(values, item)
			continue
		}
		value, err := j.value(s, name, key, op, item)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	if len(values) == 0 {
		return Const(false), nil
	}
	if s.composite() {
		return j.compositeIn(s, name, values)
	}
	return In{s.Operand, values}, nil
}

// regex reads $regex with its $options.
func (j *judge) regex(s subject, name, key string, v, options canonjson.Value) (Cond, error) {
	if err := j.count(1); err != nil {
		return nil, err
	}
	if v.Kind() != canonjson.KindString {
		return nil, j.fault(model.BadFilter, "%s: $regex needs a text, not %s. Write {%s: {\"$regex\": \"^a\"}}", name, short(v), quoted(clip(key)))
	}
	if !options.IsAbsent() && options.Kind() != canonjson.KindString {
		return nil, j.fault(model.BadFilter, "%s: $options needs a text of the flags i, m and s, not %s", name, short(options))
	}
	if s.Type != model.String || s.composite() {
		return nil, j.fault(model.BadFilter, "%s is of type %s, and $regex searches text only", name, s.Type)
	}
	re, err := parseRegex(v.Str(), options.Str())
	if err != nil {
		return nil, j.fault(err.class, "%s: $regex: %s", name, err.message)
	}
	return Match{s.Operand, re}, nil
}

// equal is field = value, both not null, for conditions that no caller wrote.
func equal(m *model.Model, f *model.Field, v canonjson.Value) (Cond, error) {
	j := &judge{m: m, what: "row limit", tests: new(int)}
	if v.IsAbsent() || v.Kind() == canonjson.KindNull || v.Kind() == canonjson.KindObject {
		return Const(false), nil
	}
	return j.equality(fieldOperand(m, f), place(m, f.Name), f.Name, v)
}
