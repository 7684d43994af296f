package plan

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/model"
)

// TestRegex holds the subset, and what its patterns mean, by texts that match and texts that do not.
func TestRegex(t *testing.T) {
	for _, tt := range []struct {
		pattern, flags string
		match, no      []string
	}{
		{"", "", []string{"", "a"}, nil},
		{"b", "", []string{"abc"}, []string{"ABC", ""}},
		{"b", "i", []string{"ABC"}, []string{"AC"}},
		{"^Alg", "", []string{"Algebra"}, []string{"algebra", "xAlg", "x\nAlg"}},
		{"^Alg", "m", []string{"x\nAlg"}, []string{"xAlg"}},
		{"ing$", "", []string{"Painting"}, []string{"Painting\n", "ing\nx"}},
		{"ing$", "m", []string{"ing\nx"}, []string{"ingx"}},
		{"II?$", "", []string{"Algebra I", "Algebra II"}, []string{"Algebra IX"}},
		{"a.c", "", []string{"abc", "aéc"}, []string{"a\nc", "ac"}},
		{"a.c", "s", []string{"a\nc"}, []string{"ac"}},
		{"a{2}", "", []string{"aa"}, []string{"a"}},
		{"^a{1,2}$", "", []string{"a", "aa"}, []string{"aaa", ""}},
		{"^a{2,}$", "", []string{"aaa"}, []string{"a"}},
		{"(ab|cd)+e", "", []string{"abcde"}, []string{"ae"}},
		{`\d\w\s`, "", []string{"1a "}, []string{"a1 ", "٣a "}},
		{`\bcat\b`, "", []string{"a cat"}, []string{"cats"}},
		{`[a-c]`, "", []string{"b"}, []string{"d"}},
		{`[^a-c]`, "", []string{"d", "\n"}, []string{"abc"}},
		{`[\d.]+x`, "", []string{"1.5x"}, []string{"x"}},
		{`[\]\\-]`, "", []string{"]", `\`, "-"}, []string{"a"}},
		{`a\.b`, "", []string{"a.b"}, []string{"axb"}},
		{`\$\(\*\)\_`, "", []string{"$(*)_"}, nil},
		{`100%`, "", []string{"100% Logic_x"}, []string{"1000"}},
		{"é", "i", []string{"É"}, []string{"e"}},
		{"k", "i", []string{"\u212a"}, nil}, // the Kelvin sign folds to k
		{"]", "", []string{"]"}, nil},
		{"}", "", []string{"}"}, nil},
		{"a|^b", "", []string{"a", "b"}, []string{"xb"}},
		{"x", "smi", []string{"X"}, nil},
	} {
		re, fault := parseRegex(tt.pattern, tt.flags)
		if fault != nil {
			t.Errorf("%q: %s", tt.pattern, fault.message)
			continue
		}
		for _, spelled := range []string{re.Go, goOf(re)} {
			compiled, err := regexp.Compile(spelled)
			if err != nil {
				t.Errorf("%q: %q does not compile: %v", tt.pattern, spelled, err)
				continue
			}
			for _, s := range tt.match {
				if !compiled.MatchString(s) {
					t.Errorf("%q with %q (%s) does not match %q", tt.pattern, tt.flags, spelled, s)
				}
			}
			for _, s := range tt.no {
				if compiled.MatchString(s) {
					t.Errorf("%q with %q (%s) matches %q", tt.pattern, tt.flags, spelled, s)
				}
			}
		}
	}
}

// goOf spells the tree: it must mean the same as the text with its flags.
func goOf(re *Regex) string { return re.Tree.String() }

// TestRegexRefuses holds what is outside the subset.
func TestRegexRefuses(t *testing.T) {
	for _, tt := range []struct {
		pattern, flags string
		class          model.Class
	}{
		{"*a", "", model.UnsupportedOp},
		{"a**", "", model.UnsupportedOp},
		{"a*?", "", model.UnsupportedOp},
		{"a++", "", model.UnsupportedOp},
		{"a{2}?", "", model.UnsupportedOp},
		{"a{2}{3}", "", model.UnsupportedOp},
		{"a{256}", "", model.UnsupportedOp},
		{"a{3,2}", "", model.UnsupportedOp},
		{"a{,2}", "", model.UnsupportedOp},
		{"a{x}", "", model.UnsupportedOp},
		{"a{", "", model.UnsupportedOp},
		{"^*", "", model.UnsupportedOp},
		{`\b+`, "", model.UnsupportedOp},
		{"(a", "", model.UnsupportedOp},
		{"a)", "", model.UnsupportedOp},
		{"[a", "", model.UnsupportedOp},
		{"[]a]", "", model.UnsupportedOp},
		{"[[:alpha:]]", "", model.UnsupportedOp},
		{"[z-a]", "", model.UnsupportedOp},
		{`[\b]`, "", model.UnsupportedOp},
		{"(?i)a", "", model.UnsupportedOp},
		{"(?:a)", "", model.UnsupportedOp},
		{"(?=a)", "", model.UnsupportedOp},
		{"(?P<n>a)", "", model.UnsupportedOp},
		{`(a)\1`, "", model.UnsupportedOp},
		{`\D`, "", model.UnsupportedOp},
		{`\W`, "", model.UnsupportedOp},
		{`\B`, "", model.UnsupportedOp},
		{`\pL`, "", model.UnsupportedOp},
		{`\x41`, "", model.UnsupportedOp},
		{`\n`, "", model.UnsupportedOp},
		{`\Qa\E`, "", model.UnsupportedOp},
		{`\A`, "", model.UnsupportedOp},
		{`a\`, "", model.UnsupportedOp},
		{`\é`, "", model.UnsupportedOp},
		{"a\x00", "", model.UnsupportedOp},
		{"[a\x00]", "", model.UnsupportedOp},
		{"((a{100}){100}){100}", "", model.UnsupportedOp},
		{"a", "x", model.UnsupportedOp},
		{"a", "g", model.UnsupportedOp},
		{strings.Repeat("a", maxPattern+1), "", model.Limit},
	} {
		re, fault := parseRegex(tt.pattern, tt.flags)
		if fault == nil {
			t.Errorf("%q is taken as %q", tt.pattern, re.Go)
		} else if fault.class != tt.class {
			t.Errorf("%q: class %s, want %s", tt.pattern, fault.class, tt.class)
		}
	}
}

// FuzzRegex: no pattern makes the reader panic, and what is taken compiles and means what the tree says.
func FuzzRegex(f *testing.F) {
	for _, seed := range []string{"a", "^a$", `[^\d\s]+x{1,3}`, "(a|b)*c", `\bé\b`, "a{255}", "[a-", "(((", `\`, "((a{99}){99})"} {
		f.Add(seed, "ims", "a text\nwith 12 é")
		f.Add(seed, "", "")
	}
	f.Fuzz(func(t *testing.T, pattern, flags, text string) {
		re, fault := parseRegex(pattern, flags)
		if fault != nil {
			return
		}
		a, err := regexp.Compile(re.Go)
		if err != nil {
			t.Fatalf("%q: %v", re.Go, err)
		}
		b, err := regexp.Compile(goOf(re))
		if err != nil {
			t.Fatalf("%q: %v", goOf(re), err)
		}
		if a.MatchString(text) != b.MatchString(text) {
			t.Fatalf("%q and %q differ on %q", re.Go, goOf(re), text)
		}
	})
}
