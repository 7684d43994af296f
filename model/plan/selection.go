package plan

import (
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/gql"
)

// blockBuilder makes one block: what is selected, what that needs, and in which order rows come.
type blockBuilder struct {
	p       *Planner
	m       *model.Model
	b       *Block
	depth   int // relation blocks around this one
	windows int // of them, those with $skip or $limit
	items   map[string]int
	kids    map[string]*Kid // shown ones, by name
	links   map[string]*link
	aggs    map[string]int
	hidden  map[string]*Kid // those that functions need
}

// root plans the root of a query that does not group.
func (p *Planner) root(m *model.Model, b *gql.Bound, use condUse) (*Block, error) {
	if !b.Values.Having.IsAbsent() {
		return nil, model.Errorf(model.Having, "$having filters groups and needs a $group beside it; rows are filtered by $condition")
	}
	w := p.builder(m, 0, 0)
	w.b.Shape.ID = m.ID() != nil && p.Access.ReadField(m, m.ID())
	return w.b, w.build(b.Values, b.Items, use)
}

// builder starts a block.
func (p *Planner) builder(m *model.Model, depth, windows int) *blockBuilder {
	return &blockBuilder{
		p: p, m: m, b: &Block{Model: m, Limit: unlimited}, depth: depth, windows: windows,
		items: map[string]int{}, kids: map[string]*Kid{}, links: map[string]*link{}, aggs: map[string]int{}, hidden: map[string]*Kid{},
	}
}

// build fills the block: condition, selection, sort.
func (w *blockBuilder) build(v gql.Values, items []gql.BoundItem, use condUse) error {
	var err error
	if w.b.Where, err = w.p.where(w.m, v.Condition, use); err != nil {
		return err
	}
	if id := w.m.ID(); id != nil {
		w.column(id)
	}
	if items, err = merge(items); err != nil {
		return err
	}
	for _, item := range items {
		if err := w.item(item); err != nil {
			return err
		}
	}
	if len(w.b.Columns) == 0 && len(w.m.Fields) > 0 {
		w.column(w.m.Fields[0]) // a row needs something to be read by
	}
	return w.sort(v.Sort)
}

// column has the source read f, once.
func (w *blockBuilder) column(f *model.Field) {
	if !has(w.b.Columns, f) {
		w.b.Columns = append(w.b.Columns, f)
	}
}

// show adds a member to the rows. False: there is one of this name.
func (w *blockBuilder) show(item ShapeItem) bool {
	if _, ok := w.items[item.Name]; ok {
		return false
	}
	w.items[item.Name] = len(w.b.Shape.Items)
	w.b.Shape.Items = append(w.b.Shape.Items, item)
	return true
}

// merge joins items that were written twice: a relation, or an object field with sub-fields. A row has one member of a
// name.
func merge(items []gql.BoundItem) ([]gql.BoundItem, error) {
	at := map[string]int{}
	var out []gql.BoundItem
	for _, item := range items {
		i, seen := at[item.Name]
		switch {
		case !seen:
			at[item.Name] = len(out)
			out = append(out, item)
		case item.Called != out[i].Called:
			out = append(out, item) // meta and meta { level }: judged one by one
		case !item.Called:
		case !sameValues(item.Values, out[i].Values):
			return nil, model.Errorf(model.Parse, "%s is written twice with different arguments; a row has one %s. Ask in two queries", clip(item.Name), clip(item.Name))
		default:
			out[i].Items = append(append([]gql.BoundItem(nil), out[i].Items...), item.Items...)
		}
	}
	return out, nil
}

// sameValues tells whether two items have equal arguments.
func sameValues(a, b gql.Values) bool {
	return a.Condition.Equal(b.Condition) && a.Sort.Equal(b.Sort) && a.Skip.Equal(b.Skip) && a.Limit.Equal(b.Limit)
}

// item adds one entry of the selection.
func (w *blockBuilder) item(item gql.BoundItem) error {
	if item.Called {
		return w.called(item)
	}
	if f := w.m.Field(item.Name); f != nil {
		w.field(f)
		return nil
	}
	if c := w.m.Compute(item.Name); c != nil {
		return w.compute(c)
	}
	if r := w.p.relationOf(w.m, item.Name); r != nil {
		return model.Errorf(model.UnknownField, "%s is a relation and needs a block. Write %s { _id }", place(w.m, item.Name), item.Name)
	}
	if head, rest, ok := split(item.Name); ok {
		return w.path(item.Name, head, rest)
	}
	return w.noField(item.Name)
}

// noField refuses an unknown name in a selection.
func (w *blockBuilder) noField(name string) error {
	if w.p.Lenient {
		return nil
	}
	names := append(w.p.fieldNames(w.m, nil), w.p.computeNames(w.m, nil)...)
	names = append(names, w.p.relationNames(w.m, nil)...)
	return model.Errorf(model.UnknownField, "%s has no field %s%s", w.m.Name, clip(name), hint(name, names))
}

// field shows a stored field, whole. An unreadable one is left out without a word (section 13.4).
func (w *blockBuilder) field(f *model.Field) {
	if !w.p.Access.ReadField(w.m, f) {
		return
	}
	w.column(f)
	if w.b.Shape.ID && f == w.m.ID() {
		return // it is shown already
	}
	subs := w.readableSubs(f)
	if !w.show(ShapeItem{Name: f.Name, Field: f, Subs: subs}) {
		w.b.Shape.Items[w.items[f.Name]].Subs = subs // meta.level and meta: the whole
	}
}

// readableSubs are the sub-fields to show of a whole object: nil for all of it, which is what is stored. Where the caller
// may not read a sub-field it is those that he may.
func (w *blockBuilder) readableSubs(f *model.Field) []*model.Field {
	subs := make([]*model.Field, 0, len(f.Fields))
	for _, s := range f.Fields {
		if w.p.readsSub(w.m, s) {
			subs = append(subs, s)
		}
	}
	if len(subs) == len(f.Fields) {
		return nil
	}
	return subs
}

// path shows a dotted name: a sub-field of an object.
func (w *blockBuilder) path(name, head, rest string) error {
	if f := w.m.Field(head); f != nil && f.Type == model.Object {
		return w.sub(f, rest)
	}
	if r := w.p.relationOf(w.m, head); r != nil && !w.p.Lenient {
		return model.Errorf(model.UnknownField, "%s is a relation and needs a block. Write %s { %s }", place(w.m, head), head, clip(rest))
	}
	return w.noField(name)
}

// sub shows one sub-field of an object field.
func (w *blockBuilder) sub(f *model.Field, name string) error {
	if !w.p.Access.ReadField(w.m, f) {
		return nil
	}
	s := f.Sub(name)
	switch {
	case s != nil && !w.p.readsSub(w.m, s):
		return nil
	case s == nil && len(f.Fields) == 0 && !strings.Contains(name, "."):
		s = &model.Field{Name: name, Type: model.Any} // nothing is declared of this object: whatever is stored
	case s == nil && w.p.Lenient:
		return nil
	case s == nil:
		return model.Errorf(model.UnknownField, "%s has no sub-field %s%s", place(w.m, f.Name), clip(name), hint(name, w.subNames(f)))
	}
	w.column(f)
	if w.show(ShapeItem{Name: f.Name, Field: f, Subs: []*model.Field{s}}) {
		return nil
	}
	shown := &w.b.Shape.Items[w.items[f.Name]]
	if shown.Subs != nil && !hasNamed(shown.Subs, s.Name) {
		shown.Subs = append(shown.Subs, s)
	}
	return nil
}

// hasNamed tells whether a field of this name is among fields.
func hasNamed(fields []*model.Field, name string) bool {
	for _, f := range fields {
		if f.Name == name {
			return true
		}
	}
	return false
}

// subNames are the sub-fields of f that the caller may read.
func (w *blockBuilder) subNames(f *model.Field) []string {
	var names []string
	for _, s := range f.Fields {
		if w.p.readsSub(w.m, s) {
			names = append(names, s.Name)
		}
	}
	return names
}

// called adds an entry with arguments or a block: a relation or an object field.
func (w *blockBuilder) called(item gql.BoundItem) error {
	if r := w.p.relationOf(w.m, item.Name); r != nil {
		return w.kid(r, item)
	}
	f := w.m.Field(item.Name)
	if f == nil || f.Type != model.Object || !w.p.Access.ReadField(w.m, f) {
		return w.noRelation(item.Name, f)
	}
	if !sameValues(item.Values, gql.Values{}) {
		return model.Errorf(model.UnknownRelation, "%s is an object field and takes no arguments. Write %s { ... } with the names of its sub-fields", place(w.m, item.Name), item.Name)
	}
	if len(item.Items) == 0 {
		return model.Errorf(model.UnknownField, "%s needs the names of sub-fields in its block, or no block at all for the whole%s", place(w.m, item.Name), hint("", w.subNames(f)))
	}
	for _, s := range item.Items {
		if s.Called {
			return model.Errorf(model.UnknownRelation, "%s is inside an object field, where blocks end; ask for %s as a whole", clip(s.Name), place(w.m, item.Name))
		}
		if err := w.sub(f, s.Name); err != nil {
			return err
		}
	}
	return nil
}

// noRelation refuses a name with a block that is no relation. An unreadable object field with a block is left out, as
// without one.
func (w *blockBuilder) noRelation(name string, f *model.Field) error {
	if f != nil && !w.p.Access.ReadField(w.m, f) {
		if f.Type == model.Object {
			return nil
		}
		f = nil
	}
	if f != nil {
		return model.Errorf(model.UnknownRelation, "%s is a field of type %s and has no block. Write it alone: %s", place(w.m, name), f.Type, name)
	}
	return model.Errorf(model.UnknownRelation, "%s has no relation %s%s", w.m.Name, clip(name), hint(name, w.p.relationNames(w.m, nil)))
}

// kid adds a relation block.
func (w *blockBuilder) kid(r *model.Relation, item gql.BoundItem) error {
	l, err := w.p.follow(w.m, r)
	if err != nil {
		return err
	}
	windows := w.windows
	if !item.Values.Skip.IsAbsent() || !item.Values.Limit.IsAbsent() {
		windows++
	}
	if err := w.p.deep(w.depth+1, windows); err != nil {
		return err
	}
	n := w.p.builder(l.target, w.depth+1, windows)
	for _, f := range l.foreign {
		n.column(f)
	}
	if err := n.build(item.Values, item.Items, useQuery); err != nil {
		return err
	}
	if err := w.p.kidWindow(n.b, l, item.Values); err != nil {
		return err
	}
	index := w.addKid(l, n.b, false)
	w.kids[r.Name], w.links[r.Name] = w.b.Kids[index], l
	w.show(ShapeItem{Name: r.Name, Kid: &index})
	return nil
}

// addKid adds a kid and the columns that it joins on.
func (w *blockBuilder) addKid(l *link, b *Block, hidden bool) int {
	for _, f := range l.local {
		w.column(f)
	}
	w.b.Kids = append(w.b.Kids, &Kid{Relation: l.relation, Local: l.local, Foreign: l.foreign, Block: b, Hidden: hidden})
	return len(w.b.Kids) - 1
}

// deep judges the depth of relation blocks, and of those with windows, in one chain.
func (p *Planner) deep(depth, windows int) error {
	switch {
	case depth > p.Profile.Depth && p.Profile.Sandbox:
		return p.refuse("relation depth", "relations may be nested %d deep here; ask for the deeper ones in a query of their own", p.Profile.Depth)
	case depth > p.Profile.Depth:
		return model.Errorf(model.Depth, "relations may be nested %d deep; ask for the deeper ones in a query of their own", p.Profile.Depth)
	case windows > p.Profile.Windows && p.Profile.Sandbox:
		return p.refuse("paged relation levels", "%d relation levels of one chain may have $skip or $limit; leave them out further down", p.Profile.Windows)
	case windows > p.Profile.Windows:
		return model.Errorf(model.Depth, "%d relation levels of one chain may have $skip or $limit; leave them out further down", p.Profile.Windows)
	}
	return nil
}
