package sqlite_test

import (
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/store/storecheck"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/storetest"
)

// openAt opens a data folder and closes it at the end of the test.
func openAt(t *testing.T, dir string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	folders := map[persistence.Store]string{}
	open := func(t *testing.T, dir string) persistence.Store {
		s := openAt(t, dir, sqlite.Options{})
		folders[s] = dir
		return s
	}
	storetest.RunWith(t,
		func(t *testing.T) persistence.Store { return open(t, t.TempDir()) },
		storetest.Options{Reopen: func(t *testing.T, s persistence.Store) persistence.Store {
			if err := s.(*sqlite.Store).Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, folders[s])
		}})
}

func TestOthers(t *testing.T) {
	folders := map[storecheck.Store]string{}
	open := func(t *testing.T, dir string, c clock.Clock) storecheck.Store {
		s := openAt(t, dir, sqlite.Options{Clock: c})
		folders[s] = dir
		return s
	}
	storecheck.Run(t, storecheck.Suite{
		Open: func(t *testing.T, c clock.Clock) storecheck.Store { return open(t, t.TempDir(), c) },
		Reopen: func(t *testing.T, s storecheck.Store, c clock.Clock) storecheck.Store {
			if err := s.(*sqlite.Store).Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, folders[s], c)
		},
	})
}

// TestLikeMemory compares with the reference store under random calls.
func TestLikeMemory(t *testing.T) {
	for seed := range uint64(8) {
		storecheck.Compare(t, memory.New(nil), openAt(t, t.TempDir(), sqlite.Options{}), seed, 300)
	}
}
