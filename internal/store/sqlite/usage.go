package sqlite

import (
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// The selections of what namespaces hold. A namespace has a row in usage from its first document or upload on.
const (
	usageRow = "SELECT bytes, reserved FROM usage WHERE namespace = ?"

	// lateBytes is what expired uploads have reserved: they are few, because a sweep closes them.
	lateBytes = `SELECT sum(size) FROM uploads INDEXED BY uploads_reserved
WHERE namespace = ? AND closed IS NULL AND expires <= ?`

	namespacesAfter = `SELECT namespace, bytes, reserved,
(SELECT count(*) FROM heads h INDEXED BY heads_live WHERE h.namespace = u.namespace AND h.deleted = 0),
(SELECT count(*) FROM heads h WHERE h.namespace = u.namespace),
(SELECT count(*) FROM heads h CROSS JOIN revisions r INDEXED BY revisions_doc ON r.doc = h.doc WHERE h.namespace = u.namespace),
(SELECT count(*) FROM artifacts a WHERE a.namespace = u.namespace),
(SELECT count(*) FROM uploads p INDEXED BY uploads_reserved WHERE p.namespace = u.namespace AND p.closed IS NULL)
FROM usage u WHERE namespace > ? ORDER BY namespace`
)

// Usage implements persistence.Reader. Every put asks for it: where no upload is open, it is one row.
func (r *reader) Usage(namespace string, now time.Time) (bytes int64, err error) {
	var reserved, late int64
	err = r.query(usageRow, stop(func(row row) { bytes, reserved = row.int(0), row.int(1) }), namespace)
	if err != nil || reserved == 0 {
		return bytes, err
	}
	err = r.query(lateBytes, stop(func(row row) { late = row.int(0) }), namespace, now.UnixMilli())
	return bytes - late, err
}

// Namespaces implements persistence.Reader. A namespace that holds nothing any more is left out.
func (r *reader) Namespaces(after string, limit int) (found []persistence.NamespaceFacts, err error) {
	if limit < 1 {
		return nil, nil
	}
	err = r.query(namespacesAfter, func(row row) error {
		f := persistence.NamespaceFacts{
			Namespace: row.text(0), Bytes: row.int(1), Reserved: row.int(2), Documents: row.int(3), Deleted: row.int(4) - row.int(3),
			Revisions: row.int(5), Artifacts: row.int(6), Uploads: row.int(7),
		}
		if f.Revisions+f.Artifacts+f.Uploads > 0 {
			found = append(found, f)
		}
		if len(found) == limit {
			return errStop
		}
		return nil
	}, after)
	return found, err
}

// charge counts the payload of a revision against its namespace. A tombstone is free; it makes the namespace known
// when it is a document's first revision.
func (t *tx) charge(d *persistence.Document, h head) error {
	if d.Deleted && h.known {
		return nil
	}
	n := int64(0)
	if !d.Deleted {
		n = int64(len(d.Payload))
	}
	t.bytes += int(n)
	return t.chargeBytes(d.Namespace, n)
}

// chargeBytes adds n, which may be negative, to what counts against a namespace.
func (t *tx) chargeBytes(namespace string, n int64) error {
	return t.write(`INSERT INTO usage (namespace, bytes) VALUES (?,?)
ON CONFLICT (namespace) DO UPDATE SET bytes = bytes + excluded.bytes`, namespace, n)
}

// reserve adds n, which may be negative, to what open uploads have reserved, and with it to what counts.
func (t *tx) reserve(namespace string, n int64) error {
	return t.write(`INSERT INTO usage (namespace, bytes, reserved) VALUES (?1,?2,?2)
ON CONFLICT (namespace) DO UPDATE SET bytes = bytes + excluded.bytes, reserved = reserved + excluded.reserved`, namespace, n)
}
