package mcp

import (
	"context"
	"io"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// lineSession is a session of the older era over a connection that carries whole messages in both directions:
// standard input and output, or the stream and posts of the HTTP form of 2024-11-05. It is the SDK's transport and
// connection at once.
type lineSession struct {
	e   *endpoint
	out func([]byte) bool // writes one message; false when it cannot
	// answered is told when a call was answered. It may be nil.
	answered func()

	in       chan jsonrpc.Message
	shut     chan struct{} // closed when no more comes
	shutOnce sync.Once
	session  *sdk.ServerSession
	// answers ends when the client can answer no question any more.
	answers   context.Context
	noAnswers context.CancelFunc

	mu    sync.Mutex
	open  map[string]*opened // calls under way, by idKey
	begun bool               // initialize was given
}

// opened is a call under way.
type opened struct {
	cancelled bool  // the client does not wait for the answer
	mem       *hold // what the call and its answer hold of the server's memory; nil where that is not counted
}

// newLineSession begins a session.
func newLineSession(ctx context.Context, e *endpoint, out func([]byte) bool, answered func()) (*lineSession, error) {
	l := &lineSession{
		e: e, out: out, answered: answered,
		in: make(chan jsonrpc.Message), shut: make(chan struct{}), open: map[string]*opened{},
	}
	l.answers, l.noAnswers = context.WithCancel(context.Background())
	session, err := e.legacy.server.Connect(ctx, l, nil)
	if err != nil {
		return nil, err
	}
	l.session = session
	return l, nil
}

// Connect makes the session its own connection.
func (l *lineSession) Connect(context.Context) (sdk.Connection, error) { return l, nil }

// SessionID is empty: the connection is the session.
func (l *lineSession) SessionID() string { return "" }

// Read gives the next message to the SDK.
func (l *lineSession) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-l.in:
		return m, nil
	case <-l.shut:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends the reading side.
func (l *lineSession) Close() error {
	l.shutOnce.Do(func() { close(l.shut) })
	return nil
}

// end closes the session and waits until its calls returned.
func (l *lineSession) end() {
	l.noAnswers()
	l.Close()
	l.session.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, o := range l.open { // what the SDK did not answer any more
		delete(l.open, key)
		o.mem.release()
		l.e.legacy.s.calls.end()
	}
}

// Write sends a message of the SDK. The answer to a call that was cancelled is dropped.
func (l *lineSession) Write(_ context.Context, msg jsonrpc.Message) error {
	if response, ok := msg.(*jsonrpc.Response); ok {
		o := l.close(rawID(response.ID))
		if o != nil {
			defer l.e.legacy.s.calls.end()
			defer l.tell()
			defer o.mem.release()
			if o.cancelled {
				return nil
			}
		}
	}
	text, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if !l.out(text) {
		return io.ErrClosedPipe
	}
	return nil
}

// tell says that a call was answered.
func (l *lineSession) tell() {
	if l.answered != nil {
		l.answered()
	}
}

// close forgets a call; nil when none has this id.
func (l *lineSession) close(key string) *opened {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.open[key]
	delete(l.open, key)
	return o
}

// rawID is the key of an id of the SDK, equal for equal ids.
func rawID(id jsonrpc.ID) string {
	switch v := id.Raw().(type) {
	case string:
		return string(canonjson.String(v).AppendJSON(nil))
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

// check looks at a message before it may be given. The fault is the answer to a call; ok is false when there is
// nothing to give. A call that may be given is counted (see Server.begin) and must be given.
func (l *lineSession) check(m *message) (frame []byte, ok bool, f *fault.Error) {
	if !m.isCall() {
		return m.frame()
	}
	if f = l.checkCall(m); f == nil {
		frame, ok, f = m.frame()
	}
	if f == nil {
		f = l.e.legacy.s.begin()
	}
	return frame, ok, f
}

// checkCall refuses unknown methods, ids in use, and what is out of order.
func (l *lineSession) checkCall(m *message) *fault.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.e.legacy.serves(m.method):
		return unknownMethod(m.method)
	case l.open[idKey(m.idValue())] != nil:
		return invalid("a call with this id is under way")
	case m.method == "initialize" && l.begun:
		return begunTwice()
	case m.method != "initialize" && m.method != "ping" && !l.begun:
		return notBegun()
	}
	return nil
}

// give hands a checked message to the SDK.
func (l *lineSession) give(ctx context.Context, c *carried, frame []byte) error {
	m := c.m
	msg, err := jsonrpc.DecodeMessage(frame)
	if err != nil {
		return nil // a response that the SDK cannot read answers nothing
	}
	if request, ok := msg.(*jsonrpc.Request); ok {
		c.answers = l.answers
		request.Extra = &sdk.RequestExtra{TokenInfo: c.extra()}
	}
	l.note(c)
	select {
	case l.in <- msg:
		return nil
	case <-l.shut:
		err = io.EOF
	case <-ctx.Done():
		err = ctx.Err()
	}
	if m.isCall() && l.close(idKey(m.idValue())) != nil { // who gave the message releases its memory
		l.e.legacy.s.calls.end()
	}
	return err
}

// note keeps a call as open, and a cancelled one as cancelled.
func (l *lineSession) note(c *carried) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := c.m
	if m.isCall() {
		l.open[idKey(m.idValue())] = &opened{mem: c.mem}
		l.begun = l.begun || m.method == "initialize"
	}
	if m.method == "notifications/cancelled" {
		if o := l.open[idKey(m.params.Get("requestId"))]; o != nil {
			o.cancelled = true
		}
	}
}

// older passes a message of the older era to the connection's session, which begins with the first.
func (c *lines) older(ctx context.Context, m *message) error {
	if c.legacy == nil {
		l, err := newLineSession(ctx, c.e, c.write, c.leave)
		if err != nil {
			return err
		}
		c.legacy = l
	}
	frame, ok, f := c.legacy.check(m)
	if f != nil && m.isCall() {
		c.fail(m.id, f, fault.Legacy)
	}
	if f != nil || !ok {
		return nil
	}
	if m.isCall() {
		if err := c.place(ctx); err != nil {
			c.s.calls.end()
			return err
		}
	}
	return c.legacy.give(ctx, &carried{m: m, who: c.who}, frame)
}

// endLegacy ends the connection's session of the older era, if there is one.
func (c *lines) endLegacy() {
	if c.legacy != nil {
		c.legacy.end()
	}
}
