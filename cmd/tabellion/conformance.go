package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// conformanceCommand holds the conformance runs, one a contract.
type conformanceCommand struct {
	Persistence persistenceRun `cmd:"" help:"Run scenarios of persistence.v1 against a server."`
}

// Help is the end of the help text.
func (*conformanceCommand) Help() string { return exitHelp }

// persistenceRun runs scenario files against a server.
type persistenceRun struct {
	URL      string   `name:"url" placeholder:"URL" help:"MCP endpoint of the server, such as http://127.0.0.1:8635/mcp."`
	Transfer string   `placeholder:"URL" help:"Origin of PUT /uploads and GET /artifacts; that of --url by default."`
	As       []string `sep:"none" placeholder:"NAME=TOKEN" help:"Bearer token of a caller of the scenarios; @FILE in place of TOKEN reads it from a file. May be repeated."`
	Control  string   `placeholder:"COMMAND" help:"Start a server for each scenario with this command (sh -c), in place of --url."`
	Era      string   `enum:"stateless,legacy,both" default:"both" help:"Protocol era: stateless (2026-07-28), legacy (2025-11-25) or both."`
	Only     string   `name:"run" placeholder:"REGEXP" help:"Run only scenarios whose name, file/id, matches."`
	Verbose  bool     `short:"v" help:"Name each scenario that passed, and each that was skipped."`
	JSON     bool     `name:"json" help:"Print one JSON object."`
	Files    []string `arg:"" name:"files" help:"Scenario files, or folders of them."`
}

// Help is the end of the help text.
func (*persistenceRun) Help() string {
	return `Each scenario expects an empty store and a policy of its own. There are two ways to give it that.

With --url the server is taken as it is. It must give alice all four capabilities on /persistence/**, everybody else named by --as nothing, and keep everything forever. Every namespace of a scenario gets a random ending, so runs do not meet each other or other users of the server; what a run wrote stays there, in namespaces that end in -conformance-..., and uploads that a scenario leaves open are aborted at its end. Skipped, each with its reason: scenarios that need another limit, retention, policy or mode, or a caller without a token, and those whose namespaces cannot be renamed without changing what they test.

With --control a fresh server is made for each scenario. COMMAND gets a line of JSON on standard input:

  {"setup":{"limits":{},"retentionSeconds":null,"mode":"policy","grants":[...]},"callers":["alice"],"era":"stateless"}

and answers with one on standard output:

  {"url":"http://127.0.0.1:8635/mcp","transfer":"http://127.0.0.1:8635","tokens":{"alice":"..."}}

or {"error":"..."}, which fails the scenario. limits holds what differs from the contract's defaults; retentionSeconds null is forever; mode open means that no token is asked for. Later lines {"setGrants":[...]} replace the grants and are answered in the same way. The end of standard input means: stop the server and exit. An answer may take a minute, the end 15 seconds. examples/conformance-control is such a command.

A request that the server refuses for now is repeated after the time that it names, up to 100 times within a minute: JSON-RPC errors -32010 and -32014, HTTP 429, HTTP 503 with Retry-After, and on the transfer routes 500 busy with Retry-After where the scenario expects something else. A limit of 50 calls a second makes a run longer, not red.

Scenarios that move the clock, restart the server or damage its store are skipped either way.

Exit codes: 0 no scenario failed; 1 at least one failed; 2 the run could not be made, wrong usage included; 130 interrupted.`
}

// Run runs the scenarios in each era and prints what came of them.
func (c *persistenceRun) Run(env *Env) error {
	list, err := c.scenarios()
	if err != nil {
		return err
	}
	place, err := c.venue(env)
	if err != nil {
		return err
	}
	defer place.end()
	out := &runReport{env: env, verbose: c.Verbose, json: c.JSON, terminal: !c.JSON && isTerminal(env.Stderr)}
	for _, era := range c.eras() {
		if err := runEra(env.Ctx, place, era, list, out); err != nil {
			return failed("%w", err)
		}
	}
	return out.close()
}

// eras lists the eras to run.
func (c *persistenceRun) eras() []string {
	if c.Era == "both" {
		return []string{eraStateless, eraLegacy}
	}
	return []string{c.Era}
}

// scenarios reads the files and keeps what --run names.
func (c *persistenceRun) scenarios() ([]scenario.Named, error) {
	only, err := regexp.Compile(c.Only)
	if err != nil {
		return nil, failed("--run: %w", err)
	}
	all, err := scenario.Collect(c.Files)
	if err != nil {
		return nil, failed("%w; give files of format %s, or folders that hold them", err, scenario.Format)
	}
	var out []scenario.Named
	for _, n := range all {
		if only.MatchString(n.Name) {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return nil, failed("none of %d scenarios matches --run %s", len(all), c.Only)
	}
	return out, nil
}

// venue is where the scenarios run: the server of --url or those of --control.
func (c *persistenceRun) venue(env *Env) (venue, error) {
	switch {
	case (c.URL == "") == (c.Control == ""):
		return nil, failed("give either --url, the server to test, or --control, a command that starts one for each scenario")
	case c.Control != "" && (c.Transfer != "" || len(c.As) > 0):
		return nil, failed("--transfer and --as go with --url: with --control, the command answers with URLs and tokens")
	case c.Control != "":
		return &controlledServers{env: env, command: c.Control}, nil
	}
	tokens := map[string]string{}
	for _, as := range c.As {
		name, token, err := parseToken(as)
		if err != nil {
			return nil, err
		}
		tokens[name] = token
	}
	if len(tokens) == 0 {
		return nil, failed("--url needs --as NAME=TOKEN for the callers of the scenarios; most need alice and nobody")
	}
	return newGivenServer(c.URL, c.Transfer, tokens)
}

// parseToken reads NAME=TOKEN or NAME=@FILE.
func parseToken(text string) (name, token string, err error) {
	name, token, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return "", "", failed("--as: expected NAME=TOKEN or NAME=@FILE")
	}
	if file, ok := strings.CutPrefix(token, "@"); ok {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", "", failed("--as %s: %w", name, err)
		}
		token = strings.TrimSpace(string(content))
	}
	if token == "" {
		return "", "", failed("--as %s: the token is empty", name)
	}
	return name, token, nil
}

// isTerminal tells whether words for people go to a terminal, where a line may be overwritten.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// outcome is what came of a scenario.
type outcome string

// The outcomes.
const (
	passed  outcome = "pass"
	broke   outcome = "fail"
	skipped outcome = "skip"
)

// scenarioResult is what came of one scenario in one era.
type scenarioResult struct {
	ID      string  `json:"id"`
	Title   string  `json:"title"`
	Outcome outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`
}

// eraResult is what came of an era.
type eraResult struct {
	Era       string           `json:"era"`
	Passed    int              `json:"passed"`
	Failed    int              `json:"failed"`
	Skipped   int              `json:"skipped"`
	Scenarios []scenarioResult `json:"scenarios"`
}

// runReport gathers results and prints them.
type runReport struct {
	env                     *Env
	verbose, json, terminal bool
	eras                    []eraResult
}

// begin opens an era.
func (r *runReport) begin(era string) { r.eras = append(r.eras, eraResult{Era: era}) }

// add notes a result of the era that is open; total is for the progress.
func (r *runReport) add(s scenarioResult, total int) {
	e := &r.eras[len(r.eras)-1]
	e.Scenarios = append(e.Scenarios, s)
	line := ""
	switch s.Outcome {
	case passed:
		e.Passed++
		if r.verbose {
			line = fmt.Sprintf("PASS %s: %s", s.ID, s.Title)
		}
	case broke:
		e.Failed++
		line = fmt.Sprintf("FAIL %s: %s\n     %s", s.ID, s.Title, strings.ReplaceAll(s.Reason, "\n", "\n     "))
	case skipped:
		e.Skipped++
	}
	if r.terminal {
		fmt.Fprint(r.env.Stderr, "\r\x1b[K")
	}
	if line != "" && !r.json {
		fmt.Fprintln(r.env.Stdout, line)
	}
	if r.terminal {
		fmt.Fprintf(r.env.Stderr, "%s %d/%d", e.Era, len(e.Scenarios), total)
	}
}

// end closes an era: the skipped ones by reason, and the counts.
func (r *runReport) end() {
	if r.terminal {
		fmt.Fprint(r.env.Stderr, "\r\x1b[K")
	}
	if r.json {
		return
	}
	e := &r.eras[len(r.eras)-1]
	var reasons []string
	by := map[string][]string{}
	for _, s := range e.Scenarios {
		if s.Outcome != skipped {
			continue
		}
		if by[s.Reason] == nil {
			reasons = append(reasons, s.Reason)
		}
		by[s.Reason] = append(by[s.Reason], s.ID)
	}
	for _, reason := range reasons {
		fmt.Fprintf(r.env.Stdout, "SKIP %d: %s\n", len(by[reason]), reason)
		if r.verbose {
			fmt.Fprintf(r.env.Stdout, "     %s\n", strings.Join(by[reason], "\n     "))
		}
	}
	fmt.Fprintf(r.env.Stdout, "%s: %d passed, %d failed, %d skipped\n", e.Era, e.Passed, e.Failed, e.Skipped)
}

// close prints the object of --json and tells how the run ended. A run in which every scenario was skipped has shown
// nothing and is none.
func (r *runReport) close() error {
	if r.json {
		if err := printJSON(r.env, map[string]any{"eras": r.eras}); err != nil {
			return err
		}
	}
	for _, e := range r.eras {
		if e.Failed > 0 {
			return &exitError{exitFindings, nil}
		}
	}
	for _, e := range r.eras {
		if e.Passed == 0 {
			return failed("no scenario could run in the %s era: each was skipped, for the reasons above", e.Era)
		}
	}
	return nil
}
