package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
)

// beside works on a data folder: alone while nobody has it, by ask when a process has. It goes on trying while that one
// neither lets go nor answers.
func beside(env *Env, alone, ask func() error) error {
	give := time.Now().Add(lockPatience)
	for {
		err := alone()
		if !errors.Is(err, tabellion.ErrInUse) {
			return err
		}
		askErr := ask()
		if !errors.Is(askErr, control.ErrNobody) {
			return askErr
		}
		if time.Now().After(give) {
			return fmt.Errorf("%w; it does not answer", err)
		}
		select {
		case <-env.Ctx.Done():
			return env.Ctx.Err()
		case <-time.After(lockRetry):
		}
	}
}

// askOwner calls an operator operation of the process that has the folder, and shows its progress.
func askOwner(env *Env, cfg *tabellion.Config, line *progressLine, operation string, in ...canonjson.Member) (canonjson.Value, error) {
	who := caller(cfg)
	out, err := control.RunWatched(env.Ctx, cfg.Data, who, operation, canonjson.Object(in...), line.watch)
	return out, missingRight(err, who, operation)
}

// folderError gives an error of work on a folder its exit code: 1 for damage, 3 for a folder that cannot be had or read,
// otherwise 2. left says what an interrupt leaves.
func folderError(cfg *tabellion.Config, doing, left string, err error) error {
	var locked *sqlite.LockedError
	var damaged *maintain.DamagedError
	var known *exitError
	f := fault.As(err)
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, context.Canceled):
		return interrupted("%s was interrupted; %s", doing, left)
	case errors.As(err, &damaged), f != nil && f.Code == fault.IntegrityError:
		return &exitError{exitFindings, errors.New(plainWords(err))}
	case errors.As(err, &locked):
		return refused(fmt.Errorf("%w; %s needs the folder for itself: end that process first", locked, doing))
	case errors.Is(err, sqlite.ErrNewerFormat):
		return refused(fmt.Errorf("%w; use the newer program for %s", err, cfg.Data))
	case errors.Is(err, sqlite.ErrUnreadable):
		return refused(fmt.Errorf("%w; copy the folder %s as it is, and restore the newest whole backup into another one: tabellion restore", err, cfg.Data))
	case f == nil && errors.Is(err, syscall.EROFS):
		return refused(fmt.Errorf("%w; for this the folder must be on a disk that can be written: copy %s to one, and work on the copy", err, cfg.Data))
	case f == nil && errors.Is(err, maintain.ErrUnavailable):
		return refused(err)
	case f != nil && f.Code == fault.Internal:
		return failed("%s", plainWords(err))
	}
	return err
}

// plainWords are an error's words without the code of a fault: beside findings it says nothing to a person.
func plainWords(err error) string {
	if f := fault.As(err); f != nil {
		return f.Message
	}
	return err.Error()
}

// unreadable makes every further error of looking at a folder one of exit code 3.
func unreadable(err error) error {
	var known *exitError
	if err == nil || errors.As(err, &known) || fault.As(err) != nil {
		return err
	}
	return refused(err)
}

// loadStore reads the configuration and refuses a folder without a store.
func (p *place) loadStore(env *Env) (*tabellion.Config, error) {
	cfg, err := p.load(env)
	if err != nil {
		return nil, err
	}
	return cfg, needStore(cfg)
}

// findBackup refuses a folder that holds no whole backup.
func findBackup(from string) error {
	info, err := os.Stat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refused(fmt.Errorf("there is no folder %s: give the folder that tabellion backup has made", from))
	case err != nil:
		return refused(fmt.Errorf("look for the backup: %w", err))
	case !info.IsDir():
		return refused(fmt.Errorf("%s is not a folder: give the folder that tabellion backup has made", from))
	}
	if _, err := os.Lstat(filepath.Join(from, "backup.json")); errors.Is(err, fs.ErrNotExist) {
		return refused(fmt.Errorf("%s holds no whole backup (there is no backup.json in it): give the folder of one that tabellion backup has finished", from))
	}
	return nil
}

// showFindings prints findings, damage first.
func showFindings(env *Env, findings []maintain.Finding) error {
	for _, damage := range []bool{true, false} {
		for _, f := range findings {
			if f.Damage != damage {
				continue
			}
			word := "note"
			if damage {
				word = "damage"
			}
			if _, err := fmt.Fprintf(env.Stdout, "%s %s %s: %s\n  %s\n", word, f.Kind, cmp.Or(graphic(f.Where), "-"), graphic(f.Message), f.Remedy); err != nil {
				return err
			}
		}
	}
	return nil
}

// damages counts the findings that are damage, and the others.
func damages(findings []maintain.Finding) (damage, others int64) {
	for _, f := range findings {
		if f.Damage {
			damage++
		} else {
			others++
		}
	}
	return damage, others
}
