package cases_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/internal/testkit/powercut"
)

// site is a whole server over HTTP with one key that may do everything.
type site struct {
	*tabellion.Server
	url, key string
}

// newSite assembles a server on a fresh folder, or on dir when it is not empty.
func newSite(t *testing.T, dir string) *site {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	cfg := tabellion.DefaultConfig()
	cfg.Data, cfg.Ops, cfg.Auth.Keys, cfg.Limits.Rate = dir, "", true, 0
	cfg.Auth.Local = &config.Local{Subject: "me", Roles: []string{"admin"}}
	srv, err := tabellion.Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(srv.Handler())
	t.Cleanup(func() {
		listener.Close()
		srv.Close(context.Background())
	})
	made, err := srv.Call(t.Context(), "me", []string{"admin"}, "operator.keys.create", canonjson.Object(
		canonjson.M("user", canonjson.String("ana")), canonjson.M("name", canonjson.String("case")),
		canonjson.M("roles", canonjson.Array(canonjson.String("admin")))))
	if err != nil {
		t.Fatal(err)
	}
	return &site{srv, listener.URL + "/mcp", made.Get("secret").Str()}
}

// clients are one client of each era.
func (s *site) clients(t *testing.T) map[string]*rawmcp.Client {
	t.Helper()
	out := map[string]*rawmcp.Client{}
	for _, era := range []string{"stateless", "legacy"} {
		c := rawmcp.New(s.url, s.key, era == "legacy", 4)
		if err := c.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		out[era] = c
	}
	return out
}

// put is the text of a put's arguments.
func put(id, payload, key string, expected int) []byte {
	return fmt.Appendf(nil, `{"namespace":"ns","id":%q,"kind":"note","schemaVersion":"1","payload":%s,"references":[],"expectedRevision":%d,"idempotencyKey":%q}`, id, payload, expected, key)
}

// code is the error code of an answer, "" for success.
func code(a scenario.Answer) string {
	m, _ := a.Structured.(map[string]any)
	e, _ := m["error"].(map[string]any)
	c, _ := e["code"].(string)
	if a.RPC != nil {
		return fmt.Sprint(a.RPC.Code)
	}
	return c
}

// TestInterleavedWritesOnOneStdioConnection (P02): several calls of one turn interleaved their writes and left a broken
// store. Forty puts are sent without waiting: twenty new ids, and twenty creations of one id. Each answer carries its
// id, exactly one creation wins, and a restart reads all (section 4.3, R3).
func TestInterleavedWritesOnOneStdioConnection(t *testing.T) {
	dir := t.TempDir()
	srv := newSite(t, dir)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- srv.ServeStdio(t.Context(), inR, outW)
		outW.Close()
	}()
	frames := &rawmcp.Client{}
	go func() {
		for i := range 40 {
			id, key := fmt.Sprintf("new%02d", i), fmt.Sprintf("k%d", i)
			if i%2 == 1 {
				id = "hot"
			}
			inW.Write(append(frames.Frame(int64(100+i), "tools/call", `"name":"persistence.put","arguments":`+string(put(id, fmt.Sprint(i), key, 0))), '\n'))
		}
		inW.Close()
	}()
	answers := map[int]string{}
	lines := bufio.NewScanner(outR)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var m struct{ ID int }
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatalf("stdout holds something else than messages: %q", lines.Text())
		}
		a, err := rawmcp.ParseAnswer(&rawmcp.Raw{Message: lines.Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := answers[m.ID]; twice {
			t.Errorf("id %d is answered twice", m.ID)
		}
		answers[m.ID] = code(a)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	won := 0
	for i := range 40 {
		got, ok := answers[100+i]
		switch {
		case !ok:
			t.Errorf("call %d has no answer", i)
		case i%2 == 0 && got != "":
			t.Errorf("new id %d: %s", i, got)
		case i%2 == 1 && got == "":
			won++
		case i%2 == 1 && got != "revision_conflict":
			t.Errorf("hot %d: %s", i, got)
		}
	}
	if won != 1 {
		t.Errorf("%d creations of one id succeeded, want 1", won)
	}
	if err := srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := newSite(t, dir)
	a, err := again.clients(t)["stateless"].Call(t.Context(), "persistence.list", []byte(`{"namespace":"ns","limit":200}`))
	if err != nil || len(a.Structured.(map[string]any)["items"].([]any)) != 21 {
		t.Errorf("after a restart: %v %s", err, a)
	}
}

// TestPayloadIsNoTemplate (P03): text with dollar signs was taken as a pattern. Get, replay and resource hold the very
// strings that were sent (section 3.3, S44).
func TestPayloadIsNoTemplate(t *testing.T) {
	payload := `{"t":["$&","$1","$$","%s %d","{{root.x}}","\\u0041","</script>&<"]}`
	want := []any{"$&", "$1", "$$", "%s %d", "{{root.x}}", `\u0041`, "</script>&<"}
	srv := newSite(t, "")
	for era, c := range srv.clients(t) {
		args := put("p03-"+era, payload, "k-"+era, 0)
		first, err := c.Call(t.Context(), "persistence.put", args)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Call(t.Context(), "persistence.get", fmt.Appendf(nil, `{"namespace":"ns","id":"p03-%s"}`, era))
		if err != nil {
			t.Fatal(err)
		}
		replay, err := c.Call(t.Context(), "persistence.put", args)
		if err != nil {
			t.Fatal(err)
		}
		read, err := c.Read(t.Context(), "persistence://documents/ns/p03-"+era)
		if err != nil {
			t.Fatal(err)
		}
		var resource any
		if err := json.Unmarshal([]byte(read.Text), &resource); err != nil {
			t.Fatal(err)
		}
		for name, doc := range map[string]any{"put": first.Structured, "get": got.Structured, "replay": replay.Structured, "resource": resource} {
			list := doc.(map[string]any)["payload"].(map[string]any)["t"]
			if fmt.Sprint(list) != fmt.Sprint(want) {
				t.Errorf("%s %s: %v, want %v", era, name, list, want)
			}
		}
	}
}

// TestFingerprintIsOfValues (P05): a clean-up confused the NUL character with text that spells its escape. The six
// printed characters and the one character are different content (section 5).
func TestFingerprintIsOfValues(t *testing.T) {
	srv := newSite(t, "")
	for era, c := range srv.clients(t) {
		key := "k1-" + era
		a, err := c.Call(t.Context(), "persistence.put", put("six-"+era, `{"s":"\\u0000"}`, key, 0))
		if err != nil || code(a) != "" {
			t.Fatalf("%s: %v %s", era, err, a)
		}
		got, _ := c.Call(t.Context(), "persistence.get", fmt.Appendf(nil, `{"namespace":"ns","id":"six-%s"}`, era))
		if s := got.Structured.(map[string]any)["payload"].(map[string]any)["s"]; s != `\u0000` {
			t.Errorf("%s: reads back as %q", era, s)
		}
		a, err = c.Call(t.Context(), "persistence.put", put("six-"+era, `{"s":"\u0000"}`, key, 0))
		if err != nil || code(a) != "idempotency_conflict" {
			t.Errorf("%s: the other content under the same key: %v %s", era, err, a)
		}
		a, err = c.Call(t.Context(), "persistence.put", put("one-"+era, `{"s":"\u0000","\u0000":1}`, "k2-"+era, 0))
		if err != nil || code(a) != "" {
			t.Errorf("%s: U+0000 is content of a payload: %v %s", era, err, a)
		}
	}
}

// TestLargeIntegersAreRefused (P06): 19-digit ids came back rounded without a word. They are refused, with advice, and
// nothing is stored (section 3.3).
func TestLargeIntegersAreRefused(t *testing.T) {
	srv := newSite(t, "")
	for era, c := range srv.clients(t) {
		for i, payload := range []string{`{"order":2033735037361704962,"same":2033735037361705000}`, `{"same":2033735037361705000}`} {
			a, err := c.Call(t.Context(), "persistence.put", put("p06", payload, "k1", 0))
			if err != nil || code(a) != "invalid_request" || !strings.Contains(a.Text, "string") {
				t.Errorf("%s payload %d: %v %s", era, i, err, a)
			}
		}
		a, _ := c.Call(t.Context(), "persistence.get", []byte(`{"namespace":"ns","id":"p06"}`))
		if code(a) != "not_found" {
			t.Errorf("%s: something was stored: %s", era, a)
		}
		a, err := c.Call(t.Context(), "persistence.put", put("p06", `{"order":"2033735037361704962"}`, "k1", 0))
		if err != nil || code(a) != "" {
			t.Errorf("%s: as a string, with the same key: %v %s", era, err, a)
		}
		if a, err = c.Call(t.Context(), "persistence.delete", []byte(`{"namespace":"ns","id":"p06","expectedRevision":1,"idempotencyKey":"d-`+era+`"}`)); err != nil || code(a) != "" {
			t.Fatalf("%s: %v %s", era, err, a)
		}
		return // the document is a tombstone now; the other era is covered by the scenarios
	}
}

// TestNoAnswerBeforeItsSync (P18): the sync level was lowered on one connection for speed. Two hundred puts of one
// client, on a file system that counts: no answer comes before a sync that began after the call (R1).
func TestNoAnswerBeforeItsSync(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts a file system: run by make test")
	}
	fs := powercut.MountForTest(t, 0)
	store, err := sqlite.Open(t.Context(), filepath.Join(fs.Dir(), "data"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	server := inproc.New(t, inproc.Config{Store: store, Grants: scenario.DefaultGrants()})
	for i := range 200 {
		before, err := fs.Counts()
		if err != nil {
			t.Fatal(err)
		}
		a, err := server.Call(t.Context(), "alice", "persistence.put", put("d", fmt.Sprint(i), fmt.Sprintf("k%d", i), i))
		if err != nil || code(a) != "" {
			t.Fatalf("put %d: %v %s", i, err, a)
		}
		after, err := fs.Counts()
		if err != nil {
			t.Fatal(err)
		}
		if after.FileSyncs == before.FileSyncs {
			t.Fatalf("put %d was answered without a sync", i)
		}
	}
}

// TestOnlyAGoodKeyOpens (T05): any text after Bearer opened a session. Only the good key passes, whatever the case of
// the scheme; nothing is made for the others, and failures count towards a delay (S19).
func TestOnlyAGoodKeyOpens(t *testing.T) {
	srv := newSite(t, "")
	body := (&rawmcp.Client{}).Frame(1, "tools/call", `"name":"persistence.capabilities","arguments":{}`)
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"0"}}}`
	send := func(query string, legacy bool, header ...string) *http.Response {
		text := string(body)
		if legacy {
			text = initialize
		}
		req, _ := http.NewRequest(http.MethodPost, srv.url+query, strings.NewReader(text))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if !legacy {
			req.Header.Set("Mcp-Protocol-Version", rawmcp.StatelessVersion)
			req.Header.Set("Mcp-Method", "tools/call")
			req.Header.Set("Mcp-Name", "persistence.capabilities")
		}
		for _, h := range header {
			req.Header.Add("Authorization", h)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	for _, legacy := range []bool{false, true} {
		for name, res := range map[string]*http.Response{
			"x":            send("", legacy, "Bearer x"),
			"empty":        send("", legacy, "Bearer "),
			"none":         send("", legacy),
			"two headers":  send("", legacy, "Bearer "+srv.key, "Bearer "+srv.key+"x"),
			"in the query": send("?access_token="+srv.key, legacy),
			"basic":        send("", legacy, "Basic "+srv.key),
		} {
			if res.StatusCode != http.StatusUnauthorized || res.Header.Get("Www-Authenticate") == "" || res.Header.Get("Mcp-Session-Id") != "" {
				t.Errorf("legacy %t, %s: status %d, %v", legacy, name, res.StatusCode, res.Header)
			}
		}
		if res := send("", legacy, "bearer "+srv.key); res.StatusCode != http.StatusOK {
			t.Errorf("legacy %t, lower-case scheme with the good key: status %d", legacy, res.StatusCode)
		}
	}
	limited := false
	for range 30 {
		limited = limited || send("", false, "Bearer x").StatusCode == http.StatusTooManyRequests
	}
	if !limited {
		t.Error("thirty more failures brought no delay")
	}
}
