package sqlgen

import (
	"encoding/base64"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Names that an SQLite connection must know: collations for text that stands for something else, and functions.
const (
	TimeCollation    = "tabellion_time"    // times as text in any usual form
	DayCollation     = "tabellion_day"     // days, with or without a time behind
	DecimalCollation = "tabellion_decimal" // decimal numbers
	RegexFunction    = "tabellion_regex"   // (pattern in Go's spelling, text): 1, 0 or NULL
	SumFunction      = "tabellion_sum"     // exact sum of decimals: text
)

// sqlite is the dialect of SQLite from 3.45.
type sqlite struct{}

func (sqlite) Name() string                     { return "sqlite" }
func (sqlite) placeholder(n int) string         { return "?" + strconv.Itoa(n) }
func (sqlite) count(b *builder, n int64) string { return b.arg(n) }
func (sqlite) noLimit() string                  { return " LIMIT -1" }
func (sqlite) find(text, part string) string    { return "instr(" + text + ", " + part + ")" }
func (sqlite) crossed(table string) string      { return " CROSS JOIN " + table } // keeps the order of the tables
func (sqlite) lock() string                     { return "" }                     // a writer has the database for itself
func (sqlite) textCast() string                 { return "" }
func (sqlite) direction(desc, nullable bool) string { // nulls come first ascending by themselves
	if desc {
		return " DESC"
	}
	return ""
}

// perInsert is one: a prepared statement inside this process costs no round trip.
func (sqlite) perInsert(int) int { return 1 }

// truth is a constant.
func (sqlite) truth(is bool) string {
	if is {
		return "1"
	}
	return "0"
}

// read hides the declared type of columns that the driver would turn into times.
func (sqlite) read(v value) string {
	if v.col != nil {
		for _, name := range []string{"date", "timestamp"} {
			if strings.HasPrefix(v.col.Base, name) {
				return "+" + v.sql
			}
		}
	}
	return v.sql
}

// compared makes every number but 0 true in tables that others write.
func (sqlite) compared(v value) string {
	if v.typ == model.Boolean && v.col != nil && !v.col.Canonical {
		return "(" + v.sql + " <> 0)"
	}
	return v.sql
}

// collate chooses how text is compared.
func (d sqlite) collate(v value, equal bool) string {
	if v.col == nil {
		if v.typ == model.Decimal && !equal { // the exact sum of decimals is text
			return " COLLATE " + DecimalCollation
		}
		return ""
	}
	canonical := v.col.Canonical
	switch {
	case v.typ == model.Decimal && !d.number(v.col) && !(canonical && equal):
		return " COLLATE " + DecimalCollation
	case v.typ == model.Timestamp && !canonical:
		return " COLLATE " + TimeCollation
	case v.typ == model.Day && !canonical:
		return " COLLATE " + DayCollation
	case v.typ == model.UUID && !canonical:
		return " COLLATE NOCASE"
	case v.typ == model.String && !v.col.Source && v.col.Collation != "" && !strings.EqualFold(v.col.Collation, "BINARY"):
		return " COLLATE BINARY"
	}
	return ""
}

// affinity is what SQLite makes of a declared type (sqlite.org/datatype3.html, section 3.1).
func affinity(declared string) string {
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(declared, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("int"):
		return "integer"
	case has("char", "clob", "text"):
		return "text"
	case declared == "" || has("blob"):
		return "blob"
	case has("real", "floa", "doub"):
		return "real"
	}
	return "numeric"
}

// number tells whether a column keeps numbers as numbers.
func (sqlite) number(c *Column) bool {
	switch affinity(c.Base) {
	case "integer", "real", "numeric":
		return true
	}
	return false
}

// guard tells numbers from text that stands in a column of numbers, and from infinities.
func (sqlite) guard(v value) string {
	if v.col == nil || v.col.Exact {
		return ""
	}
	switch v.typ {
	case model.Int, model.Long, model.Date, model.Boolean:
		return "typeof(" + v.sql + ") = 'integer'"
	case model.Float, model.Double, model.Number:
		return "(typeof(" + v.sql + ") IN ('integer', 'real') AND " + v.sql + " > -9e999 AND " + v.sql + " < 9e999)"
	}
	return ""
}

// derived is a column of a subquery: its cells were guarded inside.
func (sqlite) derived(v value) *Column {
	if v.col == nil {
		return nil
	}
	c := *v.col
	c.Exact = true
	return &c
}

// joined compares columns; the collation of the inner one, on the left, counts.
func (d sqlite) joined(inner, outer value) string {
	return inner.sql + d.collate(inner, true) + " = " + outer.sql
}

// encode gives a Go value that the driver binds as it is.
func (d sqlite) encode(v value, x canonjson.Value) (any, string, error) {
	arg, err := d.argument(v, x)
	return arg, "", err
}

// argument is a value as an argument.
func (d sqlite) argument(v value, x canonjson.Value) (any, error) {
	switch v.typ {
	case model.Int, model.Long, model.Date:
		if n, ok := integer(x); ok {
			return n, nil
		}
	case model.Number:
		if n, ok := integer(x); ok {
			return n, nil
		}
		return d.float(v, x)
	case model.Float, model.Double:
		return d.float(v, x)
	case model.Boolean:
		if x.Kind() == canonjson.KindBool {
			if x.Bool() {
				return int64(1), nil
			}
			return int64(0), nil
		}
	case model.Array, model.Object, model.Any:
		return string(x.AppendJSON(nil)), nil
	default:
		if x.Kind() == canonjson.KindString {
			return d.text(v, x)
		}
	}
	return nil, misfit(v, x)
}

// float is a number of binary64.
func (sqlite) float(v value, x canonjson.Value) (any, error) {
	if x.Kind() != canonjson.KindNumber || math.IsInf(x.Float(), 0) {
		return nil, misfit(v, x)
	}
	return x.Float(), nil
}

// text is a value that JSON writes as a string.
func (d sqlite) text(v value, x canonjson.Value) (any, error) {
	s := x.Str()
	switch v.typ {
	case model.Bytes:
		raw, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, misfit(v, x)
		}
		return raw, nil
	case model.Decimal:
		return d.decimal(v, s), nil
	case model.Timestamp:
		if v.col != nil && v.col.Canonical {
			return sortableTime(s), nil
		}
	}
	return s, nil
}

// decimal is a number where the column keeps numbers and the number keeps all digits, else text: SQLite gives it the
// column's affinity.
func (d sqlite) decimal(v value, s string) any {
	if v.col == nil || !d.number(v.col) {
		return s
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && strconv.FormatFloat(f, 'f', -1, 64) == s {
		return f
	}
	return s
}

// sortableTime writes a time with nine digits of fraction, so that text sorts as time does.
func sortableTime(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return s
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000000Z")
}

// stored binds a value for a column.
func (d sqlite) stored(b *builder, v value, x canonjson.Value) (string, error) {
	arg, err := d.argument(v, x)
	if err != nil {
		return "", err
	}
	if s, ok := arg.(string); ok && v.typ == model.Decimal && d.number(v.col) {
		return "", model.Errorf(model.BadValue, "the column keeps decimals as binary numbers and cannot hold all digits of %s", shortText(s))
	}
	return b.arg(arg), nil
}

// among looks a value up in a list that is one JSON argument.
func (d sqlite) among(b *builder, v value, xs []canonjson.Value) string {
	var list []byte
	for i, x := range xs {
		list = append(list, "[,"[min(i, 1)])
		list = d.item(b, list, v, x)
	}
	return " IN (SELECT " + d.unpack(v, "value") + " FROM json_each(" + b.arg(string(append(list, ']'))) + "))"
}

// item appends a value to a JSON argument.
func (d sqlite) item(b *builder, list []byte, v value, x canonjson.Value) []byte {
	arg, err := d.argument(v, x)
	if err != nil {
		b.fail(err)
	}
	switch a := arg.(type) {
	case int64:
		return strconv.AppendInt(list, a, 10)
	case float64:
		return strconv.AppendFloat(list, a, 'e', 17, 64)
	case []byte:
		return append(append(append(list, '"'), hex.EncodeToString(a)...), '"')
	case string:
		return canonjson.String(a).AppendJSON(list)
	}
	return append(list, "null"...)
}

// unpack reads a value of a JSON argument; bytes are hexadecimal there.
func (sqlite) unpack(v value, sql string) string {
	if v.typ == model.Bytes {
		return "unhex(" + sql + ")"
	}
	return sql
}

// match calls the function of this program.
func (sqlite) match(b *builder, v value, r *plan.Regex) string {
	return "(" + RegexFunction + "(" + b.arg(r.Go) + ", " + v.sql + ") = 1)"
}

// sum keeps the digits of decimals.
func (sqlite) sum(v value) string {
	if v.typ == model.Decimal {
		return SumFunction + "(" + v.sql + ")"
	}
	return "sum(" + v.sql + ")"
}

// average is of binary64.
func (sqlite) average(v value) string {
	if v.typ == model.Decimal {
		return "avg(CAST(" + v.sql + " AS REAL))"
	}
	return "avg(" + v.sql + ")"
}

// extreme is the least or greatest value in the order of the type.
func (d sqlite) extreme(v value, least bool) value {
	name := "max("
	if least {
		name = "min("
	}
	return value{sql: name + d.compared(v) + d.collate(v, false) + ")", col: v.col, typ: v.typ, nullable: true}
}

// parents is one JSON argument: an array of values, or of arrays of values.
func (d sqlite) parents(b *builder, with []value, tuples []Tuple) parents {
	list := []byte{'['}
	for i, tuple := range tuples {
		if i > 0 {
			list = append(list, ',')
		}
		if len(with) == 1 {
			list = d.item(b, list, with[0], tuple[0])
			continue
		}
		for j, v := range with {
			list = append(list, "[,"[min(j, 1)])
			list = d.item(b, list, v, tuple[j])
		}
		list = append(list, ']')
	}
	p := parents{from: "json_each(" + b.arg(string(append(list, ']'))) + ") AS p", number: "p.key"}
	for j, v := range with {
		sql := "p.value"
		if len(with) > 1 {
			sql = "json_extract(p.value, '$[" + strconv.Itoa(j) + "]')"
		}
		p.columns = append(p.columns, d.unpack(v, sql))
	}
	return p
}

// windows looks for the keys of each parent's rows by a subquery that reads an index in order and stops at the limit.
func (d sqlite) windows(b *builder, c *columns, p place, k *plan.Kid, parents parents) string {
	inner := b.table(k.Block.Model)
	b.read(c, p, k.Block.Columns)
	outerKey, innerKey := d.rowKey(p), strings.Join(d.rowKey(inner), ", ")
	if len(outerKey) == 0 {
		return d.numbered(b, c, p, k, parents)
	}
	return "SELECT " + c.text() + " FROM " + parents.from + " CROSS JOIN " + p.from() + " WHERE " + row(outerKey) + " IN (SELECT " + innerKey +
		" FROM " + inner.from() + " WHERE " + b.met(inner, k, parents) + b.order(inner, k.Block.Order) + b.window(k.Block.Limit, k.Block.Skip) +
		") ORDER BY " + strings.Join(append([]string{parents.number}, b.terms(p, k.Block.Order)...), ", ")
}

// rowKey is what tells rows of a table apart inside a statement; nil where nothing does.
func (sqlite) rowKey(p place) []string {
	if p.Table.RowID {
		return []string{p.as + ".rowid"}
	}
	var parts []string
	for _, f := range p.KeyFields() {
		if c := p.Column(f); c != nil {
			parts = append(parts, p.name(c.Name))
		}
	}
	return parts
}

// numbered numbers the rows of each parent: for views without a key, where nothing better can be done.
func (sqlite) numbered(b *builder, c *columns, p place, k *plan.Kid, parents parents) string {
	outside := make([]string, len(c.list))
	inside := make([]string, len(c.list))
	for i, sql := range c.list {
		name := "c" + strconv.Itoa(i)
		outside[i], inside[i] = "w."+name, sql+" AS "+name
	}
	order := strings.TrimPrefix(b.order(p, k.Block.Order), " ORDER BY ")
	if order == "" {
		order = "1"
	}
	text := "SELECT " + strings.Join(outside, ", ") + " FROM (SELECT " + strings.Join(inside, ", ") + ", row_number() OVER (PARTITION BY " + parents.number +
		" ORDER BY " + order + ") AS n FROM " + parents.from + " CROSS JOIN " + p.from() + " WHERE " + b.met(p, k, parents) + ") AS w WHERE w.n > " + b.count(k.Block.Skip)
	if k.Block.Limit >= 0 {
		text += " AND w.n <= " + b.count(k.Block.Skip+k.Block.Limit)
	}
	return text + " ORDER BY w.c0, w.n"
}

// shortText quotes at most 64 characters of a caller's own input.
func shortText(s string) string {
	if r := []rune(s); len(r) > 64 {
		s = string(r[:64]) + "..."
	}
	return strconv.QuoteToASCII(s)
}
