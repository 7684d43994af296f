package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// Memory keeps blobs in memory: the reference for tests. It promises what Folder promises, for as long as the process
// lives. Its methods are safe for concurrent use.
type Memory struct {
	mu    sync.Mutex
	blobs map[persistence.Digest]held
}

// held is a blob in memory. Its bytes never change; damage replaces them.
type held struct {
	bytes    []byte
	modified time.Time
	settled  bool
}

var _ persistence.Blobs = (*Memory)(nil)

// NewMemory gives a place that holds nothing.
func NewMemory() *Memory { return &Memory{blobs: map[persistence.Digest]held{}} }

// Reopen gives a place with the blobs of m, as if the process had ended and begun again: all are settled. m is as it
// was.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	again := NewMemory()
	for d, h := range m.blobs {
		h.settled = true
		again.blobs[d] = h
	}
	return again
}

// Corrupt flips a bit of the bytes of d, for tests of what finds it. It tells whether there was one: d may be absent or
// empty.
func (m *Memory) Corrupt(d persistence.Digest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.blobs[d]
	if !ok || len(h.bytes) == 0 {
		return false
	}
	h.bytes = bytes.Clone(h.bytes)
	h.bytes[len(h.bytes)/2] ^= 1
	m.blobs[d] = h
	return true
}

// Create begins a blob.
func (m *Memory) Create(ctx context.Context) (persistence.BlobWriter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &memoryWriter{memory: m}, nil
}

// Open gives the bytes of d.
func (m *Memory) Open(ctx context.Context, d persistence.Digest) (persistence.BlobReader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.blobs[d]
	if !ok {
		return nil, fmt.Errorf("%w: %s", persistence.ErrNoBlob, d)
	}
	return memoryReader{bytes.NewReader(h.bytes)}, nil
}

// Delete removes d.
func (m *Memory) Delete(ctx context.Context, d persistence.Digest) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.blobs, d)
	return nil
}

// Each tells of the blobs that are held now.
func (m *Memory) Each(ctx context.Context, fn func(persistence.BlobInfo) error) error {
	for _, info := range m.infos() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(info); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// infos is what is held now.
func (m *Memory) infos() []persistence.BlobInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]persistence.BlobInfo, 0, len(m.blobs))
	for d, h := range m.blobs {
		out = append(out, persistence.BlobInfo{Digest: d, Size: int64(len(h.bytes)), Settled: h.settled, Modified: h.modified})
	}
	return out
}

// Healthy is nil: memory does not fail.
func (m *Memory) Healthy() error { return nil }

// memoryWriter is a blob on its way into a Memory.
type memoryWriter struct {
	memory *Memory
	bytes  []byte
	ended  error // nil until Keep or Drop; then what further use is answered
}

// Write adds p.
func (w *memoryWriter) Write(p []byte) (int, error) {
	if w.ended != nil {
		return 0, w.ended
	}
	w.bytes = append(w.bytes, p...)
	return len(p), nil
}

// Sum is the digest of what was written so far.
func (w *memoryWriter) Sum() persistence.Digest { return sha256.Sum256(w.bytes) }

// Size is the number of bytes written so far.
func (w *memoryWriter) Size() int64 { return int64(len(w.bytes)) }

// Keep puts the bytes under their digest.
func (w *memoryWriter) Keep(ctx context.Context) error {
	if w.ended != nil {
		return w.ended
	}
	if w.ended = ctx.Err(); w.ended != nil {
		return w.ended
	}
	w.ended = errEnded
	w.memory.mu.Lock()
	defer w.memory.mu.Unlock()
	w.memory.blobs[w.Sum()] = held{bytes: w.bytes, modified: time.Now()}
	return nil
}

// Drop forgets the bytes.
func (w *memoryWriter) Drop() error {
	if w.ended == nil {
		w.ended = errEnded
	}
	return nil
}

// memoryReader reads a blob of a Memory.
type memoryReader struct{ *bytes.Reader }

// Close does nothing.
func (memoryReader) Close() error { return nil }
