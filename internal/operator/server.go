package operator

import (
	"context"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Schemas of operator.policy.explain.
const (
	explainIn = `{"type":"object","additionalProperties":false,"required":["subject","capability","path"],"properties":{
 "subject":{"type":"string","minLength":1,"maxLength":256,"description":"Such as user:ana, key:7f3a12bc90de, role:writer or local:me. A key has its user and roles and is narrowed by its scopes; the configured local caller has its roles."},
 "roles":{"type":"array","maxItems":64,"items":{"type":"string"},"description":"Roles that the subject has beside."},
 "capability":{"type":"string","description":"Such as persistence.write."},
 "path":{"type":"string","maxLength":1024,"description":"Such as /persistence/namespaces/a/documents/b."}}}`

	explainOut = `{"type":"object","additionalProperties":false,"required":["allow","rule"],"properties":{
 "allow":{"type":"boolean"},
 "rule":{"type":"string","description":"What decided."}}}`
)

// explainOperation answers what the policy says, and why.
func explainOperation(cfg Config) *catalog.Operation {
	return &catalog.Operation{
		Name: "operator.policy.explain", Title: "Explain an access decision", Effects: reads, Capability: policy.OperatorRead,
		Doc: "Tells whether the policy allows a subject a capability on a path, and which rule decides. A key's scopes and its end decide too.",
		In:  catalog.MustSchema(explainIn), Out: catalog.MustSchema(explainOut),
		Targets: on(policy.OperatorRead, policyPath),
		Run: func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
			if cfg.Explain == nil {
				return catalog.Result{}, absent("the policy")
			}
			check, subjects, err := question(c.In)
			if err != nil {
				return catalog.Result{}, err
			}
			d, err := cfg.Answer(ctx, c.Now, subjects, check)
			return catalog.Result{Value: canonjson.Object(
				canonjson.M("allow", canonjson.Bool(d.Allow)), canonjson.M("rule", canonjson.String(d.Rule)))}, err
		},
	}
}

// question reads the check and the subjects of an explanation, so that a typing error is not answered with a denial.
func question(in canonjson.Value) (policy.Check, []string, error) {
	check := policy.Check{Capability: policy.Capability(in.Get("capability").Str()), Path: policy.Path(in.Get("path").Str())}
	if !check.Capability.Known() {
		return check, nil, fault.New(fault.InvalidRequest, "unknown capability %q", catalog.Clip(string(check.Capability), 64))
	}
	if p, err := policy.ParsePattern(string(check.Path)); err != nil || p.Base() != check.Path {
		return check, nil, fault.New(fault.InvalidRequest, "%q is no path such as /persistence/namespaces/a/documents/b", catalog.Clip(string(check.Path), 64))
	}
	subjects := []string{in.Get("subject").Str()}
	for _, role := range stringsOf(in.Get("roles")) {
		subjects = append(subjects, "role:"+role)
	}
	for _, s := range subjects {
		if err := policy.CheckSubject(s); err != nil || s == "*" {
			return check, nil, fault.New(fault.InvalidRequest, "%q is no subject such as user:ana", catalog.Clip(s, 64))
		}
	}
	return check, subjects, nil
}

// Schemas of operator.health.
const (
	noneIn = `{"type":"object","additionalProperties":false,"properties":{}}`

	healthOut = `{"type":"object","additionalProperties":false,"required":["ready","parts"],"properties":{
 "ready":{"type":"boolean","description":"Every part works."},
 "parts":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["name","ok"],"properties":{
  "name":{"type":"string"},"ok":{"type":"boolean"},"message":{"type":"string"}}}}}}`
)

// healthOperation tells how the server is.
func healthOperation(cfg Config) *catalog.Operation {
	return &catalog.Operation{
		Name: "operator.health", Title: "Health", Effects: reads, Capability: policy.OperatorRead,
		Doc: "Tells whether each part of the server works, and what is wrong with it.",
		In:  catalog.MustSchema(noneIn), Out: catalog.MustSchema(healthOut),
		Targets: on(policy.OperatorRead, healthPath),
		Run: func(ctx context.Context, _ *catalog.Call) (catalog.Result, error) {
			if cfg.Health == nil {
				return catalog.Result{}, absent("the health")
			}
			ready := true
			var parts []canonjson.Value
			for _, p := range cfg.Health(ctx) {
				message := canonjson.Value{}
				if p.Err != nil {
					ready, message = false, canonjson.String(p.Err.Error())
				}
				parts = append(parts, canonjson.Object(canonjson.M("name", canonjson.String(p.Name)),
					canonjson.M("ok", canonjson.Bool(p.Err == nil)), canonjson.M("message", message)))
			}
			return catalog.Result{Value: canonjson.Object(
				canonjson.M("ready", canonjson.Bool(ready)), canonjson.M("parts", canonjson.Array(parts...)))}, nil
		},
	}
}

// Schema of the answer of operator.surface.
const surfaceOut = `{"type":"object","additionalProperties":false,"required":["endpoints","operations"],"properties":{
 "endpoints":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["endpoint","hash","tools","bytes"],"properties":{
  "endpoint":{"type":"string"},
  "hash":{"type":"string","description":"Digest of the list of tools, as in the audit trail."},
  "tools":{"type":"array","items":{"type":"string"}},
  "bytes":{"type":"integer","description":"Of the list of tools."}}}},
 "operations":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["name","slot","tool","resources","prompt"],"properties":{
  "name":{"type":"string"},"slot":{"type":"string"},"capability":{"type":"string","description":"Absent: no right is needed."},
  "tool":{"type":"string","description":"Name on the wire; empty when it is no tool."},
  "resources":{"type":"array","items":{"type":"string"}},"prompt":{"type":"boolean"},
  "readOnly":{"type":"boolean"},"destructive":{"type":"boolean"},"idempotent":{"type":"boolean"},"openWorld":{"type":"boolean"}}}}}}`

// surfaceOperation shows everything that is published, to a caller who may do all.
func surfaceOperation(cfg Config) *catalog.Operation {
	return &catalog.Operation{
		Name: "operator.surface", Title: "Published surface", Effects: reads, Capability: policy.OperatorRead,
		Doc: "Lists the endpoints with their tools, and every operation with its declared facts.",
		In:  catalog.MustSchema(noneIn), Out: catalog.MustSchema(surfaceOut),
		Targets: on(policy.OperatorRead, surfacePath),
		Run: func(context.Context, *catalog.Call) (catalog.Result, error) {
			if cfg.Catalog == nil {
				return catalog.Result{}, absent("the surface")
			}
			c := cfg.Catalog()
			return catalog.Result{Value: canonjson.Object(
				canonjson.M("endpoints", endpoints(c)), canonjson.M("operations", operations(c)))}, nil
		},
	}
}

// endpoints shows each endpoint that has an operation.
func endpoints(c *catalog.Catalog) canonjson.Value {
	var out []canonjson.Value
	for _, e := range []catalog.Endpoint{catalog.All, catalog.Of(catalog.Persistence), catalog.Of(catalog.Models), catalog.Of(catalog.Context)} {
		rights := catalog.Rights{}
		for _, q := range c.Questions(e) {
			rights[q] = true
		}
		v := c.View(rights, e)
		if len(v.Ops) == 0 {
			continue
		}
		var tools []string
		for _, op := range v.Ops {
			if op.Publish.Tool {
				tools = append(tools, v.ToolName(op))
			}
		}
		out = append(out, canonjson.Object(
			canonjson.M("endpoint", canonjson.String(string(e))),
			canonjson.M("hash", canonjson.String(v.Hash)),
			canonjson.M("tools", list(tools)),
			canonjson.M("bytes", canonjson.Int(int64(len(v.ToolsJSON()))))))
	}
	return canonjson.Array(out...)
}

// operations shows each operation with its facts; a fact that is not declared is left out.
func operations(c *catalog.Catalog) canonjson.Value {
	var out []canonjson.Value
	for _, op := range c.Operations() {
		tool := ""
		if op.Publish.Tool {
			tool = c.WireName(op)
		}
		out = append(out, canonjson.Object(
			canonjson.M("name", canonjson.String(op.Name)),
			canonjson.M("slot", canonjson.String(string(op.Slot))),
			canonjson.M("capability", text(string(op.Capability))),
			canonjson.M("tool", canonjson.String(tool)),
			canonjson.M("resources", list(uris(op))),
			canonjson.M("prompt", canonjson.Bool(op.Publish.Prompt != nil)),
			canonjson.M("readOnly", fact(op.Effects.ReadOnly)),
			canonjson.M("destructive", fact(op.Effects.Destructive)),
			canonjson.M("idempotent", fact(op.Effects.Idempotent)),
			canonjson.M("openWorld", fact(op.Effects.OpenWorld))))
	}
	return canonjson.Array(out...)
}

// uris lists the URIs and templates under which op can be read.
func uris(op *catalog.Operation) []string {
	var out []string
	for _, r := range op.Publish.Resources {
		out = append(out, r.URI+r.Template)
	}
	return out
}

// fact shows a declared fact.
func fact(f catalog.Fact) canonjson.Value {
	value, set := f.Known()
	if !set {
		return canonjson.Value{}
	}
	return canonjson.Bool(value)
}
