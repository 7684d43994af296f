package sqlgen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// MigrationError says what a migration would have to do that is not adding: nothing is dropped, renamed or narrowed by
// statements that a machine wrote.
type MigrationError struct{ Problems []string }

// Error is the problems, one a line, behind the stable prefix (models, section 22.1).
func (e *MigrationError) Error() string {
	return "MIGRATION_UNSUPPORTED: " + strings.Join(e.Problems, "\n")
}

// Migrate writes the statements that bring tables to what models need: missing tables, columns (of archives too) and
// indexes, and wider number types. Columns are added so that rows without a value are allowed. What no addition can do
// is a *MigrationError, beside the statements for the rest; it is text for a person, never sent. find gives the table of a
// model as it is, nil when there is none; columns that no model names are left alone.
func Migrate(e Engine, models []*model.Model, find func(*model.Model) *plan.Table) ([]string, error) {
	var out []string
	var problems []string
	for _, m := range models {
		if m.View {
			continue
		}
		t := find(m)
		if t == nil {
			out = append(out, DDL(e, []*model.Model{m})...)
			continue
		}
		statements, bad := migrateTable(e, m, t)
		out, problems = append(out, statements...), append(problems, bad...)
	}
	if problems != nil {
		return out, &MigrationError{problems}
	}
	return out, nil
}

// migrateTable writes the statements for one table.
func migrateTable(e Engine, m *model.Model, t *plan.Table) (out, problems []string) {
	if t.View || t.Virtual != "" {
		return nil, []string{fmt.Sprintf("model %s: %s is no table", m.Name, t)}
	}
	if key := spelled(e, t, keyColumns(m)); len(key) > 0 && !sameNames(key, t.Key) {
		problems = append(problems, fmt.Sprintf("model %s: the key of %s is (%s) and would have to be (%s)", m.Name, t,
			strings.Join(t.Key, ", "), strings.Join(key, ", ")))
	}
	for _, f := range stored(m) {
		c := columnOf(e, t, f.Column)
		if c == nil {
			out = append(out, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s;", quotedTable(e, m), quote(f.Column), columnType(e, m, f)))
			continue
		}
		statement, problem := widen(e, m, f, c)
		if statement != "" {
			out = append(out, statement)
		}
		if problem != "" {
			problems = append(problems, fmt.Sprintf("model %s, field %s: %s", m.Name, f.Name, problem))
		}
	}
	if ofReference(m) && columnOf(e, t, PresentColumn) == nil {
		problems = append(problems, fmt.Sprintf("model %s: %s has no column %s, and which fields of its rows are stored cannot be "+
			"known; name it with table to read it as it is", m.Name, t, PresentColumn))
	}
	return append(out, missingIndexes(e, m, t)...), problems
}

// columnOf finds a column; SQLite takes any case.
func columnOf(e Engine, t *plan.Table, name string) *plan.Column {
	for i := range t.Columns {
		if c := &t.Columns[i]; c.Name == name || e == EngineSQLite && strings.EqualFold(c.Name, name) {
			return c
		}
	}
	return nil
}

// spelled gives names the spelling that the table has.
func spelled(e Engine, t *plan.Table, names []string) []string {
	out := slices.Clone(names)
	for i, name := range names {
		if c := columnOf(e, t, name); c != nil {
			out[i] = c.Name
		}
	}
	return out
}

// sameNames tells whether two lists hold the same names, in any order.
func sameNames(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(name string) bool { return !slices.Contains(b, name) })
}

// wider are the types that a column may be widened to.
var wider = map[model.Type][]model.Type{
	model.Int:   {model.Long, model.Float, model.Double},
	model.Long:  {model.Float, model.Double},
	model.Float: {model.Double},
}

// widen writes the statement that makes a column wide enough for a field, or says that none can.
func widen(e Engine, m *model.Model, f *model.Field, c *plan.Column) (statement, problem string) {
	want := storedAs(e, m, f)
	have := c.Type
	switch {
	case holds(e, have, want):
		return "", ""
	case e == EnginePostgres && slices.Contains(wider[have], want):
		return fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE %s;", quotedTable(e, m), quote(c.Name), columnType(e, m, f)), ""
	}
	return "", fmt.Sprintf("the column %s is %s (%s), and cannot become %s by an addition", c.Name, c.Native, have, f.Type)
}

// storedAs is the type that a field's column has in a database.
func storedAs(e Engine, m *model.Model, f *model.Field) model.Type {
	switch f.Type {
	case model.Date:
		return model.Long
	case model.Number:
		if e == EnginePostgres && f.Added {
			return model.Long
		}
	case model.Object, model.Array:
		return model.Any
	case model.Float:
		return model.Double
	}
	return f.Type
}

// holds tells whether a column of one type holds all values of another as it is.
func holds(e Engine, have, want model.Type) bool {
	if e == EngineSQLite {
		return sqliteClass(have) == sqliteClass(want) || want == model.Number && have.Numeric() || want == model.Double && have == model.Number
	}
	switch want {
	case model.Int:
		return have == model.Int || have == model.Long
	case model.Number:
		return have == model.Number || have == model.Decimal
	case model.Double:
		return have == model.Double || have == model.Float
	case model.Any:
		return have == model.Any || have == model.Array
	}
	return have == want
}

// sqliteClass puts types together that SQLite stores alike.
func sqliteClass(t model.Type) string {
	switch {
	case t.Integer() || t == model.Boolean:
		return "integer"
	case t == model.Float || t == model.Double || t == model.Number:
		return "real"
	case t == model.Bytes:
		return "blob"
	}
	return "text"
}

// missingIndexes writes the indexes that the table does not have.
func missingIndexes(e Engine, m *model.Model, t *plan.Table) []string {
	if m.ArchiveOf != nil {
		return nil
	}
	var out []string
	for _, x := range m.Indexes {
		text, _ := createIndex(e, m, x)
		if text != "" && !hasIndex(e, m, x, t) && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// hasIndex tells whether the table has an index that does what x is for: on the same columns and unique where x is, or
// beginning with the same columns in their order and directions.
func hasIndex(e Engine, m *model.Model, x model.Index, t *plan.Table) bool {
	var columns []string
	var desc []bool
	for _, k := range x.Keys {
		columns, desc = append(columns, m.Field(k.Field).Column), append(desc, k.Desc)
	}
	columns = spelled(e, t, columns)
	if x.Unique {
		return sameNames(columns, t.Key) || slices.ContainsFunc(t.Unique, func(u []string) bool { return sameNames(columns, u) })
	}
	return slices.ContainsFunc(t.Indexes, func(have plan.TableIndex) bool {
		n := len(columns)
		return len(have.Columns) >= n && slices.Equal(have.Columns[:n], columns) && (n == 1 || slices.Equal(have.Desc[:n], desc))
	})
}
