package mcp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// session is one session of the older era over HTTP.
type session struct {
	owner string // see ownerOf: nobody else may use it
	rate  string // the principal's rate key, by which sessions are counted
	e     *endpoint
	sdk   *sdk.ServerSession // nil until the handshake
	over  bool               // its place is free again; guarded by sessions.mu

	mu   sync.Mutex
	open map[string]bool // calls under way, by idKey
}

// ownerOf tells whose a session is: a principal's, as one key shows it. Another key of the same user may have less
// rights.
func ownerOf(who *identity.Principal) string { return who.RateKey() + "\x00" + who.KeyID }

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
	places quota // of sessions that are open or begin

	mu sync.Mutex
	m  map[string]*session
}

// begin takes a place for a session that who begins; nil when there is none. The session is added when it has shaken
// hands, or dropped.
func (s *sessions) begin(who *identity.Principal, e *endpoint, each, all int) *session {
	rate := who.RateKey()
	if !s.places.take(rate, each, all) {
		return nil
	}
	return &session{owner: ownerOf(who), rate: rate, e: e, open: map[string]bool{}}
}

// add keeps a session until it ends. One that was dropped already is closed.
func (s *sessions) add(n *session, ss *sdk.ServerSession) {
	id := ss.ID()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.over {
		go ss.Close() // it waits for the call that adds it
		return
	}
	if s.m == nil {
		s.m = map[string]*session{}
	}
	n.sdk = ss
	s.m[id] = n
	go func() {
		ss.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.m, id)
		s.free(n)
	}()
}

// drop gives up a session that was not added.
func (s *sessions) drop(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.sdk == nil {
		s.free(n)
	}
}

// free gives a session's place back. The caller holds mu.
func (s *sessions) free(n *session) {
	if !n.over {
		n.over = true
		s.places.free(n.rate)
	}
}

// get finds an owner's session on an endpoint; nil for an unknown one and for somebody else's alike.
func (s *sessions) get(id, owner string, e *endpoint) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.m[id]
	if n == nil || n.owner != owner || n.e != e {
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
func (s *Server) postLegacy(p *poster, r *http.Request, e *endpoint, in *incoming, takesStream bool) {
	m := in.m
	if !takesStream {
		web.Problem(p.w, http.StatusNotAcceptable, "not_acceptable", "the header Accept must take application/json and text/event-stream")
		return
	}
	if !s.authenticate(r, in) {
		p.fault(in.refused)
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
	sess := s.findSession(p, r, e, m, in.who)
	if sess == nil {
		return
	}
	defer s.sessions.drop(sess)
	if !wanted {
		p.w.WriteHeader(http.StatusAccepted)
		return
	}
	if m.isCall() {
		key := idKey(m.idValue())
		if !sess.begin(key) {
			p.refuse(http.StatusOK, invalid("a call with this id is under way"))
			return
		}
		defer sess.end(key)
	}
	if f := s.begin(); f != nil {
		p.fault(f)
		return
	}
	defer s.calls.end()
	in.m = nil // only the SDK keeps it, until it is answered
	s.forward(p, r, e, &carried{m: m, who: in.who, addr: in.creds.Addr, session: sess, mem: &in.mem}, frame)
}

// findSession finds the session that the request names. Only initialize comes without one, and begins one. It
// answered itself when it returns nil.
func (s *Server) findSession(p *poster, r *http.Request, e *endpoint, m *message, who *identity.Principal) *session {
	id, once := single(r.Header, headerSession)
	switch {
	case !once:
		p.refuse(http.StatusBadRequest, invalid("the header Mcp-Session-Id must come once"))
	case id != "":
		sess := s.sessions.get(id, ownerOf(who), e)
		switch {
		case sess == nil:
			p.refuse(http.StatusNotFound, invalid("there is no such session; begin with initialize"))
		case m.method == "initialize":
			p.refuse(http.StatusOK, begunTwice())
		default:
			return sess
		}
	case m.method != "initialize":
		p.refuse(http.StatusBadRequest, notBegun())
	default:
		if sess := s.sessions.begin(who, e, s.cfg.SessionsEach, s.cfg.Sessions); sess != nil && s.open.Err() == nil {
			return sess
		} else if sess != nil {
			s.sessions.drop(sess)
		}
		p.fault(tooMany("sessions"))
	}
	return nil
}

// tooMany is the refusal of one more session or stream.
func tooMany(what string) *fault.Error {
	return fault.New(fault.Overloaded, "too many %s are open; end one, or retry later", what).After(time.Minute)
}

// begunTwice is the refusal of a second handshake.
func begunTwice() *fault.Error { return invalid("the session has begun already") }

// notBegun is the refusal of what comes before the handshake.
func notBegun() *fault.Error {
	return invalid("begin with initialize, or send the protocol version " + statelessVersion + " with each request")
}

// form answers with a form.
func (p *poster) form(form *fault.Form) {
	own := *form
	p.headers(&own)
	p.send(own.HTTP, appendError(nil, p.id, &own))
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
	sess := s.findSession(p, r, e, &message{}, who)
	if sess == nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if r.Method == http.MethodGet {
		if !s.openStream(p, r, e, who) {
			return
		}
		defer s.streams.free(who.RateKey())
		http.NewResponseController(w).SetReadDeadline(time.Time{})
		defer s.watch(ctx, cancel, creds, s.open)()
	}
	s.forward(p, r.WithContext(ctx), e, &carried{m: &message{}, who: who, addr: creds.Addr, session: sess}, nil)
}

// openStream counts a stream of the older era that begins: as a call, and as open until s.streams.free. False when it
// answered that there may be none.
func (s *Server) openStream(p *poster, r *http.Request, e *endpoint, who *identity.Principal) bool {
	if _, f := s.cfg.Gate.View(r.Context(), who, e.name); f != nil {
		p.fault(f)
		return false
	}
	if !s.streams.take(who.RateKey(), s.cfg.StreamsEach, s.cfg.Sessions) {
		p.fault(tooMany("streams"))
		return false
	}
	return true
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
func (s *Server) forward(p *poster, r *http.Request, e *endpoint, c *carried, frame []byte) {
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
	a := &answer{ResponseWriter: p.w, p: p, limit: s.cfg.Event}
	c.refuse = a.refuse
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) { return c.extra(), nil }
	auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(e.legacy.http).ServeHTTP(a, r)
	a.finish()
}

// answer is a ResponseWriter that keeps our rules over the SDK's: nothing is stored, each write has its own time, and
// an error in plain text becomes one in JSON.
type answer struct {
	http.ResponseWriter
	p       *poster
	limit   time.Duration // of one write
	wrote   bool
	status  int    // of an error in plain text, held until finish
	problem []byte // its text
	// refusal is the answer in place of the SDK's, if that has not begun.
	refusal atomic.Pointer[fault.Form]
	refused bool // it was sent: what the SDK writes is dropped
}

// refuse keeps an error whose status is not that of the SDK's stream, which has none but 200: how the client proves
// who it is, when it may come again, and that the server failed. Other errors of this era come with 200; 404 would
// mean that the session is gone.
func (a *answer) refuse(form *fault.Form) {
	if form.HTTP == http.StatusUnauthorized || form.HTTP == http.StatusTooManyRequests || form.HTTP >= 500 {
		a.refusal.Store(form)
	}
}

// WriteHeader holds back an error in plain text.
func (a *answer) WriteHeader(status int) {
	if a.wrote {
		return
	}
	a.wrote = true
	h := a.Header()
	h["Cache-Control"] = []string{"no-store"}
	if form := a.refusal.Load(); form != nil {
		a.refused = true
		h.Del(headerSession)
		a.p.form(form)
		return
	}
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
	if a.refused {
		return len(b), nil
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

// finish ends the answer, with the error that was held back if there is one. Our door refuses first whatever a client
// can do wrong, so that the words of the SDK are for what is left.
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
