// Package storecheck holds, as tests, the promises of the smaller interfaces that stores implement beside
// persistence.Store: audit.Log, identity.Keys, seal.Keyring and gate.Once. It also compares two stores under the same
// random calls.
package storecheck

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// Store is what every store of ours implements.
type Store interface {
	persistence.Store
	audit.Log
	identity.Keys
	seal.Keyring
	gate.Once
}

// Suite says how a store is opened.
type Suite struct {
	// Open gives a new, empty store that uses the clock, closed at the end of its test.
	Open func(*testing.T, clock.Clock) Store
	// Reopen closes a store and opens what it kept. Nil: it keeps nothing.
	Reopen func(*testing.T, Store, clock.Clock) Store
}

// start is the time at which the clock of most tests stands.
var start = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// Run runs all tests.
func Run(t *testing.T, s Suite) {
	for name, test := range map[string]func(*testing.T, *env){
		"AuditChain":       testAuditChain,
		"AuditWithEffects": testAuditWithEffects,
		"AuditAtOnce":      testAuditAtOnce,
		"AuditHeads":       testAuditHeads,
		"Keys":             testKeys,
		"KeyLimit":         testKeyLimit,
		"KeyLimitAtOnce":   testKeyLimitAtOnce,
		"KeyFailures":      testKeyFailures,
		"KeyReplace":       testKeyReplace,
		"KeyPrune":         testKeyPrune,
		"KeyTouch":         testKeyTouch,
		"SealKeys":         testSealKeys,
		"Once":             testOnce,
		"OnceAtOnce":       testOnceAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			e := &env{suite: s, clock: clock.NewManual(start)}
			e.Store = s.Open(t, e.clock)
			test(t, e)
		})
	}
}

// env is one test's store and its clock.
type env struct {
	Store
	suite Suite
	clock *clock.Manual
}

// reopen closes and opens the store, if it keeps anything, and tells whether it did.
func (e *env) reopen(t *testing.T) bool {
	if e.suite.Reopen == nil {
		return false
	}
	e.Store = e.suite.Reopen(t, e.Store, e.clock)
	return true
}

// check fails the test on an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rows reads the whole chain of the present writer, in pages, and verifies it.
func (e *env) rows(t *testing.T) (rows []string) {
	t.Helper()
	h, err := e.AuditHead(t.Context())
	check(t, err)
	hash := audit.Genesis(h.Writer)
	for {
		page, err := e.AuditRows(t.Context(), h.Writer, int64(len(rows)), 3)
		check(t, err)
		for _, r := range page {
			hash = audit.Link(hash, r.Row)
			rows = append(rows, string(r.Row))
			if r.Writer != h.Writer || r.Position != int64(len(rows)) || r.Hash != hash {
				t.Fatalf("record %d: %s %d, chained %v", len(rows), r.Writer, r.Position, r.Hash == hash)
			}
		}
		if len(page) < 3 {
			break
		}
	}
	if h.Position != int64(len(rows)) || h.Hash != hash {
		t.Fatalf("the head is at %d, the rows end at %d", h.Position, len(rows))
	}
	return rows
}

// chained fails when the chain of the present writer is not as wanted.
func (e *env) chained(t *testing.T, want ...string) {
	t.Helper()
	if got := e.rows(t); !slices.Equal(got, want) {
		t.Fatalf("audit rows\n got %q\nwant %q", got, want)
	}
}

func testAuditChain(t *testing.T, e *env) {
	e.chained(t)
	if w, err := e.AuditWriters(t.Context()); err != nil || len(w) != 0 {
		t.Errorf("writers before the first row: %q %v", w, err)
	}
	check(t, e.AppendAudit(t.Context(), []audit.Row{audit.Row(`{"n":1}`), audit.Row(`{"n":2}`)}))
	check(t, e.AppendAudit(t.Context(), nil))
	check(t, e.AppendAudit(t.Context(), []audit.Row{audit.Row(`{"n":3}`), audit.Row(`{"n":3}`)}))
	want := []string{`{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":3}`}
	e.chained(t, want...)
	first, err := e.AuditHead(t.Context())
	check(t, err)
	if got, err := e.AuditRows(t.Context(), "nobody", 0, 10); err != nil || len(got) > 0 {
		t.Errorf("rows of an unknown writer: %d %v", len(got), err)
	}
	if !e.reopen(t) {
		return
	}
	e.chained(t) // a process is a new writer
	check(t, e.AppendAudit(t.Context(), []audit.Row{audit.Row(`{"n":9}`)}))
	e.chained(t, `{"n":9}`)
	second, err := e.AuditHead(t.Context())
	check(t, err)
	writers, err := e.AuditWriters(t.Context())
	check(t, err)
	both := []string{first.Writer, second.Writer}
	slices.Sort(both)
	if first.Writer == second.Writer || !slices.Equal(writers, both) {
		t.Errorf("writers %q, want %q", writers, both)
	}
	old, err := e.AuditRows(t.Context(), first.Writer, 0, 100)
	check(t, err)
	if len(old) != len(want) || old[len(old)-1].Hash != first.Hash {
		t.Errorf("the chain of the earlier writer has %d rows", len(old))
	}
}

// errMine is an error of a callback.
var errMine = errors.New("mine")

func testAuditWithEffects(t *testing.T, e *env) {
	ctx := t.Context()
	c := persistence.Commit{Namespace: "ns", Key: "k", Now: start}
	c.Seal = func(o persistence.Outcome) audit.Row { return fmt.Appendf(nil, `{"revision":%d}`, o.Revision) }
	write := func(tx persistence.Tx) (persistence.Outcome, error) {
		d := &persistence.Document{
			Namespace: "ns", ID: "a", Kind: "k", SchemaVersion: "1", Revision: 1, CreatedAt: start, UpdatedAt: start, Payload: []byte("1"),
		}
		return persistence.Outcome{ID: "a", Revision: 1}, tx.PutRevision(d)
	}
	_, err := e.Update(ctx, c, write)
	check(t, err)
	e.chained(t, `{"revision":1}`)
	out, err := e.Update(ctx, c, write) // a replay writes nothing
	check(t, err)
	if !out.Replayed {
		t.Error("no replay")
	}
	fails := c
	fails.Key = "other"
	_, err = e.Update(ctx, fails, func(tx persistence.Tx) (persistence.Outcome, error) { return persistence.Outcome{}, errMine })
	if err != errMine {
		t.Error(err)
	}
	fails.Fingerprint, fails.Key = sha256.Sum256(nil), "k"
	if _, err = e.Update(ctx, fails, write); !errors.Is(err, persistence.ErrKeyConflict) {
		t.Error(err)
	}
	c.Seal, c.Key = nil, "none"
	_, err = e.Update(ctx, c, func(persistence.Tx) (persistence.Outcome, error) { return persistence.Outcome{}, nil })
	check(t, err)
	e.chained(t, `{"revision":1}`)
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

// testAuditAtOnce has effects, failures and rows of no effect at once: each success has one row, in a chain without
// gaps, and failures have none.
func testAuditAtOnce(t *testing.T, e *env) {
	const each = 10
	atOnce(func(client int) {
		for i := range each {
			name := fmt.Sprintf(`{"by":"%d-%d"}`, client, i)
			if client%3 == 0 {
				if err := e.AppendAudit(t.Context(), []audit.Row{audit.Row(name)}); err != nil {
					t.Error(err)
				}
				continue
			}
			c := persistence.Commit{Namespace: "ns", Now: start, Seal: func(persistence.Outcome) audit.Row { return audit.Row(name) }}
			_, err := e.Update(t.Context(), c, func(tx persistence.Tx) (persistence.Outcome, error) {
				d := &persistence.Document{
					Namespace: "ns", ID: fmt.Sprint(client, "-", i), Kind: "k", SchemaVersion: "1", Revision: 1,
					CreatedAt: start, UpdatedAt: start, Payload: []byte("1"),
				}
				if err := tx.PutRevision(d); err != nil || client%3 == 2 {
					return persistence.Outcome{}, errors.Join(err, errMine)
				}
				return persistence.Outcome{ID: d.ID, Revision: 1}, nil
			})
			if (err == nil) != (client%3 == 1) {
				t.Error(err)
			}
		}
	})
	count := map[string]int{}
	for _, r := range e.rows(t) {
		count[r]++
	}
	for client := range clients {
		for i := range each {
			want := 1
			if client%3 == 2 {
				want = 0
			}
			if name := fmt.Sprintf(`{"by":"%d-%d"}`, client, i); count[name] != want {
				t.Errorf("%d rows %s, want %d", count[name], name, want)
			}
		}
	}
}

func testAuditHeads(t *testing.T, e *env) {
	ctx := t.Context()
	h := func(writer string, position int64, signature string) audit.Head {
		return audit.Head{
			Writer: writer, Position: position, Hash: sha256.Sum256([]byte(signature)), At: start, Signature: []byte(signature),
			Cites: []audit.Cite{{Writer: "z", Position: 7, Hash: sha256.Sum256([]byte("z"))}},
		}
	}
	for _, head := range []audit.Head{h("b", 1, "b1"), h("a", 5, "a5"), h("b", 9, "b9"), h("b", 3, "b3"), h("b", 9, "again")} {
		check(t, e.AddAuditHead(ctx, head))
	}
	zero := audit.Head{Writer: "c", Signature: []byte{0}}
	check(t, e.AddAuditHead(ctx, zero))
	for again := true; again; again = e.Store != nil && e.reopenOnce(t) {
		got, err := e.AuditHeads(ctx)
		check(t, err)
		if want := []audit.Head{h("a", 5, "a5"), h("b", 9, "b9"), zero}; !reflect.DeepEqual(got, want) {
			t.Errorf("heads\n got %+v\nwant %+v", got, want)
		}
	}
}

// reopenOnce is reopen, the first time.
func (e *env) reopenOnce(t *testing.T) bool {
	done := e.reopen(t)
	e.suite.Reopen = nil
	return done
}

// key is an API key with every field set.
func key(id, user string) identity.Key {
	return identity.Key{
		ID: id, User: user, Name: "name of " + id, Hint: "hint" + id[:1], Digest: sha256.Sum256([]byte(id)),
		Roles: []string{"reader", "writer"}, Only: []string{"persistence.read@/**"}, Tenant: "t", Workspaces: []string{"w", "x"},
		CreatedAt: start, ExpiresAt: start.Add(time.Hour), LastUsedAt: start, UseCount: 3,
	}
}

// hasKeys fails when the keys are not as wanted, in order.
func (e *env) hasKeys(t *testing.T, want ...identity.Key) {
	t.Helper()
	got, err := e.ListKeys(t.Context())
	check(t, err)
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("keys\n got %+v\nwant %+v", got, want)
	}
}

func testKeys(t *testing.T, e *env) {
	ctx := t.Context()
	e.hasKeys(t)
	if _, err := e.Key(ctx, "a1"); !errors.Is(err, identity.ErrKeyUnknown) {
		t.Errorf("unknown key: %v", err)
	}
	late, early, bare := key("a1", "ana"), key("b1", "ben"), identity.Key{ID: "a0", User: "ana", CreatedAt: start}
	late.CreatedAt = start.Add(time.Nanosecond)
	narrow := key("c1", "ana")
	narrow.Only, narrow.CreatedAt = []string{}, start.Add(time.Second) // nothing is not the same as no narrowing
	for _, k := range []identity.Key{late, early, bare, narrow} {
		check(t, e.AddKey(ctx, k, 10, start, []byte(`{"add":"`+k.ID+`"}`)))
	}
	e.chained(t, `{"add":"a1"}`, `{"add":"b1"}`, `{"add":"a0"}`, `{"add":"c1"}`)
	for again := true; again; again = e.reopenOnce(t) {
		e.hasKeys(t, bare, early, late, narrow)
		if k, err := e.Key(ctx, "c1"); err != nil || k.Only == nil || len(k.Only) != 0 {
			t.Errorf("an empty narrowing became %#v (%v)", k.Only, err)
		}
		if k, err := e.Key(ctx, "a0"); err != nil || k.Only != nil || !k.ExpiresAt.IsZero() {
			t.Errorf("no narrowing became %#v (%v)", k.Only, err)
		}
		byHint, err := e.KeysByHint(ctx, "hinta")
		check(t, err)
		if len(byHint) != 1 || byHint[0].ID != "a1" {
			t.Errorf("by hint: %+v", byHint)
		}
		if none, err := e.KeysByHint(ctx, "hint"); err != nil || len(none) > 0 {
			t.Errorf("by half a hint: %+v %v", none, err)
		}
	}
	check(t, e.UpdateKey(ctx, "b1", nil, func(k *identity.Key) error {
		k.RevokedAt, k.Reason = start.Add(time.Minute), "lost"
		return nil
	}))
	early.RevokedAt, early.Reason = start.Add(time.Minute), "lost"
	e.hasKeys(t, bare, early, late, narrow)
}

func testKeyLimit(t *testing.T, e *env) {
	ctx := t.Context()
	for _, id := range []string{"a", "b"} {
		check(t, e.AddKey(ctx, key(id, "ana"), 2, start, nil))
	}
	err := e.AddKey(ctx, key("c", "ana"), 2, start, []byte(`{"no":1}`))
	if !errors.Is(err, identity.ErrTooManyKeys) {
		t.Errorf("a third key: %v", err)
	}
	check(t, e.AddKey(ctx, key("d", "ben"), 2, start, nil))                // others do not count
	check(t, e.AddKey(ctx, key("e", "ana"), 2, start.Add(time.Hour), nil)) // expired ones do not count
	check(t, e.UpdateKey(ctx, "a", nil, func(k *identity.Key) error { k.RevokedAt = start; return nil }))
	check(t, e.UpdateKey(ctx, "e", nil, func(k *identity.Key) error { k.RevokedAt = start; return nil }))
	check(t, e.AddKey(ctx, key("f", "ana"), 2, start, nil)) // revoked ones do not count
	e.chained(t)
}

func testKeyLimitAtOnce(t *testing.T, e *env) {
	var added atomic.Int64
	atOnce(func(client int) {
		err := e.AddKey(t.Context(), key(fmt.Sprintf("%02d", client), "ana"), 5, start, []byte(`{"add":1}`))
		if err == nil {
			added.Add(1)
		} else if !errors.Is(err, identity.ErrTooManyKeys) {
			t.Error(err)
		}
	})
	keys, err := e.ListKeys(t.Context())
	check(t, err)
	if added.Load() != 5 || len(keys) != 5 || len(e.rows(t)) != 5 {
		t.Errorf("%d added, %d keys, %d rows; want 5 of each", added.Load(), len(keys), len(e.rows(t)))
	}
}

func testKeyFailures(t *testing.T, e *env) {
	ctx := t.Context()
	check(t, e.AddKey(ctx, key("a", "ana"), 9, start, nil))
	row := []byte(`{"never":1}`)
	set := func(k *identity.Key) error { k.Reason = "changed"; return nil }
	spoil := func(k *identity.Key) error { k.Reason = "changed"; return errMine }
	if err := e.AddKey(ctx, key("a", "ben"), 9, start, row); err == nil {
		t.Error("an id was given twice")
	}
	if err := e.UpdateKey(ctx, "a", row, spoil); err != errMine {
		t.Errorf("update: %v, want the very error of change", err)
	}
	if err := e.UpdateKey(ctx, "b", row, set); !errors.Is(err, identity.ErrKeyUnknown) {
		t.Errorf("update of an unknown key: %v", err)
	}
	if err := e.ReplaceKey(ctx, "b", row, set, key("c", "ana")); !errors.Is(err, identity.ErrKeyUnknown) {
		t.Errorf("replacement of an unknown key: %v", err)
	}
	if err := e.ReplaceKey(ctx, "a", row, spoil, key("c", "ana")); err != errMine {
		t.Errorf("replacement: %v, want the very error of change", err)
	}
	if err := e.ReplaceKey(ctx, "a", row, set, key("a", "ana")); err == nil {
		t.Error("an id was replaced by itself")
	}
	e.hasKeys(t, key("a", "ana"))
	e.chained(t)
}

func testKeyReplace(t *testing.T, e *env) {
	ctx := t.Context()
	check(t, e.AddKey(ctx, key("a", "ana"), 9, start, nil))
	check(t, e.ReplaceKey(ctx, "a", []byte(`{"rotated":1}`), func(k *identity.Key) error {
		k.RotatedTo, k.ExpiresAt = "b", start.Add(time.Minute)
		return nil
	}, key("b", "ana")))
	old := key("a", "ana")
	old.RotatedTo, old.ExpiresAt = "b", start.Add(time.Minute)
	e.chained(t, `{"rotated":1}`)
	e.hasKeys(t, old, key("b", "ana"))
	if e.reopen(t) {
		e.hasKeys(t, old, key("b", "ana"))
	}
}

func testKeyPrune(t *testing.T, e *env) {
	ctx := t.Context()
	revoked, expired, both, live := key("a", "ana"), key("b", "ana"), key("c", "ana"), key("d", "ana")
	revoked.RevokedAt = start.Add(-time.Nanosecond)
	expired.ExpiresAt = start.Add(-time.Hour)
	both.RevokedAt, both.ExpiresAt = start.Add(time.Second), start.Add(-time.Second)
	live.ExpiresAt = start // at the time is not before it
	forever := identity.Key{ID: "e", CreatedAt: start.Add(-time.Hour)}
	for _, k := range []identity.Key{both, live, revoked, expired, forever} {
		check(t, e.AddKey(ctx, k, 9, start, nil))
	}
	var told []string
	tell := func(ids []string) []byte { told = slices.Clone(ids); return []byte(`{"pruned":1}`) }
	ids, err := e.PruneKeys(ctx, start, tell)
	check(t, err)
	if want := []string{"a", "b", "c"}; !slices.Equal(ids, want) || !slices.Equal(told, want) {
		t.Errorf("pruned %q, told %q", ids, told)
	}
	e.hasKeys(t, forever, live)
	ids, err = e.PruneKeys(ctx, start, func([]string) []byte { t.Error("row was asked for"); return nil })
	if err != nil || len(ids) > 0 {
		t.Errorf("nothing to prune: %q %v", ids, err)
	}
	e.chained(t, `{"pruned":1}`)
}

func testKeyTouch(t *testing.T, e *env) {
	ctx := t.Context()
	check(t, e.AddKey(ctx, key("a", "ana"), 9, start, nil))
	check(t, e.TouchKeys(ctx, nil))
	check(t, e.TouchKeys(ctx, []identity.KeyUse{
		{ID: "a", At: start.Add(time.Minute), Count: 4}, {ID: "gone", At: start, Count: 1}, {ID: "a", At: start.Add(time.Second), Count: 1},
	}))
	want := key("a", "ana")
	want.UseCount, want.LastUsedAt = 8, start.Add(time.Minute)
	e.hasKeys(t, want)
	e.chained(t)
}

func testSealKeys(t *testing.T, e *env) {
	ctx := t.Context()
	k := func(id uint32, at time.Duration) seal.Key {
		return seal.Key{ID: id, Secret: sha256.Sum256([]byte{byte(id)}), Created: start.Add(at)}
	}
	has := func(want ...seal.Key) {
		t.Helper()
		got, err := e.SealKeys(ctx)
		check(t, err)
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("keys\n got %v\nwant %v", got, want)
		}
	}
	has()
	check(t, e.AddSealKey(ctx, k(1<<32-1, 0), time.Time{}))
	check(t, e.AddSealKey(ctx, k(7, time.Hour), start)) // made at the time is not made before it
	check(t, e.AddSealKey(ctx, k(3, -time.Hour), start.Add(-time.Hour)))
	want := []seal.Key{k(3, -time.Hour), k(7, time.Hour), k(1<<32-1, 0)} // newest is added last, whatever the clock said
	has(want...)
	if err := e.AddSealKey(ctx, k(7, 2*time.Hour), start.Add(time.Hour)); err == nil {
		t.Error("an id was given twice")
	}
	has(want...) // and nothing was forgotten
	if e.reopen(t) {
		has(want...)
	}
	check(t, e.AddSealKey(ctx, k(8, 0), start.Add(time.Minute))) // itself older than what is forgotten: kept
	has(k(8, 0), k(7, time.Hour))
}

func testOnce(t *testing.T, e *env) {
	once := func(id string, life time.Duration, want bool) {
		t.Helper()
		if first, err := e.Once(t.Context(), id, e.clock.Now().Add(life)); err != nil || first != want {
			t.Errorf("%s: first %v, error %v; want %v", id, first, err, want)
		}
	}
	once("a", time.Minute, true)
	once("a", time.Minute, false)
	once("A", time.Minute, true)
	once("", time.Minute, true)
	e.reopen(t)
	once("a", time.Hour, false) // asking again does not prolong
	e.clock.Advance(time.Minute - time.Microsecond)
	once("a", time.Minute, false)
	e.clock.Advance(time.Microsecond)
	once("a", time.Minute, true)
	for i := range 40 {
		once(fmt.Sprint("n", i), time.Second, true)
	}
	e.clock.Advance(2 * time.Second)
	for i := range 40 {
		once(fmt.Sprint("n", i), time.Second, true)
		once(fmt.Sprint("n", i), time.Second, false)
	}
	once("a", time.Minute, false)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if first, err := e.Once(ended, "c", e.clock.Now().Add(time.Minute)); err == nil || first {
		t.Errorf("with an ended context: first %v, error %v", first, err)
	}
}

func testOnceAtOnce(t *testing.T, e *env) {
	for round := range 5 {
		var firsts atomic.Int64
		atOnce(func(int) {
			first, err := e.Once(t.Context(), fmt.Sprint(round), start.Add(time.Hour))
			if err != nil {
				t.Error(err)
			}
			if first {
				firsts.Add(1)
			}
		})
		if firsts.Load() != 1 {
			t.Errorf("%d were first", firsts.Load())
		}
	}
}
