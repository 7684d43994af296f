package policy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tabellion-mcp/tabellion/policy"
)

var (
	_ policy.Decider  = (*policy.Policy)(nil)
	_ policy.Surveyor = (*policy.Policy)(nil)
	_ policy.Decider  = policy.Open{}
	_ policy.Surveyor = policy.Open{}
)

// mustNew compiles a policy.
func mustNew(t testing.TB, c policy.Config) *policy.Policy {
	t.Helper()
	p, err := policy.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// decide asks one question.
func decide(t testing.TB, d policy.Decider, c policy.Capability, path policy.Path, subjects ...string) policy.Decision {
	t.Helper()
	out, err := d.Decide(context.Background(), subjects, []policy.Check{{Capability: c, Path: path}})
	if err != nil || len(out) != 1 {
		t.Fatalf("%v, %v", out, err)
	}
	return out[0]
}

// doc is the path of a document.
func doc(namespace, id string) policy.Path {
	return policy.Path("/persistence/namespaces/" + namespace + "/documents/" + id)
}

func TestDecide(t *testing.T) {
	p := mustNew(t, policy.Config{
		Roles: map[string][]string{"reader": {"persistence.read"}, "writer": {"persistence.read", "persistence.write"}, "nothing": {}},
		Assignments: []policy.Assignment{
			{Subject: "user:ana", Role: "writer", On: "/persistence/namespaces/a/**"},
			{Subject: "group:pilots", Role: "reader", On: string(doc("b", "one"))},
			{Subject: "*", Role: "reader", On: "/persistence/namespaces/public/**"},
			{Subject: "user:root", Role: "admin", On: "/**"},
			{Subject: "user:zoe", Role: "nothing", On: "/**"},
		},
		Denies: []policy.Deny{
			{Subject: "user:ana", Capabilities: []policy.Capability{policy.PersistenceWrite}, On: string(doc("a", "frozen"))},
			{Subject: "group:interns", On: "/persistence/namespaces/a/**"},
			{Subject: "*", Capabilities: []policy.Capability{policy.PersistenceAdmin}, On: "/persistence/**"},
		},
	})
	tests := []struct {
		name     string
		subjects string
		c        policy.Capability
		path     policy.Path
		allow    bool
		rule     string
	}{
		{"assigned", "user:ana", policy.PersistenceWrite, doc("a", "x"), true, "assignments[0]"},
		{"one right implies no other", "user:ana", policy.PersistenceDelete, doc("a", "x"), false, "default"},
		{"outside the pattern", "user:ana", policy.PersistenceRead, doc("ab", "x"), false, "default"},
		{"in another case", "user:ana", policy.PersistenceRead, doc("A", "x"), false, "default"},
		{"nobody in particular", "user:bob", policy.PersistenceRead, doc("a", "x"), false, "default"},
		{"a name that begins alike", "user:anabel", policy.PersistenceRead, doc("a", "x"), false, "default"},
		{"a kind is part of the name", "group:ana", policy.PersistenceRead, doc("a", "x"), false, "default"},
		{"exact path", "group:pilots", policy.PersistenceRead, doc("b", "one"), true, "assignments[1]"},
		{"beside the exact path", "group:pilots", policy.PersistenceRead, doc("b", "one2"), false, "default"},
		{"below the exact path", "group:pilots", policy.PersistenceRead, doc("b", "one") + "/x", false, "default"},
		{"by the second subject", "user:bob group:pilots", policy.PersistenceRead, doc("b", "one"), true, "assignments[1]"},
		{"everybody", "user:bob", policy.PersistenceRead, doc("public", "x"), true, "assignments[2]"},
		{"denied", "user:ana", policy.PersistenceWrite, doc("a", "frozen"), false, "denies[0]"},
		{"what is not denied stays", "user:ana", policy.PersistenceRead, doc("a", "frozen"), true, "assignments[0]"},
		{"a deny of another of one's subjects wins", "user:ana group:interns", policy.PersistenceRead, doc("a", "x"), false, "denies[1]"},
		{"in any order", "group:interns user:ana", policy.PersistenceRead, doc("a", "x"), false, "denies[1]"},
		{"a deny of everybody beats admin", "user:root", policy.PersistenceAdmin, doc("a", "x"), false, "denies[2]"},
		{"a deny of everybody beats the role admin", "user:x role:admin", policy.PersistenceAdmin, doc("a", "x"), false, "denies[2]"},
		{"the role admin needs no assignment", "user:x role:admin", policy.OperatorAdmin, "/operator/keys", true, "built-in"},
		{"a role by name only is none", "role:writer", policy.PersistenceRead, doc("a", "x"), false, "default"},
		{"an empty role gives nothing", "user:zoe", policy.PersistenceRead, doc("a", "x"), false, "default"},
		{"unknown capability", "user:root", "persistence.fly", doc("a", "x"), false, "unknown capability"},
		{"no capability", "user:root", "", doc("a", "x"), false, "unknown capability"},
		{"path upwards", "user:root", policy.PersistenceRead, "/persistence/namespaces/a/../b", false, "malformed path"},
		{"path with an empty segment", "user:root", policy.PersistenceRead, "/persistence//a", false, "malformed path"},
		{"no path", "user:root", policy.PersistenceRead, "", false, "malformed path"},
		{"the root itself", "user:root", policy.PersistenceRead, "/", false, "malformed path"},
		{"no subject", "", policy.PersistenceRead, doc("public", "x"), false, "default"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := decide(t, p, tt.c, tt.path, strings.Fields(tt.subjects)...)
			if d.Allow != tt.allow || !strings.Contains(d.Rule, tt.rule) {
				t.Errorf("%v, want %v by %q", d, tt.allow, tt.rule)
			}
		})
	}
}

// The built-in role holds every capability that exists, a new one too.
func TestAdminHoldsEverything(t *testing.T) {
	p := mustNew(t, policy.Config{})
	for _, c := range policy.Capabilities {
		if !c.Known() || !decide(t, p, c, "/x", "role:admin").Allow {
			t.Errorf("role admin has not %s", c)
		}
		if decide(t, p, c, "/x", "user:ana").Allow {
			t.Errorf("anybody has %s", c)
		}
		only := mustNew(t, policy.Config{Roles: map[string][]string{"r": {string(c)}}, Assignments: []policy.Assignment{{Subject: "user:ana", Role: "r", On: "/**"}}})
		for _, other := range policy.Capabilities {
			if got := decide(t, only, other, "/x", "user:ana").Allow; got != (other == c) {
				t.Errorf("a role of %s has %s: %v", c, other, got)
			}
		}
	}
}

// A fixture's grant is an assignment and, for "except", a deny of exact paths for all capabilities.
func TestExceptIsADeny(t *testing.T) {
	p := mustNew(t, policy.Config{
		Roles:       map[string][]string{"grant": {"persistence.write"}},
		Assignments: []policy.Assignment{{Subject: "user:bob", Role: "grant", On: "/persistence/namespaces/ns/artifacts/**"}},
		Denies:      []policy.Deny{{Subject: "user:bob", On: "/persistence/namespaces/ns/artifacts/_new"}},
	})
	for path, want := range map[policy.Path]bool{
		"/persistence/namespaces/ns/artifacts/_new":   false,
		"/persistence/namespaces/ns/artifacts/_new2":  true,
		"/persistence/namespaces/ns/artifacts/x":      true,
		"/persistence/namespaces/ns/artifacts":        true,
		"/persistence/namespaces/ns/artifacts/_new/x": true,
		"/persistence/namespaces/ns2/artifacts/x":     false,
	} {
		if got := decide(t, p, policy.PersistenceWrite, path, "user:bob").Allow; got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	roles := map[string][]string{"reader": {"persistence.read"}}
	tests := []struct {
		name string
		c    policy.Config
		want string
	}{
		{"redefined admin", policy.Config{Roles: map[string][]string{"admin": {"persistence.read"}}}, "policy.roles.admin"},
		{"unknown capability in a role", policy.Config{Roles: map[string][]string{"r": {"persistence.fly"}}}, `policy.roles.r: unknown capability "persistence.fly"`},
		{"unknown role", policy.Config{Roles: roles, Assignments: []policy.Assignment{{Subject: "user:a", Role: "reader", On: "/a"}, {Subject: "user:a", Role: "writer", On: "/a"}}}, "policy.assignments[1]: unknown role"},
		{"malformed pattern", policy.Config{Roles: roles, Assignments: []policy.Assignment{{Subject: "user:a", Role: "reader", On: "/a/*"}}}, "policy.assignments[0].on"},
		{"no pattern", policy.Config{Roles: roles, Assignments: []policy.Assignment{{Subject: "user:a", Role: "reader"}}}, "policy.assignments[0].on"},
		{"subject without a kind", policy.Config{Roles: roles, Assignments: []policy.Assignment{{Subject: "ana", Role: "reader", On: "/a"}}}, "policy.assignments[0].subject"},
		{"unknown kind", policy.Config{Roles: roles, Assignments: []policy.Assignment{{Subject: "team:x", Role: "reader", On: "/a"}}}, "policy.assignments[0].subject"},
		{"no subject", policy.Config{Roles: roles, Assignments: []policy.Assignment{{Role: "reader", On: "/a"}}}, "policy.assignments[0].subject"},
		{"empty name", policy.Config{Roles: roles, Assignments: []policy.Assignment{{Subject: "user:", Role: "reader", On: "/a"}}}, "policy.assignments[0].subject"},
		{"pattern of a deny", policy.Config{Denies: []policy.Deny{{Subject: "*", On: "a"}}}, "policy.denies[0].on"},
		{"subject of a deny", policy.Config{Denies: []policy.Deny{{Subject: "**", On: "/a"}}}, "policy.denies[0].subject"},
		{"capability of a deny", policy.Config{Denies: []policy.Deny{{Subject: "*", On: "/a"}, {Subject: "*", On: "/a", Capabilities: []policy.Capability{"x"}}}}, "policy.denies[1]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := policy.New(tt.c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want one that names %q", err, tt.want)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	out, err := policy.Open{}.Decide(context.Background(), nil, make([]policy.Check, 3))
	if err != nil || len(out) != 3 || !out[0].Allow || !strings.Contains(out[2].Rule, "--dev") {
		t.Errorf("%v, %v", out, err)
	}
	known, err := policy.Open{}.Survey(context.Background(), nil, make([]policy.Scope, 2))
	if err != nil || !slices.Equal(known, []bool{true, true}) {
		t.Errorf("%v, %v", known, err)
	}
}

func TestSurvey(t *testing.T) {
	p := mustNew(t, policy.Config{
		Roles: map[string][]string{"reader": {"models.read"}},
		Assignments: []policy.Assignment{
			{Subject: "user:ana", Role: "reader", On: "/models/Order"},
			{Subject: "user:bob", Role: "reader", On: "/models/**"},
			{Subject: "*", Role: "reader", On: "/models/Public/**"},
		},
		Denies: []policy.Deny{{Subject: "user:bob", On: "/models/Order/**"}, {Subject: "user:bob", On: "/models/Customer"}},
	})
	tests := []struct {
		subject, on string
		want        bool
	}{
		{"user:ana", "/models/**", true}, {"user:ana", "/models/Order/**", true}, {"user:ana", "/models/Customer/**", false},
		{"user:bob", "/models/Order/**", false}, {"user:bob", "/models/Order", false}, {"user:bob", "/models/Customer/**", true},
		{"user:bob", "/models/Customer", false}, {"user:bob", "/models/**", true}, {"user:zoe", "/models/Public", true},
		{"user:zoe", "/models/Order", false}, {"", "/models/Public", false}, {"role:admin", "/anything/**", true},
	}
	for _, tt := range tests {
		var subjects []string
		if tt.subject != "" {
			subjects = []string{tt.subject}
		}
		got, err := p.Survey(context.Background(), subjects, []policy.Scope{{Capability: policy.ModelsRead, On: mustPattern(t, tt.on)}})
		if err != nil || got[0] != tt.want {
			t.Errorf("%s has something of %s: %v, %v; want %v", tt.subject, tt.on, got, err, tt.want)
		}
	}
	got, _ := p.Survey(context.Background(), []string{"role:admin"}, []policy.Scope{{Capability: "models.fly", On: mustPattern(t, "/**")}})
	if got[0] {
		t.Error("somebody has an unknown capability")
	}
}

// Small sets to draw policies from, so that rules meet.
var (
	drawSubject    = rapid.SampledFrom([]string{"user:a", "user:b", "group:g", "role:r", "*"})
	drawRole       = rapid.SampledFrom([]string{"r1", "r2", "admin"})
	drawCapability = rapid.SampledFrom(policy.Capabilities[:3])
	drawPath       = rapid.SampledFrom(universe(3))
	drawPattern    = rapid.Custom(func(t *rapid.T) string {
		p := rapid.SampledFrom(append(universe(2), "")).Draw(t, "base")
		if p == "" || rapid.Bool().Draw(t, "deep") {
			return p + "/**"
		}
		return p
	})
	drawAssignment = rapid.Custom(func(t *rapid.T) policy.Assignment {
		return policy.Assignment{Subject: drawSubject.Draw(t, "subject"), Role: drawRole.Draw(t, "role"), On: drawPattern.Draw(t, "on")}
	})
	drawDeny = rapid.Custom(func(t *rapid.T) policy.Deny {
		return policy.Deny{Subject: drawSubject.Draw(t, "subject"), Capabilities: rapid.SliceOfN(drawCapability, 0, 2).Draw(t, "capabilities"), On: drawPattern.Draw(t, "on")}
	})
	drawConfig = rapid.Custom(func(t *rapid.T) policy.Config {
		caps := rapid.SliceOf(rapid.Map(drawCapability, func(c policy.Capability) string { return string(c) }))
		return policy.Config{
			Roles:       map[string][]string{"r1": caps.Draw(t, "r1"), "r2": caps.Draw(t, "r2")},
			Assignments: rapid.SliceOfN(drawAssignment, 0, 6).Draw(t, "assignments"),
			Denies:      rapid.SliceOfN(drawDeny, 0, 3).Draw(t, "denies"),
		}
	})
	drawSubjects = rapid.SliceOfN(rapid.SampledFrom([]string{"user:a", "user:b", "group:g", "role:r", "role:admin", "user:nobody"}), 0, 3)
)

// naive answers from the configuration as it is written.
func naive(c policy.Config, subjects []string, capability policy.Capability, path string) bool {
	has := func(subject string) bool {
		return slices.Contains(subjects, subject) || (subject == "*" && len(subjects) > 0)
	}
	for _, d := range c.Denies {
		if has(d.Subject) && naiveCovers(d.On, path) && (len(d.Capabilities) == 0 || slices.Contains(d.Capabilities, capability)) {
			return false
		}
	}
	if has("role:admin") {
		return true
	}
	for _, a := range c.Assignments {
		if has(a.Subject) && naiveCovers(a.On, path) && (a.Role == "admin" || slices.Contains(c.Roles[a.Role], string(capability))) {
			return true
		}
	}
	return false
}

func TestDecideAgreesWithTheNaiveModel(t *testing.T) {
	allowed, denied := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig.Draw(t, "config")
		p, err := policy.New(c)
		if err != nil {
			t.Fatal(err)
		}
		subjects := drawSubjects.Draw(t, "subjects")
		var checks []policy.Check
		for range 20 {
			checks = append(checks, policy.Check{Capability: drawCapability.Draw(t, "capability"), Path: policy.Path(drawPath.Draw(t, "path"))})
		}
		out, err := p.Decide(context.Background(), subjects, checks)
		if err != nil || len(out) != len(checks) {
			t.Fatalf("%d decisions, %v", len(out), err)
		}
		for i, d := range out {
			want := naive(c, subjects, checks[i].Capability, string(checks[i].Path))
			if d.Allow != want {
				t.Fatalf("%v: %v, want %v", checks[i], d, want)
			}
			if d.Rule == "" {
				t.Fatalf("%v: no rule is named", checks[i])
			}
			if want {
				allowed++
			} else {
				denied++
			}
		}
	})
	if allowed == 0 || denied == 0 {
		t.Errorf("%d allowed and %d denied: one of them never came", allowed, denied)
	}
}

// Adding a deny, or taking an assignment away, gives nobody anything.
func TestLessNeverGivesMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig.Draw(t, "config")
		less := c
		less.Denies = append(slices.Clone(c.Denies), drawDeny.Draw(t, "deny"))
		if n := len(c.Assignments); n > 0 {
			i := rapid.IntRange(0, n-1).Draw(t, "taken")
			less.Assignments = slices.Delete(slices.Clone(c.Assignments), i, i+1)
		}
		p, err := policy.New(c)
		q, err2 := policy.New(less)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		subjects := drawSubjects.Draw(t, "subjects")
		for _, path := range universe(3) {
			checks := []policy.Check{{Capability: drawCapability.Draw(t, "capability"), Path: policy.Path(path)}}
			before, _ := p.Decide(context.Background(), subjects, checks)
			after, _ := q.Decide(context.Background(), subjects, checks)
			if after[0].Allow && !before[0].Allow {
				t.Fatalf("%v is allowed only by the smaller policy: %v", checks[0], after[0])
			}
		}
	})
}

// Survey never says no where a check would be allowed.
func TestSurveyNeverHidesARight(t *testing.T) {
	no := 0
	rapid.Check(t, func(t *rapid.T) {
		p, err := policy.New(drawConfig.Draw(t, "config"))
		if err != nil {
			t.Fatal(err)
		}
		subjects, capability, on := drawSubjects.Draw(t, "subjects"), drawCapability.Draw(t, "capability"), drawPattern.Draw(t, "on")
		pattern, err := policy.ParsePattern(on)
		if err != nil {
			t.Fatal(err)
		}
		known, err := p.Survey(context.Background(), subjects, []policy.Scope{{Capability: capability, On: pattern}})
		if err != nil {
			t.Fatal(err)
		}
		if known[0] {
			return
		}
		no++
		for _, path := range universe(3) {
			if !pattern.Covers(policy.Path(path)) {
				continue
			}
			d, _ := p.Decide(context.Background(), subjects, []policy.Check{{Capability: capability, Path: policy.Path(path)}})
			if d[0].Allow {
				t.Fatalf("nothing of %s, says Survey, but %s is allowed: %v", on, path, d[0])
			}
		}
	})
	if no == 0 {
		t.Error("Survey never said no")
	}
}

func ExampleNew() {
	p, err := policy.New(policy.Config{
		Roles:       map[string][]string{"writer": {"persistence.read", "persistence.write"}},
		Assignments: []policy.Assignment{{Subject: "group:pilots", Role: "writer", On: "/persistence/namespaces/explorer/**"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, _ := p.Decide(context.Background(), []string{"user:ana", "group:pilots"}, []policy.Check{
		{Capability: policy.PersistenceWrite, Path: "/persistence/namespaces/explorer/documents/a"},
		{Capability: policy.PersistenceAdmin, Path: "/persistence/namespaces/explorer/documents/a"},
	})
	fmt.Println(d[0].Allow, d[0].Rule)
	fmt.Println(d[1].Allow, d[1].Rule)
	// Output:
	// true assignments[0]: group:pilots has role writer on /persistence/namespaces/explorer/**
	// false no rule: denied by default
}
