package tabellion_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/tools"
	"github.com/tabellion-mcp/tabellion/policy"
)

// boats are definitions with a function column.
const boats = `[
 {"name": "Boat", "idPrefix": "BO", "fields": {"name": "string", "seats": "int"},
  "relations": {"trips": {"model": "Trip", "localField": "_id", "foreignField": "boatId"}},
  "computes": {"label": {"type": "string", "fn": true, "fnRef": "boats.label", "depends": ["name"]}, "tripCount": {"type": "int", "agg": {"$count": "trips"}}}},
 {"name": "Trip", "idPrefix": "TR", "fields": {"boatId": "string", "to": "string"}}
]`

// label is the function of boats.
func label(doc map[string]any) (any, error) {
	name, _ := doc["name"].(string)
	return "MS " + name, nil
}

// boatConfig is a configuration with the boats and an empty database for them.
func boatConfig(t *testing.T) *tabellion.Config {
	t.Helper()
	dir := t.TempDir()
	definitions := filepath.Join(dir, "boats.json")
	if err := os.WriteFile(definitions, []byte(boats), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := tabellion.DefaultConfig()
	cfg.Data = filepath.Join(dir, "data")
	cfg.Auth.Local = &config.Local{Subject: "me", Roles: []string{policy.RoleAdmin}}
	cfg.Models = config.DefaultModels()
	cfg.Models.Definitions = definitions
	address := "sqlite:" + filepath.Join(dir, "boats.db")
	cfg.Models.Sources = map[string]*config.ModelSource{"default": {Read: address, Write: address}}
	registry, _, err := tabellion.Definitions(cfg.Models)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(address, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range sqlgen.DDL(sqlgen.EngineSQLite, registry.List()) {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// functions are those of boats.
func functions() engine.Functions {
	return engine.Functions{Row: map[string]func(map[string]any) (any, error){"boats.label": label}}
}

// openBoats opens a server over boatConfig.
func openBoats(t *testing.T, cfg *tabellion.Config, m tabellion.Models) *tabellion.Server {
	t.Helper()
	s, err := tabellion.OpenWith(t.Context(), cfg, tabellion.Options{Models: m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// TestModelOptions: what a program says of its models, and what excludes each other (models, sections 21 and 23.5).
func TestModelOptions(t *testing.T) {
	ana := &model.Context{UserID: "ana"}
	for _, tt := range []struct {
		name, want string
		models     tabellion.Models
		change     func(*tabellion.Config)
	}{
		{"a function is missing", "ERR_FN_MISSING", tabellion.Models{}, nil},
		{"two contexts", "exclude each other", tabellion.Models{Functions: functions(), Context: ana,
			ContextFor: func(context.Context, tabellion.Caller) (*model.Context, error) { return ana, nil }}, nil},
		{"a model that is none", `names "Ship"`, tabellion.Models{Functions: functions()}, func(c *tabellion.Config) { c.Models.Only = []string{"Ship"} }},
		{"no source", `source "default", which is not configured`, tabellion.Models{Functions: functions()}, func(c *tabellion.Config) {
			c.Models.Sources = map[string]*config.ModelSource{"other": c.Models.Sources["default"]}
		}},
		{"no database", "models.sources.default", tabellion.Models{Functions: functions()}, func(c *tabellion.Config) {
			c.Models.Sources["default"].Read += ".gone"
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := boatConfig(t)
			if tt.change != nil {
				tt.change(cfg)
			}
			s, err := tabellion.OpenWith(t.Context(), cfg, tabellion.Options{Models: tt.models})
			if err == nil {
				_ = s.Close(context.Background())
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestModelCalls drives the Go API once: each call, its result, and a refusal.
func TestModelCalls(t *testing.T) {
	s := openBoats(t, boatConfig(t), tabellion.Models{Functions: functions()})
	ctx, all := t.Context(), s.ModelCalls(&model.Context{Internal: true})
	one := func(out []byte, err error) map[string]any {
		t.Helper()
		var v map[string]any
		if err != nil || json.Unmarshal(out, &v) != nil {
			t.Fatalf("%s: %v", out, err)
		}
		return v
	}
	tern := one(all.Insert(ctx, "Boat", []byte(`{"name":"Tern","seats":9007199254740993}`)))
	if tern["label"] != "MS Tern" {
		t.Errorf("inserted %v", tern)
	}
	if out, err := all.InsertMany(ctx, "Boat", []byte(`[{"name":"Eider"},{"name":"Skua","seats":5}]`)); err != nil || strings.Count(string(out), `"MS `) != 2 {
		t.Errorf("insertMany: %s, %v", out, err)
	}
	if out, err := all.Query(ctx, "Boat($condition:@c){ seats }", []byte(`{"c":{"name":"Tern"}}`)); err != nil || !strings.Contains(string(out), "9007199254740993") {
		t.Errorf("64 bits are not exact: %s, %v", out, err)
	}
	trip := one(all.Mutation(ctx, "Boat", []byte(`{"name":"Auk","trips":[{"to":"Reef"},{"to":"Fort"}]}`)))
	id, _ := trip["_id"].(string)
	if got := one(all.QueryOne(ctx, "Boat($condition:@c){ tripCount, trips($sort:@s){ to } }", []byte(`{"c":{"_id":"`+id+`"},"s":{"to":1}}`))); got["tripCount"] != 2.0 {
		t.Errorf("after the mutation %v", got)
	}
	if n, err := all.UpdateMany(ctx, "Boat", []byte(`{"seats":{"$exists":false}}`), []byte(`{"seats":1}`)); err != nil || n != 2 {
		t.Errorf("updateMany: %d, %v", n, err)
	}
	if got := one(all.Update(ctx, "Boat", []byte(`{"_id":"`+id+`"}`), []byte(`{"seats":7}`))); got["seats"] != 7.0 {
		t.Errorf("update: %v", got)
	}
	if got := one(all.Upsert(ctx, "Boat", []byte(`{"_id":"x1"}`), []byte(`{"name":"Wagtail"}`))); got["_id"] != "x1" {
		t.Errorf("upsert: %v", got)
	}
	if n, err := all.Count(ctx, "Boat", nil); err != nil || n != 5 {
		t.Errorf("count: %d, %v", n, err)
	}
	if ok, err := all.Exists(ctx, "Boat", []byte(`{"name":"Auk"}`)); err != nil || !ok {
		t.Errorf("exists: %v, %v", ok, err)
	}
	if c, err := all.QueryWithCount(ctx, "Boat { name }", []byte(`{"page":0,"pageSize":2}`)); err != nil || c.Total != 5 || !c.HasMore {
		t.Errorf("queryWithCount: %+v, %v", c, err)
	}
	if deleted, archived, err := all.Remove(ctx, "Boat", []byte(`{"_id":"x1"}`)); err != nil || deleted != 1 || archived != 1 {
		t.Errorf("remove: %d, %d, %v", deleted, archived, err)
	}
	var refused *model.Error
	if _, err := all.Sandboxed().Insert(ctx, "Boat", []byte(`{"name":"x"}`)); !errors.As(err, &refused) || refused.Class != model.Sandbox {
		t.Errorf("a write in the sandbox: %v", err)
	}
	if _, err := s.ModelCalls(nil).Query(ctx, "Boat { name }", nil); !errors.As(err, &refused) || refused.Class != model.NoContext {
		t.Errorf("without a context: %v", err)
	}
	if _, err := s.ModelCalls(&model.Context{UserID: "ana"}).Query(ctx, "Boat { name }", nil); !errors.As(err, &refused) || refused.Class != model.Denied {
		t.Errorf("closed models are open: %v", err)
	}
}

// TestExportNeedsNoDatabase: the tools are listed from the definitions alone, and are those that a server lists.
func TestExportNeedsNoDatabase(t *testing.T) {
	cfg := boatConfig(t)
	s := openBoats(t, cfg, tabellion.Models{Functions: functions()})
	served, err := tabellion.Tools(cfg, string(catalog.Models))
	if err != nil {
		t.Fatal(err)
	}
	_ = s
	if err := os.Remove(strings.TrimPrefix(cfg.Models.Sources["default"].Read, "sqlite:")); err != nil {
		t.Fatal(err)
	}
	alone, err := tabellion.Tools(cfg, string(catalog.Models))
	if err != nil || string(alone) != string(served) {
		t.Errorf("without the database: %v", err)
	}
	var listed []struct{ Name string }
	if err := json.Unmarshal(alone, &listed); err != nil || len(listed) != 12 || listed[0].Name != "get_Boat" || listed[11].Name != "describe_schemas" {
		t.Errorf("%v, %v", listed, err)
	}
	cfg.Models.Surface = tools.Generic
	if generic, err := tabellion.Tools(cfg, string(catalog.Models)); err != nil || len(generic) > 6<<10 {
		t.Errorf("the generic surface has %d bytes, %v", len(generic), err)
	}
}
