// Package introspect stands between definitions and a database that exists: it writes definitions of what the tables are,
// for a person to review, and it names every difference between definitions and tables.
//
//	result := introspect.Definitions(tables)
//	for _, l := range result.Left { fmt.Println(l) }
//
//	findings := introspect.Check(registry.List(), tables, source.Features())
//
// The package is pure: tables come from a plan.Source. Comments of the database become descriptions only in the text that
// Definitions gives, never while serving.
package introspect
