package storetest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/storetest"
)

// brokenBlobs is a place with one fault. Each field replaces a part of one that is right.
type brokenBlobs struct {
	*blob.Memory
	fault blobFault
	state *blobState
}

// blobState is what faults remember.
type blobState struct {
	mu    sync.Mutex
	parts []persistence.BlobWriter
	one   persistence.BlobWriter // of all writers, where they are confused
}

// blobFault is a fault, and the test of the suite that must see it.
type blobFault struct {
	seen   string
	ctx    func(context.Context) context.Context
	writer func(b brokenBlobs, w persistence.BlobWriter) persistence.BlobWriter
	reader func(b brokenBlobs, d persistence.Digest, r persistence.BlobReader) persistence.BlobReader
	delete func(b brokenBlobs, d persistence.Digest) error
	each   func(b brokenBlobs, fn func(persistence.BlobInfo) error) error
	reopen func(b brokenBlobs) *blob.Memory
}

func (b brokenBlobs) Create(ctx context.Context) (persistence.BlobWriter, error) {
	if b.fault.ctx != nil {
		ctx = b.fault.ctx(ctx)
	}
	w, err := b.Memory.Create(ctx)
	if err == nil && b.fault.writer != nil {
		w = b.fault.writer(b, w)
	}
	b.state.mu.Lock()
	defer b.state.mu.Unlock()
	b.state.parts = append(b.state.parts, w)
	return w, err
}

func (b brokenBlobs) Open(ctx context.Context, d persistence.Digest) (persistence.BlobReader, error) {
	r, err := b.Memory.Open(ctx, d)
	if err == nil && b.fault.reader != nil {
		r = b.fault.reader(b, d, r)
	}
	return r, err
}

func (b brokenBlobs) Delete(ctx context.Context, d persistence.Digest) error {
	if b.fault.delete != nil {
		return b.fault.delete(b, d)
	}
	return b.Memory.Delete(ctx, d)
}

func (b brokenBlobs) Each(ctx context.Context, fn func(persistence.BlobInfo) error) error {
	if b.fault.each != nil {
		return b.fault.each(b, fn)
	}
	return b.Memory.Each(ctx, fn)
}

// brokenWriter is a writer with a fault.
type brokenWriter struct {
	persistence.BlobWriter
	write func(p []byte) (int, error)
	keep  func(ctx context.Context) error
	drop  func() error
	size  func() int64
}

func (w brokenWriter) Write(p []byte) (int, error) {
	if w.write != nil {
		return w.write(p)
	}
	return w.BlobWriter.Write(p)
}

func (w brokenWriter) Keep(ctx context.Context) error {
	if w.keep != nil {
		return w.keep(ctx)
	}
	return w.BlobWriter.Keep(ctx)
}

func (w brokenWriter) Drop() error {
	if w.drop != nil {
		return w.drop()
	}
	return w.BlobWriter.Drop()
}

func (w brokenWriter) Size() int64 {
	if w.size != nil {
		return w.size()
	}
	return w.BlobWriter.Size()
}

// brokenReader is a reader with a fault.
type brokenReader struct {
	persistence.BlobReader
	read func(p []byte) (int, error)
	size int64
}

func (r brokenReader) Read(p []byte) (int, error) {
	if r.read != nil {
		return r.read(p)
	}
	return r.BlobReader.Read(p)
}

func (r brokenReader) Size() int64 { return r.size }

// blobFaults are places that must fail.
var blobFaults = map[string]blobFault{
	"wrong digest": {seen: "Sizes", writer: func(_ brokenBlobs, w persistence.BlobWriter) persistence.BlobWriter {
		return brokenWriter{BlobWriter: w, keep: func(ctx context.Context) error {
			_, _ = w.Write([]byte{0})
			return w.Keep(ctx)
		}}
	}},
	"keeps without a name": {seen: "Sizes", writer: func(_ brokenBlobs, w persistence.BlobWriter) persistence.BlobWriter {
		return brokenWriter{BlobWriter: w, keep: func(context.Context) error { return w.Drop() }}
	}},
	"loses the last byte": {seen: "Sizes", reader: func(_ brokenBlobs, _ persistence.Digest, r persistence.BlobReader) persistence.BlobReader {
		limited := io.LimitReader(r, r.Size()-1)
		return brokenReader{BlobReader: r, read: limited.Read, size: max(0, r.Size()-1)}
	}},
	"wrong size": {seen: "Sizes", reader: func(_ brokenBlobs, _ persistence.Digest, r persistence.BlobReader) persistence.BlobReader {
		return brokenReader{BlobReader: r, size: r.Size() + 1}
	}},
	"counts writes": {seen: "Sum", writer: func(_ brokenBlobs, w persistence.BlobWriter) persistence.BlobWriter {
		n := int64(0)
		return brokenWriter{BlobWriter: w, size: func() int64 { return n }, write: func(p []byte) (int, error) {
			n++
			return w.Write(p)
		}}
	}},
	"lists copies": {seen: "Once", each: func(b brokenBlobs, fn func(persistence.BlobInfo) error) error {
		return errors.Join(b.Memory.Each(context.Background(), fn), b.Memory.Each(context.Background(), fn))
	}},
	"lists parts": {seen: "Unfinished", each: func(b brokenBlobs, fn func(persistence.BlobInfo) error) error {
		for _, w := range b.state.parts {
			if err := fn(persistence.BlobInfo{Digest: w.Sum(), Size: w.Size()}); err != nil {
				return err
			}
		}
		return nil
	}},
	"kept from the first byte": {seen: "Unfinished", writer: func(b brokenBlobs, w persistence.BlobWriter) persistence.BlobWriter {
		return brokenWriter{BlobWriter: w, write: func(p []byte) (int, error) {
			n, err := w.Write(p)
			copied, _ := b.Memory.Create(context.Background())
			_, _ = copied.Write(p)
			_ = copied.Keep(context.Background())
			return n, err
		}}
	}},
	"drop after keep deletes": {seen: "KeepThenDrop", writer: func(b brokenBlobs, w persistence.BlobWriter) persistence.BlobWriter {
		return brokenWriter{BlobWriter: w, drop: func() error { return b.Memory.Delete(context.Background(), w.Sum()) }}
	}},
	"drop does nothing": {seen: "DropThenKeep", writer: func(_ brokenBlobs, w persistence.BlobWriter) persistence.BlobWriter {
		return brokenWriter{BlobWriter: w, drop: func() error { return nil }}
	}},
	"delete wants something": {seen: "Absent", delete: func(b brokenBlobs, d persistence.Digest) error {
		if _, err := b.Memory.Open(context.Background(), d); err != nil {
			return err
		}
		return b.Memory.Delete(context.Background(), d)
	}},
	"delete does nothing": {seen: "Delete", delete: func(brokenBlobs, persistence.Digest) error { return nil }},
	"delete takes all": {seen: "Delete", delete: func(b brokenBlobs, _ persistence.Digest) error {
		return b.Memory.Each(context.Background(), func(i persistence.BlobInfo) error {
			return b.Memory.Delete(context.Background(), i.Digest)
		})
	}},
	"delete ends readers": {seen: "OpenReader", reader: func(b brokenBlobs, d persistence.Digest, r persistence.BlobReader) persistence.BlobReader {
		return brokenReader{BlobReader: r, size: r.Size(), read: func(p []byte) (int, error) {
			if _, err := b.Memory.Open(context.Background(), d); err != nil {
				return 0, err
			}
			return r.Read(p)
		}}
	}},
	"each goes on": {seen: "Each", each: func(b brokenBlobs, fn func(persistence.BlobInfo) error) error {
		return b.Memory.Each(context.Background(), func(i persistence.BlobInfo) error {
			_ = fn(i)
			return nil
		})
	}},
	"all is settled": {seen: "Each", each: func(b brokenBlobs, fn func(persistence.BlobInfo) error) error {
		return b.Memory.Each(context.Background(), func(i persistence.BlobInfo) error {
			i.Settled = true
			return fn(i)
		})
	}},
	"holds on to buffers": {seen: "SharedBytes", writer: func(_ brokenBlobs, w persistence.BlobWriter) persistence.BlobWriter {
		var held [][]byte
		return brokenWriter{BlobWriter: w,
			write: func(p []byte) (int, error) {
				held = append(held, p)
				return len(p), nil
			},
			keep: func(ctx context.Context) error {
				_, err := w.Write(bytes.Join(held, nil))
				return errors.Join(err, w.Keep(ctx))
			}}
	}},
	"confuses writers": {seen: "AtOnce", writer: confused},
	"ignores contexts": {seen: "CancelledContext", ctx: context.WithoutCancel},
	"keeps the first": {seen: "Heals", writer: func(b brokenBlobs, w persistence.BlobWriter) persistence.BlobWriter {
		return brokenWriter{BlobWriter: w, keep: func(ctx context.Context) error {
			if _, err := b.Memory.Open(ctx, w.Sum()); err == nil {
				return w.Drop()
			}
			return w.Keep(ctx)
		}}
	}},
	"loses on reopen": {seen: "Reopen", reopen: func(brokenBlobs) *blob.Memory { return blob.NewMemory() }},
	"nothing settles": {seen: "Reopen", reopen: func(b brokenBlobs) *blob.Memory { return b.Memory }},
	"keeps the unfinished": {seen: "Reopen", reopen: func(b brokenBlobs) *blob.Memory {
		for _, w := range b.state.parts {
			_ = w.Keep(context.Background()) // dropped and kept ones refuse
		}
		return b.Memory.Reopen()
	}},
}

// confused gives all writers that are open together one file.
func confused(b brokenBlobs, w persistence.BlobWriter) persistence.BlobWriter {
	s := b.state
	return brokenWriter{BlobWriter: w,
		write: func(p []byte) (int, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.one == nil {
				s.one = w
			}
			return s.one.Write(p)
		},
		keep: func(ctx context.Context) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			one := s.one
			s.one = nil
			if one == nil {
				one = w
			}
			return one.Keep(ctx)
		}}
}

// blobFaultVariable names the fault that TestControlledBlobs runs the suite with.
const blobFaultVariable = "TABELLION_STORETEST_BLOB_FAULT"

// TestBlobControls runs the suite, in a process of its own, on places with one fault each: the suite must fail, in the
// test that is there to find that fault. And it must pass on the same machinery without a fault.
func TestBlobControls(t *testing.T) {
	t.Run("no fault", func(t *testing.T) {
		if out, err := controlledBlobs("none"); err != nil || !strings.Contains(out, "--- PASS: TestControlledBlobs/Reopen") {
			t.Errorf("the suite fails without a fault: %v\n%s", err, out)
		}
	})
	for name, fault := range blobFaults {
		t.Run(name, func(t *testing.T) {
			if out, err := controlledBlobs(name); err == nil || !strings.Contains(out, "--- FAIL: TestControlledBlobs/"+fault.seen+" ") {
				t.Errorf("test %s passes (%v)\n%s", fault.seen, err, out)
			}
		})
	}
}

// controlledBlobs runs TestControlledBlobs with a fault and gives its output.
func controlledBlobs(fault string) (string, error) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestControlledBlobs$", "-test.v")
	cmd.Env = append(os.Environ(), blobFaultVariable+"="+fault)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestControlledBlobs is what TestBlobControls runs.
func TestControlledBlobs(t *testing.T) {
	name, ok := os.LookupEnv(blobFaultVariable)
	if !ok {
		return // not a test by itself
	}
	storetest.RunBlobs(t, storetest.BlobSuite{
		Open: func(*testing.T) persistence.Blobs {
			return brokenBlobs{blob.NewMemory(), blobFaults[name], &blobState{}}
		},
		Reopen: func(_ *testing.T, b persistence.Blobs) persistence.Blobs {
			old := b.(brokenBlobs)
			memory := old.Memory.Reopen()
			if old.fault.reopen != nil {
				memory = old.fault.reopen(old)
			}
			return brokenBlobs{memory, old.fault, &blobState{}}
		},
		Damage: func(t *testing.T, b persistence.Blobs, d persistence.Digest) {
			if !b.(brokenBlobs).Corrupt(d) {
				t.Fatalf("no bytes of %s to damage, of %d bytes", d, sha256.Size)
			}
		},
	})
}
