package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/testkit/fixtureserver/fixture"
	"github.com/tabellion-mcp/tabellion/internal/transport/mcp"
)

// head is the head of a POST to /mcp in HTTP/1.1, without its end.
func head(key string, more ...string) string {
	text := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	if key != "" {
		text += "Authorization: Bearer " + key + "\r\n"
	}
	return text + strings.Join(more, "\r\n") + "\r\n\r\n"
}

// dialHTTP sends text over a connection of its own, which ends with the test.
func (r *rig) dialHTTP(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, text) // the server may have closed it before all was sent
	return c
}

// answered reads one answer from c.
func answered(t *testing.T, c net.Conn) *reply {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out := &reply{status: res.StatusCode, header: res.Header}
	if out.body, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	out.parse(t)
	return out
}

// silent fails when something comes on c within a while.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("an answer came, want none yet")
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
}

// TestKeylessBody holds how much is read for who has no good key: enough to tell an id, and for server/discover.
func TestKeylessBody(t *testing.T) {
	r := newRig(t, func(_ *mcp.Config, o *fixture.Options) {
		o.Limits = gate.DefaultLimits()
		o.Limits.AuthFailures = 10
	})
	for _, key := range []string{"", "nobody"} {
		for name, text := range map[string]string{
			"by its length": head(key, "Content-Length: 65537"), // not a byte of it is sent
			"in chunks":     head(key, "Transfer-Encoding: chunked") + "11000\r\n" + strings.Repeat(" ", 0x11000),
		} {
			res := answered(t, r.dialHTTP(t, text)).want(t, 401, -32001)
			if res.header.Get("WWW-Authenticate") != "Bearer" || string(res.json.ID) != "null" {
				t.Errorf("key %q, %s: %v %s", key, name, res.header, res.body)
			}
		}
		silent(t, r.dialHTTP(t, head(key, "Content-Length: 65536"))) // read, for its id
	}
	silent(t, r.dialHTTP(t, head(keyAna, "Content-Length: 65537")))
	discover := `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`
	for range 20 { // none of them is a failed authentication
		res := r.send(t, "POST", "/mcp", discover, with(stateless("server/discover", ""), "Authorization", ""))
		if res.status != 200 {
			t.Fatalf("discover: %d %s", res.status, res.body)
		}
	}
	r.send(t, "POST", "/mcp", strings.Replace(discover, "server/discover", "tools/list", 1), with(stateless("server/discover", ""), "Authorization", "")).
		want(t, 401, -32001)
	if res := r.send(t, "POST", "/mcp", callBody("1", "persistence.echo", "{}"), stateless("tools/call", "persistence.echo")); res.status != 200 {
		t.Errorf("a good key: %d %s", res.status, res.body)
	}
	long := r.dialHTTP(t, head("", "Mcp-Method: server/discover", "Content-Length: 65537"))
	if res := answered(t, long); res.status != 413 {
		t.Errorf("discover with a long body: %d %s", res.status, res.body)
	}
}

// TestMemoryRequests holds that a body has room before it is read, and that one caller leaves the others some.
func TestMemoryRequests(t *testing.T) {
	r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.Memory, c.MaxBody = 1<<20, 400_000 })
	first := r.dialHTTP(t, head(keyAna, "Content-Length: 400000"))
	silent(t, first)
	for _, length := range []string{"Content-Length: 400000", "Transfer-Encoding: chunked"} {
		start := time.Now()
		res := answered(t, r.dialHTTP(t, head(keyAna, length))).want(t, 503, -32014)
		if res.header.Get("Retry-After") == "" || field(t, res.json.Error.Data, "/error").Str() != "OVERLOADED" || time.Since(start) > time.Second {
			t.Errorf("%s: %v %s", length, res.header, res.body)
		}
	}
	second := r.dialHTTP(t, head(keyBob, "Content-Length: 400000"))
	silent(t, second)
	small := callBody("1", "persistence.echo", "{}")
	for _, key := range []string{keyAna, keyBob} {
		if res := r.send(t, "POST", "/mcp", small, with(stateless("tools/call", "persistence.echo"), "Authorization", "Bearer "+key)); res.status != 200 {
			t.Errorf("a small message of %s: %d %s", key, res.status, res.body)
		}
	}
	answered(t, r.dialHTTP(t, head("", "Content-Length: 60000")+small)) // 2 s, then the body has ended early
	first.Close()
	large := strings.Replace(small, "{}", `{"x":"`+strings.Repeat("x", 350_000)+`"}`, 1)
	eventually(t, "room", func() bool {
		return r.send(t, "POST", "/mcp", large, stateless("tools/call", "persistence.echo")).status != 503
	})
}

// stuck is a ResponseWriter of a client that reads nothing until it is let go.
type stuck struct {
	discard
	writing chan struct{} // gets one when a write began
	free    chan struct{}
}

// Write waits.
func (s *stuck) Write(b []byte) (int, error) {
	select {
	case s.writing <- struct{}{}:
	default:
	}
	<-s.free
	return len(b), nil
}

// Flush does nothing.
func (s *stuck) Flush() {}

// TestMemoryAnswers holds that an answer is counted until it was written, in both eras: a caller that does not read
// gets no further large answer, and another does.
func TestMemoryAnswers(t *testing.T) {
	const quotes = 50_000 // 100 kB as they are sent, 100 kB and 200 kB more in the answer
	arguments := `{"q":"` + strings.Repeat(`\"`, quotes) + `"}`
	for _, era := range []string{"stateless", "older"} {
		t.Run(era, func(t *testing.T) {
			memory := int64(1_000_000)
			if era == "older" {
				memory = 3_400_000 // the SDK copies
			}
			r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.Memory = memory })
			headers := func(key string) (string, map[string]string) {
				if era == "older" {
					return olderCall("1", "persistence.echo", arguments), r.open(t, "/mcp", key, "2025-11-25")
				}
				return callBody("1", "persistence.echo", arguments), with(stateless("tools/call", "persistence.echo"), "Authorization", "Bearer "+key)
			}
			body, h := headers(keyAna)
			w := &stuck{discard: discard{h: http.Header{}}, writing: make(chan struct{}, 1), free: make(chan struct{})}
			req := httptest.NewRequest("POST", "http://localhost/mcp", strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			for name, value := range h {
				req.Header.Set(name, value)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				r.http.Config.Handler.ServeHTTP(w, req)
			}()
			<-w.writing
			body, h = headers(keyAna)
			res := r.send(t, "POST", "/mcp", body, h).want(t, 200, -32603)
			if !strings.Contains(string(res.body), `"store_unavailable"`) || !strings.Contains(res.json.Error.Message, "stands") || string(res.json.ID) != "1" {
				t.Errorf("%v %s", res.header, res.body)
			}
			body, other := headers(keyBob)
			if res := r.send(t, "POST", "/mcp", body, other); res.status != 200 {
				t.Errorf("another caller: %d %.200s", res.status, res.body)
			}
			close(w.free)
			<-done
			if res := r.send(t, "POST", "/mcp", body, h); res.status != 200 {
				t.Errorf("after the first was sent: %d %.200s", res.status, res.body)
			}
		})
	}
}

// stream opens a stream of events and gives its answer, whose body the test closes.
func (r *rig) stream(t *testing.T, method, path, body string, headers map[string]string) *http.Response {
	t.Helper()
	req, _ := http.NewRequest(method, r.http.URL+path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	res, err := r.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// TestStreamsOutlastStrangers holds that streams of a good key stay open while its address is refused for the failures
// of others, and that those of a revoked key end even then.
func TestStreamsOutlastStrangers(t *testing.T) {
	r := newRig(t, func(c *mcp.Config, o *fixture.Options) {
		c.Recheck = 10 * time.Millisecond
		o.Limits = gate.DefaultLimits()
		o.Limits.AuthFailures = 3
	})
	listen := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`
	streams := map[string]*http.Response{
		"subscription": r.stream(t, "POST", "/mcp", listen, stateless("subscriptions/listen", "")),
		"session":      r.stream(t, "GET", "/mcp", "", r.open(t, "/mcp", keyAna, "2025-11-25")),
		"sse":          r.stream(t, "GET", "/sse", "", map[string]string{"Authorization": "Bearer " + keyAna}),
	}
	ended := make(chan string, 3)
	for name, res := range streams {
		if res.StatusCode != 200 {
			t.Fatalf("%s: %d", name, res.StatusCode)
		}
		go func() {
			io.Copy(io.Discard, res.Body)
			ended <- name
		}()
	}
	for range 3 {
		r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{"Authorization": "Bearer nobody"}).want(t, 401, -32001)
	}
	r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{"Authorization": "Bearer nobody"}).want(t, 429, -32010)
	select {
	case name := <-ended:
		t.Errorf("the stream %s ended", name)
	case <-time.After(200 * time.Millisecond):
	}
	r.Keys.Revoke(keyAna)
	for range streams {
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Fatal("a stream outlives its key")
		}
	}
}

// TestBoundsEach holds what one principal may have open: sessions and streams. Others are not kept from theirs.
func TestBoundsEach(t *testing.T) {
	r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.SessionsEach, c.StreamsEach = 3, 2 })
	auth := func(key string) map[string]string { return map[string]string{"Authorization": "Bearer " + key} }
	initialize := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	var open []map[string]string
	for range 3 {
		r.send(t, "POST", "/mcp", strings.Replace(initialize, `"2025-11-25"`, "7", 1), auth(keyAna)).want(t, 200, -32602) // begins none
		open = append(open, r.open(t, "/mcp", keyAna, "2025-11-25"))
	}
	res := r.send(t, "POST", "/mcp", initialize, auth(keyAna)).want(t, 503, -32014)
	if res.header.Get("Retry-After") == "" {
		t.Errorf("%v", res.header)
	}
	r.open(t, "/mcp", keyBob, "2025-11-25")

	first := r.stream(t, "GET", "/mcp", "", open[0])
	second := r.stream(t, "GET", "/sse", "", auth(keyAna))
	if first.StatusCode != 200 || second.StatusCode != 200 {
		t.Fatal(first.Status, second.Status)
	}
	r.send(t, "GET", "/mcp", "", open[1]).want(t, 503, -32014)
	r.send(t, "GET", "/sse", "", auth(keyAna)).want(t, 503, -32014)
	if res := r.stream(t, "GET", "/sse", "", auth(keyBob)); res.StatusCode != 200 {
		t.Error(res.Status)
	}
	second.Body.Close()
	eventually(t, "a place", func() bool { return r.stream(t, "GET", "/mcp", "", open[1]).StatusCode == 200 })
	r.send(t, "DELETE", "/mcp", "", open[2])
	eventually(t, "a session's place", func() bool { return r.send(t, "POST", "/mcp", initialize, auth(keyAna)).status == 200 })
}

// TestStreamsCount holds that a stream that begins counts as a call.
func TestStreamsCount(t *testing.T) {
	for _, path := range []string{"/sse", "/mcp"} {
		r := newRig(t, func(_ *mcp.Config, o *fixture.Options) {
			o.Limits = gate.DefaultLimits()
			o.Limits.Rate, o.Limits.Burst = 0.01, 2
		})
		h := r.open(t, "/mcp", keyAna, "2025-11-25") // the first call
		r.stream(t, "GET", path, "", h)
		res := r.send(t, "GET", path, "", h).want(t, 429, -32010)
		if res.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v", path, res.header)
		}
	}
}

// quotaExceeded fails unless the answer is that code of a business failure without a tool.
func quotaExceeded(t *testing.T, res *reply) {
	t.Helper()
	if field(t, res.json.Error.Data, "/error/code").Str() != "quota_exceeded" {
		t.Errorf("got %d %s, want quota_exceeded", res.status, res.body)
	}
}

// TestSubscriptionBounds holds how many resources a principal of the older era may subscribe to, in all its sessions,
// and that subscriptions of the stateless era are of the same number.
func TestSubscriptionBounds(t *testing.T) {
	r := newRig(t)
	one, two := r.open(t, "/mcp", keyAna, "2025-11-25"), r.open(t, "/mcp", keyAna, "2025-11-25")
	do := func(h map[string]string, method, id string) *reply {
		return r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/`+method+`","params":{"uri":"persistence://documents/`+id+`"}}`, h)
	}
	for i := range 8 {
		h := one
		if i >= 4 {
			h = two
		}
		for range 2 { // the same again is none more
			do(h, "subscribe", fmt.Sprint(i)).want(t, 200, 0)
			if i < 7 { // what fails is none either
				do(one, "subscribe", "missing").want(t, 200, -32002)
			}
		}
	}
	quotaExceeded(t, do(one, "subscribe", "9"))
	quotaExceeded(t, do(one, "subscribe", "missing")) // before it is read
	do(one, "unsubscribe", "unknown").want(t, 200, 0)
	quotaExceeded(t, do(one, "subscribe", "9"))
	do(one, "unsubscribe", "0").want(t, 200, 0)
	do(two, "subscribe", "9").want(t, 200, 0)
	quotaExceeded(t, do(one, "subscribe", "0"))
	listen := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["persistence://documents/missing"]},` + meta + `}}`
	quotaExceeded(t, r.send(t, "POST", "/mcp", listen, stateless("subscriptions/listen", ""))) // before it is read
	bob := r.open(t, "/mcp", keyBob, "2025-11-25")
	do(bob, "subscribe", "0").want(t, 200, 0)
	r.send(t, "DELETE", "/mcp", "", two)
	eventually(t, "places", func() bool { return do(one, "subscribe", "10").json.Error.Code == 0 })
}

// TestSubscribingCounts holds that each resource that a subscription names counts as a call.
func TestSubscribingCounts(t *testing.T) {
	r := newRig(t, func(_ *mcp.Config, o *fixture.Options) {
		o.Limits = gate.DefaultLimits()
		o.Limits.Rate, o.Limits.Burst = 0.01, 5
	})
	listen := func(n int) *http.Response {
		uris := strings.TrimSuffix(strings.Repeat(`"persistence://documents/a",`, n), ",")
		return r.stream(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[`+
			uris+`]},`+meta+`}}`, stateless("subscriptions/listen", ""))
	}
	if res := listen(4); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	if res := listen(2); res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
		t.Error(res.Status)
	}
}

// TestOlderRefusals holds that refusals before an operation have their status in the older era too, and that the
// session goes on after them.
func TestOlderRefusals(t *testing.T) {
	r := newRig(t, func(_ *mcp.Config, o *fixture.Options) {
		o.Limits = gate.DefaultLimits()
		o.Limits.Concurrency, o.Limits.Burst, o.Limits.Rate = 1, 6, 0.4
	})
	h := r.open(t, "/mcp", keyAna, "2025-11-25")
	r.send(t, "POST", "/mcp", olderCall("1", "nope", "{}"), h).want(t, 200, -32602) // no refusal
	res := r.send(t, "POST", "/mcp", olderCall("7", "persistence.panic", "{}"), h).want(t, 500, -32603)
	if res.header.Get("Content-Type") != "application/json" || string(res.json.ID) != "7" || strings.Contains(string(res.body), "secret") {
		t.Errorf("%v %s", res.header, res.body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", r.http.URL+"/mcp", strings.NewReader(callBody("1", "persistence.slow", "{}")))
	for name, value := range with(stateless("tools/call", "persistence.slow"), "Content-Type", "application/json") {
		req.Header.Set(name, value)
	}
	go r.http.Client().Do(req)
	<-r.entered
	res = r.send(t, "POST", "/mcp", olderCall("8", "persistence.echo", "{}"), h).want(t, 503, -32014)
	if res.header.Get("Retry-After") != "1" || field(t, res.json.Error.Data, "/error").Str() != "OVERLOADED" {
		t.Errorf("%v %s", res.header, res.body)
	}
	cancel()
	<-r.left
	r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, h).want(t, 200, 0) // the sixth call
	for _, body := range []string{
		olderCall(`"\u0061"`, "persistence.echo", "{}"),
		`{"jsonrpc":"2.0","id":"\u0061","method":"resources/subscribe","params":{"uri":"persistence://documents/a"}}`,
		`{"jsonrpc":"2.0","id":"\u0061","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
	} {
		headers := h
		if strings.Contains(body, "initialize") {
			headers = map[string]string{"Authorization": h["Authorization"]}
		}
		res = r.send(t, "POST", "/mcp", body, headers).want(t, 429, -32010)
		if res.header.Get("Retry-After") == "" || res.header.Get("Mcp-Session-Id") != "" || res.header.Get("Cache-Control") != "no-store" ||
			string(res.json.ID) != `"\u0061"` {
			t.Errorf("%v %s", res.header, res.body)
		}
	}
	r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, h).want(t, 200, 0)
}

// TestNothingNotifies offers no subscription on an endpoint where nothing would ever tell of a change.
func TestNothingNotifies(t *testing.T) {
	r := newRig(t)
	for path, notifies := range map[string]bool{"/persistence/mcp": false, "/mcp": true, "/models/mcp": true} {
		discover := r.send(t, "POST", path, `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+meta+`}}`, stateless("server/discover", ""))
		initialize := r.send(t, "POST", path, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
			map[string]string{"Authorization": "Bearer " + keyAna})
		for era, result := range map[string][]byte{"stateless": discover.json.Result, "older": initialize.json.Result} {
			caps := string(field(t, result, "/capabilities").AppendJSON(nil))
			if strings.Contains(caps, `"listChanged":true`) != notifies || !strings.Contains(caps, `"tools":{`) {
				t.Errorf("%s, %s: %s", path, era, caps)
			}
			if resources := field(t, result, "/capabilities/resources"); resources.Get("subscribe").Bool() != (path == "/mcp") || resources.IsAbsent() != (path == "/models/mcp") {
				t.Errorf("%s, %s: %s", path, era, caps)
			}
		}
	}
	h := r.open(t, "/persistence/mcp", keyAna, "2025-11-25")
	for _, method := range []string{"subscribe", "unsubscribe"} {
		r.send(t, "POST", "/persistence/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/`+method+`","params":{"uri":"persistence://documents/a"}}`, h).want(t, 200, -32601)
	}
	all := `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["persistence://documents/a"]}`
	res := r.send(t, "POST", "/persistence/mcp", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":`+all+`,`+meta+`}}`, stateless("subscriptions/listen", ""))
	got := events(res.body)
	if len(got) != 2 || string(field(t, []byte(got[0]), "/params/notifications").AppendJSON(nil)) != "{}" {
		t.Errorf("%s", res.body)
	}
	r.server.Notify(catalog.Change{Tools: true}) // nobody is there to tell
}

// TestSessionIDs holds that ids of calls are compared by what they are, and which numbers a session takes.
func TestSessionIDs(t *testing.T) {
	r := newRig(t)
	h := r.open(t, "/mcp", keyAna, "2025-11-25")
	for _, ids := range [][2]string{{`"a"`, `"\u0061"`}, {"0", "-0"}} {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "POST", r.http.URL+"/mcp", strings.NewReader(olderCall(ids[0], "persistence.slow", "{}")))
		req.Header.Set("Content-Type", "application/json")
		for name, value := range h {
			req.Header.Set(name, value)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.http.Client().Do(req)
		}()
		<-r.entered
		res := r.send(t, "POST", "/mcp", olderCall(ids[1], "persistence.echo", "{}"), h).want(t, 200, -32600)
		if !strings.Contains(res.json.Error.Message, "under way") {
			t.Errorf("%s", res.body)
		}
		r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+ids[1]+`}}`, h)
		<-r.left
		cancel()
		<-done
	}
	res := r.send(t, "POST", "/mcp", olderCall("9007199254740993", "persistence.echo", "{}"), h).want(t, 200, -32600)
	if string(res.json.ID) != "9007199254740993" || !strings.Contains(res.json.Error.Message, "9007199254740991") {
		t.Errorf("%s", res.body)
	}
}

// TestSessionOwner holds that a session and a stream belong to the key that opened them: another key of the same user
// may have less rights.
func TestSessionOwner(t *testing.T) {
	r := newRig(t)
	r.Keys.Put("other-key-of-ana", "ana").KeyID = "other"
	h := r.open(t, "/mcp", keyAna, "2025-11-25")
	other := map[string]string{"Authorization": "Bearer other-key-of-ana", "Mcp-Session-Id": h["Mcp-Session-Id"]}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, method := range []string{"GET", "DELETE", "POST"} {
		r.send(t, method, "/mcp", ping, other).want(t, 404, -32600)
	}
	sse := bufio.NewScanner(r.stream(t, "GET", "/sse", "", map[string]string{"Authorization": "Bearer " + keyAna}).Body)
	path := ""
	for path == "" && sse.Scan() {
		path, _ = strings.CutPrefix(sse.Text(), "data: ")
		if !strings.HasPrefix(path, "/") {
			path = ""
		}
	}
	r.send(t, "POST", path, ping, other).want(t, 404, -32600)
	if res := r.send(t, "POST", path, ping, h); res.status != 202 {
		t.Errorf("the key's own stream: %d", res.status)
	}
	r.send(t, "POST", "/mcp", ping, h).want(t, 200, 0)
}
