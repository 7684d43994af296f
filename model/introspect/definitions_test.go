package introspect_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/introspect"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// col is a column of a type that may not be null.
func col(name string, t model.Type) plan.Column {
	return plan.Column{Name: name, Native: "native", Type: t}
}

// null is a column that may be null.
func null(name string, t model.Type) plan.Column {
	return plan.Column{Name: name, Native: "native", Type: t, Nullable: true}
}

// refers is a foreign key of one column.
func refers(column, table, references string) plan.ForeignKey {
	return plan.ForeignKey{Columns: []string{column}, Table: table, References: []string{references}}
}

// definition finds a definition by the model's name, or fails.
func definition(t *testing.T, r introspect.Result, name string) canonjson.Value {
	t.Helper()
	var names []string
	for _, d := range r.Definitions {
		names = append(names, d.Get("name").Str())
		if d.Get("name").Str() == name {
			return d
		}
	}
	t.Fatalf("no definition of %s among %s", name, strings.Join(names, ", "))
	return canonjson.Value{}
}

// lines are the lines of what was left out.
func lines(r introspect.Result) []string {
	out := []string{}
	for _, l := range r.Left {
		out = append(out, l.String())
	}
	return out
}

// same compares and ignores the difference between empty and nil.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// register reads definitions strictly, or fails.
func register(t *testing.T, definitions ...canonjson.Value) *model.Registry {
	t.Helper()
	r := model.NewRegistry(model.Options{})
	if err := r.Register(definitions...); err != nil {
		t.Fatal(err)
	}
	return r
}

// parse reads the text of a definition.
func parse(t *testing.T, text string) canonjson.Value {
	t.Helper()
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDefinitionInFull(t *testing.T) {
	film := plan.Table{
		Schema: "public", Name: "film", Comment: "what is\n  shown\x00", Key: []string{"film_id"},
		Columns: []plan.Column{
			{Name: "title", Native: "text", Type: model.String, Comment: "on the poster"},
			{Name: "film_id", Native: "integer", Type: model.Int, Identity: true, Default: true},
			{Name: "rating", Native: "mpaa", Type: model.String, Default: true, Enum: []string{"G", "PG"}},
			{Name: "code", Native: "text", Type: model.String, Nullable: true},
			{Name: "words", Native: "tsvector", Nullable: true}, {Name: "area", Native: "polygon"},
			{Name: "type", Native: "text", Type: model.String, Nullable: true},
			{Name: "länge in min", Native: "integer", Type: model.Int, Nullable: true, Generated: true},
			{Name: "shown", Native: "DATETIME", Type: model.String, Nullable: true, Format: "YYYY-MM-DD"},
		},
		Unique: [][]string{{"code"}, {"words", "code"}},
	}
	r := introspect.Definitions([]plan.Table{film})
	want := `{"name":"film","description":"what is shown","table":"public.film","key":["film_id"],"archive":false,"timestamps":false,
		"collation":"source","read":["reader"],"write":["writer"],"fields":{
			"_id":{"type":"int","column":"film_id","strategy":"autoincrement"},
			"title":{"type":"string","description":"on the poster","required":true},
			"rating":{"type":"string","enum":["G","PG"]},
			"code":{"type":"string"},
			"type_value":{"type":"string","column":"type"},
			"langeInMin":{"type":"int","column":"länge in min","generated":true},
			"shown":{"type":"string","format":"YYYY-MM-DD"}},
		"indexes":[{"keys":{"code":1},"options":{"unique":true}}]}`
	same(t, "definition", definition(t, r, "film").String(), parse(t, want).String())
	same(t, "left out", lines(r), []string{"column public.film.words: no type of models holds tsvector",
		"column public.film.area: no type of models holds polygon; it may not be null and has no default, so the database will refuse new rows"})
	m := register(t, r.Definitions...).Get("film")
	if m.Archive != nil || m.Times != model.NoTimes || !m.SourceText || m.ReadOnly() || m.ID().Column != "film_id" || !m.ID().AutoIncrement {
		t.Errorf("registered as %+v", m)
	}
	if f := m.Field("langeInMin"); f == nil || !f.Generated {
		t.Errorf("the generated column is registered as %+v", f)
	}
}

// TestNamesOfRelations guards that self references and two keys to one table give four relations with different names,
// taken from the columns (case M13).
func TestNamesOfRelations(t *testing.T) {
	tables := []plan.Table{
		{Name: "employee", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int), null("reports_to", model.Int)},
			Foreign: []plan.ForeignKey{refers("reports_to", "employee", "id")}},
		{Name: "port", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}},
		{Name: "shipment", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int), col("from_port", model.Int), col("to_port_id", model.Int)},
			Foreign: []plan.ForeignKey{refers("from_port", "port", "id"), refers("to_port_id", "port", "id")}},
	}
	r := introspect.Definitions(tables)
	same(t, "left out", lines(r), []string{})
	same(t, "employee", definition(t, r, "employee").Get("relations").String(), parse(t, `{
		"reports_to_ref":{"model":"employee","type":"one","localField":"reports_to","foreignField":"_id"},
		"employee_by_reports_to":{"model":"employee","type":"many","localField":"_id","foreignField":"reports_to"}}`).String())
	same(t, "shipment", definition(t, r, "shipment").Get("relations").String(), parse(t, `{
		"from_port_ref":{"model":"port","type":"one","localField":"from_port","foreignField":"_id"},
		"to_port":{"model":"port","type":"one","localField":"to_port_id","foreignField":"_id"}}`).String())
	same(t, "port", definition(t, r, "port").Get("relations").String(), parse(t, `{
		"shipment_by_from_port":{"model":"shipment","type":"many","localField":"_id","foreignField":"from_port"},
		"shipment_by_to_port":{"model":"shipment","type":"many","localField":"_id","foreignField":"to_port_id"}}`).String())
	register(t, r.Definitions...)
}

// TestCompositeKeys guards that keys and references of several columns stay together.
func TestCompositeKeys(t *testing.T) {
	tables := []plan.Table{
		{Name: "Leg", Key: []string{"Ship", "No"}, Columns: []plan.Column{col("Ship", model.String), {Name: "No", Native: "integer", Type: model.Int, Identity: true}, null("Note", model.String)}},
		{Name: "Call", Key: []string{"CallId"}, Columns: []plan.Column{col("CallId", model.Int), col("LegShip", model.String), col("LegNo", model.Int)},
			Foreign: []plan.ForeignKey{{Columns: []string{"LegNo", "LegShip"}, Table: "Leg", References: []string{"No", "Ship"}}}},
	}
	r := introspect.Definitions(tables)
	same(t, "left out", lines(r), []string{})
	same(t, "key", definition(t, r, "Leg").Get("key").String(), `["Ship","No"]`)
	same(t, "Leg", definition(t, r, "Leg").Get("relations").String(),
		`{"Call":{"model":"Call","type":"many","localField":["No","Ship"],"foreignField":["LegNo","LegShip"]}}`)
	same(t, "Call", definition(t, r, "Call").Get("relations").String(),
		`{"Leg":{"model":"Leg","type":"one","localField":["LegNo","LegShip"],"foreignField":["No","Ship"]}}`)
	leg := register(t, r.Definitions...).Get("Leg")
	if !leg.Composite() || leg.ID() == nil || leg.ID().Column != "" || leg.Field("Ship") == nil || !leg.Field("No").AutoIncrement {
		t.Errorf("the composite key is registered as %+v", leg.Key)
	}
}

// TestNothingToWriteTo guards that views and tables without a key are read-only, and that what is no table is not there
// (case M12).
func TestNothingToWriteTo(t *testing.T) {
	tables := []plan.Table{
		{Name: "loose", Columns: []plan.Column{col("a", model.Int)}},
		{Name: "odd", Key: []string{"k"}, Columns: []plan.Column{{Name: "k", Native: "int4range"}, col("a", model.Int)}},
		{Name: "hole", Key: []string{"k"}, Columns: []plan.Column{null("k", model.String)}},
		{Name: "search", Virtual: "it is a virtual table (fts5)"},
		{Name: "tabellion_idempotency", Key: []string{"scope", "key"}, Columns: []plan.Column{col("scope", model.String)}},
		{Name: "v", View: true, Columns: []plan.Column{null("a", model.Int), null("_id", model.Int), null("__present", model.String)}},
	}
	r := introspect.Definitions(tables)
	same(t, "left out", lines(r), []string{
		"table search: it is a virtual table (fts5)",
		"table tabellion_idempotency: it is tabellion's own table for idempotency keys",
		"key of odd: its key column k has the type int4range, so the table is for reading only",
		"column odd.k: no type of models holds int4range",
		"key of hole: its key column k holds null, so the table is for reading only",
		"column v._id: _id is the name of the key",
		"column v.__present: it tells which fields of a row are stored, and is no field",
	})
	registry := register(t, r.Definitions...)
	for _, name := range []string{"loose", "odd", "hole", "v"} {
		m := registry.Get(name)
		if m == nil || !m.ReadOnly() || m.ID() != nil {
			t.Errorf("%s is registered as %+v", name, m)
		}
	}
	if !registry.Get("v").View {
		t.Error("v is no view")
	}
}

// TestFoldedNames guards that two names that fold to one are told and never merged (case M28).
func TestFoldedNames(t *testing.T) {
	tables := []plan.Table{
		{Name: "Order Details", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}},
		{Name: "Order-Details", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}},
		{Name: "Sales", Key: []string{"sale id"}, Columns: []plan.Column{col("sale id", model.Int), null("unit price", model.Double),
			null("UnitPrice", model.Double), null("unit_price", model.Double)}},
		{Name: "a b", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}},
		{Name: "a_b", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}},
		{Name: "aB", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}},
		{Name: "x.y", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}},
		{Name: "2020", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}},
		{Name: "客户", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}},
	}
	r := introspect.Definitions(tables)
	var names []string
	for _, d := range r.Definitions {
		names = append(names, d.Get("name").Str()+"="+d.Get("collection").Str()+"="+d.Get("table").Str())
	}
	same(t, "models", names, []string{"OrderDetails=Order Details=Order Details", "Sales==Sales", "a_b==a_b", "aB==aB",
		"xY=x.y=x.y", "_2020=2020=2020", "u5ba2u6237=客户=客户"})
	same(t, "left out", lines(r), []string{
		`table Order-Details: its name folds to "OrderDetails", like that of Order Details; write its definition by hand, with another name`,
		`table a b: its name folds to "aB", like that of a_b; write its definition by hand, with another name`,
		`column Sales.UnitPrice: its name folds to "UnitPrice", like that of column unit price; add it by hand, with another name`,
		`column Sales.unit_price: its name folds to "unit_price", like that of column unit price; add it by hand, with another name`,
	})
	register(t, r.Definitions...)
}

// TestSchemas guards that tables of one name in two schemas are two models.
func TestSchemas(t *testing.T) {
	box := []plan.Column{col("id", model.Int)}
	r := introspect.Definitions([]plan.Table{
		{Schema: "a.b", Name: "box", Key: []string{"id"}, Columns: box},
		{Schema: "hold", Name: "box", Key: []string{"id"}, Columns: box},
		{Schema: "hold", Name: "crate", Key: []string{"id"}, Columns: box},
		{Schema: "public", Name: "box", Key: []string{"id"}, Columns: box},
	})
	var names []string
	for _, d := range r.Definitions {
		names = append(names, d.Get("name").Str()+"="+d.Get("table").Str())
	}
	same(t, "models", names, []string{"hold_box=hold.box", "crate=hold.crate", "box=public.box"})
	same(t, "left out", lines(r), []string{"table a.b.box: definitions cannot name a schema with a dot"})
	register(t, r.Definitions...)
}

// TestRelationsLeftOut guards that no relation is written that could not work.
func TestRelationsLeftOut(t *testing.T) {
	tables := []plan.Table{
		{Name: "a", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int), null("b_id", model.String), null("c_id", model.Int),
			null("gone_id", model.Int), {Name: "shape", Native: "polygon", Nullable: true}},
			Foreign: []plan.ForeignKey{refers("b_id", "b", "id"), refers("c_id", "c", "id"), refers("c_id", "c", "id"), refers("gone_id", "gone", "id"),
				refers("shape", "c", "id"), {Columns: []string{"c_id"}, Table: "c"}}},
		{Name: "b", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Int)}},
		{Name: "c", Key: []string{"id"}, Columns: []plan.Column{col("id", model.Long)}},
	}
	r := introspect.Definitions(tables)
	same(t, "left out", lines(r), []string{
		"column a.shape: no type of models holds polygon",
		"relation of a.(b_id) to b: the column b_id is string and id of b is int",
		"relation of a.(c_id) to c: the table declares it twice",
		"relation of a.(gone_id) to gone: the table that it leads to has no definition",
		"relation of a.(shape) to c: the column shape was left out",
		"relation of a.(c_id) to c: the other table has no key of as many columns",
	})
	same(t, "relations", definition(t, r, "a").Get("relations").String(),
		`{"c":{"model":"c","type":"one","localField":"c_id","foreignField":"_id"}}`)
}
