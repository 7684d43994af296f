//go:build unix

package modelaccess_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tabellion-mcp/tabellion"
	settings "github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
)

// statements sends statements that no plan could hold, on one reading connection, one after the other. It gives the error of
// the last.
func statements(t *testing.T, e sqlexec.Engine, texts ...string) (err error) {
	t.Helper()
	outer := e.View(t.Context(), false, func(c sqlexec.Conn) error {
		for _, text := range texts {
			err = c.Query(t.Context(), sqlgen.Statement{Text: text}, func([]any) error { return nil })
		}
		return nil
	})
	return errors.Join(err, outer)
}

// stateOf is the SQLSTATE of an error of PostgreSQL.
func stateOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

// store is a small database: tables, a sequence, a secret, and functions that do more than they say.
const store = `CREATE TABLE goods (id int PRIMARY KEY, name text); INSERT INTO goods VALUES (1, 'tin'); CREATE TABLE secret (a int); CREATE SEQUENCE numbers;
	CREATE FUNCTION sly() RETURNS int LANGUAGE plpgsql AS $$BEGIN INSERT INTO goods VALUES (7, 'sly'); RETURN 1; END$$;
	CREATE FUNCTION slier() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN INSERT INTO goods VALUES (8, 'slier'); RETURN 1; END$$;
	CREATE FUNCTION sliest() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN PERFORM set_config('transaction_read_only', 'off', true); INSERT INTO goods VALUES (9, 'sliest'); RETURN 1; END$$;
	CREATE VIEW sly_view AS SELECT 1 AS id, sly() AS n; CREATE VIEW slier_view AS SELECT 1 AS id, slier() AS n`

// TestReaderProbesPostgres has the reading connection try what it must not, as a plain reader and as a role that may do
// everything: the database itself refuses (S35). Either alone is not a boundary, so each is looked at without the other.
func TestReaderProbesPostgres(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	name, readerURL := cluster.NewRole(t, url)
	cluster.Exec(t, url, store+"; GRANT SELECT ON goods, sly_view, slier_view TO "+name)
	open := func(url string) sqlexec.Engine {
		s, err := postgres.Open(t.Context(), postgres.Config{Read: url, Conns: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s.Engine
	}
	reader, owner := open(readerURL), open(url)
	writes := []string{
		"INSERT INTO goods VALUES (2, 'x')", "UPDATE goods SET name = 'x'", "DELETE FROM goods", "MERGE INTO goods g USING (SELECT 1 AS id) s ON g.id = s.id WHEN MATCHED THEN DELETE",
		"TRUNCATE goods", "CREATE TABLE other (a int)", "CREATE TABLE other AS SELECT * FROM goods", "SELECT * INTO other FROM goods", "DROP TABLE goods", "ALTER TABLE goods ADD COLUMN b int", "CREATE INDEX ON goods (name)", "CREATE VIEW v AS SELECT 1", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE EXTENSION dblink", "CREATE SCHEMA other",
		"WITH x AS (DELETE FROM goods RETURNING 1) SELECT * FROM x", "EXPLAIN ANALYZE DELETE FROM goods", "SELECT sly()", "SELECT n FROM sly_view", "SELECT nextval('numbers')", "SELECT id FROM goods FOR UPDATE", "COMMENT ON TABLE goods IS 'x'", "REFRESH MATERIALIZED VIEW none", "GRANT ALL ON goods TO public",
	}
	t.Run("a plain reader, without the session's setting", func(t *testing.T) {
		const off = "SET default_transaction_read_only = off"
		for _, text := range writes {
			if state := stateOf(statements(t, reader, off, text)); state != "42501" && state != "42P01" && !strings.HasPrefix(text, "GRANT") {
				t.Errorf("%s: %s, want insufficient privilege", text, state)
			}
		}
		if err := statements(t, reader, off, "SELECT id FROM goods"); err != nil {
			t.Errorf("the control: %v", err)
		}
	})
	t.Run("a plain reader, beyond tables", func(t *testing.T) {
		for _, text := range []string{
			"COPY goods TO '/tmp/out'", "COPY goods TO PROGRAM 'true'", "COPY goods FROM '/etc/passwd'", "SELECT pg_read_file('/etc/passwd')", "SELECT pg_read_binary_file('/etc/passwd')", "SELECT pg_ls_dir('/')", "SELECT pg_stat_file('/etc/passwd')", "SELECT lo_import('/etc/passwd')",
			"SET ROLE tab", "SET SESSION AUTHORIZATION tab", "ALTER SYSTEM SET work_mem = '1MB'", "SET log_statement = 'none'", "SET session_preload_libraries = 'x'", "LOAD '/tmp/x.so'", "ALTER ROLE " + name + " SUPERUSER", "CREATE ROLE other", "ALTER DATABASE postgres SET work_mem = '1MB'",
			"SELECT a FROM secret", "SELECT rolpassword FROM pg_authid", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tab' LIMIT 1", "SELECT pg_reload_conf()", "SELECT pg_switch_wal()", "SELECT pg_create_physical_replication_slot('x')", "CHECKPOINT", "CREATE SERVER s FOREIGN DATA WRAPPER none",
		} {
			state := stateOf(statements(t, reader, text))
			switch state {
			case "42501", "25006", "42704", "0LP01": // privilege, read-only, no such object, invalid grant
			default:
				if text != "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'tab' LIMIT 1" || state != "<nil>" {
					t.Errorf("%s: %s", text, state)
				}
			}
		}
	})
	t.Run("a role that may do everything, by the session's setting", func(t *testing.T) {
		for _, text := range append(writes, "SELECT slier()", "SELECT sliest()", "SELECT n FROM slier_view") {
			state := stateOf(statements(t, owner, text))
			if state != "25006" && state != "25001" && state != "42P01" && state != "42704" {
				t.Errorf("%s: %s, want read-only transaction", text, state)
			}
		}
	})
	rows := (&site.Place{Engine: sqlgen.EnginePostgres, DB: connect(t, url)}).Rows(t, "goods")
	if len(rows) != 1 || !strings.Contains(rows[0], "tin") {
		t.Errorf("the table holds %v", rows)
	}
}

// TestViewsThatWrite serves a view whose function writes, with rights that its owner has: a read through the tools changes
// nothing, and the refusal says nothing of the database (S35, S57).
func TestViewsThatWrite(t *testing.T) {
	cluster := pgcluster.Start(t)
	p := site.Postgres(t)
	cluster.Exec(t, p.Read, store)
	before := p.Checksum(t)
	s := site.New(t, p, site.Config{Tables: true, Definitions: `[{"name":"Sly","table":"sly_view","view":true,"key":["id"],"timestamps":false,"archive":false,"read":["staff"],"fields":{"_id":{"type":"int","column":"id"},"n":"int"}},
		{"name":"Slier","table":"slier_view","view":true,"key":["id"],"timestamps":false,"archive":false,"read":["staff"],"fields":{"_id":{"type":"int","column":"id"},"n":"int"}}]`})
	for _, m := range []string{"Sly", "Slier"} {
		a := s.Call(t, people["staff"], "query", `{"gql":"`+m+` { n }"}`)
		if a.OK || strings.Contains(strings.ToLower(a.Said), "read-only") || strings.Contains(a.Said, "INSERT") || strings.Contains(a.Said, "goods") {
			t.Errorf("%s: %s", m, a.Said)
		}
	}
	if p.Checksum(t) != before {
		t.Error("a view wrote")
	}
	if !strings.Contains(s.Log.String(), "read-only transaction") {
		t.Error("the control: the operator's log does not say why")
	}
}

// TestReaderProbesSQLite has the read handle try what it must not (S36).
func TestReaderProbesSQLite(t *testing.T) {
	p := site.SQLite(t)
	p.Exec(t, "CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO goods VALUES (1, 'tin')", "CREATE INDEX by_name ON goods (name)", "CREATE VIEW loads AS SELECT load_extension('x') AS n", "CREATE TRIGGER t AFTER INSERT ON goods BEGIN SELECT load_extension('x'); END")
	before, dir := p.Checksum(t), filepath.Dir(p.Read)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Read: p.Read, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refused := []string{
		"INSERT INTO goods VALUES (2, 'x')", "UPDATE goods SET name = 'x'", "DELETE FROM goods", "REPLACE INTO goods VALUES (1, 'x')", "CREATE TABLE other (a)", "DROP TABLE goods", "ALTER TABLE goods ADD COLUMN b", "CREATE INDEX i ON goods (name)", "CREATE TRIGGER u AFTER INSERT ON goods BEGIN SELECT 1; END", "REINDEX", "ANALYZE", "VACUUM",
		"ATTACH DATABASE ':memory:' AS m", "ATTACH DATABASE '" + filepath.Join(dir, "other.db") + "' AS m", "ATTACH DATABASE '/etc/passwd' AS m", "VACUUM INTO '" + filepath.Join(dir, "copy.db") + "'",
		"SELECT load_extension('x')", "SELECT n FROM loads", "SELECT readfile('/etc/passwd')", "SELECT writefile('" + filepath.Join(dir, "w") + "', 'x')", "SELECT edit('x')",
		"UPDATE sqlite_schema SET sql = 'x'", "INSERT INTO sqlite_schema VALUES ('table','x','x',0,'CREATE TABLE x(a)')", "DELETE FROM sqlite_schema", "PRAGMA user_version = 7", "PRAGMA application_id = 7",
	}
	for _, text := range refused {
		if err := statements(t, s.Engine, text); err == nil {
			t.Errorf("%s was carried out", text)
		}
	}
	// Settings that a statement can set are no boundary: behind each of them the handle still writes nothing.
	for _, setting := range []string{"PRAGMA query_only = 0", "PRAGMA writable_schema = 1", "PRAGMA trusted_schema = 1", "PRAGMA ignore_check_constraints = 1", "PRAGMA journal_mode = DELETE", "PRAGMA locking_mode = EXCLUSIVE", "PRAGMA temp_store_directory = '" + dir + "'", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		_ = statements(t, s.Engine, setting)
		for _, text := range []string{"INSERT INTO goods VALUES (3, 'x')", "UPDATE sqlite_schema SET sql = 'x'", "DELETE FROM sqlite_schema", "CREATE TABLE other (a)", "ATTACH DATABASE ':memory:' AS m", "SELECT load_extension('x')"} {
			if err := statements(t, s.Engine, text); err == nil {
				t.Errorf("%s was carried out after %s", text, setting)
			}
		}
	}
	if err := statements(t, s.Engine, "SELECT name FROM goods"); err != nil {
		t.Errorf("the control: %v", err)
	}
	for _, name := range []string{"other.db", "copy.db", "w"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was created", name)
		}
	}
	if p.Checksum(t) != before {
		t.Error("something was changed")
	}
}

// TestStartLooksAtRoles starts a server over roles that can do too much: it refuses and says what to accept, and starts
// when an operator has named that.
func TestStartLooksAtRoles(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	name, readerURL := cluster.NewRole(t, url)
	writer, writerURL := cluster.NewRole(t, url)
	cluster.Exec(t, url, store+"; GRANT SELECT ON goods TO "+name+"; GRANT SELECT, INSERT, UPDATE, DELETE ON goods TO "+writer)
	definitions := filepath.Join(t.TempDir(), "models.json")
	if err := os.WriteFile(definitions, []byte(`[{"name":"Good","table":"goods","key":["id"],"timestamps":false,"archive":false,"read":["staff"],"write":["staff"],"fields":{"_id":{"type":"int","column":"id"},"name":"string"}}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	lite := site.SQLite(t)
	lite.Exec(t, "CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT)")
	for _, tt := range []struct {
		name, read, write string
		accept            []string
		says              []string // nil: it starts
	}{
		{"a superuser reads", url, "", nil, []string{"superuser", "accept"}},
		{"a superuser writes", readerURL, url, nil, []string{"superuser", "accept"}},
		{"something else is accepted", url, "", []string{"owner"}, []string{"superuser"}},
		{"the superuser is accepted", url, "", []string{"superuser"}, nil},
		{"the reader can write", writerURL, "", nil, []string{"reader-writes", "goods"}},
		{"two roles with what they need", readerURL, writerURL, nil, nil},
		{"a plain reader", readerURL, "", nil, nil},
		{"a file", lite.Read, "", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kind := ""
			if !strings.HasPrefix(tt.read, "postgres") {
				kind = "sqlite:"
			}
			cfg := tabellion.DefaultConfig()
			cfg.Data, cfg.Ops = t.TempDir(), ""
			cfg.Auth.Local = &settings.Local{Subject: "me", Roles: []string{"admin"}}
			cfg.Models = settings.DefaultModels()
			cfg.Models.Definitions = definitions
			cfg.Models.Sources = map[string]*settings.ModelSource{"default": {Read: kind + tt.read, Write: tt.write, Accept: tt.accept}}
			s, err := tabellion.Open(t.Context(), cfg, nil)
			if err == nil {
				defer s.Close(context.Background())
			}
			if (err == nil) != (tt.says == nil) {
				t.Fatalf("start: %v", err)
			}
			for _, word := range tt.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the refusal does not say %q: %v", word, err)
				}
			}
		})
	}
}

// connect is a connection of the test's own.
func connect(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
