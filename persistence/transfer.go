package persistence

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync/atomic"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
)

// pieceBytes is how much of a body is in memory at once (security requirements, section 3).
const pieceBytes = 64 << 10

// receive is PUT /uploads/<namespace>/<uploadId>: the bytes of an upload (persistence.v1, section 6.1). The gate has
// decided before this runs, and nothing of the body is read before every check that needs no body has passed.
func (s *Service) receive(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	u, err := s.pendingUpload(ctx, c)
	if err != nil {
		return catalog.Result{}, err
	}
	closed, done, ok := s.receiving.begin(u.Namespace + "/" + u.ID)
	if !ok {
		return catalog.Result{}, fault.New(fault.Busy, "another transfer of this upload is under way; wait for its end, or retry when it has been cut off")
	}
	defer done()
	if u, err = s.pendingUpload(ctx, c); err != nil { // a transfer may have ended in between
		return catalog.Result{}, err
	}
	if err := s.checkBody(c.Body, u); err != nil {
		return catalog.Result{}, err
	}
	w, err := s.cfg.Blobs.Create(ctx)
	if err != nil {
		return catalog.Result{}, transferFault(err)
	}
	defer w.Drop()
	if err := s.take(closed, w, c.Body, u); err != nil {
		return catalog.Result{}, err
	}
	return catalog.Result{Source: "persistence"}, s.keep(ctx, c, w, u)
}

// pendingUpload finds the upload that the call names, if its bytes may be sent.
func (s *Service) pendingUpload(ctx context.Context, c *catalog.Call) (*Upload, error) {
	u, err := s.openUpload(ctx, c)
	if err == nil && u.State == UploadReceived {
		err = received()
	}
	return u, err
}

// received is the answer to bytes that are held already.
func received() *fault.Error {
	return fault.New(fault.InvalidRequest, "the bytes of this upload have been received; commit it")
}

// checkBody refuses a body by what its sender declared of it.
func (s *Service) checkBody(b *catalog.Body, u *Upload) error {
	switch {
	case b == nil:
		return fault.New(fault.InvalidRequest, "there is no body")
	case b.Coded:
		return fault.New(fault.UnsupportedFormat, "content codings are not supported; send the bytes as they are")
	case b.Ranged:
		return fault.New(fault.UnsupportedFormat, "ranges are not supported; send all bytes from the start")
	case b.Length < 0 || b.Length == u.Size:
		return nil
	case b.Length < u.Size:
		return short()
	case b.Length > s.cfg.Limits.MaxArtifactBytes:
		return fault.New(fault.QuotaExceeded, "the body has %d bytes, the limit is %d", b.Length, s.cfg.Limits.MaxArtifactBytes)
	}
	return long()
}

// The answers to a body of another length.
func short() *fault.Error {
	return fault.New(fault.TransferIncomplete, "the body ended before the declared size, or came too slowly; send all bytes from the start")
}

func long() *fault.Error {
	return fault.New(fault.IntegrityError, "the body is longer than the declared size")
}

// take writes the body to w and compares it with what was declared. It reads no more than one piece too much, and ends
// with the upload: what is aborted or over takes no more bytes.
func (s *Service) take(closed *atomic.Bool, w BlobWriter, body io.Reader, u *Upload) error {
	buf := make([]byte, pieceBytes)
	for {
		n, err := body.Read(buf)
		if closed.Load() || !u.Live(s.cfg.Clock.Now()) {
			return noUpload()
		}
		if w.Size()+int64(n) > u.Size {
			return long()
		}
		if _, werr := w.Write(buf[:n]); werr != nil {
			return transferFault(werr)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return short().Wrap(err)
		}
	}
	switch {
	case w.Size() < u.Size:
		return short()
	case w.Sum() != u.Hash:
		return fault.New(fault.IntegrityError, "the bytes do not have the declared SHA-256; send the right ones from the start")
	}
	return nil
}

// keep makes the bytes durable, then records that they are here. In this order: a record without its bytes must not
// exist, and bytes without a record are swept.
func (s *Service) keep(ctx context.Context, c *catalog.Call, w BlobWriter, u *Upload) error {
	release := s.vault.use(u.Hash)
	defer release()
	if weak(MetadataFirst) {
		if err := s.record(ctx, c, u); err != nil {
			return err
		}
		return transferFault(w.Keep(ctx))
	}
	if err := w.Keep(ctx); err != nil {
		return transferFault(err)
	}
	err := s.record(ctx, c, u)
	if err != nil {
		s.vault.later(u.Hash)
	}
	return err
}

// record notes that the bytes of u are here, unless it is no longer waiting for them.
func (s *Service) record(ctx context.Context, c *catalog.Call, u *Upload) error {
	_, err := s.cfg.Store.Update(ctx, s.commitOf(c, u.Namespace, nil), func(tx Tx) (Outcome, error) {
		now := s.cfg.Clock.Now() // expiry counts again: a transfer may take hours
		at, err := liveUpload(tx, u.Namespace, u.ID, now)
		switch {
		case err != nil:
			return Outcome{}, err
		case at.State == UploadReceived:
			return Outcome{}, received()
		}
		return Outcome{}, tx.MoveUpload(u.Namespace, u.ID, UploadReceived, now)
	})
	if err != nil {
		return writeFault(err)
	}
	return nil
}

// transferFault gives an error of the blob store its code. Nil stays nil.
func transferFault(err error) error {
	switch {
	case err == nil:
		return nil
	case fault.As(err) != nil:
		return err
	}
	return fault.New(fault.StoreUnavailable, "the bytes cannot be stored now; retry later from the start").Wrap(err)
}

// download is GET /artifacts/<namespace>/<id>: the bytes of an artifact (persistence.v1, section 6.3).
func (s *Service) download(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	a, err := s.artifact(ctx, c)
	if err != nil {
		return catalog.Result{}, err
	}
	r, err := s.cfg.Blobs.Open(ctx, a.Hash)
	if errors.Is(err, ErrNoBlob) && s.purged(ctx, c) {
		return catalog.Result{}, notFound() // purged between the two looks
	}
	if errors.Is(err, ErrNoBlob) || err == nil && r.Size() != a.Size {
		if r != nil {
			r.Close()
		}
		s.cfg.Log.ErrorContext(ctx, "stored bytes are missing or have another length; they are not served", "namespace", a.Namespace, "artifact", a.ID, "digest", a.Hash)
		return catalog.Result{}, damagedBytes()
	}
	if err != nil {
		return catalog.Result{}, fault.New(fault.StoreUnavailable, "the bytes cannot be read now; retry later").Wrap(err)
	}
	return catalog.Result{Source: "persistence", Stream: &catalog.Stream{
		MIME: a.MimeType, Size: a.Size, ReadCloser: &verified{BlobReader: r, want: a.Hash, left: a.Size, hash: sha256.New()},
	}}, nil
}

// purged tells whether the artifact that the call names is gone.
func (s *Service) purged(ctx context.Context, c *catalog.Call) bool {
	_, err := s.artifact(ctx, c)
	return fault.CodeOf(err) == fault.NotFound
}

// damagedBytes is the answer in place of bytes that are not those that were committed.
func damagedBytes() *fault.Error {
	return fault.New(fault.IntegrityError, "stored bytes are not what was committed, and are not served; tell the operator")
}

// verified reads a blob and gives out its last piece only after all of it was found right, so that nobody who counts
// bytes takes damaged ones for complete.
type verified struct {
	BlobReader
	want Digest
	left int64
	hash hash.Hash
	err  error // what every further Read returns
}

// Read reads the next piece. The error of wrong bytes is a fault.
func (v *verified) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n := 0
	if v.left > 0 {
		if n, v.err = v.BlobReader.Read(p[:min(int64(len(p)), v.left)]); errors.Is(v.err, io.EOF) && int64(n) < v.left {
			v.err = damagedBytes()
		}
		v.hash.Write(p[:n])
		v.left -= int64(n)
	}
	if v.left > 0 || v.err != nil && !errors.Is(v.err, io.EOF) {
		return n, v.err
	}
	v.err = io.EOF
	if Digest(v.hash.Sum(nil)) != v.want {
		n, v.err = 0, damagedBytes()
	}
	return n, v.err
}
