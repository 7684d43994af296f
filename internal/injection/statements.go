package injection

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
)

// ourTexts are the literals that statements may hold: storage classes of SQLite, and what PostgreSQL calls endless.
var ourTexts = set(`integer real text blob infinity -infinity hex main table`)

// ourNumbers are the numbers that statements may hold.
var ourNumbers = set(`0 1 9e999 -1`)

// ourWords are the bare words that statements may hold: keywords, functions and types.
var ourWords = set(`select from where and or not in is null as on case when then else end exists order by desc asc nulls first last limit offset group having
	join cross left inner with ordinality distinct count sum avg min max coalesce typeof instr strpos json_each value key unnest tabellion_regex cast collate between
	begin immediate commit rollback isolation level repeatable read only write committed insert into values update set delete returning conflict do nothing excluded for of nowait
	bool bytea float8 int8 int4 numeric text uuid date timestamptz jsonb array over partition row_number union all true false scope fingerprint outcome created`)

// made are the names that the generator makes: tables, columns and aggregates by number.
var made = regexp.MustCompile(`^(t|a|k|g|c|e|j|p|n|r|v|m)[0-9]*$`)

// set is the words of a text.
func set(words string) map[string]bool {
	out := map[string]bool{"": true}
	for _, w := range strings.Fields(words) {
		out[w] = true
	}
	return out
}

// Names are those that statements about models may hold in quotation marks: tables, columns and schemas of the definitions,
// the collation by code point, and the table of idempotency keys.
func Names(models []*model.Model) map[string]bool {
	out := map[string]bool{"public": true, "main": true, "C": true, "__present": true}
	for _, m := range models {
		out[m.Collection], out[m.Table] = true, true
		for _, f := range m.Fields {
			out[f.Column] = true
		}
	}
	for _, name := range []string{"tabellion_idempotency", "scope", "key", "fingerprint", "outcome", "expires", "created"} {
		out[name] = true
	}
	return out
}

// CheckStatement says what is wrong with a statement that was sent: it must be one, hold no literal but ours, name nothing
// but what the definitions name, and have as many placeholders as arguments.
func CheckStatement(text string, args int, names map[string]bool) string {
	if strings.Contains(text, Marker) || strings.Contains(text, MarkerNumber) {
		return "holds a marker of the input"
	}
	tokens, err := Lex(text)
	if err != nil {
		return err.Error()
	}
	placeholders := map[string]bool{}
	for _, tok := range tokens {
		switch tok.Kind {
		case Text:
			if !ourTexts[tok.Text] {
				return "holds the text " + fmt.Sprintf("%q", tok.Text)
			}
		case Number:
			if !ourNumbers[tok.Text] {
				return "holds the number " + tok.Text
			}
		case Quoted:
			if !names[tok.Text] && !made.MatchString(tok.Text) {
				return "names " + fmt.Sprintf("%q", tok.Text)
			}
		case Placeholder:
			placeholders[tok.Text] = true
		case Word:
			if !ourWords[strings.ToLower(tok.Text)] && !made.MatchString(tok.Text) {
				return "holds the word " + tok.Text
			}
		}
	}
	if len(placeholders) != args {
		return fmt.Sprintf("has %d placeholders and %d arguments", len(placeholders), args)
	}
	return ""
}
