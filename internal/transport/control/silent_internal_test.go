package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
)

// mute listens on the control socket of a new folder and answers nobody, as a stopped process does.
func mute(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mute") // a short path: sockets need one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return dir
}

// TestSilentOwner looks inside for a short patience: an owner that is there and says nothing is told from one that is not
// there, and named. A caller who goes away first gets his own error.
func TestSilentOwner(t *testing.T) {
	dir := mute(t)
	_, err := ask(t.Context(), dir, 50*time.Millisecond)
	if !errors.Is(err, ErrSilent) || errors.Is(err, ErrNobody) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v", err)
	}
	if pid := fmt.Sprintf("process %d has", os.Getpid()); peerPID(connected(t, dir)) != 0 && !strings.Contains(err.Error(), pid) {
		t.Errorf("got %v, want %q in it", err, pid)
	}
	if _, err := ask(t.Context(), t.TempDir(), 50*time.Millisecond); !errors.Is(err, ErrNobody) || errors.Is(err, ErrSilent) {
		t.Errorf("without an owner: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	for name, call := range map[string]func() error{
		"ask":  func() error { _, err := Ask(gone, dir); return err },
		"run":  func() error { _, err := Run(gone, dir, Who{Subject: "me"}, "do", canonjson.Object()); return err },
		"join": func() error { _, _, err := Join(gone, dir, Who{Subject: "me"}, catalog.All); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) || errors.Is(err, ErrSilent) {
			t.Errorf("%s of a caller who goes away: %v", name, err)
		}
	}
}

// TestSilentRunAndJoin: an operation and a session are not waited for either, with the patience that commands have.
func TestSilentRunAndJoin(t *testing.T) {
	t.Parallel()
	dir := mute(t)
	errs := make(chan error, 2)
	go func() {
		_, err := Run(t.Context(), dir, Who{Subject: "me"}, "do", canonjson.Object())
		errs <- err
	}()
	go func() {
		_, _, err := Join(t.Context(), dir, Who{Subject: "me"}, catalog.All)
		errs <- err
	}()
	for range 2 {
		select {
		case err := <-errs:
			if !errors.Is(err, ErrSilent) {
				t.Errorf("got %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("it waits for ever")
		}
	}
}

// connected is a connection to the socket of a folder.
func connected(t *testing.T, dir string) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn)
}
