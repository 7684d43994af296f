// Package powercut is a file system that knows what a disk would hold if the power went
// out now.
//
// A mounted folder works as any other for the programs that use it. Behind it a model
// keeps apart what processes see and what is durable:
//
//   - The bytes and the length of a file become durable when the file is synced (fsync,
//     fdatasync, msync; O_SYNC writes).
//   - A name (created, renamed, removed, file or folder) becomes durable when the folder
//     that holds it is synced. Syncing a new file does not make its name durable. Journaled
//     file systems often do better; nothing promises it.
//   - A rename is one change: an image holds the old name or the new one. Syncing either of
//     its folders makes the whole of it durable, and whatever came before it in both.
//   - After a failed sync the file's unsynced content is lost, as on Linux: a later sync
//     succeeds without writing it. Only rewritten pages become durable.
//   - sync(2) and syncfs(2) do nothing. Owners, modes and times are not modelled: an image
//     has the modes last set. There are no hard links, symbolic links or extended attributes;
//     sockets work and are in no image.
//   - Stores through a shared memory mapping count as writes when the kernel writes them
//     back: at msync or fsync, or when it likes.
//
// Cut writes several images of one moment, each a state the disk could be in:
//
//	pc := powercut.MountForTest(t, 1)
//	... use pc.Dir(), remember what was acknowledged ...
//	images, err := pc.Cut(4, t.TempDir())
//	for _, image := range images { ... open image.Dir, nothing acknowledged may be missing ... }
//
// The file system is served by a process of its own, which is this same executable
// started again (see serve). A program that maps a file it serves itself comes to a halt
// sooner or later: its page fault blocks a thread that the garbage collector waits for,
// while serving that fault needs the garbage collector to finish. The second process also
// removes the mount when the first one dies.
package powercut

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrUnavailable is returned by Mount, with the reason, where there can be no mount: not
// on Linux, not as root, without /dev/fuse or without the right to mount.
var ErrUnavailable = errors.New("power-cut file system is unavailable")

// Kind is a way to choose an image from the unsynced changes.
type Kind string

const (
	// KindSynced takes no unsynced change.
	KindSynced Kind = "synced"
	// KindPrefix takes the first few unsynced changes, in the order of the system calls.
	KindPrefix Kind = "prefix"
	// KindSubset takes for each 4 KiB page the state after some of its unsynced writes, for
	// each file the first few unsynced changes of length, for each folder the first few
	// unsynced changes of names. A quarter of them takes all pages and a quarter none, and
	// the same, independently, goes for names.
	KindSubset Kind = "subset"
	// KindTorn is KindSubset with one page write cut at a border of 512 bytes: only the
	// bytes on one side of it arrived. Without a write that spans such a border it is KindSubset.
	KindTorn Kind = "torn"
)

// kinds is the order of the images of one cut. Further images repeat those behind the first.
var kinds = []Kind{KindSynced, KindPrefix, KindSubset, KindTorn}

// kindOf is the kind of the i-th image of a cut.
func kindOf(i int) Kind {
	if i == 0 {
		return KindSynced
	}
	return kinds[1+(i-1)%(len(kinds)-1)]
}

// Image is one possible state of the disk at the moment of a cut.
type Image struct {
	// Dir is a real folder with the content of the mounted one.
	Dir string
	// Kind says how it was chosen.
	Kind Kind
	// Seed chose it. The same seed chooses the same image from the same unsynced changes.
	Seed uint64
	// Detail says in a few words what was chosen, for messages.
	Detail string
}

// Call is a kind of file operation that can be made to fail.
type Call string

// The calls.
const (
	CallSync   Call = "sync"   // fsync, fdatasync, msync, of files and folders
	CallWrite  Call = "write"  // of files, as the kernel passes them on
	CallRename Call = "rename" // counted by the new name
	CallOpen   Call = "open"   // of files, creation included
)

// anyPath is the suffix that counts files and folders alike. No path holds it.
const anyPath = "\x00"

// Counts says what has happened since the mount.
type Counts struct {
	FileSyncs   int // successful syncs of files
	FolderSyncs int // successful syncs of folders
	FailedSyncs int // syncs that FailSync made fail
	Failed      int // calls of any kind that FailSync or FailCall made fail
	Writes      int // writes to files, as the kernel passed them on (it splits large ones)
	Unsynced    int // changes that no sync covers now
}

// FS is a mounted power-cut file system. Its methods are safe for concurrent use; Cut,
// Kill and the others take effect at one moment between two file operations.
type FS struct {
	dir     string
	seed    uint64
	server  *server   // the serving process
	control io.Closer // our end of the connection below
	closing sync.Once
	closed  error // of the first Close

	mu  sync.Mutex // one call at a time
	enc *json.Encoder
	dec *json.Decoder

	hookMu sync.Mutex
	onSync func(path string, dir bool)
}

// stopTimeout bounds the shutdown of the serving process. After it the process is killed.
const stopTimeout = 5 * time.Second

// Mount mounts a new, empty file system on the existing folder dir. The seed decides all
// random choices of later cuts. The error is ErrUnavailable where the machine does not allow it.
func Mount(dir string, seed uint64) (*FS, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	f := &FS{dir: dir, seed: seed}
	if err := f.start(); err != nil {
		return nil, err
	}
	if _, err := f.call(request{Op: opMount, Path: dir, Seed: seed}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Dir is the mounted folder, absolute and without symbolic links.
func (f *FS) Dir() string { return f.dir }

// Seed is the seed given to Mount.
func (f *FS) Seed() uint64 { return f.seed }

// Cut writes n images of this moment into new folders below into, which must not lie in
// the mounted folder and is created when missing. No file operation runs meanwhile, and
// the file system goes on afterwards. The first image is KindSynced, the second KindPrefix,
// the third KindSubset, the fourth KindTorn; further ones repeat the last three. After
// Kill, it gives images of the moment of death.
func (f *FS) Cut(n int, into string) ([]Image, error) {
	if n < 1 {
		return nil, fmt.Errorf("cut into %d images", n)
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return nil, err
	}
	into, err := filepath.EvalSymlinks(into)
	if err != nil {
		return nil, err
	}
	if into, err = filepath.Abs(into); err != nil {
		return nil, err
	}
	if into == f.dir || strings.HasPrefix(into, f.dir+string(filepath.Separator)) {
		return nil, fmt.Errorf("cut into %s: it lies in the mounted folder", into)
	}
	r, err := f.call(request{Op: opCut, N: n, Path: into})
	return r.Images, err
}

// FailSync makes one sync fail with errno: the after-th from now (1 is the next) of those
// whose path ends in suffix. Paths start with a slash, at the mounted folder; a folder's
// ends in one. An empty suffix counts all files and no folders, "/" all folders. The
// file's unsynced content is lost; unsynced names stay unsynced. Planned failures add up.
func (f *FS) FailSync(after int, errno syscall.Errno, suffix string) error {
	if after < 1 || errno == 0 {
		return fmt.Errorf("fail sync %d with error %d: both count from 1", after, int(errno))
	}
	_, err := f.call(request{Op: opFail, Call: CallSync, N: after, Errno: int(errno), Path: suffix})
	return err
}

// FailCall makes one call of a kind fail with errno, in any file or folder: the after-th from now (1 is the next). A
// failed call changes nothing, but for a sync, see FailSync.
func (f *FS) FailCall(call Call, after int, errno syscall.Errno) error {
	if after < 1 || errno == 0 {
		return fmt.Errorf("fail %s %d with error %d: both count from 1", call, after, int(errno))
	}
	_, err := f.call(request{Op: opFail, Call: call, N: after, Errno: int(errno), Path: anyPath})
	return err
}

// Forgive takes back the failures that are planned and have not come.
func (f *FS) Forgive() error {
	_, err := f.call(request{Op: opForgive})
	return err
}

// ReadOnly makes every later change fail with EROFS, in files that are open for writing too, as a kernel does that has
// met an error of the disk; or takes that back. What was changed before can be synced.
func (f *FS) ReadOnly(on bool) error {
	_, err := f.call(request{Op: opReadOnly, On: on})
	return err
}

// OnSync has hook called after each successful sync, before the process that asked for it
// gets its answer. Paths are those of FailSync. Calls do not overlap. The hook may use the
// mounted folder but must not sync in it; it may call Cut, and so cut at every sync. Nil
// removes it.
func (f *FS) OnSync(hook func(path string, dir bool)) error {
	f.hookMu.Lock()
	f.onSync = hook
	f.hookMu.Unlock()
	_, err := f.call(request{Op: opHook, On: hook != nil})
	return err
}

// Counts reports what has happened so far.
func (f *FS) Counts() (Counts, error) {
	r, err := f.call(request{Op: opCounts})
	return r.Counts, err
}

// Kill makes every later operation in the mounted folder fail with EIO and change nothing.
func (f *FS) Kill() error {
	_, err := f.call(request{Op: opKill})
	return err
}

// Close removes the mount, also while files in it are open (operations on them fail from
// then on), and ends the serving process. Images stay. A second call does nothing.
func (f *FS) Close() error {
	f.closing.Do(func() {
		// The server unmounts and ends when the connection does. No call is needed, which
		// might have to wait for one that hangs.
		f.control.Close()
		f.closed = f.server.stop(f.dir)
	})
	return f.closed
}

// call asks the serving process for something.
func (f *FS) call(q request) (response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var r response
	if err := f.enc.Encode(q); err != nil {
		return r, fmt.Errorf("ask the power-cut server: %w", err)
	}
	if err := f.dec.Decode(&r); err != nil {
		return r, fmt.Errorf("answer of the power-cut server: %w", err)
	}
	if r.Unavailable {
		return r, fmt.Errorf("%w: %s", ErrUnavailable, r.Err)
	}
	if r.Err != "" {
		return r, errors.New(r.Err)
	}
	return r, nil
}

// hear passes reported syncs to the hook and confirms each, until the server is gone.
func (f *FS) hear(conn io.ReadWriter) {
	dec, enc := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var e syncEvent
		if dec.Decode(&e) != nil {
			return
		}
		f.hookMu.Lock()
		hook := f.onSync
		f.hookMu.Unlock()
		if hook != nil {
			hook(e.Path, e.Dir)
		}
		if enc.Encode(true) != nil {
			return
		}
	}
}
