package model

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Options say how definitions are read.
type Options struct {
	// Lenient keeps unknown keys instead of refusing them. The default is strict.
	Lenient bool
	// Also are further keys that are kept and mean nothing.
	Also []string
	// Prefix is put before every model's name.
	Prefix string
}

// Registry holds models by name, in the order of registration. It is safe for concurrent use; the models it gives are
// immutable, and a later registration of a name makes a new one.
type Registry struct {
	opts Options

	mu     sync.RWMutex
	models []*Model
	byName map[string]*Model
}

// NewRegistry makes an empty registry.
func NewRegistry(opts Options) *Registry { return &Registry{opts: opts, byName: map[string]*Model{}} }

// archiveSuffix is what the name of an archive model ends in.
const archiveSuffix = "Deleted"

// Register reads a batch of definitions: all of them, or none and an *Error with the class BadSchema, NameConflict or
// LocationConflict that names the model, the key, and the nearest valid name.
func (r *Registry) Register(definitions ...canonjson.Value) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	given := slices.DeleteFunc(slices.Clone(r.models), func(m *Model) bool { return m.ArchiveOf != nil })
	taken := map[string]bool{}
	for _, v := range definitions {
		m, err := r.opts.read(v)
		if err != nil {
			return err
		}
		if taken[m.Name] {
			return Errorf(NameConflict, "model %s is defined twice; rename one, or remove it", m.Name)
		}
		taken[m.Name] = true
		if i := slices.IndexFunc(given, func(o *Model) bool { return o.Name == m.Name }); i >= 0 {
			m.Version = given[i].Version + 1
			given[i] = m
		} else {
			given = append(given, m)
		}
	}
	models, err := withArchives(given)
	if err != nil {
		return err
	}
	if err := places(models); err != nil {
		return err
	}
	r.models, r.byName = models, map[string]*Model{}
	for _, m := range models {
		r.byName[m.Name] = m
	}
	return nil
}

// withArchives puts the archive of each model behind it. One that is there already stays the same.
func withArchives(given []*Model) ([]*Model, error) {
	names := map[string]bool{}
	for _, m := range given {
		names[m.Name] = true
	}
	var out []*Model
	for _, m := range given {
		out = append(out, m)
		if !archived(m) {
			continue
		}
		if m.Archive == nil {
			m.Archive = newArchive(m)
		}
		if names[m.Archive.Name] {
			return nil, Errorf(NameConflict, "model %s is where removed rows of %s would go; rename it, or give %s archive: false", m.Archive.Name, m.Name, m.Name)
		}
		out = append(out, m.Archive)
	}
	return out, nil
}

// archived tells whether a model has an archive.
func archived(m *Model) bool {
	no := m.Text.Get("archive")
	return !strings.HasSuffix(m.Name, archiveSuffix) && !m.Text.Get("_isArchive").Bool() && !m.ReadOnly() &&
		(no.IsAbsent() || no.Bool())
}

// newArchive makes the model of removed rows (section 2.7). It has the model's read list, and only internal contexts write
// it.
func newArchive(m *Model) *Model {
	a := &Model{
		Name: m.Name + archiveSuffix, Collection: m.Collection + "_deleted", IDField: m.IDField, Times: m.Times,
		Indexes: m.Indexes, Read: m.Read, Write: []string{}, Hidden: m.Hidden, Source: m.Source, Namespace: m.Namespace,
		Key: m.Key, SourceText: m.SourceText, ArchiveOf: m, Version: m.Version, byName: map[string]any{},
	}
	if m.Table != "" {
		a.Table = m.Table + "_deleted"
	}
	if a.Times == NoTimes {
		a.Times = Millis
	}
	for _, f := range m.Fields {
		if f == m.ID() || m.ID().Column == "" || f.Column != m.ID().Column { // what shows the key once more is not kept twice
			a.Fields = append(a.Fields, f)
		}
	}
	for _, name := range []string{"createdAt", "updatedAt", "deletedAt"} {
		if m.Field(name) == nil {
			a.Fields = append(a.Fields, &Field{Name: name, Column: name, Type: Number, Added: true})
		}
	}
	for _, f := range a.Fields {
		a.byName[f.Name] = f
	}
	return a
}

// places refuses two models on one table.
func places(models []*Model) error {
	type place struct{ source, namespace, table string }
	seen := map[place]*Model{}
	for _, m := range models {
		p := place{m.Source, m.Namespace, m.Collection}
		if m.Table != "" {
			p.table = m.Table
		}
		if other := seen[p]; other != nil {
			return Errorf(LocationConflict, "models %s and %s are both on the table %s; give one another collection", other.Name, m.Name, Quote(p.table))
		}
		seen[p] = m
	}
	return nil
}

// Get finds a model by its exact name, nil when there is none.
func (r *Registry) Get(name string) *Model {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byName[name]
}

// List gives all models in the order of registration, each followed by its archive model.
func (r *Registry) List() []*Model {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.models)
}

// Names are the names of List.
func (r *Registry) Names() []string {
	var names []string
	for _, m := range r.List() {
		names = append(names, m.Name)
	}
	return names
}

// String tells how many models there are, for a log.
func (r *Registry) String() string { return fmt.Sprintf("%d models", len(r.List())) }
