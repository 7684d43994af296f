package transfer_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// abc are the bytes of most uploads here.
var abc = []byte("abc")

// TestPut holds the table of persistence.v1, section 6.1. Where the upload is pending before and the answer is not 204,
// it must be pending after, and nothing of the failed attempt may be in what is stored.
func TestPut(t *testing.T) {
	o := serve(t, setup{})
	empty, more := []byte{}, []byte("abcd")
	wait := map[string]string{"Expect": "100-continue"}
	tests := []struct {
		name    string
		state   string // of the upload; "" is pending
		content []byte // that was declared; nil is abc
		as      string // "" is alice, - is nobody
		req     scenario.HTTPRequest
		status  int
		code    string
		told    bool // that it may begin to send
	}{
		{name: "as declared", req: scenario.HTTPRequest{Body: abc}, status: 204},
		{name: "of another type", req: scenario.HTTPRequest{Body: abc, Headers: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}, status: 204},
		{name: "no bearer", as: "-", req: scenario.HTTPRequest{Body: abc}, status: 403, code: "policy_denied"},
		{name: "denied", as: "bob", req: scenario.HTTPRequest{Body: abc}, status: 403, code: "policy_denied"},
		{name: "no bearer, waiting", as: "-", req: scenario.HTTPRequest{Body: abc, Headers: wait}, status: 403, code: "policy_denied"},
		{name: "denied, waiting", as: "bob", req: scenario.HTTPRequest{Body: abc, Headers: wait}, status: 403, code: "policy_denied"},
		{name: "accepted, waiting", req: scenario.HTTPRequest{Body: abc, Headers: wait}, status: 204, told: true},
		{name: "accepted, chunked and waiting", req: scenario.HTTPRequest{Body: abc, Chunked: true, Headers: wait}, status: 204, told: true},
		{name: "unknown upload", state: "unknown", req: scenario.HTTPRequest{Body: abc, Headers: wait}, status: 404, code: "not_found"},
		{name: "aborted upload", state: "aborted", req: scenario.HTTPRequest{Body: abc, Headers: wait}, status: 404, code: "not_found"},
		{name: "committed upload", state: "committed", req: scenario.HTTPRequest{Body: abc, Headers: wait}, status: 404, code: "not_found"},
		{name: "purged artifact", state: "purged", req: scenario.HTTPRequest{Body: abc, Headers: wait}, status: 404, code: "not_found"},
		{name: "received upload", state: "received", req: scenario.HTTPRequest{Body: abc, Headers: wait}, status: 400, code: "invalid_request"},
		{name: "received upload, other bytes", state: "received", req: scenario.HTTPRequest{Body: more}, status: 400, code: "invalid_request"},
		{name: "gzip", req: scenario.HTTPRequest{Body: abc, Headers: map[string]string{"Content-Encoding": "gzip", "Expect": "100-continue"}}, status: 400, code: "unsupported_format"},
		{name: "gzip in other case", req: scenario.HTTPRequest{Body: abc, Headers: map[string]string{"content-encoding": "GZip"}}, status: 400, code: "unsupported_format"},
		{name: "two codings", req: scenario.HTTPRequest{Body: abc, Headers: map[string]string{"Content-Encoding": "identity, gzip"}}, status: 400, code: "unsupported_format"},
		{name: "identity", req: scenario.HTTPRequest{Body: abc, Headers: map[string]string{"Content-Encoding": "identity"}}, status: 204},
		{name: "identity in other case", req: scenario.HTTPRequest{Body: abc, Headers: map[string]string{"content-ENCODING": " IdenTity "}}, status: 204},
		{name: "range", req: scenario.HTTPRequest{Body: abc, Headers: map[string]string{"Content-Range": "bytes 0-2/3", "Expect": "100-continue"}}, status: 400, code: "unsupported_format"},
		{name: "gzip of another length", req: scenario.HTTPRequest{Body: more, Headers: map[string]string{"Content-Encoding": "gzip"}}, status: 400, code: "unsupported_format"},
		{name: "short", req: scenario.HTTPRequest{Body: abc[:2], Headers: wait}, status: 400, code: "transfer_incomplete"},
		{name: "long", req: scenario.HTTPRequest{Body: more, Headers: wait}, status: 400, code: "integrity_error"},
		{name: "as long as may be", req: scenario.HTTPRequest{Headers: map[string]string{"Expect": "100-continue", "Content-Length": fmt.Sprint(maxArtifact)}}, status: 400, code: "integrity_error"},
		{name: "longer than may be", req: scenario.HTTPRequest{Headers: map[string]string{"Expect": "100-continue", "Content-Length": fmt.Sprint(maxArtifact + 1)}}, status: 413, code: "quota_exceeded"},
		{name: "no body, no length", req: scenario.HTTPRequest{}, status: 400, code: "transfer_incomplete"},
		{name: "chunked", req: scenario.HTTPRequest{Body: abc, Chunked: true}, status: 204},
		{name: "chunked, short", req: scenario.HTTPRequest{Body: abc[:2], Chunked: true}, status: 400, code: "transfer_incomplete"},
		{name: "chunked, nothing", req: scenario.HTTPRequest{Body: empty, Chunked: true}, status: 400, code: "transfer_incomplete"},
		{name: "chunked, long", req: scenario.HTTPRequest{Body: more, Chunked: true}, status: 400, code: "integrity_error"},
		{name: "wrong bytes", req: scenario.HTTPRequest{Body: []byte("abd")}, status: 400, code: "integrity_error"},
		{name: "wrong bytes, chunked", req: scenario.HTTPRequest{Body: []byte("abd"), Chunked: true}, status: 400, code: "integrity_error"},
		{name: "nothing declared, length 0", content: empty, req: scenario.HTTPRequest{Body: empty}, status: 204},
		{name: "nothing declared, no length", content: empty, req: scenario.HTTPRequest{}, status: 204},
		{name: "nothing declared, chunked", content: empty, req: scenario.HTTPRequest{Body: empty, Chunked: true}, status: 204},
		{name: "nothing declared, a byte", content: empty, req: scenario.HTTPRequest{Body: abc[:1]}, status: 400, code: "integrity_error"},
		{name: "nothing declared, a byte chunked", content: empty, req: scenario.HTTPRequest{Body: abc[:1], Chunked: true}, status: 400, code: "integrity_error"},
		{name: "large", content: pattern(5<<20 + 1), req: scenario.HTTPRequest{Body: pattern(5<<20 + 1)}, status: 204},
		{name: "large, chunked", content: pattern(5 << 20), req: scenario.HTTPRequest{Body: pattern(5 << 20), Chunked: true}, status: 204},
		{name: "large, last byte wrong", content: pattern(3 << 20), req: scenario.HTTPRequest{Body: append(pattern(3<<20-1), 'x')}, status: 400, code: "integrity_error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.content == nil {
				tt.content = abc
			}
			u := o.in(tt.state, tt.content)
			tt.req.Method, tt.req.Path = "PUT", u.path
			as := map[string]string{"": "alice", "-": "", "bob": "bob"}[tt.as]
			res := o.send(as, tt.req)
			expect(t, res, tt.status, tt.code)
			if res.Continued != tt.told {
				t.Errorf("told to begin: %t, want %t", res.Continued, tt.told)
			}
			switch {
			case tt.state == "" && tt.status != 204:
				o.pendingStill(u)
			case tt.state == "" || tt.state == "received":
				o.commit(u)
				same(t, o.get(u).Body, tt.content[:min(len(tt.content), 1<<20)])
			}
		})
	}
}

// TestPutBearers holds which bearers are refused: more than one, another scheme, and what is not in the header.
func TestPutBearers(t *testing.T) {
	o := serve(t, setup{})
	u := o.in("", abc)
	for name, head := range map[string]string{
		"two equal":            "Authorization: Bearer alice\r\nAuthorization: Bearer alice\r\n",
		"two":                  "Authorization: Bearer alice\r\nAuthorization: Bearer bob\r\n",
		"two in one":           "Authorization: Bearer alice, Bearer alice\r\n",
		"another scheme":       "Authorization: Basic YWxpY2U6\r\n",
		"no scheme":            "Authorization: alice\r\n",
		"empty":                "Authorization: Bearer \r\n",
		"a cookie":             "Cookie: access_token=alice; token=alice\r\n",
		"in another header":    "Proxy-Authorization: Bearer alice\r\n",
		"two headers disagree": "Authorization: Bearer alice\r\nX-MCP-API-KEY: bob\r\n",
	} {
		for _, target := range []string{u.path, u.path + "?access_token=alice&token=alice&key=alice&authorization=Bearer%20alice"} {
			t.Run(name, func(t *testing.T) {
				res := o.raw("PUT", "PUT "+target+" HTTP/1.1\r\nHost: "+o.addr+"\r\n"+head+"Content-Length: 3\r\n\r\nabc")
				expect(t, res, 403, "policy_denied")
			})
		}
	}
	o.pendingStill(u)
}

// TestPutConnection holds what becomes of the connection: a body that goes on is not read, and after a good answer the
// next request is served.
func TestPutConnection(t *testing.T) {
	o := serve(t, setup{})
	u := o.in("", abc)
	c := o.dial()
	head := "PUT " + u.path + " HTTP/1.1\r\nHost: " + o.addr + "\r\nAuthorization: Bearer alice\r\n"
	c.say("%s", head+"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n")
	res, body := c.hear("PUT") // although the body has no end yet
	if res.StatusCode != 400 || codeOf(body) != "integrity_error" || !res.Close {
		t.Errorf("a body that is too long: %d %s", res.StatusCode, body)
	}
	c.ends()
	c = o.dial()
	c.say("%s", head+"Content-Length: 3\r\nExpect: a-lot\r\n\r\n")
	if res, _ := c.hear("PUT"); res.StatusCode != http.StatusExpectationFailed {
		t.Errorf("an unknown expectation: %d", res.StatusCode)
	}
	c = o.dial()
	c.say("%s", head+"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n")
	if res, body := c.hear("PUT"); res.StatusCode != 400 || codeOf(body) != "transfer_incomplete" {
		t.Errorf("no chunk: %d %s", res.StatusCode, body)
	}
	c = o.dial()
	c.say("PUT /nothing HTTP/1.1\r\nHost: %s\r\nContent-Length: 3\r\n\r\n", o.addr)
	if res, body := c.hear("PUT"); res.StatusCode != 404 || codeOf(body) != "not_found" || !res.Close {
		t.Errorf("no route: %d %s, closes: %t", res.StatusCode, body, res.Close)
	}
	c.ends()
	c = o.dial()
	for _, want := range []int{204, 400, 0} {
		if want == 0 {
			c.ends()
			continue
		}
		c.say("%s", head+"Content-Length: 3\r\n\r\nabc")
		if res, body := c.hear("PUT"); res.StatusCode != want {
			t.Errorf("%d %s, want %d", res.StatusCode, body, want)
		}
	}
}

// TestPutCut cuts connections at every place and sends again.
func TestPutCut(t *testing.T) {
	o := serve(t, setup{})
	for _, chunked := range []bool{false, true} {
		for _, at := range []int64{0, 1, 70_000, 199_999} {
			u := o.in("", pattern(200_000))
			res := o.put(u, scenario.HTTPRequest{Body: u.bytes, Chunked: chunked, BreakAfter: &at})
			if !res.Broken {
				t.Errorf("cut after %d bytes: %+v", at, res)
			}
			o.pendingStill(u)
		}
	}
	// The client is gone at once, without a word.
	u := o.in("", pattern(200_000))
	c := o.dial()
	c.say("PUT %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer alice\r\nContent-Length: 200000\r\n\r\n%s", u.path, o.addr, u.bytes[:100_000])
	c.Close()
	o.pendingStill(u)
}

// receiving opens a transfer that the server waits for: it has told the client to begin.
func (o *origin) receiving(u *upload) *conn {
	o.t.Helper()
	c := o.dial()
	c.say("PUT %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer alice\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", u.path, o.addr, len(u.bytes))
	if res, body := c.hear("PUT"); res.StatusCode != 100 {
		o.t.Fatalf("%d %s", res.StatusCode, body)
	}
	return c
}

// TestPutParallel holds that one transfer of an upload is under way at a time, and that the other one harms nothing.
func TestPutParallel(t *testing.T) {
	o := serve(t, setup{})
	u := o.in("", abc)
	first := o.receiving(u)
	res := o.put(u, scenario.HTTPRequest{Body: abc, Headers: map[string]string{"Expect": "100-continue"}})
	expect(t, res, 500, "busy")
	if res.Continued {
		t.Error("the second one was told to begin")
	}
	// A transfer of another upload is none of this one.
	expect(t, o.put(o.in("", abc), scenario.HTTPRequest{Body: abc}), 204, "")
	first.say("abc")
	if res, body := first.hear("PUT"); res.StatusCode != 204 {
		t.Errorf("the first one: %d %s", res.StatusCode, body)
	}
	expect(t, o.put(u, scenario.HTTPRequest{Body: abc}), 400, "invalid_request")
	o.commit(u)
}

// TestPutOvertaken holds that the state counts again before the bytes are recorded: an upload that expired or was
// aborted in the meantime takes none.
func TestPutOvertaken(t *testing.T) {
	o := serve(t, setup{})
	u := o.in("", abc)
	c := o.receiving(u)
	o.tool("abortArtifact", `{"namespace":"ns","uploadId":%q,KEY}`, u.id)
	c.say("abc")
	if res, body := c.hear("PUT"); res.StatusCode != 404 || codeOf(body) != "not_found" {
		t.Errorf("aborted: %d %s", res.StatusCode, body)
	}
	u = o.in("", abc)
	c = o.receiving(u)
	o.in("expired", nil) // moves the clock
	c.say("abc")
	if res, body := c.hear("PUT"); res.StatusCode != 404 || codeOf(body) != "not_found" {
		t.Errorf("expired: %d %s", res.StatusCode, body)
	}
	expect(t, o.put(u, scenario.HTTPRequest{Body: abc, Headers: map[string]string{"Expect": "100-continue"}}), 404, "not_found")
	u = o.in("received", abc)
	o.in("expired", nil)
	expect(t, o.put(u, scenario.HTTPRequest{Body: abc}), 404, "not_found")
}

// broken are blobs of which one method fails.
type broken struct {
	persistence.Blobs
	create, keep bool
}

// Create fails, or gives a writer that cannot keep.
func (b *broken) Create(ctx context.Context) (persistence.BlobWriter, error) {
	if b.create {
		return nil, persistence.ErrUnavailable
	}
	w, err := b.Blobs.Create(ctx)
	if err == nil && b.keep {
		w = unkept{w}
	}
	return w, err
}

// unkept is a writer that cannot keep.
type unkept struct{ persistence.BlobWriter }

// Keep fails.
func (u unkept) Keep(context.Context) error {
	u.Drop()
	return persistence.ErrUnavailable
}

// TestUnavailable holds what is answered when there is no decision, no place for bytes, or no room for the call.
func TestUnavailable(t *testing.T) {
	b := &broken{}
	o := serve(t, setup{blobs: func(inner persistence.Blobs) persistence.Blobs { b.Blobs = inner; return b }})
	u, a := o.in("", abc), o.in("committed", abc)
	waiting := scenario.HTTPRequest{Body: abc, Headers: map[string]string{"Expect": "100-continue"}}
	o.GuardDown(true)
	res := o.put(u, waiting)
	if expect(t, res, 500, "store_unavailable"); res.Continued {
		t.Error("told to begin without a decision")
	}
	expect(t, o.get(a), 500, "store_unavailable")
	o.GuardDown(false)
	b.create = true
	if res = o.put(u, waiting); res.Continued {
		t.Error("told to begin without a place for the bytes")
	}
	expect(t, res, 500, "store_unavailable")
	b.create, b.keep = false, true
	expect(t, o.put(u, waiting), 500, "store_unavailable")
	b.keep = false
	o.pendingStill(u)

	limits := gate.DefaultLimits()
	limits.Rate, limits.Burst = 0.001, 2 // begin, and one more
	crowded := serve(t, setup{gate: &limits})
	u = crowded.in("", abc)
	crowded.get(u)
	for _, req := range []scenario.HTTPRequest{{Method: "PUT", Path: u.path, Body: abc, Headers: waiting.Headers}, {Method: "GET", Path: u.get}} {
		res := crowded.send("alice", req)
		expect(t, res, 500, "busy")
		if res.Continued || res.Headers["retry-after"] == "" {
			t.Errorf("told to begin: %t, when to retry: %q", res.Continued, res.Headers["retry-after"])
		}
	}
}

// TestGetHeaders holds the exact headers of a download, whatever is stored and whatever is asked for besides.
func TestGetHeaders(t *testing.T) {
	o := serve(t, setup{})
	client := o.client()
	conditions := []http.Header{
		{}, {"Range": {"bytes=1-1"}}, {"Range": {"bytes=9-"}}, {"If-None-Match": {"*"}}, {"If-Match": {`"x"`}}, {"If-Range": {`"x"`}, "Range": {"bytes=0-0"}},
		{"If-Modified-Since": {"Fri, 31 Dec 2100 23:59:59 GMT"}}, {"If-Unmodified-Since": {"Fri, 31 Dec 1999 23:59:59 GMT"}},
		{"Accept": {"image/png"}}, {"Accept-Encoding": {"gzip, br"}}, {"Te": {"trailers"}},
	}
	for mime, content := range map[string]string{
		"text/plain": "abc", "text/plain; charset=utf-8; x=\"a b\"": "abc", "application/octet-stream": "", "APPLICATION/X-Odd+json;v=1": "{}",
		"image/svg+xml": `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`, "text/html": "<script>alert(1)</script>",
		"text/html; charset=utf-7": "+ADw-script+AD4-", "application/xhtml+xml": `<html xmlns="http://www.w3.org/1999/xhtml"><script>alert(1)</script></html>`,
	} {
		u := o.stored([]byte(content), mime)
		for _, condition := range conditions {
			req, err := http.NewRequestWithContext(t.Context(), "GET", o.http.URL+u.get, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header = maps.Clone(condition)
			req.Header.Set("Authorization", "Bearer alice")
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if res.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if res.Header.Get("Date") == "" {
				t.Error("no date")
			}
			res.Header.Del("Date")
			want := http.Header{
				"Content-Type": {mime}, "Content-Length": {fmt.Sprint(len(content))}, "Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"},
				"Content-Disposition": {"attachment"}, "Referrer-Policy": {"no-referrer"}, "Content-Security-Policy": {"default-src 'none'; frame-ancestors 'none'"},
			}
			if res.StatusCode != 200 || string(body) != content || fmt.Sprint(res.Header) != fmt.Sprint(want) || res.Uncompressed || len(res.TransferEncoding) > 0 {
				t.Errorf("%s, asked with %v: %d %q %v, want %v", mime, condition, res.StatusCode, body, res.Header, want)
			}
		}
	}
}

// TestGet holds what is answered in place of bytes (persistence.v1, section 6.3).
func TestGet(t *testing.T) {
	o := serve(t, setup{})
	for state, status := range map[string]int{"": 404, "received": 404, "aborted": 404, "unknown": 404, "purged": 404, "committed": 200} {
		expect(t, o.get(o.in(state, []byte("state "+state))), status, "not_found")
	}
	u := o.in("committed", abc)
	for as, status := range map[string]int{"": 403, "bob": 403, "alice": 200} {
		expect(t, o.send(as, scenario.HTTPRequest{Method: "GET", Path: u.get}), status, "policy_denied")
	}
	if u := o.in("received", abc); o.get(u).Status != 404 {
		t.Error("bytes are readable before they are committed, because others have the same")
	}
}

// TestServerWide holds that a question to the server as a whole is nothing either, and carries what every answer carries.
func TestServerWide(t *testing.T) {
	o := serve(t, setup{})
	for _, head := range []string{"Host: " + o.addr, "Host: evil.example"} {
		status, code := 404, "not_found"
		if strings.Contains(head, "evil") {
			status, code = 403, "host_not_allowed"
		}
		for _, method := range []string{"OPTIONS", "GET"} {
			expect(t, o.raw(method, method+" * HTTP/1.1\r\n"+head+"\r\n\r\n"), status, code)
		}
	}
}

// TestMethods holds that other methods on the paths of the routes are nothing, whoever asks.
func TestMethods(t *testing.T) {
	o := serve(t, setup{})
	u, a := o.in("", abc), o.in("committed", abc)
	methods := []string{"HEAD", "POST", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "get", "Get", "put", "PUT", "GET", "XGET"}
	for _, method := range methods {
		for _, path := range []string{u.path, a.get} {
			if method == "PUT" && path == u.path || method == "GET" && path == a.get {
				continue
			}
			for _, as := range []string{"", "alice"} {
				res := o.send(as, scenario.HTTPRequest{Method: method, Path: path, Body: abc})
				if method == "HEAD" {
					if res.Status != 404 || res.Size != 0 {
						t.Errorf("HEAD %s: %d", path, res.Status)
					}
					continue
				}
				expect(t, res, 404, "not_found")
			}
		}
	}
	o.pendingStill(u)
}

// TestOddPaths holds that nothing but the exact path is a route, that a segment is decoded once, and that nothing is
// redirected. The first list names paths that a server that tidies them would find something at.
func TestOddPaths(t *testing.T) {
	o := serve(t, setup{})
	u, a := o.in("", abc), o.in("committed", abc)
	id := a.artifact
	coded := fmt.Sprintf("%%%02x", id[0]) + id[1:]
	for _, tt := range []struct {
		target string
		status int
	}{
		{"//artifacts/ns/" + id, 404}, {"/artifacts//ns/" + id, 404}, {"/artifacts/ns//" + id, 404}, {"/artifacts/ns/" + id + "/", 404},
		{"/artifacts/ns/" + id + "/x", 404}, {"/artifacts/ns/x/../" + id, 404}, {"/x/../artifacts/ns/" + id, 404}, {"/./artifacts/ns/" + id, 404},
		{"/artifacts/./ns/" + id, 404}, {"/artifacts/ns/./" + id, 404}, {"/artifacts/ns/%2e/" + id, 404}, {"/artifacts/ns/%2e%2e/ns/" + id, 404},
		{"/artifacts/ns%2f" + id, 404}, {"/artifacts%2Fns/" + id, 404}, {"/%2Fartifacts/ns/" + id, 404}, {"/artifacts/ns/%2f" + id, 404},
		{"/artifacts/ns/" + id + "%2f", 404}, {"/artifacts/ns/" + id + "%00", 404}, {"/artifacts/ns/%00" + id, 404}, {"/artifacts/ns/" + id + "%20", 404},
		{"/artifacts/ns/" + id + "%0a", 404}, {"/artifacts/ns/" + id + ";x=1", 404}, {"/artifacts/ns/" + id + "#", 404}, {"/artifacts/ns/" + id + "#x", 404},
		{"/artifacts/ns/" + id + "%3f", 404}, {"/artifacts/ns/" + id + "%23", 404}, {"/artifacts/ns/" + strings.Replace(coded, "%", "%25", 1), 404},
		{"/Artifacts/ns/" + id, 404}, {"/ARTIFACTS/ns/" + id, 404}, {"/artifacts/NS/" + id, 404}, {"/artifacts/ns/" + strings.ToUpper(id) + "X", 404},
		{"/%61rtifacts/ns/" + id, 404}, {`/artifacts/ns\` + id, 404}, {`\artifacts\ns\` + id, 400}, {"artifacts/ns/" + id, 400}, {"/artifacts/ns/" + id + "\xff", 404},
		{"/artifacts/ns/" + id + "%ff", 404}, {"/artifacts/ns/" + id + "%c0%80", 404}, {"/artifacts/ns/\u00e9", 404}, {"/artifacts/ns/%zz", 400},
		{"/artifacts/ns/%", 400}, {"/artifacts/ns/a\x00", 400}, {"/artifacts/ns/" + strings.Repeat("a", 128), 404}, {"/artifacts/ns/" + strings.Repeat("a", 129), 404},
		{"/artifacts/" + strings.Repeat("n", 129) + "/" + id, 404}, {"/artifacts/ns/.hidden", 404}, {"/artifacts/ns/-x", 404}, {"/artifacts/ns/..", 404},
		{"/artifacts/ns/%2e%2e", 404}, {"/artifacts/../" + id, 404}, {"/artifacts/ns/", 404}, {"/artifacts/ns", 404}, {"/artifacts/", 404}, {"/artifacts", 404},
		{"/", 404}, {"/mcp", 404}, {"/persistence/mcp", 404}, {"/favicon.ico", 404}, {"/.well-known/x", 404}, {"/artifactsx/ns/" + id, 404},
		{"/uploads/ns/" + u.id, 404}, {"*", 404},
		{"/artifacts/ns/" + coded, 200}, {"/artifacts/%6e%73/" + id, 200}, {"/artifacts/ns/" + id + "?", 200}, {"/artifacts/ns/" + id + "?a=b&c=../..", 200},
		{"/artifacts/ns/" + id + "?x=%zz;#", 200}, {"http://" + o.addr + "/artifacts/ns/" + id, 200}, {"HTTP://localhost/artifacts/ns/" + id, 200},
		{"http://evil.example/artifacts/ns/" + id, 403}, {"http://" + o.addr + "//artifacts/ns/" + id, 404}, {"http://" + o.addr + "/artifacts/ns/x/../" + id, 404},
	} {
		code := map[int]string{403: "host_not_allowed", 404: "not_found"}[tt.status]
		res := o.raw("GET", "GET "+tt.target+" HTTP/1.1\r\nHost: "+o.addr+"\r\nAuthorization: Bearer alice\r\n\r\n")
		if tt.status == 400 { // what is no request target never reaches a handler
			if res.Status != 400 || res.Headers["location"] != "" {
				t.Errorf("GET %q: %d", tt.target, res.Status)
			}
			continue
		}
		if expect(t, res, tt.status, code); t.Failed() {
			t.Fatalf("GET %q", tt.target)
		}
	}
	for _, target := range []string{
		"//uploads/..", "//uploads/ns/" + u.id, "/uploads/ns/../" + u.id, "/uploads/ns/../x", "/uploads/ns/%2e%2e", "/uploads/ns%2F" + u.id, "/uploads/ns/" + u.id + "/",
		"/uploads/ns/" + u.id + "/x", "/uploads//" + u.id, "/uploads/ns/" + strings.Repeat("a", 129), "/uploads/ns/" + u.id + "%00", "/uploads/ns/\xff",
		"/Uploads/ns/" + u.id, "/artifacts/ns/" + id, "/uploads/ns/" + u.artifact,
	} {
		for _, wait := range []string{"", "Expect: 100-continue\r\n"} {
			res := o.raw("PUT", "PUT "+target+" HTTP/1.1\r\nHost: "+o.addr+"\r\nAuthorization: Bearer alice\r\nContent-Length: 3\r\n"+wait+"\r\n")
			if expect(t, res, 404, "not_found"); t.Failed() {
				t.Fatalf("PUT %q", target)
			}
		}
	}
	u.path = fmt.Sprintf("/%s/n%%73/%%%02X%s?upload=../x", "uploads", u.id[0], u.id[1:])
	expect(t, o.put(u, scenario.HTTPRequest{Body: abc}), 204, "")
	o.commit(u)
}

// TestHostAndOrigin holds that both routes are for listed hosts and pages only, before a body is read.
func TestHostAndOrigin(t *testing.T) {
	o := serve(t, setup{})
	u, a := o.in("", abc), o.in("committed", abc)
	for _, tt := range []struct {
		head string
		code string // "" is allowed
	}{
		{"Host: evil.example", "host_not_allowed"}, {"Host: localhost.evil.example", "host_not_allowed"}, {"Host: 0.0.0.0", "host_not_allowed"},
		{"Host: localhost", ""}, {"Host: " + o.addr, ""}, {"Host: " + o.addr + "\r\nOrigin: http://" + o.addr, ""},
		{"Host: " + o.addr + "\r\nOrigin: https://evil.example", "origin_not_allowed"}, {"Host: " + o.addr + "\r\nOrigin: null", "origin_not_allowed"},
		{"Host: localhost\r\nOrigin: http://" + o.addr, "origin_not_allowed"},
	} {
		status := 403
		if tt.code == "" {
			status = 200
		}
		res := o.raw("GET", "GET "+a.get+" HTTP/1.1\r\n"+tt.head+"\r\nAuthorization: Bearer alice\r\n\r\n")
		expect(t, res, status, tt.code)
		if res.Headers["access-control-allow-origin"] != "" {
			t.Errorf("%s: %v", tt.head, res.Headers)
		}
		if tt.code != "" {
			res := o.raw("PUT", "PUT "+u.path+" HTTP/1.1\r\n"+tt.head+"\r\nAuthorization: Bearer alice\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
			expect(t, res, 403, tt.code)
			res = o.raw("OPTIONS", "OPTIONS "+u.path+" HTTP/1.1\r\n"+tt.head+"\r\nAccess-Control-Request-Method: PUT\r\n\r\n")
			expect(t, res, 403, tt.code)
		}
	}
	o.pendingStill(u)
}

// TestNothingIsLearned compares refusals byte for byte: whoever has no right or no key gets the same answer whether or
// not there is something, and whoever has the right gets one answer for everything that is not there.
func TestNothingIsLearned(t *testing.T) {
	o := serve(t, setup{})
	words := func(method, as, target string) string {
		bearer := ""
		if as != "" {
			bearer = "Authorization: Bearer " + as + "\r\n"
		}
		c := o.dial()
		defer c.Close()
		c.say("%s", method+" "+target+" HTTP/1.1\r\nHost: "+o.addr+"\r\n"+bearer+"Connection: close\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
		all, err := io.ReadAll(c.r)
		if err != nil {
			t.Fatal(err)
		}
		head, date, _ := strings.Cut(string(all), "Date: ")
		_, rest, ok := strings.Cut(date, "\r\n")
		if !ok {
			t.Fatalf("an answer without a date: %q", all)
		}
		return head + rest
	}
	states := []string{"", "received", "committed", "aborted", "purged", "unknown"}
	said := map[string]string{}
	for _, state := range states {
		u := o.in(state, abc)
		for _, as := range []string{"", "bob"} {
			for method, target := range map[string]string{"PUT": u.path, "GET": u.get} {
				got, key := words(method, as, target), method+" as "+as
				if first, ok := said[key]; ok && first != got {
					t.Errorf("%s, %q: %q, before %q", key, state, got, first)
				}
				if said[key] = got; !strings.HasPrefix(got, "HTTP/1.1 403 ") {
					t.Errorf("%s, %q: %q", key, state, got)
				}
			}
		}
		for method, target := range map[string]string{"PUT": u.path, "GET": u.get} {
			if method == "PUT" && (state == "" || state == "received") || method == "GET" && state == "committed" {
				continue // there is something
			}
			got := words(method, "alice", target)
			if !strings.HasPrefix(got, "HTTP/1.1 404 ") {
				t.Errorf("%s, %q: %q", method, state, got)
			}
			if first, ok := said[method]; ok && first != got {
				t.Errorf("%s, %q: %q, before %q", method, state, got, first)
			}
			said[method] = got
		}
	}
	if len(said) != 6 {
		t.Errorf("only %d kinds of answers were compared", len(said))
	}
}

// TestDamage holds that wrong bytes are told before any byte where that can be known, and cannot be taken for whole
// where not.
func TestDamage(t *testing.T) {
	o := serve(t, setup{})
	flip := func(at int) func(string) error { return func(path string) error { return flipAt(path, at) } }
	tests := []struct {
		name   string
		size   int
		damage func(path string) error
		begins bool // the answer begins, and is broken off
	}{
		{"missing", 100, os.Remove, false},
		{"missing, of no bytes", 0, os.Remove, false},
		{"shorter", 101, func(p string) error { return os.Truncate(p, 100) }, false},
		{"longer", 102, func(p string) error { return os.Truncate(p, 103) }, false},
		{"emptied", 103, func(p string) error { return os.Truncate(p, 0) }, false},
		{"a bit of a small one", 104, flip(50), false},
		{"a bit of one piece", 64 << 10, flip(64<<10 - 1), false},
		{"a bit of a piece and a byte, in the piece", 64<<10 + 1, flip(0), true},
		{"the first bit of a large one", 5 << 20, flip(0), true},
		{"the last bit of a large one", 5<<20 + 1, flip(5 << 20), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := o.in("committed", pattern(tt.size))
			if res := o.get(u); res.Status != 200 || res.SHA256 != u.digest.String() {
				t.Fatalf("before the damage: %+v", res)
			}
			path := o.folder.Path(u.digest)
			if err := os.Chmod(path, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := tt.damage(path); err != nil {
				t.Fatal(err)
			}
			res := o.get(u)
			if !tt.begins {
				expect(t, res, 400, "integrity_error")
				return
			}
			if !res.Broken || res.Status != 200 || res.Size >= int64(tt.size) || res.Headers["content-length"] != fmt.Sprint(tt.size) {
				t.Errorf("status %d, broken %t, %d bytes of %s", res.Status, res.Broken, res.Size, res.Headers["content-length"])
			}
		})
	}
}

// TestOpenDownloadGoesOn holds that a purge does not end a download that is open (persistence.v1, section 4.6).
func TestOpenDownloadGoesOn(t *testing.T) {
	o := serve(t, setup{})
	u := o.in("committed", pattern(20<<20))
	req, err := http.NewRequestWithContext(t.Context(), "GET", o.http.URL+u.get, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer alice")
	res, err := o.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	o.tool("purge", `{"namespace":"ns","target":{"type":"artifact","id":%q},KEY}`, u.artifact)
	if _, err := os.Stat(o.folder.Path(u.digest)); !os.IsNotExist(err) {
		t.Errorf("the bytes are still in the folder: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	same(t, body, u.bytes)
	expect(t, o.get(u), 404, "not_found")
}

// TestTransfersAreBounded holds that a transfer too many is refused, and served when another one is over.
func TestTransfersAreBounded(t *testing.T) {
	o := serve(t, setup{transfers: 1})
	u := o.in("committed", pattern(20<<20))
	c := o.dial()
	c.say("GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer alice\r\n\r\n", u.get, o.addr)
	if _, err := c.r.Peek(1); err != nil {
		t.Fatal(err)
	}
	res := o.get(u)
	if expect(t, res, 500, "busy"); res.Headers["retry-after"] == "" {
		t.Error("nothing says when to retry")
	}
	if _, body := c.hear("GET"); len(body) != len(u.bytes) {
		t.Errorf("the first download has %d bytes", len(body))
	}
	until(t, "the place to be free", func() bool { return o.get(u).Status == 200 })
}
