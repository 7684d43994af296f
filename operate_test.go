package tabellion_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/maintain"
)

// operated is an open server that is called as its operator.
type operated struct {
	s   *tabellion.Server
	dir string
}

// newOperated opens one.
func newOperated(t *testing.T) operated {
	t.Helper()
	cfg := tabellion.DefaultConfig()
	cfg.Data = filepath.Join(t.TempDir(), "data")
	s, err := tabellion.Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return operated{s, cfg.Data}
}

// call calls an operation with a JSON text.
func (o operated) call(t *testing.T, ctx context.Context, operation, in string) (canonjson.Value, error) {
	t.Helper()
	v, err := canonjson.ParseStrict([]byte(in), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return o.s.Call(ctx, "me", []string{"admin"}, operation, v)
}

// must calls an operation that succeeds.
func (o operated) must(t *testing.T, operation, in string) canonjson.Value {
	t.Helper()
	out, err := o.call(t, t.Context(), operation, in)
	if err != nil {
		t.Fatalf("%s %s: %v", operation, in, err)
	}
	return out
}

// TestOperate: the operations of the operator work on the open store of a server.
func TestOperate(t *testing.T) {
	o := newOperated(t)
	o.must(t, "persistence.put", `{"namespace":"a","id":"x","kind":"k","schemaVersion":"1","expectedRevision":0,"idempotencyKey":"1","payload":1,"references":[]}`)
	if got := o.must(t, "operator.namespaces", `{}`); got.At("/namespaces/0/documents").String() != "1" || got.At("/namespaces/0/quota").String() != "10737418240" {
		t.Errorf("namespaces: %s", got)
	}
	if got := o.must(t, "operator.check", `{"readData":true}`); got.Get("documents").String() != "1" || got.Get("findings").Len() != 0 {
		t.Errorf("check: %s", got)
	}
	if got := o.must(t, "operator.audit.verify", `{}`); got.Get("damage").Len() != 0 || got.Get("rows").String() == "0" {
		t.Errorf("verify: %s", got)
	}
	read := o.must(t, "operator.audit.read", `{"operation":"persistence.put"}`)
	if read.Get("entries").Len() != 1 || read.Get("reads").Str() != filepath.Join(o.dir, "audit-reads.jsonl") {
		t.Errorf("audit: %s", read)
	}
	if got := o.must(t, "operator.retention", `{"age":"0s"}`); got.At("/namespaces/0/revisions").String() != "0" {
		t.Errorf("retention: %s", got)
	}
}

// TestOperateBackup: a backup of the open server is whole and can be restored; a second one into the same folder is
// refused, and a cancelled one counts as none.
func TestOperateBackup(t *testing.T) {
	o := newOperated(t)
	o.must(t, "persistence.put", `{"namespace":"a","id":"x","kind":"k","schemaVersion":"1","expectedRevision":0,"idempotencyKey":"1","payload":1,"references":[]}`)
	to := filepath.Join(t.TempDir(), "b")
	in := canonjson.Object(canonjson.M("to", canonjson.String(to))).String()
	if got := o.must(t, "operator.backup", in); got.Get("dir").Str() != to || got.Get("documents").String() != "1" {
		t.Errorf("backup: %s", got)
	}
	if _, err := o.call(t, t.Context(), "operator.backup", in); fault.CodeOf(err) != fault.InvalidRequest {
		t.Errorf("a second backup: %v", err)
	}
	if _, err := maintain.Restore(t.Context(), to, filepath.Join(t.TempDir(), "copy"), maintain.RestoreOptions{}); err != nil {
		t.Errorf("restore: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	other := to + "2"
	_, err := o.call(t, gone, "operator.backup", canonjson.Object(canonjson.M("to", canonjson.String(other))).String())
	if _, serr := os.Stat(filepath.Join(other, "backup.json")); err == nil || !errors.Is(serr, fs.ErrNotExist) {
		t.Errorf("a cancelled backup: %v, %v", err, serr)
	}
}
