package sqlite

import (
	"fmt"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// The selections that purges rest on.
const (
	supersededAt = `SELECT coalesce(r.superseded, n.updated) FROM heads h JOIN revisions r ON r.doc = h.doc
LEFT JOIN revisions n ON n.doc = r.doc AND n.revision = r.revision + 1
WHERE h.namespace = ? AND h.id = ? AND r.revision = ? AND r.seq <> h.seq`

	inboundAfter = `SELECT source_namespace, source_id, source_revision FROM inbound
WHERE namespace = ?1 AND id = ?2 AND type = ?3 AND revision = ?4
AND (source_namespace, source_id, source_revision) > (?5, ?6, ?7)
ORDER BY source_namespace, source_id, source_revision LIMIT ?8`

	purgeable = `SELECT r.seq, r.doc, r.deleted, length(r.payload), r.updated FROM heads h JOIN revisions r ON r.doc = h.doc
WHERE h.namespace = ? AND h.id = ? AND r.revision = ? AND r.seq <> h.seq`
)

// Superseded implements persistence.Reader. The time of a follower that is purged was written down with its
// predecessor, in the purge.
func (r *reader) Superseded(namespace, id string, revision int64) (at time.Time, ok bool, err error) {
	err = r.query(supersededAt, stop(func(row row) {
		if _, known := row[0].(int64); known {
			at, ok = millis(row.int(0)), true
		}
	}), namespace, id, revision)
	return at, ok, err
}

// Inbound implements persistence.Reader.
func (r *reader) Inbound(target, after persistence.Ref, limit int) (sources []persistence.Ref, err error) {
	err = r.query(inboundAfter, func(row row) error {
		sources = append(sources, persistence.Ref{
			Type: persistence.RefDocument, Namespace: row.text(0), ID: row.text(1), Revision: row.int(2),
		})
		return nil
	}, target.Namespace, target.ID, string(target.Type), targetRevision(target),
		after.Namespace, after.ID, after.Revision, int64(max(limit, 0)))
	return sources, err
}

// targetRevision is the revision under which references to r are kept: an artifact has none.
func targetRevision(r persistence.Ref) int64 {
	if r.Type != persistence.RefDocument {
		return 0
	}
	return r.Revision
}

// PurgeRevision implements persistence.Tx. The references of the revision go with its row (ON DELETE CASCADE).
func (t *tx) PurgeRevision(namespace, id string, revision int64) error {
	var seq, doc, size, updated int64
	err := t.query(purgeable, stop(func(r row) {
		seq, doc, updated = r.int(0), r.int(1), r.int(4)
		if r.int(2) == 0 {
			size = r.int(3)
		}
	}), namespace, id, revision)
	if err != nil {
		return err
	}
	if seq == 0 {
		return fmt.Errorf("purge revision %d of %s: there is none, or it is the head", revision, id)
	}
	err = t.write("UPDATE revisions SET superseded = ? WHERE doc = ? AND revision = ?", updated, doc, revision-1)
	if err != nil {
		return err
	}
	if err := t.write("DELETE FROM revisions WHERE seq = ?", seq); err != nil {
		return err
	}
	t.purged = true
	return t.chargeBytes(namespace, -size)
}

// PurgeArtifact implements persistence.Tx. Of its upload stays what maps the id of one to the other.
func (t *tx) PurgeArtifact(namespace, id string) error {
	var size int64
	found := false
	err := t.query("SELECT size FROM artifacts WHERE namespace = ? AND id = ?",
		stop(func(r row) { size, found = r.int(0), true }), namespace, id)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("purge artifact %s: there is none", id)
	}
	if err := t.write("DELETE FROM artifacts WHERE namespace = ? AND id = ?", namespace, id); err != nil {
		return err
	}
	t.purged = true
	u, err := t.upload(uploadByMade, namespace, id)
	if err != nil {
		return err
	}
	if u != nil && u.State == persistence.UploadCommitted {
		u.State = persistence.UploadPurged
		if err := t.rewriteUpload(u); err != nil {
			return err
		}
	}
	return t.chargeBytes(namespace, -size)
}
