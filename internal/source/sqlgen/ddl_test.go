package sqlgen_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/inspect"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/introspect"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// golden reads a file of the golden data.
func golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "model", "engine", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// registered reads definitions: one, or an array of them. impl is test data of the golden models and no part of the format.
func registered(t *testing.T, text string) []*model.Model {
	t.Helper()
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	definitions := v.Items()
	if v.Kind() == canonjson.KindObject {
		definitions = []canonjson.Value{v}
	}
	r := model.NewRegistry(model.Options{Lenient: true})
	if err := r.Register(definitions...); err != nil {
		t.Fatal(err)
	}
	return r.List()
}

// tableLines are the lines of a CREATE TABLE by the table's first line, without the comma at their end.
func tableLines(ddl string) map[string][]string {
	out := map[string][]string{}
	for statement := range strings.SplitSeq(ddl, ";\n") {
		lines := strings.Split(strings.TrimSpace(statement), "\n")
		if !strings.HasPrefix(lines[0], "CREATE TABLE") {
			out[lines[0]] = nil
			continue
		}
		for _, line := range lines[1 : len(lines)-1] {
			out[lines[0]] = append(out[lines[0]], strings.TrimSuffix(line, ","))
		}
	}
	delete(out, "")
	return out
}

// TestGoldenDDL holds the statements against those that the golden data was made with: they have no columns for objects
// and arrays, which ours have, and are equal otherwise.
func TestGoldenDDL(t *testing.T) {
	models := registered(t, golden(t, "schema.json"))
	documents := 0
	for _, m := range models {
		for _, f := range m.Fields {
			if f.Type.JSON() {
				documents++
			}
		}
	}
	got := tableLines(strings.Join(sqlgen.DDL(sqlgen.EngineSQLite, models), "\n\n") + "\n")
	want := tableLines(golden(t, "ddl.sqlite.sql"))
	more := 0
	for name, lines := range got {
		got[name] = slices.DeleteFunc(lines, func(line string) bool {
			extra := !slices.Contains(want[name], line)
			if extra {
				more++
			}
			return extra
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if more != documents || documents == 0 {
		t.Errorf("%d columns more than the golden data, want one for each of the %d objects and arrays", more, documents)
	}
}

// everything has every type, a key of each kind, and every form of index.
const everything = `[
	{"name":"Kind","collection":"kinds","idPrefix":"K","fields":{"s":"string","i":"int","l":"long","f":"float","d":"double","n":"number",
		"b":"boolean","t":"date","a":"array","o":"object","x":"any","dec":"decimal","ts":"timestamp","day":"day","u":"uuid","by":"bytes",
		"e":{"type":"string","enum":["a","b"]},"req":{"type":"string","required":true}},
		"indexes":[{"keys":{"s":1},"options":{"unique":true}},{"keys":{"i":1,"s":-1}},{"keys":{"req":-1}}]},
	{"name":"Serial","collection":"serials","fields":{"_id":{"type":"long","strategy":"autoincrement"},"name":"string"}},
	{"name":"Film","table":"film","key":["film_id"],"archive":false,"timestamps":false,"collation":"source",
		"fields":{"_id":{"type":"int","column":"film_id"},"title":{"type":"string","required":true},"year":{"type":"int","column":"release year"}},
		"indexes":[{"keys":{"title":1,"year":-1}}]},
	{"name":"Box","table":"hold.box","key":["id"],"fields":{"_id":{"type":"uuid","column":"id"},"size":"int"},"indexes":[{"keys":{"size":1}}]},
	{"name":"Cast","table":"film_actor","key":["film_id","actor_id"],"archive":false,"timestamps":false,
		"fields":{"film_id":{"type":"int","required":true},"actor_id":{"type":"int","required":true},"part":"string"},
		"relations":{"film":{"model":"Film","type":"one","localField":"film_id","foreignField":"_id"}}}
]`

// runSQLite runs statements in a database and inspects it.
func runSQLite(t *testing.T, db *sql.DB, statements []string) []plan.Table {
	t.Helper()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s\n%v", s, err)
		}
	}
	tables, err := inspect.SQLite(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// openSQLite opens a new database.
func openSQLite(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "ddl.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// postgres is a new database.
func postgres(t *testing.T) *pgxpool.Pool {
	t.Helper()
	cluster := pgcluster.Start(t)
	pool, err := pgxpool.New(context.Background(), cluster.NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// runPostgres runs statements in a database and inspects it.
func runPostgres(t *testing.T, pool *pgxpool.Pool, statements []string) []plan.Table {
	t.Helper()
	for _, s := range statements {
		if _, err := pool.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s\n%v", s, err)
		}
	}
	tables, err := inspect.Postgres(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// engines are new databases of both engines: what runs statements there and inspects them.
func engines() map[sqlgen.Engine]func(*testing.T, []string) []plan.Table {
	return map[sqlgen.Engine]func(*testing.T, []string) []plan.Table{
		sqlgen.EngineSQLite:   func(t *testing.T, s []string) []plan.Table { return runSQLite(t, openSQLite(t), s) },
		sqlgen.EnginePostgres: func(t *testing.T, s []string) []plan.Table { return runPostgres(t, postgres(t), s) },
	}
}

// TestCreatedDatabaseIsClean guards that a database made by our statements has what the models need, types, keys,
// indexes and collations, in both engines.
func TestCreatedDatabaseIsClean(t *testing.T) {
	for engine, run := range engines() {
		for name, text := range map[string]string{"golden": golden(t, "schema.json"), "everything": everything} {
			t.Run(string(engine)+"/"+name, func(t *testing.T) {
				models := registered(t, text)
				tables := run(t, append(sqlgen.DDL(engine, models), sqlgen.IdempotencyDDL(engine)))
				for _, f := range introspect.Check(models, tables, plan.Features{Engine: string(engine)}) {
					t.Error(f)
				}
				if len(tables) != len(models)+1 {
					t.Errorf("%d tables for %d models and the table for keys", len(tables), len(models))
				}
				find := func(m *model.Model) *plan.Table { return introspect.Find(m, tables) }
				if more, err := sqlgen.Migrate(engine, models, find); err != nil || len(more) > 0 {
					t.Errorf("a migration of it: %q, %v", more, err)
				}
			})
		}
	}
}

// TestIndexesServeTheOrder guards that PostgreSQL reads our indexes in the order that queries ask for: code points, nulls
// first. A plan that sorts would show that an index is for nothing.
func TestIndexesServeTheOrder(t *testing.T) {
	pool := postgres(t)
	runPostgres(t, pool, sqlgen.DDL(sqlgen.EnginePostgres, registered(t, everything)))
	if _, err := pool.Exec(t.Context(), `CREATE INDEX plain ON kinds (e)`); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, order string
		sorts       bool
	}{
		{"text", `s COLLATE "C" ASC NULLS FIRST`, false},
		{"text, the other way", `s COLLATE "C" DESC NULLS LAST`, false},
		{"two columns", `i ASC NULLS FIRST, s COLLATE "C" DESC NULLS LAST`, false},
		{"key", `_id COLLATE "C"`, false},
		{"control: an index that is not ours", `e COLLATE "C" ASC NULLS FIRST`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.Background())
			if _, err := tx.Exec(t.Context(), "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off"); err != nil {
				t.Fatal(err)
			}
			rows, err := tx.Query(t.Context(), "EXPLAIN SELECT _id FROM kinds ORDER BY "+strings.ReplaceAll(tt.order, "_id", `"_id"`)+" LIMIT 5")
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for rows.Next() {
				var line string
				if err := rows.Scan(&line); err != nil {
					t.Fatal(err)
				}
				text += line + "\n"
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			if sorts := strings.Contains(text, "Sort"); sorts != tt.sorts {
				t.Errorf("sorts: %v, want %v\n%s", sorts, tt.sorts, text)
			}
		})
	}
}

// before and after are one model at two times.
const (
	before = `[{"name":"Course","collection":"courses","fields":{"title":"string","seats":"int","fee":"float"}}]`
	after  = `[{"name":"Course","collection":"courses","fields":{"title":"string","seats":"long","fee":"double","code":"string","tags":"array"},
		"indexes":[{"keys":{"code":1},"options":{"unique":true}},{"keys":{"title":1,"seats":-1}}]},
		{"name":"Lesson","collection":"lessons","fields":{"title":"string"}}]`
)

// TestMigration guards that the statements of a migration lead to what the new models need, and that rows survive them.
func TestMigration(t *testing.T) {
	db, pool := openSQLite(t), postgres(t)
	tests := []struct {
		engine sqlgen.Engine
		run    func(*testing.T, []string) []plan.Table
		want   []string
	}{
		{sqlgen.EngineSQLite, func(t *testing.T, s []string) []plan.Table { return runSQLite(t, db, s) }, []string{
			`ALTER TABLE "courses" ADD COLUMN "code" TEXT;`, `ALTER TABLE "courses" ADD COLUMN "tags" TEXT;`,
			`CREATE UNIQUE INDEX "idx_courses_code" ON "courses" ("code" ASC);`,
			`CREATE INDEX "idx_courses_title_seats" ON "courses" ("title" ASC, "seats" DESC);`,
			`ALTER TABLE "courses_deleted" ADD COLUMN "code" TEXT;`, `ALTER TABLE "courses_deleted" ADD COLUMN "tags" TEXT;`}},
		{sqlgen.EnginePostgres, func(t *testing.T, s []string) []plan.Table { return runPostgres(t, pool, s) }, []string{
			`ALTER TABLE "courses" ALTER COLUMN "seats" TYPE BIGINT;`,
			`ALTER TABLE "courses" ADD COLUMN "code" TEXT COLLATE "C";`, `ALTER TABLE "courses" ADD COLUMN "tags" JSONB;`,
			`CREATE UNIQUE INDEX "idx_courses_code" ON "courses" ("code" ASC NULLS FIRST);`,
			`CREATE INDEX "idx_courses_title_seats" ON "courses" ("title" ASC NULLS FIRST, "seats" DESC NULLS LAST);`,
			`ALTER TABLE "courses_deleted" ALTER COLUMN "seats" TYPE BIGINT;`,
			`ALTER TABLE "courses_deleted" ADD COLUMN "code" TEXT COLLATE "C";`, `ALTER TABLE "courses_deleted" ADD COLUMN "tags" JSONB;`}},
	}
	for _, tt := range tests {
		t.Run(string(tt.engine), func(t *testing.T) {
			tables := tt.run(t, append(sqlgen.DDL(tt.engine, registered(t, before)),
				`INSERT INTO courses ("_id", title, seats, "__present") VALUES ('a', 'Knots', 3, ',seats,title,')`))
			models := registered(t, after)
			find := func(m *model.Model) *plan.Table { return introspect.Find(m, tables) }
			statements, err := sqlgen.Migrate(tt.engine, models, find)
			if err != nil {
				t.Fatal(err)
			}
			n := len(tt.want)
			if diff := cmp.Diff(tt.want, statements[:min(n, len(statements))]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(sqlgen.DDL(tt.engine, models[2:]), statements[n:]); diff != "" {
				t.Errorf("new tables (-want +got):\n%s", diff)
			}
			tables = tt.run(t, statements)
			for _, f := range introspect.Check(models, tables, plan.Features{Engine: string(tt.engine)}) {
				t.Error(f)
			}
			if more, err := sqlgen.Migrate(tt.engine, models, find); err != nil || len(more) > 0 {
				t.Errorf("a second migration: %q, %v", more, err)
			}
			if i := slices.IndexFunc(tables, func(x plan.Table) bool { return x.Name == "courses" }); tables[i].Rows == 0 {
				t.Error("the row is gone")
			}
		})
	}
}

// TestMigrationRefuses guards that what is not an addition is named and not written.
func TestMigrationRefuses(t *testing.T) {
	text := func(fields, more string) string {
		return `{"name":"A","table":"a","archive":false,"timestamps":false,"fields":{"_id":{"type":"int","column":"id"}` + fields + `}` + more + `}`
	}
	c := func(name string, t model.Type) plan.Column {
		return plan.Column{Name: name, Native: "native", Type: t, Nullable: true}
	}
	table := plan.Table{Schema: "public", Name: "a", Key: []string{"id"}, Columns: []plan.Column{c("id", model.Int), c("s", model.String), c("l", model.Long), c("d", model.Double)}}
	sqlite := table
	sqlite.Schema = ""
	tests := []struct {
		name   string
		engine sqlgen.Engine
		table  plan.Table
		model  string
		want   string // in the error
	}{
		{"text to number", sqlgen.EnginePostgres, table, text(`,"s":"int"`, `,"key":["id"]`), "model A, field s: the column s is native (string), and cannot become int"},
		{"narrowing", sqlgen.EnginePostgres, table, text(`,"d":"long"`, `,"key":["id"]`), "field d"},
		{"widening in SQLite", sqlgen.EngineSQLite, sqlite, text(`,"l":"double"`, `,"key":["id"]`), "field l"},
		{"another key", sqlgen.EnginePostgres, table, `{"name":"A","table":"a","key":["id","l"],"archive":false,"timestamps":false,"fields":{"id":"int","l":"long"}}`, "the key of public.a is (id) and would have to be (id, l)"},
		{"a view", sqlgen.EnginePostgres, plan.Table{Schema: "public", Name: "a", View: true}, text("", `,"key":["id"]`), "public.a is no table"},
		{"no column for what is stored", sqlgen.EngineSQLite, plan.Table{Name: "a", Key: []string{"_id"}, Columns: []plan.Column{c("_id", model.String)}},
			`{"name":"A","collection":"a","archive":false,"timestamps":false,"fields":{"_id":"string"}}`, "a has no column __present"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			statements, err := sqlgen.Migrate(tt.engine, registered(t, tt.model), func(*model.Model) *plan.Table { return &tt.table })
			var refused *sqlgen.MigrationError
			if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "MIGRATION_UNSUPPORTED: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
			if len(statements) > 0 {
				t.Errorf("statements %q", statements)
			}
		})
	}
}

// TestLongIndexNames guards that PostgreSQL does not cut two long index names to one.
func TestLongIndexNames(t *testing.T) {
	long := strings.Repeat("very_", 12)
	models := registered(t, `{"name":"A","collection":"`+long+`long","archive":false,"timestamps":false,"fields":{"one":"int","two":"int"},
		"indexes":[{"keys":{"one":1}},{"keys":{"two":1}}]}`)
	tables := runPostgres(t, postgres(t), sqlgen.DDL(sqlgen.EnginePostgres, models))
	if n := len(tables[0].Indexes); n != 3 {
		t.Errorf("%d indexes, want the key's and two", n)
	}
}
