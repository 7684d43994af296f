package fault

import (
	"encoding/json"
	"net/http"
	"sort"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Dialect is how a slot spells its business failures.
type Dialect uint8

// The dialects.
const (
	// PlainDialect: a tool result with isError and {code,message}. For operations outside the slots' own contracts.
	PlainDialect Dialect = iota
	// PersistenceDialect: a tool result with isError and {"error":{code,message}} (persistence.v1, section 2).
	PersistenceDialect
	// ModelsDialect: a tool result with isError and {code,message}, the code in the words of the models slot, and the
	// message with a stable prefix ERR_...: where the code alone does not tell (models, sections 22 and 23.3).
	ModelsDialect
)

// Surface is where an operation was called.
type Surface string

// The surfaces.
const (
	Tool     Surface = "tool"
	Resource Surface = "resource"
	Prompt   Surface = "prompt"
	List     Surface = "list"     // a listing, or another method without an operation
	Transfer Surface = "transfer" // a raw HTTP route
	Command  Surface = "command"  // the command line, in the process that owns the store
)

// Era is the protocol generation of the client.
type Era string

// The eras.
const (
	Stateless Era = "stateless" // 2026-07-28 and later
	Legacy    Era = "legacy"    // 2025-11-25 and before: initialize and sessions
)

// JSON-RPC codes. -32000 to -32019 are ours, -32020 and below belong to the protocol.
const (
	rpcParse           = -32700
	rpcInvalidRequest  = -32600
	rpcMethodNotFound  = -32601
	rpcInvalidParams   = -32602
	rpcInternal        = -32603
	rpcNotFoundLegacy  = -32002 // resource not found, until 2025-11-25
	rpcDenied          = -32001
	rpcRateLimited     = -32010
	rpcAuthBackend     = -32013
	rpcOverloaded      = -32014
	rpcHeaderMismatch  = -32020
	rpcMissingAbility  = -32021
	rpcUnknownVersion  = -32022
	rpcRequestCanceled = -32015
)

// Form is a fault on the wire. Exactly one of Tool and RPC is meaningful: Tool when ToolError is set, and on a transfer
// route, where it is the body of an answer with the status HTTP.
type Form struct {
	// ToolError: the answer is a tool result with isError, structuredContent Tool and the same JSON as text.
	ToolError bool
	Tool      json.RawMessage
	// RPC, Message and Data are a JSON-RPC error. Data is nil when there is none.
	RPC     int
	Message string
	Data    json.RawMessage
	// HTTP is the status of the HTTP answer that carries it, on the MCP endpoint or on a transfer route.
	HTTP int
}

// Form gives the wire form of e for a slot's dialect, a surface and an era.
func (e *Error) Form(d Dialect, s Surface, era Era) Form {
	if s == Transfer {
		return e.transferForm()
	}
	if e.business() || d == ModelsDialect && e.Code == Internal {
		if s == Tool || s == Command {
			return Form{ToolError: true, Tool: e.toolBody(d).AppendJSON(nil), HTTP: http.StatusOK}
		}
		return e.resourceForm(era)
	}
	return e.protocolForm(era)
}

// business tells whether e is a failure of the operation itself, not of the protocol around it.
func (e *Error) business() bool {
	switch e.Code {
	case InvalidRequest, NotFound, PolicyDenied, RevisionConflict, IdempotencyConflict, QuotaExceeded, TransferIncomplete,
		IntegrityError, UnsupportedFormat, RetentionBlocked, Busy, StoreUnavailable,
		ProfileBlocked, NoContext, Unauthenticated, InvalidBody, PlanError:
		return true
	}
	return false
}

// OfModels tells whether a code is one of the models slot alone: no other slot answers it.
func OfModels(c Code) bool {
	switch c {
	case ProfileBlocked, NoContext, Unauthenticated, InvalidBody, PlanError:
		return true
	}
	return false
}

// modelsForm is a code in the words of the models slot, and the prefix that its message has.
type modelsForm struct{ code, prefix string }

// modelsForms are those of every business code. What models has no word for is a planError, with a prefix that tells
// it apart (models, sections 22.1 and 23.4).
var modelsForms = map[Code]modelsForm{
	InvalidRequest:      {"invalidParam", ""},
	NotFound:            {"notFound", ""},
	PolicyDenied:        {"permissionDenied", "ERR_PERMISSION:"},
	RevisionConflict:    {"versionConflict", ""},
	IdempotencyConflict: {"idempotencyConflict", ""},
	ProfileBlocked:      {"profileBlocked", "ERR_TEXT2QUERY:"},
	NoContext:           {"noContext", "ERR_NO_CONTEXT:"},
	Unauthenticated:     {"unauthenticated", ""},
	InvalidBody:         {"invalidBody", ""},
	PlanError:           {"planError", ""},
	QuotaExceeded:       {"planError", "ERR_LIMIT:"},
	Busy:                {"planError", "ERR_BUSY:"},
	StoreUnavailable:    {"planError", "ERR_SOURCE:"},
	Internal:            {"planError", "ERR_INTERNAL:"},
}

// modelsBody is the structuredContent of a failed call of the models slot: code and message, and the version that a row
// has where another was expected.
func (e *Error) modelsBody() canonjson.Value {
	form, ok := modelsForms[e.Code]
	if !ok {
		form = modelsForms[Internal]
	}
	message := e.Message
	if form.prefix != "" && !strings.HasPrefix(message, "ERR_") {
		message = form.prefix + " " + message
	}
	m := []canonjson.Member{canonjson.M("code", canonjson.String(form.code)), canonjson.M("message", canonjson.String(message))}
	if v, ok := e.Detail["current"].(canonjson.Value); ok {
		m = append(m, canonjson.M("current", v))
	}
	return canonjson.Object(m...)
}

// pair is {"code":...,"message":...}.
func (e *Error) pair() canonjson.Value {
	return canonjson.Object(
		canonjson.M("code", canonjson.String(string(e.Code))),
		canonjson.M("message", canonjson.String(e.Message)))
}

// toolBody is the structuredContent of a failed tool call.
func (e *Error) toolBody(d Dialect) canonjson.Value {
	switch d {
	case PersistenceDialect:
		return canonjson.Object(canonjson.M("error", e.pair()))
	case ModelsDialect:
		return e.modelsBody()
	}
	return e.pair()
}

// resourceForm is a business failure where there is no tool result to put it in (persistence.v1, section 7).
func (e *Error) resourceForm(era Era) Form {
	f := Form{Message: e.Message, Data: canonjson.Object(canonjson.M("error", e.pair())).AppendJSON(nil), HTTP: http.StatusOK}
	switch e.Code {
	case NotFound:
		f.RPC = rpcInvalidParams
		if era == Legacy {
			f.RPC = rpcNotFoundLegacy
		}
	case PolicyDenied:
		f.RPC = rpcDenied
	case InvalidRequest:
		f.RPC = rpcInvalidParams
	default:
		f.RPC = rpcInternal
	}
	return f
}

// transferForm is the form on a transfer route, where the contract has a closed set of codes and statuses
// (persistence.v1, section 2.1; security requirements, S55a): no key is a denial, and too many calls is busy.
func (e *Error) transferForm() Form {
	code, status := e.Code, http.StatusBadRequest
	switch e.Code {
	case InvalidRequest, TransferIncomplete, IntegrityError, UnsupportedFormat:
	case NotFound, UnknownTool, UnknownResource, UnknownPrompt:
		code, status = NotFound, http.StatusNotFound
	case PolicyDenied, UnauthorizedKey:
		code, status = PolicyDenied, http.StatusForbidden
	case QuotaExceeded:
		status = http.StatusRequestEntityTooLarge
	case Busy, RateLimited, Overloaded, Cancelled:
		code, status = Busy, http.StatusInternalServerError
	default:
		code, status = StoreUnavailable, http.StatusInternalServerError
	}
	same := *e
	same.Code = code
	return Form{Tool: same.toolBody(PersistenceDialect).AppendJSON(nil), HTTP: status}
}

// protocolForm is the form of everything that is not a business failure.
func (e *Error) protocolForm(era Era) Form {
	f := Form{Message: e.Message, HTTP: http.StatusOK}
	word := ""
	switch e.Code {
	case UnauthorizedKey:
		f.RPC, f.HTTP, word = rpcDenied, http.StatusUnauthorized, string(e.Code)
	case RateLimited:
		f.RPC, f.HTTP, word = rpcRateLimited, http.StatusTooManyRequests, string(e.Code)
	case Overloaded:
		f.RPC, f.HTTP, word = rpcOverloaded, http.StatusServiceUnavailable, string(e.Code)
	case AuthBackend:
		f.RPC, f.HTTP, word = rpcAuthBackend, http.StatusServiceUnavailable, string(e.Code)
	case ParseError:
		f.RPC, f.HTTP = rpcParse, http.StatusBadRequest
	case InvalidMessage:
		f.RPC, f.HTTP = rpcInvalidRequest, http.StatusBadRequest
	case MethodNotFound:
		f.RPC, f.HTTP = rpcMethodNotFound, http.StatusNotFound
	case InvalidParams:
		f.RPC, f.HTTP = rpcInvalidParams, http.StatusBadRequest
	case UnknownTool, UnknownPrompt:
		f.RPC = rpcInvalidParams
	case UnknownResource:
		f.RPC = rpcInvalidParams
		if era == Legacy {
			f.RPC = rpcNotFoundLegacy
		}
	case HeaderMismatch:
		f.RPC, f.HTTP = rpcHeaderMismatch, http.StatusBadRequest
	case UnsupportedVersion:
		f.RPC, f.HTTP = rpcUnknownVersion, http.StatusBadRequest
	case MissingCapability:
		f.RPC, f.HTTP = rpcMissingAbility, http.StatusBadRequest
	case Cancelled:
		f.RPC = rpcRequestCanceled
	default:
		f.RPC, f.HTTP, word = rpcInternal, http.StatusInternalServerError, string(Internal)
	}
	if era == Legacy && e.inSession() {
		f.HTTP = http.StatusOK
	}
	f.Data = e.data(word)
	return f
}

// inSession tells whether a code is one of calls that a session of the older eras took: there the answer is a message
// like any other, and 404 would tell the client that the session is gone.
func (e *Error) inSession() bool {
	switch e.Code {
	case MethodNotFound, InvalidParams, HeaderMismatch, UnsupportedVersion, MissingCapability:
		return true
	}
	return false
}

// data is the data member of a protocol error: the machine word, the retry time and the details.
func (e *Error) data(word string) json.RawMessage {
	var m []canonjson.Member
	if word != "" {
		m = append(m, canonjson.M("error", canonjson.String(word)))
	}
	if e.RetryAfter > 0 {
		m = append(m, canonjson.M("retry_after_ms", canonjson.Int(e.RetryAfter.Milliseconds())))
	}
	names := make([]string, 0, len(e.Detail))
	for name := range e.Detail {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		m = append(m, canonjson.M(name, detailValue(e.Detail[name])))
	}
	if len(m) == 0 {
		return nil
	}
	return canonjson.Object(m...).AppendJSON(nil)
}

// detailValue turns the few kinds of values that Detail holds into JSON.
func detailValue(v any) canonjson.Value {
	switch v := v.(type) {
	case string:
		return canonjson.String(v)
	case int:
		return canonjson.Int(int64(v))
	case bool:
		return canonjson.Bool(v)
	case []string:
		items := make([]canonjson.Value, len(v))
		for i, s := range v {
			items[i] = canonjson.String(s)
		}
		return canonjson.Array(items...)
	case canonjson.Value:
		return v
	}
	return canonjson.Null()
}
