package tabellion

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// Times of the opening again of a store that the disk has failed. Calls are to be served again 5 s after the disk works
// (security requirements, R11).
const (
	watchEvery   = 100 * time.Millisecond // how often the store is looked at
	reopenFirst  = 50 * time.Millisecond  // pause after the first failed attempt; it doubles
	reopenMost   = 2 * time.Second        // longest pause
	reopenRest   = 5 * time.Second        // for calls under way on the old store, and for its last audit entries
	takenPatient = 30 * time.Second       // see Server.patience
)

// watch opens the store again when it is broken, until Close.
func (s *Server) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
		why := s.parts.Load().healthy()
		if why == nil {
			continue
		}
		if err := s.reopen(why); errors.Is(err, errClosing) {
			return
		} else if err != nil {
			s.log.Error("the store could not be opened again; the server cannot go on", "error", err)
			close(s.lost)
			s.fail(err)
			return
		}
	}
}

// errClosing: the server was closed.
var errClosing = errors.New("the server was closed")

// reopen replaces the parts by new ones on the store as it is on the disk. What was not committed there is gone, and
// nobody was told otherwise: a failed sync is answered as unknown, and the idempotency key settles it.
//
// The socket of this machine's other processes stays open, and their sessions are ended when the new parts serve: a
// process that found nobody would take the folder in between.
func (s *Server) reopen(why error) error {
	began, old := time.Now(), s.parts.Load()
	s.log.Warn("the store failed; it is opened again from the disk, and calls are refused meanwhile", "error", why)
	old.retired.Store(true)
	// What the old parts still want to write fails, which was told already.
	ctx, cancel := context.WithTimeout(context.Background(), reopenRest)
	old.closed.Do(func() { old.err = errors.Join(old.rest(ctx), old.closeBlobs(), old.store.Close()) })
	cancel()
	next, err := s.attempts(old)
	if err != nil {
		return err
	}
	s.parts.Store(next)
	s.sign(next)
	next.announce()
	close(old.replaced)
	s.log.Warn("the store is open again", "took", time.Since(began).Round(time.Millisecond))
	ctx, cancel = context.WithTimeout(context.Background(), reopenRest)
	defer cancel()
	if err := old.mcp.Close(ctx); err != nil {
		s.log.Warn("calls on the old store were cancelled", "error", err)
	}
	return nil
}

// attempts opens the store, again and again while the disk fails. It gives up when the server is closed, and when
// another process has taken the folder and keeps it.
func (s *Server) attempts(old *parts) (*parts, error) {
	pause, told := reopenFirst, false
	var taken time.Time // since when another process has the folder
	for {
		next, err := s.attempt(old)
		if err == nil {
			return next, nil
		}
		switch {
		case !errors.Is(err, ErrInUse):
			taken = time.Time{}
		case taken.IsZero():
			taken = time.Now()
		case time.Since(taken) > s.patience:
			return nil, err
		}
		if !told {
			told = true
			s.log.Error("the store cannot be opened yet; trying again", "error", err)
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, reopenMost)
		case <-s.stop:
			return nil, errClosing
		}
	}
}

// attempt opens the store once. The audit entries that the old one could not take go into the new one.
func (s *Server) attempt(old *parts) (*parts, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reopenRest)
	defer cancel()
	store, err := s.openStore(ctx)
	if err != nil {
		return nil, err
	}
	old.trail.set(store)
	if err := old.closeRecorder(ctx); err != nil {
		s.log.Warn("audit entries were lost with the store", "error", err)
	}
	next, err := s.newParts(ctx, store)
	if err != nil {
		return nil, errors.Join(err, next.close(ctx))
	}
	next.trail.lostStore, next.trail.lostReads = old.losses()
	return next, nil
}

// live are the parts that serve. While the store is opened again it waits for them.
func (s *Server) live(ctx context.Context) (*parts, error) {
	for {
		p := s.parts.Load()
		if !p.retired.Load() {
			return p, nil
		}
		select {
		case <-p.replaced:
		case <-s.lost:
			return nil, fmt.Errorf("the store failed and could not be opened again: %w", ErrInUse)
		case <-s.stop:
			return nil, errClosing
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// trail is the audit trail of a recorder: it reads the chain of the store that it was made for, and writes to the one
// that is open. So a recorder whose store has failed leaves its entries, and the last signed head, to the next.
type trail struct {
	own                  *sqlite.Store                // of the chain that is signed
	to                   atomic.Pointer[sqlite.Store] // the one that is open
	lostStore, lostReads int64                        // of earlier recorders; set before the parts serve
}

var _ audit.Log = (*trail)(nil)

// set says where entries go.
func (t *trail) set(s *sqlite.Store) { t.to.Store(s) }

// AppendAudit implements audit.Log.
func (t *trail) AppendAudit(ctx context.Context, rows []audit.Row) error {
	return t.to.Load().AppendAudit(ctx, rows)
}

// AuditHead implements audit.Log.
func (t *trail) AuditHead(ctx context.Context) (audit.Head, error) { return t.own.AuditHead(ctx) }

// AddAuditHead implements audit.Log.
func (t *trail) AddAuditHead(ctx context.Context, h audit.Head) error {
	return t.to.Load().AddAuditHead(ctx, h)
}

// AuditHeads implements audit.Log.
func (t *trail) AuditHeads(ctx context.Context) ([]audit.Head, error) {
	return t.to.Load().AuditHeads(ctx)
}

// AuditRows implements audit.Log.
func (t *trail) AuditRows(ctx context.Context, writer string, after int64, limit int) ([]audit.Record, error) {
	return t.to.Load().AuditRows(ctx, writer, after, limit)
}

// AuditWriters implements audit.Log.
func (t *trail) AuditWriters(ctx context.Context) ([]string, error) {
	return t.to.Load().AuditWriters(ctx)
}
