package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model/engine"
)

// authorDefinitions are the models of the bench, in the reference's own format, so that both serve one file.
const authorDefinitions = `[
  {"name": "Author", "collection": "authors", "idPrefix": "AU",
   "fields": {"_id": "string", "name": "string", "city": "string", "country": "string", "status": "string", "rank": "int", "score": "float"},
   "relations": {"books": {"model": "Book", "type": "many", "localField": "_id", "foreignField": "authorId"}},
   "computes": {"bookCount": {"type": "int", "agg": {"$count": "books"}}, "pageSum": {"type": "int", "agg": {"$sum": "books.pages"}}},
   "indexes": [{"keys": {"rank": 1}}]},
  {"name": "Book", "collection": "books", "idPrefix": "BK",
   "fields": {"_id": "string", "authorId": "string", "title": "string", "genre": "string", "pages": "int", "price": "float"},
   "indexes": [{"keys": {"authorId": 1, "price": -1}}]}
]`

// childrenOf is how many children a parent has.
const childrenOf = 5

// manyDocs is how many documents one insertMany writes.
const manyDocs = 100

// call is one call, with what each way needs of it. Kind is the name that it has in the reference's API.
type call struct {
	Kind      string
	GQL       string
	Params    canonjson.Value
	Model     string
	Data      canonjson.Value // of writes
	Condition canonjson.Value // of update
	ID        string          // of one row
	Tool      string          // over MCP; "" where no tool does this
	Args      []byte
}

// operation is one row of the tables.
type operation struct {
	name  string
	page  bool    // reads a page, whose cost must not grow with the table
	write bool    // changes rows
	aim   float64 // times the reference's rate; 0: none
	calls func(parents int) []call
	floor func(ctx context.Context, p plain, c call) ([]byte, error)
}

// modelOperations are all of them, reads first: writes change what reads would give.
func modelOperations() []operation {
	return []operation{
		{name: "get by id", page: true, aim: 5, calls: gets, floor: floorGet},
		{name: "list 20 sorted", page: true, aim: 5, calls: listing(20), floor: floorList},
		{name: "list 1000", page: true, aim: 5, calls: listing(1000), floor: floorList},
		{name: "20 parents, 5 children", page: true, calls: query("Author($sort: @s, $limit: @l) { name, books { title, price } }", ""), floor: floorChildren},
		{name: "20 parents, top 2 children", page: true, aim: 50,
			calls: query("Author($sort: @s, $limit: @l) { name, books($sort: @ps, $limit: @two) { title, price } }", `"ps": {"price": -1}, "two": 2`), floor: floorTop},
		{name: "20 with aggregate columns", page: true, aim: 50, calls: query("Author($sort: @s, $limit: @l) { name, bookCount, pageSum }", ""), floor: floorAggregates},
		{name: "20 by predicate", page: true, calls: query("Author($condition: @c, $sort: @s, $limit: @l) { name, rank }",
			`"c": {"books": {"$filter": {"price": {"$gte": 95}}, "$exists": true}}`), floor: floorPredicate},
		{name: "group by", calls: groups, floor: floorGroups},
		{name: "insert", write: true, calls: inserts, floor: floorInsert},
		{name: "insertMany 100", write: true, calls: manyInserts, floor: floorInsertMany},
		{name: "update", write: true, calls: updates, floor: floorUpdate},
	}
}

// value reads JSON of this file.
func value(text string) canonjson.Value {
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		panic(fmt.Sprint(err, ": ", text))
	}
	return v
}

// spread are ids from all over a table, in no order.
func spread(children int) []string {
	ids := make([]string, 997)
	for i := range ids {
		ids[i] = bookID(i * 7919 % children)
	}
	return ids
}

// gets find books by their ids.
func gets(parents int) []call {
	var out []call
	for _, id := range spread(parents * childrenOf) {
		out = append(out, call{
			Kind: "queryOne", GQL: "Book($condition: @c) { authorId, title, genre, pages, price }", Params: value(fmt.Sprintf(`{"c": {"_id": %q}}`, id)),
			ID: id, Tool: "get_Book", Args: fmt.Appendf(nil, `{"id": %q}`, id),
		})
	}
	return out
}

// listing reads the first rows of a table by an index.
func listing(limit int) func(int) []call {
	return func(int) []call {
		q := "($sort: @s, $limit: @l) { name, city, country, status, rank, score }"
		params := fmt.Sprintf(`{"s": {"rank": 1}, "l": %d}`, limit)
		return []call{{
			Kind: "query", GQL: "Author" + q, Params: value(params), Tool: "list_Author", Args: fmt.Appendf(nil, `{"q": %q, "params": %s}`, q, params),
		}}
	}
}

// query is a page of 20 authors, with further params.
func query(gql, more string) func(int) []call {
	params := `{"s": {"rank": 1}, "l": 20`
	if more != "" {
		params += ", " + more
	}
	return fixed(gql, params+"}")
}

// fixed is one query that is always the same.
func fixed(gql, params string) func(int) []call {
	return func(int) []call {
		return []call{{Kind: "query", GQL: gql, Params: value(params), Tool: "query", Args: fmt.Appendf(nil, `{"gql": %q, "params": %s}`, gql, params)}}
	}
}

// groups groups all books.
var groups = fixed("Book($group: @g, $sort: @s) { genre, n, total, mean }",
	`{"g": {"by": ["genre"], "agg": {"n": {"$count": "*"}, "total": {"$sum": "pages"}, "mean": {"$avg": "price"}}}, "s": {"genre": 1}}`)

// newBook is a document without an id.
func newBook(n, parents int) string {
	b := bookOf(n, parents)
	return fmt.Sprintf(`{"authorId": %q, "title": %q, "genre": %q, "pages": %d, "price": %v}`, b.AuthorID, b.Title, b.Genre, b.Pages, b.Price)
}

// inserts add one book each.
func inserts(parents int) []call {
	out := make([]call, 997)
	for i := range out {
		body := newBook(i*31, parents)
		out[i] = call{Kind: "insert", Model: "Book", Data: value(body), Tool: "create_Book", Args: fmt.Appendf(nil, `{"body": %s}`, body)}
	}
	return out
}

// manyInserts add a hundred books each. There is no tool for that.
func manyInserts(parents int) []call {
	out := make([]call, 20)
	for i := range out {
		docs := make([]canonjson.Value, manyDocs)
		for j := range docs {
			docs[j] = value(newBook(i*manyDocs+j, parents))
		}
		out[i] = call{Kind: "insertMany", Model: "Book", Data: canonjson.Array(docs...)}
	}
	return out
}

// updates change one book each.
func updates(parents int) []call {
	var out []call
	for i, id := range spread(parents * childrenOf) {
		set := fmt.Sprintf(`{"price": %d.25}`, i%90)
		out = append(out, call{
			Kind: "update", Model: "Book", Condition: value(fmt.Sprintf(`{"_id": %q}`, id)), Data: value(set), ID: id,
			Tool: "update_Book", Args: fmt.Appendf(nil, `{"id": %q, "set": %s}`, id, set),
		})
	}
	return out
}

// inProcess carries out a call through an engine, and writes the answer as JSON.
func inProcess(ctx context.Context, e *engine.Engine, who engine.Call, c call) ([]byte, error) {
	switch c.Kind {
	case "query":
		answer, err := e.Query(ctx, who, c.GQL, c.Params, engine.Page{})
		if err != nil {
			return nil, err
		}
		return canonjson.Array(answer.Rows...).AppendJSON(nil), nil
	case "insertMany":
		rows, err := e.InsertMany(ctx, who, c.Model, c.Data)
		if err != nil {
			return nil, err
		}
		return canonjson.Array(rows...).AppendJSON(nil), nil
	}
	var row canonjson.Value
	var err error
	switch c.Kind {
	case "queryOne":
		row, err = e.QueryOne(ctx, who, c.GQL, c.Params)
	case "insert":
		row, err = e.Insert(ctx, who, c.Model, c.Data)
	case "update":
		row, err = e.Update(ctx, who, c.Model, c.Condition, c.Data, canonjson.Value{})
	default:
		err = errors.New("no call " + c.Kind)
	}
	if err == nil && row.Kind() != canonjson.KindObject {
		err = errors.New("no row")
	}
	return row.AppendJSON(nil), err
}

// spelled writes an answer so that answers with the same rows are the same text: members in one order, and the rows of a
// relation too, which nobody sorts where the query does not. An answer without rows is an error: it would measure nothing.
func spelled(answer []byte) ([]byte, error) {
	var v any
	if err := json.Unmarshal(answer, &v); err != nil {
		return nil, err
	}
	rows, ok := v.([]any)
	if !ok {
		rows = []any{v}
	}
	if len(rows) == 0 {
		return nil, errors.New("no rows")
	}
	for _, r := range rows {
		row, ok := r.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("a row is %v", r)
		}
		if mean, ok := row["mean"].(float64); ok { // whose last digits depend on the order in which an engine adds
			row["mean"] = fmt.Sprintf("%.9g", mean)
		}
		if books, ok := row["books"].([]any); ok {
			slices.SortFunc(books, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	}
	return json.Marshal(rows)
}
