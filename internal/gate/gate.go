// Package gate is the only door to an operation. Limits, the access decision, confirmation, audit and the mapping
// of errors happen here and only here, for every transport and every protocol version.
//
// The order is fixed (middle, D4): size and JSON (in the decoder), identity, rate and concurrency, whether the
// caller may know the operation, input schema, authorisation of all targets in one batch, confirmation, the handler
// with its transaction, output schema and size, audit.
//
//	reply := g.Run(ctx, gate.Request{Who: principal, Endpoint: catalog.All, Surface: fault.Tool, Name: "persistence.get", In: arguments})
//	switch {
//	case reply.Fault != nil: // reply.Fault.Form(...) is the answer
//	case reply.Ask != nil:   // the client is asked, and calls again with Resume
//	default:                 // reply.Result
//	}
//
// No Go error and no panic leaves the gate.
package gate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Limits are the bounds that the gate keeps. See DefaultLimits for the numbers and their source.
type Limits struct {
	Rate             float64       // calls a second of one principal; 0 is no limit
	Burst            int           // calls at once after a pause
	Concurrency      int           // calls under way of one principal; 0 is no limit
	TotalConcurrency int           // calls under way in all; 0 is no limit
	Wait             time.Duration // how long a call may wait for a free place before it is refused
	Deadline         time.Duration // of one call
	ResponseBytes    int           // of one encoded result
	AuthFailures     int           // failed authentications of one address in a minute, before a minute's refusal
	ContentDepth     int           // depth of arguments, and of free content counted from itself
	ContentNodes     int           // nodes likewise
	ArgumentNodes    int           // nodes of arguments outside free content: bounds the time of their schema check
}

// DefaultLimits are those of the security requirements, section 3. Wait keeps a refusal under 50 ms; ArgumentNodes
// keeps the check of a schema there (S16): measured are 3 ms for each thousand values at worst.
func DefaultLimits() Limits {
	return Limits{
		Rate: 50, Burst: 100, Concurrency: 16, TotalConcurrency: 256, Wait: 25 * time.Millisecond,
		Deadline: 30 * time.Second, ResponseBytes: 4 << 20, AuthFailures: 20, ContentDepth: 64, ContentNodes: 100_000,
		ArgumentNodes: 10_000,
	}
}

// FrameLimits are what the decoder keeps for a whole message: the limits of free content, and room for the frame
// around it (a frame around a full-depth payload is not refused).
func FrameLimits() canonjson.Limits {
	return canonjson.Limits{Depth: 64 + 8, Nodes: 100_000 + 2_000}
}

// Recorder takes audit entries that are not committed with an effect. But for Commit its methods do not block on a disk.
type Recorder interface {
	// Store queues an entry for the store, within 100 ms.
	Store(e audit.Entry)
	// Read queues an entry for the file of allowed reads.
	Read(e audit.Entry)
	// Commit stores an entry, durable when it returns nil. It waits for the disk.
	Commit(ctx context.Context, e audit.Entry) error
}

// Observer counts calls, for metrics. Methods are fast and never block.
type Observer interface {
	Called(operation string, surface fault.Surface, outcome string, took time.Duration)
	Refused(code fault.Code)
}

// Config is what a gate needs. Every field but Observer and Handles is required.
type Config struct {
	Catalog  *catalog.Catalog
	Decider  policy.Decider // the server's policy
	Auth     Authenticator
	Sealer   *seal.Sealer
	Recorder Recorder
	Once     Once
	Handles  catalog.Handles // nil: there are none
	Limits   Limits
	Clock    clock.Clock
	Log      *slog.Logger
	Observer Observer // nil: nothing is counted
	// Notify hands changes to the transports. Nil: dropped.
	Notify func(catalog.Change)
}

// Authenticator tells whose credentials these are.
type Authenticator interface {
	// Authenticate gives the principal. A refused credential is a nil principal and a reason for the audit trail, a
	// backend that cannot be asked is an error.
	Authenticate(ctx context.Context, c identity.Credentials) (p *identity.Principal, reason string, err error)
}

// Gate runs operations. It is safe for concurrent use.
type Gate struct {
	cfg      Config
	rates    *rates
	places   *places
	ops      opPlaces
	failures *failures // failed authentications, by address
	mu       sync.Mutex
	kept     map[string]catalog.Grants // of fixed policies, see granted
	crowd    *failures                 // refusals for rate and overload, by principal: when an audit row is due
}

// New makes a gate.
func New(cfg Config) *Gate {
	if cfg.Handles == nil {
		cfg.Handles = catalog.NoHandles{}
	}
	if cfg.Observer == nil {
		cfg.Observer = silent{}
	}
	if cfg.Notify == nil {
		cfg.Notify = func(catalog.Change) {}
	}
	return &Gate{
		cfg:      cfg,
		kept:     map[string]catalog.Grants{},
		rates:    newRates(cfg.Limits, cfg.Clock),
		places:   newPlaces(cfg.Limits),
		failures: newFailures(cfg.Limits.AuthFailures, cfg.Clock),
		crowd:    newFailures(0, cfg.Clock),
	}
}

// silent counts nothing.
type silent struct{}

// Called does nothing.
func (silent) Called(string, fault.Surface, string, time.Duration) {}

// Refused does nothing.
func (silent) Refused(fault.Code) {}

// Request is one call.
type Request struct {
	Who      *identity.Principal
	Endpoint catalog.Endpoint
	Surface  fault.Surface // Tool, Resource, Prompt, Transfer or Command: says what Name is
	Era      fault.Era
	Name     string // a tool's wire name, a prompt's name, a resource's URI, an operation's name (Transfer, Command)
	// In are the arguments: an object, or Absent for {}.
	In canonjson.Value
	// Flaw is what the strict decoder found inside the arguments; nil when they are sound.
	Flaw   *canonjson.Flaw
	Resume *Resume
	Client catalog.ClientCaps
	Addr   string // client address without port, "" for stdio
	Body   *catalog.Body
	// Progress and Log send to the client; nil when it did not ask.
	Progress func(done, total float64, note string)
	Log      func(level string, data canonjson.Value)
	// Again marks a further round of a call that the transport has counted already: an older client answers
	// questions inside one call.
	Again bool
}

// Resume is a call that continues after an Ask.
type Resume struct {
	State   string
	Answers canonjson.Value // object: request key -> the client's result
}

// Reply is the answer. Exactly one of Result, Fault and Ask is set.
type Reply struct {
	Result *catalog.Result
	Fault  *fault.Error
	Ask    *Ask
	// Op is the operation that answered, nil when none was reached.
	Op *catalog.Operation
	// Correlation names this call in the audit trail and the log.
	Correlation string
}

// Ask is a question to the client's side. State is sealed by the gate and comes back with the answers.
type Ask struct {
	Requests []catalog.InputRequest
	State    string
}

// Dialect is the wire form of the operation that answered, the plain one when none was reached.
func (r Reply) Dialect() fault.Dialect {
	if r.Op == nil {
		return fault.PlainDialect
	}
	return r.Op.Errors
}

// Labels are the `_meta` members of a result (middle, D11).
func (r Reply) Labels() canonjson.Value {
	integrity, confidentiality, source := "untrusted", "private", ""
	if r.Result != nil {
		source = r.Result.Source
		if r.Result.Public {
			integrity, confidentiality = "trusted", "public"
		}
	}
	m := []canonjson.Member{
		canonjson.M("io.tabellion/confidentiality", canonjson.String(confidentiality)),
		canonjson.M("io.tabellion/integrity", canonjson.String(integrity)),
	}
	if source != "" {
		m = append(m, canonjson.M("io.tabellion/source", canonjson.String(source)))
	}
	if r.Result != nil {
		m = append(m, r.Result.Meta.Members()...)
	}
	return canonjson.Object(m...)
}

// correlation is a fresh random name of a call: 12 bytes, hex.
func correlation() string {
	var b [12]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
