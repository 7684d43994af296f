package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// keysCommand holds the commands about API keys.
type keysCommand struct {
	Create createKeyCommand `cmd:"" help:"Make a key and show it, once."`
	List   listKeysCommand  `cmd:"" help:"List the keys."`
	Show   showKeyCommand   `cmd:"" help:"Show what is kept of a key."`
	Revoke revokeKeyCommand `cmd:"" help:"End a key at once."`
	Rotate rotateKeyCommand `cmd:"" help:"Make a key with the same rights; the old one ends after a grace."`
	Prune  pruneKeysCommand `cmd:"" help:"Forget keys that have been revoked or expired for long."`
}

// Help is the end of the help text.
func (*keysCommand) Help() string { return exitHelp }

// keysPlace is the part that all of them share.
type keysPlace struct {
	place
	JSON bool `name:"json" help:"Print one JSON object."`
}

// call runs an operator operation on the keys. A server that holds the folder does it; otherwise this process.
func (p *keysPlace) call(env *Env, operation string, makes bool, in ...canonjson.Member) (canonjson.Value, error) {
	cfg, err := p.load(env)
	if err != nil {
		return canonjson.Value{}, err
	}
	if !makes {
		if err := needStore(cfg); err != nil {
			return canonjson.Value{}, err
		}
	}
	return operate(env, cfg, operation, canonjson.Object(in...))
}

// optional is a member that is left out when it is empty.
func optional(name, value string) canonjson.Member {
	if value == "" {
		return canonjson.M(name, canonjson.Value{})
	}
	return canonjson.M(name, canonjson.String(value))
}

// optionalList is a list that is left out when it is empty.
func optionalList(name string, values []string) canonjson.Member {
	if len(values) == 0 {
		return canonjson.M(name, canonjson.Value{})
	}
	return canonjson.M(name, texts(values))
}

// made prints a key that was just made: the key alone on stdout, everything else on stderr.
func (p *keysPlace) made(env *Env, out canonjson.Value) error {
	key, secret := out.Get("key"), out.Get("secret").Str()
	id := key.Get("id").Str()
	if p.JSON {
		members := append([]canonjson.Member{canonjson.M("key", canonjson.String(secret))}, key.Members()...)
		return unseen(id, printValue(env, canonjson.Object(append(members, canonjson.M("notes", out.Get("notes")))...)))
	}
	if _, err := fmt.Fprintln(env.Stdout, secret); err != nil {
		return unseen(id, err)
	}
	say(env, "This is the only time that the key is shown. Its id is %s; it acts as user:%s with %s%s.",
		id, key.Get("user").Str(), rolesOf(key), restOf(key))
	for _, note := range out.Get("notes").Items() {
		say(env, "Note: %s", note.Str())
	}
	return nil
}

// unseen is the error of a key that is made and that nobody could read: with its id it can be ended.
func unseen(id string, err error) error {
	if err == nil {
		return nil
	}
	return failed("the key %s is made, but it could not be written to standard output and cannot be shown again; end it with: keys revoke %s: %w", id, id, err)
}

// restOf says what else holds for a key, in a sentence.
func restOf(key canonjson.Value) string {
	var rest string
	if only := wordsOf(key.Get("only")); only != "" {
		rest += ", only for " + only
	}
	if tenant := key.Get("tenant").Str(); tenant != "" {
		rest += ", in the tenant " + tenant
	}
	if at := key.Get("expiresAt").Str(); at != "" {
		return rest + ", until " + at
	}
	return rest + ", without an end"
}

// rolesOf names a key's roles in a sentence.
func rolesOf(key canonjson.Value) string {
	roles := wordsOf(key.Get("roles"))
	if roles == "" {
		return "no role"
	}
	return "the roles " + roles
}

// wordsOf joins the texts of an array.
func wordsOf(v canonjson.Value) string {
	var out []string
	for _, item := range v.Items() {
		out = append(out, item.Str())
	}
	return strings.Join(out, ", ")
}

// printValue prints a value as one line of JSON.
func printValue(env *Env, v canonjson.Value) error {
	return printJSON(env, json.RawMessage(v.AppendJSON(nil)))
}

// createKeyCommand makes a key.
type createKeyCommand struct {
	keysPlace
	User       string   `required:"" placeholder:"NAME" help:"Whom the key acts as: ana is the subject user:ana."`
	Name       string   `required:"" placeholder:"WORDS" help:"What the key is for."`
	Roles      roleList `placeholder:"ROLE,..." help:"Roles of the key. Without one it can do nothing but what the policy gives its user by name."`
	Only       []string `sep:"none" placeholder:"CAPABILITY@PATH" help:"Narrow the key to this. May be repeated."`
	Tenant     string   `placeholder:"NAME" help:"Tenant of the key."`
	Expires    string   `placeholder:"TIME" help:"90d, 12h, or a time such as 2027-01-31T12:00:00Z; never by default."`
	Workspaces []string `hidden:"" placeholder:"NAME,..." help:"Not part of this version."`
}

// Help is the end of the help text.
func (*createKeyCommand) Help() string {
	return "The key alone goes to standard output. A running server takes it at once.\n\n" + exitHelp
}

// Run makes it.
func (c *createKeyCommand) Run(env *Env) error {
	out, err := c.call(env, "operator.keys.create", true,
		canonjson.M("user", canonjson.String(c.User)), canonjson.M("name", canonjson.String(c.Name)),
		optionalList("roles", c.Roles.names), optionalList("only", c.Only), optional("tenant", c.Tenant),
		optional("expires", c.Expires), optionalList("workspaces", c.Workspaces))
	if err != nil {
		return err
	}
	return c.made(env, out)
}

// listKeysCommand lists keys.
type listKeysCommand struct {
	keysPlace
	User string `placeholder:"NAME" help:"Only keys of this user."`
	Live bool   `help:"Only keys that can be used."`
}

// Help is the end of the help text.
func (*listKeysCommand) Help() string { return exitHelp }

// Run lists them.
func (c *listKeysCommand) Run(env *Env) error {
	in := []canonjson.Member{optional("user", c.User)}
	if c.Live {
		in = append(in, canonjson.M("live", canonjson.Bool(true)))
	}
	out, err := c.call(env, "operator.keys.list", false, in...)
	if err != nil {
		return err
	}
	if c.JSON {
		return printValue(env, out)
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tUSER\tNAME\tHINT\tROLES\tSTATE\tCREATED\tLAST USED")
	for _, k := range out.Get("keys").Items() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.Get("id").Str(), k.Get("user").Str(), k.Get("name").Str(),
			k.Get("hint").Str(), orDash(wordsOf(k.Get("roles"))), keyState(k), k.Get("createdAt").Str(), orDash(k.Get("lastUsedAt").Str()))
	}
	return w.Flush()
}

// orDash shows an empty cell.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// keyState says in a word or two whether a key can be used.
func keyState(k canonjson.Value) string {
	switch {
	case !k.Get("revokedAt").IsAbsent():
		return "revoked"
	case !k.Get("live").Bool():
		return "expired"
	case !k.Get("expiresAt").IsAbsent():
		return "until " + k.Get("expiresAt").Str()
	}
	return "live"
}

// showKeyCommand shows one key.
type showKeyCommand struct {
	keysPlace
	ID string `arg:"" help:"The key's id, as keys list shows it."`
}

// Help is the end of the help text.
func (*showKeyCommand) Help() string { return exitHelp }

// Run shows it.
func (c *showKeyCommand) Run(env *Env) error {
	out, err := c.call(env, "operator.keys.show", false, canonjson.M("id", canonjson.String(c.ID)))
	if err != nil {
		return err
	}
	return c.key(env, out)
}

// key prints what is kept of a key.
func (p *keysPlace) key(env *Env, k canonjson.Value) error {
	if p.JSON {
		return printValue(env, k)
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	for _, m := range k.Members() {
		value := m.Value.Str()
		switch m.Value.Kind() {
		case canonjson.KindArray:
			value = wordsOf(m.Value)
		case canonjson.KindString:
		default:
			value = m.Value.String()
		}
		fmt.Fprintf(w, "%s\t%s\n", m.Name, orDash(value))
	}
	return w.Flush()
}

// revokeKeyCommand ends a key.
type revokeKeyCommand struct {
	keysPlace
	ID     string `arg:"" help:"The key's id, as keys list shows it."`
	Reason string `placeholder:"WORDS" help:"Why; it is kept with the key and in the audit trail."`
}

// Help is the end of the help text.
func (*revokeKeyCommand) Help() string {
	return "A running server refuses the key at once. A key that was revoked before stays as it is.\n\n" + exitHelp
}

// Run ends it.
func (c *revokeKeyCommand) Run(env *Env) error {
	out, err := c.call(env, "operator.keys.revoke", false, canonjson.M("id", canonjson.String(c.ID)), optional("reason", c.Reason))
	if err != nil {
		return err
	}
	return c.key(env, out)
}

// rotateKeyCommand replaces a key.
type rotateKeyCommand struct {
	keysPlace
	ID      string `arg:"" help:"The key's id, as keys list shows it."`
	Grace   string `placeholder:"TIME" help:"How long the old key stays good, such as 24h; 0h is not at all. A day by default."`
	Expires string `placeholder:"TIME" help:"When the new key ends; by default when the old one was to."`
}

// Help is the end of the help text.
func (*rotateKeyCommand) Help() string {
	return "The new key alone goes to standard output.\n\n" + exitHelp
}

// Run replaces it.
func (c *rotateKeyCommand) Run(env *Env) error {
	out, err := c.call(env, "operator.keys.rotate", false,
		canonjson.M("id", canonjson.String(c.ID)), optional("grace", c.Grace), optional("expires", c.Expires))
	if err != nil {
		return err
	}
	return c.made(env, out)
}

// pruneKeysCommand forgets dead keys.
type pruneKeysCommand struct {
	keysPlace
	Age string `placeholder:"TIME" help:"Keys that have been dead for longer than this, such as 90d; 30d by default."`
}

// Help is the end of the help text.
func (*pruneKeysCommand) Help() string { return exitHelp }

// Run forgets them.
func (c *pruneKeysCommand) Run(env *Env) error {
	out, err := c.call(env, "operator.keys.prune", false, optional("age", c.Age))
	if err != nil {
		return err
	}
	if c.JSON {
		return printValue(env, out)
	}
	for _, id := range out.Get("ids").Items() {
		fmt.Fprintln(env.Stdout, id.Str())
	}
	say(env, "%d keys forgotten", out.Get("ids").Len())
	return nil
}
