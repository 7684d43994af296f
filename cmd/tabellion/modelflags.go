package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/policy"
)

// modelFlags are the quick form of the slot models: definitions and a database in place of a configuration file.
type modelFlags struct {
	Models string   `placeholder:"PATH" help:"Model definitions, a file or a folder, in place of a configuration file; with --source. STORE_SCHEMA by default."`
	Source string   `placeholder:"URL" help:"Database of the models: sqlite:PATH, postgres://..., env:NAME or file:PATH."`
	Write  bool     `help:"Let callers write the database of the models, as far as their roles may. Without it the database is only read."`
	Accept []string `placeholder:"NAME" help:"Accept a right of the database's role that it should not have. May be repeated."`
	Data   string   `placeholder:"DIR" help:"Where the audit trail and keys are kept, with --models. Without it they last as long as the process."`
	User   string   `placeholder:"NAME" help:"Who the client is, in a quick form; STORE_USER, or else the operating system's user."`
	Roles  roleList `placeholder:"ROLE,..." help:"Roles of the client, in a quick form; STORE_ROLES, or else admin. --roles= gives none."`

	name string // of the database, as the definitions say
}

// defaultSource is the database of definitions that name none.
const defaultSource = "default"

// asked tells whether the quick form of models is meant.
func (m *modelFlags) asked() bool { return m.Models != "" || m.Source != "" }

// prepare fills in what environment variables say, reads the definitions, and gives p the folder that the server needs.
// done removes what was made for the process alone.
func (m *modelFlags) prepare(env *Env, p *place) (done func(), err error) {
	done = func() {}
	if !m.asked() {
		return done, m.unasked(env, p)
	}
	if m.Models == "" {
		m.Models = env.getenv("STORE_SCHEMA")
	}
	switch {
	case p.Config != "":
		return done, failed("--config and --models exclude each other: the file names definitions and databases in its section models")
	case m.Models == "":
		return done, failed("--source needs --models PATH (or STORE_SCHEMA); tabellion models introspect --source URL writes definitions of a database")
	case m.Source == "":
		return done, failed("--models needs --source URL, such as sqlite:app.db")
	case p.Persistence != "" && m.Data != "":
		return done, failed("--persistence names the data folder already; leave --data out")
	}
	if err := goodSource(env, m.Source); err != nil {
		return done, err
	}
	if m.name, err = sourceName(m.Models); err != nil {
		return done, err
	}
	m.people(env)
	p.models = m
	if p.Persistence != "" || m.Data != "" {
		return done, nil
	}
	if m.Data, err = os.MkdirTemp("", "tabellion-"); err != nil {
		return done, refused(fmt.Errorf("make a folder for the audit trail: %w; --data DIR names another place", err))
	}
	say(env, "tabellion: the audit trail lasts as long as this process; --data DIR keeps it")
	return func() { _ = os.RemoveAll(m.Data) }, nil
}

// unasked refuses flags that only the quick form has, and says what it needs where nothing else is given.
func (m *modelFlags) unasked(env *Env, p *place) error {
	switch {
	case m.Write || len(m.Accept) > 0 || m.Data != "":
		return failed("--write, --accept and --data go with --models PATH and --source URL")
	case p.quick() || p.Config != "" || found() != "":
		return nil
	case env.getenv("STORE_SCHEMA") != "":
		return failed("STORE_SCHEMA names model definitions; say which database they are of: --source URL, such as sqlite:app.db")
	}
	return failed("there is no %s here: give --models PATH --source URL, --persistence DIR or --config FILE, or run: tabellion init", defaultFile)
}

// goodSource refuses an address that no database can have, before anything is opened. An address may hold a password,
// so it is not repeated.
func goodSource(env *Env, text string) error {
	address, err := config.Address(text, env.getenv)
	if err != nil {
		return failed("--source: %w", err)
	}
	kind, rest, colon := strings.Cut(address, ":")
	switch {
	case !colon && address == text:
		return failed("--source %s: write sqlite:%[1]s for an SQLite file, or postgres://HOST/DATABASE", graphic(text))
	case kind == "sqlite" && colon:
		if strings.TrimPrefix(rest, "//") == "" {
			return failed("--source sqlite: names no file; write sqlite:app.db")
		}
		return nil
	case kind == "postgres" || kind == "postgresql":
		if u, err := url.Parse(text); err == nil && u.User != nil {
			if _, has := u.User.Password(); has {
				say(env, "tabellion: other users of this machine can read a password on the command line; --source env:NAME or file:PATH keeps it from them")
			}
		}
		return nil
	case slices.Contains([]string{"mysql", "mariadb", "mongodb", "mongodb+srv"}, kind):
		return failed("--source: %s is not served in this version; sqlite: and postgres:// are", kind)
	}
	return failed("--source: an address begins with sqlite: or postgres://; env:NAME and file:PATH refer to one")
}

// sourceName is the name that definitions give their database. The quick form serves one, whatever it is called.
func sourceName(definitions string) (string, error) {
	registry, _, err := tabellion.Definitions(&config.Models{Definitions: definitions, Unconfigured: model.ReadOpen})
	if err != nil {
		return "", refused(err)
	}
	names := sourcesOf(registry)
	if len(names) > 1 {
		return "", failed("the definitions are of several databases, %s; one --source cannot be all of them: name them in a configuration file, in models.sources", strings.Join(names, ", "))
	}
	return names[0], nil
}

// sourcesOf are the names of the databases that definitions are of: default alone when there are no definitions.
func sourcesOf(registry *model.Registry) []string {
	var names []string
	for _, m := range registry.List() {
		names = append(names, m.Source)
	}
	if slices.Sort(names); len(names) == 0 {
		return []string{defaultSource}
	}
	return slices.Compact(names)
}

// people fills in who the client is.
func (m *modelFlags) people(env *Env) {
	if m.User == "" {
		m.User = env.getenv("STORE_USER")
	}
	if !m.Roles.given {
		if text, set := env.lookup("STORE_ROLES"); set {
			m.Roles.given = true
			m.Roles.names = splitRoles(text)
		}
	}
}

// splitRoles reads a list of roles, separated by commas.
func splitRoles(text string) []string {
	var names []string
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// me is who the client is.
func (m *modelFlags) me() *config.Local {
	me := osUser()
	if m.User != "" {
		me.Subject = m.User
	}
	if m.Roles.given {
		me.Roles = append([]string{}, m.Roles.names...)
	}
	return me
}

// begin sets the section models before the rest of the configuration is read, so that flags and variables still count.
func (m *modelFlags) begin(cfg *config.Config) {
	models := config.DefaultModels()
	models.Unconfigured = model.ReadOpen
	models.Definitions = m.Models
	source := &config.ModelSource{Read: here(m.Source), Accept: m.Accept}
	if m.Write {
		source.Write = source.Read
		source.Accept = append(slices.Clone(source.Accept), "reader-writes") // the one address is that of a writer, as --write says
	}
	models.Sources = map[string]*config.ModelSource{m.name: source}
	cfg.Models = models
}

// allow adds the policy that goes with the quick form: everybody who gets in may use the models, as far as their role
// lists say.
func (m *modelFlags) allow(cfg *tabellion.Config) {
	capabilities := []string{string(policy.ModelsRead)}
	if m.Write {
		capabilities = append(capabilities, string(policy.ModelsWrite))
	}
	cfg.Policy = &policy.Config{
		Roles:       map[string][]string{"models": capabilities},
		Assignments: []policy.Assignment{{Subject: "*", Role: "models", On: "/models/**"}},
	}
}

// here takes the relative path of an address from the working folder.
func here(address string) string {
	for _, scheme := range []string{"sqlite:", "file:"} {
		if path, ok := strings.CutPrefix(address, scheme); ok && path != "" && !strings.HasPrefix(path, "//") {
			if abs, err := filepath.Abs(path); err == nil {
				return scheme + abs
			}
		}
	}
	return address
}

// words tell what the quick form serves.
func (m *modelFlags) words() string {
	if m.Write {
		return fmt.Sprintf("the models in %s, to read and to write", m.Models)
	}
	return fmt.Sprintf("the models in %s, to read only; with --write callers may write", m.Models)
}
