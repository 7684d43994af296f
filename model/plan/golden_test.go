package plan_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// fixture reads a file of the recorded cases.
func fixture(t *testing.T, name string) canonjson.Value {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "engine", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return jsonValue(t, string(text))
}

// jsonValue parses a test's JSON; "" is Absent.
func jsonValue(t *testing.T, text string) canonjson.Value {
	t.Helper()
	if text == "" {
		return canonjson.Value{}
	}
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{Depth: 200})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// register makes a registry of definitions; keys that only tests know are allowed.
func register(t *testing.T, definitions ...canonjson.Value) *model.Registry {
	t.Helper()
	r := model.NewRegistry(model.Options{Lenient: true})
	if err := r.Register(definitions...); err != nil {
		t.Fatal(err)
	}
	return r
}

// platform is the registry of the recorded cases.
func platform(t *testing.T) *model.Registry {
	return register(t, fixture(t, "schema.json").Items()...)
}

// openRules are the rules that the cases were recorded under: an absent list means everybody but guests.
func openRules() *model.Permission {
	rules := model.DefaultRules()
	rules.Unconfigured = model.Open
	return &model.Permission{Rules: rules}
}

// caller reads the context of a case: null is everything allowed.
func caller(v canonjson.Value) *model.Context {
	if v.Kind() != canonjson.KindObject {
		return &model.Context{Internal: true}
	}
	c := &model.Context{UserID: v.Get("userId").Str(), Role: v.Get("role").Str(), Internal: v.Get("internal").Bool()}
	for _, r := range v.Get("roles").Items() {
		c.Roles = append(c.Roles, r.Str())
	}
	return c
}

// planCase plans the call of a case.
func planCase(p *plan.Planner, c canonjson.Value) (*plan.Query, error) {
	switch c.Get("op").Str() {
	case "count":
		return p.Count(c.Get("model").Str(), c.Get("condition"))
	case "exists":
		return p.Exists(c.Get("model").Str(), c.Get("condition"))
	}
	q, err := gql.Parse(c.Get("gql").Str())
	if err != nil {
		return nil, err
	}
	b, err := q.Bind(c.Get("params"))
	if err != nil {
		return nil, err
	}
	if c.Get("op").Str() == "queryWithCount" {
		return p.QueryWithCount(b)
	}
	return p.Query(b)
}

// wantedError is the error that a case expects, Absent for none. What should be built wins over what was recorded.
func wantedError(c canonjson.Value) canonjson.Value {
	if want := c.Get("want"); !want.IsAbsent() {
		return want.Get("error")
	}
	return c.Get("expect").Get("error")
}

// checkError holds an error against a case's.
func checkError(t *testing.T, err error, want canonjson.Value) {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error of class %s", err, want.Get("class").Str())
	}
	if string(e.Class) != want.Get("class").Str() {
		t.Errorf("got class %s, want %s: %v", e.Class, want.Get("class").Str(), err)
	}
	if !strings.HasPrefix(err.Error(), want.Get("prefix").Str()) {
		t.Errorf("the message does not begin with %s: %v", want.Get("prefix").Str(), err)
	}
	for _, word := range want.Get("mentions").Items() {
		if !strings.Contains(err.Error(), word.Str()) {
			t.Errorf("the message lacks %q: %v", word.Str(), err)
		}
	}
	if f := want.Get("feature"); !f.IsAbsent() && (e.Feature != f.Str() || !strings.Contains(err.Error(), "["+f.Str()+"]")) {
		t.Errorf("got feature %q, want %q: %v", e.Feature, f.Str(), err)
	}
}

// TestGoldenErrorsRead plans every recorded read: those that end in an error must, with its class and words, and all
// others must not.
func TestGoldenErrorsRead(t *testing.T) {
	registry := platform(t)
	refused := 0
	for _, c := range fixture(t, "cases-read.json").Items() {
		t.Run(c.Get("id").Str(), func(t *testing.T) {
			p := &plan.Planner{Registry: registry, Access: openRules().For(caller(c.Get("ctx"))), Profile: plan.Standard}
			_, err := planCase(p, c)
			want := wantedError(c)
			switch {
			case !want.Get("orRows").IsAbsent(), !c.Get("want").Get("orRows").IsAbsent() && err == nil:
				return // no rows are as good as a refusal
			case want.IsAbsent() && err != nil:
				t.Errorf("%s: %v", c.Get("gql").Str(), err)
			case !want.IsAbsent():
				refused++
				checkError(t, err, want)
			}
		})
	}
	if refused < 120 {
		t.Errorf("only %d cases with errors were met", refused)
	}
}

// TestGoldenProfiles plans the recorded cases of the profiles. A write and a route of its own are judged before there is a
// plan: those cases are the engine's.
func TestGoldenProfiles(t *testing.T) {
	registry := platform(t)
	for _, c := range fixture(t, "cases-profile.json").Items() {
		if c.Get("setProfile").IsAbsent() && (c.Get("gql").IsAbsent() || !c.Get("routeOverride").IsAbsent()) {
			continue
		}
		t.Run(c.Get("id").Str(), func(t *testing.T) {
			if name := c.Get("setProfile"); !name.IsAbsent() {
				_, err := plan.ProfileNamed(name.Str())
				checkError(t, err, c.Get("expect").Get("error"))
				return
			}
			profile, err := plan.ProfileNamed(c.Get("profile").Str())
			if err != nil {
				t.Fatal(err)
			}
			access := openRules().For(caller(c.Get("ctx")))
			if c.Get("ctx").Kind() == canonjson.KindNull && profile.Sandbox {
				access = openRules().For(nil)
			}
			q, err := planCase(&plan.Planner{Registry: registry, Access: access, Profile: profile}, c)
			expect := c.Get("expect")
			if want := expect.Get("error"); !want.IsAbsent() {
				checkError(t, err, want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n, ok := expect.Get("effectiveLimit").Int(); ok && q.Root.Limit != n {
				t.Errorf("limit %d, want %d", q.Root.Limit, n)
			}
			if n, ok := expect.Get("effectiveRelationLimit").Int(); ok && q.Root.Kids[0].Block.Limit != n {
				t.Errorf("relation limit %d, want %d", q.Root.Kids[0].Block.Limit, n)
			}
		})
	}
}
