package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// BlobSuite says how to get the persistence.Blobs to be tested, and what can be done to them.
type BlobSuite struct {
	// Open gives a new place that holds nothing, and has it closed at the end of its test.
	Open func(t *testing.T) persistence.Blobs
	// Reopen leaves a place as a process does that ends, and opens what it kept. Nil: it keeps nothing.
	Reopen func(t *testing.T, b persistence.Blobs) persistence.Blobs
	// Damage changes the stored bytes of d behind the back of b. Nil: healing is not tested.
	Damage func(t *testing.T, b persistence.Blobs, d persistence.Digest)
}

// RunBlobs holds the promises of persistence.Blobs against a place, except those about crashes of the machine.
//
//	func TestBlobs(t *testing.T) {
//		storetest.RunBlobs(t, storetest.BlobSuite{Open: openMine, Reopen: reopenMine, Damage: damageMine})
//	}
func RunBlobs(t *testing.T, s BlobSuite) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, persistence.Blobs)
	}{
		{"Sizes", testBlobSizes},
		{"Sum", testBlobSum},
		{"Once", testBlobOnce},
		{"Unfinished", testBlobUnfinished},
		{"KeepThenDrop", testBlobKeepThenDrop},
		{"DropThenKeep", testBlobDropThenKeep},
		{"Absent", testBlobAbsent},
		{"Delete", testBlobDelete},
		{"OpenReader", testBlobOpenReader},
		{"Each", testBlobEach},
		{"SharedBytes", testBlobSharedBytes},
		{"AtOnce", testBlobAtOnce},
		{"CancelledContext", testBlobContext},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := s.Open(t)
			test.run(t, b)
			if err := b.Healthy(); err != nil {
				t.Errorf("it says that it is not well: %v", err)
			}
		})
	}
	if s.Damage != nil {
		t.Run("Heals", func(t *testing.T) { testBlobHeals(t, s) })
	}
	if s.Reopen != nil {
		t.Run("Reopen", func(t *testing.T) { testBlobReopen(t, s) })
	}
}

// noise gives n bytes that differ from seed to seed.
func noise(n int, seed byte) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(p) // it never fails
	return p
}

// beginBlob begins a blob with the given bytes, written in pieces of an odd size.
func beginBlob(t *testing.T, b persistence.Blobs, content []byte) persistence.BlobWriter {
	t.Helper()
	w, err := b.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for rest := content; len(rest) > 0; {
		n, err := w.Write(rest[:min(len(rest), 100_003)])
		if err != nil || n != min(len(rest), 100_003) {
			t.Fatalf("wrote %d bytes, %v", n, err)
		}
		rest = rest[n:]
	}
	return w
}

// keepBlob keeps a blob and gives its digest.
func keepBlob(t *testing.T, b persistence.Blobs, content []byte) persistence.Digest {
	t.Helper()
	w := beginBlob(t, b, content)
	if err := w.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(content)
}

// readBlob gives all bytes of d.
func readBlob(ctx context.Context, b persistence.Blobs, d persistence.Digest) ([]byte, error) {
	r, err := b.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(r)
	if err == nil && int64(len(content)) != r.Size() {
		err = fmt.Errorf("size %d, and %d bytes", r.Size(), len(content))
	}
	return content, errors.Join(err, r.Close())
}

// holdsBlob fails when b does not hold the bytes under their digest.
func holdsBlob(t *testing.T, b persistence.Blobs, content []byte) {
	t.Helper()
	got, err := readBlob(t.Context(), b, sha256.Sum256(content))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v; want the %d that were written", len(got), err, len(content))
	}
}

// lacksBlob fails when anything is held under the digest of content.
func lacksBlob(t *testing.T, b persistence.Blobs, content []byte) {
	t.Helper()
	if got, err := readBlob(t.Context(), b, sha256.Sum256(content)); !errors.Is(err, persistence.ErrNoBlob) {
		t.Errorf("%d bytes, %v; want ErrNoBlob", len(got), err)
	}
}

// listedBlobs gives what Each tells, and fails when it tells of a blob twice.
func listedBlobs(t *testing.T, b persistence.Blobs) map[persistence.Digest]persistence.BlobInfo {
	t.Helper()
	found := map[persistence.Digest]persistence.BlobInfo{}
	err := b.Each(t.Context(), func(i persistence.BlobInfo) error {
		if _, ok := found[i.Digest]; ok {
			t.Errorf("%s is listed twice", i.Digest)
		}
		found[i.Digest] = i
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// listsBlobs fails when Each does not tell of exactly the given blobs, with their sizes.
func listsBlobs(t *testing.T, b persistence.Blobs, contents ...[]byte) {
	t.Helper()
	found := listedBlobs(t, b)
	for _, c := range contents {
		info, ok := found[sha256.Sum256(c)]
		if !ok || info.Size != int64(len(c)) || info.Modified.IsZero() {
			t.Errorf("listed %v: %+v; want %d bytes", ok, info, len(c))
		}
	}
	if len(found) != len(contents) {
		t.Errorf("%d blobs are listed, want %d", len(found), len(contents))
	}
}

// testBlobSizes keeps and reads blobs around the sizes at which buffers end.
func testBlobSizes(t *testing.T, b persistence.Blobs) {
	var all [][]byte
	for i, size := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 5 << 20} {
		content := noise(size, byte(i))
		keepBlob(t, b, content)
		all = append(all, content)
	}
	for _, content := range all {
		holdsBlob(t, b, content)
		holdsBlob(t, b, content) // a second reader begins at the beginning
	}
	listsBlobs(t, b, all...)
}

// testBlobSum asks for digest and length on the way, which must not disturb them.
func testBlobSum(t *testing.T, b persistence.Blobs) {
	content := noise(200_000, 1)
	w := beginBlob(t, b, nil)
	check := func(n int) {
		t.Helper()
		if w.Sum() != sha256.Sum256(content[:n]) || w.Size() != int64(n) {
			t.Errorf("after %d bytes: size %d, digest %s", n, w.Size(), w.Sum())
		}
	}
	check(0)
	for n := 0; n < len(content); n += 50_000 {
		if _, err := w.Write(content[n : n+50_000]); err != nil {
			t.Fatal(err)
		}
		check(n + 50_000)
	}
	if err := w.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(len(content))
	holdsBlob(t, b, content)
}

func testBlobOnce(t *testing.T, b persistence.Blobs) {
	content := noise(1000, 1)
	first, second := beginBlob(t, b, content), beginBlob(t, b, content)
	for _, w := range []persistence.BlobWriter{first, second} {
		if err := w.Keep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	keepBlob(t, b, content)
	holdsBlob(t, b, content)
	listsBlobs(t, b, content)
}

func testBlobUnfinished(t *testing.T, b persistence.Blobs) {
	content := noise(100_000, 1)
	w := beginBlob(t, b, content)
	lacksBlob(t, b, content)
	listsBlobs(t, b)
	if err := w.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	holdsBlob(t, b, content)
	dropped := noise(100_000, 2)
	if err := beginBlob(t, b, dropped).Drop(); err != nil {
		t.Errorf("drop: %v", err)
	}
	lacksBlob(t, b, dropped)
	listsBlobs(t, b, content)
}

func testBlobKeepThenDrop(t *testing.T, b persistence.Blobs) {
	content := noise(1000, 1)
	w := beginBlob(t, b, content)
	if err := w.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Drop(); err != nil {
			t.Errorf("drop after keep: %v", err)
		}
	}
	if _, err := w.Write([]byte("more")); err == nil {
		t.Error("a kept blob took more bytes")
	}
	holdsBlob(t, b, content)
	listsBlobs(t, b, content)
}

func testBlobDropThenKeep(t *testing.T, b persistence.Blobs) {
	content := noise(1000, 1)
	w := beginBlob(t, b, content)
	for range 2 {
		if err := w.Drop(); err != nil {
			t.Errorf("drop: %v", err)
		}
	}
	if _, err := w.Write([]byte("more")); err == nil {
		t.Error("a dropped blob took more bytes")
	}
	if err := w.Keep(t.Context()); err == nil {
		t.Error("a dropped blob was kept")
	}
	lacksBlob(t, b, content)
	listsBlobs(t, b)
	// One of two writers of the same bytes drops: the other's are held.
	keepBlob(t, b, content)
	if err := beginBlob(t, b, content).Drop(); err != nil {
		t.Errorf("drop: %v", err)
	}
	holdsBlob(t, b, content)
}

func testBlobAbsent(t *testing.T, b persistence.Blobs) {
	listsBlobs(t, b)
	for _, content := range [][]byte{nil, {1}, noise(1000, 1)} {
		lacksBlob(t, b, content)
		if err := b.Delete(t.Context(), sha256.Sum256(content)); err != nil {
			t.Errorf("delete what is not there: %v", err)
		}
	}
}

func testBlobDelete(t *testing.T, b persistence.Blobs) {
	gone, stays := noise(1000, 1), noise(1000, 2)
	d := keepBlob(t, b, gone)
	keepBlob(t, b, stays)
	for range 2 {
		if err := b.Delete(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		lacksBlob(t, b, gone)
		listsBlobs(t, b, stays)
	}
	holdsBlob(t, b, stays)
	keepBlob(t, b, gone)
	holdsBlob(t, b, gone)
}

// testBlobOpenReader replaces and deletes a blob while it is read.
func testBlobOpenReader(t *testing.T, b persistence.Blobs) {
	content := noise(5<<20, 1)
	d := keepBlob(t, b, content)
	r, err := b.Open(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	half := make([]byte, len(content)/2)
	if _, err := io.ReadFull(r, half); err != nil {
		t.Fatal(err)
	}
	keepBlob(t, b, content)
	if err := b.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(append(half, rest...), content) {
		t.Errorf("read %d of %d bytes after the blob was deleted: %v", len(half)+len(rest), len(content), err)
	}
}

func testBlobEach(t *testing.T, b persistence.Blobs) {
	for i := range 20 {
		keepBlob(t, b, noise(100+i, byte(i)))
	}
	calls := 0
	err := b.Each(t.Context(), func(persistence.BlobInfo) error {
		calls++
		if calls == 3 {
			return errMine
		}
		return nil
	})
	if err != errMine || calls != 3 {
		t.Errorf("%d calls, then %v; want fn's error after 3", calls, err)
	}
	for d, info := range listedBlobs(t, b) {
		if info.Settled {
			t.Errorf("%s is settled, and was written just now", d)
		}
	}
	// What Each tells of may be deleted at once.
	err = b.Each(t.Context(), func(i persistence.BlobInfo) error { return b.Delete(t.Context(), i.Digest) })
	if err != nil {
		t.Error(err)
	}
	listsBlobs(t, b)
}

// testBlobSharedBytes changes the buffer after a write: io.Writer must not hold on to it.
func testBlobSharedBytes(t *testing.T, b persistence.Blobs) {
	content := noise(1000, 1)
	buffer := bytes.Clone(content)
	w := beginBlob(t, b, nil)
	if _, err := w.Write(buffer); err != nil {
		t.Fatal(err)
	}
	clear(buffer)
	if err := w.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	holdsBlob(t, b, content)
	r, err := b.Open(t.Context(), sha256.Sum256(content))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(buffer); err != nil {
		t.Fatal(err)
	}
	clear(buffer)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	holdsBlob(t, b, content)
}

// testBlobAtOnce has 16 writers of equal bytes and 16 of different ones at work together, each reading what it kept.
func testBlobAtOnce(t *testing.T, b persistence.Blobs) {
	equal := noise(300_000, 255)
	all := [][]byte{equal}
	var wg sync.WaitGroup
	for i := range 16 {
		own := noise(100_000+i, byte(i))
		all = append(all, own)
		for _, content := range [][]byte{equal, own} {
			wg.Go(func() {
				if err := writeAndRead(t.Context(), b, content); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	for _, content := range all {
		holdsBlob(t, b, content)
	}
	listsBlobs(t, b, all...)
}

// writeAndRead keeps content, written in small pieces so that writers alternate, and reads it again.
func writeAndRead(ctx context.Context, b persistence.Blobs, content []byte) error {
	w, err := b.Create(ctx)
	if err != nil {
		return err
	}
	for rest := content; len(rest) > 0; {
		n, err := w.Write(rest[:min(len(rest), 10_000)])
		if err != nil {
			return errors.Join(err, w.Drop())
		}
		rest = rest[n:]
	}
	if err := w.Keep(ctx); err != nil {
		return err
	}
	got, err := readBlob(ctx, b, sha256.Sum256(content))
	if err == nil && !bytes.Equal(got, content) {
		err = errors.New("other bytes than were kept")
	}
	return err
}

func testBlobContext(t *testing.T, b persistence.Blobs) {
	content, other := noise(1000, 1), noise(1000, 2)
	d := keepBlob(t, b, content)
	w := beginBlob(t, b, other)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, created := b.Create(ctx)
	_, opened := b.Open(ctx, d)
	for name, err := range map[string]error{
		"Create": created,
		"Open":   opened,
		"Delete": b.Delete(ctx, d),
		"Each":   b.Each(ctx, func(persistence.BlobInfo) error { return nil }),
		"Keep":   w.Keep(ctx),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", name, err)
		}
	}
	if err := w.Drop(); err != nil {
		t.Errorf("drop: %v", err)
	}
	holdsBlob(t, b, content)
	lacksBlob(t, b, other)
	listsBlobs(t, b, content)
}

// testBlobHeals damages a blob and writes it again.
func testBlobHeals(t *testing.T, s BlobSuite) {
	b, content := s.Open(t), noise(100_000, 1)
	d := keepBlob(t, b, content)
	s.Damage(t, b, d)
	if got, err := readBlob(t.Context(), b, d); err == nil && bytes.Equal(got, content) {
		t.Fatal("Damage did no damage: this test shows nothing")
	}
	keepBlob(t, b, content)
	holdsBlob(t, b, content)
	listsBlobs(t, b, content)
}

// testBlobReopen looks at what is there after the place was opened again, three times.
func testBlobReopen(t *testing.T, s BlobSuite) {
	b := s.Open(t)
	kept, again, deleted := noise(100_000, 1), noise(1000, 2), noise(1000, 3)
	keepBlob(t, b, kept)
	keepBlob(t, b, again)
	if err := b.Delete(t.Context(), keepBlob(t, b, deleted)); err != nil {
		t.Fatal(err)
	}
	dropped, unfinished := noise(1000, 4), noise(100_000, 5)
	if err := beginBlob(t, b, dropped).Drop(); err != nil {
		t.Fatal(err)
	}
	beginBlob(t, b, unfinished)
	for range 3 {
		b = s.Reopen(t, b)
		for _, content := range [][]byte{dropped, unfinished, deleted} {
			lacksBlob(t, b, content)
		}
		holdsBlob(t, b, kept)
		listsBlobs(t, b, kept, again)
		settledBlob(t, b, kept, true)
		settledBlob(t, b, again, true)
		keepBlob(t, b, again) // it may be needed by a call under way now
		settledBlob(t, b, again, false)
	}
}

// settledBlob fails when the blob is not listed as settled or unsettled, as wanted.
func settledBlob(t *testing.T, b persistence.Blobs, content []byte, want bool) {
	t.Helper()
	if info, ok := listedBlobs(t, b)[sha256.Sum256(content)]; !ok || info.Settled != want {
		t.Errorf("listed %v, settled %v; want it settled: %v", ok, info.Settled, want)
	}
}
