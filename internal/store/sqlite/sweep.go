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

// Sweep forgets idempotency records, and uploads that are final, older than the retention: at most sweepRows of each.
// more tells that further ones may be left. It also has the log emptied when that may hold purged content.
//
// Uploads wait until the records are done: a replay of what led to an upload must find it.
//
// Records are looked at in the order they were made. When the clock was set back in between, older ones behind newer
// ones wait until those are old: nothing is forgotten too early, and a lookup never trusts that the sweep has run. Uploads
// do not wait for such records, which count as unknown.
func (s *Store) Sweep(ctx context.Context) (more bool, err error) {
	forget := s.clock.Now().Add(-s.retain).UnixMicro()
	err = s.submit(ctx, func(t *tx) error {
		t.w.log.reclaim = t.w.log.unclean
		records, err := t.forgetRecords(forget)
		if more = records; err != nil || records {
			return err
		}
		more, err = t.forgetUploads(forget)
		return err
	})
	return more && err == nil, err
}

// forgetRecords removes idempotency records made before a time, and tells whether there may be more.
func (t *tx) forgetRecords(before int64) (more bool, err error) {
	var last, old int64
	err = t.query("SELECT max(seq), count(*) FROM (SELECT seq, at FROM idempotency ORDER BY seq LIMIT ?) WHERE at < ?",
		stop(func(r row) { last, old = r.int(0), r.int(1) }), int64(sweepRows), before)
	if err != nil || old == 0 {
		return false, err
	}
	return old == sweepRows, t.write("DELETE FROM idempotency WHERE seq <= ? AND at < ?", last, before)
}

// uploadsClosed selects uploads that became final before a time.
const uploadsClosed = `SELECT seq FROM uploads INDEXED BY uploads_closed WHERE closed < ? ORDER BY closed LIMIT ?`

// forgetUploads removes uploads that became final before a time, and tells whether there may be more.
func (t *tx) forgetUploads(before int64) (more bool, err error) {
	var old []int64
	err = t.query(uploadsClosed, func(r row) error {
		old = append(old, r.int(0))
		return nil
	}, before, int64(sweepRows))
	for _, seq := range old {
		if err == nil {
			err = t.write("DELETE FROM uploads WHERE seq = ?", seq)
		}
	}
	return len(old) == sweepRows, err
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
				s.log.Warn("what is old could not be forgotten", "error", err)
			}
			timer.Reset(sweepEvery)
		case more:
			timer.Reset(sweepAgain)
		default:
			timer.Reset(sweepEvery)
		}
	}
}
