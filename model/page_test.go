package model_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// page is what people read about models.
const page = "../docs/models.md"

// block is one example of the page.
type block struct {
	info, text string
}

// blocks reads the examples of the page.
func blocks(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	for _, m := range regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		out = append(out, block{m[1], m[2]})
	}
	return out
}

// TestModelsPage runs every example of the page, in the page's own models: definitions register and fit the published
// schema, the policy is one for these models, queries and writes can be planned, and what is refused is refused so.
func TestModelsPage(t *testing.T) {
	all := blocks(t)
	r := pageModels(t, all)
	p := plan.Planner{Registry: r, Access: (&model.Permission{Rules: model.DefaultRules()}).For(&model.Context{UserID: "ana", Roles: []string{"student", "reader"}}), Profile: plan.TextToQuery}
	seen := map[string]int{}
	for i, b := range all {
		kind, _, _ := strings.Cut(b.info, "_")
		seen[kind]++
		next := block{}
		if i+1 < len(all) {
			next = all[i+1]
		}
		switch kind {
		case "json models", "json params", "text error":
		case "json policy":
			pagePolicy(t, r, b.text)
		case "gql":
			if next.info != "json params" {
				t.Errorf("%s has no parameters behind it", b.text)
				continue
			}
			if err := planned(&p, b.text, parse(t, next.text)); err != nil {
				t.Errorf("%s: %v", b.text, err)
			}
		case "gql refused":
			err := planned(&p, b.text, canonjson.Object())
			if next.info != "text error" || err == nil || err.Error() != strings.TrimSpace(next.text) {
				t.Errorf("%s: got %v, and the page says %s", b.text, err, next.text)
			}
		case "json list", "json create", "json update":
			pageCall(t, r, b)
		default:
			t.Errorf("an example of the kind %q is not run", b.info)
		}
	}
	for kind, least := range map[string]int{"json models": 2, "json policy": 1, "gql": 5, "gql refused": 1, "json list": 1, "json create": 1, "json update": 1} {
		if seen[kind] < least {
			t.Errorf("%d examples of the kind %q, want %d", seen[kind], kind, least)
		}
	}
}

// pageModels registers the definitions of the page.
func pageModels(t *testing.T, all []block) *model.Registry {
	t.Helper()
	s := definitionSchema(t)
	r := model.NewRegistry(model.Options{})
	for _, b := range all {
		if b.info != "json models" {
			continue
		}
		v := parse(t, b.text)
		if err := fits(t, s, v); err != nil {
			t.Error(err)
		}
		definitions := v.Items()
		if v.Kind() == canonjson.KindObject {
			definitions = []canonjson.Value{v}
		}
		if err := r.Register(definitions...); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// pagePolicy reads the policy of the page, and holds what the page says of it.
func pagePolicy(t *testing.T, r *model.Registry, text string) {
	t.Helper()
	policy, err := model.ParsePolicy(parse(t, text))
	if err != nil {
		t.Fatal(err)
	}
	if err := policy.Check(r); err != nil {
		t.Error(err)
	}
	permission := model.Permission{Rules: model.DefaultRules(), Policy: policy}
	course := r.Get("Course")
	a := permission.For(&model.Context{UserID: "ana", Roles: []string{"student", "assistant"}})
	if a.Read(course) != nil || !a.ReadField(course, course.Field("title")) || a.ReadField(course, course.Field("price")) || len(a.Rows(course, model.ActRead)) != 1 {
		t.Error("the grant on Course is not what the page says")
	}
}

// planned plans a query.
func planned(p *plan.Planner, text string, params canonjson.Value) error {
	q, err := gql.Parse(text)
	if err != nil {
		return err
	}
	bound, err := q.Bind(params)
	if err != nil {
		return err
	}
	_, err = p.Query(bound)
	return err
}

// pageCall plans what a call of a tool of one model asks for.
func pageCall(t *testing.T, r *model.Registry, b block) {
	t.Helper()
	in := parse(t, b.text)
	p := plan.Planner{Registry: r, Access: (&model.Permission{Rules: model.DefaultRules()}).For(&model.Context{UserID: "ben", Roles: []string{"staff"}}), Profile: plan.Served}
	w := plan.Writing{Now: time.UnixMilli(2_000_000_000_000), NewID: func(prefix string) string { return prefix + "1" }, Strict: true}
	verb, name, _ := strings.Cut(strings.TrimPrefix(b.info, "json "), "_")
	var err error
	switch verb {
	case "list":
		err = planned(&p, name+in.Get("q").Str(), in.Get("params"))
	case "create":
		_, err = p.Insert(name, []canonjson.Value{in.Get("body")}, w)
	case "update":
		_, err = p.Update(name, canonjson.Object(canonjson.M("_id", in.Get("id"))), in.Get("set"), canonjson.Value{}, w)
	}
	if err != nil {
		t.Errorf("%s: %v", b.info, err)
	}
}

// TestKeysOnThePage holds the page's tables of keys against the format.
func TestKeysOnThePage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- keys: made of the format by TestKeysOnThePage with -update -->\n", "<!-- /keys -->"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the page has no place for the tables")
	}
	want := before + begin + keyTables() + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Error("the keys on docs/models.md are not those of the format; run: go test ./model -run TestKeysOnThePage -update")
	}
}

// keyTables are the tables of keys in Markdown.
func keyTables() string {
	var b strings.Builder
	for _, part := range []struct{ name, title string }{
		{"model", "Keys of a model"}, {"field", "Keys of a field"}, {"relation", "Keys of a relation"},
		{"compute", "Keys of a computed column"}, {"index", "Keys of an index"},
	} {
		fmt.Fprintf(&b, "\n### %s\n\n| key | meaning | example |\n|---|---|---|\n", part.title)
		for _, k := range model.DefinitionSchema().At("/$defs/" + part.name + "/properties").Members() {
			fmt.Fprintf(&b, "| `%s` | %s | `%s` |\n", k.Name, k.Value.Get("description").Str(), k.Value.At("/examples/0"))
		}
	}
	b.WriteString("\nA field that needs no other key may be written as its type alone: `\"title\": \"string\"`.\n")
	return b.String()
}

// TestExamplesOfKeys registers each example of the format in a definition that has what it refers to.
func TestExamplesOfKeys(t *testing.T) {
	base := parse(t, `{"name":"Sample","fields":{"title":"string","status":"string","price":"int","course_id":"int","changed":{"type":"long","column":"updated_at"},"firstName":"string","lastName":"string"}}`)
	lessons := parse(t, `{"lessons":{"model":"Lesson","foreignField":"courseId"}}`)
	with := func(v canonjson.Value, name string, to canonjson.Value) canonjson.Value {
		return canonjson.Object(append(slices.Clone(v.Without(name).Members()), canonjson.M(name, to))...)
	}
	place := map[string]func(key canonjson.Member) canonjson.Value{
		"model": func(key canonjson.Member) canonjson.Value {
			d := with(base, key.Name, key.Value)
			if key.Name == "computes" {
				d = with(d, "relations", lessons)
			}
			return d
		},
		"relation": func(key canonjson.Member) canonjson.Value {
			return with(base, "relations", canonjson.Object(canonjson.M("r", with(parse(t, `{"model":"Lesson"}`), key.Name, key.Value))))
		},
		"compute": func(key canonjson.Member) canonjson.Value {
			c := parse(t, `{"fn":true}`)
			if key.Name == "agg" || key.Name == "asyncFn" {
				c = canonjson.Object()
			}
			return with(with(base, "relations", lessons), "computes", canonjson.Object(canonjson.M("c", with(c, key.Name, key.Value))))
		},
		"index": func(key canonjson.Member) canonjson.Value {
			return with(base, "indexes", canonjson.Array(with(parse(t, `{"keys":{"status":1}}`), key.Name, key.Value)))
		},
	}
	s, tried := definitionSchema(t), 0
	for part, put := range place {
		for _, k := range model.DefinitionSchema().At("/$defs/" + part + "/properties").Members() {
			d := put(canonjson.M(k.Name, k.Value.At("/examples/0")))
			tried++
			if err := model.NewRegistry(model.Options{}).Register(d); err != nil {
				t.Errorf("%s.%s: %v", part, k.Name, err)
			}
			if err := fits(t, s, d); err != nil {
				t.Errorf("%s.%s: %v", part, k.Name, err)
			}
		}
	}
	if tried < 40 {
		t.Errorf("only %d examples", tried)
	}
}
