package engine

import (
	"context"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Explanation is a plan for a person.
type Explanation struct {
	Plan       canonjson.Value
	Statements []string
}

// Explain plans a query and gives the plan and the statements, without sending them. The plan holds the caller's row
// limits: it is for operators.
func (e *Engine) Explain(ctx context.Context, c Call, text string, params canonjson.Value) (*Explanation, error) {
	c = e.ready(c)
	q, err := e.plan(c, text, params, (*plan.Planner).Query)
	if err == nil {
		err = q.Page(0, nil)
	}
	if err != nil {
		return nil, c.told(err)
	}
	s, err := e.source(q.Root.Model)
	if err != nil {
		return nil, err
	}
	statements, err := s.Explain(ctx, q)
	if err != nil {
		return nil, e.sourceError(ctx, q.Root.Model, err)
	}
	return &Explanation{Plan: explainBlock(q.Root), Statements: statements}, nil
}

// explainBlock is a block as JSON.
func explainBlock(b *plan.Block) canonjson.Value {
	var limit, skip, order, aggs, kids canonjson.Value
	if b.Limit >= 0 {
		limit = canonjson.Exact(b.Limit)
	}
	if b.Skip > 0 {
		skip = canonjson.Exact(b.Skip)
	}
	if len(b.Order) > 0 {
		order = each(b.Order, explainOrder)
	}
	if len(b.Aggs) > 0 {
		aggs = each(b.Aggs, explainAgg)
	}
	if len(b.Kids) > 0 {
		kids = each(b.Kids, explainKid)
	}
	return canonjson.Object(
		canonjson.M("model", canonjson.String(b.Model.Name)),
		canonjson.M("columns", each(b.Columns, fieldName)),
		canonjson.M("where", explainCond(b.Where)),
		canonjson.M("order", order), canonjson.M("skip", skip), canonjson.M("limit", limit),
		canonjson.M("aggregates", aggs), canonjson.M("group", explainGroup(b.Group)), canonjson.M("relations", kids))
}

// each is an array of f of every item.
func each[T any](list []T, f func(T) canonjson.Value) canonjson.Value {
	items := make([]canonjson.Value, len(list))
	for i, item := range list {
		items[i] = f(item)
	}
	return canonjson.Array(items...)
}

// fieldName is a field's name.
func fieldName(f *model.Field) canonjson.Value { return canonjson.String(f.Name) }

// explainKid is a relation block.
func explainKid(k *plan.Kid) canonjson.Value {
	return canonjson.Object(
		canonjson.M("relation", canonjson.String(k.Relation.Name)),
		canonjson.M("local", each(k.Local, fieldName)), canonjson.M("foreign", each(k.Foreign, fieldName)),
		canonjson.M("block", explainBlock(k.Block)))
}

// explainAgg is an aggregate column.
func explainAgg(a *plan.Agg) canonjson.Value {
	var field canonjson.Value
	if a.Field != nil {
		field = fieldName(a.Field)
	}
	return canonjson.Object(
		canonjson.M("name", canonjson.String(a.Name)), canonjson.M("op", canonjson.String(string(a.Op))),
		canonjson.M("model", canonjson.String(a.Target.Name)), canonjson.M("field", field), canonjson.M("where", explainCond(a.Where)))
}

// explainOrder is a sort key.
func explainOrder(o plan.Order) canonjson.Value {
	direction := "asc"
	if o.Desc {
		direction = "desc"
	}
	return canonjson.Object(canonjson.M("by", operand(o.By)), canonjson.M("direction", canonjson.String(direction)))
}

// operand names what is compared or sorted by.
func operand(o plan.Operand) canonjson.Value {
	switch {
	case o.Agg != nil:
		return canonjson.String(o.Agg.Name)
	case o.Field == nil:
		return canonjson.String(o.Alias)
	case o.Via != nil:
		return canonjson.String(o.Via.Relation.Name + "." + o.Field.Name)
	}
	return fieldName(o.Field)
}

// explainGroup is a grouping, Absent for none.
func explainGroup(g *plan.Group) canonjson.Value {
	if g == nil {
		return canonjson.Value{}
	}
	return canonjson.Object(
		canonjson.M("by", each(g.By, func(k plan.Key) canonjson.Value { return canonjson.String(k.Name) })),
		canonjson.M("aggregates", each(g.Aggs, explainGroupAgg)),
		canonjson.M("having", explainCond(g.Having)))
}

// explainGroupAgg is an aggregate of a group.
func explainGroupAgg(a plan.GroupAgg) canonjson.Value {
	of := canonjson.String("*")
	if a.Field != nil {
		of = fieldName(a.Field)
	}
	return canonjson.Object(canonjson.M("alias", canonjson.String(a.Alias)), canonjson.M("op", canonjson.String(string(a.Op))), canonjson.M("of", of))
}

// explainCond is a condition, Absent for none.
func explainCond(c plan.Cond) canonjson.Value {
	test := func(name string, by plan.Operand, more ...canonjson.Member) canonjson.Value {
		return canonjson.Object(append([]canonjson.Member{canonjson.M("test", canonjson.String(name)), canonjson.M("of", operand(by))}, more...)...)
	}
	switch c := c.(type) {
	case plan.And:
		return canonjson.Object(canonjson.M("and", each(c, explainCond)))
	case plan.Or:
		return canonjson.Object(canonjson.M("or", each(c, explainCond)))
	case plan.Not:
		return canonjson.Object(canonjson.M("not", explainCond(c.Cond)))
	case plan.Const:
		return canonjson.Bool(bool(c))
	case plan.Compare:
		return test(string(c.Op), c.By, canonjson.M("value", c.Value))
	case plan.In:
		return test("in", c.By, canonjson.M("values", canonjson.Array(c.Values...)))
	case plan.IsNull:
		return test("null", c.By)
	case plan.IsStored:
		return test("stored", c.By)
	case plan.HasValue:
		return test("has a value", c.By)
	case plan.Match:
		return test("matches", c.By, canonjson.M("pattern", canonjson.String(c.Pattern.Text)), canonjson.M("flags", text(c.Pattern.Flags)))
	case plan.Exists:
		return canonjson.Object(canonjson.M("test", canonjson.String("rows of")), canonjson.M("model", canonjson.String(c.Target.Name)),
			canonjson.M("where", explainCond(c.Where)), canonjson.M("having", explainCond(c.Having)))
	}
	return canonjson.Value{}
}
