package identity_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/identity"
)

// fakeKeys is a Keys in memory that counts what it is asked.
type fakeKeys struct {
	mu      sync.Mutex
	keys    []identity.Key
	rows    []string // audit rows, in order of their commits
	lookups int
	touches [][]identity.KeyUse
	down    error
	// during is called inside KeysByHint after the keys were read, without the lock.
	during func()
}

// KeysByHint finds by hint.
func (f *fakeKeys) KeysByHint(_ context.Context, hint string) ([]identity.Key, error) {
	f.mu.Lock()
	f.lookups++
	var out []identity.Key
	for _, k := range f.keys {
		if k.Hint == hint {
			out = append(out, k)
		}
	}
	down := f.down
	f.mu.Unlock()
	if f.during != nil {
		f.during()
	}
	return out, down
}

// Key finds by id.
func (f *fakeKeys) Key(_ context.Context, id string) (identity.Key, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.index(id); i >= 0 {
		return f.keys[i], f.down
	}
	return identity.Key{}, identity.ErrKeyUnknown
}

// index is the place of a key, or -1.
func (f *fakeKeys) index(id string) int {
	return slices.IndexFunc(f.keys, func(k identity.Key) bool { return k.ID == id })
}

// ListKeys gives all.
func (f *fakeKeys) ListKeys(context.Context) ([]identity.Key, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.keys), f.down
}

// AddKey adds k.
func (f *fakeKeys) AddKey(_ context.Context, k identity.Key, maxLive int, now time.Time, row []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	live := 0
	for _, old := range f.keys {
		if old.User == k.User && old.Live(now) {
			live++
		}
	}
	if live >= maxLive {
		return identity.ErrTooManyKeys
	}
	f.keys = append(f.keys, k)
	f.rows = append(f.rows, string(row))
	return f.down
}

// UpdateKey changes a key.
func (f *fakeKeys) UpdateKey(_ context.Context, id string, row []byte, change func(*identity.Key) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.index(id)
	if i < 0 {
		return identity.ErrKeyUnknown
	}
	k := f.keys[i]
	if err := change(&k); err != nil {
		return err
	}
	f.keys[i] = k
	f.rows = append(f.rows, string(row))
	return f.down
}

// ReplaceKey changes a key and adds the next.
func (f *fakeKeys) ReplaceKey(ctx context.Context, id string, row []byte, change func(*identity.Key) error, next identity.Key) error {
	if err := f.UpdateKey(ctx, id, row, change); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = append(f.keys, next)
	return nil
}

// PruneKeys forgets dead keys.
func (f *fakeKeys) PruneKeys(_ context.Context, before time.Time, row func([]string) []byte) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	f.keys = slices.DeleteFunc(f.keys, func(k identity.Key) bool {
		dead := !k.RevokedAt.IsZero() && k.RevokedAt.Before(before) || !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(before)
		if dead {
			ids = append(ids, k.ID)
		}
		return dead
	})
	if len(ids) > 0 {
		f.rows = append(f.rows, string(row(ids)))
	}
	return ids, f.down
}

// TouchKeys notes the uses.
func (f *fakeKeys) TouchKeys(_ context.Context, uses []identity.KeyUse) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return f.down
	}
	f.touches = append(f.touches, uses)
	return nil
}

var _ identity.Keys = (*fakeKeys)(nil)
