package sqlite

import (
	"database/sql/driver"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/source/sqlexec"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
)

// own is the driver of sources. What is registered on it reaches no other database of the process.
var own = new(sqlite.Driver)

// register makes the functions and collations of statements known to the driver, once a process.
var register = sync.OnceValue(func() error {
	for name, compare := range map[string]func(a, b string) int{
		sqlgen.TimeCollation:    compareTimes,
		sqlgen.DayCollation:     compareDays,
		sqlgen.DecimalCollation: compareDecimals,
	} {
		if err := own.RegisterCollationUtf8(name, compare); err != nil {
			return err
		}
	}
	err := own.RegisterDeterministicScalarFunction(sqlgen.RegexFunction, 2, matches)
	if err != nil {
		return err
	}
	return own.RegisterFunction(sqlgen.SumFunction, &sqlite.FunctionImpl{
		NArgs: 1, Deterministic: true,
		MakeAggregate: func(sqlite.FunctionContext) (sqlite.AggregateFunction, error) { return &decimalSum{}, nil },
	})
})

// compareTimes orders texts by the time that they stand for. What stands for none comes last, by code point.
func compareTimes(a, b string) int {
	x, ok := sqlexec.ParseTime(a)
	y, ok2 := sqlexec.ParseTime(b)
	if ok && ok2 {
		return x.Compare(y)
	}
	return compareOdd(a, b, ok, ok2)
}

// compareDays orders texts by the day that they stand for.
func compareDays(a, b string) int {
	x, ok := sqlexec.Day(a)
	y, ok2 := sqlexec.Day(b)
	if ok && ok2 {
		return strings.Compare(x.Str(), y.Str())
	}
	return compareOdd(a, b, ok, ok2)
}

// compareDecimals orders texts by the decimal number that they stand for.
func compareDecimals(a, b string) int {
	x, ok := sqlexec.Decimal(a)
	y, ok2 := sqlexec.Decimal(b)
	if ok && ok2 {
		return sqlexec.CompareDecimal(x, y)
	}
	return compareOdd(a, b, ok, ok2)
}

// compareOdd orders texts of which one at least stands for nothing.
func compareOdd(a, b string, fits, alsoFits bool) int {
	switch {
	case fits && !alsoFits:
		return -1
	case alsoFits && !fits:
		return 1
	}
	return strings.Compare(a, b)
}

// patterns keeps compiled patterns.
var patterns patternCache

// maxPatterns is how many patterns are kept.
const maxPatterns = 256

// patternCache is a bounded cache; when it is full it starts again.
type patternCache struct {
	mu sync.RWMutex
	m  map[string]*regexp.Regexp
}

// get compiles a pattern at first use.
func (p *patternCache) get(text string) (*regexp.Regexp, error) {
	p.mu.RLock()
	re := p.m[text]
	p.mu.RUnlock()
	if re != nil {
		return re, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m == nil || len(p.m) >= maxPatterns {
		p.m = map[string]*regexp.Regexp{}
	}
	p.m[text] = re
	return re, nil
}

// matches is the SQL function for regular expressions. What is no text matches nothing and is unknown.
func matches(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	text, ok := args[1].(string)
	if !ok {
		return nil, nil
	}
	pattern, _ := args[0].(string)
	re, err := patterns.get(pattern)
	if err != nil {
		return nil, err
	}
	if re.MatchString(text) {
		return int64(1), nil
	}
	return int64(0), nil
}

// decimalSum adds decimals exactly. What is no number does not count.
type decimalSum struct {
	sum string
	n   int64
}

// Step adds one value.
func (d *decimalSum) Step(_ *sqlite.FunctionContext, args []driver.Value) error {
	var text string
	switch v := args[0].(type) {
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		text = v
	}
	if _, ok := sqlexec.Decimal(text); !ok {
		return nil
	}
	if d.n++; d.n == 1 {
		d.sum = text
		return nil
	}
	sum, ok := sqlexec.AddDecimal(d.sum, text)
	if !ok {
		return fmt.Errorf("decimals cannot be added")
	}
	d.sum = sum
	return nil
}

// WindowInverse is not used: sums are never windows here.
func (d *decimalSum) WindowInverse(*sqlite.FunctionContext, []driver.Value) error {
	return fmt.Errorf("no window function")
}

// WindowValue gives the sum, NULL over nothing.
func (d *decimalSum) WindowValue(*sqlite.FunctionContext) (driver.Value, error) {
	if d.n == 0 {
		return nil, nil
	}
	return d.sum, nil
}

// Final ends the sum.
func (d *decimalSum) Final(*sqlite.FunctionContext) {}
