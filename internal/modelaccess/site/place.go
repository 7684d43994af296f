//go:build unix

// Package site puts models on a real database behind a real gate in this process, for tests of what callers can see and do.
//
//	p := site.SQLite(t)
//	s := site.New(t, p, site.Config{Definitions: definitions, Seed: seed})
//	answer := s.Call(t, site.Who{User: "ana", Roles: []string{"staff"}}, "query", `{"gql":"Team { name }"}`)
//
// Every statement that a source sends is noted at its Place.
package site

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the test's own connections
	_ "modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Place is one empty database, with a connection of the test's own.
type Place struct {
	Engine sqlgen.Engine
	DB     *sql.DB
	// Read and Write are the addresses that sources open. On PostgreSQL both are the cluster's owner, who may do everything:
	// a test that needs a lesser role sets them.
	Read, Write string

	mu   sync.Mutex
	sent []Sent
}

// Sent is one statement that went to the database, with the number of its arguments.
type Sent struct {
	Text string
	Args int
}

// SQLite makes an empty database file.
func SQLite(t testing.TB) *Place {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Ping(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &Place{Engine: sqlgen.EngineSQLite, DB: db, Read: path, Write: path}
}

// Postgres makes an empty database in the cluster of this test process.
func Postgres(t testing.TB) *Place {
	t.Helper()
	url := pgcluster.Start(t).NewDatabase(t)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &Place{Engine: sqlgen.EnginePostgres, DB: db, Read: url, Write: url}
}

// Each runs f on an empty database of each engine.
func Each(t *testing.T, f func(t *testing.T, p *Place)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, Postgres(t)) })
}

// Exec runs statements as the database's owner.
func (p *Place) Exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := p.DB.Exec(s); err != nil {
			t.Fatalf("%v\n%s", err, s)
		}
	}
}

// Open opens the place as a source that notes what it sends. It is closed when the test ends.
func (p *Place) Open(t testing.TB) plan.Source {
	t.Helper()
	note := func(text string, args int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent = append(p.sent, Sent{text, args})
	}
	var s plan.Source
	var err error
	if p.Engine == sqlgen.EngineSQLite {
		s, err = sqlite.Open(t.Context(), sqlite.Config{Read: p.Read, Write: p.Write, OnSQL: note})
	} else {
		s, err = postgres.Open(t.Context(), postgres.Config{Read: p.Read, Write: p.Write, OnSQL: note})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Sent gives the statements since the last call, each distinct one once.
func (p *Place) Sent() []Sent {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.sent
	p.sent = nil
	seen := map[Sent]bool{}
	return slices.DeleteFunc(out, func(s Sent) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}

// catalog lists everything that a schema consists of, one text a line.
var catalog = map[sqlgen.Engine]string{
	sqlgen.EngineSQLite: `SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1`,
	sqlgen.EnginePostgres: `SELECT 'column ' || c.table_schema || '.' || c.table_name || '.' || c.column_name || ' ' || c.data_type || ' ' || c.is_nullable || coalesce(c.column_default, '')
		FROM information_schema.columns c WHERE c.table_schema NOT IN ('pg_catalog', 'information_schema')
		UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
		UNION ALL SELECT 'function ' || proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname NOT IN ('pg_catalog', 'information_schema')
		UNION ALL SELECT 'role ' || rolname || ' ' || rolsuper::text || coalesce(rolconfig::text, '') FROM pg_roles
		UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\_t%' ORDER BY 1`,
}

// Lines gives the rows of a query with one text column.
func (p *Place) Lines(t testing.TB, query string) []string {
	t.Helper()
	rows, err := p.DB.Query(query)
	if err != nil {
		t.Fatalf("%v\n%s", err, query)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s sql.NullString
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s.String)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Tables are the names of the tables.
func (p *Place) Tables(t testing.TB) []string {
	t.Helper()
	if p.Engine == sqlgen.EngineSQLite {
		return p.Lines(t, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY 1`)
	}
	return p.Lines(t, `SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1`)
}

// Rows gives every row of a table as one text, sorted.
func (p *Place) Rows(t testing.TB, table string) []string {
	t.Helper()
	rows, err := p.DB.Query(`SELECT * FROM "` + table + `"`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	cells, at := make([]any, len(columns)), make([]any, len(columns))
	for i := range cells {
		at[i] = &cells[i]
	}
	var out []string
	for rows.Next() {
		if err := rows.Scan(at...); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for i, c := range cells {
			fmt.Fprintf(&b, "%s=%T:%q ", columns[i], c, fmt.Sprint(c))
		}
		out = append(out, b.String())
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// Checksum is a digest of the schema and of every row of every table. Tables that are named in except are left out, but
// for their schema.
func (p *Place) Checksum(t testing.TB, except ...string) string {
	t.Helper()
	h := sha256.New()
	for _, l := range p.Lines(t, catalog[p.Engine]) {
		fmt.Fprintln(h, l)
	}
	for _, table := range p.Tables(t) {
		if slices.Contains(except, table) {
			continue
		}
		fmt.Fprintln(h, table)
		for _, r := range p.Rows(t, table) {
			fmt.Fprintln(h, r)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
