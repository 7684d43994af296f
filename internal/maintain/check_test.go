package maintain_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// damage is one way to damage a folder, and the finding that names it.
type damage struct {
	name string
	do   func(t *testing.T, h *healthy, dir string)
	kind string
	// where is a part of Finding.Where; it may hold the ids of the folder, see place.
	where   string
	repair  bool // Repair brings a clean folder back
	leaving bool // not damage, a leftover
	beside  bool // a backup needs nothing of it
}

// sqlDamage damages by statements.
func sqlDamage(statements ...string) func(*testing.T, *healthy, string) {
	return func(t *testing.T, _ *healthy, dir string) { damageSQL(t, dir, statements...) }
}

// place fills the ids of the folder into a where.
func (h *healthy) place(where string) string {
	sum := sha256.Sum256(h.aloneBytes)
	return strings.NewReplacer("{cited}", h.cited, "{alone}", h.alone, "{received}", h.received, "{pending}", h.pending,
		"{digest}", hex.EncodeToString(sum[:])).Replace(where)
}

// damages are those of the database, of the bytes, of the audit trail, and leftovers.
var damages = []damage{
	{name: "payload", kind: "revision-damaged", where: "ns/plan@1",
		do: sqlDamage(`UPDATE revisions SET payload = CAST('{"text":"fIrst"}' AS BLOB) WHERE revision = 1 AND doc = (SELECT doc FROM heads WHERE namespace = 'ns' AND id = 'plan')`)},
	{name: "kind of a revision", kind: "revision-damaged", where: "other/linked@1",
		do: sqlDamage(`UPDATE revisions SET kind = 'nite' WHERE doc = (SELECT doc FROM heads WHERE namespace = 'other' AND id = 'linked')`)},
	{name: "references of a revision", kind: "revision-damaged", where: "ns/late@1",
		do: sqlDamage(`UPDATE revisions SET refs = x'5b5d' WHERE doc = (SELECT doc FROM heads WHERE namespace = 'ns' AND id = 'late')`)},
	{name: "row of a document in the place of another", kind: "revision-damaged", where: "ns/back@1",
		do: sqlDamage(`UPDATE revisions SET payload = x'37' WHERE revision = 1 AND doc = (SELECT doc FROM heads WHERE namespace = 'ns' AND id = 'back')`)},
	{name: "head deleted by a flipped bit", kind: "head-wrong", where: "ns/plan", repair: true,
		do: sqlDamage(`UPDATE heads SET deleted = 1 WHERE namespace = 'ns' AND id = 'plan'`)},
	{name: "head at an older revision", kind: "head-wrong", where: "ns/back", repair: true,
		do: sqlDamage(`UPDATE heads SET revision = 1, seq = doc WHERE namespace = 'ns' AND id = 'back'`)},
	{name: "kind of a head", kind: "head-wrong", where: "acme:ns/plan", repair: true,
		do: sqlDamage(`UPDATE heads SET kind = 'x' WHERE namespace = 'acme:ns' AND id = 'plan'`)},
	{name: "number of a head", kind: "head-wrong", where: "ns/plan", repair: true,
		do: sqlDamage(`UPDATE heads SET revision = 7 WHERE namespace = 'ns' AND id = 'plan'`)},
	{name: "newest revision lost", kind: "head-lost", where: "ns/back@3",
		do: sqlDamage(`DELETE FROM revisions WHERE revision = 3 AND doc = (SELECT doc FROM heads WHERE namespace = 'ns' AND id = 'back')`)},
	{name: "head lost", kind: "revision-orphan", where: "revisions row",
		do: sqlDamage(`DELETE FROM heads WHERE namespace = 'ns' AND id = 'gone'`)},
	{name: "cited artifact lost", kind: "reference-broken", where: "ns/plan@1",
		do: sqlDamage(`DELETE FROM artifacts WHERE id = (SELECT id FROM inbound WHERE type = 'artifact' LIMIT 1)`)},
	{name: "cited revision lost", kind: "reference-broken", where: "other/linked@1",
		do: sqlDamage(`DELETE FROM revisions WHERE revision = 1 AND doc = (SELECT doc FROM heads WHERE namespace = 'ns' AND id = 'plan')`)},
	{name: "inbound reference lost", kind: "inbound-missing", where: "other/linked@1", repair: true,
		do: sqlDamage(`DELETE FROM inbound WHERE source_namespace = 'other'`)},
	{name: "inbound reference too many", kind: "inbound-extra", where: "ns/late@1", repair: true,
		do: sqlDamage(`INSERT INTO inbound SELECT namespace, id, type, 9, source_namespace, source_id, source_revision, source FROM inbound WHERE source_id = 'late' AND type = 'document'`)},
	{name: "inbound reference of nobody", kind: "inbound-extra", where: "ns/nobody@4", repair: true,
		do: sqlDamage(`INSERT INTO inbound VALUES ('ns', 'plan', 'document', 1, 'ns', 'nobody', 4, 4711)`)},
	{name: "usage", kind: "usage-wrong", where: "namespace other", repair: true,
		do: sqlDamage(`UPDATE usage SET bytes = bytes + 1 WHERE namespace = 'other'`)},
	{name: "usage lost", kind: "usage-wrong", where: "namespace ns", repair: true,
		do: sqlDamage(`DELETE FROM usage WHERE namespace = 'ns'`)},
	{name: "reserved bytes lost", kind: "usage-wrong", where: "namespace ns", repair: true,
		do: sqlDamage(`UPDATE usage SET reserved = 0 WHERE namespace = 'ns'`)},
	{name: "reserved bytes too many", kind: "usage-wrong", where: "namespace other", repair: true,
		do: sqlDamage(`UPDATE usage SET reserved = reserved + 1000000 WHERE namespace = 'other'`)},
	{name: "time of a purged revision lost", kind: "revision-superseded", where: "ns/plan@1",
		do: sqlDamage(`UPDATE revisions SET superseded = NULL WHERE superseded IS NOT NULL`)},
	{name: "time of a purged revision too early", kind: "revision-superseded", where: "ns/plan@1",
		do: sqlDamage(`UPDATE revisions SET superseded = updated - 1 WHERE superseded IS NOT NULL`)},
	{name: "time of a purged revision too late", kind: "revision-superseded", where: "ns/plan@1",
		do: sqlDamage(`UPDATE revisions SET superseded = superseded + 1000000000 WHERE superseded IS NOT NULL`)},
	{name: "time of a revision that is there", kind: "revision-superseded", where: "ns/back@1",
		do: sqlDamage(`UPDATE revisions SET superseded = updated WHERE revision = 1 AND doc = (SELECT doc FROM heads WHERE namespace = 'ns' AND id = 'back')`)},
	{name: "time after the newest revision", kind: "revision-superseded", where: "ns/late@1",
		do: sqlDamage(`UPDATE revisions SET superseded = updated WHERE doc = (SELECT doc FROM heads WHERE namespace = 'ns' AND id = 'late')`)},
	{name: "revision lost in the middle", kind: "revision-superseded", where: "ns/back@1",
		do: sqlDamage(`DELETE FROM revisions WHERE revision = 2 AND doc = (SELECT doc FROM heads WHERE namespace = 'ns' AND id = 'back')`)},
	{name: "trigger", kind: "schema-changed", where: "trigger x",
		do: sqlDamage(`CREATE TRIGGER x AFTER INSERT ON audit_rows BEGIN DELETE FROM audit_rows WHERE place = new.place; END`)},
	{name: "index dropped", kind: "schema-changed", where: "index uploads_owner", do: sqlDamage(`DROP INDEX uploads_owner`)},
	{name: "index dropped that the check needs", kind: "schema-changed", where: "index artifacts_digest", do: sqlDamage(`DROP INDEX artifacts_digest`)},
	{name: "index not unique any more", kind: "schema-changed", where: "index revisions_doc",
		do: sqlDamage(`DROP INDEX revisions_doc; CREATE INDEX revisions_doc ON revisions (doc, revision)`)},
	{name: "column too many", kind: "schema-changed", where: "table secrets", do: sqlDamage(`ALTER TABLE secrets ADD COLUMN more TEXT`)},
	{name: "table lost", kind: "schema-changed", where: "table uploads", do: sqlDamage(`DROP TABLE uploads`)},
	{name: "artifact row", kind: "artifact-damaged", where: "ns/{cited}",
		do: sqlDamage(`UPDATE artifacts SET mime_type = 'text/html' WHERE id IN (SELECT id FROM inbound WHERE type = 'artifact')`)},
	{name: "upload row", kind: "upload-damaged", where: "ns/{pending}",
		do: sqlDamage(`UPDATE uploads SET owner = 'user:eve'`)},
	{name: "committed artifact lost", kind: "artifact-missing", where: "ns/{alone}",
		do: func(t *testing.T, h *healthy, dir string) {
			damageSQL(t, dir, `DELETE FROM artifacts WHERE id = '`+h.alone+`'`)
		}},
	{name: "artifact of an open upload", kind: "upload-state", where: "ns/{pending}",
		do: func(t *testing.T, h *healthy, dir string) {
			inStore(t, dir, persistence.Outcome{}, "", func(tx persistence.Tx) error {
				return tx.PutArtifact(&persistence.Artifact{
					Namespace: "ns", ID: h.pendingArtifact, MimeType: "text/plain", Size: int64(len(h.aloneBytes)), Hash: sha256.Sum256(h.aloneBytes), CreatedAt: day,
				})
			})
		}},
	{name: "record of a document that never was", kind: "idempotency-stray", where: "namespace ns",
		do: func(t *testing.T, h *healthy, dir string) {
			inStore(t, dir, persistence.Outcome{ID: "never", Revision: 1}, "k1", func(persistence.Tx) error { return nil })
		}},
	{name: "record of a revision that never was", kind: "idempotency-stray", where: "namespace ns",
		do: func(t *testing.T, h *healthy, dir string) {
			inStore(t, dir, persistence.Outcome{ID: "plan", Revision: 9}, "k1", func(persistence.Tx) error { return nil })
		}},
	{name: "result of a record", kind: "idempotency-damaged", where: "namespace ns",
		do: sqlDamage(`UPDATE idempotency SET value = CAST(replace(CAST(value AS TEXT), 'text/plain', 'text/pwned') AS BLOB) WHERE value IS NOT NULL`)},
	{name: "revision of a record", kind: "idempotency-damaged", where: "namespace ns",
		do: sqlDamage(`UPDATE idempotency SET revision = revision + 1 WHERE namespace = 'ns' AND seq = (SELECT max(seq) FROM idempotency)`)},
	{name: "fingerprint of a record", kind: "idempotency-damaged", where: "namespace late", do: sqlDamage(`UPDATE idempotency SET fingerprint = zeroblob(32)`)},
	{name: "row of the audit trail", kind: "audit-damaged", where: "position 3",
		do: sqlDamage(`UPDATE audit_rows SET row = CAST(replace(row, 'user:ana', 'user:eve') AS BLOB) WHERE (place & 0xffffffffff) = 3 AND place >> 40 = 1`)},
	{name: "audit rows cut out", kind: "audit-damaged", where: "position 4",
		do: sqlDamage(`DELETE FROM audit_rows WHERE (place & 0xffffffffff) = 4 AND place >> 40 = 1`)},
	{name: "audit rows cut off", kind: "audit-damaged", where: "writer ",
		do: sqlDamage(`DELETE FROM audit_rows WHERE place = (SELECT max(place) FROM audit_rows)`)},
	{name: "audit writer lost", kind: "audit-damaged", where: "writer number 1",
		do: sqlDamage(`DELETE FROM audit_writers WHERE number = 1`)},
	{name: "signature of the audit trail", kind: "audit-damaged", where: "writer ",
		do: sqlDamage(`UPDATE audit_heads SET signature = zeroblob(64)`)},
	{name: "audit key lost", kind: "audit-key", where: "audit.key",
		do: func(t *testing.T, _ *healthy, dir string) { no(t, os.Remove(filepath.Join(dir, "audit.key"))) }},
	{name: "index", kind: "index-damaged", where: "heads_live", repair: true, do: loseFromIndex},
	{name: "page of the database", kind: "database-damaged", where: "", do: smashPages},
	{name: "header of the database", kind: "database-damaged", where: "tabellion.db",
		do: func(t *testing.T, _ *healthy, dir string) {
			overwrite(t, filepath.Join(dir, "tabellion.db"), 0, "no database")
		}},
	{name: "bytes missing", kind: "blob-missing", where: "ns/{alone}, file",
		do: func(t *testing.T, h *healthy, dir string) { no(t, os.Remove(blobFile(dir, h.aloneBytes))) }},
	{name: "bytes cut", kind: "blob-size", where: "{digest}",
		do: func(t *testing.T, h *healthy, dir string) { no(t, os.Truncate(blobFile(dir, h.aloneBytes), 3)) }},
	{name: "bytes flipped", kind: "blob-damaged", where: "ns/{alone}, file",
		do: func(t *testing.T, h *healthy, dir string) { overwrite(t, blobFile(dir, h.aloneBytes), 4, "X") }},
	{name: "folder of bytes linked", kind: "blob-linked", where: "ns/{alone}, file",
		do: func(t *testing.T, h *healthy, dir string) { link(t, filepath.Dir(blobFile(dir, h.aloneBytes))) }},
	{name: "folder of bytes received linked", kind: "blob-linked", where: "ns/{received}, file",
		do: func(t *testing.T, h *healthy, dir string) { link(t, filepath.Dir(blobFile(dir, h.receivedBytes))) }},
	{name: "link of no folder of bytes in use", kind: "blob-linked", where: "file blobs/ab", beside: true,
		do: func(t *testing.T, _ *healthy, dir string) {
			no(t, os.Symlink(t.TempDir(), filepath.Join(dir, "blobs", "ab")))
		}},
	{name: "bytes received missing", kind: "upload-bytes", where: "ns/{received}", repair: true,
		do: func(t *testing.T, h *healthy, dir string) { no(t, os.Remove(blobFile(dir, h.receivedBytes))) }},
	{name: "bytes received flipped", kind: "upload-bytes", where: "ns/{received}", repair: true,
		do: func(t *testing.T, h *healthy, dir string) { overwrite(t, blobFile(dir, h.receivedBytes), 0, "R") }},
	{name: "bytes nobody needs", kind: "blob-unneeded", where: "file ", repair: true, leaving: true,
		do: func(t *testing.T, h *healthy, dir string) {
			f, err := blob.OpenFolder(filepath.Join(dir, "blobs"), blob.FolderOptions{})
			no(t, err)
			b, err := f.Create(t.Context())
			no(t, err)
			_, err = b.Write([]byte("nobody needs this"))
			no(t, err)
			no(t, b.Keep(t.Context()))
			no(t, f.Close())
		}},
	{name: "part of a transfer", kind: "part-left", where: "incoming/x", repair: true, leaving: true,
		do: func(t *testing.T, _ *healthy, dir string) {
			no(t, os.WriteFile(filepath.Join(dir, "blobs", "incoming", "x"), nil, 0o600))
		}},
	{name: "foreign file", kind: "foreign-file", where: "blobs/ab/notes.txt", leaving: true,
		do: func(t *testing.T, _ *healthy, dir string) {
			no(t, os.MkdirAll(filepath.Join(dir, "blobs", "ab"), 0o700))
			no(t, os.WriteFile(filepath.Join(dir, "blobs", "ab", "notes.txt"), []byte("mine"), 0o600))
		}},
}

// overwrite writes text into a file.
func overwrite(t *testing.T, name string, at int64, text string) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	no(t, err)
	_, err = f.WriteAt([]byte(text), at)
	no(t, err)
	no(t, f.Close())
}

// link moves a folder, or a file, elsewhere and leaves a link to it.
func link(t *testing.T, folder string) {
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	no(t, os.Rename(folder, elsewhere))
	no(t, os.Symlink(elsewhere, folder))
}

// loseFromIndex changes a table while the schema does not know of one of its indexes.
func loseFromIndex(t *testing.T, _ *healthy, dir string) {
	damageSQL(t, dir,
		`PRAGMA writable_schema=1; CREATE TABLE kept AS SELECT * FROM sqlite_schema WHERE name = 'heads_live'; DELETE FROM sqlite_schema WHERE name = 'heads_live'`,
		`UPDATE heads SET deleted = 0 WHERE id = 'gone'; `,
		`PRAGMA writable_schema=1; INSERT INTO sqlite_schema SELECT * FROM kept; DROP TABLE kept`,
		`UPDATE heads NOT INDEXED SET deleted = deleted WHERE 0`)
}

// smashPages overwrites the last page of the file, which is some table's or index's.
func smashPages(t *testing.T, _ *healthy, dir string) {
	name := filepath.Join(dir, "tabellion.db")
	info, err := os.Stat(name)
	no(t, err)
	overwrite(t, name, info.Size()-4096, strings.Repeat("smashed ", 512))
}

// checked checks a folder whole.
func checked(t *testing.T, dir string) *maintain.CheckReport {
	t.Helper()
	r, err := maintain.Check(t.Context(), dir, maintain.CheckOptions{ReadData: true})
	no(t, err)
	return r
}

// lines are findings for a message.
func lines(found []maintain.Finding) string {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "\n  %s", f)
	}
	return b.String()
}

// named tells whether a finding is among those of a report.
func named(found []maintain.Finding, kind, where string) bool {
	for _, f := range found {
		if f.Kind == kind && strings.Contains(f.Where, where) {
			return true
		}
	}
	return false
}

// TestPlantedDamage: each damage is found and named, no finding is there without it, and what can be repaired is.
func TestPlantedDamage(t *testing.T) {
	h := twoLives(t)
	if r := checked(t, h.dir); len(r.Findings) != 0 {
		t.Fatalf("a healthy folder has findings:%s", lines(r.Findings))
	}
	kinds := map[string]bool{}
	for _, d := range damages {
		kinds[d.kind] = true
		t.Run(d.name, func(t *testing.T) {
			dir := copyTree(t, h.dir)
			d.do(t, &h, dir)
			r := checked(t, dir)
			if !named(r.Findings, d.kind, h.place(d.where)) {
				t.Fatalf("no finding %s at %q, but:%s", d.kind, h.place(d.where), lines(r.Findings))
			}
			t.Log(lines(r.Findings))
			if r.Damaged() == d.leaving {
				t.Errorf("Damaged() is %v", r.Damaged())
			}
			repaired(t, &h, d, dir)
		})
	}
	if len(damages) < 20 || len(kinds) < 10 {
		t.Errorf("%d damages of %d kinds were planted; wanted are 20 of 10", len(damages), len(kinds))
	}
}

// repaired repairs a damaged folder, dry first, which must change nothing.
func repaired(t *testing.T, h *healthy, d damage, dir string) {
	before := fingerprint(t, dir)
	dry, err := maintain.Repair(t.Context(), dir, maintain.RepairOptions{DryRun: true})
	no(t, err)
	if after := fingerprint(t, dir); after != before {
		t.Errorf("a dry run changed the folder:\n%s\n%s", before, after)
	}
	r, err := maintain.Repair(t.Context(), dir, maintain.RepairOptions{})
	no(t, err)
	if !d.repair {
		if !named(r.Left, d.kind, h.place(d.where)) && d.name != "bytes flipped" { // seen with ReadData only
			t.Errorf("what cannot be repaired is not left, but:%s", lines(r.Left))
		}
		return
	}
	for _, done := range [][]maintain.Finding{dry.Done, r.Done} {
		if !named(done, d.kind, h.place(d.where)) {
			t.Errorf("%s was not repaired, but:%s", d.kind, lines(done))
		}
	}
	if len(r.Left) != 0 {
		t.Errorf("left after the repair:%s", lines(r.Left))
	}
	if now := checked(t, dir); len(now.Findings) != 0 {
		t.Errorf("after the repair:%s", lines(now.Findings))
	}
	if again, err := maintain.Repair(t.Context(), dir, maintain.RepairOptions{}); err != nil || len(again.Done)+len(again.Left) != 0 || again.Copy != "" {
		t.Errorf("a second repair: %+v, %v", again, err)
	}
}

// fingerprint is every file of a folder, but the lock, by name and digest.
func fingerprint(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	no(t, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "tabellion.lock" {
			return err
		}
		if e.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(name)
			fmt.Fprintf(&b, "%s -> %s\n", strings.TrimPrefix(name, dir), to)
			return err
		}
		text, err := os.ReadFile(name)
		fmt.Fprintf(&b, "%s %x\n", strings.TrimPrefix(name, dir), sha256.Sum256(text))
		return err
	}))
	return b.String()
}

// TestCheckChangesNothing: also of a folder whose server was killed, with a log that is not written back.
func TestCheckChangesNothing(t *testing.T) {
	w := openWorld(t, t.TempDir(), clock.NewManual(day))
	w.commit("ns", []byte("some bytes"))
	w.put(w.ana, "ns", "plan", 0, "in the log")
	killed := copyTree(t, w.dir)
	w.close()
	no(t, os.RemoveAll(filepath.Join(killed, "tabellion.db-shm"))) // it is the kernel's, a copy of it is nothing
	if info, err := os.Stat(filepath.Join(killed, "tabellion.db-wal")); err != nil || info.Size() == 0 {
		t.Fatalf("the killed folder has no log: %v", err)
	}
	before := fingerprint(t, killed)
	r := checked(t, killed)
	if len(r.Findings) != 0 || r.Documents != 1 || r.Artifacts != 1 || r.Blobs != 1 || r.DataBytes != 10 {
		t.Errorf("report: %+v", r)
	}
	if after := fingerprint(t, killed); after != before {
		t.Errorf("the check changed the folder:\n%s\n%s", before, after)
	}
}

// TestCheckRefuses: a folder that a server has, one without a store, and what is a newer format.
func TestCheckRefuses(t *testing.T) {
	w := openWorld(t, t.TempDir(), clock.NewManual(day))
	_, err := maintain.Check(t.Context(), w.dir, maintain.CheckOptions{})
	wantIs(t, err, sqlite.ErrLocked)
	_, err = maintain.Repair(t.Context(), w.dir, maintain.RepairOptions{})
	wantIs(t, err, sqlite.ErrLocked)
	w.close()
	empty := t.TempDir()
	_, err = maintain.Check(t.Context(), empty, maintain.CheckOptions{})
	wantIs(t, err, fs.ErrNotExist)
	if _, err := os.Stat(filepath.Join(empty, "tabellion.db")); err == nil {
		t.Error("the check made a database")
	}
	damageSQL(t, w.dir, "PRAGMA user_version=99")
	_, err = maintain.Check(t.Context(), w.dir, maintain.CheckOptions{})
	wantIs(t, err, sqlite.ErrNewerFormat)
}

// TestEveryFlippedBit: one flipped bit in each of 200 blobs, 200 named; and a subset reads a part.
func TestEveryFlippedBit(t *testing.T) {
	const n = 200
	dir := t.TempDir()
	f, err := blob.OpenFolder(filepath.Join(dir, "blobs"), blob.FolderOptions{Durability: persistence.FileSync})
	no(t, err)
	var artifacts []*persistence.Artifact
	for i := range n {
		body := bytes.Repeat([]byte{byte(i)}, 100+i)
		b, err := f.Create(t.Context())
		no(t, err)
		_, err = b.Write(body)
		no(t, err)
		no(t, b.Keep(t.Context()))
		artifacts = append(artifacts, &persistence.Artifact{
			Namespace: "ns", ID: fmt.Sprintf("a%03d", i), MimeType: "text/plain", Size: int64(len(body)), Hash: b.Sum(), CreatedAt: day,
		})
	}
	inStore(t, dir, persistence.Outcome{}, "", func(tx persistence.Tx) error {
		for _, a := range artifacts {
			if err := tx.PutArtifact(a); err != nil {
				return err
			}
		}
		return nil
	})
	if r := checked(t, dir); len(r.Findings) != 0 || r.Blobs != n {
		t.Fatalf("before: %d blobs%s", r.Blobs, lines(r.Findings))
	}
	for i, a := range artifacts {
		text, err := os.ReadFile(f.Path(a.Hash))
		no(t, err)
		text[i%len(text)] ^= 1 << (i % 8)
		no(t, os.WriteFile(f.Path(a.Hash), text, 0o600))
	}
	no(t, f.Close())
	r := checked(t, dir)
	for _, a := range artifacts {
		if !named(r.Findings, maintain.KindBlobDamaged, "ns/"+a.ID+", file "+f.Path(a.Hash)) {
			t.Errorf("the damage of %s is not named", a.ID)
		}
	}
	if len(r.Findings) != n {
		t.Errorf("%d findings", len(r.Findings))
	}
	part, err := maintain.Check(t.Context(), dir, maintain.CheckOptions{ReadData: true, Subset: 0.2})
	no(t, err)
	if got := len(part.Findings); got == 0 || got > n/2 {
		t.Errorf("a fifth of the bytes was to be read, and %d of %d damages were found", got, n)
	}
}
