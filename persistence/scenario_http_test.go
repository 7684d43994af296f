package persistence_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/policy"
)

// overHTTP is a whole server with real keys behind a real listener, as seen by callers of one era.
type overHTTP struct {
	cfg      *tabellion.Config
	server   *tabellion.Server
	listener *httptest.Server
	files    *httptest.Server // the transfer origin
	keys     map[string]string
	legacy   bool

	mu      sync.Mutex
	clients map[string]*rawmcp.Client
}

// client is the caller's own connection; a legacy one has its own session.
func (o *overHTTP) client(ctx context.Context, as string) (*rawmcp.Client, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.clients[as]; c != nil {
		return c, nil
	}
	c := rawmcp.New(o.listener.URL+"/mcp", o.keys[as], o.legacy, 16)
	if err := c.Open(ctx); err != nil {
		return nil, err
	}
	o.clients[as] = c
	return c, nil
}

// Call implements scenario.Target.
func (o *overHTTP) Call(ctx context.Context, as, tool string, args []byte) (scenario.Answer, error) {
	c, err := o.client(ctx, as)
	if err != nil {
		return scenario.Answer{}, err
	}
	return c.Call(ctx, tool, args)
}

// Read implements scenario.Target.
func (o *overHTTP) Read(ctx context.Context, as, uri string) (scenario.Answer, error) {
	c, err := o.client(ctx, as)
	if err != nil {
		return scenario.Answer{}, err
	}
	return c.Read(ctx, uri)
}

// HTTP implements scenario.Target.
func (o *overHTTP) HTTP(ctx context.Context, as string, req scenario.HTTPRequest) (scenario.HTTPResponse, error) {
	key := o.keys[as]
	if as != "" && key == "" {
		key = as // in open mode nobody has a key
	}
	return scenario.Send(ctx, strings.TrimPrefix(o.files.URL, "http://"), nil, key, req)
}

// newOverHTTP assembles a server for one scenario.
func newOverHTTP(t *testing.T, s *scenario.Scenario, legacy bool) *overHTTP {
	t.Helper()
	cfg := tabellion.DefaultConfig()
	cfg.Data, cfg.Ops = t.TempDir(), ""
	cfg.Persistence.Limits = limitsOf(t, s.Setup.Limits)
	cfg.Persistence.Retention = keepOf(&s.Setup)
	cfg.Transfer.Listen = "127.0.0.1:0"
	cfg.Limits.Rate = 0
	cfg.Dev = s.Setup.Mode == "open"
	cfg.Auth.Keys = !cfg.Dev
	o := &overHTTP{legacy: legacy, cfg: cfg, keys: map[string]string{}}
	o.start(t, grantsOf(&s.Setup))
	t.Cleanup(func() { o.stop(t) })
	if !cfg.Dev {
		for _, name := range s.Callers() {
			o.keys[name] = makeKey(t, o.server, name)
		}
	}
	return o
}

// start opens the server with the policy that grants mean, and listens.
func (o *overHTTP) start(t *testing.T, grants []scenario.Grant) {
	t.Helper()
	if !o.cfg.Dev {
		p := scenario.Policy(grants)
		o.cfg.Policy = &p
	}
	srv, err := tabellion.Open(t.Context(), o.cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.files = httptest.NewServer(srv.TransferHandler())
	o.server, o.listener, o.clients = srv, httptest.NewServer(srv.Handler()), map[string]*rawmcp.Client{}
}

// stop closes everything that start opened.
func (o *overHTTP) stop(t *testing.T) {
	for _, c := range o.clients {
		c.Close()
	}
	o.listener.Close()
	o.files.Close()
	if err := o.server.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// makeKey makes an API key without roles for a user: what he may do is the policy's.
func makeKey(t *testing.T, srv *tabellion.Server, user string) string {
	t.Helper()
	out, err := srv.Call(t.Context(), "test", []string{policy.RoleAdmin}, "operator.keys.create", canonjson.Object(
		canonjson.M("user", canonjson.String(user)), canonjson.M("name", canonjson.String("scenario"))))
	if err != nil {
		t.Fatal(err)
	}
	return out.Get("secret").Str()
}

// TestScenarioHTTP runs the scenarios that need no hook over real HTTP, once in each era.
func TestScenarioHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: run by make test")
	}
	outputs := outputSchemas(t)
	hooks := []string{"clock", "restart", "kill", "fault", "corrupt"}
	for _, era := range []string{"stateless", "legacy"} {
		t.Run(era, func(t *testing.T) {
			run := func(t *testing.T, s *scenario.Scenario) { runOverHTTP(t, s, era == "legacy", outputs) }
			runFolder(t, "", scenarioDir, run, hooks)
			if extra := extraScenarios(t); extra != "" {
				runFolder(t, "extra/", extra, run, hooks)
			}
		})
	}
}

// runOverHTTP runs one scenario.
func runOverHTTP(t *testing.T, s *scenario.Scenario, legacy bool, outputs map[string]*jsonschema.Schema) {
	target := newOverHTTP(t, s, legacy)
	runner := scenario.Runner{Target: target, Outputs: outputs, Hooks: scenario.Hooks{
		SetGrants: func(grants []scenario.Grant) error { // a policy is read at start
			target.stop(t)
			target.start(t, grants)
			return nil
		},
	}}
	if err := runner.Run(t.Context(), s); err != nil {
		t.Errorf("%s [%s, rules %v]: %v", s.Title, s.Basis, s.Rules, err)
	}
}
