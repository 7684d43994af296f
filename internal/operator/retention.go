package operator

import (
	"context"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Schemas of operator.retention.
const (
	retentionIn = `{"type":"object","additionalProperties":false,"properties":{
 "age":{"type":"string","maxLength":16,"description":"What has been superseded, or was committed, at least so long ago: 90d, 12h. Absent: the configured retention."},
 "namespace":{` + nameForm + `,"description":"This one only."},` + tenantIn + `,` + pageIn + `}}`

	purgeFacts = `"revisions":{"type":"integer","description":"Superseded revisions that are old enough."},
 "revisionsBlocked":{"type":"integer","description":"Of these, those that a revision of a document refers to."},
 "artifacts":{"type":"integer","description":"Artifacts that are old enough."},
 "artifactsBlocked":{"type":"integer","description":"Of these, those that a revision of a document refers to."},
 "bytes":{"type":"integer","description":"What purging all that is not blocked would free of the quota."}`

	retentionOut = `{"type":"object","additionalProperties":false,"required":["namespaces"],"properties":{` + nextOut + `,
 "before":{"type":"string","format":"date-time","description":"What is older than this is counted; absent: nothing is, as everything is kept forever and no age was given."},
 "retention":{"type":"string","description":"The configured one, such as 2160h0m0s; absent: everything is kept forever and nothing can be purged."},
 "namespaces":{"type":"array","items":{"type":"object","additionalProperties":false,
  "required":["namespace","revisions","revisionsBlocked","artifacts","artifactsBlocked","bytes"],"properties":{` + namespaceFact + `,` + purgeFacts + `}}}}}`
)

// retentionDeadline bounds a report. It reads all documents of its namespaces.
const retentionDeadline = time.Hour

// retentionOperation tells what may be purged.
func retentionOperation(cfg Config) *catalog.Operation {
	return &catalog.Operation{
		Name: "operator.retention", Title: "Retention report", Effects: reads, Capability: policy.OperatorRead,
		Doc: "Counts, for each namespace, superseded revisions and artifacts that are older than the configured retention or a given age, those of them that are referred to, and what purging the others would free. Nothing is purged by it.",
		In:  catalog.MustSchema(retentionIn), Out: catalog.MustSchema(retentionOut),
		Bounds:  catalog.Bounds{Deadline: retentionDeadline, Concurrency: 1},
		Targets: on(policy.OperatorRead, retentionPath),
		Run: func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
			if cfg.Store == nil || cfg.Artifacts == nil {
				return catalog.Result{}, absent("the retention report")
			}
			return retention(ctx, cfg, c)
		},
	}
}

// retention runs operator.retention.
func retention(ctx context.Context, cfg Config, c *catalog.Call) (catalog.Result, error) {
	age, finite, err := ageOf(cfg, c.In)
	if err != nil {
		return catalog.Result{}, err
	}
	listed, err := namespaces(ctx, cfg, c.In)
	if err != nil {
		return catalog.Result{}, err
	}
	s := survey{cfg: cfg, by: map[string]*purgeable{}, progress: c.Progress}
	names := listed.Value.Get("namespaces").Items()
	for _, n := range names {
		s.by[keptOf(n)] = &purgeable{}
		for _, count := range []string{"documents", "deleted"} {
			documents, _ := n.Get(count).Int()
			s.total += documents
		}
	}
	if finite {
		s.cutoff = c.Now.Add(-age)
		if err := s.count(ctx, names); err != nil {
			return catalog.Result{}, err
		}
	}
	items := make([]canonjson.Value, len(names))
	for i, n := range names {
		items[i] = s.by[keptOf(n)].value(keptOf(n))
	}
	configured := canonjson.Value{}
	if cfg.Retention != nil {
		configured = canonjson.String(cfg.Retention.String())
	}
	return catalog.Result{Count: len(items), Value: canonjson.Object(
		canonjson.M("before", timeText(s.cutoff)), canonjson.M("retention", configured),
		canonjson.M("namespaces", canonjson.Array(items...)), canonjson.M("next", listed.Value.Get("next")))}, nil
}

// ageOf is the age that a report is about. finite is false when nothing is ever old enough: everything is kept forever,
// and no age was given.
func ageOf(cfg Config, in canonjson.Value) (age time.Duration, finite bool, err error) {
	if given := in.Get("age").Str(); given != "" {
		age, ok := parseSpan(given)
		if !ok {
			return 0, false, fault.New(fault.InvalidRequest, "the age is %s: expected a length of time such as 90d, 12h or 30m", catalog.Quote(given, 16))
		}
		return age, true, nil
	}
	if cfg.Retention == nil {
		return 0, false, nil
	}
	return *cfg.Retention, true, nil
}

// purgeable counts what is old enough in a namespace.
type purgeable struct {
	revisions, revisionsBlocked, artifacts, artifactsBlocked, bytes int64
}

// value shows it.
func (p *purgeable) value(kept string) canonjson.Value {
	return canonjson.Object(append(namespaceMembers(kept),
		canonjson.M("revisions", canonjson.Int(p.revisions)), canonjson.M("revisionsBlocked", canonjson.Int(p.revisionsBlocked)),
		canonjson.M("artifacts", canonjson.Int(p.artifacts)), canonjson.M("artifactsBlocked", canonjson.Int(p.artifactsBlocked)),
		canonjson.M("bytes", canonjson.Int(p.bytes)))...)
}

// Pieces in which a survey reads, so that no snapshot is held for long and memory stays small.
const (
	pieceDocuments = 200
	pieceBytes     = 8 << 20
)

// survey counts what may be purged. It reads piece by piece, so that documents that change meanwhile are counted as
// they are when their piece is read.
type survey struct {
	cfg         Config
	cutoff      time.Time             // zero: nothing is counted
	by          map[string]*purgeable // by kept namespace
	done, total int64                 // documents
	progress    func(done, total float64, note string)
}

// count counts in all surveyed namespaces.
func (s *survey) count(ctx context.Context, names []canonjson.Value) error {
	if err := s.artifacts(ctx); err != nil {
		return err
	}
	for _, n := range names {
		if err := s.documents(ctx, keptOf(n)); err != nil {
			return err
		}
	}
	return nil
}

// artifacts counts the artifacts of all surveyed namespaces.
func (s *survey) artifacts(ctx context.Context) error {
	return s.cfg.Artifacts(ctx, func(namespace, id string) error {
		p := s.by[namespace]
		if p == nil {
			return nil
		}
		return s.cfg.Store.View(ctx, func(r persistence.Reader) error {
			a, ok, err := r.Artifact(namespace, id)
			if err != nil || !ok || a.CreatedAt.After(s.cutoff) {
				return err
			}
			blocked, err := referred(r, persistence.Ref{Type: persistence.RefArtifact, Namespace: namespace, ID: id})
			if err != nil {
				return err
			}
			p.artifacts++
			if blocked {
				p.artifactsBlocked++
			} else {
				p.bytes += a.Size
			}
			return nil
		})
	})
}

// referred tells whether anything refers to target.
func referred(r persistence.Reader, target persistence.Ref) (bool, error) {
	found, err := r.Inbound(target, persistence.Ref{}, 1)
	return len(found) > 0, err
}

// documents counts the superseded revisions of a namespace.
func (s *survey) documents(ctx context.Context, namespace string) error {
	after := ""
	for more := true; more; {
		var ids []string
		err := s.cfg.Store.View(ctx, func(r persistence.Reader) error {
			ids = nil
			var heads []*persistence.Document
			var err error
			heads, more, err = r.Heads(namespace, persistence.HeadFilter{IncludeDeleted: true, After: after, Limit: pieceDocuments, MaxBytes: pieceBytes})
			for _, h := range heads {
				after = h.ID
				if h.Revision > 1 {
					ids = append(ids, h.ID)
				}
			}
			s.done += int64(len(heads))
			return err
		})
		if err != nil {
			return err
		}
		s.progress(float64(s.done), float64(s.total), "documents")
		for _, id := range ids {
			if err := s.document(ctx, namespace, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// document counts the superseded revisions of one document.
func (s *survey) document(ctx context.Context, namespace, id string) error {
	after := int64(0)
	for more := true; more; {
		err := s.cfg.Store.View(ctx, func(r persistence.Reader) error {
			var revisions []*persistence.Document
			var err error
			revisions, more, err = r.Revisions(namespace, id, after, pieceDocuments, pieceBytes)
			if err != nil {
				return err
			}
			for _, d := range revisions {
				after = d.Revision
				if err := s.revision(r, d); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// revision counts one revision, if it has been superseded for long enough. Its age counts from then (persistence.v1,
// section 4.6).
func (s *survey) revision(r persistence.Reader, d *persistence.Document) error {
	since, ok, err := r.Superseded(d.Namespace, d.ID, d.Revision)
	if err != nil || !ok || since.After(s.cutoff) {
		return err
	}
	blocked, err := referred(r, persistence.Ref{Type: persistence.RefDocument, Namespace: d.Namespace, ID: d.ID, Revision: d.Revision})
	if err != nil {
		return err
	}
	p := s.by[d.Namespace]
	p.revisions++
	switch {
	case blocked:
		p.revisionsBlocked++
	case !d.Deleted:
		p.bytes += int64(len(d.Payload))
	}
	return nil
}
