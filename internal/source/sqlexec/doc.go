// Package sqlexec carries out plans on a database that speaks SQL: what all such sources do alike.
//
//	x := &sqlexec.Executor{Engine: engine, Generator: sqlgen.Generator{Dialect: sqlgen.SQLite, Layout: tables.Layout}}
//	rows, err := x.Read(ctx, query)
//	applied, err := x.Apply(ctx, write, commit)
//
// A read sends one statement for the root block, one for each relation block whatever the number of parents, and one for
// each set of aggregate columns over the same rows. A write chooses its rows by key, locks them, changes them by key, and
// judges the result, all in one transaction.
//
// An Engine is a database as its driver shows it. It is told statements and gives rows; it never builds SQL.
package sqlexec
