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
	// Patience repeats requests that the server refuses for now: HTTP 429, HTTP 503 with Retry-After, and the JSON-RPC
	// errors -32010 (too many calls) and -32014 (overload). The zero value gives refusals like any other answer.
	Patience scenario.Patience

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
	res, err = c.send(ctx, "notifications/initialized", "", []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err == nil && res.Status/100 != 2 {
		return fmt.Errorf("notifications/initialized: status %d: %s", res.Status, res.Body)
	}
	return err
}

// endTimeout bounds the request that ends a session.
const endTimeout = 2 * time.Second

// End ends the session of the legacy era, so that it counts no longer among those that the caller has open. What the
// server says to it changes nothing: a session ends by itself too.
func (c *Client) End(ctx context.Context) {
	if c.session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.URL, nil)
	if err != nil {
		return
	}
	c.headers(req.Header, "", "")
	if res, err := c.http.Do(req); err == nil {
		res.Body.Close()
	}
	c.session = ""
}

// Raw is an HTTP answer; Message is the JSON-RPC response found in it, from JSON or from an event stream.
type Raw struct {
	Status  int
	Header  http.Header
	Body    []byte
	Message []byte
}

// send posts one body with the era's headers, again and again while the patience lasts.
func (c *Client) send(ctx context.Context, method, name string, body []byte) (*Raw, error) {
	for waits := c.Patience.Start(); ; {
		raw, err := c.post(ctx, method, name, body)
		if err != nil || c.Patience.Repeats == 0 {
			return raw, err
		}
		if asked, ok := raw.later(); !ok || !waits.Again(ctx, asked) {
			return raw, nil
		}
	}
}

// later tells that an answer is a refusal for now, and how long the server asks to wait, 0 when it does not say.
func (r *Raw) later() (asked time.Duration, ok bool) {
	var m struct {
		Error struct {
			Code int `json:"code"`
			Data struct {
				RetryAfterMS int64 `json:"retry_after_ms"`
			} `json:"data"`
		} `json:"error"`
	}
	_ = json.Unmarshal(r.Message, &m) // what is no such answer leaves the code at 0
	header := r.Header.Get("Retry-After")
	switch {
	case m.Error.Code == rpcRateLimited, m.Error.Code == rpcOverloaded, r.Status == http.StatusTooManyRequests:
	case r.Status == http.StatusServiceUnavailable && header != "":
	default:
		return 0, false
	}
	if ms := m.Error.Data.RetryAfterMS; ms > 0 {
		return time.Duration(ms) * time.Millisecond, true
	}
	return scenario.RetryAfter(header), true
}

// JSON-RPC codes of calls that are refused for now.
const (
	rpcRateLimited = -32010
	rpcOverloaded  = -32014
)

// post posts one body with the era's headers, once.
func (c *Client) post(ctx context.Context, method, name string, body []byte) (*Raw, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	c.headers(req.Header, method, name)
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

// headers sets the era's headers.
func (c *Client) headers(h http.Header, method, name string) {
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
