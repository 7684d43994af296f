package workload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
)

// The habits of clients with artifacts.
const (
	defaultMaxBytes = 300 << 10 // of an artifact
	sharedContents  = 6         // contents that several uploads declare, so that their bytes are stored once
	shelfSize       = 24        // uploads that clients go back to
	fewUploads      = 4         // fewer uploads than this on the shelf: another one is opened
	mimeType        = "application/octet-stream"
)

// Shelf holds the uploads that the clients of a run work on, all of them on all, so that they meet. What it says of an
// upload is what somebody was told last: good enough to choose what to do next. It is safe for concurrent use.
type Shelf struct {
	mu  sync.Mutex
	ups []*upload
}

// NewShelf makes an empty shelf.
func NewShelf() *Shelf { return &Shelf{} }

// upload is an upload on the shelf. Its state is guarded by the shelf's lock.
type upload struct {
	key, id, artifact string // the Begin's key; the ids without the namespace
	content           content
	sum               string       // SHA-256 of the content, in hexadecimal digits
	state             history.Kind // last success: Begin, Receive, Commit, or what closed it
}

// content makes bytes again and again, so that they need not be kept.
type content struct {
	seed uint64
	size int
}

// bytes makes the bytes.
func (c content) bytes() []byte {
	src := rand.NewChaCha8([32]byte{byte(c.seed), byte(c.seed >> 8), byte(c.seed >> 16), byte(c.seed >> 24), byte(c.seed >> 32), byte(c.seed >> 40)})
	b := make([]byte, c.size)
	src.Read(b) // never fails
	return b
}

// sha256 is the digest of the bytes, in hexadecimal digits.
func (c content) sha256() string {
	sum := sha256.Sum256(c.bytes())
	return hex.EncodeToString(sum[:])
}

// put adds an upload, and forgets the oldest when there are many.
func (s *Shelf) put(u *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ups = append(s.ups, u)
	if len(s.ups) > shelfSize {
		s.ups = s.ups[1:]
	}
}

// learn notes what an operation did to an upload.
func (s *Shelf) learn(u *upload, op history.Op) {
	if op.Kind == history.Begin && op.Outcome == history.OK {
		u.id, u.artifact = op.UploadID, op.Artifact[len(Namespace)+1:]
		s.put(u)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case op.Outcome == history.OK && !op.Kind.Reads():
		u.state = op.Kind
	case op.Outcome == history.Refused && op.Kind == history.Receive && op.Code == "invalid_request":
		u.state = history.Receive
	}
}

// pick chooses an upload and says where it stands; nil when there are too few.
func (s *Shelf) pick(rng *rand.Rand) (*upload, history.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ups) < fewUploads {
		return nil, 0
	}
	u := s.ups[rng.IntN(len(s.ups))]
	return u, u.state
}

// published is the id of an artifact that exists, as far as is known, or "".
func (s *Shelf) published(rng *rand.Rand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 4 {
		if len(s.ups) == 0 {
			return ""
		}
		if u := s.ups[rng.IntN(len(s.ups))]; u.state == history.Commit {
			return u.artifact
		}
	}
	return ""
}

// artifact does one operation of artifacts.
func (c *Client) artifact(ctx context.Context, caller Caller) error {
	u, state := c.cfg.Shelf.pick(c.rng)
	if u == nil || c.rng.IntN(5) == 0 {
		return c.begin(ctx, caller)
	}
	dice := c.rng.IntN(100)
	switch state {
	case history.Begin:
		switch {
		case dice < 75:
			return c.send(ctx, caller, u)
		case dice < 85:
			return c.onUpload(ctx, caller, u, history.Commit)
		case dice < 95:
			return c.onUpload(ctx, caller, u, history.Abort)
		}
	case history.Receive:
		switch {
		case dice < 70:
			return c.onUpload(ctx, caller, u, history.Commit)
		case dice < 80:
			return c.send(ctx, caller, u)
		case dice < 95:
			return c.onUpload(ctx, caller, u, history.Abort)
		}
	case history.Commit:
		switch {
		case dice < 10:
			return c.onUpload(ctx, caller, u, history.Commit)
		case dice < 30 && c.cfg.Purges > 0:
			return c.purgeArtifact(ctx, caller, u)
		}
	}
	return c.fetch(ctx, caller, u)
}

// contentOf chooses what an upload is to hold.
func (c *Client) contentOf() content {
	most := c.cfg.MaxBytes
	if most == 0 {
		most = defaultMaxBytes
	}
	rng, seed := c.rng, c.rng.Uint64()
	if shared := c.rng.IntN(100) < 35; shared {
		seed = uint64(c.rng.IntN(sharedContents))
		rng = rand.New(rand.NewPCG(seed, 99)) // its size goes with it
	}
	switch dice := rng.IntN(100); {
	case dice < 5:
		return content{seed, 0}
	case dice < 50:
		return content{seed, 1 + rng.IntN(min(most, 1<<10))}
	case dice < 85:
		return content{seed, 1 + rng.IntN(min(most, 32<<10))}
	}
	return content{seed, 1 + rng.IntN(most)}
}

// opOn is an operation on an upload.
func (c *Client) opOn(u *upload, kind history.Kind) history.Op {
	op := history.Op{Client: c.n, Kind: kind, Upload: u.key, UploadID: u.id, Content: u.sum, MIME: mimeType, Size: int64(u.content.size)}
	if u.artifact != "" {
		op.Artifact = Namespace + "/" + u.artifact
	}
	return op
}

// begin opens an upload.
func (c *Client) begin(ctx context.Context, caller Caller) error {
	u := &upload{key: c.key(), content: c.contentOf(), state: history.Begin}
	u.sum = u.content.sha256()
	p := &pending{op: c.opOn(u, history.Begin), tool: "persistence.beginArtifact", up: u}
	p.op.Key = u.key
	p.args = fmt.Appendf(nil, `{"namespace":%q,"mimeType":%q,"size":%d,"hash":{"algorithm":"sha256","value":%q},"provenance":{"key":%q},"idempotencyKey":%q}`,
		Namespace, mimeType, u.content.size, p.op.Content, u.key, u.key)
	c.pending = p
	return c.try(ctx, caller)
}

// tools are those that commit and abort.
var tools = map[history.Kind]string{history.Commit: "persistence.commitArtifact", history.Abort: "persistence.abortArtifact"}

// onUpload commits or aborts.
func (c *Client) onUpload(ctx context.Context, caller Caller, u *upload, kind history.Kind) error {
	p := &pending{op: c.opOn(u, kind), tool: tools[kind], up: u}
	p.op.Key = c.key()
	p.args = fmt.Appendf(nil, `{"namespace":%q,"uploadId":%q,"idempotencyKey":%q}`, Namespace, u.id, p.op.Key)
	c.pending = p
	return c.try(ctx, caller)
}

// purgeArtifact removes an artifact for good.
func (c *Client) purgeArtifact(ctx context.Context, caller Caller, u *upload) error {
	p := &pending{op: c.opOn(u, history.PurgeArtifact), tool: "persistence.purge", up: u}
	p.op.Key = c.key()
	p.args = fmt.Appendf(nil, `{"namespace":%q,"target":{"type":"artifact","id":%q},"idempotencyKey":%q}`, Namespace, u.artifact, p.op.Key)
	c.pending = p
	return c.try(ctx, caller)
}

// send sends the bytes: sometimes not all of them, sometimes other ones.
func (c *Client) send(ctx context.Context, caller Caller, u *upload) error {
	req := scenario.HTTPRequest{Body: u.content.bytes(), Chunked: c.rng.IntN(4) == 0}
	spoilt := false
	switch dice := c.rng.IntN(100); {
	case u.content.size == 0:
	case dice < 12:
		n := c.rng.Int64N(int64(u.content.size))
		req.BreakAfter, spoilt = &n, true
	case dice < 15:
		req.Body[c.rng.IntN(len(req.Body))] ^= 1
		spoilt = true
	}
	return c.transfer(ctx, caller, u, req, spoilt)
}

// transfer sends a body and records what came back.
func (c *Client) transfer(ctx context.Context, caller Caller, u *upload, req scenario.HTTPRequest, spoilt bool) error {
	op := c.opOn(u, history.Receive)
	req.Method, req.Path = http.MethodPut, "/uploads/"+Namespace+"/"+u.id
	op.Call = c.rec.Now()
	res, err := caller.HTTP(ctx, req)
	if err := judge(res, err, spoilt, &op); err != nil {
		return err
	}
	c.rec.Add(op)
	if op.Outcome == history.Unknown {
		return ErrUnknown
	}
	c.cfg.Shelf.learn(u, op)
	return nil
}

// judge names the outcome of a transfer. A body that was spoilt has no effect, whatever becomes of the answer.
func judge(res scenario.HTTPResponse, err error, spoilt bool, op *history.Op) error {
	if err != nil || res.Broken {
		op.Outcome = history.Unknown
		if spoilt {
			op.Outcome = history.NotDone
		}
		return nil
	}
	code := httpCode(res)
	switch {
	case res.Status == http.StatusNoContent && spoilt:
		return fmt.Errorf("%s: bytes that were spoilt were taken", op.Upload)
	case res.Status == http.StatusNoContent:
		op.Outcome = history.OK
	case res.Status == http.StatusBadRequest && code == "invalid_request", res.Status == http.StatusNotFound:
		op.Outcome, op.Code = history.Refused, code
	case res.Status == http.StatusInternalServerError && code == "busy",
		res.Status == http.StatusBadRequest && code == "transfer_incomplete",
		res.Status == http.StatusBadRequest && code == "integrity_error" && spoilt:
		op.Outcome = history.NotDone
	case res.Status == http.StatusInternalServerError && code == "store_unavailable" && spoilt:
		op.Outcome = history.NotDone
	case res.Status == http.StatusInternalServerError && code == "store_unavailable":
		op.Outcome = history.Unknown
	default:
		return fmt.Errorf("%s: a transfer was answered %d %s", op.Upload, res.Status, res.Body)
	}
	return nil
}

// httpCode is the code in the error body of the transfer origin, or "".
func httpCode(res scenario.HTTPResponse) string {
	var body struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(res.Body, &body) != nil {
		return ""
	}
	return body.Error.Code
}

// fetch reads the artifact's bytes and compares them, or what is known of it.
func (c *Client) fetch(ctx context.Context, caller Caller, u *upload) error {
	op := c.opOn(u, history.Fetch)
	op.Call = c.rec.Now()
	if c.rng.IntN(3) == 0 {
		a, err := caller.Call(ctx, "persistence.getArtifact", fmt.Appendf(nil, `{"namespace":%q,"id":%q}`, Namespace, u.artifact))
		if err != nil || a.RPC != nil || a.Broken {
			return nil // a read without an answer tells nothing
		}
		op.Code = codeOf(a)
	} else {
		res, err := caller.HTTP(ctx, scenario.HTTPRequest{Method: http.MethodGet, Path: "/artifacts/" + Namespace + "/" + u.artifact})
		if err != nil || res.Broken {
			return nil
		}
		op.Code = httpCode(res)
		switch {
		case res.Status == http.StatusOK && (res.SHA256 != op.Content || res.Size != op.Size):
			op.Code = history.Wrong
		case res.Status == http.StatusOK:
			op.Code = ""
		case op.Code == "":
			return fmt.Errorf("%s: a download was answered %d %s", op.Upload, res.Status, res.Body)
		}
	}
	switch op.Code {
	case "", history.Wrong:
	case "busy", "store_unavailable":
		return nil
	default:
		op.Outcome = history.Refused
	}
	c.rec.Add(op)
	return nil
}
