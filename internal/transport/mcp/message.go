package mcp

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
)

// Protocol versions, newest first. statelessVersion needs no session: version and capabilities come with each
// request. The others begin with initialize.
const statelessVersion = "2026-07-28"

// legacyVersions are the versions of the era with sessions that are served.
var legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// allVersions is what server/discover lists.
var allVersions = append([]string{statelessVersion}, legacyVersions...)

// Members of `_meta` that the protocol defines (MCP 2026-07-28, basic).
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// message is one JSON-RPC message, read strictly.
type message struct {
	id       string // as it was sent: a JSON string or integer; "" when the message has none
	method   string // "" for a response
	params   canonjson.Value
	meta     canonjson.Value // params._meta
	response bool            // an answer to a request of ours
	whole    canonjson.Value // all of it
	// flaw is what breaks the strict rules inside the arguments of a tool call: the tool answers it, in its own form.
	flaw *canonjson.Flaw
	// cut says that the message holds too many values: what follows the flaw was not kept, `_meta` perhaps.
	cut bool
}

// isCall tells whether the message wants an answer.
func (m *message) isCall() bool { return m.id != "" && !m.response }

// argumentsPath is where a tool call keeps its arguments.
const argumentsPath = "/params/arguments"

// readMessage reads one message. With a fault the message holds the id, where one could be read, and nothing that
// may be used otherwise.
func readMessage(text []byte) (*message, *fault.Error) {
	m := &message{}
	v, flaw, err := canonjson.Parse(text, gate.FrameLimits())
	if err != nil {
		return m, fault.New(fault.ParseError, "the message is not JSON: %s", err)
	}
	switch v.Kind() {
	case canonjson.KindObject:
	case canonjson.KindArray:
		return m, invalid("batches are not served; send one request object at a time")
	default:
		return m, invalid("a message is a JSON-RPC object, not a " + v.Kind().String())
	}
	var f *fault.Error
	if m.id, f = readID(v.Get("id"), text); f != nil {
		return m, f
	}
	if id := v.Get("id"); flaw != nil && flaw.Rule == canonjson.NumberExact && flaw.Offset == id.Offset() {
		// Numbers of 64 bits are good as ids, which are only compared and sent back. The first flaw hides others.
		if v, flaw, err = canonjson.Parse(masked(text, id), gate.FrameLimits()); err != nil {
			return m, fault.New(fault.ParseError, "the message is not JSON: %s", err)
		}
	}
	if v.Get("jsonrpc").Str() != "2.0" {
		return m, invalid(`the member jsonrpc must be "2.0"`)
	}
	m.cut = flaw != nil && flaw.Rule == canonjson.TooManyNodes
	if f := m.readBody(v); f != nil {
		return m, f
	}
	return m, m.strict(v, flaw)
}

// invalid is the refusal of JSON that is no message of ours.
func invalid(text string) *fault.Error { return fault.New(fault.InvalidMessage, "%s", text) }

// masked is text with a string of the same length in place of the id, which has more than ten digits.
func masked(text []byte, id canonjson.Value) []byte {
	text = bytes.Clone(text)
	literal := text[id.Offset():][:len(id.Literal())]
	for i := range literal {
		literal[i] = '0'
	}
	literal[0], literal[len(literal)-1] = '"', '"'
	return text
}

// readID gives an id as it was written in text. Only strings and integers are ids in MCP; null is none. An id that
// cannot be sent back as it came is refused and given as "".
func readID(v canonjson.Value, text []byte) (string, *fault.Error) {
	switch v.Kind() {
	case canonjson.KindAbsent:
		return "", nil
	case canonjson.KindString:
		id := quoted(text[v.Offset():])
		if strings.Contains(id, `\u`) {
			if _, flaw, _ := canonjson.Parse([]byte(id), canonjson.Limits{}); flaw != nil {
				return "", invalid("the id holds half a surrogate pair")
			}
		}
		return id, nil
	case canonjson.KindNumber:
		if strings.Trim(v.Literal(), "-0123456789") != "" {
			break
		}
		if _, ok := idInt(v); !ok {
			return "", invalid("the id is an integer of more than 64 bits; send it as a string")
		}
		return v.Literal(), nil
	}
	return "", invalid("the id must be a string or an integer")
}

// quoted is the JSON string that text begins with, as it is written.
func quoted(text []byte) string {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return string(text[:i+1])
		}
	}
	return "null" // not reached: text was parsed
}

// idKey is the same for ids that are equal, however they are written; "" for what is no id.
func idKey(v canonjson.Value) string {
	if n, ok := idInt(v); ok {
		return strconv.FormatInt(n, 10)
	}
	if v.Kind() != canonjson.KindString {
		return ""
	}
	return string(v.AppendJSON(nil))
}

// idInt is the integer that v is: all of 64 bits, where other numbers of a message end at 2^53-1.
func idInt(v canonjson.Value) (int64, bool) {
	if n, ok := v.Int(); ok || v.Kind() != canonjson.KindNumber {
		return n, ok
	}
	n, err := strconv.ParseInt(v.Literal(), 10, 64)
	return n, err == nil
}

// readBody takes method and params, or recognises a response.
func (m *message) readBody(v canonjson.Value) *fault.Error {
	m.whole = v
	method := v.Get("method")
	if method.IsAbsent() && m.id != "" && (v.Get("result").IsAbsent() != v.Get("error").IsAbsent()) {
		m.response = true
		return nil
	}
	if method.Kind() != canonjson.KindString {
		return invalid("the member method must be a string")
	}
	m.method = method.Str()
	m.params = v.Get("params")
	switch m.params.Kind() {
	case canonjson.KindAbsent:
		return nil
	case canonjson.KindObject:
	case canonjson.KindArray:
		return badParams("params must be an object")
	default:
		return invalid("params must be an object")
	}
	m.meta = m.params.Get("_meta")
	if k := m.meta.Kind(); k != canonjson.KindAbsent && k != canonjson.KindObject {
		m.meta = canonjson.Value{}
		if !m.cut {
			return badParams("params._meta must be an object")
		}
	}
	return nil
}

// strict refuses what breaks the strict rules, or keeps it for the tool when it lies in a tool's arguments
// (persistence.v1, section 3.3).
func (m *message) strict(v canonjson.Value, flaw *canonjson.Flaw) *fault.Error {
	call := m.method == "tools/call"
	if flaw != nil {
		inside := strings.HasPrefix(flaw.Pointer, argumentsPath+"/") ||
			(flaw.Pointer == argumentsPath && flaw.Rule != canonjson.DuplicateName)
		if !call || !inside {
			return invalid(flaw.Message)
		}
		m.flaw = flaw
	}
	if !v.HasNULName() {
		return nil
	}
	if !call || v.Without("params").HasNULName() || m.params.Without("arguments").HasNULName() || strings.Contains(m.method, "\x00") {
		return invalid("a member name holds U+0000")
	}
	return nil
}

// badParams is the refusal of params that are not of the method's form.
func badParams(text string) *fault.Error { return fault.New(fault.InvalidParams, "%s", text) }

// capsOf reads declared client capabilities: an ability is there when its member is an object.
func capsOf(v canonjson.Value) catalog.ClientCaps {
	has := func(name string) bool { return v.Get(name).Kind() == canonjson.KindObject }
	return catalog.ClientCaps{Elicitation: has("elicitation"), Sampling: has("sampling"), Roots: has("roots")}
}
