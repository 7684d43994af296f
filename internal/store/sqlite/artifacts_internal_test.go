package sqlite

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// TestDamagedUpload has damaged rows before and between those that expire: they are left out and take no place of
// others. To move one is refused.
func TestDamagedUpload(t *testing.T) {
	s := openTest(t, Options{})
	update(t, s, func(tx persistence.Tx) (errs error) {
		for _, id := range []string{"open", "bad", "one", "worse", "two", "three"} {
			errs = errors.Join(errs, tx.PutUpload(newUpload(id)))
		}
		return errs
	})
	late := func(limit int) string {
		names := []string{}
		err := s.View(t.Context(), func(r persistence.Reader) error {
			found, err := r.Expired(day.Add(time.Hour), limit)
			for _, u := range found {
				names = append(names, u.ID)
			}
			return err
		})
		return fmt.Sprint(names, err)
	}
	if got := late(3); got != "[open bad one] <nil>" {
		t.Errorf("without damage %s expire", got)
	}
	err := s.submit(t.Context(), func(x *tx) error {
		return x.write("UPDATE uploads SET size = 11 WHERE id IN ('open', 'bad', 'worse')")
	})
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]string{0: "[] <nil>", 1: "[one] <nil>", 2: "[one two] <nil>", 10: "[one two three] <nil>"} {
		if got := late(limit); got != want {
			t.Errorf("at most %d: %s expire, want %s", limit, got, want)
		}
	}
	_, err = s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, func(tx persistence.Tx) (persistence.Outcome, error) {
		return persistence.Outcome{}, tx.MoveUpload("ns", "open", persistence.UploadAborted, day)
	})
	if !errors.Is(err, persistence.ErrDamaged) {
		t.Errorf("moved: got %v", err)
	}
}

// TestHeldDamage changes rows behind the store's back: EachHeld refuses to name what is needed, whatever hides a row
// from a selection.
func TestHeldDamage(t *testing.T) {
	for _, change := range []string{
		"UPDATE artifacts SET digest = zeroblob(32)", "UPDATE uploads SET digest = zeroblob(32) WHERE id = 'got'",
		"UPDATE uploads SET state = 'pending' WHERE id = 'got'", "UPDATE uploads SET state = 'aborted', closed = 5 WHERE id = 'got'",
		"UPDATE uploads SET state = 'received' WHERE id = 'open'", "UPDATE uploads SET sum = 0 WHERE id = 'open'",
	} {
		s := openTest(t, Options{})
		update(t, s, func(tx persistence.Tx) error {
			return errors.Join(finish(tx, newUpload("done"), day), receive(tx, newUpload("got"), day), tx.PutUpload(newUpload("open")))
		})
		if _, all, err := held(t, s, persistence.Digest{}); err != nil || len(all) != 2 {
			t.Fatalf("before the damage: %v (%v)", all, err)
		}
		if err := s.submit(t.Context(), func(x *tx) error { return x.write(change) }); err != nil {
			t.Fatal(err)
		}
		if _, _, err := held(t, s, persistence.Digest{}); !errors.Is(err, persistence.ErrDamaged) {
			t.Errorf("%s: got %v", change, err)
		}
	}
}

// held asks a store in both ways what is needed: whether d is, and everything, with the error of the latter.
func held(t *testing.T, s *Store, d persistence.Digest) (one bool, all map[persistence.Digest]bool, damage error) {
	t.Helper()
	all = map[persistence.Digest]bool{}
	err := s.View(t.Context(), func(r persistence.Reader) (err error) {
		damage = r.EachHeld(func(d persistence.Digest) error { all[d] = true; return nil })
		one, err = r.Held(d)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return one, all, damage
}

// TestIndexBit flips one bit in each place where a digest stands in the database file: in an index, Held does not find
// it and EachHeld does; in a row, EachHeld reports the damage. A removal that asks both is safe.
func TestIndexBit(t *testing.T) {
	s := openTest(t, Options{})
	done, got := newUpload("done"), newUpload("got")
	update(t, s, func(tx persistence.Tx) error { return errors.Join(finish(tx, done, day), receive(tx, got, day)) })
	file := s.folder.path(databaseName)
	if err := s.Close(); err != nil { // writes the log back
		t.Fatal(err)
	}
	db, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []*persistence.Upload{done, got} {
		inIndex, inRow := 0, 0
		for at := range db {
			if !bytes.HasPrefix(db[at:], u.Hash[:]) {
				continue
			}
			one, all, damage := heldWith(t, db, at+5, u.Hash)
			switch {
			case !one && all[u.Hash] && damage == nil:
				inIndex++
			case one && errors.Is(damage, persistence.ErrDamaged):
				inRow++
			default:
				t.Errorf("%s, a bit at %d: held %v, by all rows %v (%v)", u.ID, at+5, one, all[u.Hash], damage)
			}
		}
		if inIndex != 1 || inRow == 0 {
			t.Errorf("%s: %d places in an index and %d in rows", u.ID, inIndex, inRow)
		}
	}
}

// heldWith is held for a store whose file has one wrong bit.
func heldWith(t *testing.T, db []byte, at int, d persistence.Digest) (one bool, all map[persistence.Digest]bool, damage error) {
	t.Helper()
	dir := t.TempDir()
	db = bytes.Clone(db)
	db[at] ^= 1
	if err := os.WriteFile(filepath.Join(dir, databaseName), db, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return held(t, s, d)
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

// TestSweepOrder has more records to forget than one sweep takes: the upload that they led to stays until the last of
// them is gone.
func TestSweepOrder(t *testing.T) {
	now := clock.NewManual(day)
	s := openTest(t, Options{Clock: now, Retention: time.Hour})
	err := s.submit(t.Context(), func(x *tx) error {
		for i := range 2*sweepRows - 1 {
			if err := x.record(persistence.Commit{Namespace: "ns", Key: fmt.Sprint(i), Now: day}, persistence.Outcome{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	u := newUpload("done")
	update(t, s, func(tx persistence.Tx) error { return tx.PutUpload(u) })
	c := persistence.Commit{Namespace: "ns", Key: "abort", Now: day} // the last record of all
	_, err = s.Update(t.Context(), c, func(tx persistence.Tx) (o persistence.Outcome, err error) {
		return o, tx.MoveUpload("ns", "done", persistence.UploadAborted, day)
	})
	if err != nil {
		t.Fatal(err)
	}
	now.Advance(time.Hour + time.Millisecond)
	for sweep, want := range []string{
		fmt.Sprintf("more true, %d records, upload true", sweepRows),
		"more true, 0 records, upload true", "more false, 0 records, upload false",
	} {
		more, err := s.Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var records int64
		var upload bool
		err = s.read(t.Context(), func(r *reader) error {
			_, ok, err := r.Upload("ns", "done")
			upload = ok
			return errors.Join(err, r.query("SELECT count(*) FROM idempotency", stop(func(r row) { records = r.int(0) })))
		})
		if got := fmt.Sprintf("more %v, %d records, upload %v", more, records, upload); err != nil || got != want {
			t.Errorf("sweep %d: %s (%v), want %s", sweep, got, err, want)
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
