package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/client"
	"github.com/tabellion-mcp/tabellion/client/clienttest"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/policy"
)

// story is what is printed, with the artifact's id and the hash cut out.
const story = `The server speaks persistence.v1 and promises file-and-directory-sync; a document may have 1048576 bytes.

1. Save a checkpoint
explorer/checkpoint-t1 is saved: revision 1.

2. Meet a conflict and resolve it
Another window adds the layer craters: revision 2.
This window, which still knows revision 1, is refused: revision_conflict. It reads, and merges.
Both windows' layers are in revision 3: {"astronomicalDate":"2042-01-02T00:00:00Z","body":"Mars","layers":["craters","dust","relief"]}

3. Lose an answer
The server wrote revision 4, and its answer was lost. The client asked again with the same key and the same bytes.
The document has 4 revisions: there was one effect.

4. Cite a view and a capture in a mission
The capture is artifact ID: SIZE bytes, SHA-256 HASH.
missions/mission-t1 cites revision 1 of the view, and the capture.
The view moves on to revision 2; the mission goes on citing what it saw.

5. Delete and restore
The checkpoint is deleted: revision 5 is a tombstone, and reading gives not_found.
Revision 3 is still there, and is written again as revision 6: {"astronomicalDate":"2042-01-02T00:00:00Z","body":"Mars","layers":["craters","dust","relief"]}

6. Read the evidence back
The view as it was cited, revision 1: {"camera":[0,0,10]}
The capture, SIZE bytes of image/png, has the SHA-256 HASH: verified.
Done.
`

// printed puts placeholders into what was printed, and wants one hash and one size throughout.
func printed(t *testing.T, text string) string {
	t.Helper()
	for _, cut := range []struct{ form, name string }{
		{`[0-9a-f]{64}`, "HASH"}, {`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "ID"}, {`\d+ bytes( of|, SHA)`, "SIZE bytes$1"},
	} {
		form := regexp.MustCompile(cut.form)
		seen := map[string]bool{}
		for _, m := range form.FindAllString(text, -1) {
			number, _, _ := strings.Cut(m, " ")
			seen[number] = true
		}
		if len(seen) != 1 {
			t.Errorf("%s: %v", cut.name, seen)
		}
		text = form.ReplaceAllString(text, cut.name)
	}
	return text
}

// kept checks what the story has left on the server.
func kept(t *testing.T, c *client.Client) {
	t.Helper()
	var keys []string
	for d, err := range c.ListRevisions(t.Context(), client.ListRevisionsRequest{Namespace: "explorer", ID: "checkpoint-t1"}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, string(d.Payload))
	}
	if len(keys) != 6 || keys[2] != keys[5] || keys[3] == keys[2] || keys[4] != "null" {
		t.Errorf("the checkpoint's revisions: %q", keys)
	}
	m, err := c.Get(t.Context(), "missions", "mission-t1")
	if err != nil || len(m.References) != 2 || m.References[0] != client.RefDocument("explorer", "view-t1", 1) {
		t.Fatalf("the mission: %+v %v", m, err)
	}
	want, err := capture()
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := c.Download(t.Context(), m.References[1].Namespace, m.References[1].ID, &got, nil); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the capture: %d bytes of %d, %v", got.Len(), len(want), err)
	}
}

func TestWithoutFlags(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, []string{"--run", "t1"}); err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(out.String(), "\n")
	if !strings.HasPrefix(first, "No --url") || printed(t, rest) != story {
		t.Errorf("printed:\n%s", out.String())
	}
}

func TestInMemory(t *testing.T) {
	s := clienttest.New(t)
	var out bytes.Buffer
	opts := client.Options{Transfer: s.TransferURL(), Token: s.Token("ana")}
	if err := tell(t.Context(), &out, s.Caller("ana"), opts, names{"explorer", "missions", "t1"}); err != nil {
		t.Fatal(err)
	}
	if got := printed(t, out.String()); got != story {
		t.Errorf("printed:\n%s", got)
	}
	kept(t, s.Client(t, "ana"))
	// The story's third chapter is true: the same call came twice.
	var puts []string
	for _, call := range s.Calls() {
		if call.Tool == "put" && strings.Contains(string(call.Arguments), "Phobos") {
			puts = append(puts, string(call.Arguments))
		}
	}
	if len(puts) != 2 || puts[0] != puts[1] {
		t.Errorf("puts of the lost answer: %q", puts)
	}
}

func TestAgainstServer(t *testing.T) {
	cfg := tabellion.DefaultConfig()
	cfg.Data, cfg.Ops = t.TempDir(), ""
	cfg.Auth.Keys = true
	cfg.Policy = &policy.Config{
		Roles:       map[string][]string{"writer": {"persistence.read", "persistence.write", "persistence.delete"}},
		Assignments: []policy.Assignment{{Subject: "user:ana", Role: "writer", On: "/persistence/**"}},
	}
	s, err := tabellion.Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := httptest.NewServer(s.Handler()) // serves the transfer routes too
	t.Cleanup(func() {
		l.Close()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	key, err := s.Call(t.Context(), "test", []string{policy.RoleAdmin}, "operator.keys.create", canonjson.Object(
		canonjson.M("user", canonjson.String("ana")), canonjson.M("name", canonjson.String("explorer"))))
	if err != nil {
		t.Fatal(err)
	}
	token, endpoint := key.Get("secret").Str(), l.URL+"/persistence/mcp"
	var out bytes.Buffer
	if err := run(t.Context(), &out, []string{"--url", endpoint, "--token", token, "--run", "t1"}); err != nil {
		t.Fatal(err)
	}
	if got := printed(t, out.String()); got != story {
		t.Errorf("printed:\n%s", got)
	}
	c, err := client.New(t.Context(), client.HTTP(endpoint, token), client.Options{Transfer: l.URL, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	kept(t, c)
}

// TestStops holds that a server that does not do as it should ends the story with an error.
func TestStops(t *testing.T) {
	for name, order := range map[string]func(*clienttest.Server){
		"damaged evidence": func(s *clienttest.Server) { s.CorruptDownload(5) },
		"denied":           func(s *clienttest.Server) { s.Forbid("ana", "/persistence/namespaces/missions/**") },
		"overtaken": func(s *clienttest.Server) {
			s.Overtake(client.PutRequest{Namespace: "explorer", ID: "checkpoint-t1", Kind: "k", SchemaVersion: "1", Payload: json.RawMessage(`1`)})
		},
	} {
		s := clienttest.New(t)
		order(s)
		var out bytes.Buffer
		opts := client.Options{Transfer: s.TransferURL(), Token: s.Token("ana"), Retry: client.Retry{Attempts: 2, First: 1}}
		if err := tell(t.Context(), &out, s.Caller("ana"), opts, names{"explorer", "missions", "t1"}); err == nil || strings.Contains(out.String(), "Done.") {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}

func TestWrongUse(t *testing.T) {
	for _, args := range [][]string{{"--url", "nowhere"}, {"--colour"}, {"--url", "http://127.0.0.1:1/mcp", "--transfer", "ftp://x"}} {
		if err := run(t.Context(), &bytes.Buffer{}, args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
