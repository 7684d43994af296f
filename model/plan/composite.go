package plan

import (
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// The _id of a key of several columns is the JSON array of their values as text (section 2.9). It has no column, so a
// condition on it becomes one on the columns.

// compositeTest is a comparison of such an _id.
func (j *judge) compositeTest(s subject, name, op string, v canonjson.Value) (Cond, error) {
	if op != "$eq" && op != "$ne" {
		return nil, j.fault(model.UnsupportedOp, "%s is made of %d columns: it can be compared by $eq, $ne, $in and $nin only", name, len(s.model.Key))
	}
	if err := j.count(len(s.model.Key) - 1); err != nil {
		return nil, err
	}
	c, err := j.compositeEqual(s, name, v)
	if err == nil && op == "$ne" {
		c = negate(c)
	}
	return c, err
}

// compositeIn is $in of such an _id.
func (j *judge) compositeIn(s subject, name string, values []canonjson.Value) (Cond, error) {
	if err := j.count(len(values)*len(s.model.Key) - 1); err != nil {
		return nil, err
	}
	conds := make([]Cond, len(values))
	for i, v := range values {
		c, err := j.compositeEqual(s, name, v)
		if err != nil {
			return nil, err
		}
		conds[i] = c
	}
	return anyOf(conds...), nil
}

// compositeEqual compares the key's columns one by one.
func (j *judge) compositeEqual(s subject, name string, v canonjson.Value) (Cond, error) {
	values, ok := splitKey(s.model, v)
	if !ok {
		return nil, j.fault(model.BadFilter, "%s is a text that holds the JSON array of %d texts, not %s. Write {\"_id\": %s}", name, len(s.model.Key), short(v), sampleKey(s.model))
	}
	conds := make([]Cond, len(values))
	for i, f := range s.model.Key {
		conds[i] = Compare{Operand{Field: f, Type: f.Type}, EQ, values[i]}
	}
	return all(conds...), nil
}

// splitKey reads the _id of a composite key: a value of each key column's type.
func splitKey(m *model.Model, v canonjson.Value) ([]canonjson.Value, bool) {
	if v.Kind() != canonjson.KindString {
		return nil, false
	}
	array, err := canonjson.ParseStrict([]byte(v.Str()), canonjson.Limits{Depth: 1, Nodes: len(m.Key) + 1})
	if err != nil || array.Kind() != canonjson.KindArray || array.Len() != len(m.Key) {
		return nil, false
	}
	values := make([]canonjson.Value, len(m.Key))
	for i, item := range array.Items() {
		if item.Kind() != canonjson.KindString {
			return nil, false
		}
		if values[i], err = model.Coerce(m.Key[i].Type, item); err != nil {
			return nil, false
		}
	}
	return values, true
}

// sampleKey is an _id of m as it is written in JSON, for examples.
func sampleKey(m *model.Model) string {
	items := make([]canonjson.Value, len(m.Key))
	for i := range items {
		items[i] = canonjson.String("1")
	}
	return string(canonjson.String(string(canonjson.Array(items...).AppendJSON(nil))).AppendJSON(nil))
}
