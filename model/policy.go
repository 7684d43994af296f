package model

import (
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Policy is a dynamic policy (section 14): grants by role and model, laid over the role lists. It is immutable.
type Policy struct {
	enforce bool     // callers with a managed role need a grant for every model
	managed []string // roles that the policy names
	grants  []grant
}

// grant is one grant.
type grant struct {
	role, model string // model "*" is every one
	actions     []Action
	reads       []string // nil: every field
	writes      []string // nil: every field
	ownerOnly   bool
	condition   []canonjson.Member // field -> scalar, or "$ctx.<key>"
}

// policyKeys and grantKeys are the keys of a policy and of a grant.
var (
	policyKeys = []string{"mode", "roles", "grants"}
	grantKeys  = []string{"role", "model", "actions", "readFields", "writeFields", "ownerOnly", "condition"}
)

// badPolicy is an error of a policy.
func badPolicy(format string, args ...any) *Error { return Errorf(BadPolicy, format, args...) }

// ParsePolicy reads a policy; a malformed one is an *Error with the class BadPolicy. Null and Absent are no policy: nil.
func ParsePolicy(v canonjson.Value) (*Policy, error) {
	switch v.Kind() {
	case canonjson.KindAbsent, canonjson.KindNull:
		return nil, nil
	case canonjson.KindObject:
	default:
		return nil, badPolicy("a policy is an object with the keys mode, roles and grants")
	}
	if err := policyMembers("the policy", v, policyKeys); err != nil {
		return nil, err
	}
	p := &Policy{}
	switch mode := v.Get("mode"); {
	case mode.IsAbsent(), mode.Str() == "overlay":
	case mode.Str() == "enforce":
		p.enforce = true
	default:
		return nil, badPolicy("mode must be \"overlay\" or \"enforce\"")
	}
	roles := v.Get("roles")
	if !roles.IsAbsent() && roles.Kind() != canonjson.KindObject {
		return nil, badPolicy("roles must be an object whose names are roles, such as {\"analyst\": {}}")
	}
	for _, m := range roles.Members() {
		p.managed = append(p.managed, m.Name)
	}
	if p.enforce && len(p.managed) == 0 {
		return nil, badPolicy("mode enforce needs roles: those whose callers need a grant for every model")
	}
	grants := v.Get("grants")
	if !grants.IsAbsent() && grants.Kind() != canonjson.KindArray {
		return nil, badPolicy("grants must be a list")
	}
	for i, g := range grants.Items() {
		read, err := readGrant(i, g)
		if err != nil {
			return nil, err
		}
		p.grants = append(p.grants, read)
	}
	return p, nil
}

// policyMembers refuses unknown keys.
func policyMembers(where string, v canonjson.Value, keys []string) error {
	for _, m := range v.Members() {
		if !slices.Contains(keys, m.Name) {
			return badPolicy("%s: unknown key %s; the keys are %s", where, Quote(m.Name), strings.Join(keys, ", "))
		}
	}
	return nil
}

// readGrant reads one grant.
func readGrant(i int, v canonjson.Value) (grant, error) {
	g := grant{role: v.Get("role").Str(), model: v.Get("model").Str()}
	bad := func(words string) (grant, error) { return g, badPolicy("grants[%d]: %s", i, words) }
	if v.Kind() != canonjson.KindObject {
		return bad("a grant is an object")
	}
	if err := policyMembers("a grant", v, grantKeys); err != nil {
		return g, err
	}
	if g.role == "" || g.model == "" {
		return bad("role and model are needed; model \"*\" is every model")
	}
	actions, ok := texts(v.Get("actions"))
	if !ok || len(actions) == 0 {
		return bad("actions must be a list of at least one of read, insert, update, remove, write")
	}
	for _, a := range actions {
		switch a {
		case "read", "insert", "update", "remove":
			g.actions = append(g.actions, Action(a))
		case "write":
			g.actions = append(g.actions, ActInsert, ActUpdate, ActRemove)
		default:
			return bad("unknown action " + Quote(a) + "; the actions are read, insert, update, remove, write")
		}
	}
	for key, at := range map[string]*[]string{"readFields": &g.reads, "writeFields": &g.writes} {
		if f := v.Get(key); !f.IsAbsent() {
			if *at, ok = texts(f); !ok || len(*at) == 0 {
				return bad(key + " must be a list of at least one field; leave it out for all")
			}
		}
	}
	switch o := v.Get("ownerOnly"); o.Kind() {
	case canonjson.KindAbsent:
	case canonjson.KindBool:
		g.ownerOnly = o.Bool()
	default:
		return bad("ownerOnly must be true or false")
	}
	c := v.Get("condition")
	if !c.IsAbsent() && c.Kind() != canonjson.KindObject {
		return bad("condition must be an object such as {\"region\": \"eu\"}")
	}
	for _, m := range c.Members() {
		switch m.Value.Kind() {
		case canonjson.KindString, canonjson.KindNumber, canonjson.KindBool:
		default:
			return bad("condition takes fields that equal a text, a number, or true or false")
		}
		if strings.HasPrefix(m.Name, "$") || m.Name == "" {
			return bad("condition takes fields that equal a value, and no operators")
		}
		g.condition = append(g.condition, m)
	}
	return g, nil
}

// texts reads a list of texts; false when it is none.
func texts(v canonjson.Value) ([]string, bool) {
	if v.Kind() != canonjson.KindArray {
		return nil, false
	}
	var out []string
	for _, item := range v.Items() {
		if item.Kind() != canonjson.KindString || item.Str() == "" {
			return nil, false
		}
		out = append(out, item.Str())
	}
	return out, true
}

// granted is what the policy says of a caller, a model and an action.
type granted struct {
	denied     bool
	fields     map[string]bool // nil: every field
	everyWrite bool
	limited    bool
	rows       [][]Equal
}

// reads and writes tell whether a field is among those that are granted.
func (g granted) reads(field string) bool  { return !g.denied && (g.fields == nil || g.fields[field]) }
func (g granted) writes(field string) bool { return g.reads(field) }

// grants unites what the caller's grants say. Without a policy, and for exempt callers, nothing is denied or limited.
func (a *Access) grants(m *Model, action Action) granted {
	p := a.p.Policy
	if p == nil || a.ctx == nil || a.Exempt() {
		return granted{}
	}
	name := m.Name
	if m.ArchiveOf != nil {
		name = m.ArchiveOf.Name
	}
	var g granted
	touched, allowed, everyField, everyRow := false, false, false, false
	for i := range p.grants {
		grant := &p.grants[i]
		if grant.model != "*" && grant.model != name && grant.model != m.Name || !slices.Contains(a.roles, grant.role) {
			continue
		}
		touched = true
		if !slices.Contains(grant.actions, action) {
			continue
		}
		allowed = true
		fields := grant.reads
		if action != ActRead {
			fields = grant.writes
		}
		everyField = everyField || fields == nil
		for _, f := range fields {
			if g.fields == nil {
				g.fields = map[string]bool{}
			}
			g.fields[f] = true
		}
		rows, none := a.limitOf(grant)
		everyRow = everyRow || none
		if !none && rows != nil {
			g.rows = append(g.rows, rows)
		}
	}
	if everyField {
		g.fields = nil
	}
	g.limited = allowed && !everyRow
	managed := p.enforce && slices.ContainsFunc(a.roles, func(r string) bool { return slices.Contains(p.managed, r) })
	g.denied = !allowed && (touched || managed)
	return g
}

// limitOf is the row limit of a grant for the caller: what a row must equal, or none at all. Nil, with none false, is a
// limit that no row meets, because the caller lacks a value that it names.
func (a *Access) limitOf(g *grant) (rows []Equal, none bool) {
	if !g.ownerOnly && len(g.condition) == 0 {
		return nil, true
	}
	rows = []Equal{}
	if g.ownerOnly {
		if a.ctx.UserID == "" {
			return nil, false
		}
		rows = append(rows, Equal{ownerField, canonjson.String(a.ctx.UserID)})
	}
	for _, m := range g.condition {
		v := m.Value
		if key, ok := strings.CutPrefix(v.Str(), "$ctx."); ok && v.Kind() == canonjson.KindString {
			if v = a.ctx.value(key); v.IsAbsent() || v.Kind() == canonjson.KindNull {
				return nil, false
			}
		}
		rows = append(rows, Equal{m.Name, v})
	}
	return rows, false
}

// value is what $ctx.<key> means.
func (c *Context) value(key string) canonjson.Value {
	if key == "userId" {
		if c.UserID == "" {
			return canonjson.Value{}
		}
		return canonjson.String(c.UserID)
	}
	return c.Values[key]
}
