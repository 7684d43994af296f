package scenario_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// TestRename: namespaces change where the contract has them and nowhere else, and the original stays as it is.
func TestRename(t *testing.T) {
	for _, tt := range []struct{ name, step, want, bad string }{
		{"argument", `{"tool":"t","args":{"namespace":"ns","id":"ns"},"expect":{"structuredContent":{"namespace":"ns"}}}`,
			`{"tool":"t","args":{"id":"ns","namespace":"ns-x"},"expect":{"structuredContent":{"namespace":"ns-x"}}}`, ""},
		{"references", `{"tool":"t","args":{"references":[{"namespace":"other"}]}}`, `{"tool":"t","args":{"references":[{"namespace":"other-x"}]}}`, ""},
		{"not the payload", `{"tool":"t","args":{"payload":{"namespace":"ns"},"provenance":{"namespace":"ns"}}}`,
			`{"tool":"t","args":{"payload":{"namespace":"ns"},"provenance":{"namespace":"ns"}}}`, ""},
		{"what nobody takes for a namespace", `{"tool":"t","args":{"namespace":"a/b"}}`, `{"tool":"t","args":{"namespace":"a/b"}}`, ""},
		{"no text", `{"tool":"t","args":{"namespace":7}}`, `{"tool":"t","args":{"namespace":7}}`, ""},
		{"a name too long for everybody", `{"tool":"t","args":{"namespace":{"$gen":"string","char":"a","count":129}}}`,
			`{"tool":"t","args":{"namespace":{"$gen":"string","char":"a","count":129}}}`, ""},
		{"a name made by a generator", `{"tool":"t","args":{"namespace":{"$gen":"string","char":"a","count":128}}}`, "", "generator"},
		{"a name without room", `{"tool":"t","args":{"namespace":"` + strings.Repeat("a", 127) + `"}}`, "", "no room"},
		{"an answer's name", `{"tool":"t","args":{"namespace":"${saved}"}}`, `{"tool":"t","args":{"namespace":"${saved}"}}`, ""},
		{"a counted name", `{"repeat":2,"step":{"tool":"t","args":{"namespace":"n${i}"}}}`, `{"repeat":2,"step":{"tool":"t","args":{"namespace":"n${i}-x"}}}`, ""},
		{"a pattern", `{"tool":"t","args":{},"expect":{"structuredContent":{"namespace":{"$re":"^ns$"}}}}`, "", "$re"},
		{"any", `{"tool":"t","args":{},"expect":{"structuredContent":{"namespace":{"$any":true}}}}`,
			`{"tool":"t","args":{},"expect":{"structuredContent":{"namespace":{"$any":true}}}}`, ""},
		{"exact numbers", `{"tool":"t","args":{"namespace":"ns","payload":1.50e3}}`, `{"tool":"t","args":{"namespace":"ns-x","payload":1.50e3}}`, ""},
		{"raw arguments", `{"tool":"t","rawArgs":"{\"namespace\":\"ns\"}"}`, "", "raw arguments"},
		{"raw arguments without", `{"tool":"t","rawArgs":"{}"}`, `{"tool":"t","rawArgs":"{}"}`, ""},
		{"grants", `{"setGrants":[]}`, "", "grants"},
		{"document", `{"resource":"persistence://documents/ns/ns/revisions/1"}`, `{"resource":"persistence://documents/ns-x/ns/revisions/1"}`, ""},
		{"no namespace in the URI", `{"resource":"persistence://capabilities"}`, `{"resource":"persistence://capabilities"}`, ""},
		{"transfer", `{"http":{"method":"GET","path":"/artifacts/ns/${art}?q=/ns/"}}`, `{"http":{"method":"GET","path":"/artifacts/ns-x/${art}?q=/ns/"}}`, ""},
		{"encoded", `{"http":{"method":"GET","path":"/artifacts/n%73/z"}}`, `{"http":{"method":"GET","path":"/artifacts/n%73-x/z"}}`, ""},
		{"parallel", `{"parallel":[{"tool":"t","args":{"namespace":"ns"}}]}`, `{"parallel":[{"tool":"t","args":{"namespace":"ns-x"}}]}`, ""},
		{"pages", `{"pages":{"tool":"t","args":{"namespace":"ns"}}}`, `{"pages":{"tool":"t","args":{"namespace":"ns-x"}}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, before := parse(t, "["+tt.step+"]"), parse(t, "["+tt.step+"]")
			got, err := s.Rename("-x")
			check(t, err, tt.bad)
			if !reflect.DeepEqual(s, before) {
				t.Error("the original has changed")
			}
			if err == nil && !reflect.DeepEqual(got, parse(t, "["+tt.want+"]")) {
				text, _ := json.Marshal(got.Steps)
				t.Errorf("got %s", text)
			}
		})
	}
}

// TestRenameOddPath: a path that climbs holds the namespace elsewhere, and names it only when arguments do.
func TestRenameOddPath(t *testing.T) {
	odd := `{"http":{"method":"GET","path":"/artifacts/../ns/z"}}`
	got, err := parse(t, `[`+odd+`,{"tool":"t","args":{"namespace":"ns"}}]`).Rename("-x")
	if err != nil || got.Steps[0].HTTP.Path != "/artifacts/../ns-x/z" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = parse(t, `[`+odd+`]`).Rename("-x"); err != nil || got.Steps[0].HTTP.Path != "/artifacts/../ns/z" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestUnmet: each thing that a scenario may need is missed when it is not there, and only then.
func TestUnmet(t *testing.T) {
	all := `["persistence.read","persistence.write","persistence.delete","persistence.admin"]`
	given := scenario.Given{Limits: map[string]int64{"maxPageSize": 3}, Callers: []string{"alice"}}
	step := `"steps":[{"tool":"t","as":"alice"}]`
	for name, tt := range map[string]struct{ text, bad string }{
		"nothing":         {`{` + step + `}`, ""},
		"the same limit":  {`{"setup":{"limits":{"maxPageSize":3}},` + step + `}`, ""},
		"another limit":   {`{"setup":{"limits":{"maxPageSize":4}},` + step + `}`, "needs the limit maxPageSize 4, the server's is 3"},
		"no retention":    {`{"setup":{"retentionSeconds":null},` + step + `}`, ""},
		"a retention":     {`{"setup":{"retentionSeconds":60},` + step + `}`, "retention of 60 s"},
		"open":            {`{"setup":{"mode":"open","grants":[]},` + step + `}`, "without authentication"},
		"default grants":  {`{"setup":{"grants":[{"as":"alice","capabilities":` + all + `,"resource":"/persistence/**"}]},` + step + `}`, ""},
		"fewer rights":    {`{"setup":{"grants":[{"as":"alice","capabilities":["persistence.read"],"resource":"/persistence/**"}]},` + step + `}`, "other grants"},
		"an exception":    {`{"setup":{"grants":[{"as":"alice","capabilities":` + all + `,"resource":"/persistence/**","except":["/persistence/x"]}]},` + step + `}`, "other grants"},
		"no grants":       {`{"setup":{"grants":[]},` + step + `}`, "other grants"},
		"changing grants": {`{"steps":[{"setGrants":[]}]}`, "changes grants"},
		"another caller":  {`{"steps":[{"tool":"t","as":"bob"}]}`, "token of bob"},
		"over HTTP":       {`{"steps":[{"http":{"method":"GET","path":"/","as":"bob"}}]}`, "token of bob"},
	} {
		t.Run(name, func(t *testing.T) {
			var s scenario.Scenario
			if err := json.Unmarshal([]byte(tt.text), &s); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(s.Unmet(given), "; ")
			if tt.bad == "" && got != "" || !strings.Contains(got, tt.bad) {
				t.Errorf("got %q, want %q", got, tt.bad)
			}
		})
	}
}

// TestNeededHooks: steps tell what they need, whatever the scenario says of itself.
func TestNeededHooks(t *testing.T) {
	s := parse(t, `[{"advanceSeconds":1},{"restart":"clean"},{"restart":"kill"},{"repeat":2,"step":{"fault":"none"}},{"corruptBlob":"x"}]`)
	s.Requires = []string{"more"}
	if got, want := s.NeededHooks(), []string{"clock", "corrupt", "fault", "kill", "more", "restart"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := parse(t, `[{"tool":"t"}]`).NeededHooks(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// TestCollect: files and folders; what holds no scenario is an error, and so is a file that cannot be read.
func TestCollect(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := func(id string) string {
		return `{"format":"persistence-scenarios/1","group":"g","scenarios":[{"id":"` + id + `","title":"t","steps":[]}]}`
	}
	b, single := write("folder/b.json", file("two")), write("single.json", file("three"))
	write("folder/a.json", file("one"))
	write("folder/c.json", `{"format":"another/1"}`)
	other, empty := write("other/x.json", `{"format":"another/1"}`), write("cut/x.json", `{"format":"persis`)
	got, err := scenario.Collect([]string{single, filepath.Dir(b)})
	var names []string
	for _, n := range got {
		names = append(names, n.Name)
	}
	if want := "single/three a/one b/two"; err != nil || strings.Join(names, " ") != want {
		t.Errorf("got %v, %v, want %s", names, err, want)
	}
	for path, bad := range map[string]string{
		other: "not of format", filepath.Dir(other): "holds no scenario", filepath.Dir(empty): "unexpected end", dir + "/none": "no such file",
	} {
		if _, err := scenario.Collect([]string{path}); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: got %v, want %q", path, err, bad)
		}
	}
}
