package inspect

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

// TestSlowView guards that a view that never ends does not hold up inspection, and keeps the types that it claims.
func TestSlowView(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "slow.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE a (b INTEGER); INSERT INTO a VALUES ('text');
		CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT b FROM a UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS most, b FROM n, a;
		CREATE TABLE z (b INTEGER); INSERT INTO z VALUES ('text')`); err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := &sqliteInspector{conn: conn, patience: 50 * time.Millisecond}
	tables, err := in.tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) != 3 || tables[1].Name != "endless" || len(tables[1].Columns) != 2 {
		t.Fatalf("tables: %+v", tables)
	}
	if got := tables[1].Columns[1].Type; got != "int" {
		t.Errorf("the slow view's column is %s, want what it claims", got)
	}
	if got := tables[2].Columns[0].Type; got != "string" {
		t.Errorf("the column of the table behind the slow view is %s, want what it holds", got)
	}
}
