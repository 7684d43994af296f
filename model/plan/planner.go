package plan

import (
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// Profile bounds what a query may ask for (section 15).
type Profile struct {
	Name     string
	Rows     int64 // of the root: the default and the ceiling of $limit; 0 is none
	KidRows  int64 // ceiling of $limit in a relation block, never added; 0 is none
	AllRows  int64 // of one relation block over all parents, an error above; 0 is none
	Depth    int   // of relation blocks
	Windows  int   // relation levels with $skip or $limit in one chain
	Sandbox  bool  // refusals carry ERR_TEXT2QUERY:, writes and routes are refused, a context is needed
	MaxBytes int64 // of the rows together; 0 is none
}

// The profiles. Served is Standard as the tools use it.
var (
	Standard    = Profile{Name: "standard", Depth: 10, Windows: 4}
	Served      = Profile{Name: "standard", Rows: 10_000, AllRows: 100_000, Depth: 10, Windows: 4, MaxBytes: 1 << 20}
	TextToQuery = Profile{Name: "text2query", Rows: 1000, KidRows: 1000, AllRows: 10_000, Depth: 3, Windows: 4, Sandbox: true, MaxBytes: 1 << 20}
)

// ProfileNamed finds a profile by the name that a configuration gives it: standard or text2query. Others are an *Error
// with the class BadProfile.
func ProfileNamed(name string) (Profile, error) {
	switch name {
	case Standard.Name:
		return Standard, nil
	case TextToQuery.Name:
		return TextToQuery, nil
	}
	return Profile{}, model.Errorf(model.BadProfile, "there is no profile %s; there are %s and %s", clip(name), Standard.Name, TextToQuery.Name)
}

// Planner makes plans for one caller. It is cheap to make and pure.
type Planner struct {
	Registry *model.Registry
	Access   *model.Access
	Profile  Profile
	// Known tells whether this caller may know that a model exists: for resolution and for hints. Nil: every model is
	// found, and hints name no archives. A model that is not known is unknown in exactly the same words, and so is a
	// relation that leads to it.
	Known func(*model.Model) bool
	// Lenient ignores unknown fields of a selection, as the reference does.
	Lenient bool
	// SameSource tells whether the source of a answers queries about b too; nil: one source serves all.
	SameSource func(a, b *model.Model) bool
}

// Query judges and plans a bound query.
func (p *Planner) Query(b *gql.Bound) (*Query, error) { return p.query(b, useQuery) }

// QueryWithCount is Query with the total; relation predicates are refused (section 8.2). The page is the caller's
// business (section 11.3): he sets Skip and Limit of the root.
func (p *Planner) QueryWithCount(b *gql.Bound) (*Query, error) {
	q, err := p.query(b, useCount)
	if err == nil {
		q.Total = true
	}
	return q, err
}

// query plans a query whose root condition has the given use.
func (p *Planner) query(b *gql.Bound, use condUse) (*Query, error) {
	if err := p.admit(); err != nil {
		return nil, err
	}
	if err := p.scan(b.Values, b.Items, 0); err != nil {
		return nil, err
	}
	m, err := p.readable(b.Model)
	if err != nil {
		return nil, err
	}
	q := &Query{Rows: true, MaxBytes: p.Profile.MaxBytes, MaxRows: p.Profile.AllRows}
	if b.Values.Group.IsAbsent() {
		q.Root, err = p.root(m, b, use)
	} else {
		q.Root, err = p.grouped(m, b)
	}
	if err != nil {
		return nil, err
	}
	return q, p.window(q, b.Values)
}

// scan refuses, over the whole tree and before anything is resolved, operators that run code, and pipelines.
func (p *Planner) scan(v gql.Values, items []gql.BoundItem, depth int) error {
	for _, part := range []canonjson.Value{v.Condition, v.Having, v.Group} {
		if err := forbidden(part, 0); err != nil {
			return err
		}
	}
	if !v.Pipeline.IsAbsent() {
		if p.Profile.Sandbox {
			return p.refuse("$pipeline", "pipelines are not offered; use $condition, $group, $having and $sort")
		}
		return model.Errorf(model.Pipeline, "$pipeline is not offered; use $condition, $group, $having and $sort")
	}
	for _, item := range items {
		if err := p.scan(item.Values, item.Items, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Count plans count(model, condition): Total is wanted, no rows.
func (p *Planner) Count(name string, condition canonjson.Value) (*Query, error) {
	b, err := p.counted(name, condition)
	if err != nil {
		return nil, err
	}
	return &Query{Root: b, Total: true, own: unlimited, ceiling: unlimited}, nil
}

// Exists plans exists(model, condition): one row is wanted.
func (p *Planner) Exists(name string, condition canonjson.Value) (*Query, error) {
	b, err := p.counted(name, condition)
	if err != nil {
		return nil, err
	}
	b.Limit = 1
	if id := b.Model.ID(); id != nil {
		b.Columns = []*model.Field{id}
	} else if len(b.Model.Fields) > 0 {
		b.Columns = b.Model.Fields[:1]
	}
	return &Query{Root: b, Rows: true, own: 1, ceiling: unlimited}, nil
}

// counted is the block that count and exists ask about. Both are judged like a query (section 11.3).
func (p *Planner) counted(name string, condition canonjson.Value) (*Block, error) {
	if err := p.admit(); err != nil {
		return nil, err
	}
	if err := forbidden(condition, 0); err != nil {
		return nil, err
	}
	m, err := p.readable(name)
	if err != nil {
		return nil, err
	}
	where, err := p.where(m, condition, useCount)
	return &Block{Model: m, Where: where, Limit: unlimited}, err
}

// where reads a condition and adds the caller's row limits.
func (p *Planner) where(m *model.Model, condition canonjson.Value, use condUse) (Cond, error) {
	c, err := p.condition(m, condition, use)
	if err != nil {
		return nil, err
	}
	return all(c, rowCond(p.Access.Rows(m, model.ActRead), m)), nil
}
