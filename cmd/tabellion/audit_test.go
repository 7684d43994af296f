package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// runIn runs a command in this process and wants its exit code.
func runIn(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, words bytes.Buffer
	env := &Env{Ctx: context.Background(), Signal: func() os.Signal { return nil }, Stdout: &out, Stderr: &words}
	if got := run(env, args); got != code {
		t.Fatalf("%v: exit code %d, want %d: %s%s", args, got, code, out.String(), words.String())
	}
	return out.String(), words.String()
}

// makeStore makes a store with one document.
func makeStore(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	s, err := sqlite.Open(context.Background(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	now := persistence.Truncate(time.Now())
	d := &persistence.Document{Namespace: "a", ID: "x", Kind: "k", SchemaVersion: "1", Revision: 1, CreatedAt: now, UpdatedAt: now, Payload: []byte("1")}
	_, err = s.Update(context.Background(), persistence.Commit{Namespace: "a", Now: now}, func(tx persistence.Tx) (persistence.Outcome, error) {
		return persistence.Outcome{}, tx.PutRevision(d)
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestManyPages: what does not fit a page is fetched page by page, also when pages come faster than the rate allows.
func TestManyPages(t *testing.T) {
	const entries, namespaces = 1300, 230
	dir := filepath.Join(t.TempDir(), "data")
	s, err := sqlite.Open(context.Background(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	now := persistence.Truncate(time.Now().Add(-time.Hour))
	var rows []audit.Row
	for i := range entries {
		rows = append(rows, (&audit.Entry{Time: now.Add(time.Duration(i) * time.Second), Kind: audit.KindEffect, Outcome: "ok", Note: fmt.Sprintf("n%04d", i)}).Encode())
	}
	err = s.AppendAudit(context.Background(), rows)
	for i := range namespaces {
		d := &persistence.Document{Namespace: fmt.Sprintf("n%03d", i), ID: "x", Kind: "k", SchemaVersion: "1", Revision: 1, CreatedAt: now, UpdatedAt: now, Payload: []byte("1")}
		_, werr := s.Update(context.Background(), persistence.Commit{Namespace: d.Namespace, Now: now}, func(tx persistence.Tx) (persistence.Outcome, error) {
			return persistence.Outcome{}, tx.PutRevision(d)
		})
		err = errors.Join(err, werr)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	// --outcome ok leaves out the entry about what came too fast.
	slow := []string{"--persistence", dir, "--set", "limits.rate=20", "--set", "limits.burst=1"}
	for _, tt := range []struct {
		args        []string
		lines       int
		first, last string
	}{
		{[]string{"audit", "--limit", "0", "--outcome", "ok"}, entries, "n0000", "n1299"},
		{[]string{"audit", "--limit", "700", "--outcome", "ok"}, 700, "n0600", "n1299"},
		{[]string{"namespaces"}, namespaces + 1, "NAMESPACE", "n229 "},
		{[]string{"retention", "--age", "0s"}, namespaces + 1, "NAMESPACE", "n229 "},
	} {
		out, _ := runIn(t, exitFine, append(tt.args, slow...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != tt.lines || !strings.Contains(lines[0], tt.first) || !strings.Contains(lines[len(lines)-1], tt.last) {
			t.Errorf("%v: %d lines, from %q to %q; want %d, from %s to %s", tt.args, len(lines), lines[0], lines[len(lines)-1], tt.lines, tt.first, tt.last)
		}
	}
}

// TestAuditByTime: a page is ordered by the time of the entries, and those of one moment by their place, though the trail
// has them in the order in which calls ended. All of the trail comes in its own order.
func TestAuditByTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s, err := sqlite.Open(context.Background(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	var rows []audit.Row
	for i, ms := range []int{0, 7, 3, 5, 5, 4} {
		rows = append(rows, (&audit.Entry{Time: at.Add(time.Duration(ms) * time.Millisecond), Kind: audit.KindEffect, Subject: "user:ana", Outcome: "ok", Note: fmt.Sprintf("n%d", i)}).Encode())
	}
	if err := errors.Join(s.AppendAudit(context.Background(), rows), s.Close()); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[string]string{"0": "n0 n1 n2 n3 n4 n5", "100": "n0 n2 n5 n3 n4 n1"} {
		out, _ := runIn(t, exitFine, "audit", "--persistence", dir, "--subject", "user:ana", "--limit", limit)
		var got []string
		for line := range strings.Lines(out) {
			_, note, _ := strings.Cut(strings.TrimSpace(line), "note=")
			got = append(got, note)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("--limit %s: %v, want %s", limit, got, want)
		}
	}
}
