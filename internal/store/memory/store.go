// Package memory is the reference store: the promises of persistence.Store and of the smaller interfaces beside it,
// kept in maps. It is as simple as can be, so that one can see that it is right; other stores are compared with it.
//
// It is not durable: everything is gone when the process ends. Use it in tests.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// Store keeps everything in memory. Make one with New. All methods are safe for concurrent use.
type Store struct {
	clock clock.Clock
	turn  chan struct{} // holds one token; whoever has it may write

	mu      sync.Mutex // guards all below, for as long as one read or write takes
	commits int64      // number of the last commit
	names   map[string]*namespace
	// artifacts and uploads are in the order they were written; of an upload there is one for each state it had.
	artifacts []*kept[persistence.Artifact]
	uploads   []*kept[persistence.Upload]
	records   map[recordName]record
	keys      map[string]identity.Key
	seals     []seal.Key // oldest first
	nonces    map[string]time.Time
	writer    string
	chain     []audit.Record
	heads     []audit.Head
}

// The parts of the system that this store serves.
var (
	_ persistence.Store = (*Store)(nil)
	_ identity.Keys     = (*Store)(nil)
	_ audit.Log         = (*Store)(nil)
	_ seal.Keyring      = (*Store)(nil)
)

// namespace holds the documents of one namespace.
type namespace struct {
	ids       []string // of all documents, in byte order
	revisions map[string][]*version
}

// version is a revision; a purged one stays for the snapshots that see it.
type version = kept[persistence.Document]

// kept is a value that never changes, with the numbers of the commits that wrote and removed it. A snapshot sees the
// commits up to its number.
type kept[T any] struct {
	born, gone int64 // gone is 0 while the value exists
	value      *T
}

// seen tells whether the value exists in a snapshot.
func (k *kept[T]) seen(snapshot int64) bool {
	return k.born <= snapshot && (k.gone == 0 || k.gone > snapshot)
}

// recordName is where an idempotency record is found.
type recordName struct{ namespace, key string }

// record is an idempotency record.
type record struct {
	fingerprint [32]byte
	at          time.Time
	outcome     persistence.Outcome
}

// New makes an empty store. c judges once-only ids; nil is the machine's clock.
func New(c clock.Clock) *Store {
	if c == nil {
		c = clock.System{}
	}
	s := &Store{
		clock: c, turn: make(chan struct{}, 1), writer: "memory",
		names: map[string]*namespace{}, records: map[recordName]record{},
		keys: map[string]identity.Key{}, nonces: map[string]time.Time{},
	}
	s.turn <- struct{}{}
	return s
}

// begin waits for the turn to write. The caller gives it back with end.
func (s *Store) begin(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case <-s.turn:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("%w: %w", persistence.ErrBusy, ctx.Err())
}

// end gives the turn back.
func (s *Store) end() { s.turn <- struct{}{} }

// locked runs f with the lock held.
func (s *Store) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Update implements persistence.Store.
func (s *Store) Update(ctx context.Context, c persistence.Commit, fn func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	if err := s.begin(ctx); err != nil {
		return persistence.Outcome{}, err
	}
	defer s.end()
	if out, known, err := s.recorded(c); known || err != nil {
		return out, err
	}
	t := &tx{reader: reader{s: s, snapshot: s.commits + 1}}
	committed := false
	defer func() { // also when fn panics
		t.s = nil
		if !committed {
			s.locked(func() { t.undoAll() })
		}
	}()
	out, err := fn(t)
	if err != nil {
		return persistence.Outcome{}, err
	}
	out.Replayed = false
	var row audit.Row
	if c.Seal != nil {
		row = c.Seal(out)
	}
	s.locked(func() {
		s.commits++
		if c.Key != "" {
			kept := out
			kept.Value = slices.Clone(out.Value)
			s.records[recordName{c.Namespace, c.Key}] = record{c.Fingerprint, micros(c.Now), kept}
		}
		s.addRow(row)
	})
	committed = true
	return out, nil
}

// recorded looks up the record of a key.
func (s *Store) recorded(c persistence.Commit) (out persistence.Outcome, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[recordName{c.Namespace, c.Key}]
	switch {
	case c.Key == "" || !ok || r.at.Before(micros(c.Forget)):
		return out, false, nil
	case r.fingerprint != c.Fingerprint:
		return out, false, persistence.ErrKeyConflict
	}
	out = r.outcome
	out.Value = slices.Clone(out.Value)
	out.Replayed = true
	return out, true, nil
}

// micros is the precision that the time of a record has.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// View implements persistence.Store.
func (s *Store) View(ctx context.Context, fn func(persistence.Reader) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", persistence.ErrBusy, err)
	}
	r := &reader{s: s}
	s.locked(func() { r.snapshot = s.commits })
	defer func() { r.s = nil }()
	return fn(r)
}

// errOver is what a Reader or Tx answers after its function has returned.
var errOver = errors.New("the transaction is over")

// reader implements persistence.Reader for one snapshot.
type reader struct {
	s        *Store // nil when the transaction is over
	snapshot int64
}

// versions gives the revisions of a document that the snapshot sees, ascending. The lock is held.
func (r *reader) versions(name, id string) (seen []*version) {
	n := r.s.names[name]
	if n == nil {
		return nil
	}
	for _, v := range n.revisions[id] {
		if v.seen(r.snapshot) {
			seen = append(seen, v)
		}
	}
	return seen
}

// head gives the newest revision, nil when there is none. The lock is held.
func (r *reader) head(name, id string) *persistence.Document {
	v := r.versions(name, id)
	if len(v) == 0 {
		return nil
	}
	return v[len(v)-1].value
}

// look runs f with the lock held, unless the transaction is over.
func (r *reader) look(f func()) error {
	s := r.s
	if s == nil {
		return errOver
	}
	s.locked(f)
	return nil
}

// Head implements persistence.Reader.
func (r *reader) Head(name, id string) (h persistence.Head, ok bool, err error) {
	err = r.look(func() {
		if d := r.head(name, id); d != nil {
			ok = true
			h = persistence.Head{
				Revision: d.Revision, Deleted: d.Deleted, Kind: d.Kind, SchemaVersion: d.SchemaVersion,
				CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
			}
		}
	})
	return h, ok, err
}

// Revision implements persistence.Reader.
func (r *reader) Revision(name, id string, revision int64) (d *persistence.Document, ok bool, err error) {
	err = r.look(func() {
		for _, v := range r.versions(name, id) {
			if v.value.Revision == revision {
				d = clone(v.value)
			}
		}
	})
	return d, d != nil, err
}

// HeadDocument implements persistence.Reader.
func (r *reader) HeadDocument(name, id string) (d *persistence.Document, ok bool, err error) {
	err = r.look(func() { d = clone(r.head(name, id)) })
	return d, d != nil, err
}

// Live implements persistence.Reader.
func (r *reader) Live(ref persistence.Ref) (bool, error) {
	if ref.Type != persistence.RefDocument {
		_, ok, err := r.Artifact(ref.Namespace, ref.ID)
		return ok, err
	}
	d, ok, err := r.Revision(ref.Namespace, ref.ID, ref.Revision)
	return ok && !d.Deleted, err
}

// Heads implements persistence.Reader.
func (r *reader) Heads(name string, f persistence.HeadFilter) (docs []*persistence.Document, more bool, err error) {
	err = r.look(func() {
		n := r.s.names[name]
		if n == nil {
			return
		}
		var found []*persistence.Document
		for _, id := range n.ids {
			d := r.head(name, id)
			if d == nil || id <= f.After || f.Kind != "" && d.Kind != f.Kind || d.Deleted && !f.IncludeDeleted {
				continue
			}
			found = append(found, d)
		}
		docs, more = page(found, f.Limit, f.MaxBytes)
	})
	return docs, more, err
}

// Revisions implements persistence.Reader.
func (r *reader) Revisions(name, id string, after int64, limit, maxBytes int) (docs []*persistence.Document, more bool, err error) {
	err = r.look(func() {
		var found []*persistence.Document
		for _, v := range r.versions(name, id) {
			if v.value.Revision > after {
				found = append(found, v.value)
			}
		}
		docs, more = page(found, limit, maxBytes)
	})
	return docs, more, err
}

// page gives copies of the first documents, within the bounds, and tells whether there are further ones.
func page(found []*persistence.Document, limit, maxBytes int) (docs []*persistence.Document, more bool) {
	bytes := 0
	for _, d := range found {
		bytes += len(d.Payload)
		if len(docs) >= max(limit, 1) || len(docs) > 0 && maxBytes > 0 && bytes > maxBytes {
			return docs, true
		}
		docs = append(docs, clone(d))
	}
	return docs, false
}

// tx implements persistence.Tx. It reads at the number that its commit will have, and so sees its own writes.
type tx struct {
	reader
	undo []func() // newest last
}

// undoAll takes back what was written. The lock is held.
func (t *tx) undoAll() {
	for _, f := range slices.Backward(t.undo) {
		f()
	}
}

// PutRevision implements persistence.Tx. Beside the revision's number it insists on what holds of every document: one
// time of creation, and times that do not go back.
func (t *tx) PutRevision(d *persistence.Document) error {
	d = clone(d)
	d.CreatedAt, d.UpdatedAt = persistence.Truncate(d.CreatedAt), persistence.Truncate(d.UpdatedAt)
	var refused error
	err := t.look(func() {
		head := t.head(d.Namespace, d.ID)
		if refused = follows(d, head); refused == nil {
			t.put(d, head == nil)
		}
	})
	return cmp.Or(err, refused)
}

// follows tells whether d may come after the head, which is nil for a new document.
func follows(d, head *persistence.Document) error {
	switch {
	case head == nil && d.Revision != 1, head != nil && d.Revision != head.Revision+1:
		return fmt.Errorf("write revision %d of %s: the head is another", d.Revision, d.ID)
	case head != nil && !d.CreatedAt.Equal(head.CreatedAt):
		return fmt.Errorf("write revision %d of %s: the time of creation differs", d.Revision, d.ID)
	case head != nil && d.UpdatedAt.Before(head.UpdatedAt):
		return fmt.Errorf("write revision %d of %s: it is older than its predecessor", d.Revision, d.ID)
	}
	return nil
}

// put adds the revision. The lock is held.
func (t *tx) put(d *persistence.Document, first bool) {
	n := t.s.names[d.Namespace]
	if n == nil {
		n = &namespace{revisions: map[string][]*version{}}
		t.s.names[d.Namespace] = n
	}
	if first {
		i, _ := slices.BinarySearch(n.ids, d.ID)
		n.ids = slices.Insert(n.ids, i, d.ID)
		t.undo = append(t.undo, func() {
			i, _ := slices.BinarySearch(n.ids, d.ID)
			n.ids = slices.Delete(n.ids, i, i+1)
		})
	}
	n.revisions[d.ID] = append(n.revisions[d.ID], &version{born: t.snapshot, value: d})
	t.undo = append(t.undo, func() { n.revisions[d.ID] = n.revisions[d.ID][:len(n.revisions[d.ID])-1] })
}

// clone copies a document, so that no caller shares memory with the store. Nil stays nil.
func clone(d *persistence.Document) *persistence.Document {
	if d == nil {
		return nil
	}
	c := *d
	c.Payload = slices.Clone(d.Payload)
	c.References = slices.Clone(d.References)
	return &c
}

// byCreation orders keys as they are listed.
func byCreation(a, b identity.Key) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
}
