package modelgen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Counts tell how often each operator, aggregate, window, kind of sort and form of predicate was met. Names are "op $gt",
// "agg $sum group", "window kid skip+limit", "sort agg" and so on; see Wanted.
type Counts map[string]int

// Add counts the uses of a query.
func (c Counts) Add(uses []string) {
	for _, u := range uses {
		c[u]++
	}
}

// Wanted are the names that a full comparison must meet.
func Wanted() []string {
	var all []string
	for _, op := range strings.Fields("$eq plain $ne $gt $gte $lt $lte $in $nin $exists $not $regex $options null $and $or $nor") {
		all = append(all, "op "+op)
	}
	for _, op := range strings.Fields("$count $sum $avg $min $max") {
		for _, place := range []string{"group", "predicate", "column"} {
			all = append(all, "agg "+op+" "+place)
		}
	}
	for _, place := range []string{"root", "kid", "group"} {
		for _, w := range []string{"skip", "limit", "skip+limit"} {
			all = append(all, "window "+place+" "+w)
		}
	}
	for _, s := range strings.Fields("field agg via array kid group") {
		all = append(all, "sort "+s)
	}
	for _, p := range strings.Fields("exists short long not filter") {
		all = append(all, "predicate "+p)
	}
	return append(all, "condition kid", "group keys", "group none", "group via", "having", "relation one", "relation many", "relation self", "relation composite", "depth 2", "depth 3", "sub-fields")
}

// Query is one query.
type Query struct {
	Model  *Model
	Text   string
	Params canonjson.Value
	Uses   []string
	// Plain queries show fields of rows of the root, uncut by a window and without a look at other rows: what a row filter
	// does to them is seen from _id alone.
	Plain bool
}

// Queries makes queries over the world. It prefers what counts has met least; counts is read, not changed.
func (w *World) Queries(seed uint64, counts Counts) *Generator {
	return &Generator{world: w, rand: rand.New(rand.NewPCG(seed, 0x71756572)), counts: counts}
}

// Generator makes queries.
type Generator struct {
	world  *World
	rand   *rand.Rand
	counts Counts

	uses   []string
	params []canonjson.Member
	plain  bool // the query shall be Plain
}

// Next makes a query.
func (g *Generator) Next() Query { return g.next(35) }

// Plain makes a query that is Plain.
func (g *Generator) Plain() Query { return g.next(0) }

// next makes a query; windows and groups come in so many of a hundred.
func (g *Generator) next(cut int) Query {
	g.uses, g.params, g.plain = nil, nil, cut == 0
	m := pick(g.rand, g.world.Models)
	for g.plain && m.keyless() {
		m = pick(g.rand, g.world.Models)
	}
	var text string
	if g.chance(cut) {
		text = g.grouped(m)
	} else {
		text = g.block(m, 0)
	}
	return Query{Model: m, Text: m.Name + text, Params: canonjson.Object(g.params...), Uses: g.uses, Plain: cut == 0}
}

// chance is true p times in a hundred.
func (g *Generator) chance(p int) bool { return g.rand.IntN(100) < p }

// use notes what a query uses.
func (g *Generator) use(format string, args ...any) {
	g.uses = append(g.uses, fmt.Sprintf(format, args...))
}

// least takes two of several names and gives the one that was met less, counted under a prefix.
func (g *Generator) least(prefix string, all ...string) string {
	a, b := pick(g.rand, all), pick(g.rand, all)
	if g.counts[prefix+b] < g.counts[prefix+a] {
		return b
	}
	return a
}

// param adds a parameter and gives the reference to it.
func (g *Generator) param(v canonjson.Value) string {
	name := fmt.Sprintf("p%d", len(g.params))
	g.params = append(g.params, canonjson.M(name, v))
	return "@" + name
}

// arguments writes arguments, of which those without a value are left out.
func (g *Generator) arguments(all ...canonjson.Member) string {
	var parts []string
	for _, a := range all {
		if !a.Value.IsAbsent() {
			parts = append(parts, a.Name+": "+g.param(a.Value))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// block writes the arguments and the selection of the root (depth 0) or of a relation.
func (g *Generator) block(m *Model, depth int) string {
	var condition, sort canonjson.Value
	if g.chance(65) {
		condition = g.condition(m, 2, !g.plain)
		if depth > 0 {
			g.use("condition kid")
		}
	}
	items, related := g.selection(m, depth)
	if g.chance(55) {
		sort = g.sort(m, related)
		if depth > 0 {
			g.use("sort kid")
		}
	}
	place := "root"
	if depth > 0 {
		place = "kid"
	}
	skip, limit := g.cut(place)
	return g.arguments(canonjson.M("$condition", condition), canonjson.M("$sort", sort), canonjson.M("$skip", skip), canonjson.M("$limit", limit)) + items
}

// cut chooses a window.
func (g *Generator) cut(place string) (skip, limit canonjson.Value) {
	p := 40
	if place == "group" {
		p = 60
	}
	if g.plain || !g.chance(p) {
		return
	}
	kind := g.least("window "+place+" ", "skip", "limit", "skip+limit")
	if strings.HasPrefix(kind, "skip") {
		skip = canonjson.Int(int64(g.rand.IntN(4)))
	}
	if strings.HasSuffix(kind, "limit") {
		limit = canonjson.Int(int64(1 + g.rand.IntN(5)))
		if g.chance(3) {
			limit = canonjson.Int(0)
		}
	}
	g.use("window %s %s", place, kind)
	return
}

// selection writes a selection, and gives the to-one relations in it, by which rows may be sorted.
func (g *Generator) selection(m *Model, depth int) (text string, related []*Relation) {
	items := g.fields(m)
	if !g.plain {
		items = append(items, g.columns(m)...)
		for _, r := range g.relations(m, depth) {
			items = append(items, r.Name+g.related(m, r, depth+1))
			if r.One {
				related = append(related, r)
			}
		}
	}
	if len(items) == 0 && depth == 0 && g.chance(30) {
		return "", nil
	}
	g.rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	arrow := " "
	if depth == 0 && g.chance(50) {
		arrow = " -> "
	}
	return arrow + "{ " + strings.Join(items, ", ") + " }", related
}

// columns chooses up to three aggregate columns.
func (g *Generator) columns(m *Model) []string {
	if len(m.Columns) == 0 || g.chance(50) {
		return nil
	}
	var items []string
	for range 1 + g.rand.IntN(3) {
		a, b := pick(g.rand, m.Columns), pick(g.rand, m.Columns)
		if g.counts["agg "+string(b.Op)+" column"] < g.counts["agg "+string(a.Op)+" column"] {
			a = b
		}
		if !slices.Contains(items, a.Name) {
			items = append(items, a.Name)
			g.use("agg %s column", a.Op)
		}
	}
	return items
}

// relations chooses relations to follow: up to two from the root, one below.
func (g *Generator) relations(m *Model, depth int) []*Relation {
	var chosen []*Relation
	for range []int{2, 1, 1, 0}[depth] {
		if len(m.Relations) == 0 || !g.chance(60) {
			continue
		}
		if r := pick(g.rand, m.Relations); !slices.Contains(chosen, r) {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// fields chooses stored fields.
func (g *Generator) fields(m *Model) []string {
	var items []string
	if g.chance(60) && !m.keyless() {
		items = append(items, "_id")
	}
	if m.ID != nil && m.ID.Name != "_id" && g.chance(30) {
		items = append(items, m.ID.Name)
	}
	for _, f := range m.Fields {
		switch {
		case !g.chance(25):
		case f.Subs != nil && g.chance(60):
			items = append(items, g.subs(f))
			g.use("sub-fields")
		default:
			items = append(items, f.Name)
		}
	}
	return items
}

// subs writes sub-fields of an object in one of the two forms.
func (g *Generator) subs(f *Field) string {
	a, b := pick(g.rand, f.Subs).Name, pick(g.rand, f.Subs).Name
	switch {
	case g.chance(50):
		return f.Name + "." + a
	case a == b:
		return f.Name + " { " + a + " }"
	}
	return f.Name + " { " + a + ", " + b + " }"
}

// related writes a relation block.
func (g *Generator) related(m *Model, r *Relation, depth int) string {
	if depth > 1 {
		g.use("depth %d", depth)
	}
	if r.Target == m {
		g.use("relation self")
	}
	if len(r.Local) > 1 {
		g.use("relation composite")
	}
	if !r.One {
		g.use("relation many")
		return g.block(r.Target, depth)
	}
	g.use("relation one")
	var condition, sort, skip, limit canonjson.Value
	if g.chance(25) {
		condition = g.condition(r.Target, 1, true)
	}
	items, nested := g.selection(r.Target, depth)
	if g.chance(25) { // of several rows the first is shown, after the window
		sort = g.sort(r.Target, nested)
		skip, limit = g.cut("kid")
	}
	return g.arguments(canonjson.M("$condition", condition), canonjson.M("$sort", sort), canonjson.M("$skip", skip), canonjson.M("$limit", limit)) + items
}

// sort makes a $sort of up to three keys.
func (g *Generator) sort(m *Model, related []*Relation) canonjson.Value {
	var keys []canonjson.Member
	for range 1 + g.rand.IntN(3) {
		name := g.sortKey(m, related)
		if name == "" || has(keys, name) {
			continue
		}
		keys = append(keys, canonjson.M(name, pick(g.rand, []canonjson.Value{canonjson.Int(1), canonjson.Int(-1)})))
	}
	return g.sorted(keys)
}

// sorted writes sort keys in one of the two forms.
func (g *Generator) sorted(keys []canonjson.Member) canonjson.Value {
	if len(keys) == 0 {
		return canonjson.Value{}
	}
	if !g.chance(20) {
		return canonjson.Object(keys...)
	}
	g.use("sort array")
	var items []canonjson.Value
	for _, k := range keys {
		items = append(items, canonjson.Object(k))
	}
	return canonjson.Array(items...)
}

// has tells whether a member has a name.
func has(all []canonjson.Member, name string) bool {
	for _, m := range all {
		if m.Name == name {
			return true
		}
	}
	return false
}

// sortKey chooses one key.
func (g *Generator) sortKey(m *Model, related []*Relation) string {
	kind := g.least("sort ", "field", "field", "agg", "via")
	if g.plain {
		kind = "field"
	}
	switch {
	case kind == "agg" && len(m.Columns) > 0:
		g.use("sort agg")
		return pick(g.rand, m.Columns).Name
	case kind == "via" && len(related) > 0:
		r := pick(g.rand, related)
		if f := g.scalar(r.Target); f != nil {
			g.use("sort via")
			return r.Name + "." + f.Name
		}
	}
	g.use("sort field")
	if g.chance(10) && !m.keyless() {
		return "_id"
	}
	return g.scalar(m).Name
}

// scalar chooses a field that can be compared.
func (g *Generator) scalar(m *Model) *Field {
	var fit []*Field
	for _, f := range m.Fields {
		if !f.Type.JSON() {
			fit = append(fit, f)
		}
	}
	return pick(g.rand, fit)
}

// grouped writes a query with $group.
func (g *Generator) grouped(m *Model) string {
	by, keyFields := g.groupKeys(m)
	aggs, outputs := g.aggregates(m, "group", 1+g.rand.IntN(3))
	for name, f := range keyFields {
		outputs[name] = f
	}
	var condition, having, sort canonjson.Value
	if g.chance(40) {
		condition = g.condition(m, 1, false)
	}
	names := append(append([]string{}, by...), members(aggs)...)
	if g.chance(45) {
		having = g.over(names, outputs, 1)
		g.use("having")
	}
	if g.chance(60) {
		sort = g.groupSort(names)
	}
	skip, limit := g.cut("group")
	chosen := names[g.rand.IntN(len(names)):]
	group := canonjson.Object(canonjson.M("by", canonjson.Array(strs(by)...)), canonjson.M("agg", aggs))
	return g.arguments(canonjson.M("$condition", condition), canonjson.M("$group", group), canonjson.M("$having", having),
		canonjson.M("$sort", sort), canonjson.M("$skip", skip), canonjson.M("$limit", limit)) + "{ " + strings.Join(chosen, ", ") + " }"
}

// members are the names of an object.
func members(v canonjson.Value) []string {
	var all []string
	for _, m := range v.Members() {
		all = append(all, m.Name)
	}
	return all
}

// groupSort sorts groups by keys and aliases.
func (g *Generator) groupSort(names []string) canonjson.Value {
	g.use("sort group")
	var keys []canonjson.Member
	for _, n := range names {
		if g.chance(50) {
			keys = append(keys, canonjson.M(n, pick(g.rand, []canonjson.Value{canonjson.Int(1), canonjson.Int(-1)})))
		}
	}
	return g.sorted(keys)
}

// groupKeys chooses what to group by.
func (g *Generator) groupKeys(m *Model) (by []string, fields map[string]*Field) {
	fields = map[string]*Field{}
	kind := g.least("group ", "keys", "keys", "none", "via")
	g.use("group %s", kind)
	if kind == "none" {
		return nil, fields
	}
	if kind == "via" {
		for _, r := range m.Relations {
			if r.One && len(by) == 0 {
				f := g.scalar(r.Target)
				by = append(by, r.Name+"."+f.Name)
				fields[by[0]] = f
			}
		}
	}
	for range 2 {
		if f := g.scalar(m); fields[f.Name] == nil && (len(by) == 0 || g.chance(30)) {
			by = append(by, f.Name)
			fields[f.Name] = f
		}
	}
	return by, fields
}

// aggregates makes {alias: {op: operand}}, and what each alias holds, as a field with values to compare with.
func (g *Generator) aggregates(m *Model, place string, n int) (canonjson.Value, map[string]*Field) {
	var all []canonjson.Member
	outputs := map[string]*Field{}
	for i := range n {
		op := model.AggOp(g.least("agg ", "$count "+place, "$sum "+place, "$avg "+place, "$min "+place, "$max "+place))
		op = model.AggOp(strings.Fields(string(op))[0])
		f, operand := g.operand(m, op)
		if operand == "" {
			op, operand = model.Count, "*"
		}
		g.use("agg %s %s", op, place)
		alias := fmt.Sprintf("%s%d", pick(g.rand, []string{"n", "total", "order", "Group"}), i)
		all = append(all, canonjson.M(alias, canonjson.Object(canonjson.M(string(op), canonjson.String(operand)))))
		outputs[alias] = g.outputField(alias, op, f)
	}
	return canonjson.Object(all...), outputs
}

// operand chooses an operand: "*" or a field.
func (g *Generator) operand(m *Model, op model.AggOp) (*Field, string) {
	if op == model.Count && g.chance(60) {
		return nil, "*"
	}
	for range 8 {
		f := g.scalar(m)
		sums := op == model.Sum || op == model.Avg
		if !sums || f.Type.Numeric() && !f.Inexact {
			return f, f.Name
		}
	}
	return nil, ""
}

// outputField describes what an aggregate gives, with values that it may have.
func (g *Generator) outputField(alias string, op model.AggOp, f *Field) *Field {
	out := &Field{Name: alias, Type: output(op, f)}
	switch {
	case op == model.Count:
		out.Pool = raws([]string{"0", "1", "2", "3", "4"})
	case op == model.Avg && f.Type.Integer():
		out.Pool = raws([]string{"0", "1", "2.5", "10", "1e12", "-40.25"})
	case op == model.Avg && f.Type == model.Decimal:
		out.Pool = raws([]string{"0", "1.5", "10"})
	default:
		out.Pool = f.Pool
	}
	return out
}
