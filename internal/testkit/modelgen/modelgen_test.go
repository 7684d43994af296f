package modelgen_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/testkit/modelgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// everything is all that follows from a seed, as text.
func everything(seed uint64) string {
	w := modelgen.New(seed, modelgen.Options{Extended: true})
	var b strings.Builder
	fmt.Fprintln(&b, w.Definitions())
	for _, m := range w.Models {
		fmt.Fprintln(&b, w.Data[m.Name])
	}
	counts := modelgen.Counts{}
	g := w.Queries(seed, counts)
	for range 40 {
		q := g.Next()
		counts.Add(q.Uses)
		fmt.Fprintln(&b, q.Text, q.Params, g.Plain().Text, g.Filter().Policy())
	}
	return b.String()
}

// TestSeed holds that a seed says everything, and that seeds differ.
func TestSeed(t *testing.T) {
	if first, again := everything(3), everything(3); first != again {
		t.Error("one seed made two worlds")
	}
	if everything(3) == everything(4) {
		t.Error("two seeds made one world")
	}
}

// TestValid holds that definitions register strictly and that queries parse and bind.
func TestValid(t *testing.T) {
	for seed := range uint64(50) {
		w := modelgen.New(seed, modelgen.Options{Extended: seed%2 == 0})
		r := model.NewRegistry(model.Options{})
		if err := r.Register(w.Definitions()...); err != nil {
			t.Fatalf("world %d: %v", seed, err)
		}
		g := w.Queries(seed, modelgen.Counts{})
		for range 40 {
			q := g.Next()
			parsed, err := gql.Parse(q.Text)
			if err != nil {
				t.Fatalf("world %d: %s: %v", seed, q.Text, err)
			}
			if _, err := parsed.Bind(q.Params); err != nil {
				t.Fatalf("world %d: %s %s: %v", seed, q.Text, q.Params, err)
			}
		}
	}
}
