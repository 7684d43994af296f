package durability_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
)

// clockStart is where the clocks of these tests begin.
var clockStart = time.Date(2042, 1, 1, 0, 0, 0, 0, time.UTC)

// Ages in these tests.
const (
	keptFor   = 30 * time.Minute // retention of superseded revisions and artifacts
	keyLife   = "90m"
	tenYears  = 10 * 365 * 24 * time.Hour
	shaOfABC  = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	refusedAs = "refused"
)

// clocked is a server whose clock a test moves, with a key that it authenticates.
type clocked struct {
	t       *testing.T
	clock   *clock.Manual
	server  asAlice
	keys    *identity.Authenticator
	key     string
	uploads map[string]string // id by name
	cursor  string
	n       int
}

// newClocked makes the server and what the tests look at: a document with two revisions, whose listing has a next page;
// an upload that is pending, and two whose bytes are there.
func newClocked(t *testing.T) *clocked {
	t.Helper()
	dir := t.TempDir()
	at := clock.NewManual(clockStart)
	store, err := sqlite.Open(t.Context(), dir, sqlite.Options{Clock: at})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	blobs, err := blob.OpenFolder(dir+"/blobs", blob.FolderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	keep := keptFor
	c := &clocked{t: t, clock: at, uploads: map[string]string{}}
	c.server = asAlice{inproc.New(t, inproc.Config{Store: store, Blobs: blobs, Clock: at, Keep: &keep, Grants: scenario.DefaultGrants()})}
	c.makeKey(store)
	c.put("a", 0, "first")
	c.put("a", 1, "second")
	c.put("b", 0, "first")
	c.put("b", 1, "second")
	for _, name := range []string{"pending", "received", "spare"} {
		m, _ := c.call("beginArtifact", `"mimeType":"a/b","size":3,"hash":{"algorithm":"sha256","value":"`+shaOfABC+`"},"provenance":{},"idempotencyKey":"begin-`+name+`"`)
		c.uploads[name] = fmt.Sprint(m["uploadId"])
		if name != "pending" {
			c.send(name)
		}
	}
	m, _ := c.call("list", `"limit":1`)
	c.cursor = fmt.Sprint(m["nextCursor"])
	return c
}

// makeKey makes an API key that ends, and the authenticator that judges it.
func (c *clocked) makeKey(store *sqlite.Store) {
	c.t.Helper()
	var err error
	c.keys, err = identity.NewAuthenticator(identity.Config{Keys: store, Clock: c.clock, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { c.keys.Close(context.Background()) })
	service, err := identity.NewKeyService(identity.ServiceConfig{Keys: store, Auth: c.keys, Clock: c.clock, Random: rand.Reader})
	if err != nil {
		c.t.Fatal(err)
	}
	made, err := service.Create(c.t.Context(), identity.KeySpec{User: "u", Name: "n", Roles: []string{"admin"}, Expires: keyLife}, func(id, note string) audit.Row {
		return (&audit.Entry{Kind: audit.KindKey, Key: id, Note: note}).Encode()
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.key = made.Text
}

// call calls a tool in the namespace and gives its answer, or the code of its refusal.
func (c *clocked) call(tool, args string) (m map[string]any, code string) {
	c.t.Helper()
	a, err := c.server.Call(c.t.Context(), "persistence."+tool, []byte(`{"namespace":"ns",`+args+`}`))
	if err != nil || a.RPC != nil {
		c.t.Fatalf("%s: %v %s", tool, err, a)
	}
	m, _ = a.Structured.(map[string]any)
	if !a.IsError {
		return m, ""
	}
	inner, _ := m["error"].(map[string]any)
	return nil, fmt.Sprint(inner["code"])
}

// put writes a revision, with a key that is named after it.
func (c *clocked) put(id string, expected int, text string) (map[string]any, string) {
	return c.call("put", fmt.Sprintf(`"id":%q,"kind":"k","schemaVersion":"1","payload":%q,"references":[],"expectedRevision":%d,"idempotencyKey":"%s-%d"`, id, text, expected, id, expected))
}

// send sends the bytes of an upload.
func (c *clocked) send(name string) string {
	c.t.Helper()
	res, err := c.server.HTTP(c.t.Context(), scenario.HTTPRequest{Method: http.MethodPut, Path: "/uploads/ns/" + c.uploads[name], Body: []byte("abc")})
	if err != nil {
		c.t.Fatal(err)
	}
	return word(res.Status)
}

// word is "" for a success and the status otherwise.
func word(status int) string {
	if status/100 == 2 {
		return ""
	}
	return fmt.Sprint(status)
}

// sweep runs both sweeps.
func (c *clocked) sweep() {
	c.t.Helper()
	if _, err := c.server.Service.Sweep(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.server.Service.SweepOrphans(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// fresh makes an idempotency key.
func (c *clocked) fresh() string {
	c.n++
	return fmt.Sprintf(`"idempotencyKey":"fresh-%d"`, c.n)
}

// The questions that are asked after each jump. Each gives "" for yes, or how it was refused.
var questions = []struct {
	name string
	ask  func(*clocked) string
}{
	{"send", func(c *clocked) string { return c.send("pending") }},
	{"commit", func(c *clocked) string {
		_, code := c.call("commitArtifact", fmt.Sprintf(`"uploadId":%q,%s`, c.uploads["received"], c.fresh()))
		return code
	}},
	{"replay", func(c *clocked) string { // the first revision, or nothing: never another one
		m, code := c.put("a", 0, "first")
		if code == "" && fmt.Sprint(m["revision"]) != "1" {
			return "a second effect"
		}
		return code
	}},
	{"cursor", func(c *clocked) string {
		_, code := c.call("list", fmt.Sprintf(`"limit":1,"cursor":%q`, c.cursor))
		return code
	}},
	{"key", func(c *clocked) string {
		who, _, err := c.keys.Authenticate(c.t.Context(), identity.Credentials{Key: c.key})
		if err != nil {
			c.t.Fatal(err)
		}
		if who == nil {
			return refusedAs
		}
		return ""
	}},
	{"purge", func(c *clocked) string {
		_, code := c.call("purge", `"target":{"type":"document","id":"b","revision":1},`+c.fresh())
		return code
	}},
	{"purge at once", func(c *clocked) string { // of what was superseded after the jump
		_, code := c.call("purge", `"target":{"type":"document","id":"a","revision":2},`+c.fresh())
		return code
	}},
}

// TestClockJumps moves the clock under a server. What is asked then is answered as a clock that goes steadily would have
// it, or is refused; revisions and their times stay in order; sweeps take nothing that an open upload needs.
func TestClockJumps(t *testing.T) {
	tests := []struct {
		name  string
		jumps []time.Duration
		want  map[string]string // by question; what is not named is allowed
	}{
		{"steady", nil, map[string]string{"purge": "retention_blocked"}},
		{"an hour back", []time.Duration{-time.Hour}, map[string]string{
			"purge": "retention_blocked", "cursor": "invalid_request", // it was made in the future
		}},
		{"an hour forward", []time.Duration{time.Hour}, map[string]string{"cursor": "invalid_request"}},
		{"ten years forward", []time.Duration{tenYears}, map[string]string{
			"send": "404", "commit": "not_found", "replay": "revision_conflict", "cursor": "invalid_request", "key": refusedAs,
		}},
		{"ten years forward and back", []time.Duration{tenYears, -tenYears}, map[string]string{
			"send": "404", "commit": "not_found", "purge": "retention_blocked", // the uploads were closed on the way
		}},
		{"an hour forward and two back", []time.Duration{time.Hour, -2 * time.Hour}, map[string]string{
			"purge": "retention_blocked", "cursor": "invalid_request",
		}},
	}
	asked := 0
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want["purge at once"] = "retention_blocked"
			c := newClocked(t)
			for _, jump := range tt.jumps {
				c.clock.Advance(jump)
				c.sweep()
			}
			c.supersede(t)
			for _, q := range questions {
				asked++
				if got := q.ask(c); got != tt.want[q.name] {
					t.Errorf("%s: got %q, want %q", q.name, got, tt.want[q.name])
				}
			}
			c.inOrder(t)
			c.sweep()
			c.openUploadsWhole(t)
		})
	}
	fmt.Printf("clock jumps: %d jumps, %d questions asked\n", len(tests), asked)
}

// supersede writes after the jump, so that there is a revision that has just been superseded by the clock's count.
func (c *clocked) supersede(t *testing.T) {
	t.Helper()
	if _, code := c.put("a", 2, "third"); code != "" {
		t.Errorf("a write after the jump: %s", code)
	}
}

// inOrder holds that revisions are numbered without gaps and that their times never run backwards.
func (c *clocked) inOrder(t *testing.T) {
	t.Helper()
	m, _ := c.call("listRevisions", `"id":"a"`)
	items, _ := m["items"].([]any)
	last := ""
	for i, item := range items {
		f := item.(map[string]any)
		if n, _ := f["revision"].(json.Number); n.String() != fmt.Sprint(i+1) {
			t.Errorf("revision %s stands at place %d", n, i+1)
		}
		if at := fmt.Sprint(f["updatedAt"]); strings.Compare(at, last) < 0 {
			t.Errorf("revision %d is of %s, the one before it of %s", i+1, at, last)
		} else {
			last = at
		}
		if at := fmt.Sprint(f["createdAt"]); at != "2042-01-01T00:00:00.000Z" {
			t.Errorf("revision %d was created at %s", i+1, at)
		}
	}
	if len(items) != 3 {
		t.Errorf("%d revisions, want 3", len(items))
	}
}

// openUploadsWhole holds that an upload that is open after all sweeps, and whose bytes had been taken, can be committed.
func (c *clocked) openUploadsWhole(t *testing.T) {
	t.Helper()
	if _, code := c.call("uploadAccess", fmt.Sprintf(`"uploadId":%q`, c.uploads["spare"])); code == "not_found" {
		return
	}
	if _, code := c.call("commitArtifact", fmt.Sprintf(`"uploadId":%q,%s`, c.uploads["spare"], c.fresh())); code != "" {
		t.Errorf("an open upload whose bytes had been taken cannot be committed: %s", code)
	}
}

// TestClockSetBackDoesNotProlong sets the clock back to before a cursor was made that has ended: it stays ended.
func TestClockSetBackDoesNotProlong(t *testing.T) {
	c := newClocked(t)
	c.clock.Advance(20 * time.Minute) // the cursor has ended
	_, code := c.call("list", fmt.Sprintf(`"limit":1,"cursor":%q`, c.cursor))
	if code != "invalid_request" {
		t.Errorf("after 20 minutes a cursor was answered with %q", code)
	}
	c.clock.Advance(-2 * time.Hour) // to before it was made
	_, code = c.call("list", fmt.Sprintf(`"limit":1,"cursor":%q`, c.cursor))
	if code == "" {
		t.Errorf("a cursor that had ended is good again on a clock that was set back to before it was made")
	}
}
