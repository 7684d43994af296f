package plan

import (
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// document is what a caller sent for one row.
type document struct {
	given map[*model.Field]canonjson.Value // by the caller, of fields that he may write; with null
	row   Row                              // to insert: given, and what the server adds
	lacks []*model.Field                   // required, and not in row
}

// document reads the data of a new row. link is a field that gets its value elsewhere: the end of a relation.
func (w *writer) document(data canonjson.Value, link *model.Field) (*document, error) {
	if data.Kind() != canonjson.KindObject {
		return nil, model.Errorf(model.BadBody, "the data of a %s is an object of fields, not %s. Write {%s}", w.m.Name, short(data), w.example())
	}
	d := &document{given: map[*model.Field]canonjson.Value{}}
	var id canonjson.Value
	for _, member := range data.Members() {
		if member.Name == "_id" {
			id = member.Value
			continue
		}
		f, err := w.field(member.Name)
		if err != nil {
			return nil, err
		}
		if may, err := w.mayWrite(f); err != nil || !may {
			if err != nil {
				return nil, err
			}
			continue
		}
		if d.given[f], err = w.fit(f, member.Value); err != nil {
			return nil, err
		}
	}
	return d, w.complete(d, id, link)
}

// complete makes the row: the key, who made it, and when (section 12.1).
func (w *writer) complete(d *document, id canonjson.Value, link *model.Field) error {
	values := map[*model.Field]canonjson.Value{}
	for f, v := range d.given {
		values[f] = v
	}
	if err := w.setCreator(values); err != nil {
		return err
	}
	w.stamp(values)
	if link == nil || link != w.m.ID() {
		if err := w.identify(values, id); err != nil {
			return err
		}
	}
	delete(values, link)
	for _, f := range w.m.Fields {
		if v, ok := values[f]; ok {
			d.row = append(d.row, FieldValue{f, v})
		}
		if v := values[f]; f.Required && f != link && f != w.m.ID() && !f.Generated && !f.AutoIncrement && none(v) {
			d.lacks = append(d.lacks, f)
		}
	}
	return nil
}

// none tells whether v is no value: missing or null.
func none(v canonjson.Value) bool { return v.IsAbsent() || v.Kind() == canonjson.KindNull }

// falsy tells whether v counts as absent where the reference asks for a true value (sections 2.6 and 12.1).
func falsy(v canonjson.Value) bool {
	switch v.Kind() {
	case canonjson.KindBool:
		return !v.Bool()
	case canonjson.KindNumber:
		return v.Float() == 0
	case canonjson.KindString:
		return v.Str() == ""
	}
	return none(v)
}

// field finds the stored field that a key of the data names.
func (w *writer) field(key string) (*model.Field, error) {
	if f := w.m.Field(key); f != nil {
		if f.Generated {
			return nil, model.Errorf(model.BadValue, "%s is computed by the database; leave it out", place(w.m, key))
		}
		return f, nil
	}
	if strings.HasPrefix(key, "$") {
		return nil, model.Errorf(model.BadBody, "%s is an operator, and new rows hold fields only. Write {%s}", clip(key), w.example())
	}
	if head, _, dotted := split(key); dotted {
		if f := w.m.Field(head); f != nil && w.touches(f) {
			return nil, model.Errorf(model.BadBody, "%s is a part of %s; send the whole %s", clip(key), place(w.m, head), head)
		}
	}
	if r := w.p.relationOf(w.m, key); r != nil && w.p.Access.ReadRelation(w.m, r) {
		return nil, model.Errorf(model.UnknownField, "%s is a relation and no field; write the rows of %s on their own%s", place(w.m, key), r.Model, linkHint(r))
	}
	if c := w.m.Compute(key); c != nil && w.p.Access.ReadCompute(w.m, c) {
		return nil, model.Errorf(model.UnknownField, "%s is computed and cannot be written%s", place(w.m, key), hint("", w.writable()))
	}
	return nil, model.Errorf(model.UnknownField, "%s has no field %s%s", w.m.Name, clip(key), hint(key, w.writable()))
}

// linkHint says how rows of a relation are tied.
func linkHint(r *model.Relation) string {
	if len(r.Foreign) == 1 && r.Foreign[0] != "_id" {
		return ", with " + r.Foreign[0]
	}
	return ""
}

// touches tells whether the caller may read or write f: whether its name may be said.
func (w *writer) touches(f *model.Field) bool {
	return w.p.Access.ReadField(w.m, f) || w.writes(f)
}

// writes tells whether the caller may write f. An object is written as a whole, so all of its parts must be his.
func (w *writer) writes(f *model.Field) bool {
	if !w.p.Access.WriteField(w.m, f, w.action) {
		return false
	}
	return !slices.ContainsFunc(f.Fields, func(sub *model.Field) bool {
		return sub.Write != nil && !w.p.Access.WriteField(w.m, sub, w.action)
	})
}

// mayWrite judges a field of the data: one that the caller may not write is left out and reported, or refused where that
// is configured (section 13.7). One that he may not read either is then unknown, in the same words as a made-up name.
func (w *writer) mayWrite(f *model.Field) (bool, error) {
	switch {
	case w.writes(f):
		return true, nil
	case !w.w.Strict:
		w.dropped = append(w.dropped, f.Name)
		return false, nil
	case !w.p.Access.ReadField(w.m, f):
		return false, model.Errorf(model.UnknownField, "%s has no field %s%s", w.m.Name, clip(f.Name), hint(f.Name, w.writable()))
	}
	return false, model.Errorf(model.Denied, "you may not write %s; leave it out", place(w.m, f.Name))
}

// writable are the fields that the caller may write.
func (w *writer) writable() []string {
	return w.p.fieldNames(w.m, func(f *model.Field) bool {
		return f.Name != "_id" && !f.Added && !f.Generated && w.writes(f)
	})
}

// example is a member of data for messages.
func (w *writer) example() string {
	for _, name := range w.writable() {
		if f := w.m.Field(name); !f.Type.JSON() {
			return quoted(name) + ": " + sample(f.Type)
		}
	}
	return ""
}

// fit is a value of the declared type of f, or null.
func (w *writer) fit(f *model.Field, v canonjson.Value) (canonjson.Value, error) {
	if none(v) {
		return v, nil
	}
	return fitField(w.m, f, v)
}

// fitField is a value of the declared type of f that every database can hold: what is stored here can be asked for
// afterwards, on each of them.
func fitField(m *model.Model, f *model.Field, v canonjson.Value) (canonjson.Value, error) {
	fitted, err := model.Fit(f, v)
	switch {
	case err != nil:
		return v, wrongValue(m, f, err)
	case holdsNUL(fitted):
		return v, withoutNUL(m, f)
	}
	return fitted, nil
}

// withoutNUL refuses text that not every database can hold.
func withoutNUL(m *model.Model, f *model.Field) error {
	return model.Errorf(model.BadValue, "%s takes text without the character U+0000, which not every database can hold; leave it out", place(m, f.Name))
}

// holdsNUL tells whether the character U+0000 is in a text of v, or in a name.
func holdsNUL(v canonjson.Value) bool {
	switch v.Kind() {
	case canonjson.KindString:
		return strings.ContainsRune(v.Str(), 0)
	case canonjson.KindArray:
		return slices.ContainsFunc(v.Items(), holdsNUL)
	}
	return slices.ContainsFunc(v.Members(), func(m canonjson.Member) bool {
		return strings.ContainsRune(m.Name, 0) || holdsNUL(m.Value)
	})
}

// setCreator says who made the row: in a model of owners it is the caller, whatever he sent, unless he is exempt
// (section 12.1).
func (w *writer) setCreator(values map[*model.Field]canonjson.Value) error {
	f := w.creator()
	if f == nil || w.p.Access.Exempt() && !falsy(values[f]) {
		return nil
	}
	user := w.p.Access.Context().UserID
	if user == "" {
		if !w.p.Access.Exempt() {
			delete(values, f)
		}
		return nil
	}
	v, err := model.Coerce(f.Type, canonjson.String(user))
	if err != nil {
		return model.Errorf(model.Denied, "you may not write %s: your user id does not fit %s", w.m.Name, place(w.m, f.Name))
	}
	values[f] = v
	return nil
}

// creator is the field createdBy where the model's lists speak of owners, else nil.
func (w *writer) creator() *model.Field {
	if slices.Contains(w.m.Read, "creator") || slices.Contains(w.m.Write, "creator") {
		return w.m.Field("createdBy")
	}
	return nil
}

// times are the fields that the model keeps, nil where it keeps none.
func (w *writer) times() (created, updated *model.Field) {
	if w.m.Times == model.NoTimes {
		return nil, nil
	}
	return w.m.Field("createdAt"), w.m.Field("updatedAt")
}

// stamp sets createdAt unless it was given, and updatedAt.
func (w *writer) stamp(values map[*model.Field]canonjson.Value) {
	created, updated := w.times()
	if created != nil && falsy(values[created]) {
		values[created] = w.moment(created)
	}
	if updated != nil {
		values[updated] = w.moment(updated)
	}
}

// moment is now as a value of f.
func (w *writer) moment(f *model.Field) canonjson.Value {
	switch f.Type {
	case model.Timestamp:
		return canonjson.String(w.w.Now.UTC().Format("2006-01-02T15:04:05.999Z07:00"))
	case model.Day:
		return canonjson.String(w.w.Now.UTC().Format("2006-01-02"))
	}
	return canonjson.Int(w.w.now(w.m))
}

// identify sets the key: what was given, or an id of ours, or none where the database assigns it (section 2.6). The _id
// of a key of several columns is split into them.
func (w *writer) identify(values map[*model.Field]canonjson.Value, id canonjson.Value) error {
	if w.m.Composite() {
		return w.identifyComposite(values, id)
	}
	f := w.m.ID()
	switch {
	case !falsy(id):
		v, err := fitField(w.m, f, id)
		if err != nil {
			return err
		}
		values[f] = v
	case f.AutoIncrement:
	case w.m.IDPrefix != "":
		values[f] = canonjson.String(w.w.NewID(w.m.IDPrefix))
	default:
		return model.Errorf(model.MissingID, "a new %s needs an _id, for the model makes none. Write {\"_id\": %s, %s}", w.m.Name, sample(f.Type), w.example())
	}
	return nil
}

// identifyComposite takes the columns of a key from an _id, or from the fields themselves.
func (w *writer) identifyComposite(values map[*model.Field]canonjson.Value, id canonjson.Value) error {
	var names []string
	if !falsy(id) {
		parts, ok := splitKey(w.m, id)
		if !ok {
			return model.Errorf(model.BadValue, "the _id of %s is the text of a JSON array of %d texts. Write {\"_id\": %s}, or give its fields one by one", w.m.Name, len(w.m.Key), sampleKey(w.m))
		}
		for i, f := range w.m.Key {
			if holdsNUL(parts[i]) {
				return withoutNUL(w.m, f)
			}
			if own := values[f]; !own.IsAbsent() && !own.Equal(parts[i]) {
				return model.Errorf(model.BadBody, "_id and %s differ; send one of them", place(w.m, f.Name))
			}
			values[f] = parts[i]
		}
	}
	for _, f := range w.m.Key {
		if none(values[f]) && !f.AutoIncrement {
			names = append(names, f.Name)
		}
	}
	if len(names) > 0 {
		return model.Errorf(model.MissingID, "a new %s needs its key: %s", w.m.Name, strings.Join(names, ", "))
	}
	return nil
}

// lacking is the refusal of a row without required fields. It names those that the caller may know.
func (w *writer) lacking(fields []*model.Field) error {
	if names := w.said(fields); len(names) > 0 {
		return model.Errorf(model.BadValue, "a new %s needs %s, and not null", w.m.Name, strings.Join(names, ", "))
	}
	return model.Errorf(model.Denied, "a new %s needs fields that you may not write", w.m.Name)
}

// said are the names of fields that may be said to the caller.
func (w *writer) said(fields []*model.Field) []string {
	var names []string
	for _, f := range fields {
		if w.touches(f) {
			names = append(names, f.Name)
		}
	}
	return names
}

// wrongValue says which value does not fit. why is what model.Fit says of it.
func wrongValue(m *model.Model, f *model.Field, why error) error {
	return model.Errorf(model.BadValue, "%s %s. Write for example {%s: %s}", place(m, f.Name), why, quoted(f.Name), sampleOfField(f))
}

// sampleOfField is a good value of f, for examples.
func sampleOfField(f *model.Field) string {
	switch {
	case len(f.Enum) > 0:
		return short(f.Enum[0])
	case f.Type == model.Array:
		return "[]"
	case f.Type == model.Object:
		return "{}"
	}
	return sample(f.Type)
}

// changes reads the data of an update: fields to set, or operators (section 12.3). _id and the fields of a composite key
// are left out, and so is updatedAt, which the server sets.
func (w *writer) changes(data canonjson.Value) ([]Assign, error) {
	if data.Kind() != canonjson.KindObject {
		return nil, model.Errorf(model.BadBody, "the change of a %s is an object of fields, not %s. Write {%s}", w.m.Name, short(data), w.example())
	}
	c := changes{w: w}
	if !slices.ContainsFunc(data.Members(), func(m canonjson.Member) bool { return strings.HasPrefix(m.Name, "$") }) {
		err := c.operator("$set", data)
		return c.list, err
	}
	for _, m := range data.Members() {
		switch m.Name {
		case "$set", "$inc", "$unset":
			if m.Value.Kind() != canonjson.KindObject {
				return nil, model.Errorf(model.BadUpdateOp, "%s takes an object of fields, not %s. Write {\"%s\": {%s}}", m.Name, short(m.Value), m.Name, w.example())
			}
			if err := c.operator(m.Name, m.Value); err != nil {
				return nil, err
			}
		default:
			return nil, w.badOp(m.Name, data)
		}
	}
	return c.list, nil
}

// badOp refuses a member beside or instead of the operators.
func (w *writer) badOp(name string, data canonjson.Value) error {
	if strings.HasPrefix(name, "$") {
		return model.Errorf(model.BadUpdateOp, "%s does not exist here; there are $set, $inc and $unset%s", clip(name), hintOp(name, []string{"$set", "$inc", "$unset"}))
	}
	op := "an operator"
	for _, m := range data.Members() {
		if strings.HasPrefix(m.Name, "$") {
			op = clip(m.Name)
			break
		}
	}
	return model.Errorf(model.BadUpdateOp, "%s stands beside %s; with one operator every member is one. Write {\"$set\": {%s: ...}, ...}", clip(name), op, quoted(clip(name)))
}

// changes collects the assignments of one update.
type changes struct {
	w    *writer
	list []Assign
}

// operator reads the fields under one operator.
func (c *changes) operator(op string, fields canonjson.Value) error {
	for _, m := range fields.Members() {
		if m.Name == "_id" {
			continue
		}
		f, err := c.w.changing(op, m.Name)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		if slices.ContainsFunc(c.list, func(a Assign) bool { return a.Field == f }) {
			return model.Errorf(model.BadUpdateOp, "%s is changed twice; name it under one operator", place(c.w.m, m.Name))
		}
		a, err := c.w.assign(op, f, m.Value)
		if err != nil {
			return err
		}
		c.list = append(c.list, a)
	}
	return nil
}

// changing finds and judges the field that an update names; nil when it is to be left out.
func (w *writer) changing(op, name string) (*model.Field, error) {
	f, err := w.field(name)
	if err != nil {
		return nil, err
	}
	if may, err := w.mayWrite(f); err != nil || !may {
		return nil, err
	}
	if _, updated := w.times(); f == updated {
		return nil, nil
	}
	if slices.Contains(w.m.Key, f) {
		w.dropped = append(w.dropped, f.Name)
		return nil, nil
	}
	return f, nil
}

// assign reads one change of one field.
func (w *writer) assign(op string, f *model.Field, v canonjson.Value) (Assign, error) {
	switch op {
	case "$unset":
		if f.Required {
			return Assign{}, model.Errorf(model.BadValue, "%s is required and cannot be unset", place(w.m, f.Name))
		}
		// The reference leaves the name in __present, so that an unset field is an explicit null (golden case w034). In a
		// table without __present it is missing, as every null is there.
		return Assign{Field: f, Value: canonjson.Null()}, nil
	case "$inc":
		if !f.Type.Numeric() {
			return Assign{}, model.Errorf(model.BadValue, "%s is of type %s, and $inc adds to numbers", place(w.m, f.Name), f.Type)
		}
		n, err := model.Coerce(f.Type, v)
		if err != nil || none(v) {
			return Assign{}, model.Errorf(model.BadValue, "$inc adds a value of type %s to %s, not %s. Write {\"$inc\": {%s: %s}}", f.Type, place(w.m, f.Name), short(v), quoted(f.Name), sample(f.Type))
		}
		return Assign{Field: f, Inc: n}, nil
	}
	if f.Required && none(v) {
		return Assign{}, model.Errorf(model.BadValue, "%s is required and cannot be null", place(w.m, f.Name))
	}
	fitted, err := w.fit(f, v)
	return Assign{Field: f, Value: fitted}, err
}

// touched adds updatedAt to a change.
func (w *writer) touched(set []Assign) []Assign {
	if _, updated := w.times(); updated != nil {
		set = append(set, Assign{Field: updated, Value: w.moment(updated)})
	}
	return set
}
