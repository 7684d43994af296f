package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sourcetest"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// openFile opens a source on a file made by a script.
func openFile(t *testing.T, script string, c sqlite.Config) (*sqlite.Source, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	placeAt(t, path).Exec(t, script)
	c.Read = path
	if c.Write != "" {
		c.Write = path
	}
	s, err := sqlite.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, path
}

// run sends a statement on a reading connection.
func run(ctx context.Context, s *sqlite.Source, text string) (rows int, err error) {
	err = s.Engine.View(ctx, false, func(c sqlexec.Conn) error {
		return c.Query(ctx, sqlgen.Statement{Text: text}, func([]any) error { rows++; return nil })
	})
	return rows, err
}

// TestReaderCannotWrite sends statements that the planner could never make: the database itself refuses them.
func TestReaderCannotWrite(t *testing.T) {
	s, path := openFile(t, `CREATE TABLE t (a); INSERT INTO t VALUES (1)`, sqlite.Config{})
	for _, text := range []string{
		"INSERT INTO t VALUES (2)", "DELETE FROM t", "UPDATE t SET a = 2", "DROP TABLE t", "CREATE TABLE u (a)", "ATTACH DATABASE ':memory:' AS m",
		"ATTACH DATABASE '" + filepath.Join(filepath.Dir(path), "other.db") + "' AS m", "VACUUM INTO '" + filepath.Join(filepath.Dir(path), "copy.db") + "'", "SELECT load_extension('x')", "REPLACE INTO t VALUES (3)",
	} {
		if _, err := run(t.Context(), s, text); err == nil {
			t.Errorf("%s was carried out", text)
		}
	}
	if _, err := run(t.Context(), s, "PRAGMA query_only = 0"); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t.Context(), s, "INSERT INTO t VALUES (2)"); err == nil {
		t.Error("without query_only the connection writes: the file is not open for reading only")
	}
	if n, err := run(t.Context(), s, "SELECT a FROM t WHERE a = 1"); n != 1 || err != nil {
		t.Errorf("the control: %d rows, %v", n, err)
	}
	for _, name := range []string{"other.db", "copy.db"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), name)); err == nil {
			t.Errorf("%s was created", name)
		}
	}
	_, err := s.Apply(t.Context(), &plan.Write{Kind: plan.Insert, Model: thing(t)}, plan.Commit{})
	if !errors.Is(err, plan.ErrReadOnly) || s.Features().Writes {
		t.Errorf("a write without a connection for writes: %v", err)
	}
}

// thing is a model.
func thing(t *testing.T) *model.Model {
	t.Helper()
	r := model.NewRegistry(model.Options{})
	v, err := canonjson.ParseStrict([]byte(`{"name": "Thing", "timestamps": false, "fields": {"_id": "string", "n": "int"}}`), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Register(v); err != nil {
		t.Fatal(err)
	}
	return r.Get("Thing")
}

// TestOpen refuses what is no database, and creates nothing.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.db")
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{missing: "does not exist", dir: "folder", text: "cannot be read as an SQLite database"} {
		s, err := sqlite.Open(t.Context(), sqlite.Config{Read: name})
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("the missing file was created")
	}
}

// endless counts without end: at once, or after its first row.
const (
	endless       = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r WHERE n = -1"
	endlessBehind = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r WHERE n = 1 OR n = -1"
)

// TestTimeout ends reads that take too long, also between two rows, and the connection goes on.
func TestTimeout(t *testing.T) {
	s, _ := openFile(t, `CREATE TABLE t (a)`, sqlite.Config{Timeout: 150 * time.Millisecond, Readers: 1})
	for _, text := range []string{endless, endlessBehind, endless} {
		if _, err := run(t.Context(), s, text); !errors.Is(err, plan.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
		if n, err := run(t.Context(), s, "SELECT count(*) FROM t"); n != 1 || err != nil {
			t.Errorf("after it: %d, %v", n, err)
		}
	}
}

// TestCancel ends a read whose caller is gone.
func TestCancel(t *testing.T) {
	s, _ := openFile(t, `CREATE TABLE t (a)`, sqlite.Config{Timeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Engine.View(ctx, false, func(c sqlexec.Conn) error {
		return c.Query(ctx, sqlgen.Statement{Text: endlessBehind}, func([]any) error { cancel(); return nil })
	})
	if !errors.Is(err, plan.ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
}

// TestLocked waits for another writer, and says busy when he takes too long.
func TestLocked(t *testing.T) {
	s, path := openFile(t, `CREATE TABLE "Thing" (_id TEXT PRIMARY KEY, n INTEGER, __present TEXT); CREATE TABLE "Thing_deleted" (_id TEXT PRIMARY KEY)`, sqlite.Config{Write: "yes", LockTimeout: 20 * time.Millisecond})
	m := thing(t)
	if _, err := s.Bind(t.Context(), []*model.Model{m}); err != nil {
		t.Fatal(err)
	}
	other, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	write := &plan.Write{Kind: plan.Insert, Model: m, Rows: []plan.Row{{{Field: m.ID(), Value: canonjson.String("a")}}}}
	if _, err := s.Apply(t.Context(), write, plan.Commit{}); !errors.Is(err, plan.ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
	if _, err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), write, plan.Commit{}); err != nil {
		t.Errorf("after the other: %v", err)
	}
}

// TestPanic closes a connection whose use panicked in the middle of a transaction.
func TestPanic(t *testing.T) {
	s, _ := openFile(t, `CREATE TABLE t (a)`, sqlite.Config{Readers: 1, Write: "yes"})
	for _, use := range []func(func(sqlexec.Conn) error) error{
		func(fn func(sqlexec.Conn) error) error { return s.Engine.View(t.Context(), true, fn) },
		func(fn func(sqlexec.Conn) error) error { return s.Engine.Update(t.Context(), fn) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			use(func(sqlexec.Conn) error { panic("in the middle") })
		}()
		if err := use(func(sqlexec.Conn) error { return nil }); err != nil {
			t.Errorf("after it: %v", err)
		}
	}
}

// TestManyStatements sends more texts than a connection keeps prepared.
func TestManyStatements(t *testing.T) {
	s, _ := openFile(t, `CREATE TABLE t (a)`, sqlite.Config{Readers: 1})
	for i := range 1000 {
		if n, err := run(t.Context(), s, "SELECT 1 AS a"+strings.Repeat("b", i)); n != 1 || err != nil {
			t.Fatalf("statement %d: %d, %v", i, n, err)
		}
	}
}

// TestSnapshot reads the blocks of one query from one moment, while another writes.
func TestSnapshot(t *testing.T) {
	p := placeAt(t, filepath.Join(t.TempDir(), "app.db"))
	sourcetest.Snapshot(t, p)
}
