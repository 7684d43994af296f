// Package client keeps an application's documents and binary artifacts on a server that speaks persistence.v1.
//
// It needs two things: something that can call a tool (a Caller), and the origin where bytes are sent and fetched:
//
//	caller := client.HTTP("http://127.0.0.1:8635/persistence/mcp", token)
//	c, err := client.New(ctx, caller, client.Options{Transfer: "http://127.0.0.1:8635", Token: token})
//	if err != nil { ... }
//	doc, err := c.Put(ctx, client.PutRequest{
//		Namespace: "explorer", ID: "checkpoint-1", Kind: "checkpoint", SchemaVersion: "1",
//		Payload: json.RawMessage(`{"body":"Mars"}`), ExpectedRevision: 0,
//	})
//	if errors.Is(err, client.RevisionConflict) { ... read, merge, put again ... }
//
// # Mutations
//
// Every mutation carries an idempotency key. The client makes one when the request names none, and sends the same key
// and the same bytes in each attempt, so that one call has at most one effect however many answers are lost. It tries
// again after busy, store_unavailable and a lost answer, and after nothing else: what to do about a conflict only the
// application knows. When the attempts are used up and the effect may have happened, the error says so: see
// Error.Unknown and Error.Key.
//
// # Bytes
//
// Upload sends the SHA-256 of what it sends; Download compares the SHA-256 of what it wrote before it reports success.
// No redirect is followed, by no request: the bearer token goes to the configured addresses and nowhere else.
//
// # Errors
//
// Every failure is an *Error: of a tool, of the protocol around it, of a transfer, of the connection. Its Code is one of
// the contract's, and errors.Is compares it.
//
// The package clienttest beside this one is a server in memory, with faults to order, for tests of applications.
package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Contract is the contract that this package speaks.
const Contract = "persistence.v1"

// Defaults of Options.
const (
	defaultCallTimeout  = time.Minute // the longest call of a server is 30 s
	defaultStallTimeout = time.Minute
)

// Options are the settings of a Client. The zero value is useful for documents; bytes need Transfer.
type Options struct {
	// Transfer is the origin of the two transfer routes, without a path, such as "http://127.0.0.1:8635": a tabellion
	// serves them where it serves MCP, and on the addresses of transfer.listen. Empty: Upload and Download fail with
	// unsupported_format.
	Transfer string
	// Token is the bearer token for the transfer origin. Empty: none is sent, for servers in their local mode.
	Token string
	// HTTPClient carries the transfers. Nil: one that waits for the server's consent before it sends a body. Its
	// CheckRedirect and Timeout are not used: redirects are never followed, and transfers take as long as bytes move.
	HTTPClient *http.Client
	// Retry bounds the attempts.
	Retry Retry
	// CallTimeout bounds one attempt of one tool call; the answer counts as lost then. 0 is one minute, negative is
	// no bound but the context's.
	CallTimeout time.Duration
	// StallTimeout is how long a transfer may stand still before its connection counts as broken. 0 is one minute.
	StallTimeout time.Duration
	// ToolName gives the name of a tool on this server for its name in the contract, such as "put". Nil is
	// ContractName. See PortableName.
	ToolName func(name string) string
	// Sleep waits before the next attempt, and returns early with an error when ctx ends. Nil: the system's clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

// ContractName is the name that the contract gives a tool: "persistence.put".
func ContractName(name string) string { return "persistence." + name }

// PortableName is the name on servers that publish names without dots: "persistence_put".
func PortableName(name string) string { return "persistence_" + name }

// Limits are the bounds in force on a server. They do not change while it runs.
type Limits struct {
	MaxDocumentBytes            int64 `json:"maxDocumentBytes"` // of a payload in canonical form
	MaxArtifactBytes            int64 `json:"maxArtifactBytes"`
	MaxReferences               int64 `json:"maxReferences"`
	MaxPageSize                 int64 `json:"maxPageSize"`
	MaxNamespaceBytes           int64 `json:"maxNamespaceBytes"`
	IdempotencyRetentionSeconds int64 `json:"idempotencyRetentionSeconds"` // for how long a key may be repeated
}

// Capabilities are what a server promises.
type Capabilities struct {
	Contract   string `json:"contract"`
	Durability string `json:"durability"` // file-and-directory-sync or file-sync
	Limits     Limits `json:"limits"`
}

// Client calls one server as one caller. It is immutable and safe for concurrent use.
type Client struct {
	caller       Caller
	opts         Options
	transfer     *url.URL // nil: none
	capabilities Capabilities
}

// New reads the server's capabilities and makes a client. It fails with unsupported_format when the server speaks
// another contract.
func New(ctx context.Context, caller Caller, opts Options) (*Client, error) {
	c := &Client{caller: caller, opts: opts}
	c.opts.defaults()
	if opts.Transfer != "" {
		u, err := origin(opts.Transfer)
		if err != nil {
			return nil, err
		}
		c.transfer = u
	}
	if err := c.call(ctx, "capabilities", "", struct{}{}, &c.capabilities); err != nil {
		return nil, err
	}
	if c.capabilities.Contract != Contract {
		return nil, local("capabilities", UnsupportedFormat, "the server speaks %q; this client speaks %s: use another server or another client", c.capabilities.Contract, Contract)
	}
	return c, nil
}

// defaults fills in what was left out.
func (o *Options) defaults() {
	if o.CallTimeout == 0 {
		o.CallTimeout = defaultCallTimeout
	}
	if o.StallTimeout <= 0 {
		o.StallTimeout = defaultStallTimeout
	}
	if o.ToolName == nil {
		o.ToolName = ContractName
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.HTTPClient == nil {
		o.HTTPClient = &http.Client{Transport: newTransport()}
	}
	o.HTTPClient = withoutRedirects(o.HTTPClient)
	o.Retry.defaults()
}

// origin reads the transfer origin: scheme and host, and nothing else. The contract has the routes at the root of their
// origin (persistence.v1, section 6), so an address with a path would only ever answer 404.
func origin(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, local("new", InvalidRequest, "Options.Transfer must be an origin such as http://127.0.0.1:8635")
	}
	if u.Path != "" && u.Path != "/" {
		return nil, local("new", InvalidRequest, "Options.Transfer has a path, %s, and the routes /uploads and /artifacts are at the root of an origin: give %s://%s", u.EscapedPath(), u.Scheme, u.Host)
	}
	return u, nil
}

// Capabilities are what the server said when the client was made.
func (c *Client) Capabilities() Capabilities { return c.capabilities }

// call calls a tool until it succeeds or fails for good, and decodes its result into out. key is the idempotency key
// that in holds, empty for reads.
func (c *Client) call(ctx context.Context, tool, key string, in, out any) error {
	args, err := json.Marshal(in)
	if err != nil {
		return &Error{Op: tool, Code: InvalidRequest, Message: "the arguments cannot be written as JSON", Cause: err, local: true}
	}
	return c.repeat(ctx, tool, key, func(ctx context.Context) *Error {
		if c.opts.CallTimeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.opts.CallTimeout)
			defer cancel()
		}
		res, err := c.caller.CallTool(ctx, c.opts.ToolName(tool), args)
		if err != nil {
			return asError(err)
		}
		return res.decode(out)
	})
}

// NewKey makes an idempotency key: a random UUID, version 4.
func NewKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// orNewKey is key, or a new one when it is empty.
func orNewKey(key string) string {
	if key == "" {
		return NewKey()
	}
	return key
}
