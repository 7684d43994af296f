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

	"github.com/tabellion-mcp/tabellion/internal/scenario"
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

// asAlice calls a server in this process as alice.
type asAlice struct{ *inproc.Server }

// Call implements workload.Caller.
func (a asAlice) Call(ctx context.Context, tool string, args []byte) (scenario.Answer, error) {
	return a.Server.Call(ctx, "alice", tool, args)
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
	server := asAlice{inproc.New(t, inproc.Config{Store: store, Grants: scenario.DefaultGrants()})}
	rec := history.NewRecorder()
	cfg := workload.Config{Prefix: fmt.Sprintf("h%d", seed), Documents: historyDocuments, Reads: 40, Deletes: 8, Refs: true}
	var wg sync.WaitGroup
	for n := range historyClients {
		wg.Go(func() {
			c := workload.NewClient(cfg, n, seed, rec)
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

// TestHistories checks that histories of eight clients over sixteen documents are linearizable, document by document,
// and that the store holds what was acknowledged.
func TestHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	n := envInt(t, "HISTORIES", 20)
	total := 0
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
		report, err := verify.Run(t.Context(), ops, &workload.Server{Caller: server})
		if err != nil || !report.Clean() {
			t.Errorf("seed %d: %v %s", seed, err, report)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	fmt.Printf("histories: %d of %d linearizable, %d operations recorded\n", n, n, total)
}

// racy is a store with the fault of check-then-act: preconditions are judged on a head that was read before the
// transaction began.
type racy struct{ *memory.Store }

// Update reads nothing in the transaction: it judges what View showed before.
func (r racy) Update(ctx context.Context, c persistence.Commit, fn func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	var out persistence.Outcome
	var err error
	var written *persistence.Document
	err = r.View(ctx, func(before persistence.Reader) error {
		out, err = fn(&staleTx{Reader: before, put: func(d *persistence.Document) error { written = d; return nil }})
		return err
	})
	if err != nil {
		return out, err
	}
	time.Sleep(50 * time.Microsecond)
	_, err = r.Store.Update(ctx, c, func(tx persistence.Tx) (persistence.Outcome, error) {
		head, _, err := tx.Head(written.Namespace, written.ID)
		if err != nil {
			return out, err
		}
		actual := *written
		actual.Revision = head.Revision + 1
		return out, tx.PutRevision(&actual)
	})
	return out, err
}

// staleTx reads the past.
type staleTx struct {
	persistence.Reader
	put func(*persistence.Document) error
}

// PutRevision keeps what is to be written.
func (s *staleTx) PutRevision(d *persistence.Document) error { return s.put(d) }

// TestHistoriesFindRace is the control: a planted check-then-act race must be found within ten histories.
func TestHistoriesFindRace(t *testing.T) {
	for i := range 10 {
		ops, _ := record(t, racy{memory.New(nil)}, uint64(i), 800)
		if res := history.Check(ops, checkLimit); res == porcupine.Illegal {
			fmt.Printf("histories control: the planted race was found in history %d\n", i+1)
			return
		}
	}
	t.Error("the planted race was not found in ten histories")
}
