package sqlgen

import (
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Unsorted tells whether the order of a block is served by no index, so that all its rows have to be sorted. index are the
// fields of one that would serve, the fixed ones first; it is nil where none can.
func (g Generator) Unsorted(blk *plan.Block) (rows int64, index []string, unsorted bool, err error) {
	if blk.Group != nil || len(blk.Order) == 0 {
		return 0, nil, false, nil
	}
	b := g.start()
	p := b.table(blk.Model)
	if b.err != nil {
		return 0, nil, false, b.err
	}
	pinned := b.pinned(p, blk.Where)
	var wanted []plan.Order
	for _, o := range blk.Order {
		c := p.Column(fieldOf(o.By))
		if c == nil || !pinned[c.Name] {
			wanted = append(wanted, o)
		}
	}
	if len(wanted) == 0 || b.served(p, wanted[0], pinned) {
		return 0, nil, false, nil
	}
	return p.Table.Rows, b.suggestion(p, blk.Where, wanted), true, nil
}

// noField stands for what is no stored field of the table itself.
var noField = &model.Field{}

// fieldOf is the stored field of the block's own table that an operand is.
func fieldOf(o plan.Operand) *model.Field {
	if o.Field == nil || o.Via != nil {
		return noField
	}
	return o.Field
}

// pinned are the columns that have one value in all rows that meet a condition.
func (b *builder) pinned(p place, c plan.Cond) map[string]bool {
	out := map[string]bool{}
	var add func(plan.Cond)
	add = func(c plan.Cond) {
		switch c := c.(type) {
		case plan.And:
			for _, sub := range c {
				add(sub)
			}
		case plan.Compare:
			if col := p.Column(fieldOf(c.By)); col != nil && c.Op == plan.EQ {
				out[col.Name] = true
			}
		case plan.In:
			if col := p.Column(fieldOf(c.By)); col != nil && len(c.Values) == 1 {
				out[col.Name] = true
			}
		}
	}
	add(c)
	return out
}

// served tells whether an index gives the rows in the order of the first key that matters; the keys behind it are then
// sorted among few rows. An index that finds the rows by a fixed value leaves few rows to sort, too.
func (b *builder) served(p place, o plan.Order, pinned map[string]bool) bool {
	for _, x := range p.Table.Indexes {
		if x.Partial || len(x.Keys) == 0 {
			continue
		}
		if pinned[x.Keys[0].Column] {
			return true
		}
		if b.ordered(p, o, x.Keys[0]) {
			return true
		}
	}
	return false
}

// ordered tells whether a column of an index is in the order that a sort key asks for, in one direction or the other.
func (b *builder) ordered(p place, o plan.Order, k IndexKey) bool {
	f := fieldOf(o.By)
	c := p.Column(f)
	if c == nil || c.Name != k.Column {
		return false
	}
	v := b.field(p, f)
	if b.d.compared(v) != v.sql {
		return false
	}
	if v.nullable && k.Desc != k.NullsLast {
		return false
	}
	if v.typ == model.String {
		return c.Source || k.ByCode
	}
	return b.d.collate(v, false) == ""
}

// suggestion are the fields of an index that would serve.
func (b *builder) suggestion(p place, where plan.Cond, wanted []plan.Order) []string {
	f := fieldOf(wanted[0].By)
	if f == noField {
		return nil
	}
	if v := b.field(p, f); b.d.compared(v) != v.sql || v.typ != model.String && b.d.collate(v, false) != "" {
		return nil // no index of the database has this order
	}
	var names []string
	pinned := b.pinned(p, where)
	for _, own := range p.Model.Fields {
		if c := p.Column(own); c != nil && pinned[c.Name] {
			names = append(names, own.Name)
		}
	}
	return append(names, f.Name)
}
