package tools

import (
	"fmt"
	"slices"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// source labels what comes from a database.
const source = "models"

// cutNote is the second text of a result that does not hold every row: one fixed sentence, apart from the data.
const cutNote = "The list was cut: there are more rows. Continue with next_cursor, where there is one, or ask for less: a condition, a $limit, fewer fields."

// text is a block of JSON as a model reads it: characters that cannot be seen, or that change the direction of text, are
// written as escapes, which mean the same to a parser (security requirements, S46).
func text(json []byte) catalog.Block { return catalog.Block{Type: "text", Text: visible(json)} }

// visible escapes control and invisible characters in JSON text. They can stand only inside strings.
func visible(json []byte) string {
	if !slices.ContainsFunc(json, func(b byte) bool { return b >= 0x7f }) {
		return string(json)
	}
	out := make([]byte, 0, len(json)+16)
	for _, r := range string(json) {
		switch high, low := utf16.EncodeRune(r); {
		case !hidden(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return string(out)
}

// hidden tells whether a reader of r sees nothing, or something else than what stands there.
func hidden(r rune) bool { return r >= 0x7f && r < 0xa0 || catalog.Invisible(r) }

// rowResult is one row: the bare object as text.
func rowResult(row canonjson.Value) catalog.Result {
	if row.IsAbsent() {
		row = canonjson.Null()
	}
	bare := row.AppendJSON(nil)
	count := 1
	if row.Kind() == canonjson.KindNull {
		count = 0
	}
	return catalog.Result{
		Value: canonjson.Object(canonjson.M("row", canonjson.Raw(bare))), Blocks: []catalog.Block{text(bare)}, Source: source, Count: count,
	}
}

// rowsResult is a list: the bare array as text, and a second text when it was cut.
func rowsResult(rows []canonjson.Value, next string, cut bool) catalog.Result {
	bare := canonjson.Array(rows...).AppendJSON(nil)
	m := []canonjson.Member{canonjson.M("rows", canonjson.Raw(bare))}
	r := catalog.Result{Blocks: []catalog.Block{text(bare)}, Source: source, Count: len(rows)}
	if next != "" {
		m = append(m, canonjson.M("next_cursor", canonjson.String(next)))
	}
	if cut {
		m = append(m, canonjson.M("truncated", canonjson.Bool(true)))
		r.Blocks = append(r.Blocks, catalog.Block{Type: "text", Text: cutNote})
	}
	r.Value = canonjson.Object(m...)
	return r
}

// answerResult is the answer of a query.
func answerResult(a *engine.Answer, next string) catalog.Result {
	r := rowsResult(a.Rows, next, a.More)
	r.Meta = unrepresentable(a.Unrepresentable)
	return r
}

// unrepresentable names the values that were given as null because JSON or the declared type cannot hold them.
func unrepresentable(all []plan.Unrepresentable) canonjson.Value {
	if len(all) == 0 {
		return canonjson.Value{}
	}
	items := make([]canonjson.Value, len(all))
	for i, u := range all {
		items[i] = canonjson.Object(
			canonjson.M("model", canonjson.String(u.Model)), canonjson.M("field", canonjson.String(u.Field)),
			canonjson.M("count", canonjson.Int(u.Count)), canonjson.M("keys", canonjson.Array(u.Keys...)))
	}
	return canonjson.Object(canonjson.M("io.tabellion/unrepresentable", canonjson.Array(items...)))
}

// removedResult is the answer of a removal.
func removedResult(r engine.Removed) catalog.Result {
	v := canonjson.Object(canonjson.M("deletedCount", canonjson.Int(r.Deleted)), canonjson.M("archivedCount", canonjson.Int(r.Archived)))
	return catalog.Result{Value: v, Blocks: []catalog.Block{text(v.AppendJSON(nil))}, Source: source, Count: int(r.Deleted)}
}
