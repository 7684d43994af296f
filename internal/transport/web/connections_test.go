package web_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// TestBound serves so many connections at once; a further one is served when one of them ends, and none is lost.
func TestBound(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limits := web.Limits{Connections: 2, Idle: time.Minute}
	server := web.NewServer(limits, web.Protect(web.Options{Loopback: true, Log: quiet}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "fine")
	})), quiet)
	served := make(chan error, 1)
	go func() { served <- server.Serve(web.Bound(inner, limits)) }()
	dial := func() (net.Conn, chan string) {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		status := make(chan string, 1)
		go func() {
			line, _ := bufio.NewReader(c).ReadString('\n')
			status <- line
		}()
		return c, status
	}
	fine := func(status chan string) {
		t.Helper()
		select {
		case line := <-status:
			if !strings.HasPrefix(line, "HTTP/1.1 200") {
				t.Errorf("got %q", line)
			}
		case <-time.After(5 * time.Second):
			t.Error("not served")
		}
	}
	first, status := dial()
	fine(status)
	_, status = dial()
	fine(status)
	_, waiting := dial()
	select {
	case line := <-waiting:
		t.Errorf("a third connection is served: %q", line)
	case <-time.After(200 * time.Millisecond):
	}
	first.Close()
	fine(waiting)
	_, last := dial() // Serve waits for a place now, and must end all the same
	server.Close()
	select {
	case err := <-served:
		if !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the listener does not end")
	}
	<-last
}

// TestBoundUnread sends the whole answer to a request whose body is not read, and its end at once: net/http closes the
// sending side first, and the connection half a second later, so that the client has time to read.
func TestBoundUnread(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := web.NewServer(web.Limits{}, web.Protect(web.Options{Loopback: true, Log: quiet}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		web.NotFound(w)
	})), quiet)
	go server.Serve(web.Bound(inner, web.Limits{}))
	defer server.Close()
	quickest := time.Minute
	for range 5 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 100_000))
		start := time.Now()
		if all, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 404") {
			t.Errorf("got %q, %v", all, err)
		}
		quickest = min(quickest, time.Since(start))
		c.Close()
	}
	if quickest > 400*time.Millisecond {
		t.Errorf("the end of the answer came after %v", quickest)
	}
}
