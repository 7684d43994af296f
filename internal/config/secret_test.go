package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/config"
)

// reference parses a reference that is right.
func reference(t *testing.T, text string) config.Secret {
	t.Helper()
	s, err := config.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSecretIsHidden: no way of printing shows even where the secret is (security requirements, S51).
func TestSecretIsHidden(t *testing.T) {
	s := reference(t, "file:/etc/hush/pepper")
	holder := struct{ Pepper config.Secret }{s}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s, "holder", holder)
	text, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	shown := log.String() + string(text) + s.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, holder) + fmt.Sprintf(verb, &holder)
	}
	if strings.Contains(shown, "hush") || !strings.Contains(shown, "[redacted]") {
		t.Errorf("shown: %s", shown)
	}
}

// TestReveal reads secrets, and refuses files that others may read.
func TestReveal(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	getenv := func(name string) string { return map[string]string{"PEPPER": "from env"}[name] }
	for _, tt := range []struct{ name, ref, secret, problem string }{
		{"variable", "env:PEPPER", "from env", ""},
		{"missing variable", "env:NOTHING", "", "environment variable NOTHING is not set"},
		{"file", write("good", "hush\n", 0o600), "hush", ""},
		{"read-only file", write("readonly", "hush", 0o400), "hush", ""},
		{"only one line break goes", write("breaks", "hush\n\n", 0o600), "hush\n", ""},
		{"group may read", write("group", "hush", 0o640), "", "may be read by others (mode 0640)"},
		{"others may read", write("others", "hush", 0o604), "", "may be read by others (mode 0604)"},
		{"empty file", write("empty", "\n", 0o600), "", "is empty"},
		{"large file", write("large", strings.Repeat("x", 70_000), 0o600), "", "larger than"},
		{"no file", "file:" + filepath.Join(dir, "none"), "", "no such file"},
		{"folder", "file:" + dir, "", "is not a regular file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := reference(t, tt.ref).Reveal(getenv)
			if string(got) != tt.secret || (err == nil) != (tt.problem == "") {
				t.Fatalf("got %q, %v", got, err)
			}
			if err != nil && (!strings.Contains(err.Error(), tt.problem) || strings.Contains(err.Error(), "hush")) {
				t.Errorf("got %v, want %s", err, tt.problem)
			}
		})
	}
}

// TestNoLiteralSecret refuses everything that is no reference.
func TestNoLiteralSecret(t *testing.T) {
	for _, text := range []string{"hunter2", "", "env:", "file:", "vault:x", "ENV:X", "env"} {
		if _, err := config.ParseSecret(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
