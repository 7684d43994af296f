package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/maintain"
)

// restoreCommand makes a data folder of a backup.
type restoreCommand struct {
	place
	From  string `arg:"" name:"dir" help:"Folder of the backup, as backup has made it."`
	Force bool   `help:"Move aside what the data folder holds. Nothing is deleted."`
	JSON  bool   `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*restoreCommand) Help() string {
	return `Makes the data folder, which the configuration or --persistence names, of a backup. The backup is verified while it is copied, and the folder is checked at the end. A restore that was broken off is finished by running it again. No server may have the folder.

Here exit code 1 says that the backup is damaged. ` + exitHelp
}

// Run restores.
func (c *restoreCommand) Run(env *Env) error {
	cfg, err := c.load(env)
	if err != nil {
		return err
	}
	from, err := filepath.Abs(c.From)
	if err != nil {
		return failed("find the folder %s: %w", c.From, err)
	}
	if err := findBackup(from); err != nil {
		return err
	}
	line := newProgressLine(env, c.JSON)
	report, err := maintain.Restore(env.Ctx, from, cfg.Data, maintain.RestoreOptions{Force: c.Force, Progress: line.tell, Now: time.Now()})
	line.end()
	if err != nil {
		left := "run it again with the same backup, and it goes on"
		if c.Force {
			left += asideWords(cfg.Data)
		}
		return folderError(cfg, "the restore", left, err)
	}
	if c.JSON {
		return printJSON(env, report)
	}
	if report.Aside != "" {
		say(env, "What was there is now in %s.", report.Aside)
	}
	_, err = fmt.Fprintf(env.Stdout, "restored into %s: %s, as of %s, checked\n", report.Dir, holds(&report.Manifest), report.At.UTC().Format(time.RFC3339))
	say(env, "Note: %s.", report.Trust)
	return err
}
