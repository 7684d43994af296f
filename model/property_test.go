package model_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// allowed is what an access may do on a model, written out: each is one thing that may be gained or lost.
type allowed map[string]bool

// sampleRows are rows that row limits are tried on: every pairing of owner and region.
var sampleRows = []map[string]string{
	{"createdBy": "u1", "region": "eu"}, {"createdBy": "u1", "region": "us"}, {"createdBy": "u2", "region": "eu"}, {"createdBy": "u2", "region": "us"},
}

// allowedOf asks for everything: actions, and within them the rows, the fields, the columns and the relations.
func allowedOf(a *model.Access, m *model.Model) allowed {
	out := allowed{}
	for _, action := range []model.Action{model.ActRead, model.ActInsert, model.ActUpdate, model.ActRemove} {
		err := a.Read(m)
		if action != model.ActRead {
			err = a.Write(m, action, false)
		}
		if err != nil {
			continue
		}
		out[string(action)] = true
		for i, row := range sampleRows {
			if passes(a.Rows(m, action), row) {
				out[fmt.Sprintf("%s row %d", action, i)] = true
			}
		}
		for _, f := range m.Fields {
			if action == model.ActRead && a.ReadField(m, f) || action != model.ActRead && a.WriteField(m, f, action) {
				out[fmt.Sprintf("%s field %s", action, f.Name)] = true
			}
		}
	}
	for _, c := range m.Computes {
		out["read column"] = out["read"] && a.ReadCompute(m, c)
	}
	for _, r := range m.Relations {
		out["read relation"] = out["read"] && a.ReadRelation(m, r)
	}
	return out
}

// passes tells whether a row meets limits.
func passes(limits []model.RowLimit, row map[string]string) bool {
	for _, l := range limits {
		if !slices.ContainsFunc(l.Any, func(equals []model.Equal) bool {
			return !slices.ContainsFunc(equals, func(e model.Equal) bool { return row[e.Field] != e.Value.Str() })
		}) {
			return false
		}
	}
	return true
}

// lost are the rights of before that after lacks.
func lost(before, after allowed) []string {
	var out []string
	for right, had := range before {
		if had && !after[right] {
			out = append(out, right)
		}
	}
	slices.Sort(out)
	return out
}

// randomWorld makes a model with role lists, rules and roles at random.
type randomWorld struct {
	*rand.Rand
	t *testing.T
}

// list is a role list, absent sometimes. The word creator stands in lists of models alone: in that of a part it counts only
// where every row is the caller's own, so that a role that opens more rows may close the part.
func (w randomWorld) list(of string) canonjson.Value {
	n := w.IntN(5) - 1
	if n < 0 {
		return canonjson.Value{}
	}
	items := []canonjson.Value{}
	for range n {
		role := []string{"a", "b", "c", "guest", "admin", "creator"}[w.IntN(6)]
		if role != "creator" || of == "model" {
			items = append(items, canonjson.String(role))
		}
	}
	return canonjson.Array(items...)
}

// model makes a model.
func (w randomWorld) model() *model.Model {
	field := func() canonjson.Value {
		return canonjson.Object(canonjson.M("type", canonjson.String("string")), canonjson.M("read", w.list("part")), canonjson.M("write", w.list("part")))
	}
	d := canonjson.Object(
		canonjson.M("name", canonjson.String("M")), canonjson.M("timestamps", canonjson.Bool(false)), canonjson.M("read", w.list("model")), canonjson.M("write", w.list("model")),
		canonjson.M("fields", canonjson.Object(canonjson.M("createdBy", canonjson.String("string")), canonjson.M("region", field()), canonjson.M("x", field()))),
		canonjson.M("relations", canonjson.Object(canonjson.M("r", canonjson.Object(canonjson.M("model", canonjson.String("M")), canonjson.M("foreignField", canonjson.String("x")), canonjson.M("read", w.list("part")))))),
		canonjson.M("computes", canonjson.Object(canonjson.M("n", canonjson.Object(canonjson.M("agg", canonjson.Object(canonjson.M("$count", canonjson.String("r")))), canonjson.M("read", w.list("part")))))),
	)
	r := model.NewRegistry(model.Options{})
	if err := r.Register(d); err != nil {
		w.t.Fatal(err)
	}
	return r.List()[w.IntN(2)] // the model or its archive
}

// rules are rules with one of the meanings of an absent list.
func (w randomWorld) rules() model.Rules {
	r := model.DefaultRules()
	r.Unconfigured = []model.Unconfigured{model.Open, model.ReadOpen, model.Closed}[w.IntN(3)]
	return r
}

// roles are up to three roles.
func (w randomWorld) roles() []string {
	var out []string
	for range w.IntN(4) {
		out = append(out, []string{"a", "b", "c", "guest", "creator", "", "admin"}[w.IntN(7)])
	}
	return out
}

// user is a user, or nobody known.
func (w randomWorld) user() string { return []string{"", "u1", "u2"}[w.IntN(3)] }

// grant is a grant of a policy.
func (w randomWorld) grant() canonjson.Value {
	some := func(names ...string) canonjson.Value {
		if w.IntN(2) == 0 {
			return canonjson.Value{}
		}
		return canonjson.Array(canonjson.String(names[w.IntN(len(names))]))
	}
	var owner, condition canonjson.Value
	if w.IntN(3) == 0 {
		owner = canonjson.Bool(true)
	}
	if w.IntN(3) == 0 {
		condition = canonjson.Object(canonjson.M("region", canonjson.String([]string{"eu", "us", "$ctx.region", "$ctx.nothing"}[w.IntN(4)])))
	}
	return canonjson.Object(
		canonjson.M("role", canonjson.String([]string{"a", "b", "c", "creator"}[w.IntN(4)])), canonjson.M("model", canonjson.String([]string{"M", "M", "*", "MDeleted", "Other"}[w.IntN(5)])),
		canonjson.M("actions", canonjson.Array(canonjson.String([]string{"read", "insert", "update", "remove", "write"}[w.IntN(5)]))),
		canonjson.M("readFields", some("region", "x", "n")), canonjson.M("writeFields", some("region", "x")), canonjson.M("ownerOnly", owner), canonjson.M("condition", condition))
}

// policy makes a policy of grants; enforce names the role a.
func (w randomWorld) policy(enforce bool, grants []canonjson.Value) *model.Policy {
	mode := "overlay"
	if enforce {
		mode = "enforce"
	}
	p, err := model.ParsePolicy(canonjson.Object(canonjson.M("mode", canonjson.String(mode)), canonjson.M("roles", canonjson.Object(canonjson.M("a", canonjson.Object()))), canonjson.M("grants", canonjson.Array(grants...))))
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// context makes a context of a user with roles.
func (w randomWorld) context(user string, roles []string) *model.Context {
	return &model.Context{UserID: user, Roles: roles, Values: map[string]canonjson.Value{"region": canonjson.String("eu")}}
}

// TestMoreRolesOfRandomLists: without a dynamic policy a further role never takes a right away, unless it is one that denies
// writing. With that one, something is lost sometimes: the test can see a loss.
func TestMoreRolesOfRandomLists(t *testing.T) {
	w := randomWorld{rand.New(rand.NewPCG(1, 2)), t}
	seen := 0
	for i := range 5000 {
		m, p, user, roles := w.model(), &model.Permission{Rules: w.rules()}, w.user(), w.roles()
		before := allowedOf(p.For(w.context(user, roles)), m)
		for _, more := range []string{"a", "b", "c", "admin", "creator", "other"} {
			if gone := lost(before, allowedOf(p.For(w.context(user, append(slices.Clone(roles), more))), m)); gone != nil {
				t.Fatalf("case %d: %v and %s lose %v on %s under %s", i, roles, more, gone, m.Text, p.Rules.Unconfigured)
			}
		}
		if lost(before, allowedOf(p.For(w.context(user, append(slices.Clone(roles), "guest"))), m)) != nil {
			seen++
		}
	}
	if seen < 100 {
		t.Errorf("a guest lost something in %d cases only", seen)
	}
}

// TestMoreGrantsMoreRights: where a grant of the caller is about the model already, or enforce holds him, a further grant
// takes nothing away: actions, fields and rows unite. The first grant on a model may take rights away, which is seen too.
func TestMoreGrantsMoreRights(t *testing.T) {
	w := randomWorld{rand.New(rand.NewPCG(3, 4)), t}
	about := func(g canonjson.Value, m *model.Model, roles []string) bool {
		name := g.Get("model").Str()
		return slices.Contains(roles, g.Get("role").Str()) && (name == "*" || name == "M" || name == m.Name)
	}
	grown, first := 0, 0
	for i := range 10000 {
		m, rules, user, roles, enforce := w.model(), w.rules(), w.user(), w.roles(), w.IntN(2) == 0
		var grants []canonjson.Value
		for range w.IntN(4) {
			grants = append(grants, w.grant())
		}
		touched := enforce && slices.Contains(roles, "a") || slices.ContainsFunc(grants, func(g canonjson.Value) bool { return about(g, m, roles) })
		before := allowedOf((&model.Permission{Rules: rules, Policy: w.policy(enforce, grants)}).For(w.context(user, roles)), m)
		after := allowedOf((&model.Permission{Rules: rules, Policy: w.policy(enforce, append(slices.Clone(grants), w.grant()))}).For(w.context(user, roles)), m)
		gone := lost(before, after)
		switch {
		case gone != nil && touched:
			t.Fatalf("case %d: a further grant takes %v from %v", i, gone, roles)
		case gone != nil:
			first++
		case lost(after, before) != nil:
			grown++
		}
	}
	if grown < 50 || first < 50 {
		t.Errorf("rights grew in %d cases, and a first grant took some in %d", grown, first)
	}
}

// TestPolicyOnlyNarrows: whatever a policy says, it gives nothing that the role lists do not give.
func TestPolicyOnlyNarrows(t *testing.T) {
	w := randomWorld{rand.New(rand.NewPCG(5, 6)), t}
	narrowed := 0
	for i := range 5000 {
		m, rules, user, roles := w.model(), w.rules(), w.user(), w.roles()
		grants := []canonjson.Value{w.grant(), w.grant(), w.grant()}
		lists := allowedOf((&model.Permission{Rules: rules}).For(w.context(user, roles)), m)
		both := allowedOf((&model.Permission{Rules: rules, Policy: w.policy(w.IntN(2) == 0, grants)}).For(w.context(user, roles)), m)
		if more := lost(both, lists); more != nil {
			t.Fatalf("case %d: %v gain %v by %v", i, roles, more, grants)
		}
		if lost(lists, both) != nil {
			narrowed++
		}
	}
	if narrowed < 100 {
		t.Errorf("a policy narrowed in %d cases only", narrowed)
	}
}

// TestNobodyHasNothing: without a context nothing is allowed, whatever the lists and the rules say.
func TestNobodyHasNothing(t *testing.T) {
	w := randomWorld{rand.New(rand.NewPCG(7, 8)), t}
	for range 500 {
		m := w.model()
		a := (&model.Permission{Rules: w.rules()}).For(nil)
		if r := allowedOf(a, m); lost(r, nil) != nil {
			t.Fatalf("%v on %s", r, m.Text)
		}
		refuse(t, a.Read(m), model.NoContext)
		refuse(t, a.Write(m, model.ActInsert, false), model.NoContext)
		if a.ReadField(m, m.ID()) || a.WriteField(m, m.ID(), model.ActInsert) || a.ReadRelation(m, &model.Relation{}) || passes(a.Rows(m, model.ActRead), sampleRows[0]) || a.Exempt() {
			t.Fatalf("somebody without a context may do something on %s", m.Text)
		}
	}
}

// FuzzParsePolicy reads anything: a policy is refused with a class, or it can be asked about every model and compared with
// them. What it gives is never more than the role lists do.
func FuzzParsePolicy(f *testing.F) {
	for _, c := range golden(f, "cases-rbac-policy.json").Items() {
		for _, key := range []string{"policy", "setPolicy"} {
			if p := c.Get(key); !p.IsAbsent() {
				f.Add([]byte(p.String()))
			}
		}
	}
	f.Add([]byte(`{"grants":[{"role":"student","model":"*","actions":["read"],"condition":{"free":"$ctx.free"},"ownerOnly":true}]}`))
	r := model.NewRegistry(model.Options{Lenient: true})
	if err := r.Register(golden(f, "schema.json").Items()...); err != nil {
		f.Fatal(err)
	}
	rules := model.DefaultRules()
	rules.Unconfigured = model.Open
	who := &model.Context{UserID: "u3", Roles: []string{"student"}, Values: map[string]canonjson.Value{"free": canonjson.Bool(true)}}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, _, err := canonjson.Parse(text, canonjson.Limits{}) // with its flaws: no tree may make it panic
		if err != nil {
			return
		}
		p, err := model.ParsePolicy(v)
		if err != nil {
			refuse(t, err, model.BadPolicy)
			return
		}
		if err := p.Check(r); err != nil {
			refuse(t, err, model.BadPolicy)
		}
		lists, both := (&model.Permission{Rules: rules}).For(who), (&model.Permission{Rules: rules, Policy: p}).For(who)
		for _, m := range r.List() {
			if more := lost(allowedOf(both, m), allowedOf(lists, m)); more != nil {
				t.Fatalf("%s gives %v on %s", text, more, m.Name)
			}
		}
	})
}
