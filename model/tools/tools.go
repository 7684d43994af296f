// Package tools makes operations of data models: get_X, list_X, create_X, update_X and delete_X for every model X, a query
// in a sandbox, and the description of what there is. With the generic surface there is one operation a verb instead.
//
//	t, err := tools.New(tools.Config{Registry: registry, Permission: permission, Engine: engine})
//	operations := t.Operations()
//
// What a caller sees of them depends on his roles: tools, fields and enum values that he may not use are left out.
// Without an Engine the operations can be listed and not run.
//
// Experimental until 1.0.
package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Surface is how models are offered.
type Surface string

// The surfaces.
const (
	PerModel Surface = "per-model" // five tools a model, query, describe_schemas
	Generic  Surface = "generic"   // five tools in all, query, describe_schemas
)

// Engine is what the operations call; *engine.Engine is one.
type Engine interface {
	Query(ctx context.Context, c engine.Call, text string, params canonjson.Value, page engine.Page) (*engine.Answer, error)
	Insert(ctx context.Context, c engine.Call, name string, data canonjson.Value) (canonjson.Value, error)
	Update(ctx context.Context, c engine.Call, name string, condition, data, expect canonjson.Value) (canonjson.Value, error)
	Remove(ctx context.Context, c engine.Call, name string, condition, expect canonjson.Value, one bool) (engine.Removed, error)
	Describe(ctx context.Context, c engine.Call) canonjson.Value
}

// Cursors seals and opens what passes through a client and comes back.
type Cursors interface {
	Seal(p seal.Purpose, life time.Duration, bind, plain []byte) (string, error)
	Open(p seal.Purpose, bind []byte, text string) ([]byte, error)
}

// Config is what the operations need. Registry and Permission are required.
type Config struct {
	Registry   *model.Registry
	Permission *model.Permission
	Engine     Engine  // nil: nothing can be run
	Cursors    Cursors // nil: nothing can be run
	Surface    Surface // "": PerModel
	// Only are the models that get tools, in this order, in place of all that are not archives (models, section 23.1).
	Only []string
	// Writable tells whether the source of a model has a connection for writes; nil: none has. Without it there are no
	// tools that write it.
	Writable func(*model.Model) bool
	// Context tells who a principal is to the models. Nil: user and roles of the principal. A nil context is nobody. An
	// error is answered permissionDenied where it is a *model.Error of the class Denied, else unauthenticated. It is
	// called on each listing and call.
	Context func(ctx context.Context, who *identity.Principal) (*model.Context, error)
}

// Tools makes the operations of a set of models. It is immutable and safe for concurrent use.
type Tools struct {
	cfg      Config
	models   []*model.Model // that get tools, in order
	audience *catalog.Audience
}

// New chooses the models. A chosen name that is no model, or one that is hidden, is an error.
func New(cfg Config) (*Tools, error) {
	t := &Tools{cfg: cfg}
	t.audience = &catalog.Audience{Key: t.audienceKey}
	names := cfg.Only
	if len(names) == 0 {
		names = Listed(cfg.Registry.Names())
	}
	for _, name := range names {
		m := cfg.Registry.Get(name)
		switch {
		case m == nil:
			return nil, model.Errorf(model.UnknownModel, "models.only names %s, which is no model", model.Quote(name))
		case slices.Contains(t.models, m):
			return nil, model.Errorf(model.NameConflict, "models.only names %s twice", model.Quote(name))
		case !m.Hidden:
			t.models = append(t.models, m)
		case len(cfg.Only) > 0:
			return nil, model.Errorf(model.BadSchema, "models.only names %s, which is hidden (x-mcp.hidden)", model.Quote(name))
		}
	}
	return t, nil
}

// archiveSuffix is what an archive model's name ends in.
const archiveSuffix = "Deleted"

// Listed leaves out names that end in Deleted when the name without that is among them too.
func Listed(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		base, archive := strings.CutSuffix(name, archiveSuffix)
		return archive && slices.Contains(names, base)
	})
}

// Times that one call may take (security requirements, section 3).
const (
	queryWithin = 5 * time.Second
	readWithin  = 10 * time.Second
)

// Operations gives the operations in the order of the listing: those of each model, then the global ones.
func (t *Tools) Operations() []*catalog.Operation {
	var ops []*catalog.Operation
	if t.cfg.Surface == Generic {
		ops = t.generic()
	} else {
		for _, m := range t.models {
			ops = append(ops, t.ofModel(m)...)
		}
	}
	ops = append(ops, t.query(), t.describe())
	for _, op := range ops {
		op.Slot, op.Errors, op.Publish.Tool = catalog.Models, fault.ModelsDialect, true
		op.Effects.OpenWorld = catalog.No
		op.Audience, op.Unfit = t.audience, unfit
	}
	return ops
}

// context tells who the principal is to the models.
func (t *Tools) context(ctx context.Context, who *identity.Principal) (*model.Context, error) {
	if t.cfg.Context != nil {
		return t.cfg.Context(ctx, who)
	}
	return &model.Context{
		UserID: who.UserID(), Roles: who.Roles,
		Values: map[string]canonjson.Value{"tenant": canonjson.String(who.Tenant)},
	}, nil
}

// audienceKey names what a listing depends on: the roles, and whether there is a user at all.
func (t *Tools) audienceKey(who *identity.Principal) string {
	c, err := t.context(context.Background(), who)
	if err != nil || c == nil {
		return "nobody"
	}
	roles := slices.Clone(c.EffectiveRoles())
	slices.Sort(roles)
	return fmt.Sprintf("%q %t %t", slices.Compact(roles), c.UserID != "", c.Internal)
}

// access is what a listing's audience may do; nil for the full surface.
func (t *Tools) access(who *identity.Principal) *model.Access {
	if who == nil {
		return nil
	}
	c, err := t.context(context.Background(), who)
	if err != nil {
		c = nil
	}
	return t.cfg.Permission.For(c)
}

// writable tells whether m can be written at all, whoever asks.
func (t *Tools) writable(m *model.Model) bool {
	return !m.ReadOnly() && t.cfg.Writable != nil && t.cfg.Writable(m)
}

// path is where the policy knows a model.
func path(name string) policy.Path { return policy.Path("/models/" + name) }

// knownOn hides an operation from callers without any right at a place.
func knownOn(pattern string) policy.Pattern {
	p, err := policy.ParsePattern(pattern)
	if err != nil {
		panic(err) // names of models are legal segments: the registry holds that
	}
	return p
}

// checking is the one check of an operation on a fixed model.
func checking(c policy.Capability, name string) func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) {
	checks := []policy.Check{{Capability: c, Path: path(name)}}
	return func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) { return checks, nil }
}
