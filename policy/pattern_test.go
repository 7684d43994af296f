package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/policy"
)

func TestParsePattern(t *testing.T) {
	good := []string{"/a", "/a/b", "/a/**", "/a/b/**", "/**", "/.a", "/a..b", "/...", "/a b", "/_new", "/é", "/a:b@c"}
	for _, s := range good {
		p, err := policy.ParsePattern(s)
		if err != nil {
			t.Errorf("%q: %v", s, err)
		} else if p.String() != s {
			t.Errorf("%q is written as %q", s, p)
		}
	}
	bad := []string{"", "/", "a", "a/b", "**", "*", "/*", "/a/*", "/*/a", "/a*", "/a/**/b", "/**/**", "/a/**/**", "/a**", "/a/***", "//", "//a", "/a//b",
		"/a/", "/a//**", "//**", "/.", "/..", "/a/.", "/a/..", "/a/../b", "/./a", "/../**", "/a/./**", " /a", "\x00"}
	for _, s := range bad {
		if p, err := policy.ParsePattern(s); err == nil {
			t.Errorf("%q is the pattern %q", s, p)
		} else if s != "" && !strings.Contains(err.Error(), fmt.Sprintf("%q", s)) {
			t.Errorf("%q: the error %q does not name it", s, err)
		}
	}
}

// mustPattern parses a pattern that is well formed.
func mustPattern(t testing.TB, s string) policy.Pattern {
	t.Helper()
	p, err := policy.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCovers(t *testing.T) {
	tests := []struct {
		pattern, path string
		want          bool
	}{
		{"/a", "/a", true}, {"/a", "/A", false}, {"/a", "/a/b", false}, {"/a", "/ab", false}, {"/a/b", "/a", false},
		{"/a/**", "/a", true}, {"/a/**", "/a/b", true}, {"/a/**", "/a/b/c", true}, {"/a/**", "/ab", false}, {"/a/**", "/a-", false}, {"/a/**", "/b/a", false},
		{"/a/**", "/A/b", false}, {"/**", "/a", true}, {"/**", "/a/b/c", true}, {"/a/b/**", "/a", false}, {"/a/b/**", "/a/bc", false},
		{"/a/é/**", "/a/e\u0301", false}, // another spelling of the same letter is another name
	}
	for _, tt := range tests {
		if got := mustPattern(t, tt.pattern).Covers(policy.Path(tt.path)); got != tt.want {
			t.Errorf("%s covers %s: %v, want %v", tt.pattern, tt.path, got, tt.want)
		}
	}
	if (policy.Pattern{}).Covers("/a") {
		t.Error("the zero pattern covers something")
	}
}

// universe is every path of up to depth segments over names, one of which begins with another.
func universe(depth int) []string {
	names := []string{"a", "b", "ab"}
	level, all := []string{""}, []string(nil)
	for range depth {
		var next []string
		for _, p := range level {
			for _, n := range names {
				next = append(next, p+"/"+n)
			}
		}
		level, all = next, append(all, next...)
	}
	return all
}

// naiveCovers compares segment by segment.
func naiveCovers(pattern, path string) bool {
	want, got := strings.Split(pattern, "/")[1:], strings.Split(path, "/")[1:]
	if want[len(want)-1] != "**" {
		return strings.Join(want, "\n") == strings.Join(got, "\n")
	}
	want = want[:len(want)-1]
	return len(got) >= len(want) && strings.Join(want, "\n") == strings.Join(got[:len(want)], "\n")
}

// All patterns of up to two segments, against all paths of up to three: a path below the deepest pattern is among
// them, so that what holds for these paths holds for all.
func TestPatternsAgreeWithSets(t *testing.T) {
	patterns := []string{"/**"}
	for _, p := range universe(2) {
		patterns = append(patterns, p, p+"/**")
	}
	paths := universe(3)
	for _, a := range patterns {
		p := mustPattern(t, a)
		for _, b := range patterns {
			q := mustPattern(t, b)
			contains, overlaps := true, false
			for _, path := range paths {
				inP, inQ := naiveCovers(a, path), naiveCovers(b, path)
				if p.Covers(policy.Path(path)) != inP {
					t.Fatalf("%s covers %s is not %v", a, path, inP)
				}
				contains = contains && (inP || !inQ)
				overlaps = overlaps || (inP && inQ)
			}
			if got := p.Contains(q); got != contains {
				t.Errorf("%s contains %s: %v, want %v", a, b, got, contains)
			}
			if got := p.Overlaps(q); got != overlaps {
				t.Errorf("%s overlaps %s: %v, want %v", a, b, got, overlaps)
			}
		}
	}
}

func TestBase(t *testing.T) {
	for pattern, want := range map[string]policy.Path{"/**": "/", "/a/**": "/a", "/a/b": "/a/b"} {
		if got := mustPattern(t, pattern).Base(); got != want {
			t.Errorf("base of %s is %s, want %s", pattern, got, want)
		}
	}
}

func TestParseScope(t *testing.T) {
	s, err := policy.ParseScope("persistence.read@/persistence/namespaces/a/**")
	if err != nil || s.String() != "persistence.read@/persistence/namespaces/a/**" {
		t.Fatalf("%v, %v", s, err)
	}
	for check, want := range map[policy.Check]bool{
		{Capability: policy.PersistenceRead, Path: "/persistence/namespaces/a/documents/b"}:  true,
		{Capability: policy.PersistenceWrite, Path: "/persistence/namespaces/a/documents/b"}: false,
		{Capability: policy.PersistenceRead, Path: "/persistence/namespaces/ab"}:             false,
	} {
		if s.Covers(check) != want {
			t.Errorf("covers %v is not %v", check, want)
		}
	}
	for _, text := range []string{"", "@", "persistence.read", "persistence.read@", "@/a", "persistence.fly@/a", "persistence.read@a", "persistence.read@/a@/b/*", "Persistence.read@/a", " persistence.read@/a"} {
		if s, err := policy.ParseScope(text); err == nil {
			t.Errorf("%q is the scope %v", text, s)
		}
	}
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"/**", "/a/**", "/a/b", "//", "/a/../b", "/a/*", "/a\x00b/**"} {
		f.Add(s, "/a/b")
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		p, err := policy.ParsePattern(text)
		if err != nil {
			return
		}
		if p.String() != text {
			t.Fatalf("%q is written as %q", text, p)
		}
		base := strings.TrimSuffix(text, "/**")
		if strings.Contains(base, "*") || strings.Contains(base, "//") || strings.HasSuffix(base, "/") || (base != "" && base[0] != '/') {
			t.Fatalf("%q is a pattern", text)
		}
		if !p.Contains(p) || !p.Overlaps(p) {
			t.Fatalf("%q does not contain itself", text)
		}
		if base != "" && !p.Covers(policy.Path(base)) {
			t.Fatalf("%q does not cover its base", text)
		}
		if _, err := policy.ParsePattern(path); err == nil && !strings.Contains(path, "*") && p.Covers(policy.Path(path)) != naiveCovers(text, path) {
			t.Fatalf("%q covers %q is not %v", text, path, naiveCovers(text, path))
		}
	})
}
