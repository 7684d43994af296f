package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// client is a stdio process with its MCP client's side.
type client struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	legacy bool

	mu      sync.Mutex
	answers map[string]json.RawMessage // whole answers by id
	arrived *sync.Cond
	stderr  strings.Builder
	done    chan struct{}
}

// startStdio starts a stdio process on dir.
func startStdio(t *testing.T, dir string, legacy bool, flags ...string) *client {
	t.Helper()
	args := append([]string{"stdio", "--persistence", dir, "--set", "limits.rate=0"}, flags...)
	c := &client{t: t, cmd: exec.Command("tabellion", args...), legacy: legacy, answers: map[string]json.RawMessage{}, done: make(chan struct{})}
	c.arrived = sync.NewCond(&c.mu)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go c.read(out)
	go c.readErrors(errs)
	t.Cleanup(func() { c.cmd.Process.Kill() })
	if legacy {
		c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		c.answer("init")
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return c
}

// read collects answers. Every line must be an answer or a notification.
func (c *client) read(out io.Reader) {
	defer close(c.done)
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			c.t.Errorf("stdout holds %q", line)
			continue
		}
		if m.Method != "" {
			continue
		}
		c.mu.Lock()
		id := strings.Trim(string(m.ID), `"`)
		if _, twice := c.answers[id]; twice {
			c.t.Errorf("two answers to %s", id)
		}
		c.answers[id] = line
		c.arrived.Broadcast()
		c.mu.Unlock()
	}
}

// readErrors collects stderr.
func (c *client) readErrors(r io.Reader) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		c.mu.Lock()
		c.stderr.WriteString(s.Text() + "\n")
		c.arrived.Broadcast()
		c.mu.Unlock()
	}
}

// send sends one line.
func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Errorf("send: %v", err)
	}
}

// await waits until ok, which is called with mu held.
func (c *client) await(what string, ok func() bool) {
	c.t.Helper()
	timer := time.AfterFunc(30*time.Second, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.t.Errorf("%s does not come; stderr:\n%s", what, c.stderr.String())
		c.cmd.Process.Kill()
		c.stderr.WriteString("gave up")
		c.arrived.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !ok() && !strings.HasSuffix(c.stderr.String(), "gave up") {
		c.arrived.Wait()
	}
}

// answer waits for the answer to id.
func (c *client) answer(id string) json.RawMessage {
	c.t.Helper()
	c.await("the answer to "+id, func() bool { return c.answers[id] != nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers[id]
}

// says waits until stderr holds the words.
func (c *client) says(words string) {
	c.t.Helper()
	c.await(strconv.Quote(words)+" on stderr", func() bool { return strings.Contains(c.stderr.String(), words) })
}

// call sends a tool call without waiting.
func (c *client) call(id, tool, arguments string) {
	c.t.Helper()
	meta := ""
	if !c.legacy {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, id, tool, arguments, meta))
}

// put sends a put of a new document without waiting.
func (c *client) put(id, document string) {
	c.t.Helper()
	c.call(id, "persistence.put", fmt.Sprintf(`{"namespace":"n","id":%q,"kind":"k","schemaVersion":"1","expectedRevision":0,"idempotencyKey":%q,"payload":{"from":%q},"references":[]}`, document, document, document))
}

// outcome is the structured part of an answer: "revision 1", or a code.
func (c *client) outcome(id string) string {
	c.t.Helper()
	var m struct {
		Result struct {
			StructuredContent struct {
				Revision int
				Error    struct{ Code string }
			}
		}
		Error *struct {
			Code int
			Data json.RawMessage
		}
	}
	text := c.answer(id)
	if err := json.Unmarshal(text, &m); err != nil {
		c.t.Errorf("answer to %s: %v in %q", id, err, text)
	}
	s := m.Result.StructuredContent
	switch {
	case m.Error != nil:
		return fmt.Sprintf("error %d", m.Error.Code)
	case s.Error.Code != "":
		return s.Error.Code
	}
	return fmt.Sprintf("revision %d", s.Revision)
}

// end closes standard input and wants a good end.
func (c *client) end() {
	c.t.Helper()
	c.in.Close()
	<-c.done
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("end: %v\n%s", err, c.stderr.String())
	}
}

// ids lists the documents of namespace n, by a fresh process.
func ids(t *testing.T, dir string) []string {
	t.Helper()
	c := startStdio(t, dir, false)
	defer c.end()
	c.call("l", "persistence.list", `{"namespace":"n","limit":200}`)
	var out []string
	for _, m := range regexp.MustCompile(`\\"id\\":\\"([^"\\]+)\\"`).FindAllSubmatch(c.answer("l"), -1) {
		out = append(out, string(m[1]))
	}
	return out
}

// TestTwoStdio: two editor windows on one folder just work (middle, D8). 40 interleaved puts each lose nothing.
func TestTwoStdio(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := startStdio(t, dir, false)
	first.put("warm", "warm")
	first.outcome("warm")
	second := startStdio(t, dir, true)
	second.says("holds the data folder and serves this session too")
	var wg sync.WaitGroup
	for name, c := range map[string]*client{"a": first, "b": second} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 40 {
				c.put(fmt.Sprint(i), fmt.Sprintf("%s-%02d", name, i))
			}
		}()
	}
	wg.Wait()
	for i := range 40 {
		for name, c := range map[string]*client{"a": first, "b": second} {
			if got := c.outcome(fmt.Sprint(i)); got != "revision 1" {
				t.Errorf("put %d of %s: %s", i, name, got)
			}
		}
	}
	second.end()
	first.end()
	if got := ids(t, dir); len(got) != 81 {
		t.Errorf("%d documents, want 81: %v", len(got), got)
	}
}

// TestOwnerEnds: the second process goes on when the first ends, in each way to end, in both eras. A request that was
// not answered is refused with store_unavailable, and the same key settles it.
func TestOwnerEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*client)
	}{
		{"its client goes", func(c *client) { c.in.Close() }},
		{"a signal", func(c *client) { c.cmd.Process.Signal(syscall.SIGTERM) }},
		{"a kill", func(c *client) { c.cmd.Process.Kill() }},
	} {
		for _, legacy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, legacy %v", tt.name, legacy), func(t *testing.T) {
				ownerEnds(t, tt.end, legacy)
			})
		}
	}
}

// ownerEnds ends the owner in the middle of 40 puts of the second process.
func ownerEnds(t *testing.T, end func(*client), legacy bool) {
	dir := filepath.Join(t.TempDir(), "data")
	owner := startStdio(t, dir, false)
	owner.put("warm", "warm")
	owner.outcome("warm")
	c := startStdio(t, dir, legacy)
	c.put("0", "doc-00")
	if got := c.outcome("0"); got != "revision 1" {
		t.Fatalf("before the end: %s", got)
	}
	for i := 1; i < 20; i++ {
		c.put(fmt.Sprint(i), fmt.Sprintf("doc-%02d", i))
	}
	end(owner)
	for i := 20; i < 40; i++ {
		c.put(fmt.Sprint(i), fmt.Sprintf("doc-%02d", i))
	}
	open := 0
	for i := 1; i < 40; i++ {
		switch got := c.outcome(fmt.Sprint(i)); got {
		case "revision 1":
		case "store_unavailable":
			open++
			c.put(fmt.Sprintf("again-%d", i), fmt.Sprintf("doc-%02d", i))
			if got := c.outcome(fmt.Sprintf("again-%d", i)); got != "revision 1" {
				t.Errorf("retry of put %d with the same key: %s", i, got)
			}
		default:
			t.Errorf("put %d: %s", i, got)
		}
	}
	t.Logf("%d of 39 requests were open when the owner ended", open)
	c.says("this one holds it now")
	c.end()
	if got := ids(t, dir); len(got) != 41 {
		t.Errorf("%d documents, want 41: %v", len(got), got)
	}
}

// TestThreeStdio: when the owner is killed one of the others takes over and the last one joins it.
func TestThreeStdio(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	owner := startStdio(t, dir, false)
	owner.put("1", "a")
	owner.outcome("1")
	others := []*client{startStdio(t, dir, false), startStdio(t, dir, true)}
	for i, c := range others {
		c.put("1", fmt.Sprint("b", i))
		if got := c.outcome("1"); got != "revision 1" {
			t.Errorf("client %d before: %s", i, got)
		}
	}
	owner.cmd.Process.Kill()
	for i, c := range others {
		c.put("2", fmt.Sprint("c", i))
		got := c.outcome("2")
		if got == "store_unavailable" {
			c.put("3", fmt.Sprint("c", i))
			got = c.outcome("3")
		}
		if got != "revision 1" {
			t.Errorf("client %d after: %s", i, got)
		}
	}
	others[0].end()
	others[1].put("4", "d")
	if got := others[1].outcome("4"); got != "revision 1" && got != "store_unavailable" {
		t.Errorf("the last client: %s", got)
	}
	others[1].end()
}

// TestStdioBesideServe: a stdio client joins a server, and goes on alone when it ends.
func TestStdioBesideServe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	ops := freeAddress()
	server := exec.Command("tabellion", "serve", "--persistence", dir, "--listen", "127.0.0.1:0", "--ops", ops)
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	waitReady(t, "http://"+ops+"/readyz")
	c := startStdio(t, dir, true)
	c.put("1", "a")
	if got := c.outcome("1"); got != "revision 1" {
		t.Errorf("beside the server: %s", got)
	}
	server.Process.Signal(syscall.SIGTERM)
	if err := server.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	c.put("2", "b")
	if got := c.outcome("2"); got != "revision 1" {
		t.Errorf("after the server: %s", got)
	}
	c.end()
}

// waitReady waits for a page.
func waitReady(t *testing.T, url string) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < 30*time.Second {
		if res, err := http.Get(url); err == nil {
			res.Body.Close()
			return time.Since(began)
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%s does not answer", url)
	return 0
}

// TestLongSocketPath: a data folder whose socket's path is too long for the kernel is shared all the same.
func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 20), strings.Repeat("path-", 20), "data")
	first := startStdio(t, dir, false)
	first.put("1", "a")
	first.outcome("1")
	second := startStdio(t, dir, false)
	second.put("1", "b")
	if got := second.outcome("1"); got != "revision 1" {
		t.Errorf("the second process: %s", got)
	}
	note, err := os.ReadFile(filepath.Join(dir, "control.path"))
	if err != nil {
		t.Error(err)
	}
	second.end()
	first.end()
	for _, left := range []string{filepath.Dir(strings.TrimSpace(string(note))), filepath.Join(dir, "control.path")} {
		if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left after a clean end: %v", left, err)
		}
	}
}

// TestFootprint prints what a server costs: from start to the first answer, and at rest. It asserts little: other work
// on the machine counts too.
func TestFootprint(t *testing.T) {
	ops := freeAddress()
	began := time.Now()
	server := exec.Command("tabellion", "serve", "--persistence", filepath.Join(t.TempDir(), "data"), "--dev", "--listen", "127.0.0.1:0", "--ops", ops)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	waitReady(t, "http://"+ops+"/readyz")
	first := time.Since(began)
	time.Sleep(500 * time.Millisecond) // at rest: what the start needed is given back
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.Process.Pid))
	if err != nil {
		t.Skip("no /proc on this system")
	}
	t.Logf("start to first answer %s, at rest %s", first.Round(time.Millisecond), regexp.MustCompile(`VmRSS:\s*(.*)`).FindSubmatch(status)[1])
	if first > 20*time.Second {
		t.Errorf("the start took %s", first)
	}
}

// TestRelayedNonsense: lines that are no messages are refused in a joined session too, and it goes on.
func TestRelayedNonsense(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	owner := startStdio(t, dir, false)
	owner.put("1", "a")
	owner.outcome("1")
	for _, legacy := range []bool{false, true} {
		c := startStdio(t, dir, legacy)
		c.says("serves this session too")
		for i, line := range []string{`{}`, `{"id":null}`, `{"id":{}}`, `{"method":7}`} {
			c.send(line)
			c.answer("null")
			if got := c.outcome("null"); got != "error -32600" {
				t.Errorf("%s: %s, want -32600", line, got)
			}
			c.mu.Lock()
			delete(c.answers, "null")
			c.mu.Unlock()
			document := fmt.Sprintf("doc-%v-%d", legacy, i)
			c.put(document, document)
			if got := c.outcome(document); got != "revision 1" {
				t.Errorf("after %s: %s", line, got)
			}
		}
		c.end()
	}
	owner.end()
}

// TestNamesOfTheOwner: a joined session has the owner's tool_names, is told so, and keeps them when it takes over.
func TestNamesOfTheOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	owner := startStdio(t, dir, false)
	owner.put("1", "a")
	owner.outcome("1")
	c := startStdio(t, dir, false, "--set", "tool_names=portable")
	c.says("its tool_names hold for this session: contract, not portable")
	names := func(id string) bool {
		c.send(`{"jsonrpc":"2.0","id":"` + id + `","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)
		return strings.Contains(string(c.answer(id)), `"name":"persistence.put"`)
	}
	if !names("before") {
		t.Error("the owner's names do not hold")
	}
	owner.end()
	c.says("this one holds it now")
	if !names("after") {
		t.Error("the names changed in the middle of the session")
	}
	c.end()
}

// TestHeldByStdio: a server that meets a folder which a stdio session holds says what to do.
func TestHeldByStdio(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	holder := startStdio(t, dir, false)
	holder.put("1", "a")
	holder.outcome("1")
	out, err := exec.Command("tabellion", "serve", "--persistence", dir, "--listen", "127.0.0.1:0", "--ops", "none").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("serve ended with %v, want 3", err)
	}
	want := fmt.Sprintf("(pid %d): a stdio session or a command holds it. End that one; or start the server first, and stdio sessions join it", holder.cmd.Process.Pid)
	if !strings.Contains(string(out), want) {
		t.Errorf("got %s\nwant %s", out, want)
	}
	holder.end()
}
