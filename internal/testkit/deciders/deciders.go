// Package deciders holds policies with planted faults, for tests that must notice each of them.
package deciders

import (
	"context"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Sound is the policy that grants mean.
func Sound(grants []scenario.Grant) (policy.Decider, error) {
	return policy.New(scenario.Policy(grants))
}

// Narrow gives p only what scope covers, as a key with a scope does.
func Narrow(p *identity.Principal, scope string) (*identity.Principal, error) {
	s, err := policy.ParseScope(scope)
	if err != nil {
		return nil, err
	}
	q := *p
	q.Only = []policy.Scope{s}
	return &q, nil
}

// changed asks the sound policy about other checks, or changes its answers.
type changed struct {
	inner  policy.Decider
	check  func(policy.Check) policy.Check
	answer func(i int, subjects []string, c policy.Check, d policy.Decision) policy.Decision
}

// Decide applies the changes.
func (c changed) Decide(ctx context.Context, subjects []string, checks []policy.Check) ([]policy.Decision, error) {
	asked := checks
	if c.check != nil {
		asked = make([]policy.Check, len(checks))
		for i, k := range checks {
			asked[i] = c.check(k)
		}
	}
	out, err := c.inner.Decide(ctx, subjects, asked)
	if err != nil || c.answer == nil {
		return out, err
	}
	for i := range out {
		out[i] = c.answer(i, subjects, checks[i], out[i])
	}
	return out, nil
}

// either allows what the sound policy allows for c or for the changed check.
type either struct {
	inner policy.Decider
	also  func(policy.Check) policy.Check
}

// Decide asks twice.
func (e either) Decide(ctx context.Context, subjects []string, checks []policy.Check) ([]policy.Decision, error) {
	first, err := e.inner.Decide(ctx, subjects, checks)
	if err != nil {
		return nil, err
	}
	second, err := changed{inner: e.inner, check: e.also}.Decide(ctx, subjects, checks)
	if err != nil {
		return nil, err
	}
	for i := range first {
		first[i].Allow = first[i].Allow || second[i].Allow
	}
	return first, nil
}

// capability turns checks of one capability into checks of another.
func capability(from, to policy.Capability) func(policy.Check) policy.Check {
	return func(c policy.Check) policy.Check {
		if c.Capability == from {
			c.Capability = to
		}
		return c
	}
}

// Faulty lists policies with one planted fault each, by what is wrong with them.
func Faulty(grants []scenario.Grant) (map[string]policy.Decider, error) {
	sound, err := Sound(grants)
	if err != nil {
		return nil, err
	}
	config := scenario.Policy(grants)
	config.Denies = nil
	denyless, err := policy.New(config)
	if err != nil {
		return nil, err
	}
	always := func(allow bool) func(int, []string, policy.Check, policy.Decision) policy.Decision {
		return func(_ int, _ []string, _ policy.Check, d policy.Decision) policy.Decision { d.Allow = allow; return d }
	}
	return map[string]policy.Decider{
		"everything is allowed":    changed{inner: sound, answer: always(true)},
		"nothing is allowed":       changed{inner: sound, answer: always(false)},
		"denies are not looked at": denyless,
		"write implies read":       either{sound, capability(policy.PersistenceRead, policy.PersistenceWrite)},
		"read implies write":       either{sound, capability(policy.PersistenceWrite, policy.PersistenceRead)},
		"write implies delete":     either{sound, capability(policy.PersistenceDelete, policy.PersistenceWrite)},
		"admin implies read":       either{sound, capability(policy.PersistenceRead, policy.PersistenceAdmin)},
		"a path covers longer names": either{sound, func(c policy.Check) policy.Check {
			c.Path = policy.Path(strings.TrimSuffix(string(c.Path), "-2"))
			return c
		}},
		"ids are compared without case": either{sound, func(c policy.Check) policy.Check { c.Path = policy.Path(strings.ToLower(string(c.Path))); return c }},
		"the namespace is not looked at": either{sound, func(c policy.Check) policy.Check {
			c.Path = policy.Path(strings.Replace(string(c.Path), "/namespaces/own/", "/namespaces/other/", 1))
			return c
		}},
		"only the first check is decided": changed{inner: sound, answer: func(i int, _ []string, _ policy.Check, d policy.Decision) policy.Decision {
			d.Allow = d.Allow || i > 0
			return d
		}},
		"a caller without any right may read": changed{inner: sound, answer: func(_ int, subjects []string, c policy.Check, d policy.Decision) policy.Decision {
			d.Allow = d.Allow || (c.Capability == policy.PersistenceRead && len(subjects) > 0 && subjects[0] == "user:nothing")
			return d
		}},
	}, nil
}

// kept is a decider that lets one user do everything.
type kept struct {
	policy.Decider
	user string
}

// Keep lets user do everything and asks d for the others: a test needs somebody who prepares its documents.
func Keep(d policy.Decider, user string) policy.Decider { return kept{d, "user:" + user} }

// Decide allows everything to the one user.
func (k kept) Decide(ctx context.Context, subjects []string, checks []policy.Check) ([]policy.Decision, error) {
	if len(subjects) > 0 && subjects[0] == k.user {
		return policy.Open{}.Decide(ctx, subjects, checks)
	}
	return k.Decider.Decide(ctx, subjects, checks)
}
