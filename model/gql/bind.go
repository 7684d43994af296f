package gql

import (
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Bind resolves the parameters: an object, or Absent for {}. A reference without an entry is a *model.Error with the class
// MissingParam, null is as if the argument were not written.
func (q *Query) Bind(params canonjson.Value) (*Bound, error) {
	b, err := newBinder(params)
	if err != nil {
		return nil, err
	}
	bound := &Bound{Model: q.Model, At: q.At}
	if bound.Values, err = b.values(q.Args); err != nil {
		return nil, err
	}
	bound.Items, err = b.items(q.Items)
	if err != nil {
		return nil, err
	}
	return bound, nil
}

// binder looks parameters up.
type binder struct {
	byName map[string]canonjson.Value
	names  []string
}

// newBinder checks the parameters and indexes them, so that many references to many parameters cost no more than both.
func newBinder(params canonjson.Value) (*binder, error) {
	switch params.Kind() {
	case canonjson.KindAbsent, canonjson.KindNull:
		return &binder{}, nil
	case canonjson.KindObject:
	default:
		return nil, model.Errorf(model.MissingParam, "params is an object from names to values, not %s. Send for example {\"l\": 10} for $limit: @l", params.Kind())
	}
	if n := len(params.AppendJSON(nil)); n > MaxParams {
		return nil, model.Errorf(model.Limit, "params may have %d bytes at most, not %d", MaxParams, n)
	}
	b := &binder{byName: make(map[string]canonjson.Value, params.Len())}
	for _, m := range params.Members() {
		b.byName[m.Name] = m.Value
		b.names = append(b.names, m.Name)
	}
	return b, nil
}

// values resolves the arguments of one block.
func (b *binder) values(a Args) (Values, error) {
	var v Values
	for _, arg := range []struct {
		name string
		to   *canonjson.Value
	}{
		{a.Condition, &v.Condition}, {a.Sort, &v.Sort}, {a.Skip, &v.Skip}, {a.Limit, &v.Limit},
		{a.Group, &v.Group}, {a.Having, &v.Having}, {a.Pipeline, &v.Pipeline},
	} {
		if arg.name == "" {
			continue
		}
		value, ok := b.byName[arg.name]
		if !ok {
			return v, b.missing(arg.name)
		}
		if value.Kind() != canonjson.KindNull {
			*arg.to = value
		}
	}
	return v, nil
}

// items resolves the arguments of all items.
func (b *binder) items(items []Item) ([]BoundItem, error) {
	if len(items) == 0 {
		return nil, nil
	}
	out := make([]BoundItem, len(items))
	for i, item := range items {
		out[i] = BoundItem{Name: item.Name, At: item.At, Called: item.Called}
		var err error
		if out[i].Values, err = b.values(item.Args); err != nil {
			return nil, err
		}
		if out[i].Items, err = b.items(item.Items); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fewParams is how many names of parameters a message lists.
const fewParams = 8

// missing makes the error for a parameter that was not given.
func (b *binder) missing(name string) error {
	given := "params is empty"
	if len(b.names) > 0 {
		names := make([]string, 0, fewParams)
		for _, n := range b.names[:min(fewParams, len(b.names))] {
			names = append(names, model.Quote(n))
		}
		given = "params holds " + strings.Join(names, ", ")
	}
	shown := model.Quote(name)
	return model.Errorf(model.MissingParam, "params has no entry for the reference %s; %s. Send {%s: ...}, with null where the argument is not meant", model.Quote("@"+name), given, shown)
}
