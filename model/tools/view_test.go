package tools_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/tools"
	"github.com/tabellion-mcp/tabellion/policy"
)

// office are models with every kind of limit. Names that somebody may not see stand nowhere else in a surface: they begin
// with zq.
const office = `[
 {"name":"Person","description":"People","version":"zqstamp","timestamps":false,"fields":{
   "_id":"string","name":"string","state":{"type":"string","enum":["new","done"],"description":"How far it is"},
   "zqcode":{"type":"string","read":["staff"],"format":"email"},"zqpay":{"type":"int","read":["hr"],"write":["hr"],"required":true},
   "zqstamp":{"type":"int","read":["staff"]},
   "meta":{"type":"object","fields":{"open":"string","zqpart":{"type":"string","read":["staff"],"write":["staff"]}}}},
  "relations":{"notes":{"model":"Note","foreignField":"personId"},"zqvault":{"model":"Zqvault","foreignField":"personId"}},
  "computes":{"noteCount":{"agg":{"$count":"notes"},"type":"int"},"zqdeep":{"agg":{"$max":"notes.zqrank"},"type":"int"},
   "zqshut":{"agg":{"$count":"zqvault"},"type":"int"},"zqself":{"agg":{"$count":"notes"},"type":"int","read":["hr"]}},
  "read":["staff","clerk","hr"],"write":["staff","hr"]},
 {"name":"Note","fields":{"_id":"string","text":"string","personId":"string","zqrank":{"type":"int","read":["staff"]}},
  "relations":{"person":{"model":"Person","type":"one","localField":"personId","foreignField":"_id"}},"read":["staff","clerk"],"write":["staff","clerk"]},
 {"name":"Zqledger","fields":{"_id":"string","zqsum":"decimal"},"read":["hr"],"write":["hr"]},
 {"name":"Zqvault","fields":{"_id":"string","zqgold":"string","personId":"string"},"read":["staff","hr","clerk","guest"],"x-mcp":{"hidden":true}},
 {"name":"Zqmine","fields":{"_id":"string","createdBy":"string","zqdiary":"string"},"read":["creator"],"write":["creator"]},
 {"name":"Badge","idField":"zqserial","fields":{"_id":"string","zqserial":{"type":"string","read":["staff"]},"color":"string"},"read":["staff","clerk","guest"],"write":["staff","clerk"]},
 {"name":"Zqopen","fields":{"_id":"string","zqfree":"string"}}
]`

// policies are dynamic ones over the office; "" is none.
var policies = []string{
	"",
	`{"roles":{"clerk":{}},"grants":[{"role":"clerk","model":"Person","actions":["read"],"readFields":["name"]}]}`,
	`{"mode":"enforce","roles":{"staff":{}},"grants":[{"role":"staff","model":"Person","actions":["read","update"],"readFields":["state","noteCount"],"writeFields":["state"]}]}`,
	`{"roles":{"hr":{}},"grants":[{"role":"hr","model":"*","actions":["write"],"condition":{"_id":"x"}}]}`,
}

// roles of the office, and some that nothing names.
var roles = []string{"staff", "clerk", "hr", "guest", "admin", "zzz"}

// listing makes the catalog of an office without a database: it is only looked at.
func listing(t testing.TB, s setup) (*tools.Tools, *catalog.Catalog, *model.Permission) {
	t.Helper()
	p := permission(t, s)
	tl, err := tools.New(tools.Config{
		Registry: registered(t, s.definitions), Permission: p, Surface: s.surface, Only: s.only, Context: s.context,
		Writable: func(*model.Model) bool { return !s.readOnly },
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.New(catalog.ContractNames, tl.Operations()...)
	if err != nil {
		t.Fatal(err)
	}
	return tl, c, p
}

// all are the rights of a caller to whom the server's policy gives everything.
func all(c *catalog.Catalog, e catalog.Endpoint) catalog.Rights {
	r := catalog.Rights{}
	for _, q := range c.Questions(e) {
		r[q] = true
	}
	return r
}

// Whatever the roles, the policies and the user: what is listed is the full surface with things left out, and nothing
// added, moved or worded otherwise.
func TestViewsOnlyLeaveOut(t *testing.T) {
	var seen, cut int
	rapid.Check(t, func(rt *rapid.T) {
		s := setup{
			definitions: office, policy: rapid.SampledFrom(policies).Draw(rt, "policy"),
			surface: rapid.SampledFrom([]tools.Surface{tools.PerModel, tools.Generic}).Draw(rt, "surface"),
			rules:   rapid.SampledFrom([]model.Unconfigured{model.Open, model.ReadOpen, model.Closed}).Draw(rt, "rules"),
		}
		_, c, _ := listing(t, s)
		e := rapid.SampledFrom([]catalog.Endpoint{catalog.All, catalog.Of(catalog.Models)}).Draw(rt, "endpoint")
		full := all(c, e)
		rights := catalog.Rights{}
		for _, q := range c.Questions(e) {
			rights[q] = rapid.IntRange(0, 4).Draw(rt, "right") > 0
		}
		who := as(rapid.SampledFrom([]string{"ana", ""}).Draw(rt, "user"), rapid.SliceOfDistinct(rapid.SampledFrom(roles), rapid.ID).Draw(rt, "roles")...)
		whole, part := c.View(full, e).ToolsJSON(), c.ViewFor(rights, e, who).ToolsJSON()
		if why := leftOut(parse(t, string(whole)), parse(t, string(part)), "tools"); why != "" {
			rt.Fatalf("%s\nfull %s\nseen %s", why, whole, part)
		}
		seen++
		if len(part) < len(whole) {
			cut++
		}
	})
	if cut*2 < seen {
		t.Errorf("only %d of %d views left anything out", cut, seen)
	}
}

// leftOut tells why part is not full with things left out: tools, properties, and values of required and enum. "" when it
// is.
func leftOut(full, part canonjson.Value, where string) string {
	if full.Kind() != part.Kind() {
		return fmt.Sprintf("%s is a %s", where, part.Kind())
	}
	name := where[strings.LastIndexByte(where, '/')+1:]
	switch full.Kind() {
	case canonjson.KindObject:
		return membersLeftOut(full.Members(), part.Members(), where, name == "properties")
	case canonjson.KindArray:
		return itemsLeftOut(full.Items(), part.Items(), where, name == "tools" || name == "required" || name == "enum")
	}
	if !full.Equal(part) {
		return fmt.Sprintf("%s is %v in full and %v here", where, full, part)
	}
	return ""
}

// membersLeftOut is leftOut of objects; may allows that members are missing. The array required may vanish with all of
// its names.
func membersLeftOut(full, part []canonjson.Member, where string, may bool) string {
	for _, m := range full {
		switch {
		case len(part) > 0 && part[0].Name == m.Name:
			if why := leftOut(m.Value, part[0].Value, where+"/"+m.Name); why != "" {
				return why
			}
			part = part[1:]
		case !may && m.Name != "required":
			return where + " lacks " + m.Name
		}
	}
	if len(part) > 0 {
		return fmt.Sprintf("%s has %s, which the full surface has not, or not there", where, part[0].Name)
	}
	return ""
}

// itemsLeftOut is leftOut of arrays. Tools are told apart by their names.
func itemsLeftOut(full, part []canonjson.Value, where string, may bool) string {
	for i, v := range full {
		same := len(part) > 0 && (!may || v.Equal(part[0]) || v.Kind() == canonjson.KindObject && v.Get("name").Equal(part[0].Get("name")))
		switch {
		case same:
			if why := leftOut(v, part[0], fmt.Sprintf("%s/%d", where, i)); why != "" {
				return why
			}
			part = part[1:]
		case !may:
			return fmt.Sprintf("%s lacks %v", where, v)
		}
	}
	if len(part) > 0 {
		return fmt.Sprintf("%s has %v, which the full surface has not, or not there", where, part[0])
	}
	return ""
}

// The comparison must see what it is there for.
func TestLeftOutSees(t *testing.T) {
	full := `[{"name":"a","description":"A","inputSchema":{"type":"object","properties":{"x":{"type":"string"},"y":{"enum":["1","2"]}},"required":["x"]}},{"name":"b","description":"B"}]`
	for part, same := range map[string]bool{
		full:                               true,
		`[]`:                               true,
		`[{"name":"b","description":"B"}]`: true,
		`[{"name":"a","description":"A","inputSchema":{"type":"object","properties":{"y":{"enum":["2"]}}}}]`:              true,
		`[{"name":"b","description":"B"},{"name":"a","description":"A","inputSchema":{"type":"object","properties":{}}}]`: false,
		`[{"name":"b","description":"C"}]`:             false,
		`[{"name":"b"}]`:                               false,
		`[{"name":"c","description":"B"}]`:             false,
		`[{"name":"b","description":"B","title":"t"}]`: false,
		`[{"name":"a","description":"A","inputSchema":{"type":"object","properties":{"z":{}}}}]`:                                                        false,
		`[{"name":"a","description":"A","inputSchema":{"type":"object","properties":{"y":{"enum":["3"]}}}}]`:                                            false,
		`[{"name":"a","description":"A","inputSchema":{"type":"object","properties":{"x":{"type":"integer"}}}}]`:                                        false,
		`[{"name":"a","description":"A","inputSchema":{"type":"object","properties":{"y":{"enum":["1","2"]},"x":{"type":"string"}},"required":["x"]}}]`: false,
	} {
		if why := leftOut(parse(t, full), parse(t, part), "tools"); (why == "") != same {
			t.Errorf("%s: %q", part, why)
		}
	}
}

// A caller who may not see a name finds it nowhere in what he is shown: not in the tools, not in the description of the
// models.
func TestUnseenNamesAreNowhere(t *testing.T) {
	rigs := map[string]*rig{}
	for i, p := range policies {
		for _, surface := range []tools.Surface{tools.PerModel, tools.Generic} {
			for _, rules := range []model.Unconfigured{model.Open, model.Closed} {
				rigs[fmt.Sprintf("policy %d, %s, %s", i, surface, rules)] = newRig(t, setup{definitions: office, policy: p, surface: surface, rules: rules})
			}
		}
	}
	for name, r := range rigs {
		t.Run(name, func(t *testing.T) {
			for _, set := range subsets(roles) {
				for _, user := range []string{"ana", ""} {
					r.showsOnly(t, as(user, set...))
				}
			}
		})
	}
}

// subsets are all sets of at most two of the names.
func subsets(names []string) [][]string {
	out := [][]string{nil}
	for i, a := range names {
		out = append(out, []string{a})
		for _, b := range names[i+1:] {
			out = append(out, []string{a, b})
		}
	}
	return out
}

// showsOnly holds that a caller is shown each name if and only if he may use it.
func (r *rig) showsOnly(t *testing.T, who *identity.Principal) {
	t.Helper()
	a := r.access.For(&model.Context{UserID: who.UserID(), Roles: who.Roles})
	described := r.call(t, who, "describe_schemas", "{}").text.String()
	listed := string(r.view(t, who).ToolsJSON())
	generic := r.tools.Operations()[0].Name == "model_get"
	for _, m := range r.registry.List() {
		if m.ArchiveOf != nil {
			continue
		}
		reads := !m.Hidden && a.Read(m) == nil
		adds, changes := !m.Hidden && a.Write(m, model.ActInsert, false) == nil, !m.Hidden && a.Write(m, model.ActUpdate, false) == nil
		if strings.HasPrefix(m.Name, "Zq") {
			r.says(t, who, "describe_schemas", described, quoted(m.Name), reads)
			r.says(t, who, "tools/list", listed, "_"+m.Name+`"`, !generic && (reads || adds || changes))
		}
		for _, f := range m.Fields {
			if !strings.HasPrefix(f.Name, "zq") {
				continue
			}
			sees := reads && a.ReadField(m, f)
			r.says(t, who, "describe_schemas", described, quoted(f.Name), sees)
			changed := changes && a.WriteField(m, f, model.ActUpdate) && a.ReadField(m, m.Field(m.IDField))
			shown := sees || adds && a.WriteField(m, f, model.ActInsert) || changed
			r.says(t, who, "tools/list", listed, f.Name, !generic && shown)
		}
	}
	for _, never := range []string{"zqgold", "Zqvault", "zqvault", "zqshut"} {
		r.says(t, who, "tools/list", listed, never, false)
		r.says(t, who, "describe_schemas", described, never, false)
	}
	person, note := r.registry.Get("Person"), r.registry.Get("Note")
	deep := a.Read(person) == nil && a.Read(note) == nil && a.ReadCompute(person, person.Compute("zqdeep")) && a.ReadField(note, note.Field("zqrank"))
	r.says(t, who, "describe_schemas", described, "zqdeep", deep)
}

// says holds that a text has a name, or that it has not.
func (r *rig) says(t *testing.T, who *identity.Principal, what, text, name string, want bool) {
	t.Helper()
	if got := strings.Contains(text, name); got != want {
		t.Errorf("%s %v: %s in %s is %t, want %t", who.Subject, who.Roles, name, what, got, want)
	}
}

// What some callers see, written down by hand.
func TestViewsByHand(t *testing.T) {
	r := newRig(t, setup{definitions: office})
	for _, tt := range []struct {
		who  *identity.Principal
		want string
	}{
		{as("cleo", "clerk"), "get_Person list_Person get_Note list_Note create_Note update_Note delete_Note list_Badge create_Badge get_Zqmine list_Zqmine create_Zqmine update_Zqmine delete_Zqmine query describe_schemas"},
		{as("", "clerk"), "get_Person list_Person get_Note list_Note create_Note update_Note delete_Note list_Badge create_Badge query describe_schemas"},
		{as("gus", "guest"), "list_Badge get_Zqmine list_Zqmine query describe_schemas"},
		{as("nil"), "get_Zqmine list_Zqmine create_Zqmine update_Zqmine delete_Zqmine query describe_schemas"},
	} {
		want := strings.Fields(tt.want)
		got := r.names(t, tt.who)
		slices.Sort(want)
		sorted := slices.Clone(got)
		slices.Sort(sorted)
		if !slices.Equal(sorted, want) {
			t.Errorf("%s %v sees\n%s, want\n%s", tt.who.Subject, tt.who.Roles, sorted, want)
		}
	}
	properties := func(who *identity.Principal, tool, at string) string {
		var names []string
		for _, m := range r.listed(t, who)[tool].At(at).Members() {
			names = append(names, m.Name)
		}
		return strings.Join(names, " ")
	}
	for _, tt := range []struct {
		who            *identity.Principal
		tool, at, want string
	}{
		{as("cleo", "clerk"), "get_Person", "/outputSchema/properties/row/properties", "_id name state meta noteCount"},
		{as("hanna", "hr"), "get_Person", "/outputSchema/properties/row/properties", "_id name state zqpay meta"},
		{as("sam", "staff"), "get_Person", "/outputSchema/properties/row/properties", "_id name state zqcode zqstamp meta noteCount zqdeep"},
		{as("sam", "staff"), "create_Person", "/inputSchema/properties/body/properties", "_id name state zqcode zqstamp meta"},
		{as("sam", "staff"), "create_Person", "/inputSchema/properties/body/properties/meta/properties", "open zqpart"},
		{as("hanna", "hr"), "create_Person", "/inputSchema/properties/body/properties", "_id name state zqcode zqpay zqstamp"},
		{as("hanna", "hr"), "update_Person", "/inputSchema/properties", "id set idempotencyKey"},
		{as("sam", "staff"), "update_Person", "/inputSchema/properties", "id set expectedVersion idempotencyKey"},
	} {
		if got := properties(tt.who, tt.tool, tt.at); got != tt.want {
			t.Errorf("%v %s %s: %s, want %s", tt.who.Roles, tt.tool, tt.at, got, tt.want)
		}
	}
}

// A tool that is hidden, one that is forbidden and one that nobody has are refused in the same words.
func TestUnknownToolsAreAlike(t *testing.T) {
	decider, err := policy.New(policy.Config{
		Roles:       map[string][]string{"reader": {"models.read"}, "writer": {"models.write"}},
		Assignments: []policy.Assignment{{Subject: "*", Role: "reader", On: "/models/Person"}, {Subject: "*", Role: "reader", On: "/models/Zqledger"}, {Subject: "*", Role: "writer", On: "/models/Note"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, surface := range []tools.Surface{tools.PerModel, tools.Generic} {
		r := newRig(t, setup{definitions: office, surface: surface, decider: decider})
		words := map[string]string{}
		for _, tool := range []string{"get_Zqvault", "get_Zqledger", "update_Person", "get_Note", "get_Zqnever", "list_PersonDeleted", "Query", "model_create", "model_zq"} {
			if surface == tools.Generic && tool == "model_create" {
				continue // Note may be written
			}
			a := r.call(t, as("cleo", "clerk"), tool, `{"id":"x","set":{},"bogus":1}`)
			if a.rpc != -32602 {
				t.Errorf("%s: %d %s %s", tool, a.rpc, a.code, a.message)
			}
			words[strings.ReplaceAll(a.message, tool, "X")] = tool
		}
		if len(words) != 1 {
			t.Errorf("%s: in several words: %q", surface, words)
		}
	}
}

// A model that is hidden, one that was not chosen, and one that nobody has are unknown in the same words, whoever asks; so
// are those on which the server's policy gives no right.
func TestUnknownModelsAreAlike(t *testing.T) {
	reads, err := policy.New(policy.Config{
		Roles:       map[string][]string{"reader": {"models.read", "models.write"}},
		Assignments: []policy.Assignment{{Subject: "*", Role: "reader", On: "/models/Person"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		decider policy.Decider
		only    []string
		models  []string
	}{
		{"hidden", nil, nil, []string{"Zqvault", "ZqvaultDeleted", "Zqnever"}},
		{"not chosen", nil, []string{"Person"}, []string{"Zqledger", "Zqvault", "Zqnever", "NoteDeleted"}},
		{"no right", reads, nil, []string{"Zqledger", "Zqvault", "Zqnever"}},
	} {
		for _, surface := range []tools.Surface{tools.PerModel, tools.Generic} {
			t.Run(tt.name+" "+string(surface), func(t *testing.T) {
				r := newRig(t, setup{definitions: office, surface: surface, decider: tt.decider, only: tt.only})
				calls := map[string]string{
					"query": `{"gql":"%s { _id }"}`, "list": `{"model":"%s"}`, "get": `{"model":"%s","id":"1"}`, "create": `{"model":"%s","body":{"_id":"1"}}`,
					"update": `{"model":"%s","id":"1","set":{"personId":"2"}}`, "delete": `{"model":"%s","id":"1"}`,
				}
				for tool, arguments := range calls {
					if surface == tools.PerModel && tool != "query" {
						continue
					}
					words := map[string]string{}
					for _, m := range tt.models {
						a := r.call(t, as("sam", "staff", "hr"), tool, fmt.Sprintf(arguments, m))
						words[a.code+" "+strings.ReplaceAll(a.message, m, "X")] = m
						if !a.isError {
							t.Errorf("%s %s: %v", tool, m, a.text)
						}
					}
					if len(words) != 1 {
						t.Errorf("%s: in several words: %q", tool, words)
					}
				}
			})
		}
	}
}

// What is chosen gets tools, in the order chosen; what cannot be is refused at the start.
func TestChosenModels(t *testing.T) {
	_, c, _ := listing(t, setup{definitions: office, only: []string{"Note", "Person"}, readOnly: true})
	var names []string
	for _, op := range c.Operations() {
		names = append(names, op.Name)
	}
	if want := []string{"get_Note", "list_Note", "get_Person", "list_Person", "query", "describe_schemas"}; !slices.Equal(names, want) {
		t.Errorf("%s, want %s", names, want)
	}
	for _, tt := range []struct{ only, words string }{{"Nope", "no model"}, {"Zqvault", "hidden"}} {
		_, err := tools.New(tools.Config{Registry: registered(t, office), Permission: permission(t, setup{}), Only: []string{"Note", tt.only}})
		if err == nil || !strings.Contains(err.Error(), tt.words) || !strings.Contains(err.Error(), tt.only) {
			t.Errorf("%s: %v", tt.only, err)
		}
	}
	if _, err := tools.New(tools.Config{Registry: registered(t, office), Permission: permission(t, setup{}), Only: []string{"Note", "Note"}}); err == nil {
		t.Error("a model chosen twice")
	}
}

// An archive may be chosen alone. It is reached only by those who have the right on the model that its rows are from.
func TestArchivesAlone(t *testing.T) {
	r := newRig(t, setup{definitions: office, only: []string{"NoteDeleted"}})
	r.call(t, as("sam", "staff"), "list_NoteDeleted", `{}`).gives(t, `[]`)
	archive, err := policy.New(policy.Config{
		Roles:       map[string][]string{"reader": {"models.read"}},
		Assignments: []policy.Assignment{{Subject: "*", Role: "reader", On: "/models/NoteDeleted"}, {Subject: "user:both", Role: "reader", On: "/models/Note"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r = newRig(t, setup{definitions: office, decider: archive})
	r.call(t, as("sam", "staff"), "query", `{"gql":"NoteDeleted { _id }"}`).refused(t, "planError", "ERR_UNKNOWN_MODEL:")
	r.call(t, as("both", "staff"), "query", `{"gql":"NoteDeleted { _id }"}`).gives(t, `[]`)
}

// Two operations of one name stop the start, and the message offers the prefix.
func TestNamesThatCollide(t *testing.T) {
	tl, _, _ := listing(t, setup{definitions: office})
	other := &catalog.Operation{
		Name: "list_Note", Slot: catalog.Context, In: catalog.MustSchema(`{"type":"object"}`),
		Run: func(context.Context, *catalog.Call) (catalog.Result, error) { return catalog.Result{}, nil },
	}
	if _, err := catalog.New(catalog.ContractNames, append(tl.Operations(), other)...); err == nil || !strings.Contains(err.Error(), "models.prefix") || !strings.Contains(err.Error(), "list_Note") {
		t.Errorf("one name in two slots: %v", err)
	}
}

// The names of the generic tools are short on the endpoint of the models, and tell the slot where there are others.
func TestGenericNames(t *testing.T) {
	_, c, _ := listing(t, setup{definitions: office, surface: tools.Generic})
	for e, want := range map[catalog.Endpoint]string{
		catalog.All:                "model_get model_list model_create model_update model_delete query describe_schemas",
		catalog.Of(catalog.Models): "get list create update delete query describe_schemas",
	} {
		v := c.View(all(c, e), e)
		var names []string
		for _, op := range v.Ops {
			names = append(names, v.ToolName(op))
			if v.Tool(v.ToolName(op)) != op {
				t.Errorf("%s is listed and not found on %s", v.ToolName(op), e)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("on %s: %s, want %s", e, got, want)
		}
	}
	if v := c.View(all(c, catalog.All), catalog.All); v.Tool("list") != nil {
		t.Error("list is found on the shared endpoint")
	}
	// Somebody who may change nothing is shown no tool that changes.
	v := c.ViewFor(all(c, catalog.All), catalog.All, as("gus", "guest"))
	if v.Tool("model_list") == nil || v.Tool("model_create") != nil || v.Tool("model_delete") != nil {
		t.Errorf("a guest sees %s", v.ToolsJSON())
	}
}
