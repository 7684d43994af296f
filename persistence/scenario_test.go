package persistence_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/internal/testkit/powercut"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// scenarioDir holds the scenarios that came with the contract.
const scenarioDir = "testdata/scenarios"

// extraScenarios is the folder of further scenarios, from TABELLION_EXTRA_FIXTURES; "" when none is named. A named
// folder that is missing or empty fails.
func extraScenarios(t *testing.T) string {
	t.Helper()
	root := os.Getenv("TABELLION_EXTRA_FIXTURES")
	if root == "" {
		return ""
	}
	dir := filepath.Join(root, "persistence")
	if _, err := scenario.Load(dir); err != nil {
		t.Fatalf("TABELLION_EXTRA_FIXTURES: %v", err)
	}
	return dir
}

// outputSchemas compiles the output schema of every tool of the contract from the contract's own file.
func outputSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	f, err := os.Open("schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*jsonschema.Schema{}
	for _, tool := range doc.(map[string]any)["tools"].([]any) {
		m := tool.(map[string]any)
		name := m["name"].(string)
		c := jsonschema.NewCompiler()
		if err := c.AddResource(name, m["outputSchema"]); err != nil {
			t.Fatal(err)
		}
		if out[name], err = c.Compile(name); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// served tells which tools of the contract this version has.
func served(tool string) bool {
	for _, op := range persistence.New(persistence.Config{}).Operations() {
		if op.Name == tool {
			return true
		}
	}
	return false
}

// limitsOf applies a scenario's overrides.
func limitsOf(t *testing.T, overrides map[string]int64) persistence.Limits {
	t.Helper()
	l := persistence.DefaultLimits()
	for name, v := range overrides {
		switch name {
		case "maxDocumentBytes":
			l.MaxDocumentBytes = v
		case "maxArtifactBytes":
			l.MaxArtifactBytes = v
		case "maxReferences":
			l.MaxReferences = int(v)
		case "maxPageSize":
			l.MaxPageSize = int(v)
		case "maxNamespaceBytes":
			l.MaxNamespaceBytes = v
		case "idempotencyRetentionSeconds":
			l.IdempotencyRetention = time.Duration(v) * time.Second
		default:
			t.Fatalf("unknown limit %q", name)
		}
	}
	return l
}

// grantsOf is the policy a scenario starts with.
func grantsOf(s *scenario.Setup) []scenario.Grant {
	if s.HasGrants {
		return s.Grants
	}
	return scenario.DefaultGrants()
}

// backend opens a store for one scenario and can open it again.
type backend struct {
	// open gives the store and what the store can do besides.
	open func(t *testing.T, c clock.Clock, needsFaults bool) (store inproc.Store, reopen func(kill bool) (inproc.Store, error), fault func(name string) error)
	// lacks lists hooks that this kind of store has not.
	lacks []string
}

// openMemory has nothing to reopen.
func openMemory(_ *testing.T, c clock.Clock, _ bool) (inproc.Store, func(bool) (inproc.Store, error), func(string) error) {
	return memory.New(c), nil, nil
}

// openSQLite opens a folder; for faults it lies on a file system that can fail a sync.
func openSQLite(t *testing.T, c clock.Clock, needsFaults bool) (inproc.Store, func(bool) (inproc.Store, error), func(string) error) {
	dir := t.TempDir()
	fault := func(name string) error {
		if name == "none" {
			return nil
		}
		return fmt.Errorf("the file system cannot fail here")
	}
	if needsFaults {
		fs := powercut.MountForTest(t, 1)
		dir = filepath.Join(fs.Dir(), "data")
		fault = func(name string) error {
			if name == "sync-error" {
				return fs.FailSync(1, syscall.EIO, "")
			}
			return nil
		}
	}
	current := openFolder(t, dir, c)
	t.Cleanup(func() { current.Close() })
	reopen := func(kill bool) (inproc.Store, error) {
		from := dir
		if kill { // what another process would find if this one were killed now
			dir = t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
				return nil, err
			}
		}
		current.Close()
		current = openFolder(t, dir, c)
		return current, nil
	}
	return current, reopen, fault
}

// openFolder opens a SQLite store or ends the test.
func openFolder(t *testing.T, dir string, c clock.Clock) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), dir, sqlite.Options{Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestScenarioInProcess runs every scenario that concerns documents against both stores, behind the real gate. The
// closing lines count what ran; scenarios that need parts of the contract that are not served are listed as waiting,
// and counted as nothing else.
func TestScenarioInProcess(t *testing.T) {
	backends := map[string]backend{
		"memory": {open: openMemory, lacks: []string{"restart", "kill", "sync-error"}},
		"sqlite": {open: openSQLite},
	}
	outputs := outputSchemas(t)
	for name, b := range backends {
		t.Run(name, func(t *testing.T) {
			runFolder(t, "", scenarioDir, func(t *testing.T, s *scenario.Scenario) { runInProcess(t, s, b, outputs) }, b.lacks)
			if extra := extraScenarios(t); extra != "" {
				runFolder(t, "extra/", extra, func(t *testing.T, s *scenario.Scenario) { runInProcess(t, s, b, outputs) }, b.lacks)
			}
		})
	}
}

// runFolder runs the scenarios of a folder as subtests <prefix><file>/<id>, and prints what was run and what not.
func runFolder(t *testing.T, prefix, dir string, run func(*testing.T, *scenario.Scenario), lacks []string) {
	files, err := scenario.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	passed, failed := 0, 0
	var waiting, lacking []string
	for _, name := range names {
		for _, s := range files[name].Scenarios {
			id := name + "/" + s.ID
			if w := s.Waits(served); len(w) > 0 {
				waiting = append(waiting, fmt.Sprintf("%s (%s)", id, strings.Join(w, ", ")))
				continue
			}
			if l := missing(&s, lacks); len(l) > 0 {
				lacking = append(lacking, fmt.Sprintf("%s (%s)", id, strings.Join(l, ", ")))
				continue
			}
			skipped := false
			ok := t.Run(prefix+id, func(t *testing.T) {
				defer func() { skipped = t.Skipped() }()
				run(t, &s)
			})
			switch {
			case skipped: // the machine lacks what the hook needs, and said so
				lacking = append(lacking, id)
			case ok:
				passed++
			default:
				failed++
			}
		}
	}
	t.Logf("waiting for parts of the contract that are not served yet, %d: %s", len(waiting), strings.Join(waiting, "; "))
	t.Logf("not run here for lack of a hook, %d: %s", len(lacking), strings.Join(lacking, "; "))
	fmt.Printf("%s %s: %d passed, %d failed, %d without a hook here, %d waiting\n", t.Name(), dir, passed, failed, len(lacking), len(waiting))
	if passed == 0 {
		t.Error("no scenario ran")
	}
}

// missing lists the hooks that s needs and a backend lacks. A sync error is told apart from a guard that is down.
func missing(s *scenario.Scenario, lacks []string) []string {
	var out []string
	for _, need := range s.Requires {
		if slices.Contains(lacks, need) {
			out = append(out, need)
		}
	}
	for _, st := range s.Steps {
		if slices.Contains(lacks, st.Fault) {
			out = append(out, st.Fault)
		}
	}
	return out
}

// runInProcess runs one scenario with every hook.
func runInProcess(t *testing.T, s *scenario.Scenario, b backend, outputs map[string]*jsonschema.Schema) {
	c := clock.NewManual(time.Date(2042, 1, 1, 0, 0, 0, 0, time.UTC))
	store, reopen, fault := b.open(t, c, slices.Contains(s.Requires, "fault") && usesSyncError(s))
	grants, open := grantsOf(&s.Setup), s.Setup.Mode == "open"
	build := func(store inproc.Store) *inproc.Server {
		return inproc.New(t, inproc.Config{Store: store, Clock: c, Limits: limitsOf(t, s.Setup.Limits), Grants: grants, Open: open})
	}
	target := &swappable{Server: build(store)}
	runner := scenario.Runner{Target: target, Outputs: outputs, Hooks: scenario.Hooks{
		Advance: func(seconds float64) { c.Advance(inproc.Seconds(seconds)) },
		Restart: func(kill bool) error {
			store, err := reopen(kill)
			if err == nil {
				target.Server = build(store)
			}
			return err
		},
		SetGrants: func(g []scenario.Grant) error {
			grants = g
			return target.SetGrants(g, open)
		},
		Fault: func(name string) error {
			target.GuardDown(name == "guard-down")
			if name == "guard-down" || fault == nil {
				return nil
			}
			return fault(name)
		},
	}}
	if err := runner.Run(t.Context(), s); err != nil {
		t.Errorf("%s [%s, rules %v]: %v", s.Title, s.Basis, s.Rules, err)
	}
}

// usesSyncError tells whether a scenario needs a file system that fails.
func usesSyncError(s *scenario.Scenario) bool {
	return slices.ContainsFunc(s.Steps, func(st scenario.Step) bool { return st.Fault == "sync-error" })
}

// swappable is a target whose server is replaced at a restart.
type swappable struct{ *inproc.Server }
