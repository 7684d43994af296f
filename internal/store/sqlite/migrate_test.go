package sqlite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// oldFormats are the formats of which testdata holds a store.
var oldFormats = []int{1}

// TestOldFormats opens stores that earlier programs wrote: all that they held reads back.
func TestOldFormats(t *testing.T) {
	for _, format := range oldFormats {
		t.Run(fmt.Sprint(format), func(t *testing.T) {
			dir := unpack(t, format)
			isFormat(t, dir, format)
			s := openAt(t, dir, sqlite.Options{Clock: clock.NewManual(day)})
			_, known, _ := sqlite.Format(dir)
			isFormat(t, dir, known)
			readsBack(t, s, format)
			worksAnew(t, s)
		})
	}
}

// isFormat fails unless the folder has the format, and asking leaves no trace.
func isFormat(t *testing.T, dir string, want int) {
	t.Helper()
	before := names(t, dir)
	have, known, err := sqlite.Format(dir)
	if err != nil || have != want || known < have {
		t.Errorf("the format is %d of %d (%v), want %d", have, known, err, want)
	}
	if after := names(t, dir); !slices.Equal(before, after) {
		t.Errorf("asking for the format made %q of %q", after, before)
	}
}

// names lists a folder.
func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	no(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// readsBack compares the store with what was written down beside the kept file, and verifies the audit chains.
func readsBack(t *testing.T, s *sqlite.Store, format int) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("format%d.json", format)))
	no(t, err)
	var kept facts
	no(t, json.Unmarshal(want, &kept))
	f := readFacts(t, s)
	f.Signer = kept.Signer
	if format > 1 {
		readArtifacts(t, s, &f)
	}
	if got := f.text(t); string(got) != string(want) {
		t.Errorf("read back\n%s\nwant\n%s", got, want)
	}
	report, err := audit.Verify(t.Context(), s, kept.Signer)
	if err != nil || report.Writers != 2 || report.Rows != 16 || report.Heads != 2 || len(report.Damage) > 0 {
		t.Errorf("the audit trail: %+v (%v)", report, err)
	}
}

// worksAnew uses on a migrated store of format 1 what came later.
func worksAnew(t *testing.T, s *sqlite.Store) {
	t.Helper()
	plan := persistence.Ref{Type: persistence.RefDocument, Namespace: "ns", ID: "plan", Revision: 1}
	no(t, s.View(t.Context(), func(r persistence.Reader) error {
		refs, err := r.Inbound(plan, persistence.Ref{}, 10)
		got := []string{}
		for _, r := range refs {
			got = append(got, fmt.Sprintf("%s/%s@%d", r.Namespace, r.ID, r.Revision))
		}
		if want := []string{"ns/Linked@1", "ns/linked@1", "other/linked@1"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("inbound: %q (%v), want %q", got, err, want)
		}
		at, ok, err := r.Superseded("ns", "plan", 2)
		if err != nil || !ok || !at.Equal(firstWrites[2].UpdatedAt) {
			t.Errorf("superseded: %v %v %v", at, ok, err)
		}
		facts, err := r.Namespaces("", 10)
		if err != nil || len(facts) != 3 || facts[0].Documents != 3 || facts[0].Deleted != 1 || facts[0].Revisions != 9 {
			t.Errorf("namespaces: %+v (%v)", facts, err)
		}
		return nil
	}))
	before := bytesOf(t, s)
	fillArtifacts(t, s) // 100 and 101 reserved, an artifact of 102, one purged; a purged tombstone
	if got := bytesOf(t, s); got != before+303 {
		t.Errorf("usage went from %d to %d", before, got)
	}
	_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Now: day}, func(tx persistence.Tx) (o persistence.Outcome, err error) {
		return o, tx.PurgeRevision("ns", "linked", 1) // takes its old references along
	})
	no(t, err)
	no(t, s.View(t.Context(), func(r persistence.Reader) error {
		refs, err := r.Inbound(plan, persistence.Ref{}, 10)
		if len(refs) != 2 {
			t.Errorf("inbound after a purge: %+v", refs)
		}
		return err
	}))
}

// bytesOf is what counts against the quota of ns.
func bytesOf(t *testing.T, s *sqlite.Store) (n int64) {
	t.Helper()
	no(t, s.View(t.Context(), func(r persistence.Reader) (err error) {
		n, err = r.Usage("ns", day)
		return err
	}))
	return n
}

// TestMigrate migrates and does nothing else.
func TestMigrate(t *testing.T) {
	dir := unpack(t, 1)
	var steps []string
	from, to, err := sqlite.Migrate(t.Context(), dir, func(step, of int) { steps = append(steps, fmt.Sprint(step, "/", of)) })
	if err != nil || from != 1 || to != 2 || !slices.Equal(steps, []string{"1/1"}) {
		t.Errorf("from %d to %d, steps %q, %v", from, to, steps, err)
	}
	isFormat(t, dir, 2)
	if got := names(t, dir); !slices.Equal(got, []string{"tabellion.db", "tabellion.lock"}) {
		t.Errorf("the folder holds %q", got)
	}
	from, to, err = sqlite.Migrate(t.Context(), dir, func(int, int) { t.Error("there was nothing to do") })
	if err != nil || from != 2 || to != 2 {
		t.Errorf("again: from %d to %d, %v", from, to, err)
	}
	s := openAt(t, dir, sqlite.Options{Clock: clock.NewManual(day)})
	readsBack(t, s, 1)
	if _, _, err := sqlite.Migrate(t.Context(), dir, nil); !errors.Is(err, sqlite.ErrLocked) {
		t.Errorf("under an owner: got %v, want ErrLocked", err)
	}
}

// TestNoFormat asks for the format of what is none.
func TestNoFormat(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "never")
	if _, _, err := sqlite.Format(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("format of no folder: %v", err)
	}
	if _, _, err := sqlite.Migrate(t.Context(), dir, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("migration of no folder: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was made (%v)", err)
	}
	no(t, os.Mkdir(dir, 0o700))
	no(t, os.WriteFile(filepath.Join(dir, "tabellion.db"), nil, 0o600))
	isFormat(t, dir, 0) // killed before it was made
	no(t, os.WriteFile(filepath.Join(dir, "tabellion.db"), make([]byte, 5000), 0o600))
	if _, _, err := sqlite.Format(dir); err == nil {
		t.Error("zeros have a format")
	}
	raw(t, filepath.Dir(dir), "CREATE TABLE theirs (x)")
	raw(t, filepath.Dir(dir), "PRAGMA user_version=1")
	if _, _, err := sqlite.Format(filepath.Dir(dir)); err == nil {
		t.Error("a foreign database has a format")
	}
}
