package tabellion

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/metrics"
)

// TestGiveUp: when another process has taken the folder and keeps it, the opening again ends with ErrInUse; when that
// process lets go in time, it succeeds; and Close ends the waiting.
func TestGiveUp(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Data = filepath.Join(t.TempDir(), "data")
	holder, err := Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(t.Context())
	fresh := func(patience time.Duration) *Server {
		return &Server{
			cfg: cfg, log: slog.New(slog.DiscardHandler), clock: clock.System{}, metrics: metrics.New("test"),
			patience: patience, stop: make(chan struct{}),
		}
	}
	old := &parts{trail: &trail{}, recorder: holder.parts.Load().recorder}
	if _, err := fresh(100 * time.Millisecond).attempts(old); !errors.Is(err, ErrInUse) {
		t.Errorf("the folder is taken: %v, want ErrInUse", err)
	}
	closed := fresh(time.Hour)
	time.AfterFunc(100*time.Millisecond, func() { close(closed.stop) })
	if _, err := closed.attempts(old); !errors.Is(err, errClosing) {
		t.Errorf("closed meanwhile: %v, want errClosing", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { holder.Close(context.Background()) })
	next, err := fresh(time.Hour).attempts(old)
	if err != nil {
		t.Fatalf("the folder was free in time: %v", err)
	}
	if err := next.close(t.Context()); err != nil {
		t.Error(err)
	}
}
