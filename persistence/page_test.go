package persistence_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
)

// maxAnswer is the most that an answer may have on the wire (security requirements, section 3).
const maxAnswer = 4 << 20

// TestPagesFitIntoAnswers holds the bound of a page in bytes of its result, references and all: whatever the documents
// are made of, every page of a listing can be answered, none is empty, and together they hold every document.
func TestPagesFitIntoAnswers(t *testing.T) {
	long := strings.Repeat("x", 128)
	refs := "[" + strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"type":"document","namespace":"ns","id":%q,"revision":1},`, long), 255), ",") + "]"
	tests := []struct {
		name, payload, refs string
		count               int
	}{
		{"many references", "0", refs, 60},
		{"large payloads", `"` + strings.Repeat("y", 900_000) + `"`, "[]", 5},
		{"payloads that double when they are escaped", `"` + strings.Repeat(`\"`, 500_000) + `"`, "[]", 4},
		{"many small ones", "0", "[]", 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := inproc.New(t, inproc.Config{Store: memory.New(nil), Grants: scenario.DefaultGrants()})
			alice := inproc.Principal("alice")
			ask(t, s, alice, "persistence.put", putText(long, "0", "[]", "target", 0))
			for i := range tt.count {
				if got, a := ask(t, s, alice, "persistence.put", putText(fmt.Sprintf("d%03d", i), tt.payload, tt.refs, fmt.Sprint(i), 0)); got != "ok" {
					t.Fatalf("put %d: %s", i, a)
				}
			}
			seen, pages, cursor := 0, 0, ""
			for {
				got, a := ask(t, s, alice, "persistence.list", fmt.Sprintf(`{"namespace":"ns","limit":200%s}`, cursor))
				if got != "ok" {
					t.Fatalf("page %d: %.300s", pages, a)
				}
				if wire := len(a.Text) + len(fmt.Sprintf("%q", a.Text)); wire > maxAnswer {
					t.Errorf("page %d has %d bytes on the wire", pages, wire)
				}
				m := a.Structured.(map[string]any)
				items := m["items"].([]any)
				if len(items) == 0 {
					t.Fatalf("page %d is empty", pages)
				}
				seen, pages = seen+len(items), pages+1
				next, more := m["nextCursor"].(string)
				if !more {
					break
				}
				cursor = fmt.Sprintf(`,"cursor":%q`, next)
			}
			if seen != tt.count+1 {
				t.Errorf("%d documents over %d pages, want %d", seen, pages, tt.count+1)
			}
		})
	}
}

// TestCursorFaultsAreAlike holds that every cursor that is not good has the same answer, its form included.
func TestCursorFaultsAreAlike(t *testing.T) {
	s := inproc.New(t, inproc.Config{Store: memory.New(nil), Grants: scenario.DefaultGrants()})
	words := map[string]bool{}
	for _, cursor := range []string{`""`, `"AAAA"`, `"a b"`, `"` + strings.Repeat("A", 2049) + `"`, `5`, `null`} {
		got, a := ask(t, s, inproc.Principal("alice"), "persistence.list", `{"namespace":"ns","cursor":`+cursor+`}`)
		if got != "invalid_request" {
			t.Errorf("cursor %.20s: %s", cursor, a)
		}
		words[a.Text] = true
	}
	if len(words) != 1 {
		t.Errorf("%d different answers: %v", len(words), words)
	}
}
