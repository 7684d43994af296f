package cases_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
)

// badArguments are arguments of put that must be refused as invalid_request, with what the message must name.
func badArguments() map[string]string {
	arg := func(members string) string {
		return `{"namespace":"bad","id":"x","kind":"k","schemaVersion":"1","payload":1,"references":[],"expectedRevision":0,"idempotencyKey":"k"` + members + `}`
	}
	with := func(name, value string) string {
		fields := map[string]string{"namespace": `"bad"`, "id": `"x"`, "kind": `"k"`, "schemaVersion": `"1"`, "payload": "1", "references": "[]", "expectedRevision": "0", "idempotencyKey": `"k"`}
		fields[name] = value
		var parts []string
		for n, v := range fields {
			parts = append(parts, fmt.Sprintf("%q:%s", n, v))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	return map[string]string{
		"a number for an id":              with("id", "5"),
		"a fraction for a revision":       with("expectedRevision", "1.5"),
		"a string for a revision":         with("expectedRevision", `"1"`),
		"a boolean for a revision":        with("expectedRevision", "true"),
		"a revision beyond 2^53-1":        with("expectedRevision", "9007199254740992"),
		"a negative revision":             with("expectedRevision", "-1"),
		"null for references":             with("references", "null"),
		"an unknown member":               arg(`,"user":"ana"`),
		"an unknown member inside":        with("references", `[{"type":"artifact","namespace":"bad","id":"x","revision":1}]`),
		"a member that is missing":        `{"namespace":"bad","id":"x"}`,
		"another case of a name":          arg(`,"Namespace":"bad"`),
		"an array for arguments":          `[]`,
		"depth 65":                        with("payload", nest(65)),
		"100001 nodes":                    with("payload", "["+strings.Repeat("0,", 99_999)+"0]"),
		"a lone surrogate":                with("payload", `"\ud800"`),
		"a lone surrogate in a name":      with("payload", `{"\udc00":1}`),
		"a duplicate member":              with("payload", `{"a":1,"a":2}`),
		"a duplicate of another spelling": with("payload", `{"a":1,"\u0061":2}`),
		"a duplicate argument":            arg(`,"id":"y"`),
		"a number beyond binary64":        with("payload", "1e400"),
		"an integer that is no double":    with("payload", "9007199254740993"),
		"an id with a slash":              with("id", `"a/b"`),
		"an id with NUL":                  with("id", `"a\u0000"`),
		"an id with a newline":            with("id", `"a\n"`),
		"an id of dots":                   with("id", `".."`),
		"an id beyond ASCII":              with("id", `"é"`),
		"an empty id":                     with("id", `""`),
		"an id of 129 characters":         with("id", `"`+strings.Repeat("x", 129)+`"`),
		"a namespace with a slash":        with("namespace", `"a/../b"`),
		"a key with a space":              with("idempotencyKey", `"a b"`),
		"a kind with a control":           with("kind", `"a\u0007"`),
		"NUL in an argument's name":       arg(`,"a\u0000":1`),
	}
}

// TestBadArgumentsChangeNothing sends every kind of bad arguments in both eras: invalid_request each time, a message
// that says something, and nothing stored.
func TestBadArgumentsChangeNothing(t *testing.T) {
	srv := newSite(t, "")
	for era, c := range srv.clients(t) {
		for name, args := range badArguments() {
			a, err := c.Call(t.Context(), "persistence.put", []byte(args))
			if err != nil || code(a) != "invalid_request" || !a.IsError {
				t.Errorf("%s, %s: %v %s", era, name, err, a)
			}
			if strings.Contains(a.Text, strings.Repeat("x", 100)) {
				t.Errorf("%s, %s: the message repeats the input: %.300s", era, name, a.Text)
			}
		}
		for name, args := range map[string]string{
			"a made-up cursor":      `{"namespace":"bad","cursor":"AAAA"}`,
			"an empty cursor":       `{"namespace":"bad","cursor":""}`,
			"a cursor too long":     `{"namespace":"bad","cursor":"` + strings.Repeat("A", 2049) + `"}`,
			"limit 0":               `{"namespace":"bad","limit":0}`,
			"limit 201":             `{"namespace":"bad","limit":201}`,
			"another tool's cursor": `{"namespace":"bad","cursor":"` + cursorOfRevisions(t, c, era) + `"}`,
		} {
			a, err := c.Call(t.Context(), "persistence.list", []byte(args))
			if err != nil || code(a) != "invalid_request" {
				t.Errorf("%s, %s: %v %s", era, name, err, a)
			}
		}
		a, err := c.Call(t.Context(), "persistence.list", []byte(`{"namespace":"bad","includeDeleted":true}`))
		if err != nil || len(a.Structured.(map[string]any)["items"].([]any)) != 0 {
			t.Errorf("%s: something was stored: %v %s", era, err, a)
		}
	}
}

// cursorOfRevisions is a good cursor, of another tool.
func cursorOfRevisions(t *testing.T, c *rawmcp.Client, era string) string {
	t.Helper()
	for i := range 2 {
		a, err := c.Call(t.Context(), "persistence.put", put("cursor-"+era, "1", fmt.Sprintf("c-%s-%d", era, i), i))
		if err != nil || code(a) != "" {
			t.Fatal(err, a)
		}
	}
	a, err := c.Call(t.Context(), "persistence.listRevisions", fmt.Appendf(nil, `{"namespace":"ns","id":"cursor-%s","limit":1}`, era))
	next, _ := a.Structured.(map[string]any)["nextCursor"].(string)
	if err != nil || next == "" {
		t.Fatal(err, a)
	}
	return next
}

// badFrames are bodies that are no good message, with the JSON-RPC code of the answer.
func badFrames(c *rawmcp.Client) map[string]struct {
	body string
	code int
} {
	call := string(c.Frame(1, "tools/call", `"name":"persistence.put","arguments":`+string(put("frame", "1", "kf", 0))))
	type bad = struct {
		body string
		code int
	}
	return map[string]bad{
		"nothing":                  {"", -32700},
		"half a body":              {call[:len(call)/2], -32700},
		"text behind":              {call + "x", -32700},
		"two messages":             {call + call, -32700},
		"not UTF-8":                {strings.Replace(call, `"note"`, "\"\xff\"", 1), -32700},
		"a byte order mark":        {"\ufeff" + call, -32700},
		"a comment":                {"/* */" + call, -32700},
		"a number":                 {"42", -32600},
		"null":                     {"null", -32600},
		"a batch":                  {"[" + call + "]", -32600},
		"an empty batch":           {"[]", -32600},
		"another version":          {strings.Replace(call, `"2.0"`, `"1.0"`, 1), -32600},
		"no version":               {strings.Replace(call, `"jsonrpc":"2.0",`, "", 1), -32600},
		"a duplicate in the frame": {strings.Replace(call, `"jsonrpc":"2.0",`, `"jsonrpc":"2.0","jsonrpc":"2.0",`, 1), -32600},
		"id null":                  {strings.Replace(call, `"id":1`, `"id":null`, 1), -32600},
		"an object for an id":      {strings.Replace(call, `"id":1`, `"id":{}`, 1), -32600},
		"3 MiB of brackets":        {strings.Repeat("[", 3<<20), -32700},
		"unknown tool":             {strings.Replace(call, "persistence.put", "persistence.Put", 1), -32602},
		"a tool's name of no text": {strings.Replace(call, `"persistence.put"`, "5", 1), -32602},
	}
}

// TestBadFrames sends bodies that are no good message, in both eras: each gets its JSON-RPC error as JSON, and nothing
// is stored.
func TestBadFrames(t *testing.T) {
	srv := newSite(t, "")
	for era, c := range srv.clients(t) {
		for name, bad := range badFrames(c) {
			tool := "persistence.put"
			if name == "unknown tool" {
				tool = "persistence.Put"
			}
			raw, err := c.Post(t.Context(), "tools/call", tool, []byte(bad.body))
			if err != nil {
				t.Errorf("%s, %s: %v", era, name, err)
				continue
			}
			var m struct {
				Error struct {
					Code    int
					Message string
				}
			}
			if err := json.Unmarshal(raw.Message, &m); err != nil || m.Error.Code != bad.code || m.Error.Message == "" {
				t.Errorf("%s, %s: status %d, %.300s, want code %d", era, name, raw.Status, raw.Body, bad.code)
			}
		}
		for name, size := range map[string]int{"10 MB": 10 << 20, "one byte over the limit": 4<<20 + 1} {
			if status := srv.announce(t, era == "legacy", size); status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s, a body of %s: status %d", era, name, status)
			}
		}
		a, err := c.Call(t.Context(), "persistence.get", []byte(`{"namespace":"ns","id":"frame"}`))
		if err != nil || code(a) != "not_found" {
			t.Errorf("%s: something was stored: %v %s", era, err, a)
		}
	}
}

// announce sends the headers of a request with a body of size bytes, and the first brackets of it, and gives the status
// of the answer: a client that writes on into a closed connection would not see it.
func (s *site) announce(t *testing.T, legacy bool, size int) int {
	t.Helper()
	address := strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/mcp")
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	version := rawmcp.StatelessVersion
	if legacy {
		version = rawmcp.LegacyVersion
	}
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: %s\r\nMcp-Method: tools/call\r\nMcp-Name: persistence.put\r\nContent-Length: %d\r\n\r\n[[[[",
		address, s.key, version, size)
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// TestHalfARequest announces more than it sends and goes away: the server stays well and nothing is stored.
func TestHalfARequest(t *testing.T) {
	srv := newSite(t, "")
	c := srv.clients(t)["stateless"]
	frame := c.Frame(1, "tools/call", `"name":"persistence.put","arguments":`+string(put("half", "1", "kh", 0)))
	address := strings.TrimSuffix(strings.TrimPrefix(srv.url, "http://"), "/mcp")
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: %s\r\nMcp-Method: tools/call\r\nMcp-Name: persistence.put\r\nContent-Length: %d\r\n\r\n%s",
		address, srv.key, rawmcp.StatelessVersion, len(frame)+100, frame)
	conn.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	conn.Close()
	if bytes.Contains(answer, []byte("structuredContent")) {
		t.Errorf("half a request was answered: %.300s", answer)
	}
	a, err := c.Call(t.Context(), "persistence.get", []byte(`{"namespace":"ns","id":"half"}`))
	if err != nil || code(a) != "not_found" {
		t.Errorf("something was stored: %v %s", err, a)
	}
}
