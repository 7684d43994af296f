package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
	"github.com/tabellion-mcp/tabellion/policy"
)

// stdioCommand serves one MCP client over standard input and output.
type stdioCommand struct {
	place
	modelFlags
}

// Help is the end of the help text.
func (*stdioCommand) Help() string {
	return `The client is the local principal: auth.local of the configuration, or in a quick form (--persistence DIR, --models PATH --source URL) the user and roles given here.

Several stdio processes may share one data folder: the first one holds it, the others pass their client's messages on to it, and one of them takes over when it ends.

Standard output carries MCP messages only. The end of standard input ends the process.

` + exitHelp
}

// Run serves until standard input ends.
func (c *stdioCommand) Run(env *Env) error {
	done, err := c.prepare(env, &c.place)
	if err != nil {
		return err
	}
	defer done()
	cfg, err := c.config(env)
	if err != nil {
		return err
	}
	tune(env, cfg, 0, 0)
	me := caller(cfg)
	if !cfg.Alone {
		say(env, "tabellion %s: data folder %s", tabellion.Version(), cfg.Data)
	}
	say(env, "tabellion: the client is local:%s with %s", strings.TrimPrefix(me.Subject, "local:"), roleWords(me.Roles))
	log := logger(env, quiet(cfg))
	v := &visitor{cfg: cfg, env: env, log: log, who: me, exact: c.asked()}
	first, err := v.next(env.Ctx)
	if err != nil {
		return err
	}
	if c.asked() {
		say(env, "tabellion %s serves %s", tabellion.Version(), c.words())
	}
	if v.own != nil {
		err = v.own.ServeStdio(env.Ctx, env.Stdin, env.Stdout)
	} else {
		err = v.relay(first)
	}
	return v.end(err)
}

// config reads the configuration, and adds what the quick form means.
func (c *stdioCommand) config(env *Env) (*tabellion.Config, error) {
	if !c.quick() && (c.User != "" || c.Roles.given) {
		return nil, failed("--user and --roles go with --persistence or --models; a configuration names the client in auth.local")
	}
	cfg, err := c.load(env)
	if err != nil {
		return nil, err
	}
	if c.quick() {
		cfg.Auth.Local = c.me()
	}
	if cfg.Auth.Local == nil {
		return nil, refused(errors.New("auth.local is not configured: stdio does not know who its client is; set auth.local, or give --persistence DIR"))
	}
	return cfg, cfg.Check()
}

// roleWords names roles in a sentence.
func roleWords(roles []string) string {
	switch {
	case len(roles) == 0:
		return "no role"
	case len(roles) == 1 && roles[0] == policy.RoleAdmin:
		return "the role admin: it may do everything"
	}
	return "the roles " + strings.Join(roles, ", ")
}

// visitor is one stdio session that finds a server: its own, when the folder is free, or the owner's.
type visitor struct {
	cfg *config.Config
	env *Env
	log *slog.Logger
	who control.Who
	own *tabellion.Server // once this process holds the folder

	exact bool // no models but those of its own flags will do
}

// next opens the store (then own is set and the session is nil) or joins its owner.
func (v *visitor) next(ctx context.Context) (control.Session, error) {
	var session control.Session
	var about control.About
	s, err := openOr(ctx, v.cfg, v.log, func() (err error) {
		session, about, err = control.Join(ctx, v.cfg.Data, v.who, tabellion.StdioEndpoint(v.cfg))
		return err
	})
	if err != nil {
		return nil, err
	}
	if s != nil {
		v.own = s
		return nil, nil
	}
	if mine := tabellion.ModelsDigest(v.cfg); v.exact && about.Models != mine {
		return nil, errors.Join(refused(fmt.Errorf("process %d holds the folder %s and serves other models than these; give another folder with --data, or the same --models, --source and --write",
			about.PID, v.cfg.Data)), session.Close())
	}
	say(v.env, "tabellion: process %d holds the data folder and serves this session too", about.PID)
	v.keepNames(about.ToolNames)
	return session, nil
}

// keepNames takes over how the owner writes tool names: they must not change in the middle of a session.
func (v *visitor) keepNames(names catalog.Names) {
	if names == "" || names == v.cfg.ToolNames {
		return
	}
	say(v.env, "tabellion: its tool_names hold for this session: %s, not %s", names, v.cfg.ToolNames)
	cfg := *v.cfg
	cfg.ToolNames = names
	v.cfg = &cfg
}

// relay carries the session to the owner, and on to others when it ends.
func (v *visitor) relay(first control.Session) error {
	r := control.Relay{In: v.env.Stdin, Out: v.env.Stdout, MaxLine: v.cfg.Limits.RequestBytes}
	r.Next = func(ctx context.Context) (control.Session, error) {
		if s := first; s != nil {
			first = nil
			return s, nil
		}
		if v.own != nil {
			return nil, errors.New("the session ended before its client did")
		}
		s, err := v.next(ctx)
		if err != nil || s != nil {
			return s, err
		}
		say(v.env, "tabellion: the process that held the data folder has ended; this one holds it now")
		return control.Inside(func(in io.Reader, out io.Writer) error { return v.own.ServeStdio(v.env.Ctx, in, out) },
			func(err error) {
				if err != nil {
					v.log.Debug("the session ended", "error", err)
				}
			}), nil
	}
	return r.Run(v.env.Ctx)
}

// end closes the store when this process holds it. A signal is the regular end of a session.
func (v *visitor) end(err error) error {
	if v.env.Ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	if v.own == nil {
		return err
	}
	if closeErr := closeWithin(v.own, v.log); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close the store: %w", closeErr))
	}
	return err
}
