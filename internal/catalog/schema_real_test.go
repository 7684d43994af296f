package catalog_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
)

// suiteGroup is one schema of the JSON Schema test suite with its instances.
type suiteGroup struct {
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Tests       []struct {
		Description string          `json:"description"`
		Data        json.RawMessage `json:"data"`
		Valid       bool            `json:"valid"`
	} `json:"tests"`
}

// outside finds references, or a meta-schema, that lie in a document which the suite serves beside its files.
var outside = regexp.MustCompile(`http://localhost:1234/`)

// TestRealSchemaSuite holds the check of arguments against the required files of the JSON Schema test suite for draft
// 2020-12. A schema that needs a document outside its file must be refused when it is loaded; nothing is fetched.
func TestRealSchemaSuite(t *testing.T) {
	root := os.Getenv("TABELLION_REAL")
	if root == "" {
		t.Skip("NOT RUN: the JSON Schema test suite needs TABELLION_REAL (make test-real REAL=DIR)")
	}
	files, err := filepath.Glob(filepath.Join(root, "json-schema-test-suite", "tests", "draft2020-12", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 40 {
		t.Fatalf("%d files found, want the whole suite", len(files))
	}
	cases, refused := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var groups []suiteGroup
		if err := json.Unmarshal(text, &groups); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			name := strings.TrimSuffix(filepath.Base(file), ".json") + ": " + g.Description
			c, r := runGroup(t, name, g)
			cases, refused = cases+c, refused+r
		}
	}
	fmt.Printf("JSON Schema test suite: %d cases agree over %d files, %d schemas that need another document refused\n", cases, len(files), refused)
}

// runGroup checks one schema: it is refused exactly when it needs a document that is not there.
func runGroup(t *testing.T, name string, g suiteGroup) (cases, refused int) {
	t.Helper()
	schema, err := catalog.CompileSchema(g.Schema)
	if err != nil {
		if needsOutside(g.Schema) {
			return 0, 1
		}
		t.Errorf("%s: %v", name, err)
		return 0, 0
	}
	for _, c := range g.Tests {
		v, _, err := canonjson.Parse(c.Data, canonjson.Limits{Depth: 1000, Nodes: 1_000_000})
		if err != nil {
			t.Errorf("%s: %s: %v", name, c.Description, err)
			continue
		}
		if got := schema.Check(v) == nil; got != c.Valid {
			t.Errorf("%s: %s: valid is %t, want %t", name, c.Description, got, c.Valid)
			continue
		}
		cases++
	}
	return cases, 0
}

// needsOutside tells whether a schema refers to a document that it does not hold itself under that id.
func needsOutside(schema []byte) bool {
	var doc any
	if json.Unmarshal(schema, &doc) != nil {
		return false
	}
	ids := map[string]bool{}
	collect(doc, "$id", func(v string) { ids[strings.TrimSuffix(v, "#")] = true })
	needs := false
	for _, keyword := range []string{"$ref", "$dynamicRef", "$schema"} {
		collect(doc, keyword, func(v string) {
			base, _, _ := strings.Cut(v, "#")
			needs = needs || (outside.MatchString(base) && !ids[base]) || (keyword == "$ref" && base != "" && !strings.Contains(base, "://") && len(ids) > 0)
		})
	}
	return needs
}

// collect visits the string values of a keyword at any depth.
func collect(v any, keyword string, visit func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if s, ok := inner.(string); ok && name == keyword {
				visit(s)
			}
			collect(inner, keyword, visit)
		}
	case []any:
		for _, inner := range v {
			collect(inner, keyword, visit)
		}
	}
}

// TestSchemaFetchesNothing is the small form that always runs: a reference to the network is refused at load.
func TestSchemaFetchesNothing(t *testing.T) {
	for _, text := range []string{
		`{"$ref":"https://example.org/schema.json"}`,
		`{"$ref":"file:///etc/passwd"}`,
		`{"properties":{"a":{"$ref":"other.json#/x"}}}`,
		`{"$schema":"https://example.org/meta"}`,
	} {
		if _, err := catalog.CompileSchema([]byte(text)); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}

// TestSchemaBounds refuses schemas that would make a check unbounded.
func TestSchemaBounds(t *testing.T) {
	deep := strings.Repeat(`{"items":`, 200) + "true" + strings.Repeat("}", 200)
	wide := `{"anyOf":[` + strings.Repeat(`{"type":"string"},`, 2001) + `{}]}`
	for name, text := range map[string]string{"deep": deep, "wide": wide, "duplicate": `{"type":"string","type":"number"}`} {
		if _, err := catalog.CompileSchema([]byte(text)); err == nil {
			t.Errorf("the %s schema was accepted", name)
		}
	}
}
