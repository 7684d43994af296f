package access_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/testkit/deciders"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/policy"
)

// nobody tells whether a principal's credentials are no good: in process there are no credentials.
func nobody(p principal) bool { return p.Key != "" }

// everybody asks all principals.
func everybody(principal) bool { return false }

// direct asks the gate in process.
type direct struct {
	*inproc.Server
	m    *matrix
	only map[string][]string // scopes of keys made for a cell, by caller
}

// newDirect asks server.
func newDirect(server *inproc.Server, m *matrix) direct {
	return direct{server, m, map[string][]string{}}
}

// who is the principal of a name.
func (d direct) who(name string) *identity.Principal {
	p := *inproc.Principal(name)
	p.Tenant = d.m.principals[name].Tenant
	only := d.only[name]
	if only == nil {
		only = d.m.principals[name].Only
	}
	for _, text := range only {
		scope, err := policy.ParseScope(text)
		if err != nil {
			panic(err)
		}
		p.Only = append(p.Only, scope)
	}
	return &p
}

// Narrow gives the caller other scopes.
func (d direct) Narrow(_ *testing.T, as string, scopes []string) { d.only[as] = scopes }

// Call asks a tool.
func (d direct) Call(ctx context.Context, as, tool string, args []byte) (scenario.Answer, error) {
	return d.CallAs(ctx, d.who(as), tool, args)
}

// Read asks a resource.
func (d direct) Read(ctx context.Context, as, uri string) (scenario.Answer, error) {
	return d.ReadAs(ctx, d.who(as), uri)
}

// Route asks the operation of a route, as the transfer origin does.
func (d direct) Route(ctx context.Context, as, method, path string, body []byte) (routed, error) {
	segments := strings.Split(path, "/")[1:]
	for _, op := range d.Catalog.Operations() {
		route := op.Publish.Route
		if route == nil || route.Method != method || route.Prefix != segments[0] {
			continue
		}
		var in []canonjson.Member
		for i, name := range route.Arguments {
			in = append(in, canonjson.M(name, canonjson.String(segments[1+i])))
		}
		return routeAnswer(d.Gate.Run(ctx, gate.Request{
			Who: d.who(as), Endpoint: catalog.All, Surface: fault.Transfer, Name: op.Name, In: canonjson.Object(in...),
			Body: &catalog.Body{Reader: bytes.NewReader(body), Length: int64(len(body))},
		}))
	}
	return routed{}, fmt.Errorf("no operation has the route %s %s", method, path)
}

// routeAnswer is a reply of the gate as a route gives it.
func routeAnswer(reply gate.Reply) (routed, error) {
	if reply.Fault != nil {
		form := reply.Fault.Form(reply.Dialect(), fault.Transfer, fault.Stateless)
		return routed{status: form.HTTP, body: string(form.Tool)}, nil
	}
	if reply.Result.Stream == nil {
		return routed{status: http.StatusNoContent}, nil
	}
	defer reply.Result.Stream.Close()
	all, err := io.ReadAll(reply.Result.Stream)
	return routed{status: http.StatusOK, body: string(all)}, err
}

// counting keeps the audit entries that are not committed with an effect.
type counting struct {
	mu            sync.Mutex
	stored, reads []audit.Entry
}

// Store keeps an entry.
func (c *counting) Store(e audit.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored = append(c.stored, e)
}

// Read keeps an entry.
func (c *counting) Read(e audit.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = append(c.reads, e)
}

// Commit keeps an entry.
func (c *counting) Commit(_ context.Context, e audit.Entry) error {
	c.Store(e)
	return nil
}

// TestMatrixInProcess asks every cell of the gate.
func TestMatrixInProcess(t *testing.T) {
	m := load(t)
	server := inproc.New(t, config(m, nil))
	asked, wrong := newTable(newDirect(server, m), m).cells(t, nobody)
	report(t, asked, wrong)
	for _, published := range m.uncovered(server.Catalog.Operations()) {
		t.Errorf("%s has no row in the matrix", published)
	}
}

// config is a server for the matrix: what is superseded may be purged at once. A nil decider is the policy of m.
func config(m *matrix, d policy.Decider) inproc.Config {
	var atOnce time.Duration
	return inproc.Config{Store: memory.New(nil), Grants: m.grants(), Decider: d, Keep: &atOnce}
}

// TestNewOperationsNeedRows holds the check of the test above: an operation of each kind without a row is noticed.
func TestNewOperationsNeedRows(t *testing.T) {
	m := load(t)
	for want, publish := range map[string]catalog.Publish{
		"persistence.new":         {Tool: true},
		"persistence://new/{id}":  {Resources: []catalog.Resource{{Template: "persistence://new/{id}"}}},
		"POST /uploads/{id}":      {Route: &catalog.Route{Method: "POST", Prefix: "uploads", Arguments: []string{"id"}}},
		"GET /new":                {Route: &catalog.Route{Method: "GET", Prefix: "new"}},
		"prompt persistence.new":  {Prompt: &catalog.Prompt{}},
		"persistence.unpublished": {},
	} {
		name := "persistence.new"
		if want == "persistence.unpublished" {
			name = want
		}
		got := m.uncovered([]*catalog.Operation{{Name: name, Publish: publish}})
		if len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestMatrixFindsFaults holds the controls: each planted policy fault must turn a cell red.
func TestMatrixFindsFaults(t *testing.T) {
	m := load(t)
	faulty, err := deciders.Faulty(m.grants())
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(faulty, artifactFaults(t, m))
	for name, d := range faulty {
		t.Run(name, func(t *testing.T) {
			server := inproc.New(t, config(m, deciders.Keep(d, keeper)))
			asked, wrong := newTable(newDirect(server, m), m).cells(t, nobody)
			fmt.Printf("access matrix control, %s: %d of %d cells red\n", name, len(wrong), asked)
			if len(wrong) == 0 {
				t.Error("no cell turned red")
			}
		})
	}
}

// effects are the operations that change something when they succeed. One that is not read-only in the catalog and is
// not here would be counted as a read, and fail.
var effects = map[string]bool{
	"put": true, "put-ref": true, "put-ref-artifact": true, "delete": true, "purge": true, "purge-artifact": true,
	"beginArtifact": true, "commitArtifact": true, "abortArtifact": true, "PUT": true,
}

// TestEachCallHasOneEntry counts audit entries: one a refusal in the store's queue, one an allowed read in the file's,
// one an effect in the store itself, and never two of one call.
func TestEachCallHasOneEntry(t *testing.T) {
	m := load(t)
	kept := &counting{}
	store := memory.New(nil)
	c := config(m, nil)
	c.Store, c.Auditor = store, kept
	server := inproc.New(t, c)
	b := newTable(newDirect(server, m), m)
	for _, r := range m.rules {
		for _, operation := range r.operations {
			if operation == "list" {
				continue // several calls a cell
			}
			for _, name := range m.order {
				if nobody(m.principals[name]) {
					continue
				}
				c := b.prepare(t, name, operation, r.targets[0])
				stored, reads, rows := len(kept.stored), len(kept.reads), countRows(t, store)
				verdict, _ := b.ask(t, c)
				got := fmt.Sprint(len(kept.stored)-stored, len(kept.reads)-reads, countRows(t, store)-rows)
				if want := entries(operation, verdict, m.principals[name]); got != want {
					t.Errorf("%s as %s on %s (%s): entries (queue, file, store) %s, want %s", operation, name, c.target, verdict, got, want)
				}
				b.spend(c, verdict)
			}
		}
	}
}

// entries are the entries that a call leaves: in the queue, in the file and in the store.
func entries(operation, verdict string, p principal) string {
	// The key of a replay is not known in another tenant: there a new upload is opened.
	anew := operation == "begin-replay" && p.Tenant != ""
	switch {
	case verdict == "policy_denied" || verdict == "403":
		return "1 0 0"
	case (effects[operation] || anew) && (verdict == "ok" || verdict == "204"):
		return "0 0 1"
	}
	return "0 1 0"
}

// countRows counts the audit rows in a store.
func countRows(t *testing.T, log audit.Log) int {
	t.Helper()
	head, err := log.AuditHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(head.Position)
}

// served asks a whole server over HTTP in one era.
type served struct {
	url     string // of the server, without a path
	server  *tabellion.Server
	m       *matrix
	keys    map[string]string
	narrow  map[string]string // ids of keys made for a cell, by caller
	legacy  bool
	clients map[string]*rawmcp.Client
	routes  *http.Client
}

// client is the caller's client. A caller who is nobody cannot open a session; he is answered at the door.
func (s *served) client(ctx context.Context, as string) *rawmcp.Client {
	if c := s.clients[as]; c != nil {
		return c
	}
	c := rawmcp.New(s.url+"/mcp", s.keys[as], s.legacy, 2)
	_ = c.Open(ctx) // refused for nobody: the calls that follow are refused too, which is what is asked
	s.clients[as] = c
	return c
}

// Narrow gives the caller a new key and takes the old one away.
func (s *served) Narrow(t *testing.T, as string, scopes []string) {
	t.Helper()
	s.leave(t, as)
	if old := s.narrow[as]; old != "" {
		operate(t, s.server, "operator.keys.revoke", canonjson.M("id", canonjson.String(old)))
	}
	p := s.m.principals[as]
	p.Only = scopes
	s.keys[as], s.narrow[as] = keyOf(t, s.server, as, p)
}

// leave ends the caller's session, of which he may have only a few, and forgets his client.
func (s *served) leave(t *testing.T, as string) {
	t.Helper()
	c := s.clients[as]
	if c == nil {
		return
	}
	delete(s.clients, as)
	defer c.Close()
	if c.Session() == "" {
		return
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, c.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("Mcp-Session-Id", c.Session())
	res, err := s.routes.Do(req)
	if err != nil || res.StatusCode/100 != 2 {
		t.Fatalf("end the session of %s: %v %v", as, err, res)
	}
	res.Body.Close()
}

// Call asks a tool.
func (s *served) Call(ctx context.Context, as, tool string, args []byte) (scenario.Answer, error) {
	return s.client(ctx, as).Call(ctx, tool, args)
}

// Read asks a resource.
func (s *served) Read(ctx context.Context, as, uri string) (scenario.Answer, error) {
	return s.client(ctx, as).Read(ctx, uri)
}

// Route sends a request to a route of the main listener.
func (s *served) Route(ctx context.Context, as, method, path string, body []byte) (routed, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return routed{}, err
	}
	if key := s.keys[as]; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := s.routes.Do(req)
	if err != nil {
		return routed{}, err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	res.Header.Del("Date")
	var head bytes.Buffer
	if err == nil {
		err = res.Header.Write(&head) // in the order of names
	}
	return routed{status: res.StatusCode, head: head.String(), body: string(all)}, err
}

// TestMatrixHTTP asks every cell of a whole server with real keys, in both eras.
func TestMatrixHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: run by make test")
	}
	for _, era := range []fault.Era{fault.Stateless, fault.Legacy} {
		t.Run(string(era), func(t *testing.T) {
			m := load(t)
			asked, wrong := newTable(serve(t, m, era == fault.Legacy), m).cells(t, everybody)
			report(t, asked, wrong)
		})
	}
}

// serve assembles a server with the matrix' policy and a key for every principal.
func serve(t *testing.T, m *matrix, legacy bool) *served {
	t.Helper()
	var atOnce time.Duration
	cfg := tabellion.DefaultConfig()
	cfg.Data, cfg.Ops, cfg.Auth.Keys = t.TempDir(), "", true
	cfg.Limits.Rate, cfg.Limits.AuthFailures = 0, 0
	cfg.Persistence.Retention, cfg.Persistence.OpenUploads = &atOnce, 0 // the keeper has many open
	config := scenario.Policy(m.grants())
	cfg.Policy = &config
	srv, err := tabellion.Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(srv.Handler())
	s := &served{
		url: listener.URL, server: srv, m: m, legacy: legacy, keys: map[string]string{}, narrow: map[string]string{}, clients: map[string]*rawmcp.Client{},
		routes: &http.Client{
			Transport:     &http.Transport{},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	t.Cleanup(func() {
		for _, c := range s.clients {
			c.Close()
		}
		s.routes.CloseIdleConnections()
		listener.Close()
		srv.Close(context.Background())
	})
	for _, name := range append([]string{keeper}, m.order...) {
		if !m.principals[name].perCell() {
			s.keys[name], _ = keyOf(t, srv, name, m.principals[name])
		}
	}
	return s
}

// operate runs an operation of the operator.
func operate(t *testing.T, srv *tabellion.Server, operation string, members ...canonjson.Member) canonjson.Value {
	t.Helper()
	out, err := srv.Call(t.Context(), "test", []string{"admin"}, operation, canonjson.Object(members...))
	if err != nil {
		t.Fatalf("%s: %v", operation, err)
	}
	return out
}

// keyOf makes the key of a principal, in the state that the matrix says.
func keyOf(t *testing.T, srv *tabellion.Server, user string, p principal) (key, id string) {
	t.Helper()
	if p.Key == "none" {
		return "", ""
	}
	in := []canonjson.Member{canonjson.M("user", canonjson.String(user)), canonjson.M("name", canonjson.String("matrix"))}
	if len(p.Only) > 0 {
		var only []canonjson.Value
		for _, scope := range p.Only {
			only = append(only, canonjson.String(scope))
		}
		in = append(in, canonjson.M("only", canonjson.Array(only...)))
	}
	if p.Tenant != "" {
		in = append(in, canonjson.M("tenant", canonjson.String(p.Tenant)))
	}
	if p.Key == "expired" {
		in = append(in, canonjson.M("expires", canonjson.String(time.Now().Add(2*time.Second).UTC().Format(time.RFC3339))))
	}
	made := operate(t, srv, "operator.keys.create", in...)
	key, id = made.Get("secret").Str(), made.Get("key").Get("id").Str()
	switch p.Key {
	case "revoked":
		operate(t, srv, "operator.keys.revoke", canonjson.M("id", canonjson.String(id)))
	case "expired":
		time.Sleep(2 * time.Second)
	}
	return key, id
}
