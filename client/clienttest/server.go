// Package clienttest is a server in memory, for tests of applications that use package client. It is the real service,
// from the strict decoder to the blob store, with a real transfer origin on this machine; only what it keeps is gone
// when it is closed. Faults are ordered before the call that is to meet them:
//
//	func TestSaveAfterLostAnswer(t *testing.T) {
//		s := clienttest.New(t)
//		c := s.Client(t, "ana")
//		s.LoseAnswers(1) // the next write happens, and its answer does not arrive
//		if err := myapp.Save(t.Context(), c); err != nil {
//			t.Fatal(err)
//		}
//	}
//
// A caller is a name, and his token is his name. Everybody may do everything, except what Forbid takes away.
package clienttest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tabellion-mcp/tabellion/client"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/transport/transfer"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// TB is the part of testing.TB that New needs.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// Options change a server. The zero value is the contract's defaults: infinite retention, and limits that a test does
// not meet.
type Options struct {
	// Retention is the age from which a superseded revision, or an artifact, may be purged. Nil: never.
	Retention *time.Duration
	// MaxDocumentBytes, MaxArtifactBytes and MaxNamespaceBytes are limits; 0 is the default.
	MaxDocumentBytes, MaxArtifactBytes, MaxNamespaceBytes int64
	// MaxPageSize is the largest page; 0 is 200.
	MaxPageSize int
}

// Server is a server in memory. Its methods are safe for concurrent use.
type Server struct {
	gate   *gate.Gate
	clock  *moved
	rights *rights
	http   *http.Server
	url    string
	faults faults
}

// New starts a server, and closes it at the end of the test. t may be nil; then Close ends it, and a machine that has no
// loopback address is a panic.
func New(t TB) *Server { return NewWith(t, Options{}) }

// NewWith is New with options.
func NewWith(t TB, o Options) *Server {
	s, err := open(o)
	switch {
	case t == nil && err != nil:
		panic(err)
	case t == nil:
		return s
	}
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// open builds the service and starts its transfer origin.
func open(o Options) (*Server, error) {
	s := &Server{clock: &moved{}, rights: &rights{}}
	log := slog.New(slog.DiscardHandler)
	store := memory.New(s.clock)
	sealer, err := seal.New(context.Background(), store, s.clock, rand.Reader)
	if err != nil {
		return nil, err
	}
	service := persistence.New(persistence.Config{
		Store: store, Blobs: blob.NewMemory(), Cursors: sealer, Limits: o.limits(), Durability: persistence.FileAndDirectorySync,
		Retention: o.Retention, Clock: s.clock,
	})
	operations, err := catalog.New(catalog.ContractNames, service.Operations()...)
	if err != nil {
		return nil, err
	}
	limits := gate.DefaultLimits()
	limits.Rate, limits.Concurrency, limits.TotalConcurrency = 0, 0, 0
	s.gate = gate.New(gate.Config{
		Catalog: operations, Decider: s.rights, Auth: names{}, Handles: service, Sealer: sealer, Recorder: nowhere{},
		Once: store, Limits: limits, Clock: s.clock, Log: log,
	})
	routes := transfer.New(transfer.Config{Gate: s.gate, Catalog: operations, Log: log})
	return s, s.listen(web.Protect(web.Options{Loopback: true, Log: log}, routes), log)
}

// limits are the limits in force.
func (o Options) limits() persistence.Limits {
	l := persistence.DefaultLimits()
	if o.MaxDocumentBytes > 0 {
		l.MaxDocumentBytes = o.MaxDocumentBytes
	}
	if o.MaxArtifactBytes > 0 {
		l.MaxArtifactBytes = o.MaxArtifactBytes
	}
	if o.MaxNamespaceBytes > 0 {
		l.MaxNamespaceBytes = o.MaxNamespaceBytes
	}
	if o.MaxPageSize > 0 {
		l.MaxPageSize = o.MaxPageSize
	}
	return l
}

// listen serves the transfer origin on a free port.
func (s *Server) listen(routes http.Handler, log *slog.Logger) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for transfers: %w", err)
	}
	s.url = "http://" + l.Addr().String()
	s.http = web.NewServer(web.Limits{}, s.withFaults(routes), log)
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // the listener is ours, and nobody else can close it
		}
	}()
	return nil
}

// Close ends the server. Transfers under way are cut. A second Close does nothing.
func (s *Server) Close() {
	_ = s.http.Close() // its error is of the listener, which is gone either way
}

// TransferURL is the transfer origin: Options.Transfer of a client.
func (s *Server) TransferURL() string { return s.url }

// Token is the token of a caller on the transfer origin: Options.Token of a client.
func (s *Server) Token(as string) string { return as }

// Client makes a client for a caller. It does not wait before it tries again.
func (s *Server) Client(t TB, as string) *client.Client {
	t.Helper()
	c, err := client.New(context.Background(), s.Caller(as), client.Options{
		Transfer: s.TransferURL(), Token: s.Token(as),
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Advance moves the server's clock: cursors live for 15 minutes, uploads for 24 hours.
func (s *Server) Advance(d time.Duration) { s.clock.by.Add(int64(d)) }

// moved is the machine's clock, moved.
type moved struct{ by atomic.Int64 }

// Now implements clock.Clock.
func (m *moved) Now() time.Time { return time.Now().Add(time.Duration(m.by.Load())) }

// nowhere is a recorder that keeps nothing.
type nowhere struct{}

// Store implements gate.Recorder.
func (nowhere) Store(audit.Entry) {}

// Read implements gate.Recorder.
func (nowhere) Read(audit.Entry) {}

// Commit keeps nothing.
func (nowhere) Commit(context.Context, audit.Entry) error { return nil }

// names takes the token of a caller for his name.
type names struct{}

// Authenticate implements gate.Authenticator.
func (names) Authenticate(_ context.Context, c identity.Credentials) (*identity.Principal, string, error) {
	if c.Key == "" {
		return nil, "no token", nil
	}
	return principal(c.Key), "", nil
}

// principal is the caller of a name.
func principal(name string) *identity.Principal {
	subject := "user:" + name
	return &identity.Principal{Subject: subject, Subjects: []string{subject}, Method: identity.MethodKey}
}
