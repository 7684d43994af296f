package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// asWho says whose rights a command about models has.
type asWho struct {
	User  string   `placeholder:"NAME" help:"Whose rights; STORE_USER, auth.local of the configuration, or the operating system's user."`
	Roles roleList `placeholder:"ROLE,..." help:"His roles; STORE_ROLES, those of auth.local, or admin. '' is none."`
}

// context is who asks.
func (a *asWho) context(env *Env, cfg *tabellion.Config) *model.Context {
	me := osUser()
	if l := cfg.Caller(); l != nil {
		me = l
	}
	c := &model.Context{UserID: strings.TrimPrefix(me.Subject, "local:"), Roles: me.Roles}
	if name := env.getenv("STORE_USER"); name != "" {
		c.UserID = name
	}
	if text, set := env.lookup("STORE_ROLES"); set {
		c.Roles = splitRoles(text)
	}
	if a.User != "" {
		c.UserID = a.User
	}
	if a.Roles.given {
		c.Roles = a.Roles.names
	}
	return c
}

// modelsQuery runs one query.
type modelsQuery struct {
	modelPlace
	asWho
	GQL     string `arg:"" name:"gql" help:"The query, such as: Course($condition: @c) { title, lessons { title } }"`
	Params  string `placeholder:"JSON" help:"Values by the names behind the @ signs, or @FILE."`
	Limit   int64  `placeholder:"N" help:"Most rows."`
	Sandbox bool   `help:"With the limits of the tool query: 1000 rows, relations 3 deep."`
	Explain bool   `help:"Show the plan and the statements in place of rows."`
	JSON    bool   `name:"json" help:"Print one JSON object, also on a terminal."`
}

// Help is the end of the help text.
func (*modelsQuery) Help() string {
	return "The database is only read. Rows are a table on a terminal, and one JSON object in a pipe.\n\n" + exitHelp
}

// Run runs it.
func (c *modelsQuery) Run(env *Env) error {
	params := canonjson.Object()
	if c.Params != "" {
		text, err := readText(c.Params)
		if err != nil {
			return failed("--params: %w", err)
		}
		if params, err = canonjson.ParseStrict([]byte(text), canonjson.Limits{Depth: 64, Nodes: 100_000}); err != nil {
			return failed("--params: %w", err)
		}
	}
	cfg, err := c.configuration(env, true)
	if err != nil {
		return err
	}
	data, err := tabellion.OpenData(env.Ctx, cfg, tabellion.Options{Log: stderrLog(env)})
	if err != nil {
		return refused(err)
	}
	defer data.Close()
	profile := plan.Served
	if c.Sandbox {
		profile = plan.TextToQuery
	}
	call := engine.Call{Access: data.Permission().For(c.context(env, cfg)), Profile: profile}
	if c.Explain {
		return c.explain(env, data.Engine(), call, params)
	}
	answer, err := data.Engine().Query(env.Ctx, call, c.GQL, params, engine.Page{Limit: c.Limit})
	if err != nil {
		return queryError(err)
	}
	return c.show(env, answer)
}

// queryError is an error of the engine: what the caller asked for cannot be done, or the database cannot be read.
func queryError(err error) error {
	var e *model.Error
	if errors.As(err, &e) && (e.Class == model.Unreachable || e.Class == model.Busy) {
		if cause := e.Unwrap(); cause != nil {
			err = fmt.Errorf("%w: %v", err, cause)
		}
		return refused(err)
	}
	return failed("%w", err)
}

// explain shows the plan and the statements.
func (c *modelsQuery) explain(env *Env, e *engine.Engine, call engine.Call, params canonjson.Value) error {
	x, err := e.Explain(env.Ctx, call, c.GQL, params)
	if err != nil {
		return queryError(err)
	}
	if c.JSON || !onTerminal(env) {
		return printValue(env, canonjson.Object(canonjson.M("plan", x.Plan), canonjson.M("statements", stringList(x.Statements))))
	}
	fmt.Fprintf(env.Stdout, "%s\n\n", x.Plan.AppendJSON(nil))
	return printStatements(env, x.Statements)
}

// onTerminal tells whether results go to a terminal.
func onTerminal(env *Env) bool {
	f, ok := env.Stdout.(*os.File)
	return ok && terminalWidth(f) > 0
}

// show prints rows.
func (c *modelsQuery) show(env *Env, a *engine.Answer) error {
	for _, u := range a.Unrepresentable {
		say(env, "%d values of %s.%s cannot be shown and are null", u.Count, u.Model, u.Field)
	}
	if c.JSON || !onTerminal(env) {
		m := []canonjson.Member{canonjson.M("rows", canonjson.Array(a.Rows...))}
		if a.More {
			m = append(m, canonjson.M("truncated", canonjson.Bool(true)))
		}
		return printValue(env, canonjson.Object(m...))
	}
	width := terminalWidth(env.Stdout.(*os.File))
	if err := printTable(env, a.Rows, width); err != nil {
		return err
	}
	more := ""
	if a.More {
		more = ", and there are more"
	}
	say(env, "%d rows%s", len(a.Rows), more)
	return nil
}

// printTable prints rows in columns, cut to the width of the terminal.
func printTable(env *Env, rows []canonjson.Value, width int) error {
	var names []string
	for _, row := range rows {
		for _, m := range row.Members() {
			if !slices.Contains(names, m.Name) {
				names = append(names, m.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	table := [][]string{names}
	for _, row := range rows {
		line := make([]string, len(names))
		for i, name := range names {
			line[i] = cellText(row.Get(name))
		}
		table = append(table, line)
	}
	widths := columnWidths(table, width)
	for _, line := range table {
		var b strings.Builder
		for i, cell := range line {
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(fitText(cell, widths[i]))
		}
		if _, err := fmt.Fprintln(env.Stdout, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// cellText is a value in a table, without anything that a terminal would obey.
func cellText(v canonjson.Value) string {
	switch v.Kind() {
	case canonjson.KindAbsent:
		return ""
	case canonjson.KindString:
		return graphic(v.Str())
	}
	return graphic(string(v.AppendJSON(nil)))
}

// columnWidths shares the width of the terminal: each column gets what its longest cell needs, and the widest give way.
func columnWidths(table [][]string, width int) []int {
	widths := make([]int, len(table[0]))
	total := 2 * (len(widths) - 1)
	for i := range widths {
		for _, line := range table {
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
		total += widths[i]
	}
	for total > width {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= 8 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// fitText pads or cuts a cell.
func fitText(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n <= width {
		return s + strings.Repeat(" ", width-n)
	}
	rs := []rune(s)
	return string(rs[:max(0, width-1)]) + "…"
}

// modelsDescribe shows what a caller may use.
type modelsDescribe struct {
	modelPlace
	asWho
	Model []string `arg:"" optional:"" help:"Only these models."`
	JSON  bool     `name:"json" help:"Print one JSON object, also on a terminal."`
}

// Help is the end of the help text.
func (*modelsDescribe) Help() string {
	return "No database is opened.\n\n" + exitHelp
}

// Run shows it.
func (c *modelsDescribe) Run(env *Env) error {
	cfg, err := c.configuration(env, false)
	if err != nil {
		return err
	}
	registry, permission, err := tabellion.Definitions(cfg.Models)
	if err != nil {
		return refused(err)
	}
	described := engine.Describe(registry, engine.Call{Access: permission.For(c.context(env, cfg))}).Items()
	if len(c.Model) > 0 {
		described = slices.DeleteFunc(described, func(v canonjson.Value) bool { return !slices.Contains(c.Model, v.Get("name").Str()) })
		if len(described) == 0 {
			return failed("there is no model %s, or none that this caller may read", strings.Join(c.Model, ", "))
		}
	}
	if c.JSON || !onTerminal(env) {
		return printValue(env, canonjson.Object(canonjson.M("models", canonjson.Array(described...))))
	}
	for i, m := range described {
		if i > 0 {
			fmt.Fprintln(env.Stdout)
		}
		describeModel(env, m)
	}
	return nil
}

// describeModel prints one model for a person.
func describeModel(env *Env, m canonjson.Value) {
	fmt.Fprintf(env.Stdout, "%s  %s\n", m.Get("name").Str(), graphic(m.Get("description").Str()))
	for _, f := range m.Get("fields").Members() {
		kind := f.Value.Str()
		if kind == "" {
			kind = "number"
		}
		detail := m.Get("details").Get(f.Name)
		fmt.Fprintf(env.Stdout, "  %-24s %-10s %s\n", f.Name, kind, graphic(detail.Get("description").Str()))
	}
	for _, r := range m.Get("relations").Members() {
		kind := "→ " + r.Value.Get("model").Str()
		if r.Value.Get("type").Str() == "many" {
			kind += " (many)"
		}
		fmt.Fprintf(env.Stdout, "  %-24s %s\n", r.Name, kind)
	}
	for _, col := range m.Get("computes").Members() {
		words := "computed"
		if agg := col.Value.Get("agg"); !agg.IsAbsent() {
			words = string(agg.AppendJSON(nil))
		}
		fmt.Fprintf(env.Stdout, "  %-24s %s\n", col.Name, words)
	}
}
