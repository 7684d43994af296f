package rawmcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// answer serves one JSON-RPC result for every request.
func answer(t *testing.T, result func(r *http.Request, body string) string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":%s}`, result(r, string(body)))
	}))
	t.Cleanup(s.Close)
	return s
}

// open makes a target or ends the test.
func open(t *testing.T, endpoint string, legacy bool) *rawmcp.Target {
	t.Helper()
	target, err := rawmcp.NewTarget(endpoint, "", map[string]string{"alice": "a"}, legacy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Close)
	return target
}

// TestNewTarget: what is no server is refused.
func TestNewTarget(t *testing.T) {
	for _, tt := range []struct{ endpoint, transfer, bad string }{
		{"http://h/mcp", "", ""}, {"https://h", "http://h:1/", ""},
		{"h:1", "", "no URL of a server"}, {"file:///mcp", "", "no URL of a server"}, {"", "", "no URL of a server"},
		{"http://h", "h", "no URL of a server"}, {"http://h", "http://h/x", "has no path"},
	} {
		_, err := rawmcp.NewTarget(tt.endpoint, tt.transfer, nil, false)
		if tt.bad == "" && err != nil || tt.bad != "" && (err == nil || !strings.Contains(err.Error(), tt.bad)) {
			t.Errorf("%q %q: got %v, want %q", tt.endpoint, tt.transfer, err, tt.bad)
		}
	}
}

// TestOutputs reads schemas over pages, and fetches nothing that they refer to.
func TestOutputs(t *testing.T) {
	schema := `{"type":"object","required":["a"]}`
	s := answer(t, func(r *http.Request, body string) string {
		if r.URL.Path != "/mcp" || r.Header.Get("Authorization") != "Bearer a" {
			return `{}`
		}
		if strings.Contains(body, `"cursor":"two"`) {
			return `{"tools":[{"name":"second","outputSchema":` + schema + `}]}`
		}
		return `{"tools":[{"name":"first","outputSchema":` + schema + `},{"name":"bare"}],"nextCursor":"two"}`
	})
	got, err := open(t, s.URL, false).Outputs(t.Context(), "alice")
	if err != nil || len(got) != 2 || got["first"] == nil || got["second"].Validate(map[string]any{}) == nil {
		t.Fatalf("got %v, %v", got, err)
	}
	schema = `{"$ref":"` + s.URL + `/schema"}`
	if _, err := open(t, s.URL, false).Outputs(t.Context(), "alice"); err == nil || !strings.Contains(err.Error(), "first") {
		t.Errorf("a schema elsewhere: got %v", err)
	}
	schema = `{"$ref":"file:///etc/hostname"}`
	if _, err := open(t, s.URL, false).Outputs(t.Context(), "alice"); err == nil || !strings.Contains(err.Error(), "first") {
		t.Errorf("a schema in a file: got %v", err)
	}
}

// TestSessions: calls at the same time have sessions of their own, and calls one after the other share one.
func TestSessions(t *testing.T) {
	var mu sync.Mutex
	opened, calls := 0, map[string]int{}
	arrived, both := make(chan bool, 3), make(chan bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct{ Method, ID json.RawMessage }
		json.NewDecoder(r.Body).Decode(&req)
		w.Header().Set("Content-Type", "application/json")
		mu.Lock()
		switch string(req.Method) {
		case `"initialize"`:
			opened++
			w.Header().Set("Mcp-Session-Id", fmt.Sprint(opened))
		case `"tools/call"`:
			calls[r.Header.Get("Mcp-Session-Id")]++
		}
		mu.Unlock()
		if string(req.Method) == `"tools/call"` {
			arrived <- true
			<-both
		}
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{}"}],"structuredContent":{}}}`)
	}))
	defer s.Close()
	target := open(t, s.URL, true)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := target.Call(t.Context(), "alice", "tool", []byte("{}")); err != nil {
				t.Error(err)
			}
		})
	}
	<-arrived
	<-arrived
	close(both)
	wg.Wait()
	if _, err := target.Call(t.Context(), "alice", "tool", []byte("{}")); err != nil {
		t.Error(err)
	}
	if opened != 2 || calls["1"] < 1 || calls["2"] < 1 || calls["1"]+calls["2"] != 3 {
		t.Errorf("%d sessions with the calls %v", opened, calls)
	}
}

// TestPatience: what a server refuses for now is sent again, whatever it was: the steps of a handshake, a listing, a
// call. Without patience a refusal is an answer.
func TestPatience(t *testing.T) {
	rpc := func(code int, data string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":"later","data":%s}}`, code, data)
	}
	for _, tt := range []struct {
		name        string
		status      int
		after, body string
		want        time.Duration // 0: it is not repeated
	}{
		{"rate", 429, "1", rpc(-32010, `{"error":"RATE_LIMITED","retry_after_ms":250}`), 250 * time.Millisecond},
		{"rate in a session", 200, "", rpc(-32010, `{"retry_after_ms":250}`), 250 * time.Millisecond},
		{"load", 200, "", rpc(-32014, `{"retry_after_ms":300}`), 300 * time.Millisecond},
		{"load, no time", 200, "", rpc(-32014, `"odd"`), time.Second},
		{"a proxy", 429, "3", "slow down", 3 * time.Second},
		{"a proxy, no time", 429, "", "slow down", time.Second},
		{"unavailable", 503, "2", "maintenance", 2 * time.Second},
		{"unavailable, no time", 503, "", rpc(-32603, `null`), 0},
		{"another error", 200, "", rpc(-32602, `{"retry_after_ms":250}`), 0},
	} {
		for _, legacy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, legacy %t", tt.name, legacy), func(t *testing.T) {
				seen := map[string]int{}
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var req struct{ Method string }
					json.NewDecoder(r.Body).Decode(&req)
					if seen[req.Method]++; seen[req.Method] == 1 { // each is refused once
						if tt.after != "" {
							w.Header().Set("Retry-After", tt.after)
						}
						w.WriteHeader(tt.status)
						io.WriteString(w, tt.body)
						return
					}
					io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{}"}],"structuredContent":{}}}`)
				}))
				defer s.Close()
				var waits []time.Duration
				target := open(t, s.URL, legacy)
				target.Patience = scenario.Patience{Repeats: 2, Longest: time.Minute, Sleep: func(_ context.Context, d time.Duration) error {
					waits = append(waits, d)
					return nil
				}}
				a, err := target.Call(t.Context(), "alice", "tool", []byte("{}"))
				if tt.want == 0 {
					if len(waits) > 0 || err == nil && a.RPC == nil {
						t.Errorf("got %v, %v after %v", a, err, waits)
					}
					return
				}
				methods := []string{"tools/call"}
				if legacy {
					methods = []string{"initialize", "notifications/initialized", "tools/call"}
				}
				for i, m := range methods {
					if seen[m] != 2 || len(waits) != len(methods) || waits[i] != tt.want {
						t.Errorf("%v, waited %v, want %v for each", seen, waits, tt.want)
					}
				}
				if err != nil || a.RPC != nil {
					t.Errorf("got %v, %v", a, err)
				}
			})
		}
	}
}

// TestImpatience: without patience the refusal is what comes back, at once.
func TestImpatience(t *testing.T) {
	seen := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		seen++
		w.WriteHeader(429)
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32010,"message":"later"}}`)
	}))
	defer s.Close()
	a, err := open(t, s.URL, false).Call(t.Context(), "alice", "tool", []byte("{}"))
	if err != nil || a.RPC == nil || a.RPC.Code != -32010 || seen != 1 {
		t.Errorf("got %v, %v after %d requests", a, err, seen)
	}
}

// TestCloseEndsSessions: a target leaves no session of the legacy era open.
func TestCloseEndsSessions(t *testing.T) {
	var ended []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			ended = append(ended, r.Header.Get("Mcp-Session-Id")+" "+r.Header.Get("Authorization"))
		}
		w.Header().Set("Mcp-Session-Id", "s1")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	defer s.Close()
	for _, legacy := range []bool{false, true} {
		target := open(t, s.URL, legacy)
		if _, err := target.Call(t.Context(), "alice", "tool", []byte("{}")); err != nil {
			t.Fatal(err)
		}
		target.Close()
		target.Close()
	}
	if len(ended) != 1 || ended[0] != "s1 Bearer a" {
		t.Errorf("ended %q", ended)
	}
}
