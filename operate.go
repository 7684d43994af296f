package tabellion

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/operator"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/policy"
)

// operatorOperations are the operations of the command line and the control socket. Without an open store they can be
// listed and not run.
func (p *parts) operatorOperations() []*catalog.Operation {
	cfg := operator.Config{
		Keys: p.keys, Local: localCaller(p.cfg), Policy: p.cfg.Policy, Open: p.cfg.Dev,
		Explain: func(ctx context.Context, subjects []string, c policy.Check) (policy.Decision, error) {
			return p.gate.Explain(ctx, subjects, c)
		},
		Health: func(context.Context) []operator.Part {
			return []operator.Part{{Name: "store", Err: p.store.Healthy()}, {Name: "blobs", Err: p.blobs.Healthy()}, {Name: "audit", Err: p.recorder.Healthy()}}
		},
		Catalog: func() *catalog.Catalog { return p.catalog },
		Quota:   p.cfg.Persistence.Limits.MaxNamespaceBytes, Retention: p.cfg.Persistence.Retention,
	}
	if p.store != nil {
		cfg.Store, cfg.Artifacts = p.store, p.artifacts
		cfg.Trail, cfg.Verify, cfg.Reads = p.trail, p.verifyTrail, filepath.Join(p.cfg.Data, readsFile)
		cfg.Check, cfg.Backup, cfg.Log = p.check, p.backup, p.log
	}
	return operator.Operations(cfg)
}

// artifacts calls fn for each artifact of the store, over one snapshot.
func (p *parts) artifacts(ctx context.Context, fn func(namespace, id string) error) (err error) {
	i, err := p.store.Inspect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.Close()) }()
	return i.Needs(func(n sqlite.Need) error {
		if n.Upload {
			return nil
		}
		return fn(n.Namespace, n.ID)
	})
}

// verifyTrail verifies the audit trail with the key in the data folder.
func (p *parts) verifyTrail(ctx context.Context) (audit.Report, error) {
	signer, err := audit.OpenSigner(p.cfg.Data, rand.Reader)
	if err != nil {
		return audit.Report{}, err
	}
	return audit.Verify(ctx, p.trail, signer.Public())
}

// check checks the data folder beside the calls.
func (p *parts) check(ctx context.Context, o operator.CheckOptions) (canonjson.Value, error) {
	report, err := maintain.CheckOpen(ctx, p.store, p.blobs, maintain.CheckOptions{
		ReadData: o.ReadData, Subset: o.Subset, Progress: o.Progress, Now: o.Now,
	})
	if err != nil {
		return canonjson.Value{}, maintenanceFault(ctx, "the check", err)
	}
	if report.Findings == nil {
		report.Findings = []maintain.Finding{} // a list without entries, not null
	}
	boundFindings(report)
	return asValue(report)
}

// findingBytes bounds the findings of an answer, in bytes of JSON. A folder that is damaged in more places is restored,
// not read through.
const findingBytes = 1 << 20

// boundFindings cuts the list of findings to what fits an answer, and counts the rest.
func boundFindings(r *maintain.CheckReport) {
	size := 0
	for i, f := range r.Findings {
		text, _ := json.Marshal(f) // texts always encode
		if size += len(text); size > findingBytes {
			r.Omitted += int64(len(r.Findings) - i)
			r.Findings = r.Findings[:i]
			return
		}
	}
}

// backup copies the data folder beside the calls. Removals of bytes wait meanwhile.
func (p *parts) backup(ctx context.Context, o operator.BackupOptions) (canonjson.Value, error) {
	report, err := maintain.BackupOpen(ctx, p.store, p.blobs, p.service.HoldBlobs, p.cfg.Data, o.To, maintain.BackupOptions{
		Force: o.Force, Version: Version(), Progress: o.Progress, Now: o.Now,
	})
	if err != nil {
		return canonjson.Value{}, maintenanceFault(ctx, "the backup", err)
	}
	return asValue(report)
}

// maintenanceFault is what an operator is told of a check or a backup that failed.
func maintenanceFault(ctx context.Context, what string, err error) error {
	var damaged *maintain.DamagedError
	switch {
	case fault.As(err) != nil:
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return fault.New(fault.Cancelled, "%s was cancelled; it left nothing that counts as whole", what)
	case errors.As(err, &damaged):
		return fault.New(fault.IntegrityError, "%s", err)
	case errors.Is(err, maintain.ErrReopened), errors.Is(err, persistence.ErrUnavailable):
		return fault.New(fault.StoreUnavailable, "%s did not come to its end: %s", what, err)
	case errors.Is(err, maintain.ErrNotEmpty):
		return fault.New(fault.InvalidRequest, "%s", err)
	}
	return fault.New(fault.Internal, "%s failed: %s", what, err)
}

// asValue is v as it is on the wire.
func asValue(v any) (canonjson.Value, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return canonjson.Value{}, err
	}
	value, err := canonjson.ParseStrict(text, gate.FrameLimits())
	if err != nil {
		return value, fmt.Errorf("read a report: %w", err)
	}
	return value, nil
}

// readsFile is the file of allowed reads in the data folder; full ones are beside it, with a number in their names.
const readsFile = "audit-reads.jsonl"
