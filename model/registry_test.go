package model_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// parse reads JSON text of a test.
func parse(t testing.TB, text string) canonjson.Value {
	t.Helper()
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// golden reads a file of recorded data.
func golden(t testing.TB, name string) canonjson.Value {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

// register reads definitions strictly: one, or an array.
func register(t testing.TB, text string) *model.Registry {
	t.Helper()
	r := model.NewRegistry(model.Options{})
	v := parse(t, text)
	definitions := v.Items()
	if v.Kind() == canonjson.KindObject {
		definitions = []canonjson.Value{v}
	}
	if err := r.Register(definitions...); err != nil {
		t.Fatal(err)
	}
	return r
}

// refuse wants definitions refused with a class, and a message that holds all words.
func refuse(t *testing.T, err error, class model.Class, words ...string) {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error of class %s", err, class)
	}
	if e.Class != class {
		t.Errorf("got class %s, want %s: %v", e.Class, class, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the message lacks %q: %v", w, err)
		}
	}
}

// decidedSchema are the recorded cases whose defect note says in words what is right.
var decidedSchema = map[string]string{
	"s009": `{"error":{"class":"badSchema"}}`,
	"s010": `{"error":{"class":"badSchema"}}`,
	"s027": `{"error":{"class":"badSchema"}}`,
	"s028": `{"error":{"class":"badSchema"}}`,
	"s030": `{"error":{"class":"badSchema"}}`,
	"s033": `{"models":["A","ADeleted"]}`,
}

// TestGoldenSchema registers the recorded definitions, each case in an empty registry, one definition after the other.
func TestGoldenSchema(t *testing.T) {
	for _, c := range golden(t, "cases-schema.json").Items() {
		id := c.Get("id").Str()
		t.Run(id, func(t *testing.T) {
			want := wanted(c)
			if text := decidedSchema[id]; text != "" {
				want = parse(t, text)
			}
			if want.IsAbsent() {
				t.Fatal("nothing says what is right")
			}
			schemaCase(t, c, want)
		})
	}
	for file, cases := range extraSchemas(t) {
		for _, c := range cases {
			t.Run("extra/"+file+"/"+c.Get("id").Str(), func(t *testing.T) { schemaCase(t, c, wanted(c)) })
		}
	}
}

// wanted is what a case says is right: want, else what was recorded; Absent where that is a defect.
func wanted(c canonjson.Value) canonjson.Value {
	switch {
	case !c.Get("want").IsAbsent():
		return c.Get("want")
	case !c.Get("defect").IsAbsent():
		return canonjson.Value{}
	}
	return c.Get("expect")
}

// schemaCase runs one case. One that says in words alone what is right may end either way, and must leave the registry whole.
func schemaCase(t *testing.T, c, want canonjson.Value) {
	t.Helper()
	r := model.NewRegistry(model.Options{})
	var err error
	for _, d := range c.Get("defns").Items() {
		if err = r.Register(d); err != nil {
			break
		}
	}
	if e := want.Get("error"); !e.IsAbsent() {
		words := []string{e.Get("prefix").Str()}
		for _, w := range e.Get("mentions").Items() {
			words = append(words, w.Str())
		}
		refuse(t, err, model.Class(e.Get("class").Str()), words...)
		return
	}
	if want.Get("models").IsAbsent() {
		t.Logf("%s: %v; models %v", c.Get("defect").Str(), err, r.Names())
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range want.Get("models").Items() {
		names = append(names, n.Str())
	}
	if !slices.Equal(r.Names(), names) {
		t.Errorf("got the models %v, want %v", r.Names(), names)
	}
}

// extraSchemas reads further cases from the folder that TABELLION_EXTRA_FIXTURES names, by file. A folder that is not
// there or is empty fails.
func extraSchemas(t *testing.T) map[string][]canonjson.Value {
	t.Helper()
	root := os.Getenv("TABELLION_EXTRA_FIXTURES")
	if root == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(root, "models", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("TABELLION_EXTRA_FIXTURES: there are no files in the folder models of %s: %v", root, err)
	}
	found := map[string][]canonjson.Value{}
	for _, f := range files {
		if !strings.Contains(filepath.Base(f), "schema") {
			continue // those are for other tests
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range parse(t, string(text)).Items() {
			if !c.Get("defns").IsAbsent() {
				found[filepath.Base(f)] = append(found[filepath.Base(f)], c)
			}
		}
	}
	return found
}

// TestGoldenModels reads the recorded models: nothing of what they say is lost.
func TestGoldenModels(t *testing.T) {
	r := model.NewRegistry(model.Options{Also: []string{"impl"}})
	definitions := golden(t, "schema.json").Items()
	if err := r.Register(definitions...); err != nil {
		t.Fatal(err)
	}
	if n := len(r.List()); n != 2*len(definitions) {
		t.Errorf("%d models of %d definitions", n, len(definitions))
	}
	for i, m := range r.List() {
		if i%2 == 1 {
			if m.ArchiveOf != r.List()[i-1] || m.ArchiveOf.Archive != m {
				t.Errorf("%s stands behind %s", m.Name, r.List()[i-1].Name)
			}
			continue
		}
		if m.Text.String() != definitions[i/2].String() {
			t.Errorf("%s: the text is lost", m.Name)
		}
	}
	course := r.Get("Course")
	switch {
	case course.Field("status").Default.Str() != "draft", course.Field("createdAt") == nil, course.Field("createdAt").Type != model.Number,
		course.Relation("teacher").One != true, course.Relation("lessons").One, course.Compute("totalMinutes").Agg.Field != "minutes",
		!course.Indexes[0].Unique, !course.Indexes[1].Keys[1].Desc, course.IDPrefix != "CO", course.VersionOf != course.Field("updatedAt"),
		course.Field("meta").Sub("level").Default.Str() != "basic", course.Field("cost").Read[0] != "staff", course.Field("title").Read != nil:
		t.Error("Course is not what its definition says")
	}
	log := r.Get("AuditLog")
	if log.Write == nil || len(log.Write) != 0 || r.Get("User").Write != nil {
		t.Error("an empty list and an absent one are not the same")
	}
	setting := r.Get("Setting")
	if !setting.Hidden || setting.Times != model.NoTimes || setting.Field("createdAt") != nil || setting.Archive.Field("createdAt") == nil || !setting.Archive.Hidden {
		t.Error("Setting is not what its definition says")
	}
	if r.Get("Nope") != nil {
		t.Error("a model that nobody defined")
	}
	if err := model.NewRegistry(model.Options{}).Register(definitions...); err == nil {
		t.Error("impl is no key of the format, and is taken")
	}
}

// TestExistingTables reads the keys of section 2.9.
func TestExistingTables(t *testing.T) {
	r := register(t, `[
		{"name":"Film","table":"public.film","key":["film_id"],"timestamps":false,"archive":false,"collation":"source","version":"rev",
			"fields":{"_id":{"type":"int","column":"film_id","strategy":"autoincrement"},"title":{"type":"string","column":"the title","required":true,"format":"line"},
			"rate":{"type":"decimal","enum":["0.99","2.99"],"default":2.99},"rev":"long","len":{"type":"int","generated":true},"raw":"bytes","at":"timestamp","on":"day","tag":"uuid"}},
		{"name":"Line","table":"line","key":["book","no"],"timestamps":false,"archive":false,"fields":{"book":"int","no":"string","text":"string"},
			"relations":{"notes":{"model":"Note","localField":["book","no"],"foreignField":["bookNo","lineNo"]}}},
		{"name":"Note","table":"note","key":[],"timestamps":false,"fields":{"bookNo":"int","lineNo":"string"}},
		{"name":"Sums","table":"sums","view":true,"fields":{"n":"int"}},
		{"name":"Peek","table":"peek","view":true,"key":["n"],"fields":{"_id":{"type":"int","column":"n"}}}]`)
	if got := strings.Join(r.Names(), " "); got != "Film Line Note Sums Peek" {
		t.Errorf("models %s: tables for reading only and archive: false have no archive", got)
	}
	film, line, note, sums, peek := r.Get("Film"), r.Get("Line"), r.Get("Note"), r.Get("Sums"), r.Get("Peek")
	switch {
	case film.ID().Column != "film_id" || film.ID().Type != model.Int || !film.ID().AutoIncrement || len(film.Key) > 1:
		t.Error("the key of Film")
	case film.VersionOf != film.Field("rev") || !film.SourceText || film.Archive != nil || film.Times != model.NoTimes || film.Table != "public.film":
		t.Error("the facts of Film")
	case film.Field("rate").Enum[1].Str() != "2.99" || film.Field("rate").Default.Str() != "2.99" || film.Field("title").Column != "the title" || !film.Field("len").Generated:
		t.Error("the fields of Film")
	case !line.Composite() || line.ID() == nil || line.ID().Column != "" || line.Key[1] != line.Field("no") || line.Relation("notes").Local[1] != "no":
		t.Error("the key of Line")
	case !note.Keyless || note.ID() != nil || !note.ReadOnly():
		t.Error("the key of Note")
	case !sums.View || !sums.Keyless || sums.Field("createdAt") != nil:
		t.Error("a view without a key")
	case !peek.ReadOnly() || peek.Keyless || peek.ID().Column != "n":
		t.Error("a view with a key")
	}
}

// TestKeyWithItsOwnField reads a table whose key column is a field of its own: _id is that column, and alone is written.
func TestKeyWithItsOwnField(t *testing.T) {
	m := register(t, `{"name":"Film","key":["film_id"],"fields":{"film_id":{"type":"int","required":true},"title":"string"}}`).Get("Film")
	id, own := m.ID(), m.Field("film_id")
	if id.Column != "film_id" || id.Type != model.Int || own == nil || !own.Generated || own.Required || m.Archive.Field("film_id") != nil || m.Archive.ID() != id {
		t.Errorf("_id %+v, film_id %+v", id, own)
	}
	a := (&model.Permission{Rules: rules(model.Open)}).For(someone("clerk"))
	if !a.ReadField(m, own) || a.WriteField(m, own, model.ActInsert) || !a.WriteField(m, id, model.ActInsert) {
		t.Error("who may use the key")
	}
}

// TestRefusedDefinitions names what is wrong, where, and what to write.
func TestRefusedDefinitions(t *testing.T) {
	for _, tt := range []struct {
		text  string
		class model.Class
		words []string
	}{
		{`{"name":"A","feilds":{"a":"string"}}`, model.BadSchema, []string{"model A", `"feilds"`, "nearest is fields", `"fields": {`}},
		{`{"name":"A","fields":{"a":{"type":"string","requierd":true}}}`, model.BadSchema, []string{"field a", `"requierd"`, `"required": true`}},
		{`{"name":"A","fields":{"a":"strnig"}}`, model.BadSchema, []string{"model A", "field a", `"strnig"`, "string"}},
		{`{"name":"A","fields":{"a":"integer"}}`, model.BadSchema, []string{"field a", "int"}},
		{`{"name":"A","fields":{"a":{"type":"object","fields":{"b":{"type":"nope"}}}}}`, model.BadSchema, []string{"field a.b"}},
		{`{"name":"A","fields":{"a":{"type":"string","read":"staff"}}}`, model.BadSchema, []string{"read", `["staff"]`}},
		{`{"name":"A","fields":{"a":{"type":"int","default":"x"}}}`, model.BadSchema, []string{"default", "integer"}},
		{`{"name":"A","fields":{"a":{"type":"string","enum":["x"],"default":"y"}}}`, model.BadSchema, []string{"default"}},
		{`{"name":"A","fields":{"a":{"type":"string","enum":[]}}}`, model.BadSchema, []string{"enum"}},
		{`{"name":"A","fields":{"a":"string"},"archive":"no"}`, model.BadSchema, []string{"archive"}},
		{`{"name":"A","fields":{"a":"string"},"x-mcp":{"hiden":true}}`, model.BadSchema, []string{"hidden"}},
		{`{"name":"A","fields":{"a":"string"},"x-mcp":{"hidden":"yes"}}`, model.BadSchema, []string{"hidden"}},
		{`{"name":"A","fields":{"a":"string"},"collation":"fr"}`, model.BadSchema, []string{"collation", "source"}},
		{`{"name":"A","fields":{"a":"string"},"replica":true}`, model.Unsupported, []string{"replica"}},
		{`{"name":"A b","fields":{"a":"string"}}`, model.BadSchema, []string{`"A b"`}},
		{`{"name":"A","fields":{"a b":"string"}}`, model.BadSchema, []string{`"a b"`, "column"}},
		{`{"name":"A","fields":{"a":"string"},"relations":{"b":{"model":"B","localField":"ab"}}}`, model.BadSchema, []string{"relation b", `"ab"`, "nearest is a"}},
		{`{"name":"A","fields":{"a":"string"},"relations":{"b":{"model":"B","localField":["_id"],"foreignField":["x","y"]}}}`, model.BadSchema, []string{"relation b", "equally many"}},
		{`{"name":"A","fields":{"a":"string"},"relations":{"b":{"model":"B"}},"computes":{"c":{"agg":{"$count":"bs"}}}}`, model.BadSchema, []string{"computed column c", "nearest is b"}},
		{`{"name":"A","fields":{"a":"string"},"computes":{"c":{"type":"int"}}}`, model.BadSchema, []string{"agg, fn or asyncFn"}},
		{`{"name":"A","fields":{"a":"string"},"computes":{"c":{"fn":true,"asyncFn":true}}}`, model.BadSchema, []string{"exclude"}},
		{`{"name":"A","fields":{"a":"string"},"computes":{"c":{"fn":true,"depends":["b"]}}}`, model.BadSchema, []string{"depends", `"b"`}},
		{`{"name":"A","fields":{"a":"string"},"relations":{"b":{"model":"B"}},"computes":{"c":{"fn":true,"depends":["b{x}"]}}}`, model.BadSchema, []string{"asyncFn"}},
		{`{"name":"A","fields":{"a":"string"},"indexes":[{"keys":{"b":1}}]}`, model.BadSchema, []string{"index 1", `"b"`}},
		{`{"name":"A","fields":{"a":"string"},"indexes":[{"keys":{"a":2}}]}`, model.BadSchema, []string{"1 or -1"}},
		{`{"name":"A","fields":{"a":"string"},"indexes":[{"keys":{"a":1},"options":{"unic":true}}]}`, model.BadSchema, []string{"unique"}},
		{`{"name":"A","fields":{"a":"string"},"indexes":["a"]}`, model.BadSchema, []string{"index 1"}},
		{`{"name":"A","fields":{"a":"string"},"idField":"b"}`, model.BadSchema, []string{"idField", `"b"`}},
		{`{"name":"A","fields":{"a":"string"},"version":"b"}`, model.BadSchema, []string{"version"}},
		{`{"name":"A","fields":{"a":"string"},"key":["b"]}`, model.BadSchema, []string{"key", `"b"`}},
		{`{"name":"A","fields":{"a":"string","b":"int"},"key":["a","a"]}`, model.BadSchema, []string{"key"}},
		{`{"name":"A","fields":{"_id":"string","b":"int","c":"int"},"key":["b","c"]}`, model.BadSchema, []string{"_id"}},
		{`{"name":"A","fields":{"__present":"string"}}`, model.BadSchema, []string{"__present"}},
		{`{"name":"A","fields":{"a":"string","b":{"type":"string","column":"a"}}}`, model.BadSchema, []string{"column", `"a"`}},
		{`{"name":"A","fields":{"_id":{"type":"string","read":["staff"]},"a":"string"}}`, model.BadSchema, []string{"_id", "read"}},
		{`{"name":"A","timestamps":false,"key":["a","b"],"fields":{"a":{"type":"string","read":["staff"]},"b":"string"}}`, model.BadSchema, []string{"field a", "read"}},
		{`{"name":"A","fields":{"createdAt":"boolean"}}`, model.BadSchema, []string{"createdAt", "timestamps"}},
		{`{"name":"A","fields":{"a":"string"},"relations":{"a":{"model":"B"}}}`, model.NameConflict, []string{`"a"`}},
		{`{"name":"A","fields":{"HTTPServer":"string","http_server":"string"}}`, model.NameConflict, []string{"HTTPServer", "http_server"}},
		{`{"name":"A","fields":{"a":"string","created_at":"number"}}`, model.NameConflict, []string{"created_at", "createdAt"}},
		{`{"name":"A","fields":{"order-total":"string","order_total":"string"}}`, model.NameConflict, []string{"order-total"}},
		{`{"name":"A","fields":{"a":"string","b":"string"},"relations":{"_id":{"model":"B","localField":"a"}}}`, model.NameConflict, []string{"_id"}},
		{`{"name":"A","table":"a","fields":{"a":{"type":"int","strategy":"autoincrement"}}}`, model.BadSchema, []string{"field a", "strategy"}},
		{`{"name":"A","key":["a","b"],"timestamps":false,"fields":{"a":"int","b":"int"},"relations":{"r":{"model":"B","foreignField":"x"}}}`, model.BadSchema, []string{"relation r", `"localField": ["a","b"]`}},
		{`{"name":"A","key":["i"],"fields":{"_id":{"type":"int","column":"i"},"i":"int"}}`, model.BadSchema, []string{"column", `"i"`}},
		{`{"name":"A","fields":{"local_field":"string"}}`, model.NameConflict, []string{"local_field"}},
		{`[{"name":"A","fields":{"a":"string"}},{"name":"ADeleted","fields":{"a":"string"}}]`, model.NameConflict, []string{"ADeleted", "archive: false"}},
		{`[{"name":"A","fields":{"a":"string"}},{"name":"A","fields":{"a":"string"}}]`, model.NameConflict, []string{"A"}},
		{`[{"name":"A","fields":{"a":"string"}},{"name":"B","collection":"A_deleted","fields":{"a":"string"}}]`, model.LocationConflict, []string{"ADeleted", "B"}},
		{`[{"name":"A","table":"t","fields":{"a":"string"}},{"name":"B","collection":"t","fields":{"a":"string"}}]`, model.LocationConflict, []string{"A", "B"}},
	} {
		t.Run(tt.text, func(t *testing.T) {
			r := register(t, `{"name":"Before","fields":{"a":"string"}}`)
			v := parse(t, tt.text)
			definitions := v.Items()
			if v.Kind() == canonjson.KindObject {
				definitions = []canonjson.Value{v}
			}
			refuse(t, r.Register(definitions...), tt.class, tt.words...)
			if got := strings.Join(r.Names(), " "); got != "Before BeforeDeleted" {
				t.Errorf("a refused batch left the models %s", got)
			}
		})
	}
}

// TestFirstErrorIsTheSame reads a definition with many mistakes often: a message that changes cannot be followed.
func TestFirstErrorIsTheSame(t *testing.T) {
	v := parse(t, `{"name":"A","description":1,"collection":2,"idPrefix":3,"idField":4,"table":5,"fields":{"a":{"type":"string","column":1,"format":2,"description":3,"required":4,"generated":5,"read":6,"write":7}}}`)
	first := model.NewRegistry(model.Options{}).Register(v).Error()
	for range 50 {
		if again := model.NewRegistry(model.Options{}).Register(v).Error(); again != first {
			t.Fatalf("%s\n%s", first, again)
		}
	}
}

// TestRegisterAgain replaces a model: its version rises, its archive follows, and models given out before stay as they are.
func TestRegisterAgain(t *testing.T) {
	r := register(t, `[{"name":"A","fields":{"a":"string"}},{"name":"B","fields":{"b":"string"}}]`)
	old := r.Get("A")
	for i, text := range []string{`{"name":"A","fields":{"a":"string","c":"int"}}`, `{"name":"A","archive":false,"fields":{"a":"string"}}`} {
		if err := r.Register(parse(t, text)); err != nil {
			t.Fatal(err)
		}
		if v := r.Get("A").Version; v != i+2 {
			t.Errorf("version %d", v)
		}
	}
	if got := strings.Join(r.Names(), " "); got != "A B BDeleted" {
		t.Errorf("models %s", got)
	}
	if old.Version != 1 || old.Field("c") != nil || r.Get("B").Version != 1 || r.Get("ADeleted") != nil {
		t.Error("what was not registered again changed")
	}
	if err := r.Register(parse(t, `{"name":"BDeleted","fields":{"b":"string"}}`)); err == nil {
		t.Error("the name of an archive was given to another model")
	}
}

// TestArchive is the model that an archive is (section 2.7).
func TestArchive(t *testing.T) {
	r := register(t, `{"name":"A","collection":"as","namespace":"n","timestamps":"s","idPrefix":"AA","read":["staff"],"write":["staff"],"fields":{"a":"string"},
		"relations":{"r":{"model":"A"}},"computes":{"n":{"agg":{"$count":"r"}}},"indexes":[{"keys":{"a":1}}],"x-graphql":{"hidden":true}}`)
	a := r.Get("ADeleted")
	switch {
	case a.Collection != "as_deleted", a.Namespace != "n", a.IDPrefix != "", len(a.Relations)+len(a.Computes) > 0, len(a.Indexes) != 1,
		!slices.Equal(a.Read, []string{"staff"}), a.Field("deletedAt").Type != model.Number, a.Field("a") == nil, a.Times == model.NoTimes, !a.Text.IsAbsent():
		t.Errorf("the archive %+v", a)
	}
	if r.Get("A").Text.Get("x-graphql").IsAbsent() {
		t.Error("a sister key is lost")
	}
}

// TestOptions reads with a prefix, leniently, and with keys that a caller names.
func TestOptions(t *testing.T) {
	text := parse(t, `{"name":"A","odd":1,"fields":{"a":{"type":"string","odd":1}},"relations":{"b":{"model":"B"}}}`)
	refuse(t, model.NewRegistry(model.Options{}).Register(text), model.BadSchema, "odd")
	refuse(t, model.NewRegistry(model.Options{Also: []string{"other"}}).Register(text), model.BadSchema, "odd")
	for _, o := range []model.Options{{Lenient: true}, {Also: []string{"odd"}}, {Lenient: true, Prefix: "X_"}} {
		r := model.NewRegistry(o)
		if err := r.Register(text); err != nil {
			t.Fatal(err)
		}
		m := r.Get(o.Prefix + "A")
		if m == nil || m.Text.Get("odd").IsAbsent() || m.Collection != "A" || m.Relation("b").Model != o.Prefix+"B" {
			t.Errorf("%+v: %+v", o, m)
		}
	}
}

// TestTriggers reads triggers (section 17). Nothing runs them.
func TestTriggers(t *testing.T) {
	trigger := func(text string) error {
		v := parse(t, `{"name":"A","fields":{"a":"string","b":"int"},"triggers":`+text+`}`)
		r := model.NewRegistry(model.Options{})
		err := r.Register(v)
		if err == nil && len(r.Get("A").Triggers) != 1 {
			t.Errorf("%s: %d triggers", text, len(r.Get("A").Triggers))
		}
		return err
	}
	for _, good := range []string{
		`{"insert":[{"into":"Log","op":"insert","data":{"id":"{{root._id}}","at":"{{now}}"},"name":"note"}]}`,
		`{"update":[{"into":"Log","op":"update","data":{"x":1},"condition":{"id":"{{before._id}}"},"onFields":["a","b"],"when":{"and":[{"ne":["{{root.b}}",1]},{"not":{"in":["{{root.a}}",["x"]]}}]}}]}`,
		`{"remove":[{"into":"Log","op":"remove","condition":{"id":"{{before._id}}"}}]}`,
		`{"schedule":[{"fnRef":"tidy","args":{"at":"{{now}}"},"cron":"0 3 */2 1-5 0,6"}]}`,
	} {
		if err := trigger(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, words := range map[string]string{
		`{"upsert":[]}`:   "upsert",
		`{"insert":{}}`:   "list",
		`{"insert":[5]}`:  "object",
		`{"insert":[{}]}`: "fnRef",
		`{"insert":[{"into":"L","op":"insert","data":{},"fnRef":"f"}]}`:       "either",
		`{"insert":[{"into":"L","op":"upsert","data":{}}]}`:                   "insert, update or remove",
		`{"insert":[{"into":"L","op":"update","data":{}}]}`:                   "condition",
		`{"insert":[{"into":"L","op":"remove","data":{},"condition":{}}]}`:    "no data",
		`{"insert":[{"fnRef":"f","cascade":true}]}`:                           "cascade",
		`{"insert":[{"fnRef":"f","cron":"0 3 * * *"}]}`:                       "cron",
		`{"insert":[{"fnRef":"f","onFields":["a"]}]}`:                         "onFields",
		`{"update":[{"fnRef":"f","onFields":["c"]}]}`:                         `"c"`,
		`{"schedule":[{"fnRef":"f"}]}`:                                        "cron",
		`{"schedule":[{"fnRef":"f","cron":"0 3 * *"}]}`:                       "five",
		`{"schedule":[{"fnRef":"f","cron":"0 3 * * MON"}]}`:                   "cron",
		`{"schedule":[{"fnRef":"f","cron":"0 3 * * *","args":"{{root.a}}"}]}`: "ERR_TRIGGER_PLACEHOLDER:",
		`{"insert":[{"fnRef":"f","args":"at {{now}}"}]}`:                      "ERR_TRIGGER_PLACEHOLDER:",
		`{"insert":[{"fnRef":"f","args":["{{later}}"]}]}`:                     "ERR_TRIGGER_PLACEHOLDER:",
		`{"insert":[{"fnRef":5}]}`:                                            "ERR_TRIGGER_FN_REF:",
		`{"insert":[{"fnRef":"f","when":{"eq":[1]}}]}`:                        "ERR_TRIGGER_WHEN:",
		`{"insert":[{"fnRef":"f","when":{"eq":[1,2],"ne":[1,2]}}]}`:           "ERR_TRIGGER_WHEN:",
		`{"insert":[{"fnRef":"f","when":{"or":[{"like":[1,2]}]}}]}`:           "ERR_TRIGGER_WHEN:",
	} {
		refuse(t, trigger(bad), model.BadSchema, words, "model A")
	}
}

// TestWords splits names into words (section 18.1).
func TestWords(t *testing.T) {
	for name, want := range map[string]string{
		"HTTPServer": "http server", "userID": "user id", "order2Items": "order2 items", "order_total": "order total", "order-total.x y": "order total x y",
		"_id": "id", "": "", "ABC": "abc", "aB": "a b", "A": "a",
	} {
		if got := strings.Join(model.Words(name), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestNearest finds what a name may have been meant for.
func TestNearest(t *testing.T) {
	names := []string{"title", "status", "teacherId", "price", "publishedAt"}
	for name, want := range map[string]string{
		"titel": "title", "Title": "title", "teacher_id": "teacherId", "prices": "price", "zzzzzz": "", "": "", strings.Repeat("title", 100): "",
	} {
		if got := strings.Join(model.Nearest(name, names), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := model.Nearest("a", []string{"b", "c", "d", "e", "f"}); len(got) > 3 {
		t.Errorf("%d names", len(got))
	}
}

// TestQuote hides nothing from a reader of a message, and repeats little.
func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"plain":                  `"plain"`,
		"a\nb\x00":               `"a\u{000a}b\u{0000}"`,
		"a\u202eb\u200b":         `"a\u{202e}b\u{200b}"`,
		`say "x" \`:              `"say \"x\" \\"`,
		"\U000e0041":             `"\u{e0041}"`,
		"bad \xff":               `"bad \u{fffd}"`,
		strings.Repeat("é", 100): `"` + strings.Repeat("é", 64) + `..."`,
	} {
		if got := model.Quote(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

// FuzzRegister reads anything: it is refused with a class, or it is registered whole.
func FuzzRegister(f *testing.F) {
	for _, v := range append(golden(f, "schema.json").Items(), golden(f, "cases-schema.json").Items()...) {
		if defns := v.Get("defns"); !defns.IsAbsent() {
			v = defns
		}
		f.Add([]byte(v.String()))
	}
	f.Add([]byte(`{"name":"A","key":["a","b"],"fields":{"a":"int","b":{"type":"object","default":{"x":1,"x":2},"fields":{"x":"long"}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, _, err := canonjson.Parse(text, canonjson.Limits{}) // with its flaws: no tree may make it panic
		if err != nil {
			return
		}
		definitions := v.Items()
		if v.Kind() != canonjson.KindArray {
			definitions = []canonjson.Value{v}
		}
		for _, o := range []model.Options{{}, {Lenient: true}} {
			r := model.NewRegistry(o)
			err := r.Register(definitions...)
			var e *model.Error
			if err != nil && (!errors.As(err, &e) || len(r.Names()) > 0) {
				t.Fatalf("%v, models %v", err, r.Names())
			}
			for _, m := range r.List() {
				if m.ID() == nil && !m.Keyless || m.ReadOnly() && m.Archive != nil {
					t.Fatalf("%s: %+v", text, m)
				}
			}
		}
	})
}
