package tools

import (
	"errors"
	"strings"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// codes are those of classes that have one of their own; every other class is a planError (models, section 23.3).
var codes = map[model.Class]fault.Code{
	model.Denied:      fault.PolicyDenied,
	model.NoContext:   fault.NoContext,
	model.Sandbox:     fault.ProfileBlocked,
	model.Version:     fault.RevisionConflict,
	model.Busy:        fault.Busy,
	model.Unreachable: fault.StoreUnavailable,
	model.Unknown:     fault.StoreUnavailable, // the audit trail must not read as if it had been refused
}

// asFault is the fault of an error of the engine. Its message passes through untouched, its prefix included; what is
// neither a refusal nor a fault is a fault of this program, which the gate words.
func asFault(err error) error {
	if f := fault.As(err); f != nil {
		return f
	}
	var e *model.Error
	if !errors.As(err, &e) {
		return err
	}
	code, ok := codes[e.Class]
	switch {
	case errors.Is(err, plan.ErrKeyConflict):
		code = fault.IdempotencyConflict
	case !ok:
		code = fault.PlanError
	}
	f := fault.New(code, "%s", e.Error())
	var v *plan.VersionError
	if errors.As(err, &v) {
		current := v.Current
		if current.IsAbsent() {
			current = canonjson.Null()
		}
		f = f.With("current", current)
	}
	if cause := e.Unwrap(); cause != nil {
		f = f.Wrap(cause)
	}
	return f
}

// contextFault is the fault of a context hook that failed.
func contextFault(err error) error {
	var e *model.Error
	if errors.As(err, &e) && e.Class == model.Denied {
		return fault.New(fault.PolicyDenied, "%s", e.Error())
	}
	return fault.New(fault.Unauthenticated, "it is not known who asks: %s", catalog.Clip(err.Error(), 200)).Wrap(err)
}

// unfit words input that does not fit the schema: what is to be written has a code of its own (models, section 23.2).
func unfit(e *catalog.SchemaError) *fault.Error {
	code := fault.InvalidRequest
	for _, argument := range e.Arguments {
		if argument == "body" || argument == "set" {
			code = fault.InvalidBody
		}
	}
	words := e.Error()
	if strings.Contains(words, "missing body") || strings.Contains(words, "missing set") || strings.Contains(words, "missing id, set") {
		code = fault.InvalidBody
	}
	return fault.New(code, "the arguments do not fit the tool's schema: %s", words)
}
