package model

import (
	"fmt"
	"strings"
	"unicode"
)

// Class says what kind of mistake an error is about. The list is closed (section 22.2, and ours).
type Class string

// The classes.
const (
	Parse             Class = "parse"
	UnknownModel      Class = "unknownModel"
	UnknownRelation   Class = "unknownRelation"
	UnknownField      Class = "unknownField"
	MissingParam      Class = "missingParam"
	BadFilter         Class = "badFilter"
	EmptyGroup        Class = "emptyGroup"
	ForbiddenOp       Class = "forbiddenOp"
	UnsupportedOp     Class = "unsupportedOp"
	ArrayFilter       Class = "arrayFilter"
	ObjectFilter      Class = "objectFilter"
	ObjectPath        Class = "objectPath"
	ObjectSort        Class = "objectSort"
	JSONField         Class = "jsonField"
	BadSort           Class = "badSort"
	BadLimit          Class = "badLimit"
	RelationPredicate Class = "relationPredicate"
	Group             Class = "group"
	Having            Class = "having"
	Pipeline          Class = "pipeline"
	Pushdown          Class = "pushdown"
	Denied            Class = "permission"
	NoContext         Class = "noContext"
	Sandbox           Class = "t2q"
	Depth             Class = "depth"
	Limit             Class = "limit"
	MissingID         Class = "missingId"
	NoFields          Class = "noFields"
	BadUpdateOp       Class = "badUpdateOp"
	BadBody           Class = "badBody"
	BadValue          Class = "badValue"        // a value does not fit the declared type, or a required one is missing
	Constraint        Class = "constraint"      // the database refused: unique, foreign key, check
	Unrepresentable   Class = "unrepresentable" // a sum or value beyond what JSON or the type can hold
	ReadOnly          Class = "readOnly"        // a write on a view, a table without a key, or a read-only source
	Version           Class = "version"         // expectedVersion does not match
	BadSchema         Class = "badSchema"
	NameConflict      Class = "nameConflict"
	LocationConflict  Class = "locationConflict"
	BadPolicy         Class = "badPolicy"
	BadProfile        Class = "badProfile"
	Unsupported       Class = "unsupported" // specified, and not part of this version
	MissingFunction   Class = "missingFunction"
	FailedFunction    Class = "failedFunction" // the function of a computed column failed
	Idempotency       Class = "idempotency"    // a key used with other content, or no table for keys
	Busy              Class = "busy"           // too slow, or locked; nothing happened
	Unreachable       Class = "source"         // the database cannot be asked
	Unknown           Class = "unknown"        // a write whose outcome is not known
)

// stable are the prefixes that the source documents fix (section 22.1).
var stable = map[Class]string{
	Parse:           "ERR_GQL_PARSE:",
	Denied:          "ERR_PERMISSION:",
	NoContext:       "ERR_NO_CONTEXT:",
	Sandbox:         "ERR_TEXT2QUERY:",
	Limit:           "ERR_LIMIT:",
	NameConflict:    "ERR_NAME_CONFLICT:",
	MissingFunction: "ERR_FN_MISSING:",
	Busy:            "ERR_BUSY:",
	Unreachable:     "ERR_SOURCE:",
}

// Error is a refusal with its class. The message is for the caller, mostly a language model: it names the field, the
// nearest valid names that this caller may see, and what to write instead. It never holds SQL, text of a driver, or a
// name that the caller may not see.
type Error struct {
	Class   Class
	Message string // without the prefix
	// Policy marks a denial by the dynamic policy: its prefix is ERR_PERMISSION:RBAC:.
	Policy bool
	// Feature is what the sandbox refused, for its event; "" for other classes.
	Feature string

	prefix string // in place of the class's own, where the source documents fix one; "" is none
	cause  error
}

// Errorf makes an error of a class.
func Errorf(class Class, format string, args ...any) *Error {
	return &Error{Class: class, Message: fmt.Sprintf(format, args...)}
}

// Wrap adds the cause, for the operator's log only, and returns e.
func (e *Error) Wrap(cause error) *Error {
	e.cause = cause
	return e
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// Prefix is the stable start of the error's text: ERR_<CLASS>: unless the source documents fix another.
func (e *Error) Prefix() string {
	switch {
	case e.Policy:
		return "ERR_PERMISSION:RBAC:"
	case e.prefix != "":
		return e.prefix
	}
	if p := stable[e.Class]; p != "" {
		return p
	}
	var b strings.Builder
	for i, r := range string(e.Class) {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return "ERR_" + b.String() + ":"
}

// Error is the prefix and the message. Over MCP no prefix is cut (section 22.1).
func (e *Error) Error() string { return e.Prefix() + " " + e.Message }

// Is makes errors.Is(err, &Error{Class: c}) compare classes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Class == e.Class
}
