package maintain_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// smallDisk mounts a disk of 8 MiB for the test, or skips, saying so.
func smallDisk(t *testing.T) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("cannot mount a tmpfs: %v", err)
		}
		t.Skipf("SKIPPED, NOT TESTED: cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { no(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	return disk
}

// onDisk puts two data folders on a disk: one of a server that was stopped, and one of a server that was killed, so that
// there is a log, and no file yet that readers of a log need beside it.
func onDisk(t *testing.T, disk string) (stopped, killed string) {
	t.Helper()
	w := openWorld(t, t.TempDir(), clock.NewManual(day))
	w.commit("ns", []byte("some bytes"))
	killed = filepath.Join(disk, "killed")
	no(t, os.CopyFS(killed, os.DirFS(w.dir)))
	no(t, os.Chmod(filepath.Join(killed, "audit.key"), 0o600)) // CopyFS makes it one that everybody can read
	no(t, os.Remove(sqlite.Database(killed)+"-shm"))
	if info, err := os.Stat(sqlite.Database(killed) + "-wal"); err != nil || info.Size() == 0 {
		t.Fatalf("no log: the test shows nothing (%v)", err)
	}
	w.close()
	stopped = filepath.Join(disk, "stopped")
	no(t, os.CopyFS(stopped, os.DirFS(w.dir)))
	no(t, os.Chmod(filepath.Join(stopped, "audit.key"), 0o600))
	return stopped, killed
}

// works checks a folder, backs it up and says what would be repaired: all is well, and nothing is changed.
func works(t *testing.T, dir string) {
	t.Helper()
	r, err := maintain.Check(t.Context(), dir, maintain.CheckOptions{ReadData: true})
	no(t, err)
	if len(r.Findings) != 0 || r.Artifacts != 1 || r.DataBytes == 0 {
		t.Errorf("%s: %+v", dir, r)
	}
	to := filepath.Join(t.TempDir(), "b")
	_, err = maintain.Backup(t.Context(), dir, to, maintain.BackupOptions{})
	no(t, err)
	_, err = maintain.Restore(t.Context(), to, filepath.Join(t.TempDir(), "r"), maintain.RestoreOptions{})
	no(t, err)
	repair, err := maintain.Repair(t.Context(), dir, maintain.RepairOptions{DryRun: true})
	no(t, err)
	if len(repair.Done)+len(repair.Left) != 0 {
		t.Errorf("%s: %+v", dir, repair)
	}
}

// fails gives the errors of everything that works does.
func fails(t *testing.T, dir string) map[string]error {
	_, check := maintain.Check(t.Context(), dir, maintain.CheckOptions{})
	_, backup := maintain.Backup(t.Context(), dir, filepath.Join(t.TempDir(), "b"), maintain.BackupOptions{})
	_, repair := maintain.Repair(t.Context(), dir, maintain.RepairOptions{DryRun: true})
	return map[string]error{"check": check, "backup": backup, "repair": repair}
}

// TestFullDisk: a disk without room is no damage. The folder of a stopped server needs none; that of a killed one does,
// and the error says so.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t)
	stopped, killed := onDisk(t, disk)
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 9<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	works(t, stopped)
	for what, err := range fails(t, killed) {
		if !errors.Is(err, persistence.ErrUnavailable) || errors.Is(err, sqlite.ErrUnreadable) || !strings.Contains(err.Error(), "the disk is full; free some room and run it again") {
			t.Errorf("%s on a full disk: %v", what, err)
		}
	}
	no(t, os.Remove(filler))
	works(t, killed)
}

// TestReadOnlyDisk: a folder on a disk that cannot be written is checked and backed up where it is, with its lock file
// and without; one with a log, and a repair, need a disk that can be written.
func TestReadOnlyDisk(t *testing.T) {
	disk := smallDisk(t)
	stopped, killed := onDisk(t, disk)
	bare := filepath.Join(disk, "bare")
	no(t, os.CopyFS(bare, os.DirFS(stopped)))
	no(t, errors.Join(os.Remove(filepath.Join(bare, sqlite.LockFile)), os.Chmod(filepath.Join(bare, "audit.key"), 0o600)))
	no(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	works(t, stopped)
	works(t, bare)
	for what, err := range fails(t, killed) {
		if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "log") {
			t.Errorf("%s with a log: %v", what, err)
		}
	}
	if _, err := maintain.Repair(t.Context(), stopped, maintain.RepairOptions{}); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a repair: %v", err)
	}
	held, err := sqlite.HoldForReading(stopped)
	no(t, err)
	if _, err := maintain.Check(t.Context(), stopped, maintain.CheckOptions{}); !errors.Is(err, sqlite.ErrLocked) {
		t.Errorf("of a folder that is held: %v", err)
	}
	no(t, held.Close())
	if _, err := maintain.Check(t.Context(), filepath.Join(disk, "none"), maintain.CheckOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no folder: %v", err)
	}
}

// TestReadsAtLeastOne: however small a subset is, something of it is read, and not everything; a repair says whether it
// has read bytes.
func TestReadsAtLeastOne(t *testing.T) {
	w := openWorld(t, t.TempDir(), clock.NewManual(day))
	one, two := []byte("some bytes"), []byte("others")
	w.commit("ns", one)
	w.commit("ns", two)
	w.close()
	r, err := maintain.Check(t.Context(), w.dir, maintain.CheckOptions{ReadData: true, Subset: 1e-9})
	no(t, err)
	if r.DataBytes != int64(len(one)) && r.DataBytes != int64(len(two)) {
		t.Errorf("read %d bytes", r.DataBytes)
	}
	no(t, os.WriteFile(blobFile(w.dir, one), []byte("SOME BYTES"), 0o600))
	for _, read := range []bool{false, true} {
		r, err := maintain.Repair(t.Context(), w.dir, maintain.RepairOptions{ReadData: read})
		no(t, err)
		if r.BytesRead != read || (len(r.Left) == 1) != read {
			t.Errorf("with ReadData %v: %+v", read, r)
		}
	}
	_, err = maintain.Backup(t.Context(), w.dir, filepath.Join(t.TempDir(), "b"), maintain.BackupOptions{})
	var damaged *maintain.DamagedError
	if !errors.As(err, &damaged) || !strings.Contains(err.Error(), "send the same bytes again, which heals them") {
		t.Errorf("a backup with damaged bytes: %v", err)
	}
}

// TestRefusalsSayWhat: what is in the way of a backup is named, and said once.
func TestRefusalsSayWhat(t *testing.T) {
	w := openWorld(t, t.TempDir(), clock.NewManual(day))
	w.close()
	other := openWorld(t, t.TempDir(), clock.NewManual(day))
	other.close()
	half := t.TempDir()
	no(t, os.WriteFile(sqlite.Database(half), make([]byte, 1<<12), 0o600))
	for to, want := range map[string]string{
		other.dir:           ": a store is in it;",
		half:                ": a backup that was not finished is in it;",
		"/proc/self/status": "back up: look into /proc/self/status: ",
	} {
		_, err := maintain.Backup(t.Context(), w.dir, to, maintain.BackupOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", to, err, want)
		}
	}
	_, err := maintain.Restore(t.Context(), filepath.Join(half, "none"), filepath.Join(half, "r"), maintain.RestoreOptions{})
	if !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), "none") != 2 { // the folder, and "or is none"
		t.Errorf("restore from nothing: %v", err)
	}
}
