package tools_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
	"github.com/tabellion-mcp/tabellion/model/tools"
	"github.com/tabellion-mcp/tabellion/policy"
)

// setup says how a rig is made. The zero value has no models.
type setup struct {
	definitions string // a JSON array
	policy      string // of roles, fields and rows; "" for none
	rules       model.Unconfigured
	surface     tools.Surface
	only        []string
	decider     policy.Decider // nil: everything is allowed
	readOnly    bool           // the source has no connection for writes
	noKeys      bool           // it has no table for idempotency keys
	context     func(context.Context, *identity.Principal) (*model.Context, error)
	wrap        func(plan.Source) plan.Source
	functions   engine.Functions
	registry    *model.Registry // in place of definitions
	ddl         []string        // in place of what the definitions ask for
}

// rig is a set of models on a real SQLite database behind a real gate, in this process.
type rig struct {
	registry *model.Registry
	access   *model.Permission
	tools    *tools.Tools
	catalog  *catalog.Catalog
	gate     *gate.Gate
	clock    *clock.Manual
	engine   *listener
	inner    *engine.Engine
	audit    *trail
	db       *sql.DB // the test's own connection
	outputs  map[string]*catalog.Schema
}

// newRig makes a rig that ends with the test.
func newRig(t *testing.T, s setup) *rig {
	t.Helper()
	r := &rig{audit: &trail{}, clock: clock.NewManual(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)), outputs: map[string]*catalog.Schema{}}
	r.registry = s.registry
	if r.registry == nil {
		r.registry = registered(t, s.definitions)
	}
	source := r.openSource(t, s)
	r.access = permission(t, s)
	var err error
	r.inner, err = engine.New(engine.Config{
		Registry: r.registry, Permission: r.access, Sources: map[string]plan.Source{"default": source}, Functions: s.functions,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.engine = &listener{Engine: r.inner}
	r.serve(t, s)
	return r
}

// registered reads definitions.
func registered(t testing.TB, definitions string) *model.Registry {
	t.Helper()
	r := model.NewRegistry(model.Options{})
	if err := r.Register(parse(t, definitions).Items()...); err != nil {
		t.Fatal(err)
	}
	return r
}

// permission is what the roles of a setup may do.
func permission(t testing.TB, s setup) *model.Permission {
	t.Helper()
	p := &model.Permission{Rules: model.DefaultRules()}
	if s.rules != "" {
		p.Rules.Unconfigured = s.rules
	}
	if s.policy != "" {
		var err error
		if p.Policy, err = model.ParsePolicy(parse(t, s.policy)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// openSource makes the database of a rig with its tables.
func (r *rig) openSource(t *testing.T, s setup) plan.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.db")
	var err error
	if r.db, err = sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	ddl := s.ddl
	if ddl == nil {
		ddl = sqlgen.DDL(sqlgen.EngineSQLite, r.registry.List())
	}
	if !s.noKeys {
		ddl = append(slices.Clone(ddl), sqlgen.IdempotencyDDL(sqlgen.EngineSQLite))
	}
	r.exec(t, "BEGIN;"+strings.Join(ddl, ";")+";COMMIT")
	cfg := sqlite.Config{Read: path, Write: path}
	if s.readOnly {
		cfg.Write = ""
	}
	source, err := sqlite.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	if problems, err := source.Bind(t.Context(), r.registry.List()); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if s.wrap != nil {
		return s.wrap(source)
	}
	return source
}

// serve puts the tools behind a gate.
func (r *rig) serve(t *testing.T, s setup) {
	t.Helper()
	sealer, err := seal.New(t.Context(), &ring{}, r.clock, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r.tools, err = tools.New(tools.Config{
		Registry: r.registry, Permission: r.access, Engine: r.engine, Cursors: sealer, Surface: s.surface, Only: s.only,
		Writable: func(*model.Model) bool { return !s.readOnly }, Context: s.context,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.catalog, err = catalog.New(catalog.ContractNames, r.tools.Operations()...); err != nil {
		t.Fatal(err)
	}
	if err := r.catalog.Warm(); err != nil {
		t.Fatal(err)
	}
	limits := gate.DefaultLimits()
	limits.Rate, limits.Concurrency, limits.TotalConcurrency = 0, 0, 0
	var decider policy.Decider = policy.Open{}
	if s.decider != nil {
		decider = s.decider
	}
	r.gate = gate.New(gate.Config{
		Catalog: r.catalog, Decider: decider, Auth: nobody{}, Sealer: sealer, Recorder: r.audit, Once: never{}, Limits: limits,
		Clock: r.clock, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}

// exec runs statements on the test's own connection.
func (r *rig) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := r.db.Exec(s); err != nil {
			t.Fatalf("%v\n%s", err, s)
		}
	}
}

// insert adds rows with full rights.
func (r *rig) insert(t testing.TB, name, rows string) {
	t.Helper()
	call := engine.Call{Access: r.access.For(&model.Context{Internal: true}), Profile: plan.Standard}
	if _, err := r.inner.InsertMany(t.Context(), call, name, parse(t, rows)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// count is how many rows a table has.
func (r *rig) count(t testing.TB, table string) (n int) {
	t.Helper()
	if err := r.db.QueryRow(`SELECT count(*) FROM "` + table + `"`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// as is the caller of a name with roles.
func as(name string, roles ...string) *identity.Principal {
	p := &identity.Principal{Subject: "user:" + name, Subjects: []string{"user:" + name}, Method: identity.MethodKey, Roles: roles}
	for _, role := range roles {
		p.Subjects = append(p.Subjects, "role:"+role)
	}
	return p
}

// answer is what a client gets of one call.
type answer struct {
	isError       bool
	code, message string          // of an error
	text          canonjson.Value // the bare value: the first text block, parsed
	blocks        []string
	structured    canonjson.Value
	meta          canonjson.Value
	rpc           int // of a JSON-RPC error; message is its message
	correlation   string
}

// endpoint is where calls of rigs go.
var endpoint = catalog.Of(catalog.Models)

// call calls a tool, and holds what holds of every answer: the structured content fits the listed schema, the text is the
// bare value of it, and the labels are there.
func (r *rig) call(t testing.TB, who *identity.Principal, tool, arguments string) answer {
	t.Helper()
	reply := r.gate.Run(t.Context(), gate.Request{
		Who: who, Endpoint: endpoint, Surface: fault.Tool, Era: fault.Stateless, Name: tool, In: parse(t, arguments),
	})
	a := answer{meta: reply.Labels(), correlation: reply.Correlation}
	switch {
	case reply.Fault != nil:
		form := reply.Fault.Form(reply.Dialect(), fault.Tool, fault.Stateless)
		if !form.ToolError {
			a.isError, a.rpc, a.message = true, form.RPC, form.Message
			return a
		}
		a.isError, a.structured = true, parse(t, string(form.Tool))
		a.text, a.blocks = a.structured, []string{string(form.Tool)}
		a.code, a.message = a.structured.Get("code").Str(), a.structured.Get("message").Str()
	case reply.Ask != nil:
		t.Fatalf("%s asks", tool)
	default:
		a.structured = parse(t, string(reply.Result.JSON))
		for _, b := range reply.Result.Blocks {
			a.blocks = append(a.blocks, b.Text)
		}
		a.text = parse(t, a.blocks[0])
		a.bare(t, tool)
	}
	r.fits(t, who, tool, a)
	if a.meta.Get("io.tabellion/integrity").Str() != "untrusted" || !a.isError && a.meta.Get("io.tabellion/source").Str() != "models" {
		t.Errorf("%s is labelled %v", tool, a.meta)
	}
	return a
}

// bare holds that the text is the value alone, without the frame of the structured content.
func (a answer) bare(t testing.TB, tool string) {
	t.Helper()
	want := a.structured
	for _, name := range []string{"rows", "row"} {
		if v := a.structured.Get(name); !v.IsAbsent() {
			want = v
		}
	}
	if !a.text.Equal(want) {
		t.Errorf("%s: the text is %v, and the structured content %v", tool, a.text, a.structured)
	}
	if cut := a.structured.Get("truncated").Bool(); cut != (len(a.blocks) == 2) || len(a.blocks) > 2 {
		t.Errorf("%s: truncated is %t, with %d texts", tool, cut, len(a.blocks))
	}
}

// fits holds that an answer fits the output schema that this caller is shown.
func (r *rig) fits(t testing.TB, who *identity.Principal, tool string, a answer) {
	t.Helper()
	text := string(r.listed(t, who)[tool].Get("outputSchema").AppendJSON(nil))
	if text == "" {
		t.Fatalf("%s is listed without an output schema", tool)
	}
	s := r.outputs[text]
	if s == nil {
		var err error
		if s, err = catalog.CompileSchema([]byte(text)); err != nil {
			t.Fatal(err)
		}
		r.outputs[text] = s
	}
	if (a.structured.Get("code").Str() != "" && a.structured.Get("message").Str() != "") != a.isError {
		t.Errorf("%s: failed is %t: %v", tool, a.isError, a.structured)
	}
	if err := s.Check(a.structured); err != nil {
		t.Errorf("%s: the structured content does not fit the listed schema: %v\n%v\n%s", tool, err, a.structured, text)
	}
}

// view is what a caller is shown.
func (r *rig) view(t testing.TB, who *identity.Principal) *catalog.View {
	t.Helper()
	v, f := r.gate.View(t.Context(), who, endpoint)
	if f != nil {
		t.Fatal(f)
	}
	return v
}

// listed are the tools that a caller is shown, by name.
func (r *rig) listed(t testing.TB, who *identity.Principal) map[string]canonjson.Value {
	t.Helper()
	out := map[string]canonjson.Value{}
	for _, tool := range parse(t, string(r.view(t, who).ToolsJSON())).Items() {
		out[tool.Get("name").Str()] = tool
	}
	return out
}

// names are those of the tools that a caller is shown, in order.
func (r *rig) names(t testing.TB, who *identity.Principal) []string {
	t.Helper()
	var out []string
	for _, tool := range parse(t, string(r.view(t, who).ToolsJSON())).Items() {
		out = append(out, tool.Get("name").Str())
	}
	return out
}

// refused holds that an answer is a failure of a code whose message has all the words.
func (a answer) refused(t testing.TB, code string, words ...string) {
	t.Helper()
	if !a.isError || a.code != code {
		t.Errorf("want %s, got %q %d %q %v", code, a.code, a.rpc, a.message, a.structured)
	}
	for _, w := range words {
		if !strings.Contains(a.message, w) {
			t.Errorf("the message lacks %q: %s", w, a.message)
		}
	}
}

// gives holds that an answer is a success with this bare value, in which the members named by any count as given.
func (a answer) gives(t testing.TB, want string) {
	t.Helper()
	if a.isError {
		t.Errorf("want %s, got %s %d: %s", want, a.code, a.rpc, a.message)
	} else if !a.text.Equal(parse(t, want)) {
		t.Errorf("want %s, got %v", want, a.text)
	}
}

// listener is an engine that notes what it is asked.
type listener struct {
	tools.Engine
	mu     sync.Mutex
	gql    string
	params canonjson.Value
}

// Query notes text and params.
func (l *listener) Query(ctx context.Context, c engine.Call, text string, params canonjson.Value, page engine.Page) (*engine.Answer, error) {
	l.mu.Lock()
	l.gql, l.params = text, params
	l.mu.Unlock()
	return l.Engine.Query(ctx, c, text, params, page)
}

// trail is a recorder that keeps everything in order.
type trail struct {
	mu      sync.Mutex
	entries []audit.Entry
	lines   []audit.Entry // of reads
	refuse  error         // of Commit
}

// Store keeps e.
func (r *trail) Store(e audit.Entry) { r.keep(&r.entries, e) }

// Read keeps e apart.
func (r *trail) Read(e audit.Entry) { r.keep(&r.lines, e) }

// Commit keeps e, or refuses it.
func (r *trail) Commit(_ context.Context, e audit.Entry) error {
	if r.refuse != nil {
		return r.refuse
	}
	r.keep(&r.entries, e)
	return nil
}

// keep appends to a list.
func (r *trail) keep(list *[]audit.Entry, e audit.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*list = append(*list, e)
}

// took gives what was kept since the last call.
func (r *trail) took() (entries, lines []audit.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, lines = r.entries, r.lines
	r.entries, r.lines = nil, nil
	return entries, lines
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

// nobody knows no caller: calls of rigs come with their principal.
type nobody struct{}

// Authenticate refuses.
func (nobody) Authenticate(context.Context, identity.Credentials) (*identity.Principal, string, error) {
	return nil, "no key", nil
}

// never was asked before.
type never struct{}

// Once says so.
func (never) Once(context.Context, string, time.Time) (bool, error) { return true, nil }

// parse reads JSON text of a test.
func parse(t testing.TB, text string) canonjson.Value {
	t.Helper()
	v, _, err := canonjson.Parse([]byte(text), canonjson.Limits{}) // flaws are for the frame: integers may be large here
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// quoted is a text as JSON.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// readJSON reads a JSON file.
func readJSON(t testing.TB, path string) canonjson.Value {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := canonjson.ParseStrict(text, canonjson.Limits{})
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", path, err))
	}
	return v
}
