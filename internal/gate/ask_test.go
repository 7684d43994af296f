package gate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/seal"
)

// purge is an operation that must be confirmed, on a target whose version can change.
type purge struct {
	version string
	ran     int
	note    string // of the prepared audit entry
	err     error  // of Preview
}

// operation makes the operation. Change it in change.
func (p *purge) operation(change func(*catalog.Operation)) *catalog.Operation {
	return operation("purge", func(op *catalog.Operation) {
		op.Confirm = func(in canonjson.Value) bool { return in.Get("id").Str() != "harmless" }
		op.Preview = func(_ context.Context, c *catalog.Call) (catalog.Preview, error) {
			return catalog.Preview{Message: "Purge " + c.In.Get("id").Str() + "?", Version: p.version}, p.err
		}
		op.Run = func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			p.ran++
			p.note = c.Commit.Entry.Note
			return okResult(), nil
		}
		if change != nil {
			change(op)
		}
	})
}

// yes, no and dismissed are answers of a person.
const (
	yes       = `{"confirm":{"action":"accept","content":{"confirm":true}}}`
	unticked  = `{"confirm":{"action":"accept","content":{"confirm":false}}}`
	declined  = `{"confirm":{"action":"decline"}}`
	cancelled = `{"confirm":{"action":"cancel","content":{"confirm":true}}}`
)

// question asks for a purge and gives the sealed state.
func (w *world) question(t testing.TB, in string) string {
	t.Helper()
	reply := w.call(t, "purge", in, nil)
	if reply.Ask == nil || reply.Ask.State == "" {
		t.Fatalf("%s, want a question", describe(reply))
	}
	return reply.Ask.State
}

// answer resumes a purge.
func (w *world) answer(t testing.TB, in, state, answers string, change func(*gate.Request)) gate.Reply {
	t.Helper()
	return w.call(t, "purge", in, func(r *gate.Request) {
		r.Resume = &gate.Resume{State: state}
		if answers != "" {
			r.Resume.Answers = parse(t, answers)
		}
		if change != nil {
			change(r)
		}
	})
}

func TestConfirm(t *testing.T) {
	p := &purge{version: "7"}
	w := newWorld(t, nil, p.operation(nil))
	reply := w.call(t, "purge", `{"id":"a"}`, nil)
	if reply.Ask == nil || len(reply.Ask.Requests) != 1 {
		t.Fatalf("%s, want one question", describe(reply))
	}
	q := reply.Ask.Requests[0]
	if q.Key != "confirm" || q.Method != "elicitation/create" || q.Params.Get("message").Str() != "Purge a?" || q.Params.Get("mode").Str() != "form" || q.Params.At("/requestedSchema/properties/confirm/type").Str() != "boolean" {
		t.Errorf("question %+v", q)
	}
	if p.ran != 0 {
		t.Fatal("it ran before it was confirmed")
	}
	wantOK(t, w.answer(t, `{"id":"a"}`, reply.Ask.State, yes, nil))
	if p.ran != 1 || p.note != "confirmed" {
		t.Errorf("ran %d times, the prepared entry says %q", p.ran, p.note)
	}
	wantOK(t, w.call(t, "purge", `{"id":"harmless"}`, nil))
}

// A confirmation is bound to the exact arguments, the principal, the operation and the target's version, is good for
// five minutes, and good once (S17, S49).
func TestConfirmationIsBound(t *testing.T) {
	other := func(r *gate.Request) { r.Who = who("bob") }
	tests := []struct {
		name    string
		before  func(w *world, p *purge)
		in      string
		answers string
		change  func(*gate.Request)
		want    fault.Code // "" runs, "asked" asks again
	}{
		{"the control", nil, `{"id":"a"}`, yes, nil, ""},
		{"one argument more", nil, `{"namespace":"ns","id":"a"}`, yes, nil, fault.InvalidParams},
		{"other arguments", nil, `{"id":"b"}`, yes, nil, fault.InvalidParams},
		{"another principal", nil, `{"id":"a"}`, yes, other, fault.InvalidParams},
		{"another tenant", nil, `{"id":"a"}`, yes, func(r *gate.Request) { r.Who.Tenant = "t" }, fault.InvalidParams},
		{"another operation", nil, `{"id":"a"}`, yes, func(r *gate.Request) { r.Name = "erase" }, fault.InvalidParams},
		{"an altered state", nil, `{"id":"a"}`, yes, func(r *gate.Request) { r.Resume.State = "B" + r.Resume.State[1:] }, fault.InvalidParams},
		{"a made-up state", nil, `{"id":"a"}`, yes, func(r *gate.Request) { r.Resume.State = "confirmed" }, fault.InvalidParams},
		{"no state", nil, `{"id":"a"}`, yes, func(r *gate.Request) { r.Resume.State = "" }, "asked"},
		{"the target changed", func(_ *world, p *purge) { p.version = "8" }, `{"id":"a"}`, yes, nil, "asked"},
		{"just in time", func(w *world, _ *purge) { w.clock.Advance(5*time.Minute - 1) }, `{"id":"a"}`, yes, nil, ""},
		{"too late", func(w *world, _ *purge) { w.clock.Advance(5 * time.Minute) }, `{"id":"a"}`, yes, nil, fault.InvalidParams},
		{"the clock set back", func(w *world, _ *purge) { w.clock.Advance(-time.Hour) }, `{"id":"a"}`, yes, nil, fault.InvalidParams},
		{"no answer", nil, `{"id":"a"}`, "", nil, "asked"},
		{"an answer to another question", nil, `{"id":"a"}`, `{"other":{"action":"accept","content":{"confirm":true}}}`, nil, "asked"},
		{"declined", nil, `{"id":"a"}`, declined, nil, fault.PolicyDenied},
		{"cancelled", nil, `{"id":"a"}`, cancelled, nil, fault.PolicyDenied},
		{"accepted, not ticked", nil, `{"id":"a"}`, unticked, nil, fault.PolicyDenied},
		{"a word for true", nil, `{"id":"a"}`, `{"confirm":{"action":"accept","content":{"confirm":"true"}}}`, nil, fault.PolicyDenied},
		{"no answer can be had", func(w *world, _ *purge) { w.once.down = errDown }, `{"id":"a"}`, yes, nil, fault.StoreUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &purge{version: "7"}
			erase := p.operation(func(op *catalog.Operation) { op.Name = "erase" })
			w := newWorld(t, nil, p.operation(nil), erase)
			state := w.question(t, `{"id":"a"}`)
			if tt.before != nil {
				tt.before(w, p)
			}
			reply := w.answer(t, tt.in, state, tt.answers, tt.change)
			switch {
			case tt.want == "asked":
				if reply.Ask == nil {
					t.Errorf("%s, want the question again", describe(reply))
				}
			case fault.CodeOf(errOf(reply)) != tt.want:
				t.Errorf("%s, want %q", describe(reply), tt.want)
			}
			if ran := p.ran == 1; ran != (tt.want == "") {
				t.Errorf("it ran: %v", ran)
			}
		})
	}
}

func TestConfirmationIsGoodOnce(t *testing.T) {
	p := &purge{version: "7"}
	w := newWorld(t, nil, p.operation(nil))
	state := w.question(t, `{"id":"a"}`)
	wantOK(t, w.answer(t, `{"id":"a"}`, state, yes, nil))
	wantFault(t, w.answer(t, `{"id":"a"}`, state, yes, nil), fault.InvalidParams)
	if p.ran != 1 {
		t.Errorf("ran %d times with one confirmation", p.ran)
	}
	wantOK(t, w.answer(t, `{"id":"a"}`, w.question(t, `{"id":"a"}`), yes, nil)) // another one is another one
}

// A state that does not open is refused in the same words, whatever is wrong with it.
func TestBadStatesAreAlike(t *testing.T) {
	p := &purge{}
	w := newWorld(t, nil, p.operation(nil))
	state := w.question(t, `{"id":"a"}`)
	words := map[string]bool{}
	for _, bad := range []string{"x", state + "A", state[:len(state)-1], strings.Repeat("A", 100), "\n" + state} {
		reply := w.answer(t, `{"id":"a"}`, bad, yes, nil)
		wantFault(t, reply, fault.InvalidParams)
		words[reply.Fault.Message] = true
	}
	w.clock.Advance(time.Hour)
	words[w.answer(t, `{"id":"a"}`, state, yes, nil).Fault.Message] = true
	if len(words) != 1 {
		t.Errorf("words %v, want one sentence", words)
	}
}

func TestClientThatCannotConfirm(t *testing.T) {
	p := &purge{}
	w := newWorld(t, nil, p.operation(nil))
	reply := w.call(t, "purge", `{"id":"a"}`, func(r *gate.Request) { r.Client = catalog.ClientCaps{Sampling: true, Roots: true} })
	wantFault(t, reply, fault.MissingCapability)
	data := string(reply.Fault.Form(reply.Dialect(), fault.Tool, fault.Stateless).Data)
	if data != `{"requiredCapabilities":{"elicitation":{}}}` || p.ran != 0 {
		t.Errorf("data %s, ran %d times", data, p.ran)
	}
}

func TestPreviewFails(t *testing.T) {
	gone := fault.New(fault.NotFound, "there is no such document")
	for err, want := range map[error]fault.Code{gone: fault.NotFound, errDown: fault.StoreUnavailable} {
		p := &purge{err: err}
		w := newWorld(t, nil, p.operation(nil))
		wantFault(t, w.call(t, "purge", `{"id":"a"}`, nil), want)
	}
}

// asks is an operation that counts to three with a question each time.
func asks(op *catalog.Operation) {
	op.Run = func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
		n, _ := c.State.Get("n").Int()
		if n == 3 {
			return okResult(), nil
		}
		if n > 0 && c.Answers.Get("q").Str() != fmt.Sprint("answer ", n) {
			return catalog.Result{}, fault.New(fault.InvalidRequest, "answer %s to question %d", c.Answers, n)
		}
		return catalog.Result{}, &catalog.NeedInput{
			Requests: []catalog.InputRequest{{Key: "q", Method: "sampling/createMessage", Params: canonjson.Object()}},
			State:    canonjson.Object(canonjson.M("n", canonjson.Int(n+1))),
		}
	}
}

// sampling is a client that can be asked for samples and confirmations.
func sampling(r *gate.Request) { r.Client = catalog.ClientCaps{Sampling: true, Elicitation: true} }

func TestNeedInput(t *testing.T) {
	w := newWorld(t, nil, operation("count", asks))
	reply := w.call(t, "count", `{}`, sampling)
	for n := 1; n <= 3; n++ {
		if reply.Ask == nil {
			t.Fatalf("round %d: %s, want a question", n, describe(reply))
		}
		if strings.Contains(reply.Ask.State, "n") && strings.Contains(reply.Ask.State, `"`) {
			t.Errorf("the state %q can be read", reply.Ask.State)
		}
		state := reply.Ask.State
		reply = w.call(t, "count", `{}`, func(r *gate.Request) {
			sampling(r)
			r.Resume = &gate.Resume{State: state, Answers: parse(t, fmt.Sprintf(`{"q":"answer %d"}`, n))}
		})
	}
	wantOK(t, reply)
	wantFault(t, w.call(t, "count", `{}`, nil), fault.MissingCapability)
	wantFault(t, w.call(t, "count", `{}`, func(r *gate.Request) {
		sampling(r)
		r.Resume = &gate.Resume{State: "x"}
	}), fault.InvalidParams)
}

// A state that an operation sealed confirms nothing, and one question does not ask for another confirmation.
func TestConfirmedOperationThatAsks(t *testing.T) {
	p := &purge{version: "7"}
	w := newWorld(t, nil, p.operation(asks))
	first := w.call(t, "purge", `{}`, sampling)
	state := first.Ask.State
	confirmed := w.answer(t, `{}`, state, yes, sampling)
	if confirmed.Ask == nil || confirmed.Ask.Requests[0].Key != "q" {
		t.Fatalf("%s, want the operation's own question", describe(confirmed))
	}
	reply := confirmed
	for n := 1; n <= 3; n++ {
		if reply.Ask == nil || reply.Ask.Requests[0].Key != "q" {
			t.Fatalf("round %d: %s, want the operation's question", n, describe(reply))
		}
		reply = w.answer(t, `{}`, reply.Ask.State, fmt.Sprintf(`{"q":"answer %d"}`, n), sampling)
	}
	wantOK(t, reply)
	// The answered state is used up: it does not run the confirmed operation a second time.
	wantFault(t, w.answer(t, `{}`, confirmed.Ask.State, `{"q":"answer 1"}`, sampling), fault.InvalidParams)
	wantFault(t, w.answer(t, `{}`, state, yes, sampling), fault.InvalidParams)

	// The target changed between two questions: it is asked for again.
	again := w.answer(t, `{}`, w.call(t, "purge", `{}`, sampling).Ask.State, yes, sampling)
	p.version = "8"
	reply = w.answer(t, `{}`, again.Ask.State, `{"q":"answer 1"}`, sampling)
	if reply.Ask == nil || reply.Ask.Requests[0].Key != "confirm" {
		t.Errorf("%s, want to be asked to confirm again", describe(reply))
	}
}

// What an operation keeps is bounded.
func TestStateTooLong(t *testing.T) {
	w := newWorld(t, nil, operation("count", runs(func(context.Context, *catalog.Call) (catalog.Result, error) {
		return catalog.Result{}, &catalog.NeedInput{State: canonjson.String(strings.Repeat("x", 100_000))}
	})))
	reply := w.call(t, "count", `{}`, nil)
	wantFault(t, reply, fault.StoreUnavailable)
	if !strings.Contains(reply.Fault.Unwrap().Error(), seal.ErrTooLong.Error()) {
		t.Errorf("cause %v", reply.Fault.Unwrap())
	}
}
