package plan

import (
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// place names a part of a model for a message: Course.price. The part is the caller's own word or one that he may see.
func place(m *model.Model, part string) string { return m.Name + "." + clip(part) }

// maxWord is how much of the caller's own input a message holds (security requirements, S47).
const maxWord = 64

// clip shows the caller's own word bare where it looks like a name, else quoted, escaped and cut.
func clip(word string) string {
	if word != "" && len(word) <= maxWord && strings.IndexFunc(word, notNamed) < 0 {
		return word
	}
	return model.Quote(word)
}

// notNamed tells whether r is no part of a name.
func notNamed(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '$' || r == '.')
}

// hint is the end of a message about an unknown name: the nearest of names, or all of them where they are few.
func hint(name string, names []string) string {
	near := model.Nearest(name, names)
	switch {
	case len(near) > 0:
		return "; did you mean " + strings.Join(near, " or ") + "?"
	case len(names) == 0:
		return ""
	case len(names) > fewNames:
		return "; there are " + strings.Join(names[:fewNames], ", ") + " and more"
	}
	return "; there are " + strings.Join(names, ", ")
}

// fewNames is how many names a hint lists.
const fewNames = 12

// sample is a value of type t as it is written in JSON, for examples.
func sample(t model.Type) string {
	switch t {
	case model.Int, model.Long, model.Date, model.Number:
		return "1"
	case model.Float, model.Double:
		return "1.5"
	case model.Boolean:
		return "true"
	case model.Decimal:
		return `"1.50"`
	case model.Timestamp:
		return `"2024-01-31T12:00:00Z"`
	case model.Day:
		return `"2024-01-31"`
	case model.UUID:
		return `"123e4567-e89b-12d3-a456-426614174000"`
	case model.Bytes:
		return `"YWJj"`
	}
	return `"text"`
}

// short shows a value of the caller's in a message.
func short(v canonjson.Value) string {
	switch v.Kind() {
	case canonjson.KindString:
		return model.Quote(v.Str())
	case canonjson.KindArray:
		return "an array"
	case canonjson.KindObject:
		return "an object"
	case canonjson.KindAbsent:
		return "nothing"
	}
	text := string(v.AppendJSON(nil))
	if len(text) > maxWord {
		text = text[:maxWord] + "..."
	}
	return text
}
