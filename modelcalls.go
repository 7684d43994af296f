package tabellion

import (
	"context"
	"errors"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// ModelCalls are calls on the models of a server by the program that embeds it: what no tool offers (several rows at once,
// upsert, mutation, counts) and what the tools do, without the gate. The program is trusted: rights are those of the
// context alone, nothing is audited, and no rate is counted. Values are JSON texts. An error is a *model.Error where the
// call was refused. Safe for concurrent use.
type ModelCalls struct {
	engine *engine.Engine
	call   engine.Call
}

// ModelCalls gives calls with the rights of who; an internal context may do everything, nil nothing. It is nil when no
// models are configured.
func (s *Server) ModelCalls(who *model.Context) *ModelCalls {
	if s.models == nil {
		return nil
	}
	return s.models.calls(who)
}

// Calls gives calls with the rights of who.
func (d *Data) Calls(who *model.Context) *ModelCalls { return d.slot.calls(who) }

// calls gives calls with the rights of who.
func (s *modelSlot) calls(who *model.Context) *ModelCalls {
	return &ModelCalls{engine: s.engine, call: engine.Call{Access: s.permission.For(who), Profile: plan.Standard}}
}

// Sandboxed gives the same calls in the sandbox of the tool query: 1000 rows, relations 3 deep, no writes.
func (m *ModelCalls) Sandboxed() *ModelCalls {
	c := m.call
	c.Profile = plan.TextToQuery
	return &ModelCalls{engine: m.engine, call: c}
}

// maxCallDepth bounds the nesting of a value that a program gives.
const maxCallDepth = 64

// value reads a JSON text; an empty one is Absent.
func value(text []byte) (canonjson.Value, error) {
	if len(text) == 0 {
		return canonjson.Value{}, nil
	}
	v, flaw, err := canonjson.Parse(text, canonjson.Limits{Depth: maxCallDepth, Nodes: 1_000_000})
	if err == nil && flaw != nil && flaw.Rule != canonjson.NumberExact { // integers have 64 bits here
		err = errors.New(flaw.Message)
	}
	return v, err
}

// values reads several.
func values(texts ...[]byte) ([]canonjson.Value, error) {
	out := make([]canonjson.Value, len(texts))
	for i, t := range texts {
		var err error
		if out[i], err = value(t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// array is a JSON array of rows.
func array(rows []canonjson.Value) []byte { return canonjson.Array(rows...).AppendJSON(nil) }

// Query answers query(gql, params): an array of rows.
func (m *ModelCalls) Query(ctx context.Context, gql string, params []byte) ([]byte, error) {
	p, err := value(params)
	if err != nil {
		return nil, err
	}
	a, err := m.engine.Query(ctx, m.call, gql, p, engine.Page{})
	if err != nil {
		return nil, err
	}
	return array(a.Rows), nil
}

// QueryOne answers queryOne: the first row, or null.
func (m *ModelCalls) QueryOne(ctx context.Context, gql string, params []byte) ([]byte, error) {
	p, err := value(params)
	if err != nil {
		return nil, err
	}
	return text(m.engine.QueryOne(ctx, m.call, gql, p))
}

// text is a value as JSON text.
func text(v canonjson.Value, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	if v.IsAbsent() {
		v = canonjson.Null()
	}
	return v.AppendJSON(nil), nil
}

// Counted is a page of rows and the number of all that match.
type Counted struct {
	Items          []byte // a JSON array
	Total          int64
	HasMore        bool
	Page, PageSize int64
}

// QueryWithCount answers queryWithCount.
func (m *ModelCalls) QueryWithCount(ctx context.Context, gql string, params []byte) (*Counted, error) {
	p, err := value(params)
	if err != nil {
		return nil, err
	}
	c, err := m.engine.QueryWithCount(ctx, m.call, gql, p)
	if err != nil {
		return nil, err
	}
	return &Counted{Items: array(c.Items), Total: c.Total, HasMore: c.HasMore, Page: c.Page, PageSize: c.PageSize}, nil
}

// Count answers count(model, condition); no condition is every row.
func (m *ModelCalls) Count(ctx context.Context, name string, condition []byte) (int64, error) {
	c, err := value(condition)
	if err != nil {
		return 0, err
	}
	return m.engine.Count(ctx, m.call, name, c)
}

// Exists answers exists(model, condition).
func (m *ModelCalls) Exists(ctx context.Context, name string, condition []byte) (bool, error) {
	c, err := value(condition)
	if err != nil {
		return false, err
	}
	return m.engine.Exists(ctx, m.call, name, c)
}

// Insert answers insert(model, data): the new document.
func (m *ModelCalls) Insert(ctx context.Context, name string, data []byte) ([]byte, error) {
	d, err := value(data)
	if err != nil {
		return nil, err
	}
	return text(m.engine.Insert(ctx, m.call, name, d))
}

// InsertMany answers insertMany(model, docs): all of them, or none.
func (m *ModelCalls) InsertMany(ctx context.Context, name string, docs []byte) ([]byte, error) {
	d, err := value(docs)
	if err != nil {
		return nil, err
	}
	rows, err := m.engine.InsertMany(ctx, m.call, name, d)
	if err != nil {
		return nil, err
	}
	return array(rows), nil
}

// Update answers update(model, condition, data): the one document that was changed, or null.
func (m *ModelCalls) Update(ctx context.Context, name string, condition, data []byte) ([]byte, error) {
	v, err := values(condition, data)
	if err != nil {
		return nil, err
	}
	return text(m.engine.Update(ctx, m.call, name, v[0], v[1], canonjson.Value{}))
}

// UpdateMany answers updateMany: how many rows matched.
func (m *ModelCalls) UpdateMany(ctx context.Context, name string, condition, data []byte) (int64, error) {
	v, err := values(condition, data)
	if err != nil {
		return 0, err
	}
	return m.engine.UpdateMany(ctx, m.call, name, v[0], v[1])
}

// Remove answers remove(model, condition): how many rows were removed, and how many of them are in the archive.
func (m *ModelCalls) Remove(ctx context.Context, name string, condition []byte) (deleted, archived int64, err error) {
	c, err := value(condition)
	if err != nil {
		return 0, 0, err
	}
	r, err := m.engine.Remove(ctx, m.call, name, c, canonjson.Value{}, false)
	return r.Deleted, r.Archived, err
}

// Upsert answers upsert(model, condition, data).
func (m *ModelCalls) Upsert(ctx context.Context, name string, condition, data []byte) ([]byte, error) {
	v, err := values(condition, data)
	if err != nil {
		return nil, err
	}
	return text(m.engine.Upsert(ctx, m.call, name, v[0], v[1]))
}

// Mutation answers mutation(model, data): a document with its children, or an array of them.
func (m *ModelCalls) Mutation(ctx context.Context, name string, data []byte) ([]byte, error) {
	d, err := value(data)
	if err != nil {
		return nil, err
	}
	return text(m.engine.Mutation(ctx, m.call, name, d))
}

// Describe answers describeForAi: what the context may use.
func (m *ModelCalls) Describe(ctx context.Context) []byte {
	return m.engine.Describe(ctx, m.call).AppendJSON(nil)
}
