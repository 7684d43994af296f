package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Bounds of a schema (security requirements, S16).
const (
	maxSchemaDepth = 32
	maxSubschemas  = 2000
)

// Schema is a JSON Schema (draft 2020-12): its text as listed, and its compiled check. It is immutable and safe
// for concurrent use.
type Schema struct {
	text    []byte
	compile func() (*jsonschema.Schema, error) // once
}

// errRemote is the answer to every reference that leaves the document.
var errRemote = errors.New("a schema may refer only into its own document; nothing is fetched")

// noLoader refuses every document.
type noLoader struct{}

// Load refuses url.
func (noLoader) Load(string) (any, error) { return nil, errRemote }

// schemaURL is the base of a compiled schema. It resolves to nothing.
const schemaURL = "tabellion:schema"

// CompileSchema reads and compiles text. References to other documents are refused, never fetched.
func CompileSchema(text []byte) (*Schema, error) {
	s, err := readSchema(text)
	if err != nil {
		return nil, err
	}
	if _, err := s.compile(); err != nil {
		return nil, err
	}
	return s, nil
}

// MustSchema is CompileSchema for schemas in code. It is compiled at its first use, or by Catalog.Warm: a program that
// starts should not wait for it. It panics when text is no schema at all, and at the first use when it does not
// compile; a test of the catalog that holds it compiles it.
func MustSchema(text string) *Schema {
	s, err := readSchema([]byte(text))
	if err != nil {
		panic(err)
	}
	return s
}

// readSchema reads text and keeps its bounds.
func readSchema(text []byte) (*Schema, error) {
	v, err := canonjson.ParseStrict(text, canonjson.Limits{Depth: 3 * maxSchemaDepth, Nodes: 20 * maxSubschemas})
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	if err := boundSchema(v); err != nil {
		return nil, err
	}
	compact := v.AppendJSON(nil)
	return &Schema{text: compact, compile: sync.OnceValues(func() (*jsonschema.Schema, error) { return compileText(compact) })}, nil
}

// compileText makes the check.
func compileText(text []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return compiled, nil
}

// boundSchema refuses schemas that are too deep or too large, so that a check takes bounded time.
func boundSchema(v canonjson.Value) error {
	if v.Depth() > 3*maxSchemaDepth {
		return fmt.Errorf("the schema is nested deeper than %d subschemas", maxSchemaDepth)
	}
	if n := countObjects(v); n > maxSubschemas {
		return fmt.Errorf("the schema has %d objects, more than %d", n, maxSubschemas)
	}
	return nil
}

// countObjects counts the objects in v: an upper bound of its subschemas.
func countObjects(v canonjson.Value) int {
	n := 0
	switch v.Kind() {
	case canonjson.KindObject:
		n = 1
		for _, m := range v.Members() {
			n += countObjects(m.Value)
		}
	case canonjson.KindArray:
		for _, item := range v.Items() {
			n += countObjects(item)
		}
	}
	return n
}

// Text is the schema as it is listed: compact, in the order it was written. The caller must not change it.
func (s *Schema) Text() []byte { return s.text }

// Check validates v. The error names the place and the rule in words that do not quote v beyond its own short
// tokens.
func (s *Schema) Check(v canonjson.Value) error {
	return s.check(v.Any())
}

// CheckOutput validates v without looking into raw content, which stands only where the schema is free.
func (s *Schema) CheckOutput(v canonjson.Value) error {
	return s.check(v.AnyOpaque())
}

// check validates a decoded value.
func (s *Schema) check(v any) error {
	compiled, err := s.compile()
	if err != nil {
		panic(err) // a schema in our own code that does not compile
	}
	if err = compiled.Validate(v); err == nil {
		return nil
	}
	var ve *jsonschema.ValidationError
	if errors.As(err, &ve) {
		return &SchemaError{Problems: problems(ve), Arguments: topLevel(ve)}
	}
	return err
}

// SchemaError lists what does not fit, at most maxProblems.
type SchemaError struct {
	Problems []string
	// Arguments are the top-level members that hold the problems, without repetition; "" is the top level itself.
	Arguments []string
}

// maxProblems bounds a message for a model: the first few are what it can act on.
const maxProblems = 5

// Error joins the problems.
func (e *SchemaError) Error() string { return strings.Join(e.Problems, "; ") }

// topLevel names the members that hold the leaves of a validation error.
func topLevel(ve *jsonschema.ValidationError) []string {
	var out []string
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, c := range e.Causes {
			walk(c)
		}
		name := ""
		if len(e.InstanceLocation) > 0 {
			name = e.InstanceLocation[0]
		}
		if len(e.Causes) == 0 && !slices.Contains(out, name) && len(out) < maxProblems {
			out = append(out, name)
		}
	}
	walk(ve)
	return out
}

// problems collects the leaves of a validation error as "at /a/b: words".
func problems(ve *jsonschema.ValidationError) []string {
	var out []string
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(out) >= maxProblems {
			return
		}
		if len(e.Causes) == 0 {
			out = append(out, "at "+pointer(e.InstanceLocation)+": "+words(e))
			return
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	walk(ve)
	return out
}

// maxQuoted bounds what a message repeats of the caller's own input, in characters (security requirements, S47).
const maxQuoted = 64

// words says what is wrong at one leaf. Where that quotes the caller's own input, it is escaped and cut.
func words(e *jsonschema.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *kind.Pattern:
		return fmt.Sprintf("%s does not match the pattern %s", Quote(k.Got, maxQuoted), k.Want)
	case *kind.Format:
		return fmt.Sprintf("not a valid %s", k.Want)
	case *kind.AdditionalProperties:
		return "unknown member " + quoteAll(k.Properties)
	case *kind.PropertyNames:
		return "the member name " + quoteAll([]string{k.Property}) + " is not allowed"
	case *kind.Required:
		return "missing " + strings.Join(k.Missing, ", ")
	}
	return Clip(e.ErrorKind.LocalizedString(message.NewPrinter(language.English)), 3*maxQuoted)
}

// quoteAll quotes names, the first few and each cut, and says how many there are in all.
func quoteAll(names []string) string {
	const few = 3
	var out []string
	slices.Sort(names) // the library gives them in no order
	for _, n := range names[:min(few, len(names))] {
		out = append(out, Quote(n, maxQuoted/few))
	}
	if len(names) > few {
		out = append(out, fmt.Sprintf("and %d more", len(names)-few))
	}
	return strings.Join(out, ", ")
}

// Quote is Clip in quotation marks.
func Quote(s string, n int) string { return `"` + Clip(s, n) + `"` }

// Clip escapes control and invisible characters of s and cuts it to n characters.
func Clip(s string, n int) string {
	var b strings.Builder
	count := 0
	for _, r := range s {
		if count == n {
			b.WriteString("...")
			break
		}
		if r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) || Invisible(r) {
			fmt.Fprintf(&b, "\\u{%04x}", r)
		} else {
			b.WriteRune(r)
		}
		count++
	}
	return b.String()
}

// Invisible tells whether r is a format, direction, filler, selector or tag character that a reader cannot see, or a line
// break that is none to most programs.
func Invisible(r rune) bool {
	switch {
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f,
		r == 0xfeff, r == 0x00ad, r >= 0xe0000 && r <= 0xe0fff, r >= 0xfe00 && r <= 0xfe0f:
		return true
	case r == 0x034f, r == 0x061c, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r >= 0x180b && r <= 0x180f,
		r == 0x3164, r == 0xffa0, r >= 0xfff0 && r <= 0xfffb, r >= 0x1bca0 && r <= 0x1bca3, r >= 0x1d173 && r <= 0x1d17a:
		return true
	}
	return false
}

// pointer joins a location as an RFC 6901 pointer, clipped; the root is "the arguments".
func pointer(loc []string) string {
	if len(loc) == 0 {
		return "the top level"
	}
	var b strings.Builder
	for _, s := range loc {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(s))
	}
	return Clip(b.String(), maxQuoted)
}
