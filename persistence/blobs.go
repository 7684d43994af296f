package persistence

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrNoBlob: the blob store holds no bytes under this digest.
var ErrNoBlob = errors.New("no bytes are held under this digest")

// Blobs keeps bytes under their digest, equal bytes once. It judges nothing and knows no artifact. All methods are safe
// for concurrent use.
//
// Errors beside ErrNoBlob: ErrUnavailable when the place cannot be written or read now. After a failed sync every
// Create and Keep is ErrUnavailable until somebody opens the place again, and Healthy says so.
type Blobs interface {
	// Create begins a blob. The caller ends it with Keep or Drop.
	Create(ctx context.Context) (BlobWriter, error)
	// Open gives the bytes of d, or ErrNoBlob. What was opened can be read to its end whatever happens to d. Nothing
	// is checked: the reader is to compare size and digest.
	Open(ctx context.Context, d Digest) (BlobReader, error)
	// Delete removes d, durably at the latest when the place is opened again. Removing what is not there is no error.
	Delete(ctx context.Context, d Digest) error
	// Each calls fn for every blob, in no order, until fn returns an error, which Each then returns. A listing that
	// fails is an error: nothing may be concluded from the blobs seen before it.
	Each(ctx context.Context, fn func(BlobInfo) error) error
	// Healthy tells whether blobs can be written: nil, or why not.
	Healthy() error
}

// BlobInfo is what Each tells of a blob.
type BlobInfo struct {
	Digest Digest // by its name; the bytes were not read
	Size   int64
	// Settled tells that the blob was there before this process began. One that came later may be needed by a call
	// under way, whatever the metadata says.
	Settled bool
	// Modified is when it was written, by the clock of the place.
	Modified time.Time
}

// BlobWriter takes the bytes of one blob. It is used by one goroutine.
type BlobWriter interface {
	io.Writer
	// Sum is the digest of what was written so far, and Size its length.
	Sum() Digest
	Size() int64
	// Keep makes what was written durable under its digest: the bytes synced, then the name, then the folder that
	// holds the name. When the digest is held already the new bytes take its place, so that damage heals. After an
	// error nothing is held that was not held before.
	Keep(ctx context.Context) error
	// Drop forgets what was written. After Keep it does nothing.
	Drop() error
}

// BlobReader reads a blob from its beginning.
type BlobReader interface {
	io.ReadCloser
	// Size is the length that is stored.
	Size() int64
}
