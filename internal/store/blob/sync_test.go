package blob_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/testkit/powercut"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// refuses fails when f does anything else than a folder does whose sync has failed.
func refuses(t *testing.T, f *blob.Folder, open persistence.BlobWriter) {
	t.Helper()
	if err := f.Healthy(); !errors.Is(err, persistence.ErrUnavailable) || !errors.Is(err, syscall.EIO) {
		t.Errorf("health: got %v, want ErrUnavailable with the cause", err)
	}
	if _, err := f.Create(t.Context()); !errors.Is(err, persistence.ErrUnavailable) {
		t.Errorf("create: got %v, want ErrUnavailable", err)
	}
	for range 2 {
		if err := open.Keep(t.Context()); !errors.Is(err, persistence.ErrUnavailable) {
			t.Errorf("keep: got %v, want ErrUnavailable", err)
		}
	}
}

// TestFailedSync has the sync of a file or of a folder fail: that Keep fails and holds nothing, the folder writes no
// more though the disk works again, reads and deletes go on, and after it was opened again all is well.
func TestFailedSync(t *testing.T) {
	for name, suffix := range map[string]string{"file": "", "folder": "/"} {
		t.Run(name, func(t *testing.T) {
			disk := powercut.MountForTest(t, 1)
			dir := filepath.Join(disk.Dir(), "blobs")
			f := openAt(t, dir, blob.FolderOptions{})
			before, gone := keep(t, f, "before"), keep(t, f, "gone")
			w, open := begin(t, f, []byte("lost")), begin(t, f, []byte("open"))
			if err := disk.FailSync(1, syscall.EIO, suffix); err != nil {
				t.Fatal(err)
			}
			if err := w.Keep(t.Context()); !errors.Is(err, persistence.ErrUnavailable) || !errors.Is(err, syscall.EIO) {
				t.Errorf("the sync failed: got %v, want ErrUnavailable with the cause", err)
			}
			if err := w.Drop(); err != nil {
				t.Errorf("drop: %v", err)
			}
			refuses(t, f, open)
			if err := whole(t, f, before); err != nil {
				t.Error(err)
			}
			if err := f.Delete(t.Context(), gone); err != nil {
				t.Error(err)
			}
			if n := count(t, f); n != 1 || parts(t, dir) != 0 {
				t.Errorf("%d blobs and %d parts, want one blob", n, parts(t, dir))
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			f = openAt(t, dir, blob.FolderOptions{})
			if err := whole(t, f, keep(t, f, "lost")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFailedSyncOfReplaced has the sync fail of a blob that is held already: it stays held.
func TestFailedSyncOfReplaced(t *testing.T) {
	for name, suffix := range map[string]string{"file": "", "folder": "/"} {
		t.Run(name, func(t *testing.T) {
			disk := powercut.MountForTest(t, 1)
			dir := filepath.Join(disk.Dir(), "blobs")
			f := openAt(t, dir, blob.FolderOptions{})
			d := keep(t, f, "x")
			w := begin(t, f, []byte("x"))
			if err := disk.FailSync(1, syscall.EIO, suffix); err != nil {
				t.Fatal(err)
			}
			if err := w.Keep(t.Context()); !errors.Is(err, persistence.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
			if err := whole(t, f, d); err != nil {
				t.Error(err)
			}
			images, err := disk.Cut(8, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, image := range images {
				if err := whole(t, openAt(t, filepath.Join(image.Dir, "blobs"), blob.FolderOptions{}), d); err != nil {
					t.Errorf("image %s: %v", image.Kind, err)
				}
			}
		})
	}
}

// TestFailedSyncOfDelete has the sync after a Delete fail: the blob is gone, and the folder writes no more.
func TestFailedSyncOfDelete(t *testing.T) {
	disk := powercut.MountForTest(t, 1)
	f := openAt(t, filepath.Join(disk.Dir(), "blobs"), blob.FolderOptions{})
	d := keep(t, f, "x")
	open := begin(t, f, []byte("open"))
	if err := disk.FailSync(1, syscall.EIO, "/"); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), d); err != nil {
		t.Error(err)
	}
	if err := whole(t, f, d); !errors.Is(err, persistence.ErrNoBlob) {
		t.Errorf("got %v, want ErrNoBlob", err)
	}
	refuses(t, f, open)
}

// TestEverySyncFails makes each sync of a script fail once, those of opening included: an answer that came before
// holds in every image, nothing is answered afterwards, and opening again heals.
func TestEverySyncFails(t *testing.T) {
	for name, suffix := range map[string]string{"files": "", "folders": "/"} {
		t.Run(name, func(t *testing.T) {
			for nth, failed := 1, true; failed; nth++ {
				if nth > 100 {
					t.Fatal("there is no end of syncs")
				}
				failed = failNth(t, nth, suffix)
				if !failed && nth <= 6 { // each blob has a sync of its own
					t.Errorf("only %d syncs could fail", nth-1)
				}
			}
		})
	}
}

// failNth runs the script with one failing sync and tells whether it was reached.
func failNth(t *testing.T, nth int, suffix string) bool {
	disk := powercut.MountForTest(t, 1)
	defer disk.Close()
	if err := disk.FailSync(nth, syscall.EIO, suffix); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(disk.Dir(), "above", "blobs")
	var acknowledged []persistence.Digest
	f, err := blob.OpenFolder(dir, blob.FolderOptions{})
	if err == nil {
		acknowledged = failScript(t, f)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	counts, cerr := disk.Counts()
	if cerr != nil {
		t.Fatal(cerr)
	}
	images, cerr := disk.Cut(4, t.TempDir())
	if cerr != nil {
		t.Fatal(cerr)
	}
	if counts.FailedSyncs > 0 == (err == nil && len(acknowledged) == 6) {
		t.Errorf("sync %d: %d failed, opened with %v, %d acknowledged", nth, counts.FailedSyncs, err, len(acknowledged))
	}
	for _, image := range images {
		survivor := openAt(t, filepath.Join(image.Dir, "above", "blobs"), blob.FolderOptions{})
		for _, d := range acknowledged {
			if err := whole(t, survivor, d); err != nil {
				t.Errorf("sync %d failed, image %s: %v", nth, image.Kind, err)
			}
		}
	}
	if counts.FailedSyncs == 0 {
		return false // the failure is still to come
	}
	again, err := blob.OpenFolder(dir, blob.FolderOptions{})
	if err != nil {
		t.Fatalf("opened again: %v", err)
	}
	defer again.Close()
	keep(t, again, "afterwards")
	return true
}

// failScript keeps six blobs and gives those that were acknowledged; after one that was not there may be none.
func failScript(t *testing.T, f *blob.Folder) (acknowledged []persistence.Digest) {
	t.Helper()
	refused := false
	for i := range 6 {
		w, err := f.Create(t.Context())
		if err == nil {
			if _, err = fmt.Fprint(w, "blob ", i); err == nil {
				err = w.Keep(t.Context())
			}
		}
		switch {
		case err == nil && refused:
			t.Errorf("blob %d was acknowledged after a failed sync", i)
		case err == nil:
			acknowledged = append(acknowledged, w.Sum())
		case !errors.Is(err, persistence.ErrUnavailable):
			t.Errorf("got %v, want ErrUnavailable", err)
		default:
			refused = true
		}
	}
	return acknowledged
}

// The shape of a power-cut run.
const (
	cutsInAll    = 60
	cutsPerDisk  = 10 // a fresh folder, so that new subfolders are cut too
	imagesPerCut = 4
	cutWriters   = 4
)

// cutRun counts what a run of cuts met.
type cutRun struct {
	cuts, images, lookedFor int
	inFlight                int // cuts that met a part under way
	violations              []string
}

// TestPowerCuts cuts the power under a folder that four writers keep blobs in: what was acknowledged before a cut is
// whole in every image, and no image has bytes under a digest that is not theirs.
func TestPowerCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	run := cutMany(t, cutsInAll, blob.FolderOptions{})
	fmt.Printf("power cuts of blobs: %d cuts x %d images, %d met a blob in flight, %d acknowledged blobs looked for, %d violations\n",
		run.cuts, imagesPerCut, run.inFlight, run.lookedFor, len(run.violations))
	if len(run.violations) > 0 {
		t.Errorf("first violations:\n%s", strings.Join(run.violations[:min(5, len(run.violations))], "\n"))
	}
	if run.cuts < cutsInAll || run.inFlight*2 < run.cuts || run.lookedFor < 10*run.images {
		t.Errorf("the run met too little: %+v", run)
	}
}

// TestPowerCutsFindMissingFolderSync is the control without the syncs of folders.
func TestPowerCutsFindMissingFolderSync(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	findLoss(t, "no folder sync", blob.FolderOptions{Durability: persistence.FileSync})
}

// findLoss runs a control: a folder with a weakness must be found out.
func findLoss(t *testing.T, name string, o blob.FolderOptions) {
	t.Helper()
	run := cutMany(t, cutsPerDisk, o)
	fmt.Printf("power cuts of blobs control, %s: %d violations in %d images\n", name, len(run.violations), run.images)
	if len(run.violations) == 0 {
		t.Errorf("%s: no loss was found in %d images; the detector proves nothing", name, run.images)
	}
}

// cutMany takes cuts cuts over as many disks as that needs.
func cutMany(t *testing.T, cuts int, o blob.FolderOptions) *cutRun {
	t.Helper()
	run := &cutRun{}
	for i := 0; run.cuts < cuts; i++ {
		before := run.cuts
		if !t.Run(fmt.Sprint("disk-", i), func(t *testing.T) { run.disk(t, o) }) {
			break
		}
		if run.cuts == before {
			t.Skip("NOT RUN: power cuts need root and /dev/fuse")
		}
	}
	return run
}

// cutLog is what writers have been acknowledged.
type cutLog struct {
	mu     sync.Mutex
	change *sync.Cond // something below has changed
	kept   []persistence.Digest
	want   int // no blob is begun when so many are kept
	flying int
	stop   bool
	failed bool
}

// disk cuts one new disk cutsPerDisk times, each time after a few more acknowledgements.
func (run *cutRun) disk(t *testing.T, o blob.FolderOptions) {
	disk := powercut.MountForTest(t, 0)
	rng := rand.New(rand.NewPCG(disk.Seed(), 1))
	f := openAt(t, filepath.Join(disk.Dir(), "above", "blobs"), o)
	log := &cutLog{}
	log.change = sync.NewCond(&log.mu)
	var wg sync.WaitGroup
	for n := range cutWriters {
		wg.Go(func() { log.write(t, f, rand.New(rand.NewPCG(disk.Seed(), uint64(2+n)))) })
	}
	defer wg.Wait()
	defer log.set(func() { log.stop = true })
	for range cutsPerDisk {
		kept, flying, ok := log.await(1 + rng.IntN(12))
		if !ok {
			return // a writer failed, and said so
		}
		images, err := disk.Cut(imagesPerCut, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		run.cuts++
		if flying > 0 {
			run.inFlight++
		}
		for _, image := range images {
			run.inspect(t, image, kept)
		}
	}
}

// write keeps blobs until it is told to stop; now and then one that is kept already.
func (l *cutLog) write(t *testing.T, f *blob.Folder, rng *rand.Rand) {
	for last := []byte(nil); l.start(); {
		content := last
		if last == nil || rng.IntN(5) > 0 {
			content = make([]byte, 8+rng.IntN(40_000))
			binary.LittleEndian.PutUint64(content, rng.Uint64())
			binary.LittleEndian.PutUint64(content[len(content)-8:], rng.Uint64())
		}
		last = content
		w, err := f.Create(t.Context())
		if err == nil {
			if _, err = w.Write(content); err == nil {
				err = w.Keep(t.Context())
			}
		}
		if err != nil {
			t.Error(err)
		}
		l.set(func() {
			l.flying--
			l.failed = l.failed || err != nil
			if err == nil {
				l.kept = append(l.kept, sha256.Sum256(content))
			}
		})
	}
}

// start waits until a blob may be begun, and tells whether there is to be one.
func (l *cutLog) start() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.kept) >= l.want && !l.stop {
		l.change.Wait()
	}
	if l.stop || l.failed {
		return false
	}
	l.flying++
	return true
}

// set changes the log.
func (l *cutLog) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.change.Broadcast()
}

// await waits for some more acknowledgements and gives all there are; ok is false when a writer has failed.
func (l *cutLog) await(more int) (kept []persistence.Digest, flying int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.want = len(l.kept) + more
	l.change.Broadcast()
	for len(l.kept) < l.want && !l.failed {
		l.change.Wait()
	}
	return slices.Clone(l.kept), l.flying, !l.failed
}

// inspect opens an image, which is a recovery, and looks for what was kept.
func (run *cutRun) inspect(t *testing.T, image powercut.Image, kept []persistence.Digest) {
	t.Helper()
	run.images++
	bad := func(err error) {
		run.violations = append(run.violations, fmt.Sprintf("image %s (%s, seed %d): %v", image.Kind, image.Detail, image.Seed, err))
	}
	f, err := blob.OpenFolder(filepath.Join(image.Dir, "above", "blobs"), blob.FolderOptions{})
	if err != nil {
		bad(err)
		return
	}
	defer os.RemoveAll(image.Dir)
	defer f.Close()
	for _, d := range kept {
		run.lookedFor++
		if err := whole(t, f, d); err != nil {
			bad(fmt.Errorf("acknowledged: %w", err))
		}
	}
	err = f.Each(t.Context(), func(i persistence.BlobInfo) error { return whole(t, f, i.Digest) })
	if err != nil {
		bad(fmt.Errorf("listed: %w", err))
	}
}
