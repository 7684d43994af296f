package scenario_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// wire is a target whose transfer origin is one address; its tools answer with what is set.
type wire struct {
	addr string
	tool scenario.Answer
}

// Call implements scenario.Target.
func (w *wire) Call(context.Context, string, string, []byte) (scenario.Answer, error) {
	return w.tool, nil
}

// Read implements scenario.Target.
func (w *wire) Read(context.Context, string, string) (scenario.Answer, error) { return w.tool, nil }

// HTTP implements scenario.Target.
func (w *wire) HTTP(ctx context.Context, as string, req scenario.HTTPRequest) (scenario.HTTPResponse, error) {
	return scenario.Send(ctx, w.addr, nil, as, req)
}

// listen serves every connection with serve, in turn, and gives the address.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// says answers every request with a text, after the head was read.
func says(t *testing.T, text string) string {
	return listen(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for line := "x"; line != "\r\n" && line != ""; line, _ = r.ReadString('\n') {
		}
		io.WriteString(c, text)
	})
}

// parse reads a scenario of the steps.
func parse(t *testing.T, steps string) *scenario.Scenario {
	t.Helper()
	var s scenario.Scenario
	if err := json.Unmarshal([]byte(`{"id":"t","title":"t","steps":`+steps+`}`), &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// runSteps runs steps against a target.
func runSteps(t *testing.T, target scenario.Target, hooks scenario.Hooks, steps string) error {
	t.Helper()
	r := scenario.Runner{Target: target, Hooks: hooks}
	return r.Run(t.Context(), parse(t, steps))
}

// abc is the SHA-256 of "abc", from FIPS 180-4's examples.
const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

// Answers that servers give in the tests.
const (
	goodAnswer  = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc"
	goodChunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
)

// goodError is the body of an error.
const goodError = `{"error":{"code":"not_found","message":"no"}}`

// notFound is an answer of status 404 with a body.
func notFound(kind, body string) string {
	return fmt.Sprintf("HTTP/1.1 404 Not Found\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body)
}

// TestExpectHTTP: every expectation of an http step can be met and can fail.
func TestExpectHTTP(t *testing.T) {
	for _, tt := range []struct {
		name, answer, expect string
		bad                  string // a part of the message; "" means that the step passes
	}{
		{"status", goodAnswer, `{"status":200}`, ""},
		{"status by a matcher", goodAnswer, `{"status":{"$gte":200}}`, ""},
		{"wrong status", goodAnswer, `{"status":204}`, "status is 200, want 204"},
		{"headers", goodAnswer, `{"status":200,"headers":{"content-type":"text/plain","content-length":"3","etag":{"$absent":true}}}`, ""},
		{"header by a matcher", goodAnswer, `{"status":200,"headers":{"content-type":{"$re":"^text/"}}}`, ""},
		{"wrong header", goodAnswer, `{"status":200,"headers":{"content-type":"text/html"}}`, "header content-type"},
		{"missing header", goodAnswer, `{"status":200,"headers":{"cache-control":"no-store"}}`, "cache-control is absent"},
		{"unwanted header", goodAnswer, `{"status":200,"headers":{"content-type":{"$absent":true}}}`, "is there"},
		{"body", goodAnswer, `{"status":200,"body":{"size":3,"sha256":"` + abc + `"}}`, ""},
		{"chunked body", goodChunked, `{"status":200,"body":{"size":3,"sha256":"` + abc + `"}}`, ""},
		{"wrong size", goodAnswer, `{"status":200,"body":{"size":4}}`, "body size is 3, want 4"},
		{"wrong hash", strings.Replace(goodAnswer, "abc", "abd", 1), `{"status":200,"body":{"size":3,"sha256":"` + abc + `"}}`, "body sha256"},
		{"short body", strings.TrimSuffix(goodAnswer, "c"), `{"status":200}`, "broken connection"},
		{"short chunked body", strings.TrimSuffix(goodChunked, "0\r\n\r\n"), `{"status":200}`, "broken connection"},
		{"no answer", "", `{"status":200}`, "broken connection"},
		{"half a head", "HTTP/1.1 200 OK\r\nCont", `{"status":200}`, "broken connection"},
		{"one byte more", goodAnswer + "d", `{"status":200}`, "bytes after the end"},
		{"one byte more after chunks", goodChunked + "d", `{"status":200}`, "bytes after the end"},
		{"a body where none may be", "HTTP/1.1 204 No Content\r\n\r\nabc", `{"status":204}`, "bytes after the end"},
		{"not HTTP", "SSH-2.0-x\r\n\r\n", `{"status":200}`, "malformed HTTP"},
		{"error", notFound("application/json; charset=utf-8", goodError), `{"status":404,"error":"not_found"}`, ""},
		{"wrong code", notFound("application/json", goodError), `{"status":404,"error":"policy_denied"}`, "want error policy_denied"},
		{"error as text", notFound("text/plain", goodError), `{"status":404,"error":"not_found"}`, "as application/json"},
		{"error without message", notFound("application/json", `{"error":{"code":"not_found","message":""}}`), `{"status":404,"error":"not_found"}`, "no message"},
		{"error with more", notFound("application/json", `{"error":{"code":"not_found","message":"no"},"x":1}`), `{"status":404,"error":"not_found"}`, "is not {error"},
		{"error with more inside", notFound("application/json", `{"error":{"code":"not_found","message":"no","x":1}}`), `{"status":404,"error":"not_found"}`, "is not {error"},
		{"error that is no JSON", notFound("application/json", "no"), `{"status":404,"error":"not_found"}`, "no JSON"},
		{"broken", strings.TrimSuffix(goodAnswer, "c"), `{"broken":true}`, ""},
		{"broken without a word", "", `{"broken":true}`, ""},
		{"not broken", goodAnswer, `{"broken":true}`, "want a broken connection"},
		{"closed at the end is whole", "HTTP/1.1 200 OK\r\n\r\nabc", `{"broken":true}`, "want a broken connection"},
		{"any of", notFound("text/plain", "no"), `{"anyOf":[{"broken":true},{"status":404}]}`, ""},
		{"none of", notFound("text/plain", "no"), `{"anyOf":[{"broken":true},{"status":200}]}`, "none of"},
		{"no kind", goodAnswer, `{"headers":{"content-type":"text/plain"}}`, "without a kind"},
		{"unknown member", goodAnswer, `{"status":200,"text":"abc"}`, "unknown field"},
		{"interim answers", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + goodAnswer, `{"status":200}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &wire{addr: says(t, tt.answer)}
			err := runSteps(t, w, scenario.Hooks{}, `[{"http":{"method":"GET","path":"/x"},"expect":`+tt.expect+`}]`)
			check(t, err, tt.bad)
		})
	}
}

// check wants no error, or one that says bad.
func check(t *testing.T, err error, bad string) {
	t.Helper()
	if bad == "" && err != nil || bad != "" && (err == nil || !strings.Contains(err.Error(), bad)) {
		t.Fatalf("got %v, want %q", err, bad)
	}
}

// TestHTTPRequest: what a step says is what arrives, byte for byte.
func TestHTTPRequest(t *testing.T) {
	var got string
	addr := listen(t, func(c net.Conn) {
		var b strings.Builder
		r := bufio.NewReader(c)
		for !strings.Contains(b.String(), "\r\n\r\n") || strings.Contains(b.String(), "chunked") && !strings.HasSuffix(b.String(), "0\r\n\r\n") {
			line, err := r.ReadString('\n')
			b.WriteString(line)
			if err != nil {
				break
			}
		}
		if strings.Contains(b.String(), "Length: 3") {
			rest := make([]byte, 3)
			io.ReadFull(r, rest)
			b.Write(rest)
		}
		got = b.String()
		io.WriteString(c, goodAnswer)
	})
	head := func(first string, headers ...string) string {
		lines := append([]string{first + " HTTP/1.1", "Host: " + addr, "Connection: close"}, headers...)
		return strings.Join(lines, "\r\n") + "\r\n\r\n"
	}
	for _, tt := range []struct{ name, http, want string }{
		{"path as written", `{"method":"GET","path":"/a/../b//%2e?x=1"}`, head("GET /a/../b//%2e?x=1")},
		{"bearer", `{"method":"GET","path":"/","as":"alice"}`, head("GET /", "Authorization: Bearer alice")},
		{"text", `{"method":"PUT","path":"/","body":{"text":"abc"}}`, head("PUT /", "Content-Length: 3") + "abc"},
		{"empty text", `{"method":"PUT","path":"/","body":{"text":""}}`, head("PUT /", "Content-Length: 0")},
		{"base64", `{"method":"PUT","path":"/","body":{"base64":"YWJj"}}`, head("PUT /", "Content-Length: 3") + "abc"},
		{"fill", `{"method":"PUT","path":"/","body":{"fill":{"byte":65,"count":3}}}`, head("PUT /", "Content-Length: 3") + "AAA"},
		{"generator", `{"method":"PUT","path":"/","body":{"text":{"$gen":"string","char":"b","count":3}}}`, head("PUT /", "Content-Length: 3") + "bbb"},
		{"chunked", `{"method":"PUT","path":"/","body":{"text":"abc"},"chunked":true}`, head("PUT /", "Transfer-Encoding: chunked") + "3\r\nabc\r\n0\r\n\r\n"},
		{"headers", `{"method":"GET","path":"/","headers":{"X-A":"1","host":"h"}}`, "GET / HTTP/1.1\r\nConnection: close\r\nX-A: 1\r\nhost: h\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &wire{addr: addr}
			check(t, runSteps(t, w, scenario.Hooks{}, `[{"http":`+tt.http+`,"expect":{"status":200}}]`), "")
			if got != tt.want {
				t.Errorf("got\n%q\nwant\n%q", got, tt.want)
			}
		})
	}
}

// TestHTTPSteps: a step that cannot mean anything is refused, and not sent.
func TestHTTPSteps(t *testing.T) {
	w := &wire{addr: says(t, goodAnswer)}
	for name, tt := range map[string]struct{ step, bad string }{
		"cut beyond the body":     {`{"http":{"method":"PUT","path":"/","body":{"text":"abc"},"breakAfter":3},"expect":{"broken":true}}`, "breakAfter 3"},
		"chunks of nothing":       {`{"http":{"method":"PUT","path":"/","chunked":true},"expect":{"status":200}}`, "need a body"},
		"two bodies":              {`{"http":{"method":"PUT","path":"/","body":{"text":"a","base64":""}},"expect":{"status":200}}`, "body must be"},
		"a body of another kind":  {`{"http":{"method":"PUT","path":"/","body":{"hex":"00"}},"expect":{"status":200}}`, "body must be"},
		"a byte that is none":     {`{"http":{"method":"PUT","path":"/","body":{"fill":{"byte":256,"count":1}}},"expect":{"status":200}}`, "byte"},
		"bad base64":              {`{"http":{"method":"PUT","path":"/","body":{"base64":"%"}},"expect":{"status":200}}`, "base64"},
		"save of an http step":    {`{"http":{"method":"GET","path":"/"},"save":{"a":"/x"},"expect":{"status":200}}`, "save"},
		"a hook that is not here": {`{"corruptBlob":"x"}`, "lacks the hook"},
	} {
		t.Run(name, func(t *testing.T) { check(t, runSteps(t, w, scenario.Hooks{}, "["+tt.step+"]"), tt.bad) })
	}
}

// TestBreakAfter: the server sees the announced length and then the end; an answer that claims success is not hidden.
func TestBreakAfter(t *testing.T) {
	step := func(expect string) string {
		return `[{"http":{"method":"PUT","path":"/","body":{"text":"abc"},"breakAfter":1},"expect":` + expect + `}]`
	}
	for _, tt := range []struct {
		name   string
		status int
		expect string
		bad    string
	}{
		{"refused", 400, `{"broken":true}`, ""},
		{"refused, and the answer is not seen", 400, `{"status":400}`, "cut as the step says"},
		{"taken for whole", 204, `{"broken":true}`, "want a broken connection, got status 204"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := ""
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, err := io.ReadAll(r.Body)
				seen = fmt.Sprintf("%d %q %v", r.ContentLength, text, err)
				w.WriteHeader(tt.status)
			}))
			w := &wire{addr: server.Listener.Addr().String()}
			err := runSteps(t, w, scenario.Hooks{}, step(tt.expect))
			server.Close() // and with it every handler: seen is settled
			check(t, err, tt.bad)
			if want := `3 "a" unexpected EOF`; seen != want {
				t.Errorf("the server saw %s, want %s", seen, want)
			}
		})
	}
}

// TestExpectContinue: the body follows 100 Continue, and stays unsent when an answer comes first.
func TestExpectContinue(t *testing.T) {
	for name, read := range map[string]bool{"asked for": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if read {
					text, _ := io.ReadAll(r.Body)
					w.Write(text)
				}
			}))
			defer server.Close()
			res, err := scenario.Send(t.Context(), server.Listener.Addr().String(), nil, "", scenario.HTTPRequest{
				Method: "PUT", Path: "/", Body: []byte("abc"), Headers: map[string]string{"Expect": "100-continue"},
			})
			if err != nil || res.Status != 200 || res.Continued != read || (string(res.Body) == "abc") != read {
				t.Errorf("got %v, continued %t, %v", res, res.Continued, err)
			}
		})
	}
}

// TestSendLarge: a body that fills the buffers is sent while the answer is read, and an early answer is not lost.
func TestSendLarge(t *testing.T) {
	body := make([]byte, 8<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		io.Copy(w, r.Body)
	}))
	defer server.Close()
	for path, want := range map[string]int{"/": 200, "/refused": 400} {
		res, err := scenario.Send(t.Context(), server.Listener.Addr().String(), nil, "", scenario.HTTPRequest{Method: "PUT", Path: path, Body: body})
		if err != nil || res.Broken || res.Status != want || want == 200 && (res.Size != int64(len(body)) || len(res.Body) != 1<<20) {
			t.Errorf("%s: got %v, %v", path, res, err)
		}
	}
}

// TestSendEnds: the end of the context ends an exchange with a server that says nothing.
func TestSendEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	addr := listen(t, func(c net.Conn) {
		bufio.NewReader(c).ReadString('\n')
		cancel()
		io.Copy(io.Discard, c)
	})
	if res, err := scenario.Send(ctx, addr, nil, "", scenario.HTTPRequest{Method: "GET", Path: "/"}); err != context.Canceled {
		t.Errorf("got %v, %v", res, err)
	}
}

// TestCorruptBlob: the hook gets the artifact of the step, and the namespace it was begun in.
func TestCorruptBlob(t *testing.T) {
	var got []string
	hooks := scenario.Hooks{CorruptBlob: func(namespace, id string) error {
		got = append(got, namespace+"/"+id)
		return nil
	}}
	begun := map[string]any{"namespace": "ns", "artifactId": "a1", "uploadId": "u1"}
	w := &wire{tool: scenario.Answer{Structured: begun, Text: `{"namespace":"ns","artifactId":"a1","uploadId":"u1"}`}}
	check(t, runSteps(t, w, hooks, `[
		{"tool":"persistence.beginArtifact","as":"alice","args":{},"expect":{"structuredContent":{}},"save":{"art":"/artifactId"}},
		{"corruptBlob":"${art}"}, {"corruptBlob":"other"}]`), "")
	if want := "[ns/a1 /other]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
