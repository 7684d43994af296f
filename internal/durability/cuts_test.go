package durability_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/internal/testkit/powercut"
	"github.com/tabellion-mcp/tabellion/internal/testkit/verify"
	"github.com/tabellion-mcp/tabellion/internal/testkit/workload"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// The shape of a power-cut run.
const (
	imagesPerCut = 4
	cutsPerStore = 10 // a fresh store, so that creation is cut too, and reading the images stays short
)

// cutRun counts what a run of cuts met.
type cutRun struct {
	cuts, images, acknowledged int
	inFlight                   int // cuts that met a write under way
	violations                 []string
}

// TestPowerCuts cuts the power under a store that eight clients write to, opens every image of the disk, and looks for
// what was acknowledged before the cut.
func TestPowerCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	run := cutMany(t, envInt(t, "CUTS", 100), sqlite.Options{})
	fmt.Printf("power cuts: %d cuts x %d images, %d met a write in flight, %d acknowledged writes looked for, %d violations\n",
		run.cuts, imagesPerCut, run.inFlight, run.acknowledged, len(run.violations))
	if len(run.violations) > 0 {
		t.Errorf("first violations:\n%s", strings.Join(run.violations[:min(5, len(run.violations))], "\n"))
	}
	if run.inFlight*2 < run.cuts || run.acknowledged < 20*run.images {
		t.Errorf("the run met too little: %+v", run)
	}
}

// cutMany takes cuts cuts over as many stores as that needs.
func cutMany(t *testing.T, cuts int, o sqlite.Options) *cutRun {
	t.Helper()
	run := &cutRun{}
	for i := 0; run.cuts < cuts; i++ {
		before := run.cuts
		if !t.Run(fmt.Sprintf("store-%d", i), func(t *testing.T) { cutStore(t, min(cutsPerStore, cuts-run.cuts), o, run) }) {
			break
		}
		if run.cuts == before {
			t.Skip("NOT RUN: power cuts need root and /dev/fuse")
		}
	}
	return run
}

// cutStore makes a store on a power-cut file system, cuts it while it is made, and then while it is written.
func cutStore(t *testing.T, cuts int, o sqlite.Options, run *cutRun) {
	fs := powercut.MountForTest(t, 0)
	rng := rand.New(rand.NewPCG(fs.Seed(), 1))
	dir := filepath.Join(fs.Dir(), "data")
	opened := make(chan *sqlite.Store, 1)
	go func() {
		s, err := sqlite.Open(context.Background(), dir, o)
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	time.Sleep(time.Duration(rng.IntN(15)) * time.Millisecond)
	run.cut(t, fs, nil, func() []history.Op { return nil })
	store := <-opened
	if store == nil {
		return
	}
	defer store.Close()
	server := asAlice{inproc.New(t, inproc.Config{Store: store, Grants: scenario.DefaultGrants()})}
	rec := history.NewRecorder()
	clients := make([]*workload.Client, 8)
	for n := range clients {
		clients[n] = workload.NewClient(workload.Config{Prefix: "c", Documents: 16, Pad: 200, Reads: 10, Deletes: 5, Refs: true}, n, fs.Seed(), rec)
	}
	for range cuts - 1 {
		var flying atomic.Int64
		stop := play(t, clients, counted{server, &flying})
		time.Sleep(time.Duration(10+rng.IntN(40)) * time.Millisecond)
		if flying.Load() > 0 {
			run.inFlight++
		}
		run.cut(t, fs, rec, func() []history.Op {
			stop()
			return rec.Ops()
		})
	}
}

// counted counts writes under way.
type counted struct {
	workload.Caller
	flying *atomic.Int64
}

// Call counts the call while it is under way.
func (c counted) Call(ctx context.Context, tool string, args []byte) (scenario.Answer, error) {
	if tool == "persistence.put" || tool == "persistence.delete" {
		c.flying.Add(1)
		defer c.flying.Add(-1)
	}
	return c.Caller.Call(ctx, tool, args)
}

// play lets clients work until the returned function is called; it returns when all have ended their operation.
func play(t *testing.T, clients []*workload.Client, caller workload.Caller) (stop func()) {
	var done atomic.Bool
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			for !done.Load() {
				if err := c.Step(context.Background(), caller); err != nil && !errors.Is(err, workload.ErrUnknown) {
					t.Error(err)
					return
				}
			}
		})
	}
	return func() {
		done.Store(true)
		wg.Wait()
	}
}

// cut takes one cut and verifies its images. rec is nil before the first operation. after gives the recorded
// operations once those under way have ended.
func (run *cutRun) cut(t *testing.T, fs *powercut.FS, rec *history.Recorder, after func() []history.Op) {
	t.Helper()
	var before, end int64
	if rec != nil {
		before = rec.Now()
	}
	images, err := fs.Cut(imagesPerCut, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if rec != nil {
		end = rec.Now()
	}
	ops := known(after(), before, end)
	run.cuts++
	for _, image := range images {
		run.images++
		report, err := inspect(t, filepath.Join(image.Dir, "data"), ops)
		switch {
		case err != nil:
			run.violations = append(run.violations, fmt.Sprintf("seed %d, image %s (%s): %v", fs.Seed(), image.Kind, image.Detail, err))
		case !report.Clean():
			run.violations = append(run.violations, fmt.Sprintf("seed %d, image %s (%s): %s", fs.Seed(), image.Kind, image.Detail, report))
		default:
			run.acknowledged += report.Acknowledged
		}
		if err := os.RemoveAll(image.Dir); err != nil {
			t.Error(err)
		}
	}
}

// known is what a client knew at the cut: answers that came before it hold; what was under way is unknown; what was
// sent afterwards never was.
func known(ops []history.Op, before, end int64) []history.Op {
	var out []history.Op
	for _, op := range ops {
		switch {
		case op.Return <= before:
		case op.Call <= end && op.Kind != history.Get:
			op.Outcome = history.Unknown
		default:
			continue
		}
		out = append(out, op)
	}
	return out
}

// inspect opens an image, which is a recovery, and verifies it with its audit trail.
func inspect(t *testing.T, dir string, ops []history.Op) (*verify.Report, error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) && len(acknowledged(ops)) == 0 {
		return &verify.Report{}, nil // the cut came before the folder was durable, and nothing was promised
	}
	store, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		return nil, fmt.Errorf("open after the cut: %w", err)
	}
	defer store.Close()
	server := asAlice{inproc.New(t, inproc.Config{Store: store, Grants: scenario.DefaultGrants()})}
	return verify.Run(t.Context(), ops, &workload.Server{Caller: server, Audit: func(ctx context.Context) ([]verify.Effect, error) {
		return effects(ctx, store)
	}})
}

// acknowledged lists the writes that were answered with success.
func acknowledged(ops []history.Op) []history.Op {
	var out []history.Op
	for _, op := range ops {
		if op.Kind != history.Get && op.Outcome == history.OK {
			out = append(out, op)
		}
	}
	return out
}

// effects reads the audit rows of writes, of every writer there was.
func effects(ctx context.Context, log audit.Log) ([]verify.Effect, error) {
	writers, err := log.AuditWriters(ctx)
	if err != nil {
		return nil, err
	}
	out := []verify.Effect{}
	for _, w := range writers {
		for after := int64(0); ; {
			records, err := log.AuditRows(ctx, w, after, 1000)
			if err != nil {
				return nil, err
			}
			if len(records) == 0 {
				break
			}
			for _, r := range records {
				after = r.Position
				var row struct {
					Kind, Target string
					Revision     int64
				}
				if err := json.Unmarshal(r.Row, &row); err != nil {
					return nil, err
				}
				if row.Kind == string(audit.KindEffect) {
					out = append(out, verify.Effect{Document: documentOf(row.Target), Revision: row.Revision})
				}
			}
		}
	}
	return out, nil
}

// documentOf is namespace/id of a document's path.
func documentOf(path string) string {
	parts := strings.Split(path, "/") // "", persistence, namespaces, <ns>, documents, <id>
	if len(parts) != 6 {
		return path
	}
	return parts[3] + "/" + parts[5]
}

// findLoss runs a control: a store with a weakness must be found out.
func findLoss(t *testing.T, name string, o sqlite.Options) {
	t.Helper()
	run := cutMany(t, 10, o)
	fmt.Printf("power cuts control, %s: %d violations in %d images\n", name, len(run.violations), run.images)
	if len(run.violations) == 0 {
		t.Errorf("%s: no loss was found in %d images; the detector proves nothing", name, run.images)
	}
}

// TestPowerCutsFindMissingFolderSync is the control without the syncs of folders.
func TestPowerCutsFindMissingFolderSync(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	findLoss(t, "no folder sync", sqlite.Options{Durability: persistence.FileSync})
}
