package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/maintain"
)

// TestProgressText: what the line says of a stage.
func TestProgressText(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		stage       string
		done, total int64
		took        time.Duration
		want        string
	}{
		{"database", 0, 0, 0, "database ..."},
		{"audit trail", 0, 0, time.Hour, "audit trail ..."},
		{"documents", 40, 0, 0, "documents 40"},
		{"documents", 40, 0, 2 * time.Second, "documents 40, 20/s"},
		{"documents", 0, 100, 2 * time.Second, "documents   0%, 0 of 100"},
		{"documents", 40, 100, 2 * time.Second, "documents  40%, 40 of 100, 20/s, 3s left"},
		{"documents", 100, 100, 2 * time.Second, "documents 100%, 100 of 100, 50/s"},
		{"documents", 120, 100, 0, "documents 100%, 120 of 100"}, // it has grown meanwhile
		{"copying artifacts", gib, 4 * gib, 10 * time.Second, "copying artifacts  25%, 1.0 GiB of 4.0 GiB, 102.4 MiB/s, 30s left"},
		{"copying artifacts", 999, 1000, 10 * time.Second, "copying artifacts  99%, 999 B of 1000 B, 99 B/s, 1s left"},
	} {
		if got := progressText(tt.stage, tt.done, tt.total, tt.took); got != tt.want {
			t.Errorf("%+v:\n got %q\nwant %q", tt, got, tt.want)
		}
	}
}

// TestProgressLine: at most ten drawings a second, each over the one before, never wider than the terminal; a new stage
// is drawn at once, and the end leaves nothing.
func TestProgressLine(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	p := &progressLine{out: &out, width: func() int { return 20 }, now: func() time.Time { return now }}
	for i := range int64(1000) {
		p.tell("documents", i, 0)
		now = now.Add(time.Millisecond)
	}
	if n := strings.Count(out.String(), "\r"); n != 10 {
		t.Errorf("%d drawings in a second, want 10", n)
	}
	out.Reset()
	p.tell("copying artifacts", 1<<20, 1<<30)
	if got := out.String(); got != "\rcopying artifacts  " {
		t.Errorf("a new stage in 20 columns: %q", got)
	}
	out.Reset()
	now = now.Add(time.Second)
	p.tell("x", 7, 0)
	if got := out.String(); got != "\rx 7"+strings.Repeat(" ", 16) {
		t.Errorf("a shorter line: %q, want what was there covered", got)
	}
	out.Reset()
	p.end()
	p.end()
	if got := out.String(); got != "\r   \r" {
		t.Errorf("the end: %q, want the line covered once", got)
	}
}

// TestNoProgress: nothing is shown in a pipe or a file, with --json, or on a terminal that cannot redraw.
func TestNoProgress(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, env := range []*Env{{Stderr: &bytes.Buffer{}}, {Stderr: w}} {
		p := newProgressLine(env, false)
		p.tell("documents", 1, 2)
		p.watch(1, 2, "documents")
		p.end()
		if p.out != nil {
			t.Errorf("progress is shown on %T", env.Stderr)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("something was written to the pipe")
	}
}

// TestSizes: sizes and numbers for people.
func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1288490189: "1.2 GiB", 5 << 50: "5120.0 TiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for want, got := range map[string]string{
		"1 entry": counted(1, "entry"), "2 entries": counted(2, "entry"), "0 files": counted(0, "file"), "2 processes": counted(2, "process"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestWords: what others have chosen reaches a terminal as signs, never as orders to it.
func TestWords(t *testing.T) {
	for text, want := range map[string][2]string{ // graphic, word
		"user:ana": {"user:ana", "user:ana"}, "two words": {"two words", `"two words"`}, "\x1b[2J": {`\x1b[2J`, `"\x1b[2J"`},
		"a\nb": {`a\nb`, `"a\nb"`}, `say "x"`: {`say "x"`, `"say \"x\""`}, "": {"", `""`}, "é": {"é", "é"}, "\u202e": {`\u202e`, `"\u202e"`},
	} {
		if g, w := graphic(text), word(text); g != want[0] || w != want[1] {
			t.Errorf("%q: %s and %s, want %s and %s", text, g, w, want[0], want[1])
		}
	}
}

// TestShare: shares of the bytes to read.
func TestShare(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "5%": 0.05, "0.5%": 0.005, "100%": 0} {
		if got, err := parseShare(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"5", "0%", "-1%", "101%", "NaN%", "%", "a%"} {
		if got, err := parseShare(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

// TestStages: the stages that a backup, a restore and a check tell of, and which of them are counted in bytes.
func TestStages(t *testing.T) {
	want := map[string]bool{
		"copying the database": true, "hashing the database": true, "copying artifacts": true, "reading artifacts": true,
		"checking pages": false, "checking documents": false, "verifying the audit trail": false,
	}
	seen := map[string]bool{}
	note := func(stage string, _, _ int64) { seen[stage] = true }
	dir := makeStore(t)
	to := filepath.Join(t.TempDir(), "b")
	_, err := maintain.Backup(t.Context(), dir, to, maintain.BackupOptions{Progress: note})
	if err == nil {
		_, err = maintain.Restore(t.Context(), to, filepath.Join(t.TempDir(), "r"), maintain.RestoreOptions{Progress: note})
	}
	if err == nil {
		_, err = maintain.Check(t.Context(), dir, maintain.CheckOptions{ReadData: true, Progress: note})
	}
	if err != nil {
		t.Fatal(err)
	}
	for stage := range seen {
		if bytes, known := want[stage]; !known || inBytes(stage) != bytes {
			t.Errorf("the stage %q is counted in bytes: %v", stage, inBytes(stage))
		}
	}
	if len(seen) == 0 {
		t.Error("no stage is told of")
	}
}
