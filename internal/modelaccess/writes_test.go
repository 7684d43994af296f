//go:build unix

package modelaccess_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
)

// bodies are new rows without the field in question.
var bodies = map[string]string{
	"Team": `"_id":"t9","name":"New"`, "Worker": `"name":"New","teamId":"t1"`, "Note": `"text":"new","teamId":"t1"`, "Audit": `"teamId":"t1"`, "Vault": `"teamId":"t1"`, "Seal": `"teamId":"t1"`,
	"Plain": `"word":"new"`, "Account": `"tenant":"eu","total":1`, "WorkerDeleted": `"_id":"w9"`, "NoteDeleted": `"_id":"n9"`,
}

// changed are fields that a writer of the model may change, with a value.
var changed = map[string]string{"Team": `"city":"Bonn"`, "Worker": `"name":"Changed"`, "Note": `"text":"changed"`, "Audit": `"action":"x"`, "Vault": `"combination":"0"`, "Seal": `"label":"x"`, "Plain": `"word":"x"`, "Account": `"remark":"x"`, "WorkerDeleted": `"name":"x"`}

// firstRow is a row of each model.
var firstRow = map[string]string{"Team": "t1", "Worker": "w1", "Note": "n1", "Audit": "a1", "Vault": "v1", "Seal": "s1", "Plain": "p1", "Account": "c1"}

// tables are those that a write may touch.
func (w *world) tables() []string {
	var out []string
	for _, m := range w.perModel.Registry.List() {
		out = append(out, m.Collection)
	}
	return out
}

// keep copies the rows, for restore.
func (w *world) keep(t *testing.T) {
	t.Helper()
	for _, name := range w.tables() {
		w.perModel.Place.Exec(t, fmt.Sprintf(`CREATE TABLE "kept_%[1]s" AS SELECT * FROM "%[1]s"`, name))
	}
}

// restore puts the rows of a model, and of its archive, back.
func (w *world) restore(t *testing.T, model string) {
	t.Helper()
	m := w.perModel.Registry.Get(model)
	if m == nil {
		return
	}
	list := []string{m.Collection}
	if m.Archive != nil {
		list = append(list, m.Archive.Collection)
	}
	for _, name := range list {
		w.perModel.Place.Exec(t, `DELETE FROM "`+name+`"`, fmt.Sprintf(`INSERT INTO "%[1]s" SELECT * FROM "kept_%[1]s"`, name))
	}
}

// write makes one write on every surface, with the rows put back after each. look reads the outcome of a success, with the
// row's _id.
func (w *world) write(t *testing.T, who site.Who, on, verb, args string, look func(a site.Answer) string) map[string]string {
	t.Helper()
	m, _ := split(on)
	out := map[string]string{}
	for surface, call := range w.writers(t, who, m, verb, args) {
		a := call(w)
		verdict := ""
		if a.OK {
			verdict = look(a)
		} else {
			verdict = refusal(a, call(w.withoutIt(t, on)))
			if strings.HasPrefix(a.Message, "ERR_NO_FIELDS:") {
				verdict = "dropped"
			}
		}
		out[surface] = verdict
		w.restore(t, m)
	}
	return out
}

// writers are the surfaces that write: the engine, the model's tool, and the generic tool.
func (w *world) writers(t *testing.T, who site.Who, m, verb, args string) map[string]func(*world) site.Answer {
	in := site.JSON(t, "{"+args+"}")
	out := map[string]func(*world) site.Answer{"engine": func(w *world) site.Answer {
		c, e := w.perModel.As(who), w.perModel.Engine
		id := canonjson.Object(canonjson.M("_id", in.Get("id")))
		switch verb {
		case "create":
			v, err := e.Insert(t.Context(), c, m, in.Get("body"))
			return fromEngine(canonjson.Object(canonjson.M("row", v)), err)
		case "update":
			v, err := e.Update(t.Context(), c, m, id, in.Get("set"), canonjson.Value{})
			return fromEngine(canonjson.Object(canonjson.M("row", v)), err)
		}
		r, err := e.Remove(t.Context(), c, m, id, canonjson.Value{}, true)
		return fromEngine(canonjson.Object(canonjson.M("deletedCount", canonjson.Int(r.Deleted))), err)
	}}
	if who.Nobody {
		return out
	}
	if !strings.HasSuffix(m, "Deleted") {
		out[verb+"_"+m] = func(w *world) site.Answer { return w.perModel.Call(t, who, verb+"_"+m, "{"+args+"}") }
	}
	out["generic "+verb] = func(w *world) site.Answer {
		return w.generic.Call(t, who, "model_"+verb, `{"model":"`+m+`",`+args+`}`)
	}
	return out
}

// stored is what a row holds of a field, asked with every right.
func (w *world) stored(t *testing.T, m, field string, id canonjson.Value) string {
	t.Helper()
	v, err := w.perModel.Pure.QueryOne(t.Context(), w.perModel.Internal(), m+"($condition: @c) { "+field+" }", canonjson.Object(canonjson.M("c", canonjson.Object(canonjson.M("_id", id)))))
	if err != nil {
		t.Fatal(err)
	}
	return v.Get(field).String()
}

// creatingWith creates a row with the field.
func creatingWith(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	m, f := split(on)
	return w.write(t, who, on, "create", `"body":{`+bodies[m]+`,"`+f+`":`+samples[on]+`}`, func(a site.Answer) string {
		if w.stored(t, m, f, a.Value.Get("row").Get("_id")) == samples[on] {
			return "stored"
		}
		return "dropped"
	})
}

// others are values that no row holds.
var others = map[string]string{"Worker.salary": "1", "Worker.pincode": `"1"`, "Worker.grade": `"z"`, "Worker.name": `"Z"`, "Plain.locked": `"z"`, "Plain.word": `"z"`, "Team.budget": "1", "Account.total": "1", "Account.remark": `"z"`, "Account.holder": `"z"`, "Account.tenant": `"us"`}

// updatingWith changes the field of a row.
func updatingWith(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	m, f := split(on)
	return w.write(t, who, on, "update", `"id":"`+firstRow[m]+`","set":{"`+f+`":`+others[on]+`}`, func(a site.Answer) string {
		if w.stored(t, m, f, canonjson.String(firstRow[m])) == others[on] {
			return "stored"
		}
		return "dropped"
	})
}

// rowShows tells whether a written row shows a field.
func rowShows(field string) func(site.Answer) string {
	return func(a site.Answer) string {
		if a.Value.Get("row").Get(field).IsAbsent() {
			return "left out"
		}
		return "shown"
	}
}

// createShows and updateShows look at what a write shows of the row.
func createShows(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	m, f := split(on)
	return w.write(t, who, on, "create", `"body":{`+bodies[m]+`,"`+f+`":`+samples[on]+`}`, rowShows(f))
}

func updateShows(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	m, f := split(on)
	return w.write(t, who, on, "update", `"id":"`+firstRow[m]+`","set":{`+changed[m]+`}`, rowShows(f))
}

// creating, updating and deleting write a row of a model.
func creating(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	return w.write(t, who, on, "create", `"body":{`+bodies[on]+`}`, func(a site.Answer) string {
		if on == "Note" {
			return "done as " + w.stored(t, on, "createdBy", a.Value.Get("row").Get("_id"))
		}
		return "done"
	})
}

func updating(w *world, t *testing.T, who site.Who, on, arg string) map[string]string {
	return w.write(t, who, on, "update", `"id":"`+arg+`","set":{`+changed[on]+`}`, func(a site.Answer) string {
		if a.Value.Get("row").Kind() == canonjson.KindNull {
			return "no row"
		}
		return "done"
	})
}

func deleting(w *world, t *testing.T, who site.Who, on, arg string) map[string]string {
	return w.write(t, who, on, "delete", `"id":"`+arg+`"`, func(a site.Answer) string {
		if n, _ := a.Value.Get("deletedCount").Int(); n == 0 {
			return "no row"
		}
		return "done"
	})
}

// updatingByText changes the row that a condition finds, which is not its key: field=value.
func updatingByText(w *world, t *testing.T, who site.Who, on, arg string) map[string]string {
	f, v, _ := strings.Cut(arg, "=")
	condition := site.JSON(t, `{"`+f+`":`+v+`}`)
	row, err := w.perModel.Engine.Update(t.Context(), w.perModel.As(who), on, condition, site.JSON(t, "{"+changed[on]+"}"), canonjson.Value{})
	n, errMany := w.perModel.Engine.UpdateMany(t.Context(), w.perModel.As(who), on, condition, site.JSON(t, "{"+changed[on]+"}"))
	w.restore(t, on)
	out := map[string]string{}
	for surface, e := range map[string]error{"engine, one": err, "engine, many": errMany} {
		switch {
		case e != nil:
			out[surface] = refusal(fromEngine(canonjson.Null(), e), site.Answer{})
		case surface == "engine, one" && row.Kind() == canonjson.KindNull, surface == "engine, many" && n == 0:
			out[surface] = "no row"
		default:
			out[surface] = "done"
		}
	}
	return out
}
