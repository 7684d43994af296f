// Package modelgen makes random model definitions, rows and queries for comparing what answers queries: databases with
// each other and with model/eval. Everything follows from a seed. Queries are valid, and their values are taken from
// the rows so that most of them find something; which of them are kept is up to the caller:
//
//	w := modelgen.New(7, modelgen.Options{})
//	g := w.Queries(counts)
//	q := g.Next()
//
// The traps are in the values: text whose order differs between code points, UTF-16 and locales, integers beyond 2^53,
// nulls, missing fields, empty tables, several rows where one is expected, references to nothing.
package modelgen

import (
	"fmt"
	"math/rand/v2"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/eval"
)

// Options shape a world.
type Options struct {
	// Rows is the most rows that a table has; 0 is 24.
	Rows int
	// Extended adds the types of existing databases (decimal, timestamp, day, uuid, bytes) to ordinary tables.
	Extended bool
}

// World is a set of models with their rows.
type World struct {
	Models []*Model
	Data   eval.Data

	rand *rand.Rand
	opts Options
}

// Model is one model as the generator sees it.
type Model struct {
	Name, Table string
	Ordinary    bool     // an existing table, without __present
	Keys        []*Field // the fields of a composite key; nil: ID
	// ID is the field of a key of one column. Queries know it as _id, and by its own name where that is another. It is nil
	// with a composite key, and in a table without a key.
	ID        *Field
	Fields    []*Field // all but ID, those of a composite key included
	Relations []*Relation
	Columns   []*Column
	Index     string // the field of an index; "" for none
}

// Field is one stored field.
type Field struct {
	Name, Column string
	Type         model.Type
	Default      canonjson.Value
	Subs         []Sub
	Full         bool              // never null nor missing: part of a key
	Pool         []canonjson.Value // what rows hold, few so that they repeat
	Inexact      bool              // sums of it overflow, or depend on their order
}

// Sub is a declared sub-field of an object.
type Sub struct {
	Name    string
	Type    model.Type
	Default canonjson.Value
}

// Relation joins two models.
type Relation struct {
	Name           string
	Target         *Model
	One            bool
	Local, Foreign []string
}

// Column is an aggregate column.
type Column struct {
	Name     string
	Op       model.AggOp
	Relation *Relation
	Field    *Field // nil: $count
}

// modelNames are names of models and their tables, reserved words among them.
var modelNames = [][2]string{{"Ferry", "ferry"}, {"Order", "order"}, {"Berth", "Group"}, {"Crew_2", "crew member"}, {"Cargo", "select"}, {"Deck", "deck\"s"}}

// New makes a world: models that our own DDL could have made, and tables as they are found.
func New(seed uint64, opts Options) *World {
	if opts.Rows == 0 {
		opts.Rows = 24
	}
	w := &World{rand: rand.New(rand.NewPCG(seed, 0x6d6f64656c)), opts: opts, Data: eval.Data{}}
	n := 3 + w.rand.IntN(3)
	kinds := []kind{stored, stored, ordinary, composite, pick(w.rand, []kind{ordinary, keyless})}
	for i, name := range modelNames[:n] {
		w.Models = append(w.Models, w.model(name[0], name[1], kinds[i]))
	}
	for i, m := range w.Models {
		w.relate(m, i)
	}
	for _, m := range w.Models {
		w.columns(m)
	}
	for i, m := range w.Models {
		w.fill(m, i)
	}
	return w
}

// chance is true p times in a hundred.
func (w *World) chance(p int) bool { return w.rand.IntN(100) < p }

// pick takes one of several.
func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// kind is a kind of table.
type kind int

// The kinds: with __present, as they are found, and of these with a key of two columns and with none.
const (
	stored kind = iota
	ordinary
	composite
	keyless
)

// model makes a model with its own fields.
func (w *World) model(name, table string, k kind) *Model {
	found := k != stored
	m := &Model{Name: name, Table: table, Ordinary: found}
	switch k {
	case composite:
		m.Keys = []*Field{
			{Name: "line", Column: "line", Type: model.Int, Full: true},
			{Name: "stop", Column: "stop", Type: model.String, Full: true},
		}
		m.Fields = append(m.Fields, m.Keys...)
	case stored, ordinary:
		m.ID = w.id(found)
	}
	types := []model.Type{model.String, model.Int, model.Long, model.Float, model.Double, model.Number, model.Boolean, model.Date}
	if found && w.opts.Extended {
		types = append(types, model.Decimal, model.Timestamp, model.Day, model.UUID, model.Bytes)
	}
	for i, t := range types {
		if t == model.String || t == model.Int || w.chance(75) {
			m.Fields = append(m.Fields, w.field(i, t, found))
		}
	}
	m.Fields = append(m.Fields, w.field(len(types), model.String, found), w.field(len(types)+1, model.Long, found))
	if !found || k != keyless && w.chance(50) {
		m.Fields = append(m.Fields, w.jsonFields()...)
	}
	if w.chance(50) {
		m.Index = pick(w.rand, m.Fields[len(m.Keys):len(m.Keys)+3]).Name
	}
	return m
}

// id makes the field of the key: text, or in a table that is found often a number in a column of another name, which may
// be declared under a name of its own too.
func (w *World) id(found bool) *Field {
	f := &Field{Name: "_id", Column: "_id", Type: model.String, Full: true}
	if found && w.chance(60) {
		f.Type, f.Column = model.Long, "row id"
	}
	if found && w.chance(40) {
		f.Name = "rowNo"
	}
	return f
}

// fieldNames are the names by type, in several styles, reserved words of SQL among them.
var fieldNames = map[model.Type][]string{
	model.String: {"title", "from", "Note9"}, model.Int: {"seats", "limit"}, model.Long: {"big", "order", "serial_no"},
	model.Float: {"weight"}, model.Double: {"price"}, model.Number: {"_rank"}, model.Boolean: {"active"}, model.Date: {"at"},
	model.Decimal: {"fee"}, model.Timestamp: {"sailed"}, model.Day: {"dueDay"}, model.UUID: {"token"}, model.Bytes: {"seal"},
}

// field makes one scalar field; i keeps the names of one model apart.
func (w *World) field(i int, t model.Type, ordinary bool) *Field {
	names := fieldNames[t]
	f := &Field{Name: names[0], Type: t}
	if i > 7 && len(names) > 1 && (t == model.String || t == model.Long) {
		f.Name = names[1+w.rand.IntN(len(names)-1)]
	}
	f.Column = f.Name
	if ordinary && w.chance(30) {
		f.Column = f.Name + ` "c"`
	}
	f.Inexact = t == model.Long && i > 7 || (t == model.Float || t == model.Double) && w.chance(25)
	f.Pool = w.pool(f)
	if w.chance(20) {
		f.Default = pick(w.rand, f.Pool)
	}
	return f
}

// jsonFields makes fields that are stored as JSON.
func (w *World) jsonFields() []*Field {
	meta := &Field{Name: "meta", Column: "meta", Type: model.Object, Subs: []Sub{
		{Name: "level", Type: model.String, Default: canonjson.String("basic")}, {Name: "lang", Type: model.String}, {Name: "n", Type: model.Int, Default: canonjson.Int(3)},
	}}
	all := []*Field{meta, {Name: "tags", Column: "tags", Type: model.Array}, {Name: "extra", Column: "extra", Type: model.Any}}
	for _, f := range all {
		f.Pool = w.pool(f)
	}
	return all
}

// relate adds relations of m: to an earlier model and back, to itself, and by a field that is no key.
func (w *World) relate(m *Model, i int) {
	if i > 0 {
		w.link(m, w.Models[w.rand.IntN(i)])
	}
	if i > 1 {
		w.link(m, w.Models[i-1])
	}
	if m.ID != nil && w.chance(70) {
		w.self(m)
	}
	other := w.Models[w.rand.IntN(i+1)]
	if a, b := m.first(model.String), other.first(model.String); w.chance(60) && other != m {
		b.Pool = append(b.Pool[:3:3], a.Pool[:3]...)
		m.Relations = append(m.Relations, &Relation{Name: fmt.Sprintf("alike%d", i), Target: other, One: w.chance(50), Local: []string{a.Name}, Foreign: []string{b.Name}})
	}
}

// first finds the first field of a type that is no part of a key.
func (m *Model) first(t model.Type) *Field {
	for _, f := range m.Fields {
		if f.Type == t && !f.Full {
			return f
		}
	}
	return nil
}

// link makes m refer to another model, and the way back.
func (w *World) link(m, to *Model) {
	n := len(m.Relations) + 10*len(to.Relations)
	local, foreign := w.reference(m, to, fmt.Sprintf("ref%d", n))
	m.Relations = append(m.Relations, &Relation{Name: fmt.Sprintf("to%s%d", to.Name, n), Target: to, One: true, Local: local, Foreign: foreign})
	back := &Relation{Name: fmt.Sprintf("of%s%d", m.Name, n), Target: m, Local: foreign, Foreign: local}
	to.Relations = append(to.Relations, back)
}

// reference adds the fields of m that hold the key of another model.
func (w *World) reference(m, to *Model, name string) (local, foreign []string) {
	if to.ID != nil {
		m.Fields = append(m.Fields, &Field{Name: name, Column: name, Type: to.ID.Type})
		return []string{name}, []string{"_id"}
	}
	for _, k := range to.Keys {
		f := &Field{Name: name + k.Name, Column: name + k.Name, Type: k.Type}
		m.Fields = append(m.Fields, f)
		local, foreign = append(local, f.Name), append(foreign, k.Name)
	}
	return local, foreign
}

// self makes m a tree.
func (w *World) self(m *Model) {
	local, foreign := w.reference(m, m, "upRef")
	m.Relations = append(m.Relations,
		&Relation{Name: "up", Target: m, One: true, Local: local, Foreign: foreign},
		&Relation{Name: "downs", Target: m, Local: foreign, Foreign: local})
}

// columns adds aggregate columns over the to-many relations.
func (w *World) columns(m *Model) {
	for _, r := range m.Relations {
		if r.One && w.chance(80) {
			continue
		}
		m.Columns = append(m.Columns, &Column{Name: "count" + r.Name, Op: model.Count, Relation: r})
		for _, op := range []model.AggOp{model.Sum, model.Avg, model.Min, model.Max} {
			if f := w.operand(r.Target, op); f != nil {
				m.Columns = append(m.Columns, &Column{Name: string(op)[1:] + r.Name, Op: op, Relation: r, Field: f})
			}
		}
	}
}

// operand chooses a field for an aggregate, nil when the model has none.
func (w *World) operand(m *Model, op model.AggOp) *Field {
	var fit []*Field
	for _, f := range m.Fields {
		sums := op == model.Sum || op == model.Avg
		if f.Type.JSON() || sums && (!f.Type.Numeric() || f.Inexact) {
			continue
		}
		fit = append(fit, f)
	}
	if len(fit) == 0 {
		return nil
	}
	return pick(w.rand, fit)
}
