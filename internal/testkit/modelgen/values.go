package modelgen

import (
	"strconv"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// texts are traps: order by code point against UTF-16 and locales, forms that look alike, wildcards, quotes, lines.
var texts = []string{
	"", "a", "A", "b", "Z", "z", "aa", "Ab", "a b", "10", "9", "é", "e\u0301", "Ä", "ß", "ı", "İ", "Ω", "\ufb00", "\ue000", "\ufffd", "\U00010000", "😀", "ｱ", "日本",
	"100%", "a_b", "a'b", `a"b`, `a\b`, " a", "a\nb", "line one\nline two", "-1", "null", "true",
}

// pools are the values by type.
var pools = map[model.Type][]string{
	model.Int:    {"0", "1", "-1", "2", "7", "10", "100", "-45", "2147483647", "-2147483648"},
	model.Long:   {"0", "1", "-1", "3", "9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993", "36028797018963969", "1700000000000"},
	model.Float:  {"0", "1", "-1.5", "0.25", "100", "150.5", "12345678.75", "-0.125", "2.5"},
	model.Double: {"0", "1", "-2.5", "0.5", "80", "99.75", "10000000000.5", "-0.0625", "3"},
	model.Number: {"0", "1", "-3", "11", "12", "13", "1700000000000"},
	model.Date:   {"0", "1", "1700000000000", "1700000000001", "1710000000000", "-1000"},
	model.Array:  {`[]`, `[1,"a",null]`, `[{"k":1.5},[true]]`, `["é","😀"]`, `[9007199254740993]`},
	model.Object: {`{}`, `{"level":"high"}`, `{"level":null,"lang":"en","n":9007199254740993}`, `{"lang":"","other":[1,{}]}`, `{"n":-1.5,"level":"é"}`},
	model.Any:    {`5`, `"text"`, `true`, `[1,2]`, `{"a":null}`, `""`, `0.1`},
}

// extreme are integers at the ends of 64 bits; sums of them do not fit.
var extreme = []string{"9223372036854775807", "-9223372036854775808", "9223372036854775806", "0", "-1", "4611686018427387905"}

// inexact are fractions that binary64 rounds; sums of them depend on their order.
var inexact = []string{"0.1", "0.2", "0.3", "1e-7", "-123.456", "1e15", "0.30000000000000004"}

// spelled are the types that JSON writes as strings.
var spelled = map[model.Type][]string{
	model.Decimal:   {"0", "1.5", "-2.25", "10", "0.1", "99999999999999999999.5", "9", "100"},
	model.Timestamp: {"2024-01-02T03:04:05Z", "2024-01-02T03:04:05.25Z", "1999-12-31T23:59:59Z", "2024-01-02T03:04:06Z"},
	model.Day:       {"2024-01-02", "1999-12-31", "2024-02-29", "0999-01-01"},
	model.UUID:      {"00000000-0000-0000-0000-000000000000", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "ffffffff-ffff-4fff-bfff-ffffffffffff"},
	model.Bytes:     {"", "AA==", "/w==", "AAEC", "//79"},
}

// pool chooses the few values that a field takes.
func (w *World) pool(f *Field) []canonjson.Value {
	var all []canonjson.Value
	switch {
	case f.Type == model.Boolean:
		return []canonjson.Value{canonjson.Bool(true), canonjson.Bool(false)}
	case f.Type == model.String:
		all = strs(texts)
	case spelled[f.Type] != nil:
		all = strs(spelled[f.Type])
	case f.Inexact && f.Type == model.Long:
		all = raws(extreme)
	case f.Inexact:
		all = raws(inexact)
	default:
		all = raws(pools[f.Type])
	}
	w.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), 4+w.rand.IntN(4))]
}

// strs makes strings.
func strs(all []string) []canonjson.Value {
	var out []canonjson.Value
	for _, s := range all {
		out = append(out, canonjson.String(s))
	}
	return out
}

// raws makes values of JSON text.
func raws(all []string) []canonjson.Value {
	var out []canonjson.Value
	for _, s := range all {
		out = append(out, canonjson.RawString(s))
	}
	return out
}

// fill makes the rows of a model. The second of the models is empty now and then.
func (w *World) fill(m *Model, i int) {
	n := 4 + w.rand.IntN(w.opts.Rows-3)
	if i == 1 && w.chance(10) {
		n = 0
	}
	table := make([]map[string]canonjson.Value, n)
	w.keys(m, table)
	for _, f := range m.Fields {
		if f.Full {
			continue
		}
		if f.Pool == nil {
			f.Pool = w.references(m, f)
		}
		for _, row := range table {
			w.cell(m, f, row)
		}
	}
	t := w.Data[m.Name]
	t.Ordinary = m.Ordinary
	for _, row := range table {
		t.Rows = append(t.Rows, row)
	}
	w.rand.Shuffle(len(t.Rows), func(i, j int) { t.Rows[i], t.Rows[j] = t.Rows[j], t.Rows[i] })
	w.Data[m.Name] = t
}

// cell gives a row a value of the field's pool, null, or nothing.
func (w *World) cell(m *Model, f *Field, row map[string]canonjson.Value) {
	switch at := w.rand.IntN(100); {
	case at < 70:
		row[f.Name] = pick(w.rand, f.Pool)
	case at < 85 && !m.Ordinary:
		row[f.Name] = canonjson.Null()
	}
}

// keys gives every row a key of its own: text of several lengths and scripts, or numbers with gaps.
func (w *World) keys(m *Model, rows []map[string]canonjson.Value) {
	for i := range rows {
		row := map[string]canonjson.Value{}
		rows[i] = row
		switch {
		case m.keyless():
		case m.ID == nil:
			row["line"], row["stop"] = canonjson.Int(int64(i%4)*9), canonjson.String(texts[1+i/4])
		case m.ID.Type == model.Long:
			row[m.ID.Name] = canonjson.RawString(strconv.Itoa(i*i*3 - 40))
		default:
			row[m.ID.Name] = canonjson.String(texts[1+i%(len(texts)-1)] + string(rune('a'+i/(len(texts)-1))))
		}
	}
	if m.ID != nil {
		for _, row := range rows {
			m.ID.Pool = append(m.ID.Pool, row[m.ID.Name])
		}
	}
}

// references are the keys that a reference field may hold, and one that no row has.
func (w *World) references(m *Model, f *Field) []canonjson.Value {
	dangling := canonjson.String("nobody")
	if f.Type.Integer() {
		dangling = canonjson.Int(-7)
	}
	pool := []canonjson.Value{dangling}
	for _, r := range m.Relations {
		for i, name := range r.Local {
			if name == f.Name {
				pool = append(pool, w.keysOf(m, r, i)...)
			}
		}
	}
	return pool
}

// keysOf are values of the field that a relation leads to, a few of them.
func (w *World) keysOf(m *Model, r *Relation, i int) []canonjson.Value {
	var all []canonjson.Value
	name := r.Foreign[i]
	if name == "_id" {
		name = r.Target.ID.Name
	}
	for _, row := range w.Data[r.Target.Name].Rows {
		if v := row[name]; !v.IsAbsent() && v.Kind() != canonjson.KindNull {
			all = append(all, v)
		}
	}
	if r.Target == m {
		all = m.ID.Pool
	}
	w.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), 6)]
}
