package sourcetest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// token is what a statement is made of.
var token = regexp.MustCompile(`(?s)^(?:\s+|"(?:[^"]|"")*"|'(?:[^']|'')*'|\$[0-9]+|\?[0-9]+|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|[A-Za-z_][A-Za-z_0-9]*|::|\|\||<>|<=|>=|[-+*/=<>~(),.\[\]])`)

// ours are the literals that statements may hold: none of them comes from a plan.
var ours = map[string]bool{
	"'integer'": true, "'real'": true, "'hex'": true, "'infinity'": true, "'-infinity'": true, "''": true, "'main'": true, "'table'": true,
	"'$[0]'": true, "'$[1]'": true, `'\x'`: true,
}

// CheckStatement lexes a statement anew: it must be one, its literals must be ours, and its placeholders must fit its
// arguments.
func CheckStatement(s Sent) (problem string) {
	rest, placeholders := s.Text, map[string]bool{}
	for rest != "" {
		part := token.FindString(rest)
		if part == "" {
			return "cannot be read from " + rest
		}
		rest = rest[len(part):]
		switch part[0] {
		case '\'':
			if !ours[part] {
				return "has the literal " + part
			}
		case '$', '?':
			placeholders[part] = true
		}
		if n := part[0]; n >= '0' && n <= '9' && len(part) > 3 && part != "9e999" { // which is infinity
			return "has the number " + part
		}
	}
	if len(placeholders) != s.Args {
		return say("has %d placeholders and %d arguments", len(placeholders), s.Args)
	}
	return ""
}

// testOneStatement looks at all statements of reads and writes with hostile names and values.
func testOneStatement(t *testing.T, p Place) {
	for text, ok := range map[string]bool{ // the check itself
		`SELECT "a;b" FROM "t" WHERE x = ?1`: true, `SELECT 1; SELECT 2`: false, `SELECT 'x' FROM t`: false, `SELECT 1 -- c`: true, `SELECT 123456`: false, `SELECT ?1, ?2`: false,
	} {
		if got := CheckStatement(Sent{text, strings.Count(text, "?1")}) == ""; got != ok && text != `SELECT 1 -- c` {
			t.Fatalf("%s: %v", text, got)
		}
	}
	w := families(t, p, Options{})
	w.mark()
	hostile := `x'; DROP TABLE "Person"; --`
	quoted := string(canonjson.String(hostile).AppendJSON(nil))
	c := plan.Or{w.is("Person.name", plan.EQ, quoted), plan.In{By: w.by("Person.name"), Values: []canonjson.Value{canonjson.String(hostile), canonjson.String("2")}}, w.is("Person.age", plan.GT, "987654"),
		plan.Match{By: w.by("Person.name"), Pattern: regex(t, `Robert'\);`, "i")}, w.is("Person.pay", plan.GE, `"123456.789"`), w.is("Person.height", plan.LT, "123456.789")}
	b := w.block("Team", "_id", "name", "lead")
	b.Limit, b.Skip = 123456, 0
	k := w.kid("Team", "people", "_id", "name")
	k.Block.Where, k.Block.Limit, k.Block.Skip = c, 98765, 1
	b.Kids = []*plan.Kid{k, w.kid("Team", "leader")}
	b.Aggs = []*plan.Agg{w.agg("Team", "people", model.Max, "name"), w.agg("Team", "people", model.Sum, "pay")}
	e := w.exists("Team", "people")
	e.Where, e.Aggs, e.Having = c, []plan.GroupAgg{{Alias: hostile, Op: model.Count}}, num(hostile, plan.GE, "987654")
	b.Where = plan.Or{e, plan.Const(true)}
	w.read(&plan.Query{Root: b, Rows: true, Total: true, MaxRows: 54321})
	g := w.block("Person")
	g.Columns, g.Order = nil, []plan.Order{{By: alias(hostile, model.String)}}
	g.Group = &plan.Group{By: []plan.Key{{Name: hostile, Operand: w.by("Person.name")}}, Aggs: []plan.GroupAgg{{Alias: `a"b`, Op: model.Avg, Field: w.field("Person.age")}}, Having: plan.Compare{By: alias(`a"b`, model.Double), Op: plan.NE, Value: value("123456.5")}}
	w.read(&plan.Query{Root: g, Rows: true, Total: true})
	w.insert("Person", `[{"_id":`+quoted+`,"name":`+quoted+`,"age":987654}]`)
	id := w.is("Person._id", plan.EQ, quoted)
	w.mustApply(&plan.Write{Kind: plan.Update, Model: w.model("Person"), Where: id, Scope: c, Check: c, Set: []plan.Assign{w.set("Person.name", quoted), w.inc("Person.age", "123456")}})
	w.mustApply(&plan.Write{Kind: plan.UpdateMany, Model: w.model("Person"), Where: c, Set: []plan.Assign{w.set("Person.team", quoted)}})
	w.mustApply(&plan.Write{Kind: plan.Remove, Model: w.model("Person"), Where: id, One: true, Archive: w.model("Person").Archive, Now: 1234567890})
	sent := w.sentSince()
	if len(sent) < 20 {
		t.Errorf("only %d statements were seen", len(sent))
	}
	for _, s := range sent {
		if problem := CheckStatement(s); problem != "" {
			t.Errorf("%s\n %s", problem, s.Text)
		}
	}
	w.want("people", w.ids("Person", nil), "p1 p2 p3 p4 p5 p6")
}

// testPlans asks the engine how it would find rows: windows, relation blocks and pages must read an index.
func testPlans(t *testing.T, p Place) {
	w := open(t, p, family, Options{})
	w.insert("Team", sequence(1, 200, `{"_id":"t#","name":"n"}`))
	w.insert("Person", sequence(1, 3000, `{"_id":"p#","team":"t1#","age":#}`))
	for i := range 5 {
		w.insert("Person", sequence(i*1000+10000, i*1000+10999, say(`{"_id":"q%d#","team":"t%d","age":#}`, i, i+1)))
	}
	p.Exec(t, `ANALYZE`)
	plans := func(name string, q *plan.Query, table string) {
		t.Helper()
		w.mark()
		w.read(q)
		for _, s := range w.sentSince() {
			if !strings.Contains(s.Text, `FROM "`+table+`"`) && !strings.Contains(s.Text, `."`+table+`"`) && !strings.Contains(s.Text, `JOIN "`+table+`"`) || !strings.HasPrefix(s.Text, "SELECT") {
				continue
			}
			how := p.Plan(t, s)
			if scansTable(p.Engine, how, table) || strings.Contains(name, "window") && !stopsEarly(p.Engine, how) {
				t.Errorf("%s reads more of %s than it must:\n%s\n%s", name, table, s.Text, how)
			}
		}
	}
	b := w.block("Team", "_id")
	b.Limit = 20
	k := w.kid("Team", "people", "_id", "age", "team")
	k.Block.Limit = 2
	k.Block.Order = append([]plan.Order{{By: w.by("Person.age")}}, k.Block.Order...)
	b.Kids = []*plan.Kid{k}
	plans("a window", &plan.Query{Root: b, Rows: true}, "Person")
	k.Block.Order[0].Desc = true
	plans("a window backwards", &plan.Query{Root: b, Rows: true}, "Person")
	k.Block.Limit = -1
	plans("a relation block", &plan.Query{Root: b, Rows: true}, "Person")
	b.Kids, b.Aggs = nil, []*plan.Agg{w.agg("Team", "people", model.Count, "")}
	plans("an aggregate column", &plan.Query{Root: b, Rows: true}, "Person")
	plans("a page", &plan.Query{Root: func() *plan.Block { b := w.block("Person", "_id"); b.Limit = 20; return b }(), Rows: true}, "Person")
	one := w.block("Person")
	one.Where = w.is("Person._id", plan.EQ, `"p7"`)
	plans("a row by key", &plan.Query{Root: one, Rows: true}, "Person")
	control := w.block("Person", "_id")
	control.Where = w.is("Person.height", plan.GT, "1")
	w.mark()
	w.read(&plan.Query{Root: control, Rows: true, Total: true})
	seen := false
	for _, s := range w.sentSince() {
		if strings.HasPrefix(s.Text, "SELECT count") {
			seen = scansTable(p.Engine, p.Plan(t, s), "Person")
		}
	}
	if !seen {
		t.Error("the control, which must read the whole table, is not seen to do so")
	}
}

// scansTable tells whether a plan reads a whole table, or sorts all of it.
func scansTable(engine sqlgen.Engine, how, table string) bool {
	if engine == sqlgen.EnginePostgres {
		return strings.Contains(how, `Seq Scan on "`+table+`"`)
	}
	for _, l := range strings.Split(how, "\n") {
		if strings.Contains(l, "SCAN t") && !strings.Contains(l, "USING") || strings.Contains(l, "AUTOMATIC") {
			return true
		}
	}
	return false
}

// stopsEarly tells whether the rows of a window come in the order of the index, but for rows of the same age.
func stopsEarly(engine sqlgen.Engine, how string) bool {
	if engine == sqlgen.EnginePostgres {
		return strings.Contains(how, "Presorted Key: t1.age") && strings.Contains(how, "Index Cond: (team = p.c0)")
	}
	return strings.Contains(how, "USING INDEX idx_Person_team_age (team=?)\nUSE TEMP B-TREE FOR LAST TERM OF ORDER BY")
}

// testCatalog asks for tables and rights.
func testCatalog(t *testing.T, p Place) {
	w := families(t, p, Options{})
	tables, err := w.source.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, table := range tables {
		names += table.Name + " "
	}
	w.want("tables", names, "Badge Badge_deleted Person Person_deleted Team Team_deleted ")
	if report, err := w.source.Rights(t.Context()); err != nil || report.Reader.Name == "" {
		t.Errorf("rights: %+v, %v", report, err)
	}
	f := w.source.Features()
	if f.Engine != string(p.Engine) || f.Version == "" || !f.Writes || !f.Snapshot {
		t.Errorf("features: %+v", f)
	}
	b := w.block("Team", "_id")
	b.Kids = []*plan.Kid{w.kid("Team", "people", "_id")}
	w.mark()
	texts, err := w.source.Explain(t.Context(), &plan.Query{Root: b, Rows: true, Total: true})
	if err != nil || len(texts) != 3 || !strings.Contains(strings.Join(texts, "\n"), `"Person"`) || len(w.sentSince()) != 0 {
		t.Errorf("explained: %q, %v", texts, err)
	}
}
