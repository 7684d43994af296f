package eval

import (
	"encoding/base64"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// read turns a value of a field, stored or given in a condition, into what is compared: a *big.Rat, string, bool or
// time.Time, nil for null and missing. It is an error when the value does not fit the type, and for types that are not
// compared at all.
func read(t model.Type, v canonjson.Value) (any, error) {
	if v.IsAbsent() || v.Kind() == canonjson.KindNull {
		return nil, nil
	}
	var got any
	switch t {
	case model.Int, model.Long, model.Date:
		got = readInteger(v)
	case model.Float, model.Double, model.Number:
		got = readNumber(t, v)
	case model.Boolean:
		got = readBoolean(v)
	default:
		got = readText(t, v)
	}
	if got == nil {
		return nil, fmt.Errorf("%s does not fit %s", v, t)
	}
	return got, nil
}

// digits is the text of a number, or of a string that spells one; "" for anything else.
func digits(v canonjson.Value) string {
	if v.Kind() == canonjson.KindString {
		return v.Str()
	}
	return v.Literal()
}

// spelled reads a decimal number exactly, nil when the text is none. Bases, underscores and fractions of big.Rat are not
// numbers here.
func spelled(text string) *big.Rat {
	if text == "" || len(text) > 400 || strings.Trim(text, "+-0123456789.eE") != "" {
		return nil
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return r
}

// readInteger reads an integer of 64 bits.
func readInteger(v canonjson.Value) any {
	if r := spelled(digits(v)); r != nil && r.IsInt() && r.Num().IsInt64() {
		return r
	}
	return nil
}

// readNumber reads a number as the type holds it: binary64 where it has a fraction, integers of type number exactly.
func readNumber(t model.Type, v canonjson.Value) any {
	r := spelled(digits(v))
	if r == nil || t == model.Number && r.IsInt() {
		if r == nil {
			return nil
		}
		return r
	}
	f, _ := r.Float64()
	return new(big.Rat).SetFloat64(f)
}

// readBoolean reads true and false, and 1 and 0 for them.
func readBoolean(v canonjson.Value) any {
	switch {
	case v.Kind() == canonjson.KindBool:
		return v.Bool()
	case v.Literal() == "1":
		return true
	case v.Literal() == "0":
		return false
	}
	return nil
}

// readText reads the types that JSON writes as strings, each as it is ordered.
func readText(t model.Type, v canonjson.Value) any {
	if v.Kind() != canonjson.KindString && t != model.Decimal {
		return nil
	}
	switch t {
	case model.String, model.Day:
		return v.Str()
	case model.UUID:
		return strings.ToLower(v.Str())
	case model.Decimal:
		if r := spelled(digits(v)); r != nil {
			return r
		}
	case model.Timestamp:
		if at, err := time.Parse(time.RFC3339Nano, v.Str()); err == nil {
			return at
		}
	case model.Bytes:
		if b, err := base64.StdEncoding.DecodeString(v.Str()); err == nil {
			return string(b)
		}
	}
	return nil
}

// compare orders two values of one type: numbers by value, text by code point (which is the order of its bytes), false
// before true, composite keys part by part. Neither is nil.
func compare(a, b any) int {
	switch a := a.(type) {
	case *big.Rat:
		return a.Cmp(b.(*big.Rat))
	case string:
		return strings.Compare(a, b.(string))
	case time.Time:
		return a.Compare(b.(time.Time))
	case []any:
		for i := range a {
			if c := compare(a[i], b.([]any)[i]); c != 0 {
				return c
			}
		}
		return 0
	case bool:
		switch {
		case a == b.(bool):
			return 0
		case a:
			return 1
		}
		return -1
	}
	panic(fmt.Sprintf("eval: compared %T", a))
}

// identity spells a value so that two spellings are equal when the values are.
func identity(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case *big.Rat:
		return "n" + v.RatString()
	case string:
		return "s" + v
	case time.Time:
		return "t" + v.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}

// integer writes an integer with all its digits, an error beyond 64 bits.
func integer(n *big.Int) (canonjson.Value, error) {
	if !n.IsInt64() {
		return canonjson.Value{}, fmt.Errorf("%s does not fit 64 bits", n)
	}
	return canonjson.RawString(n.String()), nil
}

// Same tells whether two answers are the same JSON value: members in any order, numbers by value with all their digits.
// Numbers with a fraction may differ in the last digits, because an average is rounded in as many ways as there are
// engines.
func Same(a, b canonjson.Value) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case canonjson.KindNumber:
		return sameNumber(a.Literal(), b.Literal())
	case canonjson.KindArray:
		return sameItems(a.Items(), b.Items())
	case canonjson.KindObject:
		return sameMembers(a, b)
	}
	return a.Equal(b)
}

// sameNumber compares by value; see Same.
func sameNumber(a, b string) bool {
	x, y := spelled(a), spelled(b)
	if x == nil || y == nil {
		return a == b
	}
	if x.Cmp(y) == 0 {
		return true
	}
	if x.IsInt() && y.IsInt() {
		return false
	}
	size := new(big.Rat).Abs(x)
	off := new(big.Rat).Sub(x, y)
	return off.Abs(off).Cmp(size.Mul(size, big.NewRat(1, 1e13))) <= 0
}

// sameItems compares arrays item by item.
func sameItems(a, b []canonjson.Value) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !Same(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sameMembers compares objects as sets of members.
func sameMembers(a, b canonjson.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	for _, m := range a.Members() {
		if w := b.Get(m.Name); w.IsAbsent() || !Same(m.Value, w) {
			return false
		}
	}
	return true
}
