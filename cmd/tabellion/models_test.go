package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
)

// makeSQLite makes an SQLite database of statements.
func makeSQLite(t *testing.T, statements string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeFile writes a file of its own.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// endless is a view that counts without an end, with its definition and a query that reads all of it.
const (
	endlessSQLite = `CREATE VIEW slow AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i % 7 AS k FROM n`
	endlessModel  = `{"name": "Slow", "table": "slow", "view": true, "key": [], "fields": {"id": "int", "k": "int"}}`
	endlessQuery  = `Slow($group: @g) { k, n }`
	endlessParams = `{"g": {"by": ["k"], "agg": {"n": {"$count": "*"}}}}`
)

// TestInterruptedQuery: Ctrl-C ends a query that is under way with 130, long before the time for it is over, which would
// be an exit code 3.
func TestInterruptedQuery(t *testing.T) {
	t.Parallel()
	db, models := makeSQLite(t, endlessSQLite), writeFile(t, "slow.json", endlessModel)
	query := exec.Command("tabellion", "models", "query", "--models", models, "--source", "sqlite:"+db, "--params", endlessParams, endlessQuery)
	query.Env = append(os.Environ(), "GOMAXPROCS=2")
	var out bytes.Buffer
	query.Stdout, query.Stderr = &out, &out
	if err := query.Start(); err != nil {
		t.Fatal(err)
	}
	defer query.Process.Kill()
	if !works(t, query.Process.Pid) {
		t.Fatal("the query does not begin")
	}
	query.Process.Signal(os.Interrupt)
	query.Wait()
	if code := query.ProcessState.ExitCode(); code != 130 || out.Len() > 0 {
		t.Errorf("exit code %d, want 130 without words: %s", code, out.String())
	}
}

// works waits until a process has used more of the processor than its start needs: it works at the query.
func works(t *testing.T, pid int) bool {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Skipf("NOT RUN: this test reads /proc: %v", err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		var user int // hundredths of a second
		if fields := strings.Fields(rest); len(fields) > 11 {
			fmt.Sscan(fields[11], &user)
		}
		if user > 100 {
			return true
		}
	}
	return false
}

// TestSlowQuery: a query that takes too long ends with 3, and says what to do. It is the control of the interrupted one.
func TestSlowQuery(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the time that a query may take: run by make test")
	}
	t.Parallel()
	db, models := makeSQLite(t, endlessSQLite), writeFile(t, "slow.json", endlessModel)
	_, words := runIn(t, exitRefused, "models", "query", "--models", models, "--source", "sqlite:"+db, "--params", endlessParams, endlessQuery)
	if !strings.Contains(words, "ERR_BUSY:") || !strings.Contains(words, "narrower") {
		t.Errorf("it says %q", words)
	}
}

// TestQuickFolder: what the quick form makes for the process alone is gone when it ends, however it is told to.
func TestQuickFolder(t *testing.T) {
	t.Parallel()
	db := makeSQLite(t, `CREATE TABLE thing (_id TEXT PRIMARY KEY)`)
	models := writeFile(t, "thing.json", `{"name": "Thing", "table": "thing", "archive": false, "timestamps": false, "fields": {"_id": "string"}}`)
	stdio := []string{"stdio", "--models", models, "--source", "sqlite:" + db}
	serve := []string{"serve", "--models", models, "--source", "sqlite:" + db, "--dev", "--listen", "127.0.0.1:0", "--ops", "none", "--transfer", "none"}
	for _, tt := range []struct {
		name   string
		args   []string
		signal os.Signal // nil: the end of standard input
		code   int

		serving string // what it says once it serves
	}{
		{"end of input", stdio, nil, 0, "serves the models"},
		{"interrupt", stdio, os.Interrupt, 130, "serves the models"},
		{"terminate", stdio, syscall.SIGTERM, 0, "serves the models"},
		{"server", serve, syscall.SIGTERM, 0, "Ctrl-C stops"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tmp := t.TempDir()
			c := exec.Command("tabellion", tt.args...)
			c.Env = append(os.Environ(), "TMPDIR="+tmp)
			said, err := os.Create(filepath.Join(t.TempDir(), "said"))
			if err != nil {
				t.Fatal(err)
			}
			defer said.Close()
			c.Stderr = said
			in, err := c.StdinPipe()
			if err == nil {
				err = c.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Process.Kill()
			for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
				if words, _ := os.ReadFile(said.Name()); strings.Contains(string(words), tt.serving) {
					break
				}
				if time.Now().After(end) {
					t.Fatal("it never serves")
				}
			}
			if made, _ := filepath.Glob(filepath.Join(tmp, "tabellion-*", "tabellion.db")); len(made) != 1 {
				t.Fatal("there is no folder that could be left behind")
			}
			if tt.signal == nil {
				in.Close()
			} else {
				c.Process.Signal(tt.signal)
			}
			c.Wait()
			if code := c.ProcessState.ExitCode(); code != tt.code {
				words, _ := os.ReadFile(said.Name())
				t.Errorf("exit code %d, want %d: %s", code, tt.code, words)
			}
			if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
				t.Errorf("it leaves %q", left)
			}
		})
	}
}

// TestRefusedQuickFolder: a start that is refused leaves no folder either.
func TestRefusedQuickFolder(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	models := writeFile(t, "thing.json", `{"name": "Thing", "table": "thing", "fields": {"a": "string"}}`)
	_, words := runIn(t, exitRefused, "stdio", "--models", models, "--source", "sqlite:"+filepath.Join(t.TempDir(), "none.db"))
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 || !strings.Contains(words, "does not exist") {
		t.Errorf("it leaves %q and says %q", left, words)
	}
}

// fleet is a PostgreSQL database that was there before.
const fleet = `
CREATE TABLE dock (dock_id integer PRIMARY KEY, title text NOT NULL);
CREATE TABLE ship (ship_id bigserial PRIMARY KEY, name text NOT NULL, tons numeric(8,2), dock_id integer REFERENCES dock (dock_id));
COMMENT ON TABLE ship IS 'What sails';
INSERT INTO dock VALUES (1, 'Skarvik'), (2, 'Outer Reef');
INSERT INTO ship (name, tons, dock_id) VALUES ('Tern', 120.50, 1), ('Skua', 340, 1), ('Eider', 88, NULL);`

// TestModelsPostgres takes the way of a new user with a PostgreSQL database.
func TestModelsPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PostgreSQL: run by make test")
	}
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	cluster.Exec(t, url, fleet)
	reader, roleURL := cluster.NewRole(t, url)
	writer, writerURL := cluster.NewRole(t, url)
	cluster.Exec(t, url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT SELECT ON ALL TABLES IN SCHEMA public TO "+reader+
		"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+writer+"; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO "+writer)
	file := filepath.Join(t.TempDir(), "fleet.json")
	of := func(args ...string) []string { return append(args, "--models", file, "--source", roleURL) }

	_, words := runIn(t, exitFine, "models", "introspect", "--source", roleURL, "--out", file)
	has(t, words, "2 models of 2 tables and views; 0 things left out")
	_, words = runIn(t, exitFine, of("models", "check")...)
	has(t, words, "definitions and database agree")
	out, _ := runIn(t, exitFine, of("models", "query", "--roles", "reader", "--params", `{"s": {"tons": -1}}`, `ship($sort: @s) { name, tons, dock { title } }`)...)
	has(t, out, `"name":"Eider","tons":"88"`, `"name":"Skua","tons":"340","dock":{"title":"Skarvik"}`)
	out, _ = runIn(t, exitFine, of("models", "query", "--explain", `ship { name }`)...)
	has(t, out, `SELECT t1.`)
	out, words = runIn(t, exitFine, of("models", "ddl", "--migrate")...)
	if out != "" || !strings.Contains(words, "lacks nothing") {
		t.Errorf("ddl --migrate prints %q and says %q", out, words)
	}
	out, _ = runIn(t, exitFine, of("models", "ddl")...)
	has(t, out, `CREATE TABLE "public"."ship"`)

	cluster.Exec(t, url, "ALTER TABLE ship DROP COLUMN tons")
	out, _ = runIn(t, exitFindings, of("models", "check")...)
	has(t, out, "error: ship", "tons")
	out, _ = runIn(t, exitFine, of("models", "ddl", "--migrate")...)
	has(t, out, `ALTER TABLE "public"."ship" ADD COLUMN "tons" `)
	cluster.Exec(t, url, out)
	runIn(t, exitFine, of("models", "check")...)

	list := messageOf("tools/list", "") + messageOf("tools/call", `"name":"list_ship","arguments":{"q":"{ name }"},`)
	create := messageOf("tools/call", `"name":"create_ship","arguments":{"body":{"name":"Wagtail","dock_id":2}},`)
	who := []string{"stdio", "--models", file, "--user", "ana", "--roles", "reader,writer", "--source"}
	out = stdioOf(t, create, append(who, writerURL, "--write")...)
	has(t, out, `"name":"Wagtail"`)
	out = stdioOf(t, list, append(who, writerURL, "--write")...)
	has(t, out, `"name":"create_ship"`, `"name":"Wagtail"`, `"name":"Eider"`)
	out = stdioOf(t, list, append(who, roleURL)...)
	if strings.Contains(out, `"name":"create_ship"`) || !strings.Contains(out, `"name":"list_ship"`) {
		t.Errorf("without --write: %s", out)
	}
	_, words = runIn(t, exitRefused, append(who, writerURL)...)
	has(t, words, "it is for reading, and can write to public.dock", "--accept reader-writes")
	runIn(t, exitFine, "models", "query", "--models", file, "--source", writerURL, "--accept", "reader-writes", "dock { title }")
}

// TestModelsPostgresRefused: databases and roles that cannot be used are named, with what to do.
func TestModelsPostgresRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PostgreSQL: run by make test")
	}
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	name, roleURL := cluster.NewRole(t, url)
	file := writeFile(t, "dock.json", `{"name": "dock", "table": "dock", "key": ["dock_id"], "archive": false, "timestamps": false, "fields": {"dock_id": "int", "title": "string"}}`)
	query := func(code int, source string, more ...string) string {
		t.Helper()
		_, words := runIn(t, code, append([]string{"models", "query", "--models", file, "--source", source, `dock { title }`}, more...)...)
		return words
	}
	_, words := runIn(t, exitFailed, "models", "introspect", "--source", roleURL)
	has(t, words, "the database has no tables and views that its role can see")
	cluster.Exec(t, url, fleet)
	has(t, query(exitRefused, roleURL), "dock")                                             // no right to read it
	has(t, query(exitRefused, strings.Replace(roleURL, name, "nobody", 1)), "nobody")       // no such role
	has(t, query(exitRefused, strings.Replace(url, "/t", "/nowhere", 1)), "does not exist") // no such database
	danger := query(exitRefused, url)                                                       // a superuser
	has(t, danger, "can do more than it should", "on the command line with --accept ", "superuser")
	out, _ := runIn(t, exitFindings, "models", "check", "--models", file, "--source", url)
	has(t, out, "error: rights: ", "superuser")
	_, accept, _ := strings.Cut(danger, "--accept ")
	query(exitFine, url, "--accept", strings.TrimSpace(accept))
}

// TestInterruptedPostgres: Ctrl-C ends a query in PostgreSQL too, and the server does not go on with it.
func TestInterruptedPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PostgreSQL: run by make test")
	}
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	cluster.Exec(t, url, `CREATE VIEW slow AS SELECT i::int AS id, (i % 7)::int AS k FROM generate_series(1, 100000000000) AS i`)
	name, roleURL := cluster.NewRole(t, url)
	cluster.Exec(t, url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT SELECT ON slow TO "+name)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signal := func() os.Signal {
		if ctx.Err() != nil {
			return os.Interrupt
		}
		return nil
	}
	var out bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(&Env{Ctx: ctx, Signal: signal, Stdout: &out, Stderr: &out}, []string{"models", "query",
			"--models", writeFile(t, "slow.json", endlessModel), "--source", roleURL, "--params", endlessParams, endlessQuery})
	}()
	watch, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close(context.Background())
	running := func() bool {
		var n int
		if err := watch.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state = 'active' AND query LIKE '%slow%GROUP BY%'`, name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	await := func(want bool) {
		t.Helper()
		for end := time.Now().Add(patience); running() != want; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the query runs: %v, want %v", !want, want)
			}
		}
	}
	await(true)
	cancel()
	if code := <-ended; code != 130 || out.Len() > 0 {
		t.Errorf("exit code %d, want 130 without words: %s", code, out.String())
	}
	await(false)
}

// has wants parts of a text.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in %s", p, text)
		}
	}
}

// messageOf is one message of a client of the stateless era. params are members of an object.
func messageOf(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%[1]q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`+"\n", method, params)
}

// stdioOf runs a session and gives its answers.
func stdioOf(t *testing.T, messages string, args ...string) string {
	t.Helper()
	var out, words bytes.Buffer
	env := &Env{Ctx: context.Background(), Signal: func() os.Signal { return nil }, Stdin: io.NopCloser(strings.NewReader(messages)), Stdout: &out, Stderr: &words}
	if code := run(env, args); code != exitFine {
		t.Fatalf("%v: exit code %d: %s", args, code, words.String())
	}
	return out.String()
}
