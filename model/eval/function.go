package eval

import (
	"fmt"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// function gives a function column: of the document with its defaults filled. A null result of a typed column becomes the
// type's own default (models, section 10).
func (e *Evaluator) function(m *model.Model, c *model.Compute) ([]part, error) {
	fn := e.Functions[c.FnRef]
	if fn == nil {
		return nil, fmt.Errorf("%s.%s has no implementation", m.Name, c.Name)
	}
	return []part{func(r *record, to *builder) error {
		result, err := fn(document(m, r))
		if err != nil {
			return err
		}
		v, err := fromGo(result)
		if v.Kind() == canonjson.KindNull {
			if d := c.Type.ImplicitDefault(); !d.IsAbsent() {
				v = d
			}
		}
		to.set(c.Name, v)
		return err
	}}, nil
}

// document is a row as functions see it.
func document(m *model.Model, r *record) map[string]any {
	doc := map[string]any{}
	for _, f := range m.Fields {
		v := filled(r.cells[f.Name], f.Default)
		switch {
		case v.IsAbsent():
		case v.Kind() != canonjson.KindNumber:
			doc[f.Name] = v.Any()
		default:
			doc[f.Name] = toGo(v)
		}
	}
	return doc
}

// toGo gives an integer as int64 and any other number as float64.
func toGo(v canonjson.Value) any {
	if r := spelled(v.Literal()); r != nil && r.IsInt() && r.Num().IsInt64() {
		return r.Num().Int64()
	}
	return v.Float()
}

// fromGo turns a function's result into JSON.
func fromGo(v any) (canonjson.Value, error) {
	switch v := v.(type) {
	case nil:
		return canonjson.Null(), nil
	case bool:
		return canonjson.Bool(v), nil
	case string:
		return canonjson.String(v), nil
	case int64:
		return canonjson.Int(v), nil
	case float64:
		return canonjson.Float(v), nil
	}
	return canonjson.Value{}, fmt.Errorf("a function gave %T", v)
}
