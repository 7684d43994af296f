package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
)

// shutdownWithin is how long calls may take to finish after a signal (security requirements, R12).
const shutdownWithin = 10 * time.Second

// serveCommand serves MCP over HTTP.
type serveCommand struct {
	place
	modelFlags
	Listen   string   `placeholder:"ADDR" help:"Address of the MCP endpoints; 127.0.0.1:8635 by default."`
	Ops      string   `placeholder:"ADDR" help:"Address of health and metrics, or none; 127.0.0.1:8636 by default."`
	Transfer string   `placeholder:"ADDR" help:"A further address for files alone (PUT /uploads, GET /artifacts), or none; with --dev 127.0.0.1:3001 by default."`
	Host     []string `placeholder:"NAME" help:"A host name that requests may be addressed to; needed for an address that is not loopback. May be repeated."`
	Dev      bool     `help:"Ask nobody for a key and allow everything. On loopback only, for development."`
}

// Help is the end of the help text.
func (*serveCommand) Help() string {
	return `In a quick form, --persistence DIR or --models PATH --source URL, no configuration is needed: the first start makes an API key and shows it once, unless --dev is given.

A signal ends it: calls under way get ten seconds; a second signal ends it at once, and nothing that was acknowledged is lost.

` + exitHelp
}

// Run serves until a signal comes.
func (c *serveCommand) Run(env *Env) error {
	done, err := c.prepare(env, &c.place)
	if err != nil {
		return err
	}
	defer done()
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	tune(env, cfg, serveGC, serveMemory)
	log := logger(env, cfg)
	if cfg.Dev {
		log.Warn("--dev: no key is asked for and everything is allowed; use it for development only")
	} else if !cfg.Auth.Keys {
		log.Warn("auth.keys is not set: nobody can call over HTTP")
	}
	if !config.Loopback(cfg.Listen) && cfg.TLS.Cert == "" {
		log.Warn("keys and documents cross the network in the clear: set tls.cert and tls.key, or let only a proxy that speaks TLS reach this address", "listen", cfg.Listen)
	}
	s, err := openOr(env.Ctx, cfg, log, func() error { return ownedBy(env.Ctx, cfg) })
	if err != nil {
		return err
	}
	err = c.serve(env, s, cfg)
	return errors.Join(err, closeWithin(s, log))
}

// closeWithin closes a server within the time for a shutdown. Calls that had to be cancelled are no failure of it.
func closeWithin(s *tabellion.Server, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWithin)
	defer cancel()
	err := s.Close(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("calls were cancelled: they did not finish in time", "error", err)
		return nil
	}
	return err
}

// config reads the configuration, and adds what the quick form means.
func (c *serveCommand) config(env *Env) (*tabellion.Config, error) {
	var more []config.Setting
	if c.quick() && !c.Dev {
		more = append(more, config.Setting{Key: "auth.keys", Value: "true", Flag: "--persistence"})
	}
	more = append(more, setting("listen", "--listen", c.Listen)...)
	more = append(more, setting("ops", "--ops", c.Ops)...)
	more = append(more, setting("transfer.listen", "--transfer", c.Transfer)...)
	more = append(more, setting("hosts", "--host", strings.Join(c.Host, ","))...)
	c.dev = c.Dev
	cfg, err := c.load(env, more...)
	if err != nil {
		return nil, err
	}
	if cfg.Dev && cfg.Transfer.Listen == "" && c.Transfer == "" {
		cfg.Transfer = config.Transfer{Listen: config.DevTransfer, IfFree: true}
	}
	if !c.quick() && (c.User != "" || c.Roles.given) {
		return nil, failed("--user and --roles go with --persistence or --models; a configuration names the first key in auth.first_key")
	}
	if c.quick() {
		me := c.me()
		if cfg.Auth.Local == nil {
			cfg.Auth.Local = me
		}
		if cfg.Auth.FirstKey == nil && !c.Dev {
			cfg.Auth.FirstKey = &config.FirstKey{User: me.Subject, Roles: me.Roles}
		}
	}
	return cfg, cfg.Check()
}

// ownedBy refuses a folder that another process holds, and says which.
func ownedBy(ctx context.Context, cfg *tabellion.Config) error {
	about, err := control.Ask(ctx, cfg.Data)
	if err != nil {
		return err
	}
	return refused(inUse(&sqlite.LockedError{Dir: cfg.Data, PID: about.PID, Address: about.Address}))
}

// serve runs an open server until a signal comes or a listener fails.
func (c *serveCommand) serve(env *Env, s *tabellion.Server, cfg *tabellion.Config) error {
	at, err := s.Listen()
	if err != nil {
		return refused(err)
	}
	key, err := c.firstKey(env, s, cfg)
	if err != nil {
		return refused(err)
	}
	c.welcome(env, cfg, at, key)
	go debug.FreeOSMemory() // what assembling needed is not needed again
	select {
	case <-env.Ctx.Done():
		say(env, "tabellion: stopping; calls under way get %s, a second signal stops at once", shutdownWithin)
		return nil
	case err := <-s.Failed():
		return err
	}
}

// firstKey makes the first key when the configuration asks for it and there is none. It gives its text.
func (c *serveCommand) firstKey(env *Env, s *tabellion.Server, cfg *tabellion.Config) (string, error) {
	f := cfg.Auth.FirstKey
	if f == nil || cfg.Dev {
		return "", nil
	}
	ctx := context.WithoutCancel(env.Ctx) // a signal in between would leave a key that nobody has seen
	who := osUser()                       // the one who starts the server has the folder; the policy is for others
	list, err := s.Call(ctx, who.Subject, who.Roles, "operator.keys.list", canonjson.Object())
	if err != nil {
		return "", fmt.Errorf("look for keys: %w", err)
	}
	if list.Get("keys").Len() > 0 {
		return "", nil
	}
	made, err := s.Call(ctx, who.Subject, who.Roles, "operator.keys.create", canonjson.Object(
		canonjson.M("user", canonjson.String(f.User)),
		canonjson.M("name", canonjson.String("first key")),
		canonjson.M("roles", texts(f.Roles))))
	if err != nil {
		return "", fmt.Errorf("make the first key: %w", err)
	}
	return made.Get("secret").Str(), nil
}

// texts is a JSON array of strings.
func texts(list []string) canonjson.Value {
	items := make([]canonjson.Value, len(list))
	for i, s := range list {
		items[i] = canonjson.String(s)
	}
	return canonjson.Array(items...)
}

// welcome tells where the server is and how to call it. The key is shown here and never again.
func (c *serveCommand) welcome(env *Env, cfg *tabellion.Config, at tabellion.Addresses, key string) {
	scheme := "http://"
	if cfg.TLS.Cert != "" {
		scheme = "https://"
	}
	base := scheme + publicName(cfg, at.MCP)
	if c.asked() {
		say(env, "tabellion %s serves %s", tabellion.Version(), c.words())
	} else {
		say(env, "tabellion %s serves %q from %s", tabellion.Version(), cfg.Name, cfg.Data)
	}
	say(env, "  MCP      %s/mcp", base)
	if !cfg.Alone {
		say(env, "           %s/persistence/mcp", base)
	}
	if cfg.Models != nil {
		say(env, "           %s/models/mcp", base)
	}
	if cfg.Transports.SSE {
		say(env, "           %s/sse (the form of 2024-11-05)", base)
	}
	files := base
	if at.Transfer != "" {
		files = scheme + publicName(cfg, at.Transfer)
	}
	if cfg.Alone {
		files = ""
	}
	if files != "" {
		say(env, "  files    PUT %s/uploads/..., GET %s/artifacts/...", files, files)
	}
	if at.Ops != "" {
		say(env, "  health   http://%s/readyz (also /healthz, /metrics)", at.Ops)
	}
	say(env, "")
	shown := key
	switch {
	case key != "":
		f := cfg.Auth.FirstKey
		say(env, "API key of user:%s with the roles %s. It is shown only now:\n\n  %s\n", f.User, strings.Join(f.Roles, ", "), key)
	case cfg.Dev:
		say(env, "No key is needed (--dev).\n")
	default:
		shown = "<key>"
		say(env, "Put a key in place of <key>. Make one with:\n\n  %s\n", c.createHint(env))
	}
	say(env, "For MCP clients:\n\n  %s\n", clientJSON(cfg.Name, base+"/mcp", shown))
	say(env, "Or from a shell:\n\n%s\n", curl(cfg, base+"/mcp", shown))
	say(env, "Ctrl-C stops the server.")
}

// publicName is the host and port that clients use: the first configured host on an address that is not loopback.
func publicName(cfg *tabellion.Config, bound string) string {
	if config.Loopback(cfg.Listen) || len(cfg.Hosts) == 0 {
		return bound
	}
	_, port, err := net.SplitHostPort(bound)
	if err != nil {
		return cfg.Hosts[0]
	}
	return cfg.Hosts[0] + ":" + port
}

// createHint is the command that makes a key for the same server.
func (c *serveCommand) createHint(env *Env) string {
	where := ""
	switch {
	case c.quick():
		dir, _ := c.folder()
		where = " --persistence " + quoteShell(dir)
	case c.Config != "":
		where = " --config " + quoteShell(c.Config)
	}
	return quoteShell(env.Program) + " keys create" + where + " --user me --name laptop --roles admin"
}

// quoteShell quotes a word for a shell when it needs that.
func quoteShell(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// clientJSON is the entry of an MCP client's configuration, in the form that most clients read.
func clientJSON(name, url, key string) string {
	type server struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers,omitempty"`
	}
	s := server{Type: "http", URL: url}
	if key != "" {
		s.Headers = map[string]string{"Authorization": "Bearer " + key}
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(map[string]any{"mcpServers": map[string]any{name: s}}) // maps and strings cannot fail
	return strings.TrimSpace(b.String())
}

// curl is a shell command that saves a checkpoint, or asks what models there are where nothing else is served.
func curl(cfg *tabellion.Config, url, key string) string {
	tool := "persistence.put"
	if cfg.Alone {
		tool = "describe_schemas"
	} else if cfg.ToolNames == "portable" {
		tool = "persistence_put"
	}
	lines := []string{
		"curl -sS " + url,
		"-H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream'",
		"-H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: " + tool + "'",
	}
	if key != "" {
		lines = append(lines, "-H 'Authorization: Bearer "+key+"'")
	}
	if cfg.Alone {
		lines = append(lines, `-d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{},`,
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"curl","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}'`)
		n := len(lines) - 1
		return "  " + strings.Join(lines[:n], " \\\n    ") + "\n    " + lines[n]
	}
	lines = append(lines, `-d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`",`,
		`"arguments":{"namespace":"explorer","id":"checkpoint-1","kind":"checkpoint","schemaVersion":"1",`,
		`"expectedRevision":0,"idempotencyKey":"first","payload":{"body":"Mars"},"references":[]},`,
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"curl","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}'`)
	n := len(lines) - 3 // the body is one word of the shell and breaks without a backslash
	return "  " + strings.Join(lines[:n], " \\\n    ") + "\n    " + strings.Join(lines[n:], "\n    ")
}
