package sqlite

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// statements splits the script of a migration.
func statements(script string) (all []string) {
	for _, s := range strings.Split(script, ";") {
		if s = strings.TrimSpace(s); s != "" {
			all = append(all, s)
		}
	}
	return all
}

// oldStore opens the kept database of a format for migrating, in a new data folder.
func oldStore(t *testing.T, name string) (*folder, *conn) {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	db, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, databaseName), db, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openFolder(dir, persistence.FileAndDirectorySync)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dial(f.path(databaseName), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := prepareWriter(c); err != nil {
		t.Fatal(err)
	}
	return f, c
}

// dump is the schema and every row of every table of format 1.
func dump(t *testing.T, c *conn) string {
	t.Helper()
	var b strings.Builder
	line := func(r row) error {
		for _, v := range r {
			fmt.Fprintf(&b, "%v|", v)
		}
		b.WriteByte('\n')
		return nil
	}
	if err := c.query("SELECT type, name, sql FROM sqlite_schema ORDER BY name", line); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"heads", "revisions", "inbound", "usage", "idempotency", "audit_rows"} {
		if err := c.query("SELECT * FROM "+table, line); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestMigrationFails has the migration fail behind each of its statements: format 1 is as it was, and the next open
// finishes.
func TestMigrationFails(t *testing.T) {
	all := statements(migrations[1])
	if len(all) < 15 {
		t.Fatalf("only %d statements", len(all))
	}
	for i := range len(all) + 1 {
		f, c := oldStore(t, "format1.db.gz")
		before := dump(t, c)
		script := strings.Join(append(all[:i:i], "INSERT INTO heads (namespace) VALUES (NULL)"), ";")
		if err := migrateStep(c, 1, script); err == nil {
			t.Fatalf("statement %d: the planted failure did not fail", i)
		}
		if format, err := checkFormat(c); err != nil || format != 1 {
			t.Errorf("statement %d: the format is %d (%v)", i, format, err)
		}
		if after := dump(t, c); after != before {
			t.Errorf("statement %d left\n%s\nof\n%s", i, after, before)
		}
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
		finishes(t, f.dir, i)
	}
}

// TestMigrationKilled copies the files behind each statement of a migration, as a kill would leave them, with so small
// a cache that pages are in the log before the commit: the copy is of format 1, and the next open finishes. The copy
// behind the commit, from the log that nothing has written back, is of format 2.
func TestMigrationKilled(t *testing.T) {
	all := statements(migrations[1])
	f, c := oldStore(t, "format1.db.gz")
	defer f.close()
	defer c.close()
	if err := c.script("PRAGMA cache_size=1;BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	spilled := false
	for i, statement := range append(all, "PRAGMA user_version=2", "COMMIT") {
		if err := c.script(statement); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for _, name := range []string{databaseName, databaseName + "-wal"} {
			b, err := os.ReadFile(f.path(name))
			if err != nil {
				t.Fatal(err)
			}
			spilled = spilled || statement != "COMMIT" && strings.HasSuffix(name, "-wal") && len(b) > 0
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want := 1
		if statement == "COMMIT" {
			want = 2
		}
		if have, _, err := Format(dir); err != nil || have != want {
			t.Errorf("behind %q the format is %d (%v), want %d", statement, have, err, want)
		}
		finishes(t, dir, i)
	}
	if !spilled {
		t.Error("nothing was in the log before the commit: the test shows less than it says")
	}
}

// finishes opens the folder and looks whether all is there.
func finishes(t *testing.T, dir string, at int) {
	t.Helper()
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatalf("statement %d: %v", at, err)
	}
	defer s.Close()
	err = s.View(t.Context(), func(r persistence.Reader) error {
		d, ok, err := r.HeadDocument("ns", "linked")
		if err != nil || !ok || d.Revision != 2 {
			t.Errorf("statement %d: %+v %v %v", at, d, ok, err)
		}
		refs, err := r.Inbound(persistence.Ref{Type: persistence.RefDocument, Namespace: "ns", ID: "plan", Revision: 1}, persistence.Ref{}, 10)
		if err != nil || len(refs) != 3 {
			t.Errorf("statement %d: %d inbound references (%v)", at, len(refs), err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if have, known, err := Format(dir); err != nil || have != known {
		t.Errorf("statement %d: the format is %d of %d (%v)", at, have, known, err)
	}
}
