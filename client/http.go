package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// protocolVersion is the MCP revision that HTTP speaks: the first one without sessions.
const protocolVersion = "2026-07-28"

// maxAnswer bounds the answer to one call, in bytes. Servers of ours stop at 4 MiB; a page of a contract's size is 3.
const maxAnswer = 16 << 20

// HTTPOption is a setting of HTTP.
type HTTPOption func(*httpCaller)

// WithHTTPClient sends the calls with h. Its CheckRedirect is not used: redirects are never followed.
func WithHTTPClient(h *http.Client) HTTPOption {
	return func(c *httpCaller) { c.http = h }
}

// WithMaxAnswer bounds the answer to one call, in bytes, instead of 16 MiB.
func WithMaxAnswer(n int64) HTTPOption {
	return func(c *httpCaller) { c.maxAnswer = n }
}

// HTTP is a Caller over Streamable HTTP as of MCP 2026-07-28: one POST a call, no session, and an answer that is JSON or
// a stream of events. It does not fall back to an older revision: a server that speaks none but those answers with an
// error, and needs a Caller of its own.
//
// url is the MCP endpoint, such as "http://127.0.0.1:8635/persistence/mcp". token is sent as a bearer token; empty sends
// none. It goes to url only.
func HTTP(url, token string, opts ...HTTPOption) Caller {
	c := &httpCaller{url: url, token: token, maxAnswer: maxAnswer}
	for _, o := range opts {
		o(c)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport()}
	}
	c.http = withoutRedirects(c.http)
	return c
}

// newTransport is how this package speaks HTTP when it is not told otherwise.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
		// A server asks who the caller is before it lets a body come; one that never says "continue" gets the body
		// after this time.
		ExpectContinueTimeout: 10 * time.Second,
		DisableCompression:    true,
	}
}

// withoutRedirects is h, but a redirect is an answer like any other, and so an error: the token is not for the place it
// names.
func withoutRedirects(h *http.Client) *http.Client {
	c := *h
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Timeout = 0
	return &c
}

// httpCaller implements Caller.
type httpCaller struct {
	url, token string
	http       *http.Client
	maxAnswer  int64
	id         atomic.Int64
}

// rpcMeta is the `_meta` of every request.
type rpcMeta struct {
	Version      string            `json:"io.modelcontextprotocol/protocolVersion"`
	Client       map[string]string `json:"io.modelcontextprotocol/clientInfo"`
	Capabilities struct{}          `json:"io.modelcontextprotocol/clientCapabilities"`
}

// rpcRequest is a tools/call.
type rpcRequest struct {
	Version string `json:"jsonrpc"`
	ID      int64  `json:"id"`
	Method  string `json:"method"`
	Params  struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		Meta      rpcMeta         `json:"_meta"`
	} `json:"params"`
}

// rpcResponse is the answer to a tools/call.
type rpcResponse struct {
	ID     json.RawMessage `json:"id"`
	Result *struct {
		Type       string          `json:"resultType"`
		IsError    bool            `json:"isError"`
		Structured json.RawMessage `json:"structuredContent"`
		Content    []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
	Error *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// CallTool implements Caller.
func (c *httpCaller) CallTool(ctx context.Context, name string, arguments json.RawMessage) (Result, error) {
	id := c.id.Add(1)
	req, err := c.request(ctx, id, name, arguments)
	if err != nil {
		return Result{}, &Error{Code: InvalidRequest, Message: "the call cannot be written as a request", Cause: err, local: true}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return Result{}, err
	}
	defer res.Body.Close()
	return c.read(res, id)
}

// request builds the POST of one call.
func (c *httpCaller) request(ctx context.Context, id int64, name string, arguments json.RawMessage) (*http.Request, error) {
	frame := rpcRequest{Version: "2.0", ID: id, Method: "tools/call"}
	frame.Params.Name, frame.Params.Arguments = name, arguments
	frame.Params.Meta = rpcMeta{Version: protocolVersion, Client: map[string]string{"name": "tabellion-client", "version": "1"}}
	body, err := json.Marshal(frame)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	h.Set("Mcp-Protocol-Version", protocolVersion)
	h.Set("Mcp-Method", frame.Method)
	h.Set("Mcp-Name", headerValue(name))
	authorize(h, c.token)
	return req, nil
}

// authorize adds the bearer token, if there is one.
func authorize(h http.Header, token string) {
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
}

// headerValue codes a value that cannot stand in a header as it is (MCP 2026-07-28, transports).
func headerValue(s string) string {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
		}
	}
	return s
}

// read finds the response to request id in an HTTP answer.
func (c *httpCaller) read(res *http.Response, id int64) (Result, error) {
	body := &bounded{r: res.Body, left: c.maxAnswer}
	var msg *rpcResponse
	var err error
	if media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); media == "text/event-stream" {
		msg, err = readEvents(body, id)
	} else {
		var text []byte
		if text, err = io.ReadAll(body); err == nil {
			if msg = parseResponse(text, id); msg == nil && res.StatusCode != http.StatusOK {
				return Result{}, fromStatus(res, text)
			}
		}
	}
	switch {
	case errors.Is(err, errTooLarge):
		return Result{}, &Error{Message: fmt.Sprintf("the answer is over %d bytes: ask for smaller pages, or raise WithMaxAnswer", c.maxAnswer), unusable: true}
	case err != nil:
		return Result{}, err
	case msg == nil:
		return Result{}, &Error{Message: "the answer holds no response to the call", unusable: res.StatusCode == http.StatusOK, HTTP: notOK(res)}
	}
	return msg.result(res)
}

// notOK is the status of an answer, 0 for 200.
func notOK(res *http.Response) int {
	if res.StatusCode == http.StatusOK {
		return 0
	}
	return res.StatusCode
}

// result is the outcome that a response tells of.
func (m *rpcResponse) result(res *http.Response) (Result, error) {
	if m.Error != nil {
		e := FromRPC(m.Error.Code, m.Error.Message, m.Error.Data)
		e.HTTP = notOK(res)
		if e.RetryAfter == 0 {
			e.RetryAfter = retryAfter(res.Header)
		}
		return Result{}, e
	}
	if t := m.Result.Type; t != "" && t != "complete" {
		return Result{}, &Error{Message: "the server asks a question back, which this client cannot answer", unusable: true}
	}
	out := Result{IsError: m.Result.IsError, Structured: m.Result.Structured}
	for _, block := range m.Result.Content {
		if block.Type == "text" {
			out.Text = block.Text
			break
		}
	}
	return out, nil
}

// parseResponse reads a message; nil when it is not the response to request id. An error without an id counts: the
// server could not read the request.
func parseResponse(text []byte, id int64) *rpcResponse {
	var m rpcResponse
	if json.Unmarshal(text, &m) != nil || (m.Result == nil) == (m.Error == nil) {
		return nil
	}
	if s := string(m.ID); s != strconv.FormatInt(id, 10) && (m.Error == nil || s != "" && s != "null") {
		return nil
	}
	return &m
}

// readEvents reads a stream of server-sent events until the response to request id. What else comes, such as progress,
// is passed over.
func readEvents(r io.Reader, id int64) (*rpcResponse, error) {
	in := bufio.NewReader(r)
	var data []string
	for {
		line, err := in.ReadString('\n')
		if err != nil && err != io.EOF {
			return nil, err
		}
		text := strings.TrimRight(line, "\r\n")
		if value, ok := strings.CutPrefix(text, "data:"); ok {
			data = append(data, strings.TrimPrefix(value, " "))
		}
		if text == "" || err == io.EOF { // the end of an event
			if m := parseResponse([]byte(strings.Join(data, "\n")), id); m != nil {
				return m, nil
			}
			data = nil
		}
		if err == io.EOF {
			return nil, io.ErrUnexpectedEOF // a stream ends with its response: the answer was lost
		}
	}
}

// errTooLarge is what bounded reports.
var errTooLarge = errors.New("the answer is too large")

// bounded reads at most left bytes, and fails when there are more.
type bounded struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}
