package tabellion_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"reflect"
	"testing"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/manifest"
	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
)

// contractPath is the contract that clients are built against.
const contractPath = "contracts/persistence.v1.json"

// readContract reads the contract as plain JSON.
func readContract(t *testing.T, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestContractIsCurrent holds the file against the catalog, byte for byte but for the revision.
func TestContractIsCurrent(t *testing.T) {
	kept, err := manifest.Read(contractPath)
	if err != nil {
		t.Fatal(err)
	}
	built, err := tabellion.Contract()
	if err != nil {
		t.Fatal(err)
	}
	want, err := manifest.Text(manifest.WithRevision(built, manifest.Revision(kept)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(contractPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the code says (%+v); run: go generate ./persistence", contractPath, manifest.Compare(kept, built))
	}
}

// TestContractIsTheSpecified holds the file against the schemas of the specification: everything that is there is here,
// and means the same.
func TestContractIsTheSpecified(t *testing.T) {
	ours, spec := readContract(t, contractPath), readContract(t, "persistence/schemas.json")
	for _, part := range []string{"contract", "errorSchema", "httpStatus", "transferRoutes"} {
		if !reflect.DeepEqual(ours[part], spec[part]) {
			t.Errorf("%s\n got %v\nwant %v", part, ours[part], spec[part])
		}
	}
	for _, part := range []struct {
		list, key string
		members   []string
	}{
		{"tools", "name", []string{"description", "inputSchema", "outputSchema"}},
		{"resources", "uri", []string{"mimeType", "contentSchema"}},
		{"resourceTemplates", "uriTemplate", []string{"mimeType", "contentSchema"}},
	} {
		got, want := byKey(ours[part.list], part.key), byKey(spec[part.list], part.key)
		if len(got) != len(want) || len(want) == 0 {
			t.Errorf("%s: %d, want %d", part.list, len(got), len(want))
		}
		for name, w := range want {
			for _, member := range part.members {
				if !reflect.DeepEqual(got[name][member], w[member]) {
					t.Errorf("%s %s, %s\n got %v\nwant %v", part.list, name, member, got[name][member], w[member])
				}
			}
		}
	}
}

// byKey is a list of objects by one of their members.
func byKey(list any, key string) map[string]map[string]any {
	out := map[string]map[string]any{}
	items, _ := list.([]any)
	for _, item := range items {
		m := item.(map[string]any)
		out[m[key].(string)] = m
	}
	return out
}

// TestContractIsServed holds the file against what a running server lists: the same tools in the same order, with the
// same input schemas; a listed output schema is the contract's for a success, or the error envelope.
func TestContractIsServed(t *testing.T) {
	cfg := tabellion.DefaultConfig()
	cfg.Data, cfg.Dev = t.TempDir(), true
	s, err := tabellion.Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	h := httptest.NewServer(s.Handler())
	defer h.Close()
	c := rawmcp.New(h.URL+"/persistence/mcp", "", false, 1)
	defer c.Close()
	answer, err := c.Do(t.Context(), "tools/list", "", "")
	if err != nil {
		t.Fatal(err)
	}
	var frame struct {
		Result struct {
			Tools []map[string]any `json:"tools"`
		} `json:"result"`
	}
	if err := json.Unmarshal(answer.Body, &frame); err != nil {
		t.Fatal(err)
	}
	contract := readContract(t, contractPath)
	want := contract["tools"].([]any)
	if len(frame.Result.Tools) != len(want) {
		t.Fatalf("%d tools are listed, %d are in the contract", len(frame.Result.Tools), len(want))
	}
	for i, tool := range frame.Result.Tools {
		w := want[i].(map[string]any)
		for _, member := range []string{"name", "title", "description", "inputSchema"} {
			if !reflect.DeepEqual(tool[member], w[member]) {
				t.Errorf("tool %d, %s\n got %v\nwant %v", i, member, tool[member], w[member])
			}
		}
		for name, hint := range w["annotations"].(map[string]any) {
			if tool["annotations"].(map[string]any)[name] != hint {
				t.Errorf("tool %d, %s is not %v", i, name, hint)
			}
		}
		sameOutput(t, w["name"].(string), tool["outputSchema"].(map[string]any), w["outputSchema"].(map[string]any), contract["errorSchema"].(map[string]any))
	}
}

// sameOutput compares a listed output schema with those of a success and of a failure.
func sameOutput(t *testing.T, name string, listed, success, failure map[string]any) {
	t.Helper()
	branches, _ := listed["oneOf"].([]any)
	if len(branches) != 2 || !reflect.DeepEqual(listed["$defs"], success["$defs"]) {
		t.Errorf("%s: the listed output schema is not the contract's or a failure's: %v", name, listed)
		return
	}
	for i, want := range []map[string]any{success, failure} {
		bare := map[string]any{}
		for k, v := range want {
			if k != "$schema" && k != "$defs" {
				bare[k] = v
			}
		}
		if !reflect.DeepEqual(branches[i], bare) {
			t.Errorf("%s, branch %d\n got %v\nwant %v", name, i, branches[i], bare)
		}
	}
}
