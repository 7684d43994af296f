package gql

import (
	"strings"
	"unicode/utf8"

	"github.com/tabellion-mcp/tabellion/model"
)

// kind says what a token is.
type kind uint8

// The kinds. A punctuation mark is its own kind.
const (
	end   kind = iota // of the text
	id                // a name
	ref               // @ and the name of a parameter
	arrow             // ->
	mark              // one of ( ) { } , :
)

// token is one piece of the text.
type token struct {
	kind kind
	text string // of a ref without the @
	at   int    // byte offset
}

// is tells whether t is the punctuation mark p.
func (t token) is(p string) bool { return t.kind == mark && t.text == p }

// lexer cuts a text into tokens, one at a time.
type lexer struct {
	text string
	at   int
}

// idStart tells whether a name may begin with c.
func idStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
}

// refPart tells whether c may stand in the name of a parameter.
func refPart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// idPart tells whether c may stand in a name.
func idPart(c byte) bool { return refPart(c) || c == '$' || c == '.' }

// next gives the next token. A character that begins none is an error: the reference skips such characters, and with
// them whatever the writer meant.
func (l *lexer) next() (token, error) {
	for l.at < len(l.text) && strings.IndexByte(" \t\r\n", l.text[l.at]) >= 0 {
		l.at++
	}
	at := l.at
	if at == len(l.text) {
		return token{kind: end, at: at}, nil
	}
	switch c := l.text[at]; {
	case idStart(c):
		return l.run(id, at, idPart), nil
	case c == '@':
		l.at++
		t := l.run(ref, at, refPart)
		if t.text == "" {
			return t, l.fault(at, "the name of a parameter after @, of letters, digits and _", quoteRune(l.text[l.at:]), exampleValue)
		}
		return t, nil
	case strings.IndexByte("(){},:", c) >= 0:
		l.at++
		return token{mark, l.text[at:l.at], at}, nil
	case strings.HasPrefix(l.text[at:], "->"):
		l.at += 2
		return token{arrow, "->", at}, nil
	}
	return token{}, l.fault(at, "a name, @parameter, or one of ( ) { } , :", quoteRune(l.text[at:]), exampleFor(l.text[at:]))
}

// run takes the bytes from l.at on that part accepts.
func (l *lexer) run(k kind, at int, part func(byte) bool) token {
	from := l.at
	for l.at < len(l.text) && part(l.text[l.at]) {
		l.at++
	}
	return token{k, l.text[from:l.at], at}
}

// The corrected examples. One goes with every error.
const (
	exampleQuery  = `Model($condition: @c0, $sort: @s0, $limit: @l) { field, relation { field } }`
	exampleValue  = `Model($limit: @l) { field } with params {"l": 10}`
	exampleFields = `Model { field, otherField }`
	exampleKid    = `Model { field, relation($limit: @l) { field } }`
)

// exampleFor chooses the example for a character that the language does not have: mostly somebody wrote a literal.
func exampleFor(rest string) string {
	switch c := rest[0]; {
	case c >= '0' && c <= '9', c == '"', c == '\'', c == '[', c == '-':
		return exampleValue
	case c == '*':
		return exampleFields
	}
	return exampleQuery
}

// fault makes the error for a place in the text: line, column, what was expected, what is there, and how it is right.
func (l *lexer) fault(at int, expected, found, example string) error {
	before := l.text[:at]
	line := 1 + strings.Count(before, "\n")
	column := 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return model.Errorf(model.Parse, "line %d, column %d: expected %s, found %s. Write for example: %s", line, column, expected, found, example)
}

// quoteRune shows the first character of rest.
func quoteRune(rest string) string {
	if rest == "" {
		return "the end of the text"
	}
	_, n := utf8.DecodeRuneInString(rest)
	return model.Quote(rest[:n])
}

// show names a token for a message.
func (t token) show() string {
	switch t.kind {
	case end:
		return "the end of the text"
	case ref:
		return model.Quote("@" + t.text)
	}
	return model.Quote(t.text)
}
