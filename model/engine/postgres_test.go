package engine_test

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// postgresPlace is an empty PostgreSQL database, with a second schema for copies of tables.
func postgresPlace(t *testing.T) place {
	t.Helper()
	url := pgcluster.Start(t).NewDatabase(t)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Exec("CREATE SCHEMA kept"); err != nil {
		t.Fatal(err)
	}
	open := func(t *testing.T) plan.Source {
		t.Helper()
		s, err := postgres.Open(t.Context(), postgres.Config{Read: url, Write: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	return place{engine: sqlgen.EnginePostgres, db: db, other: "kept", open: open, again: postgresPlace}
}
