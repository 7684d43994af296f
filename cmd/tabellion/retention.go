package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// retentionCommand tells what may be purged.
type retentionCommand struct {
	place
	Age       string `placeholder:"TIME" help:"What has been superseded, or was committed, at least so long ago, such as 90d; persistence.retention by default."`
	Namespace string `placeholder:"NAME" help:"This one only; tenant:name for one of a tenant."`
	JSON      bool   `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*retentionCommand) Help() string {
	return "Counts superseded revisions and artifacts that are old enough to be purged, those of them that something refers to (see inbound), and what purging the others would free. Nothing is purged by it, and nothing is ever purged by itself. While everything is kept forever, --age shows what a finite retention would let go.\n\n" + exitHelp
}

// Run tells it.
func (c *retentionCommand) Run(env *Env) error {
	cfg, err := c.loadStore(env)
	if err != nil {
		return err
	}
	in := append(namespaceMembers(c.Namespace), optional("age", c.Age))
	items, out, err := pages(env, cfg, "operator.retention", "namespaces", in...)
	if err != nil {
		return err
	}
	if c.JSON {
		return printValue(env, canonjson.Object(canonjson.M("before", out.Get("before")), canonjson.M("retention", out.Get("retention")),
			canonjson.M("namespaces", canonjson.Array(items...))))
	}
	if out.Get("before").IsAbsent() {
		say(env, "Nothing may be purged: persistence.retention is forever. --age 90d shows what a finite retention would let go.")
		return nil
	}
	return c.table(env, items, out)
}

// table prints a report for a person.
func (c *retentionCommand) table(env *Env, items []canonjson.Value, out canonjson.Value) error {
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tREVISIONS\tREFERRED TO\tARTIFACTS\tREFERRED TO\tPURGING THE REST FREES")
	var total int64
	for _, n := range items {
		total += number(n, "bytes")
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\n", namespaceName(n), number(n, "revisions"), number(n, "revisionsBlocked"),
			number(n, "artifacts"), number(n, "artifactsBlocked"), sizeText(number(n, "bytes")))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	say(env, "Older than %s: %s could be freed.", out.Get("before").Str(), sizeText(total))
	if out.Get("retention").IsAbsent() {
		say(env, "Nothing can be purged here: persistence.retention is forever.")
	}
	return nil
}
