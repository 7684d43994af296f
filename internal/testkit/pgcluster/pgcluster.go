//go:build unix

// Package pgcluster starts a throw-away PostgreSQL cluster for tests.
//
//	cluster := pgcluster.Start(t)
//	url := cluster.NewDatabase(t)
//
// A test process has one cluster, on a free loopback port, run by a user who is not root. Its databases sort text by a
// natural language, as most databases that people have, so that an order by code point is never there by accident.
//
// The cluster ends with the process, however it ends: a small shell holds a pipe from the process, stops the server when
// the pipe closes, and removes the folder.
package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// owner is the superuser of the cluster, the role of its URLs.
const owner = "tab"

// errNoServer says that the server programs are not installed.
var errNoServer = errors.New("no PostgreSQL server programs in /usr/lib/postgresql/*/bin or on PATH")

// startTimeout is a hang guard for creating and starting a cluster.
const startTimeout = 90 * time.Second

// Cluster is a running server. It is safe for concurrent use.
type Cluster struct {
	URL  string // of the database postgres, as superuser
	Port int
	Log  string // the server's log file
	Bin  string // the folder of the server programs, psql among them where it is installed

	serial atomic.Int64
	keep   io.Closer // the pipe whose end stops the server
}

// running is the cluster of this process.
var running = sync.OnceValues(launch)

// Start gives the cluster of this process, and starts it at the first call. Without the server programs the test is
// skipped, or fails where CI is set.
func Start(tb testing.TB) *Cluster {
	tb.Helper()
	c, err := running()
	switch {
	case errors.Is(err, errNoServer) && os.Getenv("CI") == "":
		tb.Skipf("NOT RUN: %v; install the package postgresql", err)
	case err != nil:
		tb.Fatalf("start a PostgreSQL cluster: %v", err)
	}
	return c
}

// NewDatabase creates an empty database, gives its URL (as superuser), and drops it when the test ends.
func (c *Cluster) NewDatabase(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("t%d_%d", os.Getpid(), c.serial.Add(1))
	c.Exec(tb, c.URL, "CREATE DATABASE "+name)
	tb.Cleanup(func() { c.Exec(tb, c.URL, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	return c.url(owner, name)
}

// NewRole creates a role that may log in and nothing else, gives the URL of the database of url for it, and drops it when
// the test ends. It must be called after NewDatabase made that database, so that its rights end first.
func (c *Cluster) NewRole(tb testing.TB, url string) (name, roleURL string) {
	tb.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	name = fmt.Sprintf("r%d_%d", os.Getpid(), c.serial.Add(1))
	c.Exec(tb, c.URL, "CREATE ROLE "+name+" LOGIN")
	tb.Cleanup(func() {
		c.Exec(tb, url, "DROP OWNED BY "+name+" CASCADE")
		c.Exec(tb, c.URL, "DROP ROLE "+name)
	})
	return name, c.url(name, config.Database)
}

// Exec runs a script in the database of url, as a person would.
func (c *Cluster) Exec(tb testing.TB, url, script string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.PgConn().Exec(ctx, script).ReadAll(); err != nil {
		tb.Fatalf("%.200s: %v", script, err)
	}
}

// url is that of a database for a role.
func (c *Cluster) url(role, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", role, c.Port, database)
}

// programs finds the folder of initdb and postgres, the newest version first.
func programs() (string, error) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
			return dir, nil
		}
	}
	return "", errNoServer
}

// version is the number in /usr/lib/postgresql/15/bin, 0 for other folders.
func version(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

// launch creates a cluster in a temporary folder and waits until it answers.
func launch() (*Cluster, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tabellion-pg-")
	if err != nil {
		return nil, err
	}
	who, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	c := &Cluster{Bin: bin, Port: port, Log: filepath.Join(dir, "log")}
	c.URL = c.url(owner, "postgres")
	if err := c.serve(dir, who); err != nil {
		return nil, err
	}
	if err := c.await(); err != nil {
		c.keep.Close()
		log, _ := os.ReadFile(c.Log)
		return nil, fmt.Errorf("%w\n%s", err, log)
	}
	return c, nil
}

// script creates the cluster and runs it until its standard input ends. Nothing of it needs the disk to be safe.
const script = `
"$BIN/initdb" -D "$DIR/data" -U "$OWNER" -A trust -E UTF8 --locale=C.UTF-8 --locale-provider=icu --icu-locale=en-US -N >"$DIR/log" 2>&1 || exit 1
"$BIN/postgres" -D "$DIR/data" -p "$PORT" -k "" -c listen_addresses=127.0.0.1 -c max_connections=100 \
  -c shared_buffers=128MB -c fsync=off -c log_min_messages=warning >>"$DIR/log" 2>&1 </dev/null &
pid=$!
cat >/dev/null
(while kill -QUIT $pid 2>/dev/null; do sleep 0.2; done) & # a server that is just starting misses a signal
wait $pid
rm -rf "$DIR"
`

// serve starts the shell that creates and keeps the cluster.
func (c *Cluster) serve(dir string, who *syscall.Credential) error {
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BIN=" + c.Bin, "DIR=" + dir, "OWNER=" + owner, "PORT=" + strconv.Itoa(c.Port)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Setpgid: true} // an interrupt at the terminal is for the tests
	keep, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	c.keep = keep
	return cmd.Start()
}

// await waits until the server answers.
func (c *Cluster) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.URL)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// unprivileged chooses who runs the server, which refuses root, and gives him the folder. Nil: the caller himself.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, uid, gid)
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody")
}

// freePort is a loopback port that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
