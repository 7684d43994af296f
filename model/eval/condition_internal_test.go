package eval

import (
	"fmt"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// value reads JSON of a test; integers beyond 2^53 are kept as they are.
func value(t *testing.T, text string) canonjson.Value {
	t.Helper()
	v, _, err := canonjson.Parse([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// typed is a scope in which the name's first letter tells the type.
var typed = &scope{typeOf: func(name string) (model.Type, error) {
	types := map[byte]model.Type{'s': model.String, 'i': model.Int, 'l': model.Long, 'f': model.Float, 'b': model.Boolean, 'd': model.Decimal, 't': model.Timestamp}
	if t, ok := types[name[0]]; ok {
		return t, nil
	}
	return "", fmt.Errorf("no field %q", name)
}}

// TestConditions holds the truth of conditions on one row, as the rules say it (models, sections 3 and 6): in a table that
// keeps what is stored, and in an ordinary one.
func TestConditions(t *testing.T) {
	const row = `{"s":"Ab","i":5,"l":9007199254740993,"f":2.5,"b":true,"sn":null,"in":null,"d":"1.50","t":"2024-01-02T03:04:05Z"}`
	for _, tt := range []struct {
		condition      string
		stored, normal tri
	}{
		{`{}`, yes, yes},
		{`{"s":"Ab"}`, yes, yes},
		{`{"s":"ab"}`, no, no},
		{`{"i":"5"}`, yes, yes},
		{`{"b":1}`, yes, yes},
		{`{"i":{}}`, yes, yes},
		{`{"i":{"$gt":4,"$lt":6}}`, yes, yes},
		{`{"i":{"$gt":5}}`, no, no},
		{`{"l":9007199254740993}`, yes, yes},
		{`{"l":9007199254740992}`, no, no},
		{`{"l":"9007199254740993"}`, yes, yes},
		{`{"f":{"$gte":2.5}}`, yes, yes},
		{`{"d":"1.5"}`, yes, yes},
		{`{"d":{"$lt":"10"}}`, yes, yes},
		{`{"t":{"$lt":"2024-01-02T03:04:05.1Z"}}`, yes, yes},
		{`{"t":"2024-01-02T04:04:05+01:00"}`, yes, yes},
		// Null is stored, missing is not; an ordinary table has one state for both.
		{`{"sn":null}`, yes, yes},
		{`{"sx":null}`, no, yes},
		{`{"sn":{"$ne":null}}`, no, no},
		{`{"sx":{"$ne":null}}`, no, no},
		{`{"sn":{"$exists":true}}`, yes, no},
		{`{"sx":{"$exists":true}}`, no, no},
		{`{"sx":{"$exists":false}}`, yes, yes},
		{`{"sx":{"$not":{"$exists":true}}}`, yes, yes},
		{`{"sx":{"$not":null}}`, yes, no},
		// Comparisons with nothing are unknown, and so is their negation.
		{`{"sn":"a"}`, unknown, unknown},
		{`{"sx":{"$ne":"a"}}`, unknown, unknown},
		{`{"in":{"$not":{"$gt":1}}}`, unknown, unknown},
		{`{"ix":{"$nin":[1]}}`, unknown, unknown},
		{`{"ix":{"$nin":[]}}`, yes, yes},
		{`{"ix":{"$in":[]}}`, no, no},
		{`{"ix":{"$not":{"$in":[]}}}`, yes, yes},
		{`{"i":{"$in":[null,5]}}`, yes, yes},
		{`{"i":{"$nin":[null,6]}}`, yes, yes},
		{`{"i":{"$nin":[null]}}`, yes, yes},
		{`{"ix":{"$nin":[null]}}`, unknown, unknown},
		// Groups.
		{`{"$or":[{"sx":"a"},{"i":5}]}`, yes, yes},
		{`{"$or":[{"sx":"a"},{"i":6}]}`, unknown, unknown},
		{`{"$and":[{"sx":"a"},{"i":6}]}`, no, no},
		{`{"$nor":[{"sx":"a"},{"i":6}]}`, unknown, unknown},
		{`{"$nor":[{"s":"a"},{"i":6}]}`, yes, yes},
		{`{"$nor":[{}]}`, no, no},
		{`{"$or":[{},{"i":6}]}`, yes, yes},
		// Patterns.
		{`{"s":{"$regex":"b"}}`, yes, yes},
		{`{"s":{"$regex":"^a"}}`, no, no},
		{`{"s":{"$regex":"^a","$options":"i"}}`, yes, yes},
		{`{"sx":{"$not":{"$regex":"a"}}}`, unknown, unknown},
	} {
		test, err := typed.condition(value(t, tt.condition))
		if err != nil {
			t.Errorf("%s: %v", tt.condition, err)
			continue
		}
		for _, ordinary := range []bool{false, true} {
			r := &record{cells: Row{}, ordinary: ordinary}
			for _, m := range value(t, row).Members() {
				r.cells[m.Name] = m.Value
			}
			want := tt.stored
			if ordinary {
				want = tt.normal
			}
			if got, err := test(r); err != nil || got != want {
				t.Errorf("ordinary %t: %s is %d (%v), want %d", ordinary, tt.condition, got, err, want)
			}
		}
	}
}

// TestConditionsRefused are conditions that are not valid.
func TestConditionsRefused(t *testing.T) {
	for _, text := range []string{
		`[]`, `"x"`, `5`, `{"x":1}`, `{"$or":[]}`, `{"$and":{}}`, `{"$where":"1"}`, `{"$not":{"s":"a"}}`, `{"i":[5]}`, `{"i":"five"}`,
		`{"i":1.5}`, `{"i":9223372036854775808}`, `{"s":5}`, `{"b":2}`, `{"i":{"$in":5}}`, `{"i":{"$gt":null}}`, `{"s":{"$like":"a"}}`,
		`{"s":{"$options":"i"}}`, `{"s":{"$regex":5}}`, `{"i":{"$regex":"5"}}`, `{"$nor":[5]}`,
	} {
		if _, err := typed.condition(value(t, text)); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}

// TestSame holds what counts as the same answer.
func TestSame(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[2]}`, `{"b":[2.0],"a":1e0}`, true},
		{`[1,2]`, `[2,1]`, false},
		{`{"a":null}`, `{}`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`9007199254740993`, `9007199254740993`, true},
		{`0.30000000000000004`, `0.3`, true},
		{`0.3000001`, `0.3`, false},
		{`1`, `"1"`, false},
		{`{"a":{}}`, `{"a":{"b":null}}`, false},
	} {
		if got := Same(value(t, tt.a), value(t, tt.b)); got != tt.want {
			t.Errorf("Same(%s, %s) = %t", tt.a, tt.b, got)
		}
	}
}

// TestAggregates holds the aggregates over values, null and missing.
func TestAggregates(t *testing.T) {
	var rows, none []*record
	for _, text := range []string{`{"l":9007199254740993,"f":0.5,"s":"b","d":"1.50"}`, `{"l":4,"f":1,"s":"B","d":"0.25"}`, `{"l":null,"f":null}`, `{}`} {
		r := &record{cells: Row{}}
		for _, m := range value(t, text).Members() {
			r.cells[m.Name] = m.Value
		}
		rows = append(rows, r)
	}
	for _, tt := range []struct {
		op         model.AggOp
		field      string
		want, none string
	}{
		{model.Count, "", "4", "0"},
		{model.Count, "l", "2", "0"},
		{model.Sum, "l", "9007199254740997", "null"},
		{model.Min, "l", "4", "null"},
		{model.Max, "l", "9007199254740993", "null"},
		{model.Avg, "l", "4503599627370498", "null"},
		{model.Sum, "f", "1.5", "null"},
		{model.Avg, "f", "0.75", "null"},
		{model.Min, "s", `"B"`, "null"},
		{model.Max, "s", `"b"`, "null"},
		{model.Sum, "d", `"1.75"`, "null"},
	} {
		a := aggregate{op: tt.op, field: tt.field}
		if tt.field != "" {
			a.typ, _ = typed.typeOf(tt.field)
		}
		if got, err := a.over(rows); err != nil || !Same(got, value(t, tt.want)) {
			t.Errorf("%s %s: %s (%v), want %s", tt.op, tt.field, got, err, tt.want)
		}
		if got, err := a.over(none); err != nil || !Same(got, value(t, tt.none)) {
			t.Errorf("%s %s of none: %s (%v), want %s", tt.op, tt.field, got, err, tt.none)
		}
	}
	big := &record{cells: Row{"l": value(t, "9223372036854775807")}}
	if _, err := (aggregate{op: model.Sum, field: "l", typ: model.Long}).over([]*record{big, big}); err == nil {
		t.Error("a sum beyond 64 bits was given")
	}
}
