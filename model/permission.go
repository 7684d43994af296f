package model

import (
	"slices"

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

// creator is the name in a role list that stands for the user who made a row.
const creator = "creator"

// ownerField holds who made a row.
const ownerField = "createdBy"

// Context is the one that a is for; nil for none.
func (a *Access) Context() *Context { return a.ctx }

// Exempt tells whether the context is internal or has an exempt role: no owner limit holds for it.
func (a *Access) Exempt() bool {
	return a.ctx != nil && (a.ctx.Internal || a.has(a.p.Rules.Exempt))
}

// has tells whether one of the caller's roles is in a list.
func (a *Access) has(list []string) bool {
	return slices.ContainsFunc(a.roles, func(r string) bool { return r != "" && slices.Contains(list, r) })
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

// judge judges a role list for reading (section 13.2).
func (a *Access) judge(list []string) verdict {
	switch {
	case a.ctx == nil:
		return no
	case a.Exempt():
		return yes
	case len(list) == 0:
		return a.unlisted(false)
	case a.has(list):
		return yes
	case slices.Contains(list, creator):
		return own
	}
	return no
}

// unlisted judges an absent list.
func (a *Access) unlisted(write bool) verdict {
	allowed := false
	switch a.p.Rules.Unconfigured {
	case Open:
		allowed = !a.has(a.p.Rules.DenyWrite)
	case ReadOpen:
		allowed = !write && a.anyRole()
	}
	if allowed {
		return yes
	}
	return no
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
	v := a.judge(m.Read)
	if m.ArchiveOf != nil && !a.Exempt() && a.has(a.p.Rules.DenyWrite) {
		v = no // an archive has no list of its own, and guests pass no absent list
	}
	switch v {
	case no:
		return Errorf(Denied, "you may not read %s; describe_schemas lists what you may", m.Name)
	case own:
		if a.ctx.UserID == "" {
			return Errorf(Denied, "you may read only your own rows of %s, and it is not known who you are", m.Name)
		}
	}
	if g := a.grants(m, ActRead); g.denied {
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

// part judges the role list of a part of m: absent, it follows the model.
func (a *Access) part(list []string) bool {
	if a.ctx == nil {
		return false
	}
	if len(list) == 0 {
		return a.Exempt() || a.p.Rules.Unconfigured != Open || a.unlisted(false) == yes
	}
	return a.judge(list) != no
}

// ReadField tells whether f may be read, filtered and sorted by. It does not ask Read. _id may always be read.
func (a *Access) ReadField(m *Model, f *Field) bool {
	if f.Name == "_id" && len(f.Read) == 0 {
		return a.ctx != nil
	}
	return a.part(f.Read) && a.grants(m, ActRead).reads(f.Name)
}

// ReadCompute tells whether the column may be read. It does not ask for what the column is computed from.
func (a *Access) ReadCompute(m *Model, c *Compute) bool {
	return a.part(c.Read) && a.grants(m, ActRead).reads(c.Name)
}

// ReadRelation tells whether the relation may be followed, as far as its own list says. It does not ask for the target.
func (a *Access) ReadRelation(_ *Model, r *Relation) bool { return a.part(r.Read) }

// Rows are the limits on rows for an action: all must hold. None is every row.
func (a *Access) Rows(m *Model, action Action) []RowLimit {
	if a.ctx == nil {
		return []RowLimit{{}}
	}
	if a.Exempt() {
		return nil
	}
	list := m.Read
	if action != ActRead {
		list = m.Write
	}
	var limits []RowLimit
	if action != ActInsert && len(list) > 0 && a.judge(list) == own {
		limits = append(limits, a.ownRows())
	}
	if g := a.grants(m, action); g.limited {
		limits = append(limits, RowLimit{Any: g.rows})
	}
	return limits
}

// ownRows are the rows that the caller made; none when it is not known who he is.
func (a *Access) ownRows() RowLimit {
	if a.ctx.UserID == "" {
		return RowLimit{}
	}
	return RowLimit{Any: [][]Equal{{{Field: ownerField, Value: canonjson.String(a.ctx.UserID)}}}}
}

// Write is nil when the action may be taken on m at all: ActInsert, ActUpdate or ActRemove. Otherwise an *Error with the
// class Denied, NoContext or ReadOnly. many words the refusal of a batch.
func (a *Access) Write(m *Model, action Action, many bool) error {
	if a.ctx == nil {
		return noContext()
	}
	if m.ReadOnly() {
		return Errorf(ReadOnly, "%s can only be read: it is a view, or a table without a key", m.Name)
	}
	if a.ctx.Internal {
		return nil
	}
	verb := map[Action]string{ActInsert: "add rows to", ActUpdate: "change rows of", ActRemove: "remove rows of"}[action]
	if many {
		verb += " (several at once)"
	}
	denied := Errorf(Denied, "you may not %s %s", verb, m.Name)
	if m.ArchiveOf != nil || a.writing(m) == no {
		return denied
	}
	if g := a.grants(m, action); g.denied {
		return rbac(m, action)
	}
	return nil
}

// writing judges the write list of a model. An empty list denies everybody but the exempt (section 13.3).
func (a *Access) writing(m *Model) verdict {
	switch {
	case a.Exempt():
		return yes
	case a.has(a.p.Rules.DenyWrite):
		return no
	case m.Write == nil:
		return a.unlisted(true)
	case a.has(m.Write):
		return yes
	case slices.Contains(m.Write, creator) && a.ctx.UserID != "":
		return own
	}
	return no
}

// WriteField tells whether f may be written.
func (a *Access) WriteField(m *Model, f *Field, action Action) bool {
	if a.ctx == nil || f.Generated {
		return false
	}
	if a.ctx.Internal {
		return true
	}
	if f.Write != nil && !a.Exempt() {
		if a.has(a.p.Rules.DenyWrite) || !a.has(f.Write) && !(slices.Contains(f.Write, creator) && a.ctx.UserID != "") {
			return false
		}
	} else if a.writing(m) == no {
		return false
	}
	return a.grants(m, action).writes(f.Name)
}
