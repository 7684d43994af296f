package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
)

// ErrNobody: no process answers on the control socket of the folder.
var ErrNobody = errors.New("no process answers for the data folder")

// ErrSilent: a process listens on the control socket of the folder and does not answer: it was stopped, or it hangs.
var ErrSilent = errors.New("does not answer")

// answerWithin bounds the wait for an owner's word on who it is, or that it takes a session: it has both at hand. An
// operation may take as long as it needs.
const answerWithin = 10 * time.Second

// dialWithin bounds the wait for an owner that is there and does not take the connection.
const dialWithin = 5 * time.Second

// Progress is told how far an operation of the owner is: total is 0 when it is not known, note says what is being done.
type Progress func(done, total float64, note string)

// dialSoon is dial for a request that the owner answers at once. It gives up with ErrSilent.
func dialSoon(ctx context.Context, dir string, req request, within time.Duration) (*net.UnixConn, *bufio.Reader, *answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, ErrSilent)
	defer cancel()
	return dial(ctx, dir, req, nil)
}

// dial connects to the owner and exchanges the first lines. progress may be nil.
func dial(ctx context.Context, dir string, req request, progress Progress) (*net.UnixConn, *bufio.Reader, *answer, error) {
	path, err := find(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	d := net.Dialer{Timeout: dialWithin}
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", ErrNobody, err)
	}
	c := conn.(*net.UnixConn)
	in, a, err := greet(ctx, c, req, progress)
	if errors.Is(err, ErrSilent) {
		err = silent(dir, peerPID(c))
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, c.Close())
	}
	return c, in, a, nil
}

// silent says to a person which process does not answer, and what to do. pid 0 is not known.
func silent(dir string, pid int) error {
	who := "a process"
	if pid > 0 {
		who = fmt.Sprintf("process %d", pid)
	}
	return fmt.Errorf("%s has the folder %s and %w: it was stopped, or it hangs. Let it go on (kill -CONT), or end it", who, dir, ErrSilent)
}

// greet sends the first line and reads the answer. ctx ends the wait.
func greet(ctx context.Context, c *net.UnixConn, req request, progress Progress) (*bufio.Reader, *answer, error) {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := checkPeer(c); err != nil {
		return nil, nil, fmt.Errorf("the control socket is not ours: %w", err)
	}
	req.Control, req.Progress = version, progress != nil
	text, err := json.Marshal(req)
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.Write(append(text, '\n')); err != nil {
		return nil, nil, ended(ctx, fmt.Errorf("%w: %w", ErrNobody, err))
	}
	in := bufio.NewReaderSize(c, 64<<10)
	a, err := await(ctx, in, progress)
	if err != nil {
		return nil, nil, err
	}
	if f := a.Fault; f != nil {
		return nil, nil, fault.New(f.Code, "%s", f.Message).After(time.Duration(f.RetryAfterMS) * time.Millisecond)
	}
	return in, a, nil
}

// ended is err, or why ctx has ended: ErrSilent, or its own error.
func ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case errors.Is(context.Cause(ctx), ErrSilent):
		return ErrSilent
	}
	return ctx.Err()
}

// await reads lines up to the answer, and hands on the progress.
func await(ctx context.Context, in *bufio.Reader, progress Progress) (*answer, error) {
	for begun := false; ; begun = true {
		line, err := readLine(in, maxLine)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, ended(ctx, err)
		case err != nil && begun: // it took the request, so that asking anew is not the same
			return nil, fmt.Errorf("the process that holds the data folder ended before it answered: %w", err)
		case err != nil:
			return nil, fmt.Errorf("%w: it ended before it answered: %w", ErrNobody, err)
		}
		var a answer
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, fmt.Errorf("read the owner's answer: %w", err)
		}
		if a.Progress == nil {
			return &a, nil
		}
		if progress != nil {
			progress(a.Progress.Done, a.Progress.Total, a.Progress.Note)
		}
	}
}

// Ask tells who owns dir. errors.Is(err, ErrNobody) when nobody is there, and ErrSilent when somebody is who does not
// answer.
func Ask(ctx context.Context, dir string) (About, error) { return ask(ctx, dir, answerWithin) }

// ask is Ask with its own patience.
func ask(ctx context.Context, dir string, within time.Duration) (About, error) {
	c, _, a, err := dialSoon(ctx, dir, request{Do: doAbout}, within)
	if err != nil {
		return About{}, err
	}
	defer c.Close()
	if a.Owner == nil {
		return About{}, errors.New("the owner of the data folder does not say who it is")
	}
	return *a.Owner, nil
}

// Run calls an operation of the owner of dir. Its error is a *fault.Error when the owner refused or failed, and those of
// Ask when nothing was asked for. When ctx ends, the owner is told to cancel.
func Run(ctx context.Context, dir string, who Who, operation string, in canonjson.Value) (canonjson.Value, error) {
	return RunWatched(ctx, dir, who, operation, in, nil)
}

// RunWatched is Run for an operation that takes long: progress, which may be nil, is called until Run returns, at most
// ten times a second.
func RunWatched(ctx context.Context, dir string, who Who, operation string, in canonjson.Value, progress Progress) (canonjson.Value, error) {
	if _, err := Ask(ctx, dir); err != nil { // an operation may take long: this tells a silent owner from a busy one
		return canonjson.Value{}, err
	}
	c, _, a, err := dial(ctx, dir, request{Do: doRun, Who: who, Operation: operation, Input: in.AppendJSON(nil)}, progress)
	if err != nil {
		return canonjson.Value{}, err
	}
	defer c.Close()
	return canonjson.ParseStrict(a.Result, gate.FrameLimits())
}

// Join begins an MCP session with the owner of dir. Its errors are those of Ask.
func Join(ctx context.Context, dir string, who Who, e catalog.Endpoint) (Session, About, error) {
	c, in, a, err := dialSoon(ctx, dir, request{Do: doStdio, Who: who, Endpoint: e}, answerWithin)
	if err != nil {
		return nil, About{}, err
	}
	if a.Owner == nil {
		return nil, About{}, errors.Join(errors.New("the owner of the data folder does not say who it is"), c.Close())
	}
	return &joined{UnixConn: c, in: in}, *a.Owner, nil
}

// Session is one MCP session behind a relay: with the owner of the folder, or in this process.
type Session interface {
	io.ReadWriteCloser
	// CloseWrite tells that no more messages come; answers may still be read.
	CloseWrite() error
}

// joined is a session with the owner. Reads go through the reader that took the first line.
type joined struct {
	*net.UnixConn
	in *bufio.Reader
}

// Read reads behind the first line.
func (j *joined) Read(p []byte) (int, error) { return j.in.Read(p) }

// inside is a session in this process, over pipes.
type inside struct {
	*io.PipeReader
	*io.PipeWriter
	done chan struct{}
}

// Inside begins a session that serve answers in this process. done, when not nil, is called after serve returned.
func Inside(serve func(in io.Reader, out io.Writer) error, done func(error)) Session {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s := &inside{PipeReader: outR, PipeWriter: inW, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		err := serve(inR, outW)
		inR.CloseWithError(io.ErrClosedPipe)
		outW.Close()
		if done != nil {
			done(err)
		}
	}()
	return s
}

// CloseWrite ends the input.
func (s *inside) CloseWrite() error { return s.PipeWriter.Close() }

// Close ends both directions and waits for serve.
func (s *inside) Close() error {
	err := errors.Join(s.PipeWriter.Close(), s.PipeReader.Close())
	<-s.done
	return err
}
