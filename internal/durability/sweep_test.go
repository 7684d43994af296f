package durability_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// sweepRun counts what removals beside commits met.
type sweepRun struct {
	server asAlice
	shape  sweepShape

	mu                        sync.Mutex
	published, removed, swept int
	violations                []string
}

// String is the counts in words.
func (r *sweepRun) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d artifacts published beside %d aborts and purges of equal bytes and %d sweeps, %d violations", r.published, r.removed, r.swept, len(r.violations))
}

// found notes a violation.
func (r *sweepRun) found(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// count adds to a counter.
func (r *sweepRun) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// clean tells whether nothing was found.
func (r *sweepRun) clean() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.violations) == 0
}

// tool calls a tool with a fresh key and gives its answer; false when it was refused, which is a violation here.
func (r *sweepRun) tool(ctx context.Context, name, args string) (map[string]any, bool) {
	a, err := r.server.Call(ctx, "persistence."+name, fmt.Appendf(nil, `{"namespace":"load","idempotencyKey":"%x",%s}`, rand.Uint64(), args))
	m, _ := a.Structured.(map[string]any)
	if err != nil || a.IsError || m == nil {
		r.found("%s was answered with %v %s", name, err, a)
		return nil, false
	}
	return m, true
}

// sent is an upload whose bytes were taken.
type sent struct {
	artifact, upload string
	digest           persistence.Digest
}

// send opens an upload, sends its bytes, and looks whether they are there.
func (r *sweepRun) send(ctx context.Context, text string) (sent, bool) {
	s := sent{digest: sha256.Sum256([]byte(text))}
	m, ok := r.tool(ctx, "beginArtifact", fmt.Sprintf(`"mimeType":"a/b","size":%d,"hash":{"algorithm":"sha256","value":%q},"provenance":{}`, len(text), s.digest))
	if !ok {
		return s, false
	}
	s.artifact, s.upload = fmt.Sprint(m["artifactId"]), fmt.Sprint(m["uploadId"])
	res, err := r.server.HTTP(ctx, scenario.HTTPRequest{Method: http.MethodPut, Path: "/uploads/load/" + s.upload, Body: []byte(text)})
	if err != nil || res.Status != http.StatusNoContent {
		r.found("PUT: %v %d %s", err, res.Status, res.Body)
		return s, false
	}
	b, err := r.server.Blobs.Open(ctx, s.digest)
	if err != nil {
		r.found("bytes were taken, and are not there: %v", err)
		return s, false
	}
	return s, b.Close() == nil
}

// publish makes an artifact, reads it back, and purges it unless it is to stay.
func (r *sweepRun) publish(ctx context.Context, text string, stays bool) {
	s, ok := r.send(ctx, text)
	if !ok {
		return
	}
	if _, ok := r.tool(ctx, "commitArtifact", fmt.Sprintf(`"uploadId":%q`, s.upload)); !ok {
		return
	}
	r.count(&r.published)
	res, err := r.server.HTTP(ctx, scenario.HTTPRequest{Method: http.MethodGet, Path: "/artifacts/load/" + s.artifact})
	if err != nil || res.Status != http.StatusOK || res.Broken || res.SHA256 != s.digest.String() {
		r.found("a published artifact was answered with %v %d %s", err, res.Status, res.Body)
	}
	if stays {
		return
	}
	if _, ok := r.tool(ctx, "purge", fmt.Sprintf(`"target":{"type":"artifact","id":%q}`, s.artifact)); ok {
		r.count(&r.removed)
	}
}

// abort gives an upload up.
func (r *sweepRun) abort(ctx context.Context, s sent) {
	if _, ok := r.tool(ctx, "abortArtifact", fmt.Sprintf(`"uploadId":%q`, s.upload)); ok {
		r.count(&r.removed)
	}
}

// sweepShape says what happens in a round.
type sweepShape struct {
	publishers, aborters int
	// patience is how long the calls of a round may take; abandon tells that a round which takes longer is left, and is no
	// violation: locks that are broken make calls hang, which proves nothing of lost bytes.
	patience time.Duration
	abandon  bool
}

// round has equal bytes published by some while others, who sent them before, abort.
func (r *sweepRun) round(ctx context.Context, n int) {
	text := fmt.Sprint("round ", n, strings.Repeat(".", n%5*1000))
	var before []sent
	for range r.shape.aborters {
		s, ok := r.send(ctx, text)
		if !ok {
			return
		}
		before = append(before, s)
	}
	var all sync.WaitGroup
	for i := range r.shape.publishers {
		all.Go(func() { r.publish(ctx, text, n%4 == 0 && i == 0) })
	}
	for _, s := range before {
		all.Go(func() {
			time.Sleep(time.Duration(rand.IntN(8000)) * time.Microsecond)
			r.abort(ctx, s)
		})
	}
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	r.sweepUntil(ctx, over)
}

// sweepUntil sweeps again and again until the calls of a round are over, or a violation was found: a server whose locks
// are broken may hang when it goes on.
func (r *sweepRun) sweepUntil(ctx context.Context, over <-chan struct{}) {
	guard := time.After(r.shape.patience)
	for r.clean() {
		select {
		case <-over:
			return
		case <-guard:
			if r.shape.abandon {
				return
			}
			r.found("calls did not come to an end")
		case <-time.After(time.Millisecond):
		}
		_, err := r.server.Service.Sweep(ctx)
		if err == nil {
			_, err = r.server.Service.SweepOrphans(ctx)
		}
		if err != nil {
			r.found("sweep: %v", err)
		}
		r.count(&r.swept)
	}
}

// plainTB hides the Cleanup of a test: a server whose calls hang is left behind, and not waited for.
type plainTB struct{ inproc.TB }

// sweepBesideCommits runs rounds until a violation is found, and has the folder checked in the end.
func sweepBesideCommits(t *testing.T, rounds int, shape sweepShape) *sweepRun {
	t.Helper()
	dir, err := os.MkdirTemp("", "tabellion-sweep-") // not the test's own: a server that hangs may still write to it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, blobs, err := disks{}.open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &sweepRun{server: serverOn(plainTB{t}, store, blobs), shape: shape}
	for n := 0; n < rounds && r.clean(); n++ {
		r.round(t.Context(), n)
	}
	if !r.clean() {
		return r
	}
	for _, c := range []func() error{blobs.Close, store.Close} {
		if err := c(); err != nil {
			t.Error(err)
		}
	}
	check, err := maintain.Check(t.Context(), dir, maintain.CheckOptions{ReadData: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range check.Findings {
		if f.Damage {
			r.found("check: %s", f)
		}
	}
	return r
}

// TestSweepBesideCommits holds that no removal takes the bytes that a call stores or publishes.
func TestSweepBesideCommits(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	r := sweepBesideCommits(t, 60, sweepShape{publishers: 2, aborters: 2, patience: time.Minute})
	fmt.Printf("sweeps: %s\n", r)
	if !r.clean() {
		t.Errorf("violations:\n%s", strings.Join(r.violations[:min(5, len(r.violations))], "\n"))
	}
}
