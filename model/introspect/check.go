package introspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Severity says what a difference means.
type Severity string

// The severities.
const (
	// Error: calls on the model will fail, or give wrong answers.
	Error Severity = "error"
	// Warning: something is slow, or some calls will be refused by the database.
	Warning Severity = "warning"
)

// Finding is one difference between definitions and database.
type Finding struct {
	Severity Severity
	Model    string
	Member   string // the field or relation that it is about; "" for the model itself
	Text     string // what is different
	Do       string // what to do about it
}

// String is the line for a person.
func (f Finding) String() string {
	subject := f.Model
	if f.Member != "" {
		subject += "." + f.Member
	}
	return fmt.Sprintf("%s: %s: %s; %s", f.Severity, subject, f.Text, f.Do)
}

// Check names every difference between models and the tables of their source that matters to calls, in the order of the
// models. Archive models among them are checked for their tables and columns.
func Check(models []*model.Model, tables []plan.Table, features plan.Features) []Finding {
	c := &checker{models: models, tables: tables, features: features}
	for _, m := range models {
		c.model(m)
	}
	return c.findings
}

// checker gathers findings.
type checker struct {
	models   []*model.Model
	tables   []plan.Table
	features plan.Features
	findings []Finding
}

// add notes a finding.
func (c *checker) add(s Severity, m *model.Model, member, do, text string, args ...any) {
	c.findings = append(c.findings, Finding{Severity: s, Model: m.Name, Member: member, Text: fmt.Sprintf(text, args...), Do: do})
}

// Advice that several findings give.
const (
	printDDL   = "tabellion models ddl prints the statements that add it"
	changeType = "give the field the type of the column, or change the column"
)

// model checks one model.
func (c *checker) model(m *model.Model) {
	t := Find(m, c.tables)
	switch {
	case t == nil && m.ArchiveOf != nil:
		c.add(Error, m, "", printDDL+", or give "+m.ArchiveOf.Name+" archive: false",
			"there is no table %s for removed rows, so nothing can be removed", tableName(m))
		return
	case t == nil:
		c.add(Error, m, "", printDDL+", or correct the name", "there is no table %s", tableName(m))
		return
	}
	if t.Virtual != "" {
		c.add(Error, m, "", "remove the definition", "%s cannot be served: %s", t, t.Virtual)
		return
	}
	if t.View && !m.View {
		c.add(Error, m, "", "say view: true", "%s is a view, and the model takes writes", t)
	}
	c.key(m, t)
	for _, f := range m.Fields {
		c.field(m, f, t)
	}
	c.others(m, t)
	if m.ArchiveOf != nil {
		return
	}
	if m.Table == "" && len(m.Key) == 0 && !m.ReadOnly() && columnOf(t, presentColumn) == nil {
		c.add(Warning, m, "", "name the table with table instead of collection if that is meant",
			"%s has no column %s, so a field that is null and one that is missing are the same", t, presentColumn)
	}
	c.indexes(m, t)
	for _, r := range m.Relations {
		c.relation(m, r)
	}
}

// tableName is the table that a model names.
func tableName(m *model.Model) string { return cmp.Or(m.Table, m.Collection) }

// Find finds the table of a model, nil when there is none: by its whole name, then as schema.table, exactly or, where
// nothing else fits, in another case. Among tables of one name that of the schema public is meant.
func Find(m *model.Model, tables []plan.Table) *plan.Table {
	name := tableName(m)
	if t := named(tables, "", name); t != nil {
		return t
	}
	if schema, rest, found := strings.Cut(name, "."); found {
		return named(tables, schema, rest)
	}
	return nil
}

// named finds a table in a schema, or in any where that is "".
func named(tables []plan.Table, schema, name string) *plan.Table {
	for _, same := range []func(a, b string) bool{func(a, b string) bool { return a == b }, strings.EqualFold} {
		var first *plan.Table
		for i := range tables {
			t := &tables[i]
			if !same(t.Name, name) || schema != "" && !same(t.Schema, schema) && (t.Schema != "" || schema != "main") {
				continue
			}
			if first == nil || t.Schema == "public" {
				first = t
			}
		}
		if first != nil {
			return first
		}
	}
	return nil
}

// column finds a column of t by the name in a definition, exactly or, where only one fits, in another case.
func (c *checker) column(t *plan.Table, name string) *plan.Column {
	if exact := columnOf(t, name); exact != nil {
		return exact
	}
	var found *plan.Column
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

// columns gives the columns of t for fields, as the table spells them; nil when one has none.
func (c *checker) columns(t *plan.Table, fields []*model.Field) []string {
	var out []string
	for _, f := range fields {
		if f == nil {
			return nil
		}
		col := c.column(t, f.Column)
		if col == nil {
			return nil
		}
		out = append(out, col.Name)
	}
	return out
}

// keyOf are the fields of a model's key.
func keyOf(m *model.Model) []*model.Field {
	if len(m.Key) > 0 {
		return m.Key
	}
	if id := m.ID(); id != nil {
		return []*model.Field{id}
	}
	return nil
}

// key checks that the model's key tells rows apart.
func (c *checker) key(m *model.Model, t *plan.Table) {
	key := keyOf(m)
	if m.Keyless || len(key) == 0 {
		return
	}
	columns := c.columns(t, key)
	if columns == nil {
		return // a column is missing, which is a finding of its own
	}
	text := strings.Join(columns, ", ")
	if !t.View && !sameSet(columns, t.Key) && !slices.ContainsFunc(t.Unique, func(u []string) bool { return sameSet(u, columns) }) {
		c.add(Error, m, "_id", "name the columns of the primary key, or key: [] for a table without one",
			"%s is no key of %s: rows may share it", text, t)
	}
	for _, name := range columns {
		if col := columnOf(t, name); col.Nullable && !t.View {
			c.add(Error, m, "_id", "make the column NOT NULL, or say key: []", "the key column %s of %s may hold null", name, t)
		}
	}
}

// sameSet tells whether two lists hold the same names, in any order.
func sameSet(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(name string) bool { return !slices.Contains(b, name) })
}

// field checks one field against its column.
func (c *checker) field(m *model.Model, f *model.Field, t *plan.Table) {
	if f.Column == "" {
		return
	}
	col := c.column(t, f.Column)
	if col == nil {
		text := "the table %s has no column %s"
		if f == m.VersionOf {
			text = "the table %s has no column %s, which expectedVersion needs"
		}
		c.add(Error, m, f.Name, printDDL+", or correct the name", text, t, f.Column)
		return
	}
	if s, text := c.fits(f, *col); text != "" {
		c.add(s, m, f.Name, changeType, "%s", text)
	}
	c.values(m, f, col)
	if !m.ReadOnly() && m.ArchiveOf == nil {
		c.writes(m, f, t, col)
	}
}

// values compares the lists of allowed values.
func (c *checker) values(m *model.Model, f *model.Field, col *plan.Column) {
	if len(col.Enum) == 0 {
		return
	}
	var refused []string
	for _, v := range f.Enum {
		if !slices.Contains(col.Enum, v.Str()) {
			refused = append(refused, v.Str())
		}
	}
	switch {
	case len(refused) > 0:
		c.add(Warning, m, f.Name, "take them out of enum", "the database does not take the values %s", strings.Join(refused, ", "))
	case f.Enum != nil && len(f.Enum) < len(col.Enum):
		c.add(Warning, m, f.Name, "add them to enum if they may be written", "the database takes values that enum does not name")
	case f.Enum == nil && f.Type == model.String && !m.ReadOnly():
		c.add(Warning, m, f.Name, "write the list as enum", "the database takes only the values %s", strings.Join(col.Enum, ", "))
	}
}

// writes compares what a writer must and may give.
func (c *checker) writes(m *model.Model, f *model.Field, t *plan.Table, col *plan.Column) {
	present := columnOf(t, presentColumn) != nil
	id := f == m.ID() || slices.Contains(m.Key, f)
	switch {
	case f.AutoIncrement && !col.Identity:
		c.add(Error, m, f.Name, "leave strategy out, or make the column an identity", "the database does not assign the column %s", col.Name)
	case col.Generated && !f.Generated:
		c.add(Warning, m, f.Name, "say generated: true", "the database computes the column %s and refuses writes to it", col.Name)
	case id || f.Added || col.Generated:
	case f.Required && col.Nullable && !present:
		c.add(Warning, m, f.Name, "make the column NOT NULL, or leave required out", "the field is required and the column %s may be null", col.Name)
	case !f.Required && !col.Nullable && !col.Default && !col.Identity:
		c.add(Warning, m, f.Name, "say required: true", "the column %s may not be null and has no default, so an insert without it is refused", col.Name)
	}
}

// others names columns that an insert would have to fill and cannot, because the model has no field for them.
func (c *checker) others(m *model.Model, t *plan.Table) {
	if m.ReadOnly() {
		return
	}
	for i := range t.Columns {
		col := &t.Columns[i]
		known := slices.ContainsFunc(m.Fields, func(f *model.Field) bool {
			return f.Column != "" && c.column(t, f.Column) == col
		})
		if known || col.Nullable || col.Default || col.Identity || col.Generated {
			continue
		}
		c.add(Warning, m, "", "add a field for it, or give the column a default",
			"the column %s of %s may not be null and has no field, so every insert is refused", col.Name, t)
	}
}
