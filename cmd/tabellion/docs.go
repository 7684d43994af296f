package main

import (
	"os"

	"github.com/tabellion-mcp/tabellion/internal/config"
)

// docsCommand prints a page of the documentation that is made from the code. It is for those who change the program.
type docsCommand struct {
	Page string `arg:"" enum:"configuration" help:"Which page."`
	File string `arg:"" optional:"" help:"Write it into this file."`
}

// Run prints or writes it.
func (c *docsCommand) Run(env *Env) error {
	if c.File != "" {
		return os.WriteFile(c.File, config.Markdown(), 0o644)
	}
	_, err := env.Stdout.Write(config.Markdown())
	return err
}
