package model

import (
	"fmt"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Check compares the policy with the models that it is for, and names the first thing that does not exist: a grant on a
// misspelled model would hold nobody back. Models, fields and computed columns are meant; a grant on "*" needs each of its
// fields in one model at least.
func (p *Policy) Check(r *Registry) error {
	if p == nil {
		return nil
	}
	for i := range p.grants {
		g := &p.grants[i]
		models := r.List()
		if g.model != "*" {
			m := r.Get(g.model)
			if m == nil {
				return badPolicy("grants[%d]: there is no model %s%s", i, Quote(g.model), nearest(g.model, r.Names()))
			}
			models = []*Model{m}
		}
		if err := g.check(models); err != nil {
			return badPolicy("grants[%d]: %s", i, err)
		}
	}
	return nil
}

// nearest is a hint behind a name that does not exist.
func nearest(name string, names []string) string {
	if near := Nearest(name, names); len(near) > 0 {
		return "; the nearest is " + near[0]
	}
	return ""
}

// check compares the fields of a grant with models, of which one at least must have each.
func (g *grant) check(models []*Model) error {
	for _, name := range g.reads {
		if err := inOne(models, name, func(m *Model) error { return readable(m, name) }); err != nil {
			return fmt.Errorf("readFields: %w", err)
		}
	}
	for _, name := range g.writes {
		if err := inOne(models, name, func(m *Model) error { return holds(m, name, canonjson.Value{}) }); err != nil {
			return fmt.Errorf("writeFields: %w", err)
		}
	}
	for _, c := range g.condition {
		if err := inOne(models, c.Name, func(m *Model) error { return holds(m, c.Name, c.Value) }); err != nil {
			return fmt.Errorf("condition: %w", err)
		}
	}
	if !g.ownerOnly {
		return nil
	}
	if err := inOne(models, ownerField, func(m *Model) error { return holds(m, ownerField, canonjson.Value{}) }); err != nil {
		return fmt.Errorf("ownerOnly: %w", err)
	}
	return nil
}

// inOne is nil when a name is right in one of the models; else it says what is wrong, in the words of the only one.
func inOne(models []*Model, name string, right func(*Model) error) error {
	err := fmt.Errorf("no model has a field %s", Quote(name))
	for _, m := range models {
		wrong := right(m)
		if wrong == nil {
			return nil
		}
		if len(models) == 1 {
			err = wrong
		}
	}
	return err
}

// readable is nil when m has a field or a computed column of the name.
func readable(m *Model, name string) error {
	if m.Field(name) == nil && m.Compute(name) == nil {
		return missing(m, name)
	}
	return nil
}

// holds is nil when m stores a field of the name that can equal v, where v is given and not the caller's.
func holds(m *Model, name string, v canonjson.Value) error {
	f := m.Field(name)
	switch {
	case f == nil:
		return missing(m, name)
	case v.IsAbsent():
		return nil
	case f.Type.JSON():
		return fmt.Errorf("the field %s of %s is of type %s, which equals no value", name, m.Name, f.Type)
	case strings.HasPrefix(v.Str(), contextValue):
		return nil
	}
	if _, err := Coerce(f.Type, v); err != nil {
		return fmt.Errorf("the field %s of %s %w", name, m.Name, err)
	}
	return nil
}

// missing says that m has no such field.
func missing(m *Model, name string) error {
	var names []string
	for _, f := range m.Fields {
		names = append(names, f.Name)
	}
	for _, c := range m.Computes {
		names = append(names, c.Name)
	}
	return fmt.Errorf("%s has no field %s%s", m.Name, Quote(name), nearest(name, names))
}
