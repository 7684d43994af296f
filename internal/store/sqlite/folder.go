package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// Names in the data folder. SQLite adds databaseName-wal and databaseName-shm with the mode of the database.
const (
	databaseName = "tabellion.db"
	lockName     = "tabellion.lock"
)

// Modes of what is made here. The database holds sealing keys and digests of API keys.
const (
	folderMode fs.FileMode = 0o700
	fileMode   fs.FileMode = 0o600
)

// ErrLocked is the target for errors.Is when another process holds the data folder; the error is a *LockedError.
var ErrLocked = errors.New("the data folder is in use by another process")

// LockedError tells who holds a data folder, as far as the holder wrote it down.
type LockedError struct {
	Dir     string
	PID     int    // 0 when unknown
	Address string // where the holder can be reached, "" when it has not said
}

// Error names the folder and its holder.
func (e *LockedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "data folder %s is in use by another process", e.Dir)
	if e.PID != 0 {
		fmt.Fprintf(&b, " (pid %d", e.PID)
		if e.Address != "" {
			fmt.Fprintf(&b, ", %s", e.Address)
		}
		b.WriteByte(')')
	}
	return b.String()
}

// Is makes the error match ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// folder is the data folder with its lock, which is held until close.
type folder struct {
	dir   string // absolute
	lock  *os.File
	syncs bool // the folder's own entries are synced (persistence.v1, section 11)

	readOnly bool // the disk cannot be written, see acquireForReading
}

// owner is what the lock file says of its holder.
type owner struct {
	PID     int    `json:"pid"`
	Address string `json:"address,omitempty"`
}

// openFolder makes the data folder when it is missing, takes its lock and makes the database file durable, empty at
// first. On an error nothing is held.
func openFolder(dir string, level persistence.Durability) (*folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find data folder %s: %w", dir, err)
	}
	f := &folder{dir: dir, syncs: level != persistence.FileSync}
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return nil, fmt.Errorf("make data folder %s: %w", dir, err)
	}
	if err := f.acquire(); err != nil {
		return nil, err
	}
	if err := f.prepare(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// path is the path of a file in the folder.
func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// acquire takes the lock. The kernel drops it when the process ends, however it ends.
func (f *folder) acquire() error {
	if err := f.take(os.O_RDWR | os.O_CREATE); err != nil {
		return err
	}
	if err := f.sign(owner{PID: os.Getpid()}); err != nil {
		return errors.Join(err, f.close())
	}
	return nil
}

// acquireForReading takes the lock for who writes nothing. A disk without room leaves the lock unsigned. On one that
// cannot be written the file is locked as it is; without a file there is no lock, and none is needed while the disk
// stays so.
func (f *folder) acquireForReading() error {
	err := f.take(os.O_RDWR | os.O_CREATE)
	switch {
	case err == nil:
		if err := f.sign(owner{PID: os.Getpid()}); err != nil && !full(err) {
			return errors.Join(err, f.close())
		}
		return nil
	case !errors.Is(err, syscall.EROFS):
		return err
	}
	f.readOnly = true
	if err := f.take(os.O_RDONLY); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// take opens the lock file and locks it.
func (f *folder) take(flags int) error {
	file, err := os.OpenFile(f.path(lockName), flags, fileMode)
	if err != nil {
		return fmt.Errorf("open lock file of data folder %s: %w", f.dir, err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		held := f.heldBy(file)
		file.Close()
		return held
	}
	if err != nil {
		file.Close()
		return fmt.Errorf("lock data folder %s: %w", f.dir, err)
	}
	f.lock = file
	return nil
}

// heldBy reads who holds the lock. A holder that is just writing may not be readable: then nothing is known of it.
func (f *folder) heldBy(file *os.File) *LockedError {
	var o owner
	if text, err := io.ReadAll(io.LimitReader(file, 4096)); err == nil {
		_ = json.Unmarshal(text, &o) // unreadable is unknown
	}
	return &LockedError{Dir: f.dir, PID: o.PID, Address: o.Address}
}

// sign writes the holder into the lock file. It is for people and for the next opener; nothing depends on it, so it
// is not synced.
func (f *folder) sign(o owner) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := f.lock.Truncate(0); err != nil {
		return fmt.Errorf("write lock file of data folder %s: %w", f.dir, err)
	}
	if _, err := f.lock.WriteAt(append(text, '\n'), 0); err != nil {
		return fmt.Errorf("write lock file of data folder %s: %w", f.dir, err)
	}
	return nil
}

// prepare makes the database file, and the names that lead to it durable before it: a database file that exists
// tells that the folders above it are safe, also after a kill at any point here.
func (f *folder) prepare() error {
	file := f.path(databaseName)
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f.create(file)
	case err != nil:
		return fmt.Errorf("look at database of data folder %s: %w", f.dir, err)
	case info.Mode().Perm()&^fileMode != 0:
		if err := os.Chmod(file, fileMode); err != nil {
			return fmt.Errorf("protect database of data folder %s: %w", f.dir, err)
		}
	}
	return nil
}

// create makes the empty database file.
func (f *folder) create(file string) error {
	if err := f.syncAbove(); err != nil {
		return err
	}
	db, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return fmt.Errorf("create database in data folder %s: %w", f.dir, err)
	}
	if err := errors.Join(db.Sync(), db.Close()); err != nil {
		return fmt.Errorf("create database in data folder %s: %w", f.dir, err)
	}
	return f.sync()
}

// sync makes the names in the folder durable, unless the operator chose to leave that out. (SQLite syncs the folder by
// itself when it has made a log, whatever was chosen; that is more than promised, and not reported when it fails.)
func (f *folder) sync() error {
	if !f.syncs {
		return nil
	}
	if err := syncFolder(f.dir); err != nil {
		return fmt.Errorf("sync data folder %s: %w", f.dir, err)
	}
	return nil
}

// syncAbove makes the name of the data folder durable, and the names of the folders above it: which of them are new
// cannot be told after a kill, so all are synced. A folder that may not be read, or cannot be synced, was not made
// here, with one exception that counts: the direct parent.
func (f *folder) syncAbove() error {
	if !f.syncs {
		return nil
	}
	parent := filepath.Dir(f.dir)
	for at := parent; ; at = filepath.Dir(at) {
		err := syncFolder(at)
		if err != nil && at == parent && !foreign(err) {
			return fmt.Errorf("sync parent of data folder %s: %w", f.dir, err)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// foreign tells of an error that a folder gives which this process could not have made an entry in.
func foreign(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EINVAL)
}

// syncFolder syncs one folder.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// close drops the lock. The lock file stays: removing it would race with the next opener.
func (f *folder) close() error {
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close()
	f.lock = nil
	return err
}
