package durability_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
	"github.com/tabellion-mcp/tabellion/internal/testkit/powercut"
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
	artifacts, finished        int // acknowledged commits; uploads that were committed in an image
	inFlight                   int // cuts that met a write under way
	violations                 []string
}

// disks says how the store and the folder of bytes are opened.
type disks struct {
	store sqlite.Options
	blobs blob.FolderOptions
	// documents, when it is set: there are no artifacts, and the folder of bytes is this one. Opening one beside the
	// store would make the names of the store durable too, and hide that the store does not.
	documents string
}

// open opens both in a data folder, as the program does.
func (o disks) open(ctx context.Context, dir string) (*sqlite.Store, *blob.Folder, error) {
	store, err := sqlite.Open(ctx, dir, o.store)
	if err != nil {
		return nil, nil, err
	}
	at := filepath.Join(dir, "blobs")
	if o.documents != "" {
		at = o.documents
	}
	blobs, err := blob.OpenFolder(at, o.blobs)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return store, blobs, nil
}

// TestPowerCuts cuts the power under a store and a folder of bytes that eight clients write to, opens every image of the
// disk, and looks for what was acknowledged before the cut.
func TestPowerCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	run := cutMany(t, envInt(t, "CUTS", 100), disks{})
	fmt.Printf("power cuts: %d cuts x %d images, %d met a write in flight, looked for were %d acknowledged writes and %d acknowledged artifacts, and %d uploads committed whose bytes had been taken; %d violations\n",
		run.cuts, imagesPerCut, run.inFlight, run.acknowledged, run.artifacts, run.finished, len(run.violations))
	if len(run.violations) > 0 {
		t.Errorf("first violations:\n%s", strings.Join(run.violations[:min(5, len(run.violations))], "\n"))
	}
	if run.inFlight*2 < run.cuts || run.acknowledged < 10*run.images || run.artifacts < run.images {
		t.Errorf("the run met too little: %+v", run)
	}
}

// cutMany takes cuts cuts over as many stores as that needs.
func cutMany(t *testing.T, cuts int, o disks) *cutRun {
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
func cutStore(t *testing.T, cuts int, o disks, run *cutRun) {
	fs := powercut.MountForTest(t, 0)
	rng := rand.New(rand.NewPCG(fs.Seed(), 1))
	dir := filepath.Join(fs.Dir(), "data")
	var store *sqlite.Store
	var blobs *blob.Folder
	opened := make(chan error, 1)
	go func() {
		var err error
		store, blobs, err = o.open(context.Background(), dir)
		opened <- err
	}()
	time.Sleep(time.Duration(rng.IntN(15)) * time.Millisecond)
	run.cut(t, fs, nil, func() []history.Op { return nil })
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	defer blobs.Close()
	server := serverOn(t, store, blobs)
	rec := history.NewRecorder()
	cfg := workload.Config{Prefix: "c", Documents: 16, Pad: 200, Reads: 10, Deletes: 5, Purges: 5, Refs: true, Artifacts: 40}
	if o.documents != "" {
		cfg.Artifacts = 0
	}
	clients := newClients(cfg, fs.Seed(), rec)
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
	if tool != "persistence.get" && tool != "persistence.getArtifact" && tool != "persistence.listRevisions" {
		c.flying.Add(1)
		defer c.flying.Add(-1)
	}
	return c.Caller.Call(ctx, tool, args)
}

// HTTP counts the transfer of bytes to the server while it is under way.
func (c counted) HTTP(ctx context.Context, req scenario.HTTPRequest) (scenario.HTTPResponse, error) {
	if req.Method == http.MethodPut {
		c.flying.Add(1)
		defer c.flying.Add(-1)
	}
	return c.Caller.HTTP(ctx, req)
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
			run.artifacts += report.Artifacts.Committed
			run.finished += report.Artifacts.Finished
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
		case op.Call <= end && !op.Kind.Reads():
			op.Outcome = history.Unknown
		default:
			continue
		}
		out = append(out, op)
	}
	return out
}

// findLoss runs a control: a store with a weakness must be found out.
func findLoss(t *testing.T, name string, o disks) {
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
	findLoss(t, "no folder sync", disks{store: sqlite.Options{Durability: persistence.FileSync}, documents: t.TempDir()})
}

// TestPowerCutsFindMissingBlobFolderSync is the control whose folders of bytes are not synced.
func TestPowerCutsFindMissingBlobFolderSync(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	findLoss(t, "no folder sync of bytes", disks{blobs: blob.FolderOptions{Durability: persistence.FileSync}})
}
