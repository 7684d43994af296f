// Package workload makes clients that write, read, delete and purge documents and artifacts with idempotency keys, retry
// what they do not know, and record every attempt. Every fault test uses it, in process and over a network.
package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
)

// Namespace is where the documents and artifacts of a workload live.
const Namespace = "load"

// Caller sends tool calls and exchanges with the transfer origin.
type Caller interface {
	Call(ctx context.Context, tool string, args []byte) (scenario.Answer, error)
	HTTP(ctx context.Context, req scenario.HTTPRequest) (scenario.HTTPResponse, error)
}

// Config says what clients do. Operations that are no reads, deletes, purges or of artifacts are puts.
type Config struct {
	Prefix    string // of idempotency keys; unique to the run
	Documents int    // shared by all clients
	Pad       int    // bytes of filling in a payload
	Reads     int    // of 100 operations
	Deletes   int    // of 100 operations
	Purges    int    // of 100 operations; the server needs a retention of zero for one to succeed
	Refs      bool   // some puts refer to an earlier revision, or to an artifact
	Artifacts int    // of 100 operations
	MaxBytes  int    // of an artifact; 0 is 300 KiB
	Shelf     *Shelf // shared by the clients of a run; needed with Artifacts
}

// Client is one client. It is not safe for concurrent use.
type Client struct {
	cfg     Config
	n       int
	rng     *rand.Rand
	rec     *history.Recorder
	heads   map[string]int64
	seq     int
	pending *pending
	last    *upload // that this client opened
}

// pending is a write whose outcome is not known yet.
type pending struct {
	op    history.Op
	tool  string
	args  []byte
	tries int
	up    *upload // of operations on an upload
}

// NewClient makes client n of a run; seed makes its choices repeatable.
func NewClient(cfg Config, n int, seed uint64, rec *history.Recorder) *Client {
	return &Client{cfg: cfg, n: n, rng: rand.New(rand.NewPCG(seed, uint64(n))), rec: rec, heads: map[string]int64{}}
}

// ErrUnknown: the outcome is not known; the next Step asks again with the same key.
var ErrUnknown = errors.New("outcome unknown")

// Pending tells whether the client waits for the outcome of a write.
func (c *Client) Pending() bool { return c.pending != nil }

// Step does one operation, or asks again for the outcome of the last. It returns ErrUnknown when there was no answer,
// and another error when an answer breaks the contract.
func (c *Client) Step(ctx context.Context, caller Caller) error {
	if c.pending != nil {
		return c.try(ctx, caller)
	}
	id := fmt.Sprintf("d%02d", c.rng.IntN(c.cfg.Documents))
	dice := c.rng.IntN(100)
	switch {
	case dice < c.cfg.Reads:
		return c.get(ctx, caller, id)
	case dice < c.cfg.Reads+c.cfg.Deletes:
		return c.write(ctx, caller, history.Delete, id)
	case dice < c.cfg.Reads+c.cfg.Deletes+c.cfg.Purges:
		return c.purge(ctx, caller, id)
	case dice < c.cfg.Reads+c.cfg.Deletes+c.cfg.Purges+c.cfg.Artifacts:
		return c.artifact(ctx, caller)
	}
	return c.write(ctx, caller, history.Put, id)
}

// Do does one operation of a script on document id, or on the upload that this client opened last.
// Nothing is spoilt on purpose. The errors are those of Step; after ErrUnknown a Receive is done again, and everything
// else by the next Step.
func (c *Client) Do(ctx context.Context, caller Caller, kind history.Kind, id string) error {
	switch kind {
	case history.Get:
		return c.get(ctx, caller, id)
	case history.Put, history.Delete:
		return c.write(ctx, caller, kind, id)
	case history.Purge:
		return c.purge(ctx, caller, id)
	case history.Begin:
		return c.begin(ctx, caller)
	case history.Receive:
		return c.transfer(ctx, caller, c.last, scenario.HTTPRequest{Body: c.last.content.bytes()}, false)
	case history.Fetch:
		return c.fetch(ctx, caller, c.last)
	case history.PurgeArtifact:
		return c.purgeArtifact(ctx, caller, c.last)
	}
	return c.onUpload(ctx, caller, c.last, kind)
}

// key makes a fresh idempotency key.
func (c *Client) key() string {
	c.seq++
	return fmt.Sprintf("%s-%d-%d", c.cfg.Prefix, c.n, c.seq)
}

// purge removes a superseded revision of a document, or of one that this client knows nothing of, reads it.
func (c *Client) purge(ctx context.Context, caller Caller, id string) error {
	if c.heads[id] < 2 {
		return c.get(ctx, caller, id)
	}
	key, revision := c.key(), 1+c.rng.Int64N(c.heads[id]-1)
	c.pending = &pending{
		op:   history.Op{Client: c.n, Document: Namespace + "/" + id, Kind: history.Purge, Key: key, Revision: revision},
		tool: "persistence.purge",
		args: fmt.Appendf(nil, `{"namespace":%q,"target":{"type":"document","id":%q,"revision":%d},"idempotencyKey":%q}`, Namespace, id, revision, key),
	}
	return c.try(ctx, caller)
}

// write prepares a put or delete and tries it.
func (c *Client) write(ctx context.Context, caller Caller, kind history.Kind, id string) error {
	key := c.key()
	p := &pending{op: history.Op{Client: c.n, Document: Namespace + "/" + id, Kind: kind, Expected: c.heads[id], Key: key}}
	if kind == history.Delete {
		p.tool = "persistence.delete"
		p.args = fmt.Appendf(nil, `{"namespace":%q,"id":%q,"expectedRevision":%d,"idempotencyKey":%q}`, Namespace, id, p.op.Expected, key)
	} else {
		refs := c.refs()
		p.tool, p.op.Content, p.op.Cites = "persistence.put", key, refs != "[]"
		p.args = fmt.Appendf(nil, `{"namespace":%q,"id":%q,"kind":"load","schemaVersion":"1","payload":{"key":%q,"pad":%q},"references":%s,"expectedRevision":%d,"idempotencyKey":%q}`,
			Namespace, id, key, strings.Repeat("x", c.cfg.Pad), refs, p.op.Expected, key)
	}
	c.pending = p
	return c.try(ctx, caller)
}

// refs is sometimes a reference to the first revision of a document that this client has seen, or to an artifact.
func (c *Client) refs() string {
	if !c.cfg.Refs || c.rng.IntN(4) != 0 {
		return "[]"
	}
	if c.cfg.Artifacts > 0 && c.rng.IntN(2) == 0 {
		if id := c.cfg.Shelf.published(c.rng); id != "" {
			return fmt.Sprintf(`[{"type":"artifact","namespace":%q,"id":%q}]`, Namespace, id)
		}
	}
	id := fmt.Sprintf("d%02d", c.rng.IntN(c.cfg.Documents))
	if c.heads[id] == 0 {
		return "[]"
	}
	return fmt.Sprintf(`[{"type":"document","namespace":%q,"id":%q,"revision":1}]`, Namespace, id)
}

// try sends the pending operation once and records what came back.
func (c *Client) try(ctx context.Context, caller Caller) error {
	p := c.pending
	p.tries++
	op := p.op
	op.Call = c.rec.Now()
	a, err := caller.Call(ctx, p.tool, p.args)
	if err != nil || a.Broken {
		op.Outcome = history.Unknown
		c.rec.Add(op)
		return ErrUnknown
	}
	outcome, err := classify(a, &op)
	if err != nil {
		return err
	}
	// A key whose revision was purged answers not_found as well: whether it was refused cannot be told any more.
	settled := outcome != history.Unknown
	if c.cfg.Purges > 0 && p.tries > 1 && op.Code == "not_found" && (op.Kind == history.Put || op.Kind == history.Delete) {
		outcome = history.Unknown
	}
	op.Outcome = outcome
	c.rec.Add(op)
	if !settled {
		return ErrUnknown
	}
	c.pending = nil
	return c.learn(ctx, caller, p, op)
}

// learn draws the conclusions of an operation whose outcome is known.
func (c *Client) learn(ctx context.Context, caller Caller, p *pending, op history.Op) error {
	if op.Kind.OfArtifact() {
		c.cfg.Shelf.learn(p.up, op)
		if op.Kind == history.Begin && op.Outcome == history.OK {
			c.last = p.up
		}
		return nil
	}
	id := strings.TrimPrefix(op.Document, Namespace+"/")
	switch {
	case op.Kind == history.Purge:
	case op.Outcome == history.OK:
		c.heads[id] = op.Revision
	case op.Outcome != history.NotDone:
		return c.get(ctx, caller, id)
	}
	return nil
}

// classify names the outcome of an operation that changes something, and takes from the answer what it tells.
func classify(a scenario.Answer, op *history.Op) (history.Outcome, error) {
	if a.RPC != nil {
		if a.RPC.Code == -32010 || a.RPC.Code == -32014 {
			return history.NotDone, nil
		}
		return history.Unknown, fmt.Errorf("%s: JSON-RPC error %d %s", op.Key, a.RPC.Code, a.RPC.Message)
	}
	m, _ := a.Structured.(map[string]any)
	if !a.IsError {
		return history.OK, take(m, op)
	}
	inner, _ := m["error"].(map[string]any)
	op.Code, _ = inner["code"].(string)
	switch op.Code {
	case "revision_conflict", "not_found", "retention_blocked", "transfer_incomplete", "integrity_error":
		return history.Refused, nil
	case "busy", "quota_exceeded":
		return history.NotDone, nil
	case "store_unavailable":
		return history.Unknown, nil
	default:
		return history.Unknown, fmt.Errorf("%s: unexpected error %v", op.Key, inner)
	}
}

// take reads what a success tells.
func take(m map[string]any, op *history.Op) error {
	switch op.Kind {
	case history.Put, history.Delete:
		n, _ := m["revision"].(json.Number)
		var err error
		op.Revision, err = n.Int64()
		return err
	case history.Begin:
		op.UploadID, _ = m["uploadId"].(string)
		id, _ := m["artifactId"].(string)
		op.Artifact = Namespace + "/" + id
		if op.UploadID == "" || id == "" {
			return fmt.Errorf("%s: beginArtifact answered %v", op.Key, m)
		}
	}
	return nil
}

// get reads the head and remembers its number.
func (c *Client) get(ctx context.Context, caller Caller, id string) error {
	op := history.Op{Client: c.n, Document: Namespace + "/" + id, Kind: history.Get, Call: c.rec.Now()}
	a, err := caller.Call(ctx, "persistence.get", fmt.Appendf(nil, `{"namespace":%q,"id":%q}`, Namespace, id))
	if err != nil || a.RPC != nil || a.Broken {
		return nil // a read without an answer tells nothing
	}
	m, _ := a.Structured.(map[string]any)
	if a.IsError {
		inner, _ := m["error"].(map[string]any)
		if inner["code"] != "not_found" {
			return nil
		}
		op.Outcome = history.Refused
		c.rec.Add(op)
		return c.findTombstone(ctx, caller, id)
	}
	n, _ := m["revision"].(json.Number)
	op.Revision, _ = n.Int64()
	payload, _ := m["payload"].(map[string]any)
	op.Content, _ = payload["key"].(string)
	c.rec.Add(op)
	c.heads[id] = op.Revision
	return nil
}

// findTombstone learns the number of a deleted head, so that the document can be written again.
func (c *Client) findTombstone(ctx context.Context, caller Caller, id string) error {
	revisions, err := revisionsOf(ctx, caller, Namespace, id)
	if err != nil {
		return nil // the document was never written, or there was no answer
	}
	c.heads[id] = revisions[len(revisions)-1].Number
	return nil
}
