package model

import "github.com/tabellion-mcp/tabellion/internal/canonjson"

// Context is who asks, as models see it: made by the server from the caller's principal, never by the caller.
type Context struct {
	UserID string
	Roles  []string // effective when not empty
	Role   string   // effective when Roles is empty
	// Internal contexts may do everything. The server makes none for a caller.
	Internal bool
	// Values are what $ctx.<key> in a policy means, beside $ctx.userId: the server sets tenant. An empty text is no value.
	Values map[string]canonjson.Value
}

// EffectiveRoles are Roles, or Role alone ("" included).
func (c *Context) EffectiveRoles() []string {
	if len(c.Roles) > 0 {
		return c.Roles
	}
	return []string{c.Role}
}

// Unconfigured says what an absent role list means.
type Unconfigured string

// The meanings of an absent list.
const (
	Open     Unconfigured = "open"   // everybody but guests may read and write
	ReadOpen Unconfigured = "read"   // everybody with a role may read, nobody may write
	Closed   Unconfigured = "closed" // nobody
)

// Rules are how role lists are judged (section 13.2).
type Rules struct {
	Exempt       []string // roles that pass everything
	DenyWrite    []string // roles that never write, not even beside an exempt one, and pass an absent list only where it is ReadOpen
	Unconfigured Unconfigured
}

// DefaultRules are what ships; Unconfigured is Closed.
func DefaultRules() Rules {
	return Rules{Exempt: []string{"admin", "super_admin"}, DenyWrite: []string{"guest"}, Unconfigured: Closed}
}

// Action is what a policy grants on a model.
type Action string

// The actions. A mutation and an upsert are judged as Insert.
const (
	ActRead   Action = "read"
	ActInsert Action = "insert"
	ActUpdate Action = "update"
	ActRemove Action = "remove"
)

// Equal is field = value, both not null.
type Equal struct {
	Field string
	Value canonjson.Value
}

// RowLimit is a limit on rows: a row must meet all of at least one alternative. No alternative is no row.
type RowLimit struct {
	Any [][]Equal
}
