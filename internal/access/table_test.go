package access_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// asker asks one server as named principals.
type asker interface {
	// Call and Read answer; a refused credential is the RPC error -32001 with UNAUTHORIZED_KEY in its data.
	Call(ctx context.Context, as, tool string, args []byte) (scenario.Answer, error)
	Read(ctx context.Context, as, uri string) (scenario.Answer, error)
	// Route asks a route: the status, and everything that was said but the date.
	Route(ctx context.Context, as, method, path string, body []byte) (routed, error)
	// Narrow gives the caller a key with these scopes from now on.
	Narrow(t *testing.T, as string, scopes []string)
}

// routed is the answer of a route.
type routed struct {
	status int
	head   string // the headers, but for the date
	body   string
}

// table asks cells of one server.
type table struct {
	asker
	m     *matrix
	n     int             // cells so far: makes ids and keys fresh
	stock map[string]item // targets that are in their state, by name
}

// newTable makes a table.
func newTable(a asker, m *matrix) *table {
	return &table{asker: a, m: m, stock: map[string]item{}}
}

// cell is one question that is ready to be asked.
type cell struct {
	as, operation, target string
	namespace, id         string // of a document
	head                  int64
	item                  item   // of uploads and artifacts
	args                  []byte // of a replay: what the keeper has called already
}

// place is the namespace and id of a document. Documents that were never written have a fresh id in each cell, but for
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

// prepareDocument puts the target into its state and gives its head.
func (b *table) prepareDocument(t *testing.T, namespace, id, target string) int64 {
	t.Helper()
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

// prepare makes a cell ready: everything is in its state, and the caller has his key.
func (b *table) prepare(t *testing.T, as, operation, target string) *cell {
	t.Helper()
	b.n++
	c := &cell{as: as, operation: operation, target: target, item: item{scope: artifactAt("own", fmt.Sprintf(noHandle, b.n))}}
	switch {
	case target == "none":
	case documentTargets[target]:
		c.namespace, c.id = b.place(target)
		c.head = b.prepareDocument(t, c.namespace, c.id, target)
		b.prepareRevisions(t, c)
	default:
		b.prepareArtifact(t, c)
	}
	if p := b.m.principals[as]; p.perCell() {
		b.Narrow(t, as, p.scopes(c.item.scope))
	}
	return c
}

// documentTargets are the targets that are documents.
var documentTargets = map[string]bool{"live": true, "live-2": true, "LIVE": true, "gone": true, "missing": true, "foreign": true}

// prepareRevisions makes ready what an operation needs of the document's revisions: a replay's first call, or a
// superseded revision that nothing refers to.
func (b *table) prepareRevisions(t *testing.T, c *cell) {
	t.Helper()
	switch {
	case c.operation == "replay":
		c.args = b.putArgs(c.namespace, c.id, c.head, "[]", b.key())
		b.must(t, "persistence.put", c.args)
	case c.operation == "purge" && c.head > 0:
		b.must(t, "persistence.put", b.putArgs(c.namespace, c.id, c.head, "[]", b.key()))
		c.head++
	}
}

// tools are the tool and the arguments of operations; resources are in resourceOf, routes in routeOf.
func (b *table) tool(c *cell) (tool string, args []byte) {
	if tool, args = b.artifactTool(c); tool != "" {
		return tool, args
	}
	ns, id := c.namespace, c.id
	switch c.operation {
	case "capabilities":
		return "persistence.capabilities", []byte("{}")
	case "get":
		return "persistence.get", fmt.Appendf(nil, `{"namespace":%q,"id":%q}`, ns, id)
	case "get-old":
		return "persistence.get", fmt.Appendf(nil, `{"namespace":%q,"id":%q,"revision":1}`, ns, id)
	case "listRevisions":
		return "persistence.listRevisions", fmt.Appendf(nil, `{"namespace":%q,"id":%q}`, ns, id)
	case "put":
		return "persistence.put", b.putArgs(ns, id, c.head, "[]", b.key())
	case "put-stale":
		return "persistence.put", b.putArgs(ns, id, c.head+7, "[]", b.key())
	case "put-ref":
		ref := fmt.Sprintf(`[{"type":"document","namespace":%q,"id":%q,"revision":1}]`, ns, id)
		return "persistence.put", b.putArgs("own", fmt.Sprintf("citing%d", b.n), 0, ref, b.key())
	case "delete":
		return "persistence.delete", fmt.Appendf(nil, `{"namespace":%q,"id":%q,"expectedRevision":%d,"idempotencyKey":%q}`, ns, id, max(c.head, 1), b.key())
	case "replay":
		return "persistence.put", c.args
	case "purge":
		return "persistence.purge", b.purgeArgs(ns, id, max(c.head-1, 1))
	case "purge-head":
		return "persistence.purge", b.purgeArgs(ns, id, max(c.head, 1))
	}
	return "", nil
}

// purgeArgs are the arguments of the purge of a revision.
func (b *table) purgeArgs(namespace, id string, revision int64) []byte {
	return fmt.Appendf(nil, `{"namespace":%q,"target":{"type":"document","id":%q,"revision":%d},"idempotencyKey":%q}`, namespace, id, revision, b.key())
}

// resourceOf is the URI of an operation that reads a resource.
func resourceOf(c *cell) string {
	switch c.operation {
	case "read-capabilities":
		return "persistence://capabilities"
	case "read-head":
		return "persistence://documents/" + c.namespace + "/" + c.id
	case "read-revision":
		return "persistence://documents/" + c.namespace + "/" + c.id + "/revisions/1"
	case "read-artifact":
		return "persistence://artifacts/" + c.item.namespace + "/" + c.item.artifact
	}
	return ""
}

// ask asks a cell and names its verdict; words is everything that a refusal said.
func (b *table) ask(t *testing.T, c *cell) (verdict, words string) {
	t.Helper()
	if isRoute(c.operation) {
		return b.askRoute(t, c)
	}
	if c.operation == "list" {
		return b.askList(t, c)
	}
	var a scenario.Answer
	var err error
	if uri := resourceOf(c); uri != "" {
		a, err = b.Read(t.Context(), c.as, uri)
	} else {
		tool, args := b.tool(c)
		if tool == "" {
			t.Fatalf("unknown operation %s", c.operation)
		}
		a, err = b.Call(t.Context(), c.as, tool, args)
	}
	if err != nil {
		t.Fatalf("%s as %s on %s: %v", c.operation, c.as, c.target, err)
	}
	return verdictOf(a), wordsOf(a)
}

// askList tells whether a page walk shows the document.
func (b *table) askList(t *testing.T, c *cell) (verdict, words string) {
	t.Helper()
	cursor := ""
	for {
		a, err := b.Call(t.Context(), c.as, "persistence.list", fmt.Appendf(nil, `{"namespace":%q,"limit":200%s}`, c.namespace, cursor))
		if err != nil {
			t.Fatal(err)
		}
		if v := verdictOf(a); v != "ok" {
			return v, wordsOf(a)
		}
		m := a.Structured.(map[string]any)
		for _, item := range m["items"].([]any) {
			if item.(map[string]any)["id"] == c.id {
				return "shown", ""
			}
		}
		next, more := m["nextCursor"].(string)
		if !more {
			return "hidden", ""
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

// wordsOf is everything that an answer says.
func wordsOf(a scenario.Answer) string {
	if a.RPC != nil {
		return fmt.Sprint(a.RPC.Code, a.RPC.Message, a.RPC.Data)
	}
	return a.Text
}

// wrongBody tells what is wrong with the body of a route's answer; "" is nothing.
func (m *matrix) wrongBody(a routed) string {
	want, ok := m.Bodies[fmt.Sprint(a.status)]
	switch {
	case !ok:
		return "the status is not in the matrix"
	case a.status == 200 && a.body != content, a.status == 204 && a.body != "":
		return fmt.Sprintf("the body is %q", a.body)
	case a.status < 300:
		return ""
	}
	var body map[string]map[string]string
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || len(body) != 1 || len(body["error"]) != 2 || body["error"]["code"] != want {
		return fmt.Sprintf("the body is %q, want the code %s", a.body, want)
	}
	return ""
}

// cells asks every cell of the matrix and collects disagreements. Every refusal of an operation, and everything that
// was not found of an artifact, must say the same, byte for byte, whatever the target and whoever asks.
func (b *table) cells(t *testing.T, skip func(principal) bool) (asked int, wrong []string) {
	t.Helper()
	said := map[string]string{}
	for _, r := range b.m.rules {
		for _, operation := range r.operations {
			for _, target := range r.targets {
				for _, name := range b.m.order {
					p := b.m.principals[name]
					if skip(p) {
						continue
					}
					c := b.prepare(t, name, operation, target)
					got, words := b.ask(t, c)
					asked++
					if want := r.verdicts[name]; got != want {
						wrong = append(wrong, fmt.Sprintf("%s: %s as %s on %s is %s, want %s", r.name, operation, name, target, got, want))
					}
					b.spend(c, got)
					if group := saidOnce(operation, got, p); group != "" {
						if first, ok := said[group]; ok && first != words {
							wrong = append(wrong, fmt.Sprintf("%s: the answer %s differs: %q and %q", r.name, group, first, words))
						}
						said[group] = words
					}
				}
			}
		}
	}
	return asked, wrong
}

// saidOnce names the answers that must be equal byte for byte; "" is none. Callers who are nobody are told something
// else than callers without the right, but all of them the same.
func saidOnce(operation, verdict string, p principal) string {
	switch verdict {
	case "UNAUTHORIZED_KEY", "policy_denied", "403":
		return fmt.Sprintf("%s %s, nobody %t", operation, verdict, nobody(p))
	case "not_found", "404":
		if documentOperation(operation) {
			return "" // a document that was deleted may be told from one that never was, by who may read it
		}
		return operation + " " + verdict
	}
	return ""
}

// documentOperation tells whether an operation is about documents only.
func documentOperation(operation string) bool {
	switch operation {
	case "get", "get-old", "read-head", "read-revision", "listRevisions", "put", "put-ref", "replay", "delete":
		return true
	}
	return false
}

// report fails the test with the first disagreements.
func report(t *testing.T, asked int, wrong []string) {
	t.Helper()
	if len(wrong) > 0 {
		t.Errorf("%d of %d cells disagree:\n%s", len(wrong), asked, strings.Join(wrong[:min(10, len(wrong))], "\n"))
	}
	fmt.Printf("access matrix, %s: %d cells asked, %d disagree\n", t.Name(), asked, len(wrong))
}
