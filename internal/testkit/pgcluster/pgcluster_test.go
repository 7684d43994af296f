//go:build unix

package pgcluster_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tabellion-mcp/tabellion/internal/testkit/pgcluster"
)

// TestNewDatabase makes two databases and finds them separate, and not sorted by code point.
func TestNewDatabase(t *testing.T) {
	c := pgcluster.Start(t)
	one, two := c.NewDatabase(t), c.NewDatabase(t)
	c.Exec(t, one, "CREATE TABLE only_here (n int)")
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, two)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var there, natural bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass('only_here') IS NOT NULL, 'a' < 'B'").Scan(&there, &natural); err != nil {
		t.Fatal(err)
	}
	if there || !natural {
		t.Errorf("table of the other database seen: %v; sorts as a language does: %v", there, natural)
	}
}

// TestNewRole makes a role that may log in, and not create tables.
func TestNewRole(t *testing.T) {
	c := pgcluster.Start(t)
	url := c.NewDatabase(t)
	name, roleURL := c.NewRole(t, url)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, roleURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var who string
	if err := conn.QueryRow(ctx, "SELECT current_user").Scan(&who); err != nil || who != name {
		t.Errorf("%q, %v; want %q", who, err, name)
	}
	if _, err := conn.Exec(ctx, "CREATE TABLE mine (n int)"); err == nil {
		t.Error("the role may create tables")
	}
}
