package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
)

// checkCommand checks a data folder.
type checkCommand struct {
	place
	ReadData       bool   `help:"Read and hash the bytes of every artifact too."`
	ReadDataSubset string `placeholder:"PERCENT" help:"Read and hash this share of the bytes, such as 5%, another one each time."`
	JSON           bool   `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*checkCommand) Help() string {
	return `Looks whether everything in the data folder is as it should be: documents and their references, artifacts, uploads, quotas, the audit trail, and with --read-data every byte. Changes nothing. Works beside a running server, which checks then. What is left over, and harmless, is listed as a note.

Here exit code 0 says that no damage was found, and 1 that there is some. ` + exitHelp
}

// Run checks.
func (c *checkCommand) Run(env *Env) error {
	if c.ReadData && c.ReadDataSubset != "" {
		return failed("--read-data reads all bytes and --read-data-subset %s a share of them: give one of the two", c.ReadDataSubset)
	}
	subset, err := parseShare(c.ReadDataSubset)
	if err != nil {
		return err
	}
	cfg, err := c.loadStore(env)
	if err != nil {
		return err
	}
	line := newProgressLine(env, c.JSON)
	var report *maintain.CheckReport
	err = beside(env, func() (err error) {
		report, err = maintain.Check(env.Ctx, cfg.Data, maintain.CheckOptions{
			ReadData: c.readData(), Subset: subset, Progress: line.tell, Now: time.Now(),
		})
		return err
	}, func() (err error) {
		in := []canonjson.Member{canonjson.M("readData", canonjson.Bool(c.readData()))}
		if subset > 0 {
			in = append(in, canonjson.M("subset", canonjson.Float(subset)))
		}
		out, err := askOwner(env, cfg, line, "operator.check", in...)
		if err == nil {
			err = json.Unmarshal(out.AppendJSON(nil), &report)
		}
		return err
	})
	line.end()
	if err != nil {
		return unreadable(folderError(cfg, "the check", "nothing was changed", err))
	}
	return c.show(env, cfg.Data, report)
}

// readData tells whether any bytes are to be read.
func (c *checkCommand) readData() bool { return c.ReadData || c.ReadDataSubset != "" }

// parseShare reads "5%". "" is 0, and so is 100%: everything.
func parseShare(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, ok := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(percent > 0 && percent <= 100) {
		return 0, failed("--read-data-subset %s: expected a share above 0%% and up to 100%%, such as 5%%", text)
	}
	if percent == 100 {
		return 0, nil
	}
	return percent / 100, nil
}

// show prints the report.
func (c *checkCommand) show(env *Env, dir string, r *maintain.CheckReport) error {
	damage, others := damages(r.Findings)
	if c.JSON {
		if err := printJSON(env, r); err != nil {
			return err
		}
	} else if err := c.words(env, dir, r, damage, others); err != nil {
		return err
	}
	if damage > 0 {
		return &exitError{exitFindings, nil}
	}
	return nil
}

// words prints the report for a person.
func (c *checkCommand) words(env *Env, dir string, r *maintain.CheckReport, damage, others int64) error {
	if r.Format == 0 { // nothing could be counted
		fmt.Fprintf(env.Stdout, "%s: the database cannot be read\n", dir)
	} else {
		c.counts(env, dir, r)
	}
	if err := showFindings(env, r.Findings); err != nil {
		return err
	}
	if r.Omitted > 0 {
		fmt.Fprintf(env.Stdout, "%s not listed\n", counted(r.Omitted, "further finding"))
	}
	read := "the bytes of artifacts were not read (--read-data)"
	if c.readData() {
		read = sizeText(r.DataBytes) + " of artifacts were read and hashed"
	}
	verdict := "no damage"
	if damage > 0 {
		verdict = counted(damage, "damage")
	}
	if others > 0 {
		verdict += ", " + counted(others, "note")
	}
	_, err := fmt.Fprintf(env.Stdout, "%s; %s\n", verdict, read)
	return err
}

// counts prints what the folder holds.
func (c *checkCommand) counts(env *Env, dir string, r *maintain.CheckReport) {
	fmt.Fprintf(env.Stdout, "%s (format %d) holds %s, %s with %s, %s in %s, %s and %s\n", dir, r.Format,
		counted(r.Namespaces, "namespace"), counted(r.Documents, "document"), counted(r.Revisions, "revision"),
		counted(r.Artifacts, "artifact"), counted(r.Blobs, "file"), counted(r.Uploads, "upload"), counted(r.AuditRows, "audit entry"))
}
