package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// identifier is what a namespace may be (persistence.v1, section 3.1).
var identifier = regexp.MustCompile(`\A[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\z`)

// Rename gives a copy of the scenario whose namespaces end in suffix, so that it finds an empty place on a store that
// others use too, and leaves their data alone. A namespace is renamed where the contract has one: in members called
// namespace (but not within payload and provenance, which are the application's), in resource URIs, and in the paths of
// transfers. What no server takes for a namespace stays as it is.
//
// An error says why the scenario cannot be renamed: raw arguments that hold a namespace (their text must not change),
// grants (they name paths), and a namespace that is matched by a pattern.
func (s *Scenario) Rename(suffix string) (*Scenario, error) {
	out, r := *s, &renamer{suffix: suffix, known: map[string]bool{}}
	for range 2 { // the first time over learns the names that paths may hold in odd places
		out.Steps = r.steps(s.Steps)
		if r.err != nil {
			return nil, r.err
		}
	}
	return &out, nil
}

// renamer renames; err is the first thing that it could not do.
type renamer struct {
	suffix string
	known  map[string]bool // namespaces of arguments
	err    error
}

// fail notes why it cannot be done.
func (r *renamer) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// steps gives renamed copies.
func (r *renamer) steps(steps []Step) []Step {
	out := slices.Clone(steps)
	for i := range out {
		r.step(&out[i])
	}
	return out
}

// step renames in a copy of a step, without touching what the original points to.
func (r *renamer) step(st *Step) {
	if st.RawArgs != nil && strings.Contains(*st.RawArgs, "namespace") {
		r.fail(errors.New("raw arguments hold a namespace, and their text must not change"))
	}
	if st.SetGrants != nil {
		r.fail(errors.New("it changes grants"))
	}
	st.Args, st.Expect = r.text(st.Args), r.text(st.Expect)
	st.Resource, st.Parallel = r.uri(st.Resource), r.steps(st.Parallel)
	if st.Pages != nil {
		p := *st.Pages
		p.Args = r.text(p.Args)
		st.Pages = &p
	}
	if st.HTTP != nil {
		h := *st.HTTP
		h.Path = r.path(h.Path)
		st.HTTP = &h
	}
	if st.Step != nil {
		inner := *st.Step
		r.step(&inner)
		st.Step = &inner
	}
}

// text renames in JSON text; nothing stays nothing.
func (r *renamer) text(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return text
	}
	v, err := decode(text)
	if err != nil {
		r.fail(err)
		return text
	}
	out, err := encode(r.value(v))
	if err != nil {
		r.fail(err)
	}
	return out
}

// value renames in a JSON value.
func (r *renamer) value(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = r.value(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, inner := range v {
			switch name {
			case "payload", "provenance":
				out[name] = inner
			case "namespace":
				out[name] = r.member(inner)
			default:
				out[name] = r.value(inner)
			}
		}
		return out
	}
	return v
}

// member renames the value of a member called namespace.
func (r *renamer) member(v any) any {
	switch v := v.(type) {
	case string:
		return r.name(v)
	case map[string]any:
		if _, ok := v["$gen"]; ok {
			made, err := expand(v, nil)
			if s, ok := made.(string); err != nil || ok && identifier.MatchString(s) {
				r.fail(errors.New("a namespace comes from a generator"))
			}
			return v
		}
		for special := range v {
			if special != "$any" && special != "$absent" {
				r.fail(fmt.Errorf("a namespace is matched by %s", special))
			}
		}
	}
	return v
}

// name renames one namespace. A variable holds what a server answered, which is renamed already.
func (r *renamer) name(s string) string {
	if strings.HasPrefix(s, "${") && strings.IndexByte(s, '}') == len(s)-1 && s != "${i}" {
		return s
	}
	if !strings.Contains(s, "${") && !identifier.MatchString(s) {
		return s
	}
	if len(s)+len(r.suffix) > 128 {
		r.fail(fmt.Errorf("the namespace %.20q... leaves no room for another name", s))
		return s
	}
	r.known[s] = true
	return s + r.suffix
}

// uri renames the namespace of a resource URI: the segment after persistence://documents and its like.
func (r *renamer) uri(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	segments := strings.Split(rest, "/")
	if len(segments) > 1 {
		segments[1] = r.segment(segments[1])
	}
	return scheme + "://" + strings.Join(segments, "/")
}

// path renames the namespace of a transfer's path, and every later segment that is one of the scenario's namespaces:
// odd paths hold it in odd places.
func (r *renamer) path(path string) string {
	path, query, has := strings.Cut(path, "?")
	segments := strings.Split(path, "/")
	for i := 2; i < len(segments); i++ {
		plain, err := url.PathUnescape(segments[i])
		if i == 2 || err == nil && r.known[plain] {
			segments[i] = r.segment(segments[i])
		}
	}
	path = strings.Join(segments, "/")
	if has {
		path += "?" + query
	}
	return path
}

// segment renames a segment whose decoded form is a namespace.
func (r *renamer) segment(s string) string {
	plain, err := url.PathUnescape(s)
	if err != nil || r.name(plain) == plain {
		return s
	}
	return s + r.suffix
}
