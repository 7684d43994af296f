package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// The protocol eras, by the names of --era.
const (
	eraStateless = "stateless"
	eraLegacy    = "legacy"
)

// scenarioTimeout bounds one scenario, the making of its server included. It is a guard against hanging.
const scenarioTimeout = 5 * time.Minute

// runPatience is how long a run waits for a server that takes no more calls for now: each request is repeated up to 100
// times within a minute. A run is a faster caller than most limits are made for.
func runPatience() scenario.Patience {
	return scenario.Patience{Repeats: 100, Longest: time.Minute}
}

// cleanupTimeout bounds the aborts after a scenario, also when the run is interrupted.
const cleanupTimeout = 30 * time.Second

// venue is where scenarios run.
type venue interface {
	// begin prepares for the scenarios of an era.
	begin(ctx context.Context, era string) error
	// open makes ready for one scenario. A skip says why it cannot run here. An error ends the run, unless it is a
	// refusal, which fails the scenario.
	open(ctx context.Context, s *scenario.Scenario) (b *booth, skip string, err error)
	// end leaves no session and no connection open.
	end()
}

// booth is a server that is ready for one scenario.
type booth struct {
	scenario *scenario.Scenario // as it is to be run here
	runner   scenario.Runner
	shared   bool // the server stays: uploads that the scenario leaves open are aborted
	close    func() error
}

// run runs the scenario, and leaves no upload open on a server that stays, whatever came of it.
func (b *booth) run(ctx context.Context) error {
	failure := b.runner.Run(ctx, b.scenario)
	if !b.shared {
		return failure
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return errors.Join(failure, b.runner.AbortUploads(ctx))
}

// newTarget makes a target that is as patient as the run.
func newTarget(url, transfer string, tokens map[string]string, era string) (*rawmcp.Target, error) {
	t, err := rawmcp.NewTarget(url, transfer, tokens, era == eraLegacy)
	if err == nil {
		t.Patience = runPatience()
	}
	return t, err
}

// refusal is the word of a control command that it cannot make the server that a scenario needs.
type refusal struct{ text string }

// Error says so.
func (r *refusal) Error() string { return "the control command says: " + r.text }

// runEra runs every scenario in one era.
func runEra(ctx context.Context, v venue, era string, list []scenario.Named, out *runReport) error {
	if err := v.begin(ctx, era); err != nil {
		return err
	}
	out.begin(era)
	for _, n := range list {
		result, err := runOne(ctx, v, n)
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted within %s", n.Name)
		}
		out.add(result, len(list))
	}
	out.end()
	return nil
}

// runOne runs one scenario.
func runOne(ctx context.Context, v venue, n scenario.Named) (result scenarioResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, scenarioTimeout)
	defer cancel()
	result = scenarioResult{ID: n.Name, Title: n.Scenario.Title}
	result.Outcome, result.Reason, err = attempt(ctx, v, n.Scenario)
	return result, err
}

// attempt opens a booth for a scenario and runs it there.
func attempt(ctx context.Context, v venue, s *scenario.Scenario) (how outcome, reason string, err error) {
	if hooks := s.NeededHooks(); len(hooks) > 0 {
		return skipped, "needs a hook into the server: " + strings.Join(hooks, ", "), nil
	}
	b, skip, err := v.open(ctx, s)
	switch refused, ok := err.(*refusal); {
	case ok:
		return broke, refused.Error(), nil
	case err != nil:
		return "", "", err
	case skip != "":
		return skipped, skip, nil
	}
	failure := b.run(ctx)
	if err := b.close(); err != nil {
		return "", "", errors.Join(err, failure)
	}
	if failure != nil {
		return broke, failure.Error(), nil
	}
	return passed, "", nil
}

// schemasOf reads the output schemas that a server lists, as alice when she is one of the callers. A server without
// any cannot be checked against them, which is an error.
func schemasOf(ctx context.Context, t *rawmcp.Target, callers []string) (scenario.Outputs, error) {
	as := ""
	if slices.Contains(callers, "alice") {
		as = "alice"
	} else if len(callers) > 0 {
		as = callers[0]
	}
	out, err := t.Outputs(ctx, as)
	if err != nil {
		return nil, fmt.Errorf("ask for the tools as %q: %w", as, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("tools/list as %q names no outputSchema, which results are checked against", as)
	}
	return out, nil
}

// givenServer is a server that is tested as it is, on namespaces of the run's own.
type givenServer struct {
	url, transfer string
	tokens        map[string]string
	ending        string // of every namespace of this run; a number follows
	count         int    // scenarios opened

	target  *rawmcp.Target // of the era
	given   scenario.Given
	outputs scenario.Outputs
}

// newGivenServer checks the URLs.
func newGivenServer(url, transfer string, tokens map[string]string) (*givenServer, error) {
	if _, err := rawmcp.NewTarget(url, transfer, tokens, false); err != nil {
		return nil, failed("%w", err)
	}
	return &givenServer{url: url, transfer: transfer, tokens: tokens, ending: "-conformance-" + strings.ToLower(rand.Text()[:12])}, nil
}

// begin reads what the server says of itself.
func (g *givenServer) begin(ctx context.Context, era string) error {
	g.end()
	var err error
	if g.target, err = newTarget(g.url, g.transfer, g.tokens, era); err != nil {
		return err
	}
	g.given.Callers = slices.Sorted(maps.Keys(g.tokens))
	if g.outputs, err = schemasOf(ctx, g.target, g.given.Callers); err != nil {
		return err
	}
	a, err := g.target.Call(ctx, g.given.Callers[0], "persistence.capabilities", []byte("{}"))
	if err != nil {
		return err
	}
	var c struct {
		Limits map[string]int64 `json:"limits"`
	}
	if err := json.Unmarshal([]byte(a.Text), &c); err != nil || a.IsError || a.RPC != nil || len(c.Limits) == 0 {
		return fmt.Errorf("persistence.capabilities gives no limits: %s", a)
	}
	g.given.Limits = c.Limits
	return nil
}

// end closes the target of the last era.
func (g *givenServer) end() {
	if g.target != nil {
		g.target.Close()
	}
}

// open renames the scenario's namespaces.
func (g *givenServer) open(_ context.Context, s *scenario.Scenario) (*booth, string, error) {
	if unmet := s.Unmet(g.given); len(unmet) > 0 {
		return nil, strings.Join(unmet, "; "), nil
	}
	g.count++
	renamed, err := s.Rename(fmt.Sprintf("%s-%d", g.ending, g.count))
	if err != nil {
		return nil, "its namespaces cannot be renamed: " + err.Error(), nil
	}
	runner := scenario.Runner{Target: g.target, Outputs: g.outputs, Patience: runPatience()}
	return &booth{scenario: renamed, runner: runner, shared: true, close: func() error { return nil }}, "", nil
}

// controlledServers are servers that a command starts, one a scenario.
type controlledServers struct {
	env     *Env
	command string
	era     string
}

// begin notes the era.
func (c *controlledServers) begin(_ context.Context, era string) error {
	c.era = era
	return nil
}

// end has nothing to do: each booth closed its own.
func (*controlledServers) end() {}

// open starts the command for a scenario.
func (c *controlledServers) open(ctx context.Context, s *scenario.Scenario) (*booth, string, error) {
	p, err := startControl(c.env, c.command)
	if err != nil {
		return nil, "", err
	}
	callers := s.Callers()
	at, err := p.ask(ctx, map[string]any{"setup": s.Setup.Resolved(), "callers": callers, "era": c.era})
	if err == nil {
		var b *booth
		if b, err = c.booth(ctx, p, s, at, callers); err == nil {
			return b, "", nil
		}
	}
	p.end()
	return nil, "", err
}

// booth makes a booth of a server that the command started.
func (c *controlledServers) booth(ctx context.Context, p *controlProcess, s *scenario.Scenario, at controlAnswer, callers []string) (*booth, error) {
	first, err := newTarget(at.URL, at.Transfer, at.Tokens, c.era)
	if err != nil {
		return nil, fmt.Errorf("the control command's answer: %w", err)
	}
	outputs, err := schemasOf(ctx, first, callers)
	if err != nil {
		return nil, p.withStderr(err)
	}
	m := &movable{Target: first}
	hooks := scenario.Hooks{SetGrants: func(grants []scenario.Grant) error {
		at, err := p.ask(ctx, map[string]any{"setGrants": grants})
		if err != nil {
			return err
		}
		next, err := newTarget(at.URL, at.Transfer, at.Tokens, c.era)
		if err != nil {
			return err
		}
		m.Close()
		m.Target = next
		return nil
	}}
	stop := func() error {
		m.Close()
		return p.end()
	}
	return &booth{scenario: s, runner: scenario.Runner{Target: m, Hooks: hooks, Outputs: outputs, Patience: runPatience()}, close: stop}, nil
}

// movable is a target that is replaced when its server moves. Steps run one after the other, so no call is under way
// then.
type movable struct{ *rawmcp.Target }
