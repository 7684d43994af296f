package sqlite_test

import (
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
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
