package plan

import (
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// maxAggs bounds the aggregates of one group or predicate.
const maxAggs = 64

// output is one value that a group has: a key or an aggregate.
type output struct {
	name    string // as the caller writes it
	subject subject
}

// outputs are what a condition on groups may name.
type outputs struct {
	list  []output
	used  bool        // one was named
	class model.Class // of every fault
	what  string      // for messages
	// some asks that a group has rows at all. Set where groups without rows exist: in relation predicates.
	some  func() Cond
	tests *int // of the condition around
}

// add adds an output.
func (o *outputs) add(out output) { o.list = append(o.list, out) }

// find finds an output by its name, nil when there is none.
func (o *outputs) find(name string) *output {
	for i := range o.list {
		if o.list[i].name == name {
			return &o.list[i]
		}
	}
	return nil
}

// names are all names.
func (o *outputs) names() []string {
	names := make([]string, len(o.list))
	for i := range o.list {
		names[i] = o.list[i].name
	}
	return names
}

// judge makes the reader of conditions on the outputs.
func (o *outputs) judge() *judge {
	j := &judge{what: o.what, class: o.class, some: o.some, tests: o.tests}
	j.test = func(key string, v canonjson.Value, depth int) (Cond, error) {
		out := o.find(key)
		if out == nil {
			return nil, j.fault(o.class, "%s is neither a key nor an alias here%s", clip(key), hint(key, o.names()))
		}
		o.used = true
		return j.operators(out.subject, clip(key), key, v, depth)
	}
	return j
}

// aggregateOf reads one alias with its aggregate: {"n": {"$count": "*"}}.
func (p *Planner) aggregateOf(m *model.Model, alias canonjson.Member, fault func(string, ...any) error) (model.AggOp, *model.Field, error) {
	if !isName(alias.Name) {
		return "", nil, fault("the alias %s is no name: letters, digits and _ only, at most %d", clip(alias.Name), maxWord)
	}
	if alias.Value.Kind() != canonjson.KindObject || alias.Value.Len() != 1 {
		return "", nil, fault("the alias %s needs exactly one aggregate. Write {%s: {\"$count\": \"*\"}} or {%s: {\"$sum\": \"price\"}}", alias.Name, quoted(alias.Name), quoted(alias.Name))
	}
	one := alias.Value.Members()[0]
	op := model.AggOp(one.Name)
	switch op {
	case model.Count, model.Sum, model.Avg, model.Min, model.Max:
	default:
		return "", nil, fault("%s is no aggregate%s; there are $count, $sum, $avg, $min and $max", clip(one.Name), hintOp(one.Name, []string{"$count", "$sum", "$avg", "$min", "$max"}))
	}
	if one.Value.Kind() != canonjson.KindString {
		return "", nil, fault("%s needs the name of a field, not %s", op, short(one.Value))
	}
	if op == model.Count && one.Value.Str() == "*" {
		return op, nil, nil
	}
	f, err := p.operandField(m, op, one.Value.Str(), fault)
	return op, f, err
}

// isName tells whether s can be an alias: what a selection can write.
func isName(s string) bool {
	if s == "" || len(s) > maxWord || s[0] >= '0' && s[0] <= '9' || s[0] == '.' {
		return false
	}
	return strings.IndexFunc(s, notNamed) < 0
}
