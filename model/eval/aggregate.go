package eval

import (
	"fmt"
	"math/big"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// aggregate is one aggregate over rows.
type aggregate struct {
	alias string
	op    model.AggOp
	field string // "" for $count of rows
	typ   model.Type
}

// aggregates are several, under their aliases.
type aggregates []aggregate

// aggregates reads {alias: {op: operand}}.
func (e *Evaluator) aggregates(m *model.Model, v canonjson.Value) (aggregates, error) {
	var all aggregates
	for _, a := range v.Members() {
		if a.Value.Kind() != canonjson.KindObject || a.Value.Len() != 1 || a.Name == "" {
			return nil, fmt.Errorf("aggregate %q is not {operator: operand}", a.Name)
		}
		only := a.Value.Members()[0]
		one, err := e.aggregate(m, a.Name, only.Name, only.Value.Str())
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// aggregate reads one; operand "*" of $count counts rows.
func (e *Evaluator) aggregate(m *model.Model, alias, op, operand string) (aggregate, error) {
	a := aggregate{alias: alias, op: aggOps[op]}
	if a.op == "" {
		return a, fmt.Errorf("no aggregate %s", op)
	}
	if a.op == model.Count && operand == "*" {
		return a, nil
	}
	t, err := e.comparable(m, operand)
	if err != nil {
		return a, err
	}
	if (a.op == model.Sum || a.op == model.Avg) && !t.Numeric() {
		return a, fmt.Errorf("%s needs a number, %s.%s is %s", op, m.Name, operand, t)
	}
	a.field, a.typ = operand, t
	return a, nil
}

// output is the type of what an aggregate gives.
func (a aggregate) output() model.Type {
	switch {
	case a.op == model.Count:
		return model.Long
	case a.op == model.Avg:
		return model.Double
	case a.op == model.Sum && a.typ.Integer():
		return model.Long
	case a.op == model.Sum && a.typ != model.Decimal:
		return model.Number
	}
	return a.typ
}

// scope gives the aliases and nothing else.
func (all aggregates) scope() *scope {
	return &scope{typeOf: func(name string) (model.Type, error) {
		for _, a := range all {
			if a.alias == name {
				return a.output(), nil
			}
		}
		return "", fmt.Errorf("no alias %q", name)
	}}
}

// over gives all of them over rows.
func (all aggregates) over(rows []*record) (Row, error) {
	out := Row{}
	for _, a := range all {
		v, err := a.over(rows)
		if err != nil {
			return nil, err
		}
		out[a.alias] = v
	}
	return out, nil
}

// over aggregates the values that are neither null nor missing. Of none, a count is 0 and everything else null.
func (a aggregate) over(rows []*record) (canonjson.Value, error) {
	if a.field == "" {
		return canonjson.Int(int64(len(rows))), nil
	}
	var values []any
	var best canonjson.Value
	var bestValue any
	for _, r := range rows {
		v, err := r.value(a.field, a.typ)
		if err != nil {
			return canonjson.Value{}, err
		}
		if v == nil {
			continue
		}
		values = append(values, v)
		if bestValue == nil || a.op == model.Min && compare(v, bestValue) < 0 || a.op == model.Max && compare(v, bestValue) > 0 {
			best, bestValue = r.cells[a.field], v
		}
	}
	switch {
	case a.op == model.Count:
		return canonjson.Int(int64(len(values))), nil
	case len(values) == 0:
		return canonjson.Null(), nil
	case a.op == model.Min || a.op == model.Max:
		return best, nil
	}
	return a.total(values)
}

// total sums exactly, and rounds once at the end where the type is not exact. An average is the sum as binary64, divided.
func (a aggregate) total(values []any) (canonjson.Value, error) {
	sum := new(big.Rat)
	for _, v := range values {
		sum.Add(sum, v.(*big.Rat))
	}
	f, _ := sum.Float64()
	switch {
	case a.op == model.Avg:
		return canonjson.Float(f / float64(len(values))), nil
	case a.typ == model.Decimal:
		places, _ := sum.FloatPrec()
		return canonjson.String(sum.FloatString(places)), nil
	case a.typ.Integer():
		return integer(sum.Num())
	}
	return canonjson.Float(f), nil
}
