package sqlexec

import (
	"fmt"
	"strings"
	"sync"

	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
)

// Tables are the tables of a database as they were found once, and the layouts of models over them. It is safe for
// concurrent use.
type Tables struct {
	tables []*sqlgen.Table

	mu      sync.RWMutex
	layouts map[*model.Model]*laid
}

// laid is a layout with what was found wrong.
type laid struct {
	layout   *sqlgen.Layout
	problems []string
}

// NewTables takes over what was found. A table without a schema in its name is looked for in the order given.
func NewTables(tables []*sqlgen.Table) *Tables {
	return &Tables{tables: tables, layouts: map[*model.Model]*laid{}}
}

// Has tells whether there is a table of this name.
func (t *Tables) Has(name string) bool { return t.find("", name) != nil }

// Layout is the layout of a model.
func (t *Tables) Layout(m *model.Model) (*sqlgen.Layout, error) {
	l := t.lay(m)
	if l.layout == nil {
		return nil, fmt.Errorf("%s", l.problems[0])
	}
	return l.layout, nil
}

// Problems are the differences that make plans of a model fail.
func (t *Tables) Problems(m *model.Model) []string { return t.lay(m).problems }

// lay finds the table of a model, once.
func (t *Tables) lay(m *model.Model) *laid {
	t.mu.RLock()
	l := t.layouts[m]
	t.mu.RUnlock()
	if l != nil {
		return l
	}
	l = &laid{}
	if table := t.of(m); table != nil {
		l.layout, l.problems = sqlgen.NewLayout(m, table)
	} else {
		l.problems = []string{fmt.Sprintf("model %s: there is no table %s", m.Name, TableName(m))}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.layouts[m] = l
	return l
}

// TableName is the name of a model's table as the definition has it.
func TableName(m *model.Model) string {
	if m.Table != "" {
		return m.Table
	}
	return m.Collection
}

// of finds the table of a model: by its whole name, then as schema.table.
func (t *Tables) of(m *model.Model) *sqlgen.Table {
	name := TableName(m)
	if found := t.find("", name); found != nil {
		return found
	}
	if schema, rest, ok := strings.Cut(name, "."); ok {
		return t.find(schema, rest)
	}
	return nil
}

// find looks for a table, exactly or, where nothing else fits, in another case.
func (t *Tables) find(schema, name string) *sqlgen.Table {
	for _, same := range []func(a, b string) bool{func(a, b string) bool { return a == b }, strings.EqualFold} {
		for _, x := range t.tables {
			if same(x.Name, name) && (schema == "" || same(x.Schema, schema) || x.Schema == "" && schema == "main") {
				return x
			}
		}
	}
	return nil
}
