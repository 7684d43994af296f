package operator

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Schemas of operator.namespaces.
const (
	namespacesIn = `{"type":"object","additionalProperties":false,"properties":{
 "namespace":{` + nameForm + `,"description":"This one only."},` + tenantIn + `,` + pageIn + `}}`

	namespacesOut = `{"type":"object","additionalProperties":false,"required":["namespaces"],"properties":{` + nextOut + `,
 "namespaces":{"type":"array","items":{"type":"object","additionalProperties":false,
  "required":["namespace","documents","deleted","revisions","artifacts","uploads","bytes","reserved"],"properties":{` + namespaceFact + `,
  "documents":{"type":"integer","description":"That are not deleted."},
  "deleted":{"type":"integer","description":"Documents whose newest revision is a deletion."},
  "revisions":{"type":"integer","description":"That exist: not purged."},
  "artifacts":{"type":"integer"},
  "uploads":{"type":"integer","description":"Open ones."},
  "bytes":{"type":"integer","description":"What counts against the quota: payloads, artifacts, and what open uploads have reserved."},
  "reserved":{"type":"integer","description":"The part of bytes that open uploads have reserved."},
  "quota":{"type":"integer","description":"Absent: no bound."},
  "share":{"type":"number","description":"bytes of quota, 0.5 is half."}}}}}}`
)

// namespacesOperation tells what each namespace holds.
func namespacesOperation(cfg Config) *catalog.Operation {
	return &catalog.Operation{
		Name: "operator.namespaces", Title: "List namespaces", Effects: reads, Capability: policy.OperatorRead,
		Doc: "Tells what each namespace holds, and how much of its quota. A namespace that holds nothing is left out.",
		In:  catalog.MustSchema(namespacesIn), Out: catalog.MustSchema(namespacesOut),
		Targets: on(policy.OperatorRead, namespacesPath),
		Run: func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
			if cfg.Store == nil {
				return catalog.Result{}, absent("the namespaces")
			}
			return namespaces(ctx, cfg, c.In)
		},
	}
}

// namespaces runs operator.namespaces.
func namespaces(ctx context.Context, cfg Config, in canonjson.Value) (catalog.Result, error) {
	after, limit, only := in.Get("after").Str(), limitOf(in), ""
	if !in.Get("namespace").IsAbsent() {
		only = keptOf(in)
		after, limit = before(only), 1
	} else if !in.Get("tenant").IsAbsent() {
		return catalog.Result{}, fault.New(fault.InvalidRequest, "a tenant is named and no namespace: name the namespace too")
	}
	var found []persistence.NamespaceFacts
	err := cfg.Store.View(ctx, func(r persistence.Reader) (err error) {
		found, err = r.Namespaces(after, limit+1)
		return err
	})
	if err != nil {
		return catalog.Result{}, err
	}
	next := canonjson.Value{}
	if len(found) > limit {
		found = found[:limit]
		if only == "" {
			next = canonjson.String(found[limit-1].Namespace)
		}
	}
	if only != "" && (len(found) == 0 || found[0].Namespace != only) {
		return catalog.Result{}, fault.New(fault.NotFound, "the namespace %s holds nothing; without a name all are listed", catalog.Quote(in.Get("namespace").Str(), 128))
	}
	items := make([]canonjson.Value, len(found))
	for i := range found {
		items[i] = namespaceValue(&found[i], cfg.Quota)
	}
	return catalog.Result{Count: len(items), Value: canonjson.Object(
		canonjson.M("namespaces", canonjson.Array(items...)), canonjson.M("next", next))}, nil
}

// namespaceValue shows what a namespace holds. The share has four digits behind the point.
func namespaceValue(f *persistence.NamespaceFacts, quota int64) canonjson.Value {
	m := append(namespaceMembers(f.Namespace),
		canonjson.M("documents", canonjson.Int(f.Documents)), canonjson.M("deleted", canonjson.Int(f.Deleted)),
		canonjson.M("revisions", canonjson.Int(f.Revisions)), canonjson.M("artifacts", canonjson.Int(f.Artifacts)),
		canonjson.M("uploads", canonjson.Int(f.Uploads)), canonjson.M("bytes", canonjson.Int(f.Bytes)),
		canonjson.M("reserved", canonjson.Int(f.Reserved)))
	if quota > 0 {
		share := math.Round(float64(f.Bytes)/float64(quota)*1e4) / 1e4
		m = append(m, canonjson.M("quota", canonjson.Int(quota)), canonjson.M("share", canonjson.Float(share)))
	}
	return canonjson.Object(m...)
}

// Schemas of operator.inbound.
const (
	inboundIn = `{"type":"object","additionalProperties":false,"required":["namespace","id"],"properties":{
 "namespace":{` + nameForm + `},` + tenantIn + `,"id":{` + nameForm + `},
 "revision":{"type":"integer","minimum":1,"maximum":9007199254740991,"description":"Of a document. Absent: the id is an artifact's."},` + pageIn + `}}`

	inboundOut = `{"type":"object","additionalProperties":false,"required":["exists","references"],"properties":{` + nextOut + `,
 "exists":{"type":"boolean","description":"Whether the target exists."},
 "references":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["namespace","id","revision","newest"],"properties":{` + namespaceFact + `,
  "id":{"type":"string"},"revision":{"type":"integer"},
  "newest":{"type":"boolean","description":"It is the newest revision of its document, which is never purged."}}}}}}`
)

// inboundOperation tells who refers to something.
func inboundOperation(cfg Config) *catalog.Operation {
	return &catalog.Operation{
		Name: "operator.inbound", Title: "List references to something", Effects: reads, Capability: policy.OperatorRead,
		Doc: "Lists the revisions of documents, of all namespaces, that refer to a revision of a document or to an artifact. While there is one, the target cannot be purged.",
		In:  catalog.MustSchema(inboundIn), Out: catalog.MustSchema(inboundOut),
		Targets: on(policy.OperatorRead, inboundPath),
		Run: func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
			if cfg.Store == nil {
				return catalog.Result{}, absent("the references")
			}
			return inbound(ctx, cfg, c.In)
		},
	}
}

// inbound runs operator.inbound, over one snapshot.
func inbound(ctx context.Context, cfg Config, in canonjson.Value) (result catalog.Result, err error) {
	target := persistence.Ref{Type: persistence.RefArtifact, Namespace: keptOf(in), ID: in.Get("id").Str()}
	if revision, ok := in.Get("revision").Int(); ok {
		target.Type, target.Revision = persistence.RefDocument, revision
	}
	after, ok := parseSource(in.Get("after").Str())
	if !ok {
		return result, fault.New(fault.InvalidRequest, "after is not the next of a page")
	}
	err = cfg.Store.View(ctx, func(r persistence.Reader) error {
		exists, err := exists(r, target)
		if err != nil {
			return err
		}
		result, err = sources(r, target, after, limitOf(in), exists)
		if err == nil && !exists && result.Count == 0 {
			err = noTarget(r, target)
		}
		return err
	})
	return result, err
}

// exists tells whether a target is there, as a tombstone too.
func exists(r persistence.Reader, target persistence.Ref) (ok bool, err error) {
	if target.Type == persistence.RefArtifact {
		_, ok, err = r.Artifact(target.Namespace, target.ID)
		return ok, err
	}
	_, ok, err = r.Revision(target.Namespace, target.ID, target.Revision)
	return ok, err
}

// noTarget says what is wrong with the name of a target that is not there.
func noTarget(r persistence.Reader, target persistence.Ref) error {
	head, ok, err := r.Head(target.Namespace, target.ID)
	switch {
	case err != nil:
		return err
	case ok && target.Type == persistence.RefArtifact:
		return fault.New(fault.NotFound, "it is a document and not an artifact: name a revision of it too, as %s@%d for its newest", target.ID, head.Revision)
	case ok:
		return fault.New(fault.NotFound, "the document has no revision %d, or it is purged; its newest is %d", target.Revision, head.Revision)
	}
	return fault.New(fault.NotFound, "there is no such artifact or document, and nothing refers to one")
}

// sources shows a page of the revisions that refer to target.
func sources(r persistence.Reader, target, after persistence.Ref, limit int, exists bool) (catalog.Result, error) {
	found, err := r.Inbound(target, after, limit+1)
	if err != nil {
		return catalog.Result{}, err
	}
	next := canonjson.Value{}
	if len(found) > limit {
		found = found[:limit]
		next = canonjson.String(formatSource(found[limit-1]))
	}
	items := make([]canonjson.Value, len(found))
	for i, s := range found {
		head, _, err := r.Head(s.Namespace, s.ID)
		if err != nil {
			return catalog.Result{}, err
		}
		items[i] = canonjson.Object(append(namespaceMembers(s.Namespace), canonjson.M("id", canonjson.String(s.ID)),
			canonjson.M("revision", canonjson.Int(s.Revision)), canonjson.M("newest", canonjson.Bool(head.Revision == s.Revision)))...)
	}
	return catalog.Result{Count: len(items), Value: canonjson.Object(canonjson.M("exists", canonjson.Bool(exists)),
		canonjson.M("references", canonjson.Array(items...)), canonjson.M("next", next))}, nil
}

// formatSource writes a revision of a document as the place where a page ended: kept namespace/id@revision.
func formatSource(r persistence.Ref) string {
	return r.Namespace + "/" + r.ID + "@" + strconv.FormatInt(r.Revision, 10)
}

// parseSource reads what formatSource wrote. "" is the beginning.
func parseSource(text string) (r persistence.Ref, ok bool) {
	if text == "" {
		return r, true
	}
	namespace, rest, ok := strings.Cut(text, "/")
	id, revision, ok2 := strings.Cut(rest, "@")
	n, err := strconv.ParseInt(revision, 10, 64)
	return persistence.Ref{Type: persistence.RefDocument, Namespace: namespace, ID: id, Revision: n}, ok && ok2 && err == nil
}
