package introspect_test

import (
	"fmt"
	"testing"

	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/introspect"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// film is a definition of a table that exists, with places for more fields, more members, and another field list.
func film(fields, more string) string {
	return fmt.Sprintf(`{"name":"Film","table":"film","key":["id"],"archive":false,"timestamps":false,"collation":"source",
		"fields":{"_id":{"type":"int","column":"id"}%s}%s}`, fields, more)
}

// table is the table of film with more columns.
func table(columns ...plan.Column) plan.Table {
	return plan.Table{Name: "film", Key: []string{"id"}, Columns: append([]plan.Column{col("id", model.Int)}, columns...)}
}

func TestCheck(t *testing.T) {
	inSchema := func(t plan.Table) plan.Table { t.Schema = "public"; return t }
	indexed := table(null("title", model.String))
	indexed.Indexes = []plan.TableIndex{{Columns: []string{"title"}, Desc: []bool{false}}}
	byCode := table(null("title", model.String))
	byCode.Indexes = []plan.TableIndex{{Columns: []string{"title"}, Desc: []bool{false}, ByCode: true}}
	tests := []struct {
		name   string
		engine string
		models string // an array of definitions
		tables []plan.Table
		want   []string // severity: subject: text
	}{
		{"nothing", "postgres", film(`,"title":"string"`, ``), []plan.Table{table(null("title", model.String))}, nil},
		{"no table", "postgres", film(``, ``), nil, []string{"error: Film: there is no table film"}},
		{"another case", "postgres", film(`,"Title":"string"`, ``), []plan.Table{{Name: "FILM", Key: []string{"ID"},
			Columns: []plan.Column{col("ID", model.Int), null("title", model.String)}}}, nil},
		{"a schema", "postgres", film(``, ``), []plan.Table{inSchema(table()), {Schema: "other", Name: "film"}}, nil},
		{"a schema that is named", "postgres", `{"name":"Film","table":"other.film","key":["id"],"archive":false,"timestamps":false,"fields":{"_id":{"type":"int","column":"id"}}}`,
			[]plan.Table{inSchema(table()), {Schema: "other", Name: "film"}}, []string{"error: Film._id: the table other.film has no column id"}},
		{"a schema that is not there", "postgres", `{"name":"Film","table":"gone.film","key":["id"],"archive":false,"timestamps":false,"fields":{"_id":{"type":"int","column":"id"}}}`,
			[]plan.Table{inSchema(table())}, []string{"error: Film: there is no table gone.film"}},
		{"a dot in the name", "sqlite", `{"name":"Film","table":"a.film","key":["id"],"archive":false,"timestamps":false,"fields":{"_id":{"type":"int","column":"id"}}}`,
			[]plan.Table{{Name: "a.film", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}}}, nil},
		{"virtual", "sqlite", film(``, ``), []plan.Table{{Name: "film", Virtual: "it is a shadow table"}}, []string{"error: Film: film cannot be served: it is a shadow table"}},
		{"a view that takes writes", "sqlite", film(``, ``), []plan.Table{{Name: "film", View: true, Columns: []plan.Column{col("id", model.Int)}}},
			[]string{"error: Film: film is a view, and the model takes writes"}},
		{"no column", "sqlite", film(`,"title":"string"`, ``), []plan.Table{table()}, []string{"error: Film.title: the table film has no column title"}},
		{"no column for the version", "sqlite", film(`,"rev":"int"`, `,"version":"rev"`), []plan.Table{table()},
			[]string{"error: Film.rev: the table film has no column rev, which expectedVersion needs"}},
		{"no type", "postgres", film(`,"area":"string"`, ``), []plan.Table{table(plan.Column{Name: "area", Native: "polygon", Nullable: true})},
			[]string{"error: Film.area: the column area is polygon, which no type of models holds"}},
		{"another type", "postgres", film(`,"year":"int"`, ``), []plan.Table{table(null("year", model.String))},
			[]string{"error: Film.year: the column year is native (string), not int"}},
		{"a narrower type", "postgres", film(`,"size":"long"`, ``), []plan.Table{table(null("size", model.Int))},
			[]string{"warning: Film.size: the column size is native and does not hold 64 bits"}},
		{"integers only", "postgres", film(`,"size":"number"`, ``), []plan.Table{table(null("size", model.Long))},
			[]string{"warning: Film.size: the column size is native and holds integers only"}},
		{"text in SQLite", "sqlite", film(`,"year":"int"`, ``), []plan.Table{table(null("year", model.String))},
			[]string{"error: Film.year: the column year (claims native) holds text, not int"}},
		{"fractions in SQLite", "sqlite", film(`,"year":"int"`, ``), []plan.Table{table(null("year", model.Double))},
			[]string{"error: Film.year: the column year holds numbers with fractions, not int"}},
		{"several types in SQLite", "sqlite", film(`,"year":"int"`, ``), []plan.Table{table(plan.Column{Name: "year", Native: "INTEGER", Type: model.Int, Nullable: true,
			Found: []string{"integer", "text"}})}, []string{"warning: Film.year: the column year (claims INTEGER) holds integer, text: what is no int is read as null"}},
		{"required and nullable", "sqlite", film(`,"title":{"type":"string","required":true}`, ``), []plan.Table{table(null("title", model.String))},
			[]string{"warning: Film.title: the field is required and the column title may be null"}},
		{"not required and not nullable", "sqlite", film(`,"title":"string"`, ``), []plan.Table{table(col("title", model.String))},
			[]string{"warning: Film.title: the column title may not be null and has no default, so an insert without it is refused"}},
		{"a column without a field", "sqlite", film(``, ``), []plan.Table{table(col("title", model.String), null("free", model.String))},
			[]string{"warning: Film: the column title of film may not be null and has no field, so every insert is refused"}},
		{"no key", "sqlite", film(``, ``), []plan.Table{{Name: "film", Columns: []plan.Column{col("id", model.Int)}}}, []string{"error: Film._id: id is no key of film: rows may share it"}},
		{"unique is a key", "sqlite", film(``, ``), []plan.Table{{Name: "film", Columns: []plan.Column{col("id", model.Int)}, Unique: [][]string{{"id"}}}}, nil},
		{"a key that may be null", "sqlite", film(``, ``), []plan.Table{{Name: "film", Key: []string{"id"}, Columns: []plan.Column{null("id", model.Int)}}},
			[]string{"error: Film._id: the key column id of film may hold null"}},
		{"not assigned", "sqlite", `{"name":"Film","table":"film","key":["id"],"archive":false,"timestamps":false,"fields":{"_id":{"type":"int","column":"id","strategy":"autoincrement"}}}`,
			[]plan.Table{table()}, []string{"error: Film._id: the database does not assign the column id"}},
		{"computed by the database", "sqlite", film(`,"size":"int"`, ``), []plan.Table{table(plan.Column{Name: "size", Type: model.Int, Nullable: true, Generated: true})},
			[]string{"warning: Film.size: the database computes the column size and refuses writes to it"}},
		{"values", "postgres", film(`,"a":{"type":"string","enum":["x","y","w"]},"b":{"type":"string","enum":["x"]},"c":"string"`, ``),
			[]plan.Table{table(enum("a"), enum("b"), enum("c"))}, []string{
				"warning: Film.a: the database does not take the values w",
				"warning: Film.b: the database takes values that enum does not name",
				"warning: Film.c: the database takes only the values x, y"}},
		{"no index", "sqlite", film(`,"title":"string"`, `,"indexes":[{"keys":{"title":1}},{"keys":{"title":1},"options":{"unique":true}}]`),
			[]plan.Table{table(null("title", model.String))}, []string{
				"warning: Film: film has no index on title",
				"error: Film: film has no unique index on title, so upserts by it fail and equal rows are possible"}},
		{"the database's order is enough", "postgres", film(`,"title":"string"`, `,"indexes":[{"keys":{"title":1}}]`), []plan.Table{indexed}, nil},
		{"no relation's model", "sqlite", film(``, `,"relations":{"cast":{"model":"Cast","foreignField":"film_id"}}`), []plan.Table{table()},
			[]string{"error: Film.cast: there is no model Cast"}},
		{"relation to nothing", "sqlite", film(`,"a":"string"`, `,"relations":{"x":{"model":"Film","localField":"a","foreignField":"_id"},"z":{"model":"Film","foreignField":"none"}}`),
			[]plan.Table{table(null("a", model.String))}, []string{
				"error: Film.x: a is string and Film._id is int, which cannot be joined", "error: Film.z: Film has no field none"}},
		{"no index by code point", "postgres", `{"name":"Film","table":"film","key":["id"],"archive":false,"timestamps":false,"fields":{"_id":{"type":"int","column":"id"},"title":"string"},
			"indexes":[{"keys":{"title":1}}]}`, []plan.Table{indexed},
			[]string{"warning: Film: no index of film orders the index on title by code point, as the model promises, so sorting by it reads the whole table"}},
		{"an index by code point", "postgres", `{"name":"Film","table":"film","key":["id"],"archive":false,"timestamps":false,"fields":{"_id":{"type":"int","column":"id"},"title":"string"},
			"indexes":[{"keys":{"title":1}}]}`, []plan.Table{byCode}, nil},
		{"no column for what is stored", "sqlite", `{"name":"Film","collection":"film","archive":false,"timestamps":false,"fields":{"_id":"int"}}`,
			[]plan.Table{{Name: "film", Key: []string{"_id"}, Columns: []plan.Column{col("_id", model.Int)}}},
			[]string{"warning: Film: film has no column __present, so a field that is null and one that is missing are the same"}},
		{"joined by an object", "sqlite", film(`,"o":"object"`, `,"relations":{"x":{"model":"Film","localField":"o","foreignField":"o"}}`),
			[]plan.Table{table(null("o", model.String))}, []string{"error: Film.x: o is object and Film.o is object, which cannot be joined"}},
		{"no archive", "sqlite", `{"name":"Film","collection":"film","timestamps":false,"fields":{"_id":"int"}}`,
			[]plan.Table{{Name: "film", Key: []string{"_id"}, Columns: []plan.Column{col("_id", model.Int), null("__present", model.String)}}},
			[]string{"error: FilmDeleted: there is no table film_deleted for removed rows, so nothing can be removed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			models := register(t, parse(t, tt.models)).List()
			got := []string{}
			for _, f := range introspect.Check(models, tt.tables, plan.Features{Engine: tt.engine}) {
				if f.Do == "" {
					t.Errorf("%s: nothing to do", f)
				}
				f.Do = ""
				line := f.String()
				got = append(got, line[:len(line)-2])
			}
			if tt.want == nil {
				tt.want = []string{}
			}
			same(t, "findings", got, tt.want)
		})
	}
}

// enum is a column that takes x and y.
func enum(name string) plan.Column {
	return plan.Column{Name: name, Native: "xy", Type: model.String, Nullable: true, Enum: []string{"x", "y"}}
}
