package tools_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/config"
)

// configured is a section models over one empty table.
func configured(t *testing.T) *config.Models {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "schema.json")
	if err := os.WriteFile(file, []byte(`[{"name":"Note","fields":{"text":"string"}}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "app.db")
	if err := os.WriteFile(data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := config.DefaultModels()
	m.Definitions, m.Sources = file, map[string]*config.ModelSource{"default": {Read: "sqlite:" + data}}
	return m
}
