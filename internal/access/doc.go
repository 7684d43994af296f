// Package access holds the access matrix: expected verdicts written by hand in testdata/access, expanded to every
// principal, operation, target and surface, and asked of the gate in process and of a whole server over HTTP in both
// protocol eras. Planted policy faults must each turn a cell red.
package access
