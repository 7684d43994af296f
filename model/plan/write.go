package plan

import (
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// WriteKind says what a write does.
type WriteKind string

// The kinds.
const (
	Insert     WriteKind = "insert"     // Rows, all or none
	Update     WriteKind = "update"     // Set on one row of Where: the one with the lowest _id
	UpdateMany WriteKind = "updateMany" // Set on every row of Where
	Remove     WriteKind = "remove"     // every row of Where, to Archive first when there is one
	Upsert     WriteKind = "upsert"     // the row that meets Match is changed by Set, or Rows[0] is inserted
	Mutate     WriteKind = "mutate"     // Nodes, recursively
)

// Write is one judged write. A source does all of it in one transaction, or nothing.
type Write struct {
	Kind  WriteKind
	Model *model.Model
	Rows  []Row
	// Where chooses rows by the caller's own condition. Scope are the caller's row limits: for Update and Upsert a row
	// that Where (or Match) chooses and Scope does not is ErrOutside; for UpdateMany and Remove of several it is left out.
	// One: Remove is of one row, and answers ErrOutside like Update.
	Where, Scope Cond
	One          bool
	// Check must hold of every row after the write (nobody writes a row into a place he may not see); else ErrOutside.
	Check Cond
	Set   []Assign
	Match []FieldValue
	// Archive is where Remove puts rows first, with Now as deletedAt, replacing a row of the same _id; nil: nowhere.
	Archive *model.Model
	Now     int64 // in the archive model's unit
	// Expect is what the version field must hold before the write; Absent: anything. Otherwise *VersionError.
	Expect canonjson.Value
	Nodes  []*Node
	// Lacks names required fields that a row of an Upsert or a Mutate would lack if it were inserted; Check asks for them.
	// It is for the words of a refusal: a source does not look at it.
	Lacks []string
}

// Row is one row to insert: the fields that are stored, explicit nulls included. An _id that is missing is assigned by
// the database (AutoIncrement).
type Row []FieldValue

// FieldValue is a field and its value: Null, or a value as in Compare (arrays and objects as JSON).
type FieldValue struct {
	Field *model.Field
	Value canonjson.Value
}

// Assign is one change of a row. Exactly one of Value, Unset and Inc is meant.
type Assign struct {
	Field *model.Field
	Value canonjson.Value // Absent when one of the others is meant
	Unset bool            // missing afterwards
	Inc   canonjson.Value // added to the stored value, or to 0 where it is null or missing
}

// Node is a row of a mutation and the children below it. A row that meets one of Keys is changed by Set; otherwise Row is
// inserted.
type Node struct {
	Model *model.Model
	// A value of Keys that is Absent is that of the parent's Local: it belongs to the Foreign field of a child.
	Keys         [][]FieldValue
	Row          Row
	Set          []Assign
	Scope, Check Cond
	Kids         []NodeKid
}

// NodeKid are the children of one relation. Each gets Foreign = the parent's Local. One: the child is found by Foreign
// alone.
type NodeKid struct {
	Local, Foreign *model.Field
	One            bool
	Nodes          []*Node
}
