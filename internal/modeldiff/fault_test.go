package modeldiff_test

import (
	"context"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/testkit/modelgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// faulty is a source that breaks one rule: it changes plans before they are carried out, or rows after.
type faulty struct {
	plan.Source
	before func(*plan.Query)
	after  func(*plan.Query, *plan.Rows)
}

// Read breaks the rule.
func (f *faulty) Read(ctx context.Context, q *plan.Query) (*plan.Rows, error) {
	if f.before != nil {
		f.before(q)
	}
	rows, err := f.Source.Read(ctx, q)
	if err == nil && f.after != nil {
		f.after(q, rows)
	}
	return rows, err
}

// blocks calls change on a block and all below it.
func blocks(b *plan.Block, change func(b *plan.Block, root bool), root bool) {
	change(b, root)
	for _, k := range b.Kids {
		blocks(k.Block, change, false)
	}
}

// everywhere changes every block.
func everywhere(change func(b *plan.Block, root bool)) func(*plan.Query) {
	return func(q *plan.Query) { blocks(q.Root, change, true) }
}

// conditions rewrites every condition of a plan from the inside out.
func conditions(rewrite func(plan.Cond) plan.Cond) func(*plan.Query) {
	var walk func(c plan.Cond) plan.Cond
	walk = func(c plan.Cond) plan.Cond {
		switch x := c.(type) {
		case nil:
			return nil
		case plan.And:
			y := slices.Clone(x)
			for i := range y {
				y[i] = walk(y[i])
			}
			c = y
		case plan.Or:
			y := slices.Clone(x)
			for i := range y {
				y[i] = walk(y[i])
			}
			c = y
		case plan.Not:
			c = plan.Not{Cond: walk(x.Cond)}
		case plan.Exists:
			x.Where, x.Having = walk(x.Where), walk(x.Having)
			c = x
		}
		return rewrite(c)
	}
	return everywhere(func(b *plan.Block, _ bool) {
		b.Where = walk(b.Where)
		if b.Group != nil {
			b.Group.Having = walk(b.Group.Having)
		}
	})
}

// orMissing makes a negated test true where the field has no value.
func orMissing(by plan.Operand, c plan.Cond) plan.Cond {
	if by.Field == nil {
		return c
	}
	return plan.Or{c, plan.Not{Cond: plan.HasValue{By: by}}}
}

// faults are rules, each broken in one way.
var faults = map[string]faulty{
	"nulls come last": {after: func(q *plan.Query, rows *plan.Rows) {
		if len(q.Root.Order) == 0 || q.Root.Group != nil || q.Root.Order[0].Desc || q.Root.Order[0].By.Via != nil {
			return
		}
		at := slices.Index(q.Root.Columns, q.Root.Order[0].By.Field)
		if at < 0 {
			return
		}
		null := func(r plan.ReadRow) int {
			if k := r.Cells[at].Kind(); k == canonjson.KindAbsent || k == canonjson.KindNull {
				return 1
			}
			return 0
		}
		slices.SortStableFunc(rows.Rows, func(a, b plan.ReadRow) int { return null(a) - null(b) })
	}},
	"$nin matches rows without a value": {before: conditions(func(c plan.Cond) plan.Cond {
		if n, ok := c.(plan.Not); ok {
			if in, ok := n.Cond.(plan.In); ok {
				return orMissing(in.By, c)
			}
		}
		return c
	})},
	"$ne matches rows without a value": {before: conditions(func(c plan.Cond) plan.Cond {
		if n, ok := c.(plan.Compare); ok && n.Op == plan.NE {
			return orMissing(n.By, c)
		}
		return c
	})},
	"null is missing": {before: conditions(func(c plan.Cond) plan.Cond {
		if n, ok := c.(plan.IsNull); ok {
			return plan.Not{Cond: plan.HasValue(n)}
		}
		return c
	})},
	"$exists wants a value": {before: conditions(func(c plan.Cond) plan.Cond {
		if n, ok := c.(plan.IsStored); ok {
			return plan.HasValue(n)
		}
		return c
	})},
	"greater is greater or equal": {before: conditions(func(c plan.Cond) plan.Cond {
		if n, ok := c.(plan.Compare); ok && n.Op == plan.GT {
			n.Op = plan.GE
			return n
		}
		return c
	})},
	"the flag i is dropped": {before: conditions(func(c plan.Cond) plan.Cond {
		if n, ok := c.(plan.Match); ok && strings.Contains(n.Pattern.Flags, "i") {
			flags := strings.ReplaceAll(n.Pattern.Flags, "i", "")
			text := n.Pattern.Text
			if flags != "" {
				text = "(?" + flags + ")" + text
			}
			if tree, err := syntax.Parse(text, syntax.Perl); err == nil {
				n.Pattern = &plan.Regex{Text: n.Pattern.Text, Flags: flags, Go: text, Tree: tree}
			}
			return n
		}
		return c
	})},
	"a predicate does not see a count of 0": {before: conditions(func(c plan.Cond) plan.Cond {
		if x, ok := c.(plan.Exists); ok && x.Having != nil {
			some := x
			some.Aggs, some.Having = nil, nil
			return plan.And{c, some}
		}
		return c
	})},
	"a predicate forgets its filter": {before: conditions(func(c plan.Cond) plan.Cond {
		if x, ok := c.(plan.Exists); ok {
			x.Where = nil
			return x
		}
		return c
	})},
	"a window holds one row more": {before: everywhere(func(b *plan.Block, root bool) {
		if !root && b.Limit >= 0 {
			b.Limit++
		}
	})},
	"a window begins one row late": {before: everywhere(func(b *plan.Block, root bool) {
		if !root && b.Skip > 0 {
			b.Skip++
		}
	})},
	"ties are broken from the end": {before: everywhere(func(b *plan.Block, _ bool) {
		if n := len(b.Order); n > 0 && b.Group == nil {
			b.Order = slices.Clone(b.Order)
			b.Order[n-1].Desc = !b.Order[n-1].Desc
		}
	})},
	"sort keys after the first are dropped": {before: everywhere(func(b *plan.Block, _ bool) {
		if n := len(b.Order); n > 2 {
			b.Order = []plan.Order{b.Order[0], b.Order[n-1]}
		}
	})},
	"a minimum is a maximum": {before: everywhere(func(b *plan.Block, _ bool) {
		for _, a := range b.Aggs {
			if a.Op == model.Min {
				a.Op = model.Max
			}
		}
	})},
	"$having is dropped": {before: everywhere(func(b *plan.Block, _ bool) {
		if b.Group != nil {
			b.Group.Having = nil
		}
	})},
	"relation blocks forget their conditions": {before: everywhere(func(b *plan.Block, root bool) {
		if !root {
			b.Where = nil
		}
	})},
}

// noFilter is the fault of rights that forget the caller's row limits.
const noFilter = "the row filter is forgotten"

// TestFaultsAreFound is the control of TestSameAnswers: each broken rule shows in a difference within the queries of a
// normal run.
func TestFaultsAreFound(t *testing.T) {
	seed := number(t, "SEED", 1)
	found := map[string]int{}
	n := &tally{uses: modelgen.Counts{}}
	names := append(slices.Sorted(maps.Keys(faults)), noFilter)
	for i := 0; len(found) < len(names) && n.asked < normalQueries; i++ {
		w := open(t, uint64(seed*1000+i))
		g := w.Queries(w.seed, n.uses)
		f := filterOf(i, g)
		broken := map[string]*answers{}
		broken[noFilter] = w.answering(t, nil, nil)
		for name, fault := range faults {
			broken[name] = w.answering(t, f, func(s plan.Source) plan.Source { made := fault; made.Source = s; return &made })
		}
		a := w.answering(t, f, nil)
		for range perWorld {
			q, want := n.next(a, g.Next)
			n.count(q, want)
			if got, err := a.ask("sqlite", q); differ(want, nil, got, err) != "" {
				t.Errorf("without a fault: %s", show(w, q, want, got))
				continue
			}
			for name, b := range broken {
				if found[name] > 0 {
					continue
				}
				got, err := b.ask("sqlite", q)
				if differ(want, nil, got, err) != "" {
					found[name] = n.asked
				}
			}
		}
	}
	for _, name := range names {
		if at := found[name]; at == 0 {
			t.Errorf("not found in %d queries: %s", n.asked, name)
		} else {
			t.Logf("found by query %3d: %s", at, name)
		}
	}
}
