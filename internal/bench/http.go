package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
	"github.com/tabellion-mcp/tabellion/internal/testkit/process"
)

// served is the program under measurement.
type served struct {
	*process.Server
	addr, key string
	started   time.Duration // from start to the first answer
}

// serve starts the program on a folder of o.dir, with limits that do not count, and makes a key. What the folder data in
// it holds is served. more are further sections of its configuration.
func serve(ctx context.Context, o *options, name string, more ...string) (*served, error) {
	dir := filepath.Join(o.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	addr, ops := freeAddr(), freeAddr()
	config := filepath.Join(dir, "tabellion.yaml")
	text := fmt.Sprintf("name: bench\ndata: %s\nlisten: %s\nops: %s\nauth:\n  keys: true\n  local: {subject: bench, roles: [admin]}\nlimits: {rate: 0, concurrency: 4096, total_concurrency: 8192}\n",
		filepath.Join(dir, "data"), addr, ops) + strings.Join(more, "")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, o.binary, "keys", "create", "--config", config, "--user", "bench", "--name", "bench", "--roles", "admin", "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("keys create: %w", err)
	}
	var made struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(out, &made); err != nil {
		return nil, err
	}
	began := time.Now()
	server, err := process.Start(process.Spec{Binary: o.binary, Args: []string{"serve", "--config", config}})
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := server.WaitReady(ready, "http://"+ops+"/readyz"); err != nil {
		return nil, err
	}
	return &served{server, addr, made.Key, time.Since(began)}, nil
}

// freeAddr is a loopback address that was free a moment ago.
func freeAddr() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// measureHTTP measures the served program in both eras, and what it costs to have it.
func measureHTTP(ctx context.Context, o *options) ([]Line, error) {
	s, err := serve(ctx, o, "http")
	if err != nil {
		return nil, err
	}
	defer s.Stop(15 * time.Second)
	lines := []Line{s.footprint(o)}
	for _, legacy := range []bool{false, true} {
		for _, n := range o.clients {
			more, err := s.measure(ctx, o, legacy, n)
			if err != nil {
				return nil, err
			}
			lines = append(lines, more...)
		}
	}
	lines = append(lines, Line{Time: time.Now().UTC().Format(time.RFC3339), Table: "http", What: "memory after load", Note: fmt.Sprintf("%d MB resident", residentKB(s.PID())/1024)})
	return lines, nil
}

// footprint is start, idle memory and size of the program.
func (s *served) footprint(o *options) Line {
	time.Sleep(time.Second)
	size := int64(0)
	if info, err := os.Stat(o.binary); err == nil {
		size = info.Size()
	}
	return Line{
		Time: time.Now().UTC().Format(time.RFC3339), Table: "http", What: "start, idle",
		Note: fmt.Sprintf("start to first answer %d ms (polled each 2 ms), idle %d MB resident, binary %.1f MB", s.started.Milliseconds(), residentKB(s.PID())/1024, float64(size)/1e6),
	}
}

// residentKB is the resident set of a process.
func residentKB(pid int) int { return statusKB(pid, "VmRSS:") }

// statusKB is a line of /proc/<pid>/status that counts kilobytes.
func statusKB(pid int, name string) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}

// measure runs put, get and list in one era at n clients.
func (s *served) measure(ctx context.Context, o *options, legacy bool, n int) ([]Line, error) {
	era := "stateless"
	if legacy {
		era = "legacy"
	}
	session := ""
	if legacy {
		var err error
		if session, err = s.open(ctx); err != nil {
			return nil, err
		}
	}
	conns := make([]*rawConn, n)
	for i := range conns {
		c, err := dial(s.addr)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		c.n = i * 10_000_000
		conns[i] = c
	}
	run := func(what string, seconds float64, tool string, args func(worker, i int) []byte) (Line, error) {
		return timed(Line{Table: "http", What: what, Era: era}, n, seconds, func(worker, i int) error {
			return conns[worker].call(s, legacy, session, tool, args(worker, i))
		})
	}
	id := fmt.Sprintf("h%s%d", era[:1], n)
	put, err := run("put 1 KiB", o.seconds, "persistence.put", func(worker, i int) []byte { return putArgs(id, worker, i) })
	if err != nil {
		return nil, err
	}
	get, err := run("get 1 KiB", o.seconds/2, "persistence.get", func(_, i int) []byte {
		return fmt.Appendf(nil, `{"namespace":"bench","id":"%s-0-%d"}`, id, i%50)
	})
	if err != nil {
		return nil, err
	}
	list, err := run("list of 50", o.seconds/2, "persistence.list", func(int, int) []byte { return []byte(`{"namespace":"bench"}`) })
	return []Line{put, get, list}, err
}

// open starts a session of the older era and gives its id.
func (s *served) open(ctx context.Context) (string, error) {
	c := rawmcp.New("http://"+s.addr+"/mcp", s.key, true, 1)
	defer c.Close()
	if err := c.Open(ctx); err != nil {
		return "", err
	}
	return c.Session(), nil
}

// rawConn is one kept connection that writes requests as bytes: the generator must not be the bottleneck.
type rawConn struct {
	net.Conn
	r *bufio.Reader
	n int // id of the last request; connections of one session must not share ids
}

// dial connects.
func dial(addr string) (*rawConn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &rawConn{Conn: c, r: bufio.NewReaderSize(c, 64<<10)}, nil
}

// call sends one tools/call and checks that it succeeded.
func (c *rawConn) call(s *served, legacy bool, session, tool string, args []byte) error {
	c.n++
	meta, headers := ","+rawmcp.Meta, "MCP-Protocol-Version: "+rawmcp.StatelessVersion+"\r\nMcp-Method: tools/call\r\nMcp-Name: "+tool+"\r\n"
	if legacy {
		meta, headers = "", "MCP-Protocol-Version: "+rawmcp.LegacyVersion+"\r\nMcp-Session-Id: "+session+"\r\n"
	}
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, c.n, tool, args, meta)
	req := fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n",
		s.addr, s.key, headers, len(body))
	if _, err := c.Write(append(req, body...)); err != nil {
		return err
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"structuredContent"`)) || bytes.Contains(text, []byte(`"isError":true`)) {
		return fmt.Errorf("status %d: %.300s", res.StatusCode, text)
	}
	return nil
}
