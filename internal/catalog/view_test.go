package catalog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/policy"
)

// anyObject accepts every object.
var anyObject = catalog.MustSchema(`{"type":"object"}`)

// operation is a small operation of a slot; known hides it behind a right on a path.
func operation(slot catalog.Slot, name, known string) *catalog.Operation {
	op := &catalog.Operation{
		Name: name, Title: "The " + name, Doc: "Does " + name, Slot: slot, In: anyObject, Out: anyObject,
		Publish: catalog.Publish{Tool: slot != catalog.Operator},
		Run: func(context.Context, *catalog.Call) (catalog.Result, error) {
			return catalog.Result{Value: canonjson.Object()}, nil
		},
	}
	if known != "" {
		pattern, err := policy.ParsePattern(known)
		if err != nil {
			panic(err)
		}
		op.KnownOn, op.Capability = pattern, policy.ModelsRead
		op.Targets = func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) { return nil, nil }
	}
	return op
}

// listed decodes a view's tools, each as its own text.
func listed(t interface{ Fatal(...any) }, v *catalog.View) []json.RawMessage {
	var tools []json.RawMessage
	if err := json.Unmarshal(v.ToolsJSON(), &tools); err != nil {
		t.Fatal(err)
	}
	return tools
}

// TestViewOnlyLeavesOut holds D12: whatever the rights, a view's tools are those of the full surface without some, in
// the same order and byte for byte the same.
func TestViewOnlyLeavesOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ops []*catalog.Operation
		for i := range rapid.IntRange(1, 12).Draw(t, "operations") {
			known := ""
			if rapid.Bool().Draw(t, "hidden") {
				known = fmt.Sprintf("/models/M%d", rapid.IntRange(0, 3).Draw(t, "model"))
			}
			ops = append(ops, operation(rapid.SampledFrom([]catalog.Slot{catalog.Models, catalog.Persistence}).Draw(t, "slot"), fmt.Sprintf("op%d", i), known))
		}
		c, err := catalog.New(catalog.ContractNames, ops...)
		if err != nil {
			t.Fatal(err)
		}
		endpoint := rapid.SampledFrom([]catalog.Endpoint{catalog.All, catalog.Of(catalog.Models)}).Draw(t, "endpoint")
		all, some := catalog.Rights{}, catalog.Rights{}
		for _, q := range c.Questions(endpoint) {
			all[q] = true
			some[q] = rapid.Bool().Draw(t, "right")
		}
		full, part := c.View(all, endpoint), c.View(some, endpoint)
		rest := listed(t, full)
		for _, tool := range listed(t, part) {
			for len(rest) > 0 && !bytes.Equal(rest[0], tool) {
				rest = rest[1:]
			}
			if len(rest) == 0 {
				t.Fatalf("the view shows %s, which the full surface does not, or not in this order", tool)
			}
		}
		for _, op := range ops {
			seen := part.Tool(op.Name) != nil
			want := (endpoint == catalog.All || op.Slot == catalog.Models) &&
				(op.KnownOn == (policy.Pattern{}) || some[policy.Scope{Capability: op.Capability, On: op.KnownOn}])
			if seen != want {
				t.Fatalf("%s seen is %t, want %t", op.Name, seen, want)
			}
		}
	})
}

// TestCatalogRefuses holds what New must not let through.
func TestCatalogRefuses(t *testing.T) {
	noRun := operation(catalog.Models, "x", "")
	noRun.Run = nil
	published := operation(catalog.Operator, "x", "")
	published.Publish.Tool = true
	unasked := operation(catalog.Models, "x", "")
	unasked.Confirm = func(canonjson.Value) bool { return true }
	both := operation(catalog.Models, "x", "")
	both.Effects = catalog.Effects{ReadOnly: catalog.Yes, Destructive: catalog.Yes}
	untargeted := operation(catalog.Models, "x", "")
	untargeted.Capability = policy.ModelsRead
	tests := []struct {
		name, want string
		names      catalog.Names
		ops        []*catalog.Operation
	}{
		{"one name twice", "models.prefix", catalog.ContractNames, []*catalog.Operation{operation(catalog.Context, "list_tasks", ""), operation(catalog.Models, "list_tasks", "")}},
		{"one portable name twice", "a_b", catalog.PortableNames, []*catalog.Operation{operation(catalog.Context, "a.b", ""), operation(catalog.Models, "a_b", "")}},
		{"no Run", "Run", catalog.ContractNames, []*catalog.Operation{noRun}},
		{"operator published", "operator", catalog.ContractNames, []*catalog.Operation{published}},
		{"confirmation without preview", "Preview", catalog.ContractNames, []*catalog.Operation{unasked}},
		{"read-only and destructive", "destructive", catalog.ContractNames, []*catalog.Operation{both}},
		{"capability without targets", "targets", catalog.ContractNames, []*catalog.Operation{untargeted}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := catalog.New(tt.names, tt.ops...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %q", err, tt.want)
			}
		})
	}
}

// TestPortableNames holds that the wire name and the contract name find the same operation.
func TestPortableNames(t *testing.T) {
	op := operation(catalog.Persistence, "persistence.get", "")
	c, err := catalog.New(catalog.PortableNames, op)
	if err != nil {
		t.Fatal(err)
	}
	v := c.View(nil, catalog.All)
	if v.Tool("persistence_get") != op || v.Tool("persistence.get") != nil {
		t.Error("a portable surface must list persistence_get and nothing else")
	}
	if !strings.Contains(string(v.ToolsJSON()), `"name":"persistence_get"`) {
		t.Errorf("listed is %s", v.ToolsJSON())
	}
}

// TestToolsAreStable holds that the same surface is listed byte for byte the same, whatever was asked before.
func TestToolsAreStable(t *testing.T) {
	build := func() []byte {
		c, err := catalog.New(catalog.ContractNames, operation(catalog.Models, "b", "/models/M"), operation(catalog.Models, "a", ""))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 600 { // more views than are kept
			c.View(catalog.Rights{policy.Scope{Capability: policy.ModelsRead}: i%2 == 0}, catalog.Endpoint(fmt.Sprint(i)))
		}
		return c.View(nil, catalog.All).ToolsJSON()
	}
	if first, second := build(), build(); !bytes.Equal(first, second) {
		t.Errorf("%s\n%s", first, second)
	}
}
