package sqlexec

import (
	"cmp"
	"math/big"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// sum adds an increment to what a field holds, exactly; null and missing count as 0.
func sum(m *model.Model, a plan.Assign, stored canonjson.Value) (canonjson.Value, error) {
	if stored.IsAbsent() || stored.Kind() == canonjson.KindNull {
		stored = canonjson.Int(0)
	}
	v, ok := add(a.Field.Type, stored, a.Inc)
	if !ok {
		return v, model.Errorf(model.Unrepresentable, "$inc would bring %s.%s beyond what the type %s can hold; nothing was changed", m.Name, a.Field.Name, a.Field.Type)
	}
	return v, nil
}

// add adds two values of a type; false when the sum is none of the type.
func add(t model.Type, x, y canonjson.Value) (canonjson.Value, bool) {
	if t == model.Decimal {
		s, ok := AddDecimal(plainText(x), plainText(y))
		return canonjson.String(s), ok
	}
	m, ok1 := parseInteger(x)
	n, ok2 := parseInteger(y)
	if ok1 && ok2 && (t.Integer() || t == model.Number) {
		z := m + n
		if (z > m) == (n > 0) {
			return canonjson.Exact(z), true
		}
		return canonjson.Value{}, false
	}
	if t.Integer() {
		return canonjson.Value{}, false
	}
	return Float(x.Float() + y.Float())
}

// parseInteger reads a number that is spelled as an integer of 64 bits.
func parseInteger(v canonjson.Value) (int64, bool) {
	n, err := strconv.ParseInt(v.Literal(), 10, 64)
	return n, err == nil
}

// AddDecimal adds decimal digits exactly.
func AddDecimal(a, b string) (string, bool) {
	a, ok1 := Decimal(a)
	b, ok2 := Decimal(b)
	x, ok3 := new(big.Rat).SetString(a)
	y, ok4 := new(big.Rat).SetString(b)
	if !(ok1 && ok2 && ok3 && ok4) {
		return "", false
	}
	return Decimal(x.Add(x, y).FloatString(max(places(a), places(b))))
}

// places is how many digits stand behind the point.
func places(s string) int {
	for i := range len(s) {
		if s[i] == '.' {
			return len(s) - i - 1
		}
	}
	return 0
}

// CompareDecimal orders two decimals in their one form.
func CompareDecimal(a, b string) int {
	if a == b {
		return 0
	}
	negative := a[0] == '-'
	if negative != (b[0] == '-') {
		if negative {
			return -1
		}
		return 1
	}
	if negative {
		return CompareDecimal(b[1:], a[1:])
	}
	wholeA, fractionA, _ := strings.Cut(a, ".")
	wholeB, fractionB, _ := strings.Cut(b, ".")
	if len(wholeA) != len(wholeB) {
		return cmp.Compare(len(wholeA), len(wholeB))
	}
	return cmp.Or(strings.Compare(wholeA, wholeB), strings.Compare(fractionA, fractionB))
}
