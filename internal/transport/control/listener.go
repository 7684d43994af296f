package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
)

// firstLineWithin is how long a peer may take for its first line.
const firstLineWithin = 5 * time.Second

// acceptAgain is the pause after a peer could not be taken.
const acceptAgain = 100 * time.Millisecond

// maxPeers bounds the connections at once; further ones wait in the kernel's queue.
const maxPeers = 256

// Listener answers peers. Close it before the store.
type Listener struct {
	cfg    Config
	socket *net.UnixListener
	place  spot
	seats  chan struct{}
	peers  sync.WaitGroup
	ctx    context.Context // of everything that peers run; ends when Close gave up waiting
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	conns  map[*net.UnixConn]bool
}

// Listen begins to answer peers of the data folder dir, whose lock the caller holds.
func Listen(dir string, cfg Config) (*Listener, error) {
	at, err := prepare(dir)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: at.path, Net: "unix"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on the control socket: %w", err), at.clear())
	}
	// The folder is closed to others; the mode is a second wall.
	if err := os.Chmod(at.path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect the control socket: %w", err), socket.Close(), at.clear())
	}
	l := &Listener{cfg: cfg, socket: socket, place: at, seats: make(chan struct{}, maxPeers), conns: map[*net.UnixConn]bool{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.peers.Add(1)
	go l.accept()
	return l, nil
}

// accept takes peers until the socket is closed.
func (l *Listener) accept() {
	defer l.peers.Done()
	for {
		l.seats <- struct{}{}
		c, err := l.socket.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no file descriptor left, for example: it passes
			l.cfg.Log.Warn("a peer of the control socket could not be taken", "error", err)
			<-l.seats
			time.Sleep(acceptAgain)
			continue
		}
		if !l.enter(c) {
			c.Close()
			return
		}
		l.peers.Add(1)
		go func() {
			defer l.peers.Done()
			defer func() { <-l.seats }()
			defer l.leave(c)
			l.serve(c)
		}()
	}
}

// enter notes a connection; false when the listener is closed.
func (l *Listener) enter(c *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.conns[c] = true
	return true
}

// leave closes a connection.
func (l *Listener) leave(c *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	c.Close()
}

// serve answers one peer.
func (l *Listener) serve(c *net.UnixConn) {
	if err := checkPeer(c); err != nil {
		l.cfg.Log.Warn("a peer of the control socket was refused", "error", err)
		return
	}
	c.SetReadDeadline(time.Now().Add(firstLineWithin))
	in := bufio.NewReaderSize(c, 64<<10)
	line, err := readLine(in, maxLine)
	if err != nil {
		return // a peer that says nothing is a look whether somebody is there
	}
	var req request
	if err := json.Unmarshal(line, &req); err != nil {
		l.refuse(c, fault.New(fault.InvalidRequest, "the control request cannot be read"))
		return
	}
	if req.Control != version {
		l.refuse(c, fault.New(fault.UnsupportedFormat, "the process that holds the data folder is of another version of tabellion; end it, or use its version"))
		return
	}
	c.SetReadDeadline(time.Time{})
	switch req.Do {
	case doAbout:
		about := l.cfg.About()
		l.answer(c, answer{Owner: &about})
	case doRun:
		l.run(c, in, &req)
	case doStdio:
		l.stdio(c, in, &req)
	default:
		l.refuse(c, fault.New(fault.InvalidRequest, "the control request asks for something unknown"))
	}
}

// answer writes the line back.
func (l *Listener) answer(c *net.UnixConn, a answer) bool {
	a.Control = version
	text, err := json.Marshal(a)
	if err == nil {
		_, err = c.Write(append(text, '\n'))
	}
	if err != nil {
		l.cfg.Log.Debug("a peer of the control socket went away", "error", err)
	}
	return err == nil
}

// refuse answers with a fault.
func (l *Listener) refuse(c *net.UnixConn, f *fault.Error) {
	l.answer(c, answer{Fault: &wireFault{Code: f.Code, Message: f.Message, RetryAfterMS: f.RetryAfter.Milliseconds()}})
}

// run calls one operation.
func (l *Listener) run(c *net.UnixConn, in *bufio.Reader, req *request) {
	who, err := identity.Local(req.Who.Subject, req.Who.Roles)
	if err != nil {
		l.refuse(c, fault.New(fault.InvalidRequest, "%s", err))
		return
	}
	input, err := canonjson.ParseStrict(req.Input, gate.FrameLimits())
	if err != nil {
		l.refuse(c, fault.New(fault.InvalidRequest, "the input is not JSON: %s", err))
		return
	}
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	go l.cancelWithPeer(in, cancel)
	call := gate.Request{Who: who, Surface: fault.Command, Name: req.Operation, In: input}
	tell := func() {}
	if req.Progress {
		call.Progress, tell = l.progress(c)
	}
	reply := l.cfg.Run(ctx, call)
	tell()
	switch {
	case reply.Fault != nil:
		l.refuse(c, reply.Fault)
	case reply.Result == nil:
		l.refuse(c, fault.New(fault.UnsupportedFormat, "the operation asks questions, which a command cannot answer"))
	default:
		l.answer(c, answer{Result: reply.Result.JSON})
	}
}

// cancelWithPeer calls cancel when the peer has closed the connection, as a command does that is interrupted. It ends
// with the connection. Close stops the reading too; what is under way is finished then.
func (l *Listener) cancelWithPeer(in *bufio.Reader, cancel context.CancelFunc) {
	if _, err := in.WriteTo(io.Discard); err != nil {
		l.cfg.Log.Debug("a peer of the control socket went away", "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		cancel()
	}
}

// progress gives what notes the progress of an operation, and what ends the lines about it.
func (l *Listener) progress(c *net.UnixConn) (note func(done, total float64, note string), end func()) {
	p := &pacer{write: func(w wireProgress) bool { return l.answer(c, answer{Progress: &w}) }}
	tick := time.NewTicker(progressEvery)
	stop := p.start(tick.C)
	return p.note, func() {
		tick.Stop()
		stop()
	}
}

// stdio serves an MCP session.
func (l *Listener) stdio(c *net.UnixConn, in *bufio.Reader, req *request) {
	who, err := identity.Local(req.Who.Subject, req.Who.Roles)
	if err != nil {
		l.refuse(c, fault.New(fault.InvalidRequest, "%s", err))
		return
	}
	about := l.cfg.About()
	if !l.answer(c, answer{Owner: &about}) {
		return
	}
	l.cfg.Log.Info("a second stdio session joined", "subject", who.Subject)
	if err := l.cfg.Stdio(l.ctx, who, req.Endpoint, in, c); err != nil {
		l.cfg.Log.Debug("a joined stdio session ended", "error", err)
	}
}

// Close takes no more peers and reads no more from those that are there. What they asked for is finished until ctx
// ends, and cancelled then.
func (l *Listener) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	err := errors.Join(l.socket.Close(), l.place.clear()) // the first removes the socket's file
	for c := range l.conns {
		c.CloseRead()
	}
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		l.peers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	l.cancel()
	l.cut()
	<-done
	return err
}

// cut closes the connections that are left.
func (l *Listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}
