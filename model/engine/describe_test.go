package engine_test

import (
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// describer is an engine over the fixtures' models without a database.
func describer(t *testing.T, definitions ...canonjson.Value) *engine.Engine {
	t.Helper()
	r, row := schema(t, "testdata/schema.json")
	if err := r.Register(definitions...); err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Registry: r, Permission: openRules(nil), Sources: map[string]plan.Source{"default": &spy{}}, Functions: engine.Functions{Row: row}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// entry is the description of one model.
func entry(list canonjson.Value, name string) canonjson.Value {
	for _, m := range list.Items() {
		if m.Get("name").Str() == name {
			return m
		}
	}
	return canonjson.Value{}
}

// TestDescribeGolden runs the golden cases of describe_schemas.
func TestDescribeGolden(t *testing.T) {
	e, ran := describer(t), 0
	for _, c := range fixture(t, "cases-mcp.json").Items() {
		if c.Get("tool").Str() != "describe_schemas" {
			continue
		}
		ran++
		call := engine.Call{}
		if c.Get("ctx").Kind() == canonjson.KindObject {
			call = as(caller(c.Get("ctx")))
		}
		list := e.Describe(t.Context(), call)
		if want := c.At("/expect/jsonModel"); !want.IsAbsent() {
			if why := diff(want, entry(list, want.Get("name").Str()), true, nil); why != "" {
				t.Errorf("%s: %s", c.Get("id").Str(), why)
			}
		}
		for _, word := range c.At("/expect/jsonLacks").Items() {
			if strings.Contains(list.String(), word.Str()) {
				t.Errorf("%s: tells %v", c.Get("id").Str(), word)
			}
		}
		if entry(list, "Setting").Kind() != canonjson.KindAbsent || strings.Contains(list.String(), "Deleted") {
			t.Errorf("%s: tells of hidden or archive models", c.Get("id").Str())
		}
	}
	if ran < 3 {
		t.Errorf("%d cases ran", ran)
	}
}

// TestDescribe tells what the source document leaves out, and nothing that leads to what the caller may not use.
func TestDescribe(t *testing.T) {
	e := describer(t, parse(t, `{"name":"Boat","description":"A boat","fields":{"_id":"string",
		"name":{"type":"string","description":"Its name","required":true},"kind":{"type":"string","enum":["sail","motor"]},"no":"int","port":"string","secret":{"type":"string","read":["boss"]}},
		"relations":{"owner":{"model":"User","type":"one","localField":"no","foreignField":"age"},"settings":{"model":"Setting","foreignField":"key"},"logs":{"model":"AuditLog","foreignField":"targetId"},"gone":{"model":"Nowhere"}},
		"computes":{"logCount":{"type":"int","agg":{"$count":"logs"}},"settingCount":{"type":"int","agg":{"$count":"settings"}},"ownerCount":{"type":"int","agg":{"$count":"owner"}},"mails":{"type":"int","agg":{"$max":"owner.email"}}},
		"indexes":[{"keys":{"name":1},"unique":true},{"keys":{"port":1,"no":1},"unique":true},{"keys":{"secret":1,"no":1},"unique":true}]}`))
	got := entry(e.Describe(t.Context(), as(user("u", "student"))), "Boat")
	same(t, "student", got, `{"name":"Boat","description":"A boat",
		"fields":{"_id":"string","name":"string","kind":"string","no":"int","port":"string","createdAt":null,"updatedAt":null},
		"relations":{"owner":{"model":"User","type":"one"}},
		"computes":{"ownerCount":{"agg":{"$count":"owner"},"type":"int"}},
		"details":{"name":{"description":"Its name","required":true,"unique":true},"kind":{"enum":["sail","motor"]}},
		"unique":[["port","no"]]}`)
	all := entry(e.Describe(t.Context(), as(user("b", "staff", "boss"))), "Boat")
	for _, name := range []string{"/fields/secret", "/relations/logs", "/computes/logCount", "/computes/mails"} {
		if all.At(name).IsAbsent() || !got.At(name).IsAbsent() {
			t.Errorf("%s: is for staff and boss alone", name)
		}
	}
	known := as(user("b", "staff", "boss"))
	known.Known = func(m *model.Model) bool { return m.Name == "Boat" }
	if list := e.Describe(t.Context(), known); list.Len() != 1 || list.At("/0/relations").Len() != 0 {
		t.Errorf("with one model known: %v", list)
	}
}
