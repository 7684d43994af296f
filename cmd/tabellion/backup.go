package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
)

// backupCommand backs a data folder up.
type backupCommand struct {
	place
	To    string `arg:"" name:"dir" help:"Folder of the backup. It is made; it must not hold anything."`
	Force bool   `help:"Move aside what the folder of the backup holds. Nothing is deleted."`
	JSON  bool   `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*backupCommand) Help() string {
	return `Copies the whole store as of one point in time, also beside a running server, which makes the copy then. A backup that was not finished holds no backup.json and is never taken for a whole one: remove it, or give --force. A server whose disk is full, so that its audit trail takes no entry, still makes one, and says so. A backup holds secrets, as the data folder does.

Here exit code 1 says that the data folder is damaged, so that no whole backup could be made. ` + exitHelp
}

// Run backs up.
func (c *backupCommand) Run(env *Env) error {
	cfg, err := c.loadStore(env)
	if err != nil {
		return err
	}
	to, err := filepath.Abs(c.To)
	if err != nil {
		return failed("find the folder %s: %w", c.To, err)
	}
	if err := fitTarget(to); err != nil {
		return err
	}
	line := newProgressLine(env, c.JSON)
	var report *maintain.BackupReport
	var unnoted string
	err = beside(env, func() (err error) {
		report, err = maintain.Backup(env.Ctx, cfg.Data, to, maintain.BackupOptions{
			Force: c.Force, Version: tabellion.Version(), Progress: line.tell, Now: time.Now(),
		})
		return err
	}, func() error {
		out, err := askOwner(env, cfg, line, "operator.backup", canonjson.M("to", canonjson.String(to)), canonjson.M("force", canonjson.Bool(c.Force)))
		if err == nil {
			err = json.Unmarshal(out.AppendJSON(nil), &report)
			unnoted = out.Get("unnoted").Str()
		}
		return err
	})
	line.end()
	if err != nil {
		return folderError(cfg, "the backup", c.leaves(to), err)
	}
	if unnoted != "" {
		say(env, "Warning: the audit trail does not hold this backup, because the store takes no entries (%s). It is in the log of the server.", unnoted)
	}
	return c.show(env, report)
}

// fitTarget refuses what cannot be the folder of a backup. What only the maker of the backup can tell is left to it.
func fitTarget(to string) error {
	info, err := os.Stat(to)
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return failed("%s cannot be made: a part of its path is a file. Name another folder for the backup", to)
	case err == nil && !info.IsDir():
		return failed("%s is not a folder: name a folder for the backup, which is made when it is missing", to)
	}
	return nil
}

// leaves says what an interrupted backup leaves in its folder.
func (c *backupCommand) leaves(to string) string {
	words := "there is no backup"
	if entries, err := os.ReadDir(to); err == nil && len(entries) > 0 {
		words = "what is in " + to + " is a part of a backup at most, and is never taken for a whole one. Remove it; or back up again with --force, which moves it aside"
	}
	if c.Force {
		words += asideWords(to)
	}
	return words
}

// asideWords say where --force puts what was in a folder.
func asideWords(dir string) string {
	return ". What was there before, if anything, is in " + dir + ".before-TIME"
}

// show prints the report.
func (c *backupCommand) show(env *Env, r *maintain.BackupReport) error {
	if c.JSON {
		return printJSON(env, r)
	}
	if r.Aside != "" {
		say(env, "What was there is now in %s.", r.Aside)
	}
	_, err := fmt.Fprintf(env.Stdout, "backup in %s: %s, as of %s, checked\n", r.Dir, holds(&r.Manifest), r.At.UTC().Format(time.RFC3339))
	say(env, "Note: %s.", r.Secrets)
	return err
}

// holds says what a backup holds.
func holds(m *maintain.Manifest) string {
	return fmt.Sprintf("%s with %s, %s, %s in %s, %s of database", counted(m.Documents, "document"), counted(m.Revisions, "revision"),
		counted(m.Artifacts, "artifact"), sizeText(m.BlobBytes), counted(m.Blobs, "file"), sizeText(m.Bytes))
}
