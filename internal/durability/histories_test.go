package durability_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/internal/testkit/verify"
	"github.com/tabellion-mcp/tabellion/internal/testkit/workload"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// envInt is the number in an environment variable, or the default.
func envInt(tb testing.TB, name string, def int) int {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("%s=%q is no positive number", name, text)
	}
	return n
}

// The size of one history.
const (
	historyClients    = 8
	historyOperations = 5000
	historyDocuments  = 16
	checkLimit        = 60 * time.Second
)

// record runs one history against a store.
func record(t *testing.T, store inproc.Store, seed uint64, operations int) ([]history.Op, asAlice) {
	t.Helper()
	server := serverOn(t, store, nil)
	rec := history.NewRecorder()
	cfg := workload.Config{
		Prefix: fmt.Sprintf("h%d", seed), Documents: historyDocuments, Reads: 30, Deletes: 6, Purges: 4, Refs: true,
		Artifacts: 30, MaxBytes: 8 << 10,
	}
	var wg sync.WaitGroup
	for n, c := range newClients(cfg, seed, rec) {
		wg.Go(func() {
			for range operations / historyClients {
				if err := c.Step(t.Context(), server); err != nil && !errors.Is(err, workload.ErrUnknown) {
					t.Errorf("client %d: %v", n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return rec.Ops(), server
}

// TestHistories checks that histories of eight clients over sixteen documents and the uploads they open are linearizable,
// document by document and upload by upload, and that the store holds what was acknowledged.
func TestHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	n := envInt(t, "HISTORIES", 20)
	total, uploads := 0, 0
	for i := range n {
		seed := uint64(1000 + i)
		store, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ops, server := record(t, store, seed, historyOperations)
		total += len(ops)
		if res := history.Check(ops, checkLimit); res != porcupine.Ok {
			t.Errorf("history with seed %d: %s", seed, res)
		}
		if res := history.CheckArtifacts(ops, checkLimit); res != porcupine.Ok {
			t.Errorf("history of artifacts with seed %d: %s", seed, res)
		}
		report, err := verify.Run(t.Context(), ops, &workload.Server{Caller: server})
		if err != nil || !report.Clean() {
			t.Fatalf("seed %d: %v %s", seed, err, report)
		}
		uploads += report.Artifacts.Uploads
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	fmt.Printf("histories: %d run, %d operations recorded, %d uploads among them\n", n, total, uploads)
}

// racy is a store with the fault of check-then-act: preconditions are judged on a state that was read before the
// transaction began.
type racy struct{ *memory.Store }

// Update reads nothing in the transaction: it judges what View showed before.
func (r racy) Update(ctx context.Context, c persistence.Commit, fn func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	var out persistence.Outcome
	stale := &staleTx{}
	err := r.View(ctx, func(before persistence.Reader) (err error) {
		stale.Reader = before
		out, err = fn(stale)
		return err
	})
	if err != nil {
		return out, err
	}
	time.Sleep(raceWindow)
	return r.Store.Update(ctx, c, func(tx persistence.Tx) (persistence.Outcome, error) {
		for _, write := range stale.writes {
			if err := write(tx); err != nil {
				return out, err
			}
		}
		return out, nil
	})
}

// raceWindow is the time between check and act.
const raceWindow = 200 * time.Microsecond

// staleTx reads the past, and keeps what is to be written. What the store itself would refuse later, because of what
// happened meanwhile, is left out: the fault is that nobody notices.
type staleTx struct {
	persistence.Reader
	writes []func(persistence.Tx) error
}

// later keeps a write.
func (s *staleTx) later(write func(persistence.Tx) error) error {
	s.writes = append(s.writes, write)
	return nil
}

// PutRevision keeps what is to be written, as whatever the next revision is then.
func (s *staleTx) PutRevision(d *persistence.Document) error {
	return s.later(func(tx persistence.Tx) error {
		head, _, err := tx.Head(d.Namespace, d.ID)
		if err != nil {
			return err
		}
		actual := *d
		actual.Revision = head.Revision + 1
		return tx.PutRevision(&actual)
	})
}

// PurgeRevision keeps a purge.
func (s *staleTx) PurgeRevision(namespace, id string, revision int64) error {
	return s.later(func(tx persistence.Tx) error {
		_ = tx.PurgeRevision(namespace, id, revision) // another may have been quicker
		return nil
	})
}

// PutUpload keeps a new upload.
func (s *staleTx) PutUpload(u *persistence.Upload) error {
	return s.later(func(tx persistence.Tx) error { return tx.PutUpload(u) })
}

// MoveUpload keeps what an upload is to become.
func (s *staleTx) MoveUpload(namespace, id string, to persistence.UploadState, now time.Time) error {
	return s.later(func(tx persistence.Tx) error {
		_ = tx.MoveUpload(namespace, id, to, now) // another may have closed it
		return nil
	})
}

// PutArtifact keeps a new artifact.
func (s *staleTx) PutArtifact(a *persistence.Artifact) error {
	return s.later(func(tx persistence.Tx) error {
		if _, there, err := tx.Artifact(a.Namespace, a.ID); err != nil || there {
			return err
		}
		return tx.PutArtifact(a)
	})
}

// PurgeArtifact keeps a purge.
func (s *staleTx) PurgeArtifact(namespace, id string) error {
	return s.later(func(tx persistence.Tx) error {
		_ = tx.PurgeArtifact(namespace, id) // another may have been quicker
		return nil
	})
}

// TestHistoriesFindRace is the control: a planted check-then-act race must be found within ten histories, in documents
// and in artifacts.
func TestHistoriesFindRace(t *testing.T) {
	tests := []struct {
		name  string
		check func([]history.Op, time.Duration) porcupine.CheckResult
	}{{"documents", history.Check}, {"artifacts", history.CheckArtifacts}}
	for _, tt := range tests {
		found := false
		for i := 0; i < 10 && !found; i++ {
			ops, _ := record(t, racy{memory.New(nil)}, uint64(i), 800)
			if found = tt.check(ops, checkLimit) == porcupine.Illegal; found {
				fmt.Printf("histories control, %s: the planted race was found in history %d\n", tt.name, i+1)
			}
		}
		if !found {
			t.Errorf("%s: the planted race was not found in ten histories", tt.name)
		}
	}
}
