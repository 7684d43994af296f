package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Value is the plan as JSON for a person: one object a block, conditions and sort keys as text.
func (q *Query) Value() canonjson.Value {
	return canonjson.Object(
		canonjson.M("read", q.Root.value()),
		canonjson.M("rows", canonjson.Bool(q.Rows)),
		canonjson.M("total", canonjson.Bool(q.Total)),
		canonjson.M("maxBytes", positive(q.MaxBytes)),
		canonjson.M("maxRows", positive(q.MaxRows)),
	)
}

// positive is a number, left out when it says nothing.
func positive(n int64) canonjson.Value {
	if n <= 0 {
		return canonjson.Value{}
	}
	return canonjson.Int(n)
}

// value is a block as JSON.
func (b *Block) value() canonjson.Value {
	members := []canonjson.Member{
		canonjson.M("model", canonjson.String(b.Model.Name)),
		canonjson.M("columns", texts(fieldNames(b.Columns))),
	}
	if b.Group != nil {
		members = append(members, b.Group.members()...)
	}
	var aggs, order []string
	for _, a := range b.Aggs {
		aggs = append(aggs, a.String())
	}
	for _, o := range b.Order {
		order = append(order, o.String())
	}
	members = append(members,
		canonjson.M("aggregates", texts(aggs)),
		canonjson.M("where", condValue(b.Where)),
		canonjson.M("order", texts(order)),
		canonjson.M("skip", positive(b.Skip)),
	)
	if b.Limit >= 0 {
		members = append(members, canonjson.M("limit", canonjson.Int(b.Limit)))
	}
	if b.Peek {
		members = append(members, canonjson.M("peek", canonjson.Bool(true)))
	}
	members = append(members, canonjson.M("show", texts(b.Shape.names())), canonjson.M("relations", kidValues(b.Kids)))
	return canonjson.Object(members...)
}

// kidValues are relation blocks as JSON, Absent for none.
func kidValues(kids []*Kid) canonjson.Value {
	if len(kids) == 0 {
		return canonjson.Value{}
	}
	out := make([]canonjson.Value, len(kids))
	for i, k := range kids {
		members := []canonjson.Member{
			canonjson.M("relation", canonjson.String(k.Relation.Name)),
			canonjson.M("join", canonjson.String(joinText(k.Local, k.Foreign))),
		}
		if k.Hidden {
			members = append(members, canonjson.M("hidden", canonjson.Bool(true)))
		}
		out[i] = canonjson.Object(append(members, canonjson.M("read", k.Block.value()))...)
	}
	return canonjson.Array(out...)
}

// members are the parts of a group.
func (g *Group) members() []canonjson.Member {
	var by, aggs []string
	for _, k := range g.By {
		by = append(by, k.Operand.String())
	}
	for _, a := range g.Aggs {
		aggs = append(aggs, a.String())
	}
	return []canonjson.Member{canonjson.M("by", texts(by)), canonjson.M("agg", texts(aggs)), canonjson.M("having", condValue(g.Having))}
}

// texts is an array of strings, Absent for none.
func texts(items []string) canonjson.Value {
	if len(items) == 0 {
		return canonjson.Value{}
	}
	out := make([]canonjson.Value, len(items))
	for i, s := range items {
		out[i] = canonjson.String(s)
	}
	return canonjson.Array(out...)
}

// condValue is a condition as text, Absent for none.
func condValue(c Cond) canonjson.Value {
	if c == nil {
		return canonjson.Value{}
	}
	return canonjson.String(CondText(c))
}

// fieldNames are names of fields.
func fieldNames(fields []*model.Field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// joinText says which fields join.
func joinText(local, foreign []*model.Field) string {
	parts := make([]string, len(local))
	for i := range local {
		parts[i] = foreign[i].Name + " = parent." + local[i].Name
	}
	return strings.Join(parts, " and ")
}

// names are the members of a shown row; of an object with its sub-fields.
func (s Shape) names() []string {
	var names []string
	if s.ID {
		names = append(names, "_id")
	}
	for _, item := range s.Items {
		name := item.Name
		if item.Subs != nil {
			name += "{" + strings.Join(fieldNames(item.Subs), " ") + "}"
		}
		names = append(names, name)
	}
	return names
}

// String names an aggregate column.
func (a *Agg) String() string {
	s := a.Name + " = " + GroupAgg{Op: a.Op, Field: a.Field}.call() + " of " + a.Target.Name + " with " + joinText(a.Local, a.Foreign)
	if a.Where != nil {
		s += " where " + CondText(a.Where)
	}
	return s
}

// call is an aggregate without its alias.
func (a GroupAgg) call() string {
	name := strings.TrimPrefix(string(a.Op), "$")
	if a.Field == nil {
		return name + "(*)"
	}
	return name + "(" + a.Field.Name + ")"
}

// String names an aggregate of a group.
func (a GroupAgg) String() string { return a.Alias + " = " + a.call() }

// String names what a condition or sort key looks at.
func (o Operand) String() string {
	switch {
	case o.Alias != "":
		return o.Alias
	case o.Agg != nil:
		return o.Agg.Name
	case o.Via != nil:
		s := o.Via.Relation.Name + "." + o.Field.Name
		if o.Via.Where != nil {
			s += " where " + CondText(o.Via.Where)
		}
		return s
	}
	return o.Field.Name
}

// String is a sort key.
func (o Order) String() string {
	if o.Desc {
		return o.By.String() + " desc"
	}
	return o.By.String()
}

// fewValues is how many values of a list a text shows.
const fewValues = 8

// CondText is a condition as text for a person; nil is "true".
func CondText(c Cond) string {
	switch c := c.(type) {
	case nil:
		return "true"
	case And:
		return joinConds([]Cond(c), " and ", "true")
	case Or:
		return joinConds([]Cond(c), " or ", "false")
	case Not:
		return "not " + CondText(c.Cond)
	case Const:
		return strconv.FormatBool(bool(c))
	case Compare:
		return fmt.Sprintf("%s %s %s", c.By, c.Op, c.Value.AppendJSON(nil))
	case In:
		return c.By.String() + " in " + listText(c.Values)
	case IsNull:
		return c.By.String() + " is null"
	case IsStored:
		return c.By.String() + " is stored"
	case HasValue:
		return c.By.String() + " has a value"
	case Match:
		return fmt.Sprintf("%s matches %s", c.By, strconv.Quote(c.Pattern.Go))
	case Exists:
		return c.String()
	}
	return "?"
}

// joinConds joins conditions in parentheses.
func joinConds(conds []Cond, word, empty string) string {
	if len(conds) == 0 {
		return empty
	}
	parts := make([]string, len(conds))
	for i, c := range conds {
		parts[i] = CondText(c)
	}
	return "(" + strings.Join(parts, word) + ")"
}

// listText shows the first values of a list.
func listText(values []canonjson.Value) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, v := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == fewValues {
			fmt.Fprintf(&b, "and %d more", len(values)-fewValues)
			break
		}
		b.Write(v.AppendJSON(nil))
	}
	b.WriteByte(']')
	return b.String()
}

// String is a relation predicate as text.
func (e Exists) String() string {
	s := "rows of " + e.Target.Name + " with " + joinText(e.Local, e.Foreign)
	if e.Where != nil {
		s += " where " + CondText(e.Where)
	}
	if e.Having == nil {
		return "exist(" + s + ")"
	}
	var aggs []string
	for _, a := range e.Aggs {
		aggs = append(aggs, a.String())
	}
	return "having(" + s + ": " + strings.Join(aggs, ", ") + ": " + CondText(e.Having) + ")"
}
