package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/client"
)

// callOver serves one handler and calls a tool over HTTP.
func callOver(t *testing.T, h http.HandlerFunc, opts ...client.HTTPOption) (client.Result, error) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return client.HTTP(s.URL, "secret", opts...).CallTool(t.Context(), "persistence.get", json.RawMessage(`{"n":1.10}`))
}

// result is the response to the first call.
const result = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"image","data":""},{"type":"text","text":"words"}],"structuredContent":{"n":1.10}}}`

// answer sends one body.
func answer(status int, media, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestHTTPRequest(t *testing.T) {
	_, err := callOver(t, func(w http.ResponseWriter, r *http.Request) {
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer secret",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "persistence.get",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		body, _ := io.ReadAll(r.Body)
		want := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"persistence.get","arguments":{"n":1.10},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"tabellion-client","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
		if r.Method != http.MethodPost || string(body) != want {
			t.Errorf("%s %s", r.Method, body)
		}
		answer(200, "application/json", result)(w, r)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestHTTPAnswers(t *testing.T) {
	event := func(lines ...string) string { return strings.Join(lines, "\n") + "\n\n" }
	progress := event(`: ping`) + event("event: message", `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
	for name, h := range map[string]http.HandlerFunc{
		"json":   answer(200, "application/json; charset=utf-8", result),
		"events": answer(200, "text/event-stream", progress+event("id: 3", "data: "+result)),
		"split":  answer(200, "text/event-stream", event("data:"+result[:17], "data: "+result[17:])),
		"crlf":   answer(200, "text/event-stream", "data: "+result+"\r\n\r\n"),
		"stays open": func(w http.ResponseWriter, r *http.Request) {
			answer(200, "text/event-stream", event("data: "+result))(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := callOver(t, h)
			if err != nil || res.IsError || string(res.Structured) != `{"n":1.10}` || res.Text != "words" {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
}

func TestHTTPFailures(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    http.HandlerFunc
		rpc  int
		http int
		code client.Code
		wait time.Duration
		lost bool
	}{
		{"rpc", answer(200, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such tool"}}`), -32602, 0, "", 0, false},
		{"no key", answer(401, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"who","data":{"error":"UNAUTHORIZED_KEY"}}}`), -32001, 401, client.PolicyDenied, 0, false},
		{"rate", answer(429, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32010,"message":"slow","data":{"error":"RATE_LIMITED","retry_after_ms":1500}}}`), -32010, 429, client.Busy, 1500 * time.Millisecond, false},
		{"event", answer(200, "text/event-stream", "data: "+`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x"}}`+"\n\n"), -32603, 0, "", 0, false},
		{"old server", answer(400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"unsupported protocol version"}}`), -32022, 400, "", 0, false},
		{"forbidden", answer(403, "text/plain", "host"), 0, 403, client.PolicyDenied, 0, false},
		{"gateway", answer(502, "text/html", "<html>"), 0, 502, client.StoreUnavailable, 0, false},
		{"not there", answer(404, "text/html", "<html>"), 0, 404, client.NotFound, 0, false},
		{"other id", answer(200, "application/json", strings.Replace(result, `"id":1`, `"id":2`, 1)), 0, 0, "", 0, false},
		{"a page", answer(200, "text/html", "<html>"), 0, 0, "", 0, false},
		{"a question", answer(200, "application/json", strings.Replace(result, "complete", "input_required", 1)), 0, 0, "", 0, false},
		{"too large", answer(200, "application/json", strings.Repeat(" ", 2000)+result), 0, 0, "", 0, false},
		{"stream without end", answer(200, "text/event-stream", "data: {}\n\n"), 0, 0, "", 0, true},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "500")
			_, _ = io.WriteString(w, result[:50])
		}, 0, 0, "", 0, true},
		{"hung up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, 0, "", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := callOver(t, tt.h, client.WithMaxAnswer(1000))
			var e *client.Error
			switch {
			case err == nil:
				t.Fatal("no error")
			case tt.lost:
				if errors.As(err, &e) {
					t.Errorf("a lost answer is %+v", e)
				}
			case !errors.As(err, &e) || e.RPC != tt.rpc || e.HTTP != tt.http || e.Code != tt.code || e.RetryAfter != tt.wait || e.Lost():
				t.Errorf("got %+v (%v)", e, err)
			}
		})
	}
}

// TestHTTPRedirect holds that no request follows a redirect, and that the token stays at home.
func TestHTTPRedirect(t *testing.T) {
	trapped := 0
	trap := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		trapped++
		t.Errorf("%s arrived with %q", r.Method, r.Header.Get("Authorization"))
	}))
	defer trap.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, h := range []*http.Client{nil, {}} {
			var opts []client.HTTPOption
			if h != nil {
				opts = append(opts, client.WithHTTPClient(h))
			}
			_, err := callOver(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, trap.URL, status) }, opts...)
			var e *client.Error
			if !errors.As(err, &e) || e.HTTP != status || e.Retryable() {
				t.Errorf("%d: %v", status, err)
			}
		}
	}
	// The control: a client that follows is seen.
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(trap.URL, "127.0.0.1", "localhost", 1)+"/follow", http.StatusFound)
	}))
	defer control.Close()
	seen := 0
	trap.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen++ })
	res, err := http.Get(control.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if trapped != 0 || seen != 1 {
		t.Errorf("trapped %d, control %d", trapped, seen)
	}
}

func TestHTTPNameThatNeedsCoding(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Mcp-Name"); got != "=?base64?w6TDtg==?=" {
			t.Errorf("Mcp-Name is %q", got)
		}
		answer(200, "application/json", result)(w, r)
	}))
	defer s.Close()
	if _, err := client.HTTP(s.URL, "").CallTool(t.Context(), "äö", nil); err != nil {
		t.Error(err)
	}
}

func ExampleError() {
	err := error(client.FromRPC(-32010, "too many calls", json.RawMessage(`{"error":"RATE_LIMITED","retry_after_ms":250}`)))
	var e *client.Error
	if errors.As(err, &e) {
		fmt.Println(e.Code, e.RetryAfter, e.Retryable(), errors.Is(err, client.Busy))
	}
	// Output: busy 250ms true true
}

// TestForeignAnswer: after a lost answer, a refusal by something on the way says nothing of whether the write happened.
// The control: the same refusal by the server itself does.
func TestForeignAnswer(t *testing.T) {
	own := `{"jsonrpc":"2.0","id":3,"result":{"isError":true,"content":[{"type":"text","text":"{}"}],"structuredContent":{"error":{"code":"quota_exceeded","message":"full"}}}}`
	for name, tt := range map[string]struct {
		second  http.HandlerFunc
		unknown bool
	}{
		"a proxy": {answer(413, "text/html", "<html>"), true},
		"server":  {answer(200, "application/json", own), false},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch calls++; calls {
				case 1:
					answer(200, "application/json", `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":`+capabilities+`}}`)(w, r)
				case 2:
					panic(http.ErrAbortHandler)
				default:
					tt.second(w, r)
				}
			}))
			defer s.Close()
			c, err := client.New(t.Context(), client.HTTP(s.URL, ""), client.Options{Retry: client.Retry{First: 1}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Put(t.Context(), put)
			if _, unknown := client.Unknown(err); !client.IsCode(err, client.QuotaExceeded) || unknown != tt.unknown || calls != 3 {
				t.Errorf("unknown is %v after %d calls: %v", unknown, calls, err)
			}
		})
	}
}
