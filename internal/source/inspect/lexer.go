package inspect

import "strings"

// token is one piece of the text of a definition.
type token struct {
	kind tokenKind
	text string // of a name or string: without its quotes
}

// tokenKind says what a token is.
type tokenKind uint8

// The kinds.
const (
	word   tokenKind = iota // unquoted: a name, a keyword, a number
	quoted                  // a name in quotes or brackets
	text                    // a string
	symbol                  // one character
)

// is tells whether t is an unquoted word, in any case.
func (t token) is(keyword string) bool { return t.kind == word && strings.EqualFold(t.text, keyword) }

// sym tells whether t is the symbol.
func (t token) sym(s string) bool { return t.kind == symbol && t.text == s }

// name tells whether t can be a name.
func (t token) name() bool { return t.kind == word || t.kind == quoted }

// lex splits the text of a definition as SQLite and PostgreSQL write it. It is for reading lists of values and collations
// out of definitions that the database has accepted already; it refuses nothing.
func lex(sql string) []token {
	var out []token
	for i := 0; i < len(sql); {
		c := sql[i]
		switch {
		case c <= ' ':
			i++
		case strings.HasPrefix(sql[i:], "--"):
			i += until(sql[i:], "\n")
		case strings.HasPrefix(sql[i:], "/*"):
			i += until(sql[i:], "*/")
		case c == '\'':
			t, n := enclosed(sql[i:], '\'')
			out, i = append(out, token{text, t}), i+n
		case c == '"' || c == '`':
			t, n := enclosed(sql[i:], c)
			out, i = append(out, token{quoted, t}), i+n
		case c == '[' && bracketed(sql[i:]):
			n := strings.IndexByte(sql[i:], ']')
			out, i = append(out, token{quoted, sql[i+1 : i+n]}), i+n+1
		case wordByte(c):
			n := 1
			for i+n < len(sql) && wordByte(sql[i+n]) {
				n++
			}
			out, i = append(out, token{word, sql[i : i+n]}), i+n
		default:
			out, i = append(out, token{symbol, sql[i : i+1]}), i+1
		}
	}
	return out
}

// until is the length of s up to and with end, or all of it.
func until(s, end string) int {
	if n := strings.Index(s, end); n >= 0 {
		return n + len(end)
	}
	return len(s)
}

// enclosed reads a text in quotes at the start of s, where a doubled quote stands for one, and tells its length there.
func enclosed(s string, quote byte) (string, int) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] != quote {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == quote {
			b.WriteByte(quote)
			i++
			continue
		}
		return b.String(), i + 1
	}
	return b.String(), len(s)
}

// bracketed tells whether the bracket that s begins with encloses a name, as in [Order Details], and is not that of
// PostgreSQL's ARRAY['a'] or text[].
func bracketed(s string) bool {
	end := strings.IndexByte(s, ']')
	return end > 1 && s[1] != '\'' && !strings.HasPrefix(s[1:], "NULL")
}

// wordByte tells whether c can be part of an unquoted name or number.
func wordByte(c byte) bool {
	return c == '_' || c == '$' || c == '.' || c >= 0x80 ||
		c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// listOf reads a check that lists the values of one column: the name, IN, and strings. It is nil for every other check.
// tokens are those between the parentheses of the check.
func listOf(tokens []token) (name string, values []string) {
	tokens = bare(tokens)
	if len(tokens) < 3 || !tokens[0].name() {
		return "", nil
	}
	rest := tokens[1:]
	switch {
	case rest[0].is("in"):
		rest = rest[1:]
	case rest[0].sym("=") && len(rest) > 2 && rest[1].is("any") && rest[2].is("array"):
		rest = rest[3:]
	case rest[0].sym("=") && len(rest) == 2:
		rest = rest[1:]
	default:
		return "", nil
	}
	for i, t := range rest {
		if i%2 == 0 && t.kind != text || i%2 == 1 && !t.sym(",") {
			return "", nil
		}
		if i%2 == 0 {
			values = append(values, t.text)
		}
	}
	if len(rest)%2 == 0 {
		return "", nil
	}
	return tokens[0].text, values
}

// bare leaves out parentheses, brackets and casts.
func bare(tokens []token) []token {
	var out []token
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		if t.sym(":") && i+1 < len(tokens) && tokens[i+1].sym(":") {
			i = skipType(tokens, i+2) - 1
			continue
		}
		if t.kind == symbol && strings.Contains("()[]", t.text) {
			continue
		}
		out = append(out, t)
	}
	return out
}

// skipType is the index behind the name of a type that begins at i: words, perhaps with a length, which the caller's loop
// drops with the other brackets.
func skipType(tokens []token, i int) int {
	for i < len(tokens) && tokens[i].name() && !tokens[i].is("in") {
		i++
	}
	if i+2 < len(tokens) && tokens[i].sym("(") && tokens[i+1].kind == word && tokens[i+2].sym(")") {
		i += 3
	}
	return i
}
