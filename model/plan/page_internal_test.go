package plan

import (
	"cmp"
	"slices"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// pageWorld is a model with two sort fields, for pages.
func pageWorld(t *testing.T) *model.Model {
	t.Helper()
	text := `{"name":"T","table":"t","timestamps":false,"archive":false,"read":["r"],"fields":{"_id":"string","a":"int","b":"int"}}`
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	r := model.NewRegistry(model.Options{})
	if err := r.Register(v); err != nil {
		t.Fatal(err)
	}
	return r.Get("T")
}

// pageRow is a row: a value of each field, nil for none.
type pageRow map[string]*int64

// truth evaluates a condition on a row in three-valued logic: 1, 0, -1 for true, unknown, false.
func truth(c Cond, row pageRow) int {
	switch c := c.(type) {
	case nil:
		return 1
	case And:
		least := 1
		for _, c := range c {
			least = min(least, truth(c, row))
		}
		return least
	case Or:
		most := -1
		for _, c := range c {
			most = max(most, truth(c, row))
		}
		return most
	case Not:
		return -truth(c.Cond, row)
	case Const:
		return sign(bool(c))
	case HasValue:
		return sign(row[c.By.Field.Name] != nil)
	case Compare:
		have := row[c.By.Field.Name]
		if have == nil {
			return 0
		}
		want, _ := c.Value.Int()
		if c.By.Field.Name == "_id" {
			want = int64(c.Value.Str()[0])
		}
		d := cmp.Compare(*have, want)
		return sign(map[CompareOp]bool{EQ: d == 0, NE: d != 0, GT: d > 0, GE: d >= 0, LT: d < 0, LE: d <= 0}[c.Op])
	}
	panic("a condition that pages do not make")
}

// sign is 1 or -1.
func sign(b bool) int {
	if b {
		return 1
	}
	return -1
}

// TestAfterRow walks over all rows of a small table in every order, and from every row: what comes after it is exactly
// what the condition takes.
func TestAfterRow(t *testing.T) {
	m := pageWorld(t)
	var rows []pageRow
	for i := range int64(18) {
		id := 'a' + i
		row := pageRow{"_id": &id, "a": nil, "b": nil}
		for name, v := range map[string]int64{"a": i % 3, "b": i / 3 % 3} {
			if v > 0 {
				row[name] = &v
			}
		}
		rows = append(rows, row)
	}
	fields := []*model.Field{m.Field("a"), m.Field("b"), m.ID()}
	for orders := range 8 * 3 {
		var order []Order
		for i, f := range fields[orders/8:] {
			order = append(order, Order{Operand{Field: f, Type: f.Type}, orders>>i&1 == 1})
		}
		sorted := slices.Clone(rows)
		slices.SortFunc(sorted, func(x, y pageRow) int { return inOrder(order, x, y) })
		for i, last := range sorted {
			c, err := afterRow(m, order, rowValues(order, last))
			if err != nil {
				t.Fatal(err)
			}
			for k, row := range sorted {
				if got, want := truth(c, row) == 1, k > i; got != want {
					t.Fatalf("order %v: after row %d, row %d is taken: %v, want %v\n%s", order, i, k, got, want, CondText(c))
				}
			}
		}
	}
}

// inOrder compares two rows: those without a value first, or last when descending.
func inOrder(order []Order, x, y pageRow) int {
	for _, o := range order {
		a, b := int64(-1), int64(-1)
		if v := x[o.By.Field.Name]; v != nil {
			a = *v
		}
		if v := y[o.By.Field.Name]; v != nil {
			b = *v
		}
		if d := cmp.Compare(a, b); d != 0 && o.Desc {
			return -d
		} else if d != 0 {
			return d
		}
	}
	return 0
}

// rowValues are a row's sort values, as End makes them.
func rowValues(order []Order, row pageRow) []canonjson.Value {
	values := make([]canonjson.Value, len(order))
	for i, o := range order {
		v := row[o.By.Field.Name]
		switch {
		case v == nil && i%2 == 0:
			values[i] = canonjson.Object()
		case v == nil:
			values[i] = canonjson.Null()
		case o.By.Field.Name == "_id":
			values[i] = canonjson.String(string(rune(*v)))
		default:
			values[i] = canonjson.Int(*v)
		}
	}
	return values
}

// TestPage holds how pages add up within the query's own limit, by sort values and by counting.
func TestPage(t *testing.T) {
	m := pageWorld(t)
	field := func(name string) Order { f := m.Field(name); return Order{By: Operand{Field: f, Type: f.Type}} }
	query := func(own, ceiling int64) *Query {
		return &Query{Root: &Block{Model: m, Columns: []*model.Field{m.ID()}, Order: []Order{field("a"), field("_id")}, Skip: 3}, own: own, ceiling: ceiling}
	}
	for _, tt := range []struct {
		name                string
		own, ceiling, limit int64
		taken               int64 // negative: no position
		want                int64
		peek                bool
	}{
		{"everything", unlimited, unlimited, 0, -1, unlimited, false},
		{"the profile's", unlimited, 100, 0, -1, 100, true},
		{"the page's", unlimited, 100, 10, -1, 10, true},
		{"the page's above the profile's", unlimited, 100, 500, -1, 100, true},
		{"his own", 25, 100, 10, -1, 10, true},
		{"his own, all on one page", 25, 100, 25, -1, 25, false},
		{"his own, the third page", 25, 100, 10, 20, 5, false},
		{"his own, used up", 25, 100, 10, 25, 0, false},
		{"later pages", unlimited, 100, 10, 50, 10, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := query(tt.own, tt.ceiling)
			var after *Position
			if tt.taken >= 0 {
				after = &Position{Values: []canonjson.Value{canonjson.Int(1), canonjson.String("k")}, Taken: tt.taken}
			}
			if err := q.Page(tt.limit, after); err != nil {
				t.Fatal(err)
			}
			if q.Root.Limit != tt.want || q.Root.Peek != tt.peek {
				t.Errorf("limit %d peek %v, want %d %v", q.Root.Limit, q.Root.Peek, tt.want, tt.peek)
			}
			if !has(q.Root.Columns, m.Field("a")) {
				t.Error("the sort field is not read, so the end of the page is not known")
			}
			if wantSkip := int64(3); after == nil && q.Root.Skip != wantSkip || after != nil && q.Root.Skip != 0 {
				t.Errorf("skip %d", q.Root.Skip)
			}
		})
	}
	counted := query(unlimited, 100)
	counted.Root.Order = append([]Order{{By: Operand{Agg: &Agg{Name: "n"}}}}, counted.Root.Order...)
	if err := counted.Page(10, &Position{Taken: 20}); err != nil || counted.Root.Skip != 23 || counted.Root.Where != nil {
		t.Errorf("a page by counting: skip %d, %v", counted.Root.Skip, err)
	}
	if p := counted.End(ReadRow{Cells: []canonjson.Value{canonjson.String("k"), canonjson.Int(1)}}, &Position{Taken: 20}, 7); p.Values != nil || p.Taken != 27 {
		t.Errorf("the end of a counted page: %+v", p)
	}
}

// TestPosition holds that a position survives its JSON, and that one of another query is refused.
func TestPosition(t *testing.T) {
	m := pageWorld(t)
	q := &Query{Root: &Block{Model: m, Columns: m.Fields, Order: appendKey([]Order{{By: Operand{Field: m.Field("a"), Type: model.Int}}}, m, false)}, own: unlimited, ceiling: unlimited}
	cells := map[string]canonjson.Value{"_id": canonjson.String("k")}
	row := ReadRow{}
	for _, f := range m.Fields {
		row.Cells = append(row.Cells, cells[f.Name])
	}
	end := q.End(row, &Position{Taken: 4}, 3)
	if got := string(end.Value().AppendJSON(nil)); got != `{"n":7,"v":[{},"k"]}` {
		t.Errorf("got %s", got)
	}
	back, err := ReadPosition(end.Value())
	if err != nil || back.Taken != 7 || len(back.Values) != 2 {
		t.Fatal(back, err)
	}
	if err := q.Page(5, &back); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{`{}`, `{"n":-1}`, `{"n":1.5}`, `{"n":1,"v":3}`, `[]`, `"x"`, `null`} {
		v, _ := canonjson.ParseStrict([]byte(bad), canonjson.Limits{})
		if p, err := ReadPosition(v); err == nil {
			t.Errorf("%s is read as %+v", bad, p)
		}
	}
	for _, bad := range []Position{
		{Taken: 3},
		{Values: []canonjson.Value{canonjson.String("k")}},
		{Values: []canonjson.Value{canonjson.String("word"), canonjson.String("k")}},
		{Values: []canonjson.Value{canonjson.Int(1), canonjson.String("k"), canonjson.Int(1)}},
	} {
		if err := q.Page(5, &bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
