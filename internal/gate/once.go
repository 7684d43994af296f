package gate

import (
	"context"
	"time"
)

// Once remembers that something was used, where once-only matters: confirmations. It is kept with the store.
type Once interface {
	// Once records id until the given time. first is false when it was recorded before and is not yet forgotten.
	Once(ctx context.Context, id string, until time.Time) (first bool, err error)
}
