package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/clock"
)

// Times and sizes of the recorder.
const (
	// groupFor is how long entries for the store are gathered: with the commit they are there within 100 ms
	// (middle, D10).
	groupFor = 40 * time.Millisecond
	// groupMost bounds one batch, in entries.
	groupMost = 1000
	// flushEvery is how often the lines of reads are written and the head of the chain is signed.
	flushEvery = time.Second
	// retryAfter is how long the store is left alone after it refused a batch.
	retryAfter = 200 * time.Millisecond
	// commitTimeout bounds one commit of a batch, or of a head.
	commitTimeout = 5 * time.Second
)

// Defaults of RecorderConfig.
const (
	defaultQueue     = 8192
	defaultFileBytes = 64 << 20
	defaultKeep      = 8
	defaultPending   = 8 << 20
)

// RecorderConfig is what a recorder needs. Log, Dir, Signer, Clock and Logger are required.
type RecorderConfig struct {
	Log    Log     // the store
	Dir    string  // folder of the files of reads
	Signer *Signer // of the chain
	Clock  clock.Clock
	Logger *slog.Logger

	Queue     int   // entries that wait for the store at most; 0 is 8192
	FileBytes int64 // size at which the file of reads is rotated; 0 is 64 MiB
	Keep      int   // full files that are kept; 0 is 8
	Pending   int   // bytes of lines that wait for the file at most; 0 is 8 MiB
}

// Recorder takes entries that are not committed with an effect, and signs the chain of this process. Its methods
// never wait for a disk: what cannot be kept is lost, counted, noted in the trail where the gap is, and shown by
// Healthy. It is safe for concurrent use.
type Recorder struct {
	cfg   RecorderConfig
	queue chan Row
	reads *readLog

	mu       sync.Mutex
	closed   bool
	dropped  int64 // entries for the store lost and not yet told of in the trail
	lost     int64 // entries for the store lost in all
	storeErr error // of the last commit of entries
	signErr  error // of the last signing

	left  []Row // what storeLoop could not store before Close
	head  Head  // last signed head; belongs to the signing goroutine
	begun bool  // cites are fixed
	cites []Cite

	full  chan struct{} // asks for an early flush of the file
	stop  chan struct{}
	tasks sync.WaitGroup
}

// NewRecorder starts a recorder. Close it before the store.
func NewRecorder(cfg RecorderConfig) (*Recorder, error) {
	if cfg.Queue == 0 {
		cfg.Queue = defaultQueue
	}
	if cfg.FileBytes == 0 {
		cfg.FileBytes = defaultFileBytes
	}
	if cfg.Keep == 0 {
		cfg.Keep = defaultKeep
	}
	if cfg.Pending == 0 {
		cfg.Pending = defaultPending
	}
	reads, err := openReadLog(cfg.Dir, cfg.FileBytes, cfg.Keep, cfg.Pending)
	if err != nil {
		return nil, err
	}
	r := &Recorder{
		cfg: cfg, queue: make(chan Row, cfg.Queue), reads: reads,
		full: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	r.tasks.Go(r.storeLoop)
	r.tasks.Go(r.fileLoop)
	r.tasks.Go(r.signLoop)
	return r, nil
}

// Store queues an entry for the store.
func (r *Recorder) Store(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		if r.dropped > 0 && len(r.queue)+1 < cap(r.queue) {
			r.queue <- lostEntry(e.Time, r.dropped)
			r.dropped = 0
		}
		select {
		case r.queue <- e.Encode():
			return
		default:
		}
	}
	r.lost++
	r.dropped++
}

// lostEntry tells in the trail that entries are missing.
func lostEntry(at time.Time, n int64) Row {
	e := Entry{Time: at, Kind: KindSurface, Outcome: "lost", Count: int(n), Note: "entries before this one were lost: they could not be stored in time"}
	return e.Encode()
}

// Read queues an entry for the file of allowed reads.
func (r *Recorder) Read(e Entry) {
	if r.reads.add(&e) {
		select {
		case r.full <- struct{}{}:
		default:
		}
	}
}

// Commit stores one entry, ahead of those that are queued, and is durable when it returns nil.
func (r *Recorder) Commit(ctx context.Context, e Entry) error {
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return errors.New("the audit trail is closed")
	}
	return r.append(ctx, []Row{e.Encode()})
}

// storeLoop commits entries in groups until Close, and then what is left.
func (r *Recorder) storeLoop() {
	for {
		select {
		case row := <-r.queue:
			if r.left = r.commit(r.gather(row)); r.left != nil {
				return
			}
		case <-r.stop:
			return
		}
	}
}

// gather waits a little for company of the first entry.
func (r *Recorder) gather(first Row) []Row {
	rows := []Row{first}
	timer := time.NewTimer(groupFor)
	defer timer.Stop()
	for len(rows) < groupMost {
		select {
		case row := <-r.queue:
			rows = append(rows, row)
		case <-timer.C:
			return rows
		case <-r.stop:
			return rows
		}
	}
	return rows
}

// commit stores rows, and tries again until that succeeds; it returns them when the recorder is closed before. A
// commit with an unknown outcome may store rows twice, which their correlation shows; that is better than not at all.
func (r *Recorder) commit(rows []Row) (left []Row) {
	for {
		err := r.append(context.Background(), rows)
		if err == nil {
			return nil
		}
		r.cfg.Logger.Error("audit entries are not stored yet", "entries", len(rows), "error", err)
		timer := time.NewTimer(retryAfter)
		select {
		case <-timer.C:
		case <-r.stop:
			timer.Stop()
			return rows
		}
	}
}

// append commits rows once and notes how it went.
func (r *Recorder) append(ctx context.Context, rows []Row) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	err := r.cfg.Log.AppendAudit(ctx, rows)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.storeErr = err
	return err
}

// countLost counts entries that will not be stored.
func (r *Recorder) countLost(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost += int64(n)
	r.dropped += int64(n)
}

// fileLoop writes the lines of reads each second, and sooner when there are many.
func (r *Recorder) fileLoop() {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
		case <-r.full:
		case <-r.stop:
			return
		}
		err := r.reads.flush()
		if err != nil && !failing {
			r.cfg.Logger.Error("lines of the audit trail are not written yet", "error", err)
		}
		failing = err != nil
	}
}

// signLoop signs the head each second when it has moved.
func (r *Recorder) signLoop() {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.stop:
			return
		}
		if err := r.sign(context.Background()); err != nil {
			r.cfg.Logger.Error("the head of the audit chain is not signed", "error", err)
		}
	}
}

// sign stores a signed head if there are rows since the last one. It is called by one goroutine at a time.
func (r *Recorder) sign(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	err := r.signHead(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signErr = err
	return err
}

// signHead does the work of sign.
func (r *Recorder) signHead(ctx context.Context) error {
	h, err := r.cfg.Log.AuditHead(ctx)
	if err != nil {
		return fmt.Errorf("read the head of the audit chain: %w", err)
	}
	if h.Position == r.head.Position {
		return nil
	}
	if !r.begun {
		heads, err := r.cfg.Log.AuditHeads(ctx)
		if err != nil {
			return fmt.Errorf("read the heads to cite: %w", err)
		}
		r.cites, r.begun = tips(heads, h.Writer), true
	}
	// Every head repeats the cites of the first one, because a store gives only the newest.
	h.Cites, h.At = r.cites, r.cfg.Clock.Now().UTC().Truncate(time.Millisecond)
	r.cfg.Signer.Sign(&h)
	if err := r.cfg.Log.AddAuditHead(ctx, h); err != nil {
		return fmt.Errorf("store the head of the audit chain: %w", err)
	}
	r.head = h
	return nil
}

// Losses gives how many entries were lost since the start: for the store, and for the file of reads.
func (r *Recorder) Losses() (store, reads int64) {
	r.mu.Lock()
	store = r.lost
	r.mu.Unlock()
	reads, _, _ = r.reads.health()
	return store, reads
}

// Healthy is nil when entries are stored, written and signed. Otherwise it says what fails now, and how much was lost
// since the start.
func (r *Recorder) Healthy() error {
	_, losing, fileErr := r.reads.health()
	r.mu.Lock()
	errs := []error{r.storeErr, r.signErr, fileErr}
	losing = losing || r.dropped > 0
	r.mu.Unlock()
	if losing {
		errs = append(errs, errors.New("entries are being lost"))
	}
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	store, reads := r.Losses()
	return fmt.Errorf("audit trail (lost so far: %d entries, %d lines of reads): %w", store, reads, err)
}

// Close stores, writes and signs what is there. It returns an error when something was lost or could not be signed.
// Entries that come later are lost.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.mu.Unlock()
	close(r.stop)
	r.tasks.Wait()
	err := r.drain(ctx)
	return errors.Join(err, r.sign(ctx), r.reads.close())
}

// drain stores what is still queued.
func (r *Recorder) drain(ctx context.Context) error {
	for {
		rows := r.left
		r.left = nil
		for len(rows) < groupMost && len(r.queue) > 0 {
			rows = append(rows, <-r.queue)
		}
		if len(rows) == 0 {
			return r.tellLost(ctx)
		}
		if err := r.append(ctx, rows); err != nil {
			r.countLost(len(rows) + len(r.queue))
			return fmt.Errorf("store the last audit entries: %w", err)
		}
	}
}

// tellLost notes at the end of the trail what was lost and not told yet.
func (r *Recorder) tellLost(ctx context.Context) error {
	r.mu.Lock()
	n := r.dropped
	r.mu.Unlock()
	if n == 0 {
		return nil
	}
	row := lostEntry(r.cfg.Clock.Now(), n)
	return errors.Join(fmt.Errorf("%d audit entries were lost", n), r.append(ctx, []Row{row}))
}
