package sqlexec

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// maxUpserts is how often a write that looks for a row before it inserts is tried again when somebody else inserted the
// row in between.
const maxUpserts = 5

// Apply carries out a write.
func (x *Executor) Apply(ctx context.Context, w *plan.Write, c plan.Commit) (*plan.Applied, error) {
	if w.Model.ReadOnly() {
		return nil, model.Errorf(model.ReadOnly, "%s can only be read", w.Model.Name)
	}
	if c.Key != "" && !x.Keys() {
		return nil, plan.ErrNoKeys
	}
	var out *plan.Applied
	for try := 1; ; try++ {
		wr := &writer{x: x, ctx: ctx}
		err := x.Engine.Update(ctx, func(conn Conn) error {
			wr.conn = conn
			var err error
			out, err = wr.keyed(w, c)
			return err
		})
		var r *Refusal
		switch {
		case err == nil:
			return out, nil
		case !errors.As(err, &r):
			return nil, err
		case r.Kind == "unique" && (w.Kind == plan.Upsert || w.Kind == plan.Mutate) && try < maxUpserts:
			continue
		}
		return nil, wr.refused(r)
	}
}

// writer is one attempt at a write.
type writer struct {
	x    *Executor
	ctx  context.Context
	conn Conn
	m    *model.Model // that the last statement was about
}

// refused says which fields a rule of the database is about.
func (wr *writer) refused(r *Refusal) error {
	out := &plan.ConstraintError{Kind: r.Kind, Model: wr.m, Cause: r}
	if wr.m == nil {
		return out
	}
	l, err := wr.x.Generator.Layout(wr.m)
	if err != nil || r.Table != "" && r.Table != l.Table.Name {
		out.Model = nil
		return out
	}
	columns := r.Columns
	if columns == nil {
		columns = l.Table.Constraint(r.Constraint)
	}
	for _, name := range columns {
		if f := l.Field(name); f != nil {
			out.Fields = append(out.Fields, f)
		}
	}
	return out
}

// write does it.
func (wr *writer) write(w *plan.Write) (*plan.Applied, error) {
	switch w.Kind {
	case plan.Insert:
		return wr.insertAll(w)
	case plan.Update:
		return wr.update(w)
	case plan.UpdateMany:
		return wr.updateMany(w)
	case plan.Remove:
		return wr.remove(w)
	case plan.Upsert:
		return wr.upsert(w)
	case plan.Mutate:
		return wr.mutate(w)
	}
	return nil, fmt.Errorf("no write of the kind %q", w.Kind)
}

// chosen is a row that a write is about.
type chosen struct {
	key     sqlgen.Tuple
	cells   []canonjson.Value // of the fields that were asked for
	bad     bool              // one of them holds what its type cannot
	inside  bool              // the row lies in the caller's scope
	present []string          // names of the stored fields
}

// choose finds rows.
func (wr *writer) choose(m *model.Model, where, scope plan.Cond, within bool, fields []*model.Field, limit int64) ([]chosen, error) {
	wr.m = m
	sel, err := wr.x.Generator.Choose(m, where, scope, within, fields, limit)
	if err != nil {
		return nil, err
	}
	var flaws []flaw
	d := newDecoder(wr.x.Engine, &sel.Selection, &flaws)
	var out []chosen
	n := len(sel.Cells) - len(fields)
	err = wr.conn.Query(wr.ctx, sel.Statement, func(cells []any) error {
		row, _, err := d.row(cells, 0)
		if err != nil {
			return err
		}
		c := chosen{key: row.Cells[:n], cells: row.Cells[n:], bad: len(flaws) > 0, inside: true}
		flaws = nil
		if sel.Inside >= 0 {
			in, ok := asInt(cells[sel.Inside])
			c.inside = ok && in == 1
		}
		if sel.Present >= 0 {
			c.present = sqlgen.PresentNames(asText(cells[sel.Present]))
		}
		out = append(out, c)
		return nil
	})
	return out, err
}

// stored runs a statement that reads rows back.
func (wr *writer) stored(sel sqlgen.Selection, err error) ([]plan.ReadRow, error) {
	if err != nil {
		return nil, err
	}
	wr.m = sel.Model
	var flaws []flaw // told by the next read
	d := newDecoder(wr.x.Engine, &sel, &flaws)
	var out []plan.ReadRow
	err = wr.conn.Query(wr.ctx, sel.Statement, func(cells []any) error {
		row, _, err := d.row(cells, 0)
		out = append(out, row)
		return err
	})
	return out, err
}

// exec runs a statement about a model.
func (wr *writer) exec(m *model.Model, s sqlgen.Statement, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	wr.m = m
	return wr.conn.Exec(wr.ctx, s)
}

// keyOf is the key of a row with all fields of m.
func keyOf(m *model.Model, row plan.ReadRow) sqlgen.Tuple {
	fields := sqlgen.KeyFields(m)
	key := make(sqlgen.Tuple, len(fields))
	for i, f := range fields {
		key[i] = cellOf(m, row, f)
	}
	return key
}

// cellOf is the cell of a field in a row with all fields of m.
func cellOf(m *model.Model, row plan.ReadRow, f *model.Field) canonjson.Value {
	for i, own := range m.Fields {
		if own == f || own.Name == f.Name {
			return row.Cells[i]
		}
	}
	return canonjson.Value{}
}

// check refuses when a row lies outside of where the caller may write.
func (wr *writer) check(m *model.Model, keys []sqlgen.Tuple, check plan.Cond) error {
	if check == nil {
		return nil
	}
	for _, part := range chunks(keys) {
		s, err := wr.x.Generator.Outside(m, part, check)
		if err != nil {
			return err
		}
		err = wr.conn.Query(wr.ctx, s, func(cells []any) error {
			if n, ok := asInt(cells[0]); !ok || n > 0 {
				return plan.ErrOutside
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// maxKeys is how many keys one statement takes.
const maxKeys = 5000

// chunks splits a list of keys.
func chunks(keys []sqlgen.Tuple) [][]sqlgen.Tuple {
	var out [][]sqlgen.Tuple
	for len(keys) > maxKeys {
		out, keys = append(out, keys[:maxKeys]), keys[maxKeys:]
	}
	if len(keys) > 0 {
		out = append(out, keys)
	}
	return out
}

// insertAll inserts the rows.
func (wr *writer) insertAll(w *plan.Write) (*plan.Applied, error) {
	out := &plan.Applied{}
	var keys []sqlgen.Tuple
	for rows := w.Rows; len(rows) > 0; {
		n := wr.x.Generator.Together(rows)
		back, err := wr.insert(w.Model, rows[:n])
		if err != nil {
			return nil, err
		}
		for _, row := range back {
			keys = append(keys, keyOf(w.Model, row))
		}
		out.Rows, rows = append(out.Rows, back...), rows[n:]
	}
	return out, wr.check(w.Model, keys, w.Check)
}

// insert inserts rows of the same fields.
func (wr *writer) insert(m *model.Model, rows []plan.Row) ([]plan.ReadRow, error) {
	back, err := wr.stored(wr.x.Generator.Insert(m, rows))
	if err != nil {
		return nil, err
	}
	if len(back) != len(rows) {
		return nil, fmt.Errorf("an insert of %d rows into %s gave %d back", len(rows), m.Name, len(back))
	}
	for i := range rows {
		if len(rows) > 1 && !ofKey(m, back[i], rows[i]) {
			return nil, fmt.Errorf("an insert into %s gave rows back in another order", m.Name)
		}
		if err := wr.unchanged(m, back[i], rows[i]); err != nil {
			return nil, err
		}
	}
	return back, nil
}

// ofKey tells whether a row that came back has the _id that was sent, if one was.
func ofKey(m *model.Model, row plan.ReadRow, sent plan.Row) bool {
	for _, fv := range sent {
		if fv.Field == m.ID() && fv.Field.Column != "" {
			return same(cellOf(m, row, fv.Field), fv.Value)
		}
	}
	return true
}

// unchanged makes sure that the database kept all digits of decimals and times.
func (wr *writer) unchanged(m *model.Model, row plan.ReadRow, sent []plan.FieldValue) error {
	for _, fv := range sent {
		if fv.Value.Kind() != canonjson.KindString || fv.Field.Type != model.Decimal && fv.Field.Type != model.Timestamp {
			continue
		}
		want, ok := canonical(fv.Field.Type, fv.Value.Str())
		if got := cellOf(m, row, fv.Field); ok && got.Str() != want {
			return model.Errorf(model.BadValue, "%s.%s cannot hold all digits of the value; the nearest that it holds is %s", m.Name, fv.Field.Name, plainText(got))
		}
	}
	return nil
}

// canonical is the one form of a decimal or time.
func canonical(t model.Type, s string) (string, bool) {
	if t == model.Decimal {
		return Decimal(s)
	}
	v, ok := Timestamp(s)
	return v.Str(), ok
}

// one finds the row of a write of one row and judges it: nil when there is none.
func (wr *writer) one(w *plan.Write, where plan.Cond, limit int64) (*chosen, error) {
	fields, version := needed(w)
	rows, err := wr.choose(w.Model, where, w.Scope, false, fields, limit)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	if !rows[0].inside {
		return nil, plan.ErrOutside
	}
	if version >= 0 {
		current := rows[0].cells[version]
		if current.IsAbsent() {
			current = canonjson.Null()
		}
		if !same(current, w.Expect) {
			return nil, &plan.VersionError{Current: current}
		}
	}
	return &rows[0], nil
}

// same compares two values; integers by all their digits.
func same(a, b canonjson.Value) bool {
	m, ok := parseInteger(a)
	n, ok2 := parseInteger(b)
	if ok && ok2 {
		return m == n
	}
	return a.Equal(b)
}

// needed are the fields whose stored values decide or are added to, and the place of the version among them (-1: it is
// not asked).
func needed(w *plan.Write) (fields []*model.Field, version int) {
	for _, a := range w.Set {
		if !a.Inc.IsAbsent() {
			fields = append(fields, a.Field)
		}
	}
	if w.Expect.IsAbsent() || w.Model.VersionOf == nil {
		return fields, -1
	}
	return append(fields, w.Model.VersionOf), len(fields)
}

// update changes one row.
func (wr *writer) update(w *plan.Write) (*plan.Applied, error) {
	row, err := wr.one(w, w.Where, 1)
	if err != nil || row == nil {
		return &plan.Applied{}, err
	}
	back, err := wr.change(w.Model, row, w.Set, w.Check)
	if err != nil {
		return nil, err
	}
	return &plan.Applied{Rows: []plan.ReadRow{back}, Modified: 1}, nil
}

// change changes one chosen row, whose cells are those that increments need.
func (wr *writer) change(m *model.Model, row *chosen, set []plan.Assign, check plan.Cond) (plan.ReadRow, error) {
	keys := []sqlgen.Tuple{row.key}
	sel, err := wr.x.Generator.ByKey(m, keys)
	ch, e := changeOf(m, row, set)
	if e != nil {
		return plan.ReadRow{}, e
	}
	if len(ch.Values) > 0 {
		sel, err = wr.x.Generator.Update(m, keys, ch, true)
	}
	rows, err := wr.stored(sel, err)
	if err != nil {
		return plan.ReadRow{}, err
	}
	if len(rows) != 1 {
		return plan.ReadRow{}, fmt.Errorf("a change of one row of %s gave %d rows back", m.Name, len(rows))
	}
	if err := wr.unchanged(m, rows[0], ch.Values); err != nil {
		return plan.ReadRow{}, err
	}
	return rows[0], wr.check(m, []sqlgen.Tuple{keyOf(m, rows[0])}, check)
}

// changeOf works out what an UPDATE writes into a row.
func changeOf(m *model.Model, row *chosen, set []plan.Assign) (sqlgen.Change, error) {
	if row.bad {
		return sqlgen.Change{}, model.Errorf(model.BadValue, "the row of %s holds something that is no number where one is to be added to; set it to a number first", m.Name)
	}
	stored := map[string]bool{}
	for _, name := range row.present {
		stored[name] = true
	}
	if id := m.ID(); id != nil {
		stored[id.Name] = true
	}
	ch := sqlgen.Change{}
	next := 0
	for _, a := range set {
		v := a.Value
		if !a.Inc.IsAbsent() {
			var err error
			if v, err = sum(m, a, row.cells[next]); err != nil {
				return ch, err
			}
			next++
		}
		stored[a.Field.Name] = !a.Unset
		if a.Unset {
			v = canonjson.Value{}
		}
		ch.Values = append(ch.Values, plan.FieldValue{Field: a.Field, Value: v})
	}
	for name, is := range stored {
		if is {
			ch.Present = append(ch.Present, name)
		}
	}
	return ch, nil
}

// updateMany changes every row that the condition and the scope choose.
func (wr *writer) updateMany(w *plan.Write) (*plan.Applied, error) {
	fields, _ := needed(&plan.Write{Model: w.Model, Set: w.Set})
	rows, err := wr.choose(w.Model, w.Where, w.Scope, true, fields, -1)
	if err != nil {
		return nil, err
	}
	out := &plan.Applied{Modified: int64(len(rows))}
	if len(rows) == 0 || len(w.Set) == 0 {
		return out, nil
	}
	groups, err := alike(w, rows, len(fields) > 0)
	if err != nil {
		return nil, err
	}
	var all []sqlgen.Tuple
	for _, g := range groups {
		all = append(all, g.keys...)
		for _, part := range chunks(g.keys) {
			sel, err := wr.x.Generator.Update(w.Model, part, g.Change, false)
			if _, err := wr.exec(w.Model, sel.Statement, err); err != nil {
				return nil, err
			}
		}
	}
	return out, wr.check(w.Model, all, w.Check)
}

// sameChange are rows that one UPDATE changes.
type sameChange struct {
	sqlgen.Change
	keys []sqlgen.Tuple
}

// alike puts rows together that the same UPDATE changes. added says that something is added to what a row holds.
func alike(w *plan.Write, rows []chosen, added bool) ([]*sameChange, error) {
	var groups []*sameChange
	byID := map[string]*sameChange{}
	for i := range rows {
		ch, err := changeOf(w.Model, &rows[i], w.Set)
		if err != nil {
			return nil, err
		}
		id := alikeID(ch, added)
		g := byID[id]
		if g == nil {
			g = &sameChange{Change: ch}
			byID[id] = g
			groups = append(groups, g)
		}
		g.keys = append(g.keys, rows[i].key)
	}
	return groups, nil
}

// alikeID is equal for changes that write the same: values differ only where something is added.
func alikeID(ch sqlgen.Change, added bool) string {
	id := sqlgen.PresentText(ch.Present)
	if added {
		for _, fv := range ch.Values {
			id += "\x00" + string(fv.Value.AppendJSON(nil))
		}
	}
	return id
}

// remove archives and deletes.
func (wr *writer) remove(w *plan.Write) (*plan.Applied, error) {
	var keys []sqlgen.Tuple
	if w.One {
		row, err := wr.one(w, w.Where, 1)
		if err != nil {
			return nil, err
		}
		if row != nil {
			keys = append(keys, row.key)
		}
	} else {
		rows, err := wr.choose(w.Model, w.Where, w.Scope, true, nil, -1)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			keys = append(keys, row.key)
		}
	}
	out := &plan.Applied{}
	for _, part := range chunks(keys) {
		if err := wr.removeKeys(w, part, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// removeKeys removes the rows with these keys.
func (wr *writer) removeKeys(w *plan.Write, keys []sqlgen.Tuple, out *plan.Applied) error {
	g := wr.x.Generator
	if w.Archive != nil {
		s, err := g.Delete(w.Archive, keys)
		if _, err := wr.exec(w.Archive, s, err); err != nil {
			return err
		}
		s, err = g.Archive(w.Model, w.Archive, keys, w.Now)
		n, err := wr.exec(w.Archive, s, err)
		if err != nil {
			return err
		}
		out.Archived += n
	}
	s, err := g.Delete(w.Model, keys)
	n, err := wr.exec(w.Model, s, err)
	out.Deleted += n
	return err
}

// upsert changes the row that matches, or inserts one.
func (wr *writer) upsert(w *plan.Write) (*plan.Applied, error) {
	row, err := wr.one(w, sqlgen.ByMatch(w.Match), 1)
	if err != nil {
		return nil, err
	}
	if row != nil {
		back, err := wr.change(w.Model, row, w.Set, w.Check)
		return &plan.Applied{Rows: []plan.ReadRow{back}, Modified: 1}, err
	}
	return wr.insertAll(&plan.Write{Model: w.Model, Rows: w.Rows[:1], Check: w.Check})
}

// mutate writes trees.
func (wr *writer) mutate(w *plan.Write) (*plan.Applied, error) {
	out := &plan.Applied{}
	for _, n := range w.Nodes {
		row, err := wr.node(n, nil, false)
		if err != nil {
			return nil, err
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

// node writes one row and what is below it. link are the fields that lead to the parent; alone says that they find the row.
func (wr *writer) node(n *plan.Node, link []plan.FieldValue, alone bool) (plan.ReadRow, error) {
	keys := linkedKeys(n.Keys, link)
	if alone {
		keys = append([][]plan.FieldValue{link}, keys...)
	}
	row, err := wr.nodeRow(n, keys, link)
	if err != nil {
		return row, err
	}
	for _, kid := range n.Kids {
		parent := cellOf(n.Model, row, kid.Local)
		if parent.IsAbsent() {
			parent = canonjson.Null()
		}
		for _, child := range kid.Nodes {
			if _, err := wr.node(child, []plan.FieldValue{{Field: kid.Foreign, Value: parent}}, kid.One); err != nil {
				return row, err
			}
		}
	}
	return row, nil
}

// nodeRow changes the row that meets one of the keys, or inserts one.
func (wr *writer) nodeRow(n *plan.Node, keys [][]plan.FieldValue, link []plan.FieldValue) (plan.ReadRow, error) {
	w := &plan.Write{Model: n.Model, Set: linkedSet(n.Set, link), Scope: n.Scope}
	for _, key := range keys {
		row, err := wr.one(w, sqlgen.ByMatch(key), 1)
		if err != nil {
			return plan.ReadRow{}, err
		}
		if row != nil {
			return wr.change(n.Model, row, w.Set, n.Check)
		}
	}
	back, err := wr.insert(n.Model, []plan.Row{linkedRow(n.Row, link)})
	if err != nil {
		return plan.ReadRow{}, err
	}
	return back[0], wr.check(n.Model, []sqlgen.Tuple{keyOf(n.Model, back[0])}, n.Check)
}

// linkedKeys fills the parent's value into keys that hold the field of the link: an Absent one (see plan.Node).
func linkedKeys(keys [][]plan.FieldValue, link []plan.FieldValue) [][]plan.FieldValue {
	out := make([][]plan.FieldValue, len(keys))
	for i, key := range keys {
		out[i] = slices.Clone(key)
		for j, fv := range key {
			for _, l := range link {
				if fv.Value.IsAbsent() && fv.Field == l.Field {
					out[i][j] = l
				}
			}
		}
	}
	return out
}

// linkedSet adds the link to the parent to a change, in place of what it says about these fields itself.
func linkedSet(set []plan.Assign, link []plan.FieldValue) []plan.Assign {
	var out []plan.Assign
	for _, a := range set {
		if !holds(link, a.Field) {
			out = append(out, a)
		}
	}
	for _, fv := range link {
		out = append(out, plan.Assign{Field: fv.Field, Value: fv.Value})
	}
	return out
}

// linkedRow does the same for a row to insert.
func linkedRow(row plan.Row, link []plan.FieldValue) plan.Row {
	var out plan.Row
	for _, fv := range row {
		if !holds(link, fv.Field) {
			out = append(out, fv)
		}
	}
	return append(out, link...)
}

// holds tells whether a field is among those of a link.
func holds(link []plan.FieldValue, f *model.Field) bool {
	for _, fv := range link {
		if fv.Field == f {
			return true
		}
	}
	return false
}
