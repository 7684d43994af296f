//go:build unix

package modelaccess_test

import (
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/modelaccess/site"
	"github.com/tabellion-mcp/tabellion/model/engine"
)

// TestLabelsAreCut reads rows whose cells cannot be shown, in a field that the caller may not read but that a relation joins
// on: the labels of the answer, which name such cells, are about fields that he may read (S26).
func TestLabelsAreCut(t *testing.T) {
	p := site.SQLite(t)
	p.Exec(t, "CREATE TABLE person (id INTEGER PRIMARY KEY, seen INTEGER, room INTEGER)", "CREATE TABLE room (id INTEGER PRIMARY KEY, name TEXT)",
		"INSERT INTO person VALUES (1, 5, 7), (2, 'odd', 'hidden')", "INSERT INTO room VALUES (7, 'attic')")
	s := site.New(t, p, site.Config{Tables: true, Definitions: `[
		{"name":"Person","table":"person","key":["id"],"timestamps":false,"archive":false,"read":["staff"],"fields":{"_id":{"type":"int","column":"id"},"seen":"int","room":{"type":"int","read":["lead"]}},
		 "relations":{"place":{"model":"Room","type":"one","localField":"room","foreignField":"_id"}},"computes":{"places":{"type":"int","agg":{"$count":"place"}}}},
		{"name":"Room","table":"room","key":["id"],"timestamps":false,"archive":false,"read":["staff"],"fields":{"_id":{"type":"int","column":"id"},"name":"string"},
		 "relations":{"people":{"model":"Person","type":"many","localField":"_id","foreignField":"room"}}}]`})
	for _, gql := range []string{"Person { place { name } }", "Person { seen, place { name } }", "Person { places }", "Room { people { seen } }", "Person { room }"} {
		a := s.Call(t, people["staff"], "query", `{"gql":"`+gql+`"}`)
		if !a.OK {
			t.Errorf("%s: %s", gql, a.Said)
		}
		if strings.Contains(a.Said, `"field":"room"`) || strings.Contains(a.Said, `"room"`) {
			t.Errorf("%s tells of a field that the caller cannot see: %s", gql, a.Said)
		}
		answer, err := s.Engine.Query(t.Context(), s.As(people["staff"]), gql, site.JSON(t, "{}"), engine.Page{})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range answer.Unrepresentable {
			if u.Field == "room" {
				t.Errorf("%s: the engine tells of %s.%s", gql, u.Model, u.Field)
			}
		}
	}
	if a := s.Call(t, people["staff"], "query", `{"gql":"Person { seen }"}`); !strings.Contains(a.Said, `"field":"seen"`) {
		t.Errorf("the control: a cell that he may see and that cannot be shown is not named: %s", a.Said)
	}
}
