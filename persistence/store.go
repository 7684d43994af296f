package persistence

import (
	"context"
	"errors"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
)

// Errors of a Store. Anything else that Update returns is fn's own error, unchanged, and then nothing happened.
var (
	// ErrKeyConflict: the key is recorded in this namespace with another fingerprint. Nothing changed.
	ErrKeyConflict = errors.New("the idempotency key is recorded for other content")
	// ErrBusy: a queue was full or a lock was not had in time. Nothing changed.
	ErrBusy = errors.New("the store is busy")
	// ErrUnknown: the commit may or may not have happened. The same key settles it.
	ErrUnknown = errors.New("the outcome of the commit is not known")
	// ErrDamaged: what is stored is not what was written. Nothing of it is served, and nothing was done.
	ErrDamaged = errors.New("stored bytes are damaged")
	// ErrUnavailable: the store cannot be used (closed, broken, read-only, full). Nothing changed.
	ErrUnavailable = errors.New("the store is not available")
)

// Store keeps documents, uploads and what is known of artifacts; their bytes are in Blobs. All methods are safe for concurrent use. A store judges no access, no limit and no
// precondition: that is fn's work, inside the transaction.
type Store interface {
	// Update runs fn and commits, in ONE transaction: fn's writes, c's idempotency record and c's audit row, or
	// nothing. It returns after the commit is durable.
	//
	// A known key with an equal fingerprint: fn is not run, nothing is written, and the recorded outcome comes back
	// with Replayed set. With another fingerprint: ErrKeyConflict. A record older than c.Forget counts as unknown
	// and is replaced. c.Key "" means no idempotency.
	//
	// fn runs alone within its namespace, may be run again, uses only tx, and never blocks. When fn returns an
	// error, nothing changes and Update returns that very error. c.Seal is called at most once for each run of fn
	// that succeeded; its row is committed with the effect.
	Update(ctx context.Context, c Commit, fn func(Tx) (Outcome, error)) (Outcome, error)

	// View runs fn over one snapshot of synced state: what it sees can never be rolled back.
	View(ctx context.Context, fn func(Reader) error) error
}

// Commit is what Update commits beside fn's writes.
type Commit struct {
	Namespace, Key string
	Fingerprint    [32]byte
	Now            time.Time // recorded with the key
	Forget         time.Time // records made before this are forgotten
	// Touch lists what fn will read, for stores that lock it in one round trip. May be ignored.
	Touch []Ref
	// Seal gives the audit row once fn succeeded. Nil: no row.
	Seal func(Outcome) audit.Row
}

// Outcome is what is recorded under a key: a pointer to the revision that was written, or a value.
type Outcome struct {
	ID       string // document written; "" when there is none
	Revision int64
	Value    []byte // canonical JSON of another recorded result; nil when ID is set
	Replayed bool   // set by the store: fn was not run. Never recorded.
}

// HeadFilter selects heads of a namespace, ascending by id in byte order.
type HeadFilter struct {
	Kind           string // "" is every kind
	IncludeDeleted bool
	After          string // ids greater than this one; "" from the start
	Limit          int    // at most this many, at least 1
	MaxBytes       int    // stop before this many payload bytes, but never below one entry; 0 is no bound
}

// Head is what fn needs to know of a document's newest revision without its payload.
type Head struct {
	Revision            int64
	Deleted             bool
	Kind, SchemaVersion string
	CreatedAt           time.Time
	UpdatedAt           time.Time
}

// NamespaceFacts is what a namespace holds, for operators.
type NamespaceFacts struct {
	Namespace string // as the store keeps it: see kept
	Documents int64  // live heads
	Deleted   int64  // tombstone heads
	Revisions int64  // that exist
	Artifacts int64
	Uploads   int64 // open, expired ones included until they are closed
	// Bytes is what counts against the quota, as Usage; Reserved is the part of it that open uploads have reserved.
	Bytes, Reserved int64
}

// Reader finds documents and artifacts. It must not be used after the function it was given to has returned.
type Reader interface {
	// Head gives the newest revision's facts, a tombstone's too; ok is false for an id never written.
	Head(namespace, id string) (h Head, ok bool, err error)
	// Revision gives one revision, a tombstone too; ok is false when it was never written or is purged.
	Revision(namespace, id string, revision int64) (d *Document, ok bool, err error)
	// HeadDocument is Head with the whole revision.
	HeadDocument(namespace, id string) (d *Document, ok bool, err error)
	// Live tells whether a reference may point at r: a document's revision that exists and is no tombstone, or an
	// artifact that exists.
	Live(r Ref) (bool, error)
	// Heads gives heads of a namespace; more tells that further ones match behind the last.
	Heads(namespace string, f HeadFilter) (docs []*Document, more bool, err error)
	// Revisions gives the revisions after the given one, ascending, at most limit, with MaxBytes as in HeadFilter.
	Revisions(namespace, id string, after int64, limit, maxBytes int) (docs []*Document, more bool, err error)
	// Usage gives the bytes that count against the namespace's quota at now: payloads of existing revisions, sizes of
	// artifacts, and declared sizes of open uploads that have not expired. 0 for an unknown namespace.
	Usage(namespace string, now time.Time) (int64, error)

	// Superseded tells when a revision stopped being the head: the UpdatedAt of the revision that followed it, also
	// when that one has been purged. ok is false when the revision does not exist or is the head.
	Superseded(namespace, id string, revision int64) (at time.Time, ok bool, err error)
	// Inbound gives the existing revisions that refer to target, of any document of any namespace, ordered by
	// namespace, id and revision, those behind after (the zero Ref: from the start), at most limit.
	Inbound(target, after Ref, limit int) ([]Ref, error)
	// Artifact gives a committed artifact; ok is false when there is none, or it is purged.
	Artifact(namespace, id string) (a *Artifact, ok bool, err error)
	// Upload gives an upload in whatever state; a closed one for as long as the idempotency records of its namespace
	// are kept at least.
	Upload(namespace, uploadID string) (u *Upload, ok bool, err error)
	// OpenUploads counts the uploads of an owner, in all namespaces, that are open at now.
	OpenUploads(owner string, now time.Time) (int, error)
	// Expired gives open uploads whose time is over at now, at most limit, the oldest first. Damaged ones are left out:
	// they must not keep the others open.
	Expired(now time.Time, limit int) ([]*Upload, error)
	// Held tells whether anything needs the bytes of d: an artifact, or an upload in the state received.
	Held(d Digest) (bool, error)
	// EachHeld calls fn for the digest of every artifact and of every upload in the state received or committed, in no
	// order, until fn returns an error, which EachHeld then returns. It reads all rows themselves and trusts no index: what it does not
	// name is needed by nothing. ErrDamaged when a row is not what was written.
	EachHeld(fn func(Digest) error) error
	// Namespaces gives the namespaces after the given one that hold something, in byte order, at most limit.
	Namespaces(after string, limit int) ([]NamespaceFacts, error)
}

// Tx writes. What it wrote is seen by its own reads.
type Tx interface {
	Reader
	// PutRevision writes d as the new head. d.Revision must be head+1; its references become inbound references of
	// their targets. It charges len(d.Payload) to the namespace unless d is a tombstone.
	PutRevision(d *Document) error
	// PurgeRevision removes a revision that is not the head: its content, its references, and what it charged. That the
	// revision before it was superseded at this one's time stays known, see Superseded. References to it are not looked
	// at. An error when it does not exist or is the head.
	PurgeRevision(namespace, id string, revision int64) error
	// PutUpload writes a new upload, in the state pending, and charges u.Size to the namespace. An error when its id, or
	// that of its artifact, is in use.
	PutUpload(u *Upload) error
	// MoveUpload takes an open upload to another state, at now, along the ways of persistence.v1, section 10.2. A final
	// state frees what the upload charged, and forgets its provenance, which no quota counts. An error when there is no
	// such upload, or no such way.
	MoveUpload(namespace, uploadID string, to UploadState, now time.Time) error
	// PutArtifact writes a new artifact and charges a.Size to the namespace. An error when there is one of this id.
	PutArtifact(a *Artifact) error
	// PurgeArtifact removes an artifact and frees what it charged. An upload that led to it, if one is still known, is in
	// the state purged then, without its provenance. References are not looked at. An error when there is none.
	PurgeArtifact(namespace, id string) error
}
