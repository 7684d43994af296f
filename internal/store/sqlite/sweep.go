package sqlite

import (
	"context"
	"time"
)

// Sweeping.
const (
	// sweepEvery is the time between two sweeps, and sweepAgain when the last one left work over.
	sweepEvery = time.Minute
	sweepAgain = time.Second
	// sweepRows bounds one sweep, which is one call among others in the writer.
	sweepRows = 2000
)

// Sweep forgets idempotency records older than the retention, at most sweepRows of them. more tells that further ones
// may be left.
//
// Records are looked at in the order they were made. When the clock was set back in between, older ones behind newer
// ones wait until those are old: nothing is forgotten too early, and a lookup never trusts that the sweep has run.
func (s *Store) Sweep(ctx context.Context) (more bool, err error) {
	forget := s.clock.Now().Add(-s.retain).UnixMicro()
	err = s.submit(ctx, func(t *tx) error {
		var last, old int64
		err := t.query("SELECT max(seq), count(*) FROM (SELECT seq, at FROM idempotency ORDER BY seq LIMIT ?) WHERE at < ?",
			stop(func(r row) { last, old = r.int(0), r.int(1) }), int64(sweepRows), forget)
		if err != nil || old == 0 {
			return err
		}
		more = old == sweepRows
		return t.write("DELETE FROM idempotency WHERE seq <= ? AND at < ?", last, forget)
	})
	return more && err == nil, err
}

// sweepOften sweeps until the store is closed.
func (s *Store) sweepOften() {
	defer s.tasks.Done()
	timer := time.NewTimer(sweepEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-timer.C:
		}
		more, err := s.Sweep(context.Background())
		switch {
		case err != nil:
			if s.Healthy() == nil {
				s.log.Warn("old idempotency records could not be forgotten", "error", err)
			}
			timer.Reset(sweepEvery)
		case more:
			timer.Reset(sweepAgain)
		default:
			timer.Reset(sweepEvery)
		}
	}
}
