package control_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
)

// owner is a listener whose gate and sessions are functions of the test.
func owner(t *testing.T, dir string, run func(context.Context, gate.Request) gate.Reply, stdio func(context.Context, *identity.Principal, catalog.Endpoint, io.Reader, io.Writer) error) *control.Listener {
	t.Helper()
	l, err := control.Listen(dir, control.Config{
		Run: run, Stdio: stdio, Log: slog.New(slog.DiscardHandler),
		About: func() control.About { return control.About{PID: 42, Address: "http://a", Version: "v"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.Background()) })
	return l
}

// me is the peer of the tests.
var me = control.Who{Subject: "me", Roles: []string{"admin"}}

// TestRun: a peer's call comes to the gate with the peer's principal, and answers and faults come back whole.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	owner(t, dir, func(_ context.Context, r gate.Request) gate.Reply {
		if r.Who.Subject != "local:me" || r.Who.Method != identity.MethodStdio || r.Surface != fault.Command || len(r.Who.Roles) != 1 {
			t.Errorf("the gate sees %+v as %+v", r, r.Who)
		}
		if r.Name == "fail" {
			return gate.Reply{Fault: fault.New(fault.Busy, "later").After(2 * time.Second)}
		}
		return gate.Reply{Result: &catalog.Result{JSON: canonjson.Object(canonjson.M("echo", r.In)).AppendJSON(nil)}}
	}, nil)
	in := canonjson.Object(canonjson.M("n", canonjson.RawString("12345678901234567890.5")), canonjson.M("s", canonjson.String("a\nb\u2028")))
	out, err := control.Run(t.Context(), dir, me, "do", in)
	if err != nil || out.Get("echo").String() != in.String() {
		t.Errorf("got %s, %v", out, err)
	}
	_, err = control.Run(t.Context(), dir, me, "fail", canonjson.Object())
	f := fault.As(err)
	if f == nil || f.Code != fault.Busy || f.Message != "later" || f.RetryAfter != 2*time.Second {
		t.Errorf("got %v", err)
	}
	if _, err := control.Run(t.Context(), dir, control.Who{Subject: "no such:kind"}, "do", in); fault.CodeOf(err) != fault.InvalidRequest {
		t.Errorf("a principal that cannot be: %v", err)
	}
	if about, err := control.Ask(t.Context(), dir); err != nil || about.PID != 42 || about.Address != "http://a" {
		t.Errorf("about: %+v, %v", about, err)
	}
}

// TestSocketIsClosedToOthers: the socket can be used by its user only.
func TestSocketIsClosedToOthers(t *testing.T) {
	dir := t.TempDir()
	owner(t, dir, nil, nil)
	info, err := os.Stat(filepath.Join(dir, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode(); mode.Perm() != 0o600 || mode.Type() != fs.ModeSocket {
		t.Errorf("mode is %v", mode)
	}
}

// TestNobody: without an owner, and beside the socket of a killed one, callers are told so, and a new owner listens.
func TestNobody(t *testing.T) {
	dir := t.TempDir()
	if _, err := control.Ask(t.Context(), dir); !errors.Is(err, control.ErrNobody) {
		t.Errorf("no socket: %v", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "control.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := control.Ask(t.Context(), dir); !errors.Is(err, control.ErrNobody) {
		t.Errorf("left socket: %v", err)
	}
	owner(t, dir, nil, nil)
	if _, err := control.Ask(t.Context(), dir); err != nil {
		t.Errorf("new owner: %v", err)
	}
}

// TestBrokenPeers: what is no request is refused or dropped, and the owner goes on.
func TestBrokenPeers(t *testing.T) {
	dir := t.TempDir()
	owner(t, dir, nil, nil)
	for name, tt := range map[string]struct{ send, want string }{
		"not JSON":        {"hello\n", "cannot be read"},
		"another version": {`{"control":2,"do":"about"}` + "\n", "another version"},
		"unknown":         {`{"control":1,"do":"dance"}` + "\n", "unknown"},
		"bad input":       {`{"control":1,"do":"run","who":{"subject":"me"},"operation":"x"}` + "\n", "not JSON"},
		"nothing":         {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("unix", filepath.Join(dir, "control.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, tt.send)
			c.(*net.UnixConn).CloseWrite()
			text, err := io.ReadAll(c)
			if err != nil || !strings.Contains(string(text), tt.want) {
				t.Errorf("got %q, %v", text, err)
			}
		})
	}
	if _, err := control.Ask(t.Context(), dir); err != nil {
		t.Errorf("after them: %v", err)
	}
}

// TestCloseFinishes: Close reads no more of a session, waits for what is under way, and removes the socket.
func TestCloseFinishes(t *testing.T) {
	dir := t.TempDir()
	working := make(chan struct{})
	l := owner(t, dir, nil, func(_ context.Context, _ *identity.Principal, e catalog.Endpoint, in io.Reader, out io.Writer) error {
		io.WriteString(out, "hello "+string(e)+"\n")
		close(working)
		io.Copy(io.Discard, in) // until the input ends
		io.WriteString(out, "last answer\n")
		return nil
	})
	s, about, err := control.Join(t.Context(), dir, me, catalog.All)
	if err != nil || about.PID != 42 {
		t.Fatalf("join: %+v, %v", about, err)
	}
	defer s.Close()
	<-working
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	text, err := io.ReadAll(s)
	if string(text) != "hello all\nlast answer\n" || err != nil {
		t.Errorf("the session saw %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "control.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestCloseCuts: a session that does not end is cut when the time is over.
func TestCloseCuts(t *testing.T) {
	dir := t.TempDir()
	started := make(chan struct{})
	l := owner(t, dir, nil, func(ctx context.Context, _ *identity.Principal, _ catalog.Endpoint, _ io.Reader, _ io.Writer) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	})
	s, _, err := control.Join(t.Context(), dir, me, catalog.All)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

// TestLongFolder: a folder whose path is too long for a socket has one elsewhere, in a folder closed to others.
func TestLongFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	owner(t, dir, nil, nil)
	if about, err := control.Ask(t.Context(), dir); err != nil || about.PID != 42 {
		t.Errorf("got %+v, %v", about, err)
	}
	note, err := os.ReadFile(filepath.Join(dir, "control.path"))
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Dir(strings.TrimSpace(string(note)))
	t.Cleanup(func() { os.RemoveAll(outside) })
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder outside: %v, %v", info, err)
	}
	// A folder that is open to others is not trusted.
	if err := os.Chmod(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Ask(t.Context(), dir); err == nil || errors.Is(err, control.ErrNobody) {
		t.Errorf("an open folder: %v", err)
	}
}
