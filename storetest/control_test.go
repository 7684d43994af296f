package storetest_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/storetest"
)

// broken is a store with one fault. Each field replaces a part of a store that is right.
type broken struct {
	persistence.Store
	commit func(*persistence.Commit)
	update func(s persistence.Store, ctx context.Context, c persistence.Commit, fn func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error)
	reader func(s persistence.Store, r persistence.Reader) persistence.Reader
	ctx    func(context.Context) context.Context
}

func (b broken) Update(ctx context.Context, c persistence.Commit, fn func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	if b.ctx != nil {
		ctx = b.ctx(ctx)
	}
	if b.commit != nil {
		b.commit(&c)
	}
	if b.update != nil {
		return b.update(b.Store, ctx, c, fn)
	}
	return b.Store.Update(ctx, c, fn)
}

func (b broken) View(ctx context.Context, fn func(persistence.Reader) error) error {
	return b.Store.View(ctx, func(r persistence.Reader) error {
		if b.reader != nil {
			r = b.reader(b.Store, r)
		}
		return fn(r)
	})
}

// keepsFailures commits what a failing fn wrote.
func keepsFailures(s persistence.Store, ctx context.Context, c persistence.Commit, fn func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	var failed error
	out, err := s.Update(ctx, c, func(tx persistence.Tx) (o persistence.Outcome, err error) {
		o, failed = fn(tx)
		return o, nil
	})
	if failed != nil {
		return persistence.Outcome{}, failed
	}
	return out, err
}

// runsTwice runs fn again after it succeeded.
func runsTwice(s persistence.Store, ctx context.Context, c persistence.Commit, fn func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	out, err := s.Update(ctx, c, fn)
	if err == nil && out.Replayed {
		c.Key = ""
		_, _ = s.Update(ctx, c, fn)
	}
	return out, err
}

// newest answers from the newest state instead of a snapshot.
type newest struct {
	persistence.Reader
	s persistence.Store
}

func (n newest) Head(namespace, id string) (h persistence.Head, ok bool, err error) {
	_ = n.s.View(context.Background(), func(r persistence.Reader) error {
		h, ok, err = r.Head(namespace, id)
		return nil
	})
	return h, ok, err
}

// listing replaces what a list answers.
type listing struct {
	persistence.Reader
	change func(docs []*persistence.Document, more bool) ([]*persistence.Document, bool)
}

func (l listing) Heads(namespace string, f persistence.HeadFilter) ([]*persistence.Document, bool, error) {
	docs, more, err := l.Reader.Heads(namespace, f)
	docs, more = l.change(docs, more)
	return docs, more, err
}

// lister makes a reader whose lists are changed.
func lister(change func(docs []*persistence.Document, more bool) ([]*persistence.Document, bool)) func(persistence.Store, persistence.Reader) persistence.Reader {
	return func(_ persistence.Store, r persistence.Reader) persistence.Reader { return listing{r, change} }
}

// planted is a store that must fail, and the test of the suite that must see it.
type planted struct {
	store broken
	seen  string
}

// faults are stores that must fail, and a test of the suite that must see it.
var faults = map[string]planted{
	"forgets keys":         {broken{commit: func(c *persistence.Commit) { c.Key = "" }}, "Replay"},
	"keys in one space":    {broken{commit: func(c *persistence.Commit) { c.Namespace = "all" }}, "Namespaces"},
	"ignores fingerprints": {broken{commit: func(c *persistence.Commit) { c.Fingerprint = [32]byte{} }}, "KeyConflict"},
	"never forgets":        {broken{commit: func(c *persistence.Commit) { c.Forget = c.Now.AddDate(-1, 0, 0) }}, "Forget"},
	"keeps failures":       {broken{update: keepsFailures}, "Rollback"},
	"replay has an effect": {broken{update: runsTwice}, "Replay"},
	"no snapshot": {broken{reader: func(s persistence.Store, r persistence.Reader) persistence.Reader {
		return newest{r, s}
	}}, "Snapshot"},
	"ignores contexts": {broken{ctx: func(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }}, "Context"},
	"never more": {broken{reader: lister(func(docs []*persistence.Document, _ bool) ([]*persistence.Document, bool) {
		return docs, false
	})}, "Pages"},
	"always more": {broken{reader: lister(func(docs []*persistence.Document, _ bool) ([]*persistence.Document, bool) {
		return docs, true
	})}, "Pages"},
	"order without case": {broken{reader: lister(func(docs []*persistence.Document, more bool) ([]*persistence.Document, bool) {
		slices.SortStableFunc(docs, func(a, b *persistence.Document) int {
			return strings.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID))
		})
		return docs, more
	})}, "Order"},
}

// faultVariable names the fault that TestControlled runs the suite with.
const faultVariable = "TABELLION_STORETEST_FAULT"

// TestControls runs the suite, in a process of its own, on stores with one fault each: the suite must fail, in the
// test that is there to find that fault. And it must pass on the same machinery without a fault.
func TestControls(t *testing.T) {
	t.Run("no fault", func(t *testing.T) {
		if out, err := controlled("none"); err != nil || !strings.Contains(out, "--- PASS: TestControlled/Replay") {
			t.Errorf("the suite fails without a fault: %v\n%s", err, out)
		}
	})
	for name, fault := range allFaults() {
		t.Run(name, func(t *testing.T) {
			if out, err := controlled(name); err == nil || !strings.Contains(out, "--- FAIL: TestControlled/"+fault.seen+" ") {
				t.Errorf("test %s passes (%v)\n%s", fault.seen, err, out)
			}
		})
	}
}

// allFaults are those of documents and of artifacts.
func allFaults() map[string]planted {
	all := maps.Clone(faults)
	maps.Copy(all, artifactFaults)
	return all
}

// controlled runs TestControlled with a fault and gives its output.
func controlled(fault string) (string, error) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestControlled$", "-test.v")
	cmd.Env = append(os.Environ(), faultVariable+"="+fault)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestControlled is what TestControls runs.
func TestControlled(t *testing.T) {
	name, ok := os.LookupEnv(faultVariable)
	if !ok {
		return // not a test by itself
	}
	storetest.Run(t, func(*testing.T) persistence.Store {
		remembered = noMemory()
		s := allFaults()[name].store
		s.Store = memory.New(nil)
		return s
	})
}
