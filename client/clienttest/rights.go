package clienttest

import (
	"context"
	"slices"
	"sync"

	"github.com/tabellion-mcp/tabellion/policy"
)

// rights allow everything but what is forbidden.
type rights struct {
	mu        sync.Mutex
	forbidden []forbidden
}

// forbidden is what somebody may not do.
type forbidden struct {
	subject      string
	on           policy.Pattern
	capabilities []string // empty: all
}

// Forbid takes rights from a caller, from now on, on every path that the pattern covers, such as
// "/persistence/namespaces/missions/**": the capabilities "persistence.read", "persistence.write", "persistence.delete"
// and "persistence.admin", all of them when none is named. It panics when the pattern is none.
func (s *Server) Forbid(as, pattern string, capabilities ...string) {
	on, err := policy.ParsePattern(pattern)
	if err != nil {
		panic(err)
	}
	s.rights.mu.Lock()
	defer s.rights.mu.Unlock()
	s.rights.forbidden = append(s.rights.forbidden, forbidden{"user:" + as, on, capabilities})
}

// Decide implements policy.Decider.
func (r *rights) Decide(_ context.Context, subjects []string, checks []policy.Check) ([]policy.Decision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]policy.Decision, len(checks))
	for i, c := range checks {
		out[i] = policy.Decision{Allow: true, Rule: "everybody may do everything here"}
		for _, f := range r.forbidden {
			if f.covers(subjects, c) {
				out[i] = policy.Decision{Rule: "the test forbids it"}
			}
		}
	}
	return out, nil
}

// covers tells whether a check is forbidden.
func (f forbidden) covers(subjects []string, c policy.Check) bool {
	return slices.Contains(subjects, f.subject) && f.on.Covers(c.Path) &&
		(len(f.capabilities) == 0 || slices.Contains(f.capabilities, string(c.Capability)))
}
