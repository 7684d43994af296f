//go:build unix

package cases_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	models "github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model/introspect"
)

// reader has the roles that introspection writes.
var reader = models.Who{User: "rae", Roles: []string{"reader", "writer"}}

// introspected makes tables, writes definitions of them, and serves those.
func introspected(t *testing.T, p *models.Place, script ...string) (*models.Site, introspect.Result) {
	t.Helper()
	p.Exec(t, script...)
	tables, err := p.Open(t).Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	result := introspect.Definitions(tables)
	return models.New(t, p, models.Config{Tables: true, Definitions: canonjson.Array(result.Definitions...).String()}), result
}

// TestDatesStoredAsText (M08): dates stored as text in SQLite crashed a client that expected numbers. The type is what is
// stored, not what the column claims: every row is read as that, and a range finds the rows that SQLite itself finds.
func TestDatesStoredAsText(t *testing.T) {
	p := models.SQLite(t)
	p.Exec(t, `CREATE TABLE invoice (id INTEGER PRIMARY KEY, made DATETIME NOT NULL, total NUMERIC(10,2))`)
	for i := range 60 {
		p.Exec(t, fmt.Sprintf(`INSERT INTO invoice VALUES (%d, '20%02d-%02d-11 00:00:00', %d.%02d)`, i+1, 20+i/12, i%12+1, i, i))
	}
	s, result := introspected(t, p)
	field := result.Definitions[0].Get("fields").Get("made")
	if kind := field.Get("type").Str() + field.Str(); kind != "string" {
		t.Errorf("made is introspected as %s; its cells are text", field)
	}
	list := ask(t, s, reader, "invoice { made }", `{}`)
	if n := list.Value.Get("rows").Len(); n != 60 {
		t.Fatalf("%d rows: %s", n, list.Said)
	}
	for i, row := range list.Value.Get("rows").Items() {
		if want := fmt.Sprintf("20%02d-%02d-11 00:00:00", 20+i/12, i%12+1); row.Get("made").Str() != want {
			t.Errorf("row %s, want %s", row, want)
		}
	}
	ranged := ask(t, s, reader, "invoice($condition: @c) { _id }", `{"c":{"made":{"$gte":"2021-01-01","$lt":"2022-01-01"}}}`)
	want := p.Lines(t, `SELECT id FROM invoice WHERE made >= '2021-01-01' AND made < '2022-01-01' ORDER BY id`)
	var got []string
	for _, row := range ranged.Value.Get("rows").Items() {
		got = append(got, row.Get("_id").String())
	}
	if len(want) != 12 || !slices.Equal(got, want) {
		t.Errorf("the range finds %v, SQLite %v", got, want)
	}
}

// TestCellsOfAnotherKind (M09): SQLite columns declared INTEGER held empty strings, and one such cell failed the query. All
// rows come, the cells that do not fit are null and named, and filters and sums count only real numbers, each time alike.
func TestCellsOfAnotherKind(t *testing.T) {
	p := models.SQLite(t)
	p.Exec(t, `CREATE TABLE site (id INTEGER PRIMARY KEY, fips INTEGER)`, `INSERT INTO site VALUES (1, 12), (2, ''), (3, 'abc'), (4, NULL), (5, 7.5)`)
	s := models.New(t, p, models.Config{Tables: true, Definitions: `[{"name":"Site","table":"site","key":["id"],"timestamps":false,"archive":false,"read":["reader"],"fields":{"_id":{"type":"int","column":"id"},"fips":"int"}}]`})
	for range 2 {
		a := s.Call(t, reader, "list_Site", `{}`)
		if got, want := rows(t, a), `[{"_id":1,"fips":12},{"_id":2,"fips":null},{"_id":3,"fips":null},{"_id":4},{"_id":5,"fips":null}]`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if want := `"io.tabellion/unrepresentable":[{"model":"Site","field":"fips","count":3,"keys":[2,3,5]}]`; !strings.Contains(a.Said, want) {
			t.Errorf("the labels do not hold %s: %s", want, a.Said)
		}
		if got := rows(t, ask(t, s, reader, "Site($condition: @c) { _id }", `{"c":{"fips":{"$gt":5}}}`)); got != `[{"_id":1}]` {
			t.Errorf("the filter finds %s", got)
		}
		if got := rows(t, ask(t, s, reader, "Site($group: @g) { n }", `{"g":{"agg":{"n":{"$sum":"fips"}}}}`)); got != `[{"n":12}]` {
			t.Errorf("the sum is %s", got)
		}
	}
}

// TestNoPromiseThatCannotBeKept (M12): views and key-less tables were offered for change and then failed or changed the
// wrong rows. They are for reading only, with no tool that writes, and tables of extensions are not listed.
func TestNoPromiseThatCannotBeKept(t *testing.T) {
	script := map[sqlgen.Engine][]string{
		sqlgen.EngineSQLite:   {`CREATE TABLE part (no TEXT, plant INTEGER, weight REAL, PRIMARY KEY (no, plant)) WITHOUT ROWID`, `CREATE VIRTUAL TABLE search USING fts5(body)`},
		sqlgen.EnginePostgres: {`CREATE TABLE part (no text, plant int, weight float8, PRIMARY KEY (no, plant))`, `CREATE MATERIALIZED VIEW search AS SELECT 1 AS body`},
	}
	models.Each(t, func(t *testing.T, p *models.Place) {
		s, result := introspected(t, p, append(script[p.Engine], `CREATE TABLE log (line TEXT)`, `INSERT INTO log VALUES ('b'), ('a')`, `CREATE VIEW heavy AS SELECT * FROM part WHERE weight > 10`)...)
		listing := s.Listing(t, reader)
		for name, writes := range map[string]bool{"part": true, "log": false, "heavy": false} {
			for _, verb := range []string{"create", "update", "delete"} {
				if got := strings.Contains(listing, `"`+verb+"_"+name+`"`); got != writes {
					t.Errorf("%s_%s is listed: %t", verb, name, got)
				}
			}
			if !strings.Contains(listing, `"list_`+name+`"`) {
				t.Errorf("list_%s is not there", name)
			}
		}
		if strings.Contains(listing, `"get_log"`) {
			t.Error("a table without a key has get_log")
		}
		if p.Engine == sqlgen.EngineSQLite && strings.Contains(listing, "search") {
			t.Error("a virtual table, or one of its parts, is listed")
		}
		if got := rows(t, ask(t, s, reader, "log { line }", `{}`)); got != `[{"line":"a"},{"line":"b"}]` {
			t.Errorf("the table without a key shows %s", got)
		}
		for _, name := range []string{"log", "heavy"} {
			if _, err := s.Engine.Insert(t.Context(), s.Internal(), name, models.JSON(t, `{"line":"x","no":"x"}`)); err == nil || !strings.Contains(err.Error(), "ERR_READ_ONLY:") {
				t.Errorf("a write to %s: %v", name, err)
			}
		}
		if p.Engine == sqlgen.EngineSQLite && len(result.Left) == 0 {
			t.Error("what was left out is not said")
		}
	})
}

// TestBothWaysOfAReference (M13): a self reference gave only one direction; two keys to the same table were ambiguous. Each
// key gives two relations with names of their own, and no two are mixed up.
func TestBothWaysOfAReference(t *testing.T) {
	models.Each(t, func(t *testing.T, p *models.Place) {
		s, result := introspected(t, p,
			`CREATE TABLE employee (id INTEGER PRIMARY KEY, name TEXT, reports_to INTEGER REFERENCES employee(id))`, `CREATE TABLE port (id INTEGER PRIMARY KEY, name TEXT)`,
			`CREATE TABLE shipment (id INTEGER PRIMARY KEY, from_port INTEGER REFERENCES port(id), to_port INTEGER REFERENCES port(id))`,
			`INSERT INTO employee VALUES (1, 'Ada', NULL), (2, 'Ben', 1)`, `INSERT INTO port VALUES (1, 'Kiel'), (2, 'Oslo')`, `INSERT INTO shipment VALUES (7, 1, 2)`)
		relations := map[string]string{} // model.relation to its type
		for _, d := range result.Definitions {
			for _, r := range d.Get("relations").Members() {
				relations[d.Get("name").Str()+"."+r.Name] = r.Value.Get("type").Str() + " " + r.Value.Get("localField").Str() + " " + r.Value.Get("foreignField").Str()
			}
		}
		of := func(model, kind, field string) string {
			for name, what := range relations {
				if m, r, _ := strings.Cut(name, "."); m == model && strings.HasPrefix(what, kind) && strings.Contains(what, field) {
					return r
				}
			}
			t.Fatalf("%s has no relation %s by %s: %v", model, kind, field, relations)
			return ""
		}
		if len(relations) != 6 {
			t.Errorf("%d relations, want 6: %v", len(relations), relations)
		}
		parent, children := of("employee", "one", "reports_to"), of("employee", "many", "reports_to")
		got := rows(t, ask(t, s, reader, fmt.Sprintf("employee { name, %s { name }, %s { name } }", parent, children), `{}`))
		if want := fmt.Sprintf(`[{"_id":1,"name":"Ada","%[1]s":null,"%[2]s":[{"name":"Ben"}]},{"_id":2,"name":"Ben","%[1]s":{"name":"Ada"},"%[2]s":[]}]`, parent, children); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		from, to := of("shipment", "one", "from_port"), of("shipment", "one", "to_port")
		got = rows(t, ask(t, s, reader, fmt.Sprintf("shipment { %s { name }, %s { name } }", from, to), `{}`))
		if want := fmt.Sprintf(`[{"_id":7,"%s":{"name":"Kiel"},"%s":{"name":"Oslo"}}]`, from, to); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		out, back := of("port", "many", "from_port"), of("port", "many", "to_port")
		got = rows(t, ask(t, s, reader, fmt.Sprintf("port { %s { _id }, %s { _id } }", out, back), `{}`))
		if want := fmt.Sprintf(`[{"_id":1,"%[1]s":[{"_id":7}],"%[2]s":[]},{"_id":2,"%[1]s":[],"%[2]s":[{"_id":7}]}]`, out, back); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestTableNamesWithBlanks (M28): table names with blanks and brackets. The model's name is one that a query can say, the
// table keeps its own, and queries run; of two tables whose names fold to one, one is left out with the reason, and they are
// not merged.
func TestTableNamesWithBlanks(t *testing.T) {
	models.Each(t, func(t *testing.T, p *models.Place) {
		s, result := introspected(t, p,
			`CREATE TABLE "Products" ("ProductID" INTEGER PRIMARY KEY, "Product Name" TEXT)`,
			`CREATE TABLE "Order Details" ("Order ID" INTEGER, "ProductID" INTEGER REFERENCES "Products"("ProductID"), "Unit Price" INTEGER, PRIMARY KEY ("Order ID", "ProductID"))`,
			`CREATE VIEW "Products by Name" AS SELECT "Product Name" FROM "Products"`, `INSERT INTO "Products" VALUES (1, 'Chai')`, `INSERT INTO "Order Details" VALUES (10, 1, 18)`)
		if len(result.Definitions) != 3 || len(result.Left) != 0 {
			t.Fatalf("%d definitions; left out: %v", len(result.Definitions), result.Left)
		}
		names := map[string]canonjson.Value{}
		for _, d := range result.Definitions {
			_, table, ok := strings.Cut(d.Get("table").Str(), ".")
			if !ok {
				table = d.Get("table").Str()
			}
			names[table] = d
			if name := d.Get("name").Str(); strings.ContainsAny(name, " []\"") || name == "" {
				t.Errorf("the model %q cannot be said in a query", name)
			}
		}
		details, products, view := names["Order Details"], names["Products"], names["Products by Name"]
		if details.Get("collection").Str() != "Order Details" || view.IsAbsent() {
			t.Fatalf("the tables' own names are not kept: %v", names)
		}
		text := fmt.Sprintf("%s { %s { %s } }", details.Get("name").Str(), details.Get("relations").Members()[0].Name, field(products, "Product Name"))
		if got := rows(t, ask(t, s, reader, text, `{}`)); !strings.Contains(got, `"Chai"`) {
			t.Errorf("%s shows %s", text, got)
		}
		if got := rows(t, ask(t, s, reader, view.Get("name").Str()+" { "+field(view, "Product Name")+" }", `{}`)); !strings.Contains(got, `"Chai"`) {
			t.Errorf("the view shows %s", got)
		}
		p.Exec(t, `CREATE TABLE "Order_Details" (id INTEGER PRIMARY KEY, note TEXT)`)
		tables, err := p.Open(t).Tables(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		again := introspect.Definitions(tables)
		if len(again.Definitions) != 3 || len(again.Left) != 1 || !strings.Contains(again.Left[0].What, "Order Details") || !strings.Contains(again.Left[0].Why, "Order_Details") {
			t.Errorf("two tables whose names fold to one: %d definitions, left out: %v", len(again.Definitions), again.Left)
		}
	})
}

// field is the name that a model has for a column.
func field(definition canonjson.Value, column string) string {
	for _, f := range definition.Get("fields").Members() {
		if f.Value.Get("column").Str() == column {
			return f.Name
		}
	}
	return ""
}
