package model_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/model"
)

// files writes a folder of files, by path.
func files(t *testing.T, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range contents {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLoad reads one definition, an array and a folder.
func TestLoad(t *testing.T) {
	dir := files(t, map[string]string{
		"one.json":            `{"name":"One"}`,
		"many.json":           `[{"name":"Two"},{"name":"Three"}]`,
		"tree/b.json":         `{"name":"B"}`,
		"tree/a/z.json":       `[{"name":"Z"}]`,
		"tree/a/deep/y.json":  `{"name":"Y"}`,
		"tree/_draft.json":    `not JSON`,
		"tree/_old/x.json":    `not JSON`,
		"tree/.hidden/x.json": `not JSON`,
		"tree/notes.txt":      `not JSON`,
	})
	for at, want := range map[string]string{"one.json": "One", "many.json": "Two Three", "tree": "Y Z B"} {
		for range 3 {
			definitions, err := model.Load(filepath.Join(dir, at))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, d := range definitions {
				names = append(names, d.Get("name").Str())
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%s: %s, want %s", at, got, want)
			}
		}
	}
}

// TestLoadRefuses names the file and the place.
func TestLoadRefuses(t *testing.T) {
	dir := files(t, map[string]string{
		"bad/a/b.json":           "{\n  \"name\": \"A\",\n  \"fields\": }\n",
		"twice/a.json":           "{\n  \"name\": \"A\",\n  \"é\": 1, \"name\": \"B\"}",
		"big/a.json":             strings.Repeat(" ", 4<<20) + "{}",
		"scalar/a.json":          `"A"`,
		"empty/a.txt":            ``,
		"none.json":              `[]`,
		"exact/a.json":           `{"name":"A","x":9007199254740993}`,
		"conf/store.config.json": `{"sources":{}}`,
	})
	for at, words := range map[string][]string{
		"bad":       {"b.json", "line 3, column 13"},
		"twice":     {"a.json", "line 3, column 11", "twice"},
		"big":       {"a.json", "4194304"},
		"scalar":    {"a.json", "string"},
		"empty":     {"no model definition"},
		"none.json": {"no model definition"},
		"exact":     {"a.json", "line 1", "string"},
		"conf":      {"store.config.json", "models.sources"},
		"nowhere":   {"nowhere"},
	} {
		_, err := model.Load(filepath.Join(dir, at))
		if err == nil {
			t.Errorf("%s: taken", at)
			continue
		}
		if !strings.HasPrefix(err.Error(), "ERR:LOAD ") {
			t.Errorf("%s: %v", at, err)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: the message lacks %q: %v", at, w, err)
			}
		}
	}
}

// TestLoadStaysInside reads no file outside the folder.
func TestLoadStaysInside(t *testing.T) {
	outside := files(t, map[string]string{"secret.json": `{"name":"Secret"}`})
	for name, place := range map[string]func(at string) error{
		"absolute link": func(at string) error { return os.Symlink(filepath.Join(outside, "secret.json"), at) },
		"relative link": func(at string) error {
			to, err := filepath.Rel(filepath.Dir(at), filepath.Join(outside, "secret.json"))
			if err != nil {
				return err
			}
			return os.Symlink(to, at)
		},
		"folder": func(at string) error { return os.Symlink(outside, at) },
	} {
		dir := files(t, map[string]string{"a.json": `{"name":"A"}`})
		if err := place(filepath.Join(dir, "b.json")); err != nil {
			t.Fatal(err)
		}
		if got, err := model.Load(dir); err == nil || !strings.Contains(err.Error(), "b.json") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	// A link inside the folder is as good as a file, and so is a file that was named itself.
	dir := files(t, map[string]string{"_real.json": `{"name":"A"}`})
	if err := os.Symlink("_real.json", filepath.Join(dir, "a.json")); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir, filepath.Join(dir, "a.json")} {
		if got, err := model.Load(at); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", at, got, err)
		}
	}
}

// TestLoadManyFiles bounds their number.
func TestLoadManyFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range 10_001 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := model.Load(dir); err == nil || !strings.Contains(err.Error(), "10000 files") {
		t.Error(err)
	}
}
