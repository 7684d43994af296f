package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/testkit/process"
)

// walkBlocks are the shell blocks between the marks of the walk in README.md.
var walkBlocks = regexp.MustCompile("(?s)```sh\n(.*?)```")

// answerBlocks are the answers that the walk shows.
var answerBlocks = regexp.MustCompile("(?s)```json\n(.*?)```")

// walk is the second part of README.md as one script, and the answers that it shows, in the form in which they come.
func walk(t *testing.T) (string, []string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "<!-- walk -->")
	part, _, ok2 := strings.Cut(rest, "<!-- /walk -->")
	if !ok || !ok2 {
		t.Fatal("README.md has no walk between its marks")
	}
	var script strings.Builder
	for _, block := range walkBlocks.FindAllStringSubmatch(part, -1) {
		script.WriteString(block[1])
	}
	if strings.Count(script.String(), "tbl_...") != 1 {
		t.Fatal("the walk does not hold one place for the key")
	}
	var answers []string
	for _, block := range answerBlocks.FindAllStringSubmatch(part, -1) {
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(block[1])); err != nil {
			t.Fatalf("an answer in README.md: %v\n%s", err, block[1])
		}
		answers = append(answers, compact.String())
	}
	return script.String(), answers
}

// TestREADMEWalk runs what README.md tells a new user to do, word for word but for the key and the ports, with the
// program it builds and the example it serves.
func TestREADMEWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the program: run by make test")
	}
	dir := t.TempDir()
	for _, name := range []string{"examples/harbourline/tabellion.yaml", "examples/harbourline/models/ferries.json", "LICENSE"} {
		copyFile(t, filepath.Join("../..", name), filepath.Join(dir, name))
	}
	seed := exec.CommandContext(t.Context(), "go", "run", "../../examples/harbourline/seed", filepath.Join(dir, "examples/harbourline/data/ferries.db"))
	if out, err := seed.CombinedOutput(); err != nil {
		t.Fatalf("make the ferry database: %v\n%s", err, out)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "bin", "tabellion"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ports := strings.NewReplacer("127.0.0.1:8635", fmt.Sprintf("127.0.0.1:%d", process.FreePort(t)), "127.0.0.1:8636", fmt.Sprintf("127.0.0.1:%d", process.FreePort(t)))
	config := filepath.Join(dir, "examples/harbourline/tabellion.yaml")
	rewrite(t, config, ports)
	said := serveExample(t, dir, config)
	key := regexp.MustCompile(`tbl_[A-Za-z0-9]+`).FindString(said)
	_, first, ok := strings.Cut(said, "Or from a shell:\n")
	first, _, ok2 := strings.Cut(first, "Ctrl-C stops")
	if key == "" || !ok || !ok2 {
		t.Fatalf("the start does not say how to call it:\n%s", said)
	}
	steps, answers := walk(t)
	script := "set -eu\n" + first + "\necho\n" + strings.Replace(ports.Replace(steps), "tbl_...", key, 1)
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	shell.Dir = dir
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"definitions and database agree", `"name":"Wagtail","seats":48`, "\nthe same\n", `"id":"mission-1"`, "missions/mission-1@1", `"deleted":true`, `"revision":3`, "no damage", "persistence.commitArtifact",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the walk does not show %q", want)
		}
	}
	if asked := strings.Count(steps, "\nask "); asked != 3 || len(answers) != asked {
		t.Errorf("the walk asks %d questions and shows %d answers, want 3", asked, len(answers))
	}
	for _, want := range answers {
		if !strings.Contains("\n"+string(out), "\n"+want+"\n") {
			t.Errorf("the walk does not answer\n%s", want)
		}
	}
	if strings.Contains(string(out), `"isError":true`) || t.Failed() {
		t.Errorf("the walk went wrong:\n%s", out)
	}
}

// serveExample starts the program as `make run` does, and gives what it says once it serves.
func serveExample(t *testing.T, dir, config string) string {
	t.Helper()
	errs := filepath.Join(dir, "said")
	f, err := os.Create(errs)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	serve := exec.Command(filepath.Join(dir, "bin", "tabellion"), "serve", "--config", config)
	serve.Dir, serve.Stderr = dir, f
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		serve.Process.Signal(os.Interrupt)
		serve.Wait()
	})
	for range 400 {
		said, err := os.ReadFile(errs)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(said), "Ctrl-C stops") {
			return string(said)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the program does not serve")
	return ""
}

// copyFile copies one file and makes the folders above it.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rewrite replaces texts in a file.
func rewrite(t *testing.T, file string, with *strings.Replacer) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(with.Replace(string(text))), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
