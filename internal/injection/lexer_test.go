package injection

import "testing"

// TestLexer holds the check itself: statements of ours pass, and planted ones are found.
func TestLexer(t *testing.T) {
	names := map[string]bool{"orders": true, "title": true, "order_id": true}
	for _, tt := range []struct {
		text string
		args int
		good bool
	}{
		{`SELECT t1."title" FROM "orders" AS t1 WHERE t1."title" = ?1 LIMIT ?2`, 2, true},
		{`SELECT t1."title" FROM "orders" AS t1 WHERE t1."title" = $1::text`, 1, true},
		{`UPDATE "orders" SET "title" = ?1 WHERE typeof("title") = 'integer'`, 1, true},
		{`SELECT "title" FROM "orders" WHERE "title" = 'first'`, 0, false},            // a literal
		{`SELECT "title" FROM "orders" WHERE "title" = '` + Marker + `'`, 0, false},   // input
		{`SELECT "title" FROM "orders" WHERE "title" = 12`, 0, false},                 // a number
		{`SELECT "title" FROM "orders" LIMIT ` + MarkerNumber, 0, false},              // input
		{`SELECT "title" FROM "orders" WHERE "title" = ?1`, 2, false},                 // an argument too many
		{`SELECT "title" FROM "orders" WHERE "title" = ?1 OR "title" = ?2`, 1, false}, // one too few
		{`SELECT "title" FROM "orders"; DELETE FROM "orders"`, 0, false},              // two statements
		{`SELECT "title" FROM "orders" --`, 0, false},                                 // comments
		{`SELECT "title" /* x */ FROM "orders"`, 0, false},
		{`SELECT "note" FROM "orders"`, 0, false},                         // a name that is none
		{`SELECT title FROM "orders"`, 0, false},                          // a bare name
		{`SELECT pg_sleep(1)`, 0, false},                                  // a function that is not ours
		{`SELECT $$x$$`, 0, false},                                        // a dollar quote
		{`SELECT E'\''`, 0, false},                                        // an escape string
		{`SELECT "title`, 0, false},                                       // no end
		{`SELECT "title" FROM "orders" WHERE "title" = "a""b"`, 0, false}, // a name with quotes
		{"SELECT `title`", 0, false},
		{"DROP TABLE \"orders\"", 0, false},
		{`SELECT "title" FROM "orders" WHERE "title" = ?`, 1, false}, // a placeholder without a number
		{"SELECT \x00", 0, false},
	} {
		if problem := CheckStatement(tt.text, tt.args, names); (problem == "") != tt.good {
			t.Errorf("%s: %q", tt.text, problem)
		}
	}
}
