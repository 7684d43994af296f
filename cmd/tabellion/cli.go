package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/tabellion-mcp/tabellion/fault"
)

// grammar is the command line.
type grammar struct {
	Serve       serveCommand       `cmd:"" help:"Serve MCP over HTTP."`
	Stdio       stdioCommand       `cmd:"" help:"Serve one MCP client over standard input and output."`
	Init        initCommand        `cmd:"" help:"Write a commented configuration and make the data folder."`
	Keys        keysCommand        `cmd:"" help:"Make, show and end API keys."`
	Policy      policyCommand      `cmd:"" help:"Explain what the policy decides."`
	ExportTools exportCommand      `cmd:"" help:"Print the tools that clients see, without opening a store."`
	Namespaces  namespacesCommand  `cmd:"" help:"Show what namespaces hold."`
	Inbound     inboundCommand     `cmd:"" help:"Show what refers to a document or an artifact."`
	Retention   retentionCommand   `cmd:"" help:"Show what may be purged."`
	Audit       auditCommand       `cmd:"" help:"Read and verify the audit trail."`
	Check       checkCommand       `cmd:"" help:"Check the data folder."`
	Repair      repairCommand      `cmd:"" help:"Repair the data folder."`
	Backup      backupCommand      `cmd:"" help:"Back up the data folder, also of a running server."`
	Restore     restoreCommand     `cmd:"" help:"Make a data folder of a backup."`
	Migrate     migrateCommand     `cmd:"" help:"Bring a data folder to the format of this version."`
	Models      modelsCommand      `cmd:"" help:"Look at databases and their model definitions."`
	Conformance conformanceCommand `cmd:"" help:"Run conformance scenarios against a server."`
	Version     versionCommand     `cmd:"" help:"Print the version."`
	Completion  completionCommand  `cmd:"" help:"Print a completion script for a shell."`
	Docs        docsCommand        `cmd:"" hidden:"" help:"Print a page of the documentation that is made from the code."`

	VersionFlag versionFlag `name:"version" help:"Print the version."`
}

// exitHelp is what the help of every command ends with.
const exitHelp = `Exit codes: 0 fine; 1 findings, drift, or the answer no; 2 could not do it, wrong usage included; 3 refused to start, or the store cannot be read; 130 interrupted; a second signal ends a server with 128 and its number (143 for SIGTERM).`

// unbuilt are commands that are specified and not part of this version.
var unbuilt = []string{
	"copy", "plans", "lock", "diff", "attest", "scan", "tokens", "entitlements", "client-config", "probe", "guard", "contract",
	"context",
}

// unbuiltFlags are flags of serve and stdio that are specified and not part of this version.
var unbuiltFlags = []string{"--context"}

// parsed ends parsing early: kong was told to exit, after a help text.
type parsed struct{ code int }

// run runs one command line and gives the exit code.
func run(env *Env, args []string) (code int) {
	err := dispatch(env, args)
	if s := env.Signal(); s != nil && (err != nil || exitCode(s) == 130) {
		if codeOf(err) == exitInterrupted {
			fmt.Fprintf(env.Stderr, "tabellion: %s\n", words(err))
		}
		return exitCode(s)
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintf(env.Stderr, "tabellion: %s\n", words(err))
	}
	return codeOf(err)
}

// words are an error for a person. A fault's cause is for the operator, and here he is.
func words(err error) string {
	f := fault.As(err)
	if f == nil {
		return err.Error()
	}
	text := f.Message + " (" + string(f.Code) + ")"
	if cause := f.Unwrap(); cause != nil {
		text += ": " + cause.Error()
	}
	return text
}

// dispatch parses args and runs the command.
func dispatch(env *Env, args []string) (err error) {
	if err := notBuilt(args); err != nil {
		return err
	}
	var g grammar
	defer func() { err = caught(recover(), err) }()
	parser, err := newParser(env, &g)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		return usage(err)
	}
	return ctx.Run(env)
}

// caught is the error of a command after a panic: kong's own ends parsing early, and any other is a fault of this
// program that must not pass for success.
func caught(p any, err error) error {
	switch p := p.(type) {
	case nil:
		return err
	case parsed:
		if p.code != 0 {
			return &exitError{exitFailed, nil}
		}
		return nil
	default:
		return failed("internal error: %v\n%s", p, debug.Stack())
	}
}

// newParser makes the parser of the grammar.
func newParser(env *Env, g *grammar) (*kong.Kong, error) {
	return kong.New(g,
		kong.Name("tabellion"),
		kong.Description("Durable documents and governed data for language-model agents, over the Model Context Protocol.\n\n"+exitHelp),
		kong.Writers(env.Stdout, env.Stderr),
		kong.Exit(func(code int) { panic(parsed{code}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
	)
}

// usage says how to get help, for the command that was named as far as it is one.
func usage(err error) error {
	command := "tabellion"
	var p *kong.ParseError
	if errors.As(err, &p) && p.Context != nil {
		for _, word := range strings.Fields(p.Context.Command()) {
			if strings.HasPrefix(word, "<") {
				break // an argument
			}
			command += " " + word
		}
	}
	return failed("%w; see %s --help", err, command)
}

// notBuilt refuses what is specified and not part of this version.
func notBuilt(args []string) error {
	if len(args) > 0 && slices.Contains(unbuilt, args[0]) {
		return failed("the command %q is not part of this version", args[0])
	}
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		if slices.Contains(unbuiltFlags, name) && len(args) > 0 && (args[0] == "serve" || args[0] == "stdio") {
			return failed("the flag %s is not part of this version: it serves persistence and models", name)
		}
	}
	return nil
}
