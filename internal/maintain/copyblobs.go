package maintain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// copied is what copyBlobs copied.
type copied struct{ blobs, bytes int64 }

// copyBlobs copies the bytes that the snapshot needs into the folder of bytes of dir, durably, and hashes them on the
// way. It goes on behind bytes that are missing or wrong and then names them all, in a *DamagedError.
func copyBlobs(ctx context.Context, i *sqlite.Inspector, from holder, dir string, p Progress) (done copied, err error) {
	to, err := blob.OpenFolder(filepath.Join(dir, blobFolder), blob.FolderOptions{})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	k := &copier{ctx: ctx, from: from, to: to, progress: p, checker: newChecker(ctx, dir, from, CheckOptions{})}
	if k.total, err = needTotal(i); err != nil {
		return done, err
	}
	var last persistence.Digest
	var now condition
	first := true
	err = i.Needs(func(n sqlite.Need) (err error) {
		if first || n.Digest != last {
			if now, err = k.copy(n.Digest, n.Size); err != nil {
				return fmt.Errorf("copy the bytes of %s/%s: %w", n.Namespace, n.ID, err)
			}
			first, last = false, n.Digest
		}
		k.checker.judge(n, now)
		return nil
	})
	if err == nil && k.checker.report.Damaged() {
		err = &DamagedError{Doing: "copy the bytes of artifacts", Findings: k.checker.report.Findings}
	}
	return k.done, err
}

// needTotal adds up the bytes that are needed, equal ones once.
func needTotal(i *sqlite.Inspector) (total int64, err error) {
	var last persistence.Digest
	first := true
	err = i.Needs(func(n sqlite.Need) error {
		if first || n.Digest != last {
			total += n.Size
		}
		first, last = false, n.Digest
		return nil
	})
	return total, err
}

// copier copies blobs.
type copier struct {
	ctx      context.Context
	from     holder
	to       *blob.Folder
	progress Progress
	checker  *checker // collects what is wrong
	done     copied
	total    int64
}

// copy copies the bytes of a digest, which are to be so many, and tells how they are. What is wrong is not kept.
func (k *copier) copy(d persistence.Digest, want int64) (condition, error) {
	r, err := k.from.Open(k.ctx, d)
	if err != nil {
		return k.checker.denied(d, err)
	}
	defer r.Close()       // it was only read
	if r.Size() != want { // judge says so; a crafted file may be of any length
		return condition{size: r.Size()}, nil
	}
	w, err := k.to.Create(k.ctx)
	if err != nil {
		return condition{}, err
	}
	in := &source{r: io.LimitReader(r, want+1)}
	size, err := pour(k.ctx, w, in, func(n int64) { k.progress.tell(stageCopy, k.done.bytes+n, k.total) })
	switch {
	case context.Cause(k.ctx) != nil:
		err = context.Cause(k.ctx)
	case in.err != nil:
		now, err := k.checker.denied(d, in.err)
		return now, errors.Join(err, w.Drop())
	case err == nil && size != want: // judge says so
		return condition{size: size}, w.Drop()
	case err == nil && w.Sum() != d:
		return condition{kind: KindBlobDamaged, what: "the bytes have another digest than their name: " + w.Sum().String()}, w.Drop()
	case err == nil:
		err = w.Keep(k.ctx)
	}
	if err != nil {
		return condition{}, errors.Join(err, w.Drop())
	}
	k.done.blobs++
	k.done.bytes += size
	return condition{size: size}, nil
}

// source remembers what went wrong in reading, to tell it from what went wrong in writing.
type source struct {
	r   io.Reader
	err error
}

// Read reads.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
