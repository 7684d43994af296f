package persistence

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"sync"

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

// tools reads and compiles the schemas of the tools that are served, once.
var tools = sync.OnceValue(func() map[string]tool {
	v, err := canonjson.ParseStrict(schemasJSON, canonjson.Limits{Depth: 100, Nodes: 100_000})
	if err != nil {
		panic(fmt.Sprintf("persistence schemas: %v", err))
	}
	served := map[string]bool{"capabilities": true, "get": true, "put": true, "list": true, "listRevisions": true, "delete": true}
	out := map[string]tool{}
	for _, t := range v.Get("tools").Items() {
		name := t.Get("name").Str()
		if !served[strings.TrimPrefix(name, "persistence.")] {
			continue
		}
		out[name] = tool{
			doc:    t.Get("description").Str(),
			in:     catalog.MustSchema(string(t.Get("inputSchema").AppendJSON(nil))),
			out:    catalog.MustSchema(string(t.Get("outputSchema").AppendJSON(nil))),
			listed: catalog.MustSchema(string(withFailure(t.Get("outputSchema"), v.Get("errorSchema")).AppendJSON(nil))),
		}
	}
	return out
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
	for _, op := range ops {
		t := tools()[op.Name]
		op.Slot, op.Errors, op.Publish.Tool = catalog.Persistence, fault.PersistenceDialect, true
		op.Doc, op.In, op.Out, op.Publish.Output = t.doc, t.in, t.out, t.listed
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
