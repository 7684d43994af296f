package sqlite

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// errOver is what a Reader or Tx answers after its function has returned.
var errOver = errors.New("the transaction is over")

// reader implements persistence.Reader on one connection, within a transaction.
type reader struct {
	c    *conn // nil when the transaction is over
	last head  // the head that was read last, see head

	lost    error // SQLite may have ended the transaction
	failure error // a statement failed, the transaction goes on
}

// head is a row of heads.
type head struct {
	namespace, id string // whose head this is
	known         bool   // false: there is none
	doc, seq      int64
	created       int64
	persistence.Head
}

// query is conn.query for the methods below: failures are noted and made persistence.ErrUnavailable. errStop ends it.
func (r *reader) query(text string, each func(row) error, args ...any) error {
	if r.c == nil {
		return errOver
	}
	return r.note(r.c.query(text, each, args...))
}

// exec is conn.exec with the same.
func (r *reader) exec(text string, args ...any) error {
	if r.c == nil {
		return errOver
	}
	_, err := r.c.exec(text, args...)
	return r.note(err)
}

// note remembers a failure of SQLite, so that the transaction fails even when fn hides it.
func (r *reader) note(err error) error {
	if err == nil {
		return nil
	}
	switch primary(err) {
	case codeConstraint, codeTooBig, codeMismatch:
		r.failure = unavailable(err)
	default:
		r.lost = err
	}
	return unavailable(err)
}

// stop makes a query's each take one row.
func stop(f func(row)) func(row) error {
	return func(r row) error {
		f(r)
		return errStop
	}
}

const headQuery = `SELECT doc, seq, created, revision, deleted, updated, kind, schema_version
FROM heads WHERE namespace = ? AND id = ?`

// head reads a head, or gives the one read last: fn looks at a head before it writes, and the write needs it again.
func (r *reader) head(namespace, id string) (head, error) {
	if r.last.namespace == namespace && r.last.id == id && r.c != nil {
		return r.last, nil
	}
	h := head{namespace: namespace, id: id}
	err := r.query(headQuery, stop(func(row row) {
		h.known = true
		h.doc, h.seq, h.created = row.int(0), row.int(1), row.int(2)
		h.Head = persistence.Head{
			Revision: row.int(3), Deleted: row.int(4) != 0, Kind: row.text(6), SchemaVersion: row.text(7),
			CreatedAt: millis(h.created), UpdatedAt: millis(row.int(5)),
		}
	}), namespace, id)
	if err != nil {
		return head{}, err
	}
	r.last = h
	return h, nil
}

// Head implements persistence.Reader.
func (r *reader) Head(namespace, id string) (persistence.Head, bool, error) {
	h, err := r.head(namespace, id)
	return h.Head, h.known, err
}

// revisionColumns are what document reads, from heads h and revisions r.
const revisionColumns = `SELECT h.namespace, h.id, h.created, r.revision, r.deleted, r.updated, r.kind,
	r.schema_version, r.refs, r.payload, r.sum `

// document reads a row of revisionColumns and refuses one whose content is not what was written.
func document(r row) (*persistence.Document, error) {
	d := &persistence.Document{
		Namespace: r.text(0), ID: r.text(1), CreatedAt: millis(r.int(2)),
		Revision: r.int(3), Deleted: r.int(4) != 0, UpdatedAt: millis(r.int(5)),
		Kind: r.text(6), SchemaVersion: r.text(7), Payload: r.blob(9),
	}
	refs := r.blob(8)
	if checksum(d, refs) != r.int(10) {
		return nil, fmt.Errorf("%w: revision %d of document %s in %s is damaged",
			persistence.ErrDamaged, d.Revision, d.ID, d.Namespace)
	}
	var err error
	d.References, err = decodeRefs(refs)
	return d, err
}

// revision reads at most one document.
func (r *reader) revision(text string, args ...any) (d *persistence.Document, ok bool, err error) {
	var damage error
	err = r.query(text, stop(func(row row) { d, damage = document(row) }), args...)
	return d, d != nil, errors.Join(err, damage)
}

// Revision implements persistence.Reader.
func (r *reader) Revision(namespace, id string, revision int64) (*persistence.Document, bool, error) {
	return r.revision(revisionColumns+`FROM heads h JOIN revisions r ON r.doc = h.doc
WHERE h.namespace = ? AND h.id = ? AND r.revision = ?`, namespace, id, revision)
}

// HeadDocument implements persistence.Reader.
func (r *reader) HeadDocument(namespace, id string) (*persistence.Document, bool, error) {
	return r.revision(revisionColumns+`FROM heads h JOIN revisions r ON r.seq = h.seq
WHERE h.namespace = ? AND h.id = ?`, namespace, id)
}

// Live implements persistence.Reader.
func (r *reader) Live(ref persistence.Ref) (live bool, err error) {
	if ref.Type != persistence.RefDocument {
		return r.artifactLives(ref.Namespace, ref.ID)
	}
	err = r.query(`SELECT 1 FROM heads h JOIN revisions r ON r.doc = h.doc
WHERE h.namespace = ? AND h.id = ? AND r.revision = ? AND r.deleted = 0`,
		stop(func(row) { live = true }), ref.Namespace, ref.ID, ref.Revision)
	return live, err
}

// The selections of Heads. Each names the index that gives its rows in order: SQLite refuses the statement when the
// index cannot be used, so a list never becomes a scan unseen. The primary key needs no name.
const (
	headsAll = revisionColumns + `FROM heads h JOIN revisions r ON r.seq = h.seq
WHERE h.namespace = ?1 AND h.id > ?2 ORDER BY h.id LIMIT ?3`
	headsLive = revisionColumns + `FROM heads h INDEXED BY heads_live JOIN revisions r ON r.seq = h.seq
WHERE h.namespace = ?1 AND h.id > ?2 AND h.deleted = 0 ORDER BY h.id LIMIT ?3`
	headsKindLive = revisionColumns + `FROM heads h INDEXED BY heads_kind JOIN revisions r ON r.seq = h.seq
WHERE h.namespace = ?1 AND h.kind = ?4 AND h.deleted = 0 AND h.id > ?2 ORDER BY h.id LIMIT ?3`
	headsKind = revisionColumns + `FROM heads h INDEXED BY heads_kind JOIN revisions r ON r.seq = h.seq
WHERE h.namespace = ?1 AND h.kind = ?4 AND h.deleted = 0 AND h.id > ?2 UNION ALL ` + // two runs, merged
		revisionColumns + `FROM heads h INDEXED BY heads_kind JOIN revisions r ON r.seq = h.seq
WHERE h.namespace = ?1 AND h.kind = ?4 AND h.deleted = 1 AND h.id > ?2 ORDER BY 2 LIMIT ?3`
)

// Heads implements persistence.Reader.
func (r *reader) Heads(namespace string, f persistence.HeadFilter) ([]*persistence.Document, bool, error) {
	p := page{limit: max(f.Limit, 1), maxBytes: f.MaxBytes}
	text, args := headsLive, []any{namespace, f.After, p.rows()}
	switch {
	case f.Kind != "" && f.IncludeDeleted:
		text, args = headsKind, append(args, f.Kind)
	case f.Kind != "":
		text, args = headsKindLive, append(args, f.Kind)
	case f.IncludeDeleted:
		text = headsAll
	}
	return p.read(r, text, args...)
}

// revisionsAfter takes its arguments in the places that the selections of Heads have for them.
const revisionsAfter = revisionColumns + `FROM heads h JOIN revisions r ON r.doc = h.doc
WHERE h.namespace = ?1 AND h.id = ?2 AND r.revision > ?4 ORDER BY r.revision LIMIT ?3`

// Revisions implements persistence.Reader.
func (r *reader) Revisions(namespace, id string, after int64, limit, maxBytes int) ([]*persistence.Document, bool, error) {
	p := page{limit: max(limit, 1), maxBytes: maxBytes}
	return p.read(r, revisionsAfter, namespace, id, p.rows(), after)
}

// page gathers documents within bounds.
type page struct {
	limit, maxBytes int
	bytes           int
	docs            []*persistence.Document
	more            bool
}

// rows is how many rows to ask for: one further tells that there are more.
func (p *page) rows() int64 { return int64(p.limit) + 1 }

// read runs the query and fills the page.
func (p *page) read(r *reader, text string, args ...any) ([]*persistence.Document, bool, error) {
	var damage error
	err := r.query(text, func(row row) error {
		if p.full(len(row.blob(9))) {
			p.more = true
			return errStop
		}
		d, err := document(row)
		if err != nil {
			damage = err
			return errStop
		}
		p.docs = append(p.docs, d)
		p.bytes += len(d.Payload)
		return nil
	}, args...)
	if err = errors.Join(err, damage); err != nil {
		return nil, false, err
	}
	return p.docs, p.more, nil
}

// full tells whether a document of n payload bytes has no place any more.
func (p *page) full(n int) bool {
	return len(p.docs) >= p.limit || len(p.docs) > 0 && p.maxBytes > 0 && p.bytes+n > p.maxBytes
}

// castagnoli is the polynomial that processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers what a revision holds and where it belongs, so that a flipped bit or a row in the wrong place is
// not served (persistence.v1, section 11, K6).
func checksum(d *persistence.Document, refs []byte) int64 {
	b := make([]byte, 0, 256)
	for _, s := range []string{d.Namespace, d.ID, d.Kind, d.SchemaVersion} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	for _, n := range []int64{
		d.Revision, flag(d.Deleted), d.CreatedAt.UnixMilli(), d.UpdatedAt.UnixMilli(), int64(len(refs)),
	} {
		b = binary.AppendVarint(b, n)
	}
	sum := crc32.Update(0, castagnoli, b)
	sum = crc32.Update(sum, castagnoli, refs)
	return int64(crc32.Update(sum, castagnoli, d.Payload))
}

// storedRef is a reference as it is kept in its revision: the stored form does not follow the type of the contract.
type storedRef struct {
	Type      persistence.RefType `json:"t"`
	Namespace string              `json:"n"`
	ID        string              `json:"i"`
	Revision  int64               `json:"r,omitempty"`
}

// encodeRefs gives the stored form of references, nil for none.
func encodeRefs(refs []persistence.Ref) ([]byte, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	stored := make([]storedRef, len(refs))
	for i, r := range refs {
		stored[i] = storedRef(r)
	}
	return json.Marshal(stored)
}

// decodeRefs is the inverse of encodeRefs.
func decodeRefs(b []byte) ([]persistence.Ref, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var stored []storedRef
	if err := json.Unmarshal(b, &stored); err != nil {
		return nil, fmt.Errorf("%w: decode references: %w", persistence.ErrUnavailable, err)
	}
	refs := make([]persistence.Ref, len(stored))
	for i, r := range stored {
		refs[i] = persistence.Ref(r)
	}
	return refs, nil
}

// millis is a time of a document, kept in milliseconds since 1970.
func millis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
