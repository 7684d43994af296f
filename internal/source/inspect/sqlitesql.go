package inspect

import "strings"

// declared is what only the text of an SQLite table tells.
type declared struct {
	enums      map[string][]string // by column in lower case: the values that a check lists
	collations map[string]string   // by column in lower case: its collation, when one is written
}

// readDeclaration reads the text of CREATE TABLE.
func readDeclaration(sql string) declared {
	d := declared{enums: map[string][]string{}, collations: map[string]string{}}
	for _, part := range parts(lex(sql)) {
		for i, t := range part {
			if t.is("check") && i+1 < len(part) && part[i+1].sym("(") {
				inner := within(part[i+1:])
				if name, values := listOf(inner); values != nil {
					d.enums[strings.ToLower(name)] = values
				}
			}
			if t.is("collate") && i > 0 && i+1 < len(part) && !isTableRule(part[0]) && part[i+1].name() {
				d.collations[strings.ToLower(part[0].text)] = part[i+1].text
			}
		}
	}
	return d
}

// parts splits the body of CREATE TABLE at its outermost commas: one part a column or rule of the table.
func parts(tokens []token) [][]token {
	var out [][]token
	var part []token
	depth := 0
	for _, t := range tokens {
		switch {
		case t.sym("("):
			depth++
			if depth == 1 {
				continue
			}
		case t.sym(")"):
			depth--
			if depth == 0 {
				return append(out, part)
			}
		case t.sym(",") && depth == 1:
			out, part = append(out, part), nil
			continue
		}
		if depth > 0 {
			part = append(part, t)
		}
	}
	return out
}

// within gives the tokens between the parenthesis that tokens begin with and its partner.
func within(tokens []token) []token {
	depth := 0
	for i, t := range tokens {
		if t.sym("(") {
			depth++
		}
		if t.sym(")") {
			if depth--; depth == 0 {
				return tokens[1:i]
			}
		}
	}
	return nil
}

// isTableRule tells whether t begins a rule of the table and not a column.
func isTableRule(t token) bool {
	for _, keyword := range []string{"constraint", "primary", "unique", "check", "foreign"} {
		if t.is(keyword) {
			return true
		}
	}
	return false
}

// moduleOf is the module of CREATE VIRTUAL TABLE ... USING module, "" for another text.
func moduleOf(sql string) string {
	tokens := lex(sql)
	for i := 0; i+1 < len(tokens); i++ {
		if tokens[i].is("using") {
			return tokens[i+1].text
		}
	}
	return ""
}
