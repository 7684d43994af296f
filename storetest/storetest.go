// Package storetest holds the promises of persistence.Store as tests. A behaviour that is not tested here is not
// promised.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) persistence.Store { return openMine(t) })
//	}
//
// Experimental until 1.0.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// Options say what else a store can do.
type Options struct {
	// Reopen closes a store and opens what it kept. Nil: the store keeps nothing.
	Reopen func(t *testing.T, s persistence.Store) persistence.Store
}

// Run tests a store that keeps nothing, or whose keeping is tested elsewhere. open gives a new, empty store, and has
// it closed at the end of its test.
func Run(t *testing.T, open func(t *testing.T) persistence.Store) { RunWith(t, open, Options{}) }

// RunWith is Run with options.
func RunWith(t *testing.T, open func(t *testing.T) persistence.Store, o Options) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, persistence.Store)
	}{
		{"Revisions", testRevisions},
		{"WrongRevision", testWrongRevision},
		{"Tombstones", testTombstones},
		{"Times", testTimes},
		{"Payloads", testPayloads},
		{"Names", testNames},
		{"SharedMemory", testSharedMemory},
		{"OwnWrites", testOwnWrites},
		{"Rollback", testRollback},
		{"ErrorsUnchanged", testErrorsUnchanged},
		{"Panic", testPanic},
		{"PanicInSeal", testPanicInSeal},
		{"Over", testOver},
		{"Context", testContext},
		{"Order", testOrder},
		{"Filter", testFilter},
		{"Pages", testPages},
		{"RevisionPages", testRevisionPages},
		{"References", testReferences},
		{"Usage", testUsage},
		{"Replay", testReplay},
		{"ReplayValue", testReplayValue},
		{"NoKey", testNoKey},
		{"KeyConflict", testKeyConflict},
		{"KeyAfterFailure", testKeyAfterFailure},
		{"Forget", testForget},
		{"Namespaces", testNamespaces},
		{"SameKeyAtOnce", testSameKeyAtOnce},
		{"OneWins", testOneWins},
		{"Counter", testCounter},
		{"FailuresAmongSuccesses", testFailuresAmongSuccesses},
		{"Snapshot", testSnapshot},
		{"Acknowledged", testAcknowledged},
		{"Uploads", testUploads},
		{"UploadMemory", testUploadMemory},
		{"UploadStates", testUploadStates},
		{"Reservations", testReservations},
		{"Expiry", testExpiry},
		{"Held", testHeld},
		{"EachHeld", testEachHeld},
		{"ArtifactPurge", testArtifactPurge},
		{"ArtifactRollback", testArtifactRollback},
		{"ArtifactSnapshot", testArtifactSnapshot},
		{"ArtifactOwnWrites", testArtifactOwnWrites},
		{"ArtifactReplay", testArtifactReplay},
		{"Superseded", testSuperseded},
		{"Purge", testPurge},
		{"Inbound", testInbound},
		{"NamespaceFacts", testNamespaceFacts},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
	if o.Reopen == nil {
		return
	}
	t.Run("Reopen", func(t *testing.T) {
		testReopen(t, open(t), func(s persistence.Store) persistence.Store { return o.Reopen(t, s) })
	})
}

// start is the time of the first write of most tests.
var start = time.Date(2026, 3, 1, 12, 0, 0, 123e6, time.UTC)

// note is a live revision with a small payload that tells where it belongs.
func note(namespace, id string, revision int64) *persistence.Document {
	return &persistence.Document{
		Namespace: namespace, ID: id, Kind: "note", SchemaVersion: "1", Revision: revision,
		CreatedAt: start, UpdatedAt: start.Add(time.Duration(revision-1) * time.Second),
		Payload: fmt.Appendf(nil, `{"at":"%s/%s@%d"}`, namespace, id, revision),
	}
}

// grave is a tombstone.
func grave(namespace, id string, revision int64) *persistence.Document {
	d := note(namespace, id, revision)
	d.Deleted, d.Payload = true, nil
	return d
}

// writer gives a function for Update that writes documents in order.
func writer(docs ...*persistence.Document) func(persistence.Tx) (persistence.Outcome, error) {
	return func(tx persistence.Tx) (o persistence.Outcome, err error) {
		for _, d := range docs {
			if err := tx.PutRevision(d); err != nil {
				return o, err
			}
			o = persistence.Outcome{ID: d.ID, Revision: d.Revision}
		}
		return o, nil
	}
}

// put writes documents in one transaction, without a key, in the namespace of the first.
func put(t *testing.T, s persistence.Store, docs ...*persistence.Document) {
	t.Helper()
	_, err := s.Update(t.Context(), persistence.Commit{Namespace: docs[0].Namespace, Now: start}, writer(docs...))
	if err != nil {
		t.Fatalf("put %s@%d: %v", docs[0].ID, docs[0].Revision, err)
	}
}

// view runs f over a snapshot. f must not end the test's goroutine.
func view(t *testing.T, s persistence.Store, f func(r persistence.Reader)) {
	t.Helper()
	if err := s.View(t.Context(), func(r persistence.Reader) error { f(r); return nil }); err != nil {
		t.Fatalf("view: %v", err)
	}
}

// head gives the number of the newest revision, 0 when there is none.
func head(t *testing.T, s persistence.Store, namespace, id string) (revision int64) {
	t.Helper()
	view(t, s, func(r persistence.Reader) {
		h, ok, err := r.Head(namespace, id)
		if err != nil || ok != (h.Revision > 0) {
			t.Errorf("head of %s/%s: %+v %v %v", namespace, id, h, ok, err)
		}
		revision = h.Revision
	})
	return revision
}

// stored reads one revision and fails when it is not as want.
func stored(t *testing.T, s persistence.Store, want *persistence.Document) {
	t.Helper()
	view(t, s, func(r persistence.Reader) {
		got, ok, err := r.Revision(want.Namespace, want.ID, want.Revision)
		if err != nil || !ok {
			t.Errorf("revision %d of %s/%s: found %v, error %v", want.Revision, want.Namespace, want.ID, ok, err)
			return
		}
		same(t, got, want)
	})
}

// same compares documents. Payloads of tombstones do not count.
func same(t *testing.T, got, want *persistence.Document) {
	t.Helper()
	if got.Namespace != want.Namespace || got.ID != want.ID || got.Kind != want.Kind ||
		got.SchemaVersion != want.SchemaVersion || got.Revision != want.Revision || got.Deleted != want.Deleted ||
		!got.CreatedAt.Equal(want.CreatedAt) || !got.UpdatedAt.Equal(want.UpdatedAt) ||
		!slices.Equal(got.References, want.References) || !want.Deleted && !bytes.Equal(got.Payload, want.Payload) {
		t.Errorf("got document\n%s\nwant\n%s", show(got), show(want))
	}
}

// show prints a document for people, large payloads cut.
func show(d *persistence.Document) string {
	c := *d
	c.Payload = c.Payload[:min(len(c.Payload), 80)]
	return fmt.Sprintf("%+v payload %q (%d bytes)", c, c.Payload, len(d.Payload))
}

// absent fails when a document exists or counts.
func absent(t *testing.T, s persistence.Store, namespace, id string) {
	t.Helper()
	view(t, s, func(r persistence.Reader) {
		_, ok, err := r.Head(namespace, id)
		_, whole, err2 := r.HeadDocument(namespace, id)
		_, first, err3 := r.Revision(namespace, id, 1)
		live, err4 := r.Live(persistence.Ref{Type: persistence.RefDocument, Namespace: namespace, ID: id, Revision: 1})
		docs, more, err5 := r.Revisions(namespace, id, 0, 10, 0)
		if err := errors.Join(err, err2, err3, err4, err5); err != nil || ok || whole || first || live || more || len(docs) > 0 {
			t.Errorf("document %s/%s is there: %v %v %v %v %v %d %v", namespace, id, ok, whole, first, live, more, len(docs), err)
		}
	})
}

func testRevisions(t *testing.T, s persistence.Store) {
	absent(t, s, "ns", "plan")
	var all []*persistence.Document
	for n := int64(1); n <= 5; n++ {
		d := note("ns", "plan", n)
		d.Kind, d.SchemaVersion = fmt.Sprint("kind ", n), fmt.Sprint(n) // both may change
		put(t, s, d)
		all = append(all, d)
		view(t, s, func(r persistence.Reader) {
			h, ok, err := r.Head("ns", "plan")
			want := persistence.Head{Revision: n, Kind: d.Kind, SchemaVersion: d.SchemaVersion, CreatedAt: start, UpdatedAt: d.UpdatedAt}
			if err != nil || !ok || h != want {
				t.Errorf("head: %+v %v %v, want %+v", h, ok, err, want)
			}
			whole, ok, err := r.HeadDocument("ns", "plan")
			if err != nil || !ok {
				t.Errorf("head document: %v %v", ok, err)
				return
			}
			same(t, whole, d)
		})
	}
	for _, d := range all {
		stored(t, s, d) // a written revision does not change
	}
	view(t, s, func(r persistence.Reader) {
		for _, n := range []int64{-1, 0, 6, persistence.MaxSafe} {
			if _, ok, err := r.Revision("ns", "plan", n); ok || err != nil {
				t.Errorf("revision %d: found %v, error %v", n, ok, err)
			}
		}
	})
}

func testWrongRevision(t *testing.T, s persistence.Store) {
	put(t, s, note("ns", "plan", 1))
	for _, d := range []*persistence.Document{
		note("ns", "plan", 1), note("ns", "plan", 3), note("ns", "plan", 0), note("ns", "other", 2), note("ns", "other", 0),
	} {
		_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: start}, writer(d))
		if err == nil {
			t.Errorf("%s@%d was written", d.ID, d.Revision)
		}
	}
	if n := head(t, s, "ns", "plan"); n != 1 {
		t.Errorf("head is %d", n)
	}
	absent(t, s, "ns", "other")
	put(t, s, note("ns", "plan", 2))
}

func testTombstones(t *testing.T, s persistence.Store) {
	put(t, s, note("ns", "plan", 1))
	put(t, s, grave("ns", "plan", 2))
	live := func(n int64) (live bool) {
		view(t, s, func(r persistence.Reader) {
			var err error
			live, err = r.Live(persistence.Ref{Type: persistence.RefDocument, Namespace: "ns", ID: "plan", Revision: n})
			if err != nil {
				t.Error(err)
			}
		})
		return live
	}
	if !live(1) || live(2) || live(3) {
		t.Errorf("live: %v %v %v, want true false false", live(1), live(2), live(3))
	}
	view(t, s, func(r persistence.Reader) {
		if h, ok, err := r.Head("ns", "plan"); err != nil || !ok || !h.Deleted || h.Revision != 2 {
			t.Errorf("head: %+v %v %v", h, ok, err)
		}
		if d, ok, err := r.HeadDocument("ns", "plan"); err != nil || !ok || !d.Deleted {
			t.Errorf("head document: %+v %v %v", d, ok, err)
		}
	})
	stored(t, s, grave("ns", "plan", 2))
	put(t, s, note("ns", "plan", 3))
	if !live(3) || live(2) {
		t.Error("after the restoration: revision 3 must be live and 2 not")
	}
}

func testTimes(t *testing.T, s persistence.Store) {
	d := note("ns", "plan", 1)
	zone := time.FixedZone("elsewhere", 7200)
	d.CreatedAt = time.Date(1999, 12, 31, 23, 59, 59, 999e6, zone)
	d.UpdatedAt = d.CreatedAt
	put(t, s, d)
	stored(t, s, d)
	view(t, s, func(r persistence.Reader) {
		if got, ok, err := r.HeadDocument("ns", "plan"); err != nil || !ok || persistence.FormatTime(got.CreatedAt) != "1999-12-31T21:59:59.999Z" {
			t.Errorf("created at %v (%v %v)", got.CreatedAt, ok, err)
		}
	})
	for name, change := range map[string]func(*persistence.Document){
		"another creation": func(d *persistence.Document) { d.CreatedAt = d.CreatedAt.Add(time.Second) },
		"going back":       func(d *persistence.Document) { d.UpdatedAt = d.UpdatedAt.Add(-time.Millisecond) },
	} {
		next := *d
		next.Revision = 2
		change(&next)
		if _, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: start}, writer(&next)); err == nil {
			t.Errorf("a revision with %s was written", name)
		}
	}
	next := *d
	next.Revision = 2 // within the same millisecond
	put(t, s, &next)
}

func testPayloads(t *testing.T, s persistence.Store) {
	large := append(append([]byte(`"`), bytes.Repeat([]byte("0123456789abcdef"), 1<<16)...), '"')
	for i, payload := range []string{
		`null`, `true`, `0`, `""`, `[]`, `{}`, `{"":"","__proto__":1}`, `"\u0000"`, `{"a\u0000b":"\u0000\u0000"}`,
		`"ä ö ü € 😀 é é"`, `"\\\" ' ; -- %"`, string(large),
	} {
		d := note("ns", fmt.Sprint("p", i), 1)
		d.Payload = []byte(payload)
		put(t, s, d)
		stored(t, s, d)
	}
}

func testNames(t *testing.T, s persistence.Store) {
	longest := string(bytes.Repeat([]byte("n"), 128))
	for _, id := range []string{"a", "A", "_", "0", "a.b", "a-b", longest, "null", "NULL", "1", "01", "1.0", "1e0"} {
		put(t, s, note(longest, id, 1))
	}
	for _, id := range []string{"a", "A", "_", "0", "a.b", "a-b", longest, "null", "NULL", "1", "01", "1.0", "1e0"} {
		stored(t, s, note(longest, id, 1))
	}
	for i, kind := range []string{"k", "ö€😀", "quote'\"%_", longest} {
		d := note("ns", "kinds", int64(i+1))
		d.Kind, d.SchemaVersion = kind, kind
		put(t, s, d)
		stored(t, s, d)
	}
}

func testSharedMemory(t *testing.T, s persistence.Store) {
	target := persistence.Ref{Type: persistence.RefDocument, Namespace: "ns", ID: "x", Revision: 1}
	mine := note("ns", "plan", 1)
	mine.References = []persistence.Ref{target}
	put(t, s, mine)
	want := note("ns", "plan", 1)
	want.References = []persistence.Ref{target}
	mine.Payload[2], mine.References[0].ID = 'X', "y" // the caller's memory is the caller's
	stored(t, s, want)
	view(t, s, func(r persistence.Reader) {
		got, _, err := r.HeadDocument("ns", "plan")
		if err != nil {
			t.Error(err)
			return
		}
		got.Payload[2], got.References[0].ID = 'Y', "z"
	})
	stored(t, s, want)
}

func testOwnWrites(t *testing.T, s persistence.Store) {
	put(t, s, note("ns", "old", 1))
	_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: start}, func(tx persistence.Tx) (o persistence.Outcome, err error) {
		for _, d := range []*persistence.Document{
			note("ns", "old", 2), note("ns", "new", 1), note("ns", "new", 2), grave("ns", "gone", 1), note("else", "new", 1),
		} {
			if err := tx.PutRevision(d); err != nil {
				return o, err
			}
			got, ok, err := tx.HeadDocument(d.Namespace, d.ID)
			if err != nil || !ok {
				return o, fmt.Errorf("own write of %s@%d: %v %w", d.ID, d.Revision, ok, err)
			}
			same(t, got, d)
			h, ok, err := tx.Head(d.Namespace, d.ID)
			if err != nil || !ok || h.Revision != d.Revision || h.Deleted != d.Deleted {
				t.Errorf("own head of %s@%d: %+v %v %v", d.ID, d.Revision, h, ok, err)
			}
		}
		docs, more, err := tx.Heads("ns", persistence.HeadFilter{Limit: 10})
		if err != nil || more || len(docs) != 2 {
			t.Errorf("own list: %d %v %v", len(docs), more, err)
		}
		want := len(note("ns", "old", 1).Payload)*2 + len(note("ns", "new", 1).Payload)*2
		if n, err := tx.Usage("ns", start); err != nil || n != int64(want) {
			t.Errorf("own usage: %d %v, want %d", n, err, want)
		}
		live, err := tx.Live(persistence.Ref{Type: persistence.RefDocument, Namespace: "ns", ID: "new", Revision: 1})
		if err != nil || !live {
			t.Errorf("own revision is not live: %v", err)
		}
		return persistence.Outcome{ID: "old", Revision: 2}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	stored(t, s, note("ns", "new", 1))
	stored(t, s, note("else", "new", 1))
}

// errMine is an error of a fn.
var errMine = errors.New("mine")

func testRollback(t *testing.T, s persistence.Store) {
	put(t, s, note("ns", "plan", 1))
	before := usage(t, s, "ns")
	linked := note("ns", "other", 1)
	linked.References = []persistence.Ref{{Type: persistence.RefDocument, Namespace: "ns", ID: "plan", Revision: 1}}
	_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: start}, func(tx persistence.Tx) (persistence.Outcome, error) {
		if _, err := writer(note("ns", "plan", 2), linked, note("far", "plan", 1), grave("ns", "plan", 3))(tx); err != nil {
			return persistence.Outcome{}, err
		}
		return persistence.Outcome{ID: "plan", Revision: 3}, errMine
	})
	if err != errMine {
		t.Fatalf("got %v, want the very error of fn", err)
	}
	if n := head(t, s, "ns", "plan"); n != 1 {
		t.Errorf("head is %d", n)
	}
	absent(t, s, "ns", "other")
	absent(t, s, "far", "plan")
	if after := usage(t, s, "ns"); after != before || usage(t, s, "far") != 0 {
		t.Errorf("usage is %d, was %d", after, before)
	}
	put(t, s, note("ns", "plan", 2))
	put(t, s, linked)
}

// usage reads what counts against a quota.
func usage(t *testing.T, s persistence.Store, namespace string) (n int64) {
	t.Helper()
	view(t, s, func(r persistence.Reader) {
		var err error
		if n, err = r.Usage(namespace, start); err != nil {
			t.Error(err)
		}
	})
	return n
}

func testErrorsUnchanged(t *testing.T, s persistence.Store) {
	wrapped := fmt.Errorf("context: %w", errMine)
	if err := s.View(t.Context(), func(persistence.Reader) error { return wrapped }); err != wrapped {
		t.Errorf("View: got %v", err)
	}
	out, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: start}, func(persistence.Tx) (persistence.Outcome, error) {
		return persistence.Outcome{ID: "x", Revision: 1}, wrapped
	})
	if err != wrapped || out.ID != "" || out.Revision != 0 || out.Value != nil || out.Replayed {
		t.Errorf("Update: got %+v, %v", out, err)
	}
}

func testPanic(t *testing.T, s persistence.Store) {
	c := persistence.Commit{Namespace: "ns", Key: "k", Now: start}
	caught := func(f func()) (p any) {
		defer func() { p = recover() }()
		f()
		return nil
	}
	p := caught(func() {
		_, _ = s.Update(t.Context(), c, func(tx persistence.Tx) (persistence.Outcome, error) {
			if err := tx.PutRevision(note("ns", "plan", 1)); err != nil {
				t.Error(err)
			}
			panic(errMine)
		})
	})
	if p != errMine {
		t.Errorf("Update panicked with %v, want fn's value", p)
	}
	if p := caught(func() { _ = s.View(t.Context(), func(persistence.Reader) error { panic(errMine) }) }); p != errMine {
		t.Errorf("View panicked with %v, want fn's value", p)
	}
	absent(t, s, "ns", "plan")
	if out, err := s.Update(t.Context(), c, writer(note("ns", "plan", 1))); err != nil || out.Replayed {
		t.Errorf("after the panic: %+v %v", out, err)
	}
}

func testPanicInSeal(t *testing.T, s persistence.Store) {
	c := persistence.Commit{Namespace: "ns", Key: "k", Now: start}
	c.Seal = func(persistence.Outcome) audit.Row { panic(errMine) }
	func() {
		defer func() {
			if p := recover(); p != errMine {
				t.Errorf("Update panicked with %v, want Seal's value", p)
			}
		}()
		_, _ = s.Update(t.Context(), c, writer(note("ns", "plan", 1)))
	}()
	absent(t, s, "ns", "plan") // no row, no effect
	c.Seal = nil
	if out, err := s.Update(t.Context(), c, writer(note("ns", "plan", 1))); err != nil || out.Replayed {
		t.Errorf("after the panic: %+v %v", out, err)
	}
}

func testOver(t *testing.T, s persistence.Store) {
	var r persistence.Reader
	var tx persistence.Tx
	view(t, s, func(v persistence.Reader) { r = v })
	_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: start}, func(v persistence.Tx) (persistence.Outcome, error) {
		tx = v
		return writer(note("ns", "plan", 1))(v)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Head("ns", "plan"); err == nil {
		t.Error("a Reader was used after its function had returned")
	}
	if err := tx.PutRevision(note("ns", "plan", 2)); err == nil {
		t.Error("a Tx was used after its function had returned")
	}
}

func testContext(t *testing.T, s persistence.Store) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Update(over, persistence.Commit{Namespace: "ns", Key: "k", Now: start}, writer(note("ns", "never", 1)))
	if !errors.Is(err, persistence.ErrBusy) {
		t.Errorf("Update with an ended context: got %v, want ErrBusy", err)
	}
	if err := s.View(over, func(persistence.Reader) error { return nil }); !errors.Is(err, persistence.ErrBusy) {
		t.Errorf("View with an ended context: got %v, want ErrBusy", err)
	}
	absent(t, s, "ns", "never")
	ends, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = s.Update(ends, persistence.Commit{Namespace: "ns", Key: "k", Now: start}, func(tx persistence.Tx) (persistence.Outcome, error) {
		cancel()
		return writer(note("ns", "plan", 1))(tx)
	})
	n := head(t, s, "ns", "plan")
	switch {
	case err == nil && n == 1, errors.Is(err, persistence.ErrUnknown), errors.Is(err, persistence.ErrBusy) && n == 0:
	default:
		t.Errorf("the context ended within: error %v, head %d", err, n)
	}
}
