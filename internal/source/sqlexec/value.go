package sqlexec

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Float is a number of binary64; false for NaN and the infinities.
func Float(f float64) (canonjson.Value, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return canonjson.Value{}, false
	}
	return canonjson.Float(f), true
}

// Text is a string; false for what is not UTF-8.
func Text(s string) (canonjson.Value, bool) {
	if !utf8.ValidString(s) {
		return canonjson.Value{}, false
	}
	return canonjson.String(s), true
}

// Decimal brings decimal digits into their one form: no exponent, no sign of zero, no zeros that say nothing.
func Decimal(s string) (string, bool) {
	digits, negative := strings.CutPrefix(strings.TrimPrefix(s, "+"), "-")
	mantissa, exponent, hasExponent := digits, "", false
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		mantissa, exponent, hasExponent = digits[:i], digits[i+1:], true
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if whole+fraction == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return "", false
	}
	if hasExponent {
		e, err := strconv.Atoi(exponent)
		if err != nil || e > 1000 || e < -1000 {
			return "", false
		}
		whole, fraction = shift(whole, fraction, e)
	}
	whole, fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	if whole == "" {
		whole = "0"
	}
	if fraction != "" {
		whole += "." + fraction
	}
	if negative && whole != "0" {
		whole = "-" + whole
	}
	return whole, true
}

// shift moves the decimal point by e places to the right.
func shift(whole, fraction string, e int) (string, string) {
	if e >= 0 {
		fraction += strings.Repeat("0", max(0, e-len(fraction)))
		return whole + fraction[:e], fraction[e:]
	}
	whole = strings.Repeat("0", max(0, -e-len(whole))) + whole
	cut := len(whole) + e
	return whole[:cut], whole[cut:] + fraction
}

// timeForms are the forms in which times stand in databases, the usual ones of SQLite and PostgreSQL. A time without a
// zone is one of UTC.
var timeForms = []string{
	"2006-01-02T15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999Z07",
	"2006-01-02 15:04:05.999999999",
	"2006-01-02T15:04:05.999999999",
	"2006-01-02 15:04Z07:00",
	"2006-01-02T15:04Z07:00",
	"2006-01-02 15:04",
	"2006-01-02T15:04",
	"2006-01-02",
}

// ParseTime reads a time in any of these forms.
func ParseTime(s string) (time.Time, bool) {
	if len(s) < len("2006-01-02") || s[0] < '0' || s[0] > '9' {
		return time.Time{}, false
	}
	for _, form := range timeForms {
		if t, err := time.Parse(form, s); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// Timestamp brings a time into its one form: RFC 3339 in UTC. Years that this form cannot write are none.
func Timestamp(s string) (canonjson.Value, bool) {
	t, ok := ParseTime(s)
	if !ok || t.Year() < 1 || t.Year() > 9999 {
		return canonjson.Value{}, false
	}
	return canonjson.String(t.Format(time.RFC3339Nano)), true
}

// Day is a calendar day; a time of day is allowed where it is midnight.
func Day(s string) (canonjson.Value, bool) {
	t, ok := ParseTime(s)
	if !ok || t.Year() < 1 || t.Hour()+t.Minute()+t.Second()+t.Nanosecond() != 0 {
		return canonjson.Value{}, false
	}
	return canonjson.String(t.Format(time.DateOnly)), true
}

// UUID brings an id into its one form: 36 characters in lower case.
func UUID(s string) (canonjson.Value, bool) {
	if len(s) != 36 {
		return canonjson.Value{}, false
	}
	for i := range len(s) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return canonjson.Value{}, false
			}
		} else if !strings.ContainsRune("0123456789abcdefABCDEF", rune(s[i])) {
			return canonjson.Value{}, false
		}
	}
	return canonjson.String(strings.ToLower(s)), true
}

// jsonLimits bound JSON that is stored in a column.
var jsonLimits = canonjson.Limits{Depth: 1000, Nodes: 1 << 20}

// JSON reads stored JSON. Numbers that binary64 cannot hold keep their digits; other flaws make it none, and so does
// another kind than the type says.
func JSON(t model.Type, text string) (canonjson.Value, bool) {
	v, flaw, err := canonjson.Parse([]byte(text), jsonLimits)
	if err != nil || flaw != nil && flaw.Rule != canonjson.NumberExact {
		return canonjson.Value{}, false
	}
	switch {
	case v.Kind() == canonjson.KindNull, t == model.Any,
		t == model.Array && v.Kind() == canonjson.KindArray, t == model.Object && v.Kind() == canonjson.KindObject:
		return v, true
	}
	return canonjson.Value{}, false
}
