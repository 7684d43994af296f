package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
)

// smallStore is how many documents the smaller store has.
const smallStore = 1000

// measureLarge starts the program on a store of a thousand documents and on one of many, and reads from both.
func measureLarge(ctx context.Context, o *options) ([]Line, error) {
	var lines []Line
	for _, documents := range []int{smallStore, o.large} {
		more, err := measureStore(ctx, o, documents)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	half := len(lines) / 2
	for i := range half {
		if small, large := &lines[i], &lines[half+i]; small.P50 > 0 {
			large.Note = fmt.Sprintf("p50 %.2f of the smaller store's", large.P50/small.P50)
		}
	}
	return lines, nil
}

// measureStore fills a store and measures a server on it.
func measureStore(ctx context.Context, o *options, documents int) ([]Line, error) {
	name := fmt.Sprintf("store-%d", documents)
	data := filepath.Join(o.dir, name, "data")
	if err := fillStore(ctx, data, documents); err != nil {
		return nil, err
	}
	s, err := serve(ctx, o, name)
	if err != nil {
		return nil, err
	}
	defer s.Stop(15 * time.Second)
	start := Line{Time: now(), Table: "large", What: fmt.Sprintf("start to ready, %d documents", documents), Note: fmt.Sprintf("%d ms", s.started.Milliseconds())}
	c, err := dial(s.addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	get, err := timed(Line{Table: "large", What: fmt.Sprintf("get, %d documents", documents), Era: "stateless"}, 1, o.seconds, func(_, i int) error {
		return c.call(s, false, "", "persistence.get", fmt.Appendf(nil, `{"namespace":"bench","id":"f-%d-0"}`, i*7919%documents))
	})
	if err != nil {
		return nil, err
	}
	list, err := timed(Line{Table: "large", What: fmt.Sprintf("list of 50, %d documents", documents), Era: "stateless"}, 1, o.seconds, func(int, int) error {
		return c.call(s, false, "", "persistence.list", []byte(`{"namespace":"bench"}`))
	})
	return []Line{start, get, list}, err
}

// fillStore writes documents with 64 callers, so that they share their commits.
func fillStore(ctx context.Context, data string, documents int) error {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, data, sqlite.Options{})
	if err != nil {
		return err
	}
	server := inproc.New(failing{ctx}, inproc.Config{Store: store, Grants: scenario.DefaultGrants()})
	const callers = 64
	errs := make(chan error, callers)
	for n := range callers {
		go func() {
			for i := n; i < documents; i += callers {
				if err := callOK(ctx, server, "persistence.put", putArgs("f", i, 0)); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range callers {
		if e := <-errs; e != nil {
			err = e
		}
	}
	if e := store.Close(); err == nil {
		err = e
	}
	return err
}
