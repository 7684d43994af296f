package mcp

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
)

// Headers of the stateless era repeat what the body says, so that intermediaries need not read it. Both must agree
// (MCP 2026-07-28, transports; security requirements, S8).
const (
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerSession = "Mcp-Session-Id"
)

// mismatch is the refusal of headers that do not agree with the body.
func mismatch(text string) *fault.Error { return fault.New(fault.HeaderMismatch, "%s", text) }

// single gives the one value of a header; "" when it is absent, and false when it comes more than once.
func single(h http.Header, name string) (string, bool) {
	values := h[name]
	switch len(values) {
	case 0:
		return "", true
	case 1:
		return values[0], true
	}
	return "", false
}

// checkVersion compares the version in the header with that in the body and with what is served. header says whether
// there are headers at all: standard input has none.
func checkVersion(m *message, header string, hasHeaders bool) *fault.Error {
	meta := m.meta.Get(metaVersion)
	version := meta.Str()
	if hasHeaders && m.isCall() && header == "" {
		return mismatch("the header MCP-Protocol-Version is missing")
	}
	if hasHeaders && meta.Kind() == canonjson.KindString && header != version {
		return mismatch("the header MCP-Protocol-Version and params._meta do not name the same version")
	}
	if meta.Kind() != canonjson.KindString {
		version = header
	}
	if version != "" && version != statelessVersion {
		return fault.New(fault.UnsupportedVersion, "this protocol version is not served without a session").
			With("requested", catalog.Clip(version, 64)).With("supported", allVersions)
	}
	return nil
}

// checkMeta looks for the members that every request of the stateless era carries. Client information is not needed
// and never trusted.
func checkMeta(m *message) *fault.Error {
	if m.cut {
		return nil // it may have been there; the call is refused for its size
	}
	if m.meta.Get(metaVersion).Kind() != canonjson.KindString {
		return badParams("params._meta must name the protocol version in " + metaVersion)
	}
	if m.meta.Get(metaCapabilities).Kind() != canonjson.KindObject {
		return badParams("params._meta must hold the client's capabilities in " + metaCapabilities)
	}
	return nil
}

// namedMember is the member of params that Mcp-Name repeats; "" for methods that have none.
func namedMember(method string) string {
	switch method {
	case "tools/call", "prompts/get":
		return "name"
	case "resources/read":
		return "uri"
	}
	return ""
}

// checkHeaders compares Mcp-Method and Mcp-Name with the body.
func checkHeaders(m *message, h http.Header) *fault.Error {
	method, ok := single(h, headerMethod)
	if !ok || method == "" {
		return mismatch("the header Mcp-Method must be there, once")
	}
	if method != m.method {
		return mismatch("the header Mcp-Method and the body do not name the same method")
	}
	member := namedMember(m.method)
	if member == "" {
		return nil
	}
	name, ok := single(h, headerName)
	if !ok || name == "" {
		return mismatch("the header Mcp-Name must be there, once")
	}
	in := m.params.Get(member)
	if in.Kind() != canonjson.KindString {
		return badParams("params." + member + " must be a string")
	}
	if plain, ok := decodeHeader(name); !ok || plain != in.Str() {
		return mismatch("the header Mcp-Name and params." + member + " do not agree")
	}
	return nil
}

// decodeHeader undoes the coding of values that cannot stand in a header: =?base64?...?=.
func decodeHeader(value string) (string, bool) {
	coded, ok := strings.CutPrefix(value, "=?base64?")
	if !ok {
		return value, true
	}
	coded, ok = strings.CutSuffix(coded, "?=")
	if !ok {
		return value, true
	}
	plain, err := base64.StdEncoding.Strict().DecodeString(coded)
	return string(plain), err == nil
}

// binding says that an argument is mirrored in a header: `x-mcp-header` in a tool's input schema.
type binding struct {
	path   []string // property names from the arguments down
	header string   // canonical
}

// bindingsOf finds the bindings of an input schema.
func bindingsOf(s *catalog.Schema) []binding {
	v, _, err := canonjson.Parse(s.Text(), canonjson.Limits{Depth: 1000, Nodes: 1 << 20})
	if err != nil {
		return nil
	}
	return collectBindings(nil, nil, v.Get("properties"))
}

// collectBindings walks properties and their properties.
func collectBindings(out []binding, above []string, properties canonjson.Value) []binding {
	for _, p := range properties.Members() {
		path := append(append([]string(nil), above...), p.Name)
		if name := p.Value.Get("x-mcp-header").Str(); name != "" {
			out = append(out, binding{path, http.CanonicalHeaderKey(headerParam + name)})
		}
		out = collectBindings(out, path, p.Value.Get("properties"))
	}
	return out
}

// checkParams compares the mirrored arguments of a tool with their headers.
func checkParams(bindings []binding, arguments canonjson.Value, h http.Header) *fault.Error {
	for _, b := range bindings {
		in := arguments
		for _, name := range b.path {
			in = in.Get(name)
		}
		value, ok := single(h, b.header)
		if !ok {
			return mismatch("the header " + b.header + " must be there once")
		}
		if k := in.Kind(); k == canonjson.KindAbsent || k == canonjson.KindNull {
			if len(h[b.header]) > 0 {
				return mismatch("the header " + b.header + " is there and its argument is not")
			}
			continue
		}
		if len(h[b.header]) == 0 {
			return mismatch("the header " + b.header + " is missing")
		}
		plain, ok := decodeHeader(value)
		if !ok || !sameValue(plain, in) {
			return mismatch("the header " + b.header + " and its argument do not agree")
		}
	}
	return nil
}

// sameValue tells whether a header's text is the value of an argument. Only strings, booleans and integers can be
// mirrored.
func sameValue(text string, v canonjson.Value) bool {
	switch v.Kind() {
	case canonjson.KindString:
		return text == v.Str()
	case canonjson.KindBool:
		return (text == "true" && v.Bool()) || (text == "false" && !v.Bool())
	case canonjson.KindNumber:
		want, ok := v.Int()
		sent, _, err := canonjson.Parse([]byte(text), canonjson.Limits{})
		if !ok || err != nil {
			return false
		}
		got, ok := sent.Int()
		return ok && got == want
	}
	return false
}

// accepts tells which of our two forms of answers the client takes. Without the header it takes both.
func accepts(h http.Header) (json, stream bool) {
	values := h["Accept"]
	if len(values) == 0 {
		return true, true
	}
	if len(values) == 1 && values[0] == "application/json, text/event-stream" {
		return true, true
	}
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			media, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(media)) {
			case "application/json", "application/*":
				json = true
			case "text/event-stream", "text/*":
				stream = true
			case "*/*":
				json, stream = true, true
			}
		}
	}
	return json, stream
}

// isJSON tells whether a Content-Type is application/json, with any parameters.
func isJSON(h http.Header) bool {
	value, ok := single(h, "Content-Type")
	if value == "application/json" {
		return true
	}
	media, _, _ := strings.Cut(value, ";")
	return ok && strings.EqualFold(strings.TrimSpace(media), "application/json")
}
