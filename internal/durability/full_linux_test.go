package durability_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
	"github.com/tabellion-mcp/tabellion/internal/testkit/process"
	"github.com/tabellion-mcp/tabellion/internal/testkit/workload"
)

// smallDisk mounts a tmpfs of 16 MiB. Without the right to mount the test is left out, saying so, or fails under CI.
func smallDisk(t *testing.T) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("no small disk, and CI must not leave this out: %v", err)
		}
		t.Skipf("NOT RUN: a small disk needs the right to mount one (%v)", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	return disk
}

// diskRig is a real server on a small disk, with eight clients and a document and an artifact that are read meanwhile.
type diskRig struct {
	*rig
	t        *testing.T
	disk     string
	server   *process.Server
	http     remote
	rec      *history.Recorder
	clients  []*workload.Client
	prober   *workload.Client
	artifact string // namespace/id, of the prober
}

// newDiskRig starts the server.
func newDiskRig(t *testing.T) *diskRig {
	t.Helper()
	disk := smallDisk(t)
	d := &diskRig{t: t, disk: disk, rig: newRigOn(t, process.Binary(t), filepath.Join(disk, "data")), rec: history.NewRecorder()}
	d.clients = newClients(workload.Config{Prefix: "f", Documents: 16, Pad: 2000, Reads: 5, Refs: true, Artifacts: 40}, rand.Uint64(), d.rec)
	d.server = d.start(t)
	t.Cleanup(func() { d.server.Kill() })
	d.http = d.client(len(d.clients))
	t.Cleanup(d.http.Close)
	d.prober = workload.NewClient(workload.Config{Prefix: "r", Documents: 1, Pad: 4000, Artifacts: 1, Shelf: workload.NewShelf()}, 8, 1, d.rec)
	for _, kind := range []history.Kind{history.Begin, history.Receive, history.Commit} {
		if err := d.prober.Do(t.Context(), d.http, kind, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, op := range d.rec.Ops() {
		d.artifact = op.Artifact
	}
	return d
}

// probe writes a document of its own, or asks again for what is not known, and tells whether it was done. The workload
// accepts no other refusal than the contract's.
func (d *diskRig) probe() bool {
	d.t.Helper()
	do := func() error { return d.prober.Do(d.t.Context(), d.http, history.Put, "probe") }
	if d.prober.Pending() {
		do = func() error { return d.prober.Step(d.t.Context(), d.http) }
	}
	err := do()
	if err != nil && !errors.Is(err, workload.ErrUnknown) {
		d.t.Fatal(err)
	}
	return err == nil
}

// reads holds that a listing and a download are answered.
func (d *diskRig) reads(when string) {
	d.t.Helper()
	a, err := d.http.Call(d.t.Context(), "persistence.list", []byte(`{"namespace":"load"}`))
	if err != nil || a.IsError || a.RPC != nil {
		d.t.Errorf("%s a listing was answered with %v %s", when, err, a)
	}
	res, err := d.http.HTTP(d.t.Context(), scenario.HTTPRequest{Method: http.MethodGet, Path: "/artifacts/" + d.artifact})
	if err != nil || res.Status != http.StatusOK || res.Broken {
		d.t.Errorf("%s a download was answered with %v %d %s", when, err, res.Status, res.Body)
	}
}

// load has all clients work until the disk refuses them, or for a number of steps each.
func (d *diskRig) load(steps int) {
	d.t.Helper()
	ended := make(chan error, len(d.clients))
	for _, c := range d.clients {
		go func() {
			for range steps {
				if err := c.Step(context.Background(), d.http); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range d.clients {
		if err := <-ended; err != nil && !errors.Is(err, workload.ErrUnknown) {
			d.t.Fatal(err)
		}
	}
}

// refuses holds that writes are refused as store_unavailable, and reads go on. The process lives.
func (d *diskRig) refuses(when string) int {
	d.t.Helper()
	refused := 0
	for until := time.Now().Add(time.Second); time.Now().Before(until); {
		if !d.probe() { // now and then there is a hole that is just large enough
			refused++
		}
	}
	select {
	case <-d.server.Done():
		d.t.Fatalf("%s the server ended\n%s", when, d.server.Stderr())
	default:
	}
	if refused == 0 {
		d.t.Errorf("%s no write was refused; the test proves nothing", when)
	}
	return refused
}

// back waits until a write succeeds, and tells how long that took.
func (d *diskRig) back() time.Duration {
	d.t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		done, took := d.probe(), time.Since(began)
		if done {
			return took
		}
		if took > servedAgain {
			d.t.Fatalf("%s after there is room a write is still refused\n%s", took, d.server.Stderr())
		}
	}
}

// TestDiskFullUnderLoad fills the disk of the real server under load: writes are refused, reads go on, it is back within
// five seconds of space being freed, and nothing that was acknowledged is lost.
func TestDiskFullUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: run by make test")
	}
	d := newDiskRig(t)
	ballast := filepath.Join(d.disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d.load(2000) // far more than there is room for
	d.fill()
	refused := d.refuses("with a full disk")
	d.reads("with a full disk")
	for _, name := range []string{ballast, filepath.Join(d.disk, "filler")} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	took := d.back()
	d.load(20)
	report := settle(t, d.stopped(), append(d.clients, d.prober), d.rec)
	fmt.Printf("disk full: %d writes refused, back after %d ms; %s\n", refused, took.Milliseconds(), report.Counts())
	if !report.Clean() {
		t.Errorf("%s", report)
	}
}

// fill takes what room is left.
func (d *diskRig) fill() {
	d.t.Helper()
	f, err := os.Create(filepath.Join(d.disk, "filler"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
}

// stopped ends the server, so that the rig can be settled.
func (d *diskRig) stopped() *rig {
	d.t.Helper()
	if err := d.server.Stop(15 * time.Second); err != nil {
		d.t.Errorf("stop: %v", err)
	}
	return d.rig
}
