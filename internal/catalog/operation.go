// Package catalog holds the operations: everything that tabellion can do for a caller, as values.
//
// An operation says its name, its schemas, its target, what it needs, what it may do and how it runs. It knows no
// transport, and nothing but the gate runs it. Slots (persistence, models, context, operator) declare operations
// and nothing else; the surface that clients see (tools, resources, prompts, routes) and the contract that is
// locked are both read from here, so they cannot disagree.
package catalog

import (
	"context"
	"io"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Slot is the part of the product that an operation belongs to.
type Slot string

// The slots. An endpoint serves one slot, or all but the operator's.
const (
	Persistence Slot = "persistence"
	Models      Slot = "models"
	Context     Slot = "context"
	Operator    Slot = "operator" // published to no MCP client
)

// Fact is a claim that may be left unset. The gate enforces a set one, or a test refutes it; a lockfile must not
// certify fiction (middle, D15).
type Fact uint8

// The values of a Fact.
const (
	Unset Fact = iota
	No
	Yes
)

// Known gives the fact as a boolean and whether it is set.
func (f Fact) Known() (value, set bool) { return f == Yes, f != Unset }

// Effects are the facts of an operation that a contract is made of.
type Effects struct {
	ReadOnly    Fact // runs without a commit: the gate refuses to hand it one
	Destructive Fact
	Idempotent  Fact
	OpenWorld   Fact
	Invalidates []string // operations whose cached results this one makes stale
	Next        []string // operations that usually follow
	Rules       []string // sentences for the reader of the contract
}

// Bounds are limits that the gate enforces. Zero leaves a bound to the server's default.
type Bounds struct {
	Items       int           // entries in the result's items
	Bytes       int           // of the encoded result
	Deadline    time.Duration // of one call
	Concurrency int           // calls at once, of all callers
}

// Cache tells a client how long it may keep a result. The scope is always private.
type Cache struct{ TTL time.Duration }

// Operation is one thing that tabellion can do. It is immutable once it is in a Catalog.
type Operation struct {
	Name, Title, Doc string
	Slot             Slot
	// Capability is what a caller needs on the targets. Empty: the operation needs no right.
	Capability policy.Capability
	// KnownOn hides the operation from callers who have Capability on nothing that this pattern covers: to them
	// it is an unknown tool. The zero pattern hides it from nobody (persistence operations are never hidden).
	KnownOn policy.Pattern
	In, Out *Schema
	// Audience tells who sees which form of the listing, and Listing gives the form that who sees: of the same text some
	// tools, properties and enum values left out, never one added or reworded; false hides the operation. who is nil
	// for the full surface. Callers of equal Audience keys see the same. Both nil: everybody sees In, Out and Doc.
	Audience *Audience
	Listing  func(who *identity.Principal) (Listing, bool)
	// Unfit words the fault of input that does not fit In. Nil, or nil returned: the gate's own words.
	Unfit func(*SchemaError) *fault.Error
	// Outside marks an operation that is not read-only and whose effect lies in a database of the organisation: the gate
	// makes an audit entry of the intent durable before Run, and of the outcome after it (security requirements, S61).
	Outside bool
	// Content names arguments that are free JSON: counted for depth and nodes from themselves, where U+0000 in a
	// member name is content (persistence.v1, section 3.3).
	Content []string
	// Worded gives an argument one message for every fault of its form, where different words would tell something: a
	// cursor (persistence.v1, section 4.4).
	Worded map[string]string
	// AuditTarget names in the audit trail what a call without Targets is about. Nil: nothing.
	AuditTarget func(in canonjson.Value) policy.Path
	// Validate checks static bounds that a schema text must not name because they are configured; it reads only the
	// input. Its error is a fault. Nil: none.
	Validate func(in canonjson.Value) error
	Effects  Effects
	Bounds   Bounds
	Cache    *Cache
	// Confirm tells whether a call with this input needs a person's confirmation. Nil: never.
	Confirm func(canonjson.Value) bool
	Publish Publish
	Errors  fault.Dialect
	// Targets gives the checks that this input needs, in order, the target's own first. It runs before existence is
	// looked at and may look up nothing but l. Nil: no target, no check.
	Targets func(ctx context.Context, l Lookup, in canonjson.Value) ([]policy.Check, error)
	// Preview says what a confirmation is about. Needed when Confirm is set.
	Preview func(ctx context.Context, c *Call) (Preview, error)
	// Run does it. It is called by the gate only, after every check passed.
	Run func(ctx context.Context, c *Call) (Result, error)
}

// Audience groups callers by what a listing depends on.
type Audience struct {
	// Key names everything about who that matters. It is called on each listing and call, so it is cheap.
	Key func(who *identity.Principal) string
}

// Listing is what one audience sees of an operation.
type Listing struct {
	Doc           string
	Input, Output *Schema // Output nil: none is listed
}

// Lookup maps handles to paths before a decision is asked; it may tell nothing else. The gate makes one for each call.
type Lookup interface {
	// UploadPath gives the artifact path of an upload of the caller's tenant, and false for an unknown one.
	UploadPath(ctx context.Context, namespace, uploadID string) (policy.Path, bool, error)
}

// Handles are what a Lookup is made of: those of every tenant.
type Handles interface {
	UploadPath(ctx context.Context, tenant, namespace, uploadID string) (policy.Path, bool, error)
}

// Preview is what a person is asked to confirm.
type Preview struct {
	Message string // our words: template, numbers, validated identifiers
	Version string // the target's version; a change between question and answer asks again
}

// Publish says where an operation appears. The zero value publishes nowhere.
type Publish struct {
	Tool bool
	// Alias is the tool's name on the endpoint of its own slot, where it needs no word that tells the slots apart. Empty:
	// the name is the same everywhere.
	Alias     string
	Resources []Resource
	Prompt    *Prompt
	// Route makes the operation a raw HTTP route, on the transfer origin. Nil: none.
	Route *Route
	// Notifies tells that the operation calls Call.Notify: subscriptions are offered only where something notifies.
	Notifies bool
	// Input is the input schema as it is listed, when that says more than In: what the operation itself checks, with words
	// that help. Nil: In is listed.
	Input *Schema
	// Output is the output schema as it is listed, when that is not Out: Out is what a success must fit, and strict
	// clients hold the structured content of a failure against the listed schema too. Nil: Out is listed.
	Output *Schema
	// ToolMeta is further `_meta` of the tool's listing, a JSON object or Absent.
	ToolMeta canonjson.Value
}

// Resource makes an operation readable under URIs.
type Resource struct {
	// URI is fixed, Template is an RFC 6570 template of level 1; exactly one is set.
	URI, Template          string
	Name, Title, Doc, MIME string
	// Match gives the operation's input for uri, and false when uri is none of this resource. For a URI of this
	// resource's kind that is ill-formed it returns a fault. Nil for a fixed URI: the input is {}.
	Match func(uri string) (canonjson.Value, bool, error)
}

// Route is a raw HTTP route: METHOD /Prefix/<argument>/<argument>. Its arguments are the operation's input.
type Route struct {
	Method    string   // PUT, GET
	Prefix    string   // "uploads"
	Arguments []string // the names of the segments behind it
	Status    int      // of a success
	// Errors are the codes that an answer may hold, and Headers what every success carries: for the contract.
	Errors  []fault.Code
	Headers map[string]string
}

// Body is a byte stream with what its sender declared of it.
type Body struct {
	io.Reader
	Length int64 // -1: not declared
	Coded  bool  // a content coding other than identity
	Ranged bool  // a byte range
}

// Stream is a result that is bytes, not JSON. Whoever gets it must close it.
type Stream struct {
	io.ReadCloser
	MIME string
	Size int64 // exactly as many bytes, or an error
}

// Prompt makes an operation a prompt. The operation's result blocks are the messages.
type Prompt struct {
	Arguments []PromptArgument
	// Complete proposes values of an argument. Nil: none. It sees only what the caller may see.
	Complete func(ctx context.Context, c *Call, argument, prefix string) ([]string, error)
}

// PromptArgument is one argument of a prompt. Values are strings.
type PromptArgument struct {
	Name, Title, Doc string
	Required         bool
}

// Call is one run of an operation, made by the gate.
type Call struct {
	Who *identity.Principal
	In  canonjson.Value
	// Access asks for further decisions in one batch, under this call's audit entry.
	Access Access
	// Commit is what a write passes on to the store: idempotency key, fingerprint and prepared audit row. It is
	// nil for operations that are declared read-only.
	Commit *Commit
	// Body is the byte stream of a call that came by a route, nil otherwise. Nothing of it has been read, and the
	// sender may be waiting to be told to begin: the first Read tells it.
	Body *Body
	Now  time.Time
	// Progress reports how far the call is. Never nil; cheap when nobody listens.
	Progress func(done, total float64, note string)
	// Log sends a log message to the client of this call, where it asked for them. Never nil.
	Log func(level string, data canonjson.Value)
	// Answers are the client's answers to an earlier NeedInput of this call, by request key; State is what the
	// operation put there. Both are Absent on the first run.
	Answers canonjson.Value
	State   canonjson.Value
	// Notify tells the transports that a list or resource changed. Never nil.
	Notify func(Change)
	// Client is what the client said it can do.
	Client ClientCaps
	// URI is the resource URI when the call came as a resource read.
	URI string
}

// Change is a kind of notification.
type Change struct {
	Tools, Prompts, Resources bool
	Resource                  string // URI of an updated resource
}

// ClientCaps are the client's declared abilities to answer questions.
type ClientCaps struct{ Elicitation, Sampling, Roots bool }

// Access belongs to the gate. No other package may hold a policy.Decider.
type Access interface {
	// Allowed answers checks in order. An error means no decision: the caller of Allowed must do nothing.
	Allowed(ctx context.Context, checks []policy.Check) ([]bool, error)
}

// Commit is what the gate prepares for a write.
type Commit struct {
	Namespace   string
	Key         string
	Fingerprint [32]byte
	// Entry is the audit entry of the call. Run may fill in Revision; Seal encodes it with the outcome ok.
	Entry audit.Entry
	// done is set by Seal: the store holds the row, the gate writes none of its own.
	done bool
}

// Seal gives the audit row to be committed with the effect. The gate takes a sealed commit that succeeded as
// audited.
func (c *Commit) Seal() audit.Row {
	c.done = true
	return c.Entry.Encode()
}

// Sealed tells whether Seal was called.
func (c *Commit) Sealed() bool { return c.done }

// Result is what an operation answers.
type Result struct {
	// Value is the business object: structuredContent, and the same JSON as text.
	Value canonjson.Value
	// JSON is Value encoded once, set by the gate; transports use it for structuredContent and for the text.
	JSON []byte
	// Blocks replace the text block where a result is not JSON (images, prompts' messages, binary resources).
	Blocks []Block
	// Stream is the answer of a route that gives bytes. Nil: Value is the answer, and without one there is only the
	// fact that it worked.
	Stream *Stream
	// Meta are further `_meta` members, behind the labels: an object, or Absent.
	Meta canonjson.Value
	// IsError marks a result that reports a failure of the tool's own work, in Blocks.
	IsError bool
	// Public marks a result that holds nothing of anybody's: it is labelled trusted and public.
	Public bool
	// Source labels where the content came from, such as "persistence".
	Source string
	// Revision and Count are for the audit entry.
	Revision int64
	Count    int
	// Replayed marks a recorded outcome that was returned without executing anything.
	Replayed bool
}

// Block is one content block of a result, or one message of a prompt.
type Block struct {
	Role string // of a prompt's message: user or assistant
	Type string // text, image, audio, resource
	Text string
	Data []byte // of image, audio, binary resources
	MIME string
	URI  string // of embedded resources
}

// NeedInput is returned by Run (as an error) when the operation needs answers from the client's side. The gate
// seals State and asks; Run is called again with Answers and State.
type NeedInput struct {
	Requests []InputRequest
	State    canonjson.Value
}

// Error makes NeedInput an error.
func (*NeedInput) Error() string { return "the operation needs input from the client" }

// InputRequest is one question: Method is elicitation/create, sampling/createMessage or roots/list.
type InputRequest struct {
	Key    string
	Method string
	Params canonjson.Value
}
