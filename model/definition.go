package model

import "github.com/tabellion-mcp/tabellion/internal/canonjson"

// Type is the declared type of a field or computed column.
type Type string

// The types. A value of each is JSON: Date is a number (epoch, in the unit that the application chose), Decimal a string
// with all its digits, Timestamp RFC 3339 in UTC, Day YYYY-MM-DD, UUID 36 lower-case characters, Bytes base64.
const (
	String    Type = "string"
	Int       Type = "int"  // 32 bits in a database made by our DDL; 64 bits are accepted
	Long      Type = "long" // 64 bits, exact
	Float     Type = "float"
	Double    Type = "double"
	Number    Type = "number"
	Boolean   Type = "boolean"
	Date      Type = "date"
	Array     Type = "array"
	Object    Type = "object"
	Any       Type = "any"
	Decimal   Type = "decimal"
	Timestamp Type = "timestamp"
	Day       Type = "day"
	UUID      Type = "uuid"
	Bytes     Type = "bytes"
)

// JSON tells whether values of t are arrays, objects or anything: they are stored as JSON, and neither filtered, sorted
// nor grouped by.
func (t Type) JSON() bool { return t == Array || t == Object || t == Any }

// Integer tells whether values of t are integers of 64 bits.
func (t Type) Integer() bool { return t == Int || t == Long || t == Date }

// Numeric tells whether values of t can be summed.
func (t Type) Numeric() bool {
	switch t {
	case Int, Long, Float, Double, Number, Date, Decimal:
		return true
	}
	return false
}

// TimeUnit says how a model keeps createdAt and updatedAt.
type TimeUnit string

// The units. Without one the registry adds no such fields and nothing sets them.
const (
	NoTimes TimeUnit = ""
	Millis  TimeUnit = "ms"
	Seconds TimeUnit = "s"
)

// Model is one definition as registered. It is immutable and safe for concurrent use.
type Model struct {
	Name        string
	Description string // "" when the definition has none
	Collection  string // as written, or Name
	IDPrefix    string
	IDField     string // what get_X, update_X and delete_X locate by; "_id" by default
	Times       TimeUnit
	Fields      []*Field // an added _id, those of the definition in their order, other added ones
	Relations   []*Relation
	Computes    []*Compute
	Indexes     []Index
	Read, Write []string // role lists; nil: absent, which is not the same as empty
	Hidden      bool     // x-mcp.hidden: unknown to every caller of a tool
	Source      string   // "default" unless the definition names another
	Namespace   string
	Triggers    []Trigger // parsed and checked; running them is refused
	Version     int       // 1, raised by each new registration of the name

	// Of existing databases (section 2.9). Table is [schema.]table as written; without it the table is Collection.
	Table      string
	Keyless    bool     // the table has no key: reads only, no _id
	Key        []*Field // the fields of the primary key. Nil: the field _id alone
	View       bool     // reads only
	VersionOf  *Field   // what expectedVersion compares; nil: the model has no version
	SourceText bool     // collation: source; text compares as the database does, not by code point

	Archive   *Model // where removed rows go; nil: they are removed for good
	ArchiveOf *Model // set on an archive model

	// Text is the definition as written, every key kept. Absent for archive models.
	Text canonjson.Value

	byName map[string]any // *Field, *Relation or *Compute
}

// ReadOnly tells whether no write can be expressed on the model at all.
func (m *Model) ReadOnly() bool { return m.View || m.Keyless }

// Field finds a stored field, nil when there is none of this name.
func (m *Model) Field(name string) *Field { f, _ := m.byName[name].(*Field); return f }

// Relation finds a relation, nil when there is none of this name.
func (m *Model) Relation(name string) *Relation { r, _ := m.byName[name].(*Relation); return r }

// Compute finds a computed column, nil when there is none of this name.
func (m *Model) Compute(name string) *Compute { c, _ := m.byName[name].(*Compute); return c }

// ID is the field _id. It is nil only where the model is Keyless. When the key has several columns it has no column of
// its own (Composite).
func (m *Model) ID() *Field { return m.Field("_id") }

// Composite tells whether _id is made of several columns: the JSON array of their values as text, such as ["1","7"].
func (m *Model) Composite() bool { return len(m.Key) > 1 }

// Field is one stored field.
type Field struct {
	Name          string
	Column        string // of the table; Name by default; "" for the _id of a composite key
	Type          Type
	Description   string
	Format        string            // told to callers, not checked
	Enum          []canonjson.Value // nil: any value of the type
	Required      bool
	Default       canonjson.Value // used when reading a missing or null field; Absent: none
	Read, Write   []string        // nil: absent
	Fields        []*Field        // of an object: declared sub-fields
	AutoIncrement bool            // the database assigns it
	Generated     bool            // the database computes it: never written
	Added         bool            // by the registry (timestamps), not by the definition
}

// Sub finds a declared sub-field of an object.
func (f *Field) Sub(name string) *Field {
	for _, s := range f.Fields {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// ImplicitDefault is what a write result shows for a missing field of the type: "", 0, false, [] or {}; Absent for the
// types that have none (section 2.2).
func (t Type) ImplicitDefault() canonjson.Value {
	switch t {
	case String:
		return canonjson.String("")
	case Int, Long, Float, Double:
		return canonjson.Int(0)
	case Boolean:
		return canonjson.Bool(false)
	case Array:
		return canonjson.Array()
	case Object:
		return canonjson.Object()
	}
	return canonjson.Value{}
}

// Relation leads to rows of another model: target.Foreign = this.Local, pairwise; it never matches where a local value
// is missing or null.
type Relation struct {
	Name           string
	Model          string // the target's name; it need not be registered when the relation is
	One            bool   // an object or null; else an array
	Local, Foreign []string
	Description    string
	Read           []string // nil: absent
}

// AggOp is an aggregate.
type AggOp string

// The aggregates.
const (
	Count AggOp = "$count"
	Sum   AggOp = "$sum"
	Avg   AggOp = "$avg"
	Min   AggOp = "$min"
	Max   AggOp = "$max"
)

// Compute is a computed column. Exactly one of Agg, Fn and AsyncFn is set.
type Compute struct {
	Name        string
	Type        Type // Any by default
	Description string
	Fn, AsyncFn bool
	FnRef       string // what the function is registered under: as written, or Name
	Depends     []Depend
	Agg         *Agg
	Read        []string // nil: absent
	// Text is the definition as written.
	Text canonjson.Value
}

// Depend is what a function needs: a field, or a relation with fields of its target.
type Depend struct {
	Field    string
	Relation string
	Fields   []string // of the relation's target
}

// Agg is an aggregate over the rows of a relation.
type Agg struct {
	Op       AggOp
	Relation string
	Field    string // "" for $count
}

// Index is an index of the table.
type Index struct {
	Keys   []IndexKey
	Unique bool
	Sparse bool
}

// IndexKey is one field of an index.
type IndexKey struct {
	Field string
	Desc  bool
}

// Trigger is a parsed trigger. Nothing runs it yet.
type Trigger struct {
	Event string // insert, update, remove, schedule
	Text  canonjson.Value
}
