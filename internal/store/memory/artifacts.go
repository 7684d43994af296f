package memory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// each calls f with the values that a snapshot sees, in the order they were written.
func each[T any](all []*kept[T], snapshot int64, f func(*T)) {
	for _, k := range all {
		if k.seen(snapshot) {
			f(k.value)
		}
	}
}

// each calls f with the revisions of all documents that the snapshot sees. The lock is held.
func (r *reader) each(f func(*persistence.Document)) {
	for _, n := range r.s.names {
		for _, all := range n.revisions {
			each(all, r.snapshot, f)
		}
	}
}

// Usage implements persistence.Reader.
func (r *reader) Usage(name string, now time.Time) (bytes int64, err error) {
	err = r.look(func() {
		bytes = r.facts(name).Bytes
		each(r.s.uploads, r.snapshot, func(u *persistence.Upload) {
			if u.Namespace == name && u.State.Open() && !u.Live(now) {
				bytes -= u.Size
			}
		})
	})
	return bytes, err
}

// facts counts what a namespace holds. The lock is held.
func (r *reader) facts(name string) persistence.NamespaceFacts {
	f := persistence.NamespaceFacts{Namespace: name}
	if n := r.s.names[name]; n != nil {
		for id := range n.revisions {
			r.count(&f, r.versions(name, id))
		}
	}
	each(r.s.artifacts, r.snapshot, func(a *persistence.Artifact) {
		if a.Namespace == name {
			f.Artifacts++
			f.Bytes += a.Size
		}
	})
	each(r.s.uploads, r.snapshot, func(u *persistence.Upload) {
		if u.Namespace == name && u.State.Open() {
			f.Uploads++
			f.Reserved += u.Size
		}
	})
	f.Bytes += f.Reserved
	return f
}

// count adds the revisions of one document, the head last.
func (r *reader) count(f *persistence.NamespaceFacts, revisions []*version) {
	for i, v := range revisions {
		f.Revisions++
		if !v.value.Deleted {
			f.Bytes += int64(len(v.value.Payload))
		}
		switch {
		case i < len(revisions)-1:
		case v.value.Deleted:
			f.Deleted++
		default:
			f.Documents++
		}
	}
}

// Namespaces implements persistence.Reader. A namespace that holds nothing any more is left out.
func (r *reader) Namespaces(after string, limit int) (found []persistence.NamespaceFacts, err error) {
	err = r.look(func() {
		names := maps.Clone(r.s.names)
		for _, k := range r.s.uploads {
			names[k.value.Namespace] = nil
		}
		for _, k := range r.s.artifacts {
			names[k.value.Namespace] = nil
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			f := r.facts(name)
			if name > after && len(found) < limit && f.Revisions+f.Artifacts+f.Uploads > 0 {
				found = append(found, f)
			}
		}
	})
	return found, err
}

// Superseded implements persistence.Reader.
func (r *reader) Superseded(name, id string, revision int64) (at time.Time, ok bool, err error) {
	err = r.look(func() {
		exists := slices.ContainsFunc(r.versions(name, id), func(v *version) bool { return v.value.Revision == revision })
		if !exists {
			return
		}
		for _, v := range r.s.names[name].revisions[id] { // purged ones too
			if v.born <= r.snapshot && v.value.Revision == revision+1 {
				at, ok = v.value.UpdatedAt, true
			}
		}
	})
	return at, ok, err
}

// Inbound implements persistence.Reader.
func (r *reader) Inbound(target, after persistence.Ref, limit int) (sources []persistence.Ref, err error) {
	points := func(to persistence.Ref) bool {
		if target.Type == persistence.RefArtifact {
			to.Revision = target.Revision // an artifact has none
		}
		return to == target
	}
	err = r.look(func() {
		r.each(func(d *persistence.Document) {
			source := persistence.Ref{Type: persistence.RefDocument, Namespace: d.Namespace, ID: d.ID, Revision: d.Revision}
			if slices.ContainsFunc(d.References, points) && compareRefs(source, after) > 0 {
				sources = append(sources, source)
			}
		})
	})
	slices.SortFunc(sources, compareRefs)
	return sources[:min(len(sources), max(limit, 0))], err
}

// compareRefs orders references to documents.
func compareRefs(a, b persistence.Ref) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ID, b.ID), cmp.Compare(a.Revision, b.Revision))
}

// Artifact implements persistence.Reader.
func (r *reader) Artifact(name, id string) (a *persistence.Artifact, ok bool, err error) {
	err = r.look(func() {
		each(r.s.artifacts, r.snapshot, func(found *persistence.Artifact) {
			if found.Namespace == name && found.ID == id {
				a = cloneArtifact(found)
			}
		})
	})
	return a, a != nil, err
}

// Upload implements persistence.Reader.
func (r *reader) Upload(name, uploadID string) (u *persistence.Upload, ok bool, err error) {
	found, err := r.find(func(u *persistence.Upload) bool { return u.Namespace == name && u.ID == uploadID })
	if len(found) > 0 {
		u = found[0]
	}
	return u, u != nil, err
}

// find gives copies of the uploads for which is holds.
func (r *reader) find(is func(*persistence.Upload) bool) (found []*persistence.Upload, err error) {
	err = r.look(func() {
		each(r.s.uploads, r.snapshot, func(u *persistence.Upload) {
			if is(u) {
				found = append(found, cloneUpload(u))
			}
		})
	})
	return found, err
}

// OpenUploads implements persistence.Reader.
func (r *reader) OpenUploads(owner string, now time.Time) (int, error) {
	found, err := r.find(func(u *persistence.Upload) bool { return u.Owner == owner && u.Live(now) })
	return len(found), err
}

// Expired implements persistence.Reader.
func (r *reader) Expired(now time.Time, limit int) ([]*persistence.Upload, error) {
	found, err := r.find(func(u *persistence.Upload) bool { return u.State.Open() && !u.Live(now) })
	slices.SortStableFunc(found, func(a, b *persistence.Upload) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	return found[:min(len(found), max(limit, 0))], err
}

// Held implements persistence.Reader.
func (r *reader) Held(d persistence.Digest) (held bool, err error) {
	err = r.look(func() {
		each(r.s.artifacts, r.snapshot, func(a *persistence.Artifact) { held = held || a.Hash == d })
		each(r.s.uploads, r.snapshot, func(u *persistence.Upload) {
			held = held || u.State == persistence.UploadReceived && u.Hash == d
		})
	})
	return held, err
}

// EachHeld implements persistence.Reader. fn is called without the lock: it may read.
func (r *reader) EachHeld(fn func(persistence.Digest) error) error {
	var held []persistence.Digest
	err := r.look(func() {
		each(r.s.artifacts, r.snapshot, func(a *persistence.Artifact) { held = append(held, a.Hash) })
		each(r.s.uploads, r.snapshot, func(u *persistence.Upload) {
			if u.State == persistence.UploadReceived || u.State == persistence.UploadCommitted {
				held = append(held, u.Hash)
			}
		})
	})
	for _, d := range held {
		if err == nil {
			err = fn(d)
		}
	}
	return err
}

// remove ends what exists for later snapshots. The lock is held.
func remove[T any](t *tx, k *kept[T]) {
	k.gone = t.snapshot
	t.undo = append(t.undo, func() { k.gone = 0 })
}

// PurgeRevision implements persistence.Tx.
func (t *tx) PurgeRevision(name, id string, revision int64) error {
	refused := fmt.Errorf("purge revision %d of %s: there is none, or it is the head", revision, id)
	err := t.look(func() {
		all := t.versions(name, id)
		for i, v := range all {
			if v.value.Revision == revision && i < len(all)-1 {
				remove(t, v)
				refused = nil
			}
		}
	})
	return cmp.Or(err, refused)
}

// PutUpload implements persistence.Tx.
func (t *tx) PutUpload(u *persistence.Upload) error {
	if u.State != persistence.UploadPending || u.Size < 0 {
		return fmt.Errorf("write upload %s: it is %s, of size %d", u.ID, u.State, u.Size)
	}
	same, err := t.find(func(o *persistence.Upload) bool {
		return o.Namespace == u.Namespace && (o.ID == u.ID || o.ArtifactID == u.ArtifactID)
	})
	if err != nil || len(same) > 0 {
		return errors.Join(err, fmt.Errorf("write upload %s: its id or that of its artifact is in use", u.ID))
	}
	u = cloneUpload(u)
	u.ExpiresAt = persistence.Truncate(u.ExpiresAt)
	return t.look(func() { t.insertUpload(len(t.s.uploads), u) })
}

// insertUpload puts u in a place of the list. The lock is held.
func (t *tx) insertUpload(i int, u *persistence.Upload) {
	s := t.s
	s.uploads = slices.Insert(s.uploads, i, &kept[persistence.Upload]{born: t.snapshot, value: u})
	t.undo = append(t.undo, func() { s.uploads = slices.Delete(s.uploads, i, i+1) })
}

// moves are the ways an upload may go (persistence.v1, section 10.2). It becomes UploadPurged with its artifact only.
var moves = map[persistence.UploadState][]persistence.UploadState{
	persistence.UploadPending: {persistence.UploadReceived, persistence.UploadAborted, persistence.UploadExpired},
	persistence.UploadReceived: {
		persistence.UploadPending, persistence.UploadCommitted, persistence.UploadAborted, persistence.UploadExpired,
	},
}

// MoveUpload implements persistence.Tx. When it was moved does not matter: uploads are kept for as long as the store.
func (t *tx) MoveUpload(name, uploadID string, to persistence.UploadState, _ time.Time) error {
	is := func(u *persistence.Upload) bool {
		return u.Namespace == name && u.ID == uploadID && slices.Contains(moves[u.State], to)
	}
	change := func(u *persistence.Upload) {
		if u.State = to; !to.Open() {
			u.Provenance = nil
		}
	}
	if !t.replaceUpload(is, change) {
		return fmt.Errorf("move upload %s: there is none that can become %s", uploadID, to)
	}
	return nil
}

// replaceUpload changes the first upload for which is holds, and tells whether there is one.
func (t *tx) replaceUpload(is func(*persistence.Upload) bool, change func(*persistence.Upload)) (found bool) {
	err := t.look(func() {
		i := slices.IndexFunc(t.s.uploads, func(k *kept[persistence.Upload]) bool { return k.seen(t.snapshot) && is(k.value) })
		if found = i >= 0; found {
			u := cloneUpload(t.s.uploads[i].value)
			change(u)
			remove(t, t.s.uploads[i])
			t.insertUpload(i+1, u)
		}
	})
	return found && err == nil
}

// PutArtifact implements persistence.Tx.
func (t *tx) PutArtifact(a *persistence.Artifact) error {
	if _, exists, err := t.Artifact(a.Namespace, a.ID); err != nil || exists || a.Size < 0 {
		return errors.Join(err, fmt.Errorf("write artifact %s of size %d: it exists %v", a.ID, a.Size, exists))
	}
	a = cloneArtifact(a)
	a.CreatedAt = persistence.Truncate(a.CreatedAt)
	return t.look(func() {
		s := t.s
		s.artifacts = append(s.artifacts, &kept[persistence.Artifact]{born: t.snapshot, value: a})
		t.undo = append(t.undo, func() { s.artifacts = s.artifacts[:len(s.artifacts)-1] })
	})
}

// PurgeArtifact implements persistence.Tx. Of its upload stays what maps the id of one to the other.
func (t *tx) PurgeArtifact(name, id string) error {
	refused := fmt.Errorf("purge artifact %s: there is none", id)
	err := t.look(func() {
		for _, k := range t.s.artifacts {
			if k.seen(t.snapshot) && k.value.Namespace == name && k.value.ID == id {
				remove(t, k)
				refused = nil
			}
		}
	})
	if err = cmp.Or(err, refused); err != nil {
		return err
	}
	t.replaceUpload(func(u *persistence.Upload) bool {
		return u.Namespace == name && u.ArtifactID == id && u.State == persistence.UploadCommitted
	}, func(u *persistence.Upload) { u.State = persistence.UploadPurged })
	return nil
}

// cloneArtifact and cloneUpload copy, so that no caller shares memory with the store.
func cloneArtifact(a *persistence.Artifact) *persistence.Artifact {
	c := *a
	c.Provenance = slices.Clone(a.Provenance)
	return &c
}

func cloneUpload(u *persistence.Upload) *persistence.Upload {
	c := *u
	c.Provenance = slices.Clone(u.Provenance)
	return &c
}
