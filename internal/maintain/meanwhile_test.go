package maintain_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
)

// TestClosedMeanwhile: when the bytes or the store are closed under a check or a backup, that fails as a whole, and names
// nothing as damaged.
func TestClosedMeanwhile(t *testing.T) {
	check := func(w *world, p maintain.Progress) error {
		r, err := maintain.CheckOpen(t.Context(), w.store, w.blobs, maintain.CheckOptions{ReadData: true, Progress: p})
		if err == nil {
			err = fmt.Errorf("findings:%s", lines(r.Findings))
		}
		return err
	}
	backup := func(w *world, p maintain.Progress) error {
		_, err := maintain.BackupOpen(t.Context(), w.store, w.blobs, w.server.Service.HoldBlobs, w.dir, filepath.Join(t.TempDir(), "b"), maintain.BackupOptions{Progress: p})
		return err
	}
	closeBlobs := func(w *world) func() { no(t, w.blobs.Close()); return func() {} }
	closeStore := func(w *world) func() {
		done := make(chan error, 1)
		go func() { done <- w.store.Close() }()
		for !w.store.Closed() {
		}
		return func() { no(t, <-done) }
	}
	for _, tt := range []struct {
		name  string
		run   func(*world, maintain.Progress) error
		at    string // stage
		close func(*world) (end func())
	}{
		{"bytes under a check", check, "checking documents", closeBlobs},
		{"bytes under a check that reads", check, "reading artifacts", closeBlobs},
		{"bytes under a backup", backup, "copying artifacts", closeBlobs},
		{"store under a check", check, "checking documents", closeStore},
		{"store at the end of a check", check, "reading artifacts", closeStore},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openWorld(t, t.TempDir(), clock.NewManual(day))
			w.commit("ns", []byte("one"))
			w.commit("ns", []byte("two"))
			w.put(w.ana, "ns", "d", 0, 1)
			no(t, w.recorder.Close(context.WithoutCancel(t.Context())))
			var end func()
			err := tt.run(w, func(stage string, _, _ int64) {
				if stage == tt.at && end == nil {
					end = tt.close(w)
				}
			})
			if end == nil {
				t.Fatalf("there was no stage %q", tt.at)
			}
			end()
			wantIs(t, err, maintain.ErrReopened)
			if damaged := (*maintain.DamagedError)(nil); errors.As(err, &damaged) || !strings.Contains(err.Error(), "the store was reopened meanwhile; run it again") {
				t.Errorf("%v", err)
			}
			no(t, w.blobs.Close())
			no(t, w.store.Close())
			if r := checked(t, w.dir); len(r.Findings) != 0 {
				t.Error(lines(r.Findings))
			}
		})
	}
}

// TestRestoreOfAnother: a restore that was broken off is not gone on with from another backup; with Force nothing of the
// first is kept.
func TestRestoreOfAnother(t *testing.T) {
	_, first := backedUp(t)
	w := openWorld(t, t.TempDir(), clock.NewManual(day))
	w.commit("ns", []byte("of the second"))
	w.close()
	second := filepath.Join(t.TempDir(), "second")
	_, err := maintain.Backup(t.Context(), w.dir, second, maintain.BackupOptions{})
	no(t, err)
	dir := filepath.Join(t.TempDir(), "data")
	ctx, cancel := context.WithCancel(t.Context())
	_, err = maintain.Restore(ctx, first, dir, maintain.RestoreOptions{Progress: func(stage string, _, _ int64) {
		if stage == "copying the database" {
			cancel()
		}
	}})
	wantIs(t, err, context.Canceled)
	before := fingerprint(t, dir)
	if !strings.Contains(before, "audit.key") || !strings.Contains(before, "tabellion.db.partial") {
		t.Fatalf("it was not broken off late enough:\n%s", before)
	}
	wantIs(t, maintain.Place(dir), maintain.ErrUnfit)
	_, err = maintain.Restore(t.Context(), second, dir, maintain.RestoreOptions{})
	wantIs(t, err, maintain.ErrNotEmpty)
	if fingerprint(t, dir) != before || !strings.Contains(err.Error(), "another backup") {
		t.Errorf("the refusal: %v", err)
	}
	r, err := maintain.Restore(t.Context(), second, dir, maintain.RestoreOptions{Force: true})
	no(t, err)
	if fingerprint(t, r.Aside) != before {
		t.Error("what there was is not aside")
	}
	if found := checked(t, dir); len(found.Findings) != 0 || found.Blobs != 1 {
		t.Errorf("%d blobs%s", found.Blobs, lines(found.Findings))
	}
	want, err := os.ReadFile(filepath.Join(second, "audit.key"))
	no(t, err)
	if got, err := os.ReadFile(filepath.Join(dir, "audit.key")); err != nil || string(got) != string(want) {
		t.Errorf("the audit key is not that of the second backup: %v", err)
	}
	if _, err := maintain.Restore(t.Context(), first, r.Aside, maintain.RestoreOptions{}); err != nil { // the first can be gone on with
		t.Error(err)
	}
}
