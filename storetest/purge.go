package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// superseded fails unless the revision stopped being the head at the time; the zero time wants none.
func superseded(t *testing.T, r persistence.Reader, id string, revision int64, want time.Time) {
	t.Helper()
	at, ok, err := r.Superseded("ns", id, revision)
	if err != nil || ok != !want.IsZero() || ok && !at.Equal(want) {
		t.Errorf("%s@%d: superseded %v at %v (%v), want %v", id, revision, ok, at, err, want)
	}
}

// updated is when note writes a revision.
func updated(revision int64) time.Time { return note("ns", "", revision).UpdatedAt }

// testSuperseded purges revisions from the middle, so that the followers of others are missing.
func testSuperseded(t *testing.T, s persistence.Store) {
	for n := int64(1); n <= 9; n++ {
		d := note("ns", "plan", n)
		if n == 5 || n == 8 {
			d = grave("ns", "plan", n)
		}
		put(t, s, d)
	}
	check := func(missing ...int64) {
		t.Helper()
		view(t, s, func(r persistence.Reader) {
			for n := int64(-1); n <= 11; n++ {
				want := updated(n + 1)
				if n < 1 || n >= 9 || slices.Contains(missing, n) {
					want = time.Time{}
				}
				superseded(t, r, "plan", n, want)
			}
			superseded(t, r, "never", 1, time.Time{})
		})
	}
	check()
	do(t, s, purges("ns", "plan", 3))
	check(3)
	do(t, s, purges("ns", "plan", 4), purges("ns", "plan", 5)) // three behind each other, in order
	check(3, 4, 5)
	do(t, s, purges("ns", "plan", 8), purges("ns", "plan", 7)) // and against it; the head stays
	check(3, 4, 5, 7, 8)
	put(t, s, note("ns", "plan", 10))
	view(t, s, func(r persistence.Reader) {
		superseded(t, r, "plan", 9, updated(10))
		superseded(t, r, "plan", 6, updated(7))
		superseded(t, r, "plan", 2, updated(3))
	})
	do(t, s, purges("ns", "plan", 1), purges("ns", "plan", 2), purges("ns", "plan", 6), purges("ns", "plan", 9))
	if n := head(t, s, "ns", "plan"); n != 10 {
		t.Errorf("head is %d", n)
	}
	put(t, s, note("ns", "plan", 11)) // numbers are not given again
}

// testPurge looks at everything that must be without a purged revision.
func testPurge(t *testing.T, s persistence.Store) {
	put(t, s, note("ns", "target", 1), note("far", "plan", 1), note("far", "plan", 2))
	source := note("ns", "plan", 2)
	source.References = []persistence.Ref{{Type: persistence.RefDocument, Namespace: "ns", ID: "target", Revision: 1}}
	put(t, s, note("ns", "plan", 1), source, grave("ns", "plan", 3), note("ns", "plan", 4))
	for what, revision := range map[string]int64{"the head": 4, "what is not there": 5, "revision 0": 0, "revision -1": -1} {
		refuses(t, s, "purging "+what, purges("ns", "plan", revision))
	}
	refuses(t, s, "purging of an unknown document", purges("ns", "never", 1))
	refuses(t, s, "purging a single revision", purges("ns", "target", 1))
	before := usage(t, s, "ns")
	far := usage(t, s, "far")
	do(t, s, purges("ns", "plan", 2))
	if got, want := usage(t, s, "ns"), before-int64(len(source.Payload)); got != want {
		t.Errorf("usage is %d after a purge, want %d", got, want)
	}
	do(t, s, purges("ns", "plan", 3)) // a tombstone never counted
	if got, want := usage(t, s, "ns"), before-int64(len(source.Payload)); got != want {
		t.Errorf("usage is %d after the purge of a tombstone, want %d", got, want)
	}
	refuses(t, s, "purging twice", purges("ns", "plan", 2))
	view(t, s, func(r persistence.Reader) {
		for _, n := range []int64{2, 3} {
			if _, ok, err := r.Revision("ns", "plan", n); ok || err != nil {
				t.Errorf("revision %d: found %v, error %v", n, ok, err)
			}
			if live, err := r.Live(persistence.Ref{Type: persistence.RefDocument, Namespace: "ns", ID: "plan", Revision: n}); live || err != nil {
				t.Errorf("revision %d: live %v, error %v", n, live, err)
			}
		}
		docs, more, err := r.Revisions("ns", "plan", 0, 2, 0)
		if err != nil || more || len(docs) != 2 || docs[0].Revision != 1 || docs[1].Revision != 4 {
			t.Errorf("revisions: %d %v %v", len(docs), more, err)
		}
		inbound(t, r, source.References[0], persistence.Ref{}, 10)
	})
	stored(t, s, note("ns", "plan", 1))
	stored(t, s, note("ns", "plan", 4))
	stored(t, s, note("far", "plan", 1))
	if usage(t, s, "far") != far {
		t.Error("another namespace is charged")
	}
	listed(t, s, persistence.HeadFilter{}, "plan", "target")
}

// inbound fails unless those refer to target, written namespace/id@revision.
func inbound(t *testing.T, r persistence.Reader, target, after persistence.Ref, limit int, want ...string) {
	t.Helper()
	refs, err := r.Inbound(target, after, limit)
	got := []string{}
	for _, ref := range refs {
		got = append(got, fmt.Sprintf("%s/%s@%d", ref.Namespace, ref.ID, ref.Revision))
		if ref.Type != persistence.RefDocument {
			t.Errorf("a source of type %s", ref.Type)
		}
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("inbound of %+v after %+v, at most %d:\n got %q (%v)\nwant %q", target, after, limit, got, err, want)
	}
}

func testInbound(t *testing.T, s persistence.Store) {
	put(t, s, note("ns", "t", 1), note("ns", "t", 2), note("far", "t", 1))
	first := persistence.Ref{Type: persistence.RefDocument, Namespace: "ns", ID: "t", Revision: 1}
	second, far := first, first
	second.Revision, far.Namespace = 2, "far"
	u := pending("ns", "t", 1, "x")
	u.ArtifactID = "t" // named like the document
	committed(t, s, u)
	whole := artifactRef(u)
	points := func(namespace, id string, revision int64, refs ...persistence.Ref) {
		d := note(namespace, id, revision)
		d.References = refs
		put(t, s, d)
	}
	points("ns", "b", 1, first, whole, first) // twice is one
	points("ns", "b", 2)
	points("ns", "b", 3, second)
	points("ns", "b", 4, first)
	points("ns", "B", 1, first, second)
	points("ns", "b-", 1, first)
	points("a", "z", 1, first)
	points("ns", "t", 3, first, whole) // of the same document
	put(t, s, grave("ns", "b", 5))     // older revisions keep theirs
	for n := int64(1); n <= 11; n++ {  // by number, not by digits
		points("z", "many", n, far)
	}
	all := []string{"a/z@1", "ns/B@1", "ns/b@1", "ns/b@4", "ns/b-@1", "ns/t@3"}
	many := []string{}
	for n := range 11 {
		many = append(many, fmt.Sprintf("z/many@%d", n+1))
	}
	view(t, s, func(r persistence.Reader) {
		inbound(t, r, first, persistence.Ref{}, 100, all...)
		inbound(t, r, second, persistence.Ref{}, 100, "ns/B@1", "ns/b@3")
		inbound(t, r, whole, persistence.Ref{}, 100, "ns/b@1", "ns/t@3")
		inbound(t, r, far, persistence.Ref{}, 100, many...)
		unknown := whole
		unknown.Namespace = "far"
		inbound(t, r, unknown, persistence.Ref{}, 100)
		pageInbound(t, r, first, all)
		pageInbound(t, r, far, many)
		inbound(t, r, first, persistence.Ref{Type: persistence.RefDocument, Namespace: "ns", ID: "b", Revision: 2}, 2, "ns/b@4", "ns/b-@1") // a place, no source
		inbound(t, r, first, persistence.Ref{Type: persistence.RefDocument, Namespace: "zz"}, 2)
	})
	do(t, s, purges("ns", "b", 1))
	view(t, s, func(r persistence.Reader) {
		inbound(t, r, first, persistence.Ref{}, 100, slices.Delete(slices.Clone(all), 2, 3)...)
		inbound(t, r, whole, persistence.Ref{}, 100, "ns/t@3")
	})
}

// pageInbound reads the sources of a target in pages of every size.
func pageInbound(t *testing.T, r persistence.Reader, target persistence.Ref, want []string) {
	t.Helper()
	for limit := 1; limit <= len(want)+1; limit++ {
		after := persistence.Ref{}
		for from := 0; from < len(want); from += limit {
			page := want[from:min(from+limit, len(want))]
			inbound(t, r, target, after, limit, page...)
			refs, err := r.Inbound(target, after, limit)
			if err != nil || len(refs) == 0 {
				t.Errorf("a page behind %+v: %d %v", after, len(refs), err)
				return
			}
			after = refs[len(refs)-1]
		}
		inbound(t, r, target, after, limit)
	}
}

func testNamespaceFacts(t *testing.T, s persistence.Store) {
	facts := func(after string, limit int) (found []persistence.NamespaceFacts) {
		view(t, s, func(r persistence.Reader) {
			var err error
			if found, err = r.Namespaces(after, limit); err != nil {
				t.Error(err)
			}
		})
		return found
	}
	if got := facts("", 10); len(got) > 0 {
		t.Errorf("an empty store has %+v", got)
	}
	sized := func(namespace, id string, revision int64, payload string) *persistence.Document {
		d := note(namespace, id, revision)
		d.Payload = []byte(payload)
		return d
	}
	put(t, s, sized("ns", "a", 1, "1234"), sized("ns", "a", 2, "12"), sized("ns", "b", 1, "1"), grave("ns", "b", 2), sized("ns", "c", 1, "123"))
	put(t, s, grave("Ns", "only", 1)) // never charged
	put(t, s, sized("t1:ns", "a", 1, "1"))
	open, gone, aborted := pending("ns", "open", 100, "x"), pending("ns", "gone", 1000, "x"), pending("ns", "aborted", 1, "x")
	gone.ExpiresAt = start // expired, and open until it is closed
	do(t, s, begins(open), begins(gone), begins(aborted), moves(aborted, persistence.UploadAborted))
	committed(t, s, pending("a", "x", 7, "x")) // nothing but an artifact
	do(t, s, begins(pending("b", "x", 8, "x")), purges("ns", "a", 1))
	empty := pending("empty", "x", 9, "x") // nothing any more
	committed(t, s, empty)
	do(t, s, purgesArtifact(empty))
	want := []persistence.NamespaceFacts{
		{Namespace: "Ns", Deleted: 1, Revisions: 1},
		{Namespace: "a", Artifacts: 1, Bytes: 7},
		{Namespace: "b", Uploads: 1, Bytes: 8, Reserved: 8},
		{Namespace: "ns", Documents: 2, Deleted: 1, Revisions: 4, Uploads: 2, Bytes: 2 + 1 + 3 + 1100, Reserved: 1100},
		{Namespace: "t1:ns", Documents: 1, Revisions: 1, Bytes: 1},
	}
	if got := facts("", 10); !slices.Equal(got, want) {
		t.Errorf("namespaces\n got %+v\nwant %+v", got, want)
	}
	for i := range want {
		if got := facts(want[i].Namespace, 2); !slices.Equal(got, want[i+1:min(i+3, len(want))]) {
			t.Errorf("behind %s: %+v", want[i].Namespace, got)
		}
	}
	if got := facts("O", 1); len(got) != 1 || got[0] != want[1] {
		t.Errorf("behind a place that is no namespace: %+v", got)
	}
}
