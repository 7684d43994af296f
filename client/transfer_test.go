package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/client"
)

// origin is a transfer origin and the tools beside it, just enough for one artifact: it is no server, and the order of
// its answers is written by the tests. The real one is held by storetest.RunClient.
type origin struct {
	t  *testing.T
	mu sync.Mutex

	puts, gets []http.HandlerFunc // one for each request; after the last one put and get themselves answer
	tools      []string           // called, with their keys
	refuse     map[string]step    // answers of tools instead of their own
	received   []byte
	committed  bool
	artifact   []byte // what GET gives
	size       int64
	hash       string
}

// CallTool implements client.Caller.
func (o *origin) CallTool(_ context.Context, name string, arguments json.RawMessage) (client.Result, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var in struct {
		Size           int64
		Hash           client.Hash
		IdempotencyKey string
	}
	if err := json.Unmarshal(arguments, &in); err != nil {
		o.t.Error(err)
	}
	name = strings.TrimPrefix(name, "persistence.")
	if name == "capabilities" {
		return ok(capabilities)()
	}
	o.tools = append(o.tools, name+" "+in.IdempotencyKey)
	if st := o.refuse[name]; st != nil {
		return st()
	}
	switch name {
	case "beginArtifact":
		o.size, o.hash = in.Size, in.Hash.Value
		return ok(`{"namespace":"ns","artifactId":"art","uploadId":"up","expiresAt":"2042-01-02T00:00:00.000Z"}`)()
	case "commitArtifact":
		if sum := sha256.Sum256(o.received); o.received == nil || hex.EncodeToString(sum[:]) != o.hash {
			return refuse(client.TransferIncomplete)()
		}
		o.committed = true
	case "abortArtifact":
		return ok(`{"ok":true}`)()
	}
	return ok(fmt.Sprintf(`{"namespace":"ns","id":"art","mimeType":"image/png","size":%d,"hash":{"algorithm":"sha256","value":%q},"createdAt":"2042-01-01T00:00:00.000Z","provenance":null}`, o.size, o.hash))()
}

// ServeHTTP implements http.Handler.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Authorization"); got != "Bearer secret" {
		o.t.Errorf("Authorization is %q", got)
	}
	o.mu.Lock()
	list, own := &o.gets, o.get
	if r.Method == http.MethodPut {
		list, own = &o.puts, o.put
	}
	if len(*list) > 0 {
		own, *list = (*list)[0], (*list)[1:]
	}
	o.mu.Unlock()
	own(w, r)
}

// put takes the bytes.
func (o *origin) put(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/uploads/ns/up" || r.ContentLength != o.size {
		o.t.Errorf("%s with %d bytes of %d", r.URL.Path, r.ContentLength, o.size)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.received = append([]byte{}, body...)
	w.WriteHeader(http.StatusNoContent)
}

// get gives the bytes.
func (o *origin) get(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/artifacts/ns/art" {
		o.t.Errorf("path %s", r.URL.Path)
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(o.artifact)))
	_, _ = w.Write(o.artifact)
}

// hold makes content the artifact that is there.
func (o *origin) hold(content []byte) {
	sum := sha256.Sum256(content)
	o.artifact, o.size, o.hash = content, int64(len(content)), hex.EncodeToString(sum[:])
}

// verbs are the tools that were called, without keys.
func (o *origin) verbs() string {
	var names []string
	for _, t := range o.tools {
		name, _, _ := strings.Cut(t, " ")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// openOrigin serves an origin and makes a client of it that does not sleep.
func openOrigin(t *testing.T, o *origin) *client.Client {
	t.Helper()
	o.t = t
	s := httptest.NewServer(o)
	t.Cleanup(s.Close)
	c, err := client.New(t.Context(), o, client.Options{
		Transfer: s.URL, Token: "secret", StallTimeout: 20 * time.Second,
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// heard is a Progress that holds its promises while it listens.
type heard struct {
	t           *testing.T
	calls, last int64
	total       int64
	final       int
}

// progress is the Progress.
func (h *heard) progress(done, total int64) {
	if done < h.last || total != h.total || done > total || h.final > 0 {
		h.t.Errorf("progress %d of %d after %d of %d", done, total, h.last, h.total)
	}
	h.calls++
	h.last = done
	if done == total {
		h.final++
	}
}

// ended checks the end.
func (h *heard) ended() {
	h.t.Helper()
	if h.final != 1 || h.last != h.total {
		h.t.Errorf("progress ended at %d of %d, %d times", h.last, h.total, h.final)
	}
}

// large is content of several pieces.
var large = bytes.Repeat([]byte("0123456789abcdef"), 1<<15) // 512 KiB

// cutAfter hangs up after n bytes of the body.
func cutAfter(n int64) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, n)
		panic(http.ErrAbortHandler)
	}
}

func TestUpload(t *testing.T) {
	for name, tt := range map[string]struct {
		content []byte
		puts    []http.HandlerFunc
	}{
		"plain":       {content: large},
		"empty":       {content: []byte{}},
		"one byte":    {content: []byte("x")},
		"broken":      {large, []http.HandlerFunc{cutAfter(100000), cutAfter(0)}},
		"busy":        {large, []http.HandlerFunc{answer(500, "application/json", `{"error":{"code":"busy","message":"another"}}`)}},
		"unavailable": {large, []http.HandlerFunc{answer(503, "text/html", `<html>`)}},
		"cut on the way": {large, []http.HandlerFunc{
			answer(400, "application/json", `{"error":{"code":"transfer_incomplete","message":"short"}}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &origin{puts: tt.puts}
			c := openOrigin(t, o)
			h := &heard{t: t, total: int64(len(tt.content))}
			body := bytes.NewReader(append([]byte("head"), tt.content...))
			_, _ = body.Seek(4, io.SeekStart) // from the present position
			a, err := c.Upload(t.Context(), client.UploadRequest{Namespace: "ns", MimeType: "image/png", Body: body, Progress: h.progress})
			if err != nil {
				t.Fatal(err)
			}
			h.ended()
			if !bytes.Equal(o.received, tt.content) || a.Size != int64(len(tt.content)) || !o.committed || o.verbs() != "beginArtifact commitArtifact" {
				t.Errorf("%d bytes received, artifact %+v, tools %s", len(o.received), a, o.verbs())
			}
			begin, commit := strings.TrimPrefix(o.tools[0], "beginArtifact "), strings.TrimPrefix(o.tools[1], "commitArtifact ")
			if begin == commit || strings.TrimSuffix(begin, ".begin") != strings.TrimSuffix(commit, ".commit") {
				t.Errorf("keys %q and %q", begin, commit)
			}
		})
	}
}

// lostAfter takes the bytes and answers nothing.
func (o *origin) lostAfter(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	o.received = body
	o.mu.Unlock()
	panic(http.ErrAbortHandler)
}

func TestUploadArrivedUnseen(t *testing.T) {
	o := &origin{}
	o.puts = []http.HandlerFunc{o.lostAfter, answer(400, "application/json", `{"error":{"code":"invalid_request","message":"received already"}}`)}
	c := openOrigin(t, o)
	if _, err := c.Upload(t.Context(), client.UploadRequest{Namespace: "ns", MimeType: "a/b", Body: bytes.NewReader(large)}); err != nil || !o.committed {
		t.Errorf("committed %v: %v", o.committed, err)
	}
}

func TestUploadRefused(t *testing.T) {
	refusal := func(status int, code client.Code) []http.HandlerFunc {
		return []http.HandlerFunc{answer(status, "application/json", fmt.Sprintf(`{"error":{"code":%q,"message":"words"}}`, code))}
	}
	for name, tt := range map[string]struct {
		puts   []http.HandlerFunc
		refuse map[string]step
		key    string
		code   client.Code
		http   int
		verbs  string
	}{
		"denied":             {refusal(403, client.PolicyDenied), nil, "", client.PolicyDenied, 403, "beginArtifact abortArtifact"},
		"denied, own key":    {refusal(403, client.PolicyDenied), nil, "mine", client.PolicyDenied, 403, "beginArtifact"},
		"wrong bytes":        {refusal(400, client.IntegrityError), nil, "", client.IntegrityError, 400, "beginArtifact abortArtifact"},
		"too large":          {refusal(413, client.QuotaExceeded), nil, "", client.QuotaExceeded, 413, "beginArtifact abortArtifact"},
		"not sent, 400":      {refusal(400, client.InvalidRequest), nil, "", client.InvalidRequest, 400, "beginArtifact abortArtifact"},
		"own key, gone":      {refusal(404, client.NotFound), nil, "mine", client.NotFound, 404, "beginArtifact commitArtifact"},
		"redirect":           {[]http.HandlerFunc{answer(307, "text/plain", "")}, nil, "", "", 307, "beginArtifact abortArtifact"},
		"quota":              {nil, map[string]step{"beginArtifact": refuse(client.QuotaExceeded)}, "", client.QuotaExceeded, 0, "beginArtifact"},
		"abort fails too":    {refusal(403, client.PolicyDenied), map[string]step{"abortArtifact": refuse(client.Busy)}, "", client.PolicyDenied, 403, "beginArtifact abortArtifact"},
		"commit unavailable": {nil, map[string]step{"commitArtifact": refuse(client.StoreUnavailable)}, "", client.StoreUnavailable, 0, "beginArtifact commitArtifact commitArtifact commitArtifact commitArtifact commitArtifact"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &origin{puts: tt.puts, refuse: tt.refuse}
			c := openOrigin(t, o)
			_, err := c.Upload(t.Context(), client.UploadRequest{Namespace: "ns", MimeType: "a/b", Body: bytes.NewReader(large), Key: tt.key})
			var e *client.Error
			if !errors.As(err, &e) || e.Code != tt.code || e.HTTP != tt.http || o.verbs() != tt.verbs {
				t.Fatalf("%v; tools %s", err, o.verbs())
			}
			if e.Unknown != (name == "commit unavailable") || e.Key == "" || tt.key != "" && e.Key != tt.key || strings.Contains(e.Key, ".") {
				t.Errorf("unknown %v, key %q", e.Unknown, e.Key)
			}
		})
	}
}

func TestUploadOnceBody(t *testing.T) {
	o := &origin{}
	c := openOrigin(t, o)
	sum := sha256.Sum256(large)
	r := client.UploadRequest{Namespace: "ns", MimeType: "a/b", Size: int64(len(large)), SHA256: hex.EncodeToString(sum[:])}
	once := func() io.Reader { return io.LimitReader(bytes.NewReader(large), int64(len(large))) }

	r.Body = once()
	if _, err := c.Upload(t.Context(), r); err != nil || !bytes.Equal(o.received, large) {
		t.Fatalf("%d bytes: %v", len(o.received), err)
	}
	o.puts, o.received = []http.HandlerFunc{cutAfter(1000)}, nil
	r.Body = once()
	if _, err := c.Upload(t.Context(), r); err == nil || client.Retryable(err) || o.received != nil {
		t.Errorf("a body was sent twice: %v", err)
	}
	o.puts = nil
	r.Body = strings.NewReader("short")
	if _, err := c.Upload(t.Context(), r); !errors.Is(err, io.ErrUnexpectedEOF) || client.Retryable(err) {
		t.Errorf("a short body: %v", err)
	}
	r.Body, r.SHA256 = once(), ""
	if _, err := c.Upload(t.Context(), r); !client.IsCode(err, client.InvalidRequest) {
		t.Errorf("nothing declared: %v", err)
	}
}

// TestUploadWaitsForConsent holds that the bytes stay at home when the server refuses before it reads.
func TestUploadWaitsForConsent(t *testing.T) {
	o := &origin{puts: []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "100-continue" {
			t.Error("no Expect: 100-continue")
		}
		answer(403, "application/json", `{"error":{"code":"policy_denied","message":"no"}}`)(w, r)
	}}}
	c := openOrigin(t, o)
	body := &counting{Reader: bytes.NewReader(large)}
	sum := sha256.Sum256(large)
	_, err := c.Upload(t.Context(), client.UploadRequest{
		Namespace: "ns", MimeType: "a/b", Body: body, Size: int64(len(large)), SHA256: hex.EncodeToString(sum[:]),
	})
	if !client.IsCode(err, client.PolicyDenied) || body.n != 0 {
		t.Errorf("%d bytes were read: %v", body.n, err)
	}
}

// counting counts what was read.
type counting struct {
	io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func TestUploadStalls(t *testing.T) {
	release := make(chan struct{})
	o := &origin{puts: []http.HandlerFunc{func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		<-release
	}}}
	s := httptest.NewServer(o)
	defer s.Close()
	defer close(release)
	o.t = t
	c, err := client.New(t.Context(), o, client.Options{
		Transfer: s.URL, Token: "secret", StallTimeout: 2 * time.Second, Retry: client.Retry{First: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	// More than fits into the buffers of a connection, so that it does stand still.
	body := bytes.NewReader(make([]byte, 16<<20))
	if _, err := c.Upload(t.Context(), client.UploadRequest{Namespace: "ns", MimeType: "a/b", Body: body}); err != nil {
		t.Error(err)
	}
	if len(o.puts) != 0 || len(o.received) != 16<<20 {
		t.Errorf("%d bytes received", len(o.received))
	}
}

func TestDownload(t *testing.T) {
	part := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(large)))
			_, _ = w.Write(large[:n])
		}
	}
	unsized := func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		_, _ = w.Write(large)
	}
	short := func(w http.ResponseWriter, _ *http.Request) { // it ends properly, and too early
		w.(http.Flusher).Flush()
		_, _ = w.Write(large[:1000])
	}
	for name, tt := range map[string]struct {
		content []byte
		gets    []http.HandlerFunc
	}{
		"short":    {large, []http.HandlerFunc{short}},
		"plain":    {content: large},
		"empty":    {content: []byte{}},
		"one byte": {content: []byte("x")},
		"broken":   {large, []http.HandlerFunc{part(100001), part(0), part(70000), part(400000)}},
		"chunked":  {large, []http.HandlerFunc{unsized}},
		"busy":     {large, []http.HandlerFunc{answer(500, "application/json", `{"error":{"code":"busy","message":"x"}}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &origin{gets: tt.gets}
			o.hold(tt.content)
			c := openOrigin(t, o)
			var got bytes.Buffer
			h := &heard{t: t, total: int64(len(tt.content))}
			a, err := c.Download(t.Context(), "ns", "art", &got, h.progress)
			if err != nil {
				t.Fatal(err)
			}
			h.ended()
			if !bytes.Equal(got.Bytes(), tt.content) || a.ID != "art" {
				t.Errorf("%d bytes of %d", got.Len(), len(tt.content))
			}
		})
	}
}

func TestDownloadRefused(t *testing.T) {
	flipped := append([]byte{}, large...)
	flipped[99] ^= 1
	sized := func(body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }
	}
	brokenThenFlipped := []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(large)))
		_, _ = w.Write(flipped[:1000]) // the wrong bytes come before the connection breaks, the right ones after
	}}
	for name, tt := range map[string]struct {
		gets []http.HandlerFunc
		code client.Code
	}{
		"flipped":           {[]http.HandlerFunc{sized(flipped)}, client.IntegrityError},
		"flipped, broken":   {brokenThenFlipped, client.IntegrityError},
		"longer":            {[]http.HandlerFunc{sized(append(large[:len(large):len(large)], 'x'))}, client.IntegrityError},
		"shorter":           {[]http.HandlerFunc{sized(large[1:])}, client.IntegrityError},
		"wrong on the disk": {[]http.HandlerFunc{answer(400, "application/json", `{"error":{"code":"integrity_error","message":"x"}}`)}, client.IntegrityError},
		"denied":            {[]http.HandlerFunc{answer(403, "", "")}, client.PolicyDenied},
		"absent":            {[]http.HandlerFunc{answer(404, "", "")}, client.NotFound},
		"redirect":          {[]http.HandlerFunc{answer(302, "", "")}, ""},
		"broken forever":    {[]http.HandlerFunc{cutAfter(0), cutAfter(0), cutAfter(0), cutAfter(0), cutAfter(0)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &origin{gets: tt.gets}
			o.hold(large)
			c := openOrigin(t, o)
			path := filepath.Join(t.TempDir(), "evidence.png")
			if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
				t.Fatal(err)
			}
			finished := false
			_, err := c.DownloadFile(t.Context(), "ns", "art", path, func(done, total int64) { finished = finished || done == total })
			if err == nil || finished || tt.code != "" && !client.IsCode(err, tt.code) {
				t.Errorf("finished %v: %v", finished, err)
			}
			onlyFile(t, path, "before")
		})
	}
}

// TestDownloadEndless holds that a body without an end does not fill the disk.
func TestDownloadEndless(t *testing.T) {
	o := &origin{gets: []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(large); err != nil {
				return
			}
		}
	}}}
	o.hold(large)
	var got bytes.Buffer
	if _, err := openOrigin(t, o).Download(t.Context(), "ns", "art", &got, nil); !client.IsCode(err, client.IntegrityError) || got.Len() > len(large) {
		t.Errorf("%d bytes: %v", got.Len(), err)
	}
}

// onlyFile checks that a file has this content and that its folder holds nothing else.
func onlyFile(t *testing.T, path, content string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v)", entries, err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != content {
		t.Errorf("the file holds %.20q (%v)", got, err)
	}
}

func TestDownloadFile(t *testing.T) {
	o := &origin{}
	o.hold(large)
	c := openOrigin(t, o)
	path := filepath.Join(t.TempDir(), "evidence.png")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DownloadFile(t.Context(), "ns", "art", path, nil); err != nil {
		t.Fatal(err)
	}
	onlyFile(t, path, string(large))
}

// TestPathsAreNotBuilt holds that what is no identifier never becomes part of an address.
func TestPathsAreNotBuilt(t *testing.T) {
	o := &origin{gets: []http.HandlerFunc{func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked %s", r.URL) }}}
	o.hold(large)
	c := openOrigin(t, o)
	for _, id := range []string{"", "..", "../x", "a/b", "a?b", "a%2fb", ".a", strings.Repeat("a", 129), "a\n"} {
		if _, err := c.Download(t.Context(), "ns", id, io.Discard, nil); !client.IsCode(err, client.InvalidRequest) {
			t.Errorf("%q: %v", id, err)
		}
	}
	none, _ := noted(t, &script{}, client.Options{})
	if _, err := none.Download(t.Context(), "ns", "a", io.Discard, nil); !client.IsCode(err, client.UnsupportedFormat) {
		t.Errorf("without an origin: %v", err)
	}
}
