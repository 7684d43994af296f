package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tabellion-mcp/tabellion/client"
)

// Client is what applications use of a *client.Client.
type Client interface {
	Get(ctx context.Context, namespace, id string) (*client.Document, error)
	GetRevision(ctx context.Context, namespace, id string, revision int64) (*client.Document, error)
	Put(ctx context.Context, r client.PutRequest) (*client.Document, error)
	Delete(ctx context.Context, r client.DeleteRequest) (*client.Document, error)
	Purge(ctx context.Context, r client.PurgeRequest) error
	List(ctx context.Context, r client.ListRequest) iter.Seq2[*client.Document, error]
	ListRevisions(ctx context.Context, r client.ListRevisionsRequest) iter.Seq2[*client.Document, error]
	Upload(ctx context.Context, r client.UploadRequest) (*client.Artifact, error)
	GetArtifact(ctx context.Context, namespace, id string) (*client.Artifact, error)
	Download(ctx context.Context, namespace, id string, w io.Writer, progress client.Progress) (*client.Artifact, error)
	DownloadFile(ctx context.Context, namespace, id, path string, progress client.Progress) (*client.Artifact, error)
}

var _ Client = (*client.Client)(nil)

// ClientServer is a running server, as applications reach it.
type ClientServer struct {
	// Caller gives the tools as a caller. "alice" may do everything, "nobody" nothing, and "" has no token.
	Caller func(as string) client.Caller
	// Transfer is the transfer origin, Token the token of a caller on it.
	Transfer string
	Token    func(as string) string
}

// ClientSuite says what RunClient tests.
type ClientSuite struct {
	// Open gives a new, empty server with infinite retention, and has it closed at the end of its test.
	Open func(t *testing.T) ClientServer
	// New makes the client under test. Nil is client.New.
	New func(ctx context.Context, caller client.Caller, opts client.Options) (Client, error)
}

// RunClient tests what an application relies on, in the client and the server together: the client half of the
// promises of persistence.v1.
func RunClient(t *testing.T, s ClientSuite) {
	if s.New == nil {
		s.New = func(ctx context.Context, caller client.Caller, opts client.Options) (Client, error) {
			return client.New(ctx, caller, opts)
		}
	}
	for _, test := range []struct {
		name string
		run  func(*clientRig)
	}{
		{"Documents", clientDocuments},
		{"Conflict", clientConflict},
		{"SameKey", clientSameKey},
		{"LostAnswer", clientLostAnswer},
		{"AllAnswersLost", clientAllAnswersLost},
		{"Pages", clientPages},
		{"Transfers", clientTransfers},
		{"CutTransfers", clientCutTransfers},
		{"LostCommit", clientLostCommit},
		{"CorruptedDownload", clientCorruptedDownload},
		{"Redirects", clientRedirects},
		{"Evidence", clientEvidence},
		{"Retention", clientRetention},
		{"Denied", clientDenied},
	} {
		t.Run(test.name, func(t *testing.T) {
			rig := &clientRig{T: t, suite: s, server: s.Open(t)}
			rig.proxy(t)
			test.run(rig)
		})
	}
}

// clientRig is one server, with a wire to it that the tests can disturb.
type clientRig struct {
	*testing.T
	suite  ClientSuite
	server ClientServer
	origin string // of a proxy before the transfer origin

	mu       sync.Mutex
	calls    []string                                            // tools that were called
	lose     map[string]int                                      // how many answers of a tool get lost
	transfer []func(http.ResponseWriter, *http.Request, forward) // what the next transfers meet
}

// forward sends a transfer on to the server.
type forward func(http.ResponseWriter, *http.Request)

// proxy stands before the transfer origin.
func (r *clientRig) proxy(t *testing.T) {
	target, err := url.Parse(r.server.Transfer)
	if err != nil {
		t.Fatal(err)
	}
	through := &httputil.ReverseProxy{
		Rewrite:      func(p *httputil.ProxyRequest) { p.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		var meet func(http.ResponseWriter, *http.Request, forward)
		if len(r.transfer) > 0 {
			meet, r.transfer = r.transfer[0], r.transfer[1:]
		}
		r.mu.Unlock()
		if meet == nil {
			through.ServeHTTP(w, q)
			return
		}
		meet(w, q, through.ServeHTTP)
	}))
	t.Cleanup(s.Close)
	r.origin = s.URL
}

// disturb orders what the next transfer meets.
func (r *clientRig) disturb(meet func(http.ResponseWriter, *http.Request, forward)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transfer = append(r.transfer, meet)
}

// loseAnswers lets the next calls of a tool happen and loses their answers.
func (r *clientRig) loseAnswers(tool string, times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose = map[string]int{tool: times}
}

// called counts the calls of a tool since the last time it was asked.
func (r *clientRig) called(tool string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.calls {
		if name == client.ContractName(tool) {
			n++
		}
	}
	r.calls = nil
	return n
}

// wire is a Caller that the rig disturbs.
type wire struct {
	rig  *clientRig
	next client.Caller
}

// CallTool implements client.Caller.
func (w wire) CallTool(ctx context.Context, name string, arguments json.RawMessage) (client.Result, error) {
	res, err := w.next.CallTool(ctx, name, arguments)
	w.rig.mu.Lock()
	defer w.rig.mu.Unlock()
	w.rig.calls = append(w.rig.calls, name)
	for tool, left := range w.rig.lose {
		if name == client.ContractName(tool) && left > 0 {
			w.rig.lose[tool]--
			return client.Result{}, errors.New("the answer was lost")
		}
	}
	return res, err
}

// client makes a client of a caller. It does not wait between attempts.
func (r *clientRig) client(as string) Client {
	r.Helper()
	c, err := r.suite.New(r.Context(), wire{r, r.server.Caller(as)}, client.Options{
		Transfer: r.origin, Token: r.server.Token(as),
		Retry: client.Retry{Attempts: 3, First: 1},
	})
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// noteOf is a put of a small document on a revision.
func noteOf(id string, on int64, payload string) client.PutRequest {
	return client.PutRequest{Namespace: "ns", ID: id, Kind: "note", SchemaVersion: "1", Payload: json.RawMessage(payload), ExpectedRevision: on}
}

// mustPut writes and wants a revision.
func (r *clientRig) mustPut(c Client, req client.PutRequest, want int64) *client.Document {
	r.Helper()
	d, err := c.Put(r.Context(), req)
	if err != nil {
		r.Fatalf("put %s on %d: %v", req.ID, req.ExpectedRevision, err)
	}
	if d.Revision != want || d.Namespace != req.Namespace || d.ID != req.ID || d.Deleted {
		r.Fatalf("put %s on %d gave %+v", req.ID, req.ExpectedRevision, d)
	}
	return d
}

// wants fails when an error has not this code.
func (r *clientRig) wants(err error, code client.Code) {
	r.Helper()
	if !client.IsCode(err, code) {
		r.Errorf("got %v, want %s", err, code)
	}
	if _, unknown := client.Unknown(err); unknown {
		r.Errorf("%v says that it may have happened", err)
	}
}

// history gives the revisions of a document.
func (r *clientRig) history(c Client, id string) (docs []*client.Document) {
	r.Helper()
	for d, err := range c.ListRevisions(r.Context(), client.ListRevisionsRequest{Namespace: "ns", ID: id}) {
		if err != nil {
			r.Fatal(err)
		}
		docs = append(docs, d)
	}
	return docs
}

func clientDocuments(r *clientRig) {
	c, ctx := r.client("alice"), r.Context()
	if _, err := c.Get(ctx, "ns", "plan"); err == nil {
		r.Error("a document is there before it was written")
	} else {
		r.wants(err, client.NotFound)
	}
	exact := `{"a":[1,2.5,"<&>",null,true],"":{"__proto__":9007199254740991}}`
	first := r.mustPut(c, noteOf("plan", 0, exact), 1)
	if !sameJSON(first.Payload, exact) || first.CreatedAt.IsZero() || first.Kind != "note" || first.SchemaVersion != "1" {
		r.Errorf("got %+v", first)
	}
	second := r.mustPut(c, noteOf("plan", 1, `2`), 2)
	if !second.CreatedAt.Equal(first.CreatedAt) || second.UpdatedAt.Before(first.UpdatedAt) {
		r.Errorf("times %v %v after %v", second.CreatedAt, second.UpdatedAt, first)
	}
	stone, err := c.Delete(ctx, client.DeleteRequest{Namespace: "ns", ID: "plan", ExpectedRevision: 2})
	if err != nil || !stone.Deleted || stone.Revision != 3 {
		r.Fatalf("delete: %+v %v", stone, err)
	}
	_, err = c.Get(ctx, "ns", "plan")
	r.wants(err, client.NotFound)
	if old, err := c.GetRevision(ctx, "ns", "plan", 1); err != nil || !sameJSON(old.Payload, exact) {
		r.Errorf("the old revision: %+v %v", old, err)
	}
	r.mustPut(c, noteOf("plan", 3, exact), 4) // the restoration
	if d, err := c.Get(ctx, "ns", "plan"); err != nil || d.Revision != 4 || !sameJSON(d.Payload, exact) {
		r.Errorf("restored: %+v %v", d, err)
	}
	for i, d := range r.history(c, "plan") {
		if d.Revision != int64(i+1) || d.Deleted != (i == 2) {
			r.Errorf("history at %d: %+v", i, d)
		}
	}
}

// sameJSON compares values. Numbers must be small: it is for tests.
func sameJSON(got json.RawMessage, want string) bool {
	var a, b any
	if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		return false
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func clientConflict(r *clientRig) {
	c := r.client("alice")
	r.mustPut(c, noteOf("plan", 0, `"first"`), 1)
	r.mustPut(c, noteOf("plan", 1, `"other"`), 2)
	for _, on := range []int64{0, 1, 3} {
		r.called("put")
		_, err := c.Put(r.Context(), noteOf("plan", on, `"mine"`))
		r.wants(err, client.RevisionConflict)
		if n := r.called("put"); n != 1 {
			r.Errorf("a conflict was tried %d times", n)
		}
	}
	_, err := c.Delete(r.Context(), client.DeleteRequest{Namespace: "ns", ID: "plan", ExpectedRevision: 1})
	r.wants(err, client.RevisionConflict)
	if d, err := c.Get(r.Context(), "ns", "plan"); err != nil || string(d.Payload) != `"other"` {
		r.Errorf("the other's revision is gone: %+v %v", d, err)
	}
	r.mustPut(c, noteOf("plan", 2, `"both"`), 3)
}

func clientSameKey(r *clientRig) {
	c := r.client("alice")
	req := noteOf("plan", 0, `"first"`)
	req.IdempotencyKey = "key-1"
	r.mustPut(c, req, 1)
	r.mustPut(c, noteOf("plan", 1, `"second"`), 2)
	if d := r.mustPut(c, req, 1); string(d.Payload) != `"first"` {
		r.Errorf("the replay gave %s", d.Payload)
	}
	req.Payload = json.RawMessage(`"changed"`)
	_, err := c.Put(r.Context(), req)
	r.wants(err, client.IdempotencyConflict)
	if n := len(r.history(c, "plan")); n != 2 {
		r.Errorf("%d revisions", n)
	}
}

func clientLostAnswer(r *clientRig) {
	c := r.client("alice")
	r.loseAnswers("put", 2)
	r.mustPut(c, noteOf("plan", 0, `1`), 1)
	r.loseAnswers("put", 1)
	r.mustPut(c, noteOf("plan", 1, `2`), 2)
	r.loseAnswers("delete", 1)
	stone, err := c.Delete(r.Context(), client.DeleteRequest{Namespace: "ns", ID: "plan", ExpectedRevision: 2})
	if err != nil || stone.Revision != 3 {
		r.Errorf("delete: %+v %v", stone, err)
	}
	if n := len(r.history(c, "plan")); n != 3 {
		r.Errorf("%d revisions after three writes", n)
	}
}

func clientAllAnswersLost(r *clientRig) {
	c := r.client("alice")
	r.loseAnswers("put", 3)
	req := noteOf("plan", 0, `1`)
	_, err := c.Put(r.Context(), req)
	key, unknown := client.Unknown(err)
	if !unknown || key == "" {
		r.Fatalf("three answers were lost: %v", err)
	}
	req.IdempotencyKey = key
	r.mustPut(c, req, 1)
	if n := len(r.history(c, "plan")); n != 1 {
		r.Errorf("%d revisions", n)
	}
}

// manyDocuments is more than two pages of the default size.
const manyDocuments = 120

func clientPages(r *clientRig) {
	c := r.client("alice")
	var all, even, live []string
	for i := range manyDocuments {
		id := fmt.Sprintf("d%03d", i)
		req := noteOf(id, 0, `{}`)
		all = append(all, id)
		if i%2 == 0 {
			req.Kind = "even"
			even = append(even, id)
		}
		r.mustPut(c, req, 1)
		if i%10 != 5 {
			live = append(live, id)
			continue
		}
		if _, err := c.Delete(r.Context(), client.DeleteRequest{Namespace: "ns", ID: id, ExpectedRevision: 1}); err != nil {
			r.Fatal(err)
		}
	}
	for _, size := range []int{0, 1, 7, 60, 119, 120, 200} {
		r.lists(c, client.ListRequest{Namespace: "ns", PageSize: size, IncludeDeleted: true}, all)
		r.lists(c, client.ListRequest{Namespace: "ns", PageSize: size}, live)
		r.lists(c, client.ListRequest{Namespace: "ns", PageSize: size, Kind: "even"}, even)
	}
	r.lists(c, client.ListRequest{Namespace: "elsewhere"}, nil)
	for _, err := range c.List(r.Context(), client.ListRequest{Namespace: "ns", PageSize: 201}) {
		r.wants(err, client.InvalidRequest)
	}
	r.lists(r.client("nobody"), client.ListRequest{Namespace: "ns", PageSize: 50}, nil) // page after empty page
}

// lists compares the ids of a list, in order.
func (r *clientRig) lists(c Client, req client.ListRequest, want []string) {
	r.Helper()
	var got []string
	for d, err := range c.List(r.Context(), req) {
		if err != nil {
			r.Fatalf("%+v: %v", req, err)
		}
		got = append(got, d.ID)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.Errorf("%+v gave %d documents, want %d:\n%v", req, len(got), len(want), got)
	}
}

// content is n bytes that do not repeat early.
func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + i>>16)
	}
	return b
}

// tape notes what a Progress was told.
type tape struct {
	rig   *clientRig
	total int64
	seen  []int64
}

// progress is the Progress.
func (p *tape) progress(done, total int64) {
	if n := len(p.seen); total != p.total || n > 0 && done < p.seen[n-1] || done > total {
		p.rig.Errorf("progress %d of %d after %v", done, total, p.seen)
	}
	p.seen = append(p.seen, done)
}

// ended checks that the end was told once, at the end.
func (p *tape) ended() {
	p.rig.Helper()
	n := len(p.seen)
	if n == 0 || p.seen[n-1] != p.total || n > 1 && p.seen[n-2] == p.total {
		p.rig.Errorf("progress of %d bytes ended with %v", p.total, p.seen[max(0, n-3):])
	}
}

// mustUpload makes an artifact of bytes.
func (r *clientRig) mustUpload(c Client, b []byte) *client.Artifact {
	r.Helper()
	p := &tape{rig: r, total: int64(len(b))}
	a, err := c.Upload(r.Context(), client.UploadRequest{
		Namespace: "ns", MimeType: "image/png", Provenance: json.RawMessage(`{"tool":"capture"}`), Body: bytes.NewReader(b), Progress: p.progress,
	})
	if err != nil {
		r.Fatalf("upload of %d bytes: %v", len(b), err)
	}
	p.ended()
	if a.Size != int64(len(b)) || a.MimeType != "image/png" || !sameJSON(a.Provenance, `{"tool":"capture"}`) {
		r.Errorf("artifact %+v", a)
	}
	return a
}

// downloads compares an artifact's bytes.
func (r *clientRig) downloads(c Client, id string, want []byte) {
	r.Helper()
	p := &tape{rig: r, total: int64(len(want))}
	var got bytes.Buffer
	if _, err := c.Download(r.Context(), "ns", id, &got, p.progress); err != nil {
		r.Errorf("download of %d bytes: %v", len(want), err)
		return
	}
	p.ended()
	if !bytes.Equal(got.Bytes(), want) {
		r.Errorf("%d bytes came back of %d", got.Len(), len(want))
	}
}

func clientTransfers(r *clientRig) {
	c := r.client("alice")
	for _, size := range []int{0, 1, 5 << 20} {
		b := content(size)
		a := r.mustUpload(c, b)
		r.downloads(c, a.ID, b)
		if known, err := c.GetArtifact(r.Context(), "ns", a.ID); err != nil || known.Hash != a.Hash || known.Size != a.Size {
			r.Errorf("%+v %v, want %+v", known, err, a)
		}
		path := filepath.Join(r.TempDir(), "file")
		if _, err := c.DownloadFile(r.Context(), "ns", a.ID, path, nil); err != nil {
			r.Error(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b) {
			r.Errorf("the file has %d bytes: %v", len(got), err)
		}
	}
	if a, b := r.mustUpload(c, content(9)), r.mustUpload(c, content(9)); a.ID == b.ID {
		r.Error("two uploads of equal bytes gave one artifact")
	}
}

// cutter is an answer that is cut after so many bytes of its body.
type cutter struct {
	http.ResponseWriter
	left int
}

// Write implements http.ResponseWriter.
func (c *cutter) Write(p []byte) (int, error) {
	if len(p) >= c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left]) // the connection ends here in any case
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

func clientCutTransfers(r *clientRig) {
	c, b := r.client("alice"), content(1<<20)
	r.disturb(func(_ http.ResponseWriter, q *http.Request, _ forward) {
		_, _ = io.CopyN(io.Discard, q.Body, 300000)
		panic(http.ErrAbortHandler)
	})
	a := r.mustUpload(c, b)
	r.disturb(func(_ http.ResponseWriter, q *http.Request, next forward) {
		next(httptest.NewRecorder(), q) // it arrives, and nobody hears of it
		panic(http.ErrAbortHandler)
	})
	again := r.mustUpload(c, b)
	for _, id := range []string{a.ID, again.ID} {
		r.disturb(func(w http.ResponseWriter, q *http.Request, next forward) { next(&cutter{w, 300000}, q) })
		r.downloads(c, id, b)
	}
}

func clientLostCommit(r *clientRig) {
	c, b := r.client("alice"), content(1000)
	for _, tool := range []string{"beginArtifact", "commitArtifact"} {
		r.loseAnswers(tool, 2)
		r.downloads(c, r.mustUpload(c, b).ID, b)
	}
	r.loseAnswers("commitArtifact", 3)
	req := client.UploadRequest{Namespace: "ns", MimeType: "image/png", Body: bytes.NewReader(b)}
	_, err := c.Upload(r.Context(), req)
	key, unknown := client.Unknown(err)
	if !unknown {
		r.Fatalf("all answers of the commit were lost: %v", err)
	}
	req.Key, req.Body = key, bytes.NewReader(b)
	a, err := c.Upload(r.Context(), req)
	if err != nil {
		r.Fatalf("the same upload again: %v", err)
	}
	r.downloads(c, a.ID, b)
}

// flipper is an answer in which one bit of the body is wrong.
type flipper struct {
	http.ResponseWriter
	done bool
}

// Write implements http.ResponseWriter.
func (f *flipper) Write(p []byte) (int, error) {
	if !f.done && len(p) > 0 {
		p = bytes.Clone(p)
		p[len(p)/2] ^= 4
		f.done = true
	}
	return f.ResponseWriter.Write(p)
}

func clientCorruptedDownload(r *clientRig) {
	c, b := r.client("alice"), content(100000)
	a := r.mustUpload(c, b)
	flip := func(w http.ResponseWriter, q *http.Request, next forward) { next(&flipper{ResponseWriter: w}, q) }
	r.disturb(flip)
	told := int64(0)
	_, err := c.Download(r.Context(), "ns", a.ID, io.Discard, func(done, _ int64) { told = done })
	r.wants(err, client.IntegrityError)
	if told == a.Size {
		r.Error("progress told of the end of a download that was refused")
	}
	dir := r.TempDir()
	r.disturb(flip)
	_, err = c.DownloadFile(r.Context(), "ns", a.ID, filepath.Join(dir, "file"), nil)
	r.wants(err, client.IntegrityError)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		r.Errorf("the folder holds %v (%v)", left, err)
	}
	r.downloads(c, a.ID, b)
}

func clientRedirects(r *clientRig) {
	c, b := r.client("alice"), content(1000)
	a := r.mustUpload(c, b)
	trap := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		r.Errorf("%s followed a redirect; its token arrived: %v", q.Method, q.Header.Get("Authorization") != "")
	}))
	defer trap.Close()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		send := func(w http.ResponseWriter, q *http.Request, _ forward) {
			http.Redirect(w, q, trap.URL+q.URL.Path, status)
		}
		r.disturb(send)
		if _, err := c.Download(r.Context(), "ns", a.ID, io.Discard, nil); err == nil || client.Retryable(err) {
			r.Errorf("download, redirected with %d: %v", status, err)
		}
		r.disturb(send)
		if _, err := c.Upload(r.Context(), client.UploadRequest{Namespace: "ns", MimeType: "a/b", Body: bytes.NewReader(b)}); err == nil || client.Retryable(err) {
			r.Errorf("upload, redirected with %d: %v", status, err)
		}
	}
	r.downloads(c, a.ID, b)
}

func clientEvidence(r *clientRig) {
	c := r.client("alice")
	r.mustPut(c, noteOf("view", 0, `"as seen"`), 1)
	capture := r.mustUpload(c, content(1000))
	mission := noteOf("mission", 0, `"brief"`)
	mission.References = []client.Reference{client.RefDocument("ns", "view", 1), client.RefArtifact("ns", capture.ID)}
	r.mustPut(c, mission, 1)
	r.mustPut(c, noteOf("view", 1, `"changed"`), 2)
	got, err := c.Get(r.Context(), "ns", "mission")
	if err != nil || fmt.Sprint(got.References) != fmt.Sprint(mission.References) {
		r.Fatalf("%+v %v", got, err)
	}
	view := got.References[0]
	if d, err := c.GetRevision(r.Context(), view.Namespace, view.ID, view.Revision); err != nil || string(d.Payload) != `"as seen"` {
		r.Errorf("the cited view: %+v %v", d, err)
	}
	r.downloads(c, got.References[1].ID, content(1000))
	for _, absent := range []client.Reference{client.RefDocument("ns", "view", 9), client.RefArtifact("ns", "none")} {
		wrong := noteOf("other", 0, `1`)
		wrong.References = []client.Reference{absent}
		_, err := c.Put(r.Context(), wrong)
		r.wants(err, client.NotFound)
	}
}

func clientRetention(r *clientRig) {
	c := r.client("alice")
	r.mustPut(c, noteOf("plan", 0, `1`), 1)
	r.mustPut(c, noteOf("plan", 1, `2`), 2)
	a := r.mustUpload(c, content(1))
	for _, target := range []client.Target{client.TargetDocument("plan", 1), client.TargetDocument("plan", 2), client.TargetArtifact(a.ID)} {
		r.wants(c.Purge(r.Context(), client.PurgeRequest{Namespace: "ns", Target: target}), client.RetentionBlocked)
	}
	r.wants(c.Purge(r.Context(), client.PurgeRequest{Namespace: "ns", Target: client.TargetDocument("plan", 7)}), client.NotFound)
	if n := len(r.history(c, "plan")); n != 2 {
		r.Errorf("%d revisions", n)
	}
}

func clientDenied(r *clientRig) {
	alice, nobody := r.client("alice"), r.client("nobody")
	r.mustPut(alice, noteOf("plan", 0, `1`), 1)
	a := r.mustUpload(alice, content(10))
	ctx := r.Context()
	_, get := nobody.Get(ctx, "ns", "plan")
	_, absent := nobody.Get(ctx, "ns", "absent")
	_, put := nobody.Put(ctx, noteOf("plan", 1, `2`))
	_, remove := nobody.Delete(ctx, client.DeleteRequest{Namespace: "ns", ID: "plan", ExpectedRevision: 1})
	_, up := nobody.Upload(ctx, client.UploadRequest{Namespace: "ns", MimeType: "a/b", Body: bytes.NewReader(nil)})
	_, down := nobody.Download(ctx, "ns", a.ID, io.Discard, nil)
	for _, err := range []error{get, absent, put, remove, up, down} {
		r.wants(err, client.PolicyDenied)
		if code := rpcOf(err); code != 0 {
			r.Errorf("a denial came as JSON-RPC error %d: %v", code, err)
		}
	}
	if get.Error() != absent.Error() {
		r.Errorf("a denial tells what is there:\n%v\n%v", get, absent)
	}
	// Nobody at all is refused before the tool runs: the same code, by a JSON-RPC error.
	_, err := r.suite.New(ctx, r.server.Caller(""), client.Options{Transfer: r.origin})
	r.wants(err, client.PolicyDenied)
	if rpcOf(err) != -32001 {
		r.Errorf("a call without a token: %v", err)
	}
}

// rpcOf is the code of the JSON-RPC error that carried a failure, 0 for none.
func rpcOf(err error) int {
	var e *client.Error
	if errors.As(err, &e) {
		return e.RPC
	}
	return 0
}
