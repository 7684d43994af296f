package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// day is the time at which tests write.
var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// openTest opens a new store for the length of a test.
func openTest(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// create gives a fn that creates a document.
func create(id string) func(persistence.Tx) (persistence.Outcome, error) {
	return func(tx persistence.Tx) (persistence.Outcome, error) {
		return persistence.Outcome{ID: id, Revision: 1}, tx.PutRevision(&persistence.Document{
			Namespace: "ns", ID: id, Kind: "k", SchemaVersion: "1", Revision: 1, CreatedAt: day, UpdatedAt: day, Payload: []byte("1"),
		})
	}
}

// TestVerified looks at every connection of an open store, and shows that verify would have seen a wrong setting.
func TestVerified(t *testing.T) {
	s := openTest(t, Options{})
	if err := verify(s.writer.conn, false); err != nil {
		t.Errorf("writer: %v", err)
	}
	if err := verify(s.writer.log.conn, false); err != nil {
		t.Errorf("checkpointer: %v", err)
	}
	var held []*conn
	for range s.seats {
		c := <-s.readers
		held = append(held, c)
		if err := verify(c, true); err != nil {
			t.Errorf("reader: %v", err)
		}
		if _, err := c.exec("DELETE FROM heads"); err == nil {
			t.Error("a reader can write")
		}
		if err := c.script("PRAGMA query_only=0"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.exec("DELETE FROM heads"); err == nil {
			t.Error("a reader can write once query_only is off")
		}
		if err := c.script("PRAGMA query_only=1"); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range []string{"synchronous=NORMAL", "synchronous=OFF", "foreign_keys=0", "query_only=0"} {
		c, err := openReader(s.folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.script("PRAGMA " + wrong); err != nil {
			t.Fatal(err)
		}
		if verify(c, true) == nil {
			t.Errorf("%s passes", wrong)
		}
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range held {
		s.readers <- c
	}
}

// TestNotWAL shows that another journal mode is refused.
func TestNotWAL(t *testing.T) {
	f, err := openFolder(t.TempDir(), persistence.FileAndDirectorySync)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	c, err := dial(f.path(databaseName), false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.script("PRAGMA synchronous=FULL;PRAGMA foreign_keys=1"); err != nil {
		t.Fatal(err)
	}
	if err := verify(c, false); err == nil || !strings.Contains(err.Error(), "journal_mode") {
		t.Errorf("got %v, want a refusal of the journal mode", err)
	}
}

// TestPlans holds that every page comes from an index, in order: no table is scanned and nothing is sorted.
func TestPlans(t *testing.T) {
	s := openTest(t, Options{})
	plan := func(text string, args ...any) (plan string) {
		err := s.read(t.Context(), func(r *reader) error {
			return r.query("EXPLAIN QUERY PLAN "+text, func(r row) error {
				plan += r.text(3) + "\n"
				return nil
			}, args...)
		})
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		return plan
	}
	for text, by := range map[string]string{
		headsAll: "USING PRIMARY KEY (namespace=? AND id>?)", headsLive: "USING INDEX heads_live (namespace=? AND id>?)",
		headsKindLive:  "USING INDEX heads_kind (namespace=? AND kind=? AND deleted=? AND id>?)",
		headsKind:      "USING INDEX heads_kind (namespace=? AND kind=? AND deleted=? AND id>?)",
		revisionsAfter: "USING INDEX revisions_doc (doc=? AND revision>?)",
		supersededAt:   "USING INDEX revisions_doc (doc=? AND revision=?)",
		purgeable:      "USING INDEX revisions_doc (doc=? AND revision=?)",
		inboundAfter: "USING PRIMARY KEY (namespace=? AND id=? AND type=? AND revision=? AND " +
			"(source_namespace,source_id,source_revision)>(?,?,?))",
		artifactByID:    "USING INDEX artifacts_id (namespace=? AND id=?)",
		artifactLives:   "USING COVERING INDEX artifacts_id (namespace=? AND id=?)",
		uploadByID:      "USING INDEX uploads_id (namespace=? AND id=?)",
		uploadByMade:    "USING INDEX uploads_artifact (namespace=? AND artifact=?)",
		uploadsLate:     "USING INDEX uploads_open (expires<?)",
		uploadsOfOwner:  "USING INDEX uploads_owner (owner=? AND expires>?)",
		uploadsClosed:   "USING COVERING INDEX uploads_closed (closed<?)",
		digestHeld:      "USING COVERING INDEX uploads_received (digest=?)",
		usageRow:        "USING PRIMARY KEY (namespace=?)",
		lateBytes:       "USING INDEX uploads_reserved (namespace=? AND expires<?)",
		namespacesAfter: "SEARCH u USING PRIMARY KEY (namespace>?)",
	} {
		p := plan(text, []any{"ns", "a", int64(1), "k", "n", "i", int64(1), int64(1)}[:places(text)]...)
		p = strings.ReplaceAll(p, "SCAN CONSTANT ROW", "") // of a SELECT without FROM
		if strings.Contains(p, "SCAN") || strings.Contains(p, "TEMP B-TREE") || !strings.Contains(p, by) {
			t.Errorf("%s\n%s", text, p)
		}
	}
	for _, text := range []string{artifactsAll, uploadsAll} { // these must trust no index
		if p := plan(text); !strings.HasPrefix(p, "SCAN ") || strings.Contains(p, "INDEX") {
			t.Errorf("%s\n%s", text, p)
		}
	}
	if p := plan("SELECT digest FROM artifacts"); !strings.Contains(p, "INDEX") {
		t.Errorf("the check finds no index in\n%s", p)
	}
	if p := plan("SELECT * FROM heads WHERE kind = ? ORDER BY updated", "k"); !strings.Contains(p, "SCAN") || !strings.Contains(p, "TEMP B-TREE") {
		t.Errorf("the check finds nothing in\n%s", p)
	}
}

// places is how many arguments a statement takes.
func places(text string) int {
	if n := strings.Count(text, "?"); !strings.Contains(text, "?1") {
		return n
	}
	n := 1
	for strings.Contains(text, fmt.Sprint("?", n+1)) {
		n++
	}
	return n
}

// hold occupies the writer until the function it gives is called.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.submit(context.Background(), func(*tx) error {
			close(held)
			<-free
			return nil
		})
		if err != nil {
			t.Errorf("the holder: %v", err)
		}
	})
	<-held
	return sync.OnceFunc(func() { close(free); wg.Wait() })
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}

// TestGroupCommit has calls wait behind one that is running: they are committed with it, and each has its own outcome.
func TestGroupCommit(t *testing.T) {
	s := openTest(t, Options{})
	release := hold(t, s)
	defer release()
	before := s.writer.log.batches // only the writer changes it, and it is held
	mine := errors.New("mine")
	const callers = 50
	errs := make([]error, callers)
	outs := make([]persistence.Outcome, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			c := persistence.Commit{Namespace: "ns", Key: fmt.Sprint(i / 2), Now: day} // pairs share a key
			c.Seal = func(o persistence.Outcome) audit.Row { return fmt.Appendf(nil, `{"id":%q}`, o.ID) }
			outs[i], errs[i] = s.Update(t.Context(), c, func(tx persistence.Tx) (persistence.Outcome, error) {
				out, err := create(fmt.Sprint("d", i/2))(tx)
				if i/2%5 == 0 {
					return out, mine
				}
				return out, err
			})
		})
	}
	waitFor(t, "queue", func() bool { return len(s.writer.queue) == callers })
	release()
	wg.Wait()
	fresh := 0
	for i := range callers {
		want := error(nil)
		if i/2%5 == 0 {
			want = mine
		}
		if errs[i] != want {
			t.Errorf("call %d: %v, want %v", i, errs[i], want)
		}
		if errs[i] == nil && !outs[i].Replayed {
			fresh++
		}
	}
	if fresh != 20 {
		t.Errorf("%d calls had an effect, want 20", fresh)
	}
	if h, err := s.AuditHead(t.Context()); err != nil || h.Position != 20 {
		t.Errorf("the audit chain ends at %d (%v)", h.Position, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.writer.log.batches - before; n != 1 {
		t.Errorf("%d batches, want 1", n)
	}
}

// TestQueueFull fills the queue: a further call is refused as not done after a short wait.
func TestQueueFull(t *testing.T) {
	s := openTest(t, Options{})
	release := hold(t, s)
	defer release()
	var wg sync.WaitGroup
	for range maxQueue {
		wg.Go(func() {
			if err := s.submit(t.Context(), func(*tx) error { return nil }); err != nil {
				t.Errorf("a call with a place in the queue: %v", err)
			}
		})
	}
	waitFor(t, "full queue", func() bool { return len(s.writer.queue) == maxQueue })
	if _, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, create("d")); !errors.Is(err, persistence.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	release()
	wg.Wait()
	if _, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, create("d")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestContextInQueue ends the context of a call that waits: it never runs.
func TestContextInQueue(t *testing.T) {
	s := openTest(t, Options{})
	release := hold(t, s)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() {
		_, err := s.Update(ctx, persistence.Commit{Namespace: "ns", Now: day}, func(persistence.Tx) (persistence.Outcome, error) {
			t.Error("it was run")
			return persistence.Outcome{}, nil
		})
		got <- err
	}()
	waitFor(t, "queue", func() bool { return len(s.writer.queue) == 1 })
	cancel()
	if err := <-got; !errors.Is(err, persistence.ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrBusy because of the context", err)
	}
}

// TestGoexit ends the writer's goroutine from within a call, as a failing test does: the store goes on.
func TestGoexit(t *testing.T) {
	s := openTest(t, Options{})
	_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, func(tx persistence.Tx) (persistence.Outcome, error) {
		if _, err := create("d")(tx); err != nil {
			t.Error(err)
		}
		runtime.Goexit()
		return persistence.Outcome{}, nil
	})
	if !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if _, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, create("d")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestClosed calls a closed store.
func TestClosed(t *testing.T) {
	s := openTest(t, Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, create("d"))
	for name, err := range map[string]error{
		"Update": err, "View": s.View(t.Context(), func(persistence.Reader) error { return nil }),
		"SetAddress": s.SetAddress("x"), "Healthy": s.Healthy(),
	} {
		if !errors.Is(err, persistence.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// TestCloseWaits closes a store under calls and Views: those that were taken in finish.
func TestCloseWaits(t *testing.T) {
	s := openTest(t, Options{})
	release := hold(t, s)
	viewing, done := make(chan struct{}), make(chan error, 2)
	go func() {
		done <- s.View(context.Background(), func(r persistence.Reader) error {
			close(viewing)
			<-s.closed
			_, _, err := r.Head("ns", "d")
			return err
		})
	}()
	<-viewing
	go func() {
		_, err := s.Update(context.Background(), persistence.Commit{Namespace: "ns", Now: day}, create("d"))
		done <- err
	}()
	waitFor(t, "queue", func() bool { return len(s.writer.queue) == 1 })
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	<-s.closed
	release()
	if err := errors.Join(<-done, <-done, <-closed); err != nil {
		t.Error(err)
	}
	again, err := Open(t.Context(), s.folder.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	err = again.View(t.Context(), func(r persistence.Reader) error {
		if _, ok, err := r.Head("ns", "d"); !ok || err != nil {
			t.Errorf("the accepted call is lost: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSweep forgets old records in bounded steps and keeps the rest.
func TestSweep(t *testing.T) {
	now := clock.NewManual(day)
	s := openTest(t, Options{Clock: now, Retention: 7 * 24 * time.Hour})
	record := func(key string) {
		c := persistence.Commit{Namespace: "ns", Key: key, Now: now.Now()}
		if _, err := s.Update(t.Context(), c, func(persistence.Tx) (persistence.Outcome, error) { return persistence.Outcome{}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	err := s.submit(t.Context(), func(x *tx) error { // many at once, as record makes them
		for i := range sweepRows + 5 {
			if err := x.record(persistence.Commit{Namespace: "ns", Key: fmt.Sprint("old", i), Now: day}, persistence.Outcome{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	now.Advance(time.Hour)
	record("young")
	left := func() (n int64) {
		err := s.read(t.Context(), func(r *reader) error {
			return r.query("SELECT count(*) FROM idempotency", stop(func(r row) { n = r.int(0) }))
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	now.Advance(7*24*time.Hour - time.Hour) // the old ones have exactly the age that is kept
	for _, step := range []struct {
		after time.Duration
		more  bool
		left  int64
	}{{0, false, sweepRows + 6}, {time.Millisecond, true, 6}, {0, false, 1}, {0, false, 1}, {time.Hour, false, 0}} {
		now.Advance(step.after)
		more, err := s.Sweep(t.Context())
		if n := left(); err != nil || more != step.more || n != step.left {
			t.Errorf("sweep: more %v, %d left, %v; want %v and %d", more, n, err, step.more, step.left)
		}
	}
}

// TestDamage changes stored bytes behind the store's back: they are not served.
func TestDamage(t *testing.T) {
	for _, change := range []string{
		"UPDATE revisions SET payload = x'32'", "UPDATE revisions SET payload = NULL", "UPDATE revisions SET kind = 'K'",
		"UPDATE revisions SET updated = updated + 1", "UPDATE revisions SET deleted = 1", "UPDATE revisions SET refs = x'5b5d'",
		"UPDATE heads SET id = 'e'", "UPDATE heads SET created = created + 1",
	} {
		s := openTest(t, Options{})
		if _, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, create("d")); err != nil {
			t.Fatal(err)
		}
		read := func() error {
			return s.View(t.Context(), func(r persistence.Reader) error {
				_, _, err := r.Heads("ns", persistence.HeadFilter{IncludeDeleted: true, Limit: 1})
				return err
			})
		}
		if err := read(); err != nil {
			t.Fatal(err)
		}
		if err := s.submit(t.Context(), func(x *tx) error { return x.write(change) }); err != nil {
			t.Fatal(err)
		}
		if err := read(); !errors.Is(err, persistence.ErrDamaged) || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: got %v", change, err)
		}
	}
}

// TestRecordDamage changes idempotency records behind the store's back: the key is refused, and the effect does not
// happen again, also when the record seems old. What a record of format 1 says is believed.
func TestRecordDamage(t *testing.T) {
	for _, key := range []string{"pointer", "value"} {
		for change, damaged := range map[string]bool{
			"seq = seq": false, "sum = NULL": false, "sum = NULL, revision = 2": false,
			"at = at - 1000000": true, "at = at + 1": true, "fingerprint = zeroblob(32)": true, "id = id || 'x'": true,
			"revision = revision + 1": true, "value = x'31'": true, "sum = sum + 1": true,
		} {
			s := openTest(t, Options{})
			c := persistence.Commit{Namespace: "ns", Key: key, Fingerprint: [32]byte{1}, Now: day, Forget: day.Add(-time.Millisecond)}
			_, err := s.Update(t.Context(), c, func(tx persistence.Tx) (persistence.Outcome, error) {
				if key == "value" {
					return persistence.Outcome{Value: []byte(`{"ok":true}`)}, nil
				}
				return create("d")(tx)
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.submit(t.Context(), func(x *tx) error { return x.write("UPDATE idempotency SET " + change) }); err != nil {
				t.Fatal(err)
			}
			_, err = s.Update(t.Context(), c, func(persistence.Tx) (persistence.Outcome, error) {
				t.Errorf("%s, %s: the effect happens again", key, change)
				return persistence.Outcome{}, nil
			})
			if errors.Is(err, persistence.ErrDamaged) != damaged || !damaged && err != nil {
				t.Errorf("%s, %s: got %v, want damage %v", key, change, err, damaged)
			}
		}
	}
}

// TestRecordSum has every part of a record change its checksum, and none take the place of its neighbour.
func TestRecordSum(t *testing.T) {
	seen := map[int64]int{}
	for i, sum := range []int64{
		recordSum("ns", "key", 1, [32]byte{}, persistence.Outcome{ID: "d", Revision: 1}),
		recordSum("nsk", "ey", 1, [32]byte{}, persistence.Outcome{ID: "d", Revision: 1}),
		recordSum("ns", "keyd", 1, [32]byte{}, persistence.Outcome{Revision: 1}),
		recordSum("ns", "key", 2, [32]byte{}, persistence.Outcome{ID: "d", Revision: 1}),
		recordSum("ns", "key", 1, [32]byte{}, persistence.Outcome{ID: "d", Revision: 2}),
		recordSum("ns", "key", 1, [32]byte{31: 1}, persistence.Outcome{ID: "d", Revision: 1}),
		recordSum("ns", "key", 1, [32]byte{}, persistence.Outcome{ID: "d", Revision: 1, Value: []byte("1")}),
	} {
		if first, ok := seen[sum]; ok {
			t.Errorf("record %d has the checksum of record %d", i, first)
		}
		seen[sum] = i
	}
}

// TestLogStaysShort writes more than the log may hold.
func TestLogStaysShort(t *testing.T) {
	s := openTest(t, Options{})
	SetWriteBack(s, 128)
	const size, writes = 1 << 16, 300
	for i := range writes {
		d := &persistence.Document{
			Namespace: "ns", ID: fmt.Sprint(i), Kind: "k", SchemaVersion: "1", Revision: 1, CreatedAt: day, UpdatedAt: day,
			Payload: make([]byte, size),
		}
		_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, func(tx persistence.Tx) (persistence.Outcome, error) {
			return persistence.Outcome{}, tx.PutRevision(d)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(s.folder.path(databaseName + "-wal"))
	if err != nil || info.Size() > writes*size/2 {
		t.Errorf("the log has %d bytes after writes of %d (%v)", info.Size(), writes*size, err)
	}
}

// TestSecret makes secrets once.
func TestSecret(t *testing.T) {
	s := openTest(t, Options{Rand: strings.NewReader(strings.Repeat("0123456789abcdef", 10))})
	first, err := s.Secret(t.Context(), "one", 32)
	if err != nil || len(first) != 32 {
		t.Fatalf("got %d bytes, %v", len(first), err)
	}
	again, err := s.Secret(t.Context(), "one", 32)
	if err != nil || string(again) != string(first) {
		t.Errorf("another secret, or %v", err)
	}
	if _, err := s.Secret(t.Context(), "one", 16); err == nil {
		t.Error("another size was given")
	}
	if _, err := s.Secret(t.Context(), "two", 1000); err == nil {
		t.Error("a secret was made without randomness")
	}
	if other, err := s.Secret(t.Context(), "three", 8); err == nil {
		t.Errorf("randomness was used twice: %x", other)
	}
}
