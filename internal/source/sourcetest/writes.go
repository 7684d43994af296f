package sourcetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// shop are models for writes.
const shop = `[
	{"name": "Order", "fields": {"_id": "string", "owner": "string", "state": "string", "n": "int", "big": "long", "price": "decimal", "note": "string", "tags": "array"}, "version": "n",
		"indexes": [{"keys": {"note": 1}, "options": {"unique": true}}], "relations": {"lines": {"model": "Item", "foreignField": "order"}, "bill": {"model": "Bill", "type": "one", "foreignField": "order"}}},
	{"name": "Item", "timestamps": false, "archive": false, "fields": {"_id": "string", "order": "string", "sku": "string", "qty": "int"}, "indexes": [{"keys": {"order": 1}}]},
	{"name": "Bill", "timestamps": false, "archive": false, "fields": {"_id": "string", "order": "string", "sum": "int"}, "indexes": [{"keys": {"order": 1}, "options": {"unique": true}}]}
]`

// set is one assignment.
func (w *world) set(path, v string) plan.Assign {
	return plan.Assign{Field: w.field(path), Value: value(v)}
}

// inc adds, and unset makes missing.
func (w *world) inc(path, v string) plan.Assign {
	return plan.Assign{Field: w.field(path), Inc: value(v)}
}

// unset makes a field missing.
func (w *world) unset(path string) plan.Assign { return plan.Assign{Field: w.field(path), Unset: true} }

// present are the contents of __present of a table, by key.
func (w *world) present(table string) string {
	var out []string
	for _, row := range w.place.Query(w.t, `SELECT _id, __present FROM "`+table+`" ORDER BY _id`) {
		out = append(out, row[0]+" "+row[1])
	}
	return strings.Join(out, "\n")
}

// testInsert inserts, with and without keys of the database.
func testInsert(t *testing.T, p Place) {
	w := open(t, p, shop, Options{})
	got := w.insert("Order", `[{"_id":"o1","owner":"a","n":1,"note":null,"tags":["x",{"y":null}],"price":"12.500"},{"_id":"o2"}]`)
	w.want("rows back", lines(got.Rows), `o1 a - 1 - 12.5 null ["x",{"y":null}] - -`+"\n"+`o2 - - - - - - - - -`)
	w.want("__present", w.present("Order"), "o1 ,_id,n,note,owner,price,tags,\no2 ,_id,")
	w.want("none", say("%d", len(w.insert("Order", `[]`).Rows)), "0")
	got = w.insert("Order", `[{"_id":"m1","n":null,"tags":null,"price":null,"big":1},{"_id":"m2","n":1,"tags":[],"price":"1","big":null}]`)
	w.want("together", lines(got.Rows), "m1 - - null 1 null - null - -\nm2 - - 1 null 1 - [] - -")
	w.mustApply(&plan.Write{Kind: plan.Remove, Model: w.model("Order"), Where: w.is("Order._id", plan.LT, `"n"`)})
	wr := &plan.Write{Kind: plan.Insert, Model: w.model("Order"), Rows: []plan.Row{w.row("Order", `{"_id":"o3","owner":"a"}`), w.row("Order", `{"_id":"o4","owner":"b"}`)}, Check: w.is("Order.owner", plan.EQ, `"a"`)}
	if _, err := w.apply(wr); !errors.Is(err, plan.ErrOutside) {
		t.Errorf("a row that the caller could not see: %v", err)
	}
	w.want("all or none", w.ids("Order", nil), "o1 o2")

	auto := define(t, p, `[{"name": "Auto", "table": "auto", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": {"type": "long", "strategy": "autoincrement"}, "s": "string"}}]`)
	for _, s := range sqlgen.DDL(p.Engine, auto.registry.List()) {
		p.Exec(t, s)
	}
	auto.start(Options{})
	auto.want("assigned", lines(auto.insert("Auto", `[{"s":"a"},{"s":"b"},{}]`).Rows), "1 a\n2 b\n3 -")
}

// testUpdate changes exactly one row.
func testUpdate(t *testing.T, p Place) {
	w := open(t, p, shop, Options{})
	w.insert("Order", `[{"_id":"o1","owner":"a","state":"new","n":1,"big":9223372036854775806,"price":"0.1","note":null},{"_id":"o2","owner":"b","state":"new"},{"_id":"o3","owner":"a","state":"new"}]`)
	update := func(where, scope, check plan.Cond, set ...plan.Assign) (*plan.Applied, error) {
		return w.apply(&plan.Write{Kind: plan.Update, Model: w.model("Order"), Where: where, Scope: scope, Check: check, Set: set})
	}
	id := func(id string) plan.Cond { return w.is("Order._id", plan.EQ, `"`+id+`"`) }
	mine := w.is("Order.owner", plan.EQ, `"a"`)
	a, err := update(w.is("Order.state", plan.EQ, `"new"`), nil, nil, w.set("Order.state", `"x"`))
	if err != nil || len(a.Rows) != 1 || plain(a.Rows[0].Cells[0]) != "o1" {
		t.Errorf("one row, that of the lowest key: %v %v", a, err)
	}
	w.want("the others stay", w.all("Order", "_id", "state"), "o1 x\no2 new\no3 new")
	a, err = update(id("o1"), mine, mine, w.set("Order.state", `null`), w.unset("Order.note"), w.inc("Order.n", "2"), w.inc("Order.big", "1"), w.inc("Order.price", `"0.2"`), w.set("Order.tags", `[]`))
	if err != nil {
		t.Fatal(err)
	}
	w.want("row back", lines(a.Rows), "o1 a null 3 9223372036854775807 0.3 - [] - -")
	a, err = update(id("o2"), nil, nil, w.inc("Order.n", "5"), w.inc("Order.price", `"-1.50"`), w.unset("Order.state"))
	if err != nil {
		t.Fatal(err)
	}
	w.want("added to nothing", lines(a.Rows), "o2 b - 5 - -1.5 - - - -")
	w.want("__present", w.present("Order"), "o1 ,_id,big,n,owner,price,state,tags,\no2 ,_id,n,owner,price,\no3 ,_id,owner,state,")
	wantClass(t, "beyond 64 bits", second(update(id("o1"), nil, nil, w.inc("Order.big", "1"))), model.Unrepresentable, "big")
	if a, err := update(id("zz"), mine, nil, w.set("Order.n", "1")); err != nil || len(a.Rows) != 0 {
		t.Errorf("no row: %v %v", a, err)
	}
	if _, err := update(id("o2"), mine, nil, w.set("Order.n", "9")); !errors.Is(err, plan.ErrOutside) {
		t.Errorf("a row of another: %v", err)
	}
	if _, err := update(id("o3"), mine, mine, w.set("Order.owner", `"b"`)); !errors.Is(err, plan.ErrOutside) {
		t.Errorf("a row given away: %v", err)
	}
	w.want("nothing of it", w.all("Order", "_id", "owner", "n"), "o1 a 3\no2 b 5\no3 a -")
	wr := &plan.Write{Kind: plan.Update, Model: w.model("Order"), Where: id("o1"), Set: []plan.Assign{w.inc("Order.n", "1")}, Expect: value("2")}
	var version *plan.VersionError
	if _, err := w.apply(wr); !errors.As(err, &version) || plain(version.Current) != "3" {
		t.Errorf("another version: %v", err)
	}
	wr.Expect = value("3")
	w.want("the version", lines(w.mustApply(wr).Rows)[:7], "o1 a nu")
	wr.Where, wr.Expect = id("o3"), value("1")
	if _, err := w.apply(wr); !errors.As(err, &version) || plain(version.Current) != "null" {
		t.Errorf("a version where there is none: %v", err)
	}
	w.want("versions", w.all("Order", "_id", "n"), "o1 4\no2 5\no3 -")
}

// testUpdateMany changes all rows that the scope lets.
func testUpdateMany(t *testing.T, p Place) {
	w := open(t, p, shop, Options{})
	w.insert("Order", `[{"_id":"o1","owner":"a","n":1},{"_id":"o2","owner":"b","n":2},{"_id":"o3","owner":"a","state":null},{"_id":"o4","owner":"a","n":7}]`)
	wr := &plan.Write{Kind: plan.UpdateMany, Model: w.model("Order"), Where: w.is("Order._id", plan.LE, `"o3"`), Scope: w.is("Order.owner", plan.EQ, `"a"`), Set: []plan.Assign{w.set("Order.state", `"s"`), w.inc("Order.n", "10")}}
	w.want("modified", say("%d", w.mustApply(wr).Modified), "2")
	w.want("rows", w.all("Order", "_id", "state", "n"), "o1 s 11\no2 - 2\no3 s 10\no4 - 7")
	w.want("__present", w.present("Order"), "o1 ,_id,n,owner,state,\no2 ,_id,n,owner,\no3 ,_id,n,owner,state,\no4 ,_id,n,owner,")
	wr.Set = []plan.Assign{w.set("Order.state", `"s"`)}
	w.want("the same again counts", say("%d", w.mustApply(wr).Modified), "2")
	wr.Set, wr.Check = []plan.Assign{w.set("Order.owner", `"b"`)}, wr.Scope
	if _, err := w.apply(wr); !errors.Is(err, plan.ErrOutside) {
		t.Errorf("rows given away: %v", err)
	}
	wr.Where, wr.Check, wr.Set = w.exists("Order", "lines"), nil, []plan.Assign{w.set("Order.state", `"with lines"`)}
	w.insert("Item", `[{"_id":"i1","order":"o1"},{"_id":"i2","order":"o2"}]`)
	w.want("by a predicate", say("%d", w.mustApply(wr).Modified), "1")
	w.want("rows after", w.all("Order", "_id", "owner", "state"), "o1 a with lines\no2 b -\no3 a s\no4 a -")
}

// testRemove archives and deletes.
func testRemove(t *testing.T, p Place) {
	w := open(t, p, shop, Options{})
	w.insert("Order", `[{"_id":"o1","owner":"a","note":null,"tags":[1]},{"_id":"o2","owner":"b","n":3},{"_id":"o3","owner":"a"}]`)
	order := w.model("Order")
	remove := func(where, scope plan.Cond, one bool, now int64) (*plan.Applied, error) {
		return w.apply(&plan.Write{Kind: plan.Remove, Model: order, Where: where, Scope: scope, One: one, Archive: order.Archive, Now: now})
	}
	id := func(id string) plan.Cond { return w.is("Order._id", plan.EQ, `"`+id+`"`) }
	mine := w.is("Order.owner", plan.EQ, `"a"`)
	if _, err := remove(id("o2"), mine, true, 5); !errors.Is(err, plan.ErrOutside) {
		t.Errorf("a row of another: %v", err)
	}
	a, err := remove(nil, mine, false, 5)
	if err != nil || a.Deleted != 2 || a.Archived != 2 {
		t.Errorf("%v %v", a, err)
	}
	w.want("left", w.ids("Order", nil), "o2")
	w.want("archive", w.all("OrderDeleted", "_id", "owner", "note", "n", "tags", "deletedAt"), "o1 a null - [1] 5\no3 a - - - 5")
	w.want("__present of the archive", w.present(order.Archive.Collection), "o1 ,_id,deletedAt,note,owner,tags,\no3 ,_id,deletedAt,owner,")
	w.insert("Order", `[{"_id":"o1","owner":"again"}]`)
	if a, err := remove(id("o1"), nil, true, 6); err != nil || a.Deleted != 1 || a.Archived != 1 {
		t.Errorf("%v %v", a, err)
	}
	w.want("archive replaced", w.all("OrderDeleted", "_id", "owner", "note", "deletedAt"), "o1 again - 6\no3 a - 5")
	if a, err := remove(id("o1"), nil, true, 7); err != nil || a.Deleted != 0 {
		t.Errorf("no row: %v %v", a, err)
	}
	if a, err := w.apply(&plan.Write{Kind: plan.Remove, Model: order.Archive, Where: plan.Const(true)}); err != nil || a.Deleted != 2 || a.Archived != 0 {
		t.Errorf("for good: %v %v", a, err)
	}
	wr := &plan.Write{Kind: plan.Remove, Model: order, Where: id("o2"), One: true, Expect: value("4")}
	var version *plan.VersionError
	if _, err := w.apply(wr); !errors.As(err, &version) || plain(version.Current) != "3" {
		t.Errorf("another version: %v", err)
	}
	wr.Expect = value("3")
	w.want("the version", say("%d", w.mustApply(wr).Deleted), "1")
}

// testUpsert changes or inserts.
func testUpsert(t *testing.T, p Place) {
	w := open(t, p, shop, Options{})
	upsert := func(note string, scope plan.Cond) (*plan.Applied, error) {
		match := []plan.FieldValue{{Field: w.field("Order.note"), Value: value(note)}}
		return w.apply(&plan.Write{Kind: plan.Upsert, Model: w.model("Order"), Match: match, Scope: scope, Set: []plan.Assign{w.inc("Order.n", "1")}, Rows: []plan.Row{w.row("Order", `{"_id":"new `+strings.Trim(note, `"`)+`","owner":"a","note":`+note+`}`)}})
	}
	for _, want := range []string{"new x a - - - - x - - -", "new x a - 1 - - x - - -", "new x a - 2 - - x - - -"} {
		a, err := upsert(`"x"`, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.want("row", lines(a.Rows), want)
	}
	if _, err := upsert(`"x"`, w.is("Order.owner", plan.EQ, `"b"`)); !errors.Is(err, plan.ErrOutside) {
		t.Errorf("a row of another: %v", err)
	}
	w.want("__present", w.present("Order"), "new x ,_id,n,note,owner,")
}

// testMutate writes trees.
func testMutate(t *testing.T, p Place) {
	w := open(t, p, shop, Options{})
	item := func(id, sku string) *plan.Node {
		n := &plan.Node{Model: w.model("Item"), Row: w.row("Item", say(`{"_id":%q,"sku":%q,"order":"elsewhere"}`, id, sku)), Set: []plan.Assign{w.set("Item.sku", `"`+sku+`"`)}}
		n.Keys = [][]plan.FieldValue{w.row("Item", `{"_id":"`+id+`"}`)}
		return n
	}
	bill := func(id, sum string) *plan.Node {
		return &plan.Node{Model: w.model("Bill"), Row: w.row("Bill", say(`{"_id":%q,"sum":%s}`, id, sum)), Set: []plan.Assign{w.set("Bill.sum", sum)}}
	}
	order := func(id, note string, kids ...plan.NodeKid) *plan.Node {
		return &plan.Node{Model: w.model("Order"), Row: w.row("Order", say(`{"_id":%q,"note":%q}`, id, note)), Set: []plan.Assign{w.set("Order.state", `"again"`)}, Kids: kids,
			Keys: [][]plan.FieldValue{w.row("Order", `{"_id":"`+id+`"}`), w.row("Order", `{"note":"`+note+`"}`)}}
	}
	items := func(nodes ...*plan.Node) plan.NodeKid {
		return plan.NodeKid{Local: w.field("Order._id"), Foreign: w.field("Item.order"), Nodes: nodes}
	}
	bills := func(n *plan.Node) plan.NodeKid {
		return plan.NodeKid{Local: w.field("Order._id"), Foreign: w.field("Bill.order"), One: true, Nodes: []*plan.Node{n}}
	}
	a := w.mustApply(&plan.Write{Kind: plan.Mutate, Model: w.model("Order"), Nodes: []*plan.Node{
		order("o1", "first", items(item("i1", "a"), item("i2", "b")), bills(bill("b1", "1"))), order("o2", "second")}})
	w.want("roots", lines(a.Rows), "o1 - - - - - first - - -\no2 - - - - - second - - -")
	a = w.mustApply(&plan.Write{Kind: plan.Mutate, Model: w.model("Order"), Nodes: []*plan.Node{order("other", "second", items(item("i2", "moved")), bills(bill("b2", "2"))), order("o1", "first", bills(bill("b3", "3")))}})
	w.want("roots found by their keys", lines(a.Rows), "o2 - again - - - second - - -\no1 - again - - - first - - -")
	w.want("items", w.all("Item"), "i1 o1 a -\ni2 o2 moved -")
	w.want("bills", w.all("Bill"), "b1 o1 3\nb2 o2 2")
	moved := item("i9", "c")
	moved.Keys = [][]plan.FieldValue{{{Field: w.field("Item.order")}, {Field: w.field("Item.sku"), Value: value(`"a"`)}}}
	w.mustApply(&plan.Write{Kind: plan.Mutate, Model: w.model("Order"), Nodes: []*plan.Node{order("o1", "first", items(moved))}})
	w.want("a child found by a key with the parent in it", w.all("Item"), "i1 o1 c -\ni2 o2 moved -")
	outside := order("o1", "first")
	outside.Scope = w.is("Order.owner", plan.EQ, `"me"`)
	if _, err := w.apply(&plan.Write{Kind: plan.Mutate, Model: w.model("Order"), Nodes: []*plan.Node{order("o9", "ninth"), outside}}); !errors.Is(err, plan.ErrOutside) {
		t.Errorf("a row of another: %v", err)
	}
	w.want("nothing of it", w.ids("Order", nil), "o1 o2")
}

// testAtomic breaks writes off in their middle.
func testAtomic(t *testing.T, p Place) {
	w := open(t, p, shop, Options{})
	w.insert("Order", `[{"_id":"o1","note":"a"},{"_id":"o2","note":"b"},{"_id":"o3"}]`)
	before := w.all("Order")
	broken := []*plan.Write{
		{Kind: plan.Insert, Model: w.model("Order"), Rows: []plan.Row{w.row("Order", `{"_id":"o4"}`), w.row("Order", `{"_id":"o1"}`)}},
		{Kind: plan.UpdateMany, Model: w.model("Order"), Where: plan.Const(true), Set: []plan.Assign{w.set("Order.note", `"same"`)}},
		{Kind: plan.Mutate, Model: w.model("Order"), Nodes: []*plan.Node{{Model: w.model("Order"), Row: w.row("Order", `{"_id":"o5"}`)}, {Model: w.model("Order"), Row: w.row("Order", `{"_id":"o6","note":"a"}`)}}},
	}
	for _, wr := range broken {
		var c *plan.ConstraintError
		if _, err := w.apply(wr); !errors.As(err, &c) || c.Kind != "unique" {
			t.Errorf("%s: %v", wr.Kind, err)
		}
		w.want(string(wr.Kind)+" changed nothing", w.all("Order"), before)
	}
	if p.Engine == sqlgen.EngineSQLite {
		p.Exec(t, `CREATE TRIGGER no BEFORE DELETE ON "Order" WHEN old._id = 'o3' BEGIN SELECT RAISE(ABORT, 'no'); END`)
	} else {
		p.Exec(t, `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF old._id = 'o3' THEN RAISE EXCEPTION 'no'; END IF; RETURN old; END$$; CREATE TRIGGER no BEFORE DELETE ON "Order" FOR EACH ROW EXECUTE FUNCTION no()`)
	}
	if _, err := w.apply(&plan.Write{Kind: plan.Remove, Model: w.model("Order"), Where: plan.Const(true), Archive: w.model("Order").Archive, Now: 1}); err == nil {
		t.Error("a trigger refuses, and rows were removed")
	}
	w.want("remove changed nothing", w.all("Order")+w.ids("OrderDeleted", nil), before)
}

// testConstraints maps the refusals of the database to fields.
func testConstraints(t *testing.T, p Place) {
	p.Exec(t, `CREATE TABLE parent (id int PRIMARY KEY)`)
	p.Exec(t, `CREATE TABLE child (id int PRIMARY KEY, code varchar(5) NOT NULL, "Up" int REFERENCES parent (id), n int, m int, CONSTRAINT positive CHECK (n > 0), CONSTRAINT pair UNIQUE (n, m))`)
	w := define(t, p, `[{"name": "Child", "table": "child", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": {"type": "int", "column": "id"}, "code": "string", "up": {"type": "int", "column": "Up"}, "n": "int", "m": "int"}},
		{"name": "Parent", "table": "parent", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": {"type": "int", "column": "id"}}}]`)
	if problems := w.start(Options{}); len(problems) > 0 {
		t.Fatal(problems)
	}
	w.insert("Parent", `[{"_id":1}]`)
	w.insert("Child", `[{"_id":1,"code":"a","up":1,"n":1,"m":1}]`)
	insert := func(row string) error {
		_, err := w.apply(&plan.Write{Kind: plan.Insert, Model: w.model("Child"), Rows: []plan.Row{w.row("Child", row)}})
		return err
	}
	refused := func(what string, err error, kind, fields string) {
		t.Helper()
		var c *plan.ConstraintError
		if !errors.As(err, &c) {
			t.Errorf("%s: %v", what, err)
			return
		}
		var names []string
		for _, f := range c.Fields {
			names = append(names, f.Name)
		}
		slices.Sort(names)
		if c.Kind != kind || strings.Join(names, " ") != fields || c.Model == nil || c.Cause == nil {
			t.Errorf("%s: %s of %q, want %s of %q", what, c.Kind, names, kind, fields)
		}
	}
	refused("key", insert(`{"_id":1,"code":"b"}`), "unique", "_id")
	refused("unique", insert(`{"_id":2,"code":"b","n":1,"m":1}`), "unique", "m n")
	refused("required", insert(`{"_id":2}`), "required", "code")
	refused("required null", insert(`{"_id":2,"code":null}`), "required", "code")
	refused("check", insert(`{"_id":2,"code":"b","n":0}`), "check", checkFields(p))
	refused("foreign", insert(`{"_id":2,"code":"b","up":7}`), "foreign", foreignFields(p))
	_, err := w.apply(&plan.Write{Kind: plan.Remove, Model: w.model("Parent"), Where: plan.Const(true)})
	var c *plan.ConstraintError
	if !errors.As(err, &c) || c.Kind != "foreign" {
		t.Errorf("a parent with children: %v", err)
	}
	w.want("rows", w.all("Child"), "1 a 1 1 1")
}

// checkFields and foreignFields are what each engine tells: SQLite names neither the columns of a check nor the key.
func checkFields(p Place) string {
	if p.Engine == sqlgen.EngineSQLite {
		return ""
	}
	return "n"
}

// foreignFields: see checkFields.
func foreignFields(p Place) string {
	if p.Engine == sqlgen.EngineSQLite {
		return ""
	}
	return "up"
}

// testKeys repeats writes with idempotency keys.
func testKeys(t *testing.T, p Place) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := open(t, p, shop, Options{Now: func() time.Time { return now }})
	commit := plan.Commit{Scope: "user:ana", Key: "k1", Fingerprint: [32]byte{1}, Keep: 24 * time.Hour}
	insert := &plan.Write{Kind: plan.Insert, Model: w.model("Order"), Rows: []plan.Row{w.row("Order", `{"_id":"o1","n":1,"big":9007199254740993,"note":null}`)}}
	if _, err := w.source.Apply(t.Context(), insert, commit); !errors.Is(err, plan.ErrNoKeys) {
		t.Errorf("without the table: %v", err)
	}
	w.want("nothing happened", w.ids("Order", nil), "")
	if w.source.Features().Keys {
		t.Error("the source claims to have the table")
	}
	p.Exec(t, sqlgen.IdempotencyDDL(p.Engine))
	if _, err := w.source.Bind(t.Context(), w.registry.List()); err != nil || !w.source.Features().Keys {
		t.Errorf("with the table: %v", err)
	}
	first, err := w.source.Apply(t.Context(), insert, commit)
	if err != nil || first.Replayed {
		t.Fatalf("%v %v", first, err)
	}
	again, err := w.source.Apply(t.Context(), insert, commit)
	if err != nil || !again.Replayed || lines(again.Rows) != lines(first.Rows) {
		t.Errorf("again: %v %v, want %s", again, err, lines(first.Rows))
	}
	other := commit
	other.Fingerprint[31] = 9
	if _, err := w.source.Apply(t.Context(), insert, other); !errors.Is(err, plan.ErrKeyConflict) {
		t.Errorf("another write: %v", err)
	}
	bad := commit
	bad.Key = "k2"
	if _, err := w.source.Apply(t.Context(), insert, bad); err == nil {
		t.Error("the same row twice")
	}
	inc := &plan.Write{Kind: plan.Update, Model: w.model("Order"), Where: w.is("Order._id", plan.EQ, `"o1"`), Set: []plan.Assign{w.inc("Order.n", "1")}}
	for _, c := range []plan.Commit{bad, bad, {Scope: "user:bob", Key: "k2", Keep: time.Hour}} { // a write that failed left no key behind
		if _, err := w.source.Apply(t.Context(), inc, c); err != nil {
			t.Error(err)
		}
	}
	w.want("once each", w.all("Order", "_id", "n"), "o1 3")
	now = now.Add(25 * time.Hour)
	if a, err := w.source.Apply(t.Context(), inc, bad); err != nil || a.Replayed {
		t.Errorf("after the key was forgotten: %v %v", a, err)
	}
	if rows := p.Query(t, `SELECT scope, key FROM tabellion_idempotency`); len(rows) != 1 {
		t.Errorf("keys: %v", rows)
	}
}

// testWriters lets writers race: counters, upserts of one row, and one key.
func testWriters(t *testing.T, p Place) {
	w := open(t, p, shop, Options{})
	p.Exec(t, sqlgen.IdempotencyDDL(p.Engine))
	if _, err := w.source.Bind(t.Context(), w.registry.List()); err != nil {
		t.Fatal(err)
	}
	w.insert("Order", `[{"_id":"o1","n":0}]`)
	const writers, times = 6, 15
	race := func(do func(writer, time int) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for j := range times {
					if err := do(i, j); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	ctx := background(t)
	race(func(int, int) error {
		_, err := w.source.Apply(ctx, &plan.Write{Kind: plan.Update, Model: w.model("Order"), Where: w.is("Order._id", plan.EQ, `"o1"`), Set: []plan.Assign{w.inc("Order.n", "1")}}, plan.Commit{})
		return err
	})
	w.want("count", w.all("Order", "n"), say("%d", writers*times))
	race(func(i, j int) error {
		note := canonjson.String(say("note %d", j))
		_, err := w.source.Apply(ctx, &plan.Write{Kind: plan.Upsert, Model: w.model("Order"), Match: []plan.FieldValue{{Field: w.field("Order.note"), Value: note}}, Set: []plan.Assign{w.inc("Order.n", "1")},
			Rows: []plan.Row{w.row("Order", say(`{"_id":"u%d-%d","n":1,"note":"note %d"}`, i, j, j))}}, plan.Commit{})
		return err
	})
	w.want("upserts", w.all("Order", "n")[3:], strings.TrimSuffix(strings.Repeat(say("%d\n", writers), times), "\n"))
	race(func(_, j int) error {
		_, err := w.source.Apply(ctx, &plan.Write{Kind: plan.Insert, Model: w.model("Item"), Rows: []plan.Row{w.row("Item", say(`{"_id":"k%02d"}`, j))}}, plan.Commit{Scope: "s", Key: say("%d", j), Keep: time.Hour})
		return err
	})
	w.want("once a key", say("%d", len(strings.Fields(w.ids("Item", nil)))), say("%d", times))
}

// testMisfits refuses values that a column cannot hold, and shows stored ones that no type can.
func testMisfits(t *testing.T, p Place) {
	if p.Engine == sqlgen.EngineSQLite {
		p.Exec(t, `CREATE TABLE site (id INTEGER PRIMARY KEY, n INTEGER, f REAL, s TEXT, d NUMERIC(10,2), ts DATETIME);
			INSERT INTO site VALUES (1, 12, 1.5, 'a', 0.99, '2021-01-01 00:00:00'), (2, '', 9e999, x'ff', 'x', 'soon'), (3, 'abc', -9e999, CAST(x'ff' AS TEXT), 10, '2021-01-01T00:00:00.5Z'), (4, NULL, NULL, NULL, NULL, NULL), (5, 7.5, 'z', 'b', '1.10', '2020-12-31')`)
	} else {
		p.Exec(t, `CREATE TABLE site (id int PRIMARY KEY, n numeric, f float8, s text, d numeric(10,2), ts timestamp);
			INSERT INTO site VALUES (1, 12, 1.5, 'a', 0.99, '2021-01-01'), (2, 'NaN', 'Infinity', NULL, 'NaN', 'infinity'), (3, 1e30, '-Infinity', NULL, 10, '2021-01-01 00:00:00.5'), (4, NULL, NULL, NULL, NULL, NULL), (5, 7.5, 'NaN', 'b', '1.1', '2020-12-31')`)
	}
	w := define(t, p, `[{"name": "Site", "table": "site", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": {"type": "int", "column": "id"}, "n": "int", "f": "double", "s": "string", "d": "decimal", "ts": "timestamp"}}]`)
	w.start(Options{})
	rows := w.read(&plan.Query{Root: w.block("Site"), Rows: true})
	want := map[sqlgen.Engine]string{
		"sqlite":   "1 12 1.5 a 0.99 2021-01-01T00:00:00Z\n2 null null null null null\n3 null null null 10 2021-01-01T00:00:00.5Z\n4 - - - - -\n5 null null b 1.1 2020-12-31T00:00:00Z",
		"postgres": "1 12 1.5 a 0.99 2021-01-01T00:00:00Z\n2 null null - null null\n3 null null - 10 2021-01-01T00:00:00.5Z\n4 - - - - -\n5 null null b 1.1 2020-12-31T00:00:00Z",
	}[p.Engine]
	w.want("rows", lines(rows.Rows), want)
	var told []string
	for _, u := range rows.Unrepresentable {
		keys := ""
		for _, k := range u.Keys {
			keys += plain(k)
		}
		told = append(told, say("%s.%s %d %s", u.Model, u.Field, u.Count, keys))
	}
	wantTold := "Site.n 3 235; Site.f 3 235; Site.s 2 23; Site.d 1 2; Site.ts 1 2"
	if p.Engine == sqlgen.EnginePostgres {
		wantTold = "Site.n 3 235; Site.f 3 235; Site.d 1 2; Site.ts 1 2"
	}
	w.want("told", strings.Join(told, "; "), wantTold)
	w.want("filter", w.ids("Site", w.is("Site.f", plan.GT, "0")), "1")
	w.want("not filter", w.ids("Site", plan.Not{Cond: w.is("Site.f", plan.LT, "0")}), "1")
	w.want("times", w.ids("Site", plan.And{w.is("Site.ts", plan.GE, `"2021-01-01T00:00:00Z"`), w.is("Site.ts", plan.LE, `"2021-01-01T00:00:00.5Z"`)}), "1 3")
	w.want("decimals", w.ids("Site", plan.And{w.is("Site.d", plan.GT, `"0.99"`), w.is("Site.d", plan.LE, `"1.10"`)}), "5")
	if p.Engine == sqlgen.EngineSQLite {
		w.want("integers", w.ids("Site", w.is("Site.n", plan.GT, "5")), "1")
		b := w.block("Site")
		b.Columns, b.Order = nil, nil
		b.Group = &plan.Group{Aggs: []plan.GroupAgg{{Alias: "n", Op: model.Sum, Field: w.field("Site.n")}, {Alias: "f", Op: model.Sum, Field: w.field("Site.f")}, {Alias: "d", Op: model.Sum, Field: w.field("Site.d")}}}
		w.want("sums count numbers only", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), "12 1.5 12.09")
	}
	_, err := w.apply(&plan.Write{Kind: plan.Insert, Model: w.model("Site"), Rows: []plan.Row{w.row("Site", `{"_id":9,"d":"1.2345678901234567890"}`)}})
	wantClass(t, "more digits than the column holds", err, model.BadValue)
	if p.Engine == sqlgen.EnginePostgres {
		_, err := w.apply(&plan.Write{Kind: plan.Insert, Model: w.model("Site"), Rows: []plan.Row{w.row("Site", `{"_id":9,"s":"a\u0000b"}`)}})
		wantClass(t, "U+0000", err, model.BadValue, "U+0000")
		_, err = w.apply(&plan.Write{Kind: plan.Insert, Model: w.model("Site"), Rows: []plan.Row{w.row("Site", `{"_id":9000000000}`)}})
		wantClass(t, "too large for the column", err, model.BadValue)
	}
	w.want("nothing stored", w.ids("Site", nil), "1 2 3 4 5")
}

// testTruth keeps truth in integers: each row that is not null is either true or false, and shown as such.
func testTruth(t *testing.T, p Place) {
	p.Exec(t, `CREATE TABLE flags (id int PRIMARY KEY, b smallint); INSERT INTO flags VALUES (1, 0), (2, 1), (3, 2), (4, -1), (5, NULL)`)
	w := define(t, p, `[{"name": "Flag", "table": "flags", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": {"type": "int", "column": "id"}, "b": "boolean"}}]`)
	w.start(Options{})
	w.want("rows", w.all("Flag", "_id", "b"), "1 false\n2 true\n3 true\n4 true\n5 -")
	w.want("true", w.ids("Flag", w.is("Flag.b", plan.EQ, "true")), "2 3 4")
	w.want("false", w.ids("Flag", w.is("Flag.b", plan.EQ, "false")), "1")
	w.want("not true", w.ids("Flag", w.is("Flag.b", plan.NE, "true")), "1")
	w.want("in", w.ids("Flag", plan.In{By: w.by("Flag.b"), Values: []canonjson.Value{canonjson.Bool(true), canonjson.Bool(false)}}), "1 2 3 4")
	w.insert("Flag", `[{"_id":6,"b":true},{"_id":7,"b":false}]`)
	w.want("stored", say("%v", p.Query(t, `SELECT b FROM flags WHERE id > 5 ORDER BY id`)), "[[1] [0]]")
}

// testProblems names what is missing, and refuses plans about it.
func testProblems(t *testing.T, p Place) {
	p.Exec(t, `CREATE TABLE half (id int PRIMARY KEY, a int)`)
	w := define(t, p, `[{"name": "Half", "table": "half", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": {"type": "int", "column": "id"}, "a": "int", "b": "int"}}, {"name": "None", "table": "none", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": {"type": "int", "column": "id"}}}]`)
	problems := strings.Join(w.start(Options{}), "\n")
	if !strings.Contains(problems, "Half") || !strings.Contains(problems, "column b") || !strings.Contains(problems, "no table none") || strings.Count(problems, "\n") != 1 {
		t.Errorf("problems: %s", problems)
	}
	w.want("what is there", w.all("Half", "_id", "a"), "")
	for _, b := range []*plan.Block{w.block("Half"), w.block("None")} {
		if _, err := w.source.Read(t.Context(), &plan.Query{Root: b, Rows: true}); err == nil {
			t.Errorf("%s was read", b.Model.Name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.source.Read(ctx, &plan.Query{Root: w.block("Half", "_id"), Rows: true}); err == nil {
		t.Error("a read whose caller is gone")
	}
}
