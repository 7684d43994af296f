package persistence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/store/blob"
	"github.com/tabellion-mcp/tabellion/internal/store/memory"
	"github.com/tabellion-mcp/tabellion/internal/testkit/inproc"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// examples are arguments of a call that succeeds, for every operation. A new operation without an example fails. Names
// in braces are ids of what is prepared: see prepared.
var examples = map[string]string{
	"persistence.capabilities":   `{}`,
	"persistence.get":            `{"namespace":"ns","id":"d1"}`,
	"persistence.put":            `{"namespace":"ns","id":"d1","kind":"k","schemaVersion":"1","payload":2,"references":[],"expectedRevision":1,"idempotencyKey":"again"}`,
	"persistence.list":           `{"namespace":"ns"}`,
	"persistence.listRevisions":  `{"namespace":"ns","id":"d1"}`,
	"persistence.delete":         `{"namespace":"ns","id":"d1","expectedRevision":1,"idempotencyKey":"gone"}`,
	"persistence.purge":          `{"namespace":"ns","target":{"type":"document","id":"d2","revision":1},"idempotencyKey":"purged"}`,
	"persistence.beginArtifact":  `{"namespace":"ns","mimeType":"text/plain","size":3,"hash":{"algorithm":"sha256","value":"` + abcSum + `"},"provenance":null,"idempotencyKey":"begun"}`,
	"persistence.uploadAccess":   `{"namespace":"ns","uploadId":"{open}"}`,
	"persistence.commitArtifact": `{"namespace":"ns","uploadId":"{received}","idempotencyKey":"committed"}`,
	"persistence.abortArtifact":  `{"namespace":"ns","uploadId":"{open}","idempotencyKey":"aborted"}`,
	"persistence.getArtifact":    `{"namespace":"ns","id":"{artifact}"}`,
	"persistence.receive":        `{"namespace":"ns","uploadId":"{open}"}`,
	"persistence.download":       `{"namespace":"ns","id":"{artifact}"}`,
}

// abcSum is the SHA-256 of the three bytes "abc", which every example of an artifact has.
const abcSum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

// exampleOf is the example of an operation, with the ids of what was prepared.
func exampleOf(t *testing.T, op *catalog.Operation, ids map[string]string) string {
	t.Helper()
	text, ok := examples[op.Name]
	if !ok {
		t.Fatal("the operation has no example here")
	}
	for name, id := range ids {
		text = strings.ReplaceAll(text, "{"+name+"}", id)
	}
	return text
}

// readOnlyStore refuses every write.
type readOnlyStore struct {
	*memory.Store
	refused int
}

// Update refuses.
func (r *readOnlyStore) Update(context.Context, persistence.Commit, func(persistence.Tx) (persistence.Outcome, error)) (persistence.Outcome, error) {
	r.refused++
	return persistence.Outcome{}, persistence.ErrUnavailable
}

// readOnlyBlobs refuses every write.
type readOnlyBlobs struct {
	persistence.Blobs
	refused int
}

// Create refuses.
func (r *readOnlyBlobs) Create(context.Context) (persistence.BlobWriter, error) {
	r.refused++
	return nil, persistence.ErrUnavailable
}

// Delete refuses.
func (r *readOnlyBlobs) Delete(context.Context, persistence.Digest) error {
	r.refused++
	return persistence.ErrUnavailable
}

// fixture is what the examples are about.
type fixture struct {
	store *memory.Store
	blobs persistence.Blobs
	ids   map[string]string // open: an upload without bytes; received: one with them; artifact: a committed one
}

// server is a server over the fixture. What is superseded may be purged at once.
func (f *fixture) server(t *testing.T, store inproc.Store, blobs persistence.Blobs) *inproc.Server {
	t.Helper()
	var atOnce time.Duration
	return inproc.New(t, inproc.Config{Store: store, Blobs: blobs, Keep: &atOnce, Grants: everything})
}

// everything is a policy under which alice may do everything.
var everything = []scenario.Grant{{As: "alice", Resource: "/persistence/**",
	Capabilities: []string{"persistence.read", "persistence.write", "persistence.delete", "persistence.admin"}}}

// prepared makes a document d1 with one revision, d2 with two, two open uploads, one of them with its bytes, and an
// artifact.
func prepared(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{store: memory.New(nil), blobs: blob.NewMemory(), ids: map[string]string{}}
	s := f.server(t, f.store, f.blobs)
	must := func(tool, args string) map[string]any {
		a, err := s.Call(t.Context(), "alice", tool, []byte(args))
		if err != nil || a.IsError || a.RPC != nil {
			t.Fatal(tool, err, a)
		}
		return a.Structured.(map[string]any)
	}
	for i, document := range []string{"d1", "d2", "d2"} {
		must("persistence.put", fmt.Sprintf(`{"namespace":"ns","id":%q,"kind":"k","schemaVersion":"1","payload":1,"references":[],"expectedRevision":%d,"idempotencyKey":"first-%d"}`, document, i/2, i))
	}
	for _, name := range []string{"open", "received", "committed"} {
		u := must("persistence.beginArtifact", strings.Replace(examples["persistence.beginArtifact"], "begun", "begun-"+name, 1))
		f.ids[name] = fmt.Sprint(u["uploadId"])
		if name == "open" {
			continue
		}
		receive := operationNamed(t, "persistence.receive")
		if got := run(t, s, receive, fmt.Sprintf(`{"namespace":"ns","uploadId":%q}`, u["uploadId"])); got.code != "" {
			t.Fatal(got)
		}
		if name == "committed" {
			a := must("persistence.commitArtifact", fmt.Sprintf(`{"namespace":"ns","uploadId":%q,"idempotencyKey":"was-committed"}`, u["uploadId"]))
			f.ids["artifact"] = fmt.Sprint(a["id"])
		}
	}
	return f
}

// operationNamed finds an operation of the slot.
func operationNamed(t *testing.T, name string) *catalog.Operation {
	t.Helper()
	for _, op := range persistence.New(persistence.Config{}).Operations() {
		if op.Name == name {
			return op
		}
	}
	t.Fatalf("there is no operation %s", name)
	return nil
}

// ran is what came of a call: the code of its error, or what it gave.
type ran struct{ code, text string }

// run runs an operation as alice: a tool as it is, a route with the bytes of the examples.
func run(t *testing.T, s *inproc.Server, op *catalog.Operation, args string) ran {
	t.Helper()
	in, err := canonjson.ParseStrict([]byte(args), canonjson.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	req := gate.Request{Who: inproc.Principal("alice"), Endpoint: catalog.All, Surface: fault.Tool, Era: fault.Stateless, Name: op.Name, In: in}
	if op.Publish.Route != nil {
		req.Surface, req.Body = fault.Transfer, &catalog.Body{Reader: bytes.NewReader([]byte("abc")), Length: 3}
	}
	reply := s.Gate.Run(t.Context(), req)
	if reply.Fault != nil {
		return ran{code: string(reply.Fault.Code), text: reply.Fault.Message}
	}
	if reply.Result.Stream == nil {
		return ran{text: string(reply.Result.JSON)}
	}
	defer reply.Result.Stream.Close()
	all, err := io.ReadAll(reply.Result.Stream)
	if err != nil {
		t.Fatal(err)
	}
	return ran{text: string(all)}
}

// TestReadOnlyIsTrue runs every operation over a store and a place of bytes that refuse writes: those declared
// read-only succeed, the others do not, so that no declaration is fiction.
func TestReadOnlyIsTrue(t *testing.T) {
	for _, op := range persistence.New(persistence.Config{}).Operations() {
		t.Run(op.Name, func(t *testing.T) {
			f := prepared(t)
			store, blobs := &readOnlyStore{Store: f.store}, &readOnlyBlobs{Blobs: f.blobs}
			got := run(t, f.server(t, store, blobs), op, exampleOf(t, op, f.ids))
			readOnly, set := op.Effects.ReadOnly.Known()
			if !set {
				t.Fatal("the operation does not say whether it is read-only")
			}
			if succeeded := got.code == "" && store.refused+blobs.refused == 0; succeeded != readOnly {
				t.Errorf("declared read-only is %t, over a store that refuses writes it gave %+v", readOnly, got)
			}
			// Without the refusals the same call succeeds, or the above proves nothing.
			if got := run(t, f.server(t, f.store, f.blobs), op, exampleOf(t, op, f.ids)); got.code != "" {
				t.Errorf("the example gave %+v", got)
			}
		})
	}
}

// TestIdempotentIsTrue runs every operation twice: the second call of one that is declared idempotent answers the same
// and leaves everything as it is; that of another one does not answer the same.
func TestIdempotentIsTrue(t *testing.T) {
	for _, op := range persistence.New(persistence.Config{}).Operations() {
		t.Run(op.Name, func(t *testing.T) {
			f := prepared(t)
			s, args := f.server(t, f.store, f.blobs), exampleOf(t, op, f.ids)
			first := run(t, s, op, args)
			if first.code != "" {
				t.Fatal(first)
			}
			before := f.holds(t)
			second := run(t, s, op, args)
			idempotent, set := op.Effects.Idempotent.Known()
			if !set {
				t.Fatal("the operation does not say whether it is idempotent")
			}
			if (second == first) != idempotent {
				t.Errorf("declared idempotent is %t, second call: %+v, first %+v", idempotent, second, first)
			}
			if after := f.holds(t); after != before {
				t.Errorf("the second call changed the store from %s to %s", before, after)
			}
		})
	}
}

// TestFactsOfRoutes holds what is declared of the routes: sending the bytes again is refused, reading them changes
// nothing.
func TestFactsOfRoutes(t *testing.T) {
	for name, want := range map[string]catalog.Effects{
		"persistence.receive":  {ReadOnly: catalog.No, Idempotent: catalog.No, Destructive: catalog.No, OpenWorld: catalog.No},
		"persistence.download": {ReadOnly: catalog.Yes, Idempotent: catalog.Yes, Destructive: catalog.No, OpenWorld: catalog.No},
	} {
		got := operationNamed(t, name).Effects
		if got.ReadOnly != want.ReadOnly || got.Idempotent != want.Idempotent || got.Destructive != want.Destructive || got.OpenWorld != want.OpenWorld {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// holds is everything that an example can change: the documents, the uploads, the artifact, the bytes and the quota.
func (f *fixture) holds(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	err := f.store.View(t.Context(), func(r persistence.Reader) error {
		facts, err := r.Namespaces("", 10)
		fmt.Fprintf(&out, "%+v", facts)
		for _, id := range []string{"d1", "d2"} {
			revisions, _, rerr := r.Revisions("ns", id, 0, 10, 0)
			for _, d := range revisions {
				fmt.Fprintf(&out, " %s/%d %s", id, d.Revision, d.Payload)
			}
			err = errors.Join(err, rerr)
		}
		for _, name := range []string{"open", "received", "committed"} {
			u, ok, uerr := r.Upload("ns", f.ids[name])
			fmt.Fprintf(&out, " %s %t %s", name, ok, u.State)
			err = errors.Join(err, uerr)
		}
		_, ok, aerr := r.Artifact("ns", f.ids["artifact"])
		fmt.Fprintf(&out, " artifact %t", ok)
		return errors.Join(err, aerr)
	})
	err = errors.Join(err, f.blobs.Each(t.Context(), func(b persistence.BlobInfo) error {
		fmt.Fprintf(&out, " %s %d", b.Digest, b.Size)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
