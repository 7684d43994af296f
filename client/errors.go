package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code is the machine word of a failure. A code is an error itself, so that errors.Is(err, RevisionConflict) asks for
// it.
type Code string

// Error is the code.
func (c Code) Error() string { return string(c) }

// The codes of persistence.v1, section 2.1, and what to do about each.
const (
	InvalidRequest      Code = "invalid_request"      // correct the arguments; begin the list anew when it was a cursor
	NotFound            Code = "not_found"            // absent, purged, logically deleted, or an upload that is over
	PolicyDenied        Code = "policy_denied"        // look at identity and rights
	RevisionConflict    Code = "revision_conflict"    // read, compare, resolve, write again
	IdempotencyConflict Code = "idempotency_conflict" // the key was used for something else: use a new one
	QuotaExceeded       Code = "quota_exceeded"       // write less, or ask for more room
	TransferIncomplete  Code = "transfer_incomplete"  // send the bytes before the commit
	IntegrityError      Code = "integrity_error"      // the bytes are not those that were declared: trust them not
	UnsupportedFormat   Code = "unsupported_format"   // this server cannot do it
	RetentionBlocked    Code = "retention_blocked"    // the target is still needed
	Busy                Code = "busy"                 // nothing happened; later
	StoreUnavailable    Code = "store_unavailable"    // it may have happened; later, with the same key
)

// Codes lists the codes of the contract.
var Codes = []Code{
	InvalidRequest, NotFound, PolicyDenied, RevisionConflict, IdempotencyConflict, QuotaExceeded, TransferIncomplete,
	IntegrityError, UnsupportedFormat, RetentionBlocked, Busy, StoreUnavailable,
}

// Error is every failure that this package reports.
type Error struct {
	// Op is what was asked: the name of a tool in the contract ("put"), "upload" or "download".
	Op string
	// Code is the contract's word. It is empty when there is none: no answer came (see Lost), or one that is not of
	// the contract.
	Code Code
	// Message is for people.
	Message string
	// RPC is the code of the JSON-RPC error that carried the failure, 0 when none did. Word is the machine word
	// beside it, such as "UNAUTHORIZED_KEY".
	RPC  int
	Word string
	// HTTP is the status of the answer that carried it, when that was not 200.
	HTTP int
	// RetryAfter is how long the server asks to wait, 0 when it does not say.
	RetryAfter time.Duration
	// Attempts is how often it was tried.
	Attempts int
	// Unknown tells of a mutation that it may have happened. The same request with Key settles it, within the
	// server's idempotency retention.
	Unknown bool
	// Key is the idempotency key of a mutation, for Upload the key of the whole.
	Key string
	// Cause is the error beneath, such as that of the connection or of the context.
	Cause error

	unusable bool // an answer came, and it cannot be used
	local    bool // nothing was sent
	again    bool // another attempt may mend it, whatever the code
	foreign  bool // the code is made of an HTTP status: something on the way may have answered, not the server
}

// local makes an error of something that was not sent at all.
func local(op string, code Code, format string, args ...any) *Error {
	return &Error{Op: op, Code: code, Message: fmt.Sprintf(format, args...), local: true}
}

// Error gives what was asked, the code, the message, and what to do when the outcome is unknown.
func (e *Error) Error() string {
	var parts []string
	for _, p := range []string{e.Op, string(e.Code), e.Message} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if e.RPC != 0 {
		parts = append(parts, fmt.Sprintf("JSON-RPC error %d", e.RPC))
	}
	if e.HTTP != 0 {
		parts = append(parts, fmt.Sprintf("HTTP status %d", e.HTTP))
	}
	if e.Cause != nil {
		parts = append(parts, e.Cause.Error())
	}
	text := strings.Join(parts, ": ")
	if e.Unknown {
		text += "; whether it happened is unknown: repeat it with the idempotency key " + e.Key
	}
	return text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is compares with a Code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c != "" && e.Code == c
}

// Lost tells that no answer came.
func (e *Error) Lost() bool {
	return e.Code == "" && e.RPC == 0 && e.HTTP == 0 && !e.unusable && !e.local
}

// Retryable tells whether the same request, with the same key, may succeed later: after busy, store_unavailable and a
// lost answer.
func (e *Error) Retryable() bool {
	return !e.local && (e.Code == Busy || e.Code == StoreUnavailable || e.Lost() || e.again)
}

// open tells of one attempt whether it may have had an effect.
func (e *Error) open() bool {
	var op *net.OpError
	switch {
	case e.local, errors.As(e.Cause, &op) && op.Op == "dial": // nothing was sent
		return false
	case e.Code == StoreUnavailable, e.Lost(), e.unusable:
		return true
	}
	return e.RPC == rpcInternal || e.RPC == rpcCancelled
}

// settles tells whether the failure says of earlier attempts with the same key that they had no effect: the server
// found no record of the key before it looked at what it refuses (persistence.v1, section 2.2).
func (e *Error) settles() bool {
	if e.foreign {
		return false
	}
	switch e.Code {
	case RevisionConflict, IdempotencyConflict, QuotaExceeded, NotFound, TransferIncomplete, IntegrityError, RetentionBlocked:
		return true
	}
	return false
}

// IsCode tells whether err is a failure with this code.
func IsCode(err error, code Code) bool { return code != "" && errors.Is(err, code) }

// Retryable tells whether err is a failure that the same request, with the same key, may get over later.
func Retryable(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Retryable()
}

// Unknown gives the key of a mutation of which it is unknown whether it happened, and false for any other error.
func Unknown(err error) (key string, ok bool) {
	var e *Error
	if errors.As(err, &e) && e.Unknown {
		return e.Key, true
	}
	return "", false
}

// JSON-RPC codes that a server refuses a call with before the tool runs.
const (
	rpcDenied      = -32001
	rpcRateLimited = -32010
	rpcAuthBackend = -32013
	rpcOverloaded  = -32014
	rpcCancelled   = -32015
	rpcInternal    = -32603
)

// FromRPC makes the error of a JSON-RPC error, for Callers. data is its data member, or nil.
//
// A code of the contract in data.error counts. Without one, -32001 is policy_denied, -32010 (too many calls) and -32014
// (overload) are busy, because nothing has happened, and -32013 (the server cannot ask who the caller is) is
// store_unavailable. Other codes are faults of the protocol and have no code of the contract.
func FromRPC(code int, message string, data json.RawMessage) *Error {
	e := &Error{RPC: code, Message: clip(message)}
	switch code {
	case rpcDenied:
		e.Code = PolicyDenied
	case rpcRateLimited, rpcOverloaded:
		e.Code = Busy
	case rpcAuthBackend:
		e.Code = StoreUnavailable
	}
	var d struct {
		Error      json.RawMessage `json:"error"`
		RetryAfter int64           `json:"retry_after_ms"`
	}
	if json.Unmarshal(data, &d) != nil {
		return e
	}
	e.RetryAfter = time.Duration(max(d.RetryAfter, 0)) * time.Millisecond
	var f failure
	switch {
	case json.Unmarshal(d.Error, &e.Word) == nil:
	case json.Unmarshal(data, &f) == nil && f.Error.Code != "":
		e.Code, e.Message = f.Error.Code, f.Error.Message
	}
	return e
}

// maxErrorBody bounds the body of a refusal, in bytes.
const maxErrorBody = 64 << 10

// fromStatus makes the error of an HTTP answer that is not what was asked for. body is as much of it as is of use.
func fromStatus(res *http.Response, body []byte) *Error {
	e := &Error{HTTP: res.StatusCode, RetryAfter: retryAfter(res.Header)}
	var f failure
	if json.Unmarshal(body, &f) == nil && f.Error.Code != "" {
		e.Code, e.Message = f.Error.Code, f.Error.Message
		return e
	}
	e.foreign = true
	switch status := res.StatusCode; {
	case status >= 300 && status < 400:
		e.Message = "the server sent a redirect, which is not followed with a token: configure the address that answers itself"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Code, e.Message = PolicyDenied, "the server refused the token"
	case status == http.StatusNotFound:
		e.Code, e.Message = NotFound, "there is nothing at this address"
	case status == http.StatusRequestEntityTooLarge:
		e.Code, e.Message = QuotaExceeded, "the server takes no request of this size"
	case status == http.StatusTooManyRequests:
		e.Code, e.Message = Busy, "the server takes no more requests now"
	case status >= 500:
		e.Code, e.Message = StoreUnavailable, "the server could not answer"
	default:
		e.Message = "this is no answer of the contract: is it the right address?"
	}
	return e
}

// retryAfter reads the header Retry-After in its form of seconds; 0 for none and for dates.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 || n > 86400 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// ended adds the reason why the context ended.
func (e *Error) ended(ctx context.Context) {
	if err := ctx.Err(); err != nil && !errors.Is(e.Cause, err) {
		e.Cause = errors.Join(e.Cause, err)
	}
}
