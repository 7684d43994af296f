package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
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
	return `Copies the whole store as of one point in time, also beside a running server, which makes the copy then. A backup that was not finished holds no backup.json and is never taken for a whole one. It holds secrets, as the data folder does.

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
	line := newProgressLine(env, c.JSON)
	var report *maintain.BackupReport
	err = beside(env, func() (err error) {
		report, err = maintain.Backup(env.Ctx, cfg.Data, to, maintain.BackupOptions{
			Force: c.Force, Version: tabellion.Version(), Progress: line.tell, Now: time.Now(),
		})
		return err
	}, func() error {
		out, err := askOwner(env, cfg, line, "operator.backup", canonjson.M("to", canonjson.String(to)), canonjson.M("force", canonjson.Bool(c.Force)))
		if err == nil {
			err = json.Unmarshal(out.AppendJSON(nil), &report)
		}
		return err
	})
	line.end()
	if err != nil {
		return folderError(cfg, "the backup", err)
	}
	return c.show(env, report)
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
