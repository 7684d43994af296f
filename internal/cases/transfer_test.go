package cases_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/internal/transport/transfer"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// files is a server in this process with a transfer origin of its own.
type files struct {
	*inproc.Server
	origin string
	n      int
}

// newFiles makes one whose senders must keep the given pace.
func newFiles(t *testing.T, blobs persistence.Blobs, pace time.Duration) *files {
	t.Helper()
	s := inproc.New(t, inproc.Config{Store: memory.New(nil), Blobs: blobs, Grants: scenario.DefaultGrants()})
	log := slog.New(slog.DiscardHandler)
	h := transfer.New(transfer.Config{Gate: s.Gate, Catalog: s.Catalog, Log: log, Pace: pace})
	server := httptest.NewServer(web.Protect(web.Options{Loopback: true, Log: log}, h))
	t.Cleanup(server.Close)
	return &files{Server: s, origin: server.URL}
}

// call calls a tool as alice and gives the structured content of a success.
func (f *files) call(t *testing.T, tool, args string) map[string]any {
	t.Helper()
	a, err := f.Call(t.Context(), "alice", "persistence."+tool, []byte(args))
	if err != nil || a.IsError || a.RPC != nil {
		t.Fatalf("%s %s: %v %s", tool, args, err, a)
	}
	return a.Structured.(map[string]any)
}

// begin opens an upload for content.
func (f *files) begin(t *testing.T, mime string, content []byte) (upload, artifact string) {
	t.Helper()
	f.n++
	sum := sha256.Sum256(content)
	u := f.call(t, "beginArtifact", fmt.Sprintf(`{"namespace":"ns","mimeType":%q,"size":%d,"hash":{"algorithm":"sha256","value":%q},"provenance":null,"idempotencyKey":"b%d"}`,
		mime, len(content), hex.EncodeToString(sum[:]), f.n))
	return u["uploadId"].(string), u["artifactId"].(string)
}

// put sends content and gives the status and body of the answer.
func (f *files) put(t *testing.T, upload string, content []byte) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.origin+"/uploads/ns/"+upload, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return f.do(t, req)
}

// do sends a request as alice.
func (f *files) do(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	req.Header.Set("Authorization", "Bearer alice")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// publish stores content as an artifact.
func (f *files) publish(t *testing.T, mime string, content []byte) string {
	t.Helper()
	upload, artifact := f.begin(t, mime, content)
	if status, body := f.put(t, upload, content); status != http.StatusNoContent {
		t.Fatalf("PUT: %d %s", status, body)
	}
	f.call(t, "commitArtifact", fmt.Sprintf(`{"namespace":"ns","uploadId":%q,"idempotencyKey":"c%d"}`, upload, f.n))
	return artifact
}

// get fetches an artifact.
func (f *files) get(t *testing.T, artifact string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.origin+"/artifacts/ns/"+artifact, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer alice")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, body
}

// TestUploadAfterLostConnection (P10): after a connection was lost the retry found the upload locked by the dead
// transfer. While the first one counts as running a retry is busy; once it is too slow it is cut, and a retry succeeds.
// The pace is two seconds here, and thirty in the program.
func TestUploadAfterLostConnection(t *testing.T) {
	folder, err := blob.OpenFolder(t.TempDir(), blob.FolderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	f := newFiles(t, folder, 2*time.Second)
	content := bytes.Repeat([]byte("0123456789abcdef"), 50<<16)
	upload, artifact := f.begin(t, "application/octet-stream", content)
	silent, err := net.Dial("tcp", strings.TrimPrefix(f.origin, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // at the end: until then the other side hears nothing, not even an end
	fmt.Fprintf(silent, "PUT /uploads/ns/%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\nContent-Length: %d\r\n\r\n", upload, len(content))
	if _, err := silent.Write(content[:10<<20]); err != nil {
		t.Fatal(err)
	}
	busy := 0
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		status, body := f.put(t, upload, content)
		if status == http.StatusNoContent {
			break
		}
		if status != http.StatusInternalServerError || !strings.Contains(body, `"busy"`) {
			t.Fatalf("a retry got %d %s", status, body)
		}
		if busy++; time.Since(began) > time.Minute {
			t.Fatal("the upload is still locked after a minute")
		}
	}
	if busy == 0 {
		t.Error("no retry met the first transfer")
	}
	f.call(t, "commitArtifact", fmt.Sprintf(`{"namespace":"ns","uploadId":%q,"idempotencyKey":"c"}`, upload))
	if _, got := f.get(t, artifact); !bytes.Equal(got, content) {
		t.Error("the artifact is not what was sent")
	}
	kept := 0
	if err := folder.Each(t.Context(), func(persistence.BlobInfo) error { kept++; return nil }); err != nil || kept != 1 {
		t.Errorf("%d blobs, %v", kept, err)
	}
}

// unlisted is a blob store whose listing or metadata can fail.
type unlisted struct {
	persistence.Blobs
	fail error // after half of the listing
}

// Each fails half way.
func (u *unlisted) Each(ctx context.Context, fn func(persistence.BlobInfo) error) error {
	n := 0
	err := u.Blobs.Each(ctx, func(b persistence.BlobInfo) error {
		if n++; u.fail != nil && n > 250 {
			return u.fail
		}
		return fn(b)
	})
	return err
}

// TestSweepWithBrokenListing (P12): an error of the listing was skipped, so blobs of the unlisted part looked unused and
// were deleted. The sweep stops and removes nothing, orphans included; when the place is well again it removes exactly
// the orphans.
func TestSweepWithBrokenListing(t *testing.T) {
	store := memory.New(nil)
	before := blob.NewMemory()
	f := &files{Server: inproc.New(t, inproc.Config{Store: store, Blobs: before, Grants: scenario.DefaultGrants()})}
	f.origin = f.Origin()
	var artifacts []string
	for i := range 500 {
		artifacts = append(artifacts, f.publish(t, "text/plain", fmt.Appendf(nil, "artifact %d", i)))
	}
	for i := range 20 { // what a process that was killed has left
		w, err := before.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(w, "orphan %d", i)
		if err := w.Keep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, broken := range []error{errors.New("404"), errors.New("503"), io.ErrUnexpectedEOF} {
		u := &unlisted{Blobs: before.Reopen(), fail: broken}
		f.Server = inproc.New(t, inproc.Config{Store: store, Blobs: u, Grants: scenario.DefaultGrants()})
		f.origin = f.Origin()
		if done, err := f.Service.SweepOrphans(t.Context()); !errors.Is(err, broken) || done.Removed != 0 {
			t.Errorf("a sweep over a broken listing: %+v, %v", done, err)
		}
		u.fail = nil
		if done, err := f.Service.SweepOrphans(t.Context()); err != nil || done.Removed != 20 {
			t.Errorf("a sweep over a sound listing: %+v, %v; 20 are orphans", done, err)
		}
		for i, id := range artifacts {
			if res, got := f.get(t, id); res.StatusCode != http.StatusOK || string(got) != fmt.Sprintf("artifact %d", i) {
				t.Fatalf("artifact %d: %d %q", i, res.StatusCode, got)
			}
		}
	}
}

// TestScriptsAreAttachments (P14): stored pictures and pages with script in them were shown inline. They come back as
// attachments, with their own type, and with a policy that is valid and allows nothing.
func TestScriptsAreAttachments(t *testing.T) {
	f := newFiles(t, blob.NewMemory(), 0)
	for _, mime := range []string{"image/svg+xml", "text/html", "application/xhtml+xml", `text/html; charset="utf-8"`} {
		content := []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>document.title="ran"</script></svg>`)
		res, got := f.get(t, f.publish(t, mime, content))
		want := map[string]string{
			"Content-Type": mime, "Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		}
		for name, value := range want {
			if res.Header.Get(name) != value {
				t.Errorf("%s: %s is %q, want %q", mime, name, res.Header.Get(name), value)
			}
		}
		if p := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'") {
			t.Errorf("%s: the policy is %q", mime, p)
		}
		if !bytes.Equal(got, content) {
			t.Errorf("%s: other bytes", mime)
		}
	}
}
