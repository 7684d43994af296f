package model

import (
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// existing reads what describes a table that was there before (section 2.9).
func (d *definition) existing() error {
	v := d.v.Get("key")
	m := d.m
	if v.IsAbsent() {
		m.Keyless = m.View && d.fieldNamed("_id") == nil
		return d.version()
	}
	if v.Kind() != canonjson.KindArray {
		return d.bad("key must be the list of the columns of the primary key, such as [\"film_id\"]; [] is a table without one")
	}
	var columns []string
	for _, item := range v.Items() {
		if item.Kind() != canonjson.KindString || item.Str() == "" || contains(columns, item.Str()) {
			return d.bad("key must be a list of different column names")
		}
		columns = append(columns, item.Str())
	}
	switch len(columns) {
	case 0:
		m.Keyless = true
	case 1:
		if err := d.singleKey(columns[0]); err != nil {
			return err
		}
	default:
		if err := d.compositeKey(columns); err != nil {
			return err
		}
	}
	return d.version()
}

// singleKey makes the column of the key the field _id, in the type of the field that has this column.
func (d *definition) singleKey(column string) error {
	if id := d.fieldNamed("_id"); id != nil {
		if id.Column == "_id" && column != "_id" {
			id.Column = column
		}
		if id.Column != column {
			return d.bad("key is the column %s, and the field _id has the column %s", Quote(column), Quote(id.Column))
		}
		return nil
	}
	f := d.withColumn(column)
	if f == nil {
		return d.bad("key: no field has the column %s", Quote(column))
	}
	id := &Field{Name: "_id", Column: column, Type: f.Type, Required: f.Required, AutoIncrement: f.AutoIncrement, Added: true}
	d.m.Fields = append([]*Field{id}, d.m.Fields...)
	return nil
}

// compositeKey makes a field _id of several columns, each of which is a field too.
func (d *definition) compositeKey(columns []string) error {
	if d.fieldNamed("_id") != nil {
		return d.bad("with a key of several columns _id is made of them, and is no field of its own")
	}
	for _, column := range columns {
		f := d.withColumn(column)
		if f == nil {
			return d.bad("key: no field has the column %s", Quote(column))
		}
		d.m.Key = append(d.m.Key, f)
	}
	d.m.Fields = append([]*Field{{Name: "_id", Type: String, Added: true}}, d.m.Fields...)
	return nil
}

// withColumn finds the field of a column.
func (d *definition) withColumn(column string) *Field {
	for _, f := range d.m.Fields {
		if f.Column == column {
			return f
		}
	}
	return nil
}

// version reads which field expectedVersion compares.
func (d *definition) version() error {
	v := d.v.Get("version")
	if v.IsAbsent() {
		return nil
	}
	f := d.fieldNamed(v.Str())
	if f == nil {
		f = d.withColumn(v.Str())
	}
	if v.Kind() != canonjson.KindString || f == nil || f.Type.JSON() {
		return d.bad("version must name a field that is neither array nor object")
	}
	d.m.VersionOf = f
	return nil
}

// addID adds the field _id where the definition has none. It is the primary key, a text.
func (d *definition) addID() error {
	if d.m.Keyless || d.fieldNamed("_id") != nil {
		return nil
	}
	d.m.Fields = append([]*Field{{Name: "_id", Column: "_id", Type: String, Added: true}}, d.m.Fields...)
	return nil
}

// addTimes adds createdAt and updatedAt where the model keeps timestamps.
func (d *definition) addTimes() error {
	if d.m.Times == NoTimes || d.m.View {
		return nil
	}
	for _, name := range []string{"createdAt", "updatedAt"} {
		if d.fieldNamed(name) == nil {
			d.m.Fields = append(d.m.Fields, &Field{Name: name, Column: name, Type: Number, Added: true})
		}
	}
	if d.m.VersionOf == nil {
		d.m.VersionOf = d.fieldNamed("updatedAt")
	}
	return nil
}

// names refuses two names that are one to a reader, and names that are keys of a definition (section 18.1).
func (d *definition) names() error {
	seen := map[string]string{}
	add := func(name string, what any) error {
		if d.m.byName[name] != nil {
			return Errorf(NameConflict, "model %s: %s is the name of two things; names of fields, relations and computed columns must differ", d.m.Name, Quote(name))
		}
		d.m.byName[name] = what
		if name == "_id" || strings.HasPrefix(name, "__") {
			return nil
		}
		words := Words(name)
		folded := strings.Join(words, "_")
		if other := seen[folded]; other != "" {
			return Errorf(NameConflict, "model %s: %s and %s are the same words; rename one, and name its column with column", d.m.Name, Quote(other), Quote(name))
		}
		seen[folded] = name
		if reserved[strings.Join(words, "")] {
			return Errorf(NameConflict, "model %s: the name %s is a key of the definition format; rename it, and name its column with column", d.m.Name, Quote(name))
		}
		return nil
	}
	for _, f := range d.m.Fields {
		if err := add(f.Name, f); err != nil {
			return err
		}
	}
	for _, r := range d.m.Relations {
		if err := add(r.Name, r); err != nil {
			return err
		}
	}
	for _, c := range d.m.Computes {
		if err := add(c.Name, c); err != nil {
			return err
		}
	}
	return nil
}

// references looks up the fields that the definition names: those of relations, indexes and idField. The target of a
// relation need not be known yet.
func (d *definition) references() error {
	for _, r := range d.m.Relations {
		for _, name := range r.Local {
			if d.m.Field(name) == nil {
				return d.bad("relation %s: localField: %s", r.Name, d.noField(name))
			}
		}
	}
	for i, index := range d.m.Indexes {
		for _, k := range index.Keys {
			if d.m.Field(k.Field) == nil {
				return d.bad("index %d: %s", i+1, d.noField(k.Field))
			}
		}
	}
	if !d.m.Keyless && d.m.Field(d.m.IDField) == nil {
		return d.bad("idField: %s", d.noField(d.m.IDField))
	}
	return nil
}

// noField says that there is no such field, and which is near.
func (d *definition) noField(name string) string {
	var names []string
	for _, f := range d.m.Fields {
		names = append(names, f.Name)
	}
	if near := Nearest(name, names); len(near) > 0 {
		return "there is no field " + Quote(name) + "; the nearest is " + near[0]
	}
	return "there is no field " + Quote(name)
}
