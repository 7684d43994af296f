package main

import (
	"fmt"
	"runtime"

	"github.com/alecthomas/kong"

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
	_, err := fmt.Fprintln(env.Stdout, versionLine())
	return err
}

// versionLine is the version for people.
func versionLine() string {
	return fmt.Sprintf("tabellion %s (%s, %s/%s)", tabellion.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionFlag is --version: the same as the command.
type versionFlag bool

// BeforeReset prints the version and ends parsing.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	if _, err := fmt.Fprintln(app.Stdout, versionLine()); err != nil {
		return err
	}
	app.Exit(0)
	return nil
}
