package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// writeModels are the models of these tests: rows of owners, unique fields, one that is not readable, relations.
const writeModels = `[
	{"name":"Task","idPrefix":"TA","read":["staff","creator"],"write":["staff","creator"],"fields":{"_id":"string","title":{"type":"string","required":true},"code":"string","mail":{"type":"string","read":["boss"]},"n":"int","createdBy":"string","box":{"type":"object","fields":{"a":"string","b":{"type":"string","write":["boss"]}}}},
	 "relations":{"steps":{"model":"Step","foreignField":"taskId"},"secrets":{"model":"Step","foreignField":"taskId","read":["boss"]},"note":{"model":"Note","type":"one","foreignField":"taskId"}},
	 "indexes":[{"keys":{"code":1},"unique":true},{"keys":{"mail":1},"unique":true}]},
	{"name":"Step","idPrefix":"ST","timestamps":"s","fields":{"_id":"string","taskId":"string","no":"int"},"indexes":[{"keys":{"taskId":1,"no":1},"unique":true}]},
	{"name":"Note","idPrefix":"NO","timestamps":false,"fields":{"_id":"string","taskId":"string"}}]`

// now is when the writes of these tests happen.
var now = time.UnixMilli(1_700_000_000_123)

// writePlanner plans for somebody. Ids are ID1, ID2 and so on.
func writePlanner(t *testing.T, who *model.Context) (*plan.Planner, plan.Writing) {
	t.Helper()
	r := model.NewRegistry(model.Options{})
	if err := r.Register(value(t, writeModels).Items()...); err != nil {
		t.Fatal(err)
	}
	rules := model.DefaultRules()
	rules.Unconfigured = model.Open
	p := &model.Permission{Rules: rules}
	n := 0
	return &plan.Planner{Registry: r, Access: p.For(who), Profile: plan.Standard},
		plan.Writing{Now: now, NewID: func(prefix string) string { n++; return fmt.Sprintf("%s%d", prefix, n) }}
}

// value reads JSON text.
func value(t *testing.T, text string) canonjson.Value {
	t.Helper()
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

var (
	full  = &model.Context{Internal: true}
	owner = &model.Context{UserID: "u1", Roles: []string{"member"}}
	staff = &model.Context{UserID: "s1", Roles: []string{"staff"}}
)

// rowText spells a row.
func rowText(row []plan.FieldValue) string {
	var parts []string
	for _, fv := range row {
		v := "parent"
		if !fv.Value.IsAbsent() {
			v = fv.Value.String()
		}
		parts = append(parts, fv.Field.Name+"="+v)
	}
	return strings.Join(parts, " ")
}

// setText spells a change.
func setText(set []plan.Assign) string {
	var parts []string
	for _, a := range set {
		switch {
		case a.Unset:
			parts = append(parts, "-"+a.Field.Name)
		case !a.Inc.IsAbsent():
			parts = append(parts, a.Field.Name+"+="+a.Inc.String())
		default:
			parts = append(parts, a.Field.Name+"="+a.Value.String())
		}
	}
	return strings.Join(parts, " ")
}

// TestInsertRows: what the server adds to a row, for who.
func TestInsertRows(t *testing.T) {
	for _, tt := range []struct {
		who        *model.Context
		model      string
		data, want string
	}{
		{full, "Task", `{"title":"T"}`, `_id="TA1" title="T" createdAt=1700000000123 updatedAt=1700000000123`},
		{full, "Task", `{"_id":"x","title":"T","createdAt":5,"updatedAt":6,"createdBy":"z"}`, `_id="x" title="T" createdBy="z" createdAt=5 updatedAt=1700000000123`},
		{full, "Task", `{"_id":"","title":"T","createdAt":0,"code":null}`, `_id="TA1" title="T" code=null createdAt=1700000000123 updatedAt=1700000000123`},
		{owner, "Task", `{"title":"T","createdBy":"z"}`, `_id="TA1" title="T" createdBy="u1" createdAt=1700000000123 updatedAt=1700000000123`},
		{staff, "Task", `{"title":"T","n":"5"}`, `_id="TA1" title="T" n=5 createdBy="s1" createdAt=1700000000123 updatedAt=1700000000123`},
		{full, "Step", `{"no":1}`, `_id="ST1" no=1 createdAt=1700000000 updatedAt=1700000000`},
		{full, "Note", `{}`, `_id="NO1"`},
		{owner, "Task", `{"title":"T","box":{"a":"x"}}`, `_id="TA1" title="T" createdBy="u1" createdAt=1700000000123 updatedAt=1700000000123`}, // a part of box is for the boss
	} {
		p, w := writePlanner(t, tt.who)
		got, err := p.Insert(tt.model, []canonjson.Value{value(t, tt.data)}, w)
		if err != nil {
			t.Errorf("%s: %v", tt.data, err)
		} else if text := rowText(got.Rows[0]); text != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.data, text, tt.want)
		}
	}
}

// TestLimitsOfWrites: an owner's write is bound to his rows before and after it, and nobody else's is.
func TestLimitsOfWrites(t *testing.T) {
	for who, bound := range map[*model.Context]bool{owner: true, staff: false, full: false} {
		p, w := writePlanner(t, who)
		id := value(t, `{"_id":"x"}`)
		up, err := p.Update("Task", id, value(t, `{"n":1}`), canonjson.Value{}, w)
		if err != nil || (up.Scope != nil) != bound || (up.Check != nil) != bound {
			t.Errorf("update: %+v %v", up, err)
		}
		rm, err := p.Remove("Task", id, canonjson.Value{}, false, w)
		if err != nil || (rm.Scope != nil) != bound || !rm.One || rm.Archive == nil || rm.Now != now.UnixMilli() {
			t.Errorf("remove: %+v %v", rm, err)
		}
		rm, err = p.Remove("Task", value(t, `{"_id":{"$in":["x"]}}`), canonjson.Value{}, false, w)
		if err != nil || rm.One {
			t.Errorf("remove of several: %+v %v", rm, err)
		}
		in, err := p.Insert("Task", []canonjson.Value{value(t, `{"title":"T"}`)}, w)
		if err != nil || (in.Check != nil) != bound {
			t.Errorf("insert: %+v %v", in, err)
		}
		mu, err := p.Mutation("Task", []canonjson.Value{value(t, `{"_id":"x","title":"T","steps":[{"no":1}]}`)}, w)
		if err != nil || (mu.Nodes[0].Scope != nil) != bound || (mu.Nodes[0].Check != nil) != bound || mu.Nodes[0].Kids[0].Nodes[0].Check != nil {
			t.Errorf("mutation: %+v %v", mu, err)
		}
	}
}

// TestBlankConditions: a condition that constrains nothing is refused, however it is written.
func TestBlankConditions(t *testing.T) {
	p, w := writePlanner(t, full)
	for _, blank := range []string{`null`, `{}`, `{"$and":[{}]}`, `{"$or":[{},{"n":1}]}`, `{"n":{}}`, `{"n":{"$nin":[]}}`, `{"_id":{"$exists":true}}`, `{"_id":{"$ne":null}}`, `{"$nor":[{"n":{"$in":[]}}]}`, `{"$and":[{"$and":[{}]},{"n":{}}]}`} {
		c := value(t, blank)
		_, up := p.Update("Task", c, value(t, `{"n":1}`), canonjson.Value{}, w)
		_, many := p.UpdateMany("Task", c, value(t, `{"n":1}`), w)
		_, rm := p.Remove("Task", c, canonjson.Value{}, true, w)
		for call, err := range map[string]error{"update": up, "updateMany": many, "remove": rm} {
			if !errors.Is(err, &model.Error{Class: model.Denied}) {
				t.Errorf("%s %s: %v", call, blank, err)
			}
		}
	}
	for _, c := range []string{`{"n":1}`, `{"n":{"$exists":true}}`, `{"$or":[{"n":1},{"n":{"$in":[]}}]}`} {
		if _, err := p.UpdateMany("Task", value(t, c), value(t, `{"n":1}`), w); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// TestChanges: which assignments an update makes of its data.
func TestChanges(t *testing.T) {
	const stamp = ` updatedAt=1700000000123`
	for data, want := range map[string]string{
		`{"n":1,"code":null}`:                  `n=1 code=null` + stamp,
		`{"$set":{"n":1},"$unset":{"code":1}}`: `n=1 code=null` + stamp,
		`{"$inc":{"n":-2}}`:                    `n+=-2` + stamp,
		`{"_id":"y","n":1,"updatedAt":9}`:      `n=1` + stamp,
		`{"createdAt":7}`:                      `createdAt=7` + stamp,
		`{"$set":{"n":1},"$inc":{"n":1}}`:      "badUpdateOp",
		`{"$set":{"n":1},"n":2}`:               "badUpdateOp",
		`{"$rename":{"n":"m"}}`:                "badUpdateOp",
		`{"$set":5}`:                           "badUpdateOp",
		`{"box.a":"x"}`:                        "badBody",
		`[1]`:                                  "badBody",
		`{"steps":[]}`:                         "unknownField",
		`{"nope.a":1}`:                         "unknownField",
		`{"_id":"y"}`:                          "noFields",
		`{"updatedAt":1}`:                      "noFields",
		`{"$inc":{"_id":1}}`:                   "noFields",
		`{"n":{"$gt":1}}`:                      "badValue",
		`{"title":null}`:                       "badValue",
		`{"n":9223372036854775807}`:            `n=9223372036854775807` + stamp,
		`{"n":9223372036854775808}`:            "badValue",
	} {
		p, w := writePlanner(t, full)
		v, _, err := canonjson.Parse([]byte(data), canonjson.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Update("Task", value(t, `{"_id":"x"}`), v, canonjson.Value{}, w)
		var e *model.Error
		switch {
		case errors.As(err, &e) && string(e.Class) != want:
			t.Errorf("%s: want %s, got %v", data, want, err)
		case err == nil && setText(got.Set) != want:
			t.Errorf("%s: got %s, want %s", data, setText(got.Set), want)
		}
	}
}

// TestUpserts: what finds the row, what is inserted, what is changed.
func TestUpserts(t *testing.T) {
	p, w := writePlanner(t, owner)
	got, err := p.Upsert("Task", value(t, `{"code":"c"}`), value(t, `{"code":"c","n":1,"title":"T","createdBy":"z","createdAt":5}`), w)
	if err != nil {
		t.Fatal(err)
	}
	for what, is := range map[string][2]string{
		"match": {rowText(got.Match), `code="c"`},
		"row":   {rowText(got.Rows[0]), `_id="TA1" title="T" code="c" n=1 createdBy="u1" createdAt=5 updatedAt=1700000000123`},
		"set":   {setText(got.Set), `title="T" n=1 updatedAt=1700000000123`},
	} {
		if is[0] != is[1] {
			t.Errorf("%s: got %s, want %s", what, is[0], is[1])
		}
	}
	got, err = p.Upsert("Task", value(t, `{"_id":"x"}`), value(t, `{"n":1}`), w)
	if err != nil || !slices.Equal(got.Lacks, []string{"Task.title"}) || rowText(got.Match) != `_id="x"` {
		t.Errorf("%+v %v", got, err)
	}
	for condition, class := range map[string]model.Class{
		`{}`: model.BadFilter, `null`: model.BadFilter, `{"code":null}`: model.BadFilter, `{"code":["c"]}`: model.BadFilter, `{"code":{"$eq":"c"}}`: model.BadFilter,
		`{"n":1}`: model.Constraint, `{"code":"c","n":1}`: model.Constraint, `{"mail":"m"}`: model.Denied, `{"nope":1}`: model.UnknownField, `{"$where":1}`: model.ForbiddenOp,
		`{"$and":[{"code":"c"}]}`: model.BadFilter, `{"steps":{"$exists":true}}`: model.BadFilter,
	} {
		if _, err := p.Upsert("Task", value(t, condition), value(t, `{"title":"T"}`), w); !errors.Is(err, &model.Error{Class: class}) {
			t.Errorf("%s: want %s, got %v", condition, class, err)
		}
	}
	if _, err := p.Upsert("Task", value(t, `{"code":"c"}`), value(t, `{"title":"T","code":"d"}`), w); !errors.Is(err, &model.Error{Class: model.BadBody}) {
		t.Errorf("two codes: %v", err)
	}
}

// TestMutationTrees: keys, rows and children of the nodes.
func TestMutationTrees(t *testing.T) {
	p, w := writePlanner(t, owner)
	var skipped []string
	w.Skipped = func(model, relation string) { skipped = append(skipped, model+"."+relation) }
	got, err := p.Mutation("Task", []canonjson.Value{value(t, `{"title":"T","code":"c","mail":"m","steps":[{"no":1,"taskId":"other"},{"_id":"s"}],"secrets":[{"no":9}]}`)}, w)
	if err != nil {
		t.Fatal(err)
	}
	n := got.Nodes[0]
	// mail is unique and not readable to this caller: a row is not found by it.
	if len(n.Keys) != 1 || rowText(n.Keys[0]) != `code="c"` {
		t.Errorf("keys %v", n.Keys)
	}
	if len(n.Kids) != 1 || n.Kids[0].Local.Name != "_id" || n.Kids[0].Foreign.Name != "taskId" || n.Kids[0].One {
		t.Fatalf("kids %+v", n.Kids)
	}
	first, second := n.Kids[0].Nodes[0], n.Kids[0].Nodes[1]
	if len(first.Keys) != 1 || rowText(first.Keys[0]) != `taskId=parent no=1` || rowText(first.Row) != `_id="ST2" no=1 createdAt=1700000000 updatedAt=1700000000` || setText(first.Set) != `no=1 updatedAt=1700000000` {
		t.Errorf("first: keys %v, row %s, set %s", first.Keys, rowText(first.Row), setText(first.Set))
	}
	if len(second.Keys) != 1 || rowText(second.Keys[0]) != `_id="s"` {
		t.Errorf("second: %v", second.Keys)
	}
	if !slices.Equal(skipped, []string{"Task.secrets"}) {
		t.Errorf("skipped %q", skipped)
	}
	for data, class := range map[string]model.Class{
		`{"title":"T","note":{}}`:           model.Constraint, // nothing makes taskId of Note unique
		`{"title":"T","steps":{"no":1}}`:    model.BadBody,
		`{"title":"T","steps":[5]}`:         model.BadBody,
		`{"title":"T","steps":[{"zzz":1}]}`: model.UnknownField,
		`{"n":1}`:                           model.BadValue, // no key and no title
		`5`:                                 model.BadBody,
	} {
		if _, err := p.Mutation("Task", []canonjson.Value{value(t, data)}, w); !errors.Is(err, &model.Error{Class: class}) {
			t.Errorf("%s: want %s, got %v", data, class, err)
		}
	}
}

// TestWritesWithoutACaller: nobody and the sandbox write nothing.
func TestWritesWithoutACaller(t *testing.T) {
	p, w := writePlanner(t, nil)
	if _, err := p.Insert("Task", []canonjson.Value{value(t, `{}`)}, w); !errors.Is(err, &model.Error{Class: model.NoContext}) {
		t.Errorf("nobody: %v", err)
	}
	p, w = writePlanner(t, full)
	p.Profile = plan.TextToQuery
	if _, err := p.Remove("Task", value(t, `{"_id":"x"}`), canonjson.Value{}, true, w); !errors.Is(err, &model.Error{Class: model.Sandbox}) {
		t.Errorf("the sandbox: %v", err)
	}
	p.Profile = plan.Standard
	if _, err := p.Insert("Task", make([]canonjson.Value, 10_001), w); !errors.Is(err, &model.Error{Class: model.Limit}) {
		t.Errorf("too many: %v", err)
	}
}
