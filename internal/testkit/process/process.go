// Package process starts the real binary for tests, waits until it answers, and kills it.
package process

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// build compiles the program once a test binary.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tabellion-bin-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "tabellion")
	cmd := exec.Command("go", "build", "-o", bin, "github.com/tabellion-mcp/tabellion/cmd/tabellion")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
})

// Binary is the path of the compiled program. TABELLION_BINARY names one that exists.
func Binary(tb testing.TB) string {
	tb.Helper()
	if bin := os.Getenv("TABELLION_BINARY"); bin != "" {
		return bin
	}
	bin, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}

// FreePort is a loopback port that was free a moment ago.
func FreePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Spec says how a server is started.
type Spec struct {
	Binary string
	Args   []string
	Env    []string // added to the environment
	Prefix []string // a command in front, such as strace with its flags
	Ready  string   // URL that answers 200 when the server is ready
}

// Server is a running process group.
type Server struct {
	cmd    *exec.Cmd
	stderr *tail
	done   chan struct{}
	err    error
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write keeps p and drops what is older than 64 KiB.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if over := t.buf.Len() - 64<<10; over > 0 {
		t.buf.Next(over)
	}
	return len(p), nil
}

// String is what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// Start starts the process in a group of its own. It does not wait.
func Start(s Spec) (*Server, error) {
	args := append(append([]string{}, s.Prefix...), s.Binary)
	args = append(args, s.Args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	srv := &Server{cmd: cmd, stderr: &tail{}, done: make(chan struct{})}
	cmd.Stderr = srv.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		srv.err = cmd.Wait()
		close(srv.done)
	}()
	return srv, nil
}

// readyClient asks for readiness with a short patience.
var readyClient = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// WaitReady waits until url answers 200, the process ends, or ctx does.
func (s *Server) WaitReady(ctx context.Context, url string) error {
	for {
		if res, err := readyClient.Get(url); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.done:
			return fmt.Errorf("the process ended before it was ready: %v\n%s", s.err, s.stderr)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w\n%s", ctx.Err(), s.stderr)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Kill sends SIGKILL to the process group and waits for its end.
func (s *Server) Kill() {
	syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.done
}

// Stop sends SIGTERM and waits; after the patience it kills and tells so.
func (s *Server) Stop(patience time.Duration) error {
	syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-s.done:
		return s.err
	case <-time.After(patience):
		s.Kill()
		return fmt.Errorf("the process did not stop within %s\n%s", patience, s.stderr)
	}
}

// Done is closed when the process has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// ExitCode is the exit code of a process that has ended; -1 when a signal ended it.
func (s *Server) ExitCode() int {
	<-s.done
	return s.cmd.ProcessState.ExitCode()
}

// Stderr is the end of what the process wrote to stderr.
func (s *Server) Stderr() string { return s.stderr.String() }

// PID is the process id of the started command.
func (s *Server) PID() int { return s.cmd.Process.Pid }
