package rawmcp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
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
