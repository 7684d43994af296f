package storetest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// life is how long the uploads of these tests may stay open.
const life = 24 * time.Hour

// pending is a new upload of an owner, of size bytes that are named by content.
func pending(namespace, id string, size int64, content string) *persistence.Upload {
	return &persistence.Upload{
		Namespace: namespace, ID: id, ArtifactID: "of-" + id, Owner: "ana", MimeType: `text/plain; charset="utf-8"`, Size: size,
		Hash: sha256.Sum256([]byte(content)), Provenance: fmt.Appendf(nil, `{"upload":%q}`, id), ExpiresAt: start.Add(life),
		State: persistence.UploadPending,
	}
}

// made is the artifact that an upload leads to.
func made(u *persistence.Upload) *persistence.Artifact {
	return &persistence.Artifact{
		Namespace: u.Namespace, ID: u.ArtifactID, MimeType: u.MimeType, Size: u.Size, Hash: u.Hash,
		CreatedAt: start.Add(time.Second), Provenance: bytes.Clone(u.Provenance),
	}
}

// artifactRef points to the artifact of an upload.
func artifactRef(u *persistence.Upload) persistence.Ref {
	return persistence.Ref{Type: persistence.RefArtifact, Namespace: u.Namespace, ID: u.ArtifactID}
}

// step is one write within a transaction.
type step func(persistence.Tx) error

// begins, moves, commits and so on are the steps of these tests.
func begins(u *persistence.Upload) step {
	return func(tx persistence.Tx) error { return tx.PutUpload(u) }
}

func moves(u *persistence.Upload, to persistence.UploadState) step {
	return func(tx persistence.Tx) error { return tx.MoveUpload(u.Namespace, u.ID, to, start) }
}

func commits(u *persistence.Upload) step {
	return func(tx persistence.Tx) error {
		return errors.Join(tx.MoveUpload(u.Namespace, u.ID, persistence.UploadCommitted, start), tx.PutArtifact(made(u)))
	}
}

func purges(namespace, id string, revision int64) step {
	return func(tx persistence.Tx) error { return tx.PurgeRevision(namespace, id, revision) }
}

func purgesArtifact(u *persistence.Upload) step {
	return func(tx persistence.Tx) error { return tx.PurgeArtifact(u.Namespace, u.ArtifactID) }
}

// try runs steps in one transaction.
func try(t *testing.T, s persistence.Store, steps ...step) error {
	t.Helper()
	_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: start}, func(tx persistence.Tx) (o persistence.Outcome, err error) {
		for _, step := range steps {
			if err := step(tx); err != nil {
				return o, err
			}
		}
		return o, nil
	})
	return err
}

// do is try for what must succeed.
func do(t *testing.T, s persistence.Store, steps ...step) {
	t.Helper()
	if err := try(t, s, steps...); err != nil {
		t.Fatal(err)
	}
}

// refuses fails unless the store refuses the steps.
func refuses(t *testing.T, s persistence.Store, what string, steps ...step) {
	t.Helper()
	if try(t, s, steps...) == nil {
		t.Errorf("%s is not refused", what)
	}
}

// committed brings an upload all the way.
func committed(t *testing.T, s persistence.Store, u *persistence.Upload) {
	t.Helper()
	do(t, s, begins(u), moves(u, persistence.UploadReceived), commits(u))
}

// uploaded fails unless the upload is stored as want, in the state; a final one without its provenance.
func uploaded(t *testing.T, r persistence.Reader, want *persistence.Upload, state persistence.UploadState) {
	t.Helper()
	got, ok, err := r.Upload(want.Namespace, want.ID)
	if err != nil || !ok {
		t.Errorf("upload %s: found %v, error %v", want.ID, ok, err)
		return
	}
	provenance := want.Provenance
	if !state.Open() {
		provenance = nil
	}
	if got.Namespace != want.Namespace || got.ID != want.ID || got.ArtifactID != want.ArtifactID || got.Owner != want.Owner ||
		got.MimeType != want.MimeType || got.Size != want.Size || got.Hash != want.Hash || !got.ExpiresAt.Equal(want.ExpiresAt) ||
		got.State != state || !bytes.Equal(got.Provenance, provenance) {
		t.Errorf("got upload\n%+v\nwant, %s,\n%+v", got, state, want)
	}
}

// artifact fails unless the artifact is stored as want; nil wants none.
func artifact(t *testing.T, r persistence.Reader, u *persistence.Upload, exists bool) {
	t.Helper()
	want := made(u)
	got, ok, err := r.Artifact(u.Namespace, u.ArtifactID)
	live, err2 := r.Live(artifactRef(u))
	if err = errors.Join(err, err2); err != nil || ok != exists || live != exists {
		t.Errorf("artifact %s: found %v, live %v, error %v; want %v", u.ArtifactID, ok, live, err, exists)
		return
	}
	if exists && (got.Namespace != want.Namespace || got.ID != want.ID || got.MimeType != want.MimeType || got.Size != want.Size ||
		got.Hash != want.Hash || !got.CreatedAt.Equal(want.CreatedAt) || !bytes.Equal(got.Provenance, want.Provenance)) {
		t.Errorf("got artifact\n%+v\nwant\n%+v", got, want)
	}
}

// usageAt fails unless so much counts against the quota at a time.
func usageAt(t *testing.T, r persistence.Reader, namespace string, at time.Duration, want int64) {
	t.Helper()
	if got, err := r.Usage(namespace, start.Add(at)); err != nil || got != want {
		t.Errorf("usage of %s after %v is %d (%v), want %d", namespace, at, got, err, want)
	}
}

func testUploads(t *testing.T, s persistence.Store) {
	one, twin := pending("ns", "one", 10, "x"), pending("far", "one", 20, "x")
	view(t, s, func(r persistence.Reader) {
		if u, ok, err := r.Upload("ns", "one"); ok || u != nil || err != nil {
			t.Errorf("an upload never begun: %v %v %v", u, ok, err)
		}
		artifact(t, r, one, false)
	})
	do(t, s, begins(one), begins(twin)) // ids are of a namespace
	view(t, s, func(r persistence.Reader) {
		uploaded(t, r, one, persistence.UploadPending)
		uploaded(t, r, twin, persistence.UploadPending)
		artifact(t, r, one, false)
		if _, ok, err := r.Upload("ns", "One"); ok || err != nil {
			t.Errorf("another upload: %v %v", ok, err)
		}
	})
	do(t, s, moves(one, persistence.UploadReceived))
	do(t, s, commits(one))
	view(t, s, func(r persistence.Reader) {
		uploaded(t, r, one, persistence.UploadCommitted)
		uploaded(t, r, twin, persistence.UploadPending)
		artifact(t, r, one, true)
		artifact(t, r, twin, false)
		if live, err := r.Live(persistence.Ref{Type: persistence.RefDocument, Namespace: "ns", ID: one.ArtifactID, Revision: 1}); live || err != nil {
			t.Errorf("an artifact is live as a document: %v %v", live, err)
		}
	})
	refuses(t, s, "an upload's id for another", begins(pending("ns", "one", 1, "y")))
	other := pending("ns", "other", 1, "y")
	other.ArtifactID = one.ArtifactID
	refuses(t, s, "an artifact's id for another", begins(other))
	refuses(t, s, "an artifact twice", func(tx persistence.Tx) error { return tx.PutArtifact(made(one)) })
	other = pending("ns", "other", 1, "y")
	other.State = persistence.UploadReceived
	refuses(t, s, "a new upload that is received", begins(other))
}

func testUploadMemory(t *testing.T, s persistence.Store) {
	mine, want := pending("ns", "one", 10, "x"), pending("ns", "one", 10, "x")
	whole := made(want)
	do(t, s, begins(mine), moves(mine, persistence.UploadReceived), func(tx persistence.Tx) error { return tx.PutArtifact(whole) })
	mine.Provenance[2], whole.Provenance[2] = 'X', 'X' // the caller's memory is the caller's
	for range 2 {
		view(t, s, func(r persistence.Reader) {
			uploaded(t, r, want, persistence.UploadReceived)
			artifact(t, r, want, true)
			u, _, err := r.Upload("ns", "one")
			a, _, err2 := r.Artifact("ns", "of-one")
			if err := errors.Join(err, err2); err != nil {
				t.Error(err)
				return
			}
			u.Provenance[2], a.Provenance[2], u.State, a.Size = 'Y', 'Y', persistence.UploadAborted, 0
		})
	}
	zone := pending("ns", "zone", 0, "") // empty, and with more precision and another zone than is kept
	zone.ExpiresAt, zone.Provenance = start.Add(time.Microsecond).In(time.FixedZone("elsewhere", 7200)), []byte(`null`)
	do(t, s, begins(zone))
	zone.ExpiresAt = start
	view(t, s, func(r persistence.Reader) { uploaded(t, r, zone, persistence.UploadPending) })
}

// uploadStates are all states, and paths those that bring a new upload into them.
var (
	uploadStates = []persistence.UploadState{
		persistence.UploadPending, persistence.UploadReceived, persistence.UploadCommitted, persistence.UploadAborted,
		persistence.UploadExpired, persistence.UploadPurged,
	}
	paths = map[persistence.UploadState][]persistence.UploadState{
		persistence.UploadPending:   {},
		persistence.UploadReceived:  {persistence.UploadReceived},
		persistence.UploadCommitted: {persistence.UploadReceived, persistence.UploadCommitted},
		persistence.UploadAborted:   {persistence.UploadAborted},
		persistence.UploadExpired:   {persistence.UploadReceived, persistence.UploadExpired},
	}
	// allowed are the moves of persistence.v1, section 10.2.
	allowed = map[persistence.UploadState]string{
		persistence.UploadPending:  "received aborted expired",
		persistence.UploadReceived: "pending committed aborted expired",
	}
)

// testUploadStates tries every move out of every state.
func testUploadStates(t *testing.T, s persistence.Store) {
	for from, path := range paths {
		for _, to := range uploadStates {
			u := pending("ns", string(from)+"-"+string(to), 7, "x")
			do(t, s, begins(u))
			for _, state := range path {
				do(t, s, moves(u, state))
			}
			want := slices.Contains(strings.Fields(allowed[from]), string(to))
			state := to
			if err := try(t, s, moves(u, to)); (err == nil) != want {
				t.Errorf("from %s to %s: error %v, allowed %v", from, to, err, want)
			}
			if !want {
				state = from
			}
			view(t, s, func(r persistence.Reader) { uploaded(t, r, u, state) })
		}
	}
	refuses(t, s, "moving an unknown upload", moves(pending("ns", "never", 1, "x"), persistence.UploadAborted))
	refuses(t, s, "moving one of another namespace", moves(pending("far", "pending-pending", 1, "x"), persistence.UploadAborted))
}

// testReservations follows what uploads and artifacts charge.
func testReservations(t *testing.T, s persistence.Store) {
	check := func(want int64) {
		t.Helper()
		view(t, s, func(r persistence.Reader) { usageAt(t, r, "ns", 0, want) })
	}
	d := note("ns", "doc", 1)
	d.Payload = []byte(`"1234567"`) // 9 bytes
	put(t, s, d)
	a, b, c := pending("ns", "a", 100, "x"), pending("ns", "b", 1000, "x"), pending("ns", "c", 10000, "y")
	do(t, s, begins(a), begins(b), begins(c), begins(pending("far", "a", 5, "x")))
	check(11109)
	do(t, s, moves(a, persistence.UploadReceived))
	do(t, s, moves(b, persistence.UploadReceived))
	do(t, s, moves(b, persistence.UploadPending)) // still reserved
	check(11109)
	do(t, s, commits(a)) // the artifact counts instead
	check(11109)
	do(t, s, moves(b, persistence.UploadAborted))
	check(10109)
	do(t, s, moves(c, persistence.UploadExpired))
	check(109)
	do(t, s, purgesArtifact(a))
	check(9)
	view(t, s, func(r persistence.Reader) { usageAt(t, r, "far", 0, 5) })
	largest := pending("huge", "a", persistence.MaxSafe, "x")
	committed(t, s, largest)
	view(t, s, func(r persistence.Reader) { usageAt(t, r, "huge", 0, persistence.MaxSafe) })
}

// testExpiry looks at uploads just before, at and after their time, with and without a sweep having closed them.
func testExpiry(t *testing.T, s persistence.Store) {
	early, late, other := pending("ns", "early", 10, "x"), pending("ns", "late", 100, "x"), pending("far", "other", 1000, "x")
	early.ExpiresAt = start.Add(life - time.Hour)
	other.Owner = "ben"
	received := pending("ns", "received", 10000, "x")
	received.ExpiresAt = start.Add(life - time.Minute)
	do(t, s, begins(late), begins(early), begins(other), begins(received), moves(received, persistence.UploadReceived))
	closed := pending("ns", "closed", 5, "x")
	do(t, s, begins(closed), moves(closed, persistence.UploadAborted))
	for _, at := range []struct {
		time          time.Duration
		usage         int64
		ana, ben      int
		expired       string
		expiredFirst2 string
	}{
		{0, 10110, 3, 1, "[]", "[]"},
		{life - time.Hour - time.Millisecond, 10110, 3, 1, "[]", "[]"},
		{life - time.Hour - 1, 10110, 3, 1, "[]", "[]"},
		{life - time.Hour, 10100, 2, 1, "[early]", "[early]"}, // at ExpiresAt it has expired
		{life - time.Minute, 100, 1, 1, "[early received]", "[early received]"},
		{life - 1, 100, 1, 1, "[early received]", "[early received]"},
		{life, 0, 0, 0, "[early received late other]", "[early received]"},
		{2 * life, 0, 0, 0, "[early received late other]", "[early received]"},
	} {
		view(t, s, func(r persistence.Reader) {
			now := start.Add(at.time)
			usageAt(t, r, "ns", at.time, at.usage)
			ana, err := r.OpenUploads("ana", now)
			ben, err2 := r.OpenUploads("ben", now)
			nobody, err3 := r.OpenUploads("an", now)
			if err := errors.Join(err, err2, err3); err != nil || ana != at.ana || ben != at.ben || nobody != 0 {
				t.Errorf("after %v: %d and %d open (%v), want %d and %d", at.time, ana, ben, err, at.ana, at.ben)
			}
			all, first := expired(t, r, now, 10), expired(t, r, now, 2)
			if all != at.expired && all != "[early received other late]" || first != at.expiredFirst2 {
				t.Errorf("after %v: expired %s and %s, want %s and %s", at.time, all, first, at.expired, at.expiredFirst2)
			}
		})
	}
	do(t, s, moves(early, persistence.UploadExpired), moves(received, persistence.UploadExpired))
	view(t, s, func(r persistence.Reader) {
		usageAt(t, r, "ns", 0, 100)
		usageAt(t, r, "ns", life, 0) // what is closed is not taken off again
		if got := expired(t, r, start.Add(life-1), 10); got != "[]" {
			t.Errorf("closed uploads expire: %s", got)
		}
	})
}

// expired names the uploads whose time is over.
func expired(t *testing.T, r persistence.Reader, now time.Time, limit int) string {
	t.Helper()
	uploads, err := r.Expired(now, limit)
	if err != nil {
		t.Error(err)
	}
	names := []string{}
	for _, u := range uploads {
		names = append(names, u.ID)
		uploaded(t, r, u, u.State)
	}
	return fmt.Sprint(names)
}

func testHeld(t *testing.T, s persistence.Store) {
	x, twin := pending("ns", "x", 1, "x"), pending("far", "twin", 1, "x")
	check := func(when string, want bool) {
		t.Helper()
		view(t, s, func(r persistence.Reader) {
			if held, err := r.Held(x.Hash); err != nil || held != want {
				t.Errorf("%s: held %v (%v), want %v", when, held, err, want)
			}
			if held, err := r.Held(sha256.Sum256([]byte("other"))); err != nil || held {
				t.Errorf("%s: other bytes are held %v (%v)", when, held, err)
			}
			if all, err := allHeld(r); err != nil || all[x.Hash] != want || len(all) > 1 {
				t.Errorf("%s: of all that is held, %v (%v); want it held %v", when, all, err, want)
			}
		})
	}
	check("nothing", false)
	do(t, s, begins(x), begins(twin))
	check("pending", false)
	do(t, s, moves(x, persistence.UploadReceived))
	check("received", true)
	do(t, s, moves(x, persistence.UploadPending))
	check("pending again", false)
	do(t, s, moves(x, persistence.UploadReceived), moves(twin, persistence.UploadReceived))
	do(t, s, moves(twin, persistence.UploadAborted))
	check("one of two aborted", true)
	do(t, s, moves(x, persistence.UploadExpired))
	check("the other expired", false)
	y, z := pending("ns", "y", 1, "x"), pending("far", "z", 1, "x")
	committed(t, s, y)
	committed(t, s, z)
	check("two artifacts", true)
	do(t, s, purgesArtifact(y))
	check("one purged", true)
	do(t, s, purgesArtifact(z))
	check("both purged", false)
}

// allHeld is what EachHeld names.
func allHeld(r persistence.Reader) (map[persistence.Digest]bool, error) {
	all := map[persistence.Digest]bool{}
	err := r.EachHeld(func(d persistence.Digest) error { all[d] = true; return nil })
	return all, err
}

// testEachHeld has EachHeld name what is needed in all namespaces and nothing else, read meanwhile, and be ended.
func testEachHeld(t *testing.T, s persistence.Store) {
	want := map[persistence.Digest]bool{}
	for i, state := range []persistence.UploadState{
		persistence.UploadPending, persistence.UploadReceived, persistence.UploadCommitted, persistence.UploadAborted, persistence.UploadExpired,
	} {
		for _, namespace := range []string{"ns", "far", "t1:ns"} {
			u := pending(namespace, "u", 1, fmt.Sprint(namespace, i))
			u.ID, u.ArtifactID = string(state), "of-"+string(state)
			do(t, s, begins(u))
			for _, to := range paths[state] {
				do(t, s, moves(u, to))
			}
			if state == persistence.UploadCommitted {
				do(t, s, func(tx persistence.Tx) error { return tx.PutArtifact(made(u)) })
			}
			if state == persistence.UploadCommitted || state == persistence.UploadReceived {
				want[u.Hash] = true
			}
		}
	}
	view(t, s, func(r persistence.Reader) {
		got, err := allHeld(r)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("held are %v (%v), want %v", got, err, want)
		}
		calls := 0
		err = r.EachHeld(func(d persistence.Digest) error {
			calls++
			if held, err := r.Held(d); err != nil || !held {
				t.Errorf("asked meanwhile: held %v (%v)", held, err)
			}
			if calls == 2 {
				return errMine
			}
			return nil
		})
		if err != errMine || calls != 2 {
			t.Errorf("%d calls and %v, want 2 and the very error of the second", calls, err)
		}
	})
}

func testArtifactPurge(t *testing.T, s persistence.Store) {
	u := pending("ns", "u", 10, "x")
	refuses(t, s, "purging an artifact never made", purgesArtifact(u))
	do(t, s, begins(u), moves(u, persistence.UploadReceived))
	refuses(t, s, "purging an artifact not committed", purgesArtifact(u))
	do(t, s, commits(u))
	refuses(t, s, "purging one of another namespace", purgesArtifact(pending("far", "u", 10, "x")))
	do(t, s, purgesArtifact(u))
	view(t, s, func(r persistence.Reader) {
		artifact(t, r, u, false)
		uploaded(t, r, u, persistence.UploadPurged)
	})
	refuses(t, s, "purging twice", purgesArtifact(u))
	refuses(t, s, "moving a purged upload", moves(u, persistence.UploadAborted))
	bare := pending("ns", "bare", 10, "x") // an artifact whose upload is not known any more
	do(t, s, func(tx persistence.Tx) error { return tx.PutArtifact(made(bare)) })
	do(t, s, purgesArtifact(bare))
	view(t, s, func(r persistence.Reader) { artifact(t, r, bare, false) })
}

// testArtifactRollback fails each write after it was made, and once all of them together.
func testArtifactRollback(t *testing.T, s persistence.Store) {
	open, got, whole, fresh := pending("ns", "open", 1, "a"), pending("ns", "got", 10, "b"), pending("ns", "whole", 100, "c"), pending("ns", "fresh", 1000, "d")
	do(t, s, begins(open), begins(got), moves(got, persistence.UploadReceived))
	committed(t, s, whole)
	source := note("ns", "plan", 1)
	source.References = []persistence.Ref{artifactRef(whole)}
	put(t, s, source, note("ns", "plan", 2), note("ns", "plan", 3))
	want := readAll(t, s, open, got, whole, fresh)
	fails := func(persistence.Tx) error { return errMine }
	steps := []step{
		begins(fresh), moves(open, persistence.UploadReceived), commits(got), purgesArtifact(whole), purges("ns", "plan", 2), purges("ns", "plan", 1),
	}
	for i, write := range append(steps, nil) {
		all := []step{write}
		if write == nil {
			all = slices.Clone(steps)
		}
		if err := try(t, s, append(all, fails)...); err != errMine {
			t.Errorf("write %d: %v, want the very error of fn", i, err)
		}
		if after := readAll(t, s, open, got, whole, fresh); after != want {
			t.Errorf("write %d left\n%s\nof\n%s", i, after, want)
		}
	}
	do(t, s, steps...)
	if readAll(t, s, open, got, whole, fresh) == want {
		t.Error("without a failure nothing has changed")
	}
}

// readAll says what a Reader tells of uploads, their artifacts, and the document ns/plan.
func readAll(t *testing.T, s persistence.Store, uploads ...*persistence.Upload) string {
	t.Helper()
	var b bytes.Buffer
	view(t, s, func(r persistence.Reader) { b.Write(tellAll(r, uploads...)) })
	return b.String()
}

// tellAll is readAll within a snapshot.
func tellAll(r persistence.Reader, uploads ...*persistence.Upload) []byte {
	var b bytes.Buffer
	for _, u := range uploads {
		got, ok, err := r.Upload(u.Namespace, u.ID)
		fmt.Fprintln(&b, u.ID, got, ok, err)
		a, ok, err := r.Artifact(u.Namespace, u.ArtifactID)
		fmt.Fprintln(&b, a, ok, err)
		held, err := r.Held(u.Hash)
		all, err2 := allHeld(r)
		fmt.Fprintln(&b, held, err, all[u.Hash], err2)
		refs, err := r.Inbound(artifactRef(u), persistence.Ref{}, 10)
		fmt.Fprintln(&b, len(refs), refs, err)
	}
	docs, more, err := r.Revisions("ns", "plan", 0, 10, 0)
	fmt.Fprintln(&b, len(docs), more, err)
	for n := range int64(4) {
		at, ok, err := r.Superseded("ns", "plan", n)
		fmt.Fprintln(&b, at.UTC(), ok, err)
	}
	used, err := r.Usage("ns", start)
	open, err2 := r.OpenUploads("ana", start)
	late, err3 := r.Expired(start.Add(life), 10)
	facts, err4 := r.Namespaces("", 10)
	fmt.Fprintln(&b, used, open, len(late), facts, errors.Join(err, err2, err3, err4))
	return b.Bytes()
}

// testArtifactSnapshot changes everything under an open View, which must not see it.
func testArtifactSnapshot(t *testing.T, s persistence.Store) {
	open, got, whole, fresh := pending("ns", "open", 1, "a"), pending("ns", "got", 10, "b"), pending("ns", "whole", 100, "c"), pending("ns", "fresh", 1000, "d")
	do(t, s, begins(open), begins(got), moves(got, persistence.UploadReceived))
	committed(t, s, whole)
	source := note("ns", "plan", 1)
	source.References = []persistence.Ref{artifactRef(whole)}
	put(t, s, source, note("ns", "plan", 2), note("ns", "plan", 3))
	view(t, s, func(r persistence.Reader) {
		before := tellAll(r, open, got, whole, fresh)
		do(t, s, begins(fresh), moves(open, persistence.UploadReceived), commits(got), purges("ns", "plan", 1), purges("ns", "plan", 2), purgesArtifact(whole))
		if after := tellAll(r, open, got, whole, fresh); !bytes.Equal(before, after) {
			t.Errorf("the snapshot moved from\n%s\nto\n%s", before, after)
		}
		if d, ok, err := r.Revision("ns", "plan", 1); err != nil || !ok {
			t.Errorf("a revision purged later: %v %v", ok, err)
		} else {
			same(t, d, source)
		}
		artifact(t, r, whole, true)
	})
	view(t, s, func(r persistence.Reader) {
		artifact(t, r, whole, false)
		artifact(t, r, got, true)
		uploaded(t, r, open, persistence.UploadReceived)
	})
}

// testArtifactOwnWrites reads within the transaction what it wrote itself.
func testArtifactOwnWrites(t *testing.T, s persistence.Store) {
	u := pending("ns", "u", 10, "x")
	source := note("ns", "plan", 1)
	source.References = []persistence.Ref{artifactRef(u)}
	size := int64(len(source.Payload))
	looks := func(f func(persistence.Reader)) step { return func(tx persistence.Tx) error { f(tx); return nil } }
	do(t, s,
		begins(u), looks(func(r persistence.Reader) {
			uploaded(t, r, u, persistence.UploadPending)
			usageAt(t, r, "ns", 0, 10)
		}),
		moves(u, persistence.UploadReceived), commits(u), looks(func(r persistence.Reader) {
			uploaded(t, r, u, persistence.UploadCommitted)
			artifact(t, r, u, true)
		}),
		func(tx persistence.Tx) error { return tx.PutRevision(source) },
		func(tx persistence.Tx) error { return tx.PutRevision(note("ns", "plan", 2)) },
		looks(func(r persistence.Reader) {
			inbound(t, r, artifactRef(u), persistence.Ref{}, 10, "ns/plan@1")
			usageAt(t, r, "ns", 0, 10+2*size)
		}),
		purges("ns", "plan", 1), purgesArtifact(u), looks(func(r persistence.Reader) {
			inbound(t, r, artifactRef(u), persistence.Ref{}, 10)
			usageAt(t, r, "ns", 0, size)
			uploaded(t, r, u, persistence.UploadPurged)
			artifact(t, r, u, false)
		}))
}

// testArtifactReplay replays keys whose effects were taken further, and purged.
func testArtifactReplay(t *testing.T, s persistence.Store) {
	u := pending("ns", "u", 10, "x")
	run := func(key string, value string, steps ...step) {
		t.Helper()
		out, err := s.Update(t.Context(), commit("ns", key, key), func(tx persistence.Tx) (persistence.Outcome, error) {
			for _, step := range steps {
				if err := step(tx); err != nil {
					return persistence.Outcome{}, err
				}
			}
			return persistence.Outcome{Value: []byte(value)}, nil
		})
		must(t, out, err, false)
	}
	run("begin", `{"upload":1}`, begins(u))
	run("commit", `{"artifact":1}`, moves(u, persistence.UploadReceived), commits(u))
	run("purge", `{"ok":true}`, purgesArtifact(u))
	put(t, s, note("ns", "plan", 1))
	run("put", `1`, func(tx persistence.Tx) error { return tx.PutRevision(note("ns", "plan", 2)) })
	put(t, s, note("ns", "plan", 3))
	run("purge revision", `{"ok":true}`, purges("ns", "plan", 2))
	want := readAll(t, s, u)
	for key, value := range map[string]string{
		"begin": `{"upload":1}`, "commit": `{"artifact":1}`, "purge": `{"ok":true}`, "put": `1`, "purge revision": `{"ok":true}`,
	} {
		out, err := s.Update(t.Context(), commit("ns", key, key), never(t))
		must(t, out, err, true)
		if string(out.Value) != value {
			t.Errorf("%s: replayed %s, want %s", key, out.Value, value)
		}
	}
	if after := readAll(t, s, u); after != want {
		t.Errorf("replays left\n%s\nof\n%s", after, want)
	}
}
