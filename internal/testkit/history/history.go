// Package history records what clients did to documents and artifacts and what they were told, and checks that one
// order of the operations explains every answer (linearizability, one document or one upload at a time).
//
// An operation whose answer was lost is unknown: it may have happened at any time after it was sent, or never.
package history

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Outcome is what a client was told.
type Outcome uint8

// The outcomes.
const (
	OK      Outcome = iota // it happened; Revision says what it gave
	Refused                // it did not happen, and Code says what of the document or upload stood against it
	NotDone                // it did not happen for a reason outside of that: busy, quota, a body that was cut
	Unknown                // no answer, or store_unavailable
)

// Kind is the operation.
type Kind uint8

// The kinds. Those from Begin on are about an upload and the artifact that it leads to.
const (
	Get Kind = iota
	Put
	Delete
	Purge         // of a superseded revision
	Begin         // opens an upload
	Receive       // sends its bytes
	Commit        // publishes the artifact
	Abort         // gives the upload up
	Fetch         // reads the artifact
	PurgeArtifact // removes it for good
)

// OfArtifact tells whether operations of the kind are about an upload or artifact.
func (k Kind) OfArtifact() bool { return k >= Begin }

// Reads tells whether operations of the kind change nothing.
func (k Kind) Reads() bool { return k == Get || k == Fetch }

// Op is one operation on one document, or on one upload and its artifact.
type Op struct {
	Client   int
	Document string // namespace/id; of documents only
	Kind     Kind
	Expected int64  // of Put and Delete
	Key      string // idempotency key: the same for a retry; "" for Get, Fetch and Receive, which have none
	Content  string // digest of the payload, or SHA-256 of the bytes: written, or seen by Get and Fetch
	Cites    bool   // a Put that has references, which may be what is not found
	Outcome  Outcome
	Code     string // of the contract, when Refused
	Revision int64  // written, seen by Get, or the target of Purge

	Upload   string // key of the Begin that opened the upload; of artifacts only, as the rest
	UploadID string // "" while Begin was not answered
	Artifact string // namespace/id; "" while Begin was not answered
	MIME     string // declared
	Size     int64  // declared, in bytes

	Call   int64 // nanoseconds since the recorder began
	Return int64
}

// Recorder collects operations. It is safe for concurrent use.
type Recorder struct {
	start time.Time

	mu  sync.Mutex
	ops []Op
}

// NewRecorder begins a history.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Now is the time to put into Call.
func (r *Recorder) Now() int64 { return time.Since(r.start).Nanoseconds() }

// Add records an operation that has ended; Return is set here.
func (r *Recorder) Add(op Op) {
	op.Return = r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
}

// Len is the number of operations that were recorded.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ops)
}

// Ops is a copy of what was recorded.
func (r *Recorder) Ops() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Op(nil), r.ops...)
}

// state is a document as the model sees it: the head, its content, and whether it is a tombstone.
type state struct {
	revision int64
	content  string
	deleted  bool
}

// Model is the sequential behaviour of one document.
var Model = porcupine.NondeterministicModel{
	Partition: partition,
	Init:      func() []any { return []any{state{}} },
	Step:      step,
	Equal:     func(a, b any) bool { return a == b },
	DescribeOperation: func(in, _ any) string {
		return fmt.Sprintf("%+v", in.(Op))
	},
}

// partition splits a history by document: documents are independent.
func partition(h []porcupine.Operation) [][]porcupine.Operation {
	by := map[string][]porcupine.Operation{}
	for _, o := range h {
		d := o.Input.(Op).Document
		by[d] = append(by[d], o)
	}
	out := make([][]porcupine.Operation, 0, len(by))
	for _, ops := range by {
		out = append(out, ops)
	}
	return out
}

// step gives the states that can follow s when in was answered as it was.
func step(s, in, _ any) []any {
	st, op := s.(state), in.(Op)
	switch op.Kind {
	case Get:
		return stepGet(st, op)
	default:
		return stepWrite(st, op)
	}
}

// stepGet keeps the state when the answer fits it.
func stepGet(st state, op Op) []any {
	absent := st.revision == 0 || st.deleted
	switch op.Outcome {
	case OK:
		if absent || op.Revision != st.revision || op.Content != st.content {
			return nil
		}
	case Refused:
		if !absent {
			return nil
		}
	}
	return []any{st}
}

// stepWrite gives the state after a put or delete.
func stepWrite(st state, op Op) []any {
	possible := op.Expected == st.revision && (op.Kind == Put || (st.revision > 0 && !st.deleted))
	next := state{revision: st.revision + 1, content: op.Content, deleted: op.Kind == Delete}
	switch op.Outcome {
	case OK:
		if !possible || op.Revision != next.revision {
			return nil
		}
		return []any{next}
	case Refused:
		if possible && !(op.Cites && op.Code == "not_found") {
			return nil
		}
		return []any{st}
	case NotDone:
		return []any{st}
	}
	if possible {
		return []any{st, next}
	}
	return []any{st}
}

// Check tells whether the history of the documents is linearizable, within timeout. Retries of one key are merged into
// one operation first: the key promises one effect in all. Purges are left out: none moves a head.
func Check(ops []Op, timeout time.Duration) porcupine.CheckResult {
	return check(Model, ops, timeout, func(k Kind) bool { return !k.OfArtifact() && k != Purge })
}

// check runs a model over the operations of some kinds.
func check(m porcupine.NondeterministicModel, ops []Op, timeout time.Duration, of func(Kind) bool) porcupine.CheckResult {
	var h []porcupine.Operation
	for _, op := range Merge(ops) {
		if !of(op.Kind) {
			continue
		}
		ret := op.Return
		if op.Outcome == Unknown {
			ret = math.MaxInt64
		}
		h = append(h, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Return: ret})
	}
	return porcupine.CheckOperationsTimeout(m.ToModel(), h, timeout)
}

// Merge makes one operation of all attempts with one key: from the first call to the last return, with the last known
// outcome. A retry that is refused tells that no attempt before it took effect: a known key would have been replayed.
func Merge(ops []Op) []Op {
	first := map[string]int{}
	var out []Op
	for _, op := range ops {
		i, seen := first[op.Key]
		if op.Key == "" || !seen {
			if op.Key != "" {
				first[op.Key] = len(out)
			}
			out = append(out, op)
			continue
		}
		m := &out[i]
		m.Call, m.Return = min(m.Call, op.Call), max(m.Return, op.Return)
		if m.Outcome == Unknown || op.Outcome == OK {
			m.Outcome, m.Code, m.Revision = op.Outcome, op.Code, op.Revision
		}
		if op.Artifact != "" {
			m.Artifact, m.UploadID = op.Artifact, op.UploadID
		}
	}
	return out
}
