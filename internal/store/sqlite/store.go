// Package sqlite keeps everything of one process in one SQLite database: documents, idempotency records, the audit
// chain, API keys, sealing keys and once-only ids.
//
// One process holds a data folder; a second one gets ErrLocked. All writes go through one goroutine, which gathers
// what is waiting into one transaction, each call in a savepoint of its own, and acknowledges all after one sync.
//
//	s, err := sqlite.Open(ctx, dir, sqlite.Options{})
//	if errors.Is(err, sqlite.ErrLocked) { ... the *LockedError tells by whom ... }
//	defer s.Close()
//
// Durability: what was acknowledged survives a kill of the process and a power cut (WAL with synchronous=FULL, checked
// on every connection, and the folder synced before the first acknowledgement). A failed sync ends the right of a
// Store to write for ever: it answers persistence.ErrUnavailable until somebody opens the folder again.
package sqlite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// Store is an open data folder. All methods are safe for concurrent use.
type Store struct {
	folder *folder
	level  persistence.Durability
	clock  clock.Clock
	log    *slog.Logger
	retain time.Duration
	writer *writer

	readers chan *conn // idle readers; all of them are in here when no View runs
	seats   int        // number of readers

	closing sync.RWMutex  // held for reading while a call puts work into the queue
	closed  chan struct{} // closed by Close
	closer  sync.Once
	tasks   sync.WaitGroup // the writer and the sweeper
	broken  atomic.Pointer[error]

	identity sync.Mutex
	owner    owner // what the lock file says; guarded by identity
}

// The parts of the system that this store serves.
var (
	_ persistence.Store = (*Store)(nil)
	_ identity.Keys     = (*Store)(nil)
	_ audit.Log         = (*Store)(nil)
	_ seal.Keyring      = (*Store)(nil)
)

// Options of Open. The zero value is what a server uses.
type Options struct {
	// Durability is FileAndDirectorySync when empty. FileSync leaves out the syncs of folders and nothing else.
	Durability persistence.Durability
	// Retention is how long idempotency records are kept at least; the contract's seven days when 0.
	Retention time.Duration
	// Clock judges the ages of once-only ids and of records to sweep. Nil is the machine's clock.
	Clock clock.Clock
	// Rand is the source of names and secrets. Nil is the system's.
	Rand io.Reader
	// Log gets what no caller is there to hear: background work that went wrong, panics. Nil discards it.
	Log *slog.Logger
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.Durability == "" {
		o.Durability = persistence.FileAndDirectorySync
	}
	if o.Retention == 0 {
		o.Retention = persistence.DefaultLimits().IdempotencyRetention
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// minReaders is the least number of connections for reading; with more processors there are two for each.
const minReaders = 4

// fdatasync switches SQLite, process-wide, to the call that leaves timestamps out of a sync. It makes the same bytes
// and the same length durable, and a commit into a log file that is being reused no longer waits for the journal of
// the file system. Platforms without the call keep fsync.
var fdatasync = sync.OnceFunc(func() { _, _ = sqlite.Fdatasync(true) })

// Open opens the data folder dir and makes it when it is missing. It returns an error for which errors.Is tells
// ErrLocked or ErrNewerFormat, or one that names the folder. ctx bounds nothing but the wait before the work starts:
// recovery after a crash is not interrupted.
func Open(ctx context.Context, dir string, o Options) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	fdatasync()
	f, err := openFolder(dir, o.Durability)
	if err != nil {
		return nil, err
	}
	s := &Store{
		folder: f, level: o.Durability, clock: o.Clock, log: o.Log, retain: o.Retention,
		closed: make(chan struct{}),
		owner:  owner{PID: os.Getpid()},
	}
	if err := s.start(o.Rand); err != nil {
		return nil, errors.Join(fmt.Errorf("open data folder %s: %w", f.dir, err), s.abandon())
	}
	s.tasks.Add(2)
	go s.writer.loop()
	go s.sweepOften()
	return s, nil
}

// start opens the connections and brings the database into a state that is durable as a whole.
func (s *Store) start(random io.Reader) error {
	name := make([]byte, 16)
	if _, err := io.ReadFull(random, name); err != nil {
		return fmt.Errorf("name the audit writer: %w", err)
	}
	c, err := openWriter(s.folder)
	if err != nil {
		return err
	}
	if s.writer, err = newWriter(s, c, hex.EncodeToString(name), random); err != nil {
		return errors.Join(err, c.close())
	}
	if s.writer.log.conn, err = openCheckpointer(s.folder); err != nil {
		return err
	}
	s.seats = max(minReaders, 2*runtime.GOMAXPROCS(0))
	s.readers = make(chan *conn, s.seats)
	for range s.seats {
		r, err := openReader(s.folder)
		if err != nil {
			return err
		}
		s.readers <- r
	}
	return nil
}

// synced are the settings that make a commit durable. The last two matter on macOS, where a plain fsync leaves the
// bytes in the cache of the disk.
const synced = "PRAGMA synchronous=FULL;PRAGMA fullfsync=1;PRAGMA checkpoint_fullfsync=1;"

// openWriter opens the one connection that writes.
func openWriter(f *folder) (*conn, error) {
	c, err := dial(f.path(databaseName), false)
	if err != nil {
		return nil, err
	}
	if err := setUpWriter(c); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if err := settle(f, c); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if weak(SyncNormal) {
		return c, c.script("PRAGMA synchronous=NORMAL")
	}
	return c, nil
}

// setUpWriter makes the settings of the connection and brings the database to the newest format.
func setUpWriter(c *conn) error {
	format, err := prepareWriter(c)
	if err != nil {
		return err
	}
	return migrate(c, format)
}

// prepareWriter makes the settings of the connection that writes, and gives the format of the database.
func prepareWriter(c *conn) (format int64, err error) {
	if err := c.patience(lockWait); err != nil {
		return 0, err
	}
	if format, err = checkFormat(c); err != nil {
		return 0, err
	}
	// The page cache, 8 MiB, holds the inner pages of the indexes of some hundred thousand documents; each commit
	// looks through all of it, so more is slower. The log is written back by the checkpointer. temp_store keeps the
	// undo of savepoints in memory. secure_delete writes zeros over what is removed: pages that become free, too.
	err = c.script("PRAGMA journal_mode=WAL;" + synced + "PRAGMA foreign_keys=1;" +
		"PRAGMA wal_autocheckpoint=0;PRAGMA temp_store=MEMORY;PRAGMA cache_size=-8192;PRAGMA secure_delete=ON")
	if err != nil {
		return 0, fmt.Errorf("set up connection: %w", err)
	}
	return format, verify(c, false)
}

// openCheckpointer opens the connection that writes back the log.
func openCheckpointer(f *folder) (*conn, error) {
	c, err := dial(f.path(databaseName), false)
	if err != nil {
		return nil, err
	}
	err = errors.Join(c.patience(lockWait), c.script(synced+"PRAGMA foreign_keys=1;PRAGMA cache_size=-256"))
	if err == nil {
		err = verify(c, false)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up connection: %w", err), c.close())
	}
	return c, nil
}

// settle makes everything durable that the database shows, before anybody is told of it.
//
// A process that was killed after a failed sync leaves commits in the log that can be read, from the page cache, and
// are not on the disk, where a later sync does not put them. Writing the whole log back into the database, with a
// sync of that, leaves nothing to chance. Then the log exists anew, and its name is made durable before the first
// commit: SQLite does that too, at the first sync of a new log, but it does not report a failure.
func settle(f *folder, c *conn) error {
	busy, err := c.number("PRAGMA wal_checkpoint(TRUNCATE)")
	if err != nil {
		return fmt.Errorf("write back the log: %w", err)
	}
	if busy != 0 {
		return fmt.Errorf("write back the log: %w", persistence.ErrBusy)
	}
	if _, err := os.Stat(f.path(databaseName + "-wal")); err != nil {
		return fmt.Errorf("look for the log: %w", err)
	}
	return f.sync()
}

// openReader opens a connection that cannot write.
func openReader(f *folder) (*conn, error) {
	c, err := dial(f.path(databaseName), true)
	if err != nil {
		return nil, err
	}
	err = errors.Join(c.patience(lockWait), c.script(synced+"PRAGMA foreign_keys=1;"+
		"PRAGMA cache_size=-4096;PRAGMA query_only=1"))
	if err == nil {
		err = verify(c, true)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up connection: %w", err), c.close())
	}
	return c, nil
}

// verify checks that a connection has what durability and safety rest on: SQLite ignores a setting it cannot make.
func verify(c *conn, readOnly bool) error {
	var mode string
	if _, err := c.one("PRAGMA journal_mode", func(r row) { mode = r.text(0) }); err != nil {
		return fmt.Errorf("verify connection: %w", err)
	}
	if mode != "wal" {
		return fmt.Errorf("verify connection: journal_mode is %q, not wal: the file system may lack shared memory", mode)
	}
	queryOnly := int64(0)
	if readOnly {
		queryOnly = 1
	}
	for _, want := range []struct {
		pragma string
		value  int64
	}{{"synchronous", 2}, {"foreign_keys", 1}, {"query_only", queryOnly}} {
		got, err := c.number("PRAGMA " + want.pragma)
		if err != nil {
			return fmt.Errorf("verify connection: %w", err)
		}
		if got != want.value {
			return fmt.Errorf("verify connection: %s is %d, not %d", want.pragma, got, want.value)
		}
	}
	return nil
}

// Durability is what an acknowledgement means.
func (s *Store) Durability() persistence.Durability { return s.level }

// SetAddress writes into the lock file where this process can be reached, for those who get ErrLocked.
func (s *Store) SetAddress(address string) error {
	s.identity.Lock()
	defer s.identity.Unlock()
	select {
	case <-s.closed:
		return errClosed
	default:
	}
	s.owner.Address = address
	return s.folder.sign(s.owner)
}

// errClosed is what calls get after Close.
var errClosed = fmt.Errorf("%w: it is closed", persistence.ErrUnavailable)

// Healthy tells whether the store takes writes: nil, or why not.
func (s *Store) Healthy() error {
	select {
	case <-s.closed:
		return errClosed
	default:
	}
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// condemn ends the right to write for ever, for the first reason given.
func (s *Store) condemn(reason error) {
	err := fmt.Errorf("%w: it must be opened again: %w", persistence.ErrUnavailable, reason)
	if s.broken.CompareAndSwap(nil, &err) {
		s.log.Error("the store takes no more writes until it is opened again", "error", reason)
	}
}

// Close finishes the work that was taken in, waits for running Views, and gives the folder free. Further calls get
// persistence.ErrUnavailable. A second Close does nothing.
func (s *Store) Close() error {
	var err error
	s.closer.Do(func() {
		close(s.closed)
		s.closing.Lock()
		close(s.writer.queue)
		s.closing.Unlock()
		s.tasks.Wait()
		err = s.abandon()
	})
	return err
}

// abandon closes what is open, the writer last: its close writes the log back and removes it, so the folder is
// synced once more. What is lost here was never acknowledged.
func (s *Store) abandon() error {
	var errs []error
	if s.writer != nil {
		for range s.seats {
			select {
			case r := <-s.readers:
				errs = append(errs, r.close())
			default:
				if s.isClosed() {
					errs = append(errs, (<-s.readers).close()) // a View still runs
				}
			}
		}
		if s.writer.log.conn != nil {
			errs = append(errs, s.writer.log.conn.close())
		}
		errs = append(errs, s.writer.conn.close(), s.folder.sync())
	}
	s.identity.Lock()
	defer s.identity.Unlock()
	return errors.Join(append(errs, s.folder.close())...)
}

// isClosed tells whether Close was called.
func (s *Store) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// View implements persistence.Store. The snapshot is taken at fn's first read.
//
// Readers see synced commits only: at a commit SQLite writes the frames to the log, syncs the log, and only then
// writes the header of the shared index (walIndexWriteHdr at the end of walFrames), which is where readers learn of
// the commit. When the sync fails the header stays as it was, so Views go on being right after it.
func (s *Store) View(ctx context.Context, fn func(persistence.Reader) error) error {
	return s.read(ctx, func(r *reader) error { return fn(r) })
}

// read runs fn on a connection of its own, in one read transaction.
func (s *Store) read(ctx context.Context, fn func(*reader) error) (err error) {
	c, err := s.seat(ctx)
	if err != nil {
		return err
	}
	r := &reader{c: c}
	defer func() {
		r.c = nil
		if _, e := c.exec("ROLLBACK"); e != nil && err == nil {
			err = unavailable(e)
		}
		s.readers <- c
	}()
	if _, err := c.exec("BEGIN"); err != nil {
		return unavailable(err)
	}
	return fn(r)
}

// seat takes an idle reader.
func (s *Store) seat(ctx context.Context) (*conn, error) {
	if s.isClosed() {
		return nil, errClosed
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", persistence.ErrBusy, ctx.Err())
	}
	select {
	case c := <-s.readers:
		return c, nil
	case <-s.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", persistence.ErrBusy, ctx.Err())
	}
}

// unavailable makes a failure of SQLite, before any commit, what callers are told.
func unavailable(err error) error { return fmt.Errorf("%w: %w", persistence.ErrUnavailable, err) }
