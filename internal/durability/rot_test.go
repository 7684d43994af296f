package durability_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
	"github.com/tabellion-mcp/tabellion/internal/testkit/verify"
	"github.com/tabellion-mcp/tabellion/internal/testkit/workload"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// The size of the test of flipped bits.
const (
	rotten    = 200       // blobs
	sound     = 20        // blobs beside them that are left alone
	mostRot   = 200 << 10 // bytes of a blob; the smallest has 1
	rottenDBs = 40        // databases with one flipped bit each
)

// stocked is a folder with artifacts.
type stocked struct {
	dir     string
	store   *sqlite.Store
	blobs   *blob.Folder
	server  asAlice
	ids     []string
	digests []persistence.Digest
}

// stock fills a folder with artifacts of sizes from 1 byte to 200 KiB.
func stock(t *testing.T, n int, rng *rand.Rand) *stocked {
	t.Helper()
	s := &stocked{dir: t.TempDir()}
	var err error
	if s.store, s.blobs, err = (disks{}).open(t.Context(), s.dir); err != nil {
		t.Fatal(err)
	}
	s.server = serverOn(t, s.store, s.blobs)
	r := &sweepRun{server: s.server}
	for i := range n {
		body := make([]byte, 1+i*(mostRot-1)/(n-1))
		for at := range body {
			body[at] = byte(rng.Uint32())
		}
		up, ok := r.send(t.Context(), string(body))
		if ok {
			_, ok = r.tool(t.Context(), "commitArtifact", fmt.Sprintf(`"uploadId":%q`, up.upload))
		}
		if !ok {
			t.Fatal(r.violations)
		}
		s.ids, s.digests = append(s.ids, up.artifact), append(s.digests, sha256.Sum256(body))
	}
	return s
}

// flip flips one bit of a file.
func flip(path string, rng *rand.Rand) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	return os.WriteFile(path, b, 0o600)
}

// close closes the folder, so that it can be checked.
func (s *stocked) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(s.blobs.Close(), s.store.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestFlippedBits flips one bit in each of 200 stored blobs: none is served, and a check that reads the data names all of
// them, and nothing else; one that does not read the data cannot.
func TestFlippedBits(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 3))
	s := stock(t, rotten+sound, rng)
	flipped := map[int]bool{}
	for _, i := range rng.Perm(len(s.ids))[:rotten] {
		flipped[i] = true
		if err := flip(s.blobs.Path(s.digests[i]), rng); err != nil {
			t.Fatal(err)
		}
	}
	served := 0
	for i, id := range s.ids {
		res, err := s.server.HTTP(t.Context(), scenario.HTTPRequest{Method: http.MethodGet, Path: "/artifacts/load/" + id})
		if err != nil {
			t.Fatal(err)
		}
		whole := res.Status == http.StatusOK && !res.Broken
		if whole {
			served++
		}
		if whole == flipped[i] {
			t.Errorf("artifact %d of %d bytes, bit flipped %t: answered %d, broken %t, %d bytes", i, len(s.ids), flipped[i], res.Status, res.Broken, res.Size)
		}
		if flipped[i] && res.Status != http.StatusBadRequest && !res.Broken {
			t.Errorf("artifact %d: answered with %d", i, res.Status)
		}
	}
	s.close(t)
	named := s.named(t, maintain.CheckOptions{ReadData: true})
	for i, id := range s.ids {
		if named[id] != flipped[i] {
			t.Errorf("artifact %d: bit flipped %t, named by the check %t", i, flipped[i], named[id])
		}
	}
	unread := s.named(t, maintain.CheckOptions{})
	if len(unread) != 0 {
		t.Errorf("a check that reads no data names %d artifacts", len(unread))
	}
	fmt.Printf("flipped bits (seed %d): %d blobs, %d with a flipped bit; %d served, %d named by the check that reads data, %d by the one that does not\n",
		seed, len(s.ids), rotten, served, len(named), len(unread))
}

// named are the artifacts that a check names.
func (s *stocked) named(t *testing.T, o maintain.CheckOptions) map[string]bool {
	t.Helper()
	report, err := maintain.Check(t.Context(), s.dir, o)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, f := range report.Findings {
		if f.Kind != maintain.KindBlobDamaged {
			t.Errorf("the check found %s", f)
			continue
		}
		for _, id := range s.ids {
			if strings.Contains(f.Where, id) {
				out[id] = true
			}
		}
	}
	return out
}

// TestFlippedDatabaseBits flips one bit somewhere in the database: it is noticed, by an error, a refusal or the check, or
// it is harmless: everything that was acknowledged is there and right.
func TestFlippedDatabaseBits(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run by make test")
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 4))
	rec := history.NewRecorder()
	dir := writtenFolder(t, seed, rec)
	noticed, harmless := 0, 0
	for i := range rottenDBs {
		image := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := flip(sqlite.Database(image), rng); err != nil {
			t.Fatal(err)
		}
		found, err := notices(t, image, rec.Ops())
		switch {
		case err != nil:
			t.Errorf("seed %d, flip %d: %v", seed, i, err)
		case found:
			noticed++
		default:
			harmless++
		}
	}
	fmt.Printf("flipped bits in databases (seed %d): %d, noticed %d, harmless %d\n", seed, rottenDBs, noticed, harmless)
	if noticed == 0 {
		t.Error("nothing was noticed; the test proves nothing")
	}
}

// writtenFolder is a data folder with documents and artifacts, closed, with everything in the database file.
func writtenFolder(t *testing.T, seed uint64, rec *history.Recorder) string {
	t.Helper()
	dir := t.TempDir()
	store, blobs, err := disks{}.open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	server := serverOn(t, store, blobs)
	for _, c := range newClients(workload.Config{Prefix: "w", Documents: 16, Pad: 300, Reads: 5, Deletes: 5, Refs: true, Artifacts: 20, MaxBytes: 500}, seed, rec) {
		for range 40 {
			if err := c.Step(t.Context(), server); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(blobs.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(sqlite.Database(dir) + "-wal"); !errors.Is(err, fs.ErrNotExist) && len(b) > 0 {
		t.Fatalf("%d bytes are still in the log of the database: %v", len(b), err)
	}
	return dir
}

// notices tells whether a flipped bit is noticed. The error is that it was not, and something is wrong: something that was
// acknowledged is served otherwise.
func notices(t *testing.T, dir string, ops []history.Op) (bool, error) {
	check, err := maintain.Check(t.Context(), dir, maintain.CheckOptions{})
	checked := err != nil || check.Damaged()
	store, blobs, err := disks{}.open(t.Context(), dir)
	if err != nil {
		return true, nil
	}
	defer store.Close()
	defer blobs.Close()
	report, err := verify.Run(t.Context(), ops, &workload.Server{Caller: serverOn(t, store, blobs)})
	switch {
	case err != nil: // a read was refused
		return true, nil
	case !report.Clean() && !checked:
		return false, fmt.Errorf("neither the check nor a read noticed it: %s", report)
	}
	return checked, nil
}
