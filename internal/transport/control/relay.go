package control

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/gate"
)

// replayWithin bounds the wait for the new server's answer to a replayed initialize.
const replayWithin = 10 * time.Second

// Relay carries one stdio client's MCP session to a server that may end before the client does.
//
// When the server ends, every request that it has not answered gets an answer that tells the client to retry with
// the same idempotency key, Next finds another server, an older client's initialize is replayed to it, and the
// session goes on. What the client sends meanwhile waits.
type Relay struct {
	In  io.Reader
	Out io.Writer
	// Next gives the server to begin with, and the one to go on with. It blocks until there is one; its error ends the
	// relay.
	Next func(ctx context.Context) (Session, error)
	// MaxLine bounds a client's message, in bytes. A longer one ends the session.
	MaxLine int

	mark   string // of the ids of its own requests
	out    sync.Mutex
	outErr error // the first failure to write to the client; guarded by out
	mu     sync.Mutex
	state  relayState
}

// relayState is what must be known of the session to carry it over. Ids are keyed by their JSON text.
type relayState struct {
	open       map[string]pending // requests of the client without an answer
	asked      map[string]bool    // requests of the present server without the client's answer
	stale      map[string]bool    // requests of servers that have ended
	initialize *canonjson.Value   // an older client's, once it was answered
	ready      bool               // and its notifications/initialized
	replays    map[string][]byte  // requests that set up the session, by what they set
}

// pending is a request that waits for its answer.
type pending struct {
	method, tool string
	line         []byte // of initialize only: it is sent again, not refused
	replay       string // what it sets up once it has succeeded
	era          fault.Era
}

// incoming is one line of the client; err is set with the end of them, and line may be empty then.
type incoming struct {
	line []byte
	err  error
}

// Run relays until the client's input ends (nil), Next fails, or ctx ends.
func (r *Relay) Run(ctx context.Context) error {
	r.state = relayState{open: map[string]pending{}, asked: map[string]bool{}, stale: map[string]bool{}, replays: map[string][]byte{}}
	r.mark = replayMark()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan incoming)
	go r.read(ctx, lines)
	for {
		s, err := r.Next(ctx)
		if err != nil {
			r.refuseOpen()
			return err
		}
		over, err := r.session(ctx, s, lines)
		if over {
			return err
		}
	}
}

// read hands over the client's lines one by one, so that a client is not read faster than it is served.
func (r *Relay) read(ctx context.Context, lines chan<- incoming) {
	in := bufio.NewReaderSize(r.In, 64<<10)
	for {
		line, err := readLine(in, r.MaxLine)
		next := incoming{bytes.Clone(line), err}
		if errors.Is(err, io.ErrUnexpectedEOF) { // the last line needs no end
			next.err = io.EOF
		}
		select {
		case lines <- next:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// session relays to one server. over tells that the client's side is done; otherwise the server has ended.
func (r *Relay) session(ctx context.Context, s Session, lines <-chan incoming) (over bool, err error) {
	ended := make(chan struct{})
	replayed := make(chan struct{})
	go func() {
		defer close(ended)
		r.answers(s, replayed)
	}()
	defer func() {
		s.Close()
		<-ended
		if !over {
			r.serverGone()
		}
	}()
	if !r.replay(ctx, s, replayed, ended) {
		return ctx.Err() != nil, ctx.Err()
	}
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-ended:
			return r.deaf() != nil, r.deaf()
		case in := <-lines:
			if line, forward := r.outgoing(in.line); forward && len(line) > 0 {
				if _, err := s.Write(append(line, '\n')); err != nil && in.err == nil {
					return false, nil
				}
			}
			if in.err != nil {
				return true, r.finish(ctx, s, in.err, ended)
			}
		}
	}
}

// finish ends the session after the client's last line: the server answers what is under way. Requests that a server
// left open by ending now are refused like others.
func (r *Relay) finish(ctx context.Context, s Session, last error, ended <-chan struct{}) error {
	s.CloseWrite()
	select {
	case <-ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	r.refuseOpen()
	if errors.Is(last, io.EOF) {
		return nil
	}
	if errors.Is(last, errLongLine) {
		return fmt.Errorf("a message is longer than %d bytes; the session ends", r.MaxLine)
	}
	return fmt.Errorf("read the client: %w", last)
}

// outgoing notes what a client's line means for the session. It is not forwarded when it answers a server that has
// ended. A line that cannot be read is the server's to refuse.
func (r *Relay) outgoing(line []byte) (_ []byte, forward bool) {
	v, _, err := canonjson.Parse(line, gate.FrameLimits())
	if err != nil || v.Kind() != canonjson.KindObject {
		return line, true
	}
	id, method := v.Get("id"), v.Get("method").Str()
	r.mu.Lock()
	defer r.mu.Unlock()
	st := &r.state
	switch {
	case method == "notifications/initialized":
		st.ready = true
	case method == "" && !askable(id): // neither a request nor an answer: the server's to refuse
	case method == "": // an answer
		key := idKey(id)
		if st.stale[key] && !st.asked[key] {
			delete(st.stale, key)
			return nil, false
		}
		delete(st.asked, key)
	case askable(id):
		st.open[idKey(id)] = describe(v, method, line)
	}
	return line, true
}

// describe notes of a request what its refusal and its replay need.
func describe(v canonjson.Value, method string, line []byte) pending {
	p := pending{method: method, era: fault.Legacy}
	if !v.At("/params/_meta/io.modelcontextprotocol~1protocolVersion").IsAbsent() || method == "server/discover" {
		p.era = fault.Stateless
	}
	switch method {
	case "tools/call":
		p.tool = v.At("/params/name").Str()
	case "initialize":
		p.line = line
	case "logging/setLevel":
		p.replay, p.line = "level", line
	case "resources/subscribe", "resources/unsubscribe":
		p.replay, p.line = "subscription "+v.At("/params/uri").Str(), line
	}
	return p
}

// askable tells whether id can be that of a request. Whatever else stands in its place is refused by the server with
// the id null.
func askable(id canonjson.Value) bool {
	return id.Kind() == canonjson.KindString || id.Kind() == canonjson.KindNumber
}

// idKey is an id as a key: its JSON text, which a server echoes as it was sent.
func idKey(id canonjson.Value) string { return string(id.AppendJSON(nil)) }

// replayMark begins the ids of requests that a relay sends on its own. What follows is random and of this relay: a
// relay may lead through another one, and each takes its own answers only.
func replayMark() string { return "tabellion-relay-" + rand.Text() + "-" }

// answers carries a server's lines to the client until the server ends.
func (r *Relay) answers(s Session, replayed chan struct{}) {
	in := bufio.NewReaderSize(s, 64<<10)
	var room []byte // of the last long line: most are as long as those before
	for {
		line, err := readLineInto(in, maxAnswer, room)
		if err != nil {
			return
		}
		if room = nil; cap(line) > 64<<10 && cap(line) <= maxRoom {
			room = line
		}
		if !r.incoming(line, replayed) {
			continue
		}
		if r.write(line) != nil {
			return
		}
	}
}

// maxAnswer bounds a server's line: a result of 4 MiB stands in it twice, once escaped.
const maxAnswer = 64 << 20

// maxRoom bounds what is kept for the next long line, in bytes.
const maxRoom = 4 << 20

// incoming notes what a server's line means. It is not for the client when it answers a request of the relay.
func (r *Relay) incoming(line []byte, replayed chan struct{}) (forward bool) {
	id, method, failed := skim(line)
	r.mu.Lock()
	defer r.mu.Unlock()
	st := &r.state
	if method != "" {
		if id != "" {
			st.asked[id] = true
		}
		return true
	}
	if id == `"`+r.mark+`0"` {
		select {
		case <-replayed:
		default:
			close(replayed)
		}
		return false
	}
	if strings.HasPrefix(id, `"`+r.mark) {
		return false
	}
	p, ok := st.open[id]
	delete(st.open, id)
	if ok && !failed {
		r.setUp(p)
	}
	return true
}

// setUp keeps a request that has set up the session. The caller holds mu.
func (r *Relay) setUp(p pending) {
	switch {
	case p.method == "initialize":
		if v, _, err := canonjson.Parse(p.line, gate.FrameLimits()); err == nil {
			r.state.initialize = &v
		}
	case p.replay != "":
		r.state.replays[p.replay] = p.line
	}
}

// skim reads id and method of a server's line, and whether it is an error.
func skim(line []byte) (id, method string, failed bool) {
	if id, ok := skimResult(line); ok {
		return id, "", false
	}
	v, _, err := canonjson.Parse(line, canonjson.Limits{})
	if err != nil {
		return "", "", false
	}
	if m := v.Get("id"); askable(m) {
		id = idKey(m)
	}
	return id, v.Get("method").Str(), !v.Get("error").IsAbsent()
}

// skimResult reads the id of a result whose members stand in the order in which servers of this program write them, so
// that a large result is not parsed to find it. ok is false for every other line.
func skimResult(line []byte) (id string, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"jsonrpc":"2.0","id":`))
	if !ok {
		return "", false
	}
	text, _, ok := bytes.Cut(rest, []byte(`,"result":`))
	if !ok || len(text) > maxSkimmedID {
		return "", false
	}
	v, _, err := canonjson.Parse(text, canonjson.Limits{})
	if err != nil || !askable(v) {
		return "", false
	}
	return idKey(v), true
}

// maxSkimmedID bounds what skimResult takes for an id, in bytes.
const maxSkimmedID = 4 << 10

// replay brings a new server to where the last one was. false when the server ended meanwhile.
func (r *Relay) replay(ctx context.Context, s Session, replayed, ended <-chan struct{}) bool {
	r.mu.Lock()
	var lines [][]byte
	first := r.state.initialize
	if first != nil {
		lines = append(lines, r.renumber(*first, 0))
	}
	for _, p := range r.state.open { // an initialize that was never answered
		lines = append(lines, p.line)
	}
	later := r.setUpLines()
	r.mu.Unlock()
	if !send(s, lines) {
		return false
	}
	if first == nil {
		return true
	}
	timer := time.NewTimer(replayWithin)
	defer timer.Stop()
	select {
	case <-replayed:
	case <-ended:
		return false
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
	return send(s, later)
}

// setUpLines are the lines after initialize. The caller holds mu.
func (r *Relay) setUpLines() [][]byte {
	var lines [][]byte
	if r.state.ready {
		lines = append(lines, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	}
	n := 0
	for _, line := range r.state.replays {
		if v, _, err := canonjson.Parse(line, gate.FrameLimits()); err == nil {
			n++
			lines = append(lines, r.renumber(v, n))
		}
	}
	return lines
}

// renumber gives a request an id of the relay's own.
func (r *Relay) renumber(v canonjson.Value, n int) []byte {
	members := append([]canonjson.Member{canonjson.M("id", canonjson.String(fmt.Sprintf("%s%d", r.mark, n)))}, v.Without("id").Members()...)
	return canonjson.Object(members...).AppendJSON(nil)
}

// send writes lines to a server.
func send(s Session, lines [][]byte) bool {
	for _, line := range lines {
		if _, err := s.Write(append(bytes.Clone(line), '\n')); err != nil {
			return false
		}
	}
	return true
}

// serverGone settles what the ended server leaves: requests are refused, but for initialize, which is sent again; and
// its own questions are void.
func (r *Relay) serverGone() {
	r.refuseOpen()
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.state.asked {
		r.state.stale[id] = true
	}
	clear(r.state.asked)
}

// refuseOpen answers the requests without an answer.
func (r *Relay) refuseOpen() {
	r.mu.Lock()
	var answers [][]byte
	for id, p := range r.state.open {
		if p.method == "initialize" {
			continue
		}
		answers = append(answers, refusal(id, p))
		delete(r.state.open, id)
	}
	r.mu.Unlock()
	for _, a := range answers {
		r.write(a)
	}
}

// refusal is the answer to a request that the ended server did not answer: nobody knows whether it was done.
func refusal(id string, p pending) []byte {
	f := fault.New(fault.StoreUnavailable, "the process that served this call ended before it answered; retry, a change with the same idempotencyKey")
	surface := fault.List
	if p.method == "tools/call" {
		surface = fault.Tool
	}
	form := f.Form(fault.PersistenceDialect, surface, p.era)
	members := []canonjson.Member{canonjson.M("jsonrpc", canonjson.String("2.0")), canonjson.M("id", canonjson.RawString(id))}
	if form.ToolError {
		result := []canonjson.Member{
			canonjson.M("content", canonjson.Array(canonjson.Object(
				canonjson.M("type", canonjson.String("text")), canonjson.M("text", canonjson.String(string(form.Tool)))))),
			canonjson.M("structuredContent", canonjson.Raw(form.Tool)),
			canonjson.M("isError", canonjson.Bool(true)),
		}
		if p.era == fault.Stateless {
			result = append([]canonjson.Member{canonjson.M("resultType", canonjson.String("complete"))}, result...)
		}
		return canonjson.Object(append(members, canonjson.M("result", canonjson.Object(result...)))...).AppendJSON(nil)
	}
	e := []canonjson.Member{canonjson.M("code", canonjson.Int(int64(form.RPC))), canonjson.M("message", canonjson.String(form.Message))}
	if form.Data != nil {
		e = append(e, canonjson.M("data", canonjson.Raw(form.Data)))
	}
	return canonjson.Object(append(members, canonjson.M("error", canonjson.Object(e...)))...).AppendJSON(nil)
}

// write writes one line to the client, whole. The byte behind the line becomes the line's end: it is that already in a
// line that was read, and free in one that was made.
func (r *Relay) write(line []byte) error {
	r.out.Lock()
	defer r.out.Unlock()
	if r.outErr == nil {
		_, r.outErr = r.Out.Write(append(line, '\n'))
	}
	return r.outErr
}

// deaf is the error of a client that takes no more answers.
func (r *Relay) deaf() error {
	r.out.Lock()
	defer r.out.Unlock()
	if r.outErr != nil {
		return fmt.Errorf("write to the client: %w", r.outErr)
	}
	return nil
}
