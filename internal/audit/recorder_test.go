package audit_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/clock"
)

// newSigner makes a signer in its own folder.
func newSigner(t testing.TB) *audit.Signer {
	t.Helper()
	s, err := audit.OpenSigner(t.TempDir(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// recorder makes a recorder over l. Change c to set it up otherwise.
func recorder(t testing.TB, l audit.Log, change func(*audit.RecorderConfig)) *audit.Recorder {
	t.Helper()
	c := audit.RecorderConfig{Log: l, Dir: t.TempDir(), Signer: newSigner(t), Clock: clock.System{}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if change != nil {
		change(&c)
	}
	r, err := audit.NewRecorder(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustClose closes a recorder that has lost nothing.
func mustClose(t testing.TB, r *audit.Recorder) {
	t.Helper()
	if err := r.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// refusal is an entry that is told apart by its correlation.
func refusal(n int) audit.Entry {
	return audit.Entry{Time: time.Now(), Kind: audit.KindRefusal, Correlation: fmt.Sprint(n)}
}

// correlations lists the correlations of a writer's rows in order.
func correlations(t testing.TB, l *fakeLog) []string {
	t.Helper()
	rows, _ := l.AuditRows(context.Background(), l.writer, 0, 1<<30)
	var out []string
	for _, r := range rows {
		v, err := canonjson.ParseStrict(r.Row, canonjson.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v.Get("correlation").Str()+v.Get("note").Str())
	}
	return out
}

func TestStoreWithin100ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLog{fakeStore: newFakeStore(), writer: "w"}
		r := recorder(t, l, nil)
		for i := range 50 {
			r.Store(refusal(i))
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := len(correlations(t, l)); got != 50 || l.batches != 1 {
			t.Errorf("%d rows in %d commits after 100 ms, want 50 in one", got, l.batches)
		}
		mustClose(t, r)
		if err := r.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

func TestOrderIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLog{fakeStore: newFakeStore(), writer: "w"}
		r := recorder(t, l, nil)
		for i := range 3000 {
			r.Store(refusal(i))
		}
		mustClose(t, r)
		got := correlations(t, l)
		if len(got) != 3000 {
			t.Fatalf("%d rows, want 3000", len(got))
		}
		for i, c := range got {
			if c != fmt.Sprint(i) {
				t.Fatalf("row %d is %s", i, c)
			}
		}
	})
}

func TestStoreComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("the store is away")
		var mu sync.Mutex
		failing := true
		l := &fakeLog{fakeStore: newFakeStore(), writer: "w", fail: func() error {
			mu.Lock()
			defer mu.Unlock()
			if failing {
				return down
			}
			return nil
		}}
		r := recorder(t, l, nil)
		r.Store(refusal(1))
		time.Sleep(time.Second)
		if err := r.Healthy(); !errors.Is(err, down) {
			t.Errorf("Healthy: %v, want the store's error", err)
		}
		r.Store(refusal(2))
		mu.Lock()
		failing = false
		mu.Unlock()
		time.Sleep(time.Second)
		if err := r.Healthy(); err != nil {
			t.Errorf("Healthy after the store came back: %v", err)
		}
		if got := strings.Join(correlations(t, l), " "); got != "1 2" {
			t.Errorf("rows %q, want 1 2", got)
		}
		mustClose(t, r)
	})
}

func TestFullQueueIsCountedAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLog{fakeStore: newFakeStore(), writer: "w", blocked: make(chan struct{})}
		r := recorder(t, l, func(c *audit.RecorderConfig) { c.Queue = 10 })
		r.Store(refusal(0))
		time.Sleep(time.Second) // the first is in a commit that hangs
		for i := range 25 {
			r.Store(refusal(i + 1))
		}
		if store, _ := r.Losses(); store != 15 {
			t.Errorf("%d lost, want 15", store)
		}
		if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "15 entries") {
			t.Errorf("Healthy: %v, want the loss", err)
		}
		close(l.blocked)
		time.Sleep(time.Second)
		r.Store(refusal(99))
		time.Sleep(time.Second)
		if err := r.Healthy(); err != nil {
			t.Errorf("Healthy when nothing is lost any more: %v", err)
		}
		mustClose(t, r)
		got := correlations(t, l)
		if len(got) != 13 || got[12] != "99" || !strings.Contains(got[11], "lost") {
			t.Errorf("rows %q, want 0 to 10, the loss, and 99", got)
		}
	})
}

func TestCloseWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("the store is away")
		l := &fakeLog{fakeStore: newFakeStore(), writer: "w", fail: func() error { return down }}
		r := recorder(t, l, nil)
		for i := range 5 {
			r.Store(refusal(i))
		}
		time.Sleep(time.Second)
		r.Store(refusal(5))
		if err := r.Close(context.Background()); !errors.Is(err, down) {
			t.Errorf("Close: %v, want the store's error", err)
		}
		if store, _ := r.Losses(); store != 6 {
			t.Errorf("%d lost, want 6", store)
		}
		r.Store(refusal(6))
		r.Read(refusal(7))
		if store, reads := r.Losses(); store != 7 || reads != 1 {
			t.Errorf("%d and %d lost after Close, want 7 and 1", store, reads)
		}
		mustClose(t, r) // the second Close does nothing
	})
}

// read is a line that is told apart by its correlation.
func read(n int) audit.Entry {
	return audit.Entry{Time: time.Now(), Kind: audit.KindRead, Correlation: fmt.Sprint(n)}
}

// readLines gives the correlations in a file of reads, and fails on a line that is not one JSON object.
func readLines(t testing.TB, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range bytes.Lines(text) {
		v, err := canonjson.ParseStrict(line, canonjson.Limits{})
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, v.Get("correlation").Str()+v.Get("note").Str())
	}
	return out
}

func TestReadLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := recorder(t, &fakeLog{fakeStore: newFakeStore(), writer: "w"}, func(c *audit.RecorderConfig) { c.Dir = dir })
		r.Read(read(1))
		time.Sleep(1100 * time.Millisecond)
		file := filepath.Join(dir, "audit-reads.jsonl")
		if got := readLines(t, file); len(got) != 1 {
			t.Errorf("%d lines after a second, want 1", len(got))
		}
		r.Read(read(2))
		mustClose(t, r)
		if got := strings.Join(readLines(t, file), " "); got != "1 2" {
			t.Errorf("lines %q, want 1 2", got)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
		}
	})
}

func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := recorder(t, &fakeLog{fakeStore: newFakeStore(), writer: "w"}, func(c *audit.RecorderConfig) {
			c.Dir, c.FileBytes, c.Keep = dir, 200, 3
		})
		for i := range 10 {
			for j := range 5 { // 5 lines are more than 200 bytes
				r.Read(read(10*i + j))
			}
			time.Sleep(1100 * time.Millisecond)
		}
		mustClose(t, r)
		var names, lines []string
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			names = append(names, e.Name())
			lines = append(lines, readLines(t, filepath.Join(dir, e.Name()))...)
		}
		if got, want := strings.Join(names, " "), "audit-reads.000007.jsonl audit-reads.000008.jsonl audit-reads.000009.jsonl audit-reads.jsonl"; got != want {
			t.Errorf("files %s, want %s", got, want)
		}
		if len(lines) != 20 || lines[0] != "60" || lines[19] != "94" {
			t.Errorf("lines %q, want 60 to 94", lines)
		}
	})
}

func TestTornLineIsEnded(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "audit-reads.jsonl")
	if err := os.WriteFile(file, []byte("{\"kind\":\"read\"}\n{\"kind\":\"re"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := recorder(t, &fakeLog{fakeStore: newFakeStore(), writer: "w"}, func(c *audit.RecorderConfig) { c.Dir = dir })
	r.Read(read(1))
	mustClose(t, r)
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 3 || lines[1] != `{"kind":"re` || !strings.HasPrefix(lines[2], "{") {
		t.Errorf("lines %q: the torn line spoiled the next", lines)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode().Perm())
	}
}

func TestFileThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		block := filepath.Join(dir, "audit-reads.jsonl")
		if err := os.Mkdir(block, 0o700); err != nil { // a folder in the file's place
			t.Fatal(err)
		}
		r := recorder(t, &fakeLog{fakeStore: newFakeStore(), writer: "w"}, func(c *audit.RecorderConfig) {
			c.Dir, c.Pending = dir, 100
		})
		for i := range 10 {
			r.Read(read(i))
		}
		time.Sleep(1100 * time.Millisecond)
		if _, lost := r.Losses(); lost == 0 || lost == 10 {
			t.Errorf("%d lines lost, want some", lost)
		}
		if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "audit file") || !strings.Contains(err.Error(), "being lost") {
			t.Errorf("Healthy: %v, want the file's error and the loss", err)
		}
		if err := os.Remove(block); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		r.Read(read(99))
		mustClose(t, r)
		lines := readLines(t, block)
		_, lost := r.Losses()
		if len(lines)+int(lost) != 10+2 || lines[len(lines)-1] != "99" || !strings.Contains(lines[len(lines)-2], "lost") {
			t.Errorf("lines %q with %d lost, want the kept ones, the loss, and 99", lines, lost)
		}
		if err := r.Healthy(); err != nil {
			t.Errorf("Healthy: %v", err)
		}
	})
}

func TestSymlinkInTheFilesPlace(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "audit-reads.jsonl")); err != nil {
		t.Fatal(err)
	}
	r := recorder(t, &fakeLog{fakeStore: newFakeStore(), writer: "w"}, func(c *audit.RecorderConfig) { c.Dir = dir })
	r.Read(read(1))
	if err := r.Close(context.Background()); err == nil {
		t.Error("a link out of the folder was followed")
	}
	if text, _ := os.ReadFile(outside); string(text) != "x" {
		t.Errorf("the linked file was changed to %q", text)
	}
}

func TestConcurrentUse(t *testing.T) {
	l := &fakeLog{fakeStore: newFakeStore(), writer: "w"}
	dir := t.TempDir()
	r := recorder(t, l, func(c *audit.RecorderConfig) { c.Dir = dir })
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				r.Store(refusal(1000*g + i))
				r.Read(read(1000*g + i))
			}
		})
	}
	wg.Wait()
	mustClose(t, r)
	if rows, lines := len(correlations(t, l)), len(readLines(t, filepath.Join(dir, "audit-reads.jsonl"))); rows != 2000 || lines != 2000 {
		t.Errorf("%d rows and %d lines, want 2000 each", rows, lines)
	}
}
