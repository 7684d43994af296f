package maintain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// unfinishedText stands in the place of the database while a restore is under way. It is no database, so nothing opens
// the folder as a store, and it tells people who look what to do.
const unfinishedText = "tabellion: a restore into this folder has not been finished.\nRun tabellion restore again with the same backup: it goes on.\n"

// unfinishedMark is the content of that file: the text, and which backup it is.
func unfinishedMark(m *Manifest) string {
	sum := sha256.Sum256([]byte(m.Database + "\n" + m.AuditKey))
	return unfinishedText + "backup " + hex.EncodeToString(sum[:]) + "\n"
}

// unfinishedMost bounds that file, in bytes: no database is as small.
const unfinishedMost = 512

// restoring tells whether a restore into a folder was broken off. The caller has the folder's lock, or knows that the file
// is no open database: to close the file of one takes away the locks that SQLite has on it.
func restoring(dir string) (bool, error) {
	mark, err := unfinished(dir)
	return mark != "", err
}

// unfinished gives the mark of a restore that was broken off, "" when there is none.
func unfinished(dir string) (mark string, err error) {
	f, err := regular(os.OpenFile(sqlite.Database(dir), os.O_RDONLY|syscall.O_NONBLOCK, 0)) // a link may lead to a database
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, unfinishedMost))
	if err != nil || !strings.HasPrefix(string(text), unfinishedText) {
		return "", err
	}
	return string(text), nil
}

// Restore makes a data folder of a backup. The backup is verified: its database before anything is touched, the bytes
// while they are copied, and the folder at the end, after the store was opened once and migrated where that is due.
//
// A folder with something in it is refused, see ErrNotEmpty and Force; one in which a restore of the same backup was broken
// off is gone on with. A backup is as trusted as everybody who could write to it, see RestoreReport. The database comes last: after an error, or a kill, before that, the folder is no store, and a server
// refuses it; after that it is a whole store, and Check tells what the restore did not come to tell. sqlite.ErrLocked
// tells that a server has the folder. A *DamagedError tells that the backup is damaged.
func Restore(ctx context.Context, from, dir string, o RestoreOptions) (*RestoreReport, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		from, err = filepath.Abs(from)
	}
	if err == nil {
		err = apart(from, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	r := &RestoreReport{Dir: dir, Trust: trustWords}
	if r.Manifest, err = readBackup(ctx, from, o.Progress); err != nil {
		return nil, err
	}
	held, err := r.take(o)
	if err == nil {
		err = errors.Join(r.fill(ctx, from, o.Progress), held.Close())
	}
	if err == nil {
		err = r.open(ctx, o.Progress)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil && r.Aside != "" {
		err = fmt.Errorf("%w (what was in the folder before is in %s)", err, r.Aside)
	}
	if err != nil {
		return nil, fmt.Errorf("restore into %s: %w", dir, err)
	}
	return r, nil
}

// readBackup verifies what makes a folder a backup, and the database in it.
func readBackup(ctx context.Context, from string, p Progress) (m Manifest, err error) {
	m, err = ReadManifest(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, fmt.Errorf("restore from %s: no whole backup is there, for without %s it was not finished or is none: %w", from, manifestName, fs.ErrNotExist)
	case err != nil:
		return m, fmt.Errorf("restore: %w", err)
	case m.Backup != backupFormat:
		return m, fmt.Errorf("restore from %s: the backup has format %d, this program knows %d: use the program that made it", from, m.Backup, backupFormat)
	}
	sum, size, err := digestFile(ctx, sqlite.Database(from), func(done, total int64) { p.tell(stageDigest, done, total) })
	if err != nil {
		return m, fmt.Errorf("restore from %s: read the database: %w", from, err)
	}
	if sum != m.Database || size != m.Bytes {
		return m, &DamagedError{Doing: "restore from " + from, Findings: []Finding{
			find(kindDatabase, "file "+sqlite.Database(from), "the database is not the one that was backed up: its digest is "+sum),
		}}
	}
	return m, fits(ctx, from)
}

// fits refuses the database of a backup that has a newer format, or a schema that is not this program's.
func fits(ctx context.Context, from string) error {
	i, err := sqlite.InspectFile(ctx, sqlite.Database(from))
	if err != nil {
		return fmt.Errorf("restore from %s: %w", from, err)
	}
	return errors.Join(sound(i, "restore from "+from), i.Close())
}

// sound refuses a schema that is not this program's: a trigger in it would be run with the first write.
func sound(i *sqlite.Inspector, doing string) error {
	var found []Finding
	err := i.Schema(func(f sqlite.Flaw) { found = append(found, find(string(f.Kind), f.Where, f.What)) })
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if len(found) > 0 {
		return &DamagedError{Doing: doing, Findings: found}
	}
	return nil
}

// take makes the folder empty and ours. An unfinished restore of the same backup is gone on with; of that of another one
// nothing is kept.
func (r *RestoreReport) take(o RestoreOptions) (held *sqlite.Held, err error) {
	if held, err = sqlite.Hold(r.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if held != nil {
		mark, err := unfinished(r.Dir)
		if err == nil && mark != "" && mark != unfinishedMark(&r.Manifest) && !o.Force {
			err = fmt.Errorf("%w: a restore of another backup into it was broken off: run that one again, or use --force, which moves it aside", ErrNotEmpty)
		}
		if err != nil || mark == unfinishedMark(&r.Manifest) {
			return held, closeOn(err, held)
		}
	}
	if r.Aside, err = clear(r.Dir, o.Force, moment(o.Now)); err != nil || r.Aside != "" || held == nil {
		if held != nil { // its lock went along with the old folder
			err = errors.Join(err, held.Close())
		}
		if err != nil {
			return nil, err
		}
		if held, err = sqlite.Hold(r.Dir); err != nil {
			return nil, err
		}
	}
	return held, closeOn(writeFile(sqlite.Database(r.Dir), []byte(unfinishedMark(&r.Manifest))), held)
}

// closeOn gives the folder free when there is an error.
func closeOn(err error, held *sqlite.Held) error {
	if err != nil {
		err = errors.Join(err, held.Close())
	}
	return err
}

// fill copies: the bytes, the audit key, and last the database, which takes the place of the text that says that the
// restore is not finished.
func (r *RestoreReport) fill(ctx context.Context, from string, p Progress) error {
	i, err := sqlite.InspectFile(ctx, sqlite.Database(from))
	if err != nil {
		return err
	}
	_, err = copyBlobs(ctx, i, atRest{filepath.Join(from, blobFolder)}, r.Dir, p)
	if err = errors.Join(err, i.Close()); err != nil {
		return err
	}
	if err := r.copyKey(from); err != nil {
		return err
	}
	database := sqlite.Database(r.Dir)
	sum, _, err := copyFile(ctx, sqlite.Database(from), database, func(done, total int64) { p.tell(stageDatabase, done, total) })
	if err != nil {
		return err
	}
	if sum != r.Database {
		return errors.New("the database of the backup changed while it was copied: restore again")
	}
	for _, ending := range []string{"-wal", "-shm"} { // of no database that was here
		if err := os.Remove(database + ending); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return publish(database)
}

// copyKey brings the audit signing key back.
func (r *RestoreReport) copyKey(from string) error {
	if r.AuditKey == "" {
		return nil
	}
	text, err := readSmall(filepath.Join(from, auditKey), maxKey)
	if err != nil {
		return fmt.Errorf("copy the audit key: %w", err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != r.AuditKey {
		return &DamagedError{Doing: "copy the audit key", Findings: []Finding{
			find(KindAuditKey, "file "+filepath.Join(from, auditKey), "it is not the one that was backed up"),
		}}
	}
	return writeFile(filepath.Join(r.Dir, auditKey), text)
}

// open opens the store once, which migrates it where that is due, and checks the folder. Its bytes were hashed while
// they were copied.
func (r *RestoreReport) open(ctx context.Context, p Progress) error {
	s, err := sqlite.Open(ctx, r.Dir, sqlite.Options{})
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if r.Check, err = Check(ctx, r.Dir, CheckOptions{Progress: p}); err != nil {
		return err
	}
	if r.Check.Damaged() {
		return &DamagedError{Doing: "check the restored folder", Findings: damages(r.Check.Findings)}
	}
	return nil
}
