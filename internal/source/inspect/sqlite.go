package inspect

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/model/plan"
)

// maxCounted bounds the rows that are counted to say how many a table has. It lies above the number of rows from which
// an unindexed sort is refused (models, section 2.9).
const maxCounted = 200_000

// SQLite describes the tables and views of the main database of db, ordered by name. Virtual tables, their shadow tables
// and views that no longer work are in the answer with Virtual set, and without columns.
func SQLite(ctx context.Context, db *sql.DB) ([]plan.Table, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a connection to inspect: %w", err)
	}
	defer conn.Close()
	in := &sqliteInspector{conn: conn, patience: sampleTime}
	tables, err := in.tables(ctx)
	if err != nil {
		return nil, fmt.Errorf("inspect the database: %w", err)
	}
	return tables, nil
}

// sqliteInspector reads one SQLite database.
type sqliteInspector struct {
	conn     *sql.Conn
	patience time.Duration // how long one table or view is looked at
	byCode   bool          // BINARY orders by code point: the database is UTF-8
}

// sqliteTable is a row of pragma table_list with the table's text.
type sqliteTable struct {
	name, kind, sql string
	withoutRowid    bool
}

// tables reads everything.
func (in *sqliteInspector) tables(ctx context.Context) ([]plan.Table, error) {
	var encoding string
	if err := in.conn.QueryRowContext(ctx, "PRAGMA encoding").Scan(&encoding); err != nil {
		return nil, err
	}
	in.byCode = encoding == "UTF-8"
	list, err := in.list(ctx)
	if err != nil {
		return nil, err
	}
	tables := make([]plan.Table, 0, len(list))
	for _, l := range list {
		t, err := in.table(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("table %q: %w", l.name, err)
		}
		tables = append(tables, t)
	}
	resolveForeign(tables)
	sortTables(tables)
	return tables, nil
}

// list gives the tables and views of the main database that are not SQLite's own.
func (in *sqliteInspector) list(ctx context.Context) ([]sqliteTable, error) {
	rows, err := in.conn.QueryContext(ctx, `
		SELECT l.name, l.type, l.wr, coalesce(s.sql, '')
		FROM pragma_table_list AS l LEFT JOIN main.sqlite_schema AS s ON s.name = l.name AND s.type IN ('table', 'view')
		WHERE l.schema = 'main' AND l.name NOT LIKE 'sqlite\_%' ESCAPE '\'
		ORDER BY l.name`)
	if err != nil {
		return nil, err
	}
	return collect(rows, func(l *sqliteTable) []any { return []any{&l.name, &l.kind, &l.withoutRowid, &l.sql} })
}

// table reads one table or view.
func (in *sqliteInspector) table(ctx context.Context, l sqliteTable) (plan.Table, error) {
	t := plan.Table{Name: l.name, View: l.kind == "view", Rows: -1}
	switch l.kind {
	case "virtual":
		t.Virtual = "it is a virtual table (" + moduleOf(l.sql) + ")"
		return t, nil
	case "shadow":
		t.Virtual = "it is a shadow table, which belongs to a virtual table"
		return t, nil
	}
	if err := in.columns(ctx, &t, readDeclaration(l.sql)); err != nil {
		if t.View && ctx.Err() == nil {
			t.Virtual = "the view does not work: a table or column that it reads is missing"
			return t, nil
		}
		return t, err
	}
	if t.View {
		return t, in.sample(ctx, &t, "")
	}
	if err := in.indexes(ctx, &t); err != nil {
		return t, err
	}
	if err := in.foreign(ctx, &t); err != nil {
		return t, err
	}
	in.identity(&t, l)
	if err := in.count(ctx, &t, l); err != nil {
		return t, err
	}
	return t, in.sample(ctx, &t, lastRows(&t, l))
}

// columns reads the columns and the key.
func (in *sqliteInspector) columns(ctx context.Context, t *plan.Table, d declared) error {
	type row struct {
		name, native    string
		notNull         bool
		def             sql.NullString
		key, hiddenKind int
	}
	rows, err := in.conn.QueryContext(ctx,
		"SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?) WHERE hidden <> 1 ORDER BY cid", t.Name)
	if err != nil {
		return err
	}
	list, err := collect(rows, func(r *row) []any {
		return []any{&r.name, &r.native, &r.notNull, &r.def, &r.key, &r.hiddenKind}
	})
	if err != nil {
		return err
	}
	keys := map[int]string{}
	for _, r := range list {
		c := plan.Column{
			Name: r.name, Native: r.native, Type: claimedType(r.native), Nullable: !r.notNull && r.key == 0,
			Default: r.def.Valid, Generated: r.hiddenKind >= 2, Enum: d.enums[strings.ToLower(r.name)],
		}
		if collation := d.collations[strings.ToLower(r.name)]; collation != "" && !strings.EqualFold(collation, "BINARY") {
			c.Collation = strings.ToUpper(collation)
		}
		c.ByCode = in.byCode && c.Collation == ""
		t.Columns = append(t.Columns, c)
		if r.key > 0 {
			keys[r.key] = r.name
		}
	}
	for i := 1; i <= len(keys); i++ {
		t.Key = append(t.Key, keys[i])
	}
	return nil
}

// sqliteIndex is a row of pragma index_list.
type sqliteIndex struct {
	name    string
	unique  bool
	origin  string // c: CREATE INDEX, u: UNIQUE, pk: PRIMARY KEY
	partial bool
}

// indexes reads the indexes that cover all rows, in the order of their creation.
func (in *sqliteInspector) indexes(ctx context.Context, t *plan.Table) error {
	rows, err := in.conn.QueryContext(ctx,
		"SELECT name, \"unique\", origin, partial FROM pragma_index_list(?) ORDER BY seq DESC", t.Name)
	if err != nil {
		return err
	}
	list, err := collect(rows, func(x *sqliteIndex) []any { return []any{&x.name, &x.unique, &x.origin, &x.partial} })
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.partial {
			continue
		}
		index, err := in.index(ctx, t, x)
		if err != nil {
			return err
		}
		t.Indexes = append(t.Indexes, index)
		if x.unique && x.origin != "pk" && !slices.Contains(index.Columns, "") {
			t.Unique = append(t.Unique, index.Columns)
		}
	}
	return nil
}

// index reads the columns of one index.
func (in *sqliteInspector) index(ctx context.Context, t *plan.Table, x sqliteIndex) (plan.TableIndex, error) {
	type part struct {
		name      sql.NullString
		desc      bool
		collation sql.NullString
	}
	index := plan.TableIndex{Name: x.name, Unique: x.unique, ByCode: in.byCode}
	rows, err := in.conn.QueryContext(ctx, "SELECT name, \"desc\", coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", x.name)
	if err != nil {
		return index, err
	}
	list, err := collect(rows, func(p *part) []any { return []any{&p.name, &p.desc, &p.collation} })
	if err != nil {
		return index, err
	}
	for _, p := range list {
		index.Columns = append(index.Columns, p.name.String)
		index.Desc = append(index.Desc, p.desc)
		index.ByCode = index.ByCode && strings.EqualFold(p.collation.String, "BINARY")
	}
	return index, nil
}

// foreign reads the foreign keys in the order of their declaration. The names are as written there (see resolveForeign).
func (in *sqliteInspector) foreign(ctx context.Context, t *plan.Table) error {
	type row struct {
		id       int
		table    string
		from, to sql.NullString
	}
	rows, err := in.conn.QueryContext(ctx,
		"SELECT id, \"table\", \"from\", \"to\" FROM pragma_foreign_key_list(?) ORDER BY id DESC, seq", t.Name)
	if err != nil {
		return err
	}
	list, err := collect(rows, func(r *row) []any { return []any{&r.id, &r.table, &r.from, &r.to} })
	if err != nil {
		return err
	}
	last := -1
	for _, r := range list {
		if r.id != last {
			t.Foreign = append(t.Foreign, plan.ForeignKey{Table: r.table})
			last = r.id
		}
		f := &t.Foreign[len(t.Foreign)-1]
		f.Columns = append(f.Columns, r.from.String)
		if r.to.Valid {
			f.References = append(f.References, r.to.String)
		}
	}
	return nil
}

// resolveForeign gives the names in foreign keys the spelling that the tables have: SQLite takes any case there. Without
// columns a reference means the other table's key.
func resolveForeign(tables []plan.Table) {
	find := func(name string) *plan.Table {
		for i := range tables {
			if strings.EqualFold(tables[i].Name, name) {
				return &tables[i]
			}
		}
		return nil
	}
	spell := func(t *plan.Table, names []string) {
		for i, name := range names {
			for _, c := range t.Columns {
				if strings.EqualFold(c.Name, name) {
					names[i] = c.Name
				}
			}
		}
	}
	for i := range tables {
		for j := range tables[i].Foreign {
			f := &tables[i].Foreign[j]
			spell(&tables[i], f.Columns)
			other := find(f.Table)
			if other == nil {
				continue
			}
			f.Table = other.Name
			if f.References == nil {
				f.References = slices.Clone(other.Key)
			}
			spell(other, f.References)
		}
	}
}

// identity marks the column that is the row's number, which SQLite assigns: an INTEGER PRIMARY KEY that needs no index of
// its own.
func (in *sqliteInspector) identity(t *plan.Table, l sqliteTable) {
	if l.withoutRowid || len(t.Key) != 1 {
		return
	}
	c := column(t, t.Key[0])
	if !strings.EqualFold(c.Native, "INTEGER") {
		return
	}
	for _, x := range t.Indexes {
		if strings.HasPrefix(x.Name, "sqlite_autoindex_") && slices.Equal(x.Columns, t.Key) {
			return
		}
	}
	c.Identity = true
}

// count tells how many rows t has: exactly when they are few, else by the statistics or by the greatest row number.
func (in *sqliteInspector) count(ctx context.Context, t *plan.Table, l sqliteTable) error {
	name := quote(t.Name)
	err := in.conn.QueryRowContext(ctx,
		fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM main.%s LIMIT %d)", name, maxCounted)).Scan(&t.Rows)
	if err != nil || t.Rows < maxCounted || l.withoutRowid {
		return err
	}
	var greatest sql.NullInt64
	if err := in.conn.QueryRowContext(ctx, fmt.Sprintf("SELECT max(rowid) FROM main.%s", name)).Scan(&greatest); err != nil {
		return nil // a column of the table is called rowid: the bound stands
	}
	t.Rows = max(t.Rows, greatest.Int64)
	return nil
}

// quote quotes a name for SQLite.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// collect reads all rows, each into what fields points at.
func collect[T any](rows *sql.Rows, fields func(*T) []any) ([]T, error) {
	defer rows.Close()
	var out []T
	for rows.Next() {
		var t T
		if err := rows.Scan(fields(&t)...); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, rows.Err()
}
