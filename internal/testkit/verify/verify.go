// Package verify is the one verifier that every fault test ends with: given what the clients were told and what a
// server now holds, it names every broken promise.
//
//	report, err := verify.Run(ctx, recorder.Ops(), server)
//	if !report.Clean() { t.Fatal(report) }
//
// It relies on two habits of the clients: every write has a key of its own (shared by its retries), and writes content
// that holds this key, so that a revision tells which write made it. Artifacts hold the key of their upload in their
// provenance.
//
// It only reads, but for one thing at its end: uploads whose bytes were acknowledged and that are still open are
// committed, to see that they can be.
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
	// Artifacts are the artifacts that it refers to, as namespace/id.
	Artifacts []string
}

// Effect is one audit row of an operation that changed something.
type Effect struct {
	// Kind is history.Put for every row of a revision, tombstones too: what it is, the revision tells.
	Kind     history.Kind
	Document string // namespace/id, of Put and Purge
	Revision int64  // of Put
	Artifact string // namespace/id, of the kinds that are of artifacts; "" of Begin, which is decided before there is an id
}

// Server is what the verifier reads.
type Server interface {
	// Documents names every document, tombstones too, as namespace/id.
	Documents(ctx context.Context) ([]string, error)
	// Revisions gives every stored revision of a document, ascending.
	Revisions(ctx context.Context, document string) ([]Revision, error)
	// Effects gives the audit rows of writes; nil when the trail cannot be read here.
	Effects(ctx context.Context) ([]Effect, error)

	// Artifacts counts the artifacts that exist; known is false where they cannot be counted.
	Artifacts(ctx context.Context) (n int, known bool, err error)
	// Artifact gives what is known of an artifact, namespace/id; nil when there is none.
	Artifact(ctx context.Context, name string) (*Artifact, error)
	// Bytes reads the bytes of an artifact.
	Bytes(ctx context.Context, name string) (Bytes, error)
	// Open tells whether an upload is open.
	Open(ctx context.Context, upload string) (bool, error)
	// Commit publishes the upload that an operation was about; code is "" when that succeeded, or the contract's.
	Commit(ctx context.Context, of history.Op) (code string, err error)
}

// Report lists what is wrong, in words. Counts of what was looked at show that the verifier had something to do.
type Report struct {
	Acknowledged, Revisions, Effects int // of documents; Effects of both
	Artifacts                        Artifacts

	Lost     []string // acknowledged, and not there or not what was acknowledged
	Twice    []string // one key in two revisions
	Gaps     []string // revision numbers that are missing
	Phantoms []string // content of a write that was refused, or of none
	Dangling []string // a reference to a revision that is not there
	Unlogged []string // an effect without its audit row
	Invented []string // an audit row without its effect, or two rows of one
	Damaged  []string // an artifact that is half there, or not what was declared; what a check of the folder found
}

// lists are the lists of violations with their names, in the order in which they are told.
func (r *Report) lists() ([]string, [][]string) {
	return []string{"lost", "applied twice", "gaps", "phantoms", "dangling", "unlogged", "invented", "damaged"},
		[][]string{r.Lost, r.Twice, r.Gaps, r.Phantoms, r.Dangling, r.Unlogged, r.Invented, r.Damaged}
}

// Clean tells whether nothing is wrong.
func (r *Report) Clean() bool {
	_, lists := r.lists()
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	return n == 0
}

// Counts is one line: what was looked at, and how many violations of each kind there are.
func (r *Report) Counts() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d acknowledged writes, %d revisions, %s, %d audit effects", r.Acknowledged, r.Revisions, r.Artifacts, r.Effects)
	names, lists := r.lists()
	for i, list := range lists {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s %d", sep, names[i], len(list))
	}
	return b.String()
}

// String is the line of counts, and the first few of each kind.
func (r *Report) String() string {
	var b strings.Builder
	b.WriteString(r.Counts())
	_, lists := r.lists()
	for _, list := range lists {
		for _, line := range list[:min(5, len(list))] {
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
	merged := history.Merge(ops)
	v := &run{Report: r, server: server, purges: purgesOf(merged)}
	all, err := v.read(ctx)
	if err != nil {
		return nil, err
	}
	v.checkWrites(merged, all)
	v.checkReads(ops, all)
	v.checkOrigin(merged, all)
	v.checkReferences(all)
	things, err := v.checkArtifacts(ctx, ops, merged)
	if err != nil {
		return nil, err
	}
	v.checkCitations(all, things)
	effects, err := server.Effects(ctx)
	if err != nil {
		return nil, err
	}
	if effects != nil {
		r.Effects = len(effects)
		v.checkAudit(effects, all)
		v.checkArtifactAudit(effects, merged, things)
	}
	return r, v.finish(ctx, things)
}

// run is one verification under way.
type run struct {
	*Report
	server Server
	purges map[place]history.Outcome
}

// place is one revision of a document.
type place struct {
	document string
	revision int64
}

// purgesOf gives the revisions that a purge was acknowledged of, or may have happened to.
func purgesOf(merged []history.Op) map[place]history.Outcome {
	out := map[place]history.Outcome{}
	for _, op := range merged {
		p := place{op.Document, op.Revision}
		if op.Kind != history.Purge || op.Outcome != history.OK && op.Outcome != history.Unknown {
			continue
		}
		if was, ok := out[p]; !ok || was == history.Unknown {
			out[p] = op.Outcome
		}
	}
	return out
}

// mayBeGone tells whether a revision may be missing: a purge of it was acknowledged, or is not known.
func (r *run) mayBeGone(document string, revision int64) bool {
	_, ok := r.purges[place{document, revision}]
	return ok
}

// read collects the revisions, and looks for gaps and for what was purged and is there.
func (r *run) read(ctx context.Context) (stored, error) {
	names, err := r.server.Documents(ctx)
	if err != nil {
		return nil, err
	}
	all := stored{}
	for _, name := range names {
		revisions, err := r.server.Revisions(ctx, name)
		if err != nil {
			return nil, err
		}
		byNumber, next := map[int64]Revision{}, int64(1)
		for _, rev := range revisions {
			for ; next < rev.Number; next++ {
				if !r.mayBeGone(name, next) {
					r.Gaps = append(r.Gaps, fmt.Sprintf("%s: revision %d is missing", name, next))
				}
			}
			if rev.Number < next {
				r.Gaps = append(r.Gaps, fmt.Sprintf("%s: revision %d stands behind a later one", name, rev.Number))
			}
			next = rev.Number + 1
			byNumber[rev.Number] = rev
		}
		r.Revisions += len(revisions)
		all[name] = byNumber
	}
	for p, outcome := range r.purges {
		if _, there := all[p.document][p.revision]; there && outcome == history.OK {
			r.Lost = append(r.Lost, fmt.Sprintf("%s revision %d was purged and is there", p.document, p.revision))
		}
	}
	return all, nil
}

// checkWrites looks for every acknowledged write.
func (r *run) checkWrites(ops []history.Op, all stored) {
	for _, op := range ops {
		if op.Kind != history.Put && op.Kind != history.Delete || op.Outcome != history.OK {
			continue
		}
		r.Acknowledged++
		rev, ok := all[op.Document][op.Revision]
		switch {
		case !ok && r.mayBeGone(op.Document, op.Revision):
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
func (r *run) checkReads(ops []history.Op, all stored) {
	for _, op := range ops {
		if op.Kind != history.Get || op.Outcome != history.OK {
			continue
		}
		rev, ok := all[op.Document][op.Revision]
		if !ok && r.mayBeGone(op.Document, op.Revision) {
			continue
		}
		if !ok || rev.Content != op.Content {
			r.Lost = append(r.Lost, fmt.Sprintf("%s revision %d was read as %q and is now %q", op.Document, op.Revision, op.Content, rev.Content))
		}
	}
}

// checkOrigin looks for the write behind every revision: exactly one, and none that was refused.
func (r *run) checkOrigin(ops []history.Op, all stored) {
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
func (r *run) checkReferences(all stored) {
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

// checkAudit pairs the audit rows of documents with revisions, one to one. A row of a revision that was purged stays.
func (r *run) checkAudit(effects []Effect, all stored) {
	rows, purges := map[place]int{}, map[string]int{}
	for _, e := range effects {
		switch e.Kind {
		case history.Put:
			r.checkRow(place{e.Document, e.Revision}, rows, all)
		case history.Purge:
			purges[e.Document]++
		}
	}
	for _, name := range sortedKeys(all) {
		for _, number := range sortedKeys(all[name]) {
			if rows[place{name, number}] == 0 {
				r.Unlogged = append(r.Unlogged, fmt.Sprintf("%s revision %d has no audit row", name, number))
			}
		}
	}
	for p := range r.purges {
		if _, there := all[p.document][p.revision]; !there {
			purges[p.document]--
		}
	}
	for _, name := range sortedKeys(purges) {
		switch n := purges[name]; {
		case n < 0:
			r.Unlogged = append(r.Unlogged, fmt.Sprintf("%d purges of revisions of %s have no audit row", -n, name))
		case n > 0:
			r.Invented = append(r.Invented, fmt.Sprintf("%d audit rows tell of purges of revisions of %s that did not happen", n, name))
		}
	}
}

// checkRow looks for the revision that an audit row tells of.
func (r *run) checkRow(p place, rows map[place]int, all stored) {
	rows[p]++
	if rows[p] > 1 {
		r.Invented = append(r.Invented, fmt.Sprintf("%s revision %d has two audit rows", p.document, p.revision))
	}
	if _, ok := all[p.document][p.revision]; !ok && !r.mayBeGone(p.document, p.revision) {
		r.Invented = append(r.Invented, fmt.Sprintf("an audit row tells of %s revision %d, which is not there", p.document, p.revision))
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
