package sqlgen

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// postgres is the dialect of PostgreSQL from 15. All arguments are text with a cast, so that no client needs to know
// types.
type postgres struct{}

func (postgres) Name() string                     { return "postgres" }
func (postgres) placeholder(n int) string         { return "$" + strconv.Itoa(n) }
func (postgres) noLimit() string                  { return "" }
func (postgres) find(text, part string) string    { return "strpos(" + text + ", " + part + "::text)" }
func (postgres) crossed(table string) string      { return " CROSS JOIN " + table }
func (postgres) lock() string                     { return " FOR UPDATE" }
func (postgres) textCast() string                 { return "::text" }
func (postgres) count(b *builder, n int64) string { return b.arg(strconv.FormatInt(n, 10)) + "::int8" }

// maxArguments is how many arguments one statement of PostgreSQL can have.
const maxArguments = 65535

// perInsert saves round trips.
func (postgres) perInsert(fields int) int { return max(1, min(100, maxArguments/(fields+1))) }

// truth is a constant.
func (postgres) truth(is bool) string { return strconv.FormatBool(is) }

// textual are base types that hold text and compare as text.
func textual(c *Column) bool {
	return !c.Enum && !c.Array && (c.Base == "text" || c.Base == "varchar" || c.Base == "bpchar")
}

// whole are base types of integers.
func whole(c *Column) bool { return c.Base == "int2" || c.Base == "int4" || c.Base == "int8" }

// read gives text that this program decodes by the declared type.
func (postgres) read(v value) string {
	switch {
	case v.col == nil:
		return v.sql
	case v.typ.JSON() && v.col.Base != "json" && v.col.Base != "jsonb":
		return "to_jsonb(" + v.sql + ")"
	case v.typ == model.String && v.col.Base == "bpchar": // without the blanks that fill it up
		return v.sql + "::text"
	case v.col.Base == "money":
		return v.sql + "::numeric"
	}
	return v.sql
}

// compared turns types that do not compare as the declared type into ones that do.
func (postgres) compared(v value) string {
	switch {
	case v.col == nil:
		return v.sql
	case v.typ == model.Boolean && whole(v.col):
		return "(" + v.sql + " <> 0)"
	case v.typ == model.String && !textual(v.col):
		return v.sql + "::text"
	case v.typ == model.Decimal && v.col.Base == "money":
		return v.sql + "::numeric"
	case v.typ == model.Day && v.col.Base != "date":
		return v.sql + "::date"
	case v.typ == model.UUID && v.col.Base != "uuid":
		return "lower(" + v.sql + ")"
	}
	return v.sql
}

// collate makes text compare by code point. Equality needs it not.
func (postgres) collate(v value, equal bool) string {
	text := v.typ == model.String || v.typ == model.UUID && v.col != nil && v.col.Base != "uuid"
	if equal || !text || v.col != nil && (v.col.Source || v.col.ByCode && textual(v.col)) {
		return ""
	}
	return ` COLLATE "C"`
}

// direction puts nulls first ascending and last descending. It is written only where there can be nulls, because an
// ordinary index does not serve NULLS FIRST.
func (postgres) direction(desc, nullable bool) string {
	switch {
	case desc && nullable:
		return " DESC NULLS LAST"
	case desc:
		return " DESC"
	case nullable:
		return " NULLS FIRST"
	}
	return ""
}

// guard tells numbers from NaN and the infinities.
func (postgres) guard(v value) string {
	if v.col == nil || v.col.Exact || v.col.Base != "float4" && v.col.Base != "float8" {
		return ""
	}
	return "(" + v.sql + " > '-infinity' AND " + v.sql + " < 'infinity')"
}

// derived is a column of a subquery, which holds what compared made.
func (d postgres) derived(v value) *Column {
	if v.col == nil {
		return nil
	}
	c := *v.col
	c.Exact = true
	switch {
	case v.typ == model.String && !textual(&c):
		c = Column{Base: "text", Nullable: true, Source: c.Source}
	case v.typ == model.Boolean:
		c = Column{Base: "bool", Nullable: true}
	case v.typ == model.Decimal:
		c = Column{Base: "numeric", Nullable: true}
	case v.typ == model.Day:
		c = Column{Base: "date", Nullable: true}
	case v.typ == model.UUID && c.Base != "uuid":
		c = Column{Base: "text", Nullable: true}
	}
	return &c
}

// joined compares columns, of different types as text. Of two collations that of the inner column counts, so that its
// index serves.
func (d postgres) joined(inner, outer value) string {
	if inner.col == nil || outer.col == nil {
		return inner.sql + " = " + outer.sql
	}
	if family(inner.col) != family(outer.col) {
		return inner.sql + "::text = " + outer.sql + "::text"
	}
	text := inner.sql + " = " + outer.sql
	if textual(inner.col) && inner.col.Collation != outer.col.Collation {
		name := inner.col.Collation
		if name == "" {
			name = "default"
		}
		text += " COLLATE " + quote(name)
	}
	return text
}

// family groups base types that compare with each other.
func family(c *Column) string {
	switch c.Base {
	case "int2", "int4", "int8", "numeric", "float4", "float8":
		return "number"
	case "text", "varchar", "bpchar":
		return "text"
	}
	return c.Base
}

// cast is the type of an argument that is compared with v.
func (postgres) cast(v value, x canonjson.Value) string {
	switch v.typ {
	case model.Int, model.Long, model.Date, model.Float, model.Double, model.Number:
		return numberCast(v, x)
	case model.Boolean:
		return "::bool"
	case model.Decimal:
		return "::numeric"
	case model.Timestamp:
		if v.col != nil && v.col.Base == "timestamp" {
			return "::timestamp"
		}
		return "::timestamptz"
	case model.Day:
		return "::date"
	case model.UUID:
		if v.col == nil || v.col.Base == "uuid" {
			return "::uuid"
		}
	case model.Bytes:
		return "::bytea"
	case model.Array, model.Object, model.Any:
		return "::jsonb"
	}
	if v.col != nil && v.col.Base == "bpchar" {
		return "::bpchar"
	}
	return "::text"
}

// numberCast chooses the type that compares exactly with the column and lets its index serve.
func numberCast(v value, x canonjson.Value) string {
	_, isInt := integer(x)
	if v.col == nil {
		if v.typ == model.Double || v.typ == model.Float {
			return "::float8"
		}
		return "::numeric"
	}
	switch {
	case whole(v.col) && isInt:
		return "::int8"
	case v.col.Base == "float8":
		return "::float8"
	case v.col.Base == "float4":
		if s := strconv.FormatFloat(x.Float(), 'g', -1, 32); equalFloat(s, x.Float()) {
			return "::float4"
		}
		return "::float8"
	}
	return "::numeric"
}

// equalFloat tells whether s spells f.
func equalFloat(s string, f float64) bool {
	g, err := strconv.ParseFloat(s, 64)
	return err == nil && f == g
}

// encode gives a value as text.
func (d postgres) encode(v value, x canonjson.Value) (any, string, error) {
	s, err := d.argument(v, x)
	return s, d.cast(v, x), err
}

// argument spells a value as PostgreSQL reads it.
func (postgres) argument(v value, x canonjson.Value) (string, error) {
	switch v.typ {
	case model.Int, model.Long, model.Date:
		if n, ok := integer(x); ok {
			return strconv.FormatInt(n, 10), nil
		}
	case model.Float, model.Double, model.Number:
		if x.Kind() == canonjson.KindNumber {
			return x.Literal(), nil
		}
	case model.Boolean:
		if x.Kind() == canonjson.KindBool {
			return strconv.FormatBool(x.Bool()), nil
		}
	case model.Array, model.Object, model.Any:
		return string(x.AppendJSON(nil)), noNUL(x)
	case model.Bytes:
		if raw, err := base64.StdEncoding.DecodeString(x.Str()); err == nil {
			return `\x` + hex.EncodeToString(raw), nil
		}
	default:
		if x.Kind() == canonjson.KindString {
			return x.Str(), noNUL(x)
		}
	}
	return "", misfit(v, x)
}

// noNUL refuses a value with text that PostgreSQL cannot hold.
func noNUL(x canonjson.Value) error {
	if holdsNUL(x) {
		return model.Errorf(model.BadValue, "text with the character U+0000 cannot be stored; leave it out")
	}
	return nil
}

// holdsNUL tells whether the character U+0000 is in a text of v, or in a name.
func holdsNUL(v canonjson.Value) bool {
	switch v.Kind() {
	case canonjson.KindString:
		return strings.ContainsRune(v.Str(), 0)
	case canonjson.KindArray:
		return slices.ContainsFunc(v.Items(), holdsNUL)
	}
	return slices.ContainsFunc(v.Members(), func(m canonjson.Member) bool {
		return strings.ContainsRune(m.Name, 0) || holdsNUL(m.Value)
	})
}

// stored casts a value to what the column takes. Casts that would cut the value silently are left to the assignment, which
// refuses.
func (d postgres) stored(b *builder, v value, x canonjson.Value) (string, error) {
	s, err := d.argument(v, x)
	if err != nil {
		return "", err
	}
	at := b.arg(s)
	switch {
	case v.typ.JSON() && v.col.Array:
		return "ARRAY(SELECT jsonb_array_elements_text(" + at + "::jsonb))::" + v.col.Native, nil
	case v.typ.JSON() && v.col.Base == "json":
		return at + "::json", nil
	case v.typ == model.Boolean && whole(v.col):
		return at + "::bool::int", nil
	case v.typ == model.String && !textual(v.col):
		return at + "::text::" + v.col.Native, nil
	case v.col.Base == "float4":
		return at + "::float8", nil
	case v.col.Base == "money":
		return at + "::numeric::money", nil
	case v.col.Base == "bpchar":
		return at + "::text", nil
	}
	return at + d.cast(v, x), nil
}

// among compares with an array.
func (d postgres) among(b *builder, v value, xs []canonjson.Value) string {
	items := make([]string, len(xs))
	for i, x := range xs {
		items[i] = d.element(b, v, x)
	}
	return " = ANY(" + b.arg("{"+strings.Join(items, ",")+"}") + d.listCast(v, xs) + "[])"
}

// listCast is the cast for all of a list: that of its widest value.
func (d postgres) listCast(v value, xs []canonjson.Value) string {
	cast := d.cast(v, xs[0])
	for _, x := range xs[1:] {
		if c := d.cast(v, x); c != cast {
			if c == "::float8" || cast == "::float8" {
				return "::float8"
			}
			return "::numeric"
		}
	}
	return cast
}

// arrayQuote escapes an element of an array literal.
var arrayQuote = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// element spells a value inside an array literal.
func (d postgres) element(b *builder, v value, x canonjson.Value) string {
	s, err := d.argument(v, x)
	if err != nil {
		b.fail(err)
	}
	return `"` + arrayQuote.Replace(s) + `"`
}

// match prints the pattern in PostgreSQL's spelling. COLLATE "C" is written always, because other collations may have no
// regular expressions.
func (d postgres) match(b *builder, v value, r *plan.Regex) string {
	return "(" + d.compared(v) + ` COLLATE "C" ~ ` + b.arg(printRegex(r.Tree)) + "::text)"
}

// sum of floating point is of binary64.
func (postgres) sum(v value) string {
	if v.col != nil && v.col.Base == "float4" {
		return "sum(" + v.sql + "::float8)"
	}
	if v.col != nil && v.col.Base == "money" {
		return "sum(" + v.sql + "::numeric)"
	}
	return "sum(" + v.sql + ")"
}

// average divides in binary64, as SQLite does.
func (d postgres) average(v value) string {
	return d.sum(v) + "::float8 / nullif(count(" + v.sql + "), 0)"
}

// extreme is the least or greatest value in the order of the type. PostgreSQL has none for some types.
func (d postgres) extreme(v value, least bool) value {
	name := "max("
	if least {
		name = "min("
	}
	out := value{col: d.derived(v), typ: v.typ, nullable: true}
	switch sql := d.compared(v); {
	case v.typ == model.Boolean && least:
		out.sql = "bool_and(" + sql + ")"
	case v.typ == model.Boolean:
		out.sql = "bool_or(" + sql + ")"
	case v.typ == model.UUID:
		out.sql = name + sql + `::text COLLATE "C")::uuid`
		out.col = &Column{Base: "uuid", Nullable: true}
	case v.typ == model.Bytes:
		out.sql = "decode(" + name + "encode(" + v.sql + `, 'hex') COLLATE "C"), 'hex')`
	default:
		out.sql = name + sql + d.collate(v, false) + ")"
	}
	return out
}

// parents is one array argument for each column.
func (d postgres) parents(b *builder, with []value, tuples []Tuple) parents {
	p := parents{number: "(p.n - 1)"}
	args, names := make([]string, len(with)), make([]string, len(with))
	for j, v := range with {
		items, xs := make([]string, len(tuples)), make([]canonjson.Value, len(tuples))
		for i, tuple := range tuples {
			items[i], xs[i] = d.element(b, v, tuple[j]), tuple[j]
		}
		cast := d.cast(v, canonjson.Int(0)) // only a statement that is shown has no tuples
		if len(xs) > 0 {
			cast = d.listCast(v, xs)
		}
		names[j] = "c" + strconv.Itoa(j)
		args[j] = b.arg("{"+strings.Join(items, ",")+"}") + cast + "[]"
		p.columns = append(p.columns, "p."+names[j])
	}
	p.from = "unnest(" + strings.Join(args, ", ") + ") WITH ORDINALITY AS p(" + strings.Join(names, ", ") + ", n)"
	return p
}

// windows reads each parent's rows by a subquery of its own, which can read an index in order and stop at the limit.
func (d postgres) windows(b *builder, c *columns, p place, k *plan.Kid, parents parents) string {
	b.read(c, p, k.Block.Columns)
	outside, inside := []string{c.list[0]}, make([]string, 0, len(c.list))
	for i, sql := range c.list[1:] {
		name := "c" + strconv.Itoa(i)
		outside, inside = append(outside, "w."+name), append(inside, sql+" AS "+name)
	}
	order := []string{parents.number}
	for i, o := range k.Block.Order {
		v := b.operand(p, o.By)
		name := "o" + strconv.Itoa(i)
		inside = append(inside, d.compared(v)+d.collate(v, false)+" AS "+name)
		order = append(order, "w."+name+d.direction(o.Desc, v.nullable))
	}
	if len(inside) == 0 {
		inside = append(inside, "1")
	}
	return "SELECT " + strings.Join(outside, ", ") + " FROM " + parents.from + " CROSS JOIN LATERAL (SELECT " + strings.Join(inside, ", ") + " FROM " + p.from() +
		" WHERE " + b.met(p, k, parents) + b.order(p, k.Block.Order) + b.window(k.Block.Limit, k.Block.Skip) + ") AS w ORDER BY " + strings.Join(order, ", ")
}
