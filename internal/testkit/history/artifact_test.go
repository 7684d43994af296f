package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
)

// checkLimit bounds one check. It is a guard, not a measure.
const checkLimit = time.Minute

// TestArtifactModel holds the model itself: what it allows, and that two commits of one upload are not explained.
func TestArtifactModel(t *testing.T) {
	at := int64(0)
	op := func(kind history.Kind, outcome history.Outcome, code string) history.Op {
		at += 10
		key := ""
		if kind != history.Receive && kind != history.Fetch {
			key = fmt.Sprint(at)
		}
		return history.Op{Upload: "u", Kind: kind, Outcome: outcome, Code: code, Key: key, Call: at, Return: at + 5}
	}
	const ok, refused, unknown = history.OK, history.Refused, history.Unknown
	begin, receive, commit := op(history.Begin, ok, ""), op(history.Receive, ok, ""), op(history.Commit, ok, "")
	tests := []struct {
		name string
		ops  []history.Op
		want porcupine.CheckResult
	}{
		{"a life", []history.Op{begin, receive, commit, op(history.Fetch, ok, ""), op(history.PurgeArtifact, ok, ""), op(history.Fetch, refused, "not_found")}, porcupine.Ok},
		{"two commits", []history.Op{begin, receive, commit, op(history.Commit, ok, "")}, porcupine.Illegal},
		{"commit before the bytes", []history.Op{begin, op(history.Commit, ok, "")}, porcupine.Illegal},
		{"commit and abort", []history.Op{begin, receive, commit, op(history.Abort, ok, "")}, porcupine.Illegal},
		{"lost answer that happened", []history.Op{begin, op(history.Receive, unknown, ""), op(history.Commit, ok, "")}, porcupine.Ok},
		{"lost answer that did not", []history.Op{begin, op(history.Receive, unknown, ""), op(history.Receive, ok, "")}, porcupine.Ok},
		{"received twice", []history.Op{begin, receive, op(history.Receive, ok, "")}, porcupine.Illegal},
		{"forgotten bytes", []history.Op{begin, receive, op(history.Commit, refused, "transfer_incomplete")}, porcupine.Illegal},
		{"damaged bytes", []history.Op{begin, receive, op(history.Commit, refused, "integrity_error")}, porcupine.Illegal},
		{"wrong bytes", []history.Op{begin, receive, commit, op(history.Fetch, ok, history.Wrong)}, porcupine.Illegal},
		{"seen before its commit", []history.Op{begin, receive, op(history.Fetch, ok, ""), op(history.Commit, ok, "")}, porcupine.Illegal},
		{"gone without a purge", []history.Op{begin, receive, commit, op(history.Fetch, refused, "not_found")}, porcupine.Illegal},
	}
	for _, tt := range tests {
		if got := history.CheckArtifacts(tt.ops, checkLimit); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
