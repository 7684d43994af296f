package main

import (
	"fmt"
	"runtime"

	"github.com/tabellion-mcp/tabellion"
)

// versionCommand prints the version.
type versionCommand struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*versionCommand) Help() string { return exitHelp }

// Run prints it.
func (c *versionCommand) Run(env *Env) error {
	if c.JSON {
		return printJSON(env, map[string]any{"version": tabellion.Version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
	}
	_, err := fmt.Fprintf(env.Stdout, "tabellion %s (%s, %s/%s)\n", tabellion.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
