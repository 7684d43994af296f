package inspect_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/source/inspect"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// sqliteTables runs a script in a new database and inspects it.
func sqliteTables(t *testing.T, script string) []plan.Table {
	t.Helper()
	tables, err := inspect.SQLite(t.Context(), openSQLite(t, script, ""))
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// openSQLite runs a script in a new database and opens it again with options.
func openSQLite(t *testing.T, script, options string) *sql.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	made, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := made.Exec(script); err != nil {
		t.Fatal(err)
	}
	made.Close()
	db, err := sql.Open("sqlite", "file:"+path+options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// pool opens a pool that ends with the test.
func pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// postgresTables runs a script in a new database and inspects it.
func postgresTables(t *testing.T, script string) []plan.Table {
	t.Helper()
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	cluster.Exec(t, url, script)
	tables, err := inspect.Postgres(t.Context(), pool(t, url))
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// named finds a table, or fails.
func named(t *testing.T, tables []plan.Table, name string) plan.Table {
	t.Helper()
	for _, table := range tables {
		if table.String() == name {
			return table
		}
	}
	t.Fatalf("no table %s", name)
	return plan.Table{}
}

// columnOf finds a column, or fails.
func columnOf(t *testing.T, table plan.Table, name string) plan.Column {
	t.Helper()
	for _, c := range table.Columns {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("%s has no column %s", table, name)
	return plan.Column{}
}

// same compares and ignores the difference between empty and nil.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestSQLiteCatalog(t *testing.T) {
	tables := sqliteTables(t, `
		CREATE TABLE port (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE COLLATE NOCASE,
			kind TEXT DEFAULT 'sea' CHECK (kind IN ('sea', 'river, or lake', 'it''s')), long_name AS (name || ' port') STORED);
		CREATE TABLE Leg (ship TEXT, "no" INTEGER, [from port] INTEGER REFERENCES PORT, to_port INTEGER,
			PRIMARY KEY (ship, "no"), FOREIGN KEY (TO_PORT) REFERENCES port(ID)) WITHOUT ROWID;
		CREATE TABLE note (leg_ship TEXT, leg_no INTEGER, body TEXT, FOREIGN KEY (leg_ship, leg_no) REFERENCES Leg);
		CREATE INDEX leg_by_port ON Leg (to_port DESC, ship);
		CREATE UNIQUE INDEX one_open ON note (leg_ship) WHERE body IS NULL;
		CREATE INDEX folded ON note (lower(body));
		CREATE VIEW calls AS SELECT name, count(*) AS n FROM port JOIN Leg ON to_port = id GROUP BY 1;
		CREATE VIEW broken AS SELECT a FROM nowhere;
		CREATE VIRTUAL TABLE search USING fts5(body);
		INSERT INTO port (id, name) VALUES (1, 'Kiel'), (2, 'Oslo');
		INSERT INTO Leg VALUES ('Aurora', 1, 1, 2);
	`)
	var names []string
	for _, table := range tables {
		names = append(names, strings.TrimSpace(table.Name+" "+table.Virtual))
	}
	same(t, "tables", names, []string{"Leg",
		"broken the view does not work: a table or column that it reads is missing", "calls", "note", "port",
		"search it is a virtual table (fts5)",
		"search_config it is a shadow table, which belongs to a virtual table",
		"search_content it is a shadow table, which belongs to a virtual table",
		"search_data it is a shadow table, which belongs to a virtual table",
		"search_docsize it is a shadow table, which belongs to a virtual table",
		"search_idx it is a shadow table, which belongs to a virtual table"})
	same(t, "port", named(t, tables, "port"), plan.Table{
		Name: "port", Key: []string{"id"}, Rows: 2, Unique: [][]string{{"name"}},
		Columns: []plan.Column{
			{Name: "id", Native: "INTEGER", Type: model.Int, Identity: true, ByCode: true},
			{Name: "name", Native: "TEXT", Type: model.String, Collation: "NOCASE"},
			{Name: "kind", Native: "TEXT", Type: model.String, Nullable: true, Default: true, ByCode: true, Enum: []string{"sea", "river, or lake", "it's"}},
			{Name: "long_name", Type: model.String, Nullable: true, Generated: true, ByCode: true},
		},
		Indexes: []plan.TableIndex{{Name: "sqlite_autoindex_port_1", Columns: []string{"name"}, Desc: []bool{false}, Unique: true}},
	})
	leg := named(t, tables, "Leg")
	same(t, "key of Leg", leg.Key, []string{"ship", "no"})
	same(t, "foreign keys of Leg", leg.Foreign, []plan.ForeignKey{
		{Columns: []string{"from port"}, Table: "port", References: []string{"id"}},
		{Columns: []string{"to_port"}, Table: "port", References: []string{"id"}}})
	same(t, "an index of Leg", leg.Indexes[0], plan.TableIndex{Name: "sqlite_autoindex_Leg_1", Columns: []string{"ship", "no"},
		Desc: []bool{false, false}, Unique: true, ByCode: true})
	same(t, "another index of Leg", leg.Indexes[1], plan.TableIndex{Name: "leg_by_port", Columns: []string{"to_port", "ship"},
		Desc: []bool{true, false}, ByCode: true})
	note := named(t, tables, "note")
	same(t, "key of note", note.Key, []string{})
	same(t, "unique of note: a partial index is none", note.Unique, [][]string{})
	same(t, "foreign keys of note", note.Foreign, []plan.ForeignKey{
		{Columns: []string{"leg_ship", "leg_no"}, Table: "Leg", References: []string{"ship", "no"}}})
	same(t, "indexes of note", note.Indexes, []plan.TableIndex{{Name: "folded", Columns: []string{""}, Desc: []bool{false}, ByCode: true}})
	calls := named(t, tables, "calls")
	if !calls.View || columnOf(t, calls, "n").Type != model.Int {
		t.Errorf("view: %+v", calls)
	}
}

// TestSQLiteHeldTypes guards that the type of a column is what it holds (cases M08, M09).
func TestSQLiteHeldTypes(t *testing.T) {
	tables := sqliteTables(t, `
		CREATE TABLE site (fips INTEGER);
		INSERT INTO site VALUES (12), (''), ('abc'), (NULL), (7.5);
		CREATE TABLE held (n INTEGER, wide INTEGER, flag BOOLEAN, notFlag BOOLEAN, price NUMERIC(10, 2), day DATETIME, at DATETIME, mixedDay DATETIME,
			epoch DATETIME, pic, doc JSON, notDoc JSON, empty INTEGER, code TEXT PRIMARY KEY, stray INTEGER, strict TEXT);
		INSERT INTO held VALUES (1, 1, 1, 1, 2, '2021-01-31', '2021-01-31 10:00:00', '2021-01-31', 1609459200, x'01', '{}', 'word', NULL, 'a', 1, 'x');
		INSERT INTO held VALUES (2, 3000000000, 0, 2, 2.5, '1999-12-01', '2021-01-31 23:59:59', 'soon', 1609459200, x'02', '[1]', '{}', NULL, NULL, 2, 'y');
		INSERT INTO held VALUES (2, 3, NULL, 2, 2.5, '1999-12-01', '2021-01-31 23:59:59', 'soon', 1609459200, x'02', '[1]', '{}', NULL, 'c', 'oops', 'z');
	`)
	same(t, "site.fips", columnOf(t, named(t, tables, "site"), "fips"), plan.Column{Name: "fips", Native: "INTEGER",
		Type: model.Double, Nullable: true, ByCode: true, Found: []string{"integer", "real", "text"}})
	type kind struct {
		Type   model.Type
		Found  []string
		Format string
	}
	got := map[string]kind{}
	for _, c := range named(t, tables, "held").Columns {
		got[c.Name] = kind{c.Type, c.Found, c.Format}
	}
	same(t, "types", got, map[string]kind{
		"n": {Type: model.Int}, "wide": {Type: model.Long}, "flag": {Type: model.Boolean}, "notFlag": {Type: model.Int},
		"price": {Type: model.Double}, "day": {Type: model.String, Format: "YYYY-MM-DD"},
		"at": {Type: model.String, Format: "YYYY-MM-DD HH:MM:SS"}, "mixedDay": {Type: model.String}, "epoch": {Type: model.Int},
		"pic": {Type: model.Bytes}, "doc": {Type: model.Any}, "notDoc": {Type: model.String}, "empty": {Type: model.Int},
		"code": {Type: model.String}, "stray": {Type: model.Int, Found: []string{"integer", "text"}}, "strict": {Type: model.String},
	})
	if !columnOf(t, named(t, tables, "held"), "code").Nullable {
		t.Error("a key column of SQLite that holds null was not seen to be nullable")
	}
}

// TestSQLiteSampleIsBounded guards that the types at both ends of a large table are seen, and its rows counted.
func TestSQLiteSampleIsBounded(t *testing.T) {
	tables := sqliteTables(t, `
		CREATE TABLE many (id INTEGER PRIMARY KEY, late INTEGER);
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
		INSERT INTO many SELECT i, CASE WHEN i = 29999 THEN 'text' WHEN i = 15000 THEN x'00' ELSE i END FROM n;`)
	many := named(t, tables, "many")
	same(t, "found at the ends only", columnOf(t, many, "late").Found, []string{"integer", "text"})
	same(t, "rows", many.Rows, int64(30000))
}

func TestPostgresCatalog(t *testing.T) {
	tables := postgresTables(t, `
		CREATE TYPE mood AS ENUM ('sad', 'happy');
		CREATE DOMAIN year AS integer CHECK (VALUE > 1900);
		CREATE DOMAIN size AS text NOT NULL CHECK (VALUE IN ('s', 'm''s'));
		CREATE TABLE ship (id serial PRIMARY KEY, name varchar(40) NOT NULL, built year, feel mood DEFAULT 'sad', size size,
			state text CHECK (state IN ('new', 'old')), tags text[], sizes numeric[], moods mood[], area int4range,
			at time, seen timestamptz, born date, ref uuid, raw bytea, doc jsonb, big bigint, f real, d double precision,
			n numeric(8,2), ok boolean, c text COLLATE "C", de text COLLATE "de-x-icu", double_n numeric GENERATED ALWAYS AS (n * 2) STORED,
			UNIQUE (name, built));
		COMMENT ON TABLE ship IS 'all ships'; COMMENT ON COLUMN ship.name IS 'on the bow';
		CREATE UNIQUE INDEX one_new ON ship (state) WHERE state = 'new';
		CREATE INDEX by_c ON ship (c, name COLLATE "C" DESC);
		CREATE INDEX by_name ON ship (name) INCLUDE (built);
		CREATE INDEX hashed ON ship USING hash (name);
		CREATE TABLE leg (ship_id integer REFERENCES ship, no integer GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (ship_id, no));
		CREATE TABLE note (a integer, b integer, FOREIGN KEY (b, a) REFERENCES leg (ship_id, no));
		CREATE TABLE log (at date NOT NULL, ship_id integer REFERENCES ship, PRIMARY KEY (at)) PARTITION BY RANGE (at);
		CREATE TABLE log_2020 PARTITION OF log FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
		CREATE TABLE old_leg () INHERITS (leg);
		CREATE VIEW ships AS SELECT name, feel FROM ship;
		CREATE MATERIALIZED VIEW shipsizes AS SELECT size, count(*) AS n FROM ship GROUP BY 1;
		CREATE SCHEMA hold; CREATE TABLE hold.box (id uuid PRIMARY KEY);
		INSERT INTO log VALUES ('2020-02-02'), ('2020-02-03'); ANALYZE log;
	`)
	var names []string
	for _, table := range tables {
		names = append(names, strings.TrimSpace(table.String()+" "+table.Virtual))
	}
	same(t, "tables", names, []string{"hold.box", "public.leg", "public.log", "public.note",
		"public.old_leg it inherits from public.leg, which shows its rows too", "public.ship", "public.ships", "public.shipsizes"})
	ship := named(t, tables, "public.ship")
	type kind struct {
		Native string
		Type   model.Type
		Enum   []string
	}
	got := map[string]kind{}
	for _, c := range ship.Columns {
		got[c.Name] = kind{c.Native, c.Type, c.Enum}
	}
	same(t, "types", got, map[string]kind{
		"id": {"integer", model.Int, nil}, "name": {"character varying(40)", model.String, nil}, "built": {"year", model.Int, nil},
		"feel": {"mood", model.String, []string{"sad", "happy"}}, "size": {"size", model.String, []string{"s", "m's"}},
		"state": {"text", model.String, []string{"new", "old"}}, "tags": {"text[]", model.Array, nil},
		"sizes": {"numeric[]", model.Array, nil}, "moods": {"mood[]", model.Array, nil}, "area": {"int4range", "", nil},
		"at": {"time without time zone", "", nil}, "seen": {"timestamp with time zone", model.Timestamp, nil}, "born": {"date", model.Day, nil},
		"ref": {"uuid", model.UUID, nil}, "raw": {"bytea", model.Bytes, nil}, "doc": {"jsonb", model.Any, nil}, "big": {"bigint", model.Long, nil},
		"f": {"real", model.Float, nil}, "d": {"double precision", model.Double, nil}, "n": {"numeric(8,2)", model.Decimal, nil},
		"ok": {"boolean", model.Boolean, nil}, "c": {"text", model.String, nil}, "de": {"text", model.String, nil},
		"double_n": {"numeric", model.Decimal, nil},
	})
	same(t, "id", columnOf(t, ship, "id"), plan.Column{Name: "id", Native: "integer", Type: model.Int, Default: true, Identity: true})
	same(t, "name", columnOf(t, ship, "name"), plan.Column{Name: "name", Native: "character varying(40)", Type: model.String, Comment: "on the bow"})
	same(t, "c", columnOf(t, ship, "c"), plan.Column{Name: "c", Native: "text", Type: model.String, Nullable: true, Collation: "C", ByCode: true})
	same(t, "de", columnOf(t, ship, "de"), plan.Column{Name: "de", Native: "text", Type: model.String, Nullable: true, Collation: "de-x-icu"})
	if size := columnOf(t, ship, "size"); size.Nullable {
		t.Error("the domain that is not null was not seen")
	}
	if !columnOf(t, ship, "double_n").Generated {
		t.Error("the generated column was not seen")
	}
	same(t, "comment, key, unique", []any{ship.Comment, ship.Key, ship.Unique},
		[]any{"all ships", []string{"id"}, [][]string{{"name", "built"}}})
	same(t, "indexes", ship.Indexes, []plan.TableIndex{
		{Name: "by_c", Columns: []string{"c", "name"}, Desc: []bool{false, true}, ByCode: true},
		{Name: "by_name", Columns: []string{"name"}, Desc: []bool{false}},
		{Name: "ship_name_built_key", Columns: []string{"name", "built"}, Desc: []bool{false, false}, Unique: true},
		{Name: "ship_pkey", Columns: []string{"id"}, Desc: []bool{false}, Unique: true, ByCode: true}})
	leg := named(t, tables, "public.leg")
	same(t, "leg", []any{leg.Key, leg.Foreign, columnOf(t, leg, "no").Identity}, []any{[]string{"ship_id", "no"},
		[]plan.ForeignKey{{Name: "leg_ship_id_fkey", Columns: []string{"ship_id"}, Schema: "public", Table: "ship", References: []string{"id"}}}, true})
	same(t, "composite foreign key", named(t, tables, "public.note").Foreign, []plan.ForeignKey{{Name: "note_b_a_fkey",
		Columns: []string{"b", "a"}, Schema: "public", Table: "leg", References: []string{"ship_id", "no"}}})
	log := named(t, tables, "public.log")
	same(t, "partitioned", []any{log.Rows, log.Key, len(log.Foreign)}, []any{int64(2), []string{"at"}, 1})
	same(t, "never analyzed", ship.Rows, int64(-1))
	if v := named(t, tables, "public.shipsizes"); !v.View || len(v.Columns) != 2 {
		t.Errorf("materialized view: %+v", v)
	}
}

// TestPostgresShowsWhatTheRoleMaySee guards that inspection stops at the role's rights, column by column.
func TestPostgresShowsWhatTheRoleMaySee(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	role, roleURL := cluster.NewRole(t, url)
	cluster.Exec(t, url, `CREATE TABLE seen (id integer PRIMARY KEY, public text, secret text);
		CREATE TABLE unseen (id integer PRIMARY KEY, seen_id integer REFERENCES seen);
		CREATE SCHEMA closed; CREATE TABLE closed.box (id integer); GRANT SELECT ON closed.box TO `+role+`;
		GRANT SELECT (id, public) ON seen TO `+role)
	tables, err := inspect.Postgres(t.Context(), pool(t, roleURL))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, table := range tables {
		for _, c := range table.Columns {
			got = append(got, table.String()+"."+c.Name)
		}
	}
	same(t, "columns", got, []string{"public.seen.id", "public.seen.public"})
}

// dangers are the names of the dangers of a role.
func dangers(r plan.Role) []string {
	var out []string
	for _, d := range r.Dangers {
		out = append(out, d.Name)
	}
	return out
}

func TestPostgresRights(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	cluster.Exec(t, url, "CREATE TABLE a (id integer); CREATE TABLE b (id integer); CREATE SCHEMA extra")
	tests := []struct {
		name, grants   string // %s is the role
		reader, writer []string
	}{
		{"select only", "GRANT SELECT ON a TO %s", nil, nil},
		{"writes", "GRANT SELECT, INSERT ON a TO %s", []string{inspect.ReaderWrites}, nil},
		{"writes a column", "GRANT UPDATE (id) ON a TO %s", []string{inspect.ReaderWrites}, nil},
		{"owns", "ALTER TABLE b OWNER TO %s", []string{inspect.Owner, inspect.ReaderWrites}, []string{inspect.Owner}},
		{"creates", "GRANT CREATE, USAGE ON SCHEMA extra TO %s", []string{inspect.Creates}, []string{inspect.Creates}},
		{"files", "GRANT pg_read_server_files TO %s", []string{inspect.ServerFiles}, []string{inspect.ServerFiles}},
		{"programs", "GRANT pg_execute_server_program TO %s", []string{inspect.Programs}, []string{inspect.Programs}},
		{"functions", "GRANT EXECUTE ON FUNCTION pg_read_file(text) TO %s", []string{inspect.Functions}, []string{inspect.Functions}},
		{"attributes", "ALTER ROLE %s BYPASSRLS CREATEROLE CREATEDB REPLICATION",
			[]string{inspect.BypassRLS, inspect.CreatesRoles, inspect.CreatesDBs, inspect.Replicates},
			[]string{inspect.BypassRLS, inspect.CreatesRoles, inspect.CreatesDBs, inspect.Replicates}},
		{"superuser", "ALTER ROLE %s SUPERUSER", []string{inspect.Superuser}, []string{inspect.Superuser}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			role, roleURL := cluster.NewRole(t, url)
			cluster.Exec(t, url, strings.ReplaceAll(tt.grants, "%s", role))
			if tt.name == "owns" {
				t.Cleanup(func() { cluster.Exec(t, url, "ALTER TABLE b OWNER TO tab") })
			}
			p := pool(t, roleURL)
			report, err := inspect.PostgresRights(t.Context(), p, p)
			if err != nil {
				t.Fatal(err)
			}
			same(t, "reader", dangers(report.Reader), tt.reader)
			same(t, "writer", dangers(report.Writer), tt.writer)
			if report.Reader.Name != role {
				t.Errorf("role %q, want %q", report.Reader.Name, role)
			}
			for _, d := range report.Reader.Dangers {
				if d.Text == "" || strings.Contains(d.Text, "%") {
					t.Errorf("danger %s: text %q", d.Name, d.Text)
				}
			}
		})
	}
}

// TestPostgresRightsOfMembers guards that a right is seen although the role must first become another.
func TestPostgresRightsOfMembers(t *testing.T) {
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	role, roleURL := cluster.NewRole(t, url)
	cluster.Exec(t, url, "ALTER ROLE "+role+" NOINHERIT; GRANT tab TO "+role)
	report, err := inspect.PostgresRights(t.Context(), pool(t, roleURL), nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "member of a superuser", dangers(report.Reader), []string{inspect.BecomesSuper})

	writer, _ := cluster.NewRole(t, url)
	reader, readerURL := cluster.NewRole(t, url)
	cluster.Exec(t, url, "CREATE TABLE a (id integer); GRANT INSERT ON a TO "+writer+"; ALTER ROLE "+writer+" CREATEDB; "+
		"ALTER ROLE "+reader+" NOINHERIT; GRANT "+writer+" TO "+reader)
	if report, err = inspect.PostgresRights(t.Context(), pool(t, readerURL), nil); err != nil {
		t.Fatal(err)
	}
	same(t, "member of a writer", dangers(report.Reader), []string{inspect.CreatesDBs, inspect.ReaderWrites})
}

func TestSQLiteRights(t *testing.T) {
	tests := []struct {
		name, options string
		want          []string
	}{
		{"as it comes", "", []string{inspect.Writable, inspect.TrustsSchema}},
		{"hardened", "?mode=ro&_pragma=query_only(1)&_pragma=trusted_schema(0)", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			report, err := inspect.SQLiteRights(t.Context(), openSQLite(t, "CREATE TABLE a (b)", tt.options), nil)
			if err != nil {
				t.Fatal(err)
			}
			same(t, "dangers", dangers(report.Reader), tt.want)
		})
	}
}
