package persistence

import "context"

// sweepUploads bounds how many uploads one look closes.
const sweepUploads = 100

// Swept is what a sweep did.
type Swept struct {
	Expired int // uploads that were closed because their time was over
	Removed int // blobs that nothing needed
}

// Sweep closes the uploads whose time is over, and removes the bytes that are needed no longer. Nothing depends on when
// it runs: expiry is by the clock. It may run beside calls.
func (s *Service) Sweep(ctx context.Context) (Swept, error) {
	var done Swept
	for {
		closed, more, err := s.closeExpired(ctx)
		done.Expired += closed
		if err != nil {
			return done, err
		}
		if !more {
			break
		}
	}
	for _, d := range s.vault.postponed() {
		if s.vault.remove(ctx, d) {
			done.Removed++
		}
	}
	return done, nil
}

// closeExpired closes some uploads whose time is over; more tells that there may be further ones.
func (s *Service) closeExpired(ctx context.Context) (closed int, more bool, err error) {
	now := s.cfg.Clock.Now()
	var over []*Upload
	err = s.cfg.Store.View(ctx, func(r Reader) (err error) {
		over, err = r.Expired(now, sweepUploads)
		return err
	})
	for _, u := range over {
		if err != nil {
			return closed, false, err
		}
		_, err = s.cfg.Store.Update(ctx, Commit{Namespace: u.Namespace, Now: now}, func(tx Tx) (Outcome, error) {
			at, ok, err := tx.Upload(u.Namespace, u.ID)
			if err != nil || !ok || !at.State.Open() {
				return Outcome{}, err // a call has closed it meanwhile
			}
			if at.State == UploadReceived {
				s.vault.later(at.Hash)
			}
			return Outcome{}, tx.MoveUpload(u.Namespace, u.ID, UploadExpired, now)
		})
		closed++
	}
	return closed, len(over) == sweepUploads, err
}

// SweepOrphans removes the blobs of an earlier process that nothing needs. When the blobs cannot be listed to the end,
// or the metadata cannot be asked, it removes nothing: what cannot be proved unreachable stays (security requirements,
// R13).
func (s *Service) SweepOrphans(ctx context.Context) (Swept, error) {
	orphans, err := s.orphans(ctx)
	var done Swept
	if err != nil {
		return done, err
	}
	for _, d := range orphans {
		if s.vault.remove(ctx, d) {
			done.Removed++
		}
	}
	return done, nil
}

// orphans lists the blobs that were there before this process and that nothing needs.
func (s *Service) orphans(ctx context.Context) (orphans []Digest, err error) {
	err = s.cfg.Blobs.Each(ctx, func(b BlobInfo) error {
		if !b.Settled {
			return nil
		}
		held, err := s.vault.held(ctx, b.Digest)
		if err == nil && !held {
			orphans = append(orphans, b.Digest)
		}
		return err
	})
	return orphans, err
}

// HoldBlobs keeps every blob where it is until release, for a backup.
func (s *Service) HoldBlobs() (release func()) { return s.vault.hold() }
