package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// lookAtCopy is how often the growth of a snapshot is told of.
const lookAtCopy = 100 * time.Millisecond

// Snapshot writes the store, as it is at one moment, into a new file beside its work, and syncs the file; its name is
// the caller's to sync. See snapshot.
func (s *Store) Snapshot(ctx context.Context, file string, progress func(done, total int64)) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return snapshot(ctx, dialShared, s.folder.path(databaseName), file, progress)
}

// Snapshot is that of a Store, of a folder that is held.
func (h *Held) Snapshot(ctx context.Context, file string, progress func(done, total int64)) (err error) {
	from := h.folder.path(databaseName)
	alone, err := h.alone()
	if err != nil {
		return err
	}
	if alone {
		return snapshot(ctx, dialAlone, from, file, progress)
	}
	tidy, err := leftovers(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tidy()) }()
	return snapshot(ctx, dialShared, from, file, progress)
}

// snapshot is VACUUM INTO: one statement, so one snapshot, and it neither waits for the writer nor keeps it waiting. The
// backup interface of SQLite begins anew with each commit that comes in between, and files copied under a server would
// need its log at the same moment. The copy is dense besides: nothing that was removed is in its free pages. The file
// must not exist; after an error it may be there in part.
func snapshot(ctx context.Context, open func(file string) (*conn, error), from, to string, progress func(done, total int64)) (err error) {
	if err := reserve(to); err != nil {
		return err
	}
	c, err := open(from)
	if err != nil {
		return unreadable(err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := errors.Join(c.patience(lockWait), c.script("PRAGMA cache_size=-8192")); err != nil {
		return unreadable(err)
	}
	total, err := c.number("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
	if err != nil {
		return unreadable(err)
	}
	err = vacuumInto(ctx, c, to, func(done int64) { progress(min(done, total), total) })
	if damaged(err) { // other errors may be those of the disk that is copied to
		err = unreadable(err)
	}
	if err != nil {
		return fmt.Errorf("copy the database into %s: %w", to, err)
	}
	return syncFile(to)
}

// dialShared opens a database for reading that others may have open.
func dialShared(file string) (*conn, error) { return dial(file, true) }

// reserve makes the empty file that a snapshot fills, so that nobody else can read it at any time.
func reserve(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return fmt.Errorf("create snapshot: %w", err)
	}
	return f.Close()
}

// vacuumInto runs the statement, and tells meanwhile how long the file has become. The end of ctx breaks it off.
func vacuumInto(ctx context.Context, c *conn, to string, grown func(int64)) error {
	done := make(chan error, 1)
	go func() {
		arg := []driver.NamedValue{{Ordinal: 1, Value: to}}
		_, err := c.raw.(driver.ExecerContext).ExecContext(ctx, "VACUUM INTO ?", arg)
		done <- err
	}()
	tick := time.NewTicker(lookAtCopy)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return errors.Join(err, context.Cause(ctx))
			}
			return nil
		case <-tick.C:
			if info, err := os.Stat(to); err == nil {
				grown(info.Size())
			}
		}
	}
}

// syncFile makes the bytes of a file durable.
func syncFile(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// CopyAside copies the database file of a folder that is held, and its log, byte for byte, as they are, damage and all,
// to tabellion.db<suffix> in the same folder, and gives the name of the copy. Nothing is replaced.
func (h *Held) CopyAside(ctx context.Context, suffix string) (name string, err error) {
	from := h.folder.path(databaseName)
	name = from + suffix
	for _, ending := range []string{"-wal", ""} { // the log first: a copy of the file alone would pass for whole
		err := copyFile(ctx, from+ending, name+ending)
		if ending != "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("copy the database aside: %w", err)
		}
	}
	return name, h.folder.sync()
}

// copyFile copies a file into a new one, durably but for its name. What it began, it removes after an error.
func copyFile(ctx context.Context, from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = errors.Join(err, os.Remove(to))
		}
	}()
	for err == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err = io.CopyN(out, in, 8<<20)
	}
	if err != io.EOF {
		return err
	}
	return out.Sync()
}

// Mender repairs a database. Each of its methods is one transaction, durable when it returns. It is for one goroutine.
type Mender struct {
	ctx    context.Context
	c      *conn
	folder *folder
}

// Mend opens the database of a folder that is held for repairs. It is not migrated: an older format is an error.
func (h *Held) Mend(ctx context.Context) (*Mender, error) {
	if _, err := os.Stat(h.folder.path(databaseName)); err != nil {
		return nil, fmt.Errorf("look for database: %w", err)
	}
	c, err := dial(h.folder.path(databaseName), false)
	if err != nil {
		return nil, unreadable(err)
	}
	format, err := prepareWriter(c)
	if err == nil && int(format) != len(migrations) {
		err = fmt.Errorf("the data folder has format %d; migrate it to %d first", format, len(migrations))
	}
	if err == nil {
		err = settle(h.folder, c)
	}
	if err != nil {
		return nil, errors.Join(unreadable(err), c.close())
	}
	return &Mender{ctx: ctx, c: c, folder: h.folder}, nil
}

// Close writes everything back and ends the repairs.
func (m *Mender) Close() error {
	return errors.Join(settle(m.folder, m.c), m.c.close(), m.folder.sync())
}

// step runs fn in one transaction.
func (m *Mender) step(fn func() error) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	if err := m.c.script("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		err = m.c.script("COMMIT")
	}
	if err != nil {
		_ = m.c.script("ROLLBACK") // SQLite may have done it already
	}
	return unreadable(err)
}

// Reindex builds all indexes anew from their tables.
func (m *Mender) Reindex() error {
	return m.step(func() error { return m.c.script("REINDEX") })
}

// Head makes the row of a document's head say what its newest revision is. done is false when that revision is damaged
// or lost, so that nothing may be concluded.
func (m *Mender) Head(namespace, id string) (done bool, err error) {
	err = m.step(func() error {
		var c chainOf
		err := m.c.query(inspectOne, func(r row) error {
			l := readLine(r)
			c = chainOf{line: l, sound: l.damage == nil, chosen: true}
			return nil
		}, namespace, id)
		if err != nil || !c.chosen || c.verdict() != headWrong || !c.sound {
			return err
		}
		done = true
		_, err = m.c.exec(`UPDATE heads SET revision = ?, deleted = ?, seq = ?, updated = ?, kind = ?, schema_version = ?
WHERE namespace = ? AND id = ?`, c.own.revision, c.own.deleted, c.own.seq, c.own.updated, c.own.kind, c.own.schemaVersion, namespace, id)
		return err
	})
	return done && err == nil, err
}

// Inbound makes the inbound references of the revisions that are whole equal to their references. Those of a damaged
// revision stay: what it refers to cannot be known, so it is kept from purges.
func (m *Mender) Inbound() error {
	return m.step(func() error {
		if _, err := m.c.exec(strayInbound); err != nil {
			return err
		}
		t := tx{reader: reader{c: m.c}, wrote: true} // it writes within our transaction
		return m.c.query(inspectAll, func(r row) error {
			l := readLine(r)
			if l.document == nil {
				return nil
			}
			if err := t.write("DELETE FROM inbound WHERE source = ?", l.own.seq); err != nil {
				return err
			}
			return t.pointAt(l.document, l.own.seq)
		})
	})
}

// strayInbound are inbound references whose source is not there, or is another revision.
const strayInbound = `DELETE FROM inbound WHERE NOT EXISTS (SELECT 1 FROM heads h JOIN revisions r ON r.doc = h.doc
WHERE h.namespace = source_namespace AND h.id = source_id AND r.revision = source_revision AND r.seq = source)`

// Usage charges each namespace what it holds and has reserved.
func (m *Mender) Usage() error {
	type owed struct{ bytes, reserved int64 }
	return m.step(func() error {
		wrong := map[string]owed{}
		err := m.c.query(usageOwed, func(r row) error {
			if r.int(2) != 0 || r.int(1) != r.int(3) || r.int(4) != r.int(5) {
				wrong[r.text(0)] = owed{r.int(3), r.int(5)}
			}
			return nil
		})
		for namespace, o := range wrong {
			if err == nil {
				_, err = m.c.exec(`INSERT INTO usage (namespace, bytes, reserved) VALUES (?,?,?)
ON CONFLICT (namespace) DO UPDATE SET bytes = excluded.bytes, reserved = excluded.reserved`, namespace, o.bytes, o.reserved)
			}
		}
		return err
	})
}

// Pend makes an upload pending again that has received bytes which are not there, or wrong: its owner sends them anew.
// done is false when the upload is another by now, or its row is damaged.
func (m *Mender) Pend(namespace, id string) (done bool, err error) {
	err = m.step(func() error {
		t := tx{reader: reader{c: m.c}, wrote: true}
		u, err := t.upload(uploadByID, namespace, id)
		if err != nil || u == nil || u.State != persistence.UploadReceived || u.closed != 0 {
			return err
		}
		done = true
		u.State = persistence.UploadPending
		return t.rewriteUpload(u)
	})
	return done && err == nil, err
}

// SyncFolder makes the names in a folder durable.
func SyncFolder(dir string) error {
	if err := syncFolder(filepath.Clean(dir)); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}
