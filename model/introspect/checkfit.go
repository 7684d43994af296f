package introspect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// fits says what is wrong with a field's type for its column; an empty text is nothing.
func (c *checker) fits(f *model.Field, col plan.Column) (Severity, string) {
	if col.Type == "" {
		return Error, fmt.Sprintf("the column %s is %s, which no type of models holds", col.Name, col.Native)
	}
	if c.features.Engine == "sqlite" {
		return sqliteFits(f.Type, col)
	}
	return postgresFits(f, col)
}

// exactly are the types that a column of PostgreSQL must have for a field of a type; where a type is not named here, it
// must have the same.
var exactly = map[model.Type][]model.Type{
	model.Int:    {model.Int, model.Long},
	model.Long:   {model.Int, model.Long},
	model.Date:   {model.Int, model.Long},
	model.Float:  {model.Float, model.Double, model.Int},
	model.Double: {model.Float, model.Double, model.Int},
	model.Number: {model.Float, model.Double, model.Decimal, model.Int, model.Long},
	model.Array:  {model.Array, model.Any},
	model.Object: {model.Any},
	model.Any:    {model.Any, model.Array},
}

// postgresFits says what is wrong with a type for a column of PostgreSQL.
func postgresFits(f *model.Field, col plan.Column) (Severity, string) {
	fitting := exactly[f.Type]
	if fitting == nil {
		fitting = []model.Type{f.Type}
	}
	switch {
	case !slices.Contains(fitting, col.Type):
		return Error, fmt.Sprintf("the column %s is %s (%s), not %s", col.Name, col.Native, col.Type, f.Type)
	case (f.Type == model.Long || f.Type == model.Date) && col.Type == model.Int:
		return Warning, fmt.Sprintf("the column %s is %s and does not hold 64 bits", col.Name, col.Native)
	case f.Type == model.Number && col.Type.Integer() && !f.Added:
		return Warning, fmt.Sprintf("the column %s is %s and holds integers only", col.Name, col.Native)
	}
	return "", ""
}

// classes are the storage classes of SQLite that values of a type have.
func classes(t model.Type) []string {
	switch {
	case t.Integer() || t == model.Boolean:
		return []string{"integer"}
	case t == model.Float || t == model.Double || t == model.Number:
		return []string{"integer", "real"}
	case t == model.Bytes:
		return []string{"blob"}
	}
	return []string{"text"}
}

// sqliteFits says what is wrong with a type for a column of SQLite, whose type is what it holds.
func sqliteFits(t model.Type, col plan.Column) (Severity, string) {
	want, has := classes(t), classes(col.Type)
	if len(col.Found) > 0 {
		has = col.Found
	}
	fitting := func(class string) bool { return slices.Contains(want, class) }
	others := slices.DeleteFunc(slices.Clone(has), fitting)
	switch {
	case len(col.Found) == 0 && t.Integer() && (col.Type == model.Double || col.Type == model.Float || col.Type == model.Number):
		return Error, fmt.Sprintf("the column %s holds numbers with fractions, not %s", col.Name, t)
	case len(others) == len(has):
		return Error, fmt.Sprintf("the column %s (%s) holds %s, not %s", col.Name, claim(col), strings.Join(has, " and "), t)
	case len(col.Found) > 0 && len(others) > 0:
		return Warning, fmt.Sprintf("the column %s (%s) holds %s: what is no %s is read as null", col.Name, claim(col),
			strings.Join(has, ", "), t)
	}
	return "", ""
}

// claim is the type that a column of SQLite claims.
func claim(col plan.Column) string {
	if col.Native == "" {
		return "without a type"
	}
	return "claims " + col.Native
}

// indexes checks the indexes of the definition, and that the database's indexes serve the order that the model promises.
func (c *checker) indexes(m *model.Model, t *plan.Table) {
	for _, x := range m.Indexes {
		fields := make([]*model.Field, len(x.Keys))
		for i, k := range x.Keys {
			fields[i] = m.Field(k.Field)
		}
		if slices.Contains(fields, nil) {
			continue // a path into an object
		}
		columns := c.columns(t, fields)
		if columns == nil {
			continue // a column is missing, which is a finding of its own
		}
		c.index(m, t, x, columns)
		c.collated(m, t, "the index on "+strings.Join(columns, ", "), fields, columns)
	}
	if key := keyOf(m); !m.Keyless && !t.View {
		if columns := c.columns(t, key); columns != nil {
			c.collated(m, t, "_id", key, columns)
		}
	}
}

// index checks that the database has an index of the definition.
func (c *checker) index(m *model.Model, t *plan.Table, x model.Index, columns []string) {
	list := strings.Join(columns, ", ")
	unique := sameSet(columns, t.Key) || slices.ContainsFunc(t.Unique, func(u []string) bool { return sameSet(u, columns) })
	switch {
	case x.Unique && !unique:
		c.add(Error, m, "", printDDL, "%s has no unique index on %s, so upserts by it fail and equal rows are possible", t, list)
	case !x.Unique && !serves(t, columns, false):
		c.add(Warning, m, "", printDDL, "%s has no index on %s", t, list)
	}
}

// serves tells whether an index, or the row number of SQLite, begins with columns in their order. byCode: one that orders
// by code point.
func serves(t *plan.Table, columns []string, byCode bool) bool {
	if slices.Equal(t.Key, columns) && !byCode {
		return true
	}
	return slices.ContainsFunc(t.Indexes, func(x plan.TableIndex) bool {
		return len(x.Columns) >= len(columns) && slices.Equal(x.Columns[:len(columns)], columns) && (x.ByCode || !byCode)
	})
}

// collated warns where text is promised in the order of code points and no index has it: then each sort and comparison
// reads the whole table (models, section 2.9).
func (c *checker) collated(m *model.Model, t *plan.Table, what string, fields []*model.Field, columns []string) {
	text := slices.ContainsFunc(fields, func(f *model.Field) bool { return f.Type == model.String })
	if m.SourceText || !text || serves(t, columns, true) || !serves(t, columns, false) {
		return
	}
	c.add(Warning, m, "", "add an index with "+c.codePoint()+", or say collation: source",
		"no index of %s orders %s by code point, as the model promises, so sorting by it reads the whole table", t, what)
}

// codePoint is the collation by code point as the engine calls it.
func (c *checker) codePoint() string {
	if c.features.Engine == "sqlite" {
		return "COLLATE BINARY"
	}
	return `COLLATE "C"`
}

// relation checks that a relation leads to fields that can be equal.
func (c *checker) relation(m *model.Model, r *model.Relation) {
	i := slices.IndexFunc(c.models, func(x *model.Model) bool { return x.Name == r.Model })
	if i < 0 {
		c.add(Error, m, r.Name, "add its definition, or remove the relation", "there is no model %s", r.Model)
		return
	}
	target := c.models[i]
	if len(r.Local) != len(r.Foreign) {
		c.add(Error, m, r.Name, "name as many foreign fields as local ones", "it pairs %d fields with %d", len(r.Local), len(r.Foreign))
		return
	}
	for i := range r.Local {
		local, foreign := m.Field(r.Local[i]), target.Field(r.Foreign[i])
		switch {
		case local == nil:
			c.add(Error, m, r.Name, "correct localField", "the model has no field %s", r.Local[i])
		case foreign == nil:
			c.add(Error, m, r.Name, "correct foreignField", "%s has no field %s", target.Name, r.Foreign[i])
		case local.Column == "" || foreign.Column == "":
			c.add(Error, m, r.Name, "join by the fields of the key", "_id of a key of several columns cannot be joined by")
		case local.Type != model.Array && (kind(local.Type) == "" || kind(local.Type) != kind(foreign.Type)):
			c.add(Error, m, r.Name, "give both fields the same type", "%s is %s and %s.%s is %s, which cannot be joined",
				local.Name, local.Type, target.Name, foreign.Name, foreign.Type)
		}
	}
}
