package access_test

import (
	"context"
	"fmt"
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
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/testkit/deciders"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/internal/testkit/rawmcp"
)

// nobody tells whether a principal's credentials are no good: in process there are no credentials.
func nobody(p principal) bool { return p.Key != "" }

// everybody asks all principals.
func everybody(principal) bool { return false }

// direct asks the gate in process.
type direct struct {
	*inproc.Server
	m *matrix
}

// who is the principal of a name.
func (d direct) who(name string) *identity.Principal {
	p := inproc.Principal(name)
	if only := d.m.principals[name].Only; only != "" {
		narrow, err := deciders.Narrow(p, only)
		if err != nil {
			panic(err)
		}
		return narrow
	}
	return p
}

// Call asks a tool.
func (d direct) Call(ctx context.Context, as, tool string, args []byte) (scenario.Answer, error) {
	return d.CallAs(ctx, d.who(as), tool, args)
}

// Read asks a resource.
func (d direct) Read(ctx context.Context, as, uri string) (scenario.Answer, error) {
	return d.ReadAs(ctx, d.who(as), uri)
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

// TestMatrixInProcess asks every cell of the gate.
func TestMatrixInProcess(t *testing.T) {
	m := load(t)
	server := inproc.New(t, inproc.Config{Store: memory.New(nil), Grants: m.grants()})
	b := &table{asker: direct{server, m}}
	asked, wrong := b.cells(t, m, nobody)
	report(t, asked, wrong)
	for _, op := range server.Catalog.Operations() {
		for _, published := range publishedNames(op) {
			if !m.covers(published) {
				t.Errorf("%s has no row in the matrix", published)
			}
		}
	}
}

// publishedNames are the names under which clients reach op.
func publishedNames(op *catalog.Operation) []string {
	var out []string
	if op.Publish.Tool {
		out = append(out, op.Name)
	}
	for _, r := range op.Publish.Resources {
		out = append(out, r.URI+r.Template)
	}
	return out
}

// TestMatrixFindsFaults holds the controls: each planted policy fault must turn a cell red.
func TestMatrixFindsFaults(t *testing.T) {
	m := load(t)
	faulty, err := deciders.Faulty(m.grants())
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range faulty {
		t.Run(name, func(t *testing.T) {
			server := inproc.New(t, inproc.Config{Store: memory.New(nil), Decider: deciders.Keep(d, keeper)})
			b := &table{asker: direct{server, m}}
			asked, wrong := b.cells(t, m, nobody)
			fmt.Printf("access matrix control, %s: %d of %d cells red\n", name, len(wrong), asked)
			if len(wrong) == 0 {
				t.Error("no cell turned red")
			}
		})
	}
}

// TestEachCallHasOneEntry counts audit entries: one a refusal in the store's queue, one an allowed read in the file's,
// one an effect in the store itself, and never two of one call.
func TestEachCallHasOneEntry(t *testing.T) {
	m := load(t)
	kept := &counting{}
	store := memory.New(nil)
	server := inproc.New(t, inproc.Config{Store: store, Grants: m.grants(), Auditor: kept})
	b := &table{asker: direct{server, m}}
	for _, r := range m.rules {
		for _, operation := range r.operations {
			if operation == "replay" || operation == "list" {
				continue // several calls a cell
			}
			for _, name := range m.order {
				if nobody(m.principals[name]) {
					continue
				}
				target := r.targets[0]
				if target != "none" {
					b.prepare(t, target)
				}
				stored, reads, rows := len(kept.stored), len(kept.reads), countRows(t, store)
				verdict, _ := b.ask(t, name, operation, target)
				// The keeper's listing before the call is one read.
				listed := 1
				if target == "none" {
					listed = 0
				}
				got := fmt.Sprint(len(kept.stored)-stored, len(kept.reads)-reads-listed, countRows(t, store)-rows)
				want := "0 1 0"
				switch {
				case verdict == "policy_denied":
					want = "1 0 0"
				case verdict == "ok" && (strings.HasPrefix(operation, "put") || operation == "delete"):
					want = "0 0 1"
				}
				if got != want {
					t.Errorf("%s as %s on %s (%s): entries (queue, file, store) %s, want %s", operation, name, target, verdict, got, want)
				}
			}
		}
	}
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
	url     string
	keys    map[string]string
	legacy  bool
	clients map[string]*rawmcp.Client
}

// client is the caller's client. A caller who is nobody cannot open a session; he is answered at the door.
func (s *served) client(ctx context.Context, as string) *rawmcp.Client {
	if c := s.clients[as]; c != nil {
		return c
	}
	c := rawmcp.New(s.url, s.keys[as], s.legacy, 2)
	_ = c.Open(ctx) // refused for nobody: the calls that follow are refused too, which is what is asked
	s.clients[as] = c
	return c
}

// Call asks a tool.
func (s *served) Call(ctx context.Context, as, tool string, args []byte) (scenario.Answer, error) {
	return s.client(ctx, as).Call(ctx, tool, args)
}

// Read asks a resource.
func (s *served) Read(ctx context.Context, as, uri string) (scenario.Answer, error) {
	return s.client(ctx, as).Read(ctx, uri)
}

// TestMatrixHTTP asks every cell of a whole server with real keys, in both eras.
func TestMatrixHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: run by make test")
	}
	for _, era := range []fault.Era{fault.Stateless, fault.Legacy} {
		t.Run(string(era), func(t *testing.T) {
			m := load(t)
			s := serve(t, m, era == fault.Legacy)
			b := &table{asker: s}
			asked, wrong := b.cells(t, m, everybody)
			report(t, asked, wrong)
		})
	}
}

// serve assembles a server with the matrix' policy and a key for every principal.
func serve(t *testing.T, m *matrix, legacy bool) *served {
	t.Helper()
	cfg := tabellion.DefaultConfig()
	cfg.Data, cfg.Ops, cfg.Auth.Keys = t.TempDir(), "", true
	cfg.Limits.Rate, cfg.Limits.AuthFailures = 0, 0
	config := scenario.Policy(m.grants())
	cfg.Policy = &config
	srv, err := tabellion.Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(srv.Handler())
	s := &served{url: listener.URL + "/mcp", legacy: legacy, keys: map[string]string{}, clients: map[string]*rawmcp.Client{}}
	t.Cleanup(func() {
		for _, c := range s.clients {
			c.Close()
		}
		listener.Close()
		srv.Close(context.Background())
	})
	for _, name := range append([]string{keeper}, m.order...) {
		s.keys[name] = keyOf(t, srv, name, m.principals[name])
	}
	return s
}

// keyOf makes the key of a principal, in the state that the matrix says.
func keyOf(t *testing.T, srv *tabellion.Server, user string, p principal) string {
	t.Helper()
	call := func(operation string, members ...canonjson.Member) canonjson.Value {
		out, err := srv.Call(t.Context(), "test", []string{"admin"}, operation, canonjson.Object(members...))
		if err != nil {
			t.Fatalf("%s: %v", operation, err)
		}
		return out
	}
	if p.Key == "none" {
		return ""
	}
	in := []canonjson.Member{canonjson.M("user", canonjson.String(user)), canonjson.M("name", canonjson.String("matrix"))}
	if p.Only != "" {
		in = append(in, canonjson.M("only", canonjson.Array(canonjson.String(p.Only))))
	}
	if p.Key == "expired" {
		in = append(in, canonjson.M("expires", canonjson.String(time.Now().Add(2*time.Second).UTC().Format(time.RFC3339))))
	}
	made := call("operator.keys.create", in...)
	switch p.Key {
	case "revoked":
		call("operator.keys.revoke", canonjson.M("id", made.Get("key").Get("id")))
	case "expired":
		time.Sleep(2 * time.Second)
	}
	return made.Get("secret").Str()
}
