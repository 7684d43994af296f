package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// Download writes the bytes of an artifact to w and gives what is known of it. It succeeds only when w got exactly the
// artifact's size and SHA-256. After any error what w got must not be trusted; integrity_error says that it is wrong.
//
// After a broken connection it asks again and passes over what w has already. progress may be nil.
func (c *Client) Download(ctx context.Context, namespace, id string, w io.Writer, progress Progress) (*Artifact, error) {
	url, err := c.transferURL("download", "artifacts", namespace, id)
	if err != nil {
		return nil, err
	}
	a, err := c.GetArtifact(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	d := &download{c: c, a: a, w: w, sum: sha256.New(), meter: meter{fn: progress, total: a.Size}}
	if err := c.repeat(ctx, "download", "", func(ctx context.Context) *Error { return d.get(ctx, url) }); err != nil {
		return nil, err
	}
	if got := hex.EncodeToString(d.sum.Sum(nil)); got != a.Hash.Value {
		return nil, wrongBytes("the SHA-256 of the bytes is not the artifact's")
	}
	d.meter.finish()
	return a, nil
}

// wrongBytes is the error of bytes that are not the artifact's.
func wrongBytes(text string) *Error {
	return &Error{Op: "download", Code: IntegrityError, Message: text + ": do not use them", Attempts: 1}
}

// download is one Download under way.
type download struct {
	c       *Client
	a       *Artifact
	w       io.Writer
	sum     hash.Hash // of what w got
	written int64     // how much w got
	meter   meter
}

// get asks for the bytes once, and writes those that w does not have yet.
func (d *download) get(ctx context.Context, url string) *Error {
	ctx, watch := newWatch(ctx, d.c.opts.StallTimeout)
	defer watch.stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return &Error{Message: "the address of the transfer is wrong", Cause: err, local: true}
	}
	req.Header.Set("Accept-Encoding", "identity")
	authorize(req.Header, d.c.opts.Token)
	res, err := d.c.opts.HTTPClient.Do(req)
	if err != nil {
		return broken(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return refusal(res)
	}
	if res.ContentLength >= 0 && res.ContentLength != d.a.Size {
		return wrongBytes(fmt.Sprintf("the server announces %d bytes of an artifact of %d", res.ContentLength, d.a.Size))
	}
	return d.copy(ctx, watch, res.Body)
}

// pieceBytes is how much is copied at a time.
const pieceBytes = 64 << 10

// copy reads a whole body, and writes what is new of it.
func (d *download) copy(ctx context.Context, w *watch, body io.Reader) *Error {
	piece := make([]byte, pieceBytes)
	for read := int64(0); ; {
		n, err := body.Read(piece)
		w.moved()
		read += int64(n)
		if read > d.a.Size {
			return wrongBytes("the server sends more bytes than the artifact has")
		}
		if fresh := min(read-d.written, int64(n)); fresh > 0 {
			if e := d.write(piece[int64(n)-fresh : n]); e != nil {
				return e
			}
		}
		switch {
		case err == io.EOF && read < d.a.Size:
			return broken(ctx, io.ErrUnexpectedEOF)
		case err == io.EOF:
			return nil
		case err != nil:
			return broken(ctx, err)
		}
	}
}

// write gives w new bytes.
func (d *download) write(p []byte) *Error {
	n, err := d.w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return &Error{Message: "the bytes cannot be written", Cause: err, local: true}
	}
	d.sum.Write(p)
	d.written += int64(n)
	d.meter.at(d.written)
	return nil
}

// DownloadFile is Download into a file. The bytes go to a file with a temporary name in the same folder, which gets its
// name, in place of a file that has it already, only when they are verified and synced. It can be
// read by its owner only. After an error nothing has changed.
func (c *Client) DownloadFile(ctx context.Context, namespace, id, path string, progress Progress) (a *Artifact, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".download-*")
	if err != nil {
		return nil, fileError(err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // closed already, or about to be thrown away
			_ = os.Remove(f.Name())
		}
	}()
	if a, err = c.Download(ctx, namespace, id, f, progress); err != nil {
		return nil, err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return nil, fileError(err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return nil, fileError(err)
	}
	return a, nil
}

// fileError is a failure of this machine's disk.
func fileError(err error) *Error {
	return &Error{Op: "download", Message: "the file cannot be written", Cause: err, local: true}
}
