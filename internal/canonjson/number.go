package canonjson

import (
	"math"
	"strconv"
	"strings"
)

// maxSafe is 2^53-1, the largest integer below which binary64 holds every integer.
const maxSafe = 1<<53 - 1

// plainDigits is how many digits an integer may have and be exact in binary64 without
// looking at them.
const plainDigits = 15

// number returns a number value for a literal that follows the grammar. integer says that
// it has neither fraction nor exponent.
func number(literal string, integer bool) Value {
	v := Value{kind: KindNumber, text: literal}
	if integer && len(literal) <= plainDigits && literal != "-0" {
		v.flags = flagPlain
	}
	return v
}

// checkNumber returns the rule that a number breaks, "" if none.
func checkNumber(literal string, integer bool) Rule {
	if integer && len(literal) <= plainDigits {
		return ""
	}
	// Without an exponent fewer than 300 characters stay far below 1.8e308.
	if (!integer || len(literal) >= 300) && math.IsInf(parseFloat(literal), 0) {
		return NumberRange
	}
	if integer && !exactInteger(literal) {
		return NumberExact
	}
	return ""
}

// exactInteger reports whether an integer literal in the range of binary64 is held exactly
// by it. All up to ±(2^53-1) are.
func exactInteger(literal string) bool {
	digits := strings.TrimPrefix(literal, "-")
	if len(digits) <= plainDigits {
		return true
	}
	// With precision 0 FormatFloat spells every digit of the binary value, which is an
	// integer from 2^53 on; below, rounding an integer changes nothing.
	return strconv.FormatFloat(parseFloat(digits), 'f', 0, 64) == digits
}

// decimal is a number taken apart: 0.digits times ten to the power of point. digits has
// neither leading nor trailing zeros and is empty for zero.
type decimal struct {
	negative bool
	digits   string
	point    int
}

// maxExponent is beyond what any literal in memory can bring back into range, and small
// enough to be added to the length of one.
const maxExponent = 1 << 60

// newDecimal takes a number literal apart without rounding.
func newDecimal(literal string) decimal {
	mantissa, exponent := literal, 0
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa, exponent = literal[:i], readExponent(literal[i+1:])
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	point := len(whole) + exponent
	trimmed := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(trimmed)
	trimmed = strings.TrimRight(trimmed, "0")
	if trimmed == "" {
		point = 0
	}
	return decimal{negative: negative, digits: trimmed, point: point}
}

// readExponent reads an exponent with its sign, held within ±maxExponent.
func readExponent(s string) int {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > maxExponent || n < -maxExponent {
		if s[0] == '-' {
			return -maxExponent
		}
		return maxExponent
	}
	return int(n)
}

// exactInt returns the integer that a literal spells, if it lies within ±(2^53-1).
func exactInt(literal string) (int64, bool) {
	if len(literal) <= plainDigits {
		if n, err := strconv.ParseInt(literal, 10, 64); err == nil {
			return n, true
		}
	}
	d := newDecimal(literal)
	if d.point < len(d.digits) || d.point > len("9007199254740991") {
		return 0, false
	}
	if d.digits == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(d.digits+strings.Repeat("0", d.point-len(d.digits)), 10, 64)
	if err != nil || n > maxSafe {
		return 0, false
	}
	if d.negative {
		n = -n
	}
	return n, true
}

// strconv.ParseFloat of Go 1.26 misplaces the decimal point of a literal with more than 800
// digits before it, and stops reading an exponent at 100,000: it takes 1, a thousand zeros
// and e-1000 for 1e-201. Longer literals than longLiteral are therefore brought into a
// shorter form first. No more than 767 digits decide how a number rounds, so shortDigits and
// a last digit that stands for the rest are enough.
const (
	longLiteral = 700
	shortDigits = 780
)

// parseFloat returns the binary64 nearest to a literal that follows the grammar, an
// infinity if it is out of range.
func parseFloat(literal string) float64 {
	if len(literal) > longLiteral {
		literal = shorten(newDecimal(literal))
	}
	f, _ := strconv.ParseFloat(literal, 64) // the only error is out of range, and f says so
	return f
}

// shorten spells d with a bounded number of digits such that it rounds to the same binary64.
func shorten(d decimal) string {
	if len(d.digits) > shortDigits {
		d.digits = d.digits[:shortDigits] + "1"
	}
	sign := ""
	if d.negative {
		sign = "-"
	}
	point := max(-maxPoint, min(d.point, maxPoint))
	return sign + "0." + d.digits + "0e" + strconv.Itoa(point)
}

// maxPoint is an exponent far beyond the range of binary64 that strconv still reads.
const maxPoint = 5000

// appendFloat appends a finite number as ECMAScript spells it (RFC 8785, section 3.2.2.3).
func appendFloat(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	switch {
	case f == 0:
		return append(dst, '0')
	case abs >= 1e-6 && abs < 1e21:
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go writes at least two digits of exponent, ECMAScript as few as there are.
	if n := len(dst); dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
