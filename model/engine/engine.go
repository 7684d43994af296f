// Package engine answers calls on models: it plans with the caller's rights, has a source carry the plan out, and shapes
// what comes back (defaults, computed columns, what was asked for and may be read).
//
//	e, err := engine.New(engine.Config{Registry: registry, Permission: permission, Sources: sources})
//	answer, err := e.Query(ctx, engine.Call{Access: permission.For(who), Profile: plan.Served}, "Course { title }", params, engine.Page{})
//
// An Engine is safe for concurrent use. Everything about a call is in its Call; nothing is process-wide.
//
// Experimental until 1.0.
package engine

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Config is what an Engine needs.
type Config struct {
	Registry   *model.Registry
	Permission *model.Permission      // nil: the default rules
	Sources    map[string]plan.Source // by the name that a model's Source has
	Functions  Functions
	Clock      clock.Clock // nil: the system's
	Random     io.Reader   // for new ids; nil: crypto/rand
	Log        *slog.Logger
	Lenient    bool // unknown fields of a selection are ignored
	Strict     bool // fields that the caller may not write are refused, not left out
	// KeepKeys is how long idempotency keys are remembered in a source; 0 is 7 days.
	KeepKeys time.Duration
}

// Functions are the implementations of computed columns, by Model.column or by fnRef. A document holds what the column
// depends on, as JSON decodes it, but that numbers of int, long and date fields are int64 and those of others float64; a
// missing field has no key. A function over all rows writes its value into each row under the column's name. One that fails
// or panics is an error that names the column; its words go to the log.
type Functions struct {
	Row  map[string]func(doc map[string]any) (any, error)
	Rows map[string]func(ctx context.Context, rows []map[string]any, who *model.Context) error
}

// Event is feedback about a call (section 16).
type Event struct {
	Type, Code, Layer, Message, Hint string
	Detail                           map[string]any
}

// Call is who calls and how.
type Call struct {
	Access  *model.Access
	Profile plan.Profile
	// Known: see plan.Planner.
	Known func(*model.Model) bool
	// Events are told what happened beside the result. Nil: nobody.
	Events func(Event)
	// Routed marks a call with a route of its own, which the sandbox refuses.
	Routed bool
	// Commit settles repeated writes; zero for none.
	Commit plan.Commit
}

// Page is which part of a list is wanted.
type Page struct {
	Limit int64          // 0: as many as the profile allows
	After *plan.Position // nil: from the start
}

// Answer is a list of rows.
type Answer struct {
	Rows            []canonjson.Value
	More            bool           // there are rows that this answer does not hold
	Next            *plan.Position // where they begin; nil when there are none or they cannot be asked for
	Unrepresentable []plan.Unrepresentable
}

// Counted is the answer of QueryWithCount (section 11.3).
type Counted struct {
	Items          []canonjson.Value
	Total          int64
	HasMore        bool
	Page, PageSize int64
}

// Removed is the answer of Remove.
type Removed struct{ Deleted, Archived int64 }

// Engine answers calls.
type Engine struct {
	cfg    Config
	random sync.Mutex // one reader of Config.Random at a time
}

// New checks that every function column has an implementation (class MissingFunction) and every model a source.
func New(cfg Config) (*Engine, error) {
	if cfg.Permission == nil {
		cfg.Permission = &model.Permission{Rules: model.DefaultRules()}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.System{}
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.KeepKeys == 0 {
		cfg.KeepKeys = 7 * 24 * time.Hour
	}
	e := &Engine{cfg: cfg}
	for _, m := range cfg.Registry.List() {
		if cfg.Sources[m.Source] == nil {
			return nil, model.Errorf(model.BadSchema, "model %s lives in the source %q, which is not configured", m.Name, m.Source)
		}
		if err := e.haveFunctions(m); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// haveFunctions is an error when a function column of m has no implementation.
func (e *Engine) haveFunctions(m *model.Model) error {
	for _, c := range m.Computes {
		if (c.Fn && e.rowFunction(m, c) == nil) || (c.AsyncFn && e.rowsFunction(m, c) == nil) {
			return missingFunction(m, c)
		}
	}
	return nil
}

// planner makes the planner of one call.
func (e *Engine) planner(c Call) *plan.Planner {
	return &plan.Planner{
		Registry: e.cfg.Registry, Access: c.Access, Profile: c.Profile, Known: c.Known, Lenient: e.cfg.Lenient,
		SameSource: func(a, b *model.Model) bool { return a.Source == b.Source },
	}
}

// ready fills what a Call leaves out: no access is no context, no profile is Served.
func (e *Engine) ready(c Call) Call {
	if c.Access == nil {
		c.Access = e.cfg.Permission.For(nil)
	}
	if c.Profile.Name == "" {
		c.Profile = plan.Served
	}
	return c
}

// source is the database that m lives in.
func (e *Engine) source(m *model.Model) (plan.Source, error) {
	if s := e.cfg.Sources[m.Source]; s != nil {
		return s, nil
	}
	e.cfg.Log.Error("a model without a source", "model", m.Name, "source", m.Source)
	return nil, model.Errorf(model.Unreachable, "the database of %s is not configured; an operator has to look", m.Name)
}
