package access_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// matrix is the file of expected verdicts.
type matrix struct {
	Principals yaml.MapSlice                  `yaml:"principals"`
	Everywhere map[string]map[string][]string `yaml:"everywhere"` // by surface: mcp or transfer
	Bodies     map[string]string              `yaml:"bodies"`     // the code in the body of each status of a route
	Rules      []map[string]any               `yaml:"rules"`
	principals map[string]principal           // by name
	order      []string                       // names
	rules      []rule
}

// principal is a caller.
type principal struct {
	Capabilities []string `yaml:"capabilities"`
	On           string   `yaml:"on"`
	Except       string   `yaml:"except"`
	// Only are the scopes of the caller's key. {artifact} in one is the path of the artifact that the cell is about, or
	// for a target beside another, of that other one.
	Only   []string `yaml:"only"`
	Tenant string   `yaml:"tenant"`
	Key    string   `yaml:"key"` // revoked, expired, none; "" is a good one
}

// perCell tells whether the caller's key is another one in each cell.
func (p principal) perCell() bool {
	return slices.ContainsFunc(p.Only, func(s string) bool { return strings.Contains(s, "{artifact}") })
}

// scopes are the scopes of the caller's key in a cell about the artifact at a path.
func (p principal) scopes(artifact string) []string {
	out := make([]string, len(p.Only))
	for i, s := range p.Only {
		out[i] = strings.ReplaceAll(s, "{artifact}", artifact)
	}
	return out
}

// rule is one row: verdicts by principal for operations on targets.
type rule struct {
	name                string
	operations, targets []string
	verdicts            map[string]string // principal -> verdict
}

// load reads the matrix and refuses a row that forgets a principal or names one twice.
func load(t *testing.T) *matrix {
	t.Helper()
	text, err := os.ReadFile("testdata/access/persistence.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m matrix
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	m.principals = map[string]principal{}
	for _, item := range m.Principals {
		name := fmt.Sprint(item.Key)
		var p principal
		part, err := yaml.Marshal(item.Value)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalWithOptions(part, &p, yaml.Strict()); err != nil {
			t.Fatalf("principal %s: %v", name, err)
		}
		m.principals[name] = p
		m.order = append(m.order, name)
	}
	for i, raw := range m.Rules {
		m.rules = append(m.rules, m.readRule(t, i, raw))
	}
	return &m
}

// readRule turns a row into verdicts.
func (m *matrix) readRule(t *testing.T, i int, raw map[string]any) rule {
	t.Helper()
	r := rule{verdicts: map[string]string{}}
	surface := "mcp"
	give := func(verdict string, names []string) {
		for _, name := range names {
			if _, ok := m.principals[name]; !ok {
				t.Fatalf("rule %d: unknown principal %s", i, name)
			}
			if other, twice := r.verdicts[name]; twice {
				t.Fatalf("rule %d: %s has the verdicts %s and %s", i, name, other, verdict)
			}
			r.verdicts[name] = verdict
		}
	}
	for key, value := range raw {
		switch key {
		case "rule":
			r.name = fmt.Sprint(value)
		case "surface":
			surface = fmt.Sprint(value)
		case "operations":
			r.operations = texts(value)
		case "targets":
			r.targets = texts(value)
		default:
			give(key, texts(value))
		}
	}
	for verdict, names := range m.Everywhere[surface] {
		give(verdict, names)
	}
	for _, name := range m.order {
		if _, ok := r.verdicts[name]; !ok {
			t.Fatalf("rule %q says nothing of %s", r.name, name)
		}
	}
	for _, op := range r.operations {
		if onRoute := isRoute(op); onRoute != (surface == "transfer") {
			t.Fatalf("rule %q: %s on the surface %s", r.name, op, surface)
		}
	}
	return r
}

// texts is a YAML list of strings.
func texts(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, item := range list {
		out = append(out, fmt.Sprint(item))
	}
	return out
}

// grants is the policy that the principals need.
func (m *matrix) grants() []scenario.Grant {
	var out []scenario.Grant
	for _, name := range m.order {
		p := m.principals[name]
		if p.On == "" {
			continue
		}
		g := scenario.Grant{As: name, Resource: p.On}
		for _, c := range p.Capabilities {
			g.Capabilities = append(g.Capabilities, "persistence."+c)
		}
		if p.Except != "" {
			g.Except = []string{p.Except}
		}
		out = append(out, g)
	}
	return append(out, scenario.Grant{As: keeper, Resource: "/persistence/**",
		Capabilities: []string{"persistence.read", "persistence.write", "persistence.delete", "persistence.admin"}})
}

// keeper is the caller who puts documents and artifacts into their state before a cell.
const keeper = "keeper"

// surfaceOf are the published names behind an operation of the matrix.
var surfaceOf = map[string]string{
	"capabilities": "persistence.capabilities", "read-capabilities": "persistence://capabilities",
	"get": "persistence.get", "get-old": "persistence.get",
	"read-head": "persistence://documents/{namespace}/{id}", "read-revision": "persistence://documents/{namespace}/{id}/revisions/{revision}",
	"put": "persistence.put", "put-stale": "persistence.put", "put-ref": "persistence.put", "replay": "persistence.put",
	"list": "persistence.list", "listRevisions": "persistence.listRevisions", "delete": "persistence.delete",
	"purge": "persistence.purge", "purge-head": "persistence.purge", "purge-artifact": "persistence.purge", "purge-replay": "persistence.purge",
	"put-ref-artifact": "persistence.put",
	"beginArtifact":    "persistence.beginArtifact", "begin-replay": "persistence.beginArtifact",
	"uploadAccess":   "persistence.uploadAccess",
	"commitArtifact": "persistence.commitArtifact", "commit-replay": "persistence.commitArtifact",
	"abortArtifact": "persistence.abortArtifact", "abort-replay": "persistence.abortArtifact",
	"getArtifact": "persistence.getArtifact", "read-artifact": "persistence://artifacts/{namespace}/{id}",
	"PUT": "PUT /uploads/{namespace}/{uploadId}", "GET": "GET /artifacts/{namespace}/{id}",
}

// isRoute tells whether an operation of the matrix is a route.
func isRoute(operation string) bool { return strings.Contains(surfaceOf[operation], " /") }

// publishedNames are the names under which clients reach op. One that is reached by none is told by its own name: it
// needs a row, or a reason.
func publishedNames(op *catalog.Operation) []string {
	var out []string
	if op.Publish.Tool {
		out = append(out, op.Name)
	}
	for _, r := range op.Publish.Resources {
		out = append(out, r.URI+r.Template)
	}
	if r := op.Publish.Route; r != nil {
		path := r.Method + " /" + r.Prefix
		for _, a := range r.Arguments {
			path += "/{" + a + "}"
		}
		out = append(out, path)
	}
	if p := op.Publish.Prompt; p != nil {
		out = append(out, "prompt "+op.Name)
	}
	if len(out) == 0 {
		out = append(out, op.Name)
	}
	return out
}

// uncovered are the published names of operations that have no row.
func (m *matrix) uncovered(ops []*catalog.Operation) []string {
	has := map[string]bool{}
	for _, r := range m.rules {
		for _, op := range r.operations {
			has[surfaceOf[op]] = true
		}
	}
	var out []string
	for _, op := range ops {
		for _, name := range publishedNames(op) {
			if !has[name] {
				out = append(out, name)
			}
		}
	}
	return out
}
