package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
)

// repairCommand repairs a data folder.
type repairCommand struct {
	place
	DryRun   bool `help:"Change nothing; say what would be done."`
	ReadData bool `help:"Read and hash the bytes of every artifact too, so that damaged ones are listed."`
	Yes      bool `short:"y" help:"Do not ask."`
	JSON     bool `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*repairCommand) Help() string {
	return `Repairs what can be proved from what is there, and deletes nothing that something may need. Everything else is listed with what to do. The database is copied aside first. The bytes of artifacts cannot be repaired; with --read-data they are read, and damaged ones listed. No server may have the folder.

Here exit code 1 says that damage is left, or with --dry-run that there is some. ` + exitHelp
}

// Run repairs.
func (c *repairCommand) Run(env *Env) error {
	cfg, err := c.loadStore(env)
	if err != nil {
		return err
	}
	if !c.DryRun && !c.Yes {
		if err := c.confirm(env, cfg); err != nil {
			return err
		}
	}
	report, err := c.repair(env, cfg, c.DryRun)
	if err != nil {
		return err
	}
	return c.show(env, report)
}

// repair does it, or with dry looks what would be done.
func (c *repairCommand) repair(env *Env, cfg *tabellion.Config, dry bool) (*maintain.RepairReport, error) {
	line := newProgressLine(env, c.JSON)
	report, err := maintain.Repair(env.Ctx, cfg.Data, maintain.RepairOptions{DryRun: dry, ReadData: c.ReadData, Progress: line.tell, Now: time.Now()})
	line.end()
	return report, unreadable(folderError(cfg, "the repair", "each of its steps was done whole or not at all: run it again", err))
}

// confirm shows what would be done and asks a person.
func (c *repairCommand) confirm(env *Env, cfg *tabellion.Config) error {
	in, ok := env.Stdin.(*os.File)
	if !ok || c.JSON || terminalWidth(in) == 0 {
		return failed("repair changes the data folder %s and nobody can be asked here: look first with --dry-run, then give --yes", cfg.Data)
	}
	report, err := c.repair(env, cfg, true)
	if err != nil || len(report.Done) == 0 {
		return err // nothing to ask about
	}
	for _, f := range report.Done {
		say(env, "would repair %s", graphic(f.String()))
	}
	fmt.Fprintf(env.Stderr, "Repair %s in %s? [y/N] ", counted(int64(len(report.Done)), "thing"), cfg.Data)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); err != nil || a != "y" && a != "yes" {
		return failed("nothing was changed")
	}
	return nil
}

// show prints the report.
func (c *repairCommand) show(env *Env, r *maintain.RepairReport) error {
	left, _ := damages(r.Left)
	open := left
	if c.DryRun {
		damage, _ := damages(r.Done)
		open += damage
	}
	if c.JSON {
		if err := printJSON(env, r); err != nil {
			return err
		}
	} else if err := c.words(env, r, left); err != nil {
		return err
	}
	if open > 0 {
		return &exitError{exitFindings, nil}
	}
	return nil
}

// words prints the report for a person.
func (c *repairCommand) words(env *Env, r *maintain.RepairReport, left int64) error {
	done := "repaired"
	if c.DryRun {
		done = "would repair"
	}
	for _, f := range r.Done {
		fmt.Fprintf(env.Stdout, "%s %s %s: %s\n", done, f.Kind, graphic(f.Where), graphic(f.Message))
	}
	if err := showFindings(env, r.Left); err != nil {
		return err
	}
	if r.Copy != "" {
		fmt.Fprintf(env.Stdout, "the database as it was is in %s; remove it when all is well\n", r.Copy)
	}
	verdict := "no damage is left"
	if left > 0 {
		verdict = counted(left, "damage") + " cannot be repaired"
	}
	read := "the bytes of artifacts were not read: --read-data reads them"
	if r.BytesRead {
		read = "the bytes of artifacts were read and hashed"
	}
	_, err := fmt.Fprintf(env.Stdout, "%s %s; %s; %s\n", done, counted(int64(len(r.Done)), "thing"), verdict, read)
	return err
}
