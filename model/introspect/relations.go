package introspect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// link is a foreign key whose both sides are models.
type link struct {
	plan.ForeignKey
	from, to       *entity
	local, foreign []string // fields
}

// String names the link for a person.
func (l link) String() string {
	return fmt.Sprintf("%s.(%s) to %s", l.from.table, strings.Join(l.Columns, ", "), l.to.table)
}

// relations makes the two relations of each foreign key. Those to one row come first, so that they get the plainer names.
func (w *writer) relations() {
	var links []link
	for _, e := range w.entities {
		links = append(links, w.links(e)...)
	}
	for _, l := range links {
		w.toOne(l)
	}
	for _, l := range links {
		w.toMany(l)
	}
}

// links are the foreign keys of e that can become relations.
func (w *writer) links(e *entity) []link {
	var out []link
	var done []string
	for _, f := range e.table.Foreign {
		what := fmt.Sprintf("relation of %s.(%s) to %s", e.table, strings.Join(f.Columns, ", "), f.Table)
		id := fmt.Sprintf("%q %q %q %q", f.Columns, f.Schema, f.Table, f.References)
		if slices.Contains(done, id) {
			w.left("the table declares it twice", "%s", what)
			continue
		}
		done = append(done, id)
		target := w.entity(f.Schema, f.Table)
		local, foreign, why := pair(e, target, f)
		if why != "" {
			w.left(why, "%s", what)
			continue
		}
		out = append(out, link{f, e, target, local, foreign})
	}
	return out
}

// entity finds the entity of a table, nil when the table was left out or is not there.
func (w *writer) entity(schema, table string) *entity {
	for _, e := range w.entities {
		if e.table.Schema == schema && e.table.Name == table {
			return e
		}
	}
	return nil
}

// pair finds the fields of both sides, or the reason that there is no relation.
func pair(e, target *entity, f plan.ForeignKey) (local, foreign []string, why string) {
	if target == nil {
		return nil, nil, "the table that it leads to has no definition"
	}
	if len(f.References) != len(f.Columns) {
		return nil, nil, "the other table has no key of as many columns"
	}
	for i := range f.Columns {
		l, r := e.fieldOf(f.Columns[i]), target.fieldOf(f.References[i])
		switch {
		case l == nil:
			return nil, nil, fmt.Sprintf("the column %s was left out", f.Columns[i])
		case r == nil:
			return nil, nil, fmt.Sprintf("the column %s of %s was left out", f.References[i], target.table)
		case kind(l.column.Type) == "" || kind(l.column.Type) != kind(r.column.Type):
			return nil, nil, fmt.Sprintf("the column %s is %s and %s of %s is %s", f.Columns[i], l.column.Type,
				f.References[i], target.table, r.column.Type)
		}
		local, foreign = append(local, l.name), append(foreign, r.name)
	}
	return local, foreign, ""
}

// kind puts types together whose values a source can join by. "" is for types that cannot be joined by at all.
func kind(t model.Type) string {
	switch {
	case t.JSON() || t == "":
		return ""
	case t.Numeric() && t != model.Decimal:
		return "number"
	}
	return string(t)
}

// namesTaken is why a relation is left out that finds no name.
const namesTaken = "its names are taken by fields and other relations; add it by hand, with another name"

// toOne adds the relation to one row, named after its column.
func (w *writer) toOne(l link) {
	name := columnName(l.from, l.ForeignKey)
	r := relation{name: l.from.free(name, join(name, "ref")), model: l.to.name, one: true, local: l.local, foreign: l.foreign}
	if r.name == "" {
		w.left(namesTaken, "relation of %s", l)
		return
	}
	l.from.relations = append(l.from.relations, r)
}

// toMany adds the relation to many rows at the other table, named after this table, and after the column too where
// several keys lead there or the table leads to itself.
func (w *writer) toMany(l link) {
	by := join(join(l.from.name, "by"), columnName(l.from, l.ForeignKey))
	names := []string{by}
	if l.from != l.to && count(l.from, l.ForeignKey) == 1 {
		names = []string{l.from.name, by}
	}
	r := relation{name: l.to.free(names...), model: l.from.name, local: l.foreign, foreign: l.local}
	if r.name == "" {
		w.left(namesTaken, "relation back from %s", l)
		return
	}
	l.to.relations = append(l.to.relations, r)
}

// columnName is the name that a foreign key gives: its column without the _id; for several columns the other table, or
// the columns together where more keys lead there.
func columnName(e *entity, f plan.ForeignKey) string {
	if len(f.Columns) > 1 && count(e, f) == 1 {
		return identifier(f.Table)
	}
	name := withoutID(identifier(f.Columns[0]))
	for _, c := range f.Columns[1:] {
		name = join(name, withoutID(identifier(c)))
	}
	return name
}

// count is how many foreign keys lead from e to the same table as f, in different columns.
func count(e *entity, f plan.ForeignKey) int {
	var seen []string
	for _, g := range e.table.Foreign {
		if id := strings.Join(g.Columns, "\x00"); g.Schema == f.Schema && g.Table == f.Table && !slices.Contains(seen, id) {
			seen = append(seen, id)
		}
	}
	return len(seen)
}

// free takes the first of the names that nobody has, "" when all are taken.
func (e *entity) free(names ...string) string {
	for _, name := range names {
		if e.taken[words(name)] == "" && !isReserved(name) && legal(name) {
			e.taken[words(name)] = "relation " + name
			return name
		}
	}
	return ""
}

// relationsText writes the relations.
func (e *entity) relationsText() canonjson.Value {
	var members []canonjson.Member
	for _, r := range e.relations {
		kind := "many"
		if r.one {
			kind = "one"
		}
		members = append(members, canonjson.M(r.name, canonjson.Object(
			canonjson.M("model", canonjson.String(r.model)),
			canonjson.M("type", canonjson.String(kind)),
			canonjson.M("localField", oneOrList(r.local)),
			canonjson.M("foreignField", oneOrList(r.foreign)),
		)))
	}
	return canonjson.Object(members...)
}

// oneOrList is a string for one field, and an array for several.
func oneOrList(fields []string) canonjson.Value {
	if len(fields) == 1 {
		return canonjson.String(fields[0])
	}
	return stringList(fields)
}
