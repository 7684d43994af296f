package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/testkit/process"
)

// contractScenarios are the scenarios that came with the contract.
var contractScenarios = filepath.Join("..", "..", "persistence", "testdata", "scenarios")

// allScenarios are the folders to run: the contract's, and the one that TABELLION_EXTRA_FIXTURES names, when it does.
func allScenarios() []string {
	if root := os.Getenv("TABELLION_EXTRA_FIXTURES"); root != "" {
		return []string{contractScenarios, filepath.Join(root, "persistence")}
	}
	return []string{contractScenarios}
}

// command runs a command line in this process.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, words bytes.Buffer
	env := &Env{
		Program: "tabellion", Ctx: t.Context(), Signal: func() os.Signal { return nil },
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &words, Environ: os.Environ(),
	}
	code = run(env, args)
	return code, out.String(), words.String()
}

// results runs conformance persistence with --json.
func results(t *testing.T, args ...string) (code int, eras []eraResult, stderr string) {
	t.Helper()
	code, out, stderr := command(t, append([]string{"conformance", "persistence", "--json"}, args...)...)
	var report struct{ Eras []eraResult }
	if out != "" {
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return code, report.Eras, stderr
}

// failures shows what failed.
func failures(eras []eraResult) string {
	var b strings.Builder
	for _, e := range eras {
		for _, s := range e.Scenarios {
			if s.Outcome == broke {
				b.WriteString(e.Era + " " + s.ID + ": " + s.Reason + "\n")
			}
		}
	}
	return b.String()
}

// compile builds a program of this module.
func compile(t *testing.T, path string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), filepath.Base(path))
	build := exec.Command("go", "build", "-o", bin, "github.com/tabellion-mcp/tabellion/"+path)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// TestConformanceControl: with servers of its own the real program passes every scenario that needs no hook, in both
// eras, and exactly the others are skipped.
func TestConformanceControl(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server for each scenario: run by make test")
	}
	bin, control := process.Binary(t), compile(t, "examples/conformance-control")
	all, err := scenario.Collect(allScenarios())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, n := range all {
		if len(n.Scenario.Requires) > 0 {
			want[n.Name] = true
		}
	}
	for _, era := range []string{eraStateless, eraLegacy} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			code, eras, stderr := results(t, append([]string{"--era", era, "--control", control + " " + bin}, allScenarios()...)...)
			if code != exitFine || len(eras) != 1 || eras[0].Failed > 0 || eras[0].Passed != len(all)-len(want) {
				t.Fatalf("exit code %d\n%s%s", code, failures(eras), stderr)
			}
			got := map[string]bool{}
			for _, s := range eras[0].Scenarios {
				if s.Outcome == skipped {
					got[s.ID] = true
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("skipped %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		})
	}
}

// TestConformanceNotices: a server that breaks a rule fails the run, and the same proxy without a fault does not.
func TestConformanceNotices(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: run by make test")
	}
	bin, control, twist := process.Binary(t), compile(t, "examples/conformance-control"), compile(t, "internal/testkit/twist")
	for fault, want := range map[string]struct{ failed, reason string }{
		"none":              {},
		"absent-for-denied": {"http/http-denied", "status is 404, want 403"},
		"short-file":        {"artifacts/artifact-flow", "content-length is 2, want 3"},
		"broken-file":       {"artifacts/artifact-flow", "a broken connection"},
		"odd-result":        {"documents/put-create", "outputSchema"},
	} {
		t.Run(fault, func(t *testing.T) {
			code, eras, stderr := results(t, "--era", "stateless", "--run", "/(http-denied|artifact-flow|put-create)$",
				"--control", strings.Join([]string{twist, fault, control, bin}, " "), contractScenarios)
			got, wantCode := failures(eras), exitFine
			if want.failed != "" {
				wantCode = exitFindings
			}
			if code != wantCode || len(eras) != 1 || len(eras[0].Scenarios) != 3 || !strings.Contains(got, want.failed) || !strings.Contains(got, want.reason) {
				t.Errorf("exit code %d, want %d with %q %q\n%s%s", code, wantCode, want.failed, want.reason, got, stderr)
			}
		})
	}
}

// TestConformanceGivenServer: runs against one server that is in use leave each other alone. The control: without the
// renaming of namespaces the second one fails.
func TestConformanceGivenServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: run by make test")
	}
	at := staying(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(at.Tokens["alice"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(to(at), "--as", "alice=@"+file, contractScenarios)
	for run := range 2 {
		code, eras, stderr := results(t, args...)
		if code != exitFine || len(eras) != 2 || eras[0].Passed < 80 || eras[0].Passed != eras[1].Passed {
			t.Fatalf("run %d: exit code %d\n%s%s", run+1, code, failures(eras), stderr)
		}
		for _, s := range eras[0].Scenarios {
			if s.Outcome == skipped && s.Reason == "" {
				t.Errorf("%s is skipped without a reason", s.ID)
			}
		}
	}
	if code, eras, _ := results(t, append(args, "--run", "put-create$", "--as", "nobody=wrong")...); code != exitFine {
		t.Errorf("a token that nobody used changed the outcome:\n%s", failures(eras))
	}
	if code, eras, _ := results(t, append(args, "--run", "put-create$", "--as", "alice=wrong")...); code != exitFailed {
		t.Errorf("exit code %d with a wrong token\n%s", code, failures(eras))
	}
	unchanged(t, at)
}

// staying starts a server that stays for the test, with the callers alice and nobody. Variables change its configuration.
func staying(t *testing.T, variables ...string) controlAnswer {
	t.Helper()
	env := &Env{Environ: append(os.Environ(), variables...)}
	p, err := startControl(env, compile(t, "examples/conformance-control")+" "+process.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end() })
	at, err := p.ask(t.Context(), map[string]any{"setup": scenario.Setup{}.Resolved(), "callers": []string{"alice", "nobody"}, "era": "stateless"})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// to are the arguments for a server that stays.
func to(at controlAnswer) []string {
	return []string{"--url", at.URL, "--transfer", at.Transfer, "--as", "alice=" + at.Tokens["alice"], "--as", "nobody=" + at.Tokens["nobody"]}
}

// named finds a scenario of the contract.
func named(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	all, err := scenario.Collect([]string{contractScenarios})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(n scenario.Named) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("there is no scenario %s", name)
	}
	return all[i].Scenario
}

// TestConformanceRate: a limit on the rate of calls and transfers makes a run longer and nothing else, in both eras. The
// control: the same server refuses a caller without patience.
func TestConformanceRate(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: run by make test")
	}
	at := staying(t, "TABELLION_LIMITS_RATE=5", "TABELLION_LIMITS_BURST=5")
	code, eras, stderr := results(t, append(to(at), "--run", "/(put-create|artifact-flow|http-no-bearer|idem-parallel)$", contractScenarios)...)
	if code != exitFine || len(eras) != 2 || eras[0].Passed != 4 || eras[1].Passed != 4 {
		t.Errorf("exit code %d\n%s%s\n%+v", code, failures(eras), stderr, eras)
	}
	if err := untilRefused(t, at, "artifacts/artifact-flow"); err == nil || !strings.Contains(err.Error(), "-32010") && !strings.Contains(err.Error(), "too many calls") {
		t.Errorf("without patience: got %v, so the limit shows nothing", err)
	}
}

// untilRefused runs a scenario again and again, at most 30 times, without patience and without aborts, and gives what
// it fails with.
func untilRefused(t *testing.T, at controlAnswer, name string) error {
	t.Helper()
	target, err := rawmcp.NewTarget(at.URL, at.Transfer, at.Tokens, false)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	r := scenario.Runner{Target: target}
	for i := range 30 {
		s, err := named(t, name).Rename(fmt.Sprintf("-again-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context(), s); err != nil {
			return err
		}
	}
	return nil
}

// TestConformanceUploads: a run leaves no upload open, so that one key can make any number of runs. The control: the
// scenarios themselves leave uploads open, until the server takes no more.
func TestConformanceUploads(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: run by make test")
	}
	at := staying(t, "TABELLION_PERSISTENCE_LIMITS_OPEN_UPLOADS=20")
	for run := range 6 {
		code, eras, stderr := results(t, append(to(at), "--era", "stateless", "--run", "^(artifacts|http)/", contractScenarios)...)
		if code != exitFine || len(eras) != 1 || eras[0].Passed < 20 {
			t.Fatalf("run %d: exit code %d\n%s%s", run+1, code, failures(eras), stderr)
		}
	}
	if err := untilRefused(t, at, "artifacts/artifact-begin-distinct"); err == nil || !strings.Contains(err.Error(), "quota_exceeded") {
		t.Errorf("without aborts: got %v, so the limit shows nothing", err)
	}
}

// unchanged runs a scenario twice as it is written: the second time it finds what the first time left.
func unchanged(t *testing.T, at controlAnswer) {
	t.Helper()
	s := named(t, "lists/list-insert-during")
	target, err := rawmcp.NewTarget(at.URL, at.Transfer, at.Tokens, false)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	r := scenario.Runner{Target: target}
	if err := r.Run(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context(), s); err == nil {
		t.Error("the scenario passes twice on one store: the test of renaming shows nothing")
	}
}

// TestControlProcess: what a control command may do wrong is told, and none outlives the run.
func TestControlProcess(t *testing.T) {
	for name, tt := range map[string]struct{ command, bad string }{
		"ends at once":    {"echo no disk >&2; exit 3", "ended before it answered: exit status 3\nits standard error ends with:\nno disk"},
		"ends in silence": {"read line", "ended before it answered: exit status 0"},
		"no JSON":         {"read line; echo hello; cat >/dev/null", "not the JSON object that --help describes"},
		"other members":   {`read line; echo '{"url":"http://h","port":1}'; cat >/dev/null`, `unknown field "port"`},
		"no url":          {`read line; echo '{"tokens":{}}'; cat >/dev/null`, "has no url"},
		"refuses":         {`read line; echo '{"error":"no such mode"}'; cat >/dev/null`, "the control command says: no such mode"},
		"not there":       {"/nonexistent/control", "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := startControl(&Env{Environ: os.Environ()}, tt.command)
			if err != nil {
				t.Fatal(err)
			}
			defer p.end()
			if _, err = p.ask(t.Context(), map[string]any{}); err == nil || !strings.Contains(err.Error(), tt.bad) {
				t.Errorf("got %v, want %q", err, tt.bad)
			}
		})
	}
}

// TestControlProcessEnds: a command that stays is killed with what it started; one that answers and ends is not.
func TestControlProcessEnds(t *testing.T) {
	alive := filepath.Join(t.TempDir(), "alive")
	p, err := startControl(&Env{Environ: os.Environ()}, `read line; (trap "" TERM; while :; do echo x >>`+alive+`; sleep 0.05; done) & echo '{"url":"http://h"}'; wait`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ask(t.Context(), map[string]any{}); err != nil {
		t.Fatal(err)
	}
	p.grace = 100 * time.Millisecond
	if err := p.end(); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("got %v", err)
	}
	for end := time.Now().Add(patience); syscall.Kill(-p.cmd.Process.Pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what the command started is still there")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if p, err = startControl(&Env{Environ: os.Environ()}, "cat >/dev/null"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := p.ask(ctx, map[string]any{}); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("got %v", err)
	}
	if err := p.end(); err != nil {
		t.Errorf("a command that ends with its input: %v", err)
	}
}
