package sqlexec

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// sweepEvery is how often keys that nobody remembers are removed, at most.
const sweepEvery = time.Minute

// sweeper remembers when keys were last removed.
type sweeper struct {
	mu   sync.Mutex
	last time.Time
}

// due tells whether it is time, and takes the turn.
func (s *sweeper) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.last) < sweepEvery {
		return false
	}
	s.last = now
	return true
}

// keyed does a write once for its key. The key is claimed before anything else, so that a second writer with the same key
// waits for the first.
func (wr *writer) keyed(w *plan.Write, c plan.Commit) (*plan.Applied, error) {
	if c.Key == "" {
		return wr.write(w)
	}
	now := wr.x.Now()
	known, err := wr.claim(c, now)
	if err != nil || known != nil {
		return known, err
	}
	out, err := wr.write(w)
	if err != nil {
		return nil, err
	}
	g := wr.x.Generator
	if _, err := wr.conn.Exec(wr.ctx, g.SettleKey(c.Scope, c.Key, encodeApplied(out))); err != nil {
		return nil, err
	}
	if wr.x.swept.due(now) {
		_, err = wr.conn.Exec(wr.ctx, g.ForgetKeys(now.Add(-c.Keep).UnixMilli()))
	}
	return out, err
}

// claim records the key, or gives the outcome that it is recorded with.
func (wr *writer) claim(c plan.Commit, now time.Time) (*plan.Applied, error) {
	g := wr.x.Generator
	print := hex.EncodeToString(c.Fingerprint[:])
	claim := g.ClaimKey(c.Scope, c.Key, print, now.UnixMilli())
	if n, err := wr.conn.Exec(wr.ctx, claim); err != nil || n == 1 {
		return nil, err
	}
	var cells [3]any
	err := wr.conn.Query(wr.ctx, g.KnownKey(c.Scope, c.Key), func(row []any) error {
		cells = [3]any{asText(row[0]), asText(row[1]), row[2]}
		return nil
	})
	if err != nil {
		return nil, err
	}
	created, ok := asInt(cells[2])
	switch {
	case !ok:
		return nil, fmt.Errorf("a recorded key has no time")
	case created < now.Add(-c.Keep).UnixMilli():
		if _, err := wr.conn.Exec(wr.ctx, g.ForgetKey(c.Scope, c.Key)); err != nil {
			return nil, err
		}
		_, err := wr.conn.Exec(wr.ctx, claim)
		return nil, err
	case cells[0] != print:
		return nil, plan.ErrKeyConflict
	}
	return decodeApplied(cells[1].(string))
}

// encodeApplied writes an outcome as JSON. A cell is an array of its value, empty when it is missing.
func encodeApplied(a *plan.Applied) string {
	rows := make([]canonjson.Value, len(a.Rows))
	for i, row := range a.Rows {
		cells := make([]canonjson.Value, len(row.Cells))
		for j, v := range row.Cells {
			if cells[j] = canonjson.Array(); !v.IsAbsent() {
				cells[j] = canonjson.Array(v)
			}
		}
		rows[i] = canonjson.Array(cells...)
	}
	return string(canonjson.Object(
		canonjson.M("rows", canonjson.Array(rows...)),
		canonjson.M("modified", canonjson.Exact(a.Modified)),
		canonjson.M("deleted", canonjson.Exact(a.Deleted)),
		canonjson.M("archived", canonjson.Exact(a.Archived)),
	).AppendJSON(nil))
}

// decodeApplied reads what encodeApplied wrote.
func decodeApplied(text string) (*plan.Applied, error) {
	v, flaw, err := canonjson.Parse([]byte(text), jsonLimits)
	if err != nil || flaw != nil && flaw.Rule != canonjson.NumberExact {
		return nil, fmt.Errorf("a recorded outcome cannot be read")
	}
	out := &plan.Applied{Replayed: true}
	for _, row := range v.Get("rows").Items() {
		var r plan.ReadRow
		for _, cell := range row.Items() {
			var c canonjson.Value
			if items := cell.Items(); len(items) == 1 {
				c = items[0]
			}
			r.Cells = append(r.Cells, c)
		}
		out.Rows = append(out.Rows, r)
	}
	out.Modified, _ = v.Get("modified").Int()
	out.Deleted, _ = v.Get("deleted").Int()
	out.Archived, _ = v.Get("archived").Int()
	return out, nil
}

// KeysLook finds out whether a database has the table for keys, which may be made while the server runs. The zero value is
// ready; it is safe for concurrent use.
type KeysLook struct {
	found atomic.Bool
	last  atomic.Int64
}

// lookAgain is how long a database without the table is not asked again.
const lookAgain = time.Second

// Has tells whether bound tables hold the table, or tables found since.
func (l *KeysLook) Has(bound *Tables, tables func(context.Context) ([]plan.Table, error)) bool {
	if bound.HasKeys() || l.found.Load() {
		return true
	}
	now, last := time.Now().UnixNano(), l.last.Load()
	if now-last < int64(lookAgain) || !l.last.CompareAndSwap(last, now) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	all, err := tables(ctx)
	if err == nil && slices.ContainsFunc(all, func(t plan.Table) bool { return t.Name == sqlgen.KeysTable }) {
		l.found.Store(true)
	}
	return l.found.Load()
}

// HasKeys tells whether tables hold the one for keys.
func (t *Tables) HasKeys() bool { return t.Has(sqlgen.KeysTable) }
