// Package cases holds tests of faults that people met in neighbouring systems: each test names the kind of fault, what
// is tried here, and the outcome that is right here and why.
package cases
