package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/seal"
)

// SealKeys implements seal.Keyring. Newest is what was added last, whatever the clock said.
func (s *Store) SealKeys(ctx context.Context) (keys []seal.Key, err error) {
	err = s.read(ctx, func(r *reader) error {
		var bad error
		err := r.query("SELECT id, secret, created FROM seal_keys ORDER BY seq DESC", func(r row) error {
			created, err := decodeTime(r.text(2))
			bad = errors.Join(bad, err)
			keys = append(keys, seal.Key{ID: uint32(r.int(0)), Secret: r.array(1), Created: created})
			return nil
		})
		return errors.Join(err, bad)
	})
	return keys, err
}

// AddSealKey implements seal.Keyring. k itself is kept, however old it is.
func (s *Store) AddSealKey(ctx context.Context, k seal.Key, forget time.Time) error {
	created, err := encodeTime(k.Created)
	if err != nil {
		return fmt.Errorf("encode sealing key: %w", err)
	}
	return s.submit(ctx, func(t *tx) error {
		kept, err := t.sealKeyTimes()
		if err != nil {
			return err
		}
		if _, ok := kept[int64(k.ID)]; ok {
			return fmt.Errorf("a sealing key with the id %d exists", k.ID)
		}
		for id, at := range kept {
			if !at.Before(forget) {
				continue
			}
			if err := t.write("DELETE FROM seal_keys WHERE id = ?", id); err != nil {
				return err
			}
		}
		return t.write("INSERT INTO seal_keys (seq, id, created, secret) VALUES ((SELECT coalesce(max(seq), 0) + 1 FROM seal_keys),?,?,?)",
			int64(k.ID), created, k.Secret[:])
	})
}

// sealKeyTimes gives when each sealing key was made, by id.
func (r *reader) sealKeyTimes() (map[int64]time.Time, error) {
	times := map[int64]time.Time{}
	var bad error
	err := r.query("SELECT id, created FROM seal_keys", func(r row) error {
		at, err := decodeTime(r.text(1))
		bad = errors.Join(bad, err)
		times[r.int(0)] = at
		return nil
	})
	return times, errors.Join(err, bad)
}

// Secret gives the secret of a name, made of size random bytes when it is first asked for, and durable before it is
// given out: the seed of the key that signs the audit chain, for one. It lives in the database (mode 0600).
func (s *Store) Secret(ctx context.Context, name string, size int) (secret []byte, err error) {
	err = s.submit(ctx, func(t *tx) error {
		err := t.query("SELECT value FROM secrets WHERE name = ?", stop(func(r row) { secret = r.blob(0) }), name)
		if err != nil {
			return err
		}
		if secret != nil {
			if len(secret) != size {
				return fmt.Errorf("the secret %s has %d bytes, not %d", name, len(secret), size)
			}
			return nil
		}
		secret = make([]byte, size)
		if _, err := io.ReadFull(s.writer.random, secret); err != nil {
			return fmt.Errorf("make secret %s: %w", name, err)
		}
		return t.write("INSERT INTO secrets (name, value) VALUES (?,?)", name, secret)
	})
	if err != nil {
		return nil, err
	}
	return secret, nil
}

// onceSweep bounds how many expired ids one call of Once removes: more than it adds.
const onceSweep = 16

// Once implements gate.Once. At the time until, an id counts as forgotten.
func (s *Store) Once(ctx context.Context, id string, until time.Time) (first bool, err error) {
	err = s.submit(ctx, func(t *tx) error {
		now := s.clock.Now().UnixMicro()
		held := false
		err := t.query("SELECT until FROM nonces WHERE id = ?", stop(func(r row) { held = r.int(0) > now }), id)
		if err != nil || held {
			return err
		}
		first = true
		err = t.write("DELETE FROM nonces WHERE id IN (SELECT id FROM nonces WHERE until <= ? ORDER BY until LIMIT ?)", now, int64(onceSweep))
		if err != nil {
			return err
		}
		return t.write("INSERT OR REPLACE INTO nonces (id, until) VALUES (?,?)", id, until.UnixMicro())
	})
	if err != nil {
		return false, err
	}
	return first, nil
}
