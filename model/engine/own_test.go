package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// query asks with full rights unless a call is given, and fails the test for an error.
func (w *world) query(t *testing.T, call engine.Call, gql, params string) []canonjson.Value {
	t.Helper()
	a, err := w.engine.Query(t.Context(), call, gql, parse(t, params), engine.Page{})
	if err != nil {
		t.Fatalf("%s %s: %v", gql, params, err)
	}
	return a.Rows
}

// insert writes rows with full rights.
func (w *world) insert(t *testing.T, name, docs string) {
	t.Helper()
	if _, err := w.engine.InsertMany(t.Context(), internal(), name, parse(t, docs)); err != nil {
		t.Fatal(err)
	}
}

// same compares a value with JSON text.
func same(t *testing.T, what string, got canonjson.Value, want string) {
	t.Helper()
	if why := diff(parse(t, want), got, true, nil); why != "" {
		t.Errorf("%s: %s\n got %v", what, why, got)
	}
}

// refused asks that err is of a class, and that its text says some words and not others.
func refused(t *testing.T, what string, err error, class model.Class, says, silent []string) {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) || e.Class != class {
		t.Errorf("%s: want class %s, got %v", what, class, err)
		return
	}
	for _, word := range says {
		if !strings.Contains(e.Error(), word) {
			t.Errorf("%s: the text lacks %q: %v", what, word, e)
		}
	}
	for _, word := range silent {
		if strings.Contains(e.Error(), word) {
			t.Errorf("%s: the text tells %q: %v", what, word, e)
		}
	}
}

// user is a context with roles.
func user(id string, roles ...string) *model.Context {
	return &model.Context{UserID: id, Roles: roles}
}

// TestJSONFieldsAreStored reads back what the write result of w011 shows.
func TestJSONFieldsAreStored(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := fixtures(t, p)
		doc, err := w.engine.Insert(t.Context(), internal(), "Course", parse(t, `{"title":"O","tags":["a",{"b":9007199254740993}],"meta":{"level":"x","extra":[1.5,null]}}`))
		if err != nil {
			t.Fatal(err)
		}
		params := fmt.Sprintf(`{"c":{"_id":%v}}`, doc.Get("_id"))
		rows := w.query(t, internal(), "Course($condition:@c){ tags, meta }", params)
		same(t, "whole", rows[0].Without("_id"), `{"tags":["a",{"b":9007199254740993}],"meta":{"level":"x","extra":[1.5,null]}}`)
		rows = w.query(t, internal(), "Course($condition:@c){ meta { level, lang } }", params)
		same(t, "parts", rows[0].Without("_id"), `{"meta":{"level":"x"}}`)
	})
}

// TestSortByHiddenAndFractionalColumns: sort keys need not be selected, and nothing but what was asked for is shown
// (case M15).
func TestSortByHiddenAndFractionalColumns(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[{"name":"Item","timestamps":false,"fields":{"_id":"string","title":"string","price":"double"}}]`, engine.Config{})
		w.insert(t, "Item", `[{"_id":"a","title":"A","price":12.5},{"_id":"b","title":"B","price":12.25},{"_id":"c","title":"C","price":1e300}]`)
		rows := w.query(t, internal(), "Item($sort:@s){ title }", `{"s":{"price":-1}}`)
		same(t, "rows", canonjson.Array(rows...), `[{"_id":"c","title":"C"},{"_id":"a","title":"A"},{"_id":"b","title":"B"}]`)
	})
}

// TestCountsTellOfOwnRowsOnly: no number that a caller sees counts rows that he may not see (case M17).
func TestCountsTellOfOwnRowsOnly(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[
			{"name":"Team","timestamps":false,"fields":{"_id":"string"},"relations":{"people":{"model":"Person","foreignField":"teamId"}},"computes":{"size":{"type":"int","agg":{"$count":"people"}}}},
			{"name":"Person","timestamps":false,"read":["staff","creator"],"write":["staff","creator"],"fields":{"_id":"string","teamId":"string","email":"string","createdBy":"string"}}]`, engine.Config{})
		w.insert(t, "Team", `[{"_id":"t"}]`)
		w.insert(t, "Person", `[{"_id":"p1","teamId":"t","email":"me@example.org","createdBy":"u1"},{"_id":"p2","teamId":"t","email":"kim@example.org","createdBy":"u2"},{"_id":"p3","teamId":"t","email":"lee@example.org","createdBy":"u3"}]`)
		mine, ctx := as(user("u1", "member")), t.Context()

		same(t, "$count of a group", w.query(t, mine, "Person($group:@g){ n }", `{"g":{"agg":{"n":{"$count":"*"}}}}`)[0], `{"n":1}`)
		page, err := w.engine.QueryWithCount(ctx, mine, "Person{ _id }", parse(t, `{"page":0,"pageSize":1}`))
		if err != nil || page.Total != 1 || page.HasMore {
			t.Errorf("queryWithCount: %+v %v", page, err)
		}
		same(t, "aggregate column", w.query(t, mine, "Team{ size }", `{}`)[0], `{"_id":"t","size":1}`)
		for email, want := range map[string]bool{"me@example.org": true, "kim@example.org": false, "nobody@example.org": false} {
			condition := parse(t, fmt.Sprintf(`{"email":%q}`, email))
			if yes, err := w.engine.Exists(ctx, mine, "Person", condition); err != nil || yes != want {
				t.Errorf("exists %s: %t %v", email, yes, err)
			}
			if n, err := w.engine.Count(ctx, mine, "Person", condition); err != nil || (n == 1) != want {
				t.Errorf("count %s: %d %v", email, n, err)
			}
		}
		for _, condition := range []string{`{"email":"kim@example.org"}`, `{"_id":"p2","email":{"$gt":"a"}}`, `{"email":"nobody@example.org"}`} {
			got, err := w.engine.Update(ctx, mine, "Person", parse(t, condition), parse(t, `{"teamId":"x"}`), canonjson.Value{})
			if err != nil || got.Kind() != canonjson.KindNull {
				t.Errorf("update %s: %v %v", condition, got, err)
			}
			removed, err := w.engine.Remove(ctx, mine, "Person", parse(t, condition), canonjson.Value{}, true)
			if err != nil || removed != (engine.Removed{}) {
				t.Errorf("remove %s: %v %v", condition, removed, err)
			}
		}
		for rows, more := range map[string]bool{"Person($limit:@l){ _id }": false, "Person{ _id }": false} {
			a, err := w.engine.Query(ctx, mine, rows, parse(t, `{"l":1}`), engine.Page{Limit: 1})
			if err != nil || a.More != more || len(a.Rows) != 1 {
				t.Errorf("%s: %+v %v", rows, a, err)
			}
		}
		// The control: a caller without the limit sees all of it.
		same(t, "control", w.query(t, as(user("s", "staff")), "Team{ size }", `{}`)[0], `{"_id":"t","size":3}`)
	})
}

// TestAbsentNullAndTheWordNull keeps the three apart, and a missing parameter from all of them (case M23).
func TestAbsentNullAndTheWordNull(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[{"name":"Note","timestamps":false,"fields":{"_id":"string","note":"string"}}]`, engine.Config{})
		w.insert(t, "Note", `[{"_id":"text","note":"null"},{"_id":"null","note":null},{"_id":"missing"}]`)
		const gql = "Note($condition:@c0){ note }"
		sameIDs(t, "the word", w.query(t, internal(), gql, `{"c0":{"note":"null"}}`), "text")
		sameIDs(t, "null", w.query(t, internal(), gql, `{"c0":{"note":null}}`), "null")
		sameIDs(t, "no condition", w.query(t, internal(), gql, `{"c0":null}`), "missing", "null", "text")
		_, err := w.engine.Query(t.Context(), internal(), gql, parse(t, `{}`), engine.Page{})
		refused(t, "missing parameter", err, model.MissingParam, []string{"c0"}, nil)
	})
}

// TestWriteResultsAreCut: a write tells a caller no more than a read would, also when it is replayed.
func TestWriteResultsAreCut(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[{"name":"Doc","read":["reader","editor"],"write":["editor","blind"],"fields":{"_id":"string","title":"string",
			"secret":{"type":"string","read":["boss"],"write":["boss"]},"box":{"type":"object","fields":{"open":"string","shut":{"type":"string","read":["boss"]}}}},
			"computes":{"loud":{"type":"string","fn":true,"depends":["secret"],"read":["boss"]}}}]`,
			engine.Config{Functions: engine.Functions{Row: map[string]func(map[string]any) (any, error){"loud": func(doc map[string]any) (any, error) { return doc["secret"], nil }}}})
		w.insert(t, "Doc", `[{"_id":"d","title":"T","secret":"s3cret","box":{"open":"o","shut":"h1dden"}}]`)
		ctx := t.Context()
		update := func(who *model.Context, key string) (canonjson.Value, error) {
			c := as(who)
			if key != "" {
				c.Commit = plan.Commit{Scope: "s", Key: key}
			}
			return w.engine.Update(ctx, c, "Doc", parse(t, `{"_id":"d"}`), parse(t, `{"title":"U"}`), canonjson.Value{})
		}
		for what, key := range map[string]string{"a write": "", "a keyed write": "k", "its replay": "k"} {
			got, err := update(user("e", "editor"), key)
			if err != nil {
				t.Fatal(what, err)
			}
			same(t, what, got.Without("createdAt", "updatedAt"), `{"_id":"d","title":"U","box":{"open":"o"}}`)
		}
		got, err := update(user("b", "blind"), "")
		if err != nil || got.Len() != 1 || got.Get("_id").Str() != "d" {
			t.Errorf("a caller who may not read the model sees %v %v", got, err)
		}
		// The control: somebody who may read it all does.
		got, err = update(user("x", "editor", "boss"), "")
		if err != nil || got.Get("secret").Str() != "s3cret" || got.Get("loud").Str() != "s3cret" || got.At("/box/shut").Str() != "h1dden" {
			t.Errorf("control: %v %v", got, err)
		}
		// A replay is cut for who asks, not for who wrote.
		got, err = update(user("x", "editor", "boss"), "shared")
		if err != nil || got.Get("secret").IsAbsent() {
			t.Fatal(got, err)
		}
		got, err = update(user("e", "editor"), "shared")
		if err != nil || !got.Get("secret").IsAbsent() || !got.At("/box/shut").IsAbsent() {
			t.Errorf("a replay for somebody else: %v %v", got, err)
		}
	})
}

// TestBlindWritersLearnNothing: a caller who may write a model and not read it names rows by _id alone.
func TestBlindWritersLearnNothing(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[{"name":"Pay","timestamps":false,"read":["boss"],"write":["clerk"],"fields":{"_id":"string","sum":"int"}}]`, engine.Config{})
		w.insert(t, "Pay", `[{"_id":"a","sum":1},{"_id":"b","sum":100}]`)
		clerk, ctx := as(user("c", "clerk")), t.Context()
		_, err := w.engine.UpdateMany(ctx, clerk, "Pay", parse(t, `{"sum":{"$gt":50}}`), parse(t, `{"$inc":{"sum":0}}`))
		refused(t, "an oracle", err, model.Denied, nil, []string{"sum"})
		got, err := w.engine.Update(ctx, clerk, "Pay", parse(t, `{"_id":"a"}`), parse(t, `{"sum":2}`), canonjson.Value{})
		if err != nil {
			t.Fatal(err)
		}
		same(t, "by _id", got, `{"_id":"a"}`)
	})
}

// TestOwnersKeepTheirRows: an owner changes and removes his own rows, and cannot give one away or take one.
func TestOwnersKeepTheirRows(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := fixtures(t, p)
		u3, ctx := as(user("u3", "student")), t.Context()
		none := canonjson.Value{}
		_, err := w.engine.Update(ctx, u3, "Enrollment", parse(t, `{"_id":"e1"}`), parse(t, `{"createdBy":"u4"}`), none)
		refused(t, "giving away", err, model.Denied, nil, nil)
		_, err = w.engine.UpdateMany(ctx, u3, "Enrollment", parse(t, `{"courseId":"k1"}`), parse(t, `{"createdBy":"u4"}`))
		refused(t, "giving many away", err, model.Denied, nil, nil)
		_, err = w.engine.Upsert(ctx, u3, "Enrollment", parse(t, `{"courseId":"k1","userId":"u4"}`), parse(t, `{"progress":1}`))
		refused(t, "upsert of another's", err, model.Denied, nil, nil)
		_, err = w.engine.Mutation(ctx, u3, "Enrollment", parse(t, `{"_id":"e3","progress":1}`))
		refused(t, "mutation of another's", err, model.Denied, nil, nil)
		removed, err := w.engine.Remove(ctx, u3, "Enrollment", parse(t, `{"courseId":"k1"}`), none, false)
		if err != nil || removed != (engine.Removed{Deleted: 1, Archived: 1}) {
			t.Errorf("removing several: %+v %v", removed, err)
		}
		sameIDs(t, "what is left", w.query(t, internal(), "Enrollment{ progress }", `{}`), "e2", "e3", "e4", "e5")
		same(t, "untouched", w.query(t, internal(), "Enrollment($condition:@c){ progress, createdBy }", `{"c":{"_id":"e3"}}`)[0], `{"_id":"e3","progress":0.1,"createdBy":"u4"}`)
	})
}

// TestPolicyHoldsAfterTheWrite: a grant with a condition bounds the rows before and after a write.
func TestPolicyHoldsAfterTheWrite(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[{"name":"Order","timestamps":false,"idPrefix":"OR","fields":{"_id":"string","region":"string","note":"string"}}]`, engine.Config{})
		w.insert(t, "Order", `[{"_id":"eu","region":"eu"},{"_id":"us","region":"us"}]`)
		policy, err := model.ParsePolicy(parse(t, `{"grants":[{"role":"clerk","model":"Order","actions":["read","write"],"condition":{"region":"eu"}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		clerk, ctx, none := engine.Call{Access: openRules(policy).For(user("c", "clerk")), Profile: plan.Standard}, t.Context(), canonjson.Value{}
		if _, err := w.engine.Insert(ctx, clerk, "Order", parse(t, `{"region":"eu"}`)); err != nil {
			t.Error(err)
		}
		_, err = w.engine.Insert(ctx, clerk, "Order", parse(t, `{"region":"us"}`))
		refused(t, "insert elsewhere", err, model.Denied, nil, nil)
		_, err = w.engine.Update(ctx, clerk, "Order", parse(t, `{"_id":"eu"}`), parse(t, `{"region":"us"}`), none)
		refused(t, "moving out", err, model.Denied, nil, nil)
		_, err = w.engine.Update(ctx, clerk, "Order", parse(t, `{"_id":"us"}`), parse(t, `{"note":"x"}`), none)
		refused(t, "another's row", err, model.Denied, nil, nil)
		_, err = w.engine.Remove(ctx, clerk, "Order", parse(t, `{"_id":"us"}`), none, false)
		refused(t, "removing another's", err, model.Denied, nil, nil)
		n, err := w.engine.UpdateMany(ctx, clerk, "Order", parse(t, `{"region":{"$in":["eu","us"]}}`), parse(t, `{"note":"y"}`))
		if err != nil || n != 2 {
			t.Errorf("updateMany changed %d, %v", n, err)
		}
		if n, err := w.engine.Count(ctx, internal(), "Order", none); err != nil || n != 3 {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

// TestVersions: an expected version is compared before the write.
func TestVersions(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[{"name":"Page","version":"rev","fields":{"_id":"string","title":"string","rev":"int"}},{"name":"Plain","timestamps":false,"fields":{"_id":"string","a":"string"}}]`, engine.Config{})
		w.insert(t, "Page", `[{"_id":"p","title":"A","rev":7}]`)
		w.insert(t, "Plain", `[{"_id":"p","a":"A"}]`)
		ctx, id := t.Context(), parse(t, `{"_id":"p"}`)
		_, err := w.engine.Update(ctx, internal(), "Page", id, parse(t, `{"title":"B","rev":8}`), parse(t, `6`))
		refused(t, "stale", err, model.Version, []string{"7"}, nil)
		if _, err := w.engine.Update(ctx, internal(), "Page", id, parse(t, `{"title":"B","rev":8}`), parse(t, `7`)); err != nil {
			t.Error(err)
		}
		_, err = w.engine.Remove(ctx, internal(), "Page", id, parse(t, `7`), true)
		refused(t, "stale removal", err, model.Version, []string{"8"}, nil)
		_, err = w.engine.Update(ctx, internal(), "Page", id, parse(t, `{"title":"B"}`), parse(t, `"x"`))
		refused(t, "no version", err, model.BadValue, []string{"rev"}, nil)
		_, err = w.engine.Update(ctx, internal(), "Plain", id, parse(t, `{"a":"B"}`), parse(t, `1`))
		refused(t, "a model without versions", err, model.Unsupported, []string{"Plain"}, nil)
	})
}

// TestKeysSettleRepeats: a write with a key happens once; its key with other content is refused.
func TestKeysSettleRepeats(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[{"name":"Item","idPrefix":"IT","timestamps":false,"fields":{"_id":"string","n":"int"}}]`, engine.Config{})
		ctx, call := t.Context(), internal()
		call.Commit = plan.Commit{Scope: "u", Key: "k1", Fingerprint: [32]byte{1}}
		first, err := w.engine.Insert(ctx, call, "Item", parse(t, `{"n":1}`))
		if err != nil {
			t.Fatal(err)
		}
		again, err := w.engine.Insert(ctx, call, "Item", parse(t, `{"n":1}`))
		if err != nil || !again.Equal(first) {
			t.Errorf("the replay gave %v after %v, %v", again, first, err)
		}
		call.Commit.Fingerprint = [32]byte{2}
		_, err = w.engine.Insert(ctx, call, "Item", parse(t, `{"n":2}`))
		refused(t, "the key with other content", err, model.Idempotency, nil, nil)
		if n, _ := w.engine.Count(ctx, internal(), "Item", canonjson.Value{}); n != 1 {
			t.Errorf("%d rows", n)
		}
		if _, err := p.db.Exec(`DROP TABLE tabellion_idempotency`); err != nil {
			t.Fatal(err)
		}
		if _, err := w.source.Bind(ctx, w.registry.List()); err != nil {
			t.Fatal(err)
		}
		call.Commit.Key = "k2"
		_, err = w.engine.Insert(ctx, call, "Item", parse(t, `{"n":3}`))
		refused(t, "no table for keys", err, model.Idempotency, []string{"models ddl --idempotency"}, nil)
	})
}

// TestConstraintWords: a refusal of the database names fields that the caller may know, and nothing of the driver.
func TestConstraintWords(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := fixtures(t, p)
		ctx, driver := t.Context(), []string{"UNIQUE", "SQLSTATE", "duplicate key", "idx_", "constraint failed", "users"}
		_, err := w.engine.Insert(ctx, internal(), "User", parse(t, `{"email":"ada@x.io"}`))
		refused(t, "to who may read it", err, model.Constraint, []string{"User", "email"}, driver)
		_, err = w.engine.Insert(ctx, internal(), "User", parse(t, `{"_id":"u1"}`))
		refused(t, "the key", err, model.Constraint, []string{"User", "_id"}, driver)
		// A student may write email (no write list) and so knows it; kept apart by a model where he may do neither.
		_, err = w.engine.Mutation(ctx, as(user("u3", "student")), "User", parse(t, `{"email":"ada@x.io","firstName":"X"}`))
		refused(t, "a mutation does not find rows by a field that is not readable", err, model.Constraint, nil, append(driver, "Ada"))
		same(t, "untouched", w.query(t, internal(), "User($condition:@c){ firstName }", `{"c":{"_id":"u1"}}`)[0], `{"_id":"u1","firstName":"Ada"}`)
	})
}

// TestModelsThatRefuseWrites: views, archives, models with triggers, the sandbox.
func TestModelsThatRefuseWrites(t *testing.T) {
	p := sqlitePlace(t)
	if _, err := p.db.Exec(`CREATE VIEW "Seen" AS SELECT '1' AS "_id", 2 AS "n"`); err != nil {
		t.Fatal(err)
	}
	w := own(t, p, `[
		{"name":"Item","timestamps":false,"fields":{"_id":"string","n":"int"}},
		{"name":"Seen","view":true,"timestamps":false,"archive":false,"fields":{"_id":"string","n":"int"}},
		{"name":"Busy","timestamps":false,"fields":{"_id":"string","n":"int"},"relations":{"items":{"model":"Item","foreignField":"n"}},"triggers":{"insert":[{"into":"Item","op":"insert","data":{"_id":"x"}}]}}]`, engine.Config{})
	ctx, doc := t.Context(), parse(t, `{"_id":"x","n":1}`)
	_, err := w.engine.Insert(ctx, internal(), "Seen", doc)
	refused(t, "a view", err, model.ReadOnly, []string{"Seen"}, nil)
	_, err = w.engine.Insert(ctx, internal(), "Busy", doc)
	refused(t, "triggers", err, model.Unsupported, []string{"Busy", "triggers"}, nil)
	_, err = w.engine.Insert(ctx, as(user("u", "anyone")), "ItemDeleted", doc)
	refused(t, "an archive", err, model.Denied, []string{"ItemDeleted"}, nil)
	if _, err := w.engine.Insert(ctx, internal(), "ItemDeleted", doc); err != nil {
		t.Errorf("an archive, with full rights: %v", err)
	}
	var events []engine.Event
	call := engine.Call{Access: openRules(nil).For(user("u", "anyone")), Profile: plan.TextToQuery, Events: func(e engine.Event) { events = append(events, e) }}
	_, err = w.engine.Insert(ctx, call, "Item", doc)
	refused(t, "the sandbox", err, model.Sandbox, []string{"ERR_TEXT2QUERY:"}, nil)
	if len(events) != 1 || events[0].Type != "profile_blocked" {
		t.Errorf("events: %+v", events)
	}
	_, err = w.engine.Insert(ctx, engine.Call{Profile: plan.Standard}, "Item", doc)
	refused(t, "nobody", err, model.NoContext, nil, nil)
	if n, _ := w.engine.Count(ctx, internal(), "Item", canonjson.Value{}); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// TestRequiredAndTypes: what is required is asked for, also where a row might be there already; values are of their type.
func TestRequiredAndTypes(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[{"name":"Car","timestamps":false,"idPrefix":"CA","indexes":[{"keys":{"plate":1},"unique":true}],"fields":{"_id":"string","plate":{"type":"string","required":true},"seats":{"type":"int","required":true},"colour":{"type":"string","enum":["red","blue"]},"km":"long"}}]`, engine.Config{})
		ctx, none := t.Context(), canonjson.Value{}
		_, err := w.engine.Insert(ctx, internal(), "Car", parse(t, `{"plate":"A"}`))
		refused(t, "missing", err, model.BadValue, []string{"seats"}, []string{"plate"})
		_, err = w.engine.Insert(ctx, internal(), "Car", parse(t, `{"plate":"A","seats":null}`))
		refused(t, "null", err, model.BadValue, []string{"seats"}, nil)
		_, err = w.engine.Insert(ctx, internal(), "Car", parse(t, `{"plate":"A","seats":4,"colour":"pink"}`))
		refused(t, "no colour of these", err, model.BadValue, []string{"colour", "red"}, nil)
		_, err = w.engine.Insert(ctx, internal(), "Car", parse(t, `{"plate":"A","seats":4.5}`))
		refused(t, "half a seat", err, model.BadValue, []string{"seats"}, nil)
		_, err = w.engine.Upsert(ctx, internal(), "Car", parse(t, `{"plate":"A"}`), parse(t, `{"colour":"red"}`))
		refused(t, "upsert of a new one", err, model.BadValue, []string{"Car.seats"}, nil)
		doc, err := w.engine.Insert(ctx, internal(), "Car", parse(t, `{"plate":"A","seats":4,"km":9007199254740993}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.engine.Upsert(ctx, internal(), "Car", parse(t, `{"plate":"A"}`), parse(t, `{"colour":"red"}`))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "upsert of one that is there", got.Without("_id"), `{"plate":"A","seats":4,"colour":"red","km":9007199254740993}`)
		if got.Get("km").String() != "9007199254740993" {
			t.Errorf("km lost digits: %v", got)
		}
		got, err = w.engine.Mutation(ctx, internal(), "Car", canonjson.Object(canonjson.M("_id", doc.Get("_id")), canonjson.M("colour", canonjson.String("blue"))))
		if err != nil || got.Get("colour").Str() != "blue" {
			t.Errorf("mutation of one that is there: %v %v", got, err)
		}
		for _, change := range []string{`{"seats":null}`, `{"$unset":{"seats":1}}`, `{"$inc":{"plate":1}}`, `{"$inc":{"seats":0.5}}`} {
			_, err = w.engine.Update(ctx, internal(), "Car", parse(t, `{"plate":"A"}`), parse(t, change), none)
			refused(t, change, err, model.BadValue, nil, nil)
		}
	})
}

// TestMutationFindsChildrenByTheirParent: a unique index with the field that ties a child to its parent finds it, and a
// to-one child of a unique field is found by its parent.
func TestMutationFindsChildrenByTheirParent(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[
			{"name":"Ship","idPrefix":"SH","timestamps":false,"fields":{"_id":"string","name":"string"},"relations":{
				"berths":{"model":"Berth","foreignField":"shipId"},"log":{"model":"Log","type":"one","foreignField":"shipId"}}},
			{"name":"Berth","idPrefix":"BE","timestamps":false,"fields":{"_id":"string","shipId":"string","no":"int","free":"boolean"},"indexes":[{"keys":{"shipId":1,"no":1},"unique":true}]},
			{"name":"Log","idPrefix":"LO","timestamps":false,"fields":{"_id":"string","shipId":"string","text":"string"},"indexes":[{"keys":{"shipId":1},"unique":true}]}]`, engine.Config{})
		ctx := t.Context()
		if _, err := w.engine.Mutation(ctx, internal(), "Ship", parse(t, `{"_id":"s","name":"S","berths":[{"no":1,"free":true},{"no":2,"free":true}],"log":{"text":"a"}}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.engine.Mutation(ctx, internal(), "Ship", parse(t, `{"_id":"s","berths":[{"no":2,"free":false,"shipId":"elsewhere"},{"no":3,"free":true}],"log":{"text":"b"}}`)); err != nil {
			t.Fatal(err)
		}
		rows := w.query(t, internal(), "Ship{ name, berths($sort:@s){ no, free }, log { text } }", `{"s":{"no":1}}`)
		same(t, "ship", canonjson.Array(rows...), `[{"_id":"s","name":"S","berths":[{"no":1,"free":true},{"no":2,"free":false},{"no":3,"free":true}],"log":{"text":"b"}}]`)
		_, err := w.engine.Mutation(ctx, internal(), "Ship", parse(t, `{"_id":"t","berths":[{"no":1},{"no":1.5}]}`))
		refused(t, "a bad child", err, model.BadValue, []string{"Berth.no"}, nil)
		if n, _ := w.engine.Count(ctx, internal(), "Ship", canonjson.Value{}); n != 1 {
			t.Errorf("%d ships", n)
		}
	})
}

// TestCompositeKeys: the _id of several columns is the array of their texts; in data it is split.
func TestCompositeKeys(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := own(t, p, `[{"name":"Line","timestamps":false,"archive":false,"key":["orderNo","lineNo"],"fields":{"orderNo":"int","lineNo":"int","text":"string"}}]`, engine.Config{})
		ctx, none := t.Context(), canonjson.Value{}
		got, err := w.engine.Insert(ctx, internal(), "Line", parse(t, `{"orderNo":1,"lineNo":7,"text":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "by fields", got, `{"_id":"[\"1\",\"7\"]","orderNo":1,"lineNo":7,"text":"a"}`)
		got, err = w.engine.Insert(ctx, internal(), "Line", parse(t, `{"_id":"[\"1\",\"8\"]","text":"b"}`))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "by _id", got, `{"_id":"[\"1\",\"8\"]","orderNo":1,"lineNo":8,"text":"b"}`)
		_, err = w.engine.Insert(ctx, internal(), "Line", parse(t, `{"orderNo":1,"text":"c"}`))
		refused(t, "half a key", err, model.MissingID, []string{"lineNo"}, nil)
		_, err = w.engine.Insert(ctx, internal(), "Line", parse(t, `{"_id":"[\"1\",\"9\"]","lineNo":8}`))
		refused(t, "two keys", err, model.BadBody, []string{"lineNo"}, nil)
		_, err = w.engine.Insert(ctx, internal(), "Line", parse(t, `{"orderNo":1,"lineNo":7}`))
		refused(t, "twice", err, model.Constraint, []string{"orderNo", "lineNo"}, nil)
		got, err = w.engine.Update(ctx, internal(), "Line", parse(t, `{"_id":"[\"1\",\"7\"]"}`), parse(t, `{"text":"z","lineNo":99}`), none)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "update", got, `{"_id":"[\"1\",\"7\"]","orderNo":1,"lineNo":7,"text":"z"}`)
		removed, err := w.engine.Remove(ctx, internal(), "Line", parse(t, `{"_id":"[\"1\",\"8\"]"}`), none, true)
		if err != nil || removed != (engine.Removed{Deleted: 1}) {
			t.Errorf("remove: %+v %v", removed, err)
		}
		got, err = w.engine.Upsert(ctx, internal(), "Line", parse(t, `{"orderNo":1,"lineNo":7}`), parse(t, `{"text":"y"}`))
		if err != nil || got.Get("text").Str() != "y" {
			t.Errorf("upsert: %v %v", got, err)
		}
	})
}

// functionModels are models whose columns are computed in every way.
const functionModels = `[
	{"name":"Customer","timestamps":false,"fields":{"_id":"string","name":{"type":"string","default":"?"},"age":"long","size":"double"},
	 "relations":{"orders":{"model":"Order","foreignField":"customerId"},"best":{"model":"Order","type":"one","foreignField":"customerId"}},
	 "computes":{
		"kinds":{"fn":true,"depends":["age","size","name"]},
		"fails":{"type":"string","fn":true,"depends":["name"]},
		"crashes":{"type":"string","fn":true,"depends":["name"]},
		"nan":{"type":"float","fn":true,"depends":["name"]},
		"risk":{"type":"float","asyncFn":true,"depends":["orders{total}","name"]},
		"first":{"asyncFn":true,"depends":["best{total}"]},
		"halts":{"asyncFn":true,"depends":["name"]}}},
	{"name":"Order","timestamps":false,"fields":{"_id":"string","customerId":"string","total":"long"},"relations":{"customer":{"model":"Customer","type":"one","localField":"customerId","foreignField":"_id"}}}]`

// functions implement functionModels. batches records how many rows each run over all rows saw.
func functions(batches *[]int) engine.Functions {
	return engine.Functions{
		Row: map[string]func(map[string]any) (any, error){
			"kinds": func(doc map[string]any) (any, error) {
				return fmt.Sprintf("%T %T %v", doc["age"], doc["size"], doc["name"]), nil
			},
			"fails":            func(map[string]any) (any, error) { return nil, errors.New("password=hunter2") },
			"Customer.crashes": func(doc map[string]any) (any, error) { return doc["nothing"].(string), nil },
			"nan":              func(map[string]any) (any, error) { return math.NaN(), nil },
		},
		Rows: map[string]func(context.Context, []map[string]any, *model.Context) error{
			"risk": func(_ context.Context, rows []map[string]any, who *model.Context) error {
				*batches = append(*batches, len(rows))
				for _, row := range rows {
					sum := int64(0)
					for _, o := range row["orders"].([]any) {
						sum += o.(map[string]any)["total"].(int64)
					}
					if sum > 0 {
						row["risk"] = sum
					}
				}
				slices.Reverse(rows) // what it does to the slice is its own business
				return nil
			},
			"first": func(_ context.Context, rows []map[string]any, _ *model.Context) error {
				for _, row := range rows {
					row["first"] = row["best"]
				}
				return nil
			},
			"halts": func(context.Context, []map[string]any, *model.Context) error { panic("no") },
		},
	}
}

// TestFunctions: functions see what they depend on, run once over all rows where they are asked to, and fail with the
// name of their column and nothing else.
func TestFunctions(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		var batches []int
		w := own(t, p, functionModels, engine.Config{Functions: functions(&batches)})
		w.insert(t, "Customer", `[{"_id":"a","name":"A","age":3,"size":4},{"_id":"b","age":9007199254740993},{"_id":"c","name":"C"}]`)
		w.insert(t, "Order", `[{"_id":"o1","customerId":"a","total":5},{"_id":"o2","customerId":"a","total":6},{"_id":"o3","customerId":"b","total":9007199254740993}]`)
		ctx := t.Context()
		rows := w.query(t, internal(), "Customer{ kinds, risk, first }", `{}`)
		same(t, "rows", canonjson.Array(rows...), `[
			{"_id":"a","kinds":"int64 float64 A","risk":11,"first":{"total":5}},
			{"_id":"b","kinds":"int64 <nil> ?","risk":9007199254740993,"first":{"total":9007199254740993}},
			{"_id":"c","kinds":"<nil> <nil> C","risk":0,"first":null}]`)
		if got := rows[1].Get("risk").String(); got != "9007199254740993" {
			t.Errorf("an integer lost digits: %s", got)
		}
		// A relation that a function needs stands beside the same relation as it was asked for, and is not shown itself.
		rows = w.query(t, internal(), "Customer($condition:@c){ risk, orders($limit:@l){ _id } }", `{"c":{"_id":"a"},"l":1}`)
		same(t, "beside", rows[0], `{"_id":"a","risk":11,"orders":[{"_id":"o1"}]}`)
		// Inside a relation block it runs once over the rows of all parents.
		batches = nil
		w.query(t, internal(), "Order{ customer { risk } }", `{}`)
		if len(batches) != 1 || batches[0] < 2 {
			t.Errorf("runs over %v rows, want one run", batches)
		}
		batches = nil
		if rows := w.query(t, internal(), "Customer($limit:@l){ risk }", `{"l":0}`); len(rows) != 0 || len(batches) != 0 {
			t.Errorf("no rows: %v, runs %v", rows, batches)
		}
		for _, column := range []string{"fails", "crashes", "nan", "halts"} {
			_, err := w.engine.Query(ctx, internal(), "Customer{ name, "+column+" }", canonjson.Value{}, engine.Page{})
			refused(t, column, err, model.FailedFunction, []string{"Customer." + column}, []string{"hunter2", "panic", "interface"})
		}
		// After a write a function that fails leaves its column out: the write has happened.
		doc, err := w.engine.Insert(ctx, internal(), "Customer", parse(t, `{"_id":"d","age":1}`))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "write result", doc, `{"_id":"d","name":"?","age":1,"size":0,"kinds":"int64 float64 ?"}`)
	})
}

// TestMissingFunctions: an engine does not start without the functions of its models, nor without their sources.
func TestMissingFunctions(t *testing.T) {
	r := model.NewRegistry(model.Options{})
	if err := r.Register(parse(t, functionModels).Items()...); err != nil {
		t.Fatal(err)
	}
	var batches []int
	all := functions(&batches)
	sources := map[string]plan.Source{"default": &spy{}}
	if _, err := engine.New(engine.Config{Registry: r, Permission: openRules(nil), Sources: sources, Functions: all}); err != nil {
		t.Fatal(err)
	}
	_, err := engine.New(engine.Config{Registry: r, Permission: openRules(nil), Functions: all})
	refused(t, "no source", err, model.BadSchema, []string{"Customer", "default"}, nil)
	delete(all.Rows, "halts")
	_, err = engine.New(engine.Config{Registry: r, Permission: openRules(nil), Sources: sources, Functions: all})
	refused(t, "no function", err, model.MissingFunction, []string{"ERR_FN_MISSING", "Customer.halts"}, nil)
}

// TestCallsDoNotMeet runs calls of different people and profiles at once: each gets what it gets alone.
func TestCallsDoNotMeet(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := fixtures(t, p)
		type ask struct {
			call engine.Call
			gql  string
		}
		sandbox := func(who *model.Context) engine.Call {
			return engine.Call{Access: openRules(nil).For(who), Profile: plan.TextToQuery}
		}
		asks := []ask{
			{as(user("u3", "student")), "Enrollment{ userId }"},
			{as(user("u4", "student")), "Enrollment{ userId }"},
			{as(user("s1", "staff")), "User{ email, fullName }"},
			{as(user("u3", "student")), "User{ email, fullName }"},
			{sandbox(user("u3", "student")), "Category{ children { children { courses { lessons { title } } } } }"},
			{internal(), "Category{ children { children { courses { lessons { title } } } } }"},
			{sandbox(nil), "Course{ title }"},
			{as(user("u3", "student")), "AuditLog{ action }"},
		}
		say := func(a ask) string {
			got, err := w.engine.Query(t.Context(), a.call, a.gql, canonjson.Value{}, engine.Page{})
			if err != nil {
				return err.Error()
			}
			return canonjson.Array(got.Rows...).String()
		}
		alone := make([]string, len(asks))
		for i, a := range asks {
			alone[i] = say(a)
		}
		if len(slices.Compact(slices.Sorted(slices.Values(alone)))) != len(asks) {
			t.Fatalf("the calls are not all different: %q", alone)
		}
		var group sync.WaitGroup
		for n := range 8 {
			group.Go(func() {
				for k := range 3 * len(asks) {
					i := (k*5 + n) % len(asks)
					if got := say(asks[i]); got != alone[i] {
						t.Errorf("%s: %s\nalone %s", asks[i].gql, got, alone[i])
					}
				}
			})
		}
		group.Wait()
	})
}

// TestPages walks a query page by page: every row once, in order, whatever the size of a page.
func TestPages(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		w := fixtures(t, p)
		for _, gql := range []string{"Course{ title }", "Course($sort:@s){ title }", "Course($sort:@t){ title }", "Course($sort:@u){ title, teacher { firstName } }", "Course($group:@g){ status, n }"} {
			params := parse(t, `{"s":{"price":-1},"t":{"lessonCount":-1},"u":{"teacher.firstName":1},"g":{"by":["status"],"agg":{"n":{"$count":"*"}}}}`)
			whole, err := w.engine.Query(t.Context(), internal(), gql, params, engine.Page{})
			if err != nil {
				t.Fatal(gql, err)
			}
			for size := int64(1); size < 4; size++ {
				var rows []canonjson.Value
				var after *plan.Position
				for range 20 {
					a, err := w.engine.Query(t.Context(), internal(), gql, params, engine.Page{Limit: size, After: after})
					if err != nil {
						t.Fatal(gql, err)
					}
					rows = append(rows, a.Rows...)
					if after = a.Next; after == nil {
						break
					}
				}
				if got, want := canonjson.Array(rows...), canonjson.Array(whole.Rows...); got.String() != want.String() {
					t.Errorf("%s by %d:\n got %v\nwant %v", gql, size, got, want)
				}
			}
		}
	})
}

// TestEvents: what was left out of a write is told.
func TestEvents(t *testing.T) {
	w := fixtures(t, sqlitePlace(t))
	var events []engine.Event
	call := as(user("u1", "teacher"))
	call.Events = func(e engine.Event) { events = append(events, e) }
	if _, err := w.engine.Mutation(t.Context(), call, "Course", parse(t, `{"title":"B","code":"B1","cost":9,"audits":[{"action":"x"}]}`)); err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, e := range events {
		types = append(types, e.Type+" "+e.Code)
	}
	if want := []string{"mutation_degraded relationSkipped", "fields_dropped fieldsDropped"}; !slices.Equal(types, want) {
		t.Errorf("events %q, want %q", types, want)
	}
}

// TestStrictWrites: where it is configured, a field that the caller may not write is refused; one that he cannot read
// either, in the words of one that does not exist.
func TestStrictWrites(t *testing.T) {
	w := own(t, sqlitePlace(t), `[{"name":"A","timestamps":false,"idPrefix":"A","fields":{"_id":"string","a":"string","shown":{"type":"string","write":["boss"]},"hiddenx":{"type":"string","read":["boss"],"write":["boss"]}}}]`, engine.Config{Strict: true})
	call, ctx := as(user("u", "clerk")), t.Context()
	_, err := w.engine.Insert(ctx, call, "A", parse(t, `{"a":"1","shown":"2"}`))
	refused(t, "shown", err, model.Denied, []string{"A.shown"}, nil)
	_, hidden := w.engine.Insert(ctx, call, "A", parse(t, `{"hiddenx":"2"}`))
	_, unknown := w.engine.Insert(ctx, call, "A", parse(t, `{"hiddeny":"2"}`))
	refused(t, "hidden", hidden, model.UnknownField, nil, nil)
	if hidden == nil || unknown == nil || strings.ReplaceAll(hidden.Error(), "hiddenx", "hiddeny") != unknown.Error() {
		t.Errorf("a hidden field differs from an unknown one:\n%v\n%v", hidden, unknown)
	}
}
