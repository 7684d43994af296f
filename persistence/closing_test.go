package persistence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// closing is a server with a clock that tests move.
type closing struct {
	*inproc.Server
	clock *clock.Manual
	n     int
}

// newClosing makes one with a small quota.
func newClosing(t *testing.T) *closing {
	t.Helper()
	c := clock.NewManual(time.Date(2042, 1, 1, 0, 0, 0, 0, time.UTC))
	limits := persistence.DefaultLimits()
	limits.MaxNamespaceBytes = 1 << 20
	return &closing{Server: inproc.New(t, inproc.Config{
		Store: memory.New(c), Blobs: blob.NewMemory(), Clock: c, Limits: limits, Grants: scenario.DefaultGrants(),
	}), clock: c}
}

// call calls a tool and gives the code of its failure, "" for a success, and its answer.
func (c *closing) call(t *testing.T, tool, args string) (string, map[string]any) {
	t.Helper()
	a, err := c.Call(t.Context(), "alice", "persistence."+tool, []byte(args))
	if err != nil || a.RPC != nil {
		t.Fatalf("%s: %v %s", tool, err, a)
	}
	m := a.Structured.(map[string]any)
	if !a.IsError {
		return "", m
	}
	return m["error"].(map[string]any)["code"].(string), m
}

// begin opens an upload of size bytes, all of them zero.
func (c *closing) begin(t *testing.T, size int) (code, upload string) {
	t.Helper()
	c.n++
	code, m := c.call(t, "beginArtifact", fmt.Sprintf(`{"namespace":"ns","mimeType":"a/b","size":%d,"hash":{"algorithm":"sha256","value":"%064x"},"provenance":null,"idempotencyKey":"b%d"}`, size, 1, c.n))
	if code == "" {
		upload = m["uploadId"].(string)
	}
	return code, upload
}

// receive sends a body through the gate.
func (c *closing) receive(ctx context.Context, upload string, body io.Reader) fault.Code {
	reply := c.Gate.Run(ctx, gate.Request{
		Who: inproc.Principal("alice"), Endpoint: catalog.All, Surface: fault.Transfer, Name: "persistence.receive",
		In:   canonjson.Object(canonjson.M("namespace", canonjson.String("ns")), canonjson.M("uploadId", canonjson.String(upload))),
		Body: &catalog.Body{Reader: body, Length: -1},
	})
	if reply.Fault == nil {
		return ""
	}
	return reply.Fault.Code
}

// TestExpiryIsFinal holds that an upload that was once seen to be over stays so when the clock is set back, and that the
// room it had is not had twice.
func TestExpiryIsFinal(t *testing.T) {
	c := newClosing(t)
	_, seen := c.begin(t, 100)
	_, room := c.begin(t, 1<<20-100)
	if code, _ := c.begin(t, 1); code != "quota_exceeded" {
		t.Fatalf("there is room beside both: %q", code)
	}
	c.clock.Advance(25 * time.Hour)
	if code, _ := c.call(t, "uploadAccess", `{"namespace":"ns","uploadId":"`+seen+`"}`); code != "not_found" {
		t.Errorf("an upload that is over: %q", code)
	}
	if code, _ := c.begin(t, 1<<20); code != "" {
		t.Errorf("there is no room after the expiry: %q", code)
	}
	c.clock.Advance(-25 * time.Hour)
	for _, upload := range []string{seen, room} {
		if code, _ := c.call(t, "uploadAccess", `{"namespace":"ns","uploadId":"`+upload+`"}`); code != "not_found" {
			t.Errorf("it is open again after the clock was set back: %q", code)
		}
		if code := c.receive(t.Context(), upload, strings.NewReader("")); code != fault.NotFound {
			t.Errorf("it takes bytes after the clock was set back: %q", code)
		}
	}
}

// meddled is a body in the middle of which something happens.
type meddled struct {
	io.Reader
	left   int
	meddle func()
}

// Read gives a piece, and lets it happen after some.
func (m *meddled) Read(p []byte) (int, error) {
	if m.left--; m.left == 0 {
		m.meddle()
	}
	return m.Reader.Read(p)
}

// TestClosedUploadTakesNoBytes holds that a transfer ends when its upload is aborted or over, and that nothing is kept.
func TestClosedUploadTakesNoBytes(t *testing.T) {
	for name, end := range map[string]func(*closing, string){
		"abort": func(c *closing, upload string) {
			c.call(t, "abortArtifact", `{"namespace":"ns","uploadId":"`+upload+`","idempotencyKey":"gone"}`)
		},
		"expiry": func(c *closing, _ string) { c.clock.Advance(25 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClosing(t)
			_, upload := c.begin(t, 1<<20)
			content := bytes.NewReader(make([]byte, 1<<20))
			if code := c.receive(t.Context(), upload, &meddled{content, 3, func() { end(c, upload) }}); code != fault.NotFound {
				t.Errorf("it ends with %q", code)
			}
			if content.Len() < 1<<19 {
				t.Errorf("it went on reading: %d bytes are left", content.Len())
			}
			if err := c.Blobs.Each(t.Context(), func(persistence.BlobInfo) error { return errors.New("bytes are kept") }); err != nil {
				t.Error(err)
			}
		})
	}
}

// lying is a store whose index of needed bytes names nothing.
type lying struct{ *memory.Store }

// View lies.
func (l lying) View(ctx context.Context, fn func(persistence.Reader) error) error {
	return l.Store.View(ctx, func(r persistence.Reader) error { return fn(lyingReader{r}) })
}

// lyingReader lies about Held.
type lyingReader struct{ persistence.Reader }

// Held knows of nothing.
func (lyingReader) Held(persistence.Digest) (bool, error) { return false, nil }

// TestSweepNeedsProof holds that orphans are removed only when the rows agree with the index, and when they are old
// enough.
func TestSweepNeedsProof(t *testing.T) {
	store, blobs := memory.New(nil), blob.NewMemory()
	keep := func(text string) persistence.Digest {
		w, err := blobs.Create(t.Context())
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err == nil {
			err = w.Keep(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return w.Sum()
	}
	digest := keep("needed")
	keep("orphan")
	_, err := store.Update(t.Context(), persistence.Commit{Namespace: "ns"}, func(tx persistence.Tx) (persistence.Outcome, error) {
		return persistence.Outcome{}, tx.PutArtifact(&persistence.Artifact{Namespace: "ns", ID: "a", MimeType: "a/b", Size: 6, Hash: digest, Provenance: []byte("null")})
	})
	if err != nil {
		t.Fatal(err)
	}
	sweep := func(store inproc.Store, grace time.Duration) (persistence.Swept, error) {
		return persistence.New(persistence.Config{Store: store, Blobs: blobs.Reopen(), OrphanGrace: grace}).SweepOrphans(t.Context())
	}
	if done, err := sweep(lying{store}, 0); err == nil || done.Removed != 0 {
		t.Errorf("with a damaged index: %+v %v", done, err)
	}
	if done, err := sweep(store, time.Hour); err != nil || done.Removed != 0 {
		t.Errorf("young orphans: %+v %v", done, err)
	}
	if done, err := sweep(store, 0); err != nil || done.Removed != 1 {
		t.Errorf("one orphan: %+v %v", done, err)
	}
}
