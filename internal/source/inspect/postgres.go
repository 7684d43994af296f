package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Postgres describes the tables, views and materialized views that the pool's role may read, in the schemas that it may
// use, ordered by schema and name. Of a partitioned table only the whole is there. Tables that inherit from another, and
// foreign tables, are in the answer with Virtual set, and without columns. Columns that the role may not read, objects of
// extensions, and the system's own schemas are not.
func Postgres(ctx context.Context, pool *pgxpool.Pool) ([]plan.Table, error) {
	var tables []plan.Table
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, pool, opts, func(tx pgx.Tx) error {
		in := &postgresInspector{tx: tx, byOID: map[uint32]*plan.Table{}}
		var err error
		tables, err = in.tables(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inspect the database: %w", err)
	}
	return tables, nil
}

// postgresInspector reads one PostgreSQL database in one snapshot.
type postgresInspector struct {
	tx     pgx.Tx
	codeDB bool // the database's own collation orders by code point
	list   []*plan.Table
	byOID  map[uint32]*plan.Table // those whose columns are read
	oids   []uint32
}

// tables reads everything.
func (in *postgresInspector) tables(ctx context.Context) ([]plan.Table, error) {
	if err := in.tx.QueryRow(ctx, codeDBSQL).Scan(&in.codeDB); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{in.relations, in.columns, in.checks, in.indexes, in.foreign} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	tables := make([]plan.Table, 0, len(in.list))
	for _, t := range in.list {
		tables = append(tables, *t)
	}
	sortTables(tables)
	return tables, nil
}

// codeDBSQL asks whether the database's own collation orders by code point. Servers before 15 know no provider but the C
// library; the built-in one of later servers orders by nothing but code points.
const codeDBSQL = `
	SELECT CASE coalesce(to_jsonb(d) ->> 'datlocprovider', 'c')
		WHEN 'c' THEN d.datcollate IN ('C', 'POSIX') OR d.datcollate LIKE 'C.%'
		WHEN 'b' THEN true ELSE false END
	FROM pg_database d WHERE d.datname = current_database()`

// relationsSQL lists what can be read. The estimate of a table with partitions or heirs is the sum of theirs.
const relationsSQL = `
	WITH RECURSIVE family(root, member) AS (
		SELECT oid, oid FROM pg_class WHERE relkind IN ('r', 'p', 'm')
		UNION ALL
		SELECT f.root, i.inhrelid FROM family f JOIN pg_inherits i ON i.inhparent = f.member
	), estimate AS (
		SELECT f.root, sum(greatest(c.reltuples, 0)) AS rows, bool_or(c.reltuples >= 0) AS known
		FROM family f JOIN pg_class c ON c.oid = f.member WHERE c.relkind <> 'p' GROUP BY f.root
	)
	SELECT c.oid, n.nspname, c.relname, c.relkind::text, coalesce(obj_description(c.oid, 'pg_class'), ''),
		coalesce(CASE WHEN e.known THEN e.rows END, -1)::bigint,
		coalesce((SELECT pn.nspname || '.' || p.relname FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent
			JOIN pg_namespace pn ON pn.oid = p.relnamespace WHERE i.inhrelid = c.oid ORDER BY i.inhseqno LIMIT 1), '')
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN estimate e ON e.root = c.oid
	WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
		AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
		AND has_schema_privilege(n.oid, 'USAGE')
		AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'))
		AND NOT EXISTS (SELECT 1 FROM pg_depend d
			WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
	ORDER BY n.nspname, c.relname`

// relations reads which tables and views there are.
func (in *postgresInspector) relations(ctx context.Context) error {
	rows, err := in.tx.Query(ctx, relationsSQL)
	if err != nil {
		return err
	}
	var oid uint32
	var kind, parent string
	var t plan.Table
	_, err = pgx.ForEachRow(rows, []any{&oid, &t.Schema, &t.Name, &kind, &t.Comment, &t.Rows, &parent}, func() error {
		found := t
		found.View = kind == "v" || kind == "m"
		in.list = append(in.list, &found)
		switch {
		case kind == "f":
			found.Virtual = "it is a foreign table, which lives on another server"
		case parent != "":
			found.Virtual = "it inherits from " + parent + ", which shows its rows too"
		default:
			in.byOID[oid] = &found
			in.oids = append(in.oids, oid)
		}
		return nil
	})
	return err
}

// columnsSQL lists the columns that the role may read. base is the type below a chain of domains; 7 in the type of a trigger
// is: for each row, before, insert.
const columnsSQL = `
	WITH RECURSIVE base(start, oid, typmod) AS (
		SELECT oid, oid, -1 FROM pg_type WHERE typtype = 'd'
		UNION ALL
		SELECT b.start, t.typbasetype, t.typtypmod FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
	)
	SELECT a.attrelid, a.attname, format_type(a.atttypid, a.atttypmod), t.typname, t.typtype::text,
		t.typnamespace = 'pg_catalog'::regnamespace, coalesce(et.typname, ''), coalesce(et.typtype::text, ''),
		a.attnotnull OR dt.typnotnull, a.atthasdef OR dt.typdefault IS NOT NULL, a.attidentity::text, a.attgenerated::text,
		coalesce(pg_get_expr(d.adbin, d.adrelid), ''), coalesce(col_description(a.attrelid, a.attnum), ''),
		CASE WHEN co.collname <> 'default' THEN co.collname ELSE '' END,
		coalesce(co.collname IN ('C', 'POSIX', 'ucs_basic') OR co.collcollate LIKE 'C.%', false),
		coalesce(co.collname = 'default', false),
		EXISTS (SELECT 1 FROM pg_trigger g WHERE g.tgrelid = a.attrelid AND NOT g.tgisinternal AND g.tgtype & 7 = 7),
		ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder),
		ARRAY(SELECT pg_get_constraintdef(k.oid) FROM pg_constraint k WHERE k.contypid IN
			(SELECT b.oid FROM base b WHERE b.start = a.atttypid) ORDER BY k.conname)
	FROM pg_attribute a
		JOIN pg_type dt ON dt.oid = a.atttypid
		JOIN pg_type t ON t.oid = coalesce((SELECT b.oid FROM base b JOIN pg_type bt ON bt.oid = b.oid
			WHERE b.start = a.atttypid AND bt.typtype <> 'd'), a.atttypid)
		LEFT JOIN pg_type et ON et.oid = t.typelem AND t.typcategory = 'A'
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		LEFT JOIN pg_collation co ON co.oid = a.attcollation
	WHERE a.attrelid = ANY($1) AND a.attnum > 0 AND NOT a.attisdropped
		AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
	ORDER BY a.attrelid, a.attnum`

// postgresColumn is one row of columnsSQL.
type postgresColumn struct {
	table                           uint32
	c                               plan.Column
	base, kind, element, elementTyp string
	system, notNull                 bool
	identity, generated, def        string
	collated, defaultCollation      bool
	triggered                       bool
	labels, checks                  []string
}

// columns reads the columns of all tables.
func (in *postgresInspector) columns(ctx context.Context) error {
	rows, err := in.tx.Query(ctx, columnsSQL, in.oids)
	if err != nil {
		return err
	}
	var r postgresColumn
	_, err = pgx.ForEachRow(rows, []any{&r.table, &r.c.Name, &r.c.Native, &r.base, &r.kind, &r.system, &r.element, &r.elementTyp,
		&r.notNull, &r.c.Default, &r.identity, &r.generated, &r.def, &r.c.Comment, &r.c.Collation, &r.collated,
		&r.defaultCollation, &r.triggered, &r.labels, &r.checks}, func() error {
		t := in.byOID[r.table]
		t.Columns = append(t.Columns, in.column(r))
		return nil
	})
	return err
}

// column makes a column of a row.
func (in *postgresInspector) column(r postgresColumn) plan.Column {
	c := r.c
	c.Nullable = !r.notNull
	c.Generated = r.generated != ""
	c.Identity = r.identity != "" || strings.HasPrefix(r.def, "nextval(")
	c.Type = nativeType(r)
	// What no model can write, such as the words of a search, a trigger may fill in.
	c.Default = c.Default || c.Type == "" && r.triggered
	if c.Type == model.String {
		c.ByCode = r.kind != "e" && (r.collated || r.defaultCollation && in.codeDB)
	} else {
		c.Collation = ""
	}
	if r.kind == "e" {
		c.Enum = slices.Clone(r.labels)
	}
	for _, check := range r.checks {
		if _, values := listOf(checkTokens(check)); values != nil {
			c.Enum = values
		}
	}
	return c
}

// checkTokens are the tokens of a check as pg_get_constraintdef writes it, without the keyword.
func checkTokens(definition string) []token {
	tokens := lex(definition)
	if len(tokens) == 0 || !tokens[0].is("check") {
		return nil
	}
	return tokens[1:]
}

// scalars are the built-in types that have a counterpart.
var scalars = map[string]model.Type{
	"int2": model.Int, "int4": model.Int, "int8": model.Long,
	"float4": model.Float, "float8": model.Double, "numeric": model.Decimal,
	"bool": model.Boolean, "text": model.String, "varchar": model.String, "bpchar": model.String, "name": model.String,
	"uuid": model.UUID, "date": model.Day, "timestamp": model.Timestamp, "timestamptz": model.Timestamp,
	"bytea": model.Bytes, "json": model.Any, "jsonb": model.Any,
}

// nativeType is the nearest type to that of a column, "" when there is none.
func nativeType(r postgresColumn) model.Type {
	switch {
	case r.kind == "e":
		return model.String
	case r.element != "":
		if r.elementTyp == "e" || scalars[r.element] != "" && r.element != "bytea" {
			return model.Array
		}
		return ""
	case r.base == "citext":
		return model.String
	case !r.system:
		return ""
	}
	return scalars[r.base]
}

// checksSQL lists the checks of tables that are about one column.
const checksSQL = `
	SELECT k.conrelid, a.attname, pg_get_constraintdef(k.oid)
	FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[1]
	WHERE k.contype = 'c' AND k.conrelid = ANY($1) AND array_length(k.conkey, 1) = 1 AND k.convalidated
	ORDER BY k.conrelid, k.conname`

// checks reads the lists of values that checks give.
func (in *postgresInspector) checks(ctx context.Context) error {
	rows, err := in.tx.Query(ctx, checksSQL, in.oids)
	if err != nil {
		return err
	}
	var table uint32
	var name, definition string
	_, err = pgx.ForEachRow(rows, []any{&table, &name, &definition}, func() error {
		c := column(in.byOID[table], name)
		if c == nil {
			return nil
		}
		if of, values := listOf(checkTokens(definition)); of == name && c.Type == model.String {
			c.Enum = values
		}
		return nil
	})
	return err
}

// indexesSQL lists the valid indexes over all rows. A column's name is null for an expression. by_code: its collation is
// "C", by name, which is what an ORDER BY ... COLLATE "C" can use; null where it has no collation.
const indexesSQL = `
	SELECT x.indrelid, i.relname, x.indisunique, x.indisprimary, x.indimmediate, am.amname,
		ARRAY(SELECT coalesce(a.attname::text, '') FROM unnest(x.indkey) WITH ORDINALITY AS k(num, pos)
			LEFT JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.num AND k.num > 0
			WHERE k.pos <= x.indnkeyatts ORDER BY k.pos),
		ARRAY(SELECT o.option & 1 = 1 FROM unnest(x.indoption) WITH ORDINALITY AS o(option, pos) ORDER BY o.pos),
		NOT EXISTS (SELECT 1 FROM unnest(x.indcollation) AS c(oid) WHERE c.oid <> 0 AND c.oid <> 'pg_catalog."C"'::regcollation)
	FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am am ON am.oid = i.relam
	WHERE x.indrelid = ANY($1) AND x.indpred IS NULL AND x.indisvalid
	ORDER BY x.indrelid, i.relname`

// indexes reads keys, unique indexes and the ordered indexes.
func (in *postgresInspector) indexes(ctx context.Context) error {
	rows, err := in.tx.Query(ctx, indexesSQL, in.oids)
	if err != nil {
		return err
	}
	var table uint32
	var method string
	var primary, immediate bool
	var x plan.TableIndex
	_, err = pgx.ForEachRow(rows, []any{&table, &x.Name, &x.Unique, &primary, &immediate, &method, &x.Columns, &x.Desc, &x.ByCode}, func() error {
		t := in.byOID[table]
		index := x
		index.Columns, index.Desc = slices.Clone(x.Columns), slices.Clone(x.Desc)
		switch {
		case primary:
			t.Key = index.Columns
		case index.Unique && immediate && !slices.Contains(index.Columns, ""):
			t.Unique = append(t.Unique, index.Columns)
		}
		if method == "btree" {
			t.Indexes = append(t.Indexes, index)
		}
		return nil
	})
	return err
}

// foreignSQL lists the foreign keys.
const foreignSQL = `
	SELECT k.conrelid, k.conname, n.nspname, c.relname,
		ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS x(num, pos)
			JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = x.num ORDER BY x.pos),
		ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS x(num, pos)
			JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = x.num ORDER BY x.pos)
	FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE k.contype = 'f' AND k.conparentid = 0 AND k.conrelid = ANY($1)
	ORDER BY k.conrelid, k.conkey, k.conname`

// foreign reads the foreign keys, in the order of their columns.
func (in *postgresInspector) foreign(ctx context.Context) error {
	rows, err := in.tx.Query(ctx, foreignSQL, in.oids)
	if err != nil {
		return err
	}
	var table uint32
	var f plan.ForeignKey
	_, err = pgx.ForEachRow(rows, []any{&table, &f.Name, &f.Schema, &f.Table, &f.Columns, &f.References}, func() error {
		found := f
		found.Columns, found.References = slices.Clone(f.Columns), slices.Clone(f.References)
		t := in.byOID[table]
		t.Foreign = append(t.Foreign, found)
		return nil
	})
	return err
}
