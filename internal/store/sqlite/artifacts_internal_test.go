package sqlite

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// newUpload is an upload by that name that leads to an artifact of the same.
func newUpload(id string) *persistence.Upload {
	return &persistence.Upload{
		Namespace: "ns", ID: id, ArtifactID: id, Owner: "ana", MimeType: "a/b", Size: 10, Hash: sha256.Sum256([]byte(id)),
		Provenance: []byte(`{}`), ExpiresAt: day.Add(time.Hour), State: persistence.UploadPending,
	}
}

// receive and finish take an upload to the state received, and to its artifact, at a time.
func receive(tx persistence.Tx, u *persistence.Upload, at time.Time) error {
	return errors.Join(tx.PutUpload(u), tx.MoveUpload("ns", u.ID, persistence.UploadReceived, at))
}

func finish(tx persistence.Tx, u *persistence.Upload, at time.Time) error {
	return errors.Join(receive(tx, u, at), tx.MoveUpload("ns", u.ID, persistence.UploadCommitted, at),
		tx.PutArtifact(&persistence.Artifact{
			Namespace: "ns", ID: u.ID, MimeType: u.MimeType, Size: u.Size, Hash: u.Hash, CreatedAt: at, Provenance: u.Provenance,
		}))
}

// update runs f in a transaction and fails the test on an error.
func update(t *testing.T, s *Store, f func(persistence.Tx) error) {
	t.Helper()
	_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, func(tx persistence.Tx) (persistence.Outcome, error) {
		return persistence.Outcome{}, f(tx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestArtifactDamage changes stored rows behind the store's back: they are not served.
func TestArtifactDamage(t *testing.T) {
	for _, change := range []string{
		"UPDATE artifacts SET size = size + 1", "UPDATE artifacts SET digest = zeroblob(32)", "UPDATE artifacts SET mime_type = 'a/c'",
		"UPDATE artifacts SET created = created + 1", "UPDATE artifacts SET provenance = x'30'", "UPDATE artifacts SET id = 'other' WHERE id = 'done'",
		"UPDATE uploads SET size = size + 1", "UPDATE uploads SET digest = zeroblob(32)", "UPDATE uploads SET mime_type = 'a/c'",
		"UPDATE uploads SET owner = 'ben'", "UPDATE uploads SET expires = expires + 1", "UPDATE uploads SET provenance = x'30'",
		"UPDATE uploads SET state = 'aborted'", "UPDATE uploads SET state = 'received' WHERE id = 'done'",
		"UPDATE uploads SET closed = NULL", "UPDATE uploads SET closed = 5", "UPDATE uploads SET artifact = 'z' WHERE id = 'done'",
		"UPDATE uploads SET id = 'other' WHERE id = 'done'",
	} {
		s := openTest(t, Options{})
		update(t, s, func(tx persistence.Tx) error {
			return errors.Join(finish(tx, newUpload("done"), day), receive(tx, newUpload("open"), day))
		})
		read := func() (errs error) {
			err := s.View(t.Context(), func(r persistence.Reader) error {
				for _, id := range []string{"done", "open", "other"} {
					_, _, err := r.Upload("ns", id)
					_, _, err2 := r.Artifact("ns", id)
					errs = errors.Join(errs, err, err2)
				}
				return nil
			})
			return errors.Join(errs, err)
		}
		if err := read(); err != nil {
			t.Fatal(err)
		}
		if err := s.submit(t.Context(), func(x *tx) error { return x.write(change) }); err != nil {
			t.Fatal(err)
		}
		if err := read(); !errors.Is(err, persistence.ErrDamaged) {
			t.Errorf("%s: got %v", change, err)
		}
	}
}

// TestDamagedUpload has a damaged row among those that expire, and tries to move one: neither is taken for good.
func TestDamagedUpload(t *testing.T) {
	s := openTest(t, Options{})
	update(t, s, func(tx persistence.Tx) error { return tx.PutUpload(newUpload("open")) })
	if err := s.submit(t.Context(), func(x *tx) error { return x.write("UPDATE uploads SET size = 11") }); err != nil {
		t.Fatal(err)
	}
	err := s.View(t.Context(), func(r persistence.Reader) error {
		_, err := r.Expired(day.Add(time.Hour), 10)
		return err
	})
	if !errors.Is(err, persistence.ErrDamaged) {
		t.Errorf("expired: got %v", err)
	}
	_, err = s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, func(tx persistence.Tx) (persistence.Outcome, error) {
		return persistence.Outcome{}, tx.MoveUpload("ns", "open", persistence.UploadAborted, day)
	})
	if !errors.Is(err, persistence.ErrDamaged) {
		t.Errorf("moved: got %v", err)
	}
}

// TestSweepUploads has closed uploads forgotten once they are older than the retention, and nothing else.
func TestSweepUploads(t *testing.T) {
	now := clock.NewManual(day)
	s := openTest(t, Options{Clock: now, Retention: time.Hour})
	update(t, s, func(tx persistence.Tx) error {
		return errors.Join(finish(tx, newUpload("done"), day), tx.PutUpload(newUpload("open")), receive(tx, newUpload("got"), day),
			tx.PutUpload(newUpload("later")), tx.MoveUpload("ns", "later", persistence.UploadAborted, day.Add(time.Minute)),
			finish(tx, newUpload("purged"), day), tx.PurgeArtifact("ns", "purged"))
	})
	kept := func() (names []string) {
		err := s.View(t.Context(), func(r persistence.Reader) error {
			for _, id := range []string{"done", "purged", "later", "open", "got"} {
				_, ok, err := r.Upload("ns", id)
				if err != nil {
					return err
				}
				if ok {
					names = append(names, id)
				}
			}
			if _, ok, err := r.Artifact("ns", "done"); err != nil || !ok {
				return fmt.Errorf("the artifact is gone (%w)", err)
			}
			n, err := r.Usage("ns", day)
			if n != 30 { // an artifact and two open uploads
				t.Errorf("usage is %d", n)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	for _, step := range []struct {
		after time.Duration
		want  string
	}{
		{0, "[done purged later open got]"}, {time.Hour, "[done purged later open got]"}, {time.Microsecond, "[later open got]"},
		{time.Minute, "[open got]"}, {100 * time.Hour, "[open got]"},
	} {
		now.Advance(step.after)
		if more, err := s.Sweep(t.Context()); err != nil || more {
			t.Errorf("sweep: more %v, %v", more, err)
		}
		if got := fmt.Sprint(kept()); got != step.want {
			t.Errorf("kept %s, want %s", got, step.want)
		}
	}
}

// marked is a payload of about size bytes that is full of a mark.
func marked(n, size int) []byte {
	b := []byte(`"`)
	for len(b) < size {
		b = fmt.Appendf(b, "<mark %04d>", n)
	}
	return append(b, '"')
}

// marks counts which of n marks are in the files of the database.
func marks(t *testing.T, s *Store, n int) (found []int) {
	t.Helper()
	var all []byte
	for _, name := range []string{databaseName, databaseName + "-wal"} {
		b, err := os.ReadFile(s.folder.path(name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	for i := range n {
		if bytes.Contains(all, fmt.Appendf(nil, "<mark %04d>", i)) {
			found = append(found, i)
		}
	}
	return found
}

// TestPurgeErases looks for purged content in the files: small and large payloads, purged in no order with others left
// between them, and the provenance of an artifact. After a sweep has asked for it, nothing of it is left and all else
// is. The control removes the same from a store that does not overwrite.
func TestPurgeErases(t *testing.T) {
	found, kept := purgeMost(t, openTest(t, Options{}))
	if len(found) > 0 || kept == 0 {
		t.Errorf("the purged contents %d are still in the files; %d that stay are", found, kept)
	}
	s := openTest(t, Options{})
	if err := s.submit(t.Context(), func(x *tx) error { return x.c.script("PRAGMA secure_delete=OFF") }); err != nil {
		t.Fatal(err)
	}
	if found, _ := purgeMost(t, s); len(found) == 0 {
		t.Error("the control: nothing is found though nothing was overwritten")
	}
}

// purgeMost writes marked contents and purges four of five. It gives the marks of purged ones that are still in the
// files, and how many of the others are, all of which must be.
func purgeMost(t *testing.T, s *Store) (found []int, kept int) {
	const n = 300
	random := rand.New(rand.NewPCG(1, 2))
	update(t, s, func(tx persistence.Tx) error {
		for i := range n {
			if err := writeTwo(tx, fmt.Sprint(i), marked(i, []int{20, 300, 3000, 9000, 30000}[random.IntN(5)])); err != nil {
				return err
			}
		}
		return nil
	})
	u := newUpload("a")
	u.Provenance = marked(n, 2000)
	update(t, s, func(tx persistence.Tx) error { return finish(tx, u, day) })
	if got := marks(t, s, n+1); len(got) != n+1 {
		t.Fatalf("%d of %d marks are found before anything is purged", len(got), n+1)
	}
	left := map[int]bool{}
	for some := range slices.Chunk(random.Perm(n), 10) {
		left[some[0]], left[some[5]] = true, true
		update(t, s, func(tx persistence.Tx) (errs error) {
			for _, at := range some {
				if !left[at] {
					errs = errors.Join(errs, tx.PurgeRevision("ns", fmt.Sprint(at), 1))
				}
			}
			return errs
		})
	}
	update(t, s, func(tx persistence.Tx) error { return tx.PurgeArtifact("ns", "a") })
	reclaim(t, s)
	for _, i := range marks(t, s, n+1) {
		if left[i] {
			kept++
		} else {
			found = append(found, i)
		}
	}
	if kept != len(left) {
		t.Errorf("%d of %d payloads that were not purged are found", kept, len(left))
	}
	return found, kept
}

// writeTwo writes a document with two revisions, the payload in the first.
func writeTwo(tx persistence.Tx, id string, payload []byte) error {
	d := persistence.Document{
		Namespace: "ns", ID: id, Kind: "k", SchemaVersion: "1", Revision: 1, CreatedAt: day, UpdatedAt: day, Payload: payload,
	}
	next := d
	next.Revision, next.Payload = 2, []byte("1")
	return errors.Join(tx.PutRevision(&d), tx.PutRevision(&next))
}

// reclaim sweeps until the writer has emptied the log: the second sweep is answered after it has.
func reclaim(t *testing.T, s *Store) {
	t.Helper()
	for range 2 {
		if _, err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPurgeWaits has a View keep the log from being emptied: the next sweep does it.
func TestPurgeWaits(t *testing.T) {
	s := openTest(t, Options{})
	payload := marked(0, 100)
	update(t, s, func(tx persistence.Tx) error { return writeTwo(tx, "d", payload) })
	err := s.View(t.Context(), func(r persistence.Reader) error {
		if _, _, err := r.Revision("ns", "d", 1); err != nil {
			return err
		}
		update(t, s, func(tx persistence.Tx) error { return tx.PurgeRevision("ns", "d", 1) })
		reclaim(t, s)
		got, ok, err := r.Revision("ns", "d", 1)
		if err != nil || !ok || !bytes.Equal(got.Payload, payload) {
			t.Errorf("the snapshot lost the revision: %v %v", ok, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(marks(t, s, 1)) == 0 {
		t.Error("nothing had to wait: the test shows nothing")
	}
	reclaim(t, s)
	if len(marks(t, s, 1)) > 0 {
		t.Error("the purged content is still in the files")
	}
	if err := s.Healthy(); err != nil {
		t.Error(err)
	}
}
