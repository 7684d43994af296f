package canonjson

import (
	"slices"
	"strings"
)

// String returns v as AppendJSON writes it, "absent" for Absent. It is for messages and
// tests.
func (v Value) String() string {
	if v.IsAbsent() {
		return "absent"
	}
	return string(v.AppendJSON(nil))
}

// AppendJSON appends v without spaces, members in their order and numbers as written. In
// strings only the quotation mark, the backslash and controls are escaped. It panics on
// Absent, which has no text.
func (v Value) AppendJSON(dst []byte) []byte { return v.write(dst, false) }

// AppendCanonical appends v in the canonical form of RFC 8785: members in the order of
// their UTF-16 code units, numbers as ECMAScript spells them. It panics on Absent. The
// result is undefined for a tree that Parse returned with a Flaw.
func (v Value) AppendCanonical(dst []byte) []byte { return v.write(dst, true) }

// write appends v in one of the two forms.
func (v Value) write(dst []byte, canonical bool) []byte {
	if v.flags&flagRaw != 0 {
		return append(dst, v.text...)
	}
	switch v.kind {
	case KindNull:
		return append(dst, "null"...)
	case KindBool:
		if v.flags&flagTrue != 0 {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case KindNumber:
		if canonical && v.flags&flagPlain == 0 {
			return appendFloat(dst, parseFloat(v.text))
		}
		return append(dst, v.text...)
	case KindString:
		return appendString(dst, v.text)
	case KindArray:
		return v.kids.writeItems(dst, canonical)
	case KindObject:
		if canonical {
			return v.kids.writeSorted(dst)
		}
		return v.kids.writeMembers(dst)
	}
	panic("canonjson: absent value written")
}

// writeItems appends an array.
func (c *container) writeItems(dst []byte, canonical bool) []byte {
	dst = append(dst, '[')
	for i := range c.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = c.items[i].write(dst, canonical)
	}
	return append(dst, ']')
}

// writeMembers appends an object in its own order, its values as they are written.
func (c *container) writeMembers(dst []byte) []byte {
	dst = append(dst, '{')
	for i := range c.members {
		dst = c.members[i].write(dst, i > 0, false)
	}
	return append(dst, '}')
}

// sortSmall is up to how many members an order is kept on the stack.
const sortSmall = 32

// writeSorted appends an object in canonical order and form.
func (c *container) writeSorted(dst []byte) []byte {
	var small [sortSmall]int32
	order := small[:0]
	if len(c.members) > sortSmall {
		order = make([]int32, 0, len(c.members))
	}
	sorted := true
	for i := range c.members {
		order = append(order, int32(i))
		sorted = sorted && (i == 0 || CompareNames(c.members[i-1].Name, c.members[i].Name) < 0)
	}
	if !sorted {
		slices.SortFunc(order, func(a, b int32) int {
			return CompareNames(c.members[a].Name, c.members[b].Name)
		})
	}
	dst = append(dst, '{')
	for i, at := range order {
		dst = c.members[at].write(dst, i > 0, true)
	}
	return append(dst, '}')
}

// write appends one member, after a comma if one came before.
func (m *Member) write(dst []byte, comma, canonical bool) []byte {
	if comma {
		dst = append(dst, ',')
	}
	dst = appendString(dst, m.Name)
	dst = append(dst, ':')
	return m.Value.write(dst, canonical)
}

// CompareNames orders two strings by their UTF-16 code units, as RFC 8785 orders member
// names. It is negative when a comes first. Both must be UTF-8.
func CompareNames(a, b string) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i == n {
		return len(a) - len(b)
	}
	// UTF-8 orders by code point. UTF-16 differs in one place only: a character beyond the
	// basic plane (lead byte from F0 on) is written with surrogates, which come before
	// U+E000 to U+FFFF (lead bytes EE and EF).
	x, y := a[i], b[i]
	if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
		return int(y) - int(x)
	}
	return int(x) - int(y)
}

// hexDigits are the digits of an escape; RFC 8785 wants lower case.
const hexDigits = "0123456789abcdef"

// shortEscapes maps the controls that have a short escape to its letter.
var shortEscapes = [0x20]byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r'}

// appendString appends s in quotation marks with the fewest escapes that JSON allows.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for {
		i := indexSpecial(s)
		dst = append(dst, s[:i]...)
		if i == len(s) {
			return append(dst, '"')
		}
		dst = appendEscape(dst, s[i])
		s = s[i+1:]
	}
}

// appendEscape appends the escape of a quotation mark, a backslash or a control.
func appendEscape(dst []byte, c byte) []byte {
	switch {
	case c >= 0x20:
		return append(dst, '\\', c)
	case shortEscapes[c] != 0:
		return append(dst, '\\', shortEscapes[c])
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// indexSpecial returns the index of the first byte of s that cannot stand in a JSON string
// as it is, len(s) if there is none.
func indexSpecial(s string) int {
	i := 0
	for ; len(s)-i >= 8; i += 8 {
		if at := firstSpecial(word(s[i : i+8])); at < 8 {
			return i + at
		}
	}
	if at := strings.IndexFunc(s[i:], isSpecial); at >= 0 {
		return i + at
	}
	return len(s)
}

// isSpecial reports whether a character must be escaped in a string.
func isSpecial(r rune) bool { return r < 0x20 || r == '"' || r == '\\' }
