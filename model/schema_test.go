package model_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// update rewrites the published schema.
var update = flag.Bool("update", false, "rewrite docs/models.schema.json")

// publishedSchema is where editors find the schema.
const publishedSchema = "../docs/models.schema.json"

// TestPublishedSchema compares the published schema with the format.
func TestPublishedSchema(t *testing.T) {
	var want bytes.Buffer
	if err := json.Indent(&want, model.DefinitionSchema().AppendJSON(nil), "", "  "); err != nil {
		t.Fatal(err)
	}
	want.WriteByte('\n')
	if *update {
		if err := os.WriteFile(publishedSchema, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(publishedSchema)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/models.schema.json is not what the format says; run: go test ./model -run TestPublishedSchema -update")
	}
}

// definitionSchema compiles the published schema.
func definitionSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile(publishedSchema)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("models.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("models.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fits tells whether a value fits the schema, and why not.
func fits(t *testing.T, s *jsonschema.Schema, v canonjson.Value) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(v.String()))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// withoutTestData takes impl, which is test data and no key of the format, out of the recorded models.
func withoutTestData(v canonjson.Value) canonjson.Value {
	switch v.Kind() {
	case canonjson.KindArray:
		items := slices.Clone(v.Items())
		for i := range items {
			items[i] = withoutTestData(items[i])
		}
		return canonjson.Array(items...)
	case canonjson.KindObject:
		members := slices.Clone(v.Without("impl").Members())
		for i := range members {
			members[i].Value = withoutTestData(members[i].Value)
		}
		return canonjson.Object(members...)
	}
	return v
}

// TestSchemaTakesGoodDefinitions holds the recorded models, and every recorded definition that is registered, against the
// published schema.
func TestSchemaTakesGoodDefinitions(t *testing.T) {
	s := definitionSchema(t)
	if err := fits(t, s, withoutTestData(golden(t, "schema.json"))); err != nil {
		t.Error(err)
	}
	if fits(t, s, golden(t, "schema.json")) == nil {
		t.Error("impl is no key of the format, and the schema takes it")
	}
	for _, c := range golden(t, "cases-schema.json").Items() {
		for _, d := range c.Get("defns").Items() {
			if model.NewRegistry(model.Options{}).Register(d) == nil {
				if err := fits(t, s, d); err != nil {
					t.Errorf("%s is registered, and does not fit: %v", c.Get("id").Str(), err)
				}
			}
		}
	}
}

// notOfForm are the recorded cases whose mistake is not one of form: it depends on other parts of the definition.
var notOfForm = []string{"s017", "s035", "s036"}

// TestSchemaRefusesBadDefinitions holds what is refused for its form against the published schema.
func TestSchemaRefusesBadDefinitions(t *testing.T) {
	s := definitionSchema(t)
	refused := 0
	for _, c := range golden(t, "cases-schema.json").Items() {
		if slices.Contains(notOfForm, c.Get("id").Str()) {
			continue
		}
		for _, d := range c.Get("defns").Items() {
			if model.NewRegistry(model.Options{}).Register(d) != nil {
				refused++
				if fits(t, s, d) == nil {
					t.Errorf("%s: %s is refused, and the schema takes it", c.Get("id").Str(), d)
				}
			}
		}
	}
	if refused < 20 {
		t.Errorf("only %d definitions were refused", refused)
	}
	for _, text := range []string{
		`{"name":"A","feilds":{}}`, `{"name":"A","fields":{"a":{"type":"string","requierd":true}}}`, `{"name":"A","fields":{"a b":"string"}}`,
		`{"name":"A","fields":{"a":"string"},"indexes":[{"keys":{"a":2}}]}`, `{"name":"A","fields":{"a":"string"},"indexes":[{"keys":{"a":1},"options":{"unic":true}}]}`,
		`{"name":"A","fields":{"a":"string"},"computes":{"c":{"type":"int"}}}`, `{"name":"A","fields":{"a":"string"},"computes":{"c":{"fn":true,"asyncFn":true}}}`,
		`{"name":"A","fields":{"a":"string"},"triggers":{"insert":[{}]}}`, `{"name":"A","fields":{"a":"string"},"collation":"fr"}`,
		`{"name":"A","fields":{"a":"string"},"x-mcp":{"hiden":true}}`,
	} {
		d := parse(t, text)
		if fits(t, s, d) == nil || model.NewRegistry(model.Options{}).Register(d) == nil {
			t.Errorf("%s: taken", text)
		}
	}
}

// TestExamplesOfTheFormat registers each example that the schema shows of a key of a field.
func TestExamplesOfTheFormat(t *testing.T) {
	keys := model.DefinitionSchema().At("/$defs/field/properties").Members()
	for _, k := range keys {
		example := k.Value.At("/examples/0")
		kind := "string"
		if k.Name == "fields" {
			kind = "object"
		}
		var field canonjson.Value
		switch k.Name {
		case "type":
			field = canonjson.Object(canonjson.M("type", example))
		case "strategy":
			continue // it is for keys
		default:
			field = canonjson.Object(canonjson.M("type", canonjson.String(kind)), canonjson.M(k.Name, example))
		}
		d := canonjson.Object(canonjson.M("name", canonjson.String("A")), canonjson.M("fields", canonjson.Object(canonjson.M("a", field))))
		if err := model.NewRegistry(model.Options{}).Register(d); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
	if len(keys) < 10 {
		t.Errorf("only %d keys", len(keys))
	}
}
