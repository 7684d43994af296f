package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tabellion-mcp/tabellion/internal/source/postgres"
	"github.com/tabellion-mcp/tabellion/internal/source/sourcetest"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// TestSource runs the contract of sources.
func TestSource(t *testing.T) { sourcetest.Run(t, newPlace) }

// newPlace makes an empty database.
func newPlace(t testing.TB) sourcetest.Place {
	cluster := pgcluster.Start(t)
	return placeAt(t, cluster, cluster.NewDatabase(t))
}

// placeAt makes a place of a database.
func placeAt(t testing.TB, cluster *pgcluster.Cluster, url string) sourcetest.Place {
	return sourcetest.Place{
		Engine: sqlgen.EnginePostgres,
		Open: func(t testing.TB, o sourcetest.Options) plan.Source {
			t.Helper()
			c := postgres.Config{Read: url, Write: url, Timeout: o.Timeout, LockTimeout: o.LockTimeout, MaxUnindexed: o.MaxUnindexed, OnSQL: o.OnSQL, Now: o.Now}
			if o.NoWrites {
				c.Write = ""
			}
			s, err := postgres.Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Exec:  func(t testing.TB, script string) { t.Helper(); cluster.Exec(t, url, script) },
		Query: func(t testing.TB, text string) [][]string { t.Helper(); return query(t, url, text) },
		Plan: func(t testing.TB, s sourcetest.Sent) string {
			t.Helper()
			return explain(t, url, s)
		},
	}
}

// query gives rows as text.
func query(t testing.TB, url, text string) [][]string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, text, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	defer rows.Close()
	var out [][]string
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			t.Fatal(err)
		}
		line := make([]string, len(values))
		for i, v := range values {
			line[i] = fmt.Sprint(v)
		}
		out = append(out, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

// explain gives the plan of a statement for any arguments.
func explain(t testing.TB, url string, s sourcetest.Sent) string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	execute := "EXPLAIN EXECUTE q"
	if s.Args > 0 {
		execute += "(NULL" + strings.Repeat(", NULL", s.Args-1) + ")"
	}
	results, err := conn.PgConn().Exec(ctx, "SET plan_cache_mode = force_generic_plan; PREPARE q AS "+s.Text+"; "+execute).ReadAll()
	if err != nil {
		t.Fatalf("%v in %s", err, s.Text)
	}
	var lines []string
	for _, row := range results[len(results)-1].Rows {
		lines = append(lines, string(row[0]))
	}
	return strings.Join(lines, "\n")
}
