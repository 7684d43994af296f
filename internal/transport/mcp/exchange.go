package mcp

import (
	"context"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
)

// exchange is one request and what is needed to answer it, whatever carried it here.
type exchange struct {
	s      *Server
	e      *endpoint
	era    fault.Era
	who    *identity.Principal
	addr   string // of the client, without port; "" on stdio
	m      *message
	client catalog.ClientCaps
	// progress and log reach the client; nil when it did not ask for them.
	progress func(done, total float64, note string)
	log      func(level string, data canonjson.Value)
	// ask puts questions to an older client while its call is held. Nil in the stateless era, where the answer to the
	// call is the question.
	ask func(ctx context.Context, q *gate.Ask) (canonjson.Value, *fault.Error)
}

// maxRounds bounds how often one call of an older client may ask.
const maxRounds = 10

// answer appends the result object of the request to dst. With a form it appended nothing of use: the answer is that
// error.
func (x *exchange) answer(ctx context.Context, dst []byte) ([]byte, *fault.Form) {
	switch x.m.method {
	case "tools/call":
		return x.callTool(ctx, dst)
	case "tools/list":
		return x.listTools(ctx, dst)
	case "resources/read":
		return x.readResource(ctx, dst)
	case "resources/list":
		return x.list(ctx, dst, "resources", appendResources)
	case "resources/templates/list":
		return x.list(ctx, dst, "resourceTemplates", appendTemplates)
	case "prompts/get":
		return x.getPrompt(ctx, dst)
	case "prompts/list":
		return x.list(ctx, dst, "prompts", appendPrompts)
	case "completion/complete":
		return x.complete(ctx, dst)
	}
	return dst, x.fail(unknownMethod(x.m.method))
}

// serves tells whether the endpoint has the method, in the stateless era.
func (e *endpoint) serves(method string) bool {
	switch method {
	case "server/discover", "tools/list", "tools/call", "subscriptions/listen":
		return true
	case "resources/list", "resources/templates/list", "resources/read":
		return e.resources
	case "prompts/list", "prompts/get", "completion/complete":
		return e.prompts
	}
	return false
}

// unknownMethod is the refusal of a method that is not served here.
func unknownMethod(method string) *fault.Error {
	return fault.New(fault.MethodNotFound, "unknown method %q", catalog.Clip(method, 64))
}

// fail gives the form of a fault that came before any operation.
func (x *exchange) fail(f *fault.Error) *fault.Form {
	form := f.Form(fault.PlainDialect, fault.List, x.era)
	return &form
}

// failed gives the form of a reply's fault.
func (x *exchange) failed(r gate.Reply, s fault.Surface) *fault.Form {
	form := r.Fault.Form(r.Dialect(), s, x.era)
	return &form
}

// run takes the request through the gate. An older client is asked in between, as often as the operation needs.
func (x *exchange) run(ctx context.Context, surface fault.Surface, name string, in canonjson.Value) (gate.Reply, *fault.Form) {
	req := gate.Request{
		Who: x.who, Endpoint: x.e.name, Surface: surface, Era: x.era, Name: name, In: in, Flaw: x.m.flaw,
		Client: x.client, Addr: x.addr, Progress: x.progress, Log: x.log,
	}
	if x.ask == nil {
		resume, f := resumeOf(x.m.params)
		if f != nil {
			return gate.Reply{}, x.fail(f)
		}
		req.Resume = resume
	}
	reply := x.s.cfg.Gate.Run(ctx, req)
	for round := 0; reply.Ask != nil && x.ask != nil; round++ {
		if round == maxRounds {
			reply.Ask, reply.Fault = nil, fault.New(fault.InvalidRequest, "the call asked %d times and is not done; start again", maxRounds)
			break
		}
		answers, f := x.ask(ctx, reply.Ask)
		if f != nil {
			reply.Ask, reply.Fault = nil, f
			break
		}
		req.Resume, req.Again = &gate.Resume{State: reply.Ask.State, Answers: answers}, true
		reply = x.s.cfg.Gate.Run(ctx, req)
	}
	return reply, nil
}

// resumeOf reads the answers and the state of a call that was asked back; nil when it was not.
func resumeOf(params canonjson.Value) (*gate.Resume, *fault.Error) {
	answers, state := params.Get("inputResponses"), params.Get("requestState")
	if answers.IsAbsent() && state.IsAbsent() {
		return nil, nil
	}
	if k := answers.Kind(); k != canonjson.KindAbsent && k != canonjson.KindObject {
		return nil, badParams("params.inputResponses must be an object")
	}
	if k := state.Kind(); k != canonjson.KindAbsent && k != canonjson.KindString {
		return nil, badParams("params.requestState must be a string")
	}
	return &gate.Resume{State: state.Str(), Answers: answers}, nil
}

// callTool answers tools/call.
func (x *exchange) callTool(ctx context.Context, dst []byte) ([]byte, *fault.Form) {
	name, f := x.text("name")
	if f != nil {
		return dst, f
	}
	reply, f := x.run(ctx, fault.Tool, name, x.m.params.Get("arguments"))
	if f != nil {
		return dst, f
	}
	switch {
	case reply.Fault != nil:
		form := x.failed(reply, fault.Tool)
		if !form.ToolError {
			return dst, form
		}
		return x.appendToolError(dst, reply, form.Tool), nil
	case reply.Ask != nil:
		return x.appendAsk(dst, reply.Ask), nil
	}
	return x.appendToolResult(dst, reply), nil
}

// readResource answers resources/read.
func (x *exchange) readResource(ctx context.Context, dst []byte) ([]byte, *fault.Form) {
	uri, f := x.text("uri")
	if f != nil {
		return dst, f
	}
	reply, f := x.run(ctx, fault.Resource, uri, canonjson.Value{})
	if f != nil {
		return dst, f
	}
	switch {
	case reply.Fault != nil:
		return dst, x.failed(reply, fault.Resource)
	case reply.Ask != nil:
		return x.appendAsk(dst, reply.Ask), nil
	}
	return x.appendResource(dst, reply, uri), nil
}

// getPrompt answers prompts/get.
func (x *exchange) getPrompt(ctx context.Context, dst []byte) ([]byte, *fault.Form) {
	name, f := x.text("name")
	if f != nil {
		return dst, f
	}
	in := x.m.params.Get("arguments")
	if !stringsOnly(in) {
		return dst, x.fail(badParams("params.arguments must be an object of strings"))
	}
	reply, f := x.run(ctx, fault.Prompt, name, in)
	if f != nil {
		return dst, f
	}
	switch {
	case reply.Fault != nil:
		return dst, x.failed(reply, fault.Prompt)
	case reply.Ask != nil:
		return x.appendAsk(dst, reply.Ask), nil
	}
	return x.appendPrompt(dst, reply), nil
}

// stringsOnly tells whether v is absent or an object whose values are all strings.
func stringsOnly(v canonjson.Value) bool {
	if v.IsAbsent() {
		return true
	}
	if v.Kind() != canonjson.KindObject {
		return false
	}
	for _, m := range v.Members() {
		if m.Value.Kind() != canonjson.KindString {
			return false
		}
	}
	return true
}

// maxCompletions is how many values a completion may have (MCP, completion/complete).
const maxCompletions = 100

// complete answers completion/complete.
func (x *exchange) complete(ctx context.Context, dst []byte) ([]byte, *fault.Form) {
	ref, argument := x.m.params.Get("ref"), x.m.params.Get("argument")
	if argument.Get("name").Kind() != canonjson.KindString || argument.Get("value").Kind() != canonjson.KindString {
		return dst, x.fail(badParams("params.argument must hold the strings name and value"))
	}
	var values []string
	switch ref.Get("type").Str() {
	case "ref/prompt":
		var f *fault.Error
		values, f = x.s.cfg.Gate.Complete(ctx, gate.Request{
			Who: x.who, Endpoint: x.e.name, Surface: fault.Prompt, Era: x.era, Name: ref.Get("name").Str(), Client: x.client, Addr: x.addr,
		}, argument.Get("name").Str(), argument.Get("value").Str())
		if f != nil {
			form := f.Form(fault.PlainDialect, fault.Prompt, x.era)
			return dst, &form
		}
	case "ref/resource": // templates propose nothing
	default:
		return dst, x.fail(badParams("params.ref.type must be ref/prompt or ref/resource"))
	}
	return x.appendCompletion(dst, values), nil
}

// list answers a listing: what the caller may see, in catalog order, on one page.
func (x *exchange) list(ctx context.Context, dst []byte, member string, items func([]byte, *catalog.View) []byte) ([]byte, *fault.Form) {
	if !x.m.params.Get("cursor").IsAbsent() {
		return dst, x.fail(badParams("the cursor is not valid: this list has one page"))
	}
	view, f := x.s.cfg.Gate.View(ctx, x.who, x.e.name)
	if f != nil {
		return dst, x.fail(f)
	}
	return x.appendList(dst, member, func(dst []byte) []byte { return items(dst, view) }), nil
}

// listTools answers tools/list, page by page where there are more tools than a page holds. The cursor is bound to the
// view: when what the caller may see has changed, the list must be begun anew.
func (x *exchange) listTools(ctx context.Context, dst []byte) ([]byte, *fault.Form) {
	view, f := x.s.cfg.Gate.View(ctx, x.who, x.e.name)
	if f != nil {
		return dst, x.fail(f)
	}
	first := 0
	if cursor := x.m.params.Get("cursor"); !cursor.IsAbsent() {
		if first, f = x.s.cfg.Gate.OpenList(view, cursor.Str()); f != nil {
			return dst, x.fail(f)
		}
	}
	page, next, ok := view.ToolsPage(first)
	if !ok {
		return dst, x.fail(badParams("the cursor is not valid: begin the list anew, without a cursor"))
	}
	return x.appendList(dst, "tools", func(dst []byte) []byte {
		dst = append(dst, page...)
		if next > 0 {
			dst = append(dst, `,"nextCursor":`...)
			dst = appendString(dst, x.s.cfg.Gate.SealList(view, next))
		}
		return dst
	}), nil
}

// text takes a string that the method needs from params.
func (x *exchange) text(member string) (string, *fault.Form) {
	v := x.m.params.Get(member)
	if v.Kind() != canonjson.KindString {
		return "", x.fail(badParams("params." + member + " must be a string"))
	}
	return v.Str(), nil
}
