package persistence_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// examples are arguments of a call that succeeds, for every operation. A new operation without an example fails.
var examples = map[string]string{
	"persistence.capabilities":  `{}`,
	"persistence.get":           `{"namespace":"ns","id":"d1"}`,
	"persistence.put":           `{"namespace":"ns","id":"d1","kind":"k","schemaVersion":"1","payload":2,"references":[],"expectedRevision":1,"idempotencyKey":"again"}`,
	"persistence.list":          `{"namespace":"ns"}`,
	"persistence.listRevisions": `{"namespace":"ns","id":"d1"}`,
	"persistence.delete":        `{"namespace":"ns","id":"d1","expectedRevision":1,"idempotencyKey":"gone"}`,
}

// readOnlyStore refuses every write.
type readOnlyStore struct {
	*memory.Store
	refused int
}

// Update refuses.
func (r *readOnlyStore) Update(context.Context, persistence.Commit, func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	r.refused++
	return persistence.Outcome{}, persistence.ErrUnavailable
}

// prepared is a server over a store with one document.
func prepared(t *testing.T, wrap func(*memory.Store) inproc.Store) *inproc.Server {
	t.Helper()
	m := memory.New(nil)
	writer := inproc.New(t, inproc.Config{Store: m, Grants: scenario.DefaultGrants()})
	a, err := writer.Call(t.Context(), "alice", "persistence.put", []byte(`{"namespace":"ns","id":"d1","kind":"k","schemaVersion":"1","payload":1,"references":[],"expectedRevision":0,"idempotencyKey":"first"}`))
	if err != nil || a.IsError {
		t.Fatal(err, a)
	}
	return inproc.New(t, inproc.Config{Store: wrap(m), Grants: scenario.DefaultGrants()})
}

// TestReadOnlyIsTrue runs every operation over a store that refuses writes: those declared read-only succeed, the
// others do not, so that no declaration is fiction.
func TestReadOnlyIsTrue(t *testing.T) {
	for _, op := range persistence.New(persistence.Config{}).Operations() {
		t.Run(op.Name, func(t *testing.T) {
			args, ok := examples[op.Name]
			if !ok {
				t.Fatal("the operation has no example here")
			}
			refusing := &readOnlyStore{}
			s := prepared(t, func(m *memory.Store) inproc.Store { refusing.Store = m; return refusing })
			a, err := s.Call(t.Context(), "alice", op.Name, []byte(args))
			if err != nil {
				t.Fatal(err)
			}
			readOnly, set := op.Effects.ReadOnly.Known()
			if !set {
				t.Fatal("the operation does not say whether it is read-only")
			}
			if succeeded := !a.IsError && refusing.refused == 0; succeeded != readOnly {
				t.Errorf("declared read-only is %t, over a store that refuses writes it gave %s", readOnly, a)
			}
		})
	}
}

// TestIdempotentIsTrue runs every operation that is declared idempotent twice: the second call answers the same and
// leaves everything as it is.
func TestIdempotentIsTrue(t *testing.T) {
	for _, op := range persistence.New(persistence.Config{}).Operations() {
		if op.Effects.Idempotent != catalog.Yes {
			continue
		}
		t.Run(op.Name, func(t *testing.T) {
			s := prepared(t, func(m *memory.Store) inproc.Store { return m })
			first, err := s.Call(t.Context(), "alice", op.Name, []byte(examples[op.Name]))
			if err != nil || first.IsError {
				t.Fatal(err, first)
			}
			before := holds(t, s)
			second, err := s.Call(t.Context(), "alice", op.Name, []byte(examples[op.Name]))
			if err != nil || second.Text != first.Text {
				t.Errorf("second call: %v %s, first %s", err, second, first)
			}
			if after := holds(t, s); after != before {
				t.Errorf("the second call changed the store from %s to %s", before, after)
			}
		})
	}
}

// holds is everything in the example's document.
func holds(t *testing.T, s *inproc.Server) string {
	t.Helper()
	a, err := s.Call(t.Context(), "alice", "persistence.listRevisions", []byte(`{"namespace":"ns","id":"d1"}`))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(a.Text)
}
