package injection

import (
	"regexp"
	"strings"
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
