package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// ignore is a progress of nobody.
func ignore(int64, int64) {}

// writeUntil writes documents d0, d1, ... one after the other until stop, and gives how many it has written.
func writeUntil(t *testing.T, s *sqlite.Store, stop <-chan struct{}) <-chan int {
	written := make(chan int, 1)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				written <- n
				return
			default:
			}
			d := kept("ns", fmt.Sprint("d", n), 1, `"text"`)
			_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, func(tx persistence.Tx) (persistence.Outcome, error) {
				return persistence.Outcome{}, tx.PutRevision(&d)
			})
			if err != nil {
				t.Error(err)
				written <- n
				return
			}
		}
	}()
	return written
}

// documentsIn gives the documents in a database file, and fails on a flaw.
func documentsIn(t *testing.T, file string) int64 {
	t.Helper()
	i, err := sqlite.InspectFile(t.Context(), file)
	no(t, err)
	defer i.Close()
	no(t, i.Rules(func(string, int64, int64) {}, func(f sqlite.Flaw) { t.Errorf("%s: %+v", file, f) }))
	f, err := i.Facts()
	no(t, err)
	return f.Documents
}

// TestSnapshots: copies of a store at work are whole, private, and each holds no less than the one before.
func TestSnapshots(t *testing.T) {
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	no(t, err)
	defer s.Close()
	stop := make(chan struct{})
	written := writeUntil(t, s, stop)
	dir, last := t.TempDir(), int64(0)
	for n := range 10 {
		file := filepath.Join(dir, fmt.Sprint(n))
		no(t, s.Snapshot(t.Context(), file, ignore))
		info, err := os.Stat(file)
		no(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("mode %s", info.Mode())
		}
		now := documentsIn(t, file)
		if now < last {
			t.Errorf("snapshot %d holds %d documents, the one before held %d", n, now, last)
		}
		last = now
	}
	close(stop)
	if all := <-written; last == 0 || int64(all) < last {
		t.Errorf("the last snapshot holds %d documents, written were %d", last, all)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*-*")); err != nil || len(left) != 0 {
		t.Errorf("reading left %v, %v", left, err)
	}
}

// TestSnapshotRefuses: a file that is there, a context that has ended, a store that is closed.
func TestSnapshotRefuses(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	no(t, err)
	file := filepath.Join(dir, "there")
	no(t, os.WriteFile(file, []byte("mine"), 0o600))
	if err := s.Snapshot(t.Context(), file, ignore); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Snapshot(ended, filepath.Join(dir, "ended"), ignore); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	no(t, s.Close())
	if err := s.Snapshot(t.Context(), filepath.Join(dir, "closed"), ignore); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("of a closed store: %v", err)
	}
	if _, err := s.Inspect(t.Context()); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("inspection of a closed store: %v", err)
	}
}

// TestCloseEndsInspections: a store that closes does not wait for the end of a long inspection.
func TestCloseEndsInspections(t *testing.T) {
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	no(t, err)
	i, err := s.Inspect(t.Context())
	no(t, err)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for err = nil; err == nil; { // until it learns of the end
		err = i.Rules(func(string, int64, int64) {}, func(sqlite.Flaw) {})
	}
	if !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("the inspection ended with %v", err)
	}
	select {
	case err := <-closed:
		t.Fatalf("the store was closed under an inspection: %v", err)
	default:
	}
	no(t, i.Close())
	no(t, <-closed)
}
