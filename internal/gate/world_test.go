package gate_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/policy"
)

// start is where the clock of every test stands.
var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is a gate between small fakes. Every fake notes in trace that it was asked.
type world struct {
	*gate.Gate
	clock   *clock.Manual
	decider *decider
	auth    *auth
	audit   *recorder
	once    *once
	seen    *observer
	log     *logText

	mu    sync.Mutex
	trace []string
}

// note adds to the trace.
func (w *world) note(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, word)
}

// took gives the trace since the last call.
func (w *world) took() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := strings.Join(w.trace, " ")
	w.trace = nil
	return out
}

// newWorld makes a gate over ops with the default limits. Change the configuration in change.
func newWorld(t testing.TB, change func(*gate.Config), ops ...*catalog.Operation) *world {
	t.Helper()
	w := &world{clock: clock.NewManual(start), log: &logText{}, seen: &observer{}}
	w.decider, w.auth = &decider{w: w, allow: func(policy.Check) bool { return true }}, &auth{}
	w.audit, w.once = &recorder{}, &once{w: w, used: map[string]bool{}}
	sealer, err := seal.New(context.Background(), &ring{}, w.clock, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.New(catalog.ContractNames, ops...)
	if err != nil {
		t.Fatal(err)
	}
	cfg := gate.Config{
		Catalog: c, Decider: w.decider, Auth: w.auth, Sealer: sealer, Recorder: w.audit, Once: w.once, Limits: gate.DefaultLimits(),
		Clock: w.clock, Log: slog.New(slog.NewTextHandler(w.log, nil)), Observer: w.seen,
	}
	if change != nil {
		change(&cfg)
	}
	w.Gate = gate.New(cfg)
	return w
}

// limits changes only the limits.
func limits(change func(*gate.Limits)) func(*gate.Config) {
	return func(c *gate.Config) { change(&c.Limits) }
}

// decider answers by allow, and fails with down.
type decider struct {
	w     *world
	allow func(policy.Check) bool
	down  error
	short bool // one decision too few
	asked [][]policy.Check
	who   [][]string
}

// Decide answers.
func (d *decider) Decide(_ context.Context, subjects []string, checks []policy.Check) ([]policy.Decision, error) {
	d.w.note("decide")
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.asked, d.who = append(d.asked, checks), append(d.who, subjects)
	if d.down != nil {
		return nil, d.down
	}
	var out []policy.Decision
	for _, c := range checks {
		out = append(out, policy.Decision{Allow: d.allow(c), Rule: "rule of " + string(c.Path)})
	}
	if d.short {
		out = out[1:]
	}
	return out, nil
}

// auth answers as it is set.
type auth struct {
	who    *identity.Principal
	reason string
	err    error
	asked  int
}

// Authenticate answers.
func (a *auth) Authenticate(context.Context, identity.Credentials) (*identity.Principal, string, error) {
	a.asked++
	return a.who, a.reason, a.err
}

// recorder keeps entries.
type recorder struct {
	mu          sync.Mutex
	store, read []audit.Entry
	refuse      error // of Commit
}

// Store keeps e.
func (r *recorder) Store(e audit.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store = append(r.store, e)
}

// Read keeps e.
func (r *recorder) Read(e audit.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = append(r.read, e)
}

// Commit keeps e.
func (r *recorder) Commit(_ context.Context, e audit.Entry) error {
	if r.refuse != nil {
		return r.refuse
	}
	r.Store(e)
	return nil
}

// count is how many entries there are.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.store) + len(r.read)
}

// last is the newest entry of those in the store, or of the lines.
func (r *recorder) last(t testing.TB, stored bool) audit.Entry {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.read
	if stored {
		from = r.store
	}
	if len(from) == 0 {
		t.Fatal("no entry")
	}
	return from[len(from)-1]
}

// once remembers for ever.
type once struct {
	w    *world
	used map[string]bool
	down error
}

// Once answers.
func (o *once) Once(_ context.Context, id string, _ time.Time) (bool, error) {
	o.w.note("once")
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	first := !o.used[id]
	o.used[id] = true
	return first, o.down
}

// ring keeps sealing keys in memory.
type ring struct{ keys []seal.Key }

// SealKeys gives them.
func (r *ring) SealKeys(context.Context) ([]seal.Key, error) { return r.keys, nil }

// AddSealKey adds one.
func (r *ring) AddSealKey(_ context.Context, k seal.Key, _ time.Time) error {
	r.keys = slices.Insert(r.keys, 0, k)
	return nil
}

// observer counts outcomes.
type observer struct {
	mu     sync.Mutex
	called []string
	faults []fault.Code
}

// Called notes an outcome.
func (o *observer) Called(op string, _ fault.Surface, outcome string, _ time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.called = append(o.called, op+" "+outcome)
}

// Refused notes a code.
func (o *observer) Refused(c fault.Code) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = append(o.faults, c)
}

// logText collects the log.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends.
func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String gives all.
func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// schema of most operations here.
const schema = `{"type":"object","additionalProperties":false,"properties":{"namespace":{"type":"string"},"idempotencyKey":{"type":"string"},"id":{"type":"string","maxLength":20},"payload":{}}}`

// outSchema asks for a number n.
const outSchema = `{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`

// okResult fits outSchema.
func okResult() catalog.Result {
	return catalog.Result{Value: canonjson.Object(canonjson.M("n", canonjson.Int(1)))}
}

// operation makes a tool on /persistence/<id> that answers {"n":1}. Change it in change.
func operation(name string, change func(*catalog.Operation)) *catalog.Operation {
	op := &catalog.Operation{
		Errors: fault.PersistenceDialect,
		Name:   name, Slot: catalog.Persistence, Doc: "x", In: catalog.MustSchema(schema), Out: catalog.MustSchema(outSchema),
		Capability: policy.PersistenceWrite, Publish: catalog.Publish{Tool: true},
		Targets: func(_ context.Context, _ catalog.Lookup, in canonjson.Value) ([]policy.Check, error) {
			return []policy.Check{{Capability: policy.PersistenceWrite, Path: policy.Path("/persistence/" + in.Get("id").Str())}}, nil
		},
		Run: func(context.Context, *catalog.Call) (catalog.Result, error) { return okResult(), nil },
	}
	if change != nil {
		change(op)
	}
	return op
}

// runs makes the operation run f.
func runs(f func(context.Context, *catalog.Call) (catalog.Result, error)) func(*catalog.Operation) {
	return func(op *catalog.Operation) { op.Run = f }
}

// readOnly declares an operation read-only.
func readOnly(op *catalog.Operation) { op.Effects.ReadOnly = catalog.Yes }

// who is a principal called user:<name>.
func who(name string) *identity.Principal {
	return &identity.Principal{Subject: "user:" + name, Subjects: []string{"user:" + name}, Method: identity.MethodKey}
}

// parse reads arguments.
func parse(t testing.TB, text string) canonjson.Value {
	t.Helper()
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{Depth: 1000, Nodes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// call calls a tool as ana. Change the request in change.
func (w *world) call(t testing.TB, tool, in string, change func(*gate.Request)) gate.Reply {
	t.Helper()
	r := gate.Request{
		Who: who("ana"), Endpoint: catalog.All, Surface: fault.Tool, Era: fault.Stateless, Name: tool, In: parse(t, in), Addr: "192.0.2.1",
		Client: catalog.ClientCaps{Elicitation: true},
	}
	if change != nil {
		change(&r)
	}
	reply := w.Run(context.Background(), r)
	set := 0
	for _, is := range []bool{reply.Result != nil, reply.Fault != nil, reply.Ask != nil} {
		if is {
			set++
		}
	}
	if set != 1 || reply.Correlation == "" {
		t.Fatalf("reply %+v: want exactly one of the three, and a correlation", reply)
	}
	return reply
}

// wantFault fails unless the reply is a fault of this code.
func wantFault(t testing.TB, reply gate.Reply, c fault.Code) {
	t.Helper()
	if reply.Fault == nil || reply.Fault.Code != c {
		t.Fatalf("reply %s, want %s", describe(reply), c)
	}
}

// wantOK fails unless the reply is a result.
func wantOK(t testing.TB, reply gate.Reply) {
	t.Helper()
	if reply.Result == nil {
		t.Fatalf("reply %s, want a result", describe(reply))
	}
}

// describe shows a reply in messages.
func describe(r gate.Reply) string {
	switch {
	case r.Fault != nil:
		return fmt.Sprintf("%v (%v)", r.Fault, r.Fault.Unwrap())
	case r.Ask != nil:
		return fmt.Sprintf("a question %+v", r.Ask.Requests)
	}
	return "a result " + string(r.Result.JSON)
}

// errDown is what a fake fails with.
var errDown = errors.New("dial 10.0.0.7: SECRET")
