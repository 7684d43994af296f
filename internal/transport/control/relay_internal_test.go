package control

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzRelayLines: no line of either side ends a relay, and what it says on its own is JSON.
func FuzzRelayLines(f *testing.F) {
	for _, line := range []string{
		`{}`, `{"id":null}`, `{"id":1,"method":"initialize"}`, `{"id":"a","method":"tools/call","params":{"name":"x"}}`, `{"id":1e400,"method":"x"}`,
		`{"id":1,"result":{}}`, `{"id":1,"error":{}}`, `{"method":"notifications/initialized"}`, `[{"id":1}]`, `{"id":{},"method":{}}`,
		`{"id":2,"method":"resources/subscribe","params":{"uri":"x://y"}}`, "\xff", `{"id":"\ud800","method":"x"}`,
	} {
		f.Add([]byte(line), []byte(line))
	}
	f.Fuzz(func(t *testing.T, client, server []byte) {
		var out bytes.Buffer
		r := &Relay{Out: &out, mark: replayMark()}
		r.state = relayState{open: map[string]pending{}, asked: map[string]bool{}, stale: map[string]bool{}, replays: map[string][]byte{}}
		r.outgoing(client)
		r.incoming(server, make(chan struct{}))
		r.outgoing(server)
		r.serverGone()
		for _, line := range r.setUpLines() {
			if !json.Valid(line) {
				t.Errorf("replayed %q", line)
			}
		}
		for line := range bytes.Lines(out.Bytes()) {
			if !json.Valid(line) {
				t.Errorf("refused with %q", line)
			}
		}
	})
}

// TestSkim reads ids, methods and failures, whatever the order of the members and whatever ids hold.
func TestSkim(t *testing.T) {
	for _, tt := range []struct {
		line, id, method string
		failed           bool
	}{
		{`{"jsonrpc":"2.0","id":7,"result":{"id":8,"method":"x","error":1}}`, `7`, "", false},
		{`{"jsonrpc":"2.0","id":"a","result":{}}`, `"a"`, "", false},
		{`{"jsonrpc":"2.0","id":"\u0061","result":{}}`, `"a"`, "", false},
		{`{"jsonrpc":"2.0","id":"x,\"result\":","result":{}}`, `"x,\"result\":"`, "", false},
		{`{"jsonrpc":"2.0","id":1,"error":{"data":{"a":1,"result":2}}}`, `1`, "", true},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"result":2}}`, `1`, "ping", false},
		{`{"result":{},"id":3,"jsonrpc":"2.0"}`, `3`, "", false},
		{`{"jsonrpc":"2.0","id":null,"error":{}}`, ``, "", true},
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`, ``, "notifications/progress", false},
		{`{"jsonrpc":"2.0","id":,"result":{}}`, ``, "", false},
	} {
		id, method, failed := skim([]byte(tt.line))
		if id != tt.id || method != tt.method || failed != tt.failed {
			t.Errorf("%s: %q %q %v, want %q %q %v", tt.line, id, method, failed, tt.id, tt.method, tt.failed)
		}
	}
}
