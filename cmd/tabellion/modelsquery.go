package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/engine"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// asWho says whose rights a command about models has.
type asWho struct {
	User  string   `placeholder:"NAME" help:"Whose rights; STORE_USER, auth.local of the configuration, or the operating system's user."`
	Roles roleList `placeholder:"ROLE,..." help:"His roles; STORE_ROLES, those of auth.local, or admin. --roles= gives none."`
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
	if c.Limit < 0 {
		return failed("--limit: expected a number of rows, such as 20")
	}
	params := canonjson.Object()
	if c.Params != "" {
		text, err := readText(c.Params)
		if err != nil {
			return failed("--params: %w", err)
		}
		if params, err = canonjson.ParseStrict([]byte(text), canonjson.Limits{Depth: 64, Nodes: 100_000}); err != nil {
			return failed(`--params: %w; write a JSON object such as '{"l": 10}' for $limit: @l, or @FILE`, err)
		}
	}
	cfg, err := c.configuration(env, true)
	if err != nil {
		return err
	}
	data, err := c.open(env, cfg)
	if err != nil {
		return err
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

// queryError is an error of the engine: what the caller asked for cannot be done, or the database cannot be read. The
// cause, which clients do not see, is for the person at the command line.
func queryError(err error) error {
	var e *model.Error
	if !errors.As(err, &e) || e.Class != model.Unreachable && e.Class != model.Busy {
		return failed("%w", err)
	}
	if cause := e.Unwrap(); cause != nil && e.Class == model.Unreachable {
		err = fmt.Errorf("the database could not carry this out: %w; tabellion models check compares it with the definitions", cause)
	}
	return refused(err)
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
	say(env, "%s%s", plural(len(a.Rows), "row", "rows"), more)
	return nil
}

// printTable prints rows in columns, cut to the width of the terminal; or one below the other, a line for each value,
// where so many columns would have no room.
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
	table := [][]string{make([]string, len(names))}
	for i, name := range names {
		table[0][i] = graphic(name)
	}
	for _, row := range rows {
		line := make([]string, len(names))
		for i, name := range names {
			line[i] = cellText(row.Get(name))
		}
		table = append(table, line)
	}
	widths, fit := columnWidths(table, width)
	if !fit {
		return printRecords(env, table, width)
	}
	for _, line := range table {
		var b strings.Builder
		for i, cell := range line {
			if i > 0 {
				b.WriteString(columnGap)
			}
			b.WriteString(fitText(cell, widths[i]))
		}
		if _, err := fmt.Fprintln(env.Stdout, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// printRecords prints rows one below the other.
func printRecords(env *Env, table [][]string, width int) error {
	label := 0
	for _, name := range table[0] {
		label = max(label, textWidth(name))
	}
	label = min(label, width/2)
	for n, line := range table[1:] {
		if n > 0 {
			fmt.Fprintln(env.Stdout)
		}
		for i, cell := range line {
			text := fitText(table[0][i], label) + columnGap + fitText(cell, max(1, min(textWidth(cell), width-label-len(columnGap))))
			if _, err := fmt.Fprintln(env.Stdout, strings.TrimRight(text, " ")); err != nil {
				return err
			}
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

// columnGap stands between columns, and leastColumn is how narrow one may become.
const (
	columnGap   = "  "
	leastColumn = 12
)

// columnWidths shares the width of the terminal: each column gets what its longest cell needs, and the widest give way.
// fit is false when they cannot give enough.
func columnWidths(table [][]string, width int) (widths []int, fit bool) {
	widths = make([]int, len(table[0]))
	total := len(columnGap) * (len(widths) - 1)
	for i := range widths {
		for _, line := range table {
			widths[i] = max(widths[i], textWidth(line[i]))
		}
		total += widths[i]
	}
	for ; total > width; total-- {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= leastColumn {
			return nil, false
		}
		widths[widest]--
	}
	return widths, true
}

// fitText pads or cuts a cell.
func fitText(s string, width int) string {
	if n := textWidth(s); n <= width {
		return s + strings.Repeat(" ", width-n)
	}
	var b strings.Builder
	left := width - 1 // the mark of a cut is one column wide
	for _, r := range s {
		w := runeWidth(r)
		if w > left {
			break
		}
		left -= w
		b.WriteRune(r)
	}
	return b.String() + "…" + strings.Repeat(" ", max(0, left))
}

// textWidth is how many columns of a terminal a text takes.
func textWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// runeWidth is the columns of a character: none for marks that stand on the one before, two for wide ones.
func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
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
	described, err = c.named(described, c.only(cfg, registry))
	if err != nil {
		return err
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

// only are the models of the database that was named; nil for all.
func (c *modelsDescribe) only(cfg *tabellion.Config, registry *model.Registry) []string {
	if c.Name == "" {
		return nil
	}
	names := []string{}
	for _, m := range registry.List() {
		if m.Source == c.Name {
			names = append(names, m.Name)
		}
	}
	return names
}

// named keeps the models that the arguments name. only: others are left out; nil for none.
func (c *modelsDescribe) named(described []canonjson.Value, only []string) ([]canonjson.Value, error) {
	var seen []string
	described = slices.DeleteFunc(described, func(v canonjson.Value) bool {
		return only != nil && !slices.Contains(only, v.Get("name").Str())
	})
	for _, v := range described {
		seen = append(seen, v.Get("name").Str())
	}
	if len(seen) == 0 {
		return nil, failed("this caller may read no model; --roles and --user say who he is")
	}
	for _, name := range c.Model {
		if !slices.Contains(seen, name) {
			return nil, failed("there is no model %s that this caller may read; there are: %s", word(name), strings.Join(seen, ", "))
		}
	}
	if len(c.Model) == 0 {
		return described, nil
	}
	return slices.DeleteFunc(described, func(v canonjson.Value) bool { return !slices.Contains(c.Model, v.Get("name").Str()) }), nil
}

// describeModel prints one model for a person.
func describeModel(env *Env, m canonjson.Value) {
	fmt.Fprintln(env.Stdout, strings.TrimRight(m.Get("name").Str()+"  "+graphic(m.Get("description").Str()), " "))
	for _, f := range m.Get("fields").Members() {
		kind := f.Value.Str() // none for what the server keeps itself, such as createdAt
		line := fmt.Sprintf("  %-24s %-10s %s", f.Name, kind, fieldWords(m.Get("details").Get(f.Name)))
		fmt.Fprintln(env.Stdout, strings.TrimRight(line, " "))
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

// fieldWords are the details of a field in a line.
func fieldWords(d canonjson.Value) string {
	var words []string
	if d.Get("required").Kind() == canonjson.KindBool {
		words = append(words, "required")
	}
	if values := d.Get("enum"); !values.IsAbsent() {
		words = append(words, "one of "+graphic(string(values.AppendJSON(nil))))
	}
	if text := graphic(d.Get("description").Str()); text != "" {
		words = append(words, text)
	}
	return strings.Join(words, "; ")
}
