package model

import (
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// presentColumn tells in tables of the reference's kind which fields of a row are stored (models, section 3).
const presentColumn = "__present"

// existing reads what describes a table that was there before (section 2.9).
func (d *definition) existing() error {
	v := d.v.Get("key")
	m := d.m
	if v.IsAbsent() {
		m.Keyless = m.View && d.fieldNamed("_id") == nil
		return nil
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
		if d.fieldNamed("_id") != nil {
			return d.bad("key is [], a table without a key, and yet there is a field _id; name its column in key, or give the field another name")
		}
		m.Keyless = true
		return nil
	case 1:
		return d.singleKey(columns[0])
	}
	return d.compositeKey(columns)
}

// singleKey makes the column of the key the field _id, in the type of the field that has this column. That field stays, for
// reading and joining by its own name; the column is written as _id alone.
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
	f, err := d.keyField(column)
	if err != nil {
		return err
	}
	id := &Field{Name: "_id", Column: column, Type: f.Type, Description: f.Description, Enum: f.Enum, AutoIncrement: f.AutoIncrement, Write: f.Write, Added: true}
	f.Generated, f.Required, f.AutoIncrement = true, false, false
	d.m.Fields = append([]*Field{id}, d.m.Fields...)
	return nil
}

// compositeKey makes a field _id of several columns, each of which is a field too.
func (d *definition) compositeKey(columns []string) error {
	if d.fieldNamed("_id") != nil {
		return d.bad("with a key of several columns _id is made of them, and is no field of its own")
	}
	for _, column := range columns {
		f, err := d.keyField(column)
		if err != nil {
			return err
		}
		d.m.Key = append(d.m.Key, f)
	}
	d.m.Fields = append([]*Field{{Name: "_id", Type: String, Added: true}}, d.m.Fields...)
	return nil
}

// keyField finds the field of a column of the key. Every reader of the model sees it in _id, so that it has no read list.
func (d *definition) keyField(column string) (*Field, error) {
	f := d.withColumn(column)
	switch {
	case f == nil:
		var columns []string
		for _, f := range d.m.Fields {
			columns = append(columns, f.Column)
		}
		hint := "; declare one"
		if near := Nearest(column, columns); len(near) > 0 {
			hint = "; the nearest is " + near[0]
		}
		return nil, d.bad("key: no field has the column %s%s", Quote(column), hint)
	case f.Type.JSON():
		return nil, d.bad("key: the field %s is of type %s, which cannot be a key", f.Name, f.Type)
	case f.Read != nil:
		return nil, d.bad("key: the field %s has a list read, and _id shows its value to every reader; leave the list out", f.Name)
	}
	return f, nil
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
	if v.Kind() != canonjson.KindString {
		return d.bad("version must be the name of a field, such as \"updatedAt\"")
	}
	f := d.fieldNamed(v.Str())
	if f == nil {
		f = d.withColumn(v.Str())
	}
	switch {
	case f == nil:
		return d.bad("version: %s", d.noField(v.Str()))
	case f.Type.JSON() || f.Column == "":
		return d.bad("version: the field %s is of type %s, which cannot be compared; name a number, a text or a time", f.Name, f.Type)
	}
	d.m.VersionOf = f
	return nil
}

// addID adds the field _id where the definition has none. It is the primary key, a text.
func (d *definition) addID() error {
	if id := d.fieldNamed("_id"); id != nil {
		switch {
		case id.Type.JSON():
			return d.bad("field _id: a key cannot be of type %s; make it a string or a number", id.Type)
		case id.Read != nil:
			return d.bad("field _id: it has a list read, and every reader of the model sees _id; leave the list out")
		case d.m.IDPrefix != "" && id.Type != String:
			return d.bad("idPrefix makes texts, and _id is of type %s; leave idPrefix out, or make _id a string", id.Type)
		case d.m.IDPrefix != "" && d.m.Composite():
			return d.bad("idPrefix cannot make a key of several columns; leave it out")
		}
	}
	if d.m.Keyless || d.fieldNamed("_id") != nil {
		return nil
	}
	d.m.Fields = append([]*Field{{Name: "_id", Column: "_id", Type: String, Added: true}}, d.m.Fields...)
	return nil
}

// addTimes adds createdAt and updatedAt where the model keeps timestamps.
func (d *definition) addTimes() error {
	if d.m.ReadOnly() {
		d.m.Times = NoTimes // nothing is written, so that nothing keeps them
	}
	if d.m.Times != NoTimes {
		for _, name := range []string{"createdAt", "updatedAt"} {
			if err := d.addTime(name); err != nil {
				return err
			}
		}
		d.m.VersionOf = d.fieldNamed("updatedAt")
	}
	return d.version()
}

// addTime adds a field that the server keeps, unless it is declared as one that can hold a time.
func (d *definition) addTime(name string) error {
	f := d.fieldNamed(name)
	if f == nil {
		d.m.Fields = append(d.m.Fields, &Field{Name: name, Column: name, Type: Number, Added: true})
		return nil
	}
	switch f.Type {
	case Number, Long, Int, Double, Float, Date, Timestamp, Day:
		if !f.Generated {
			return nil
		}
	}
	return d.bad("field %s: the server keeps it, as a number; give it the type number, or write timestamps: false", name)
}

// archiveTimes checks the field that an archive adds: when a row was removed.
func (d *definition) archiveTimes() error {
	f := d.fieldNamed("deletedAt")
	if !archived(d.m) || f == nil {
		return nil
	}
	switch f.Type {
	case Number, Long, Int, Double, Float, Date:
		return nil
	}
	return d.bad("field deletedAt: the archive keeps in it when a row was removed, as a number; give it the type number, or write archive: false")
}

// columnsOnce refuses two fields with one column, for a write could give it two values. A field that shows the key beside an
// added _id is never written.
func (d *definition) columnsOnce() error {
	seen := map[string]string{}
	for _, f := range d.m.Fields {
		if f.Column == "" || f.Name == "_id" && f.Added {
			continue
		}
		if other := seen[f.Column]; other != "" {
			return d.bad("the fields %s and %s are both the column %s; remove one", other, f.Name, Quote(f.Column))
		}
		seen[f.Column] = f.Name
	}
	return nil
}

// assigned refuses a field that the database would assign and that is no part of the key.
func (d *definition) assigned() error {
	for _, f := range d.m.Fields {
		if f.AutoIncrement && f.Name != "_id" && !slices.Contains(d.m.Key, f) {
			return d.bad("field %s: only _id and columns of the key have a strategy", f.Name)
		}
	}
	return nil
}

// words looks at all names as they are written, before anything else is said of them.
func (d *definition) words() error {
	seen := map[string]string{}
	for _, kind := range []string{"fields", "relations", "computes"} {
		for _, m := range d.v.Get(kind).Members() {
			if m.Name == "_id" && kind != "fields" {
				return Errorf(NameConflict, "model %s: _id is the name of the key, and of nothing in %s; choose another name", d.m.Name, kind)
			}
			if err := d.fold(seen, m.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// fold refuses a name that is one with another to a reader, or that is a key of the format (section 18.1). seen are the
// names before, by their words.
func (d *definition) fold(seen map[string]string, name string) error {
	if name == "_id" || strings.HasPrefix(name, "__") {
		return nil
	}
	words := fold(name)
	if other, is := seen[words]; is && other == name {
		return Errorf(NameConflict, "model %s: %s is the name of two things; names of fields, relations and computed columns must differ", d.m.Name, Quote(name))
	} else if is {
		return Errorf(NameConflict, "model %s: %s and %s are the same words; rename one, and name its column with column", d.m.Name, Quote(other), Quote(name))
	}
	seen[words] = name
	if reserved[strings.ReplaceAll(words, "_", "")] {
		return Errorf(NameConflict, "model %s: the name %s is a key of the definition format; rename it, and name its column with column", d.m.Name, Quote(name))
	}
	return nil
}

// names lists everything by its name, and refuses one that folds to a field that was added.
func (d *definition) names() error {
	seen := map[string]string{}
	for _, f := range d.m.Fields {
		if other := seen[fold(f.Name)]; other != "" && f.Added && f.Name != "_id" {
			return Errorf(NameConflict, "model %s: the server adds the field %s, which is the same words as %s. Write \"%s\": {\"type\": \"number\", \"column\": %s}, or \"timestamps\": false",
				d.m.Name, f.Name, Quote(other), f.Name, Quote(d.fieldNamed(other).Column))
		}
		if err := d.fold(seen, f.Name); err != nil {
			return err
		}
		d.m.byName[f.Name] = f
	}
	for _, r := range d.m.Relations {
		if err := d.fold(seen, r.Name); err != nil {
			return err
		}
		d.m.byName[r.Name] = r
	}
	for _, c := range d.m.Computes {
		if err := d.fold(seen, c.Name); err != nil {
			return err
		}
		d.m.byName[c.Name] = c
	}
	return nil
}

// references looks up the fields that the definition names: those of relations, indexes and idField. The target of a
// relation need not be known yet.
func (d *definition) references() error {
	for _, r := range d.m.Relations {
		for _, name := range r.Local {
			switch f := d.m.Field(name); {
			case f == nil:
				return d.bad("relation %s: localField: %s", r.Name, d.noField(name))
			case f.Column == "":
				return d.bad("relation %s: the key has several columns, and localField names them one by one. Write \"localField\": %s", r.Name, jsonList(fieldNames(d.m.Key)))
			}
		}
	}
	for i, index := range d.m.Indexes {
		for _, k := range index.Keys {
			if f := d.m.Field(k.Field); f == nil || f.Column == "" {
				return d.bad("index %d: %s", i+1, d.noField(k.Field))
			}
		}
	}
	if d.m.Keyless {
		return nil
	}
	switch f := d.m.Field(d.m.IDField); {
	case f == nil:
		return d.bad("idField: %s", d.noField(d.m.IDField))
	case f.Type.JSON():
		return d.bad("idField: the field %s is of type %s, by which no row is found", f.Name, f.Type)
	}
	return nil
}

// fieldNames are the names of fields.
func fieldNames(fields []*Field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// noField says that there is no such field, and which is near.
func (d *definition) noField(name string) string {
	names := fieldNames(d.m.Fields)
	hint := "declare it in fields"
	if near := Nearest(name, names); len(near) > 0 {
		hint = "the nearest is " + near[0]
	}
	return "there is no field " + Quote(name) + "; " + hint
}
