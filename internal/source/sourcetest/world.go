// Package sourcetest is the contract of plan.Source as tests. Every source on a database that speaks SQL runs it on a real
// database:
//
//	func TestSource(t *testing.T) { sourcetest.Run(t, newPlace) }
//
// Plans are made by hand, so that no planner is needed and every shape of a plan is met.
package sourcetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Place is an empty database of one engine.
type Place struct {
	Engine sqlgen.Engine
	// Open opens a source on the database.
	Open func(t testing.TB, o Options) plan.Source
	// Exec runs a script as a person with all rights. Query gives the cells of rows as text.
	Exec  func(t testing.TB, script string)
	Query func(t testing.TB, sql string) [][]string
	// Plan gives the engine's words on how it would carry a statement out.
	Plan func(t testing.TB, s Sent) string
}

// Options are what the tests vary.
type Options struct {
	OnSQL        func(text string, args int)
	Timeout      time.Duration
	LockTimeout  time.Duration
	MaxUnindexed int64
	Now          func() time.Time
	NoWrites     bool
}

// Sent is a statement that a source sent.
type Sent struct {
	Text string
	Args int
}

// Run runs all tests. newPlace makes an empty database.
func Run(t *testing.T, newPlace func(t testing.TB) Place) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Place)
	}{
		{"Conditions", testConditions},
		{"PlainTable", testPlainTable},
		{"Logic", testLogic},
		{"Regex", testRegex},
		{"Order", testOrder},
		{"Integers", testIntegers},
		{"LongLists", testLongLists},
		{"Relations", testRelations},
		{"Windows", testWindows},
		{"Composite", testComposite},
		{"Aggregates", testAggregates},
		{"Predicates", testPredicates},
		{"Groups", testGroups},
		{"Sums", testSums},
		{"Limits", testLimits},
		{"UnindexedSort", testUnindexedSort},
		{"Keyless", testKeyless},
		{"Names", testNames},
		{"Insert", testInsert},
		{"Update", testUpdate},
		{"UpdateMany", testUpdateMany},
		{"Remove", testRemove},
		{"Upsert", testUpsert},
		{"Mutate", testMutate},
		{"Atomic", testAtomic},
		{"Constraints", testConstraints},
		{"Keys", testKeys},
		{"Writers", testWriters},
		{"Misfits", testMisfits},
		{"Truth", testTruth},
		{"Problems", testProblems},
		{"OneStatement", testOneStatement},
		{"Plans", testPlans},
		{"Catalog", testCatalog},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newPlace(t)) })
	}
}

// world is a source with models and tables.
type world struct {
	t        testing.TB
	place    Place
	source   plan.Source
	registry *model.Registry

	mu   sync.Mutex
	sent []Sent
}

// open makes the tables of definitions and a source on them.
func open(t testing.TB, p Place, definitions string, o Options) *world {
	t.Helper()
	w := define(t, p, definitions)
	for _, statement := range sqlgen.DDL(p.Engine, w.registry.List()) {
		p.Exec(t, statement)
	}
	w.start(o)
	return w
}

// define makes the registry.
func define(t testing.TB, p Place, definitions string) *world {
	t.Helper()
	w := &world{t: t, place: p, registry: model.NewRegistry(model.Options{})}
	if err := w.registry.Register(parse(t, definitions).Items()...); err != nil {
		t.Fatal(err)
	}
	return w
}

// start opens and binds the source.
func (w *world) start(o Options) []string {
	w.t.Helper()
	onSQL := o.OnSQL
	o.OnSQL = func(text string, args int) {
		w.mu.Lock()
		w.sent = append(w.sent, Sent{text, args})
		w.mu.Unlock()
		if onSQL != nil {
			onSQL(text, args)
		}
	}
	source := w.place.Open(w.t, o)
	w.source = source
	w.t.Cleanup(func() {
		for range 2 { // closing twice does no harm
			if err := source.Close(); err != nil {
				w.t.Error(err)
			}
		}
	})
	problems, err := w.source.Bind(w.t.Context(), w.registry.List())
	if err != nil {
		w.t.Fatal(err)
	}
	return problems
}

// mark forgets what was sent; sentSince gives what was sent after it.
func (w *world) mark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = nil
}

// sentSince gives the statements since the mark.
func (w *world) sentSince() []Sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sent)
}

// parse reads JSON; integers of 64 bits are allowed.
func parse(t testing.TB, text string) canonjson.Value {
	t.Helper()
	v, flaw, err := canonjson.Parse([]byte(text), canonjson.Limits{})
	if err != nil || flaw != nil && flaw.Rule != canonjson.NumberExact {
		t.Fatalf("%v %v in %.200s", err, flaw, text)
	}
	return v
}

// value is one value as JSON.
func value(text string) canonjson.Value {
	if text == "" {
		return canonjson.Value{}
	}
	v, _, err := canonjson.Parse([]byte(text), canonjson.Limits{})
	if err != nil {
		panic(err)
	}
	return v
}

// model finds a model.
func (w *world) model(name string) *model.Model {
	w.t.Helper()
	m := w.registry.Get(name)
	if m == nil {
		w.t.Fatalf("no model %s", name)
	}
	return m
}

// field finds a field of a model, as Model.field.
func (w *world) field(path string) *model.Field {
	w.t.Helper()
	m, f, _ := strings.Cut(path, ".")
	found := w.model(m).Field(f)
	if found == nil {
		w.t.Fatalf("no field %s", path)
	}
	return found
}

// by is a field as an operand.
func (w *world) by(path string) plan.Operand {
	f := w.field(path)
	return plan.Operand{Field: f, Type: f.Type}
}

// is is a comparison of a field.
func (w *world) is(path string, op plan.CompareOp, v string) plan.Cond {
	return plan.Compare{By: w.by(path), Op: op, Value: value(v)}
}

// fields are all stored fields of a model, or those named.
func (w *world) fields(name string, names ...string) []*model.Field {
	m := w.model(name)
	if len(names) == 0 {
		return m.Fields
	}
	out := make([]*model.Field, len(names))
	for i, n := range names {
		out[i] = w.field(name + "." + n)
	}
	return out
}

// block reads fields of a model in the order of its key.
func (w *world) block(name string, names ...string) *plan.Block {
	b := &plan.Block{Model: w.model(name), Columns: w.fields(name, names...), Limit: -1}
	for _, f := range sqlgen.KeyFields(b.Model) {
		b.Order = append(b.Order, plan.Order{By: plan.Operand{Field: f, Type: f.Type}})
	}
	return b
}

// read carries a query out.
func (w *world) read(q *plan.Query) *plan.Rows {
	w.t.Helper()
	rows, err := w.source.Read(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// ids are the _id of the rows that meet a condition, joined by blanks.
func (w *world) ids(name string, c plan.Cond) string {
	w.t.Helper()
	b := w.block(name, "_id")
	b.Where = c
	rows := w.read(&plan.Query{Root: b, Rows: true, Total: true})
	if rows.Total != int64(len(rows.Rows)) {
		w.t.Errorf("%d rows, and a total of %d", len(rows.Rows), rows.Total)
	}
	return firstCells(rows.Rows)
}

// firstCells joins the first cells of rows.
func firstCells(rows []plan.ReadRow) string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = plain(r.Cells[0])
	}
	return strings.Join(out, " ")
}

// plain is a value for a test: text without quotes, - for missing.
func plain(v canonjson.Value) string {
	switch v.Kind() {
	case canonjson.KindAbsent:
		return "-"
	case canonjson.KindString:
		return v.Str()
	}
	return string(v.AppendJSON(nil))
}

// line is a row as one line: cells, then the rows of each relation in brackets.
func line(r plan.ReadRow) string {
	parts := make([]string, 0, len(r.Cells)+len(r.Kids))
	for _, v := range r.Cells {
		parts = append(parts, plain(v))
	}
	for _, kid := range r.Kids {
		lines := make([]string, len(kid))
		for i, k := range kid {
			lines[i] = line(k)
		}
		parts = append(parts, "["+strings.Join(lines, "; ")+"]")
	}
	return strings.Join(parts, " ")
}

// lines are rows, one a line.
func lines(rows []plan.ReadRow) string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = line(r)
	}
	return strings.Join(out, "\n")
}

// want compares.
func (w *world) want(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s:\n got  %s\n want %s", what, strings.ReplaceAll(got, "\n", "\n      "), strings.ReplaceAll(want, "\n", "\n      "))
	}
}

// row makes a row to insert of a JSON object.
func (w *world) row(name, object string) plan.Row {
	w.t.Helper()
	var out plan.Row
	for _, m := range parse(w.t, object).Members() {
		out = append(out, plan.FieldValue{Field: w.field(name + "." + m.Name), Value: m.Value})
	}
	return out
}

// apply carries a write out.
func (w *world) apply(wr *plan.Write) (*plan.Applied, error) {
	return w.source.Apply(w.t.Context(), wr, plan.Commit{})
}

// mustApply carries a write out that must succeed.
func (w *world) mustApply(wr *plan.Write) *plan.Applied {
	w.t.Helper()
	a, err := w.apply(wr)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// insert inserts rows given as a JSON array.
func (w *world) insert(name, rows string) *plan.Applied {
	w.t.Helper()
	wr := &plan.Write{Kind: plan.Insert, Model: w.model(name)}
	for _, v := range parse(w.t, rows).Items() {
		wr.Rows = append(wr.Rows, w.row(name, string(v.AppendJSON(nil))))
	}
	return w.mustApply(wr)
}

// all reads all rows of a model.
func (w *world) all(name string, names ...string) string {
	w.t.Helper()
	return lines(w.read(&plan.Query{Root: w.block(name, names...), Rows: true}).Rows)
}

// kid is a relation block of a model by the name of its relation.
func (w *world) kid(name, relation string, columns ...string) *plan.Kid {
	w.t.Helper()
	r := w.model(name).Relation(relation)
	if r == nil {
		w.t.Fatalf("no relation %s.%s", name, relation)
	}
	k := &plan.Kid{Relation: r, Local: w.fields(name, r.Local...), Foreign: w.fields(r.Model, r.Foreign...)}
	k.Block = w.block(r.Model, columns...)
	return k
}

// exists is a relation predicate.
func (w *world) exists(name, relation string) plan.Exists {
	k := w.kid(name, relation)
	return plan.Exists{Target: k.Block.Model, Local: k.Local, Foreign: k.Foreign}
}

// agg is an aggregate column.
func (w *world) agg(name, relation string, op model.AggOp, field string) *plan.Agg {
	k := w.kid(name, relation)
	a := &plan.Agg{Name: strings.TrimPrefix(string(op), "$") + field, Op: op, Target: k.Block.Model, Local: k.Local, Foreign: k.Foreign}
	if field != "" {
		a.Field = w.field(k.Block.Model.Name + "." + field)
	}
	return a
}

// alias is an output of a group as an operand.
func alias(name string, t model.Type) plan.Operand { return plan.Operand{Alias: name, Type: t} }

// num is a comparison of an alias with a number.
func num(name string, op plan.CompareOp, v string) plan.Cond {
	return plan.Compare{By: alias(name, model.Long), Op: op, Value: value(v)}
}

// sequence makes rows of JSON, with # as the number.
func sequence(from, to int, template string) string {
	var rows []string
	for i := from; i <= to; i++ {
		rows = append(rows, strings.ReplaceAll(template, "#", strconv.Itoa(i)))
	}
	return "[" + strings.Join(rows, ",") + "]"
}

// background is a context that ends with the test, with a hang guard.
func background(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// say is a short form of fmt.Sprintf.
func say(format string, args ...any) string { return fmt.Sprintf(format, args...) }
