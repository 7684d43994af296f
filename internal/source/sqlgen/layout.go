package sqlgen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
)

// PresentColumn holds the names of the stored fields of a row, as ,a,b, in sorted order (models, section 3).
const PresentColumn = "__present"

// Table is a table or view as a source found it, in the detail that statements need.
type Table struct {
	Schema, Name string
	View         bool
	RowID        bool // SQLite: rows have a rowid that no column hides
	Columns      []Column
	Key          []string // columns of the primary key
	Indexes      []Index
	Constraints  map[string][]string // columns by the name of a check or foreign key
	Rows         int64               // an estimate; negative: none
}

// Column is one column of a Table.
type Column struct {
	Name      string
	Native    string // the type as the catalog spells it, for a cast; PostgreSQL only
	Base      string // the base type, lower case: int4, varchar; for SQLite the declared type
	Enum      bool
	Array     bool
	Nullable  bool
	Collation string // SQLite: the column's collation. PostgreSQL: its name when it is not the database's default
	ByCode    bool   // text compares by code point without being told to
	Exact     bool   // SQLite: cells can only hold what Base says (STRICT, INTEGER PRIMARY KEY)
	Canonical bool   // SQLite: text forms (days, times, decimals) are as this package writes them
	Source    bool   // the model wants the database's order of text
}

// Index is one index of a Table.
type Index struct {
	Name    string
	Keys    []IndexKey
	Unique  bool
	Partial bool
}

// IndexKey is one column of an Index.
type IndexKey struct {
	Column    string // "" for an expression
	Desc      bool
	NullsLast bool // nulls come after the values in the direction of the index
	ByCode    bool // text of it compares by code point
}

// Layout is a model's table: where its fields are. It is immutable.
type Layout struct {
	Model   *model.Model
	Table   *Table
	Present bool // the table has __present

	columns map[string]*Column // by field name
	lacking map[string]string  // field name to the column that is not there
}

// Layouts finds the layout of a model that a source was bound to; an error says what is wrong with it.
type Layouts func(m *model.Model) (*Layout, error)

// NewLayout lays a model over its table. Problems are the differences that make plans fail.
func NewLayout(m *model.Model, t *Table) (l *Layout, problems []string) {
	l = &Layout{Model: m, Table: t, columns: map[string]*Column{}, lacking: map[string]string{}}
	l.Present = t.Column(PresentColumn) != nil
	for _, f := range m.Fields {
		if f.Column == "" {
			continue
		}
		c := t.Column(f.Column)
		if c == nil {
			l.lacking[f.Name] = f.Column
			problems = append(problems, fmt.Sprintf("model %s: table %s has no column %s for the field %s", m.Name, t, f.Column, f.Name))
			continue
		}
		own := *c
		own.Source, own.Canonical = m.SourceText, l.Present
		l.columns[f.Name] = &own
	}
	return l, problems
}

// Column finds a column by name, exactly or, where only one fits, in another case; nil when there is none.
func (t *Table) Column(name string) *Column {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	var found *Column
	for i := range t.Columns {
		if strings.EqualFold(t.Columns[i].Name, name) {
			if found != nil {
				return nil
			}
			found = &t.Columns[i]
		}
	}
	return found
}

// String is the table's name for a person.
func (t *Table) String() string {
	if t.Schema == "" {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// quoted is the table's name in a statement.
func (t *Table) quoted() string {
	if t.Schema == "" {
		return quote(t.Name)
	}
	return quote(t.Schema) + "." + quote(t.Name)
}

// Column is the column of a field of the model; nil where there is none (a composite _id, or a column that the table
// lacks).
func (l *Layout) Column(f *model.Field) *Column { return l.columns[f.Name] }

// Field finds the field of a column of the table, nil when the model has none for it.
func (l *Layout) Field(column string) *model.Field {
	for _, f := range l.Model.Fields {
		if c := l.columns[f.Name]; c != nil && strings.EqualFold(c.Name, column) {
			return f
		}
	}
	return nil
}

// KeyFields are the fields that tell rows apart: those of the primary key; nil for a model without a key.
func (l *Layout) KeyFields() []*model.Field { return KeyFields(l.Model) }

// KeyFields are the fields of the key of m.
func KeyFields(m *model.Model) []*model.Field {
	switch {
	case m.Composite():
		return m.Key
	case m.ID() != nil:
		return []*model.Field{m.ID()}
	}
	return nil
}

// unique tells whether at most one row has given values of all of fields.
func (l *Layout) unique(fields []*model.Field) bool {
	covers := func(columns []string) bool {
		return len(columns) > 0 && !slices.ContainsFunc(columns, func(name string) bool {
			return !slices.ContainsFunc(fields, func(f *model.Field) bool {
				c := l.Column(f)
				return c != nil && c.Name == name
			})
		})
	}
	if covers(l.Table.Key) {
		return true
	}
	for _, x := range l.Table.Indexes {
		columns := make([]string, len(x.Keys))
		for i, k := range x.Keys {
			columns[i] = k.Column
		}
		if x.Unique && !x.Partial && covers(columns) {
			return true
		}
	}
	return false
}

// Constraint is the columns that a constraint or index of this name is about; nil when they are not known.
func (t *Table) Constraint(name string) []string {
	for _, x := range t.Indexes {
		if x.Name != name || name == "" {
			continue
		}
		var columns []string
		for _, k := range x.Keys {
			columns = append(columns, k.Column)
		}
		return columns
	}
	return t.Constraints[name]
}

// quote writes an identifier; both engines double the quote inside. A NUL cannot be part of an identifier and is left
// out, so that it cannot end the statement's text.
func quote(name string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(name, "\x00", ""), `"`, `""`) + `"`
}
