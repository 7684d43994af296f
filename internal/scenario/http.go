package scenario

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
)

// HTTPStep is a request to the transfer origin as a scenario writes it, before variables and generators are filled in.
type HTTPStep struct {
	Method     string            `json:"method"`
	Path       string            `json:"path"`
	As         string            `json:"as"` // "": no Authorization header
	Headers    map[string]string `json:"headers"`
	Body       json.RawMessage   `json:"body"` // {text}, {base64} or {fill: {byte, count}}; nothing: no body
	Chunked    bool              `json:"chunked"`
	BreakAfter *int64            `json:"breakAfter"`
}

// HTTPRequest is a request to the transfer origin as it is to be sent.
type HTTPRequest struct {
	Method     string
	Path       string            // goes on the wire as it is
	Headers    map[string]string // beside Host, Authorization and the length; one of these named here wins
	Body       []byte            // nil: none, and no length is announced
	Chunked    bool              // the length is not announced
	BreakAfter *int64            // the whole body is announced and the connection is cut after so many bytes of it
}

// HTTPResponse is what came of a request.
type HTTPResponse struct {
	Status  int
	Headers map[string]string // lower-case names; several values are joined by ", "
	Size    int64             // of the body, in bytes
	SHA256  string            // of the body, in hexadecimal digits
	Body    []byte            // the beginning of the body, at most maxKept bytes
	// Broken: the connection ended without a complete answer. Cause is how it ended, for a message.
	Broken bool
	Cause  error
	// Continued: 100 Continue came before the answer.
	Continued bool
}

// http runs an http step.
func (r *Runner) http(ctx context.Context, st Step, vars map[string]any) error {
	if len(st.Save) > 0 {
		return errors.New("save has no meaning in an http step")
	}
	req, err := st.HTTP.request(vars)
	if err != nil {
		return fmt.Errorf("%s %s: %w", st.HTTP.Method, st.HTTP.Path, err)
	}
	for waits := r.Patience.Start(); ; {
		res, err := r.Target.HTTP(ctx, st.HTTP.As, req)
		if err == nil {
			err = expectHTTP(st.Expect, res, vars)
		}
		// A request that was cut shows nothing of a server that did not take it.
		if err != nil || req.BreakAfter != nil {
			if asked, ok := res.later(); ok && waits.Again(ctx, asked) {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("%s %s as %q: %w", req.Method, req.Path, st.HTTP.As, err)
		}
		return nil
	}
}

// request fills in variables and generators.
func (h *HTTPStep) request(vars map[string]any) (HTTPRequest, error) {
	body, err := bodyOf(h.Body, vars)
	if err != nil {
		return HTTPRequest{}, err
	}
	if (h.Chunked || h.BreakAfter != nil) && body == nil {
		return HTTPRequest{}, errors.New("chunked and breakAfter need a body")
	}
	if n := h.BreakAfter; n != nil && (*n < 0 || *n >= int64(len(body))) {
		return HTTPRequest{}, fmt.Errorf("breakAfter %d of a body of %d bytes", *n, len(body))
	}
	req := HTTPRequest{Method: h.Method, Path: fill(h.Path, vars), Body: body, Chunked: h.Chunked, BreakAfter: h.BreakAfter}
	req.Headers = make(map[string]string, len(h.Headers))
	for name, value := range h.Headers {
		req.Headers[name] = fill(value, vars)
	}
	return req, nil
}

// bodyOf makes the bytes of a body: nil when there is none, empty when it is empty.
func bodyOf(text json.RawMessage, vars map[string]any) ([]byte, error) {
	if len(text) == 0 {
		return nil, nil
	}
	v, err := decode(text)
	if err != nil {
		return nil, err
	}
	if v, err = expand(v, vars); err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok || len(m) != 1 {
		return nil, fmt.Errorf("body must be {text}, {base64} or {fill}: %s", text)
	}
	for kind, arg := range m {
		switch arg := arg.(type) {
		case string:
			if kind == "text" {
				return []byte(arg), nil
			}
			if kind == "base64" {
				b, err := base64.StdEncoding.DecodeString(arg)
				return append([]byte{}, b...), err
			}
		case map[string]any:
			if kind == "fill" {
				return filled(arg)
			}
		}
	}
	return nil, fmt.Errorf("body must be {text}, {base64} or {fill}: %s", text)
}

// filled is count times one byte.
func filled(arg map[string]any) ([]byte, error) {
	value, err := strconv.ParseUint(fmt.Sprint(arg["byte"]), 10, 8)
	if err != nil {
		return nil, fmt.Errorf("fill: byte: %w", err)
	}
	count, err := strconv.ParseUint(fmt.Sprint(arg["count"]), 10, 31)
	if err != nil {
		return nil, fmt.Errorf("fill: count: %w", err)
	}
	body := make([]byte, count)
	for i := range body {
		body[i] = byte(value)
	}
	return body, nil
}

// httpExpectation is what an http step may expect.
type httpExpectation struct {
	Status  json.RawMessage            `json:"status"`
	Error   string                     `json:"error"`
	Headers map[string]json.RawMessage `json:"headers"`
	Body    *struct {
		Size   json.RawMessage `json:"size"`
		SHA256 json.RawMessage `json:"sha256"`
	} `json:"body"`
	Broken bool              `json:"broken"`
	AnyOf  []json.RawMessage `json:"anyOf"`
}

// expectHTTP checks the answer to an http step.
func expectHTTP(text json.RawMessage, res HTTPResponse, vars map[string]any) error {
	var e httpExpectation
	if err := strict(text, &e); err != nil {
		return fmt.Errorf("expectation %s: %w", text, err)
	}
	switch {
	case e.AnyOf != nil:
		var problems []string
		for _, option := range e.AnyOf {
			err := expectHTTP(option, res, vars)
			if err == nil {
				return nil
			}
			problems = append(problems, err.Error())
		}
		return fmt.Errorf("none of: %s", strings.Join(problems, " | "))
	case e.Broken:
		if !res.Broken {
			return fmt.Errorf("want a broken connection, got %s", res)
		}
		return nil
	case e.Status == nil:
		return fmt.Errorf("expectation without a kind: %s", text)
	case res.Broken:
		return fmt.Errorf("want status %s, got %s", e.Status, res)
	}
	return e.check(res, vars)
}

// check compares a complete answer, part by part.
func (e *httpExpectation) check(res HTTPResponse, vars map[string]any) error {
	if err := matchText(e.Status, json.Number(strconv.Itoa(res.Status)), vars); err != nil {
		return fmt.Errorf("status%w: %s", err, res)
	}
	if e.Error != "" {
		if err := expectErrorBody(e.Error, res); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if err := matchHeader(name, e.Headers[name], res, vars); err != nil {
			return err
		}
	}
	if e.Body == nil {
		return nil
	}
	if e.Body.Size != nil {
		if err := matchText(e.Body.Size, json.Number(strconv.FormatInt(res.Size, 10)), vars); err != nil {
			return fmt.Errorf("body size%w", err)
		}
	}
	if e.Body.SHA256 != nil {
		if err := matchText(e.Body.SHA256, res.SHA256, vars); err != nil {
			return fmt.Errorf("body sha256%w", err)
		}
	}
	return nil
}

// matchHeader matches one header, which may be wanted absent.
func matchHeader(name string, text json.RawMessage, res HTTPResponse, vars map[string]any) error {
	m, err := decode(text)
	if err != nil {
		return err
	}
	if m, err = expand(m, vars); err != nil {
		return err
	}
	value, has := res.Headers[name]
	return match(m, value, has, "header "+name)
}

// expectErrorBody checks the JSON body of an error: {"error":{"code","message"}} and nothing else (persistence.v1,
// section 6).
func expectErrorBody(code string, res HTTPResponse) error {
	if kind, _, err := mime.ParseMediaType(res.Headers["content-type"]); err != nil || kind != "application/json" {
		return fmt.Errorf("want error %s as application/json, got %s", code, res)
	}
	v, err := decode(res.Body)
	if err != nil {
		return fmt.Errorf("want error %s, the body is no JSON: %s", code, res)
	}
	m, _ := v.(map[string]any)
	inner, ok := m["error"].(map[string]any)
	if !ok || len(m) != 1 || len(inner) != 2 {
		return fmt.Errorf("the body is not {error:{code,message}}: %s", res)
	}
	if message, ok := inner["message"].(string); !ok || message == "" {
		return fmt.Errorf("the error has no message: %s", res)
	}
	if inner["code"] != code {
		return fmt.Errorf("want error %s, got %s", code, res)
	}
	return nil
}

// String shows an answer in a message.
func (r HTTPResponse) String() string {
	if r.Broken {
		return fmt.Sprintf("a broken connection (status %d, %d bytes of body: %v)", r.Status, r.Size, r.Cause)
	}
	body := r.Body
	if len(body) > 300 {
		body = append(body[:300:300], "..."...)
	}
	return fmt.Sprintf("status %d, %d bytes %q", r.Status, r.Size, body)
}
