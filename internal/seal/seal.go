// Package seal protects values that pass through a client and come back: cursors, request state, confirmations.
// A sealed value cannot be read, altered, used for another purpose, or used after its life.
package seal

import (
	"context"
	"errors"
	"time"
)

// ErrInvalid is the one answer for every value that does not open: altered, expired, made for another purpose or
// bound to something else. It never says which.
var ErrInvalid = errors.New("the value is not valid here")

// Purpose separates kinds of sealed values: one made for one purpose never opens for another.
type Purpose string

// The purposes that exist.
const (
	PurposeCursor Purpose = "cursor" // 15 minutes, persistence.v1 section 4.4
	PurposeState  Purpose = "state"  // 10 minutes, request state of an operation that asked for input
)

// Key is one sealing key. Times are wall-clock.
type Key struct {
	ID      uint32
	Secret  [32]byte
	Created time.Time
}

// Keyring keeps the sealing keys, newest first. It is kept with the store and survives restarts. Implementations
// are safe for concurrent use.
type Keyring interface {
	// SealKeys gives the keys, newest first. An empty list means that none was made yet.
	SealKeys(ctx context.Context) ([]Key, error)
	// AddSealKey adds k as the newest and forgets keys made before forget. Adding an ID that exists is an error.
	AddSealKey(ctx context.Context, k Key, forget time.Time) error
}
