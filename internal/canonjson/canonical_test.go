package canonjson_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// TestNumberVectors holds the table of RFC 8785, appendix B, and the places where the layout
// changes.
func TestNumberVectors(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		f := math.Float64frombits(bits)
		if got := string(canonjson.Float(f).AppendCanonical(nil)); got != want {
			t.Errorf("%016x: %s, want %s", bits, got, want)
		}
		literal := strconv.FormatFloat(f, 'e', 17, 64)
		if got := string(mustParse(t, literal).AppendCanonical(nil)); got != want {
			t.Errorf("%s: %s, want %s", literal, got, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"spaces", " [ 1 , { } ] ", "[1,{}]"},
		{"index-like names stay strings", `{"10":1,"9":2,"a":0}`, `{"10":1,"9":2,"a":0}`},
		{"sorted", `{"b":1,"a":{"d":1,"c":2},"":0}`, `{"":0,"a":{"c":2,"d":1},"b":1}`},
		{"prefix first", `{"ab":1,"a":2,"a\u0000":3}`, `{"a":2,"a\u0000":3,"ab":1}`},
		{"UTF-16 order", `{"\ufb33":1,"\ud83d\ude02":2,"\ud7ff":3,"\ue000":4}`, "{\"\ud7ff\":3,\"😂\":2,\"\ue000\":4,\"\ufb33\":1}"},
		{"__proto__", `{"a":1,"__proto__":{"z":1}}`, `{"__proto__":{"z":1},"a":1}`},
		{"escapes", `"\u0000\u001F\b\t\n\f\r\"\\\/\u007f\u2028<>&"`, `"\u0000\u001f\b\t\n\f\r\"\\/` + "\x7f\u2028<>&\""},
		{"escape after eight bytes", `"01234567\n89abcdef\u0001"`, `"01234567\n89abcdef\u0001"`},
		{"numbers", "[-0,-0.0,1.0,1e2,1E-7,123456789012345678.0,1e21,100000000000000000000,0.1e1,1e-400]", "[0,0,1,100,1e-7,123456789012345680,1e+21,100000000000000000000,1,0]"},
		{"exponents", "[1e-10,1.5e-9,1e100,-1.25e+9,123e-20]", "[1e-10,1.5e-9,1e+100,-1250000000,1.23e-18]"},
		{"words", "[true,false,null]", "[true,false,null]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(mustParse(t, tt.text).AppendCanonical(nil)); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
	if got := string(mustParse(t, `{"b":1,"a":2}`).AppendCanonical([]byte("x="))); got != `x={"a":2,"b":1}` {
		t.Errorf("appended: %s", got)
	}
}

// TestCanonicalOfLargeObject sorts more members than fit the small order.
func TestCanonicalOfLargeObject(t *testing.T) {
	var members []canonjson.Member
	var want []string
	for i := range 100 {
		name := fmt.Sprintf("m%02d", i)
		members = append(members, canonjson.M(name, canonjson.Int(int64(i))))
		want = append(want, fmt.Sprintf(`"%s":%d`, name, i))
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	if got := string(canonjson.Object(members...).AppendCanonical(nil)); got != "{"+strings.Join(want, ",")+"}" {
		t.Error(got)
	}
}

// TestCompareNames compares with the code units themselves.
func TestCompareNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := names().Draw(t, "a"), names().Draw(t, "b")
		want := slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		if got := canonjson.CompareNames(a, b); (got < 0) != (want < 0) || (got > 0) != (want > 0) {
			t.Errorf("%q and %q: %d, want %d", a, b, got, want)
		}
	})
}

// names draws strings that share prefixes and hold characters around the surrogates.
func names() *rapid.Generator[string] {
	runes := []rune{0, 'a', 'b', '"', '\\', '/', '\n', 0x1f, 0x7f, 'é', 0x2028, 0xd7ff, 0xe000, 0xfb33, 0xfffd, 0xffff, 0x10000, 0x1f602, 0x10ffff}
	drawn := rapid.StringOf(rapid.OneOf(rapid.SampledFrom(runes), rapid.SampledFrom(runes), rapid.Rune()))
	return rapid.OneOf(drawn, rapid.SampledFrom([]string{"", "__proto__", "constructor", "toJSON", "1", "10", "9", "A", "a"}))
}

// finite draws numbers that JSON has.
func finite() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64(),
		rapid.Map(rapid.Uint64(), math.Float64frombits),
		rapid.Map(rapid.IntRange(-1000, 1000), func(n int) float64 { return float64(n) / 8 }),
	).Filter(func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) })
}

// literals draws numbers in all the ways they can be spelled.
func literals() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		b.WriteString(rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign"))
		b.WriteString(rapid.StringMatching(`(0|[1-9][0-9]{0,20})`).Draw(t, "whole"))
		b.WriteString(rapid.StringMatching(`(\.[0-9]{1,25})?`).Draw(t, "fraction"))
		b.WriteString(rapid.StringMatching(`([eE][+-]?0?[0-9]{1,2})?`).Draw(t, "exponent"))
		return b.String()
	})
}

// values draws values at most depth containers deep.
func values(depth int) *rapid.Generator[canonjson.Value] {
	scalars := []*rapid.Generator[canonjson.Value]{
		rapid.Just(canonjson.Null()),
		rapid.Map(rapid.Bool(), canonjson.Bool),
		rapid.Map(rapid.Int64Range(-1<<53+1, 1<<53-1), canonjson.Int),
		rapid.Map(finite(), canonjson.Float),
		rapid.Map(names(), canonjson.String),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	return rapid.OneOf(append(scalars,
		rapid.Map(rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[canonjson.Value] { return values(depth - 1) }), 0, 6),
			func(items []canonjson.Value) canonjson.Value { return canonjson.Array(items...) }),
		rapid.Custom(func(t *rapid.T) canonjson.Value { return drawObject(t, depth) }),
		rapid.Custom(func(t *rapid.T) canonjson.Value { return drawObject(t, depth) }),
	)...)
}

// drawObject draws an object of distinct names, sometimes of many.
func drawObject(t *rapid.T, depth int) canonjson.Value {
	most := rapid.SampledFrom([]int{2, 6, 6, 40}).Draw(t, "most")
	var members []canonjson.Member
	for _, name := range rapid.SliceOfNDistinct(names(), 0, most, rapid.ID).Draw(t, "names") {
		members = append(members, canonjson.M(name, values(depth-1).Draw(t, name)))
	}
	return canonjson.Object(members...)
}

// TestRoundTrip writes values and reads them back: nothing may differ.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := values(3).Draw(t, "value")
		text := v.AppendJSON(nil)
		w, err := canonjson.ParseStrict(text, canonjson.Limits{})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !w.Equal(v) || w.String() != string(text) {
			t.Fatalf("%s became %s", text, w)
		}
		if w.Depth() != v.Depth() || w.Nodes() != v.Nodes() || w.HasNULName() != v.HasNULName() || w.Kind() != v.Kind() {
			t.Fatalf("%s: depth %d, %d nodes, NUL name %v; constructed %d, %d, %v", text, w.Depth(), w.Nodes(), w.HasNULName(), v.Depth(), v.Nodes(), v.HasNULName())
		}
		if !bytes.Equal(canonjson.Raw(w.AppendCanonical(nil)).AppendCanonical(nil), v.AppendCanonical(nil)) {
			t.Fatalf("%s: another canonical form", text)
		}
	})
}

// TestCanonicalFixpoint reads canonical text and makes it canonical again, with members
// turned round in between.
func TestCanonicalFixpoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := values(3).Draw(t, "value")
		canonical := v.AppendCanonical(nil)
		w, err := canonjson.ParseStrict(canonical, canonjson.Limits{})
		if err != nil {
			// RFC 8785 pads large integers with zeros, and such a spelling can be an integer that
			// binary64 does not hold exactly, which the rule refuses. Nothing else may fail.
			if flaw, ok := err.(*canonjson.Flaw); !ok || flaw.Rule != canonjson.NumberExact {
				t.Fatalf("%s: %v", canonical, err)
			}
			w, _, _ = canonjson.Parse(canonical, canonjson.Limits{})
		}
		if again := w.AppendCanonical(nil); !bytes.Equal(again, canonical) {
			t.Fatalf("%s became %s", canonical, again)
		}
		if again := reversed(v).AppendCanonical(nil); !bytes.Equal(again, canonical) {
			t.Fatalf("%s, with members reversed %s", canonical, again)
		}
	})
}

// reversed turns the members of every object round.
func reversed(v canonjson.Value) canonjson.Value {
	switch v.Kind() {
	case canonjson.KindArray:
		items := slices.Clone(v.Items())
		for i := range items {
			items[i] = reversed(items[i])
		}
		return canonjson.Array(items...)
	case canonjson.KindObject:
		members := slices.Clone(v.Members())
		for i := range members {
			members[i].Value = reversed(members[i].Value)
		}
		slices.Reverse(members)
		return canonjson.Object(members...)
	}
	return v
}

// oracle is a second implementation in another language: one line of JSON in, one canonical
// line out. A line that starts with = is the bits of a number.
const oracle = `
const canonical = v => Array.isArray(v) ? '[' + v.map(canonical).join(',') + ']'
  : v !== null && typeof v === 'object'
    ? '{' + Object.keys(v).sort().map(k => JSON.stringify(k) + ':' + canonical(v[k])).join(',') + '}'
    : JSON.stringify(v)
const number = hex => {
  const view = new DataView(new ArrayBuffer(8))
  view.setBigUint64(0, BigInt('0x' + hex))
  return view.getFloat64(0)
}
const lines = require('fs').readFileSync(0, 'utf8').split('\n').slice(0, -1)
process.stdout.write(lines.map(l => (l[0] === '=' ? JSON.stringify(number(l.slice(1))) : canonical(JSON.parse(l))) + '\n').join(''))
`

// askOracle runs the oracle over lines. Where there is no Node it skips the test, and fails it in CI: a comparison that
// was left out must not pass for one that agreed.
func askOracle(t *testing.T, lines []string) []string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal("node is not on PATH, and CI must not leave the comparison out")
	}
	if err != nil {
		t.Skip("NOT RUN: node is not on PATH, so the canonical form was compared with no second implementation")
	}
	cmd := exec.Command(node, "-e", oracle)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v", err)
	}
	answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(answers) != len(lines) {
		t.Fatalf("node answered %d lines for %d", len(answers), len(lines))
	}
	return answers
}

// TestCanonicalAgainstNode compares whole values.
func TestCanonicalAgainstNode(t *testing.T) {
	var lines, want []string
	objects := 0
	for seed := range 500 {
		v := values(4).Example(seed)
		if v.Nodes() > 1 {
			objects++
		}
		lines = append(lines, v.String())
		want = append(want, string(v.AppendCanonical(nil)))
	}
	if objects < 100 {
		t.Fatalf("only %d of 500 values are more than scalars", objects)
	}
	compareLines(t, lines, want, askOracle(t, lines))
}

// TestNumbersAgainstNode compares random doubles by their bits, and the reading of literals.
func TestNumbersAgainstNode(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 785))
	var lines, want []string
	for len(lines) < 10_000 {
		f := math.Float64frombits(random.Uint64())
		if len(lines)%2 == 0 { // half of them where people's numbers are
			f = math.Round(random.NormFloat64()*1e9) / math.Pow(10, float64(random.IntN(20)))
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		lines = append(lines, fmt.Sprintf("=%016x", math.Float64bits(f)))
		want = append(want, string(canonjson.Float(f).AppendCanonical(nil)))
	}
	for seed := range 2000 {
		literal := literals().Example(seed)
		v, _ := parseFlawed(t, literal, canonjson.Limits{})
		lines = append(lines, literal)
		want = append(want, string(v.AppendCanonical(nil)))
	}
	for n := 600; n < 1200; n += 7 { // around the lengths where literals are shortened
		literal := "1" + strings.Repeat("0", n) + ".5e-" + strconv.Itoa(n-random.IntN(300))
		v, _ := parseFlawed(t, literal, canonjson.Limits{})
		lines = append(lines, literal)
		want = append(want, string(v.AppendCanonical(nil)))
	}
	compareLines(t, lines, want, askOracle(t, lines))
}

// compareLines reports where ours and theirs differ.
func compareLines(t *testing.T, lines, ours, theirs []string) {
	t.Helper()
	bad := 0
	for i := range lines {
		if ours[i] != theirs[i] {
			if bad++; bad <= 5 {
				t.Errorf("%.200s: canonical %.200s, node says %.200s", lines[i], ours[i], theirs[i])
			}
		}
	}
	if bad > 0 {
		t.Errorf("%d of %d differ", bad, len(lines))
	}
}

// TestOracleCanDisagree is the control of the comparison: a wrong order and a wrong number
// must show.
func TestOracleCanDisagree(t *testing.T) {
	answers := askOracle(t, []string{`{"b":1,"a":1.0}`, "=3ff0000000000000"})
	if answers[0] == `{"b":1,"a":1.0}` || answers[0] != `{"a":1,"b":1}` || answers[1] != "1" {
		t.Errorf("node answered %q", answers)
	}
}

// TestIntOfSpelling spells integers with a fraction and an exponent and reads them back; one
// digit more makes them no integers.
func TestIntOfSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-1<<53+1, 1<<53-1).Draw(t, "n")
		shift := rapid.IntRange(0, 30).Draw(t, "shift")
		// n written with its point moved and an exponent that moves it back.
		digits := strconv.FormatInt(max(n, -n), 10)
		digits = strings.Repeat("0", max(0, shift+1-len(digits))) + digits
		whole, fraction := digits[:len(digits)-shift], digits[len(digits)-shift:]
		literal := whole
		if fraction != "" {
			literal += "." + fraction + "e" + strconv.Itoa(shift)
		}
		if strings.HasPrefix(literal, "0") && len(whole) > 1 {
			t.Fatalf("bad literal %s", literal)
		}
		if n < 0 {
			literal = "-" + literal
		}
		v, err := canonjson.ParseStrict([]byte(literal), canonjson.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := v.Int(); !ok || got != n {
			t.Fatalf("%s: %d, %v; want %d", literal, got, ok, n)
		}
		if shift > 0 {
			odd, _, _ := canonjson.Parse([]byte(strings.Replace(literal, "e", "1e", 1)), canonjson.Limits{})
			if got, ok := odd.Int(); ok {
				t.Fatalf("%s: %d, want no integer", odd.Literal(), got)
			}
		}
	})
}

// TestCanonicalOfLargeIntegers records where two rules meet: an integer from 2^53 on that is
// accepted because binary64 holds it exactly may have a canonical form that is not.
func TestCanonicalOfLargeIntegers(t *testing.T) {
	v := mustParse(t, "1152921504606846976") // 2^60
	canonical := v.AppendCanonical(nil)
	if string(canonical) != "1152921504606847000" {
		t.Fatalf("canonical form %s", canonical)
	}
	w, flaw := parseFlawed(t, string(canonical), canonjson.Limits{})
	checkFlaw(t, flaw, canonjson.NumberExact, 0, "")
	if !w.Equal(v) {
		t.Error("the canonical form reads as another number")
	}
}

// TestSampleString is the string sample of RFC 8785, section 3.2.2.2.
func TestSampleString(t *testing.T) {
	text := `"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"`
	if got, want := string(mustParse(t, text).AppendCanonical(nil)), `"€$\u000f\nA'B\"\\\\\"/"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
