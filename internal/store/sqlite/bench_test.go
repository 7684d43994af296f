package sqlite_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// benchPayload is 1 KiB of canonical JSON, benchRow an audit row of common length.
var (
	benchPayload = []byte(`{"text":"` + string(bytes.Repeat([]byte("x"), 1024-11)) + `"}`)
	benchRow     = audit.Row(`{"correlation":"` + string(bytes.Repeat([]byte("c"), 32)) + `","decision":"allow","input":"sha256:` +
		string(bytes.Repeat([]byte("0"), 64)) + `","kind":"effect","method":"key","operation":"persistence.put","outcome":"ok",` +
		`"revision":1,"rule":"role:admin","subject":"user:ana","surface":"tool","target":"/persistence/namespaces/bench/documents/d",` +
		`"time":"2026-01-01T00:00:00.000000Z"}`)
)

// BenchmarkUpdate puts documents of 1 KiB, half of them new and half next revisions, each with an idempotency record,
// a look at the quota and an audit row.
func BenchmarkUpdate(b *testing.B) {
	for _, clients := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			s, err := sqlite.Open(b.Context(), b.TempDir(), sqlite.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			inParallel(b, clients, func(i int64) error { return benchPut(s, i) })
		})
	}
}

// benchPut is the i-th put: 2n creates document n and 2n+1 writes it again, unless another goroutine was slower with
// the first; then it creates it.
func benchPut(s persistence.Store, i int64) error {
	id := fmt.Sprintf("%08x", uint32(i/2)*2654435761) // ids in no order
	now := time.Now()
	c := persistence.Commit{
		Namespace: "bench", Key: fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(i))))[:32], Now: now,
		Seal: func(persistence.Outcome) audit.Row { return benchRow },
	}
	_, err := s.Update(context.Background(), c, func(tx persistence.Tx) (persistence.Outcome, error) {
		h, ok, err := tx.Head("bench", id)
		if err != nil {
			return persistence.Outcome{}, err
		}
		if _, err := tx.Usage("bench", now); err != nil {
			return persistence.Outcome{}, err
		}
		d := &persistence.Document{
			Namespace: "bench", ID: id, Kind: "note", SchemaVersion: "1", Revision: h.Revision + 1,
			CreatedAt: now, UpdatedAt: now, Payload: benchPayload,
		}
		if ok {
			d.CreatedAt, d.UpdatedAt = h.CreatedAt, h.UpdatedAt
		}
		return persistence.Outcome{ID: id, Revision: d.Revision}, tx.PutRevision(d)
	})
	return err
}

// inParallel runs b.N calls of do from several goroutines and reports the rate and the slow end.
func inParallel(b *testing.B, clients int, do func(i int64) error) {
	var next atomic.Int64
	times := make([]time.Duration, b.N)
	var wg sync.WaitGroup
	b.ResetTimer()
	before := processorTime()
	for range clients {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				start := time.Now()
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
				times[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-before).Microseconds())/float64(b.N), "cpu-us/op")
	slices.Sort(times)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
	b.ReportMetric(float64(times[len(times)*99/100])/1e6, "p99-ms")
}

// processorTime is what this process has used: unlike the rate it says something on a busy machine.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFloor appends what a put carries to one file and syncs it, alone: what the disk allows a single caller.
func BenchmarkFloor(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	entry := slices.Concat(benchPayload, benchRow)
	inParallel(b, 1, func(int64) error {
		if _, err := f.Write(entry); err != nil {
			return err
		}
		return f.Sync()
	})
}

// BenchmarkView reads one document of 1 KiB.
func BenchmarkView(b *testing.B) {
	s, err := sqlite.Open(b.Context(), b.TempDir(), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := benchPut(s, 0); err != nil {
		b.Fatal(err)
	}
	inParallel(b, 16, func(int64) error {
		return s.View(context.Background(), func(r persistence.Reader) error {
			_, ok, err := r.HeadDocument("bench", "00000000")
			if err == nil && !ok {
				return fmt.Errorf("not found")
			}
			return err
		})
	})
}
