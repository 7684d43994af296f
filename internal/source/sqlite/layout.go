package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// extra is what statements need to know about a table beside its description.
type extra struct {
	strict, rowid bool
	partial       []string // indexes that hold some rows only
}

// extras asks for all tables.
func (s *Source) extras(ctx context.Context) (map[string]extra, error) {
	out := map[string]extra{}
	err := s.engine.View(ctx, true, func(c sqlexec.Conn) error {
		list := sqlgen.Statement{Text: "SELECT name, strict, wr, type FROM pragma_table_list WHERE schema = 'main'"}
		err := c.Query(ctx, list, func(cells []any) error {
			name, _ := cells[0].(string)
			out[name] = extra{strict: cells[1] == int64(1), rowid: cells[2] == int64(0) && cells[3] == "table"}
			return nil
		})
		if err != nil {
			return err
		}
		partial := sqlgen.Statement{Text: "SELECT l.name, i.name FROM pragma_table_list AS l, pragma_index_list(l.name) AS i WHERE l.schema = 'main' AND l.type = 'table' AND i.partial = 1"}
		return c.Query(ctx, partial, func(cells []any) error {
			table, _ := cells[0].(string)
			index, _ := cells[1].(string)
			e := out[table]
			e.partial = append(e.partial, index)
			out[table] = e
			return nil
		})
	})
	return out, err
}

// tableOf turns the description of a table into what statements need.
func tableOf(t *plan.Table, e extra) *sqlgen.Table {
	out := &sqlgen.Table{Name: t.Name, View: t.View, Key: t.Key, Rows: t.Rows, RowID: e.rowid}
	for _, c := range t.Columns {
		if strings.EqualFold(c.Name, "rowid") {
			out.RowID = false
		}
		out.Columns = append(out.Columns, sqlgen.Column{
			Name: c.Name, Base: strings.ToLower(c.Native), Nullable: c.Nullable && !c.Identity, Collation: c.Collation,
			ByCode: c.ByCode, Exact: c.Identity || e.strict && !strings.EqualFold(c.Native, "ANY") && !strings.EqualFold(c.Native, "REAL"),
		})
	}
	for _, x := range t.Indexes {
		index := sqlgen.Index{Name: x.Name, Unique: x.Unique, Partial: slices.Contains(e.partial, x.Name)}
		for i, name := range x.Columns {
			desc := i < len(x.Desc) && x.Desc[i]
			index.Keys = append(index.Keys, sqlgen.IndexKey{Column: name, Desc: desc, NullsLast: desc, ByCode: x.ByCode})
		}
		out.Indexes = append(out.Indexes, index)
	}
	if len(t.Key) > 0 {
		out.Indexes = append(out.Indexes, keyIndex(out))
	}
	return out
}

// keyIndex is the order in which the table itself lies, or that of its key's index.
func keyIndex(t *sqlgen.Table) sqlgen.Index {
	index := sqlgen.Index{Unique: true}
	for _, name := range t.Key {
		c := t.Column(name)
		index.Keys = append(index.Keys, sqlgen.IndexKey{Column: name, ByCode: c != nil && c.ByCode})
	}
	return index
}
