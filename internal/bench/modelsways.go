package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
)

// overHTTP makes calls of tools on one kept connection, in the stateless era.
func (w *modelWorld) overHTTP(ctx context.Context, seconds float64, calls []call) ([]byte, []time.Duration, time.Duration, error) {
	first, err := w.answered(ctx, calls[0])
	if err != nil {
		return nil, nil, 0, err
	}
	conn, err := dial(w.server.addr)
	if err != nil {
		return nil, nil, 0, err
	}
	defer conn.Close()
	_, took, elapsed, err := serially(func(_ context.Context, c call) ([]byte, error) {
		return nil, conn.call(w.server, false, "", c.Tool, c.Args)
	})(ctx, seconds, calls)
	return first, took, elapsed, err
}

// answered is the text that a tool answers with.
func (w *modelWorld) answered(ctx context.Context, c call) ([]byte, error) {
	client := rawmcp.New("http://"+w.server.addr+"/mcp", w.server.key, false, 1)
	defer client.Close()
	a, err := client.Call(ctx, c.Tool, c.Args)
	switch {
	case err != nil:
		return nil, err
	case a.RPC != nil:
		return nil, errors.New(a.RPC.Message)
	case a.IsError:
		return nil, errors.New(a.Text)
	}
	return []byte(a.Text), nil
}

// reference is the reference host in a process of its own.
type reference struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// installReference installs the reference host, and gives its folder; "" where it cannot be had here, which is printed.
func (o *modelOptions) installReference(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, filepath.Join(o.references, "install.sh"))
	var words strings.Builder
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		fmt.Printf("the reference host is not measured: %v\n%s\n", err, words.String())
		return ""
	}
	return strings.TrimSpace(string(out))
}

// refer starts the reference host on a copy of the world's file.
func (o *modelOptions) refer(ctx context.Context, w *modelWorld, folder string) error {
	path := strings.TrimPrefix(w.read, "sqlite:")
	file := strings.TrimSuffix(path, ".db") + "-reference.db"
	if err := copyFile(path, file); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "node", filepath.Join(o.references, "reference.js"), folder, file, o.definitions())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := &reference{cmd, in, bufio.NewReaderSize(out, 1<<20)}
	w.closers = append(w.closers, r.close)
	var ready struct {
		Node, SQLite string
	}
	if err := r.answer(&ready); err != nil {
		return fmt.Errorf("the reference host: %w", err)
	}
	fmt.Printf("reference host: nodejs-store 2.0.4 on node %s, SQLite %s\n", ready.Node, ready.SQLite)
	w.reference = r
	return nil
}

// copyFile copies a file.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// answer reads one line of the host.
func (r *reference) answer(into any) error {
	line, err := r.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}

// close ends the host.
func (r *reference) close() error {
	return errors.Join(r.in.Close(), r.cmd.Wait())
}

// measure has the host measure calls itself.
func (r *reference) measure(_ context.Context, seconds float64, calls []call) ([]byte, []time.Duration, time.Duration, error) {
	asked := make([]canonjson.Value, len(calls))
	for i, c := range calls {
		asked[i] = c.forReference()
	}
	request := canonjson.Object(canonjson.M("seconds", canonjson.Float(seconds)), canonjson.M("calls", canonjson.Array(asked...)))
	if _, err := r.in.Write(append(request.AppendJSON(nil), '\n')); err != nil {
		return nil, nil, 0, err
	}
	var told struct {
		Error   string
		Times   []float64 // ms
		Elapsed float64   // s
		First   json.RawMessage
	}
	if err := r.answer(&told); err != nil {
		return nil, nil, 0, err
	}
	if told.Error != "" {
		return nil, nil, 0, errors.New(told.Error)
	}
	took := make([]time.Duration, len(told.Times))
	for i, ms := range told.Times {
		took[i] = time.Duration(ms * float64(time.Millisecond))
	}
	return told.First, took, time.Duration(told.Elapsed * float64(time.Second)), nil
}

// forReference is a call as reference.js takes it.
func (c *call) forReference() canonjson.Value {
	text := func(s string) canonjson.Value {
		if s == "" {
			return canonjson.Value{}
		}
		return canonjson.String(s)
	}
	return canonjson.Object(
		canonjson.M("call", text(c.Kind)), canonjson.M("gql", text(c.GQL)), canonjson.M("params", c.Params),
		canonjson.M("model", text(c.Model)), canonjson.M("condition", c.Condition), canonjson.M("data", c.Data))
}
