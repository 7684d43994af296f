package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// What __present holds in tables of the reference's kind, where every field is stored.
const (
	authorPresent = ",_id,city,country,createdAt,name,rank,score,status,updatedAt,"
	bookPresent   = ",_id,authorId,createdAt,genre,pages,price,title,updatedAt,"
)

// modelWorld is one filled database and all that reads it.
type modelWorld struct {
	engine      string // sqlite or postgres
	parents     int
	read, write string // addresses for tabellion
	plain       plain
	models      *engine.Engine
	server      *served    // nil: not measured
	reference   *reference // nil: not measured, or not this database
	closers     []func() error
}

// close ends everything, the newest first.
func (w *modelWorld) close() error {
	var all []error
	for i := len(w.closers) - 1; i >= 0; i-- {
		all = append(all, w.closers[i]())
	}
	return errors.Join(all...)
}

// worlds fills databases of both sizes, and opens all that is measured on them.
func (o *modelOptions) worlds(ctx context.Context) ([]*modelWorld, error) {
	if err := os.WriteFile(o.definitions(), []byte(authorDefinitions), 0o600); err != nil {
		return nil, err
	}
	registry := model.NewRegistry(model.Options{})
	if err := registry.Register(value(authorDefinitions).Items()...); err != nil {
		return nil, err
	}
	folder := ""
	if o.wants(wayReference) {
		folder = o.installReference(ctx)
	}
	var worlds []*modelWorld
	for _, name := range o.engines {
		for _, n := range []int{o.parents, o.parents * o.times} {
			if n == 0 {
				continue
			}
			w, err := o.ready(ctx, name, n, registry, folder)
			if w != nil {
				worlds = append(worlds, w)
			}
			if err != nil {
				return worlds, fmt.Errorf("%s with %d parents: %w", name, n, err)
			}
		}
	}
	if slices.Contains(o.engines, "postgres") {
		fmt.Println("PostgreSQL is the throw-away cluster of the tests, without fsync: its writes do not wait for the disk, the floor's neither")
	}
	return worlds, nil
}

// definitions is the file with the models.
func (o *modelOptions) definitions() string { return filepath.Join(o.dir, "definitions.json") }

// ready fills a database, and opens all that is measured on it.
func (o *modelOptions) ready(ctx context.Context, name string, parents int, registry *model.Registry, folder string) (*modelWorld, error) {
	began := time.Now()
	w, err := o.world(ctx, name, parents, registry)
	if err == nil {
		err = o.open(ctx, w, registry, folder)
	}
	if err == nil {
		fmt.Printf("%s: %d parents, %d children, ready in %.1f s\n", name, parents, parents*childrenOf, time.Since(began).Seconds())
	}
	return w, err
}

// world fills a database.
func (o *modelOptions) world(ctx context.Context, name string, parents int, registry *model.Registry) (*modelWorld, error) {
	w := &modelWorld{engine: name, parents: parents}
	switch name {
	case "sqlite":
		path := filepath.Join(o.dir, fmt.Sprintf("data-%d.db", parents))
		if err := fillSQLite(ctx, path, parents, registry); err != nil {
			return nil, err
		}
		w.read, w.write = "sqlite:"+path, "sqlite:"+path
		p, err := openPlainSQLite(path)
		if err != nil {
			return nil, err
		}
		w.plain = p
		w.closers = append(w.closers, p.close)
	case "postgres":
		tb := &benchTB{}
		w.closers = append(w.closers, tb.close)
		return w, w.fillPostgres(ctx, tb, registry)
	default:
		return nil, fmt.Errorf("no database %q", name)
	}
	return w, nil
}

// open opens what is measured.
func (o *modelOptions) open(ctx context.Context, w *modelWorld, registry *model.Registry, folder string) error {
	var source plan.Source
	var err error
	if w.engine == "sqlite" {
		source, err = sqlite.Open(ctx, sqlite.Config{Read: w.read, Write: w.write})
	} else {
		source, err = postgres.Open(ctx, postgres.Config{Read: w.read, Write: w.write})
	}
	if err != nil {
		return err
	}
	w.closers = append(w.closers, source.Close)
	if problems, err := source.Bind(ctx, registry.List()); err != nil || len(problems) > 0 {
		return fmt.Errorf("the models do not fit their tables: %v %w", problems, err)
	}
	w.models, err = engine.New(engine.Config{Registry: registry, Sources: map[string]plan.Source{"default": source}})
	if err != nil {
		return err
	}
	if o.binary != "" && o.wants(wayHTTP) {
		if err := o.serve(ctx, w); err != nil {
			return err
		}
	}
	if folder != "" && w.engine == "sqlite" {
		return o.refer(ctx, w, folder)
	}
	return nil
}

// serve starts the program on the database.
func (o *modelOptions) serve(ctx context.Context, w *modelWorld) error {
	s, err := serve(ctx, &o.options, fmt.Sprintf("server-%s-%d", w.engine, w.parents),
		fmt.Sprintf("models:\n  definitions: %q\n  sources:\n    default: {read: %q, write: %q}\n", o.definitions(), w.read, w.write))
	if err != nil {
		return err
	}
	w.server = s
	w.closers = append(w.closers, func() error { return s.Stop(15 * time.Second) })
	return nil
}

// runner gives what measures a way; nil where it is not there, or cannot do the operation.
func (w *modelWorld) runner(how way, op operation) runner {
	switch {
	case how == wayFloor:
		return serially(func(ctx context.Context, c call) ([]byte, error) { return op.floor(ctx, w.plain, c) })
	case how == wayInProcess:
		permission := &model.Permission{Rules: model.DefaultRules()}
		who := engine.Call{Access: permission.For(&model.Context{UserID: "bench", Roles: []string{"admin"}}), Profile: plan.Served}
		return serially(func(ctx context.Context, c call) ([]byte, error) { return inProcess(ctx, w.models, who, c) })
	case how == wayHTTP && w.server != nil && op.calls(w.parents)[0].Tool != "":
		return w.overHTTP
	case how == wayReference && w.reference != nil:
		return w.reference.measure
	}
	return nil
}

// mix spreads a number over 64 bits, so that neighbours have nothing in common.
func mix(n int) uint64 {
	x := uint64(n) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// authorID and bookID are the ids of numbers.
func authorID(n int) string { return fmt.Sprintf("AU%08d", n) }
func bookID(n int) string   { return fmt.Sprintf("BK%08d", n) }

// authorOf is the author of a number. Ranks are all different, and in another order than ids.
func authorOf(n, parents int) authorRow {
	x := mix(n)
	return authorRow{
		ID: authorID(n), Name: fmt.Sprintf("Author %x", x>>32), City: fmt.Sprintf("City %d", x%500), Country: fmt.Sprintf("c%02d", x%20),
		Status: []string{"active", "paused", "left"}[x>>8%3], Rank: int64(n * 7919 % parents), Score: float64(x>>16%1000) / 8,
	}
}

// bookOf is the book of a number: each author has five, far apart.
func bookOf(n, parents int) bookRow {
	x := mix(^n)
	return bookRow{
		ID: bookID(n), AuthorID: authorID(n % parents), Title: fmt.Sprintf("The %d matters of %x", x%90+2, x>>40), Genre: fmt.Sprintf("g%02d", x>>4%12),
		Pages: int64(50 + x>>12%700), Price: float64(x>>20%10_000) / 100,
	}
}

// filledAt is createdAt and updatedAt of all rows, in milliseconds.
const filledAt int64 = 1_790_000_000_000

// authorCells and bookCells are the rows as the tables have them.
func authorCells(n, parents int) []any {
	a := authorOf(n, parents)
	return []any{a.ID, a.Name, a.City, a.Country, a.Status, a.Rank, a.Score, filledAt, filledAt, authorPresent}
}

func bookCells(n, parents int) []any {
	b := bookOf(n, parents)
	return []any{b.ID, b.AuthorID, b.Title, b.Genre, b.Pages, b.Price, filledAt, filledAt, bookPresent}
}

// The columns of the cells.
var (
	authorFields = []string{"_id", "name", "city", "country", "status", "rank", "score", "createdAt", "updatedAt", "__present"}
	bookFields   = []string{"_id", "authorId", "title", "genre", "pages", "price", "createdAt", "updatedAt", "__present"}
)

// ddl are the statements for the tables, and those for the indexes, which are cheaper to make when the rows are there.
func ddl(e sqlgen.Engine, registry *model.Registry) (tables, indexes []string) {
	for _, s := range sqlgen.DDL(e, registry.List()) {
		if strings.Contains(s, "INDEX") {
			indexes = append(indexes, s)
		} else {
			tables = append(tables, s)
		}
	}
	return tables, indexes
}

// fillSQLite makes a file, in WAL mode, that holds all its rows.
func fillSQLite(ctx context.Context, path string, parents int, registry *model.Registry) error {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=synchronous(off)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	tables, indexes := ddl(sqlgen.EngineSQLite, registry)
	for _, s := range append([]string{"BEGIN"}, tables...) {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	if err := fillTable(ctx, db, "authors", authorFields, parents, func(n int) []any { return authorCells(n, parents) }); err != nil {
		return err
	}
	if err := fillTable(ctx, db, "books", bookFields, parents*childrenOf, func(n int) []any { return bookCells(n, parents) }); err != nil {
		return err
	}
	for _, s := range append(indexes, "COMMIT", "PRAGMA wal_checkpoint(TRUNCATE)") {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// fillTable inserts rows, a hundred a statement.
func fillTable(ctx context.Context, db *sql.DB, table string, columns []string, rows int, cells func(int) []any) error {
	const together = 100
	var s *sql.Stmt
	defer func() {
		if s != nil {
			s.Close()
		}
	}()
	prepared := 0
	for at := 0; at < rows; at += together {
		n := min(together, rows-at)
		if n != prepared {
			if s != nil {
				s.Close()
			}
			one := "(?" + strings.Repeat(", ?", len(columns)-1) + ")"
			text := `INSERT INTO "` + table + `" ("` + strings.Join(columns, `", "`) + `") VALUES ` + one + strings.Repeat(", "+one, n-1)
			var err error
			if s, err = db.PrepareContext(ctx, text); err != nil {
				return err
			}
			prepared = n
		}
		args := make([]any, 0, n*len(columns))
		for i := range n {
			args = append(args, cells(at+i)...)
		}
		if _, err := s.ExecContext(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// fillPostgres makes a database in the cluster of the tests, with a role that reads and one that writes.
func (w *modelWorld) fillPostgres(ctx context.Context, tb *benchTB, registry *model.Registry) (err error) {
	defer func() { err = errors.Join(err, tb.ended(recover())) }()
	cluster := pgcluster.Start(tb)
	url := cluster.NewDatabase(tb)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	w.plain = &plainPostgres{conn}
	w.closers = append(w.closers, w.plain.close)
	if err := copyAll(ctx, conn, w.parents, registry); err != nil {
		return err
	}
	reader, read := cluster.NewRole(tb, url)
	writer, write := cluster.NewRole(tb, url)
	w.read, w.write = read, write
	return executed(ctx, conn, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO "+reader+", "+writer,
		"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+writer)
}

// copyAll makes the tables with all their rows.
func copyAll(ctx context.Context, conn *pgx.Conn, parents int, registry *model.Registry) error {
	tables, indexes := ddl(sqlgen.EnginePostgres, registry)
	if err := executed(ctx, conn, tables...); err != nil {
		return err
	}
	rows := func(n int, cells func(n, parents int) []any) pgx.CopyFromSource {
		return pgx.CopyFromSlice(n, func(i int) ([]any, error) { return cells(i, parents), nil })
	}
	if _, err := conn.CopyFrom(ctx, pgx.Identifier{"authors"}, authorFields, rows(parents, authorCells)); err != nil {
		return err
	}
	if _, err := conn.CopyFrom(ctx, pgx.Identifier{"books"}, bookFields, rows(parents*childrenOf, bookCells)); err != nil {
		return err
	}
	return executed(ctx, conn, append(indexes, "VACUUM (ANALYZE)")...)
}

// executed runs statements.
func executed(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// benchTB is where the cluster of the tests finds what it needs of a test. It panics where a test would end.
type benchTB struct {
	testing.TB // nil: what is not below is not used
	cleanups   []func()
}

// Helper does nothing.
func (*benchTB) Helper() {}

// Cleanup keeps f for close.
func (t *benchTB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Fatal, Fatalf and Skipf panic: without the cluster there is nothing to measure.
func (*benchTB) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (*benchTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (*benchTB) Skipf(format string, args ...any)  { panic(fmt.Sprintf(format, args...)) }

// ended is the error of what was recovered, nil when nothing panicked.
func (*benchTB) ended(recovered any) error {
	if recovered == nil {
		return nil
	}
	return fmt.Errorf("the PostgreSQL cluster: %v", recovered)
}

// close does what a test does at its end.
func (t *benchTB) close() (err error) {
	defer func() { err = t.ended(recover()) }()
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
	return nil
}
