package canonjson

import (
	"math"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// The limits that apply where Limits says nothing (persistence.v1, section 3.3).
const (
	DefaultDepth = 64
	DefaultNodes = 100_000
)

// ceilingDepth bounds Limits.Depth, because trees are walked by recursion.
const ceilingDepth = 10_000

// Limits bounds the tree that Parse builds. A zero field means its default.
type Limits struct {
	Depth int // containers open around a value, itself included: [] is 1, a scalar 0; never more than 10,000
	Nodes int // values; names do not count
}

// unlimited is for text that was within limits when it was stored.
var unlimited = Limits{Depth: ceilingDepth, Nodes: math.MaxInt32}

// effective returns the limits with defaults filled in.
func (l Limits) effective() Limits {
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	if l.Nodes <= 0 {
		l.Nodes = DefaultNodes
	}
	return Limits{Depth: min(l.Depth, ceilingDepth), Nodes: min(l.Nodes, math.MaxInt32)}
}

// Parse reads one JSON text. The error is a *SyntaxError, and then the value is Absent and
// there is no flaw: text is not JSON, not UTF-8, empty, starts with a byte order mark or
// goes on after the value.
//
// A flaw is the first place, in the order of the text, where the text breaks a rule; it
// must be refused, but the tree holds what is needed to say so. In that tree the first of
// two members of one name is kept, a lone surrogate is U+FFFD, a container beyond the depth
// is null, and beyond the number of nodes only 64 more members are kept in the outermost
// object and in each object directly in it.
//
// Parse does not keep text. It uses memory in proportion to the text, and a stack bounded
// by the depth.
func Parse(text []byte, l Limits) (Value, *Flaw, error) {
	if err := checkEncoding(text); err != nil {
		return Value{}, nil, err
	}
	return parse(text, string(text), l)
}

// ParseStrict is Parse with the flaw as the error: for our own files and tests.
func ParseStrict(text []byte, l Limits) (Value, error) {
	v, flaw, err := Parse(text, l)
	if err != nil {
		return Value{}, err
	}
	if flaw != nil {
		return Value{}, flaw
	}
	return v, nil
}

// parseString is Parse for text that is a string already.
func parseString(text string, l Limits) (Value, *Flaw, error) {
	b := []byte(text)
	if err := checkEncoding(b); err != nil {
		return Value{}, nil, err
	}
	return parse(b, text, l)
}

// checkEncoding refuses text that is not UTF-8 or starts with a byte order mark.
func checkEncoding(text []byte) error {
	if len(text) >= 3 && string(text[:3]) == "\uFEFF" {
		return newSyntaxError(text, 0, "byte order mark, want the JSON text alone")
	}
	if utf8.Valid(text) {
		return nil
	}
	offset := 0
	for {
		r, n := utf8.DecodeRune(text[offset:])
		if r == utf8.RuneError && n <= 1 {
			return newSyntaxError(text, offset, "text is not UTF-8")
		}
		offset += n
	}
}

// parse reads valid UTF-8; source is the same text as a string, which the values share.
func parse(text []byte, source string, l Limits) (Value, *Flaw, error) {
	p := parsers.Get().(*parser)
	defer p.release()
	p.scanner = scanner{text: text}
	p.source = source
	p.limits = l.effective()
	p.items.chunk = chunkSize(len(text), 64)
	p.members.chunk = chunkSize(len(text), 32)
	p.containers.chunk = chunkSize(len(text), 128)
	v, _, ok := p.value()
	if !ok || !p.end() {
		return Value{}, nil, p.err
	}
	return v, p.flaw, nil
}

// chunkSize guesses how many entries of an arena a text of n bytes needs when there is one in
// so many bytes. Being wrong costs allocations or memory.
func chunkSize(n, bytes int) int { return max(2, min(n/bytes, 512)) }

// Beyond Limits.Nodes these many members are still kept in an object at a depth of at most
// spareDepth, all its values reduced to that depth: enough for the id, method and tool name
// of a JSON-RPC request, and never more than 64 + 64*64 values.
const (
	spareMembers = 64
	spareDepth   = 2
)

// parser builds the tree of one text. Methods that return ok false have set err.
type parser struct {
	scanner
	source string
	limits Limits
	nodes  int // values seen so far, outside of what is skipped for its depth
	flaw   *Flaw
	path   []step // one for each open container

	nameStart int // offset of the member name that was read last

	// The children of open containers, innermost last. When a container closes its children
	// move into the arenas, which end up in the tree.
	openItems   []Value
	openMembers []Member

	items      arena[Value]
	members    arena[Member]
	containers arena[container]

	unescaped []byte // content of the string being decoded
}

// step says which child of an open container is being read.
type step struct {
	name   string // if object
	index  int    // otherwise
	extra  int    // children kept beyond limits.Nodes
	object bool
}

// parsers keeps the scratch memory of finished parsers.
var parsers = sync.Pool{New: func() any { return new(parser) }}

// maxScratch is how many entries of scratch a pooled parser may keep, of each kind.
const maxScratch = 4096

// release gives p back to the pool without references to the text or the tree.
func (p *parser) release() {
	if cap(p.openItems) > maxScratch || cap(p.openMembers) > maxScratch || cap(p.path) > maxScratch/16 || cap(p.unescaped) > 64*maxScratch {
		return
	}
	clear(p.openItems)
	clear(p.openMembers)
	clear(p.path[:cap(p.path)])
	*p = parser{
		path:        p.path[:0],
		openItems:   p.openItems[:0],
		openMembers: p.openMembers[:0],
		unescaped:   p.unescaped[:0],
	}
	parsers.Put(p)
}

// report notes a flaw at offset, in the child of the innermost container that is being
// read, unless there is one already. subject is the text at fault, if the message quotes it.
func (p *parser) report(rule Rule, offset int, subject string) {
	if p.flaw == nil {
		p.flaw = &Flaw{Rule: rule, Offset: offset, Pointer: pointer(p.path), Message: rule.message(subject, p.limits)}
	}
}

// value reads one value. keep false means that it goes beyond the number of nodes and is
// not to be kept.
func (p *parser) value() (v Value, keep, ok bool) {
	c := p.next()
	if p.nodes++; p.nodes > p.limits.Nodes && !p.keepExtra() {
		return Value{}, false, p.skip()
	}
	start := p.pos
	switch c {
	case '"':
		v, ok = p.stringValue()
	case '{', '[':
		v, ok = p.container(c)
	case 't':
		v, ok = Bool(true), p.scanWord("true")
	case 'f':
		v, ok = Bool(false), p.scanWord("false")
	case 'n':
		v, ok = Null(), p.scanWord("null")
	default:
		if c != '-' && (c < '0' || c > '9') {
			return Value{}, false, p.unexpected("a value")
		}
		v, ok = p.numberValue()
	}
	if start < math.MaxUint32 {
		v.at = uint32(start) + 1
	}
	return v, true, ok
}

// keepExtra reports whether the value at the current position, which is beyond the number
// of nodes, is kept nevertheless.
func (p *parser) keepExtra() bool {
	p.report(TooManyNodes, p.pos, "")
	parent := &p.path[len(p.path)-1] // there is one, because the outermost value is within any limit
	if !parent.object || len(p.path) > spareDepth || parent.extra == spareMembers {
		return false
	}
	parent.extra++
	return true
}

// stringValue reads a string.
func (p *parser) stringValue() (Value, bool) {
	start := p.pos + 1
	escaped, ok := p.scanString()
	if !ok {
		return Value{}, false
	}
	s := p.source[start : p.pos-1]
	if escaped {
		var lone int
		if s, lone = p.decode(s); lone >= 0 {
			p.reportSurrogate(start + lone)
		}
	}
	return Value{kind: KindString, text: s}, true
}

// numberValue reads a number.
func (p *parser) numberValue() (Value, bool) {
	start := p.pos
	integer, ok := p.scanNumber()
	if !ok {
		return Value{}, false
	}
	literal := p.source[start:p.pos]
	if p.flaw == nil {
		if rule := checkNumber(literal, integer); rule != "" {
			p.report(rule, start, literal)
		}
	}
	return number(literal, integer), true
}

// container reads an array or object, which opens with c. One that must not be kept becomes
// null.
func (p *parser) container(c byte) (v Value, ok bool) {
	depth := len(p.path) + 1
	if depth > p.limits.Depth {
		p.report(TooDeep, p.pos, "")
		return Null(), p.skip()
	}
	if p.nodes > p.limits.Nodes && depth > spareDepth {
		return Null(), p.skip()
	}
	p.pos++
	p.path = append(p.path, step{object: c == '{'})
	if c == '{' {
		v, ok = p.object()
	} else {
		v, ok = p.array()
	}
	p.path = p.path[:len(p.path)-1]
	return v, ok
}

// array reads the items of an array and its closing bracket.
func (p *parser) array() (v Value, ok bool) {
	base := len(p.openItems)
	total := newSize()
	here := len(p.path) - 1
	for more := p.next() != ']'; more; p.path[here].index++ {
		item, keep, ok := p.value()
		if !ok {
			return Value{}, false
		}
		if keep {
			p.openItems = append(p.openItems, item)
			total.add(&item)
		}
		if more, ok = p.separator(']'); !ok {
			return Value{}, false
		}
	}
	p.pos++
	items := p.items.move(p.openItems[base:])
	p.openItems = p.openItems[:base]
	return p.close(KindArray, container{items: items, size: total}), true
}

// object reads the members of an object and its closing bracket.
func (p *parser) object() (v Value, ok bool) {
	base := len(p.openMembers)
	total := newSize()
	var names nameSet
	for more := p.next() != '}'; more; {
		name, nul, ok := p.name()
		if !ok {
			return Value{}, false
		}
		fresh := names.add(p.openMembers[base:], name)
		if !fresh {
			p.report(DuplicateName, p.nameStart, name)
		}
		member, keep, ok := p.value()
		if !ok {
			return Value{}, false
		}
		if keep && fresh {
			p.openMembers = append(p.openMembers, Member{Name: name, Value: member})
			total.add(&member)
			total.nulName = total.nulName || nul
		}
		if more, ok = p.separator('}'); !ok {
			return Value{}, false
		}
	}
	p.pos++
	members := p.members.move(p.openMembers[base:])
	p.openMembers = p.openMembers[:base]
	return p.close(KindObject, container{members: members, size: total}), true
}

// close returns the value of a container that has been read.
func (p *parser) close(kind Kind, c container) Value {
	kids := &p.containers.take(1)[0]
	*kids = c
	return Value{kind: kind, kids: kids}
}

// separator reads the comma after a child, and reports more, or leaves the closing bracket
// to be read.
func (p *parser) separator(closing byte) (more, ok bool) {
	switch p.next() {
	case ',':
		p.pos++
		return true, true
	case closing:
		return false, true
	}
	return false, p.unexpected(afterValue(closing == '}'))
}

// name reads the name of the next member of the innermost object, and its colon. nul
// reports that it holds U+0000.
func (p *parser) name() (name string, nul, ok bool) {
	start, end, escaped, ok := p.scanName()
	if !ok {
		return "", false, false
	}
	name, lone := p.source[start:end], -1
	if escaped {
		name, lone = p.decode(name)
		nul = strings.IndexByte(name, 0) >= 0
	}
	p.nameStart = start - 1
	p.path[len(p.path)-1].name = name
	if lone >= 0 {
		p.reportSurrogate(start + lone)
	}
	return name, nul, true
}

// reportSurrogate reports the escape of a lone surrogate at offset.
func (p *parser) reportSurrogate(offset int) {
	p.report(LoneSurrogate, offset, p.source[offset:offset+len(`\ud800`)])
}

// decode returns the content of a string from its text, whose escapes have been checked.
// lone is the index of the first lone surrogate, -1 if there is none.
func (p *parser) decode(s string) (content string, lone int) {
	b := p.unescaped[:0]
	lone = -1
	for at := 0; ; {
		i := strings.IndexByte(s[at:], '\\')
		if i < 0 {
			b = append(b, s[at:]...)
			p.unescaped = b
			return string(b), lone
		}
		b = append(b, s[at:at+i]...)
		at += i
		r, n := decodeEscape(s[at:])
		if r == utf8.RuneError && n == 0 {
			n = 6
			if lone < 0 {
				lone = at
			}
		}
		b = utf8.AppendRune(b, r)
		at += n
	}
}

// decodeEscape returns the character of the escape that s begins with and how many bytes it
// takes, 12 for a surrogate pair. For a lone surrogate it is U+FFFD and 0.
func decodeEscape(s string) (r rune, n int) {
	switch s[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		return decodeUnicode(s)
	}
	return rune(s[1]), 2
}

// decodeUnicode is decodeEscape for escapes of the form \uXXXX.
func decodeUnicode(s string) (r rune, n int) {
	r = hexRune(s[2:6])
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
		if pair := utf16.DecodeRune(r, hexRune(s[8:12])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 0
}

// hexRune reads hexadecimal digits.
func hexRune(digits string) (r rune) {
	for i := range len(digits) {
		c := digits[i] | 0x20 // lower case; digits have that bit already
		if c >= 'a' {
			c -= 'a' - '0' - 10
		}
		r = r<<4 | rune(c-'0')
	}
	return r
}

// arena hands out exact slices of larger allocations.
type arena[T any] struct {
	free  []T
	chunk int // entries of one allocation
}

// take returns n zero entries.
func (a *arena[T]) take(n int) []T {
	if n > len(a.free) {
		if n >= a.chunk {
			return make([]T, n)
		}
		a.free = make([]T, a.chunk)
	}
	taken := a.free[:n:n]
	a.free = a.free[n:]
	return taken
}

// move copies from into the arena and clears it there. It returns nil for nothing.
func (a *arena[T]) move(from []T) []T {
	if len(from) == 0 {
		return nil
	}
	to := a.take(len(from))
	copy(to, from)
	clear(from)
	return to
}
