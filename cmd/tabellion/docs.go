package main

import (
	"errors"
	"os"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/manifest"
)

// docsCommand prints what is made from the code: a page of the documentation, or the contract. It is for those who
// change the program.
type docsCommand struct {
	Page string `arg:"" enum:"configuration,contract" help:"Which one."`
	File string `arg:"" optional:"" help:"Write it into this file. A contract there gets a higher revision when something was added, and is left alone when the change would break its clients."`
}

// Run prints or writes it.
func (c *docsCommand) Run(env *Env) error {
	if c.Page == "contract" {
		return c.contract(env)
	}
	if c.File != "" {
		return os.WriteFile(c.File, config.Markdown(), 0o644)
	}
	_, err := env.Stdout.Write(config.Markdown())
	return err
}

// contract prints the contract, or brings its file up to date.
func (c *docsCommand) contract(env *Env) error {
	m, err := tabellion.Contract()
	if err != nil {
		return err
	}
	if c.File == "" {
		text, err := manifest.Text(m)
		if err != nil {
			return err
		}
		_, err = env.Stdout.Write(text)
		return err
	}
	revision, change, err := manifest.Write(c.File, m)
	if errors.Is(err, manifest.ErrBreaking) {
		return &exitError{exitFindings, err}
	}
	if err != nil {
		return err
	}
	for _, line := range change.Added {
		say(env, "%s", line)
	}
	say(env, "%s is at revision %d", c.File, revision)
	return nil
}
