package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// rowFunction finds the implementation of a column that is computed row by row; nil when there is none.
func (e *Engine) rowFunction(m *model.Model, c *model.Compute) func(map[string]any) (any, error) {
	if f := e.cfg.Functions.Row[m.Name+"."+c.Name]; f != nil {
		return f
	}
	return e.cfg.Functions.Row[c.FnRef]
}

// rowsFunction finds the implementation of a column that is computed over all rows; nil when there is none.
func (e *Engine) rowsFunction(m *model.Model, c *model.Compute) func(context.Context, []map[string]any, *model.Context) error {
	if f := e.cfg.Functions.Rows[m.Name+"."+c.Name]; f != nil {
		return f
	}
	return e.cfg.Functions.Rows[c.FnRef]
}

// missingFunction says that a column has no implementation.
func missingFunction(m *model.Model, c *model.Compute) error {
	return model.Errorf(model.MissingFunction, "no function is registered for the computed column %s.%s; register it as %q or as %q", m.Name, c.Name, m.Name+"."+c.Name, c.FnRef)
}

// computeRow runs the function of c for one document. A panic is an error like any other.
func (e *Engine) computeRow(m *model.Model, c *model.Compute, doc map[string]any) (out canonjson.Value, err error) {
	f := e.rowFunction(m, c)
	if f == nil {
		return out, missingFunction(m, c)
	}
	var v any
	if err := guarded(func() (err error) { v, err = f(doc); return err }); err != nil {
		return out, e.failedFunction(m, c, err)
	}
	return e.computed(m, c, v)
}

// computeRows runs the function of c once over all documents, and gives its value of each.
func (e *Engine) computeRows(ctx context.Context, m *model.Model, c *model.Compute, docs []map[string]any, who *model.Context) ([]canonjson.Value, error) {
	f := e.rowsFunction(m, c)
	if f == nil {
		return nil, missingFunction(m, c)
	}
	rows := slices.Clone(docs) // the function may move what it is given
	if err := guarded(func() error { return f(ctx, rows, who) }); err != nil {
		return nil, e.failedFunction(m, c, err)
	}
	out := make([]canonjson.Value, len(docs))
	for i, doc := range docs {
		v, err := e.computed(m, c, doc[c.Name])
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// guarded runs f and turns a panic into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// failedFunction says which column could not be computed. Why is for the log: a function's words may hold data.
func (e *Engine) failedFunction(m *model.Model, c *model.Compute, cause error) error {
	e.cfg.Log.Error("a function of a computed column failed", "model", m.Name, "column", c.Name, "err", cause)
	return model.Errorf(model.FailedFunction, "the computed column %s.%s could not be computed; ask for the other fields without it, or tell the operator", m.Name, c.Name).Wrap(cause)
}

// computed is what a function gave, as JSON. Null becomes the default of the column's type where it has one.
func (e *Engine) computed(m *model.Model, c *model.Compute, v any) (canonjson.Value, error) {
	out, err := fromGo(v)
	if err != nil {
		return out, e.failedFunction(m, c, err)
	}
	if out.Kind() == canonjson.KindNull {
		if d := c.Type.ImplicitDefault(); !d.IsAbsent() {
			return d, nil
		}
	}
	return out, nil
}

// toGo is a value as functions see it: integers of integer fields are int64, every other number is float64. Where the
// type says nothing (arrays, objects, any) a number is an int64 when it is written as an integer of 64 bits. Absent and
// null are nil.
func toGo(t model.Type, v canonjson.Value) any {
	switch v.Kind() {
	case canonjson.KindBool:
		return v.Bool()
	case canonjson.KindString:
		return v.Str()
	case canonjson.KindNumber:
		if n, err := strconv.ParseInt(v.Literal(), 10, 64); err == nil && (t.Integer() || t.JSON()) {
			return n
		}
		return v.Float()
	case canonjson.KindArray:
		out := make([]any, 0, v.Len())
		for _, item := range v.Items() {
			out = append(out, toGo(model.Any, item))
		}
		return out
	case canonjson.KindObject:
		out := make(map[string]any, v.Len())
		for _, m := range v.Members() {
			out[m.Name] = toGo(model.Any, m.Value)
		}
		return out
	}
	return nil
}

// fromGo is what a function gave as JSON. Members of objects are in the order of their names.
func fromGo(v any) (canonjson.Value, error) {
	switch v := v.(type) {
	case nil:
		return canonjson.Null(), nil
	case canonjson.Value:
		if v.IsAbsent() {
			return canonjson.Null(), nil
		}
		return v, nil
	case bool:
		return canonjson.Bool(v), nil
	case string:
		return canonjson.String(v), nil
	case int:
		return canonjson.Exact(int64(v)), nil
	case int64:
		return canonjson.Exact(v), nil
	case int32:
		return canonjson.Exact(int64(v)), nil
	case float32:
		return float(float64(v))
	case float64:
		return float(v)
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return canonjson.Exact(n), nil
		}
		f, err := v.Float64()
		if err != nil {
			return canonjson.Value{}, fmt.Errorf("%q is no number", string(v))
		}
		return float(f)
	case []any:
		items := make([]canonjson.Value, len(v))
		for i, each := range v {
			item, err := fromGo(each)
			if err != nil {
				return item, err
			}
			items[i] = item
		}
		return canonjson.Array(items...), nil
	case map[string]any:
		return fromMap(v)
	}
	return canonjson.Value{}, fmt.Errorf("a function gave a %T, which is no JSON", v)
}

// fromMap is fromGo of an object.
func fromMap(v map[string]any) (canonjson.Value, error) {
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	slices.Sort(names)
	members := make([]canonjson.Member, len(names))
	for i, name := range names {
		item, err := fromGo(v[name])
		if err != nil {
			return item, err
		}
		members[i] = canonjson.M(name, item)
	}
	return canonjson.Object(members...), nil
}

// float is a number, or an error for what JSON cannot spell.
func float(f float64) (canonjson.Value, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return canonjson.Value{}, fmt.Errorf("%v is no JSON number", f)
	}
	return canonjson.Float(f), nil
}
