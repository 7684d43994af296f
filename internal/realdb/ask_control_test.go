package realdb_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFlattening guards the comparison itself: what must be seen as equal and what must not.
func TestFlattening(t *testing.T) {
	tests := []struct {
		name, json string
		want       []row
		differs    bool
	}{
		{"plain", `{"_id":1,"name":"a ","gone":null}`, []row{{"_id": "1", "name": "a"}}, false},
		{"parent", `{"_id":1,"p":{"name":"x","q":{"n":2}},"none":null}`, []row{{"_id": "1", "p.name": "x", "p.q.n": "2"}}, false},
		{"children", `{"_id":1,"c":[{"n":1},{"n":2}]}`, []row{{"_id": "1", "c.n": "1"}, {"_id": "1", "c.n": "2"}}, false},
		{"children in another order", `{"_id":1,"c":[{"n":2},{"n":1}]}`, []row{{"_id": "1", "c.n": "1"}, {"_id": "1", "c.n": "2"}}, true},
		{"no children", `{"_id":1,"c":[]}`, []row{{"_id": "1"}}, false},
		{"array of words", `{"_id":1,"c":["x","y"]}`, []row{{"_id": "1", "c": `["x","y"]`}}, false},
		{"decimals", `{"a":"0.990","b":0.99,"c":5.0}`, []row{{"a": "0.99", "b": "0.99", "c": "5"}}, false},
		{"another decimal", `{"a":"0.9900001"}`, []row{{"a": "0.99"}}, true},
		{"times", `{"a":"2021-01-02T00:00:00Z","b":"2021-01-02T03:04:05.6Z"}`, []row{{"a": "2021-01-02", "b": "2021-01-02 03:04:05.6"}}, false},
		{"another time", `{"a":"2021-01-02T00:00:01Z"}`, []row{{"a": "2021-01-02"}}, true},
		{"one value more", `{"a":1,"b":2}`, []row{{"a": "1"}}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := flatten(parsed(t, tt.json), "")
			if diff := cmp.Diff(tt.want, got); (diff != "") != tt.differs {
				t.Errorf("differs: %v, want %v\n%s", diff != "", tt.differs, diff)
			}
		})
	}
}
