package plan

import (
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/tabellion-mcp/tabellion/model"
)

// Regex is a pattern of the common subset of RE2, PostgreSQL's ARE and PCRE. Sources print it in their own spelling from
// Tree; Go is the same as RE2 spells it, with its flags.
//
// The subset (section 2.9): literal characters; \ before a punctuation mark; the classes [...] and [^...] with ranges;
// . * + ? {n} {n,} {n,m} up to 255; | and ( ); ^ $; \d \w \s (in classes too) and \b. Nothing else: no lazy quantifiers, no
// (?...), no references, no \D, \W, \S, \B, no names of classes.
//
// The meaning is RE2's: the search is unanchored and case-sensitive; . is any character but a line feed, with the flag s
// any; ^ and $ are the ends of the text, with the flag m of a line, and $ stands before no final line feed; \d is 0-9, \w is
// 0-9 A-Z a-z _, \s is space, \t, \n, \f and \r, and \b is a border of \w; [^...] holds line feeds; the flag i folds case
// by simple folding of Unicode. A source that cannot say this with its own engine must not run the pattern there.
type Regex struct {
	Text  string // as written
	Flags string // of i, m, s, sorted
	Go    string
	Tree  *syntax.Regexp
}

// Bounds of patterns: of the text, in bytes, and of a repetition (PostgreSQL has no more).
const (
	maxPattern = 1000
	maxRepeat  = 255
)

// regexFault says what is wrong with a pattern.
type regexFault struct {
	class   model.Class
	message string
}

// parseRegex reads a pattern and its flags.
func parseRegex(text, flags string) (*Regex, *regexFault) {
	sorted, err := regexFlags(flags)
	if err != nil {
		return nil, err
	}
	if len(text) > maxPattern {
		return nil, &regexFault{model.Limit, "a pattern may have 1000 bytes at most"}
	}
	s := &patternScan{text: text}
	if err := s.all(); err != nil {
		return nil, err
	}
	tree, perr := syntax.Parse(text, goFlags(sorted))
	if perr != nil {
		return nil, unsupported("the pattern cannot be read (%s)", regexWords(perr))
	}
	re := &Regex{Text: text, Flags: sorted, Go: text, Tree: tree}
	if sorted != "" {
		re.Go = "(?" + sorted + ":" + text + ")"
	}
	return re, nil
}

// regexWords is the library's reason, without the text that it quotes.
func regexWords(err error) string {
	if e, ok := err.(*syntax.Error); ok {
		return string(e.Code)
	}
	return "malformed"
}

// unsupported makes the fault of a pattern beyond the subset.
func unsupported(format string, args ...any) *regexFault {
	e := model.Errorf(model.UnsupportedOp, format, args...)
	return &regexFault{e.Class, e.Message + `. There are literals, [a-z], . * + ? {n,m} | ( ) ^ $ \d \w \s \b, and the flags i, m, s in $options`}
}

// regexFlags reads $options.
func regexFlags(flags string) (string, *regexFault) {
	var sorted string
	for _, f := range []string{"i", "m", "s"} {
		if strings.Contains(flags, f) {
			sorted += f
		}
	}
	if i := strings.IndexFunc(flags, func(r rune) bool { return !strings.ContainsRune("ims", r) }); i >= 0 {
		return "", unsupported("$options knows the flags i, m and s, not %s", model.Quote(flags))
	}
	return sorted, nil
}

// goFlags are the flags of the parser. OneLine makes ^ and $ the ends of the text.
func goFlags(flags string) syntax.Flags {
	f := syntax.ClassNL | syntax.OneLine | syntax.PerlX
	if strings.Contains(flags, "i") {
		f |= syntax.FoldCase
	}
	if strings.Contains(flags, "m") {
		f &^= syntax.OneLine
	}
	if strings.Contains(flags, "s") {
		f |= syntax.DotNL
	}
	return f
}

// patternScan walks over a pattern and refuses what is outside the subset. What is left the parser judges.
type patternScan struct {
	text string
	at   int
	atom bool // a quantifier may follow
}

// all walks over the whole pattern.
func (s *patternScan) all() *regexFault {
	for s.at < len(s.text) {
		if err := s.one(); err != nil {
			return err
		}
	}
	return nil
}

// one takes one construct.
func (s *patternScan) one() *regexFault {
	c := s.text[s.at]
	switch c {
	case 0:
		return unsupported("a pattern cannot hold U+0000")
	case '\\':
		return s.escape(`dwsb`)
	case '[':
		return s.class()
	case '*', '+', '?':
		return s.quantifier(s.text[s.at : s.at+1])
	case '{':
		return s.repeat()
	case '(':
		if strings.HasPrefix(s.text[s.at:], "(?") {
			return unsupported("groups that begin with (? do not exist; flags go into $options")
		}
		s.at, s.atom = s.at+1, false
	case '|', '^', '$':
		s.at, s.atom = s.at+1, false
	default:
		_, n := utf8.DecodeRuneInString(s.text[s.at:])
		s.at, s.atom = s.at+n, true
	}
	return nil
}

// escape takes a backslash and what follows: one of letters, or a punctuation mark.
func (s *patternScan) escape(letters string) *regexFault {
	if s.at+1 == len(s.text) {
		return unsupported(`the pattern ends in \`)
	}
	c := s.text[s.at+1]
	if !strings.ContainsRune(letters, rune(c)) && !isPunct(c) {
		_, n := utf8.DecodeRuneInString(s.text[s.at+1:])
		return unsupported("%s does not exist here", model.Quote(s.text[s.at:s.at+1+n]))
	}
	s.at, s.atom = s.at+2, c != 'b'
	return nil
}

// isPunct tells whether c is a punctuation mark of ASCII.
func isPunct(c byte) bool {
	return c > ' ' && c < 0x7f && !refPart(c) || c == '_'
}

// refPart tells whether c is a letter, a digit or _.
func refPart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// quantifier takes * + ? or {n,m}, which must follow an atom and stand alone.
func (s *patternScan) quantifier(q string) *regexFault {
	if !s.atom {
		return unsupported("%s repeats nothing, or repeats a repetition; write \\%s for the character itself", q, q[:1])
	}
	s.at, s.atom = s.at+len(q), false
	return nil
}

// repeat takes {n}, {n,} or {n,m}.
func (s *patternScan) repeat() *regexFault {
	closing := strings.IndexByte(s.text[s.at:], '}')
	if closing < 0 {
		return unsupported(`{ without }; write \{ for the character itself`)
	}
	whole := s.text[s.at : s.at+closing+1]
	low, high, two := strings.Cut(whole[1:closing], ",")
	n, ok := smallNumber(low)
	m, ok2 := n, true
	if two && high != "" {
		m, ok2 = smallNumber(high)
	}
	if !ok || !ok2 || m < n {
		return unsupported(`%s is no repetition between 0 and %d; write \{ for the character itself`, model.Quote(whole), maxRepeat)
	}
	return s.quantifier(whole)
}

// smallNumber reads up to three digits, at most maxRepeat.
func smallNumber(s string) (int, bool) {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' || i > 2 {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, s != "" && n <= maxRepeat
}

// class takes [...].
func (s *patternScan) class() *regexFault {
	s.at++
	if strings.HasPrefix(s.text[s.at:], "^") {
		s.at++
	}
	for first := true; s.at < len(s.text); first = false {
		switch c := s.text[s.at]; {
		case c == ']' && first:
			return unsupported(`an empty class; write \] for the character itself`)
		case c == ']':
			s.at, s.atom = s.at+1, true
			return nil
		case c == '[':
			return unsupported(`[ inside a class; write \[ for the character itself`)
		case c == '\\':
			if err := s.escape(`dws`); err != nil {
				return err
			}
		case c == 0:
			return unsupported("a pattern cannot hold U+0000")
		default:
			_, n := utf8.DecodeRuneInString(s.text[s.at:])
			s.at += n
		}
	}
	return unsupported("[ without ]")
}
