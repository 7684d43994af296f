// Package modelserver_test asks for models as clients do: the assembled server with a configuration and a real SQLite
// database, over HTTP and over stdio, in both protocol eras.
package modelserver_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
	"github.com/tabellion-mcp/tabellion/internal/source/sqlgen"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/tools"
	"github.com/tabellion-mcp/tabellion/policy"
)

// site says what a server serves.
type site struct {
	definitions string
	statements  []string // after those that make the tables; rows
	tables      []string // in place of the tables that the definitions ask for
	surface     tools.Surface
	prefix      string
	only        []string
	rules       model.Unconfigured
	readOnly    bool
	roles       []string // of the caller
}

// server is one that runs, with an API key for a caller with the roles of its site, and the same as the local caller.
type server struct {
	*tabellion.Server
	url, key string
}

// serve starts a server that ends with the test.
func serve(t *testing.T, s site) *server {
	t.Helper()
	cfg := s.config(t)
	running, err := tabellion.Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Close(context.Background()) })
	h := httptest.NewServer(running.Handler())
	t.Cleanup(h.Close)
	out := &server{Server: running, url: h.URL}
	out.key = out.newKey(t, "cleo", s.roles...)
	return out
}

// config is the configuration of a site, with its database.
func (s site) config(t *testing.T) *tabellion.Config {
	t.Helper()
	dir := t.TempDir()
	file, data := filepath.Join(dir, "schema.json"), filepath.Join(dir, "app.db")
	if err := os.WriteFile(file, []byte(s.definitions), 0o600); err != nil {
		t.Fatal(err)
	}
	s.fill(t, data)
	m := config.DefaultModels()
	m.Definitions, m.Prefix, m.Only = file, s.prefix, s.only
	m.Sources = map[string]*config.ModelSource{"default": {Read: "sqlite:" + data, Write: "sqlite:" + data}}
	if s.readOnly {
		m.Sources["default"].Write = ""
	}
	if s.surface != "" {
		m.Surface = s.surface
	}
	if s.rules != "" {
		m.Unconfigured = s.rules
	}
	cfg := tabellion.DefaultConfig()
	cfg.Data, cfg.Models, cfg.Auth.Keys = filepath.Join(dir, "data"), m, true
	cfg.Auth.Local = &config.Local{Subject: "cleo", Roles: s.roles}
	cfg.Limits.Rate = 0
	cfg.Policy = &policy.Config{
		Roles:       map[string][]string{"modeler": {"models.read", "models.write"}},
		Assignments: []policy.Assignment{{Subject: "*", Role: "modeler", On: "/models/**"}},
	}
	return cfg
}

// fill makes the database.
func (s site) fill(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tables := s.tables
	if tables == nil {
		r := model.NewRegistry(model.Options{Prefix: s.prefix})
		if err := r.Register(parse(t, s.definitions).Items()...); err != nil {
			t.Fatal(err)
		}
		tables = append(sqlgen.DDL(sqlgen.EngineSQLite, r.List()), sqlgen.IdempotencyDDL(sqlgen.EngineSQLite))
	}
	script := "BEGIN;" + strings.Join(append(tables, s.statements...), ";") + ";COMMIT"
	if _, err := db.Exec(script); err != nil {
		t.Fatalf("%v\n%s", err, script)
	}
}

// newKey makes an API key.
func (s *server) newKey(t testing.TB, user string, roles ...string) string {
	t.Helper()
	var list []canonjson.Value
	for _, r := range roles {
		list = append(list, canonjson.String(r))
	}
	out, err := s.Call(t.Context(), "me", []string{"admin"}, "operator.keys.create", canonjson.Object(
		canonjson.M("user", canonjson.String(user)), canonjson.M("name", canonjson.String("test")), canonjson.M("roles", canonjson.Array(list...))))
	if err != nil {
		t.Fatal(err)
	}
	return out.Get("secret").Str()
}

// wire carries requests to a server and brings the responses.
type wire interface {
	// send gives the JSON-RPC response to one request. members are those of params.
	send(t testing.TB, method, name, members string) canonjson.Value
}

// overHTTP is a client of one endpoint.
type overHTTP struct{ *rawmcp.Client }

// dial makes a client of an endpoint, such as /mcp.
func (s *server) dial(t testing.TB, path, key string, legacy bool) wire {
	t.Helper()
	c := rawmcp.New(s.url+path, key, legacy, 1)
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.End(context.Background()); c.Close() })
	return overHTTP{c}
}

// send posts a request.
func (w overHTTP) send(t testing.TB, method, name, members string) canonjson.Value {
	t.Helper()
	raw, err := w.Do(t.Context(), method, name, members)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(raw.Message))
}

// overLines is a stdio session.
type overLines struct {
	in     io.Writer
	out    *bufio.Scanner
	frames *rawmcp.Client // makes requests of the session's era
	id     *atomic.Int64
}

// lines begins a stdio session with the local caller.
func (s *server) lines(t testing.TB, legacy bool) wire {
	t.Helper()
	serverIn, clientOut := io.Pipe()
	clientIn, serverOut := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- s.ServeStdio(context.Background(), serverIn, serverOut)
		serverOut.Close()
	}()
	t.Cleanup(func() {
		clientOut.Close()
		go io.Copy(io.Discard, clientIn)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	w := overLines{in: clientOut, out: bufio.NewScanner(clientIn), frames: rawmcp.New("", "", legacy, 1), id: &atomic.Int64{}}
	w.out.Buffer(nil, 16<<20)
	if legacy {
		w.send(t, "initialize", "", `"protocolVersion":"`+rawmcp.LegacyVersion+`","capabilities":{},"clientInfo":{"name":"t","version":"0"}`)
		fmt.Fprintln(w.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return w
}

// send writes a request and reads lines up to its response.
func (w overLines) send(t testing.TB, method, _, members string) canonjson.Value {
	t.Helper()
	id := w.id.Add(1)
	if _, err := fmt.Fprintf(w.in, "%s\n", w.frames.Frame(id, method, members)); err != nil {
		t.Fatal(err)
	}
	for w.out.Scan() {
		v := parse(t, w.out.Text())
		if n, ok := v.Get("id").Int(); ok && n == id {
			return v
		}
	}
	t.Fatalf("the session ended: %v", w.out.Err())
	return canonjson.Value{}
}

// eachWire runs f over HTTP and stdio, in both eras.
func (s *server) eachWire(t *testing.T, f func(t *testing.T, w wire)) {
	for _, legacy := range []bool{false, true} {
		era := map[bool]string{false: "2026-07-28", true: "2025-11-25"}[legacy]
		t.Run("http "+era, func(t *testing.T) { f(t, s.dial(t, "/models/mcp", s.key, legacy)) })
		t.Run("stdio "+era, func(t *testing.T) { f(t, s.lines(t, legacy)) })
	}
}

// answer is the answer to one call of a tool.
type answer struct {
	isError    bool
	rpc        int64 // code of a JSON-RPC error
	message    string
	structured canonjson.Value
	text       canonjson.Value // the first block, parsed
	blocks     []string
	meta       canonjson.Value
}

// call calls a tool.
func call(t testing.TB, w wire, tool, arguments string) answer {
	t.Helper()
	return read(t, w.send(t, "tools/call", tool, `"name":`+quoted(tool)+`,"arguments":`+arguments))
}

// read reads the response to a call.
func read(t testing.TB, v canonjson.Value) answer {
	t.Helper()
	if e := v.Get("error"); !e.IsAbsent() {
		n, _ := e.Get("code").Int()
		return answer{isError: true, rpc: n, message: e.Get("message").Str()}
	}
	r := v.Get("result")
	a := answer{isError: r.Get("isError").Bool(), structured: r.Get("structuredContent"), meta: r.Get("_meta")}
	for _, b := range r.Get("content").Items() {
		if b.Get("type").Str() != "text" {
			t.Errorf("a block of the type %v", b.Get("type"))
		}
		a.blocks = append(a.blocks, b.Get("text").Str())
	}
	if len(a.blocks) == 0 {
		t.Fatalf("no content: %v", v)
	}
	a.text = parse(t, a.blocks[0])
	a.message = a.structured.Get("message").Str()
	return a
}

// listed are the tools that the caller is shown, in order, from as many pages as there are.
func listed(t testing.TB, w wire) (all []canonjson.Value, pages int) {
	t.Helper()
	members := ""
	for range 100 {
		r := w.send(t, "tools/list", "", members).Get("result")
		if r.Get("tools").Kind() != canonjson.KindArray {
			t.Fatalf("tools is no array: %v", r)
		}
		pages++
		all = append(all, r.Get("tools").Items()...)
		next := r.Get("nextCursor").Str()
		if next == "" {
			return all, pages
		}
		members = `"cursor":` + quoted(next)
	}
	t.Fatal("the listing does not end")
	return nil, 0
}

// names are those of tools.
func names(all []canonjson.Value) []string {
	var out []string
	for _, tool := range all {
		out = append(out, tool.Get("name").Str())
	}
	return out
}

// outputs are the compiled output schemas of the tools that the caller is shown.
func outputs(t testing.TB, w wire) map[string]*catalog.Schema {
	t.Helper()
	all, _ := listed(t, w)
	out := map[string]*catalog.Schema{}
	for _, tool := range all {
		s, err := catalog.CompileSchema(tool.Get("outputSchema").AppendJSON(nil))
		if err != nil {
			t.Fatalf("%s: %v", tool.Get("name").Str(), err)
		}
		out[tool.Get("name").Str()] = s
	}
	return out
}

// parse reads JSON text.
func parse(t testing.TB, text string) canonjson.Value {
	t.Helper()
	v, _, err := canonjson.Parse([]byte(text), canonjson.Limits{}) // flaws are for the frame: integers may be large here
	if err != nil {
		t.Fatalf("%v: %.2000s", err, text)
	}
	return v
}

// quoted is a text as JSON.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}
