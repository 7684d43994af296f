// Package manifest makes the contract of a slot as a file, from the catalog: what a client is built against without the
// server at hand. It also says what a change of the catalog means to such a client.
//
//	m := manifest.Build(catalog, manifest.Contract{Name: "persistence.v1", Slot: catalog.Persistence, Failure: schema}, 1)
//	change := manifest.Compare(old, m)
//
// An addition raises the revision of the contract. A change that breaks clients needs a contract of another name.
package manifest

import (
	"maps"
	"slices"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
)

// Contract says what is described.
type Contract struct {
	Name string
	Slot catalog.Slot
	// Dialect is how business failures are spelled, and Failure the JSON Schema of one.
	Dialect fault.Dialect
	Failure canonjson.Value
}

// Build describes, at a revision, what the catalog publishes of the slot: tools with both schemas, resources, templates, raw routes and
// error codes. The output schema is that of a success; tools/list shows it beside the failure's.
func Build(c *catalog.Catalog, k Contract, revision int64) canonjson.Value {
	var tools, fixed, templates, routes []canonjson.Value
	statuses := map[string]int{}
	for _, op := range c.Operations() {
		if op.Slot != k.Slot {
			continue
		}
		if op.Publish.Tool {
			tools = append(tools, tool(op))
		}
		for i := range op.Publish.Resources {
			r := &op.Publish.Resources[i]
			if r.Template == "" {
				fixed = append(fixed, resource("uri", r.URI, r, op))
			} else {
				templates = append(templates, resource("uriTemplate", r.Template, r, op))
			}
		}
		if r := op.Publish.Route; r != nil {
			routes = append(routes, route(r, op, k.Dialect, statuses))
		}
	}
	return canonjson.Object(
		canonjson.M("contract", canonjson.String(k.Name)),
		canonjson.M("revision", canonjson.Int(revision)),
		canonjson.M("tools", canonjson.Array(tools...)),
		canonjson.M("errorSchema", k.Failure),
		canonjson.M("errorCodes", codes(k.Dialect)),
		canonjson.M("resources", canonjson.Array(fixed...)),
		canonjson.M("resourceTemplates", canonjson.Array(templates...)),
		canonjson.M("transferRoutes", canonjson.Array(routes...)),
		canonjson.M("httpStatus", numbers(statuses)),
	)
}

// tool describes one tool.
func tool(op *catalog.Operation) canonjson.Value {
	return canonjson.Object(
		canonjson.M("name", canonjson.String(op.Name)),
		canonjson.M("title", canonjson.String(op.Title)),
		canonjson.M("description", canonjson.String(op.Doc)),
		canonjson.M("inputSchema", canonjson.Raw(op.In.Text())),
		canonjson.M("outputSchema", canonjson.Raw(op.Out.Text())),
		canonjson.M("annotations", canonjson.Object(
			canonjson.M("readOnlyHint", fact(op.Effects.ReadOnly)),
			canonjson.M("destructiveHint", fact(op.Effects.Destructive)),
			canonjson.M("idempotentHint", fact(op.Effects.Idempotent)),
			canonjson.M("openWorldHint", fact(op.Effects.OpenWorld)))),
		canonjson.M("check", capability(op)),
	)
}

// fact is a declared fact; one that is not declared is left out.
func fact(f catalog.Fact) canonjson.Value {
	value, set := f.Known()
	if !set {
		return canonjson.Value{}
	}
	return canonjson.Bool(value)
}

// capability is what the operation needs, left out when it needs nothing.
func capability(op *catalog.Operation) canonjson.Value {
	if op.Capability == "" {
		return canonjson.Value{}
	}
	return canonjson.String(string(op.Capability))
}

// resource describes what can be read under a URI or a template.
func resource(key, uri string, r *catalog.Resource, op *catalog.Operation) canonjson.Value {
	return canonjson.Object(
		canonjson.M(key, canonjson.String(uri)),
		canonjson.M("name", canonjson.String(r.Name)),
		canonjson.M("mimeType", canonjson.String(r.MIME)),
		canonjson.M("contentSchema", canonjson.Raw(op.Out.Text())),
	)
}

// route describes a raw route and notes the status of each of its codes.
func route(r *catalog.Route, op *catalog.Operation, d fault.Dialect, statuses map[string]int) canonjson.Value {
	path := "/" + r.Prefix
	for _, name := range r.Arguments {
		path += "/{" + name + "}"
	}
	answers := map[int]bool{}
	for _, code := range r.Errors {
		status := fault.New(code, "").Form(d, fault.Transfer, fault.Stateless).HTTP
		answers[status], statuses[string(code)] = true, status
	}
	var errors []canonjson.Value
	for _, status := range slices.Sorted(maps.Keys(answers)) {
		errors = append(errors, canonjson.Int(int64(status)))
	}
	headers := canonjson.Value{}
	if len(r.Headers) > 0 {
		var m []canonjson.Member
		for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
			m = append(m, canonjson.M(name, canonjson.String(r.Headers[name])))
		}
		headers = canonjson.Object(m...)
	}
	return canonjson.Object(
		canonjson.M("method", canonjson.String(r.Method)),
		canonjson.M("path", canonjson.String(path)),
		canonjson.M("success", canonjson.Int(int64(r.Status))),
		canonjson.M("errors", canonjson.Array(errors...)),
		canonjson.M("check", capability(op)),
		canonjson.M("headers", headers),
	)
}

// codes lists the business codes and whether the same request may succeed later.
func codes(d fault.Dialect) canonjson.Value {
	var out []canonjson.Value
	for _, c := range fault.Codes {
		f := fault.New(c, "")
		if !f.Form(d, fault.Tool, fault.Stateless).ToolError || d == fault.PersistenceDialect && fault.OfModels(c) {
			continue
		}
		out = append(out, canonjson.Object(
			canonjson.M("code", canonjson.String(string(c))), canonjson.M("retryable", canonjson.Bool(f.Retryable()))))
	}
	return canonjson.Array(out...)
}

// numbers is m as a JSON object, by name.
func numbers(m map[string]int) canonjson.Value {
	var out []canonjson.Member
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, canonjson.M(name, canonjson.Int(int64(m[name]))))
	}
	return canonjson.Object(out...)
}

// Revision is the revision that a manifest says it has, 0 for none.
func Revision(m canonjson.Value) int64 {
	n, _ := m.Get("revision").Int()
	return n
}
