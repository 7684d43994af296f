package maintain_test

import (
	"errors"
	"testing"
)

// wantIs fails unless err is target.
func wantIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}
