package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// FlawKind is what a Flaw is about, one word of a closed list.
type FlawKind string

// The kinds of flaws.
const (
	FlawDatabase        FlawKind = "database-damaged"    // SQLite finds its pages wrong, or cannot read them
	FlawSchema          FlawKind = "schema-changed"      // a table, index, trigger or view is not what this program makes
	FlawIndex           FlawKind = "index-damaged"       // an index does not agree with its table
	FlawRevision        FlawKind = "revision-damaged"    // D4: not what was written
	FlawNumber          FlawKind = "revision-number"     // D1: below 1
	FlawTime            FlawKind = "revision-time"       // D2: older than its predecessor
	FlawSuperseded      FlawKind = "revision-superseded" // when it was superseded is not kept as a purge keeps it
	FlawOrphan          FlawKind = "revision-orphan"     // D1: of no document
	FlawHead            FlawKind = "head-wrong"          // D1: the head does not agree with its revision, which is whole
	FlawHeadLost        FlawKind = "head-lost"           // D1: the head's revision is not there
	FlawReference       FlawKind = "reference-broken"    // D3
	FlawInboundMissing  FlawKind = "inbound-missing"     // D3: a reference that would not keep its target from a purge
	FlawInboundExtra    FlawKind = "inbound-extra"       // D3: a target is kept for a reference that is not there
	FlawArtifact        FlawKind = "artifact-damaged"    // the row is not what was written
	FlawArtifactMissing FlawKind = "artifact-missing"    // U1: its upload is committed
	FlawUpload          FlawKind = "upload-damaged"      // the row is not what was written
	FlawUploadState     FlawKind = "upload-state"        // U1: a state that does not agree with the artifact, or with itself
	FlawUsage           FlawKind = "usage-wrong"         // U4
	FlawRecord          FlawKind = "idempotency-stray"   // a record of an effect that never was
	FlawRecordDamaged   FlawKind = "idempotency-damaged" // the record is not what was written
	FlawAudit           FlawKind = "audit-damaged"       // rows of no writer
)

// FlawKinds lists them all.
func FlawKinds() []FlawKind {
	return []FlawKind{
		FlawDatabase, FlawSchema, FlawIndex, FlawRevision, FlawNumber, FlawTime, FlawSuperseded, FlawOrphan, FlawHead, FlawHeadLost, FlawReference,
		FlawInboundMissing, FlawInboundExtra, FlawArtifact, FlawArtifactMissing, FlawUpload, FlawUploadState, FlawUsage,
		FlawRecord, FlawRecordDamaged, FlawAudit,
	}
}

// Flaw is something in a database that is not as it should be.
type Flaw struct {
	Kind  FlawKind
	Where string // namespace/id@revision, namespace/id, or a row
	What  string
	// Namespace and ID are those of the document, upload or artifact, for who repairs it; "" when there is none.
	Namespace, ID string
}

// Rules checks everything that the database alone can show, one rule after the other, and calls found for each flaw. A
// rule that cannot be followed to its end, because of damage, is a flaw itself, and the next rule goes on. progress is
// told of rows. Any other error ends it.
func (i *Inspector) Rules(progress func(stage string, done, total int64), found func(Flaw)) error {
	e := &examination{Inspector: i, progress: progress, found: found}
	rules := []struct {
		name string
		run  func() error
	}{{"schema", e.schema}, {"database", e.integrity}}
	if _, older := i.Format(); !older {
		rules = append(rules, []struct {
			name string
			run  func() error
		}{
			{"documents", e.documents}, {"orphans", e.orphans}, {"inbound references", e.inbound}, {"uploads", e.uploads},
			{"artifacts", e.artifacts}, {"usage", e.usage}, {"idempotency records", e.records}, {"audit rows", e.auditRows},
		}...)
	}
	for _, rule := range rules {
		err := rule.run()
		if err != nil && context.Cause(i.ctx) == nil && (damaged(err) || misfit(err)) {
			e.flaw(FlawDatabase, "table of "+rule.name, "it cannot be read to its end: %v", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("check %s: %w", rule.name, unreadable(err))
		}
	}
	return nil
}

// examination is one run of Rules.
type examination struct {
	*Inspector
	progress func(stage string, done, total int64)
	found    func(Flaw)
}

// flaw tells of a flaw that is no document's.
func (e *examination) flaw(kind FlawKind, where, format string, args ...any) {
	e.found(Flaw{Kind: kind, Where: where, What: fmt.Sprintf(format, args...)})
}

// of tells of a flaw of a document, upload or artifact; at is "" or "@revision".
func (e *examination) of(kind FlawKind, namespace, id, at, format string, args ...any) {
	e.found(Flaw{
		Kind: kind, Where: namespace + "/" + id + at, What: fmt.Sprintf(format, args...), Namespace: namespace, ID: id,
	})
}

// integrity asks SQLite itself. What PRAGMA foreign_key_check would find, the rule of inbound references finds and
// names.
func (e *examination) integrity() error {
	e.progress("checking pages", 0, 0)
	return e.long("PRAGMA integrity_check(100)", func(r row) error {
		switch text := r.text(0); {
		case text == "ok":
		case indexOnly(text):
			e.flaw(FlawIndex, "index "+text[strings.LastIndexByte(text, ' ')+1:], "%s", text)
		default:
			e.flaw(FlawDatabase, "file "+databaseName, "%s", strings.ReplaceAll(text, "\n", " "))
		}
		return nil
	})
}

// schemaRows are what a schema is made of. Indexes that SQLite makes by itself have no text.
const schemaRows = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name"

// schemaOf gives the text of everything in a schema, by its type and name.
func schemaOf(c *conn) (map[string]string, error) {
	all := map[string]string{}
	err := c.query(schemaRows, func(r row) error {
		all[r.text(0)+" "+r.text(1)] = r.text(2)
		return nil
	})
	return all, err
}

// freshSchema is the schema that the migrations make, up to a format, in a database in memory.
func freshSchema(format int) (all map[string]string, err error) {
	raw, err := new(sqlite.Driver).Open("file::memory:?_dqs=0&_error_rc=1")
	if err != nil {
		return nil, fmt.Errorf("make a schema to compare with: %w", err)
	}
	c := &conn{raw: raw, stmts: map[string]*stmt{}}
	defer func() { err = errors.Join(err, c.close()) }()
	for step, script := range migrations[:format] {
		if err := migrateStep(c, step, script); err != nil {
			return nil, err
		}
	}
	return schemaOf(c)
}

// Schema checks that the schema is the one that the migrations make, and calls found for what is not: a trigger or a view
// of somebody would be run, and without an index a rule of the store is not kept.
func (i *Inspector) Schema(found func(Flaw)) error {
	want, err := freshSchema(i.format)
	if err != nil {
		return err
	}
	have, err := schemaOf(i.c)
	if err != nil {
		return unfit(err)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if text, ok := have[name]; !ok {
			found(Flaw{Kind: FlawSchema, Where: name, What: "it is not there"})
		} else if text != want[name] {
			found(Flaw{Kind: FlawSchema, Where: name, What: "it is not as this program makes it"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[name]; !ok {
			found(Flaw{Kind: FlawSchema, Where: name, What: "this program does not make it"})
		}
	}
	return nil
}

// schema is Schema as a rule.
func (e *examination) schema() error { return e.Schema(e.found) }

// indexOnly tells of a line of PRAGMA integrity_check whether REINDEX can be the answer to it.
func indexOnly(line string) bool {
	return strings.HasPrefix(line, "row ") && strings.Contains(line, " missing from index ") ||
		strings.HasPrefix(line, "wrong # of entries in index ") ||
		strings.HasPrefix(line, "row ") && strings.Contains(line, " values differ from index ")
}

// inspectDocuments gives every document with its revisions, in the order of the keys of both tables: nothing is sorted.
// The first columns are revisionColumns.
const inspectDocuments = revisionColumns + `, r.seq, h.doc, h.revision, h.deleted, h.seq, h.updated, h.kind, h.schema_version,
r.superseded FROM heads h LEFT JOIN revisions r INDEXED BY revisions_doc ON r.doc = h.doc `

// inspectAll and inspectOne are its selections.
const (
	inspectAll = inspectDocuments + `ORDER BY h.namespace, h.id, r.revision`
	inspectOne = inspectDocuments + `WHERE h.namespace = ? AND h.id = ? ORDER BY r.revision`
)

// headRow is what a row of heads says, or ought to say.
type headRow struct {
	revision, deleted, seq, updated int64
	kind, schemaVersion             string
}

// line is one row of inspectDocuments.
type line struct {
	namespace, id string
	doc           int64
	head          headRow
	revision      bool // there is one
	own           headRow
	superseded    int64                 // time of the revision after it, which a purge removed; see kept
	kept          bool                  // superseded is there
	document      *persistence.Document // nil when it is damaged
	damage        error
}

// readLine reads a row of inspectDocuments.
func readLine(r row) line {
	l := line{
		namespace: r.text(0), id: r.text(1), doc: r.int(12),
		head: headRow{r.int(13), r.int(14), r.int(15), r.int(16), r.text(17), r.text(18)},
	}
	if l.revision = r[11] != nil; l.revision {
		l.own = headRow{r.int(3), r.int(4), r.int(11), r.int(5), r.text(6), r.text(7)}
		l.superseded, l.kept = r.int(19), r[19] != nil
		l.document, l.damage = document(r)
		if l.damage != nil {
			l.document = nil
		}
	}
	return l
}

// chainOf follows the revisions of one document.
type chainOf struct {
	line        // the last one
	sound  bool // the newest revision is what was written
	chosen bool // there was a line
}

// How a head stands to its document's newest revision.
const (
	headFine  = iota
	headWrong // the revision is whole and the head does not say what it is: the head can be mended
	headLost  // the head's revision is not there
)

// verdict judges the head. A head is written in one statement with the place of its revision; so one that gives the
// place of the newest revision means it, whatever number it gives.
func (c *chainOf) verdict() int {
	switch {
	case !c.revision:
		return headLost
	case c.own == c.head:
		return headFine
	case c.own.revision < c.head.revision && c.own.seq != c.head.seq:
		return headLost
	}
	return headWrong
}

// documents checks D1 to D4.
func (e *examination) documents() error {
	total, err := e.c.number("SELECT count(*) FROM revisions")
	if err != nil {
		return err
	}
	var c chainOf
	done := int64(0)
	err = e.each(inspectAll, func(r row) error {
		l := readLine(r)
		if c.chosen && (c.namespace != l.namespace || c.id != l.id) {
			e.judge(&c)
			c = chainOf{}
		}
		if done++; done%512 == 0 {
			e.progress("checking documents", done, total)
		}
		return e.follow(&c, l)
	})
	if err == nil && c.chosen {
		e.judge(&c)
	}
	e.progress("checking documents", total, total)
	return err
}

// follow takes the next revision of a document.
func (e *examination) follow(c *chainOf, l line) error {
	before := *c
	*c = chainOf{line: l, sound: l.damage == nil, chosen: true}
	if !l.revision {
		return nil
	}
	at := fmt.Sprint("@", l.own.revision)
	if l.own.revision < 1 {
		e.of(FlawNumber, l.namespace, l.id, at, "revisions are numbered from 1")
	}
	if before.chosen && l.own.updated < before.own.updated {
		e.of(FlawTime, l.namespace, l.id, at, "it is older than revision %d before it", before.own.revision)
	}
	if before.chosen && before.revision {
		e.followed(before.line, l)
	}
	if l.damage != nil {
		e.of(FlawRevision, l.namespace, l.id, at, "what is stored is not what was written: the checksum differs")
		return nil
	}
	return e.references(l.document, l.own.seq)
}

// followed checks what is kept of when a revision was superseded, by the next one that is there. A purge keeps the time of
// the revision that it removes with the one before it; purges by age rest on that. A gap without it was made by none.
func (e *examination) followed(l, next line) {
	at := fmt.Sprint("@", l.own.revision)
	switch gap := next.own.revision != l.own.revision+1; {
	case !gap && l.kept:
		e.of(FlawSuperseded, l.namespace, l.id, at, "a time is kept for the revision after it, as if that were purged, and it is there")
	case gap && !l.kept:
		e.of(FlawSuperseded, l.namespace, l.id, at, "the revision after it is not there, and no purge has removed it")
	case gap && (l.superseded < l.own.updated || l.superseded > next.own.updated):
		e.of(FlawSuperseded, l.namespace, l.id, at, "the time that is kept for the revision after it is not between its own and that of revision %d", next.own.revision)
	}
}

// judge tells of a head that does not agree with its revisions. When the newest of them is damaged, that was told of.
func (e *examination) judge(c *chainOf) {
	if c.kept {
		e.of(FlawSuperseded, c.namespace, c.id, fmt.Sprint("@", c.own.revision), "a time is kept for the revision after it, and it is the newest")
	}
	switch v := c.verdict(); {
	case v == headLost:
		newest := "no revision of it is there"
		if c.revision {
			newest = fmt.Sprintf("the newest that is there is revision %d", c.own.revision)
		}
		e.of(FlawHeadLost, c.namespace, c.id, fmt.Sprint("@", c.head.revision), "the newest revision is lost: %s", newest)
	case v == headWrong && c.sound:
		e.of(FlawHead, c.namespace, c.id, "", "its row in the table of heads does not agree with its newest revision, %d", c.own.revision)
	}
}

// inboundRow finds the row that a reference makes.
const inboundRow = `SELECT source FROM inbound WHERE namespace = ? AND id = ? AND type = ? AND revision = ?
AND source_namespace = ? AND source_id = ? AND source_revision = ?`

// references checks the references of a revision: the targets exist, and are told of it.
func (e *examination) references(d *persistence.Document, seq int64) error {
	at := fmt.Sprint("@", d.Revision)
	for n, ref := range d.References {
		if slices.Contains(d.References[:n], ref) {
			continue
		}
		live, err := e.r.Live(ref)
		if err != nil {
			return err
		}
		if !live {
			e.of(FlawReference, d.Namespace, d.ID, at, "it refers to %s, which is not there", describe(ref))
		}
		source, err := e.c.number(inboundRow, ref.Namespace, ref.ID, string(ref.Type), targetRevision(ref), d.Namespace, d.ID, d.Revision)
		if err != nil {
			return err
		}
		if source != seq {
			e.of(FlawInboundMissing, d.Namespace, d.ID, at, "its reference to %s is not among the inbound references of that", describe(ref))
		}
	}
	return nil
}

// describe names the target of a reference.
func describe(r persistence.Ref) string {
	if r.Type == persistence.RefDocument {
		return fmt.Sprintf("document %s/%s@%d", r.Namespace, r.ID, r.Revision)
	}
	return fmt.Sprintf("%s %s/%s", r.Type, r.Namespace, r.ID)
}

// orphans looks for revisions whose document has no head.
func (e *examination) orphans() error {
	return e.each("SELECT seq, doc, revision FROM revisions WHERE doc NOT IN (SELECT doc FROM heads) ORDER BY seq", func(r row) error {
		e.flaw(FlawOrphan, fmt.Sprintf("revisions row %d", r.int(0)), "revision %d of a document, number %d, that has no head: its namespace and id are lost", r.int(2), r.int(1))
		return nil
	})
}

// Inbound references by their source, so that each source is read once, and the references of one revision.
const (
	inboundBySource = `SELECT source, namespace, id, type, revision, source_namespace, source_id, source_revision
FROM inbound INDEXED BY inbound_source ORDER BY source`
	sourceOf = revisionColumns + `FROM revisions r JOIN heads h ON h.doc = r.doc AND h.namespace = ? AND h.id = ? WHERE r.seq = ?`
)

// inbound looks for inbound references that no revision has.
func (e *examination) inbound() error {
	var last int64 = -1
	var source sourceRevision
	return e.each(inboundBySource, func(r row) error {
		from := persistence.Ref{Namespace: r.text(5), ID: r.text(6), Revision: r.int(7)}
		if r.int(0) != last || !source.is(from) {
			last = r.int(0)
			var err error
			if source, err = readSource(e.c, last, from); err != nil {
				return err
			}
		}
		to := persistence.Ref{Type: persistence.RefType(r.text(3)), Namespace: r.text(1), ID: r.text(2), Revision: r.int(4)}
		if !source.refersTo(to) {
			e.of(FlawInboundExtra, from.Namespace, from.ID, fmt.Sprint("@", from.Revision), "%s is kept for a reference that this revision does not have", describe(to))
		}
		return nil
	})
}

// sourceRevision is the revision behind inbound references.
type sourceRevision struct {
	from   persistence.Ref
	known  bool // it is there
	sound  bool // and what was written
	points []persistence.Ref
}

// is tells whether it is the revision of from.
func (s *sourceRevision) is(from persistence.Ref) bool { return s.from == from }

// refersTo tells whether the revision has a reference to a target. Of a damaged one nothing is known, so that its targets
// stay protected.
func (s *sourceRevision) refersTo(to persistence.Ref) bool {
	return s.known && (!s.sound || slices.ContainsFunc(s.points, func(r persistence.Ref) bool {
		r.Revision = targetRevision(r)
		return r == to
	}))
}

// readSource reads the revision in a row, if it is that of from.
func readSource(c *conn, seq int64, from persistence.Ref) (sourceRevision, error) {
	s := sourceRevision{from: from}
	_, err := c.one(sourceOf, func(r row) {
		if r.int(3) != from.Revision {
			return
		}
		d, damage := document(r)
		s.known, s.sound = true, damage == nil
		if s.sound {
			s.points = d.References
		}
	}, from.Namespace, from.ID, seq)
	return s, err
}

// uploads checks U1, and the rows.
func (e *examination) uploads() error {
	return e.each(uploadColumns+"FROM uploads ORDER BY seq", func(r row) error {
		u, damage := readUpload(r)
		if damage != nil {
			e.of(FlawUpload, r.text(0), r.text(1), "", "its row is not what was written: the checksum differs")
			return nil
		}
		exists, err := e.r.artifactLives(u.Namespace, u.ArtifactID)
		if err != nil {
			return err
		}
		switch wrong := u.contradiction(exists); {
		case u.State == persistence.UploadCommitted && !exists:
			e.of(FlawArtifactMissing, u.Namespace, u.ArtifactID, "", "upload %s of it is committed, and it is not there", u.ID)
		case wrong != "":
			e.of(FlawUploadState, u.Namespace, u.ID, "", "%s", wrong)
		}
		return nil
	})
}

// contradiction tells what is wrong with the state of an upload whose artifact exists, or not; "" is nothing.
func (u *upload) contradiction(exists bool) string {
	switch u.State {
	case persistence.UploadPending, persistence.UploadReceived, persistence.UploadCommitted, persistence.UploadAborted,
		persistence.UploadExpired, persistence.UploadPurged:
	default:
		return fmt.Sprintf("its state is %q, which there is not", u.State)
	}
	if u.State.Open() == (u.closed != 0) {
		return fmt.Sprintf("it is %s, and the time of its end says otherwise", u.State)
	}
	if exists && u.State != persistence.UploadCommitted {
		return fmt.Sprintf("it is %s, and its artifact %s exists", u.State, u.ArtifactID)
	}
	return ""
}

// artifacts checks the rows of artifacts.
func (e *examination) artifacts() error {
	return e.each("SELECT namespace, id, mime_type, size, digest, created, provenance, sum FROM artifacts ORDER BY seq", func(r row) error {
		if _, damage := artifact(r); damage != nil {
			e.of(FlawArtifact, r.text(0), r.text(1), "", "its row is not what was written: the checksum differs")
		}
		return nil
	})
}

// usageOwed compares what is charged to each namespace with what it holds and what its open uploads have reserved
// (persistence.v1, section 9).
const usageOwed = `SELECT namespace, bytes, unknown, held + open, reserved, open FROM (
SELECT n.namespace, coalesce(u.bytes, 0) AS bytes, u.namespace IS NULL AS unknown, coalesce(u.reserved, 0) AS reserved,
coalesce((SELECT sum(length(r.payload)) FROM heads h CROSS JOIN revisions r INDEXED BY revisions_doc ON r.doc = h.doc
	WHERE h.namespace = n.namespace AND r.deleted = 0), 0)
+ coalesce((SELECT sum(size) FROM artifacts a WHERE a.namespace = n.namespace), 0) AS held,
coalesce((SELECT sum(size) FROM uploads p INDEXED BY uploads_reserved WHERE p.namespace = n.namespace AND p.closed IS NULL), 0) AS open
FROM (SELECT namespace FROM usage UNION SELECT namespace FROM heads UNION SELECT namespace FROM artifacts
	UNION SELECT namespace FROM uploads) n LEFT JOIN usage u ON u.namespace = n.namespace)`

// usage checks U4.
func (e *examination) usage() error {
	return e.each(usageOwed, func(r row) error {
		switch charged, owed := r.int(1), r.int(3); {
		case r.int(2) != 0:
			e.flaw(FlawUsage, "namespace "+r.text(0), "nothing is known of its usage, which is %d bytes", owed)
		case charged != owed:
			e.flaw(FlawUsage, "namespace "+r.text(0), "%d bytes are charged, and it holds or has reserved %d", charged, owed)
		case r.int(4) != r.int(5):
			e.flaw(FlawUsage, "namespace "+r.text(0), "%d bytes are taken for reserved, and its open uploads have reserved %d", r.int(4), r.int(5))
		}
		return nil
	})
}

// strayRecords finds idempotency records of no effect: a revision that never was, or nothing at all.
const strayRecords = `SELECT i.seq, i.namespace, i.id, i.revision, h.revision FROM idempotency i
LEFT JOIN heads h ON h.namespace = i.namespace AND h.id = i.id
WHERE i.id <> '' AND (h.revision IS NULL OR i.revision NOT BETWEEN 1 AND h.revision) OR i.id = '' AND i.value IS NULL ORDER BY i.seq`

// recordsInOrder are all idempotency records. One of format 1 has no checksum.
const recordsInOrder = "SELECT seq, namespace, key, at, fingerprint, id, revision, value, sum FROM idempotency ORDER BY seq"

// records checks that idempotency records are what was written, and that none promises what never happened.
func (e *examination) records() error {
	err := e.each(recordsInOrder, func(r row) error {
		out := persistence.Outcome{ID: r.text(5), Revision: r.int(6), Value: r.blob(7)}
		sum, summed := r[8].(int64)
		if summed && sum != recordSum(r.text(1), r.text(2), r.int(3), r.array(4), out) {
			e.flaw(FlawRecordDamaged, recordPlace(r), "it is not what was written: the checksum differs; a call with its key is refused")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.each(strayRecords, func(r row) error {
		where := recordPlace(r)
		switch {
		case r.text(2) == "":
			e.flaw(FlawRecord, where, "it records no result")
		case r[4] == nil:
			e.flaw(FlawRecord, where, "it records revision %d of document %s, which was never written", r.int(3), r.text(2))
		default:
			e.flaw(FlawRecord, where, "it records revision %d of document %s, whose newest is %d", r.int(3), r.text(2), r.int(4))
		}
		return nil
	})
}

// recordPlace names an idempotency record by its row, of which seq and namespace are the first columns.
func recordPlace(r row) string {
	return fmt.Sprintf("idempotency row %d, namespace %s", r.int(0), r.text(1))
}

// auditRows looks for rows of a writer that is not known, by leaps from writer to writer. The chains are verified by
// package audit.
func (e *examination) auditRows() error {
	for after := int64(-1); ; {
		var place int64
		found, err := e.c.one("SELECT place FROM audit_rows WHERE place > ? ORDER BY place LIMIT 1", func(r row) { place = r.int(0) }, after)
		if err != nil || !found {
			return err
		}
		writer := place >> positionBits
		known, err := e.c.number("SELECT count(*) FROM audit_writers WHERE number = ?", writer)
		if err != nil {
			return err
		}
		if known == 0 {
			e.flaw(FlawAudit, fmt.Sprintf("audit writer number %d", writer), "rows of it are there, and its name is lost")
		}
		after = (writer+1)<<positionBits - 1
	}
}
