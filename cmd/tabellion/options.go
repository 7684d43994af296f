package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strings"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
	"github.com/tabellion-mcp/tabellion/policy"
)

// defaultFile is the configuration file that is looked for in the working folder.
const defaultFile = "tabellion.yaml"

// place says which server a command is about.
type place struct {
	Config      string   `short:"c" placeholder:"FILE" help:"Configuration file; tabellion.yaml in the working folder when there is one."`
	Persistence string   `placeholder:"DIR" help:"Data folder, in place of a configuration file."`
	Set         []string `sep:"none" placeholder:"KEY=VALUE" help:"Set a key of the configuration; wins over file and environment. May be repeated."`

	dev    bool        // set by serve --dev
	models *modelFlags // set by the quick form of models
}

// quick tells whether a data folder, or models, were given in place of a file.
func (p *place) quick() bool { return p.Persistence != "" || p.models != nil }

// folder is the data folder of a quick form, and the flag that gave it.
func (p *place) folder() (dir, flag string) {
	if p.Persistence == "" && p.models != nil {
		return p.models.Data, "--data"
	}
	return p.Persistence, "--persistence"
}

// load reads the configuration. more are settings of the command's own flags.
func (p *place) load(env *Env, more ...config.Setting) (*tabellion.Config, error) {
	if p.quick() && p.Config != "" {
		return nil, failed("--config and --persistence exclude each other: the file names the data folder in its key data")
	}
	src := config.Source{File: p.Config, Environ: env.Environ, Dev: p.dev}
	if p.models != nil {
		src.Begin = p.models.begin
	}
	if p.quick() {
		dir, flag := p.folder()
		src.Set = append(src.Set, config.Setting{Key: "data", Value: dir, Flag: flag})
	} else if src.File == "" {
		if src.File = found(); src.File == "" {
			return nil, failed("there is no %s here: give --config FILE or --persistence DIR, or run: tabellion init", defaultFile)
		}
	}
	for _, s := range p.Set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, failed("--set %s: expected KEY=VALUE", s)
		}
		src.Set = append(src.Set, config.Setting{Key: key, Value: value, Flag: "--set"})
	}
	src.Set = append(src.Set, more...)
	cfg, err := config.Load(src)
	if err != nil {
		var problems config.Problems
		if !errors.As(err, &problems) {
			err = refused(err)
		}
		return nil, err
	}
	if p.models != nil {
		p.models.allow(cfg)
		cfg.Alone = p.Persistence == ""
	}
	return cfg, nil
}

// found is the configuration file of the working folder, "" when there is none.
func found() string {
	if _, err := os.Stat(defaultFile); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return defaultFile
}

// setting is a flag that sets a key; nothing when it was not given.
func setting(key, flag, value string) []config.Setting {
	if value == "" {
		return nil
	}
	return []config.Setting{{Key: key, Value: value, Flag: flag}}
}

// osUser is the operating system's user with the role admin: who a quick form serves, and who commands act as when
// the configuration names nobody. Whoever runs them has the data folder itself.
func osUser() *config.Local {
	return &config.Local{Subject: identity.OSUser(), Roles: []string{policy.RoleAdmin}}
}

// caller is who commands act as.
func caller(cfg *tabellion.Config) control.Who {
	l := cfg.Caller()
	if l == nil {
		l = osUser()
	}
	return control.Who{Subject: l.Subject, Roles: l.Roles}
}

// logger writes to stderr as configured.
func logger(env *Env, cfg *tabellion.Config) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // checked by the configuration
	o := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(env.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(env.Stderr, o))
}

// serveGC is the GC percent of a server: the decoder of the older protocol era makes much short-lived garbage, and a
// higher percent makes it up to twice as fast. serveMemory is the soft limit that goes with it.
const (
	serveGC     = 400
	serveMemory = 512 << 20
)

// tune sets the memory behaviour. What the configuration says wins over GOGC and GOMEMLIMIT, and these over the
// program's choice.
func tune(env *Env, cfg *tabellion.Config, gc int, memory int64) {
	if cfg.Runtime.GCPercent != 0 {
		debug.SetGCPercent(cfg.Runtime.GCPercent)
	} else if env.getenv("GOGC") == "" && gc != 0 {
		debug.SetGCPercent(gc)
	}
	if cfg.Runtime.MemoryLimit != 0 {
		debug.SetMemoryLimit(cfg.Runtime.MemoryLimit)
	} else if env.getenv("GOMEMLIMIT") == "" && memory != 0 && debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(memory)
	}
}

// say writes a line for a person.
func say(env *Env, format string, args ...any) { fmt.Fprintf(env.Stderr, format+"\n", args...) }
