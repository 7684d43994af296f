package persistence

import (
	"context"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/policy"
)

// purgeRef reads the target of a purge, of a tenant's caller.
func purgeRef(tenant string, in canonjson.Value) Ref {
	target := in.Get("target")
	revision, _ := target.Get("revision").Int()
	return Ref{
		Type: RefType(target.Get("type").Str()), Namespace: kept(tenant, in.Get("namespace").Str()),
		ID: target.Get("id").Str(), Revision: revision,
	}
}

// purgeTarget needs admin on the document or the artifact.
func purgeTarget(_ context.Context, _ catalog.Lookup, in canonjson.Value) ([]policy.Check, error) {
	return []policy.Check{{Capability: policy.PersistenceAdmin, Path: purgeRef("", in).path()}}, nil
}

// purge removes a superseded revision or an artifact for good. The metadata goes first, then the bytes.
func (s *Service) purge(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	target := purgeRef(c.Who.Tenant, c.In)
	var bytes *Digest
	result, err := s.settle(ctx, c, target.Namespace, func(tx Tx) (canonjson.Value, error) {
		bytes = nil
		if target.Type == RefDocument {
			return okValue(), s.purgeRevision(tx, target, c.Now)
		}
		a, err := s.purgeArtifact(tx, target, c.Now)
		if err == nil {
			bytes = &a.Hash
		}
		return okValue(), err
	})
	if err == nil && bytes != nil && !result.Replayed {
		s.vault.remove(ctx, *bytes)
	}
	return result, err
}

// purgeRevision is purge of a revision inside the transaction, in the order of persistence.v1, section 4.6.
func (s *Service) purgeRevision(tx Tx, target Ref, now time.Time) error {
	head, ok, err := tx.Head(target.Namespace, target.ID)
	switch {
	case err != nil:
		return err
	case !ok:
		return notFound()
	case head.Revision == target.Revision:
		return fault.New(fault.RetentionBlocked, "the newest revision of a document is never purged")
	}
	since, ok, err := tx.Superseded(target.Namespace, target.ID, target.Revision)
	if err == nil && !ok {
		err = notFound()
	}
	if err == nil {
		err = s.blocked(tx, target, since, now)
	}
	if err != nil {
		return err
	}
	return tx.PurgeRevision(target.Namespace, target.ID, target.Revision)
}

// purgeArtifact is purge of an artifact inside the transaction.
func (s *Service) purgeArtifact(tx Tx, target Ref, now time.Time) (*Artifact, error) {
	a, ok, err := tx.Artifact(target.Namespace, target.ID)
	if err == nil && !ok {
		err = notFound()
	}
	if err == nil {
		err = s.blocked(tx, target, a.CreatedAt, now)
	}
	if err != nil {
		return nil, err
	}
	return a, tx.PurgeArtifact(target.Namespace, target.ID)
}

// blocked refuses a target that is to be kept: by the retention, which counts from since, or by a reference.
func (s *Service) blocked(tx Tx, target Ref, since, now time.Time) error {
	if s.cfg.Retention == nil {
		return fault.New(fault.RetentionBlocked, "everything is kept forever here; the operator may set a finite retention")
	}
	if end := since.Add(*s.cfg.Retention); now.Before(end) {
		return fault.New(fault.RetentionBlocked, "it is kept until %s", FormatTime(end))
	}
	inbound, err := tx.Inbound(target, Ref{}, 1)
	if err != nil {
		return err
	}
	if len(inbound) > 0 {
		return fault.New(fault.RetentionBlocked, "a revision of a document refers to it; the operator can tell which")
	}
	return nil
}
