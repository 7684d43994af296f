//go:build unix

package injection

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
)

// effect is what a write may change when it succeeds.
type effect int

// The effects.
const (
	never    effect = iota // the string is no name of anything, or names no row
	creates                // one row of orders or customers more
	changes1               // the row o1 of orders, and no other
)

// write is a position in a writing call.
type write struct {
	position
	effect effect
	field  string // that holds the string afterwards, exactly; "" when it is not stored
}

// writes are the positions of calls that write.
func writes() []write {
	w := func(name, tool, form string, e effect, field string) write {
		return write{position{name: name, tool: tool, args: in(form)}, e, field}
	}
	out := []write{
		w("create: key", "create_Order", `{"body":{%s:1}}`, never, ""),
		w("create: key beside a field", "create_Order", `{"body":{"title":"a",%s:"b"}}`, never, ""),
		w("create: the body", "create_Order", `{"body":%s}`, never, ""),
		w("create: _id", "create_Customer", `{"body":{"_id":%s,"name":"a"}}`, creates, "_id"),
		w("create: part of an id of two columns", "create_Line", `{"body":{"orderId":%s,"no":1}}`, creates, "orderId"),
		w("create: idempotencyKey", "create_Order", `{"body":{"title":"a"},"idempotencyKey":%s}`, creates, ""),
		w("create: argument", "create_Order", `{"body":{"title":"a"},%s:1}`, never, ""),
		w("update: id", "update_Order", `{"id":%s,"set":{"title":"a"}}`, never, ""),
		w("update: id of two columns", "update_Line", `{"id":%s,"set":{"note":"a"}}`, never, ""),
		w("update: key", "update_Order", `{"id":"o1","set":{%s:1}}`, never, ""),
		w("update: key of $set", "update_Order", `{"id":"o1","set":{"$set":{%s:1}}}`, never, ""),
		w("update: key of $inc", "update_Order", `{"id":"o1","set":{"$inc":{%s:1}}}`, never, ""),
		w("update: key of $unset", "update_Order", `{"id":"o1","set":{"$unset":{%s:1}}}`, never, ""),
		w("update: operator", "update_Order", `{"id":"o1","set":{%s:{"title":"a"}}}`, never, ""),
		w("update: the change", "update_Order", `{"id":"o1","set":%s}`, never, ""),
		w("update: $inc", "update_Order", `{"id":"o1","set":{"$inc":{"qty":%s}}}`, changes1, ""),
		w("update: $unset", "update_Order", `{"id":"o1","set":{"$unset":{"note":%s}}}`, changes1, ""),
		w("update: version", "update_Order", `{"id":"o1","set":{"title":"a"},"expectedVersion":%s}`, never, ""),
		w("update: idempotencyKey", "update_Order", `{"id":"o1","set":{"title":"a"},"idempotencyKey":%s}`, changes1, ""),
		w("delete: id", "delete_Order", `{"id":%s}`, never, ""),
		w("delete: id of two columns", "delete_Line", `{"id":%s}`, never, ""),
		w("delete: version", "delete_Order", `{"id":"o1","expectedVersion":%s}`, never, ""),
		w("generic create: model", "model_create", `{"model":%s,"body":{"title":"a"}}`, never, ""),
		w("generic create: key", "model_create", `{"model":"Order","body":{%s:1}}`, never, ""),
		w("generic update: model", "model_update", `{"model":%s,"id":"o1","set":{"title":"a"}}`, never, ""),
		w("generic update: id", "model_update", `{"model":"Order","id":%s,"set":{"title":"a"}}`, never, ""),
		w("generic update: value", "model_update", `{"model":"Order","id":"o1","set":{"title":%s}}`, changes1, "title"),
		w("generic delete: model", "model_delete", `{"model":%s,"id":"o1"}`, never, ""),
		w("generic delete: id", "model_delete", `{"model":"Order","id":%s}`, never, ""),
	}
	for _, f := range []string{"title", "price", "qty", "total", "paid", "at", "day", "ref", "amount", "data", "tags", "meta", "free", "state", "customerId"} {
		stored := map[string]string{"title": "title", "customerId": "customerId", "free": "free"}[f]
		out = append(out, w("create: value of "+f, "create_Order", `{"body":{"`+f+`":%s}}`, creates, stored),
			w("update: value of "+f, "update_Order", `{"id":"o1","set":{"`+f+`":%s}}`, changes1, stored))
	}
	return append(out,
		w("create: value in a list", "create_Order", `{"body":{"tags":[%s,{%s:%s}]}}`, creates, ""),
		w("create: value in an object", "create_Order", `{"body":{"meta":{"lang":%s}}}`, creates, ""),
		w("create: key in an object", "create_Order", `{"body":{"free":{%s:1}}}`, creates, ""),
		w("update: value of $set", "update_Order", `{"id":"o1","set":{"$set":{"title":%s}}}`, changes1, "title"),
	)
}

// kept is the table that remembers idempotency keys.
const kept = "tabellion_idempotency"

// state is every row of every table.
func (w *world) state(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, table := range w.Tables(t) {
		if table != kept && !strings.HasPrefix(table, "before_") {
			out[table] = w.Rows(t, table)
		}
	}
	return out
}

// keep copies the tables, for restore.
func (w *world) keep(t *testing.T) {
	t.Helper()
	for _, table := range []string{"orders", "customers", "lines"} {
		w.Exec(t, fmt.Sprintf(`CREATE TABLE "before_%[1]s" AS SELECT * FROM "%[1]s"`, table))
	}
}

// restore puts the rows back. lines are those that differ.
func (w *world) restore(t *testing.T, lines []string) {
	t.Helper()
	tx, err := w.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	run := func(statement string) {
		if _, err := tx.Exec(statement); err != nil {
			t.Fatalf("%v\n%s", err, statement)
		}
	}
	done := map[string]bool{}
	for _, l := range lines {
		table, _, _ := strings.Cut(l, " ")
		if done[table] {
			continue
		}
		done[table] = true
		run(`DELETE FROM "` + table + `"`)
		if !strings.HasSuffix(table, "_deleted") {
			run(fmt.Sprintf(`INSERT INTO "%[1]s" SELECT * FROM "before_%[1]s"`, table))
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// diff is what differs between two states: lines that are gone, and new ones.
func diff(a, b map[string][]string) (gone, added []string) {
	for table := range b {
		for _, l := range a[table] {
			if !slices.Contains(b[table], l) {
				gone = append(gone, table+" "+l)
			}
		}
		for _, l := range b[table] {
			if !slices.Contains(a[table], l) {
				added = append(added, table+" "+l)
			}
		}
	}
	return gone, added
}

// fits tells whether a difference is one that the effect allows.
func (e effect) fits(gone, added []string) bool {
	switch e {
	case creates:
		return len(gone) == 0 && len(added) <= 1 // none: a repeated key
	case changes1:
		o1 := func(l string) bool { return strings.HasPrefix(l, `orders _id=string:"o1" `) }
		return len(gone) == len(added) && len(gone) <= 1 && !slices.ContainsFunc(append(gone, added...), func(l string) bool { return !o1(l) })
	}
	return len(gone)+len(added) == 0
}

// mayChange tells whether a string that is no name elsewhere is one here, so that the call may succeed.
func (w write) mayChange(s string) effect {
	switch {
	case w.effect != never:
		return w.effect
	case w.name == "create: the body" && s == "{}":
		return creates
	case strings.HasPrefix(w.name, "update: ") && w.name != "update: id" && w.name != "update: version", w.name == "generic update: id":
		if slices.Contains([]string{"title", "$set", "$unset"}, s) {
			return changes1
		}
	}
	return never
}

// TestWrites puts every string into every position of writing calls. A call that is refused changes nothing; one that
// succeeds changes the row that it names, and what it stored is the string itself, character for character.
func TestWrites(t *testing.T) {
	t.Parallel()
	site.Each(t, func(t *testing.T, p *site.Place) {
		t.Parallel()
		w := newWorld(t, p)
		w.keep(t)
		before, sum := w.state(t), p.Checksum(t, kept)
		calls, refused, stored := 0, 0, 0
		for _, pos := range writes() {
			wrong := 0
			complain := func(s, problem, said string) {
				if wrong++; wrong <= 3 {
					t.Errorf("%s, %.120q: %s\n  %.600s", pos.name, s, problem, said)
				}
			}
			try := func(s, args string) {
				calls++
				a := w.surface(pos.tool).Call(t, clerk, pos.tool, args)
				if problem := judge(a, s); problem != "" {
					complain(s, problem, a.Said)
				}
				if !a.OK {
					refused++
					if pos.field != "" && pos.tool != "create_Line" && args == pos.args(s) && !strings.Contains(s, "\x00") {
						complain(s, "text that can be stored is refused", a.Said)
					}
					return
				}
				gone, added := diff(before, w.state(t))
				if !pos.mayChange(s).fits(gone, added) {
					complain(s, "changed more than the row that it names", strings.Join(gone, "\n  ")+"\n  ->\n  "+strings.Join(added, "\n  "))
				}
				if pos.field != "" && args == pos.args(s) && !w.holds(t, pos, a, s) {
					complain(s, "something else was stored", a.Said)
				}
				if len(gone)+len(added) > 0 {
					stored++
					w.restore(t, append(gone, added...))
				}
			}
			for _, s := range sample() {
				try(s, pos.args(s))
			}
			for _, raw := range rawValues() {
				if args := pos.args("\x00raw"); strings.Contains(args, `:"\u0000raw"`) && !strings.Contains(args, `"\u0000raw":`) {
					try(raw, strings.ReplaceAll(args, `"\u0000raw"`, raw))
				}
			}
			w.Exec(t, `DELETE FROM "`+kept+`"`)
			if p.Checksum(t, kept) != sum {
				t.Errorf("%s: a refused call changed something", pos.name)
				gone, added := diff(before, w.state(t))
				w.restore(t, append(gone, added...))
			}
		}
		checkStatements(t, w)
		checkLog(t, w)
		if stored < calls/50 {
			t.Errorf("only %d of %d calls wrote: the other half of the test saw nothing", stored, calls)
		}
		t.Logf("%d calls: %d refused, %d wrote", calls, refused, stored)
	})
}

// holds tells whether the row that a call wrote shows the very string, in the answer and when it is read again.
func (w *world) holds(t *testing.T, pos write, a site.Answer, s string) bool {
	t.Helper()
	row := a.Value.Get("row")
	if row.Get(pos.field).Str() != s {
		return false
	}
	get := map[string]string{"create_Customer": "get_Customer", "create_Line": "get_Line"}[pos.tool]
	if get == "" {
		get = "get_Order"
	}
	again := w.perModel.Call(t, clerk, get, `{"id":`+string(row.Get("_id").AppendJSON(nil))+`}`)
	return again.OK && again.Value.Get("row").Get(pos.field).Equal(canonjson.String(s))
}
