package modeldiff_test

import (
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlite"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// openSQLite opens a file as a source and closes it with the test.
func openSQLite(t *testing.T, file string) plan.Source {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Read: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// openPostgres opens a database as a source and closes it with the test.
func openPostgres(t *testing.T, url string) plan.Source {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Config{Read: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
