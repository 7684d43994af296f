package canonjson

import (
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// scanner checks the grammar of one text, token by token. It builds nothing. Methods that
// return ok false have set err.
type scanner struct {
	text []byte
	pos  int // of the next byte to read
	err  *SyntaxError
}

// fail notes that the text is wrong at offset, and returns false.
func (s *scanner) fail(offset int, msg string) bool {
	s.err = newSyntaxError(s.text, offset, msg)
	return false
}

// unexpected notes that what stands at the current position cannot stand there.
func (s *scanner) unexpected(want string) bool {
	if s.pos >= len(s.text) {
		return s.fail(len(s.text), "unexpected end of text, want "+want)
	}
	r, _ := utf8.DecodeRune(s.text[s.pos:])
	return s.fail(s.pos, fmt.Sprintf("unexpected %q, want %s", r, want))
}

// next skips white space and returns the byte after it without reading it, 0 at the end.
func (s *scanner) next() byte {
	for ; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// end reads white space up to the end of the text.
func (s *scanner) end() bool {
	s.next()
	return s.pos == len(s.text) || s.unexpected("the end of the text")
}

// read reads c, which want describes, after white space.
func (s *scanner) read(c byte, want string) bool {
	if s.next() != c {
		return s.unexpected(want)
	}
	s.pos++
	return true
}

// word returns eight bytes as one number, the first byte lowest.
func word[T []byte | string](b T) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

const (
	eachOne  = 0x0101010101010101 // the byte 1, eight times
	eachHigh = 0x80 * eachOne
)

// firstSpecial returns which of eight bytes is the first quotation mark, backslash or
// control, 8 if none is. Each term has its high bit set in the first byte that fits; a
// borrow can set further ones only above it.
func firstSpecial(w uint64) int {
	quoteMark := w ^ '"'*eachOne
	backslash := w ^ '\\'*eachOne
	hit := (w-0x20*eachOne)&^w | (quoteMark-eachOne)&^quoteMark | (backslash-eachOne)&^backslash
	return bits.TrailingZeros64(hit&eachHigh) / 8
}

// scanString reads a string whose opening quotation mark is next. escaped reports whether
// it holds an escape.
func (s *scanner) scanString() (escaped, ok bool) {
	t := s.text
	i := s.pos + 1
	for i < len(t) {
		if len(t)-i >= 8 {
			at := firstSpecial(word(t[i : i+8]))
			i += at
			if at == 8 {
				continue
			}
		}
		switch c := t[i]; {
		case c == '"':
			s.pos = i + 1
			return escaped, true
		case c == '\\':
			escaped = true
			n := escapeLen(t[i:])
			if n == 0 {
				return false, s.fail(i, `bad escape in a string, want one of \" \\ \/ \b \f \n \r \t or \u with four hexadecimal digits`)
			}
			i += n
		case c < 0x20:
			return false, s.fail(i, fmt.Sprintf("control character %q in a string, want it as an escape", rune(c)))
		default:
			i++
		}
	}
	return false, s.fail(len(t), "unexpected end of text in a string")
}

// escapeLen returns the length of the escape that t begins with, 0 if it is none.
func escapeLen(t []byte) int {
	if len(t) < 2 {
		return 0
	}
	switch t[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(t) >= 6 && isHex(t[2]) && isHex(t[3]) && isHex(t[4]) && isHex(t[5]) {
			return 6
		}
	}
	return 0
}

// isHex reports whether c is a hexadecimal digit.
func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// digits reads decimal digits and reports whether there was one.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.text) && s.text[s.pos]-'0' <= 9 {
		s.pos++
	}
	return s.pos > start
}

// at reports whether the next byte is a or b.
func (s *scanner) at(a, b byte) bool {
	return s.pos < len(s.text) && (s.text[s.pos] == a || s.text[s.pos] == b)
}

// scanNumber reads a number. integer reports that it has neither fraction nor exponent.
func (s *scanner) scanNumber() (integer, ok bool) {
	if s.at('-', '-') {
		s.pos++
	}
	if s.at('0', '0') {
		s.pos++
	} else if !s.digits() {
		return false, s.unexpected("a digit")
	}
	integer = true
	if s.at('.', '.') {
		integer = false
		s.pos++
		if !s.digits() {
			return false, s.unexpected("a digit after the decimal point")
		}
	}
	if s.at('e', 'E') {
		integer = false
		s.pos++
		if s.at('+', '-') {
			s.pos++
		}
		if !s.digits() {
			return false, s.unexpected("a digit of the exponent")
		}
	}
	return integer, true
}

// scanWord reads true, false or null.
func (s *scanner) scanWord(want string) bool {
	for i := range len(want) {
		if !s.at(want[i], want[i]) {
			return s.unexpected(want)
		}
		s.pos++
	}
	return true
}

// scanName reads the name of a member and its colon.
func (s *scanner) scanName() (start, end int, escaped, ok bool) {
	if s.next() != '"' {
		return 0, 0, false, s.unexpected("a member name in quotation marks")
	}
	start = s.pos + 1
	escaped, ok = s.scanString()
	end = s.pos - 1
	return start, end, escaped, ok && s.read(':', "a colon after the member name")
}

// scanScalar reads any value but a container.
func (s *scanner) scanScalar() (ok bool) {
	switch c := s.next(); {
	case c == '"':
		_, ok = s.scanString()
	case c == '-' || '0' <= c && c <= '9':
		_, ok = s.scanNumber()
	case c == 't':
		ok = s.scanWord("true")
	case c == 'f':
		ok = s.scanWord("false")
	case c == 'n':
		ok = s.scanWord("null")
	default:
		ok = s.unexpected("a value")
	}
	return ok
}

// skip reads one value of any depth without recursion and without keeping any of it: it
// needs one bit for each open container.
func (s *scanner) skip() bool {
	var open bitStack
	for {
		ended, ok := s.skipStart(&open)
		if ok && ended {
			ended, ok = s.skipEnd(&open)
		}
		if !ok || ended {
			return ok
		}
	}
}

// skipStart reads a scalar, an empty container, or the beginning of another container up to
// its first value. ended reports that a value ended.
func (s *scanner) skipStart(open *bitStack) (ended, ok bool) {
	c := s.next()
	if c != '{' && c != '[' {
		return true, s.scanScalar()
	}
	s.pos++
	if s.next() == c+2 { // in ASCII both closing brackets follow their opening ones at a distance of two
		s.pos++
		return true, true
	}
	open.push(c == '{')
	if c == '{' {
		_, _, _, ok = s.scanName()
		return false, ok
	}
	return false, true
}

// skipEnd reads what follows a value: closing brackets, then a comma up to the next value.
// ended reports that the outermost value has ended.
func (s *scanner) skipEnd(open *bitStack) (ended, ok bool) {
	for open.n > 0 {
		object := open.top()
		c := s.next()
		switch {
		case c == ',' && object:
			s.pos++
			_, _, _, ok = s.scanName()
			return false, ok
		case c == ',':
			s.pos++
			return false, true
		case c == '}' && object || c == ']' && !object:
			s.pos++
			open.n--
		default:
			return false, s.unexpected(afterValue(object))
		}
	}
	return true, true
}

// afterValue describes what may follow a value in a container.
func afterValue(object bool) string {
	if object {
		return "a comma or }"
	}
	return "a comma or ]"
}

// bitStack is a stack of booleans.
type bitStack struct {
	bits []uint64
	n    int
}

// push puts b on top.
func (b *bitStack) push(bit bool) {
	i, mask := b.n/64, uint64(1)<<(b.n%64)
	if i == len(b.bits) {
		b.bits = append(b.bits, 0)
	}
	b.bits[i] &^= mask
	if bit {
		b.bits[i] |= mask
	}
	b.n++
}

// top returns what was pushed last; there must be one.
func (b *bitStack) top() bool { return b.bits[(b.n-1)/64]>>((b.n-1)%64)&1 != 0 }
