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
	b := &batch{models: slices.Clone(r.models), before: r.byName, taken: map[string]bool{}}
	var read []*Model
	for _, v := range definitions {
		m, err := r.opts.read(v)
		if err != nil {
			return err
		}
		if b.taken[m.Name] {
			return Errorf(NameConflict, "model %s is defined twice; rename one, or remove it", m.Name)
		}
		b.taken[m.Name] = true
		read = append(read, m)
	}
	for _, m := range read {
		if err := b.add(m, r.opts.Prefix); err != nil {
			return err
		}
	}
	if err := places(b.models); err != nil {
		return err
	}
	r.models, r.byName = b.models, map[string]*Model{}
	for _, m := range b.models {
		r.byName[m.Name] = m
	}
	return nil
}

// batch is a registration under way.
type batch struct {
	models []*Model
	before map[string]*Model
	taken  map[string]bool // names that the batch defines itself
}

// add puts a model and its archive in, in place of those of the same names.
func (b *batch) add(m *Model, prefix string) error {
	if old := b.before[m.Name]; old != nil {
		m.Version = old.Version + 1
	}
	b.put(m)
	if !archived(m) {
		return nil
	}
	archive := newArchive(m)
	if b.taken[archive.Name] {
		return Errorf(NameConflict, "model %s is where removed rows of %s would go; rename it, or give %s archive: false", archive.Name, m.Name, m.Name)
	}
	if old := b.before[archive.Name]; old != nil && old.ArchiveOf == nil {
		return Errorf(NameConflict, "model %s is where removed rows of %s would go; rename it, or give %s archive: false", archive.Name, m.Name, m.Name)
	}
	m.Archive = archive
	b.put(archive)
	return nil
}

// put replaces the model of the same name, or appends m.
func (b *batch) put(m *Model) {
	if i := slices.IndexFunc(b.models, func(o *Model) bool { return o.Name == m.Name }); i >= 0 {
		b.models[i] = m
		return
	}
	b.models = append(b.models, m)
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
	a.Fields = slices.Clone(m.Fields)
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
