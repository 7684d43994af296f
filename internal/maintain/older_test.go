package maintain_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// olderFolder is a data folder as the first released format left it.
func olderFolder(t *testing.T) string {
	t.Helper()
	f, err := os.Open("../store/sqlite/testdata/format1.db.gz")
	no(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	no(t, err)
	text, err := io.ReadAll(z)
	no(t, err)
	dir := t.TempDir()
	no(t, os.WriteFile(filepath.Join(dir, "tabellion.db"), text, 0o600))
	return dir
}

// TestOlderFormat: a check says that the folder is to be migrated and changes nothing; a repair does nothing; a backup
// is made of it as it is, and restored into the newest format.
func TestOlderFormat(t *testing.T) {
	dir := olderFolder(t)
	before := fingerprint(t, dir)
	r := checked(t, dir)
	if r.Format != 1 || !named(r.Findings, maintain.KindOlderFormat, dir) || r.Revisions == 0 {
		t.Errorf("report: %+v", r)
	}
	repair, err := maintain.Repair(t.Context(), dir, maintain.RepairOptions{})
	no(t, err)
	if len(repair.Done) != 0 || !named(repair.Left, maintain.KindOlderFormat, dir) {
		t.Errorf("repair: %+v", repair)
	}
	if after := fingerprint(t, dir); after != before {
		t.Errorf("the folder was changed:\n%s\n%s", before, after)
	}
	if have, _, err := sqlite.Format(dir); err != nil || have != 1 {
		t.Errorf("format %d, %v", have, err)
	}
	damageSQL(t, dir, "DELETE FROM audit_heads") // its signatures are made up, and a damaged trail is not backed up
	backup, to := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "data")
	made, err := maintain.Backup(t.Context(), dir, backup, maintain.BackupOptions{})
	no(t, err)
	restored, err := maintain.Restore(t.Context(), backup, to, maintain.RestoreOptions{})
	no(t, err)
	if made.Format != 1 || restored.Check.Format != 2 || restored.Check.Revisions != r.Revisions {
		t.Errorf("backup of format %d, restored as %d with %d revisions of %d", made.Format, restored.Check.Format, restored.Check.Revisions, r.Revisions)
	}
	if now := checked(t, to); len(now.Findings) != 0 {
		t.Errorf("restored:%s", lines(now.Findings))
	}
}
