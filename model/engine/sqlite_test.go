package engine_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// sqlitePlace is an empty SQLite database, with a second one attached for copies of tables.
func sqlitePlace(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "data.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1) // the attached database belongs to a connection
	if _, err := db.Exec("ATTACH ? AS kept", filepath.Join(dir, "kept.db")); err != nil {
		t.Fatal(err)
	}
	return place{engine: sqlgen.EngineSQLite, db: db, other: "kept", again: sqlitePlace, open: func(t *testing.T) plan.Source {
		t.Helper()
		s, err := sqlite.Open(t.Context(), sqlite.Config{Read: path, Write: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}}
}
