// Package inproc puts the persistence slot behind a real gate in this process, for tests and benches: the same
// decoder, policy, sealing, audit and service as the program, without a network.
package inproc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/transport/transfer"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Store is what the harness needs of a store.
type Store interface {
	persistence.Store
	seal.Keyring
	audit.Log
	gate.Once
}

// Config says how the server is set up. The zero value is the default of the contract.
type Config struct {
	Store   Store
	Blobs   persistence.Blobs // nil: in memory
	Clock   clock.Clock       // nil: the system's
	Limits  persistence.Limits
	Uploads int            // open at once, of one caller; 0 is no limit
	Keep    *time.Duration // retention; nil is forever
	Grants  []scenario.Grant
	Open    bool           // everything is allowed, as in --dev
	Decider policy.Decider // nil: of Grants
	Auditor gate.Recorder  // nil: entries are counted and dropped
	Gate    *gate.Limits   // nil: no rate and concurrency limits, everything else by default
}

// Server is a gate with the persistence slot.
type Server struct {
	Gate    *gate.Gate
	Catalog *catalog.Catalog
	Service *persistence.Service
	Blobs   persistence.Blobs
	decider *switchable

	tb       TB
	transfer sync.Once
	origin   *httptest.Server // made by the first transfer
}

// switchable is a decider that a test can replace or take away.
type switchable struct {
	current atomic.Pointer[policy.Decider]
	down    atomic.Bool
}

// Decide asks the current decider; when down there is no decision.
func (s *switchable) Decide(ctx context.Context, subjects []string, checks []policy.Check) ([]policy.Decision, error) {
	if s.down.Load() {
		return nil, fmt.Errorf("the decision point does not answer")
	}
	return (*s.current.Load()).Decide(ctx, subjects, checks)
}

// set replaces the decider.
func (s *switchable) set(d policy.Decider) { s.current.Store(&d) }

// Discard is a recorder that keeps nothing.
type Discard struct{}

// Store drops the entry.
func (Discard) Store(audit.Entry) {}

// Read drops the entry.
func (Discard) Read(audit.Entry) {}

// Commit drops an entry.
func (Discard) Commit(context.Context, audit.Entry) error { return nil }

// names takes the name of a caller for his key: over the transfer origin. In process the caller is given.
type names struct{ open bool }

// Authenticate gives the caller of the name.
func (n names) Authenticate(_ context.Context, c identity.Credentials) (*identity.Principal, string, error) {
	switch {
	case n.open:
		return Principal("dev"), "", nil
	case c.Key == "":
		return nil, "no key", nil
	}
	return Principal(c.Key), "", nil
}

// TB is the part of testing.TB that New needs, so that a bench program can build a server too.
type TB interface {
	Helper()
	Fatal(args ...any)
	Context() context.Context
}

// New builds the server.
func New(tb TB, c Config) *Server {
	tb.Helper()
	if c.Clock == nil {
		c.Clock = clock.System{}
	}
	if c.Limits == (persistence.Limits{}) {
		c.Limits = persistence.DefaultLimits()
	}
	if c.Auditor == nil {
		c.Auditor = Discard{}
	}
	limits := gate.DefaultLimits()
	limits.Rate, limits.Concurrency, limits.TotalConcurrency = 0, 0, 0
	if c.Gate != nil {
		limits = *c.Gate
	}
	sealer, err := seal.New(tb.Context(), c.Store, c.Clock, rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	if c.Blobs == nil {
		c.Blobs = blob.NewMemory()
	}
	service := persistence.New(persistence.Config{
		Store: c.Store, Blobs: c.Blobs, Cursors: sealer, Limits: c.Limits, Durability: persistence.FileAndDirectorySync,
		Retention: c.Keep, MaxUploads: c.Uploads, Clock: c.Clock,
	})
	cat, err := catalog.New(catalog.ContractNames, service.Operations()...)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Catalog: cat, Service: service, Blobs: c.Blobs, decider: &switchable{}, tb: tb}
	if c.Decider != nil {
		s.decider.set(c.Decider)
	} else if err := s.SetGrants(c.Grants, c.Open); err != nil {
		tb.Fatal(err)
	}
	s.Gate = gate.New(gate.Config{
		Catalog: cat, Decider: s.decider, Auth: names{c.Open}, Handles: service, Sealer: sealer, Recorder: c.Auditor, Once: c.Store,
		Limits: limits, Clock: c.Clock, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	return s
}

// Origin is the base URL of the transfer origin, a real HTTP server. The key of a caller is his name. Its first use
// begins it, and the end of the test ends it.
func (s *Server) Origin() string {
	s.transfer.Do(func() {
		log := slog.New(slog.DiscardHandler)
		h := transfer.New(transfer.Config{Gate: s.Gate, Catalog: s.Catalog, Log: log})
		s.origin = httptest.NewServer(web.Protect(web.Options{Loopback: true, Log: log}, h))
		if t, ok := s.tb.(interface{ Cleanup(func()) }); ok {
			t.Cleanup(s.origin.Close)
		}
	})
	return s.origin.URL
}

// HTTP implements scenario.Target.
func (s *Server) HTTP(ctx context.Context, as string, req scenario.HTTPRequest) (scenario.HTTPResponse, error) {
	return scenario.Send(ctx, strings.TrimPrefix(s.Origin(), "http://"), nil, as, req)
}

// SetGrants replaces the policy.
func (s *Server) SetGrants(grants []scenario.Grant, open bool) error {
	if open {
		s.decider.set(policy.Open{})
		return nil
	}
	p, err := policy.New(scenario.Policy(grants))
	if err != nil {
		return err
	}
	s.decider.set(p)
	return nil
}

// GuardDown takes the decision point away, or brings it back.
func (s *Server) GuardDown(down bool) { s.decider.down.Store(down) }

// Principal is the caller of a name: "user:<name>".
func Principal(name string) *identity.Principal {
	subject := "user:" + name
	return &identity.Principal{Subject: subject, Subjects: []string{subject}, Method: identity.MethodKey}
}

// Do decodes the text of arguments strictly, as a transport does, and runs the call.
func (s *Server) Do(ctx context.Context, as, tool string, args []byte) (gate.Reply, error) {
	return s.do(ctx, Principal(as), tool, args)
}

// do is Do for a principal.
func (s *Server) do(ctx context.Context, who *identity.Principal, tool string, args []byte) (gate.Reply, error) {
	frame := append([]byte(`{"arguments":`), args...)
	frame = append(frame, '}')
	v, flaw, err := canonjson.Parse(frame, gate.FrameLimits())
	if err != nil {
		return gate.Reply{}, err
	}
	return s.Gate.Run(ctx, gate.Request{
		Who: who, Endpoint: catalog.All, Surface: fault.Tool, Era: fault.Stateless, Name: tool,
		In: v.Get("arguments"), Flaw: flaw,
	}), nil
}

// Call implements scenario.Target.
func (s *Server) Call(ctx context.Context, as, tool string, args []byte) (scenario.Answer, error) {
	return s.CallAs(ctx, Principal(as), tool, args)
}

// CallAs is Call for a principal.
func (s *Server) CallAs(ctx context.Context, who *identity.Principal, tool string, args []byte) (scenario.Answer, error) {
	reply, err := s.do(ctx, who, tool, args)
	if err != nil {
		return scenario.Answer{}, err
	}
	return answer(reply, fault.Tool)
}

// Read implements scenario.Target.
func (s *Server) Read(ctx context.Context, as, uri string) (scenario.Answer, error) {
	return s.ReadAs(ctx, Principal(as), uri)
}

// ReadAs is Read for a principal.
func (s *Server) ReadAs(ctx context.Context, who *identity.Principal, uri string) (scenario.Answer, error) {
	reply := s.Gate.Run(ctx, gate.Request{
		Who: who, Endpoint: catalog.All, Surface: fault.Resource, Era: fault.Stateless, Name: uri,
	})
	return answer(reply, fault.Resource)
}

// answer is the reply in the runner's form.
func answer(reply gate.Reply, surface fault.Surface) (scenario.Answer, error) {
	switch {
	case reply.Ask != nil:
		return scenario.Answer{}, fmt.Errorf("the call asks for input")
	case reply.Fault == nil:
		text := string(reply.Result.JSON)
		v, err := decode(text)
		return scenario.Answer{Structured: v, Text: text}, err
	}
	form := reply.Fault.Form(reply.Dialect(), surface, fault.Stateless)
	if form.ToolError {
		v, err := decode(string(form.Tool))
		return scenario.Answer{IsError: true, Structured: v, Text: string(form.Tool)}, err
	}
	e := &scenario.RPCError{Code: form.RPC, Message: form.Message}
	if len(form.Data) > 0 {
		data, err := decode(string(form.Data))
		if err != nil {
			return scenario.Answer{}, err
		}
		e.Data = data
	}
	return scenario.Answer{RPC: e}, nil
}

// decode reads JSON with exact numbers.
func decode(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// Seconds is n seconds.
func Seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
