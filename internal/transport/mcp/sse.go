package mcp

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// The HTTP form of 2024-11-05: a stream of events from the server (GET /sse), whose first event names where the
// client posts its messages (/messages?sessionId=...). The id is no permission: each post is authenticated, and must
// come from who opened the stream, with the same key.
//
// A post is accepted (202) before the gate sees its call: refusals for rate and overload come on the stream then, as
// errors with retry_after_ms, and have no HTTP status.

// sseSession is one open stream.
type sseSession struct {
	owner string // see ownerOf
	lines *lineSession
}

// sseSessions are the open streams by id.
type sseSessions struct {
	mu sync.Mutex
	m  map[string]*sseSession
}

// add keeps a stream.
func (s *sseSessions) add(id string, n *sseSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[string]*sseSession{}
	}
	s.m[id] = n
}

// remove forgets a stream.
func (s *sseSessions) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, id)
}

// get finds an owner's stream; nil for an unknown one and for somebody else's alike.
func (s *sseSessions) get(id, owner string) *sseSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.m[id]; n != nil && n.owner == owner {
		return n
	}
	return nil
}

// routeSSE answers /sse and /messages.
func (s *Server) routeSSE(w http.ResponseWriter, r *http.Request, path string) {
	e := s.endpoints[catalog.All]
	switch {
	case e == nil:
		web.NotFound(w)
	case path == "/sse" && r.Method == http.MethodGet:
		s.openSSE(w, r, e)
	case path == "/sse":
		web.MethodNotAllowed(w, "GET")
	case r.Method == http.MethodPost:
		s.postSSE(w, r)
	default:
		web.MethodNotAllowed(w, "POST")
	}
}

// openSSE serves one stream until the client goes away, its key is no longer good, or the server closes.
func (s *Server) openSSE(w http.ResponseWriter, r *http.Request, e *endpoint) {
	p := &poster{s: s, w: w, era: fault.Legacy, stream: true}
	who, creds, ok := s.identify(p, r)
	if !ok {
		return
	}
	if _, takes := accepts(r.Header); !takes {
		web.Problem(w, http.StatusNotAcceptable, "not_acceptable", "the header Accept must take text/event-stream")
		return
	}
	if !s.openStream(p, r, e, who) {
		return
	}
	defer s.streams.free(who.RateKey())
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	lines, err := newLineSession(context.WithoutCancel(ctx), e, func(text []byte) bool {
		if !p.event(text) {
			cancel()
			return false
		}
		return true
	}, nil)
	if err != nil {
		p.fault(fault.New(fault.Overloaded, "no session can be opened now; retry shortly").Wrap(err))
		return
	}
	defer lines.end()
	defer p.close() // before lines.end: its calls may end later, the stream not
	id := rand.Text()
	s.sse.add(id, &sseSession{owner: ownerOf(who), lines: lines})
	defer s.sse.remove(id)
	defer s.watch(ctx, cancel, creds, s.over)()
	p.first("endpoint", "/messages?sessionId="+id)
	<-ctx.Done()
}

// first begins the stream with an event of its own name.
func (p *poster) first(name, data string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin()
	p.write(name, []byte(data))
}

// postSSE takes one message for a stream; the answer comes on the stream.
func (s *Server) postSSE(w http.ResponseWriter, r *http.Request) {
	if !isJSON(r.Header) {
		web.Problem(w, http.StatusUnsupportedMediaType, "unsupported_media_type", "send the message as Content-Type: application/json")
		return
	}
	p := &poster{s: s, w: w, era: fault.Legacy}
	in := s.receive(p, r)
	if in == nil {
		return
	}
	given := false // a call that is given keeps its memory until it is answered
	defer func() {
		if !given {
			in.mem.release()
		}
	}()
	if !s.authenticate(r, in) {
		p.fault(in.refused)
		return
	}
	m := in.m
	n := s.sse.get(r.URL.Query().Get("sessionId"), ownerOf(in.who))
	if n == nil {
		p.refuse(http.StatusNotFound, invalid("there is no such session; open the stream first"))
		return
	}
	if m.meta.Get(metaVersion).Kind() != canonjson.KindAbsent {
		p.fault(fault.New(fault.UnsupportedVersion, "this form of the transport serves older versions only").
			With("requested", catalog.Clip(m.meta.Get(metaVersion).Str(), 64)).With("supported", legacyVersions))
		return
	}
	given = n.take(w, r, &carried{m: m, who: in.who, addr: in.creds.Addr, mem: &in.mem})
}

// take gives the message to the stream's session. It tells whether a call was given.
func (n *sseSession) take(w http.ResponseWriter, r *http.Request, c *carried) (given bool) {
	m := c.m
	frame, ok, f := n.lines.check(m)
	if f != nil && m.isCall() {
		form := f.Form(fault.PlainDialect, fault.List, fault.Legacy)
		n.lines.out(appendError(nil, m.id, &form))
	}
	if f == nil && ok {
		if n.lines.give(r.Context(), c, frame) != nil {
			web.Problem(w, http.StatusNotFound, "not_found", "the stream has ended; open another")
			return false
		}
		given = m.isCall()
	}
	w.WriteHeader(http.StatusAccepted)
	return given
}
