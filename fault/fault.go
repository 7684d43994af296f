// Package fault is the one error type that crosses a service boundary, the closed list of its codes, and the
// form that each code takes on each wire.
//
// A fault has a stable code for machines, a message for the caller, and a cause for the operator. The message
// never holds a path, a key, SQL, payload content or a hint about something the caller may not see; the cause
// never leaves the process:
//
//	return fault.New(fault.RevisionConflict, "head is at revision %d", head)
//	return fault.New(fault.StoreUnavailable, "the store cannot be written; retry with the same key").Wrap(err)
//
// Compare with errors.As, or with fault.CodeOf. The wire form is chosen by the slot's Dialect, the surface and
// the protocol era: see Form.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Code is the machine word of a fault. The list below is closed: a test holds a row of the golden table for
// every code, and a code that is not in Codes does not pass it.
type Code string

// Business codes of persistence.v1, section 2.1. Other slots use them too where the meaning is the same.
const (
	InvalidRequest      Code = "invalid_request"
	NotFound            Code = "not_found"
	PolicyDenied        Code = "policy_denied"
	RevisionConflict    Code = "revision_conflict"
	IdempotencyConflict Code = "idempotency_conflict"
	QuotaExceeded       Code = "quota_exceeded"
	TransferIncomplete  Code = "transfer_incomplete"
	IntegrityError      Code = "integrity_error"
	UnsupportedFormat   Code = "unsupported_format"
	RetentionBlocked    Code = "retention_blocked"
	// Busy promises that nothing happened.
	Busy Code = "busy"
	// StoreUnavailable does not tell whether a mutation happened; the same idempotency key settles it.
	StoreUnavailable Code = "store_unavailable"
)

// Further business codes of the models slot, section 23. The others of that slot are those above: see Form.
const (
	ProfileBlocked  Code = "profile_blocked" // the sandbox of queries refuses it
	NoContext       Code = "no_context"      // nobody is known to ask
	InvalidBody     Code = "invalid_body"    // what is to be written is no object
	Unauthenticated Code = "unauthenticated" // the embedding program cannot tell who asks
	PlanError       Code = "plan_error"      // every other refusal; the message begins with its class
)

// Codes of what is refused before an operation starts (security requirements, S55a). They are JSON-RPC errors
// in every slot.
const (
	UnauthorizedKey Code = "UNAUTHORIZED_KEY"
	RateLimited     Code = "RATE_LIMITED"
	Overloaded      Code = "OVERLOADED"
	AuthBackend     Code = "AUTH_BACKEND"
)

// Codes of the protocol layer: the message is no call of an operation at all.
const (
	ParseError         Code = "parse_error"         // the frame is not JSON
	InvalidMessage     Code = "invalid_message"     // JSON, but not a JSON-RPC message, or one that breaks the strict rules
	MethodNotFound     Code = "method_not_found"    // no such method in this era
	InvalidParams      Code = "invalid_params"      // params that are not of the method's form
	UnknownTool        Code = "unknown_tool"        // no such tool, or none that this caller may know
	UnknownResource    Code = "unknown_resource"    // a URI that no operation answers
	UnknownPrompt      Code = "unknown_prompt"      // no such prompt
	HeaderMismatch     Code = "header_mismatch"     // HTTP headers and body disagree (MCP 2026-07-28)
	UnsupportedVersion Code = "unsupported_version" // a protocol version that is not served
	MissingCapability  Code = "missing_capability"  // the operation needs a capability the client did not declare
	Cancelled          Code = "cancelled"           // the caller went away before anything happened
)

// Internal is a fault of this program. Its message is a correlation id and nothing else.
const Internal Code = "internal"

// Codes lists every code once, in the order of the documentation.
var Codes = []Code{
	InvalidRequest, NotFound, PolicyDenied, RevisionConflict, IdempotencyConflict, QuotaExceeded, TransferIncomplete,
	IntegrityError, UnsupportedFormat, RetentionBlocked, Busy, StoreUnavailable,
	ProfileBlocked, NoContext, Unauthenticated, InvalidBody, PlanError,
	UnauthorizedKey, RateLimited, Overloaded, AuthBackend,
	ParseError, InvalidMessage, MethodNotFound, InvalidParams, UnknownTool, UnknownResource, UnknownPrompt,
	HeaderMismatch, UnsupportedVersion, MissingCapability, Cancelled, Internal,
}

// Error is a fault. It is immutable once it has been returned to another goroutine.
type Error struct {
	Code    Code
	Message string
	// RetryAfter, when positive, says when a retry may succeed (busy, rate limits, overload).
	RetryAfter time.Duration
	// Detail holds further machine-readable members of an RPC error's data, such as the supported versions. It
	// is a value that encoding/json can write, or nil.
	Detail map[string]any

	cause error
}

// New makes a fault. The message is for the caller: it says what to do next.
func New(code Code, format string, args ...any) *Error {
	if len(args) == 0 {
		return &Error{Code: code, Message: format}
	}
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap adds the cause, for the operator's log only, and returns e.
func (e *Error) Wrap(cause error) *Error {
	e.cause = cause
	return e
}

// After sets RetryAfter and returns e.
func (e *Error) After(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

// With adds one member to Detail and returns e.
func (e *Error) With(name string, value any) *Error {
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	e.Detail[name] = value
	return e
}

// Error gives code and message, without the cause.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is makes errors.Is(err, fault.New(code, "")) compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// As finds the fault in err's chain; nil when there is none.
func As(err error) *Error {
	var f *Error
	if errors.As(err, &f) {
		return f
	}
	return nil
}

// CodeOf is the code of the fault in err's chain, Internal when err is another error, and empty for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if f := As(err); f != nil {
		return f.Code
	}
	return Internal
}

// Retryable tells whether the same request, with the same idempotency key, may succeed later.
func (e *Error) Retryable() bool {
	switch e.Code {
	case Busy, StoreUnavailable, RateLimited, Overloaded, AuthBackend:
		return true
	}
	return false
}
