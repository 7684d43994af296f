package realdb_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/introspect"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// made introspects a small database that the test made, and serves it.
func made(t *testing.T, source plan.Source) (server, introspect.Result) {
	t.Helper()
	tables, err := source.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	result := introspect.Definitions(tables)
	return serve(t, source, result.Definitions), result
}

// both runs a test on a small database in each engine. The script must be SQL that both take.
func both(t *testing.T, script string, test func(t *testing.T, source plan.Source)) {
	t.Run("sqlite", func(t *testing.T) {
		path, _ := loadSQLite(t, script)
		s, err := sqlite.Open(t.Context(), sqlite.Config{Read: path, Write: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		test(t, s)
	})
	t.Run("postgres", func(t *testing.T) {
		cluster := pgcluster.Start(t)
		url := cluster.NewDatabase(t)
		cluster.Exec(t, url, script)
		s, err := postgres.Open(t.Context(), postgres.Config{Read: url, Write: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		test(t, s)
	})
}

// TestCellsOfAnotherType guards that one cell of another type does not fail a list (case M09).
func TestCellsOfAnotherType(t *testing.T) {
	path, _ := loadSQLite(t, `CREATE TABLE site (id INTEGER PRIMARY KEY, fips INTEGER);
		INSERT INTO site VALUES (1, 12), (2, ''), (3, 'abc'), (4, NULL), (5, 7.5)`)
	definition, err := canonjson.ParseStrict([]byte(`{"name":"site","table":"site","key":["id"],"archive":false,"timestamps":false,
		"read":["reader"],"fields":{"_id":{"type":"int","column":"id"},"fips":"int"}}`), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	source := openSQLite(t, path)
	tables, err := source.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	findings := introspect.Check(registered(t, []canonjson.Value{definition}).List(), tables, source.Features())
	if len(findings) != 1 || findings[0].Severity != introspect.Warning || findings[0].Member != "fips" {
		t.Errorf("check: %v", findings)
	}
	s := serve(t, source, []canonjson.Value{definition})
	for range 2 {
		answer, err := s.engine.Query(t.Context(), s.call, `site{ fips }`, canonjson.Object(), engine.Page{})
		if err != nil {
			t.Fatal(err)
		}
		got := canonjson.Array(answer.Rows...).String()
		if want := `[{"_id":1,"fips":12},{"_id":2,"fips":null},{"_id":3,"fips":null},{"_id":4},{"_id":5,"fips":null}]`; got != want {
			t.Errorf("rows %s, want %s", got, want)
		}
		if u := answer.Unrepresentable; len(u) != 1 || u[0].Field != "fips" || u[0].Count != 3 || fmt.Sprint(u[0].Keys) != "[2 3 5]" {
			t.Errorf("unrepresentable: %+v", u)
		}
		compare(t, []row{{"_id": "1", "fips": "12"}}, s.ask(t, question{gql: `site($condition:@c){ fips }`, params: `{"c":{"fips":{"$gt":5}}}`}))
		compare(t, []row{{"sum": "12"}}, s.ask(t, question{gql: `site($group:@g){ sum }`, params: `{"g":{"agg":{"sum":{"$sum":"fips"}}}}`}))
	}
}

// TestWhatCannotBeWritten guards that nothing offers a write on a view or on a table without a key, and that tables of
// extensions are not there (case M12).
func TestWhatCannotBeWritten(t *testing.T) {
	path, _ := loadSQLite(t, `CREATE TABLE part (no TEXT, plant INTEGER, weight REAL, PRIMARY KEY (no, plant)) WITHOUT ROWID;
		CREATE TABLE log (line TEXT);
		CREATE VIEW heavy AS SELECT * FROM part WHERE weight > 10;
		CREATE VIRTUAL TABLE search USING fts5(body);
		INSERT INTO part VALUES ('a', 1, 5), ('b', 1, 20); INSERT INTO log VALUES ('second'), ('first')`)
	s, result := made(t, openSQLite(t, path))
	var left []string
	for _, l := range result.Left {
		left = append(left, l.What)
	}
	if diff := cmp.Diff([]string{"table search", "table search_config", "table search_content", "table search_data", "table search_docsize",
		"table search_idx"}, left); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	registry := registered(t, result.Definitions)
	for name, readOnly := range map[string]bool{"part": false, "log": true, "heavy": true} {
		if got := registry.Get(name).ReadOnly(); got != readOnly {
			t.Errorf("%s is read-only: %v", name, got)
		}
	}
	compare(t, []row{{"line": "first"}, {"line": "second"}}, s.ask(t, question{gql: `log{ line }`, params: `{}`}))
	compare(t, []row{{"no": "b"}}, s.ask(t, question{gql: `heavy{ no }`, params: `{}`}))
	compare(t, []row{{"_id": `["b","1"]`, "weight": "20"}}, s.ask(t, question{gql: `part($condition:@c){ weight }`, params: `{"c":{"_id":"[\"b\",\"1\"]"}}`}))
	admin := s.call
	admin.Access = (&model.Permission{Rules: model.DefaultRules()}).For(&model.Context{UserID: "root", Roles: []string{"admin"}})
	for _, name := range []string{"log", "heavy"} {
		data := canonjson.Object(canonjson.M(map[string]string{"log": "line", "heavy": "no"}[name], canonjson.String("x")))
		if _, err := s.engine.Insert(t.Context(), admin, name, data); !isClass(err, model.ReadOnly) {
			t.Errorf("a write to %s: %v", name, err)
		}
	}
}

// isClass tells whether err is a refusal of the class.
func isClass(err error, class model.Class) bool {
	refused, ok := err.(*model.Error)
	return ok && refused.Class == class
}

// TestReferencesToItselfAndTwice guards that all four relations answer, and the two ports are not mixed up (case M13).
func TestReferencesToItselfAndTwice(t *testing.T) {
	both(t, `CREATE TABLE employee (id INTEGER PRIMARY KEY, name TEXT NOT NULL, reports_to INTEGER REFERENCES employee (id));
		CREATE TABLE port (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
		CREATE TABLE shipment (id INTEGER PRIMARY KEY, from_port INTEGER NOT NULL REFERENCES port (id), to_port INTEGER NOT NULL REFERENCES port (id));
		INSERT INTO employee VALUES (1, 'Ada', NULL), (2, 'Ben', 1), (3, 'Cleo', 1);
		INSERT INTO port VALUES (1, 'Kiel'), (2, 'Oslo');
		INSERT INTO shipment VALUES (7, 1, 2);`, func(t *testing.T, source plan.Source) {
		s, result := made(t, source)
		if len(result.Left) > 0 {
			t.Errorf("left out: %v", result.Left)
		}
		answer, err := s.engine.Query(t.Context(), s.call, `employee{ name, reports_to_ref { name }, employee_by_reports_to { name } }`, canonjson.Object(), engine.Page{})
		if err != nil {
			t.Fatal(err)
		}
		want := parsed(t, `[{"_id":1,"name":"Ada","reports_to_ref":null,"employee_by_reports_to":[{"name":"Ben"},{"name":"Cleo"}]},
			{"_id":2,"name":"Ben","reports_to_ref":{"name":"Ada"},"employee_by_reports_to":[]},
			{"_id":3,"name":"Cleo","reports_to_ref":{"name":"Ada"},"employee_by_reports_to":[]}]`)
		if got := canonjson.Array(answer.Rows...); !got.Equal(want) {
			t.Errorf("rows %s", got)
		}
		compare(t, []row{{"_id": "7", "from_port_ref.name": "Kiel", "to_port_ref.name": "Oslo"}},
			s.ask(t, question{gql: `shipment{ from_port_ref { name }, to_port_ref { name } }`, params: `{}`}))
		compare(t, []row{{"_id": "1", "shipment_by_from_port._id": "7"}, {"_id": "2", "shipment_by_to_port._id": "7"}},
			s.ask(t, question{gql: `port{ shipment_by_from_port { _id }, shipment_by_to_port { _id } }`, params: `{}`}))
	})
}

// parsed reads JSON.
func parsed(t *testing.T, text string) canonjson.Value {
	t.Helper()
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestWritesThroughIntrospection guards that what introspection writes can be written through: keys that the database
// assigns, columns that it computes, keys of two columns, and lists of values.
func TestWritesThroughIntrospection(t *testing.T) {
	serial := map[string]string{"sqlite": "INTEGER PRIMARY KEY", "postgres": "serial PRIMARY KEY"}
	for engineName, key := range serial {
		t.Run(engineName, func(t *testing.T) {
			script := `CREATE TABLE film (film_id ` + key + `, title TEXT NOT NULL, length INTEGER, doubled INTEGER GENERATED ALWAYS AS (length * 2) STORED,
				kind TEXT CHECK (kind IN ('short', 'long')), price NUMERIC);
				CREATE TABLE seat (hall TEXT NOT NULL, no INTEGER NOT NULL, note TEXT, PRIMARY KEY (hall, no));`
			var source plan.Source
			var err error
			if engineName == "sqlite" {
				path, _ := loadSQLite(t, script)
				source, err = sqlite.Open(t.Context(), sqlite.Config{Read: path, Write: path})
			} else {
				cluster := pgcluster.Start(t)
				url := cluster.NewDatabase(t)
				cluster.Exec(t, url, script)
				source, err = postgres.Open(t.Context(), postgres.Config{Read: url, Write: url})
			}
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			s, _ := made(t, source)
			s.call.Access = (&model.Permission{Rules: model.DefaultRules()}).For(&model.Context{UserID: "ana", Roles: []string{"reader", "writer"}})
			row, err := s.engine.Insert(t.Context(), s.call, "film", parsed(t, `{"title":"Knots","length":7,"kind":"short"}`))
			if err != nil {
				t.Fatal(err)
			}
			if got := []string{row.Get("_id").String(), row.Get("doubled").String(), row.Get("title").String()}; !slices.Equal(got, []string{"1", "14", `"Knots"`}) {
				t.Errorf("inserted %s", row)
			}
			if _, err := s.engine.Insert(t.Context(), s.call, "film", parsed(t, `{"title":"Ropes","kind":"endless"}`)); !isClass(err, model.BadValue) {
				t.Errorf("a value that the check does not list: %v", err)
			}
			if _, err := s.engine.Insert(t.Context(), s.call, "film", parsed(t, `{"length":3}`)); !isClass(err, model.BadValue) {
				t.Errorf("a row without its title: %v", err)
			}
			if _, err := s.engine.Insert(t.Context(), s.call, "seat", parsed(t, `{"hall":"A","no":3}`)); err != nil {
				t.Fatal(err)
			}
			changed, err := s.engine.Update(t.Context(), s.call, "seat", parsed(t, `{"_id":"[\"A\",\"3\"]"}`), parsed(t, `{"note":"loose"}`), canonjson.Value{})
			if err != nil || changed.Get("note").Str() != "loose" {
				t.Errorf("changed: %s, %v", changed, err)
			}
			removed, err := s.engine.Remove(t.Context(), s.call, "film", parsed(t, `{"_id":1}`), canonjson.Value{}, true)
			if err != nil || removed != (engine.Removed{Deleted: 1}) {
				t.Errorf("removed: %+v, %v (%v)", removed, err, errors.Unwrap(err))
			}
		})
	}
}
