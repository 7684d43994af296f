package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	Roles  roleList `placeholder:"ROLE,..." help:"Roles of the client, in a quick form; STORE_ROLES, or else admin. '' is none."`
}

// asked tells whether the quick form of models is meant.
func (m *modelFlags) asked() bool { return m.Models != "" || m.Source != "" }

// prepare fills in what environment variables say, and gives p the folder that the server needs. done removes what was
// made for the process alone.
func (m *modelFlags) prepare(env *Env, p *place) (done func(), err error) {
	done = func() {}
	if !m.asked() {
		if m.Write || len(m.Accept) > 0 || m.Data != "" {
			return done, failed("--write, --accept and --data go with --models and --source")
		}
		return done, nil
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
	m.people(env)
	p.models = m
	if p.Persistence != "" || m.Data != "" {
		return done, nil
	}
	if m.Data, err = os.MkdirTemp("", "tabellion-"); err != nil {
		return done, fmt.Errorf("make a folder for the audit trail: %w", err)
	}
	say(env, "tabellion: the audit trail lasts as long as this process; --data DIR keeps it")
	return func() { _ = os.RemoveAll(m.Data) }, nil
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

// configure adds the section models, and the policy that goes with it: everybody who gets in may use the models, as far
// as their role lists say.
func (m *modelFlags) configure(cfg *tabellion.Config, alone bool) error {
	models := config.DefaultModels()
	models.Unconfigured = model.ReadOpen
	var err error
	if models.Definitions, err = filepath.Abs(m.Models); err != nil {
		return err
	}
	source := &config.ModelSource{Read: here(m.Source), Accept: m.Accept}
	capabilities := []string{string(policy.ModelsRead)}
	if m.Write {
		source.Write = source.Read
		capabilities = append(capabilities, string(policy.ModelsWrite))
	}
	models.Sources = map[string]*config.ModelSource{"default": source}
	cfg.Models, cfg.Alone = models, alone
	if cfg.Policy != nil {
		return errors.New("a quick form has no section policy")
	}
	cfg.Policy = &policy.Config{
		Roles:       map[string][]string{"models": capabilities},
		Assignments: []policy.Assignment{{Subject: "*", Role: "models", On: "/models/**"}},
	}
	return nil
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
		return fmt.Sprintf("models of %s, read and written", m.Models)
	}
	return fmt.Sprintf("models of %s, read only (--write lets callers write)", m.Models)
}
