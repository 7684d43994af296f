package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// Bounds of the writer.
const (
	// maxQueue is how many calls wait at most; a further one waits for a place, no longer than maxWait.
	maxQueue = 1024
	maxWait  = time.Second
	// maxBatch and maxBatchBytes bound one transaction, in calls and payload bytes, and with it how long the first
	// caller of a batch waits for the last.
	maxBatch      = 256
	maxBatchBytes = 8 << 20
)

// The states of an op. Whoever moves it away from waiting decides its fate.
const (
	waiting   = iota
	taken     // by the writer: its outcome is that of the batch
	abandoned // by the caller: it never runs
)

// op is one call that waits for its place in a transaction.
type op struct {
	state atomic.Int32
	work  func(*tx) error
	done  chan struct{} // closed when the fields below hold

	err      error
	panicked any // what work panicked with; raised again in the caller
}

// writer is the one goroutine that writes, with its connection and the end of its audit chain.
type writer struct {
	store  *Store
	conn   *conn
	queue  chan *op
	random io.Reader // used in the writer's goroutine only

	// seq is the last one given to a revision; one whose transaction failed leaves a gap. Used in the writer's
	// goroutine only. The row with the highest is some document's head, which is never purged, so none comes twice.
	seq     int64
	chain   chain // as committed; used in the writer's goroutine only
	durable atomic.Pointer[audit.Head]
	log     checkpointer // used in the writer's goroutine only
}

// newWriter makes the writer; loop runs it.
func newWriter(s *Store, c *conn, name string, random io.Reader) (*writer, error) {
	w := &writer{store: s, conn: c, random: random, queue: make(chan *op, maxQueue)}
	w.log.limit = writeBackPages
	w.chain = chain{name: name, hash: audit.Genesis(name)}
	w.durable.Store(w.chain.head())
	var err error
	if w.seq, err = c.number("SELECT max(seq) FROM revisions"); err != nil {
		return nil, fmt.Errorf("find the last revision: %w", err)
	}
	return w, nil
}

// submit has work run by the writer in a savepoint of its own and returns once that is durable. It returns work's
// error, with everything that work wrote undone; persistence.ErrBusy when the call was never taken up; and the
// errors of a commit. After the call was taken up the end of ctx no longer matters: the answer is the commit's.
func (s *Store) submit(ctx context.Context, work func(*tx) error) error {
	o := &op{work: work, done: make(chan struct{})}
	if err := s.enqueue(ctx, o); err != nil {
		return err
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		if o.state.CompareAndSwap(waiting, abandoned) {
			return fmt.Errorf("%w: %w", persistence.ErrBusy, ctx.Err())
		}
		<-o.done
	}
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

// enqueue puts o into the queue, waiting a little for a place.
func (s *Store) enqueue(ctx context.Context, o *op) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if err := s.Healthy(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", persistence.ErrBusy, err)
	}
	select {
	case s.writer.queue <- o:
		return nil
	default:
	}
	patience := time.NewTimer(maxWait)
	defer patience.Stop()
	select {
	case s.writer.queue <- o:
		return nil
	case <-patience.C:
		return fmt.Errorf("%w: the queue is full", persistence.ErrBusy)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", persistence.ErrBusy, ctx.Err())
	}
}

// loop runs batches until the queue is closed and empty. A work that ends its goroutine (runtime.Goexit, as a failed
// test does) must not end the writer with it: the next one carries on.
func (w *writer) loop() {
	if weak(PinWriter) {
		runtime.LockOSThread()
	}
	finished := false
	defer func() {
		if finished {
			w.store.tasks.Done()
			return
		}
		go w.loop()
	}()
	for o := range w.queue {
		// Let callers who were just answered come back with their next call, so that it shares this commit. It
		// costs a lone caller nothing: there is nobody to let through.
		runtime.Gosched()
		w.batch(o)
		w.log.look(w)
	}
	w.log.stop(w)
	finished = true
}

// batch commits first and all calls that are waiting behind it in one transaction.
func (w *writer) batch(first *op) {
	b := &batch{w: w, chain: w.chain}
	defer b.answer()
	if broken := w.store.broken.Load(); broken != nil {
		b.take(first)
		b.fail(*broken)
		return
	}
	if _, err := w.conn.exec("BEGIN IMMEDIATE"); err != nil {
		b.take(first)
		b.fail(w.refused(err))
		return
	}
	b.open = true
	for o := first; o != nil && b.err == nil; o = b.next() {
		if b.take(o) {
			b.run(o)
		}
	}
	b.commit()
}

// refused says what a failure before the commit means: nothing changed.
func (w *writer) refused(err error) error {
	switch c := code(err); {
	case c == codeSync || c == codeFolderSync:
		w.store.condemn(err)
	case primary(err) == codeBusy || primary(err) == codeLocked:
		return fmt.Errorf("%w: %w", persistence.ErrBusy, err)
	}
	return unavailable(err)
}

// batch is one transaction being made.
type batch struct {
	w     *writer
	ops   []*op
	chain chain // the audit chain as it will be after the commit
	rows  []audit.Row
	bytes int
	open  bool  // a transaction is open
	purge bool  // content was removed
	err   error // the batch as a whole failed with this

	told bool           // everybody was answered already: AckBeforeCommit only
	late []func() error // records left for a second transaction: RecordLate only
}

// take makes o a member unless its caller has left.
func (b *batch) take(o *op) bool {
	if !o.state.CompareAndSwap(waiting, taken) {
		return false
	}
	b.ops = append(b.ops, o)
	return true
}

// next gives the next waiting call; nil when none is there or the batch is full. It never waits.
func (b *batch) next() *op {
	if len(b.ops) >= maxBatch || b.bytes >= maxBatchBytes {
		return nil
	}
	select {
	case o := <-b.w.queue:
		return o // nil when the queue is closed
	default:
		return nil
	}
}

// run runs one call. Its failure undoes only what it wrote itself, unless SQLite lost the transaction.
func (b *batch) run(o *op) {
	t := &tx{reader: reader{c: b.w.conn}, w: b.w}
	returned := false
	defer func() {
		if !returned {
			b.fail(unavailable(errors.New("a call ended the writer's goroutine")))
		}
	}()
	o.panicked, o.err = b.attempt(o, t)
	returned = true
	t.c = nil
	if t.lost != nil {
		b.fail(b.w.refused(t.lost))
		return
	}
	if o.err == nil && o.panicked == nil {
		if err := b.leave(t, "RELEASE one"); err != nil {
			return
		}
		b.rows = append(b.rows, t.rows...)
		b.bytes += t.bytes
		b.purge = b.purge || t.purged
		b.late = append(b.late, t.late...)
		return
	}
	if b.leave(t, "ROLLBACK TO one") == nil {
		b.leave(t, "RELEASE one")
	}
}

// leave runs a statement on the call's savepoint, if it has one.
func (b *batch) leave(t *tx, text string) error {
	if !t.wrote {
		return nil
	}
	_, err := b.w.conn.exec(text)
	if err != nil {
		b.fail(b.w.refused(err))
	}
	return err
}

// attempt calls the work and catches its panic.
func (b *batch) attempt(o *op, t *tx) (panicked any, err error) {
	defer func() {
		if panicked = recover(); panicked != nil {
			b.w.store.log.Error("a call panicked in its transaction", "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
		}
	}()
	if err := o.work(t); err != nil {
		return nil, err
	}
	return nil, t.failure
}

// fail gives all members one outcome, err, and undoes the transaction.
func (b *batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
	b.rollback()
}

// rollback ends an open transaction. SQLite has ended it by itself after some errors, and then says that none is
// there; the next BEGIN shows whether one is left.
func (b *batch) rollback() {
	if b.open {
		_, _ = b.w.conn.exec("ROLLBACK")
	}
	b.open = false
}

// commit chains the audit rows and commits.
//
// What a failed COMMIT means (R5, R6): SQLITE_BUSY comes before anything is written. SQLITE_FULL comes from writing a
// frame of the log, all of which are written before the sync, the one with the commit mark last: the mark is not
// there, nothing happened, and the log goes on from its last good end. Anything else may have come after the mark was
// on the disk: nobody knows, and this handle is done.
func (b *batch) commit() {
	if b.err != nil {
		return
	}
	if err := b.chain.insert(b.w.conn, b.rows); err != nil {
		b.fail(b.w.refused(err))
		return
	}
	if weak(AckBeforeCommit) {
		b.answerEarly()
	}
	_, err := b.w.conn.exec("COMMIT")
	switch {
	case err == nil:
		b.open = false
		b.commitLate()
		b.w.chain = b.chain
		b.w.log.bytes += b.bytes
		b.w.log.unclean = b.w.log.unclean || b.purge
		if len(b.rows) > 0 {
			b.w.durable.Store(b.chain.head())
		}
	case primary(err) == codeBusy || primary(err) == codeFull:
		b.fail(b.w.refused(err))
	default:
		b.w.store.condemn(err)
		b.fail(fmt.Errorf("%w: %w", persistence.ErrUnknown, err))
	}
}

// answer tells every member its outcome. A refusal that a call gave on the strength of what others in the batch had
// written is not given when that was not committed: then all share the failure.
func (b *batch) answer() {
	b.rollback()
	if b.told {
		return
	}
	for _, o := range b.ops {
		if b.err != nil && o.panicked == nil {
			o.err = b.err
		}
		close(o.done)
	}
}

// answerEarly is the weakness AckBeforeCommit, on a disk slow enough that a kill can meet it.
func (b *batch) answerEarly() {
	for _, o := range b.ops {
		close(o.done)
	}
	b.told = true
	time.Sleep(3 * time.Millisecond)
}

// commitLate is the weakness RecordLate: records follow in a transaction of their own. Without it there are none.
func (b *batch) commitLate() {
	if len(b.late) == 0 {
		return
	}
	_, _ = b.w.conn.exec("BEGIN IMMEDIATE")
	for _, record := range b.late {
		_ = record()
	}
	_, _ = b.w.conn.exec("COMMIT")
}
