//go:build unix

package modelaccess_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
	"github.com/tabellion-mcp/tabellion/model/engine"
)

// probe asks one cell: what the caller can do to the thing by one operation, a verdict for each surface. arg is what stands
// behind the operation's name in the rule.
type probe func(w *world, t *testing.T, who site.Who, on, arg string) map[string]string

// samples are values that rows hold, for conditions and writes.
var samples = map[string]string{
	"Worker.salary": "5100", "Worker.pincode": `"7301"`, "Worker.grade": `"b"`, "Worker.name": `"Ada"`, "Worker.teamId": `"t1"`, "Team.budget": "700", "Team.name": `"North"`, "Team.city": `"Kiel"`,
	"Note.text": `"of bo"`, "Note.createdBy": `"bo"`, "WorkerDeleted.salary": "1", "WorkerDeleted.name": `"Old"`, "Note.rate": "90", "Plain.word": `"open"`, "Plain.locked": `"shut"`, "Account.total": "10", "Account.holder": `"Eva"`, "Account.remark": `"r1"`, "Account.tenant": `"eu"`,
	"Seal.label": `"wax"`, "Vault.combination": `"1-2-3"`, "Audit.action": `"paid"`,
}

// parents are relations that lead to a model: of which model, and which.
var parents = map[string][2]string{
	"Worker": {"Team", "workers"}, "Note": {"Team", "notes"}, "Audit": {"Team", "audits"}, "Vault": {"Team", "vaults"}, "Seal": {"Team", "seals"}, "Team": {"Worker", "team"},
}

// split cuts Model.part.
func split(on string) (model, part string) {
	model, part, _ = strings.Cut(on, ".")
	return model, part
}

// allowed is the verdict of a success that shows nothing of the thing itself.
func allowed(site.Answer) string { return "allowed" }

// reading is a probe of one question about a field.
func reading(q func(model, field, sample string) ask, ok func(field string, a site.Answer) string) probe {
	return func(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
		m, f := split(on)
		if samples[on] == "" {
			t.Fatalf("there is no sample of %s", on)
		}
		return w.verdicts(t, who, on, q(m, f, samples[on]), func(a site.Answer) string { return ok(f, a) })
	}
}

// plainly gives every success the verdict "allowed".
func plainly(_ string, a site.Answer) string { return allowed(a) }

// shown tells whether a field is in the rows, at any depth.
func shown(field string, a site.Answer) string {
	switch {
	case strings.Contains(a.Value.Get("rows").String(), `"`+field+`":`):
		return "shown"
	case a.Value.Get("rows").Len() == 0:
		return "no rows"
	}
	return "left out"
}

// through is a question about a field by way of a relation that leads to its model.
func through(form func(relation, field, sample string) ask) func(model, field, sample string) ask {
	return func(m, f, sample string) ask {
		q := form(parents[m][1], f, sample)
		q.model = parents[m][0]
		return q
	}
}

// probes are the operations.
var probes map[string]probe

func init() {
	probes = map[string]probe{
		// Of a field.
		"read":   reading(func(m, f, _ string) ask { return ask{model: m, block: "{ _id, " + f + " }"} }, shown),
		"filter": reading(func(m, f, v string) ask { return ask{model: m, condition: `{"` + f + `":` + v + `}`, block: "{ _id }"} }, plainly),
		"filter not": reading(func(m, f, v string) ask {
			return ask{model: m, condition: `{"$nor":[{"` + f + `":{"$exists":true}}]}`, block: "{ _id }"}
		}, plainly),
		"filter in an or": reading(func(m, f, v string) ask {
			return ask{model: m, condition: `{"$or":[{"_id":"-"},{"` + f + `":{"$gte":` + v + `}}]}`, block: "{ _id }"}
		}, plainly),
		"sort":   reading(func(m, f, _ string) ask { return ask{model: m, sort: `{"` + f + `":-1}`, block: "{ _id }"} }, plainly),
		"cursor": reading(func(m, f, _ string) ask { return ask{model: m, sort: `{"` + f + `":1}`, block: "{ _id }", limit: 1} }, plainly),
		"group": reading(func(m, f, _ string) ask {
			return ask{model: m, group: `{"by":["` + f + `"]}`, block: "{ " + f + " }"}
		}, plainly),
		"aggregate": reading(func(m, f, _ string) ask {
			return ask{model: m, group: `{"agg":{"zn":{"$count":"` + f + `"}}}`, block: "{ zn }"}
		}, plainly),
		"block": reading(through(func(r, f, _ string) ask { return ask{block: "{ " + r + " { " + f + " } }"} }), shown),
		"predicate": reading(through(func(r, f, v string) ask {
			return ask{condition: `{"` + r + `":{"$filter":{"` + f + `":` + v + `},"$exists":true}}`, block: "{ _id }"}
		}), plainly),
		"operand": reading(through(func(r, f, _ string) ask {
			return ask{condition: `{"` + r + `":{"$count":{"$of":"` + f + `","$gte":0}}}`, block: "{ _id }"}
		}), plainly),
		"operand, long": reading(through(func(r, f, _ string) ask {
			return ask{condition: `{"` + r + `":{"agg":{"zn":{"$max":"` + f + `"}},"having":{"zn":{"$exists":true}}}}`, block: "{ _id }"}
		}), plainly),
		"path sort": reading(through(func(r, f, _ string) ask {
			return ask{sort: `{"` + r + "." + f + `":1}`, block: "{ " + r + " { _id } }"}
		}), plainly),
		"path group": reading(through(func(r, f, _ string) ask {
			return ask{group: `{"by":["` + r + "." + f + `"],"agg":{"zn":{"$count":"*"}}}`, block: "{ zn }"}
		}), plainly),
		"count": counting, "exists": existing, "total": totals,
		"create with": creatingWith, "update with": updatingWith, "create shows": createShows, "update shows": updateShows,
		// Of a relation.
		"follow":        relational(func(r string) ask { return ask{block: "{ " + r + " { _id } }"} }),
		"related":       relational(func(r string) ask { return ask{condition: `{"` + r + `":{"$exists":true}}`, block: "{ _id }"} }),
		"not related":   relational(func(r string) ask { return ask{condition: `{"$not":{"` + r + `":{"$exists":true}}}`, block: "{ _id }"} }),
		"related path":  relational(func(r string) ask { return ask{condition: `{"` + r + `._id":"x"}`, block: "{ _id }"} }),
		"bare relation": relational(func(r string) ask { return ask{block: "{ " + r + " }"} }),
		"rows of":       rowsOfParent, "parents": parentsOf,
		// Of a computed column.
		"value of":    valueOf,
		"column":      relational(func(c string) ask { return ask{block: "{ " + c + " }"} }),
		"column sort": relational(func(c string) ask { return ask{sort: `{"` + c + `":1}`, block: "{ _id }"} }),
		// Of a model.
		"rows": modelRows, "number": groupNumber, "get": getting, "count all": countAll, "exists row": existsRow, "total all": totalAll,
		"create": creating, "update": updating, "delete": deleting, "update by text": updatingByText,
		// Of anything.
		"describe": describing, "listing": listing, "hint": hinting,
	}
}

// counting, existing and totals ask the engine's calls that have no tool.
func counting(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	return w.counted(t, who, on, func(s *site.Site, m string, c canonjson.Value) error {
		_, err := s.Engine.Count(t.Context(), s.As(who), m, c)
		return err
	})
}

func existing(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	return w.counted(t, who, on, func(s *site.Site, m string, c canonjson.Value) error {
		_, err := s.Engine.Exists(t.Context(), s.As(who), m, c)
		return err
	})
}

func totals(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	return w.counted(t, who, on, func(s *site.Site, m string, c canonjson.Value) error {
		_, err := s.Engine.QueryWithCount(t.Context(), s.As(who), m+"($condition: @c) { _id }", canonjson.Object(canonjson.M("c", c)))
		return err
	})
}

// counted asks a call with a condition on a field.
func (w *world) counted(t *testing.T, who site.Who, on string, call func(*site.Site, string, canonjson.Value) error) map[string]string {
	t.Helper()
	m, f := split(on)
	c := site.JSON(t, `{"`+f+`":`+samples[on]+`}`)
	err := call(w.perModel, m, c)
	if err == nil {
		return map[string]string{"engine": "allowed"}
	}
	return map[string]string{"engine": refusal(fromEngine(c, err), fromEngine(c, call(w.withoutIt(t, on).perModel, m, c)))}
}

// relational is a probe of one question about a relation or a computed column.
func relational(form func(name string) ask) probe {
	return func(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
		m, r := split(on)
		q := form(r)
		q.model = m
		return w.verdicts(t, who, on, q, func(a site.Answer) string {
			if strings.Contains(q.block, r) && shown(r, a) != "shown" {
				return "left out"
			}
			return "allowed"
		})
	}
}

// rowsOfParent is how many rows a relation shows of one parent.
func rowsOfParent(w *world, t *testing.T, who site.Who, on, arg string) map[string]string {
	m, r := split(on)
	return w.verdicts(t, who, on, ask{model: m, condition: `{"_id":"` + arg + `"}`, block: "{ " + r + " { _id } }"}, func(a site.Answer) string {
		rows := a.Value.Get("rows")
		if rows.Len() == 0 {
			return "no parent"
		}
		return fmt.Sprint(rows.Items()[0].Get(r).Len())
	})
}

// parentsOf are the parents that meet a predicate: those with a row for which the word holds.
func parentsOf(w *world, t *testing.T, who site.Who, on, arg string) map[string]string {
	m, r := split(on)
	condition := `{"` + r + `":{"$exists":true}}`
	if f, v, ok := strings.Cut(arg, "="); ok {
		condition = `{"` + r + `":{"$filter":{"` + f + `":` + v + `},"$exists":true}}`
	}
	return w.verdicts(t, who, on, ask{model: m, condition: condition, block: "{ _id }"}, ids)
}

// ids are the keys of the rows.
func ids(a site.Answer) string {
	var out []string
	for _, r := range a.Value.Get("rows").Items() {
		out = append(out, r.Get("_id").Str())
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, " ")
}

// valueOf is what a column shows of one row.
func valueOf(w *world, t *testing.T, who site.Who, on, arg string) map[string]string {
	m, c := split(on)
	return w.verdicts(t, who, on, ask{model: m, condition: `{"_id":"` + arg + `"}`, block: "{ " + c + " }"}, func(a site.Answer) string {
		rows := a.Value.Get("rows")
		switch {
		case rows.Len() == 0:
			return "no row"
		case rows.Items()[0].Get(c).IsAbsent():
			return "left out"
		}
		return rows.Items()[0].Get(c).String()
	})
}

// modelRows are the rows that a model shows.
func modelRows(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	return w.verdicts(t, who, on, ask{model: on, block: "{ _id }"}, ids)
}

// groupNumber is the number of rows, by a group.
func groupNumber(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	return w.verdicts(t, who, on, ask{model: on, group: `{"agg":{"zn":{"$count":"*"}}}`, block: "{ zn }"}, func(a site.Answer) string {
		return a.Value.Get("rows").Items()[0].Get("zn").String()
	})
}

// number asks a call of the engine that gives a number or a truth.
func (w *world) number(t *testing.T, who site.Who, on string, call func(*site.Site) (any, error)) map[string]string {
	t.Helper()
	n, err := call(w.perModel)
	if err == nil {
		return map[string]string{"engine": fmt.Sprint(n)}
	}
	_, bare := call(w.withoutIt(t, on).perModel)
	return map[string]string{"engine": refusal(fromEngine(canonjson.Null(), err), fromEngine(canonjson.Null(), bare))}
}

func countAll(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	return w.number(t, who, on, func(s *site.Site) (any, error) {
		return s.Engine.Count(t.Context(), s.As(who), on, canonjson.Null())
	})
}

func existsRow(w *world, t *testing.T, who site.Who, on, arg string) map[string]string {
	return w.number(t, who, on, func(s *site.Site) (any, error) {
		return s.Engine.Exists(t.Context(), s.As(who), on, site.JSON(t, `{"_id":"`+arg+`"}`))
	})
}

func totalAll(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	return w.number(t, who, on, func(s *site.Site) (any, error) {
		c, err := s.Engine.QueryWithCount(t.Context(), s.As(who), on+" { _id }", site.JSON(t, `{"page":0,"pageSize":1}`))
		if err != nil {
			return 0, err
		}
		if c.HasMore != (c.Total > 1) {
			return fmt.Sprintf("%d but hasMore is %t", c.Total, c.HasMore), nil
		}
		return c.Total, nil
	})
}

// getting asks for one row by its key.
func getting(w *world, t *testing.T, who site.Who, on, arg string) map[string]string {
	text, params := on+"($condition: @c) { _id }", site.JSON(t, `{"c":{"_id":"`+arg+`"}}`)
	one := func(w *world) (site.Answer, site.Answer, site.Answer) {
		v, err := w.perModel.Engine.QueryOne(t.Context(), w.perModel.As(who), text, params)
		e := fromEngine(canonjson.Object(canonjson.M("row", v)), err)
		if who.Nobody {
			return e, site.Answer{}, site.Answer{}
		}
		return e, w.perModel.Call(t, who, "get_"+on, `{"id":"`+arg+`"}`), w.generic.Call(t, who, "model_get", `{"model":"`+on+`","id":"`+arg+`","select":"_id"}`)
	}
	verdict := func(a, bare site.Answer) string {
		switch {
		case a.Code == "notFound", a.OK && a.Value.Get("row").Kind() == canonjson.KindNull:
			return "no row"
		case a.OK:
			return "row"
		}
		return refusal(a, bare)
	}
	a, b, c := one(w)
	x, y, z := one(w.withoutIt(t, on))
	out := map[string]string{"engine": verdict(a, x)}
	if !who.Nobody {
		out["get_"+on], out["generic get"] = verdict(b, y), verdict(c, z)
	}
	return out
}

// describing tells whether describe_schemas names the thing.
func describing(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	m, part := split(on)
	verdict := func(models canonjson.Value) string {
		for _, d := range models.Items() {
			switch {
			case d.Get("name").Str() != m:
			case part == "":
				return "listed"
			default:
				for _, kind := range []string{"fields", "relations", "computes", "details"} {
					if !d.Get(kind).Get(part).IsAbsent() {
						return "listed"
					}
				}
			}
		}
		if strings.Contains(models.String(), `"`+max(part, m)+`"`) && part == "" {
			return "named"
		}
		return "unlisted"
	}
	out := map[string]string{"engine": verdict(w.perModel.Engine.Describe(t.Context(), w.perModel.As(who)))}
	if !who.Nobody {
		a := w.perModel.Call(t, who, "describe_schemas", `{}`)
		out["describe_schemas"] = verdict(a.Value.Get("rows"))
	}
	return out
}

// listing tells whether tools/list names the thing: a model by its tools, a part of one by any word.
func listing(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	m, part := split(on)
	word := `"list_` + m + `"`
	if part != "" {
		word = part
	}
	shared := 0 // models that have a part of this name, or a word like it
	for _, other := range w.perModel.Registry.List() {
		if other.ArchiveOf == nil && other.Field(part) != nil {
			shared++
		}
	}
	verdict := func(list string) string {
		for _, tool := range site.JSON(t, list).Items() {
			if part != "" && shared > 1 && !strings.HasSuffix(tool.Get("name").Str(), "_"+m) {
				continue
			}
			if strings.Contains(tool.String(), word) {
				return "listed"
			}
		}
		return "unlisted"
	}
	out := map[string]string{"per-model": verdict(w.perModel.Listing(t, who))}
	if strings.Contains(w.generic.Listing(t, who), m) {
		out["generic"] = "listed"
	}
	return out
}

// hinting asks for misspelt names in every place, and tells whether a refusal says the right one.
func hinting(w *world, t *testing.T, who site.Who, on, _ string) map[string]string {
	m, part := split(on)
	var asks []ask
	if part == "" {
		for _, near := range []string{m[:len(m)-1], m + "s", strings.ToLower(m)} {
			asks = append(asks, ask{model: near, block: "{ _id }"})
		}
	}
	for _, near := range []string{part[:max(0, len(part)-1)], part + "s", "zzzz"} {
		if part == "" {
			break
		}
		asks = append(asks,
			ask{model: m, block: "{ " + near + " }"}, ask{model: m, block: "{ " + near + " { _id } }"}, ask{model: m, condition: `{"` + near + `":1}`, block: "{ _id }"},
			ask{model: m, condition: `{"` + near + `":{"$exists":true}}`, block: "{ _id }"}, ask{model: m, condition: `{"$not":{"` + near + `":{"$exists":true}}}`, block: "{ _id }"},
			ask{model: m, sort: `{"` + near + `":1}`, block: "{ _id }"}, ask{model: m, group: `{"by":["` + near + `"]}`, block: "{ x }"}, ask{model: m, group: `{"agg":{"zn":{"$sum":"` + near + `"}}}`, block: "{ zn }"},
			ask{model: m, condition: `{"_id.x":1}`, block: "{ _id }"})
		if p, ok := parents[m]; ok {
			asks = append(asks, ask{model: p[0], block: "{ " + p[1] + " { " + near + " } }"}, ask{model: p[0], condition: `{"` + p[1] + `":{"$filter":{"` + near + `":1},"$exists":true}}`, block: "{ _id }"},
				ask{model: p[0], condition: `{"` + p[1] + `":{"$max":{"$of":"` + near + `","$gt":1}}}`, block: "{ _id }"}, ask{model: p[0], sort: `{"` + p[1] + "." + near + `":1}`, block: "{ " + p[1] + " { _id } }"})
		}
	}
	word := max(part, "")
	if part == "" {
		word = m
	}
	out := map[string]string{}
	note := func(surface string, a site.Answer, input string) {
		if out[surface] == "" {
			out[surface] = "unsaid"
		}
		if !a.OK && names(strings.ReplaceAll(a.Message, input, ""), word) {
			out[surface] = "said"
		}
	}
	for _, q := range asks {
		input := q.model + "s"
		if part != "" {
			input = part + "s"
		}
		for _, a := range w.ask(t, who, q) {
			if strings.HasPrefix(a.surface, "list_") || a.surface == "generic list" || a.surface == "engine" || a.surface == "query" {
				note("reads", a.Answer, input)
			}
		}
	}
	if part != "" && !who.Nobody {
		for _, args := range []string{`{"body":{"` + part + `s":1}}`, `{"body":{"_id":7,"zzzz":1}}`, `{"body":[]}`} {
			if w.perModel.Catalog.Operation("create_"+m) != nil {
				note("writes", w.perModel.Call(t, who, "create_"+m, args), part+"s")
				note("writes", w.perModel.Call(t, who, "update_"+m, `{"id":"-","set":`+strings.TrimSuffix(strings.TrimPrefix(args, `{"body":`), `}`)+`}`), part+"s")
			}
		}
	}
	if out["writes"] == "unsaid" {
		delete(out, "writes") // who may read and not write is told nothing by writes
	}
	return out
}

// names tells whether a text holds a word as a name of its own.
func names(text, word string) bool {
	for rest := text; ; {
		i := strings.Index(rest, word)
		if i < 0 {
			return false
		}
		before := i == 0 || !letter(rest[i-1])
		after := i+len(word) == len(rest) || !letter(rest[i+len(word)])
		if before && after {
			return true
		}
		rest = rest[i+len(word):]
	}
}

// letter tells whether b is part of a name.
func letter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' }

var _ engine.Page
