//go:generate go run ../../cmd/tabellion docs configuration ../../docs/configuration.md

// Package config reads tabellion.yaml, strictly: a key that does not exist, stands twice, has the wrong type or a
// value out of range is an error that names the line and says what is expected. Environment variables named
// TABELLION_<KEY> and flags override the file:
//
//	c, err := config.Load(config.Source{File: "tabellion.yaml", Environ: os.Environ(), Set: []config.Setting{{Key: "listen", Value: "127.0.0.1:9000"}}})
//
// Every key is described once, in keys.go: its type, default, range and documentation. docs/configuration.md and
// the file that `tabellion init` writes are made from there.
//
// Secrets are never written into the file: it names an environment variable or a file that holds them (see Secret).
package config

import (
	"time"

	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/tools"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Config is a complete configuration. Make one with Default or Load; the zero value is not valid. Check holds the
// rules between keys.
type Config struct {
	Name string // shown to clients and in snippets
	Data string // folder of the embedded store; absolute after Load

	Listen  string   // address of the MCP endpoints
	Ops     string   // address of health and metrics; "" is none
	Hosts   []string // Host headers that are answered, besides loopback names on a loopback bind
	Origins []string // Origin headers that are answered
	TLS     TLS

	Auth   Auth
	Policy *policy.Config // nil: the section is missing, and only the local principal has rights

	Limits      Limits
	Transports  Transports
	ToolNames   catalog.Names
	Transfer    Transfer
	Persistence Persistence
	Models      *Models // nil: no model is served
	Runtime     Runtime
	Log         Log

	// Dev serves without authentication and allows everything, on loopback only. It has no key in the file: it is
	// asked for by a flag, on each start.
	Dev bool

	// Alone serves the slot models without persistence. It has no key: a quick form asks for it.
	Alone bool

	origins map[string]origin // where each value that is no default came from
}

// TLS is the certificate of the MCP listener; both fields or none.
type TLS struct {
	Cert string // file of the certificate chain, PEM; absolute after Load
	Key  Secret // private key, PEM
}

// Auth says who may call.
type Auth struct {
	Local      *Local // who the process behind stdio and the command line is; nil: nobody
	Keys       bool   // API keys kept in the store are accepted over HTTP
	Pepper     Secret // mixed into stored digests of keys; empty: none
	HTTPStatus int    // 401, or 200 for clients that hide the body of a 401
	FirstKey   *FirstKey
}

// Local is the principal of the local process.
type Local struct {
	Subject string   // name without a kind: "me" is the subject local:me
	Roles   []string // nil: not set, see Caller; empty: none
}

// FirstKey asks for a key to be made, and shown once, at a start that finds none in the store.
type FirstKey struct {
	User  string
	Roles []string
}

// Limits are the limits of calls and messages.
type Limits struct {
	gate.Limits
	RequestBytes int // of one message
}

// Transports switches older forms of MCP.
type Transports struct {
	SSE bool // GET /sse and POST /messages
}

// Transfer says where the raw HTTP routes are served beside the main listener.
type Transfer struct {
	Listen string // address; "" is none
	// IfFree lets the server start without this listener when the address is taken. It has no key: it is for the
	// address that --dev chooses.
	IfFree bool
}

// Persistence configures the slot of the same name.
type Persistence struct {
	Durability  persistence.Durability
	Limits      persistence.Limits
	Retention   *time.Duration // nil: forever
	OpenUploads int            // of one principal; 0 is no limit
}

// Models configures the slot of the same name.
type Models struct {
	Definitions  string // file or folder; absolute after Load
	Sources      map[string]*ModelSource
	Surface      tools.Surface
	Only         []string
	Prefix       string
	Unconfigured model.Unconfigured
	Policy       string // file; absolute after Load
	MaxUnindexed int64  // rows
}

// ModelSource is a database: addresses as written, which may be references to secrets.
type ModelSource struct {
	Read, Write string
	Accept      []string // names of rights that are accepted
}

// DefaultModels are the defaults of the section.
func DefaultModels() *Models {
	return &Models{Surface: tools.PerModel, Unconfigured: model.Closed, MaxUnindexed: 100_000}
}

// Address gives the address that a text of the configuration means: itself, or what it refers to.
func Address(text string, getenv func(string) string) (string, error) {
	ref, err := ParseSecret(text)
	if err != nil {
		return text, nil
	}
	address, err := ref.Reveal(getenv)
	return string(address), err
}

// Runtime is the memory behaviour of the process. Zero leaves the choice to the program.
type Runtime struct {
	GCPercent   int   // as GOGC
	MemoryLimit int64 // bytes, as GOMEMLIMIT
}

// Log says what is written to stderr.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // text, json
}

// Caller is who the local process is: auth.local, with the role admin when its roles are not set and there is no policy
// section (middle, D6); an empty list of roles is none. Nil is nobody.
func (c *Config) Caller() *Local {
	l := c.Auth.Local
	if l == nil || l.Roles != nil || c.Policy != nil {
		return l
	}
	return &Local{Subject: l.Subject, Roles: []string{policy.RoleAdmin}}
}

// Default addresses.
const (
	DefaultListen = "127.0.0.1:8635"
	DefaultOps    = "127.0.0.1:8636"
	DevTransfer   = "127.0.0.1:3001" // the local transfer origin of persistence.v1
)

// Default is the configuration of an empty file but for the data folder, which it leaves empty.
func Default() *Config {
	return &Config{
		Name:        "tabellion",
		Listen:      DefaultListen,
		Ops:         DefaultOps,
		Auth:        Auth{HTTPStatus: 401},
		Limits:      Limits{Limits: gate.DefaultLimits(), RequestBytes: 4 << 20},
		ToolNames:   catalog.ContractNames,
		Persistence: Persistence{Durability: persistence.FileAndDirectorySync, Limits: persistence.DefaultLimits(), OpenUploads: 20},
		Log:         Log{Level: "info", Format: "text"},
		origins:     map[string]origin{},
	}
}

// Ceilings of the limits: an operator may go up to them and not beyond (security requirements, section 3).
const (
	maxRate         = 1_000_000
	maxConcurrency  = 8192
	maxTotal        = 8192
	maxDeadline     = 10 * time.Minute
	maxMessage      = 16 << 20
	minMessage      = 4 << 10
	maxAuthFailures = 1000
	maxDocument     = 2 << 20
	maxArtifact     = 1 << 40
	maxUploads      = 10_000
	maxKeep         = 36_600 * 24 * time.Hour
	maxReferences   = 255 // persistence.v1, section 4.1: one put needs at most 256 checks
	maxPage         = 200 // persistence.v1, section 4.1
	maxNamespace    = 1 << 40
	minRetention    = 7 * 24 * time.Hour // persistence.v1, section 4.1
	maxRetention    = 366 * 24 * time.Hour
)
