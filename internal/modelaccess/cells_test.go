//go:build unix

package modelaccess_test

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/tabellion-mcp/tabellion/internal/injection"
	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
	"github.com/tabellion-mcp/tabellion/model"
)

// rule is one row of the hand-written table: what its callers may do to each of its things.
type rule struct {
	Rule string            `yaml:"rule"`
	As   []string          `yaml:"as"`
	On   []string          `yaml:"on"`
	Do   map[string]string `yaml:"do"`
}

// rules reads a file of the table.
func rules(t testing.TB, file string) []rule {
	t.Helper()
	var out []rule
	if err := yaml.Unmarshal([]byte(read(t, file)), &out); err != nil {
		t.Fatal(err)
	}
	for _, r := range out {
		if r.Rule == "" || len(r.As) == 0 || len(r.On) == 0 || len(r.Do) == 0 {
			t.Fatalf("an incomplete rule: %+v", r)
		}
		for _, name := range r.As {
			if _, ok := people[name]; !ok {
				t.Fatalf("%s: nobody is called %s", r.Rule, name)
			}
		}
	}
	return out
}

// cell is one question of the table.
type cell struct{ rule, as, on, op, want string }

// cells expands the rules. A cell that two rules answer fails.
func cells(t testing.TB, list []rule) []cell {
	t.Helper()
	var out []cell
	seen := map[string]string{}
	for _, r := range list {
		for _, as := range r.As {
			for _, on := range r.On {
				for _, op := range slices.Sorted(maps.Keys(r.Do)) {
					key := as + " " + on + " " + op
					if seen[key] != "" {
						t.Errorf("%s is answered by %q and %q", key, seen[key], r.Rule)
					}
					seen[key] = r.Rule
					out = append(out, cell{r.Rule, as, on, op, r.Do[op]})
				}
			}
		}
	}
	return out
}

// find is the probe of an operation: its name, or its name and what stands behind it.
func find(t testing.TB, op string) (probe, string) {
	t.Helper()
	if p := probes[op]; p != nil {
		return p, ""
	}
	for i := len(op) - 1; i > 0; i-- {
		if op[i] == ' ' && probes[op[:i]] != nil {
			return probes[op[:i]], op[i+1:]
		}
	}
	t.Fatalf("there is no operation %q", op)
	return nil, ""
}

// ask asks the cells, and gives the red ones as words, by operation. Every surface must give the verdict.
func (w *world) red(t *testing.T, list []cell) (red map[string][]string, asked int) {
	t.Helper()
	red = map[string][]string{}
	for _, c := range list {
		p, arg := find(t, c.op)
		got := p(w, t, people[c.as], c.on, arg)
		for _, surface := range slices.Sorted(maps.Keys(got)) {
			asked++
			if v := got[surface]; v != c.want && !(c.want == "denied" && v == "unknown") { // which tells even less
				red[c.op] = append(red[c.op], fmt.Sprintf("%s: %s, %s, %s by %s: %q, want %q", c.rule, c.as, c.on, c.op, surface, got[surface], c.want))
			}
		}
	}
	return red, asked
}

// unconfigured are the files of rules for each meaning of an absent list.
var unconfigured = map[string]model.Unconfigured{"plain-closed.yaml": model.Closed, "plain-read.yaml": model.ReadOpen, "plain-open.yaml": model.Open}

// TestCells asks every cell of the table, on each engine.
func TestCells(t *testing.T) {
	site.Each(t, func(t *testing.T, p *site.Place) {
		w := newWorld(t, p, config(t))
		w.keep(t)
		p.Sent()
		report(t, w, cells(t, rules(t, "rules.yaml")))
		sent := p.Sent()
		names := injection.Names(w.perModel.Registry.List())
		for _, s := range sent {
			if problem := injection.CheckStatement(s.Text, s.Args, names); problem != "" {
				t.Errorf("%s\n  %s", problem, s.Text)
			}
		}
		if len(sent) < 50 {
			t.Errorf("only %d distinct statements were seen", len(sent))
		}
	})
	for file, meaning := range unconfigured {
		t.Run(file, func(t *testing.T) {
			c := config(t)
			c.Unconfigured = meaning
			w := newWorld(t, site.SQLite(t), c)
			w.keep(t)
			report(t, w, cells(t, rules(t, file)))
		})
	}
}

// report asks cells and complains about red ones.
func report(t *testing.T, w *world, list []cell) {
	t.Helper()
	red, asked := w.red(t, list)
	ops := slices.Sorted(maps.Keys(red))
	for _, op := range ops {
		for i, words := range red[op] {
			if i == 12 {
				t.Errorf("... and %d more of %s", len(red[op])-i, op)
				break
			}
			t.Error(words)
		}
	}
	t.Logf("%d cells, %d answers", len(list), asked)
}

// TestTableIsWhole holds that the table asks what it should: every caller, and every operation of the issue.
func TestTableIsWhole(t *testing.T) {
	used, asked := map[string]bool{}, map[string]bool{}
	files := append(slices.Sorted(maps.Keys(unconfigured)), "rules.yaml")
	for _, file := range files {
		for _, c := range cells(t, rules(t, file)) {
			used[c.as] = true
			for name := range probes {
				if c.op == name || strings.HasPrefix(c.op, name+" ") {
					asked[name] = true
				}
			}
		}
	}
	for name := range people {
		if !used[name] {
			t.Errorf("no rule is about %s", name)
		}
	}
	missing := slices.DeleteFunc(slices.Collect(maps.Keys(probes)), func(name string) bool { return asked[name] })
	sort.Strings(missing)
	if len(missing) > 0 {
		t.Errorf("no rule asks: %v", missing)
	}
}
