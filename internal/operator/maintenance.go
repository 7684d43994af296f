package operator

import (
	"context"
	"path/filepath"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/policy"
)

// maintenanceDeadline bounds a check and a backup: they read every byte of a large folder.
const maintenanceDeadline = 24 * time.Hour

// maintenanceBytes bounds the answer of a check. Its finder cuts the list of findings to fit.
const maintenanceBytes = 4 << 20

// CheckOptions are those of a check beside the server.
type CheckOptions struct {
	ReadData bool
	Subset   float64 // share of the bytes to read, above 0 and below 1; 0 is all
	Progress func(stage string, done, total int64)
	Now      time.Time
}

// BackupOptions are those of a backup beside the server.
type BackupOptions struct {
	To       string // absolute, as the server sees it
	Force    bool
	Progress func(stage string, done, total int64)
	Now      time.Time
}

// Schemas of operator.check and operator.backup.
const (
	checkIn = `{"type":"object","additionalProperties":false,"properties":{
 "readData":{"type":"boolean","description":"Read and hash the bytes of artifacts."},
 "subset":{"type":"number","exclusiveMinimum":0,"maximum":1,"description":"With readData: the share of them to read, another one each time."}}}`

	findingSchema = `{"type":"object","additionalProperties":false,"required":["kind","where","message","remedy","damage"],"properties":{
 "kind":{"type":"string"},"where":{"type":"string"},"message":{"type":"string"},"remedy":{"type":"string"},
 "damage":{"type":"boolean","description":"Something is lost or wrong for callers. false: a leftover or a hint."}}}`

	checkOut = `{"type":"object","required":["format","at","findings","omitted"],"properties":{
 "format":{"type":"integer"},"at":{"type":"string","format":"date-time"},
 "namespaces":{"type":"integer"},"documents":{"type":"integer"},"revisions":{"type":"integer"},"artifacts":{"type":"integer"},
 "uploads":{"type":"integer"},"blobs":{"type":"integer"},"auditRows":{"type":"integer"},
 "dataBytes":{"type":"integer","description":"Read and hashed."},
 "findings":{"type":"array","items":` + findingSchema + `},
 "omitted":{"type":"integer","description":"Findings that are not listed."}}}`

	backupIn = `{"type":"object","additionalProperties":false,"required":["to"],"properties":{
 "to":{"type":"string","minLength":1,"maxLength":4096,"description":"Folder of the backup, absolute, as the server sees it."},
 "force":{"type":"boolean","description":"Move aside what is there."}}}`

	backupOut = `{"type":"object","required":["dir","at","format"],"properties":{
 "dir":{"type":"string"},"at":{"type":"string","format":"date-time","description":"The point in time that it holds."},"format":{"type":"integer"},
 "unnoted":{"type":"string","description":"Why the audit trail does not hold this backup; absent: it does."}}}`
)

// checkOperation checks the folder beside the server.
func checkOperation(cfg Config) *catalog.Operation {
	return &catalog.Operation{
		Name: "operator.check", Title: "Check the data folder", Effects: reads, Capability: policy.OperatorRead,
		Doc: "Checks the data folder beside the server, over one snapshot: every invariant, the audit trail, and with readData every byte. Nothing is changed.",
		In:  catalog.MustSchema(checkIn), Out: catalog.MustSchema(checkOut),
		Bounds:  catalog.Bounds{Deadline: maintenanceDeadline, Concurrency: 1, Bytes: maintenanceBytes},
		Targets: on(policy.OperatorRead, checkPath),
		Run: func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
			if cfg.Check == nil {
				return catalog.Result{}, absent("a check")
			}
			value, err := cfg.Check(ctx, CheckOptions{
				ReadData: c.In.Get("readData").Bool(), Subset: c.In.Get("subset").Float(), Progress: staged(c), Now: c.Now,
			})
			return catalog.Result{Value: value, Count: value.Get("findings").Len()}, err
		},
	}
}

// staged is a call's progress as stages of whole numbers.
func staged(c *catalog.Call) func(stage string, done, total int64) {
	return func(stage string, done, total int64) { c.Progress(float64(done), float64(total), stage) }
}

// backupOperation backs up beside the server.
func backupOperation(cfg Config) *catalog.Operation {
	return &catalog.Operation{
		Name: "operator.backup", Title: "Back up the data folder", Effects: creates, Capability: policy.OperatorAdmin,
		Doc: "Copies the data folder beside the server, as of one point in time. The copy holds everything, secrets too.",
		In:  catalog.MustSchema(backupIn), Out: catalog.MustSchema(backupOut),
		Bounds:  catalog.Bounds{Deadline: maintenanceDeadline, Concurrency: 1},
		Targets: on(policy.OperatorAdmin, backupPath),
		Validate: func(in canonjson.Value) error {
			if to := in.Get("to").Str(); !filepath.IsAbs(to) {
				return fault.New(fault.InvalidRequest, "the folder of the backup is %s: it must be an absolute path, as the server sees it", catalog.Quote(to, 256))
			}
			return nil
		},
		Run: func(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
			if cfg.Backup == nil || cfg.Trail == nil {
				return catalog.Result{}, absent("a backup")
			}
			return backup(ctx, cfg, c)
		},
	}
}

// backup runs operator.backup. Everything leaves the server with it, so that its intent is in the audit trail before,
// and its outcome after (security requirements, S61).
//
// It changes nothing in the store, and a store that takes no entries is when it is needed most: its disk is full, or
// fails. Loss of the trail stops writes and not reads (S62), so it goes on then. What could not be noted is tried once
// more at the end; without that the answer, the log and, by the gate, the file of reads tell of it.
func backup(ctx context.Context, cfg Config, c *catalog.Call) (catalog.Result, error) {
	to := filepath.Clean(c.In.Get("to").Str())
	c.Commit.Entry.Note = "to " + catalog.Clip(to, 256)
	intent := c.Commit.Entry
	intent.Outcome = "begun"
	rows := []audit.Row{intent.Encode()}
	switch err := cfg.Trail.AppendAudit(ctx, rows); {
	case err == nil:
		rows = nil
	case ctx.Err() != nil:
		return catalog.Result{}, err
	default:
		cfg.warn(ctx, "a backup begins and its intent cannot be put into the audit trail", to, c, err)
	}
	value, err := cfg.Backup(ctx, BackupOptions{To: to, Force: c.In.Get("force").Bool(), Progress: staged(c), Now: c.Now})
	if err != nil {
		return catalog.Result{}, err
	}
	// What is copied is copied, whoever has gone away.
	if err := cfg.Trail.AppendAudit(context.WithoutCancel(ctx), append(rows, c.Commit.Entry.Encode())); err != nil {
		cfg.warn(ctx, "a backup was made and could not be put into the audit trail", to, c, err)
		return catalog.Result{Value: with(value, "unnoted", canonjson.String(err.Error()))}, nil
	}
	c.Commit.Seal() // the row is in the store
	return catalog.Result{Value: value}, nil
}

// warn logs what the audit trail does not hold.
func (cfg *Config) warn(ctx context.Context, what, to string, c *catalog.Call, err error) {
	if cfg.Log != nil {
		cfg.Log.ErrorContext(ctx, what, "to", to, "correlation", c.Commit.Entry.Correlation, "subject", c.Who.Subject, "error", err)
	}
}

// with is an object with a further member.
func with(v canonjson.Value, name string, member canonjson.Value) canonjson.Value {
	return canonjson.Object(append(append([]canonjson.Member{}, v.Members()...), canonjson.M(name, member))...)
}
