package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/testkit/fixtureserver/fixture"
	"github.com/tabellion-mcp/tabellion/internal/transport/mcp"
)

// TestSessions holds the rules of the era with sessions over HTTP, for every version.
func TestSessions(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26"} {
		t.Run(version, func(t *testing.T) {
			r := newRig(t)
			h := r.open(t, "/mcp", keyAna, version)
			session := h["Mcp-Session-Id"]
			fresh := func(more ...string) map[string]string {
				return with(map[string]string{"Authorization": "Bearer " + keyAna, "Mcp-Session-Id": session, "MCP-Protocol-Version": version}, more...)
			}
			list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
			tests := []struct {
				name, method, path, body string
				headers                  map[string]string
				status, code             int
			}{
				{"list", "POST", "/mcp", list, fresh(), 200, 0},
				{"no version header", "POST", "/mcp", list, fresh("MCP-Protocol-Version", ""), 200, 0},
				{"ping", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, fresh(), 200, 0},
				{"content type", "POST", "/mcp", list, fresh("Content-Type", "text/plain"), 415, 0},
				{"accept json only", "POST", "/mcp", list, fresh("Accept", "application/json"), 406, 0},
				{"host", "POST", "/mcp", list, fresh("Host", "evil.example"), 403, 0},
				{"origin", "POST", "/mcp", list, fresh("Origin", "http://evil.example"), 403, 0},
				{"no key", "POST", "/mcp", list, fresh("Authorization", ""), 401, -32001},
				{"no key on GET", "GET", "/mcp", "", fresh("Authorization", ""), 401, -32001},
				{"no key on DELETE", "DELETE", "/mcp", "", fresh("Authorization", ""), 401, -32001},
				{"somebody else's session", "POST", "/mcp", list, fresh("Authorization", "Bearer "+keyBob), 404, -32600},
				{"somebody else's session, GET", "GET", "/mcp", "", fresh("Authorization", "Bearer "+keyBob), 404, -32600},
				{"somebody else's session, DELETE", "DELETE", "/mcp", "", fresh("Authorization", "Bearer "+keyBob), 404, -32600},
				{"unknown session", "POST", "/mcp", list, fresh("Mcp-Session-Id", "nonsense"), 404, -32600},
				{"session of another endpoint", "POST", "/models/mcp", list, fresh(), 404, -32600},
				{"no session", "POST", "/mcp", list, fresh("Mcp-Session-Id", ""), 400, -32600},
				{"GET without session", "GET", "/mcp", "", fresh("Mcp-Session-Id", ""), 405, 0},
				{"PUT", "PUT", "/mcp", list, fresh(), 405, 0},
				{"unknown method", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/lost"}`, fresh(), 200, -32601},
				{"not JSON", "POST", "/mcp", `{"jsonrpc":`, fresh(), 400, -32700},
				{"no request", "POST", "/mcp", `42`, fresh(), 400, -32600},
				{"batch", "POST", "/mcp", `[` + list + `]`, fresh(), 400, -32600},
				{"duplicate", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}`, fresh(), 400, -32600},
				{"id null", "POST", "/mcp", `{"jsonrpc":"2.0","id":null,"method":"tools/list"}`, fresh(), 400, -32600},
				{"cursor", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`, fresh(), 200, -32602},
				{"unknown tool", "POST", "/mcp", olderCall("1", "nope", "{}"), fresh(), 200, -32602},
				{"hidden tool", "POST", "/mcp", olderCall("1", "hidden", "{}"), fresh(), 200, -32602},
				{"name is no string", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`, fresh(), 200, -32602},
				{"unknown resource", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"nonsense"}}`, fresh(), 200, -32002},
				{"missing resource", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"persistence://documents/missing"}}`, fresh(), 200, -32002},
				{"ill-formed resource", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"persistence://documents/a/b"}}`, fresh(), 200, -32602},
				{"ill-formed URI", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"persistence://documents/a b"}}`, fresh(), 200, -32602},
				{"subscribe to what cannot be read", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"persistence://documents/missing"}}`, fresh(), 200, -32002},
				{"subscribe", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"persistence://documents/a"}}`, fresh(), 200, 0},
				{"unsubscribe", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/unsubscribe","params":{"uri":"persistence://documents/a"}}`, fresh(), 200, 0},
				{"set level", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`, fresh(), 200, 0},
				{"set no level", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":{"a":"` + strings.Repeat("x", 100) + `"}}}`, fresh(), 200, -32602},
				{"initialize twice", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, fresh(), 200, -32600},
				{"initialize of no form", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":7}}`, fresh("Mcp-Session-Id", ""), 200, -32602},
				{"unknown notification", "POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/whatever"}`, fresh(), 202, 0},
			}
			for _, tt := range tests {
				t.Run(tt.name, func(t *testing.T) {
					res := r.send(t, tt.method, tt.path, tt.body, tt.headers)
					code := res.json.Error.Code
					if res.status != tt.status || code != tt.code {
						t.Fatalf("got status %d, body %s; want %d, %d", res.status, res.body, tt.status, tt.code)
					}
					if res.header.Get("Cache-Control") != "no-store" || res.header.Get("X-Content-Type-Options") != "nosniff" {
						t.Errorf("headers: %v", res.header)
					}
				})
			}
			if res := r.send(t, "DELETE", "/mcp", "", fresh()); res.status != 204 {
				t.Errorf("delete: %d %s", res.status, res.body)
			}
			r.send(t, "POST", "/mcp", list, fresh()).want(t, 404, -32600)
		})
	}
}

// TestSessionFlaws holds that arguments are read as strictly as in the stateless era.
func TestSessionFlaws(t *testing.T) {
	r := newRig(t)
	h := r.open(t, "/mcp", keyAna, "2025-11-25")
	for _, arguments := range []string{
		`{"a":1,"a":2}`, `{"a":1e999}`, `{"a":9007199254740993}`, `{"a":"\ud800"}`, `{"\u0000":1}`, `[]`, `7`,
		strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), `{"a":[` + strings.Repeat("1,", 110_000) + `1]}`,
	} {
		res := r.send(t, "POST", "/mcp", olderCall("1", "persistence.echo", arguments), h)
		if field(t, []byte(events(res.body)[0]), "/result/structuredContent/error/code").Str() != "invalid_request" {
			t.Errorf("%.60s: %.300s", arguments, res.body)
		}
	}
	res := r.send(t, "POST", "/mcp", olderCall("1", "persistence.echo", `{"payload":{"\u0000":1},"n":1.0}`), h)
	if got := string(field(t, []byte(events(res.body)[0]), "/result/structuredContent").AppendJSON(nil)); got != `{"payload":{"\u0000":1},"n":1.0}` {
		t.Errorf("%s", res.body)
	}
}

// TestErasAgree asks the same in both eras over HTTP: results, lists and failures are the same but for what belongs
// to an era.
func TestErasAgree(t *testing.T) {
	r := newRig(t)
	h := r.open(t, "/mcp", keyAna, "2025-11-25")
	tests := []struct {
		method, name, params string
		members              []string
	}{
		{"tools/call", "persistence.echo", `"name":"persistence.echo","arguments":{"n":1.50,"s":"<&é>","payload":{"b":1,"a":2}}`, []string{"content", "structuredContent"}},
		{"tools/call", "persistence.fail", `"name":"persistence.fail","arguments":{"code":"revision_conflict"}`, []string{"content", "structuredContent", "isError"}},
		{"tools/list", "", `"x":1`, []string{"tools"}},
		{"resources/list", "", `"x":1`, []string{"resources"}},
		{"resources/templates/list", "", `"x":1`, []string{"resourceTemplates"}},
		{"resources/read", "persistence://documents/a", `"uri":"persistence://documents/a"`, []string{"contents"}},
		{"prompts/list", "", `"x":1`, []string{"prompts"}},
		{"prompts/get", "greet", `"name":"greet","arguments":{"who":"Bo"}`, []string{"messages", "description"}},
		{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":"x"}`, []string{"completion"}},
	}
	for _, tt := range tests {
		now := r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+tt.method+`","params":{`+tt.params+`,`+meta+`}}`, stateless(tt.method, tt.name))
		then := r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+tt.method+`","params":{`+tt.params+`}}`, h)
		for _, m := range tt.members {
			a, b := field(t, now.body, "/result/"+m), field(t, []byte(events(then.body)[0]), "/result/"+m)
			if a.IsAbsent() || string(a.AppendJSON(nil)) != string(b.AppendJSON(nil)) {
				t.Errorf("%s %s: %s: %s\n%s", tt.method, tt.name, m, now.body, then.body)
			}
		}
	}
}

// TestSessionKey holds that a session does not outlive its key, and neither does its stream.
func TestSessionKey(t *testing.T) {
	r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.Recheck = 20 * time.Millisecond })
	h := r.open(t, "/mcp", keyAna, "2025-11-25")
	req, _ := http.NewRequest("GET", r.http.URL+"/mcp", nil)
	req.Header.Set("Accept", "text/event-stream")
	for name, value := range h {
		req.Header.Set(name, value)
	}
	res, err := r.http.Client().Do(req)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	defer res.Body.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(res.Body)
		ended <- err
	}()
	select {
	case <-ended:
		t.Fatal("the stream ended early")
	case <-time.After(100 * time.Millisecond):
	}
	r.Keys.Revoke(keyAna)
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the stream outlives its key")
	}
	r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, h).want(t, 401, -32001)
}

// TestSessionBound refuses sessions beyond the bound, and takes one again when one ended.
func TestSessionBound(t *testing.T) {
	r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.Sessions = 2 })
	first := r.open(t, "/mcp", keyAna, "2025-11-25")
	r.open(t, "/mcp", keyAna, "2025-11-25")
	body := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	r.send(t, "POST", "/mcp", body, map[string]string{"Authorization": "Bearer " + keyBob}).want(t, 503, -32014)
	r.send(t, "DELETE", "/mcp", "", first)
	eventually(t, "a place", func() bool {
		return r.send(t, "POST", "/mcp", body, map[string]string{"Authorization": "Bearer " + keyBob}).status == 200
	})
}

// TestSessionProgress streams what happens before the answer.
func TestSessionProgress(t *testing.T) {
	r := newRig(t)
	h := r.open(t, "/mcp", keyAna, "2025-11-25")
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"persistence.steps","_meta":{"progressToken":17}}}`
	if got := events(r.send(t, "POST", "/mcp", call, h).body); len(got) != 3 || !strings.Contains(got[0], `"progressToken":17`) {
		t.Errorf("%s", got)
	}
	r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`, h)
	if got := events(r.send(t, "POST", "/mcp", call, h).body); len(got) != 4 {
		t.Errorf("with logs: %s", got)
	}
}

// client connects the SDK's client over HTTP.
func (r *rig) client(t *testing.T, key string, transport sdk.Transport, version string) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"color": "blue"}}, nil
		},
	})
	session, err := c.Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// keyed sends a key with every request.
type keyed struct {
	key  string
	next http.RoundTripper
}

// RoundTrip adds the key.
func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return k.next.RoundTrip(r)
}

// TestOfficialClient drives the server with the SDK's client, over each transport and in each era.
func TestOfficialClient(t *testing.T) {
	tests := []struct {
		name, version string
		transport     func(*testing.T, *rig) sdk.Transport
	}{
		{"http", "2026-07-28", overHTTP}, {"http", "2025-11-25", overHTTP}, {"http", "2025-06-18", overHTTP}, {"http", "2025-03-26", overHTTP},
		{"sse", "2025-03-26", overSSE}, {"sse", "2024-11-05", overSSE},
		{"stdio", "2026-07-28", overLines}, {"stdio", "2025-11-25", overLines}, {"stdio", "2025-06-18", overLines},
	}
	for _, tt := range tests {
		t.Run(tt.name+" "+tt.version, func(t *testing.T) {
			r := newRig(t)
			s := r.client(t, keyAna, tt.transport(t, r), tt.version)
			if got := s.InitializeResult().ProtocolVersion; got != tt.version {
				t.Errorf("speaks %s", got)
			}
			drive(t, s)
		})
	}
}

// overHTTP is the streamable transport.
func overHTTP(_ *testing.T, r *rig) sdk.Transport {
	return &sdk.StreamableClientTransport{Endpoint: r.http.URL + "/mcp", HTTPClient: &http.Client{Transport: keyed{keyAna, r.http.Client().Transport}}}
}

// overSSE is the transport of 2024-11-05.
func overSSE(_ *testing.T, r *rig) sdk.Transport {
	return &sdk.SSEClientTransport{Endpoint: r.http.URL + "/sse", HTTPClient: &http.Client{Transport: keyed{keyAna, r.http.Client().Transport}}}
}

// overLines is the transport of standard input and output.
func overLines(t *testing.T, r *rig) sdk.Transport {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	who := &identity.Principal{Subject: "user:ana", Subjects: []string{"user:ana"}, Method: identity.MethodStdio}
	go func() {
		if err := r.server.ServeStdio(t.Context(), who, catalog.All, inR, outW); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("stdio: %v", err)
		}
		outW.Close()
	}()
	return &sdk.IOTransport{Reader: outR, Writer: inW}
}

// drive uses each feature once.
func drive(t *testing.T, s *sdk.ClientSession) {
	ctx := t.Context()
	tools, err := s.ListTools(ctx, nil)
	if err != nil || len(tools.Tools) != 10 || tools.Tools[0].Name != "persistence.steps" {
		t.Fatalf("tools: %v, %v", tools, err)
	}
	res, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "persistence.echo", Arguments: map[string]any{"a": 1}})
	if err != nil || res.IsError || fmt.Sprint(res.StructuredContent) != "map[a:1]" {
		t.Errorf("call: %v, %v", res, err)
	}
	res, err = s.CallTool(ctx, &sdk.CallToolParams{Name: "persistence.ask", Arguments: map[string]any{}})
	if err != nil || fmt.Sprint(res.StructuredContent) != "map[color:blue state:asked]" {
		t.Errorf("ask: %v, %v", res, err)
	}
	_, err = s.CallTool(ctx, &sdk.CallToolParams{Name: "nope"})
	if e := (*jsonrpc.Error)(nil); !errors.As(err, &e) || e.Code != -32602 || !strings.Contains(e.Message, `unknown tool "nope"`) {
		t.Errorf("unknown tool: %v", err)
	}
	res, err = s.CallTool(ctx, &sdk.CallToolParams{Name: "mirrored", Arguments: map[string]any{"region": "eu <é>", "deep": map[string]any{"n": 7}}})
	if err != nil || res.IsError {
		t.Errorf("mirrored: %v, %v", res, err)
	}
	read, err := s.ReadResource(ctx, &sdk.ReadResourceParams{URI: "persistence://documents/a"})
	if err != nil || read.Contents[0].Text != `{"uri":"persistence://documents/a"}` {
		t.Errorf("read: %v, %v", read, err)
	}
	prompt, err := s.GetPrompt(ctx, &sdk.GetPromptParams{Name: "greet", Arguments: map[string]string{"who": "Bo"}})
	if err != nil || len(prompt.Messages) != 1 {
		t.Errorf("prompt: %v, %v", prompt, err)
	}
	done, err := s.Complete(ctx, &sdk.CompleteParams{Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "greet"}, Argument: sdk.CompleteParamsArgument{Name: "who", Value: "x"}})
	if err != nil || len(done.Completion.Values) != 1 {
		t.Errorf("complete: %v, %v", done, err)
	}
}

// TestSessionNotify announces changes on the stream of a session.
func TestSessionNotify(t *testing.T) {
	r := newRig(t)
	tools, updated := make(chan bool, 10), make(chan string, 10)
	c := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, &sdk.ClientOptions{
		ToolListChangedHandler:     func(context.Context, *sdk.ToolListChangedRequest) { tools <- true },
		ResourceUpdatedHandler:     func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI },
		ResourceListChangedHandler: func(context.Context, *sdk.ResourceListChangedRequest) { updated <- "list" },
		PromptListChangedHandler:   func(context.Context, *sdk.PromptListChangedRequest) { updated <- "prompts" },
	})
	s, err := c.Connect(t.Context(), overHTTP(t, r), &sdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Subscribe(t.Context(), &sdk.SubscribeParams{URI: "persistence://documents/a"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a changed list of tools", func() bool { // the stream may not be open yet
		r.server.Notify(catalog.Change{Tools: true})
		select {
		case <-tools:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
	r.server.Notify(catalog.Change{Resource: "persistence://documents/b"})
	r.server.Notify(catalog.Change{Resource: "persistence://documents/a"})
	if got := <-updated; got != "persistence://documents/a" {
		t.Errorf("updated %s", got)
	}
	r.server.Notify(catalog.Change{Resources: true})
	if got := <-updated; got != "list" {
		t.Errorf("got %s", got)
	}
	if list, err := s.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 10 {
		t.Errorf("tools: %v, %v", list, err)
	}
}

// TestSSE holds the rules of the form of 2024-11-05: off by default, authenticated anew, bound to who opened it.
func TestSSE(t *testing.T) {
	off := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.SSE = false })
	if res := off.send(t, "GET", "/sse", "", map[string]string{"Authorization": "Bearer " + keyAna}); res.status != 404 {
		t.Errorf("off: %d", res.status)
	}
	r := newRig(t)
	auth := func(key string) map[string]string { return map[string]string{"Authorization": "Bearer " + key} }
	r.send(t, "GET", "/sse", "", nil).want(t, 401, -32001)
	for _, tt := range []struct {
		method, path string
		headers      map[string]string
		status       int
	}{
		{"POST", "/sse", auth(keyAna), 405}, {"GET", "/messages", auth(keyAna), 405}, {"GET", "/sse", with(auth(keyAna), "Accept", "text/html"), 406},
		{"GET", "/sse", with(auth(keyAna), "Host", "evil.example"), 403}, {"GET", "/sse", with(auth(keyAna), "Origin", "http://evil.example"), 403},
	} {
		if tt.headers["Accept"] == "text/html" {
			tt.headers["Accept"] = "application/json"
		}
		if res := r.send(t, tt.method, tt.path, "", tt.headers); res.status != tt.status {
			t.Errorf("%s %s: %d", tt.method, tt.path, res.status)
		}
	}
	req, _ := http.NewRequest("GET", r.http.URL+"/sse", nil)
	req.Header.Set("Authorization", "Bearer "+keyAna)
	res, err := r.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		return ""
	}
	path := next()
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	r.send(t, "POST", path, ping, auth(keyBob)).want(t, 404, -32600)
	r.send(t, "POST", path, ping, nil).want(t, 401, -32001)
	r.send(t, "POST", "/messages?sessionId=x", ping, auth(keyAna)).want(t, 404, -32600)
	r.send(t, "POST", path, `{"jsonrpc":`, auth(keyAna)).want(t, 400, -32700)
	r.send(t, "POST", path, callBody("1", "persistence.echo", "{}"), auth(keyAna)).want(t, 400, -32022)
	if res := r.send(t, "POST", path, ping, with(auth(keyAna), "Content-Type", "text/plain")); res.status != 415 {
		t.Errorf("content type: %d", res.status)
	}
	if res := r.send(t, "POST", path, ping, auth(keyAna)); res.status != 202 || next() != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("ping: %d", res.status)
	}
	r.send(t, "POST", path, `{"jsonrpc":"2.0","id":2,"method":"nope"}`, auth(keyAna))
	if got := next(); !strings.Contains(got, "-32601") {
		t.Errorf("unknown method: %s", got)
	}
	r.send(t, "POST", path, `{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{}}}`, auth(keyAna))
	next()
	r.send(t, "POST", path, olderCall("4", "persistence.slow", "{}"), auth(keyAna))
	<-r.entered
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	r.server.Close(ctx)
	if got := next(); field(t, []byte(got), "/id").Literal() != "4" {
		t.Errorf("the call under way: %s", got)
	}
	if got := next(); got != "" {
		t.Errorf("after the end: %s", got)
	}
}

// TestCloseWaits lets a call finish, and cancels what does not.
func TestCloseWaits(t *testing.T) {
	r := newRig(t)
	h := r.open(t, "/mcp", keyAna, "2025-11-25")
	done := make(chan *reply, 1)
	go func() { done <- r.send(t, "POST", "/mcp", olderCall("1", "persistence.slow", "{}"), h) }()
	<-r.entered
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := r.server.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	<-r.left
	<-done
}
