package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/policy"
)

// A panic in any function of an operation ends that call only: places are free again, the log has the stack, and the
// answer has a correlation and nothing else (S59).
func TestPanic(t *testing.T) {
	boom := func() { panic("SECRET state") }
	tests := map[string]func(*catalog.Operation){
		"Run":      runs(func(context.Context, *catalog.Call) (catalog.Result, error) { boom(); return catalog.Result{}, nil }),
		"Validate": func(op *catalog.Operation) { op.Validate = func(canonjson.Value) error { boom(); return nil } },
		"Targets": func(op *catalog.Operation) {
			op.Targets = func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) {
				boom()
				return nil, nil
			}
		},
		"Confirm": func(op *catalog.Operation) {
			op.Confirm = func(canonjson.Value) bool { boom(); return false }
			op.Preview = func(context.Context, *catalog.Call) (catalog.Preview, error) { return catalog.Preview{}, nil }
		},
		"Preview": func(op *catalog.Operation) {
			op.Confirm = func(canonjson.Value) bool { return true }
			op.Preview = func(context.Context, *catalog.Call) (catalog.Preview, error) { boom(); return catalog.Preview{}, nil }
		},
		"Match": func(op *catalog.Operation) {
			op.Publish.Resources = []catalog.Resource{{Template: "x://{id}", Match: func(string) (canonjson.Value, bool, error) { boom(); return canonjson.Value{}, false, nil }}}
		},
	}
	for name, change := range tests {
		for _, reads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, read-only %v", name, reads), func(t *testing.T) {
				bad := operation("bad", change)
				want := fault.StoreUnavailable // a write may have happened
				if reads {
					readOnly(bad)
					want = fault.Internal
				}
				w := newWorld(t, limits(func(l *gate.Limits) { l.Concurrency, l.Rate = 2, 0 }), bad, operation("good", nil))
				for range 5 {
					reply := w.call(t, "bad", `{"id":"a"}`, func(r *gate.Request) {
						if name == "Match" {
							r.Surface, r.Name = fault.Resource, "x://y"
							want = fault.Internal // no operation was reached
						}
					})
					wantFault(t, reply, want)
					if m := reply.Fault.Message; strings.Contains(m, "SECRET") || !strings.Contains(m, reply.Correlation) {
						t.Errorf("message %q", m)
					}
				}
				if text := w.log.String(); !strings.Contains(text, "SECRET state") || !strings.Contains(text, "run_test.go") {
					t.Errorf("the log lacks the panic or its stack: %.300s", text)
				}
				wantOK(t, w.call(t, "good", `{"id":"a"}`, nil))
				if n := w.audit.count(); n != 6 {
					t.Errorf("%d audit entries for 6 calls", n)
				}
			})
		}
	}
}

// An unknown error becomes internal with a correlation; its text goes to the log only (S56).
func TestUnknownErrors(t *testing.T) {
	for dialect, want := range map[fault.Dialect]fault.Code{fault.PersistenceDialect: fault.StoreUnavailable, fault.PlainDialect: fault.Internal} {
		w := newWorld(t, nil, operation("put", func(op *catalog.Operation) {
			op.Errors = dialect
			op.Run = func(context.Context, *catalog.Call) (catalog.Result, error) { return catalog.Result{}, errDown }
		}))
		reply := w.call(t, "put", `{"id":"a"}`, nil)
		wantFault(t, reply, want)
		if strings.Contains(reply.Fault.Message, "SECRET") || !strings.Contains(reply.Fault.Message, reply.Correlation) {
			t.Errorf("message %q", reply.Fault.Message)
		}
		if text := w.log.String(); !strings.Contains(text, "SECRET") || !strings.Contains(text, reply.Correlation) {
			t.Errorf("log %q", text)
		}
	}
}

// A fault of the handler is the answer as it is.
func TestFaultsComeThrough(t *testing.T) {
	conflict := fault.New(fault.RevisionConflict, "head is at revision 4").Wrap(errDown)
	w := newWorld(t, nil, operation("put", runs(func(context.Context, *catalog.Call) (catalog.Result, error) {
		return catalog.Result{}, fmt.Errorf("put: %w", conflict)
	})))
	reply := w.call(t, "put", `{"id":"a"}`, nil)
	if reply.Fault != conflict {
		t.Errorf("%s, want the handler's fault", describe(reply))
	}
	if !strings.Contains(w.log.String(), "SECRET") {
		t.Error("the cause is not in the log")
	}
}

// What does not fit the declared output never leaves (S15).
func TestOutput(t *testing.T) {
	n := func(v canonjson.Value) catalog.Result {
		return catalog.Result{Value: canonjson.Object(canonjson.M("n", v))}
	}
	items := func(count int) catalog.Result {
		list := make([]canonjson.Value, count)
		for i := range list {
			list[i] = canonjson.Int(1)
		}
		return catalog.Result{Value: canonjson.Object(canonjson.M("n", canonjson.Int(1)), canonjson.M("items", canonjson.Array(list...)))}
	}
	tests := []struct {
		name   string
		result catalog.Result
		want   fault.Code
	}{
		{"fits", okResult(), ""},
		{"another type", n(canonjson.String("SECRET")), fault.Internal},
		{"a member missing", catalog.Result{Value: canonjson.Object()}, fault.Internal},
		{"as many items as declared", items(3), ""},
		{"more items than declared", items(4), fault.Internal},
		{"larger than declared", n(canonjson.Raw([]byte(`"` + strings.Repeat("x", 200) + `"`))), fault.Internal},
		{"too many bytes", catalog.Result{Value: canonjson.Object(canonjson.M("n", canonjson.Int(1)), canonjson.M("x", canonjson.String(strings.Repeat("x", 200))))}, fault.QuotaExceeded},
		{"blocks only", catalog.Result{Blocks: []catalog.Block{{Type: "text", Text: "x"}}}, ""},
		{"a failure of the tool's own", catalog.Result{IsError: true, Value: canonjson.Object(), Blocks: []catalog.Block{{Type: "text"}}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil, operation("get", func(op *catalog.Operation) {
				readOnly(op)
				op.Bounds.Items, op.Bounds.Bytes = 3, 150
				op.Run = func(context.Context, *catalog.Call) (catalog.Result, error) { return tt.result, nil }
			}))
			reply := w.call(t, "get", `{"id":"a"}`, nil)
			if got := fault.CodeOf(errOf(reply)); got != tt.want {
				t.Fatalf("%s, want %q", describe(reply), tt.want)
			}
			if reply.Fault != nil && strings.Contains(reply.Fault.Message, "SECRET") {
				t.Errorf("message %q", reply.Fault.Message)
			}
			if reply.Result != nil && !tt.result.Value.IsAbsent() && string(reply.Result.JSON) != tt.result.Value.String() {
				t.Errorf("JSON %s, want %s", reply.Result.JSON, tt.result.Value)
			}
		})
	}
}

// An operation that is declared read-only gets nothing to commit with; any other gets the key, the fingerprint and the
// prepared entry.
func TestCommit(t *testing.T) {
	var seen []*catalog.Commit
	keep := runs(func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
		seen = append(seen, c.Commit)
		return okResult(), nil
	})
	w := newWorld(t, nil, operation("get", func(op *catalog.Operation) { keep(op); readOnly(op) }), operation("put", keep), operation("delete", keep))
	commit := func(tool, in string) *catalog.Commit {
		wantOK(t, w.call(t, tool, in, nil))
		return seen[len(seen)-1]
	}
	if c := commit("get", `{"id":"a"}`); c != nil {
		t.Errorf("a read-only operation got the commit %+v", c)
	}
	first := commit("put", `{"namespace":"ns","id":"a","payload":{"x":1.0,"y":2},"idempotencyKey":"k1"}`)
	if first.Namespace != "ns" || first.Key != "k1" || first.Entry.Operation != "put" || first.Entry.Decision != "allow" || first.Entry.Target != "/persistence/a" || first.Entry.Outcome != "ok" {
		t.Errorf("commit %+v", first)
	}
	same := map[string]bool{ // fingerprint of the first call, or another
		`{"payload":{"y":2,"x":1},"id":"a","namespace":"ns","idempotencyKey":"k2"}`:          true,
		`{"namespace":"ns","id":"a","payload":{"x":1e0,"y":2}}`:                              true,
		`{"namespace":"ns","id":"b","payload":{"x":1.0,"y":2},"idempotencyKey":"k1"}`:        false,
		`{"namespace":"n","id":"a","payload":{"x":1.0,"y":2},"idempotencyKey":"k1"}`:         false,
		`{"namespace":"ns","id":"a","payload":{"x":"1.0","y":2},"idempotencyKey":"k1"}`:      false,
		`{"namespace":"ns","id":"a","payload":{"x":1.0,"y":2,"z":0},"idempotencyKey":"k1"}`:  false,
		`{"namespace":"ns","id":"a","payload":{"idempotencyKey":"k1"},"idempotencyKey":"k"}`: false,
	}
	for in, want := range same {
		if got := commit("put", in).Fingerprint == first.Fingerprint; got != want {
			t.Errorf("%s: same fingerprint %v, want %v", in, got, want)
		}
	}
	if commit("delete", `{"namespace":"ns","id":"a","payload":{"x":1.0,"y":2},"idempotencyKey":"k1"}`).Fingerprint == first.Fingerprint {
		t.Error("another tool has the same fingerprint")
	}
}

// One entry a call, in the place where it belongs (S60, middle D10).
func TestAudit(t *testing.T) {
	sealed := func(then func() (catalog.Result, error)) func(*catalog.Operation) {
		return runs(func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			c.Commit.Seal()
			return then()
		})
	}
	deny := func(w *world) { w.decider.allow = func(policy.Check) bool { return false } }
	down := func(w *world) { w.decider.down = errDown }
	tests := []struct {
		name    string
		change  func(*catalog.Operation)
		set     func(*world)
		tool    string
		in      string
		where   string // store, read, or effect: committed with it
		kind    audit.Kind
		outcome string
	}{
		{"a read", readOnly, nil, "op", `{"id":"a"}`, "read", audit.KindRead, "ok"},
		{"an effect", sealed(func() (catalog.Result, error) { return okResult(), nil }), nil, "op", `{"id":"a"}`, "effect", "", "ok"},
		{"a replay", runs(func(context.Context, *catalog.Call) (catalog.Result, error) {
			r := okResult()
			r.Replayed = true
			return r, nil
		}), nil, "op", `{"id":"a"}`, "read", audit.KindRead, "ok"},
		{"a sealed row that was not committed", sealed(func() (catalog.Result, error) { return catalog.Result{}, fault.New(fault.RevisionConflict, "x") }), nil, "op", `{"id":"a"}`, "read", audit.KindRead, "revision_conflict"},
		{"an effect whose answer does not fit", sealed(func() (catalog.Result, error) { return catalog.Result{Value: canonjson.Object()}, nil }), nil, "op", `{"id":"a"}`, "effect", "", "store_unavailable"},
		{"a denial", nil, deny, "op", `{"id":"a"}`, "store", audit.KindRefusal, "policy_denied"},
		{"no decision", nil, down, "op", `{"id":"a"}`, "read", audit.KindRead, "store_unavailable"},
		{"an unknown tool", nil, nil, "nope", `{}`, "read", audit.KindRead, "unknown_tool"},
		{"bad arguments", nil, nil, "op", `{"x":1}`, "read", audit.KindRead, "invalid_request"},
		{"a question", func(op *catalog.Operation) {
			op.Confirm = func(canonjson.Value) bool { return true }
			op.Preview = func(context.Context, *catalog.Call) (catalog.Preview, error) { return catalog.Preview{}, nil }
		}, nil, "op", `{"id":"a"}`, "store", audit.KindConfirm, "asked"},
		{"a failure of the tool's own", func(op *catalog.Operation) {
			readOnly(op)
			op.Run = func(context.Context, *catalog.Call) (catalog.Result, error) {
				return catalog.Result{IsError: true}, nil
			}
		}, nil, "op", `{"id":"a"}`, "read", audit.KindRead, "error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil, operation("op", tt.change))
			if tt.set != nil {
				tt.set(w)
			}
			reply := w.call(t, tt.tool, tt.in, nil)
			if got := strings.Fields(w.seen.called[0])[len(strings.Fields(w.seen.called[0]))-1]; got != tt.outcome || len(w.seen.called) != 1 {
				t.Errorf("metrics saw %q, want one %s", w.seen.called, tt.outcome)
			}
			if tt.where == "effect" {
				if n := w.audit.count(); n != 0 {
					t.Errorf("%d entries beside the one that was committed", n)
				}
				return
			}
			if n := w.audit.count(); n != 1 {
				t.Fatalf("%d entries, want 1", n)
			}
			e := w.audit.last(t, tt.where == "store")
			if e.Kind != tt.kind || e.Outcome != tt.outcome || e.Subject != "user:ana" || e.Method != "key" || e.Client != "192.0.2.1" || e.Surface != "tool" || !e.Time.Equal(start) || e.Correlation != reply.Correlation || e.SurfaceHash == "" {
				t.Errorf("entry %+v", e)
			}
		})
	}
}

// An entry holds the digest of the input and nothing of the input itself.
func TestAuditHoldsNoPayload(t *testing.T) {
	var row string
	w := newWorld(t, nil, operation("put", runs(func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
		c.Commit.Entry.Revision = 7
		row = string(c.Commit.Seal())
		return okResult(), nil
	})), operation("get", readOnly))
	in := `{"id":"a","payload":"SECRET","idempotencyKey":"SECRET"}`
	wantOK(t, w.call(t, "put", in, nil))
	wantOK(t, w.call(t, "get", in, nil))
	e := w.audit.last(t, false)
	for _, text := range []string{row, string(e.Encode())} {
		if strings.Contains(text, "SECRET") || !strings.Contains(text, `"input":"sha256:`) {
			t.Errorf("entry %s", text)
		}
	}
	if !strings.Contains(row, `"revision":7`) || !strings.Contains(row, `"outcome":"ok"`) || !strings.Contains(row, `"kind":"effect"`) {
		t.Errorf("row %s", row)
	}
}

func TestResources(t *testing.T) {
	bad := fault.New(fault.InvalidRequest, "the revision is no number")
	op := operation("get", func(op *catalog.Operation) {
		readOnly(op)
		op.Publish.Resources = []catalog.Resource{
			{URI: "x://fixed"},
			{Template: "x://doc/{id}", Match: func(uri string) (canonjson.Value, bool, error) {
				id, ok := strings.CutPrefix(uri, "x://doc/")
				switch {
				case id == "fault" && ok:
					return canonjson.Value{}, false, bad
				case id == "error" && ok:
					return canonjson.Value{}, false, errDown
				}
				return canonjson.Object(canonjson.M("id", canonjson.String(id))), ok, nil
			}},
		}
		op.Run = func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			r := okResult()
			r.Blocks = []catalog.Block{{Text: c.In.Get("id").Str(), URI: c.URI}}
			return r, nil
		}
	})
	w := newWorld(t, nil, op)
	read := func(uri string) gate.Reply {
		return w.call(t, uri, `{"ignored":true}`, func(r *gate.Request) { r.Surface = fault.Resource })
	}
	reply := read("x://doc/abc")
	wantOK(t, reply)
	if b := reply.Result.Blocks[0]; b.Text != "abc" || b.URI != "x://doc/abc" {
		t.Errorf("read %+v", b)
	}
	wantOK(t, read("x://fixed"))
	wantFault(t, read("x://nope"), fault.UnknownResource)
	if reply := read("x://doc/fault"); reply.Fault != bad {
		t.Errorf("%s, want the fault of Match", describe(reply))
	}
	reply = read("x://doc/error")
	wantFault(t, reply, fault.InvalidRequest)
	if strings.Contains(reply.Fault.Message, "SECRET") {
		t.Errorf("message %q", reply.Fault.Message)
	}
	w.decider.allow = func(policy.Check) bool { return false }
	wantFault(t, read("x://doc/abc"), fault.PolicyDenied)
}

func TestEndpoints(t *testing.T) {
	w := newWorld(t, nil, operation("put", nil), operation("internal", func(op *catalog.Operation) { op.Publish = catalog.Publish{} }),
		operation("keys", func(op *catalog.Operation) { op.Slot, op.Publish = catalog.Operator, catalog.Publish{} }))
	at := func(e catalog.Endpoint) func(*gate.Request) { return func(r *gate.Request) { r.Endpoint = e } }
	wantOK(t, w.call(t, "put", `{}`, at(catalog.Of(catalog.Persistence))))
	wantFault(t, w.call(t, "put", `{}`, at(catalog.Of(catalog.Models))), fault.UnknownTool)
	wantFault(t, w.call(t, "internal", `{}`, nil), fault.UnknownTool)
	wantFault(t, w.call(t, "keys", `{}`, at(catalog.Of(catalog.Operator))), fault.UnknownTool)
	wantOK(t, w.call(t, "keys", `{}`, func(r *gate.Request) { r.Surface = fault.Command }))
	wantFault(t, w.call(t, "nope", `{}`, func(r *gate.Request) { r.Surface = fault.Command }), fault.UnknownTool)
	w.decider.allow = func(policy.Check) bool { return false } // a command needs the right as well
	wantFault(t, w.call(t, "keys", `{}`, func(r *gate.Request) { r.Surface = fault.Command }), fault.PolicyDenied)
}

func TestPromptAndComplete(t *testing.T) {
	op := operation("brief", func(op *catalog.Operation) {
		op.Publish.Prompt = &catalog.Prompt{Complete: func(_ context.Context, c *catalog.Call, argument, prefix string) ([]string, error) {
			switch {
			case c.Commit != nil:
				return nil, errors.New("a proposal got a commit")
			case prefix == "boom":
				panic("SECRET")
			case prefix == "fault":
				return nil, fault.New(fault.NotFound, "x")
			case prefix == "down":
				return nil, errDown
			}
			return []string{argument + prefix}, nil
		}}
	})
	bare := operation("bare", func(op *catalog.Operation) { op.Publish.Prompt = &catalog.Prompt{} })
	w := newWorld(t, nil, op, bare, operation("put", nil))
	complete := func(name, prefix string) ([]string, *fault.Error) {
		return w.Complete(context.Background(), gate.Request{Who: who("ana"), Endpoint: catalog.All, Name: name}, "id", prefix)
	}
	if got, f := complete("brief", "a"); f != nil || len(got) != 1 || got[0] != "ida" {
		t.Errorf("%v, %v", got, f)
	}
	if got, f := complete("bare", "a"); f != nil || got != nil {
		t.Errorf("%v, %v; want none", got, f)
	}
	for prefix, want := range map[string]fault.Code{"boom": fault.Internal, "fault": fault.NotFound, "down": fault.Internal} {
		if _, f := complete("brief", prefix); f == nil || f.Code != want || strings.Contains(f.Message, "SECRET") {
			t.Errorf("%s: %v, want %s", prefix, f, want)
		}
	}
	if _, f := complete("put", "a"); f == nil || f.Code != fault.UnknownPrompt {
		t.Errorf("a tool that is no prompt: %v", f)
	}
	wantOK(t, w.call(t, "brief", `{}`, func(r *gate.Request) { r.Surface = fault.Prompt }))
	wantFault(t, w.call(t, "put", `{}`, func(r *gate.Request) { r.Surface = fault.Prompt }), fault.UnknownPrompt)
}

// What a call is given that is never nil, and what came with the request.
func TestCall(t *testing.T) {
	var seen *catalog.Call
	var changes []catalog.Change
	w := newWorld(t, func(c *gate.Config) { c.Notify = func(ch catalog.Change) { changes = append(changes, ch) } },
		operation("put", runs(func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			seen = c
			c.Progress(1, 2, "half")
			c.Log("info", canonjson.Null())
			c.Notify(catalog.Change{Tools: true})
			return okResult(), nil
		})))
	wantOK(t, w.call(t, "put", `{"id":"a"}`, nil))
	if !seen.Now.Equal(start) || seen.Who.Subject != "user:ana" || seen.In.Get("id").Str() != "a" || !seen.Client.Elicitation || !seen.Answers.IsAbsent() || !seen.State.IsAbsent() || len(changes) != 1 {
		t.Errorf("call %+v, changes %v", seen, changes)
	}
}

func TestLabels(t *testing.T) {
	private := gate.Reply{Result: &catalog.Result{Source: "persistence"}}.Labels().String()
	if want := `{"io.tabellion/confidentiality":"private","io.tabellion/integrity":"untrusted","io.tabellion/source":"persistence"}`; private != want {
		t.Errorf("labels %s, want %s", private, want)
	}
	public := gate.Reply{Result: &catalog.Result{Public: true}}.Labels().String()
	if want := `{"io.tabellion/confidentiality":"public","io.tabellion/integrity":"trusted"}`; public != want {
		t.Errorf("labels %s, want %s", public, want)
	}
	if got := (gate.Reply{}).Labels().Get("io.tabellion/integrity").Str(); got != "untrusted" {
		t.Errorf("a reply without a result is labelled %s", got)
	}
}

// The deadline of a call runs on monotonic time: a jump of the wall clock does not end it.
func TestWallClockDoesNotEndCalls(t *testing.T) {
	var w *world
	op := operation("get", func(op *catalog.Operation) {
		readOnly(op)
		op.Run = func(ctx context.Context, _ *catalog.Call) (catalog.Result, error) {
			w.clock.Advance(24 * time.Hour)
			return okResult(), ctx.Err()
		}
	})
	w = newWorld(t, nil, op)
	wantOK(t, w.call(t, "get", `{"id":"a"}`, nil))
}

// TestAnswerSize holds that an answer is measured as it goes out, that a read beyond the limit is refused, and that an
// effect is told whatever its size: a refusal must not have one.
func TestAnswerSize(t *testing.T) {
	long := canonjson.Object(canonjson.M("text", canonjson.String(strings.Repeat(`"`, 300))))
	for _, readOnly := range []catalog.Fact{catalog.Yes, catalog.No} {
		w := newWorld(t, func(c *gate.Config) { c.Limits.ResponseBytes = 1800 }, operation("op", func(op *catalog.Operation) {
			op.Effects.ReadOnly, op.Out = readOnly, nil
			op.Run = func(context.Context, *catalog.Call) (catalog.Result, error) { return catalog.Result{Value: long}, nil }
		}))
		// 611 bytes of JSON are 1222 twice, and 604 more for the escapes of the second: 1826.
		reply := w.call(t, "op", `{"id":"a"}`, nil)
		if got := fault.CodeOf(asError(reply)); (got == fault.QuotaExceeded) != (readOnly == catalog.Yes) {
			t.Errorf("read-only %v: %s", readOnly, got)
		}
	}
}

// asError is the reply's fault as an error, nil for none.
func asError(r gate.Reply) error {
	if r.Fault == nil {
		return nil
	}
	return r.Fault
}

// TestManyArguments holds that the time of a schema check is bounded by the number of values, and that free content
// does not count.
func TestManyArguments(t *testing.T) {
	w := newWorld(t, nil, operation("op", func(op *catalog.Operation) {
		op.In = catalog.MustSchema(`{"type":"object"}`)
		op.Content = []string{"payload"}
	}))
	many := "[" + strings.Repeat("1,", 11_000) + "1]"
	if reply := w.call(t, "op", `{"id":"a","list":`+many+`}`, nil); fault.CodeOf(asError(reply)) != fault.InvalidRequest {
		t.Errorf("11,000 values in an argument: %v", reply.Fault)
	}
	if reply := w.call(t, "op", `{"id":"a","payload":`+many+`}`, nil); reply.Fault != nil {
		t.Errorf("11,000 values of content: %v", reply.Fault)
	}
}
