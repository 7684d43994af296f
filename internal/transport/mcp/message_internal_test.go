package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// FuzzMessage reads any text. What is accepted has an id that is JSON as it was sent, and a frame that reads back.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		``, `42`, `[]`, `{}`, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":"\"\u0041\\","method":"tools/call","params":{"name":"x"}}`,
		`{"jsonrpc":"2.0","id":-0,"method":"initialize","params":{"protocolVersion":"1","capabilities":{"roots":{}},"clientInfo":{}}}`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, `{"jsonrpc":"2.0","id":9007199254740993,"result":{"id":9007199254740993}}`,
		`{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"a":1,"a":2}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"\ud800"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info","_meta":{"progressToken":1e9}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, fault := readMessage(text)
		if m.id != "" && (!json.Valid([]byte(m.id)) || !strings.Contains(string(text), m.id)) {
			t.Fatalf("id %q", m.id)
		}
		if fault != nil {
			return
		}
		frame, ok, fault := m.frame()
		if fault != nil || !ok {
			return
		}
		again, fault := readMessage(frame)
		if fault != nil || again.method != m.method || again.response != m.response ||
			idKey(again.whole.Get("id")) != idKey(m.whole.Get("id")) {
			t.Fatalf("frame %s: %v", frame, fault)
		}
	})
}

// TestQuoted holds that a string id is taken as it is written.
func TestQuoted(t *testing.T) {
	for _, id := range []string{`""`, `"a"`, `"\""`, `"\\"`, `"\\\""`, `"\u00e9\/"`, `"é"`} {
		m, f := readMessage([]byte(` { "id" : ` + id + ` , "jsonrpc":"2.0","method":"x"}`))
		if f != nil || m.id != id {
			t.Errorf("%s: got %s, %v", id, m.id, f)
		}
	}
}

// TestAppendQuoted holds that JSON text becomes the JSON string of itself.
func TestAppendQuoted(t *testing.T) {
	for _, text := range []string{`{}`, `{"a":"\"\\\u0001é"}`, `[1,"",null]`, `"\\\\"`} {
		v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		compact := v.AppendJSON(nil)
		var back string
		if err := json.Unmarshal(appendQuoted(nil, compact), &back); err != nil || back != string(compact) {
			t.Errorf("%s: %q, %v", text, back, err)
		}
	}
}
