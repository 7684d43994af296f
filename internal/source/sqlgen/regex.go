package sqlgen

import (
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
)

// printRegex spells a pattern as an advanced regular expression of PostgreSQL that means the same: case and lines are
// spelled out instead of asked for by flags, so that neither the locale nor a default decides.
func printRegex(re *syntax.Regexp) string {
	var w strings.Builder
	w.WriteString("(?:)") // so that no pattern begins with ***, which would change how it is read
	writeRegex(&w, re)
	return w.String()
}

// word is what \w is in RE2.
const word = `[0-9A-Z_a-z]`

// boundary is \b, and its opposite, in RE2's sense.
const (
	boundary   = `(?:(?<=` + word + `)(?!` + word + `)|(?<!` + word + `)(?=` + word + `))`
	noBoundary = `(?:(?<=` + word + `)(?=` + word + `)|(?<!` + word + `)(?!` + word + `))`
)

// writeRegex spells one node.
func writeRegex(w *strings.Builder, re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpNoMatch:
		w.WriteString(`(?:(?!a)(?=a))`)
	case syntax.OpEmptyMatch:
		w.WriteString(`(?:)`)
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			writeRune(w, r, re.Flags&syntax.FoldCase != 0)
		}
	case syntax.OpCharClass:
		writeClass(w, re.Rune)
	case syntax.OpAnyCharNotNL:
		w.WriteString(`[^\n]`)
	case syntax.OpAnyChar:
		w.WriteString(`(?:.|\n)`)
	case syntax.OpBeginLine:
		w.WriteString(`(?:\A|(?<=\n))`)
	case syntax.OpEndLine:
		w.WriteString(`(?:\Z|(?=\n))`)
	case syntax.OpBeginText:
		w.WriteString(`\A`)
	case syntax.OpEndText:
		w.WriteString(`\Z`)
	case syntax.OpWordBoundary:
		w.WriteString(boundary)
	case syntax.OpNoWordBoundary:
		w.WriteString(noBoundary)
	case syntax.OpCapture:
		writeGroup(w, re.Sub[0])
	case syntax.OpStar:
		writeRepeat(w, re.Sub[0], 0, -1)
	case syntax.OpPlus:
		writeRepeat(w, re.Sub[0], 1, -1)
	case syntax.OpQuest:
		writeRepeat(w, re.Sub[0], 0, 1)
	case syntax.OpRepeat:
		writeRepeat(w, re.Sub[0], re.Min, re.Max)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			writeGroup(w, sub)
		}
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			if i > 0 {
				w.WriteByte('|')
			}
			writeGroup(w, sub)
		}
	}
}

// writeGroup spells a node so that what follows binds to all of it.
func writeGroup(w *strings.Builder, re *syntax.Regexp) {
	w.WriteString("(?:")
	writeRegex(w, re)
	w.WriteByte(')')
}

// maxRepeat is the largest bound that PostgreSQL takes.
const maxRepeat = 255

// writeRepeat spells a repetition, a long one in parts. max is negative for none.
func writeRepeat(w *strings.Builder, re *syntax.Regexp, min, max int) {
	for ; min > maxRepeat; min -= maxRepeat {
		writeGroup(w, re)
		fmt.Fprintf(w, "{%d}", maxRepeat)
		if max >= 0 {
			max -= maxRepeat
		}
	}
	for ; max > maxRepeat; max -= maxRepeat {
		writeGroup(w, re)
		low := 0
		if min > 0 {
			low, min = min, 0
			// the part with the lower bound takes all of it
		}
		fmt.Fprintf(w, "{%d,%d}", low, maxRepeat)
	}
	writeGroup(w, re)
	if max < 0 {
		fmt.Fprintf(w, "{%d,}", min)
	} else {
		fmt.Fprintf(w, "{%d,%d}", min, max)
	}
}

// writeRune spells one character, with the others that it equals when case is folded.
func writeRune(w *strings.Builder, r rune, fold bool) {
	if !fold || unicode.SimpleFold(r) == r {
		writeEscaped(w, r)
		return
	}
	w.WriteByte('[')
	writeEscaped(w, r)
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		writeEscaped(w, f)
	}
	w.WriteByte(']')
}

// writeClass spells pairs of first and last characters. U+0000 cannot be in PostgreSQL's text.
func writeClass(w *strings.Builder, pairs []rune) {
	w.WriteByte('[')
	n := 0
	for i := 0; i < len(pairs); i += 2 {
		lo, hi := max(pairs[i], 1), pairs[i+1]
		if hi < lo {
			continue
		}
		n++
		writeEscaped(w, lo)
		if hi > lo {
			w.WriteByte('-')
			writeEscaped(w, hi)
		}
	}
	w.WriteByte(']')
	if n == 0 {
		text := strings.TrimSuffix(w.String(), "[]")
		w.Reset()
		w.WriteString(text + `(?:(?!a)(?=a))`)
	}
}

// writeEscaped spells one character so that it stands for itself anywhere.
func writeEscaped(w *strings.Builder, r rune) {
	switch {
	case r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z':
		w.WriteRune(r)
	case r <= 0xffff:
		fmt.Fprintf(w, `\u%04X`, r)
	default:
		fmt.Fprintf(w, `\U%08X`, r)
	}
}
