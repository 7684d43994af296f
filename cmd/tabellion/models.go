package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/introspect"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// modelsCommand looks at databases and their model definitions.
type modelsCommand struct {
	Introspect introspectCommand `cmd:"" help:"Write model definitions of a database."`
	Check      modelsCheck       `cmd:"" help:"Compare definitions with their database."`
	DDL        modelsDDL         `cmd:"" name:"ddl" help:"Print statements that create or extend the tables of definitions."`
	Query      modelsQuery       `cmd:"" help:"Run a query, as a table on a terminal and as JSON in a pipe."`
	Describe   modelsDescribe    `cmd:"" help:"Show models, fields and relations as a caller sees them."`
}

// modelPlace says which definitions and which database a command is about.
type modelPlace struct {
	Config string   `short:"c" placeholder:"FILE" help:"Configuration file; tabellion.yaml in the working folder when there is one."`
	Models string   `placeholder:"PATH" help:"Model definitions, a file or a folder, in place of a configuration file. STORE_SCHEMA by default, with --source."`
	Source string   `placeholder:"URL" help:"Database: sqlite:PATH, postgres://..., env:NAME or file:PATH."`
	Name   string   `default:"default" placeholder:"NAME" help:"Name of the database in the configuration."`
	Accept []string `placeholder:"NAME" help:"Accept a right of the database's role that it should not have. May be repeated."`
}

// configuration is the section models that the command is about. needSource: without a database it is of no use.
func (p *modelPlace) configuration(env *Env, needSource bool) (*tabellion.Config, error) {
	if p.Models == "" && p.Source != "" {
		p.Models = env.getenv("STORE_SCHEMA")
	}
	if p.Models == "" {
		if p.Source != "" {
			return nil, failed("--source needs --models PATH, or STORE_SCHEMA")
		}
		l := place{Config: p.Config}
		cfg, err := l.load(env)
		if err != nil {
			return nil, err
		}
		if cfg.Models == nil {
			return nil, failed("the configuration has no section models; give --models PATH --source URL")
		}
		for _, s := range cfg.Models.Sources {
			s.Accept = append(s.Accept, p.Accept...)
		}
		return cfg, nil
	}
	if p.Config != "" {
		return nil, failed("--config and --models exclude each other")
	}
	if p.Source == "" && needSource {
		return nil, failed("--models needs --source URL, such as sqlite:app.db")
	}
	cfg := tabellion.DefaultConfig()
	cfg.Models = config.DefaultModels()
	cfg.Models.Unconfigured = model.ReadOpen
	var err error
	if cfg.Models.Definitions, err = filepath.Abs(p.Models); err != nil {
		return nil, err
	}
	cfg.Models.Sources = map[string]*config.ModelSource{p.Name: {Read: here(p.Source), Accept: p.Accept}}
	return cfg, nil
}

// open opens the databases.
func (p *modelPlace) open(env *Env, log *slog.Logger) (*tabellion.Data, error) {
	cfg, err := p.configuration(env, true)
	if err != nil {
		return nil, err
	}
	data, err := tabellion.OpenData(env.Ctx, cfg, tabellion.Options{Log: log})
	if err != nil {
		return nil, refused(err)
	}
	return data, nil
}

// stderrLog writes warnings for a person.
func stderrLog(env *Env) *slog.Logger {
	return slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// introspectCommand writes definitions of a database.
type introspectCommand struct {
	Source string   `required:"" placeholder:"URL" help:"Database: sqlite:PATH, postgres://..., env:NAME or file:PATH."`
	Schema []string `placeholder:"NAME" help:"Only tables of this schema. May be repeated."`
	Table  []string `placeholder:"NAME" help:"Only this table. May be repeated."`
	Out    string   `short:"o" placeholder:"FILE" help:"Write to a new file in place of standard output."`
}

// Help is the end of the help text.
func (*introspectCommand) Help() string {
	return `Nothing is changed. The definitions give read to the role reader and write to the role writer; comments of the database become descriptions. Review the file before you serve it: what it says is what agents read. What was left out is printed to standard error, one line each.

` + exitHelp
}

// Run reads the catalog and writes definitions.
func (c *introspectCommand) Run(env *Env) error {
	source, err := tabellion.OpenSource(env.Ctx, &config.ModelSource{Read: here(c.Source)}, 0)
	if err != nil {
		return refused(err)
	}
	defer source.Close()
	tables, err := source.Tables(env.Ctx)
	if err != nil {
		return refused(err)
	}
	tables = slices.DeleteFunc(tables, func(t plan.Table) bool {
		return len(c.Schema) > 0 && !slices.Contains(c.Schema, t.Schema) || len(c.Table) > 0 && !slices.Contains(c.Table, t.Name)
	})
	result := introspect.Definitions(tables)
	if err := model.NewRegistry(model.Options{}).Register(result.Definitions...); err != nil {
		return failed("the definitions that were made cannot be read back: %w", err)
	}
	if err := c.write(env, definitionText(result.Definitions)); err != nil {
		return err
	}
	for _, left := range result.Left {
		say(env, "left out: %s", graphic(left.String()))
	}
	say(env, "%d models of %d tables and views; %d things left out", len(result.Definitions), len(tables), len(result.Left))
	return nil
}

// write prints the definitions, or writes a file that must not be there yet: it may have been reviewed.
func (c *introspectCommand) write(env *Env, text []byte) error {
	if c.Out == "" {
		_, err := env.Stdout.Write(text)
		return err
	}
	f, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return failed("%s is there already; write to another file and compare", c.Out)
	}
	if err != nil {
		return failed("%w", err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// definitionText is a list of definitions as a person edits it: one member a line, small values on one.
func definitionText(definitions []canonjson.Value) []byte {
	out := []byte("[")
	for i, d := range definitions {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, "\n  "...)
		out = indented(out, d, "  ")
	}
	return append(out, "\n]\n"...)
}

// shortValue is how long a value may be and stand on one line.
const shortValue = 100

// indented appends v, broken into lines where it is long.
func indented(out []byte, v canonjson.Value, indent string) []byte {
	plain := v.AppendJSON(nil)
	if v.Kind() != canonjson.KindObject || len(plain) <= shortValue && len(indent) > 2 || v.Len() == 0 {
		return append(out, plain...)
	}
	out = append(out, "{\n"...)
	for i, m := range v.Members() {
		if i > 0 {
			out = append(out, ",\n"...)
		}
		out = append(out, indent+"  "...)
		out = append(canonjson.String(m.Name).AppendJSON(out), ": "...)
		out = indented(out, m.Value, indent+"  ")
	}
	return append(out, "\n"+indent+"}"...)
}

// modelsCheck compares definitions with their database.
type modelsCheck struct {
	modelPlace
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Help is the end of the help text.
func (*modelsCheck) Help() string {
	return "Names every difference, and what to do about it. Errors make the exit code 1; warnings alone do not. It says too what the roles of the database can do that they should not.\n\n" + exitHelp
}

// Run compares every database of the configuration, or the one that is given.
func (c *modelsCheck) Run(env *Env) error {
	cfg, err := c.configuration(env, true)
	if err != nil {
		return err
	}
	registry, _, err := tabellion.Definitions(cfg.Models)
	if err != nil {
		return refused(err)
	}
	names := make([]string, 0, len(cfg.Models.Sources))
	for name := range cfg.Models.Sources {
		names = append(names, name)
	}
	slices.Sort(names)
	var findings []introspect.Finding
	var dangers []string
	for _, name := range names {
		f, d, err := checkSource(env, registry, name, cfg.Models.Sources[name])
		if err != nil {
			return refused(fmt.Errorf("%s: %w", name, err))
		}
		findings, dangers = append(findings, f...), append(dangers, d...)
	}
	for _, m := range registry.List() {
		if cfg.Models.Sources[m.Source] == nil {
			findings = append(findings, introspect.Finding{Severity: introspect.Error, Model: m.Name,
				Text: "its source " + m.Source + " is not configured", Do: "add it to models.sources, or correct datasource"})
		}
	}
	return c.report(env, findings, dangers)
}

// checkSource compares the models of one database.
func checkSource(env *Env, registry *model.Registry, name string, c *config.ModelSource) ([]introspect.Finding, []string, error) {
	source, err := tabellion.OpenSource(env.Ctx, c, 0)
	if err != nil {
		return nil, nil, err
	}
	defer source.Close()
	tables, err := source.Tables(env.Ctx)
	if err != nil {
		return nil, nil, err
	}
	rights, err := source.Rights(env.Ctx)
	if err != nil {
		return nil, nil, err
	}
	var dangers []string
	for _, role := range []plan.Role{rights.Reader, rights.Writer} {
		for _, d := range role.Dangers {
			if line := fmt.Sprintf("%s: %s (accept: %s)", name, d.Text, d.Name); !slices.Contains(c.Accept, d.Name) && !slices.Contains(dangers, line) {
				dangers = append(dangers, line)
			}
		}
	}
	models := slices.DeleteFunc(registry.List(), func(m *model.Model) bool { return m.Source != name })
	return introspect.Check(models, tables, source.Features()), dangers, nil
}

// report prints the findings.
func (c *modelsCheck) report(env *Env, findings []introspect.Finding, dangers []string) error {
	faults := len(dangers)
	var items []canonjson.Value
	for _, f := range findings {
		if f.Severity == introspect.Error {
			faults++
		}
		items = append(items, canonjson.Object(
			canonjson.M("severity", canonjson.String(string(f.Severity))), canonjson.M("model", canonjson.String(f.Model)),
			canonjson.M("member", optionalText(f.Member)), canonjson.M("text", canonjson.String(f.Text)), canonjson.M("do", canonjson.String(f.Do))))
	}
	if c.JSON {
		if err := printValue(env, canonjson.Object(canonjson.M("findings", canonjson.Array(items...)), canonjson.M("rights", stringList(dangers)))); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			fmt.Fprintln(env.Stdout, graphic(f.String()))
		}
		for _, d := range dangers {
			fmt.Fprintln(env.Stdout, "error: rights: "+graphic(d))
		}
	}
	if faults > 0 {
		return &exitError{exitFindings, errors.New(fmt.Sprintf("%d errors, %d warnings", faults, len(findings)+len(dangers)-faults))}
	}
	say(env, "definitions and database agree; %d warnings", len(findings))
	return nil
}

// optionalText is a text, or Absent for an empty one.
func optionalText(s string) canonjson.Value {
	if s == "" {
		return canonjson.Value{}
	}
	return canonjson.String(s)
}

// stringList is a JSON array of texts.
func stringList(all []string) canonjson.Value {
	items := make([]canonjson.Value, len(all))
	for i, s := range all {
		items[i] = canonjson.String(s)
	}
	return canonjson.Array(items...)
}

// modelsDDL prints statements for the tables of definitions.
type modelsDDL struct {
	modelPlace
	Engine      string `enum:",sqlite,postgres" default:"" placeholder:"ENGINE" help:"sqlite or postgres; that of the database by default."`
	Migrate     bool   `help:"Only what the database lacks, by adding."`
	Idempotency bool   `help:"Only the table that remembers idempotency keys of writes."`
}

// Help is the end of the help text.
func (*modelsDDL) Help() string {
	return "Statements are printed and never sent. With --migrate they add tables, columns and indexes and widen numbers; whatever else would be needed is named, and the exit code is 1.\n\n" + exitHelp
}

// Run prints the statements.
func (c *modelsDDL) Run(env *Env) error {
	if c.Idempotency && c.Engine != "" && c.Models == "" && c.Config == "" && c.Source == "" {
		_, err := fmt.Fprintln(env.Stdout, sqlgen.IdempotencyDDL(sqlgen.Engine(c.Engine)))
		return err
	}
	cfg, err := c.configuration(env, c.Migrate)
	if err != nil {
		return err
	}
	registry, _, err := tabellion.Definitions(cfg.Models)
	if err != nil {
		return refused(err)
	}
	models := slices.DeleteFunc(registry.List(), func(m *model.Model) bool { return m.Source != c.Name })
	engine, err := c.engine(cfg)
	if err != nil {
		return err
	}
	switch {
	case c.Idempotency:
		_, err = fmt.Fprintln(env.Stdout, sqlgen.IdempotencyDDL(engine))
		return err
	case !c.Migrate:
		return printStatements(env, sqlgen.DDL(engine, models))
	}
	return c.migrate(env, cfg, engine, models)
}

// engine is the kind of database that statements are for.
func (c *modelsDDL) engine(cfg *tabellion.Config) (sqlgen.Engine, error) {
	if c.Engine != "" {
		return sqlgen.Engine(c.Engine), nil
	}
	s := cfg.Models.Sources[c.Name]
	if s == nil || s.Read == "" {
		return "", failed("say for which kind of database: --engine sqlite or --engine postgres")
	}
	address, err := config.Address(s.Read, os.Getenv)
	if err != nil {
		return "", failed("%w", err)
	}
	if strings.HasPrefix(address, "sqlite:") {
		return sqlgen.EngineSQLite, nil
	}
	return sqlgen.EnginePostgres, nil
}

// migrate prints what a database lacks.
func (c *modelsDDL) migrate(env *Env, cfg *tabellion.Config, engine sqlgen.Engine, models []*model.Model) error {
	s := cfg.Models.Sources[c.Name]
	if s == nil {
		return failed("there is no source %q in models.sources", c.Name)
	}
	source, err := tabellion.OpenSource(env.Ctx, s, 0)
	if err != nil {
		return refused(err)
	}
	defer source.Close()
	tables, err := source.Tables(env.Ctx)
	if err != nil {
		return refused(err)
	}
	statements, err := sqlgen.Migrate(engine, models, func(m *model.Model) *plan.Table {
		return introspect.Find(m, tables)
	})
	if printErr := printStatements(env, statements); printErr != nil {
		return printErr
	}
	var unsupported *sqlgen.MigrationError
	if errors.As(err, &unsupported) {
		return &exitError{exitFindings, errors.New(err.Error())}
	}
	return err
}

// printStatements prints statements, one after the other.
func printStatements(env *Env, statements []string) error {
	for _, s := range statements {
		if _, err := fmt.Fprintln(env.Stdout, s); err != nil {
			return err
		}
	}
	if len(statements) == 0 {
		say(env, "nothing to do")
	}
	return nil
}

// readText reads a flag that holds text, or @FILE.
func readText(s string) (string, error) {
	path, ok := strings.CutPrefix(s, "@")
	if !ok {
		return s, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20+1))
	return string(text), err
}
