package persistence_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
)

// ofTenant is a caller called alice in a tenant: the policy gives both alices every right.
func ofTenant(tenant string) *identity.Principal {
	p := *inproc.Principal("alice")
	p.Tenant = tenant
	return &p
}

// ask is a call whose answer is one word: ok, or the code of its error.
func ask(t *testing.T, s *inproc.Server, who *identity.Principal, tool, args string) (string, scenario.Answer) {
	t.Helper()
	a, err := s.CallAs(context.Background(), who, tool, []byte(args))
	if err != nil {
		t.Error(err)
		return err.Error(), a
	}
	if !a.IsError {
		return "ok", a
	}
	return fmt.Sprint(a.Structured.(map[string]any)["error"].(map[string]any)["code"]), a
}

// putText is a put of the tenant's own name.
func putText(id, payload, refs, key string, expected int) string {
	return fmt.Sprintf(`{"namespace":"ns","id":%q,"kind":"k","schemaVersion":"1","payload":%s,"references":%s,"expectedRevision":%d,"idempotencyKey":%q}`, id, payload, refs, expected, key)
}

// TestTenantsShareNothing holds S29: one namespace name in two tenants is two namespaces, with documents, keys, cursors
// and references of their own.
func TestTenantsShareNothing(t *testing.T) {
	s := inproc.New(t, inproc.Config{Store: memory.New(nil), Grants: scenario.DefaultGrants()})
	a, b, none := ofTenant("a"), ofTenant("b"), ofTenant("")
	for i, who := range []*identity.Principal{a, b, none} {
		// The same id and the same key, with other content: neither a conflict nor a replay.
		got, answer := ask(t, s, who, "persistence.put", putText("d1", fmt.Sprint(i), "[]", "k", 0))
		if got != "ok" || answer.Structured.(map[string]any)["namespace"] != "ns" {
			t.Fatalf("tenant %q: %s %s", who.Tenant, got, answer)
		}
	}
	for i, who := range []*identity.Principal{a, b, none} {
		_, answer := ask(t, s, who, "persistence.get", `{"namespace":"ns","id":"d1"}`)
		if fmt.Sprint(answer.Structured.(map[string]any)["payload"]) != fmt.Sprint(i) {
			t.Errorf("tenant %q reads %s", who.Tenant, answer)
		}
	}
	for _, id := range []string{"d2", "d3"} {
		ask(t, s, a, "persistence.put", putText(id, "1", "[]", "k-"+id, 0))
	}
	if got, _ := ask(t, s, b, "persistence.get", `{"namespace":"ns","id":"d2"}`); got != "not_found" {
		t.Errorf("b reads a's document: %s", got)
	}
	ref := `[{"type":"document","namespace":"ns","id":"d2","revision":1}]`
	if got, _ := ask(t, s, b, "persistence.put", putText("citing", "1", ref, "c", 0)); got != "not_found" {
		t.Errorf("b refers to a's document: %s", got)
	}
	if got, answer := ask(t, s, a, "persistence.put", putText("citing", "1", ref, "c", 0)); got != "ok" ||
		answer.Structured.(map[string]any)["references"].([]any)[0].(map[string]any)["namespace"] != "ns" {
		t.Errorf("a refers to its own: %s", answer)
	}
	_, page := ask(t, s, a, "persistence.list", `{"namespace":"ns","limit":1}`)
	cursor := page.Structured.(map[string]any)["nextCursor"].(string)
	if got, _ := ask(t, s, b, "persistence.list", fmt.Sprintf(`{"namespace":"ns","limit":1,"cursor":%q}`, cursor)); got != "invalid_request" {
		t.Errorf("b goes on with a's cursor: %s", got)
	}
	if _, page := ask(t, s, b, "persistence.list", `{"namespace":"ns"}`); len(page.Structured.(map[string]any)["items"].([]any)) != 1 {
		t.Errorf("b lists %s", page)
	}
	for _, namespace := range []string{"a:ns", "b:ns"} {
		if got, _ := ask(t, s, none, "persistence.list", fmt.Sprintf(`{"namespace":%q}`, namespace)); got != "invalid_request" {
			t.Errorf("a caller names %s: %s", namespace, got)
		}
	}
}

// TestTenantsInterleaved runs two tenants against each other: whatever one writes, the other never reads it.
func TestTenantsInterleaved(t *testing.T) {
	s := inproc.New(t, inproc.Config{Store: memory.New(nil), Grants: scenario.DefaultGrants()})
	var wg sync.WaitGroup
	for _, tenant := range []string{"a", "b"} {
		for worker := range 4 {
			wg.Go(func() {
				who := ofTenant(tenant)
				for i := range 500 {
					id := fmt.Sprintf("w%d-%d", worker, i)
					if got, _ := ask(t, s, who, "persistence.put", putText(id, fmt.Sprintf("%q", tenant), "[]", id, 0)); got != "ok" {
						t.Errorf("put %s: %s", id, got)
						return
					}
					_, answer := ask(t, s, who, "persistence.get", fmt.Sprintf(`{"namespace":"ns","id":%q}`, id))
					if m, ok := answer.Structured.(map[string]any); !ok || m["payload"] != tenant {
						t.Errorf("tenant %s reads %s", tenant, answer)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}
