package scenario

import (
	"fmt"

	"github.com/tabellion-mcp/tabellion/policy"
)

// Policy is the policy that grants mean: each grant a role of its own, and each exception a deny of everything.
func Policy(grants []Grant) policy.Config {
	c := policy.Config{Roles: map[string][]string{}}
	for i, g := range grants {
		role := fmt.Sprintf("grant-%d", i)
		c.Roles[role] = g.Capabilities
		subject := "user:" + g.As
		c.Assignments = append(c.Assignments, policy.Assignment{Subject: subject, Role: role, On: g.Resource})
		for _, path := range g.Except {
			c.Denies = append(c.Denies, policy.Deny{Subject: subject, On: path})
		}
	}
	return c
}

// Callers names every caller of the scenario, in order of appearance.
func (s *Scenario) Callers() []string {
	seen := map[string]bool{}
	var out []string
	var walk func([]Step)
	walk = func(steps []Step) {
		for _, st := range steps {
			names := []string{st.As}
			if st.Pages != nil {
				names = append(names, st.Pages.As)
			}
			if st.HTTP != nil {
				names = append(names, st.HTTP.As)
			}
			for _, n := range names {
				if n != "" && !seen[n] {
					seen[n] = true
					out = append(out, n)
				}
			}
			walk(st.Parallel)
			if st.Step != nil {
				walk([]Step{*st.Step})
			}
		}
	}
	walk(s.Steps)
	return out
}
