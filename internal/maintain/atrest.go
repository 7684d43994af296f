package maintain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// holder is what holds the bytes: a blob.Folder in use, or one at rest. Nothing is written to it here.
type holder interface {
	Open(ctx context.Context, d persistence.Digest) (persistence.BlobReader, error)
	Each(ctx context.Context, fn func(persistence.BlobInfo) error) error
	Foreign(ctx context.Context) ([]string, error)
	Path(d persistence.Digest) string
}

var (
	_ holder = (*blob.Folder)(nil)
	_ holder = atRest{}
)

// partsFolder is where parts are, see package blob.
const partsFolder = "incoming"

// atRest reads a folder of package blob that nobody has open, and leaves it as it is: blob.OpenFolder would empty the
// folder of parts. A folder that is not there holds nothing.
type atRest struct{ dir string }

// Path is the file of d, as blob.Folder has it.
func (f atRest) Path(d persistence.Digest) string {
	name := d.String()
	return filepath.Join(f.dir, name[:2], name)
}

// root opens the folder. As the server's, it follows no link that leads out of it.
func (f atRest) root() (*os.Root, error) { return os.OpenRoot(f.dir) }

// Open is that of persistence.Blobs.
func (f atRest) Open(_ context.Context, d persistence.Digest) (persistence.BlobReader, error) {
	none := fmt.Errorf("%w: %s", persistence.ErrNoBlob, d)
	root, err := f.root()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	defer root.Close() // the file goes on without it
	name := path.Join(d.String()[:2], d.String())
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	file, err := regular(root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0))
	if err != nil {
		return nil, err
	}
	return &opened{file, info.Size()}, nil
}

// opened is a blob that is read.
type opened struct {
	*os.File
	size int64
}

// Size is the length that was found.
func (o *opened) Size() int64 { return o.size }

// Each is that of persistence.Blobs; everything is settled.
func (f atRest) Each(ctx context.Context, fn func(persistence.BlobInfo) error) error {
	return f.walk(ctx, func(name string, e fs.DirEntry) error {
		d, ok := blobOf(name, e)
		if !ok {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return fn(persistence.BlobInfo{Digest: d, Size: info.Size(), Settled: true, Modified: info.ModTime()})
	})
}

// Foreign is that of blob.Folder.
func (f atRest) Foreign(ctx context.Context) (found []string, err error) {
	err = f.walk(ctx, func(name string, e fs.DirEntry) error {
		if _, ok := blobOf(name, e); !ok && len(found) < maxFindings {
			found = append(found, name)
		}
		return nil
	})
	slices.Sort(found)
	return found, err
}

// parts lists the parts.
func (f atRest) parts() (found []string, err error) {
	root, err := f.root()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close() // it was only read
	entries, err := entriesOf(root, partsFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		found = append(found, path.Join(partsFolder, e.Name()))
	}
	return found, err
}

// blobOf tells which blob a file is, by its slash-separated name in the folder.
func blobOf(name string, e fs.DirEntry) (persistence.Digest, bool) {
	d, ok := persistence.ParseDigest(path.Base(name))
	return d, ok && e.Type().IsRegular() && name == path.Join(d.String()[:2], d.String())
}

// walk tells of everything in the folder but the parts: what is in the subfolders of blobs, and whatever else there is.
// One subfolder is in memory at a time.
func (f atRest) walk(ctx context.Context, fn func(name string, e fs.DirEntry) error) error {
	root, err := f.root()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close() // it was only read
	top, err := entriesOf(root, ".")
	if err != nil {
		return err
	}
	for _, e := range top {
		switch {
		case e.Name() == partsFolder && e.IsDir():
			continue
		case !e.IsDir() || !isSubfolder(e.Name()):
			err = fn(e.Name(), e)
		default:
			err = walkIn(ctx, root, e.Name(), fn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walkIn is walk of a subfolder.
func walkIn(ctx context.Context, root *os.Root, sub string, fn func(name string, e fs.DirEntry) error) error {
	entries, err := entriesOf(root, sub)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(path.Join(sub, e.Name()), e); err != nil {
			return err
		}
	}
	return nil
}

// entriesOf lists a folder, sorted.
func entriesOf(root *os.Root, name string) ([]fs.DirEntry, error) { return fs.ReadDir(root.FS(), name) }

// isSubfolder tells whether a name is that of a folder of blobs: two lower-case hexadecimal digits.
func isSubfolder(name string) bool {
	if len(name) != 2 {
		return false
	}
	for _, c := range []byte(name) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
