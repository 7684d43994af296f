// Package transfer serves the raw HTTP routes of the catalog: bytes in, and bytes out. Each request is one call through
// the gate, with the caller's own key, decided anew; no byte of a body is read before the decision.
//
//	h := transfer.New(transfer.Config{Gate: g, Catalog: c, Log: log})
//	handler := web.Protect(options, h)            // PUT /uploads/<namespace>/<uploadId>, GET /artifacts/<namespace>/<id>
//
// Everything that is not exactly a route is 404; nothing is ever redirected (persistence.v1, section 6).
package transfer

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// Config is what a Handler needs. Gate, Catalog and Log are required.
type Config struct {
	Gate    *gate.Gate
	Catalog *catalog.Catalog
	Log     *slog.Logger
	// Pace is the time within which the other side must send, or take, a piece of 64 KiB, or all that is left: whoever
	// is slower is cut off. Default 30 s, so that a transfer that lost its connection is over within a minute and can be
	// begun again (security requirements, S10).
	Pace time.Duration
	// Average is how many bytes a second the other side must send, or take, on average, after twice the pace: a slot is
	// not to be had for days. Default 16 KiB.
	Average int64
	// Transfers bounds the transfers under way, and TransfersEach those of one principal; further ones are busy. Default
	// 256 and 16, as many as calls. Each takes some hundred KiB of memory.
	Transfers, TransfersEach int
}

// piece is how much is in memory of one transfer (security requirements, section 3).
const piece = 64 << 10

// Handler serves the routes of a catalog. It is safe for concurrent use.
type Handler struct {
	cfg    Config
	routes []*catalog.Operation
	slots  slots
}

// New makes a handler.
func New(cfg Config) *Handler {
	cfg.Pace = cmp.Or(cfg.Pace, 30*time.Second)
	cfg.Average = cmp.Or(cfg.Average, 16<<10)
	cfg.Transfers, cfg.TransfersEach = cmp.Or(cfg.Transfers, 256), cmp.Or(cfg.TransfersEach, 16)
	h := &Handler{cfg: cfg, slots: slots{all: cfg.Transfers, each: cfg.TransfersEach}}
	for _, op := range cfg.Catalog.Operations() {
		if op.Publish.Route != nil {
			h.routes = append(h.routes, op)
		}
	}
	return h
}

// Serves tells whether the request's path is of a route, whatever its method: where other handlers share the listener.
func (h *Handler) Serves(r *http.Request) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for _, op := range h.routes {
		if op.Publish.Route.Prefix == first {
			return true
		}
	}
	return false
}

// ServeHTTP answers one request. It must be wrapped by web.Protect.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	op, in := h.find(r)
	if op == nil {
		leave(w, r, control)
		web.NotFound(w)
		return
	}
	who, f := h.cfg.Gate.Authenticate(r.Context(), web.Credentials(r))
	if f != nil {
		h.fail(w, r, control, f)
		return
	}
	release, ok := h.slots.take(who.RateKey())
	if !ok {
		h.fail(w, r, control, fault.New(fault.Busy, "too many transfers are under way; retry when one has ended").After(time.Second))
		return
	}
	defer release()
	// Deadlines of the listener are those of short answers; here each piece has its own.
	control.SetWriteDeadline(time.Time{})
	sent := &body{reader: r.Body, control: control, pace: h.cfg.Pace, tempo: h.tempo()}
	reply := h.cfg.Gate.Run(r.Context(), gate.Request{
		Who: who, Endpoint: catalog.All, Surface: fault.Transfer, Name: op.Name, In: in, Addr: web.ClientAddr(r),
		Body: &catalog.Body{Reader: sent, Length: r.ContentLength, Coded: coded(r), Ranged: len(r.Header["Content-Range"]) > 0},
	})
	switch {
	case reply.Fault != nil:
		h.fail(w, r, control, reply.Fault)
	case reply.Result != nil && reply.Result.Stream != nil:
		h.send(w, r, control, op.Publish.Route, reply.Result.Stream)
	default:
		w.WriteHeader(op.Publish.Route.Status)
	}
}

// find finds the operation of a request and its input. The segments are taken as they were sent, decoded once, and must
// then be what the operation takes.
func (h *Handler) find(r *http.Request) (*catalog.Operation, canonjson.Value) {
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/")
	segments := strings.Split(path, "/")
	for _, op := range h.routes {
		route := op.Publish.Route
		if !ok || r.Method != route.Method || segments[0] != route.Prefix || len(segments) != 1+len(route.Arguments) {
			continue
		}
		in, ok := arguments(route.Arguments, segments[1:])
		if ok && op.In.Check(in) == nil {
			return op, in
		}
	}
	return nil, canonjson.Value{}
}

// arguments names the segments.
func arguments(names, segments []string) (canonjson.Value, bool) {
	m := make([]canonjson.Member, len(names))
	for i, s := range segments {
		text, err := url.PathUnescape(s)
		if err != nil {
			return canonjson.Value{}, false
		}
		m[i] = canonjson.M(names[i], canonjson.String(text))
	}
	return canonjson.Object(m...), true
}

// coded tells whether the body has a content coding.
func coded(r *http.Request) bool {
	for _, v := range r.Header["Content-Encoding"] {
		if !strings.EqualFold(strings.TrimSpace(v), "identity") {
			return true
		}
	}
	return false
}

// leave sees to it that what is left of a body is not read: the connection ends with the answer. Without it the server
// would wait for the sender, before the answer or after it, so that the connection can be kept.
func leave(w http.ResponseWriter, r *http.Request, control *http.ResponseController) {
	if r.ContentLength == 0 || r.ProtoMajor > 1 {
		return // there is no body, or only its stream ends
	}
	w.Header().Set("Connection", "close")
	control.SetReadDeadline(time.Now())
}

// fail answers a fault.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, control *http.ResponseController, f *fault.Error) {
	form := f.Form(fault.PersistenceDialect, fault.Transfer, fault.Stateless)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(form.Tool)))
	leave(w, r, control)
	if f.RetryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64((f.RetryAfter+time.Second-1)/time.Second), 10))
	}
	w.WriteHeader(form.HTTP)
	w.Write(form.Tool)
}

// send gives out a stream. Its first piece is read before the answer begins, so that what is found wrong by then is an
// answer of its own; later the connection is broken off, and nobody can take what came for complete.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, control *http.ResponseController, route *catalog.Route, s *catalog.Stream) {
	defer s.Close()
	buf := make([]byte, piece)
	n, err := s.Read(buf)
	if err != nil && !errors.Is(err, io.EOF) {
		h.cfg.Log.ErrorContext(r.Context(), "stored bytes are not served", "path", r.URL.Path, "error", err)
		h.fail(w, r, control, readFault(err))
		return
	}
	header := w.Header()
	header.Set("Content-Type", s.MIME)
	header.Set("Content-Length", strconv.FormatInt(s.Size, 10))
	header.Set("Content-Disposition", "attachment")
	for name, value := range route.Headers {
		header.Set(name, value)
	}
	w.WriteHeader(route.Status)
	taken := h.tempo()
	for {
		if n > 0 {
			began := time.Now()
			control.SetWriteDeadline(began.Add(h.cfg.Pace))
			_, werr := w.Write(buf[:n])
			if werr != nil || taken.tooSlow(n, time.Since(began)) {
				panic(http.ErrAbortHandler) // the client went away, or takes too little
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			h.cfg.Log.ErrorContext(r.Context(), "a download was broken off: stored bytes are damaged or cannot be read", "path", r.URL.Path, "error", err)
			panic(http.ErrAbortHandler)
		}
		n, err = s.Read(buf)
	}
}

// readFault is the fault of a stream that cannot be read.
func readFault(err error) *fault.Error {
	if f := fault.As(err); f != nil {
		return f
	}
	return fault.New(fault.StoreUnavailable, "the bytes cannot be read now; retry later").Wrap(err)
}

// tempo counts what the other side has moved, and how long it was waited for.
type tempo struct {
	average int64
	grace   time.Duration
	moved   int64
	waited  time.Duration
}

// tempo begins to count.
func (h *Handler) tempo() tempo { return tempo{average: h.cfg.Average, grace: 2 * h.cfg.Pace} }

// tooSlow counts n bytes that took d, and tells whether the average is too low by now.
func (t *tempo) tooSlow(n int, d time.Duration) bool {
	t.moved += int64(n)
	t.waited += d
	return t.waited > t.grace && float64(t.moved) < (t.waited-t.grace).Seconds()*float64(t.average)
}

// errSlow ends a body whose sender is too slow on average.
var errSlow = errors.New("the sender is too slow")

// body reads a request's body at the pace that is asked for.
type body struct {
	reader  io.Reader
	control *http.ResponseController
	pace    time.Duration
	begun   bool
	got     int           // of the piece that is awaited
	left    time.Duration // for the rest of it. Only waiting for the sender counts: our own disk may be slow
	tempo   tempo
}

// Read reads more. The first Read tells a client that waits for it to begin.
func (b *body) Read(p []byte) (int, error) {
	if !b.begun || b.got >= piece {
		b.begun, b.got, b.left = true, 0, b.pace
	}
	began := time.Now()
	if err := b.control.SetReadDeadline(began.Add(b.left)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := b.reader.Read(p)
	took := time.Since(began)
	b.left -= took
	b.got += n
	if b.tempo.tooSlow(n, took) && err == nil {
		return n, errSlow
	}
	if errors.Is(err, io.EOF) {
		// The server goes on to read from the connection, to learn when the client leaves. A deadline would end the
		// request while its bytes are being synced.
		b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
