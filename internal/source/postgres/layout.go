package postgres

import (
	"context"
	"strconv"

	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
)

// The catalog queries give what statements need: real types below domains, collations by number, the order of nulls in
// indexes. Tables come in the order of the search path.
const (
	relationsSQL = `
		SELECT c.oid, n.nspname, c.relname, c.relkind IN ('v', 'm'),
			CASE WHEN c.reltuples >= 0 THEN c.reltuples::int8 ELSE pg_relation_size(c.oid) / 100 END
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
		ORDER BY array_position(current_schemas(false), n.nspname) NULLS LAST, n.nspname, c.relname`

	columnsSQL = `
		WITH RECURSIVE base(start, oid, required) AS (
			SELECT oid, oid, false FROM pg_type
			UNION ALL
			SELECT b.start, t.typbasetype, b.required OR t.typnotnull FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
		)
		SELECT a.attrelid, a.attname, format_type(a.atttypid, a.atttypmod),
			CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname ELSE 'other' END,
			t.typtype = 'e', t.typcategory = 'A', NOT (a.attnotnull OR b.required), a.attcollation,
			CASE WHEN a.attcollation = 0 OR k.collname = 'default' THEN '' ELSE k.collname END,
			CASE WHEN k.collname = 'default' THEN d.datlocprovider = 'c' AND (d.datcollate IN ('C', 'POSIX') OR d.datcollate ILIKE 'C.utf%')
				ELSE coalesce(k.collname IN ('C', 'POSIX', 'ucs_basic') OR k.collprovider = 'c' AND k.collcollate ILIKE 'C.utf%', false) END
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			JOIN base b ON b.start = a.atttypid JOIN pg_type t ON t.oid = b.oid AND t.typtype <> 'd'
			LEFT JOIN pg_collation k ON k.oid = a.attcollation
			JOIN pg_database d ON d.datname = current_database()
		WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
			AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
		ORDER BY a.attrelid, a.attnum`

	indexesSQL = `
		SELECT i.indrelid, x.relname, i.indisunique, i.indpred IS NOT NULL, i.indisprimary, s.n = 1, coalesce(a.attname, ''),
			i.indoption[s.n - 1] & 1 = 1, i.indoption[s.n - 1] & 2 = 0, i.indcollation[s.n - 1]
		FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_class c ON c.oid = i.indrelid
			JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_am m ON m.oid = x.relam
			CROSS JOIN LATERAL generate_series(1, i.indnkeyatts::int) AS s(n)
			LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[s.n - 1]
		WHERE m.amname = 'btree' AND i.indisvalid AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
		ORDER BY i.indrelid, x.relname, s.n`

	constraintsSQL = `
		SELECT k.conrelid, k.conname, a.attname
		FROM pg_constraint k CROSS JOIN LATERAL unnest(k.conkey) WITH ORDINALITY AS u(num, n)
			JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.num
		WHERE k.contype IN ('c', 'f', 'x') ORDER BY k.conrelid, k.conname, u.n`
)

// found collects tables by their number in the catalog.
type found struct {
	list  []*sqlgen.Table
	byOID map[string]*sqlgen.Table
	coll  map[string]string // the collation that text of a column is compared by, by table.column
}

// codeCollation is the number of the collation "C".
const codeCollation = "950"

// layouts reads the catalog.
func (s *Source) layouts(ctx context.Context) ([]*sqlgen.Table, error) {
	f := &found{byOID: map[string]*sqlgen.Table{}, coll: map[string]string{}}
	err := s.engine.View(ctx, true, func(c sqlexec.Conn) error {
		for _, step := range []struct {
			sql  string
			each func([]string)
		}{{relationsSQL, f.relation}, {columnsSQL, f.column}, {indexesSQL, f.index}, {constraintsSQL, f.constraint}} {
			err := c.Query(ctx, sqlgen.Statement{Text: step.sql}, func(cells []any) error {
				row := make([]string, len(cells))
				for i, cell := range cells {
					row[i], _ = cell.(string)
				}
				step.each(row)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return f.list, err
}

// relation adds a table or view.
func (f *found) relation(row []string) {
	rows, _ := strconv.ParseInt(row[4], 10, 64)
	t := &sqlgen.Table{Schema: row[1], Name: row[2], View: row[3] == "t", Rows: rows, Constraints: map[string][]string{}}
	f.byOID[row[0]] = t
	f.list = append(f.list, t)
}

// column adds a column.
func (f *found) column(row []string) {
	t := f.byOID[row[0]]
	if t == nil {
		return
	}
	c := sqlgen.Column{
		Name: row[1], Native: row[2], Base: row[3], Enum: row[4] == "t", Array: row[5] == "t", Nullable: row[6] == "t",
		Collation: row[8], ByCode: row[9] == "t",
	}
	t.Columns = append(t.Columns, c)
	compared := codeCollation
	if c.ByCode || row[7] == "0" {
		compared = row[7]
	}
	f.coll[row[0]+"."+c.Name] = compared
}

// index adds a column of an index, and the index with its first.
func (f *found) index(row []string) {
	t := f.byOID[row[0]]
	if t == nil {
		return
	}
	if row[5] == "t" {
		t.Indexes = append(t.Indexes, sqlgen.Index{Name: row[1], Unique: row[2] == "t", Partial: row[3] == "t"})
	}
	x := &t.Indexes[len(t.Indexes)-1]
	x.Keys = append(x.Keys, sqlgen.IndexKey{Column: row[6], Desc: row[7] == "t", NullsLast: row[8] == "t", ByCode: row[9] == f.coll[row[0]+"."+row[6]]})
	if row[4] == "t" {
		t.Key = append(t.Key, row[6])
	}
}

// constraint adds a column of a check or foreign key.
func (f *found) constraint(row []string) {
	if t := f.byOID[row[0]]; t != nil {
		t.Constraints[row[1]] = append(t.Constraints[row[1]], row[2])
	}
}
