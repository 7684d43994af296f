package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Page sizes of QueryWithCount (models, section 11.3).
const (
	defaultPage = 50
	maxPage     = 5000
)

// Query answers query(gql, params).
func (e *Engine) Query(ctx context.Context, c Call, text string, params canonjson.Value, page Page) (*Answer, error) {
	c = e.ready(c)
	q, err := e.plan(c, text, params, (*plan.Planner).Query)
	if err == nil {
		err = q.Page(page.Limit, page.After)
	}
	if err != nil {
		return nil, c.told(err)
	}
	rows, shown, err := e.answer(ctx, c, q)
	if err != nil {
		return nil, err
	}
	a := &Answer{Rows: shown, More: rows.More, Unrepresentable: e.told(c, rows.Unrepresentable)}
	if n := len(rows.Rows); rows.More && n > 0 {
		next := q.End(rows.Rows[n-1], page.After, n)
		a.Next = &next
	}
	return a, nil
}

// told are the values that could not be shown, of fields that the caller may read: others were read for a join, or for a
// function.
func (e *Engine) told(c Call, all []plan.Unrepresentable) []plan.Unrepresentable {
	return slices.DeleteFunc(slices.Clone(all), func(u plan.Unrepresentable) bool {
		m := e.cfg.Registry.Get(u.Model)
		if m == nil {
			return true
		}
		f := m.Field(u.Field)
		return f != nil && !c.Access.ReadField(m, f)
	})
}

// QueryOne answers queryOne: the first row, or Null.
func (e *Engine) QueryOne(ctx context.Context, c Call, text string, params canonjson.Value) (canonjson.Value, error) {
	c = e.ready(c)
	q, err := e.plan(c, text, params, (*plan.Planner).Query)
	if err != nil {
		return canonjson.Value{}, c.told(err)
	}
	q.First()
	_, shown, err := e.answer(ctx, c, q)
	if err != nil {
		return canonjson.Value{}, err
	}
	if len(shown) == 0 {
		return canonjson.Null(), nil
	}
	return shown[0], nil
}

// QueryWithCount answers queryWithCount. Relation predicates are refused in it, as in Count and Exists.
func (e *Engine) QueryWithCount(ctx context.Context, c Call, text string, params canonjson.Value) (*Counted, error) {
	c = e.ready(c)
	out := &Counted{}
	q, err := e.plan(c, text, params, func(p *plan.Planner, b *gql.Bound) (*plan.Query, error) {
		out.Page, out.PageSize = paging(params, b.Values, c.Profile.Rows)
		limited := !b.Values.Limit.IsAbsent()
		if pageAsked(params) || !limited {
			b.Values.Limit = canonjson.Int(out.PageSize)
		}
		if skip, ok := b.Values.Skip.Int(); pageAsked(params) || limited && ok && skip >= 0 {
			b.Values.Skip = canonjson.Int(out.Page * out.PageSize) // a page begins at a multiple of its size
		}
		return p.QueryWithCount(b)
	})
	if err != nil {
		return nil, c.told(err)
	}
	rows, shown, err := e.answer(ctx, c, q)
	if err != nil {
		return nil, err
	}
	out.Items, out.Total = shown, rows.Total
	out.HasMore = (out.Page+1)*out.PageSize < rows.Total
	return out, nil
}

// Count answers count. A condition may be Absent or Null.
func (e *Engine) Count(ctx context.Context, c Call, name string, condition canonjson.Value) (int64, error) {
	rows, err := e.counted(ctx, e.ready(c), name, condition, (*plan.Planner).Count)
	if err != nil {
		return 0, err
	}
	return rows.Total, nil
}

// Exists answers exists. A condition may be Absent or Null.
func (e *Engine) Exists(ctx context.Context, c Call, name string, condition canonjson.Value) (bool, error) {
	rows, err := e.counted(ctx, e.ready(c), name, condition, (*plan.Planner).Exists)
	if err != nil {
		return false, err
	}
	return len(rows.Rows) > 0, nil
}

// counted plans and reads for Count and Exists.
func (e *Engine) counted(ctx context.Context, c Call, name string, condition canonjson.Value, make func(*plan.Planner, string, canonjson.Value) (*plan.Query, error)) (*plan.Rows, error) {
	if err := e.unrouted(c); err != nil {
		return nil, c.told(err)
	}
	q, err := make(e.planner(c), name, condition)
	if err != nil {
		return nil, c.told(err)
	}
	return e.read(ctx, q)
}

// plan parses, binds and plans a query.
func (e *Engine) plan(c Call, text string, params canonjson.Value, make func(*plan.Planner, *gql.Bound) (*plan.Query, error)) (*plan.Query, error) {
	if err := e.unrouted(c); err != nil {
		return nil, err
	}
	parsed, err := gql.Parse(text)
	if err != nil {
		return nil, err
	}
	bound, err := parsed.Bind(params)
	if err != nil {
		return nil, err
	}
	return make(e.planner(c), bound)
}

// unrouted refuses a route of its own where the profile does (models, section 15).
func (e *Engine) unrouted(c Call) error {
	if !c.Profile.Sandbox || !c.Routed {
		return nil
	}
	err := model.Errorf(model.Sandbox, "[route] a query in this profile cannot choose another source: leave the route out")
	err.Feature = "route"
	return err
}

// answer reads a plan and shapes its rows.
func (e *Engine) answer(ctx context.Context, c Call, q *plan.Query) (*plan.Rows, []canonjson.Value, error) {
	rows, err := e.read(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	s := shaper{ctx: ctx, e: e, who: c.Access.Context()}
	shown, err := s.rows(q.Root, rows.Rows)
	return rows, shown, err
}

// read asks the source, and turns its failures into errors for a caller.
func (e *Engine) read(ctx context.Context, q *plan.Query) (*plan.Rows, error) {
	s, err := e.source(q.Root.Model)
	if err != nil {
		return nil, err
	}
	rows, err := s.Read(ctx, q)
	if err != nil {
		return nil, e.sourceError(ctx, q.Root.Model, err)
	}
	return rows, nil
}

// sourceError words a failure of a source that is not about the rows. The driver's text goes to the log alone.
func (e *Engine) sourceError(ctx context.Context, m *model.Model, err error) error {
	var known *model.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, plan.ErrUnknown):
		e.cfg.Log.Error("a write with an unknown outcome", "model", m.Name, "err", err)
		return model.Errorf(model.Unknown, "whether the write to %s happened is not known; read the row before you write again, or repeat the call with the same idempotency key", m.Name).Wrap(err)
	case ctx.Err() != nil:
		return model.Errorf(model.Busy, "the call ended before the database had answered; nothing happened").Wrap(ctx.Err())
	case errors.Is(err, plan.ErrBusy):
		return model.Errorf(model.Busy, "the database was busy or took too long, and nothing happened; try again, with a narrower $condition or a smaller $limit").Wrap(err)
	case errors.Is(err, plan.ErrUnavailable):
		e.cfg.Log.Error("a source cannot be reached", "model", m.Name, "source", m.Source, "err", err)
		return model.Errorf(model.Unreachable, "the database of %s cannot be reached now; try again later", m.Name).Wrap(err)
	}
	e.cfg.Log.Error("a source failed", "model", m.Name, "source", m.Source, "err", err)
	return model.Errorf(model.Unreachable, "the database of %s could not carry this out; an operator finds the reason in the log", m.Name).Wrap(err)
}

// pageAsked tells whether the parameters hold page or pageSize.
func pageAsked(params canonjson.Value) bool {
	return !params.Get("page").IsAbsent() || !params.Get("pageSize").IsAbsent()
}

// paging reads which page is meant: page and pageSize of the parameters, else $skip and $limit. The size is capped, by
// the profile too. What is no number counts as not given; bad $skip and $limit are for the planner to refuse.
func paging(params canonjson.Value, v gql.Values, ceiling int64) (page, size int64) {
	most := int64(maxPage)
	if ceiling > 0 {
		most = min(most, ceiling)
	}
	if pageAsked(params) {
		size = min(whole(params.Get("pageSize"), defaultPage), most)
		return whole(params.Get("page"), 0), size
	}
	size = min(whole(v.Limit, defaultPage), most)
	if size > 0 {
		page = whole(v.Skip, 0) / size
	}
	return page, size
}

// whole is a number or a string that spells one, cut to an integer that is not negative; other for anything else. It is
// at most 2^40, so that a page times its size stays an integer.
func whole(v canonjson.Value, other int64) int64 {
	f := v.Float()
	switch v.Kind() {
	case canonjson.KindNumber:
	case canonjson.KindString:
		var err error
		if f, err = strconv.ParseFloat(v.Str(), 64); err != nil || math.IsNaN(f) {
			return other
		}
	default:
		return other
	}
	return int64(math.Floor(min(max(f, 0), 1<<40)))
}
