// Package inspect reads what a database is: its tables, columns, keys, references and indexes, and what the roles that
// tabellion uses can do in it.
//
//	tables, err := inspect.SQLite(ctx, db)
//	tables, err := inspect.Postgres(ctx, pool)
//	report, err := inspect.PostgresRights(ctx, reader, writer)
//
// It only reads, mostly catalogs. SQLite keeps any type in any column, so there the types of a bounded sample of rows are
// looked at too: a column's type is what it holds, not what it claims. Objects of the system, of extensions, and those
// that the role may not see are not in the answer.
package inspect

import (
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/model/plan"
)

// sortTables orders tables by schema and name.
func sortTables(tables []plan.Table) {
	slices.SortFunc(tables, func(a, b plan.Table) int {
		if c := strings.Compare(a.Schema, b.Schema); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// column finds a column of t by its exact name, nil when there is none.
func column(t *plan.Table, name string) *plan.Column {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	return nil
}
