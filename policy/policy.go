// Package policy decides who may do what where. It is pure: no clock, no store, no network.
//
// A decision is asked for a set of subjects ("user:ana", "group:pilots", "role:writer"), a capability
// ("persistence.write") and a path ("/persistence/namespaces/explorer/documents/checkpoint-1"). Nothing is
// allowed unless an assignment gives a role that holds the capability on a pattern that covers the path, and a
// deny that covers it wins over every assignment:
//
//	p, err := policy.New(policy.Config{
//		Roles:       map[string][]string{"writer": {"persistence.read", "persistence.write"}},
//		Assignments: []policy.Assignment{{Subject: "group:pilots", Role: "writer", On: "/persistence/namespaces/explorer/**"}},
//	})
//	d, err := p.Decide(ctx, []string{"group:pilots"}, []policy.Check{{Capability: "persistence.write", Path: "/persistence/namespaces/explorer/documents/a"}})
//
// Paths are compared segment by segment, in exact case. A pattern is an exact path, or a path with "/**" at its
// end, which covers the path itself and everything below. Row filters and field masks are not decided here.
//
// Experimental until 1.0.
package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Capability names a right.
type Capability string

// The capabilities that exist. None implies another.
const (
	PersistenceRead   Capability = "persistence.read"
	PersistenceWrite  Capability = "persistence.write"
	PersistenceDelete Capability = "persistence.delete"
	PersistenceAdmin  Capability = "persistence.admin"
	ModelsRead        Capability = "models.read"
	ModelsWrite       Capability = "models.write"
	ContextRead       Capability = "context.read"
	OperatorRead      Capability = "operator.read"
	OperatorAdmin     Capability = "operator.admin"
)

// Capabilities lists every capability once.
var Capabilities = []Capability{
	PersistenceRead, PersistenceWrite, PersistenceDelete, PersistenceAdmin,
	ModelsRead, ModelsWrite, ContextRead, OperatorRead, OperatorAdmin,
}

// Known tells whether c is one of Capabilities.
func (c Capability) Known() bool { return slices.Contains(Capabilities, c) }

// Path names a thing, from the root: "/persistence/namespaces/a/documents/b". Segments are never empty.
type Path string

// Check is one question.
type Check struct {
	Capability Capability
	Path       Path
}

// Decision answers one Check.
type Decision struct {
	Allow bool
	// Rule says in words what decided, for the audit log and `policy explain`; never shown to a caller.
	Rule string
	// ID is the decision's number at a remote decision point; empty for a local policy.
	ID string
}

// Decider answers checks.
type Decider interface {
	// Decide answers every check in order. An error means that there is no decision: nothing may happen.
	Decide(ctx context.Context, subjects []string, checks []Check) ([]Decision, error)
}

// Assignment gives Role to Subject on every path that On covers.
type Assignment struct {
	Subject string // "user:ana", "group:pilots", "client:x", "service:y", "key:id", "role:name", "local:me", or "*" for every authenticated caller
	Role    string
	On      string
}

// Deny takes capabilities away from Subject on every path that On covers, whatever an assignment says.
type Deny struct {
	Subject      string
	Capabilities []Capability // empty: all
	On           string
}

// Config is a policy as an operator writes it.
type Config struct {
	Roles       map[string][]string // role name -> capabilities; "admin" is built in and cannot be redefined
	Assignments []Assignment
	Denies      []Deny
}

// RoleAdmin is the built-in role that holds every capability. A subject "role:admin" has it on /** without an
// assignment.
const RoleAdmin = "admin"

// Policy is a compiled Config. It is immutable and safe for concurrent use.
type Policy struct {
	bySubject map[string][]rule
	denies    map[string][]rule
}

// rule is one compiled assignment or deny.
type rule struct {
	caps    capSet
	pattern Pattern
	why     string
}

// capSet is a set of capabilities, one bit for each index of Capabilities.
type capSet uint16

// all holds every capability.
const all = capSet(1<<9 - 1)

// bit is the set of one capability; empty for an unknown one.
func bit(c Capability) capSet {
	if i := slices.Index(Capabilities, c); i >= 0 {
		return 1 << i
	}
	return 0
}

// New compiles c. It refuses unknown roles and capabilities, malformed patterns and subjects without a kind, and
// names the entry at fault.
func New(c Config) (*Policy, error) {
	roles, err := compileRoles(c.Roles)
	if err != nil {
		return nil, err
	}
	p := &Policy{bySubject: map[string][]rule{}, denies: map[string][]rule{}}
	p.bySubject["role:"+RoleAdmin] = []rule{{caps: all, pattern: Pattern{deep: true}, why: "built-in role admin on /**"}}
	for i, a := range c.Assignments {
		caps, ok := roles[a.Role]
		if !ok {
			return nil, fmt.Errorf("policy.assignments[%d]: unknown role %q; define it under policy.roles", i, a.Role)
		}
		pattern, err := ParsePattern(a.On)
		if err != nil {
			return nil, fmt.Errorf("policy.assignments[%d].on: %w", i, err)
		}
		if err := CheckSubject(a.Subject); err != nil {
			return nil, fmt.Errorf("policy.assignments[%d].subject: %w", i, err)
		}
		why := fmt.Sprintf("assignments[%d]: %s has role %s on %s", i, a.Subject, a.Role, pattern)
		p.bySubject[a.Subject] = append(p.bySubject[a.Subject], rule{caps, pattern, why})
	}
	for i, d := range c.Denies {
		r, err := compileDeny(i, d)
		if err != nil {
			return nil, err
		}
		p.denies[d.Subject] = append(p.denies[d.Subject], r)
	}
	return p, nil
}

// compileRoles turns role definitions into capability sets.
func compileRoles(defs map[string][]string) (map[string]capSet, error) {
	roles := map[string]capSet{RoleAdmin: all}
	for name, caps := range defs {
		if name == RoleAdmin {
			return nil, fmt.Errorf("policy.roles.admin: the role admin is built in; choose another name")
		}
		var set capSet
		for _, c := range caps {
			b := bit(Capability(c))
			if b == 0 {
				return nil, fmt.Errorf("policy.roles.%s: unknown capability %q; known are %s", name, c, knownCapabilities())
			}
			set |= b
		}
		roles[name] = set
	}
	return roles, nil
}

// compileDeny turns one deny into a rule.
func compileDeny(i int, d Deny) (rule, error) {
	pattern, err := ParsePattern(d.On)
	if err != nil {
		return rule{}, fmt.Errorf("policy.denies[%d].on: %w", i, err)
	}
	if err := CheckSubject(d.Subject); err != nil {
		return rule{}, fmt.Errorf("policy.denies[%d].subject: %w", i, err)
	}
	set := all
	if len(d.Capabilities) > 0 {
		set = 0
	}
	for _, c := range d.Capabilities {
		b := bit(c)
		if b == 0 {
			return rule{}, fmt.Errorf("policy.denies[%d]: unknown capability %q; known are %s", i, c, knownCapabilities())
		}
		set |= b
	}
	return rule{set, pattern, fmt.Sprintf("denies[%d]: %s on %s", i, d.Subject, pattern)}, nil
}

// knownCapabilities is the list for messages.
func knownCapabilities() string {
	var names []string
	for _, c := range Capabilities {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}

// subjectKinds are the kinds that a subject may have before its colon.
var subjectKinds = []string{"user", "group", "client", "service", "key", "role", "local"}

// CheckSubject refuses a subject that can never match: it is "*", or a kind and a name.
func CheckSubject(s string) error {
	if s == "*" {
		return nil
	}
	kind, name, ok := strings.Cut(s, ":")
	if !ok || name == "" || !slices.Contains(subjectKinds, kind) {
		return fmt.Errorf("subject %q is not of the form kind:name with kind one of %s (or \"*\")", s, strings.Join(subjectKinds, ", "))
	}
	return nil
}

// Decide answers from the compiled rules. It never fails and never blocks.
func (p *Policy) Decide(_ context.Context, subjects []string, checks []Check) ([]Decision, error) {
	out := make([]Decision, len(checks))
	for i, c := range checks {
		out[i] = p.decide(subjects, c)
	}
	return out, nil
}

// decide answers one check: denies first, then assignments, then no.
func (p *Policy) decide(subjects []string, c Check) Decision {
	want := bit(c.Capability)
	if want == 0 || !validPath(c.Path) {
		return Decision{Rule: "no rule: unknown capability or malformed path"}
	}
	if r := find(p.denies, subjects, want, c.Path); r != nil {
		return Decision{Rule: r.why}
	}
	if r := find(p.bySubject, subjects, want, c.Path); r != nil {
		return Decision{Allow: true, Rule: r.why}
	}
	return Decision{Rule: "no rule: denied by default"}
}

// find is the first rule of any subject (or of "*", for callers that have a subject) that covers the check.
func find(rules map[string][]rule, subjects []string, want capSet, path Path) *rule {
	for _, s := range subjects {
		if r := match(rules[s], want, path); r != nil {
			return r
		}
	}
	if len(subjects) > 0 {
		return match(rules["*"], want, path)
	}
	return nil
}

// match is the first of rs that holds want and covers path.
func match(rs []rule, want capSet, path Path) *rule {
	for i := range rs {
		if rs[i].caps&want != 0 && rs[i].pattern.Covers(path) {
			return &rs[i]
		}
	}
	return nil
}

// Open allows everything. It is the policy of --dev, and says so in each decision.
type Open struct{}

// Decide allows every check.
func (Open) Decide(_ context.Context, _ []string, checks []Check) ([]Decision, error) {
	out := make([]Decision, len(checks))
	for i := range out {
		out[i] = Decision{Allow: true, Rule: "open: --dev allows everything"}
	}
	return out, nil
}

// Surveyor is a Decider that can tell what a caller has at all, without naming one path. A decider that is none is
// asked about the base of the pattern.
type Surveyor interface {
	// Survey tells for each scope whether some path under it may be allowed. It may say yes too often (a deny may
	// cut out the very paths that exist), never no where a check would be allowed.
	Survey(ctx context.Context, subjects []string, scopes []Scope) ([]bool, error)
}

// Survey looks for an assignment that meets the scope and no deny that covers all of it.
func (p *Policy) Survey(_ context.Context, subjects []string, scopes []Scope) ([]bool, error) {
	out := make([]bool, len(scopes))
	for i, s := range scopes {
		out[i] = p.meets(subjects, s) && !p.cutOut(subjects, s)
	}
	return out, nil
}

// withAny is the subjects and "*", which stands for every caller that has a subject.
func withAny(subjects []string) []string {
	if len(subjects) == 0 {
		return nil
	}
	return append(slices.Clone(subjects), "*")
}

// meets tells whether an assignment gives something under s.
func (p *Policy) meets(subjects []string, s Scope) bool {
	for _, subject := range withAny(subjects) {
		for _, r := range p.bySubject[subject] {
			if r.caps&bit(s.Capability) != 0 && r.pattern.Overlaps(s.On) {
				return true
			}
		}
	}
	return false
}

// cutOut tells whether a deny covers everything under s.
func (p *Policy) cutOut(subjects []string, s Scope) bool {
	for _, subject := range withAny(subjects) {
		for _, r := range p.denies[subject] {
			if r.caps&bit(s.Capability) != 0 && r.pattern.Contains(s.On) {
				return true
			}
		}
	}
	return false
}

// Survey says yes to everything.
func (Open) Survey(_ context.Context, _ []string, scopes []Scope) ([]bool, error) {
	out := make([]bool, len(scopes))
	for i := range out {
		out[i] = true
	}
	return out, nil
}
