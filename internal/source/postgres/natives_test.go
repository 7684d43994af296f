package postgres_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// natives is a table with types that only PostgreSQL has, each as a field of the nearest type.
const natives = `
	CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
	CREATE DOMAIN positive AS int CHECK (VALUE > 0);
	CREATE EXTENSION IF NOT EXISTS citext;
	CREATE TABLE natives (id smallint PRIMARY KEY, c varchar(5), p char(5), e mood, d positive, ci citext, r real, nm numeric, small smallint, yes smallint, texts text[], nums int[], moods mood[], j json, jb jsonb,
		cash money, t timestamp, tz timestamptz, ut text, span interval, addr inet);
	INSERT INTO natives VALUES
		(1, 'b', 'ab', 'sad', 5, 'Abc', 0.1, 10.50, -3, 1, '{a,"b c",NULL}', '{1,2}', '{sad,ok}', '{"b":1,"a":2}', '{"b":1,"a":2}', 12.5, '2020-01-02 03:04:05.6', '2020-01-02 03:04:05+02', 'AAAAAAAA-0000-4000-8000-000000000001', '1 day', '10.0.0.1'),
		(2, 'B', 'AB', 'happy', 6, 'abd', 2.5, 1e25, 7, 0, '{}', NULL, NULL, NULL, NULL, -1, NULL, '0044-03-15 00:00:00+00 BC', NULL, NULL, NULL)`

const nativeModel = `[{"name": "Native", "table": "natives", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": {"type": "int", "column": "id"}, "c": "string", "p": "string", "e": "string", "d": "int", "ci": "string",
	"r": "float", "nm": "number", "small": "int", "yes": "boolean", "texts": "array", "nums": "array", "moods": "array", "j": "any", "jb": "object", "cash": "decimal", "t": "timestamp", "tz": "timestamp", "ut": "uuid", "span": "string", "addr": "string"}}]`

// cells are the cells of a row as JSON, joined by blanks, - for missing.
func cells(r plan.ReadRow) string {
	var out []string
	for _, v := range r.Cells {
		text := "-"
		if !v.IsAbsent() {
			text = string(v.AppendJSON(nil))
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// TestNatives reads, filters, sorts and writes types of PostgreSQL's own.
func TestNatives(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	cluster.Exec(t, url, natives)
	s := openSource(t, postgres.Config{Read: url, Write: url})
	m := models(t, nativeModel)[0]
	if problems, err := s.Bind(t.Context(), []*model.Model{m}); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	by := func(name string) plan.Operand { f := m.Field(name); return plan.Operand{Field: f, Type: f.Type} }
	read := func(where plan.Cond, order ...plan.Order) *plan.Rows {
		t.Helper()
		rows, err := s.Read(t.Context(), &plan.Query{Rows: true, Root: &plan.Block{Model: m, Columns: m.Fields, Where: where, Order: append(order, plan.Order{By: by("_id")}), Limit: -1}})
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	all := read(nil)
	want := []string{
		`1 "b" "ab" "sad" 5 "Abc" 0.1 10.5 -3 true ["a","b c",null] [1,2] ["sad","ok"] {"b":1,"a":2} {"a":2,"b":1} "12.5" "2020-01-02T03:04:05.6Z" "2020-01-02T01:04:05Z" "aaaaaaaa-0000-4000-8000-000000000001" "P1D" "10.0.0.1"`,
		`2 "B" "AB" "happy" 6 "abd" 2.5 1e+25 7 false [] - - - - "-1" - null - - -`,
	}
	for i, r := range all.Rows {
		if cells(r) != want[i] {
			t.Errorf("row %d\n got  %s\n want %s", i, cells(r), want[i])
		}
	}
	if len(all.Unrepresentable) != 1 || all.Unrepresentable[0].Field != "tz" {
		t.Errorf("told: %v", all.Unrepresentable)
	}
	ids := func(rows *plan.Rows) string {
		var out []string
		for _, r := range rows.Rows {
			out = append(out, string(r.Cells[0].AppendJSON(nil)))
		}
		return strings.Join(out, " ")
	}
	str := canonjson.String
	for name, c := range map[string]struct {
		op    plan.CompareOp
		value canonjson.Value
		want  string
	}{
		"c": {plan.EQ, str("B"), "2"}, "p": {plan.EQ, str("ab"), "1"}, "e": {plan.LT, str("ok"), "2"}, "d": {plan.GT, canonjson.Int(5), "2"}, "ci": {plan.EQ, str("abc"), ""}, "r": {plan.EQ, canonjson.Float(0.1), "1"},
		"nm": {plan.EQ, canonjson.Float(10.5), "1"}, "small": {plan.LT, canonjson.Int(1 << 40), "1 2"}, "yes": {plan.EQ, canonjson.Bool(true), "1"}, "cash": {plan.GE, str("12.5"), "1"},
		"t": {plan.EQ, str("2020-01-02T03:04:05.6Z"), "1"}, "ut": {plan.EQ, str("aaaaaaaa-0000-4000-8000-000000000001"), "1"}, "span": {plan.EQ, str("P1D"), "1"}, "addr": {plan.NE, str("10.0.0.1/32"), ""},
	} {
		for _, cond := range []plan.Cond{plan.Compare{By: by(name), Op: c.op, Value: c.value}, plan.Not{Cond: plan.Not{Cond: plan.Compare{By: by(name), Op: c.op, Value: c.value}}}} {
			if got := ids(read(cond)); got != c.want {
				t.Errorf("%s %s: %q, want %q", name, c.op, got, c.want)
			}
		}
		if c.op == plan.EQ {
			in := plan.In{By: by(name), Values: []canonjson.Value{c.value, c.value}}
			if got := ids(read(in)); got != c.want {
				t.Errorf("%s in: %q, want %q", name, got, c.want)
			}
		}
	}
	for name, want := range map[string]string{"c": "2 1", "p": "2 1", "e": "2 1", "ci": "1 2", "cash": "2 1", "yes": "2 1", "ut": "2 1"} {
		if got := ids(read(nil, plan.Order{By: by(name)})); got != want {
			t.Errorf("by %s: %s, want %s", name, got, want)
		}
	}
	groups, err := s.Read(t.Context(), &plan.Query{Rows: true, Root: &plan.Block{Model: m, Limit: -1, Order: []plan.Order{{By: plan.Operand{Alias: "e", Type: model.String}}},
		Group: &plan.Group{By: []plan.Key{{Name: "e", Operand: by("e")}, {Name: "yes", Operand: by("yes")}}, Aggs: []plan.GroupAgg{{Alias: "cash", Op: model.Sum, Field: m.Field("cash")}, {Alias: "r", Op: model.Avg, Field: m.Field("r")}, {Alias: "ut", Op: model.Max, Field: m.Field("ut")}, {Alias: "top", Op: model.Max, Field: m.Field("e")}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := cells(groups.Rows[0]) + "; " + cells(groups.Rows[1]); got != `"happy" false "-1" 2.5 null "happy"; "sad" true "12.5" 0.10000000149011612 "aaaaaaaa-0000-4000-8000-000000000001" "sad"` {
		t.Errorf("groups: %s", got)
	}
	writeNatives(t, s, m)
}

// writeNatives inserts a row of all fields, and values that fit none.
func writeNatives(t *testing.T, s *postgres.Source, m *model.Model) {
	t.Helper()
	object, err := canonjson.ParseStrict([]byte(`{"_id":3,"c":"xyz","p":"q","e":"ok","d":1,"ci":"C","r":0.25,"nm":1.5,"small":2,"yes":true,"texts":["x, y","\"",null],"nums":[3],"moods":["ok"],"j":{"z":[1]},"jb":{},"cash":"3.25",
		"t":"2024-01-01T00:00:00Z","tz":"2024-01-01T00:00:00.123456Z","ut":"bbbbbbbb-0000-4000-8000-000000000001","span":"PT2H","addr":"::1"}`), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var row plan.Row
	want := []string{}
	for _, member := range object.Members() {
		row = append(row, plan.FieldValue{Field: m.Field(member.Name), Value: member.Value})
		want = append(want, string(member.Value.AppendJSON(nil)))
	}
	apply := func(row plan.Row) (*plan.Applied, error) {
		return s.Apply(t.Context(), &plan.Write{Kind: plan.Insert, Model: m, Rows: []plan.Row{row}}, plan.Commit{})
	}
	a, err := apply(row)
	if err != nil {
		t.Fatal(err)
	}
	if got := cells(a.Rows[0]); got != strings.Join(want, " ") {
		t.Errorf("stored\n got  %s\n want %s", got, strings.Join(want, " "))
	}
	for name, v := range map[string]string{"c": `"too long"`, "e": `"glad"`, "small": `70000`, "addr": `"nowhere"`, "tz": `"2024-01-01T00:00:00.1234567Z"`, "cash": `"0.001"`, "texts": `{"a":1}`} {
		bad := slices.Clone(row)
		for i := range bad {
			if bad[i].Field.Name == "_id" {
				bad[i].Value = canonjson.Int(4)
			}
			if bad[i].Field.Name == name {
				bad[i].Value, _ = canonjson.ParseStrict([]byte(v), canonjson.Limits{})
			}
		}
		_, err := apply(bad)
		if !errors.Is(err, &model.Error{Class: model.BadValue}) {
			t.Errorf("%s %s: %v", name, v, err)
		}
	}
}
