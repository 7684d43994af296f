// Package mcp speaks the Model Context Protocol: over HTTP and over standard input and output, for clients of the
// stateless era (2026-07-28) and of the era with sessions before it.
//
//	s := mcp.New(mcp.Config{Gate: g, Catalog: c, Info: mcp.Info{Name: "tabellion", Version: v}, Log: log})
//	handler := web.Protect(options, s.Handler())   // /mcp, /persistence/mcp, ...
//	err := s.ServeStdio(ctx, principal, catalog.All, os.Stdin, os.Stdout)
//
// A message is decoded once, strictly. The stateless era is answered by the code here; the older eras go through the
// official SDK, which keeps sessions and streams, and come back here for every list, call and read. So both eras give
// the same bytes for the same result, and everything passes the gate. This package decides nothing and knows no
// operation.
package mcp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// Info is how the server names itself.
type Info struct{ Name, Title, Version, Instructions string }

// Config is what a server needs. Gate, Catalog, Info and Log are required.
type Config struct {
	Gate    *gate.Gate
	Catalog *catalog.Catalog
	Info    Info
	Log     *slog.Logger
	// HTTPStatus200 answers a refused key with 200 in place of 401, for clients that hide the body of a 401.
	HTTPStatus200 bool
	// SSE also serves the HTTP form of 2024-11-05: GET /sse and POST /messages.
	SSE bool
	// MaxBody bounds a message, in bytes; default 4 MiB (security requirements, section 3).
	MaxBody int
	// StdioCalls is how many calls of one stdio connection run at once before reading stops; default 16.
	StdioCalls int
	// Recheck is how often the key of an open stream is checked again; default 5 s, after which a revoked key must be
	// refused everywhere (security requirements, S23).
	Recheck time.Duration
	// SessionIdle ends a session of the older era after so long without a request; default 30 min.
	SessionIdle time.Duration
	// Event is how long a client may take to take one event of a stream; default 30 s.
	Event time.Duration
	// Sessions bounds the sessions of the older era that are open at once, and likewise the streams; default 1,000.
	Sessions int
	// SessionsEach and StreamsEach bound those of one principal; default 64 sessions and 16 streams.
	SessionsEach, StreamsEach int
	// Memory bounds the messages over HTTP that are held at once, in bytes: requests, and answers until they are
	// written. Beyond it messages are refused as overloaded. Default 256 MiB.
	Memory int64
}

// Server serves one catalog. It is safe for concurrent use.
type Server struct {
	cfg       Config
	endpoints map[catalog.Endpoint]*endpoint
	bindings  map[string][]binding // by a tool's wire name: arguments that are mirrored in headers
	labels    labelCache
	listeners listeners
	sessions  sessions
	sse       sseSessions
	streams   quota // open streams of the older era
	memory    *budget
	calls     calls

	// alive ends when Close gave up waiting: it cancels what still runs in sessions.
	alive context.Context
	kill  context.CancelFunc
	// open ends when Close begins: streams without an end of their own are closed.
	open context.Context
	shut context.CancelFunc
	// over ends when Close is done with calls: streams that carry answers are closed.
	over context.Context
	end  context.CancelFunc
}

// endpoint is what one path serves.
type endpoint struct {
	name               catalog.Endpoint
	prompts, resources bool
	notifies           bool   // an operation of it tells of changes: subscriptions are offered
	discover           []byte // members of the answer to server/discover after resultType
	legacy             *legacy
}

// New makes a server.
func New(cfg Config) *Server {
	cfg.MaxBody = cmp.Or(cfg.MaxBody, 4<<20)
	cfg.StdioCalls = cmp.Or(cfg.StdioCalls, 16)
	cfg.Recheck = cmp.Or(cfg.Recheck, 5*time.Second)
	cfg.SessionIdle = cmp.Or(cfg.SessionIdle, 30*time.Minute)
	cfg.Event = cmp.Or(cfg.Event, 30*time.Second)
	cfg.Sessions = cmp.Or(cfg.Sessions, 1000)
	cfg.SessionsEach = cmp.Or(cfg.SessionsEach, 64)
	cfg.StreamsEach = cmp.Or(cfg.StreamsEach, 16)
	cfg.Memory = cmp.Or(cfg.Memory, 256<<20)
	s := &Server{cfg: cfg, endpoints: map[catalog.Endpoint]*endpoint{}, bindings: map[string][]binding{}, memory: newBudget(cfg.Memory)}
	s.alive, s.kill = context.WithCancel(context.Background())
	s.open, s.shut = context.WithCancel(context.Background())
	s.over, s.end = context.WithCancel(context.Background())
	s.labels.info = s.implementation()
	for _, op := range cfg.Catalog.Operations() {
		if op.Slot == catalog.Operator {
			continue
		}
		for _, name := range []catalog.Endpoint{catalog.All, catalog.Of(op.Slot)} {
			e := s.endpoints[name]
			if e == nil {
				e = &endpoint{name: name}
				s.endpoints[name] = e
			}
			e.prompts = e.prompts || op.Publish.Prompt != nil
			e.resources = e.resources || len(op.Publish.Resources) > 0
			e.notifies = e.notifies || op.Publish.Notifies
		}
		if b := bindingsOf(op.In); op.Publish.Tool && len(b) > 0 {
			s.bindings[cfg.Catalog.WireName(op)] = b
		}
	}
	for _, e := range s.endpoints {
		e.discover = s.discoverMembers(e)
		e.legacy = newLegacy(s, e)
	}
	return s
}

// implementation is this server's name and version as JSON.
func (s *Server) implementation() []byte {
	m := []canonjson.Member{canonjson.M("name", canonjson.String(s.cfg.Info.Name))}
	if s.cfg.Info.Title != "" {
		m = append(m, canonjson.M("title", canonjson.String(s.cfg.Info.Title)))
	}
	m = append(m, canonjson.M("version", canonjson.String(s.cfg.Info.Version)))
	return canonjson.Object(m...).AppendJSON(nil)
}

// Handler serves the HTTP paths. It must be wrapped by web.Protect.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.route) }

// route finds the path's endpoint. Paths are compared as they were sent: nothing is cleaned or redirected.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if s.cfg.SSE && (path == "/sse" || path == "/messages") {
		s.routeSSE(w, r, path)
		return
	}
	if e := s.endpointAt(path); e != nil {
		s.serveEndpoint(w, r, e)
		return
	}
	web.NotFound(w)
}

// endpointAt is the endpoint of a path; nil when there is none or the catalog has nothing for it.
func (s *Server) endpointAt(path string) *endpoint {
	if path == "/mcp" {
		return s.endpoints[catalog.All]
	}
	slot, ok := strings.CutSuffix(path, "/mcp")
	if !ok || !strings.HasPrefix(slot, "/") {
		return nil
	}
	if name := catalog.Endpoint(slot[1:]); slices.Contains(slotEndpoints, name) {
		return s.endpoints[name]
	}
	return nil
}

// slotEndpoints are the endpoints of one slot.
var slotEndpoints = []catalog.Endpoint{catalog.Of(catalog.Persistence), catalog.Of(catalog.Models), catalog.Of(catalog.Context)}

// Notify tells the clients that listen, on endpoints where an operation declares that it notifies. It does not wait
// for them.
func (s *Server) Notify(c catalog.Change) {
	s.listeners.tell(c)
	for _, e := range s.endpoints {
		if e.notifies {
			e.legacy.tell(c)
		}
	}
}

// Close ends the server (security requirements, R12): streams without an end of their own are closed at once, calls
// under way may finish until ctx ends and are cancelled then. New calls are refused as overloaded. It returns ctx's
// error when calls had to be cancelled.
func (s *Server) Close(ctx context.Context) error {
	s.shut()
	err := s.calls.close(ctx)
	s.kill()
	if err != nil {
		last, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		s.calls.close(last) // what was cancelled is answered still
	}
	s.end()
	s.closeSessions()
	return err
}

// closeWait is how long Close waits for calls that it cancelled, and for their sessions.
const closeWait = 2 * time.Second

// begin counts a call until end, from before it runs until its answer was sent: Close waits for it. The fault is the
// answer when the server closes.
func (s *Server) begin() *fault.Error {
	if s.calls.begin() {
		return nil
	}
	return fault.New(fault.Overloaded, "the server is shutting down; nothing was done, retry shortly").After(time.Second)
}

// calls counts calls under way.
type calls struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // made by close, closed when n is 0
}

// begin counts a call; false when the server closes.
func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.n++
	return true
}

// end counts a call that is over.
func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// close refuses further calls and waits for those under way until ctx ends.
func (c *calls) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	if c.n == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
