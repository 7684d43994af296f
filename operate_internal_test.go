package tabellion

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
)

// TestMaintenanceFault: what an operator is told of a failure, by its kind.
func TestMaintenanceFault(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx   context.Context
		err   error
		code  fault.Code
		words string
	}{
		"damage":    {t.Context(), fmt.Errorf("back up: %w", &maintain.DamagedError{Doing: "x", Findings: []maintain.Finding{{Kind: "blob-missing", Where: "a/b"}}}), fault.IntegrityError, "blob-missing a/b"},
		"not empty": {t.Context(), fmt.Errorf("/b: %w", maintain.ErrNotEmpty), fault.InvalidRequest, "/b: it is not empty"},
		"reopened":  {t.Context(), fmt.Errorf("check: %w", maintain.ErrReopened), fault.StoreUnavailable, "run it again"},
		"cancelled": {gone, errors.New("whatever it broke off with"), fault.Cancelled, "the backup was cancelled"},
		"a fault":   {t.Context(), fault.New(fault.Busy, "later"), fault.Busy, "later"},
		"other":     {t.Context(), errors.New("no space left"), fault.Internal, "the backup failed: no space left"},
	} {
		f := fault.As(maintenanceFault(tt.ctx, "the backup", tt.err))
		if f == nil || f.Code != tt.code || !strings.Contains(f.Message, tt.words) {
			t.Errorf("%s: %v, want %s with %q", name, f, tt.code, tt.words)
		}
	}
}

// TestBoundFindings: what does not fit an answer is counted, and nothing else is.
func TestBoundFindings(t *testing.T) {
	r := &maintain.CheckReport{Omitted: 5}
	for i := range 30 {
		r.Findings = append(r.Findings, maintain.Finding{Kind: "blob-missing", Where: fmt.Sprint(i), Message: strings.Repeat("x", findingBytes/20)})
	}
	boundFindings(r)
	if n := len(r.Findings); n < 15 || n > 19 || int64(n)+r.Omitted != 35 || r.Findings[n-1].Where != fmt.Sprint(n-1) {
		t.Errorf("%d findings and %d omitted", n, r.Omitted)
	}
	few := &maintain.CheckReport{Findings: make([]maintain.Finding, 10)}
	if boundFindings(few); len(few.Findings) != 10 || few.Omitted != 0 {
		t.Errorf("%d findings of 10, %d omitted", len(few.Findings), few.Omitted)
	}
}
