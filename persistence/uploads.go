package persistence

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/policy"
)

// uploadLife is how long an upload is open (persistence.v1, section 4.7).
const uploadLife = 24 * time.Hour

// newArtifactName is what the creation of artifacts is decided on: no artifact has this id (persistence.v1, section 8).
const newArtifactName = "_new"

// newID makes an id that is never made again: a random UUID, version 4.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails since Go 1.24
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// UploadPath implements catalog.Handles: the path of the artifact that an upload leads to, also when it is closed.
func (s *Service) UploadPath(ctx context.Context, tenant, namespace, uploadID string) (path policy.Path, known bool, err error) {
	err = s.cfg.Store.View(ctx, func(r Reader) error {
		u, ok, err := r.Upload(kept(tenant, namespace), uploadID)
		if ok {
			path, known = artifactPath(namespace, u.ArtifactID), true
		}
		return err
	})
	return path, known, err
}

// newArtifactTarget needs write on the creation of artifacts.
func newArtifactTarget(_ context.Context, _ catalog.Lookup, in canonjson.Value) ([]policy.Check, error) {
	return []policy.Check{{Capability: policy.PersistenceWrite, Path: artifactPath(in.Get("namespace").Str(), newArtifactName)}}, nil
}

// uploadTarget needs write on the artifact that the upload leads to; for an unknown one, on the creation of artifacts,
// so that a caller without any right learns nothing.
func uploadTarget(ctx context.Context, l catalog.Lookup, in canonjson.Value) ([]policy.Check, error) {
	path, known, err := l.UploadPath(ctx, in.Get("namespace").Str(), in.Get("uploadId").Str())
	if err != nil && !errors.Is(err, ErrDamaged) {
		return nil, readFault(err)
	}
	if !known { // or damaged, which only those may learn who may open uploads
		return newArtifactTarget(ctx, l, in)
	}
	return []policy.Check{{Capability: policy.PersistenceWrite, Path: path}}, nil
}

// artifactTarget needs c on the artifact that the input names.
func artifactTarget(c policy.Capability) func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) {
	return func(_ context.Context, _ catalog.Lookup, in canonjson.Value) ([]policy.Check, error) {
		return []policy.Check{{Capability: c, Path: artifactPath(in.Get("namespace").Str(), in.Get("id").Str())}}, nil
	}
}

// noUpload is the one answer for an upload that is unknown, or no longer open.
func noUpload() *fault.Error {
	return fault.New(fault.NotFound, "no open upload has this id; beginArtifact opens one")
}

// beginArtifact opens an upload and reserves its size.
func (s *Service) beginArtifact(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	size, _ := c.In.Get("size").Int()
	hash, _ := ParseDigest(c.In.Get("hash").Get("value").Str())
	u := Upload{
		Namespace: namespaceOf(c), Owner: c.Who.RateKey(), MimeType: c.In.Get("mimeType").Str(), Size: size, Hash: hash,
		Provenance: c.In.Get("provenance").AppendCanonical(nil), ExpiresAt: Truncate(c.Now).Add(uploadLife), State: UploadPending,
	}
	// What is over is closed before its room is given to others: a clock that is set back does not open it again.
	if _, _, err := s.closeExpired(ctx); err != nil {
		return catalog.Result{}, writeFault(err)
	}
	return s.settle(ctx, c, u.Namespace, func(tx Tx) (canonjson.Value, error) {
		if err := s.checkUpload(tx, &u, c.Now); err != nil {
			return canonjson.Value{}, err
		}
		next := u // fn may run again, and an id of a run that was undone is not used either
		next.ID, next.ArtifactID = newID(), newID()
		return next.Value(), tx.PutUpload(&next)
	})
}

// checkUpload keeps the limits of a new upload.
func (s *Service) checkUpload(tx Tx, u *Upload, now time.Time) error {
	l := s.cfg.Limits
	if n := int64(len(u.Provenance)); n > l.MaxDocumentBytes {
		return fault.New(fault.QuotaExceeded, "the provenance has %d bytes in canonical form, the limit is %d", n, l.MaxDocumentBytes)
	}
	if u.Size > l.MaxArtifactBytes {
		return fault.New(fault.QuotaExceeded, "the artifact has %d bytes, the limit is %d", u.Size, l.MaxArtifactBytes)
	}
	used, err := tx.Usage(u.Namespace, now)
	if err != nil {
		return err
	}
	if used+u.Size > l.MaxNamespaceBytes {
		return fault.New(fault.QuotaExceeded, "the namespace has no room for %d more bytes, its limit is %d", u.Size, l.MaxNamespaceBytes)
	}
	open, err := tx.OpenUploads(u.Owner, now)
	if err != nil {
		return err
	}
	if s.cfg.MaxUploads > 0 && open >= s.cfg.MaxUploads {
		return fault.New(fault.QuotaExceeded, "%d uploads are open, as many as one caller may have; commit or abort one first", open)
	}
	return nil
}

// uploadAccess answers an open upload: may the caller write to it.
func (s *Service) uploadAccess(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	u, err := s.openUpload(ctx, c)
	if err != nil {
		return catalog.Result{}, err
	}
	return catalog.Result{Value: u.Value(), Source: "persistence"}, nil
}

// openUpload finds the upload that the call names, if it is open now. One that is seen to be over is closed for good,
// whatever the clock says later.
func (s *Service) openUpload(ctx context.Context, c *catalog.Call) (*Upload, error) {
	var u *Upload
	var ok bool
	now := s.cfg.Clock.Now()
	err := s.cfg.Store.View(ctx, func(r Reader) (err error) {
		u, ok, err = r.Upload(namespaceOf(c), c.In.Get("uploadId").Str())
		return err
	})
	switch {
	case err != nil:
		return nil, readFault(err)
	case ok && u.Live(now):
		return u, nil
	case ok && u.State.Open():
		if err := s.expire(ctx, u, now); err != nil {
			return nil, writeFault(err)
		}
	}
	return nil, noUpload()
}

// liveUpload is an upload that is open at now.
func liveUpload(r Reader, namespace, id string, now time.Time) (*Upload, error) {
	u, ok, err := r.Upload(namespace, id)
	if err == nil && (!ok || !u.Live(now)) {
		err = noUpload()
	}
	return u, err
}

// What ends the transaction of a commit that its key does not settle: the bytes were not verified yet, or were found
// wrong.
var (
	errUnverified = errors.New("the bytes that are held have not been verified")
	errWrongBytes = errors.New("the bytes that are held are not those that were declared")
)

// commitArtifact verifies the bytes that are held and publishes the artifact. Its key is looked up first: a replay and a
// conflict read no bytes. They are read outside a transaction, which must not wait for a disk of blobs; their lock keeps
// them where they are until the second one is over.
func (s *Service) commitArtifact(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	namespace, id := namespaceOf(c), c.In.Get("uploadId").Str()
	result, err := s.commitVerified(ctx, c, namespace, id, errUnverified)
	if !errors.Is(err, errUnverified) {
		return result, err
	}
	verdict, release, err := s.verifyReceived(ctx, namespace, id)
	if err != nil {
		return catalog.Result{}, readFault(err)
	}
	defer release()
	result, err = s.commitVerified(ctx, c, namespace, id, verdict)
	if errors.Is(err, errWrongBytes) {
		return catalog.Result{}, s.takeBack(ctx, c, namespace, id)
	}
	return result, err
}

// commitVerified publishes the artifact unless there is a verdict against its bytes.
func (s *Service) commitVerified(ctx context.Context, c *catalog.Call, namespace, id string, verdict error) (catalog.Result, error) {
	return s.settle(ctx, c, namespace, func(tx Tx) (canonjson.Value, error) {
		u, err := liveUpload(tx, namespace, id, s.cfg.Clock.Now())
		switch {
		case err != nil:
			return canonjson.Value{}, err
		case u.State != UploadReceived:
			return canonjson.Value{}, fault.New(fault.TransferIncomplete, "the bytes have not been sent completely; send them, then commit")
		case verdict != nil:
			return canonjson.Value{}, verdict
		}
		return publish(tx, u, c.Now)
	})
}

// publish makes an artifact of a received upload.
func publish(tx Tx, u *Upload, now time.Time) (canonjson.Value, error) {
	a := &Artifact{
		Namespace: u.Namespace, ID: u.ArtifactID, MimeType: u.MimeType, Size: u.Size, Hash: u.Hash,
		CreatedAt: Truncate(now), Provenance: u.Provenance,
	}
	if err := tx.MoveUpload(u.Namespace, u.ID, UploadCommitted, now); err != nil {
		return canonjson.Value{}, err
	}
	return a.Value(), tx.PutArtifact(a)
}

// verifyReceived reads the bytes of an upload that has received them: the verdict is errWrongBytes or nil. The bytes stay
// until release. An upload that another call has settled meanwhile needs no verdict.
func (s *Service) verifyReceived(ctx context.Context, namespace, id string) (verdict error, release func(), err error) {
	var u *Upload
	err = s.cfg.Store.View(ctx, func(r Reader) (err error) {
		u, _, err = r.Upload(namespace, id)
		return err
	})
	if err != nil || u == nil || u.State != UploadReceived {
		return nil, func() {}, err
	}
	release = s.vault.use(u.Hash)
	err = s.vault.verify(ctx, u.Hash, u.Size)
	if err != nil && !errors.Is(err, errWrongBytes) {
		release()
		return nil, nil, fmt.Errorf("read the bytes: %w", err)
	}
	return err, release, nil
}

// takeBack makes an upload whose bytes were found wrong pending again, and gives the answer to its commit. The bytes
// themselves go when nothing else needs them.
func (s *Service) takeBack(ctx context.Context, c *catalog.Call, namespace, id string) error {
	now := s.cfg.Clock.Now()
	commit := Commit{Namespace: namespace, Now: now, Seal: func(Outcome) audit.Row {
		entry := c.Commit.Entry // the call's own entry says how it ended
		entry.Operation, entry.Note = takeBackName, "the bytes that were held are not those that were declared"
		return entry.Encode()
	}}
	_, err := s.cfg.Store.Update(ctx, commit, func(tx Tx) (Outcome, error) {
		u, ok, err := tx.Upload(namespace, id)
		if err == nil && (!ok || u.State != UploadReceived) {
			err = noUpload() // another call has settled it
		}
		if err != nil {
			return Outcome{}, err
		}
		s.vault.later(u.Hash)
		return Outcome{}, tx.MoveUpload(namespace, id, UploadPending, now)
	})
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return writeFault(err)
	}
	s.cfg.Log.ErrorContext(ctx, "received bytes were found damaged and are to be sent again", "namespace", namespace, "upload", id)
	return fault.New(fault.IntegrityError, "the bytes that are held are not those that were declared; send them again, then commit")
}

// okValue is what operations answer that have nothing to tell.
func okValue() canonjson.Value { return canonjson.Object(canonjson.M("ok", canonjson.Bool(true))) }

// abortArtifact ends an open upload.
func (s *Service) abortArtifact(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	namespace, id := namespaceOf(c), c.In.Get("uploadId").Str()
	var held *Digest
	result, err := s.settle(ctx, c, namespace, func(tx Tx) (canonjson.Value, error) {
		held = nil
		u, err := liveUpload(tx, namespace, id, c.Now)
		if err != nil {
			return canonjson.Value{}, err
		}
		if u.State == UploadReceived {
			held = &u.Hash
		}
		return okValue(), tx.MoveUpload(namespace, id, UploadAborted, c.Now)
	})
	if err == nil && held != nil && !result.Replayed {
		s.vault.remove(ctx, *held)
	}
	if err == nil {
		s.receiving.end(namespace + "/" + id)
	}
	return result, err
}

// getArtifact answers what is known of an artifact.
func (s *Service) getArtifact(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	a, err := s.artifact(ctx, c)
	if err != nil {
		return catalog.Result{}, err
	}
	return catalog.Result{Value: a.Value(), Source: "persistence"}, nil
}

// artifact finds the artifact that the call names.
func (s *Service) artifact(ctx context.Context, c *catalog.Call) (a *Artifact, err error) {
	err = s.cfg.Store.View(ctx, func(r Reader) error {
		var ok bool
		var err error
		if a, ok, err = r.Artifact(namespaceOf(c), c.In.Get("id").Str()); err == nil && !ok {
			err = notFound()
		}
		return err
	})
	if err != nil {
		return nil, readFault(err)
	}
	return a, nil
}

// settle commits what fn does with the call's key and audit row, and answers fn's value: the one made now, or for a
// known key the one that was recorded.
func (s *Service) settle(ctx context.Context, c *catalog.Call, namespace string, fn func(Tx) (canonjson.Value, error)) (catalog.Result, error) {
	out, err := s.cfg.Store.Update(ctx, s.commitOf(c, namespace, nil), func(tx Tx) (Outcome, error) {
		v, err := fn(tx)
		if err != nil {
			return Outcome{}, err
		}
		return Outcome{Value: v.AppendCanonical(nil)}, nil
	})
	if err != nil {
		return catalog.Result{}, writeFault(err)
	}
	// What was recorded was ours: a number in a provenance that is exact only in canonical form is no flaw here.
	v, _, err := canonjson.Parse(out.Value, canonjson.Limits{Depth: 100, Nodes: 200_000})
	if err != nil {
		return catalog.Result{}, fmt.Errorf("read the recorded result: %w", err)
	}
	return catalog.Result{Value: v, Source: "persistence", Replayed: out.Replayed}, nil
}

// commitOf is what a call commits beside its effect.
func (s *Service) commitOf(c *catalog.Call, namespace string, touch []Ref) Commit {
	return Commit{
		Namespace: namespace, Key: c.Commit.Key, Fingerprint: c.Commit.Fingerprint, Now: c.Now,
		Forget: c.Now.Add(-s.cfg.Limits.IdempotencyRetention), Touch: touch,
		Seal: func(o Outcome) audit.Row {
			c.Commit.Entry.Revision = o.Revision
			return c.Commit.Seal()
		},
	}
}
