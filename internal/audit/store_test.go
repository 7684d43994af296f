package audit_test

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// The trail of a real store, written by three processes one after the other, is whole; and each head that the store
// gives back is the one that was signed, its time and cites included.
func TestVerifySQLite(t *testing.T) {
	dir := t.TempDir()
	signer, err := audit.OpenSigner(dir, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	for range 3 {
		store, err := sqlite.Open(ctx, dir, sqlite.Options{Clock: clock.System{}, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		r := recorder(t, store, func(c *audit.RecorderConfig) { c.Dir, c.Signer = dir, signer })
		for i := range 100 {
			r.Store(refusal(i))
		}
		waitFor(t, func() bool { h, err := store.AuditHead(ctx); return err == nil && h.Position == 100 })
		mustClose(t, r)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	store, err := sqlite.Open(ctx, dir, sqlite.Options{Clock: clock.System{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	got, err := audit.Verify(ctx, store, signer.Public())
	if err != nil || len(got.Damage) != 0 || got.Writers != 3 || got.Rows != 300 || got.Heads != 3 || got.Unsigned != 0 {
		t.Errorf("report %+v, %v; want 3 writers with 300 rows, all signed", got, err)
	}
	stranger := newSigner(t)
	if got, err := audit.Verify(ctx, store, stranger.Public()); err != nil || len(got.Damage) != 3 {
		t.Errorf("with another key: %+v, %v; want each head refused", got, err)
	}
}

// waitFor waits at most ten seconds for a condition.
func waitFor(t testing.TB, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen within ten seconds")
		}
	}
}
