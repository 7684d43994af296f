// Package sqlite is the models' source on an SQLite database file.
//
//	src, err := sqlite.Open(ctx, sqlite.Config{Read: "./app.db"})
//	problems, err := src.Bind(ctx, registry.List())
//	rows, err := src.Read(ctx, query)
//
// Reads go through connections that cannot write: the file is opened read-only, the connection is told so once more, it
// trusts no function inside the schema, and it can attach nothing. Writes, where they are configured, have one ordinary
// connection of their own, and one writer at a time.
//
// A missing file is an error; nothing here creates one.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/source/inspect"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Config says which database, and how long things may take.
type Config struct {
	Read  string // a path, or sqlite: and a path
	Write string // the same for writes; "" for a source that is only read
	// Timeout bounds one read or write as a whole; 0 is 10 s. LockTimeout bounds the wait for a lock; 0 is 5 s.
	Timeout, LockTimeout time.Duration
	Readers              int // connections for reads; 0 is 4
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
	defaultReaders   = 4
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
	if c.Readers <= 0 {
		c.Readers = defaultReaders
	}
	if c.MaxUnindexed == 0 {
		c.MaxUnindexed = defaultUnindexed
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Source is a plan.Source.
type Source struct {
	*sqlexec.Executor
	config  Config
	engine  *engine
	read    *sql.DB // for catalogs
	write   *sql.DB // for catalogs; nil without writes
	version string
	tables  atomic.Pointer[sqlexec.Tables]
	keys    sqlexec.KeysLook
}

var _ plan.Source = (*Source)(nil)

// Open opens the database file, which must exist.
func Open(ctx context.Context, config Config) (*Source, error) {
	config = config.withDefaults()
	s := &Source{config: config}
	s.tables.Store(sqlexec.NewTables(nil))
	var err error
	if s.engine, err = open(config); err != nil {
		return nil, err
	}
	s.Executor = &sqlexec.Executor{
		Engine:       s.engine,
		Generator:    sqlgen.Generator{Dialect: sqlgen.SQLite, Layout: func(m *model.Model) (*sqlgen.Layout, error) { return s.tables.Load().Layout(m) }},
		MaxUnindexed: config.MaxUnindexed,
		Now:          config.Now,
		Keys:         func() bool { return s.keys.Has(s.tables.Load(), s.Tables) },
	}
	if err := s.openCatalogs(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.look(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openCatalogs opens the handles through which catalogs are read.
func (s *Source) openCatalogs() (err error) {
	if s.read, err = sql.Open("sqlite", s.engine.readDSN); err != nil {
		return err
	}
	s.read.SetMaxOpenConns(1)
	s.read.SetMaxIdleConns(0)
	if s.engine.writeDSN == "" {
		return nil
	}
	s.write, err = sql.Open("sqlite", s.engine.writeDSN)
	return err
}

// look asks for the version, so that a file that is no database is found at once.
func (s *Source) look(ctx context.Context) error {
	return s.engine.View(ctx, false, func(c sqlexec.Conn) error {
		err := c.Query(ctx, sqlgen.Statement{Text: "SELECT sqlite_version(), count(*) FROM sqlite_schema"}, func(cells []any) error {
			s.version, _ = cells[0].(string)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s cannot be read as an SQLite database: %w", s.config.Read, err)
		}
		return nil
	})
}

// pathOf gives the path that a configured database names.
func pathOf(name string) string {
	for _, prefix := range []string{"sqlite://", "sqlite:", "file://", "file:"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest
		}
	}
	return name
}

// dsn is what the driver opens.
func dsn(name, parameters string) (string, error) {
	path, err := filepath.Abs(pathOf(name))
	if err != nil {
		return "", err
	}
	switch info, err := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("the database file %s does not exist; check the path (nothing was created)", path)
	case err != nil:
		return "", fmt.Errorf("the database file cannot be opened: %w", err)
	case info.IsDir():
		return "", fmt.Errorf("%s is a folder, not a database file", path)
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: parameters}
	return u.String(), nil
}

// Bind looks at the tables of the models.
func (s *Source) Bind(ctx context.Context, models []*model.Model) ([]string, error) {
	found, err := s.Tables(ctx)
	if err != nil {
		return nil, err
	}
	extras, err := s.extras(ctx)
	if err != nil {
		return nil, err
	}
	tables := make([]*sqlgen.Table, 0, len(found))
	for i := range found {
		if found[i].Virtual == "" {
			tables = append(tables, tableOf(&found[i], extras[found[i].Name]))
		}
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
	tables, err := inspect.SQLite(ctx, s.read)
	return tables, s.engine.fault(ctx, err)
}

// Rights says what the connections can do.
func (s *Source) Rights(ctx context.Context) (plan.RoleReport, error) {
	report, err := inspect.SQLiteRights(ctx, s.read, s.write)
	return report, s.engine.fault(ctx, err)
}

// Features say what the source can do.
func (s *Source) Features() plan.Features {
	return plan.Features{Engine: "sqlite", Version: s.version, Writes: s.engine.writeDSN != "", Keys: s.tables.Load().HasKeys(), Snapshot: true}
}

// Close ends all connections. Reads and writes under way are waited for.
func (s *Source) Close() error {
	errs := []error{s.engine.close()}
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}
