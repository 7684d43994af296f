package sqlite_test

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// lockVariable names the data folder that TestHoldLock opens in a process of its own.
const lockVariable = "TABELLION_TEST_HOLD"

// TestHoldLock is started by TestLocked. It holds a data folder until its input ends.
func TestHoldLock(t *testing.T) {
	dir, ok := os.LookupEnv(lockVariable)
	if !ok {
		return // not a test by itself
	}
	s := openAt(t, dir, sqlite.Options{})
	if err := s.SetAddress("127.0.0.1:4000"); err != nil {
		t.Fatal(err)
	}
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func TestLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cmd := exec.Command(os.Args[0], "-test.run=^TestHoldLock$")
	cmd.Env = append(os.Environ(), lockVariable+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process says %q (%v)", line, err)
	}
	_, err = sqlite.Open(t.Context(), dir, sqlite.Options{})
	var locked *sqlite.LockedError
	if !errors.Is(err, sqlite.ErrLocked) || !errors.As(err, &locked) {
		t.Fatalf("got %v, want a LockedError", err)
	}
	if locked.PID != cmd.Process.Pid || locked.Address != "127.0.0.1:4000" || locked.Dir != dir {
		t.Errorf("got %+v, want pid %d", locked, cmd.Process.Pid)
	}
	for _, part := range []string{dir, fmt.Sprint(cmd.Process.Pid), "127.0.0.1:4000"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	if err := cmd.Process.Kill(); err != nil { // the lock ends with the process, however that ends
		t.Fatal(err)
	}
	in.Close()
	_ = cmd.Wait()
	openAt(t, dir, sqlite.Options{})
	if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("within one process: %v", err)
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data") // the folder above is made, too
	s := openAt(t, dir, sqlite.Options{})
	for name, want := range map[string]fs.FileMode{
		"": 0o700, "tabellion.db": 0o600, "tabellion.db-wal": 0o600, "tabellion.db-shm": 0o600, "tabellion.lock": 0o600,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: mode %v, error %v, want %v", name, info.Mode().Perm(), err, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "tabellion.db"), 0o644); err != nil {
		t.Fatal(err)
	}
	openAt(t, dir, sqlite.Options{})
	if info, err := os.Stat(filepath.Join(dir, "tabellion.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("an open database stays open to others: %v %v", info.Mode(), err)
	}
}

// raw runs a statement on a closed store's database.
func raw(t *testing.T, dir, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "tabellion.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatal(err)
	}
}

func TestNewerFormat(t *testing.T) {
	dir := t.TempDir()
	if err := openAt(t, dir, sqlite.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	raw(t, dir, "PRAGMA user_version=99")
	before, err := os.ReadFile(filepath.Join(dir, "tabellion.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(t.Context(), dir, sqlite.Options{})
	if !errors.Is(err, sqlite.ErrNewerFormat) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want ErrNewerFormat and the folder", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "tabellion.db")); err != nil || string(after) != string(before) {
		t.Errorf("the database was changed (%v)", err)
	}
	raw(t, dir, "PRAGMA user_version=1") // and the lock was given back
	openAt(t, dir, sqlite.Options{})
}

func TestForeignDatabase(t *testing.T) {
	dir := t.TempDir()
	raw(t, dir, "CREATE TABLE theirs (x)")
	if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), "does not belong") {
		t.Errorf("a foreign database: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tabellion.db"), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("no database: %v", err)
	}
}

func TestNoFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "data")} {
		if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v, want an error that names %s", err, dir)
		}
	}
}

// tmpfs mounts a file system in memory for the test, or skips, saying so.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tabellion-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("SKIPPED, NOT TESTED: cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

func TestReadOnlyFileSystem(t *testing.T) {
	top := tmpfs(t, "16m")
	dir := filepath.Join(top, "data")
	if err := openAt(t, dir, sqlite.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", top, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, filepath.Join(top, "new")} {
		_, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
		if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v, want one that says read-only and names %s", err, dir)
		}
	}
	if err := syscall.Mount("", top, "", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	openAt(t, dir, sqlite.Options{})
}

// TestDiskFull fills the disk under a store: writes are refused as not done, reads go on, and writes work again when
// there is space.
func TestDiskFull(t *testing.T) {
	top := tmpfs(t, "8m")
	s := openAt(t, filepath.Join(top, "data"), sqlite.Options{})
	done, i := 0, 0
	write := func() error {
		_, err := s.Update(t.Context(), persistence.Commit{Namespace: "ns", Key: fmt.Sprint("k", i), Now: day}, one(fmt.Sprint("d", i), 1<<15))
		i++
		if err == nil {
			done++
		}
		return err
	}
	for range 5 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	filler := fill(t, filepath.Join(top, "filler"))
	refused := 0
	for range 20 {
		err := write()
		if err != nil && (!errors.Is(err, persistence.ErrUnavailable) || errors.Is(err, persistence.ErrUnknown)) {
			t.Fatalf("on a full disk: %v, want ErrUnavailable", err)
		}
		if err != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("nothing was refused: the disk was not full")
	}
	if err := s.Healthy(); err != nil {
		t.Errorf("a full disk is for ever: %v", err)
	}
	count(t, s, done)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := write(); err != nil {
			t.Fatalf("after space was freed: %v", err)
		}
	}
	count(t, s, done)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	count(t, openAt(t, filepath.Join(top, "data"), sqlite.Options{}), done)
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return name
		}
	}
}

// count fails when the namespace does not hold n documents.
func count(t *testing.T, s persistence.Store, n int) {
	t.Helper()
	err := s.View(t.Context(), func(r persistence.Reader) error {
		docs, more, err := r.Heads("ns", persistence.HeadFilter{Limit: n + 1})
		if len(docs) != n || more {
			t.Errorf("%d documents, want %d", len(docs), n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
