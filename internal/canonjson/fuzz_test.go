package canonjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// seeds are texts near every rule and every branch of the grammar.
var seeds = []string{
	`{"a":[1,2.50,-0,1e5,"x\u00e9\ud83d\ude00\n",true,false,null,{}]}`,
	` [ { "a" : { } , "b" : [ ] } ] `,
	`{"a":1,"\u0061":2}`, `{"":{"":[""]}}`, `{"__proto__":1,"a\u0000":2}`,
	`"\ud800"`, `"\udc00\ud800"`, `{"\ud800":1}`, `"\ud800\u0041\"`, `"\u12"`,
	`9007199254740993`, `1e400`, `1e-400`, `100000000000000000000`, `0.1e1`, `-`, `01`, `1.`, `1e`,
	"1" + strings.Repeat("0", 900) + "e-900",
	nested(64), nested(65), strings.Repeat("[", 70), strings.Repeat(`{"a":`, 66) + "1" + strings.Repeat("}", 66),
	`[[[1,2],{"a":[]}],"\ud800x",1e999]`,
	`[[[]],[]]`, `"\ud800xude00"`,
	`{"id":1,"p":{"a":[[1]],"b":2},"id":2}`,
	"{" + manyMembers(40) + "}", "{" + manyMembers(20) + `,"m3":1}`,
	"\uFEFF1", "\xff", "\"\xed\xa0\x80\"", "[1]\x00", "tru", "nullx", "", " ",
	`{"\ufb33":1,"\ud83d\ude02":2,"z":3}`,
}

// FuzzParse compares with encoding/json, which is lenient: whatever it refuses we refuse,
// and what we refuse in addition must break a rule.
func FuzzParse(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, flaw, err := canonjson.Parse(text, canonjson.Limits{})
		checkSyntax(t, text, err)
		checkLimits(t, text, err)
		if err != nil {
			if !v.IsAbsent() || flaw != nil {
				t.Fatalf("error %v with value %v and flaw %v", err, v, flaw)
			}
			return
		}
		if !json.Valid(v.AppendJSON(nil)) {
			t.Fatalf("written as %s", v)
		}
		facts := inspect(t, text)
		if flaw != nil {
			checkFlawFact(t, flaw, facts, text)
			return
		}
		if facts.duplicate || facts.depth != v.Depth() || facts.nodes != v.Nodes() || facts.nulName != v.HasNULName() {
			t.Fatalf("%+v; ours: depth %d, %d nodes, NUL name %v", facts, v.Depth(), v.Nodes(), v.HasNULName())
		}
		checkCanonical(t, v)
	})
}

// checkSyntax compares our judgement of the grammar with encoding/json, which is told of
// encodings and byte order marks nothing.
func checkSyntax(t *testing.T, text []byte, err error) {
	t.Helper()
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > 9000 {
		return // encoding/json gives up at 10,000
	}
	if want := json.Valid(text) && utf8.Valid(text); want != (err == nil) {
		t.Fatalf("%q: error %v, encoding/json says %v", text, err, want)
	}
}

// checkLimits holds that limits never change what is JSON and where it is wrong.
func checkLimits(t *testing.T, text []byte, err error) {
	t.Helper()
	for _, l := range []canonjson.Limits{{Depth: 1}, {Nodes: 1}, {Depth: 2, Nodes: 3}} {
		v, flaw, other := canonjson.Parse(text, l)
		if fmt.Sprint(err) != fmt.Sprint(other) {
			t.Fatalf("%q: error %v, with limits %+v %v", text, err, l, other)
		}
		if other == nil && flaw == nil && (v.Depth() > l.Depth && l.Depth > 0 || v.Nodes() > l.Nodes && l.Nodes > 0) {
			t.Fatalf("%q: depth %d and %d nodes within %+v", text, v.Depth(), v.Nodes(), l)
		}
		if other == nil && !json.Valid(v.AppendJSON(nil)) {
			t.Fatalf("%q: kept %s", text, v)
		}
	}
}

// facts are what encoding/json's tokens tell of a text.
type facts struct {
	depth, nodes       int
	duplicate, nulName bool
}

// inspect counts over the tokens of a valid text.
func inspect(t *testing.T, text []byte) (f facts) {
	t.Helper()
	type object struct {
		names  map[string]bool // nil for an array
		isName bool
	}
	var open []object
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return f
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			open = open[:len(open)-1]
			continue
		}
		if n := len(open); n > 0 && open[n-1].names != nil {
			open[n-1].isName = !open[n-1].isName
			if open[n-1].isName {
				name := token.(string)
				f.duplicate = f.duplicate || open[n-1].names[name]
				f.nulName = f.nulName || strings.Contains(name, "\x00")
				open[n-1].names[name] = true
				continue
			}
		}
		f.nodes++
		switch token {
		case json.Delim('{'):
			open = append(open, object{names: map[string]bool{}})
		case json.Delim('['):
			open = append(open, object{})
		}
		f.depth = max(f.depth, len(open))
	}
}

// checkFlawFact holds a flaw against what encoding/json sees.
func checkFlawFact(t *testing.T, flaw *canonjson.Flaw, f facts, text []byte) {
	t.Helper()
	ok := false
	switch flaw.Rule {
	case canonjson.DuplicateName:
		ok = f.duplicate
	case canonjson.TooDeep:
		ok = f.depth > canonjson.DefaultDepth
	case canonjson.TooManyNodes:
		ok = f.nodes > canonjson.DefaultNodes
	case canonjson.LoneSurrogate:
		ok = strings.Contains(strings.ToLower(string(text)), `\ud`)
	case canonjson.NumberRange, canonjson.NumberExact:
		number := text[flaw.Offset:]
		number = number[:len(number)-len(bytes.TrimLeft(number, "+-.0123456789eE"))]
		ok = json.Valid(number) && len(number) > 4
	}
	if !ok || flaw.Offset < 0 || flaw.Offset >= len(text) || flaw.Message == "" || len(flaw.Pointer) > 1024 {
		t.Fatalf("%q: flaw %+v, but %+v", text, flaw, f)
	}
}

// checkCanonical holds that the canonical form is the same value and its own canonical form.
func checkCanonical(t *testing.T, v canonjson.Value) {
	t.Helper()
	canonical := v.AppendCanonical(nil)
	w, flaw, err := canonjson.Parse(canonical, canonjson.Limits{})
	if err != nil || flaw != nil && flaw.Rule != canonjson.NumberExact {
		t.Fatalf("%s: %v, %v", canonical, flaw, err)
	}
	if again := w.AppendCanonical(nil); !bytes.Equal(again, canonical) {
		t.Fatalf("%s became %s", canonical, again)
	}
	if !v.Equal(w) || w.Depth() != v.Depth() || w.Nodes() != v.Nodes() {
		t.Fatalf("%s is not equal to %s", v, w)
	}
}

// FuzzCanonical compares what the canonical form says with what encoding/json reads from the
// text itself, and turns the members of objects round.
func FuzzCanonical(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
		if err != nil {
			var flaw *canonjson.Flaw
			var syntax *canonjson.SyntaxError
			if !errors.As(err, &flaw) && !errors.As(err, &syntax) {
				t.Fatalf("error %T", err)
			}
			return
		}
		canonical := v.AppendCanonical(nil)
		if turned := reversed(v).AppendCanonical(nil); !bytes.Equal(turned, canonical) {
			t.Fatalf("%s, with members reversed %s", canonical, turned)
		}
		raw := canonjson.Raw(canonical)
		if raw.Kind() != v.Kind() || !raw.Equal(v) || raw.Len() != v.Len() || !reflect.DeepEqual(raw.Any(), v.Any()) {
			t.Fatalf("%s as a raw value is another", canonical)
		}
		var ours, theirs any
		if err := json.Unmarshal(canonical, &ours); err != nil {
			t.Fatalf("%s: %v", canonical, err)
		}
		if len(text) > 700 {
			return // strconv reads longer literals wrongly; TestFloatOfLongLiterals has them
		}
		if err := json.Unmarshal([]byte(text), &theirs); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !same(ours, theirs) {
			t.Fatalf("%s became %s", text, canonical)
		}
	})
}

// same compares decoded values; -0 is 0.
func same(a, b any) bool {
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		return ok && a == b && !math.IsNaN(a)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !same(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			other, ok := b[name]
			if !ok || !same(value, other) {
				return false
			}
		}
		return true
	}
	return a == b
}
