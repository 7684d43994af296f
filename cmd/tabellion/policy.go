package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
	"github.com/tabellion-mcp/tabellion/policy"
)

// policyCommand holds the commands about the policy.
type policyCommand struct {
	Explain explainCommand `cmd:"" help:"Say whether a subject may do something, and which rule decides."`
}

// Help is the end of the help text.
func (*policyCommand) Help() string { return exitHelp }

// explainCommand asks for one decision.
type explainCommand struct {
	place
	Roles      roleList `placeholder:"ROLE,..." help:"Roles that the subject has beside, as a key gives them."`
	JSON       bool     `name:"json" help:"Print one JSON object."`
	Subject    string   `arg:"" help:"Who: user:ana, key:ID, local:me, role:writer."`
	Capability string   `arg:"" help:"What: persistence.read, persistence.write, persistence.delete, ..."`
	Path       string   `arg:"" help:"Where: /persistence/namespaces/explorer/documents/checkpoint-1."`
}

// Help is the end of the help text.
func (*explainCommand) Help() string {
	return `A running server is asked for what it decides; otherwise the configuration is read. A key (key:ID) is looked up: its user, its roles, its scopes and its end decide. Exit code 0 means allowed, 1 denied.

` + exitHelp
}

// Run asks the server that holds the data folder, or else the configuration.
func (c *explainCommand) Run(env *Env) error {
	cfg, err := c.load(env)
	if err != nil {
		return err
	}
	if c.quick() && cfg.Auth.Local == nil {
		cfg.Auth.Local = osUser() // whom a server on this folder has
	}
	allow, rule, err := c.ask(env, cfg)
	if errors.Is(err, control.ErrNobody) {
		allow, rule, err = c.decide(env.Ctx, cfg)
	}
	if err != nil {
		return err
	}
	if err := c.print(env, allow, rule); err != nil {
		return err
	}
	if !allow {
		return &exitError{exitFindings, nil}
	}
	return nil
}

// ask asks the owner of the data folder.
func (c *explainCommand) ask(env *Env, cfg *tabellion.Config) (allow bool, rule string, err error) {
	in := []canonjson.Member{
		canonjson.M("subject", canonjson.String(c.Subject)),
		canonjson.M("capability", canonjson.String(c.Capability)),
		canonjson.M("path", canonjson.String(c.Path)),
	}
	if len(c.Roles.names) > 0 {
		in = append(in, canonjson.M("roles", texts(c.Roles.names)))
	}
	const operation = "operator.policy.explain"
	var out canonjson.Value
	if strings.HasPrefix(c.Subject, "key:") {
		if err := needStore(cfg); err != nil {
			return false, "", err
		}
		out, err = operate(env, cfg, operation, canonjson.Object(in...))
	} else {
		out, err = control.Run(env.Ctx, cfg.Data, caller(cfg), operation, canonjson.Object(in...))
		err = missingRight(err, caller(cfg), operation)
	}
	return out.Get("allow").Bool(), out.Get("rule").Str(), err
}

// decide asks the policy of the configuration.
func (c *explainCommand) decide(ctx context.Context, cfg *tabellion.Config) (allow bool, rule string, err error) {
	if !policy.Capability(c.Capability).Known() {
		return false, "", failed("unknown capability %q; known are %s", c.Capability, known())
	}
	if pattern, err := policy.ParsePattern(c.Path); err != nil || string(pattern.Base()) != c.Path {
		return false, "", failed("%q is no path such as /persistence/namespaces/explorer/documents/checkpoint-1", c.Path)
	}
	subjects := []string{c.Subject}
	for _, r := range c.Roles.names {
		subjects = append(subjects, "role:"+r)
	}
	for _, s := range subjects {
		if err := policy.CheckSubject(s); err != nil {
			return false, "", failed("%w", err)
		}
	}
	d, err := tabellion.Explain(ctx, cfg, subjects, policy.Check{Capability: policy.Capability(c.Capability), Path: policy.Path(c.Path)})
	return d.Allow, d.Rule, err
}

// known lists the capabilities.
func known() string {
	var names []string
	for _, c := range policy.Capabilities {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}

// print shows the decision.
func (c *explainCommand) print(env *Env, allow bool, rule string) error {
	if c.JSON {
		return printJSON(env, map[string]any{"allow": allow, "rule": rule, "subject": c.Subject, "capability": c.Capability, "path": c.Path})
	}
	word := "denied"
	if allow {
		word = "allowed"
	}
	_, err := fmt.Fprintf(env.Stdout, "%s: %s\n", word, rule)
	return err
}
