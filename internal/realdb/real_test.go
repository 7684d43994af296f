package realdb_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/introspect"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// introspected reads a source as introspection does, and holds what it finds: the names of the models, what was left out,
// that the definitions are read strictly, and that a check of them finds nothing.
func introspected(t *testing.T, source plan.Source, models, left []string) []canonjson.Value {
	t.Helper()
	tables, err := source.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	result := introspect.Definitions(tables)
	names := []string{}
	for _, d := range result.Definitions {
		names = append(names, d.Get("name").Str())
	}
	if diff := cmp.Diff(models, names); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	lines := []string{}
	for _, l := range result.Left {
		lines = append(lines, l.String())
	}
	if diff := cmp.Diff(left, lines); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	for _, f := range introspect.Check(registered(t, result.Definitions).List(), tables, source.Features()) {
		t.Errorf("check: %s", f)
	}
	return result.Definitions
}

// registered reads definitions strictly.
func registered(t *testing.T, definitions []canonjson.Value) *model.Registry {
	t.Helper()
	registry := model.NewRegistry(model.Options{})
	if err := registry.Register(definitions...); err != nil {
		t.Fatal(err)
	}
	return registry
}

// serve binds definitions to a source; the caller has the role that introspection writes into them.
func serve(t *testing.T, source plan.Source, definitions []canonjson.Value) server {
	t.Helper()
	registry := registered(t, definitions)
	problems, err := source.Bind(t.Context(), registry.List())
	if err != nil || len(problems) > 0 {
		t.Fatalf("bind: %q, %v", problems, err)
	}
	permission := &model.Permission{Rules: model.DefaultRules()}
	e, err := engine.New(engine.Config{Registry: registry, Permission: permission, Sources: map[string]plan.Source{"default": source}})
	if err != nil {
		t.Fatal(err)
	}
	who := &model.Context{UserID: "ana", Roles: []string{"reader"}}
	return server{e, engine.Call{Access: permission.For(who), Profile: plan.Served}}
}

// openSQLite opens a file as a source for reading.
func openSQLite(t *testing.T, path string) plan.Source {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Read: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// openPostgres opens a database as a source for reading.
func openPostgres(t *testing.T, url string) plan.Source {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Config{Read: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// none is a list of nothing, to compare with.
var none = []string{}

// chinookModels are the models of the music shop, by their names in PostgreSQL.
var chinookModels = []string{"album", "artist", "customer", "employee", "genre", "invoice", "invoice_line", "media_type",
	"playlist", "playlist_track", "track"}

func TestRealChinookSQLite(t *testing.T) {
	path, db := loadSQLite(t, realFile(t, "chinook", "sqlite.sql"))
	source := openSQLite(t, path)
	definitions := introspected(t, source, []string{"Album", "Artist", "Customer", "Employee", "Genre", "Invoice", "InvoiceLine",
		"MediaType", "Playlist", "PlaylistTrack", "Track"}, none)
	s := serve(t, source, definitions)
	questions := translate(chinookQuestions, camelNames(chinookNames(), "Id", nil), nil)
	byHand := func(t *testing.T, statement string) []row { return answerSQLite(t, db, statement) }
	askAll(t, s, questions, byHand)

	// The column claims DATETIME and holds text: the type is what is stored (case M08).
	invoice := definitions[slices.IndexFunc(definitions, func(d canonjson.Value) bool { return d.Get("name").Str() == "Invoice" })]
	if got := invoice.Get("fields").Get("InvoiceDate").String(); got != `{"type":"string","format":"YYYY-MM-DD HH:MM:SS","required":true}` {
		t.Errorf("InvoiceDate is introspected as %s", got)
	}
	stored := byHand(t, `SELECT typeof(InvoiceDate) AS type, count(*) AS n FROM Invoice GROUP BY 1`)
	compare(t, []row{{"type": "text", "n": "412"}}, stored)
	all := s.ask(t, question{gql: `Invoice{ InvoiceDate }`, params: `{}`})
	if n := len(slices.DeleteFunc(all, func(r row) bool { return !strings.HasPrefix(r["InvoiceDate"], "202") })); n != 412 {
		t.Errorf("%d of 412 dates were read", n)
	}
	compare(t, byHand(t, `SELECT InvoiceId AS "_id", InvoiceDate FROM Invoice WHERE InvoiceDate BETWEEN '2021-01-01' AND '2021-01-31' ORDER BY 1`),
		s.ask(t, question{gql: `Invoice($condition:@c){ InvoiceDate }`, params: `{"c":{"InvoiceDate":{"$gte":"2021-01-01","$lte":"2021-01-31"}}}`}))
}

// chinookNames are the names that are spelled in another way in the SQLite file.
func chinookNames() []string {
	return strings.Fields(`album artist customer employee genre invoice invoice_line media_type playlist playlist_track track
		album_id title artist_id name customer_id first_name last_name company address city state country postal_code phone fax email
		support_rep_id support_rep employee_id reports_to birth_date hire_date reports_to_ref employee_by_reports_to genre_id invoice_id
		invoice_date billing_address billing_city billing_state billing_country billing_postal_code total invoice_line_id track_id
		unit_price quantity media_type_id playlist_id composer milliseconds bytes`)
}

func TestRealChinookPostgres(t *testing.T) {
	url, pool := loadPostgres(t, realFile(t, "chinook", "postgresql.sql"))
	source := openPostgres(t, url)
	definitions := introspected(t, source, chinookModels, none)
	if diff := cmp.Diff(chinookSet(), namesOf(definitions)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	askAll(t, serve(t, source, definitions), chinookQuestions,
		func(t *testing.T, statement string) []row { return answerPostgres(t, pool, statement) })
}

// chinookSet is chinookNames in order.
func chinookSet() []string {
	names := chinookNames()
	slices.Sort(names)
	return names
}

// TestRealChinookOnBothEngines guards that one question has one answer: equal values and order from SQLite and from
// PostgreSQL, when text compares by code point.
func TestRealChinookOnBothEngines(t *testing.T) {
	path, _ := loadSQLite(t, realFile(t, "chinook", "sqlite.sql"))
	url, _ := loadPostgres(t, realFile(t, "chinook", "postgresql.sql"))
	byCode := func(source plan.Source) server {
		tables, err := source.Tables(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var definitions []canonjson.Value
		for _, d := range introspect.Definitions(tables).Definitions {
			definitions = append(definitions, d.Without("collation"))
		}
		return serve(t, source, definitions)
	}
	lite, pg := byCode(openSQLite(t, path)), byCode(openPostgres(t, url))
	names := camelNames(chinookNames(), "Id", nil)
	for i, q := range translate(chinookQuestions, names, nil) {
		t.Run(q.name, func(t *testing.T) {
			want := pg.ask(t, chinookQuestions[i])
			for _, r := range want {
				for path, value := range r {
					if other := names(path); other != path {
						delete(r, path)
						r[other] = value
					}
				}
			}
			compare(t, want, lite.ask(t, q))
		})
	}
}

func TestRealNorthwindSQLite(t *testing.T) {
	path, db := loadSQLite(t, realFile(t, "northwind", "sqlite.sql"))
	source := openSQLite(t, path)
	// Thirteen tables and sixteen views, most of whose names are no identifiers (case M28).
	definitions := introspected(t, source, []string{"AlphabeticalListOfProducts", "Categories", "CategorySalesFor1997",
		"CurrentProductList", "CustomerAndSuppliersByCity", "CustomerCustomerDemo", "CustomerDemographics", "Customers",
		"EmployeeTerritories", "Employees", "Invoices", "OrderDetails", "OrderDetailsExtended", "OrderSubtotals", "Orders", "OrdersQry",
		"ProductSalesFor1997", "Products", "ProductsAboveAveragePrice", "ProductsByCategory", "QuarterlyOrders", "Regions",
		"SalesTotalsByAmount", "SalesByCategory", "Shippers", "SummaryOfSalesByQuarter", "SummaryOfSalesByYear", "Suppliers",
		"Territories"}, none)
	views := 0
	for _, d := range definitions {
		if d.Get("view").Bool() {
			views++
		}
		if d.Get("name").Str() == "OrderDetails" && d.Get("collection").Str() != "Order Details" {
			t.Errorf("the collection of OrderDetails is %s", d.Get("collection"))
		}
	}
	if views != 16 || len(definitions)-views != 13 {
		t.Errorf("%d views among %d models, want 16 and 13 tables", views, len(definitions))
	}
	special := map[string]string{"region": "Regions", "order_details": "OrderDetails"}
	names := strings.Fields(`categories customers employees orders products shippers suppliers territories employee_territories company_name city country
		product_id quantity ship_name order_id unit_price discount product_name product category_id category_name category supplier_id
		supplier units_in_stock last_name reports_to reports_to_ref employees_by_reports_to title birth_date hire_date order_date
		shipped_date ship_via ship_via_ref customer customer_id freight shipper_id region_id territory_id territory_description
		territory employee employee_id contact_name units_on_order ship_country`)
	questions := translate(northwindQuestions, camelNames(names, "ID", special), map[string]string{"OrderDetails": `"Order Details"`})
	byHand := func(t *testing.T, statement string) []row { return answerSQLite(t, db, statement) }
	s := serve(t, source, definitions)
	askAll(t, s, questions, byHand)
	askAll(t, s, northwindViews, byHand)
}

func TestRealNorthwindPostgres(t *testing.T) {
	url, pool := loadPostgres(t, realFile(t, "northwind", "postgresql.sql"))
	source := openPostgres(t, url)
	definitions := introspected(t, source, []string{"categories", "customer_customer_demo", "customer_demographics", "customers",
		"employee_territories", "employees", "order_details", "orders", "products", "region", "shippers", "suppliers", "territories",
		"us_states"}, none)
	askAll(t, serve(t, source, definitions), northwindQuestions,
		func(t *testing.T, statement string) []row { return answerPostgres(t, pool, statement) })
}

func TestRealSakilaPostgres(t *testing.T) {
	url, pool := loadPostgres(t, realFile(t, "sakila", "postgresql-schema.sql"), realFile(t, "sakila", "postgresql-data.sql"))
	source := openPostgres(t, url)
	definitions := introspected(t, source, []string{"actor", "actor_info", "address", "category", "city", "country", "customer",
		"customer_list", "film", "film_actor", "film_category", "film_list", "inventory", "language", "nicer_but_slower_film_list", "payment",
		"rental", "sales_by_film_category", "sales_by_store", "staff", "staff_list", "store"}, []string{
		"table public.payment_p2007_01: it inherits from public.payment, which shows its rows too",
		"table public.payment_p2007_02: it inherits from public.payment, which shows its rows too",
		"table public.payment_p2007_03: it inherits from public.payment, which shows its rows too",
		"table public.payment_p2007_04: it inherits from public.payment, which shows its rows too",
		"table public.payment_p2007_05: it inherits from public.payment, which shows its rows too",
		"table public.payment_p2007_06: it inherits from public.payment, which shows its rows too",
		"column public.film.fulltext: no type of models holds tsvector"})
	askAll(t, serve(t, source, definitions), sakilaQuestions,
		func(t *testing.T, statement string) []row { return answerPostgres(t, pool, statement) })
}
