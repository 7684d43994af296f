package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"syscall"

	"modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// ErrUnreadable: SQLite cannot read the database at all.
var ErrUnreadable = errors.New("the database cannot be read")

// Result codes of SQLite that tell of damage.
const (
	codeCorrupt = 11
	codeNotADB  = 26

	codeRead      = codeIO | 1<<8  // SQLITE_IOERR_READ
	codeShortRead = codeIO | 2<<8  // SQLITE_IOERR_SHORT_READ
	codeData      = codeIO | 32<<8 // SQLITE_IOERR_DATA
	codeCorruptFS = codeIO | 33<<8 // SQLITE_IOERR_CORRUPTFS
)

// Result codes of SQLite that tell of a disk or a folder that does not give what reading needs, and nothing of damage.
const (
	codeReadOnly = 8
	codeCantOpen = 14

	codeShmSize = codeIO | 19<<8 // SQLITE_IOERR_SHMSIZE
)

// damaged tells of an error of SQLite that comes from what is on the disk: a page that makes no sense, a file that is
// no database, a place that cannot be read. Of the other errors of input and output none proves damage.
func damaged(err error) bool {
	switch primary(err) {
	case codeCorrupt, codeNotADB:
		return true
	}
	switch code(err) {
	case codeRead, codeShortRead, codeData, codeCorruptFS:
		return true
	}
	return false
}

// codeError is what SQLite answers to a statement that names a table, column or index which is not there.
const codeError = 1

// misfit tells of an error of SQLite that the statements of an Inspector, which are constants, get from another schema
// than this program's alone.
func misfit(err error) bool { return primary(err) == codeError }

// Held is a data folder whose lock this process has, without its being opened: for work on a folder that no server
// has. It is for one goroutine.
type Held struct{ folder *folder }

// Hold takes the lock of a data folder that exists, which is all it writes. Errors: ErrLocked, fs.ErrNotExist,
// persistence.ErrUnavailable on a full disk.
func Hold(dir string) (*Held, error) { return holdBy(dir, (*folder).acquire) }

// HoldForReading is Hold for who changes nothing: it also takes a folder on a disk that cannot be written.
func HoldForReading(dir string) (*Held, error) { return holdBy(dir, (*folder).acquireForReading) }

// holdBy is Hold with one of the ways to take the lock.
func holdBy(dir string, acquire func(*folder) error) (*Held, error) {
	f := &folder{dir: dir, syncs: true}
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("look for data folder %s: %w", dir, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("data folder %s is a file: %w", dir, fs.ErrNotExist)
	}
	if err := acquire(f); err != nil {
		return nil, unreadable(err)
	}
	return &Held{f}, nil
}

// Close gives the folder free.
func (h *Held) Close() error { return h.folder.close() }

// Database is the file of the database in a data folder.
func Database(dir string) string { return (&folder{dir: dir}).path(databaseName) }

// LockFile is the name of the file in a data folder that tells who has it.
const LockFile = lockName

// Inspect opens a snapshot of the database of a folder that is held. Nothing in the folder is changed by it: files that
// SQLite needs for reading are removed with Close, when they were not there before. The error is ErrUnreadable,
// ErrNewerFormat, fs.ErrNotExist without a database, persistence.ErrUnavailable when the disk does not give what reading
// needs, or one of the file system.
func (h *Held) Inspect(ctx context.Context) (*Inspector, error) {
	alone, err := h.alone()
	if err != nil {
		return nil, err
	}
	if alone {
		return InspectFile(ctx, h.folder.path(databaseName))
	}
	return inspectFile(ctx, h.folder.path(databaseName))
}

// alone tells whether the file of the database is all there is of it: then it is read by itself, and SQLite needs no
// room beside it. With a log that has something in it a disk that cannot be written is an error.
func (h *Held) alone() (bool, error) {
	for _, ending := range []string{"-wal", "-journal"} {
		info, err := os.Stat(h.folder.path(databaseName) + ending)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && info.Size() == 0:
			continue
		case err != nil:
			return false, fmt.Errorf("look for the log of the database: %w", err)
		case h.folder.readOnly:
			return false, fmt.Errorf("the database has a log beside it, %s%s, which cannot be read on a %w", databaseName, ending, syscall.EROFS)
		}
		return false, nil
	}
	return true, nil
}

// InspectFile is Inspect for a database file that nobody has open, as it is in a backup: that file alone is read, without
// locks. A log or a journal beside it is no part of a backup, and may be of anybody.
func InspectFile(ctx context.Context, file string) (*Inspector, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("look for database: %w", err)
	}
	c, err := dialAlone(file)
	if err != nil {
		return nil, unreadable(err)
	}
	i, err := newInspector(ctx, c)
	if err != nil {
		return nil, err
	}
	i.end = func() error { return nil }
	return i, nil
}

// inspectFile opens a snapshot of a database.
func inspectFile(ctx context.Context, file string) (*Inspector, error) {
	tidy, err := leftovers(file)
	if err != nil {
		return nil, err
	}
	i, err := inspectShared(ctx, file)
	if err != nil {
		return nil, errors.Join(err, tidy())
	}
	i.end = tidy
	return i, nil
}

// leftovers gives what removes the files that reading leaves beside a database that had none before.
func leftovers(file string) (tidy func() error, err error) {
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("look for database: %w", err)
	}
	var fresh []string
	for _, ending := range []string{"-wal", "-shm"} {
		if _, err := os.Lstat(file + ending); errors.Is(err, fs.ErrNotExist) {
			fresh = append(fresh, file+ending)
		}
	}
	return func() error {
		var errs []error
		for _, name := range fresh {
			info, err := os.Lstat(name)
			if err != nil || name == file+"-wal" && info.Size() != 0 {
				continue // a log with something in it is none of ours
			}
			errs = append(errs, os.Remove(name))
		}
		return errors.Join(errs...)
	}, nil
}

// Inspect opens a snapshot of the store beside its work, on a connection of its own: readers and the writer are not kept
// waiting. While it is open the log cannot be begun anew, so it grows with what is written; Close of the store waits
// for it, and what is being read then ends with an error.
func (s *Store) Inspect(ctx context.Context) (*Inspector, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	i, err := inspectShared(ctx, s.folder.path(databaseName))
	if err != nil {
		leave()
		return nil, err
	}
	i.end = func() error { leave(); return nil }
	return i, nil
}

// Closed tells whether Close was called.
func (s *Store) Closed() bool { return s.isClosed() }

// Dir is the data folder, absolute.
func (s *Store) Dir() string { return s.folder.dir }

// enter takes part in the store's life until leave: Close ends the context that it gives, and waits.
func (s *Store) enter(ctx context.Context) (inside context.Context, leave func(), err error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.isClosed() {
		return nil, nil, errClosed
	}
	s.tasks.Add(1) // the writer is counted still, so Close does not wait for nothing
	inside, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-s.closed:
			cancel(errClosed)
		case <-stop:
		}
	}()
	return inside, func() {
		close(stop)
		cancel(nil)
		s.tasks.Done()
	}, nil
}

// Inspector reads one snapshot of a database and tells what is not as it should be. It is for one goroutine.
type Inspector struct {
	ctx    context.Context
	c      *conn
	r      reader // on c
	format int
	end    func() error
}

// dialAlone opens a database file for reading as one that nobody changes.
func dialAlone(file string) (*conn, error) {
	name := url.URL{Scheme: "file", Path: file, RawQuery: "mode=ro&immutable=1&_dqs=0&_error_rc=1"}
	raw, err := new(sqlite.Driver).Open(name.String())
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return &conn{raw: raw, stmts: map[string]*stmt{}}, nil
}

// inspectShared opens a snapshot of a database that others may have open.
func inspectShared(ctx context.Context, file string) (*Inspector, error) {
	c, err := dial(file, true)
	if err != nil {
		return nil, unreadable(err)
	}
	return newInspector(ctx, c)
}

// newInspector takes a snapshot on a connection for reading, and closes that when it cannot.
func newInspector(ctx context.Context, c *conn) (*Inspector, error) {
	i := &Inspector{ctx: ctx, c: c, r: reader{c: c}}
	if err := i.begin(); err != nil {
		return nil, errors.Join(unreadable(err), c.close())
	}
	return i, nil
}

// begin takes the snapshot, and notes the format.
func (i *Inspector) begin() error {
	if err := errors.Join(i.c.patience(lockWait), i.c.script("PRAGMA query_only=1;PRAGMA trusted_schema=0;PRAGMA cache_size=-8192;BEGIN")); err != nil {
		return err
	}
	format, err := checkFormat(i.c)
	i.format = int(format)
	return err
}

// unfit is unreadable for the statements of an Inspector, which another schema makes impossible too.
func unfit(err error) error {
	if misfit(err) {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return unreadable(err)
}

// unreadable marks an error that comes from damage as ErrUnreadable, and one that comes from the disk and proves none as
// persistence.ErrUnavailable, with what to do.
func unreadable(err error) error {
	switch {
	case errors.Is(err, ErrUnreadable), errors.Is(err, persistence.ErrUnavailable):
		return err
	case damaged(err):
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	case full(err):
		return fmt.Errorf("%w: the disk is full; free some room and run it again (%w)", persistence.ErrUnavailable, err)
	}
	switch primary(err) {
	case codeIO, codeReadOnly, codeCantOpen:
		return fmt.Errorf("%w: the disk, or a right on the folder, fails; that says nothing of the data: look at both and run it again (%w)", persistence.ErrUnavailable, err)
	}
	return err
}

// full tells of an error that comes from a disk without room. SQLite has one code of its own for the file that readers of
// a log need beside the database.
func full(err error) bool {
	return primary(err) == codeFull || code(err) == codeShmSize || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Close ends the snapshot.
func (i *Inspector) Close() error {
	i.r.c = nil
	return errors.Join(i.c.close(), i.end())
}

// Format tells the format of the database, and whether this program has to migrate it first. Of an older one Rules tell
// only what SQLite says.
func (i *Inspector) Format() (format int, older bool) { return i.format, i.format < len(migrations) }

// each runs a query and hands each row on, until the context ends.
func (i *Inspector) each(text string, fn func(row) error, args ...any) error {
	n := 0
	return i.c.query(text, func(r row) error {
		if n++; n%256 == 1 {
			if err := context.Cause(i.ctx); err != nil {
				return err
			}
		}
		return fn(r)
	}, args...)
}

// long runs a statement that may take long before it gives its first row; the end of the context breaks it off.
func (i *Inspector) long(text string, fn func(row) error) (err error) {
	s, err := i.c.prepare(text)
	if err != nil {
		return err
	}
	rows, err := s.query.QueryContext(i.ctx, nil)
	if err != nil {
		return errors.Join(err, context.Cause(i.ctx))
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	for r := make(row, len(rows.Columns())); ; {
		if err := rows.Next(r); err != nil {
			return errors.Join(ended(err), context.Cause(i.ctx))
		}
		if err := fn(r); err != nil {
			return err
		}
	}
}

// Facts counts what a database holds.
type Facts struct {
	Namespaces, Documents, Revisions, Artifacts, Uploads, AuditRows int64
}

// Facts counts. What is not in an older format counts as none.
func (i *Inspector) Facts() (f Facts, err error) {
	counts := []struct {
		to     *int64
		format int // from which on the table is there
		text   string
	}{
		{&f.Namespaces, 1, "SELECT count(*) FROM usage"},
		{&f.Documents, 1, "SELECT count(*) FROM heads"},
		{&f.Revisions, 1, "SELECT count(*) FROM revisions"},
		{&f.AuditRows, 1, "SELECT count(*) FROM audit_rows"},
		{&f.Artifacts, 2, "SELECT count(*) FROM artifacts"},
		{&f.Uploads, 2, "SELECT count(*) FROM uploads"},
	}
	for _, c := range counts {
		if i.format < c.format {
			continue
		}
		if *c.to, err = i.c.number(c.text); err != nil {
			return f, unfit(err)
		}
	}
	return f, nil
}

// Need is a digest that an artifact, or an upload that has received its bytes, rests on.
type Need struct {
	Digest        persistence.Digest
	Size          int64
	Upload        bool // an upload's, not yet an artifact's
	Namespace, ID string
}

// needs are in order of their digests: two runs along an index, merged.
const needs = `SELECT digest, size, 0, namespace, id FROM artifacts INDEXED BY artifacts_digest UNION ALL
SELECT digest, size, 1, namespace, id FROM uploads INDEXED BY uploads_received WHERE state = 'received' ORDER BY 1`

// Needs tells of every digest that is needed, in order, once for each that needs it.
func (i *Inspector) Needs(fn func(Need) error) error {
	if i.format < 2 {
		return nil
	}
	return unfit(i.each(needs, func(r row) error {
		return fn(Need{Digest: r.array(0), Size: r.int(1), Upload: r.int(2) != 0, Namespace: r.text(3), ID: r.text(4)})
	}))
}

// Held tells whether anything needs the bytes of d.
func (i *Inspector) Held(d persistence.Digest) (bool, error) {
	if i.format < 2 {
		return false, nil
	}
	held, err := i.r.Held(d)
	return held, unfit(err)
}

// AuditLog is the audit trail of the snapshot, for audit.Verify. It takes no rows.
func (i *Inspector) AuditLog() audit.Log { return trail{i} }

// trail is the readable half of an audit.Log.
type trail struct{ i *Inspector }

// errReadOnly answers who would write to a snapshot.
var errReadOnly = errors.New("a snapshot takes no rows")

// AppendAudit, AuditHead and AddAuditHead refuse: nobody writes here.
func (t trail) AppendAudit(context.Context, []audit.Row) error { return errReadOnly }

// AuditHead refuses.
func (t trail) AuditHead(context.Context) (audit.Head, error) { return audit.Head{}, errReadOnly }

// AddAuditHead refuses.
func (t trail) AddAuditHead(context.Context, audit.Head) error { return errReadOnly }

// AuditWriters implements audit.Log.
func (t trail) AuditWriters(context.Context) (names []string, err error) {
	err = t.i.each("SELECT name FROM audit_writers ORDER BY name", func(r row) error {
		names = append(names, r.text(0))
		return nil
	})
	return names, unfit(err)
}

// AuditHeads implements audit.Log. What cannot be decoded has no good signature either.
func (t trail) AuditHeads(context.Context) (heads []audit.Head, err error) {
	err = t.i.each(`SELECT writer, position, hash, at, cites, signature FROM audit_heads a
WHERE position = (SELECT max(position) FROM audit_heads b WHERE b.writer = a.writer) ORDER BY writer`, func(r row) error {
		h := audit.Head{Writer: r.text(0), Position: r.int(1), Hash: r.array(2), Signature: r.blob(5)}
		h.At, _ = decodeTime(r.text(3))
		_ = json.Unmarshal(r.blob(4), &h.Cites)
		heads = append(heads, h)
		return nil
	})
	return heads, unfit(err)
}

// AuditRows implements audit.Log.
func (t trail) AuditRows(_ context.Context, writer string, after int64, limit int) (records []audit.Record, err error) {
	number, err := t.i.c.number("SELECT number FROM audit_writers WHERE name = ?", writer)
	if err != nil || number == 0 {
		return nil, unfit(err)
	}
	base := number << positionBits
	err = t.i.each("SELECT place, hash, row FROM audit_rows WHERE place > ? AND place < ? ORDER BY place LIMIT ?", func(r row) error {
		records = append(records, audit.Record{Writer: writer, Position: r.int(0) - base, Hash: r.array(1), Row: r.blob(2)})
		return nil
	}, base+max(after, 0), base+1<<positionBits, int64(limit))
	return records, unfit(err)
}
