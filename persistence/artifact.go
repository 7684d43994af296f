package persistence

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Digest names bytes: their SHA-256.
type Digest [sha256.Size]byte

// String is the digest as the contract writes it: 64 lower-case hexadecimal characters.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads what String writes; ok is false for anything else.
func ParseDigest(s string) (d Digest, ok bool) {
	if len(s) != hex.EncodedLen(len(d)) {
		return Digest{}, false
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil || d.String() != s {
		return Digest{}, false
	}
	return d, true
}

// Artifact is what is known of committed bytes. It is immutable. Namespace is the name under which the store keeps it:
// see kept.
type Artifact struct {
	Namespace, ID string
	MimeType      string // as it was sent
	Size          int64
	Hash          Digest
	CreatedAt     time.Time // of the commit
	Provenance    []byte    // canonical JSON (RFC 8785)
}

// Value gives the artifact as callers see it.
func (a *Artifact) Value() canonjson.Value {
	return canonjson.Object(
		canonjson.M("namespace", canonjson.String(shown(a.Namespace))),
		canonjson.M("id", canonjson.String(a.ID)),
		canonjson.M("mimeType", canonjson.String(a.MimeType)),
		canonjson.M("size", canonjson.Int(a.Size)),
		canonjson.M("hash", canonjson.Object(
			canonjson.M("algorithm", canonjson.String("sha256")),
			canonjson.M("value", canonjson.String(a.Hash.String())))),
		canonjson.M("createdAt", canonjson.String(FormatTime(a.CreatedAt))),
		canonjson.M("provenance", canonjson.Raw(a.Provenance)),
	)
}

// UploadState is where an upload stands (persistence.v1, section 10.2). That bytes are being received is known to the
// receiving process only: after a crash the upload is pending.
type UploadState string

// The states. Pending and received are open, the others final.
const (
	UploadPending   UploadState = "pending"   // no bytes are held
	UploadReceived  UploadState = "received"  // the blob store holds bytes of the declared size and digest
	UploadCommitted UploadState = "committed" // an Artifact exists
	UploadAborted   UploadState = "aborted"
	UploadExpired   UploadState = "expired"
	UploadPurged    UploadState = "purged" // it was committed, and its artifact has been purged
)

// Open tells whether the state is not final.
func (s UploadState) Open() bool { return s == UploadPending || s == UploadReceived }

// Upload is an artifact on its way. What it declares never changes, but for the provenance, which is kept while it is
// open.
type Upload struct {
	Namespace, ID string
	ArtifactID    string
	Owner         string // whose upload it is: counted against what one caller may have open
	MimeType      string
	Size          int64
	Hash          Digest
	Provenance    []byte // canonical JSON
	ExpiresAt     time.Time
	State         UploadState
}

// Live tells whether the upload is open at now. Expiry is by the clock, whatever the state says.
func (u *Upload) Live(now time.Time) bool { return u.State.Open() && now.Before(u.ExpiresAt) }

// Value gives the upload as callers see it.
func (u *Upload) Value() canonjson.Value {
	return canonjson.Object(
		canonjson.M("namespace", canonjson.String(shown(u.Namespace))),
		canonjson.M("artifactId", canonjson.String(u.ArtifactID)),
		canonjson.M("uploadId", canonjson.String(u.ID)),
		canonjson.M("expiresAt", canonjson.String(FormatTime(u.ExpiresAt))),
	)
}
