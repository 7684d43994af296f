package control_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
)

// script is a server's side of a session, driven by a test.
type script struct {
	t    *testing.T
	conn *net.UnixConn
	in   *bufio.Reader
}

// harness is a relay between a test's client and the servers that it is given.
type harness struct {
	t       *testing.T
	toRelay *io.PipeWriter
	answers *bufio.Reader
	servers chan *script
	done    chan error
}

// start runs a relay.
func start(t *testing.T) *harness {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	h := &harness{t: t, toRelay: inW, answers: bufio.NewReader(outR), servers: make(chan *script, 4), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r := &control.Relay{In: inR, Out: outW, MaxLine: 1 << 20, Next: func(ctx context.Context) (control.Session, error) {
		a, b := pair(t)
		h.servers <- &script{t: t, conn: b, in: bufio.NewReader(b)}
		return session{a}, nil
	}}
	go func() {
		h.done <- r.Run(ctx)
		outW.Close()
	}()
	return h
}

// session is a connection as a Session.
type session struct{ *net.UnixConn }

// pair is two connected sockets.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	wg.Go(func() { b, err = l.AcceptUnix() })
	c, dialErr := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	wg.Wait()
	if err != nil || dialErr != nil {
		t.Fatal(err, dialErr)
	}
	return c, b
}

// server is the next server that the relay went to.
func (h *harness) server() *script {
	h.t.Helper()
	select {
	case s := <-h.servers:
		return s
	case <-time.After(10 * time.Second):
		h.t.Fatal("the relay goes to no server")
		return nil
	}
}

// send sends a client's line.
func (h *harness) send(line string) {
	h.t.Helper()
	if _, err := io.WriteString(h.toRelay, line+"\n"); err != nil {
		h.t.Fatal(err)
	}
}

// receive is the next line to the client.
func (h *harness) receive() canonjson.Value {
	h.t.Helper()
	return readJSON(h.t, h.answers)
}

// got is the next line to the server.
func (s *script) got() canonjson.Value {
	s.t.Helper()
	s.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	return readJSON(s.t, s.in)
}

// readJSON reads one line.
func readJSON(t *testing.T, r *bufio.Reader) canonjson.Value {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	v, err := canonjson.ParseStrict([]byte(line), canonjson.Limits{})
	if err != nil {
		t.Fatalf("read %q: %v", line, err)
	}
	return v
}

// answer sends a server's line.
func (s *script) answer(format string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.conn, format+"\n", args...); err != nil {
		s.t.Fatal(err)
	}
}

// wantMember compares one member, as JSON.
func wantMember(t *testing.T, v canonjson.Value, pointer, want string) {
	t.Helper()
	if got := v.At(pointer).String(); got != want {
		t.Errorf("%s is %s, want %s, in %s", pointer, got, want, v)
	}
}

const call = `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"persistence.put","arguments":{}}}`

// TestRelayRefusesOpenRequests: what an ended server left open is answered, each in its form, and the session goes on.
func TestRelayRefusesOpenRequests(t *testing.T) {
	h := start(t)
	first := h.server()
	h.send(fmt.Sprintf(call, `1`))
	h.send(fmt.Sprintf(call, `"1"`)) // another id than the number
	h.send(`{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	h.send(fmt.Sprintf(call, `4`))
	for range 4 {
		first.got()
	}
	first.answer(`{"jsonrpc":"2.0","id":4,"result":{"x":1}}`)
	wantMember(t, h.receive(), "/result/x", "1")
	io.WriteString(first.conn, `{"jsonrpc":"2.0","id":1,"resu`) // cut off: not an answer
	first.conn.Close()

	refusals := map[string]canonjson.Value{}
	for range 3 {
		v := h.receive()
		refusals[v.Get("id").String()] = v
	}
	for _, id := range []string{`1`, `"1"`} {
		wantMember(t, refusals[id], "/result/isError", "true")
		wantMember(t, refusals[id], "/result/structuredContent/error/code", `"store_unavailable"`)
		if text := refusals[id].At("/result/content/0/text").Str(); text != refusals[id].At("/result/structuredContent").String() {
			t.Errorf("text and structured content differ: %s", text)
		}
		if m := refusals[id].At("/result/structuredContent/error/message").Str(); !strings.Contains(m, "same idempotencyKey") {
			t.Errorf("the message does not tell to retry: %q", m)
		}
	}
	wantMember(t, refusals["3"], "/error/data/error/code", `"store_unavailable"`)

	second := h.server()
	h.send(fmt.Sprintf(call, `5`))
	wantMember(t, second.got(), "/id", "5")
	second.answer(`{"jsonrpc":"2.0","id":5,"result":{}}`)
	wantMember(t, h.receive(), "/id", "5")
}

// TestRelayReplaysASession: an older client's session is set up anew, and it sees nothing of that.
func TestRelayReplaysASession(t *testing.T) {
	h := start(t)
	first := h.server()
	h.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	first.got()
	first.answer(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
	h.receive()
	h.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	h.send(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`)
	first.got()
	first.got()
	first.answer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	h.receive()
	first.answer(`{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`) // a question of the server
	wantMember(t, h.receive(), "/method", `"elicitation/create"`)
	first.conn.Close()

	second := h.server()
	hello := second.got()
	wantMember(t, hello, "/method", `"initialize"`)
	wantMember(t, hello, "/params/protocolVersion", `"2025-11-25"`)
	h.sendAsync(`{"jsonrpc":"2.0","id":7,"result":{"action":"accept"}}`) // the answer to the ended server
	second.answer(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25"}}`, hello.Get("id"))
	wantMember(t, second.got(), "/method", `"notifications/initialized"`)
	level := second.got()
	wantMember(t, level, "/params/level", `"debug"`)
	second.answer(`{"jsonrpc":"2.0","id":%s,"result":{}}`, level.Get("id"))
	h.sendAsync(fmt.Sprintf(call, `2`))
	next := second.got()
	wantMember(t, next, "/id", "2") // and not the answer to the ended server's question
	second.answer(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	wantMember(t, h.receive(), "/id", "2") // and not the answers to the relay's own requests
}

// sendAsync sends a line that the relay may not take at once. Lines keep their order.
func (h *harness) sendAsync(line string) {
	h.t.Helper()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		io.WriteString(h.toRelay, line+"\n")
	}()
	select {
	case <-sent:
	case <-time.After(100 * time.Millisecond): // the relay waits for its server
	}
}

// TestRelaySendsInitializeAgain: a session that ends before initialize was answered begins with the next server.
func TestRelaySendsInitializeAgain(t *testing.T) {
	h := start(t)
	first := h.server()
	h.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}`)
	first.got()
	first.conn.Close()
	second := h.server()
	wantMember(t, second.got(), "/id", `"i"`)
	second.answer(`{"jsonrpc":"2.0","id":"i","result":{}}`)
	wantMember(t, h.receive(), "/id", `"i"`)
}

// TestRelayEnds: the end of the client's input ends the server's, and what is under way is still answered. The last
// line needs no line break.
func TestRelayEnds(t *testing.T) {
	h := start(t)
	s := h.server()
	io.WriteString(h.toRelay, fmt.Sprintf(call, `1`))
	h.toRelay.Close()
	wantMember(t, s.got(), "/id", "1")
	if _, err := s.in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the server's input: %v, want its end", err)
	}
	s.answer(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	s.conn.Close()
	wantMember(t, h.receive(), "/id", "1")
	if err := <-h.done; err != nil {
		t.Errorf("the relay ended with %v", err)
	}
}

// TestRelayLongLine: a line over the bound ends the session with words.
func TestRelayLongLine(t *testing.T) {
	h := start(t)
	s := h.server()
	go func() {
		io.WriteString(h.toRelay, strings.Repeat("x", 2<<20)+"\n")
		h.toRelay.Close()
	}()
	go func() {
		io.Copy(io.Discard, s.in) // until the relay ends the input
		s.conn.Close()
	}()
	select {
	case err := <-h.done:
		if err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the relay goes on")
	}
}

// TestRelayWithoutServer: when there is no server to go on with, open requests are refused and the relay ends.
func TestRelayWithoutServer(t *testing.T) {
	inR, inW := io.Pipe()
	var out strings.Builder
	want := errors.New("no server")
	a, b := pair(t)
	calls := 0
	r := &control.Relay{In: inR, Out: &out, MaxLine: 1 << 20, Next: func(context.Context) (control.Session, error) {
		if calls++; calls == 1 {
			return session{a}, nil
		}
		return nil, want
	}}
	go func() {
		io.WriteString(inW, fmt.Sprintf(call, `1`)+"\n")
		bufio.NewReader(b).ReadString('\n')
		b.Close()
	}()
	if err := r.Run(t.Context()); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(out.String(), `"store_unavailable"`) {
		t.Errorf("the open request was answered with %q", out.String())
	}
}

// TestRelaySurvivesLines: what is no message goes to the server, which refuses it, and the session goes on. Lines of a
// server that are no message go to the client.
func TestRelaySurvivesLines(t *testing.T) {
	for _, line := range []string{
		`{}`, `{"id":null}`, `{"id":{}}`, `{"id":[1],"method":"tools/call"}`, `{"id":null,"method":"initialize"}`, `{"id":true,"result":{}}`,
		`{"method":7}`, `{"id":1,"method":[]}`, `[]`, `null`, `7`, `"x"`, `{"id":`, `{"id":1,"method":"tools/call","params":7}`,
		`{"id":1e400,"method":"resources/subscribe","params":[]}`, `{"params":{}}`,
	} {
		t.Run(line, func(t *testing.T) {
			h := start(t)
			s := h.server()
			h.send(line)
			if got, err := s.in.ReadString('\n'); err != nil || got != line+"\n" {
				t.Fatalf("the server got %q, %v", got, err)
			}
			refusal := `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`
			for _, back := range []string{refusal, line} {
				if _, err := s.conn.Write([]byte(back + "\n")); err != nil {
					t.Fatal(err)
				}
				if got, err := h.answers.ReadString('\n'); err != nil || got != back+"\n" {
					t.Fatalf("the client got %q, %v", got, err)
				}
			}
			s.conn.Close() // and the session can be carried over
			h.next(line)
		})
	}
}

// next reads what the client gets until a question reaches the next server. line is what the client had sent.
func (h *harness) next(line string) {
	h.t.Helper()
	go io.Copy(io.Discard, h.answers)
	s := h.server()
	h.send(`{"jsonrpc":"2.0","id":"after","method":"ping"}`)
	for {
		s.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		got, err := s.in.ReadString('\n')
		if err != nil {
			h.t.Fatalf("after %s: %v", line, err)
		}
		if strings.Contains(got, `"after"`) {
			return
		}
	}
}
