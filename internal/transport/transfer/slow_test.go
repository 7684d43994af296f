package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
	"github.com/tabellion-mcp/tabellion/persistence"
)

// The paces of these tests. Slow senders are far below the first one; steady ones have a multiple of the second left.
const (
	quickPace  = 200 * time.Millisecond
	steadyPace = 2 * time.Second
)

// patient are limits of a listener that cut nobody, so that only the pace can.
var patient = web.Limits{Read: 10 * time.Minute, Write: 10 * time.Minute}

// TestSlowSenderIsCut sends a byte each 50 ms where 64 KiB, or all that is left, is asked for in 200 ms.
func TestSlowSenderIsCut(t *testing.T) {
	o := serve(t, setup{pace: quickPace, limits: patient})
	for name, head := range map[string]string{"length": "Content-Length: 2000\r\n\r\n", "chunked": "Transfer-Encoding: chunked\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			u := o.in("", pattern(2000))
			c := o.dial()
			c.say("PUT %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer alice\r\n%s", u.path, o.addr, head)
			stop, sent := make(chan struct{}), make(chan int, 1)
			go func() { sent <- drip(c, stop, u.bytes, name == "chunked") }()
			res, body := c.hear("PUT")
			if res.StatusCode != 400 || codeOf(body) != "transfer_incomplete" {
				t.Errorf("%d %s", res.StatusCode, body)
			}
			c.ends()
			close(stop)
			if n := <-sent; n >= len(u.bytes) {
				t.Errorf("all %d bytes were taken", n)
			}
			o.pendingStill(u)
		})
	}
}

// drip sends a byte each 50 ms until it is stopped or the connection has ended, and tells how many.
func drip(c io.Writer, stop chan struct{}, content []byte, chunked bool) int {
	for i := range content {
		piece := content[i : i+1]
		if chunked {
			piece = []byte("1\r\n" + string(piece) + "\r\n")
		}
		if _, err := c.Write(piece); err != nil {
			return i
		}
		select {
		case <-stop:
			return i + 1
		case <-time.After(50 * time.Millisecond):
		}
	}
	return len(content)
}

// TestSilentSenderIsCut sends nothing after it was told to begin, and nothing after some pieces.
func TestSilentSenderIsCut(t *testing.T) {
	o := serve(t, setup{pace: quickPace, limits: patient})
	for _, sends := range []int{0, 1, 200_000} {
		u := o.in("", pattern(300_000))
		c := o.receiving(u)
		c.say("%s", u.bytes[:sends])
		if res, body := c.hear("PUT"); res.StatusCode != 400 || codeOf(body) != "transfer_incomplete" {
			t.Errorf("after %d bytes: %d %s", sends, res.StatusCode, body)
		}
		c.ends()
		o.pendingStill(u)
	}
}

// slowDisk takes its time with each piece and with keeping.
type slowDisk struct {
	persistence.Blobs
	begun chan int // the bytes of each piece, as its writing begins
}

// Create gives a writer that takes its time.
func (s slowDisk) Create(ctx context.Context) (persistence.BlobWriter, error) {
	w, err := s.Blobs.Create(ctx)
	return slowWriter{w, s.begun}, err
}

// slowWriter takes longer than quickPace.
type slowWriter struct {
	persistence.BlobWriter
	begun chan int
}

// Write is late.
func (s slowWriter) Write(p []byte) (int, error) {
	s.begun <- len(p)
	time.Sleep(3 * quickPace)
	return s.BlobWriter.Write(p)
}

// Keep is late.
func (s slowWriter) Keep(ctx context.Context) error {
	time.Sleep(3 * quickPace)
	return s.BlobWriter.Keep(ctx)
}

// TestSlowDiskIsNoSlowSender holds that a sender is not cut for what our own disk takes, in the middle of a piece or at
// the end.
func TestSlowDiskIsNoSlowSender(t *testing.T) {
	begun := make(chan int, 100)
	o := serve(t, setup{pace: quickPace, limits: patient, blobs: func(b persistence.Blobs) persistence.Blobs { return slowDisk{b, begun} }})
	u := o.in("", pattern(100_000))
	c := o.receiving(u)
	c.say("%s", u.bytes[:1000])
	if n := <-begun; n != 1000 {
		t.Fatalf("the first write has %d bytes", n)
	}
	c.say("%s", u.bytes[1000:]) // all of it is there long before the disk is done
	if res, body := c.hear("PUT"); res.StatusCode != 204 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	o.commit(u)
}

// TestSteadySenderIsNotCut sends 64 KiB at a time, in all for longer than the pace and than the listener's own limits,
// which are those of short bodies.
func TestSteadySenderIsNotCut(t *testing.T) {
	o := serve(t, setup{pace: steadyPace, limits: web.Limits{Read: time.Second, Write: time.Second}})
	const piece, pieces = 64 << 10, 8
	u := o.in("", pattern(piece*pieces))
	began := time.Now()
	c := o.receiving(u)
	for i := range pieces {
		time.Sleep(steadyPace / 6)
		c.say("%s", u.bytes[i*piece:(i+1)*piece])
	}
	res, body := c.hear("PUT")
	if res.StatusCode != 204 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if took := time.Since(began); took < steadyPace {
		t.Errorf("it took %v, which shows nothing", took)
	}
	o.commit(u)
	if got := o.get(u); got.SHA256 != u.digest.String() {
		t.Errorf("the artifact has %d bytes, %s", got.Size, got.SHA256)
	}
}

// download asks for an artifact. The largest one is more than the buffers of a connection take.
func (o *origin) download(u *upload) *conn {
	o.t.Helper()
	c := o.dial()
	c.say("GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer alice\r\n\r\n", u.get, o.addr)
	return c
}

// TestSlowReaderIsCut reads nothing of a download: its handler ends, and what came is not the whole.
func TestSlowReaderIsCut(t *testing.T) {
	o := serve(t, setup{pace: quickPace, limits: patient})
	u := o.in("committed", pattern(maxArtifact))
	c := o.download(u)
	if err := c.Conn.(*net.TCPConn).SetReadBuffer(1 << 20); err != nil {
		t.Fatal(err)
	}
	if _, err := c.r.Peek(1); err != nil {
		t.Fatal(err)
	}
	o.idle() // the handler has given up: otherwise it would wait for as long as the reader does
	res, err := http.ReadResponse(c.r, &http.Request{Method: "GET"})
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	if res.StatusCode != 200 || n >= maxArtifact || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("status %d, %d bytes, %v", res.StatusCode, n, err)
	}
}

// TestSteadyReaderIsNotCut reads for longer than the listener's own limits and the pace.
func TestSteadyReaderIsNotCut(t *testing.T) {
	o := serve(t, setup{pace: steadyPace, limits: web.Limits{Read: time.Second, Write: time.Second}})
	u := o.in("committed", pattern(maxArtifact))
	began := time.Now()
	c := o.download(u)
	res, err := http.ReadResponse(c.r, &http.Request{Method: "GET"})
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	part := make([]byte, 2<<20)
	for err == nil {
		var n int
		n, err = io.ReadFull(res.Body, part)
		body = append(body, part[:n]...)
		time.Sleep(steadyPace / 10)
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	same(t, body, u.bytes)
	if took := time.Since(began); took < steadyPace {
		t.Errorf("it took %v, which shows nothing", took)
	}
}

// TestReaderGoes has a client leave in the middle: nothing is left of the download.
func TestReaderGoes(t *testing.T) {
	o := serve(t, setup{})
	u := o.in("committed", pattern(maxArtifact))
	c := o.download(u)
	if _, err := c.r.Peek(1); err != nil {
		t.Fatal(err)
	}
	c.Close()
	o.idle()
	if res := o.get(u); res.Status != 200 || res.Size != maxArtifact {
		t.Errorf("the next one: %d, %d bytes", res.Status, res.Size)
	}
}

// ask sends a request over the client of an origin.
func ask(t *testing.T, client *http.Client, method, url, as string, body io.Reader, length int64) (res *http.Response, got []byte, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if req.ContentLength = length; as != "" {
		req.Header.Set("Authorization", "Bearer "+as)
	}
	if res, err = client.Do(req); err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 {
		t.Fatalf("over %s", res.Proto)
	}
	got, err = io.ReadAll(res.Body)
	return res, got, err
}

// plainReader hides what a body is, so that its length is not sent.
type plainReader struct{ io.Reader }

// TestHTTP2 holds both routes over HTTP/2: a broken download resets its stream and nothing else of the connection.
func TestHTTP2(t *testing.T) {
	o := serve(t, setup{http2: true})
	client := o.client()
	var conns atomic.Int32
	transport := client.Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conns.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	content := pattern(5 << 20)
	put := func(u *upload, as string, content []byte, length int64, status int, code string) {
		t.Helper()
		res, body, err := ask(t, client, "PUT", o.http.URL+u.path, as, plainReader{bytes.NewReader(content)}, length)
		if err != nil || res.StatusCode != status || codeOf(body) != code {
			t.Fatalf("PUT: %v %v %.200s, want %d %s", err, res, body, status, code)
		}
	}
	sized, unsized := o.begin(content, "image/png"), o.begin(content, "image/png")
	put(sized, "", content, int64(len(content)), 403, "policy_denied")
	put(sized, "bob", content, int64(len(content)), 403, "policy_denied")
	put(sized, "alice", content[:9], 9, 400, "transfer_incomplete")
	put(sized, "alice", append([]byte("x"), content[1:]...), int64(len(content)), 400, "integrity_error")
	put(sized, "alice", content, int64(len(content)), 204, "")
	put(sized, "alice", content, int64(len(content)), 400, "invalid_request")
	put(unsized, "alice", content[:len(content)-1], -1, 400, "transfer_incomplete")
	put(unsized, "alice", append(content[:len(content):len(content)], 'x'), -1, 400, "integrity_error")
	put(unsized, "alice", content, -1, 204, "")
	o.commit(sized)
	o.commit(unsized)
	put(sized, "alice", content, int64(len(content)), 404, "not_found")

	res, body, err := ask(t, client, "GET", o.http.URL+sized.get, "alice", nil, 0)
	if err != nil || res.StatusCode != 200 || res.ContentLength != int64(len(content)) || res.Header.Get("Content-Type") != "image/png" ||
		res.Header.Get("Content-Disposition") != "attachment" || res.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("GET: %v %v", err, res)
	}
	same(t, body, content)
	for _, method := range []string{"HEAD", "POST", "OPTIONS"} {
		if res, _, err := ask(t, client, method, o.http.URL+sized.get, "alice", nil, 0); err != nil || res.StatusCode != 404 {
			t.Errorf("%s: %v %v", method, err, res)
		}
	}
	if err := flipAt(o.folder.Path(sized.digest), 4<<20); err != nil {
		t.Fatal(err)
	}
	res, body, err = ask(t, client, "GET", o.http.URL+sized.get, "alice", nil, 0)
	if res == nil || res.StatusCode != 200 || err == nil || len(body) >= len(content) {
		t.Errorf("a damaged download: %v, %d bytes, %v", res, len(body), err)
	}
	if res, _, err := ask(t, client, "GET", o.http.URL+"/artifacts/ns/none", "alice", nil, 0); err != nil || res.StatusCode != 404 {
		t.Errorf("after it: %v %v", err, res)
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections were opened: one request ended others' too", n)
	}
}

// TestHTTP2Slow cuts a sender over HTTP/2 that sends nothing: only its stream ends.
func TestHTTP2Slow(t *testing.T) {
	o := serve(t, setup{http2: true, pace: quickPace, limits: patient})
	client := o.client()
	u := o.begin(abc, "text/plain")
	silent, writer := io.Pipe()
	defer writer.Close()
	res, body, err := ask(t, client, "PUT", o.http.URL+u.path, "alice", silent, 3)
	if err == nil && (res.StatusCode != 400 || codeOf(body) != "transfer_incomplete") {
		t.Errorf("%v %s", res, body)
	}
	o.idle()
	res, body, err = ask(t, client, "PUT", o.http.URL+u.path, "alice", bytes.NewReader(abc), 3)
	if err != nil || res.StatusCode != 204 {
		t.Errorf("again: %v %v %s", err, res, body)
	}
	o.commit(u)
}

// TestManyAtOnce moves many artifacts at once, of equal and of different bytes, with broken ones among them.
func TestManyAtOnce(t *testing.T) {
	o := serve(t, setup{})
	const each = 24
	uploads := make([]*upload, each)
	for i := range uploads {
		uploads[i] = o.begin(pattern(100_000+i%3), "text/plain")
	}
	errs := make(chan error, each)
	for i, u := range uploads {
		go func() {
			at := int64(50_000)
			req := scenario.HTTPRequest{Method: "PUT", Path: u.path, Body: u.bytes, Chunked: i%2 == 0}
			if i%4 == 3 {
				req.BreakAfter = &at
			}
			res, err := scenario.Send(t.Context(), o.addr, nil, "alice", req)
			if err == nil && res.Broken != (i%4 == 3) {
				err = errors.New("an upload was broken, or was not")
			}
			errs <- err
		}()
	}
	for range uploads {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	o.idle()
	for i, u := range uploads {
		if i%4 == 3 {
			o.pendingStill(u)
			continue
		}
		o.commit(u)
		if res := o.get(u); res.SHA256 != u.digest.String() {
			t.Errorf("artifact %d is %d, %s", i, res.Status, res.SHA256)
		}
	}
}
