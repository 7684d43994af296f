package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

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
	Models string   `placeholder:"PATH" help:"Model definitions, a file or a folder, in place of a configuration file. STORE_SCHEMA by default."`
	Source string   `placeholder:"URL" help:"Database: sqlite:PATH, postgres://..., env:NAME or file:PATH."`
	Name   string   `placeholder:"NAME" help:"Only this database of the configuration's models.sources."`
	Accept []string `placeholder:"NAME" help:"Accept a right of the database's role that it should not have. May be repeated."`
}

// configuration is the section models that the command is about. needSource: without a database it is of no use.
func (p *modelPlace) configuration(env *Env, needSource bool) (*tabellion.Config, error) {
	if p.Models == "" && p.Config == "" && (p.Source != "" || found() == "") {
		p.Models = env.getenv("STORE_SCHEMA")
	}
	switch {
	case p.Models == "" && p.Source != "":
		return nil, failed("--source needs --models PATH (or STORE_SCHEMA); tabellion models introspect --source URL writes definitions of a database")
	case p.Models == "":
		return p.configured(env)
	case p.Config != "":
		return nil, failed("--config and --models exclude each other: the file names definitions and databases in its section models")
	case p.Source == "" && needSource:
		return nil, failed("--models needs --source URL, such as sqlite:app.db")
	}
	return p.quick(env)
}

// configured is the section models of the configuration file, of one database when a name is given.
func (p *modelPlace) configured(env *Env) (*tabellion.Config, error) {
	if p.Config == "" && found() == "" {
		return nil, failed("there is no %s here: give --models PATH --source URL, or --config FILE", defaultFile)
	}
	cfg, err := (&place{Config: p.Config}).load(env)
	if err != nil {
		return nil, err
	}
	if cfg.Models == nil {
		return nil, failed("the configuration has no section models; give --models PATH --source URL")
	}
	for _, s := range cfg.Models.Sources {
		s.Accept = append(s.Accept, p.Accept...)
	}
	if p.Name == "" {
		return cfg, nil
	}
	if cfg.Models.Sources[p.Name] == nil {
		return nil, failed("there is no database %s in models.sources; there are: %s", word(p.Name), strings.Join(sourceNames(cfg.Models), ", "))
	}
	return cfg, nil
}

// quick is the section models of the flags.
func (p *modelPlace) quick(env *Env) (*tabellion.Config, error) {
	name := p.Name
	if p.Source != "" {
		if name != "" {
			return nil, failed("--name goes with a configuration file, and --source is the database already")
		}
		if err := goodSource(env, p.Source); err != nil {
			return nil, err
		}
		var err error
		if name, err = sourceName(p.Models); err != nil {
			return nil, err
		}
	}
	cfg := tabellion.DefaultConfig()
	(&modelFlags{Models: p.Models, Source: p.Source, Accept: p.Accept, name: name}).begin(cfg)
	return cfg, nil
}

// sourceNames are the names of the databases of a configuration, in order.
func sourceNames(m *config.Models) []string {
	names := make([]string, 0, len(m.Sources))
	for name := range m.Sources {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// chosen are the databases that the command is about.
func (p *modelPlace) chosen(m *config.Models) []string {
	if p.Name != "" {
		return []string{p.Name}
	}
	return sourceNames(m)
}

// modelsRefused is an error of opening definitions and databases, exit code 3.
func modelsRefused(err error) error {
	var e *model.Error
	if errors.As(err, &e) && e.Class == model.MissingFunction {
		err = fmt.Errorf("%w. This program has no functions of its own: leave the computed column out, or build a Go program that serves these models and registers it", err)
	}
	return refused(err)
}

// open opens the databases. It says in one line when definitions and tables differ: which of it matters, the command
// tells when it fails.
func (p *modelPlace) open(env *Env, cfg *tabellion.Config) (*tabellion.Data, error) {
	notes := &differences{}
	data, err := tabellion.OpenData(env.Ctx, cfg, tabellion.Options{Log: slog.New(notes)})
	if err != nil {
		return nil, modelsRefused(err)
	}
	if n := notes.count.Load(); n > 0 {
		say(env, "tabellion: definitions and database differ: %s. tabellion models check names them", plural(int(n), "difference", "differences"))
	}
	return data, nil
}

// differences is a log that counts the differences between definitions and tables. Everything else that is logged is an
// error as well, and said as that.
type differences struct{ count atomic.Int64 }

// Enabled, Handle, WithAttrs and WithGroup implement slog.Handler.
func (d *differences) Enabled(_ context.Context, l slog.Level) bool { return l == slog.LevelWarn }
func (d *differences) WithAttrs([]slog.Attr) slog.Handler           { return d }
func (d *differences) WithGroup(string) slog.Handler                { return d }
func (d *differences) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "difference" {
			d.count.Add(1)
		}
		return true
	})
	return nil
}

// plural is a number with its word.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
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
	if err := goodSource(env, c.Source); err != nil {
		return err
	}
	if err := c.free(); err != nil {
		return err
	}
	source, err := tabellion.OpenSource(env.Ctx, &config.ModelSource{Read: here(c.Source)}, 0)
	if err != nil {
		return refused(err)
	}
	defer source.Close()
	all, err := source.Tables(env.Ctx)
	if err != nil {
		return refused(err)
	}
	tables, err := c.choose(all)
	if err != nil {
		return err
	}
	result := introspect.Definitions(tables)
	if err := model.NewRegistry(model.Options{}).Register(result.Definitions...); err != nil {
		return failed("the definitions that were made cannot be read back: %w", err)
	}
	for _, left := range result.Left {
		say(env, "left out: %s", graphic(left.String()))
	}
	if len(result.Definitions) == 0 {
		return failed("nothing of the database can be described, and nothing was written")
	}
	if err := c.write(env, definitionText(result.Definitions)); err != nil {
		return err
	}
	say(env, "%s of %s; %s left out", plural(len(result.Definitions), "model", "models"),
		plural(len(tables), "table or view", "tables and views"), plural(len(result.Left), "thing", "things"))
	if c.Out != "" {
		say(env, "Next: read %s, and what its role lists and descriptions say, then run\n\n  %s stdio --models %s --source %s", c.Out,
			quoteShell(env.Program), quoteShell(c.Out), quoteShell(shownSource(c.Source)))
	}
	return nil
}

// choose are the tables that the flags name: all without them.
func (c *introspectCommand) choose(all []plan.Table) ([]plan.Table, error) {
	if len(all) == 0 {
		return nil, failed("the database has no tables and views that its role can see; create them first, or connect as another role")
	}
	var tables []plan.Table
	var names, schemas []string
	for _, t := range all {
		names, schemas = append(names, t.Name), append(schemas, t.Schema)
		if (len(c.Schema) == 0 || slices.Contains(c.Schema, t.Schema)) && (len(c.Table) == 0 || slices.Contains(c.Table, t.Name)) {
			tables = append(tables, t)
		}
	}
	for _, s := range c.Schema {
		if !slices.Contains(schemas, s) {
			return nil, failed("the database has no schema %s with tables%s", word(s), meant(s, schemas))
		}
	}
	for _, t := range c.Table {
		if !slices.Contains(names, t) {
			return nil, failed("the database has no table or view %s%s", word(t), meant(t, names))
		}
	}
	if len(tables) == 0 {
		return nil, failed("no table of %s is in the schema %s", strings.Join(c.Table, ", "), strings.Join(c.Schema, ", "))
	}
	return tables, nil
}

// meant is the end of a sentence about a name that does not exist.
func meant(name string, names []string) string {
	if near := model.Nearest(name, names); len(near) > 0 {
		return "; did you mean " + word(near[0]) + "?"
	}
	return ""
}

// shownSource is an address to copy, without what must not be shown.
func shownSource(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	return u.Redacted()
}

// free refuses a file to write that is there already, before anything is asked of the database.
func (c *introspectCommand) free() error {
	if c.Out == "" {
		return nil
	}
	if _, err := os.Lstat(c.Out); err == nil {
		return failed("%s is there already and is left as it is; write to another file and compare", c.Out)
	}
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
		return failed("%s is there already and is left as it is; write to another file and compare", c.Out)
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
	var findings []introspect.Finding
	var dangers []string
	for _, name := range c.chosen(cfg.Models) {
		f, d, err := checkSource(env, registry, name, cfg.Models.Sources[name])
		if err != nil {
			return refused(fmt.Errorf("models.sources.%s: %w", name, err))
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
		return &exitError{exitFindings, fmt.Errorf("%s, %s", plural(faults, "error", "errors"), plural(len(findings)+len(dangers)-faults, "warning", "warnings"))}
	}
	say(env, "definitions and database agree; %s", plural(len(findings), "warning", "warnings"))
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
	Engine      string `placeholder:"ENGINE" help:"sqlite or postgres; that of the database by default."`
	Migrate     bool   `help:"Only what the database lacks, by adding."`
	Idempotency bool   `help:"Only the table that remembers idempotency keys of writes."`
}

// Help is the end of the help text.
func (*modelsDDL) Help() string {
	return "Statements are printed and never sent. With --migrate they add tables, columns and indexes and widen numbers; whatever else would be needed is named, and the exit code is 1.\n\n" + exitHelp
}

// Run prints the statements.
func (c *modelsDDL) Run(env *Env) error {
	if c.Engine != "" && c.Engine != string(sqlgen.EngineSQLite) && c.Engine != string(sqlgen.EnginePostgres) {
		return failed("--engine %s: expected sqlite or postgres", word(c.Engine))
	}
	if c.Idempotency && c.Engine != "" {
		return printStatements(env, []string{sqlgen.IdempotencyDDL(sqlgen.Engine(c.Engine))})
	}
	if c.Idempotency && c.Models == "" && c.Config == "" && c.Source == "" && found() == "" {
		return failed("say for which kind of database: --engine sqlite or --engine postgres")
	}
	cfg, err := c.configuration(env, c.Migrate)
	if err != nil {
		return err
	}
	registry, _, err := tabellion.Definitions(cfg.Models)
	if err != nil {
		return refused(err)
	}
	name, err := c.database(registry)
	if err != nil {
		return err
	}
	engine, err := c.engine(env, cfg.Models.Sources[name])
	if err != nil {
		return err
	}
	models := slices.DeleteFunc(registry.List(), func(m *model.Model) bool { return m.Source != name })
	switch {
	case c.Idempotency:
		return printStatements(env, []string{sqlgen.IdempotencyDDL(engine)})
	case c.Migrate:
		return c.migrate(env, cfg.Models.Sources[name], engine, models)
	}
	return printStatements(env, sqlgen.DDL(engine, models))
}

// database is the name of the one that statements are for.
func (c *modelsDDL) database(registry *model.Registry) (string, error) {
	names := sourcesOf(registry)
	switch {
	case c.Name != "" && !slices.Contains(names, c.Name):
		return "", failed("no definition is of the database %s; they are of %s", word(c.Name), strings.Join(names, ", "))
	case c.Name != "":
		return c.Name, nil
	case len(names) > 1:
		return "", failed("the definitions are of several databases; say which: --name %s", strings.Join(names, ", or --name "))
	}
	return names[0], nil
}

// engine is the kind of database that statements are for.
func (c *modelsDDL) engine(env *Env, s *config.ModelSource) (sqlgen.Engine, error) {
	if c.Engine != "" {
		return sqlgen.Engine(c.Engine), nil
	}
	if s == nil || s.Read == "" {
		return "", failed("say for which kind of database: --engine sqlite or --engine postgres")
	}
	address, err := config.Address(s.Read, env.getenv)
	if err != nil {
		return "", failed("%w", err)
	}
	if strings.HasPrefix(address, "sqlite:") {
		return sqlgen.EngineSQLite, nil
	}
	return sqlgen.EnginePostgres, nil
}

// migrate prints what a database lacks.
func (c *modelsDDL) migrate(env *Env, s *config.ModelSource, engine sqlgen.Engine, models []*model.Model) error {
	if s == nil {
		return failed("the database of these definitions is not in models.sources; add it there")
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
	var unsupported *sqlgen.MigrationError
	switch {
	case err == nil && len(statements) == 0:
		say(env, "the database lacks nothing")
		return nil
	case err != nil && !errors.As(err, &unsupported):
		return err
	}
	if printErr := printStatements(env, statements); printErr != nil {
		return printErr
	}
	if err != nil {
		return &exitError{exitFindings, err}
	}
	return nil
}

// printStatements prints statements, one after the other.
func printStatements(env *Env, statements []string) error {
	for _, s := range statements {
		if _, err := fmt.Fprintln(env.Stdout, s); err != nil {
			return err
		}
	}
	return nil
}

// maxFlagFile bounds a file that a flag names, in bytes.
const maxFlagFile = 1 << 20

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
	text, err := io.ReadAll(io.LimitReader(f, maxFlagFile+1))
	if err == nil && len(text) > maxFlagFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFlagFile)
	}
	return string(text), err
}
