package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// ids lists the ids of documents.
func ids(docs []*persistence.Document) (ids []string) {
	for _, d := range docs {
		ids = append(ids, d.ID)
	}
	return ids
}

// list gives the ids that a filter selects, in one page, and fails when it says that there are more.
func list(t *testing.T, s persistence.Store, namespace string, f persistence.HeadFilter) (found []string) {
	t.Helper()
	if f.Limit == 0 {
		f.Limit = 1000
	}
	view(t, s, func(r persistence.Reader) {
		docs, more, err := r.Heads(namespace, f)
		if err != nil || more {
			t.Errorf("list %+v: more %v, error %v", f, more, err)
		}
		found = ids(docs)
	})
	return found
}

// listed fails when a list is not as wanted.
func listed(t *testing.T, s persistence.Store, f persistence.HeadFilter, want ...string) {
	t.Helper()
	if got := list(t, s, "ns", f); !slices.Equal(got, want) {
		t.Errorf("list %+v:\n got %q\nwant %q", f, got, want)
	}
}

func testOrder(t *testing.T, s persistence.Store) {
	// In byte order: '-' '.' digits, upper case, '_', lower case.
	want := []string{
		"0", "00", "1", "10", "2", "A", "A-", "A.", "A0", "AA", "Aa", "B", "Z", "_", "__", "a", "a-", "a-b", "a.", "a.b",
		"a0", "aA", "a_", "aa", "ab", "b", "z",
	}
	for i := range want {
		put(t, s, note("ns", want[(i*11)%len(want)], 1)) // 11 and 27 have no common factor
	}
	listed(t, s, persistence.HeadFilter{}, want...)
	for i, id := range want {
		listed(t, s, persistence.HeadFilter{After: id}, want[i+1:]...)
	}
	listed(t, s, persistence.HeadFilter{After: "A+"}, want[6:]...) // no id, but a place: behind "A", before "A-"
	listed(t, s, persistence.HeadFilter{After: "zz"})
}

func testFilter(t *testing.T, s persistence.Store) {
	kinds := map[string]string{"a": "note", "b": "Note", "c": "note", "d": "task", "e": "note", "f": "task", "g": "note "}
	for id, kind := range kinds {
		d := note("ns", id, 1)
		d.Kind = kind
		put(t, s, d)
	}
	for _, id := range []string{"c", "f"} {
		d := grave("ns", id, 2)
		d.Kind = kinds[id]
		put(t, s, d)
	}
	moved := note("ns", "e", 2)
	moved.Kind = "task"
	put(t, s, moved)
	put(t, s, note("other", "x", 1))

	listed(t, s, persistence.HeadFilter{}, "a", "b", "d", "e", "g")
	listed(t, s, persistence.HeadFilter{IncludeDeleted: true}, "a", "b", "c", "d", "e", "f", "g")
	listed(t, s, persistence.HeadFilter{Kind: "note"}, "a")
	listed(t, s, persistence.HeadFilter{Kind: "note", IncludeDeleted: true}, "a", "c")
	listed(t, s, persistence.HeadFilter{Kind: "task"}, "d", "e")
	listed(t, s, persistence.HeadFilter{Kind: "task", IncludeDeleted: true}, "d", "e", "f")
	listed(t, s, persistence.HeadFilter{Kind: "task", IncludeDeleted: true, After: "d"}, "e", "f")
	listed(t, s, persistence.HeadFilter{Kind: "Note"}, "b")
	listed(t, s, persistence.HeadFilter{Kind: "note "}, "g")
	listed(t, s, persistence.HeadFilter{Kind: "not"})
	listed(t, s, persistence.HeadFilter{Kind: "%"})
	if got := list(t, s, "nowhere", persistence.HeadFilter{IncludeDeleted: true}); len(got) > 0 {
		t.Errorf("an unknown namespace lists %q", got)
	}
}

func testPages(t *testing.T, s persistence.Store) {
	var want []string
	for i := range 23 {
		d := note("ns", fmt.Sprintf("d%02d", i), 1)
		d.Kind = []string{"even", "odd"}[i%2]
		if i%5 == 4 {
			d.Deleted, d.Payload = true, nil
		}
		put(t, s, d)
		want = append(want, d.ID)
	}
	for _, f := range []persistence.HeadFilter{
		{IncludeDeleted: true}, {}, {Kind: "odd"}, {Kind: "odd", IncludeDeleted: true}, {Kind: "even", IncludeDeleted: true},
	} {
		all := list(t, s, "ns", f)
		if f.IncludeDeleted && f.Kind == "" && !slices.Equal(all, want) {
			t.Errorf("all: %q", all)
		}
		for _, limit := range []int{1, 2, 3, len(all) - 1, len(all), len(all) + 1} {
			f.Limit, f.After = limit, ""
			walk(t, s, f, all)
		}
	}
	testPageBytes(t, s)
}

// walk pages through a list and fails when a page is longer or shorter than its limit asks, or when the pages do not
// add up.
func walk(t *testing.T, s persistence.Store, f persistence.HeadFilter, want []string) {
	t.Helper()
	var got []string
	for more := true; more; {
		view(t, s, func(r persistence.Reader) {
			var docs []*persistence.Document
			var err error
			docs, more, err = r.Heads("ns", f)
			got = append(got, ids(docs)...)
			switch {
			case err != nil:
				t.Error(err)
			case more && len(docs) != f.Limit, len(docs) > f.Limit, more != (len(got) < len(want)):
				t.Errorf("%+v: page of %d, more %v, %d of %d so far", f, len(docs), more, len(got), len(want))
				more = false
			case more:
				f.After = docs[len(docs)-1].ID
			}
		})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v: pages give %q, want %q", f, got, want)
	}
}

// testPageBytes checks the bound in bytes: it is never exceeded but by a single entry.
func testPageBytes(t *testing.T, s persistence.Store) {
	for i, size := range []int{10, 10, 30, 10, 10} {
		d := note("bytes", fmt.Sprint(i), 1)
		d.Payload = append(append([]byte(`"`), bytes.Repeat([]byte("x"), size-2)...), '"')
		put(t, s, d)
	}
	for _, test := range []struct {
		after    string
		maxBytes int
		want     string
		more     bool
	}{
		{"", 0, "[0 1 2 3 4]", false}, {"", 70, "[0 1 2 3 4]", false}, {"", 69, "[0 1 2 3]", true}, {"", 20, "[0 1]", true},
		{"", 19, "[0]", true}, {"", 1, "[0]", true}, {"1", 5, "[2]", true}, {"3", 1, "[4]", false}, {"2", 20, "[3 4]", false},
	} {
		view(t, s, func(r persistence.Reader) {
			docs, more, err := r.Heads("bytes", persistence.HeadFilter{After: test.after, Limit: 10, MaxBytes: test.maxBytes})
			if got := fmt.Sprint(ids(docs)); err != nil || got != test.want || more != test.more {
				t.Errorf("after %q within %d bytes: %s %v %v, want %s %v", test.after, test.maxBytes, got, more, err, test.want, test.more)
			}
		})
	}
}

func testRevisionPages(t *testing.T, s persistence.Store) {
	size := 0
	for n := int64(1); n <= 7; n++ {
		d := note("ns", "plan", n)
		if n == 4 {
			d = grave("ns", "plan", n)
		}
		size = max(size, len(d.Payload))
		put(t, s, d)
	}
	put(t, s, note("ns", "plan2", 1))
	for _, test := range []struct {
		after           int64
		limit, maxBytes int
		want            string
		more            bool
	}{
		{0, 10, 0, "[1 2 3 4 5 6 7]", false}, {0, 7, 0, "[1 2 3 4 5 6 7]", false}, {0, 6, 0, "[1 2 3 4 5 6]", true},
		{3, 2, 0, "[4 5]", true}, {6, 1, 0, "[7]", false}, {7, 5, 0, "[]", false}, {99, 5, 0, "[]", false},
		{0, 10, 1, "[1]", true}, {0, 10, 2 * size, "[1 2]", true}, {2, 10, 2 * size, "[3 4 5]", true}, {6, 10, 1, "[7]", false},
	} {
		view(t, s, func(r persistence.Reader) {
			docs, more, err := r.Revisions("ns", "plan", test.after, test.limit, test.maxBytes)
			got := []int64{}
			for _, d := range docs {
				got = append(got, d.Revision)
			}
			if err != nil || fmt.Sprint(got) != test.want || more != test.more {
				t.Errorf("%+v: got %v %v %v", test, got, more, err)
			}
		})
	}
	view(t, s, func(r persistence.Reader) {
		if docs, more, err := r.Revisions("ns", "never", 0, 5, 0); err != nil || more || len(docs) > 0 {
			t.Errorf("revisions of an unknown id: %d %v %v", len(docs), more, err)
		}
	})
}

func testReferences(t *testing.T, s persistence.Store) {
	put(t, s, note("ns", "target", 1))
	put(t, s, note("far", "target", 1))
	d := note("ns", "source", 1)
	d.References = []persistence.Ref{
		{Type: persistence.RefDocument, Namespace: "ns", ID: "target", Revision: 1},
		{Type: persistence.RefDocument, Namespace: "far", ID: "target", Revision: 1},
		{Type: persistence.RefDocument, Namespace: "ns", ID: "target", Revision: 1}, // duplicates stay
		{Type: persistence.RefArtifact, Namespace: "ns", ID: "target"},
	}
	put(t, s, d)
	stored(t, s, d)
	next := note("ns", "source", 2)
	next.References = []persistence.Ref{{Type: persistence.RefDocument, Namespace: "ns", ID: "source", Revision: 1}}
	put(t, s, next)
	put(t, s, grave("ns", "source", 3))
	stored(t, s, d) // older revisions keep theirs
	stored(t, s, next)
	many := note("ns", "many", 1)
	for i := range 255 {
		many.References = append(many.References, persistence.Ref{
			Type: persistence.RefDocument, Namespace: "ns", ID: fmt.Sprint("x", (i*7)%255), Revision: persistence.MaxSafe,
		})
	}
	put(t, s, many)
	stored(t, s, many)
	view(t, s, func(r persistence.Reader) {
		for ref, want := range map[persistence.Ref]bool{
			d.References[0]: true, d.References[1]: true, d.References[3]: false,
			{Type: persistence.RefDocument, Namespace: "ns", ID: "target", Revision: 2}: false,
			{Type: persistence.RefDocument, Namespace: "no", ID: "target", Revision: 1}: false,
		} {
			if live, err := r.Live(ref); err != nil || live != want {
				t.Errorf("live %+v: %v %v", ref, live, err)
			}
		}
	})
}

func testUsage(t *testing.T, s persistence.Store) {
	check := func(namespace string, want int) {
		t.Helper()
		if got := usage(t, s, namespace); got != int64(want) {
			t.Errorf("usage of %s is %d, want %d", namespace, got, want)
		}
	}
	check("ns", 0)
	sized := func(namespace, id string, revision int64, payload string) *persistence.Document {
		d := note(namespace, id, revision)
		d.Payload = []byte(payload)
		return d
	}
	put(t, s, sized("ns", "a", 1, `"12345678"`))
	check("ns", 10)
	put(t, s, sized("ns", "a", 2, `"€"`)) // bytes, not characters; every revision counts
	check("ns", 15)
	put(t, s, grave("ns", "a", 3))
	check("ns", 15)
	buried := sized("ns", "b", 1, `null`)
	buried.Deleted = true // a tombstone is free however its null is written
	put(t, s, buried)
	check("ns", 15)
	put(t, s, sized("other", "a", 1, `1`), sized("ns", "c", 1, `12`))
	check("ns", 17)
	check("other", 1)
}
