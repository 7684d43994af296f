package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
)

// outside makes an operation whose effect lies in another database.
func outside(run func(context.Context, *catalog.Call) (catalog.Result, error)) func(*catalog.Operation) {
	return func(op *catalog.Operation) { op.Outside, op.Run = true, run }
}

// An effect outside the store is announced before it happens, and its outcome follows with the same correlation
// (security requirements, S61).
func TestIntentBeforeOutcome(t *testing.T) {
	for name, outcome := range map[string]error{"ok": nil, "plan_error": fault.New(fault.PlanError, "no"), "internal": errDown} {
		t.Run(name, func(t *testing.T) {
			var w *world
			var seen audit.Entry
			w = newWorld(t, nil, operation("write", func(op *catalog.Operation) {
				op.Errors = fault.ModelsDialect
				outside(func(context.Context, *catalog.Call) (catalog.Result, error) {
					seen = w.audit.last(t, true) // what is in the trail when the effect happens
					return okResult(), outcome
				})(op)
			}))
			reply := w.call(t, "write", `{"id":"a"}`, nil)
			if seen.Kind != audit.KindIntent || seen.Outcome != "intended" || seen.Correlation != reply.Correlation || seen.Target != "/persistence/a" || seen.Input == "" {
				t.Errorf("when it ran the trail held %+v", seen)
			}
			last := w.audit.last(t, true)
			if last.Kind != audit.KindEffect || last.Outcome != name || last.Correlation != reply.Correlation {
				t.Errorf("afterwards it holds %+v", last)
			}
			if n := w.audit.count(); n != 2 {
				t.Errorf("%d entries", n)
			}
		})
	}
}

// Without an intent in the trail nothing happens.
func TestNoIntentNoEffect(t *testing.T) {
	ran := false
	w := newWorld(t, nil, operation("write", outside(func(context.Context, *catalog.Call) (catalog.Result, error) {
		ran = true
		return okResult(), nil
	})))
	w.audit.refuse = errors.New("SECRET disk")
	reply := w.call(t, "write", `{"id":"a"}`, nil)
	wantFault(t, reply, fault.StoreUnavailable)
	if ran || strings.Contains(reply.Fault.Message, "SECRET") {
		t.Errorf("ran %v, message %q", ran, reply.Fault.Message)
	}
}

// A refused call has no intent.
func TestRefusedHasNoIntent(t *testing.T) {
	w := newWorld(t, nil, operation("write", outside(func(context.Context, *catalog.Call) (catalog.Result, error) { return okResult(), nil })))
	wantFault(t, w.call(t, "write", `{"id":5}`, nil), fault.InvalidRequest)
	if e := w.audit.last(t, false); e.Kind != audit.KindRead || w.audit.count() != 1 {
		t.Errorf("%+v, %d entries", e, w.audit.count())
	}
}

// An audience sees its form of a listing; an operation that is hidden from it is an unknown tool, in the same words as
// one that does not exist.
func TestAudience(t *testing.T) {
	narrow := catalog.MustSchema(`{"type":"object","properties":{"id":{"type":"string"}}}`)
	audience := &catalog.Audience{Key: func(who *identity.Principal) string { return who.Subject }}
	w := newWorld(t, nil, operation("write", func(op *catalog.Operation) {
		op.Audience = audience
		op.Listing = func(who *identity.Principal) (catalog.Listing, bool) {
			l := op.Full()
			switch {
			case who == nil:
				return l, true
			case who.Subject == "user:ana":
				l.Input = narrow
				return l, true
			}
			return l, false
		}
	}))
	listed := func(name string) string {
		v, f := w.View(context.Background(), who(name), catalog.All)
		if f != nil {
			t.Fatal(f)
		}
		return string(v.ToolsJSON())
	}
	var tools []struct {
		InputSchema struct{ Properties map[string]any }
	}
	if err := json.Unmarshal([]byte(listed("ana")), &tools); err != nil || len(tools) != 1 || len(tools[0].InputSchema.Properties) != 1 {
		t.Errorf("ana sees %s", listed("ana"))
	}
	if got := listed("bob"); got != "[]" {
		t.Errorf("bob sees %s", got)
	}
	wantOK(t, w.call(t, "write", `{"id":"a","payload":1}`, nil)) // the listing leaves out; the check is the operation's
	hidden := w.call(t, "write", `{"id":"a"}`, func(r *gate.Request) { r.Who = who("bob") })
	unknown := w.call(t, "wrote", `{"id":"a"}`, func(r *gate.Request) { r.Who = who("bob") })
	wantFault(t, hidden, fault.UnknownTool)
	if strings.Replace(hidden.Fault.Message, "write", "wrote", 1) != unknown.Fault.Message {
		t.Errorf("hidden %q, unknown %q", hidden.Fault.Message, unknown.Fault.Message)
	}
}
