package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// auditCommand holds the commands about the audit trail.
type auditCommand struct {
	Read   readAuditCommand   `cmd:"" default:"withargs" help:"Show entries of the audit trail; what audit does by itself."`
	Verify verifyAuditCommand `cmd:"" help:"Look whether entries were removed or altered."`
}

// Help is the end of the help text.
func (*auditCommand) Help() string {
	return "audit --since 1h --denied shows what was refused in the last hour; audit read --help lists all flags.\n\n" + exitHelp
}

// readAuditCommand shows entries of the audit trail.
type readAuditCommand struct {
	place
	Since       string `placeholder:"TIME" help:"From then on: 1h or 7d ago, or a time such as 2027-01-31T12:00:00Z."`
	Until       string `placeholder:"TIME" help:"Before then."`
	Denied      bool   `help:"Only what was refused: access, credentials, too many calls."`
	Subject     string `placeholder:"NAME" help:"Only of this caller, such as user:ana."`
	Operation   string `placeholder:"NAME" help:"Only this operation, such as persistence.put; persistence. is all that begin so."`
	Outcome     string `placeholder:"WORD" help:"Only with this outcome: ok, begun, error, asked, lost, or the code of a refusal such as policy_denied."`
	Path        string `placeholder:"PATH" help:"Only about this path and what is below it, such as /persistence/namespaces/explorer."`
	Correlation string `placeholder:"ID" help:"Only of this call, as an internal error names it."`
	Limit       int    `default:"100" placeholder:"N" help:"The newest N that match; 0 is all."`
	JSON        bool   `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*readAuditCommand) Help() string {
	return "Shows effects, refusals, failed authentications, changes of keys and the like, oldest first by the time at which their call began, one line each: time, outcome, who, operation, target, and why. With --limit 0 they come in the order of the trail, in which a call stands where it ended. Allowed reads are not among them: they are in a file, which is named at the end.\n\n" + exitHelp
}

// auditPage is how many entries are asked for at once.
const auditPage = 500

// Run shows them.
func (c *readAuditCommand) Run(env *Env) error {
	if c.Limit < 0 {
		return failed("--limit %d: expected a number of entries, or 0 for all", c.Limit)
	}
	cfg, err := c.loadStore(env)
	if err != nil {
		return err
	}
	if c.Limit == 0 && !c.JSON {
		return c.all(env, cfg)
	}
	var entries []canonjson.Value
	reads, more, err := c.pages(env, cfg, "newest", func(e canonjson.Value) error {
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(entries, byTime)
	if c.JSON {
		return printValue(env, canonjson.Object(canonjson.M("entries", canonjson.Array(entries...)),
			canonjson.M("more", canonjson.Bool(more)), canonjson.M("reads", reads)))
	}
	if more {
		say(env, "Older entries are left out; --limit 0 shows all.")
	}
	c.none(env, len(entries))
	for _, e := range entries {
		if _, err := fmt.Fprintln(env.Stdout, auditLine(e)); err != nil {
			return err
		}
	}
	say(env, "Allowed reads are in %s.", reads.Str())
	return nil
}

// all prints every entry as it comes.
func (c *readAuditCommand) all(env *Env, cfg *tabellion.Config) error {
	shown := 0
	reads, _, err := c.pages(env, cfg, "oldest", func(e canonjson.Value) error {
		shown++
		_, err := fmt.Fprintln(env.Stdout, auditLine(e))
		return err
	})
	if err == nil {
		c.none(env, shown)
		say(env, "Allowed reads are in %s.", reads.Str())
	}
	return err
}

// none says so when no entry is shown: an empty page looks like a failure.
func (c *readAuditCommand) none(env *Env, shown int) {
	if shown == 0 {
		say(env, "No entry matches.")
	}
}

// byTime orders entries by their time, and those of one moment by their place in the trail. Their times have one form
// and zone, so that they order as texts.
func byTime(a, b canonjson.Value) int {
	return cmp.Or(cmp.Compare(a.Get("time").Str(), b.Get("time").Str()), cmp.Compare(a.Get("writer").Str(), b.Get("writer").Str()),
		cmp.Compare(number(a, "position"), number(b, "position")))
}

// pages asks for entries until there are enough. more tells that further ones may be there.
func (c *readAuditCommand) pages(env *Env, cfg *tabellion.Config, order string, each func(canonjson.Value) error) (reads canonjson.Value, more bool, err error) {
	err = operating(env, cfg, func(call operatorCall) error {
		for cursor, n := "", 0; ; {
			limit := auditPage
			if c.Limit > 0 {
				limit = min(limit, c.Limit-n)
			}
			out, err := call("operator.audit.read", c.input(order, limit, cursor)...)
			if err != nil {
				return err
			}
			for _, e := range out.Get("entries").Items() {
				n++
				if err := each(e); err != nil {
					return err
				}
			}
			reads, cursor = out.Get("reads"), out.Get("next").Str()
			more = cursor != ""
			if !more || c.Limit > 0 && n >= c.Limit {
				return nil
			}
		}
	})
	return reads, more, err
}

// input is the input of one page.
func (c *readAuditCommand) input(order string, limit int, cursor string) []canonjson.Member {
	in := []canonjson.Member{
		optional("since", c.Since), optional("until", c.Until), optional("subject", c.Subject), optional("operation", c.Operation),
		optional("outcome", c.Outcome), optional("path", c.Path), optional("correlation", c.Correlation), optional("cursor", cursor),
		canonjson.M("order", canonjson.String(order)), canonjson.M("limit", canonjson.Int(int64(limit))),
	}
	if c.Denied {
		in = append(in, canonjson.M("denied", canonjson.Bool(true)))
	}
	return in
}

// auditLine is an entry on one line: time, outcome, who, operation, target, and why.
func auditLine(e canonjson.Value) string {
	var words []string
	for _, name := range []string{"time", "outcome", "subject", "operation", "target"} {
		text := "-"
		if v := e.Get(name).Str(); v != "" {
			text = word(v)
		}
		words = append(words, text)
	}
	line := strings.Join(words, "  ")
	for _, name := range []string{"revision", "rule", "note", "count", "client", "correlation"} {
		if v := e.Get(name); !v.IsAbsent() {
			text := v.Str()
			if v.Kind() != canonjson.KindString {
				text = v.String()
			}
			line += "  " + name + "=" + word(text)
		}
	}
	return line
}

// verifyAuditCommand verifies the audit trail.
type verifyAuditCommand struct {
	place
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*verifyAuditCommand) Help() string {
	return `Follows the chain of every process that wrote, and its signed heads. check does the same among other things.

Here exit code 1 says that entries were removed or altered. ` + exitHelp
}

// Run verifies.
func (c *verifyAuditCommand) Run(env *Env) error {
	cfg, err := c.loadStore(env)
	if err != nil {
		return err
	}
	out, err := operate(env, cfg, "operator.audit.verify", canonjson.Object())
	if err != nil {
		return err
	}
	damage := out.Get("damage").Items()
	if c.JSON {
		err = printValue(env, out)
	} else {
		err = verifyWords(env, out, damage)
	}
	if err == nil && len(damage) > 0 {
		return &exitError{exitFindings, nil}
	}
	return err
}

// verifyWords prints a verification for a person.
func verifyWords(env *Env, out canonjson.Value, damage []canonjson.Value) error {
	for _, d := range damage {
		fmt.Fprintf(env.Stdout, "damage: writer %s, position %d: %s\n", d.Get("writer").Str(), number(d, "position"), d.Get("what").Str())
	}
	verdict := "the audit trail is whole"
	if n := int64(len(damage)) + number(out, "omitted"); n > 0 {
		verdict = "the audit trail is not whole: " + counted(n, "damage")
	}
	_, err := fmt.Fprintf(env.Stdout, "%s; %s of %s, %s behind the last signed head\n", verdict,
		counted(number(out, "rows"), "entry"), counted(number(out, "writers"), "process"), counted(number(out, "unsigned"), "entry"))
	return err
}
