package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/testkit/fixtureserver/fixture"
	"github.com/tabellion-mcp/tabellion/internal/transport/mcp"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// TestCallStateless is the plain case, to the byte.
func TestCallStateless(t *testing.T) {
	r := newRig(t)
	res := r.send(t, "POST", "/mcp", callBody(`"a\u00e9/"`, "persistence.echo", `{"z":1.50,"a":"<é\\\"\n>"}`), stateless("tools/call", "persistence.echo"))
	want := `{"jsonrpc":"2.0","id":"a\u00e9/","result":{"resultType":"complete","content":[{"type":"text","text":"{\"z\":1.50,\"a\":\"<é\\\\\\\"\\n>\"}"}],` +
		`"structuredContent":{"z":1.50,"a":"<é\\\"\n>"},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"},` +
		`"io.tabellion/confidentiality":"private","io.tabellion/integrity":"untrusted","io.tabellion/source":"persistence"}}}`
	if res.status != 200 || string(res.body) != want {
		t.Errorf("got %d\n%s\nwant\n%s", res.status, res.body, want)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Server": "", "Mcp-Session-Id": "",
	} {
		if got := res.header.Get(name); got != value {
			t.Errorf("header %s: %q, want %q", name, got, value)
		}
	}
}

// TestHeaderRules holds the rules of the stateless era over HTTP (security requirements, S5 to S8).
func TestHeaderRules(t *testing.T) {
	r := newRig(t)
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`
	call := callBody("1", "persistence.echo", "{}")
	callH := func(more ...string) map[string]string {
		return with(stateless("tools/call", "persistence.echo"), more...)
	}
	listH := func(more ...string) map[string]string { return with(stateless("tools/list", ""), more...) }
	mirrored := func(arguments string) string { return callBody("1", "mirrored", arguments) }
	mirroredH := func(more ...string) map[string]string { return with(stateless("tools/call", "mirrored"), more...) }
	meta2 := func(version, caps string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + version + caps + `}}}`
	}
	const v, c = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"io.modelcontextprotocol/clientCapabilities":{}`
	tests := []struct {
		name, method, path, body string
		headers                  map[string]string
		status, code             int // code 0: no JSON-RPC error
	}{
		{"plain", "POST", "/mcp", list, listH(), 200, 0},
		{"slot", "POST", "/persistence/mcp", list, listH(), 200, 0},
		{"no such slot", "POST", "/context/mcp", list, listH(), 404, 0},
		{"operator has no path", "POST", "/operator/mcp", list, listH(), 404, 0},
		{"all is no slot", "POST", "/all/mcp", list, listH(), 404, 0},
		{"unclean path", "POST", "/persistence/../mcp", list, listH(), 404, 0},
		{"double slash", "POST", "//mcp", list, listH(), 404, 0},
		{"trailing slash", "POST", "/mcp/", list, listH(), 404, 0},
		{"escaped path", "POST", "/%6dcp", list, listH(), 404, 0},
		{"GET", "GET", "/mcp", "", listH(), 405, 0},
		{"DELETE", "DELETE", "/mcp", "", listH(), 405, 0},
		{"GET with an old session header", "GET", "/mcp", "", listH("Mcp-Session-Id", "x"), 405, 0},
		{"PUT", "PUT", "/mcp", list, listH(), 405, 0},
		{"OPTIONS", "OPTIONS", "/mcp", "", listH(), 405, 0},
		{"session header is ignored", "POST", "/mcp", list, listH("Mcp-Session-Id", "nonsense"), 200, 0},
		{"content type", "POST", "/mcp", list, listH("Content-Type", "text/plain"), 415, 0},
		{"content type with parameter", "POST", "/mcp", list, listH("Content-Type", "Application/JSON; charset=utf-8"), 200, 0},
		{"content type form", "POST", "/mcp", list, listH("Content-Type", "application/x-www-form-urlencoded"), 415, 0},
		{"accept html", "POST", "/mcp", list, listH("Accept", "text/html"), 406, 0},
		{"accept json only", "POST", "/mcp", list, listH("Accept", "application/json"), 200, 0},
		{"accept all", "POST", "/mcp", list, listH("Accept", "*/*"), 200, 0},
		{"host", "POST", "/mcp", list, listH("Host", "evil.example"), 403, 0},
		{"host localhost", "POST", "/mcp", list, listH("Host", "LocalHost:1"), 200, 0},
		{"host with loopback name in front", "POST", "/mcp", list, listH("Host", "localhost.evil.example"), 403, 0},
		{"origin", "POST", "/mcp", list, listH("Origin", "https://evil.example"), 403, 0},
		{"origin null", "POST", "/mcp", list, listH("Origin", "null"), 403, 0},
		{"origin and host agree", "POST", "/mcp", list, listH("Host", "evil.example", "Origin", "http://evil.example"), 403, 0},
		{"own origin", "POST", "/mcp", list, listH("Host", "localhost:99", "Origin", "http://localhost:99"), 200, 0},
		{"no key", "POST", "/mcp", list, listH("Authorization", ""), 401, -32001},
		{"wrong key", "POST", "/mcp", list, listH("Authorization", "Bearer nobody"), 401, -32001},
		{"own header", "POST", "/mcp", list, listH("Authorization", "", "X-MCP-API-KEY", keyAna), 200, 0},
		{"two keys", "POST", "/mcp", list, listH("X-MCP-API-KEY", keyBob), 401, -32001},
		{"key in the URL", "POST", "/mcp?key=" + keyAna, list, listH("Authorization", ""), 401, -32001},
		{"discover needs no key", "POST", "/mcp", strings.ReplaceAll(list, "tools/list", "server/discover"), with(stateless("server/discover", ""), "Authorization", ""), 200, 0},
		{"no version header", "POST", "/mcp", list, listH("MCP-Protocol-Version", ""), 400, -32020},
		{"version header disagrees", "POST", "/mcp", list, listH("MCP-Protocol-Version", "2025-11-25"), 400, -32020},
		{"unknown version", "POST", "/mcp", strings.ReplaceAll(list, "2026-07-28", "2031-01-01"), listH("MCP-Protocol-Version", "2031-01-01"), 400, -32022},
		{"unknown version in the header", "POST", "/mcp", list, listH("MCP-Protocol-Version", "1.0"), 400, -32020},
		{"no method header", "POST", "/mcp", list, listH("Mcp-Method", ""), 400, -32020},
		{"method header disagrees", "POST", "/mcp", list, listH("Mcp-Method", "tools/call"), 400, -32020},
		{"method header in other case", "POST", "/mcp", list, listH("Mcp-Method", "Tools/List"), 400, -32020},
		{"no name header", "POST", "/mcp", call, callH("Mcp-Name", ""), 400, -32020},
		{"name header disagrees", "POST", "/mcp", call, callH("Mcp-Name", "persistence.fail"), 400, -32020},
		{"name header coded", "POST", "/mcp", call, callH("Mcp-Name", "=?base64?cGVyc2lzdGVuY2UuZWNobw==?="), 200, 0},
		{"name header coded badly", "POST", "/mcp", call, callH("Mcp-Name", "=?base64?cGVyc2lzdGVuY2UuZWNobw?="), 400, -32020},
		{"mirrored", "POST", "/mcp", mirrored(`{"region":"eu","deep":{"n":7,"b":true}}`), mirroredH("Mcp-Param-Region", "eu", "Mcp-Param-N", "7.0", "Mcp-Param-B", "true"), 200, 0},
		{"mirrored coded", "POST", "/mcp", mirrored(`{"region":"é"}`), mirroredH("Mcp-Param-Region", "=?base64?w6k=?="), 200, 0},
		{"mirrored missing", "POST", "/mcp", mirrored(`{"region":"eu"}`), mirroredH(), 400, -32020},
		{"mirrored too much", "POST", "/mcp", mirrored(`{}`), mirroredH("Mcp-Param-Region", "eu"), 400, -32020},
		{"mirrored null", "POST", "/mcp", mirrored(`{"region":null}`), mirroredH("Mcp-Param-Region", "eu"), 400, -32020},
		{"mirrored other", "POST", "/mcp", mirrored(`{"region":"eu"}`), mirroredH("Mcp-Param-Region", "us"), 400, -32020},
		{"mirrored number", "POST", "/mcp", mirrored(`{"deep":{"n":7}}`), mirroredH("Mcp-Param-N", "8"), 400, -32020},
		{"mirrored fraction", "POST", "/mcp", mirrored(`{"deep":{"n":7.5}}`), mirroredH("Mcp-Param-N", "7.5"), 400, -32020},
		{"mirrored boolean", "POST", "/mcp", mirrored(`{"deep":{"b":true}}`), mirroredH("Mcp-Param-B", "True"), 400, -32020},
		{"hidden tool has no header rules", "POST", "/mcp", callBody("1", "hidden", `{"region":"eu"}`), stateless("tools/call", "hidden"), 200, -32602},
		{"hidden tool for who knows it", "POST", "/mcp", callBody("1", "hidden", `{"region":"eu"}`), with(stateless("tools/call", "hidden"), "Authorization", "Bearer "+keyBob), 400, -32020},
		{"unknown method", "POST", "/mcp", strings.ReplaceAll(list, "tools/list", "tools/lost"), listH("Mcp-Method", "tools/lost"), 404, -32601},
		{"initialize is gone", "POST", "/mcp", strings.ReplaceAll(list, "tools/list", "initialize"), listH("Mcp-Method", "initialize"), 404, -32601},
		{"ping is gone", "POST", "/mcp", strings.ReplaceAll(list, "tools/list", "ping"), listH("Mcp-Method", "ping"), 404, -32601},
		{"prompts where there are none", "POST", "/persistence/mcp", strings.ReplaceAll(list, "tools/list", "prompts/list"), listH("Mcp-Method", "prompts/list"), 404, -32601},
		{"no params", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, listH(), 400, -32602},
		{"no _meta", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, listH(), 400, -32602},
		{"no version in _meta", "POST", "/mcp", meta2("", c), listH(), 400, -32602},
		{"no capabilities in _meta", "POST", "/mcp", meta2(v, ""), listH(), 400, -32602},
		{"capabilities are no object", "POST", "/mcp", meta2(v+",", strings.ReplaceAll(c, "{}", "[]")), listH(), 400, -32602},
		{"no client information", "POST", "/mcp", meta2(v+",", c), listH(), 200, 0},
		{"trace context", "POST", "/mcp", meta2(v+",", c+`,"traceparent":"\u0000","tracestate":17,"baggage":[]`), listH(), 200, 0},
		{"_meta is no object", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":[]}}`, listH(), 400, -32602},
		{"cursor", "POST", "/mcp", strings.Replace(list, `{"_meta"`, `{"cursor":"x","_meta"`, 1), listH(), 400, -32602},
		{"notification", "POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, listH("Mcp-Method", "notifications/cancelled"), 202, 0},
		{"notification without key", "POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled"}`, listH("Mcp-Method", "notifications/cancelled", "Authorization", ""), 401, -32001},
		{"response", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"result":{}}`, listH(), 400, -32600},
		{"name is no string", "POST", "/mcp", strings.Replace(call, `"name":"persistence.echo"`, `"name":7`, 1), callH(), 400, -32602},
		{"unknown tool", "POST", "/mcp", callBody("1", "nope", "{}"), callH("Mcp-Name", "nope"), 200, -32602},
		{"arguments are no object", "POST", "/mcp", callBody("1", "persistence.echo", "[]"), callH(), 200, 0},
		{"arguments absent", "POST", "/mcp", strings.Replace(call, `"arguments":{},`, "", 1), callH(), 200, 0},
		{"answers are no object", "POST", "/mcp", strings.Replace(call, `"arguments":{}`, `"arguments":{},"inputResponses":null`, 1), callH(), 400, -32602},
		{"state is no string", "POST", "/mcp", strings.Replace(call, `"arguments":{}`, `"arguments":{},"requestState":{}`, 1), callH(), 400, -32602},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := r.send(t, tt.method, tt.path, tt.body, tt.headers)
			if res.status != tt.status || res.json.Error.Code != tt.code {
				t.Fatalf("got status %d, code %d, body %s; want %d, %d", res.status, res.json.Error.Code, res.body, tt.status, tt.code)
			}
			if tt.status == 401 && res.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("WWW-Authenticate: %q", res.header.Get("WWW-Authenticate"))
			}
			if tt.status == 405 && res.header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if res.header.Get("X-Content-Type-Options") != "nosniff" || res.header.Get("Cache-Control") != "no-store" {
				t.Errorf("headers missing: %v", res.header)
			}
		})
	}
	t.Run("unknown tool is named", func(t *testing.T) {
		res := r.send(t, "POST", "/mcp", callBody("1", "nope", "{}"), callH("Mcp-Name", "nope"))
		other := r.send(t, "POST", "/mcp", callBody("1", "hidden", "{}"), callH("Mcp-Name", "hidden"))
		if res.json.Error.Message != `unknown tool "nope"` || strings.ReplaceAll(string(other.body), "hidden", "nope") != string(res.body) {
			t.Errorf("%s and %s", res.body, other.body)
		}
	})
	t.Run("unknown version names those served", func(t *testing.T) {
		res := r.send(t, "POST", "/mcp", strings.ReplaceAll(list, "2026-07-28", "2031-01-01"), listH("MCP-Protocol-Version", "2031-01-01"))
		if field(t, res.json.Error.Data, "/requested").Str() != "2031-01-01" || field(t, res.json.Error.Data, "/supported/0").Str() != "2026-07-28" {
			t.Errorf("%s", res.body)
		}
	})
}

// TestStatus200 keeps the body of a refused key and changes its status alone.
func TestStatus200(t *testing.T) {
	r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.HTTPStatus200 = true })
	res := r.send(t, "POST", "/mcp", callBody("7", "persistence.echo", "{}"), with(stateless("tools/call", "persistence.echo"), "Authorization", "Bearer x"))
	res.want(t, 200, -32001)
	if string(res.json.ID) != "7" || field(t, res.json.Error.Data, "/error").Str() != "UNAUTHORIZED_KEY" {
		t.Errorf("%s", res.body)
	}
}

// TestFrames holds what is refused of the frame itself, and how (persistence.v1, sections 2 and 3.3).
func TestFrames(t *testing.T) {
	r := newRig(t)
	wrap := func(arguments string) string { return callBody("5", "persistence.echo", arguments) }
	const business = 1 // the refusal is the tool's
	tests := []struct {
		name, body string
		code       int
		id         string
	}{
		{"not JSON", `{"jsonrpc":"2.0",`, -32700, "null"},
		{"empty", ``, -32700, "null"},
		{"two values", `{} {}`, -32700, "null"},
		{"byte order mark", "\ufeff" + wrap("{}"), -32700, "null"},
		{"not UTF-8", wrap("{\"a\":\"\xff\"}"), -32700, "null"},
		{"number", `42`, -32600, "null"},
		{"string", `"x"`, -32600, "null"},
		{"null", `null`, -32600, "null"},
		{"empty batch", `[]`, -32600, "null"},
		{"batch", `[` + wrap("{}") + `]`, -32600, "null"},
		{"no jsonrpc", `{"id":5,"method":"tools/list","params":{}}`, -32600, "5"},
		{"wrong jsonrpc", `{"jsonrpc":"2.1","id":5,"method":"tools/list"}`, -32600, "5"},
		{"jsonrpc as number", `{"jsonrpc":2.0,"id":5,"method":"tools/list"}`, -32600, "5"},
		{"member in other case", `{"jsonrpc":"2.0","id":5,"Method":"tools/list"}`, -32600, "5"},
		{"method is no string", `{"jsonrpc":"2.0","id":5,"method":5}`, -32600, "5"},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"tools/list"}`, -32600, "null"},
		{"id fraction", `{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}`, -32600, "null"},
		{"id exponent", `{"jsonrpc":"2.0","id":1e0,"method":"tools/list"}`, -32600, "null"},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"tools/list"}`, -32600, "null"},
		{"id too large", `{"jsonrpc":"2.0","id":9223372036854775808,"method":"tools/list"}`, -32600, "null"},
		{"id much too large", `{"jsonrpc":"2.0","id":1` + strings.Repeat("0", 400) + `,"method":"tools/list"}`, -32600, "null"},
		{"id of 64 bits", strings.Replace(wrap("{}"), `"id":5`, `"id":9223372036854775807`, 1), 0, "9223372036854775807"},
		{"id of 64 bits, negative", strings.Replace(wrap("{}"), `"id":5`, `"id":-9223372036854775808`, 1), 0, "-9223372036854775808"},
		{"id that a float holds", strings.Replace(wrap("{}"), `"id":5`, `"id":9007199254740994`, 1), 0, "9007199254740994"},
		{"id of 64 bits hides no flaw", strings.Replace(wrap(`{"a":1,"a":2}`), `"id":5`, `"id":9007199254740993`, 1), business, "9007199254740993"},
		{"id of 64 bits hides no duplicate", `{"jsonrpc":"2.0","id":9007199254740993,"id":5,"method":"tools/list"}`, -32600, "9007199254740993"},
		{"id of half a surrogate pair", strings.Replace(wrap("{}"), `"id":5`, `"id":"\ud800"`, 1), -32600, "null"},
		{"id of half a pair behind a flaw", `{"x":1,"x":2,"jsonrpc":"2.0","id":"a\udc00","method":"tools/list"}`, -32600, "null"},
		{"id of a pair", strings.Replace(wrap("{}"), `"id":5`, `"id":"\ud83d\ude00"`, 1), 0, `"\ud83d\ude00"`},
		{"params scalar", `{"jsonrpc":"2.0","id":5,"method":"tools/list","params":7}`, -32600, "5"},
		{"params array", `{"jsonrpc":"2.0","id":5,"method":"tools/list","params":[]}`, -32602, "5"},
		{"duplicate in the frame", `{"jsonrpc":"2.0","id":5,"id":6,"method":"tools/list"}`, -32600, "5"},
		{"duplicate by escape", `{"jsonrpc":"2.0","id":5,"\u0069d":6,"method":"tools/list"}`, -32600, "5"},
		{"duplicate in params", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"persistence.echo","name":"x",` + meta + `}}`, -32600, "5"},
		{"arguments twice", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"persistence.echo","arguments":{},"arguments":{},` + meta + `}}`, -32600, "5"},
		{"duplicate in the arguments", wrap(`{"a":1,"a":2}`), business, "5"},
		{"duplicate deep in the arguments", wrap(`{"a":[{"b":1,"b":2}]}`), business, "5"},
		{"number out of range", wrap(`{"a":1e999}`), business, "5"},
		{"integer not exact", wrap(`{"a":9007199254740993}`), business, "5"},
		{"half a surrogate pair", wrap(`{"a":"\ud800"}`), business, "5"},
		{"flaw of a prompt is the frame's", `{"jsonrpc":"2.0","id":5,"method":"prompts/get","params":{"name":"greet","arguments":{"who":"a","who":"b"},` + meta + `}}`, -32600, "5"},
		{"NUL in a name of the frame", `{"jsonrpc":"2.0","id":5,"method":"tools/list","a\u0000":1}`, -32600, "5"},
		{"NUL in a name of params", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"persistence.echo","\u0000":1,"arguments":{},` + meta + `}}`, -32600, "5"},
		{"NUL in a name of the arguments", wrap(`{"\u0000":1}`), business, "5"},
		{"NUL in a name of free content", wrap(`{"payload":{"\u0000":1}}`), 0, "5"},
		{"too deep", wrap(strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)), business, "5"},
		{"much too deep", wrap(strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)), business, "5"},
		{"frame too deep", `{"jsonrpc":"2.0","id":5,"method":"tools/list","x":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `}`, -32600, "5"},
		{"full depth payload", wrap(`{"payload":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`), 0, "5"},
		{"too many values", wrap(`{"a":[` + strings.Repeat("1,", 110_000) + `1]}`), business, "5"},
		{"id string", strings.Replace(wrap("{}"), `"id":5`, `"id":"5\/\u0041"`, 1), 0, `"5\/\u0041"`},
		{"id empty string", strings.Replace(wrap("{}"), `"id":5`, `"id":""`, 1), 0, `""`},
		{"id negative", strings.Replace(wrap("{}"), `"id":5`, `"id":-7`, 1), 0, `-7`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := r.send(t, "POST", "/mcp", tt.body, stateless("tools/call", "persistence.echo"))
			if string(res.json.ID) != tt.id {
				t.Errorf("id %s, want %s", res.json.ID, tt.id)
			}
			switch tt.code {
			case 0, business:
				result := res.json.Result // our own reader takes no id of 64 bits
				failed := field(t, result, "/isError").Bool()
				if res.status != 200 || failed != (tt.code == business) {
					t.Errorf("%d %.300s", res.status, res.body)
				}
				if code := field(t, result, "/structuredContent/error/code").Str(); failed && code != "invalid_request" {
					t.Errorf("code %q: %s", code, res.body)
				}
			default:
				res.want(t, 400, tt.code)
			}
		})
	}
}

// TestJSONSuite sends each text of the JSON parsing test suite as a whole body. None is a request, so that all are
// refused: what is no JSON as such, and the rest as no request.
func TestJSONSuite(t *testing.T) {
	dir := os.Getenv("TABELLION_REAL")
	if dir == "" {
		t.Skip("TABELLION_REAL is not set: no test data")
	}
	files, err := filepath.Glob(filepath.Join(dir, "json-test-suite", "test_parsing", "*.json"))
	if err != nil || len(files) < 300 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	r := newRig(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		res := r.send(t, "POST", "/mcp", string(text), stateless("tools/call", "persistence.echo"))
		code := res.json.Error.Code
		switch {
		case res.status != 400 || (code != -32700 && code != -32600):
			t.Errorf("%s: %d %.200s", name, res.status, res.body)
		case strings.HasPrefix(name, "y_") && code != -32600:
			t.Errorf("%s: accepted JSON is refused with %d", name, code)
		case strings.HasPrefix(name, "n_") && code != -32700:
			t.Errorf("%s: refused JSON is refused with %d", name, code)
		}
	}
}

// TestBodySize holds the bound of a message, however its length is told, and that half a body is no message.
func TestBodySize(t *testing.T) {
	r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.MaxBody = 10_000 })
	body := func(n int) string {
		b := callBody("1", "persistence.echo", `{"a":""}`)
		return strings.Replace(b, `"a":""`, `"a":"`+strings.Repeat("x", n-len(b))+`"`, 1)
	}
	if res := r.send(t, "POST", "/mcp", body(10_000), stateless("tools/call", "persistence.echo")); res.status != 200 {
		t.Errorf("at the bound: %d %s", res.status, res.body)
	}
	res := r.send(t, "POST", "/mcp", body(10_001), stateless("tools/call", "persistence.echo"))
	if res.status != 413 || field(t, res.body, "/error/code").Str() != "too_large" {
		t.Errorf("over the bound: %d %s", res.status, res.body)
	}
	head := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer " + keyAna + "\r\n"
	if got := r.raw(t, head+"Transfer-Encoding: chunked\r\n\r\n4000\r\n"+strings.Repeat(" ", 0x4000)+"\r\n0\r\n\r\n", false); !strings.HasPrefix(got, "HTTP/1.1 413 ") {
		t.Errorf("chunked over the bound: %q", got)
	}
	if got := r.raw(t, head+"Content-Length: 100\r\n\r\n{\"jsonrpc\"", true); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("half a body: %q", got)
	}
	if got := r.raw(t, head+"Content-Length: 9999999\r\nExpect: 100-continue\r\n\r\n", false); !strings.HasPrefix(got, "HTTP/1.1 413 ") {
		t.Errorf("too long by its own word: %q", got)
	}
	long := head + "X-Long: " + strings.Repeat("x", 33<<10) + "\r\nContent-Length: 0\r\n\r\n"
	if got := r.raw(t, long, false); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("long header: %q", got)
	}
}

// raw sends bytes over a connection of its own and gives all that comes back; half closes the sending side.
func (r *rig) raw(t *testing.T, text string, half bool) string {
	t.Helper()
	c, err := net.Dial("tcp", r.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte(text)); err != nil {
		t.Logf("write: %v", err)
	}
	if half {
		c.(*net.TCPConn).CloseWrite()
	}
	line, _ := bufio.NewReader(c).ReadString('\n')
	return line
}

// TestSlowSender is cut after the time that a body may take.
func TestSlowSender(t *testing.T) {
	r := newRig(t)
	c, err := net.Dial("tcp", r.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer "+keyAna+"\r\nContent-Length: 100000\r\n\r\n")
	done := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(c).ReadString(0) // until the end
		done <- err
	}()
	for i := 0; ; i++ {
		select {
		case <-done:
			if took := time.Since(start); took < time.Second || took > 8*time.Second {
				t.Errorf("cut after %v, the limit is 2 s", took)
			}
			return
		case <-time.After(50 * time.Millisecond):
			c.Write([]byte(" "))
		}
		if i > 300 {
			t.Fatal("never cut")
		}
	}
}

// TestCancelByClosing ends the handler when the client goes away (security requirements, S12).
func TestCancelByClosing(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", r.http.URL+"/mcp", strings.NewReader(callBody("1", "persistence.slow", "{}")))
	req.Header.Set("Content-Type", "application/json")
	for name, value := range stateless("tools/call", "persistence.slow") {
		req.Header.Set(name, value)
	}
	go func() {
		<-r.entered
		cancel()
	}()
	if res, err := r.http.Client().Do(req); err == nil {
		res.Body.Close()
		t.Errorf("answered with %d", res.StatusCode)
	}
	select {
	case <-r.left:
	case <-time.After(5 * time.Second):
		t.Error("the handler runs on")
	}
}

// TestLongCall is not ended by the time that its body had (the rig's is 2 s).
func TestLongCall(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", r.http.URL+"/mcp", strings.NewReader(callBody("1", "persistence.slow", "{}")))
	req.Header.Set("Content-Type", "application/json")
	for name, value := range stateless("tools/call", "persistence.slow") {
		req.Header.Set(name, value)
	}
	start := time.Now()
	if _, err := r.http.Client().Do(req); err == nil || time.Since(start) < 2900*time.Millisecond {
		t.Errorf("ended after %v: %v", time.Since(start), err)
	}
	<-r.left
}

// TestProgress sends what happens before the answer, to who asked for it.
func TestProgress(t *testing.T) {
	r := newRig(t)
	plain := r.send(t, "POST", "/mcp", callBody("1", "persistence.steps", "{}"), stateless("tools/call", "persistence.steps"))
	if plain.header.Get("Content-Type") != "application/json" {
		t.Errorf("nobody asked: %s", plain.body)
	}
	body := strings.Replace(callBody("1", "persistence.steps", "{}"), `"_meta":{`, `"_meta":{"progressToken":"p\u00e9","io.modelcontextprotocol/logLevel":"info",`, 1)
	res := r.send(t, "POST", "/mcp", body, stateless("tools/call", "persistence.steps"))
	got := events(res.body)
	want := []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"pé","progress":1,"total":2,"message":"half"}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":{"said":"hello"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"pé","progress":2,"total":2}}`,
	}
	if len(got) != 4 || strings.Join(got[:3], "\n") != strings.Join(want, "\n") || field(t, []byte(got[3]), "/result/structuredContent/ok").Bool() != true {
		t.Errorf("got\n%s", res.body)
	}
	quiet := strings.Replace(body, `"info"`, `"error"`, 1)
	if n := len(events(r.send(t, "POST", "/mcp", quiet, stateless("tools/call", "persistence.steps")).body)); n != 3 {
		t.Errorf("%d events at level error, want 3", n)
	}
	noStream := r.send(t, "POST", "/mcp", body, with(stateless("tools/call", "persistence.steps"), "Accept", "application/json"))
	if noStream.header.Get("Content-Type") != "application/json" || field(t, noStream.body, "/result/structuredContent/ok").Bool() != true {
		t.Errorf("a client that takes no stream: %s", noStream.body)
	}
}

// TestInputRequired asks, and goes on with the answer.
func TestInputRequired(t *testing.T) {
	r := newRig(t)
	h := stateless("tools/call", "persistence.ask")
	first := r.send(t, "POST", "/mcp", callBody("1", "persistence.ask", `{"x":1}`), h)
	if field(t, first.body, "/result/resultType").Str() != "input_required" ||
		field(t, first.body, "/result/inputRequests/color/params/message").Str() != "Which color?" {
		t.Fatalf("%s", first.body)
	}
	state := field(t, first.body, "/result/requestState").Str()
	again := func(arguments, state, key string) *reply {
		body := strings.Replace(callBody("2", "persistence.ask", arguments), `"_meta"`,
			`"inputResponses":{"color":{"action":"accept","content":{"color":"red"}}},"requestState":"`+state+`","_meta"`, 1)
		return r.send(t, "POST", "/mcp", body, with(h, "Authorization", "Bearer "+key))
	}
	if res := again(`{"x":1}`, state, keyAna); string(field(t, res.body, "/result/structuredContent").AppendJSON(nil)) != `{"color":"red","state":"asked"}` {
		t.Errorf("%s", res.body)
	}
	again(`{"x":2}`, state, keyAna).want(t, 400, -32602)
	again(`{"x":1}`, state, keyBob).want(t, 400, -32602)
	again(`{"x":1}`, state+"A", keyAna).want(t, 400, -32602)
	noElicitation := strings.Replace(callBody("1", "persistence.ask", "{}"), `{"elicitation":{}}`, `{}`, 1)
	res := r.send(t, "POST", "/mcp", noElicitation, with(h, "Authorization", "Bearer "+keyAna)).want(t, 400, -32021)
	if field(t, res.json.Error.Data, "/requiredCapabilities/elicitation").IsAbsent() {
		t.Errorf("%s", res.body)
	}
}

// TestLists holds order, cache hints and the rights of the caller.
func TestLists(t *testing.T) {
	r := newRig(t)
	list := func(method, key string) *reply {
		return r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+meta+`}}`, with(stateless(method, ""), "Authorization", "Bearer "+key))
	}
	names := func(res *reply, member string) (out []string) {
		for _, item := range field(t, res.body, "/result/"+member).Items() {
			out = append(out, item.Get("name").Str())
		}
		return out
	}
	ana, bob := names(list("tools/list", keyAna), "tools"), names(list("tools/list", keyBob), "tools")
	if got := strings.Join(ana, " "); got != "persistence.steps persistence.echo persistence.ask persistence.fail plain_fail models_fail persistence.slow persistence.panic mirrored change" {
		t.Errorf("ana sees %s", got)
	}
	if got := strings.Join(bob, " "); !strings.Contains(got, " hidden ") || len(bob) != len(ana)+1 {
		t.Errorf("bob sees %s", got)
	}
	for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list", "server/discover"} {
		res := list(method, keyAna)
		if field(t, res.body, "/result/cacheScope").Str() != "private" || field(t, res.body, "/result/ttlMs").Literal() != "30000" ||
			field(t, res.body, "/result/resultType").Str() != "complete" {
			t.Errorf("%s: %s", method, res.body)
		}
	}
	if got := string(field(t, list("resources/templates/list", keyAna).body, "/result/resourceTemplates").AppendJSON(nil)); got != `[{"uriTemplate":"persistence://documents/{id}","name":"document","mimeType":"application/json"}]` {
		t.Errorf("templates: %s", got)
	}
	if got := string(field(t, list("resources/list", keyAna).body, "/result/resources").AppendJSON(nil)); got != `[{"uri":"persistence://capabilities","name":"capabilities","mimeType":"application/json"}]` {
		t.Errorf("resources: %s", got)
	}
	if got := string(field(t, list("prompts/list", keyAna).body, "/result/prompts").AppendJSON(nil)); got != `[{"name":"greet","description":"Greets.","arguments":[{"name":"who","required":true}]}]` {
		t.Errorf("prompts: %s", got)
	}
}

// TestReadPromptComplete covers the methods beside tools.
func TestReadPromptComplete(t *testing.T) {
	r := newRig(t)
	do := func(method, name, params string) *reply {
		return r.send(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`,`+meta+`}}`, stateless(method, name))
	}
	res := do("resources/read", "persistence://documents/a%20b", `"uri":"persistence://documents/a%20b"`)
	if got := string(field(t, res.body, "/result/contents").AppendJSON(nil)); got != `[{"uri":"persistence://documents/a%20b","mimeType":"application/json","text":"{\"uri\":\"persistence://documents/a%20b\"}"}]` {
		t.Errorf("%s", got)
	}
	if field(t, res.body, "/result/ttlMs").Literal() != "7000" || field(t, res.body, "/result/cacheScope").Str() != "private" {
		t.Errorf("%s", res.body)
	}
	do("resources/read", "persistence://documents/a/b", `"uri":"persistence://documents/a/b"`).want(t, 200, -32602)
	do("resources/read", "nonsense", `"uri":"nonsense"`).want(t, 200, -32602)
	if res := do("resources/read", "persistence://documents/missing", `"uri":"persistence://documents/missing"`).want(t, 200, -32602); field(t, res.json.Error.Data, "/error/code").Str() != "not_found" {
		t.Errorf("%s", res.body)
	}
	res = do("prompts/get", "greet", `"name":"greet","arguments":{"who":"Bo"}`)
	if got := string(field(t, res.body, "/result/messages").AppendJSON(nil)); got != `[{"role":"user","content":{"type":"text","text":"Greet Bo"}}]` {
		t.Errorf("%s", res.body)
	}
	do("prompts/get", "nope", `"name":"nope"`).want(t, 200, -32602)
	do("prompts/get", "greet", `"name":"greet"`).want(t, 200, -32602)
	do("prompts/get", "greet", `"name":"greet","arguments":{"who":7}`).want(t, 400, -32602)
	res = do("completion/complete", "", `"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":"x"}`)
	if got := string(field(t, res.body, "/result/completion").AppendJSON(nil)); got != `{"values":["who:x:user:ana"],"total":1,"hasMore":false}` {
		t.Errorf("%s", res.body)
	}
	do("completion/complete", "", `"ref":{"type":"ref/prompt","name":"nope"},"argument":{"name":"who","value":"x"}`).want(t, 200, -32602)
	do("completion/complete", "", `"ref":{"type":"other"},"argument":{"name":"who","value":"x"}`).want(t, 400, -32602)
	do("completion/complete", "", `"ref":{"type":"ref/prompt","name":"greet"}`).want(t, 400, -32602)
}

// TestFaultForms holds that failures of an operation are results, and a bug is an error without its cause.
func TestFaultForms(t *testing.T) {
	r := newRig(t)
	res := r.send(t, "POST", "/mcp", callBody("1", "persistence.fail", `{"code":"not_found"}`), stateless("tools/call", "persistence.fail"))
	if got := string(field(t, res.body, "/result/structuredContent").AppendJSON(nil)); res.status != 200 || got != `{"error":{"code":"not_found","message":"as asked"}}` ||
		field(t, res.body, "/result/content/0/text").Str() != got || !field(t, res.body, "/result/isError").Bool() {
		t.Errorf("%s", res.body)
	}
	res = r.send(t, "POST", "/mcp", callBody("1", "persistence.panic", `{}`), stateless("tools/call", "persistence.panic")).want(t, 500, -32603)
	if strings.Contains(string(res.body), "secret") {
		t.Errorf("%s", res.body)
	}
}

// TestListen holds a subscription: the acknowledgement, the filter, the end at shutdown.
func TestListen(t *testing.T) {
	r := newRig(t)
	body := `{"jsonrpc":"2.0","id":"s1","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["persistence://documents/a"]},` + meta + `}}`
	req, _ := http.NewRequest("POST", r.http.URL+"/mcp", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	for name, value := range stateless("subscriptions/listen", "") {
		req.Header.Set(name, value)
	}
	res, err := r.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		return ""
	}
	want := func(text string) {
		t.Helper()
		if got := next(); got != text {
			t.Errorf("got  %s\nwant %s", got, text)
		}
	}
	const id = `"_meta":{"io.modelcontextprotocol/subscriptionId":"s1"}`
	want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` + id + `,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["persistence://documents/a"]}}}`)
	change := func(arguments string) {
		t.Helper()
		if res := r.send(t, "POST", "/mcp", callBody("1", "change", arguments), stateless("tools/call", "change")); res.status != 200 {
			t.Fatalf("%s", res.body)
		}
	}
	change(`{"prompts":true,"resources":true,"uri":"persistence://documents/b"}`) // none of it is in the filter
	change(`{"tools":true}`)
	want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{` + id + `}}`)
	change(`{"uri":"persistence://documents/a"}`)
	want(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{` + id + `,"uri":"persistence://documents/a"}}`)
	r.server.Close(context.Background())
	want(`{"jsonrpc":"2.0","id":"s1","result":{"resultType":"complete",` + id + `}}`)
	if got := next(); got != "" {
		t.Errorf("after the end: %s", got)
	}
	r.send(t, "POST", "/mcp", callBody("1", "change", "{}"), stateless("tools/call", "change")).want(t, 503, -32014)
}

// TestListenBounds holds what a subscription may ask for, and that it does not outlive its key.
func TestListenBounds(t *testing.T) {
	r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.Recheck = 20 * time.Millisecond })
	listen := func(filter string) *reply {
		body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":` + filter + `,` + meta + `}}`
		return r.send(t, "POST", "/mcp", body, stateless("subscriptions/listen", ""))
	}
	listen(`[]`).want(t, 400, -32602)
	listen(`{"resourceSubscriptions":[7]}`).want(t, 400, -32602)
	listen(`{"resourceSubscriptions":["nonsense"]}`).want(t, 200, -32602)
	listen(`{"resourceSubscriptions":["persistence://documents/missing"]}`).want(t, 200, -32602)
	many, _ := json.Marshal(make([]string, 101))
	if res := listen(`{"resourceSubscriptions":` + string(many) + `}`); field(t, res.json.Error.Data, "/error/code").Str() != "quota_exceeded" {
		t.Errorf("%s", res.body)
	}
	if got := events(listen(`{}`).body); len(got) != 2 { // nothing to hear of: acknowledged and over
		t.Errorf("%s", got)
	}
	done := make(chan []string)
	go func() { done <- events(listen(`{"toolsListChanged":true}`).body) }()
	time.Sleep(100 * time.Millisecond)
	r.Keys.Revoke(keyAna)
	select {
	case got := <-done:
		if len(got) != 1 {
			t.Errorf("after the key was revoked: %s", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("the stream outlives its key")
	}
}

// TestListenLong keeps a silent stream beyond the time that an answer may take, in both versions of HTTP.
func TestListenLong(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2=", h2), func(t *testing.T) {
			r := newRig(t, func(c *mcp.Config, _ *fixture.Options) { c.Event = 500 * time.Millisecond })
			srv := httptest.NewUnstartedServer(nil)
			srv.Config = web.NewServer(web.Limits{Read: 300 * time.Millisecond, Write: 500 * time.Millisecond}, r.http.Config.Handler, r.Log)
			srv.EnableHTTP2 = h2
			srv.StartTLS()
			defer srv.Close()
			body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`
			req, _ := http.NewRequest("POST", srv.URL+"/mcp", strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			for name, value := range stateless("subscriptions/listen", "") {
				req.Header.Set(name, value)
			}
			res, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.ProtoMajor != map[bool]int{false: 1, true: 2}[h2] {
				t.Fatal(res.Proto)
			}
			lines := bufio.NewScanner(res.Body)
			for want := range 3 {
				for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
				}
				if !strings.Contains(lines.Text(), "notifications/") {
					t.Fatalf("message %d: %q, %v", want, lines.Text(), lines.Err())
				}
				time.Sleep(time.Second)
				r.server.Notify(catalog.Change{Tools: true})
			}
		})
	}
}

// TestRetryAfter tells when to come again.
func TestRetryAfter(t *testing.T) {
	r := newRig(t, func(_ *mcp.Config, o *fixture.Options) {
		o.Limits = gate.DefaultLimits()
		o.Limits.Rate, o.Limits.Burst = 0.4, 1
	})
	call := func() *reply {
		return r.send(t, "POST", "/mcp", callBody("1", "persistence.echo", "{}"), stateless("tools/call", "persistence.echo"))
	}
	if res := call(); res.status != 200 {
		t.Fatalf("%s", res.body)
	}
	res := call().want(t, 429, -32010)
	if res.header.Get("Retry-After") != "3" || field(t, res.json.Error.Data, "/error").Str() != "RATE_LIMITED" {
		t.Errorf("%v %s", res.header, res.body)
	}
}
