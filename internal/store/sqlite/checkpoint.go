package sqlite

import (
	"errors"
	"fmt"
	"time"
)

// Checkpoints: how the log is written back into the database.
const (
	// lookEvery and lookBytes are the batches and payload bytes between two looks at the length of the log.
	lookEvery = 16
	lookBytes = 4 << 20
	// writeBackPages is the length of the log, in pages of 4 KiB, from which it is written back: long enough that a
	// page changed often is written back once, short enough that a start after a crash reads it in a blink.
	writeBackPages = 8192
	// restartPages is the length from which the writer waits restartWait for readers that keep the log from being
	// begun anew: callers feel it, which is better than a log that fills the disk.
	restartPages = 16 * writeBackPages
	restartWait  = 100 * time.Millisecond
)

// checkpointer keeps the log short. SQLite would do it within a commit, let a caller wait for it, and keep a failure
// to itself. Here a connection of its own writes back the bulk while commits go on; then the writer writes back the
// little that came meanwhile, between two batches, so that the log is done with and begins anew.
type checkpointer struct {
	conn    *conn
	limit   int64      // writeBackPages; tests use less
	done    chan error // how the pass in the background went; nil when none is running
	batches int        // since the last look, and the payload bytes in them
	bytes   int

	unclean bool // the log may hold content that was purged since it was last emptied
	reclaim bool // a sweep asks for the log to be emptied for that reason
}

// look is called by the writer after each batch.
func (k *checkpointer) look(w *writer) {
	k.batches++
	if w.store.broken.Load() != nil {
		return
	}
	if k.done != nil {
		select {
		case err := <-k.done:
			k.done = nil
			k.judge(w, errors.Join(err, passive(w.conn)))
		default:
		}
		return
	}
	if k.reclaim {
		k.reclaim = false
		k.judge(w, k.empty(w.conn))
		return
	}
	if k.batches < lookEvery && k.bytes < lookBytes {
		return
	}
	k.batches, k.bytes = 0, 0
	var pages int64
	_, err := w.conn.one("PRAGMA wal_checkpoint(NOOP)", func(r row) { pages = r.int(1) })
	switch {
	case err != nil:
	case pages >= restartPages:
		err = restart(w.conn)
	case pages >= k.limit:
		done := make(chan error, 1)
		k.done = done
		go func() { done <- passive(k.conn) }()
	}
	k.judge(w, err)
}

// empty writes everything back and cuts the log to nothing, so that neither file holds what was purged. When a reader
// keeps the log, the next sweep asks again.
func (k *checkpointer) empty(c *conn) error {
	if err := c.patience(restartWait); err != nil {
		return err
	}
	busy, err := c.number("PRAGMA wal_checkpoint(TRUNCATE)")
	k.unclean = err != nil || busy != 0
	return errors.Join(err, c.patience(lockWait))
}

// stop waits for the pass in the background.
func (k *checkpointer) stop(w *writer) {
	if k.done != nil {
		k.judge(w, <-k.done)
		k.done = nil
	}
}

// judge takes note of a failure. A log that cannot be written back for want of space, or because of a lock, is no
// loss and is written back later; after any other failure a sync may have gone wrong.
func (k *checkpointer) judge(w *writer, err error) {
	switch {
	case err == nil:
	case primary(err) == codeFull || primary(err) == codeBusy || primary(err) == codeLocked:
		w.store.log.Warn("the log could not be written back", "error", err)
	default:
		w.store.condemn(fmt.Errorf("write back the log: %w", err))
	}
}

// passive writes back as much as readers allow, without waiting for anybody.
func passive(c *conn) error {
	_, err := c.number("PRAGMA wal_checkpoint(PASSIVE)")
	return err
}

// restart writes everything back and waits a little for readers.
func restart(c *conn) error {
	if err := c.patience(restartWait); err != nil {
		return err
	}
	_, err := c.number("PRAGMA wal_checkpoint(RESTART)")
	return errors.Join(err, c.patience(lockWait))
}
