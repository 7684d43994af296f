package canonjson_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

func TestAccessors(t *testing.T) {
	v := mustParse(t, ` {"s":"x\ny","n":1.50,"b":true,"z":null,"a":[1,[2]],"o":{"":{}}}`)
	if got, want := v.String(), `{"s":"x\ny","n":1.50,"b":true,"z":null,"a":[1,[2]],"o":{"":{}}}`; got != want {
		t.Errorf("String: %s", got)
	}
	tests := []struct {
		pointer      string
		kind         canonjson.Kind
		depth, nodes int
		length       int
		offset       int
	}{
		{"", canonjson.KindObject, 3, 11, 6, 1},
		{"/s", canonjson.KindString, 0, 1, 0, 6},
		{"/n", canonjson.KindNumber, 0, 1, 0, 17},
		{"/b", canonjson.KindBool, 0, 1, 0, 26},
		{"/z", canonjson.KindNull, 0, 1, 0, 35},
		{"/a", canonjson.KindArray, 2, 4, 2, 44},
		{"/a/1", canonjson.KindArray, 1, 2, 1, 47},
		{"/a/1/0", canonjson.KindNumber, 0, 1, 0, 48},
		{"/o/", canonjson.KindObject, 1, 1, 0, 60},
		{"/a/2", canonjson.KindAbsent, 0, 0, 0, -1},
		{"/a/-", canonjson.KindAbsent, 0, 0, 0, -1},
		{"/a/01", canonjson.KindAbsent, 0, 0, 0, -1},
		{"/a/-0", canonjson.KindAbsent, 0, 0, 0, -1},
		{"/a/+1", canonjson.KindAbsent, 0, 0, 0, -1},
		{"/S", canonjson.KindAbsent, 0, 0, 0, -1},
		{"/s/0", canonjson.KindAbsent, 0, 0, 0, -1},
		{"s", canonjson.KindAbsent, 0, 0, 0, -1},
	}
	for _, tt := range tests {
		t.Run(tt.pointer, func(t *testing.T) {
			w := v.At(tt.pointer)
			got := []any{w.Kind(), w.Depth(), w.Nodes(), w.Len(), w.Offset(), w.IsAbsent()}
			want := []any{tt.kind, tt.depth, tt.nodes, tt.length, tt.offset, tt.kind == canonjson.KindAbsent}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("kind, depth, nodes, length, offset, absent: %v, want %v", got, want)
			}
		})
	}
	if v.Get("s").Str() != "x\ny" || v.Get("n").Literal() != "1.50" || v.Get("n").Float() != 1.5 || !v.Get("b").Bool() {
		t.Error("scalar accessors")
	}
	if v.Get("n").Str() != "" || v.Get("s").Literal() != "" || v.Get("s").Bool() || v.Get("s").Float() != 0 || v.Get("s").Items() != nil || v.Get("a").Members() != nil {
		t.Error("accessors of another kind do not answer with zero")
	}
}

// TestDepth measures trees whose deepest part is not the last.
func TestDepth(t *testing.T) {
	for text, want := range map[string]int{
		`[[[]],[]]`: 3, `[[],[[]]]`: 3, `{"a":{"b":{}},"c":{},"d":1}`: 3, `[[[1]],2]`: 3, `[1,2]`: 1, `"[[["`: 0,
	} {
		v := mustParse(t, text)
		if v.Depth() != want || reversed(v).Depth() != want {
			t.Errorf("%s: depth %d, constructed %d; want %d", text, v.Depth(), reversed(v).Depth(), want)
		}
	}
}

// TestPointerEscapes finds names that hold the characters of a pointer.
func TestPointerEscapes(t *testing.T) {
	v := mustParse(t, `{"a/b":1,"m~n":2,"~1":3,"":{"":4}}`)
	for pointer, want := range map[string]int64{"/a~1b": 1, "/m~0n": 2, "/~01": 3, "//": 4} {
		if got, _ := v.At(pointer).Int(); got != want {
			t.Errorf("At(%q) = %d, want %d", pointer, got, want)
		}
	}
}

func TestInt(t *testing.T) {
	tests := []struct {
		literal string
		want    int64
		ok      bool
	}{
		{"0", 0, true}, {"-0", 0, true}, {"0.0", 0, true}, {"-0.000e-5", 0, true}, {"0e99999999999999999999", 0, true},
		{"1", 1, true}, {"1.0", 1, true}, {"1e0", 1, true}, {"10e-1", 1, true}, {"0.1e1", 1, true}, {"0.01E+2", 1, true},
		{"-1", -1, true}, {"-10.00e-1", -1, true},
		{"1.5", 0, false}, {"0.1", 0, false}, {"1e-1", 0, false}, {"15e-1", 0, false},
		{"123456789012345", 123456789012345, true}, {"1234567890123456", 1234567890123456, true},
		{"9007199254740991", 9007199254740991, true}, {"-9007199254740991", -9007199254740991, true},
		{"9007199254740991.0", 9007199254740991, true}, {"9.007199254740991e15", 9007199254740991, true},
		{"9007199254740992", 0, false}, {"-9007199254740992", 0, false}, {"9.007199254740992e15", 0, false},
		{"9007199254740991.5", 0, false}, {"9007199254740990.9999999999", 0, false},
		{"1.00000000000000000001", 0, false}, {"0.99999999999999999999", 0, false},
		{"1e15", 1e15, true}, {"1e16", 0, false}, {"1e400", 0, false}, {"1e-400", 0, false},
		{"1e99999999999999999999", 0, false}, {"1e-99999999999999999999", 0, false},
		{"1" + strings.Repeat("0", 1000) + "e-1000", 1, true},
		{"0." + strings.Repeat("0", 1000) + "1e1001", 1, true},
		{"1e9223372036854775807", 0, false}, {"1e-9223372036854775808", 0, false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%.30s", tt.literal), func(t *testing.T) {
			v, _ := parseFlawed(t, tt.literal, canonjson.Limits{})
			if got, ok := v.Int(); got != tt.want || ok != tt.ok {
				t.Errorf("%s: %d, %v; want %d, %v", tt.literal, got, ok, tt.want, tt.ok)
			}
		})
	}
	for _, text := range []string{`"1"`, "true", "null", "[]", "[1]"} {
		if got, ok := mustParse(t, text).Int(); got != 0 || ok {
			t.Errorf("%s: %d, %v", text, got, ok)
		}
	}
}

// TestFloatOfLongLiterals covers literals that strconv alone reads wrongly.
func TestFloatOfLongLiterals(t *testing.T) {
	zeros := func(n int) string { return strings.Repeat("0", n) }
	// Half way between 1 and the next number, then decided by a digit far away.
	half := "1.00000000000000011102230246251565404236316680908203125"
	for literal, want := range map[string]float64{
		"1" + zeros(1000) + "e-1000":                 1,
		"-1" + zeros(1_000_000) + "e-1000000":        -1,
		"0." + zeros(1_000_000) + "1e1000001":        1,
		"1" + zeros(1_000_000) + "e-2000000":         0,
		half + zeros(900):                            1,
		half + zeros(900) + "1":                      1.0000000000000002,
		"0." + zeros(2000) + "25":                    0,
		strings.Repeat("9", 1000) + "e-1000":         1,
		"1234567890" + zeros(800) + ".000e-800":      1234567890,
		"0" + "." + strings.Repeat("3", 2000) + "e1": 3.3333333333333335,
	} {
		v := mustParse(t, literal)
		if got := v.Float(); got != want {
			t.Errorf("%.20s... (%d bytes): %v, want %v", literal, len(literal), got, want)
		}
	}
}

func TestHasNULName(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a\u0000b":1}`:                  true,
		`{"x":[0,{"y":{"\u0000":null}}]}`: true,
		`{"x":"\u0000"}`:                  false,
		`["\u0000"]`:                      false,
		`{"\\u0000":1}`:                   false,
		`"\u0000"`:                        false,
	} {
		if got := mustParse(t, text).HasNULName(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	v := canonjson.Array(canonjson.Object(canonjson.M("\x00", canonjson.Null())))
	if !v.HasNULName() || v.Items()[0].Without("\x00").HasNULName() {
		t.Error("constructed values")
	}
}

func TestConstructors(t *testing.T) {
	tests := []struct {
		value        canonjson.Value
		want         string
		depth, nodes int
	}{
		{canonjson.Null(), `null`, 0, 1},
		{canonjson.Bool(true), `true`, 0, 1},
		{canonjson.Bool(false), `false`, 0, 1},
		{canonjson.Int(0), `0`, 0, 1},
		{canonjson.Int(-9007199254740991), `-9007199254740991`, 0, 1},
		{canonjson.Int(math.MinInt64), `-9223372036854775808`, 0, 1},
		{canonjson.Float(1), `1`, 0, 1},
		{canonjson.Float(math.Copysign(0, -1)), `0`, 0, 1},
		{canonjson.Float(1e-7), `1e-7`, 0, 1},
		{canonjson.Float(1 << 55), `36028797018963968`, 0, 1},
		{canonjson.Float(-(1 << 62)), `-4611686018427387904`, 0, 1},
		{canonjson.Float(1e23), `1e+23`, 0, 1},
		{canonjson.String("a\"\\/\x00\x1f\n\u2028<é"), `"a\"\\/\u0000\u001f\n` + "\u2028<é\"", 0, 1},
		{canonjson.String("a\xffb"), "\"a\uFFFDb\"", 0, 1},
		{canonjson.Array(), `[]`, 1, 1},
		{canonjson.Object(), `{}`, 1, 1},
		{canonjson.Array(canonjson.Object(canonjson.M("b", canonjson.Int(1)), canonjson.M("gone", canonjson.Value{}), canonjson.M("a", canonjson.Array()))), `[{"b":1,"a":[]}]`, 3, 4},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			if got := tt.value.String(); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if tt.value.Depth() != tt.depth || tt.value.Nodes() != tt.nodes || tt.value.Offset() != -1 {
				t.Errorf("depth %d, nodes %d, offset %d", tt.value.Depth(), tt.value.Nodes(), tt.value.Offset())
			}
			if parsed := mustParse(t, tt.want); !parsed.Equal(tt.value) || parsed.Depth() != tt.depth || parsed.Nodes() != tt.nodes {
				t.Error("parsed from its text it is another value")
			}
		})
	}
}

// TestConstructedIsImmutable changes the slices that values were made from.
func TestConstructedIsImmutable(t *testing.T) {
	items := []canonjson.Value{canonjson.Int(1)}
	members := []canonjson.Member{canonjson.M("a", canonjson.Int(1))}
	raw := []byte("1")
	v := canonjson.Array(canonjson.Array(items...), canonjson.Object(members...), canonjson.Raw(raw))
	items[0], members[0], raw[0] = canonjson.Null(), canonjson.M("b", canonjson.Null()), '2'
	if got, want := v.String(), `[[1],{"a":1},1]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"absent written":       func() { canonjson.Value{}.AppendJSON(nil) },
		"absent canonical":     func() { canonjson.Value{}.AppendCanonical(nil) },
		"absent in an array":   func() { canonjson.Array(canonjson.Value{}) },
		"name twice":           func() { canonjson.Object(canonjson.M("a", canonjson.Null()), canonjson.M("a", canonjson.Null())) },
		"NaN":                  func() { canonjson.Float(math.NaN()) },
		"infinity":             func() { canonjson.Float(math.Inf(-1)) },
		"inexact integer":      func() { canonjson.Int(9007199254740993) },
		"largest int64":        func() { canonjson.Int(math.MaxInt64) },
		"inexact, more digits": func() { canonjson.Int(1<<62 + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestRaw(t *testing.T) {
	text := `{"a":[1,{"b":"x"}],"c":null}`
	v := canonjson.Object(canonjson.M("p", canonjson.Raw([]byte(text))), canonjson.M("q", canonjson.Int(1)))
	if got, want := v.String(), `{"p":`+text+`,"q":1}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := string(v.AppendCanonical(nil)), `{"p":`+text+`,"q":1}`; got != want {
		t.Errorf("canonical %s, want %s", got, want)
	}
	p := v.Get("p")
	if p.Kind() != canonjson.KindObject || p.Depth() != 0 || p.Nodes() != 0 || p.Offset() != -1 || v.Nodes() != 2 || v.Depth() != 1 {
		t.Errorf("kind %v, depth %d, nodes %d; around it depth %d, nodes %d", p.Kind(), p.Depth(), p.Nodes(), v.Depth(), v.Nodes())
	}
	if p.Get("a").Len() != 2 || p.Len() != 2 || v.At("/p/a/1/b").Str() != "x" || len(p.Members()) != 2 || p.Without("a").String() != `{"c":null}` {
		t.Error("looking inside")
	}
	if !p.Equal(mustParse(t, `{"c":null,"a":[1.0,{"b":"\u0078"}]}`)) || p.Equal(canonjson.Null()) {
		t.Error("equality")
	}
	want := map[string]any{"p": map[string]any{"a": []any{json.Number("1"), map[string]any{"b": "x"}}, "c": nil}, "q": json.Number("1")}
	if got := v.Any(); !reflect.DeepEqual(got, want) {
		t.Errorf("Any: %#v", got)
	}
	want["p"] = nil
	if got := v.AnyOpaque(); !reflect.DeepEqual(got, want) {
		t.Errorf("AnyOpaque: %#v", got)
	}
	for raw, kind := range map[string]canonjson.Kind{
		`"x"`: canonjson.KindString, `-1`: canonjson.KindNumber, `7`: canonjson.KindNumber, `true`: canonjson.KindBool,
		`false`: canonjson.KindBool, `null`: canonjson.KindNull, `[]`: canonjson.KindArray, ``: canonjson.KindAbsent,
	} {
		if got := canonjson.Raw([]byte(raw)).Kind(); got != kind {
			t.Errorf("kind of %s: %v", raw, got)
		}
	}
	if canonjson.RawString(`"x"`).Str() != "x" || canonjson.RawString("1.5").Float() != 1.5 || canonjson.RawString("1").Literal() != "1" || !canonjson.RawString("true").Bool() {
		t.Error("raw scalars")
	}
	if n, ok := canonjson.RawString("12").Int(); n != 12 || !ok {
		t.Error("raw integer")
	}
	// A raw value may be as deep as anything stored, and broken text opens as nothing.
	if canonjson.RawString(nested(200)).Len() != 1 || canonjson.RawString(`{"a":`).Get("a").Kind() != canonjson.KindAbsent {
		t.Error("raw text at its bounds")
	}
}

func TestWithout(t *testing.T) {
	v := mustParse(t, `{"a":1,"b":[[2]],"c":3}`)
	for _, tt := range []struct {
		names        []string
		want         string
		depth, nodes int
	}{
		{nil, `{"a":1,"b":[[2]],"c":3}`, 3, 6},
		{[]string{"x", "A"}, `{"a":1,"b":[[2]],"c":3}`, 3, 6},
		{[]string{"b"}, `{"a":1,"c":3}`, 1, 3},
		{[]string{"a", "b", "c"}, `{}`, 1, 1},
	} {
		w := v.Without(tt.names...)
		if w.String() != tt.want || w.Depth() != tt.depth || w.Nodes() != tt.nodes || w.Offset() != 0 {
			t.Errorf("without %v: %s, depth %d, nodes %d", tt.names, w, w.Depth(), w.Nodes())
		}
	}
	if v.String() != `{"a":1,"b":[[2]],"c":3}` {
		t.Error("the original has changed")
	}
	if got := mustParse(t, `["a"]`).Without("a").String(); got != `["a"]` {
		t.Errorf("array: %s", got)
	}
}

func TestEqual(t *testing.T) {
	tests := []struct {
		v, w string
		want bool
	}{
		{`{"a":1,"b":2}`, `{"b":2.0,"a":10e-1}`, true},
		{`-0`, `0`, true},
		{`"\u0041"`, `"A"`, true},
		{`1e-400`, `0`, true},
		{`[1,2]`, `[2,1]`, false},
		{`1`, `"1"`, false},
		{`1`, `true`, false},
		{`{}`, `[]`, false},
		{`{"a":null}`, `{}`, false},
		{`"\u00e9"`, `"e\u0301"`, false},
		{`0.1`, `0.1000000000000000055`, true},
		{`9007199254740992`, `9007199254740993.0`, true},
	}
	for _, tt := range tests {
		if got := mustParse(t, tt.v).Equal(mustParse(t, tt.w)); got != tt.want {
			t.Errorf("%s equal to %s: %v", tt.v, tt.w, got)
		}
	}
	if !(canonjson.Value{}).Equal(canonjson.Value{}) || (canonjson.Value{}).Equal(canonjson.Null()) || canonjson.Null().Equal(canonjson.Value{}) {
		t.Error("absent values")
	}
}

// TestAnyNumbers holds that no number leaves with a hostile exponent.
func TestAnyNumbers(t *testing.T) {
	for literal, want := range map[string]json.Number{
		"1.0": "1", "1e2": "100", "0e99999999999": "0", "1e-99999999999": "0", "1.50": "1.5", "1e300": "1e+300", "-0": "0",
	} {
		if got := mustParse(t, literal).Any(); got != want {
			t.Errorf("%s: %v, want %v", literal, got, want)
		}
	}
	if got := (canonjson.Value{}).Any(); got != nil {
		t.Errorf("absent: %v", got)
	}
}

// TestValueSize keeps values cheap to pass.
func TestValueSize(t *testing.T) {
	if got := unsafe.Sizeof(canonjson.Value{}); got > 64 {
		t.Errorf("a Value takes %d bytes", got)
	}
}

func TestKindString(t *testing.T) {
	if canonjson.KindAbsent.String() != "absent" || canonjson.KindObject.String() != "object" || canonjson.Kind(99).String() != "unknown" {
		t.Error("names of kinds")
	}
	if got := (canonjson.Value{}).String(); got != "absent" {
		t.Errorf("absent: %s", got)
	}
}
