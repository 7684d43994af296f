// Package workload makes clients that write, read and delete documents with idempotency keys, retry what they do not
// know, and record every attempt. Every fault test uses it, in process and over a network.
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
	"github.com/tabellion-mcp/tabellion/internal/testkit/verify"
)

// Namespace is where the documents of a workload live.
const Namespace = "load"

// Caller sends a tool call.
type Caller interface {
	Call(ctx context.Context, tool string, args []byte) (scenario.Answer, error)
}

// Config says what clients do.
type Config struct {
	Prefix    string // of idempotency keys; unique to the run
	Documents int    // shared by all clients
	Pad       int    // bytes of filling in a payload
	Reads     int    // of 100 operations
	Deletes   int    // of 100 operations
	Refs      bool   // some puts refer to an earlier revision
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
}

// pending is a write whose outcome is not known yet.
type pending struct {
	op   history.Op
	tool string
	args []byte
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
	switch dice := c.rng.IntN(100); {
	case dice < c.cfg.Reads:
		return c.get(ctx, caller, id)
	case dice < c.cfg.Reads+c.cfg.Deletes:
		return c.write(ctx, caller, history.Delete, id)
	}
	return c.write(ctx, caller, history.Put, id)
}

// write prepares a put or delete and tries it.
func (c *Client) write(ctx context.Context, caller Caller, kind history.Kind, id string) error {
	c.seq++
	key := fmt.Sprintf("%s-%d-%d", c.cfg.Prefix, c.n, c.seq)
	p := &pending{op: history.Op{Client: c.n, Document: Namespace + "/" + id, Kind: kind, Expected: c.heads[id], Key: key}}
	if kind == history.Delete {
		p.tool = "persistence.delete"
		p.args = fmt.Appendf(nil, `{"namespace":%q,"id":%q,"expectedRevision":%d,"idempotencyKey":%q}`, Namespace, id, p.op.Expected, key)
	} else {
		p.tool, p.op.Content = "persistence.put", key
		p.args = fmt.Appendf(nil, `{"namespace":%q,"id":%q,"kind":"load","schemaVersion":"1","payload":{"key":%q,"pad":%q},"references":%s,"expectedRevision":%d,"idempotencyKey":%q}`,
			Namespace, id, key, strings.Repeat("x", c.cfg.Pad), c.refs(), p.op.Expected, key)
	}
	c.pending = p
	return c.try(ctx, caller)
}

// refs is sometimes a reference to the first revision of a document that this client has seen.
func (c *Client) refs() string {
	if !c.cfg.Refs || c.rng.IntN(4) != 0 {
		return "[]"
	}
	id := fmt.Sprintf("d%02d", c.rng.IntN(c.cfg.Documents))
	if c.heads[id] == 0 {
		return "[]"
	}
	return fmt.Sprintf(`[{"type":"document","namespace":%q,"id":%q,"revision":1}]`, Namespace, id)
}

// try sends the pending write once and records what came back.
func (c *Client) try(ctx context.Context, caller Caller) error {
	op := c.pending.op
	op.Call = c.rec.Now()
	a, err := caller.Call(ctx, c.pending.tool, c.pending.args)
	if err != nil || a.Broken {
		op.Outcome = history.Unknown
		c.rec.Add(op)
		return ErrUnknown
	}
	outcome, err := c.classify(a, &op)
	if err != nil {
		return err
	}
	op.Outcome = outcome
	c.rec.Add(op)
	id := strings.TrimPrefix(op.Document, Namespace+"/")
	switch outcome {
	case history.Unknown:
		return ErrUnknown
	case history.OK:
		c.heads[id] = op.Revision
	case history.Refused:
		c.pending = nil
		return c.get(ctx, caller, id)
	}
	c.pending = nil
	return nil
}

// classify names the outcome of a write.
func (c *Client) classify(a scenario.Answer, op *history.Op) (history.Outcome, error) {
	if a.RPC != nil {
		if a.RPC.Code == -32010 || a.RPC.Code == -32014 {
			return history.NotDone, nil
		}
		return history.Unknown, fmt.Errorf("%s: JSON-RPC error %d %s", op.Key, a.RPC.Code, a.RPC.Message)
	}
	m, _ := a.Structured.(map[string]any)
	if !a.IsError {
		n, _ := m["revision"].(json.Number)
		var err error
		op.Revision, err = n.Int64()
		return history.OK, err
	}
	inner, _ := m["error"].(map[string]any)
	switch code, _ := inner["code"].(string); code {
	case "revision_conflict", "not_found":
		return history.Refused, nil
	case "busy", "quota_exceeded":
		return history.NotDone, nil
	case "store_unavailable":
		return history.Unknown, nil
	default:
		return history.Unknown, fmt.Errorf("%s: unexpected error %v", op.Key, inner)
	}
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

// Server reads what a server holds, through a caller, for the verifier.
type Server struct {
	Caller Caller
	// Audit gives the audit rows of writes. Nil: they are not compared.
	Audit func(context.Context) ([]verify.Effect, error)
}

// Documents lists the workload's documents.
func (s *Server) Documents(ctx context.Context) ([]string, error) {
	var names []string
	cursor := ""
	for {
		args := fmt.Sprintf(`{"namespace":%q,"includeDeleted":true,"limit":200%s}`, Namespace, cursor)
		a, err := s.Caller.Call(ctx, "persistence.list", []byte(args))
		if err != nil {
			return nil, err
		}
		m, err := object(a)
		if err != nil {
			return nil, err
		}
		items, _ := m["items"].([]any)
		for _, item := range items {
			names = append(names, Namespace+"/"+fmt.Sprint(item.(map[string]any)["id"]))
		}
		next, ok := m["nextCursor"].(string)
		if !ok {
			return names, nil
		}
		cursor = fmt.Sprintf(`,"cursor":%q`, next)
	}
}

// object is the structured content of a success.
func object(a scenario.Answer) (map[string]any, error) {
	m, ok := a.Structured.(map[string]any)
	if a.RPC != nil || a.IsError || !ok {
		return nil, fmt.Errorf("unexpected answer: %s", a)
	}
	return m, nil
}

// Revisions lists all revisions of a document.
func (s *Server) Revisions(ctx context.Context, document string) ([]verify.Revision, error) {
	namespace, id, _ := strings.Cut(document, "/")
	return revisionsOf(ctx, s.Caller, namespace, id)
}

// Effects gives the audit rows.
func (s *Server) Effects(ctx context.Context) ([]verify.Effect, error) {
	if s.Audit == nil {
		return nil, nil
	}
	return s.Audit(ctx)
}

// revisionsOf reads all pages of listRevisions.
func revisionsOf(ctx context.Context, caller Caller, namespace, id string) ([]verify.Revision, error) {
	var out []verify.Revision
	cursor := ""
	for {
		args := fmt.Sprintf(`{"namespace":%q,"id":%q,"limit":200%s}`, namespace, id, cursor)
		a, err := caller.Call(ctx, "persistence.listRevisions", []byte(args))
		if err != nil {
			return nil, err
		}
		m, err := object(a)
		if err != nil {
			return nil, err
		}
		items, _ := m["items"].([]any)
		for _, item := range items {
			out = append(out, revision(item.(map[string]any)))
		}
		next, ok := m["nextCursor"].(string)
		if !ok {
			return out, nil
		}
		cursor = fmt.Sprintf(`,"cursor":%q`, next)
	}
}

// revision reads a document as the verifier sees it.
func revision(m map[string]any) verify.Revision {
	var r verify.Revision
	n, _ := m["revision"].(json.Number)
	r.Number, _ = n.Int64()
	r.Deleted, _ = m["deleted"].(bool)
	payload, _ := m["payload"].(map[string]any)
	r.Content, _ = payload["key"].(string)
	refs, _ := m["references"].([]any)
	for _, ref := range refs {
		f, _ := ref.(map[string]any)
		r.Refs = append(r.Refs, fmt.Sprintf("%v/%v@%v", f["namespace"], f["id"], f["revision"]))
	}
	return r
}
