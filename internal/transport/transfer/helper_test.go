package transfer_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/internal/transport/transfer"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// guard bounds every wait of these tests. It is no measure.
const guard = 60 * time.Second

// maxArtifact is the limit of the servers here, in bytes.
const maxArtifact = 32 << 20

// setup says how a server is made. The zero value is a plain one.
type setup struct {
	pace      time.Duration // 0: the default
	limits    web.Limits    // of the listener
	gate      *gate.Limits
	transfers int
	http2     bool
	blobs     func(persistence.Blobs) persistence.Blobs // a wrapper around the folder
}

// origin is a transfer origin over a folder of bytes, behind a real listener. The bearer of a caller is his name: alice
// may do everything, bob nothing.
type origin struct {
	*inproc.Server
	t      *testing.T
	clock  *clock.Manual
	dir    string // of the bytes
	folder *blob.Folder
	http   *httptest.Server
	addr   string
	serves sync.WaitGroup // requests that a handler has not left yet
	n      int            // for fresh keys
}

// serve makes an origin. When the test ends, no part of a file and no goroutine may be left of it.
func serve(t *testing.T, s setup) *origin {
	t.Helper()
	before := runtime.NumGoroutine()
	o := &origin{t: t, clock: clock.NewManual(time.Date(2042, 1, 1, 0, 0, 0, 0, time.UTC)), dir: filepath.Join(t.TempDir(), "blobs")}
	var err error
	if o.folder, err = blob.OpenFolder(o.dir, blob.FolderOptions{}); err != nil {
		t.Fatal(err)
	}
	var blobs persistence.Blobs = o.folder
	if s.blobs != nil {
		blobs = s.blobs(blobs)
	}
	limits := persistence.DefaultLimits()
	limits.MaxArtifactBytes = maxArtifact
	var atOnce time.Duration
	o.Server = inproc.New(t, inproc.Config{
		Store: memory.New(o.clock), Blobs: blobs, Clock: o.clock, Limits: limits, Keep: &atOnce, Gate: s.gate,
		Grants: []scenario.Grant{{As: "alice", Resource: "/persistence/**",
			Capabilities: []string{"persistence.read", "persistence.write", "persistence.delete", "persistence.admin"}}},
	})
	o.listen(s)
	t.Cleanup(func() { o.close(before) })
	return o
}

// listen begins to serve.
func (o *origin) listen(s setup) {
	log := slog.New(slog.DiscardHandler)
	h := transfer.New(transfer.Config{Gate: o.Gate, Catalog: o.Catalog, Log: log, Pace: s.pace, Transfers: s.transfers})
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.serves.Add(1)
		defer o.serves.Done()
		h.ServeHTTP(w, r)
	})
	o.http = httptest.NewUnstartedServer(nil)
	o.http.Config = web.NewServer(s.limits, web.Protect(web.Options{Loopback: true, Log: log}, counted), log)
	if o.http.EnableHTTP2 = s.http2; s.http2 {
		o.http.StartTLS()
	} else {
		o.http.Start()
	}
	o.addr = o.http.Listener.Addr().String()
}

// close ends the origin and looks at what is left of it.
func (o *origin) close(goroutines int) {
	o.t.Helper()
	o.idle()
	if parts := o.parts(); len(parts) > 0 {
		o.t.Errorf("parts of transfers are left: %q", parts)
	}
	o.http.CloseClientConnections()
	o.http.Close()
	if err := o.folder.Close(); err != nil {
		o.t.Error(err)
	}
	until(o.t, "every goroutine to end", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// idle waits until no handler runs.
func (o *origin) idle() {
	o.t.Helper()
	done := make(chan struct{})
	go func() { o.serves.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(guard):
		o.t.Fatal("a handler does not end")
	}
}

// parts are the files in the folder that are no blob under its name.
func (o *origin) parts() (found []string) {
	o.t.Helper()
	err := filepath.WalkDir(o.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && len(d.Name()) != 2*sha256.Size {
			if info, ierr := d.Info(); ierr == nil && info.Size() > 0 {
				found = append(found, path)
			}
		}
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return found
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(guard); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("waited in vain for %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}

// tool is a call of alice that succeeds.
func (o *origin) tool(name, format string, args ...any) map[string]any {
	o.t.Helper()
	o.n++
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "KEY", fmt.Sprintf(`"idempotencyKey":"k%d"`, o.n))
	a, err := o.Call(context.Background(), "alice", "persistence."+name, []byte(text))
	if err != nil || a.IsError || a.RPC != nil {
		o.t.Fatalf("%s: %v %s", name, err, a)
	}
	return a.Structured.(map[string]any)
}

// upload is an upload with what was declared of it.
type upload struct {
	path     string // of the PUT
	id       string
	artifact string
	get      string // the path of the artifact
	digest   persistence.Digest
	bytes    []byte
}

// begin opens an upload for bytes.
func (o *origin) begin(content []byte, mime string) *upload {
	o.t.Helper()
	sum := sha256.Sum256(content)
	u := o.tool("beginArtifact", `{"namespace":"ns","mimeType":%q,"size":%d,"hash":{"algorithm":"sha256","value":%q},"provenance":null,KEY}`,
		mime, len(content), hex.EncodeToString(sum[:]))
	id, artifact := fmt.Sprint(u["uploadId"]), fmt.Sprint(u["artifactId"])
	return &upload{path: "/uploads/ns/" + id, id: id, artifact: artifact, get: "/artifacts/ns/" + artifact, digest: sum, bytes: content}
}

// in takes a new upload of bytes to a state.
func (o *origin) in(state string, content []byte) *upload {
	o.t.Helper()
	u := o.begin(content, "text/plain")
	switch state {
	case "unknown":
		u.path, u.get = "/uploads/ns/00000000-0000-4000-8000-000000000000", "/artifacts/ns/00000000-0000-4000-8000-000000000000"
	case "expired":
		o.clock.Advance(24 * time.Hour)
	case "aborted":
		o.tool("abortArtifact", `{"namespace":"ns","uploadId":%q,KEY}`, u.id)
	case "received", "committed", "purged":
		if res := o.put(u, scenario.HTTPRequest{Body: content}); res.Status != 204 {
			o.t.Fatalf("PUT: %+v", res)
		}
	}
	if state == "committed" || state == "purged" {
		o.commit(u)
	}
	if state == "purged" {
		o.tool("purge", `{"namespace":"ns","target":{"type":"artifact","id":%q},KEY}`, u.artifact)
	}
	return u
}

// commit publishes an upload.
func (o *origin) commit(u *upload) {
	o.t.Helper()
	o.tool("commitArtifact", `{"namespace":"ns","uploadId":%q,KEY}`, u.id)
}

// stored is an artifact of a media type.
func (o *origin) stored(content []byte, mime string) *upload {
	o.t.Helper()
	u := o.begin(content, mime)
	if res := o.put(u, scenario.HTTPRequest{Body: content}); res.Status != 204 {
		o.t.Fatalf("PUT: %+v", res)
	}
	o.commit(u)
	return u
}

// send sends one request as somebody, on a connection of its own.
func (o *origin) send(as string, req scenario.HTTPRequest) scenario.HTTPResponse {
	o.t.Helper()
	res, err := scenario.Send(o.t.Context(), o.addr, nil, as, req)
	if err != nil {
		o.t.Fatalf("%s %s: %v", req.Method, req.Path, err)
	}
	return res
}

// put sends the bytes of an upload as alice.
func (o *origin) put(u *upload, req scenario.HTTPRequest) scenario.HTTPResponse {
	o.t.Helper()
	req.Method, req.Path = "PUT", u.path
	return o.send("alice", req)
}

// get reads an artifact as alice.
func (o *origin) get(u *upload) scenario.HTTPResponse {
	o.t.Helper()
	return o.send("alice", scenario.HTTPRequest{Method: "GET", Path: u.get})
}

// pendingStill holds that an upload can be sent from the start and committed, and gives the very bytes then. A transfer
// that was cut may still be on its way out.
func (o *origin) pendingStill(u *upload) {
	o.t.Helper()
	var res scenario.HTTPResponse
	until(o.t, "the transfer before to end", func() bool {
		res = o.put(u, scenario.HTTPRequest{Body: u.bytes})
		return codeOf(res.Body) != "busy"
	})
	if res.Status != 204 {
		o.t.Fatalf("the upload cannot be sent again: %d %s", res.Status, res.Body)
	}
	o.commit(u)
	if res := o.get(u); res.Status != 200 || res.SHA256 != u.digest.String() || res.Size != int64(len(u.bytes)) {
		o.t.Errorf("the artifact is %d, %d bytes, %s", res.Status, res.Size, res.SHA256)
	}
}

// codeOf is the code in an error body, which must be {"error":{"code","message"}} and nothing else; "" for no body.
func codeOf(body []byte) string {
	if len(body) == 0 {
		return ""
	}
	var e map[string]map[string]string
	if err := json.Unmarshal(body, &e); err != nil || len(e) != 1 || len(e["error"]) != 2 || e["error"]["message"] == "" {
		return fmt.Sprintf("no error body: %.80q", body)
	}
	return e["error"]["code"]
}

// expect holds status and code of an answer, and what every answer carries.
func expect(t *testing.T, res scenario.HTTPResponse, status int, code string) {
	t.Helper()
	if res.Broken || res.Status != status {
		t.Errorf("status %d (broken: %t), want %d; %.200s", res.Status, res.Broken, status, res.Body)
		return
	}
	if status >= 400 && (codeOf(res.Body) != code || res.Headers["content-type"] != "application/json") {
		t.Errorf("body %.200s of type %s, want the code %s", res.Body, res.Headers["content-type"], code)
	}
	if status == 204 && (res.Size != 0 || res.Headers["content-type"] != "" || res.Headers["content-length"] != "") {
		t.Errorf("204 with %d bytes and %v", res.Size, res.Headers)
	}
	for name, want := range map[string]string{
		"x-content-type-options": "nosniff", "cache-control": "no-store", "referrer-policy": "no-referrer", "location": "", "set-cookie": "",
		"server": "", "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
	} {
		if got := res.Headers[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// conn is a connection on which a test writes what it likes.
type conn struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

// dial connects.
func (o *origin) dial() *conn {
	o.t.Helper()
	c, err := net.Dial("tcp", o.addr)
	if err != nil {
		o.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(guard))
	o.t.Cleanup(func() { c.Close() })
	return &conn{c, o.t, bufio.NewReader(c)}
}

// say writes text as it is. An error is not told: a server may close before it has read everything.
func (c *conn) say(format string, args ...any) {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	io.WriteString(c, format)
}

// hear reads one answer.
func (c *conn) hear(method string) (res *http.Response, body []byte) {
	c.t.Helper()
	res, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	if res.StatusCode == http.StatusContinue {
		return res, nil
	}
	if body, err = io.ReadAll(res.Body); err != nil {
		c.t.Fatalf("half an answer: %v", err)
	}
	return res, body
}

// ends holds that the server closes the connection and sends nothing before.
func (c *conn) ends() {
	c.t.Helper()
	rest, err := io.ReadAll(c.r)
	if len(rest) > 0 {
		c.t.Errorf("after the answer came %.80q", rest)
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		c.t.Error("the connection is not closed")
	}
}

// raw sends a request as it is written and gives the answer in the form of scenario.Send.
func (o *origin) raw(method, text string) scenario.HTTPResponse {
	o.t.Helper()
	c := o.dial()
	defer c.Close()
	c.say("%s", text)
	res, body := c.hear(method)
	out := scenario.HTTPResponse{Status: res.StatusCode, Headers: map[string]string{}, Body: body, Size: int64(len(body))}
	for name, values := range res.Header {
		out.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return out
}

// client is a client of the origin that follows nothing and unpacks nothing.
func (o *origin) client() *http.Client {
	o.t.Helper()
	transport := &http.Transport{DisableCompression: true}
	if o.http.EnableHTTP2 {
		roots := o.http.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		transport = &http.Transport{DisableCompression: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}}
	}
	o.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: guard, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// pattern is n bytes in which no piece is like another.
func pattern(n int) []byte {
	out := make([]byte, 0, n+8)
	for i := 0; len(out) < n; i++ {
		out = fmt.Appendf(out, "%07x\n", i)
	}
	return out[:n]
}

// same tells whether two bodies are equal, without printing them.
func same(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, want %d, and they differ", len(got), len(want))
	}
}

// flipAt flips a bit of a file.
func flipAt(path string, at int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[at] ^= 1
	return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, b, 0o600))
}
