package blob_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
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

// tryKeep keeps content and drops what could not be kept.
func tryKeep(t *testing.T, f *blob.Folder, content []byte) error {
	t.Helper()
	w, err := f.Create(t.Context())
	if err != nil {
		return err
	}
	if _, err = w.Write(content); err == nil {
		err = w.Keep(t.Context())
	} else if kept := w.Keep(t.Context()); !errors.Is(kept, persistence.ErrUnavailable) {
		t.Errorf("keep after a failed write: got %v, want ErrUnavailable", kept)
	}
	if dropped := w.Drop(); dropped != nil {
		t.Errorf("drop: %v", dropped)
	}
	return err
}

// TestDiskFull fills the disk under a folder: blobs are refused, those kept can be read and no part stays; and without
// anything being opened again blobs are kept when there is space.
func TestDiskFull(t *testing.T) {
	top := tmpfs(t, "4m")
	dir := filepath.Join(top, "blobs")
	f := openAt(t, dir, blob.FolderOptions{})
	d := keep(t, f, "before")
	filler := fill(t, filepath.Join(top, "filler"), 1<<20)
	for i := range 3 {
		big := make([]byte, 2<<20)
		big[0] = byte(i)
		if err := tryKeep(t, f, big); !errors.Is(err, persistence.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("on a full disk: %v, want ErrUnavailable with the cause", err)
		}
		if n := parts(t, dir); n != 0 {
			t.Errorf("%d parts take space", n)
		}
	}
	if err := tryKeep(t, f, make([]byte, 100_000)); err != nil {
		t.Errorf("a blob for which there is space: %v", err)
	}
	fill(t, filepath.Join(top, "filler2"), 0)
	if err := tryKeep(t, f, []byte("small")); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("on a disk without a byte: %v, want ErrUnavailable", err)
	}
	if err := whole(t, f, d); err != nil {
		t.Error(err)
	}
	if n := count(t, f); n != 2 {
		t.Errorf("%d blobs, want 2", n)
	}
	if err := f.Healthy(); err != nil {
		t.Errorf("a full disk is for ever: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := whole(t, f, keep(t, f, "small")); err != nil {
		t.Error(err)
	}
}

// fill writes a file until no more than rest bytes are free.
func fill(t *testing.T, name string, rest int64) string {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for {
		var s syscall.Statfs_t
		if err := syscall.Statfs(name, &s); err != nil {
			t.Fatal(err)
		}
		if int64(s.Bavail)*s.Bsize <= rest {
			return name
		}
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadOnly makes the disk read-only under a folder, and writable again.
func TestReadOnly(t *testing.T) {
	top := tmpfs(t, "4m")
	dir := filepath.Join(top, "blobs")
	f := openAt(t, dir, blob.FolderOptions{})
	d := keep(t, f, "before")
	remount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("", top, "", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(syscall.MS_RDONLY)
	for name, err := range map[string]error{"keep": tryKeep(t, f, []byte("new")), "delete": f.Delete(t.Context(), d)} {
		if !errors.Is(err, persistence.ErrUnavailable) || !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s on a read-only disk: %v, want ErrUnavailable with the cause", name, err)
		}
	}
	if err := whole(t, f, d); err != nil {
		t.Error(err)
	}
	if err := f.Healthy(); err != nil {
		t.Errorf("no sync has failed: %v", err)
	}
	if _, err := blob.OpenFolder(dir, blob.FolderOptions{}); !errors.Is(err, syscall.EROFS) {
		t.Errorf("opened on a read-only disk: %v, want EROFS", err)
	}
	remount(0)
	if err := whole(t, f, keep(t, f, "new")); err != nil {
		t.Error(err)
	}
}

// TestNoFileStaysOpen closes what it opens: after many blobs, kept, dropped, refused and read, no file is open that was not before.
func TestNoFileStaysOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	f := openAt(t, dir, blob.FolderOptions{})
	use := func(from, to int) {
		for i := from; i < to; i++ {
			content := fmt.Sprint(i)
			d := keep(t, f, content)
			if err := errors.Join(begin(t, f, []byte("dropped")).Drop(), whole(t, f, d)); err != nil {
				t.Error(err)
			}
			blocked := fmt.Sprint("blocked ", i)
			path := f.Path(sha256.Sum256([]byte(blocked)))
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := tryKeep(t, f, []byte(blocked)); !errors.Is(err, persistence.ErrUnavailable) {
				t.Errorf("a folder has the name of the blob: got %v, want ErrUnavailable", err)
			}
			if err := f.Delete(t.Context(), d); err != nil {
				t.Error(err)
			}
		}
		if count(t, f) != 0 || parts(t, dir) != 0 {
			t.Error("blobs or parts are left")
		}
	}
	use(0, 20)
	before := openFiles(t)
	use(20, 70)
	if after := openFiles(t); after > before {
		t.Errorf("%d files were open, then %d", before, after)
	}
}

// openFiles counts the open files of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
