package gate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/policy"
)

// traced makes every step of an operation note itself.
func traced(w **world, op *catalog.Operation) *catalog.Operation {
	targets, run := op.Targets, op.Run
	op.Validate = func(canonjson.Value) error { (*w).note("validate"); return nil }
	op.Targets = func(ctx context.Context, l catalog.Lookup, in canonjson.Value) ([]policy.Check, error) {
		(*w).note("targets")
		return targets(ctx, l, in)
	}
	op.Confirm = func(canonjson.Value) bool { (*w).note("confirm?"); return false }
	op.Preview = func(context.Context, *catalog.Call) (catalog.Preview, error) {
		(*w).note("preview")
		return catalog.Preview{Message: "Really?"}, nil
	}
	op.Run = func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
		(*w).note("run")
		return run(ctx, c)
	}
	return op
}

// A call that is wrong in every way is refused by the first step, and nothing behind it is asked (middle, D4). Each row
// puts one thing right.
func TestOrderOfSteps(t *testing.T) {
	flaw := &canonjson.Flaw{Message: "the member \"a\" comes twice"}
	tests := []struct {
		name   string
		burst  int // 0: the rate is used up
		tool   string
		flaw   *canonjson.Flaw
		in     string
		allow  bool
		answer bool // to the question
		want   fault.Code
		trace  string
	}{
		{"over the rate", 0, "nope", flaw, `{"x":1}`, false, false, fault.RateLimited, ""},
		{"unknown", 9, "nope", flaw, `{"x":1}`, false, false, fault.UnknownTool, ""},
		{"flawed", 9, "put", flaw, `{"x":1}`, false, false, fault.InvalidRequest, ""},
		{"against the schema", 9, "put", nil, `{"x":1}`, false, false, fault.InvalidRequest, ""},
		{"denied", 9, "put", nil, `{"id":"a"}`, false, false, fault.PolicyDenied, "validate targets decide"},
		{"allowed", 9, "put", nil, `{"id":"a"}`, true, false, "", "validate targets decide confirm? run"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w *world
			op := traced(&w, operation("put", nil))
			w = newWorld(t, limits(func(l *gate.Limits) { l.Rate, l.Burst = 0.0001, max(tt.burst, 1) }), op)
			w.decider.allow = func(policy.Check) bool { return tt.allow }
			if tt.burst == 0 {
				w.call(t, "nope", `{}`, nil)
			}
			w.took()
			reply := w.call(t, tt.tool, tt.in, func(r *gate.Request) { r.Flaw = tt.flaw })
			if got := fault.CodeOf(errOf(reply)); got != tt.want {
				t.Errorf("%s, want %s", describe(reply), tt.want)
			}
			if got := w.took(); got != tt.trace {
				t.Errorf("steps %q, want %q", got, tt.trace)
			}
		})
	}
}

// errOf is the reply's fault as an error.
func errOf(r gate.Reply) error {
	if r.Fault == nil {
		return nil
	}
	return r.Fault
}

func TestConfirmationComesAfterAuthorisation(t *testing.T) {
	var w *world
	op := traced(&w, operation("purge", nil))
	op.Confirm = func(canonjson.Value) bool { return true }
	w = newWorld(t, nil, op)
	w.decider.allow = func(policy.Check) bool { return false }
	wantFault(t, w.call(t, "purge", `{"id":"a"}`, nil), fault.PolicyDenied)
	if got := w.took(); got != "validate targets decide" {
		t.Errorf("steps %q: a caller without the right was asked to confirm", got)
	}
	w.decider.allow = func(policy.Check) bool { return true }
	if reply := w.call(t, "purge", `{"id":"a"}`, nil); reply.Ask == nil {
		t.Errorf("%s, want a question", describe(reply))
	}
	if got := w.took(); got != "validate targets decide preview" {
		t.Errorf("steps %q: it ran before it was confirmed", got)
	}
}

// All targets are asked for in one batch; one denial denies the call, in the same words whatever was denied.
func TestAllTargetsInOneBatch(t *testing.T) {
	var ran bool
	op := operation("put", runs(func(context.Context, *catalog.Call) (catalog.Result, error) { ran = true; return okResult(), nil }))
	op.Targets = func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) {
		return []policy.Check{{Capability: policy.PersistenceWrite, Path: "/a"}, {Capability: policy.PersistenceRead, Path: "/b"}, {Capability: policy.PersistenceRead, Path: "/c"}}, nil
	}
	w := newWorld(t, nil, op)
	var words []string
	for _, denied := range []policy.Path{"/a", "/b", "/c"} {
		w.decider.allow = func(c policy.Check) bool { return c.Path != denied }
		reply := w.call(t, "put", `{}`, nil)
		wantFault(t, reply, fault.PolicyDenied)
		words = append(words, reply.Fault.Message)
		if strings.Contains(reply.Fault.Message, string(denied)) {
			t.Errorf("the refusal %q names the target", reply.Fault.Message)
		}
		e := w.audit.last(t, true)
		if e.Target != string(denied) || e.Targets != 3 || e.Decision != "deny" || e.Rule != "rule of "+string(denied) {
			t.Errorf("audit entry %+v does not tell what was denied", e)
		}
	}
	if ran || words[0] != words[1] || words[1] != words[2] {
		t.Errorf("ran %v, words %q", ran, words)
	}
	if len(w.decider.asked) != 3 || len(w.decider.asked[0]) != 3 {
		t.Errorf("asked %v, want one batch of three a call", w.decider.asked)
	}
	w.decider.allow = func(policy.Check) bool { return true }
	wantOK(t, w.call(t, "put", `{}`, nil))
	if !ran {
		t.Error("the control did not run")
	}
}

// To a caller who has nothing of it a hidden operation is an unknown one, byte for byte, on every surface (S26).
func TestHiddenIsUnknown(t *testing.T) {
	secret := operation("secret", func(op *catalog.Operation) {
		op.Capability, op.KnownOn = policy.ModelsRead, pattern(t, "/models/Secret/**")
		op.Publish.Prompt = &catalog.Prompt{}
		op.Publish.Resources = []catalog.Resource{{URI: "secret://x"}}
		op.Errors = fault.PlainDialect
	})
	with := newWorld(t, nil, secret, operation("put", nil))
	without := newWorld(t, nil, operation("put", nil))
	for _, w := range []*world{with, without} {
		w.decider.allow = func(c policy.Check) bool { return !strings.HasPrefix(string(c.Path), "/models/Secret") }
	}
	for surface, name := range map[fault.Surface]string{fault.Tool: "secret", fault.Prompt: "secret", fault.Resource: "secret://x"} {
		for _, era := range []fault.Era{fault.Stateless, fault.Legacy} {
			for _, in := range []string{`{}`, `{"x":1}`, `{"id":"a"}`} {
				ask := func(r *gate.Request) { r.Surface, r.Name, r.Era = surface, name, era }
				a, b := with.call(t, "", in, ask), without.call(t, "", in, ask)
				if a.Fault == nil || b.Fault == nil {
					t.Fatalf("%s: %s and %s", surface, describe(a), describe(b))
				}
				formA, formB := fmt.Sprintf("%+v", a.Fault.Form(a.Dialect(), surface, era)), fmt.Sprintf("%+v", b.Fault.Form(b.Dialect(), surface, era))
				if formA != formB || a.Op != nil {
					t.Errorf("%s %s: hidden %s, unknown %s", surface, era, formA, formB)
				}
			}
		}
	}
	for _, w := range []*world{with, without} {
		if w.Tool(context.Background(), who("ana"), catalog.All, "secret") != nil {
			t.Error("Tool finds it")
		}
	}
	viewA, _ := with.View(context.Background(), who("ana"), catalog.All)
	viewB, _ := without.View(context.Background(), who("ana"), catalog.All)
	if string(viewA.ToolsJSON()) != string(viewB.ToolsJSON()) || viewA.Hash != viewB.Hash {
		t.Error("the lists differ")
	}
	with.decider.allow = func(policy.Check) bool { return true }
	wantOK(t, with.call(t, "secret", `{}`, nil))
}

// pattern parses a pattern that is well formed.
func pattern(t testing.TB, s string) policy.Pattern {
	t.Helper()
	p, err := policy.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A call goes nowhere without a decision: store_unavailable, never allow (persistence.v1, section 8).
func TestNoDecision(t *testing.T) {
	ran := false
	run := runs(func(context.Context, *catalog.Call) (catalog.Result, error) { ran = true; return okResult(), nil })
	hidden := operation("hidden", func(op *catalog.Operation) { run(op); op.KnownOn = pattern(t, "/persistence/**") })
	for name, change := range map[string]func(*decider){
		"error":               func(d *decider) { d.down = errDown },
		"a decision too few":  func(d *decider) { d.short = true },
		"error while allowed": func(d *decider) { d.down = errDown; d.allow = func(policy.Check) bool { return true } },
	} {
		for _, op := range []*catalog.Operation{operation("put", run), hidden} {
			w := newWorld(t, nil, op)
			change(w.decider)
			reply := w.call(t, op.Name, `{"id":"a"}`, nil)
			wantFault(t, reply, fault.StoreUnavailable)
			if ran || strings.Contains(reply.Fault.Message, "SECRET") {
				t.Errorf("%s, %s: ran %v, message %q", name, op.Name, ran, reply.Fault.Message)
			}
			if _, f := w.View(context.Background(), who("ana"), catalog.All); op == hidden && (f == nil || f.Code != fault.StoreUnavailable) {
				t.Errorf("%s: View: %v", name, f)
			}
		}
	}
}

// A principal's own decider answers in place of the server's.
func TestPrincipalsDecider(t *testing.T) {
	w := newWorld(t, nil, operation("put", nil))
	w.decider.allow = func(policy.Check) bool { return false }
	reply := w.call(t, "put", `{"id":"a"}`, func(r *gate.Request) { r.Who.Decider = policy.Open{} })
	wantOK(t, reply)
	if got := w.took(); got != "" {
		t.Errorf("the server's policy was asked: %q", got)
	}
	wantFault(t, w.call(t, "put", `{"id":"a"}`, nil), fault.PolicyDenied)
}

// The scopes of a key narrow what the policy allows, in the door and in further checks of the handler; they never widen.
func TestScopesNarrow(t *testing.T) {
	var allowed []bool
	op := operation("put", runs(func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
		var err error
		allowed, err = c.Access.Allowed(ctx, []policy.Check{
			{Capability: policy.PersistenceWrite, Path: "/persistence/a"}, {Capability: policy.PersistenceWrite, Path: "/persistence/b"}, {Capability: policy.PersistenceRead, Path: "/persistence/a"},
		})
		return okResult(), err
	}))
	w := newWorld(t, nil, op)
	scope, err := policy.ParseScope("persistence.write@/persistence/a/**")
	if err != nil {
		t.Fatal(err)
	}
	narrow := func(r *gate.Request) { r.Who.Only = []policy.Scope{scope} }
	wantOK(t, w.call(t, "put", `{"id":"a"}`, narrow))
	if !slices.Equal(allowed, []bool{true, false, false}) {
		t.Errorf("Access allows %v, want the first only", allowed)
	}
	wantFault(t, w.call(t, "put", `{"id":"b"}`, narrow), fault.PolicyDenied)
	if e := w.audit.last(t, true); !strings.Contains(e.Rule, "scopes") {
		t.Errorf("the audit trail says %q", e.Rule)
	}
	wantFault(t, w.call(t, "put", `{"id":"a"}`, func(r *gate.Request) { r.Who.Only = []policy.Scope{} }), fault.PolicyDenied)
	wantOK(t, w.call(t, "put", `{"id":"b"}`, nil))

	w.decider.allow = func(policy.Check) bool { return false }
	wantFault(t, w.call(t, "put", `{"id":"a"}`, narrow), fault.PolicyDenied)
}

// Scopes hide operations too.
func TestScopesHide(t *testing.T) {
	op := operation("read", func(op *catalog.Operation) {
		op.Capability, op.KnownOn = policy.ModelsRead, pattern(t, "/models/Order/**")
	})
	w := newWorld(t, nil, op)
	for text, visible := range map[string]bool{"models.read@/models/**": true, "models.read@/models/Order/x": true, "models.read@/models/Other/**": false, "models.write@/models/**": false} {
		scope, err := policy.ParseScope(text)
		if err != nil {
			t.Fatal(err)
		}
		p := who("ana")
		p.Only = []policy.Scope{scope}
		if got := w.Tool(context.Background(), p, catalog.All, "read") != nil; got != visible {
			t.Errorf("with %s the tool is visible: %v, want %v", text, got, visible)
		}
	}
}

// Further checks: no checks is no question, and no decision is an error that must end the call.
func TestAccess(t *testing.T) {
	op := operation("list", func(op *catalog.Operation) {
		readOnly(op)
		op.Targets = func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) { return nil, nil }
		op.Run = func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
			if none, err := c.Access.Allowed(ctx, nil); err != nil || len(none) != 0 {
				return catalog.Result{}, fmt.Errorf("no checks: %v, %w", none, err)
			}
			_, err := c.Access.Allowed(ctx, []policy.Check{{Capability: policy.PersistenceRead, Path: "/persistence/a"}})
			return okResult(), err
		}
	})
	w := newWorld(t, nil, op)
	wantOK(t, w.call(t, "list", `{}`, nil))
	if got := w.took(); got != "decide" {
		t.Errorf("asked %q, want once", got)
	}
	if e := w.audit.last(t, false); e.Decision != "allow" || e.Target != "" {
		t.Errorf("entry %+v", e)
	}
	w.decider.down = errDown
	wantFault(t, w.call(t, "list", `{}`, nil), fault.StoreUnavailable)
}

func TestExplain(t *testing.T) {
	w := newWorld(t, nil, operation("put", nil))
	check := policy.Check{Capability: policy.PersistenceRead, Path: "/persistence/a"}
	d, err := w.Explain(context.Background(), []string{"user:zoe"}, check)
	if err != nil || !d.Allow || d.Rule != "rule of /persistence/a" || w.decider.who[0][0] != "user:zoe" {
		t.Errorf("%+v, %v, asked for %v", d, err, w.decider.who)
	}
	if w.audit.count() != 0 {
		t.Error("an explanation is in the audit trail")
	}
	w.decider.short = true
	if d, err := w.Explain(context.Background(), nil, check); err == nil || d.Allow {
		t.Errorf("%+v, %v; want no decision", d, err)
	}
	w.decider.down = errDown
	if d, err := w.Explain(context.Background(), nil, check); fault.CodeOf(err) != fault.StoreUnavailable || d.Allow {
		t.Errorf("%+v, %v; want no decision", d, err)
	}
}
