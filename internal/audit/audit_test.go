package audit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// fullEntry has every member set.
func fullEntry() audit.Entry {
	return audit.Entry{
		Time: time.Date(2026, 11, 30, 13, 14, 15, 123_456_789, time.FixedZone("x", 3600)), Correlation: "c1", Kind: audit.KindEffect,
		Subject: "user:ana", Method: "key", Tenant: "t", Client: "192.0.2.1", Surface: "tool", Operation: "persistence.put",
		Target: "/persistence/namespaces/a/documents/\"b\"\u0007\u2028\U0001F600", Targets: 3, Decision: "allow", Rule: "assignments[0]",
		Input: "sha256:00", Outcome: "ok", Revision: 1<<53 - 1, Count: 2, SurfaceHash: "ff", Note: "n\xffn",
	}
}

func TestEncodeIsCanonical(t *testing.T) {
	full := fullEntry()
	for _, e := range []audit.Entry{full, {}, {Kind: audit.KindRead, Tenant: "t"}} {
		row := e.Encode()
		v, err := canonjson.ParseStrict(row, canonjson.Limits{})
		if err != nil {
			t.Fatalf("row %s: %v", row, err)
		}
		if got := string(v.AppendCanonical(nil)); got != string(row) {
			t.Errorf("the row is not canonical:\n got %s\nwant %s", row, got)
		}
	}
	v, _ := canonjson.ParseStrict(full.Encode(), canonjson.Limits{})
	if v.Len() != 19 {
		t.Errorf("a full entry has %d members, want 19", v.Len())
	}
	if got := v.Get("time").Str(); got != "2026-11-30T12:14:15.123456Z" {
		t.Errorf("time %q, want UTC in microseconds", got)
	}
	if got := v.Get("note").Str(); got != "n\ufffdn" {
		t.Errorf("note %q", got)
	}
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	e := audit.Entry{Kind: audit.KindRead}
	line := string(e.Append([]byte("before\n")))
	if !strings.HasPrefix(line, "before\n{\"kind\":\"read\",") {
		t.Errorf("appended %q", line)
	}
}

func TestGenesisBindsTheWriter(t *testing.T) {
	if audit.Genesis("a") == audit.Genesis("b") {
		t.Error("two writers begin with the same hash")
	}
	if audit.Link(audit.Genesis("a"), []byte("x")) == audit.Link(audit.Genesis("a"), []byte("y")) {
		t.Error("two rows have the same hash")
	}
}

func BenchmarkAppend(b *testing.B) {
	e := fullEntry()
	e.Note = "a note"
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = e.Append(buf[:0])
	}
}
