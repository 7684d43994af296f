package model

import (
	"slices"
	"sync"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Permission judges contexts: the role lists of the definitions, and a dynamic policy over them. It is immutable and
// safe for concurrent use.
type Permission struct {
	Rules  Rules
	Policy *Policy // nil: none
}

// Access is what one context may do. It is made for one call, or kept as long as the context; safe for concurrent use.
type Access struct {
	p     *Permission
	ctx   *Context
	roles []string

	mu      sync.Mutex
	granted map[grantKey]granted // what the policy says, once it was asked
}

// For gives the access of ctx. Nil is no context: nothing is allowed, and every answer is an *Error with the class
// NoContext; the Go API and tests that want full rights use an internal context.
func (p *Permission) For(ctx *Context) *Access {
	a := &Access{p: p, ctx: ctx}
	if ctx != nil {
		a.roles = ctx.EffectiveRoles()
	}
	return a
}

// creator is the name in a role list that stands for the user who made a row. It is no role: a caller who has a role of
// this name gains nothing by it.
const creator = "creator"

// ownerField holds who made a row.
const ownerField = "createdBy"

// Context is the one that a is for; nil for none.
func (a *Access) Context() *Context { return a.ctx }

// Exempt tells whether the context is internal or has an exempt role: no owner limit holds for it.
func (a *Access) Exempt() bool {
	return a.ctx != nil && (a.ctx.Internal || a.has(a.p.Rules.Exempt))
}

// barred tells whether the context has a role that never writes. That goes before an exempt role.
func (a *Access) barred() bool { return !a.ctx.Internal && a.has(a.p.Rules.DenyWrite) }

// has tells whether one of the caller's roles is in a list.
func (a *Access) has(list []string) bool {
	return slices.ContainsFunc(a.roles, func(r string) bool { return r != "" && r != creator && slices.Contains(list, r) })
}

// anyRole tells whether the caller has a role at all.
func (a *Access) anyRole() bool {
	return slices.ContainsFunc(a.roles, func(r string) bool { return r != "" })
}

// verdict is what a role list says.
type verdict uint8

// The verdicts. own: only rows that the caller made.
const (
	no verdict = iota
	own
	yes
)

// yesIf is yes or no.
func yesIf(allowed bool) verdict {
	if allowed {
		return yes
	}
	return no
}

// listed judges a role list that is there. A caller who is not known owns nothing.
func (a *Access) listed(list []string) verdict {
	switch {
	case a.has(list):
		return yes
	case slices.Contains(list, creator) && a.ctx.UserID != "":
		return own
	}
	return no
}

// unlisted judges an absent list.
func (a *Access) unlisted(write bool) verdict {
	switch a.p.Rules.Unconfigured {
	case Open:
		return yesIf(!a.has(a.p.Rules.DenyWrite))
	case ReadOpen:
		return yesIf(!write && a.anyRole())
	}
	return no
}

// reading judges the read list of a model; an empty one is as good as none (section 13.3).
func (a *Access) reading(m *Model) verdict {
	switch {
	case a.ctx == nil:
		return no
	case a.Exempt():
		return yes
	case m.ArchiveOf != nil && a.has(a.p.Rules.DenyWrite):
		return no // an archive has no list of its own, and guests pass no absent list
	case len(m.Read) == 0:
		return a.unlisted(false)
	}
	return a.listed(m.Read)
}

// writing judges the write list of a model. An empty list denies everybody but the exempt (section 13.3).
func (a *Access) writing(m *Model) verdict {
	switch {
	case a.ctx == nil, a.barred():
		return no
	case a.Exempt():
		return yes
	case m.Write == nil:
		return a.unlisted(true)
	}
	return a.listed(m.Write)
}

// noContext is the answer to nobody.
func noContext() *Error {
	return Errorf(NoContext, "it is not known who asks; the server must be told by its configuration or by the caller's key")
}

// Read is nil when rows of m may be read at all. Otherwise an *Error with the class Denied or NoContext.
func (a *Access) Read(m *Model) error {
	if a.ctx == nil {
		return noContext()
	}
	if a.reading(m) == no {
		if a.ctx.UserID == "" && slices.Contains(m.Read, creator) {
			return Errorf(Denied, "you may read only your own rows of %s, and it is not known who you are", m.Name)
		}
		return Errorf(Denied, "you may not read %s; describe_schemas lists what you may", m.Name)
	}
	if a.grants(m, ActRead).denied {
		return rbac(m, ActRead)
	}
	return nil
}

// rbac is a denial by the dynamic policy.
func rbac(m *Model, action Action) *Error {
	e := Errorf(Denied, "the policy gives you no right to %s %s", action, m.Name)
	e.Policy = true
	return e
}

// partly judges the read list of a part of m: absent, it follows the model. Where the caller passes as the creator alone,
// the part may be read when every row of m that he reads is his own: rows are limited, the parts of one row are not.
func (a *Access) partly(m *Model, list []string) bool {
	switch {
	case a.ctx == nil:
		return false
	case a.Exempt():
		return true
	case len(list) == 0:
		return a.p.Rules.Unconfigured != Open || a.unlisted(false) == yes
	}
	v := a.listed(list)
	return v == yes || v == own && a.reading(m) == own
}

// ReadField tells whether f may be read, filtered and sorted by. It does not ask Read. _id may always be read unless it has
// a list of its own; a policy never takes it away.
func (a *Access) ReadField(m *Model, f *Field) bool {
	if f == m.ID() {
		return a.ctx != nil && (len(f.Read) == 0 || a.partly(m, f.Read))
	}
	return a.partly(m, f.Read) && (m.Field(f.Name) != f || a.grants(m, ActRead).has(f.Name)) // a part of an object is granted with it
}

// ReadCompute tells whether the column may be read. It does not ask for what the column is computed from.
func (a *Access) ReadCompute(m *Model, c *Compute) bool {
	return a.partly(m, c.Read) && a.grants(m, ActRead).has(c.Name)
}

// ReadRelation tells whether the relation may be followed, as far as its own list says. It does not ask for the target.
func (a *Access) ReadRelation(m *Model, r *Relation) bool { return a.partly(m, r.Read) }

// Rows are the limits on rows for an action: all must hold. None is every row.
func (a *Access) Rows(m *Model, action Action) []RowLimit {
	if a.ctx == nil {
		return []RowLimit{{}}
	}
	if a.Exempt() {
		return nil
	}
	var limits []RowLimit
	switch action {
	case ActInsert: // the row is not there yet, and its owner will be the caller
	case ActRead:
		limits = a.ownRows(a.reading(m))
	default:
		limits = a.ownRows(a.writing(m))
	}
	if g := a.grants(m, action); g.limited {
		limits = append(limits, RowLimit{Any: g.rows})
	}
	return limits
}

// ownRows is the limit of a verdict: the rows that the caller made, or none where nothing is allowed.
func (a *Access) ownRows(v verdict) []RowLimit {
	switch v {
	case yes:
		return nil
	case own:
		return []RowLimit{{Any: [][]Equal{{{Field: ownerField, Value: canonjson.String(a.ctx.UserID)}}}}}
	}
	return []RowLimit{{}}
}

// verbs are the actions in a refusal.
var verbs = map[Action]string{ActInsert: "add rows to", ActUpdate: "change rows of", ActRemove: "remove rows of"}

// Write is nil when the action may be taken on m at all: ActInsert, ActUpdate or ActRemove. Otherwise an *Error with the
// class Denied, NoContext or ReadOnly. many words the refusal of a batch.
func (a *Access) Write(m *Model, action Action, many bool) error {
	switch {
	case a.ctx == nil:
		return noContext()
	case !a.ctx.Internal && m.ArchiveOf != nil, a.writing(m) == no:
		several := ""
		if many {
			several = " (several at once)"
		}
		return Errorf(Denied, "you may not %s %s%s", verbs[action], m.Name, several)
	case a.grants(m, action).denied:
		return rbac(m, action)
	case m.ReadOnly():
		return Errorf(ReadOnly, "%s can only be read: it is a view, or a table without a key", m.Name)
	}
	return nil
}

// WriteField tells whether f may be written. It does not ask Write. _id goes with the model (section 12.1).
func (a *Access) WriteField(m *Model, f *Field, action Action) bool {
	switch {
	case a.ctx == nil || f.Generated:
		return false
	case a.ctx.Internal:
		return true
	}
	verdict := a.writing(m)
	if f.Write != nil && !a.barred() && !a.Exempt() {
		verdict = a.listed(f.Write)
		if verdict == own && action != ActInsert && a.writing(m) != own {
			verdict = no // the rows that are changed need not be his
		}
	}
	switch {
	case verdict == no:
		return false
	case f == m.ID():
		return !a.grants(m, action).denied
	}
	return m.Field(f.Name) != f || a.grants(m, action).has(f.Name) // a part of an object is granted with it
}
