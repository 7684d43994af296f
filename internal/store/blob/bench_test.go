package blob_test

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// benchSize is the size of the blobs of benchmarks, in bytes; BLOB_BENCH_MIB gives another one.
func benchSize(b *testing.B) int64 {
	b.Helper()
	text := os.Getenv("BLOB_BENCH_MIB")
	if text == "" {
		return 256 << 20
	}
	mib, err := strconv.Atoi(text)
	if err != nil || mib < 1 {
		b.Fatalf("BLOB_BENCH_MIB is %q, want a number of MiB", text)
	}
	return int64(mib) << 20
}

// source gives size bytes that differ from number to number, in pieces of 64 KiB.
type source struct {
	left   int64
	number uint64
	piece  []byte
}

// newSource makes a source.
func newSource(size int64, number uint64) *source {
	s := &source{left: size, number: number, piece: make([]byte, 64<<10)}
	for i := range s.piece {
		s.piece[i] = byte(i * 7919 >> 3)
	}
	return s
}

// next gives the next piece, nil at the end. It is good until the next call.
func (s *source) next() []byte {
	if s.left == 0 {
		return nil
	}
	n := min(s.left, int64(len(s.piece)))
	binary.LittleEndian.PutUint64(s.piece, s.number<<32|uint64(s.left>>10))
	s.left -= n
	return s.piece[:n]
}

// plainWrite writes a file as a program does that only wants it on the disk.
func plainWrite(b *testing.B, name string, s *source) time.Duration {
	b.Helper()
	start := time.Now()
	file, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	for p := s.next(); p != nil; p = s.next() {
		if _, err := file.Write(p); err != nil {
			b.Fatal(err)
		}
	}
	if err := file.Sync(); err != nil {
		b.Fatal(err)
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// keepBlob keeps a blob.
func keepBlob(b *testing.B, f *blob.Folder, s *source) (persistence.Digest, time.Duration) {
	b.Helper()
	start := time.Now()
	w, err := f.Create(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for p := s.next(); p != nil; p = s.next() {
		if _, err := w.Write(p); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Keep(b.Context()); err != nil {
		b.Fatal(err)
	}
	return w.Sum(), time.Since(start)
}

// mbs is a speed in MB/s.
func mbs(bytes int64, took time.Duration) float64 { return float64(bytes) / 1e6 / took.Seconds() }

// BenchmarkKeep compares keeping a blob with writing and syncing a file of the same size, one after the other in turns.
func BenchmarkKeep(b *testing.B) {
	size, dir := benchSize(b), b.TempDir()
	f, err := blob.OpenFolder(filepath.Join(dir, "blobs"), blob.FolderOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	plainName := filepath.Join(dir, "plain")
	var plain, kept time.Duration
	number := uint64(0)
	for b.Loop() {
		number++
		writePlain := func() {
			plain += plainWrite(b, plainName, newSource(size, number))
			if err := os.Remove(plainName); err != nil {
				b.Fatal(err)
			}
		}
		writeBlob := func() {
			d, took := keepBlob(b, f, newSource(size, number))
			kept += took
			if err := f.Delete(b.Context(), d); err != nil {
				b.Fatal(err)
			}
		}
		if number%2 == 0 { // neither has the better place in all turns
			writePlain()
			writeBlob()
		} else {
			writeBlob()
			writePlain()
		}
	}
	total := size * int64(number)
	b.ReportMetric(mbs(total, plain), "plain-MB/s")
	b.ReportMetric(mbs(total, kept), "keep-MB/s")
	b.ReportMetric(plain.Seconds()/kept.Seconds(), "keep/plain")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRead compares reading and hashing a blob with reading a file, both in the page cache.
func BenchmarkRead(b *testing.B) {
	size := benchSize(b)
	f, err := blob.OpenFolder(filepath.Join(b.TempDir(), "blobs"), blob.FolderOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	d, _ := keepBlob(b, f, newSource(size, 1))
	buffer := make([]byte, 64<<10)
	var plain, hashed time.Duration
	turns := int64(0)
	for b.Loop() {
		turns++
		start := time.Now()
		file, err := os.Open(f.Path(d))
		if err != nil {
			b.Fatal(err)
		}
		readAll(b, file, io.Discard, buffer)
		plain += time.Since(start)
		start = time.Now()
		r, err := f.Open(b.Context(), d)
		if err != nil {
			b.Fatal(err)
		}
		h := sha256.New()
		readAll(b, r, h, buffer)
		hashed += time.Since(start)
		if persistence.Digest(h.Sum(nil)) != d {
			b.Fatal("other bytes than were kept")
		}
	}
	b.ReportMetric(mbs(size*turns, plain), "plain-MB/s")
	b.ReportMetric(mbs(size*turns, hashed), "hashed-MB/s")
	b.ReportMetric(0, "ns/op")
}

// readAll reads r to its end, piece by piece, gives the pieces to w, and closes r.
func readAll(b *testing.B, r io.ReadCloser, w io.Writer, buffer []byte) {
	b.Helper()
	for {
		n, err := r.Read(buffer)
		if _, werr := w.Write(buffer[:n]); werr != nil {
			b.Fatal(werr)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSHA256 is how fast this machine hashes: no blob can be written or checked faster on one core.
func BenchmarkSHA256(b *testing.B) {
	piece := newSource(64<<10, 1).next()
	h := sha256.New()
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		h.Write(piece)
	}
}
