package tools_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/tools"
)

// The golden cases of the tools, read in the sources of the reference (models, section 23). A case calls one tool; what
// it must give stands in "expect", or in "want" where a defect is noted.

// fixtureDir holds the golden data of all of models.
var fixtureDir = filepath.Join("..", "engine", "testdata")

// waiting are cases of features that are specified and not part of this version, with the reason.
var waiting = map[string]string{
	"m100": "ask, and so a language model at start", "m102": "ask", "m103": "ask", "m104": "ask", "m105": "ask",
}

// decided are the cases with a defect whose wanted outcome is told in words: the form of it.
var decided = map[string]string{
	"m025": `{"isError":true,"code":"planError","messageHas":["ERR_UNKNOWN_MODEL:","Setting"],"textLacks":["theme"]}`,
}

// fixtures are the definitions and rows that cases are about, in a database that is made anew for each case that writes.
type fixtures struct {
	schema, seed string
	ddl          []string // nil: what the definitions ask for
	shared       *rig
}

// goldenFixtures are those of the golden data: their tables are as the reference made them.
func goldenFixtures(t *testing.T) *fixtures {
	f := &fixtures{schema: filepath.Join(fixtureDir, "schema.json"), seed: filepath.Join(fixtureDir, "seed.json")}
	for _, file := range []string{"ddl.sqlite.sql", "json-columns.sqlite.sql"} {
		text, err := os.ReadFile(filepath.Join(fixtureDir, file))
		if err != nil {
			t.Fatal(err)
		}
		for statement := range strings.SplitSeq(string(text), ";") {
			if strings.TrimSpace(statement) != "" {
				f.ddl = append(f.ddl, statement)
			}
		}
	}
	return f
}

// world gives a rig with the rows as they were seeded; write tells that the caller may change them.
func (f *fixtures) world(t *testing.T, write bool) *rig {
	t.Helper()
	if !write && f.shared != nil {
		return f.shared
	}
	registry, row := schema(t, f.schema)
	r := newRig(t, setup{registry: registry, ddl: f.ddl, rules: model.Open, functions: engine.Functions{Row: row}, context: given})
	for _, rows := range readJSON(t, f.seed).Members() {
		r.insert(t, rows.Name, string(rows.Value.AppendJSON(nil)))
	}
	return r
}

// given is the context of a case: nobody has none.
func given(_ context.Context, who *identity.Principal) (*model.Context, error) {
	if who.Subject == "user:nobody" {
		return nil, nil
	}
	return &model.Context{UserID: who.UserID(), Roles: who.Roles}, nil
}

// caller is the principal that a case's context describes.
func caller(ctx canonjson.Value) *identity.Principal {
	if ctx.Kind() != canonjson.KindObject {
		return as("nobody")
	}
	var roles []string
	for _, r := range ctx.Get("roles").Items() {
		roles = append(roles, r.Str())
	}
	return as(ctx.Get("userId").Str(), roles...)
}

func TestGoldenMCP(t *testing.T) {
	f := goldenFixtures(t)
	f.shared = f.world(t, false)
	ours := map[string]canonjson.Value{}
	for _, c := range readJSON(t, filepath.Join(fixtureDir, "cases-mcp.json")).Items() {
		id := c.Get("id").Str()
		ours[id] = c
		if why := waiting[id]; why != "" {
			t.Logf("%s waits for %s", id, why)
			continue
		}
		t.Run(id, func(t *testing.T) { f.run(t, c) })
	}
	t.Log("of m000, the place of ask in the listing waits for ask")
	runExtra(t, f, ours)
}

// run runs one case.
func (f *fixtures) run(t *testing.T, c canonjson.Value) {
	switch {
	case !c.Get("list").IsAbsent():
		f.runList(t, c)
	case c.Get("expect").Get("startError").Bool():
		runStart(t, c)
	case !c.Get("steps").IsAbsent():
		r := f.world(t, true)
		for _, step := range c.Get("steps").Items() {
			if step.Get("ctx").IsAbsent() {
				step = canonjson.Object(append(slices.Clone(step.Members()), canonjson.M("ctx", c.Get("ctx")))...)
			}
			runCall(t, r, step)
		}
	default:
		runCall(t, f.world(t, writes.MatchString(c.Get("tool").Str())), c)
	}
}

// writes are the tools that change rows.
var writes = regexp.MustCompile(`^(model_)?(create|update|delete)(_|$)`)

// runList holds the listing: its order, what is hidden, and which names are archives.
func (f *fixtures) runList(t *testing.T, c canonjson.Value) {
	r := f.world(t, false)
	want := texts(c.Get("list"))
	if got := r.names(t, as("root", "admin")); !slices.Equal(got, want) {
		t.Errorf("listed are\n%s, want\n%s", got, want)
	}
	for _, hidden := range texts(c.Get("hidden")) {
		if r.registry.Get(hidden) == nil {
			t.Errorf("%s is no model at all, so that nothing is shown by its absence", hidden)
		}
		if slices.ContainsFunc(r.names(t, as("root", "admin")), func(name string) bool { return strings.HasSuffix(name, "_"+hidden) }) {
			t.Errorf("%s is listed", hidden)
		}
	}
	filter := c.Get("archiveFilter")
	if got, want := tools.Listed(texts(filter.Get("input"))), texts(filter.Get("output")); !slices.Equal(got, want) {
		t.Errorf("the archive filter gives %s, want %s", got, want)
	}
}

// runStart holds that options that exclude each other are refused at assembly, and that it was for them.
func runStart(t *testing.T, c canonjson.Value) {
	if c.Get("opts").Get("ctx").IsAbsent() || !c.Get("opts").Get("ctxFromRequest").Bool() {
		t.Fatalf("nothing is known of the options %v", c.Get("opts"))
	}
	open := func(m tabellion.Models) error {
		cfg := tabellion.DefaultConfig()
		cfg.Data, cfg.Models = filepath.Join(t.TempDir(), "data"), configured(t)
		s, err := tabellion.OpenWith(t.Context(), cfg, tabellion.Options{Models: m})
		if err == nil {
			_ = s.Close(context.Background())
		}
		return err
	}
	hook := func(context.Context, tabellion.Caller) (*model.Context, error) { return nil, nil }
	if err := open(tabellion.Models{Context: &model.Context{}, ContextFor: hook}); err == nil || !strings.Contains(err.Error(), "exclude each other") {
		t.Errorf("both contexts: %v", err)
	}
	for name, m := range map[string]tabellion.Models{"fixed": {Context: &model.Context{}}, "hook": {ContextFor: hook}} {
		if err := open(m); err != nil {
			t.Errorf("the %s context alone: %v", name, err)
		}
	}
}

// runCall makes the call of a case and compares.
func runCall(t *testing.T, r *rig, c canonjson.Value) {
	t.Helper()
	tool, arguments := c.Get("tool").Str(), c.Get("args")
	if arguments.IsAbsent() {
		arguments = canonjson.Object()
	}
	a := r.call(t, caller(c.Get("ctx")), tool, string(arguments.AppendJSON(nil)))
	expect := c.Get("expect")
	if form := decided[c.Get("id").Str()]; form != "" {
		expect = parse(t, form)
	} else if want := c.Get("want"); !want.IsAbsent() {
		expect = want
	} else if !c.Get("defect").IsAbsent() {
		t.Fatalf("a defect whose wanted outcome is told in words alone: %s", c.Get("defect").Str())
	}
	for _, m := range expect.Members() {
		if why := a.misses(t, r, m.Name, m.Value); why != "" {
			t.Errorf("%s %v: %s: %s", tool, arguments, m.Name, why)
		}
	}
	if fails := expect.Get("isError").Bool() || !expect.Get("rpcError").IsAbsent(); fails != a.isError {
		t.Errorf("%s %v: failed is %t: %s %d %s", tool, arguments, a.isError, a.code, a.rpc, a.message)
	}
}

// misses tells how an answer is not what a member of "expect" says.
func (a answer) misses(t *testing.T, r *rig, name string, want canonjson.Value) string {
	t.Helper()
	switch name {
	case "isError":
		return unless(a.isError == want.Bool() && a.rpc == 0, "%t, rpc %d", a.isError, a.rpc)
	case "code":
		return unless(a.code == want.Str(), "%q: %s", a.code, a.message)
	case "rpcError":
		n, _ := want.Int()
		return unless(int64(a.rpc) == n, "%d: %s", a.rpc, a.message)
	case "messageHas":
		return lacks(a.message, texts(want))
	case "json":
		return unless(fills(a.text, want, true), "got %v", a.text)
	case "jsonHas":
		return unless(fills(a.text, want, false), "got %v", a.text)
	case "jsonModel":
		return unless(slices.ContainsFunc(a.text.Items(), func(v canonjson.Value) bool { return describes(v, want) }), "got %v", a.text)
	case "jsonLacks", "textLacks":
		for _, word := range texts(want) {
			if strings.Contains(a.text.String(), word) {
				return "it holds " + word
			}
		}
		return ""
	case "sentGql":
		return unless(r.engine.gql == want.Str(), "got %q", r.engine.gql)
	case "sentParams":
		return unless(r.engine.params.Equal(want), "got %v", r.engine.params)
	}
	return "nothing is known of this member"
}

// ours are the members that descriptions have beside those of the source document (models, section 20).
var ours = []string{"description", "details", "key", "unique", "collation"}

// describes compares a description with what the source document has of it.
func describes(v, want canonjson.Value) bool {
	if v.Get("fields").Kind() == canonjson.KindArray {
		return v.Equal(want)
	}
	return v.Without(ours...).Equal(want)
}

// fills tells whether got is want; with whole, without any further member. "$ts" is a time of now and "$id:XX" an id that
// was made.
func fills(got, want canonjson.Value, whole bool) bool {
	switch want.Kind() {
	case canonjson.KindString:
		if want.Str() == "$ts" {
			n, ok := got.Int()
			d := time.Since(time.UnixMilli(n))
			return ok && d > -time.Minute && d < 10*time.Minute
		}
		if prefix, made := strings.CutPrefix(want.Str(), "$id:"); made {
			return strings.HasPrefix(got.Str(), prefix) && len(got.Str()) == len(prefix)+16
		}
	case canonjson.KindObject:
		if got.Kind() != canonjson.KindObject || whole && got.Len() != want.Len() {
			return false
		}
		return !slices.ContainsFunc(want.Members(), func(m canonjson.Member) bool { return !fills(got.Get(m.Name), m.Value, whole) })
	case canonjson.KindArray:
		items := got.Items()
		if got.Kind() != canonjson.KindArray || len(items) != want.Len() {
			return false
		}
		for i, w := range want.Items() {
			if !fills(items[i], w, whole) {
				return false
			}
		}
		return true
	}
	return got.Equal(want)
}

// unless words a difference, where there is one.
func unless(same bool, format string, args ...any) string {
	if same {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// lacks names the first word that a message has not.
func lacks(message string, words []string) string {
	for _, w := range words {
		if !strings.Contains(message, w) {
			return fmt.Sprintf("no %q in %q", w, message)
		}
	}
	return ""
}

// texts are the strings of an array.
func texts(v canonjson.Value) []string {
	out := []string{}
	for _, item := range v.Items() {
		out = append(out, item.Str())
	}
	return out
}

// runExtra runs further cases that call tools, from the folder models of TABELLION_EXTRA_FIXTURES, on its own definitions
// and rows where it has some. Cases that are ours are judged as ours; the others must come out as they say.
func runExtra(t *testing.T, f *fixtures, ours map[string]canonjson.Value) {
	root := os.Getenv("TABELLION_EXTRA_FIXTURES")
	if root == "" {
		return
	}
	dir := filepath.Join(root, "models")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("TABELLION_EXTRA_FIXTURES: there is no file in %s: %v", dir, err)
	}
	f = f.in(t, dir)
	for _, file := range files {
		for _, c := range readJSON(t, file).Items() {
			id := c.Get("id").Str()
			if !calls(c) {
				continue
			}
			t.Run("extra/"+filepath.Base(file)+"/"+id, func(t *testing.T) {
				same := c.Equal(ours[id])
				switch {
				case same && waiting[id] != "":
					t.Skip("NOT RUN: waits for " + waiting[id])
				case !same && (!c.Get("llmAnswers").IsAbsent() || c.Get("tool").Str() == "ask"):
					t.Skip("NOT RUN: waits for ask")
				case !same && wordsOnly(c):
					t.Skip("NOT COMPARED: the recorded outcome is a defect, and what to build is told in words")
				}
				f.run(t, c)
			})
		}
	}
}

// wordsOnly tells whether a case says only in words what to build.
func wordsOnly(c canonjson.Value) bool {
	want := c.Get("want")
	return want.IsAbsent() && !c.Get("defect").IsAbsent() || want.Len() == 1 && !want.Get("note").IsAbsent()
}

// calls tells whether a case is one of tools.
func calls(c canonjson.Value) bool {
	if c.Kind() != canonjson.KindObject {
		return false
	}
	for _, step := range c.Get("steps").Items() {
		if !step.Get("tool").IsAbsent() {
			return true
		}
	}
	return !c.Get("tool").IsAbsent() || !c.Get("list").IsAbsent() || !c.Get("opts").IsAbsent() || !c.Get("llmAnswers").IsAbsent()
}

// in are the fixtures of a folder: f itself where it has neither definitions nor rows.
func (f *fixtures) in(t *testing.T, dir string) *fixtures {
	has := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	if !has("schema.json") && !has("seed.json") {
		return f
	}
	out := &fixtures{schema: f.schema, seed: f.seed}
	if has("schema.json") {
		out.schema = filepath.Join(dir, "schema.json")
	}
	if has("seed.json") {
		out.seed = filepath.Join(dir, "seed.json")
	}
	out.shared = out.world(t, false)
	return out
}

// schema registers the fixtures' definitions, and makes the functions that "impl" describes, which is test data and no
// part of a definition.
func schema(t *testing.T, file string) (*model.Registry, map[string]func(map[string]any) (any, error)) {
	t.Helper()
	row := map[string]func(map[string]any) (any, error){}
	var definitions []canonjson.Value
	for _, d := range readJSON(t, file).Items() {
		var computes []canonjson.Member
		for _, c := range d.Get("computes").Members() {
			if impl := c.Value.Get("impl"); !impl.IsAbsent() {
				row[d.Get("name").Str()+"."+c.Name] = implementation(impl)
			}
			computes = append(computes, canonjson.M(c.Name, c.Value.Without("impl")))
		}
		if computes != nil {
			d = canonjson.Object(append(d.Without("computes").Members(), canonjson.M("computes", canonjson.Object(computes...)))...)
		}
		definitions = append(definitions, d)
	}
	r := model.NewRegistry(model.Options{})
	if err := r.Register(definitions...); err != nil {
		t.Fatal(err)
	}
	return r, row
}

// implementation is a function of the fixtures.
func implementation(impl canonjson.Value) func(map[string]any) (any, error) {
	field := impl.Get("field").Str()
	text := func(v any) string { s, _ := v.(string); return s }
	return func(doc map[string]any) (any, error) {
		switch kind := impl.Get("kind").Str(); kind {
		case "upper":
			return strings.ToUpper(text(doc[field])), nil
		case "mul":
			n, ok := doc[field].(float64)
			if !ok {
				return nil, nil
			}
			return n * impl.Get("by").Float(), nil
		case "concat":
			var parts []string
			for _, f := range impl.Get("fields").Items() {
				parts = append(parts, text(doc[f.Str()]))
			}
			return strings.Join(parts, impl.Get("sep").Str()), nil
		case "gte":
			n, _ := doc[field].(int64)
			return float64(n) >= impl.Get("value").Float(), nil
		default:
			return nil, fmt.Errorf("no implementation %q", kind)
		}
	}
}
