package durability_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// sweepRun counts what sweeps beside commits met.
type sweepRun struct {
	published, removed, swept atomic.Int64

	mu         sync.Mutex
	violations []string
}

// String is the counts in words.
func (r *sweepRun) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d artifacts published beside %d aborts and purges of equal bytes and %d sweeps, %d violations", r.published.Load(), r.removed.Load(), r.swept.Load(), len(r.violations))
}

// found notes a violation.
func (r *sweepRun) found(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// enough tells whether one violation was found, which is all that a control needs: a server whose locks are broken may
// hang when it goes on.
func (r *sweepRun) enough() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.violations) > 0
}

// equalBytes are the contents of all uploads here: few, so that removals and commits are of the same.
var equalBytes = [2]struct{ text, sha256 string }{
	{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
}

// uploader works through uploads of equal bytes on a server.
type uploader struct {
	server asAlice
	*sweepRun
	name string
}

// tool calls a tool and gives its structured answer; nil when it was refused, with the code.
func (u *uploader) tool(ctx context.Context, name, args string) (map[string]any, string) {
	a, err := u.server.Call(ctx, "persistence."+name, []byte(args))
	if err != nil {
		return nil, err.Error()
	}
	m, _ := a.Structured.(map[string]any)
	if a.IsError {
		inner, _ := m["error"].(map[string]any)
		return nil, fmt.Sprint(inner["code"])
	}
	return m, ""
}

// received opens an upload and sends its bytes.
func (u *uploader) received(ctx context.Context, n int) (artifact, upload string, ok bool) {
	c := equalBytes[n%len(equalBytes)]
	m, code := u.tool(ctx, "beginArtifact", fmt.Sprintf(`{"namespace":"load","mimeType":"a/b","size":%d,"hash":{"algorithm":"sha256","value":%q},"provenance":{},"idempotencyKey":"%s-b-%d"}`, len(c.text), c.sha256, u.name, n))
	if code != "" {
		u.found("begin: %s", code)
		return "", "", false
	}
	artifact, upload = fmt.Sprint(m["artifactId"]), fmt.Sprint(m["uploadId"])
	res, err := u.server.HTTP(ctx, scenario.HTTPRequest{Method: http.MethodPut, Path: "/uploads/load/" + upload, Body: []byte(c.text)})
	if err != nil || res.Status != http.StatusNoContent {
		u.found("PUT: %v %d %s", err, res.Status, res.Body)
		return "", "", false
	}
	return artifact, upload, true
}

// publish commits an upload, reads it back, and every other time purges it.
func (u *uploader) publish(ctx context.Context, n int) {
	artifact, upload, ok := u.received(ctx, n)
	if !ok {
		return
	}
	if _, code := u.tool(ctx, "commitArtifact", fmt.Sprintf(`{"namespace":"load","uploadId":%q,"idempotencyKey":"%s-c-%d"}`, upload, u.name, n)); code != "" {
		u.found("a commit of bytes that had been taken was answered with %s", code)
		return
	}
	u.published.Add(1)
	res, err := u.server.HTTP(ctx, scenario.HTTPRequest{Method: http.MethodGet, Path: "/artifacts/load/" + artifact})
	if want := equalBytes[n%len(equalBytes)].sha256; err != nil || res.Status != http.StatusOK || res.Broken || res.SHA256 != want {
		u.found("a published artifact was answered with %v %d %s", err, res.Status, res.Body)
	}
	if n%4 == 3 {
		return // it stays
	}
	if _, code := u.tool(ctx, "purge", fmt.Sprintf(`{"namespace":"load","target":{"type":"artifact","id":%q},"idempotencyKey":"%s-p-%d"}`, artifact, u.name, n)); code != "" {
		u.found("purge: %s", code)
	}
	u.removed.Add(1)
}

// abort gives an upload up whose bytes are there.
func (u *uploader) abort(ctx context.Context, n int) {
	_, upload, ok := u.received(ctx, n)
	if !ok {
		return
	}
	if _, code := u.tool(ctx, "abortArtifact", fmt.Sprintf(`{"namespace":"load","uploadId":%q,"idempotencyKey":"%s-a-%d"}`, upload, u.name, n)); code != "" {
		u.found("abort: %s", code)
	}
	u.removed.Add(1)
}

// sweepHang is how long the uploaders may take. It is a guard against a hang, not a measure.
const sweepHang = 3 * time.Minute

// sweepBesideCommits has uploads of equal bytes published, aborted and purged by several at once, while sweeps run, each
// so many times. It ends at the first violation.
func sweepBesideCommits(t *testing.T, times int) *sweepRun {
	t.Helper()
	dir := t.TempDir()
	store, blobs, err := disks{}.open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	run := &sweepRun{}
	server := serverOn(t, store, blobs)
	var workers sync.WaitGroup
	for n := range 6 {
		u := &uploader{server, run, fmt.Sprintf("u%d", n)}
		step := u.publish
		if n >= 4 {
			step = u.abort
		}
		workers.Go(func() {
			for i := 0; i < times && !run.enough(); i++ {
				step(t.Context(), i)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		workers.Wait()
		close(over)
	}()
	run.sweepUntil(t, server, over)
	if run.enough() {
		return run // the folder is left as it is: a call may hang in it
	}
	checkFolder(t, run, dir, blobs.Close, store.Close)
	return run
}

// sweepUntil sweeps again and again.
func (r *sweepRun) sweepUntil(t *testing.T, server asAlice, over <-chan struct{}) {
	guard := time.After(sweepHang)
	for {
		select {
		case <-over:
			return
		case <-guard:
			r.found("the uploads did not come to an end")
			return
		case <-time.After(time.Millisecond):
		}
		if r.enough() {
			return
		}
		for _, sweep := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := server.Service.Sweep(ctx); return err },
			func(ctx context.Context) error { _, err := server.Service.SweepOrphans(ctx); return err },
		} {
			if err := sweep(t.Context()); err != nil {
				r.found("sweep: %v", err)
			}
		}
		r.swept.Add(1)
	}
}

// checkFolder closes a data folder and has every byte in it checked.
func checkFolder(t *testing.T, run *sweepRun, dir string, closers ...func() error) {
	t.Helper()
	for _, c := range closers {
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
			run.found("check: %s", f)
		}
	}
}

// TestSweepBesideCommits holds that no removal takes the bytes that a call stores or publishes.
func TestSweepBesideCommits(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	run := sweepBesideCommits(t, 60)
	fmt.Printf("sweeps: %s\n", run)
	if len(run.violations) > 0 {
		t.Errorf("first violations:\n%s", strings.Join(run.violations[:min(5, len(run.violations))], "\n"))
	}
}
