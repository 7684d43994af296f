package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/tools"
)

// exportCommand prints the published tools.
type exportCommand struct {
	place
	Slot    string `default:"all" placeholder:"SLOT" help:"Only the tools of one slot: persistence, models."`
	Models  string `placeholder:"PATH" help:"Model definitions, a file or a folder, in place of a configuration file. STORE_SCHEMA by default, with --slot models."`
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
	if c.Slot == "models" && cfg.Models == nil {
		return failed("no models are configured here: give --models PATH, or a configuration with a section models")
	}
	list, err := tabellion.Tools(cfg, c.Slot)
	var bad *model.Error
	if errors.As(err, &bad) {
		return refused(err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env, map[string]any{"slot": c.Slot, "tools": json.RawMessage(list)})
	}
	var shown []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	if err := json.Unmarshal(list, &shown); err != nil {
		return err
	}
	for _, t := range shown {
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
	if c.Models == "" && c.Slot == "models" && p.Config == "" && found() == "" {
		c.Models = env.getenv("STORE_SCHEMA")
	}
	switch {
	case c.Models != "":
		return c.ofModels(env, p)
	case c.Write || c.Generic:
		return nil, failed("--write and --generic go with --models PATH; a configuration says both in its section models")
	}
	if p.Config == "" && p.Persistence == "" && found() == "" {
		p.Persistence = "data"
	}
	return p.load(env)
}

// ofModels is the configuration of the quick form of models, with a database that is never opened.
func (c *exportCommand) ofModels(env *Env, p place) (*tabellion.Config, error) {
	if p.Config != "" || p.Persistence != "" {
		return nil, failed("--models excludes --config and --persistence")
	}
	if c.Slot != "models" && c.Slot != "all" {
		return nil, failed("--models gives tools of the slot models alone; leave --slot %s out", c.Slot)
	}
	name, err := sourceName(c.Models)
	if err != nil {
		return nil, err
	}
	p.models = &modelFlags{Models: c.Models, Source: "sqlite:none", Write: c.Write, Data: "none", name: name}
	cfg, err := p.load(env)
	if err == nil && c.Generic {
		cfg.Models.Surface = tools.Generic
	}
	return cfg, err
}
