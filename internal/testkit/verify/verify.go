// Package verify is the one verifier that every fault test ends with: given what the clients were told and what a
// server now holds, it names every broken promise.
//
//	report, err := verify.Run(ctx, recorder.Ops(), server)
//	if !report.Clean() { t.Fatal(report) }
//
// It relies on two habits of the clients: every write has a key of its own (shared by its retries), and writes content
// that holds this key, so that a revision tells which write made it.
package verify

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
)

// Revision is one stored revision.
type Revision struct {
	Number  int64
	Deleted bool
	Content string   // as in history.Op; "" for a tombstone
	Refs    []string // "namespace/id@revision"
}

// Effect is one audit row of a write.
type Effect struct {
	Document string // namespace/id
	Revision int64
}

// Server is what the verifier reads.
type Server interface {
	// Documents names every document, tombstones too, as namespace/id.
	Documents(ctx context.Context) ([]string, error)
	// Revisions gives every stored revision of a document, ascending.
	Revisions(ctx context.Context, document string) ([]Revision, error)
	// Effects gives the audit rows of writes; nil when the trail cannot be read here.
	Effects(ctx context.Context) ([]Effect, error)
}

// Report lists what is wrong, in words. Counts of what was looked at show that the verifier had something to do.
type Report struct {
	Acknowledged, Revisions, Effects int

	Lost     []string // acknowledged, and not there or not what was acknowledged
	Twice    []string // one key in two revisions
	Gaps     []string // revision numbers that are missing
	Phantoms []string // content of a write that was refused, or of none
	Dangling []string // a reference to a revision that is not there
	Unlogged []string // a revision without its audit row
	Invented []string // an audit row without its revision, or two rows of one
}

// Clean tells whether nothing is wrong.
func (r *Report) Clean() bool {
	return len(r.Lost)+len(r.Twice)+len(r.Gaps)+len(r.Phantoms)+len(r.Dangling)+len(r.Unlogged)+len(r.Invented) == 0
}

// String is one line of counts, and the first few of each kind.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d acknowledged writes, %d revisions, %d audit effects: lost %d, applied twice %d, gaps %d, phantoms %d, dangling %d, unlogged %d, invented %d",
		r.Acknowledged, r.Revisions, r.Effects, len(r.Lost), len(r.Twice), len(r.Gaps), len(r.Phantoms), len(r.Dangling), len(r.Unlogged), len(r.Invented))
	for _, list := range [][]string{r.Lost, r.Twice, r.Gaps, r.Phantoms, r.Dangling, r.Unlogged, r.Invented} {
		for i, line := range list {
			if i == 5 {
				break
			}
			b.WriteString("\n  " + line)
		}
	}
	return b.String()
}

// stored is everything the server holds, by document and number.
type stored map[string]map[int64]Revision

// Run reads the server and compares.
func Run(ctx context.Context, ops []history.Op, server Server) (*Report, error) {
	r := &Report{}
	all, err := r.read(ctx, server)
	if err != nil {
		return nil, err
	}
	merged := history.Merge(ops)
	r.checkWrites(merged, all)
	r.checkReads(ops, all)
	r.checkOrigin(merged, all)
	r.checkReferences(all)
	effects, err := server.Effects(ctx)
	if err != nil {
		return nil, err
	}
	if effects != nil {
		r.checkAudit(effects, all)
	}
	return r, nil
}

// read collects the revisions and looks for gaps.
func (r *Report) read(ctx context.Context, server Server) (stored, error) {
	names, err := server.Documents(ctx)
	if err != nil {
		return nil, err
	}
	all := stored{}
	for _, name := range names {
		revisions, err := server.Revisions(ctx, name)
		if err != nil {
			return nil, err
		}
		byNumber := map[int64]Revision{}
		for i, rev := range revisions {
			if rev.Number != int64(i+1) {
				r.Gaps = append(r.Gaps, fmt.Sprintf("%s: revision %d stands at place %d", name, rev.Number, i+1))
			}
			byNumber[rev.Number] = rev
		}
		r.Revisions += len(revisions)
		all[name] = byNumber
	}
	return all, nil
}

// checkWrites looks for every acknowledged write.
func (r *Report) checkWrites(ops []history.Op, all stored) {
	for _, op := range ops {
		if op.Kind == history.Get || op.Outcome != history.OK {
			continue
		}
		r.Acknowledged++
		rev, ok := all[op.Document][op.Revision]
		switch {
		case !ok:
			r.Lost = append(r.Lost, fmt.Sprintf("%s revision %d (key %s) was acknowledged and is not there", op.Document, op.Revision, op.Key))
		case op.Kind == history.Delete && !rev.Deleted:
			r.Lost = append(r.Lost, fmt.Sprintf("%s revision %d (key %s) was acknowledged as a tombstone and is none", op.Document, op.Revision, op.Key))
		case op.Kind == history.Put && rev.Content != op.Content:
			r.Lost = append(r.Lost, fmt.Sprintf("%s revision %d (key %s) holds %q, acknowledged was %q", op.Document, op.Revision, op.Key, rev.Content, op.Content))
		}
	}
}

// checkReads looks whether a revision that a client saw is still what it saw.
func (r *Report) checkReads(ops []history.Op, all stored) {
	for _, op := range ops {
		if op.Kind != history.Get || op.Outcome != history.OK {
			continue
		}
		if rev, ok := all[op.Document][op.Revision]; !ok || rev.Content != op.Content {
			r.Lost = append(r.Lost, fmt.Sprintf("%s revision %d was read as %q and is now %q", op.Document, op.Revision, op.Content, rev.Content))
		}
	}
}

// checkOrigin looks for the write behind every revision: exactly one, and none that was refused.
func (r *Report) checkOrigin(ops []history.Op, all stored) {
	writers := map[string]history.Op{}
	for _, op := range ops {
		if op.Kind == history.Put {
			writers[op.Content] = op
		}
	}
	seen := map[string]string{}
	for _, name := range sortedKeys(all) {
		for _, number := range sortedKeys(all[name]) {
			rev := all[name][number]
			if rev.Deleted {
				continue
			}
			place := fmt.Sprintf("%s revision %d", name, number)
			if other, ok := seen[rev.Content]; ok {
				r.Twice = append(r.Twice, fmt.Sprintf("%q stands in %s and in %s", rev.Content, other, place))
			}
			seen[rev.Content] = place
			op, ok := writers[rev.Content]
			if !ok {
				r.Phantoms = append(r.Phantoms, fmt.Sprintf("%s holds %q, which nobody wrote", place, rev.Content))
			} else if op.Outcome == history.Refused || op.Outcome == history.NotDone {
				r.Phantoms = append(r.Phantoms, fmt.Sprintf("%s holds %q, whose write was refused", place, rev.Content))
			}
		}
	}
}

// checkReferences looks for the target of every reference to a document.
func (r *Report) checkReferences(all stored) {
	for name, revisions := range all {
		for number, rev := range revisions {
			for _, ref := range rev.Refs {
				target, version, _ := strings.Cut(ref, "@")
				var n int64
				fmt.Sscan(version, &n)
				if _, ok := all[target][n]; !ok {
					r.Dangling = append(r.Dangling, fmt.Sprintf("%s revision %d refers to %s, which is not there", name, number, ref))
				}
			}
		}
	}
}

// checkAudit pairs audit rows and revisions, one to one.
func (r *Report) checkAudit(effects []Effect, all stored) {
	r.Effects = len(effects)
	rows := map[Effect]int{}
	for _, e := range effects {
		rows[e]++
		if rows[e] > 1 {
			r.Invented = append(r.Invented, fmt.Sprintf("%s revision %d has two audit rows", e.Document, e.Revision))
		}
		if _, ok := all[e.Document][e.Revision]; !ok {
			r.Invented = append(r.Invented, fmt.Sprintf("an audit row tells of %s revision %d, which is not there", e.Document, e.Revision))
		}
	}
	for _, name := range sortedKeys(all) {
		for _, number := range sortedKeys(all[name]) {
			if rows[Effect{name, number}] == 0 {
				r.Unlogged = append(r.Unlogged, fmt.Sprintf("%s revision %d has no audit row", name, number))
			}
		}
	}
}

// sortedKeys gives the keys of m in order.
func sortedKeys[K int64 | string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i] < keys[j] })
	return keys
}
