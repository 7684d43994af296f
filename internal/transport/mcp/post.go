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
	body := buffers.Get().(*[]byte)
	defer putBuffer(body)
	if !s.readBody(w, r, body) {
		return
	}
	m, f := readMessage(*body)
	stateless = stateless || m.meta.Get(metaVersion).Kind() != canonjson.KindAbsent || m.method == "server/discover"
	if !stateless {
		s.postLegacy(w, r, e, m, f, takesStream)
		return
	}
	p := &poster{s: s, w: w, id: m.id, era: fault.Stateless, stream: takesStream}
	if f != nil {
		p.fault(f)
		return
	}
	s.postStateless(p, r, e, m)
}

// readBody reads the whole body into buf; false when it answered that it cannot.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, buf *[]byte) bool {
	if r.ContentLength <= int64(s.cfg.MaxBody) {
		b := *buf
		// A length that was only claimed gets no more than this at once; the rest grows with what comes.
		if n := min(int(r.ContentLength)+1, maxKept); n > cap(b) {
			b = make([]byte, 0, n)
		}
		err := error(nil)
		for err == nil && len(b) <= s.cfg.MaxBody {
			if len(b) == cap(b) {
				b = append(b, 0)[:len(b)]
			}
			var n int
			n, err = r.Body.Read(b[len(b):cap(b)])
			b = b[:len(b)+n]
		}
		*buf = b
		switch {
		case errors.Is(err, io.EOF) && len(b) <= s.cfg.MaxBody:
			// What is read now belongs to this call however long it takes: the body's deadline would end its context.
			http.NewResponseController(w).SetReadDeadline(time.Time{})
			return true
		case len(b) <= s.cfg.MaxBody:
			w.Header().Set("Connection", "close")
			web.Problem(w, http.StatusBadRequest, "incomplete", "the body ended early; send it again")
			return false
		}
	}
	w.Header().Set("Connection", "close") // the rest is not read to keep the connection
	web.Problem(w, http.StatusRequestEntityTooLarge, "too_large", "a message may have "+strconv.Itoa(s.cfg.MaxBody)+" bytes; send less at once")
	return false
}

// postStateless answers a message of the stateless era.
func (s *Server) postStateless(p *poster, r *http.Request, e *endpoint, m *message) {
	x := &exchange{s: s, e: e, era: fault.Stateless, m: m}
	creds := web.Credentials(r)
	x.addr = creds.Addr
	if m.method != "server/discover" { // the one method that needs no identity
		var f *fault.Error
		if x.who, f = s.cfg.Gate.Authenticate(r.Context(), creds); f != nil {
			p.fault(f)
			return
		}
	}
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
		s.listenHTTP(p, r, x, creds)
	default:
		p.serve(r.Context(), x)
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

// serve runs the exchange and answers.
func (p *poster) serve(ctx context.Context, x *exchange) {
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
	buf := make([]byte, 0, len(data)+len(name)+16)
	buf = append(append(append(buf, "event: "...), name...), "\ndata: "...)
	buf = append(append(buf, data...), "\n\n"...)
	if _, err := w.Write(buf); err != nil {
		return err
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
