package model

import (
	"encoding/base64"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// maxBytesValue bounds a value of type bytes (section 2.9).
const maxBytesValue = 64 << 10

// Coerce makes the value of type t that v means, in the form that plan.Compare names: text that spells a number is a
// number, 0 and 1 are booleans, times are brought to UTC. v is neither null nor Absent. The error says what fits, without
// naming a field; the caller of Coerce adds that.
func Coerce(t Type, v canonjson.Value) (canonjson.Value, error) {
	switch t {
	case Int, Long, Date:
		return coerceInteger(v)
	case Float, Double, Number:
		return coerceNumber(v)
	case Boolean:
		return coerceBoolean(v)
	case Decimal:
		return coerceDecimal(v)
	case Timestamp:
		return coerceTimestamp(v)
	case Day:
		return coerceDay(v)
	case UUID:
		return coerceUUID(v)
	case Bytes:
		return coerceBytes(v)
	case Array:
		return coerceKind(v, canonjson.KindArray)
	case Object:
		return coerceKind(v, canonjson.KindObject)
	case Any:
		return v, nil
	}
	return coerceKind(v, canonjson.KindString)
}

// unfitting says what is expected in place of v.
func unfitting(want string, v canonjson.Value) error {
	switch v.Kind() {
	case canonjson.KindString:
		return fmt.Errorf("takes %s, not the text %s", want, Quote(v.Str()))
	case canonjson.KindNumber:
		return fmt.Errorf("takes %s, not the number %s", want, clipDigits(v.Literal()))
	case canonjson.KindBool:
		return fmt.Errorf("takes %s, not %t", want, v.Bool())
	}
	return fmt.Errorf("takes %s, not a value of type %s", want, v.Kind())
}

// clipDigits cuts a long number in a message.
func clipDigits(s string) string {
	if len(s) > maxQuoted {
		return s[:maxQuoted] + "..."
	}
	return s
}

// coerceKind takes values of one JSON type.
func coerceKind(v canonjson.Value, kind canonjson.Kind) (canonjson.Value, error) {
	if v.Kind() != kind {
		article := "a "
		if kind == canonjson.KindArray || kind == canonjson.KindObject {
			article = "an "
		}
		return canonjson.Value{}, unfitting(article+kind.String(), v)
	}
	return v, nil
}

// numberText is a JSON number as text.
var numberText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?$`)

// spelled is the literal of a number, or of text that spells one.
func spelled(v canonjson.Value) (string, bool) {
	s := v.Literal()
	if v.Kind() == canonjson.KindString {
		s = strings.TrimSpace(v.Str())
	}
	return s, len(s) <= 2*maxDigits && numberText.MatchString(s)
}

// coerceInteger takes integers of 64 bits, in any spelling: 5, 5.0, 5e0, "5".
func coerceInteger(v canonjson.Value) (canonjson.Value, error) {
	const want = "an integer of 64 bits"
	s, ok := spelled(v)
	if !ok {
		return canonjson.Value{}, unfitting(want, v)
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return canonjson.Exact(n), nil
	}
	// 5.0 and 1e2 are integers too. Spelled out they are bounded, so that no short text means a long calculation.
	plain, ok := PlainDecimal(s)
	n, err := strconv.ParseInt(plain, 10, 64)
	if !ok || err != nil {
		return canonjson.Value{}, unfitting(want, v)
	}
	return canonjson.Exact(n), nil
}

// coerceNumber takes numbers that binary64 can hold.
func coerceNumber(v canonjson.Value) (canonjson.Value, error) {
	s, ok := spelled(v)
	if !ok {
		return canonjson.Value{}, unfitting("a number", v)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return canonjson.Value{}, unfitting("a number up to 1.8e308", v)
	}
	if v.Kind() == canonjson.KindNumber {
		return v, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return canonjson.Exact(n), nil // all digits, as a number that is written so keeps them
	}
	return canonjson.Float(f), nil
}

// coerceBoolean takes true and false, and 1 and 0.
func coerceBoolean(v canonjson.Value) (canonjson.Value, error) {
	switch v.Kind() {
	case canonjson.KindBool:
		return v, nil
	case canonjson.KindNumber:
		if n, ok := v.Int(); ok && (n == 0 || n == 1) {
			return canonjson.Bool(n == 1), nil
		}
	case canonjson.KindString:
		switch v.Str() {
		case "true", "1":
			return canonjson.Bool(true), nil
		case "false", "0":
			return canonjson.Bool(false), nil
		}
	}
	return canonjson.Value{}, unfitting("true or false", v)
}

// maxDigits bounds a decimal.
const maxDigits = 1000

// coerceDecimal takes exact numbers, as text or as JSON numbers, and gives them without exponent and without zeros that
// say nothing: "12.50" is 12.5.
func coerceDecimal(v canonjson.Value) (canonjson.Value, error) {
	const want = `a decimal number as text, such as "12.50"`
	s, ok := spelled(v)
	if !ok {
		return canonjson.Value{}, unfitting(want, v)
	}
	text, ok := PlainDecimal(s)
	if !ok {
		return canonjson.Value{}, unfitting(want, v)
	}
	return canonjson.String(text), nil
}

// PlainDecimal spells a JSON number without exponent, leading plus, or zeros at the end of its fraction. False for what is
// none, or has more than a thousand digits.
func PlainDecimal(s string) (string, bool) {
	if !numberText.MatchString(s) {
		return "", false
	}
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa = s[:i]
		exponent, _ = strconv.Atoi(s[i+1:])
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits, point := whole+fraction, len(whole)+exponent
	if len(digits) > maxDigits || point > maxDigits || point < -maxDigits {
		return "", false
	}
	if point < 0 {
		digits, point = strings.Repeat("0", -point)+digits, 0
	}
	if point > len(digits) {
		digits += strings.Repeat("0", point-len(digits))
	}
	whole, fraction = strings.TrimLeft(digits[:point], "0"), strings.TrimRight(digits[point:], "0")
	if whole == "" {
		whole = "0"
	}
	if len(whole)+len(fraction) > maxDigits {
		return "", false
	}
	if fraction != "" {
		whole += "." + fraction
	}
	if negative && whole != "0" {
		whole = "-" + whole
	}
	return whole, true
}

// finerThanNanos is a fraction of a second that would be cut.
var finerThanNanos = regexp.MustCompile(`\.[0-9]{9}[0-9]*[1-9]`)

// coerceTimestamp takes RFC 3339 and gives it in UTC, with as many digits of a second as needed.
func coerceTimestamp(v canonjson.Value) (canonjson.Value, error) {
	const want = "a time such as 2042-06-01T08:30:00Z"
	if v.Kind() != canonjson.KindString {
		return canonjson.Value{}, unfitting(want, v)
	}
	// time.Parse takes a comma too, and drops what is finer than a nanosecond.
	at, err := time.Parse(time.RFC3339Nano, v.Str())
	if err != nil || strings.Contains(v.Str(), ",") || finerThanNanos.MatchString(v.Str()) {
		return canonjson.Value{}, unfitting(want, v)
	}
	if at = at.UTC(); at.Year() < 1 || at.Year() > 9999 {
		return canonjson.Value{}, unfitting(want, v)
	}
	return canonjson.String(at.Format(time.RFC3339Nano)), nil
}

// coerceDay takes YYYY-MM-DD.
func coerceDay(v canonjson.Value) (canonjson.Value, error) {
	const want = "a day such as 2042-06-01"
	if v.Kind() != canonjson.KindString {
		return canonjson.Value{}, unfitting(want, v)
	}
	if at, err := time.Parse(time.DateOnly, v.Str()); err != nil || at.Year() < 1 {
		return canonjson.Value{}, unfitting(want, v)
	}
	return v, nil
}

// uuidText is a UUID in its usual form.
var uuidText = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// coerceUUID takes a UUID in either case.
func coerceUUID(v canonjson.Value) (canonjson.Value, error) {
	s := strings.ToLower(v.Str())
	if v.Kind() != canonjson.KindString || !uuidText.MatchString(s) {
		return canonjson.Value{}, unfitting("a UUID such as 123e4567-e89b-12d3-a456-426614174000", v)
	}
	return canonjson.String(s), nil
}

// coerceBytes takes base64 of at most 64 KiB.
func coerceBytes(v canonjson.Value) (canonjson.Value, error) {
	const want = "base64 of at most 64 KiB"
	if v.Kind() != canonjson.KindString || len(v.Str()) > base64.StdEncoding.EncodedLen(maxBytesValue) {
		return canonjson.Value{}, unfitting(want, v)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(v.Str())
	if err != nil || len(raw) > maxBytesValue {
		return canonjson.Value{}, unfitting(want, v)
	}
	return canonjson.String(base64.StdEncoding.EncodeToString(raw)), nil // without the line ends that the decoder skips
}

// Fit makes the value that is stored of v in f: of its type, one of its enum, declared sub-fields fitted. Null stays null.
// The error says what fits, without naming f.
func Fit(f *Field, v canonjson.Value) (canonjson.Value, error) {
	if v.Kind() == canonjson.KindNull {
		if f.Required {
			return canonjson.Value{}, fmt.Errorf("is required and cannot be null")
		}
		return v, nil
	}
	fitted, err := Coerce(f.Type, v)
	if err != nil {
		return canonjson.Value{}, err
	}
	if f.Type == Object && len(f.Fields) > 0 {
		if fitted, err = fitObject(f, fitted); err != nil {
			return canonjson.Value{}, err
		}
	}
	if f.Enum != nil && !oneOf(f, fitted) {
		return canonjson.Value{}, fmt.Errorf("takes one of %s, not %s", enumWords(f), clipDigits(string(fitted.AppendJSON(nil))))
	}
	return fitted, nil
}

// oneOf tells whether v is a value of f's enum.
func oneOf(f *Field, v canonjson.Value) bool {
	for _, e := range f.Enum {
		if fitted, err := Coerce(f.Type, e); err == nil && sameValue(fitted, v) {
			return true
		}
	}
	return false
}

// sameValue compares two values of one type. Integers are compared by their digits: as JSON numbers two that differ beyond
// 2^53 are equal.
func sameValue(a, b canonjson.Value) bool {
	x, err := strconv.ParseInt(a.Literal(), 10, 64)
	y, err2 := strconv.ParseInt(b.Literal(), 10, 64)
	if err == nil && err2 == nil {
		return x == y
	}
	return a.Equal(b)
}

// enumWords lists the values of an enum in a sentence.
func enumWords(f *Field) string {
	const most = 12
	var words []string
	for i, e := range f.Enum {
		if i == most {
			words = append(words, fmt.Sprintf("%d more", len(f.Enum)-most))
			break
		}
		words = append(words, string(e.AppendJSON(nil)))
	}
	return strings.Join(words, ", ")
}

// fitObject fits the declared sub-fields of an object; others stay as they are.
func fitObject(f *Field, v canonjson.Value) (canonjson.Value, error) {
	members := make([]canonjson.Member, 0, v.Len())
	for _, m := range v.Members() {
		if sub := f.Sub(m.Name); sub != nil {
			fitted, err := Fit(sub, m.Value)
			if err != nil {
				return canonjson.Value{}, fmt.Errorf("%s %w", sub.Name, err)
			}
			m.Value = fitted
		}
		members = append(members, m)
	}
	for _, sub := range f.Fields {
		if sub.Required && v.Get(sub.Name).IsAbsent() {
			return canonjson.Value{}, fmt.Errorf("%s is required", sub.Name)
		}
	}
	return canonjson.Object(members...), nil
}
