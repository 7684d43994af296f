package persistence

import (
	"context"
	"errors"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
)

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
	var err error
	for more := true; more && err == nil; {
		var closed int
		closed, more, err = s.closeExpired(ctx)
		done.Expired += closed
	}
	for _, d := range s.vault.postponed() {
		if s.vault.remove(ctx, d) {
			done.Removed++
		}
	}
	return done, err
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
		if err = s.expire(ctx, u, now); err != nil {
			break
		}
		closed++
	}
	return closed, len(over) == sweepUploads, err
}

// Names in the audit trail of what the server does to an upload by itself.
const (
	expireName   = "persistence.expire"
	takeBackName = "persistence.takeBack"
)

// expire closes an upload whose time is over at now.
func (s *Service) expire(ctx context.Context, u *Upload, now time.Time) error {
	entry := audit.Entry{
		Time: now, Kind: audit.KindEffect, Operation: expireName, Decision: "none", Outcome: "ok",
		Target: string(artifactPath(shown(u.Namespace), u.ArtifactID)), Note: "the upload was open for 24 hours",
	}
	commit := Commit{Namespace: u.Namespace, Now: now, Seal: func(Outcome) audit.Row { return entry.Encode() }}
	_, err := s.cfg.Store.Update(ctx, commit, func(tx Tx) (Outcome, error) {
		at, ok, err := tx.Upload(u.Namespace, u.ID)
		if err == nil && (!ok || !at.State.Open()) {
			err = noUpload() // a call has closed it meanwhile
		}
		if err != nil {
			return Outcome{}, err
		}
		if at.State == UploadReceived {
			s.vault.later(at.Hash)
		}
		return Outcome{}, tx.MoveUpload(u.Namespace, u.ID, UploadExpired, now)
	})
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// errIndexDamaged: the index of digests does not name what the rows need.
var errIndexDamaged = errors.New("the index of needed bytes is damaged; nothing is removed until tabellion repair has rebuilt it")

// SweepOrphans removes the blobs of an earlier process that nothing needs and that are older than the grace. When the
// blobs cannot be listed to the end, or the metadata cannot be read to the end, or disagrees with its own index, it
// removes nothing: what cannot be proved unreachable stays (security requirements, R7 and R13).
func (s *Service) SweepOrphans(ctx context.Context) (Swept, error) {
	var done Swept
	orphans, err := s.orphans(ctx)
	if err == nil && len(orphans) > 0 {
		err = s.provable(ctx, orphans)
	}
	if err != nil {
		return done, err
	}
	for d := range orphans {
		if s.vault.remove(ctx, d) {
			done.Removed++
		}
	}
	return done, nil
}

// orphans are the blobs that were there before this process, are older than the grace, and are needed by nothing as far
// as the index tells.
func (s *Service) orphans(ctx context.Context) (map[Digest]bool, error) {
	orphans := map[Digest]bool{}
	young := time.Now().Add(-s.cfg.OrphanGrace) // by the machine's clock, as the file system's times
	err := s.cfg.Blobs.Each(ctx, func(b BlobInfo) error {
		if !b.Settled || s.cfg.OrphanGrace > 0 && b.Modified.After(young) {
			return nil
		}
		held, err := s.vault.held(ctx, b.Digest)
		if err == nil && !held {
			orphans[b.Digest] = true
		}
		return err
	})
	return orphans, err
}

// provable reads all rows that need bytes, without the index, and returns an error when one of them needs an orphan, or
// cannot be trusted.
func (s *Service) provable(ctx context.Context, orphans map[Digest]bool) error {
	return s.cfg.Store.View(ctx, func(r Reader) error {
		return r.EachHeld(func(d Digest) error {
			if orphans[d] {
				return errIndexDamaged
			}
			return nil
		})
	})
}

// HoldBlobs keeps every blob where it is until release, for a backup.
func (s *Service) HoldBlobs() (release func()) { return s.vault.hold() }
