package scenario

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sendTimeout bounds one exchange. It is a guard against a server that hangs, not a measure.
const sendTimeout = 2 * time.Minute

// closeTimeout is how long a server may take to close the connection after its answer, as it was asked to. A server
// that does not is no worse off: only bytes after the end of an answer are looked for.
const closeTimeout = 2 * time.Second

// maxKept bounds the part of a body that is kept, in bytes. Size and hash are of the whole.
const maxKept = 1 << 20

// maxInterim bounds the 1xx answers before the real one.
const maxInterim = 16

// Send makes one HTTP/1.1 exchange on a connection of its own and reads the whole answer. Nothing of the request is
// cleaned, decoded or redirected: the path goes on the wire as it is. addr is host:port; tlsConfig nil means plain TCP;
// an empty token sends no Authorization header. An answer that ends early is no error but Broken; an error means that
// the server could not be reached, sent something that is not HTTP, did not end within two minutes, or went on after
// the end of its answer.
func Send(ctx context.Context, addr string, tlsConfig *tls.Config, token string, req HTTPRequest) (HTTPResponse, error) {
	conn, err := dial(ctx, addr, tlsConfig)
	if err != nil {
		return HTTPResponse{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(sendTimeout)); err != nil {
		return HTTPResponse{}, err
	}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()

	x := &exchange{conn: conn, req: req, proceed: make(chan bool, 1)}
	x.r = bufio.NewReader(x)
	if _, err := io.WriteString(conn, x.head(addr, tlsConfig != nil, token)); err != nil {
		return HTTPResponse{}, err
	}
	if !x.waits() {
		x.proceed <- true
	}
	go x.writeBody()
	res, err := x.answer()
	if ctx.Err() != nil {
		return res, ctx.Err()
	}
	return x.verdict(res, err)
}

// dial connects, over TLS when there is a configuration.
func dial(ctx context.Context, addr string, tlsConfig *tls.Config) (net.Conn, error) {
	d := &net.Dialer{Timeout: 10 * time.Second}
	if tlsConfig == nil {
		return d.DialContext(ctx, "tcp", addr)
	}
	return (&tls.Dialer{NetDialer: d, Config: tlsConfig}).DialContext(ctx, "tcp", addr)
}

// exchange is one request and its answer on a connection.
type exchange struct {
	conn net.Conn
	r    *bufio.Reader
	req  HTTPRequest
	// proceed tells the writer whether to send the body: at once, or after 100 Continue; false when an answer came first.
	proceed chan bool
	over    bool // the connection's end was read
}

// Read reads the connection and notes its end, which a parser of half a head tells as a malformed one.
func (x *exchange) Read(p []byte) (int, error) {
	n, err := x.conn.Read(p)
	x.over = x.over || err != nil && ended(err)
	return n, err
}

// has tells whether the request names a header of its own.
func (x *exchange) has(name string) bool {
	for n := range x.req.Headers {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// waits tells whether the body is sent only after 100 Continue.
func (x *exchange) waits() bool {
	for n, v := range x.req.Headers {
		if strings.EqualFold(n, "Expect") && strings.EqualFold(v, "100-continue") {
			return true
		}
	}
	return false
}

// head is the text of the request up to the body.
func (x *exchange) head(addr string, secure bool, token string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", x.req.Method, x.req.Path)
	add := func(name, value string) {
		if !x.has(name) {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	add("Host", hostOf(addr, secure))
	add("Connection", "close") // so that the end of the answer can be seen
	if token != "" {
		add("Authorization", "Bearer "+token)
	}
	switch {
	case x.req.Body == nil:
	case x.req.Chunked:
		add("Transfer-Encoding", "chunked")
	default:
		add("Content-Length", strconv.Itoa(len(x.req.Body)))
	}
	for _, name := range slices.Sorted(maps.Keys(x.req.Headers)) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, x.req.Headers[name])
	}
	b.WriteString("\r\n")
	return b.String()
}

// hostOf is the Host header for an address: without the port that goes without saying.
func hostOf(addr string, secure bool) string {
	if secure {
		return strings.TrimSuffix(addr, ":443")
	}
	return strings.TrimSuffix(addr, ":80")
}

// chunkSize is the size of the chunks of a chunked body, in bytes.
const chunkSize = 32 << 10

// writeBody sends the body, or its beginning and then the end of the connection's sending half. An error of writing is
// not told: a server may answer and close before it has read everything, and the answer says more.
func (x *exchange) writeBody() {
	if !<-x.proceed {
		return
	}
	body := x.req.Body
	if n := x.req.BreakAfter; n != nil {
		body = body[:*n]
	}
	if !x.req.Chunked {
		x.conn.Write(body)
	} else {
		for part := range slices.Chunk(body, chunkSize) {
			fmt.Fprintf(x.conn, "%x\r\n%s\r\n", len(part), part)
		}
		if x.req.BreakAfter == nil {
			io.WriteString(x.conn, "0\r\n\r\n")
		}
	}
	if half, ok := x.conn.(interface{ CloseWrite() error }); ok && x.req.BreakAfter != nil {
		half.CloseWrite()
	}
}

// answer reads the answer to its end.
func (x *exchange) answer() (HTTPResponse, error) {
	var out HTTPResponse
	defer func() {
		select {
		case x.proceed <- false: // the writer still waits for 100 Continue
		default:
		}
	}()
	res, err := x.final(&out)
	if err != nil {
		return out, err
	}
	out.Status, out.Headers = res.StatusCode, map[string]string{}
	for name, values := range res.Header {
		out.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	kept, sum := &prefix{}, sha256.New()
	out.Size, err = io.Copy(io.MultiWriter(sum, kept), res.Body)
	out.Body, out.SHA256 = kept.bytes, hex.EncodeToString(sum.Sum(nil))
	if err != nil {
		return out, err
	}
	return out, x.trailing(res)
}

// final reads heads until the one of the real answer.
func (x *exchange) final(out *HTTPResponse) (*http.Response, error) {
	for range maxInterim {
		res, err := http.ReadResponse(x.r, &http.Request{Method: x.req.Method})
		switch {
		case err != nil && x.over:
			return nil, fmt.Errorf("%w within the head (%v)", io.ErrUnexpectedEOF, err)
		case err != nil:
			return nil, err
		case res.StatusCode >= 200:
			return res, nil
		case res.StatusCode == http.StatusContinue:
			out.Continued = true
			select {
			case x.proceed <- true:
			default:
			}
		}
	}
	return nil, fmt.Errorf("more than %d interim answers", maxInterim)
}

// trailing finds bytes after the end of an answer that says where it ends.
func (x *exchange) trailing(res *http.Response) error {
	if res.ContentLength < 0 && len(res.TransferEncoding) == 0 {
		return nil // it ends with the connection
	}
	x.conn.SetReadDeadline(time.Now().Add(closeTimeout))
	if _, err := x.r.ReadByte(); err == nil {
		return errors.New("the server sends bytes after the end of its answer")
	}
	return nil
}

// verdict tells a broken connection from an error. Of a request that was cut, only an answer that claims success
// counts: a client that is gone sees no other.
func (x *exchange) verdict(res HTTPResponse, err error) (HTTPResponse, error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return res, fmt.Errorf("no complete answer within %v: %w", sendTimeout, err)
	case err != nil && !ended(err):
		return res, err
	case err != nil:
		res.Broken, res.Cause = true, err
	case x.req.BreakAfter != nil && res.Status/100 != 2:
		res.Broken, res.Cause = true, errors.New("cut as the step says")
	}
	return res, nil
}

// ended tells whether an error is the early end of a connection.
func ended(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// prefix keeps the first maxKept bytes that are written to it.
type prefix struct{ bytes []byte }

// Write keeps what there is room for and takes everything.
func (p *prefix) Write(b []byte) (int, error) {
	p.bytes = append(p.bytes, b[:min(len(b), maxKept-len(p.bytes))]...)
	return len(b), nil
}
