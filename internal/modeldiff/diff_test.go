package modeldiff_test

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/testkit/modelgen"
)

// Sizes of a normal run: worlds have perWorld queries each, and every name of modelgen.Wanted is met leastUses times.
const (
	normalQueries = 500
	perWorld      = 50
	leastUses     = 20
	filledShare   = 60 // of a hundred queries find rows
	maxFailures   = 5  // shown; the rest is counted
)

// number reads a number from the environment.
func number(t *testing.T, name string, def int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number from 1 on", name, text)
	}
	return n
}

// tally counts what was asked.
type tally struct {
	asked, filled, refused, failed int
	uses                           modelgen.Counts
}

// next gives a query that the evaluator answers, mostly with rows: the first that finds nothing is thrown away. Queries that it refuses are counted; they are mistakes of the generator.
func (n *tally) next(a *answers, make func() modelgen.Query) (modelgen.Query, []canonjson.Value) {
	for try := 0; ; try++ {
		q := make()
		rows, err := a.eval(q)
		if err != nil {
			if n.refused++; n.refused <= maxFailures {
				a.t.Logf("world %d: refused: %v\n  %s %s", a.w.seed, err, q.Text, q.Params)
			}
			continue
		}
		if len(rows) > 0 || try%2 == 1 {
			return q, rows
		}
	}
}

// count counts a query that was asked.
func (n *tally) count(q modelgen.Query, rows []canonjson.Value) {
	n.asked++
	n.uses.Add(q.Uses)
	if len(rows) > 0 {
		n.filled++
	}
}

// fail reports a difference.
func (n *tally) fail(t *testing.T, format string, args ...any) {
	t.Helper()
	if n.failed++; n.failed > maxFailures {
		return
	}
	t.Errorf(format, args...)
}

// filterOf makes a row filter for every third world.
func filterOf(i int, g *modelgen.Generator) *modelgen.Filter {
	if i%3 != 2 {
		return nil
	}
	f := g.Filter()
	return &f
}

// TestSameAnswers asks all three the same queries. Every third world has a row filter.
func TestSameAnswers(t *testing.T) {
	queries, seed := number(t, "QUERIES", normalQueries), number(t, "SEED", 1)
	n := &tally{uses: modelgen.Counts{}}
	for i := 0; n.asked < queries; i++ {
		w := open(t, uint64(seed*1000+i))
		g := w.Queries(w.seed, n.uses)
		a := w.answering(t, filterOf(i, g), nil)
		for range min(perWorld, queries-n.asked) {
			q, want := n.next(a, g.Next)
			n.count(q, want)
			for name := range w.sources {
				got, err := a.ask(name, q)
				if why := differ(want, nil, got, err); why != "" {
					n.fail(t, "%s: %s\n%s", name, why, show(w, q, want, got))
				}
			}
		}
	}
	n.report(t, queries)
}

// report checks that the queries were worth asking.
func (n *tally) report(t *testing.T, queries int) {
	t.Helper()
	t.Logf("%d queries, %d with rows, %d refused, %d differences", n.asked, n.filled, n.refused, n.failed)
	if n.failed > maxFailures {
		t.Errorf("%d differences in all", n.failed)
	}
	if n.filled*100 < n.asked*filledShare {
		t.Errorf("%d of %d queries found rows", n.filled, n.asked)
	}
	if n.refused*20 > n.asked {
		t.Errorf("%d queries were refused: the generator makes what is not valid", n.refused)
	}
	if queries < normalQueries {
		return
	}
	wanted := modelgen.Wanted()
	slices.Sort(wanted)
	for _, use := range wanted {
		if n.uses[use] < leastUses {
			t.Errorf("%q was met %d times", use, n.uses[use])
		}
	}
}

// TestHavingOfNothing holds that a having which excludes nothing is true of every parent, of those without rows too.
func TestHavingOfNothing(t *testing.T) {
	w := open(t, 1000)
	a := w.answering(t, nil, nil)
	for _, m := range w.Models {
		for _, r := range m.Relations {
			predicate := canonjson.RawString(`{"agg":{"n":{"$count":"*"}},"having":{"n":{"$nin":[]}}}`)
			q := modelgen.Query{Text: m.Name + "($condition: @c)", Params: canonjson.Object(canonjson.M("c", canonjson.Object(canonjson.M(r.Name, predicate))))}
			for name := range w.sources {
				got, err := a.ask(name, q)
				if want := len(w.Data[m.Name].Rows); err != nil || len(got) != want {
					t.Errorf("%s: %s.%s: %d rows of %d (%v)", name, m.Name, r.Name, len(got), want, err)
				}
			}
		}
	}
}

// TestRowFilter holds that rows(q under f) = filter(rows(q), f): of queries that show rows of the root, the answer under
// a filter is the answer without one, less the rows that the filter leaves out. The filter is applied here by hand.
func TestRowFilter(t *testing.T) {
	seed := number(t, "SEED", 1)
	n := &tally{uses: modelgen.Counts{}}
	cut := 0
	for i := range 4 {
		w := open(t, uint64(seed*1000+500+i))
		g := w.Queries(w.seed, n.uses)
		free := w.answering(t, nil, nil)
		for range 5 {
			f := g.Filter()
			limited := w.answering(t, &f, nil)
			for range 6 {
				q, _ := n.next(free, g.Plain)
				n.count(q, nil)
				for name := range w.sources {
					all, err := free.ask(name, q)
					if err != nil {
						n.fail(t, "%s: %v\n%s", name, err, show(w, q, nil, nil))
						continue
					}
					want := passing(w, f, q, all)
					got, err := limited.ask(name, q)
					if why := differ(want, nil, got, err); why != "" {
						n.fail(t, "%s: %s\n  filter %s\n%s", name, why, f.Policy(), show(w, q, want, got))
					}
					if len(want) < len(all) && len(want) > 0 {
						cut++
					}
				}
			}
		}
	}
	if t.Logf("%d queries, %d answers cut in part", n.asked, cut); cut < 20 {
		t.Errorf("filters cut only %d answers in part", cut)
	}
}

// passing keeps the rows that a filter lets through, found by _id among the world's rows.
func passing(w *world, f modelgen.Filter, q modelgen.Query, rows []canonjson.Value) []canonjson.Value {
	allowed := map[string]bool{}
	for _, row := range w.Data[q.Model.Name].Rows {
		if f.Passes(q.Model, row) {
			allowed[q.Model.Key(row).String()] = true
		}
	}
	kept := []canonjson.Value{}
	for _, r := range rows {
		if allowed[r.Get("_id").String()] {
			kept = append(kept, r)
		}
	}
	return kept
}
