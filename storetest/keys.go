package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// commit is a Commit with a key, whose fingerprint is of content.
func commit(namespace, key, content string) persistence.Commit {
	c := persistence.Commit{Namespace: namespace, Key: key, Now: start, Forget: start.Add(-7 * 24 * time.Hour)}
	copy(c.Fingerprint[:], content)
	return c
}

// must fails the test when an Update failed, or was or was not a replay as wanted.
func must(t *testing.T, out persistence.Outcome, err error, replayed bool) {
	t.Helper()
	if err != nil || out.Replayed != replayed {
		t.Fatalf("got %+v, %v; want replayed %v", out, err, replayed)
	}
}

// never is a fn that must not run.
func never(t *testing.T) func(persistence.Tx) (persistence.Outcome, error) {
	return func(persistence.Tx) (persistence.Outcome, error) {
		t.Error("fn was run")
		return persistence.Outcome{}, errMine
	}
}

func testReplay(t *testing.T, s persistence.Store) {
	out, err := s.Update(t.Context(), commit("ns", "k", "put"), writer(note("ns", "plan", 1)))
	must(t, out, err, false)
	put(t, s, note("ns", "plan", 2)) // the state has moved on
	for range 2 {
		out, err = s.Update(t.Context(), commit("ns", "k", "put"), never(t))
		must(t, out, err, true)
		if out.ID != "plan" || out.Revision != 1 || out.Value != nil {
			t.Errorf("replayed %+v", out)
		}
	}
	if n := head(t, s, "ns", "plan"); n != 2 {
		t.Errorf("head is %d", n)
	}
}

func testReplayValue(t *testing.T, s persistence.Store) {
	value := []byte(`{"ok":true,"text":"ä\u0000"}`)
	give := func(persistence.Tx) (persistence.Outcome, error) {
		return persistence.Outcome{Value: value, Replayed: true}, nil // Replayed is the store's
	}
	out, err := s.Update(t.Context(), commit("ns", "k", "x"), give)
	must(t, out, err, false)
	out, err = s.Update(t.Context(), commit("ns", "k", "x"), never(t))
	must(t, out, err, true)
	if string(out.Value) != string(value) || out.ID != "" || out.Revision != 0 {
		t.Errorf("replayed %+v", out)
	}
}

func testNoKey(t *testing.T, s persistence.Store) {
	for n := int64(1); n <= 2; n++ {
		out, err := s.Update(t.Context(), commit("ns", "", "same"), writer(note("ns", "plan", n)))
		must(t, out, err, false)
	}
}

func testKeyConflict(t *testing.T, s persistence.Store) {
	out, err := s.Update(t.Context(), commit("ns", "k", "one"), writer(note("ns", "plan", 1)))
	must(t, out, err, false)
	if _, err = s.Update(t.Context(), commit("ns", "k", "two"), never(t)); !errors.Is(err, persistence.ErrKeyConflict) {
		t.Errorf("other content: got %v, want ErrKeyConflict", err)
	}
	out, err = s.Update(t.Context(), commit("ns", "k", "one"), never(t)) // the record is as it was
	must(t, out, err, true)
	for _, key := range []string{"K", "k ", "k\x00", "kk"} { // other keys
		if out, err = s.Update(t.Context(), commit("ns", key, "two"), writer()); err != nil || out.Replayed {
			t.Errorf("key %q: %+v %v", key, out, err)
		}
	}
}

func testKeyAfterFailure(t *testing.T, s persistence.Store) {
	_, err := s.Update(t.Context(), commit("ns", "k", "one"), func(tx persistence.Tx) (persistence.Outcome, error) {
		_, err := writer(note("ns", "plan", 1))(tx)
		return persistence.Outcome{}, errors.Join(err, errMine)
	})
	if !errors.Is(err, errMine) {
		t.Fatal(err)
	}
	out, err := s.Update(t.Context(), commit("ns", "k", "two"), writer(note("ns", "plan", 1)))
	must(t, out, err, false)
}

func testForget(t *testing.T, s persistence.Store) {
	out, err := s.Update(t.Context(), commit("ns", "k", "one"), writer(note("ns", "plan", 1)))
	must(t, out, err, false)
	late := commit("ns", "k", "one")
	late.Forget = start // made at this time is not made before it
	out, err = s.Update(t.Context(), late, never(t))
	must(t, out, err, true)

	late = commit("ns", "k", "two")
	late.Now, late.Forget = start.Add(time.Hour), start.Add(time.Millisecond)
	_, err = s.Update(t.Context(), late, func(persistence.Tx) (persistence.Outcome, error) { return persistence.Outcome{}, errMine })
	if err != errMine {
		t.Fatalf("a forgotten key with a failing fn: %v", err)
	}
	out, err = s.Update(t.Context(), commit("ns", "k", "one"), never(t)) // the failure took back the forgetting, too
	must(t, out, err, true)
	out, err = s.Update(t.Context(), late, writer(note("ns", "plan", 2)))
	must(t, out, err, false)
	out, err = s.Update(t.Context(), late, never(t)) // the new record counts from its own time
	must(t, out, err, true)
	if out.Revision != 2 {
		t.Errorf("replayed %+v", out)
	}
	if _, err = s.Update(t.Context(), commit("ns", "k", "one"), never(t)); !errors.Is(err, persistence.ErrKeyConflict) {
		t.Errorf("the old content: %v", err)
	}
}

func testNamespaces(t *testing.T, s persistence.Store) {
	for _, namespace := range []string{"one", "One", "one.", "two"} {
		out, err := s.Update(t.Context(), commit(namespace, "k", namespace), writer(note(namespace, "plan", 1)))
		must(t, out, err, false)
	}
	for _, namespace := range []string{"one", "One", "one.", "two"} {
		stored(t, s, note(namespace, "plan", 1))
		if got := list(t, s, namespace, persistence.HeadFilter{}); len(got) != 1 {
			t.Errorf("%s lists %q", namespace, got)
		}
	}
}

// clients is the number of callers in tests of concurrency.
const clients = 16

// atOnce runs do in clients goroutines and waits for all.
func atOnce(do func(client int)) {
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range clients {
		wg.Go(func() {
			<-gate
			do(i)
		})
	}
	close(gate)
	wg.Wait()
}

func testSameKeyAtOnce(t *testing.T, s persistence.Store) {
	for round := range 10 {
		key := fmt.Sprint("k", round)
		var fresh atomic.Int64
		atOnce(func(int) {
			out, err := s.Update(t.Context(), commit("ns", key, "same"), func(tx persistence.Tx) (persistence.Outcome, error) {
				h, _, err := tx.Head("ns", "count")
				if err != nil {
					return persistence.Outcome{}, err
				}
				return writer(note("ns", "count", h.Revision+1))(tx)
			})
			switch {
			case err != nil && !errors.Is(err, persistence.ErrBusy):
				t.Error(err)
			case err == nil && !out.Replayed:
				fresh.Add(1)
			}
			if err == nil && out.Revision != int64(round+1) {
				t.Errorf("round %d: outcome %+v", round, out)
			}
		})
		if n := head(t, s, "ns", "count"); n != int64(round+1) || fresh.Load() != 1 {
			t.Fatalf("round %d: head %d, %d first outcomes", round, n, fresh.Load())
		}
	}
}

func testOneWins(t *testing.T, s persistence.Store) {
	for n := int64(1); n <= 10; n++ {
		var won atomic.Int64
		atOnce(func(client int) {
			d := note("ns", "plan", n)
			_, err := s.Update(t.Context(), commit("ns", fmt.Sprint(n, "-", client), "x"), func(tx persistence.Tx) (persistence.Outcome, error) {
				h, _, err := tx.Head("ns", "plan")
				if err != nil {
					return persistence.Outcome{}, err
				}
				if h.Revision != n-1 {
					return persistence.Outcome{}, errMine
				}
				return writer(d)(tx)
			})
			if err == nil {
				won.Add(1)
			} else if err != errMine {
				t.Error(err)
			}
		})
		if won.Load() != 1 || head(t, s, "ns", "plan") != n {
			t.Fatalf("revision %d: %d winners, head %d", n, won.Load(), head(t, s, "ns", "plan"))
		}
	}
}

func testCounter(t *testing.T, s persistence.Store) {
	const each = 10
	var seen sync.Map
	atOnce(func(client int) {
		for i := range each {
			out, err := s.Update(t.Context(), commit("ns", fmt.Sprint(client, "-", i), "x"), func(tx persistence.Tx) (persistence.Outcome, error) {
				h, _, err := tx.Head("ns", "count")
				if err != nil {
					return persistence.Outcome{}, err
				}
				return writer(note("ns", "count", h.Revision+1))(tx)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if _, twice := seen.LoadOrStore(out.Revision, client); twice {
				t.Errorf("revision %d was given twice", out.Revision)
			}
			if n := head(t, s, "ns", "count"); n < out.Revision {
				t.Errorf("head %d is behind the acknowledged %d", n, out.Revision)
			}
		}
	})
	if n := head(t, s, "ns", "count"); n != clients*each {
		t.Errorf("head is %d, want %d", n, clients*each)
	}
	for n := int64(1); n <= clients*each; n++ {
		stored(t, s, note("ns", "count", n))
	}
}

// testFailuresAmongSuccesses lets calls that fail after they wrote run beside calls that succeed, which a store may
// commit together.
func testFailuresAmongSuccesses(t *testing.T, s persistence.Store) {
	const each = 8
	atOnce(func(client int) {
		for i := range each {
			id := fmt.Sprintf("d%d-%d", client, i)
			func() {
				defer func() {
					if p := recover(); p != nil && p != any("planned") {
						panic(p)
					}
				}()
				_, err := s.Update(t.Context(), commit("ns", id, "x"), func(tx persistence.Tx) (persistence.Outcome, error) {
					out, err := writer(note("ns", id, 1))(tx)
					if client%4 == 1 {
						return out, errMine
					}
					if client%4 == 2 {
						panic("planned")
					}
					return out, err
				})
				if client%4 == 1 && err != errMine || client%4 != 1 && err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}()
		}
	})
	for client := range clients {
		for i := range each {
			id := fmt.Sprintf("d%d-%d", client, i)
			if client%4 == 1 || client%4 == 2 {
				absent(t, s, "ns", id)
			} else {
				stored(t, s, note("ns", id, 1))
			}
		}
	}
	want := 0
	for _, id := range list(t, s, "ns", persistence.HeadFilter{}) {
		want += len(note("ns", id, 1).Payload)
	}
	if got := usage(t, s, "ns"); got != int64(want) {
		t.Errorf("usage is %d, want %d", got, want)
	}
}

func testSnapshot(t *testing.T, s persistence.Store) {
	put(t, s, note("ns", "a", 1))
	before := usage(t, s, "ns")
	view(t, s, func(r persistence.Reader) {
		look := func() {
			h, _, err := r.Head("ns", "a")
			_, other, err2 := r.Head("ns", "b")
			docs, more, err3 := r.Heads("ns", persistence.HeadFilter{Limit: 10})
			revisions, _, err4 := r.Revisions("ns", "a", 0, 10, 0)
			n, err5 := r.Usage("ns", start)
			if err := errors.Join(err, err2, err3, err4, err5); err != nil || h.Revision != 1 || other || len(docs) != 1 ||
				more || docs[0].Revision != 1 || len(revisions) != 1 || n != before {
				t.Errorf("the snapshot moved: head %d, other %v, list %d, revisions %d, usage %d, %v", h.Revision, other, len(docs), len(revisions), n, err)
			}
		}
		look()
		put(t, s, note("ns", "a", 2), note("ns", "b", 1)) // while the snapshot is open
		look()
	})
	if head(t, s, "ns", "a") != 2 || head(t, s, "ns", "b") != 1 {
		t.Error("a later snapshot does not see the write")
	}
}

// testAcknowledged reads after each acknowledged write, from several callers: every View that starts after it sees it,
// and one transaction is seen whole.
func testAcknowledged(t *testing.T, s persistence.Store) {
	atOnce(func(client int) {
		a, b := fmt.Sprint("a", client), fmt.Sprint("b", client)
		for n := int64(1); n <= 10; n++ {
			put(t, s, note("ns", a, n), note("ns", b, n))
			if got := head(t, s, "ns", a); got != n {
				t.Errorf("head is %d after %d was acknowledged", got, n)
			}
			view(t, s, func(r persistence.Reader) {
				peer := (client + 1) % clients
				first, _, err := r.Head("ns", fmt.Sprint("a", peer))
				second, _, err2 := r.Head("ns", fmt.Sprint("b", peer))
				if err := errors.Join(err, err2); err != nil || first.Revision != second.Revision {
					t.Errorf("half a transaction: %d and %d, %v", first.Revision, second.Revision, err)
				}
			})
		}
	})
}

func testReopen(t *testing.T, s persistence.Store, reopen func(persistence.Store) persistence.Store) {
	s = reopen(s) // empty
	out, err := s.Update(t.Context(), commit("ns", "k", "one"), writer(note("ns", "plan", 1)))
	must(t, out, err, false)
	linked := note("ns", "linked", 1)
	linked.References = []persistence.Ref{{Type: persistence.RefDocument, Namespace: "ns", ID: "plan", Revision: 1}}
	put(t, s, linked)
	put(t, s, note("ns", "plan", 2))
	put(t, s, grave("ns", "gone", 1))
	open, whole := pending("ns", "open", 100, "x"), pending("ns", "whole", 1000, "y")
	do(t, s, begins(open), moves(open, persistence.UploadReceived))
	committed(t, s, whole)
	purged := pending("ns", "purged", 1, "z")
	committed(t, s, purged)
	put(t, s, note("ns", "holes", 1), note("ns", "holes", 2), note("ns", "holes", 3))
	do(t, s, purges("ns", "holes", 2), purgesArtifact(purged))
	want := usage(t, s, "ns")
	artifacts := readAll(t, s, open, whole, purged)
	for range 2 {
		s = reopen(s)
		if after := readAll(t, s, open, whole, purged); after != artifacts {
			t.Errorf("reopened\n%s\nwas\n%s", after, artifacts)
		}
		view(t, s, func(r persistence.Reader) {
			uploaded(t, r, open, persistence.UploadReceived)
			uploaded(t, r, purged, persistence.UploadPurged)
			artifact(t, r, whole, true)
			artifact(t, r, purged, false)
			superseded(t, r, "holes", 1, updated(2))
		})
		stored(t, s, note("ns", "plan", 1))
		stored(t, s, note("ns", "plan", 2))
		stored(t, s, linked)
		stored(t, s, grave("ns", "gone", 1))
		listed(t, s, persistence.HeadFilter{IncludeDeleted: true}, "gone", "holes", "linked", "plan")
		if got := usage(t, s, "ns"); got != want {
			t.Errorf("usage is %d, was %d", got, want)
		}
		out, err = s.Update(t.Context(), commit("ns", "k", "one"), never(t))
		must(t, out, err, true)
		if out.ID != "plan" || out.Revision != 1 {
			t.Errorf("replayed %+v", out)
		}
	}
	put(t, s, note("ns", "plan", 3), note("ns", "new", 1))
	stored(t, s, note("ns", "new", 1))
	stored(t, s, linked)
}
