package maintain_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// event is one acknowledged write of the load. Those on one document, or on one upload, come one after the other: each
// has a rank among them, from 1.
type event struct {
	begun, acked time.Time // of this process, monotonic
	document     string
	upload       string // instead of a document
	rank         int64
	artifact     string // of a commit
	content      string // of a revision, or of a commit
}

// writers run until stop, and keep what was acknowledged.
type writers struct {
	w       *world
	stop    chan struct{}
	permits chan struct{} // one for each round: keeps the load in step with what it is a load for
	wait    sync.WaitGroup

	mu     sync.Mutex
	events []event
	errs   []error
}

// start begins n writers, each on documents and artifacts of its own.
func start(w *world, n int) *writers {
	l := &writers{w: w, stop: make(chan struct{}), permits: make(chan struct{}, 100_000)}
	for i := range n {
		l.wait.Go(func() { l.write(i) })
	}
	return l
}

// allow lets the writers do n more rounds.
func (l *writers) allow(n int) {
	for range n {
		l.permits <- struct{}{}
	}
}

// done tells how many writes were acknowledged, or 100 when something went wrong.
func (l *writers) done() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) > 0 {
		return 100
	}
	return len(l.events)
}

// end stops the writers, and fails on what went wrong.
func (l *writers) end() {
	close(l.stop)
	l.wait.Wait()
	no(l.w.t, errors.Join(l.errs...))
}

// do runs one call and keeps what it did.
func (l *writers) do(e event, call func(e *event) error) bool {
	e.begun = time.Now()
	err := call(&e)
	e.acked = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.errs = append(l.errs, err)
		return false
	}
	l.events = append(l.events, e)
	return true
}

// write runs rounds: an upload that is committed and cited, one that is aborted, a revision, a tombstone, purges.
func (l *writers) write(i int) {
	for round := 0; ; round++ {
		select {
		case <-l.stop:
			return
		case <-l.permits:
		}
		if !l.round(fmt.Sprintf("w%d-%d", i, round), []byte(fmt.Sprintf("bytes of %d in %d %s", i, round, strings.Repeat("x", rand.IntN(20_000))))) {
			return
		}
	}
}

// The ranks of what happens to an upload: see rankOf.
const (
	rankCommitted = 1
	rankPurged    = 2
	rankAborted   = 3
)

// round is one round on a document: an artifact that is cited, one that is purged, an upload that is aborted, three
// revisions, one of them purged.
func (l *writers) round(id string, body []byte) bool {
	w := l.w
	tool := func(name string, args obj) func(*event) error {
		args["idempotencyKey"], args["namespace"] = key(), "ns"
		return func(*event) error { _, err := w.call(w.ana, name, args); return err }
	}
	var cited, loose, dropped event
	sent := func(to *event, body []byte) bool {
		upload, artifact, err := w.begin("ns", body)
		if err == nil {
			err = w.send("ns", upload, body)
		}
		*to = event{upload: upload, artifact: artifact, content: string(body), rank: rankCommitted}
		return err == nil || l.do(event{}, func(*event) error { return err })
	}
	if !sent(&cited, body) || !sent(&loose, []byte("of "+id)) || !sent(&dropped, body) {
		return false
	}
	purged, aborted := event{upload: loose.upload, rank: rankPurged}, event{upload: dropped.upload, rank: rankAborted}
	return l.do(cited, tool("commitArtifact", obj{"uploadId": cited.upload})) &&
		l.do(loose, tool("commitArtifact", obj{"uploadId": loose.upload})) &&
		l.do(event{document: id, rank: 1, content: `"` + id + `"`}, tool("put", putArgs("ns", id, 0, id, artRef("ns", cited.artifact)))) &&
		l.do(event{document: id, rank: 2, content: `2`}, tool("put", putArgs("ns", id, 1, 2, docRef("ns", id, 1)))) &&
		l.do(aborted, tool("abortArtifact", obj{"uploadId": dropped.upload})) &&
		l.do(purged, tool("purge", obj{"target": obj{"type": "artifact", "id": loose.artifact}})) &&
		l.do(event{document: id, rank: 3}, tool("delete", obj{"id": id, "expectedRevision": 2})) &&
		l.do(event{document: id, rank: 4}, tool("purge", obj{"target": obj{"type": "document", "id": id, "revision": 2}}))
}

// TestBackupUnderLoad: 20 backups of a server at work, each restored elsewhere, each of one point in time.
func TestBackupUnderLoad(t *testing.T) {
	w := openWorld(t, t.TempDir(), clock.System{})
	defer w.close()
	load := start(w, 4)
	defer load.wait.Wait()
	base := t.TempDir()
	type taken struct {
		dir        string
		began, end time.Time
	}
	var backups []taken
	for i := range 20 {
		load.allow(25)
		b := taken{dir: filepath.Join(base, fmt.Sprint("backup", i)), began: time.Now()}
		r, err := maintain.BackupOpen(t.Context(), w.store, w.blobs, w.server.Service.HoldBlobs, w.dir, b.dir, maintain.BackupOptions{Version: "test"})
		b.end = time.Now()
		if err != nil {
			close(load.stop)
			t.Fatalf("backup %d: %v", i, err)
		}
		if i > 5 && (r.Revisions == 0 || r.Blobs == 0) {
			t.Errorf("backup %d holds nothing: %+v", i, r.Manifest)
		}
		backups = append(backups, b)
	}
	load.end()
	beside := 0
	for _, e := range load.events {
		for _, b := range backups {
			if e.begun.After(b.began) && e.acked.Before(b.end) {
				beside++
			}
		}
	}
	if beside < 100 {
		t.Errorf("only %d writes came beside the backups", beside)
	}
	for i, b := range backups {
		dir := filepath.Join(base, fmt.Sprint("data", i))
		_, err := maintain.Restore(t.Context(), b.dir, dir, maintain.RestoreOptions{})
		no(t, err)
		if r := checked(t, dir); len(r.Findings) != 0 {
			t.Errorf("restored from backup %d:%s", i, lines(r.Findings))
		}
		compare(t, fmt.Sprint("backup ", i), dir, load.events, b.began, b.end)
	}
	t.Logf("%d acknowledged writes, %d of them beside 20 backups", len(load.events), beside)
}

// compare holds a restored folder against what was acknowledged: everything from before the backup is there, nothing
// that began after it, and whatever is there has everything with it that was acknowledged before it began. So there is
// one point in time.
func compare(t *testing.T, what, dir string, events []event, began, ended time.Time) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	no(t, err)
	defer s.Close()
	var missing []event
	var newest time.Time // begin of the youngest event that is there
	no(t, s.View(t.Context(), func(r persistence.Reader) error {
		for _, e := range events {
			there, err := effect(r, e)
			switch {
			case err != nil:
				return err
			case there && e.begun.After(ended):
				t.Errorf("%s: %+v began after the backup ended, and is in it", what, e)
			case there && e.begun.After(newest):
				newest = e.begun
			case !there:
				missing = append(missing, e)
			}
		}
		return nil
	}))
	for _, e := range missing {
		if e.acked.Before(began) || e.acked.Before(newest) {
			t.Errorf("%s: %+v was acknowledged before, and is not in it", what, e)
		}
	}
}

// effect tells whether an event, or a later one on the same thing, shows; what it wrote must be as it was written.
func effect(r persistence.Reader, e event) (there bool, err error) {
	if e.upload != "" {
		return uploadEffect(r, e)
	}
	head, _, err := r.Head("ns", e.document)
	if err != nil || head.Revision < min(e.rank, 3) {
		return false, err
	}
	second, there, err := r.Revision("ns", e.document, 2)
	switch {
	case err != nil || e.rank == 3:
		return err == nil, err
	case e.rank == 4:
		return !there, nil
	case e.rank == 2 && !there:
		return head.Revision == 3, nil // purged, which is after its end
	case e.rank == 2:
		return true, same(e, second)
	}
	first, there, err := r.Revision("ns", e.document, 1)
	if err == nil && there {
		err = same(e, first)
	}
	return there, err
}

// same compares a revision with what was written.
func same(e event, d *persistence.Document) error {
	if string(d.Payload) != e.content {
		return fmt.Errorf("%s@%d is %s", e.document, d.Revision, d.Payload)
	}
	return nil
}

// uploadEffect is effect for what happens to an upload.
func uploadEffect(r persistence.Reader, e event) (there bool, err error) {
	u, ok, err := r.Upload("ns", e.upload)
	if err != nil || !ok {
		return false, err
	}
	switch e.rank {
	case rankPurged:
		return u.State == persistence.UploadPurged, nil
	case rankAborted:
		return u.State == persistence.UploadAborted, nil
	}
	a, ok, err := r.Artifact("ns", e.artifact)
	if err == nil && ok && a.Hash != sha256.Sum256([]byte(e.content)) {
		err = fmt.Errorf("artifact %s has another digest", e.artifact)
	}
	return u.State == persistence.UploadCommitted && ok || u.State == persistence.UploadPurged, err
}

// backedUp is a healthy folder with a backup of it.
func backedUp(t *testing.T) (h healthy, backup string) {
	t.Helper()
	h = twoLives(t)
	backup = filepath.Join(t.TempDir(), "backup")
	_, err := maintain.Backup(t.Context(), h.dir, backup, maintain.BackupOptions{Version: "test"})
	no(t, err)
	return h, backup
}

// TestBackupRoundTrip: modes, what is in it and what is not, and that the restored folder is served on.
func TestBackupRoundTrip(t *testing.T) {
	h, backup := backedUp(t)
	no(t, filepath.WalkDir(backup, func(name string, e fs.DirEntry, err error) error {
		no(t, err)
		info, err := e.Info()
		no(t, err)
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", name, info.Mode())
		}
		if strings.HasPrefix(e.Name(), "audit-reads") || strings.HasSuffix(e.Name(), ".partial") || strings.Contains(e.Name(), "-wal") {
			t.Errorf("%s is in the backup", name)
		}
		return nil
	}))
	dir := filepath.Join(t.TempDir(), "data")
	r, err := maintain.Restore(t.Context(), backup, dir, maintain.RestoreOptions{})
	no(t, err)
	if r.AuditKey == "" || r.Check.AuditRows == 0 || r.Artifacts != 4 || r.Program != "test" {
		t.Errorf("report: %+v, %+v", r.Manifest, r.Check)
	}
	if len(checked(t, dir).Findings) != 0 {
		t.Error("the restored folder has findings")
	}
	w := openWorld(t, dir, clock.NewManual(day.AddDate(0, 0, 12))) // the chain of audit rows goes on, under the same key
	w.put(w.ana, "ns", "plan", 3, "after the restore")
	w.close()
	if now := checked(t, dir); len(now.Findings) != 0 || now.AuditRows <= r.Check.AuditRows {
		t.Errorf("served on: %d audit rows%s", now.AuditRows, lines(now.Findings))
	}
	if f := fingerprint(t, h.dir); !strings.Contains(f, "audit-reads") {
		t.Error("the folder has no file of reads, so that none is in the backup shows nothing")
	}
}

// TestNotEmpty: what is there is told of, refused, and with Force moved aside.
func TestNotEmpty(t *testing.T) {
	h, backup := backedUp(t)
	_, err := maintain.Backup(t.Context(), h.dir, backup, maintain.BackupOptions{})
	wantIs(t, err, maintain.ErrNotEmpty)
	if !strings.Contains(err.Error(), "a backup of 20") {
		t.Errorf("the refusal does not say what is there: %v", err)
	}
	r, err := maintain.Backup(t.Context(), h.dir, backup, maintain.BackupOptions{Force: true})
	no(t, err)
	for _, dir := range []string{r.Aside, backup} {
		if _, err := maintain.Restore(t.Context(), dir, filepath.Join(t.TempDir(), "new"), maintain.RestoreOptions{}); err != nil {
			t.Errorf("restore from %s: %v", dir, err)
		}
	}
	_, err = maintain.Restore(t.Context(), backup, h.dir, maintain.RestoreOptions{})
	wantIs(t, err, maintain.ErrNotEmpty)
	before := fingerprint(t, h.dir)
	restored, err := maintain.Restore(t.Context(), backup, h.dir, maintain.RestoreOptions{Force: true})
	no(t, err)
	if fingerprint(t, restored.Aside) != before {
		t.Error("what was in the folder is not aside")
	}
	for _, to := range []string{h.dir, filepath.Join(h.dir, "backup"), filepath.Dir(h.dir)} {
		if _, err := maintain.Backup(t.Context(), h.dir, to, maintain.BackupOptions{Force: true}); err == nil {
			t.Errorf("a backup of %s into %s was made", h.dir, to)
		}
	}
}

// TestServerHasIt: a folder that a server has is neither backed up offline nor restored into.
func TestServerHasIt(t *testing.T) {
	_, backup := backedUp(t)
	w := openWorld(t, t.TempDir(), clock.NewManual(day))
	defer w.close()
	_, err := maintain.Backup(t.Context(), w.dir, filepath.Join(t.TempDir(), "b"), maintain.BackupOptions{})
	wantIs(t, err, sqlite.ErrLocked)
	_, err = maintain.Restore(t.Context(), backup, w.dir, maintain.RestoreOptions{Force: true})
	wantIs(t, err, sqlite.ErrLocked)
}

// stages runs do with a progress that ends its context at the nth call, for each n until one run is not ended; each calls
// back with what was made of it.
func stages(t *testing.T, do func(ctx context.Context, p maintain.Progress) error, broken func(stage string)) {
	t.Helper()
	seen := map[string]bool{}
	for n := 1; ; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		calls, at := 0, ""
		err := do(ctx, func(stage string, _, _ int64) {
			if calls++; calls == n {
				at = stage
				cancel()
			}
		})
		cancel()
		if at == "" {
			no(t, err)
			if len(seen) < 4 {
				t.Errorf("broken off in %d stages only: %v", len(seen), seen)
			}
			return
		}
		seen[at] = true
		if err != nil {
			wantIs(t, err, context.Canceled)
			broken(at)
		} else {
			t.Logf("a cancel at call %d, in %s, came too late", n, at)
		}
	}
}

// TestBackupBrokenOff: wherever a backup ends, what is left is no backup and says so.
func TestBackupBrokenOff(t *testing.T) {
	h := twoLives(t)
	to := filepath.Join(t.TempDir(), "backup")
	stages(t, func(ctx context.Context, p maintain.Progress) error {
		no(t, os.RemoveAll(to))
		_, err := maintain.Backup(ctx, h.dir, to, maintain.BackupOptions{Progress: p})
		return err
	}, func(stage string) {
		_, err := maintain.ReadManifest(to)
		wantIs(t, err, fs.ErrNotExist)
		_, err = maintain.Restore(t.Context(), to, filepath.Join(t.TempDir(), "data"), maintain.RestoreOptions{})
		wantIs(t, err, fs.ErrNotExist)
		_, err = maintain.Backup(t.Context(), h.dir, to, maintain.BackupOptions{})
		wantIs(t, err, maintain.ErrNotEmpty)
		if !strings.Contains(err.Error(), "not finished") {
			t.Errorf("after a break in %s: %v", stage, err)
		}
	})
}

// TestRestoreBrokenOff: wherever a restore ends, no server takes the folder for a store, and a second restore finishes.
func TestRestoreBrokenOff(t *testing.T) {
	_, backup := backedUp(t)
	base := t.TempDir()
	dir, n := "", 0
	stages(t, func(ctx context.Context, p maintain.Progress) error {
		n++
		dir = filepath.Join(base, fmt.Sprint(n))
		_, err := maintain.Restore(ctx, backup, dir, maintain.RestoreOptions{Progress: p})
		return err
	}, func(stage string) {
		if names, err := os.ReadDir(dir); err != nil || len(names) == 0 {
			return // nothing was begun
		}
		unfinished(t, dir, stage)
		_, err := maintain.Restore(t.Context(), backup, dir, maintain.RestoreOptions{})
		if errors.Is(err, maintain.ErrNotEmpty) && stage != "copying artifacts" && stage != "copying the database" {
			return // it was whole already, and broken off while it was checked
		}
		no(t, err)
		if r := checked(t, dir); len(r.Findings) != 0 {
			t.Errorf("after a break in %s:%s", stage, lines(r.Findings))
		}
	})
}

// unfinished: as long as the database is not there, a server refuses the folder and a check says what to do.
func unfinished(t *testing.T, dir, stage string) {
	t.Helper()
	if stage != "copying artifacts" && stage != "copying the database" {
		return
	}
	if s, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); err == nil {
		t.Errorf("after a break in %s the folder can be served", stage)
		no(t, s.Close())
	}
	if r := checked(t, dir); !named(r.Findings, maintain.KindUnfinished, dir) {
		t.Errorf("after a break in %s:%s", stage, lines(r.Findings))
	}
}

// TestDamagedBackup: a damaged folder gives no backup, and a damaged backup no folder.
func TestDamagedBackup(t *testing.T) {
	h, backup := backedUp(t)
	for _, d := range damages {
		if d.leaving || d.beside || d.kind == "index-damaged" || d.kind == "database-damaged" {
			continue // a copy has other indexes; and what cannot be read is not copied, which is another error
		}
		dir, to := copyTree(t, h.dir), filepath.Join(t.TempDir(), "backup")
		d.do(t, &h, dir)
		_, err := maintain.Backup(t.Context(), dir, to, maintain.BackupOptions{})
		var damaged *maintain.DamagedError
		if !errors.As(err, &damaged) || !named(damaged.Findings, d.kind, h.place(d.where)) {
			t.Errorf("%s: the backup says %v", d.name, err)
		}
		if _, err := maintain.ReadManifest(to); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: there is a backup: %v", d.name, err)
		}
	}
	for name, spoil := range map[string]func(string){
		"database": func(dir string) { overwrite(t, filepath.Join(dir, "tabellion.db"), 5000, "x") },
		"bytes":    func(dir string) { overwrite(t, blobFile(dir, h.aloneBytes), 2, "x") },
		"missing":  func(dir string) { no(t, os.Remove(blobFile(dir, h.aloneBytes))) },
		"key":      func(dir string) { overwrite(t, filepath.Join(dir, "audit.key"), 40, "x") },
	} {
		bad, to := copyTree(t, backup), filepath.Join(t.TempDir(), "data")
		spoil(bad)
		_, err := maintain.Restore(t.Context(), bad, to, maintain.RestoreOptions{})
		var damaged *maintain.DamagedError
		if !errors.As(err, &damaged) {
			t.Errorf("%s of a backup: %v", name, err)
		}
		if s, err := sqlite.Open(t.Context(), to, sqlite.Options{}); err == nil && name != "database" {
			t.Errorf("%s of a backup: the folder can be served", name)
			no(t, s.Close())
		} else if err == nil {
			no(t, s.Close()) // nothing was begun: this made a new store
		}
	}
}

// TestCheckOpen: beside a server at work a check finds nothing that is not so, and what is damaged.
func TestCheckOpen(t *testing.T) {
	w := openWorld(t, t.TempDir(), clock.System{})
	defer w.close()
	body := []byte("will be damaged")
	artifact := w.commit("ns", body)
	load := start(w, 3)
	for n := 0; n < 15 || load.done() < 100; n++ {
		load.allow(10)
		r, err := maintain.CheckOpen(t.Context(), w.store, w.blobs, maintain.CheckOptions{ReadData: true})
		if err != nil || len(r.Findings) != 0 {
			t.Errorf("%v%s", err, lines(r.Findings))
		}
	}
	load.end()
	overwrite(t, blobFile(w.dir, body), 0, "W")
	r, err := maintain.CheckOpen(t.Context(), w.store, w.blobs, maintain.CheckOptions{ReadData: true})
	no(t, err)
	if len(r.Findings) != 1 || !named(r.Findings, maintain.KindBlobDamaged, "ns/"+artifact) || !r.Damaged() {
		t.Errorf("findings:%s", lines(r.Findings))
	}
}
