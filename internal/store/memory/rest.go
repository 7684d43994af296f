package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
)

// change runs f with the turn and the lock. f changes nothing when it returns an error.
func (s *Store) change(ctx context.Context, f func() error) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// addRow appends to the audit chain; an empty row is none. The lock is held.
func (s *Store) addRow(row audit.Row) {
	if len(row) == 0 {
		return
	}
	h := s.chainEnd()
	s.chain = append(s.chain, audit.Record{
		Writer: s.writer, Position: h.Position + 1, Row: slices.Clone(row), Hash: audit.Link(h.Hash, row),
	})
}

// chainEnd is the head of the chain, unsigned. The lock is held.
func (s *Store) chainEnd() audit.Head {
	if len(s.chain) == 0 {
		return audit.Head{Writer: s.writer, Hash: audit.Genesis(s.writer)}
	}
	last := s.chain[len(s.chain)-1]
	return audit.Head{Writer: s.writer, Position: last.Position, Hash: last.Hash}
}

// AppendAudit implements audit.Log.
func (s *Store) AppendAudit(ctx context.Context, rows []audit.Row) error {
	return s.change(ctx, func() error {
		for _, r := range rows {
			s.addRow(r)
		}
		return nil
	})
}

// AuditHead implements audit.Log.
func (s *Store) AuditHead(context.Context) (h audit.Head, err error) {
	s.locked(func() { h = s.chainEnd() })
	return h, nil
}

// AddAuditHead implements audit.Log.
func (s *Store) AddAuditHead(ctx context.Context, h audit.Head) error {
	return s.change(ctx, func() error {
		same := func(o audit.Head) bool { return o.Writer == h.Writer && o.Position == h.Position }
		if !slices.ContainsFunc(s.heads, same) {
			s.heads = append(s.heads, h)
		}
		return nil
	})
}

// AuditHeads implements audit.Log.
func (s *Store) AuditHeads(context.Context) (heads []audit.Head, err error) {
	newest := map[string]audit.Head{}
	s.locked(func() {
		for _, h := range s.heads {
			if h.Position >= newest[h.Writer].Position {
				newest[h.Writer] = h
			}
		}
	})
	heads = slices.Collect(maps.Values(newest))
	slices.SortFunc(heads, func(a, b audit.Head) int { return strings.Compare(a.Writer, b.Writer) })
	return heads, nil
}

// AuditRows implements audit.Log.
func (s *Store) AuditRows(_ context.Context, writer string, after int64, limit int) (records []audit.Record, err error) {
	s.locked(func() {
		for _, r := range s.chain {
			if r.Writer == writer && r.Position > after && len(records) < limit {
				records = append(records, r)
			}
		}
	})
	return records, nil
}

// AuditWriters implements audit.Log.
func (s *Store) AuditWriters(context.Context) (names []string, err error) {
	s.locked(func() {
		if len(s.chain) > 0 {
			names = []string{s.writer}
		}
	})
	return names, nil
}

// find gives the keys for which is holds, in the order they are listed. The lock is not held.
func (s *Store) find(is func(identity.Key) bool) (keys []identity.Key) {
	s.locked(func() {
		for _, k := range s.keys {
			if is(k) {
				keys = append(keys, cloneKey(k))
			}
		}
	})
	slices.SortFunc(keys, byCreation)
	return keys
}

// cloneKey copies a key, so that no caller shares memory with the store.
func cloneKey(k identity.Key) identity.Key {
	k.Roles, k.Only, k.Workspaces = slices.Clone(k.Roles), slices.Clone(k.Only), slices.Clone(k.Workspaces)
	for _, at := range []*time.Time{&k.CreatedAt, &k.ExpiresAt, &k.RevokedAt, &k.LastUsedAt} {
		*at = at.UTC().Round(0)
	}
	return k
}

// KeysByHint implements identity.Keys.
func (s *Store) KeysByHint(_ context.Context, hint string) ([]identity.Key, error) {
	return s.find(func(k identity.Key) bool { return k.Hint == hint }), nil
}

// Key implements identity.Keys.
func (s *Store) Key(_ context.Context, id string) (identity.Key, error) {
	for _, k := range s.find(func(k identity.Key) bool { return k.ID == id }) {
		return k, nil
	}
	return identity.Key{}, identity.ErrKeyUnknown
}

// ListKeys implements identity.Keys.
func (s *Store) ListKeys(context.Context) ([]identity.Key, error) {
	return s.find(func(identity.Key) bool { return true }), nil
}

// AddKey implements identity.Keys.
func (s *Store) AddKey(ctx context.Context, k identity.Key, maxLive int, now time.Time, row []byte) error {
	return s.change(ctx, func() error {
		live := 0
		for _, other := range s.keys {
			if other.User == k.User && other.Live(now) {
				live++
			}
		}
		if live >= maxLive {
			return identity.ErrTooManyKeys
		}
		if _, ok := s.keys[k.ID]; ok {
			return fmt.Errorf("a key with the id %s exists", k.ID)
		}
		s.keys[k.ID] = cloneKey(k)
		s.addRow(row)
		return nil
	})
}

// changed gives the stored key after change. The lock is held, so change must not call the store.
func (s *Store) changed(id string, change func(*identity.Key) error) (identity.Key, error) {
	k, ok := s.keys[id]
	if !ok {
		return k, identity.ErrKeyUnknown
	}
	k = cloneKey(k)
	err := change(&k)
	k.ID = id
	return cloneKey(k), err
}

// UpdateKey implements identity.Keys. The id cannot be changed.
func (s *Store) UpdateKey(ctx context.Context, id string, row []byte, change func(*identity.Key) error) error {
	return s.change(ctx, func() error {
		k, err := s.changed(id, change)
		if err != nil {
			return err
		}
		s.keys[id] = k
		s.addRow(row)
		return nil
	})
}

// ReplaceKey implements identity.Keys.
func (s *Store) ReplaceKey(ctx context.Context, id string, row []byte, change func(*identity.Key) error, next identity.Key) error {
	return s.change(ctx, func() error {
		k, err := s.changed(id, change)
		if err != nil {
			return err
		}
		if _, ok := s.keys[next.ID]; ok {
			return fmt.Errorf("a key with the id %s exists", next.ID)
		}
		s.keys[id], s.keys[next.ID] = k, cloneKey(next)
		s.addRow(row)
		return nil
	})
}

// PruneKeys implements identity.Keys. The ids are in the order of creation; without any, row is not called.
func (s *Store) PruneKeys(ctx context.Context, before time.Time, row func(ids []string) []byte) (ids []string, err error) {
	ended := func(at time.Time) bool { return !at.IsZero() && at.Before(before) }
	err = s.change(ctx, func() error {
		for _, k := range slices.SortedFunc(maps.Values(s.keys), byCreation) {
			if ended(k.RevokedAt) || ended(k.ExpiresAt) {
				ids = append(ids, k.ID)
			}
		}
		if len(ids) > 0 && row != nil {
			s.addRow(row(ids))
		}
		for _, id := range ids {
			delete(s.keys, id)
		}
		return nil
	})
	return ids, err
}

// TouchKeys implements identity.Keys. Uses of keys that are gone are dropped.
func (s *Store) TouchKeys(ctx context.Context, uses []identity.KeyUse) error {
	return s.change(ctx, func() error {
		for _, u := range uses {
			k, ok := s.keys[u.ID]
			if !ok {
				continue
			}
			k.UseCount += u.Count
			if u.At.After(k.LastUsedAt) {
				k.LastUsedAt = u.At
			}
			s.keys[u.ID] = cloneKey(k)
		}
		return nil
	})
}

// SealKeys implements seal.Keyring. Newest is what was added last, whatever the clock said.
func (s *Store) SealKeys(context.Context) (keys []seal.Key, err error) {
	s.locked(func() { keys = slices.Clone(s.seals) })
	slices.Reverse(keys)
	return keys, nil
}

// AddSealKey implements seal.Keyring. k itself is kept, however old it is.
func (s *Store) AddSealKey(ctx context.Context, k seal.Key, forget time.Time) error {
	k.Created = k.Created.UTC().Round(0)
	return s.change(ctx, func() error {
		if slices.ContainsFunc(s.seals, func(o seal.Key) bool { return o.ID == k.ID }) {
			return fmt.Errorf("a sealing key with the id %d exists", k.ID)
		}
		s.seals = slices.DeleteFunc(s.seals, func(o seal.Key) bool { return o.Created.Before(forget) })
		s.seals = append(s.seals, k)
		return nil
	})
}

// Once implements gate.Once. At the time until, an id counts as forgotten.
func (s *Store) Once(ctx context.Context, id string, until time.Time) (first bool, err error) {
	err = s.change(ctx, func() error {
		now := s.clock.Now()
		maps.DeleteFunc(s.nonces, func(_ string, until time.Time) bool { return !until.After(now) })
		if _, held := s.nonces[id]; !held {
			first = true
			s.nonces[id] = until
		}
		return nil
	})
	return first, err
}
