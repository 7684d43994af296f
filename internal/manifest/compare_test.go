package manifest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/manifest"
)

// base is a small contract.
const base = `{"contract":"c.v1","revision":4,
"tools":[{"name":"c.get","title":"Get","description":"Reads.","check":"persistence.read",
 "inputSchema":{"type":"object","additionalProperties":false,"required":["id"],"properties":{"id":{"$ref":"#/$defs/id"},"size":{"type":"integer","maximum":9}},"$defs":{"id":{"type":"string"}}},
 "outputSchema":{"type":"object","required":["ok"],"properties":{"ok":{"const":true}}}}],
"errorSchema":{"properties":{"error":{"properties":{"code":{"enum":["busy","gone"]}}}}},
"errorCodes":[{"code":"busy","retryable":true}],
"resources":[{"uri":"c://a","name":"a","mimeType":"application/json","contentSchema":{"type":"object"}}],
"resourceTemplates":[],
"transferRoutes":[{"method":"GET","path":"/a/{id}","success":200}],
"httpStatus":{"busy":500}}`

// read parses a contract.
func read(t *testing.T, text string) canonjson.Value {
	t.Helper()
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{Depth: 100, Nodes: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// changed is base with one text replaced.
func changed(t *testing.T, old, next string) canonjson.Value {
	t.Helper()
	if strings.Count(base, old) == 0 {
		t.Fatalf("%q is not in the contract", old)
	}
	return read(t, strings.Replace(base, old, next, 1))
}

func TestCompare(t *testing.T) {
	for _, tt := range []struct{ name, old, next, breaking, added string }{
		{"nothing", `"revision":4`, `"revision":9`, "", ""},
		{"order of members", `"title":"Get","description":"Reads."`, `"description":"Reads.","title":"Get"`, "", ""},
		{"words", "Reads.", "Reads one.", "", "tool c.get: another description"},
		{"optional property", `"size":{`, `"more":{"type":"string"},"size":{`, "", "tool c.get, input: more is new"},
		{"less to send", `"required":["id"]`, `"required":[]`, "", "tool c.get, input: id need not be sent"},
		{"more to send", `"required":["id"]`, `"required":["id","size"]`, "tool c.get, input: size must be sent", ""},
		{"property gone", `,"size":{"type":"integer","maximum":9}`, ``, "tool c.get, input: size is gone", ""},
		{"narrower", `"maximum":9`, `"maximum":8`, "tool c.get, input: size differs", ""},
		{"definition", `"id":{"type":"string"}`, `"id":{"type":"integer"}`, "tool c.get, input: the definition id differs", ""},
		{"open to others", `"additionalProperties":false,`, ``, "tool c.get, input: the schema differs beside", ""},
		{"result without a promise", `"required":["ok"]`, `"required":[]`, "tool c.get, output: ok need not be there", ""},
		{"more in the result", `"ok":{"const":true}`, `"ok":{"const":true},"n":{}`, "", "tool c.get, output: n is new"},
		{"other right", "persistence.read", "persistence.admin", "tool c.get: it needs another capability", ""},
		{"tool gone", `"name":"c.get"`, `"name":"c.read"`, "tool c.get is gone", "tool c.read is new"},
		{"resource gone", `"uri":"c://a"`, `"uri":"c://b"`, "resource c://a is gone", "resource c://b is new"},
		{"route", `"success":200`, `"success":206`, "route /a/{id} differs", ""},
		{"code gone", `"enum":["busy","gone"]`, `"enum":["busy"]`, "the error code gone is gone", ""},
		{"code added", `"enum":["busy","gone"]`, `"enum":["busy","gone","new"]`, "", "the error code new is new"},
		{"code added, and a change", `"enum":["busy","gone"]}`, `"enum":["busy","gone","new"]},"message":{"type":"integer"}`, "the schema of failures differs beside its codes", "the error code new is new"},
		{"status", `"busy":500`, `"busy":503`, "the HTTP status of busy differs", ""},
		{"something else", `"revision":4`, `"revision":4,"x":1`, "", "something that breaks nobody differs"},
		{"no retry", `"retryable":true`, `"retryable":false`, "error code busy differs", ""},
		{"another contract", `"contract":"c.v1"`, `"contract":"c.v2"`, "", "the contract is c.v2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := manifest.Compare(read(t, base), changed(t, tt.old, tt.next))
			for _, part := range []struct {
				what string
				list []string
				want string
			}{{"breaking", got.Breaking, tt.breaking}, {"added", got.Added, tt.added}} {
				all := strings.Join(part.list, "; ")
				if part.want == "" && all != "" || !strings.Contains(all, part.want) {
					t.Errorf("%s: %q, want %q", part.what, all, part.want)
				}
			}
		})
	}
}

func TestWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "contracts", "c.v1.json")
	write := func(m canonjson.Value, want int64) {
		t.Helper()
		got, _, err := manifest.Write(file, m)
		if err != nil || got != want {
			t.Fatalf("revision %d %v, want %d", got, err, want)
		}
		if kept, err := manifest.Read(file); err != nil || manifest.Revision(kept) != want {
			t.Fatalf("the file is at %d %v, want %d", manifest.Revision(kept), err, want)
		}
	}
	write(read(t, base), 1)
	write(read(t, base), 1)
	write(changed(t, "Reads.", "Reads one."), 2)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := manifest.Write(file, changed(t, `"maximum":9`, `"maximum":8`)); !errors.Is(err, manifest.ErrBreaking) {
		t.Errorf("a breaking change: %v", err)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("a refused change wrote the file: %v", err)
	}
	write(changed(t, `"contract":"c.v1"`, `"contract":"c.v2"`), 1)
}
