package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// namespacesCommand shows what namespaces hold.
type namespacesCommand struct {
	place
	Name string `arg:"" optional:"" help:"This one only; tenant:name for one of a tenant."`
	JSON bool   `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*namespacesCommand) Help() string {
	return "Shows what each namespace holds, and how much of its quota. A namespace that holds nothing is left out.\n\n" + exitHelp
}

// Run shows them.
func (c *namespacesCommand) Run(env *Env) error {
	cfg, err := c.loadStore(env)
	if err != nil {
		return err
	}
	items, _, err := pages(env, cfg, "operator.namespaces", "namespaces", namespaceMembers(c.Name)...)
	if err != nil {
		return err
	}
	if c.JSON {
		return printValue(env, canonjson.Object(canonjson.M("namespaces", canonjson.Array(items...))))
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tDOCUMENTS\tDELETED\tREVISIONS\tARTIFACTS\tUPLOADS\tSIZE\tRESERVED\tOF QUOTA")
	for _, n := range items {
		share := "-"
		if !n.Get("quota").IsAbsent() {
			share = fmt.Sprintf("%.1f%%", n.Get("share").Float()*100)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", namespaceName(n), number(n, "documents"), number(n, "deleted"), number(n, "revisions"),
			number(n, "artifacts"), number(n, "uploads"), sizeText(number(n, "bytes")), sizeText(number(n, "reserved")), share)
	}
	return w.Flush()
}

// namespaceMembers are the input members of "name", "tenant:name" or nothing.
func namespaceMembers(name string) []canonjson.Member {
	if name == "" {
		return nil
	}
	tenant := ""
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		tenant, name = name[:i], name[i+1:]
	}
	return []canonjson.Member{canonjson.M("namespace", canonjson.String(name)), optional("tenant", tenant)}
}

// namespaceName is the namespace of an object, tenant:name for one of a tenant.
func namespaceName(v canonjson.Value) string {
	if tenant := v.Get("tenant").Str(); tenant != "" {
		return tenant + ":" + v.Get("namespace").Str()
	}
	return v.Get("namespace").Str()
}

// number is an integer member.
func number(v canonjson.Value, name string) int64 {
	n, _ := v.Get(name).Int()
	return n
}

// inboundCommand shows who refers to something.
type inboundCommand struct {
	place
	Target string `arg:"" help:"NAMESPACE/ID@REVISION of a document, or NAMESPACE/ID of an artifact."`
	JSON   bool   `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*inboundCommand) Help() string {
	return "Lists the revisions of documents, of all namespaces, that refer to a revision of a document or to an artifact: while there is one, the target cannot be purged (retention_blocked).\n\n" + exitHelp
}

// Run shows them.
func (c *inboundCommand) Run(env *Env) error {
	in, err := parseTarget(c.Target)
	if err != nil {
		return err
	}
	cfg, err := c.loadStore(env)
	if err != nil {
		return err
	}
	items, out, err := pages(env, cfg, "operator.inbound", "references", in...)
	if err != nil {
		return err
	}
	if c.JSON {
		return printValue(env, canonjson.Object(canonjson.M("exists", out.Get("exists")), canonjson.M("references", canonjson.Array(items...))))
	}
	for _, r := range items {
		newest := ""
		if r.Get("newest").Bool() {
			newest = " (newest revision)"
		}
		fmt.Fprintf(env.Stdout, "%s/%s@%d%s\n", namespaceName(r), r.Get("id").Str(), number(r, "revision"), newest)
	}
	say(env, "%s to %s", counted(int64(len(items)), "reference"), c.Target)
	return nil
}

// parseTarget reads NAMESPACE/ID or NAMESPACE/ID@REVISION.
func parseTarget(text string) ([]canonjson.Member, error) {
	namespace, id, ok := strings.Cut(text, "/")
	id, revision, versioned := strings.Cut(id, "@")
	n, err := strconv.ParseInt(revision, 10, 64)
	if !ok || namespace == "" || id == "" || versioned && (err != nil || n < 1) {
		return nil, failed("%q is no target: expected NAMESPACE/ID@REVISION of a document, such as explorer/view-1@3, or NAMESPACE/ID of an artifact", text)
	}
	in := append(namespaceMembers(namespace), canonjson.M("id", canonjson.String(id)))
	if versioned {
		in = append(in, canonjson.M("revision", canonjson.Int(n)))
	}
	return in, nil
}
