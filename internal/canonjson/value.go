// Package canonjson reads JSON strictly, once, into an ordered exact tree, and writes it
// back as it was or in the canonical form of RFC 8785.
//
// Parse tells two kinds of trouble apart. Text that is not JSON is a *SyntaxError and
// yields nothing. Text that is JSON but breaks a rule of this server (a duplicate name, a
// number that binary64 cannot hold, too much nesting) yields the tree as far as it may be
// kept, together with the first *Flaw, so that a refusal can still carry the id of the
// request:
//
//	v, flaw, err := canonjson.Parse(frame, canonjson.Limits{Depth: 72, Nodes: 100_100})
//	if err != nil { ... not JSON: answer with a null id ... }
//	if flaw != nil { ... refuse, naming flaw.Message, with v.Get("id") ... }
//	name := v.Get("params").Get("name").Str()
//
// The tree keeps member order and the spelling of every number. It knows the depth and the
// number of nodes of each subtree, so that a payload can be measured from itself however
// deep it lies in its frame. Two values are Equal when their canonical forms are.
//
// Values are immutable and safe for concurrent use.
package canonjson

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Kind says which of the JSON types a Value has.
type Kind uint8

// The kinds. KindAbsent is the kind of the zero Value: nothing was there, which is not the
// same as null.
const (
	KindAbsent Kind = iota
	KindNull
	KindBool
	KindNumber
	KindString
	KindArray
	KindObject
)

// kindNames holds the words of Kind.String, in the order of the constants.
var kindNames = [...]string{"absent", "null", "boolean", "number", "string", "array", "object"}

// String returns the JSON word for k ("boolean", "object"), for messages.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// flags are the yes-or-no facts about one Value.
type flags uint8

const (
	flagTrue  flags = 1 << iota // a KindBool that is true
	flagPlain                   // a KindNumber whose literal is its canonical form and an integer of at most 15 digits
	flagRaw                     // text is the whole canonical JSON text of the value, not parsed
)

// Value is one JSON value, or nothing at all: the zero Value is Absent. It is 32 bytes and
// meant to be passed by value. Parsed values share one copy of the parsed text, so keeping
// any of them keeps that copy alive.
type Value struct {
	text  string     // content of a string, literal of a number, everything of a raw value
	kids  *container // set for arrays and objects, unless raw
	at    uint32     // offset in the parsed text plus one; 0 when constructed
	kind  Kind
	flags flags
}

// Member is one name and value of an object.
type Member struct {
	Name  string
	Value Value
}

// container is what a parsed or constructed array or object holds, with what is known of
// the subtree. Exactly one of items and members is used.
type container struct {
	items   []Value
	members []Member
	size
}

// size measures a subtree.
type size struct {
	depth   int32 // containers on the longest way down, itself included
	nodes   int32 // values, itself included
	nulName bool  // a member name holds U+0000
}

// newSize is the size of an empty container.
func newSize() size { return size{depth: 1, nodes: 1} }

// add counts v as a child.
func (s *size) add(v *Value) {
	if v.kids == nil {
		if v.flags&flagRaw == 0 {
			s.nodes++
		}
		return
	}
	s.depth = max(s.depth, v.kids.depth+1)
	s.nodes += v.kids.nodes
	s.nulName = s.nulName || v.kids.nulName
}

// Kind returns the type of v. For a Raw value it is told from the first byte.
func (v Value) Kind() Kind { return v.kind }

// IsAbsent reports whether v is the zero Value: no such member, item or text.
func (v Value) IsAbsent() bool { return v.kind == KindAbsent }

// open returns v, parsed if it is raw. A raw text that is not JSON, which its maker
// promised it is, opens as Absent.
func (v Value) open() Value {
	if v.flags&flagRaw == 0 {
		return v
	}
	w, _, err := parseString(v.text, unlimited)
	if err != nil {
		return Value{}
	}
	return w
}

// Get returns the member called name, compared byte for byte. It is Absent when v has no
// such member or is no object. It takes time in proportion to the number of members.
func (v Value) Get(name string) Value {
	for i, ms := 0, v.Members(); i < len(ms); i++ {
		if ms[i].Name == name {
			return ms[i].Value
		}
	}
	return Value{}
}

// Members returns the members of an object in the order of the text, nil for other kinds.
// The caller must not change them.
func (v Value) Members() []Member {
	if v = v.open(); v.kind != KindObject {
		return nil
	}
	return v.kids.members
}

// Items returns the items of an array, nil for other kinds. The caller must not change them.
func (v Value) Items() []Value {
	if v = v.open(); v.kind != KindArray {
		return nil
	}
	return v.kids.items
}

// Len returns the number of items or members, 0 for a scalar.
func (v Value) Len() int {
	if v = v.open(); v.kids == nil {
		return 0
	}
	return len(v.kids.items) + len(v.kids.members)
}

// Str returns the content of a string, "" for other kinds.
func (v Value) Str() string {
	if v = v.open(); v.kind != KindString {
		return ""
	}
	return v.text
}

// Bool reports whether v is the value true.
func (v Value) Bool() bool { return v.open().flags&flagTrue != 0 }

// Literal returns a number as it was written, "" for other kinds.
func (v Value) Literal() string {
	if v = v.open(); v.kind != KindNumber {
		return ""
	}
	return v.text
}

// Int returns a number that is an integer within ±(2^53-1), judged by its decimal digits
// and not by what binary64 makes of them: 1, 1.0, 1e0 and 10e-1 are 1; 1.5, 2^53 and
// 1.00000000000000000001 are none. It is (0, false) for other kinds.
func (v Value) Int() (int64, bool) {
	if v = v.open(); v.kind != KindNumber {
		return 0, false
	}
	return exactInt(v.text)
}

// Float returns the binary64 nearest to a number, 0 for other kinds. It is an infinity only
// for a literal that Parse reported as NumberRange.
func (v Value) Float() float64 {
	if v = v.open(); v.kind != KindNumber {
		return 0
	}
	return parseFloat(v.text)
}

// Depth returns how many containers lie on the longest way down from v, itself included:
// 0 for a scalar, 1 for []. It is 0 for a Raw value, whose inside is not looked at.
func (v Value) Depth() int {
	if v.kids == nil {
		return 0
	}
	return int(v.kids.depth)
}

// Nodes returns how many values the subtree of v holds, itself included; names do not
// count. It is 0 for Absent and for a Raw value, whose inside is not looked at.
func (v Value) Nodes() int {
	switch {
	case v.kids != nil:
		return int(v.kids.nodes)
	case v.kind == KindAbsent || v.flags&flagRaw != 0:
		return 0
	}
	return 1
}

// HasNULName reports whether a member name anywhere in v holds U+0000. It does not look
// into a Raw value.
func (v Value) HasNULName() bool { return v.kids != nil && v.kids.nulName }

// Offset returns where v begins in the parsed text, in bytes, or -1 when it was constructed
// (or lies beyond 4 GiB).
func (v Value) Offset() int { return int(v.at) - 1 }

// Equal reports whether v and w are the same JSON value: their canonical forms are equal,
// whatever the order of members and the spelling of numbers. Absent equals only Absent.
func (v Value) Equal(w Value) bool {
	switch {
	case v.kind != w.kind:
		return false
	case v.kind == KindAbsent:
		return true
	}
	return string(v.AppendCanonical(nil)) == string(w.AppendCanonical(nil))
}

// Any returns v as the types that encoding/json decodes into: map[string]any, []any,
// string, bool, nil and json.Number. A number has its canonical spelling, so that no
// exponent in it exceeds 308. Absent becomes nil.
func (v Value) Any() any { return v.toAny(false) }

// AnyOpaque is Any, but every Raw value becomes nil without being parsed. It is for a
// schema check of a result whose raw parts may be anything.
func (v Value) AnyOpaque() any { return v.toAny(true) }

// toAny converts v; opaque says that raw values become nil.
func (v Value) toAny(opaque bool) any {
	if v.flags&flagRaw != 0 {
		if opaque {
			return nil
		}
		v = v.open()
	}
	switch v.kind {
	case KindBool:
		return v.flags&flagTrue != 0
	case KindNumber:
		return json.Number(v.AppendCanonical(nil))
	case KindString:
		return v.text
	case KindArray:
		items := make([]any, len(v.kids.items))
		for i, item := range v.kids.items {
			items[i] = item.toAny(opaque)
		}
		return items
	case KindObject:
		members := make(map[string]any, len(v.kids.members))
		for _, m := range v.kids.members {
			members[m.Name] = m.Value.toAny(opaque)
		}
		return members
	}
	return nil
}

// pointerUnescape undoes the escapes of one token of a JSON pointer (RFC 6901, section 4).
var pointerUnescape = strings.NewReplacer("~1", "/", "~0", "~")

// At returns the value that a JSON pointer (RFC 6901) names inside v, Absent when there is
// none or the pointer is malformed. "" is v itself.
func (v Value) At(pointer string) Value {
	if pointer == "" {
		return v
	}
	tokens := strings.Split(pointer, "/")
	if tokens[0] != "" {
		return Value{}
	}
	for _, token := range tokens[1:] {
		v = v.open()
		switch v.kind {
		case KindObject:
			v = v.Get(pointerUnescape.Replace(token))
		case KindArray:
			v = v.item(token)
		default:
			return Value{}
		}
	}
	return v
}

// item returns the item of an array that the pointer token names: digits without a sign
// and without leading zeros.
func (v Value) item(token string) Value {
	i, err := strconv.Atoi(token)
	if err != nil || strconv.Itoa(i) != token || i < 0 || i >= len(v.kids.items) {
		return Value{}
	}
	return v.kids.items[i]
}

// Without returns an object without the named members, the others in their order. Names
// that it does not have are ignored, and other kinds are returned as they are.
func (v Value) Without(names ...string) Value {
	named := func(m Member) bool { return slices.Contains(names, m.Name) }
	ms := v.Members()
	if !slices.ContainsFunc(ms, named) {
		return v
	}
	w := newObject(slices.DeleteFunc(slices.Clone(ms), named))
	w.at = v.at
	return w
}
