package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// tmpfs mounts a file system in memory for the test, or skips, saying so.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tabellion-test", dir, "tmpfs", 0, "size="+size); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("cannot mount a tmpfs: %v", err)
		}
		t.Skipf("SKIPPED, NOT TESTED: cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

func TestReadOnlyFileSystem(t *testing.T) {
	top := tmpfs(t, "16m")
	dir := filepath.Join(top, "data")
	if err := openAt(t, dir, sqlite.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", top, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, filepath.Join(top, "new")} {
		_, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
		if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v, want one that says read-only and names %s", err, dir)
		}
	}
	if err := syscall.Mount("", top, "", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	openAt(t, dir, sqlite.Options{})
}

// TestDiskFull fills the disk under a store: writes are refused as not done, reads go on, and writes work again when
// there is space.
func TestDiskFull(t *testing.T) {
	top := tmpfs(t, "8m")
	s := openAt(t, filepath.Join(top, "data"), sqlite.Options{})
	done, i := 0, 0
	write := func() error {
		_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Key: fmt.Sprint("k", i), Now: day}, one(fmt.Sprint("d", i), 1<<15))
		i++
		if err == nil {
			done++
		}
		return err
	}
	for range 5 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	filler := fill(t, filepath.Join(top, "filler"))
	refused := 0
	for range 20 {
		err := write()
		if err != nil && (!errors.Is(err, persistence.ErrUnavailable) || errors.Is(err, persistence.ErrUnknown)) {
			t.Fatalf("on a full disk: %v, want ErrUnavailable", err)
		}
		if err != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("nothing was refused: the disk was not full")
	}
	if err := s.Healthy(); err != nil {
		t.Errorf("a full disk is for ever: %v", err)
	}
	count(t, s, done)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := write(); err != nil {
			t.Fatalf("after space was freed: %v", err)
		}
	}
	count(t, s, done)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	count(t, openAt(t, filepath.Join(top, "data"), sqlite.Options{}), done)
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return name
		}
	}
}
