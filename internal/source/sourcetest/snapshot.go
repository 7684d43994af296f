package sourcetest

import (
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Snapshot looks whether all blocks of a query see one moment: between the root's rows and the relation's, another client
// moves all children to another parent.
func Snapshot(t *testing.T, p Place) {
	moved := false
	var w *world
	w = open(t, p, family, Options{OnSQL: func(text string, _ int) {
		if w != nil && !moved && strings.Contains(text, `"Badge"`) && strings.HasPrefix(text, "SELECT") {
			moved = true
			p.Exec(t, `UPDATE "Badge" SET owner = 'p2'; DELETE FROM "Person" WHERE _id = 'p1'`)
		}
	}})
	w.insert("Person", `[{"_id":"p1"},{"_id":"p2"}]`)
	w.insert("Badge", `[{"_id":"b1","owner":"p1"}]`)
	b := w.block("Person", "_id")
	b.Kids = []*plan.Kid{w.kid("Person", "badges", "_id")}
	w.want("in one moment", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), "p1 [b1]\np2 []")
	if !moved {
		t.Error("the other client never came")
	}
	w.want("afterwards", lines(w.read(&plan.Query{Root: b, Rows: true}).Rows), "p2 [b1]")
}
