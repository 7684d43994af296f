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
	KindEffect Kind = "effect" // a change of our own store, committed with it
	// KindIntent announces a change of a database of the organisation, before it happens; a KindEffect of the same
	// correlation tells the outcome. Without one the outcome is unknown.
	KindIntent  Kind = "intent"
	KindRefusal Kind = "refusal" // a decision against the caller; refusals for rate and overload one a principal and minute, with a count
	KindRead    Kind = "read"    // a call without effect: an allowed read, or a call that failed
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
	Key         string // id of the API key, "" for other methods
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
func (e *Entry) Encode() Row { return e.Append(make([]byte, 0, 512)) }

// Append appends the row of e to dst. It allocates nothing but what dst needs to grow.
func (e *Entry) Append(dst []byte) []byte {
	o := object{append(dst, '{')}
	// In the order of canonical JSON; a test holds it.
	o.text("client", e.Client)
	o.text("correlation", e.Correlation)
	o.number("count", int64(e.Count))
	o.text("decision", e.Decision)
	o.text("input", e.Input)
	o.text("key", e.Key)
	o.text("kind", string(e.Kind))
	o.text("method", e.Method)
	o.text("note", e.Note)
	o.text("operation", e.Operation)
	o.text("outcome", e.Outcome)
	o.number("revision", e.Revision)
	o.text("rule", e.Rule)
	o.text("subject", e.Subject)
	o.text("surface", e.Surface)
	o.text("surfaceHash", e.SurfaceHash)
	o.text("target", e.Target)
	o.number("targets", int64(e.Targets))
	o.text("tenant", e.Tenant)
	o.name("time")
	o.dst = e.Time.UTC().AppendFormat(append(o.dst, '"'), "2006-01-02T15:04:05.000000Z")
	return append(o.dst, '"', '}')
}

// object appends members of a JSON object.
type object struct{ dst []byte }

// name appends a comma where one is needed, and a member's name.
func (o *object) name(name string) {
	if o.dst[len(o.dst)-1] != '{' {
		o.dst = append(o.dst, ',')
	}
	o.dst = append(o.dst, '"')
	o.dst = append(o.dst, name...)
	o.dst = append(o.dst, '"', ':')
}

// text appends a string unless it is empty.
func (o *object) text(name, value string) {
	if value != "" {
		o.name(name)
		o.dst = canonjson.String(value).AppendCanonical(o.dst)
	}
}

// number appends an integer unless it is 0.
func (o *object) number(name string, value int64) {
	if value != 0 {
		o.name(name)
		o.dst = canonjson.Int(value).AppendCanonical(o.dst)
	}
}
