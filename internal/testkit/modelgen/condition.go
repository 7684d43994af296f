package modelgen

import (
	"regexp"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// condition makes a condition on a model: one or two members, groups down to a depth, relation predicates where wanted.
func (g *Generator) condition(m *Model, depth int, predicates bool) canonjson.Value {
	var members []canonjson.Member
	for range 1 + g.rand.IntN(2) {
		name, v := g.member(m, depth, predicates)
		if name != "" && !has(members, name) {
			members = append(members, canonjson.M(name, v))
		}
	}
	return canonjson.Object(members...)
}

// member makes one member of a condition.
func (g *Generator) member(m *Model, depth int, predicates bool) (string, canonjson.Value) {
	switch at := g.rand.IntN(100); {
	case at < 25 && depth > 0:
		op := g.least("op ", "$and", "$or", "$nor")
		var branches []canonjson.Value
		for range 1 + g.rand.IntN(3) {
			branches = append(branches, g.condition(m, depth-1, predicates))
		}
		g.use("op %s", op)
		return op, canonjson.Array(branches...)
	case at < 45 && predicates && len(m.Relations) > 0:
		return g.predicate(m)
	case at < 55:
		return g.key(m)
	}
	f := g.scalar(m)
	return f.Name, g.test(f)
}

// key asks for _id; that of a composite key is its values as text.
func (g *Generator) key(m *Model) (string, canonjson.Value) {
	if m.ID != nil {
		return "_id", g.test(m.ID)
	}
	rows := g.world.Data[m.Name].Rows
	if len(rows) == 0 || m.keyless() {
		return "", canonjson.Value{}
	}
	var ids []canonjson.Value
	for range 3 {
		ids = append(ids, m.Key(pick(g.rand, rows)))
	}
	if g.chance(50) {
		g.use("op $in")
		return "_id", canonjson.Object(canonjson.M("$in", canonjson.Array(ids...)))
	}
	g.use("op plain")
	return "_id", ids[0]
}

// test makes the value or the operators of one field.
func (g *Generator) test(f *Field) canonjson.Value {
	ops := []string{"plain", "plain", "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$not", "null", "null", "null"}
	if f.Type == model.String {
		ops = append(ops, "$regex", "$regex", "$options", "$options", "$options")
	}
	op := g.least("op ", ops...)
	switch op {
	case "plain":
		g.use("op plain")
		return g.value(f)
	case "null":
		g.use("op null")
		return pick(g.rand, []canonjson.Value{canonjson.Null(), canonjson.Object(canonjson.M("$ne", canonjson.Null())), canonjson.Object(canonjson.M("$eq", canonjson.Null()))})
	case "$not":
		g.use("op $not")
		inner := g.operator(f, g.least("op ", ops[2:11]...))
		if g.chance(15) {
			return canonjson.Object(canonjson.M("$not", g.value(f)))
		}
		return canonjson.Object(canonjson.M("$not", canonjson.Object(inner...)))
	}
	members := g.operator(f, op)
	if (op == "$gt" || op == "$gte") && g.chance(40) {
		members = append(members, g.operator(f, pick(g.rand, []string{"$lt", "$lte", "$ne"}))...)
	}
	return canonjson.Object(members...)
}

// operator makes one operator with its operand; $options brings its $regex.
func (g *Generator) operator(f *Field, op string) []canonjson.Member {
	g.use("op %s", op)
	switch op {
	case "$in", "$nin":
		return []canonjson.Member{canonjson.M(op, g.list(f))}
	case "$exists":
		return []canonjson.Member{canonjson.M(op, canonjson.Bool(g.chance(60)))}
	case "$regex":
		return []canonjson.Member{canonjson.M(op, canonjson.String(g.pattern(f)))}
	case "$options":
		flags := pick(g.rand, []string{"i", "m", "s", "im", "is", "ims"})
		return []canonjson.Member{canonjson.M("$regex", canonjson.String(g.otherCase(f))), canonjson.M(op, canonjson.String(flags))}
	}
	return []canonjson.Member{canonjson.M(op, g.value(f))}
}

// list makes the operand of $in and $nin.
func (g *Generator) list(f *Field) canonjson.Value {
	var items []canonjson.Value
	for range g.rand.IntN(4) {
		items = append(items, g.value(f))
	}
	if g.chance(15) && len(items) > 0 {
		items = append(items, canonjson.Null())
	}
	return canonjson.Array(items...)
}

// value chooses a value to compare with: mostly one that rows hold, in one of its spellings.
func (g *Generator) value(f *Field) canonjson.Value {
	pool := f.Pool
	if len(pool) == 0 || g.chance(8) {
		pool = g.world.pool(&Field{Type: f.Type, Inexact: f.Inexact})
	}
	v := pick(g.rand, pool)
	switch {
	case v.Kind() == canonjson.KindNumber && g.chance(12):
		return canonjson.String(v.Literal())
	case f.Type == model.Boolean && g.chance(15):
		if v.Bool() {
			return canonjson.Int(1)
		}
		return canonjson.Int(0)
	}
	return v
}

// patterns are regular expressions beside those made of values.
var patterns = []string{`^[a-cA-Z]`, `\d+`, `^\d+$`, `a|b`, `^$`, `.`, `^.$`, `^.{2,3}$`, `[^a-z]`, `\s`, `^line.*two$`, `two$`, `^line`, `e?`, `\bline\b`, `\w+`, `(a|é)`, `\.`, `%`, `^a.b$`}

// pattern makes a regular expression: a piece of a value, or one of a list.
func (g *Generator) pattern(f *Field) string {
	if g.chance(55) || len(f.Pool) == 0 {
		return pick(g.rand, patterns)
	}
	text := []rune(pick(g.rand, f.Pool).Str())
	if len(text) > 1 {
		from := g.rand.IntN(len(text))
		text = text[from : from+1+g.rand.IntN(len(text)-from)]
	}
	p := regexp.QuoteMeta(strings.ReplaceAll(string(text), "\n", "."))
	switch g.rand.IntN(4) {
	case 0:
		return "^" + p
	case 1:
		return p + "$"
	}
	return p
}

// otherCase makes a regular expression that often fits a value only where case does not count. Letters beyond ASCII have
// no case that all engines agree on.
func (g *Generator) otherCase(f *Field) string {
	if len(f.Pool) == 0 || g.chance(30) {
		return g.pattern(f)
	}
	var text string
	for range 5 {
		if text == "" {
			text = letters(pick(g.rand, f.Pool).Str())
		}
	}
	if text == strings.ToLower(text) {
		return "^" + strings.ToUpper(text)
	}
	return "^" + strings.ToLower(text)
}

// letters are the ASCII letters that a text begins with.
func letters(s string) string {
	end := strings.IndexFunc(s, func(r rune) bool { return r < 'A' || r > 'z' || r > 'Z' && r < 'a' })
	if end < 0 {
		return s
	}
	return s[:end]
}

// predicate makes a relation predicate.
func (g *Generator) predicate(m *Model) (string, canonjson.Value) {
	r := pick(g.rand, m.Relations)
	kind := g.least("predicate ", "exists", "short", "short", "long", "not")
	g.use("predicate %s", kind)
	if kind == "not" {
		inner := pick(g.rand, []string{"exists", "short", "long"})
		return "$not", canonjson.Object(canonjson.M(r.Name, g.form(r, inner)))
	}
	return r.Name, g.form(r, kind)
}

// form makes the value of a predicate in one of its forms.
func (g *Generator) form(r *Relation, kind string) canonjson.Value {
	var filter canonjson.Value
	if g.chance(40) {
		filter = g.condition(r.Target, 1, false)
		g.use("predicate filter")
	}
	switch kind {
	case "exists":
		return canonjson.Object(canonjson.M("$filter", filter), canonjson.M("$exists", canonjson.Bool(g.chance(60))))
	case "short":
		return canonjson.Object(append([]canonjson.Member{canonjson.M("$filter", filter)}, g.short(r)...)...)
	}
	aggs, outputs := g.aggregates(r.Target, "predicate", 1+g.rand.IntN(2))
	return canonjson.Object(canonjson.M("filter", filter), canonjson.M("agg", aggs), canonjson.M("having", g.over(members(aggs), outputs, 1)))
}

// short makes {op: {$of, comparison}}.
func (g *Generator) short(r *Relation) []canonjson.Member {
	aggs, outputs := g.aggregates(r.Target, "predicate", 1)
	alias := aggs.Members()[0]
	only := alias.Value.Members()[0]
	of := only.Value
	if of.Str() == "*" {
		of = canonjson.Value{}
	}
	cmp := g.least("op ", "$gt", "$gte", "$lt", "$lte", "$eq", "$ne")
	g.use("op %s", cmp)
	return []canonjson.Member{canonjson.M(only.Name, canonjson.Object(canonjson.M("$of", of), canonjson.M(cmp, g.value(outputs[alias.Name]))))}
}

// over makes a condition on the outputs of a group or a predicate.
func (g *Generator) over(names []string, outputs map[string]*Field, depth int) canonjson.Value {
	if depth > 0 && g.chance(25) {
		op := g.least("op ", "$and", "$or", "$nor")
		g.use("op %s", op)
		return canonjson.Object(canonjson.M(op, canonjson.Array(g.over(names, outputs, 0), g.over(names, outputs, 0))))
	}
	op := g.least("op ", "plain", "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$not")
	name := pick(g.rand, names)
	f := outputs[name]
	switch op {
	case "plain":
		g.use("op plain")
		return canonjson.Object(canonjson.M(name, g.value(f)))
	case "$not":
		g.use("op $not")
		return canonjson.Object(canonjson.M(name, canonjson.Object(canonjson.M("$not", canonjson.Object(g.output(f, g.least("op ", "$gt", "$lte", "$eq", "$in"))...)))))
	}
	return canonjson.Object(canonjson.M(name, canonjson.Object(g.output(f, op)...)))
}

// output makes one operator on an output. Its lists are not empty: what a condition that is true whatever the outputs are
// says of a parent without rows, the specification does not tell.
func (g *Generator) output(f *Field, op string) []canonjson.Member {
	all := g.operator(f, op)
	if last := &all[len(all)-1]; (op == "$in" || op == "$nin") && last.Value.Len() == 0 {
		last.Value = canonjson.Array(g.value(f))
	}
	return all
}
