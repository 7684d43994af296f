package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience bounds the start of a server, and its end after a signal.
const patience = 20 * time.Second

// server is one tabellion server and its folder: configuration and data.
type server struct {
	program, dir string
	setup        setup
	tokens       map[string]string

	url, transfer string
	cmd           *exec.Cmd
	done          chan error
}

// begin starts the server and makes a key for every caller.
func (s *server) begin(want setup, callers []string) error {
	s.setup, s.tokens = want, map[string]string{}
	if err := s.start(); err != nil {
		return err
	}
	if want.Mode == "open" {
		return nil
	}
	for _, name := range callers {
		out, err := exec.Command(s.program, "keys", "create", "--config", s.file(), "--user", name, "--name", "conformance", "--json").Output()
		if err != nil {
			return fmt.Errorf("make a key for %s: %w", name, err)
		}
		var made struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal(out, &made); err != nil {
			return fmt.Errorf("make a key for %s: %w", name, err)
		}
		s.tokens[name] = made.Key
	}
	return nil
}

// setGrants starts the server again with another policy: a policy is read at the start. Keys and data stay.
func (s *server) setGrants(grants []grant) error {
	if err := s.stop(); err != nil {
		return err
	}
	s.setup.Grants = grants
	return s.start()
}

// file is the path of the configuration.
func (s *server) file() string { return filepath.Join(s.dir, "tabellion.yaml") }

// start writes the configuration and starts the server on free ports. The server prints its addresses when it listens.
func (s *server) start() error {
	text, err := s.configuration()
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.file(), text, 0o600); err != nil {
		return err
	}
	args := []string{"serve", "--config", s.file()}
	if s.setup.Mode == "open" {
		args = append(args, "--dev")
	}
	cmd := exec.Command(s.program, args...)
	said, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.done = cmd, make(chan error, 1)
	ready := make(chan bool, 1)
	go func(done chan<- error) {
		s.listen(said, ready)
		done <- cmd.Wait()
	}(s.done)
	select {
	case <-ready:
		return nil
	case err := <-s.done:
		s.cmd = nil
		return fmt.Errorf("the server did not start (%v); standard error says why", err)
	case <-time.After(patience):
		return fmt.Errorf("the server is not ready after %v", patience)
	}
}

// listen passes on what the server says until it ends, and picks its addresses out of its words of welcome: one line
// "MCP <URL>/mcp" and after it "files PUT <URL>/uploads/...".
func (s *server) listen(said io.Reader, ready chan<- bool) {
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fmt.Fprintln(os.Stderr, lines.Text())
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 2 && words[0] == "MCP":
			s.url = words[1]
		case len(words) > 2 && words[0] == "files":
			s.transfer, _, _ = strings.Cut(words[2], "/uploads/")
			select {
			case ready <- true:
			default:
			}
		}
	}
}

// stop ends the server as an operator would, or by force when that takes too long.
func (s *server) stop() error {
	if s.cmd == nil {
		return nil
	}
	cmd := s.cmd
	s.cmd = nil
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-time.After(patience):
		cmd.Process.Kill()
		return fmt.Errorf("the server did not stop within %v", patience)
	}
}

// configuration is the text of the configuration file: JSON, which YAML includes.
func (s *server) configuration() ([]byte, error) {
	limits := map[string]any{"open_uploads": 0}
	for name, value := range s.setup.Limits {
		key, ok := limitKeys[name]
		if !ok {
			return nil, fmt.Errorf("unknown limit %q", name)
		}
		limits[key] = value
		if name == "idempotencyRetentionSeconds" {
			limits[key] = fmt.Sprintf("%ds", value)
		}
	}
	persistence := map[string]any{"limits": limits}
	if n := s.setup.RetentionSeconds; n != nil {
		persistence["retention"] = fmt.Sprintf("%ds", *n)
	}
	config := map[string]any{
		"name": "conformance", "data": filepath.Join(s.dir, "data"), "listen": "127.0.0.1:0", "ops": "none",
		"transfer": map[string]any{"listen": "127.0.0.1:0"}, "limits": map[string]any{"rate": 0}, "persistence": persistence,
	}
	if s.setup.Mode != "open" {
		config["auth"] = map[string]any{"keys": true}
		config["policy"] = policyOf(s.setup.Grants)
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(config)
	return text.Bytes(), err
}

// limitKeys are the configuration's names of the contract's limits.
var limitKeys = map[string]string{
	"maxDocumentBytes":            "document_bytes",
	"maxArtifactBytes":            "artifact_bytes",
	"maxReferences":               "references",
	"maxPageSize":                 "page_size",
	"maxNamespaceBytes":           "namespace_bytes",
	"idempotencyRetentionSeconds": "idempotency_retention",
}

// policyOf is the policy that grants mean: each grant a role of its own, and each exception a deny of everything.
func policyOf(grants []grant) map[string]any {
	roles, assignments, denies := map[string]any{}, []any{}, []any{}
	for i, g := range grants {
		role, subject := fmt.Sprintf("grant-%d", i), "user:"+g.As
		roles[role] = g.Capabilities
		assignments = append(assignments, map[string]any{"subject": subject, "role": role, "on": g.Resource})
		for _, path := range g.Except {
			denies = append(denies, map[string]any{"subject": subject, "on": path})
		}
	}
	return map[string]any{"roles": roles, "assignments": assignments, "denies": denies}
}
