package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// incoming is the folder of parts: files that are being written.
const incoming = "incoming"

// Modes of what is made here (security requirements: private to the user of the server).
const (
	folderMode fs.FileMode = 0o700
	fileMode   fs.FileMode = 0o600
)

// FolderOptions are those of OpenFolder. The zero value is right.
type FolderOptions struct {
	// Durability is FileAndDirectorySync when empty. FileSync leaves out the syncs of folders and nothing else.
	Durability persistence.Durability
}

// Folder keeps blobs as files. Its methods are safe for concurrent use.
type Folder struct {
	dir    string // absolute
	root   *os.Root
	syncs  bool      // folders are synced
	opened time.Time // by the clock of the file system: see settled

	closing sync.RWMutex // held for reading while names change, for writing by Close
	closed  bool         // guarded by closing

	// One lock for each subfolder, by the first byte of the digest: held from the look at a name to the sync of its
	// folder, so that who takes a name back after a failed sync takes back its own.
	names [256]struct {
		sync.Mutex
		durable bool // the subfolder is there and its own name is synced
	}

	buffers sync.Pool // of writers: *[]byte, empty, of capacity bufferSize

	mu     sync.Mutex
	broken error // of the first failed sync
}

var _ persistence.Blobs = (*Folder)(nil)

// OpenFolder opens the blobs in dir, which is made when it is missing. Whatever was being written when the folder was
// last in use is removed. The caller makes sure that no other process uses it.
func OpenFolder(dir string, o FolderOptions) (*Folder, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find blob folder %s: %w", dir, err)
	}
	if err := os.MkdirAll(abs, folderMode); err != nil {
		return nil, fmt.Errorf("make blob folder %s: %w", abs, err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open blob folder %s: %w", abs, err)
	}
	f := &Folder{dir: abs, root: root, syncs: o.Durability != persistence.FileSync && !weak(NoFolderSync)}
	f.buffers.New = func() any {
		b := make([]byte, 0, bufferSize)
		return &b
	}
	if err := f.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare blob folder %s: %w", abs, err), root.Close())
	}
	return f, nil
}

// prepare empties incoming, makes durable the names that lead to blobs, and takes the time.
func (f *Folder) prepare() error {
	if err := f.root.RemoveAll(incoming); err != nil {
		return err
	}
	if err := f.root.Mkdir(incoming, folderMode); err != nil {
		return err
	}
	// A process that was killed may have left subfolders whose names were never synced.
	if err := f.syncFolder("."); err != nil {
		return err
	}
	if err := f.syncAbove(); err != nil {
		return err
	}
	return f.takeTime()
}

// syncAbove makes the name of the folder durable, and the names of the folders above it: which of them are new cannot
// be told after a kill, so all are synced. One that this process could not have made an entry in is left out.
func (f *Folder) syncAbove() error {
	if !f.syncs {
		return nil
	}
	for at := f.dir; at != filepath.Dir(at); {
		at = filepath.Dir(at)
		d, err := os.Open(at)
		if err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		if err != nil && !foreign(err) {
			return fmt.Errorf("sync folder %s: %w", at, err)
		}
	}
	return nil
}

// foreign tells of an error that a folder gives in which this process could not have made an entry.
func foreign(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EINVAL)
}

// tickWait bounds the wait for the next tick of the file system's clock. Clocks of Linux file systems tick every 1 to
// 10 ms.
const tickWait = 50 * time.Millisecond

// takeTime sets opened to a time of the file system's clock that is later than all blobs there are. When that clock
// does not tick soon, blobs of the last tick count as new ones, which is the safe side.
func (f *Folder) takeTime() (err error) {
	name := path.Join(incoming, rand.Text())
	probe, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, probe.Close(), f.root.Remove(name)) }()
	first, err := probe.Stat()
	if err != nil {
		return err
	}
	f.opened = first.ModTime()
	for end := time.Now().Add(tickWait); !f.opened.After(first.ModTime()) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		if _, err := probe.WriteAt([]byte{0}, 0); err != nil {
			return err
		}
		now, err := probe.Stat()
		if err != nil {
			return err
		}
		f.opened = now.ModTime()
	}
	return nil
}

// settled tells of a file whether it was there before this process opened the folder. Keep sees to it that a new file
// is never older than that, also when somebody sets the clock back.
func (f *Folder) settled(modified time.Time) bool { return modified.Before(f.opened) }

// subfolder is the name of the folder of d.
func subfolder(d persistence.Digest) string { return d.String()[:2] }

// blobName is the name of d's file in the folder.
func blobName(d persistence.Digest) string { return path.Join(subfolder(d), d.String()) }

// Path is the file that holds d, or would: for messages about damaged files.
func (f *Folder) Path(d persistence.Digest) string {
	return filepath.Join(f.dir, filepath.FromSlash(blobName(d)))
}

// unavailable wraps what a file operation answered.
func unavailable(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", persistence.ErrUnavailable, doing, err)
}

// condemn notes a failed sync: what it was for is lost, and a later sync may succeed without writing it, so this
// handle writes no more (security requirements, R6).
func (f *Folder) condemn(doing string, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken == nil {
		f.broken = fmt.Errorf("%s: %w", doing, err)
	}
	return unavailable(doing, err)
}

// Healthy is nil, or tells of the first sync that failed.
func (f *Folder) Healthy() error {
	f.closing.RLock()
	defer f.closing.RUnlock()
	return f.well()
}

// well is Healthy for a holder of closing.
func (f *Folder) well() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return unavailable("use blob folder "+f.dir, fs.ErrClosed)
	case f.broken != nil:
		return fmt.Errorf("%w: blob folder %s takes no more bytes until it is opened again: %w", persistence.ErrUnavailable, f.dir, f.broken)
	}
	return nil
}

// Close ends the use of the folder. It waits for Keep and Delete calls under way; unfinished writers can only be
// dropped afterwards. Open readers go on. A second call does nothing.
func (f *Folder) Close() error {
	f.closing.Lock()
	defer f.closing.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	return f.root.Close()
}

// Create begins a blob: a file in incoming.
func (f *Folder) Create(ctx context.Context) (persistence.BlobWriter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.Healthy(); err != nil {
		return nil, err
	}
	name := path.Join(incoming, rand.Text())
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, unavailable("create blob", err)
	}
	return &writer{folder: f, name: name, file: file, hash: sha256.New()}, nil
}

// publish gives the synced part its name, durably. After an error the name is what it was, as far as this process can
// see.
func (f *Folder) publish(part string, d persistence.Digest) error {
	f.closing.RLock()
	defer f.closing.RUnlock()
	sub := &f.names[d[0]]
	sub.Lock()
	defer sub.Unlock()
	if err := f.well(); err != nil { // also when the sync before us failed
		return err
	}
	if err := f.makeSubfolder(subfolder(d), &sub.durable); err != nil {
		return err
	}
	// The folder is opened before its entry changes: a handle reports what failed since it was opened.
	folder, err := f.root.Open(subfolder(d))
	if err != nil {
		return unavailable("open folder of blob", err)
	}
	defer folder.Close() // it was only read
	_, err = f.root.Lstat(blobName(d))
	held := err == nil
	if err := f.root.Rename(part, blobName(d)); err != nil {
		return unavailable("name blob", err)
	}
	if !f.syncs {
		return nil
	}
	if err := folder.Sync(); err != nil {
		if !held {
			_ = f.root.Remove(blobName(d)) // if that fails too, the name is an orphan that a sweep finds
		}
		return f.condemn("sync folder of blob "+d.String(), err)
	}
	return nil
}

// makeSubfolder makes a subfolder and its name durable, once. The caller holds the lock of the name.
func (f *Folder) makeSubfolder(name string, durable *bool) error {
	if *durable {
		return nil
	}
	err := f.root.Mkdir(name, folderMode)
	switch {
	case errors.Is(err, fs.ErrExist): // it was synced when the folder was opened
	case err != nil:
		return unavailable("make folder of blobs", err)
	default:
		if err := f.syncFolder("."); err != nil {
			return f.condemn("sync blob folder "+f.dir, err)
		}
	}
	*durable = true
	return nil
}

// syncFolder makes the names in a folder durable, unless the operator chose to leave that out.
func (f *Folder) syncFolder(name string) error {
	if !f.syncs {
		return nil
	}
	d, err := f.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Delete removes the file of d. When the sync of its folder fails afterwards the file is gone for this process, so
// Delete succeeds; at the worst it comes back with the next start, as an orphan that a sweep finds. But the folder
// takes no more bytes: a failed sync is final, whoever asked for it.
func (f *Folder) Delete(ctx context.Context, d persistence.Digest) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.closing.RLock()
	defer f.closing.RUnlock()
	sub := &f.names[d[0]]
	sub.Lock()
	defer sub.Unlock()
	err := f.root.Remove(blobName(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unavailable("delete blob", err)
	}
	if err := f.syncFolder(subfolder(d)); err != nil {
		_ = f.condemn("sync folder of deleted blob "+d.String(), err)
	}
	return nil
}
