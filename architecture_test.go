package tabellion_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// module is the module's path; the table in ARCHITECTURE.md writes it as T.
const module = "github.com/tabellion-mcp/tabellion"

// testOnly tells whether a package exists for tests and measurements only.
func testOnly(path string) bool {
	for _, p := range []string{"/internal/testkit", "/internal/bench", "/internal/store/storecheck", "/internal/access", "/internal/durability", "/internal/cases",
		"/internal/source/sourcetest", "/internal/modeldiff", "/internal/modelserver", "/internal/modelaccess", "/internal/injection", "/internal/realdb"} {
		if strings.HasPrefix(path, module+p) {
			return true
		}
	}
	return false
}

// readArrows reads the table of ARCHITECTURE.md.
func readArrows(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "<!-- arrows -->")
	table, _, ok2 := strings.Cut(rest, "<!-- /arrows -->")
	if !ok || !ok2 {
		t.Fatal("ARCHITECTURE.md has no table of arrows between its marks")
	}
	name := regexp.MustCompile("`([^`]+)`")
	expand := func(s string) string {
		if s == "T" || strings.HasPrefix(s, "T/") {
			return module + s[1:]
		}
		return s
	}
	arrows := map[string][]string{}
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		names := name.FindAllStringSubmatch(line, -1)
		if len(cells) < 4 || len(names) == 0 {
			continue
		}
		from := expand(names[0][1])
		arrows[from] = nil
		for _, n := range names[1:] {
			arrows[from] = append(arrows[from], expand(n[1]))
		}
	}
	return arrows
}

// imports reads the import graph of the non-test code: only arrows to the module itself and to other modules.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	graph := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Fields(line)
		graph[fields[0]] = nil
		for _, to := range fields[1:] {
			if strings.Contains(strings.SplitN(to, "/", 2)[0], ".") {
				graph[fields[0]] = append(graph[fields[0]], to)
			}
		}
	}
	return graph
}

// TestArrows holds the table of allowed imports against the code, both ways: no arrow that is not allowed, no package
// without a row, no row without a package.
func TestArrows(t *testing.T) {
	arrows, graph := readArrows(t), imports(t)
	for from, to := range graph {
		if testOnly(from) {
			continue
		}
		allowed, ok := arrows[from]
		if !ok {
			t.Errorf("%s has no row in ARCHITECTURE.md", from)
			continue
		}
		for _, target := range to {
			if testOnly(target) {
				t.Errorf("%s imports %s, which is for tests", from, target)
			}
			if from != module && !slices.Contains(allowed, target) {
				t.Errorf("%s imports %s, which its row does not allow", from, target)
			}
		}
	}
	for from := range arrows {
		if _, ok := graph[from]; !ok {
			t.Errorf("ARCHITECTURE.md has a row for %s, which does not exist", from)
		}
	}
}

// TestOneHolder holds what must have one place: the SDK, database drivers, and the asking of a policy.
func TestOneHolder(t *testing.T) {
	holders := map[string][]string{
		"github.com/modelcontextprotocol/go-sdk/": {"/internal/transport/mcp"},
		"modernc.org/sqlite":                      {"/internal/store/sqlite", "/internal/source/sqlite", "/examples/harbourline/seed"},
		"github.com/jackc/pgx/":                   {"/internal/source/postgres", "/internal/source/inspect"},
		"database/sql":                            {"/internal/store/", "/internal/source/", "/examples/harbourline/seed"},
	}
	for from, to := range imports(t) {
		for _, target := range to {
			for prefix, allowed := range holders {
				holds := func(holder string) bool { return strings.HasPrefix(from, module+holder) }
				if strings.HasPrefix(target, prefix) && !slices.ContainsFunc(allowed, holds) && !testOnly(from) {
					t.Errorf("%s imports %s; only %v may", from, target, allowed)
				}
			}
		}
	}
	for file, calls := range decideCalls(t) {
		dir := filepath.ToSlash(filepath.Dir(file))
		if dir != "internal/gate" && dir != "policy" && !strings.HasPrefix(dir, "internal/testkit") {
			t.Errorf("%s asks a policy (%v); only the gate may", file, calls)
		}
	}
}

// decideCalls finds calls of Decide and Survey, and calls of an operation's Run outside the gate.
func decideCalls(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Decide" || sel.Sel.Name == "Survey") {
					found[path] = append(found[path], sel.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
