package engine

import (
	"context"
	"slices"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// shaper shows the rows of one answer as they were asked for.
type shaper struct {
	ctx context.Context
	e   *Engine
	who *model.Context
}

// rows shows the rows of a block, of all parents at once, so that a function over all rows runs once.
func (s *shaper) rows(b *plan.Block, rows []plan.ReadRow) ([]canonjson.Value, error) {
	if b.Group != nil {
		return groupRows(b, rows), nil
	}
	kids, err := s.kids(b, rows)
	if err != nil {
		return nil, err
	}
	computed, err := s.computed(b, rows)
	if err != nil {
		return nil, err
	}
	id, cells := cellsOf(b)
	out := make([]canonjson.Value, len(rows))
	for i, row := range rows {
		members := make([]canonjson.Member, 0, len(b.Shape.Items)+1)
		if b.Shape.ID {
			members = append(members, canonjson.M("_id", row.Cells[id]))
		}
		for n, item := range b.Shape.Items {
			var v canonjson.Value
			switch {
			case item.Kid != nil:
				v = kids[*item.Kid][i]
			case item.Field != nil:
				v = shownField(item, row.Cells[cells[n]])
			case item.Compute.Agg != nil:
				v = orNull(row.Cells[cells[n]])
			default:
				v = computed[n][i]
			}
			members = append(members, canonjson.M(item.Name, v))
		}
		out[i] = canonjson.Object(members...)
	}
	return out, nil
}

// cellsOf tells where in a row the _id lies, and the field or aggregate of each item.
func cellsOf(b *plan.Block) (id int, cells []int) {
	at := columns(b)
	cells = make([]int, len(b.Shape.Items))
	for n, item := range b.Shape.Items {
		if item.Field != nil {
			cells[n] = at[item.Field]
		} else {
			cells[n] = len(b.Columns) + item.Agg
		}
	}
	return at[b.Model.ID()], cells
}

// columns tells where each field lies in a row.
func columns(b *plan.Block) map[*model.Field]int {
	at := make(map[*model.Field]int, len(b.Columns))
	for i, f := range b.Columns {
		at[f] = i
	}
	return at
}

// groupRows shows groups: missing values are null, and nothing is filled in (models, section 9).
func groupRows(b *plan.Block, rows []plan.ReadRow) []canonjson.Value {
	out := make([]canonjson.Value, len(rows))
	for i, row := range rows {
		members := make([]canonjson.Member, 0, len(b.Shape.Items))
		for _, item := range b.Shape.Items {
			members = append(members, canonjson.M(item.Name, orNull(row.Cells[*item.Group])))
		}
		out[i] = canonjson.Object(members...)
	}
	return out
}

// kids shows the relation blocks: for each kid that is shown, the value of each row.
func (s *shaper) kids(b *plan.Block, rows []plan.ReadRow) ([][]canonjson.Value, error) {
	out := make([][]canonjson.Value, len(b.Kids))
	for _, item := range b.Shape.Items {
		if item.Kid == nil || out[*item.Kid] != nil {
			continue
		}
		k := *item.Kid
		var all []plan.ReadRow
		for _, row := range rows {
			all = append(all, row.Kids[k]...)
		}
		shown, err := s.rows(b.Kids[k].Block, all)
		if err != nil {
			return nil, err
		}
		out[k] = make([]canonjson.Value, len(rows))
		for i, row := range rows {
			own := shown[:len(row.Kids[k])]
			shown = shown[len(own):]
			out[k][i] = related(b.Kids[k].Relation, own)
		}
	}
	return out, nil
}

// related is what a relation shows: an array, or one object or null.
func related(r *model.Relation, rows []canonjson.Value) canonjson.Value {
	switch {
	case !r.One:
		return canonjson.Array(rows...)
	case len(rows) == 0:
		return canonjson.Null()
	}
	return rows[0]
}

// computed runs the functions of a block: for each item that is a function column, its value of each row. Functions over
// all rows run last (models, section 10).
func (s *shaper) computed(b *plan.Block, rows []plan.ReadRow) (map[int][]canonjson.Value, error) {
	out := map[int][]canonjson.Value{}
	for n, item := range b.Shape.Items {
		if item.Compute == nil || !item.Compute.Fn {
			continue
		}
		out[n] = make([]canonjson.Value, len(rows))
		document := documents(b, item.Compute)
		for i, row := range rows {
			v, err := s.e.computeRow(b.Model, item.Compute, document(row))
			if err != nil {
				return nil, err
			}
			out[n][i] = v
		}
	}
	for n, item := range b.Shape.Items {
		if item.Compute == nil || !item.Compute.AsyncFn || len(rows) == 0 {
			continue
		}
		docs := make([]map[string]any, len(rows))
		document := documents(b, item.Compute)
		for i, row := range rows {
			docs[i] = document(row)
		}
		values, err := s.e.computeRows(s.ctx, b.Model, item.Compute, docs, s.who)
		if err != nil {
			return nil, err
		}
		out[n] = values
	}
	return out, nil
}

// documents makes what a function column sees of a row: the fields that it depends on with their declared defaults, and
// the rows of relations that it depends on. A missing field has no key.
func documents(b *plan.Block, c *model.Compute) func(plan.ReadRow) map[string]any {
	at := columns(b)
	var parts []func(map[string]any, plan.ReadRow)
	for _, d := range c.Depends {
		if d.Field != "" {
			f := b.Model.Field(d.Field)
			parts = append(parts, func(doc map[string]any, row plan.ReadRow) { put(doc, at, row, f) })
		} else if k := dependedKid(b, d.Relation); k >= 0 {
			parts = append(parts, relatedDocuments(b.Kids[k], k, d))
		}
	}
	return func(row plan.ReadRow) map[string]any {
		doc := make(map[string]any, len(parts))
		for _, part := range parts {
			part(doc, row)
		}
		return doc
	}
}

// relatedDocuments puts the rows of a relation into a document: an array, or an object or nil.
func relatedDocuments(kid *plan.Kid, k int, d model.Depend) func(map[string]any, plan.ReadRow) {
	at := columns(kid.Block)
	return func(doc map[string]any, row plan.ReadRow) {
		related := make([]any, 0, len(row.Kids[k]))
		for _, r := range row.Kids[k] {
			one := make(map[string]any, len(d.Fields))
			for _, name := range d.Fields {
				put(one, at, r, kid.Block.Model.Field(name))
			}
			related = append(related, one)
		}
		switch {
		case !kid.Relation.One:
			doc[d.Relation] = related
		case len(related) > 0:
			doc[d.Relation] = related[0]
		default:
			doc[d.Relation] = nil
		}
	}
}

// put adds one field of a row to a document, when the row was read with it.
func put(doc map[string]any, at map[*model.Field]int, row plan.ReadRow, f *model.Field) {
	if i, read := at[f]; read {
		if v := filled(f, row.Cells[i]); !v.IsAbsent() {
			doc[f.Name] = toGo(f.Type, v)
		}
	}
}

// dependedKid finds the relation block that was added for functions; negative when there is none.
func dependedKid(b *plan.Block, relation string) int {
	return slices.IndexFunc(b.Kids, func(k *plan.Kid) bool { return k.Hidden && k.Relation.Name == relation })
}

// filled is a stored value with the declared default of its field for a missing or null one.
func filled(f *model.Field, v canonjson.Value) canonjson.Value {
	if !f.Default.IsAbsent() && (v.IsAbsent() || v.Kind() == canonjson.KindNull) {
		return f.Default
	}
	return v
}

// shownField is a field as it was asked for: the whole, or an object with some sub-fields and their own defaults.
func shownField(item plan.ShapeItem, stored canonjson.Value) canonjson.Value {
	v := filled(item.Field, stored)
	if item.Subs == nil {
		return v
	}
	members := make([]canonjson.Member, 0, len(item.Subs))
	for _, sub := range item.Subs {
		members = append(members, canonjson.M(sub.Name, filled(sub, v.Get(sub.Name))))
	}
	if o := canonjson.Object(members...); o.Len() > 0 || v.Kind() == canonjson.KindObject {
		return o
	}
	return v
}

// orNull is v, or null for what is missing.
func orNull(v canonjson.Value) canonjson.Value {
	if v.IsAbsent() {
		return canonjson.Null()
	}
	return v
}
