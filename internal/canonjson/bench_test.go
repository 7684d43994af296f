package canonjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// frame is a tools/call of about 1.5 KB as a durable write sends it.
var frame = makeFrame()

// makeFrame builds the benchmark's request.
func makeFrame() []byte {
	var sections []string
	for i := range 6 {
		sections = append(sections, fmt.Sprintf(
			`{"id":"s%d","title":"Section %d of the plan","words":%d,"weight":%d.25,"done":false,"tags":["draft","plan"],"text":"Lines with \"quotes\" and\nbreaks, %s."}`,
			i, i, 100+i, i, strings.Repeat("more words ", 4)))
	}
	return []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"put","arguments":{` +
		`"namespace":"acme","id":"plan-2026","expectedRevision":3,"idempotencyKey":"0f8b5f0e-5c5e-4b1e-9a76-3a3b1c2d4e5f",` +
		`"payload":{"title":"Plan","sections":[` + strings.Join(sections, ",") + `]},"provenance":{"agent":"planner","run":"r-81"}},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
}

func BenchmarkParse(b *testing.B) {
	b.Run("canonjson", func(b *testing.B) {
		b.SetBytes(int64(len(frame)))
		b.ReportAllocs()
		for b.Loop() {
			if _, flaw, err := canonjson.Parse(frame, canonjson.Limits{}); flaw != nil || err != nil {
				b.Fatal(flaw, err)
			}
		}
	})
	b.Run("encoding-json-any", func(b *testing.B) {
		b.SetBytes(int64(len(frame)))
		b.ReportAllocs()
		for b.Loop() {
			d := json.NewDecoder(bytes.NewReader(frame))
			d.UseNumber()
			var v any
			if err := d.Decode(&v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json-valid", func(b *testing.B) {
		b.SetBytes(int64(len(frame)))
		b.ReportAllocs()
		for b.Loop() {
			if !json.Valid(frame) {
				b.Fatal("not valid")
			}
		}
	})
}

func BenchmarkCanonical(b *testing.B) {
	v, _, err := canonjson.Parse(frame, canonjson.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("canonjson", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = v.AppendCanonical(buf[:0])
		}
		b.SetBytes(int64(len(buf)))
	})
	b.Run("canonjson-as-written", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = v.AppendJSON(buf[:0])
		}
		b.SetBytes(int64(len(buf)))
	})
	b.Run("encoding-json-any", func(b *testing.B) {
		b.ReportAllocs()
		var tree any
		if err := json.Unmarshal(frame, &tree); err != nil {
			b.Fatal(err)
		}
		var n int
		for b.Loop() {
			text, err := json.Marshal(tree)
			if err != nil {
				b.Fatal(err)
			}
			n = len(text)
		}
		b.SetBytes(int64(n))
	})
}
