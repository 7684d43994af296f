package durability_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
	"github.com/tabellion-mcp/tabellion/internal/testkit/powercut"
	"github.com/tabellion-mcp/tabellion/internal/testkit/process"
	"github.com/tabellion-mcp/tabellion/internal/testkit/verify"
	"github.com/tabellion-mcp/tabellion/internal/testkit/workload"
)

// servedAgain is how long calls may be refused after the disk works again (security requirements, R11).
const servedAgain = 5 * time.Second

// act is one operation of a script, or a restart of the server.
type act struct {
	kind    history.Kind
	id      string
	restart bool
}

// scripts are what is done while the Nth call of a kind fails.
var scripts = []struct {
	name string
	acts []act
}{
	{"documents", []act{
		{kind: history.Put, id: "d00"}, {kind: history.Put, id: "d00"}, {kind: history.Put, id: "d01"},
		{kind: history.Delete, id: "d01"}, {kind: history.Put, id: "d01"}, {kind: history.Get, id: "d00"},
	}},
	{"upload and commit", []act{
		{kind: history.Begin}, {kind: history.Receive}, {kind: history.Commit}, {kind: history.Fetch},
		{kind: history.Begin}, {kind: history.Receive}, {kind: history.Commit},
	}},
	{"abort and purge", []act{
		{kind: history.Begin}, {kind: history.Receive}, {kind: history.Abort}, {kind: history.Put, id: "d02"}, {kind: history.Put, id: "d02"},
		{kind: history.Purge, id: "d02"}, {kind: history.Begin}, {kind: history.Receive}, {kind: history.Commit}, {kind: history.PurgeArtifact},
	}},
	{"with a restart", []act{
		{kind: history.Put, id: "d03"}, {kind: history.Begin}, {kind: history.Receive}, {restart: true},
		{kind: history.Commit}, {kind: history.Fetch}, {kind: history.Put, id: "d03"},
	}},
}

// errorRun counts what runs with failing calls met.
type errorRun struct {
	runs, fired    int // scripts that were run; calls that failed in them
	refused        int // operations that were not acknowledged at first
	starts, failed int // starts under a failing call; those that were refused, with exit code 3
	slowest        time.Duration
}

// errorRig is a real server on a power-cut file system with one client.
type errorRig struct {
	*rig
	t      *testing.T
	fs     *powercut.FS
	server *process.Server
	http   remote
	rec    *history.Recorder
	client *workload.Client
	run    *errorRun
}

// newErrorRig starts a server whose disk can be made to fail.
func newErrorRig(t *testing.T, run *errorRun, binary string, env ...string) *errorRig {
	t.Helper()
	fs := powercut.MountForTest(t, 0)
	e := &errorRig{t: t, fs: fs, run: run, rec: history.NewRecorder()}
	data := filepath.Join(fs.Dir(), "data")
	bringStore(t, data)
	e.rig = newRigOn(t, binary, data, env...)
	e.http = e.rig.client(1)
	e.client = workload.NewClient(workload.Config{
		Prefix: "e", Documents: 8, Pad: 50, Artifacts: 1, Purges: 1, MaxBytes: 2 << 10, Shelf: workload.NewShelf(),
	}, 0, fs.Seed(), e.rec)
	e.server = e.start(t)
	t.Cleanup(func() { e.server.Kill() })
	return e
}

// bringStore begins a data folder with a store that was made elsewhere: making one needs a hard link, for the key that
// signs the audit trail, which the power-cut file system does not have.
func bringStore(t *testing.T, data string) {
	t.Helper()
	elsewhere := newRig(t, process.Binary(t))
	if err := os.CopyFS(data, os.DirFS(elsewhere.data)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(data, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o600)
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			mode = 0o700
		}
		return errors.Join(os.Chmod(path, mode), syncPath(path))
	})
	if err = errors.Join(err, syncPath(filepath.Dir(data))); err != nil {
		t.Fatal(err)
	}
}

// syncPath makes a file, or the names in a folder, durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// must ends the test on an error.
func (e *errorRig) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("%v\n%s", err, e.server.Stderr())
	}
}

// failures is how many calls have failed so far.
func (e *errorRig) failures() int {
	counts, err := e.fs.Counts()
	e.must(err)
	return counts.Failed
}

// play runs a script while the Nth call of a kind fails, and tells whether that call came.
func (e *errorRig) play(acts []act, call powercut.Call, n int, errno syscall.Errno) (fired bool) {
	e.t.Helper()
	before := e.failures()
	e.must(e.fs.FailCall(call, n, errno))
	for _, a := range acts {
		if a.restart {
			e.restart()
			continue
		}
		e.perform(a)
	}
	e.must(e.fs.Forgive())
	e.run.runs++
	failed := e.failures() - before
	e.run.fired += failed
	return failed > 0
}

// perform does one operation until it is answered. That it is not at first is clean: the workload accepts only the
// contract's refusals.
func (e *errorRig) perform(a act) {
	e.t.Helper()
	err := e.client.Do(e.t.Context(), e.http, a.kind, a.id)
	if !errors.Is(err, workload.ErrUnknown) {
		e.must(err)
		return
	}
	e.run.refused++
	for began := time.Now(); errors.Is(err, workload.ErrUnknown); {
		if time.Since(began) > servedAgain {
			e.t.Fatalf("no answer %s after a failed call\n%s", servedAgain, e.server.Stderr())
		}
		time.Sleep(5 * time.Millisecond)
		if a.kind == history.Receive {
			err = e.client.Do(e.t.Context(), e.http, a.kind, a.id)
		} else {
			err = e.client.Step(e.t.Context(), e.http)
		}
		e.run.slowest = max(e.run.slowest, time.Since(began))
	}
	e.must(err)
}

// restart ends the server and starts it, twice when the failing call meets the start.
func (e *errorRig) restart() {
	e.t.Helper()
	_ = e.server.Stop(15 * time.Second) // a call that fails while it stops may show in its exit code
	if e.startUnderFailure() {
		return
	}
	e.must(e.fs.Forgive())
	e.server = e.start(e.t)
}

// startUnderFailure starts the server while a call is planned to fail. It serves, or it refuses with exit code 3 and
// words; anything else ends the test.
func (e *errorRig) startUnderFailure() (serves bool) {
	e.t.Helper()
	var err error
	e.server, err = process.Start(process.Spec{Binary: e.binary, Args: []string{"serve", "--config", e.config}, Env: e.env})
	e.must(err)
	e.run.starts++
	ctx, cancel := context.WithTimeout(e.t.Context(), 20*time.Second)
	defer cancel()
	if e.server.WaitReady(ctx, e.ready) == nil {
		return true
	}
	select {
	case <-e.server.Done():
	default:
		e.t.Fatalf("the server neither serves nor ends\n%s", e.server.Stderr())
	}
	words := e.server.Stderr()
	if code := e.server.ExitCode(); code != 3 || strings.TrimSpace(words) == "" || strings.Contains(words, "goroutine ") {
		e.t.Errorf("a start that met a failing call ended with code %d: %s", code, words)
	}
	e.run.failed++
	return false
}

// inspectNow verifies what would be left if the power went out now: acknowledged is only what is durable.
func (e *errorRig) inspectNow(what string) {
	e.t.Helper()
	if report, err := e.left(); err != nil || !report.Clean() {
		e.t.Fatalf("%s: %v %s\n%s", what, err, report, e.server.Stderr())
	}
}

// left is what the verifier says of the disk if the power went out now.
func (e *errorRig) left() (*verify.Report, error) {
	e.t.Helper()
	images, err := e.fs.Cut(1, e.t.TempDir())
	e.must(err)
	report, err := inspect(e.t, filepath.Join(images[0].Dir, "data"), e.rec.Ops())
	return report, errors.Join(err, os.RemoveAll(images[0].Dir))
}

// errorPlan is one kind of call that fails in one way.
type errorPlan struct {
	call  powercut.Call
	errno syscall.Errno
	// stride is the step from one N to the next in the short run: there are many writes, and all of one kind meet the
	// same handling.
	stride int
}

// errorPlans are the plans of the short run, and with NTH=all every call of every kind.
func errorPlans() []errorPlan {
	stride := func(n int) int {
		if os.Getenv("NTH") == "all" {
			return 1
		}
		return n
	}
	return []errorPlan{
		{powercut.CallSync, syscall.EIO, stride(3)}, {powercut.CallSync, syscall.ENOSPC, stride(7)},
		{powercut.CallWrite, syscall.EIO, stride(37)}, {powercut.CallWrite, syscall.ENOSPC, stride(31)},
		{powercut.CallRename, syscall.EIO, 1}, {powercut.CallRename, syscall.ENOSPC, stride(2)},
		{powercut.CallOpen, syscall.EIO, stride(4)}, {powercut.CallOpen, syscall.ENOSPC, stride(4)},
	}
}

// mostCalls bounds N: a script that meets so many calls of one kind is not the one that was written here.
const mostCalls = 1000

// TestNthCallErrors makes the Nth sync, write, rename or open of the real server fail, for N from 1 until a script passes
// untouched. Nothing is acknowledged that is not durable, refusals are the contract's, the server serves again by
// itself, and the verifier is content.
func TestNthCallErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: run by make test")
	}
	for _, plan := range errorPlans() {
		run := &errorRun{}
		var most []string
		ok := t.Run(fmt.Sprintf("%s %s", plan.call, plan.errno), func(t *testing.T) {
			e := newErrorRig(t, run, process.Binary(t))
			for _, s := range scripts {
				n := e.playThrough(s.name, s.acts, plan)
				most = append(most, fmt.Sprintf("%s to %d", s.name, n))
				e.inspectNow(s.name)
			}
		})
		if run.runs == 0 {
			continue // left out by -run, or skipped, which says why
		}
		fmt.Printf("Nth call errors, %s %s: N from 1 in steps of %d (%s), %d runs, %d calls failed, %d operations refused and settled, slowest after %d ms; %d starts, %d refused\n",
			plan.call, plan.errno, plan.stride, strings.Join(most, ", "), run.runs, run.fired, run.refused, run.slowest.Milliseconds(), run.starts, run.failed)
		if ok && run.fired == 0 {
			t.Errorf("%s %s: no call failed; the run proves nothing", plan.call, plan.errno)
		}
	}
}

// playThrough plays a script for N = 1, 1+stride, ... until it passes untouched, and gives the last N.
func (e *errorRig) playThrough(name string, acts []act, plan errorPlan) int {
	e.t.Helper()
	for n := 1; n <= mostCalls; n += plan.stride {
		if !e.play(acts, plan.call, n, plan.errno) {
			return n
		}
		if plan.call == powercut.CallSync {
			e.inspectNow(fmt.Sprintf("%s, %s %d", name, plan.call, n))
		}
	}
	e.t.Fatalf("%s: it did not pass untouched at N = %d", name, mostCalls)
	return 0
}

// TestSyncErrorsFindFaults is the control: a server that acknowledges before it commits must be found by the first syncs
// that fail.
func TestSyncErrorsFindFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: run by make test")
	}
	run := &errorRun{}
	e := newErrorRig(t, run, weakBinary(t), "TABELLION_WEAKEN="+string(sqlite.AckBeforeCommit))
	for n := 1; n <= 10; n++ {
		e.play(scripts[0].acts, powercut.CallSync, n, syscall.EIO)
		report, err := e.left()
		e.must(err)
		if !report.Clean() {
			fmt.Printf("Nth call errors control, %s: found at N = %d: %s\n", sqlite.AckBeforeCommit, n, report.Counts())
			return
		}
	}
	t.Errorf("%s was not found by ten failed syncs; the detector proves nothing", sqlite.AckBeforeCommit)
}

// TestStartErrors makes the Nth call of each kind fail while the server starts: it serves, or it refuses with exit code
// 3 and words, and the next start works.
func TestStartErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: run by make test")
	}
	run := &errorRun{}
	e := newErrorRig(t, run, process.Binary(t))
	for _, a := range scripts[1].acts {
		e.perform(a)
	}
	for _, plan := range errorPlans() {
		if plan.errno != syscall.EIO {
			continue
		}
		for n := 1; n <= mostCalls; n += plan.stride {
			e.server.Kill()
			before := e.failures()
			e.must(e.fs.FailCall(plan.call, n, plan.errno))
			serves := e.startUnderFailure()
			e.must(e.fs.Forgive())
			if e.failures() == before {
				break
			}
			if !serves {
				e.server = e.start(t)
			}
		}
	}
	fmt.Printf("start under errors: %d starts, %d refused with words, every next one worked\n", run.starts, run.failed)
	e.inspectNow("after starts under errors")
	if run.failed == 0 {
		t.Error("no start was refused; the run proves nothing")
	}
}

// TestDiskReadOnly makes the disk of the real server read-only and writable again: writes are refused cleanly, the
// process does not end, and it serves again by itself. A start on such a disk is refused with words.
func TestDiskReadOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: run by make test")
	}
	run := &errorRun{}
	e := newErrorRig(t, run, process.Binary(t))
	for _, a := range scripts[1].acts {
		e.perform(a)
	}
	e.must(e.fs.ReadOnly(true))
	refused := e.refusedFor(time.Second)
	for _, a := range []act{{kind: history.Fetch}, {kind: history.Get, id: "d00"}} {
		e.perform(a) // answered, or refused as the contract has it
	}
	e.must(e.fs.ReadOnly(false))
	e.settle()
	e.inspectNow("after a read-only disk")

	e.must(e.fs.ReadOnly(true))
	e.server.Kill()
	if e.startUnderFailure() {
		t.Error("the server serves on a read-only disk")
	}
	e.must(e.fs.ReadOnly(false))
	e.server = e.start(t)
	e.inspectNow("after a start on a read-only disk")
	fmt.Printf("read-only disk: %d writes refused, back after %d ms\n", refused, run.slowest.Milliseconds())
}

// refusedFor writes for a while, wants every write refused, and counts them. The server must live.
func (e *errorRig) refusedFor(d time.Duration) (refused int) {
	e.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); refused++ {
		var err error
		if e.client.Pending() {
			err = e.client.Step(e.t.Context(), e.http)
		} else {
			err = e.client.Do(e.t.Context(), e.http, history.Put, "d04")
		}
		if !errors.Is(err, workload.ErrUnknown) {
			e.t.Fatalf("a write on a read-only disk: %v", err)
		}
	}
	select {
	case <-e.server.Done():
		e.t.Fatalf("the server ended\n%s", e.server.Stderr())
	default:
	}
	return refused
}

// settle asks again for what is not known, for as long as calls may be refused.
func (e *errorRig) settle() {
	e.t.Helper()
	for began := time.Now(); e.client.Pending(); time.Sleep(5 * time.Millisecond) {
		err := e.client.Step(e.t.Context(), e.http)
		if !errors.Is(err, workload.ErrUnknown) {
			e.must(err)
		}
		e.run.slowest = max(e.run.slowest, time.Since(began))
		if e.run.slowest > servedAgain {
			e.t.Fatalf("no answer %s after the disk works\n%s", servedAgain, e.server.Stderr())
		}
	}
}
