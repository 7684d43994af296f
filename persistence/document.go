// Package persistence keeps versioned JSON documents that survive any crash, under the contract persistence.v1.
//
// A document is a chain of revisions, numbered from 1 without gaps. A revision never changes once written. A put
// succeeds only when the caller names the current revision, so two writers cannot overwrite each other unseen.
// Every change carries an idempotency key: the same key with the same content returns the first outcome, so a
// caller who lost an answer asks again.
//
// The package holds the types, the promises of a Store, and the Service: the operations as values, for the
// catalog. A store never judges access; the gate has done that before an operation runs.
//
// Experimental until 1.0.
package persistence

import (
	"regexp"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// MaxSafe is the largest revision and size: the largest integer that binary64 holds with all below it.
const MaxSafe = 1<<53 - 1

// Document is one revision of a document. It is immutable. Namespace is the name under which the store keeps it: see
// kept.
type Document struct {
	Namespace, ID       string
	Kind, SchemaVersion string
	Revision            int64
	CreatedAt           time.Time // of revision 1, the same in every revision
	UpdatedAt           time.Time // of this revision; never decreases with the revision
	Deleted             bool      // a tombstone: Payload is null and References empty
	Payload             []byte    // canonical JSON (RFC 8785)
	References          []Ref     // in the order and with the duplicates they were sent with
}

// RefType says what a reference points to.
type RefType string

// The types of references.
const (
	RefDocument RefType = "document"
	RefArtifact RefType = "artifact"
)

// Ref points to one revision of a document, or to an artifact (Revision 0).
type Ref struct {
	Type          RefType
	Namespace, ID string
	Revision      int64
}

// timeLayout is how times are written: UTC, always with milliseconds (persistence.v1, section 3.2).
const timeLayout = "2006-01-02T15:04:05.000Z"

// FormatTime writes t as the contract does.
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// Truncate cuts t to the precision that is stored and shown, so that what is compared is what is seen.
func Truncate(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// Value gives the document as callers see it.
func (d *Document) Value() canonjson.Value {
	refs := make([]canonjson.Value, len(d.References))
	for i, r := range d.References {
		refs[i] = r.Value()
	}
	payload := canonjson.Null()
	if !d.Deleted {
		payload = canonjson.Raw(d.Payload)
	}
	return canonjson.Object(
		canonjson.M("namespace", canonjson.String(shown(d.Namespace))),
		canonjson.M("id", canonjson.String(d.ID)),
		canonjson.M("kind", canonjson.String(d.Kind)),
		canonjson.M("schemaVersion", canonjson.String(d.SchemaVersion)),
		canonjson.M("revision", canonjson.Int(d.Revision)),
		canonjson.M("createdAt", canonjson.String(FormatTime(d.CreatedAt))),
		canonjson.M("updatedAt", canonjson.String(FormatTime(d.UpdatedAt))),
		canonjson.M("deleted", canonjson.Bool(d.Deleted)),
		canonjson.M("payload", payload),
		canonjson.M("references", canonjson.Array(refs...)),
	)
}

// Value gives the reference as callers see it.
func (r Ref) Value() canonjson.Value {
	m := []canonjson.Member{
		canonjson.M("type", canonjson.String(string(r.Type))),
		canonjson.M("namespace", canonjson.String(shown(r.Namespace))),
		canonjson.M("id", canonjson.String(r.ID)),
	}
	if r.Type == RefDocument {
		m = append(m, canonjson.M("revision", canonjson.Int(r.Revision)))
	}
	return canonjson.Object(m...)
}

// segment is the form of namespaces and ids (persistence.v1, section 3.1).
var segment = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// ValidSegment tells whether s may be a namespace or an id.
func ValidSegment(s string) bool { return segment.MatchString(s) }

// kept is the name under which a store keeps a tenant's namespace. Tenants share nothing: the namespace "explorer" of
// one is another than the "explorer" of the next, with its own documents, keys, cursors and quota (security
// requirements, S29). No namespace that a caller can name holds a colon.
func kept(tenant, namespace string) string {
	if tenant == "" {
		return namespace
	}
	return tenant + ":" + namespace
}

// shown is the namespace as its tenant's callers name it.
func shown(kept string) string { return kept[strings.LastIndexByte(kept, ':')+1:] }

// Limits are the bounds that capabilities shows. They do not change while the process runs.
type Limits struct {
	MaxDocumentBytes     int64
	MaxArtifactBytes     int64
	MaxReferences        int
	MaxPageSize          int
	MaxNamespaceBytes    int64
	IdempotencyRetention time.Duration
}

// DefaultLimits are the limits of persistence.v1, section 4.1.
func DefaultLimits() Limits {
	return Limits{
		MaxDocumentBytes:     1 << 20,
		MaxArtifactBytes:     1 << 30,
		MaxReferences:        255,
		MaxPageSize:          200,
		MaxNamespaceBytes:    10 << 30,
		IdempotencyRetention: 7 * 24 * time.Hour,
	}
}

// Durability is what an acknowledgement means on this store's disk.
type Durability string

// The levels.
const (
	FileAndDirectorySync Durability = "file-and-directory-sync"
	FileSync             Durability = "file-sync" // folders are not synced: an explicit choice of the operator
)
