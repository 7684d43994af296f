package tools

import (
	"context"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
	"github.com/tabellion-mcp/tabellion/policy"
)

// queryDoc says what the query tool takes. It is the same for everybody, so it names no model.
const queryDoc = `Runs one read-only query in a sandbox: at most 1000 rows, relations 3 deep. Call describe_schemas first.
Form: Model($condition: @c, $sort: @s, $limit: @l) { field, relation($limit: @n) { field } }. Values stand only in params, never in the text: {"c": {"price": {"$gte": 10}}, "s": {"price": -1}, "l": 20, "n": 3}.
Conditions: $eq $ne $gt $gte $lt $lte $in $nin $exists $regex $not $and $or $nor; {"relation": {"$count": {"$gte": 2}}} filters by children ($exists $count $sum $avg $min $max, with $of and $filter).
Groups: Model($group: @g) { field, n } with {"g": {"by": ["field"], "agg": {"n": {"$count": "*"}}}}.`

// describeDoc says what describe_schemas gives.
const describeDoc = "Lists the models, fields, relations and computed columns that you may use. Call this before writing a query."

// query is the free query in the sandbox.
func (t *Tools) query() *catalog.Operation {
	op := &catalog.Operation{
		Name: "query", Title: "Query", Doc: queryDoc, In: inQuery, Out: outRows, Content: []string{"params"},
		Capability: policy.ModelsRead, KnownOn: knownOn("/models/**"), Targets: queryTargets,
		Effects: catalog.Effects{ReadOnly: catalog.Yes}, Bounds: catalog.Bounds{Deadline: queryWithin},
	}
	op.Publish.Output = rowsOutput
	op.Listing = everybody(op)
	op.Run = func(ctx context.Context, call *catalog.Call) (catalog.Result, error) {
		text := call.In.Get("gql").Str()
		if strings.TrimSpace(text) == "" {
			return catalog.Result{}, fault.New(fault.InvalidRequest, "gql must hold a query, such as: Model { field }")
		}
		return t.answer(ctx, call, func(c *caller) (catalog.Result, error) { return c.query(ctx, text, call.In.Get("params")) })
	}
	return op
}

// queryTargets asks for the right on the root model, before anything is looked up: alike for a model that exists and one
// that does not. Models that relations lead to are asked for while the query is planned. Text that is no query asks for
// nothing, and is refused when it is run.
func queryTargets(_ context.Context, _ catalog.Lookup, in canonjson.Value) ([]policy.Check, error) {
	q, err := gql.Parse(in.Get("gql").Str())
	if err != nil {
		return nil, nil
	}
	return modelChecks(policy.ModelsRead, q.Model), nil
}

// modelChecks is the check on a model that a caller named; none for a text that is no name at all.
func modelChecks(c policy.Capability, name string) []policy.Check {
	if name == "" || len(name) > 128 || strings.ContainsAny(name, "/*") {
		return nil
	}
	return []policy.Check{{Capability: c, Path: path(name)}}
}

// describe is describe_schemas.
func (t *Tools) describe() *catalog.Operation {
	op := &catalog.Operation{
		Name: "describe_schemas", Title: "Describe schemas", Doc: describeDoc, In: inNothing, Out: outRows,
		Capability: policy.ModelsRead, KnownOn: knownOn("/models/**"),
		Targets: func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) { return nil, nil },
		Effects: catalog.Effects{ReadOnly: catalog.Yes}, Bounds: catalog.Bounds{Deadline: readWithin},
	}
	op.Publish.Input, op.Publish.Output = noArguments, rowsOutput
	op.Listing = everybody(op)
	op.Run = func(ctx context.Context, call *catalog.Call) (catalog.Result, error) {
		return t.answer(ctx, call, func(c *caller) (catalog.Result, error) {
			described := t.cfg.Engine.Describe(ctx, c.call(served))
			if c.err != nil {
				return catalog.Result{}, c.err
			}
			r := rowsResult(described.Items(), "", false)
			r.Source = source
			return r, nil
		})
	}
	return op
}

// everybody lists op in full for every audience.
func everybody(op *catalog.Operation) func(*identity.Principal) (catalog.Listing, bool) {
	return func(*identity.Principal) (catalog.Listing, bool) { return op.Full(), true }
}

// generic makes the operations of the generic surface. Their names on an endpoint of several slots tell the slot.
func (t *Tools) generic() []*catalog.Operation {
	ops := []*catalog.Operation{t.genericGet(), t.genericList()}
	for _, m := range t.models {
		if t.writable(m) {
			ops = append(ops, t.genericCreate(), t.genericUpdate(), t.genericDelete())
			break
		}
	}
	for _, op := range ops {
		op.Name, op.Publish.Alias = "model_"+op.Name, op.Name
		op.Content = []string{"condition", "sort", "body", "set"}
	}
	return ops
}

// genericOperation makes one operation over all models.
func (t *Tools) genericOperation(name, title, does string, c policy.Capability) *catalog.Operation {
	op := &catalog.Operation{
		Name: name, Title: title, Doc: does, Capability: c, KnownOn: knownOn("/models/**"),
		Targets: func(_ context.Context, _ catalog.Lookup, in canonjson.Value) ([]policy.Check, error) {
			return modelChecks(c, in.Get("model").Str()), nil
		},
		Bounds: catalog.Bounds{Deadline: readWithin},
	}
	op.Listing = t.somebody(op, func(a *model.Access, m *model.Model) bool { return a.Read(m) == nil })
	return op
}

// somebody lists op in full for every audience that may use it on at least one model.
func (t *Tools) somebody(op *catalog.Operation, may func(*model.Access, *model.Model) bool) func(*identity.Principal) (catalog.Listing, bool) {
	return func(who *identity.Principal) (catalog.Listing, bool) {
		a := t.access(who)
		return op.Full(), a == nil || slices.ContainsFunc(t.models, func(m *model.Model) bool { return may(a, m) })
	}
}

// genericGet gives one row of any model.
func (t *Tools) genericGet() *catalog.Operation {
	op := t.genericOperation("get", "Get a row", "Gives one row of a model by its id. select: title, lessons { title }.", policy.ModelsRead)
	op.In, op.Out, op.Publish.Output, op.Effects.ReadOnly = inGenericGet, outRow, anyRowOutput, catalog.Yes
	op.Run = func(ctx context.Context, call *catalog.Call) (catalog.Result, error) {
		return t.answer(ctx, call, func(c *caller) (catalog.Result, error) {
			m, err := c.model(call.In.Get("model").Str(), false)
			if err != nil {
				return catalog.Result{}, err
			}
			return c.get(ctx, m, call.In.Get("id"), call.In.Get("select").Str())
		})
	}
	return op
}

// genericList lists rows of any model.
func (t *Tools) genericList() *catalog.Operation {
	op := t.genericOperation("list", "List rows", `Lists rows of a model. condition: {"price": {"$gte": 10}}; sort: {"price": -1}; select: title, lessons { title }.`, policy.ModelsRead)
	op.In, op.Out, op.Publish.Output, op.Effects.ReadOnly = inGenericList, outRows, rowsOutput, catalog.Yes
	op.Run = func(ctx context.Context, call *catalog.Call) (catalog.Result, error) {
		return t.answer(ctx, call, func(c *caller) (catalog.Result, error) {
			m, err := c.model(call.In.Get("model").Str(), false)
			if err != nil {
				return catalog.Result{}, err
			}
			text := m.Name + "($condition: @condition, $sort: @sort)" + c.selection(m, call.In.Get("select").Str())
			params := canonjson.Object(
				canonjson.M("condition", orNull(call.In.Get("condition"))), canonjson.M("sort", orNull(call.In.Get("sort"))))
			return c.list(ctx, text, params)
		})
	}
	return op
}

// orNull makes null of nothing: an argument that is not written.
func orNull(v canonjson.Value) canonjson.Value {
	if v.IsAbsent() {
		return canonjson.Null()
	}
	return v
}

// genericWrite makes a write over all models.
func (t *Tools) genericWrite(action model.Action, name, title, does string, run func(*caller, *model.Model) (catalog.Result, error)) *catalog.Operation {
	op := t.genericOperation(name, title, does, policy.ModelsWrite)
	op.Listing = t.somebody(op, func(a *model.Access, m *model.Model) bool { return t.writable(m) && a.Write(m, action, false) == nil })
	op.Effects, op.Outside = catalog.Effects{ReadOnly: catalog.No, Invalidates: []string{"model_get", "model_list", "query"}}, true
	op.Out, op.Publish.Output = outRow, anyRowOutput
	op.Run = func(ctx context.Context, call *catalog.Call) (catalog.Result, error) {
		return t.answer(ctx, call, func(c *caller) (catalog.Result, error) {
			m, err := c.model(call.In.Get("model").Str(), true)
			if err != nil {
				return catalog.Result{}, err
			}
			return run(c, m)
		})
	}
	return op
}

// genericCreate adds a row to any model.
func (t *Tools) genericCreate() *catalog.Operation {
	op := t.genericWrite(model.ActInsert, "create", "Create a row", "Adds one row to a model and gives it back.", func(c *caller, m *model.Model) (catalog.Result, error) {
		return c.create(c.ctx, m.Name, c.in.Get("body"))
	})
	op.In, op.Effects.Destructive = inGenericCreate, catalog.No
	return op
}

// genericUpdate changes a row of any model.
func (t *Tools) genericUpdate() *catalog.Operation {
	op := t.genericWrite(model.ActUpdate, "update", "Update a row", "Changes fields of one row and gives it back, or null when there is no such row.", func(c *caller, m *model.Model) (catalog.Result, error) {
		return c.update(c.ctx, m)
	})
	op.In = inGenericUpdate
	return op
}

// genericDelete removes a row of any model.
func (t *Tools) genericDelete() *catalog.Operation {
	op := t.genericWrite(model.ActRemove, "delete", "Delete a row", "Removes one row of a model; where the model has an archive, it stays there.", func(c *caller, m *model.Model) (catalog.Result, error) {
		return c.remove(c.ctx, m)
	})
	op.In, op.Out, op.Publish.Output = inGenericDelete, outRemoved, removedOutput
	op.Effects.Destructive, op.Effects.Idempotent = catalog.Yes, catalog.Yes
	return op
}
