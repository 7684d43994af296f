package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/config"
)

// initCommand writes a configuration to begin with.
type initCommand struct {
	Dir  string `arg:"" optional:"" default:"." help:"Folder to write into; it is made when it is missing."`
	Name string `placeholder:"NAME" help:"What the server is called; the folder's name by default."`
	JSON bool   `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*initCommand) Help() string {
	return "It writes tabellion.yaml, with every key explained, and makes the folder data beside it. It never overwrites a file.\n\n" + exitHelp
}

// Run writes the file and the folder.
func (c *initCommand) Run(env *Env) error {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	name := c.Name
	if name == "" {
		name = serverName(filepath.Base(dir))
	}
	if serverName(name) != name {
		return failed("--name %s: expected at most 64 letters, digits and . _ -", name)
	}
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return refused(fmt.Errorf("make the data folder: %w", err))
	}
	file := filepath.Join(dir, defaultFile)
	if err := writeNew(file, config.Template(name)); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env, map[string]any{"config": file, "data": data})
	}
	fmt.Fprintln(env.Stdout, file)
	say(env, "Next:\n\n  %[1]s keys create --config %[2]s --user me --name laptop --roles admin\n  %[1]s serve --config %[2]s",
		quoteShell(env.Program), quoteShell(relative(file)))
	return nil
}

// writeNew writes a file that must not exist.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return failed("%s exists already and is left as it is", path)
	}
	if err != nil {
		return refused(fmt.Errorf("write the configuration: %w", err))
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return refused(errors.Join(fmt.Errorf("write the configuration: %w", err), os.Remove(path)))
	}
	return nil
}

// unnamed is what no name may hold.
var unnamed = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// serverName makes a name of a folder's name.
func serverName(s string) string {
	s = strings.TrimLeft(unnamed.ReplaceAllString(s, "-"), "._-")
	s = s[:min(len(s), 64)]
	if s == "" {
		return "tabellion"
	}
	return s
}

// relative is path as seen from the working folder when that is shorter.
func relative(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(wd, path); err == nil && len(rel) < len(path) {
		return rel
	}
	return path
}
