package introspect

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Result are the definitions of a database.
type Result struct {
	// Definitions are in the order of the tables, in the form that a Registry reads strictly.
	Definitions []canonjson.Value
	// Left names everything that is in the database and not in the definitions.
	Left []Left
}

// Left is one thing that was left out.
type Left struct {
	What string // such as: column film.fulltext
	Why  string
}

// String is the line for a person.
func (l Left) String() string { return l.What + ": " + l.Why }

// presentColumn is where tables of the reference's kind keep which fields of a row are stored.
const presentColumn = "__present"

// keysTable is our own table for idempotency keys.
const keysTable = "tabellion_idempotency"

// Definitions writes a definition for each table and view, as a plan.Source describes them.
//
// Tables keep their names where those are legal in a query; one key column becomes _id, several are fields and make _id
// together. A foreign key gives a to-one relation named after its column and a to-many relation, at the other table, named
// after this table. Views and tables without a key are for reading only. Every definition has the role lists reader and
// writer, keeps no archive and no times, and sorts text as the database does.
func Definitions(tables []plan.Table) Result {
	w := &writer{tables: tables}
	w.choose()
	for _, e := range w.entities {
		w.fields(e)
	}
	w.entities = slices.DeleteFunc(w.entities, func(e *entity) bool {
		if len(e.fields) == 0 {
			w.left("none of its columns can be shown", "%s %s", noun(e.table), e.table)
		}
		return len(e.fields) == 0
	})
	w.relations()
	for _, e := range w.entities {
		w.result.Definitions = append(w.result.Definitions, e.definition())
	}
	return w.result
}

// writer writes definitions.
type writer struct {
	tables   []plan.Table
	entities []*entity
	result   Result
}

// entity is one table that gets a definition.
type entity struct {
	table     *plan.Table
	name      string
	keyless   bool
	fields    []field
	relations []relation
	taken     map[string]string // folded names of fields and relations, and who has them
}

// field is one field of an entity.
type field struct {
	name   string
	column *plan.Column
}

// relation is one relation of an entity.
type relation struct {
	name, model    string
	one            bool
	local, foreign []string
}

// left notes what is left out.
func (w *writer) left(why, what string, args ...any) {
	w.result.Left = append(w.result.Left, Left{What: fmt.Sprintf(what, args...), Why: why})
}

// choose decides which tables become models, and their names. Tables of the schema public, and among them those whose name
// is legal, have the first right to a name.
func (w *writer) choose() {
	names := w.names()
	for i := range w.tables {
		t := &w.tables[i]
		switch {
		case names.of[t] != "":
			w.entities = append(w.entities, &entity{table: t, name: names.of[t], taken: map[string]string{}})
		case t.Virtual != "":
			w.left(t.Virtual, "%s %s", noun(t), t)
		case t.Name == keysTable:
			w.left("it is tabellion's own table for idempotency keys", "table %s", t)
		case strings.Contains(t.Schema, "."):
			w.left("definitions cannot name a schema with a dot", "%s %s", noun(t), t)
		default:
			w.left(fmt.Sprintf("its name folds to %q, like that of %s; write its definition by hand, with another name",
				identifier(t.Name), names.folded[words(identifier(t.Name))]), "%s %s", noun(t), t)
		}
	}
}

// servable tells whether t can become a model at all.
func servable(t *plan.Table) bool {
	return t.Virtual == "" && t.Name != keysTable && !strings.Contains(t.Schema, ".")
}

// naming is who has which name.
type naming struct {
	of            map[*plan.Table]string
	exact, folded map[string]*plan.Table
}

// names gives names to the tables that can become models.
func (w *writer) names() naming {
	n := naming{map[*plan.Table]string{}, map[string]*plan.Table{}, map[string]*plan.Table{}}
	for rank := range 4 {
		for i := range w.tables {
			t := &w.tables[i]
			if servable(t) && nameRank(t) == rank {
				n.give(t)
			}
		}
	}
	return n
}

// nameRank orders tables by their right to a name.
func nameRank(t *plan.Table) int {
	rank := 0
	if !legal(t.Name) {
		rank += 2
	}
	if t.Schema != "" && t.Schema != "public" {
		rank++
	}
	return rank
}

// give finds a name for t. Two legal names that differ are two names, however they fold; a name that had to be made must
// not even fold to another. Where a table of another schema has the name, that of the own schema is put before it.
func (n *naming) give(t *plan.Table) {
	id := identifier(t.Name)
	for _, name := range []string{id, identifier(t.Schema + "_" + id)} {
		holder := n.exact[name]
		if holder == nil && !legal(t.Name) {
			holder = n.folded[words(name)]
		}
		if holder == nil {
			n.of[t], n.exact[name] = name, t
			if n.folded[words(name)] == nil {
				n.folded[words(name)] = t
			}
			return
		}
		if holder.Schema == t.Schema {
			return
		}
	}
}

// noun is the word for t.
func noun(t *plan.Table) string {
	if t.View {
		return "view"
	}
	return "table"
}

// keyColumns tells whether the key of t can be shown, and why not.
func keyColumns(t *plan.Table) (ok bool, why string) {
	if len(t.Key) == 0 {
		return false, ""
	}
	for _, name := range t.Key {
		c := columnOf(t, name)
		switch {
		case c == nil:
			return false, fmt.Sprintf("its key column %s cannot be read", name)
		case c.Type == "" || c.Type.JSON():
			return false, fmt.Sprintf("its key column %s has the type %s", name, c.Native)
		case c.Nullable:
			return false, fmt.Sprintf("its key column %s holds null", name)
		}
	}
	return true, ""
}

// columnOf finds a column by its exact name, nil when there is none.
func columnOf(t *plan.Table, name string) *plan.Column {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	return nil
}

// fields chooses the fields of e.
func (w *writer) fields(e *entity) {
	t := e.table
	keyed, why := keyColumns(t)
	e.keyless = !keyed
	if why != "" {
		w.left(why+", so the table is for reading only", "key of %s", t)
	}
	for i := range t.Columns {
		c := &t.Columns[i]
		if name, why := e.fieldName(c); why != "" {
			w.left(why, "column %s.%s", t, c.Name)
		} else {
			e.fields = append(e.fields, field{name, c})
		}
	}
	for _, name := range t.Key {
		if !e.keyless && e.fieldOf(name) == nil {
			e.keyless = true
			w.left(fmt.Sprintf("its key column %s was left out, so the table is for reading only", name), "key of %s", t)
		}
	}
}

// fieldName finds the name for a column, or the reason to leave it out.
func (e *entity) fieldName(c *plan.Column) (name, why string) {
	switch {
	case c.Type == "" && !c.Nullable && !c.Default && !c.Generated && !e.readOnly():
		return "", fmt.Sprintf("no type of models holds %s; it may not be null and has no default, so the database will refuse new rows", c.Native)
	case c.Type == "":
		return "", fmt.Sprintf("no type of models holds %s", c.Native)
	case c.Name == presentColumn:
		return "", "it tells which fields of a row are stored, and is no field"
	case !e.keyless && len(e.table.Key) == 1 && c.Name == e.table.Key[0]:
		return "_id", ""
	}
	name = identifier(c.Name)
	if isReserved(name) {
		name = join(name, "value")
	}
	if name == "_id" {
		return "", "_id is the name of the key"
	}
	if other := e.taken[words(name)]; other != "" {
		return "", fmt.Sprintf("its name folds to %q, like that of %s; add it by hand, with another name", name, other)
	}
	e.taken[words(name)] = "column " + c.Name
	return name, ""
}

// fieldOf finds the field of a column, nil when the column was left out.
func (e *entity) fieldOf(column string) *field {
	for i := range e.fields {
		if e.fields[i].column.Name == column {
			return &e.fields[i]
		}
	}
	return nil
}

// roles are what introspection writes into the role lists.
var (
	readers = canonjson.Array(canonjson.String("reader"))
	writers = canonjson.Array(canonjson.String("writer"))
)

// definition writes e in the format of models 2, with the keys of 2.9.
func (e *entity) definition() canonjson.Value {
	t := e.table
	members := []canonjson.Member{
		canonjson.M("name", canonjson.String(e.name)),
		canonjson.M("description", comment(t.Comment)),
		canonjson.M("collection", unless(t.Name, e.name)),
		canonjson.M("table", canonjson.String(t.String())),
		canonjson.M("key", e.key()),
	}
	if t.View {
		members = append(members, canonjson.M("view", canonjson.Bool(true)))
	}
	members = append(members,
		canonjson.M("archive", canonjson.Bool(false)),
		canonjson.M("timestamps", canonjson.Bool(false)),
		canonjson.M("collation", canonjson.String("source")),
		canonjson.M("read", readers),
		canonjson.M("write", writers),
		canonjson.M("fields", e.fieldsText()),
	)
	if len(e.relations) > 0 {
		members = append(members, canonjson.M("relations", e.relationsText()))
	}
	if indexes := e.indexes(); indexes.Len() > 0 {
		members = append(members, canonjson.M("indexes", indexes))
	}
	return canonjson.Object(members...)
}

// unless is a string, Absent when it is the same as another.
func unless(s, same string) canonjson.Value {
	if s == same {
		return canonjson.Value{}
	}
	return canonjson.String(s)
}

// maxComment bounds a description that comes from a comment, in characters.
const maxComment = 500

// comment makes a description of a comment: one line, without characters that are not seen, cut where it is long. Absent
// when nothing remains.
func comment(text string) canonjson.Value {
	line := strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if runes := []rune(line); len(runes) > maxComment {
		line = string(runes[:maxComment]) + "..."
	}
	if line == "" {
		return canonjson.Value{}
	}
	return canonjson.String(line)
}

// key are the columns of the key; an empty list says that there is none.
func (e *entity) key() canonjson.Value {
	if e.keyless {
		return canonjson.Array()
	}
	return stringList(e.table.Key)
}

// stringList is an array of strings.
func stringList(list []string) canonjson.Value {
	items := make([]canonjson.Value, len(list))
	for i, s := range list {
		items[i] = canonjson.String(s)
	}
	return canonjson.Array(items...)
}

// fieldsText writes the fields, _id first.
func (e *entity) fieldsText() canonjson.Value {
	var members []canonjson.Member
	for _, first := range []bool{true, false} {
		for _, f := range e.fields {
			if (f.name == "_id") == first {
				members = append(members, canonjson.M(f.name, e.fieldText(f)))
			}
		}
	}
	return canonjson.Object(members...)
}

// fieldText writes one field.
func (e *entity) fieldText(f field) canonjson.Value {
	c := f.column
	members := []canonjson.Member{
		canonjson.M("type", canonjson.String(string(c.Type))),
		canonjson.M("column", unless(c.Name, f.name)),
		canonjson.M("description", comment(c.Comment)),
	}
	if c.Format != "" {
		members = append(members, canonjson.M("format", canonjson.String(c.Format)))
	}
	if f.name != "_id" && !c.Nullable && !c.Default && !c.Identity && !c.Generated && !e.readOnly() {
		members = append(members, canonjson.M("required", canonjson.Bool(true)))
	}
	if len(c.Enum) > 0 && c.Type == model.String {
		members = append(members, canonjson.M("enum", stringList(c.Enum)))
	}
	if c.Identity && !e.readOnly() {
		members = append(members, canonjson.M("strategy", canonjson.String("autoincrement")))
	}
	if c.Generated && !e.readOnly() {
		members = append(members, canonjson.M("generated", canonjson.Bool(true)))
	}
	return canonjson.Object(members...)
}

// readOnly tells whether nothing can be written to e.
func (e *entity) readOnly() bool { return e.keyless || e.table.View }

// indexes writes the unique sets of columns whose columns are all fields. They tell which row an upsert means.
func (e *entity) indexes() canonjson.Value {
	var out []canonjson.Value
	var seen []string
	for _, set := range e.table.Unique {
		var keys []canonjson.Member
		for _, column := range set {
			if f := e.fieldOf(column); f != nil {
				keys = append(keys, canonjson.M(f.name, canonjson.Int(1)))
			}
		}
		id := strings.Join(set, "\x00")
		if len(keys) < len(set) || slices.Contains(seen, id) || slices.Equal(set, e.table.Key) {
			continue
		}
		seen = append(seen, id)
		out = append(out, canonjson.Object(
			canonjson.M("keys", canonjson.Object(keys...)),
			canonjson.M("options", canonjson.Object(canonjson.M("unique", canonjson.Bool(true))))))
	}
	return canonjson.Array(out...)
}
