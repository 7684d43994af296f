package model

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// key is one key of the definition format. The tables of keys are the one place that says which there are: strict reading,
// hints and the published JSON Schema are all made of them.
type key struct {
	name    string
	schema  string // of its value, as JSON Schema text
	doc     string // for the reader of the schema
	example string // of a value, as JSON text
}

// part is one kind of object in a definition.
type part struct {
	name string // in the schema's $defs
	doc  string
	keys []key
	more string // further members of its schema, as JSON text without braces
}

// names are the keys of p.
func (p *part) names() []string {
	out := make([]string, len(p.keys))
	for i, k := range p.keys {
		out[i] = k.name
	}
	return out
}

// example is how a key of p is written, such as "type": "string".
func (p *part) example(name string) string {
	i := slices.IndexFunc(p.keys, func(k key) bool { return k.name == name })
	return `"` + name + `": ` + p.keys[i].example
}

// The schemas of values that several keys have.
const (
	textSchema  = `{"type":"string","minLength":1}`
	anyText     = `{"type":"string"}`
	flagSchema  = `{"type":"boolean"}`
	rolesSchema = `{"type":"array","items":{"type":"string","minLength":1}}`
	namesSchema = `{"anyOf":[{"type":"string","minLength":1},{"type":"array","minItems":1,"items":{"type":"string","minLength":1}}]}`
	oneOrMinus  = `{"enum":[1,-1]}`
)

// namePattern is what can stand in a query as a name; legalName says the same.
const namePattern = `^[A-Za-z_][A-Za-z0-9_]{0,127}$`

// The parts of a definition (models, sections 2.1 to 2.5, 2.9 and 17).
var (
	modelPart = part{"model", "One model: a table, and what may be seen and changed of it.", []key{
		{"name", `{"type":"string","pattern":"` + namePattern + `"}`, "The model's name in queries and in the names of its tools.", `"Course"`},
		{"description", anyText, "What its rows are. Tools tell it to their callers.", `"A course offered"`},
		{"collection", textSchema, "The table's name; the model's name without it.", `"courses"`},
		{"idPrefix", anyText, "When not empty, ids of new rows are made: this text, the time, and random characters.", `"CO"`},
		{"idField", textSchema, "The field that get, update and delete find a row by; _id without it.", `"_id"`},
		{"timestamps", `{"enum":[true,false,"ms","s"]}`, "Keep createdAt and updatedAt, in milliseconds (true, \"ms\", and without it) or seconds.", `false`},
		{"fields", `{"$ref":"#/$defs/fields","minProperties":1,"propertyNames":{"$ref":"#/$defs/partName"}}`, "The stored fields, by name.", `{"title": "string"}`},
		{"relations", `{"type":"object","additionalProperties":{"$ref":"#/$defs/relation"},"propertyNames":{"$ref":"#/$defs/partName"}}`,
			"Ways to rows of other models, by name.", `{"lessons": {"model": "Lesson", "foreignField": "courseId"}}`},
		{"computes", `{"type":"object","additionalProperties":{"$ref":"#/$defs/compute"},"propertyNames":{"$ref":"#/$defs/partName"}}`,
			"Computed columns, by name.", `{"lessonCount": {"type": "int", "agg": {"$count": "lessons"}}}`},
		{"indexes", `{"type":"array","items":{"$ref":"#/$defs/index"}}`, "The indexes of the table. Unique ones tell which row an upsert means.", `[{"keys": {"status": 1}}]`},
		{"read", rolesSchema, "The roles that may read; creator stands for the user who made a row. An empty list is as good as none.", `["staff"]`},
		{"write", rolesSchema, "The roles that may write; creator stands for the user who made a row. An empty list lets nobody write.", `["staff"]`},
		{"triggers", `{"$ref":"#/$defs/triggers"}`, "What else happens when rows change. Read and checked; nothing runs them yet, so a model with triggers refuses writes.",
			`{"insert": [{"fnRef": "courses.added"}]}`},
		{"replica", `{"const":false}`, "Not part of this version.", `false`},
		{"datasource", textSchema, "The source whose database holds the table; default without it.", `"default"`},
		{"namespace", `{}`, "The database inside the source.", `"main"`},
		{"_isArchive", flagSchema, "The model is an archive: it gets none of its own.", `true`},
		{"table", textSchema, "An existing table, as table or schema.table.", `"public.courses"`},
		{"key", `{"type":"array","uniqueItems":true,"items":{"type":"string","minLength":1}}`,
			"The columns of the primary key. One is shown as _id, several make _id together. An empty list: the table has none, and is for reading only.", `["course_id"]`},
		{"view", flagSchema, "The table is a view: it is for reading only.", `true`},
		{"version", textSchema, "The field or column that tells versions of a row apart; updatedAt where the model keeps timestamps.", `"updated_at"`},
		{"archive", flagSchema, "Whether removed rows are kept in an archive model; true without it.", `false`},
		{"collation", `{"const":"source"}`, "Text compares and sorts as the database does, not by code point.", `"source"`},
		{"$schema", anyText, "Where editors find this description of the format. It means nothing to the server.", `"models.schema.json"`},
		{"x-mcp", `{"$ref":"#/$defs/mcp"}`, "How tools show the model.", `{"hidden": true}`},
	}, `"required":["name","fields"]`}

	fieldPart = part{"field", "One stored field.", []key{
		{"type", `{"$ref":"#/$defs/type"}`, "The type of its values.", `"string"`},
		{"required", flagSchema, "A new row must have a value that is not null.", `true`},
		{"default", `{}`, "The value that is read where none is stored. It is not stored.", `"draft"`},
		{"read", rolesSchema, "The roles that may read the field; without it those that may read the model.", `["staff"]`},
		{"write", rolesSchema, "The roles that may write the field; without it those that may write the model.", `["staff"]`},
		{"fields", `{"$ref":"#/$defs/fields"}`, "The fields of an object.", `{"level": "string"}`},
		{"strategy", `{"const":"autoincrement"}`, "The database assigns the value. For _id and columns of the key.", `"autoincrement"`},
		{"column", textSchema, "The column's name; the field's name without it.", `"title"`},
		{"enum", `{"type":"array","minItems":1}`, "The values that the field takes.", `["draft", "live"]`},
		{"format", anyText, "Told to callers, and not checked.", `"email"`},
		{"description", anyText, "What it is. Tools tell it to their callers.", `"Shown as a headline"`},
		{"generated", flagSchema, "The database computes the value: it is never written.", `true`},
	}, `"required":["type"],"if":{"required":["fields"]},"then":{"properties":{"type":{"const":"object"}}}`}

	relationPart = part{"relation", "A way to the rows of a model whose foreignField equals the localField of a row here.", []key{
		{"model", textSchema, "The name of the model that it leads to.", `"Lesson"`},
		{"type", `{"enum":["many","one"]}`, "many gives a list, and is meant without it; one gives one row or null.", `"one"`},
		{"localField", namesSchema, "The field here; _id without it. Several for a composite key.", `"_id"`},
		{"foreignField", namesSchema, "The field there; the relation's own name without it. Several for a composite key.", `"courseId"`},
		{"read", rolesSchema, "The roles that may follow it; without it those that may read the model.", `["staff"]`},
		{"description", anyText, "What it leads to. Tools tell it to their callers.", `"Lessons in their order"`},
	}, `"required":["model"]`}

	computePart = part{"compute", "A computed column: an aggregate over a relation, or a function that the program registers.", []key{
		{"type", `{"$ref":"#/$defs/type"}`, "The type of its values; any without it.", `"int"`},
		{"fn", `{}`, "A function computes it, row by row.", `true`},
		{"asyncFn", `{}`, "A function computes it, for all rows at once.", `true`},
		{"fnRef", textSchema, "The name that the function is registered under; the column's name without it.", `"people.fullName"`},
		{"agg", `{"$ref":"#/$defs/agg"}`, "An aggregate over the rows of a relation.", `{"$count": "lessons"}`},
		{"depends", `{"type":"array","items":{"type":"string","minLength":1}}`,
			"The fields that the function needs; for asyncFn also relations, as relation or relation{field,...}.", `["firstName", "lastName"]`},
		{"read", rolesSchema, "The roles that may read it; without it those that may read the model.", `["staff"]`},
		{"description", anyText, "What it is. Tools tell it to their callers.", `"First and last name"`},
	}, `"oneOf":[{"required":["agg"],"not":{"anyOf":[{"$ref":"#/$defs/byFn"},{"$ref":"#/$defs/byAsyncFn"}]}},
		{"$ref":"#/$defs/byFn","not":{"anyOf":[{"required":["agg"]},{"$ref":"#/$defs/byAsyncFn"}]}},
		{"$ref":"#/$defs/byAsyncFn","not":{"anyOf":[{"required":["agg"]},{"$ref":"#/$defs/byFn"}]}}]`}

	indexPart = part{"index", "An index of the table.", append([]key{
		{"keys", `{"type":"object","minProperties":1,"additionalProperties":` + oneOrMinus + `}`, "The fields, in their order: 1 ascending, -1 descending.", `{"status": 1, "price": -1}`},
		{"options", `{"$ref":"#/$defs/indexOptions"}`, "The options; they may stand beside keys as well.", `{"unique": true}`},
	}, indexOptionsPart.keys...), `"required":["keys"]`}

	indexOptionsPart = part{"indexOptions", "The options of an index.", []key{
		{"unique", flagSchema, "No two rows have the same values.", `true`},
		{"sparse", flagSchema, "Rows without the fields are left out, where the database can.", `true`},
		{"expireAfterSeconds", `{"type":"number","minimum":0}`, "Rows vanish after this time, where the database can.", `3600`},
	}, ``}

	mcpPart = part{"mcp", "How tools show the model.", []key{
		{"hidden", flagSchema, "The model is unknown to every caller of a tool.", `true`},
	}, ``}

	triggerPart = part{"trigger", "One trigger: a command (into, op) or a callback (fnRef).", []key{
		{"into", textSchema, "The model that is written.", `"AuditLog"`},
		{"op", `{"enum":["insert","update","remove"]}`, "How it is written.", `"insert"`},
		{"data", `{"type":"object"}`, "What is written. A text may be a placeholder: {{root.path}}, {{before.path}}, {{now}}.", `{"at": "{{now}}"}`},
		{"condition", `{"type":"object"}`, "Which rows are updated or removed.", `{"courseId": "{{root._id}}"}`},
		{"fnRef", textSchema, "The function that is called.", `"courses.added"`},
		{"args", `{}`, "What the function is given.", `{"id": "{{root._id}}"}`},
		{"name", anyText, "A name for people.", `"note additions"`},
		{"when", `{"type":"object","minProperties":1,"maxProperties":1}`, "It fires only where this is true: eq, ne, gt, gte, lt, lte, in with two operands, and, or, not.", `{"eq": ["{{root.status}}", "live"]}`},
		{"onFields", `{"type":"array","minItems":1,"items":{"type":"string","minLength":1}}`, "On update: it fires only when one of these fields really changed.", `["status"]`},
		{"cron", anyText, "On schedule: five fields of numbers and * , - /.", `"0 3 * * *"`},
	}, `"oneOf":[{"required":["into","op"],"not":{"required":["fnRef"]}},{"required":["fnRef"],"not":{"anyOf":[{"required":["into"]},{"required":["op"]}]}}]`}
)

// triggerEvents are when triggers fire.
var triggerEvents = []string{"insert", "update", "remove", "schedule"}

// truthySchema is what counts as set for fn and asyncFn.
const truthySchema = `{"not":{"enum":[false,null,0,""]}}`

// reservedKeys are the keys of the format that cannot be names of fields, relations and computed columns, as they are
// written. Other spellings, such as local_field, are refused too, by Words.
func reservedKeys() []string {
	var out []string
	for _, p := range []*part{&fieldPart, &relationPart, &computePart} {
		for _, name := range p.names() {
			if reserved[strings.Join(Words(name), "")] && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// FormatSchema is DefinitionSchema as the text of a file, docs/models.schema.json. Editors complete and check definitions
// with it.
func FormatSchema() []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, DefinitionSchema().AppendJSON(nil), "", "  "); err != nil {
		panic("model: " + err.Error())
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// DefinitionSchema is the JSON Schema (draft 2020-12) of the definition format, as strict reading takes it: one definition
// or an array of them. It cannot say what depends on other parts of a definition, such as whether a relation exists.
func DefinitionSchema() canonjson.Value {
	defs := []canonjson.Member{}
	for _, p := range []*part{&modelPart, &fieldPart, &relationPart, &computePart, &indexPart, &indexOptionsPart, &mcpPart, &triggerPart} {
		defs = append(defs, canonjson.M(p.name, p.schema()))
	}
	more := `{
		"partName":{"pattern":"` + namePattern + `","not":{"enum":` + jsonList(reservedKeys()) + `}},
		"fields":{"type":"object","propertyNames":{"pattern":"` + namePattern + `"},"additionalProperties":{"anyOf":[{"$ref":"#/$defs/type"},{"$ref":"#/$defs/field"}]}},
		"type":{"enum":` + jsonList(append(slices.Clone(typeNames), "bool", "datetime")) + `},
		"agg":{"type":"object","minProperties":1,"maxProperties":1,"additionalProperties":false,"properties":{"$count":{"type":"string","pattern":"^[A-Za-z0-9_]+$"}},
			"patternProperties":{"^\\$(sum|avg|min|max)$":{"type":"string","pattern":"^[^.]+\\.[^.]+$"}}},
		"triggers":{"type":"object","additionalProperties":false,"patternProperties":{"^(` + strings.Join(triggerEvents, "|") + `)$":{"type":"array","items":{"$ref":"#/$defs/trigger"}}}},
		"byFn":{"required":["fn"],"properties":{"fn":` + truthySchema + `}},
		"byAsyncFn":{"required":["asyncFn"],"properties":{"asyncFn":` + truthySchema + `}}
	}`
	defs = append(defs, mustJSON(more).Members()...)
	return canonjson.Object(
		canonjson.M("$schema", canonjson.String("https://json-schema.org/draft/2020-12/schema")),
		canonjson.M("title", canonjson.String("Model definitions of tabellion")),
		canonjson.M("description", canonjson.String("One model definition, or an array of them. Keys that begin with x- are kept and mean nothing here, but x-mcp.")),
		canonjson.M("anyOf", mustJSON(`[{"$ref":"#/$defs/model"},{"type":"array","items":{"$ref":"#/$defs/model"}}]`)),
		canonjson.M("$defs", canonjson.Object(defs...)),
	)
}

// schema is the JSON Schema of a part.
func (p *part) schema() canonjson.Value {
	var properties []canonjson.Member
	for _, k := range p.keys {
		s := append([]canonjson.Member{canonjson.M("description", canonjson.String(k.doc))}, mustJSON(k.schema).Members()...)
		s = append(s, canonjson.M("examples", canonjson.Array(mustJSON(k.example))))
		properties = append(properties, canonjson.M(k.name, canonjson.Object(s...)))
	}
	members := []canonjson.Member{
		canonjson.M("description", canonjson.String(p.doc)),
		canonjson.M("type", canonjson.String("object")),
		canonjson.M("properties", canonjson.Object(properties...)),
		canonjson.M("patternProperties", mustJSON(`{"^x-":true}`)),
		canonjson.M("additionalProperties", canonjson.Bool(false)),
	}
	return canonjson.Object(append(members, mustJSON("{"+p.more+"}").Members()...)...)
}

// jsonList is an array of texts, as JSON text.
func jsonList(names []string) string {
	items := make([]canonjson.Value, len(names))
	for i, n := range names {
		items[i] = canonjson.String(n)
	}
	return string(canonjson.Array(items...).AppendJSON(nil))
}

// mustJSON reads JSON text of this package.
func mustJSON(text string) canonjson.Value {
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		panic("model: " + err.Error() + " in " + text)
	}
	return v
}
