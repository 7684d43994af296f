package engine_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// world is the course platform of the fixtures in one database.
type world struct {
	place    place
	registry *model.Registry
	row      map[string]func(map[string]any) (any, error)
	source   *spy
	engine   *engine.Engine
	db       *sql.DB // the test's own connection
	seedName string  // the database or schema that holds the seeded tables
	dirty    bool    // the tables may differ from the seeded ones
	// said are the outcomes of the cases, for a comparison between databases.
	said   map[string]string
	prefix string // of the names in said
}

// spy is a source that remembers the last plan that it was asked to read.
type spy struct {
	plan.Source
	mu   sync.Mutex
	last *plan.Query
}

// Read remembers q.
func (s *spy) Read(ctx context.Context, q *plan.Query) (*plan.Rows, error) {
	s.mu.Lock()
	s.last = q
	s.mu.Unlock()
	return s.Source.Read(ctx, q)
}

// place is an empty database of one engine.
type place struct {
	engine sqlgen.Engine
	db     *sql.DB // the test's own connection
	other  string  // a second database or schema, for copies of tables
	open   func(*testing.T) plan.Source
	again  func(*testing.T) place // a further one of the engine
}

// eachPlace runs f on SQLite and on PostgreSQL.
func eachPlace(t *testing.T, f func(*testing.T, place)) {
	for _, open := range []func(*testing.T) place{sqlitePlace, postgresPlace} {
		p := open(t)
		t.Run(string(p.engine), func(t *testing.T) { f(t, p) })
	}
}

// eachWorld runs f on the fixtures in SQLite and in PostgreSQL, and compares what the cases said there: the same rows in
// the same order.
func eachWorld(t *testing.T, f func(*testing.T, *world)) {
	worlds := map[sqlgen.Engine]*world{}
	eachPlace(t, func(t *testing.T, p place) {
		w := fixtures(t, p)
		worlds[p.engine] = w
		f(t, w)
	})
	a, b := worlds[sqlgen.EngineSQLite], worlds[sqlgen.EnginePostgres]
	if a == nil || b == nil {
		t.Fatal("the cases did not run on both databases")
	}
	for id, said := range a.said {
		if b.said[id] != said {
			t.Errorf("%s differs between the databases\n sqlite   %s\n postgres %s", id, said, b.said[id])
		}
	}
	if len(a.said) != len(b.said) {
		t.Errorf("%d calls on sqlite, %d on postgres", len(a.said), len(b.said))
	}
}

// fixtures is the course platform in a database, with the seeded rows.
func fixtures(t *testing.T, p place) *world {
	t.Helper()
	if p.engine == sqlgen.EngineSQLite {
		execAll(t, p.db, "ddl.sqlite.sql")
		execAll(t, p.db, "json-columns.sqlite.sql")
	} else {
		execAll(t, p.db, "ddl.postgres.sql")
	}
	w := &world{place: p, db: p.db, seedName: p.other, said: map[string]string{}}
	w.registry, w.row = schema(t, filepath.Join("testdata", "schema.json"))
	w.build(t, filepath.Join("testdata", "seed.json"))
	return w
}

// fixturesOf is a world of the definitions and rows in a folder, in a database of its own with our tables; other itself
// where the folder has neither.
func fixturesOf(t *testing.T, dir string, other *world) *world {
	t.Helper()
	schemaFile, seedFile := filepath.Join(dir, "schema.json"), filepath.Join(dir, "seed.json")
	_, noSchema := os.Stat(schemaFile)
	_, noSeed := os.Stat(seedFile)
	if noSchema != nil && noSeed != nil {
		return other
	}
	if noSchema != nil {
		schemaFile = filepath.Join("testdata", "schema.json")
	}
	if noSeed != nil {
		seedFile = filepath.Join("testdata", "seed.json")
	}
	p := other.place.again(t)
	w := &world{place: p, db: p.db, seedName: p.other, said: other.said}
	w.registry, w.row = schema(t, schemaFile)
	for _, statement := range sqlgen.DDL(p.engine, w.registry.List()) {
		if _, err := p.db.Exec(statement); err != nil {
			t.Fatalf("%v\n%s", err, statement)
		}
	}
	w.build(t, seedFile)
	return w
}

// own is a world of a test's own definitions, with empty tables and a table for idempotency keys.
func own(t *testing.T, p place, definitions string, cfg engine.Config) *world {
	t.Helper()
	w := &world{place: p, db: p.db, said: map[string]string{}, registry: model.NewRegistry(model.Options{})}
	if err := w.registry.Register(parse(t, definitions).Items()...); err != nil {
		t.Fatal(err)
	}
	for _, statement := range append(sqlgen.DDL(p.engine, w.registry.List()), sqlgen.IdempotencyDDL(p.engine)) {
		if _, err := p.db.Exec(statement); err != nil {
			t.Fatalf("%v\n%s", err, statement)
		}
	}
	w.source = &spy{Source: p.open(t)}
	if problems, err := w.source.Bind(t.Context(), w.registry.List()); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	cfg.Log = logTo(t)
	cfg.Registry, cfg.Permission, cfg.Sources = w.registry, openRules(nil), map[string]plan.Source{"default": w.source}
	var err error
	if w.engine, err = engine.New(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

// logTo writes the operator's log into the test's: there is the driver's text that no caller sees.
func logTo(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// parse reads JSON text of a test.
func parse(t testing.TB, text string) canonjson.Value {
	t.Helper()
	v, _, err := canonjson.Parse([]byte(text), canonjson.Limits{}) // flaws are for the frame: integers may be large here
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// build makes the engine over the world's source, seeds the tables, and keeps copies of them.
func (w *world) build(t *testing.T, seedFile string) {
	t.Helper()
	w.source = &spy{Source: w.place.open(t)}
	if problems, err := w.source.Bind(t.Context(), w.registry.List()); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	var err error
	w.engine, err = engine.New(engine.Config{
		Registry: w.registry, Permission: openRules(nil), Sources: map[string]plan.Source{"default": w.source},
		Functions: engine.Functions{Row: w.row}, Log: logTo(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	seed, err := readJSON(seedFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range seed.Members() {
		if _, err := w.engine.InsertMany(t.Context(), internal(), rows.Name, rows.Value); err != nil {
			t.Fatalf("seed %s: %v", rows.Name, err)
		}
	}
	w.keep(t)
}

// schema registers the fixtures' definitions, and makes the functions that "impl" describes, which is test data and no
// part of a definition.
func schema(t *testing.T, file string) (*model.Registry, map[string]func(map[string]any) (any, error)) {
	t.Helper()
	definitionsOf, err := readJSON(file)
	if err != nil {
		t.Fatal(err)
	}
	row := map[string]func(map[string]any) (any, error){}
	var definitions []canonjson.Value
	for _, d := range definitionsOf.Items() {
		var computes []canonjson.Member
		for _, c := range d.Get("computes").Members() {
			if impl := c.Value.Get("impl"); !impl.IsAbsent() {
				row[d.Get("name").Str()+"."+c.Name] = implementation(impl)
			}
			computes = append(computes, canonjson.M(c.Name, c.Value.Without("impl")))
		}
		if computes != nil {
			d = canonjson.Object(append(d.Without("computes").Members(), canonjson.M("computes", canonjson.Object(computes...)))...)
		}
		definitions = append(definitions, d)
	}
	r := model.NewRegistry(model.Options{})
	if err := r.Register(definitions...); err != nil {
		t.Fatal(err)
	}
	return r, row
}

// implementation is a function of the fixtures.
func implementation(impl canonjson.Value) func(map[string]any) (any, error) {
	field := impl.Get("field").Str()
	text := func(v any) string { s, _ := v.(string); return s }
	return func(doc map[string]any) (any, error) {
		switch kind := impl.Get("kind").Str(); kind {
		case "upper":
			return strings.ToUpper(text(doc[field])), nil
		case "mul":
			n, ok := doc[field].(float64)
			if !ok {
				return nil, nil
			}
			return n * impl.Get("by").Float(), nil
		case "concat":
			var parts []string
			for _, f := range impl.Get("fields").Items() {
				parts = append(parts, text(doc[f.Str()]))
			}
			return strings.Join(parts, impl.Get("sep").Str()), nil
		case "gte":
			n, _ := doc[field].(int64)
			return float64(n) >= impl.Get("value").Float(), nil
		default:
			return nil, fmt.Errorf("no implementation %q", kind)
		}
	}
}

// openRules are the rules of the golden cases: what has no list is open.
func openRules(p *model.Policy) *model.Permission {
	rules := model.DefaultRules()
	rules.Unconfigured = model.Open
	return &model.Permission{Rules: rules, Policy: p}
}

// internal is a call with full rights.
func internal() engine.Call { return as(&model.Context{Internal: true}) }

// as is a call of somebody, in the standard profile.
func as(who *model.Context) engine.Call {
	return engine.Call{Access: openRules(nil).For(who), Profile: plan.Standard}
}

// tables are the tables of the fixtures, archives included.
func (w *world) tables() []string {
	var names []string
	for _, m := range w.registry.List() {
		names = append(names, m.Collection)
	}
	return names
}

// keep copies the seeded tables, for fresh.
func (w *world) keep(t *testing.T) {
	t.Helper()
	for _, name := range w.tables() {
		if _, err := w.db.Exec(fmt.Sprintf(`CREATE TABLE %s."%s" AS SELECT * FROM "%s"`, w.seedName, name, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// fresh puts the seeded rows back, and marks the tables as about to be changed.
func (w *world) fresh(t *testing.T) {
	t.Helper()
	w.seeded(t)
	w.dirty = true
}

// seeded puts the seeded rows back when somebody may have changed them.
func (w *world) seeded(t *testing.T) {
	t.Helper()
	if !w.dirty {
		return
	}
	tx, err := w.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, name := range w.tables() {
		for _, statement := range []string{`DELETE FROM "%[1]s"`, `INSERT INTO "%[1]s" SELECT * FROM %[2]s."%[1]s"`} {
			if strings.HasPrefix(statement, "DELETE") {
				statement = fmt.Sprintf(statement, name)
			} else {
				statement = fmt.Sprintf(statement, name, w.seedName)
			}
			if _, err := tx.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	w.dirty = false
}

// run makes one call of a case.
func (w *world) run(t *testing.T, c, step canonjson.Value) (o outcome) {
	t.Helper()
	call := w.call(t, c, step, func(e engine.Event) { o.events = append(o.events, e) })
	o.value, o.err = w.ask(t.Context(), call, step)
	o.read = w.source.last
	name := w.prefix + c.Get("id").Str()
	w.said[fmt.Sprintf("%s #%d", name, w.steps(name))] = mask(o)
	return o
}

// steps is how many outcomes of a case are noted.
func (w *world) steps(id string) int {
	n := 0
	for said := range w.said {
		if strings.HasPrefix(said, id+" #") {
			n++
		}
	}
	return n
}

// call is who asks in a step, and how. A step's context replaces the case's.
func (w *world) call(t *testing.T, c, step canonjson.Value, events func(engine.Event)) engine.Call {
	t.Helper()
	policy, err := model.ParsePolicy(c.Get("policy"))
	if err != nil {
		t.Fatal(err)
	}
	who := c.Get("ctx")
	if v := step.Get("ctx"); !v.IsAbsent() {
		who = v
	}
	call := engine.Call{Profile: plan.Standard, Events: events, Routed: !c.Get("routeOverride").IsAbsent()}
	if name := c.Get("profile").Str(); name != "" {
		if call.Profile, err = plan.ProfileNamed(name); err != nil {
			t.Fatal(err)
		}
	}
	call.Access = openRules(policy).For(caller(who))
	if call.Profile.Sandbox && who.Kind() == canonjson.KindNull {
		call.Access = openRules(policy).For(nil) // there, null is nobody
	}
	return call
}

// ask makes one call of the engine, and spells its outcome as "expect" does.
func (w *world) ask(ctx context.Context, call engine.Call, step canonjson.Value) (canonjson.Value, error) {
	var v canonjson.Value
	var err error
	is := func(name string, v canonjson.Value) canonjson.Value {
		if err != nil {
			return canonjson.Value{}
		}
		return canonjson.Object(canonjson.M(name, v))
	}
	gql, params, name, condition, data := step.Get("gql").Str(), step.Get("params"), step.Get("model").Str(), step.Get("condition"), step.Get("data")
	switch op := step.Get("op").Str(); op {
	case "query", "":
		a, err := w.engine.Query(ctx, call, gql, params, engine.Page{})
		if err != nil {
			return v, err
		}
		return canonjson.Object(canonjson.M("rows", canonjson.Array(a.Rows...))), nil
	case "queryOne":
		v, err = w.engine.QueryOne(ctx, call, gql, params)
		return is("row", v), err
	case "queryWithCount":
		p, err := w.engine.QueryWithCount(ctx, call, gql, params)
		if err != nil {
			return v, err
		}
		return canonjson.Object(canonjson.M("page", canonjson.Object(
			canonjson.M("items", canonjson.Array(p.Items...)), canonjson.M("total", canonjson.Int(p.Total)), canonjson.M("hasMore", canonjson.Bool(p.HasMore)),
			canonjson.M("page", canonjson.Int(p.Page)), canonjson.M("pageSize", canonjson.Int(p.PageSize))))), nil
	case "count":
		var n int64
		n, err = w.engine.Count(ctx, call, name, condition)
		return is("value", canonjson.Int(n)), err
	case "exists":
		var yes bool
		yes, err = w.engine.Exists(ctx, call, name, condition)
		return is("value", canonjson.Bool(yes)), err
	case "insert":
		v, err = w.engine.Insert(ctx, call, name, data)
	case "insertMany":
		var rows []canonjson.Value
		rows, err = w.engine.InsertMany(ctx, call, name, data)
		v = canonjson.Array(rows...)
	case "update":
		v, err = w.engine.Update(ctx, call, name, condition, data, canonjson.Value{})
	case "updateMany":
		var n int64
		n, err = w.engine.UpdateMany(ctx, call, name, condition, data)
		v = canonjson.Object(canonjson.M("modifiedCount", canonjson.Int(n)))
	case "remove":
		var r engine.Removed
		r, err = w.engine.Remove(ctx, call, name, condition, canonjson.Value{}, false)
		v = canonjson.Object(canonjson.M("deletedCount", canonjson.Int(r.Deleted)), canonjson.M("archivedCount", canonjson.Int(r.Archived)))
	case "upsert":
		v, err = w.engine.Upsert(ctx, call, name, condition, data)
	case "mutation":
		v, err = w.engine.Mutation(ctx, call, name, data)
	default:
		return v, fmt.Errorf("no operation %q", op)
	}
	return is("result", v), err
}

// made are the values that no two runs share: generated ids and times of now.
var made = regexp.MustCompile(`"[A-Z]{2}[0-9A-Z]{16}"|"(createdAt|updatedAt|deletedAt)":1[0-9]{12}`)

// mask spells an outcome so that two runs of it are equal.
func mask(o outcome) string {
	if o.err != nil {
		return o.err.Error()
	}
	return made.ReplaceAllString(o.value.String(), "made")
}

// execAll runs the statements of a file of testdata.
func execAll(t *testing.T, db *sql.DB, file string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(string(text), ";") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, statement)
		}
	}
}

// ids are the _id of rows, in order.
func ids(rows []canonjson.Value) []string {
	out := []string{}
	for _, r := range rows {
		out = append(out, r.Get("_id").Str())
	}
	return out
}

// sameIDs compares the _id of rows with what they should be.
func sameIDs(t *testing.T, what string, rows []canonjson.Value, want ...string) {
	t.Helper()
	if got := ids(rows); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
