package injection

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind is what a token of SQL is.
type Kind int

// The kinds. Everything else is refused: comments, second statements, dollar quotes, escape strings.
const (
	Word        Kind = iota // bare: a keyword, a function, an alias
	Quoted                  // "name", unquoted
	Text                    // 'literal', unquoted
	Number                  // digits
	Placeholder             // $1, ?1
	Sign                    // operators and punctuation
)

// Token is one token.
type Token struct {
	Kind Kind
	Text string
}

// Lex reads one statement of SQL as both engines would. It is written for tests and shares nothing with what writes the
// statements. What it does not know is an error, and so is whatever lets a text end early: comments and semicolons.
func Lex(s string) ([]Token, error) {
	var out []Token
	for len(s) > 0 {
		r, _ := utf8.DecodeRuneInString(s)
		if unicode.IsSpace(r) {
			s = s[utf8.RuneLen(r):]
			continue
		}
		t, n, err := next(s)
		if err != nil {
			return nil, fmt.Errorf("%w at %.40q", err, s)
		}
		out = append(out, t)
		s = s[n:]
	}
	return out, nil
}

// next reads the first token of s and its length.
func next(s string) (Token, int, error) {
	switch c := s[0]; {
	case strings.HasPrefix(s, "--"), strings.HasPrefix(s, "/*"):
		return Token{}, 0, fmt.Errorf("a comment")
	case c == ';':
		return Token{}, 0, fmt.Errorf("a second statement")
	case c == '\'' || c == '"':
		body, n, ok := quoted(s)
		if !ok {
			return Token{}, 0, fmt.Errorf("a quotation without end")
		}
		if c == '"' {
			return Token{Quoted, body}, n, nil
		}
		return Token{Text, body}, n, nil
	case c == '$' || c == '?':
		n := run(s[1:], digit)
		if n == 0 {
			return Token{}, 0, fmt.Errorf("a placeholder without a number, or a dollar quote")
		}
		return Token{Placeholder, s[:n+1]}, n + 1, nil
	case digit(c):
		n := run(s, func(c byte) bool { return digit(c) || letter(c) || c == '.' })
		return Token{Number, s[:n]}, n, nil
	case letter(c):
		n := run(s, func(c byte) bool { return letter(c) || digit(c) })
		if n < len(s) && s[n] == '\'' {
			return Token{}, 0, fmt.Errorf("an escape string")
		}
		return Token{Word, s[:n]}, n, nil
	case strings.IndexByte("()[],.=<>+-*/|~:!%", c) >= 0:
		return Token{Sign, s[:1]}, 1, nil
	}
	return Token{}, 0, fmt.Errorf("an unknown character")
}

// quoted reads a quotation with doubled quotes inside.
func quoted(s string) (body string, n int, ok bool) {
	q := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] != q {
			b.WriteByte(s[i])
			continue
		}
		if i+1 == len(s) || s[i+1] != q {
			return b.String(), i + 1, true
		}
		b.WriteByte(q)
		i++
	}
	return "", 0, false
}

// run is how many bytes at the start of s are in a class.
func run(s string, in func(byte) bool) int {
	n := 0
	for n < len(s) && in(s[n]) {
		n++
	}
	return n
}

// digit and letter are the classes of ASCII.
func digit(c byte) bool  { return c >= '0' && c <= '9' }
func letter(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
