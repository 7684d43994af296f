package canonjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// none is the rule of a text without a flaw.
const none canonjson.Rule = ""

// mustParse returns the tree of a text without flaws.
func mustParse(t testing.TB, text string) canonjson.Value {
	t.Helper()
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		t.Fatalf("parse %.80q: %v", text, err)
	}
	return v
}

// parseFlawed returns the tree and the flaw, if any, of a text that is JSON.
func parseFlawed(t testing.TB, text string, l canonjson.Limits) (canonjson.Value, *canonjson.Flaw) {
	t.Helper()
	v, flaw, err := canonjson.Parse([]byte(text), l)
	if err != nil {
		t.Fatalf("parse %.80q: %v", text, err)
	}
	return v, flaw
}

// nested returns n arrays inside each other.
func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// manyMembers returns the inside of an object of n members.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":0`, i)
	}
	return b.String()[1:]
}

// nodes returns an array of n nodes in total.
func nodes(n int) string { return "[" + strings.Repeat("0,", n-2) + "0]" }

func TestRules(t *testing.T) {
	tests := []struct {
		name    string
		text    string
		rule    canonjson.Rule
		offset  int
		pointer string
	}{
		{"depth 64", nested(64), none, 0, ""},
		{"depth 65", nested(65), canonjson.TooDeep, 64, strings.Repeat("/0", 64)},
		{"depth 64 around a scalar", strings.Repeat("[", 64) + "1" + strings.Repeat("]", 64), none, 0, ""},
		{"depth 65 of objects", strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), canonjson.TooDeep, 64 * 5, strings.Repeat("/a", 64)},
		{"depth 64 twice, side by side", "[" + nested(63) + "," + nested(63) + "]", none, 0, ""},
		{"100000 nodes", nodes(100_000), none, 0, ""},
		{"100001 nodes", nodes(100_001), canonjson.TooManyNodes, 1 + 2*99_999, "/99999"},

		{"largest safe integer", "9007199254740991", none, 0, ""},
		{"2^53, exact", "9007199254740992", none, 0, ""},
		{"2^53+1", "9007199254740993", canonjson.NumberExact, 0, ""},
		{"-(2^53+1)", `{"n": -9007199254740993}`, canonjson.NumberExact, 6, "/n"},
		{"2^53+2, exact", "9007199254740994", none, 0, ""},
		{"largest int64", "[9223372036854775807]", canonjson.NumberExact, 1, "/0"},
		{"smallest int64, exact", "-9223372036854775808", none, 0, ""},
		{"10^20, exact", "100000000000000000000", none, 0, ""},
		{"10^22, the last exact power of ten", "1" + strings.Repeat("0", 22), none, 0, ""},
		{"10^23", "1" + strings.Repeat("0", 23), canonjson.NumberExact, 0, ""},
		{"1e20", "1e20", none, 0, ""},
		{"1e23, no integer literal", "1e23", none, 0, ""},
		{"9007199254740993.0, no integer literal", "9007199254740993.0", none, 0, ""},
		{"2^1023, exact", "89884656743115795386465259539451236680898848947115328636715040578866337902750481566354238661203768010560056939935696678829394884407208311246423715319737062188883946712432742638151109800623047059726541476042502884419075341171231440736956555270413618581675255342293149119973622969239858152417678164812112068608", none, 0, ""},
		{"300 nines", strings.Repeat("9", 300), canonjson.NumberExact, 0, ""},
		{"largest binary64", "1.7976931348623157e308", none, 0, ""},
		{"rounds down to the largest", "1.7976931348623158e308", none, 0, ""},
		{"rounds to infinity", "1.7976931348623159e308", canonjson.NumberRange, 0, ""},
		{"1e309", "[[1e309]]", canonjson.NumberRange, 2, "/0/0"},
		{"1e400", "1e400", canonjson.NumberRange, 0, ""},
		{"-1e400", "-1e400", canonjson.NumberRange, 0, ""},
		{"hostile exponent", "1e99999999999999999999", canonjson.NumberRange, 0, ""},
		{"400 digits", strings.Repeat("9", 400), canonjson.NumberRange, 0, ""},
		{"400 digits and a fraction", strings.Repeat("9", 400) + ".5", canonjson.NumberRange, 0, ""},
		{"underflow", "1e-400", none, 0, ""},
		{"hostile negative exponent", "1e-99999999999999999999", none, 0, ""},
		{"zero with a hostile exponent", "0e99999999999999999999", none, 0, ""},
		{"long, brought back by its exponent", "1" + strings.Repeat("0", 1000) + "e-1000", none, 0, ""},
		{"-0", "-0", none, 0, ""},

		{"pair", `"\ud83d\ude00"`, none, 0, ""},
		{"pair in capitals", `"\uD83D\uDE00"`, none, 0, ""},
		{"high alone", `"ab\ud800"`, canonjson.LoneSurrogate, 3, ""},
		{"low alone", `["\udc00"]`, canonjson.LoneSurrogate, 2, "/0"},
		{"high and a letter", `"\ud800x"`, canonjson.LoneSurrogate, 1, ""},
		{"high and another escape", `"\ud800\u0041"`, canonjson.LoneSurrogate, 1, ""},
		{"high twice, low", `"\ud800\ud83d\ude00"`, canonjson.LoneSurrogate, 1, ""},
		{"low before high", `"\ude00\ud83d"`, canonjson.LoneSurrogate, 1, ""},
		{"high and what looks like an escape", `"\ud800xude00"`, canonjson.LoneSurrogate, 1, ""},
		{"lone after a pair", `"\ud83d\ude00\ude00"`, canonjson.LoneSurrogate, 13, ""},
		{"lone in a name", `{"x":{"a\ud800":1}}`, canonjson.LoneSurrogate, 8, "/x/a\uFFFD"},
		{"noncharacter", `"\uffff\ufffe"`, none, 0, ""},
		{"replacement character itself", `"\ufffd"`, none, 0, ""},

		{"duplicate", `{"a":1,"b":2, "a":3}`, canonjson.DuplicateName, 14, "/a"},
		{"duplicate by escape", `{"a":1,"\u0061":2}`, canonjson.DuplicateName, 7, "/a"},
		{"duplicate by surrogate pair", `{"😀":1,"\ud83d\ude00":2}`, canonjson.DuplicateName, 10, "/😀"},
		{"duplicate deep inside", `[{"p/q":{"~":[0,{"a":1,"a":1}]}}]`, canonjson.DuplicateName, 23, "/0/p~1q/~0/1/a"},
		{"duplicate empty name", `{"":1,"":2}`, canonjson.DuplicateName, 6, "/"},
		{"duplicate __proto__", `{"__proto__":1,"__proto__":2}`, canonjson.DuplicateName, 15, "/__proto__"},
		{"duplicate NUL name", `{"\u0000":1,"\u0000":2}`, canonjson.DuplicateName, 12, "/\x00"},
		{"same name in other objects", `[{"a":1},{"a":{"a":1}}]`, none, 0, ""},
		{"names that differ in case", `{"a":1,"A":2}`, none, 0, ""},
		{"composed and decomposed", `{"\u00e9":1,"e\u0301":2}`, none, 0, ""},
		{"empty name", `{"":1}`, none, 0, ""},
		{"__proto__", `{"__proto__":1}`, none, 0, ""},
		{"NUL name", `{"a\u0000":1}`, none, 0, ""},
		{"first of two flaws", `[1e400,"\ud800"]`, canonjson.NumberRange, 1, "/0"},
		{"first of two flaws, other way", `["\ud800",1e400]`, canonjson.LoneSurrogate, 2, "/0"},
		{"flaw after what is skipped", `[` + nested(70) + `,1e400]`, canonjson.TooDeep, 64, strings.Repeat("/0", 64)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, flaw := parseFlawed(t, tt.text, canonjson.Limits{})
			if v.IsAbsent() {
				t.Error("no tree")
			}
			checkFlaw(t, flaw, tt.rule, tt.offset, tt.pointer)
			if _, err := canonjson.ParseStrict([]byte(tt.text), canonjson.Limits{}); (err != nil) != (tt.rule != none) {
				t.Errorf("ParseStrict: %v", err)
			}
		})
	}
}

// checkFlaw compares a flaw with what it should be; rule none means that there is none.
func checkFlaw(t *testing.T, flaw *canonjson.Flaw, rule canonjson.Rule, offset int, pointer string) {
	t.Helper()
	switch {
	case flaw == nil && rule == none:
	case flaw == nil:
		t.Errorf("no flaw, want %s", rule)
	case flaw.Rule != rule || flaw.Offset != offset || flaw.Pointer != pointer:
		t.Errorf("flaw %s at %d %q, want %s at %d %q", flaw.Rule, flaw.Offset, flaw.Pointer, rule, offset, pointer)
	case flaw.Message == "" || !strings.ContainsAny(flaw.Message, ";"):
		t.Errorf("message %q does not say what to do next", flaw.Message)
	}
}

// TestDuplicatesInLargeObjects covers both ways of finding a duplicate, by comparison and by
// map, at and around the size where they change.
func TestDuplicatesInLargeObjects(t *testing.T) {
	for n := 2; n <= 40; n++ {
		for twice := range n - 1 {
			var b strings.Builder
			for i := range n {
				name := i
				if i == n-1 {
					name = twice
				}
				fmt.Fprintf(&b, `,"m%d":%d`, name, i)
			}
			text := "{" + b.String()[1:] + "}"
			v, flaw := parseFlawed(t, text, canonjson.Limits{})
			name := fmt.Sprintf("m%d", twice)
			checkFlaw(t, flaw, canonjson.DuplicateName, strings.LastIndex(text, `"m`), "/"+name)
			if got, _ := v.Get(name).Int(); got != int64(twice) || v.Len() != n-1 {
				t.Fatalf("%d members, %s twice: kept %d as %d of %d", n, name, got, twice, v.Len())
			}
			distinct := strings.Replace(text, fmt.Sprintf(`"%s":%d}`, name, n-1), `"last":0}`, 1)
			if _, flaw := parseFlawed(t, distinct, canonjson.Limits{}); flaw != nil {
				t.Fatalf("%s: %v", distinct, flaw)
			}
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	tests := []struct {
		name, text           string
		offset, line, column int
	}{
		{"empty", "", 0, 1, 1},
		{"only space", " \n ", 3, 2, 2},
		{"byte order mark", "\uFEFF{}", 0, 1, 1},
		{"byte order mark inside", "[\uFEFF1]", 1, 1, 2},
		{"not UTF-8", "[\"a\xff\"]", 3, 1, 4},
		{"overlong UTF-8", "\"\xc0\xaf\"", 1, 1, 2},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", 1, 1, 2},
		{"cut UTF-8", "\"é\xe2\x82", 3, 1, 3},
		{"UTF-16", "[\x00\"\x00]\x00", 1, 1, 2},
		{"trailing text", "{} {}", 3, 1, 4},
		{"trailing NUL", "{}\x00", 2, 1, 3},
		{"trailing comma", "[1,]", 3, 1, 4},
		{"leading comma", "[,1]", 1, 1, 2},
		{"no comma", "[1 2]", 3, 1, 4},
		{"trailing comma in an object", `{"a":1,}`, 7, 1, 8},
		{"no value", `{"a":}`, 5, 1, 6},
		{"no colon", `{"a" 1}`, 5, 1, 6},
		{"name without quotes", `{a:1}`, 1, 1, 2},
		{"single quotes", `['a']`, 1, 1, 2},
		{"comment", "[1/*x*/]", 2, 1, 3},
		{"wrong bracket", "[1}", 2, 1, 3},
		{"wrong bracket in an object", `{"a":1]`, 6, 1, 7},
		{"unclosed array", "[1", 2, 1, 3},
		{"unclosed string", `"ab`, 3, 1, 4},
		{"tab in a string", "\"a\tb\"", 2, 1, 3},
		{"newline in a string", "[\n\"é\n\"]", 5, 2, 3},
		{"NUL in a string", "\"\x00\"", 1, 1, 2},
		{"newline in a long string", "\"0123456789abcdef\n\"", 17, 1, 18},
		{"bad escape", `"abcdefgh\x"`, 9, 1, 10},
		{"short escape", `"\u12g4"`, 1, 1, 2},
		{"cut escape", `"\u12`, 1, 1, 2},
		{"cut escape after a surrogate", `"\ud800\u"`, 7, 1, 8},
		{"leading zero", "[012]", 2, 1, 3},
		{"plus", "+1", 0, 1, 1},
		{"bare minus", "[-]", 2, 1, 3},
		{"bare point", "[1.]", 3, 1, 4},
		{"leading point", "[.5]", 1, 1, 2},
		{"bare exponent", "[1e]", 3, 1, 4},
		{"signed bare exponent", "[1e+]", 4, 1, 5},
		{"NaN", "NaN", 0, 1, 1},
		{"word in capitals", "[True]", 1, 1, 2},
		{"cut word", "[nul]", 4, 1, 5},
		{"long word", "nullx", 4, 1, 5},
		{"third line", "{\n \"é\": 1,\n \"ü\" 2}", 18, 3, 6},
		{"vertical tab", "[\v1]", 1, 1, 2},
		{"no-break space", "[\u00a01]", 1, 1, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// Inside what is skipped the grammar is the same, and so is the place.
			for _, l := range []canonjson.Limits{{}, {Depth: 1}, {Nodes: 1}} {
				v, flaw, err := canonjson.Parse([]byte(tt.text), l)
				var syntax *canonjson.SyntaxError
				if !errors.As(err, &syntax) {
					t.Fatalf("limits %v: error %v, want a SyntaxError", l, err)
				}
				if syntax.Offset != tt.offset || syntax.Line != tt.line || syntax.Column != tt.column || syntax.Msg == "" {
					t.Errorf("limits %v: offset %d, %v; want offset %d, line %d, column %d", l, syntax.Offset, syntax, tt.offset, tt.line, tt.column)
				}
				if !v.IsAbsent() || flaw != nil {
					t.Errorf("limits %v: also got %v and %v", l, v, flaw)
				}
			}
		})
	}
}

// TestControlCharacters puts every byte below U+0020 at every place in a string of two words.
func TestControlCharacters(t *testing.T) {
	for c := range byte(0x20) {
		for i := range 20 {
			text := []byte(`"` + strings.Repeat("x", 20) + `"`)
			text[1+i] = c
			_, _, err := canonjson.Parse(text, canonjson.Limits{})
			var syntax *canonjson.SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset != 1+i {
				t.Errorf("%q: %v", text, err)
			}
			v := canonjson.String(string(text[1 : len(text)-1]))
			if w := mustParse(t, v.String()); w.Str() != v.Str() {
				t.Errorf("%s became %s", v, w)
			}
		}
	}
}

// TestSyntaxErrorBeatsFlaw holds that a text that is not JSON has no flaw.
func TestSyntaxErrorBeatsFlaw(t *testing.T) {
	for _, text := range []string{`[1e400`, `{"a":1,"a":2`, nested(70) + "x", strings.Repeat("[", 100)} {
		if _, flaw, err := canonjson.Parse([]byte(text), canonjson.Limits{}); err == nil || flaw != nil {
			t.Errorf("%.20q: flaw %v, error %v", text, flaw, err)
		}
	}
}

// TestRequestSurvivesFlaw reads what a refusal needs from frames whose flaw comes first.
func TestRequestSurvivesFlaw(t *testing.T) {
	tests := []struct {
		name, before string
		rule         canonjson.Rule
	}{
		{"duplicate name", `"x":{"a":1,"a":2},`, canonjson.DuplicateName},
		{"too deep", `"x":` + nested(100_000) + `,`, canonjson.TooDeep},
		{"too many nodes", `"x":` + nodes(200_000) + `,`, canonjson.TooManyNodes},
		{"too many nodes, deep", `"x":[[[` + nodes(200_000) + `]]],`, canonjson.TooManyNodes},
		{"too many members", `"x":{` + manyMembers(150_000) + `},`, canonjson.TooManyNodes},
		{"too many objects", `"x":[` + strings.Repeat(`{"a":{"b":[1]}},`, 50_000) + `0],`, canonjson.TooManyNodes},
		{"number range", `"x":1e400,`, canonjson.NumberRange},
		{"number exact", `"x":9007199254740993,`, canonjson.NumberExact},
		{"lone surrogate", `"x":"\ud800",`, canonjson.LoneSurrogate},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := `{` + tt.before + `"jsonrpc":"2.0","id":"r-1","method":"tools/call","params":{"name":"put","arguments":{"payload":[[1]]}},"id":2}`
			v, flaw := parseFlawed(t, text, canonjson.Limits{})
			if flaw == nil || flaw.Rule != tt.rule {
				t.Fatalf("flaw %v, want %s", flaw, tt.rule)
			}
			got := []string{v.Get("id").Str(), v.Get("method").Str(), v.Get("params").Get("name").Str()}
			if want := []string{"r-1", "tools/call", "put"}; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("kept %q, want %q", got, want)
			}
			if !json.Valid([]byte(v.String())) {
				t.Errorf("the tree that is kept cannot be written: %.200s", v)
			}
		})
	}
}

// TestKeptBeyondNodes bounds what is kept beyond the number of nodes.
func TestKeptBeyondNodes(t *testing.T) {
	v, flaw := parseFlawed(t, `{"a":[1,[2,[3]]],"b":[1],"c":{"d":[1],"e":2},"c":3}`, canonjson.Limits{Nodes: 4})
	checkFlaw(t, flaw, canonjson.TooManyNodes, 9, "/a/1/0")
	if got, want := v.String(), `{"a":[1,[]],"b":[],"c":{"d":null,"e":2}}`; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, `,"m%d":{%s}`, i, manyMembers(200))
	}
	v, _ = parseFlawed(t, "{"+b.String()[1:]+"}", canonjson.Limits{Nodes: 1})
	if v.Len() != 64 || v.Get("m63").Len() != 64 || v.Nodes() != 1+64+64*64 {
		t.Errorf("kept %d members, %d in the last, %d nodes", v.Len(), v.Get("m63").Len(), v.Nodes())
	}
}

// TestKeptBeyondDepth shows null where a container was too deep, and all the rest.
func TestKeptBeyondDepth(t *testing.T) {
	v, flaw := parseFlawed(t, `{"a":{"b":[1],"c":{"d":1,"d":2}},"e":3}`, canonjson.Limits{Depth: 2})
	checkFlaw(t, flaw, canonjson.TooDeep, 10, "/a/b")
	if got, want := v.String(), `{"a":{"b":null,"c":null},"e":3}`; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
}

// TestKeptSurrogate shows U+FFFD for each lone surrogate.
func TestKeptSurrogate(t *testing.T) {
	v, _ := parseFlawed(t, `["\ud800","a\udc00\ud800b","\ud800\ud83d\ude00","\ud800\\\u0041"]`, canonjson.Limits{})
	if got, want := v.String(), "[\"\uFFFD\",\"a\uFFFD\uFFFDb\",\"\uFFFD😀\",\"\uFFFD\\\\A\"]"; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
}

// TestFlawBounds holds the bounds on what a flaw repeats of the text.
func TestFlawBounds(t *testing.T) {
	long := strings.Repeat("\u202e", 5000)
	_, flaw := parseFlawed(t, `{"outer":{"`+long+`":1,"`+long+`":2}}`, canonjson.Limits{})
	if flaw == nil || flaw.Pointer != "/outer" {
		t.Fatalf("flaw %.100v, want a pointer to the nearest short ancestor", flaw)
	}
	if strings.Contains(flaw.Message, "\u202e") || strings.Count(flaw.Message, `\u202e`) != 64 {
		t.Errorf("message %q, want 64 escaped characters", flaw.Message)
	}
}

// TestHostileNesting gives millions of brackets: neither stack nor memory may grow out of
// proportion to the text.
func TestHostileNesting(t *testing.T) {
	const n = 10_000_000
	opened := strings.Repeat("[", n)
	tests := []struct {
		name, text string
		rule       canonjson.Rule // none: a syntax error
	}{
		{"opened", opened, none},
		{"opened and closed", opened + strings.Repeat("]", n), canonjson.TooDeep},
		{"objects", strings.Repeat(`{"":`, n/4) + "1" + strings.Repeat("}", n/4), canonjson.TooDeep},
		{"alternating", strings.Repeat(`[{"":`, n/5) + "1" + strings.Repeat("}]", n/5), canonjson.TooDeep},
		{"wide", "[" + strings.Repeat("0,", n/2) + "0]", canonjson.TooManyNodes},
		{"wide objects", "[" + strings.Repeat("{},", n/3) + "0]", canonjson.TooManyNodes},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := []byte(tt.text)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, flaw, err := canonjson.Parse(text, canonjson.Limits{})
			runtime.ReadMemStats(&after)
			if (err != nil) != (tt.rule == none) || flaw != nil && flaw.Rule != tt.rule || err == nil && flaw == nil {
				t.Errorf("flaw %.200v, error %v", flaw, err)
			}
			// One copy of the text, what 100,000 nodes take with their scratch, and the stack of bits.
			if used, bound := after.TotalAlloc-before.TotalAlloc, uint64(3*len(text)/2+40<<20); used > bound {
				t.Errorf("allocated %d bytes for %d, want at most %d", used, len(text), bound)
			}
		})
	}
}

// TestDeepLimit holds the ceiling over Limits.Depth.
func TestDeepLimit(t *testing.T) {
	l := canonjson.Limits{Depth: 1 << 40}
	if v, flaw := parseFlawed(t, nested(10_000), l); flaw != nil || v.Depth() != 10_000 {
		t.Errorf("depth 10,000: %v", flaw)
	}
	if _, flaw := parseFlawed(t, nested(10_001), l); flaw == nil || flaw.Rule != canonjson.TooDeep {
		t.Errorf("depth 10,001: %.200v", flaw)
	}
}

// TestParseKeepsNoText changes the text after parsing it.
func TestParseKeepsNoText(t *testing.T) {
	text := []byte(`{"name":["value",12.50]}`)
	v, _, err := canonjson.Parse(text, canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	clear(text)
	if got, want := v.String(), `{"name":["value",12.50]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
