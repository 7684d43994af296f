package powercut_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tabellion-mcp/tabellion/internal/testkit/powercut"
)

// must returns v and fails the test on an error.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// check fails the test on an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// syncDir syncs the names in a folder.
func syncDir(t testing.TB, dir string) {
	t.Helper()
	d := must[*os.File](t)(os.Open(dir))
	defer d.Close()
	check(t, d.Sync())
}

// save writes a file, with a sync when asked to.
func save(t testing.TB, path, content string, sync bool) {
	t.Helper()
	f := must[*os.File](t)(os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o640))
	defer f.Close()
	must[int](t)(f.WriteString(content))
	if sync {
		check(t, f.Sync())
	}
}

// list shows a folder in one line, contents included.
func list(t testing.TB, dir string) string {
	t.Helper()
	var all []string
	check(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if e.IsDir() {
			all = append(all, rel+"/")
			return nil
		}
		b, err := os.ReadFile(path)
		all = append(all, rel+"="+string(b))
		return err
	}))
	return strings.Join(all, " ")
}

// cutOne takes the image in which nothing unsynced is left.
func cutOne(t testing.TB, pc *powercut.FS) string {
	t.Helper()
	return list(t, must[[]powercut.Image](t)(pc.Cut(1, t.TempDir()))[0].Dir)
}

func TestOrdinaryFileWork(t *testing.T) {
	pc := powercut.MountForTest(t, 1)
	at := func(name string) string { return filepath.Join(pc.Dir(), name) }
	check(t, os.MkdirAll(at("a/b"), 0o755))
	save(t, at("a/b/f"), "hello", false)
	f := must[*os.File](t)(os.OpenFile(at("a/b/f"), os.O_RDWR, 0))
	defer f.Close()
	must[int](t)(f.WriteAt([]byte("J"), 0))
	check(t, f.Truncate(4))
	if _, err := os.OpenFile(at("a/b/f"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("O_EXCL on an existing file: %v", err)
	}
	check(t, os.Rename(at("a/b/f"), at("g")))
	app := must[*os.File](t)(os.OpenFile(at("g"), os.O_APPEND|os.O_WRONLY, 0))
	defer app.Close()
	must[int](t)(app.WriteString("!"))
	if got := list(t, pc.Dir()); got != "a/ a/b/ g=Jell!" {
		t.Errorf("folder holds %q", got)
	}
	check(t, os.Remove(at("g")))
	b := make([]byte, 5)
	if must[int](t)(f.ReadAt(b, 0)); string(b) != "Jell!" {
		t.Errorf("an unlinked open file reads %q", b)
	}
	if err := os.Link(at("a"), at("l")); err == nil {
		t.Error("a hard link was made")
	}
	if err := os.Remove(at("a")); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("rmdir of a full folder: %v", err)
	}
	check(t, os.RemoveAll(at("a")))
	for i := range 500 { // more than one answer to readdir holds
		save(t, at(fmt.Sprintf("file-%040d", i)), "", false)
	}
	if n := len(must[[]os.DirEntry](t)(os.ReadDir(pc.Dir()))); n != 500 {
		t.Errorf("%d of 500 names listed", n)
	}
}

func TestStat(t *testing.T) {
	pc := powercut.MountForTest(t, 1)
	path := filepath.Join(pc.Dir(), "f")
	save(t, path, "12345", false)
	check(t, os.Chmod(path, 0o600))
	stamp := time.Unix(1_000_000_000, 0)
	check(t, os.Chtimes(path, stamp, stamp))
	info := must[os.FileInfo](t)(os.Stat(path))
	if info.Size() != 5 || info.Mode() != 0o600 || !info.ModTime().Equal(stamp) {
		t.Errorf("size %d, mode %v, time %v", info.Size(), info.Mode(), info.ModTime())
	}
	syncDir(t, pc.Dir())
	image := must[[]powercut.Image](t)(pc.Cut(1, t.TempDir()))[0]
	if mode := must[os.FileInfo](t)(os.Stat(filepath.Join(image.Dir, "f"))).Mode(); mode != 0o600 {
		t.Errorf("mode in the image: %v", mode)
	}
}

func TestLocks(t *testing.T) {
	pc := powercut.MountForTest(t, 1)
	path := filepath.Join(pc.Dir(), "lock")
	one := must[*os.File](t)(os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600))
	defer one.Close()
	two := must[*os.File](t)(os.OpenFile(path, os.O_RDWR, 0))
	defer two.Close()
	check(t, syscall.Flock(int(one.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	if err := syscall.Flock(int(two.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EWOULDBLOCK {
		t.Errorf("second flock: %v", err)
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Len: 1}
	check(t, syscall.FcntlFlock(one.Fd(), unix.F_OFD_SETLK, &lock))
	if err := syscall.FcntlFlock(two.Fd(), unix.F_OFD_SETLK, &lock); err != syscall.EAGAIN {
		t.Errorf("second range lock: %v", err)
	}
}

func TestMappedFile(t *testing.T) {
	pc := powercut.MountForTest(t, 1)
	path := filepath.Join(pc.Dir(), "f")
	save(t, path, strings.Repeat("a", 8192), true)
	syncDir(t, pc.Dir())
	f := must[*os.File](t)(os.OpenFile(path, os.O_RDWR, 0))
	defer f.Close()
	mem := must[[]byte](t)(syscall.Mmap(int(f.Fd()), 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED))
	defer syscall.Munmap(mem)
	copy(mem[5000:], "store")
	if b := must[[]byte](t)(os.ReadFile(path)); string(b[5000:5005]) != "store" {
		t.Error("a store through the mapping is not read")
	}
	must[int](t)(f.WriteAt([]byte("write"), 100))
	if string(mem[100:105]) != "write" {
		t.Error("a write is not seen through the mapping")
	}
	if strings.Contains(cutOne(t, pc), "store") {
		t.Error("a store without msync is durable")
	}
	check(t, unix.Msync(mem, unix.MS_SYNC))
	if !strings.Contains(cutOne(t, pc), "store") {
		t.Error("a store is not durable after msync")
	}
}

// The rules themselves are tested on the model; here, that system calls reach them.
func TestSystemCallsReachTheModel(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, dir string)
		want string
	}{
		{"write only", func(t *testing.T, dir string) { save(t, dir+"/f", "new", false) }, "f=old"},
		{"fsync", func(t *testing.T, dir string) { save(t, dir+"/f", "new", true) }, "f=new"},
		{"fdatasync", func(t *testing.T, dir string) {
			f := must[*os.File](t)(os.OpenFile(dir+"/f", os.O_RDWR, 0))
			defer f.Close()
			must[int](t)(f.WriteString("NEWER"))
			check(t, syscall.Fdatasync(int(f.Fd())))
		}, "f=NEWER"},
		{"O_DSYNC", func(t *testing.T, dir string) {
			f := must[*os.File](t)(os.OpenFile(dir+"/f", os.O_RDWR|syscall.O_DSYNC, 0))
			defer f.Close()
			must[int](t)(f.WriteString("NEWER"))
		}, "f=NEWER"},
		{"close is no sync", func(t *testing.T, dir string) { save(t, dir+"/f", "", false) }, "f=old"},
		{"new file, synced", func(t *testing.T, dir string) { save(t, dir+"/g", "x", true) }, "f=old"},
		{"new file, synced, folder too", func(t *testing.T, dir string) {
			save(t, dir+"/g", "x", true)
			syncDir(t, dir)
		}, "f=old g=x"},
		{"rename", func(t *testing.T, dir string) {
			save(t, dir+"/g", "new", true)
			check(t, os.Rename(dir+"/g", dir+"/f"))
		}, "f=old"},
		{"rename, folder synced", func(t *testing.T, dir string) {
			save(t, dir+"/g", "new", true)
			check(t, os.Rename(dir+"/g", dir+"/f"))
			syncDir(t, dir)
		}, "f=new"},
		{"rename of unsynced content, folder synced", func(t *testing.T, dir string) {
			save(t, dir+"/g", "new", false)
			check(t, os.Rename(dir+"/g", dir+"/f"))
			syncDir(t, dir)
		}, "f="},
		{"unlink", func(t *testing.T, dir string) { check(t, os.Remove(dir+"/f")) }, "f=old"},
		{"unlink, folder synced", func(t *testing.T, dir string) {
			check(t, os.Remove(dir+"/f"))
			syncDir(t, dir)
		}, ""},
		{"mkdir, only the new folder synced", func(t *testing.T, dir string) {
			check(t, os.Mkdir(dir+"/d", 0o755))
			save(t, dir+"/d/g", "x", true)
			syncDir(t, dir+"/d")
		}, "f=old"},
		{"mkdir, both folders synced", func(t *testing.T, dir string) {
			check(t, os.Mkdir(dir+"/d", 0o755))
			save(t, dir+"/d/g", "x", true)
			syncDir(t, dir+"/d")
			syncDir(t, dir)
		}, "d/ d/g=x f=old"},
		{"truncate", func(t *testing.T, dir string) { check(t, os.Truncate(dir+"/f", 1)) }, "f=old"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pc := powercut.MountForTest(t, 1)
			save(t, pc.Dir()+"/f", "old", true)
			syncDir(t, pc.Dir())
			tt.do(t, pc.Dir())
			if got := cutOne(t, pc); got != tt.want {
				t.Errorf("image holds %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCut(t *testing.T) {
	run := func(seed uint64) (kinds []powercut.Kind, contents []string) {
		pc := powercut.MountForTest(t, seed)
		save(t, pc.Dir()+"/f", strings.Repeat("a", 40_000), true)
		syncDir(t, pc.Dir())
		save(t, pc.Dir()+"/f", strings.Repeat("b", 40_000), false)
		for _, name := range []string{"x", "y", "z"} {
			save(t, pc.Dir()+"/"+name, name, false)
		}
		images := must[[]powercut.Image](t)(pc.Cut(8, filepath.Join(t.TempDir(), "not", "there")))
		for _, image := range images {
			kinds = append(kinds, image.Kind)
			contents = append(contents, list(t, image.Dir))
		}
		return kinds, contents
	}
	kinds, one := run(5)
	want := []powercut.Kind{"synced", "prefix", "subset", "torn", "prefix", "subset", "torn", "prefix"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	if _, two := run(5); !cmp.Equal(one, two) {
		t.Error("the same seed gave other images")
	}
	if _, other := run(6); cmp.Equal(one, other) {
		t.Error("another seed gave the same images")
	}
}

func TestCutRefusesTheMountItself(t *testing.T) {
	pc := powercut.MountForTest(t, 1)
	if _, err := pc.Cut(1, filepath.Join(pc.Dir(), "images")); err == nil {
		t.Error("images were written into the file system that is being cut")
	}
	save(t, pc.Dir()+"/f", "alive", false)
}

// Writers at work during a hundred cuts: an answered sync is in every later image.
func TestCutsDuringWork(t *testing.T) {
	pc := powercut.MountForTest(t, 0)
	const writers, cuts = 4, 100
	var mu sync.Mutex
	acknowledged := [writers]int{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range writers {
		f := must[*os.File](t)(os.Create(fmt.Sprintf("%s/log-%d", pc.Dir(), w)))
		defer f.Close()
		wg.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := fmt.Fprintf(f, "%08d", i)
				if err = errors.Join(err, f.Sync()); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged[w] = i
				mu.Unlock()
			}
		})
	}
	syncDir(t, pc.Dir())
	for range cuts {
		mu.Lock()
		before := acknowledged
		mu.Unlock()
		for _, image := range must[[]powercut.Image](t)(pc.Cut(4, t.TempDir())) {
			for w := range writers {
				b := must[[]byte](t)(os.ReadFile(fmt.Sprintf("%s/log-%d", image.Dir, w)))
				if len(b) < 8*before[w] {
					t.Fatalf("%s (%s): %d of %d records", image.Kind, image.Detail, len(b)/8, before[w])
				}
			}
		}
	}
	close(stop)
	wg.Wait()
	for w, n := range acknowledged {
		if n == 0 {
			t.Errorf("writer %d did nothing", w)
		}
	}
}

func TestFailSync(t *testing.T) {
	pc := powercut.MountForTest(t, 1)
	save(t, pc.Dir()+"/f", "old", true)
	syncDir(t, pc.Dir())
	check(t, pc.FailSync(2, syscall.ENOSPC, "/f"))
	f := must[*os.File](t)(os.OpenFile(pc.Dir()+"/f", os.O_RDWR, 0))
	defer f.Close()
	save(t, pc.Dir()+"/other", "x", true)
	check(t, f.Sync())
	must[int](t)(f.WriteAt([]byte("new"), 0))
	if err := f.Sync(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("second sync: %v, want ENOSPC", err)
	}
	check(t, f.Sync())
	if b := must[[]byte](t)(os.ReadFile(pc.Dir() + "/f")); string(b) != "new" {
		t.Errorf("processes read %q", b)
	}
	if got := cutOne(t, pc); got != "f=old" {
		t.Errorf("after a failed sync and a good one the image holds %q", got)
	}
	must[int](t)(f.WriteAt([]byte("n"), 0))
	check(t, f.Sync())
	if got := cutOne(t, pc); got != "f=new" {
		t.Errorf("after the page was written again the image holds %q", got)
	}
	check(t, pc.FailSync(1, syscall.EIO, "/"))
	d := must[*os.File](t)(os.Open(pc.Dir()))
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync of the folder: %v, want EIO", err)
	}
	if c := must[powercut.Counts](t)(pc.Counts()); c.FailedSyncs != 2 {
		t.Errorf("%d failed syncs counted", c.FailedSyncs)
	}
	if pc.FailSync(0, syscall.EIO, "") == nil || pc.FailSync(1, 0, "") == nil {
		t.Error("a failure that cannot be was planned")
	}
}

func TestCounts(t *testing.T) {
	pc := powercut.MountForTest(t, 1)
	check(t, os.Mkdir(pc.Dir()+"/d", 0o755))
	save(t, pc.Dir()+"/d/f", "1", true)
	save(t, pc.Dir()+"/d/g", "1", false)
	syncDir(t, pc.Dir()+"/d")
	// Unsynced: the name of d and the content of g.
	want := powercut.Counts{FileSyncs: 1, FolderSyncs: 1, Writes: 2, Unsynced: 2}
	if diff := cmp.Diff(want, must[powercut.Counts](t)(pc.Counts())); diff != "" {
		t.Error(diff)
	}
}

func TestOnSync(t *testing.T) {
	pc := powercut.MountForTest(t, 1)
	check(t, os.Mkdir(pc.Dir()+"/d", 0o755))
	var mu sync.Mutex
	var heard []string
	sofar := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return heard
	}
	check(t, pc.OnSync(func(path string, dir bool) {
		mu.Lock()
		heard = append(heard, fmt.Sprintf("%s %v", path, dir))
		mu.Unlock()
		if _, err := os.Stat(pc.Dir() + "/d"); err != nil {
			t.Errorf("the hook cannot use the folder: %v", err)
		}
	}))
	save(t, pc.Dir()+"/d/f", "1", true)
	if diff := cmp.Diff([]string{"/d/f false"}, sofar()); diff != "" {
		t.Error(diff)
	}
	check(t, pc.FailSync(1, syscall.EIO, ""))
	f := must[*os.File](t)(os.Create(pc.Dir() + "/d/g"))
	defer f.Close()
	if f.Sync() == nil {
		t.Error("the planned failure did not come")
	}
	syncDir(t, pc.Dir()+"/d")
	syncDir(t, pc.Dir())
	check(t, pc.OnSync(nil))
	save(t, pc.Dir()+"/d/f", "2", true)
	if diff := cmp.Diff([]string{"/d/f false", "/d/ true", "/ true"}, sofar()); diff != "" {
		t.Error(diff)
	}
}

func TestKill(t *testing.T) {
	pc := powercut.MountForTest(t, 1)
	save(t, pc.Dir()+"/f", "old", true)
	syncDir(t, pc.Dir())
	f := must[*os.File](t)(os.OpenFile(pc.Dir()+"/f", os.O_RDWR, 0))
	defer f.Close()
	must[[]byte](t)(io.ReadAll(f)) // into the kernel's cache
	must[int](t)(f.WriteAt([]byte("new"), 0))
	check(t, pc.Kill())
	_, readErr := f.ReadAt(make([]byte, 3), 0) // first: a failing write empties the cache
	_, writeErr := f.WriteAt([]byte("late"), 0)
	_, statErr := os.Stat(pc.Dir() + "/f")
	_, listErr := os.ReadDir(pc.Dir())
	_, createErr := os.Create(pc.Dir() + "/g")
	for name, err := range map[string]error{"write": writeErr, "read": readErr, "stat": statErr, "list": listErr,
		"create": createErr, "sync": f.Sync(), "remove": os.Remove(pc.Dir() + "/f")} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s after death: %v, want EIO", name, err)
		}
	}
	if got := cutOne(t, pc); got != "f=old" {
		t.Errorf("image of the death holds %q", got)
	}
}

func TestCloseWithOpenFile(t *testing.T) {
	dir := t.TempDir()
	pc, err := powercut.Mount(dir, 1)
	if errors.Is(err, powercut.ErrUnavailable) {
		pc = powercut.MountForTest(t, 1) // skips or fails by the common rule
	}
	check(t, err)
	f := must[*os.File](t)(os.Create(dir + "/f"))
	defer f.Close()
	check(t, pc.Close())
	check(t, pc.Close())
	if _, err := f.WriteString("x"); err == nil {
		t.Error("an open file is written after Close")
	}
	if names := must[[]os.DirEntry](t)(os.ReadDir(dir)); len(names) != 0 {
		t.Errorf("still mounted: %v", names)
	}
	if _, err := pc.Cut(1, t.TempDir()); err == nil {
		t.Error("a closed file system was cut")
	}
}

func TestSpeed(t *testing.T) {
	pc := powercut.MountForTest(t, 1)
	f := must[*os.File](t)(os.Create(pc.Dir() + "/f"))
	defer f.Close()
	page := bytes.Repeat([]byte("x"), 4096)
	start := time.Now()
	for range 200 {
		must[int](t)(f.Write(page))
		check(t, f.Sync())
	}
	took := time.Since(start)
	t.Logf("200 writes with sync: %v", took)
	if took > 5*time.Second { // far above the 0.1 s it takes, for crowded machines
		t.Errorf("200 writes with sync took %v", took)
	}
}

// orphanEnv makes TestMountGoesWithItsProcess the process that is killed.
const orphanEnv = "POWERCUT_TEST_ORPHAN"

func TestMountGoesWithItsProcess(t *testing.T) {
	if dir := os.Getenv(orphanEnv); dir != "" {
		must[*powercut.FS](t)(powercut.Mount(dir, 1))
		fmt.Println("mounted")
		io.Copy(io.Discard, os.Stdin) // until it is killed
		return
	}
	powercut.MountForTest(t, 1) // skips or fails by the common rule
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMountGoesWithItsProcess$")
	cmd.Env = append(os.Environ(), orphanEnv+"="+dir)
	must[io.WriteCloser](t)(cmd.StdinPipe())
	out := must[io.ReadCloser](t)(cmd.StdoutPipe())
	check(t, cmd.Start())
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		t.Errorf("the process says %q", line)
	}
	if !mounted(t, dir) {
		t.Error("nothing is mounted")
	}
	check(t, cmd.Process.Kill())
	cmd.Wait() // says that it was killed
	for end := time.Now().Add(5 * time.Second); mounted(t, dir); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			syscall.Unmount(dir, syscall.MNT_DETACH)
			t.Fatal("the mount outlived the process")
		}
	}
}

// mounted reports whether something is mounted on dir.
func mounted(t *testing.T, dir string) bool {
	t.Helper()
	return bytes.Contains(must[[]byte](t)(os.ReadFile("/proc/self/mountinfo")), []byte(" "+dir+" "))
}

// Each kind of call fails at the place that was planned, once, and changes nothing; one that is forgiven does not come.
func TestFailCall(t *testing.T) {
	pc := powercut.MountForTest(t, 0)
	path := func(name string) string { return filepath.Join(pc.Dir(), name) }
	save(t, path("a"), "old", true)
	tests := []struct {
		call powercut.Call
		do   func() error
	}{
		{powercut.CallWrite, func() error { return os.WriteFile(path("w"), []byte("new"), 0o600) }},
		{powercut.CallRename, func() error { return os.Rename(path("a"), path("b")) }},
		{powercut.CallOpen, func() error { return os.WriteFile(path("o"), nil, 0o600) }},
		{powercut.CallSync, func() error {
			f, err := os.Open(pc.Dir())
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Sync()
		}},
	}
	for _, tt := range tests {
		check(t, pc.FailCall(tt.call, 1, syscall.ENOSPC))
		if err := tt.do(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v, want no space", tt.call, err)
		}
		if err := tt.do(); err != nil {
			t.Errorf("%s, once more: %v", tt.call, err)
		}
		check(t, pc.FailCall(tt.call, 1, syscall.EIO))
		check(t, pc.Forgive())
	}
	check(t, os.WriteFile(path("w"), []byte("newer"), 0o600))
	if counts, err := pc.Counts(); err != nil || counts.Failed != len(tests) {
		t.Errorf("%d calls failed, want %d (%v)", counts.Failed, len(tests), err)
	}
}

// A read-only disk refuses what changes it, in open files too, and gives what it has.
func TestReadOnly(t *testing.T) {
	pc := powercut.MountForTest(t, 0)
	path := filepath.Join(pc.Dir(), "a")
	save(t, path, "old", true)
	open := must[*os.File](t)(os.OpenFile(path, os.O_RDWR, 0))
	defer open.Close()
	check(t, pc.ReadOnly(true))
	_, err := open.WriteString("new")
	for doing, err := range map[string]error{
		"write": err, "create": os.WriteFile(path+"b", nil, 0o600), "open": os.WriteFile(path, nil, 0o600),
		"rename": os.Rename(path, path+"c"), "remove": os.Remove(path), "mkdir": os.Mkdir(path+"d", 0o700), "chmod": os.Chmod(path, 0o600),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v, want a read-only file system", doing, err)
		}
	}
	if text := must[[]byte](t)(os.ReadFile(path)); string(text) != "old" {
		t.Errorf("it holds %q", text)
	}
	check(t, pc.ReadOnly(false))
	check(t, os.WriteFile(path, []byte("new"), 0o600))
}
