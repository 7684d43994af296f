package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// office is a model for each kind of role list. Names say what the lists are.
const office = `[
	{"name":"Bare","fields":{"open":"string","staffed":{"type":"string","read":["staff"],"write":["staff"]},"made":{"type":"int","generated":true},"createdBy":"string"}},
	{"name":"Empty","read":[],"write":[],"fields":{"open":"string"}},
	{"name":"Staffed","read":["staff"],"write":["staff"],"fields":{"open":"string","bossed":{"type":"string","read":["boss"],"write":["boss"]},"sealed":{"type":"string","write":[]},
		"owned":{"type":"string","read":["boss","creator"],"write":["boss","creator"]},"box":{"type":"object","fields":{"in":"string"}}},
		"relations":{"bare":{"model":"Bare"},"secret":{"model":"Bare","read":["boss"]}},"computes":{"n":{"agg":{"$count":"bare"}},"m":{"agg":{"$count":"bare"},"read":["boss"]}}},
	{"name":"Owned","read":["staff","creator"],"write":["staff","creator"],"fields":{"open":"string","createdBy":"string","own":{"type":"string","read":["creator"],"write":["creator"]}}},
	{"name":"Mixed","read":["staff"],"write":["creator"],"fields":{"createdBy":"string"}},
	{"name":"Look","view":true,"read":["staff"],"write":["staff"],"fields":{"open":"string"}}]`

// someone is a user u with roles, separated by spaces.
func someone(roles string) *model.Context {
	return &model.Context{UserID: "u", Roles: strings.Fields(roles)}
}

// rules are the shipped ones with another meaning of an absent list.
func rules(unconfigured model.Unconfigured) model.Rules {
	r := model.DefaultRules()
	r.Unconfigured = unconfigured
	return r
}

// verdict is what an access says of a model: may it be read and written, and which rows.
func verdict(a *model.Access, m *model.Model) string {
	var words []string
	for _, action := range []model.Action{model.ActRead, model.ActInsert, model.ActUpdate, model.ActRemove} {
		err := a.Read(m)
		if action != model.ActRead {
			err = a.Write(m, action, false)
		}
		switch limits := a.Rows(m, action); {
		case err != nil:
			words = append(words, "no")
		case len(limits) == 0:
			words = append(words, "yes")
		default:
			words = append(words, fmt.Sprint(limitText(limits)))
		}
	}
	if words[2] == words[3] {
		words = words[:3]
	}
	return strings.Join(words, " ")
}

// limitText spells limits: and of or of and.
func limitText(limits []model.RowLimit) string {
	var all []string
	for _, l := range limits {
		var alternatives []string
		for _, equals := range l.Any {
			var pairs []string
			for _, e := range equals {
				pairs = append(pairs, e.Field+"="+e.Value.String())
			}
			alternatives = append(alternatives, strings.Join(pairs, "&"))
		}
		if alternatives == nil {
			alternatives = []string{"none"}
		}
		all = append(all, strings.Join(alternatives, "|"))
	}
	return strings.Join(all, ",")
}

const mine = `createdBy="u"`

// TestRoleLists judges models: read, insert, change (section 13.2 to 13.6), expected by hand.
func TestRoleLists(t *testing.T) {
	r := register(t, office)
	for _, tt := range []struct {
		unconfigured model.Unconfigured
		model, roles string
		want         string
	}{
		{model.Open, "Bare", "", "yes yes yes"},
		{model.Open, "Bare", "staff", "yes yes yes"},
		{model.Open, "Bare", "guest", "no no no"},
		{model.Open, "Bare", "staff guest", "no no no"},
		{model.Open, "Bare", "admin guest", "yes no no"},
		{model.Open, "BareDeleted", "staff", "yes no no"},
		{model.Open, "BareDeleted", "admin", "yes no no"},
		{model.ReadOpen, "Bare", "", "no no no"},
		{model.ReadOpen, "Bare", "staff", "yes no no"},
		{model.ReadOpen, "Bare", "guest", "yes no no"},
		{model.ReadOpen, "Bare", "admin", "yes yes yes"},
		{model.Closed, "Bare", "staff", "no no no"},
		{model.Closed, "Bare", "super_admin", "yes yes yes"},
		{model.Unconfigured("else"), "Bare", "staff", "no no no"},

		{model.Open, "Empty", "staff", "yes no no"},
		{model.Open, "Empty", "guest", "no no no"},
		{model.Open, "Empty", "admin", "yes yes yes"},
		{model.ReadOpen, "Empty", "staff", "yes no no"},
		{model.Closed, "Empty", "staff", "no no no"},

		{model.Closed, "Staffed", "staff", "yes yes yes"},
		{model.Closed, "Staffed", "clerk staff", "yes yes yes"},
		{model.Closed, "Staffed", "clerk", "no no no"},
		{model.Open, "Staffed", "", "no no no"},
		{model.Closed, "Staffed", "staff guest", "yes no no"},
		{model.Closed, "StaffedDeleted", "staff", "yes no no"},
		{model.Closed, "StaffedDeleted", "clerk", "no no no"},
		{model.Open, "StaffedDeleted", "staff guest", "no no no"},

		{model.Closed, "Owned", "staff", "yes yes yes"},
		{model.Closed, "Owned", "clerk", mine + " yes " + mine},
		{model.Closed, "Owned", "", mine + " yes " + mine},
		{model.Closed, "Owned", "guest", mine + " no no"},
		{model.Closed, "Owned", "creator", mine + " yes " + mine},
		{model.Closed, "OwnedDeleted", "clerk", mine + " no no"},
		{model.Closed, "Owned", "admin", "yes yes yes"},

		{model.Closed, "Mixed", "staff", "yes yes " + mine},
		{model.Closed, "Mixed", "clerk", "no yes " + mine},

		{model.Closed, "Look", "staff", "yes no no"},
		{model.Closed, "Look", "admin", "yes no no"},
	} {
		a := (&model.Permission{Rules: rules(tt.unconfigured)}).For(someone(tt.roles))
		if got := verdict(a, r.Get(tt.model)); got != tt.want {
			t.Errorf("%s, %s, roles %q: %s, want %s", tt.unconfigured, tt.model, tt.roles, got, tt.want)
		}
	}
}

// TestContexts judges who asks: nobody, somebody without a name, one role alone, and the server itself.
func TestContexts(t *testing.T) {
	r := register(t, office)
	p := &model.Permission{Rules: rules(model.Closed)}
	nobody := p.For(nil)
	for _, m := range r.List() {
		refuse(t, nobody.Read(m), model.NoContext, "ERR_NO_CONTEXT:")
		refuse(t, nobody.Write(m, model.ActInsert, false), model.NoContext)
		for _, f := range m.Fields {
			if nobody.ReadField(m, f) || nobody.WriteField(m, f, model.ActInsert) {
				t.Errorf("nobody may use %s.%s", m.Name, f.Name)
			}
		}
		if got := limitText(nobody.Rows(m, model.ActRead)); got != "none" {
			t.Errorf("nobody gets rows of %s: %s", m.Name, got)
		}
		internal := p.For(&model.Context{Internal: true, Roles: []string{"guest"}})
		want := "yes yes yes"
		if m.ReadOnly() {
			want = "yes no no"
			refuse(t, internal.Write(m, model.ActUpdate, false), model.ReadOnly, m.Name)
		}
		if got := verdict(internal, m); got != want {
			t.Errorf("internal, %s: %s", m.Name, got)
		}
	}
	if nobody.Exempt() || !p.For(someone("x admin")).Exempt() || p.For(someone("staff")).Exempt() {
		t.Error("who is exempt")
	}
	unnamed := p.For(&model.Context{Roles: []string{"clerk"}})
	if got := verdict(unnamed, r.Get("Owned")); got != "no no no" {
		t.Errorf("an owner without a name: %s", got)
	}
	for want, c := range map[string]*model.Context{
		"yes yes yes": {Role: "staff"},
		"no no no":    {Role: "staff", Roles: []string{"clerk"}},
	} {
		if got := verdict(p.For(c), r.Get("Staffed")); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
	refuse(t, p.For(someone("clerk")).Read(r.Get("Staffed")), model.Denied, "ERR_PERMISSION:", "Staffed")
	refuse(t, p.For(someone("clerk")).Write(r.Get("Staffed"), model.ActUpdate, true), model.Denied, "several")
}

// parts lists the parts of a model that an access may use.
func parts(a *model.Access, m *model.Model) string {
	var reads, inserts, updates []string
	for _, f := range m.Fields {
		if a.ReadField(m, f) {
			reads = append(reads, f.Name)
		}
		if a.WriteField(m, f, model.ActInsert) {
			inserts = append(inserts, f.Name)
		}
		if a.WriteField(m, f, model.ActUpdate) {
			updates = append(updates, f.Name)
		}
	}
	for _, c := range m.Computes {
		if a.ReadCompute(m, c) {
			reads = append(reads, c.Name)
		}
	}
	for _, x := range m.Relations {
		if a.ReadRelation(m, x) {
			reads = append(reads, x.Name)
		}
	}
	drop := func(names []string) string {
		return strings.Join(slices.DeleteFunc(names, func(n string) bool { return n == "createdAt" || n == "updatedAt" }), " ")
	}
	return drop(reads) + " / " + drop(inserts) + " / " + drop(updates)
}

// TestPartLists judges fields, relations and computed columns: what is read / inserted / updated.
func TestPartLists(t *testing.T) {
	r := register(t, office)
	for _, tt := range []struct {
		unconfigured model.Unconfigured
		model, roles string
		want         string
	}{
		{model.Open, "Bare", "clerk", "_id open made createdBy / _id open createdBy / _id open createdBy"},
		{model.Open, "Bare", "staff", "_id open staffed made createdBy / _id open staffed createdBy / _id open staffed createdBy"},
		{model.Open, "Bare", "guest", "_id /  / "},
		{model.ReadOpen, "Bare", "clerk", "_id open made createdBy /  / "},
		{model.Closed, "Staffed", "staff", "_id open sealed box n bare / _id open owned box / _id open box"},
		{model.Closed, "Staffed", "staff boss", "_id open bossed sealed owned box n m bare secret / _id open bossed owned box / _id open bossed owned box"},
		{model.Closed, "Staffed", "staff guest", "_id open sealed box n bare /  / "},
		{model.Open, "Staffed", "staff guest", "_id /  / "},
		{model.Closed, "Staffed", "admin", "_id open bossed sealed owned box n m bare secret / _id open bossed sealed owned box / _id open bossed sealed owned box"},
		{model.Closed, "Owned", "clerk", "_id open createdBy own / _id open createdBy own / _id open createdBy own"},
		{model.Closed, "Owned", "staff", "_id open createdBy / _id open createdBy own / _id open createdBy"},
	} {
		a := (&model.Permission{Rules: rules(tt.unconfigured)}).For(someone(tt.roles))
		if got := parts(a, r.Get(tt.model)); got != tt.want {
			t.Errorf("%s, %s, roles %q:\n got %s\nwant %s", tt.unconfigured, tt.model, tt.roles, got, tt.want)
		}
	}
}

// policy reads a policy of grants.
func policy(t testing.TB, text string) *model.Policy {
	t.Helper()
	p, err := model.ParsePolicy(parse(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPolicy lays grants over the role lists (section 14).
func TestPolicy(t *testing.T) {
	r := register(t, office)
	grant := func(more string) string { return `{"grants":[{"role":"clerk","model":"Bare",` + more + `}]}` }
	for _, tt := range []struct{ name, policy, roles, model, verdict, parts string }{
		{"no grant of the caller", `{"grants":[{"role":"boss","model":"Bare","actions":["read"]}]}`, "clerk", "Bare", "yes yes yes", ""},
		{"another model", grant(`"actions":["read"]`), "clerk", "Empty", "yes no no", ""},
		{"reads alone", grant(`"actions":["read"]`), "clerk", "Bare", "yes no no", ""},
		{"writes alone", grant(`"actions":["write"]`), "clerk", "Bare", "no yes yes", "_id / _id open createdBy / _id open createdBy"},
		{"one action", grant(`"actions":["update"]`), "clerk", "Bare", "no no yes no", ""},
		{"every model", `{"grants":[{"role":"clerk","model":"*","actions":["insert"]}]}`, "clerk", "Empty", "no no no", ""},
		{"no more than the lists", `{"grants":[{"role":"clerk","model":"Staffed","actions":["read","write"]}]}`, "clerk", "Staffed", "no no no", ""},
		{"exempt", grant(`"actions":["insert"]`), "clerk admin", "Bare", "yes yes yes", ""},
		{"fields", grant(`"actions":["read","write"],"readFields":["open"],"writeFields":["createdBy"]`), "clerk", "Bare", "yes yes yes", "_id open / _id createdBy / _id createdBy"},
		{"fields unite", `{"grants":[{"role":"clerk","model":"Bare","actions":["read"],"readFields":["open"]},{"role":"b","model":"*","actions":["read"],"readFields":["made"]}]}`,
			"clerk b", "Bare", "yes no no", "_id open made /  / "},
		{"all fields of one", `{"grants":[{"role":"clerk","model":"Bare","actions":["read"],"readFields":["open"]},{"role":"b","model":"*","actions":["read"]}]}`,
			"clerk b", "Bare", "yes no no", "_id open made createdBy /  / "},
		{"fields of another action", `{"grants":[{"role":"clerk","model":"Bare","actions":["read"],"readFields":["open"]},{"role":"clerk","model":"Bare","actions":["insert"]}]}`,
			"clerk", "Bare", "yes yes no", "_id open / _id open createdBy / "},
		{"computed columns", `{"grants":[{"role":"staff","model":"Staffed","actions":["read"],"readFields":["n"]}]}`, "staff", "Staffed", "yes no no", "_id n bare /  / "},
		{"a part goes with its object", `{"grants":[{"role":"staff","model":"Staffed","actions":["read"],"readFields":["in"]}]}`, "staff", "Staffed", "yes no no", "_id bare /  / "},
		{"rows", grant(`"actions":["read","write"],"condition":{"open":"x","made":5}`), "clerk", "Bare", `open="x"&made=5 open="x"&made=5 open="x"&made=5`, ""},
		{"own rows", grant(`"actions":["read","write"],"ownerOnly":true`), "clerk", "Bare", mine + " " + mine + " " + mine, ""},
		{"rows unite", `{"grants":[{"role":"clerk","model":"Bare","actions":["read"],"condition":{"open":"x"}},{"role":"clerk","model":"Bare","actions":["read"],"ownerOnly":true}]}`,
			"clerk", "Bare", `open="x"|` + mine + " no no", ""},
		{"all rows of one", `{"grants":[{"role":"clerk","model":"Bare","actions":["read"],"condition":{"open":"x"}},{"role":"clerk","model":"Bare","actions":["read"]}]}`,
			"clerk", "Bare", "yes no no", ""},
		{"both limits", `{"grants":[{"role":"clerk","model":"Owned","actions":["read"],"condition":{"open":"x"}}]}`, "clerk", "Owned", mine + `,open="x" no no`, ""},
		{"the user", grant(`"actions":["read"],"condition":{"open":"$ctx.userId"}`), "clerk", "Bare", `open="u" no no`, ""},
		{"the tenant", grant(`"actions":["read"],"condition":{"open":"$ctx.tenant"}`), "clerk", "Bare", `open="acme" no no`, ""},
		{"no such value", grant(`"actions":["read"],"condition":{"open":"$ctx.region"}`), "clerk", "Bare", `none no no`, ""},
		{"an empty value", grant(`"actions":["read"],"condition":{"open":"$ctx.blank"}`), "clerk", "Bare", `none no no`, ""},
		{"a value that is no scalar", grant(`"actions":["read"],"condition":{"open":"$ctx.list"}`), "clerk", "Bare", `none no no`, ""},
		{"no such value beside another", `{"grants":[{"role":"clerk","model":"Bare","actions":["read"],"condition":{"open":"$ctx.region"}},{"role":"clerk","model":"Bare","actions":["read"],"condition":{"open":"x"}}]}`,
			"clerk", "Bare", `open="x" no no`, ""},
		{"enforce without a grant", `{"mode":"enforce","roles":{"clerk":{}}}`, "clerk", "Bare", "no no no", ""},
		{"enforce with one", `{"mode":"enforce","roles":{"clerk":{}},"grants":[{"role":"b","model":"Bare","actions":["read"]}]}`, "clerk b", "Bare", "yes no no", ""},
		{"enforce of others", `{"mode":"enforce","roles":{"b":{}}}`, "clerk", "Bare", "yes yes yes", ""},
		{"an archive goes with its model", grant(`"actions":["read"],"condition":{"open":"x"}`), "clerk", "BareDeleted", `open="x" no no`, ""},
		{"an archive is denied with its model", grant(`"actions":["insert"]`), "clerk", "BareDeleted", `no no no`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := someone(tt.roles)
			c.Values = map[string]canonjson.Value{"tenant": canonjson.String("acme"), "blank": canonjson.String(""), "list": canonjson.Array()}
			a := (&model.Permission{Rules: rules(model.Open), Policy: policy(t, tt.policy)}).For(c)
			for range 2 { // what the policy says is remembered
				if got := verdict(a, r.Get(tt.model)); got != tt.verdict {
					t.Errorf("got %s, want %s", got, tt.verdict)
				}
				if got := parts(a, r.Get(tt.model)); tt.parts != "" && got != tt.parts {
					t.Errorf("got %s, want %s", got, tt.parts)
				}
			}
		})
	}
}

// TestPolicyDenials carry the prefix of the policy; denials by the lists do not.
func TestPolicyDenials(t *testing.T) {
	r := register(t, office)
	p := policy(t, `{"grants":[{"role":"clerk","model":"*","actions":["insert"]}]}`)
	a := (&model.Permission{Rules: rules(model.Open), Policy: p}).For(someone("clerk"))
	for err, prefix := range map[error]string{
		a.Read(r.Get("Bare")):                             "ERR_PERMISSION:RBAC:",
		a.Write(r.Get("Bare"), model.ActRemove, false):    "ERR_PERMISSION:RBAC:",
		a.Read(r.Get("Staffed")):                          "ERR_PERMISSION: ",
		a.Write(r.Get("Staffed"), model.ActInsert, false): "ERR_PERMISSION: ",
	} {
		refuse(t, err, model.Denied)
		if err != nil && !strings.HasPrefix(err.Error(), prefix) {
			t.Errorf("%v does not begin with %s", err, prefix)
		}
	}
	refuse(t, a.Read(r.Get("Bare")), model.Denied, "Bare", "read")
}

// TestGoldenPolicy refuses the recorded malformed policies.
func TestGoldenPolicy(t *testing.T) {
	met := 0
	for _, c := range golden(t, "cases-rbac-policy.json").Items() {
		if p := c.Get("setPolicy"); !p.IsAbsent() {
			met++
			_, err := model.ParsePolicy(p)
			t.Run(c.Get("id").Str(), func(t *testing.T) {
				refuse(t, err, model.Class(c.At("/expect/error/class").Str()), "ERR_BAD_POLICY:")
			})
		} else if _, err := model.ParsePolicy(c.Get("policy")); err != nil {
			t.Errorf("%s: %v", c.Get("id").Str(), err)
		}
	}
	if met != 10 {
		t.Errorf("%d malformed policies", met)
	}
}

// TestMalformedPolicies are refused whole, with the grant and the key in the message.
func TestMalformedPolicies(t *testing.T) {
	for text, words := range map[string]string{
		`[]`:                            "object",
		`{"grant":[]}`:                  `"grant"`,
		`{"mode":null}`:                 "mode",
		`{"roles":{"":{}}}`:             "roles",
		`{"grants":{}}`:                 "list",
		`{"grants":[5]}`:                "grants[0]",
		`{"mode":"enforce","roles":{}}`: "roles",
		`{"grants":[{"role":"r","model":"A","actions":["read"]},{"role":"r","model":"A","actions":["read"],"where":{}}]}`: "grants[1]",
		`{"grants":[{"role":"r","model":"A","actions":"read"}]}`:                                                          "actions",
		`{"grants":[{"role":"r","model":"A","actions":["read",5]}]}`:                                                      "actions",
		`{"grants":[{"role":5,"model":"A","actions":["read"]}]}`:                                                          "role",
		`{"grants":[{"role":"r","model":"","actions":["read"]}]}`:                                                         "model",
		`{"grants":[{"role":"r","model":"A","actions":["read"],"writeFields":"x"}]}`:                                      "writeFields",
		`{"grants":[{"role":"r","model":"A","actions":["read"],"ownerOnly":"yes"}]}`:                                      "ownerOnly",
		`{"grants":[{"role":"r","model":"A","actions":["read"],"condition":[]}]}`:                                         "condition",
		`{"grants":[{"role":"r","model":"A","actions":["read"],"condition":{"a":null}}]}`:                                 "condition",
		`{"grants":[{"role":"r","model":"A","actions":["read"],"condition":{"a":["x"]}}]}`:                                "condition",
		`{"grants":[{"role":"r","model":"A","actions":["read"],"condition":{"a":"$ctx."}}]}`:                              "$ctx.",
		`{"grants":[{"role":"r","model":"A","actions":["read"],"condition":{"a' OR '1":"x"}}]}`:                           "condition",
	} {
		_, err := model.ParsePolicy(parse(t, text))
		refuse(t, err, model.BadPolicy, words)
	}
	for _, v := range []canonjson.Value{{}, canonjson.Null()} {
		if p, err := model.ParsePolicy(v); p != nil || err != nil {
			t.Error(p, err)
		}
	}
}

// TestAccessIsShared asks one access from many goroutines.
func TestAccessIsShared(t *testing.T) {
	r := register(t, office)
	a := (&model.Permission{Rules: rules(model.Open), Policy: policy(t, `{"grants":[{"role":"clerk","model":"*","actions":["read"],"readFields":["open"]}]}`)}).For(someone("clerk"))
	done := make(chan string)
	for range 8 {
		go func() {
			var all []string
			for _, m := range r.List() {
				all = append(all, verdict(a, m)+parts(a, m))
			}
			done <- strings.Join(all, ";")
		}()
	}
	first := <-done
	for range 7 {
		if again := <-done; again != first {
			t.Errorf("%s\n%s", first, again)
		}
	}
}
