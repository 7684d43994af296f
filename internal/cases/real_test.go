package cases_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/gate"
)

// TestRealJSONSuiteAsPayload sends every text of the JSON test suite as the payload of a put, over HTTP in both eras:
// what must be refused is refused, what must be accepted is accepted unless a written rule refuses it and reads back as
// the same value, and what may go either way has the same verdict as when it is a whole message.
func TestRealJSONSuiteAsPayload(t *testing.T) {
	root := os.Getenv("TABELLION_REAL")
	if root == "" {
		t.Skip("NOT RUN: the JSON test suite needs TABELLION_REAL (make test-real REAL=DIR)")
	}
	files, err := filepath.Glob(filepath.Join(root, "json-test-suite", "test_parsing", "*.json"))
	if err != nil || len(files) < 300 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	srv := newSite(t, "")
	for era, c := range srv.clients(t) {
		accepted, refused := 0, 0
		for i, file := range files {
			name := filepath.Base(file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > 1<<20 {
				t.Fatalf("%s has grown", name)
			}
			value, flaw, syntax := canonjson.Parse(text, gate.FrameLimits())
			asFrame := syntax == nil && flaw == nil
			id := fmt.Sprintf("%s-%d", era, i)
			a, err := c.Call(t.Context(), "persistence.put", put(id, string(text), id, 0))
			if err != nil {
				t.Fatalf("%s %s: %v", era, name, err)
			}
			ok := code(a) == ""
			if ok {
				accepted++
			} else {
				refused++
			}
			written := flaw != nil && flaw.Rule == canonjson.DuplicateName
			deep := value.Depth() > 64
			switch {
			case strings.HasPrefix(name, "n_") && ok:
				t.Errorf("%s: %s was accepted", era, name)
			case strings.HasPrefix(name, "y_") && !ok && !written && !deep:
				t.Errorf("%s: %s was refused: %s", era, name, a)
			case strings.HasPrefix(name, "i_") && ok != (asFrame && !deep):
				t.Errorf("%s: %s as payload is accepted %t, as a whole message %t", era, name, ok, asFrame)
			}
			if !ok {
				continue
			}
			got, err := c.Call(t.Context(), "persistence.get", fmt.Appendf(nil, `{"namespace":"ns","id":%q}`, id))
			if err != nil {
				t.Fatal(err)
			}
			back, err := canonjson.ParseStrict([]byte(got.Text), canonjson.Limits{Depth: 100, Nodes: 200_000})
			if err == nil && !back.Get("payload").Equal(value) {
				t.Errorf("%s: %s reads back as %s", era, name, back.Get("payload").AppendJSON(nil))
			}
			if err != nil && !strings.Contains(err.Error(), "string") {
				t.Errorf("%s: %s reads back as text that is refused: %v", era, name, err)
			}
		}
		fmt.Printf("JSON test suite as payloads, %s: %d accepted, %d refused\n", era, accepted, refused)
	}
}
