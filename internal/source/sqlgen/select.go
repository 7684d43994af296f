package sqlgen

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Cell says where a field is in a row of a result.
type Cell struct {
	Field  *model.Field // nil: an output of a group
	Name   string
	Type   model.Type
	Column *Column // nil: computed
	At     int     // the first column of the result that holds it
	Parts  []Cell  // of a composite _id: its columns
	Zero   bool    // a count: 0 where there is no row at all
}

// Selection is a statement that reads rows, and what its columns mean.
type Selection struct {
	Statement
	Model   *model.Model
	Parent  int // the column with the number of the parent, from 0; -1: none
	Cells   []Cell
	Present int // the column with __present; -1: the table has none
	Width   int // columns in all
}

// columns collects the SELECT list of a Selection.
type columns struct {
	*Selection
	list []string
}

// newColumns begins an empty SELECT list.
func newColumns(m *model.Model) *columns {
	return &columns{Selection: &Selection{Model: m, Parent: -1, Present: -1}}
}

// add appends an expression and gives its number.
func (c *columns) add(sql string) int {
	c.list = append(c.list, sql)
	c.Width = len(c.list)
	return len(c.list) - 1
}

// text is the SELECT list. It is never empty.
func (c *columns) text() string {
	if len(c.list) == 0 {
		c.add("1")
	}
	return strings.Join(c.list, ", ")
}

// cell adds a stored field to a SELECT list. A composite _id is read as its columns.
func (b *builder) cell(c *columns, p place, f *model.Field) Cell {
	if f.Column == "" && p.Model.Composite() && f == p.Model.ID() {
		cell := Cell{Field: f, Name: f.Name, Type: f.Type, At: -1}
		for _, k := range p.Model.Key {
			cell.Parts = append(cell.Parts, b.cell(c, p, k))
		}
		return cell
	}
	v := b.field(p, f)
	return Cell{Field: f, Name: f.Name, Type: f.Type, Column: v.col, At: c.add(b.d.read(v))}
}

// read adds the fields of a block, and __present where one of them may be null.
func (b *builder) read(c *columns, p place, fields []*model.Field) {
	for _, f := range fields {
		c.Cells = append(c.Cells, b.cell(c, p, f))
	}
	if p.Present && len(fields) > 0 {
		c.Present = c.add(p.name(PresentColumn))
	}
}

// selected ends a selection.
func (b *builder) selected(c *columns, text string) (Selection, error) {
	s, err := b.done(text)
	c.Statement = s
	return *c.Selection, err
}

// Root reads the rows of the root block, at most limit of them (negative: no limit).
func (g Generator) Root(blk *plan.Block, limit int64) (Selection, error) {
	if blk.Group != nil {
		return g.groups(blk, limit)
	}
	b := g.start()
	p := b.table(blk.Model)
	c := newColumns(blk.Model)
	b.read(c, p, blk.Columns)
	text := "SELECT " + c.text() + " FROM " + p.from() + b.where(p, blk.Where) + b.order(p, blk.Order) + b.window(limit, blk.Skip)
	return b.selected(c, text)
}

// Total counts the rows of the root block, or its groups, without its window.
func (g Generator) Total(blk *plan.Block) (Statement, error) {
	b := g.start()
	if blk.Group != nil {
		inner, _ := b.group(blk)
		return b.done("SELECT count(*) FROM (" + inner + ") AS g" + b.having(blk.Group))
	}
	p := b.table(blk.Model)
	return b.done("SELECT count(*) FROM " + p.from() + b.where(p, blk.Where))
}

// groups reads the groups of the root block.
func (g Generator) groups(blk *plan.Block, limit int64) (Selection, error) {
	b := g.start()
	inner, c := b.group(blk)
	list := make([]string, len(c.Cells))
	for i := range c.Cells {
		list[i] = b.d.read(b.outputs[c.Cells[i].Name])
	}
	text := "SELECT " + strings.Join(list, ", ") + " FROM (" + inner + ") AS g" + b.having(blk.Group) + b.order(place{}, blk.Order) + b.window(limit, blk.Skip)
	return b.selected(c, text)
}

// group is the SELECT that makes the groups; its columns are the keys and the aggregates, called k0, a0 and so on.
func (b *builder) group(blk *plan.Block) (string, *columns) {
	p := b.table(blk.Model)
	c := newColumns(blk.Model)
	b.outputs = map[string]value{}
	var by []string
	for i, k := range blk.Group.By {
		v := b.operand(p, k.Operand)
		v.sql = b.d.compared(v) + b.d.collate(v, false)
		at := c.add(b.output(p, "g", "k"+strconv.Itoa(i), k.Name, v))
		by = append(by, strconv.Itoa(at+1))
		c.Cells = append(c.Cells, Cell{Name: k.Name, Type: v.typ, Column: b.outputs[k.Name].col, At: at})
	}
	for i, a := range blk.Group.Aggs {
		v := b.aggregate(p, a.Op, a.Field)
		at := c.add(b.output(p, "g", "a"+strconv.Itoa(i), a.Alias, v))
		c.Cells = append(c.Cells, Cell{Name: a.Alias, Type: v.typ, Column: b.outputs[a.Alias].col, At: at, Zero: a.Op == model.Count})
	}
	text := "SELECT " + c.text() + " FROM " + p.from() + b.where(p, blk.Where)
	if len(by) > 0 {
		text += " GROUP BY " + strings.Join(by, ", ")
	}
	return text, c
}

// having chooses groups.
func (b *builder) having(g *plan.Group) string {
	if g.Having == nil {
		return ""
	}
	return " WHERE " + b.cond(place{}, g.Having, true)
}

// Kids reads the rows of a relation block for all parents by one statement, at most limit of them. Each row begins with
// the number of its parent among the tuples; the rows of one parent are in the block's order.
func (g Generator) Kids(k *plan.Kid, tuples []Tuple, limit int64) (Selection, error) {
	b := g.start()
	blk := k.Block
	p := b.table(blk.Model)
	c := newColumns(blk.Model)
	parents := b.d.parents(b, b.fields(p, k.Foreign), tuples)
	windowed := (blk.Limit >= 0 || blk.Skip > 0) && !(blk.Limit == 1 && blk.Skip == 0 && p.unique(k.Foreign))
	c.Parent = c.add(parents.number)
	var text string
	if windowed {
		text = b.d.windows(b, c, p, k, parents)
	} else {
		b.read(c, p, blk.Columns)
		text = "SELECT " + c.text() + " FROM " + parents.from + b.d.crossed(p.from()) + " WHERE " + b.met(p, k, parents) +
			" ORDER BY " + strings.Join(append([]string{parents.number}, b.terms(p, blk.Order)...), ", ")
	}
	return b.selected(c, text+b.window(limit, 0))
}

// met says that a row of the target belongs to a parent and meets the block's condition.
func (b *builder) met(p place, k *plan.Kid, parents parents) string {
	parts := make([]string, len(k.Foreign))
	for i, f := range k.Foreign {
		v := b.field(p, f)
		parts[i] = b.d.compared(v) + b.d.collate(v, true) + " = " + parents.columns[i]
	}
	if k.Block.Where != nil {
		parts = append(parts, b.cond(p, k.Block.Where, true))
	}
	return strings.Join(parts, " AND ")
}

// terms are the terms of ORDER BY.
func (b *builder) terms(p place, order []plan.Order) []string {
	parts := make([]string, len(order))
	for i, o := range order {
		parts[i] = b.sort(b.operand(p, o.By), o.Desc)
	}
	return parts
}

// parents is the argument list of parents as a table.
type parents struct {
	from    string   // of the FROM clause
	number  string   // the number of the parent, from 0
	columns []string // its values
}

// Aggs computes aggregate columns of one relation and condition for the parents of a page. Each row begins with the
// number of its parent; parents without rows have none.
func (g Generator) Aggs(aggs []*plan.Agg, tuples []Tuple) (Selection, error) {
	b := g.start()
	first := aggs[0]
	p := b.table(first.Target)
	c := newColumns(first.Target)
	parents := b.d.parents(b, b.fields(p, first.Foreign), tuples)
	c.Parent = c.add(parents.number)
	for _, a := range aggs {
		v := b.aggregate(p, a.Op, a.Field)
		v.col = b.d.derived(v)
		c.Cells = append(c.Cells, Cell{Name: a.Name, Type: v.typ, Column: v.col, At: c.add(b.d.read(v)), Zero: a.Op == model.Count})
	}
	k := &plan.Kid{Foreign: first.Foreign, Block: &plan.Block{Model: first.Target, Where: first.Where}}
	text := "SELECT " + c.text() + " FROM " + parents.from + b.d.crossed(p.from()) + " WHERE " + b.met(p, k, parents) + " GROUP BY 1"
	return b.selected(c, text)
}

// SameRows tells whether two aggregate columns are over the same rows, so that one statement computes both.
func (g Generator) SameRows(a, c *plan.Agg) bool {
	if a.Target != c.Target || !slices.Equal(a.Foreign, c.Foreign) || !slices.Equal(a.Local, c.Local) {
		return false
	}
	one, two := g.start(), g.start()
	x, y := one.where(one.table(a.Target), a.Where), two.where(two.table(c.Target), c.Where)
	return x == y && reflect.DeepEqual(one.args, two.args)
}
