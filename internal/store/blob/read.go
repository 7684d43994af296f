package blob

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// reader reads a blob of a Folder.
type reader struct {
	file *os.File
	size int64
}

// Read is the file's, with the error of a place that cannot be read.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	if err != nil && err != io.EOF {
		err = unavailable("read blob", err)
	}
	return n, err
}

// Size is the length of the file when it was opened.
func (r *reader) Size() int64 { return r.size }

// Close ends the reading.
func (r *reader) Close() error { return r.file.Close() }

// Open opens the file of d. What is no regular file is no blob.
func (f *Folder) Open(ctx context.Context, d persistence.Digest) (persistence.BlobReader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := f.root.Lstat(blobName(d))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s", persistence.ErrNoBlob, d)
	}
	if err != nil {
		return nil, unavailable("find blob", err)
	}
	// Without waiting, should somebody have put a pipe there since.
	file, err := f.root.OpenFile(blobName(d), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", persistence.ErrNoBlob, d)
	}
	if err != nil {
		return nil, unavailable("open blob", err)
	}
	info, err = file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrInvalid
	}
	if err != nil {
		return nil, errors.Join(unavailable("open blob", err), file.Close())
	}
	return &reader{file, info.Size()}, nil
}

// Each tells of every blob. It holds the names of one subfolder at a time, so fn may delete what it is told of.
func (f *Folder) Each(ctx context.Context, fn func(persistence.BlobInfo) error) error {
	for b := range 256 {
		sub := fmt.Sprintf("%02x", b)
		entries, err := f.list(ctx, sub)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			d, ok := persistence.ParseDigest(e.Name())
			if !ok || int(d[0]) != b {
				continue // see Foreign
			}
			if err := f.tell(ctx, d, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell calls fn for d, when it is still there and a file.
func (f *Folder) tell(ctx context.Context, d persistence.Digest, fn func(persistence.BlobInfo) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := f.root.Lstat(blobName(d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unavailable("look at blob", err)
	case !info.Mode().IsRegular():
		return nil
	}
	return fn(persistence.BlobInfo{Digest: d, Size: info.Size(), Settled: f.settled(info.ModTime()), Modified: info.ModTime()})
}

// list reads a folder whole. The error is fs.ErrNotExist when there is none.
func (f *Folder) list(ctx context.Context, name string) ([]fs.DirEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	folder, err := f.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, unavailable("list blobs", err)
	}
	entries, err := folder.ReadDir(-1)
	if err = errors.Join(err, folder.Close()); err != nil {
		return nil, unavailable("list blobs", err)
	}
	return entries, nil
}

// maxForeign bounds the answer of Foreign, in names.
const maxForeign = 1000

// Foreign gives what is in the folder and was not put there by this package, as slash-separated paths in it, sorted,
// at most 1,000. Nothing of it is read, served or removed by the other methods. Parts are not looked at.
func (f *Folder) Foreign(ctx context.Context) ([]string, error) {
	top, err := f.list(ctx, ".")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range top {
		switch {
		case e.Name() == incoming && e.IsDir():
		case isSubfolder(e):
			inside, err := f.foreignIn(ctx, e.Name())
			if err != nil {
				return nil, err
			}
			found = append(found, inside...)
		default:
			found = append(found, e.Name())
		}
		if len(found) >= maxForeign {
			break
		}
	}
	slices.Sort(found)
	return found[:min(len(found), maxForeign)], nil
}

// isSubfolder tells of an entry of the folder whether it is one that holds blobs.
func isSubfolder(e fs.DirEntry) bool {
	b, err := hex.DecodeString(e.Name())
	return err == nil && len(b) == 1 && e.Name() == hex.EncodeToString(b) && e.IsDir()
}

// foreignIn gives what is in a subfolder and is no blob.
func (f *Folder) foreignIn(ctx context.Context, sub string) (found []string, err error) {
	entries, err := f.list(ctx, sub)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		d, ok := persistence.ParseDigest(e.Name())
		if !ok || subfolder(d) != sub || !e.Type().IsRegular() {
			found = append(found, path.Join(sub, e.Name()))
		}
	}
	return found, nil
}
