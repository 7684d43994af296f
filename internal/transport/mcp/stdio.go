package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
)

// errLine ends a connection whose client sent a line that is too long: what follows could not be told from it.
var errLine = errors.New("a line is longer than a message may be; the connection ends")

// ServeStdio serves one connection of lines: one message a line, in both directions, both eras side by side. It
// returns nil when in ended and everything under way was answered, ctx's error when ctx ended, and an error when the
// client broke the framing or out failed.
//
// At most Config.StdioCalls calls run at once. When so many do, reading stops: nothing is refused. out is written by
// one call at a time, whole lines only.
func (s *Server) ServeStdio(ctx context.Context, who *identity.Principal, at catalog.Endpoint, in io.Reader, out io.Writer) error {
	e := s.endpoints[at]
	if e == nil {
		return fmt.Errorf("the catalog has nothing for the endpoint %q", at)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.alive, cancel)()
	c := &lines{s: s, e: e, who: who, out: out, cancel: cancel, places: make(chan struct{}, s.cfg.StdioCalls), running: map[string]context.CancelFunc{}}
	defer c.endLegacy()
	err := c.read(ctx, in)
	if c.legacy != nil {
		c.legacy.noAnswers() // nobody can answer a question now
	}
	if err == nil {
		c.wait(ctx)
	}
	cancel() // what still runs: calls after a broken frame, subscriptions
	c.calls.Wait()
	if werr := c.writeError(); werr != nil {
		return werr
	}
	return err
}

// lines is one connection.
type lines struct {
	s      *Server
	e      *endpoint
	who    *identity.Principal
	cancel context.CancelFunc
	places chan struct{} // holds one for each call under way
	calls  sync.WaitGroup
	legacy *lineSession // made when the first message of the older era comes

	outMu  sync.Mutex
	out    io.Writer
	outErr error

	mu      sync.Mutex
	running map[string]context.CancelFunc // by idKey: calls and subscriptions of the stateless era
}

// lineBuffer is how much is read at once.
const lineBuffer = 64 << 10

// read reads lines until in ends or ctx does. A read that blocks when ctx ends is left behind: standard input cannot
// be interrupted.
func (c *lines) read(ctx context.Context, in io.Reader) error {
	type line struct {
		text []byte
		err  error
	}
	next := make(chan line)
	go func() {
		r := bufio.NewReaderSize(in, lineBuffer)
		for {
			text, err := readLine(r, c.s.cfg.MaxBody)
			select {
			case next <- line{text, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l := <-next:
			if len(bytes.TrimSpace(l.text)) > 0 {
				if err := c.handle(ctx, l.text); err != nil {
					return err
				}
			}
			if errors.Is(l.err, io.EOF) {
				return nil
			}
			if l.err != nil {
				return l.err
			}
		}
	}
}

// readLine reads one line without its end, of at most limit bytes.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var text []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(text)+len(bytes.TrimSuffix(part, []byte{'\n'})) > limit {
			return nil, errLine
		}
		text = append(text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(text, []byte{'\n'}), err
		}
	}
}

// handle takes one message. It returns an error only when the connection must end.
func (c *lines) handle(ctx context.Context, text []byte) error {
	m, f := readMessage(text)
	if f != nil {
		c.fail(m.id, f, fault.Stateless)
		return nil
	}
	meta := m.meta.Get(metaVersion)
	switch {
	case m.method == "notifications/cancelled" && m.id == "" && c.stop(m):
		return nil
	case !meta.IsAbsent() || m.method == "server/discover" || m.method == "subscriptions/listen" || (m.cut && c.legacy == nil):
		return c.stateless(ctx, m)
	default:
		return c.older(ctx, m)
	}
}

// stateless answers a message of the stateless era.
func (c *lines) stateless(ctx context.Context, m *message) error {
	f := checkVersion(m, "", false)
	if f == nil && m.isCall() {
		if f = checkMeta(m); f == nil && !c.e.serves(m.method) {
			f = unknownMethod(m.method)
		}
	}
	switch {
	case f != nil && m.id != "":
		c.fail(m.id, f, fault.Stateless)
		return nil
	case !m.isCall():
		return nil // notifications of this era need nothing done
	}
	x := &exchange{s: c.s, e: c.e, era: fault.Stateless, who: c.who, m: m, client: capsOf(m.meta.Get(metaCapabilities))}
	ctx, done := c.begin(ctx, idKey(m.idValue()))
	if m.method == "subscriptions/listen" {
		c.calls.Go(func() {
			defer done()
			c.subscribe(ctx, x)
		})
		return nil
	}
	if err := c.place(ctx); err != nil {
		done()
		return err
	}
	c.calls.Go(func() {
		defer c.leave()
		defer done()
		c.call(ctx, x)
	})
	return nil
}

// place waits until a call may begin. While it waits nothing is read.
func (c *lines) place(ctx context.Context) error {
	select {
	case c.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave frees a call's place.
func (c *lines) leave() { <-c.places }

// wait waits until no call is under way.
func (c *lines) wait(ctx context.Context) {
	for range cap(c.places) {
		if c.place(ctx) != nil {
			return
		}
	}
}

// begin makes the context of a request, which notifications/cancelled ends.
func (c *lines) begin(ctx context.Context, key string) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[key] = cancel
	return ctx, func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, key)
	}
}

// stop cancels the request that a notifications/cancelled names; false when none of the stateless era runs.
func (c *lines) stop(m *message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cancel := c.running[idKey(m.params.Get("requestId"))]
	if cancel == nil {
		return false
	}
	cancel()
	return true
}

// call answers one call. A cancelled one is not answered: the client said that it does not wait.
func (c *lines) call(ctx context.Context, x *exchange) {
	if f := c.s.begin(); f != nil {
		c.fail(x.m.id, f, fault.Stateless)
		return
	}
	defer c.s.calls.end()
	if token := x.m.meta.Get("progressToken"); validToken(token) {
		x.progress = func(done, total float64, note string) {
			if ctx.Err() == nil {
				c.write(progressMessage(token, done, total, note))
			}
		}
	}
	if level := x.m.meta.Get(metaLogLevel).Str(); logLevels[level] > 0 {
		x.log = func(at string, data canonjson.Value) {
			if logLevels[at] >= logLevels[level] && ctx.Err() == nil {
				c.write(logMessage(at, data))
			}
		}
	}
	if x.m.method == "server/discover" {
		c.result(x.m.id, x.appendDiscover)
		return
	}
	buf := buffers.Get().(*[]byte)
	defer putBuffer(buf)
	dst, form := x.answer(ctx, append(appendHead(*buf, x.m.id), `,"result":`...))
	if form != nil {
		dst = appendError(dst[:0], x.m.id, form)
	} else {
		dst = append(dst, '}')
	}
	*buf = dst
	if ctx.Err() == nil {
		c.write(dst)
	}
}

// subscribe serves one subscription until it is cancelled or the server closes.
func (c *lines) subscribe(ctx context.Context, x *exchange) {
	n, form := x.subscribe(ctx)
	if form != nil {
		c.write(appendError(nil, x.m.id, form))
		return
	}
	id := x.m.idValue()
	if c.s.stay(ctx, n, id, c.write, func() bool { return true }) {
		c.result(x.m.id, func(dst []byte) []byte { return appendListened(dst, id) })
	}
}

// result writes an answer whose result fill appends.
func (c *lines) result(id string, fill func([]byte) []byte) {
	c.write(append(fill(append(appendHead(nil, id), `,"result":`...)), '}'))
}

// fail writes an answer that is an error.
func (c *lines) fail(id string, f *fault.Error, era fault.Era) {
	form := f.Form(fault.PlainDialect, fault.List, era)
	c.write(appendError(nil, id, &form))
}

// write writes one line; false when the connection is broken, which also ends it.
func (c *lines) write(text []byte) bool {
	c.outMu.Lock()
	defer c.outMu.Unlock()
	if c.outErr != nil {
		return false
	}
	line := append(append(make([]byte, 0, len(text)+1), text...), '\n')
	if _, err := c.out.Write(line); err != nil {
		c.outErr = fmt.Errorf("write a message: %w", err)
		c.cancel()
		return false
	}
	return true
}

// writeError is what broke the output, nil when nothing did.
func (c *lines) writeError() error {
	c.outMu.Lock()
	defer c.outMu.Unlock()
	return c.outErr
}
