//lint:file-ignore SA1019 the older eras that this file serves have logging, sampling and roots

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
)

// legacy serves the older era on one endpoint. The SDK keeps the protocol's state: the handshake, sessions, streams,
// log levels, subscriptions, requests to the client. It decodes nothing of weight: our door has read the message
// strictly, hands the SDK a frame with what the SDK itself needs, and the message travels beside it.
type legacy struct {
	s      *Server
	e      *endpoint
	server *sdk.Server
	http   http.Handler

	mu         sync.Mutex
	subscribed map[*sdk.ServerSession]map[string]bool // resources that a session hears of
}

// subscribes tells whether resources of the endpoint can be subscribed to: something must tell of their changes.
func (e *endpoint) subscribes() bool { return e.resources && e.notifies }

// carried is a message on its way through the SDK, and who sent it.
type carried struct {
	m    *message
	who  *identity.Principal
	addr string
	// session is the session over HTTP, mem what the message and its answer hold of the server's memory, and refuse
	// is told of the error that the message is answered with. Nil where there is none of it.
	session *session
	mem     *hold
	refuse  func(*fault.Form)
	// answers ends when the client can answer no more: questions to it end too.
	answers context.Context
}

// carriedKey is where a carried message lies in a request's token information, the one place that the SDK hands
// through from its transport to its handlers.
const carriedKey = "carried"

// extra puts c where carriedOf finds it. The user binds the SDK's session, as our own table does.
func (c *carried) extra() *auth.TokenInfo {
	return &auth.TokenInfo{UserID: ownerOf(c.who), Extra: map[string]any{carriedKey: c}}
}

// carriedOf finds the message that came with a request; nil when there is none.
func carriedOf(req sdk.Request) *carried {
	extra := req.GetExtra()
	if extra == nil || extra.TokenInfo == nil {
		return nil
	}
	c, _ := extra.TokenInfo.Extra[carriedKey].(*carried)
	return c
}

// Placeholders whose replacement makes the SDK announce a changed list. They are listed to nobody: lists are answered
// from the catalog.
const placeholder = "placeholder"

// newLegacy makes the SDK's server of an endpoint.
func newLegacy(s *Server, e *endpoint) *legacy {
	l := &legacy{s: s, e: e, subscribed: map[*sdk.ServerSession]map[string]bool{}}
	info := s.cfg.Info
	caps := &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{}, Tools: &sdk.ToolCapabilities{ListChanged: e.notifies}}
	if e.prompts {
		caps.Prompts, caps.Completions = &sdk.PromptCapabilities{ListChanged: e.notifies}, &sdk.CompletionCapabilities{}
	}
	opts := &sdk.ServerOptions{Instructions: info.Instructions, SupportedProtocolVersions: legacyVersions, Capabilities: caps}
	if e.resources {
		caps.Resources = &sdk.ResourceCapabilities{ListChanged: e.notifies, Subscribe: e.notifies}
	}
	if e.subscribes() {
		opts.SubscribeHandler = func(context.Context, *sdk.SubscribeRequest) error { return nil } // checked before
		opts.UnsubscribeHandler = func(context.Context, *sdk.UnsubscribeRequest) error { return nil }
	}
	l.server = sdk.NewServer(&sdk.Implementation{Name: info.Name, Title: info.Title, Version: info.Version}, opts)
	l.server.AddReceivingMiddleware(l.middleware)
	l.http = l.httpHandler()
	return l
}

// tell announces a change to the sessions.
func (l *legacy) tell(c catalog.Change) {
	if c.Tools {
		l.server.AddTool(&sdk.Tool{Name: placeholder, InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
	}
	if c.Prompts && l.e.prompts {
		l.server.AddPrompt(&sdk.Prompt{Name: placeholder}, nil)
	}
	if c.Resources && l.e.resources {
		l.server.AddResource(&sdk.Resource{Name: placeholder, URI: placeholder + ":"}, nil)
	}
	if c.Resource != "" && l.e.resources {
		// Each session's stream takes it in its own time; a slow one must not hold up who tells.
		go l.server.ResourceUpdated(l.s.alive, &sdk.ResourceUpdatedNotificationParams{URI: c.Resource})
	}
}

// ownMethods are answered here, from the gate; the SDK only carries them.
var ownMethods = []string{
	"tools/call", "tools/list", "resources/read", "resources/list", "resources/templates/list",
	"prompts/get", "prompts/list", "completion/complete",
}

// sdkMethods are answered by the SDK.
var sdkMethods = []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}

// serves tells whether the older era has the method on this endpoint.
func (l *legacy) serves(method string) bool {
	switch method {
	case "resources/subscribe", "resources/unsubscribe":
		return l.e.subscribes()
	}
	return slices.Contains(sdkMethods, method) || (slices.Contains(ownMethods, method) && l.e.serves(method))
}

// middleware answers what is ours, and lets the SDK answer the rest after the checks that it does not make.
func (l *legacy) middleware(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		c, sess := carriedOf(req), sessionOf(req)
		if c == nil || sess == nil {
			return nil, wireError(fault.New(fault.Internal, "internal error").Form(fault.PlainDialect, fault.List, fault.Legacy))
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(l.s.alive, cancel)()
		x := l.exchange(c, sess)
		x.listen(ctx, sess)
		if slices.Contains(ownMethods, method) {
			body, form := x.answer(ctx, nil)
			x.m, c.m = nil, nil // the answer takes its place in memory
			if form == nil && !c.mem.become(ctx, copies*len(body)) {
				form = x.fail(noRoomToAnswer())
			}
			if form != nil {
				return nil, c.fail(form)
			}
			return &rawResult{body: body}, nil
		}
		if form := l.admit(ctx, x, method, sess); form != nil {
			return nil, c.fail(form)
		}
		result, err := next(ctx, method, req)
		l.passed(c, method, sess, err)
		return result, err
	}
}

// copies is how many copies of a result there are when the SDK sends it: ours, the encoded result, the message, the
// event.
const copies = 4

// fail is a form as the SDK sends it, if nobody is told of it before.
func (c *carried) fail(form *fault.Form) error {
	if c.refuse != nil {
		c.refuse(form)
	}
	return wireError(*form)
}

// passed keeps what follows from a method that the SDK answered.
func (l *legacy) passed(c *carried, method string, sess *sdk.ServerSession, err error) {
	switch {
	case method == "initialize" && err == nil && c.session != nil:
		l.s.sessions.add(c.session, sess)
	case method == "resources/unsubscribe" && err == nil, method == "resources/subscribe" && err != nil:
		l.unsubscribe(sess, c.who.RateKey(), c.m.params.Get("uri").Str())
	}
}

// sessionOf is the session of a request.
func sessionOf(req sdk.Request) *sdk.ServerSession {
	session, _ := req.GetSession().(*sdk.ServerSession)
	return session
}

// admit makes the checks before a method that the SDK answers: a new session counts as a call, and a resource can be
// subscribed to by who may read it.
func (l *legacy) admit(ctx context.Context, x *exchange, method string, sess *sdk.ServerSession) *fault.Form {
	switch method {
	case "initialize":
		if _, f := l.s.cfg.Gate.View(ctx, x.who, l.e.name); f != nil {
			return x.fail(f)
		}
	case "resources/subscribe":
		uri := x.m.params.Get("uri").Str()
		if !l.subscribe(sess, x.who.RateKey(), uri) {
			return x.fail(tooManySubscriptions())
		}
		if form := x.readable(ctx, uri); form != nil {
			l.unsubscribe(sess, x.who.RateKey(), uri)
			return form
		}
	}
	return nil
}

// subscribe counts a resource that a session of a principal hears of, until unsubscribe or the end of the session.
// False when the principal has too many.
func (l *legacy) subscribe(sess *sdk.ServerSession, rateKey, uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	uris := l.subscribed[sess]
	if uris[uri] {
		return true
	}
	if !l.s.listeners.reserve(rateKey) {
		return false
	}
	if uris == nil {
		uris = map[string]bool{}
		l.subscribed[sess] = uris
		go l.forget(sess, rateKey)
	}
	uris[strings.Clone(uri)] = true // the text of the whole message would stay with it
	return true
}

// unsubscribe counts one less.
func (l *legacy) unsubscribe(sess *sdk.ServerSession, rateKey, uri string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subscribed[sess][uri] {
		delete(l.subscribed[sess], uri)
		l.s.listeners.free(rateKey)
	}
}

// forget ends a session's subscriptions when it ends.
func (l *legacy) forget(sess *sdk.ServerSession, rateKey string) {
	sess.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for range l.subscribed[sess] {
		l.s.listeners.free(rateKey)
	}
	delete(l.subscribed, sess)
}

// exchange makes the request of a carried message.
func (l *legacy) exchange(c *carried, session *sdk.ServerSession) *exchange {
	x := &exchange{s: l.s, e: l.e, era: fault.Legacy, who: c.who, addr: c.addr, m: c.m}
	if init := session.InitializeParams(); init != nil && init.Capabilities != nil {
		x.client = catalog.ClientCaps{
			Elicitation: init.Capabilities.Elicitation != nil,
			Sampling:    init.Capabilities.Sampling != nil,
			Roots:       init.Capabilities.RootsV2 != nil,
		}
	}
	x.ask = func(ctx context.Context, q *gate.Ask) (canonjson.Value, *fault.Error) {
		return askClient(ctx, c, session, q)
	}
	return x
}

// listen lets the exchange report progress and log through the session, which keeps the level that the client set.
func (x *exchange) listen(ctx context.Context, session *sdk.ServerSession) {
	if token := x.m.meta.Get("progressToken"); validToken(token) {
		x.progress = func(done, total float64, note string) {
			if ctx.Err() != nil {
				return // the call is over
			}
			session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
				ProgressToken: tokenValue(token), Progress: done, Total: total, Message: note,
			})
		}
	}
	x.log = func(level string, data canonjson.Value) {
		if logLevels[level] > 0 && ctx.Err() == nil {
			session.Log(ctx, &sdk.LoggingMessageParams{Level: sdk.LoggingLevel(level), Data: json.RawMessage(data.AppendJSON(nil))})
		}
	}
}

// tokenValue is a progress token as the SDK writes it.
func tokenValue(token canonjson.Value) any {
	if token.Kind() == canonjson.KindString {
		return token.Str()
	}
	return json.Number(token.Literal())
}

// wireError is a fault as the SDK sends it.
func wireError(form fault.Form) error {
	return &jsonrpc.Error{Code: int64(form.RPC), Message: form.Message, Data: form.Data}
}

// rawResult is a result that is encoded already.
type rawResult struct {
	sdk.ResultBase
	body []byte
}

// MarshalJSON gives the result.
func (r *rawResult) MarshalJSON() ([]byte, error) { return r.body, nil }

// askTime is how long a person may take for one question of a held call.
const askTime = 5 * time.Minute

// askClient puts the questions to the client, one after the other, and gathers its answers by key.
func askClient(ctx context.Context, c *carried, session *sdk.ServerSession, q *gate.Ask) (canonjson.Value, *fault.Error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if c.answers != nil {
		defer context.AfterFunc(c.answers, cancel)()
	}
	var answers []canonjson.Member
	for _, r := range q.Requests {
		result, err := askOne(ctx, session, r)
		if err != nil {
			return canonjson.Value{}, fault.New(fault.InvalidRequest, "the client gave no answer to %s; nothing was done", r.Method).Wrap(err)
		}
		answers = append(answers, canonjson.M(r.Key, result))
	}
	return canonjson.Object(answers...), nil
}

// askOne puts one question. The gate has looked at the client's capabilities before.
func askOne(ctx context.Context, session *sdk.ServerSession, r catalog.InputRequest) (canonjson.Value, error) {
	params := []byte("{}")
	if !r.Params.IsAbsent() {
		params = r.Params.AppendJSON(nil)
	}
	var result any
	var err error
	switch r.Method {
	case "elicitation/create":
		p := &sdk.ElicitParams{}
		if err := json.Unmarshal(params, p); err != nil {
			return canonjson.Value{}, err
		}
		result, err = session.Elicit(ctx, p)
	case "sampling/createMessage":
		p := &sdk.CreateMessageWithToolsParams{}
		if err := json.Unmarshal(params, p); err != nil {
			return canonjson.Value{}, err
		}
		result, err = session.CreateMessageWithTools(ctx, p)
	case "roots/list":
		result, err = session.ListRoots(ctx, &sdk.ListRootsParams{})
	default:
		err = errors.New("no such question")
	}
	if err != nil {
		return canonjson.Value{}, err
	}
	text, err := json.Marshal(result)
	if err != nil {
		return canonjson.Value{}, err
	}
	return canonjson.ParseStrict(text, gate.FrameLimits())
}

// frame is what the SDK gets to see of a message: enough to keep its state, checked so that it need not refuse it in
// words that repeat the caller's own. ok is false for notifications that the SDK has no use for.
func (m *message) frame() (text []byte, ok bool, f *fault.Error) {
	if m.response {
		return m.whole.AppendJSON(nil), true, nil
	}
	members := []canonjson.Member{canonjson.M("jsonrpc", canonjson.String("2.0"))}
	if m.id != "" {
		id := m.idValue()
		if _, ok := id.Int(); !ok && id.Kind() == canonjson.KindNumber {
			return nil, false, invalid("sessions take integers up to 9007199254740991 as ids; send this id as a string")
		}
		members = append(members, canonjson.M("id", id))
	}
	members = append(members, canonjson.M("method", canonjson.String(m.method)))
	params, ok, f := m.frameParams()
	if f != nil || !ok {
		return nil, false, f
	}
	members = append(members, canonjson.M("params", params))
	return canonjson.Object(members...).AppendJSON(nil), true, nil
}

// frameParams are the params of a frame.
func (m *message) frameParams() (params canonjson.Value, ok bool, f *fault.Error) {
	switch m.method {
	case "initialize":
		params, f = m.initializeParams()
		return params, true, f
	case "logging/setLevel":
		level := m.params.Get("level")
		if logLevels[level.Str()] == 0 {
			return params, false, badParams("params.level must be a log level of RFC 5424, such as info")
		}
		return canonjson.Object(canonjson.M("level", level)), true, nil
	case "resources/subscribe", "resources/unsubscribe":
		uri := m.params.Get("uri")
		if uri.Kind() != canonjson.KindString {
			return params, false, badParams("params.uri must be a string")
		}
		return canonjson.Object(canonjson.M("uri", uri)), true, nil
	case "notifications/cancelled":
		id := m.params.Get("requestId")
		if idKey(id) == "" {
			return canonjson.Value{}, false, nil
		}
		return canonjson.Object(canonjson.M("requestId", id)), true, nil
	case "notifications/initialized":
		return canonjson.Object(), true, nil
	}
	return canonjson.Object(), m.id != "", nil
}

// initializeParams keeps of an initialize request what matters here: the version and the abilities to answer.
func (m *message) initializeParams() (canonjson.Value, *fault.Error) {
	version, caps, client := m.params.Get("protocolVersion"), m.params.Get("capabilities"), m.params.Get("clientInfo")
	if version.Kind() != canonjson.KindString || caps.Kind() != canonjson.KindObject || client.Kind() != canonjson.KindObject {
		return canonjson.Value{}, badParams("initialize needs params.protocolVersion, params.capabilities and params.clientInfo")
	}
	ability := func(name string, parts ...string) canonjson.Member {
		v := caps.Get(name)
		if v.Kind() != canonjson.KindObject {
			return canonjson.Member{Name: name}
		}
		var kept []canonjson.Member
		for _, part := range parts {
			if v.Get(part).Kind() == canonjson.KindObject {
				kept = append(kept, canonjson.M(part, canonjson.Object()))
			}
		}
		return canonjson.M(name, canonjson.Object(kept...))
	}
	return canonjson.Object(
		canonjson.M("protocolVersion", version),
		canonjson.M("capabilities", canonjson.Object(ability("elicitation", "form", "url"), ability("sampling"), ability("roots"))),
		canonjson.M("clientInfo", canonjson.Object(
			canonjson.M("name", canonjson.String(client.Get("name").Str())),
			canonjson.M("version", canonjson.String(client.Get("version").Str()))))), nil
}
