package plan

import (
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Position is where a page of a query's root rows ended: after the row with these sort values (the last is the key's, so
// that it is unique), or, where a sort key is not a field of the root model, after Taken rows. It is data of a cursor,
// which somebody else seals.
type Position struct {
	Values []canonjson.Value // of Block.Order, Absent and null kept apart by Absent being spelled as {}; nil: Taken counts
	Taken  int64             // rows that earlier pages gave, of the query's own $limit
}

// Value is the position as JSON, and ReadPosition reads it back.
func (p Position) Value() canonjson.Value {
	members := []canonjson.Member{canonjson.M("n", canonjson.Int(p.Taken))}
	if p.Values != nil {
		members = append(members, canonjson.M("v", canonjson.Array(p.Values...)))
	}
	return canonjson.Object(members...)
}

// ReadPosition reads what Value wrote.
func ReadPosition(v canonjson.Value) (Position, error) {
	taken, ok := v.Get("n").Int()
	values := v.Get("v")
	if !ok || taken < 0 || !values.IsAbsent() && values.Kind() != canonjson.KindArray {
		return Position{}, badPosition()
	}
	p := Position{Taken: taken}
	if !values.IsAbsent() {
		p.Values = append([]canonjson.Value{}, values.Items()...)
	}
	return p, nil
}

// badPosition is the refusal of a position that is none, or none of this query.
func badPosition() error {
	return model.Errorf(model.BadLimit, "the cursor does not belong to this query; ask without one to begin at the first page")
}

// Page narrows q to one page: at most limit rows (0: as many as q allows) after a position (nil: from the start). It sets
// Peek, and adds the columns that End needs.
func (q *Query) Page(limit int64, after *Position) error {
	keyset := q.keyset()
	if keyset {
		for _, o := range q.Root.Order {
			if !has(q.Root.Columns, o.By.Field) {
				q.Root.Columns = append(q.Root.Columns, o.By.Field)
			}
		}
	}
	left := q.own
	if after != nil {
		if err := q.start(after, keyset); err != nil {
			return err
		}
		if left >= 0 {
			left = max(0, left-after.Taken)
		}
	}
	page := q.ceiling
	if limit > 0 {
		page = smaller(page, limit)
	}
	q.Root.Limit = smaller(left, page)
	q.Root.Peek = q.Root.Limit >= 0 && q.Root.Limit != left
	return nil
}

// keyset tells whether a page can begin after the sort values of a row: all sort keys are fields of the root, and the last
// of them make a row unique.
func (q *Query) keyset() bool {
	if q.Root.Group != nil || q.Root.Model.Keyless || len(q.Root.Order) == 0 {
		return false
	}
	for _, o := range q.Root.Order {
		if o.By.Field == nil || o.By.Via != nil {
			return false
		}
	}
	return true
}

// start has the rows begin after a position.
func (q *Query) start(after *Position, keyset bool) error {
	if keyset != (after.Values != nil) {
		return badPosition()
	}
	if !keyset {
		q.Root.Skip += after.Taken
		return nil
	}
	c, err := afterRow(q.Root.Model, q.Root.Order, after.Values)
	if err != nil {
		return err
	}
	q.Root.Where = all(q.Root.Where, c)
	q.Root.Skip = 0
	return nil
}

// End is the position after row, the last of a page of n rows that began at after.
func (q *Query) End(row ReadRow, after *Position, n int) Position {
	p := Position{Taken: int64(n)}
	if after != nil {
		p.Taken += after.Taken
	}
	if !q.keyset() {
		return p
	}
	p.Values = make([]canonjson.Value, len(q.Root.Order))
	for i, o := range q.Root.Order {
		p.Values[i] = q.cell(row, o.By.Field)
	}
	return p
}

// cell is a row's value of a column; an absent one is spelled {}.
func (q *Query) cell(row ReadRow, f *model.Field) canonjson.Value {
	for i, c := range q.Root.Columns {
		if c == f && !row.Cells[i].IsAbsent() {
			return row.Cells[i]
		}
	}
	return canonjson.Object()
}

// bound is one sort key with the value of the row after which a page begins.
type bound struct {
	Order
	value    canonjson.Value // Absent: the row has none
	nullable bool
}

// afterRow is the condition that a row comes after the one with these values:
//
//	k1 after v1, or k1 = v1 and k2 after v2, or ...
//
// and, for the sake of an index on k1, k1 not before v1 beside it.
func afterRow(m *model.Model, order []Order, values []canonjson.Value) (Cond, error) {
	if len(values) != len(order) {
		return nil, badPosition()
	}
	bounds := make([]bound, len(order))
	for i, o := range order {
		bounds[i] = bound{Order: o, nullable: !subject{Operand: o.By, model: m}.key()}
		if k := values[i].Kind(); k == canonjson.KindNull || k == canonjson.KindObject {
			continue
		}
		v, err := model.Coerce(o.By.Type, values[i])
		if err != nil {
			return nil, badPosition()
		}
		bounds[i].value = v
	}
	var either []Cond
	var same []Cond
	for _, b := range bounds {
		either = append(either, all(append(append([]Cond{}, same...), b.after())...))
		same = append(same, b.same())
	}
	after := anyOf(either...)
	if len(bounds) == 1 {
		return after, nil
	}
	return all(bounds[0].notBefore(), after), nil
}

// after is true of rows that come after the bound by this key alone. Rows without a value come first, or last when the
// order is descending.
func (b bound) after() Cond {
	switch {
	case b.value.IsAbsent() && b.Desc:
		return Const(false)
	case b.value.IsAbsent():
		return HasValue{b.By}
	case b.Desc && b.nullable:
		return anyOf(Compare{b.By, LT, b.value}, negate(HasValue{b.By}))
	case b.Desc:
		return Compare{b.By, LT, b.value}
	}
	return Compare{b.By, GT, b.value}
}

// same is true of rows that are at the bound by this key.
func (b bound) same() Cond {
	if b.value.IsAbsent() {
		return negate(HasValue{b.By})
	}
	return Compare{b.By, EQ, b.value}
}

// notBefore is true of rows that are at the bound or after it by this key.
func (b bound) notBefore() Cond {
	switch {
	case b.value.IsAbsent() && b.Desc:
		return negate(HasValue{b.By})
	case b.value.IsAbsent():
		return nil
	case b.Desc && b.nullable:
		return anyOf(Compare{b.By, LE, b.value}, negate(HasValue{b.By}))
	case b.Desc:
		return Compare{b.By, LE, b.value}
	}
	return Compare{b.By, GE, b.value}
}
