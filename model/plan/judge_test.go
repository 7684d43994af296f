package plan_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// shop is a small world for rules that the recorded cases do not reach: lists on everything, a composite key, a table
// without a key, every type, functions, a hidden model.
const shop = `[
 {"name":"Item","table":"item","timestamps":false,"archive":false,"read":["clerk","boss"],
  "fields":{"_id":"string","name":"string","price":{"type":"decimal"},"stock":"int","secret":{"type":"string","read":["boss"]},
   "made":"timestamp","day":"day","ref":"uuid","blob":"bytes","on":"boolean","weight":"double","tags":"array","free":"any",
   "size":{"type":"object","fields":{"w":"int","h":{"type":"int","read":["boss"]}}},"raw":{"type":"object"},"ownerId":"string","hidId":"string"},
  "relations":{
   "lines":{"model":"Line","type":"many","localField":"_id","foreignField":"itemId"},
   "owner":{"model":"Person","type":"one","localField":"ownerId","foreignField":"_id"},
   "audits":{"model":"Audit","type":"many","localField":"_id","foreignField":"itemId"},
   "barred":{"model":"Line","type":"many","localField":"_id","foreignField":"itemId","read":["boss"]},
   "ghost":{"model":"Nowhere","type":"one","localField":"hidId","foreignField":"_id"},
   "hid":{"model":"Hid","type":"one","localField":"hidId","foreignField":"_id"},
   "latest":{"model":"Line","type":"one","localField":"_id","foreignField":"itemId"}},
  "computes":{
   "sold":{"type":"int","agg":{"$sum":"lines.qty"}},
   "orders":{"type":"int","agg":{"$count":"lines"}},
   "auditCount":{"type":"int","agg":{"$count":"audits"}},
   "costs":{"type":"decimal","agg":{"$max":"lines.cost"}},
   "bossSold":{"type":"int","agg":{"$sum":"lines.qty"},"read":["boss"]},
   "label":{"type":"string","fn":true,"depends":["name","secret"]},
   "risk":{"type":"float","asyncFn":true,"depends":["stock","lines{qty,cost}"]},
   "ownerCount":{"type":"int","agg":{"$count":"owner"}},
   "ownerText":{"type":"string","asyncFn":true,"depends":["owner{name}"]},
   "auditText":{"type":"string","asyncFn":true,"depends":["audits{text}"]}}},
 {"name":"Line","table":"line","key":["orderId","itemId"],"timestamps":false,"archive":false,"read":["clerk","boss"],
  "fields":{"orderId":"int","itemId":"string","qty":"int","cost":{"type":"decimal","read":["boss"]},"note":"string"},
  "relations":{"item":{"model":"Item","type":"one","localField":"itemId","foreignField":"_id"}}},
 {"name":"Person","table":"person","timestamps":false,"archive":false,"read":["boss","creator"],
  "fields":{"_id":"string","name":"string","createdBy":"string"},
  "relations":{"items":{"model":"Item","type":"many","localField":"_id","foreignField":"ownerId"}}},
 {"name":"Audit","table":"audit","timestamps":false,"archive":false,"read":["boss"],"fields":{"_id":"string","itemId":"string","text":"string"}},
 {"name":"Loose","table":"loose","view":true,"timestamps":false,"archive":false,"read":["clerk"],"fields":{"a":"int","b":"string","c":"array"}},
 {"name":"Hid","table":"hid","timestamps":false,"archive":false,"x-mcp":{"hidden":true},"read":["clerk"],"fields":{"_id":"string","v":"int"}}
]`

// shopRegistry registers the shop.
func shopRegistry(t *testing.T) *model.Registry { return register(t, jsonValue(t, shop).Items()...) }

// The people of the shop.
var (
	clerk    = &model.Context{UserID: "c1", Roles: []string{"clerk"}}
	stranger = &model.Context{UserID: "x1", Roles: []string{"other"}}
)

// shopPlanner plans for one of them. Hidden models are not known.
func shopPlanner(t *testing.T, who *model.Context, profile plan.Profile) *plan.Planner {
	p := &model.Permission{Rules: model.DefaultRules()}
	return &plan.Planner{Registry: shopRegistry(t), Access: p.For(who), Profile: profile, Known: func(m *model.Model) bool { return !m.Hidden }}
}

// ask parses, binds and plans.
func ask(t *testing.T, p *plan.Planner, text, params string) (*plan.Query, error) {
	t.Helper()
	q, err := gql.Parse(text)
	if err != nil {
		return nil, err
	}
	b, err := q.Bind(jsonValue(t, params))
	if err != nil {
		return nil, err
	}
	return p.Query(b)
}

// wantClass checks the class of an error and words that its message must or (with a leading !) must not contain.
func wantClass(t *testing.T, err error, class model.Class, words ...string) {
	t.Helper()
	var e *model.Error
	if class == "" {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error of class %s", err, class)
	}
	if e.Class != class {
		t.Errorf("got class %s, want %s: %v", e.Class, class, err)
	}
	for _, w := range words {
		if no, ok := strings.CutPrefix(w, "!"); ok == strings.Contains(err.Error(), no) {
			t.Errorf("the message has %q against the wish: %v", w, err)
		}
	}
}

// TestConditionClasses holds the class of every fault of a condition, and words of its message.
func TestConditionClasses(t *testing.T) {
	many := strings.Repeat(`{"name":"a"},`, 2001)
	for _, tt := range []struct {
		name, condition string
		class           model.Class
		words           []string
	}{
		{"every operator", `{"stock":{"$eq":1,"$ne":2,"$gt":0,"$gte":1,"$lt":9,"$lte":8,"$in":[1],"$nin":[2],"$exists":true,"$not":{"$gt":7}},"name":{"$regex":"^a","$options":"i"}}`, "", nil},
		{"text that spells a number", `{"stock":"12","price":"1.50"}`, "", nil},
		{"a fraction for an int", `{"stock":1.5}`, model.BadFilter, []string{"Item.stock", "int"}},
		{"a word for an int", `{"stock":"many"}`, model.BadFilter, []string{"Item.stock", `"many"`}},
		{"an object for a value", `{"stock":{"n":1}}`, model.BadFilter, []string{"Item.stock"}},
		{"an array for a value", `{"stock":[1]}`, model.BadFilter, []string{"$in"}},
		{"an array inside a list", `{"stock":{"$in":[[1]]}}`, model.BadFilter, nil},
		{"an object inside a list", `{"stock":{"$in":[{"$gt":1}]}}`, model.BadFilter, nil},
		{"a zero character", `{"name":{"$in":["a\u0000b"]}}`, model.BadFilter, []string{"U+0000"}},
		{"greater than null", `{"stock":{"$gt":null}}`, model.BadFilter, []string{"$gt"}},
		{"not of an array", `{"stock":{"$not":[1]}}`, model.BadFilter, nil},
		{"a search in a number", `{"stock":{"$regex":"1"}}`, model.BadFilter, []string{"int"}},
		{"options that are no text", `{"name":{"$regex":"a","$options":1}}`, model.BadFilter, []string{"$options"}},
		{"an unknown flag", `{"name":{"$regex":"a","$options":"x"}}`, model.UnsupportedOp, []string{"$options"}},
		{"a lookahead", `{"name":{"$regex":"(?=a)"}}`, model.UnsupportedOp, []string{"$regex"}},
		{"options alone inside not", `{"name":{"$not":{"$options":"i"}}}`, model.BadFilter, []string{"$options"}},
		{"a mistyped operator", `{"stock":{"$gtt":1}}`, model.UnsupportedOp, []string{"$gtt", "$gt"}},
		{"a mistyped group", `{"$an":[]}`, model.UnsupportedOp, []string{"$an"}},
		{"a branch that is no object", `{"$or":[1]}`, model.BadFilter, nil},
		{"null as a branch", `{"$or":[null]}`, model.BadFilter, nil},
		{"code, before anything else", `{"nosuch":1,"$or":[{"stock":{"$in":[{"$where":1}]}}]}`, model.ForbiddenOp, []string{"$where"}},
		{"a mistyped field", `{"stok":1}`, model.UnknownField, []string{"stok", "stock", "!secret"}},
		{"a computed column", `{"sold":1}`, model.UnknownField, []string{"Item.sold"}},
		{"a column that only others may read", `{"bossSold":1}`, model.UnknownField, []string{"bossSold"}},
		{"an unreadable field", `{"secret":"x"}`, model.Denied, []string{"secret"}},
		{"an unreadable field in a list of nothing", `{"secret":{"$nin":[]}}`, model.Denied, nil},
		{"an unreadable field in an empty object", `{"secret":{}}`, model.Denied, nil},
		{"an array", `{"tags":null}`, model.ArrayFilter, []string{"Item.tags"}},
		{"an any", `{"free":1}`, model.ObjectFilter, []string{"Item.free"}},
		{"a path into an any", `{"free.x":1}`, model.ObjectPath, nil},
		{"a path into a text", `{"name.x":1}`, model.UnknownField, []string{"name.x"}},
		{"a path into nothing", `{"nosuch.x":1}`, model.UnknownField, nil},
		{"a path into an unreadable field", `{"secret.x":1}`, model.Denied, nil},
		{"a path through a barred relation", `{"barred.qty":1}`, model.Denied, nil},
		{"a relation to a hidden model", `{"hid":{"$exists":true}}`, model.UnknownField, []string{"!Hid."}},
		{"a relation to no model", `{"ghost":{"$exists":true}}`, model.UnknownField, []string{"!Nowhere"}},
		{"not around a field", `{"$not":{"stock":1}}`, model.BadFilter, []string{"$not"}},
		{"not around nothing", `{"$not":{}}`, model.BadFilter, nil},
		{"32 levels", strings.Repeat(`{"$or":[`, 32) + `{"stock":1}` + strings.Repeat(`]}`, 32), "", nil},
		{"33 levels", strings.Repeat(`{"$or":[`, 33) + `{"stock":1}` + strings.Repeat(`]}`, 33), model.Limit, []string{"32"}},
		{"33 times not", `{"stock":` + strings.Repeat(`{"$not":`, 33) + `1` + strings.Repeat(`}`, 34), model.Limit, []string{"32"}},
		{"too many comparisons", `{"$or":[` + many[:len(many)-1] + `]}`, model.Limit, []string{"2000"}},
		{"every plain type", `{"made":"2024-01-31T12:00:00Z","day":"2024-01-31","ref":"123e4567-e89b-12d3-a456-426614174000","blob":"YWJj","on":1,"weight":"1.5"}`, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ask(t, shopPlanner(t, clerk, plan.Standard), "Item($condition:@c){ name }", `{"c":`+tt.condition+`}`)
			wantClass(t, err, tt.class, tt.words...)
		})
	}
}

// TestListBound holds the bound of $in.
func TestListBound(t *testing.T) {
	list := func(n int) string { return `{"c":{"stock":{"$in":[` + strings.Repeat("1,", n-1) + `1]}}}` }
	_, err := ask(t, shopPlanner(t, clerk, plan.Standard), "Item($condition:@c)", list(10_000))
	wantClass(t, err, "")
	_, err = ask(t, shopPlanner(t, clerk, plan.Standard), "Item($condition:@c)", list(10_001))
	wantClass(t, err, model.Limit, "10000", "10001")
}

// TestPredicateClasses holds the faults of relation predicates that the recorded cases leave out.
func TestPredicateClasses(t *testing.T) {
	for _, tt := range []struct {
		name, condition string
		class           model.Class
		words           []string
	}{
		{"null", `{"lines":null}`, model.RelationPredicate, []string{"Item.lines"}},
		{"an array", `{"lines":[]}`, model.RelationPredicate, nil},
		{"a filter alone", `{"lines":{"$filter":{"qty":1}}}`, model.RelationPredicate, nil},
		{"a filter that is no object", `{"lines":{"$filter":1,"$exists":true}}`, model.RelationPredicate, nil},
		{"a filter with an unknown operator", `{"lines":{"$filter":{"qty":{"$size":1}},"$exists":true}}`, model.UnsupportedOp, []string{"qty"}},
		{"a filter with an unknown field", `{"lines":{"$filter":{"qt":1},"$exists":true}}`, model.RelationPredicate, []string{"qt", "qty", "!cost"}},
		{"a filter by an unreadable field", `{"lines":{"$filter":{"cost":"1"},"$exists":true}}`, model.Denied, []string{"Line.cost"}},
		{"an operand that is unreadable", `{"lines":{"$max":{"$of":"cost","$gt":1}}}`, model.Denied, []string{"Line.cost"}},
		{"an unreadable operand in the long form", `{"lines":{"agg":{"a":{"$max":"cost"}},"having":{"a":1}}}`, model.Denied, nil},
		{"a sum of text", `{"lines":{"$sum":{"$of":"note","$gt":1}}}`, model.RelationPredicate, []string{"note"}},
		{"a smallest text", `{"lines":{"$min":{"$of":"note","$lt":"b"}}}`, "", nil},
		{"a count of a text for a number", `{"lines":{"$count":{"$gt":"two"}}}`, model.RelationPredicate, nil},
		{"a count compared with null", `{"lines":{"$count":{"$gt":null}}}`, model.RelationPredicate, nil},
		{"an unknown comparison", `{"lines":{"$count":{"$like":1}}}`, model.RelationPredicate, []string{"$like"}},
		{"both forms", `{"lines":{"$exists":true,"having":{}}}`, model.RelationPredicate, nil},
		{"having without an alias", `{"lines":{"agg":{"n":{"$count":"*"}},"having":{"$or":[{}]}}}`, model.RelationPredicate, nil},
		{"not in having", `{"lines":{"agg":{"n":{"$count":"*"}},"having":{"$not":{"n":1}}}}`, model.RelationPredicate, nil},
		{"groups in having", `{"lines":{"agg":{"n":{"$count":"*"},"q":{"$sum":"qty"}},"having":{"$or":[{"n":1},{"$nor":[{"q":{"$gt":2}}]}]}}}`, "", nil},
		{"an alias that is no name", `{"lines":{"agg":{"n\"":{"$count":"*"}},"having":{"n\"":1}}}`, model.RelationPredicate, nil},
		{"a barred relation", `{"barred":{"$exists":true}}`, model.Denied, []string{"Item.barred"}},
		{"a barred relation in wrong words", `{"barred":1}`, model.Denied, nil},
		{"a relation to an unreadable model", `{"audits":{"$exists":true}}`, model.Denied, nil},
		{"a composite key as a filter", `{"lines":{"$filter":{"_id":"[\"1\",\"i1\"]"},"$exists":true}}`, "", nil},
		{"a composite key as an operand", `{"lines":{"$max":{"$of":"_id","$gt":"x"}}}`, model.RelationPredicate, nil},
		{"a count of a composite key", `{"lines":{"$count":{"$of":"_id","$gt":1}}}`, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ask(t, shopPlanner(t, clerk, plan.Standard), "Item($condition:@c){ name }", `{"c":`+tt.condition+`}`)
			wantClass(t, err, tt.class, tt.words...)
		})
	}
}

// TestSelectionClasses holds what a selection may name, for the clerk.
func TestSelectionClasses(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		class      model.Class
		words      []string
	}{
		{"everything that is his", "Item { name, stock, size, size.w, raw.anything, tags, free, sold, orders, label, risk, lines { qty }, owner { name } }", "", nil},
		{"unreadable fields and columns go", "Item { secret, bossSold, size.h, size { h } }", "", nil},
		{"a mistyped field", "Item { nam }", model.UnknownField, []string{"nam", "name", "!secret"}},
		{"a mistyped column", "Item { solt }", model.UnknownField, []string{"sold"}},
		{"a mistyped relation", "Item { linez { qty } }", model.UnknownRelation, []string{"lines", "!barred"}},
		{"a relation alone", "Item { lines }", model.UnknownField, []string{"Item.lines", "lines { _id }"}},
		{"a path through a relation", "Item { owner.name }", model.UnknownField, []string{"owner { name }"}},
		{"a field with a block", "Item { name { x } }", model.UnknownRelation, []string{"Item.name"}},
		{"a column with a block", "Item { sold { x } }", model.UnknownRelation, nil},
		{"an unreadable field with a block", "Item { secret { x } }", model.UnknownRelation, []string{"!string"}},
		{"an object with arguments", "Item { size($limit:@one) { w } }", model.UnknownRelation, []string{"Item.size"}},
		{"an object with an empty block", "Item { size { } }", model.UnknownField, []string{"w", "!h,"}},
		{"an unknown sub-field", "Item { size { x } }", model.UnknownField, []string{"Item.size", "x"}},
		{"a block inside an object", "Item { size { w { x } } }", model.UnknownRelation, nil},
		{"a path into a text", "Item { name.x }", model.UnknownField, nil},
		{"a path into an array", "Item { tags.0 }", model.UnknownField, nil},
		{"a barred relation", "Item { barred { qty } }", model.Denied, []string{"Item.barred"}},
		{"a relation to an unreadable model", "Item { audits { _id } }", model.Denied, []string{"Item.audits", "!Audit"}},
		{"deep inside", "Person { items { lines { item { audits { _id } } } } }", model.Denied, nil},
		{"a column over an unreadable model", "Item { auditCount }", model.Denied, []string{"!Audit", "!audits"}},
		{"a column over an unreadable field", "Item { costs }", model.Denied, []string{"Item.costs", "!Line"}},
		{"a function over an unreadable model", "Item { auditText }", model.Denied, nil},
		{"a relation to a hidden model", "Item { hid { v } }", model.UnknownRelation, []string{"!Hid."}},
		{"a relation to a hidden model, alone", "Item { hid }", model.UnknownField, nil},
		{"a relation to no model", "Item { ghost { v } }", model.UnknownRelation, []string{"!Nowhere"}},
		{"a relation twice with the same arguments", "Item { lines { qty }, lines { note } }", "", nil},
		{"a relation twice with others", "Item { lines { qty }, lines($limit:@one) { note } }", model.Parse, []string{"lines"}},
		{"a hidden model", "Hid { v }", model.UnknownModel, []string{"Hid"}},
		{"an unreadable model", "Audit { text }", model.Denied, nil},
		{"a model that does not exist", "Itm { v }", model.UnknownModel, []string{"Itm", "Item", "!Audit", "!Hid"}},
		{"a table without a key", "Loose { a, b, c }", "", nil},
		{"the key of one", "Loose { _id }", model.UnknownField, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			who := clerk
			_, err := ask(t, shopPlanner(t, who, plan.Standard), tt.text, `{"one":1}`)
			wantClass(t, err, tt.class, tt.words...)
		})
	}
	t.Run("leniently", func(t *testing.T) {
		p := shopPlanner(t, clerk, plan.Standard)
		p.Lenient = true
		q, err := ask(t, p, "Item { nosuch, name, owner.name, size.x }", "")
		wantClass(t, err, "")
		if n := len(q.Root.Shape.Items); n != 1 {
			t.Errorf("%d members are shown, want name alone", n)
		}
	})
}

// TestUnknownAndHiddenAlike holds that a hidden model and one that does not exist are refused in the same words.
func TestUnknownAndHiddenAlike(t *testing.T) {
	p := shopPlanner(t, clerk, plan.Standard)
	for _, form := range []string{"%s { v }", "Item { %s { v } }", "Item { %s }"} {
		hidden, nothing := "Hid", "Hix"
		if form != "%s { v }" {
			hidden, nothing = "hid", "aid" // equally near to _id
		}
		_, a := ask(t, p, strings.ReplaceAll(form, "%s", hidden), "")
		_, b := ask(t, p, strings.ReplaceAll(form, "%s", nothing), "")
		if a == nil || b == nil || strings.ReplaceAll(a.Error(), hidden, nothing) != b.Error() {
			t.Errorf("%s\n hidden:  %v\n nothing: %v", form, a, b)
		}
	}
}

// TestSortClasses holds what a sort may name, for the clerk.
func TestSortClasses(t *testing.T) {
	for _, tt := range []struct {
		name, sort string
		class      model.Class
		words      []string
	}{
		{"fields", `{"stock":-1,"name":1.0}`, "", nil},
		{"an array", `[{"stock":-1},{"name":1}]`, "", nil},
		{"nothing", `{}`, "", nil},
		{"an array with two keys in one", `[{"stock":-1,"name":1}]`, model.BadSort, nil},
		{"an array of words", `["stock"]`, model.BadSort, nil},
		{"a word as the direction", `{"stock":"asc"}`, model.BadSort, []string{"stock", `"asc"`}},
		{"zero", `{"stock":0}`, model.BadSort, nil},
		{"minus two", `{"stock":-2}`, model.BadSort, nil},
		{"true", `{"stock":true}`, model.BadSort, nil},
		{"a number", `1`, model.BadSort, nil},
		{"a mistyped field", `{"stok":1}`, model.UnknownField, []string{"stock", "!secret"}},
		{"an unreadable field", `{"secret":1}`, model.Denied, nil},
		{"an aggregate column", `{"sold":1}`, "", nil},
		{"an unreadable column", `{"bossSold":1}`, model.Denied, nil},
		{"a column over an unreadable model", `{"auditCount":1}`, model.Denied, nil},
		{"a column over an unreadable field", `{"costs":1}`, model.Denied, nil},
		{"a function", `{"label":1}`, model.UnknownField, nil},
		{"an array field", `{"tags":1}`, model.Pushdown, []string{"$sort", "tags"}},
		{"an object field", `{"size":1}`, model.Pushdown, nil},
		{"into an array", `{"tags.0":1}`, model.Pushdown, nil},
		{"into an object", `{"size.w":1}`, model.ObjectSort, nil},
		{"into a text", `{"name.x":1}`, model.UnknownField, nil},
		{"a relation", `{"owner":1}`, model.Pushdown, nil},
		{"through a relation of many", `{"lines.qty":1}`, model.Pushdown, nil},
		{"through a relation that is not selected", `{"latest.qty":1}`, model.Pushdown, []string{"latest { qty }"}},
		{"through one that is", `{"owner.name":1}`, "", nil},
		{"to an unknown field", `{"owner.nam":1}`, model.UnknownField, []string{"name"}},
		{"to an unreadable field", `{"latest.cost":1}`, model.Denied, nil},
		{"through a barred relation", `{"barred.qty":1}`, model.Denied, nil},
		{"through a hidden model", `{"hid.v":1}`, model.UnknownField, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ask(t, shopPlanner(t, clerk, plan.Standard), "Item($sort:@s){ name, owner { name } }", `{"s":`+tt.sort+`}`)
			wantClass(t, err, tt.class, tt.words...)
		})
	}
}

// TestGroupClasses holds what groups may name, for the clerk.
func TestGroupClasses(t *testing.T) {
	for _, tt := range []struct {
		name, group, having, sort, items string
		class                            model.Class
		words                            []string
	}{
		{"keys and aggregates", `{"by":["name"],"agg":{"n":{"$count":"*"},"s":{"$sum":"price"}}}`, `{"n":{"$gt":1},"name":{"$regex":"a"}}`, `{"s":-1}`, "name, n, s", "", nil},
		{"a to-one path", `{"by":["owner.name"],"agg":{"n":{"$count":"*"}}}`, `{}`, `{"owner.name":1}`, "owner.name, n", "", nil},
		{"an unreadable path", `{"by":["latest.cost"]}`, `{}`, `{}`, "latest.cost", model.Denied, nil},
		{"an unknown path", `{"by":["owner.nam"]}`, `{}`, `{}`, "a", model.Group, []string{"name"}},
		{"a path of many", `{"by":["lines.qty"]}`, `{}`, `{}`, "a", model.Group, []string{"Line"}},
		{"a path through a barred relation", `{"by":["barred.qty"]}`, `{}`, `{}`, "a", model.Denied, nil},
		{"a path through a hidden model", `{"by":["hid.v"]}`, `{}`, `{}`, "a", model.Group, nil},
		{"an unreadable key", `{"by":["secret"]}`, `{}`, `{}`, "secret", model.Denied, nil},
		{"an unreadable operand", `{"agg":{"m":{"$max":"secret"}}}`, `{}`, `{}`, "m", model.Denied, nil},
		{"an unreadable operand of count", `{"agg":{"m":{"$count":"secret"}}}`, `{}`, `{}`, "m", model.Denied, nil},
		{"a computed key", `{"by":["sold"]}`, `{}`, `{}`, "sold", model.Group, nil},
		{"a path into an object", `{"by":["size.w"]}`, `{}`, `{}`, "a", model.Group, []string{"size.w"}},
		{"an unknown member", `{"by":["name"],"sum":1}`, `{}`, `{}`, "name", model.Group, []string{"sum"}},
		{"an alias like a key", `{"by":["name"],"agg":{"name":{"$count":"*"}}}`, `{}`, `{}`, "name", model.Group, nil},
		{"an alias that is no name", `{"agg":{"n; drop":{"$count":"*"}}}`, `{}`, `{}`, "n", model.Group, nil},
		{"an operand that is no text", `{"agg":{"n":{"$count":1}}}`, `{}`, `{}`, "n", model.Group, nil},
		{"agg that is no object", `{"agg":[]}`, `{}`, `{}`, "n", model.Group, nil},
		{"a word in having", `{"agg":{"n":{"$count":"*"}}}`, `{"n":"many"}`, `{}`, "n", model.Having, nil},
		{"an unknown operator in having", `{"agg":{"n":{"$count":"*"}}}`, `{"n":{"$size":1}}`, `{}`, "n", model.Having, []string{"$size"}},
		{"an empty group in having", `{"agg":{"n":{"$count":"*"}}}`, `{"$or":[]}`, `{}`, "n", model.Having, nil},
		{"not in having", `{"agg":{"n":{"$count":"*"}}}`, `{"$not":{"n":1}}`, `{}`, "n", model.Having, nil},
		{"a direction that is none", `{"by":["name"]}`, `{}`, `{"name":2}`, "name", model.BadSort, nil},
		{"a mistyped alias", `{"by":["name"],"agg":{"total":{"$count":"*"}}}`, `{}`, `{}`, "name, totl", model.Group, []string{"total"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			params := `{"g":` + tt.group + `,"h":` + tt.having + `,"s":` + tt.sort + `}`
			_, err := ask(t, shopPlanner(t, clerk, plan.Standard), "Item($group:@g,$having:@h,$sort:@s){ "+tt.items+" }", params)
			wantClass(t, err, tt.class, tt.words...)
		})
	}
	_, err := ask(t, shopPlanner(t, clerk, plan.Standard), "Line($group:@g){ _id }", `{"g":{"by":["_id"]}}`)
	wantClass(t, err, model.Group, "several columns")
}

// TestCallers holds who gets anything at all.
func TestCallers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		who     *model.Context
		profile plan.Profile
		class   model.Class
	}{
		{"a clerk", clerk, plan.Standard, ""},
		{"a stranger", stranger, plan.Standard, model.Denied},
		{"nobody", nil, plan.Standard, model.NoContext},
		{"nobody in the sandbox", nil, plan.TextToQuery, model.Sandbox},
		{"an internal call in the sandbox", &model.Context{Internal: true}, plan.TextToQuery, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := shopPlanner(t, tt.who, tt.profile)
			_, err := ask(t, p, "Item { name }", "")
			wantClass(t, err, tt.class)
			_, err = p.Count("Item", canonjson.Value{})
			wantClass(t, err, tt.class)
			_, err = p.Exists("Item", canonjson.Null())
			wantClass(t, err, tt.class)
		})
	}
	_, err := shopPlanner(t, nil, plan.Standard).Count("Nosuch", canonjson.Value{})
	wantClass(t, err, model.NoContext, "!Nosuch", "!Item")
}

// TestHintsAreTheCallers holds that no message names what the caller may not see: everything is asked wrongly, and the
// secret words never come back.
func TestHintsAreTheCallers(t *testing.T) {
	p := shopPlanner(t, clerk, plan.Standard)
	for _, text := range []string{
		"Xyz { a }", "Item { zzz }", "Item { zzz { a } }", "Item { size { zzz } }", "Item($condition:@c)", "Item($condition:@d)", "Item($condition:@e)",
		"Item($sort:@c)", "Item($group:@g){ zzz }", "Item($group:@h){ zzz }", "Item { lines { zzz } }", "Item { lines($condition:@c) }", "Item { lines($sort:@c) }",
	} {
		_, err := ask(t, p, text, `{"c":{"zzz":1},"d":{"zzz.a":1},"e":{"lines":{"$sum":{"$of":"zzz","$gt":1}}},"g":{"by":["zzz"]},"h":{"agg":{"n":{"$max":"zzz"}}}}`)
		if err == nil {
			t.Errorf("%s is taken", text)
			continue
		}
		for _, secret := range []string{"secret", "bossSold", "barred", "cost", "Audit", "audits", "auditCount", "costs", "Hid", "hid", "Nowhere", "ghost"} {
			if strings.Contains(strings.ReplaceAll(err.Error(), "hidId", ""), secret) {
				t.Errorf("%s: the message names %s: %v", text, secret, err)
			}
		}
	}
}

// TestLimitsOfProfiles holds ceilings and windows.
func TestLimitsOfProfiles(t *testing.T) {
	for _, tt := range []struct {
		name    string
		profile plan.Profile
		args    string
		params  string
		limit   int64
		peek    bool
	}{
		{"none", plan.Standard, "", "", -1, false},
		{"his own", plan.Standard, "($limit:@l)", `{"l":7}`, 7, false},
		{"zero", plan.Standard, "($limit:@l)", `{"l":0}`, 0, false},
		{"the ceiling", plan.Served, "", "", 10_000, true},
		{"his own below the ceiling", plan.Served, "($limit:@l)", `{"l":7}`, 7, false},
		{"his own above it", plan.Served, "($limit:@l)", `{"l":20000}`, 10_000, true},
		{"zero under a ceiling", plan.Served, "($limit:@l)", `{"l":0}`, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, err := ask(t, shopPlanner(t, clerk, tt.profile), "Item"+tt.args+"{ name }", tt.params)
			if err != nil {
				t.Fatal(err)
			}
			if q.Root.Limit != tt.limit || q.Root.Peek != tt.peek {
				t.Errorf("limit %d peek %v, want %d %v", q.Root.Limit, q.Root.Peek, tt.limit, tt.peek)
			}
		})
	}
	for _, bad := range []string{`-1`, `1.5`, `"1"`, `true`, `[1]`, `1e300`} {
		for _, arg := range []string{"$limit", "$skip"} {
			_, err := ask(t, shopPlanner(t, clerk, plan.Standard), "Item("+arg+":@l)", `{"l":`+bad+`}`)
			wantClass(t, err, model.BadLimit, arg)
			_, err = ask(t, shopPlanner(t, clerk, plan.Standard), "Item{ lines("+arg+":@l) }", `{"l":`+bad+`}`)
			wantClass(t, err, model.BadLimit, arg)
		}
	}
}

// TestDepth holds how deep relations go in each profile.
func TestDepth(t *testing.T) {
	chain := func(n int, args string) string {
		text := "name"
		for i := range n {
			name := []string{"items", "owner"}[(n-i-1)%2]
			if text == "name" {
				text = name + args + " { _id }"
			} else {
				text = name + args + " { " + text + " }"
			}
		}
		return "Person { " + text + " }"
	}
	for _, tt := range []struct {
		profile plan.Profile
		depth   int
		args    string
		class   model.Class
	}{
		{plan.Standard, 10, "", ""},
		{plan.Standard, 11, "", model.Depth},
		{plan.TextToQuery, 3, "", ""},
		{plan.TextToQuery, 4, "", model.Sandbox},
		{plan.Standard, 4, "($limit:@l)", ""},
		{plan.Standard, 5, "($limit:@l)", model.Depth},
		{plan.Standard, 5, "($skip:@l)", model.Depth},
		{plan.Standard, 5, "($limit:@none)", ""},
	} {
		t.Run(tt.profile.Name+strconv.Itoa(tt.depth)+tt.args, func(t *testing.T) {
			_, err := ask(t, shopPlanner(t, &model.Context{Roles: []string{"admin"}}, tt.profile), chain(tt.depth, tt.args), `{"l":1,"none":null}`)
			wantClass(t, err, tt.class)
		})
	}
}

// TestOtherSource holds that relations into another database are refused.
func TestOtherSource(t *testing.T) {
	p := shopPlanner(t, clerk, plan.Standard)
	p.SameSource = func(a, b *model.Model) bool { return b.Name != "Line" }
	for _, text := range []string{"Item { lines { qty } }", "Item { sold }", "Item($condition:@c)"} {
		_, err := ask(t, p, text, `{"c":{"lines":{"$exists":true}}}`)
		wantClass(t, err, model.Unsupported, "another database")
	}
	_, err := ask(t, p, "Item { owner { name } }", "")
	wantClass(t, err, "")
}

// TestRowLimitsEverywhere holds that a caller who may read only his own rows of a model meets that limit wherever its rows
// have an effect.
func TestRowLimitsEverywhere(t *testing.T) {
	plain := func(q *plan.Query) plan.Cond { return q.Root.Where }
	for _, tt := range []struct {
		name, text string
		where      func(*plan.Query) plan.Cond
	}{
		{"the root", "Person { name }", plain},
		{"a group", "Person($group:@g) { n }", plain},
		{"a relation block", "Item { owner { name } }", func(q *plan.Query) plan.Cond { return q.Root.Kids[0].Block.Where }},
		{"a predicate", "Item($condition:@c)", func(q *plan.Query) plan.Cond { return q.Root.Where.(plan.Exists).Where }},
		{"an aggregate column", "Item { ownerCount }", func(q *plan.Query) plan.Cond { return q.Root.Aggs[0].Where }},
		{"a sort by an aggregate column", "Item($sort:@a)", func(q *plan.Query) plan.Cond { return q.Root.Order[0].By.Agg.Where }},
		{"a sort through a relation", "Item($sort:@s){ owner { name } }", func(q *plan.Query) plan.Cond { return q.Root.Order[0].By.Via.Where }},
		{"a group key through a relation", "Item($group:@v){ owner.name }", func(q *plan.Query) plan.Cond { return q.Root.Group.By[0].Operand.Via.Where }},
		{"rows for a function", "Item { ownerText }", func(q *plan.Query) plan.Cond { return q.Root.Kids[0].Block.Where }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			params := `{"g":{"agg":{"n":{"$count":"*"}}},"c":{"owner":{"$exists":true}},"a":{"ownerCount":1},"s":{"owner.name":1},"v":{"by":["owner.name"]}}`
			q, err := ask(t, shopPlanner(t, clerk, plan.Standard), tt.text, params)
			if err != nil {
				t.Fatal(err)
			}
			wantOwn(t, tt.where(q), "c1")
			free, err := ask(t, shopPlanner(t, &model.Context{UserID: "c1", Roles: []string{"boss"}}, plan.Standard), tt.text, params)
			if err != nil {
				t.Fatal(err)
			}
			if c := tt.where(free); c != nil {
				t.Errorf("who may read all rows is limited to %v", c)
			}
		})
	}
	for _, make := range []func(string, canonjson.Value) (*plan.Query, error){shopPlanner(t, clerk, plan.Standard).Count, shopPlanner(t, clerk, plan.Standard).Exists} {
		q, err := make("Person", canonjson.Value{})
		if err != nil {
			t.Fatal(err)
		}
		wantOwn(t, q.Root.Where, "c1")
	}
}

// wantOwn checks that a condition is createdBy = user.
func wantOwn(t *testing.T, c plan.Cond, user string) {
	t.Helper()
	cmp, ok := c.(plan.Compare)
	if !ok || cmp.By.Field.Name != "createdBy" || cmp.Op != plan.EQ || cmp.Value.Str() != user {
		t.Errorf("the limit is %v, want createdBy = %q", c, user)
	}
}

// TestFunctionsReadWhatTheyNeed holds that a function's fields are read although the caller may not see them, and are not
// shown.
func TestFunctionsReadWhatTheyNeed(t *testing.T) {
	q, err := ask(t, shopPlanner(t, clerk, plan.Standard), "Item { label, risk, lines($limit:@one) { qty } }", `{"one":1}`)
	if err != nil {
		t.Fatal(err)
	}
	names := func(fields []*model.Field) string {
		var b strings.Builder
		for _, f := range fields {
			b.WriteString(f.Name + " ")
		}
		return b.String()
	}
	if got := names(q.Root.Columns); got != "_id name secret stock " {
		t.Errorf("columns %s", got)
	}
	if len(q.Root.Kids) != 2 || !q.Root.Kids[0].Hidden || q.Root.Kids[1].Hidden {
		t.Fatalf("kids %+v", q.Root.Kids)
	}
	if hidden := q.Root.Kids[0].Block; hidden.Limit >= 0 || !strings.Contains(names(hidden.Columns), "cost ") {
		t.Errorf("the function's rows: limit %d, columns %s", hidden.Limit, names(hidden.Columns))
	}
	for _, item := range q.Root.Shape.Items {
		if item.Kid != nil && *item.Kid == 0 || item.Name == "secret" || item.Name == "stock" {
			t.Errorf("%s is shown", item.Name)
		}
	}
}

// TestTotalsAndFirst holds what the calls beside query add.
func TestTotalsAndFirst(t *testing.T) {
	p := shopPlanner(t, clerk, plan.Served)
	bound := func(text, params string) *gql.Bound {
		q, err := gql.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		b, err := q.Bind(jsonValue(t, params))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	q, err := p.QueryWithCount(bound("Item { name }", ""))
	if err != nil || !q.Total || !q.Rows {
		t.Errorf("with a total: %+v, %v", q, err)
	}
	_, err = p.QueryWithCount(bound("Item($condition:@c)", `{"c":{"lines":{"$exists":true}}}`))
	wantClass(t, err, model.RelationPredicate)
	for text, limit := range map[string]int64{"Item": 1, "Item($limit:@l)": 5} {
		q, err := p.Query(bound(text, `{"l":5}`))
		if err != nil {
			t.Fatal(err)
		}
		if q.First(); q.Root.Limit != limit || q.Root.Peek {
			t.Errorf("%s: the first of %d rows", text, q.Root.Limit)
		}
	}
	n, err := p.Count("Item", jsonValue(t, `{"stock":{"$gt":1}}`))
	if err != nil || !n.Total || n.Rows {
		t.Errorf("count: %+v, %v", n, err)
	}
	e, err := p.Exists("Loose", canonjson.Value{})
	if err != nil || !e.Rows || e.Root.Limit != 1 || len(e.Root.Columns) != 1 {
		t.Errorf("exists: %+v, %v", e, err)
	}
	for _, fault := range []struct {
		condition string
		class     model.Class
	}{{`{"nosuch":1}`, model.UnknownField}, {`{"secret":1}`, model.Denied}, {`[]`, model.BadFilter}, {`{"lines":{"$exists":true}}`, model.RelationPredicate}, {`{"$where":1}`, model.ForbiddenOp}} {
		_, err := p.Count("Item", jsonValue(t, fault.condition))
		wantClass(t, err, fault.class)
		_, err = p.Exists("Item", jsonValue(t, fault.condition))
		wantClass(t, err, fault.class)
	}
}
