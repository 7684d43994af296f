package access_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/testkit/deciders"
	"github.com/tabellion-mcp/tabellion/policy"
)

// also is a policy with a planted fault: a check is allowed too when another one is.
type also struct {
	policy.Decider
	other func(policy.Check) policy.Check
}

// Decide asks both.
func (a also) Decide(ctx context.Context, subjects []string, checks []policy.Check) ([]policy.Decision, error) {
	out, err := a.Decider.Decide(ctx, subjects, checks)
	if err != nil {
		return nil, err
	}
	others := make([]policy.Check, len(checks))
	for i, c := range checks {
		others[i] = a.other(c)
	}
	second, err := a.Decider.Decide(ctx, subjects, others)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Allow = out[i].Allow || second[i].Allow
	}
	return out, nil
}

// artifactFaults are policies with one planted fault each about artifacts and purges.
func artifactFaults(t *testing.T, m *matrix) map[string]policy.Decider {
	t.Helper()
	sound, err := deciders.Sound(m.grants())
	if err != nil {
		t.Fatal(err)
	}
	implied := func(to, from policy.Capability) policy.Decider {
		return also{sound, func(c policy.Check) policy.Check {
			if c.Capability == to {
				c.Capability = from
			}
			return c
		}}
	}
	moved := func(move func(head, id string) string) policy.Decider {
		return also{sound, func(c policy.Check) policy.Check {
			if head, id, ok := strings.Cut(string(c.Path), "/artifacts/"); ok {
				c.Path = policy.Path(move(head, id))
			}
			return c
		}}
	}
	return map[string]policy.Decider{
		"write on creation is write on every artifact":   moved(func(head, _ string) string { return head + "/artifacts/_new" }),
		"a right on documents is one on artifacts":       moved(func(head, id string) string { return head + "/documents/" + id }),
		"a deny of creation is not looked at":            moved(func(head, id string) string { return head + "/artifacts/" + strings.TrimPrefix(id, "_") }),
		"an artifact of every namespace is one's own":    moved(func(_, id string) string { return "/persistence/namespaces/other/artifacts/" + id }),
		"admin implies write":                            implied(policy.PersistenceWrite, policy.PersistenceAdmin),
		"write implies admin":                            implied(policy.PersistenceAdmin, policy.PersistenceWrite),
		"delete implies admin":                           implied(policy.PersistenceAdmin, policy.PersistenceDelete),
		"who may read an artifact may write its upload":  implied(policy.PersistenceWrite, policy.PersistenceRead),
		"who may write an artifact's upload may read it": implied(policy.PersistenceRead, policy.PersistenceWrite),
	}
}
