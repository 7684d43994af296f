package audit_test

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/tabellion-mcp/tabellion/internal/audit"
)

// fakeStore is the audit part of a store in memory, open to tampering. It is shared by several writers.
type fakeStore struct {
	mu    sync.Mutex
	rows  map[string][]audit.Record
	heads map[string][]audit.Head
}

// newFakeStore is an empty store.
func newFakeStore() *fakeStore {
	return &fakeStore{rows: map[string][]audit.Record{}, heads: map[string][]audit.Head{}}
}

// fakeLog is one writer's view of a fakeStore.
type fakeLog struct {
	*fakeStore
	writer  string
	fail    func() error  // answers AppendAudit when it is not nil
	batches int           // that were committed
	blocked chan struct{} // AppendAudit waits for it when it is not nil
}

// AppendAudit chains rows.
func (l *fakeLog) AppendAudit(_ context.Context, rows []audit.Row) error {
	if l.blocked != nil {
		<-l.blocked
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		if err := l.fail(); err != nil {
			return err
		}
	}
	l.batches++
	chain := l.rows[l.writer]
	prev := audit.Genesis(l.writer)
	if len(chain) > 0 {
		prev = chain[len(chain)-1].Hash
	}
	for _, row := range rows {
		prev = audit.Link(prev, row)
		chain = append(chain, audit.Record{Writer: l.writer, Position: int64(len(chain) + 1), Row: slices.Clone(row), Hash: prev})
	}
	l.rows[l.writer] = chain
	return nil
}

// AuditHead is the end of the writer's chain.
func (l *fakeLog) AuditHead(context.Context) (audit.Head, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := audit.Head{Writer: l.writer, Hash: audit.Genesis(l.writer)}
	if chain := l.rows[l.writer]; len(chain) > 0 {
		h.Position, h.Hash = chain[len(chain)-1].Position, chain[len(chain)-1].Hash
	}
	return h, nil
}

// AddAuditHead keeps a head unless there is one of its position.
func (l *fakeLog) AddAuditHead(_ context.Context, h audit.Head) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, old := range l.heads[h.Writer] {
		if old.Position == h.Position {
			return nil
		}
	}
	l.heads[h.Writer] = append(l.heads[h.Writer], h)
	return nil
}

// AuditHeads gives the newest head of every writer.
func (s *fakeStore) AuditHeads(context.Context) ([]audit.Head, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []audit.Head
	for _, heads := range s.heads {
		if len(heads) > 0 {
			out = append(out, heads[len(heads)-1])
		}
	}
	slices.SortFunc(out, func(a, b audit.Head) int { return cmp.Compare(a.Writer, b.Writer) })
	return out, nil
}

// AuditRows gives a page of a writer's rows.
func (s *fakeStore) AuditRows(_ context.Context, writer string, after int64, limit int) ([]audit.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []audit.Record
	for _, r := range s.rows[writer] {
		if r.Position > after && len(out) < limit {
			out = append(out, r)
		}
	}
	return out, nil
}

// AuditWriters lists who has rows.
func (s *fakeStore) AuditWriters(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for w, rows := range s.rows {
		if len(rows) > 0 {
			out = append(out, w)
		}
	}
	slices.Sort(out)
	return out, nil
}

var _ audit.Log = (*fakeLog)(nil)
