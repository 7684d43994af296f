package gql_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// TestParse holds what the grammar takes, by the plain form that it means.
func TestParse(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a model alone", "Course", "Course"},
		{"empty parentheses", "Course()", "Course"},
		{"an empty block", "Course { }", "Course"},
		{"fields", "Course{title code}", "Course { title, code }"},
		{"commas repeat and trail", "Course{,title,,code,}", "Course { title, code }"},
		{"arguments without commas", "Course($condition:@c0 $limit:@l,,$sort:@s,){title}", "Course($condition: @c0, $sort: @s, $limit: @l) { title }"},
		{"the dollar is optional", "Course(condition:@c0){title}", "Course($condition: @c0) { title }"},
		{"the last of two wins", "Course($limit:@a,limit:@b)", "Course($limit: @b)"},
		{"the arrow after arguments", "Course($limit: @l) -> { title }", "Course($limit: @l) { title }"},
		{"the arrow after the name", "Course->{title}", "Course { title }"},
		{"a relation by its block", "Course{lessons{title}}", "Course { lessons { title } }"},
		{"a relation by its parentheses", "Course{lessons()}", "Course { lessons() }"},
		{"a relation by an empty block", "Course{lessons{}}", "Course { lessons() }"},
		{"a relation with arguments", "Course{lessons($skip:@k $limit:@l)}", "Course { lessons($skip: @k, $limit: @l) }"},
		{"deeper", "A{b($sort:@s){c{d{e}}}f}", "A { b($sort: @s) { c { d { e } } }, f }"},
		{"a dotted path", "Course{meta.level}", "Course { meta.level }"},
		{"a group", "Course($group:@g,$having:@h){status,n}", "Course($group: @g, $having: @h) { status, n }"},
		{"a pipeline is read, and refused later", "Course($pipeline:@p){a($pipeline:@q)}", "Course($pipeline: @p) { a($pipeline: @q) }"},
		{"white space", "\r\n\tCourse\n{\n}\n", "Course"},
		{"a reference of digits", "Course($limit:@0)", "Course($limit: @0)"},
		{"the same reference twice", "Course($skip:@n,$limit:@n)", "Course($skip: @n, $limit: @n)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, err := gql.Parse(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := q.String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestParseRefuses holds what the grammar does not take: where, what was expected, what stood there.
func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", []string{"line 1, column 1", "the name of a model", "the end of the text"}},
		{"spaces", " \n ", []string{"line 2, column 2"}},
		{"an open parenthesis", "Course(", []string{"column 8", "the end of the text"}},
		{"a parenthesis that does not close", "Course($condition:@c0 { title }", []string{"column 23", `"{"`}},
		{"a block that does not close", "Course { title", []string{"column 15", "the end of the text"}},
		{"a literal", "Course($limit:2){ title }", []string{"column 15", `"2"`, `{"l": 10}`}},
		{"a negative literal", "Course($limit:-2){ title }", []string{"column 15", `"-"`}},
		{"an alias", "Course { alias: title }", []string{"column 15", `":"`}},
		{"no model", "{ title }", []string{"column 1", `"{"`}},
		{"a reference as the model", "@c0 { title }", []string{"column 1", `"@c0"`}},
		{"an argument without a value", "Course($condition){ title }", []string{"column 18", `")"`}},
		{"arguments without a name", "Course{ (x) }", []string{"column 9", `"("`}},
		{"a wildcard", "Course { * }", []string{"column 10", `"*"`, "Model { field, otherField }"}},
		{"more after the block", "Course { title } extra { foo }", []string{"column 18", "the end of the query", `"extra"`}},
		{"a comma after the block", "Course { title },", []string{"column 17"}},
		{"a comment", "# Course{title}", []string{"column 1", `"#"`}},
		{"a string", `Course{"title"}`, []string{"column 8"}},
		{"an unknown argument", "Course($foo:@c0){ title }", []string{"column 8", `"$foo"`, "$condition"}},
		{"an argument in other letters", "Course($Limit:@l)", []string{`"$Limit"`}},
		{"two dollars", "Course($$limit:@l)", []string{`"$$limit"`}},
		{"a bare word as a value", "Course($condition:xc0){ title }", []string{"column 19", `"xc0"`}},
		{"two arrows", "Course -> -> { title }", []string{"column 11", `"->"`}},
		{"an arrow to nothing", "Course ->", []string{"column 10"}},
		{"an arrow before the arguments", "Course -> ($limit:@l) { title }", []string{"column 11"}},
		{"an arrow in a relation", "Course { lessons -> { title } }", []string{"column 18", `"->"`}},
		{"an arrow after the block", "Course { title } ->", []string{"column 18"}},
		{"half an arrow", "Course - > { title }", []string{"column 8", `"-"`}},
		{"a group in a relation", "Course { lessons($group:@g){ n } }", []string{"column 18", "$group"}},
		{"having in a relation", "Course { lessons(having:@g){ n } }", []string{"column 18", `"having"`}},
		{"two blocks", "Course { title } { code }", []string{"column 18"}},
		{"two arguments lists", "Course()()", []string{"column 9"}},
		{"an empty reference", "Course($limit:@)", []string{"column 15", "the name of a parameter"}},
		{"a path as a reference", "Course($limit:@a.b)", []string{"column 17", `"."`}},
		{"a dollar in a reference", "Course($limit:@a$b)", []string{"column 17"}},
		{"letters beyond ASCII", "Course { title, größe }", []string{"column 19", `"ö"`}},
		{"a no-break space", "Course\u00a0{ title }", []string{"column 7"}},
		{"a byte order mark", "\ufeffCourse", []string{"column 1"}},
		{"a zero byte", "Course{\x00}", []string{"column 8"}},
		{"a bad byte", "Course{\xff}", []string{"column 8"}},
		{"a column counts characters", "Course { é", []string{"column 10"}},
		{"lines count", "Course {\n title\n *\n}", []string{"line 3, column 2"}},
		{"a digit first", "Course { 1st }", []string{"column 10"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := gql.Parse(tt.text)
			wantError(t, err, model.Parse, tt.want...)
			if !strings.HasPrefix(err.Error(), "ERR_GQL_PARSE: ") || !strings.Contains(err.Error(), "Write for example: ") {
				t.Errorf("the message has no prefix or no example: %v", err)
			}
			example := err.Error()[strings.Index(err.Error(), "Write for example: ")+len("Write for example: "):]
			example, _, _ = strings.Cut(example, " with params")
			if _, err := gql.Parse(example); err != nil {
				t.Errorf("the corrected example is wrong itself: %v", err)
			}
		})
	}
}

// TestParseBounds holds the bounds of the text and of the nesting.
func TestParseBounds(t *testing.T) {
	nested := func(n int) string { return "A" + strings.Repeat("{b", n) + strings.Repeat("}", n) }
	if _, err := gql.Parse(nested(64)); err != nil {
		t.Errorf("64 levels: %v", err)
	}
	_, err := gql.Parse(nested(65))
	wantError(t, err, model.Parse, "64 deep")
	_, err = gql.Parse(nested(20_000))
	wantError(t, err, model.Parse, "64 deep")

	whole := "A{" + strings.Repeat("a ", gql.MaxText/2-2) + "}"
	if _, err := gql.Parse(whole); err != nil {
		t.Errorf("%d bytes: %v", len(whole), err)
	}
	_, err = gql.Parse(strings.Repeat(" ", gql.MaxText) + "A")
	wantError(t, err, model.Limit, "65536")
	_, err = gql.Parse("A{" + strings.Repeat("x", gql.MaxText-2))
	wantError(t, err, model.Parse)
	if n := len(err.Error()); n > 600 {
		t.Errorf("the message quotes %d bytes", n)
	}
}

// TestErrorQuotesLittle holds that a message never repeats much of the text.
func TestErrorQuotesLittle(t *testing.T) {
	_, err := gql.Parse("Course { title } " + strings.Repeat("x", 5000))
	wantError(t, err, model.Parse)
	if strings.Contains(err.Error(), strings.Repeat("x", 65)) {
		t.Errorf("the message repeats more than 64 characters: %v", err)
	}
}

// TestBind holds how parameters are resolved.
func TestBind(t *testing.T) {
	q, err := gql.Parse("Course($condition:@c,$sort:@s,$limit:@l){ title, lessons($skip:@k,$sort:@s){ x } }")
	if err != nil {
		t.Fatal(err)
	}
	b, err := q.Bind(jsonValue(t, `{"s": {"z": 1, "a": -1}, "c": null, "l": 2, "k": null, "unused": 5}`))
	if err != nil {
		t.Fatal(err)
	}
	if !b.Values.Condition.IsAbsent() || !b.Items[1].Values.Skip.IsAbsent() {
		t.Error("null is not as if the argument were not written")
	}
	for _, v := range []canonjson.Value{b.Values.Sort, b.Items[1].Values.Sort} {
		if got := string(v.AppendJSON(nil)); got != `{"z":1,"a":-1}` {
			t.Errorf("sort: got %s, the order of keys is lost", got)
		}
	}
	if n, _ := b.Values.Limit.Int(); n != 2 || b.Items[0].Called || !b.Items[1].Called {
		t.Errorf("got %+v", b)
	}
}

// TestBindRefuses holds the faults of parameters.
func TestBindRefuses(t *testing.T) {
	q, err := gql.Parse("Course($limit:@l){ lessons($sort:@s){ x } }")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, params string
		class        model.Class
		want         []string
	}{
		{"none", "", model.MissingParam, []string{`"@l"`, "params is empty"}},
		{"null", "null", model.MissingParam, []string{`"@l"`}},
		{"one missing deep inside", `{"l": 1, "x": 2}`, model.MissingParam, []string{`"@s"`, `"l", "x"`}},
		{"an array", `[]`, model.MissingParam, []string{"array"}},
		{"a text", `"l"`, model.MissingParam, []string{"string"}},
		{"too many bytes", `{"l": "` + strings.Repeat("x", gql.MaxParams) + `", "s": 1}`, model.Limit, []string{"1048576"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := q.Bind(jsonValue(t, tt.params))
			wantError(t, err, tt.class, tt.want...)
		})
	}
	bare, _ := gql.Parse("Course { title }")
	if _, err := bare.Bind(canonjson.Value{}); err != nil {
		t.Errorf("no references, no params: %v", err)
	}
}

// TestRelations holds the paths that a first look sees.
func TestRelations(t *testing.T) {
	q, err := gql.Parse("Course { title, lessons { assets { kind }, x }, teacher() }")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"Course"}, {"Course", "lessons"}, {"Course", "lessons", "assets"}, {"Course", "teacher"}}
	if diff := cmp.Diff(want, q.Relations()); diff != "" {
		t.Error(diff)
	}
}

// jsonValue parses a test's JSON; "" is Absent.
func jsonValue(t *testing.T, text string) canonjson.Value {
	t.Helper()
	if text == "" {
		return canonjson.Value{}
	}
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wantError checks the class of an error and words that its message must contain.
func wantError(t *testing.T, err error, class model.Class, words ...string) {
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
