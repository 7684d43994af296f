package history

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// stage is where an upload stands, as the model sees it (persistence.v1, section 10.2). That bytes are on their way is no
// stage: a transfer counts when it is complete.
type stage uint8

// The stages.
const (
	none stage = iota
	pending
	received
	committed
	aborted
	purged
)

// transition is what an operation does when it succeeds.
type transition struct {
	from []stage
	to   stage
}

// transitions are those of the operations that change something.
var transitions = map[Kind]transition{
	Begin:         {[]stage{none}, pending},
	Receive:       {[]stage{pending}, received},
	Commit:        {[]stage{received}, committed},
	Abort:         {[]stage{pending, received}, aborted},
	PurgeArtifact: {[]stage{committed}, purged},
}

// refusals are the stages in which an operation is refused with a code. A code that is not listed is never right.
var refusals = map[Kind]map[string][]stage{
	Receive: {"invalid_request": {received}, "not_found": {none, committed, aborted, purged}},
	Commit:  {"transfer_incomplete": {pending}, "not_found": {none, committed, aborted, purged}},
	Abort:   {"not_found": {none, committed, aborted, purged}},
	Fetch:   {"not_found": {none, pending, received, aborted, purged}},
	// A reference, whose document the model does not see, keeps an artifact.
	PurgeArtifact: {"not_found": {none, pending, received, aborted, purged}, "retention_blocked": {committed}},
}

// ArtifactModel is the sequential behaviour of one upload and its artifact.
var ArtifactModel = porcupine.NondeterministicModel{
	Partition: partitionUploads,
	Init:      func() []any { return []any{none} },
	Step:      stepArtifact,
	Equal:     func(a, b any) bool { return a == b },
	DescribeOperation: func(in, _ any) string {
		return fmt.Sprintf("%+v", in.(Op))
	},
}

// partitionUploads splits a history by upload. Bytes that several share are one file, but each upload promises for
// itself.
func partitionUploads(h []porcupine.Operation) [][]porcupine.Operation {
	by := map[string][]porcupine.Operation{}
	for _, o := range h {
		u := o.Input.(Op).Upload
		by[u] = append(by[u], o)
	}
	out := make([][]porcupine.Operation, 0, len(by))
	for _, ops := range by {
		out = append(out, ops)
	}
	return out
}

// in tells whether s is one of several stages.
func (s stage) in(several []stage) bool {
	for _, one := range several {
		if s == one {
			return true
		}
	}
	return false
}

// stepArtifact gives the stages that can follow s when in was answered as it was. What Fetch saw was compared when it
// was recorded: see Wrong.
func stepArtifact(s, in, _ any) []any {
	at, op := s.(stage), in.(Op)
	t := transitions[op.Kind]
	switch op.Outcome {
	case NotDone:
		return []any{at}
	case Refused:
		if !at.in(refusals[op.Kind][op.Code]) {
			return nil
		}
		return []any{at}
	case Unknown:
		if at.in(t.from) {
			return []any{at, t.to}
		}
		return []any{at}
	}
	switch {
	case op.Kind == Fetch && at == committed && op.Code != Wrong:
		return []any{at}
	case op.Kind != Fetch && at.in(t.from):
		return []any{t.to}
	}
	return nil
}

// Wrong is the Code of a Fetch that was answered with other bytes than those that were declared.
const Wrong = "wrong bytes"

// CheckArtifacts tells whether the history of the uploads and artifacts is linearizable, within timeout.
func CheckArtifacts(ops []Op, timeout time.Duration) porcupine.CheckResult {
	return check(ArtifactModel, ops, timeout, Kind.OfArtifact)
}
