package model

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// types are the names of types as definitions write them.
var types = map[string]Type{
	"string": String, "int": Int, "long": Long, "float": Float, "double": Double, "number": Number, "boolean": Boolean, "bool": Boolean,
	"date": Date, "datetime": Date, "array": Array, "object": Object, "any": Any,
	"decimal": Decimal, "timestamp": Timestamp, "day": Day, "uuid": UUID, "bytes": Bytes,
}

// typeNames lists them for messages.
var typeNames = []string{"string", "int", "long", "float", "double", "number", "boolean", "date", "array", "object", "any", "decimal", "timestamp", "day", "uuid", "bytes"}

// kindOf are words of other systems for our types, for hints.
var kindOf = map[string]string{
	"integer": "int", "smallint": "int", "int32": "int", "bigint": "long", "int64": "long", "real": "double", "float64": "double",
	"text": "string", "str": "string", "varchar": "string", "char": "string", "json": "object", "jsonb": "object", "map": "object", "list": "array",
	"numeric": "decimal", "money": "decimal", "timestamptz": "timestamp", "time": "timestamp", "blob": "bytes", "binary": "bytes", "bytea": "bytes",
}

// definition reads one definition.
type definition struct {
	opts Options
	m    *Model
	v    canonjson.Value
}

// bad is an error of the definition being read.
func (d *definition) bad(format string, args ...any) *Error {
	where := "the definition"
	if d.m.Name != "" {
		where = "model " + d.m.Name
	}
	return Errorf(BadSchema, "%s: %s", where, fmt.Sprintf(format, args...))
}

// read reads a definition. The first thing wrong with it is the error.
func (o Options) read(v canonjson.Value) (*Model, error) {
	d := &definition{opts: o, v: v, m: &Model{Text: v, Version: 1, Source: "default", Times: Millis, IDField: "_id", byName: map[string]any{}}}
	if v.Kind() != canonjson.KindObject {
		return nil, d.bad("a definition is an object such as {\"name\": \"Course\", \"fields\": {\"title\": \"string\"}}, not a value of type %s", v.Kind())
	}
	steps := []func() error{d.name, d.keys, d.words, d.head, d.times, d.fields, d.existing, d.addID, d.addTimes, d.relations, d.computes, d.indexes,
		d.triggers, d.archiveTimes, d.columnsOnce, d.assigned, d.names, d.references}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return d.m, nil
}

// name reads the name.
func (d *definition) name() error {
	v := d.v.Get("name")
	switch {
	case v.Kind() != canonjson.KindString:
		return d.bad("name must be a text, such as \"Course\"")
	case !legalName(v.Str()):
		return d.bad("the name %s cannot stand in a query: use at most 128 letters, digits and _, not a digit first", Quote(v.Str()))
	}
	d.m.Name = d.opts.Prefix + v.Str()
	return nil
}

// known refuses a key that does not exist, in a part of the definition.
func (d *definition) known(where string, v canonjson.Value, p *part) error {
	if d.opts.Lenient {
		return nil
	}
	keys := p.names()
	for _, m := range v.Members() {
		if slices.Contains(keys, m.Name) || strings.HasPrefix(m.Name, "x-") || slices.Contains(d.opts.Also, m.Name) {
			continue
		}
		hint := "the keys are " + strings.Join(keys, ", ")
		if near := Nearest(m.Name, keys); len(near) > 0 {
			hint = "the nearest is " + near[0] + ", written as " + p.example(near[0])
		}
		return d.bad("%sunknown key %s; %s", where, Quote(m.Name), hint)
	}
	return nil
}

// keys refuses unknown keys of the definition itself.
func (d *definition) keys() error { return d.known("", d.v, &modelPart) }

// text reads an optional text.
func (d *definition) text(where string, v canonjson.Value, name string, at *string) error {
	switch t := v.Get(name); t.Kind() {
	case canonjson.KindAbsent:
	case canonjson.KindString:
		*at = t.Str()
	default:
		return d.bad("%s%s must be a text, not a value of type %s", where, name, t.Kind())
	}
	return nil
}

// flag reads an optional boolean.
func (d *definition) flag(where string, v canonjson.Value, name string, at *bool) error {
	switch t := v.Get(name); t.Kind() {
	case canonjson.KindAbsent:
	case canonjson.KindBool:
		*at = t.Bool()
	default:
		return d.bad("%s%s must be true or false, not a value of type %s", where, name, t.Kind())
	}
	return nil
}

// named reads an optional name of something in the database: a text that is not empty and has no control characters.
func (d *definition) named(where string, v canonjson.Value, name string, at *string) error {
	if v.Get(name).IsAbsent() {
		return nil
	}
	if err := d.text(where, v, name, at); err != nil {
		return err
	}
	if *at == "" || strings.ContainsFunc(*at, unicode.IsControl) {
		return d.bad("%s%s must be a name, without control characters; leave it out for its default", where, name)
	}
	return nil
}

// option reads one optional key of a part.
type option func(d *definition, where string, v canonjson.Value) error

// optText, optName, optFlag and optRoles are the kinds of options.
func optText(name string, at *string) option {
	return func(d *definition, where string, v canonjson.Value) error { return d.text(where, v, name, at) }
}
func optName(name string, at *string) option {
	return func(d *definition, where string, v canonjson.Value) error { return d.named(where, v, name, at) }
}
func optFlag(name string, at *bool) option {
	return func(d *definition, where string, v canonjson.Value) error { return d.flag(where, v, name, at) }
}
func optRoles(name string, at *[]string) option {
	return func(d *definition, where string, v canonjson.Value) error { return d.roles(where, v, name, at) }
}

// all reads options in their order, so that the first thing wrong is always the same.
func (d *definition) all(where string, v canonjson.Value, options ...option) error {
	for _, o := range options {
		if err := o(d, where, v); err != nil {
			return err
		}
	}
	return nil
}

// roles reads an optional role list; nil when it is absent.
func (d *definition) roles(where string, v canonjson.Value, name string, at *[]string) error {
	t := v.Get(name)
	if t.IsAbsent() {
		return nil
	}
	list := []string{}
	for _, item := range t.Items() {
		if item.Kind() != canonjson.KindString || item.Str() == "" {
			return d.bad("%s%s must be a list of role names", where, name)
		}
		list = append(list, item.Str())
	}
	if t.Kind() != canonjson.KindArray {
		return d.bad("%s%s must be a list of role names such as [\"staff\"], not a value of type %s", where, name, t.Kind())
	}
	*at = list
	return nil
}

// head reads what a definition says of the model as a whole.
func (d *definition) head() error {
	m := d.m
	m.Collection = strings.TrimPrefix(m.Name, d.opts.Prefix)
	var replica, archive bool
	err := d.all("", d.v,
		optText("description", &m.Description), optName("collection", &m.Collection), optName("table", &m.Table), optText("idPrefix", &m.IDPrefix),
		optName("idField", &m.IDField), optName("datasource", &m.Source), optText("$schema", new(string)),
		optFlag("replica", &replica), optFlag("archive", &archive), optFlag("_isArchive", &archive), optFlag("view", &m.View))
	switch {
	case err != nil:
		return err
	case replica:
		return Errorf(Unsupported, "model %s: replicas are not part of this version; leave the definition with replica: true out", m.Name)
	}
	if v := d.v.Get("namespace"); v.Kind() == canonjson.KindString {
		m.Namespace = v.Str() // other values count as none, as in the reference
	}
	if err := d.all("", d.v, optRoles("read", &m.Read), optRoles("write", &m.Write)); err != nil {
		return err
	}
	switch mcp := d.v.Get("x-mcp"); mcp.Kind() {
	case canonjson.KindAbsent:
	case canonjson.KindObject:
		if err := d.flag("x-mcp.", mcp, "hidden", &m.Hidden); err != nil {
			return err
		}
		if err := d.known("x-mcp: ", mcp, &mcpPart); err != nil {
			return err
		}
	default:
		return d.bad("x-mcp must be an object such as {\"hidden\": true}")
	}
	switch c := d.v.Get("collation"); {
	case c.IsAbsent():
	case c.Str() == "source":
		m.SourceText = true
	default:
		return d.bad("collation can be \"source\" only: text compares as the database does; leave it out for the order of code points")
	}
	return nil
}

// times reads timestamps.
func (d *definition) times() error {
	switch t := d.v.Get("timestamps"); {
	case t.IsAbsent():
	case t.Kind() == canonjson.KindBool && t.Bool():
	case t.Kind() == canonjson.KindBool:
		d.m.Times = NoTimes
	case t.Kind() == canonjson.KindString && t.Str() == "ms":
	case t.Kind() == canonjson.KindString && t.Str() == "s":
		d.m.Times = Seconds
	default:
		return d.bad("timestamps must be true, false, \"ms\" or \"s\"")
	}
	return nil
}

// fields reads the fields.
func (d *definition) fields() error {
	v := d.v.Get("fields")
	if v.Kind() != canonjson.KindObject || v.Len() == 0 {
		return d.bad("fields must be an object with at least one field, such as {\"title\": \"string\"}")
	}
	for _, m := range v.Members() {
		f, err := d.field("", m.Name, m.Value)
		if err != nil {
			return err
		}
		d.m.Fields = append(d.m.Fields, f)
	}
	return nil
}

// field reads one field or sub-field.
func (d *definition) field(parent, name string, v canonjson.Value) (*Field, error) {
	where := "field " + parent + name + ": "
	if !legalName(name) {
		advice := "; column names the table's own"
		if parent != "" {
			advice = ", or leave it out: parts that are not declared may be stored too"
		}
		return nil, d.bad("the field name %s cannot stand in a query: use letters, digits and _, not a digit first%s", Quote(parent+name), advice)
	}
	f := &Field{Name: name, Column: name}
	if v.Kind() == canonjson.KindString {
		v = canonjson.Object(canonjson.M("type", v))
	}
	if v.Kind() != canonjson.KindObject {
		return nil, d.bad("%sit must be a type such as \"string\", or an object such as {\"type\": \"string\"}, not a value of type %s", where, v.Kind())
	}
	if err := d.known(where, v, &fieldPart); err != nil {
		return nil, err
	}
	var err error
	if f.Type, err = d.typeOf(where, v.Get("type")); err != nil {
		return nil, err
	}
	err = d.all(where, v, optName("column", &f.Column), optText("format", &f.Format), optText("description", &f.Description),
		optFlag("required", &f.Required), optFlag("generated", &f.Generated), optRoles("read", &f.Read), optRoles("write", &f.Write))
	switch {
	case err != nil:
		return nil, err
	case parent != "" && (f.Generated || f.Column != name):
		return nil, d.bad("%sa part of an object has no column of its own; leave column and generated out", where)
	case f.Column == presentColumn:
		return nil, d.bad("%sthe column %s tells which fields of a row are stored, and is no field", where, presentColumn)
	}
	if err := d.strategy(where, f, v.Get("strategy"), parent); err != nil {
		return nil, err
	}
	if err := d.subFields(where, parent, f, v.Get("fields")); err != nil {
		return nil, err
	}
	return f, d.values(where, f, v)
}

// typeOf reads a type.
func (d *definition) typeOf(where string, v canonjson.Value) (Type, error) {
	if v.IsAbsent() {
		return "", d.bad("%sit has no type; the types are %s", where, strings.Join(typeNames, ", "))
	}
	t, ok := types[v.Str()]
	if v.Kind() != canonjson.KindString || !ok {
		hint := "the types are " + strings.Join(typeNames, ", ")
		if near := Nearest(v.Str(), typeNames); len(near) > 0 {
			hint = "the nearest is " + near[0]
		}
		if ours := kindOf[strings.ToLower(v.Str())]; ours != "" {
			hint = "the nearest is " + ours
		}
		return "", d.bad("%sunknown type %s; %s", where, Quote(v.Str()), hint)
	}
	return t, nil
}

// strategy reads who assigns the field.
func (d *definition) strategy(where string, f *Field, v canonjson.Value, parent string) error {
	switch {
	case v.IsAbsent():
		return nil
	case v.Str() != "autoincrement":
		return d.bad("%sstrategy can be \"autoincrement\" only", where)
	case parent != "":
		return d.bad("%sonly _id and columns of the key have a strategy", where)
	case f.Type != Int && f.Type != Long:
		return d.bad("%sstrategy \"autoincrement\" goes with the types int and long, not %s", where, f.Type)
	}
	f.AutoIncrement = true
	return nil
}

// subFields reads the declared fields of an object.
func (d *definition) subFields(where, parent string, f *Field, v canonjson.Value) error {
	if v.IsAbsent() {
		return nil
	}
	if f.Type != Object || v.Kind() != canonjson.KindObject {
		return d.bad("%sfields goes with type object, and is an object of fields", where)
	}
	if strings.Count(parent, ".") > 16 {
		return d.bad("%sobjects are nested deeper than 16 levels", where)
	}
	for _, m := range v.Members() {
		sub, err := d.field(parent+f.Name+".", m.Name, m.Value)
		if err != nil {
			return err
		}
		f.Fields = append(f.Fields, sub)
	}
	return nil
}

// values reads the values that a definition names: default and enum. They must be of the field's type.
func (d *definition) values(where string, f *Field, v canonjson.Value) error {
	if e := v.Get("enum"); !e.IsAbsent() {
		if e.Kind() != canonjson.KindArray || e.Len() == 0 || f.Type.JSON() {
			return d.bad("%senum must be a list of at least one value of a field that is neither array nor object", where)
		}
		for _, item := range e.Items() {
			fitted, err := Coerce(f.Type, item)
			if err != nil {
				return d.bad("%senum: the field %s", where, err)
			}
			f.Enum = append(f.Enum, fitted)
		}
	}
	def := v.Get("default")
	if def.IsAbsent() || def.Kind() == canonjson.KindNull {
		return nil
	}
	fitted, err := Fit(f, def)
	if err != nil {
		return d.bad("%sdefault: the field %s", where, err)
	}
	f.Default = fitted
	return nil
}

// relations reads the relations.
func (d *definition) relations() error {
	v := d.v.Get("relations")
	if v.IsAbsent() {
		return nil
	}
	if v.Kind() != canonjson.KindObject {
		return d.bad("relations must be an object of relations")
	}
	for _, m := range v.Members() {
		r, err := d.relation(m.Name, m.Value)
		if err != nil {
			return err
		}
		d.m.Relations = append(d.m.Relations, r)
	}
	return nil
}

// relation reads one relation.
func (d *definition) relation(name string, v canonjson.Value) (*Relation, error) {
	where := "relation " + name + ": "
	if !legalName(name) {
		return nil, d.bad("the relation name %s cannot stand in a query: use letters, digits and _, not a digit first", Quote(name))
	}
	if v.Kind() != canonjson.KindObject {
		return nil, d.bad("%sit must be an object such as {\"model\": \"Lesson\", \"localField\": \"_id\", \"foreignField\": \"courseId\"}", where)
	}
	if err := d.known(where, v, &relationPart); err != nil {
		return nil, err
	}
	r := &Relation{Name: name, Local: []string{"_id"}, Foreign: []string{name}}
	if target := v.Get("model"); target.Kind() != canonjson.KindString || target.Str() == "" {
		return nil, d.bad("%smodel is missing: the name of the model that it leads to", where)
	} else {
		r.Model = d.opts.Prefix + target.Str()
	}
	switch kind := v.Get("type"); {
	case kind.IsAbsent(), kind.Str() == "many":
	case kind.Str() == "one":
		r.One = true
	default:
		return nil, d.bad("%stype must be \"many\" or \"one\"", where)
	}
	if err := d.columns(where, v, "localField", &r.Local); err != nil {
		return nil, err
	}
	if err := d.columns(where, v, "foreignField", &r.Foreign); err != nil {
		return nil, err
	}
	if len(r.Local) != len(r.Foreign) {
		return nil, d.bad("%slocalField and foreignField must name equally many fields", where)
	}
	if err := d.text(where, v, "description", &r.Description); err != nil {
		return nil, err
	}
	return r, d.roles(where, v, "read", &r.Read)
}

// columns reads one field name or several.
func (d *definition) columns(where string, v canonjson.Value, key string, at *[]string) error {
	t := v.Get(key)
	items := t.Items()
	switch t.Kind() {
	case canonjson.KindAbsent:
		return nil
	case canonjson.KindString:
		items = []canonjson.Value{t}
	}
	var names []string
	for _, item := range items {
		if item.Kind() != canonjson.KindString || item.Str() == "" {
			return d.bad("%s%s must be a field name or a list of field names", where, key)
		}
		names = append(names, item.Str())
	}
	if len(names) == 0 {
		return d.bad("%s%s must be a field name or a list of field names", where, key)
	}
	*at = names
	return nil
}

// indexes reads the indexes.
func (d *definition) indexes() error {
	v := d.v.Get("indexes")
	if !v.IsAbsent() && v.Kind() != canonjson.KindArray {
		return d.bad("indexes must be a list such as [{\"keys\": {\"status\": 1}}]")
	}
	for i, item := range v.Items() {
		where := fmt.Sprintf("index %d: ", i+1)
		if item.Kind() != canonjson.KindObject {
			return d.bad("%sit must be an object such as {\"keys\": {\"status\": 1}}", where)
		}
		keys := item.Get("keys")
		if keys.Kind() != canonjson.KindObject || keys.Len() == 0 {
			return d.bad("%skeys must be an object such as {\"status\": 1, \"price\": -1}", where)
		}
		if err := d.known(where, item, &indexPart); err != nil {
			return err
		}
		var index Index
		if err := d.indexOptions(where, item, &index); err != nil {
			return err
		}
		for _, k := range keys.Members() {
			n, ok := k.Value.Int()
			if !ok || n != 1 && n != -1 {
				return d.bad("%sthe key %s must be 1 or -1", where, Quote(k.Name))
			}
			index.Keys = append(index.Keys, IndexKey{Field: k.Name, Desc: n < 0})
		}
		d.m.Indexes = append(d.m.Indexes, index)
	}
	return nil
}

// indexOptions reads the options of an index, which may stand beside its keys or in options.
func (d *definition) indexOptions(where string, item canonjson.Value, index *Index) error {
	options := item.Get("options")
	if !options.IsAbsent() && options.Kind() != canonjson.KindObject {
		return d.bad("%soptions must be an object such as {\"unique\": true}", where)
	}
	if err := d.known(where+"options: ", options, &indexOptionsPart); err != nil {
		return err
	}
	for _, at := range []canonjson.Value{item, options} {
		if n := at.Get("expireAfterSeconds"); !n.IsAbsent() && n.Kind() != canonjson.KindNumber {
			return d.bad("%sexpireAfterSeconds must be a number", where)
		}
		if err := d.all(where, at, optFlag("unique", &index.Unique), optFlag("sparse", &index.Sparse)); err != nil {
			return err
		}
	}
	return nil
}
