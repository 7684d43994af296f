package sqlite_test

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// keepFormat makes TestKeepFormat write its files. See testdata/README.md.
var keepFormat = flag.Int("keep-format", 0, "write testdata/format`N`.db.gz and .json with a store of the present format")

// facts are what must be read back from a store that an earlier program wrote.
type facts struct {
	Documents []persistence.Document // every revision, by namespace and id
	Usage     map[string]int64
	Records   []fact
	Keys      []identity.Key
	Seals     []seal.Key
	Secret    []byte
	Held      []string                  // once-only ids
	Rows      map[string][]audit.Record // by writer
	Heads     []audit.Head
	Signer    ed25519.PublicKey // of the heads; kept beside the store

	// Since format 2.
	Artifacts  []persistence.Artifact `json:",omitempty"`
	Uploads    []persistence.Upload   `json:",omitempty"`
	Superseded []time.Time            `json:",omitempty"` // of the revisions of ns/plan that are not its head
}

// fact is an idempotency record.
type fact struct {
	Namespace, Key string
	Outcome        persistence.Outcome
}

// commit gives the commit that made the record: its fingerprint is of its names.
func (f fact) commit() persistence.Commit {
	return persistence.Commit{
		Namespace: f.Namespace, Key: f.Key, Fingerprint: sha256.Sum256([]byte(f.Namespace + "/" + f.Key)), Now: day,
		Seal: func(persistence.Outcome) audit.Row {
			return audit.Row(`{"namespace":"` + f.Namespace + `","key":"` + f.Key + `"}`)
		},
	}
}

// firstWrites and secondWrites are what the two processes write that leave a store of facts behind: a plan that was
// deleted and restored, one that stays deleted, references across namespaces with a duplicate, a tenant's namespace.
var (
	firstWrites = []persistence.Document{
		kept("ns", "plan", 1, `{"text":"first ä€😀"}`),
		kept("ns", "plan", 2, `[1,2.5,"\u0000"]`),
		kept("ns", "plan", 3, ""),
		kept("other", "x", 1, `null`),
		kept("t1:ns", "plan", 1, `"of a tenant"`),
		kept("ns", "gone", 1, `true`),
	}
	secondWrites = []persistence.Document{
		kept("ns", "plan", 4, `{"text":"restored"}`),
		kept("ns", "gone", 2, ""),
		kept("ns", "linked", 1, `{}`, "ns/plan@1", "other/x@1", "ns/plan@1"),
		kept("ns", "linked", 2, `{"n":2}`, "ns/plan@4"),
		kept("other", "linked", 1, `0`, "ns/plan@1"),
		kept("t1:ns", "linked", 1, `0`, "t1:ns/plan@1"),
		kept("ns", "Linked", 1, `0`, "ns/plan@1"),
	}
)

// kept is a revision; an empty payload makes a tombstone. References are written namespace/id@revision.
func kept(namespace, id string, revision int64, payload string, refs ...string) persistence.Document {
	d := persistence.Document{
		Namespace: namespace, ID: id, Kind: "note", SchemaVersion: fmt.Sprint(revision), Revision: revision, CreatedAt: day,
		UpdatedAt: day.Add(time.Duration(revision) * time.Minute), Deleted: payload == "", Payload: []byte(payload),
	}
	for _, ref := range refs {
		r := persistence.Ref{Type: persistence.RefDocument}
		at := bytes.IndexByte([]byte(ref), '/')
		r.Namespace = ref[:at]
		r.ID, r.Revision = ref[at+1:len(ref)-2], int64(ref[len(ref)-1]-'0')
		d.References = append(d.References, r)
	}
	return d
}

// fillWith writes documents, each under a key of its own.
func fillWith(t *testing.T, s *sqlite.Store, docs []persistence.Document) {
	for _, d := range docs {
		f := fact{Namespace: d.Namespace, Key: fmt.Sprintf("%s@%d", d.ID, d.Revision)}
		_, err := s.Update(t.Context(), f.commit(), func(tx persistence.Tx) (persistence.Outcome, error) {
			return persistence.Outcome{ID: d.ID, Revision: d.Revision}, tx.PutRevision(&d)
		})
		no(t, err)
	}
}

// no fails on an error.
func no(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// twoProcesses fills a data folder as two processes do, one after the other, and gives the key that signed for both.
func twoProcesses(t *testing.T, dir string) ed25519.PublicKey {
	signer, err := audit.OpenSigner(t.TempDir(), rand.Reader)
	no(t, err)
	for i, docs := range [][]persistence.Document{firstWrites, secondWrites} {
		s, err := sqlite.Open(t.Context(), dir, sqlite.Options{Clock: clock.NewManual(day)})
		no(t, err)
		fillWith(t, s, docs)
		key := identity.Key{
			ID: fmt.Sprint("key", i), User: "ana", Hint: fmt.Sprint("hint", i), Digest: sha256.Sum256([]byte{byte(i)}),
			Roles: []string{"writer"}, CreatedAt: day.Add(time.Duration(i)),
		}
		no(t, s.AddKey(t.Context(), key, 9, day, []byte(`{"key":"added"}`)))
		no(t, s.AddSealKey(t.Context(), seal.Key{ID: uint32(i + 1), Secret: sha256.Sum256([]byte("seal")), Created: day}, time.Time{}))
		_, err = s.Secret(t.Context(), "secret", 32)
		no(t, err)
		_, err = s.Once(t.Context(), fmt.Sprint("once", i), day.Add(time.Hour))
		no(t, err)
		h, err := s.AuditHead(t.Context())
		no(t, err)
		h.At = day
		signer.Sign(&h)
		no(t, s.AddAuditHead(t.Context(), h))
		if i == 1 {
			no(t, s.UpdateKey(t.Context(), "key0", nil, func(k *identity.Key) error { k.RevokedAt = day; return nil }))
			f := fact{Namespace: "ns", Key: "value"}
			_, err = s.Update(t.Context(), f.commit(), func(persistence.Tx) (persistence.Outcome, error) {
				return persistence.Outcome{Value: []byte(`{"ok":true}`)}, nil
			})
			no(t, err)
		}
		no(t, s.Close())
	}
	return signer.Public()
}

// fillArtifacts adds what format 2 brought: an upload that is open, one that is received, one with its artifact and one
// whose artifact is purged; and a purged revision.
func fillArtifacts(t *testing.T, s *sqlite.Store) {
	for i, last := range uploadEnds {
		id := fmt.Sprint("upload", i)
		u := &persistence.Upload{
			Namespace: "ns", ID: id, ArtifactID: "of-" + id, Owner: "ana", MimeType: "image/png", Size: int64(100 + i),
			Hash: sha256.Sum256([]byte(id)), Provenance: []byte(`{"tool":"capture"}`), ExpiresAt: day.Add(time.Hour),
			State: persistence.UploadPending,
		}
		_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, func(tx persistence.Tx) (o persistence.Outcome, err error) {
			return o, takeUpload(tx, u, last)
		})
		no(t, err)
	}
	_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, func(tx persistence.Tx) (o persistence.Outcome, err error) {
		return o, tx.PurgeRevision("ns", "plan", 3)
	})
	no(t, err)
}

// uploadEnds are the states in which the uploads of fillArtifacts are left.
var uploadEnds = []persistence.UploadState{
	persistence.UploadPending, persistence.UploadReceived, persistence.UploadCommitted, persistence.UploadPurged,
}

// takeUpload brings a new upload to a state of uploadEnds.
func takeUpload(tx persistence.Tx, u *persistence.Upload, last persistence.UploadState) error {
	err := tx.PutUpload(u)
	if err != nil || last == persistence.UploadPending {
		return err
	}
	err = tx.MoveUpload("ns", u.ID, persistence.UploadReceived, day)
	if err != nil || last == persistence.UploadReceived {
		return err
	}
	err = errors.Join(tx.MoveUpload("ns", u.ID, persistence.UploadCommitted, day), tx.PutArtifact(&persistence.Artifact{
		Namespace: "ns", ID: u.ArtifactID, MimeType: u.MimeType, Size: u.Size, Hash: u.Hash, CreatedAt: day, Provenance: u.Provenance,
	}))
	if err != nil || last == persistence.UploadCommitted {
		return err
	}
	return tx.PurgeArtifact("ns", u.ArtifactID)
}

// readArtifacts reads what fillArtifacts wrote.
func readArtifacts(t *testing.T, s *sqlite.Store, f *facts) {
	no(t, s.View(t.Context(), func(r persistence.Reader) error {
		for i := range uploadEnds {
			u, ok, err := r.Upload("ns", fmt.Sprint("upload", i))
			if err != nil || !ok {
				return errors.Join(err, fmt.Errorf("upload %d is gone", i))
			}
			f.Uploads = append(f.Uploads, *u)
			a, ok, err := r.Artifact("ns", u.ArtifactID)
			no(t, err)
			if ok {
				f.Artifacts = append(f.Artifacts, *a)
			}
		}
		for n := range int64(4) {
			at, ok, err := r.Superseded("ns", "plan", n)
			no(t, err)
			if ok {
				f.Superseded = append(f.Superseded, at)
			}
		}
		return nil
	}))
}

// readFacts reads from a store what facts hold, of format 1.
func readFacts(t *testing.T, s *sqlite.Store) (f facts) {
	f.Usage = map[string]int64{}
	no(t, s.View(t.Context(), func(r persistence.Reader) error {
		for _, namespace := range []string{"ns", "other", "t1:ns"} {
			heads, _, err := r.Heads(namespace, persistence.HeadFilter{IncludeDeleted: true, Limit: 100})
			no(t, err)
			for _, h := range heads {
				docs, _, err := r.Revisions(namespace, h.ID, 0, 100, 0)
				no(t, err)
				for _, d := range docs {
					f.Documents = append(f.Documents, *d)
				}
			}
			f.Usage[namespace], err = r.Usage(namespace, day)
			no(t, err)
		}
		return nil
	}))
	for _, d := range f.Documents {
		f.Records = append(f.Records, fact{Namespace: d.Namespace, Key: fmt.Sprintf("%s@%d", d.ID, d.Revision)})
	}
	f.Records = append(f.Records, fact{Namespace: "ns", Key: "value"})
	for i := range f.Records {
		out, err := s.Update(t.Context(), f.Records[i].commit(), func(persistence.Tx) (persistence.Outcome, error) {
			return persistence.Outcome{}, fmt.Errorf("the record %v is gone", f.Records[i])
		})
		no(t, err)
		f.Records[i].Outcome = out
	}
	var err error
	f.Keys, err = s.ListKeys(t.Context())
	no(t, err)
	f.Seals, err = s.SealKeys(t.Context())
	no(t, err)
	f.Secret, err = s.Secret(t.Context(), "secret", 32)
	no(t, err)
	for _, id := range []string{"once0", "once1"} {
		if first, err := s.Once(t.Context(), id, day.Add(time.Hour)); err != nil || first {
			t.Errorf("the once-only id %s is free (%v)", id, err)
		}
		f.Held = append(f.Held, id)
	}
	f.Rows, f.Heads = trail(t, s)
	return f
}

// trail reads the audit chains of all writers.
func trail(t *testing.T, s *sqlite.Store) (rows map[string][]audit.Record, heads []audit.Head) {
	writers, err := s.AuditWriters(t.Context())
	no(t, err)
	rows = map[string][]audit.Record{}
	for _, w := range writers {
		rows[w], err = s.AuditRows(t.Context(), w, 0, 1000)
		no(t, err)
	}
	heads, err = s.AuditHeads(t.Context())
	no(t, err)
	return rows, heads
}

// text is f for comparing and keeping.
func (f facts) text(t *testing.T) []byte {
	text, err := json.MarshalIndent(f, "", " ")
	no(t, err)
	return append(text, '\n')
}

// TestKeepFormat writes the files of testdata. Without its flag it fills a store and reads it back, so that the next
// file can be made.
func TestKeepFormat(t *testing.T) {
	dir := t.TempDir()
	signer := twoProcesses(t, dir)
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{Clock: clock.NewManual(day)})
	no(t, err)
	fillArtifacts(t, s)
	no(t, s.Close()) // writes the log back
	db, err := os.ReadFile(filepath.Join(dir, "tabellion.db"))
	no(t, err)
	s = openAt(t, dir, sqlite.Options{Clock: clock.NewManual(day)})
	f := readFacts(t, s)
	f.Signer = signer
	readArtifacts(t, s, &f)
	if len(f.Documents) != len(firstWrites)+len(secondWrites)-1 || len(f.Rows) != 2 || len(f.Artifacts) != 1 || len(f.Superseded) != 2 {
		t.Errorf("%d revisions, %d writers, %d artifacts, %d superseded", len(f.Documents), len(f.Rows), len(f.Artifacts), len(f.Superseded))
	}
	if *keepFormat == 0 {
		return
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	no(t, err)
	_, err = z.Write(db)
	no(t, err)
	no(t, z.Close())
	name := filepath.Join("testdata", fmt.Sprint("format", *keepFormat))
	no(t, os.WriteFile(name+".db.gz", packed.Bytes(), 0o644))
	no(t, os.WriteFile(name+".json", f.text(t), 0o644))
}

// unpack puts the kept database of a format into a new data folder.
func unpack(t *testing.T, format int) (dir string) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", fmt.Sprintf("format%d.db.gz", format)))
	no(t, err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	no(t, err)
	db, err := io.ReadAll(z)
	no(t, err)
	dir = t.TempDir()
	no(t, os.WriteFile(filepath.Join(dir, "tabellion.db"), db, 0o600))
	return dir
}
