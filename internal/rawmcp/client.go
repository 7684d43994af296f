// Package rawmcp is a bare MCP client over HTTP: it sends exactly the bytes it is given, in either protocol era, and
// hides nothing of the answer. Conformance runs, tests and benches need that; a program that only wants to use a server
// is better off with the SDK, which checks and converts.
//
//	c := rawmcp.New("http://127.0.0.1:8635/mcp", key, false, 4)
//	if err := c.Open(ctx); err != nil { ... }
//	answer, err := c.Call(ctx, "persistence.get", []byte(`{"namespace":"explorer","id":"plan"}`))
//
// A connection that ends without an answer is ErrBroken; a JSON-RPC error and a tool's error are answers.
package rawmcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// Versions of the two eras.
const (
	StatelessVersion = "2026-07-28"
	LegacyVersion    = "2025-11-25"
)

// Client talks to one MCP endpoint as one caller. It is safe for concurrent use after Open.
type Client struct {
	URL, Token string
	Legacy     bool

	http    *http.Client
	session string
	id      atomic.Int64
}

// New makes a client; conns bounds its kept connections.
func New(url, token string, legacy bool, conns int) *Client {
	return &Client{URL: url, Token: token, Legacy: legacy, http: &http.Client{
		Transport: &http.Transport{
			MaxIdleConns: conns, MaxIdleConnsPerHost: conns, MaxConnsPerHost: conns,
			DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       60 * time.Second,
	}}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Open starts a session in the legacy era; in the stateless era there is nothing to open.
func (c *Client) Open(ctx context.Context) error {
	if !c.Legacy {
		return nil
	}
	body := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + LegacyVersion +
		`","capabilities":{},"clientInfo":{"name":"rawmcp","version":"0"}}}`
	res, err := c.send(ctx, "initialize", "", []byte(body))
	if err != nil {
		return err
	}
	if res.Status != http.StatusOK {
		return fmt.Errorf("initialize: status %d: %s", res.Status, res.Body)
	}
	c.session = res.Header.Get("Mcp-Session-Id")
	_, err = c.send(ctx, "notifications/initialized", "", []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return err
}

// Raw is an HTTP answer; Message is the JSON-RPC response found in it, from JSON or from an event stream.
type Raw struct {
	Status  int
	Header  http.Header
	Body    []byte
	Message []byte
}

// send posts one body with the era's headers.
func (c *Client) send(ctx context.Context, method, name string, body []byte) (*Raw, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	if c.Token != "" {
		h.Set("Authorization", "Bearer "+c.Token)
	}
	if c.Legacy {
		if method != "initialize" {
			h.Set("Mcp-Protocol-Version", LegacyVersion)
		}
		if c.session != "" {
			h.Set("Mcp-Session-Id", c.session)
		}
	} else {
		h.Set("Mcp-Protocol-Version", StatelessVersion)
		h.Set("Mcp-Method", method)
		if name != "" {
			h.Set("Mcp-Name", name)
		}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return nil, err
	}
	return &Raw{Status: res.StatusCode, Header: res.Header, Body: text, Message: message(res.Header, text)}, nil
}

// message finds the response in a body: the last data line of an event stream, or the body.
func message(h http.Header, body []byte) []byte {
	if !strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		return body
	}
	var last []byte
	for _, line := range bytes.Split(body, []byte("\n")) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && len(bytes.TrimSpace(data)) > 0 {
			last = bytes.TrimSpace(data)
		}
	}
	return last
}

// Meta is the `_meta` that each request of the stateless era carries.
const Meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + StatelessVersion +
	`","io.modelcontextprotocol/clientInfo":{"name":"rawmcp","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}`

// Frame is the text of one request. members are further members of params, such as `"name":"x"`.
func (c *Client) Frame(id int64, method string, members string) []byte {
	if !c.Legacy {
		if members != "" {
			members += ","
		}
		members += Meta
	}
	return []byte(`{"jsonrpc":"2.0","id":` + strconv.FormatInt(id, 10) + `,"method":"` + method + `","params":{` + members + `}}`)
}

// ErrBroken: the connection ended without an answer. What was asked may have happened.
var ErrBroken = errors.New("no answer")

// Do sends one request and gives its HTTP answer.
func (c *Client) Do(ctx context.Context, method, name, members string) (*Raw, error) {
	raw, err := c.send(ctx, method, name, c.Frame(c.id.Add(1), method, members))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return raw, nil
}

// Post sends body unchanged, with the headers of a call of tool.
func (c *Client) Post(ctx context.Context, method, name string, body []byte) (*Raw, error) {
	return c.send(ctx, method, name, body)
}

// Call sends tools/call with the text of the arguments.
func (c *Client) Call(ctx context.Context, tool string, args []byte) (scenario.Answer, error) {
	name, _ := json.Marshal(tool)
	raw, err := c.Do(ctx, "tools/call", tool, `"name":`+string(name)+`,"arguments":`+string(args))
	if err != nil {
		return scenario.Answer{}, err
	}
	return ParseAnswer(raw)
}

// Read sends resources/read.
func (c *Client) Read(ctx context.Context, uri string) (scenario.Answer, error) {
	name, _ := json.Marshal(uri)
	raw, err := c.Do(ctx, "resources/read", uri, `"uri":`+string(name))
	if err != nil {
		return scenario.Answer{}, err
	}
	return ParseAnswer(raw)
}

// response is a JSON-RPC response of a tool call or a resource read.
type response struct {
	Result *struct {
		IsError           bool            `json:"isError"`
		StructuredContent json.RawMessage `json:"structuredContent"`
		Content           []struct {
			Text string `json:"text"`
		} `json:"content"`
		Contents []struct {
			Text string `json:"text"`
		} `json:"contents"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data"`
	} `json:"error"`
}

// ParseAnswer reads the response of a call.
func ParseAnswer(raw *Raw) (scenario.Answer, error) {
	var res response
	d := json.NewDecoder(bytes.NewReader(raw.Message))
	d.UseNumber()
	if err := d.Decode(&res); err != nil {
		return scenario.Answer{}, fmt.Errorf("status %d, answer is not JSON-RPC: %.200s", raw.Status, raw.Body)
	}
	switch {
	case res.Error != nil:
		return scenario.Answer{RPC: &scenario.RPCError{Code: res.Error.Code, Message: res.Error.Message, Data: res.Error.Data}}, nil
	case res.Result == nil:
		return scenario.Answer{}, fmt.Errorf("status %d, neither result nor error: %.200s", raw.Status, raw.Body)
	}
	a := scenario.Answer{IsError: res.Result.IsError}
	if len(res.Result.StructuredContent) > 0 {
		d := json.NewDecoder(bytes.NewReader(res.Result.StructuredContent))
		d.UseNumber()
		if err := d.Decode(&a.Structured); err != nil {
			return a, err
		}
	}
	if len(res.Result.Content) > 0 {
		a.Text = res.Result.Content[0].Text
	}
	if len(res.Result.Contents) > 0 {
		a.Text = res.Result.Contents[0].Text
	}
	return a, nil
}

// Session is the session id that Open got.
func (c *Client) Session() string { return c.session }
