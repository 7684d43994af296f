package rawmcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
)

// Target carries the steps of scenarios to a server over HTTP. It is safe for concurrent use: calls at the same time
// have connections, and in the legacy era sessions, of their own. Close ends what is idle.
type Target struct {
	// Patience is that of its clients; set it before the first step. Transfers are not repeated here: only the scenario
	// knows whether it expects the refusal (scenario.Runner.Patience).
	Patience scenario.Patience

	url      string
	transfer *url.URL
	tokens   map[string]string
	legacy   bool

	mu   sync.Mutex
	idle map[string][]*Client
}

// NewTarget makes a target. endpoint is the URL of the MCP endpoint; without a path it is /mcp. transfer is the origin
// of the transfer routes, "" for that of the endpoint. A caller without a token sends none.
func NewTarget(endpoint, transfer string, tokens map[string]string, legacy bool) (*Target, error) {
	u, err := origin(endpoint)
	if err != nil {
		return nil, err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/mcp"
	}
	t := &Target{url: u.String(), transfer: u, tokens: tokens, legacy: legacy, idle: map[string][]*Client{}}
	if transfer != "" {
		if t.transfer, err = origin(transfer); err != nil {
			return nil, err
		}
		if p := t.transfer.Path; p != "" && p != "/" {
			return nil, fmt.Errorf("%s: the transfer origin has no path: its routes are /uploads and /artifacts", transfer)
		}
	}
	return t, nil
}

// origin parses the URL of a server.
func origin(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("%q is no URL of a server, such as http://127.0.0.1:8635/mcp", text)
	}
	return u, nil
}

// Call implements scenario.Target.
func (t *Target) Call(ctx context.Context, as, tool string, args []byte) (scenario.Answer, error) {
	return with(ctx, t, as, func(c *Client) (scenario.Answer, error) { return c.Call(ctx, tool, args) })
}

// Read implements scenario.Target.
func (t *Target) Read(ctx context.Context, as, uri string) (scenario.Answer, error) {
	return with(ctx, t, as, func(c *Client) (scenario.Answer, error) { return c.Read(ctx, uri) })
}

// HTTP implements scenario.Target.
func (t *Target) HTTP(ctx context.Context, as string, req scenario.HTTPRequest) (scenario.HTTPResponse, error) {
	port, secure := t.transfer.Port(), (*tls.Config)(nil)
	if t.transfer.Scheme == "https" {
		secure = &tls.Config{ServerName: t.transfer.Hostname(), NextProtos: []string{"http/1.1"}}
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[t.transfer.Scheme]
	}
	return scenario.Send(ctx, net.JoinHostPort(t.transfer.Hostname(), port), secure, t.tokens[as], req)
}

// with runs f with a client of the caller that nobody else uses meanwhile.
func with[R any](ctx context.Context, t *Target, as string, f func(*Client) (R, error)) (R, error) {
	c, err := t.take(ctx, as)
	if err != nil {
		var none R
		return none, err
	}
	defer t.put(as, c)
	return f(c)
}

// take gives an idle client of the caller, or opens one.
func (t *Target) take(ctx context.Context, as string) (*Client, error) {
	t.mu.Lock()
	if n := len(t.idle[as]); n > 0 {
		defer t.mu.Unlock()
		c := t.idle[as][n-1]
		t.idle[as] = t.idle[as][:n-1]
		return c, nil
	}
	t.mu.Unlock()
	c := New(t.url, t.tokens[as], t.legacy, 1)
	c.Patience = t.Patience
	if err := c.Open(ctx); err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	return c, nil
}

// put gives a client back.
func (t *Target) put(as string, c *Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle[as] = append(t.idle[as], c)
}

// Close ends the sessions and drops the connections of idle clients.
func (t *Target) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, clients := range t.idle {
		for _, c := range clients {
			c.End(context.Background())
			c.Close()
		}
	}
	t.idle = map[string][]*Client{}
}

// maxListPages ends a listing of tools that never ends.
const maxListPages = 100

// Outputs reads the output schema of every tool that the caller is shown. Schemas must be whole: what they refer to is
// not fetched from anywhere. A tool without one is missing in the result.
func (t *Target) Outputs(ctx context.Context, as string) (scenario.Outputs, error) {
	return with(ctx, t, as, func(c *Client) (scenario.Outputs, error) {
		out, members := scenario.Outputs{}, ""
		for range maxListPages {
			next, err := c.listPage(ctx, members, out)
			if err != nil || next == "" {
				return out, err
			}
			cursor, _ := json.Marshal(next)
			members = `"cursor":` + string(cursor)
		}
		return nil, fmt.Errorf("tools/list has more than %d pages", maxListPages)
	})
}

// listPage reads one page of tools/list into out and gives the cursor of the next.
func (c *Client) listPage(ctx context.Context, members string, out scenario.Outputs) (string, error) {
	raw, err := c.Do(ctx, "tools/list", "", members)
	if err != nil {
		return "", err
	}
	var page struct {
		Result *struct {
			Tools []struct {
				Name         string          `json:"name"`
				OutputSchema json.RawMessage `json:"outputSchema"`
			} `json:"tools"`
			NextCursor string `json:"nextCursor"`
		} `json:"result"`
	}
	if err := json.Unmarshal(raw.Message, &page); err != nil || page.Result == nil {
		return "", fmt.Errorf("tools/list: status %d: %.300s", raw.Status, raw.Body)
	}
	for _, tool := range page.Result.Tools {
		if len(tool.OutputSchema) == 0 {
			continue
		}
		if out[tool.Name], err = compile(tool.Name, tool.OutputSchema); err != nil {
			return "", fmt.Errorf("the outputSchema of %s: %w", tool.Name, err)
		}
	}
	return page.Result.NextCursor, nil
}

// compile compiles a schema that a server sent: it may refer to nothing outside.
func compile(name string, text []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{})
	id := "tool:" + url.PathEscape(name)
	if err := c.AddResource(id, doc); err != nil {
		return nil, err
	}
	return c.Compile(id)
}

var _ scenario.Target = (*Target)(nil)
