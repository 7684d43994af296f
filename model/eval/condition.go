package eval

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// tri is a truth value of SQL's logic. The order makes AND the least and OR the greatest.
type tri int8

// The truth values.
const (
	no tri = iota - 1
	unknown
	yes
)

// truth is yes or no.
func truth(b bool) tri {
	if b {
		return yes
	}
	return no
}

// test asks one row.
type test func(*record) (tri, error)

// and is yes when all are; of none it is yes.
func and(all []test) test {
	return func(r *record) (tri, error) {
		least := yes
		for _, t := range all {
			got, err := t(r)
			if err != nil {
				return no, err
			}
			least = min(least, got)
		}
		return least, nil
	}
}

// not turns yes and no around.
func not(t test) test {
	return func(r *record) (tri, error) {
		got, err := t(r)
		return -got, err
	}
}

// or is yes when one is; of none it is no.
func or(any []test) test {
	for i := range any {
		any[i] = not(any[i])
	}
	return not(and(any))
}

// scope is what the names in a condition mean.
type scope struct {
	// typeOf gives the type of a field, or of the output of a group.
	typeOf func(name string) (model.Type, error)
	// relation makes a relation predicate; a nil test: name is no relation. Nil: predicates have no place here.
	relation func(name string, v canonjson.Value) (test, error)
}

// condition reads a condition: all its members hold (models, section 6).
func (s *scope) condition(v canonjson.Value) (test, error) {
	switch v.Kind() {
	case canonjson.KindAbsent, canonjson.KindNull, canonjson.KindObject:
	default:
		return nil, fmt.Errorf("condition is %s", v.Kind())
	}
	var all []test
	for _, m := range v.Members() {
		t, err := s.member(m.Name, m.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return and(all), nil
}

// member reads one member of a condition.
func (s *scope) member(name string, v canonjson.Value) (test, error) {
	switch {
	case name == "$not":
		return s.notPredicate(v)
	case strings.HasPrefix(name, "$"):
		return s.group(name, v)
	}
	if s.relation != nil {
		if t, err := s.relation(name, v); t != nil || err != nil {
			return t, err
		}
	}
	t, err := s.typeOf(name)
	if err != nil {
		return nil, err
	}
	return field(name, t, v)
}

// group reads $and, $or and $nor.
func (s *scope) group(name string, v canonjson.Value) (test, error) {
	if v.Kind() != canonjson.KindArray || v.Len() == 0 {
		return nil, fmt.Errorf("%s takes conditions", name)
	}
	var branches []test
	for _, item := range v.Items() {
		if item.Kind() != canonjson.KindObject {
			return nil, fmt.Errorf("%s takes conditions", name)
		}
		t, err := s.condition(item)
		if err != nil {
			return nil, err
		}
		branches = append(branches, t)
	}
	switch name {
	case "$and":
		return and(branches), nil
	case "$or":
		return or(branches), nil
	case "$nor":
		return not(or(branches)), nil
	}
	return nil, fmt.Errorf("no operator %s", name)
}

// notPredicate reads $not around exactly one relation predicate.
func (s *scope) notPredicate(v canonjson.Value) (test, error) {
	if s.relation == nil || v.Len() != 1 || len(v.Members()) != 1 {
		return nil, fmt.Errorf("$not takes one relation predicate")
	}
	m := v.Members()[0]
	t, err := s.relation(m.Name, m.Value)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("$not takes one relation predicate")
	}
	return not(t), nil
}

// field reads the value or the operators of one field (section 6.2).
func field(name string, t model.Type, v canonjson.Value) (test, error) {
	if v.Kind() != canonjson.KindObject {
		return operator(name, t, "$eq", v, canonjson.Value{})
	}
	var all []test
	for _, m := range v.Members() {
		if m.Name == "$options" && v.Get("$regex").Kind() == canonjson.KindString {
			continue
		}
		one, err := operator(name, t, m.Name, m.Value, v.Get("$options"))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return and(all), nil
}

// operator reads one operator. options belongs to a $regex.
func operator(name string, t model.Type, op string, v, options canonjson.Value) (test, error) {
	switch op {
	case "$eq", "$ne":
		if v.Kind() == canonjson.KindNull {
			return isNull(name, op == "$eq"), nil
		}
		return ordered(name, t, op, v)
	case "$gt", "$gte", "$lt", "$lte":
		return ordered(name, t, op, v)
	case "$in":
		return in(name, t, v)
	case "$nin":
		if v.Kind() == canonjson.KindArray && v.Len() > 0 {
			one, err := oneOf(name, t, v)
			return not(one), err
		}
		one, err := in(name, t, v)
		return not(one), err
	case "$exists":
		if v.Kind() != canonjson.KindBool {
			return nil, fmt.Errorf("$exists takes true or false")
		}
		return func(r *record) (tri, error) { return truth(r.stored(name) == v.Bool()), nil }, nil
	case "$not":
		one, err := field(name, t, v)
		return not(one), err
	case "$regex":
		return matches(name, t, v, options)
	}
	return nil, fmt.Errorf("no operator %s", op)
}

// isNull asks for an explicit null, or (wanted false) for a value. Both are never unknown.
func isNull(name string, wanted bool) test {
	return func(r *record) (tri, error) {
		if wanted {
			return truth(r.null(name)), nil
		}
		v := r.cells[name]
		return truth(!v.IsAbsent() && v.Kind() != canonjson.KindNull), nil
	}
}

// ordered compares with a value; unknown where the field is null or missing.
func ordered(name string, t model.Type, op string, v canonjson.Value) (test, error) {
	want, err := read(t, v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if want == nil {
		return nil, fmt.Errorf("%s takes a value, not null", op)
	}
	return func(r *record) (tri, error) {
		have, err := r.value(name, t)
		if err != nil || have == nil {
			return unknown, err
		}
		return truth(holds(op, compare(have, want)) && !(op == "$ne" && r.empty)), nil
	}, nil
}

// holds tells whether the outcome of a comparison is what the operator asks for.
func holds(op string, c int) bool {
	switch op {
	case "$eq":
		return c == 0
	case "$ne":
		return c != 0
	case "$gt":
		return c > 0
	case "$gte":
		return c >= 0
	case "$lt":
		return c < 0
	}
	return c <= 0
}

// in reads $in: of an empty list, and of one that holds only nulls, it is no for every row, null and missing included.
func in(name string, t model.Type, v canonjson.Value) (test, error) {
	if v.Kind() != canonjson.KindArray {
		return nil, fmt.Errorf("%s: a list takes an array", name)
	}
	if v.Len() == 0 {
		return func(*record) (tri, error) { return no, nil }, nil
	}
	return oneOf(name, t, v)
}

// oneOf asks whether the field equals an item; null items equal nothing, and are no reason to be unknown.
func oneOf(name string, t model.Type, v canonjson.Value) (test, error) {
	var want []any
	for _, item := range v.Items() {
		w, err := read(t, item)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if w != nil {
			want = append(want, w)
		}
	}
	return func(r *record) (tri, error) {
		have, err := r.value(name, t)
		if err != nil || have == nil {
			return unknown, err
		}
		for _, w := range want {
			if compare(have, w) == 0 {
				return yes, nil
			}
		}
		return no, nil
	}, nil
}

// matches searches text for a pattern, anywhere unless it is anchored.
func matches(name string, t model.Type, v, options canonjson.Value) (test, error) {
	if v.Kind() != canonjson.KindString || t != model.String {
		return nil, fmt.Errorf("%s: $regex takes a string and searches text", name)
	}
	pattern := v.Str()
	if flags := options.Str(); flags != "" {
		pattern = "(?" + flags + ")" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	return func(r *record) (tri, error) {
		have, err := r.value(name, t)
		if err != nil || have == nil {
			return unknown, err
		}
		return truth(re.MatchString(have.(string))), nil
	}, nil
}
