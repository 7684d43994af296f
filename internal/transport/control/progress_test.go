package control_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
)

// hang bounds what would wait for ever when the code under test is wrong.
const hang = 30 * time.Second

// done is the answer of an operation without one.
func done() gate.Reply { return gate.Reply{Result: &catalog.Result{JSON: []byte(`{}`)}} }

// TestProgress: who asks for progress gets it before the answer, and the answer after it.
func TestProgress(t *testing.T) {
	dir := t.TempDir()
	seen := make(chan struct{})
	owner(t, dir, func(_ context.Context, r gate.Request) gate.Reply {
		if r.Progress == nil {
			return gate.Reply{Fault: fault.New(fault.InvalidRequest, "no progress is asked for")}
		}
		r.Progress(3, 7, "documents")
		<-seen
		return done()
	}, nil)
	var told []string
	out, err := control.RunWatched(t.Context(), dir, me, "long", canonjson.Object(), func(done, total float64, note string) {
		if told = append(told, fmt.Sprint(done, " of ", total, " ", note)); len(told) == 1 {
			close(seen)
		}
	})
	if err != nil || out.String() != "{}" || len(told) != 1 || told[0] != "3 of 7 documents" {
		t.Errorf("got %v, %v; told %q", out, err, told)
	}
	if _, err := control.Run(t.Context(), dir, me, "long", canonjson.Object()); fault.CodeOf(err) != fault.InvalidRequest {
		t.Errorf("without progress: %v", err)
	}
}

// TestNoProgressUnasked: a peer that does not ask, as those before there was progress, gets one line: the answer.
func TestNoProgressUnasked(t *testing.T) {
	dir := t.TempDir()
	owner(t, dir, func(_ context.Context, r gate.Request) gate.Reply {
		if r.Progress != nil {
			t.Error("progress is wanted of an operation whose peer did not ask")
		}
		return done()
	}, nil)
	c, err := net.Dial("unix", filepath.Join(dir, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, `{"control":1,"do":"run","who":{"subject":"me"},"operation":"x","input":{}}`+"\n")
	text, err := io.ReadAll(c)
	if err != nil || string(text) != `{"control":1,"result":{}}`+"\n" {
		t.Errorf("got %q, %v", text, err)
	}
}

// TestCancel: a command that is interrupted cancels its operation in the owner, and the owner goes on.
func TestCancel(t *testing.T) {
	dir := t.TempDir()
	started, ended := make(chan struct{}), make(chan struct{})
	owner(t, dir, func(ctx context.Context, r gate.Request) gate.Reply {
		if r.Name == "short" {
			return done()
		}
		close(started)
		<-ctx.Done()
		close(ended)
		return gate.Reply{Fault: fault.New(fault.Cancelled, "cancelled")}
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	if _, err := control.Run(ctx, dir, me, "long", canonjson.Object()); !errors.Is(err, context.Canceled) {
		t.Errorf("the command: %v", err)
	}
	select {
	case <-ended:
	case <-time.After(hang):
		t.Fatal("the operation goes on without its command")
	}
	if _, err := control.Run(t.Context(), dir, me, "short", canonjson.Object()); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestCloseIsNoCancel: an owner that ends finishes what was asked for, and the command gets its answer.
func TestCloseIsNoCancel(t *testing.T) {
	dir := t.TempDir()
	started, finish := make(chan struct{}), make(chan struct{})
	l := owner(t, dir, func(ctx context.Context, _ gate.Request) gate.Reply {
		close(started)
		<-finish
		if ctx.Err() != nil {
			return gate.Reply{Fault: fault.New(fault.Cancelled, "cancelled")}
		}
		return done()
	}, nil)
	answered := make(chan error, 1)
	go func() {
		_, err := control.Run(t.Context(), dir, me, "long", canonjson.Object())
		answered <- err
	}()
	<-started
	closed := make(chan error, 1)
	go func() { closed <- l.Close(context.Background()) }()
	for end := time.Now().Add(hang); ; { // Close has begun when nobody is taken any more
		if _, err := control.Ask(t.Context(), dir); errors.Is(err, control.ErrNobody) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the owner does not close")
		}
	}
	close(finish)
	if err := <-answered; err != nil {
		t.Errorf("the command: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestOwnerEndsMidway: a command whose owner is gone after the first progress is told so, and not that nobody was there.
func TestOwnerEndsMidway(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "control.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		bufio.NewReader(c).ReadString('\n')
		io.WriteString(c, `{"control":1,"progress":{"done":1}}`+"\n")
		c.Close()
	}()
	_, err = control.RunWatched(t.Context(), dir, me, "long", canonjson.Object(), func(float64, float64, string) {})
	if err == nil || errors.Is(err, control.ErrNobody) || !strings.Contains(err.Error(), "ended before it answered") {
		t.Errorf("got %v", err)
	}
}
