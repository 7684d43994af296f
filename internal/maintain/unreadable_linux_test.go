package maintain_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
)

// stranger is a user whom modes keep out, unlike the superuser.
const stranger = 65534

// asStranger runs fn with the rights of the owner of dir, which is made a stranger's when the tests are the superuser's.
// Linux has the user of file operations by the thread; this one is not used again.
func asStranger(t *testing.T, dir string, fn func() error) {
	t.Helper()
	done := make(chan error, 1)
	root := os.Getuid() == 0
	if root {
		no(t, filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(name, stranger, stranger))
		}))
		no(t, os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o711)) // what testing makes is closed to others
	}
	go func() {
		runtime.LockOSThread()
		var err error
		if root {
			err = syscall.Setfsuid(stranger)
		}
		done <- errors.Join(err, fn())
	}()
	no(t, <-done)
}

// unneeded puts bytes that nothing needs into a folder, and gives their file.
func unneeded(t *testing.T, dir string) string {
	t.Helper()
	file := blobFile(dir, []byte("nothing needs this"))
	no(t, os.MkdirAll(filepath.Dir(file), 0o700))
	no(t, os.WriteFile(file, []byte("nothing needs this"), 0o600))
	return file
}

// TestUnreadable: bytes that cannot be read are neither missing nor wrong. A repair takes no upload back for them, and
// removes nothing meanwhile; when they can be read again, nothing is lost.
func TestUnreadable(t *testing.T) {
	h := twoLives(t)
	for _, what := range []string{"file", "folder"} {
		t.Run(what, func(t *testing.T) {
			dir := copyTree(t, h.dir)
			extra := unneeded(t, dir)
			shut := []string{blobFile(dir, h.aloneBytes), blobFile(dir, h.receivedBytes)}
			if what == "folder" {
				shut = []string{filepath.Dir(shut[0]), filepath.Dir(shut[1])}
			}
			before := fingerprint(t, dir)
			for _, name := range shut {
				no(t, os.Chmod(name, 0))
			}
			asStranger(t, dir, func() error { return leaves(t, &h, dir) })
			for _, name := range shut {
				no(t, os.Chmod(name, 0o700))
			}
			if after := fingerprint(t, dir); after != before {
				t.Errorf("the repair changed the folder:\n%s\n%s", before, after)
			}
			r, err := maintain.Repair(t.Context(), dir, maintain.RepairOptions{})
			no(t, err)
			if len(r.Left) != 0 || len(r.Done) != 1 || !named(r.Done, maintain.KindBlobUnneeded, extra) {
				t.Errorf("with everything readable:%s%s", lines(r.Done), lines(r.Left))
			}
			if now := checked(t, dir); len(now.Findings) != 0 {
				t.Error(lines(now.Findings))
			}
		})
	}
}

// leaves checks and repairs a folder with bytes that cannot be read: they are named, and left.
func leaves(t *testing.T, h *healthy, dir string) error {
	check, err := maintain.Check(t.Context(), dir, maintain.CheckOptions{})
	if err != nil {
		return err
	}
	repair, err := maintain.Repair(t.Context(), dir, maintain.RepairOptions{})
	if err != nil {
		return err
	}
	if len(repair.Done) != 0 || repair.Copy != "" {
		t.Errorf("repaired:%s", lines(repair.Done))
	}
	for name, found := range map[string][]maintain.Finding{"check": check.Findings, "repair": repair.Left} {
		for _, id := range []string{h.alone, h.received} {
			if !named(found, maintain.KindUnreadable, "ns/"+id) {
				t.Errorf("%s: %s is not named, but:%s", name, id, lines(found))
			}
		}
		if slices.ContainsFunc(found, func(f maintain.Finding) bool {
			return f.Kind != maintain.KindUnreadable && f.Kind != maintain.KindBlobUnneeded
		}) {
			t.Errorf("%s:%s", name, lines(found))
		}
	}
	return nil
}

// locksOn counts the locks that this process has on a file.
func locksOn(t *testing.T, file string) (n int) {
	t.Helper()
	info, err := os.Stat(file)
	no(t, err)
	text, err := os.ReadFile("/proc/locks")
	no(t, err)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 5 && f[1] == "POSIX" && f[4] == fmt.Sprint(os.Getpid()) && strings.HasSuffix(f[5], fmt.Sprint(":", info.Sys().(*syscall.Stat_t).Ino)) {
			n++
		}
	}
	return n
}

// TestLocksStay: a check and a backup beside a server take none of the locks away that SQLite has on the database of this
// process, as everybody does who opens and closes its file.
func TestLocksStay(t *testing.T) {
	w := openWorld(t, t.TempDir(), clock.NewManual(day))
	w.commit("ns", []byte("some bytes"))
	file := filepath.Join(w.dir, "tabellion.db")
	before := locksOn(t, file)
	if before == 0 {
		t.Fatal("the server has no lock on its database: the test shows nothing")
	}
	_, err := maintain.CheckOpen(t.Context(), w.store, w.blobs, maintain.CheckOptions{ReadData: true})
	no(t, err)
	_, err = maintain.BackupOpen(t.Context(), w.store, w.blobs, w.server.Service.HoldBlobs, w.dir, filepath.Join(t.TempDir(), "b"), maintain.BackupOptions{})
	no(t, err)
	no(t, maintain.Place(w.dir))
	if after := locksOn(t, file); after != before {
		t.Errorf("%d locks before, %d after", before, after)
	}
	f, err := os.Open(file)
	no(t, err)
	no(t, f.Close())
	if after := locksOn(t, file); after == before {
		t.Error("the file was opened and closed, and the locks are there: the test shows nothing")
	}
	w.close()
}
