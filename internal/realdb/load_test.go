package realdb_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
)

// realFile reads a file of the public material, or skips the test where there is none.
func realFile(t *testing.T, path ...string) string {
	t.Helper()
	root := os.Getenv("TABELLION_REAL")
	if root == "" {
		t.Skip("NOT RUN: TABELLION_REAL does not name the public test material, so " + filepath.Join(path...) + " was not tried")
	}
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatalf("TABELLION_REAL is set, but %v", err)
	}
	return string(text)
}

// loadSQLite runs a script in a new file and gives its path and a handle for hand-written SQL.
func loadSQLite(t *testing.T, script string) (path string, db *sql.DB) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "real.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("PRAGMA synchronous = OFF; BEGIN;" + script + "; COMMIT;"); err != nil {
		t.Fatal(err)
	}
	return path, db
}

// outdated are statements of dumps that are about another server, its version or its owner.
var outdated = regexp.MustCompile(`(?m)^(SET default_with_oids = .*;|ALTER .* OWNER TO .*;|CREATE OR REPLACE PROCEDURAL LANGUAGE .*;|` +
	`GRANT ALL ON SCHEMA public TO postgres;|COMMENT ON SCHEMA .*;|DROP DATABASE .*;|CREATE DATABASE .*;|\\c .*;)$`)

// loadPostgres runs scripts, as psql would, in a new database and gives its URL, as superuser, and a pool for hand-written
// SQL.
func loadPostgres(t *testing.T, scripts ...string) (url string, pool *pgxpool.Pool) {
	t.Helper()
	cluster := pgcluster.Start(t)
	url = cluster.NewDatabase(t)
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, script := range scripts {
		if err := run(t.Context(), conn, outdated.ReplaceAllString(script, "")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	pool, err = pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return url, pool
}

// copyLine begins rows in the text of a dump, which a line with \. ends.
var copyLine = regexp.MustCompile(`(?m)^COPY .* FROM stdin;$`)

// run sends a script: statements, and the rows of COPY.
func run(ctx context.Context, conn *pgx.Conn, script string) error {
	for {
		at := copyLine.FindStringIndex(script)
		if at == nil {
			_, err := conn.PgConn().Exec(ctx, script).ReadAll()
			return err
		}
		if _, err := conn.PgConn().Exec(ctx, script[:at[0]]).ReadAll(); err != nil {
			return err
		}
		rows, rest, _ := strings.Cut(script[at[1]+1:], "\\.\n")
		if _, err := conn.PgConn().CopyFrom(ctx, strings.NewReader(rows), script[at[0]:at[1]]); err != nil {
			return err
		}
		script = rest
	}
}
