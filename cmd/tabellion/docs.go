package main

import "github.com/tabellion-mcp/tabellion/internal/config"

// docsCommand prints a page of the documentation that is made from the code. It is for those who change the program.
type docsCommand struct {
	Page string `arg:"" enum:"configuration" help:"Which page."`
}

// Run prints it.
func (c *docsCommand) Run(env *Env) error {
	_, err := env.Stdout.Write(config.Markdown())
	return err
}
