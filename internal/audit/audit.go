// Package audit records who did what, how it was decided, and what came of it. It holds no payload and no
// secret.
//
// There are three ways in (middle, D10). The row of an effect on our own store is prepared by the gate and
// committed by the store in the transaction of the effect: no row, no effect. Refusals, failed authentication,
// confirmations and surface changes go to the store too, grouped within 100 ms. Allowed reads are one JSON line a
// call in a rotated file.
//
// Rows are hash-chained: each row's hash covers the hash before it, and each process signs the head of its chain.
package audit

import (
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Kind says which way an entry takes.
type Kind string

// The kinds of entries.
const (
	KindEffect  Kind = "effect"  // a change of our own store, committed with it
	KindRefusal Kind = "refusal" // a decision against the caller, or a failed call that would have been an effect
	KindRead    Kind = "read"    // an allowed call without effect
	KindAuth    Kind = "auth"    // failed authentication, one a key (or address) and minute
	KindConfirm Kind = "confirm" // a confirmation asked for, given, declined
	KindSurface Kind = "surface" // the published surface, or the process, changed
	KindKey     Kind = "key"     // a key was made, revoked, rotated, pruned
)

// Entry is one line of the audit trail.
type Entry struct {
	Time        time.Time
	Correlation string // random, also in internal errors and the log
	Kind        Kind
	Subject     string // principal; "" when nobody was authenticated
	Method      string // how the principal was proved
	Tenant      string
	Client      string // client address, "" for stdio
	Surface     string // tool, resource, prompt, route, transfer, command
	Operation   string
	Target      string // path of the first check; further ones are counted in Targets
	Targets     int
	Decision    string // allow, deny, none
	Rule        string // the rule that decided
	Input       string // "sha256:" and the digest of the canonical input, hex
	Outcome     string // ok, or the fault's code, or unknown
	Revision    int64  // revision written or read, 0 when none
	Count       int    // entries of a page
	SurfaceHash string // digest of the published surface
	Note        string // further words of ours: a reason for a revocation, how often a failure was repeated
}

// Row is an encoded Entry: canonical JSON. It is opaque to a store.
type Row []byte

// Encode gives the row of e. Empty members are left out.
func (e *Entry) Encode() Row {
	m := make([]canonjson.Member, 0, 18)
	text := func(name, value string) {
		if value != "" {
			m = append(m, canonjson.M(name, canonjson.String(value)))
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			m = append(m, canonjson.M(name, canonjson.Int(value)))
		}
	}
	text("client", e.Client)
	text("correlation", e.Correlation)
	number("count", int64(e.Count))
	text("decision", e.Decision)
	text("input", e.Input)
	text("kind", string(e.Kind))
	text("method", e.Method)
	text("note", e.Note)
	text("operation", e.Operation)
	text("outcome", e.Outcome)
	number("revision", e.Revision)
	text("rule", e.Rule)
	text("subject", e.Subject)
	text("surface", e.Surface)
	text("surfaceHash", e.SurfaceHash)
	text("target", e.Target)
	number("targets", int64(e.Targets))
	text("tenant", e.Tenant)
	text("time", e.Time.UTC().Format("2006-01-02T15:04:05.000000Z"))
	return canonjson.Object(m...).AppendCanonical(nil)
}
