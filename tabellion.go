// Package tabellion gives language-model agents durable, governed access to an organisation's documents over the Model
// Context Protocol. This package is for programs that embed the server; the command in cmd/tabellion is one of them.
//
//	cfg := tabellion.DefaultConfig()
//	cfg.Data = "./data"
//	cfg.Auth.Keys = true
//	s, err := tabellion.Open(ctx, cfg)
//	if err != nil { ... }
//	defer s.Close(context.Background())
//	http.ListenAndServe("127.0.0.1:8635", s.Handler())
//
// A server holds its data folder alone; Open fails when another process has it. What a server has acknowledged
// survives a kill of the process and the loss of power.
//
// Experimental until 1.0.
package tabellion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/manifest"
	"github.com/tabellion-mcp/tabellion/internal/metrics"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// Config is a complete configuration; see docs/configuration.md for its keys.
type Config = config.Config

// DefaultConfig is the configuration with every default. Data must be set.
func DefaultConfig() *Config { return config.Default() }

// LoadConfig reads a configuration file; environment variables named TABELLION_<KEY> override it.
func LoadConfig(file string) (*Config, error) {
	return config.Load(config.Source{File: file, Environ: os.Environ()})
}

// Server is an assembled server over an open store. Its methods are safe for concurrent use.
//
// A server heals itself: when the disk failed and the store can no longer tell what is on it, everything that stands
// on the store is closed and opened again from the disk. Meanwhile calls are refused as store_unavailable, and
// sessions of the older era and of stdio begin anew on the reopened store.
type Server struct {
	cfg     *Config
	log     *slog.Logger
	clock   clock.Clock
	pepper  []byte
	metrics *metrics.Metrics
	control *control.Listener
	options Options
	models  *modelSlot            // nil: none is configured
	parts   atomic.Pointer[parts] // what serves now; those of a store that was closed while it is opened again

	address atomic.Pointer[string] // URL of the MCP listener, once it is bound
	web     listeners
	failed  chan error // why the server can serve no longer
	// patience is how long another process may have the folder, when the store is to be opened again, before the server
	// gives up.
	patience time.Duration
	lost     chan struct{} // closed when the store could not be opened again
	stop     chan struct{} // closed by Close: ends what runs beside the calls
	tasks    sync.WaitGroup
	closing  atomic.Bool
	closed   sync.Once
	err      error // of Close
}

// Open opens the data folder, makes it when it is missing, and assembles the server. log gets what no caller hears;
// nil discards it. errors.Is(err, ErrInUse) when another process holds the folder.
func Open(ctx context.Context, cfg *Config, log *slog.Logger) (*Server, error) {
	return OpenWith(ctx, cfg, Options{Log: log})
}

// Options are what a program that embeds the server may say beside the configuration. The zero value says nothing.
type Options struct {
	Log    *slog.Logger // nil: discarded
	Models Models
}

// OpenWith is Open with options.
func OpenWith(ctx context.Context, cfg *Config, o Options) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, log: log, options: o, clock: clock.System{}, metrics: metrics.New(Version()),
		failed: make(chan error, 1), lost: make(chan struct{}), patience: takenPatient, stop: make(chan struct{}),
	}
	if err := s.assemble(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// ErrInUse: another process holds the data folder.
var ErrInUse = sqlite.ErrLocked

// version is set by the linker for releases.
var version = ""

// Version is the version of this program: that of the release, or what the Go toolchain noted of the build.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "0.0.0-dev"
}

// Handler serves the MCP endpoints: /mcp and one path a slot. It checks Host and Origin, and asks for API keys.
func (s *Server) Handler() http.Handler {
	return web.Protect(web.Options{
		Loopback: config.Loopback(s.cfg.Listen), Hosts: hosts(s.cfg, s.cfg.Listen), Origins: s.cfg.Origins, Log: s.log,
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.parts.Load().handler.ServeHTTP(w, r) }))
}

// ServeStdio serves one MCP client over lines on in and out, as the principal that auth.local configures. It returns
// nil when in has ended and everything was answered. When the store has to be opened again the session is carried over:
// requests without an answer get store_unavailable, and the client notices nothing else.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	l := s.cfg.Caller()
	if l == nil {
		return errors.New("auth.local is not configured: nobody is the caller of stdio")
	}
	who, err := identity.Local(l.Subject, l.Roles)
	if err != nil {
		return err
	}
	var served *parts
	var ended error // of the session on served
	r := control.Relay{In: in, Out: out, MaxLine: s.cfg.Limits.RequestBytes}
	r.Next = func(ctx context.Context) (control.Session, error) {
		p, err := s.live(ctx)
		if err != nil {
			return nil, err
		}
		if p == served {
			return nil, cmp.Or(ended, errors.New("the session ended before its client did"))
		}
		served = p
		return control.Inside(func(in io.Reader, out io.Writer) error { return p.serveStdio(ctx, who, StdioEndpoint(s.cfg), in, out) },
			func(err error) { ended = err }), nil
	}
	return r.Run(ctx)
}

// StdioEndpoint is what a stdio session is served: every slot, or the only one.
func StdioEndpoint(cfg *Config) catalog.Endpoint {
	if cfg.Alone {
		return catalog.Of(catalog.Models)
	}
	return catalog.All
}

// serveStdio serves one client of another process as who. It ends when the store is opened again; the other process
// joins anew.
func (s *Server) serveStdio(ctx context.Context, who *identity.Principal, e catalog.Endpoint, in io.Reader, out io.Writer) error {
	p, err := s.live(ctx)
	if err != nil {
		return err
	}
	return p.serveStdio(ctx, who, e, in, out)
}

// Call runs an operation as the local principal subject with roles, as the command line does. Its error is a fault.
// It is meant for operator operations, which no client can reach.
func (s *Server) Call(ctx context.Context, subject string, roles []string, operation string, in canonjson.Value) (canonjson.Value, error) {
	who, err := identity.Local(subject, roles)
	if err != nil {
		return canonjson.Value{}, fault.New(fault.InvalidRequest, "%s", err)
	}
	reply := s.parts.Load().gate.Run(ctx, gate.Request{Who: who, Surface: fault.Command, Name: operation, In: in})
	switch {
	case reply.Fault != nil:
		return canonjson.Value{}, reply.Fault
	case reply.Result == nil:
		return canonjson.Value{}, fault.New(fault.UnsupportedFormat, "the operation asks questions, which a command cannot answer")
	}
	return reply.Result.Value, nil
}

// everything is the rights of a caller who may do all.
func everything(c *catalog.Catalog) catalog.Rights {
	r := catalog.Rights{}
	for _, q := range c.Questions(catalog.All) {
		r[q] = true
	}
	return r
}

// Tools lists the tools that a configuration publishes on one endpoint ("all", or the name of a slot), as a JSON array,
// without opening a store.
func Tools(cfg *Config, endpoint string) ([]byte, error) {
	c, err := (&parts{cfg: cfg}).newCatalog(nil)
	if err != nil {
		return nil, err
	}
	e := catalog.Endpoint(endpoint)
	view := c.View(everything(c), e)
	if len(view.Ops) == 0 {
		served := "persistence"
		if cfg.Models != nil {
			served += " and models"
		}
		return nil, fmt.Errorf("no slot %q is served; this configuration serves %s", endpoint, served)
	}
	return view.ToolsJSON(), nil
}

// Contract describes what the slot persistence publishes, as contracts/persistence.v1.json does, at revision 1. No store
// is opened.
func Contract() (canonjson.Value, error) {
	c, err := (&parts{cfg: DefaultConfig()}).newCatalog(nil)
	if err != nil {
		return canonjson.Value{}, err
	}
	return manifest.Build(c, manifest.Contract{
		Name: persistence.Contract, Slot: catalog.Persistence, Dialect: fault.PersistenceDialect, Failure: persistence.FailureSchema(),
	}, 1), nil
}
