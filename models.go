package tabellion

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
	"github.com/tabellion-mcp/tabellion/model/tools"
)

// Models are what a program that embeds the server may say of its models, beside the configuration. The zero value says
// nothing.
type Models struct {
	// Functions implement computed columns that the definitions name.
	Functions engine.Functions
	// Context gives the context of every call, the same for all: a trusted one. ContextFor gives it for each caller.
	// At most one of the two; without either it is made of the principal.
	Context    *model.Context
	ContextFor func(ctx context.Context, who Caller) (*model.Context, error)
}

// Caller is who calls, as a context hook sees him.
type Caller struct {
	Subject, Tenant string
	Roles           []string
}

// check refuses options that exclude each other.
func (m *Models) check() error {
	if m.Context != nil && m.ContextFor != nil {
		return errors.New("Models.Context and Models.ContextFor exclude each other: set the one that every call has, or the one that tells each caller's")
	}
	return nil
}

// context is the hook of the tools; nil for none.
func (m *Models) context() func(context.Context, *identity.Principal) (*model.Context, error) {
	switch {
	case m.Context != nil:
		return func(context.Context, *identity.Principal) (*model.Context, error) { return m.Context, nil }
	case m.ContextFor != nil:
		return func(ctx context.Context, who *identity.Principal) (*model.Context, error) {
			return m.ContextFor(ctx, Caller{Subject: who.Subject, Tenant: who.Tenant, Roles: slices.Clone(who.Roles)})
		}
	}
	return nil
}

// definitions are the models of a configuration: what can be known of them without a database.
type definitions struct {
	registry   *model.Registry
	permission *model.Permission
}

// maxPolicyBytes bounds the file of a dynamic policy.
const maxPolicyBytes = 4 << 20

// readDefinitions reads the model definitions and the dynamic policy.
func readDefinitions(cfg *config.Models) (*definitions, error) {
	texts, err := model.Load(cfg.Definitions)
	if err != nil {
		return nil, err
	}
	d := &definitions{registry: model.NewRegistry(model.Options{Prefix: cfg.Prefix})}
	if err := d.registry.Register(texts...); err != nil {
		return nil, fmt.Errorf("models.definitions: %w", err)
	}
	rules := model.DefaultRules()
	rules.Unconfigured = cfg.Unconfigured
	d.permission = &model.Permission{Rules: rules}
	if cfg.Policy == "" {
		return d, nil
	}
	if d.permission.Policy, err = readPolicy(cfg.Policy); err != nil {
		return nil, fmt.Errorf("models.policy: %w", err)
	}
	if err := d.permission.Policy.Check(d.registry); err != nil {
		return nil, fmt.Errorf("models.policy: %w", err)
	}
	return d, nil
}

// readPolicy reads the file of a dynamic policy.
func readPolicy(path string) (*model.Policy, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPolicyBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxPolicyBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxPolicyBytes)
	}
	v, err := canonjson.ParseStrict(text, canonjson.Limits{Depth: 32, Nodes: 100_000})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return model.ParsePolicy(v)
}

// modelSlot is the opened slot models: definitions, databases, and the engine over them. It outlives the parts, which
// stand on the store.
type modelSlot struct {
	*definitions
	cfg     *config.Models
	engine  *engine.Engine
	sources map[string]plan.Source
	context func(context.Context, *identity.Principal) (*model.Context, error)
}

// openModels opens the databases of a configuration. Nil without a section models.
func openModels(ctx context.Context, cfg *Config, extra Models, log *slog.Logger, clock clock.Clock) (*modelSlot, error) {
	if cfg.Models == nil {
		return nil, nil
	}
	if err := extra.check(); err != nil {
		return nil, err
	}
	d, err := readDefinitions(cfg.Models)
	if err != nil {
		return nil, err
	}
	s := &modelSlot{definitions: d, cfg: cfg.Models, sources: map[string]plan.Source{}, context: extra.context()}
	if err := s.open(ctx, log); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.engine, err = engine.New(engine.Config{
		Registry: d.registry, Permission: d.permission, Sources: s.sources, Functions: extra.Functions, Clock: clock, Log: log,
		KeepKeys: cfg.Persistence.Limits.IdempotencyRetention,
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// open opens every source, looks at what its roles can do, and binds the models to its tables.
func (s *modelSlot) open(ctx context.Context, log *slog.Logger) error {
	names := make([]string, 0, len(s.cfg.Sources))
	for name := range s.cfg.Sources {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c := s.cfg.Sources[name]
		source, err := OpenSource(ctx, c, s.cfg.MaxUnindexed)
		if err != nil {
			return fmt.Errorf("models.sources.%s: %w", name, err)
		}
		s.sources[name] = source
		if err := judgeRights(ctx, name, c, source); err != nil {
			return err
		}
		problems, err := source.Bind(ctx, s.ofSource(name))
		if err != nil {
			return fmt.Errorf("models.sources.%s: %w", name, err)
		}
		for _, p := range problems {
			log.Warn("definitions and database differ; run: tabellion models check", "source", name, "difference", p)
		}
	}
	return nil
}

// ofSource are the models of a source, archives included.
func (s *modelSlot) ofSource(name string) []*model.Model {
	var out []*model.Model
	for _, m := range s.registry.List() {
		if m.Source == name {
			out = append(out, m)
		}
	}
	return out
}

// OpenSource opens the database that a configuration names.
func OpenSource(ctx context.Context, c *config.ModelSource, maxUnindexed int64) (plan.Source, error) {
	read, err := config.Address(c.Read, os.Getenv)
	if err != nil {
		return nil, err
	}
	write, err := config.Address(c.Write, os.Getenv)
	if err != nil {
		return nil, err
	}
	scheme, _, _ := strings.Cut(read, ":")
	if w, _, _ := strings.Cut(write, ":"); write != "" && w != scheme {
		return nil, errors.New("read and write name databases of two kinds")
	}
	switch scheme {
	case "sqlite":
		return sqlite.Open(ctx, sqlite.Config{Read: read, Write: write, MaxUnindexed: maxUnindexed})
	case "postgres", "postgresql":
		return postgres.Open(ctx, postgres.Config{Read: read, Write: write, MaxUnindexed: maxUnindexed})
	}
	return nil, errors.New("the address begins with no kind of database that is served; sqlite: and postgres:// are")
}

// judgeRights refuses database roles that can do more than tabellion needs, unless the operator named that (security
// requirements, S35).
func judgeRights(ctx context.Context, name string, c *config.ModelSource, source plan.Source) error {
	report, err := source.Rights(ctx)
	if err != nil {
		return fmt.Errorf("models.sources.%s: look at the rights of its roles: %w", name, err)
	}
	var words, accept []string
	for _, role := range []plan.Role{report.Reader, report.Writer} {
		for _, d := range role.Dangers {
			if !slices.Contains(c.Accept, d.Name) {
				words = append(words, d.Text)
				accept = append(accept, d.Name)
			}
		}
	}
	if len(words) == 0 {
		return nil
	}
	slices.Sort(accept)
	accept = slices.Compact(accept)
	return fmt.Errorf("models.sources.%s: the database role can do more than it should: %s. Use another role, or accept it, in the configuration with accept: [%s], on the command line with --accept %s",
		name, strings.Join(words, "; "), strings.Join(accept, ", "), strings.Join(accept, ","))
}

// close closes the databases.
func (s *modelSlot) close() error {
	if s == nil {
		return nil
	}
	var all []error
	for _, source := range s.sources {
		all = append(all, source.Close())
	}
	return errors.Join(all...)
}

// operations are those of the slot. Without an opened slot they are made of the definitions alone, and cannot be run.
func modelOperations(cfg *Config, s *modelSlot, cursors tools.Cursors) ([]*catalog.Operation, error) {
	if cfg.Models == nil {
		return nil, nil
	}
	c := tools.Config{Surface: cfg.Models.Surface, Only: cfg.Models.Only, Cursors: cursors}
	c.Writable = func(m *model.Model) bool {
		source := cfg.Models.Sources[m.Source]
		return source != nil && source.Write != ""
	}
	if s != nil {
		c.Registry, c.Permission, c.Engine, c.Context = s.registry, s.permission, s.engine, s.context
	} else {
		d, err := readDefinitions(cfg.Models)
		if err != nil {
			return nil, err
		}
		c.Registry, c.Permission = d.registry, d.permission
	}
	t, err := tools.New(c)
	if err != nil {
		return nil, err
	}
	return t.Operations(), nil
}

// Data are the models of a configuration, opened without a server: for commands that look at databases and definitions.
type Data struct{ slot *modelSlot }

// OpenData opens the databases of a configuration with a section models. Close it.
func OpenData(ctx context.Context, cfg *Config, o Options) (*Data, error) {
	if cfg.Models == nil {
		return nil, errors.New("the configuration has no section models")
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	slot, err := openModels(ctx, cfg, o.Models, log, clock.System{})
	if err != nil {
		return nil, err
	}
	return &Data{slot}, nil
}

// Definitions reads the definitions of a configuration, without a database.
func Definitions(cfg *config.Models) (*model.Registry, *model.Permission, error) {
	d, err := readDefinitions(cfg)
	if err != nil {
		return nil, nil, err
	}
	return d.registry, d.permission, nil
}

// Engine, Registry and Permission are the parts; Source is a database by name, nil when there is none.
func (d *Data) Engine() *engine.Engine              { return d.slot.engine }
func (d *Data) Registry() *model.Registry           { return d.slot.registry }
func (d *Data) Permission() *model.Permission       { return d.slot.permission }
func (d *Data) Source(name string) plan.Source      { return d.slot.sources[name] }
func (d *Data) Models(source string) []*model.Model { return d.slot.ofSource(source) }

// Close closes the databases.
func (d *Data) Close() error { return d.slot.close() }

// ModelsDigest tells configurations of models apart: a session that joins another process's data folder must not be
// served other definitions or another database than it asked for. Empty without a section models.
func ModelsDigest(cfg *Config) string {
	if cfg.Models == nil {
		return ""
	}
	text, err := json.Marshal(cfg.Models)
	if err != nil {
		return "" // a struct of texts, numbers and lists cannot fail
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
