package main

import (
	"encoding/json"
	"strconv"
	"strings"
)

// printJSON prints one object as a result.
func printJSON(env *Env, v any) error {
	e := json.NewEncoder(env.Stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// graphic is text that somebody else has chosen, such as the name of a file, without anything that a terminal would obey.
func graphic(s string) string {
	quoted := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// word is graphic for a word among others: one that is empty of blanks, or in quotation marks.
func word(s string) string {
	if g := graphic(s); g == s && s != "" && !strings.ContainsAny(s, " \"") {
		return s
	}
	return strconv.QuoteToGraphic(s)
}
