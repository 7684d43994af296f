//go:build unix

package model_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tabellion-mcp/tabellion/model"
)

// TestLoadWaitsForNoPipe refuses a pipe, whose opening would wait for a writer.
func TestLoadWaitsForNoPipe(t *testing.T) {
	dir := files(t, map[string]string{"a.json": `{"name":"A"}`})
	pipe := filepath.Join(dir, "b.json")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, pipe} {
		if got, err := model.Load(at); err == nil || !strings.Contains(err.Error(), "regular file") {
			t.Errorf("%s: %v, %v", at, got, err)
		}
	}
}
