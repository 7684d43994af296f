package plan

import (
	"slices"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Mutation plans mutation(model, data) for one or several root documents (section 12.8).
func (p *Planner) Mutation(name string, docs []canonjson.Value, w Writing) (*Write, error) {
	wr, err := p.writer(name, model.ActInsert, len(docs) > 1, w)
	if err != nil {
		return nil, err
	}
	t := &tree{p: p, w: w}
	out := &Write{Kind: Mutate, Model: wr.m}
	for _, doc := range docs {
		n, err := t.node(wr, doc, end{}, 0)
		if err != nil {
			return nil, err
		}
		out.Nodes = append(out.Nodes, n)
	}
	wr.report()
	out.Lacks = t.lacks
	return out, nil
}

// tree plans the nodes of one mutation.
type tree struct {
	p     *Planner
	w     Writing
	rows  int
	lacks []string
}

// end is where a child is tied to its parent; zero at the root.
type end struct {
	field *model.Field // of the child
	one   bool         // the child is found by its parent alone
}

// node plans a document and the children below it.
func (t *tree) node(wr *writer, doc canonjson.Value, link end, depth int) (*Node, error) {
	if t.rows++; t.rows > maxRows {
		return nil, tooManyRows(t.rows)
	}
	if doc.Kind() != canonjson.KindObject {
		return nil, model.Errorf(model.BadBody, "a %s in a mutation is an object of fields and relations, not %s. Write {%s}", wr.m.Name, short(doc), wr.example())
	}
	own, related := wr.split(doc)
	d, err := wr.document(own, link.field)
	if err != nil {
		return nil, err
	}
	n := &Node{Model: wr.m, Row: d.row, Set: wr.touched(without(wr.setOf(d, nil), link.field)), Scope: wr.scope(), Check: all(wr.check(), have(d.lacks))}
	if !link.one {
		if n.Keys, err = wr.keys(own, link.field); err != nil {
			return nil, err
		}
		if len(n.Keys) == 0 && len(d.lacks) > 0 {
			return nil, wr.lacking(d.lacks)
		}
	}
	t.lacks = append(t.lacks, wr.places(d.lacks)...)
	for _, m := range related {
		kid, err := t.relation(wr, m, d, depth)
		if err != nil {
			return nil, err
		}
		if kid != nil {
			n.Kids = append(n.Kids, *kid)
		}
	}
	return n, nil
}

// without leaves out the change of one field.
func without(set []Assign, f *model.Field) []Assign {
	return slices.DeleteFunc(set, func(a Assign) bool { return a.Field == f })
}

// split parts a document into its own fields and the data of relations.
func (w *writer) split(doc canonjson.Value) (own canonjson.Value, related []canonjson.Member) {
	var fields []canonjson.Member
	for _, m := range doc.Members() {
		if w.p.relationOf(w.m, m.Name) != nil {
			related = append(related, m)
		} else {
			fields = append(fields, m)
		}
	}
	return canonjson.Object(fields...), related
}

// keys are the ways to find the row that a document may mean: its _id, and each unique index whose fields are all given.
// An index with a field that the caller may not read finds nothing: the answer would tell him which value is taken by
// whom. The field that ties a child to its parent is given by the parent.
func (w *writer) keys(own canonjson.Value, link *model.Field) ([][]FieldValue, error) {
	var keys [][]FieldValue
	if id := own.Get("_id"); w.m.Composite() && !falsy(id) {
		values, ok := splitKey(w.m, id)
		if ok {
			key := make([]FieldValue, len(values))
			for i, f := range w.m.Key {
				key[i] = FieldValue{f, values[i]}
			}
			keys = append(keys, key)
		}
	}
	for _, fields := range uniqueSets(w.m) {
		key := make([]FieldValue, 0, len(fields))
		for _, f := range fields {
			if f == link {
				key = append(key, FieldValue{Field: f})
				continue
			}
			v := own.Get(f.Name)
			if falsy(v) || f != w.m.ID() && !w.p.Access.ReadField(w.m, f) {
				break
			}
			fitted, err := model.Fit(f, v)
			if err != nil {
				return nil, wrongValue(w.m, f, err)
			}
			key = append(key, FieldValue{f, fitted})
		}
		if len(key) == len(fields) && (len(fields) > 1 || fields[0] != link) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// relation plans the children of one relation; nil when there are none, or when the caller may not read the relation.
func (t *tree) relation(wr *writer, m canonjson.Member, parent *document, depth int) (*NodeKid, error) {
	r := wr.m.Relation(m.Name)
	if !t.p.Access.ReadRelation(wr.m, r) {
		if t.w.Skipped != nil {
			t.w.Skipped(wr.m.Name, r.Name)
		}
		return nil, nil
	}
	if depth >= t.p.Profile.Depth {
		return nil, model.Errorf(model.Depth, "a mutation may go %d relations deep; write the rows below %s on their own", t.p.Profile.Depth, place(wr.m, r.Name))
	}
	target, err := t.p.writerOf(t.p.Registry.Get(r.Model), model.ActInsert, !r.One, t.w)
	if err != nil {
		return nil, err
	}
	local, foreign, err := t.tie(wr, r, target, parent)
	if err != nil {
		return nil, err
	}
	docs, err := children(wr.m, r, m.Value)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	kid := &NodeKid{Local: local, Foreign: foreign, One: r.One}
	for _, doc := range docs {
		n, err := t.node(target, doc, end{foreign, r.One}, depth+1)
		if err != nil {
			return nil, err
		}
		kid.Nodes = append(kid.Nodes, n)
	}
	target.report()
	return kid, nil
}

// children are the documents of one relation.
func children(m *model.Model, r *model.Relation, v canonjson.Value) ([]canonjson.Value, error) {
	switch {
	case v.Kind() == canonjson.KindNull:
		return nil, nil
	case r.One && v.Kind() == canonjson.KindObject:
		return []canonjson.Value{v}, nil
	case !r.One && v.Kind() == canonjson.KindArray:
		return v.Items(), nil
	case r.One:
		return nil, model.Errorf(model.BadBody, "%s is one row: send an object, not %s", place(m, r.Name), short(v))
	}
	return nil, model.Errorf(model.BadBody, "%s are rows: send an array of objects, not %s", place(m, r.Name), short(v))
}

// tie finds the fields that tie children to their parent, and judges them.
func (t *tree) tie(wr *writer, r *model.Relation, target *writer, parent *document) (local, foreign *model.Field, err error) {
	if len(r.Local) != 1 || len(r.Foreign) != 1 {
		return nil, nil, model.Errorf(model.Unsupported, "%s joins by several fields, which a mutation cannot set; write the rows of %s on their own", place(wr.m, r.Name), r.Model)
	}
	if t.p.SameSource != nil && !t.p.SameSource(wr.m, target.m) {
		return nil, nil, model.Errorf(model.Unsupported, "%s leads to a model in another database, and a mutation is one transaction; write the rows of %s on their own", place(wr.m, r.Name), r.Model)
	}
	l, err := joinFields(wr.m, r, r.Local, wr.m)
	if err != nil {
		return nil, nil, err
	}
	f, err := joinFields(wr.m, r, r.Foreign, target.m)
	if err != nil {
		return nil, nil, err
	}
	local, foreign = l[0], f[0]
	switch {
	case local != wr.m.ID() && none(parent.given[local]):
		return nil, nil, model.Errorf(model.Unsupported, "%s joins by %s, which the data does not hold; write the %s first and send its key as %s", place(wr.m, r.Name), local.Name, r.Model, local.Name)
	case foreign != target.m.ID() && !target.writes(foreign):
		return nil, nil, model.Errorf(model.Denied, "you may not write the field of %s that ties it to %s", target.m.Name, wr.m.Name)
	case r.One && !target.unique([]FieldValue{{Field: foreign}}):
		return nil, nil, model.Errorf(model.Constraint, "%s is one row, found by a field of %s that several rows may share; a mutation needs a unique index on it. Write the %s on its own", place(wr.m, r.Name), target.m.Name, target.m.Name)
	}
	return local, foreign, nil
}
