package tabellion_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/policy"
)

// configured is a configuration on a fresh folder with keys, and with listeners on free ports.
func configured(t *testing.T) *tabellion.Config {
	t.Helper()
	c := tabellion.DefaultConfig()
	c.Data = filepath.Join(t.TempDir(), "data")
	c.Auth.Keys, c.Auth.Local = true, &config.Local{Subject: "me", Roles: []string{"admin"}}
	c.Listen, c.Ops = "127.0.0.1:0", "127.0.0.1:0"
	return c
}

// open opens a server that is closed with the test.
func open(t *testing.T, c *tabellion.Config) *tabellion.Server {
	t.Helper()
	s, err := tabellion.Open(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// key makes an API key.
func key(t *testing.T, s *tabellion.Server, user string, roles ...canonjson.Value) string {
	t.Helper()
	out, err := s.Call(t.Context(), "me", []string{"admin"}, "operator.keys.create", canonjson.Object(
		canonjson.M("user", canonjson.String(user)), canonjson.M("name", canonjson.String("test")), canonjson.M("roles", canonjson.Array(roles...))))
	if err != nil {
		t.Fatal(err)
	}
	return out.Get("secret").Str()
}

// call calls a tool over HTTP and gives status and body.
func call(t *testing.T, h http.Handler, key, tool, arguments string) (int, string) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `,"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	r := httptest.NewRequest("POST", "http://127.0.0.1/mcp", strings.NewReader(body))
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		r.Header.Set(name, value)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

const put = `{"namespace":"a","id":"x","kind":"k","schemaVersion":"1","expectedRevision":0,"idempotencyKey":"1","payload":{"body":"Mars"},"references":[]}`

// TestRightsWithoutPolicy: the role admin is all there is (middle, D6). A key without it has no right.
func TestRightsWithoutPolicy(t *testing.T) {
	s := open(t, configured(t))
	h := s.Handler()
	if code, body := call(t, h, key(t, s, "eve"), "persistence.put", put); code != 200 || !strings.Contains(body, "policy_denied") {
		t.Errorf("a key without roles: %d %s", code, body)
	}
	if code, body := call(t, h, key(t, s, "ana", canonjson.String("admin")), "persistence.put", put); code != 200 || !strings.Contains(body, `"revision":1`) {
		t.Errorf("a key with the role admin: %d %s", code, body)
	}
	if code, _ := call(t, h, "", "persistence.capabilities", `{}`); code != 401 {
		t.Errorf("no key: %d", code)
	}
	_, err := s.Call(t.Context(), "eve", nil, "operator.keys.list", canonjson.Object())
	if fault.CodeOf(err) != fault.PolicyDenied {
		t.Errorf("a local principal without roles: %v", err)
	}
}

// TestOperatorIsUnpublished: no client reaches an operation of the operator, whatever its rights, and it is not told that
// there is one.
func TestOperatorIsUnpublished(t *testing.T) {
	s := open(t, configured(t))
	admin := key(t, s, "ana", canonjson.String("admin"))
	_, known := call(t, s.Handler(), admin, "operator.keys.list", `{}`)
	_, unknown := call(t, s.Handler(), admin, "operator.keys.nope", `{}`)
	if !strings.Contains(known, "unknown tool") || strings.ReplaceAll(known, "list", "nope") != unknown {
		t.Errorf("got %s\nand %s", known, unknown)
	}
}

// TestDevAllows: --dev allows everything without a key.
func TestDevAllows(t *testing.T) {
	c := configured(t)
	c.Dev = true
	if code, body := call(t, open(t, c).Handler(), "", "persistence.put", put); code != 200 || !strings.Contains(body, `"revision":1`) {
		t.Errorf("%d %s", code, body)
	}
}

// TestPortableNames: the same tools under names without dots.
func TestPortableNames(t *testing.T) {
	c := configured(t)
	c.ToolNames = "portable"
	s := open(t, c)
	if code, body := call(t, s.Handler(), key(t, s, "ana", canonjson.String("admin")), "persistence_put", put); code != 200 || !strings.Contains(body, `"revision":1`) {
		t.Errorf("%d %s", code, body)
	}
}

// TestStdio serves a client in this process, and refuses without a principal.
func TestStdio(t *testing.T) {
	c := configured(t)
	s := open(t, c)
	in := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"persistence.put","arguments":` + put + `}}` + "\n"
	var out strings.Builder
	if err := s.ServeStdio(t.Context(), strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"revision":1`) {
		t.Errorf("got %s", out.String())
	}
	c.Auth.Local = nil
	if err := s.ServeStdio(t.Context(), strings.NewReader(in), io.Discard); err == nil {
		t.Error("without auth.local it was served")
	}
}

// TestOneOwner: a folder has one server at a time; after Close the next one opens it and reads what was written.
func TestOneOwner(t *testing.T) {
	c := configured(t)
	s := open(t, c)
	if code, _ := call(t, s.Handler(), key(t, s, "ana", canonjson.String("admin")), "persistence.put", put); code != 200 {
		t.Fatal(code)
	}
	if _, err := tabellion.Open(t.Context(), c, nil); !errors.Is(err, tabellion.ErrInUse) {
		t.Errorf("second open: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
	again := open(t, c)
	if _, body := call(t, again.Handler(), key(t, again, "ana", canonjson.String("admin")), "persistence.get", `{"namespace":"a","id":"x"}`); !strings.Contains(body, "Mars") {
		t.Errorf("after reopening: %s", body)
	}
}

// TestListen serves on sockets, and Close ends it under load without losing an answer that was begun.
func TestListen(t *testing.T) {
	c := configured(t)
	c.Dev = true
	c.Limits.Rate = 0
	s := open(t, c)
	at, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, "http://"+at.Ops+"/readyz"); code != 200 || !strings.Contains(body, `"status":"ready"`) {
		t.Errorf("ready: %d %s", code, body)
	}
	var wg sync.WaitGroup
	var answered, broken int
	var mu sync.Mutex
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := http.Post("http://"+at.MCP+"/mcp", "application/json", strings.NewReader(`{}`))
				mu.Lock()
				if err == nil {
					if _, err := io.ReadAll(res.Body); err != nil {
						broken++
					}
					res.Body.Close()
					answered++
				}
				mu.Unlock()
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	close(stop)
	wg.Wait()
	if answered == 0 || broken > 0 {
		t.Errorf("%d answered, %d broken off", answered, broken)
	}
	if _, err := http.Get("http://" + at.MCP + "/mcp"); err == nil {
		t.Error("it still answers")
	}
}

// get gets a page.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestOpenRefuses: a failed start leaves the folder free.
func TestOpenRefuses(t *testing.T) {
	c := configured(t)
	secret, err := config.ParseSecret("env:TABELLION_TEST_NOT_SET")
	if err != nil {
		t.Fatal(err)
	}
	c.Auth.Pepper = secret
	if _, err := tabellion.Open(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "auth.pepper: environment variable TABELLION_TEST_NOT_SET is not set") {
		t.Errorf("got %v", err)
	}
	c.Auth.Pepper = config.Secret{}
	c.Policy = &policy.Config{Assignments: []policy.Assignment{{Subject: "user:a", Role: "none", On: "/**"}}}
	if _, err := tabellion.Open(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), `unknown role "none"`) {
		t.Errorf("got %v", err)
	}
	c.Policy = nil
	open(t, c)
}

// TestTools lists tools without a store.
func TestTools(t *testing.T) {
	c := configured(t)
	tools, err := tabellion.Tools(c, "persistence")
	if err != nil {
		t.Fatal(err)
	}
	v, err := canonjson.ParseStrict(tools, canonjson.Limits{Depth: 100, Nodes: 100_000})
	if err != nil || v.Len() < 6 || v.Items()[0].Get("name").Str() != "persistence.capabilities" {
		t.Errorf("got %d tools, %v", v.Len(), err)
	}
	if _, err := os.Stat(c.Data); err == nil {
		t.Error("a data folder was made")
	}
	for _, slot := range []string{"models", "operator", ""} {
		if _, err := tabellion.Tools(c, slot); err == nil {
			t.Errorf("slot %q was listed", slot)
		}
	}
}

// TestPepper: with a pepper a key of another pepper is refused, in spite of the same store.
func TestPepper(t *testing.T) {
	c := configured(t)
	t.Setenv("TEST_PEPPER", "one")
	secret, err := config.ParseSecret("env:TEST_PEPPER")
	if err != nil {
		t.Fatal(err)
	}
	c.Auth.Pepper = secret
	s := open(t, c)
	k := key(t, s, "ana", canonjson.String("admin"))
	if code, _ := call(t, s.Handler(), k, "persistence.capabilities", `{}`); code != 200 {
		t.Errorf("with the pepper: %d", code)
	}
	s.Close(t.Context())
	t.Setenv("TEST_PEPPER", "two")
	if code, _ := call(t, open(t, c).Handler(), k, "persistence.capabilities", `{}`); code != 401 {
		t.Errorf("with another pepper: %d", code)
	}
}

// TestKeysOff: without auth.keys, keys that were made for later open nothing, neither before nor after a restart; with
// it the same key does.
func TestKeysOff(t *testing.T) {
	c := configured(t)
	c.Auth.Keys = false
	s := open(t, c)
	k := key(t, s, "ana", canonjson.String("admin"))
	if code, body := call(t, s.Handler(), k, "persistence.capabilities", `{}`); code != 401 {
		t.Errorf("keys are off: %d %s", code, body)
	}
	s.Close(t.Context())
	c.Auth.Keys = true
	if code, body := call(t, open(t, c).Handler(), k, "persistence.capabilities", `{}`); code != 200 {
		t.Errorf("keys are on: %d %s", code, body)
	}
}

// keyOf makes an API key of a tenant.
func keyOf(t *testing.T, s *tabellion.Server, tenant string) string {
	t.Helper()
	out, err := s.Call(t.Context(), "me", []string{"admin"}, "operator.keys.create", canonjson.Object(
		canonjson.M("user", canonjson.String("ana")), canonjson.M("name", canonjson.String("test")),
		canonjson.M("roles", canonjson.Array(canonjson.String("crew"))), canonjson.M("tenant", canonjson.String(tenant))))
	if err != nil {
		t.Fatal(err)
	}
	return out.Get("secret").Str()
}

// TestTenants: each tenant has namespaces of its own, those without a tenant see none of them, and the policy means the
// same in each.
func TestTenants(t *testing.T) {
	c := configured(t)
	c.Policy = &policy.Config{
		Roles:       map[string][]string{"keeper": {"persistence.read", "persistence.write"}},
		Assignments: []policy.Assignment{{Subject: "role:crew", Role: "keeper", On: "/persistence/namespaces/a/**"}},
	}
	s := open(t, c)
	h := s.Handler()
	north, south, none := keyOf(t, s, "north"), keyOf(t, s, "south"), key(t, s, "ana", canonjson.String("crew"))
	for _, k := range []string{north, south} { // the same document and the same idempotency key, twice made
		if code, body := call(t, h, k, "persistence.put", put); code != 200 || !strings.Contains(body, `"revision":1`) {
			t.Errorf("put of a tenant: %d %s", code, body)
		}
		other := strings.Replace(put, `"namespace":"a"`, `"namespace":"b"`, 1)
		if _, body := call(t, h, k, "persistence.put", other); !strings.Contains(body, "policy_denied") {
			t.Errorf("the policy of another namespace: %s", body)
		}
	}
	if _, body := call(t, h, none, "persistence.get", `{"namespace":"a","id":"x"}`); !strings.Contains(body, "not_found") {
		t.Errorf("a key without a tenant: %s", body)
	}
	c.Auth.Local = &config.Local{Subject: "me", Roles: []string{"crew"}}
	in := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"persistence.get","arguments":{"namespace":"a","id":"x"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"
	var out strings.Builder
	if err := s.ServeStdio(t.Context(), strings.NewReader(in), &out); err != nil || !strings.Contains(out.String(), "not_found") {
		t.Errorf("stdio: %v %s", err, out.String())
	}
}

// TestGoodKeysPass: an address with too many failed authentications, such as that of a proxy, is refused with failing
// credentials only.
func TestGoodKeysPass(t *testing.T) {
	c := configured(t)
	c.Limits.AuthFailures = 3
	s := open(t, c)
	h := s.Handler()
	good := key(t, s, "ana", canonjson.String("admin"))
	for range 5 {
		call(t, h, "tbl_0000000000000000000000000000002C8GjS", "persistence.capabilities", `{}`)
	}
	if code, _ := call(t, h, "tbl_0000000000000000000000000000002C8GjS", "persistence.capabilities", `{}`); code != 429 {
		t.Errorf("a wrong key after five: %d, want 429", code)
	}
	if code, body := call(t, h, good, "persistence.capabilities", `{}`); code != 200 {
		t.Errorf("a good key: %d %s", code, body)
	}
}
