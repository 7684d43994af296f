package sqlite_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/source/sourcetest"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// TestSource runs the contract of sources.
func TestSource(t *testing.T) { sourcetest.Run(t, newPlace) }

// newPlace makes an empty database file.
func newPlace(t testing.TB) sourcetest.Place {
	return placeAt(t, filepath.Join(t.TempDir(), "a b?c#d.db"))
}

// placeAt makes a place on a file that does not exist yet.
func placeAt(t testing.TB, path string) sourcetest.Place {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	person, err := sql.Open("sqlite", "file:"+strings.NewReplacer("?", "%3f", "#", "%23", " ", "%20").Replace(path)+"?_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if _, err := person.Exec("PRAGMA journal_mode=WAL"); err != nil {
		t.Fatal(err)
	}
	return sourcetest.Place{
		Engine: sqlgen.EngineSQLite,
		Open: func(t testing.TB, o sourcetest.Options) plan.Source {
			t.Helper()
			c := sqlite.Config{Read: "sqlite:" + path, Write: path, Timeout: o.Timeout, LockTimeout: o.LockTimeout, MaxUnindexed: o.MaxUnindexed, OnSQL: o.OnSQL, Now: o.Now}
			if o.NoWrites {
				c.Write = ""
			}
			s, err := sqlite.Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Exec: func(t testing.TB, script string) {
			t.Helper()
			if _, err := person.Exec(script); err != nil {
				t.Fatalf("%v in %s", err, script)
			}
		},
		Query: func(t testing.TB, text string) [][]string {
			t.Helper()
			return query(t, person, text)
		},
		Plan: func(t testing.TB, s sourcetest.Sent) string {
			t.Helper()
			var lines []string
			args := make([]any, s.Args)
			for i := range args {
				args[i] = "[1]" // a list for the parents, and no matter for the rest
			}
			for _, row := range query(t, person, "EXPLAIN QUERY PLAN "+s.Text, args...) {
				lines = append(lines, row[3])
			}
			return strings.Join(lines, "\n")
		},
	}
}

// query gives rows as text.
func query(t testing.TB, db *sql.DB, text string, args ...any) [][]string {
	t.Helper()
	rows, err := db.Query(text, args...)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	defer rows.Close()
	names, _ := rows.Columns()
	var out [][]string
	for rows.Next() {
		cells, at := make([]any, len(names)), make([]any, len(names))
		for i := range cells {
			at[i] = &cells[i]
		}
		if err := rows.Scan(at...); err != nil {
			t.Fatal(err)
		}
		line := make([]string, len(cells))
		for i, c := range cells {
			line[i] = fmt.Sprint(c)
		}
		out = append(out, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
