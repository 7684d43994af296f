package policy

import (
	"fmt"
	"strings"
)

// Pattern covers paths: one exact path, or a path and everything below it.
type Pattern struct {
	base string // without "/**"; empty is the root
	deep bool
}

// ParsePattern reads "/a/b" or "/a/b/**" or "/**". Segments are not empty, hold no "*" and are not "." or "..".
func ParsePattern(s string) (Pattern, error) {
	base, deep := strings.CutSuffix(s, "/**")
	if deep && base == "" {
		return Pattern{deep: true}, nil
	}
	if !validPath(Path(base)) || strings.Contains(base, "*") {
		return Pattern{}, fmt.Errorf("pattern %q is neither a path such as /persistence/namespaces/a/documents/b nor one with /** at its end", s)
	}
	return Pattern{base: base, deep: deep}, nil
}

// validPath tells whether p is absolute with non-empty segments other than "." and "..".
func validPath(p Path) bool {
	s := string(p)
	if len(s) < 2 || s[0] != '/' || strings.Contains(s, "//") || strings.HasSuffix(s, "/") {
		return false
	}
	for rest := s[1:]; rest != ""; {
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		if segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// Covers tells whether the pattern covers path.
func (p Pattern) Covers(path Path) bool {
	s := string(path)
	if !p.deep {
		return s == p.base
	}
	rest, ok := strings.CutPrefix(s, p.base)
	return ok && (rest == "" || rest[0] == '/')
}

// Overlaps tells whether some path could be covered by both patterns.
func (p Pattern) Overlaps(q Pattern) bool {
	return p.Covers(Path(q.base)) || q.Covers(Path(p.base)) || (p.base == "" && p.deep) || (q.base == "" && q.deep)
}

// Base is the pattern's path without "/**": "/" for the root.
func (p Pattern) Base() Path {
	if p.base == "" {
		return "/"
	}
	return Path(p.base)
}

// Contains tells whether every path that q covers is covered by p.
func (p Pattern) Contains(q Pattern) bool {
	if !p.deep {
		return !q.deep && p.base == q.base
	}
	return p.base == "" || (q.base != "" && p.Covers(Path(q.base)))
}

// String gives the pattern as it is written.
func (p Pattern) String() string {
	if p.deep {
		return p.base + "/**"
	}
	return p.base
}

// Scope is a capability on a pattern, as written in `keys create --only persistence.read@/persistence/namespaces/a/**`.
type Scope struct {
	Capability Capability
	On         Pattern
}

// ParseScope reads "capability@pattern".
func ParseScope(s string) (Scope, error) {
	c, on, ok := strings.Cut(s, "@")
	if !ok {
		return Scope{}, fmt.Errorf("scope %q is not of the form capability@pattern, such as persistence.read@/persistence/namespaces/a/**", s)
	}
	if !Capability(c).Known() {
		return Scope{}, fmt.Errorf("scope %q: unknown capability %q; known are %s", s, c, knownCapabilities())
	}
	p, err := ParsePattern(on)
	if err != nil {
		return Scope{}, fmt.Errorf("scope %q: %w", s, err)
	}
	return Scope{Capability(c), p}, nil
}

// Covers tells whether the scope covers the check.
func (s Scope) Covers(c Check) bool { return s.Capability == c.Capability && s.On.Covers(c.Path) }

// String gives the scope as it is written.
func (s Scope) String() string { return string(s.Capability) + "@" + s.On.String() }
