package identity

import (
	"context"
	"errors"
	"time"
)

// Key is an API key as it is stored: never the key itself.
type Key struct {
	ID         string // 12 lower-case hex characters, random; what `keys revoke` takes
	User       string // whom the key acts as: subject "user:<User>"
	Name       string
	Hint       string   // the first 8 characters after the prefix
	Digest     [32]byte // SHA-256 of the key, or HMAC-SHA-256 with the pepper
	Roles      []string
	Only       []string // scopes, as written: capability@pattern; nil is no narrowing
	Tenant     string
	Workspaces []string
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	RevokedAt  time.Time // zero: not revoked
	Reason     string    // of the revocation
	RotatedTo  string    // id of the key that replaces this one
	LastUsedAt time.Time
	UseCount   int64
}

// Live tells whether the key may be used at now.
func (k *Key) Live(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// ErrKeyUnknown: no key has this id.
var ErrKeyUnknown = errors.New("no key has this id")

// Keys is the part of a store that keeps API keys. Implementations are safe for concurrent use; changes are
// durable when they return nil, and seen by the next read.
type Keys interface {
	KeysByHint(ctx context.Context, hint string) ([]Key, error)
	Key(ctx context.Context, id string) (Key, error) // ErrKeyUnknown
	ListKeys(ctx context.Context) ([]Key, error)     // by creation, then id
	// AddKey stores k with its audit row, in one transaction. At most maxLive live keys of one user: more is ErrTooManyKeys.
	AddKey(ctx context.Context, k Key, maxLive int, now time.Time, row []byte) error
	// UpdateKey runs change on the stored key and stores the result with the audit row, in one transaction. A nil row
	// writes none.
	UpdateKey(ctx context.Context, id string, row []byte, change func(*Key) error) error
	// ReplaceKey adds next and changes the key id, with the audit row, in one transaction: a rotation.
	ReplaceKey(ctx context.Context, id string, row []byte, change func(*Key) error, next Key) error
	// PruneKeys forgets keys that were revoked or had expired before the given time; it returns their ids.
	PruneKeys(ctx context.Context, before time.Time, row func(ids []string) []byte) ([]string, error)
	// TouchKeys adds uses: it needs no durability beyond the next commit.
	TouchKeys(ctx context.Context, uses []KeyUse) error
}

// KeyUse is how often a key was used since the last report.
type KeyUse struct {
	ID    string
	At    time.Time
	Count int64
}

// ErrTooManyKeys: the user has the most live keys that are allowed.
var ErrTooManyKeys = errors.New("the user has too many live keys")
