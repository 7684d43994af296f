package persistence_test

import (
	"bytes"
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
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
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

// outputSchemas are the output schemas of the contract, by tool: every success must fit.
func outputSchemas(t *testing.T) map[string]*jsonschema.Schema {
	return contractSchemas(t, "outputSchema")
}

// contractSchemas compiles one schema of every tool from the contract that clients are built against.
func contractSchemas(t *testing.T, member string) map[string]*jsonschema.Schema {
	t.Helper()
	f, err := os.Open("../contracts/persistence.v1.json")
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
		if err := c.AddResource(name, m[member]); err != nil {
			t.Fatal(err)
		}
		if out[name], err = c.Compile(name); err != nil {
			t.Fatal(err)
		}
	}
	return out
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

// site is what one scenario runs on.
type site struct {
	store inproc.Store
	blobs persistence.Blobs
	// corrupt damages bytes; reopen opens what was kept, as it is after a kill when told so; fault makes the disk fail.
	corrupt func(persistence.Digest) error
	reopen  func(kill bool) (*site, error)
	fault   func(name string) error
}

// backend opens a site for each scenario.
type backend struct {
	open func(t *testing.T, c clock.Clock, needsFaults bool) *site
	// lacks lists hooks that this kind of store has not.
	lacks []string
}

// openMemory has nothing to reopen.
func openMemory(_ *testing.T, c clock.Clock, _ bool) *site {
	blobs := blob.NewMemory()
	return &site{store: memory.New(c), blobs: blobs, corrupt: func(d persistence.Digest) error {
		if !blobs.Corrupt(d) {
			return persistence.ErrNoBlob
		}
		return nil
	}}
}

// openSQLite opens a folder; for faults it lies on a file system that can fail a sync.
func openSQLite(t *testing.T, c clock.Clock, needsFaults bool) *site {
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
	return openSite(t, dir, c, fault)
}

// openSite opens the stores in a folder or ends the test.
func openSite(t *testing.T, dir string, c clock.Clock, fault func(string) error) *site {
	t.Helper()
	store := openFolder(t, dir, c)
	t.Cleanup(func() { store.Close() })
	blobs, err := blob.OpenFolder(filepath.Join(dir, "blobs"), blob.FolderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	s := &site{store: store, blobs: blobs, fault: fault, corrupt: func(d persistence.Digest) error { return flipBit(blobs.Path(d)) }}
	s.reopen = func(kill bool) (*site, error) {
		next := dir
		if kill { // what another process would find if this one were killed now
			next = t.TempDir()
			if err := os.CopyFS(next, os.DirFS(dir)); err != nil {
				return nil, err
			}
		}
		blobs.Close()
		store.Close()
		return openSite(t, next, c, fault), nil
	}
	return s
}

// flipBit changes one bit in the middle of a file.
func flipBit(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 4
	return os.WriteFile(path, b, 0o600)
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

// TestScenarioInProcess runs every scenario against both stores, behind the real gate, with the transfer origin on a
// real listener. The closing lines count: what a backend has no hook for is skipped, and is no pass.
func TestScenarioInProcess(t *testing.T) {
	backends := map[string]backend{
		"memory": {open: openMemory, lacks: []string{"restart", "kill", "sync-error"}},
		"sqlite": {open: openSQLite},
	}
	inputs, outputs := contractSchemas(t, "inputSchema"), outputSchemas(t)
	for name, b := range backends {
		t.Run(name, func(t *testing.T) {
			runFolder(t, "", scenarioDir, func(t *testing.T, s *scenario.Scenario) { runInProcess(t, s, b, inputs, outputs) }, b.lacks)
			if extra := extraScenarios(t); extra != "" {
				runFolder(t, "extra/", extra, func(t *testing.T, s *scenario.Scenario) { runInProcess(t, s, b, inputs, outputs) }, b.lacks)
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
	var lacking []string
	for _, name := range names {
		for _, s := range files[name].Scenarios {
			id := name + "/" + s.ID
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
	t.Logf("not run here for lack of a hook, %d: %s", len(lacking), strings.Join(lacking, "; "))
	fmt.Printf("%s %s: %d passed, %d failed, %d skipped\n", t.Name(), dir, passed, failed, len(lacking))
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
func runInProcess(t *testing.T, s *scenario.Scenario, b backend, inputs, outputs map[string]*jsonschema.Schema) {
	c := clock.NewManual(time.Date(2042, 1, 1, 0, 0, 0, 0, time.UTC))
	at := b.open(t, c, slices.Contains(s.Requires, "fault") && usesSyncError(s))
	grants, open := grantsOf(&s.Setup), s.Setup.Mode == "open"
	build := func(at *site) *inproc.Server {
		return inproc.New(t, inproc.Config{
			Store: at.store, Blobs: at.blobs, Clock: c, Limits: limitsOf(t, s.Setup.Limits), Keep: keepOf(&s.Setup),
			Uploads: 20, Grants: grants, Open: open,
		})
	}
	target := &swappable{Server: build(at), inputs: inputs}
	runner := scenario.Runner{Target: target, Outputs: outputs, Hooks: scenario.Hooks{
		Advance: func(seconds float64) { c.Advance(inproc.Seconds(seconds)) },
		Restart: func(kill bool) error {
			next, err := at.reopen(kill)
			if err == nil {
				at, target.Server = next, build(next)
			}
			return err
		},
		SetGrants: func(g []scenario.Grant) error {
			grants = g
			return target.SetGrants(g, open)
		},
		Fault: func(name string) error {
			target.GuardDown(name == "guard-down")
			if name == "guard-down" || at.fault == nil {
				return nil
			}
			return at.fault(name)
		},
		CorruptBlob: func(namespace, id string) error { return corruptArtifact(at, namespace, id) },
	}}
	if err := runner.Run(t.Context(), s); err != nil {
		t.Errorf("%s [%s, rules %v]: %v", s.Title, s.Basis, s.Rules, err)
	}
}

// corruptArtifact damages the bytes of an artifact, or of an upload that leads to it.
func corruptArtifact(at *site, namespace, id string) error {
	return at.store.View(context.Background(), func(r persistence.Reader) error {
		a, ok, err := r.Artifact(namespace, id)
		if err != nil || !ok {
			return fmt.Errorf("artifact %s: %v %w", id, ok, err)
		}
		return at.corrupt(a.Hash)
	})
}

// keepOf is the retention a scenario asks for; nil is forever.
func keepOf(s *scenario.Setup) *time.Duration {
	if s.RetentionSeconds == nil {
		return nil
	}
	d := time.Duration(*s.RetentionSeconds) * time.Second
	return &d
}

// usesSyncError tells whether a scenario needs a file system that fails.
func usesSyncError(s *scenario.Scenario) bool {
	return slices.ContainsFunc(s.Steps, func(st scenario.Step) bool { return st.Fault == "sync-error" })
}

// swappable is a target whose server is replaced at a restart. It holds the arguments of calls that succeed against the
// input schemas of the contract.
type swappable struct {
	*inproc.Server
	inputs map[string]*jsonschema.Schema
}

// Call implements scenario.Target.
func (s *swappable) Call(ctx context.Context, as, tool string, args []byte) (scenario.Answer, error) {
	a, err := s.Server.Call(ctx, as, tool, args)
	if err != nil || a.IsError || a.RPC != nil {
		return a, err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err == nil {
		err = s.inputs[tool].Validate(v)
	}
	if err != nil {
		return a, fmt.Errorf("arguments that were accepted do not fit the contract: %w", err)
	}
	return a, nil
}
