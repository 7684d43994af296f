package model

import (
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// aggOps are the aggregates.
var aggOps = []string{string(Count), string(Sum), string(Avg), string(Min), string(Max)}

// computes reads the computed columns.
func (d *definition) computes() error {
	v := d.v.Get("computes")
	if v.IsAbsent() {
		return nil
	}
	if v.Kind() != canonjson.KindObject {
		return d.bad("computes must be an object of computed columns")
	}
	for _, m := range v.Members() {
		c, err := d.compute(m.Name, m.Value)
		if err != nil {
			return err
		}
		d.m.Computes = append(d.m.Computes, c)
	}
	return nil
}

// truthy tells whether a flag of a computed column is set: in JSON it is true, and anything else that is no nothing.
func truthy(v canonjson.Value) bool {
	switch v.Kind() {
	case canonjson.KindAbsent, canonjson.KindNull:
		return false
	case canonjson.KindBool:
		return v.Bool()
	case canonjson.KindNumber:
		return v.Float() != 0
	case canonjson.KindString:
		return v.Str() != ""
	}
	return true
}

// compute reads one computed column.
func (d *definition) compute(name string, v canonjson.Value) (*Compute, error) {
	where := "computed column " + name + ": "
	if !legalName(name) {
		return nil, d.bad("the name %s of a computed column cannot stand in a query: use letters, digits and _, not a digit first", Quote(name))
	}
	if v.Kind() != canonjson.KindObject {
		return nil, d.bad("%sit must be an object such as {\"type\": \"int\", \"agg\": {\"$count\": \"lessons\"}}", where)
	}
	if err := d.known(where, v, &computePart); err != nil {
		return nil, err
	}
	c := &Compute{Name: name, Type: Any, FnRef: name, Text: v, Fn: truthy(v.Get("fn")), AsyncFn: truthy(v.Get("asyncFn"))}
	var err error
	if t := v.Get("type"); !t.IsAbsent() {
		if c.Type, err = d.typeOf(where, t); err != nil {
			return nil, err
		}
	}
	if err := d.all(where, v, optName("fnRef", &c.FnRef), optText("description", &c.Description), optRoles("read", &c.Read)); err != nil {
		return nil, err
	}
	if c.Depends, err = d.depends(where, v.Get("depends"), c.AsyncFn); err != nil {
		return nil, err
	}
	agg := v.Get("agg")
	switch {
	case c.Fn && c.AsyncFn, (c.Fn || c.AsyncFn) && !agg.IsAbsent():
		return nil, d.bad("%sfn, asyncFn and agg exclude each other", where)
	case c.Fn || c.AsyncFn:
		return c, nil
	case agg.IsAbsent():
		return nil, d.bad("%sit needs agg, fn or asyncFn", where)
	}
	c.Agg, err = d.agg(where, agg)
	return c, err
}

// agg reads an aggregate over a relation.
func (d *definition) agg(where string, v canonjson.Value) (*Agg, error) {
	if v.Kind() != canonjson.KindObject || v.Len() != 1 {
		return nil, d.bad("%sagg must hold one aggregate, such as {\"$count\": \"lessons\"} or {\"$sum\": \"lessons.minutes\"}", where)
	}
	m := v.Members()[0]
	a := &Agg{Op: AggOp(m.Name)}
	if !contains(aggOps, m.Name) {
		return nil, d.bad("%sunknown aggregate %s; they are %s", where, Quote(m.Name), strings.Join(aggOps, ", "))
	}
	if m.Value.Kind() != canonjson.KindString {
		return nil, d.bad("%s%s takes a text such as \"lessons.minutes\"", where, m.Name)
	}
	parts := strings.Split(m.Value.Str(), ".")
	a.Relation = parts[0]
	switch {
	case a.Op == Count && len(parts) != 1:
		return nil, d.bad("%s$count takes the name of a relation alone", where)
	case a.Op != Count && len(parts) != 2:
		return nil, d.bad("%s%s takes relation.field, one level deep", where, m.Name)
	case a.Op != Count && !legalName(parts[1]):
		return nil, d.bad("%s%s: %s is no field of another model", where, m.Name, Quote(parts[1]))
	case a.Op != Count:
		a.Field = parts[1]
	}
	if d.relationNamed(a.Relation) == nil {
		return nil, d.bad("%s%s", where, d.noRelation(a.Relation))
	}
	return a, nil
}

// noRelation says that there is no such relation, and which there are.
func (d *definition) noRelation(name string) string {
	var names []string
	for _, r := range d.m.Relations {
		names = append(names, r.Name)
	}
	hint := "the model has none"
	if near := Nearest(name, names); len(near) > 0 {
		hint = "the nearest is " + near[0]
	} else if len(names) > 0 {
		hint = "the relations are " + strings.Join(names, ", ")
	}
	return "there is no relation " + Quote(name) + "; " + hint
}

// depends reads what a function needs: "field", and for functions over all rows "relation" and "relation{field,...}".
func (d *definition) depends(where string, v canonjson.Value, rows bool) ([]Depend, error) {
	if !v.IsAbsent() && v.Kind() != canonjson.KindArray {
		return nil, d.bad("%sdepends must be a list of names", where)
	}
	var out []Depend
	for _, item := range v.Items() {
		dep, block, ok := readDepend(item)
		relation := d.relationNamed(dep.Relation)
		switch {
		case !ok:
			return nil, d.bad("%sdepends takes texts such as \"price\" or \"lessons{minutes}\", not %s", where, clipDigits(string(item.AppendJSON(nil))))
		case block && relation == nil:
			return nil, d.bad("%sdepends: %s", where, d.noRelation(dep.Relation))
		case relation != nil && !rows:
			return nil, d.bad("%sdepends: only asyncFn may need a relation such as %s", where, Quote(dep.Relation))
		case relation == nil && d.fieldNamed(dep.Relation) == nil:
			return nil, d.bad("%sdepends: %s", where, d.noField(dep.Relation))
		case relation == nil:
			dep = Depend{Field: dep.Relation}
		}
		out = append(out, dep)
	}
	return out, nil
}

// readDepend splits one text of depends. The name stands in Relation, also where it is that of a field; block tells whether
// fields in braces follow.
func readDepend(v canonjson.Value) (dep Depend, block, ok bool) {
	name, rest, block := strings.Cut(strings.ReplaceAll(v.Str(), " ", ""), "{")
	rest, closed := strings.CutSuffix(rest, "}")
	if !legalName(name) || block != closed {
		return dep, block, false
	}
	dep.Relation = name
	for field := range strings.SplitSeq(rest, ",") {
		if field == "" {
			continue
		}
		if !legalName(field) {
			return dep, block, false
		}
		dep.Fields = append(dep.Fields, field)
	}
	return dep, block, true
}

// relationNamed finds a relation that was read.
func (d *definition) relationNamed(name string) *Relation {
	for _, r := range d.m.Relations {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// fieldNamed finds a field that was read or added.
func (d *definition) fieldNamed(name string) *Field {
	for _, f := range d.m.Fields {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// contains tells whether list holds s.
func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
