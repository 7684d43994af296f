package tabellion_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/testkit/powercut"
)

// healWithin is what the requirement gives a server after the disk works again (security requirements, R11).
const healWithin = 5 * time.Second

// syncLog collects log lines.
type syncLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *syncLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is what was logged.
func (l *syncLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// onDisk opens a server on a disk whose syncs can be made to fail.
func onDisk(t *testing.T) (*powercut.FS, *tabellion.Config, *tabellion.Server, *syncLog) {
	t.Helper()
	disk := powercut.MountForTest(t, 1)
	c := configured(t)
	// This file system has no sockets: with so long a path the control socket is put elsewhere.
	c.Data = filepath.Join(disk.Dir(), strings.Repeat("long-", 20))
	c.Limits.Rate = 0
	if err := os.Mkdir(c.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	// This file system has no hard links, by which the key of the audit trail is put in place. The empty database beside it
	// is that of a start that was killed at once: a key without one is a store that has lost its database.
	elsewhere := t.TempDir()
	if _, err := audit.OpenSigner(elsewhere, rand.Reader); err != nil {
		t.Fatal(err)
	}
	signer, err := os.ReadFile(filepath.Join(elsewhere, "audit.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"audit.key": signer, "tabellion.db": nil} {
		if err := os.WriteFile(filepath.Join(c.Data, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := &syncLog{}
	s, err := tabellion.Open(t.Context(), c, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	return disk, c, s, log
}

// putOf is the input of a put of a new document, with the id as its key.
func putOf(id string) string {
	return fmt.Sprintf(`{"namespace":"a","id":%q,"kind":"k","schemaVersion":"1","expectedRevision":0,"idempotencyKey":%q,"payload":{"body":"Mars"},"references":[]}`, id, id)
}

// settle repeats a call until ok, within healWithin.
func settle(t *testing.T, what string, ok func() (done bool, last string)) {
	t.Helper()
	for end := time.Now().Add(healWithin); ; time.Sleep(10 * time.Millisecond) {
		done, last := ok()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not come within %s: %s", what, healWithin, last)
		}
	}
}

// TestHeal has a sync of the log fail under writes over HTTP. Within five seconds writes work again in the same process
// and on the same listener; what was acknowledged is there; the same keys settle what was unknown, once; older sessions
// are gone, which clients know as 404; and the audit trail has the rows.
func TestHeal(t *testing.T) {
	disk, _, s, log := onDisk(t)
	at, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	k := key(t, s, "ana", canonjson.String("admin"))
	h := s.Handler()
	session := initialize(t, "http://"+at.MCP+"/mcp", k)
	if got := pingSession(t, "http://"+at.MCP+"/mcp", k, session); got != 200 {
		t.Fatalf("a session of the older era: %d", got)
	}
	for round := range 3 { // a healed server heals again
		if code, body := call(t, h, k, "persistence.put", putOf(fmt.Sprint("before-", round))); code != 200 || !strings.Contains(body, `"revision":1`) {
			t.Fatalf("before: %d %s", code, body)
		}
		if err := disk.FailSync(1, syscall.EIO, "tabellion.db-wal"); err != nil {
			t.Fatal(err)
		}
		unknown := putOf(fmt.Sprint("unknown-", round))
		if _, body := call(t, h, k, "persistence.put", unknown); !strings.Contains(body, "store_unavailable") {
			t.Fatalf("the sync failed: %s", body)
		}
		settle(t, "the unknown write", func() (bool, string) {
			_, body := call(t, h, k, "persistence.put", unknown)
			if !strings.Contains(body, "store_unavailable") && !strings.Contains(body, `"revision":1`) {
				t.Fatalf("while it heals: %s", body)
			}
			return strings.Contains(body, `"revision":1`), body
		})
		if _, body := call(t, h, k, "persistence.listRevisions", `{"namespace":"a","id":"unknown-`+fmt.Sprint(round)+`"}`); strings.Contains(body, `"revision":2`) {
			t.Errorf("applied twice: %s", body)
		}
		settle(t, "readiness", func() (bool, string) {
			code, body := get(t, "http://"+at.Ops+"/readyz")
			return code == 200, body
		})
	}
	for round := range 3 {
		for _, id := range []string{"before-", "unknown-"} {
			if _, body := call(t, h, k, "persistence.get", fmt.Sprintf(`{"namespace":"a","id":"%s%d"}`, id, round)); !strings.Contains(body, "Mars") {
				t.Errorf("%s%d is lost: %s", id, round, body)
			}
		}
	}
	if got := pingSession(t, "http://"+at.MCP+"/mcp", k, session); got != 404 {
		t.Errorf("an older session after it: %d", got)
	}
	if code, _ := call(t, h, "", "persistence.capabilities", `{}`); code != 401 {
		t.Errorf("no key after it: %d", code)
	}
	if n := strings.Count(log.String(), "the store is open again"); n != 3 {
		t.Errorf("it was opened again %d times:\n%s", n, log)
	}
	select {
	case err := <-s.Failed():
		t.Errorf("it failed: %v", err)
	default:
	}
}

// initialize begins a session of the older era and gives its id.
func initialize(t *testing.T, url, key string) string {
	t.Helper()
	res := post(t, url, key, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	return res.Header.Get("Mcp-Session-Id")
}

// pingSession pings in a session and gives the status.
func pingSession(t *testing.T, url, key, session string) int {
	t.Helper()
	return post(t, url, key, session, `{"jsonrpc":"2.0","id":2,"method":"ping"}`).StatusCode
}

// post sends a message of the older era and reads the answer to its end.
func post(t *testing.T, url, key, session, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + key,
		"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-06-18",
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return res
}

// TestHealWaitsForDisk: while opening fails too the server says that it is not ready and keeps trying; it serves again
// once the disk works. A disk that fails again right after the opening is met likewise.
func TestHealWaitsForDisk(t *testing.T) {
	disk, _, s, log := onDisk(t)
	k := key(t, s, "ana", canonjson.String("admin"))
	for after, folders := range []int{3, 0, 1, 0, 2} {
		id := fmt.Sprint("x-", after)
		if err := disk.FailSync(1, syscall.EIO, "tabellion.db-wal"); err != nil {
			t.Fatal(err)
		}
		for n := range folders { // these fail the attempts to open
			if err := disk.FailSync(1+n, syscall.EIO, "/"); err != nil {
				t.Fatal(err)
			}
		}
		call(t, s.Handler(), k, "persistence.put", putOf(id))
		if err := disk.FailSync(1+after, syscall.EIO, ""); err != nil {
			t.Fatal(err)
		}
		settle(t, "the write", func() (bool, string) {
			_, body := call(t, s.Handler(), k, "persistence.put", putOf(id))
			return strings.Contains(body, `"revision":1`), body
		})
	}
	if !strings.Contains(log.String(), "the store cannot be opened yet; trying again") {
		t.Errorf("no attempt failed, so this shows nothing:\n%s", log)
	}
}

// TestHealStdio: a stdio session is carried over, in both eras, and so is that of an embedder's client that was idle.
func TestHealStdio(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		t.Run(fmt.Sprintf("legacy %v", legacy), func(t *testing.T) {
			disk, _, s, _ := onDisk(t)
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			done := make(chan error, 1)
			go func() {
				done <- s.ServeStdio(t.Context(), inR, outW)
				outW.Close()
			}()
			out := bufio.NewReader(outR)
			n := 0
			ask := func(method, params string) string {
				n++
				fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", n, method, params)
				for {
					line, err := out.ReadString('\n')
					if err != nil {
						t.Fatal(err)
					}
					var m struct{ ID int }
					if err := json.Unmarshal([]byte(line), &m); err == nil && m.ID == n {
						return line
					}
				}
			}
			meta := ""
			if legacy {
				ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
				fmt.Fprintln(inW, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			} else {
				meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
			}
			write := func(id string) string {
				return ask("tools/call", `{"name":"persistence.put","arguments":`+putOf(id)+meta+`}`)
			}
			if got := write("before"); !strings.Contains(got, `"revision":1`) {
				t.Fatal(got)
			}
			if err := disk.FailSync(1, syscall.EIO, "tabellion.db-wal"); err != nil {
				t.Fatal(err)
			}
			if got := write("unknown"); !strings.Contains(got, "store_unavailable") {
				t.Fatal(got)
			}
			settle(t, "the unknown write", func() (bool, string) {
				got := write("unknown")
				return strings.Contains(got, `"revision":1`), got
			})
			inW.Close()
			if err := <-done; err != nil {
				t.Errorf("the session ended with %v", err)
			}
		})
	}
}
