package introspect

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/tabellion-mcp/tabellion/model"
)

// reserved are words of the definition format, which no name may fold to (models, section 18.1).
var reserved = []string{"type", "required", "default", "read", "write", "fields", "strategy", "model", "localfield",
	"foreignfield", "fn", "asyncfn", "fnref", "agg", "depends"}

// words is a name as its words: two names of one model must not fold to the same (models, section 18.1).
func words(name string) string { return strings.Join(model.Words(name), " ") }

// isReserved tells whether a name folds to a word of the definition format.
func isReserved(name string) bool {
	return slices.Contains(reserved, strings.ReplaceAll(words(name), " ", ""))
}

// legal tells whether a name can stand in a query and in a condition as it is: letters, digits and underscores of ASCII,
// not beginning with a digit. The grammar knows $ and . too, but they mean something else in conditions.
func legal(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != "" && len(name) <= maxName
}

// maxName is the longest name that is made; the definition format takes a little more.
const maxName = 100

// identifier makes a legal name of the name of a table or column. Letters lose their accents, other letters become the
// number that Unicode gives them, and words behind a blank or a sign begin with a capital: Order Details becomes OrderDetails.
func identifier(name string) string {
	if legal(name) {
		return name
	}
	var b strings.Builder
	raise := false
	for _, r := range norm.NFKD.String(name) {
		switch {
		case unicode.Is(unicode.Mn, r):
		case r < 0x80 && (r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)):
			if raise && b.Len() > 0 {
				r = unicode.ToUpper(r)
			}
			b.WriteRune(r)
			raise = false
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			fmt.Fprintf(&b, "u%04x", r)
			raise = false
		default:
			raise = true
		}
	}
	id := b.String()
	id = id[:min(len(id), maxName)]
	if id == "" || id[0] >= '0' && id[0] <= '9' {
		id = "_" + id
	}
	return id
}

// camel tells whether names of this database are written like ReportsTo and not like reports_to.
func camel(name string) bool { return strings.IndexFunc(name, unicode.IsUpper) >= 0 }

// join puts a further word behind a name, in the way that the name is written.
func join(name, word string) string {
	if camel(name) {
		return name + strings.ToUpper(word[:1]) + word[1:]
	}
	return name + "_" + word
}

// withoutID is a column's name without the _id, Id or ID at its end; the same name when it has none or is nothing else.
func withoutID(name string) string {
	for _, end := range []string{"_id", "_ID", "Id", "ID"} {
		short, found := strings.CutSuffix(name, end)
		if !found || short == "" {
			continue
		}
		if end[0] != '_' && !unicode.IsLower(rune(short[len(short)-1])) && !unicode.IsDigit(rune(short[len(short)-1])) {
			continue
		}
		return strings.TrimRight(short, "_")
	}
	return name
}
