package main

import (
	"strings"
	"testing"
)

// TestCaught: a panic of a command is no success, and kong's own end of parsing is none of a panic.
func TestCaught(t *testing.T) {
	for _, tt := range []struct {
		name  string
		panic any
		code  int
		words string
	}{
		{"a fault of this program", "index out of range", exitFailed, "internal error: index out of range"},
		{"the end of a help text", parsed{0}, exitFine, ""},
		{"wrong usage", parsed{1}, exitFailed, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := func() (err error) {
				defer func() { err = caught(recover(), err) }()
				panic(tt.panic)
			}()
			if got := codeOf(err); got != tt.code {
				t.Errorf("exit code %d, want %d", got, tt.code)
			}
			if err != nil && !strings.Contains(err.Error(), tt.words) {
				t.Errorf("got %v", err)
			}
		})
	}
}
