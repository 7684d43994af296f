package plan

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// update rewrites the golden plans.
var update = flag.Bool("update", false, "rewrite testdata/plans.golden")

// golden plans the queries of testdata/plans.txt; each is a paragraph: the caller's roles, the profile, the query, the
// parameters.
func TestGoldenPlans(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "plans.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, paragraph := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.SplitN(paragraph, "\n", 3)
		if len(lines) < 2 {
			t.Fatalf("a paragraph without a query: %q", paragraph)
		}
		params := ""
		if len(lines) == 3 {
			params = lines[2]
		}
		fmt.Fprintf(&out, "%s\n%s\n\n", paragraph, planned(t, strings.TrimPrefix(lines[0], "# "), lines[1], params))
	}
	file := filepath.Join("testdata", "plans.golden")
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, []byte(out.String())) {
		t.Errorf("the plans differ from %s; got\n%s", file, out.String())
	}
}

// planned plans one query for "roles profile" and gives the plan as text.
func planned(t *testing.T, who, text, params string) string {
	t.Helper()
	role, profile, _ := strings.Cut(who, " ")
	p := Planner{Registry: platformModels(t), Access: access(role), Profile: Standard}
	switch profile {
	case "sandbox":
		p.Profile = TextToQuery
	case "served":
		p.Profile = Served
	}
	q, err := gql.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var v canonjson.Value
	if params != "" {
		v = mustParse(t, params)
	}
	b, err := q.Bind(v)
	if err != nil {
		t.Fatal(err)
	}
	query, err := p.Query(b)
	if err != nil {
		return err.Error()
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, query.Value().AppendJSON(nil), "", "  "); err != nil {
		t.Fatal(err)
	}
	return pretty.String()
}

// access is what somebody with one role may do in the golden world; "internal" may do everything.
func access(role string) *model.Access {
	rules := model.DefaultRules()
	rules.Unconfigured = model.Open
	p := &model.Permission{Rules: rules}
	return p.For(&model.Context{UserID: "u3", Roles: []string{role}, Internal: role == "internal"})
}

// mustParse parses JSON of a test.
func mustParse(t *testing.T, text string) canonjson.Value {
	t.Helper()
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// platformModels are the models of the recorded cases, and some of existing tables.
func platformModels(t *testing.T) *model.Registry {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "engine", "testdata", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	r := model.NewRegistry(model.Options{Lenient: true})
	definitions := append([]canonjson.Value{}, mustParse(t, string(text)).Items()...)
	definitions = append(definitions, mustParse(t, tables).Items()...)
	if err := r.Register(definitions...); err != nil {
		t.Fatal(err)
	}
	return r
}

// tables are models of existing tables: a key of two columns, none, and functions over rows of others.
const tables = `[
 {"name":"Cast","table":"film_actor","key":["actor_id","film_id"],"timestamps":false,"archive":false,
  "fields":{"actor_id":"int","film_id":"int","part":"string"},
  "relations":{"film":{"model":"Film","type":"one","localField":"film_id","foreignField":"_id"}}},
 {"name":"Film","table":"public.film","key":["film_id"],"timestamps":false,"archive":false,
  "fields":{"_id":{"type":"int","column":"film_id"},"title":"string","rate":"decimal"},
  "relations":{"cast":{"model":"Cast","type":"many","localField":"_id","foreignField":"film_id"},
   "lead":{"model":"Cast","type":"one","localField":"_id","foreignField":"film_id"}},
  "computes":{"score":{"type":"float","asyncFn":true,"depends":["rate","cast{part}"]},
   "stars":{"type":"string","asyncFn":true,"depends":["cast{actor_id}"]}}},
 {"name":"Loose","table":"loose","view":true,"timestamps":false,"archive":false,"fields":{"a":"int","b":"string","c":"array"}}
]`

// TestConditionStructure holds the structure of conditions, and so their three-valued meaning.
func TestConditionStructure(t *testing.T) {
	p := &Planner{Registry: platformModels(t), Access: access("internal"), Profile: Standard}
	for _, tt := range []struct{ condition, want string }{
		{`null`, `true`},
		{`{}`, `true`},
		{`{"price":{}}`, `true`},
		{`{"$and":[{}]}`, `true`},
		{`{"$and":[{},{"price":1}]}`, `price = 1`},
		{`{"$or":[{},{"price":1}]}`, `true`},
		{`{"$or":[{"price":1}]}`, `price = 1`},
		{`{"$nor":[{}]}`, `false`},
		{`{"$nor":[{"price":1},{}]}`, `false`},
		{`{"$nor":[{"price":1},{"seats":2}]}`, `not (price = 1 or seats = 2)`},
		{`{"$nor":[{"$nor":[{"price":1}]}]}`, `not not price = 1`},
		{`{"price":1,"seats":2,"$or":[{"title":"a"},{"title":"b"}]}`, `(price = 1 and seats = 2 and (title = "a" or title = "b"))`},
		{`{"$and":[{"price":1},{"$and":[{"seats":2},{"seats":3}]}]}`, `(price = 1 and seats = 2 and seats = 3)`},
		{`{"price":null}`, `price is null`},
		{`{"price":{"$ne":null}}`, `price has a value`},
		{`{"price":{"$exists":true}}`, `price is stored`},
		{`{"price":{"$exists":false}}`, `not price is stored`},
		{`{"price":{"$exists":0}}`, `price is stored`},
		{`{"price":{"$not":{"$eq":null}}}`, `not price is null`},
		{`{"price":{"$not":100}}`, `not price = 100`},
		{`{"price":{"$not":{"$gt":1,"$lt":5}}}`, `not (price > 1 and price < 5)`},
		{`{"price":{"$not":{}}}`, `false`},
		{`{"price":{"$ne":1}}`, `price <> 1`},
		{`{"price":{"$in":[]}}`, `false`},
		{`{"price":{"$nin":[]}}`, `true`},
		{`{"price":{"$in":[null]}}`, `false`},
		{`{"price":{"$nin":[null]}}`, `price has a value`},
		{`{"price":{"$in":[null,1,2]}}`, `price in [1, 2]`},
		{`{"price":{"$nin":[null,1]}}`, `not price in [1]`},
		{`{"title":{"$regex":"^a","$options":"mi"}}`, `title matches "(?im:^a)"`},
		{`{"_id":{"$exists":true}}`, `true`},
		{`{"_id":{"$ne":null}}`, `true`},
		{`{"_id":null}`, `false`},
		{`{"_id":{"$nin":[null]}}`, `true`},
		{`{"$or":[{"_id":null},{"price":1}]}`, `price = 1`},
		{`{"featured":1}`, `featured = true`},
		{`{"publishedAt":"9223372036854775807"}`, `publishedAt = 9223372036854775807`},
		{`{"lessons":{"$exists":true}}`, `exist(rows of Lesson with courseId = parent._id)`},
		{`{"lessons":{"$exists":false}}`, `not exist(rows of Lesson with courseId = parent._id)`},
		{`{"$not":{"lessons":{"$exists":false}}}`, `not not exist(rows of Lesson with courseId = parent._id)`},
		{`{"lessons":{"$filter":{"free":true},"$count":{"$eq":0}}}`, `having(rows of Lesson with courseId = parent._id where free = true: a0 = count(*): a0 = 0)`},
		{`{"lessons":{"$count":{"$ne":3}}}`, `having(rows of Lesson with courseId = parent._id: a0 = count(*), a1 = count(*): (a0 <> 3 and a1 > 0))`},
		{`{"lessons":{"agg":{"n":{"$count":"*"},"t":{"$sum":"minutes"}},"having":{"n":{"$gte":2},"$or":[{"t":1},{"t":null}]}}}`,
			`having(rows of Lesson with courseId = parent._id: a0 = count(*), a1 = sum(minutes): (a0 >= 2 and (a1 = 1 or a1 is null)))`},
	} {
		m := p.Registry.Get("Course")
		c, err := p.condition(m, mustParse(t, tt.condition), useQuery)
		if err != nil {
			t.Errorf("%s: %v", tt.condition, err)
			continue
		}
		if got := CondText(c); got != tt.want {
			t.Errorf("%s\n got  %s\n want %s", tt.condition, got, tt.want)
		}
		if blank(c) != (tt.want == "true") {
			t.Errorf("%s: blank is %v", tt.condition, blank(c))
		}
	}
}

// TestCompositeStructure holds what becomes of conditions on an _id of several columns.
func TestCompositeStructure(t *testing.T) {
	p := &Planner{Registry: platformModels(t), Access: access("internal"), Profile: Standard}
	m := p.Registry.Get("Cast")
	for _, tt := range []struct{ condition, want string }{
		{`{"_id":"[\"1\",\"7\"]"}`, `(actor_id = 1 and film_id = 7)`},
		{`{"_id":{"$ne":"[\"1\",\"7\"]"}}`, `not (actor_id = 1 and film_id = 7)`},
		{`{"_id":{"$in":["[\"1\",\"7\"]","[ \"2\" , \"8\" ]"]}}`, `((actor_id = 1 and film_id = 7) or (actor_id = 2 and film_id = 8))`},
		{`{"_id":{"$nin":["[\"1\",\"7\"]"]}}`, `not (actor_id = 1 and film_id = 7)`},
		{`{"_id":{"$in":[]}}`, `false`},
		{`{"_id":{"$exists":true}}`, `true`},
		{`{"_id":null}`, `false`},
		{`{"actor_id":{"$ne":null}}`, `true`},
	} {
		c, err := p.condition(m, mustParse(t, tt.condition), useQuery)
		if err != nil {
			t.Errorf("%s: %v", tt.condition, err)
		} else if got := CondText(c); got != tt.want {
			t.Errorf("%s\n got  %s\n want %s", tt.condition, got, tt.want)
		}
	}
	for _, bad := range []string{`"1"`, `1`, `"[]"`, `"[\"1\"]"`, `"[1,7]"`, `"[\"1\",\"x\"]"`, `"[\"1\",\"7\",\"8\"]"`, `"[\"1\",[\"7\"]]"`, `true`} {
		if c, err := p.condition(m, mustParse(t, `{"_id":`+bad+`}`), useQuery); err == nil {
			t.Errorf("%s is taken as %s", bad, CondText(c))
		}
	}
	for _, op := range []string{"$gt", "$lte"} {
		if _, err := p.condition(m, mustParse(t, `{"_id":{"`+op+`":"[\"1\",\"7\"]"}}`), useQuery); err == nil {
			t.Errorf("%s is taken", op)
		}
	}
}

// TestRowCond holds how row limits become conditions.
func TestRowCond(t *testing.T) {
	m := platformModels(t).Get("Enrollment")
	one := func(field, value string) []model.Equal {
		return []model.Equal{{Field: field, Value: canonjson.String(value)}}
	}
	for _, tt := range []struct {
		name   string
		limits []model.RowLimit
		want   string
	}{
		{"none", nil, "true"},
		{"no alternative", []model.RowLimit{{}}, "false"},
		{"an alternative that asks nothing", []model.RowLimit{{Any: [][]model.Equal{{}}}}, "true"},
		{"an owner", []model.RowLimit{{Any: [][]model.Equal{one("createdBy", "u3")}}}, `createdBy = "u3"`},
		{"either", []model.RowLimit{{Any: [][]model.Equal{one("createdBy", "u3"), one("state", "done")}}}, `(createdBy = "u3" or state = "done")`},
		{"both limits", []model.RowLimit{{Any: [][]model.Equal{one("createdBy", "u3")}}, {Any: [][]model.Equal{one("state", "done")}}}, `(createdBy = "u3" and state = "done")`},
		{"a field that is not there", []model.RowLimit{{Any: [][]model.Equal{one("nosuch", "x")}}}, "false"},
		{"a value that does not fit", []model.RowLimit{{Any: [][]model.Equal{one("progress", "x")}}}, "false"},
		{"a value that is null", []model.RowLimit{{Any: [][]model.Equal{{{Field: "state", Value: canonjson.Null()}}}}}, "false"},
		{"a value that is missing", []model.RowLimit{{Any: [][]model.Equal{{{Field: "state"}}}}}, "false"},
	} {
		if got := CondText(rowCond(tt.limits, m)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// FuzzCondition: no condition makes the judge panic.
func FuzzCondition(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"price":{"$gt":1}}`, `{"$or":[{"price":1},{}]}`, `{"lessons":{"$count":{"$of":"minutes","$gte":1}}}`,
		`{"lessons":{"filter":{"free":false},"agg":{"n":{"$count":"*"}},"having":{"n":1}}}`, `{"$not":{"lessons":{"$exists":true}}}`,
		`{"title":{"$regex":"a","$options":"i"}}`, `{"meta.level":1}`, `{"":{"":""}}`, `[]`, `{"$where":1}`, `{"_id":"[\"1\",\"2\"]"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
		if err != nil {
			return
		}
		p := &Planner{Registry: fuzzModels(t), Access: access("student"), Profile: TextToQuery}
		for _, name := range []string{"Course", "Cast"} {
			if c, err := p.condition(p.Registry.Get(name), v, useQuery); err == nil {
				CondText(c)
			} else if len(err.Error()) > 4000 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
		}
		if g, err := p.grouped(p.Registry.Get("Course"), &gql.Bound{Values: gql.Values{Group: v, Having: v, Sort: v}}); err == nil {
			g.value()
		}
	})
}

// fuzzed is the registry of fuzz runs: made once, since it is immutable.
var fuzzed *model.Registry

// fuzzModels gives it.
func fuzzModels(t *testing.T) *model.Registry {
	if fuzzed == nil {
		fuzzed = platformModels(t)
	}
	return fuzzed
}
