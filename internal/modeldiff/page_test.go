package modeldiff_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/testkit/modelgen"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/eval"
	"github.com/tabellion-mcp/tabellion/model/gql"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// pages reads a query page by page.
func (a *answers) pages(name string, q modelgen.Query, size int64) ([]canonjson.Value, int, error) {
	call := engine.Call{Access: a.permission.For(a.who), Profile: plan.Standard}
	var rows []canonjson.Value
	page := engine.Page{Limit: size}
	for n := 1; ; n++ {
		answer, err := a.engines[name].Query(a.t.Context(), call, q.Text, q.Params, page)
		if err != nil {
			return nil, n, err
		}
		rows = append(rows, answer.Rows...)
		if answer.Next == nil || n > 200 {
			return rows, n, nil
		}
		page.After = answer.Next
	}
}

// TestPages holds that the pages of a query together are its rows, each once and in order, whatever it sorts by.
func TestPages(t *testing.T) {
	seed := number(t, "SEED", 1)
	n := &tally{uses: modelgen.Counts{}}
	turned := 0
	for i := range 4 {
		w := open(t, uint64(seed*1000+700+i))
		g := w.Queries(w.seed, n.uses)
		a := w.answering(t, filterOf(i, g), nil)
		for range 25 {
			q, want := n.next(a, g.Next)
			n.count(q, want)
			for name := range w.sources {
				got, pages, err := a.pages(name, q, 1+int64(len(want))/4)
				if why := differ(want, nil, got, err); why != "" {
					n.fail(t, "%s: in pages: %s\n%s", name, why, show(w, q, want, got))
				}
				turned += pages - 1
			}
		}
	}
	if t.Logf("%d queries, %d pages after the first", n.asked, turned); turned < 200 {
		t.Errorf("only %d pages after the first", turned)
	}
}

// TestCounts compares queryWithCount, in each way of asking for a page.
func TestCounts(t *testing.T) {
	seed := number(t, "SEED", 1)
	n := &tally{uses: modelgen.Counts{}}
	for i := range 3 {
		w := open(t, uint64(seed*1000+800+i))
		g := w.Queries(w.seed, n.uses)
		a := w.answering(t, filterOf(i, g), nil)
		for at := range 25 {
			q, want := n.next(a, g.Plain)
			n.count(q, want)
			params := slices.Clone(q.Params.Members())
			switch at % 3 {
			case 1:
				params = append(params, canonjson.M("page", canonjson.Int(int64(at%4))), canonjson.M("pageSize", canonjson.Int(3)))
			case 2:
				params = append(params, canonjson.M("pageSize", canonjson.String("2")))
			}
			q.Params = canonjson.Object(params...)
			n.counted(a, q)
		}
	}
	t.Logf("%d queries", n.asked)
}

// counted compares one queryWithCount.
func (n *tally) counted(a *answers, q modelgen.Query) {
	a.t.Helper()
	parsed, err := gql.Parse(q.Text)
	if err != nil {
		a.t.Fatal(err)
	}
	bound, err := parsed.Bind(q.Params)
	if err != nil {
		a.t.Fatal(err)
	}
	access := a.permission.For(a.who)
	e := &eval.Evaluator{Registry: a.w.registry, Access: access, Data: a.w.Data}
	want, err := e.QueryWithCount(bound, q.Params)
	if err != nil {
		a.t.Fatal(err)
	}
	for name := range a.w.sources {
		got, err := a.engines[name].QueryWithCount(a.t.Context(), engine.Call{Access: access, Profile: plan.Standard}, q.Text, q.Params)
		if err != nil {
			n.fail(a.t, "%s: %v\n%s", name, err, show(a.w, q, want.Items, nil))
			continue
		}
		var why []string
		if s := differ(want.Items, nil, got.Items, nil); s != "" {
			why = append(why, s)
		}
		if got.Total != want.Total || got.HasMore != want.HasMore || got.Page != want.Page || got.PageSize != want.PageSize {
			why = append(why, "the counts differ")
		}
		if why != nil {
			n.fail(a.t, "%s: %s\n  got %d %t %d %d, want %d %t %d %d\n%s", name, strings.Join(why, "; "), got.Total, got.HasMore, got.Page, got.PageSize,
				want.Total, want.HasMore, want.Page, want.PageSize, show(a.w, q, want.Items, got.Items))
		}
	}
}
