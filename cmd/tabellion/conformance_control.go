package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Bounds of the talk with a control command. controlPatience is for an answer, controlGrace for the end after standard
// input was closed; then its process group is killed.
const (
	controlPatience = time.Minute
	controlGrace    = 15 * time.Second
)

// controlAnswer is a line of a control command.
type controlAnswer struct {
	URL      string            `json:"url"`
	Transfer string            `json:"transfer"`
	Tokens   map[string]string `json:"tokens"`
	Error    string            `json:"error"`
}

// controlProcess is a running control command, in a process group of its own.
type controlProcess struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  *lineSplitter
	stderr *lastBytes
	grace  time.Duration // for its end
	done   chan struct{} // closed when it has ended; then err says how
	err    error
}

// startControl starts the command.
func startControl(env *Env, command string) (*controlProcess, error) {
	p := &controlProcess{
		cmd: exec.Command("sh", "-c", command), lines: &lineSplitter{out: make(chan string, 16)},
		stderr: &lastBytes{}, grace: controlGrace, done: make(chan struct{}),
	}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env.Environ, p.lines, p.stderr
	p.cmd.WaitDelay = time.Second // a server that it left behind may hold the pipes
	ownGroup(p.cmd)
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the control command: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// ask sends a line and waits for the answer. An answer with an error is a refusal.
func (p *controlProcess) ask(ctx context.Context, question any) (controlAnswer, error) {
	line, err := json.Marshal(question)
	if err != nil {
		return controlAnswer{}, err
	}
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		select { // why it does not read may be that it has ended
		case <-p.done:
		case <-time.After(p.grace):
		}
		return controlAnswer{}, p.ended(err)
	}
	ctx, cancel := context.WithTimeout(ctx, controlPatience)
	defer cancel()
	select {
	case text := <-p.lines.out:
		return p.parse(text)
	case <-p.done:
		select {
		case text := <-p.lines.out: // it answered before it ended
			return p.parse(text)
		default:
			return controlAnswer{}, p.ended(nil)
		}
	case <-ctx.Done():
		return controlAnswer{}, p.withStderr(fmt.Errorf("the control command did not answer within %v: %w", controlPatience, ctx.Err()))
	}
}

// parse reads an answer.
func (p *controlProcess) parse(text string) (controlAnswer, error) {
	var a controlAnswer
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, p.withStderr(fmt.Errorf("the control command's answer is not the JSON object that --help describes: %w: %.200s", err, text))
	}
	if a.Error != "" {
		return a, &refusal{a.Error}
	}
	if a.URL == "" {
		return a, p.withStderr(fmt.Errorf("the control command's answer has no url: %.200s", text))
	}
	return a, nil
}

// ended is the error of a command that has ended too early.
func (p *controlProcess) ended(cause error) error {
	select {
	case <-p.done:
		cause = p.err
	default:
	}
	if cause == nil {
		cause = errors.New("exit status 0")
	}
	return p.withStderr(fmt.Errorf("the control command ended before it answered: %w", cause))
}

// withStderr adds what the command said last.
func (p *controlProcess) withStderr(err error) error {
	if text := strings.TrimSpace(p.stderr.String()); text != "" {
		return fmt.Errorf("%w\nits standard error ends with:\n%s", err, text)
	}
	return err
}

// end closes standard input and waits. What does not end within the grace is killed with its whole group, and told.
func (p *controlProcess) end() error {
	p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(p.grace):
		killGroup(p.cmd)
		<-p.done
		return p.withStderr(fmt.Errorf("the control command did not end within %v after its standard input was closed, and was killed", p.grace))
	}
	if p.err != nil {
		return p.withStderr(fmt.Errorf("the control command ended with: %w", p.err))
	}
	return nil
}

// lineSplitter is a writer that gives whole lines to a channel. Lines that nobody waits for are dropped when the
// channel is full, so that a talkative command cannot block.
type lineSplitter struct {
	out  chan string
	rest []byte
}

// maxLine bounds a line, in bytes.
const maxLine = 1 << 20

// Write takes everything.
func (l *lineSplitter) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			break
		}
		select {
		case l.out <- string(l.rest[:i]):
		default:
		}
		l.rest = l.rest[i+1:]
	}
	if len(l.rest) > maxLine {
		return 0, fmt.Errorf("a line of more than %d bytes", maxLine)
	}
	return len(b), nil
}

// lastBytes keeps the last bytes that were written to it. It is safe for concurrent use.
type lastBytes struct {
	mu  sync.Mutex
	buf []byte
}

// maxStderr is how much is kept, in bytes.
const maxStderr = 8 << 10

// Write takes everything.
func (l *lastBytes) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	if over := len(l.buf) - maxStderr; over > 0 {
		l.buf = append([]byte(nil), l.buf[over:]...)
	}
	return len(b), nil
}

// String is what was kept.
func (l *lastBytes) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}
