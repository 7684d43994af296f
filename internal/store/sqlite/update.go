package sqlite

import (
	"context"
	"fmt"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// tx is one call's part of a transaction: its reads, its writes within a savepoint, and the audit rows that are
// committed with them. It implements persistence.Tx.
type tx struct {
	reader
	w     *writer
	wrote bool // the savepoint exists
	rows  []audit.Row
	bytes int // of payload

	purged bool // content was removed, see checkpointer

	late []func() error // see RecordLate
}

// write is exec within the call's savepoint, which is made at the first write: calls that only look, as refused ones
// and replays do, need none.
func (t *tx) write(text string, args ...any) error {
	if !t.wrote {
		if err := t.exec("SAVEPOINT one"); err != nil {
			return err
		}
		t.wrote = true
	}
	return t.exec(text, args...)
}

// audit adds a row to commit; an empty one is none.
func (t *tx) audit(r audit.Row) {
	if len(r) > 0 {
		t.rows = append(t.rows, r)
	}
}

// Update implements persistence.Store.
func (s *Store) Update(ctx context.Context, c persistence.Commit, fn func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	var out persistence.Outcome
	err := s.submit(ctx, func(t *tx) (err error) {
		out, err = t.update(c, fn)
		return err
	})
	if err != nil {
		return persistence.Outcome{}, err
	}
	return out, nil
}

// update runs fn unless the key is known, and records what came of it.
func (t *tx) update(c persistence.Commit, fn func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	known, out, err := t.recorded(c)
	if known || err != nil {
		return out, err
	}
	if out, err = fn(t); err != nil {
		return persistence.Outcome{}, err
	}
	out.Replayed = false
	if err := t.record(c, out); err != nil {
		return persistence.Outcome{}, err
	}
	if c.Seal != nil {
		t.audit(c.Seal(out))
	}
	return out, nil
}

// recordSum is the checksum of an idempotency record, at being its time in microseconds. It says whose record it is too,
// so that none can stand for another.
func recordSum(namespace, key string, at int64, fingerprint [32]byte, out persistence.Outcome) int64 {
	return rowSum([]string{namespace, key, out.ID}, []int64{at, out.Revision}, fingerprint, out.Value)
}

// recorded looks a key up. A record that is to be forgotten is removed and counts as unknown; one that is not what was
// written is neither: its effect may have happened.
func (t *tx) recorded(c persistence.Commit) (known bool, out persistence.Outcome, err error) {
	if c.Key == "" {
		return false, out, nil
	}
	var seq, at int64
	var fingerprint [32]byte
	damaged := false
	err = t.query(`SELECT seq, at, fingerprint, id, revision, value, sum FROM idempotency WHERE namespace = ? AND key = ?`,
		stop(func(r row) {
			known = true
			seq, at, fingerprint = r.int(0), r.int(1), r.array(2)
			out = persistence.Outcome{ID: r.text(3), Revision: r.int(4), Value: r.blob(5), Replayed: true}
			sum, summed := r[6].(int64) // a record of format 1 has none
			damaged = summed && sum != recordSum(c.Namespace, c.Key, at, fingerprint, out)
		}), c.Namespace, c.Key)
	switch {
	case err != nil || !known:
		return false, persistence.Outcome{}, err
	case damaged:
		return false, persistence.Outcome{}, fmt.Errorf("%w: idempotency row %d in %s is damaged", persistence.ErrDamaged, seq, c.Namespace)
	case at < c.Forget.UnixMicro():
		return false, persistence.Outcome{}, t.write("DELETE FROM idempotency WHERE seq = ?", seq)
	case fingerprint != c.Fingerprint:
		return false, persistence.Outcome{}, persistence.ErrKeyConflict
	}
	return true, out, nil
}

// record keeps the outcome under the key.
func (t *tx) record(c persistence.Commit, out persistence.Outcome) error {
	if c.Key == "" {
		return nil
	}
	const text = `INSERT INTO idempotency (namespace, key, at, fingerprint, id, revision, value, sum) VALUES (?,?,?,?,?,?,?,?)`
	at := c.Now.UnixMicro()
	args := []any{
		c.Namespace, c.Key, at, c.Fingerprint[:], out.ID, out.Revision, out.Value, recordSum(c.Namespace, c.Key, at, c.Fingerprint, out),
	}
	if weak(RecordLate) {
		conn := t.w.conn
		t.late = append(t.late, func() error { _, err := conn.exec(text, args...); return err })
		return nil
	}
	return t.write(text, args...)
}

// PutRevision implements persistence.Tx. Beside the revision's number it insists on what holds of every document: one
// time of creation, and times that do not go back.
func (t *tx) PutRevision(d *persistence.Document) error {
	h, err := t.head(d.Namespace, d.ID)
	if err != nil {
		return err
	}
	if err := follows(d, h.Head); err != nil {
		return err
	}
	refs, err := encodeRefs(d.References)
	if err != nil {
		return fmt.Errorf("encode references: %w", err)
	}
	seq, err := t.appendRevision(d, h, refs)
	if err != nil {
		return err
	}
	if err := t.moveHead(d, h, seq); err != nil {
		return err
	}
	if err := t.pointAt(d, seq); err != nil {
		return err
	}
	return t.charge(d, h)
}

// follows tells whether d may come after the head. It cannot fail for what the Service writes.
func follows(d *persistence.Document, h persistence.Head) error {
	if d.Revision != h.Revision+1 {
		return fmt.Errorf("write revision %d of %s: the head is %d", d.Revision, d.ID, h.Revision)
	}
	if d.Revision > 1 && d.CreatedAt.UnixMilli() != h.CreatedAt.UnixMilli() {
		return fmt.Errorf("write revision %d of %s: the time of creation differs", d.Revision, d.ID)
	}
	if d.Revision > 1 && d.UpdatedAt.UnixMilli() < h.UpdatedAt.UnixMilli() {
		return fmt.Errorf("write revision %d of %s: it is older than its predecessor", d.Revision, d.ID)
	}
	return nil
}

// appendRevision writes the row of the revision and gives its seq.
func (t *tx) appendRevision(d *persistence.Document, h head, refs []byte) (seq int64, err error) {
	t.w.seq++
	seq = t.w.seq
	doc := h.doc
	if !h.known {
		doc = seq
	}
	return seq, t.write(`INSERT INTO revisions (seq, doc, revision, deleted, updated, sum, kind, schema_version, refs, payload)
VALUES (?,?,?,?,?,?,?,?,?,?)`,
		seq, doc, d.Revision, flag(d.Deleted), d.UpdatedAt.UnixMilli(), checksum(d, refs), d.Kind, d.SchemaVersion, refs, d.Payload)
}

// moveHead makes seq the head of its document.
func (t *tx) moveHead(d *persistence.Document, h head, seq int64) error {
	created, updated := d.CreatedAt.UnixMilli(), d.UpdatedAt.UnixMilli()
	t.last = head{
		namespace: d.Namespace, id: d.ID, known: true, doc: h.doc, seq: seq, created: created,
		Head: persistence.Head{
			Revision: d.Revision, Deleted: d.Deleted, Kind: d.Kind, SchemaVersion: d.SchemaVersion,
			CreatedAt: millis(created), UpdatedAt: millis(updated),
		},
	}
	if !h.known {
		t.last.doc = seq
		return t.write(`INSERT INTO heads (namespace, id, doc, revision, deleted, seq, created, updated, kind, schema_version)
VALUES (?,?,?,?,?,?,?,?,?,?)`,
			d.Namespace, d.ID, seq, d.Revision, flag(d.Deleted), seq, created, updated, d.Kind, d.SchemaVersion)
	}
	return t.write(`UPDATE heads SET revision = ?, deleted = ?, seq = ?, updated = ?, kind = ?, schema_version = ?
WHERE namespace = ? AND id = ?`,
		d.Revision, flag(d.Deleted), seq, updated, d.Kind, d.SchemaVersion, d.Namespace, d.ID)
}

// pointAt makes the references of d inbound references of their targets. Duplicates are one.
func (t *tx) pointAt(d *persistence.Document, source int64) error {
	for _, r := range d.References {
		err := t.write(`INSERT OR IGNORE INTO inbound
(namespace, id, type, revision, source_namespace, source_id, source_revision, source) VALUES (?,?,?,?,?,?,?,?)`,
			r.Namespace, r.ID, string(r.Type), targetRevision(r), d.Namespace, d.ID, d.Revision, source)
		if err != nil {
			return err
		}
	}
	return nil
}

// flag is a boolean as the tables hold it.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
