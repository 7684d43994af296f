package maintain_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// day is when the tests begin.
var day = time.Date(2042, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a server on a data folder, with everything that a real one has there.
type world struct {
	t        *testing.T
	dir      string
	store    *sqlite.Store
	blobs    *blob.Folder
	recorder *audit.Recorder
	server   *inproc.Server
	clock    clock.Clock
	ana      *identity.Principal
}

// openWorld starts a server on dir.
func openWorld(t *testing.T, dir string, c clock.Clock) *world {
	t.Helper()
	w := &world{t: t, dir: dir, clock: c, ana: inproc.Principal("ana")}
	var err error
	w.store, err = sqlite.Open(t.Context(), dir, sqlite.Options{Clock: c})
	no(t, err)
	w.blobs, err = blob.OpenFolder(filepath.Join(dir, "blobs"), blob.FolderOptions{})
	no(t, err)
	signer, err := audit.OpenSigner(dir, rand.Reader)
	no(t, err)
	w.recorder, err = audit.NewRecorder(audit.RecorderConfig{
		Log: w.store, Dir: dir, Signer: signer, Clock: c, Logger: slog.New(slog.DiscardHandler),
	})
	no(t, err)
	keep := time.Duration(0)
	w.server = inproc.New(t, inproc.Config{
		Store: w.store, Blobs: w.blobs, Clock: c, Keep: &keep, Open: true, Auditor: w.recorder,
	})
	return w
}

// close ends the server.
func (w *world) close() {
	w.t.Helper()
	no(w.t, w.recorder.Close(context.WithoutCancel(w.t.Context())))
	no(w.t, w.blobs.Close())
	no(w.t, w.store.Close())
}

// no fails on an error.
func no(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call runs a tool and gives its answer; an error of the tool is one.
func (w *world) call(who *identity.Principal, tool string, args any) (map[string]any, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	a, err := w.server.CallAs(w.t.Context(), who, "persistence."+tool, text)
	switch {
	case err != nil:
		return nil, err
	case a.IsError || a.RPC != nil:
		return nil, fmt.Errorf("%s %s: %s %v", tool, text, a.Text, a.RPC)
	}
	object, _ := a.Structured.(map[string]any)
	return object, nil
}

// must is call for what has to work.
func (w *world) must(who *identity.Principal, tool string, args any) map[string]any {
	w.t.Helper()
	got, err := w.call(who, tool, args)
	no(w.t, err)
	return got
}

// obj is an object of JSON.
type obj = map[string]any

// keys makes idempotency keys.
func key() string { return rand.Text() }

// put writes a revision behind expected.
func (w *world) put(who *identity.Principal, namespace, id string, expected int, payload any, refs ...obj) {
	w.t.Helper()
	w.must(who, "put", putArgs(namespace, id, expected, payload, refs...))
}

// putArgs are the arguments of a put.
func putArgs(namespace, id string, expected int, payload any, refs ...obj) obj {
	if refs == nil {
		refs = []obj{}
	}
	return obj{
		"namespace": namespace, "id": id, "kind": "note", "schemaVersion": "1", "payload": payload, "references": refs,
		"expectedRevision": expected, "idempotencyKey": key(),
	}
}

// docRef and artRef are references.
func docRef(namespace, id string, revision int) obj {
	return obj{"type": "document", "namespace": namespace, "id": id, "revision": revision}
}
func artRef(namespace, id string) obj {
	return obj{"type": "artifact", "namespace": namespace, "id": id}
}

// begin opens an upload.
func (w *world) begin(namespace string, body []byte) (upload, artifact string, err error) {
	sum := sha256.Sum256(body)
	got, err := w.call(w.ana, "beginArtifact", obj{
		"namespace": namespace, "mimeType": "text/plain", "size": len(body), "provenance": obj{"by": "test"},
		"hash": obj{"algorithm": "sha256", "value": hex.EncodeToString(sum[:])}, "idempotencyKey": key(),
	})
	if err != nil {
		return "", "", err
	}
	return got["uploadId"].(string), got["artifactId"].(string), nil
}

// send transfers the bytes.
func (w *world) send(namespace, upload string, body []byte) error {
	r, err := w.server.HTTP(w.t.Context(), "ana", scenario.HTTPRequest{Method: "PUT", Path: "/uploads/" + namespace + "/" + upload, Body: body})
	if err == nil && r.Status != 204 {
		err = fmt.Errorf("PUT: %d %s", r.Status, r.Body)
	}
	return err
}

// received opens an upload and transfers its bytes.
func (w *world) received(namespace string, body []byte) (upload, artifact string) {
	w.t.Helper()
	upload, artifact, err := w.begin(namespace, body)
	no(w.t, err)
	no(w.t, w.send(namespace, upload, body))
	return upload, artifact
}

// commit makes an artifact.
func (w *world) commit(namespace string, body []byte) (artifact string) {
	w.t.Helper()
	upload, artifact := w.received(namespace, body)
	w.must(w.ana, "commitArtifact", obj{"namespace": namespace, "uploadId": upload, "idempotencyKey": key()})
	return artifact
}

// purge purges.
func (w *world) purge(namespace string, target obj) {
	w.t.Helper()
	w.must(w.ana, "purge", obj{"namespace": namespace, "target": target, "idempotencyKey": key()})
}

// healthy is what the tests damage: what stands where in it.
type healthy struct {
	dir string
	// Artifacts of "ns": cited is referred to by a document, shared has the same bytes as another one, alone neither.
	cited, alone    string
	aloneBytes      []byte
	received        string // an upload
	receivedBytes   []byte
	pending         string // an upload
	pendingArtifact string
}

// twoLives fills a data folder through two servers, one after the other, with everything that may be in a healthy one:
// purged revisions and artifacts, tombstones, a restored document, references across namespaces, tenants, uploads in all
// states, forgotten and expired ones, equal bytes twice, two chains of audit rows.
func twoLives(t *testing.T) healthy {
	t.Helper()
	h := healthy{dir: t.TempDir(), aloneBytes: []byte("stands alone"), receivedBytes: []byte("received, not committed")}
	no(t, os.Chmod(h.dir, 0o700))
	at := clock.NewManual(day)
	w := openWorld(t, h.dir, at)
	h.firstLife(w, at)
	w.close()
	w = openWorld(t, h.dir, at)
	h.secondLife(w, at)
	w.close()
	return h
}

// firstLife ends with all its uploads forgotten.
func (h *healthy) firstLife(w *world, at *clock.Manual) {
	acme := &identity.Principal{Subject: "user:kim", Subjects: []string{"user:kim"}, Tenant: "acme", Method: identity.MethodKey}
	h.cited = w.commit("ns", []byte("cited by a document"))
	gone := w.commit("ns", []byte("to be purged"))
	w.commit("ns", []byte("twice"))
	w.commit("other", []byte("twice"))
	w.put(w.ana, "ns", "plan", 0, obj{"text": "first"}, artRef("ns", h.cited))
	w.put(w.ana, "ns", "plan", 1, obj{"text": "second"})
	w.put(w.ana, "ns", "plan", 2, obj{"text": "third"}, docRef("ns", "plan", 1), docRef("ns", "plan", 1))
	w.put(w.ana, "other", "linked", 0, "cites a plan", docRef("ns", "plan", 1))
	w.put(w.ana, "ns", "gone", 0, 1)
	w.must(w.ana, "delete", obj{"namespace": "ns", "id": "gone", "expectedRevision": 1, "idempotencyKey": key()})
	w.put(w.ana, "ns", "back", 0, 1)
	w.must(w.ana, "delete", obj{"namespace": "ns", "id": "back", "expectedRevision": 1, "idempotencyKey": key()})
	w.put(w.ana, "ns", "back", 2, 2)
	w.put(acme, "ns", "plan", 0, "of a tenant")
	w.put(acme, "ns", "linked", 0, "cites", docRef("ns", "plan", 1))
	w.purge("ns", obj{"type": "document", "id": "plan", "revision": 2})
	w.purge("ns", obj{"type": "artifact", "id": gone})
	at.Advance(8 * 24 * time.Hour)
	_, err := w.store.Sweep(w.t.Context()) // forgets records and closed uploads
	no(w.t, err)
}

// secondLife ends with uploads in all states.
func (h *healthy) secondLife(w *world, at *clock.Manual) {
	h.alone = w.commit("ns", h.aloneBytes)
	w.must(w.ana, "get", obj{"namespace": "ns", "id": "plan"}) // a line in the file of reads
	w.put(w.ana, "ns", "late", 0, obj{"n": 1}, artRef("ns", h.cited), docRef("other", "linked", 1))
	w.purge("ns", obj{"type": "artifact", "id": w.commit("ns", []byte("purged, and its upload is known"))})
	for _, body := range []string{"expires pending", "expires too"} {
		_, _, err := w.begin("ns", []byte(body))
		no(w.t, err)
	}
	w.received("late", []byte("expires received"))
	at.Advance(12 * time.Hour)
	aborted, _ := w.received("ns", []byte("aborted"))
	w.must(w.ana, "abortArtifact", obj{"namespace": "ns", "uploadId": aborted, "idempotencyKey": key()})
	h.received, _ = w.received("ns", h.receivedBytes)
	var err error
	h.pending, h.pendingArtifact, err = w.begin("ns", []byte("pending"))
	no(w.t, err)
	at.Advance(13 * time.Hour) // the first three are over, and neither a sweep nor a call has closed them
}

// copyTree copies a folder with its modes, all but the lock's content, into a new one.
func copyTree(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	no(t, filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(name, from))
		if e.IsDir() {
			return os.Mkdir(target, 0o700)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	}))
	return to
}

// blobFile is the file of bytes in a data folder.
func blobFile(dir string, body []byte) string {
	sum := sha256.Sum256(body)
	name := hex.EncodeToString(sum[:])
	return filepath.Join(dir, "blobs", name[:2], name)
}

// damageSQL runs statements on the database of a folder, each on a connection of its own.
func damageSQL(t testing.TB, dir string, statements ...string) {
	t.Helper()
	for _, s := range statements {
		db, err := sql.Open("sqlite", filepath.Join(dir, "tabellion.db"))
		no(t, err)
		db.SetMaxOpenConns(1)
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		no(t, db.Close())
	}
}

// inStore runs fn in a transaction of the store of a folder.
func inStore(t testing.TB, dir string, out persistence.Outcome, key string, fn func(persistence.Tx) error) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{Clock: clock.NewManual(day.Add(9 * 24 * time.Hour))})
	no(t, err)
	_, err = s.Update(t.Context(), persistence.Commit{Namespace: "ns", Key: key, Now: day.Add(9 * 24 * time.Hour)}, func(tx persistence.Tx) (persistence.Outcome, error) {
		return out, fn(tx)
	})
	no(t, err)
	no(t, s.Close())
}
