package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Answer asks what the gate would decide for the first of subjects, which has the others beside: a key is looked up, and
// the configured local caller has its roles.
func (cfg Config) Answer(ctx context.Context, now time.Time, subjects []string, check policy.Check) (policy.Decision, error) {
	kind, name, _ := strings.Cut(subjects[0], ":")
	switch {
	case kind == "key":
		return cfg.decideKey(ctx, now, name, subjects[1:], check)
	case cfg.Local != nil && cfg.Local.Subject == subjects[0] && kind == "local":
		subjects = append(slices.Clone(cfg.Local.Subjects), subjects[1:]...)
	}
	return cfg.Explain(ctx, subjects, check)
}

// decideKey asks for a key. In the order of the gate: a dead key is refused before anything else, then the policy
// decides for its user, its id and its roles, and its scopes take away from what that allows.
func (cfg Config) decideKey(ctx context.Context, now time.Time, id string, beside []string, check policy.Check) (policy.Decision, error) {
	if cfg.Keys == nil {
		return policy.Decision{}, absent("the keys")
	}
	k, err := cfg.Keys.Show(ctx, id)
	if err != nil {
		return policy.Decision{}, err
	}
	switch {
	case !k.RevokedAt.IsZero():
		return policy.Decision{Rule: fmt.Sprintf("key:%s was revoked at %s", k.ID, timeText(k.RevokedAt).Str())}, nil
	case !k.Live(now):
		return policy.Decision{Rule: fmt.Sprintf("key:%s expired at %s", k.ID, timeText(k.ExpiresAt).Str())}, nil
	}
	subjects := []string{"user:" + k.User, "key:" + k.ID}
	for _, r := range k.Roles {
		subjects = append(subjects, "role:"+r)
	}
	d, err := cfg.Explain(ctx, append(subjects, beside...), check)
	if err != nil || !d.Allow || k.Only == nil || covered(k.Only, check) {
		return d, err
	}
	return policy.Decision{Rule: fmt.Sprintf("the scopes of key:%s do not cover it: %s", k.ID, strings.Join(k.Only, ", "))}, nil
}

// covered tells whether one of scopes covers c. A scope that cannot be read covers nothing.
func covered(scopes []string, c policy.Check) bool {
	return slices.ContainsFunc(scopes, func(text string) bool {
		s, err := policy.ParseScope(text)
		return err == nil && s.Covers(c)
	})
}

// notes say which roles and scopes of a new key give it nothing, as the policy is now.
func (k keys) notes(made *identity.Key) []string {
	if k.open {
		return nil
	}
	var p policy.Config
	if k.policy != nil {
		p = *k.policy
	}
	var out []string
	for _, r := range made.Roles {
		if note := roleNote(p, r); note != "" {
			out = append(out, note)
		}
	}
	subjects := []string{"*", "user:" + made.User, "key:" + made.ID}
	for _, r := range made.Roles {
		subjects = append(subjects, "role:"+r)
	}
	for _, scope := range made.Only {
		if !reaches(p, subjects, scope) {
			out = append(out, fmt.Sprintf("No assignment of the policy gives the key anything of %s, to which it is narrowed.", scope))
		}
	}
	return out
}

// roleNote says that a role of a key gives nothing; "" when it does.
func roleNote(p policy.Config, role string) string {
	subject := "role:" + role
	named := slices.ContainsFunc(p.Assignments, func(a policy.Assignment) bool {
		return a.Subject == subject || a.Subject == "*" && readsModels(p, a.Role) // then the role lists of the models count
	})
	if named || role == policy.RoleAdmin {
		return ""
	}
	note := fmt.Sprintf("No assignment of the policy names %s, so the role gives the key nothing.", subject)
	if _, ok := p.Roles[role]; ok {
		note += fmt.Sprintf(" The name %s under policy.roles stands for capabilities; a key has it through an assignment such as {subject: %q, role: %s, on: /persistence/**}.", role, subject, role)
	}
	return note
}

// readsModels tells whether a role of the policy lets its holder read models.
func readsModels(p policy.Config, role string) bool {
	return slices.Contains(p.Roles[role], string(policy.ModelsRead))
}

// reaches tells whether an assignment to one of subjects gives any of what scope covers. Denies are not looked at.
func reaches(p policy.Config, subjects []string, scope string) bool {
	if slices.Contains(subjects, "role:"+policy.RoleAdmin) {
		return true
	}
	s, err := policy.ParseScope(scope)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(p.Assignments, func(a policy.Assignment) bool {
		on, err := policy.ParsePattern(a.On)
		holds := a.Role == policy.RoleAdmin || slices.Contains(p.Roles[a.Role], string(s.Capability))
		return err == nil && holds && slices.Contains(subjects, a.Subject) && on.Overlaps(s.On)
	})
}
