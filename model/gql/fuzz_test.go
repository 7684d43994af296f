package gql_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tabellion-mcp/tabellion/model/gql"
)

// FuzzParse: no text makes the parser panic, and the plain form of a query means the query.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "Course", "Course($condition: @c0) -> { title }", "Course{title,,code,}", "Course { lessons($skip:@k1,$limit:@l1){ title, assets { kind } } }",
		"Course($group:@g0,$having:@h0){ status, n }", "Course(", "Course { a: b }", "{", "@", "->", "A{b{c{d{}}}}", "Course{meta.level}", "Course\x00", "Course{\xff}",
		"$ { $ }", "a...{..}", "A()()", "A{b()}", "A(limit:@1,$limit:@2)",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := gql.Parse(text)
		if err != nil {
			if q != nil {
				t.Fatal("an error with a query")
			}
			return
		}
		printed := q.String()
		again, err := gql.Parse(printed)
		if err != nil {
			t.Fatalf("%q prints as %q, which does not parse: %v", text, printed, err)
		}
		places := cmpopts.IgnoreFields(gql.Query{}, "At")
		if diff := cmp.Diff(q, again, places, cmpopts.IgnoreFields(gql.Item{}, "At"), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q prints as %q, which means something else: %s", text, printed, diff)
		}
		if again.String() != printed {
			t.Fatalf("%q prints as %q, then as %q", text, printed, again.String())
		}
	})
}
