package eval

import (
	"fmt"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// scope gives the names of a model's fields and, where predicates have a place, of its relations.
func (e *Evaluator) scope(m *model.Model, predicates bool) *scope {
	s := &scope{typeOf: func(name string) (model.Type, error) { return e.comparable(m, name) }}
	if predicates {
		s.relation = func(name string, v canonjson.Value) (test, error) {
			if r := m.Relation(name); r != nil {
				return e.predicate(m, r, v)
			}
			return nil, nil
		}
	}
	return s
}

// comparable gives the type of a field that the caller may filter, sort and group by.
func (e *Evaluator) comparable(m *model.Model, name string) (model.Type, error) {
	f := m.Field(name)
	switch {
	case f == nil:
		return "", fmt.Errorf("%s has no field %q", m.Name, name)
	case f.Type.JSON():
		return "", fmt.Errorf("%s.%s is not compared", m.Name, name)
	case !e.Access.ReadField(m, f):
		return "", fmt.Errorf("%s.%s may not be read", m.Name, name)
	}
	return f.Type, nil
}

// link is a relation with the rows that it can lead to.
type link struct {
	from, to *model.Model
	relation *model.Relation
	rows     []*record
}

// follow judges a relation and finds the rows of its target that meet a condition. predicates: see scope.
func (e *Evaluator) follow(m *model.Model, r *model.Relation, condition canonjson.Value, predicates bool) (*link, error) {
	if !e.Access.ReadRelation(m, r) {
		return nil, fmt.Errorf("%s.%s may not be read", m.Name, r.Name)
	}
	to, err := e.model(r.Model)
	if err != nil {
		return nil, err
	}
	rows, err := e.visible(to)
	if err != nil {
		return nil, err
	}
	t, err := e.scope(to, predicates).condition(condition)
	if err != nil {
		return nil, err
	}
	rows, err = filter(rows, t)
	return &link{from: m, to: to, relation: r, rows: rows}, err
}

// filter keeps the rows for which a test is yes.
func filter(rows []*record, t test) ([]*record, error) {
	var kept []*record
	for _, r := range rows {
		got, err := t(r)
		if err != nil {
			return nil, err
		}
		if got == yes {
			kept = append(kept, r)
		}
	}
	return kept, nil
}

// of gives the rows that a parent's relation leads to: its foreign fields equal the local ones, none being null.
func (l *link) of(parent *record) ([]*record, error) {
	var kept []*record
	for _, r := range l.rows {
		ok, err := l.joins(parent, r)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, r)
		}
	}
	return kept, nil
}

// joins tells whether a row of the target belongs to a parent.
func (l *link) joins(parent, child *record) (bool, error) {
	for i, name := range l.relation.Local {
		local, foreign := l.from.Field(name), l.to.Field(l.relation.Foreign[i])
		if local == nil || foreign == nil {
			return false, fmt.Errorf("%s.%s joins fields that are not there", l.from.Name, l.relation.Name)
		}
		a, err := parent.value(local.Name, local.Type)
		if err != nil {
			return false, err
		}
		b, err := child.value(foreign.Name, foreign.Type)
		if err != nil {
			return false, err
		}
		if a == nil || b == nil || compare(a, b) != 0 {
			return false, nil
		}
	}
	return true, nil
}

// first gives the row of a to-one relation: that with the lowest key, nil for none.
func (l *link) first(parent *record) (*record, error) {
	rows, err := l.of(parent)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	rows, err = sorted(rows, keyOrder(l.to))
	if err != nil {
		return nil, err
	}
	return rows[0], nil
}

// aggOps are the aggregates by name.
var aggOps = map[string]model.AggOp{"$count": model.Count, "$sum": model.Sum, "$avg": model.Avg, "$min": model.Min, "$max": model.Max}

// predicate reads a relation predicate of either form. Its test is never unknown (section 8.2).
func (e *Evaluator) predicate(m *model.Model, r *model.Relation, v canonjson.Value) (test, error) {
	if v.Kind() != canonjson.KindObject || v.Len() == 0 {
		return nil, fmt.Errorf("%s takes an object", r.Name)
	}
	if strings.HasPrefix(v.Members()[0].Name, "$") {
		return e.shortPredicate(m, r, v)
	}
	return e.longPredicate(m, r, v)
}

// shortPredicate reads {$filter?, one operator}.
func (e *Evaluator) shortPredicate(m *model.Model, r *model.Relation, v canonjson.Value) (test, error) {
	rest := v.Without("$filter").Members()
	if len(rest) != 1 {
		return nil, fmt.Errorf("%s takes exactly one operator", r.Name)
	}
	l, err := e.follow(m, r, v.Get("$filter"), false)
	if err != nil {
		return nil, err
	}
	op, operand := rest[0].Name, rest[0].Value
	if op == "$exists" {
		if operand.Kind() != canonjson.KindBool {
			return nil, fmt.Errorf("%s: $exists takes true or false", r.Name)
		}
		return func(rec *record) (tri, error) {
			rows, err := l.of(rec)
			return truth(len(rows) > 0 == operand.Bool()), err
		}, nil
	}
	cmp := operand.Without("$of").Members()
	if len(cmp) != 1 || !strings.Contains(" $gt $gte $lt $lte $eq $ne ", " "+cmp[0].Name+" ") {
		return nil, fmt.Errorf("%s: %s takes exactly one comparison", r.Name, op)
	}
	of := operand.Get("$of")
	if of.IsAbsent() && op == "$count" {
		of = canonjson.String("*")
	}
	aggs := canonjson.Object(canonjson.M("n", canonjson.Object(canonjson.M(op, of))))
	having := canonjson.Object(canonjson.M("n", canonjson.Object(cmp[0])))
	return e.having(l, aggs, having)
}

// longPredicate reads {filter?, agg, having}.
func (e *Evaluator) longPredicate(m *model.Model, r *model.Relation, v canonjson.Value) (test, error) {
	aggs, having := v.Get("agg"), v.Get("having")
	if aggs.Len() == 0 || having.Len() == 0 || v.Without("filter", "agg", "having").Len() > 0 {
		return nil, fmt.Errorf("%s takes filter, agg and having", r.Name)
	}
	l, err := e.follow(m, r, v.Get("filter"), false)
	if err != nil {
		return nil, err
	}
	return e.having(l, aggs, having)
}

// having asks a condition of the aggregates over a parent's rows, of none too.
func (e *Evaluator) having(l *link, aggs, having canonjson.Value) (test, error) {
	all, err := e.aggregates(l.to, aggs)
	if err != nil {
		return nil, err
	}
	t, err := all.scope().condition(having)
	if err != nil {
		return nil, err
	}
	return func(rec *record) (tri, error) {
		rows, err := l.of(rec)
		if err != nil {
			return no, err
		}
		out, err := all.over(rows)
		if err != nil {
			return no, err
		}
		got, err := t(&record{cells: out, empty: len(rows) == 0})
		return truth(got == yes), err
	}, nil
}
