package tools_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
	"github.com/tabellion-mcp/tabellion/model/tools"
)

// books are two models with everything that a call can meet: a version, an enum, a computed column, a link.
const books = `[
 {"name":"Book","timestamps":false,"version":"edition","fields":{
   "_id":"string","title":{"type":"string","required":true},"price":"float","edition":"int","code":"string","shelf":{"type":"string","enum":["a","b"]},"tags":"array"},
  "relations":{"loans":{"model":"Loan","foreignField":"bookId"}},
  "computes":{"loanCount":{"agg":{"$count":"loans"},"type":"int"},"loud":{"type":"string","fn":true,"depends":["title"]}},
  "indexes":[{"keys":{"code":1},"options":{"unique":true}}],"read":["clerk"],"write":["clerk"]},
 {"name":"Loan","fields":{"_id":"int","bookId":"string","days":"int","createdBy":"string"},"read":["clerk"],"write":["clerk"],"archive":false}
]`

// loud is the function of a computed column.
var loud = engine.Functions{Row: map[string]func(map[string]any) (any, error){
	"Book.loud": func(doc map[string]any) (any, error) { s, _ := doc["title"].(string); return strings.ToUpper(s), nil },
}}

// clerk may read and write all books.
var clerk = as("cleo", "clerk")

// library is a rig with some books.
func library(t *testing.T, s setup) *rig {
	t.Helper()
	s.definitions, s.functions = books, loud
	r := newRig(t, s)
	r.insert(t, "Book", `[{"_id":"b1","title":"One","price":1.5,"edition":1,"code":"x","tags":["t"]},{"_id":"b2","title":"Two","price":2,"edition":1,"code":"y"},{"_id":"b3","title":"Three"}]`)
	r.insert(t, "Loan", `[{"_id":1,"bookId":"b1","days":3},{"_id":2,"bookId":"b1","days":4},{"_id":3,"bookId":"b2","days":5}]`)
	return r
}

// reading are calls of every operation that is declared read-only.
func reading(surface tools.Surface) map[string][]string {
	calls := map[string][]string{
		"query":            {`{"gql":"Book { title, loanCount, loud, loans { days } }"}`, `{"gql":"Book($group: @g) { shelf, n }","params":{"g":{"by":["shelf"],"agg":{"n":{"$count":"*"}}}}}`, `{"gql":"Nope { a }"}`, `{"gql":"Book("}`},
		"describe_schemas": {`{}`},
	}
	if surface == tools.Generic {
		calls["get"] = []string{`{"model":"Book","id":"b1"}`, `{"model":"Book","id":"zz"}`, `{"model":"Loan","id":1,"select":"days"}`, `{"model":"Nope","id":"1"}`}
		calls["list"] = []string{
			`{"model":"Book"}`, `{"model":"Book","condition":{"price":{"$gt":1}},"sort":{"price":-1},"select":"title, loans { days }","limit":1}`,
			`{"model":"Book","condition":{"nope":1}}`, `{"model":"Book","select":"title } x { y"}`,
		}
		return calls
	}
	calls["get_Book"] = []string{`{"id":"b1"}`, `{"id":"zz"}`, `{"id":7}`}
	calls["get_Loan"] = []string{`{"id":1}`, `{"id":"2"}`, `{"id":9}`, `{"id":"x"}`}
	calls["list_Book"] = []string{
		`{}`, `{"limit":1}`, `{"q":"($group: @g) { title }","params":{"g":{"by":[],"agg":{"title":{"$count":"*"}}}}}`, `{"q":"($group: @g) { shelf, edition }","params":{"g":{"by":["shelf"],"agg":{"edition":{"$avg":"edition"}}}}}`,
		`{"q":"{ nope }"}`, `{"params":[1]}`, `{"q":"{ title, loans { days } }","limit":2}`, `{"cursor":"nonsense"}`,
	}
	calls["list_Loan"] = []string{`{}`, `{"q":"($sort: @s, $limit: @l) { days }","params":{"s":{"days":-1},"l":2}}`}
	return calls
}

// Operations that are declared read-only ask a source for reads alone, and get no commit; all others are declared as
// writes. Each answer fits the schema that is listed (call holds that).
func TestReadOnlyHolds(t *testing.T) {
	for _, surface := range []tools.Surface{tools.PerModel, tools.Generic} {
		t.Run(string(surface), func(t *testing.T) {
			var guard *noWrites
			r := library(t, setup{surface: surface, wrap: func(s plan.Source) plan.Source { guard = &noWrites{Source: s}; return guard }})
			guard.shut = true
			calls, listed := reading(surface), r.listed(t, clerk)
			for tool, v := range listed {
				readOnly := v.At("/annotations/readOnlyHint").Bool()
				if _, known := calls[tool]; known != readOnly {
					t.Errorf("%s is declared read-only: %t", tool, readOnly)
				}
			}
			good := 0
			for tool, arguments := range calls {
				for _, args := range arguments {
					if a := r.call(t, clerk, tool, args); !a.isError {
						good++
					}
				}
			}
			if guard.tried != 0 || good < len(calls) {
				t.Errorf("%d writes tried, %d calls succeeded", guard.tried, good)
			}
			// A control: the writes are seen by the guard.
			tool, args := "create_Book", `{"body":{"_id":"b9","title":"Nine"}}`
			if surface == tools.Generic {
				tool, args = "create", `{"model":"Book","body":{"_id":"b9","title":"Nine"}}`
			}
			r.call(t, clerk, tool, args).refused(t, "planError", "ERR_READ_ONLY:")
			if guard.tried != 1 {
				t.Errorf("a write was tried %d times", guard.tried)
			}
		})
	}
}

// noWrites is a source that refuses writes and counts them, once it is shut.
type noWrites struct {
	plan.Source
	shut  bool
	tried int
}

// Apply refuses.
func (s *noWrites) Apply(ctx context.Context, w *plan.Write, c plan.Commit) (*plan.Applied, error) {
	if !s.shut {
		return s.Source.Apply(ctx, w, c)
	}
	s.tried++
	return nil, plan.ErrReadOnly
}

// The declared hints of the writing tools are those of the specification, and hold: what is idempotent leaves the same
// after a second call, what is not destructive removes and changes nothing.
func TestWriteFactsHold(t *testing.T) {
	r := library(t, setup{})
	hints := func(tool, hint string) bool { return r.listed(t, clerk)[tool].At("/annotations/" + hint).Bool() }
	if !hints("delete_Book", "destructiveHint") || !hints("delete_Book", "idempotentHint") || !r.listed(t, clerk)["create_Book"].At("/annotations/destructiveHint").Equal(canonjson.Bool(false)) {
		t.Error("the hints of delete_Book or create_Book are not as specified")
	}
	for tool, v := range r.listed(t, clerk) {
		if open := v.At("/annotations/openWorldHint"); !open.Equal(canonjson.Bool(false)) {
			t.Errorf("%s: openWorldHint is %v", tool, open)
		}
	}
	r.call(t, clerk, "delete_Book", `{"id":"b2"}`).gives(t, `{"deletedCount":1,"archivedCount":1}`)
	after := r.call(t, clerk, "list_Book", `{}`).text
	r.call(t, clerk, "delete_Book", `{"id":"b2"}`).gives(t, `{"deletedCount":0,"archivedCount":0}`)
	if again := r.call(t, clerk, "list_Book", `{}`).text; !again.Equal(after) || after.Len() != 2 {
		t.Errorf("the second removal changed %v to %v", after, again)
	}
	before := r.call(t, clerk, "list_Book", `{}`).text
	a := r.call(t, clerk, "create_Book", `{"body":{"_id":"b8","title":"Eight","price":null}}`)
	if a.isError {
		t.Fatal(a.message)
	}
	left := slices.DeleteFunc(slices.Clone(r.call(t, clerk, "list_Book", `{}`).text.Items()), func(v canonjson.Value) bool { return v.Get("_id").Str() == "b8" })
	if !canonjson.Array(left...).Equal(before) {
		t.Errorf("create changed %v to %v", before, left)
	}
	r.call(t, clerk, "delete_Loan", `{"id":1}`).gives(t, `{"deletedCount":1,"archivedCount":0}`)
	r.call(t, clerk, "get_Loan", `{"id":1}`).refused(t, "notFound", "Loan 1 not found")
}

// watched is a source that notes what the audit trail holds when a write reaches it.
type watched struct {
	plan.Source
	trail *trail
	at    []audit.Entry // the last entry of the trail at each write
}

// Apply notes the trail.
func (s *watched) Apply(ctx context.Context, w *plan.Write, c plan.Commit) (*plan.Applied, error) {
	if s.trail != nil {
		s.trail.mu.Lock()
		s.at = append(s.at, append(s.trail.entries, audit.Entry{})[max(0, len(s.trail.entries)-1)])
		s.trail.mu.Unlock()
	}
	return s.Source.Apply(ctx, w, c)
}

// Each write leaves an intent in the audit trail before the source is asked, and an outcome after it with the same
// correlation; each read leaves one line, and a failed write its code (security requirements, S60 and S61).
func TestAuditOfModels(t *testing.T) {
	var w *watched
	r := library(t, setup{wrap: func(s plan.Source) plan.Source { w = &watched{Source: s}; return w }})
	w.trail = r.audit
	for _, tt := range []struct {
		tool, arguments, outcome string
		reached                  bool
		count                    int
	}{
		{"create_Book", `{"body":{"_id":"n1","title":"New"}}`, "ok", true, 1},
		{"create_Book", `{"body":{"_id":"n1","title":"Again"}}`, "plan_error", true, 0},
		{"create_Book", `{"body":{"_id":"n2"}}`, "plan_error", false, 0},
		{"update_Book", `{"id":"n1","set":{"price":3}}`, "ok", true, 1},
		{"update_Book", `{"id":"zz","set":{"price":3}}`, "ok", true, 0},
		{"update_Book", `{"id":"n1","set":{"price":4},"expectedVersion":7}`, "revision_conflict", true, 0},
		{"delete_Book", `{"id":"n1"}`, "ok", true, 1},
		{"delete_Book", `{"id":"n1"}`, "ok", true, 0},
	} {
		r.audit.took()
		w.at = nil
		a := r.call(t, clerk, tt.tool, tt.arguments)
		entries, lines := r.audit.took()
		what := tt.tool + " " + tt.arguments
		if len(entries) != 2 || len(lines) != 0 {
			t.Fatalf("%s: %d entries and %d lines", what, len(entries), len(lines))
		}
		intent, effect := entries[0], entries[1]
		if intent.Kind != audit.KindIntent || intent.Outcome != "intended" || effect.Kind != audit.KindEffect || effect.Outcome != tt.outcome || effect.Count != tt.count {
			t.Errorf("%s: intent %+v\noutcome %+v", what, intent, effect)
		}
		if intent.Correlation == "" || intent.Correlation != effect.Correlation || intent.Correlation != a.correlation || intent.Operation != tt.tool || intent.Target != "/models/Book" || intent.Subject != clerk.Subject {
			t.Errorf("%s: intent %+v of %s", what, intent, a.correlation)
		}
		if reached := len(w.at) > 0; reached != tt.reached || reached && w.at[0].Correlation != a.correlation {
			t.Errorf("%s: when the source was asked, the trail held %+v", what, w.at)
		}
		for _, e := range entries {
			if text := string(e.Encode()); strings.Contains(text, "New") || strings.Contains(text, "n1") {
				t.Errorf("%s: the trail holds data: %s", what, text)
			}
		}
	}
	for tool, arguments := range reading(tools.PerModel) {
		for _, args := range arguments {
			r.audit.took()
			a := r.call(t, clerk, tool, args)
			entries, lines := r.audit.took()
			if len(entries) != 0 || len(lines) != 1 || lines[0].Operation != tool || lines[0].Correlation != a.correlation || (lines[0].Outcome == "ok") == a.isError {
				t.Errorf("%s %s: entries %+v, lines %+v", tool, args, entries, lines)
			}
			if !a.isError && a.text.Kind() == canonjson.KindArray && lines[0].Count != a.text.Len() {
				t.Errorf("%s %s: %d rows, noted are %d", tool, args, a.text.Len(), lines[0].Count)
			}
		}
	}
}

// When the intent cannot be made durable, nothing happens.
func TestNoAuditNoWrite(t *testing.T) {
	r := library(t, setup{})
	r.audit.refuse = errors.New("SECRET disk full")
	for tool, args := range map[string]string{
		"create_Book": `{"body":{"_id":"n1","title":"New"}}`, "update_Book": `{"id":"b1","set":{"price":9}}`, "delete_Book": `{"id":"b1"}`,
	} {
		a := r.call(t, clerk, tool, args)
		a.refused(t, "planError", "ERR_SOURCE:", "nothing was changed")
		if strings.Contains(a.message, "SECRET") {
			t.Errorf("%s: %s", tool, a.message)
		}
	}
	if n := r.count(t, "Book"); n != 3 {
		t.Errorf("%d books", n)
	}
	r.call(t, clerk, "get_Book", `{"id":"b1"}`).gives(t, `{"_id":"b1","title":"One","price":1.5,"edition":1,"code":"x","tags":["t"],"loanCount":2,"loud":"ONE"}`)
	r.audit.refuse = nil
	if a := r.call(t, clerk, "delete_Book", `{"id":"b1"}`); a.isError {
		t.Error(a.message)
	}
}

// failing is a source that answers every call with an error.
type failing struct {
	plan.Source
	err error
}

// Read fails.
func (s *failing) Read(ctx context.Context, q *plan.Query) (*plan.Rows, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.Source.Read(ctx, q)
}

// Apply fails.
func (s *failing) Apply(ctx context.Context, w *plan.Write, c plan.Commit) (*plan.Applied, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.Source.Apply(ctx, w, c)
}

// Each failure of a source has its code and prefix, and says nothing of the driver. A write whose outcome is not known is
// no refusal in the audit trail.
func TestSourceFailures(t *testing.T) {
	var f *failing
	r := library(t, setup{wrap: func(s plan.Source) plan.Source { f = &failing{Source: s}; return f }})
	for _, tt := range []struct {
		err                        error
		read, write, prefix, audit string
	}{
		{plan.ErrBusy, "planError", "planError", "ERR_BUSY:", "busy"},
		{plan.ErrUnavailable, "planError", "planError", "ERR_SOURCE:", "store_unavailable"},
		{errors.New("anything"), "planError", "planError", "ERR_SOURCE:", "store_unavailable"},
		{plan.ErrUnknown, "", "planError", "ERR_UNKNOWN:", "store_unavailable"},
	} {
		f.err = fmt.Errorf("%w: SQLSTATE 08006 on 10.0.0.7 as app_rw", tt.err)
		if tt.read != "" {
			a := r.call(t, clerk, "list_Book", `{}`)
			a.refused(t, tt.read, tt.prefix)
			quiet(t, a)
		}
		r.audit.took()
		a := r.call(t, clerk, "delete_Book", `{"id":"b1"}`)
		a.refused(t, tt.write, tt.prefix)
		quiet(t, a)
		if entries, _ := r.audit.took(); len(entries) != 2 || entries[1].Outcome != tt.audit {
			t.Errorf("%v: noted is %+v", tt.err, entries)
		}
	}
}

// quiet holds that an answer says nothing of a database.
func quiet(t testing.TB, a answer) {
	t.Helper()
	for _, word := range []string{"SQL", "10.0.0.7", "app_rw", "SELECT", "sqlite", "Book_"} {
		if strings.Contains(a.structured.String(), word) {
			t.Errorf("it holds %s: %v", word, a.structured)
		}
	}
}

// The codes of refusals, and what goes with them (models, section 23.3 and 23.4).
func TestErrorForms(t *testing.T) {
	r := library(t, setup{})
	for _, tt := range []struct {
		who             *identity.Principal
		tool, arguments string
		code            string
		words           []string
	}{
		{clerk, "get_Book", `{"id":"zz"}`, "notFound", []string{"Book zz not found"}},
		{clerk, "get_Book", `{}`, "invalidParam", []string{"id"}},
		{clerk, "get_Book", `{"id":["x"]}`, "invalidParam", []string{"id"}},
		{clerk, "get_Book", `{"id":"x","extra":1}`, "invalidParam", []string{"extra"}},
		{clerk, "list_Book", `{"params":"x"}`, "invalidParam", []string{"params"}},
		{clerk, "list_Book", `{"limit":0}`, "invalidParam", []string{"limit"}},
		{clerk, "list_Book", `{"limit":1.5}`, "invalidParam", []string{"limit"}},
		{clerk, "list_Book", `{"q":"{ titel }"}`, "planError", []string{"ERR_UNKNOWN_FIELD:", "titel", "title"}},
		{clerk, "list_Book", `{"q":"Deleted { title }"}`, "planError", []string{"ERR_GQL_PARSE:"}},
		{clerk, "list_Book", `{"q":".x { title }"}`, "planError", []string{"ERR_GQL_PARSE:"}},
		{clerk, "list_Book", `{"q":"($condition: @c) { title }"}`, "planError", []string{"ERR_MISSING_PARAM:", "c"}},
		{clerk, "create_Book", `{"body":[]}`, "invalidBody", []string{"body"}},
		{clerk, "create_Book", `{"body":{"_id":"x"}}`, "planError", []string{"ERR_BAD_VALUE:", "title"}},
		{clerk, "create_Book", `{"body":{"_id":"x","title":5}}`, "planError", []string{"ERR_BAD_VALUE:", "title"}},
		{clerk, "create_Book", `{"body":{"_id":"x","title":"t","shelf":"c"}}`, "planError", []string{"ERR_BAD_VALUE:", "shelf"}},
		{clerk, "create_Book", `{"body":{"_id":"x","title":"t","code":"x"}}`, "planError", []string{"ERR_CONSTRAINT:", "code"}},
		{clerk, "create_Book", `{"body":{"_id":"x","title":"t","nope":1}}`, "planError", []string{"ERR_UNKNOWN_FIELD:", "nope"}},
		{clerk, "update_Book", `{"id":"b1"}`, "invalidBody", []string{"set"}},
		{clerk, "update_Book", `{"id":"b1","set":{}}`, "planError", []string{"ERR_NO_FIELDS:"}},
		{clerk, "update_Book", `{"id":"b1","set":{"$push":{"tags":1}}}`, "planError", []string{"ERR_BAD_UPDATE_OP:"}},
		{clerk, "query", `{"gql":"Book { title }","params":[]}`, "invalidParam", []string{"params"}},
		{clerk, "query", `{"gql":"Loan { book { loans { book } } }"}`, "planError", []string{"ERR_UNKNOWN"}},
		{as("root", "admin"), "query", `{"gql":"Book($condition: @c) { title }","params":{"c":{"tags":"x"}}}`, "profileBlocked", []string{"ERR_TEXT2QUERY:"}},
		{as("gus", "guest"), "query", `{"gql":"Book { title }"}`, "permissionDenied", []string{"ERR_PERMISSION:", "Book"}},
	} {
		a := r.call(t, tt.who, tt.tool, tt.arguments)
		a.refused(t, tt.code, tt.words...)
		if a.structured.Len() != 2 {
			t.Errorf("%s %s: %v", tt.tool, tt.arguments, a.structured)
		}
		quiet(t, a)
	}
	if n := r.count(t, "Book"); n != 3 {
		t.Errorf("%d books", n)
	}
}

// expectedVersion and idempotencyKey (models, section 23.4).
func TestVersionsAndKeys(t *testing.T) {
	r := library(t, setup{})
	a := r.call(t, clerk, "update_Book", `{"id":"b1","set":{"price":5,"edition":2},"expectedVersion":7}`)
	a.refused(t, "versionConflict", "ERR_VERSION:")
	if !a.structured.Get("current").Equal(canonjson.Int(1)) {
		t.Errorf("the current version is not told: %v", a.structured)
	}
	if a := r.call(t, clerk, "update_Book", `{"id":"b1","set":{"price":5,"edition":2},"expectedVersion":1}`); a.isError {
		t.Error(a.message)
	}
	r.call(t, clerk, "delete_Book", `{"id":"b1","expectedVersion":1}`).refused(t, "versionConflict")
	r.call(t, clerk, "delete_Loan", `{"id":1,"expectedVersion":1}`).refused(t, "versionConflict")

	first := r.call(t, clerk, "create_Book", `{"body":{"_id":"k1","title":"Keyed"},"idempotencyKey":"key-1"}`)
	again := r.call(t, clerk, "create_Book", `{"body":{"_id":"k1","title":"Keyed"},"idempotencyKey":"key-1"}`)
	if first.isError || !again.text.Equal(first.text) || r.count(t, "Book") != 4 {
		t.Errorf("the repeated write gave %v %s, first %v", again.text, again.message, first.text)
	}
	r.call(t, clerk, "create_Book", `{"body":{"_id":"k2","title":"Other"},"idempotencyKey":"key-1"}`).refused(t, "idempotencyConflict", "ERR_IDEMPOTENCY:")
	r.call(t, clerk, "delete_Book", `{"id":"k1","idempotencyKey":"key-1"}`).refused(t, "idempotencyConflict")
	// Another caller's keys are his own.
	if a := r.call(t, as("carl", "clerk"), "create_Book", `{"body":{"_id":"k3","title":"Carl's"},"idempotencyKey":"key-1"}`); a.isError {
		t.Error(a.message)
	}
	for _, n := range []string{"1", "2"} {
		if a := r.call(t, clerk, "update_Book", `{"id":"b2","set":{"$inc":{"price":10}},"idempotencyKey":"inc"}`); a.isError || !a.text.Get("price").Equal(canonjson.Int(12)) {
			t.Errorf("increment %s: %v %s", n, a.text, a.message)
		}
	}
	bare := library(t, setup{noKeys: true})
	bare.call(t, clerk, "create_Book", `{"body":{"_id":"k1","title":"Keyed"},"idempotencyKey":"key-1"}`).refused(t, "planError", "ERR_IDEMPOTENCY:", "models ddl --idempotency")
	if bare.count(t, "Book") != 3 {
		t.Error("a row was written without its key")
	}
}

// A source without a connection for writes has no tools that write; a model on it is refused by the generic ones of another.
func TestReadOnlySource(t *testing.T) {
	r := library2(t)
	for _, name := range r.names(t, clerk) {
		if strings.HasPrefix(name, "create") || strings.HasPrefix(name, "update") || strings.HasPrefix(name, "delete") {
			t.Errorf("%s is listed", name)
		}
	}
	if a := r.call(t, clerk, "delete_Book", `{"id":"b1"}`); a.rpc != -32602 {
		t.Errorf("delete_Book: %v", a)
	}
}

// library2 is a library whose source is only read; it is empty.
func library2(t *testing.T) *rig {
	t.Helper()
	return newRig(t, setup{definitions: books, functions: loud, readOnly: true})
}

// What the context hook says decides: nobody, a denial, another failure (models, sections 23.3 and 23.5).
func TestContextHook(t *testing.T) {
	var who *model.Context
	var fails error
	r := library(t, setup{surface: tools.Generic, context: func(context.Context, *identity.Principal) (*model.Context, error) { return who, fails }})
	r.call(t, clerk, "query", `{"gql":"Book { title }"}`).refused(t, "profileBlocked", "ERR_TEXT2QUERY:")
	if a := r.call(t, clerk, "list", `{"model":"Book"}`); a.rpc != -32602 {
		t.Errorf("nobody is shown list: %v", a)
	}
	who = &model.Context{UserID: "u", Roles: []string{"clerk"}}
	if a := r.call(t, as("gus", "guest"), "list", `{"model":"Book"}`); a.isError || a.text.Len() != 3 {
		t.Errorf("the hook's context: %v %s", a.text, a.message)
	}
	fails = errors.New("the directory is down")
	r.call(t, clerk, "query", `{"gql":"Book { title }"}`).refused(t, "unauthenticated", "the directory is down")
	fails = model.Errorf(model.Denied, "not on Sundays")
	r.call(t, clerk, "query", `{"gql":"Book { title }"}`).refused(t, "permissionDenied", "ERR_PERMISSION: not on Sundays")
}

// An operation that cannot be run for want of an engine can still be listed.
func TestListedWithoutEngine(t *testing.T) {
	_, c, _ := listing(t, setup{definitions: books})
	if v := c.View(all(c, catalog.All), catalog.All); v.Tool("create_Book") == nil || v.Tool("query") == nil {
		t.Errorf("%s", v.ToolsJSON())
	}
}

// existing are tables that nobody made for models: keys of every kind, a view, one without a key.
const existing = `[{"name":"Film","table":"film","key":["film_id"],"archive":false,"timestamps":false,"fields":{"film_id":"int","title":{"type":"string","required":true}},"read":["clerk"],"write":["clerk"]},
 {"name":"Cast","table":"casting","key":["film","actor"],"archive":false,"timestamps":false,"fields":{"film":"int","actor":"int","role":"string"},"read":["clerk"],"write":["clerk"]},
 {"name":"Log","table":"log","key":[],"archive":false,"timestamps":false,"fields":{"at":"int","what":"string"},"read":["clerk"],"write":["clerk"]},
 {"name":"Top","table":"top","view":true,"key":["id"],"archive":false,"timestamps":false,"fields":{"_id":{"type":"int","column":"id"},"what":"string"},"read":["clerk"]},
 {"name":"Drop","table":"inbox","key":["id"],"archive":false,"timestamps":false,"fields":{"_id":{"type":"string","column":"id"},"secret":"string"},"read":["boss"],"write":["clerk"]}]`

// existingTables makes them.
var existingTables = []string{
	`CREATE TABLE film (film_id INTEGER PRIMARY KEY, title TEXT NOT NULL)`, `INSERT INTO film VALUES (9007199254740993, 'A')`,
	`CREATE TABLE casting (film INTEGER, actor INTEGER, role TEXT, PRIMARY KEY (film, actor))`, `INSERT INTO casting VALUES (1, 2, 'x'), (1, 3, NULL)`,
	`CREATE TABLE log (at INTEGER, what TEXT)`, `INSERT INTO log VALUES (1, 'a'), (1, 'a'), (2, NULL)`, `CREATE VIEW top AS SELECT at AS id, what FROM log`,
	`CREATE TABLE inbox (id TEXT PRIMARY KEY, secret TEXT)`,
}

// Tables of existing databases have the tools that can keep their promise, and no others; keys of several columns and of
// 64 bits name their row; who may only write is shown nothing of a row but its id.
func TestToolsOfExistingTables(t *testing.T) {
	r := newRig(t, setup{definitions: existing, ddl: existingTables})
	want := "get_Film list_Film create_Film update_Film delete_Film get_Cast list_Cast create_Cast update_Cast delete_Cast list_Log get_Top list_Top create_Drop update_Drop delete_Drop query describe_schemas"
	if got := strings.Join(r.names(t, clerk), " "); got != want {
		t.Errorf("listed are %s\nwant       %s", got, want)
	}
	for _, tt := range [][3]string{
		{"get_Film", `{"id":9007199254740993}`, `{"_id":9007199254740993,"film_id":9007199254740993,"title":"A"}`},
		{"get_Film", `{"id":"9007199254740993"}`, `{"_id":9007199254740993,"film_id":9007199254740993,"title":"A"}`},
		{"create_Film", `{"body":{"_id":2,"title":"B"}}`, `{"_id":2,"film_id":2,"title":"B"}`},
		{"get_Cast", `{"id":"[\"1\",\"2\"]"}`, `{"_id":"[\"1\",\"2\"]","film":1,"actor":2,"role":"x"}`},
		{"update_Cast", `{"id":"[\"1\",\"2\"]","set":{"role":"q"}}`, `{"_id":"[\"1\",\"2\"]","film":1,"actor":2,"role":"q"}`},
		{"create_Cast", `{"body":{"film":2,"actor":2,"role":"r"}}`, `{"_id":"[\"2\",\"2\"]","film":2,"actor":2,"role":"r"}`},
		{"delete_Cast", `{"id":"[\"1\",\"2\"]"}`, `{"deletedCount":1,"archivedCount":0}`},
		{"list_Log", `{"q":"{ what }"}`, `[{"what":"a"},{"what":"a"},{}]`},
		{"get_Top", `{"id":2}`, `{"_id":2}`},
		{"create_Drop", `{"body":{"_id":"1","secret":"x"}}`, `{"_id":"1"}`},
		{"update_Drop", `{"id":"1","set":{"secret":"y"}}`, `{"_id":"1"}`},
	} {
		r.call(t, clerk, tt[0], tt[1]).gives(t, tt[2])
	}
	if got := len(r.pages(t, clerk, "list_Log", "", 1)); got != 3 {
		t.Errorf("%d rows of a table without a key, one by one", got)
	}
	for tool, needs := range map[string]string{"create_Film": `["_id","title"]`, "create_Cast": `["film","actor"]`} {
		body := r.listed(t, clerk)[tool].At("/inputSchema/properties/body")
		if !body.Get("required").Equal(parse(t, needs)) || strings.Contains(body.Get("properties").Get(body.Get("required").At("/0").Str()).String(), "null") {
			t.Errorf("%s: %v", tool, body)
		}
	}
	if out := r.listed(t, clerk)["create_Drop"].At("/outputSchema/properties/row/properties"); out.Len() != 1 {
		t.Errorf("create_Drop shows %v", out)
	}
}
