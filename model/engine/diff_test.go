package engine_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// diff says how got is not want, "" when it is. Members have no order, numbers compare by value. An array is compared in
// order when ordered; arrays inside are, when they belong to a relation of sorted, and as multisets otherwise. The strings
// "$ts" and "$id:XX" in want stand for a time of now and a generated id.
func diff(want, got canonjson.Value, ordered bool, sorted map[string]bool) string {
	if s := want.Str(); s == "$ts" {
		if !timeIsNow(got) {
			return fmt.Sprintf("%v is no time of now", got)
		}
		return ""
	} else if prefix, is := strings.CutPrefix(s, "$id:"); is {
		if !regexp.MustCompile("^" + prefix + "[0-9A-Z]{16}$").MatchString(got.Str()) {
			return fmt.Sprintf("%v is no id made with %s", got, prefix)
		}
		return ""
	}
	switch {
	case want.Kind() != got.Kind():
		return fmt.Sprintf("want %v, got %v", want, got)
	case want.Kind() == canonjson.KindArray && ordered:
		return diffList(want.Items(), got.Items(), sorted)
	case want.Kind() == canonjson.KindArray:
		return diffSet(want.Items(), got.Items(), sorted)
	case want.Kind() == canonjson.KindObject:
		return diffObject(want, got, sorted)
	case want.Kind() == canonjson.KindNumber && want.Literal() == got.Literal(): // beyond 2^53 digits count
	case !want.Equal(got):
		return fmt.Sprintf("want %v, got %v", want, got)
	}
	return ""
}

// diffObject compares members by name.
func diffObject(want, got canonjson.Value, sorted map[string]bool) string {
	for _, m := range got.Members() {
		if want.Get(m.Name).IsAbsent() {
			return fmt.Sprintf("%q is one too many in %v", m.Name, got)
		}
	}
	for _, m := range want.Members() {
		g := got.Get(m.Name)
		if g.IsAbsent() {
			return fmt.Sprintf("%q is missing in %v", m.Name, got)
		}
		if why := diff(m.Value, g, sorted[m.Name] || m.Name == "items", sorted); why != "" {
			return m.Name + ": " + why
		}
	}
	return ""
}

// diffList compares item by item.
func diffList(want, got []canonjson.Value, sorted map[string]bool) string {
	if len(want) != len(got) {
		return fmt.Sprintf("want %d items, got %d", len(want), len(got))
	}
	for i := range want {
		if why := diff(want[i], got[i], false, sorted); why != "" {
			return fmt.Sprintf("%d: %s", i, why)
		}
	}
	return ""
}

// diffSet finds for each wanted item one that no other has taken.
func diffSet(want, got []canonjson.Value, sorted map[string]bool) string {
	if len(want) != len(got) {
		return fmt.Sprintf("want %d items, got %d", len(want), len(got))
	}
	taken := make([]bool, len(got))
next:
	for _, w := range want {
		for i, g := range got {
			if !taken[i] && diff(w, g, false, sorted) == "" {
				taken[i] = true
				continue next
			}
		}
		return fmt.Sprintf("no item is %v", w)
	}
	return ""
}

// TestDiff is the control of the comparison: what must differ does.
func TestDiff(t *testing.T) {
	for _, tt := range []struct {
		want, got string
		ordered   bool
		same      bool
	}{
		{`[1,2]`, `[2,1]`, false, true},
		{`[1,2]`, `[2,1]`, true, false},
		{`[1,1]`, `[1,2]`, false, false},
		{`{"a":5,"b":1}`, `{"b":1,"a":5.0}`, false, true},
		{`{"a":5}`, `{"a":5,"b":1}`, false, false},
		{`{"a":5,"b":1}`, `{"a":5}`, false, false},
		{`{"a":null}`, `{}`, false, false},
		{`{"l":[1,2]}`, `{"l":[2,1]}`, false, false},
		{`{"m":[1,2]}`, `{"m":[2,1]}`, false, true},
		{`"$id:CO"`, `"COMX3K490N88UKNH3U"`, false, true},
		{`"$id:CO"`, `"COMX3K490N88UKNH3"`, false, false},
		{`"$ts"`, `11`, false, false},
	} {
		want, _ := canonjson.ParseStrict([]byte(tt.want), canonjson.Limits{})
		got, _ := canonjson.ParseStrict([]byte(tt.got), canonjson.Limits{})
		if why := diff(want, got, tt.ordered, map[string]bool{"l": true}); (why == "") != tt.same {
			t.Errorf("%s and %s, ordered %t: %q", tt.want, tt.got, tt.ordered, why)
		}
	}
}
