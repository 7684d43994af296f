package tools

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"crypto/sha256"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
	"github.com/tabellion-mcp/tabellion/policy"
)

// The profiles of calls.
var (
	served  = plan.Served
	sandbox = plan.TextToQuery
)

// cursorLife is how long a cursor is good (security requirements, section 3).
const cursorLife = 15 * time.Minute

// caller is one call of an operation.
type caller struct {
	t      *Tools
	ctx    context.Context
	op     *catalog.Call
	in     canonjson.Value
	who    *model.Context
	access *model.Access
	known  map[string]bool // models whose right was asked for
	err    error           // no decision on one of them
}

// answer runs fn for a call, and turns its errors into faults.
func (t *Tools) answer(ctx context.Context, op *catalog.Call, fn func(*caller) (catalog.Result, error)) (catalog.Result, error) {
	who, err := t.context(ctx, op.Who)
	if err != nil {
		return catalog.Result{}, contextFault(err)
	}
	c := &caller{t: t, ctx: ctx, op: op, in: op.In, who: who, access: t.cfg.Permission.For(who), known: map[string]bool{}}
	result, err := fn(c)
	if c.err != nil {
		return catalog.Result{}, c.err // no decision: whatever was found, it is not answered
	}
	if err != nil {
		return catalog.Result{}, asFault(err)
	}
	return result, nil
}

// scope names whose idempotency keys a caller's are: no two callers share one. It is text without U+0000, which
// PostgreSQL cannot hold.
func scope(who *identity.Principal) string {
	return string(canonjson.Array(canonjson.String(who.Tenant), canonjson.String(who.Subject)).AppendJSON(nil))
}

// call is what the engine is told of this call.
func (c *caller) call(p plan.Profile) engine.Call {
	call := engine.Call{Access: c.access, Profile: p, Known: c.knows}
	if c.op.Commit != nil {
		call.Commit = plan.Commit{
			Scope: scope(c.op.Who), Key: c.op.Commit.Key, Fingerprint: c.op.Commit.Fingerprint,
		}
	}
	return call
}

// knows tells whether this caller may know of a model: it is not hidden, it was chosen to be offered, and the policy gives
// him the right to read it; of an archive, the right to read the model that its rows are from too. The answer is the same
// for the whole call.
func (c *caller) knows(m *model.Model) bool {
	if known, asked := c.known[m.Name]; asked {
		return known
	}
	known := c.t.offers(m)
	if known {
		checks := []policy.Check{{Capability: policy.ModelsRead, Path: path(m.Name)}}
		if m.ArchiveOf != nil { // which need not be among the chosen ones
			checks = append(checks, policy.Check{Capability: policy.ModelsRead, Path: path(m.ArchiveOf.Name)})
		}
		allowed, err := c.op.Access.Allowed(c.ctx, checks)
		if err != nil {
			c.err = errors.Join(c.err, err)
		}
		known = err == nil && len(allowed) == len(checks) && !slices.Contains(allowed, false)
	}
	c.known[m.Name] = known
	return known
}

// offers tells whether m, or the model whose archive it is, is among the chosen ones.
func (t *Tools) offers(m *model.Model) bool {
	if m.Hidden || m.ArchiveOf != nil && m.ArchiveOf.Hidden {
		return false
	}
	return slices.Contains(t.models, m) || m.ArchiveOf != nil && slices.Contains(t.models, m.ArchiveOf)
}

// model finds a model that the caller named.
func (c *caller) model(name string, write bool) (*model.Model, error) {
	m := c.t.cfg.Registry.Get(name)
	if m != nil && (c.t.offers(m) && write || c.knows(m)) {
		return m, nil
	}
	var names []string
	for _, m := range c.t.models {
		if c.access.Read(m) == nil && c.knows(m) {
			names = append(names, m.Name)
		}
	}
	return nil, unknownModel(name, names)
}

// unknownModel says so, with the nearest names of those that the caller may see.
func unknownModel(name string, names []string) error {
	hint := "describe_schemas lists the models"
	if near := model.Nearest(name, names); len(near) > 0 {
		hint = "the nearest are " + strings.Join(near, ", ")
	}
	return model.Errorf(model.UnknownModel, "there is no model %s; %s", model.Quote(name), hint)
}

// projection selects what a row shows when the caller does not say: the declared fields, then the computed columns, as far
// as he may read them and what they are computed from.
func (c *caller) projection(m *model.Model) string {
	var names []string
	for _, f := range m.Fields {
		if !f.Added && c.access.ReadField(m, f) {
			names = append(names, f.Name)
		}
	}
	for _, col := range m.Computes {
		if c.access.ReadCompute(m, col) && c.computable(m, col) {
			names = append(names, col.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " { " + strings.Join(names, ", ") + " }"
}

// computable tells whether the caller may read what an aggregate column looks at.
func (c *caller) computable(m *model.Model, col *model.Compute) bool {
	return c.t.computable(c.access, m, col) && (col.Agg == nil || c.knows(c.aggregated(m, col)))
}

// aggregated is the model that an aggregate column looks at.
func (c *caller) aggregated(m *model.Model, col *model.Compute) *model.Model {
	return c.t.cfg.Registry.Get(m.Relation(col.Agg.Relation).Model)
}

// computable tells whether an audience may read what an aggregate column looks at, as far as roles tell; nil is the full
// surface. Functions may look at what their caller cannot.
func (t *Tools) computable(a *model.Access, m *model.Model, col *model.Compute) bool {
	if col.Agg == nil {
		return true
	}
	relation := m.Relation(col.Agg.Relation)
	if relation == nil {
		return false
	}
	target := t.cfg.Registry.Get(relation.Model)
	if target == nil || !t.offers(target) {
		return false
	}
	if a == nil {
		return true
	}
	if !a.ReadRelation(m, relation) || a.Read(target) != nil {
		return false
	}
	f := target.Field(col.Agg.Field)
	return f == nil || a.ReadField(target, f)
}

// selection is the block of a generic call: what select names, or the projection.
func (c *caller) selection(m *model.Model, names string) string {
	if strings.TrimSpace(names) == "" {
		return c.projection(m)
	}
	return " { " + names + " }"
}

// get answers get_X and get.
func (c *caller) get(ctx context.Context, m *model.Model, id canonjson.Value, names string) (catalog.Result, error) {
	if m.Keyless {
		return catalog.Result{}, model.Errorf(model.Unsupported, "%s has no key, so that a row cannot be named; use list with a condition", m.Name)
	}
	at, err := c.locator(m, id)
	if err != nil {
		return catalog.Result{}, err
	}
	params := canonjson.Object(canonjson.M("c0", at))
	answer, err := c.t.cfg.Engine.Query(ctx, c.call(served), m.Name+"($condition: @c0)"+c.selection(m, names), params, engine.Page{Limit: 1})
	if err != nil {
		return catalog.Result{}, err
	}
	if len(answer.Rows) == 0 {
		return catalog.Result{}, fault.New(fault.NotFound, "%s %s not found", m.Name, plainID(id))
	}
	r := rowResult(answer.Rows[0])
	r.Meta = unrepresentable(answer.Unrepresentable)
	return r, nil
}

// plainID is an id in a sentence: the caller's own input, escaped and cut.
func plainID(id canonjson.Value) string {
	if id.Kind() == canonjson.KindString {
		return catalog.Clip(id.Str(), 64)
	}
	return catalog.Clip(string(id.AppendJSON(nil)), 64)
}

// place is what a cursor carries.
type place struct {
	Position json.RawMessage `json:"p"`
}

// list answers list_X and list.
func (c *caller) list(ctx context.Context, text string, params canonjson.Value) (catalog.Result, error) {
	page := engine.Page{}
	if limit := c.in.Get("limit"); !limit.IsAbsent() {
		page.Limit, _ = limit.Int()
	}
	bind := c.binding(text, params)
	if cursor := c.in.Get("cursor"); !cursor.IsAbsent() {
		after, err := c.open(bind, cursor.Str())
		if err != nil {
			return catalog.Result{}, err
		}
		page.After = after
	}
	answer, err := c.t.cfg.Engine.Query(ctx, c.call(served), text, params, page)
	if err != nil {
		return catalog.Result{}, err
	}
	next := ""
	if answer.Next != nil {
		if next, err = c.seal(bind, answer.Next); err != nil {
			return catalog.Result{}, err
		}
	}
	return answerResult(answer, next), nil
}

// query answers query: one page, in the sandbox.
func (c *caller) query(ctx context.Context, text string, params canonjson.Value) (catalog.Result, error) {
	answer, err := c.t.cfg.Engine.Query(ctx, c.call(sandbox), text, params, engine.Page{})
	if err != nil {
		return catalog.Result{}, err
	}
	return answerResult(answer, ""), nil
}

// create answers create_X and create.
func (c *caller) create(ctx context.Context, name string, body canonjson.Value) (catalog.Result, error) {
	row, err := c.t.cfg.Engine.Insert(ctx, c.call(served), name, body)
	if err != nil {
		return catalog.Result{}, err
	}
	return rowResult(row), nil
}

// update answers update_X and update.
func (c *caller) update(ctx context.Context, m *model.Model) (catalog.Result, error) {
	at, err := c.target(m)
	if err != nil {
		return catalog.Result{}, err
	}
	row, err := c.t.cfg.Engine.Update(ctx, c.call(served), m.Name, at, c.in.Get("set"), c.in.Get("expectedVersion"))
	if err != nil {
		return catalog.Result{}, err
	}
	return rowResult(row), nil
}

// remove answers delete_X and delete.
func (c *caller) remove(ctx context.Context, m *model.Model) (catalog.Result, error) {
	at, err := c.target(m)
	if err != nil {
		return catalog.Result{}, err
	}
	removed, err := c.t.cfg.Engine.Remove(ctx, c.call(served), m.Name, at, c.in.Get("expectedVersion"), true)
	if err != nil {
		return catalog.Result{}, err
	}
	return removedResult(removed), nil
}

// locator is the condition that finds the row with an id. Who may not read the field of ids is not told its name.
func (c *caller) locator(m *model.Model, id canonjson.Value) (canonjson.Value, error) {
	if c.who != nil && !locates(c.access, m) {
		return id, model.Errorf(model.Denied, "you may not name a row of %s by its id; use list with a condition", m.Name)
	}
	return canonjson.Object(canonjson.M(m.IDField, id)), nil
}

// target is the condition that finds the row of an update or a removal. Who may not read its version is not told where
// that is kept.
func (c *caller) target(m *model.Model) (canonjson.Value, error) {
	if !c.in.Get("expectedVersion").IsAbsent() && c.who != nil && !versioned(c.access, m) {
		return canonjson.Value{}, model.Errorf(model.Unsupported, "%s keeps no version that you may see; leave expectedVersion out", m.Name)
	}
	return c.locator(m, c.in.Get("id"))
}

// binding names the request that a cursor belongs to: what is listed, but for the size of the page, and the tenant. The
// order of members counts: it is that of the sort keys.
func (c *caller) binding(text string, params canonjson.Value) []byte {
	digest := sha256.Sum256(canonjson.Array(canonjson.String(c.op.Who.Tenant), canonjson.String(text), orNull(params)).AppendJSON(nil))
	return append([]byte("models\x00"), digest[:]...)
}

// seal makes a cursor. A place whose sort values are too long for one has none: the list is cut there, and says so.
func (c *caller) seal(bind []byte, p *plan.Position) (string, error) {
	plain, err := json.Marshal(place{Position: p.Value().AppendJSON(nil)})
	if err != nil {
		return "", err
	}
	text, err := c.t.cfg.Cursors.Seal(seal.PurposeCursor, cursorLife, bind, plain)
	if errors.Is(err, seal.ErrTooLong) {
		return "", nil
	}
	return text, err
}

// open reads a cursor. Whatever is wrong with one, the words are the same.
func (c *caller) open(bind []byte, cursor string) (*plan.Position, error) {
	bad := fault.New(fault.InvalidRequest, "the cursor is not valid here: send it with the same q and params, within 15 minutes, or begin without it")
	plain, err := c.t.cfg.Cursors.Open(seal.PurposeCursor, bind, cursor)
	if err != nil {
		return nil, bad
	}
	var p place
	if err := json.Unmarshal(plain, &p); err != nil {
		return nil, bad
	}
	v, err := canonjson.ParseStrict(p.Position, canonjson.Limits{})
	if err != nil {
		return nil, bad
	}
	position, err := plan.ReadPosition(v)
	if err != nil {
		return nil, bad
	}
	return &position, nil
}
