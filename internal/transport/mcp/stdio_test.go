package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/testkit/fixtureserver/fixture"
	"github.com/tabellion-mcp/tabellion/internal/transport/mcp"
)

// line is one connection over lines.
type line struct {
	t    *testing.T
	in   io.WriteCloser
	out  chan string // lines of the server, closed at the end
	done chan error  // what ServeStdio returned
}

// dial opens a connection to the rig's server as ana.
func (r *rig) dial(t *testing.T, ctx context.Context) *line {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	l := &line{t: t, in: inW, out: make(chan string, 1000), done: make(chan error, 1)}
	who := &identity.Principal{Subject: "local:ana", Subjects: []string{"local:ana"}, Method: identity.MethodStdio}
	go func() {
		l.done <- r.server.ServeStdio(ctx, who, catalog.All, inR, outW)
		outW.Close()
	}()
	go func() {
		defer close(l.out)
		s := bufio.NewScanner(outR)
		s.Buffer(nil, 16<<20)
		for s.Scan() {
			l.out <- s.Text()
		}
	}()
	t.Cleanup(func() { inW.Close() })
	return l
}

// send writes one line.
func (l *line) send(text string) {
	l.t.Helper()
	if _, err := io.WriteString(l.in, text+"\n"); err != nil {
		l.t.Fatal(err)
	}
}

// next is the next line of the server; "" after the last.
func (l *line) next() string {
	l.t.Helper()
	select {
	case text := <-l.out:
		return text
	case <-time.After(10 * time.Second):
		l.t.Fatal("no line comes")
		return ""
	}
}

// end closes the input and gives what is left, and the error that the connection ended with.
func (l *line) end() ([]string, error) {
	l.t.Helper()
	l.in.Close()
	var rest []string
	for text := range l.out {
		rest = append(rest, text)
	}
	return rest, <-l.done
}

// initialize begins the older era on the connection.
func (l *line) initialize() {
	l.t.Helper()
	l.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`)
	if got := l.next(); field(l.t, []byte(got), "/result/protocolVersion").Str() != "2025-06-18" {
		l.t.Fatal(got)
	}
	l.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// olderCall is a tools/call of the older era.
func olderCall(id, name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, name, arguments)
}

// TestStdioBothEras mixes the eras on one connection; every answer carries its id and the same content.
func TestStdioBothEras(t *testing.T) {
	r := newRig(t)
	l := r.dial(t, t.Context())
	l.send(callBody("1", "persistence.echo", `{"a":1.0}`))
	stateless := l.next()
	l.initialize()
	l.send(olderCall(`"two"`, "persistence.echo", `{"a":1.0}`))
	older := l.next()
	if field(t, []byte(stateless), "/id").Literal() != "1" || field(t, []byte(older), "/id").Str() != "two" {
		t.Errorf("%s\n%s", stateless, older)
	}
	for _, at := range []string{"/result/structuredContent", "/result/content"} {
		a, b := string(field(t, []byte(stateless), at).AppendJSON(nil)), string(field(t, []byte(older), at).AppendJSON(nil))
		if a != b || a == "" {
			t.Errorf("%s: %s and %s", at, a, b)
		}
	}
	l.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	if got := l.next(); got != `{"jsonrpc":"2.0","id":3,"result":{}}` {
		t.Errorf("ping: %s", got)
	}
	l.send(`{"jsonrpc":"2.0","id":4,"method":"logging/setLevel","params":{"level":"loud"}}`)
	if got := l.next(); field(t, []byte(got), "/error/code").Literal() != "-32602" {
		t.Errorf("level: %s", got)
	}
	l.send(`{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{}}}`)
	if got := l.next(); field(t, []byte(got), "/error/code").Literal() != "-32600" {
		t.Errorf("second handshake: %s", got)
	}
	if rest, err := l.end(); err != nil || len(rest) > 0 {
		t.Errorf("%v, %v", rest, err)
	}
}

// TestStdioMany sends 40 calls without waiting, in either era, and closes: each is answered once, with its id.
func TestStdioMany(t *testing.T) {
	for _, older := range []bool{false, true} {
		t.Run(fmt.Sprint("older=", older), func(t *testing.T) {
			r := newRig(t)
			l := r.dial(t, t.Context())
			if older {
				l.initialize()
			}
			for i := range 40 {
				if older {
					l.send(olderCall(fmt.Sprint(i), "persistence.steps", "{}"))
				} else {
					l.send(callBody(fmt.Sprint(i), "persistence.steps", "{}"))
				}
			}
			rest, err := l.end()
			if err != nil {
				t.Error(err)
			}
			seen := map[string]int{}
			for _, text := range rest {
				if field(t, []byte(text), "/result/structuredContent/ok").Bool() {
					seen[field(t, []byte(text), "/id").Literal()]++
				}
			}
			for i := range 40 {
				if seen[fmt.Sprint(i)] != 1 {
					t.Errorf("call %d was answered %d times", i, seen[fmt.Sprint(i)])
				}
			}
		})
	}
}

// TestStdioBackPressure stops reading when so many calls run, and refuses none.
func TestStdioBackPressure(t *testing.T) {
	for _, older := range []bool{false, true} {
		t.Run(fmt.Sprint("older=", older), func(t *testing.T) {
			r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.StdioCalls = 3 })
			l := r.dial(t, t.Context())
			if older {
				l.initialize()
			}
			go func() {
				for i := range 10 {
					text := callBody(fmt.Sprint(i), "persistence.slow", "{}")
					if older {
						text = olderCall(fmt.Sprint(i), "persistence.slow", "{}")
					}
					if _, err := io.WriteString(l.in, text+"\n"); err != nil {
						return // the connection ended while it did not read
					}
				}
			}()
			for range 3 {
				<-r.entered
			}
			select {
			case <-r.entered:
				t.Error("a fourth call runs")
			case <-time.After(200 * time.Millisecond):
			}
			r.server.Close(canceled())
			for range 3 {
				<-r.left
			}
		})
	}
}

// canceled is a context that has ended.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestStdioCancel ends one call by notifications/cancelled, without an answer; the next is served.
func TestStdioCancel(t *testing.T) {
	for _, older := range []bool{false, true} {
		t.Run(fmt.Sprint("older=", older), func(t *testing.T) {
			r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.StdioCalls = 1 })
			l := r.dial(t, t.Context())
			call := callBody
			if older {
				l.initialize()
				call = olderCall
			}
			for i := range 3 {
				id := fmt.Sprintf(`"c%d"`, i)
				l.send(call(id, "persistence.slow", "{}"))
				<-r.entered
				l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"test"}}`)
				<-r.left
			}
			l.send(call("9", "persistence.echo", "{}"))
			if got := l.next(); field(t, []byte(got), "/id").Literal() != "9" {
				t.Errorf("%s", got)
			}
			if rest, err := l.end(); err != nil || len(rest) > 0 {
				t.Errorf("%v, %v", rest, err)
			}
		})
	}
}

// TestStdioBadLines answers what it cannot read, and goes on.
func TestStdioBadLines(t *testing.T) {
	r := newRig(t)
	l := r.dial(t, t.Context())
	tests := []struct {
		text, id string
		code     string
	}{
		{`{"jsonrpc":"2.0",`, "null", "-32700"},
		{`42`, "null", "-32600"},
		{`[]`, "null", "-32600"},
		{`{"jsonrpc":"2.0","id":7}`, "7", "-32600"},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`, "7", "-32022"},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, "7", "-32602"},
		{`{"jsonrpc":"2.0","id":7,"method":"nope","params":{` + meta + `}}`, "7", "-32601"},
		{`{"jsonrpc":"2.0","id":7,"method":"nope"}`, "7", "-32601"},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, "7", "-32600"},
		{`{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}`, "7", "-32602"},
	}
	l.send("")
	l.send("  \t")
	l.send(`{"jsonrpc":"2.0","method":"notifications/whatever"}`)
	l.send(`{"jsonrpc":"2.0","id":99,"result":{}}`) // an answer to nothing
	for _, tt := range tests {
		l.send(tt.text)
		got := l.next()
		id := string(field(t, []byte(got), "/id").AppendJSON(nil))
		if code := field(t, []byte(got), "/error/code").Literal(); code != tt.code || id != tt.id {
			t.Errorf("%s: got %s", tt.text, got)
		}
	}
	l.send(callBody("8", "persistence.echo", "{}"))
	if got := l.next(); field(t, []byte(got), "/id").Literal() != "8" {
		t.Errorf("%s", got)
	}
	if rest, err := l.end(); err != nil || len(rest) > 0 {
		t.Errorf("%v, %v", rest, err)
	}
}

// TestStdioLongLine ends the connection (security requirements, S1).
func TestStdioLongLine(t *testing.T) {
	r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.MaxBody = 100_000 })
	l := r.dial(t, t.Context())
	head := callBody("1", "persistence.echo", `{"a":""}`)
	l.send(strings.Replace(head, `"a":""`, `"a":"`+strings.Repeat("x", 100_000-len(head))+`"`, 1))
	if got := l.next(); field(t, []byte(got), "/id").Literal() != "1" {
		t.Errorf("at the bound: %.100s", got)
	}
	go io.WriteString(l.in, strings.Repeat("x", 100_001)+"\n"+callBody("2", "persistence.echo", `{}`)+"\n")
	if got, open := <-l.out; open {
		t.Errorf("answered %.100s", got)
	}
	if err := <-l.done; err == nil || !strings.Contains(err.Error(), "line") {
		t.Errorf("ended with %v", err)
	}
}

// TestStdioEnds covers the other ends: of the context, and of the output.
func TestStdioEnds(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	l := r.dial(t, ctx)
	l.send(callBody("1", "persistence.slow", "{}"))
	<-r.entered
	cancel()
	<-r.left
	if err := <-l.done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	who := &identity.Principal{Subject: "local:ana", Subjects: []string{"local:ana"}}
	in := strings.NewReader(callBody("1", "persistence.echo", "{}"))
	if err := r.server.ServeStdio(t.Context(), who, catalog.All, in, broken{}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("broken output: %v", err)
	}
	if err := r.server.ServeStdio(t.Context(), who, catalog.Of(catalog.Context), in, io.Discard); err == nil {
		t.Error("an endpoint without operations is served")
	}
}

// broken is an output that takes nothing.
type broken struct{}

// Write fails.
func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

// TestStdioAsk asks an older client in the middle of its call, and gives up when it ends the connection.
func TestStdioAsk(t *testing.T) {
	r := newRig(t)
	l := r.dial(t, t.Context())
	l.initialize()
	l.send(olderCall("1", "persistence.ask", "{}"))
	question := []byte(l.next())
	if field(t, question, "/method").Str() != "elicitation/create" || field(t, question, "/params/message").Str() != "Which color?" {
		t.Fatalf("%s", question)
	}
	id := string(field(t, question, "/id").AppendJSON(nil))
	l.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept","content":{"color":"red"}}}`)
	if got := l.next(); !field(t, []byte(got), "/result/structuredContent").Equal(canonjson.Object(
		canonjson.M("color", canonjson.String("red")), canonjson.M("state", canonjson.String("asked")))) {
		t.Errorf("%s", got)
	}
	l.send(olderCall("2", "persistence.ask", "{}"))
	l.next()
	rest, err := l.end()
	failed := func(text string) bool { return field(t, []byte(text), "/result/isError").Bool() }
	if err != nil || !slices.ContainsFunc(rest, failed) {
		t.Errorf("%v, %v", rest, err)
	}
}

// TestStdioListen serves subscriptions beside calls, and ends one by notifications/cancelled.
func TestStdioListen(t *testing.T) {
	r := newRig(t)
	l := r.dial(t, t.Context())
	l.send(`{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`)
	if got := l.next(); !strings.Contains(got, "notifications/subscriptions/acknowledged") {
		t.Fatalf("%s", got)
	}
	r.server.Notify(catalog.Change{Tools: true})
	if got := l.next(); !strings.Contains(got, "notifications/tools/list_changed") || !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":"s"`) {
		t.Errorf("%s", got)
	}
	l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}`)
	l.send(callBody("1", "persistence.echo", "{}"))
	if got := l.next(); field(t, []byte(got), "/id").Literal() != "1" {
		t.Errorf("%s", got)
	}
	r.server.Notify(catalog.Change{Tools: true})
	if rest, err := l.end(); err != nil || len(rest) > 0 {
		t.Errorf("%v, %v", rest, err)
	}
}
