package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
)

// Caller calls tools of one server as one caller. It is all that a Client needs of MCP, so anything that can call a
// tool can carry it: HTTP, a session of an SDK, a connection of your own.
//
// CallTool sends arguments, a JSON object, as they are, and gives the result. Errors:
//
//   - a JSON-RPC error is an *Error made by FromRPC;
//   - any other error means that no answer came: what was asked may have happened. The client then asks again with the
//     same idempotency key, so the Caller itself must not;
//   - when ctx has ended, an error soon after.
//
// It must be safe for concurrent use.
type Caller interface {
	CallTool(ctx context.Context, name string, arguments json.RawMessage) (Result, error)
}

// Result is the result of a tool call.
type Result struct {
	IsError    bool
	Structured json.RawMessage // structuredContent; nil when there is none
	Text       string          // of the first text block
}

// body is the business object: structuredContent, or the text for servers that send no other.
func (r Result) body() json.RawMessage {
	if len(r.Structured) > 0 && !bytes.Equal(r.Structured, []byte("null")) {
		return r.Structured
	}
	return json.RawMessage(r.Text)
}

// failure is how a business failure is written, in a tool result and in the body of a refused transfer.
type failure struct {
	Error struct {
		Code    Code   `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// decode reads a success into out, or gives the failure.
func (r Result) decode(out any) *Error {
	if r.IsError {
		return r.failed()
	}
	if err := json.Unmarshal(r.body(), out); err != nil {
		return &Error{Message: "the result is not of the contract's form", Cause: err, unusable: true}
	}
	return nil
}

// failed reads a business failure. One without the contract's envelope has no code, and its text is the message.
func (r Result) failed() *Error {
	var f failure
	if err := json.Unmarshal(r.body(), &f); err != nil || f.Error.Code == "" {
		return &Error{Message: clip(r.Text), unusable: true}
	}
	return &Error{Code: f.Error.Code, Message: f.Error.Message}
}

// asError is what a Caller returned as an error of ours. It is a copy: a Caller may return one value many times.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		c := *e
		return &c
	}
	return &Error{Message: "no answer came", Cause: err}
}

// maxWords bounds text of a server that is shown in an error, in bytes.
const maxWords = 500

// clip shortens text for a message.
func clip(text string) string {
	if len(text) > maxWords {
		return text[:maxWords] + "..."
	}
	return text
}
