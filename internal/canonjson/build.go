package canonjson

import (
	"math"
	"strconv"
	"strings"
)

// Null returns the value null.
func Null() Value { return Value{kind: KindNull} }

// Bool returns true or false.
func Bool(b bool) Value {
	if b {
		return Value{kind: KindBool, flags: flagTrue}
	}
	return Value{kind: KindBool}
}

// Int returns a number. It panics when n lies beyond ±(2^53-1) and binary64 does not hold
// it exactly, because a reader would get another number: send such integers as strings.
func Int(n int64) Value {
	literal := strconv.FormatInt(n, 10)
	if !exactInteger(literal) {
		panic("canonjson: integer " + literal + " is not exact in binary64")
	}
	return number(literal, true)
}

// Exact returns an integer with all its digits, also where binary64 does not hold it: for
// readers that were told to expect 64-bit integers. Parse refuses such a number in a frame.
func Exact(n int64) Value { return number(strconv.FormatInt(n, 10), true) }

// Float returns a number in its canonical spelling, or with all its digits where that
// spelling is an integer that Parse would refuse: 2^55 is 36028797018963968, though its
// canonical form is 36028797018963970. It panics on NaN and the infinities, which JSON does
// not have.
func Float(f float64) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		panic("canonjson: " + strconv.FormatFloat(f, 'g', -1, 64) + " is no JSON number")
	}
	literal := string(appendFloat(nil, f))
	integer := !strings.ContainsAny(literal, ".e")
	if integer && !exactInteger(literal) {
		literal = strconv.FormatFloat(f, 'f', 0, 64)
	}
	return number(literal, integer)
}

// String returns a string. Bytes that are not UTF-8 become U+FFFD.
func String(s string) Value {
	return Value{kind: KindString, text: strings.ToValidUTF8(s, "\uFFFD")}
}

// Array returns an array of items. It panics when one is Absent.
func Array(items ...Value) Value {
	c := &container{items: make([]Value, len(items)), size: newSize()}
	copy(c.items, items)
	for i := range c.items {
		if c.items[i].IsAbsent() {
			panic("canonjson: absent value in an array")
		}
		c.add(&c.items[i])
	}
	return Value{kind: KindArray, kids: c}
}

// M returns one member for Object. Bytes of name that are not UTF-8 become U+FFFD.
func M(name string, v Value) Member {
	return Member{Name: strings.ToValidUTF8(name, "\uFFFD"), Value: v}
}

// Object returns an object of members in the given order. A member whose value is Absent is
// left out, so that optional members need no branch. It panics when a name comes twice.
func Object(members ...Member) Value {
	kept := make([]Member, 0, len(members))
	var names nameSet
	for _, m := range members {
		if m.Value.IsAbsent() {
			continue
		}
		if !names.add(kept, m.Name) {
			panic("canonjson: member " + quote(m.Name) + " twice in an object")
		}
		kept = append(kept, m)
	}
	return newObject(kept)
}

// newObject returns an object that takes over members, whose names are distinct.
func newObject(members []Member) Value {
	c := &container{members: members, size: newSize()}
	for i := range members {
		c.add(&members[i].Value)
		c.nulName = c.nulName || strings.IndexByte(members[i].Name, 0) >= 0
	}
	return Value{kind: KindObject, kids: c}
}

// Raw returns a value that is already canonical JSON text from our own store. It is trusted:
// AppendJSON and AppendCanonical copy it as it is, and Kind looks only at its first byte.
// Every accessor that looks inside (Get, Members, Items, Len, Str, Int, At, Any, ...) parses
// it again on each call, so a caller that needs more than one should use Parse instead.
// Depth, Nodes and HasNULName do not know its inside. Empty text is Absent. The text is
// copied.
func Raw(text []byte) Value { return RawString(string(text)) }

// RawString is Raw for text that is a string already; it copies nothing.
func RawString(text string) Value {
	if text == "" {
		return Value{}
	}
	return Value{kind: firstKind(text[0]), flags: flagRaw, text: text}
}

// firstKind tells the kind of a JSON value from its first byte.
func firstKind(c byte) Kind {
	switch c {
	case '{':
		return KindObject
	case '[':
		return KindArray
	case '"':
		return KindString
	case 't', 'f':
		return KindBool
	case 'n':
		return KindNull
	}
	return KindNumber
}

// nameSetLinear is how many members are compared one by one before a nameSet builds a map.
// Below it, comparing lengths and bytes is cheaper than hashing.
const nameSetLinear = 16

// nameSet finds a name that comes twice in one object. The zero nameSet is empty.
type nameSet struct {
	seen map[string]struct{}
	bits uint64 // one bit for each kind of name seen, by length and first byte: mostly answers without a comparison
}

// add notes name and reports whether it is new. members are those noted before, in any
// order; it is up to the caller to keep them.
func (s *nameSet) add(members []Member, name string) bool {
	if s.seen == nil && len(members) >= nameSetLinear {
		s.seen = make(map[string]struct{}, 2*len(members))
		for i := range members {
			s.seen[members[i].Name] = struct{}{}
		}
	}
	if s.seen != nil {
		before := len(s.seen)
		s.seen[name] = struct{}{}
		return len(s.seen) > before
	}
	bit := nameBit(name)
	if s.bits&bit == 0 {
		s.bits |= bit
		return true
	}
	for i := range members {
		if members[i].Name == name {
			return false
		}
	}
	return true
}

// nameBit picks one of 64 bits for a name, cheaply.
func nameBit(name string) uint64 {
	if name == "" {
		return 1
	}
	return 1 << ((uint(len(name))*7 + uint(name[0]) + 31*uint(name[len(name)-1])) & 63)
}
