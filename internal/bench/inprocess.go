package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
)

// payload is 1 KiB of content that does not repeat itself within a call.
var payload = strings.Repeat("0123456789abcdef", 63)

// putArgs is the text of a put of about 1 KiB to a fresh document.
func putArgs(run string, worker, i int) []byte {
	return fmt.Appendf(nil, `{"namespace":"bench","id":"%s-%d-%d","kind":"note","schemaVersion":"1","payload":{"body":%q},"references":[],"expectedRevision":0,"idempotencyKey":"%s-%d-%d"}`,
		run, worker, i, payload, run, worker, i)
}

// failing ends the program where a test would end.
type failing struct{ ctx context.Context }

// Helper does nothing.
func (failing) Helper() {}

// Fatal panics with what went wrong.
func (failing) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Context is the run's.
func (f failing) Context() context.Context { return f.ctx }

// measureInProcess measures puts, gets and lists without a network, and the floor beside them.
func measureInProcess(ctx context.Context, o *options) ([]Line, error) {
	dir := filepath.Join(o.dir, "inprocess")
	store, err := sqlite.Open(ctx, dir, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	signer, err := audit.OpenSigner(dir, rand.Reader)
	if err != nil {
		return nil, err
	}
	recorder, err := audit.NewRecorder(audit.RecorderConfig{Log: store, Dir: dir, Signer: signer, Clock: clock.System{}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	defer recorder.Close(ctx)
	server := inproc.New(failing{ctx}, inproc.Config{Store: store, Grants: scenario.DefaultGrants(), Auditor: recorder})
	var lines []Line
	for _, n := range o.clients {
		floor, err := measureFloor(o, n)
		if err != nil {
			return nil, err
		}
		put, err := timed(Line{Table: "in process", What: "put 1 KiB"}, n, o.seconds, func(worker, i int) error {
			return callOK(ctx, server, "persistence.put", putArgs(fmt.Sprintf("p%d", n), worker, i))
		})
		if err != nil {
			return nil, err
		}
		put.Note = fmt.Sprintf("%.2f of the floor", put.PerSec/floor.PerSec)
		lines = append(lines, floor, put)
	}
	for _, n := range o.clients {
		get, err := timed(Line{Table: "in process", What: "get 1 KiB"}, n, o.seconds/2, func(worker, i int) error {
			return callOK(ctx, server, "persistence.get", fmt.Appendf(nil, `{"namespace":"bench","id":"p%d-0-%d"}`, o.clients[0], i%50))
		})
		if err != nil {
			return nil, err
		}
		list, err := timed(Line{Table: "in process", What: "list of 50"}, n, o.seconds/2, func(int, int) error {
			return callOK(ctx, server, "persistence.list", []byte(`{"namespace":"bench"}`))
		})
		if err != nil {
			return nil, err
		}
		lines = append(lines, get, list)
	}
	return lines, nil
}

// callOK runs a call that must succeed.
func callOK(ctx context.Context, s *inproc.Server, tool string, args []byte) error {
	reply, err := s.Do(ctx, "alice", tool, args)
	switch {
	case err != nil:
		return err
	case reply.Fault != nil:
		return reply.Fault
	}
	return nil
}

// measureFloor appends rows of the same size to one file and syncs: one sync for all that wait, as a group commit
// could do at best with no database at all.
func measureFloor(o *options, n int) (Line, error) {
	f, err := os.CreateTemp(o.dir, "floor-")
	if err != nil {
		return Line{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	log := &appender{f: f}
	log.cond = sync.NewCond(&log.mu)
	row := []byte(strings.Repeat("x", 1500)) // payload, ids, audit row
	return timed(Line{Table: "in process", What: "floor: append+fsync"}, n, o.seconds/2, func(int, int) error {
		return log.append(row)
	})
}

// appender is a log with group sync.
type appender struct {
	f       *os.File
	mu      sync.Mutex
	cond    *sync.Cond
	pending []byte
	written int64 // rows handed in
	synced  int64 // rows that are durable
	syncing bool
	err     error
}

// append returns when row is durable.
func (a *appender) append(row []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = append(a.pending, row...)
	a.written++
	mine := a.written
	for a.synced < mine && a.err == nil {
		if a.syncing {
			a.cond.Wait()
			continue
		}
		a.syncing = true
		batch, upTo := a.pending, a.written
		a.pending = nil
		a.mu.Unlock()
		_, err := a.f.Write(batch)
		if err == nil {
			err = a.f.Sync()
		}
		a.mu.Lock()
		a.syncing, a.err = false, err
		if err == nil {
			a.synced = upTo
		}
		a.cond.Broadcast()
	}
	return a.err
}
