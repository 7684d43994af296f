package sqlite

// These tests look inside: the flaws they plant cannot be written from outside, because checksums are right.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// planted is a store in which fn wrote, and what the rules find in it.
func planted(t *testing.T, fn func(*tx) error) []Flaw {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = s.submit(t.Context(), func(t *tx) error {
		for n := int64(1); n <= 3; n++ {
			if err := t.PutRevision(plantedRevision(n, time.UnixMilli(1000*n))); err != nil {
				return err
			}
		}
		return fn(t)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	i, err := h.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	var found []Flaw
	if err := i.Rules(func(string, int64, int64) {}, func(f Flaw) { found = append(found, f) }); err != nil {
		t.Fatal(err)
	}
	return found
}

// plantedRevision is a revision of ns/d.
func plantedRevision(n int64, at time.Time) *persistence.Document {
	return &persistence.Document{
		Namespace: "ns", ID: "d", Kind: "k", SchemaVersion: "1", Revision: n, CreatedAt: time.UnixMilli(1000), UpdatedAt: at,
		Payload: []byte(fmt.Sprint(n)),
	}
}

// reseal writes a revision in the place of one, with its checksum right.
func reseal(t *tx, number int64, d *persistence.Document) error {
	return t.write("UPDATE revisions SET revision = ?, updated = ?, sum = ? WHERE revision = ?",
		d.Revision, d.UpdatedAt.UnixMilli(), checksum(d, nil), number)
}

// TestSealedFlaws: flaws under a right checksum are found too.
func TestSealedFlaws(t *testing.T) {
	tests := []struct {
		name  string
		plant func(*tx) error
		want  FlawKind // "" is none
		where string
	}{
		{"nothing", func(*tx) error { return nil }, "", ""},
		{"a purge", func(t *tx) error { return t.PurgeRevision("ns", "d", 2) }, "", ""},
		{"older than its predecessor", func(t *tx) error {
			d := plantedRevision(2, time.UnixMilli(999))
			d.Payload = []byte("2")
			return reseal(t, 2, d)
		}, FlawTime, "ns/d@2"},
		{"numbered 0", func(t *tx) error {
			d := plantedRevision(0, time.UnixMilli(1000))
			d.Payload = []byte("1")
			return reseal(t, 1, d)
		}, FlawNumber, "ns/d@0"},
		{"open and ended", func(t *tx) error {
			u := persistence.Upload{Namespace: "ns", ID: "u", ArtifactID: "a", State: persistence.UploadPending}
			if err := t.PutUpload(&u); err != nil {
				return err
			}
			row := upload{Upload: u, closed: 5}
			row.ExpiresAt = persistence.Truncate(u.ExpiresAt)
			return t.write("UPDATE uploads SET closed = 5, sum = ? WHERE id = 'u'", row.sum())
		}, FlawUploadState, "ns/u"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found := planted(t, tt.plant)
			if tt.want == "" && len(found) != 0 {
				t.Errorf("found %+v", found)
			}
			if tt.want != "" && (len(found) == 0 || found[0].Kind != tt.want || found[0].Where != tt.where) {
				t.Errorf("found %+v, wanted %s at %s", found, tt.want, tt.where)
			}
		})
	}
}

// TestInspectionsDoNotSort: the long queries give their rows in the order of an index, so that no table is gathered in
// memory or in a temporary file.
func TestInspectionsDoNotSort(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	i, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	for _, text := range []string{inspectAll, inspectOne, inboundBySource, needs, uploadColumns + "FROM uploads ORDER BY seq", recordsInOrder, strayRecords} {
		var plan []string
		err := i.each("EXPLAIN QUERY PLAN "+text, func(r row) error {
			plan = append(plan, r.text(3))
			return nil
		}, make([]any, strings.Count(text, "?"))...)
		if err != nil {
			t.Fatal(err)
		}
		if p := strings.Join(plan, "\n"); strings.Contains(p, "TEMP B-TREE") {
			t.Errorf("%s\nsorts:\n%s", text, p)
		}
	}
}
