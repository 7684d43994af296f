package mcp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// session is one session of the older era over HTTP.
type session struct {
	key string // the principal's rate key: nobody else may use it
	e   *endpoint
	sdk *sdk.ServerSession

	mu   sync.Mutex
	open map[string]bool // ids of calls under way
}

// newSession is the session that who began.
func newSession(who *identity.Principal, e *endpoint, s *sdk.ServerSession) *session {
	return &session{key: who.RateKey(), e: e, sdk: s, open: map[string]bool{}}
}

// begin notes a call; false when its id is in use.
func (s *session) begin(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] {
		return false
	}
	s.open[id] = true
	return true
}

// end forgets a call.
func (s *session) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

// sessions are the open sessions by id. They live in this process: a client whose session is gone begins anew.
type sessions struct {
	mu sync.Mutex
	m  map[string]*session
}

// full tells whether no further session may begin.
func (s *sessions) full(limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.m) >= limit
}

// add keeps a session until it ends.
func (s *sessions) add(id string, n *session) {
	s.mu.Lock()
	if s.m == nil {
		s.m = map[string]*session{}
	}
	s.m[id] = n
	s.mu.Unlock()
	go func() {
		n.sdk.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.m, id)
	}()
}

// get finds the session of a principal on an endpoint; nil for an unknown one and for somebody else's alike.
func (s *sessions) get(id, key string, e *endpoint) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.m[id]
	if n == nil || n.key != key || n.e != e {
		return nil
	}
	return n
}

// all lists the open sessions.
func (s *sessions) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*session, 0, len(s.m))
	for _, n := range s.m {
		out = append(out, n)
	}
	return out
}

// closeSessions ends all sessions.
func (s *Server) closeSessions() {
	var wg sync.WaitGroup
	for _, n := range s.sessions.all() {
		wg.Go(func() { n.sdk.Close() })
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeWait):
	}
}

// httpHandler is the SDK's handler of an endpoint's sessions. It gets requests that our door has checked.
func (l *legacy) httpHandler() http.Handler {
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return l.server }, &sdk.StreamableHTTPOptions{
		SessionTimeout:             l.s.cfg.SessionIdle,
		MaxRequestBodyBytes:        2 * int64(l.s.cfg.MaxBody), // our door keeps the limit; a frame may grow by escapes
		DisableLocalhostProtection: true,                       // web.Protect checks hosts
	})
}

// postLegacy answers one message of the older era.
func (s *Server) postLegacy(w http.ResponseWriter, r *http.Request, e *endpoint, m *message, f *fault.Error, takesStream bool) {
	p := &poster{s: s, w: w, id: m.id, era: fault.Legacy}
	if f != nil {
		p.fault(f)
		return
	}
	if !takesStream {
		web.Problem(w, http.StatusNotAcceptable, "not_acceptable", "the header Accept must take application/json and text/event-stream")
		return
	}
	who, creds, ok := s.identify(p, r)
	if !ok {
		return
	}
	if m.isCall() && !e.legacy.serves(m.method) {
		p.refuse(http.StatusOK, unknownMethod(m.method)) // 404 would mean that the session is gone
		return
	}
	frame, wanted, f := m.frame()
	if f != nil {
		p.refuse(http.StatusOK, f)
		return
	}
	sess, ok := s.findSession(p, r, e, m, who)
	if !ok {
		return
	}
	if !wanted {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if sess != nil && m.isCall() {
		if !sess.begin(m.id) {
			p.refuse(http.StatusOK, invalid("a call with this id is under way"))
			return
		}
		defer sess.end(m.id)
	}
	if f := s.begin(); f != nil {
		p.fault(f)
		return
	}
	defer s.calls.end()
	c := &carried{m: m, who: who, addr: creds.Addr}
	s.forward(w, r, e, c, frame)
}

// findSession finds the session that the request names. Only initialize comes without one. It answers itself when it
// returns false.
func (s *Server) findSession(p *poster, r *http.Request, e *endpoint, m *message, who *identity.Principal) (*session, bool) {
	id, once := single(r.Header, headerSession)
	switch {
	case !once:
		p.refuse(http.StatusBadRequest, invalid("the header Mcp-Session-Id must come once"))
	case id != "":
		sess := s.sessions.get(id, who.RateKey(), e)
		switch {
		case sess == nil:
			p.refuse(http.StatusNotFound, invalid("there is no such session; begin with initialize"))
		case m.method == "initialize":
			p.refuse(http.StatusOK, begunTwice())
		default:
			return sess, true
		}
	case m.method != "initialize":
		p.refuse(http.StatusBadRequest, notBegun())
	case s.sessions.full(s.cfg.Sessions) || s.open.Err() != nil:
		p.fault(fault.New(fault.Overloaded, "too many sessions are open; retry later").After(time.Minute))
	default:
		return nil, true
	}
	return nil, false
}

// begunTwice is the refusal of a second handshake.
func begunTwice() *fault.Error { return invalid("the session has begun already") }

// notBegun is the refusal of what comes before the handshake.
func notBegun() *fault.Error {
	return invalid("begin with initialize, or send the protocol version " + statelessVersion + " with each request")
}

// refuse answers with a fault and a status of its own.
func (p *poster) refuse(status int, f *fault.Error) {
	form := f.Form(fault.PlainDialect, fault.List, p.era)
	p.send(status, appendError(nil, p.id, &form))
}

// serveSession answers GET and DELETE of a session.
func (s *Server) serveSession(w http.ResponseWriter, r *http.Request, e *endpoint) {
	p := &poster{s: s, w: w, era: fault.Legacy}
	who, creds, ok := s.identify(p, r)
	if !ok {
		return
	}
	if _, ok := s.findSession(p, r, e, &message{}, who); !ok {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if r.Method == http.MethodGet {
		http.NewResponseController(w).SetReadDeadline(time.Time{})
		defer s.watch(ctx, cancel, creds, s.open)()
	}
	s.forward(w, r.WithContext(ctx), e, &carried{m: &message{}, who: who, addr: creds.Addr}, nil)
}

// watch ends a stream when its key is no longer good, or until ends. The returned function ends the watch.
func (s *Server) watch(ctx context.Context, cancel context.CancelFunc, creds identity.Credentials, until context.Context) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(s.cfg.Recheck)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-until.Done():
				cancel()
				return
			case <-tick.C:
				if !s.stillValid(ctx, creds) {
					cancel()
					return
				}
			}
		}
	}()
	return func() { close(done) }
}

// forward hands a checked request to the SDK: its headers are those that the SDK needs, its body the frame, and the
// message travels as token information. The client's key is not among them.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, e *endpoint, c *carried, frame []byte) {
	h := http.Header{"Authorization": {"Bearer carried"}}
	for _, name := range []string{"Accept", headerSession, headerVersion, "Last-Event-Id"} {
		if v, ok := r.Header[name]; ok {
			h[name] = v
		}
	}
	h["Content-Type"] = jsonType
	h["Accept"] = []string{"application/json, text/event-stream"}
	r = r.WithContext(r.Context())
	r.Header, r.Body, r.ContentLength = h, io.NopCloser(bytes.NewReader(frame)), int64(len(frame))
	a := &answer{ResponseWriter: w, limit: s.cfg.Event}
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) { return c.extra(), nil }
	auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(e.legacy.http).ServeHTTP(a, r)
	a.finish()
}

// answer is a ResponseWriter that keeps our rules over the SDK's: nothing is stored, each write has its own time, and
// an error in plain text becomes one in JSON.
type answer struct {
	http.ResponseWriter
	limit   time.Duration // of one write
	wrote   bool
	status  int    // of an error in plain text, held until finish
	problem []byte // its text
}

// WriteHeader holds back an error in plain text.
func (a *answer) WriteHeader(status int) {
	if a.wrote {
		return
	}
	a.wrote = true
	h := a.Header()
	h["Cache-Control"] = []string{"no-store"}
	if status >= 400 && strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		a.status = status
		return
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write writes, or gathers the text of an error.
func (a *answer) Write(b []byte) (int, error) {
	if !a.wrote {
		a.WriteHeader(http.StatusOK)
	}
	if a.status != 0 {
		a.problem = append(a.problem, b...)
		return len(b), nil
	}
	defer a.timed()()
	return a.ResponseWriter.Write(b)
}

// timed bounds a write, and lets the stream be silent for long after it.
func (a *answer) timed() (over func()) {
	c := http.NewResponseController(a.ResponseWriter)
	c.SetWriteDeadline(time.Now().Add(a.limit))
	return func() { c.SetWriteDeadline(time.Time{}) }
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Flush flushes, unless an error is held back.
func (a *answer) Flush() {
	if a.status == 0 {
		defer a.timed()()
		http.NewResponseController(a.ResponseWriter).Flush()
	}
}

// finish ends the answer, with the error that was held back if there is one. Our door refuses first whatever a client can do wrong, so that the words
// of the SDK are for what is left.
func (a *answer) finish() {
	a.timed() // what is still to be sent
	if a.status == 0 {
		return
	}
	form := invalid("the request was refused: status "+strconv.Itoa(a.status)).Form(fault.PlainDialect, fault.List, fault.Legacy)
	body := appendError(nil, "", &form)
	h := a.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	a.ResponseWriter.WriteHeader(a.status)
	a.ResponseWriter.Write(body)
}
