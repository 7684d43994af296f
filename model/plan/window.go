package plan

import (
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// unlimited is the limit that is none.
const unlimited int64 = -1

// whole reads $skip or $limit: an integer that is not negative. Absent is fallback.
func whole(what string, v canonjson.Value, fallback int64) (int64, error) {
	if v.IsAbsent() {
		return fallback, nil
	}
	n, ok := v.Int()
	if !ok || n < 0 {
		return 0, model.Errorf(model.BadLimit, "%s is an integer from 0 on, not %s. Write for example {\"l\": 10} in params", what, short(v))
	}
	return n, nil
}

// window sets the root's $skip and $limit, and the profile's ceiling. Where the ceiling cuts, the source tells whether
// there is more.
func (p *Planner) window(q *Query, v gql.Values) error {
	skip, err := whole("$skip", v.Skip, 0)
	if err != nil {
		return err
	}
	own, err := whole("$limit", v.Limit, unlimited)
	if err != nil {
		return err
	}
	q.own, q.ceiling = own, unlimited
	if p.Profile.Rows > 0 {
		q.ceiling = p.Profile.Rows
	}
	q.Root.Skip = skip
	q.Root.Limit = smaller(own, q.ceiling)
	q.Root.Peek = q.Root.Limit != own
	return nil
}

// smaller is the smaller of two limits.
func smaller(a, b int64) int64 {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// First narrows q to its first row, unless it has a $limit of its own (section 11, queryOne).
func (q *Query) First() {
	if q.own < 0 {
		q.own, q.Root.Limit, q.Root.Peek = 1, 1, false
	}
}

// kidWindow sets $skip and $limit of a relation block: a window for each parent. The profile's ceiling cuts a written
// limit and never adds one. A to-one relation shows one row at most, the first.
func (p *Planner) kidWindow(b *Block, l *link, v gql.Values) error {
	var err error
	if b.Skip, err = whole("$skip", v.Skip, 0); err != nil {
		return err
	}
	if b.Limit, err = whole("$limit", v.Limit, unlimited); err != nil {
		return err
	}
	if p.Profile.KidRows > 0 && b.Limit > p.Profile.KidRows {
		b.Limit = p.Profile.KidRows
	}
	if l.relation.One && (b.Skip > 0 || !l.unique()) {
		b.Limit = smaller(b.Limit, 1)
	}
	return nil
}

// unique tells whether a parent can have one row at most, because the relation joins on the target's key.
func (l *link) unique() bool { return coversKey(l.target, l.foreign) }

// coversKey tells whether fields hold all of the key of m.
func coversKey(m *model.Model, fields []*model.Field) bool {
	if m.Keyless {
		return false
	}
	if !m.Composite() {
		return has(fields, m.ID())
	}
	for _, f := range m.Key {
		if !has(fields, f) {
			return false
		}
	}
	return true
}

// has tells whether f is among fields.
func has(fields []*model.Field, f *model.Field) bool {
	for _, g := range fields {
		if g == f {
			return true
		}
	}
	return false
}
