package main

import (
	"fmt"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// migrateCommand brings a data folder to the newest format.
type migrateCommand struct {
	place
	DryRun bool `help:"Change nothing; say what would be done."`
	JSON   bool `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*migrateCommand) Help() string {
	return `Brings a data folder of an older version to the format of this one, as the start of a server does. Each step happens whole or not at all; a migration that was broken off is finished by running it again. There is no way back: make a backup first. No server may have the folder.

` + exitHelp
}

// migration is what migrate did, or would do.
type migration struct {
	From   int  `json:"from"` // formats
	To     int  `json:"to"`
	DryRun bool `json:"dryRun"`
}

// Run migrates.
func (c *migrateCommand) Run(env *Env) error {
	cfg, err := c.loadStore(env)
	if err != nil {
		return err
	}
	have, known, err := sqlite.Format(cfg.Data)
	switch {
	case err != nil:
		return unreadable(folderError(cfg, "the migration", "each of its steps was done whole or not at all: run it again", err))
	case have > known:
		return refused(fmt.Errorf("%w: it is %d, known are 1 to %d; use the newer program for %s", sqlite.ErrNewerFormat, have, known, cfg.Data))
	case have == known || c.DryRun:
		return c.show(env, cfg, migration{have, known, c.DryRun})
	}
	line := newProgressLine(env, c.JSON)
	from, to, err := sqlite.Migrate(env.Ctx, cfg.Data, func(step, of int) { line.tell("steps of the migration", int64(step), int64(of)) })
	line.end()
	if err != nil {
		return unreadable(folderError(cfg, "the migration", "each of its steps was done whole or not at all: run it again", err))
	}
	return c.show(env, cfg, migration{from, to, false})
}

// show prints what was done.
func (c *migrateCommand) show(env *Env, cfg *tabellion.Config, m migration) error {
	if c.JSON {
		return printJSON(env, m)
	}
	words := fmt.Sprintf("migrated from format %d to %d", m.From, m.To)
	switch {
	case m.From == m.To:
		words = fmt.Sprintf("has format %d, the newest that this program knows; nothing is to be done", m.From)
	case m.DryRun:
		words = fmt.Sprintf("has format %d and would be migrated to %d, in %s; make a backup first", m.From, m.To, counted(int64(m.To-m.From), "step"))
	}
	_, err := fmt.Fprintf(env.Stdout, "%s %s\n", cfg.Data, words)
	return err
}
