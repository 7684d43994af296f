package maintain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// Names of a backup, beside those of a data folder.
const (
	manifestName  = "backup.json"
	partialEnding = ".partial" // of a file that is being written
)

// Modes of what is made here: a backup holds sealing keys, digests of API keys and the audit key.
const (
	folderMode fs.FileMode = 0o700
	fileMode   fs.FileMode = 0o600
)

// secretsWords say what a backup holds.
const secretsWords = "the backup holds the secrets of the server (the audit signing key, the keys that seal cursors, the digests of API keys): keep it as private as the data folder"

// trustWords say what a restore cannot verify.
const trustWords = "backup.json holds checksums and no signature: the backup is as trustworthy as everybody who could write to its folder"

// backupFormat is the format of a backup, beside that of the database in it.
const backupFormat = 1

// stamp names a moment in a file's name.
func stamp(at time.Time) string { return at.UTC().Format("20060102T150405.000Z") }

// moment is at, or the machine's time.
func moment(at time.Time) time.Time {
	if at.IsZero() {
		at = time.Now()
	}
	return at.UTC()
}

// apart refuses two folders of which one is in the other, or both are the same.
func apart(a, b string) error {
	ra, err := real(a)
	if err != nil {
		return err
	}
	rb, err := real(b)
	if err != nil {
		return err
	}
	if within(ra, rb) || within(rb, ra) {
		return fmt.Errorf("%s and %s are one in the other: choose a folder that has nothing to do with it", a, b)
	}
	return nil
}

// within tells whether a is b or in it.
func within(a, b string) bool {
	rel, err := filepath.Rel(b, a)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// real is a path without symbolic links, as far as it exists.
func real(name string) (string, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	for at, rest := abs, ""; ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		found, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(found, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return "", err
		}
	}
}

// ignored are names that do not make a folder one with something in it: a lock file without a store, and what a file
// system puts into its root.
var ignored = []string{sqlite.LockFile, "lost+found"}

// content lists what is in a folder; nothing when there is no folder.
func content(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !slices.Contains(ignored, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// describe tells people what is in a folder.
func describe(dir string, names []string) string {
	partial := filepath.Base(sqlite.Database(dir)) + partialEnding
	m, err := ReadManifest(dir)
	switch {
	case err == nil:
		return fmt.Sprintf("a backup of %s is in it", m.At.Format(time.RFC3339))
	case slices.Contains(names, partial):
		return "a backup that was not finished is in it"
	case slices.Contains(names, filepath.Base(sqlite.Database(dir))):
		return describeStore(dir)
	}
	return fmt.Sprintf("it holds %d files or folders, such as %s", len(names), names[0])
}

// describeStore tells people what a folder with a database and no backup.json is. A store has a lock file from its
// beginning, as a restore has; a backup has none. Nothing is opened: the database may be one that this process has open.
func describeStore(dir string) string {
	locked, err := exists(filepath.Join(dir, sqlite.LockFile))
	if err == nil && !locked {
		return "a backup that was not finished is in it"
	}
	if info, err := os.Lstat(sqlite.Database(dir)); err == nil && info.Size() > 0 && info.Size() <= unfinishedMost {
		return "a restore that was not finished is in it"
	}
	return "a store is in it"
}

// vacant refuses a folder with something in it, unless that may be moved aside. used tells that there is something.
func vacant(dir string, force bool) (used bool, err error) {
	names, err := content(dir)
	if err != nil {
		return false, fmt.Errorf("look into %s: %w", dir, err)
	}
	if len(names) > 0 && !force {
		return true, fmt.Errorf("%s: %w: %s; choose another folder, or --force, which moves it aside", dir, ErrNotEmpty, describe(dir, names))
	}
	return len(names) > 0, nil
}

// clear makes sure that a folder has nothing in it, by moving it aside with force, and then is there, private. aside is
// where it went. Who calls it has the lock of a folder that may be a server's.
func clear(dir string, force bool, now time.Time) (aside string, err error) {
	used, err := vacant(dir, force)
	if err != nil {
		return "", err
	}
	if used {
		aside = dir + ".before-" + stamp(now)
		if err := moveAside(dir, aside); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return aside, fmt.Errorf("make %s: %w", dir, err)
	}
	if err := os.Chmod(dir, folderMode); err != nil {
		return aside, fmt.Errorf("protect %s: %w", dir, err)
	}
	return aside, sqlite.SyncFolder(filepath.Dir(dir))
}

// claim takes the lock of a folder that a backup goes to, when it looks like a store's: it must not be moved aside under a
// server. release is never nil.
func claim(dir string) (release func() error, err error) {
	release = func() error { return nil }
	for _, name := range []string{filepath.Join(dir, sqlite.LockFile), sqlite.Database(dir)} {
		there, err := exists(name)
		if err != nil {
			return release, fmt.Errorf("look into %s: %w", dir, err)
		}
		if !there {
			continue
		}
		held, err := sqlite.Hold(dir)
		if errors.Is(err, sqlite.ErrLocked) { // not wrapped: it is not the lock of the folder that is backed up
			return release, fmt.Errorf("%s: %w, and its lock is taken: %v; choose another folder, or end that process first", dir, ErrNotEmpty, err)
		}
		if err != nil {
			return release, err
		}
		return held.Close, nil
	}
	return release, nil
}

// moveAside renames a folder to a name that is not in use.
func moveAside(dir, aside string) error {
	if _, err := os.Lstat(aside); err == nil {
		return fmt.Errorf("move %s aside: %s exists", dir, aside)
	}
	if err := os.Rename(dir, aside); err != nil {
		return fmt.Errorf("move %s aside (a folder that is a mount point cannot be moved: empty it by hand): %w", dir, err)
	}
	return nil
}

// ReadManifest reads backup.json of a backup. Without it the folder holds no whole backup, and the error is
// fs.ErrNotExist.
func ReadManifest(dir string) (m Manifest, err error) {
	text, err := readSmall(filepath.Join(dir, manifestName), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read %s of %s: %w", manifestName, dir, err)
	}
	return m, nil
}

// Bounds of small files, in bytes: package audit reads no more of its key, and backup.json has less than 1 KiB.
const (
	maxManifest = 1 << 20
	maxKey      = 4 << 10
)

// errIrregular: something that is no file is in the place of one.
var errIrregular = errors.New("it is no regular file")

// regular refuses an open file that is none, such as a pipe or a device, and closes it.
func regular(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: errIrregular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openRegular opens a file of a folder that anybody may have filled: without following a link, or waiting at a pipe.
func openRegular(name string) (*os.File, error) {
	return regular(os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0))
}

// readSmall reads a file as openRegular does, and refuses one of more than most bytes.
func readSmall(name string, most int64) ([]byte, error) {
	f, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return text, err
}

// writeManifest makes a folder a whole backup: its last step.
func writeManifest(dir string, m *Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, manifestName), append(text, '\n'))
}

// writeFile writes a file durably, under another name first.
func writeFile(name string, text []byte) error {
	f, err := os.OpenFile(name+partialEnding, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return publish(name)
}

// publish gives a synced file its name, durably.
func publish(name string) error {
	if err := os.Rename(name+partialEnding, name); err != nil {
		return err
	}
	return sqlite.SyncFolder(filepath.Dir(name))
}

// copyFile copies a file to <to>.partial, syncs it, and gives the digest and length of what was copied. It replaces what
// an earlier attempt has left there.
func copyFile(ctx context.Context, from, to string, progress func(done, total int64)) (sum string, size int64, err error) {
	in, err := openRegular(from)
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return "", 0, err
	}
	out, err := os.OpenFile(to+partialEnding, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return "", 0, err
	}
	h := sha256.New()
	size, err = pour(ctx, io.MultiWriter(out, h), in, func(done int64) { progress(done, info.Size()) })
	if err == nil {
		err = out.Sync()
	}
	return hex.EncodeToString(h.Sum(nil)), size, errors.Join(err, out.Close())
}

// digestFile reads a file and gives its digest and length.
func digestFile(ctx context.Context, name string, progress func(done, total int64)) (sum string, size int64, err error) {
	in, err := openRegular(name)
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return "", 0, err
	}
	h := sha256.New()
	size, err = pour(ctx, h, in, func(done int64) { progress(done, info.Size()) })
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// pour copies until the end of in or of ctx.
func pour(ctx context.Context, out io.Writer, in io.Reader, progress func(done int64)) (done int64, err error) {
	buffer := make([]byte, 256<<10)
	for {
		if err := context.Cause(ctx); err != nil {
			return done, err
		}
		n, err := in.Read(buffer)
		if n > 0 {
			if _, err := out.Write(buffer[:n]); err != nil {
				return done, err
			}
			done += int64(n)
			progress(done)
		}
		if err == io.EOF {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
}
