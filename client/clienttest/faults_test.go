package clienttest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/client"
	"github.com/tabellion-mcp/tabellion/client/clienttest"
)

// plan is a put of the document that the tests write.
func plan(on int64, payload string) client.PutRequest {
	return client.PutRequest{Namespace: "ns", ID: "plan", Kind: "note", SchemaVersion: "1", Payload: json.RawMessage(payload), ExpectedRevision: on}
}

// once is a client that tries once, so that a fault reaches the test.
func once(t *testing.T, s *clienttest.Server) *client.Client {
	t.Helper()
	c, err := client.New(t.Context(), s.Caller("ana"), client.Options{
		Transfer: s.TransferURL(), Token: s.Token("ana"), Retry: client.Retry{Attempts: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// head is the number of the newest revision, 0 for none.
func head(t *testing.T, c *client.Client) (n int64) {
	t.Helper()
	for d, err := range c.ListRevisions(t.Context(), client.ListRevisionsRequest{Namespace: "ns", ID: "plan"}) {
		if client.IsCode(err, client.NotFound) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		n = d.Revision
	}
	return n
}

func TestFail(t *testing.T) {
	for _, code := range client.Codes {
		s := clienttest.New(t)
		c := once(t, s)
		s.Fail("put", code, 1)
		if _, err := c.Put(t.Context(), plan(0, `1`)); !client.IsCode(err, code) || head(t, c) != 0 {
			t.Errorf("%s: got %v, head %d", code, err, head(t, c))
		}
		if _, err := c.Put(t.Context(), plan(0, `1`)); err != nil {
			t.Errorf("%s: the fault stays: %v", code, err)
		}
	}
	s := clienttest.New(t)
	c := once(t, s)
	s.FailRPC("", -32001, 1)
	_, err := c.Get(t.Context(), "ns", "plan")
	var e *client.Error
	if !errors.As(err, &e) || e.Code != client.PolicyDenied || e.RPC != -32001 {
		t.Errorf("got %v", err)
	}
	if calls := s.Calls(); len(calls) != 2 || calls[1].Tool != "get" || calls[1].As != "ana" || string(calls[1].Arguments) != `{"namespace":"ns","id":"plan"}` {
		t.Errorf("calls %+v", calls)
	}
}

func TestBusy(t *testing.T) {
	s := clienttest.New(t)
	c := s.Client(t, "ana")
	s.Busy(4)
	if _, err := c.Put(t.Context(), plan(0, `1`)); err != nil {
		t.Error(err)
	}
	s.Busy(5)
	if _, err := c.Put(t.Context(), plan(1, `2`)); !client.IsCode(err, client.Busy) || head(t, c) != 1 {
		t.Errorf("five times busy: %v", err)
	}
}

func TestLoseAnswers(t *testing.T) {
	s := clienttest.New(t)
	c := once(t, s)
	s.LoseAnswers(1)
	if _, err := c.Put(t.Context(), plan(7, `1`)); !client.IsCode(err, client.RevisionConflict) {
		t.Errorf("a write that fails is no effect: %v", err)
	}
	_, err := c.Put(t.Context(), plan(0, `1`))
	key, unknown := client.Unknown(err)
	if !errors.Is(err, clienttest.ErrLost) || !unknown || head(t, c) != 1 {
		t.Fatalf("got %v, head %d", err, head(t, c))
	}
	again := plan(0, `1`)
	again.IdempotencyKey = key
	if d, err := c.Put(t.Context(), again); err != nil || d.Revision != 1 {
		t.Errorf("%+v %v", d, err)
	}
	if _, err := c.Put(t.Context(), plan(0, `1`)); !client.IsCode(err, client.RevisionConflict) {
		t.Errorf("another key: %v", err)
	}
}

func TestOvertake(t *testing.T) {
	s := clienttest.New(t)
	c := s.Client(t, "ana")
	s.Overtake(plan(0, `"theirs"`))
	other := plan(0, `1`)
	other.ID = "other"
	if _, err := c.Put(t.Context(), other); err != nil || head(t, c) != 0 {
		t.Errorf("another document was overtaken: %v", err)
	}
	if _, err := c.Put(t.Context(), plan(0, `"mine"`)); !client.IsCode(err, client.RevisionConflict) {
		t.Fatalf("got %v", err)
	}
	if d, err := c.Get(t.Context(), "ns", "plan"); err != nil || string(d.Payload) != `"theirs"` {
		t.Fatalf("%+v %v", d, err)
	}
	s.Overtake(plan(0, `"theirs again"`))
	if _, err := c.Delete(t.Context(), client.DeleteRequest{Namespace: "ns", ID: "plan", ExpectedRevision: 1}); !client.IsCode(err, client.RevisionConflict) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Put(t.Context(), plan(2, `"both"`)); err != nil {
		t.Error(err)
	}
}

func TestTransferFaults(t *testing.T) {
	s := clienttest.New(t)
	patient, hasty := s.Client(t, "ana"), once(t, s)
	content := bytes.Repeat([]byte("tabellion"), 50000)
	upload := func(c *client.Client) (*client.Artifact, error) {
		return c.Upload(t.Context(), client.UploadRequest{Namespace: "ns", MimeType: "a/b", Body: bytes.NewReader(content)})
	}
	for _, after := range []int64{0, 1, 100000, int64(len(content))} {
		s.CutUpload(after)
		if _, err := upload(hasty); err == nil {
			t.Errorf("an upload cut after %d bytes succeeds", after)
		}
		s.CutUpload(after)
		if _, err := upload(patient); err != nil {
			t.Errorf("an upload cut after %d bytes, again: %v", after, err)
		}
	}
	a, err := upload(hasty)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{0, 1, 65535, 65536, int64(len(content) - 1)} {
		s.CutDownload(at)
		var e *client.Error
		if _, err := hasty.Download(t.Context(), "ns", a.ID, io.Discard, nil); !errors.As(err, &e) || !e.Lost() {
			t.Errorf("a download cut after %d bytes: %v", at, err)
		}
		s.CorruptDownload(at)
		if _, err := hasty.Download(t.Context(), "ns", a.ID, io.Discard, nil); !client.IsCode(err, client.IntegrityError) {
			t.Errorf("a download changed at %d: %v", at, err)
		}
		s.CutDownload(at)
		var got bytes.Buffer
		if _, err := patient.Download(t.Context(), "ns", a.ID, &got, nil); err != nil || !bytes.Equal(got.Bytes(), content) {
			t.Errorf("a download cut after %d bytes, again: %d bytes, %v", at, got.Len(), err)
		}
	}
}

// TestClockAndRetention holds that time can be moved: cursors, uploads and retention follow.
func TestClockAndRetention(t *testing.T) {
	week := 7 * 24 * time.Hour
	s := clienttest.NewWith(t, clienttest.Options{Retention: &week})
	c := s.Client(t, "ana")
	for i := range int64(3) {
		if _, err := c.Put(t.Context(), plan(i, `1`)); err != nil {
			t.Fatal(err)
		}
	}
	old := client.PurgeRequest{Namespace: "ns", Target: client.TargetDocument("plan", 1)}
	if err := c.Purge(t.Context(), old); !client.IsCode(err, client.RetentionBlocked) {
		t.Errorf("young: %v", err)
	}
	p, err := c.BeginArtifact(t.Context(), client.BeginRequest{Namespace: "ns", MimeType: "a/b", Size: 1, Hash: client.SHA256("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range c.ListRevisions(t.Context(), client.ListRevisionsRequest{Namespace: "ns", ID: "plan", PageSize: 1}) {
		if n++; n == 2 && !client.IsCode(err, client.InvalidRequest) {
			t.Errorf("an old cursor: %v", err)
		}
		s.Advance(15 * time.Minute)
	}
	if n != 2 {
		t.Errorf("%d turns", n)
	}
	s.Advance(week)
	if _, err := c.UploadAccess(t.Context(), "ns", p.UploadID); !client.IsCode(err, client.NotFound) {
		t.Errorf("an expired upload: %v", err)
	}
	if err := c.Purge(t.Context(), old); err != nil {
		t.Errorf("old enough: %v", err)
	}
	if _, err := c.GetRevision(t.Context(), "ns", "plan", 1); !client.IsCode(err, client.NotFound) {
		t.Errorf("purged: %v", err)
	}
}

func TestAbort(t *testing.T) {
	s := clienttest.New(t)
	c := s.Client(t, "ana")
	p, err := c.BeginArtifact(t.Context(), client.BeginRequest{Namespace: "ns", MimeType: "a/b", Size: 0, Hash: client.SHA256("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.UploadAccess(t.Context(), "ns", p.UploadID); err != nil || *got != *p {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := c.CommitArtifact(t.Context(), "ns", p.UploadID, ""); !client.IsCode(err, client.TransferIncomplete) {
		t.Errorf("commit before the bytes: %v", err)
	}
	if err := c.AbortArtifact(t.Context(), "ns", p.UploadID, ""); err != nil {
		t.Error(err)
	}
	if _, err := c.UploadAccess(t.Context(), "ns", p.UploadID); !client.IsCode(err, client.NotFound) {
		t.Errorf("aborted: %v", err)
	}
}

func TestForbid(t *testing.T) {
	s := clienttest.NewWith(t, clienttest.Options{MaxDocumentBytes: 10, MaxPageSize: 5})
	c := s.Client(t, "ana")
	if l := c.Capabilities().Limits; l.MaxDocumentBytes != 10 || l.MaxPageSize != 5 || l.MaxArtifactBytes != 1<<30 {
		t.Errorf("limits %+v", l)
	}
	s.Forbid("ana", "/persistence/namespaces/ns/**", "persistence.write")
	if _, err := c.Put(t.Context(), plan(0, `1`)); !client.IsCode(err, client.PolicyDenied) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Get(t.Context(), "ns", "plan"); !client.IsCode(err, client.NotFound) {
		t.Errorf("reading was not forbidden: %v", err)
	}
	if _, err := s.Client(t, "bea").Put(t.Context(), plan(0, `1`)); err != nil {
		t.Errorf("nobody forbade bea: %v", err)
	}
}

// TestWithoutTest holds that a server needs no test, and that Close ends it.
func TestWithoutTest(t *testing.T) {
	s := clienttest.New(nil)
	if res, err := http.Get(s.TransferURL() + "/"); err != nil || res.StatusCode != http.StatusNotFound {
		t.Errorf("%v %v", res, err)
	} else {
		res.Body.Close()
	}
	s.Close()
	s.Close()
	if res, err := http.Get(s.TransferURL() + "/"); err == nil {
		res.Body.Close()
		t.Error("it serves after Close")
	}
}
