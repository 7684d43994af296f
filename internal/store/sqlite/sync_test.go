package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/powercut"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// day is the time at which tests write.
var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// one gives a fn that creates a document with a payload of size bytes.
func one(id string, size int) func(persistence.Tx) (persistence.Outcome, error) {
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = '1'
	}
	return func(tx persistence.Tx) (persistence.Outcome, error) {
		return persistence.Outcome{ID: id, Revision: 1}, tx.PutRevision(&persistence.Document{
			Namespace: "ns", ID: id, Kind: "k", SchemaVersion: "1", Revision: 1, CreatedAt: day, UpdatedAt: day, Payload: payload,
		})
	}
}

// keyed is a commit with a key and an audit row, both named like the document.
func keyed(id string) persistence.Commit {
	return persistence.Commit{
		Namespace: "ns", Key: id, Now: day,
		Seal: func(persistence.Outcome) audit.Row { return audit.Row(`{"of":"` + id + `"}`) },
	}
}

// create makes a document by that name.
func create(t *testing.T, s persistence.Store, id string) (persistence.Outcome, error) {
	return s.Update(t.Context(), keyed(id), one(id, 8))
}

// has tells whether a document is there.
func has(t *testing.T, s persistence.Store, id string) (ok bool) {
	t.Helper()
	err := s.View(t.Context(), func(r persistence.Reader) (err error) {
		_, ok, err = r.HeadDocument("ns", id)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// count fails when the namespace does not hold n documents.
func count(t *testing.T, s persistence.Store, n int) {
	t.Helper()
	err := s.View(t.Context(), func(r persistence.Reader) error {
		docs, more, err := r.Heads("ns", persistence.HeadFilter{Limit: n + 1})
		if len(docs) != n || more {
			t.Errorf("%d documents, want %d", len(docs), n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFailedSync has one sync of the log fail: those it was for get ErrUnknown, the store writes no more, and after it
// was opened again the same key settles what happened.
func TestFailedSync(t *testing.T) {
	disk := powercut.MountForTest(t, 1)
	dir := filepath.Join(disk.Dir(), "data")
	s := openAt(t, dir, sqlite.Options{})
	if _, err := create(t, s, "before"); err != nil {
		t.Fatal(err)
	}
	head, err := s.AuditHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.FailSync(1, syscall.EIO, "tabellion.db-wal"); err != nil {
		t.Fatal(err)
	}
	if _, err := create(t, s, "unknown"); !errors.Is(err, persistence.ErrUnknown) || errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("the sync failed: got %v, want ErrUnknown", err)
	}
	if s.Healthy() == nil {
		t.Error("the store says that it is well")
	}
	for range 3 { // the disk works again, but this handle may not
		if _, err := create(t, s, "after"); !errors.Is(err, persistence.ErrUnavailable) || errors.Is(err, persistence.ErrUnknown) {
			t.Errorf("after a failed sync: got %v, want ErrUnavailable", err)
		}
		if err := s.AppendAudit(t.Context(), []audit.Row{audit.Row("{}")}); !errors.Is(err, persistence.ErrUnavailable) {
			t.Errorf("audit after a failed sync: got %v, want ErrUnavailable", err)
		}
	}
	if !has(t, s, "before") || has(t, s, "after") || has(t, s, "unknown") {
		t.Error("Views must see what was synced, and only that")
	}
	if h, err := s.AuditHead(t.Context()); err != nil || h.Position != head.Position {
		t.Errorf("the audit chain went on to %d (%v)", h.Position, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, dir, sqlite.Options{})
	settled := has(t, s, "unknown")
	out, err := create(t, s, "unknown")
	if err != nil || out.Replayed != settled || !has(t, s, "before") || has(t, s, "after") {
		t.Errorf("settled: there %v, then %+v, %v", settled, out, err)
	}
}

// TestFailedSyncOfBatch has the sync of a batch fail: everybody in it gets ErrUnknown, who comes later ErrUnavailable.
func TestFailedSyncOfBatch(t *testing.T) {
	disk := powercut.MountForTest(t, 1)
	s := openAt(t, filepath.Join(disk.Dir(), "data"), sqlite.Options{})
	if err := disk.FailSync(1, syscall.EIO, "tabellion.db-wal"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	unknown, refused := 0, 0
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			_, err := create(t, s, fmt.Sprint("d", i))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, persistence.ErrUnknown):
				unknown++
			case errors.Is(err, persistence.ErrUnavailable):
				refused++
			default:
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if unknown == 0 || unknown+refused != 16 {
		t.Errorf("%d unknown, %d refused", unknown, refused)
	}
	count(t, s, 0)
}

// TestFailedCheckpoint has a sync of the database fail while the log is written back. Nobody waits for that, and
// nobody's commit is in doubt; but the handle has seen a sync fail and writes no more.
func TestFailedCheckpoint(t *testing.T) {
	disk := powercut.MountForTest(t, 1)
	dir := filepath.Join(disk.Dir(), "data")
	s := openAt(t, dir, sqlite.Options{})
	if err := disk.FailSync(1, syscall.EIO, "tabellion.db"); err != nil {
		t.Fatal(err)
	}
	sqlite.SetWriteBack(s, 256)
	done := 0
	for end := time.Now().Add(time.Minute); s.Healthy() == nil; done++ {
		if time.Now().After(end) {
			t.Fatalf("%d large writes, and the log was not written back, or the failure was not seen", done)
		}
		_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, one(fmt.Sprint("d", done), 1<<16))
		if errors.Is(err, persistence.ErrUnavailable) && s.Healthy() != nil {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	count(t, s, done)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	count(t, openAt(t, dir, sqlite.Options{}), done)
}

// TestFailedFolderSync has the syncs of folders fail that make a new store durable: it is not opened.
func TestFailedFolderSync(t *testing.T) {
	failed := 0
	for nth := 1; nth < 20; nth++ {
		disk := powercut.MountForTest(t, 1)
		if err := disk.FailSync(nth, syscall.EIO, "/"); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(t.Context(), filepath.Join(disk.Dir(), "data"), sqlite.Options{})
		counts, cerr := disk.Counts()
		if cerr != nil {
			t.Fatal(cerr)
		}
		if err == nil {
			if _, err := create(t, s, "d"); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil && counts.FailedSyncs == 0 {
				continue // it was the folder's sync at the end
			}
		}
		disk.Close()
		switch {
		case counts.FailedSyncs == 0:
			if failed < 3 {
				t.Errorf("only %d syncs of folders made the open fail", failed)
			}
			return
		case err != nil:
			failed++
		}
	}
	t.Error("there is no end of folder syncs")
}

// TestShownIsDurable opens files that are in the page cache only, as a process leaves them that was killed after a
// failed sync. What the new store shows must be on the disk, though no sync of the log would bring it there.
func TestShownIsDurable(t *testing.T) {
	disk := powercut.MountForTest(t, 1)
	dir, copied := filepath.Join(disk.Dir(), "data"), filepath.Join(disk.Dir(), "copy")
	s := openAt(t, dir, sqlite.Options{})
	if _, err := create(t, s, "d"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(copied, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tabellion.db", "tabellion.db-wal"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{disk.Dir(), copied} { // the names are there, the bytes are not
		f, err := os.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	again := openAt(t, copied, sqlite.Options{})
	if out, err := create(t, again, "d"); err != nil || !out.Replayed {
		t.Fatalf("got %+v, %v; want the replay of what the log holds", out, err)
	}
	images, err := disk.Cut(4, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range images {
		if !has(t, openAt(t, filepath.Join(image.Dir, "copy"), sqlite.Options{}), "d") {
			t.Errorf("image %v (seed %d): what was shown is lost", image.Kind, image.Seed)
		}
	}
}

// TestPowerCut cuts the power right after acknowledgements, the first one and one after the store was closed and
// opened: nothing acknowledged may be missing. The same without syncs of folders must lose everything, or the test
// shows nothing.
func TestPowerCut(t *testing.T) {
	for _, level := range []persistence.Durability{persistence.FileAndDirectorySync, persistence.FileSync} {
		t.Run(string(level), func(t *testing.T) {
			disk := powercut.MountForTest(t, 1)
			dir := filepath.Join(disk.Dir(), "above", "data")
			s := openAt(t, dir, sqlite.Options{Durability: level})
			lost, seen := 0, 0
			var acknowledged []string
			cut := func() {
				images, err := disk.Cut(4, t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				for _, image := range images {
					survivor := openAt(t, filepath.Join(image.Dir, "above", "data"), sqlite.Options{})
					for _, id := range acknowledged {
						seen++
						if !has(t, survivor, id) {
							lost++
						}
					}
				}
			}
			for i := range 12 {
				id := fmt.Sprint("d", i)
				if _, err := create(t, s, id); err != nil {
					t.Fatal(err)
				}
				acknowledged = append(acknowledged, id)
				if i%5 == 0 {
					cut()
				}
				if i%4 == 3 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = openAt(t, dir, sqlite.Options{Durability: level})
				}
			}
			switch {
			case level == persistence.FileAndDirectorySync && lost > 0:
				t.Errorf("%d of %d acknowledged writes are lost", lost, seen)
			case level == persistence.FileSync && lost == 0:
				t.Error("nothing is lost without syncs of folders: this test cannot find a missing one")
			}
		})
	}
}
