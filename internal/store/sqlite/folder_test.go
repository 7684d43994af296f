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
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
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
	raw(t, dir, "PRAGMA user_version=3") // the next one
	if have, known, err := sqlite.Format(dir); have != 3 || known != 2 || err != nil {
		t.Errorf("the format is %d of %d (%v), want 3 of 2", have, known, err)
	}
	if _, _, err := sqlite.Migrate(t.Context(), dir, nil); !errors.Is(err, sqlite.ErrNewerFormat) {
		t.Errorf("migrating: got %v, want ErrNewerFormat", err)
	}
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
	_, known, err := sqlite.Format(dir)
	if err != nil {
		t.Fatal(err)
	}
	raw(t, dir, fmt.Sprintf("PRAGMA user_version=%d", known)) // and the lock was given back
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
