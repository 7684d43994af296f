// Package operator holds the operations of the operator's slot: keys, explanations of the policy, health, the surface
// as it is served, what the store holds, the audit trail, checks and backups. They are called from the command line and
// from the control socket; no MCP client ever sees them.
//
//	ops := operator.Operations(operator.Config{Keys: service, Explain: gate.Explain, Health: health, Catalog: catalog})
//	c, err := catalog.New(names, append(documents, ops...)...)
//
// Each needs operator.read or operator.admin on the path of its area, such as /operator/keys.
package operator

import (
	"context"
	"log/slog"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Config is what the operations work on. An operation whose field is nil answers that it cannot be had here; they can
// all be listed without any.
type Config struct {
	Keys *identity.KeyService
	// Explain asks the server's policy one question. Only the gate holds a decider, so this is the gate's method.
	Explain func(ctx context.Context, subjects []string, check policy.Check) (policy.Decision, error)
	// Local is the caller that auth.local configures: an explanation of its subject has its roles. Nil: nobody.
	Local *identity.Principal
	// Policy is the configured policy, for notes on what a new key's roles and scopes mean. Nil: there is no section.
	Policy *policy.Config
	// Open tells that everything is allowed (--dev), so that there is nothing to note.
	Open bool
	// Health tells how each part of the server is, in a fixed order.
	Health func(ctx context.Context) []Part
	// Catalog gives the catalog that these operations are in. It is called when an operation runs, not before.
	Catalog func() *catalog.Catalog

	// Store tells what is kept.
	Store Snapshots
	// Artifacts calls fn for each artifact of each namespace, named as the store keeps it, in no order.
	Artifacts func(ctx context.Context, fn func(namespace, id string) error) error
	// Quota is what one namespace may hold, in bytes; 0 is no bound.
	Quota int64
	// Retention is the age from which something may be purged; nil is never.
	Retention *time.Duration

	// Trail is the audit trail in the store, and Reads the file in which allowed reads are, for a person to look into.
	Trail audit.Log
	Reads string
	// Verify follows the chains of the audit trail.
	Verify func(context.Context) (audit.Report, error)

	// Check and Backup work beside the server. Their values fit the operations' output schemas, and what they tell a
	// person by an error is a fault.
	Check  func(context.Context, CheckOptions) (canonjson.Value, error)
	Backup func(context.Context, BackupOptions) (canonjson.Value, error)
	// Log is told what the audit trail should hold and cannot take. Nil: nobody.
	Log *slog.Logger
}

// Snapshots is the readable half of a persistence.Store.
type Snapshots interface {
	View(ctx context.Context, fn func(persistence.Reader) error) error
}

// Part is how one part of the server is.
type Part struct {
	Name string // "store", "audit"
	Err  error  // nil when it works
}

// The paths of the areas.
const (
	keysPath    policy.Path = "/operator/keys"
	policyPath  policy.Path = "/operator/policy"
	healthPath  policy.Path = "/operator/health"
	surfacePath policy.Path = "/operator/surface"

	namespacesPath policy.Path = "/operator/namespaces"
	inboundPath    policy.Path = "/operator/inbound"
	retentionPath  policy.Path = "/operator/retention"
	auditPath      policy.Path = "/operator/audit"
	checkPath      policy.Path = "/operator/check"
	backupPath     policy.Path = "/operator/backup"
)

// Facts of operations that read, and of those that change a key.
var (
	reads   = catalog.Effects{ReadOnly: catalog.Yes, Destructive: catalog.No, Idempotent: catalog.Yes, OpenWorld: catalog.No}
	creates = catalog.Effects{ReadOnly: catalog.No, Destructive: catalog.No, Idempotent: catalog.No, OpenWorld: catalog.No}
	ends    = catalog.Effects{ReadOnly: catalog.No, Destructive: catalog.Yes, Idempotent: catalog.Yes, OpenWorld: catalog.No}
	rotates = catalog.Effects{ReadOnly: catalog.No, Destructive: catalog.Yes, Idempotent: catalog.No, OpenWorld: catalog.No}
)

// Operations lists the operations of the slot.
func Operations(cfg Config) []*catalog.Operation {
	ops := append(keyOperations(cfg), explainOperation(cfg), healthOperation(cfg), surfaceOperation(cfg),
		namespacesOperation(cfg), inboundOperation(cfg), retentionOperation(cfg),
		auditReadOperation(cfg), auditVerifyOperation(cfg), checkOperation(cfg), backupOperation(cfg))
	for _, op := range ops {
		op.Slot, op.Errors = catalog.Operator, fault.PlainDialect
	}
	return ops
}

// on needs c on one path, whatever the input.
func on(c policy.Capability, path policy.Path) func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) {
	return func(context.Context, catalog.Lookup, canonjson.Value) ([]policy.Check, error) {
		return []policy.Check{{Capability: c, Path: path}}, nil
	}
}

// Needs gives what a caller of an operation needs: its capability, and the path it is needed on. Both are empty for an
// unknown one.
func Needs(operation string) policy.Check {
	for _, op := range Operations(Config{}) {
		if op.Name != operation {
			continue
		}
		if checks, err := op.Targets(context.Background(), nil, canonjson.Value{}); err == nil && len(checks) > 0 {
			return checks[0]
		}
	}
	return policy.Check{}
}

// absent answers for an operation without its part.
func absent(what string) error {
	return fault.New(fault.UnsupportedFormat, "%s cannot be had here: it needs a running server or an open data folder", what)
}

// timeText is how times are shown, in UTC and milliseconds. The zero time is left out.
func timeText(t time.Time) canonjson.Value {
	if t.IsZero() {
		return canonjson.Value{}
	}
	return canonjson.String(t.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// text is s, left out when it is empty.
func text(s string) canonjson.Value {
	if s == "" {
		return canonjson.Value{}
	}
	return canonjson.String(s)
}

// list is items as JSON.
func list[T ~string](items []T) canonjson.Value {
	out := make([]canonjson.Value, len(items))
	for i, s := range items {
		out[i] = canonjson.String(string(s))
	}
	return canonjson.Array(out...)
}

// stringsOf gives the items of a JSON array of strings; nil for an absent one.
func stringsOf(v canonjson.Value) []string {
	var out []string
	for _, item := range v.Items() {
		out = append(out, item.Str())
	}
	return out
}
