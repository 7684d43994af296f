package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// UploadRequest is an artifact to be made.
type UploadRequest struct {
	Namespace  string
	MimeType   string
	Provenance json.RawMessage // where it comes from, any JSON value; nil is null
	// Body holds the bytes, from its present position to its end. An io.Seeker is read twice, once to hash it, and can
	// be sent again after a broken connection. Anything else needs Size and SHA256, and can be sent once.
	Body io.Reader
	// Size and SHA256 (lower-case hexadecimal) declare the bytes when the caller knows them. Size counts only with
	// SHA256; without it both are found by reading Body.
	Size   int64
	SHA256 string
	// Key names the whole upload, at most 120 characters; the keys of its steps are made of it. With the same Key and
	// the same bytes a second Upload goes on where the first one stopped, also in another process. Empty: one is made.
	Key      string
	Progress Progress
}

// maxUploadKey leaves room for the names of the steps in a key of the contract's 128 characters.
const maxUploadKey = 120

// Upload makes an artifact: it hashes the bytes, begins, sends them, and commits. After a broken connection it sends
// from the start; each step is repeated with its own key, so that there is one artifact in the end.
//
// Upload does not return while a Read of Body is under way, also when ctx has ended, and does not read it afterwards.
//
// When it fails, it aborts the upload, so that nothing stays reserved, with a last short call that does not end with
// ctx. It leaves the upload open, for 24 hours, in two cases: the request has a Key, so that the caller can go on; or
// the commit may have happened, and then Error.Key is the key to go on with.
func (c *Client) Upload(ctx context.Context, r UploadRequest) (*Artifact, error) {
	u := &upload{c: c, r: r, key: orNewKey(r.Key)}
	if len(u.key) > maxUploadKey {
		return nil, local("upload", InvalidRequest, "UploadRequest.Key has at most %d characters", maxUploadKey)
	}
	if err := u.declare(); err != nil {
		return nil, err
	}
	a, err := u.run(ctx)
	if err != nil {
		return nil, u.failed(ctx, err)
	}
	return a, nil
}

// upload is one Upload under way.
type upload struct {
	c       *Client
	r       UploadRequest
	key     string
	start   int64     // position of the first byte in seeker
	seeker  io.Seeker // nil: the body can be sent once
	sent    bool      // the body was read for sending
	refused *Error    // an answer to a PUT that may mean that an earlier one arrived: the commit tells
	pending *Pending
	meter   meter
}

// declare finds size and hash, and whether the body can be read again.
func (u *upload) declare() error {
	if u.r.Body == nil {
		return local("upload", InvalidRequest, "UploadRequest.Body is missing")
	}
	if s, ok := u.r.Body.(io.Seeker); ok {
		if at, err := s.Seek(0, io.SeekCurrent); err == nil { // a pipe is a file that cannot seek
			u.seeker, u.start = s, at
		}
	}
	if u.r.SHA256 == "" {
		if u.seeker == nil {
			return local("upload", InvalidRequest, "a body that cannot be read twice needs Size and SHA256")
		}
		h := sha256.New()
		n, err := io.Copy(h, u.r.Body)
		if err == nil {
			_, err = u.seeker.Seek(u.start, io.SeekStart)
		}
		if err != nil {
			return &Error{Op: "upload", Message: "the body cannot be read", Cause: err, local: true}
		}
		u.r.Size, u.r.SHA256 = n, hex.EncodeToString(h.Sum(nil))
	}
	u.meter = meter{fn: u.r.Progress, total: u.r.Size}
	return nil
}

// run goes through the steps.
func (u *upload) run(ctx context.Context) (*Artifact, error) {
	if u.c.transfer == nil { // before anything is reserved
		_, err := u.c.transferURL("upload", "", "", "")
		return nil, err
	}
	var err error
	u.pending, err = u.c.BeginArtifact(ctx, BeginRequest{
		Namespace: u.r.Namespace, MimeType: u.r.MimeType, Size: u.r.Size, Hash: SHA256(u.r.SHA256),
		Provenance: u.r.Provenance, IdempotencyKey: u.key + ".begin",
	})
	if err != nil {
		return nil, err
	}
	if err := u.send(ctx); err != nil {
		return nil, err
	}
	a, err := u.c.CommitArtifact(ctx, u.r.Namespace, u.pending.UploadID, u.key+".commit")
	if u.refused != nil && (IsCode(err, TransferIncomplete) || IsCode(err, NotFound)) {
		return nil, u.refused
	}
	if err != nil {
		return nil, err
	}
	u.meter.finish()
	return a, nil
}

// send sends the bytes until the server has them all.
func (u *upload) send(ctx context.Context) error {
	url, err := u.c.transferURL("upload", "uploads", u.r.Namespace, u.pending.UploadID)
	if err != nil {
		return err
	}
	maybe := u.r.Key != "" // an earlier attempt, perhaps of an earlier process, may have arrived
	return u.c.repeat(ctx, "upload", "", func(ctx context.Context) *Error {
		e := u.put(ctx, url)
		if e == nil {
			return nil
		}
		if maybe && (e.Code == InvalidRequest || e.Code == NotFound) {
			e.Op = "upload"
			u.refused = e
			return nil
		}
		maybe = maybe || e.open()
		e.again = e.Code == TransferIncomplete && u.seeker != nil // something on the way cut the body
		return e
	})
}

// put sends the bytes once.
func (u *upload) put(ctx context.Context, url string) *Error {
	if u.sent && u.seeker == nil {
		return local("upload", "", "the connection ended, and this body cannot be read again: give one that can seek, or upload anew")
	}
	if u.sent {
		if _, err := u.seeker.Seek(u.start, io.SeekStart); err != nil {
			return &Error{Message: "the body cannot be read again", Cause: err, local: true}
		}
	}
	ctx, w := newWatch(ctx, u.c.opts.StallTimeout)
	defer w.stop()
	body := &outgoing{u: u, w: w}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, body)
	if err != nil {
		return &Error{Message: "the address of the transfer is wrong", Cause: err, local: true}
	}
	req.ContentLength = u.r.Size
	if u.r.Size == 0 {
		req.Body = http.NoBody
	} else {
		req.Header.Set("Expect", "100-continue") // the server decides before it lets the bytes come
	}
	authorize(req.Header, u.c.opts.Token)
	res, err := u.c.opts.HTTPClient.Do(req)
	if err == nil {
		defer res.Body.Close()
	}
	switch unread := body.end(); {
	case unread != nil:
		return &Error{Message: "the body cannot be read", Cause: unread, local: true}
	case err != nil:
		return broken(ctx, err)
	}
	if res.StatusCode != http.StatusNoContent {
		return refusal(res)
	}
	return nil
}

// failed ends an upload that cannot go on, and gives its error.
func (u *upload) failed(ctx context.Context, err error) error {
	e := asError(err)
	e.Key = u.key
	if u.pending == nil || u.r.Key != "" || e.Unknown {
		return e
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	once := *u.c
	once.opts.Retry.Attempts = 1
	// An abort that fails too changes nothing for the caller: the upload ends by itself after 24 hours.
	_ = once.AbortArtifact(ctx, u.r.Namespace, u.pending.UploadID, u.key+".abort")
	return e
}

// abortTimeout bounds the last call of an upload that failed.
const abortTimeout = 5 * time.Second

// outgoing is the body of a PUT: as many bytes as were declared, watched and reported.
type outgoing struct {
	u *upload
	w *watch

	mu   sync.Mutex // held while the caller's body is read: the transport may still read after it has answered
	done int64
	over bool  // nothing more is read
	err  error // of the caller's body; the connection is not to blame
}

// Read implements io.Reader.
func (o *outgoing) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.u.r.Size - o.done
	switch {
	case o.over:
		return 0, io.ErrClosedPipe
	case left == 0:
		return 0, io.EOF
	}
	o.u.sent = true
	n, err := o.u.r.Body.Read(p[:min(int64(len(p)), left)])
	o.done += int64(n)
	o.w.moved()
	o.u.meter.at(o.done)
	if err == io.EOF && o.done < o.u.r.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		o.err = err
	}
	return n, err
}

// end waits for a Read under way, forbids further ones, and gives the error of the caller's body.
func (o *outgoing) end() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	return o.err
}
