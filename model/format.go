package model

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// key is one key of the definition format: what the reader takes, what editors are told, and what people read.
type key struct {
	name   string
	schema string // JSON Schema of its value, without the description
	about  string
}

// format are the keys of one part of a definition, in the order in which people meet them.
type format []key

// names are the keys' names.
func (f format) names() []string {
	out := make([]string, len(f))
	for i, k := range f {
		out[i] = k.name
	}
	return out
}

// Schemas that several keys share.
const (
	aText  = `{"type":"string"}`
	aWord  = `{"type":"string","minLength":1}`
	aFlag  = `{"type":"boolean"}`
	aRoles = `{"$ref":"#/$defs/roles"}`
	aPath  = `{"oneOf":[{"type":"string","minLength":1},{"type":"array","minItems":1,"items":{"type":"string","minLength":1}}]}`
)

// The keys of a definition and of its parts (models, sections 2.1 to 2.5, 2.9 and 17). The reader is strict by these tables,
// and FormatSchema is made of them. Keys that begin with x- are kept too.
var (
	modelFormat = format{
		{"name", `{"$ref":"#/$defs/name"}`, "The name of the model, as queries and tools use it. It is unique and never rewritten."},
		{"description", aText, "What a row is, for people and language models. It becomes the description of the model's tools."},
		{"collection", aWord, "The table. By default the name of the model."},
		{"table", aWord, "The table of an existing database: a name, or schema.name. It has no column __present, and NULL in it is a missing value."},
		{"key", `{"type":"array","uniqueItems":true,"items":{"type":"string","minLength":1}}`, "The columns of the table's primary key. One is shown as _id in its own type; several are shown as _id together, such as [\"1\",\"7\"]; none makes the model read-only."},
		{"view", aFlag, "The table is a view: rows can only be read."},
		{"fields", `{"type":"object","minProperties":1,"propertyNames":{"$ref":"#/$defs/part"},"additionalProperties":{"$ref":"#/$defs/field"}}`, "The stored fields by name. Each is a type, or an object with a type."},
		{"relations", `{"type":"object","propertyNames":{"$ref":"#/$defs/part"},"additionalProperties":{"$ref":"#/$defs/relation"}}`, "The ways to rows of other models, by name."},
		{"computes", `{"type":"object","propertyNames":{"$ref":"#/$defs/part"},"additionalProperties":{"$ref":"#/$defs/compute"}}`, "The computed columns by name: aggregates over a relation, and functions of the server."},
		{"indexes", `{"type":"array","items":{"$ref":"#/$defs/index"}}`, "The indexes of the table."},
		{"read", aRoles, "Roles that may read rows. The word creator stands for the user in the row's createdBy, for his own rows."},
		{"write", aRoles, "Roles that may add, change and remove rows. The empty list is nobody but exempt roles."},
		{"idPrefix", aText, "When it is not empty, the server makes the _id of new rows: this prefix, the time, and random characters."},
		{"idField", aWord, "The field by which the tools get, update and delete find a row. By default _id."},
		{"timestamps", `{"enum":[true,false,"ms","s"]}`, "Whether the server keeps createdAt and updatedAt, and in which unit: true is \"ms\", milliseconds since 1970. By default true."},
		{"version", aWord, "The field that expectedVersion is compared with. By default updatedAt where timestamps are kept."},
		{"archive", aFlag, "Whether removed rows go to the table <collection>_deleted, the model <name>Deleted. By default true; false removes for good."},
		{"collation", `{"const":"source"}`, "\"source\": text sorts and compares as the database does. By default by code point, equal in every database."},
		{"datasource", aWord, "The name of the database in the configuration. By default \"default\"."},
		{"namespace", `true`, "A text that tells models on tables of one name apart, in databases that hold several."},
		{"triggers", `{"$ref":"#/$defs/triggers"}`, "What shall happen after writes. It is checked; this version runs no trigger, and refuses to write a model that has some."},
		{"replica", aFlag, "A further place of the model of this name. Not part of this version."},
		{"x-mcp", `{"$ref":"#/$defs/mcp"}`, "How the model appears to clients."},
		{"_isArchive", aFlag, "The model holds removed rows of another and gets no archive of its own."},
		{"$schema", aText, "Where editors find the description of this format. It means nothing to the server."},
	}
	fieldFormat = format{
		{"type", `{"$ref":"#/$defs/type"}`, "The type of its values. Writes that do not fit are refused."},
		{"description", aText, "What the field holds, for people and language models."},
		{"required", aFlag, "New rows must have a value, and no write may take it away."},
		{"default", `true`, "What readers see where the value is missing or null. It is never stored."},
		{"enum", `{"type":"array","minItems":1}`, "The only values that writes may store."},
		{"format", aText, "The form of the text, such as \"email\". It is told to callers and not checked."},
		{"read", aRoles, "Roles that may read, filter by and sort by the field. Without it, whoever may read the model."},
		{"write", aRoles, "Roles that may write the field. Without it, whoever may write the model."},
		{"fields", `{"type":"object","propertyNames":{"$ref":"#/$defs/name"},"additionalProperties":{"$ref":"#/$defs/field"}}`, "The known parts of an object, each a type or an object with a type."},
		{"column", aWord, "The column of the table. By default the name of the field."},
		{"strategy", `{"const":"autoincrement"}`, "\"autoincrement\": the database assigns the value. Only for _id and the columns of a key, and only for int and long."},
		{"generated", aFlag, "The database computes the column: it is never written."},
	}
	relationFormat = format{
		{"model", aWord, "The model that it leads to. It may be defined later."},
		{"type", `{"enum":["many","one"]}`, "\"many\" gives an array, \"one\" an object or null. By default \"many\"."},
		{"localField", aPath, "The field of this model, or several. By default _id."},
		{"foreignField", aPath, "The field of the other model that equals it, or as many. By default the relation's own name."},
		{"read", aRoles, "Roles that may follow the relation. Without it, whoever may read both models."},
		{"description", aText, "What the rows are to this one, for people and language models."},
	}
	computeFormat = format{
		{"type", `{"$ref":"#/$defs/type"}`, "The type of its values. By default any."},
		{"agg", `{"$ref":"#/$defs/agg"}`, "An aggregate over the rows of a relation, such as {\"$count\": \"lessons\"} or {\"$sum\": \"lessons.minutes\"}."},
		{"fn", aFlag, "A function of the server computes it from one row."},
		{"asyncFn", aFlag, "A function of the server computes it for all rows of an answer at once."},
		{"fnRef", aWord, "The name under which the function is registered. By default the name of the column."},
		{"depends", `{"type":"array","items":{"type":"string","minLength":1}}`, "The fields that the function needs. An asyncFn may name relations too: \"lessons\" or \"lessons{minutes}\"."},
		{"read", aRoles, "Roles that may read the column. Without it, whoever may read the model."},
		{"description", aText, "What the column tells, for people and language models."},
	}
	indexFormat = append(format{
		{"keys", `{"type":"object","minProperties":1,"additionalProperties":{"enum":[1,-1]}}`, "The fields in their order: 1 is ascending, -1 descending."},
		{"options", `{"$ref":"#/$defs/indexOptions"}`, "The same options as beside keys."},
	}, indexOptions...)
	indexOptions = format{
		{"unique", aFlag, "No two rows have the same values."},
		{"sparse", aFlag, "Rows without the fields are left out."},
		{"expireAfterSeconds", `{"type":"number"}`, "Kept for other databases; nothing expires here."},
	}
	mcpFormat = format{
		{"hidden", aFlag, "The model is unknown to every client: it has no tools, and no query reaches it."},
	}
	triggerFormat = format{
		{"name", aText, "A name for people."},
		{"into", aText, "The model that a command writes."},
		{"op", `{"enum":["insert","update","remove"]}`, "What a command does."},
		{"data", `{"type":"object"}`, "The fields that a command writes; texts may be {{root.path}}, {{before.path}} or {{now}}."},
		{"condition", `{"type":"object"}`, "Which rows a command changes or removes."},
		{"fnRef", aWord, "The function of the server that is called, in place of a command."},
		{"args", `true`, "What the function is given."},
		{"when", `{"type":"object","minProperties":1,"maxProperties":1}`, "When it fires: one of eq, ne, gt, gte, lt, lte, in, and, or, not."},
		{"onFields", `{"type":"array","minItems":1,"items":{"type":"string"}}`, "It fires only when one of these fields changed. Only on update."},
		{"cron", aText, "When a schedule fires: five fields of numbers and * , - /."},
	}
)

// legalPattern is legalName as a regular expression, for editors.
const legalPattern = `^[A-Za-z_][A-Za-z0-9_]{0,127}$`

// FormatSchema is the JSON Schema (2020-12) of a definition file: one definition, or an array of them. Editors complete and
// check definitions with it. It cannot express what needs another part of the file: that a name in localField, depends or
// an aggregate exists, and that names and tables are not taken twice. The reader checks those.
func FormatSchema() []byte {
	def := func(text string) canonjson.Value { return mustJSON(text) }
	defs := canonjson.Object(
		canonjson.M("name", def(`{"type":"string","pattern":"`+legalPattern+`"}`)),
		canonjson.M("part", partNames()),
		canonjson.M("roles", def(`{"type":"array","items":{"type":"string","minLength":1}}`)),
		canonjson.M("type", canonjson.Object(canonjson.M("enum", texted(append(slices.Clone(typeNames), "bool", "datetime"))))),
		canonjson.M("model", objectSchema(modelFormat, `{"required":["name","fields"]}`)),
		canonjson.M("field", canonjson.Object(canonjson.M("oneOf", canonjson.Array(
			def(`{"$ref":"#/$defs/type"}`),
			objectSchema(fieldFormat, `{"required":["type"],"if":{"required":["fields"]},"then":{"properties":{"type":{"const":"object"}}}}`),
		)))),
		canonjson.M("relation", objectSchema(relationFormat, `{"required":["model"]}`)),
		canonjson.M("compute", objectSchema(computeFormat, `{"oneOf":[{"required":["agg"]},{"required":["fn"]},{"required":["asyncFn"]}]}`)),
		canonjson.M("agg", def(`{"type":"object","minProperties":1,"maxProperties":1,"additionalProperties":false,"properties":{"$count":{"type":"string","pattern":"^[A-Za-z_][A-Za-z0-9_]*$"}},"patternProperties":{"^\\$(sum|avg|min|max)$":{"type":"string","pattern":"^[A-Za-z_][A-Za-z0-9_]*\\.[A-Za-z_][A-Za-z0-9_]*$"}}}`)),
		canonjson.M("index", objectSchema(indexFormat, `{"required":["keys"]}`)),
		canonjson.M("indexOptions", objectSchema(indexOptions, `{}`)),
		canonjson.M("mcp", objectSchema(mcpFormat, `{}`)),
		canonjson.M("triggers", triggerSchema()),
		canonjson.M("trigger", objectSchema(triggerFormat, `{"oneOf":[{"required":["into","op"]},{"required":["fnRef"]}]}`)),
	)
	all := canonjson.Object(
		canonjson.M("$schema", canonjson.String("https://json-schema.org/draft/2020-12/schema")),
		canonjson.M("$id", canonjson.String("urn:tabellion:model-definitions")),
		canonjson.M("title", canonjson.String("Model definitions of tabellion")),
		canonjson.M("description", canonjson.String("One model definition, or an array of them.")),
		canonjson.M("oneOf", def(`[{"$ref":"#/$defs/model"},{"type":"array","items":{"$ref":"#/$defs/model"}}]`)),
		canonjson.M("$defs", defs),
	)
	var out bytes.Buffer
	if err := json.Indent(&out, all.AppendJSON(nil), "", "  "); err != nil {
		panic(err) // our own text
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// objectSchema is the schema of an object with the keys of f, and nothing else but x- keys. more are its further rules.
func objectSchema(f format, more string) canonjson.Value {
	properties := make([]canonjson.Member, len(f))
	for i, k := range f {
		properties[i] = canonjson.M(k.name, described(k))
	}
	members := []canonjson.Member{
		canonjson.M("type", canonjson.String("object")),
		canonjson.M("properties", canonjson.Object(properties...)),
		canonjson.M("patternProperties", mustJSON(`{"^x-":true}`)),
		canonjson.M("additionalProperties", canonjson.Bool(false)),
	}
	return canonjson.Object(append(members, mustJSON(more).Members()...)...)
}

// described is the schema of a key with its description.
func described(k key) canonjson.Value {
	about := canonjson.M("description", canonjson.String(k.about))
	return canonjson.Object(append([]canonjson.Member{about}, mustJSON(k.schema).Members()...)...)
}

// triggerSchema is the schema of triggers: lists by event.
func triggerSchema() canonjson.Value {
	var events []canonjson.Member
	for _, e := range triggerEvents {
		events = append(events, canonjson.M(e, mustJSON(`{"type":"array","items":{"$ref":"#/$defs/trigger"}}`)))
	}
	return canonjson.Object(canonjson.M("type", canonjson.String("object")), canonjson.M("properties", canonjson.Object(events...)),
		canonjson.M("additionalProperties", canonjson.Bool(false)))
}

// partNames is the schema of the names of fields, relations and computed columns: legal, and no words of the format.
func partNames() canonjson.Value {
	var words []string
	for _, f := range []format{fieldFormat, relationFormat, computeFormat} {
		for _, k := range f {
			if reserved[strings.Join(Words(k.name), "")] && !slices.Contains(words, k.name) {
				words = append(words, k.name)
			}
		}
	}
	return canonjson.Object(canonjson.M("pattern", canonjson.String(legalPattern)),
		canonjson.M("not", canonjson.Object(canonjson.M("enum", texted(words)))))
}

// texted is a list of texts as JSON.
func texted(list []string) canonjson.Value {
	items := make([]canonjson.Value, len(list))
	for i, s := range list {
		items[i] = canonjson.String(s)
	}
	return canonjson.Array(items...)
}

// mustJSON parses JSON of this file.
func mustJSON(text string) canonjson.Value {
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		panic(err) // our own text
	}
	return v
}
