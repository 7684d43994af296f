package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// origin is where a value came from: a place in the file, a variable, or a flag.
type origin struct {
	where        string // file name, "environment variable X" or "flag --x"
	line, column int    // 0 when it is no file
}

// String gives "tabellion.yaml:3:5" or the name alone.
func (o origin) String() string {
	if o.line == 0 {
		return o.where
	}
	return fmt.Sprintf("%s:%d:%d", o.where, o.line, o.column)
}

// Problem is one thing that is wrong.
type Problem struct {
	at      origin
	Key     string // full path of the key, "" when the text as a whole is meant
	Message string
}

// Error gives the place, the key and the words.
func (p Problem) Error() string {
	parts := []string{p.at.String(), p.Key, p.Message}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// Problems is the error of Load and Check: everything that is wrong, in the order of the file.
type Problems []Problem

// Error gives one line a problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// sorted puts ps in order of their places; nil when there is none.
func (ps Problems) sorted() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.at.line, b.at.line), cmp.Compare(a.at.column, b.at.column))
	})
	return ps
}
