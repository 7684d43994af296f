package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/identity"
)

// putKey stores a key that may exist.
func (t *tx) putKey(k identity.Key) error {
	for _, at := range []*time.Time{&k.CreatedAt, &k.ExpiresAt, &k.RevokedAt, &k.LastUsedAt} {
		*at = at.UTC()
	}
	body, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("encode key %s: %w", k.ID, err)
	}
	return t.write("INSERT OR REPLACE INTO api_keys (id, hint, user, body) VALUES (?,?,?,?)", k.ID, k.Hint, k.User, body)
}

// newKey stores a key whose id must be new.
func (t *tx) newKey(k identity.Key) error {
	if _, err := t.key(k.ID); err == nil {
		return fmt.Errorf("a key with the id %s exists", k.ID)
	} else if !errors.Is(err, identity.ErrKeyUnknown) {
		return err
	}
	return t.putKey(k)
}

// keys runs a query of bodies.
func (r *reader) keys(text string, args ...any) (keys []identity.Key, err error) {
	var bad error
	err = r.query(text, func(r row) error {
		var k identity.Key
		if bad = json.Unmarshal(r.blob(0), &k); bad != nil {
			return errStop
		}
		keys = append(keys, k)
		return nil
	}, args...)
	if err = errors.Join(err, bad); err != nil {
		return nil, err
	}
	slices.SortFunc(keys, func(a, b identity.Key) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return keys, nil
}

// key reads one key.
func (r *reader) key(id string) (identity.Key, error) {
	keys, err := r.keys("SELECT body FROM api_keys WHERE id = ?", id)
	if err != nil {
		return identity.Key{}, err
	}
	if len(keys) == 0 {
		return identity.Key{}, identity.ErrKeyUnknown
	}
	return keys[0], nil
}

// KeysByHint implements identity.Keys.
func (s *Store) KeysByHint(ctx context.Context, hint string) (keys []identity.Key, err error) {
	err = s.read(ctx, func(r *reader) (err error) {
		keys, err = r.keys("SELECT body FROM api_keys WHERE hint = ?", hint)
		return err
	})
	return keys, err
}

// Key implements identity.Keys.
func (s *Store) Key(ctx context.Context, id string) (k identity.Key, err error) {
	err = s.read(ctx, func(r *reader) (err error) {
		k, err = r.key(id)
		return err
	})
	return k, err
}

// ListKeys implements identity.Keys.
func (s *Store) ListKeys(ctx context.Context) (keys []identity.Key, err error) {
	err = s.read(ctx, func(r *reader) (err error) {
		keys, err = r.keys("SELECT body FROM api_keys")
		return err
	})
	return keys, err
}

// AddKey implements identity.Keys.
func (s *Store) AddKey(ctx context.Context, k identity.Key, maxLive int, now time.Time, auditRow []byte) error {
	return s.submit(ctx, func(t *tx) error {
		theirs, err := t.keys("SELECT body FROM api_keys WHERE user = ?", k.User)
		if err != nil {
			return err
		}
		live := 0
		for i := range theirs {
			if theirs[i].Live(now) {
				live++
			}
		}
		if live >= maxLive {
			return identity.ErrTooManyKeys
		}
		t.audit(auditRow)
		return t.newKey(k)
	})
}

// UpdateKey implements identity.Keys. The id cannot be changed.
func (s *Store) UpdateKey(ctx context.Context, id string, auditRow []byte, change func(*identity.Key) error) error {
	return s.submit(ctx, func(t *tx) error {
		t.audit(auditRow)
		return t.changeKey(id, change)
	})
}

// changeKey runs change on a stored key.
func (t *tx) changeKey(id string, change func(*identity.Key) error) error {
	k, err := t.key(id)
	if err != nil {
		return err
	}
	if err := change(&k); err != nil {
		return err
	}
	k.ID = id
	return t.putKey(k)
}

// ReplaceKey implements identity.Keys.
func (s *Store) ReplaceKey(ctx context.Context, id string, auditRow []byte, change func(*identity.Key) error, next identity.Key) error {
	return s.submit(ctx, func(t *tx) error {
		if err := t.changeKey(id, change); err != nil {
			return err
		}
		t.audit(auditRow)
		return t.newKey(next)
	})
}

// PruneKeys implements identity.Keys. The ids are in the order of creation; without any, row is not called.
func (s *Store) PruneKeys(ctx context.Context, before time.Time, auditRow func(ids []string) []byte) (ids []string, err error) {
	err = s.submit(ctx, func(t *tx) error {
		keys, err := t.keys("SELECT body FROM api_keys")
		if err != nil {
			return err
		}
		for _, k := range keys {
			if !endedBefore(k, before) {
				continue
			}
			if err := t.write("DELETE FROM api_keys WHERE id = ?", k.ID); err != nil {
				return err
			}
			ids = append(ids, k.ID)
		}
		if len(ids) > 0 && auditRow != nil {
			t.audit(auditRow(ids))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// endedBefore tells whether k was revoked or had expired before the time.
func endedBefore(k identity.Key, before time.Time) bool {
	revoked := !k.RevokedAt.IsZero() && k.RevokedAt.Before(before)
	expired := !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(before)
	return revoked || expired
}

// TouchKeys implements identity.Keys. Uses of keys that are gone are dropped.
func (s *Store) TouchKeys(ctx context.Context, uses []identity.KeyUse) error {
	if len(uses) == 0 {
		return nil
	}
	return s.submit(ctx, func(t *tx) error {
		for _, u := range uses {
			err := t.changeKey(u.ID, func(k *identity.Key) error {
				k.UseCount += u.Count
				if u.At.After(k.LastUsedAt) {
					k.LastUsedAt = u.At
				}
				return nil
			})
			if err != nil && !errors.Is(err, identity.ErrKeyUnknown) {
				return err
			}
		}
		return nil
	})
}
