package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
)

// Patience with a data folder that is taken by a process that does not answer: it starts or ends just now.
const (
	lockPatience = 15 * time.Second // a server may take ten seconds to end
	lockRetry    = 20 * time.Millisecond
)

// openOr opens the store, or calls join while another process has it. It goes on trying while the other one neither
// lets go nor answers.
func openOr(ctx context.Context, cfg *tabellion.Config, log *slog.Logger, join func() error) (*tabellion.Server, error) {
	give := time.Now().Add(lockPatience)
	for {
		s, err := tabellion.Open(ctx, cfg, log)
		if !errors.Is(err, tabellion.ErrInUse) {
			return s, refusedFolder(cfg, err)
		}
		joinErr := join()
		if !errors.Is(joinErr, control.ErrNobody) {
			return nil, joinErr
		}
		if time.Now().After(give) {
			return nil, refused(fmt.Errorf("%w; it does not answer", err))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockRetry):
		}
	}
}

// refusedFolder makes an error of opening an exit code 3 that names the folder.
func refusedFolder(cfg *tabellion.Config, err error) error {
	var locked *sqlite.LockedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &locked):
		return refused(inUse(locked))
	case errors.Is(err, syscall.ENOSPC), strings.Contains(err.Error(), "disk is full"): // the second are the words of SQLite
		return refused(fmt.Errorf("the disk of %s is full; free some of it and start again, nothing that was acknowledged is lost: %w", cfg.Data, err))
	case errors.Is(err, sqlite.ErrNewerFormat):
		return refused(fmt.Errorf("%w; use the newer program for %s", err, cfg.Data))
	}
	return modelsRefused(err)
}

// inUse says what to do about a folder that another process holds.
func inUse(l *sqlite.LockedError) error {
	if l.Address == "" {
		return fmt.Errorf("%w: a stdio session or a command holds it. End that one; or start the server first, and stdio sessions join it", l)
	}
	return fmt.Errorf("%w: a server. End it, or use it at that address", l)
}

// operate calls an operator operation: of this process when the folder is free, of its owner when it is not.
func operate(env *Env, cfg *tabellion.Config, operation string, in canonjson.Value) (canonjson.Value, error) {
	who := caller(cfg)
	var out canonjson.Value
	s, err := openOr(env.Ctx, cfg, logger(env, quiet(cfg)), func() (err error) {
		out, err = control.Run(env.Ctx, cfg.Data, who, operation, in)
		return missingRight(err, who, operation)
	})
	if err != nil || s == nil {
		return out, err
	}
	out, err = s.Call(env.Ctx, who.Subject, who.Roles, operation, in)
	return out, errors.Join(missingRight(err, who, operation), s.Close(env.Ctx))
}

// missingRight says to the operator, who reads the words of a command, which right its caller lacks, and where he says
// who that is. A client is told neither.
func missingRight(err error, who control.Who, operation string) error {
	if fault.CodeOf(err) != fault.PolicyDenied {
		return err
	}
	me, lerr := identity.Local(who.Subject, who.Roles)
	needs := tabellion.Needs(operation)
	if lerr != nil || needs.Capability == "" {
		return err
	}
	return failed("%s lacks the right %s on %s (%s). Commands act as auth.local of the configuration: give it the role admin there, or a role that policy.assignments gives this right",
		me.Subject, needs.Capability, needs.Path, fault.PolicyDenied)
}

// quiet is the configuration of a short command: it logs warnings only.
func quiet(cfg *tabellion.Config) *tabellion.Config {
	c := *cfg
	c.Log.Level = "warn"
	return &c
}

// needStore refuses a folder without a store, for commands that must not make one.
func needStore(cfg *tabellion.Config) error {
	if err := maintain.Place(cfg.Data); err != nil {
		return refused(err)
	}
	_, err := os.Stat(filepath.Join(cfg.Data, "tabellion.db"))
	if errors.Is(err, fs.ErrNotExist) {
		return refused(fmt.Errorf("there is no store in %s; the first `serve`, `stdio` or `keys create` makes it", cfg.Data))
	}
	if err != nil {
		return refused(fmt.Errorf("look for the store: %w", err))
	}
	return nil
}
