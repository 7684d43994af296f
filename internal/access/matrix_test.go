package access_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// matrix is the file of expected verdicts.
type matrix struct {
	Principals yaml.MapSlice        `yaml:"principals"`
	Everywhere map[string][]string  `yaml:"everywhere"`
	Rules      []map[string]any     `yaml:"rules"`
	principals map[string]principal // by name
	order      []string             // names
	rules      []rule
}

// principal is a caller.
type principal struct {
	Capabilities []string `yaml:"capabilities"`
	On           string   `yaml:"on"`
	Except       string   `yaml:"except"`
	Only         string   `yaml:"only"`
	Key          string   `yaml:"key"` // revoked, expired, none; "" is a good one
}

// rule is one row: verdicts by principal for operations on targets.
type rule struct {
	name                string
	operations, targets []string
	verdicts            map[string]string // principal -> verdict
}

// load reads the matrix and refuses a row that forgets a principal or names one twice.
func load(t *testing.T) *matrix {
	t.Helper()
	text, err := os.ReadFile("testdata/access/persistence.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m matrix
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	m.principals = map[string]principal{}
	for _, item := range m.Principals {
		name := fmt.Sprint(item.Key)
		var p principal
		part, err := yaml.Marshal(item.Value)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalWithOptions(part, &p, yaml.Strict()); err != nil {
			t.Fatalf("principal %s: %v", name, err)
		}
		m.principals[name] = p
		m.order = append(m.order, name)
	}
	for i, raw := range m.Rules {
		m.rules = append(m.rules, m.readRule(t, i, raw))
	}
	return &m
}

// readRule turns a row into verdicts.
func (m *matrix) readRule(t *testing.T, i int, raw map[string]any) rule {
	t.Helper()
	r := rule{verdicts: map[string]string{}}
	give := func(verdict string, names []string) {
		for _, name := range names {
			if _, ok := m.principals[name]; !ok {
				t.Fatalf("rule %d: unknown principal %s", i, name)
			}
			if other, twice := r.verdicts[name]; twice {
				t.Fatalf("rule %d: %s has the verdicts %s and %s", i, name, other, verdict)
			}
			r.verdicts[name] = verdict
		}
	}
	for key, value := range raw {
		switch key {
		case "rule":
			r.name = fmt.Sprint(value)
		case "operations":
			r.operations = texts(value)
		case "targets":
			r.targets = texts(value)
		default:
			give(key, texts(value))
		}
	}
	for verdict, names := range m.Everywhere {
		give(verdict, names)
	}
	for _, name := range m.order {
		if _, ok := r.verdicts[name]; !ok {
			t.Fatalf("rule %q says nothing of %s", r.name, name)
		}
	}
	return r
}

// texts is a YAML list of strings.
func texts(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, item := range list {
		out = append(out, fmt.Sprint(item))
	}
	return out
}

// grants is the policy that the principals need.
func (m *matrix) grants() []scenario.Grant {
	var out []scenario.Grant
	for _, name := range m.order {
		p := m.principals[name]
		if p.On == "" {
			continue
		}
		g := scenario.Grant{As: name, Resource: p.On}
		for _, c := range p.Capabilities {
			g.Capabilities = append(g.Capabilities, "persistence."+c)
		}
		if p.Except != "" {
			g.Except = []string{p.Except}
		}
		out = append(out, g)
	}
	return append(out, scenario.Grant{As: keeper, Resource: "/persistence/**",
		Capabilities: []string{"persistence.read", "persistence.write", "persistence.delete"}})
}

// keeper is the caller who puts documents back into their state between cells.
const keeper = "keeper"

// surfaceOf are the published names behind an operation of the matrix.
var surfaceOf = map[string]string{
	"capabilities": "persistence.capabilities", "read-capabilities": "persistence://capabilities",
	"get": "persistence.get", "get-old": "persistence.get",
	"read-head": "persistence://documents/{namespace}/{id}", "read-revision": "persistence://documents/{namespace}/{id}/revisions/{revision}",
	"put": "persistence.put", "put-stale": "persistence.put", "put-ref": "persistence.put", "replay": "persistence.put",
	"list": "persistence.list", "listRevisions": "persistence.listRevisions", "delete": "persistence.delete",
}

// asker asks one server as named principals.
type asker interface {
	// Call and Read answer; a refused credential is the RPC error -32001 with UNAUTHORIZED_KEY in its data.
	Call(ctx context.Context, as, tool string, args []byte) (scenario.Answer, error)
	Read(ctx context.Context, as, uri string) (scenario.Answer, error)
}

// table asks cells of one server.
type table struct {
	asker
	n int // cells so far: makes ids and keys fresh
}

// place is the namespace and id of a target. Documents that were never written have a fresh id in each cell, but for
// LIVE, whose name matters.
func (b *table) place(target string) (namespace, id string) {
	switch target {
	case "foreign":
		return "other", "live"
	case "missing":
		return "own", fmt.Sprintf("missing%d", b.n)
	}
	return "own", target
}

// prepare puts the target into its state and gives its head.
func (b *table) prepare(t *testing.T, target string) int64 {
	t.Helper()
	namespace, id := b.place(target)
	head, deleted := b.head(t, namespace, id)
	switch target {
	case "live", "foreign", "live-2":
		for head < 2 || deleted {
			b.must(t, "persistence.put", b.putArgs(namespace, id, head, "[]", b.key()))
			head, deleted = head+1, false
		}
	case "gone":
		for head < 2 || !deleted {
			if head >= 1 && !deleted {
				b.must(t, "persistence.delete", fmt.Appendf(nil, `{"namespace":%q,"id":%q,"expectedRevision":%d,"idempotencyKey":%q}`, namespace, id, head, b.key()))
				head, deleted = head+1, true
				continue
			}
			b.must(t, "persistence.put", b.putArgs(namespace, id, head, "[]", b.key()))
			head, deleted = head+1, false
		}
	}
	return head
}

// key is a fresh idempotency key.
func (b *table) key() string {
	b.n++
	return fmt.Sprintf("m-%d", b.n)
}

// must is a call of the keeper that succeeds.
func (b *table) must(t *testing.T, tool string, args []byte) map[string]any {
	t.Helper()
	a, err := b.Call(t.Context(), keeper, tool, args)
	if err != nil || a.IsError || a.RPC != nil {
		t.Fatalf("%s as keeper: %v %s", tool, err, a)
	}
	m, _ := a.Structured.(map[string]any)
	return m
}

// head is the newest revision's number, 0 for a document never written, and whether it is a tombstone.
func (b *table) head(t *testing.T, namespace, id string) (int64, bool) {
	t.Helper()
	a, err := b.Call(t.Context(), keeper, "persistence.listRevisions", fmt.Appendf(nil, `{"namespace":%q,"id":%q,"limit":200}`, namespace, id))
	if err != nil || a.RPC != nil {
		t.Fatalf("listRevisions as keeper: %v %s", err, a)
	}
	if a.IsError {
		return 0, false
	}
	m := a.Structured.(map[string]any)
	for m["nextCursor"] != nil {
		m = b.must(t, "persistence.listRevisions", fmt.Appendf(nil, `{"namespace":%q,"id":%q,"limit":200,"cursor":%q}`, namespace, id, m["nextCursor"]))
	}
	items := m["items"].([]any)
	last := items[len(items)-1].(map[string]any)
	var n int64
	fmt.Sscan(fmt.Sprint(last["revision"]), &n)
	return n, last["deleted"] == true
}

// putArgs are the arguments of a put.
func (b *table) putArgs(namespace, id string, expected int64, refs, key string) []byte {
	return fmt.Appendf(nil, `{"namespace":%q,"id":%q,"kind":"k","schemaVersion":"1","payload":1,"references":%s,"expectedRevision":%d,"idempotencyKey":%q}`,
		namespace, id, refs, expected, key)
}

// ask asks one cell and names its verdict; what the answer said is returned too.
func (b *table) ask(t *testing.T, as, operation, target string) (verdict string, a scenario.Answer) {
	t.Helper()
	b.n++
	head := int64(0)
	if target != "none" {
		head = b.prepare(t, target)
	}
	namespace, id := b.place(target)
	var err error
	call := func(tool, format string, args ...any) {
		a, err = b.Call(t.Context(), as, tool, fmt.Appendf(nil, format, args...))
	}
	switch operation {
	case "capabilities":
		call("persistence.capabilities", "{}")
	case "read-capabilities":
		a, err = b.Read(t.Context(), as, "persistence://capabilities")
	case "get":
		call("persistence.get", `{"namespace":%q,"id":%q}`, namespace, id)
	case "get-old":
		call("persistence.get", `{"namespace":%q,"id":%q,"revision":1}`, namespace, id)
	case "read-head":
		a, err = b.Read(t.Context(), as, "persistence://documents/"+namespace+"/"+id)
	case "read-revision":
		a, err = b.Read(t.Context(), as, "persistence://documents/"+namespace+"/"+id+"/revisions/1")
	case "listRevisions":
		call("persistence.listRevisions", `{"namespace":%q,"id":%q}`, namespace, id)
	case "list":
		return b.askList(t, as, namespace, id)
	case "put":
		call("persistence.put", "%s", b.putArgs(namespace, id, head, "[]", b.key()))
	case "put-stale":
		call("persistence.put", "%s", b.putArgs(namespace, id, head+7, "[]", b.key()))
	case "put-ref":
		ref := fmt.Sprintf(`[{"type":"document","namespace":%q,"id":%q,"revision":1}]`, namespace, id)
		call("persistence.put", "%s", b.putArgs("own", fmt.Sprintf("citing%d", b.n), 0, ref, b.key()))
	case "delete":
		call("persistence.delete", `{"namespace":%q,"id":%q,"expectedRevision":%d,"idempotencyKey":%q}`, namespace, id, max(head, 1), b.key())
	case "replay":
		args := b.putArgs(namespace, id, head, "[]", b.key())
		b.must(t, "persistence.put", args)
		call("persistence.put", "%s", args)
	default:
		t.Fatalf("unknown operation %s", operation)
	}
	if err != nil {
		t.Fatalf("%s as %s on %s: %v", operation, as, target, err)
	}
	return verdictOf(a), a
}

// askList tells whether a page walk shows id.
func (b *table) askList(t *testing.T, as, namespace, id string) (string, scenario.Answer) {
	t.Helper()
	cursor := ""
	for {
		a, err := b.Call(t.Context(), as, "persistence.list", fmt.Appendf(nil, `{"namespace":%q,"limit":200%s}`, namespace, cursor))
		if err != nil {
			t.Fatal(err)
		}
		if v := verdictOf(a); v != "ok" {
			return v, a
		}
		m := a.Structured.(map[string]any)
		for _, item := range m["items"].([]any) {
			if item.(map[string]any)["id"] == id {
				return "shown", scenario.Answer{}
			}
		}
		next, more := m["nextCursor"].(string)
		if !more {
			return "hidden", scenario.Answer{}
		}
		cursor = fmt.Sprintf(`,"cursor":%q`, next)
	}
}

// verdictOf names an answer: ok, or the code of its error.
func verdictOf(a scenario.Answer) string {
	var source any
	switch {
	case a.RPC != nil:
		source = a.RPC.Data
	case a.IsError:
		source = a.Structured
	default:
		return "ok"
	}
	m, _ := source.(map[string]any)
	switch e := m["error"].(type) {
	case string:
		return e
	case map[string]any:
		return fmt.Sprint(e["code"])
	}
	return a.String()
}

// cells asks every cell of the matrix and collects disagreements. refusals collects what denied callers were told.
func (b *table) cells(t *testing.T, m *matrix, skip func(principal) bool) (asked int, wrong []string) {
	t.Helper()
	for _, r := range m.rules {
		said := map[string]string{}
		for _, operation := range r.operations {
			for _, target := range r.targets {
				for _, name := range m.order {
					if skip(m.principals[name]) {
						continue
					}
					got, a := b.ask(t, name, operation, target)
					asked++
					if want := r.verdicts[name]; got != want {
						wrong = append(wrong, fmt.Sprintf("%s: %s as %s on %s is %s, want %s", r.name, operation, name, target, got, want))
					}
					if got == "policy_denied" {
						words := a.Text + fmt.Sprint(a.RPC)
						if a.RPC != nil {
							words = fmt.Sprint(a.RPC.Code, a.RPC.Message, a.RPC.Data)
						}
						if first, ok := said[operation]; ok && first != words {
							wrong = append(wrong, fmt.Sprintf("%s: the refusal of %s differs: %q and %q", r.name, operation, first, words))
						}
						said[operation] = words
					}
				}
			}
		}
	}
	return asked, wrong
}

// report fails the test with the first disagreements.
func report(t *testing.T, asked int, wrong []string) {
	t.Helper()
	if len(wrong) > 0 {
		t.Errorf("%d of %d cells disagree:\n%s", len(wrong), asked, strings.Join(wrong[:min(10, len(wrong))], "\n"))
	}
	fmt.Printf("access matrix, %s: %d cells asked, %d disagree\n", t.Name(), asked, len(wrong))
}

// covers tells whether the matrix has a row of a published name.
func (m *matrix) covers(published string) bool {
	for _, r := range m.rules {
		if slices.ContainsFunc(r.operations, func(op string) bool { return surfaceOf[op] == published }) {
			return true
		}
	}
	return false
}
