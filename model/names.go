package model

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// maxQuoted bounds what a message repeats of the caller's own input, in characters (security requirements, S47).
const maxQuoted = 64

// Quote shows a caller's text in a message: in quotation marks, those inside, control and invisible characters escaped, cut
// to 64 characters.
func Quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	n := 0
	for _, r := range s {
		if n == maxQuoted {
			b.WriteString("...")
			break
		}
		switch {
		case unseen(r):
			fmt.Fprintf(&b, "\\u{%04x}", r)
		case r == '"', r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
		n++
	}
	b.WriteByte('"')
	return b.String()
}

// unseen tells whether a reader cannot see r, or would be misled by it: control, format, direction and tag characters.
func unseen(r rune) bool {
	return r == unicode.ReplacementChar || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) ||
		r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0000 && r <= 0xe0fff
}

// nearMost is how many names a hint gives.
const nearMost = 3

// Nearest gives those of names that name may have been meant for, the nearest first, at most three: equal when case and
// separators do not count, or a few letters away.
func Nearest(name string, names []string) []string {
	type near struct {
		name string
		far  int
	}
	if len(name) > 4*maxQuoted {
		return nil
	}
	var found []near
	folded := fold(name)
	for _, n := range names {
		far := 0
		if fold(n) != folded {
			far = 1 + distance(strings.ToLower(name), strings.ToLower(n))
		}
		if far <= 1+max(1, len(name)/3) {
			found = append(found, near{n, far})
		}
	}
	slices.SortStableFunc(found, func(a, b near) int { return a.far - b.far })
	var out []string
	for _, f := range found[:min(len(found), nearMost)] {
		out = append(out, f.name)
	}
	return out
}

// distance counts the letters to insert, remove, replace or swap to make b of a.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// Words splits a name into its words in lower case (section 18.1): at everything that is no letter or digit, before an
// upper-case letter behind a lower-case one or a digit, and before the last capital of a run that a lower-case letter
// follows.
func Words(name string) []string {
	var words []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = nil
		}
	}
	rs := []rune(name)
	for i, r := range rs {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			end()
			continue
		}
		if i > 0 && unicode.IsUpper(r) {
			before := rs[i-1]
			after := i+1 < len(rs) && unicode.IsLower(rs[i+1])
			if unicode.IsLower(before) || unicode.IsDigit(before) || unicode.IsUpper(before) && after {
				end()
			}
		}
		word = append(word, r)
	}
	end()
	return words
}

// fold joins a name's words: two names that fold to the same are one name to a reader.
func fold(name string) string { return strings.Join(Words(name), "_") }

// reserved are names that a definition's own keys fold to (section 18.1).
var reserved = map[string]bool{
	"type": true, "required": true, "default": true, "read": true, "write": true, "fields": true, "strategy": true, "model": true,
	"localfield": true, "foreignfield": true, "fn": true, "asyncfn": true, "fnref": true, "agg": true, "depends": true,
}

// legalName tells whether a text can stand in a query as the name of a model, field or relation.
func legalName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i, r := range s {
		switch {
		case r == '_', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		case i > 0 && r >= '0' && r <= '9':
		default:
			return false
		}
	}
	return true
}
