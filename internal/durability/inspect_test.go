package durability_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/internal/testkit/verify"
	"github.com/tabellion-mcp/tabellion/internal/testkit/workload"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// atOnce is a retention after which everything that is superseded or published may be purged.
var atOnce time.Duration

// asAlice calls a server in this process as alice.
type asAlice struct{ *inproc.Server }

// Call implements workload.Caller.
func (a asAlice) Call(ctx context.Context, tool string, args []byte) (scenario.Answer, error) {
	return a.Server.Call(ctx, "alice", tool, args)
}

// HTTP implements workload.Caller.
func (a asAlice) HTTP(ctx context.Context, req scenario.HTTPRequest) (scenario.HTTPResponse, error) {
	return a.Server.HTTP(ctx, "alice", req)
}

// serverOn serves a store and its bytes in this process. Blobs nil: in memory.
func serverOn(tb inproc.TB, store inproc.Store, blobs persistence.Blobs) asAlice {
	return asAlice{inproc.New(tb, inproc.Config{Store: store, Blobs: blobs, Keep: &atOnce, Grants: scenario.DefaultGrants()})}
}

// newClients makes the eight clients of a run.
func newClients(cfg workload.Config, seed uint64, rec *history.Recorder) []*workload.Client {
	cfg.Shelf = workload.NewShelf()
	clients := make([]*workload.Client, 8)
	for n := range clients {
		clients[n] = workload.NewClient(cfg, n, seed, rec)
	}
	return clients
}

// inspect opens a data folder that nobody serves, which is a recovery, verifies it with its audit trail, and has it
// checked to the last byte. It changes the folder: orphans are swept, and received uploads committed.
func inspect(t *testing.T, dir string, ops []history.Op) (*verify.Report, error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) && len(acknowledged(ops)) == 0 {
		return &verify.Report{}, nil // the cut came before the folder was durable, and nothing was promised
	}
	report, err := reopened(t, dir, ops)
	if err != nil {
		return nil, err
	}
	check, err := maintain.Check(t.Context(), dir, maintain.CheckOptions{ReadData: true})
	if err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	for _, f := range check.Findings {
		report.Damaged = append(report.Damaged, "check: "+f.String())
	}
	return report, nil
}

// reopened opens a data folder, removes what nothing needs, and verifies it.
func reopened(t *testing.T, dir string, ops []history.Op) (report *verify.Report, err error) {
	store, blobs, err := disks{}.open(t.Context(), dir)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, blobs.Close(), store.Close()) }()
	server := serverOn(t, store, blobs)
	if _, err := server.Service.SweepOrphans(t.Context()); err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	return verify.Run(t.Context(), ops, &workload.Server{
		Caller: server,
		Audit:  func(ctx context.Context) ([]verify.Effect, error) { return effects(ctx, store) },
		Count:  func(ctx context.Context) (int, error) { return countArtifacts(ctx, store) },
	})
}

// countArtifacts counts the artifacts of the workload's namespace.
func countArtifacts(ctx context.Context, store persistence.Store) (n int, err error) {
	err = store.View(ctx, func(r persistence.Reader) error {
		all, err := r.Namespaces("", 1000)
		for _, f := range all {
			if f.Namespace == workload.Namespace {
				n = int(f.Artifacts)
			}
		}
		return err
	})
	return n, err
}

// acknowledged lists the writes that were answered with success.
func acknowledged(ops []history.Op) []history.Op {
	var out []history.Op
	for _, op := range ops {
		if !op.Kind.Reads() && op.Outcome == history.OK {
			out = append(out, op)
		}
	}
	return out
}

// auditPage is how many audit rows are read at once.
const auditPage = 1000

// effects reads the audit rows of writes, of every writer there was.
func effects(ctx context.Context, log audit.Log) ([]verify.Effect, error) {
	writers, err := log.AuditWriters(ctx)
	if err != nil {
		return nil, err
	}
	out := []verify.Effect{}
	for _, w := range writers {
		for after := int64(0); ; {
			records, err := log.AuditRows(ctx, w, after, auditPage)
			if err != nil {
				return nil, err
			}
			if len(records) == 0 {
				break
			}
			for _, r := range records {
				after = r.Position
				e, ok, err := effectOf(r.Row)
				if err != nil {
					return nil, err
				}
				if ok {
					out = append(out, e)
				}
			}
		}
	}
	return out, nil
}

// operations are the operations that change something, as audit rows name them.
var operations = map[string]history.Kind{
	"persistence.put": history.Put, "persistence.delete": history.Put, "persistence.purge": history.Purge,
	"persistence.beginArtifact": history.Begin, "persistence.receive": history.Receive,
	"persistence.commitArtifact": history.Commit, "persistence.abortArtifact": history.Abort,
}

// ownDoing are what the server does to uploads by itself. Clients are told nothing of it that must be there: an upload
// that is over is not_found, and one whose bytes were wrong is pending.
var ownDoing = map[string]bool{"persistence.expire": true, "persistence.takeBack": true}

// effectOf reads an audit row; ok is false when it tells of no effect on documents or artifacts.
func effectOf(row []byte) (e verify.Effect, ok bool, err error) {
	var r struct {
		Kind, Operation, Target string
		Revision                int64
	}
	if err := json.Unmarshal(row, &r); err != nil {
		return e, false, err
	}
	if r.Kind != string(audit.KindEffect) || !strings.HasPrefix(r.Operation, "persistence.") || ownDoing[r.Operation] {
		return e, false, nil
	}
	e.Kind, ok = operations[r.Operation]
	parts := strings.Split(r.Target, "/") // "", persistence, namespaces, <ns>, documents or artifacts, <id>
	if !ok || len(parts) != 6 {
		return e, false, fmt.Errorf("an audit row tells of an effect of %q on %q", r.Operation, r.Target)
	}
	name := parts[3] + "/" + parts[5]
	switch {
	case parts[4] == "documents":
		e.Document, e.Revision = name, r.Revision
	case e.Kind == history.Begin:
	case e.Kind == history.Purge:
		e.Kind, e.Artifact = history.PurgeArtifact, name
	default:
		e.Artifact = name
	}
	return e, true, nil
}
