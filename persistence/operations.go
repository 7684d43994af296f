//go:generate go run ../cmd/tabellion docs contract ../contracts/persistence.v1.json

package persistence

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/policy"
)

// schemasJSON holds name, description and both schemas of every tool of the contract.
//
//go:embed schemas.json
var schemasJSON []byte

// tool is what the contract fixes of one tool.
type tool struct {
	doc             string
	in, out, listed *catalog.Schema
}

// tools reads the schemas of the tools, once.
var tools = sync.OnceValue(func() map[string]tool {
	v := contractFile()
	out := map[string]tool{}
	for _, t := range v.Get("tools").Items() {
		out[t.Get("name").Str()] = tool{
			doc:    t.Get("description").Str(),
			in:     catalog.MustSchema(string(t.Get("inputSchema").AppendJSON(nil))),
			out:    catalog.MustSchema(string(t.Get("outputSchema").AppendJSON(nil))),
			listed: catalog.MustSchema(string(withFailure(t.Get("outputSchema"), v.Get("errorSchema")).AppendJSON(nil))),
		}
	}
	return out
})

// FailureSchema is the JSON Schema of a business failure.
func FailureSchema() canonjson.Value { return contractFile().Get("errorSchema") }

// contractFile is the file of schemas.
var contractFile = sync.OnceValue(func() canonjson.Value {
	v, err := canonjson.ParseStrict(schemasJSON, canonjson.Limits{Depth: 100, Nodes: 100_000})
	if err != nil {
		panic(fmt.Sprintf("persistence schemas: %v", err))
	}
	return v
})

// withFailure is the output schema as it is listed: the contract's own for a success, or the error envelope. The
// contract puts the envelope into structuredContent, and clients that check structured content of failures against
// the listed schema would hide every business error from the model otherwise.
func withFailure(success, failure canonjson.Value) canonjson.Value {
	m := []canonjson.Member{
		canonjson.M("$schema", success.Get("$schema")),
		canonjson.M("type", canonjson.String("object")),
		canonjson.M("oneOf", canonjson.Array(success.Without("$schema", "$defs"), failure.Without("$schema"))),
	}
	if defs := success.Get("$defs"); !defs.IsAbsent() {
		m = append(m, canonjson.M("$defs", defs))
	}
	return canonjson.Object(m...)
}

// Operations lists the slot's operations, in the order of the contract. They can be listed without a store, and
// not run.
func (s *Service) Operations() []*catalog.Operation {
	reads := catalog.Effects{ReadOnly: catalog.Yes, Destructive: catalog.No, Idempotent: catalog.Yes, OpenWorld: catalog.No}
	writes := catalog.Effects{
		ReadOnly: catalog.No, Destructive: catalog.No, Idempotent: catalog.Yes, OpenWorld: catalog.No,
		Invalidates: []string{"persistence.get", "persistence.list", "persistence.listRevisions"},
	}
	deletes := writes
	deletes.Destructive = catalog.Yes
	page := catalog.Bounds{Items: 200}
	ops := []*catalog.Operation{
		{Name: "persistence.capabilities", Title: "Limits and durability", Effects: reads, Run: s.capabilities,
			Publish: catalog.Publish{Resources: []catalog.Resource{capabilitiesResource}}},
		{Name: "persistence.get", Title: "Read a document", Effects: reads, Capability: policy.PersistenceRead,
			Targets: documentTarget(policy.PersistenceRead), Run: s.get,
			Publish: catalog.Publish{Resources: []catalog.Resource{headResource, revisionResource}}},
		{Name: "persistence.put", Title: "Write a document", Effects: writes, Capability: policy.PersistenceWrite,
			Content: []string{"payload"}, Targets: s.putTargets, Run: s.put},
		{Name: "persistence.list", Title: "List documents", Effects: reads, Capability: policy.PersistenceRead,
			Validate: s.checkLimit, Bounds: page, Targets: noTargets, AuditTarget: namespacePath, Worded: cursorWords, Run: s.list},
		{Name: "persistence.listRevisions", Title: "List revisions", Effects: reads, Capability: policy.PersistenceRead,
			Validate: s.checkLimit, Bounds: page, Targets: documentTarget(policy.PersistenceRead), Worded: cursorWords, Run: s.listRevisions},
		{Name: "persistence.delete", Title: "Delete a document", Effects: deletes, Capability: policy.PersistenceDelete,
			Targets: documentTarget(policy.PersistenceDelete), Run: s.delete},
	}
	ops = append(ops, s.artifactOperations(reads, writes, deletes)...)
	for _, op := range ops {
		t := tools()[op.Name]
		op.Slot, op.Errors, op.Publish.Tool = catalog.Persistence, fault.PersistenceDialect, true
		op.Doc, op.In, op.Out, op.Publish.Output = t.doc, t.in, t.out, t.listed
	}
	return append(ops, s.routes(reads, writes)...)
}

// artifactOperations are the tools after those of documents, in the order of the contract.
func (s *Service) artifactOperations(reads, writes, deletes catalog.Effects) []*catalog.Operation {
	writes.Invalidates, deletes.Invalidates = nil, append(deletes.Invalidates, "persistence.getArtifact")
	return []*catalog.Operation{
		{Name: "persistence.purge", Title: "Purge a revision or an artifact", Effects: deletes, Capability: policy.PersistenceAdmin,
			Targets: purgeTarget, Run: s.purge},
		{Name: "persistence.beginArtifact", Title: "Open an upload", Effects: writes, Capability: policy.PersistenceWrite,
			Content: []string{"provenance"}, Targets: newArtifactTarget, Run: s.beginArtifact},
		{Name: "persistence.uploadAccess", Title: "Look at an upload", Effects: reads, Capability: policy.PersistenceWrite,
			Targets: uploadTarget, Run: s.uploadAccess},
		{Name: "persistence.commitArtifact", Title: "Publish an artifact", Effects: writes, Capability: policy.PersistenceWrite,
			Bounds: catalog.Bounds{Deadline: verifyWithin}, Targets: uploadTarget, Run: s.commitArtifact},
		{Name: "persistence.abortArtifact", Title: "Give up an upload", Effects: deletes, Capability: policy.PersistenceWrite,
			Targets: uploadTarget, Run: s.abortArtifact},
		{Name: "persistence.getArtifact", Title: "Read an artifact's metadata", Effects: reads, Capability: policy.PersistenceRead,
			Targets: artifactTarget(policy.PersistenceRead), Run: s.getArtifact,
			Publish: catalog.Publish{Resources: []catalog.Resource{artifactResource}}},
	}
}

// Deadlines of what moves bytes: reading the largest artifact once, and a whole transfer, which ends with its upload at
// the latest and much earlier when the sender is slow.
const (
	verifyWithin   = 10 * time.Minute
	transferWithin = uploadLife
)

// The routes of persistence.v1, section 6: operations with a byte stream.
var (
	uploadRoute = catalog.Route{
		Method: "PUT", Prefix: "uploads", Arguments: []string{"namespace", "uploadId"}, Status: http.StatusNoContent,
		Errors: []fault.Code{fault.InvalidRequest, fault.TransferIncomplete, fault.IntegrityError, fault.UnsupportedFormat,
			fault.PolicyDenied, fault.NotFound, fault.QuotaExceeded, fault.Busy, fault.StoreUnavailable},
	}
	downloadRoute = catalog.Route{
		Method: "GET", Prefix: "artifacts", Arguments: []string{"namespace", "id"}, Status: http.StatusOK,
		Errors:  []fault.Code{fault.IntegrityError, fault.PolicyDenied, fault.NotFound, fault.Busy, fault.StoreUnavailable},
		Headers: map[string]string{"Cache-Control": "no-store"},
	}
)

// routes are the operations that move bytes. They have no tool: no bytes go through MCP.
func (s *Service) routes(reads, writes catalog.Effects) []*catalog.Operation {
	// A transfer that was recorded cannot be repeated: the second one is refused, and nothing changes.
	writes.Idempotent, writes.Invalidates = catalog.No, nil
	ops := []*catalog.Operation{
		{Name: "persistence.receive", Title: "Send the bytes of an upload", Effects: writes, Capability: policy.PersistenceWrite,
			Doc: "Takes the bytes of an open upload.", In: tools()["persistence.uploadAccess"].in, Targets: uploadTarget, Run: s.receive,
			Publish: catalog.Publish{Route: &uploadRoute}},
		{Name: "persistence.download", Title: "Read the bytes of an artifact", Effects: reads, Capability: policy.PersistenceRead,
			Doc: "Gives the bytes of an artifact.", In: tools()["persistence.getArtifact"].in, Targets: artifactTarget(policy.PersistenceRead), Run: s.download,
			Publish: catalog.Publish{Route: &downloadRoute}},
	}
	for _, op := range ops {
		op.Slot, op.Errors, op.Bounds.Deadline = catalog.Persistence, fault.PersistenceDialect, transferWithin
	}
	return ops
}

// namespacePath is what a listing is about.
func namespacePath(in canonjson.Value) policy.Path {
	return policy.Path(root + "/namespaces/" + in.Get("namespace").Str())
}

// noTargets leaves the decision to each entry of the page.
func noTargets(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) {
	return nil, nil
}

// documentTarget needs c on the document that the input names.
func documentTarget(c policy.Capability) func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) {
	return func(_ context.Context, _ catalog.Lookup, in canonjson.Value) ([]policy.Check, error) {
		return []policy.Check{{Capability: c, Path: documentPath(in.Get("namespace").Str(), in.Get("id").Str())}}, nil
	}
}

// putTargets needs write on the document and read on each distinct reference target, in one batch. With more
// references than allowed only the document is asked for: the call ends at the quota before any target is looked at.
func (s *Service) putTargets(ctx context.Context, l catalog.Lookup, in canonjson.Value) ([]policy.Check, error) {
	checks, err := documentTarget(policy.PersistenceWrite)(ctx, l, in)
	refs := parseRefs("", in.Get("references"))
	if err != nil || len(refs) > s.cfg.Limits.MaxReferences {
		return checks, err
	}
	seen := map[policy.Path]bool{}
	for _, r := range refs {
		if p := r.path(); !seen[p] {
			seen[p] = true
			checks = append(checks, policy.Check{Capability: policy.PersistenceRead, Path: p})
		}
	}
	return checks, nil
}
