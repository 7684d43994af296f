package maintain_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/maintain"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
)

// TestPlace holds which folders a server must not open, each with its words.
func TestPlace(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string // "" for a place that may be served
	}{
		{"missing", nil, ""},
		{"empty", map[string]string{"x": ""}, ""},
		{"new, killed at once", map[string]string{"tabellion.db": "", "audit.key": "k"}, ""},
		{"store", map[string]string{"tabellion.db": strings.Repeat("s", 4096), "audit.key": "k", "blobs/ab/" + digest: "x"}, ""},
		{"empty folder of bytes", map[string]string{"blobs/incoming/part": "x"}, ""},
		{"backup", map[string]string{"backup.json": "{}", "tabellion.db": "s"}, "it is a backup"},
		{"bytes without a database", map[string]string{"blobs/ab/" + digest: "x"}, "its database is lost"},
		{"key without a database", map[string]string{"audit.key": "k"}, "its database is lost"},
		{"unfinished restore", map[string]string{"tabellion.db": "tabellion: a restore into this folder has not been finished.\nRun tabellion restore again with the same backup: it goes on.\n"}, "a restore into it was broken off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "[data]")
			for name, text := range tt.files {
				file := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			err := maintain.Place(dir)
			if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, maintain.ErrUnfit) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestLostDatabase holds that a database that is gone is not replaced by an empty one.
func TestLostDatabase(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), os.WriteFile(filepath.Join(dir, "audit.key"), []byte("k"), 0o600), maintain.Place(dir), os.Remove(sqlite.Database(dir))); err != nil {
		t.Fatal(err)
	}
	if err := maintain.Place(dir); !errors.Is(err, maintain.ErrUnfit) {
		t.Errorf("%v", err)
	}
}
