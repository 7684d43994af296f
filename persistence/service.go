package persistence

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Contract is the name of the contract that the slot keeps.
const Contract = "persistence.v1"

// Config is what a Service needs. Store, Blobs and Cursors may be nil where operations are only listed.
type Config struct {
	Store      Store
	Blobs      Blobs
	Cursors    Cursors
	Limits     Limits
	Durability Durability
	// Retention is the age from which a superseded revision, or an artifact, may be purged. Nil: everything is kept
	// forever.
	Retention *time.Duration
	// MaxUploads bounds the uploads that one caller may have open; 0 is no bound.
	MaxUploads int
	// OrphanGrace is the age that a blob which nothing needs must have before SweepOrphans removes it; 0 is none.
	OrphanGrace time.Duration
	// Clock judges expiry. Nil is the machine's clock.
	Clock clock.Clock
	// Log gets damage that was found, and removals that failed. Nil discards it.
	Log *slog.Logger
	// ResponseBytes bounds an answer on the wire; pages end well before it. 0: pages end at the contract's size.
	ResponseBytes int
}

// Cursors seals and opens page cursors.
type Cursors interface {
	Seal(p seal.Purpose, life time.Duration, bind, plain []byte) (string, error)
	Open(p seal.Purpose, bind []byte, text string) ([]byte, error)
}

// Service holds the operations of the slot. It is safe for concurrent use.
type Service struct {
	cfg       Config
	vault     *vault
	receiving receiving
}

// New makes a service.
func New(cfg Config) *Service {
	if cfg.Clock == nil {
		cfg.Clock = clock.System{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{cfg: cfg, vault: newVault(cfg.Store, cfg.Blobs, cfg.Log)}
}

// root is the resource path of the slot (persistence.v1, section 8).
const root = "/persistence"

// documentPath is the path of a document in policies.
func documentPath(namespace, id string) policy.Path {
	return policy.Path(root + "/namespaces/" + namespace + "/documents/" + id)
}

// artifactPath is the path of an artifact in policies.
func artifactPath(namespace, id string) policy.Path {
	return policy.Path(root + "/namespaces/" + namespace + "/artifacts/" + id)
}

// path is the path of a reference's target in policies.
func (r Ref) path() policy.Path {
	if r.Type == RefArtifact {
		return artifactPath(shown(r.Namespace), r.ID)
	}
	return documentPath(shown(r.Namespace), r.ID)
}

// capabilities answers what this store promises.
func (s *Service) capabilities(context.Context, *catalog.Call) (catalog.Result, error) {
	l := s.cfg.Limits
	return catalog.Result{Public: true, Source: "persistence", Value: canonjson.Object(
		canonjson.M("contract", canonjson.String(Contract)),
		canonjson.M("durability", canonjson.String(string(s.cfg.Durability))),
		canonjson.M("limits", canonjson.Object(
			canonjson.M("maxDocumentBytes", canonjson.Int(l.MaxDocumentBytes)),
			canonjson.M("maxArtifactBytes", canonjson.Int(l.MaxArtifactBytes)),
			canonjson.M("maxReferences", canonjson.Int(int64(l.MaxReferences))),
			canonjson.M("maxPageSize", canonjson.Int(int64(l.MaxPageSize))),
			canonjson.M("maxNamespaceBytes", canonjson.Int(l.MaxNamespaceBytes)),
			canonjson.M("idempotencyRetentionSeconds", canonjson.Int(int64(l.IdempotencyRetention/time.Second))),
		)))}, nil
}

// get answers one revision, or the head.
func (s *Service) get(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	namespace, id := namespaceOf(c), c.In.Get("id").Str()
	revision, exact := c.In.Get("revision").Int()
	var doc *Document
	err := s.cfg.Store.View(ctx, func(r Reader) error {
		var ok bool
		var err error
		if exact {
			doc, ok, err = r.Revision(namespace, id, revision)
		} else {
			doc, ok, err = r.HeadDocument(namespace, id)
			ok = ok && !doc.Deleted
		}
		if err == nil && !ok {
			err = notFound()
		}
		return err
	})
	if err != nil {
		return catalog.Result{}, readFault(err)
	}
	return documentResult(doc), nil
}

// documentResult is the answer that shows doc.
func documentResult(doc *Document) catalog.Result {
	return catalog.Result{Value: doc.Value(), Source: "persistence", Revision: doc.Revision}
}

// notFound is the one answer for everything that is not there.
func notFound() *fault.Error {
	return fault.New(fault.NotFound, "nothing is there under this name; list shows what is")
}

// put writes a new revision.
func (s *Service) put(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	expected, _ := c.In.Get("expectedRevision").Int()
	next := &Document{
		Namespace: namespaceOf(c), ID: c.In.Get("id").Str(),
		Kind: c.In.Get("kind").Str(), SchemaVersion: c.In.Get("schemaVersion").Str(),
		Payload:    c.In.Get("payload").AppendCanonical(nil),
		References: parseRefs(c.Who.Tenant, c.In.Get("references")),
	}
	return s.write(ctx, c, next.Namespace, next.References, func(tx Tx) (*Document, error) {
		return s.putIn(tx, c.Now, *next, expected)
	})
}

// putIn is put inside the transaction: quotas, existence and precondition, references, in this order
// (persistence.v1, section 2.2).
func (s *Service) putIn(tx Tx, now time.Time, next Document, expected int64) (*Document, error) {
	if err := s.checkQuota(tx, &next, now); err != nil {
		return nil, err
	}
	head, _, err := tx.Head(next.Namespace, next.ID)
	if err != nil {
		return nil, err
	}
	if head.Revision != expected {
		return nil, conflict(head.Revision)
	}
	for _, r := range next.References {
		live, err := tx.Live(r)
		if err != nil {
			return nil, err
		}
		if !live {
			return nil, fault.New(fault.NotFound, "a reference points to nothing that exists; put its target first")
		}
	}
	next.follow(head, now)
	return &next, tx.PutRevision(&next)
}

// follow sets what d takes from the head before it: the next number, and times that never run backwards.
func (d *Document) follow(head Head, now time.Time) {
	now = Truncate(now)
	d.Revision, d.CreatedAt, d.UpdatedAt = head.Revision+1, now, now
	if head.Revision > 0 {
		d.CreatedAt = head.CreatedAt
		if head.UpdatedAt.After(now) {
			d.UpdatedAt = head.UpdatedAt
		}
	}
}

// conflict says where the head is.
func conflict(head int64) *fault.Error {
	if head == 0 {
		return fault.New(fault.RevisionConflict, "the document does not exist; expectedRevision 0 creates it")
	}
	return fault.New(fault.RevisionConflict, "head is at revision %d; read it, compare, and decide", head)
}

// checkQuota keeps the limits that are measured in bytes and references.
func (s *Service) checkQuota(tx Tx, d *Document, now time.Time) error {
	l := s.cfg.Limits
	if n := int64(len(d.Payload)); n > l.MaxDocumentBytes {
		return fault.New(fault.QuotaExceeded, "the payload has %d bytes in canonical form, the limit is %d", n, l.MaxDocumentBytes)
	}
	if n := len(d.References); n > l.MaxReferences {
		return fault.New(fault.QuotaExceeded, "%d references, the limit is %d", n, l.MaxReferences)
	}
	used, err := tx.Usage(d.Namespace, now)
	if err != nil {
		return err
	}
	if used+int64(len(d.Payload)) > l.MaxNamespaceBytes {
		return fault.New(fault.QuotaExceeded, "the namespace has no room for %d more bytes, its limit is %d", len(d.Payload), l.MaxNamespaceBytes)
	}
	return nil
}

// delete writes a tombstone.
func (s *Service) delete(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	namespace, id := namespaceOf(c), c.In.Get("id").Str()
	expected, _ := c.In.Get("expectedRevision").Int()
	return s.write(ctx, c, namespace, nil, func(tx Tx) (*Document, error) {
		head, ok, err := tx.Head(namespace, id)
		switch {
		case err != nil:
			return nil, err
		case !ok || head.Deleted:
			return nil, notFound()
		case head.Revision != expected:
			return nil, conflict(head.Revision)
		}
		d := Document{Namespace: namespace, ID: id, Kind: head.Kind, SchemaVersion: head.SchemaVersion, Deleted: true, Payload: []byte("null")}
		d.follow(head, c.Now)
		return &d, tx.PutRevision(&d)
	})
}

// write commits what fn writes with the call's key and audit row, and answers the document: the one written now, or
// for a known key the one it wrote the first time.
func (s *Service) write(ctx context.Context, c *catalog.Call, namespace string, touch []Ref, fn func(Tx) (*Document, error)) (catalog.Result, error) {
	var doc *Document
	out, err := s.cfg.Store.Update(ctx, s.commitOf(c, namespace, touch), func(tx Tx) (Outcome, error) {
		d, err := fn(tx)
		if err != nil {
			return Outcome{}, err
		}
		doc = d
		return Outcome{ID: d.ID, Revision: d.Revision}, nil
	})
	if err != nil {
		return catalog.Result{}, writeFault(err)
	}
	if !out.Replayed {
		return documentResult(doc), nil
	}
	return s.replay(ctx, namespace, out)
}

// replay answers the recorded outcome of a known key.
func (s *Service) replay(ctx context.Context, namespace string, out Outcome) (catalog.Result, error) {
	var doc *Document
	err := s.cfg.Store.View(ctx, func(r Reader) error {
		d, ok, err := r.Revision(namespace, out.ID, out.Revision)
		if err == nil && !ok {
			err = fault.New(fault.NotFound, "the revision that this key wrote has been purged; nothing was done")
		}
		doc = d
		return err
	})
	if err != nil {
		return catalog.Result{}, readFault(err)
	}
	result := documentResult(doc)
	result.Replayed = true
	return result, nil
}

// namespaceOf is the name under which the store keeps the namespace that a call names.
func namespaceOf(c *catalog.Call) string { return kept(c.Who.Tenant, c.In.Get("namespace").Str()) }

// parseRefs reads references that the schema has accepted, of a tenant's caller.
func parseRefs(tenant string, v canonjson.Value) []Ref {
	refs := make([]Ref, 0, v.Len())
	for _, item := range v.Items() {
		revision, _ := item.Get("revision").Int()
		refs = append(refs, Ref{
			Type: RefType(item.Get("type").Str()), Namespace: kept(tenant, item.Get("namespace").Str()), ID: item.Get("id").Str(), Revision: revision,
		})
	}
	return refs
}

// writeFault gives a store's error of a write its code.
func writeFault(err error) error {
	switch {
	case fault.As(err) != nil:
		return err
	case errors.Is(err, ErrKeyConflict):
		return fault.New(fault.IdempotencyConflict, "the idempotencyKey was used for other content in this namespace; use a fresh key").Wrap(err)
	case errors.Is(err, ErrBusy):
		return fault.New(fault.Busy, "the store is busy; nothing was done, retry with the same idempotencyKey").After(100 * time.Millisecond).Wrap(err)
	case errors.Is(err, ErrDamaged):
		return fault.New(fault.IntegrityError, "what is stored under this idempotencyKey, or under this name, is damaged; nothing was done, tell the operator").Wrap(err)
	case errors.Is(err, ErrUnavailable):
		return fault.New(fault.StoreUnavailable, "the store cannot be written now; retry later with the same idempotencyKey").Wrap(err)
	case errors.Is(err, ErrUnknown), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.StoreUnavailable, "the outcome is not known; retry with the same idempotencyKey to settle it").Wrap(err)
	}
	return err
}

// readFault gives a store's error of a read its code.
func readFault(err error) error {
	switch {
	case fault.As(err) != nil:
		return err
	case errors.Is(err, ErrBusy):
		return fault.New(fault.Busy, "the store is busy; retry").After(100 * time.Millisecond).Wrap(err)
	case errors.Is(err, ErrDamaged):
		return fault.New(fault.IntegrityError, "stored bytes are not what was written, and are not served; tell the operator").Wrap(err)
	case errors.Is(err, ErrUnavailable):
		return fault.New(fault.StoreUnavailable, "the store cannot be read now; retry later").Wrap(err)
	}
	return err
}
