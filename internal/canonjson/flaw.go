package canonjson

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// SyntaxError says that a text is not JSON at all (RFC 8259), or not UTF-8.
type SyntaxError struct {
	Offset int    // of the first byte that cannot stand there, from 0; the length of the text when it ends too early
	Line   int    // from 1
	Column int    // from 1, in Unicode characters
	Msg    string // what is wrong; quotes at most one character of the text
}

// Error returns the message with its place.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Msg)
}

// newSyntaxError places msg at offset, which may be the length of text.
func newSyntaxError(text []byte, offset int, msg string) *SyntaxError {
	before := text[:offset]
	lineStart := bytes.LastIndexByte(before, '\n') + 1
	return &SyntaxError{
		Offset: offset,
		Line:   1 + bytes.Count(before, []byte{'\n'}),
		Column: 1 + utf8.RuneCount(before[lineStart:]),
		Msg:    msg,
	}
}

// Rule names what a Flaw breaks.
type Rule string

// The rules that JSON text can break (persistence.v1, section 3.3).
const (
	DuplicateName Rule = "duplicate_name" // a member name comes twice in one object
	TooDeep       Rule = "too_deep"       // a container lies deeper than Limits.Depth
	TooManyNodes  Rule = "too_many_nodes" // there are more values than Limits.Nodes
	NumberRange   Rule = "number_range"   // a number rounds to an infinity in binary64
	NumberExact   Rule = "number_exact"   // an integer beyond ±(2^53-1) is not exact in binary64
	LoneSurrogate Rule = "lone_surrogate" // an escape names half of a surrogate pair
)

// message says what breaks the rule and what to do next. subject is the name, the number or
// the escape at fault.
func (r Rule) message(subject string, l Limits) string {
	switch r {
	case DuplicateName:
		return "member " + quote(subject) + " comes twice in one object; send each name once"
	case TooDeep:
		return fmt.Sprintf("more than %d arrays and objects inside each other; flatten the value or send its inner part as a string", l.Depth)
	case TooManyNodes:
		return fmt.Sprintf("more than %d values; send fewer at once", l.Nodes)
	case NumberRange:
		return "number " + quote(subject) + " is beyond the range of binary64; send it as a string"
	case NumberExact:
		return "integer " + quote(subject) + " cannot be kept exactly as a number; send it as a string"
	case LoneSurrogate:
		return "escape " + subject + " is half of a surrogate pair; send the whole character or leave it out"
	}
	return string(r)
}

// Flaw says that a text is JSON but breaks a rule.
type Flaw struct {
	Rule Rule
	// Offset is where the fault is, in bytes: the second of two equal names, the bracket that
	// opens too deep, the first value too many, the number, the escape.
	Offset int
	// Pointer is the JSON pointer (RFC 6901) of the value at fault, or of the nearest value
	// around it whose pointer has at most 1,024 bytes. For a fault in a name it is the pointer
	// of that member.
	Pointer string
	// Message says what is wrong and what to do next. It quotes at most 64 characters of the
	// text, escaped.
	Message string
}

// Error returns the message with its place.
func (f *Flaw) Error() string {
	return fmt.Sprintf("at %q (byte %d): %s", f.Pointer, f.Offset, f.Message)
}

// maxPointer bounds Flaw.Pointer, in bytes, so that a hostile name is not echoed at length.
const maxPointer = 1024

// pointerEscape escapes one token of a JSON pointer (RFC 6901, section 3).
var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer spells the way from the root through the open containers.
func pointer(path []step) string {
	var b strings.Builder
	for i := range path {
		token := path[i].name
		if !path[i].object {
			token = strconv.Itoa(path[i].index)
		}
		token = pointerEscape.Replace(token)
		if b.Len()+1+len(token) > maxPointer {
			break
		}
		b.WriteByte('/')
		b.WriteString(token)
	}
	return b.String()
}

// maxQuote bounds how much of a caller's text a message repeats, in characters.
const maxQuote = 64

// quote returns the beginning of s in quotes, everything that does not print escaped.
func quote(s string) string {
	n := 0
	for i := range s {
		if n == maxQuote {
			return strconv.Quote(s[:i]) + "..."
		}
		n++
	}
	return strconv.Quote(s)
}
