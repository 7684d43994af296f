package plan

import (
	"github.com/tabellion-mcp/tabellion/model"
)

// The functions of this file build conditions and fold constants away, which is right in three-valued logic too: what is
// unknown and false is false, what is unknown or true is true. Nil stands for true.

// all joins conditions by AND.
func all(conds ...Cond) Cond {
	var out And
	for _, c := range conds {
		switch c := c.(type) {
		case nil:
		case Const:
			if !c {
				return Const(false)
			}
		case And:
			out = append(out, c...)
		default:
			out = append(out, c)
		}
	}
	switch len(out) {
	case 0:
		return nil
	case 1:
		return out[0]
	}
	return out
}

// anyOf joins conditions by OR; of none it is false.
func anyOf(conds ...Cond) Cond {
	var out Or
	for _, c := range conds {
		switch c := c.(type) {
		case nil:
			return nil
		case Const:
			if c {
				return nil
			}
		case Or:
			out = append(out, c...)
		default:
			out = append(out, c)
		}
	}
	switch len(out) {
	case 0:
		return Const(false)
	case 1:
		return out[0]
	}
	return out
}

// negate turns a condition around.
func negate(c Cond) Cond {
	switch c := c.(type) {
	case nil:
		return Const(false)
	case Const:
		if c {
			return Const(false)
		}
		return nil
	}
	return Not{c}
}

// blank tells whether a condition constrains nothing (section 12.4): {}, {"$and":[{}]}, a list of nothing excluded, or
// that the key is there.
func blank(c Cond) bool { return c == nil || c == Const(true) }

// rowCond is the condition that the limits set on rows of m. A limit that names a field which m does not have, or a value
// that the field cannot hold, lets no row pass.
func rowCond(limits []model.RowLimit, m *model.Model) Cond {
	conds := make([]Cond, 0, len(limits))
	for _, l := range limits {
		alternatives := make([]Cond, 0, len(l.Any))
		for _, equals := range l.Any {
			alternatives = append(alternatives, equalAll(equals, m))
		}
		conds = append(conds, anyOf(alternatives...))
	}
	return all(conds...)
}

// equalAll is the condition that every pair of a limit's alternative holds.
func equalAll(equals []model.Equal, m *model.Model) Cond {
	conds := make([]Cond, 0, len(equals))
	for _, e := range equals {
		f := m.Field(e.Field)
		if f == nil || f.Type.JSON() {
			return Const(false)
		}
		c, err := equal(m, f, e.Value)
		if err != nil {
			return Const(false)
		}
		conds = append(conds, c)
	}
	return all(conds...)
}
