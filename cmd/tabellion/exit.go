package main

import (
	"errors"
	"fmt"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
)

// Exit codes (middle, D16). An interrupt is 130.
const (
	exitFine     = 0
	exitFindings = 1 // findings, drift, or a "no" that was asked for
	exitFailed   = 2 // could not do it, wrong usage included
	exitRefused  = 3 // refused to start, or the store cannot be read

	exitInterrupted = 130 // with words on what is left; the signal's own code is given
)

// exitError is an error with its exit code.
type exitError struct {
	code int
	err  error // nil: nothing more is to be said
}

// Error gives the words.
func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap gives the error.
func (e *exitError) Unwrap() error { return e.err }

// failed is an error of exit code 2.
func failed(format string, args ...any) error {
	return &exitError{exitFailed, fmt.Errorf(format, args...)}
}

// refused is an error of exit code 3.
func refused(err error) error { return &exitError{exitRefused, err} }

// interrupted is an error of work that a signal has broken off. Its words are said, which those of other errors are not
// after a signal.
func interrupted(format string, args ...any) error {
	return &exitError{exitInterrupted, fmt.Errorf(format, args...)}
}

// codeOf is the exit code of an error.
func codeOf(err error) int {
	var e *exitError
	var problems config.Problems
	switch {
	case err == nil:
		return exitFine
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &problems), errors.Is(err, tabellion.ErrInUse), errors.Is(err, control.ErrNobody), errors.Is(err, control.ErrSilent),
		fault.CodeOf(err) == fault.StoreUnavailable:
		return exitRefused
	}
	return exitFailed
}
