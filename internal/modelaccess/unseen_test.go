//go:build unix

package modelaccess_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// unseen is what a caller cannot see, by hand: fields in every row, and whole rows of a model but for those that are named.
// Keys and the fields that relations join on are left alone.
type unseen struct {
	fields []string
	rows   map[string][]string // model -> keys of rows that he does see
}

// sights are what callers cannot see.
var sights = map[string]unseen{
	"staff": {
		[]string{"Worker.salary", "Worker.pincode", "Worker.home", "Team.budget", "WorkerDeleted.salary"},
		map[string][]string{"Note": nil, "NoteDeleted": nil, "Audit": nil, "AuditDeleted": nil, "Vault": nil, "VaultDeleted": nil, "Seal": nil, "SealDeleted": nil, "Plain": nil, "Account": nil},
	},
	"trainee": {
		[]string{"Worker.salary", "Worker.pincode", "Worker.grade", "Worker.home", "Team.budget", "WorkerDeleted.salary"},
		map[string][]string{"Worker": {"w1", "w2"}, "WorkerDeleted": {"w8"}, "Note": nil, "Audit": nil, "Vault": nil, "Seal": nil, "SealDeleted": nil, "Account": nil},
	},
	"ana": {
		[]string{"Team.budget"},
		map[string][]string{"Note": {"n1", "n2"}, "NoteDeleted": {"n8"}, "Worker": nil, "WorkerDeleted": nil, "Audit": nil, "Vault": nil, "Seal": nil, "Account": nil, "Plain": nil},
	},
	"drifter": {
		[]string{"Team.budget"},
		map[string][]string{"Note": nil, "NoteDeleted": nil, "Worker": nil, "Audit": nil, "Vault": nil, "Seal": nil, "Account": nil},
	},
	"analyst": {
		[]string{"Account.holder", "Account.remark"},
		map[string][]string{"Account": {"c1", "c2"}, "Team": nil, "Worker": nil, "Note": nil, "Audit": nil, "Vault": nil, "Seal": nil},
	},
	"stateless": {nil, map[string][]string{"Account": nil, "Team": nil, "Worker": nil, "Note": nil, "Audit": nil}},
	"guest":     {nil, map[string][]string{"Account": nil, "Team": nil, "Worker": nil, "Note": nil, "Audit": nil, "Vault": nil, "Seal": nil, "Plain": nil}},
}

// stays are fields that are left alone: keys, joins, who owns a row, and which rows a grant is about.
var stays = []string{"_id", "teamId", "createdBy", "tenant", "createdAt", "updatedAt", "deletedAt"}

// otherwise is a seed that differs in what the caller cannot see, and in nothing else: other values, values where there
// were none, and more rows that are not his.
func (u unseen) otherwise(t *testing.T, seed string) string {
	t.Helper()
	var models []canonjson.Member
	for _, m := range site.JSON(t, seed).Members() {
		var rows []canonjson.Value
		seen, limited := u.rows[m.Name]
		for _, r := range m.Value.Items() {
			whole := limited && !slices.Contains(seen, r.Get("_id").Str())
			var members []canonjson.Member
			for _, f := range r.Members() {
				if !slices.Contains(stays, f.Name) && (whole || slices.Contains(u.fields, m.Name+"."+f.Name)) {
					f.Value = another(f.Value)
				}
				members = append(members, f)
			}
			rows = append(rows, canonjson.Object(members...))
		}
		if extra := more[m.Name]; limited && extra != "" && !(len(seen) > 0 && m.Name == "Worker") {
			rows = append(rows, site.JSON(t, extra).Items()...)
		}
		models = append(models, canonjson.M(m.Name, canonjson.Array(rows...)))
	}
	return canonjson.Object(models...).String()
}

// more are rows that nobody of these sees who is limited to some rows of the model.
var more = map[string]string{
	"Worker": `[{"_id":"w90","name":"Zed","teamId":"t2","salary":9},{"_id":"w91","name":"Ada","teamId":"t3"}]`, "Note": `[{"_id":"n90","text":"of zed","rate":70,"teamId":"t3","createdBy":"zed"},{"_id":"n00","rate":1,"teamId":"t1"}]`,
	"Audit": `[{"_id":"a90","action":"new","teamId":"t3"}]`, "Vault": `[{"_id":"v90","teamId":"t2"}]`, "Seal": `[{"_id":"s90","label":"new","teamId":"t3"}]`, "Account": `[{"_id":"c90","holder":"Zoe","tenant":"zz","total":7}]`,
	"Plain": `[{"_id":"p90","word":"new"}]`,
}

// another is another value of the same kind.
func another(v canonjson.Value) canonjson.Value {
	switch v.Kind() {
	case canonjson.KindNumber:
		return canonjson.Int(int64(v.Float())*7 + 13)
	case canonjson.KindString:
		return canonjson.String("!" + v.Str() + "-other")
	case canonjson.KindObject:
		return canonjson.Object(canonjson.M("town", v.Get("town")), canonjson.M("street", canonjson.String("Oak 900"))) // staff may read the town
	}
	return v
}

// call is one generated call: what it says, and how it is made of a world.
type call struct {
	text string
	make func(w *world, who site.Who) string // every byte of the answer
}

// vocabulary is what calls are made of.
type vocabulary struct {
	models, names, relations []string
	// own are the names of each model: what calls mostly use, so that most of them are answered.
	own map[string]map[string]string // model -> name -> type, or the model that a relation leads to
}

// words are everything that definitions name and rows hold, but for some names.
func wordsOf(t *testing.T, except ...string) *vocabulary {
	t.Helper()
	v := &vocabulary{own: map[string]map[string]string{}}
	add := func(to *[]string, name string) {
		if !slices.Contains(*to, name) && !slices.Contains(except, name) {
			*to = append(*to, name)
		}
	}
	for _, d := range site.JSON(t, read(t, "models.json")).Items() {
		for _, m := range []string{d.Get("name").Str(), d.Get("name").Str() + "Deleted", d.Get("name").Str() + "x"} {
			if !slices.Contains(except, d.Get("name").Str()) {
				add(&v.models, m)
			}
		}
		v.own[d.Get("name").Str()] = map[string]string{"_id": "string"}
		for _, kind := range []string{"fields", "computes", "relations"} {
			for _, m := range d.Get(kind).Members() {
				add(&v.names, m.Name)
				if slices.Contains(except, m.Name) {
					continue
				}
				what := m.Value.Str() + m.Value.Get("type").Str()
				if kind == "relations" {
					what = m.Value.Get("model").Str()
				}
				v.own[d.Get("name").Str()][m.Name] = what
				if kind == "relations" {
					add(&v.relations, m.Name)
				}
			}
		}
	}
	for _, near := range []string{"salar", "pincodes", "budge", "textt", "zzz", "createdAt", "home.street", "home.town", "team.budget", "team.name", "workers.name", "barre", "vault"} {
		if !slices.ContainsFunc(except, func(e string) bool { return strings.Contains(near, e) }) {
			add(&v.names, near)
		}
	}
	for range 3 { // models that can be read mostly, beside those that cannot
		for m := range v.own {
			v.models = append(v.models, m)
		}
	}
	slices.Sort(v.models)
	return v
}

// seen is what calls are made of that use only what the caller is told of: so that there are answers to compare, beside
// refusals.
func (w *world) seen(t *testing.T, who site.Who) *vocabulary {
	t.Helper()
	v := &vocabulary{own: map[string]map[string]string{}}
	for _, d := range w.perModel.Engine.Describe(t.Context(), w.perModel.As(who)).Items() {
		m := d.Get("name").Str()
		v.models, v.own[m] = append(v.models, m), map[string]string{"_id": "string"}
		for _, f := range d.Get("fields").Members() {
			v.own[m][f.Name], v.names = f.Value.Str(), append(v.names, f.Name)
		}
		for _, r := range d.Get("relations").Members() {
			v.own[m][r.Name], v.names = r.Value.Get("model").Str(), append(v.names, r.Name)
			v.relations = append(v.relations, r.Name)
		}
		for _, c := range d.Get("computes").Members() {
			v.own[m][c.Name], v.names = "column", append(v.names, c.Name)
		}
	}
	if len(v.relations) == 0 {
		v.relations = []string{"workers"}
	}
	return v
}

// next is a random call: mostly of what the caller is told of, else of everything there is.
func next(r *rand.Rand, seen, all *vocabulary) call {
	if r.IntN(3) > 0 && len(seen.models) > 0 {
		return seen.next(r)
	}
	return all.next(r)
}

// pick is one of a list.
func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

// name is a name to use of a model: mostly one of its own, of a kind that fits.
func (v *vocabulary) name(r *rand.Rand, m string, fits func(what string) bool) string {
	if r.IntN(8) == 0 {
		return pick(r, v.names)
	}
	var list []string
	for name, what := range v.own[strings.TrimSuffix(m, "Deleted")] {
		if fits(what) {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		return pick(r, v.names)
	}
	slices.Sort(list)
	return pick(r, list)
}

// scalar, numeric and leads are kinds of names.
func scalar(what string) bool  { return what == "string" || what == "int" }
func numeric(what string) bool { return what == "int" }
func (v *vocabulary) leads(what string) bool {
	return v.own[what] != nil
}

// value is a value for a field, mostly of its type and often one that a row holds.
func (v *vocabulary) value(r *rand.Rand, what string) string {
	texts := []string{`"Ada"`, `"t1"`, `"w1"`, `"7301"`, `"b"`, `"ana"`, `"eu"`, `"Eva"`, `"n3"`, `"M"`}
	numbers := []string{"5100", "700", "0", "3", "90", "10", "4"}
	switch {
	case r.IntN(12) == 0:
		return pick(r, []string{"null", "true", `{}`, `["t1"]`})
	case what == "int":
		return pick(r, numbers)
	}
	return pick(r, texts)
}

// test is a test of a field.
func (v *vocabulary) test(r *rand.Rand, what string) string {
	op := pick(r, []string{"$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$exists", "$in", "$nin", "$regex", "$not"})
	value := v.value(r, what)
	switch op {
	case "$in", "$nin":
		value = "[" + value + "]"
	case "$exists":
		value = pick(r, []string{"true", "false"})
	case "$regex":
		value = pick(r, []string{`"^A"`, `"."`, `"7"`})
	case "$not":
		value = `{"$eq":` + value + `}`
	}
	return `{"` + op + `":` + value + `}`
}

// condition is a condition object on a model.
func (v *vocabulary) condition(r *rand.Rand, m string, depth int) string {
	n := r.IntN(10)
	field := v.name(r, m, scalar)
	relation := v.name(r, m, v.leads)
	target := v.own[m][relation]
	switch {
	case n < 5 || depth > 1:
		return `{"` + field + `":` + v.test(r, v.own[m][field]) + `}`
	case n < 6:
		return `{"` + pick(r, []string{"$and", "$or", "$nor"}) + `":[` + v.condition(r, m, depth+1) + `,` + v.condition(r, m, depth+1) + `]}`
	case n < 8:
		return `{"` + relation + `":{"$filter":` + v.condition(r, target, depth+2) + `,"$exists":` + pick(r, []string{"true", "false"}) + `}}`
	}
	return `{"` + relation + `":{"` + pick(r, []string{"$count", "$max", "$min"}) + `":{"$of":"` + v.name(r, target, numeric) + `","` + pick(r, []string{"$gt", "$lte", "$ne"}) + `":` + v.value(r, "int") + `}}}`
}

// block is a selection.
func (v *vocabulary) block(r *rand.Rand, m string, depth int) string {
	out := "{ _id"
	for range r.IntN(4) {
		name := v.name(r, m, func(what string) bool { return depth < 2 || !v.leads(what) })
		if target := v.own[m][name]; v.leads(target) || slices.Contains(v.relations, name) {
			if depth > 1 {
				continue
			}
			name += " " + v.block(r, target, depth+1)
		}
		out += ", " + name
	}
	return out + " }"
}

// read is a random reading call.
func (v *vocabulary) read(r *rand.Rand) call {
	q := ask{model: pick(r, v.models)}
	q.block = v.block(r, q.model, 0)
	if r.IntN(2) == 0 {
		q.condition = v.condition(r, q.model, 0)
	}
	if r.IntN(3) == 0 {
		q.sort = `{"` + v.name(r, q.model, scalar) + `":` + pick(r, []string{"1", "-1"}) + `}`
	}
	if r.IntN(4) == 0 {
		by := v.name(r, q.model, scalar)
		q.group = `{"by":["` + by + `"],"agg":{"zn":{"` + pick(r, []string{"$count", "$sum", "$max"}) + `":"` + v.name(r, q.model, numeric) + `"}}}`
		q.block, q.sort = "{ zn }", ""
	}
	if r.IntN(3) == 0 && q.group == "" {
		q.limit = 1 + r.IntN(2)
	}
	return call{fmt.Sprintf("%+v", q), func(w *world, who site.Who) string { return w.everySurface(who, q) }}
}

// everySurface is what all surfaces say, with the pages that follow.
func (w *world) everySurface(who site.Who, q ask) string {
	t := w.t
	var b strings.Builder
	for _, a := range w.ask(t, who, q) {
		fmt.Fprintf(&b, "%s: %s\n", a.surface, a.Said)
		cursor := a.Value.Get("next_cursor").Str()
		rest, params := q.text()
		for page := 0; page < 3 && cursor != "" && strings.HasPrefix(a.surface, "list_"); page++ {
			next := w.perModel.Call(t, who, a.surface, `{"q":`+site.Quote(rest)+`,"params":`+params+fmt.Sprintf(`,"limit":%d,"cursor":%s}`, q.limit, site.Quote(cursor)))
			fmt.Fprintf(&b, "page %d: %s\n", page, next.Said)
			cursor = next.Value.Get("next_cursor").Str()
		}
	}
	return b.String()
}

// number is a random call of those that give numbers.
func (v *vocabulary) number(r *rand.Rand) call {
	m := pick(r, v.models)
	c := v.condition(r, m, 0)
	return call{"numbers of " + m + " " + c, func(w *world, who site.Who) string {
		t, s, condition := w.t, w.perModel, site.JSON(w.t, c)
		n, err := s.Engine.Count(t.Context(), s.As(who), m, condition)
		yes, err2 := s.Engine.Exists(t.Context(), s.As(who), m, condition)
		total, err3 := s.Engine.QueryWithCount(t.Context(), s.As(who), m+"($condition: @c) { _id }", canonjson.Object(canonjson.M("c", condition), canonjson.M("pageSize", canonjson.Int(1))))
		return fmt.Sprint(n, err, yes, err2, total, err3)
	}}
}

// write is a random writing call. The rows are put back afterwards.
func (v *vocabulary) write(r *rand.Rand) call {
	m := pick(r, v.models)
	field := v.name(r, m, scalar)
	value := v.value(r, v.own[m][field])
	id := pick(r, []string{"t1", "w1", "w3", "w99", "n1", "n99", "c1", "c9"})
	verb := pick(r, []string{"create", "update", "delete"})
	args := map[string]string{
		"create": `"body":{"_id":"new` + id + `","` + field + `":` + value + `}`,
		"update": `"id":"` + id + `","set":{"` + field + `":` + value + `}`,
		"delete": `"id":"` + id + `"`,
	}[verb]
	return call{verb + " " + m + " " + args, func(w *world, who site.Who) string {
		out := ""
		callers := w.writers(w.t, who, m, verb, args)
		for _, surface := range []string{"engine", verb + "_" + m, "generic " + verb} {
			if call := callers[surface]; call != nil {
				a := call(w)
				out += surface + ": " + a.Said + "\n"
				if a.OK {
					w.restore(w.t, m)
				}
			}
		}
		return out
	}}
}

// batch is a random write of many rows, which only the engine has.
func (v *vocabulary) batch(r *rand.Rand) call {
	m := pick(r, v.models)
	c := v.condition(r, m, 0)
	return call{"updateMany and remove of " + m + " " + c, func(w *world, who site.Who) string {
		s, condition := w.perModel, site.JSON(w.t, c)
		set := changed[m]
		n, err := s.Engine.UpdateMany(w.t.Context(), s.As(who), m, condition, site.JSON(w.t, "{"+set+"}"))
		w.restore(w.t, m)
		gone, err2 := s.Engine.Remove(w.t.Context(), s.As(who), m, condition, canonjson.Value{}, false)
		w.restore(w.t, m)
		return fmt.Sprint(n, err, gone, err2)
	}}
}

// next is a random call of any kind.
func (v *vocabulary) next(r *rand.Rand) call {
	switch n := r.IntN(20); {
	case n < 12:
		return v.read(r)
	case n < 15:
		return v.number(r)
	case n < 19:
		return v.write(r)
	}
	return v.batch(r)
}

// madeIDs are ids that are made: no two runs share them.
var madeIDs = regexp.MustCompile(`"[A-Z]{2}[0-9A-Z]{16}"`)

// differs makes one call of two worlds and tells how the answers differ; "" when they do not.
func differs(a, b *world, who site.Who, c call) string {
	x, y := madeIDs.ReplaceAllString(c.make(a, who), "made"), madeIDs.ReplaceAllString(c.make(b, who), "made")
	if x == y {
		return ""
	}
	return fmt.Sprintf("%s\n-- one\n%.1500s-- the other\n%.1500s", c.text, x, y)
}

// calls is how many calls are made of each caller.
func calls() int {
	switch {
	case os.Getenv("FULL") != "":
		return 400
	case testing.Short():
		return 60
	}
	return 150
}

// TestUnseenValues makes the same calls of two databases that differ only in what the caller cannot see: every byte of the
// answers is the same, refusals, numbers and the insides of cursors included (S26, S28).
func TestUnseenValues(t *testing.T) {
	site.Each(t, func(t *testing.T, p *site.Place) {
		for name, sight := range sights {
			t.Run(name, func(t *testing.T) {
				one, other := sight.pair(t, p)
				all, seen, found := wordsOf(t), one.seen(t, people[name]), 0
				r := rand.New(rand.NewPCG(7, uint64(len(name))))
				said := map[string]int{}
				for range calls() {
					c := next(r, seen, all)
					if d := differs(one, other, people[name], c); d != "" {
						if found++; found <= 3 {
							t.Error(d)
						}
					}
					said[outcome(c.make(one, people[name]))]++
				}
				if one.perModel.Listing(t, people[name]) != other.perModel.Listing(t, people[name]) {
					t.Error("the tools that are listed differ")
				}
				for _, tool := range []string{"describe_schemas"} {
					if one.perModel.Call(t, people[name], tool, "{}").Said != other.perModel.Call(t, people[name], tool, "{}").Said {
						t.Errorf("%s differs", tool)
					}
				}
				if n := said["answered"] + said["empty"]; n < calls()/8 && name != "guest" { // who may read nothing
					t.Errorf("only %d of %d calls were answered: %v", n, calls(), said)
				}
				t.Logf("%d calls: %v", calls(), said)
			})
		}
	})
}

// outcome sorts answers, so that a log shows that calls are of every kind.
func outcome(said string) string {
	said, _, _ = strings.Cut(said, "\n") // the engine's; others are held equal by the cells
	switch {
	case strings.Contains(said, "ERR_PERMISSION"):
		return "denied"
	case strings.Contains(said, "ERR_UNKNOWN"):
		return "unknown"
	case strings.Contains(said, "ERR_"):
		return "refused otherwise"
	case strings.Contains(said, `[]`):
		return "empty"
	}
	return "answered"
}

// pair makes the two worlds.
func (u unseen) pair(t *testing.T, like *site.Place) (one, other *world) {
	t.Helper()
	fresh := site.SQLite
	if like.Engine != "sqlite" {
		fresh = site.Postgres
	}
	c := config(t)
	one = newWorld(t, fresh(t), c)
	one.keep(t)
	c.Seed = u.otherwise(t, c.Seed)
	other = newWorld(t, fresh(t), c)
	other.keep(t)
	return one, other
}

// TestUnseenValuesControl plants an engine that quotes a stored value, one that counts everything, and one whose cursors
// hold a number of rows that the caller does not see: each is found.
func TestUnseenValuesControl(t *testing.T) {
	leaks := map[string]func(site.Engine, *site.Site) site.Engine{
		"a quoted value": func(e site.Engine, s *site.Site) site.Engine { return &quoting{e, s} },
		"a count": func(e site.Engine, s *site.Site) site.Engine {
			return &careless{e, s, func(op string, _ engine.Call, _ string, err error) bool { return op == "count" && err == nil }, false}
		},
		"a cursor": func(e site.Engine, s *site.Site) site.Engine { return &telling{e, s} },
	}
	for name, leak := range leaks {
		t.Run(name, func(t *testing.T) {
			who, sight := "staff", sights["staff"]
			if name == "a count" {
				who, sight = "ana", sights["ana"]
			}
			c := config(t)
			c.Engine = leak
			one := newWorld(t, site.SQLite(t), c)
			one.keep(t)
			c.Seed = sight.otherwise(t, c.Seed)
			other := newWorld(t, site.SQLite(t), c)
			other.keep(t)
			all, seen, r := wordsOf(t), one.seen(t, people[who]), rand.New(rand.NewPCG(7, 5))
			for range 400 {
				if differs(one, other, people[who], next(r, seen, all)) != "" {
					return
				}
			}
			t.Error("nothing was found")
		})
	}
}

// quoting is an engine that quotes a stored value in refusals.
type quoting struct {
	site.Engine
	s *site.Site
}

// Query says a salary.
func (e *quoting) Query(ctx context.Context, c engine.Call, text string, params canonjson.Value, page engine.Page) (*engine.Answer, error) {
	a, err := e.Engine.Query(ctx, c, text, params, page)
	if err == nil {
		return a, nil
	}
	row, _ := e.Engine.QueryOne(ctx, e.s.Internal(), "Worker { salary }", canonjson.Object())
	return nil, model.Errorf(model.Denied, "%v (%s)", err, row.String())
}

// telling is an engine whose positions tell how many audits there are.
type telling struct {
	site.Engine
	s *site.Site
}

// Query ends pages in a telling position.
func (e *telling) Query(ctx context.Context, c engine.Call, text string, params canonjson.Value, page engine.Page) (*engine.Answer, error) {
	a, err := e.Engine.Query(ctx, c, text, params, page)
	if err == nil && a.Next != nil {
		n, _ := e.Engine.Count(ctx, e.s.Internal(), "Audit", canonjson.Null())
		a.Next = &plan.Position{Values: a.Next.Values, Taken: a.Next.Taken + n*1000}
	}
	return a, err
}

// TestUnseenNames makes the same calls with definitions in which something that the caller cannot see does not exist: calls
// that do not name it get the same answers, to the byte.
func TestUnseenNames(t *testing.T) {
	for name, things := range map[string][]string{
		"staff":   {"Worker.salary", "Team.budget", "Team.barred", "Team.headcount", "Vault", "Seal", "Team.audits"},
		"trainee": {"Worker.salary", "Worker.pincode", "Worker.grade", "Vault", "Seal"},
		"ana":     {"Team.budget", "Worker.salary", "Vault", "Seal"},
		"analyst": {"Account.holder", "Vault", "Team.budget"},
		"guest":   {"Team.budget", "Vault", "Worker.salary"},
	} {
		for _, thing := range things {
			t.Run(name+" "+thing, func(t *testing.T) {
				c := config(t)
				one := newWorld(t, site.SQLite(t), c)
				one.keep(t)
				m, part, _ := strings.Cut(thing, ".")
				c.Definitions = without(t, c.Definitions, thing)
				c.Seed = seedWithout(t, c.Seed, m, part)
				other := newWorld(t, site.SQLite(t), c)
				other.keep(t)
				all, seen, found := wordsOf(t, gone(t, thing)...), one.seen(t, people[name]), 0
				r := rand.New(rand.NewPCG(11, uint64(len(thing))))
				for range calls() / 4 {
					if d := differs(one, other, people[name], next(r, seen, all)); d != "" {
						if found++; found <= 2 {
							t.Error(d)
						}
					}
				}
				if one.perModel.Listing(t, people[name]) != other.perModel.Listing(t, people[name]) {
					t.Error("the tools that are listed differ")
				}
				if one.perModel.Call(t, people[name], "describe_schemas", "{}").Said != other.perModel.Call(t, people[name], "describe_schemas", "{}").Said {
					t.Error("describe_schemas differs")
				}
			})
		}
	}
}

// gone are the names that do not exist without a thing: its own, and those of what is made of it.
func gone(t *testing.T, thing string) []string {
	t.Helper()
	all := func(definitions string) map[string]bool {
		out := map[string]bool{}
		for _, d := range site.JSON(t, definitions).Items() {
			out[d.Get("name").Str()] = true
			for _, kind := range []string{"fields", "relations", "computes"} {
				for _, m := range d.Get(kind).Members() {
					out[m.Name] = true
				}
			}
		}
		return out
	}
	before, after := all(read(t, "models.json")), all(without(t, read(t, "models.json"), thing))
	var out []string
	for name := range before {
		if !after[name] {
			out = append(out, name)
		}
	}
	return out
}

// seedWithout is a seed without the rows of a model, or without one of its fields.
func seedWithout(t *testing.T, seed, gone, part string) string {
	t.Helper()
	var models []canonjson.Member
	for _, m := range site.JSON(t, seed).Members() {
		base := strings.TrimSuffix(m.Name, "Deleted")
		if base == gone && part == "" {
			continue
		}
		if base == gone {
			var rows []canonjson.Value
			for _, r := range m.Value.Items() {
				rows = append(rows, r.Without(part))
			}
			m.Value = canonjson.Array(rows...)
		}
		models = append(models, m)
	}
	return canonjson.Object(models...).String()
}
