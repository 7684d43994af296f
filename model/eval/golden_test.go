package eval_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/eval"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// golden reads one file of the golden data.
func golden(t *testing.T, name string) canonjson.Value {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../engine/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	v, err := canonjson.ParseStrict(text, canonjson.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// goldenFunctions makes the functions of test columns from their "impl" (README of the golden data).
func goldenFunctions(schema canonjson.Value) map[string]eval.Function {
	all := map[string]eval.Function{}
	for _, m := range schema.Items() {
		for _, c := range m.Get("computes").Members() {
			if impl := c.Value.Get("impl"); !impl.IsAbsent() {
				all[c.Name] = implementation(impl)
			}
		}
	}
	return all
}

// implementation makes one function.
func implementation(impl canonjson.Value) eval.Function {
	text := func(doc map[string]any, name string) string { s, _ := doc[name].(string); return s }
	number := func(doc map[string]any, name string) (float64, bool) {
		switch n := doc[name].(type) {
		case int64:
			return float64(n), true
		case float64:
			return n, true
		}
		return 0, false
	}
	field := impl.Get("field").Str()
	return func(doc map[string]any) (any, error) {
		switch impl.Get("kind").Str() {
		case "upper":
			return strings.ToUpper(text(doc, field)), nil
		case "concat":
			var parts []string
			for _, f := range impl.Get("fields").Items() {
				parts = append(parts, text(doc, f.Str()))
			}
			return strings.Join(parts, impl.Get("sep").Str()), nil
		case "gte":
			n, _ := number(doc, field)
			return n >= impl.Get("value").Float(), nil
		}
		if n, ok := number(doc, field); ok {
			return n * impl.Get("by").Float(), nil
		}
		return nil, nil
	}
}

// goldenWorld is the registry, the rows and the functions of the golden data.
func goldenWorld(t *testing.T) (*model.Registry, eval.Data, map[string]eval.Function) {
	t.Helper()
	schema, seed := golden(t, "schema.json"), golden(t, "seed.json")
	r := model.NewRegistry(model.Options{Lenient: true})
	if err := r.Register(schema.Items()...); err != nil {
		t.Fatal(err)
	}
	data := eval.Data{}
	for _, m := range seed.Members() {
		var table eval.Table
		for _, item := range m.Value.Items() {
			row := eval.Row{}
			if r.Get(m.Name).Times != model.NoTimes {
				row["updatedAt"] = canonjson.Int(1)
			}
			for _, f := range item.Members() {
				row[f.Name] = f.Value
			}
			table.Rows = append(table.Rows, row)
		}
		data[m.Name] = table
	}
	return r, data, goldenFunctions(schema)
}

// readContext reads the ctx of a case; null is an internal context.
func readContext(v canonjson.Value) *model.Context {
	if v.Kind() != canonjson.KindObject {
		return &model.Context{Internal: true}
	}
	c := &model.Context{UserID: v.Get("userId").Str(), Role: v.Get("role").Str(), Internal: v.Get("internal").Bool()}
	for _, r := range v.Get("roles").Items() {
		c.Roles = append(c.Roles, r.Str())
	}
	return c
}

// TestGolden asks every read case that ends in rows, a page or a value. A case with a defect is held to what it wants
// instead; where that is a note only, to the row that the note speaks of (noted).
func TestGolden(t *testing.T) {
	registry, data, functions := goldenWorld(t)
	rules := model.DefaultRules()
	rules.Unconfigured = model.Open
	permission := &model.Permission{Rules: rules}
	asked := 0
	for _, c := range golden(t, "cases-read.json").Items() {
		want := c.Get("expect")
		if w := c.Get("want"); !w.IsAbsent() {
			want = w
		}
		if noted[c.Get("id").Str()] != "" {
			want = parse(t, noted[c.Get("id").Str()])
		}
		if !want.Get("error").IsAbsent() || want.Len() == 0 {
			continue
		}
		if want.Len() == 1 && !want.Get("note").IsAbsent() {
			t.Errorf("%s: nothing is asserted", c.Get("id").Str())
			continue
		}
		asked++
		t.Run(c.Get("id").Str(), func(t *testing.T) {
			e := &eval.Evaluator{Registry: registry, Access: permission.For(readContext(c.Get("ctx"))), Data: data, Functions: functions}
			check(t, c, want, answer(t, e, c))
		})
	}
	if t.Logf("%d cases asked", asked); asked < 180 {
		t.Errorf("only %d cases were asked", asked)
	}
}

// noted are cases whose want is a note, as what they want.
var noted = map[string]string{
	// The specification keeps declared defaults only in rows of queries (section 2.2): a missing array has no key.
	"r014": `{"rows":[{"_id":"k1","title":"Algebra I"},{"_id":"k2","title":"Algebra II"},{"_id":"k3","title":"Painting"},{"_id":"k4","title":"Physics 101"},{"_id":"k5","title":"Untaught"},{"_id":"k6","title":"100% Logic_x"}]}`,
	"r015": `{"rows":[{"_id":"k1","title":"Algebra I","meta":{"level":"basic"}},{"_id":"k2","title":"Algebra II","meta":{"level":"basic"}},{"_id":"k3","title":"Painting","meta":{"level":"basic"}},{"_id":"k4","title":"Physics 101","meta":{"level":"basic"}},{"_id":"k5","title":"Untaught","meta":{"level":"basic"}},{"_id":"k6","title":"100% Logic_x","meta":{"level":"basic"}}]}`,
	"r187": `{"rows":[{"_id":"k1","title":"Algebra I","reviews":[{"rating":5,"comment":"great"},{"rating":3}]},{"_id":"k2","title":"Algebra II","reviews":[{"rating":4,"comment":null}]},{"_id":"k6","title":"100% Logic_x","reviews":[{"rating":null,"comment":"no vote"}]}]}`,
	"r189": `{"rows":[{"_id":"p1","headline":"Number theory","user":{"firstName":"Ada","isAdult":true,"courseCount":2}},{"_id":"p2","headline":"Learner","user":{"firstName":"Cleo","isAdult":false,"courseCount":0}}]}`,
	"r279": `{"rows":[{"n":1},{"n":1},{"n":1},{"n":1},{"n":2}]}`,
}

// answer runs a case: an object with rows, row, page or value.
func answer(t *testing.T, e *eval.Evaluator, c canonjson.Value) canonjson.Value {
	t.Helper()
	if op := c.Get("op").Str(); op == "count" || op == "exists" {
		n, err := e.Count(c.Get("model").Str(), c.Get("condition"))
		if err != nil {
			t.Fatal(err)
		}
		if op == "exists" {
			return canonjson.Object(canonjson.M("value", canonjson.Bool(n > 0)))
		}
		return canonjson.Object(canonjson.M("value", canonjson.Int(n)))
	}
	q, err := gql.Parse(c.Get("gql").Str())
	if err != nil {
		t.Fatal(err)
	}
	bound, err := q.Bind(c.Get("params"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Get("op").Str() == "queryWithCount" {
		p, err := e.QueryWithCount(bound, c.Get("params"))
		if err != nil {
			t.Fatal(err)
		}
		return canonjson.Object(canonjson.M("page", canonjson.Object(
			canonjson.M("items", canonjson.Array(p.Items...)), canonjson.M("total", canonjson.Int(p.Total)),
			canonjson.M("hasMore", canonjson.Bool(p.HasMore)), canonjson.M("page", canonjson.Int(p.Page)),
			canonjson.M("pageSize", canonjson.Int(p.PageSize)))))
	}
	rows, err := e.Query(bound)
	if err != nil {
		t.Fatal(err)
	}
	if c.Get("op").Str() != "queryOne" {
		return canonjson.Object(canonjson.M("rows", canonjson.Array(rows...)))
	}
	if len(rows) == 0 {
		return canonjson.Object(canonjson.M("row", canonjson.Null()))
	}
	return canonjson.Object(canonjson.M("row", rows[0]))
}

// check compares an answer with what a case expects or wants.
func check(t *testing.T, c, want, got canonjson.Value) {
	t.Helper()
	rows := got.Get("rows").Items()
	switch {
	case !want.Get("rowIds").IsAbsent():
		checkIDs(t, c, want, rows)
	case !want.Get("nested").IsAbsent():
		checkNested(t, want.Get("nested"), rows)
	case !want.Get("rows").IsAbsent():
		if w := want.Get("rows"); !same(c.Get("ordered").Bool(), w, got.Get("rows")) {
			t.Errorf("got  %s\nwant %s", got.Get("rows"), w)
		}
	case !want.Get("page").IsAbsent():
		w, g := want.Get("page"), got.Get("page")
		if !eval.Same(w.Without("items"), g.Without("items")) || !same(c.Get("ordered").Bool(), w.Get("items"), g.Get("items")) {
			t.Errorf("got  %s\nwant %s", g, w)
		}
	default:
		if !same(true, want, got) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// checkIDs compares the ids of rows; anyOrderWithin lists ties, prefixOnly the first rows only.
func checkIDs(t *testing.T, c, want canonjson.Value, rows []canonjson.Value) {
	t.Helper()
	tie := map[string]string{}
	for _, group := range want.Get("anyOrderWithin").Items() {
		for _, id := range group.Items() {
			tie[id.Str()] = "one of " + group.String()
		}
	}
	spell := func(id string) string {
		if tie[id] != "" {
			return tie[id]
		}
		return id
	}
	var got, wanted []canonjson.Value
	for _, r := range rows {
		got = append(got, canonjson.String(spell(r.Get("_id").Str())))
	}
	for _, id := range want.Get("rowIds").Items() {
		wanted = append(wanted, canonjson.String(spell(id.Str())))
	}
	if want.Get("prefixOnly").Bool() {
		got = got[:min(len(wanted), len(got))]
	}
	if !same(c.Get("ordered").Bool(), canonjson.Array(wanted...), canonjson.Array(got...)) {
		t.Errorf("got %v, want %v", got, wanted)
	}
}

// checkNested compares the first field of a relation's rows, in order.
func checkNested(t *testing.T, want canonjson.Value, rows []canonjson.Value) {
	t.Helper()
	for _, m := range want.Members() {
		var got []canonjson.Value
		for _, r := range rows {
			for _, kid := range r.Get(m.Name).Items() {
				got = append(got, kid.Members()[0].Value)
			}
		}
		if !eval.Same(m.Value, canonjson.Array(got...)) {
			t.Errorf("%s: got %v, want %s", m.Name, got, m.Value)
		}
	}
}

// same compares rows; arrays inside them, and they themselves unless ordered, as multisets.
func same(ordered bool, a, b canonjson.Value) bool {
	if a.Kind() != b.Kind() || a.Len() != b.Len() {
		return false
	}
	switch a.Kind() {
	case canonjson.KindArray:
		return sameItems(ordered, a.Items(), b.Items())
	case canonjson.KindObject:
		for _, m := range a.Members() {
			if !same(false, m.Value, b.Get(m.Name)) {
				return false
			}
		}
		return true
	}
	return eval.Same(a, b)
}

// sameItems pairs every item of a with an own one of b, in order or not.
func sameItems(ordered bool, a, b []canonjson.Value) bool {
	taken := make([]bool, len(b))
	for i := range a {
		found := false
		for j := range b {
			if found || taken[j] || ordered && i != j {
				continue
			}
			if same(false, a[i], b[j]) {
				taken[j], found = true, true
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// parse reads JSON of a test.
func parse(t *testing.T, text string) canonjson.Value {
	t.Helper()
	v, _, err := canonjson.Parse([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}
