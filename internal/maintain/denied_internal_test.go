package maintain

// It looks inside: a disk that fails cannot be had from outside.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// TestDenied: what the errors of a folder of bytes mean.
func TestDenied(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		kind string
		want error
	}{
		{"not there", t.Context(), fmt.Errorf("%w: x", persistence.ErrNoBlob), KindBlobMissing, nil},
		{"disk", t.Context(), fmt.Errorf("%w: %w", persistence.ErrUnavailable, &fs.PathError{Op: "read", Err: syscall.EIO}), KindUnreadable, nil},
		{"no right", t.Context(), syscall.EACCES, KindUnreadable, nil},
		{"too many files", t.Context(), syscall.EMFILE, KindUnreadable, nil},
		{"closed", t.Context(), fmt.Errorf("%w: %w", persistence.ErrUnavailable, fs.ErrClosed), "", ErrReopened},
		{"ended", ended, fs.ErrClosed, "", context.Canceled},
	} {
		c := newChecker(tt.ctx, t.TempDir(), atRest{t.TempDir()}, CheckOptions{})
		got, err := c.denied(persistence.Digest{}, tt.err)
		if got.kind != tt.kind || !errors.Is(err, tt.want) {
			t.Errorf("%s: %q, %v", tt.name, got.kind, err)
		}
	}
	if !provable(nil, []Finding{find(KindBlobMissing, "", "")}) {
		t.Error("missing bytes keep others from being removed")
	}
	for _, kind := range []string{KindUnreadable, KindLinked, kindSchema} {
		if provable(nil, []Finding{find(kind, "", "")}) {
			t.Errorf("with %s something may be removed", kind)
		}
	}
}
