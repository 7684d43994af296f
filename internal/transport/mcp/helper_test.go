package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/testkit/fixtureserver/fixture"
	"github.com/tabellion-mcp/tabellion/internal/transport/mcp"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Keys of the two callers of the tests.
const (
	keyAna = "key-of-ana"
	keyBob = "key-of-bob"
)

// rig is a server under test.
type rig struct {
	*fixture.Parts
	server *mcp.Server
	http   *httptest.Server
	// entered gets one for each call of slow that began, left one for each that ended.
	entered, left chan struct{}
}

// newRig makes a server over HTTP and ends it with the test, after which no goroutine of it may be left.
func newRig(t testing.TB, change ...func(*mcp.Config, *fixture.Options)) *rig {
	t.Helper()
	before := runtime.NumGoroutine()
	r := &rig{entered: make(chan struct{}, 1000), left: make(chan struct{}, 1000)}
	cfg := mcp.Config{Info: mcp.Info{Name: "test", Version: "1"}, SSE: true}
	opts := fixture.Options{Notify: func(c catalog.Change) { r.server.Notify(c) }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Decider: rights{}}
	for _, f := range change {
		f(&cfg, &opts)
	}
	parts, err := fixture.New(opts, r.operations()...)
	if err != nil {
		t.Fatal(err)
	}
	r.Parts = parts
	parts.Keys.Put(keyAna, "ana")
	parts.Keys.Put(keyBob, "bob")
	cfg.Gate, cfg.Catalog, cfg.Log = parts.Gate, parts.Catalog, parts.Log
	r.server = mcp.New(cfg)
	r.http = httptest.NewUnstartedServer(nil)
	r.http.Config = web.NewServer(web.Limits{Read: 2 * time.Second}, web.Protect(web.Options{Loopback: true, Log: parts.Log}, r.server.Handler()), parts.Log)
	r.http.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r.server.Close(ctx)
		r.http.Client().CloseIdleConnections()
		r.http.Close()
		eventually(t, "all that was held to be free", func() bool {
			bytes, sessions, streams, subscriptions := r.server.Held()
			return bytes == 0 && sessions == 0 && streams == 0 && subscriptions == 0
		})
		eventually(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before+1 })
	})
	return r
}

// rights give everybody everything but models.write, which is bob's.
type rights struct{}

// Decide answers checks.
func (rights) Decide(_ context.Context, subjects []string, checks []policy.Check) ([]policy.Decision, error) {
	out := make([]policy.Decision, len(checks))
	for i, c := range checks {
		out[i].Allow = c.Capability != policy.ModelsWrite || subjects[0] == "user:bob"
	}
	return out, nil
}

// eventually waits until ok, and fails with a list of goroutines when it does not come.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 300 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	buf := make([]byte, 1<<20)
	t.Errorf("waited in vain for %s\n%s", what, buf[:runtime.Stack(buf, true)])
}

// anyObject takes every object.
const anyObject = `{"type":"object"}`

// operation makes a read-only tool.
func operation(slot catalog.Slot, name, input string, run func(context.Context, *catalog.Call) (catalog.Result, error)) *catalog.Operation {
	return &catalog.Operation{
		Errors: fault.PersistenceDialect,
		Name:   name, Title: "T " + name, Doc: "D " + name, Slot: slot, In: catalog.MustSchema(input), Run: run,
		Effects: catalog.Effects{ReadOnly: catalog.Yes}, Publish: catalog.Publish{Tool: true},
	}
}

// operations are the fixtures, in an order that is not that of their names.
func (r *rig) operations() []*catalog.Operation {
	echo := operation(catalog.Persistence, "persistence.echo", anyObject, func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
		return catalog.Result{Value: c.In, Source: "persistence"}, nil
	})
	echo.Content = []string{"payload"}
	ask := operation(catalog.Persistence, "persistence.ask", anyObject, func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
		answer := c.Answers.Get("color")
		if answer.IsAbsent() {
			return catalog.Result{}, &catalog.NeedInput{State: canonjson.String("asked"), Requests: []catalog.InputRequest{{
				Key: "color", Method: "elicitation/create", Params: canonjson.Object(
					canonjson.M("message", canonjson.String("Which color?")),
					canonjson.M("requestedSchema", canonjson.Raw([]byte(`{"properties":{"color":{"type":"string"}},"type":"object"}`)))),
			}}}
		}
		return catalog.Result{Value: canonjson.Object(
			canonjson.M("color", answer.Get("content").Get("color")), canonjson.M("state", c.State))}, nil
	})
	fail := operation(catalog.Persistence, "persistence.fail", `{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}`,
		func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			return catalog.Result{}, fault.New(fault.Code(c.In.Get("code").Str()), "as asked")
		})
	fail.Errors = fault.PersistenceDialect
	plainFail := *fail
	plainFail.Name, plainFail.Errors = "plain_fail", fault.PlainDialect
	modelsFail := *fail
	modelsFail.Name, modelsFail.Errors = "models_fail", fault.ModelsDialect
	slow := operation(catalog.Persistence, "persistence.slow", anyObject, func(ctx context.Context, _ *catalog.Call) (catalog.Result, error) {
		r.entered <- struct{}{}
		<-ctx.Done()
		r.left <- struct{}{}
		return catalog.Result{}, ctx.Err()
	})
	steps := operation(catalog.Persistence, "persistence.steps", anyObject, func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
		c.Progress(1, 2, "half")
		c.Log("warning", canonjson.Object(canonjson.M("said", canonjson.String("hello"))))
		c.Progress(2, 2, "")
		return catalog.Result{Value: canonjson.Object(canonjson.M("ok", canonjson.Bool(true)))}, nil
	})
	panics := operation(catalog.Persistence, "persistence.panic", anyObject, func(context.Context, *catalog.Call) (catalog.Result, error) {
		panic("secret detail")
	})
	documents := &catalog.Operation{
		Name: "persistence.get", Slot: catalog.Persistence, In: catalog.MustSchema(anyObject), Errors: fault.PersistenceDialect,
		Effects: catalog.Effects{ReadOnly: catalog.Yes}, Cache: &catalog.Cache{TTL: 7 * time.Second},
		Publish: catalog.Publish{Resources: []catalog.Resource{
			{URI: "persistence://capabilities", Name: "capabilities", MIME: "application/json"},
			{Template: "persistence://documents/{id}", Name: "document", MIME: "application/json", Match: func(uri string) (canonjson.Value, bool, error) {
				id, ok := strings.CutPrefix(uri, "persistence://documents/")
				switch {
				case !ok:
					return canonjson.Value{}, false, nil
				case strings.ContainsAny(id, "/ "):
					return canonjson.Value{}, false, fault.New(fault.InvalidRequest, "the id is not well formed")
				}
				return canonjson.Object(canonjson.M("id", canonjson.String(id))), true, nil
			}},
		}},
		Run: func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			if c.In.Get("id").Str() == "missing" {
				return catalog.Result{}, fault.New(fault.NotFound, "no such document")
			}
			return catalog.Result{Value: canonjson.Object(canonjson.M("uri", canonjson.String(c.URI))), Source: "persistence"}, nil
		},
	}
	prompt := &catalog.Operation{
		Errors: fault.PersistenceDialect,
		Name:   "greet", Doc: "Greets.", Slot: catalog.Models, In: catalog.MustSchema(`{"type":"object","properties":{"who":{"type":"string"}},"required":["who"]}`),
		Effects: catalog.Effects{ReadOnly: catalog.Yes},
		Publish: catalog.Publish{Prompt: &catalog.Prompt{
			Arguments: []catalog.PromptArgument{{Name: "who", Required: true}},
			Complete: func(_ context.Context, c *catalog.Call, argument, prefix string) ([]string, error) {
				return []string{argument + ":" + prefix + ":" + c.Who.Subject}, nil
			},
		}},
		Run: func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			return catalog.Result{Blocks: []catalog.Block{{Type: "text", Text: "Greet " + c.In.Get("who").Str()}}}, nil
		},
	}
	header := operation(catalog.Models, "mirrored", `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"},"b":{"type":"boolean","x-mcp-header":"B"}}}}}`,
		func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			return catalog.Result{Value: c.In}, nil
		})
	hidden := operation(catalog.Models, "hidden", `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`,
		func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			return catalog.Result{Value: c.In}, nil
		})
	hidden.Capability, hidden.KnownOn = policy.ModelsWrite, mustPattern("/models/Secret")
	hidden.Targets = func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) {
		return []policy.Check{{Capability: policy.ModelsWrite, Path: "/models/Secret"}}, nil
	}
	change := operation(catalog.Models, "change", anyObject, func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
		c.Notify(catalog.Change{
			Tools: c.In.Get("tools").Bool(), Prompts: c.In.Get("prompts").Bool(), Resources: c.In.Get("resources").Bool(),
			Resource: c.In.Get("uri").Str(),
		})
		return catalog.Result{Value: canonjson.Object()}, nil
	})
	change.Publish.Notifies = true
	return []*catalog.Operation{steps, echo, ask, fail, &plainFail, &modelsFail, slow, panics, documents, prompt, header, hidden, change}
}

// reply is an HTTP answer.
type reply struct {
	status int
	header http.Header
	body   []byte
	json   struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  struct {
			Code    int
			Message string
			Data    json.RawMessage
		}
	}
}

// headers of a request of the stateless era.
func stateless(method, name string) map[string]string {
	h := map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Authorization": "Bearer " + keyAna}
	if name != "" {
		h["Mcp-Name"] = name
	}
	return h
}

// with is h with further headers; an empty value removes one.
func with(h map[string]string, more ...string) map[string]string {
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = more[i+1]
		if more[i+1] == "" {
			delete(h, more[i])
		}
	}
	return h
}

// meta is what every request of the stateless era carries.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`

// callBody is a tools/call of the stateless era.
func callBody(id, name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, id, name, arguments, meta)
}

// send sends one request to a path.
func (r *rig) send(t testing.TB, method, path, body string, headers map[string]string) *reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // an answer that is a stream without end
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range headers {
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	res, err := r.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out := &reply{status: res.StatusCode, header: res.Header}
	if out.body, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	out.parse(t)
	return out
}

// parse reads the last message of the body.
func (p *reply) parse(t testing.TB) {
	t.Helper()
	text := p.body
	if strings.HasPrefix(p.header.Get("Content-Type"), "text/event-stream") {
		events := events(p.body)
		text = []byte(events[len(events)-1])
	}
	if len(text) == 0 || p.header.Get("Content-Type") == "text/plain; charset=utf-8" {
		return
	}
	if !json.Valid(text) {
		t.Fatalf("status %d: the body is not JSON: %q", p.status, text)
	}
	if bytes.HasPrefix(text, []byte(`{"jsonrpc"`)) {
		if err := json.Unmarshal(text, &p.json); err != nil {
			t.Fatalf("status %d: %s: %v", p.status, text, err)
		}
	}
}

// events gives the data of the events of a stream.
func events(body []byte) []string {
	var out []string
	for _, line := range strings.Split(string(body), "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			out = append(out, data)
		}
	}
	return out
}

// want fails unless the answer is an error with this status and code.
func (p *reply) want(t testing.TB, status, code int) *reply {
	t.Helper()
	if p.status != status || p.json.Error.Code != code {
		t.Errorf("got status %d, body %s; want status %d, code %d", p.status, p.body, status, code)
	}
	return p
}

// field gives a member of a JSON text.
func field(t testing.TB, text []byte, pointer string) canonjson.Value {
	t.Helper()
	v, err := canonjson.ParseStrict(text, gate.FrameLimits())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v.At(pointer)
}

// open begins a session of the older era and gives its headers.
func (r *rig) open(t testing.TB, path, key, version string) map[string]string {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + version +
		`","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`
	res := r.send(t, "POST", path, body, map[string]string{"Authorization": "Bearer " + key})
	if res.status != 200 || field(t, res.json.Result, "/protocolVersion").Str() != version {
		t.Fatalf("initialize: %d %s", res.status, res.body)
	}
	h := map[string]string{"Authorization": "Bearer " + key, "Mcp-Session-Id": res.header.Get("Mcp-Session-Id"), "MCP-Protocol-Version": version}
	if done := r.send(t, "POST", path, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, h); done.status != 202 {
		t.Fatalf("initialized: %d %s", done.status, done.body)
	}
	return h
}

// mustPattern reads a pattern of this file.
func mustPattern(s string) policy.Pattern {
	p, err := policy.ParsePattern(s)
	if err != nil {
		panic(err)
	}
	return p
}
