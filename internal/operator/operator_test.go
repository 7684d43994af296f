package operator_test

import (
	"context"
	"crypto/rand"
	"errors"
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
	"github.com/tabellion-mcp/tabellion/internal/operator"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/policy"
)

// start is where the clock of every test stands.
var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// entries is a gate.Recorder that keeps what it gets.
type entries struct {
	mu          sync.Mutex
	store, read []audit.Entry
}

// Store keeps e.
func (r *entries) Store(e audit.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store = append(r.store, e)
}

// Read keeps e.
func (r *entries) Read(e audit.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = append(r.read, e)
}

// Commit keeps e.
func (r *entries) Commit(_ context.Context, e audit.Entry) error {
	r.Store(e)
	return nil
}

// server is the operator's operations behind a gate, over the store in memory.
type server struct {
	gate    *gate.Gate
	catalog *catalog.Catalog
	store   *memory.Store
	auth    *identity.Authenticator
	clock   *clock.Manual
	audit   *entries
	broken  error // of the part "audit"
}

// document stands for the other slots: a published tool that may be hidden.
func document() *catalog.Operation {
	hidden, _ := policy.ParsePattern("/models/Secret/**")
	return &catalog.Operation{
		Name: "models.get", Slot: catalog.Models, Doc: "x", In: catalog.MustSchema(`{"type":"object"}`), Capability: policy.ModelsRead,
		KnownOn: hidden, Publish: catalog.Publish{Tool: true, Resources: []catalog.Resource{{URI: "x://y"}}},
		Effects: catalog.Effects{ReadOnly: catalog.Yes},
		Targets: func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) { return nil, nil },
		Run:     func(context.Context, *catalog.Call) (catalog.Result, error) { return catalog.Result{}, nil },
	}
}

// newServer makes a server. ana may do everything as operator, otto may read, nobody else has a right.
func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{clock: clock.NewManual(start), audit: &entries{}}
	s.store = memory.New(s.clock)
	log := slog.New(slog.DiscardHandler)
	sealer, err := seal.New(context.Background(), s.store, s.clock, rand.Reader)
	must(t, err)
	s.auth, err = identity.NewAuthenticator(identity.Config{Keys: s.store, Clock: s.clock, Log: log})
	must(t, err)
	t.Cleanup(func() { must(t, s.auth.Close(context.Background())) })
	keys, err := identity.NewKeyService(identity.ServiceConfig{Keys: s.store, Auth: s.auth, Clock: s.clock, Random: rand.Reader})
	must(t, err)
	rules := policy.Config{
		Roles: map[string][]string{"chief": {"operator.read", "operator.admin"}, "looker": {"operator.read"}},
		Assignments: []policy.Assignment{
			{Subject: "user:ana", Role: "chief", On: "/operator/**"}, {Subject: "user:otto", Role: "looker", On: "/operator/**"},
			{Subject: "role:watch", Role: "looker", On: "/operator/keys"},
		},
	}
	decider, err := policy.New(rules)
	must(t, err)
	me, err := identity.Local("me", []string{"watch"})
	must(t, err)
	ops := operator.Operations(operator.Config{
		Local: me, Policy: &rules,
		Keys: keys, Catalog: func() *catalog.Catalog { return s.catalog },
		Explain: func(ctx context.Context, subjects []string, c policy.Check) (policy.Decision, error) {
			return s.gate.Explain(ctx, subjects, c)
		},
		Health: func(context.Context) []operator.Part {
			return []operator.Part{{Name: "store"}, {Name: "audit", Err: s.broken}}
		},
	})
	s.catalog, err = catalog.New(catalog.ContractNames, append(ops, document())...)
	must(t, err)
	s.gate = gate.New(gate.Config{
		Catalog: s.catalog, Decider: decider, Auth: s.auth, Sealer: sealer, Recorder: s.audit, Once: s.store,
		Limits: gate.DefaultLimits(), Clock: s.clock, Log: log,
	})
	return s
}

// must ends the test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// try runs an operation as a local user.
func (s *server) try(t testing.TB, user, operation, in string) gate.Reply {
	t.Helper()
	who, err := identity.Local("user:"+user, nil)
	must(t, err)
	v, err := canonjson.ParseStrict([]byte(in), canonjson.Limits{})
	must(t, err)
	return s.gate.Run(context.Background(), gate.Request{Who: who, Surface: fault.Command, Name: operation, In: v})
}

// run runs an operation that succeeds, as ana.
func (s *server) run(t testing.TB, operation, in string) canonjson.Value {
	t.Helper()
	reply := s.try(t, "ana", operation, in)
	if reply.Fault != nil {
		t.Fatalf("%s %s: %v (%v)", operation, in, reply.Fault, reply.Fault.Unwrap())
	}
	return reply.Result.Value
}

// rows gives the audit rows in the store.
func (s *server) rows(t testing.TB) []canonjson.Value {
	t.Helper()
	head, err := s.store.AuditHead(context.Background())
	must(t, err)
	records, err := s.store.AuditRows(context.Background(), head.Writer, 0, 1000)
	must(t, err)
	var out []canonjson.Value
	for _, r := range records {
		v, err := canonjson.ParseStrict(r.Row, canonjson.Limits{})
		must(t, err)
		out = append(out, v)
	}
	return out
}

func TestKeysFromBirthToDeath(t *testing.T) {
	s := newServer(t)
	made := s.run(t, "operator.keys.create", `{"user":"bob","name":"laptop","roles":["reader"],"only":["persistence.read@/persistence/**"],"expires":"90d"}`)
	id, secret := made.At("/key/id").Str(), made.Get("secret").Str()
	if p, _, err := s.auth.Authenticate(context.Background(), identity.Credentials{Key: secret}); err != nil || p == nil || p.KeyID != id || len(p.Only) != 1 {
		t.Fatalf("the new key: %+v, %v", p, err)
	}
	s.run(t, "operator.keys.create", `{"user":"carol","name":"ci"}`)

	if got := s.run(t, "operator.keys.list", `{}`).Get("keys").Len(); got != 2 {
		t.Errorf("%d keys listed, want 2", got)
	}
	if got := s.run(t, "operator.keys.list", `{"user":"bob"}`).At("/keys/0/id").Str(); got != id {
		t.Errorf("bob's key is %q, want %q", got, id)
	}
	shown := s.run(t, "operator.keys.show", `{"id":"`+id+`"}`)
	if shown.Get("name").Str() != "laptop" || !shown.Get("live").Bool() || shown.Get("expiresAt").Str() != "2027-02-28T12:00:00.000Z" {
		t.Errorf("shown %s", shown)
	}

	next := s.run(t, "operator.keys.rotate", `{"id":"`+id+`","grace":"1h"}`)
	if next.Get("secret").Str() == secret || next.At("/key/user").Str() != "bob" {
		t.Errorf("rotated %s", next)
	}
	nextID := next.At("/key/id").Str()
	revoked := s.run(t, "operator.keys.revoke", `{"id":"`+nextID+`","reason":"lost"}`)
	if revoked.Get("live").Bool() || revoked.Get("reason").Str() != "lost" {
		t.Errorf("revoked %s", revoked)
	}
	if p, _, _ := s.auth.Authenticate(context.Background(), identity.Credentials{Key: next.Get("secret").Str()}); p != nil {
		t.Error("a revoked key is good")
	}
	s.clock.Advance(40 * 24 * time.Hour)
	if got := s.run(t, "operator.keys.list", `{"live":true}`).Get("keys").Len(); got != 1 {
		t.Errorf("%d live keys, want carol's", got)
	}
	if got := s.run(t, "operator.keys.prune", `{}`).Get("ids").Len(); got != 2 {
		t.Errorf("%d keys pruned, want 2", got)
	}

	var notes []string
	for _, r := range s.rows(t) {
		if r.Get("kind").Str() != "key" || r.Get("subject").Str() != "user:ana" || r.Get("outcome").Str() != "ok" || r.Get("operation").Str() == "" || r.Get("input").Str() == "" {
			t.Errorf("row %s", r)
		}
		notes = append(notes, r.Get("target").Str()+" "+r.Get("note").Str())
	}
	want := []string{"/operator/keys/" + id + " created for bob", "created for carol", "/operator/keys/" + id + " rotated to " + nextID,
		"/operator/keys/" + nextID + " revoked: lost", "/operator/keys pruned 2 keys"}
	if len(notes) != len(want) {
		t.Fatalf("rows %q, want %d", notes, len(want))
	}
	for i := range want {
		if !strings.Contains(notes[i], want[i]) {
			t.Errorf("row %d is %q, want %q", i, notes[i], want[i])
		}
	}
	if len(s.audit.store) != 0 {
		t.Errorf("entries of effects were queued too: %v", s.audit.store)
	}
}

// Every call leaves exactly one entry, also when there was nothing to do.
func TestOneEntryACall(t *testing.T) {
	s := newServer(t)
	id := s.run(t, "operator.keys.create", `{"user":"bob","name":"n"}`).At("/key/id").Str()
	count := func() int { return len(s.rows(t)) + len(s.audit.store) + len(s.audit.read) }
	for _, call := range [][2]string{
		{"operator.keys.revoke", `{"id":"` + id + `"}`},
		{"operator.keys.revoke", `{"id":"` + id + `"}`}, // the second changes nothing
		{"operator.keys.revoke", `{"id":"000000000000"}`},
		{"operator.keys.rotate", `{"id":"` + id + `"}`}, // of a dead key
		{"operator.keys.prune", `{}`},                   // of nothing
		{"operator.keys.list", `{}`},
		{"operator.keys.create", `{"user":"bob"}`}, // no name
		{"operator.surface", `{}`},
	} {
		before := count()
		s.try(t, "ana", call[0], call[1])
		if got := count() - before; got != 1 {
			t.Errorf("%s %s: %d entries, want 1", call[0], call[1], got)
		}
	}
}

// A key's text is in the answer of its making and nowhere else.
func TestSecretIsShownOnce(t *testing.T) {
	s := newServer(t)
	made := s.run(t, "operator.keys.create", `{"user":"bob","name":"n","roles":["r"]}`)
	secret := made.Get("secret").Str()
	shown := s.run(t, "operator.keys.show", `{"id":"`+made.At("/key/id").Str()+`"}`).String() + s.run(t, "operator.keys.list", `{}`).String()
	for _, r := range s.rows(t) {
		shown += r.String()
	}
	for _, e := range slices.Concat(s.audit.read, s.audit.store) {
		shown += string(e.Encode())
	}
	if !strings.HasPrefix(secret, "tbl_") || strings.Contains(shown, secret) || strings.Contains(shown, secret[12:]) {
		t.Error("the key is shown a second time")
	}
}

func TestRights(t *testing.T) {
	s := newServer(t)
	id := s.run(t, "operator.keys.create", `{"user":"bob","name":"n"}`).At("/key/id").Str()
	inputs := map[string]string{
		"operator.keys.create": `{"user":"x","name":"n"}`, "operator.keys.list": `{}`, "operator.keys.show": `{"id":"` + id + `"}`,
		"operator.keys.revoke": `{"id":"` + id + `"}`, "operator.keys.rotate": `{"id":"` + id + `"}`, "operator.keys.prune": `{}`,
		"operator.policy.explain": `{"subject":"user:ana","capability":"operator.read","path":"/operator/keys"}`,
		"operator.health":         `{}`, "operator.surface": `{}`,
		"operator.namespaces": `{}`, "operator.inbound": `{"namespace":"a","id":"b"}`, "operator.retention": `{"age":"0s"}`,
		"operator.audit.read": `{}`, "operator.audit.verify": `{}`, "operator.check": `{}`, "operator.backup": `{"to":"/nowhere"}`,
	}
	changes := map[string]bool{"operator.backup": true, "operator.keys.create": true, "operator.keys.revoke": true, "operator.keys.rotate": true, "operator.keys.prune": true}
	tried := 0
	for _, op := range s.catalog.Operations() {
		if op.Slot != catalog.Operator {
			continue
		}
		in, ok := inputs[op.Name]
		if !ok {
			t.Errorf("operation %s has no row in this test", op.Name)
			continue
		}
		tried++
		for user, allowed := range map[string]bool{"nobody": false, "otto": !changes[op.Name]} {
			before := len(s.rows(t))
			reply := s.try(t, user, op.Name, in)
			if denied := reply.Fault != nil && reply.Fault.Code == fault.PolicyDenied; denied == allowed {
				t.Errorf("%s as %s: %v, want allowed %v", op.Name, user, reply.Fault, allowed)
			}
			if len(s.rows(t)) != before {
				t.Errorf("%s as %s changed something", op.Name, user)
			}
		}
		if facts := op.Effects; (facts.ReadOnly == catalog.No) != changes[op.Name] {
			t.Errorf("%s is declared read-only %v", op.Name, facts.ReadOnly)
		}
	}
	if tried != len(inputs) {
		t.Errorf("%d operations tried, want %d", tried, len(inputs))
	}
}

// No endpoint shows an operation of the slot, and none can be called as a tool, resource or prompt.
func TestUnpublished(t *testing.T) {
	s := newServer(t)
	who, err := identity.Local("user:ana", []string{"admin"})
	must(t, err)
	for _, e := range []catalog.Endpoint{catalog.All, catalog.Of(catalog.Operator), catalog.Of(catalog.Persistence), catalog.Of(catalog.Models)} {
		view, f := s.gate.View(context.Background(), who, e)
		if f != nil {
			t.Fatal(f)
		}
		if strings.Contains(string(view.ToolsJSON()), "operator") {
			t.Errorf("endpoint %s lists an operator's tool", e)
		}
		for _, surface := range []fault.Surface{fault.Tool, fault.Resource, fault.Prompt} {
			reply := s.gate.Run(context.Background(), gate.Request{Who: who, Endpoint: e, Surface: surface, Name: "operator.keys.list"})
			if reply.Fault == nil || !strings.HasPrefix(string(reply.Fault.Code), "unknown_") {
				t.Errorf("endpoint %s, %s: %v, want unknown", e, surface, reply.Fault)
			}
		}
	}
	if reply := s.try(t, "ana", "operator.keys.list", `{}`); reply.Fault != nil {
		t.Errorf("the control, as a command: %v", reply.Fault)
	}
}

func TestExplain(t *testing.T) {
	s := newServer(t)
	tests := []struct {
		in    string
		allow bool
		rule  string
	}{
		{`{"subject":"user:ana","capability":"operator.admin","path":"/operator/keys"}`, true, "assignments[0]"},
		{`{"subject":"user:otto","capability":"operator.admin","path":"/operator/keys"}`, false, "denied by default"},
		{`{"subject":"user:zoe","roles":["admin"],"capability":"persistence.write","path":"/persistence/namespaces/a/documents/b"}`, true, "role admin"},
	}
	for _, tt := range tests {
		got := s.run(t, "operator.policy.explain", tt.in)
		if got.Get("allow").Bool() != tt.allow || !strings.Contains(got.Get("rule").Str(), tt.rule) {
			t.Errorf("%s: %s, want %v by %q", tt.in, got, tt.allow, tt.rule)
		}
	}
	for _, in := range []string{
		`{"subject":"ana","capability":"operator.read","path":"/operator/keys"}`,
		`{"subject":"*","capability":"operator.read","path":"/operator/keys"}`,
		`{"subject":"user:ana","capability":"operator.fly","path":"/operator/keys"}`,
		`{"subject":"user:ana","capability":"operator.read","path":"/operator/**"}`,
		`{"subject":"user:ana","capability":"operator.read","path":"/operator/../keys"}`,
		`{"subject":"user:ana","capability":"operator.read","path":"operator"}`,
		`{"subject":"user:ana","roles":[""],"capability":"operator.read","path":"/operator/keys"}`,
		`{"subject":"user:ana","capability":"operator.read"}`,
	} {
		if reply := s.try(t, "ana", "operator.policy.explain", in); reply.Fault == nil || reply.Fault.Code != fault.InvalidRequest {
			t.Errorf("%s: %v, want invalid_request", in, reply.Fault)
		}
	}
}

func TestHealth(t *testing.T) {
	s := newServer(t)
	if got := s.run(t, "operator.health", `{}`); !got.Get("ready").Bool() || got.Get("parts").Len() != 2 {
		t.Errorf("health %s", got)
	}
	s.broken = errors.New("the disk is full")
	got := s.run(t, "operator.health", `{}`)
	if got.Get("ready").Bool() || got.At("/parts/0/ok").Bool() != true || got.At("/parts/1/message").Str() != "the disk is full" {
		t.Errorf("health %s", got)
	}
}

func TestSurface(t *testing.T) {
	s := newServer(t)
	got := s.run(t, "operator.surface", `{}`)
	if got.Get("endpoints").Len() != 2 || got.At("/endpoints/0/endpoint").Str() != "all" || got.At("/endpoints/1/tools/0").Str() != "models.get" {
		t.Errorf("endpoints %s: want all and models, with the hidden tool", got.Get("endpoints"))
	}
	if n := got.Get("operations").Len(); n != 17 {
		t.Errorf("%d operations, want 17", n)
	}
	last := got.At("/operations/16")
	if last.Get("tool").Str() != "models.get" || !last.Get("readOnly").Bool() || !last.Get("destructive").IsAbsent() || last.At("/resources/0").Str() != "x://y" {
		t.Errorf("operation %s", last)
	}
}

// The operations can be listed without anything behind them; running one says what is missing.
func TestNothingBehind(t *testing.T) {
	for _, op := range operator.Operations(operator.Config{}) {
		_, err := op.Run(context.Background(), &catalog.Call{})
		if fault.CodeOf(err) != fault.UnsupportedFormat {
			t.Errorf("%s: %v, want unsupported_format", op.Name, err)
		}
		if op.Doc == "" || op.Title == "" || op.Out == nil || op.Slot != catalog.Operator {
			t.Errorf("%s lacks words, a schema or its slot", op.Name)
		}
	}
}

// Declared facts are true: a read-only operation changes nothing, an idempotent one run twice changes nothing more.
func TestFacts(t *testing.T) {
	s := newServer(t)
	id := s.run(t, "operator.keys.create", `{"user":"bob","name":"n"}`).At("/key/id").Str()
	s.clock.Advance(time.Second)
	state := func() string { return s.run(t, "operator.keys.list", `{}`).String() }
	for _, call := range [][2]string{
		{"operator.keys.list", `{}`}, {"operator.keys.show", `{"id":"` + id + `"}`}, {"operator.health", `{}`}, {"operator.surface", `{}`},
		{"operator.policy.explain", `{"subject":"user:ana","capability":"operator.read","path":"/operator/keys"}`},
		{"operator.keys.revoke", `{"id":"` + id + `"}`}, {"operator.keys.prune", `{"age":"0m"}`},
	} {
		op := s.catalog.Operation(call[0])
		before, rows := state(), len(s.rows(t))
		s.run(t, call[0], call[1])
		if op.Effects.ReadOnly == catalog.Yes && (state() != before || len(s.rows(t)) != rows) {
			t.Errorf("%s is read-only and changed the keys", call[0])
		}
		s.clock.Advance(time.Second)
		before, rows = state(), len(s.rows(t))
		s.run(t, call[0], call[1])
		if op.Effects.Idempotent == catalog.Yes && (state() != before || len(s.rows(t)) != rows) {
			t.Errorf("%s is idempotent and changed the keys the second time", call[0])
		}
	}
}
