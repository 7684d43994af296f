//go:build unix

package injection

import (
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
	"github.com/tabellion-mcp/tabellion/model/tools"
)

// definitions are orders with every type, in the form of the reference (with an archive), and lines in a table of another
// form, with a key of two columns.
const definitions = `[
 {"name":"Order","collection":"orders","idPrefix":"OR","read":["clerk"],"write":["clerk"],
  "fields":{"_id":"string","title":"string","price":"double","qty":"int","total":"long","paid":"boolean","at":"timestamp","day":"day","ref":"uuid","amount":"decimal",
   "data":"bytes","tags":"array","meta":{"type":"object","fields":{"level":"int","lang":"string"}},"free":"any","note":"string","state":{"type":"string","enum":["open","done"]},"customerId":"string","secret":{"type":"string","read":["boss"]}},
  "relations":{"lines":{"model":"Line","type":"many","localField":"_id","foreignField":"orderId"},"customer":{"model":"Customer","type":"one","localField":"customerId","foreignField":"_id"}},
  "computes":{"lineCount":{"type":"int","agg":{"$count":"lines"}},"most":{"type":"int","agg":{"$max":"lines.pieces"}}}},
 {"name":"Customer","collection":"customers","read":["clerk"],"write":["clerk"],"fields":{"_id":"string","name":"string"},
  "relations":{"orders":{"model":"Order","type":"many","localField":"_id","foreignField":"customerId"}}},
 {"name":"Line","table":"lines","key":["order_id","no"],"timestamps":false,"archive":false,"read":["clerk"],"write":["clerk"],
  "fields":{"orderId":{"type":"string","column":"order_id"},"no":"int","pieces":"int","note":"string"},"relations":{"order":{"model":"Order","type":"one","localField":"orderId","foreignField":"_id"}}}
]`

// seed are the rows.
const seed = `{
 "Customer":[{"_id":"c1","name":"Ada"},{"_id":"c2","name":"Bo"}],
 "Order":[
  {"_id":"o1","title":"first","price":1.5,"qty":1,"total":10,"paid":true,"at":"2024-01-31T12:00:00Z","day":"2024-01-31","ref":"123e4567-e89b-12d3-a456-426614174000","amount":"1.50","data":"YWJj","tags":["a"],"meta":{"level":1,"lang":"en"},"free":{"x":1},"note":"n1","state":"open","customerId":"c1","secret":"s1"},
  {"_id":"o2","title":"second","price":2.5,"qty":2,"total":20,"paid":false,"note":"n2","state":"done","customerId":"c1"},
  {"_id":"o3","title":"third","price":3.5,"qty":3,"total":30,"paid":false,"note":"n3","customerId":"c2"}],
 "Line":[{"orderId":"o1","no":1,"pieces":5,"note":"l1"},{"orderId":"o1","no":2,"pieces":6,"note":"l2"},{"orderId":"o2","no":1,"pieces":7,"note":"l3"}]
}`

// clerk is the caller: he may read and write everything but secret.
var clerk = site.Who{User: "ana", Roles: []string{"clerk"}}

// world is one database behind the two surfaces.
type world struct {
	*site.Place
	perModel, generic *site.Site
}

// newWorld makes the tables and both surfaces over them. The connection for reading is as strong as the one for writing.
func newWorld(t *testing.T, p *site.Place) *world {
	t.Helper()
	w := &world{Place: p}
	w.perModel = site.New(t, p, site.Config{Definitions: definitions, Seed: seed})
	w.generic = site.New(t, p, site.Config{Definitions: definitions, Tables: true, Surface: tools.Generic})
	p.Sent() // looking at tables at the start is not what callers bring about
	return w
}

// surface is the one that has a tool.
func (w *world) surface(tool string) *site.Site {
	if strings.Contains(tool, "_") && !strings.HasPrefix(tool, "model_") || tool == "query" {
		return w.perModel
	}
	return w.generic
}

// position is a place for a hostile string in a call.
type position struct {
	name, tool string
	args       func(s string) string // JSON text of the arguments
	want       want
}

// want is what an answer may be.
type want int

// The outcomes. A string that is well formed where it stands may succeed: fine tells which.
const (
	refusal want = iota // a name or text that does not exist: refused
	nothing             // a value that no row holds: refused, or no row
	whole               // anything but a failure: the value is no test of rows
)

// q is a string as JSON text.
func q(s string) string { return site.Quote(s) }

// in puts the JSON text of a string into a form that has one %s, or several.
func in(form string) func(string) string {
	return func(s string) string { return strings.ReplaceAll(form, "%s", q(s)) }
}

// text builds a query text around a string.
func text(before, after, params string) func(string) string {
	return func(s string) string { return `{"gql":` + q(before+s+after) + `,"params":` + params + `}` }
}

// params builds the parameters of a fixed query.
func params(gql, form string) func(string) string {
	return func(s string) string {
		return `{"gql":` + q(gql) + `,"params":` + strings.ReplaceAll(form, "%s", q(s)) + `}`
	}
}

// reads are the positions of calls that only read.
func reads() []position {
	const list = "Order($condition: @c) { title }"
	const sort = "Order($sort: @c) { title }"
	const group = "Order($group: @c) { zalias }"
	const having = "Order($group: @g, $having: @c) { zalias }"
	const grouped = `"g":{"by":["state"],"agg":{"zalias":{"$count":"*"}}}`
	out := []position{
		{"gql: the whole", "query", text("", "", "{}"), refusal},
		{"gql: model", "query", text("", " { title }", "{}"), refusal},
		{"gql: behind the model", "query", text("Order", " { title }", "{}"), refusal},
		{"gql: field", "query", text("Order { title, ", " }", "{}"), refusal},
		{"gql: relation", "query", text("Order { ", " { note } }", "{}"), refusal},
		{"gql: field of a relation", "query", text("Order { lines { ", " } }", "{}"), refusal},
		{"gql: sub-field", "query", text("Order { meta { ", " } }", "{}"), refusal},
		{"gql: path", "query", text("Order { meta.", " }", "{}"), refusal},
		{"gql: argument", "query", text("Order(", ": @c) { title }", `{"c":{}}`), refusal},
		{"gql: reference", "query", text("Order($condition: @", ") { title }", `{"c":{}}`), refusal},
		{"gql: literal", "query", text("Order($condition: ", ") { title }", `{"c":{}}`), refusal},
		{"gql: argument of a relation", "query", text("Order { lines(", ": @c) { note } }", `{"c":{}}`), refusal},
		{"gql: behind the block", "query", text("Order { title } ", "", "{}"), refusal},
		{"gql: between", "query", text("Order ", " -> { title }", "{}"), refusal},
		{"params: another name", "query", params("Order { title }", `{%s:1}`), whole},
		{"params: the condition", "query", params(list, `{"c":%s}`), refusal},
		{"condition: key", "query", params(list, `{"c":{%s:1}}`), refusal},
		{"condition: key of null", "query", params(list, `{"c":{%s:null}}`), refusal},
		{"condition: key of $exists", "query", params(list, `{"c":{%s:{"$exists":true}}}`), refusal},
		{"condition: key inside $or", "query", params(list, `{"c":{"$or":[{%s:1},{"title":"a"}]}}`), refusal},
		{"condition: operator", "query", params(list, `{"c":{"title":{%s:"a"}}}`), refusal},
		{"condition: group", "query", params(list, `{"c":{%s:[{"title":"a"}]}}`), refusal},
		{"condition: $not", "query", params(list, `{"c":{"$not":{%s:{"$exists":true}}}}`), refusal},
		{"condition: regex", "query", params(list, `{"c":{"title":{"$regex":%s}}}`), whole},
		{"condition: flags", "query", params(list, `{"c":{"title":{"$regex":"a","$options":%s}}}`), whole},
		{"condition: of a relation", "query", params("Order { lines($condition: @c) { note } }", `{"c":{%s:1}}`), refusal},
		{"condition: value of a relation", "query", params("Order { lines($condition: @c) { note } }", `{"c":{"note":%s}}`), whole},
		{"predicate: key", "query", params(list, `{"c":{"lines":{%s:true}}}`), refusal},
		{"predicate: $of", "query", params(list, `{"c":{"lines":{"$sum":{"$of":%s,"$gt":1}}}}`), refusal},
		{"predicate: comparison", "query", params(list, `{"c":{"lines":{"$count":{%s:1}}}}`), refusal},
		{"predicate: value", "query", params(list, `{"c":{"lines":{"$count":{"$eq":%s}}}}`), nothing},
		{"predicate: filter key", "query", params(list, `{"c":{"lines":{"$filter":{%s:1},"$exists":true}}}`), refusal},
		{"predicate: filter value", "query", params(list, `{"c":{"lines":{"$filter":{"note":%s},"$exists":true}}}`), nothing},
		{"predicate: alias", "query", params(list, `{"c":{"lines":{"agg":{%s:{"$count":"*"}},"having":{%s:{"$lt":0}}}}}`), nothing},
		{"predicate: operand", "query", params(list, `{"c":{"lines":{"agg":{"zalias":{"$sum":%s}},"having":{"zalias":{"$lt":0}}}}}`), refusal},
		{"predicate: operation", "query", params(list, `{"c":{"lines":{"agg":{"zalias":{%s:"pieces"}},"having":{"zalias":{"$lt":0}}}}}`), refusal},
		{"predicate: having key", "query", params(list, `{"c":{"lines":{"agg":{"zalias":{"$count":"*"}},"having":{%s:{"$lt":0}}}}}`), refusal},
		{"sort: the whole", "query", params(sort, `{"c":%s}`), refusal},
		{"sort: key", "query", params(sort, `{"c":{%s:1}}`), refusal},
		{"sort: direction", "query", params(sort, `{"c":{"title":%s}}`), refusal},
		{"sort: key in an array", "query", params(sort, `{"c":[{%s:-1}]}`), refusal},
		{"sort: path", "query", params("Order($sort: @c) { title, customer { name } }", `{"c":{%s:1}}`), refusal},
		{"sort: of a relation", "query", params("Order { lines($sort: @c) { note } }", `{"c":{%s:1}}`), refusal},
		{"limit", "query", params("Order($limit: @c) { title }", `{"c":%s}`), refusal},
		{"skip", "query", params("Order($skip: @c) { title }", `{"c":%s}`), refusal},
		{"group: the whole", "query", params(group, `{"c":%s}`), refusal},
		{"group: key", "query", params(group, `{"c":{"by":[%s],"agg":{"zalias":{"$count":"*"}}}}`), refusal},
		{"group: member", "query", params(group, `{"c":{%s:["state"],"agg":{"zalias":{"$count":"*"}}}}`), refusal},
		{"group: alias", "query", params(group, `{"c":{"by":["state"],"agg":{%s:{"$count":"*"},"zalias":{"$count":"*"}}}}`), whole},
		{"group: alias alone", "query", func(s string) string {
			return `{"gql":` + q("Order($group: @c, $sort: @s) { "+s+" }") + `,"params":` + in(`{"c":{"agg":{%s:{"$count":"*"}}},"s":{%s:-1}}`)(s) + `}`
		}, whole},
		{"group: operand", "query", params(group, `{"c":{"agg":{"zalias":{"$sum":%s}}}}`), refusal},
		{"group: operation", "query", params(group, `{"c":{"agg":{"zalias":{%s:"qty"}}}}`), refusal},
		{"group: sort", "query", params("Order($group: @g, $sort: @c) { zalias }", `{"c":{%s:1},`+grouped+`}`), refusal},
		{"having: key", "query", params(having, `{"c":{%s:1},`+grouped+`}`), refusal},
		{"having: operator", "query", params(having, `{"c":{"zalias":{%s:1}},`+grouped+`}`), refusal},
		{"having: value", "query", params(having, `{"c":{"zalias":%s},`+grouped+`}`), nothing},
		{"having: text value", "query", params("Order($group: @g, $having: @c) { state }", `{"c":{"state":%s},`+grouped+`}`), nothing},

		{"list: q", "list_Order", in(`{"q":%s}`), refusal},
		{"list: field in q", "list_Order", func(s string) string { return `{"q":` + q("{ title, "+s+" }") + `}` }, refusal},
		{"list: value", "list_Order", in(`{"q":"($condition: @c) { title }","params":{"c":{"title":%s}}}`), nothing},
		{"list: cursor", "list_Order", in(`{"cursor":%s}`), refusal},
		{"list: limit", "list_Order", in(`{"limit":%s}`), refusal},
		{"list: unknown argument", "list_Order", in(`{%s:1}`), refusal},
		{"list: params", "list_Order", in(`{"q":"{ title }","params":%s}`), refusal},
		{"get: id", "get_Order", in(`{"id":%s}`), nothing},
		{"get: id of two columns", "get_Line", in(`{"id":%s}`), nothing},
		{"get: part of an id of two columns", "get_Line", func(s string) string { return `{"id":` + q("["+q(s)+","+q(s)+"]") + `}` }, nothing},
		{"describe: argument", "describe_schemas", in(`{%s:1}`), refusal},

		{"generic list: model", "model_list", in(`{"model":%s}`), refusal},
		{"generic list: select", "model_list", in(`{"model":"Order","select":%s}`), refusal},
		{"generic list: condition key", "model_list", in(`{"model":"Order","condition":{%s:1}}`), refusal},
		{"generic list: condition value", "model_list", in(`{"model":"Order","condition":{"title":%s}}`), nothing},
		{"generic list: sort key", "model_list", in(`{"model":"Order","sort":{%s:1}}`), refusal},
		{"generic list: cursor", "model_list", in(`{"model":"Order","cursor":%s}`), refusal},
		{"generic get: model", "model_get", in(`{"model":%s,"id":"o1"}`), refusal},
		{"generic get: id", "model_get", in(`{"model":"Order","id":%s}`), nothing},
		{"generic get: select", "model_get", in(`{"model":"Order","id":"o1","select":%s}`), refusal},
	}
	for _, field := range []string{"_id", "title", "price", "qty", "total", "paid", "at", "day", "ref", "amount", "data", "tags", "meta", "free", "state", "customerId", "secret"} {
		for _, form := range []string{`%s`, `{"$in":[%s]}`, `{"$not":{"$ne":%s}}`} {
			out = append(out, position{"value of " + field + " in " + form, "query", params(list, `{"c":{"`+field+`":`+form+`}}`), nothing})
		}
	}
	for _, form := range []string{`{"$ne":%s}`, `{"$nin":[%s]}`, `{"$gt":%s}`, `{"$lte":%s}`, `{"$exists":%s}`} {
		out = append(out, position{"value of title in " + form, "query", params(list, `{"c":{"title":`+form+`}}`), whole})
	}
	return out
}

// rawValues are JSON values that are no strings, for the positions of values.
func rawValues() []string {
	return []string{
		`{"$ne":null}`, `{"$gt":""}`, `{"$where":"1"}`, `{"$function":{"body":"1"}}`, `{"a":{"$accumulator":1}}`, `{"$oid":"x"}`, `[]`, `["a"]`, `[[[]]]`, `{}`, `{"x":1}`, `null`, `true`, `1e308`, `-1e308`, `1e-400`, `9223372036854775807`, `9223372036854775808`, `123456789012345678901234567890`, MarkerNumber, `0.1`, `-0`, `"\ud800"`, `"\u0000"`, `{"":1}`, `{"\u0000":1}`, `{"a":1,"a":2}`,
	}
}

// fine tells whether a string is well formed in a position that otherwise refuses, or names a row: blank text, the name of
// something, a value.
func (p position) fine(s string) bool {
	if p.want == nothing {
		return s == "true" && strings.HasPrefix(p.name, "value of paid") || s == "1" && p.name == "predicate: value"
	}
	blank := strings.Trim(s, " \t\r\n\v\f,") == ""
	switch {
	case strings.HasPrefix(p.name, "gql: "), strings.Contains(p.name, "in q"), strings.Contains(p.name, "select"), p.name == "list: q":
		names := strings.Fields(strings.ReplaceAll(s, ",", " "))
		return blank || s == "{}" || s == "{title}" || !slices.ContainsFunc(names, func(n string) bool { return n != "title" && n != "meta.level" })
	case p.name == "condition: group":
		return slices.Contains([]string{"$and", "$or", "$nor"}, s)
	case p.name == "condition: operator":
		return slices.Contains([]string{"$ne", "$gt", "$regex", "$exists", "$not", "$in"}, s)
	case p.name == "having: operator":
		return slices.Contains([]string{"$ne", "$gt", "$exists", "$not"}, s)
	case p.name == "predicate: key":
		return s == "$exists"
	case p.name == "predicate: comparison":
		return s == "$ne" || s == "$gt"
	case p.name == "predicate: operation", p.name == "group: operation":
		return s == "$sum" || s == "$count"
	case p.name == "sort: path", p.name == "group: key":
		return s == "customer.name"
	}
	return false
}
