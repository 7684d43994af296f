package maintain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// origin is what a backup is made of.
type origin struct {
	dir      string // the data folder
	blobs    holder
	snapshot func(ctx context.Context, file string, progress func(done, total int64)) error
}

// BackupOpen makes a backup of a data folder beside the server that has it: of the moment at which its snapshot begins,
// so that everything acknowledged before the call is in it, and nothing of what began after its end. hold keeps bytes
// from being removed until release. The backup is checked before it counts as one.
//
// The target must not exist or be empty, see ErrNotEmpty. After an error, or a kill, it holds no backup.json: what is
// there is no backup. A *DamagedError tells that the folder itself is damaged, and names where; ErrReopened that the store
// or the bytes were closed before the end.
func BackupOpen(ctx context.Context, s *sqlite.Store, b *blob.Folder, hold func() (release func()), dataDir, to string, o BackupOptions) (*BackupReport, error) {
	defer hold()()
	report, err := backup(ctx, origin{dataDir, b, s.Snapshot}, to, o)
	return report, reopened(ctx, s, err)
}

// Backup is BackupOpen of a data folder that no server has; sqlite.ErrLocked tells that one has it. It also takes a
// folder of an older format, as it is, for the time before a migration.
func Backup(ctx context.Context, dir, to string, o BackupOptions) (*BackupReport, error) {
	held, err := sqlite.HoldForReading(dir)
	if err != nil {
		return nil, err
	}
	brokenOff, err := restoring(dir)
	if err == nil && brokenOff {
		err = fmt.Errorf("back up %s: a restore into it was not finished; run it again first", dir)
	}
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	report, err := backup(ctx, origin{dir, atRest{filepath.Join(dir, blobFolder)}, held.Snapshot}, to, o)
	return report, errors.Join(err, held.Close())
}

// backup makes a backup. Its order: the database in part, the bytes, the audit key, the database under its name, the
// check, backup.json.
func backup(ctx context.Context, from origin, to string, o BackupOptions) (_ *BackupReport, err error) {
	to, err = filepath.Abs(to)
	if err == nil {
		err = apart(from.dir, to)
	}
	if err != nil {
		return nil, fmt.Errorf("back up: %w", err)
	}
	r := &BackupReport{Dir: to, Secrets: secretsWords}
	r.Manifest = Manifest{Backup: backupFormat, Program: o.Version}
	release, err := r.place(o)
	if err != nil {
		return nil, fmt.Errorf("back up: %w", err)
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := r.fill(ctx, from, o); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		var damaged *DamagedError
		if errors.As(err, &damaged) {
			damaged.Next = nextStep(damaged.Findings)
		}
		return nil, fmt.Errorf("back up into %s (what is there now is no whole backup): %w", to, err)
	}
	return r, nil
}

// nextStep says what to do about damage that no backup can be made of.
func nextStep(found []Finding) string {
	const byHand = "copy the data folder as it is, with the server stopped"
	bytes := []string{KindBlobMissing, KindBlobSize, KindBlobDamaged}
	if slices.ContainsFunc(found, func(f Finding) bool { return !slices.Contains(bytes, f.Kind) }) {
		return "run tabellion check, which says what to do about each; meanwhile " + byHand
	}
	return "send the same bytes again, which heals them; or purge the artifacts, where retention allows it; or " + byHand
}

// place makes the target empty. Until release a server can neither have it nor what was moved aside.
func (r *BackupReport) place(o BackupOptions) (release func() error, err error) {
	if _, err := vacant(r.Dir, o.Force); err != nil {
		return nil, err
	}
	if release, err = claim(r.Dir); err != nil {
		return nil, err
	}
	if r.Aside, err = clear(r.Dir, o.Force, moment(o.Now)); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// fill does the work of a backup into an empty folder.
func (r *BackupReport) fill(ctx context.Context, from origin, o BackupOptions) error {
	database := sqlite.Database(r.Dir)
	r.At = moment(o.Now)
	tell := func(done, total int64) { o.Progress.tell(stageDatabase, done, total) }
	if err := from.snapshot(ctx, database+partialEnding, tell); err != nil {
		return err
	}
	if err := r.copyBytes(ctx, from, database+partialEnding, o.Progress); err != nil {
		return err
	}
	if err := r.copyKey(from.dir); err != nil {
		return err
	}
	var err error
	hashing := func(done, total int64) { o.Progress.tell(stageDigest, done, total) }
	if r.Database, r.Bytes, err = digestFile(ctx, database+partialEnding, hashing); err != nil {
		return err
	}
	if err := publish(database); err != nil {
		return err
	}
	if err := r.verify(ctx, o.Progress); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return writeManifest(r.Dir, &r.Manifest)
}

// copyBytes copies what the snapshot needs.
func (r *BackupReport) copyBytes(ctx context.Context, from origin, database string, p Progress) error {
	i, err := sqlite.InspectFile(ctx, database)
	if err != nil {
		return err
	}
	r.Format, _ = i.Format()
	if err := sound(i, "copy the database"); err != nil {
		return errors.Join(err, i.Close())
	}
	done, err := copyBlobs(ctx, i, from.blobs, r.Dir, p)
	r.Blobs, r.BlobBytes = done.blobs, done.bytes
	return errors.Join(err, i.Close())
}

// copyKey copies the audit signing key, without which a restored trail cannot be verified, if there is one.
func (r *BackupReport) copyKey(dir string) error {
	text, err := readSmall(filepath.Join(dir, auditKey), maxKey)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy the audit key: %w", err)
	}
	sum := sha256.Sum256(text)
	r.AuditKey = hex.EncodeToString(sum[:])
	return writeFile(filepath.Join(r.Dir, auditKey), text)
}

// verify checks the backup as it lies there. Its bytes were hashed while they were copied.
func (r *BackupReport) verify(ctx context.Context, p Progress) error {
	report, err := checkBackup(ctx, r.Dir, p)
	if err != nil {
		return err
	}
	r.Documents, r.Revisions, r.Artifacts, r.AuditRows = report.Documents, report.Revisions, report.Artifacts, report.AuditRows
	if report.Damaged() {
		return &DamagedError{Doing: "check the backup", Findings: damages(report.Findings)}
	}
	return nil
}

// checkBackup is Check of a backup.
func checkBackup(ctx context.Context, dir string, p Progress) (*CheckReport, error) {
	i, err := sqlite.InspectFile(ctx, sqlite.Database(dir))
	if err != nil {
		return nil, err
	}
	c := newChecker(ctx, dir, atRest{filepath.Join(dir, blobFolder)}, CheckOptions{Progress: p})
	err = c.run(i)
	return c.result(errors.Join(err, i.Close()))
}
