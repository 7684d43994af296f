package maintain_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
)

// guarded runs fn, and fails when it hangs.
func guarded(t *testing.T, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatal("it hangs")
		return nil
	}
}

// instead puts something else in the place of a file.
func instead(t *testing.T, name string, put func(name string) error) {
	t.Helper()
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	no(t, put(name))
}

// Things that are no files, or none of any length that can be read.
func pipe(name string) error   { return syscall.Mkfifo(name, 0o600) }
func zeroes(name string) error { return os.Symlink("/dev/zero", name) }
func huge(name string) error {
	return errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, 3<<29))
}

// TestCraftedBackup: what somebody put into a backup neither keeps a restore waiting nor fills the memory, and nothing of it
// is restored.
func TestCraftedBackup(t *testing.T) {
	h, backup := backedUp(t)
	blobName := strings.TrimPrefix(blobFile("", h.aloneBytes), "/")
	for _, file := range []string{"audit.key", "tabellion.db", "backup.json", blobName} {
		for name, put := range map[string]func(string) error{"pipe": pipe, "zeroes": zeroes, "huge": huge} {
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) {
				bad, to := copyTree(t, backup), filepath.Join(t.TempDir(), "data")
				if file == "tabellion.db" && name == "huge" {
					t.Skip("a long database is read in pieces and found to be another one, as TestDamagedBackup shows")
				}
				instead(t, filepath.Join(bad, file), put)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := guarded(t, func() error {
					_, err := maintain.Restore(t.Context(), bad, to, maintain.RestoreOptions{})
					return err
				})
				runtime.ReadMemStats(&after)
				if err == nil {
					t.Error("it was restored")
				}
				t.Log(err)
				if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
					t.Errorf("%d bytes of memory were taken", used)
				}
				if text, err := os.ReadFile(filepath.Join(to, "tabellion.db")); err == nil && !strings.HasPrefix(string(text), "tabellion: a restore") {
					t.Error("there is a store")
				}
			})
		}
	}
}

// TestLinkedBackup: a link in the place of a file is not followed, were it to the very bytes.
func TestLinkedBackup(t *testing.T) {
	h, backup := backedUp(t)
	for _, file := range []string{"audit.key", "tabellion.db", "backup.json", strings.TrimPrefix(blobFile("", h.aloneBytes), "/")} {
		bad := copyTree(t, backup)
		link(t, filepath.Join(bad, file))
		if _, err := maintain.Restore(t.Context(), bad, filepath.Join(t.TempDir(), "data"), maintain.RestoreOptions{}); err == nil {
			t.Errorf("%s as a link was restored", file)
		}
	}
}

// TestLogBesideBackup: a log, a journal and the like beside the database of a backup are not read.
func TestLogBesideBackup(t *testing.T) {
	_, backup := backedUp(t)
	for _, ending := range []string{"-wal", "-journal", "-shm"} {
		no(t, pipe(filepath.Join(backup, "tabellion.db"+ending)))
	}
	dir := filepath.Join(t.TempDir(), "data")
	no(t, guarded(t, func() error {
		_, err := maintain.Restore(t.Context(), backup, dir, maintain.RestoreOptions{})
		return err
	}))
	if r := checked(t, dir); len(r.Findings) != 0 {
		t.Error(lines(r.Findings))
	}
}

// TestPipeForKey: a check and a backup of a folder whose audit key is a pipe say so.
func TestPipeForKey(t *testing.T) {
	h := twoLives(t)
	instead(t, filepath.Join(h.dir, "audit.key"), pipe)
	no(t, guarded(t, func() error {
		r, err := maintain.Check(t.Context(), h.dir, maintain.CheckOptions{})
		if err == nil && !named(r.Findings, maintain.KindAuditKey, "audit.key") {
			t.Error(lines(r.Findings))
		}
		return err
	}))
	err := guarded(t, func() error {
		_, err := maintain.Backup(t.Context(), h.dir, filepath.Join(t.TempDir(), "b"), maintain.BackupOptions{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "audit key") {
		t.Errorf("the backup says %v", err)
	}
}

// reseal writes backup.json for what a backup holds by now, as whoever can write to it can.
func reseal(t *testing.T, backup string) {
	t.Helper()
	m, err := maintain.ReadManifest(backup)
	no(t, err)
	text, err := os.ReadFile(filepath.Join(backup, "tabellion.db"))
	no(t, err)
	sum := sha256.Sum256(text)
	m.Database, m.Bytes = hex.EncodeToString(sum[:]), int64(len(text))
	text, err = json.Marshal(m)
	no(t, err)
	no(t, os.WriteFile(filepath.Join(backup, "backup.json"), text, 0o600))
}

// TestForeignSchema: a backup with a trigger in it, and everything else right, is refused before anything is touched; the
// same without the trigger is restored.
func TestForeignSchema(t *testing.T) {
	_, backup := backedUp(t)
	dir := filepath.Join(t.TempDir(), "data")
	damageSQL(t, backup, "CREATE TRIGGER x BEFORE INSERT ON inbound BEGIN SELECT RAISE(IGNORE); END")
	reseal(t, backup)
	_, err := maintain.Restore(t.Context(), backup, dir, maintain.RestoreOptions{})
	var damaged *maintain.DamagedError
	if !errors.As(err, &damaged) || !named(damaged.Findings, "schema-changed", "trigger x") {
		t.Errorf("the restore says %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("something was restored")
	}
	damageSQL(t, backup, "DROP TRIGGER x")
	reseal(t, backup)
	r, err := maintain.Restore(t.Context(), backup, dir, maintain.RestoreOptions{})
	no(t, err)
	if !strings.Contains(r.Trust, "no signature") {
		t.Errorf("the report says %q of what backup.json is", r.Trust)
	}
}

// TestBackupOverServer: a folder that a server has is not moved aside by a backup of another one, whatever is forced.
func TestBackupOverServer(t *testing.T) {
	mine, other := openWorld(t, t.TempDir(), clock.NewManual(day)), openWorld(t, t.TempDir(), clock.NewManual(day))
	mine.commit("ns", []byte("mine"))
	for name, backup := range map[string]func(to string) error{
		"beside": func(to string) error {
			_, err := maintain.BackupOpen(t.Context(), mine.store, mine.blobs, mine.server.Service.HoldBlobs, mine.dir, to, maintain.BackupOptions{Force: true})
			return err
		},
		"alone": func(to string) error {
			_, err := maintain.Backup(t.Context(), twoLives(t).dir, to, maintain.BackupOptions{Force: true})
			return err
		},
	} {
		err := backup(other.dir)
		wantIs(t, err, maintain.ErrNotEmpty)
		if !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("%s: %v", name, err)
		}
		other.put(other.ana, "ns", name, 0, "goes on")
	}
	other.close()
	if r := checked(t, other.dir); r.Documents != 2 || len(r.Findings) != 0 {
		t.Errorf("the other folder: %+v", r)
	}
	r, err := maintain.BackupOpen(t.Context(), mine.store, mine.blobs, mine.server.Service.HoldBlobs, mine.dir, other.dir, maintain.BackupOptions{Force: true})
	no(t, err) // nobody has it any more
	if r := checked(t, r.Aside); r.Documents != 2 {
		t.Errorf("what is aside: %+v", r)
	}
	mine.close()
}
