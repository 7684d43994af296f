package storetest_test

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// memoryOf is what a faulty store remembers of what was removed.
type memoryOf struct {
	inbound map[persistence.Ref][]persistence.Ref
	freed   map[string]int64
	made    map[persistence.Digest]bool
	told    map[string][]byte // provenances, by namespace and id of the upload
}

// remembered is the memory of the one store that TestControlled has open: a process has one fault, and its tests run
// one after the other.
var remembered memoryOf

// noMemory is that of a new store.
func noMemory() memoryOf {
	return memoryOf{map[persistence.Ref][]persistence.Ref{}, map[string]int64{}, map[persistence.Digest]bool{}, map[string][]byte{}}
}

// faultyReader replaces answers; what is nil is right.
type faultyReader struct {
	persistence.Reader
	usage      func(r persistence.Reader, namespace string, now time.Time) (int64, error)
	superseded func(r persistence.Reader, namespace, id string, revision int64) (time.Time, bool, error)
	inbound    func(r persistence.Reader, target, after persistence.Ref, limit int) ([]persistence.Ref, error)
	held       func(r persistence.Reader, d persistence.Digest) (bool, error)
	eachHeld   func(r persistence.Reader, fn func(persistence.Digest) error) error
	live       func(r persistence.Reader, ref persistence.Ref) (bool, error)
	upload     func(r persistence.Reader, namespace, id string) (*persistence.Upload, bool, error)
	namespaces func(r persistence.Reader, after string, limit int) ([]persistence.NamespaceFacts, error)
}

func (f faultyReader) Usage(namespace string, now time.Time) (int64, error) {
	if f.usage == nil {
		return f.Reader.Usage(namespace, now)
	}
	return f.usage(f.Reader, namespace, now)
}

func (f faultyReader) Superseded(namespace, id string, revision int64) (time.Time, bool, error) {
	if f.superseded == nil {
		return f.Reader.Superseded(namespace, id, revision)
	}
	return f.superseded(f.Reader, namespace, id, revision)
}

func (f faultyReader) Inbound(target, after persistence.Ref, limit int) ([]persistence.Ref, error) {
	if f.inbound == nil {
		return f.Reader.Inbound(target, after, limit)
	}
	return f.inbound(f.Reader, target, after, limit)
}

func (f faultyReader) Held(d persistence.Digest) (bool, error) {
	if f.held == nil {
		return f.Reader.Held(d)
	}
	return f.held(f.Reader, d)
}

func (f faultyReader) EachHeld(fn func(persistence.Digest) error) error {
	if f.eachHeld == nil {
		return f.Reader.EachHeld(fn)
	}
	return f.eachHeld(f.Reader, fn)
}

func (f faultyReader) Live(ref persistence.Ref) (bool, error) {
	if f.live == nil {
		return f.Reader.Live(ref)
	}
	return f.live(f.Reader, ref)
}

func (f faultyReader) Upload(namespace, id string) (*persistence.Upload, bool, error) {
	if f.upload == nil {
		return f.Reader.Upload(namespace, id)
	}
	return f.upload(f.Reader, namespace, id)
}

func (f faultyReader) Namespaces(after string, limit int) ([]persistence.NamespaceFacts, error) {
	if f.namespaces == nil {
		return f.Reader.Namespaces(after, limit)
	}
	return f.namespaces(f.Reader, after, limit)
}

// answers makes the reader hook of a broken store.
func answers(f faultyReader) func(persistence.Store, persistence.Reader) persistence.Reader {
	return func(_ persistence.Store, r persistence.Reader) persistence.Reader {
		own := f // calls run at once
		own.Reader = r
		return own
	}
}

// faultyTx notes or replaces writes; what is nil is right.
type faultyTx struct {
	persistence.Tx
	purge       func(tx persistence.Tx, namespace, id string, revision int64) error
	move        func(tx persistence.Tx, namespace, id string, to persistence.UploadState, now time.Time) error
	putArtifact func(tx persistence.Tx, a *persistence.Artifact) error
	unpurge     func(tx persistence.Tx, namespace, id string) error
}

func (f faultyTx) PurgeRevision(namespace, id string, revision int64) error {
	if f.purge == nil {
		return f.Tx.PurgeRevision(namespace, id, revision)
	}
	return f.purge(f.Tx, namespace, id, revision)
}

func (f faultyTx) MoveUpload(namespace, id string, to persistence.UploadState, now time.Time) error {
	if f.move == nil {
		return f.Tx.MoveUpload(namespace, id, to, now)
	}
	return f.move(f.Tx, namespace, id, to, now)
}

func (f faultyTx) PutArtifact(a *persistence.Artifact) error {
	if f.putArtifact == nil {
		return f.Tx.PutArtifact(a)
	}
	return f.putArtifact(f.Tx, a)
}

func (f faultyTx) PurgeArtifact(namespace, id string) error {
	if f.unpurge == nil {
		return f.Tx.PurgeArtifact(namespace, id)
	}
	return f.unpurge(f.Tx, namespace, id)
}

// writes makes the update hook of a broken store.
func writes(f faultyTx) func(persistence.Store, context.Context, persistence.Commit, func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	return func(s persistence.Store, ctx context.Context, c persistence.Commit, fn func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
		return s.Update(ctx, c, func(tx persistence.Tx) (persistence.Outcome, error) {
			own := f
			own.Tx = tx
			return fn(own)
		})
	}
}

// keepsReferences notes the references of a revision before it is purged, and addReferences goes on giving them.
func keepsReferences(tx persistence.Tx, namespace, id string, revision int64) error {
	d, ok, err := tx.Revision(namespace, id, revision)
	if err != nil || !ok {
		return cmp.Or(err, tx.PurgeRevision(namespace, id, revision))
	}
	for _, r := range d.References {
		remembered.inbound[r] = append(remembered.inbound[r], persistence.Ref{
			Type: persistence.RefDocument, Namespace: namespace, ID: id, Revision: revision,
		})
	}
	return tx.PurgeRevision(namespace, id, revision)
}

func addReferences(r persistence.Reader, target, after persistence.Ref, limit int) ([]persistence.Ref, error) {
	refs, err := r.Inbound(target, after, limit)
	return append(refs, remembered.inbound[target]...), err
}

// keepsCharge notes what a purge frees, and addCharge goes on counting it.
func keepsCharge(tx persistence.Tx, namespace, id string, revision int64) error {
	if d, ok, err := tx.Revision(namespace, id, revision); err == nil && ok {
		remembered.freed[namespace] += int64(len(d.Payload))
	}
	return tx.PurgeRevision(namespace, id, revision)
}

func addCharge(r persistence.Reader, namespace string, now time.Time) (int64, error) {
	n, err := r.Usage(namespace, now)
	return n + remembered.freed[namespace], err
}

// keepsReservation notes what the end of an upload frees.
func keepsReservation(tx persistence.Tx, namespace, id string, to persistence.UploadState, now time.Time) error {
	err := tx.MoveUpload(namespace, id, to, now)
	if u, ok, _ := tx.Upload(namespace, id); ok && err == nil && to == persistence.UploadAborted {
		remembered.freed[namespace] += u.Size
	}
	return err
}

// movesAnything says that it moved what cannot be moved.
func movesAnything(tx persistence.Tx, namespace, id string, to persistence.UploadState, now time.Time) error {
	_ = tx.MoveUpload(namespace, id, to, now)
	return nil
}

// notesArtifact notes the digests of artifacts, which are all that heldByArtifacts knows.
func notesArtifact(tx persistence.Tx, a *persistence.Artifact) error {
	remembered.made[a.Hash] = true
	return tx.PutArtifact(a)
}

func heldByArtifacts(r persistence.Reader, d persistence.Digest) (bool, error) {
	held, err := r.Held(d)
	return held && remembered.made[d], err
}

// heldForEver goes on holding the bytes of purged artifacts.
func heldForEver(r persistence.Reader, d persistence.Digest) (bool, error) {
	held, err := r.Held(d)
	return held || remembered.made[d], err
}

// eachOfArtifacts names the bytes of artifacts only.
func eachOfArtifacts(r persistence.Reader, fn func(persistence.Digest) error) error {
	return r.EachHeld(func(d persistence.Digest) error {
		if !remembered.made[d] {
			return nil
		}
		return fn(d)
	})
}

// eachToTheEnd goes on after an error.
func eachToTheEnd(r persistence.Reader, fn func(persistence.Digest) error) (failed error) {
	err := r.EachHeld(func(d persistence.Digest) error {
		failed = cmp.Or(failed, fn(d))
		return nil
	})
	return cmp.Or(failed, err)
}

// eachSilently ends with fn's error and does not tell it.
func eachSilently(r persistence.Reader, fn func(persistence.Digest) error) error {
	_ = r.EachHeld(fn)
	return nil
}

// keepsProvenance notes the provenance of an upload that ends, and tellsProvenance goes on giving it.
func keepsProvenance(tx persistence.Tx, namespace, id string, to persistence.UploadState, now time.Time) error {
	if u, ok, err := tx.Upload(namespace, id); err == nil && ok && u.State.Open() {
		remembered.told[namespace+"/"+id] = u.Provenance
	}
	return tx.MoveUpload(namespace, id, to, now)
}

func tellsProvenance(r persistence.Reader, namespace, id string) (*persistence.Upload, bool, error) {
	u, ok, err := r.Upload(namespace, id)
	if ok && !u.State.Open() {
		u.Provenance = remembered.told[namespace+"/"+id]
	}
	return u, ok, err
}

// bySurvivors takes the next revision that exists for the one that followed.
func bySurvivors(r persistence.Reader, namespace, id string, revision int64) (time.Time, bool, error) {
	if _, ok, err := r.Revision(namespace, id, revision); err != nil || !ok {
		return time.Time{}, false, err
	}
	next, _, err := r.Revisions(namespace, id, revision, 1, 0)
	if err != nil || len(next) == 0 {
		return time.Time{}, false, err
	}
	return next[0].UpdatedAt, true, nil
}

// expiresLate counts an upload for a moment too long.
func expiresLate(r persistence.Reader, namespace string, now time.Time) (int64, error) {
	return r.Usage(namespace, now.Add(-time.Millisecond))
}

// expiresNever counts it until it is closed.
func expiresNever(r persistence.Reader, namespace string, _ time.Time) (int64, error) {
	return r.Usage(namespace, time.Time{})
}

// sameNamespace finds no source in another namespace than the target's.
func sameNamespace(r persistence.Reader, target, after persistence.Ref, limit int) ([]persistence.Ref, error) {
	refs, err := r.Inbound(target, after, limit)
	return slices.DeleteFunc(refs, func(s persistence.Ref) bool { return s.Namespace != target.Namespace }), err
}

// againAfter gives the source that the page is to come behind once more.
func againAfter(r persistence.Reader, target, after persistence.Ref, limit int) ([]persistence.Ref, error) {
	if after.Revision > 0 {
		after.Revision--
	}
	return r.Inbound(target, after, limit)
}

// artifactsDead lets no reference point at an artifact.
func artifactsDead(r persistence.Reader, ref persistence.Ref) (bool, error) {
	if ref.Type == persistence.RefArtifact {
		return false, nil
	}
	return r.Live(ref)
}

// newestUploads answers from the newest state instead of a snapshot.
func newestUploads(s persistence.Store, r persistence.Reader) persistence.Reader {
	return faultyReader{Reader: r, upload: func(_ persistence.Reader, namespace, id string) (u *persistence.Upload, ok bool, err error) {
		_ = s.View(context.Background(), func(now persistence.Reader) error {
			u, ok, err = now.Upload(namespace, id)
			return nil
		})
		return u, ok, err
	}}
}

// withDocuments leaves out namespaces that have none.
func withDocuments(r persistence.Reader, after string, limit int) ([]persistence.NamespaceFacts, error) {
	found, err := r.Namespaces(after, limit)
	return slices.DeleteFunc(found, func(f persistence.NamespaceFacts) bool { return f.Revisions == 0 }), err
}

// forgetsUploads keeps an upload committed when its artifact is purged, by not telling of it.
func forgetsUploads(r persistence.Reader, namespace, id string) (*persistence.Upload, bool, error) {
	u, ok, err := r.Upload(namespace, id)
	if ok && u.State == persistence.UploadPurged {
		u.State = persistence.UploadCommitted
	}
	return u, ok, err
}

// artifactFaults are the faults of uploads, artifacts and purges.
var artifactFaults = map[string]planted{
	"purge keeps references": {broken{reader: answers(faultyReader{inbound: addReferences}), update: writes(faultyTx{purge: keepsReferences})}, "Purge"},
	"purge frees nothing":    {broken{reader: answers(faultyReader{usage: addCharge}), update: writes(faultyTx{purge: keepsCharge})}, "Purge"},
	"purge says done": {broken{update: writes(faultyTx{purge: func(persistence.Tx, string, string, int64) error {
		return nil
	}})}, "Purge"},
	"purge of an artifact says done": {broken{update: writes(faultyTx{unpurge: func(persistence.Tx, string, string) error {
		return nil
	}})}, "ArtifactPurge"},
	"purge leaves the upload":           {broken{reader: answers(faultyReader{upload: forgetsUploads})}, "ArtifactPurge"},
	"superseded by survivors":           {broken{reader: answers(faultyReader{superseded: bySurvivors})}, "Superseded"},
	"abort frees nothing":               {broken{reader: answers(faultyReader{usage: addCharge}), update: writes(faultyTx{move: keepsReservation})}, "Reservations"},
	"moves out of final states":         {broken{update: writes(faultyTx{move: movesAnything})}, "UploadStates"},
	"received bytes are not held":       {broken{reader: answers(faultyReader{held: heldByArtifacts}), update: writes(faultyTx{putArtifact: notesArtifact})}, "Held"},
	"purged bytes are held":             {broken{reader: answers(faultyReader{held: heldForEver}), update: writes(faultyTx{putArtifact: notesArtifact})}, "Held"},
	"each held knows artifacts only":    {broken{reader: answers(faultyReader{eachHeld: eachOfArtifacts}), update: writes(faultyTx{putArtifact: notesArtifact})}, "EachHeld"},
	"each held goes on":                 {broken{reader: answers(faultyReader{eachHeld: eachToTheEnd})}, "EachHeld"},
	"each held hides errors":            {broken{reader: answers(faultyReader{eachHeld: eachSilently})}, "EachHeld"},
	"ended uploads keep provenance":     {broken{reader: answers(faultyReader{upload: tellsProvenance}), update: writes(faultyTx{move: keepsProvenance})}, "UploadStates"},
	"expires a moment late":             {broken{reader: answers(faultyReader{usage: expiresLate})}, "Expiry"},
	"expires with the sweep":            {broken{reader: answers(faultyReader{usage: expiresNever})}, "Expiry"},
	"inbound of one namespace":          {broken{reader: answers(faultyReader{inbound: sameNamespace})}, "Inbound"},
	"inbound pages overlap":             {broken{reader: answers(faultyReader{inbound: againAfter})}, "Inbound"},
	"artifacts are not live":            {broken{reader: answers(faultyReader{live: artifactsDead})}, "Uploads"},
	"keeps failures of artifacts":       {broken{update: keepsFailures}, "ArtifactRollback"},
	"no snapshot of uploads":            {broken{reader: newestUploads}, "ArtifactSnapshot"},
	"replay of artifacts has an effect": {broken{update: runsTwice}, "ArtifactReplay"},
	"namespaces have documents":         {broken{reader: answers(faultyReader{namespaces: withDocuments})}, "NamespaceFacts"},
}
