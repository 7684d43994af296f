package tools

import (
	"slices"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/model"
)

// What calls are checked against. It is the same for all models: fields and their types are checked by the plan, whose
// words help more. Their listings say more (input).
var (
	inNothing = catalog.MustSchema(`{"type":"object","properties":{},"additionalProperties":false}`)
	inGet     = catalog.MustSchema(`{"type":"object","properties":{"id":{"type":["string","number"]}},"required":["id"],"additionalProperties":false}`)
	inList    = catalog.MustSchema(`{"type":"object","properties":{"q":{"type":"string"},"params":{"type":"object","properties":{}},` + paging + `},"additionalProperties":false}`)
	inCreate  = catalog.MustSchema(`{"type":"object","properties":{"body":{"type":"object","properties":{}},` + onceKey + `},"required":["body"],"additionalProperties":false}`)
	inUpdate  = catalog.MustSchema(`{"type":"object","properties":{"id":{"type":["string","number"]},"set":{"type":"object","properties":{}},` + version + `,` + onceKey + `},"required":["id","set"],"additionalProperties":false}`)
	inDelete  = catalog.MustSchema(`{"type":"object","properties":{"id":{"type":["string","number"]},` + version + `,` + onceKey + `},"required":["id"],"additionalProperties":false}`)
	inQuery   = catalog.MustSchema(`{"type":"object","properties":{"gql":{"type":"string"},"params":{"type":"object","properties":{},"description":"Values by the names behind @."}},"required":["gql"],"additionalProperties":false}`)

	inGenericGet    = catalog.MustSchema(`{"type":"object","properties":{` + modelName + `,` + anyID + `,` + selecting + `},"required":["model","id"],"additionalProperties":false}`)
	inGenericList   = catalog.MustSchema(`{"type":"object","properties":{` + modelName + `,"condition":{"type":"object","properties":{}},"sort":{"type":["object","array"],"properties":{},"items":{}},` + selecting + `,` + paging + `},"required":["model"],"additionalProperties":false}`)
	inGenericCreate = catalog.MustSchema(`{"type":"object","properties":{` + modelName + `,"body":{"type":"object","properties":{}},` + onceKey + `},"required":["model","body"],"additionalProperties":false}`)
	inGenericUpdate = catalog.MustSchema(`{"type":"object","properties":{` + modelName + `,` + anyID + `,"set":{"type":"object","properties":{},"description":"Fields, or $set, $inc, $unset."},` + version + `,` + onceKey + `},"required":["model","id","set"],"additionalProperties":false}`)
	inGenericDelete = catalog.MustSchema(`{"type":"object","properties":{` + modelName + `,` + anyID + `,` + version + `,` + onceKey + `},"required":["model","id"],"additionalProperties":false}`)
)

// Arguments that several operations take.
const (
	paging    = `"limit":{"type":"integer","minimum":1,"maximum":10000},"cursor":{"type":"string","description":"next_cursor of the page before; other arguments unchanged."}`
	onceKey   = `"idempotencyKey":{"type":"string","minLength":1,"maxLength":128,"description":"Repeated with the same key, it happens once."}`
	version   = `"expectedVersion":{"type":["string","number"],"description":"Version that the row must have."}`
	modelName = `"model":{"type":"string","description":"As in describe_schemas."}`
	anyID     = `"id":{"type":["string","number"]}`
	selecting = `"select":{"type":"string","maxLength":65536}`
)

// What results are checked against before they leave. Rows are encoded once and not looked into again: they are made of
// the plan's own fields.
var (
	outRow     = catalog.MustSchema(`{"type":"object","properties":{"row":{}},"required":["row"],"additionalProperties":false}`)
	outRows    = catalog.MustSchema(`{"type":"object","properties":{"rows":{},"next_cursor":{"type":"string"},"truncated":{"type":"boolean"}},"required":["rows"],"additionalProperties":false}`)
	outRemoved = catalog.MustSchema(`{"type":"object","properties":{"deletedCount":{"type":"integer"},"archivedCount":{"type":"integer"}},"required":["deletedCount","archivedCount"],"additionalProperties":false}`)
)

// failure are the members of a failed call. Strict clients hold the structured content of a failure against the listed
// schema too, so that they stand beside those of a success; the one kind or the other is there.
var failure = canonjson.Raw([]byte(`{"code":{"type":"string"},"message":{"type":"string"}}`))

// group is the form of a row that is no row of the model but a group of them: its members have the names that q gives
// them, which may be names of fields.
const group = `{"type":"object","properties":{},"description":"A group, where q groups."}`

// free is the schema of an object with any members.
var free = canonjson.Raw([]byte(`{"type":"object","properties":{}}`))

// Listed results that are the same for all models.
var (
	rowsOutput    = either(rowsOf(free))
	anyRowOutput  = either(rowOf(canonjson.Raw([]byte(`{"type":["object","null"],"properties":{}}`))))
	removedOutput = either(canonjson.Raw(outRemoved.Text()).Get("properties"))
	noArguments   = catalog.MustSchema(`{"type":"object","properties":{}}`)
)

// either is a listed output: the members of a success and those of a failure, side by side and not as alternatives, which
// many clients do not read. Here and below each object has properties and each array items, be there none to name: there
// are clients that take no other schema.
func either(success canonjson.Value) *catalog.Schema {
	members := append(slices.Clone(success.Members()), failure.Members()...)
	return schema(canonjson.Object(canonjson.M("type", canonjson.String("object")), canonjson.M("properties", canonjson.Object(members...))))
}

// rowsOf are the members of a list.
func rowsOf(row canonjson.Value) canonjson.Value {
	return canonjson.Object(
		canonjson.M("rows", canonjson.Object(canonjson.M("type", canonjson.String("array")), canonjson.M("items", row))),
		canonjson.M("next_cursor", typed("string")),
		canonjson.M("truncated", typed("boolean")),
	)
}

// rowOf are the members of one row.
func rowOf(row canonjson.Value) canonjson.Value { return canonjson.Object(canonjson.M("row", row)) }

// schema reads a schema that was built here.
func schema(v canonjson.Value) *catalog.Schema { return catalog.MustSchema(string(v.AppendJSON(nil))) }

// property is one member of an object schema.
type property struct {
	name string
	v    canonjson.Value
}

// properties are the members of an object schema, in order.
type properties []property

// object is the schema of an object that has these members and no other.
func object(ps properties, required ...string) canonjson.Value {
	members := make([]canonjson.Member, len(ps))
	for i, p := range ps {
		members[i] = canonjson.M(p.name, p.v)
	}
	m := []canonjson.Member{canonjson.M("type", canonjson.String("object")), canonjson.M("properties", canonjson.Object(members...))}
	if len(required) > 0 {
		m = append(m, canonjson.M("required", texts(required)))
	}
	return canonjson.Object(append(m, canonjson.M("additionalProperties", canonjson.Bool(false)))...)
}

// texts is an array of strings.
func texts(all []string) canonjson.Value {
	items := make([]canonjson.Value, len(all))
	for i, s := range all {
		items[i] = canonjson.String(s)
	}
	return canonjson.Array(items...)
}

// typed is {"type": ...} of one or several types.
func typed(types ...string) canonjson.Value {
	if len(types) == 1 {
		return canonjson.Object(canonjson.M("type", canonjson.String(types[0])))
	}
	return canonjson.Object(canonjson.M("type", texts(types)))
}

// jsonTypes are the JSON types that values of a type have when they are read. None: any.
func jsonTypes(t model.Type) []string {
	switch t {
	case model.Int, model.Long, model.Date:
		return []string{"integer"}
	case model.Float, model.Double, model.Number:
		return []string{"number"}
	case model.Boolean:
		return []string{"boolean"}
	case model.Array:
		return []string{"array"}
	case model.Object:
		return []string{"object"}
	case model.Any:
		return nil
	}
	return []string{"string"}
}

// idSchema is the schema of the argument id.
func idSchema(m *model.Model) canonjson.Value {
	types := []string{"string"}
	if f := m.Field(m.IDField); f != nil {
		types = jsonTypes(f.Type)
	}
	if len(types) == 1 && types[0] != "string" {
		types = append(types, "string") // digits as text name the same row
	}
	return described(typed(types...), "The row's "+m.IDField+".")
}

// described adds a description.
func described(v canonjson.Value, words string) canonjson.Value {
	if words == "" {
		return v
	}
	return canonjson.Object(append(append([]canonjson.Member{}, v.Members()...), canonjson.M("description", canonjson.String(words)))...)
}

// fieldSchema is the schema of a field's value for an audience; null tells that null is a value too.
func fieldSchema(m *model.Model, f *model.Field, a *model.Access, null bool) canonjson.Value {
	types := jsonTypes(f.Type)
	if len(types) > 0 && null {
		types = append(append([]string{}, types...), "null")
	}
	var out []canonjson.Member
	if len(types) > 0 {
		out = append(out, typed(types...).Members()...)
	}
	switch f.Type {
	case model.Array:
		out = append(out, canonjson.M("items", canonjson.Object()))
	case model.Object:
		out = append(out, canonjson.M("properties", subSchemas(m, f, a)))
	}
	if f.Enum != nil {
		values := append([]canonjson.Value{}, f.Enum...)
		if null {
			values = append(values, canonjson.Null())
		}
		out = append(out, canonjson.M("enum", canonjson.Array(values...)))
	}
	if f.Format != "" {
		out = append(out, canonjson.M("format", canonjson.String(f.Format)))
	}
	return described(canonjson.Object(out...), f.Description)
}

// subSchemas are the declared parts of an object field that an audience may read. A part without a list of its own is as
// readable as its object.
func subSchemas(m *model.Model, f *model.Field, a *model.Access) canonjson.Value {
	var out []canonjson.Member
	for _, sub := range f.Fields {
		if a == nil || sub.Read == nil || a.ReadField(m, sub) {
			out = append(out, canonjson.M(sub.Name, fieldSchema(m, sub, a, !sub.Required)))
		}
	}
	return canonjson.Object(out...)
}

// rowOutput is the listed output of get_X, list_X, create_X and update_X for an audience; nil is the full surface. A row
// may hold more (relations, groups), so that further members are allowed. Who writes rows that he may not read is shown
// their ids.
func (t *Tools) rowOutput(m *model.Model, a *model.Access, list bool) *catalog.Schema {
	var ps []canonjson.Member
	reads := a == nil || a.Read(m) == nil
	for _, f := range m.Fields {
		if a == nil || (reads || f.Name == "_id") && a.ReadField(m, f) {
			ps = append(ps, canonjson.M(f.Name, fieldSchemaOut(m, f)))
		}
	}
	for _, c := range m.Computes {
		if reads && (a == nil || a.ReadCompute(m, c)) && t.computable(a, m, c) {
			ps = append(ps, canonjson.M(c.Name, described(canonjson.Object(), c.Description)))
		}
	}
	kind := []string{"object", "null"}
	if list {
		kind = kind[:1]
	}
	row := canonjson.Object(append(typed(kind...).Members(), canonjson.M("properties", canonjson.Object(ps...)))...)
	if list {
		return either(rowsOf(canonjson.Object(canonjson.M("anyOf", canonjson.Array(row, canonjson.Raw([]byte(group)))))))
	}
	return either(rowOf(row))
}

// fieldSchemaOut is the schema of a field in a row. Enums and parts of objects are not repeated: what is stored may be
// older than the definition.
func fieldSchemaOut(m *model.Model, f *model.Field) canonjson.Value {
	out := *f
	out.Enum, out.Description, out.Fields = nil, "", nil
	return fieldSchema(m, &out, nil, true)
}

// input is the listed input of a write for an audience; nil is the full surface.
func (t *Tools) input(m *model.Model, a *model.Access, action model.Action) *catalog.Schema {
	key := canonjson.Raw([]byte("{" + onceKey + "}")).Get("idempotencyKey")
	expected := canonjson.Raw([]byte("{" + version + "}")).Get("expectedVersion")
	switch action {
	case model.ActInsert:
		return schema(object(properties{{"body", bodySchema(m, a)}, {"idempotencyKey", key}}, "body"))
	case model.ActUpdate:
		ps := properties{{"id", idSchema(m)}, {"set", setSchema(m, a)}}
		if versioned(a, m) {
			ps = append(ps, property{"expectedVersion", expected})
		}
		return schema(object(append(ps, property{"idempotencyKey", key}), "id", "set"))
	}
	ps := properties{{"id", idSchema(m)}}
	if versioned(a, m) {
		ps = append(ps, property{"expectedVersion", expected})
	}
	return schema(object(append(ps, property{"idempotencyKey", key}), "id"))
}

// bodySchema is the schema of a new row.
func bodySchema(m *model.Model, a *model.Access) canonjson.Value {
	var ps properties
	var required []string
	for _, f := range m.Fields {
		if f.Column == "" || f.Name != "_id" && !writes(m, f, a, model.ActInsert) {
			continue
		}
		need := f.Required
		if f.Name == "_id" || slices.Contains(m.Key, f) {
			need = m.IDPrefix == "" && !f.AutoIncrement
		}
		ps = append(ps, property{f.Name, fieldSchema(m, f, a, !need)})
		if need {
			required = append(required, f.Name)
		}
	}
	return described(object(ps, required...), "Fields of the new row.")
}

// writes tells whether an audience may write f. An object is written as a whole, so that all of its parts must be his.
func writes(m *model.Model, f *model.Field, a *model.Access, action model.Action) bool {
	switch {
	case f.Generated, f.Added && f.Name == "updatedAt" && m.Times != model.NoTimes:
		return false
	case a == nil:
		return true
	}
	return a.WriteField(m, f, action) && !slices.ContainsFunc(f.Fields, func(sub *model.Field) bool {
		return sub.Write != nil && !a.WriteField(m, sub, action)
	})
}

// setSchema is the schema of a change: fields, or operators.
func setSchema(m *model.Model, a *model.Access) canonjson.Value {
	var ps properties
	for _, f := range m.Fields {
		if f.Name == "_id" || slices.Contains(m.Key, f) || !writes(m, f, a, model.ActUpdate) {
			continue
		}
		ps = append(ps, property{f.Name, fieldSchema(m, f, a, !f.Required)})
	}
	for _, operator := range []property{
		{"$set", described(free, "Fields to set, beside the other operators.")},
		{"$inc", described(free, "Numbers to add to fields.")},
		{"$unset", described(free, "Fields to make missing.")},
	} {
		ps = append(ps, operator)
	}
	return described(object(ps), "Fields to change, or the operators $set, $inc and $unset alone.")
}
