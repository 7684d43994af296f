package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tabellion-mcp/tabellion"
)

// exportCommand prints the published tools.
type exportCommand struct {
	place
	Slot    string `default:"all" placeholder:"SLOT" help:"Only the tools of one slot: persistence, models."`
	Models  string `placeholder:"PATH" help:"Model definitions, a file or a folder, in place of a configuration file."`
	Write   bool   `help:"With --models: the tools that write too."`
	Generic bool   `help:"With --models: the generic surface."`
	JSON    bool   `name:"json" help:"Print one JSON object with the tools as clients get them."`
}

// Help is the end of the help text.
func (*exportCommand) Help() string {
	return "The list is that of a caller who may do everything. No store and no database is opened, and none is made.\n\n" + exitHelp
}

// Run builds the catalog and prints it. Without a configuration the defaults are taken.
func (c *exportCommand) Run(env *Env) error {
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	tools, err := tabellion.Tools(cfg, c.Slot)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env, map[string]any{"slot": c.Slot, "tools": json.RawMessage(tools)})
	}
	var list []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	if err := json.Unmarshal(tools, &list); err != nil {
		return err
	}
	for _, t := range list {
		first, _, _ := strings.Cut(t.Description, "\n")
		if _, err := fmt.Fprintf(env.Stdout, "%-28s %s\n", t.Name, first); err != nil {
			return err
		}
	}
	return nil
}

// config reads the configuration when there is one. The folder is never looked at.
func (c *exportCommand) config(env *Env) (*tabellion.Config, error) {
	p := c.place
	if c.Models != "" {
		if p.Config != "" || p.Persistence != "" {
			return nil, failed("--models excludes --config and --persistence")
		}
		m := &modelFlags{Models: c.Models, Source: "sqlite:none", Write: c.Write, Data: "none"}
		p.models = m
		cfg, err := p.load(env)
		if err == nil && c.Generic {
			cfg.Models.Surface = "generic"
		}
		return cfg, err
	}
	if p.Config == "" && p.Persistence == "" && found() == "" {
		p.Persistence = "data"
	}
	return p.load(env)
}
