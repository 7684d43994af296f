package sourcetest

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// everything has a field of each type.
const everything = `[{"name": "Thing", "timestamps": false, "archive": false, "fields": {
	"_id": "string", "s": "string", "i": "int", "l": "long", "f": "float", "d": "double", "n": "number", "b": "boolean", "e": "date",
	"dec": "decimal", "ts": "timestamp", "day": "day", "u": "uuid", "raw": "bytes", "a": "array", "o": "object", "any": "any"}}]`

// samples are two values of each scalar type, the smaller first.
var samples = []struct{ field, low, high string }{
	{"s", `"B"`, `"a"`},
	{"i", `-5`, `7`},
	{"l", `9007199254740992`, `9007199254740993`},
	{"f", `-1.5`, `2.25`},
	{"d", `0.1`, `1e300`},
	{"n", `2`, `2.5`},
	{"b", `false`, `true`},
	{"e", `-1`, `1700000000000`},
	{"dec", `"9.05"`, `"10.0000000000000000001"`},
	{"ts", `"2024-02-29T23:59:59Z"`, `"2024-02-29T23:59:59.5Z"`},
	{"day", `"1999-12-31"`, `"2000-01-01"`},
	{"u", `"00000000-0000-4000-8000-00000000000a"`, `"ff000000-0000-4000-8000-000000000000"`},
	{"raw", `"AAE="`, `"/w=="`},
}

// objectOf makes a row of the samples.
func objectOf(id string, high bool) string {
	members := []canonjson.Member{canonjson.M("_id", canonjson.String(id))}
	for _, s := range samples {
		v := s.low
		if high {
			v = s.high
		}
		members = append(members, canonjson.M(s.field, value(v)))
	}
	members = append(members,
		canonjson.M("a", value(`[1,"x",null,{"k":[]}]`)), canonjson.M("o", value(`{"z":1,"a":{"b":null}}`)), canonjson.M("any", value(`"text"`)))
	return string(canonjson.Object(members...).AppendJSON(nil))
}

// nulls makes a row of explicit nulls.
func nulls(id string) string {
	members := []canonjson.Member{canonjson.M("_id", canonjson.String(id))}
	for _, s := range samples {
		members = append(members, canonjson.M(s.field, canonjson.Null()))
	}
	return string(canonjson.Object(members...).AppendJSON(nil))
}

// conditionTable are four rows: the low values, nulls, nothing stored, the high values.
func conditionTable(t *testing.T, p Place, definitions string) *world {
	w := open(t, p, definitions, Options{})
	w.insert("Thing", "["+objectOf("low", false)+","+nulls("null")+`,{"_id":"none"},`+objectOf("top", true)+"]")
	return w
}

// testConditions asks each kind of condition of each type, in the three states of a field.
func testConditions(t *testing.T, p Place) {
	w := conditionTable(t, p, everything)
	checkConditions(w, "null", "low null top")
	for _, row := range w.read(&plan.Query{Root: w.block("Thing"), Rows: true}).Rows {
		checkStates(w, row)
	}
}

// checkStates looks at the cells of a row of conditionTable.
func checkStates(w *world, row plan.ReadRow) {
	id := plain(row.Cells[0])
	for i, f := range w.model("Thing").Fields {
		got := row.Cells[i]
		for _, s := range samples {
			if s.field != f.Name {
				continue
			}
			want := map[string]string{"low": s.low, "top": s.high, "null": "null"}[id]
			if plain(got) != plain(value(want)) && !got.Equal(value(want)) {
				w.t.Errorf("%s of %s: %s, want %s", f.Name, id, plain(got), want)
			}
		}
		if id == "low" && f.Name == "a" && !got.Equal(value(`[1,"x",null,{"k":[]}]`)) || id == "low" && f.Name == "o" && !got.Equal(value(`{"z":1,"a":{"b":null}}`)) {
			w.t.Errorf("%s: %s", f.Name, plain(got))
		}
	}
}

// testPlainTable asks the same of a table without __present, where null is missing.
func testPlainTable(t *testing.T, p Place) {
	w := conditionTable(t, p, strings.Replace(everything, `"archive"`, `"table": "thing", "key": ["id"], "archive"`, 1))
	checkConditions(w, "none null", "low top")
	b := w.block("Thing", "_id", "s", "i")
	b.Where = w.is("Thing._id", plan.EQ, `"null"`)
	w.want("row of nulls", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), "null - -")
}

// checkConditions asks everything of every scalar field. null and stored are the rows of IsNull and IsStored.
func checkConditions(w *world, null, stored string) {
	for _, s := range samples {
		path := "Thing." + s.field
		by := w.by(path)
		is := func(op plan.CompareOp, v string) plan.Cond { return w.is(path, op, v) }
		in := func(vs ...string) plan.Cond {
			c := plan.In{By: by}
			for _, v := range vs {
				c.Values = append(c.Values, value(v))
			}
			return c
		}
		not := func(c plan.Cond) plan.Cond { return plan.Not{Cond: c} }
		for _, c := range []struct {
			name string
			cond plan.Cond
			want string
		}{
			{"=", is(plan.EQ, s.low), "low"}, {"<>", is(plan.NE, s.low), "top"},
			{">", is(plan.GT, s.low), "top"}, {">=", is(plan.GE, s.low), "low top"},
			{"<", is(plan.LT, s.high), "low"}, {"<=", is(plan.LE, s.high), "low top"},
			{"in one", in(s.high), "top"}, {"in both", in(s.high, s.low), "low top"}, {"in none", in(), ""},
			{"not =", not(is(plan.EQ, s.low)), "top"}, {"not <", not(is(plan.LT, s.high)), "top"}, {"not >", not(is(plan.GT, s.low)), "low"},
			{"not in", not(in(s.low)), "top"}, {"not in both", not(in(s.low, s.high)), ""}, {"not in none", not(in()), "low none null top"},
			{"not not =", not(not(is(plan.EQ, s.low))), "low"},
			{"is null", plan.IsNull{By: by}, null}, {"is stored", plan.IsStored{By: by}, stored}, {"has value", plan.HasValue{By: by}, "low top"},
			{"not null", not(plan.IsNull{By: by}), without("low none null top", null)}, {"not stored", not(plan.IsStored{By: by}), without("low none null top", stored)},
			{"or unknown", plan.Or{is(plan.EQ, s.low), plan.IsNull{By: by}}, sorted("low", null)},
			{"not or", not(plan.Or{is(plan.EQ, s.low), plan.Const(false)}), "top"},
			{"not and", not(plan.And{is(plan.EQ, s.low), plan.Const(true)}), "top"},
		} {
			w.want(s.field+" "+c.name, w.ids("Thing", c.cond), c.want)
		}
	}
}

// without removes words.
func without(words, gone string) string {
	var out []string
	for _, word := range strings.Fields(words) {
		if !strings.Contains(" "+gone+" ", " "+word+" ") {
			out = append(out, word)
		}
	}
	return strings.Join(out, " ")
}

// sorted joins words in the order of conditionTable.
func sorted(words ...string) string {
	all := " " + strings.Join(words, " ") + " "
	var out []string
	for _, word := range strings.Fields("low none null top") {
		if strings.Contains(all, " "+word+" ") {
			out = append(out, word)
		}
	}
	return strings.Join(out, " ")
}

// testLogic asks the empty groups and constants.
func testLogic(t *testing.T, p Place) {
	w := open(t, p, `[{"name": "Thing", "timestamps": false, "fields": {"_id": "string", "i": "int"}}]`, Options{})
	w.insert("Thing", `[{"_id":"a","i":1},{"_id":"b"}]`)
	for _, c := range []struct {
		name string
		cond plan.Cond
		want string
	}{
		{"nil", nil, "a b"}, {"true", plan.Const(true), "a b"}, {"false", plan.Const(false), ""},
		{"and of none", plan.And{}, "a b"}, {"or of none", plan.Or{}, ""},
		{"not true", plan.Not{Cond: plan.Const(true)}, ""}, {"not and of none", plan.Not{Cond: plan.And{}}, ""},
		{"and of one", plan.And{w.is("Thing.i", plan.EQ, "1")}, "a"},
		{"unknown or true", plan.Or{w.is("Thing.i", plan.EQ, "2"), plan.Const(true)}, "a b"},
		{"not unknown", plan.Not{Cond: plan.And{w.is("Thing.i", plan.EQ, "2"), plan.Const(true)}}, "a"},
	} {
		w.want(c.name, w.ids("Thing", c.cond), c.want)
	}
}

// testRegex compares the engine's answers with those of Go.
func testRegex(t *testing.T, p Place) {
	w := open(t, p, `[{"name": "Thing", "timestamps": false, "fields": {"_id": "int", "s": "string"}}]`, Options{})
	texts := []string{"", "abc", "ABC", "a.c", "a\nb", "\n", "ünïcode", "ÜNÏCODE", "Kelvin \u212a", "x😀y", "***:a", "aaa", "a_b", "foo bar", "(x)", `back\slash`, "]", "-", "^", "tab\there", "s\u017f", "line one\nline two"}
	var rows []string
	for i, s := range texts {
		rows = append(rows, say(`{"_id":%d,"s":%s}`, i, canonjson.String(s).AppendJSON(nil)))
	}
	rows = append(rows, `{"_id":900,"s":null}`, `{"_id":901}`)
	w.insert("Thing", "["+strings.Join(rows, ",")+"]")
	for _, c := range []struct{ pattern, flags string }{
		{`abc`, ""}, {`abc`, "i"}, {`^a`, ""}, {`c$`, ""}, {`a.c`, ""}, {`a.b`, ""}, {`a.b`, "s"}, {`^b`, ""}, {`^b`, "m"}, {`^line two`, "m"}, {`one$`, "m"}, {`one$`, ""},
		{`ü`, "i"}, {`[ü-ÿ]`, ""}, {`k`, "i"}, {`S`, "i"}, {`\bbar\b`, ""}, {`\ba\b`, ""}, {`\w+`, ""}, {`^\w+$`, ""}, {`\d`, ""}, {`\s`, ""}, {`[^a-z]`, ""}, {`[^a-z]`, "i"}, {`a{2,3}`, ""},
		{`^(a|b)+$`, ""}, {`\(x\)`, ""}, {`\\`, ""}, {`[\]\-^]`, ""}, {`***:a`[3:], ""}, {`^$`, ""}, {``, ""}, {`a|`, ""}, {`x.y`, ""}, {`x..y`, ""}, {`(a*)*b`, ""}, {`^[\d\s\w]*$`, ""}, {`\x41`, ""}, {`a{0,255}`, ""}, {`(?:ab){1}c`, ""},
	} {
		re := regex(t, c.pattern, c.flags)
		var want []string
		for i, s := range texts {
			if goMatches(t, re, s) {
				want = append(want, say("%d", i))
			}
		}
		match := plan.Match{By: w.by("Thing.s"), Pattern: re}
		w.want(say("/%s/%s", c.pattern, c.flags), w.ids("Thing", match), strings.Join(want, " "))
		n := len(strings.Fields(w.ids("Thing", plan.Not{Cond: match})))
		if n+len(want) != len(texts) {
			t.Errorf("not /%s/%s: %d rows beside %d of %d: null must stay unknown", c.pattern, c.flags, n, len(want), len(texts))
		}
	}
}

// regex reads a pattern as the planner does.
func regex(t *testing.T, pattern, flags string) *plan.Regex {
	t.Helper()
	parsed := syntax.Perl &^ syntax.OneLine
	goText := pattern
	if flags != "" {
		goText = "(?" + flags + ":" + pattern + ")"
	}
	for _, f := range flags {
		switch f {
		case 'i':
			parsed |= syntax.FoldCase
		case 's':
			parsed |= syntax.DotNL
		}
	}
	if !strings.Contains(flags, "m") {
		parsed |= syntax.OneLine
	}
	tree, err := syntax.Parse(pattern, parsed)
	if err != nil {
		t.Fatal(err)
	}
	return &plan.Regex{Text: pattern, Flags: flags, Go: goText, Tree: tree}
}

// goMatches is Go's own answer.
func goMatches(t *testing.T, re *plan.Regex, s string) bool {
	t.Helper()
	compiled, err := regexp.Compile(re.Go)
	if err != nil {
		t.Fatal(err)
	}
	return compiled.MatchString(s)
}

// testOrder sorts with nulls and by code point, and the groups too.
func testOrder(t *testing.T, p Place) {
	w := open(t, p, `[{"name": "Thing", "timestamps": false, "fields": {"_id": "int", "s": "string", "i": "int", "f": "float"}}]`, Options{})
	words := []string{"b", "B", "a", "é", "Z", "\U0001F600", "\uFFEE", "", "aa", "a b", "10", "9", "_"}
	var rows []string
	for i, s := range words {
		rows = append(rows, say(`{"_id":%d,"s":%s,"i":%d}`, i, canonjson.String(s).AppendJSON(nil), i%3))
	}
	rows = append(rows, `{"_id":90,"s":null}`, `{"_id":91,"i":null,"f":1}`)
	w.insert("Thing", "["+strings.Join(rows, ",")+"]")
	sort := func(desc bool, names ...string) string {
		b := w.block("Thing", "_id")
		b.Order = nil
		for _, n := range names {
			b.Order = append(b.Order, plan.Order{By: w.by("Thing." + n), Desc: desc})
		}
		b.Order = append(b.Order, plan.Order{By: w.by("Thing._id")})
		return firstCells(w.read(&plan.Query{Root: b, Rows: true}).Rows)
	}
	w.want("text", sort(false, "s"), "90 91 7 10 11 1 4 12 2 9 8 0 3 6 5")
	w.want("text descending", sort(true, "s"), "5 6 3 0 8 9 2 12 4 1 11 10 7 90 91")
	w.want("two keys", sort(false, "i", "s"), order2)
	w.want("floats", sort(true, "f"), "91 0 1 2 3 4 5 6 7 8 9 10 11 12 90")
	w.want("between", w.ids("Thing", plan.And{w.is("Thing.s", plan.GE, `"B"`), w.is("Thing.s", plan.LT, `"b"`)}), "1 2 4 8 9 12")

	g := w.block("Thing")
	g.Columns, g.Order = nil, []plan.Order{{By: alias("s", model.String)}}
	g.Group = &plan.Group{By: []plan.Key{{Name: "s", Operand: w.by("Thing.s")}}, Aggs: []plan.GroupAgg{{Alias: "n", Op: model.Count}}}
	g.Limit = 4
	w.want("groups", lines(w.read(&plan.Query{Root: g, Rows: true}).Rows), "null 2\n 1\n10 1\n9 1")

	if p.Engine == "postgres" { // a column that sorts as a language does
		p.Exec(t, `CREATE TABLE words (id int PRIMARY KEY, s text); INSERT INTO words VALUES (1, 'b'), (2, 'B'), (3, 'a')`)
	} else {
		p.Exec(t, `CREATE TABLE words (id INTEGER PRIMARY KEY, s TEXT COLLATE NOCASE); INSERT INTO words VALUES (1, 'b'), (2, 'B'), (3, 'a')`)
	}
	const word = `[{"name": "Word", "table": "words", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": {"type": "int", "column": "id"}, "s": "string"}}]`
	sortWords := func(definitions string) string {
		v := define(t, p, definitions)
		v.start(Options{})
		b := v.block("Word", "_id")
		b.Order = append([]plan.Order{{By: v.by("Word.s")}}, b.Order...)
		return firstCells(v.read(&plan.Query{Root: b, Rows: true}).Rows)
	}
	w.want("by code point", sortWords(word), "2 3 1")
	w.want("as the database does", sortWords(strings.Replace(word, `"archive"`, `"collation": "source", "archive"`, 1)), "3 1 2")
	v := define(t, p, word)
	v.start(Options{})
	v.want("equal by code point", v.ids("Word", v.is("Word.s", plan.EQ, `"B"`)), "2")
}

// order2 are the rows of testOrder by i and s: nulls, then i = 0, 1, 2, each by text.
const order2 = "90 91 12 9 0 3 6 7 10 1 4 11 2 8 5"

// testIntegers keeps 64 bits.
func testIntegers(t *testing.T, p Place) {
	w := open(t, p, `[{"name": "Big", "timestamps": false, "fields": {"_id": "long", "n": "long"}, "relations": {"same": {"model": "Big", "localField": "n", "foreignField": "_id"}}}]`, Options{})
	w.insert("Big", `[{"_id":9223372036854775807,"n":-9223372036854775808},{"_id":-9223372036854775808,"n":9223372036854775807},{"_id":9007199254740993,"n":9007199254740993},{"_id":9007199254740992,"n":1}]`)
	b := w.block("Big")
	k := w.kid("Big", "same", "_id")
	b.Kids = []*plan.Kid{k}
	w.want("rows", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows),
		"-9223372036854775808 9223372036854775807 [9223372036854775807]\n9007199254740992 1 []\n9007199254740993 9007199254740993 [9007199254740993]\n9223372036854775807 -9223372036854775808 [-9223372036854775808]")
	w.want("equal", w.ids("Big", w.is("Big._id", plan.EQ, "9007199254740993")), "9007199254740993")
	w.want("greater", w.ids("Big", w.is("Big._id", plan.GT, "9007199254740992")), "9007199254740993 9223372036854775807")
	w.want("in", w.ids("Big", plan.In{By: w.by("Big.n"), Values: []canonjson.Value{value("9007199254740993"), value("-9223372036854775808")}}), "9007199254740993 9223372036854775807")
}

// testLongLists asks lists of thousands of values, floats among them.
func testLongLists(t *testing.T, p Place) {
	w := open(t, p, `[{"name": "Thing", "timestamps": false, "fields": {"_id": "int", "f": "double", "s": "string"}}]`, Options{})
	floats := []string{"0.1", "1e-7", "123456.789", "5e-324", "1.7976931348623157e308", "0.30000000000000004", "2.2250738585072014e-308", "9007199254740993.5", "1e21"}
	var rows []string
	list := plan.In{By: w.by("Thing.f")}
	for i, f := range floats {
		rows = append(rows, say(`{"_id":%d,"f":%s,"s":"it's \"%d\" {},\\"}`, i, f, i))
		list.Values = append(list.Values, value(f))
	}
	w.insert("Thing", "["+strings.Join(rows, ",")+"]")
	w.want("floats", w.ids("Thing", list), "0 1 2 3 4 5 6 7 8")
	words := plan.In{By: w.by("Thing.s")}
	for i := range 10_000 {
		words.Values = append(words.Values, canonjson.String(say(`it's "%d" {},\`, i*2)))
	}
	w.want("10,000 texts", w.ids("Thing", words), "0 2 4 6 8")
	w.want("not 10,000 texts", w.ids("Thing", plan.Not{Cond: words}), "1 3 5 7")
}

// family are models with relations.
const family = `[
	{"name": "Team", "timestamps": false, "fields": {"_id": "string", "name": "string", "lead": "string"},
		"relations": {"people": {"model": "Person", "foreignField": "team"}, "leader": {"model": "Person", "type": "one", "localField": "lead", "foreignField": "_id"},
			"first": {"model": "Person", "type": "one", "foreignField": "team"}}},
	{"name": "Person", "timestamps": false, "fields": {"_id": "string", "team": "string", "age": "int", "pay": "decimal", "height": "double", "big": "long", "name": "string", "born": "day", "fit": "boolean"},
		"indexes": [{"keys": {"team": 1, "age": 1}}],
		"relations": {"badges": {"model": "Badge", "foreignField": "owner"}, "of": {"model": "Team", "type": "one", "localField": "team", "foreignField": "_id"}}},
	{"name": "Badge", "timestamps": false, "fields": {"_id": "string", "owner": "string", "rank": "int"}, "indexes": [{"keys": {"owner": 1}}]}
]`

// families fills the tables of family.
func families(t *testing.T, p Place, o Options) *world {
	w := open(t, p, family, o)
	w.insert("Team", `[{"_id":"t1","name":"One","lead":"p3"},{"_id":"t2","name":"Two","lead":null},{"_id":"t3","name":"Three"}]`)
	w.insert("Person", `[
		{"_id":"p1","team":"t1","age":30,"pay":"10.10","height":1.5,"big":1,"name":"b","born":"2000-01-02","fit":true},
		{"_id":"p2","team":"t1","age":20,"pay":"0.05","height":2.5,"big":2,"name":"B","born":"1999-01-02","fit":false},
		{"_id":"p3","team":"t1","age":null,"name":"a"},
		{"_id":"p4","team":"t2","age":40,"pay":"7","height":0.25,"big":3,"name":"c","fit":true},
		{"_id":"p5","team":null,"age":50},
		{"_id":"p6","age":60}]`)
	w.insert("Badge", `[{"_id":"b1","owner":"p1","rank":2},{"_id":"b2","owner":"p1","rank":1},{"_id":"b3","owner":"p4","rank":1},{"_id":"b4","owner":"zz","rank":1}]`)
	return w
}

// testRelations reads relation blocks of several levels.
func testRelations(t *testing.T, p Place) {
	w := families(t, p, Options{})
	b := w.block("Team", "_id", "lead")
	people := w.kid("Team", "people", "_id", "team", "age")
	people.Block.Kids = []*plan.Kid{w.kid("Person", "badges", "rank", "owner"), w.kid("Person", "of", "name", "_id")}
	first := w.kid("Team", "first", "_id", "team")
	first.Block.Limit = 1
	b.Kids = []*plan.Kid{people, w.kid("Team", "leader", "name", "_id"), first}
	w.mark()
	w.want("rows", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows),
		"t1 p3 [p1 t1 30 [2 p1; 1 p1] [One t1]; p2 t1 20 [] [One t1]; p3 t1 null [] [One t1]] [a p3] [p1 t1]\n"+
			"t2 null [p4 t2 40 [1 p4] [Two t2]] [] [p4 t2]\n"+
			"t3 - [] [] []")
	selects := 0
	for _, s := range w.sentSince() {
		if strings.HasPrefix(s.Text, "SELECT") {
			selects++
		}
	}
	if selects != 6 {
		t.Errorf("%d statements for 6 blocks", selects)
	}
	people.Block.Where = plan.Or{w.is("Person.age", plan.LT, "30"), plan.IsNull{By: w.by("Person.age")}}
	people.Block.Order = []plan.Order{{By: w.by("Person.age"), Desc: true}, {By: w.by("Person._id")}}
	people.Block.Kids, b.Kids = nil, []*plan.Kid{people}
	w.want("condition and sort", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), "t1 p3 [p2 t1 20; p3 t1 null]\nt2 null []\nt3 - []")
}

// testWindows reads a window for each parent.
func testWindows(t *testing.T, p Place) {
	w := families(t, p, Options{})
	window := func(skip, limit int64, order ...plan.Order) string {
		b := w.block("Team", "_id")
		k := w.kid("Team", "people", "_id", "team")
		k.Block.Skip, k.Block.Limit = skip, limit
		k.Block.Order = append(order, k.Block.Order...)
		badges := w.kid("Person", "badges", "_id")
		badges.Block.Limit = 1
		badges.Block.Order = append([]plan.Order{{By: w.by("Badge.rank")}}, badges.Block.Order...)
		k.Block.Kids = []*plan.Kid{badges}
		b.Kids = []*plan.Kid{k}
		return lines(w.read(&plan.Query{Root: b, Rows: true}).Rows)
	}
	byAge := plan.Order{By: w.by("Person.age")}
	oldest := plan.Order{By: w.by("Person.age"), Desc: true}
	w.want("two", window(0, 2, byAge), "t1 [p3 t1 []; p2 t1 []]\nt2 [p4 t2 [b3]]\nt3 []")
	w.want("last", window(2, 5, byAge), "t1 [p1 t1 [b2]]\nt2 []\nt3 []")
	w.want("oldest", window(0, 1, oldest), "t1 [p1 t1 [b2]]\nt2 [p4 t2 [b3]]\nt3 []")
	w.want("none", window(0, 0, byAge), "t1 []\nt2 []\nt3 []")
	w.want("skip without limit", window(1, -1, byAge), "t1 [p2 t1 []; p1 t1 [b2]]\nt2 []\nt3 []")
	count := plan.Order{By: plan.Operand{Agg: w.agg("Person", "badges", model.Count, ""), Type: model.Long}, Desc: true}
	w.want("by an aggregate column", window(0, 2, count), "t1 [p1 t1 [b2]; p2 t1 []]\nt2 [p4 t2 [b3]]\nt3 []")
	of := w.kid("Person", "of")
	via := plan.Operand{Field: w.field("Team.name"), Via: &plan.Join{Relation: of.Relation, Target: of.Block.Model, Local: of.Local, Foreign: of.Foreign}, Type: model.String}
	b := w.block("Person", "_id")
	b.Order = append([]plan.Order{{By: via}}, b.Order...)
	w.want("by a to-one field", firstCells(w.read(&plan.Query{Root: b, Rows: true}).Rows), "p5 p6 p1 p2 p3 p4")
	via.Via.Where = w.is("Team.name", plan.NE, `"One"`)
	w.want("by a to-one field that may not be seen", firstCells(w.read(&plan.Query{Root: b, Rows: true}).Rows), "p1 p2 p3 p5 p6 p4")
}

// testComposite joins by two fields, and reads keys of two columns.
func testComposite(t *testing.T, p Place) {
	w := open(t, p, `[
		{"name": "Line", "table": "line", "key": ["book", "no"], "timestamps": false, "archive": false, "fields": {"book": "int", "no": "string", "text": "string"},
			"relations": {"notes": {"model": "Note", "localField": ["book", "no"], "foreignField": ["book", "line"]}}},
		{"name": "Note", "table": "note", "key": ["id"], "timestamps": false, "archive": false, "fields": {"_id": "int", "book": "int", "line": "string", "by": "string"}}]`, Options{})
	if got := w.insert("Line", `[{"book":1,"no":"a","text":"x"},{"book":1,"no":"b"},{"book":2,"no":"a","text":"y"}]`); plain(got.Rows[1].Cells[cellAt(w, "Line", "_id")]) != `["1","b"]` {
		t.Errorf("key of an inserted row: %s", line(got.Rows[1]))
	}
	w.insert("Note", `[{"_id":1,"book":1,"line":"a","by":"q"},{"_id":2,"book":2,"line":"a","by":"r"},{"_id":3,"book":1,"line":"a","by":"s"},{"_id":4,"book":1,"by":"t"}]`)
	b := w.block("Line", "_id", "book", "no", "text")
	k := w.kid("Line", "notes", "by")
	b.Kids = []*plan.Kid{k}
	w.want("rows", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), `["1","a"] 1 a x [q; s]`+"\n"+`["1","b"] 1 b - []`+"\n"+`["2","a"] 2 a y [r]`)
	k.Block.Limit = 1
	k.Block.Order = []plan.Order{{By: w.by("Note._id"), Desc: true}}
	w.want("window", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), `["1","a"] 1 a x [s]`+"\n"+`["1","b"] 1 b - []`+"\n"+`["2","a"] 2 a y [r]`)
	both := plan.And{w.is("Line.book", plan.EQ, "1"), w.is("Line.no", plan.EQ, `"b"`)}
	up := w.mustApply(&plan.Write{Kind: plan.Update, Model: w.model("Line"), Where: both, Set: []plan.Assign{{Field: w.field("Line.text"), Value: value(`"z"`)}}})
	w.want("updated", say("%d %s", len(up.Rows), w.all("Line", "_id", "text")), "1 "+`["1","a"] x`+"\n"+`["1","b"] z`+"\n"+`["2","a"] y`)
	many := w.mustApply(&plan.Write{Kind: plan.UpdateMany, Model: w.model("Line"), Where: w.is("Line.book", plan.EQ, "1"), Set: []plan.Assign{{Field: w.field("Line.text"), Value: value(`"w"`)}}})
	w.want("updated many", say("%d %s", many.Modified, w.all("Line", "_id", "text")), "2 "+`["1","a"] w`+"\n"+`["1","b"] w`+"\n"+`["2","a"] y`)
	gone := w.mustApply(&plan.Write{Kind: plan.Remove, Model: w.model("Line"), Where: w.is("Line.no", plan.EQ, `"a"`)})
	w.want("removed", say("%d %s", gone.Deleted, w.all("Line", "_id")), "2 "+`["1","b"]`)
}

// cellAt is the place of a field among the fields of a model.
func cellAt(w *world, name, field string) int {
	for i, f := range w.model(name).Fields {
		if f.Name == field {
			return i
		}
	}
	w.t.Fatalf("no field %s.%s", name, field)
	return -1
}

// testAggregates computes aggregate columns, at the root and in a relation.
func testAggregates(t *testing.T, p Place) {
	w := families(t, p, Options{})
	b := w.block("Team", "_id")
	for _, op := range []model.AggOp{model.Count, model.Sum, model.Avg, model.Min, model.Max} {
		for _, f := range []string{"age", "pay", "height", "big", "name", "born", "fit"} {
			if (op == model.Sum || op == model.Avg) && !w.field("Person."+f).Type.Numeric() {
				continue
			}
			b.Aggs = append(b.Aggs, w.agg("Team", "people", op, f))
		}
	}
	b.Aggs = append(b.Aggs, w.agg("Team", "people", model.Count, ""))
	w.mark()
	w.want("all", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows),
		"t1 2 2 2 2 3 2 2 50 10.15 4 3 25 5.075 2 1.5 20 0.05 1.5 1 B 1999-01-02 false 30 10.1 2.5 2 b 2000-01-02 true 3\n"+
			"t2 1 1 1 1 1 0 1 40 7 0.25 3 40 7 0.25 3 40 7 0.25 3 c null true 40 7 0.25 3 c null true 1\n"+
			"t3 0 0 0 0 0 0 0 null null null null null null null null null null null null null null null null null null null null null null 0")
	if n := len(w.sentSince()); n != 4 { // begin, rows, aggregates, end
		t.Errorf("%d statements", n)
	}
	few := w.agg("Team", "people", model.Count, "")
	few.Where = w.is("Person.age", plan.GT, "25")
	b.Aggs = []*plan.Agg{few}
	b.Order = []plan.Order{{By: plan.Operand{Agg: few, Type: model.Long}, Desc: true}, {By: w.by("Team._id"), Desc: true}}
	w.want("sorted by one with a condition", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), "t2 1\nt1 1\nt3 0")
	b = w.block("Team", "_id")
	k := w.kid("Team", "people", "_id")
	k.Block.Aggs = []*plan.Agg{w.agg("Person", "badges", model.Sum, "rank")}
	b.Kids = []*plan.Kid{k}
	w.want("in a relation", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), "t1 [p1 3; p2 null; p3 null]\nt2 [p4 1]\nt3 []")
}

// testPredicates filters parents by their children.
func testPredicates(t *testing.T, p Place) {
	w := families(t, p, Options{})
	having := func(op model.AggOp, field string, c plan.Cond) plan.Cond {
		e := w.exists("Team", "people")
		a := plan.GroupAgg{Alias: "n", Op: op}
		if field != "" {
			a.Field = w.field("Person." + field)
		}
		e.Aggs, e.Having = []plan.GroupAgg{a}, c
		return e
	}
	plainExists := w.exists("Team", "people")
	old := w.exists("Team", "people")
	old.Where = w.is("Person.age", plan.GE, "40")
	nested := w.exists("Team", "people")
	nested.Where = w.exists("Person", "badges")
	two := w.exists("Team", "people")
	two.Aggs = []plan.GroupAgg{{Alias: "n", Op: model.Count}, {Alias: "s", Op: model.Sum, Field: w.field("Person.age")}}
	two.Having = plan.And{num("n", plan.GE, "1"), num("s", plan.GT, "45")}
	for _, c := range []struct {
		name string
		cond plan.Cond
		want string
	}{
		{"exists", plainExists, "t1 t2"}, {"none", plan.Not{Cond: plainExists}, "t3"}, {"with a filter", old, "t2"}, {"nested", nested, "t1 t2"},
		{"count 0", having(model.Count, "", num("n", plan.EQ, "0")), "t3"}, {"count below 2", having(model.Count, "", num("n", plan.LT, "2")), "t2 t3"},
		{"count of values", having(model.Count, "age", num("n", plan.EQ, "2")), "t1"}, {"sum", having(model.Sum, "age", num("n", plan.GE, "50")), "t1"},
		{"sum of none", having(model.Sum, "age", num("n", plan.LT, "1000")), "t1 t2"}, {"not sum", plan.Not{Cond: having(model.Sum, "age", num("n", plan.GE, "50"))}, "t2 t3"},
		{"avg", having(model.Avg, "height", plan.Compare{By: alias("n", model.Double), Op: plan.EQ, Value: value("2")}), "t1"},
		{"max text", having(model.Max, "name", plan.Compare{By: alias("n", model.String), Op: plan.EQ, Value: value(`"b"`)}), "t1"},
		{"min day", having(model.Min, "born", plan.Compare{By: alias("n", model.Day), Op: plan.LT, Value: value(`"2000-01-01"`)}), "t1"},
		{"sum of decimals", having(model.Sum, "pay", plan.Compare{By: alias("n", model.Decimal), Op: plan.EQ, Value: value(`"10.15"`)}), "t1"},
		{"two", two, "t1"}, {"beside others", plan.Or{two, w.is("Team.name", plan.EQ, `"Three"`)}, "t1 t3"},
	} {
		w.want(c.name, w.ids("Team", c.cond), c.want)
	}
}

// testGroups groups, with and without keys.
func testGroups(t *testing.T, p Place) {
	w := families(t, p, Options{})
	group := func(where plan.Cond, by []string, having plan.Cond, order ...plan.Order) string {
		b := w.block("Person")
		b.Columns, b.Order, b.Where = nil, order, where
		b.Group = &plan.Group{Having: having}
		for _, name := range by {
			b.Group.By = append(b.Group.By, plan.Key{Name: name, Operand: w.by("Person." + name)})
		}
		b.Group.Aggs = []plan.GroupAgg{{Alias: "n", Op: model.Count}, {Alias: "age", Op: model.Sum, Field: w.field("Person.age")}, {Alias: "mean", Op: model.Avg, Field: w.field("Person.age")}}
		rows := w.read(&plan.Query{Root: b, Rows: true, Total: true})
		if rows.Total != int64(len(rows.Rows)) {
			t.Errorf("%d groups, and a total of %d", len(rows.Rows), rows.Total)
		}
		return lines(rows.Rows)
	}
	byTeam := plan.Order{By: alias("team", model.String)}
	w.want("by team", group(nil, []string{"team"}, nil, byTeam), "null 2 110 55\nt1 3 50 25\nt2 1 40 40")
	w.want("descending", group(nil, []string{"team"}, nil, plan.Order{By: alias("n", model.Long), Desc: true}, byTeam), "t1 3 50 25\nnull 2 110 55\nt2 1 40 40")
	w.want("having", group(nil, []string{"team"}, num("age", plan.GE, "50"), byTeam), "null 2 110 55\nt1 3 50 25")
	w.want("having on a key", group(nil, []string{"team"}, plan.IsNull{By: alias("team", model.String)}, byTeam), "null 2 110 55")
	w.want("all", group(nil, nil, nil), "6 200 40")
	w.want("of nothing", group(plan.Const(false), nil, nil), "0 null null")
	w.want("no groups", group(plan.Const(false), []string{"team"}, nil, byTeam), "")
	w.want("two keys", group(nil, []string{"team", "fit"}, nil, byTeam, plan.Order{By: alias("fit", model.Boolean), Desc: true}), "null null 2 110 55\nt1 true 1 30 30\nt1 false 1 20 20\nt1 null 1 null null\nt2 true 1 40 40")
	b := w.block("Person")
	of := w.kid("Person", "of")
	via := plan.Operand{Field: w.field("Team.name"), Via: &plan.Join{Relation: of.Relation, Target: of.Block.Model, Local: of.Local, Foreign: of.Foreign}, Type: model.String}
	b.Columns, b.Order, b.Skip, b.Limit = nil, []plan.Order{{By: alias("of.name", model.String)}}, 1, 1
	b.Group = &plan.Group{By: []plan.Key{{Name: "of.name", Operand: via}}, Aggs: []plan.GroupAgg{{Alias: "n", Op: model.Count}}}
	w.want("by a to-one field, second group", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), "One 3")
}

// testSums keeps sums exact, and names those that nothing can hold.
func testSums(t *testing.T, p Place) {
	w := open(t, p, `[{"name": "Account", "timestamps": false, "fields": {"_id": "string"}, "relations": {"parts": {"model": "Part", "foreignField": "account"}}},
		{"name": "Part", "timestamps": false, "fields": {"_id": "int", "account": "string", "n": "long", "one": "int", "dec": "decimal"}}]`, Options{})
	w.insert("Account", `[{"_id":"over"},{"_id":"max"}]`)
	w.insert("Part", `[{"_id":1,"account":"over","n":9223372036854775807,"one":1,"dec":"0.1"},{"_id":2,"account":"over","n":1,"one":2,"dec":"0.2"},{"_id":3,"account":"max","n":9223372036854775806,"dec":"1000000000000000000000.000000000000000000001"},{"_id":4,"account":"max","n":1,"dec":"-1"}]`)
	group := func(account string) (*plan.Rows, error) {
		b := w.block("Part")
		b.Columns, b.Order, b.Where = nil, nil, w.is("Part.account", plan.EQ, `"`+account+`"`)
		b.Group = &plan.Group{Aggs: []plan.GroupAgg{{Alias: "total", Op: model.Sum, Field: w.field("Part.n")}, {Alias: "mean", Op: model.Avg, Field: w.field("Part.one")}, {Alias: "dec", Op: model.Sum, Field: w.field("Part.dec")}}}
		return w.source.Read(t.Context(), &plan.Query{Root: b, Rows: true})
	}
	rows, err := group("max")
	if err != nil {
		t.Fatal(err)
	}
	w.want("exact", lines(rows.Rows), "9223372036854775807 null 999999999999999999999.000000000000000000001")
	wantClass(t, "a sum beyond 64 bits", second(group("over")), model.Unrepresentable, "total")
	b := w.block("Account", "_id")
	b.Aggs = []*plan.Agg{w.agg("Account", "parts", model.Sum, "n")}
	_, err = w.source.Read(t.Context(), &plan.Query{Root: b, Rows: true})
	wantClass(t, "an aggregate column beyond 64 bits", err, model.Unrepresentable, "sumn")
}

// second gives an error without its value.
func second[T any](_ T, err error) error { return err }

// wantClass looks for an error of a class that mentions words.
func wantClass(t *testing.T, what string, err error, class model.Class, mentions ...string) {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) || e.Class != class {
		t.Errorf("%s: %v, want the class %s", what, err, class)
		return
	}
	for _, word := range mentions {
		if !strings.Contains(e.Message, word) {
			t.Errorf("%s: %q does not mention %q", what, e.Message, word)
		}
	}
}

// testLimits cuts by rows and bytes, and tells that it did.
func testLimits(t *testing.T, p Place) {
	w := open(t, p, `[{"name": "Box", "timestamps": false, "fields": {"_id": "int", "s": "string"}, "relations": {"items": {"model": "Item", "foreignField": "box"}}},
		{"name": "Item", "timestamps": false, "fields": {"_id": "int", "box": "int", "s": "string"}}]`, Options{})
	text := strings.Repeat("x", 1000)
	w.insert("Box", sequence(1, 20, `{"_id":#,"s":"`+text+`"}`))
	w.insert("Item", sequence(1, 200, `{"_id":#,"box":1,"s":"`+text+`"}`))
	read := func(b *plan.Block, bytes, rows int64) (*plan.Rows, error) {
		return w.source.Read(t.Context(), &plan.Query{Root: b, Rows: true, MaxBytes: bytes, MaxRows: rows})
	}
	count := func(what string, b *plan.Block, bytes int64, n int, more bool) {
		t.Helper()
		rows, err := read(b, bytes, 0)
		if err != nil || len(rows.Rows) != n || rows.More != more {
			t.Errorf("%s: %d rows, more %v, %v; want %d, %v", what, len(rows.Rows), rows.More, err, n, more)
		}
	}
	b := w.block("Box")
	count("no bound", b, 0, 20, false)
	count("bytes", b, 5200, 5, true)
	count("one row at least", b, 10, 1, true)
	b.Limit = 5
	count("limit", b, 0, 5, false)
	b.Peek = true
	count("limit with a look ahead", b, 0, 5, true)
	b.Limit = 20
	count("the last page", b, 0, 20, false)
	b.Limit, b.Skip, b.Peek = -1, 18, false
	count("skip", b, 0, 2, false)
	b.Skip = 0
	k := w.kid("Box", "items", "s", "box")
	b.Kids = []*plan.Kid{k}
	count("bytes of relations", b, 5200, 1, true)
	b.Columns = w.fields("Box", "_id")
	count("bytes of relations that are far too many", b, 1000, 1, true)
	if _, err := read(b, 0, 200); err != nil {
		t.Errorf("as many rows as may be: %v", err)
	}
	wantClass(t, "too many related rows", second(read(b, 0, 199)), model.Limit, "items", "199")
}

// testUnindexedSort refuses to sort a large table without an index.
func testUnindexedSort(t *testing.T, p Place) {
	w := define(t, p, `[{"name": "Row", "timestamps": false, "fields": {"_id": "int", "kind": "string", "price": "float", "weight": "float", "name": "string"},
		"indexes": [{"keys": {"price": 1}}, {"keys": {"kind": 1, "weight": -1}}, {"keys": {"name": 1}}]}]`)
	for _, s := range sqlgen.DDL(p.Engine, w.registry.List()) {
		p.Exec(t, s)
	}
	w.start(Options{})
	w.insert("Row", sequence(1, 300, `{"_id":#,"kind":"k","price":#,"weight":#,"name":"n#"}`))
	if p.Engine == "postgres" {
		p.Exec(t, `ANALYZE`)
	}
	w.start(Options{MaxUnindexed: 200})
	sort := func(where plan.Cond, order ...plan.Order) error {
		b := w.block("Row", "_id")
		b.Where, b.Limit = where, 1
		b.Order = append(order, b.Order...)
		_, err := w.source.Read(t.Context(), &plan.Query{Root: b, Rows: true})
		return err
	}
	up := func(name string) plan.Order { return plan.Order{By: w.by("Row." + name)} }
	down := func(name string) plan.Order { return plan.Order{By: w.by("Row." + name), Desc: true} }
	for name, err := range map[string]error{
		"key": sort(nil), "index": sort(nil, up("price")), "index backwards": sort(nil, down("price")), "text": sort(nil, up("name")),
		"behind a fixed column": sort(w.is("Row.kind", plan.EQ, `"k"`), up("weight")), "a fixed column itself": sort(w.is("Row.kind", plan.EQ, `"k"`), up("kind")),
	} {
		if err != nil {
			t.Errorf("sort by %s: %v", name, err)
		}
	}
	wantClass(t, "sort without an index", sort(nil, up("weight")), model.Limit, "Row", "weight", "200")
	wantClass(t, "sort by the second column", sort(w.is("Row.kind", plan.GT, `"k"`), up("weight")), model.Limit, "weight")
	w.start(Options{MaxUnindexed: 400})
	if err := sort(nil, up("weight")); err != nil {
		t.Errorf("sort of a small table: %v", err)
	}
}

// testKeyless reads a table without a key.
func testKeyless(t *testing.T, p Place) {
	p.Exec(t, `CREATE TABLE log (at int, what varchar(20)); INSERT INTO log VALUES (2, 'b'), (1, 'b'), (1, 'a'), (NULL, 'z'), (1, 'a')`)
	p.Exec(t, `CREATE VIEW calm AS SELECT at, what FROM log WHERE what <> 'z'`)
	w := define(t, p, `[{"name": "Log", "table": "log", "key": [], "timestamps": false, "archive": false, "fields": {"at": "int", "what": "string"}, "relations": {"same": {"model": "Log", "localField": "at", "foreignField": "at"}}},
		{"name": "Calm", "table": "calm", "view": true, "timestamps": false, "archive": false, "fields": {"at": "int", "what": "string"}, "relations": {"same": {"model": "Calm", "localField": "at", "foreignField": "at"}}}]`)
	if problems := w.start(Options{}); len(problems) > 0 {
		t.Fatal(problems)
	}
	for name, want := range map[string]string{"Log": "- z []\n1 a [a; a]\n1 a [a; a]\n1 b [a; a]\n2 b [b]", "Calm": "1 a [a; a]\n1 a [a; a]\n1 b [a; a]\n2 b [b]"} {
		b := w.block(name)
		b.Order = []plan.Order{{By: w.by(name + ".at")}, {By: w.by(name + ".what")}}
		k := w.kid(name, "same", "what")
		k.Block.Limit = 2
		k.Block.Order = b.Order
		b.Kids = []*plan.Kid{k}
		w.want(name, lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), want)
		_, err := w.apply(&plan.Write{Kind: plan.Remove, Model: w.model(name), Where: w.is(name+".at", plan.EQ, "1")})
		wantClass(t, "a write on "+name, err, model.ReadOnly, name)
	}
}

// testNames uses names that need quotes, in a table that needs them.
func testNames(t *testing.T, p Place) {
	odd := `odd "table' ; --`
	p.Exec(t, `CREATE TABLE "odd ""table' ; --" ("the ""id" varchar(9) PRIMARY KEY, "select" int, "a.b" varchar(9))`)
	w := define(t, p, say(`[{"name": "Odd", "table": %s, "key": ["the \"id"], "timestamps": false, "archive": false,
		"fields": {"_id": {"type": "string", "column": "the \"id"}, "select": "int", "ab": {"type": "string", "column": "a.b"}}}]`, canonjson.String(odd).AppendJSON(nil)))
	if problems := w.start(Options{}); len(problems) > 0 {
		t.Fatal(problems)
	}
	w.insert("Odd", `[{"_id":"x'; --","select":1,"ab":"\"q"}]`)
	w.want("row", w.all("Odd", "_id", "select", "ab"), `x'; -- 1 "q`)
	w.want("found", w.ids("Odd", plan.And{w.is("Odd.select", plan.EQ, "1"), w.is("Odd.ab", plan.EQ, `"\"q"`)}), `x'; --`)
}
