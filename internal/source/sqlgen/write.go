package sqlgen

import (
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Choice is a SELECT of the rows that a write is about. Its cells are the fields of the key, then those asked for.
type Choice struct {
	Selection
	Inside int // the column that tells whether the row lies in the scope; -1: every row does
}

// Choose finds the keys of the rows that meet where, in the order of the key, and locks them where the engine locks rows.
// limit is negative for all. The scope is told for each row, or with within asked of it.
func (g Generator) Choose(m *model.Model, where, scope plan.Cond, within bool, fields []*model.Field, limit int64) (Choice, error) {
	b := g.start()
	p := b.table(m)
	c := newColumns(m)
	b.read(c, p, append(slices.Clone(p.KeyFields()), fields...))
	choice := Choice{Inside: -1}
	if scope != nil && within {
		where = plan.And{condition(where), scope}
	} else if scope != nil {
		choice.Inside = c.add("CASE WHEN " + b.cond(p, scope, true) + " THEN 1 ELSE 0 END")
	}
	text := "SELECT " + c.text() + " FROM " + p.from() + b.where(p, where) + " ORDER BY " + b.keyOrder(p) + b.window(limit, 0) + b.d.lock()
	var err error
	choice.Selection, err = b.selected(c, text)
	return choice, err
}

// condition is c, or a condition that always holds.
func condition(c plan.Cond) plan.Cond {
	if c == nil {
		return plan.And(nil)
	}
	return c
}

// ByKey reads all fields of the rows with these keys, in no order.
func (g Generator) ByKey(m *model.Model, keys []Tuple) (Selection, error) {
	b := g.start()
	p := b.table(m)
	c := newColumns(m)
	b.read(c, p, m.Fields)
	return b.selected(c, "SELECT "+c.text()+" FROM "+p.from()+" WHERE "+b.keyed(p, keys))
}

// Outside counts the rows with these keys for which check does not hold.
func (g Generator) Outside(m *model.Model, keys []Tuple, check plan.Cond) (Statement, error) {
	b := g.start()
	p := b.table(m)
	return b.done("SELECT count(*) FROM " + p.from() + " WHERE " + b.keyed(p, keys) + " AND CASE WHEN " + b.cond(p, check, true) + " THEN 0 ELSE 1 END = 1")
}

// keyed chooses rows by their keys.
func (b *builder) keyed(p place, keys []Tuple) string {
	fields := p.KeyFields()
	if len(fields) == 0 {
		b.fail(model.Errorf(model.ReadOnly, "%s has no key, and its rows cannot be changed", p.Model.Name))
		return b.d.truth(false)
	}
	values := b.fields(p, fields)
	if len(keys) == 1 {
		parts := make([]string, len(values))
		for i, v := range values {
			parts[i] = b.d.compared(v) + b.d.collate(v, true) + " = " + b.bind(v, keys[0][i])
		}
		return strings.Join(parts, " AND ")
	}
	if len(values) == 1 {
		xs := make([]canonjson.Value, len(keys))
		for i, k := range keys {
			xs[i] = k[0]
		}
		return b.d.compared(values[0]) + b.d.collate(values[0], true) + b.d.among(b, values[0], xs)
	}
	list := b.d.parents(b, values, keys)
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = b.d.compared(v)
	}
	return row(parts) + " IN (SELECT " + strings.Join(list.columns, ", ") + " FROM " + list.from + ")"
}

// PresentText is the content of __present for names of stored fields.
func PresentText(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 {
		return ","
	}
	return "," + strings.Join(names, ",") + ","
}

// PresentNames reads what PresentText wrote.
func PresentNames(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

// Together tells how many rows from the first on one INSERT can take: rows of the same fields, as many as the engine gains
// from.
func (g Generator) Together(rows []plan.Row) int {
	n := 1
	for n < len(rows) && n < g.Dialect.perInsert(len(rows[0])) && slices.EqualFunc(rows[0], rows[n], func(a, b plan.FieldValue) bool { return a.Field == b.Field }) {
		n++
	}
	return n
}

// Insert writes rows of the same fields and reads them back as stored, in their order.
func (g Generator) Insert(m *model.Model, rows []plan.Row) (Selection, error) {
	b := g.start()
	p := b.table(m)
	var fields []int // of each row: those that have a column of their own
	var names, stored []string
	for i, fv := range rows[0] {
		if p.Column(fv.Field) == nil && fv.Field == m.ID() && m.Composite() {
			continue
		}
		name := b.target(p, fv.Field)
		if slices.Contains(names, name) {
			continue // a key column that is a field and _id, too
		}
		fields, names, stored = append(fields, i), append(names, name), append(stored, fv.Field.Name)
	}
	present := ""
	if p.Present {
		if id := m.ID(); id != nil {
			stored = append(stored, id.Name)
		}
		names = append(names, quote(PresentColumn))
		present = b.arg(PresentText(stored)) + b.d.textCast()
	}
	if len(names) == 0 {
		return b.returning(p, "INSERT INTO "+p.from()+" DEFAULT VALUES")
	}
	tuples := make([]string, len(rows))
	for i, row := range rows {
		values := make([]string, 0, len(names))
		for _, at := range fields {
			values = append(values, b.content(p, row[at].Field, row[at].Value))
		}
		if p.Present {
			values = append(values, present)
		}
		tuples[i] = "(" + strings.Join(values, ", ") + ")"
	}
	return b.returning(p, "INSERT INTO "+p.from()+" ("+strings.Join(names, ", ")+") VALUES "+strings.Join(tuples, ", "))
}

// returning reads all fields of the rows that a statement wrote.
func (b *builder) returning(p place, text string) (Selection, error) {
	c := newColumns(p.Model)
	p.as = "" // SQLite knows no alias after RETURNING
	b.read(c, p, p.Model.Fields)
	return b.selected(c, text+" RETURNING "+c.text())
}

// target is the name of the column that a field is written to.
func (b *builder) target(p place, f *model.Field) string {
	c := p.Column(f)
	if c == nil {
		b.fail(p.absent(f))
		return "NULL"
	}
	return quote(c.Name)
}

// content is the value that is written into a field's column.
func (b *builder) content(p place, f *model.Field, x canonjson.Value) string {
	if x.IsAbsent() || x.Kind() == canonjson.KindNull {
		return "NULL"
	}
	v := b.field(p, f)
	if v.col == nil {
		return "NULL"
	}
	sql, err := b.d.stored(b, v, x)
	if err != nil {
		b.fail(err)
	}
	return sql
}

// Change is what one UPDATE does to rows: values, of which Absent is missing, and the names of the fields stored
// afterwards.
type Change struct {
	Values  []plan.FieldValue
	Present []string // of tables with __present
}

// Update changes the rows with these keys, and reads them back where that is wanted.
func (g Generator) Update(m *model.Model, keys []Tuple, ch Change, back bool) (Selection, error) {
	b := g.start()
	p := b.table(m)
	var sets []string
	for _, fv := range ch.Values {
		sets = append(sets, b.target(p, fv.Field)+" = "+b.content(p, fv.Field, fv.Value))
	}
	if p.Present {
		sets = append(sets, quote(PresentColumn)+" = "+b.arg(PresentText(ch.Present))+b.d.textCast())
	}
	text := "UPDATE " + p.from() + " SET " + strings.Join(sets, ", ") + " WHERE " + b.keyed(p, keys)
	if !back {
		return b.selected(newColumns(m), text)
	}
	return b.returning(p, text)
}

// Delete removes the rows with these keys.
func (g Generator) Delete(m *model.Model, keys []Tuple) (Statement, error) {
	b := g.start()
	p := b.table(m)
	return b.done("DELETE FROM " + p.from() + " WHERE " + b.keyed(p, keys))
}

// Archive copies the rows with these keys into the archive model, with now as deletedAt.
func (g Generator) Archive(m, archive *model.Model, keys []Tuple, now int64) (Statement, error) {
	b := g.start()
	p, to := b.table(m), b.table(archive)
	var names, values []string
	for _, f := range archive.Fields {
		c := to.Column(f)
		if c == nil {
			continue
		}
		switch own := m.Field(f.Name); {
		case own != nil && p.Column(own) != nil:
			names, values = append(names, quote(c.Name)), append(values, p.name(p.Column(own).Name))
		case f.Name == deletedAt:
			names, values = append(names, quote(c.Name)), append(values, b.content(to, f, canonjson.Exact(now)))
		}
	}
	if to.Present {
		names, values = append(names, quote(PresentColumn)), append(values, b.archived(p))
	}
	return b.done("INSERT INTO " + to.Table.quoted() + " (" + strings.Join(names, ", ") + ") SELECT " + strings.Join(values, ", ") + " FROM " + p.from() + " WHERE " + b.keyed(p, keys))
}

// deletedAt is the field that an archive model has beside those of its model (models, section 2.7).
const deletedAt = "deletedAt"

// archived adds deletedAt to the names of the stored fields. Where it belongs among the sorted names is found by asking
// which of the model's fields sort before it.
func (b *builder) archived(p place) string {
	if !p.Present {
		return b.arg(PresentText([]string{deletedAt})) + b.d.textCast()
	}
	before := b.arg(",") + b.d.textCast()
	after := b.arg(deletedAt+",") + b.d.textCast()
	for _, name := range p.fieldNames() {
		text := "CASE WHEN " + b.d.find(p.name(PresentColumn), b.arg(","+name+",")) + " > 0 THEN " + b.arg(name+",") + b.d.textCast() + " ELSE '' END"
		if name < deletedAt {
			before += " || " + text
		} else if name > deletedAt {
			after += " || " + text
		}
	}
	return before + " || " + after
}

// fieldNames are the names of the stored fields in sorted order.
func (l *Layout) fieldNames() []string {
	var names []string
	for _, f := range l.Model.Fields {
		if l.Column(f) != nil {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names
}

// KeysTable is the table for idempotency keys.
const KeysTable = "tabellion_idempotency"

// KnownKey looks a key up: fingerprint, outcome, created.
func (g Generator) KnownKey(scope, key string) Statement {
	b := g.start()
	s, _ := b.done("SELECT k.fingerprint, k.outcome, k.created FROM " + quote(KeysTable) + " AS k WHERE k.scope = " + b.arg(scope) + b.d.textCast() + " AND k.key = " + b.arg(key) + b.d.textCast())
	return s
}

// ClaimKey records a key whose outcome comes later, unless it is there: then no row is written, after waiting for whoever
// is about to write it.
func (g Generator) ClaimKey(scope, key, fingerprint string, now int64) Statement {
	b := g.start()
	values := []string{b.arg(scope) + b.d.textCast(), b.arg(key) + b.d.textCast(), b.arg(fingerprint) + b.d.textCast(), "''", b.count(now)}
	s, _ := b.done("INSERT INTO " + quote(KeysTable) + ` ("scope", "key", "fingerprint", "outcome", "created") VALUES (` + strings.Join(values, ", ") + ") ON CONFLICT DO NOTHING")
	return s
}

// SettleKey records the outcome of a claimed key.
func (g Generator) SettleKey(scope, key, outcome string) Statement {
	b := g.start()
	s, _ := b.done("UPDATE " + quote(KeysTable) + ` SET "outcome" = ` + b.arg(outcome) + b.d.textCast() + ` WHERE "scope" = ` + b.arg(scope) + b.d.textCast() + ` AND "key" = ` + b.arg(key) + b.d.textCast())
	return s
}

// ForgetKeys removes keys that are older than a time.
func (g Generator) ForgetKeys(before int64) Statement {
	b := g.start()
	s, _ := b.done("DELETE FROM " + quote(KeysTable) + ` WHERE "created" < ` + b.count(before))
	return s
}

// ForgetKey removes one.
func (g Generator) ForgetKey(scope, key string) Statement {
	b := g.start()
	s, _ := b.done("DELETE FROM " + quote(KeysTable) + ` WHERE "scope" = ` + b.arg(scope) + b.d.textCast() + ` AND "key" = ` + b.arg(key) + b.d.textCast())
	return s
}

// ByMatch is the condition of equality with all of some values; a null or missing one is never equal.
func ByMatch(match []plan.FieldValue) plan.Cond {
	conds := make(plan.And, len(match))
	for i, fv := range match {
		if fv.Value.IsAbsent() || fv.Value.Kind() == canonjson.KindNull {
			return plan.Const(false)
		}
		conds[i] = plan.Compare{By: plan.Operand{Field: fv.Field, Type: fv.Field.Type}, Op: plan.EQ, Value: fv.Value}
	}
	return conds
}
