package modeldiff_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/testkit/modelgen"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/eval"
	"github.com/tabellion-mcp/tabellion/model/gql"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// world is a generated world in both databases.
type world struct {
	*modelgen.World
	seed     uint64
	registry *model.Registry
	sources  map[string]plan.Source // sqlite, postgres
}

// open makes the world of a seed and its tables.
func open(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{World: modelgen.New(seed, modelgen.Options{Extended: true}), seed: seed, registry: model.NewRegistry(model.Options{})}
	if err := w.registry.Register(w.Definitions()...); err != nil {
		t.Fatalf("world %d: %v\n%s", seed, err, canonjson.Array(w.Definitions()...))
	}
	w.sources = map[string]plan.Source{"sqlite": w.sqlite(t), "postgres": w.postgres(t)}
	for name, s := range w.sources {
		problems, err := s.Bind(t.Context(), w.served())
		if err != nil || len(problems) > 0 {
			t.Fatalf("world %d: bind %s: %v, %q", seed, name, err, problems)
		}
	}
	return w
}

// served are the models that have tables: all but the archives.
func (w *world) served() []*model.Model {
	var all []*model.Model
	for _, m := range w.registry.List() {
		if m.ArchiveOf == nil {
			all = append(all, m)
		}
	}
	return all
}

// sqlite makes the tables in a new file and opens it as a source.
func (w *world) sqlite(t *testing.T) plan.Source {
	t.Helper()
	file := filepath.Join(t.TempDir(), "world.db")
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), w.script(0)); err != nil {
		t.Fatalf("world %d: sqlite: %v\n%s", w.seed, err, w.script(0))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return openSQLite(t, file)
}

// postgres makes the tables in a new database and opens it as a source.
func (w *world) postgres(t *testing.T) plan.Source {
	t.Helper()
	cluster := pgcluster.Start(t)
	url := cluster.NewDatabase(t)
	cluster.Exec(t, url, w.script(1))
	return openPostgres(t, url)
}

// caller is who asks: with a filter, a role that it limits.
func caller(t *testing.T, f *modelgen.Filter) (*model.Permission, *model.Context) {
	t.Helper()
	p := &model.Permission{Rules: model.DefaultRules()}
	p.Rules.Unconfigured = model.Open
	if f != nil {
		policy, err := model.ParsePolicy(f.Policy())
		if err != nil {
			t.Fatalf("%v: %s", err, f.Policy())
		}
		p.Policy = policy
	}
	return p, &model.Context{UserID: "u1", Roles: []string{modelgen.Role}}
}

// answers are what can be asked: by name, rows or an error.
type answers struct {
	t          *testing.T
	w          *world
	permission *model.Permission
	who        *model.Context
	engines    map[string]*engine.Engine
}

// answering makes what can be asked by a caller. wrap changes a source, for planted faults; nil changes nothing.
func (w *world) answering(t *testing.T, f *modelgen.Filter, wrap func(plan.Source) plan.Source) *answers {
	t.Helper()
	a := &answers{t: t, w: w, engines: map[string]*engine.Engine{}}
	a.permission, a.who = caller(t, f)
	for name, s := range w.sources {
		if wrap != nil {
			s = wrap(s)
		}
		e, err := engine.New(engine.Config{Registry: w.registry, Permission: a.permission, Sources: map[string]plan.Source{"default": s}})
		if err != nil {
			t.Fatal(err)
		}
		a.engines[name] = e
	}
	return a
}

// eval asks the evaluator.
func (a *answers) eval(q modelgen.Query) ([]canonjson.Value, error) {
	parsed, err := gql.Parse(q.Text)
	if err != nil {
		return nil, err
	}
	bound, err := parsed.Bind(q.Params)
	if err != nil {
		return nil, err
	}
	e := &eval.Evaluator{Registry: a.w.registry, Access: a.permission.For(a.who), Data: a.w.Data}
	return e.Query(bound)
}

// ask asks one database.
func (a *answers) ask(name string, q modelgen.Query) ([]canonjson.Value, error) {
	call := engine.Call{Access: a.permission.For(a.who), Profile: plan.Standard}
	answer, err := a.engines[name].Query(context.Background(), call, q.Text, q.Params, engine.Page{})
	if err != nil {
		return nil, err
	}
	if len(answer.Unrepresentable) > 0 {
		return nil, fmt.Errorf("unrepresentable: %v", answer.Unrepresentable)
	}
	return answer.Rows, nil
}

// differ tells how an answer differs from the wanted one, "" when it does not. Two refusals are the same answer.
func differ(want []canonjson.Value, wantErr error, got []canonjson.Value, gotErr error) string {
	switch {
	case wantErr != nil && gotErr != nil:
		return ""
	case wantErr != nil || gotErr != nil:
		return fmt.Sprintf("error %v (%v), want %v", gotErr, errors.Unwrap(gotErr), wantErr)
	case eval.Same(canonjson.Array(want...), canonjson.Array(got...)):
		return ""
	case len(want) != len(got):
		return fmt.Sprintf("%d rows, want %d", len(got), len(want))
	}
	for i := range want {
		if !eval.Same(want[i], got[i]) {
			return fmt.Sprintf("row %d is\n    %s, want\n    %s", i, got[i], want[i])
		}
	}
	return "rows differ"
}

// show describes a query and the answers to it.
func show(w *world, q modelgen.Query, want, got []canonjson.Value) string {
	cut := func(v canonjson.Value) string {
		s := v.String()
		return s[:min(len(s), 2000)]
	}
	return fmt.Sprintf("  world %d\n  query  %s\n  params %s\n  want   %s\n  got    %s", w.seed, q.Text, q.Params, cut(canonjson.Array(want...)), cut(canonjson.Array(got...)))
}
