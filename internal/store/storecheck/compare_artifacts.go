package storecheck

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// questions are what a Reader is asked beside documents.
type questions struct {
	namespace, id, upload, owner, after string
	revision                            int64
	target, behind                      persistence.Ref
	digest                              persistence.Digest
	limit                               int
}

// questions picks some.
func (g *generator) questions() questions {
	q := questions{
		namespace: g.namespace(), id: g.id(), upload: g.upload(), owner: g.pick("ana", "ben"), after: g.pick("", "", g.namespace()),
		revision: g.rand.Int64N(6), target: g.target(), digest: g.content(), limit: 1 + g.rand.IntN(5),
	}
	if g.rand.IntN(2) == 0 {
		q.behind = persistence.Ref{Type: persistence.RefDocument, Namespace: g.namespace(), ID: g.id(), Revision: g.rand.Int64N(3)}
	}
	return q
}

// tell writes down the answers.
func (q questions) tell(b *bytes.Buffer, r persistence.Reader, now time.Time) {
	at, ok, err := r.Superseded(q.namespace, q.id, q.revision)
	fmt.Fprintln(b, "superseded", q.id, q.revision, at.UTC(), ok, err)
	refs, err := r.Inbound(q.target, q.behind, q.limit)
	fmt.Fprintln(b, "inbound", q.target, q.behind, len(refs), refs, err)
	live, err := r.Live(q.target)
	fmt.Fprintln(b, "live", live, err)
	a, ok, err := r.Artifact(q.namespace, "of-"+q.upload)
	fmt.Fprintln(b, "artifact", q.upload, describeArtifact(a), ok, err)
	u, ok, err := r.Upload(q.namespace, q.upload)
	fmt.Fprintln(b, "upload", q.upload, describeUpload(u), ok, err)
	n, err := r.OpenUploads(q.owner, now)
	fmt.Fprintln(b, "open", n, err)
	late, err := r.Expired(now, q.limit)
	fmt.Fprintln(b, "expired", len(late), err)
	for _, u := range late {
		fmt.Fprintln(b, describeUpload(u))
	}
	held, err := r.Held(q.digest)
	fmt.Fprintln(b, "held", held, err)
	all := map[persistence.Digest]bool{}
	err = r.EachHeld(func(d persistence.Digest) error { all[d] = true; return nil })
	fmt.Fprintln(b, "all held", all, err) // written in the order of the keys
	facts, err := r.Namespaces(q.after, q.limit)
	fmt.Fprintln(b, "namespaces", facts, err)
}

// describeArtifact writes an artifact down.
func describeArtifact(a *persistence.Artifact) string {
	if a == nil {
		return "none"
	}
	return fmt.Sprintf("%s/%s %s %d %s %v %q", a.Namespace, a.ID, a.MimeType, a.Size, a.Hash, a.CreatedAt.UTC(), a.Provenance)
}

// describeUpload writes an upload down.
func describeUpload(u *persistence.Upload) string {
	if u == nil {
		return "none"
	}
	return fmt.Sprintf("%s/%s of %s for %s: %s %d %s until %v, %s, %q", u.Namespace, u.ID, u.ArtifactID, u.Owner, u.MimeType, u.Size,
		u.Hash, u.ExpiresAt.UTC(), u.State, u.Provenance)
}

// writeArtifacts gives an Update of up to three steps with uploads, artifacts and purges. A step that is refused has
// done nothing, and the next one follows.
func (g *generator) writeArtifacts() call {
	c := persistence.Commit{Namespace: g.namespace(), Now: g.now}
	fails := g.rand.IntN(8) == 0
	var steps []func(persistence.Tx) error
	for range 1 + g.rand.IntN(3) {
		steps = append(steps, g.step())
	}
	return func(t *testing.T, s persistence.Store) string {
		done := make([]bool, len(steps))
		_, err := s.Update(t.Context(), c, func(tx persistence.Tx) (o persistence.Outcome, err error) {
			for i, step := range steps {
				done[i] = step(tx) == nil
			}
			if fails {
				return o, errMine
			}
			return o, nil
		})
		return fmt.Sprintf("steps %v, %v", done, err)
	}
}

// step gives one write.
func (g *generator) step() func(persistence.Tx) error {
	namespace, id, upload, now := g.namespace(), g.id(), g.upload(), g.now
	switch g.rand.IntN(10) {
	case 0, 1:
		u := &persistence.Upload{
			Namespace: namespace, ID: upload, ArtifactID: "of-" + upload, Owner: g.pick("ana", "ben"), MimeType: "a/b",
			Size: g.rand.Int64N(50), Hash: g.content(), Provenance: []byte(g.pick(`{}`, `null`)),
			ExpiresAt: now.Add(time.Duration(g.rand.Int64N(int64(12 * time.Hour)))), State: persistence.UploadPending,
		}
		return func(tx persistence.Tx) error { return tx.PutUpload(u) }
	case 2, 3:
		to := persistence.UploadState(g.pick("received", "received", "received", "pending", "aborted", "expired", "committed", "purged"))
		return func(tx persistence.Tx) error { return tx.MoveUpload(namespace, upload, to, now) }
	case 4, 5:
		return func(tx persistence.Tx) error { return commitUpload(tx, namespace, upload, now) }
	case 6, 7:
		return func(tx persistence.Tx) error { return tx.PurgeArtifact(namespace, "of-"+upload) }
	default:
		revision := 1 + g.rand.Int64N(4)
		return func(tx persistence.Tx) error { return tx.PurgeRevision(namespace, id, revision) }
	}
}

// commitUpload makes the artifact of an open upload.
func commitUpload(tx persistence.Tx, namespace, id string, now time.Time) error {
	u, ok, err := tx.Upload(namespace, id)
	if err != nil || !ok {
		return errRefused
	}
	if u.State == persistence.UploadPending {
		if err := tx.MoveUpload(namespace, id, persistence.UploadReceived, now); err != nil {
			return err
		}
	}
	if err := tx.MoveUpload(namespace, id, persistence.UploadCommitted, now); err != nil {
		return err
	}
	return tx.PutArtifact(&persistence.Artifact{
		Namespace: namespace, ID: u.ArtifactID, MimeType: u.MimeType, Size: u.Size, Hash: u.Hash, CreatedAt: now, Provenance: u.Provenance,
	})
}
