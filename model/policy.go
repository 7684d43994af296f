package model

import (
	"fmt"
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
		if m.Name == "" {
			return nil, badPolicy("roles: the name of a role must not be empty")
		}
		p.managed = append(p.managed, m.Name)
	}
	if p.enforce && len(p.managed) == 0 {
		return nil, badPolicy("mode enforce needs roles: those whose callers need a grant for every model")
	}
	grants := v.Get("grants")
	if !grants.IsAbsent() && grants.Kind() != canonjson.KindArray {
		return nil, badPolicy("grants must be a list such as [{\"role\": \"analyst\", \"model\": \"Order\", \"actions\": [\"read\"]}]")
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
		return bad("a grant is an object such as {\"role\": \"analyst\", \"model\": \"Order\", \"actions\": [\"read\"]}")
	}
	if err := policyMembers(fmt.Sprintf("grants[%d]", i), v, grantKeys); err != nil {
		return g, err
	}
	if g.role == "" || g.model == "" {
		return bad("role and model are needed; model \"*\" is every model")
	}
	if words := g.readActions(v.Get("actions")); words != "" {
		return bad(words)
	}
	for _, list := range []struct {
		key string
		at  *[]string
	}{{"readFields", &g.reads}, {"writeFields", &g.writes}} {
		if f := v.Get(list.key); !f.IsAbsent() {
			names, ok := texts(f)
			if !ok || len(names) == 0 {
				return bad(list.key + " must be a list of at least one field; leave it out for all")
			}
			*list.at = names
		}
	}
	switch o := v.Get("ownerOnly"); o.Kind() {
	case canonjson.KindAbsent:
	case canonjson.KindBool:
		g.ownerOnly = o.Bool()
	default:
		return bad("ownerOnly must be true or false")
	}
	if words := g.readCondition(v.Get("condition")); words != "" {
		return bad(words)
	}
	return g, nil
}

// readActions reads what a grant allows. It gives what is wrong, "" for nothing.
func (g *grant) readActions(v canonjson.Value) string {
	actions, ok := texts(v)
	if !ok || len(actions) == 0 {
		return "actions must be a list of at least one of read, insert, update, remove, write"
	}
	for _, a := range actions {
		switch a {
		case "read", "insert", "update", "remove":
			g.actions = append(g.actions, Action(a))
		case "write":
			g.actions = append(g.actions, ActInsert, ActUpdate, ActRemove)
		default:
			return "unknown action " + Quote(a) + "; the actions are read, insert, update, remove, write"
		}
	}
	return ""
}

// contextValue begins a value of a condition that is taken from the context.
const contextValue = "$ctx."

// readCondition reads what rows must equal. It gives what is wrong, "" for nothing.
func (g *grant) readCondition(v canonjson.Value) string {
	if !v.IsAbsent() && (v.Kind() != canonjson.KindObject || v.Len() == 0) {
		return "condition must be an object such as {\"region\": \"eu\"}; leave it out for every row"
	}
	for _, m := range v.Members() {
		switch m.Value.Kind() {
		case canonjson.KindString, canonjson.KindNumber, canonjson.KindBool:
		default:
			return "condition takes fields that equal a text, a number, or true or false, and " + Quote(m.Name) + " is none"
		}
		if !legalName(m.Name) {
			return "condition takes fields that equal a value, and " + Quote(m.Name) + " is no field"
		}
		if key, ok := strings.CutPrefix(m.Value.Str(), contextValue); ok && key == "" {
			return "condition: " + Quote(m.Name) + " names no value of the context; write \"$ctx.userId\" or \"$ctx.tenant\""
		}
		g.condition = append(g.condition, m)
	}
	return ""
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
	denied  bool
	fields  map[string]bool // of the action's field lists; nil: every field
	limited bool
	rows    [][]Equal // when limited: a row must meet one of them
}

// grantKey is what the policy is asked.
type grantKey struct {
	model  *Model
	action Action
}

// has tells whether a field is among those that are granted.
func (g granted) has(field string) bool { return !g.denied && (g.fields == nil || g.fields[field]) }

// grants unites what the caller's grants say. Without a policy, and for exempt callers, nothing is denied or limited.
func (a *Access) grants(m *Model, action Action) granted {
	if a.p.Policy == nil || a.ctx == nil || a.Exempt() {
		return granted{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := grantKey{m, action}
	g, known := a.granted[key]
	if !known {
		g = a.unite(m, action)
		if a.granted == nil {
			a.granted = map[grantKey]granted{}
		}
		a.granted[key] = g
	}
	return g
}

// unite joins the caller's grants for an action by or: fields unite, rows unite. A model that some grant of the caller is
// about, or that enforce asks one for, is denied when none has the action.
func (a *Access) unite(m *Model, action Action) granted {
	p := a.p.Policy
	var g granted
	touched, allowed, everyField, everyRow := false, false, false, false
	fields := map[string]bool{}
	for i := range p.grants {
		grant := &p.grants[i]
		if !slices.Contains(a.roles, grant.role) || !grant.about(m) {
			continue
		}
		touched = true
		if !slices.Contains(grant.actions, action) {
			continue
		}
		allowed = true
		list := grant.reads
		if action != ActRead {
			list = grant.writes
		}
		everyField = everyField || list == nil
		for _, f := range list {
			fields[f] = true
		}
		rows, all := a.limitOf(grant)
		everyRow = everyRow || all
		if rows != nil {
			g.rows = append(g.rows, rows)
		}
	}
	managed := p.enforce && slices.ContainsFunc(a.roles, func(r string) bool { return slices.Contains(p.managed, r) })
	g.denied = !allowed && (touched || managed)
	if allowed && !everyField {
		g.fields = fields
	}
	g.limited = allowed && !everyRow
	return g
}

// about tells whether a grant is about m. An archive goes with its model, and a grant may name it as well.
func (g *grant) about(m *Model) bool {
	return g.model == "*" || g.model == m.Name || m.ArchiveOf != nil && g.model == m.ArchiveOf.Name
}

// limitOf is the row limit of a grant for the caller: what a row must equal, or all for every row. Neither is a limit that
// no row meets, because the caller lacks a value that it names.
func (a *Access) limitOf(g *grant) (rows []Equal, all bool) {
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
		if key, ok := strings.CutPrefix(v.Str(), contextValue); ok && v.Kind() == canonjson.KindString {
			if v = a.ctx.value(key); v.IsAbsent() {
				return nil, false
			}
		}
		rows = append(rows, Equal{m.Name, v})
	}
	return rows, false
}

// value is what $ctx.<key> means, a scalar; Absent when the caller has none. An empty text, such as the tenant of a caller
// without one, is no value: rows that belong to nobody are not his.
func (c *Context) value(key string) canonjson.Value {
	v := c.Values[key]
	if key == "userId" {
		v = canonjson.String(c.UserID)
	}
	switch v.Kind() {
	case canonjson.KindNumber, canonjson.KindBool:
		return v
	case canonjson.KindString:
		if v.Str() != "" {
			return v
		}
	}
	return canonjson.Value{}
}
