// Package postgres is the models' source on a PostgreSQL database, version 15 or newer.
//
//	src, err := postgres.Open(ctx, postgres.Config{Read: "postgres://reader@db.example/app?sslmode=verify-full"})
//	problems, err := src.Bind(ctx, registry.List())
//	rows, err := src.Read(ctx, query)
//
// Reads and writes have pools of their own, meant for two roles. A reading session is read-only by default, so that each
// statement is in a read-only transaction; several statements of one read share a snapshot. Time limits stand in the
// database too. Connections that leave this machine must verify the server (security requirements, S52).
package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tabellion-mcp/tabellion/internal/source/inspect"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Config says which database, and how long things may take.
type Config struct {
	Read  string // postgres://role@host/database?sslmode=verify-full, the reading role's
	Write string // the writing role's; "" for a source that is only read
	// Timeout bounds one read or write as a whole; 0 is 10 s. LockTimeout bounds the wait for a lock; 0 is 5 s.
	Timeout, LockTimeout time.Duration
	Conns                int // connections of each pool; 0 is 8
	// MaxUnindexed is the largest table, in rows, that may be sorted without an index; 0 is 100,000, negative no bound.
	MaxUnindexed int64
	// OnSQL is told each statement before it is sent, with the number of its arguments. It must be safe for concurrent use.
	OnSQL func(text string, args int)
	Now   func() time.Time // nil: time.Now
}

// The defaults (models, sections 2.9 and 15).
const (
	defaultTimeout   = 10 * time.Second
	defaultLock      = 5 * time.Second
	defaultConns     = 8
	defaultUnindexed = 100_000
)

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.LockTimeout <= 0 {
		c.LockTimeout = defaultLock
	}
	if c.Conns <= 0 {
		c.Conns = defaultConns
	}
	if c.MaxUnindexed == 0 {
		c.MaxUnindexed = defaultUnindexed
	}
	if c.OnSQL == nil {
		c.OnSQL = func(string, int) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Source is a plan.Source.
type Source struct {
	*sqlexec.Executor
	engine  *engine
	version string
	tables  atomic.Pointer[sqlexec.Tables]
	keys    sqlexec.KeysLook
}

var _ plan.Source = (*Source)(nil)

// Open connects to the database.
func Open(ctx context.Context, config Config) (*Source, error) {
	config = config.withDefaults()
	s := &Source{}
	s.tables.Store(sqlexec.NewTables(nil))
	var err error
	if s.engine, err = open(ctx, config); err != nil {
		return nil, err
	}
	s.Executor = &sqlexec.Executor{
		Engine:       s.engine,
		Generator:    sqlgen.Generator{Dialect: sqlgen.Postgres, Layout: func(m *model.Model) (*sqlgen.Layout, error) { return s.tables.Load().Layout(m) }},
		MaxUnindexed: config.MaxUnindexed,
		Now:          config.Now,
		Keys:         func() bool { return s.keys.Has(s.tables.Load(), s.Tables) },
	}
	if err := s.look(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// oldest is the oldest version of PostgreSQL whose statements are written.
const oldest = 150000

// look asks for the version.
func (s *Source) look(ctx context.Context) error {
	return s.engine.View(ctx, false, func(c sqlexec.Conn) error {
		return c.Query(ctx, sqlgen.Statement{Text: "SELECT current_setting('server_version'), current_setting('server_version_num')::int"}, func(cells []any) error {
			s.version, _ = cells[0].(string)
			if n, _ := cells[1].(string); n < fmt.Sprint(oldest) {
				return fmt.Errorf("the server is PostgreSQL %s; version 15 or newer is needed", s.version)
			}
			return nil
		})
	})
}

// Bind looks at the tables of the models.
func (s *Source) Bind(ctx context.Context, models []*model.Model) ([]string, error) {
	tables, err := s.layouts(ctx)
	if err != nil {
		return nil, err
	}
	bound := sqlexec.NewTables(tables)
	s.tables.Store(bound)
	var problems []string
	for _, m := range models {
		problems = append(problems, bound.Problems(m)...)
	}
	return problems, nil
}

// Tables describes the database.
func (s *Source) Tables(ctx context.Context) ([]plan.Table, error) {
	tables, err := inspect.Postgres(ctx, s.engine.readers)
	return tables, s.engine.fault(ctx, err)
}

// Rights says what the roles can do.
func (s *Source) Rights(ctx context.Context) (plan.RoleReport, error) {
	report, err := inspect.PostgresRights(ctx, s.engine.readers, s.engine.writers)
	return report, s.engine.fault(ctx, err)
}

// Features say what the source can do.
func (s *Source) Features() plan.Features {
	return plan.Features{Engine: "postgres", Version: s.version, Writes: s.engine.writers != nil, Keys: s.tables.Load().HasKeys(), Snapshot: true}
}

// Close ends all connections. Reads and writes under way are waited for.
func (s *Source) Close() error {
	for _, pool := range []*pgxpool.Pool{s.engine.readers, s.engine.writers} {
		if pool != nil {
			pool.Close()
		}
	}
	return nil
}
