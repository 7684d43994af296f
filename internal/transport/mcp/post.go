package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// buffers keeps buffers for bodies and answers. One that grew beyond maxKept is dropped.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// maxKept is the largest buffer that is kept for the next request.
const maxKept = 256 << 10

// putBuffer gives a buffer back.
func putBuffer(b *[]byte) {
	if cap(*b) <= maxKept {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// jsonType and streamType are the values of Content-Type. Nobody may write into them.
var (
	jsonType   = []string{"application/json"}
	streamType = []string{"text/event-stream"}
)

// serveEndpoint answers a request for one endpoint. The era is told by the version header, or by the body when there
// is none.
func (s *Server) serveEndpoint(w http.ResponseWriter, r *http.Request, e *endpoint) {
	version, _ := single(r.Header, headerVersion)
	stateless := len(r.Header[headerVersion]) > 0 && !slices.Contains(legacyVersions, version)
	switch {
	case r.Method == http.MethodPost:
		s.post(w, r, e, stateless)
	case stateless:
		web.MethodNotAllowed(w, "POST")
	case (r.Method == http.MethodGet || r.Method == http.MethodDelete) && len(r.Header[headerSession]) > 0:
		s.serveSession(w, r, e)
	default:
		// Without a session there is no stream to open and nothing to delete.
		web.MethodNotAllowed(w, "POST")
	}
}

// post answers one message.
func (s *Server) post(w http.ResponseWriter, r *http.Request, e *endpoint, stateless bool) {
	if !isJSON(r.Header) {
		web.Problem(w, http.StatusUnsupportedMediaType, "unsupported_media_type", "send the message as Content-Type: application/json")
		return
	}
	takesJSON, takesStream := accepts(r.Header)
	if !takesJSON {
		web.Problem(w, http.StatusNotAcceptable, "not_acceptable", "the header Accept must take application/json and text/event-stream")
		return
	}
	p := &poster{s: s, w: w, era: fault.Legacy}
	in := s.receive(p, r)
	if in == nil {
		return
	}
	defer in.mem.release()
	stateless = stateless || in.m.meta.Get(metaVersion).Kind() != canonjson.KindAbsent || in.m.method == "server/discover"
	if !stateless {
		s.postLegacy(p, r, e, in, takesStream)
		return
	}
	p.era, p.stream = fault.Stateless, takesStream
	s.postStateless(p, r, e, in)
}

// incoming is a message that was posted, and who sent it.
type incoming struct {
	m     *message
	creds identity.Credentials
	who   *identity.Principal // nil when there are no good credentials, or nobody looked at them yet
	// refused says why the credentials are no good; nil when they are good, or nobody looked at them yet.
	refused *fault.Error
	// mem is what the message holds of the server's memory, and its answer. Who received the message releases it.
	mem hold
}

// keylessBody is how much is read for who has shown no good credentials, in bytes: enough for server/discover, which
// needs none, and to tell the id of a refused call.
const keylessBody = 64 << 10

// receive takes a posted message in: it looks at the credentials, finds room, and reads. Nil when it answered already:
// with too large a body, half a one, or one that is no message.
func (s *Server) receive(p *poster, r *http.Request) *incoming {
	in := &incoming{creds: web.Credentials(r)}
	limit := keylessBody
	// A client that only looks what the server is may have no key yet, which is no failed authentication.
	if method, _ := single(r.Header, headerMethod); method != "server/discover" && s.authenticate(r, in) {
		limit = s.cfg.MaxBody
	}
	limit = min(limit, s.cfg.MaxBody)
	in.mem = hold{b: s.memory, key: in.rateKey()}
	read := false
	defer func() {
		if !read {
			in.mem.release()
		}
	}()
	if read = s.read(p, r, in, limit); !read {
		return nil
	}
	return in
}

// rateKey is what the message's memory is counted by.
func (in *incoming) rateKey() string {
	if in.who == nil {
		return ""
	}
	return in.who.RateKey()
}

// authenticate looks at the credentials, once.
func (s *Server) authenticate(r *http.Request, in *incoming) bool {
	if in.who == nil && in.refused == nil {
		in.who, in.refused = s.cfg.Gate.Authenticate(r.Context(), in.creds)
	}
	return in.refused == nil
}

// read reads the message of at most limit bytes, and keeps the room that it needs. False when it answered.
func (s *Server) read(p *poster, r *http.Request, in *incoming, limit int) bool {
	size := r.ContentLength
	if size > int64(limit) {
		p.tooLarge(in.refused, limit)
		return false
	}
	if size < 0 {
		size = int64(limit)
	}
	if !in.mem.become(r.Context(), int(size)) {
		p.w.Header().Set("Connection", "close")
		p.fault(noRoom())
		return false
	}
	body := buffers.Get().(*[]byte)
	defer putBuffer(body)
	if !s.readBody(p, r, in, body, limit) {
		return false
	}
	in.mem.become(r.Context(), len(*body)) // less than was claimed, when it came in chunks
	var f *fault.Error
	in.m, f = readMessage(*body)
	if p.id = in.m.id; f != nil {
		p.fault(f)
		return false
	}
	return true
}

// readBody reads the whole body of at most limit bytes into buf; false when it answered that it cannot.
func (s *Server) readBody(p *poster, r *http.Request, in *incoming, buf *[]byte, limit int) bool {
	b := *buf
	// A length that was only claimed gets no more than this at once; the rest grows with what comes.
	if n := min(int(r.ContentLength)+1, maxKept); n > cap(b) {
		b = make([]byte, 0, n)
	}
	err := error(nil)
	for err == nil && len(b) <= limit {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		var n int
		n, err = r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
	}
	*buf = b
	switch {
	case len(b) > limit:
		p.tooLarge(in.refused, limit)
		return false
	case !errors.Is(err, io.EOF):
		p.w.Header().Set("Connection", "close")
		web.Problem(p.w, http.StatusBadRequest, "incomplete", "the body ended early; send it again")
		return false
	}
	// What is read now belongs to this call however long it takes: the body's deadline would end its context.
	http.NewResponseController(p.w).SetReadDeadline(time.Time{})
	return true
}

// tooLarge refuses a body that is not read, or not to its end: with why the credentials are no good, or for its size.
func (p *poster) tooLarge(refused *fault.Error, limit int) {
	p.w.Header().Set("Connection", "close") // the rest is not read to keep the connection
	if refused != nil {
		p.fault(refused)
		return
	}
	web.Problem(p.w, http.StatusRequestEntityTooLarge, "too_large", "this message may have "+strconv.Itoa(limit)+" bytes; send less at once")
}

// postStateless answers a message of the stateless era.
func (s *Server) postStateless(p *poster, r *http.Request, e *endpoint, in *incoming) {
	m := in.m
	// server/discover is the one method that needs no identity.
	if m.method != "server/discover" && !s.authenticate(r, in) {
		p.fault(in.refused)
		return
	}
	x := &exchange{s: s, e: e, era: fault.Stateless, m: m, who: in.who, addr: in.creds.Addr}
	if f := s.checkRequest(r, e, m); f != nil {
		p.fault(f)
		return
	}
	if f := s.checkMirrored(r, x); f != nil {
		p.fault(f)
		return
	}
	switch {
	case m.id == "":
		p.w.WriteHeader(http.StatusAccepted)
	case m.method == "server/discover":
		p.result(x.appendDiscover)
	case m.method == "subscriptions/listen":
		s.listenHTTP(p, r, x, in.creds)
	default:
		p.serve(r.Context(), x, in)
	}
}

// checkRequest is everything about the form of a message of the stateless era that needs no identity: versions,
// headers, the method and the members that each request carries.
func (s *Server) checkRequest(r *http.Request, e *endpoint, m *message) *fault.Error {
	if m.response {
		return invalid("no request of this server is open: it sends none in this era")
	}
	version, ok := single(r.Header, headerVersion)
	if !ok {
		return mismatch("the header MCP-Protocol-Version must be there once")
	}
	if f := checkVersion(m, version, true); f != nil {
		return f
	}
	if f := checkHeaders(m, r.Header); f != nil {
		return f
	}
	if m.id == "" {
		return nil
	}
	if !e.serves(m.method) {
		return unknownMethod(m.method)
	}
	return checkMeta(m)
}

// checkMirrored compares the arguments of a tool that are mirrored in headers. A tool that the caller may not know
// has no rules either.
func (s *Server) checkMirrored(r *http.Request, x *exchange) *fault.Error {
	if x.m.method != "tools/call" || len(s.bindings) == 0 {
		return nil
	}
	name := x.m.params.Get("name").Str()
	bindings := s.bindings[name]
	if bindings == nil || s.cfg.Gate.Tool(r.Context(), x.who, x.e.name, name) == nil {
		return nil
	}
	return checkParams(bindings, x.m.params.Get("arguments"), r.Header)
}

// poster writes the answer to one POST: as JSON, or as a stream of events once something was sent before the answer.
type poster struct {
	s      *Server
	w      http.ResponseWriter
	id     string
	era    fault.Era
	stream bool // the client takes a stream

	mu      sync.Mutex
	started bool // the stream began
	done    bool // the answer was sent
}

// serve runs the exchange of a message and answers. Once there is an answer it takes the message's place in memory.
func (p *poster) serve(ctx context.Context, x *exchange, in *incoming) {
	if f := p.s.begin(); f != nil {
		p.fault(f)
		return
	}
	defer p.s.calls.end()
	x.client = capsOf(x.m.meta.Get(metaCapabilities))
	if p.stream {
		p.listen(x)
	}
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	dst := append(appendHead(*buf, p.id), `,"result":`...)
	dst, form := x.answer(ctx, dst)
	if ctx.Err() != nil {
		*buf = dst
		p.close() // nobody is there
		return
	}
	x.m, in.m = nil, nil // nothing reads the message again; its memory is free before the answer is counted
	if form == nil && !in.mem.become(ctx, len(dst)) {
		form = x.fail(noRoomToAnswer())
	}
	status := http.StatusOK
	if form != nil {
		dst = appendError(dst[:0], p.id, form)
		status = form.HTTP
		p.headers(form)
	} else {
		dst = append(dst, '}')
	}
	*buf = dst
	p.send(status, dst)
}

// listen lets the exchange report progress and log, where the request asks for it.
func (p *poster) listen(x *exchange) {
	if token := x.m.meta.Get("progressToken"); validToken(token) {
		x.progress = func(done, total float64, note string) { p.event(progressMessage(token, done, total, note)) }
	}
	if level := x.m.meta.Get(metaLogLevel).Str(); logLevels[level] > 0 {
		x.log = func(at string, data canonjson.Value) {
			if logLevels[at] >= logLevels[level] {
				p.event(logMessage(at, data))
			}
		}
	}
}

// result answers with a result that fill appends.
func (p *poster) result(fill func([]byte) []byte) {
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	*buf = append(fill(append(appendHead(*buf, p.id), `,"result":`...)), '}')
	p.send(http.StatusOK, *buf)
}

// fault answers with a fault that came before any operation.
func (p *poster) fault(f *fault.Error) {
	form := f.Form(fault.PlainDialect, fault.List, p.era)
	switch f.Code {
	case fault.InvalidParams, fault.HeaderMismatch, fault.UnsupportedVersion:
		form.HTTP = http.StatusBadRequest // whatever the era: no session has taken the message yet
	}
	p.headers(&form)
	p.send(form.HTTP, appendError(nil, p.id, &form))
}

// headers adds what HTTP clients look at: how to authenticate, and when to come again.
func (p *poster) headers(form *fault.Form) {
	switch form.HTTP {
	case http.StatusUnauthorized:
		p.w.Header().Set("WWW-Authenticate", "Bearer")
		if p.s.cfg.HTTPStatus200 {
			form.HTTP = http.StatusOK
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		ms, _ := canonjson.Raw(form.Data).Get("retry_after_ms").Int()
		p.w.Header().Set("Retry-After", strconv.FormatInt(max(1, (ms+999)/1000), 10))
	}
}

// send sends the answer: the last event of a stream, or all there is.
func (p *poster) send(status int, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	if p.started {
		writeEvent(p.w, "message", body, p.s.cfg.Event)
		return
	}
	h := p.w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	p.w.WriteHeader(status)
	p.w.Write(body)
}

// event sends a message before the answer. After the answer, and when the client went away, it does nothing and
// returns false.
func (p *poster) event(body []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return false
	}
	p.begin()
	p.write("message", body)
	return !p.done
}

// begin makes the answer a stream. The caller holds mu.
func (p *poster) begin() {
	if p.started {
		return
	}
	p.started = true
	p.w.Header()["Content-Type"] = streamType
	p.w.WriteHeader(http.StatusOK)
}

// write sends one event, after which the stream may be silent for long. The caller holds mu.
func (p *poster) write(name string, body []byte) {
	if err := writeEvent(p.w, name, body, p.s.cfg.Event); err != nil {
		p.done = true
		return
	}
	http.NewResponseController(p.w).SetWriteDeadline(time.Time{})
}

// close ends the answer without sending more.
func (p *poster) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
}

// writeEvent writes one server-sent event and flushes it. Each event has its own time, so that a stream may be long.
// The deadline stays set; HTTP/2 ends a stream that only waits when it passes.
func writeEvent(w http.ResponseWriter, name string, data []byte, limit time.Duration) error {
	c := http.NewResponseController(w)
	if err := c.SetWriteDeadline(time.Now().Add(limit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	// In three parts, because a copy of a large answer would double it. Small parts are gathered by net/http.
	for _, part := range [][]byte{append(append([]byte("event: "), name...), "\ndata: "...), data, []byte("\n\n")} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return c.Flush()
}

// validToken tells whether v can be a progress token.
func validToken(v canonjson.Value) bool {
	return v.Kind() == canonjson.KindString || v.Kind() == canonjson.KindNumber
}

// logLevels orders the levels of log messages (RFC 5424).
var logLevels = map[string]int{"debug": 1, "info": 2, "notice": 3, "warning": 4, "error": 5, "critical": 6, "alert": 7, "emergency": 8}

// progressMessage is a notification of progress.
func progressMessage(token canonjson.Value, done, total float64, note string) []byte {
	params := []canonjson.Member{canonjson.M("progressToken", token), canonjson.M("progress", canonjson.Float(done))}
	if total > 0 {
		params = append(params, canonjson.M("total", canonjson.Float(total)))
	}
	if note != "" {
		params = append(params, canonjson.M("message", canonjson.String(note)))
	}
	return notification("notifications/progress", params...)
}

// logMessage is a notification of a log message.
func logMessage(level string, data canonjson.Value) []byte {
	return notification("notifications/message", canonjson.M("level", canonjson.String(level)), canonjson.M("data", data))
}

// notification is a message that wants no answer.
func notification(method string, params ...canonjson.Member) []byte {
	return canonjson.Object(
		canonjson.M("jsonrpc", canonjson.String("2.0")),
		canonjson.M("method", canonjson.String(method)),
		canonjson.M("params", canonjson.Object(params...))).AppendJSON(nil)
}

// identify authenticates a request of the older era; false when it answered that it cannot.
func (s *Server) identify(p *poster, r *http.Request) (*identity.Principal, identity.Credentials, bool) {
	creds := web.Credentials(r)
	who, f := s.cfg.Gate.Authenticate(r.Context(), creds)
	if f != nil {
		p.fault(f)
		return nil, creds, false
	}
	return who, creds, true
}
