// Package sqlgen writes the SQL of plans: it is the only package that builds SQL text.
//
//	gen := sqlgen.Generator{Dialect: sqlgen.SQLite, Layout: layouts}
//	sel, err := gen.Root(query.Root, limit)
//	rows := db.Query(sel.Text, sel.Args...)
//
// Identifiers come from the definitions and the database's own catalog, quoted by doubling the quote. Values are always
// arguments, numbers of the plan (limits) among them: no text of a caller is ever part of a statement (security
// requirements, S33). Each Statement is one statement.
//
// What engines do differently is a Dialect. Its arguments are what the engine's driver takes without looking at types:
// for SQLite int64, float64, string, []byte and nil, for PostgreSQL text and nil, with a cast beside each placeholder.
//
// How a table really looks, as opposed to how the model describes it, is a Layout, which a source reads once.
package sqlgen
