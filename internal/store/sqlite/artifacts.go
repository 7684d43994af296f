package sqlite

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// The selections of what is known of artifacts and uploads. Those that do not go by a unique key name their index, as
// the selections of Heads do.
const (
	artifactColumns = `SELECT namespace, id, mime_type, size, digest, created, provenance, sum `
	artifactByID    = artifactColumns + `FROM artifacts WHERE namespace = ? AND id = ?`
	artifactLives   = `SELECT 1 FROM artifacts WHERE namespace = ? AND id = ?`

	uploadColumns = `SELECT namespace, id, artifact, owner, mime_type, size, digest, provenance, expires, state, closed, sum, seq `
	uploadByID    = uploadColumns + `FROM uploads WHERE namespace = ? AND id = ?`
	uploadByMade  = uploadColumns + `FROM uploads WHERE namespace = ? AND artifact = ?`
	uploadsLate   = uploadColumns + `FROM uploads INDEXED BY uploads_open
WHERE closed IS NULL AND expires <= ? ORDER BY expires, seq`
	// artifactsAll and uploadsAll read the tables themselves.
	artifactsAll = artifactColumns + `FROM artifacts NOT INDEXED`
	uploadsAll   = uploadColumns + `FROM uploads NOT INDEXED`

	uploadsOfOwner = `SELECT count(*) FROM uploads INDEXED BY uploads_owner
WHERE closed IS NULL AND owner = ? AND expires > ?`

	digestHeld = `SELECT 1 WHERE EXISTS (SELECT 1 FROM artifacts INDEXED BY artifacts_digest WHERE digest = ?1)
OR EXISTS (SELECT 1 FROM uploads INDEXED BY uploads_received WHERE state = 'received' AND digest = ?1)`
)

// Artifact implements persistence.Reader.
func (r *reader) Artifact(namespace, id string) (a *persistence.Artifact, ok bool, err error) {
	var damage error
	err = r.query(artifactByID, stop(func(row row) { a, damage = artifact(row) }), namespace, id)
	if err = errors.Join(err, damage); err != nil {
		return nil, false, err
	}
	return a, a != nil, nil
}

// artifact reads a row of artifactColumns and refuses one that is not what was written.
func artifact(r row) (*persistence.Artifact, error) {
	a := &persistence.Artifact{
		Namespace: r.text(0), ID: r.text(1), MimeType: r.text(2), Size: r.int(3), Hash: r.array(4),
		CreatedAt: millis(r.int(5)), Provenance: r.blob(6),
	}
	if artifactSum(a) != r.int(7) {
		return nil, fmt.Errorf("%w: the row of artifact %s in %s is damaged", persistence.ErrDamaged, a.ID, a.Namespace)
	}
	return a, nil
}

// upload is a row of uploads.
type upload struct {
	persistence.Upload
	seq    int64
	closed int64 // when it became final, in microseconds; 0 while it is open
}

// readUpload reads a row of uploadColumns and refuses one that is not what was written.
func readUpload(r row) (*upload, error) {
	u := &upload{
		Upload: persistence.Upload{
			Namespace: r.text(0), ID: r.text(1), ArtifactID: r.text(2), Owner: r.text(3), MimeType: r.text(4),
			Size: r.int(5), Hash: r.array(6), Provenance: r.blob(7), ExpiresAt: millis(r.int(8)),
			State: persistence.UploadState(r.text(9)),
		},
		closed: r.int(10), seq: r.int(12),
	}
	if u.sum() != r.int(11) {
		return nil, fmt.Errorf("%w: the row of upload %s in %s is damaged", persistence.ErrDamaged, u.ID, u.Namespace)
	}
	return u, nil
}

// upload runs a query of uploadColumns for one upload, nil when there is none.
func (r *reader) upload(text string, args ...any) (u *upload, err error) {
	var damage error
	err = r.query(text, stop(func(row row) { u, damage = readUpload(row) }), args...)
	if err = errors.Join(err, damage); err != nil {
		return nil, err
	}
	return u, nil
}

// Upload implements persistence.Reader.
func (r *reader) Upload(namespace, uploadID string) (*persistence.Upload, bool, error) {
	u, err := r.upload(uploadByID, namespace, uploadID)
	if err != nil || u == nil {
		return nil, false, err
	}
	return &u.Upload, true, nil
}

// OpenUploads implements persistence.Reader.
func (r *reader) OpenUploads(owner string, now time.Time) (n int, err error) {
	err = r.query(uploadsOfOwner, stop(func(row row) { n = int(row.int(0)) }), owner, now.UnixMilli())
	return n, err
}

// Expired implements persistence.Reader. The limit is of those that are given: damaged ones, which stay, must not fill it.
func (r *reader) Expired(now time.Time, limit int) (late []*persistence.Upload, err error) {
	if limit < 1 {
		return nil, nil
	}
	err = r.query(uploadsLate, func(row row) error {
		if u, err := readUpload(row); err == nil {
			late = append(late, &u.Upload)
		}
		if len(late) == limit {
			return errStop
		}
		return nil
	}, now.UnixMilli())
	return late, err
}

// Held implements persistence.Reader.
func (r *reader) Held(d persistence.Digest) (held bool, err error) {
	err = r.query(digestHeld, stop(func(row) { held = true }), d[:])
	return held, err
}

// EachHeld implements persistence.Reader. The state of an upload is judged here, after the checksum of its row: a damaged
// one must not hide the row from a selection.
func (r *reader) EachHeld(fn func(persistence.Digest) error) error {
	err := r.all(artifactsAll, func(row row) error {
		a, err := artifact(row)
		if err != nil {
			return err
		}
		return fn(a.Hash)
	})
	if err != nil {
		return err
	}
	return r.all(uploadsAll, func(row row) error {
		u, err := readUpload(row)
		if err != nil || u.State != persistence.UploadReceived && u.State != persistence.UploadCommitted {
			return err
		}
		return fn(u.Hash)
	})
}

// all is query for an each whose error is the caller's: it ends the query and comes back unchanged.
func (r *reader) all(text string, each func(row) error, args ...any) error {
	var own error
	err := r.query(text, func(row row) error {
		if own = each(row); own != nil {
			return errStop
		}
		return nil
	}, args...)
	return cmp.Or(own, err)
}

// PutUpload implements persistence.Tx.
func (t *tx) PutUpload(u *persistence.Upload) error {
	if u.State != persistence.UploadPending {
		return fmt.Errorf("write upload %s: a new one is pending, not %s", u.ID, u.State)
	}
	if u.Size < 0 {
		return fmt.Errorf("write upload %s: its size is %d", u.ID, u.Size)
	}
	for _, same := range []struct{ text, id string }{{uploadByID, u.ID}, {uploadByMade, u.ArtifactID}} {
		if known, err := t.upload(same.text, u.Namespace, same.id); err != nil || known != nil {
			return errors.Join(err, fmt.Errorf("write upload %s: its id or that of its artifact is in use", u.ID))
		}
	}
	row := upload{Upload: *u}
	row.ExpiresAt = persistence.Truncate(u.ExpiresAt)
	err := t.write(`INSERT INTO uploads (namespace, id, artifact, owner, mime_type, size, digest, provenance, expires, state, sum)
VALUES (?,?,?,?,?,?,?,?,?,?,?)`,
		u.Namespace, u.ID, u.ArtifactID, u.Owner, u.MimeType, u.Size, u.Hash[:], filled(u.Provenance),
		row.ExpiresAt.UnixMilli(), string(u.State), row.sum())
	if err != nil {
		return err
	}
	t.bytes += len(u.Provenance)
	return t.reserve(u.Namespace, u.Size)
}

// moves are the ways an upload may go (persistence.v1, section 10.2). It becomes UploadPurged with its artifact only.
var moves = map[persistence.UploadState][]persistence.UploadState{
	persistence.UploadPending: {persistence.UploadReceived, persistence.UploadAborted, persistence.UploadExpired},
	persistence.UploadReceived: {
		persistence.UploadPending, persistence.UploadCommitted, persistence.UploadAborted, persistence.UploadExpired,
	},
}

// MoveUpload implements persistence.Tx.
func (t *tx) MoveUpload(namespace, uploadID string, to persistence.UploadState, now time.Time) error {
	u, err := t.upload(uploadByID, namespace, uploadID)
	if err != nil {
		return err
	}
	if u == nil {
		return fmt.Errorf("move upload %s: there is none", uploadID)
	}
	if !slices.Contains(moves[u.State], to) {
		return fmt.Errorf("move upload %s: it is %s and cannot become %s", uploadID, u.State, to)
	}
	u.State = to
	if to.Open() {
		return t.rewriteUpload(u)
	}
	u.closed, u.Provenance = max(now.UnixMicro(), 1), nil
	if err := t.rewriteUpload(u); err != nil {
		return err
	}
	return t.reserve(namespace, -u.Size)
}

// rewriteUpload writes down what may change of an upload.
func (t *tx) rewriteUpload(u *upload) error {
	var closed any
	if u.closed != 0 {
		closed = u.closed
	}
	return t.write("UPDATE uploads SET state = ?, closed = ?, provenance = ?, sum = ? WHERE seq = ?",
		string(u.State), closed, filled(u.Provenance), u.sum(), u.seq)
}

// PutArtifact implements persistence.Tx.
func (t *tx) PutArtifact(a *persistence.Artifact) error {
	if a.Size < 0 {
		return fmt.Errorf("write artifact %s: its size is %d", a.ID, a.Size)
	}
	exists, err := t.artifactLives(a.Namespace, a.ID)
	if err != nil {
		return err
	}
	if exists {
		return fmt.Errorf("write artifact %s: it exists", a.ID)
	}
	row := *a
	row.CreatedAt = persistence.Truncate(a.CreatedAt)
	err = t.write(`INSERT INTO artifacts (namespace, id, mime_type, size, digest, created, provenance, sum) VALUES (?,?,?,?,?,?,?,?)`,
		a.Namespace, a.ID, a.MimeType, a.Size, a.Hash[:], row.CreatedAt.UnixMilli(), filled(a.Provenance), artifactSum(&row))
	if err != nil {
		return err
	}
	t.bytes += len(a.Provenance)
	return t.chargeBytes(a.Namespace, a.Size)
}

// artifactLives tells whether an artifact exists, without looking at what it holds.
func (r *reader) artifactLives(namespace, id string) (exists bool, err error) {
	err = r.query(artifactLives, stop(func(row) { exists = true }), namespace, id)
	return exists, err
}

// filled is b for a column that is never NULL.
func filled(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// artifactSum covers what is known of an artifact and where it belongs, as checksum does for revisions.
func artifactSum(a *persistence.Artifact) int64 {
	return rowSum([]string{a.Namespace, a.ID, a.MimeType}, []int64{a.Size, a.CreatedAt.UnixMilli()}, a.Hash, a.Provenance)
}

// sum is the same for an upload.
func (u *upload) sum() int64 {
	return rowSum([]string{u.Namespace, u.ID, u.ArtifactID, u.Owner, u.MimeType, string(u.State)},
		[]int64{u.Size, u.ExpiresAt.UnixMilli(), u.closed}, u.Hash, u.Provenance)
}

// rowSum is the checksum of a row: every part with its length or of one length, so that none can grow into the next. What
// may be long comes last.
func rowSum(texts []string, numbers []int64, d [32]byte, last []byte) int64 {
	b := make([]byte, 0, 512)
	for _, s := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	for _, n := range numbers {
		b = binary.AppendVarint(b, n)
	}
	sum := crc32.Update(0, castagnoli, append(b, d[:]...))
	return int64(crc32.Update(sum, castagnoli, last))
}
