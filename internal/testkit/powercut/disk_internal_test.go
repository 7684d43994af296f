package powercut

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sim drives a disk by paths, without a mount. Every method fails the test on an error.
type sim struct {
	*testing.T
	d *disk
}

// newSim returns a simulation on an empty disk.
func newSim(t *testing.T) *sim { return &sim{t, newDisk()} }

// at finds a node by path.
func (s *sim) at(p string) *node {
	s.Helper()
	n := s.d.nodes[rootIno]
	for _, name := range strings.FieldsFunc(path.Clean("/"+p), func(r rune) bool { return r == '/' }) {
		var errno syscall.Errno
		if n, errno = s.d.lookup(n, name); errno != 0 {
			s.Fatalf("%s: %v", p, errno)
		}
	}
	return n
}

// ok fails the test on an error.
func (s *sim) ok(errno syscall.Errno) {
	s.Helper()
	if errno != 0 {
		s.Fatal(errno)
	}
}

func (s *sim) create(p string) {
	s.Helper()
	_, errno := s.d.create(s.at(path.Dir(p)), path.Base(p), modeRegular|0o644)
	s.ok(errno)
}

func (s *sim) mkdir(p string) {
	s.Helper()
	_, errno := s.d.create(s.at(path.Dir(p)), path.Base(p), modeFolder|0o755)
	s.ok(errno)
}

// write puts runs of letters, as render shows them, at an offset.
func (s *sim) write(p string, off int64, runs string) {
	s.Helper()
	s.ok(s.d.write(s.at(p), off, []byte(expand(runs))))
}

func (s *sim) truncate(p string, size int64) { s.Helper(); s.ok(s.d.truncate(s.at(p), size)) }
func (s *sim) sync(p string)                 { s.Helper(); s.ok(s.d.sync(s.at(p))) }
func (s *sim) unlink(p string) {
	s.Helper()
	s.ok(s.d.unlink(s.at(path.Dir(p)), path.Base(p), s.at(p).isFolder()))
}
func (s *sim) rename(a, b string) {
	s.Helper()
	s.ok(s.d.rename(s.at(path.Dir(a)), path.Base(a), s.at(path.Dir(b)), path.Base(b), false))
}

// expand turns "a3b2" into "aaabb". A dot is a zero byte.
func expand(runs string) string {
	var b strings.Builder
	for len(runs) > 0 {
		var n int
		fmt.Sscanf(runs[1:], "%d", &n)
		letter := runs[:1]
		if letter == "." {
			letter = "\x00"
		}
		b.WriteString(strings.Repeat(letter, n))
		runs = strings.TrimLeft(runs[1:], "0123456789")
	}
	return b.String()
}

// runs is the reverse of expand.
func runs(content string) string {
	var b strings.Builder
	for len(content) > 0 {
		rest := strings.TrimLeft(content, content[:1])
		letter := strings.ReplaceAll(content[:1], "\x00", ".")
		fmt.Fprintf(&b, "%s%d", letter, len(content)-len(rest))
		content = rest
	}
	return b.String()
}

// render shows a whole image in one line: "d/ d/f=a3b2 g=".
func render(t testing.TB, tr *tree) string {
	t.Helper()
	var all []string
	err := tr.walk(func(path string, n *node, content []byte) error {
		if !n.isFolder() {
			path += "=" + runs(string(content))
		}
		all = append(all, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

// images draws many images of a kind and returns the different ones, sorted.
func (s *sim) images(kind Kind) []string {
	s.Helper()
	set := map[string]bool{}
	for seed := range uint64(2000) {
		tr, _ := s.d.image(kind, rand.New(rand.NewPCG(seed, 0)))
		set[render(s, tr)] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// allowed checks that the images of a kind are exactly these states: each of them turns
// up, and no other.
func (s *sim) allowed(kind Kind, want ...string) {
	s.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, s.images(kind)); diff != "" {
		s.Errorf("%s images (-allowed +found):\n%s", kind, diff)
	}
}

func TestWriteIsLostWithoutSync(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.sync("/")
	s.write("f", 0, "a3")
	s.allowed(KindSynced, "f=")
	s.allowed(KindPrefix, "f=", "f=a3")
	s.allowed(KindSubset, "f=", "f=a3")
	s.sync("f")
	for _, kind := range kinds {
		s.allowed(kind, "f=a3")
	}
}

func TestNameNeedsFolderSync(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a3")
	s.sync("f")
	s.allowed(KindSynced, "")
	s.allowed(KindPrefix, "", "f=a3")
	s.allowed(KindSubset, "", "f=a3")
	s.sync("/")
	s.allowed(KindSynced, "f=a3")
}

func TestFolderSyncKeepsNoContent(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a3")
	s.sync("/")
	s.allowed(KindSynced, "f=")
	s.allowed(KindSubset, "f=", "f=a3")
}

func TestNewFolderNeedsSyncOfItsParent(t *testing.T) {
	s := newSim(t)
	s.mkdir("d")
	s.create("d/f")
	s.write("d/f", 0, "a1")
	s.sync("d/f")
	s.sync("d")
	s.allowed(KindSynced, "")
	s.allowed(KindSubset, "", "d/ d/f=a1")
	s.sync("/")
	s.allowed(KindSynced, "d/ d/f=a1")
}

func TestRenameIsOneChange(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a1")
	s.create("g")
	s.write("g", 0, "b1")
	s.sync("f")
	s.sync("g")
	s.sync("/")
	s.rename("f", "g")
	s.allowed(KindSynced, "f=a1 g=b1")
	s.allowed(KindPrefix, "f=a1 g=b1", "g=a1")
	s.allowed(KindSubset, "f=a1 g=b1", "g=a1")
	s.sync("/")
	s.allowed(KindSynced, "g=a1")
}

func TestRenameOvertakesUnsyncedContent(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a1")
	s.sync("f")
	s.sync("/")
	s.create("t")
	s.write("t", 0, "b1")
	s.rename("t", "f")
	s.allowed(KindPrefix, "f=a1", "f=a1 t=", "f=a1 t=b1", "f=b1")
	s.allowed(KindSubset, "f=a1", "f=a1 t=", "f=a1 t=b1", "f=b1", "f=") // the last: the careless replace
}

func TestRenameAcrossFolders(t *testing.T) {
	for _, synced := range []string{"p", "q"} {
		t.Run("sync of "+synced, func(t *testing.T) {
			s := newSim(t)
			s.mkdir("p")
			s.mkdir("q")
			s.create("p/f")
			s.sync("/")
			s.sync("p")
			s.create("p/g")
			s.rename("p/f", "q/f")
			s.create("q/h")
			s.allowed(KindSynced, "p/ p/f= q/")
			s.allowed(KindSubset, "p/ p/f= q/", "p/ p/f= p/g= q/", "p/ p/g= q/ q/f=", "p/ p/g= q/ q/f= q/h=")
			s.sync(synced)
			if synced == "p" { // q/h came later and in the other folder
				s.allowed(KindSynced, "p/ p/g= q/ q/f=")
			} else {
				s.allowed(KindSynced, "p/ p/g= q/ q/f= q/h=")
			}
		})
	}
}

// A file moved into a folder that is itself new must not vanish from both places.
func TestRenameIntoNewFolder(t *testing.T) {
	s := newSim(t)
	s.mkdir("p")
	s.create("p/f")
	s.sync("/")
	s.sync("p")
	s.mkdir("d")
	s.rename("p/f", "d/f")
	s.allowed(KindSubset, "p/ p/f=", "d/ p/ p/f=", "d/ d/f= p/")
	s.sync("p")
	s.allowed(KindSynced, "d/ d/f= p/")
}

// The mirror image: moved out of a folder that is then removed.
func TestRemovedFolderComesAfterItsContent(t *testing.T) {
	s := newSim(t)
	s.mkdir("d")
	s.create("d/f")
	s.mkdir("p")
	s.sync("/")
	s.sync("d")
	s.rename("d/f", "p/f")
	s.unlink("d")
	s.allowed(KindSubset, "d/ d/f= p/", "d/ p/ p/f=", "p/ p/f=")
	s.sync("/")
	s.allowed(KindSynced, "p/ p/f=")
}

// The same with a folder that is replaced.
func TestReplacedFolderComesAfterItsContent(t *testing.T) {
	s := newSim(t)
	s.mkdir("d")
	s.create("d/f")
	s.mkdir("e")
	s.mkdir("p")
	s.sync("/")
	s.sync("d")
	s.rename("d/f", "p/f")
	s.rename("e", "d")
	s.allowed(KindSubset, "d/ d/f= e/ p/", "d/ e/ p/ p/f=", "d/ p/ p/f=")
}

func TestUnlinkNeedsFolderSync(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a1")
	s.sync("f")
	s.sync("/")
	s.unlink("f")
	s.create("f")
	s.allowed(KindSynced, "f=a1")
	s.allowed(KindSubset, "f=a1", "", "f=")
	s.sync("/")
	s.allowed(KindSynced, "f=")
}

func TestNamesOfOneFolderKeepTheirOrder(t *testing.T) {
	s := newSim(t)
	s.create("a")
	s.create("b")
	s.create("c")
	s.allowed(KindPrefix, "", "a=", "a= b=", "a= b= c=")
	s.allowed(KindSubset, "", "a=", "a= b=", "a= b= c=")
}

func TestNamesOfTwoFoldersDoNot(t *testing.T) {
	s := newSim(t)
	s.mkdir("p")
	s.mkdir("q")
	s.sync("/")
	s.create("p/a")
	s.create("q/b")
	s.allowed(KindPrefix, "p/ q/", "p/ p/a= q/", "p/ p/a= q/ q/b=")
	s.allowed(KindSubset, "p/ q/", "p/ p/a= q/", "p/ p/a= q/ q/b=", "p/ q/ q/b=")
}

func TestOverwriteIsOldOrNewByPage(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a8192")
	s.sync("f")
	s.sync("/")
	s.write("f", 0, "b8192")
	s.allowed(KindPrefix, "f=a8192", "f=b8192")
	s.allowed(KindSubset, "f=a8192", "f=a4096b4096", "f=b4096a4096", "f=b8192")
}

// Two writes to one page: the page cannot hold the second without the first.
func TestPageHoldsWritesInOrder(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a100")
	s.sync("f")
	s.sync("/")
	s.write("f", 0, "b10")
	s.write("f", 20, "c10")
	s.allowed(KindSubset, "f=a100", "f=b10a90", "f=b10a10c10a70")
}

func TestAppendMayLeaveHole(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.sync("/")
	s.write("f", 0, "a8192")
	s.allowed(KindSubset, "f=", "f=a4096", "f=.4096a4096", "f=a8192")
}

func TestTruncate(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a8192")
	s.sync("f")
	s.sync("/")
	s.truncate("f", 4096)
	s.write("f", 0, "b4096")  // in place: independent of the truncation
	s.write("f", 4096, "c10") // in space that the truncation freed: only after it
	s.allowed(KindPrefix, "f=a8192", "f=a4096", "f=b4096", "f=b4096c10")
	s.allowed(KindSubset, "f=a8192", "f=b4096a4096", "f=a4096", "f=b4096", "f=a4096c10", "f=b4096c10")
	s.sync("f")
	s.allowed(KindSynced, "f=b4096c10")
}

func TestTornWriteOnlyInItsKind(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a1536")
	s.sync("f")
	s.sync("/")
	s.write("f", 0, "b1536")
	s.allowed(KindPrefix, "f=a1536", "f=b1536")
	s.allowed(KindSubset, "f=a1536", "f=b1536")
	s.allowed(KindTorn, "f=b512a1024", "f=b1024a512", "f=a512b1024", "f=a1024b512")
}

// A torn append may have its full length, with zeros, or end at the tear.
func TestTornAppend(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.sync("/")
	s.write("f", 0, "a1000")
	s.allowed(KindTorn, "f=a512", "f=a512.488", "f=.512a488")
}

// A torn write into space that a truncation freed brings the truncation with it.
func TestTornWriteAfterTruncate(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a4096")
	s.sync("f")
	s.sync("/")
	s.truncate("f", 0)
	s.write("f", 0, "b1024")
	s.truncate("f", 0)
	s.allowed(KindTorn, "f=b512", "f=b512.512", "f=.512b512")
}

func TestNothingToTear(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.sync("/")
	s.write("f", 0, "a512")
	s.allowed(KindTorn, "f=", "f=a512")
}

// After a failed sync a later one succeeds and the content is gone all the same.
func TestFailedSyncLosesContent(t *testing.T) {
	s := newSim(t)
	s.create("f")
	s.write("f", 0, "a8192")
	s.sync("f")
	s.sync("/")
	s.write("f", 0, "b8192")
	s.d.failures = []failure{{CallSync, "", 1, syscall.EIO}}
	if errno := s.d.sync(s.at("f")); errno != syscall.EIO {
		t.Fatalf("sync: got %v, want EIO", errno)
	}
	s.allowed(KindSubset, "f=a8192")
	s.sync("f")
	s.allowed(KindSynced, "f=a8192")
	if got := runs(string(s.at("f").data)); got != "b8192" {
		t.Fatalf("processes see %s, want b8192", got)
	}
	s.write("f", 4100, "c10") // dirties the second page: all of it is written again
	s.sync("f")
	s.allowed(KindSynced, "f=a4096b4c10b4082")
}

func TestPlannedFailures(t *testing.T) {
	s := newSim(t)
	s.mkdir("d")
	s.create("d/x-wal")
	s.create("d/x")
	s.d.failures = []failure{{CallSync, "-wal", 2, syscall.EIO}, {CallSync, "", 4, syscall.ENOSPC}, {CallSync, "/d/", 1, syscall.EDQUOT}}
	var got []syscall.Errno
	for _, p := range []string{"d/x", "d/x-wal", "/", "d/x-wal", "d", "d", "d/x", "d/x"} {
		got = append(got, s.d.sync(s.at(p)))
	}
	// The sync of x-wal that fails with EIO is the third of the files for the second rule.
	want := []syscall.Errno{0, 0, 0, syscall.EIO, syscall.EDQUOT, 0, syscall.ENOSPC, 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRefusals(t *testing.T) {
	s := newSim(t)
	s.mkdir("d")
	s.create("d/f")
	root := s.at("/")
	for _, tt := range []struct {
		name      string
		got, want syscall.Errno
	}{
		{"rmdir of a full folder", s.d.unlink(root, "d", true), syscall.ENOTEMPTY},
		{"unlink of a folder", s.d.unlink(root, "d", false), syscall.EISDIR},
		{"rmdir of a file", s.d.unlink(s.at("d"), "f", true), syscall.ENOTDIR},
		{"unlink of nothing", s.d.unlink(root, "x", false), syscall.ENOENT},
		{"rename onto without replacing", s.d.rename(s.at("d"), "f", root, "d", true), syscall.EEXIST},
		{"rename of a file onto a folder", s.d.rename(s.at("d"), "f", root, "d", false), syscall.EISDIR},
		{"a file too large", s.d.truncate(s.at("d/f"), maxFileBytes+1), syscall.EFBIG},
		{"a write too far out", s.d.write(s.at("d/f"), maxFileBytes, []byte("a")), syscall.EFBIG},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, tt.got, tt.want)
		}
	}
}

func TestForgottenFilesAreFreed(t *testing.T) {
	s := newSim(t)
	for range 2000 {
		s.create("tmp")
		s.write("tmp", 0, "a10")
		s.rename("tmp", "f")
		s.sync("/")
	}
	if n := len(s.d.nodes); n > 2*sweepAfter {
		t.Errorf("%d nodes kept for one file", n)
	}
	s.unlink("f")
	s.create("t")
	s.unlink("t")
	s.d.sweep() // durable and unsynced names still need their files
	s.allowed(KindSynced, "f=")
	s.allowed(KindPrefix, "f=", "f=a10", "", "t=") // the write was never synced
}

// script runs random operations; the same numbers give the same run.
func script(s *sim, rng *rand.Rand, steps int) {
	folders := []string{"", "p/", "q/", "p/r/"}
	s.mkdir("p")
	s.mkdir("q")
	s.mkdir("p/r")
	s.sync("/")
	s.sync("p")
	for range steps {
		name := func() string { return folders[rng.IntN(4)] + string(rune('a'+rng.IntN(3))) }
		p, q := name(), name()
		dir := s.at(path.Dir(p))
		n, errno := s.d.lookup(dir, path.Base(p))
		switch rng.IntN(8) {
		case 0, 1:
			if errno != 0 {
				s.create(p)
			}
		case 2, 3:
			if errno == 0 {
				s.write(p, rng.Int64N(9000), fmt.Sprintf("%c%d", 'a'+rng.IntN(26), 1+rng.IntN(5000)))
			}
		case 4:
			if errno == 0 {
				s.rename(p, q)
			}
		case 5:
			if errno == 0 && rng.IntN(2) == 0 {
				s.unlink(p)
			} else if errno == 0 {
				s.truncate(p, rng.Int64N(9000))
			}
		case 6:
			if errno == 0 {
				s.ok(s.d.sync(n))
			}
		case 7:
			s.ok(s.d.sync(dir))
		}
	}
}

// On random runs: everything that can be cut has one name only (walk checks), no file
// that was moved vanishes, all-changes equals what processes see, and a seed replays.
func TestRandomRuns(t *testing.T) {
	for seed := range uint64(150) {
		one, two := newSim(t), newSim(t)
		script(one, rand.New(rand.NewPCG(seed, 1)), 200)
		script(two, rand.New(rand.NewPCG(seed, 1)), 200)
		for i := range 20 {
			a, detailA := one.d.image(kindOf(i), rand.New(rand.NewPCG(seed, uint64(i))))
			b, detailB := two.d.image(kindOf(i), rand.New(rand.NewPCG(seed, uint64(i))))
			if render(t, a) != render(t, b) || detailA != detailB {
				t.Fatalf("seed %d image %d does not replay", seed, i)
			}
		}
		all := one.d.durable()
		for _, o := range one.d.unsynced() {
			all.apply(o)
		}
		if got, want := render(t, all), renderSeen(one); got != want {
			t.Fatalf("seed %d: durable and unsynced give\n%s\nprocesses see\n%s", seed, got, want)
		}
	}
}

// renderSeen shows what processes see, as render does.
func renderSeen(s *sim) string {
	t := &tree{disk: s.d, names: map[ino]map[string]ino{}, files: map[ino][]byte{}}
	for id, n := range s.d.nodes {
		t.names[id], t.files[id] = n.names, n.data
	}
	return render(s, t)
}

// Files that are created durably at the start and then only moved are in every image.
func TestMovedFilesNeverVanish(t *testing.T) {
	for seed := range uint64(300) {
		s, rng := newSim(t), rand.New(rand.NewPCG(seed, 2))
		folders := []string{"/", "p", "p/r", "q"}
		for _, d := range folders[1:] {
			s.mkdir(d)
		}
		for i := range 4 {
			s.create(fmt.Sprintf("p/r/f%d", i))
		}
		for _, d := range folders {
			s.sync(d)
		}
		made := 0
		for range 30 {
			files := seen(s, false)
			from := files[rng.IntN(len(files))]
			folders := append(seen(s, true), "")
			to := folders[rng.IntN(len(folders))]
			switch rng.IntN(6) {
			case 0:
				made++
				s.mkdir(fmt.Sprintf("%sd%d", to, made))
			case 1:
				if to != "" && len(s.at(to).names) == 0 {
					s.unlink(strings.TrimSuffix(to, "/"))
				}
			case 2:
				s.sync(to)
			case 3: // move a folder to where it is not below itself
				dir := folders[rng.IntN(len(folders))]
				if dir != "" && !strings.HasPrefix(to, dir) {
					made++
					s.rename(strings.TrimSuffix(dir, "/"), fmt.Sprintf("%sd%d", to, made))
				}
			default:
				s.rename(from, to+path.Base(from))
			}
		}
		for i := range 20 {
			tr, detail := s.d.image(kindOf(i), rng)
			if got := strings.Count(render(t, tr), "="); got != 4 {
				t.Fatalf("seed %d image %d (%s) holds %d of 4 files: %s", seed, i, detail, got, render(t, tr))
			}
		}
	}
}

// seen lists the paths that processes see, files or folders.
func seen(s *sim, folders bool) []string {
	var all []string
	for _, p := range strings.Fields(renderSeen(s)) {
		if strings.HasSuffix(p, "/") == folders {
			all = append(all, strings.TrimSuffix(p, "="))
		}
	}
	return all
}

func TestUnavailable(t *testing.T) {
	fails, why := unavailable(ErrUnavailable, "")
	if fails || !strings.HasPrefix(why, "NOT RUN: power-cut suite needs root and /dev/fuse") {
		t.Errorf("without CI: %v %q", fails, why)
	}
	if fails, _ := unavailable(ErrUnavailable, "true"); !fails {
		t.Error("in CI a skip must be a failure")
	}
}

func TestChooseSeed(t *testing.T) {
	if seed, err := chooseSeed(7, "9"); seed != 7 || err != nil {
		t.Errorf("given seed: %d, %v", seed, err)
	}
	if seed, err := chooseSeed(0, "9"); seed != 9 || err != nil {
		t.Errorf("seed to replay: %d, %v", seed, err)
	}
	if _, err := chooseSeed(0, "x"); err == nil {
		t.Error("a seed that is no number was taken")
	}
}
