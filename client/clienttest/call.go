package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/tabellion-mcp/tabellion/client"
	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
)

// ErrLost is the error of an answer that LoseAnswers lost.
var ErrLost = errors.New("the connection ended before the answer came")

// Caller calls the tools as a caller. An empty name is nobody: every call is refused for want of a token.
func (s *Server) Caller(as string) client.Caller { return caller{s, as} }

// caller implements client.Caller.
type caller struct {
	s  *Server
	as string
}

// CallTool implements client.Caller.
func (c caller) CallTool(ctx context.Context, name string, arguments json.RawMessage) (client.Result, error) {
	if err := ctx.Err(); err != nil {
		return client.Result{}, err
	}
	tool := strings.TrimPrefix(name, client.ContractName(""))
	plan := c.s.faults.next(c.as, tool, arguments)
	if plan.refuse != nil {
		return plan.refuse()
	}
	for _, put := range plan.overtake {
		if err := c.s.overtake(ctx, put); err != nil {
			return client.Result{}, err
		}
	}
	res, err := c.s.run(ctx, c.as, name, arguments)
	if err == nil && !res.IsError && c.s.faults.loses(tool) {
		return client.Result{}, ErrLost
	}
	return res, err
}

// run takes one call through the gate, as a transport does.
func (s *Server) run(ctx context.Context, as, name string, arguments json.RawMessage) (client.Result, error) {
	if as == "" {
		return client.Result{}, client.FromRPC(-32001, "Unauthorized: this caller has no token", json.RawMessage(`{"error":"UNAUTHORIZED_KEY"}`))
	}
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	frame := slices.Concat([]byte(`{"arguments":`), arguments, []byte("}"))
	v, flaw, err := canonjson.Parse(frame, gate.FrameLimits())
	if err != nil {
		return client.Result{}, client.FromRPC(-32700, err.Error(), nil)
	}
	return answer(s.gate.Run(ctx, gate.Request{
		Who: principal(as), Endpoint: catalog.All, Surface: fault.Tool, Era: fault.Stateless, Name: name,
		In: v.Get("arguments"), Flaw: flaw,
	}))
}

// answer is the gate's reply as a tool's result.
func answer(reply gate.Reply) (client.Result, error) {
	switch {
	case reply.Ask != nil:
		return client.Result{}, errors.New("the call asks a question back")
	case reply.Fault == nil:
		return client.Result{Structured: reply.Result.JSON, Text: string(reply.Result.JSON)}, nil
	}
	form := reply.Fault.Form(reply.Dialect(), fault.Tool, fault.Stateless)
	if form.ToolError {
		return client.Result{IsError: true, Structured: form.Tool, Text: string(form.Tool)}, nil
	}
	return client.Result{}, client.FromRPC(form.RPC, form.Message, form.Data)
}
