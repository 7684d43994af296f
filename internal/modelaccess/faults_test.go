//go:build unix

package modelaccess_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
	"github.com/tabellion-mcp/tabellion/policy"
)

// fault is a hole that is planted in front of what is shipped, and the operations whose cells must turn red by it.
type fault struct {
	name  string
	plant func(t *testing.T, c *site.Config)
	red   []string
}

// careless is an engine with a hole: a call that hole takes is made with every right.
type careless struct {
	site.Engine
	s    *site.Site
	hole func(op string, c engine.Call, text string, err error) bool
	cut  bool // rows keep nothing but their _id
}

// full is c with every right.
func (e *careless) full(c engine.Call) engine.Call {
	c.Access = e.s.Permission.For(&model.Context{Internal: true})
	return c
}

// Query goes around the judge where it should not.
func (e *careless) Query(ctx context.Context, c engine.Call, text string, params canonjson.Value, page engine.Page) (*engine.Answer, error) {
	a, err := e.Engine.Query(ctx, c, text, params, page)
	if !e.hole("query", c, text, err) {
		return a, err
	}
	a, err = e.Engine.Query(ctx, e.full(c), text, params, page)
	if err == nil && e.cut {
		for i, r := range a.Rows {
			a.Rows[i] = canonjson.Object(canonjson.M("_id", r.Get("_id")))
		}
	}
	return a, err
}

// Count, Exists, QueryWithCount, Describe, Insert, Update and Remove likewise.
func (e *careless) Count(ctx context.Context, c engine.Call, name string, condition canonjson.Value) (int64, error) {
	n, err := e.Engine.Count(ctx, c, name, condition)
	if e.hole("count", c, name, err) {
		return e.Engine.Count(ctx, e.full(c), name, condition)
	}
	return n, err
}

func (e *careless) Exists(ctx context.Context, c engine.Call, name string, condition canonjson.Value) (bool, error) {
	yes, err := e.Engine.Exists(ctx, c, name, condition)
	if e.hole("exists", c, name, err) {
		return e.Engine.Exists(ctx, e.full(c), name, condition)
	}
	return yes, err
}

func (e *careless) QueryWithCount(ctx context.Context, c engine.Call, text string, params canonjson.Value) (*engine.Counted, error) {
	n, err := e.Engine.QueryWithCount(ctx, c, text, params)
	if e.hole("total", c, text, err) {
		return e.Engine.QueryWithCount(ctx, e.full(c), text, params)
	}
	return n, err
}

func (e *careless) Describe(ctx context.Context, c engine.Call) canonjson.Value {
	if e.hole("describe", c, "", nil) {
		c = e.full(c)
	}
	return e.Engine.Describe(ctx, c)
}

func (e *careless) Insert(ctx context.Context, c engine.Call, name string, data canonjson.Value) (canonjson.Value, error) {
	if e.hole("insert", c, name, nil) {
		c = e.full(c)
	}
	return e.Engine.Insert(ctx, c, name, data)
}

func (e *careless) Update(ctx context.Context, c engine.Call, name string, condition, data, expect canonjson.Value) (canonjson.Value, error) {
	if e.hole("update", c, name, nil) {
		c = e.full(c)
	}
	return e.Engine.Update(ctx, c, name, condition, data, expect)
}

func (e *careless) Remove(ctx context.Context, c engine.Call, name string, condition, expect canonjson.Value, one bool) (engine.Removed, error) {
	if e.hole("remove", c, name, nil) {
		c = e.full(c)
	}
	return e.Engine.Remove(ctx, c, name, condition, expect, one)
}

// hole plants a careless engine.
func hole(cut bool, takes func(op string, c engine.Call, text string, err error) bool) func(*testing.T, *site.Config) {
	return func(_ *testing.T, c *site.Config) {
		c.Engine = func(e site.Engine, s *site.Site) site.Engine { return &careless{e, s, takes, cut} }
	}
}

// unjudged is a hole for refused queries that use an argument.
func unjudged(argument string) func(*testing.T, *site.Config) {
	return hole(argument != "$group", func(op string, _ engine.Call, text string, err error) bool {
		return op == "query" && err != nil && strings.Contains(text, argument)
	})
}

// words is an engine whose refusals say other words.
type words struct {
	site.Engine
	s      *site.Site
	reword func(s *site.Site, text string, e *model.Error) string
}

// Query answers in those words.
func (e *words) Query(ctx context.Context, c engine.Call, text string, params canonjson.Value, page engine.Page) (*engine.Answer, error) {
	a, err := e.Engine.Query(ctx, c, text, params, page)
	var own *model.Error
	if errors.As(err, &own) {
		return nil, model.Errorf(own.Class, "%s", e.reword(e.s, text, own))
	}
	return a, err
}

// reword plants words.
func reword(f func(s *site.Site, text string, e *model.Error) string) func(*testing.T, *site.Config) {
	return func(_ *testing.T, c *site.Config) {
		c.Engine = func(e site.Engine, s *site.Site) site.Engine { return &words{e, s, f} }
	}
}

// uncut is an engine whose write results are whole rows.
type uncut struct {
	site.Engine
	s *site.Site
}

// whole is a row with everything that is stored of it.
func (e *uncut) whole(ctx context.Context, name string, row canonjson.Value, err error) (canonjson.Value, error) {
	if err != nil || row.Get("_id").IsAbsent() {
		return row, err
	}
	var fields []string
	for _, f := range e.s.Registry.Get(name).Fields {
		fields = append(fields, f.Name)
	}
	return e.Engine.QueryOne(ctx, e.s.Internal(), name+"($condition: @c) { "+strings.Join(fields, ", ")+" }", canonjson.Object(canonjson.M("c", canonjson.Object(canonjson.M("_id", row.Get("_id"))))))
}

// Insert and Update show too much.
func (e *uncut) Insert(ctx context.Context, c engine.Call, name string, data canonjson.Value) (canonjson.Value, error) {
	row, err := e.Engine.Insert(ctx, c, name, data)
	return e.whole(ctx, name, row, err)
}

func (e *uncut) Update(ctx context.Context, c engine.Call, name string, condition, data, expect canonjson.Value) (canonjson.Value, error) {
	row, err := e.Engine.Update(ctx, c, name, condition, data, expect)
	return e.whole(ctx, name, row, err)
}

// knowing is an engine that is told that every model is known.
type knowing struct{ site.Engine }

// Query knows every model.
func (e knowing) Query(ctx context.Context, c engine.Call, text string, params canonjson.Value, page engine.Page) (*engine.Answer, error) {
	c.Known = func(*model.Model) bool { return true }
	return e.Engine.Query(ctx, c, text, params, page)
}

// loose is a source that forgets limits of plans.
type loose struct {
	plan.Source
	where string // root, kids, aggregates, predicates, check
}

// Read forgets the owner's limit in one place.
func (s loose) Read(ctx context.Context, q *plan.Query) (*plan.Rows, error) {
	s.block(q.Root, true)
	return s.Source.Read(ctx, q)
}

// Apply forgets that rows are looked at after a write.
func (s loose) Apply(ctx context.Context, w *plan.Write, c plan.Commit) (*plan.Applied, error) {
	if s.where == "check" {
		w.Check = nil
	}
	if s.where == "scope" {
		w.Scope = nil
	}
	return s.Source.Apply(ctx, w, c)
}

// block forgets in a block and those below it.
func (s loose) block(b *plan.Block, root bool) {
	if s.where == "root" && root || s.where == "kids" && !root {
		b.Where = forget(b.Where)
	}
	if s.where == "predicates" {
		b.Where = forgetInside(b.Where)
	}
	if s.where == "aggregates" {
		for _, a := range b.Aggs {
			a.Where = forget(a.Where)
		}
	}
	for _, k := range b.Kids {
		s.block(k.Block, false)
	}
}

// forget is a condition without tests of who made a row.
func forget(c plan.Cond) plan.Cond {
	switch c := c.(type) {
	case plan.And:
		out := plan.And{}
		for _, part := range c {
			out = append(out, forget(part))
		}
		return out
	case plan.Or:
		out := plan.Or{}
		for _, part := range c {
			out = append(out, forget(part))
		}
		return out
	case plan.Compare:
		if c.By.Field != nil && c.By.Field.Name == "createdBy" {
			return plan.Const(true)
		}
	}
	if c == nil {
		return plan.Const(true)
	}
	return c
}

// forgetInside forgets in relation predicates.
func forgetInside(c plan.Cond) plan.Cond {
	switch c := c.(type) {
	case plan.And:
		out := plan.And{}
		for _, part := range c {
			out = append(out, forgetInside(part))
		}
		return out
	case plan.Exists:
		c.Where = forget(c.Where)
		return c
	}
	return c
}

// forgetting plants a loose source.
func forgetting(where string) func(*testing.T, *site.Config) {
	return func(_ *testing.T, c *site.Config) {
		c.Source = func(s plan.Source) plan.Source { return loose{s, where} }
	}
}

// allNames are the names of everything.
func allNames(s *site.Site) string {
	var out []string
	for _, m := range s.Registry.List() {
		out = append(out, m.Name)
		for _, f := range m.Fields {
			out = append(out, f.Name)
		}
		for _, r := range m.Relations {
			out = append(out, r.Name)
		}
	}
	return strings.Join(out, ", ")
}

// faults are the holes.
func faults() []fault {
	unowned := func(c engine.Call) bool { return c.Access.Context() != nil && c.Access.Context().UserID == "" }
	return []fault{
		{"filters on unreadable fields are not judged", unjudged("$condition"), []string{"filter", "filter not", "filter in an or", "predicate", "operand"}},
		{"sorts on unreadable fields are not judged", unjudged("$sort"), []string{"sort", "cursor", "path sort", "column sort"}},
		{"groups on unreadable fields are not judged", unjudged("$group"), []string{"group", "aggregate", "path group"}},
		{"counts are not judged at all", hole(false, func(op string, _ engine.Call, _ string, _ error) bool {
			return op == "count" || op == "exists" || op == "total"
		}), []string{"count", "exists", "total", "count all", "exists row", "total all"}},
		{"counts forget the row limits", hole(false, func(op string, _ engine.Call, _ string, err error) bool {
			return err == nil && (op == "count" || op == "total")
		}), []string{"count all", "total all"}},
		{"unreadable fields are shown", hole(false, func(op string, _ engine.Call, text string, err error) bool {
			return op == "query" && err == nil && !strings.Contains(text, "$")
		}), []string{"read", "block", "column"}},
		{"who is not known owns everything", hole(false, func(_ string, c engine.Call, _ string, _ error) bool { return unowned(c) }), []string{"rows", "follow", "describe"}},
		{"rows of others are read", forgetting("root"), []string{"rows", "number", "get", "count all", "total all", "exists row"}},
		{"relation blocks forget the owner", forgetting("kids"), []string{"rows of"}},
		{"aggregate columns forget the owner", forgetting("aggregates"), []string{"value of"}},
		{"relation predicates forget the owner", forgetting("predicates"), []string{"parents"}},
		{"rows of others are written", forgetting("scope"), []string{"update", "delete"}},
		{"rows may be written out of sight", forgetting("check"), []string{"update with"}},
		{"write results are not cut", func(_ *testing.T, c *site.Config) {
			c.Engine = func(e site.Engine, s *site.Site) site.Engine { return &uncut{e, s} }
		}, []string{"create shows", "update shows"}},
		{"unwritable fields are stored", hole(false, func(op string, _ engine.Call, _ string, _ error) bool { return op == "insert" || op == "update" }),
			[]string{"create with", "update with", "create", "update"}},
		{"hints name everything", reword(func(s *site.Site, _ string, e *model.Error) string { return e.Message + "; there are " + allNames(s) }), []string{"hint"}},
		{"hidden models are known", func(_ *testing.T, c *site.Config) {
			c.Engine = func(e site.Engine, _ *site.Site) site.Engine { return knowing{e} }
		}, []string{"rows", "follow", "related", "read", "filter"}},
		{"hidden models are refused in words of their own", reword(func(_ *site.Site, text string, e *model.Error) string {
			if strings.Contains(text, "Vault") || strings.Contains(e.Message, "vaults") {
				return e.Message + " (hidden)"
			}
			return e.Message
		}), []string{"rows", "follow", "related path", "bare relation", "not related"}},
		{"archives have no list", func(_ *testing.T, c *site.Config) {
			c.Registry = func(r *model.Registry) {
				for _, m := range r.List() {
					if m.ArchiveOf != nil {
						m.Read = []string{"lead", "staff", "trainee", "user", "analyst"}
					}
				}
			}
		}, []string{"rows", "count all", "exists row"}},
		{"field lists are forgotten", func(_ *testing.T, c *site.Config) {
			c.Registry = func(r *model.Registry) {
				for _, m := range r.List() {
					for _, f := range m.Fields {
						f.Read, f.Write = nil, nil
					}
				}
			}
		}, []string{"read", "filter", "sort", "group", "aggregate", "block", "predicate", "operand", "hint", "describe", "listing", "create with"}},
		{"relation lists are forgotten", func(_ *testing.T, c *site.Config) {
			c.Registry = func(r *model.Registry) {
				for _, m := range r.List() {
					for _, l := range m.Relations {
						l.Read = nil
					}
				}
			}
		}, []string{"follow", "related", "not related", "describe"}},
		{"column lists are forgotten", func(_ *testing.T, c *site.Config) {
			c.Registry = func(r *model.Registry) {
				for _, m := range r.List() {
					for _, col := range m.Computes {
						col.Read = nil
					}
				}
			}
		}, []string{"column", "column sort", "describe"}},
		{"the dynamic policy is not asked", func(_ *testing.T, c *site.Config) { c.Policy = "" }, []string{"rows", "read", "filter", "rows of", "value of", "update", "delete"}},
		{"the dynamic policy's rows are forgotten", func(_ *testing.T, c *site.Config) {
			c.Policy = strings.ReplaceAll(strings.ReplaceAll(c.Policy, `,"condition":{"tenant":"$ctx.tenant"}`, ""), `,"condition":{"teamId":"t1"}`, "")
		}, []string{"rows", "number", "rows of", "value of", "update by text"}},
		{"absent lists let everybody in", func(_ *testing.T, c *site.Config) {
			c.Permission = func(p *model.Permission) { p.Rules.Unconfigured = model.Open }
		}, nil}, // asked of the model without lists
		{"descriptions are for everybody", hole(false, func(op string, _ engine.Call, _ string, _ error) bool { return op == "describe" }), []string{"describe"}},
		{"the server's rights are not asked", func(_ *testing.T, c *site.Config) { c.Rights = policy.Open{} }, []string{"rows", "get", "follow", "create", "listing"}},
	}
}

// TestPlantedFaults plants each hole and asks the table again: cells of every operation that the hole is about turn red.
func TestPlantedFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the table once for each fault: run by make test")
	}
	shared := &bare{}
	all := cells(t, rules(t, "rules.yaml"))
	closed := cells(t, rules(t, "plain-closed.yaml"))
	first := config(t)
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			c := first
			f.plant(t, &c)
			w := newWorld(t, site.SQLite(t), c)
			w.keep(t)
			w.bare, w.config = shared, first
			red := 0
			list := slices.DeleteFunc(slices.Clone(all), func(c cell) bool {
				return !slices.ContainsFunc(f.red, func(op string) bool { return c.op == op || strings.HasPrefix(c.op, op+" ") })
			})
			found, _ := w.red(t, append(list, closed...))
			for op := range maps.Keys(found) {
				red += len(found[op])
			}
			for _, op := range f.red {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(r string) bool { return r == op || strings.HasPrefix(r, op+" ") }) {
					t.Errorf("no cell of %q turned red", op)
				}
			}
			if red == 0 {
				t.Error("no cell turned red")
			}
			t.Logf("%d red", red)
		})
	}
}
