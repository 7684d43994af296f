//go:build unix

package site

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	catalogue "github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
	"github.com/tabellion-mcp/tabellion/model/tools"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Engine is everything that callers of models can ask; *engine.Engine is one. Tests wrap it to plant faults.
type Engine interface {
	tools.Engine
	QueryOne(ctx context.Context, c engine.Call, text string, params canonjson.Value) (canonjson.Value, error)
	QueryWithCount(ctx context.Context, c engine.Call, text string, params canonjson.Value) (*engine.Counted, error)
	Count(ctx context.Context, c engine.Call, name string, condition canonjson.Value) (int64, error)
	Exists(ctx context.Context, c engine.Call, name string, condition canonjson.Value) (bool, error)
	InsertMany(ctx context.Context, c engine.Call, name string, docs canonjson.Value) ([]canonjson.Value, error)
	UpdateMany(ctx context.Context, c engine.Call, name string, condition, data canonjson.Value) (int64, error)
	Upsert(ctx context.Context, c engine.Call, name string, condition, data canonjson.Value) (canonjson.Value, error)
	Mutation(ctx context.Context, c engine.Call, name string, data canonjson.Value) (canonjson.Value, error)
}

var _ Engine = (*engine.Engine)(nil)

// Config says what is served, and with which rights.
type Config struct {
	Definitions string // JSON array of model definitions
	// Seed is an object: model -> rows. It is written once, as an internal caller; "" when the rows are there.
	Seed string
	// Tables: the tables are there already, and no DDL is run.
	Tables bool
	// Policy is a dynamic policy as JSON; "" is none.
	Policy       string
	Unconfigured model.Unconfigured // "" is closed
	Surface      tools.Surface      // "" is one tool a model and verb
	// Rights are the server's policy; nil allows everything.
	Rights policy.Decider
	// Strict: see engine.Config.
	Strict bool
	// Clock is the engine's; nil is the machine's.
	Clock clock.Clock
	// Known is what calls straight to the engine say that a caller may know of; nil: all that is not hidden.
	Known func(Who, *model.Model) bool

	// What tests replace to plant faults. Nil: nothing.
	Registry   func(*model.Registry)
	Permission func(*model.Permission)
	Source     func(plan.Source) plan.Source
	Engine     func(Engine, *Site) Engine
}

// Site is models on a place, behind a gate. It is safe for concurrent use.
type Site struct {
	Place      *Place
	Registry   *model.Registry
	Permission *model.Permission
	Engine     Engine // as tests wrapped it
	Pure       *engine.Engine
	Gate       *gate.Gate
	Catalog    *catalogue.Catalog
	Log        *Log

	unwrapped plan.Source
	known     func(Who, *model.Model) bool
}

// Log keeps what the operator's log got. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// New builds a site.
func New(t testing.TB, p *Place, c Config) *Site {
	t.Helper()
	s := &Site{Place: p, Log: &Log{}, known: c.Known, Registry: model.NewRegistry(model.Options{})}
	if err := s.Registry.Register(JSON(t, c.Definitions).Items()...); err != nil {
		t.Fatal(err)
	}
	if !c.Tables {
		p.Exec(t, append(sqlgen.DDL(p.Engine, s.Registry.List()), sqlgen.IdempotencyDDL(p.Engine))...)
	}
	if c.Registry != nil {
		c.Registry(s.Registry)
	}
	s.permit(t, c)
	s.connect(t, c)
	s.seed(t, c.Seed)
	s.serve(t, c)
	return s
}

// permit makes the permission.
func (s *Site) permit(t testing.TB, c Config) {
	t.Helper()
	rules := model.DefaultRules()
	if c.Unconfigured != "" {
		rules.Unconfigured = c.Unconfigured
	}
	s.Permission = &model.Permission{Rules: rules}
	if c.Policy != "" {
		var err error
		if s.Permission.Policy, err = model.ParsePolicy(JSON(t, c.Policy)); err != nil {
			t.Fatal(err)
		}
	}
	if c.Permission != nil {
		c.Permission(s.Permission)
	}
}

// connect opens the source and makes the engine.
func (s *Site) connect(t testing.TB, c Config) {
	t.Helper()
	s.unwrapped = s.Place.Open(t)
	if problems, err := s.unwrapped.Bind(t.Context(), s.Registry.List()); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	source := s.unwrapped
	if c.Source != nil {
		source = c.Source(source)
	}
	var err error
	s.Pure, err = engine.New(engine.Config{
		Registry: s.Registry, Permission: s.Permission, Sources: map[string]plan.Source{"default": source},
		Log: slog.New(slog.NewTextHandler(s.Log, nil)), Strict: c.Strict, Clock: c.Clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Engine = s.Pure
	if c.Engine != nil {
		s.Engine = c.Engine(s.Pure, s)
	}
}

// seed writes the rows.
func (s *Site) seed(t testing.TB, seed string) {
	t.Helper()
	if seed == "" {
		return
	}
	for _, rows := range JSON(t, seed).Members() {
		if _, err := s.Pure.InsertMany(t.Context(), s.Internal(), rows.Name, rows.Value); err != nil {
			t.Fatalf("seed %s: %v", rows.Name, err)
		}
	}
}

// serve puts the tools behind a gate.
func (s *Site) serve(t testing.TB, c Config) {
	t.Helper()
	made, err := tools.New(tools.Config{
		Registry: s.Registry, Permission: s.Permission, Engine: s.Engine, Cursors: plainCursors{}, Surface: c.Surface,
		Writable: func(*model.Model) bool { return s.Place.Write != "" },
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Catalog, err = catalogue.New(catalogue.ContractNames, made.Operations()...); err != nil {
		t.Fatal(err)
	}
	store := memory.New(clock.System{})
	sealer, err := seal.New(t.Context(), store, clock.System{}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	limits := gate.DefaultLimits()
	limits.Rate, limits.Concurrency, limits.TotalConcurrency = 0, 0, 0
	if c.Rights == nil {
		c.Rights = policy.Open{}
	}
	s.Gate = gate.New(gate.Config{
		Catalog: s.Catalog, Decider: c.Rights, Auth: nobody{}, Sealer: sealer, Recorder: inproc.Discard{}, Once: store,
		Limits: limits, Clock: clock.System{}, Log: slog.New(slog.NewTextHandler(s.Log, nil)),
	})
}

// nobody authenticates nobody: callers are given.
type nobody struct{}

// Authenticate refuses.
func (nobody) Authenticate(context.Context, identity.Credentials) (*identity.Principal, string, error) {
	return nil, "no key", nil
}

// plainCursors are cursors that anybody can read: tests look at what is sealed. A changed one is refused, as a sealed one.
type plainCursors struct{}

// Seal writes what a cursor holds.
func (plainCursors) Seal(_ seal.Purpose, _ time.Duration, bind, plain []byte) (string, error) {
	return base64.RawURLEncoding.EncodeToString(bind) + "." + base64.RawURLEncoding.EncodeToString(plain), nil
}

// Open reads it.
func (plainCursors) Open(_ seal.Purpose, bind []byte, text string) ([]byte, error) {
	b, rest, _ := strings.Cut(text, ".")
	if b != base64.RawURLEncoding.EncodeToString(bind) {
		return nil, fmt.Errorf("another request's")
	}
	return base64.RawURLEncoding.DecodeString(rest)
}

// Who is a caller.
type Who struct {
	User   string // "" is nobody known
	Roles  []string
	Tenant string
	// Nobody: there is no context at all.
	Nobody bool
}

// Context is the caller as models see him, made as the server makes it.
func (w Who) Context() *model.Context {
	if w.Nobody {
		return nil
	}
	return &model.Context{UserID: w.User, Roles: w.Roles, Values: map[string]canonjson.Value{"tenant": canonjson.String(w.Tenant)}}
}

// Principal is the caller as the gate sees him.
func (w Who) Principal() *identity.Principal {
	subject := "user:" + w.User
	subjects := []string{subject}
	for _, r := range w.Roles {
		subjects = append(subjects, "role:"+r)
	}
	return &identity.Principal{Subject: subject, Subjects: subjects, Roles: w.Roles, Tenant: w.Tenant, Method: identity.MethodKey}
}

// As is a call of w straight to the engine, as the tools make it: hidden models and those without a right are not known.
func (s *Site) As(w Who) engine.Call {
	c := engine.Call{Access: s.Permission.For(w.Context()), Profile: plan.Served}
	c.Known = func(m *model.Model) bool {
		if s.known != nil {
			return s.known(w, m)
		}
		return !m.Hidden && (m.ArchiveOf == nil || !m.ArchiveOf.Hidden)
	}
	return c
}

// Internal is a call with every right.
func (s *Site) Internal() engine.Call {
	return engine.Call{Access: s.Permission.For(&model.Context{Internal: true}), Profile: plan.Standard}
}

// Answer is what a caller got.
type Answer struct {
	OK      bool
	Code    string // of a refusal; a number for a protocol error
	Message string // of a refusal
	Value   canonjson.Value
	// Said is every byte that the caller got: structured content, texts, labels, or the whole refusal.
	Said string
}

// Call asks a tool behind the gate. The arguments are JSON text.
func (s *Site) Call(t testing.TB, w Who, tool, arguments string) Answer {
	t.Helper()
	v, flaw, err := canonjson.Parse([]byte(`{"arguments":`+arguments+`}`), gate.FrameLimits())
	if err != nil {
		t.Fatalf("the test's own arguments are no JSON: %v: %.200s", err, arguments)
	}
	reply := s.Gate.Run(t.Context(), gate.Request{
		Who: w.Principal(), Endpoint: catalogue.All, Surface: fault.Tool, Era: fault.Stateless, Name: tool, In: v.Get("arguments"), Flaw: flaw,
	})
	if reply.Fault == nil && reply.Result == nil {
		t.Fatalf("%s asks a question", tool)
	}
	if reply.Fault == nil {
		return succeeded(t, reply)
	}
	return refused(t, reply)
}

// succeeded reads a success.
func succeeded(t testing.TB, r gate.Reply) Answer {
	t.Helper()
	a := Answer{OK: true, Said: string(r.Result.JSON)}
	for _, b := range r.Result.Blocks {
		a.Said += "\n" + b.Text
	}
	a.Said += "\n" + r.Labels().String()
	a.Value = JSON(t, string(r.Result.JSON))
	return a
}

// refused reads a refusal.
func refused(t testing.TB, r gate.Reply) Answer {
	t.Helper()
	form := r.Fault.Form(r.Dialect(), fault.Tool, fault.Stateless)
	if !form.ToolError {
		return Answer{Code: fmt.Sprint(form.RPC), Message: form.Message, Said: fmt.Sprint(form.RPC, " ", form.Message, " ", string(form.Data))}
	}
	v := JSON(t, string(form.Tool))
	if e := v.Get("error"); !e.IsAbsent() {
		v = e
	}
	return Answer{Code: v.Get("code").Str(), Message: v.Get("message").Str(), Value: v, Said: string(form.Tool)}
}

// Listing is the tools that a caller sees, as the JSON text of tools/list.
func (s *Site) Listing(t testing.TB, w Who) string {
	t.Helper()
	view, f := s.Gate.View(t.Context(), w.Principal(), catalogue.All)
	if f != nil {
		t.Fatal(f)
	}
	return string(view.ToolsJSON())
}

// JSON parses the test's own JSON. Integers may be large.
func JSON(t testing.TB, text string) canonjson.Value {
	t.Helper()
	v, _, err := canonjson.Parse([]byte(text), canonjson.Limits{Depth: 200, Nodes: 1_000_000})
	if err != nil {
		t.Fatalf("%v: %.300s", err, text)
	}
	return v
}

// Quote is s as JSON text.
func Quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always encodes
	}
	return string(text)
}
