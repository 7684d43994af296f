package sqlgen

import (
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// aggregate is an aggregate over the rows of a table. Cells that do not hold the declared type do not count.
func (b *builder) aggregate(p place, op model.AggOp, f *model.Field) value {
	if f == nil {
		return value{sql: "count(*)", typ: model.Long}
	}
	v := b.field(p, f)
	if guard := b.d.guard(v); guard != "" {
		v.sql = "CASE WHEN " + guard + " THEN " + v.sql + " END"
	}
	switch op {
	case model.Count:
		return value{sql: "count(" + v.sql + ")", typ: model.Long}
	case model.Sum:
		return value{sql: b.d.sum(v), typ: SumType(f.Type), nullable: true}
	case model.Avg:
		return value{sql: b.d.average(v), typ: model.Double, nullable: true}
	}
	return b.d.extreme(v, op == model.Min)
}

// SumType is the type of a sum over values of t: integers stay exact.
func SumType(t model.Type) model.Type {
	switch t {
	case model.Int, model.Long, model.Date:
		return model.Long
	case model.Decimal, model.Number:
		return t
	}
	return model.Double
}

// aggOperand is an aggregate column as a sort key.
func (b *builder) aggOperand(p place, a *plan.Agg) value {
	t := b.table(a.Target)
	v := b.aggregate(t, a.Op, a.Field)
	text := "(SELECT " + v.sql + " FROM " + t.from() + " WHERE " + b.join(t, a.Foreign, p, a.Local)
	if a.Where != nil {
		text += " AND " + b.cond(t, a.Where, true)
	}
	v.col = b.d.derived(v)
	v.sql = text + ")"
	return v
}
