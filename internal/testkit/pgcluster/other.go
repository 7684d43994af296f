//go:build !unix

// Package pgcluster starts a throw-away PostgreSQL cluster for tests, on systems that have users and signals.
package pgcluster

import "testing"

// Cluster is a running server.
type Cluster struct {
	URL      string
	Port     int
	Log, Bin string
}

// Start skips the test: there is no cluster here.
func Start(tb testing.TB) *Cluster {
	tb.Helper()
	tb.Skip("NOT RUN: throw-away PostgreSQL clusters need a Unix system")
	return nil
}

// NewDatabase is never reached.
func (c *Cluster) NewDatabase(testing.TB) string { return "" }

// NewRole is never reached.
func (c *Cluster) NewRole(testing.TB, string) (name, roleURL string) { return "", "" }

// Exec is never reached.
func (c *Cluster) Exec(testing.TB, string, string) {}
