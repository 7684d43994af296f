package verify_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
	"github.com/tabellion-mcp/tabellion/internal/testkit/verify"
)

// fake is a server that holds what a test plants.
type fake struct {
	docs    map[string][]verify.Revision
	effects []verify.Effect
}

func (f *fake) Documents(context.Context) ([]string, error) {
	var names []string
	for name := range f.docs {
		names = append(names, name)
	}
	return names, nil
}

func (f *fake) Revisions(_ context.Context, name string) ([]verify.Revision, error) {
	return f.docs[name], nil
}

func (f *fake) Effects(context.Context) ([]verify.Effect, error) { return f.effects, nil }

// sound is a history and the server that fits it.
func sound() ([]history.Op, *fake) {
	ops := []history.Op{
		{Document: "ns/a", Kind: history.Put, Key: "k1", Content: "k1", Outcome: history.OK, Revision: 1},
		{Document: "ns/a", Kind: history.Put, Key: "k2", Content: "k2", Expected: 1, Outcome: history.Unknown},
		{Document: "ns/a", Kind: history.Put, Key: "k2", Content: "k2", Expected: 1, Outcome: history.OK, Revision: 2},
		{Document: "ns/a", Kind: history.Put, Key: "k3", Content: "k3", Expected: 1, Outcome: history.Refused},
		{Document: "ns/a", Kind: history.Get, Content: "k2", Outcome: history.OK, Revision: 2},
		{Document: "ns/a", Kind: history.Delete, Key: "k4", Expected: 2, Outcome: history.OK, Revision: 3},
		{Document: "ns/b", Kind: history.Put, Key: "k5", Content: "k5", Outcome: history.Unknown},
	}
	return ops, &fake{
		docs: map[string][]verify.Revision{
			"ns/a": {{Number: 1, Content: "k1"}, {Number: 2, Content: "k2", Refs: []string{"ns/a@1"}}, {Number: 3, Deleted: true}},
			"ns/b": {{Number: 1, Content: "k5"}},
		},
		effects: []verify.Effect{{"ns/a", 1}, {"ns/a", 2}, {"ns/a", 3}, {"ns/b", 1}},
	}
}

// TestPlanted holds that the verifier is silent on a sound server and names each planted violation by its kind.
func TestPlanted(t *testing.T) {
	tests := []struct {
		name, want string
		plant      func(ops *[]history.Op, f *fake)
	}{
		{"sound", "", func(*[]history.Op, *fake) {}},
		{"unknown write that never happened", "", func(_ *[]history.Op, f *fake) { delete(f.docs, "ns/b"); f.effects = f.effects[:3] }},
		{"lost revision", "lost 1", func(_ *[]history.Op, f *fake) {
			f.docs["ns/a"] = f.docs["ns/a"][:2]
			f.effects = append(f.effects[:2:2], f.effects[3])
		}},
		{"changed content", "lost 2", func(_ *[]history.Op, f *fake) { f.docs["ns/a"][1].Content = "other" }},
		{"tombstone became live", "lost 1", func(_ *[]history.Op, f *fake) { f.docs["ns/a"][2] = verify.Revision{Number: 3, Content: "k9"} }},
		{"applied twice", "applied twice 1", func(_ *[]history.Op, f *fake) {
			f.docs["ns/a"] = append(f.docs["ns/a"], verify.Revision{Number: 4, Content: "k2"})
			f.effects = append(f.effects, verify.Effect{Document: "ns/a", Revision: 4})
		}},
		{"gap", "gaps 1", func(_ *[]history.Op, f *fake) { f.docs["ns/b"][0].Number = 2; f.effects[3].Revision = 2 }},
		{"refused write is there", "phantoms 1", func(_ *[]history.Op, f *fake) {
			f.docs["ns/a"] = append(f.docs["ns/a"], verify.Revision{Number: 4, Content: "k3"})
			f.effects = append(f.effects, verify.Effect{Document: "ns/a", Revision: 4})
		}},
		{"content of nobody", "phantoms 1", func(_ *[]history.Op, f *fake) { f.docs["ns/b"][0].Content = "zz" }},
		{"dangling reference", "dangling 1", func(_ *[]history.Op, f *fake) { f.docs["ns/a"][1].Refs = []string{"ns/c@1"} }},
		{"no audit row", "unlogged 1", func(_ *[]history.Op, f *fake) { f.effects = f.effects[1:] }},
		{"audit row without effect", "invented 1", func(_ *[]history.Op, f *fake) {
			f.effects = append(f.effects, verify.Effect{Document: "ns/z", Revision: 1})
		}},
		{"two audit rows", "invented 1", func(_ *[]history.Op, f *fake) { f.effects = append(f.effects, f.effects[0]) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ops, server := sound()
			tt.plant(&ops, server)
			report, err := verify.Run(t.Context(), ops, server)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == "" != report.Clean() {
				t.Fatalf("clean is %t: %s", report.Clean(), report)
			}
			if !strings.Contains(report.String(), tt.want) {
				t.Fatalf("want %q in: %s", tt.want, report)
			}
		})
	}
}
