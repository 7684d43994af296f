package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/source/sourcetest"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// openSource opens a source that ends with the test.
func openSource(t *testing.T, c postgres.Config) *postgres.Source {
	t.Helper()
	s, err := postgres.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// run sends a statement on a reading connection.
func run(ctx context.Context, s *postgres.Source, text string) (cells []any, err error) {
	err = s.Engine.View(ctx, false, func(c sqlexec.Conn) error {
		return c.Query(ctx, sqlgen.Statement{Text: text}, func(row []any) error { cells = append(cells, row...); return nil })
	})
	return cells, err
}

// models registers definitions.
func models(t *testing.T, definitions string) []*model.Model {
	t.Helper()
	r := model.NewRegistry(model.Options{})
	v, err := canonjson.ParseStrict([]byte(definitions), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Register(v.Items()...); err != nil {
		t.Fatal(err)
	}
	return r.List()
}

// thing is a model with its table.
const (
	thing      = `[{"name": "Thing", "table": "thing", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": {"type": "int", "column": "id"}, "n": "int"}}]`
	thingTable = `CREATE TABLE thing (id int PRIMARY KEY, n int)`
)

// TestReaderCannotWrite reads as a role that could write: the session itself refuses.
func TestReaderCannotWrite(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	cluster.Exec(t, url, thingTable+`; CREATE FUNCTION sly() RETURNS int LANGUAGE plpgsql AS $$BEGIN SET LOCAL transaction_read_only = off; INSERT INTO thing VALUES (7); RETURN 1; END$$`)
	s := openSource(t, postgres.Config{Read: url})
	for _, text := range []string{"INSERT INTO thing VALUES (1)", "DELETE FROM thing", "CREATE TABLE u (a int)", "DROP TABLE thing", "SELECT sly()", "WITH x AS (INSERT INTO thing VALUES (2) RETURNING 1) SELECT 1", "SELECT nextval('s')", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE; INSERT INTO thing VALUES (1)"} {
		if _, err := run(t.Context(), s, text); err == nil {
			t.Errorf("%s was carried out", text)
		}
	}
	if cells, err := run(t.Context(), s, "SELECT count(*) FROM thing"); err != nil || cells[0] != "0" {
		t.Errorf("%v, %v", cells, err)
	}
	_, err := s.Apply(t.Context(), &plan.Write{Kind: plan.Insert, Model: models(t, thing)[0]}, plan.Commit{})
	if !errors.Is(err, plan.ErrReadOnly) {
		t.Errorf("a write without a connection for writes: %v", err)
	}
}

// TestReadingRole reads as a role with no more rights than it needs.
func TestReadingRole(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	name, roleURL := cluster.NewRole(t, url)
	cluster.Exec(t, url, thingTable+`; INSERT INTO thing VALUES (1, 2); CREATE TABLE secret (a int); GRANT SELECT ON thing TO `+name)
	s := openSource(t, postgres.Config{Read: roleURL})
	m := models(t, thing)
	if problems, err := s.Bind(t.Context(), m); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	rows, err := s.Read(t.Context(), &plan.Query{Rows: true, Root: &plan.Block{Model: m[0], Columns: m[0].Fields, Limit: -1}})
	if err != nil || len(rows.Rows) != 1 {
		t.Errorf("%v, %v", rows, err)
	}
	for _, text := range []string{"COPY thing TO PROGRAM 'true'", "SELECT pg_read_file('/etc/passwd')", "SELECT a FROM secret", "SET ROLE tab", "INSERT INTO thing VALUES (2)", "SELECT lo_import('/etc/passwd')"} {
		if _, err := run(t.Context(), s, text); err == nil {
			t.Errorf("%s was carried out", text)
		}
	}
}

// TestSettings looks at what holds in the database.
func TestSettings(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	s := openSource(t, postgres.Config{Read: url, Timeout: 7 * time.Second, LockTimeout: 3 * time.Second})
	for name, want := range map[string]string{
		"default_transaction_read_only": "on", "statement_timeout": "7s", "lock_timeout": "3s", "idle_in_transaction_session_timeout": "10s",
		"application_name": "tabellion", "timezone": "UTC", "transaction_read_only": "on",
	} {
		if cells, err := run(t.Context(), s, "SHOW "+name); err != nil || cells[0] != want {
			t.Errorf("%s: %v, %v; want %s", name, cells, err, want)
		}
	}
}

// TestUnverified refuses connections to other machines that trust any server, and tells no password.
func TestUnverified(t *testing.T) {
	for _, url := range []string{
		"postgres://a:geheim@db.example/x", "postgres://a:geheim@db.example/x?sslmode=disable", "postgres://a:geheim@db.example/x?sslmode=prefer", "postgres://a:geheim@db.example/x?sslmode=require",
		"postgres://a:geheim@192.0.2.1/x?sslmode=allow", "host=db.example user=a password=geheim sslmode=require", "postgres://a:geheim@localhost,db.example/x?sslmode=disable", "postgres://a:geheim@[::1/x", "postgres://a:geheim@h/x?sslmode=sometimes",
	} {
		s, err := postgres.Open(t.Context(), postgres.Config{Read: url})
		if err == nil {
			s.Close()
		}
		if err == nil || strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), "sslmode=verify-full") {
			t.Errorf("%s: %v", url, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := postgres.Open(ctx, postgres.Config{Read: "postgres://a:geheim@192.0.2.1/x?sslmode=verify-full"})
	if err == nil || strings.Contains(err.Error(), "would not verify") || strings.Contains(err.Error(), "geheim") {
		t.Errorf("a verified connection: %v", err)
	}
}

// TestUnavailable has nobody listen.
func TestUnavailable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, err = postgres.Open(t.Context(), postgres.Config{Read: "postgres://a:geheim@" + address + "/x?sslmode=disable"})
	if !errors.Is(err, plan.ErrUnavailable) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("%v", err)
	}
}

// TestTimeout ends what takes too long in the database.
func TestTimeout(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	s := openSource(t, postgres.Config{Read: url, Timeout: 150 * time.Millisecond, Conns: 1})
	if _, err := run(t.Context(), s, "SELECT pg_sleep(100)"); !errors.Is(err, plan.ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
	if cells, err := run(t.Context(), s, "SELECT 1"); err != nil || cells[0] != "1" {
		t.Errorf("after it: %v, %v", cells, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	long := openSource(t, postgres.Config{Read: url, Timeout: time.Minute, Conns: 1})
	if _, err := run(ctx, long, "SELECT pg_sleep(100)"); !errors.Is(err, plan.ErrBusy) {
		t.Errorf("a caller that is gone: %v, want ErrBusy", err)
	}
	if cells, err := run(t.Context(), long, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(100)' AND state = 'active'"); err != nil || cells[0] != "0" {
		t.Errorf("statements left behind: %v, %v", cells, err)
	}
}

// TestLocked waits for a row lock, and says busy when it takes too long.
func TestLocked(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	cluster.Exec(t, url, thingTable+`; INSERT INTO thing VALUES (1, 1)`)
	s := openSource(t, postgres.Config{Read: url, Write: url, LockTimeout: 50 * time.Millisecond})
	m := models(t, thing)
	if _, err := s.Bind(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	holder := openSource(t, postgres.Config{Read: url, Write: url})
	write := &plan.Write{Kind: plan.Update, Model: m[0], Where: plan.Const(true), Set: []plan.Assign{{Field: m[0].Field("n"), Value: canonjson.Int(2)}}}
	err := holder.Engine.Update(t.Context(), func(c sqlexec.Conn) error {
		if _, err := c.Exec(t.Context(), sqlgen.Statement{Text: "UPDATE thing SET n = 3"}); err != nil {
			return err
		}
		_, err := s.Apply(t.Context(), write, plan.Commit{})
		if !errors.Is(err, plan.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := s.Apply(t.Context(), write, plan.Commit{}); err != nil || len(a.Rows) != 1 {
		t.Errorf("after the other: %v, %v", a, err)
	}
}

// TestBrokenOff tries a transaction again that the database broke off, and gives up in the end.
func TestBrokenOff(t *testing.T) {
	cluster := pgcluster.Start(t)
	s := openSource(t, postgres.Config{Read: cluster.URL, Write: cluster.URL})
	for _, c := range []struct {
		failures, want int
		busy           bool
	}{{2, 3, false}, {100, 5, true}} {
		tries := 0
		err := s.Engine.Update(t.Context(), func(conn sqlexec.Conn) error {
			if tries++; tries <= c.failures {
				_, err := conn.Exec(t.Context(), sqlgen.Statement{Text: "DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END$$"})
				return err
			}
			return nil
		})
		if tries != c.want || errors.Is(err, plan.ErrBusy) != c.busy {
			t.Errorf("%d tries, %v", tries, err)
		}
	}
}

// proxy stands between a source and the server, and cuts the connection when the client sends word, before or after it is
// passed on.
type proxy struct {
	net.Listener
	to    string
	word  []byte
	after bool
	cuts  atomic.Int64
}

// newProxy listens until the test ends.
func newProxy(t *testing.T, to, word string, after bool) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to, word: []byte(word), after: after}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// serve carries one connection.
func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	var silent atomic.Bool
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := server.Read(buf)
			if err != nil {
				client.Close()
				return
			}
			if !silent.Load() {
				client.Write(buf[:n])
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if err != nil {
			server.Close()
			return
		}
		cut := bytes.Contains(buf[:n], p.word)
		if cut && p.after {
			silent.Store(true)
		}
		if !cut || p.after {
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if cut {
			p.cuts.Add(1)
			if p.after {
				time.Sleep(200 * time.Millisecond) // time for the server to commit; its word is lost
			}
			server.Close()
			return
		}
	}
}

// TestUnknown loses the connection at the commit: nobody can say whether it happened, and the key settles it. Lost earlier,
// nothing happened.
func TestUnknown(t *testing.T) {
	cluster := pgcluster.Start(t)
	for _, c := range []struct {
		word  string
		after bool
		want  error
		rows  string
	}{{"COMMIT\x00", true, plan.ErrUnknown, "1"}, {"COMMIT\x00", false, plan.ErrUnknown, "0"}, {"INSERT INTO \"public\".\"thing\"", false, plan.ErrUnavailable, "0"}} {
		url := cluster.NewDatabase(t)
		cluster.Exec(t, url, thingTable+";"+sqlgen.IdempotencyDDL(sqlgen.EnginePostgres))
		server := strings.Split(strings.Split(url, "@")[1], "/")[0]
		p := newProxy(t, server, c.word, c.after)
		s := openSource(t, postgres.Config{Read: url, Write: strings.Replace(url, server, p.Addr().String(), 1)})
		m := models(t, thing)
		if _, err := s.Bind(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		write := &plan.Write{Kind: plan.Insert, Model: m[0], Rows: []plan.Row{{{Field: m[0].ID(), Value: canonjson.Int(1)}}}}
		commit := plan.Commit{Scope: "s", Key: "k", Keep: time.Hour}
		_, err := s.Apply(t.Context(), write, commit)
		if !errors.Is(err, c.want) || p.cuts.Load() == 0 {
			t.Errorf("%s: %v, want %v", c.word, err, c.want)
		}
		if got := query(t, url, "SELECT count(*) FROM thing"); got[0][0] != c.rows {
			t.Errorf("%s: %s rows, want %s", c.word, got[0][0], c.rows)
		}
		direct := openSource(t, postgres.Config{Read: url, Write: url})
		if _, err := direct.Bind(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		a, err := direct.Apply(t.Context(), write, commit)
		if err != nil || a.Replayed != (c.rows == "1") {
			t.Errorf("%s, settled by the key: %+v, %v", c.word, a, err)
		}
		if got := query(t, url, "SELECT count(*) FROM thing"); got[0][0] != "1" {
			t.Errorf("%s: %s rows after the second try", c.word, got[0][0])
		}
	}
}

// TestSnapshot reads the blocks of one query from one moment, while another writes.
func TestSnapshot(t *testing.T) { sourcetest.Snapshot(t, newPlace(t)) }
