package web_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// quiet logs nowhere.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// unread is a body that must not be read.
type unread struct{ t *testing.T }

// Read fails the test.
func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// TestHosts holds which hosts are answered for (security requirements, S5).
func TestHosts(t *testing.T) {
	public := web.Options{Hosts: []string{"Docs.Example", "api.example:8443", "[2001:db8::1]"}, Log: quiet}
	local := web.Options{Loopback: true, Log: quiet}
	tests := []struct {
		host          string
		local, public bool
	}{
		{"localhost", true, false}, {"localhost:8080", true, false}, {"LOCALHOST:1", true, false},
		{"127.0.0.1", true, false}, {"127.0.0.1:65535", true, false}, {"[::1]", true, false}, {"[::1]:80", true, false},
		{"127.0.0.2", false, false}, {"127.1", false, false}, {"0.0.0.0", false, false}, {"::1", false, false}, {"[::1", false, false},
		{"localhost.", false, false}, {"localhost.evil.example", false, false}, {"evil.example", false, false},
		{"localhost:", false, false}, {"localhost:80:80", false, false}, {"localhost:x", false, false}, {"localhost:123456", false, false},
		{"user@localhost", false, false}, {"localhost/", false, false}, {"", false, false}, {":80", false, false}, {"[]", false, false},
		{"docs.example", false, true}, {"DOCS.example:99", false, true}, {"docs.example.evil.example", false, false},
		{"api.example", false, false}, {"api.example:8443", false, true}, {"api.example:8444", false, false},
		{"[2001:db8::1]:443", false, true}, {"[2001:db8::2]", false, false},
	}
	for _, tt := range tests {
		for name, o := range map[string]web.Options{"local": local, "public": public} {
			want := map[string]bool{"local": tt.local, "public": tt.public}[name]
			called := false
			h := web.Protect(o, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { called = true }))
			r := httptest.NewRequest("POST", "http://x/", unread{t})
			r.Host = tt.host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if called != want || (w.Code == 403) == want {
				t.Errorf("%s, host %q: called %v, status %d", name, tt.host, called, w.Code)
			}
			if !want && (w.Header().Get("Connection") != "close" || !strings.Contains(w.Body.String(), `"host_not_allowed"`)) {
				t.Errorf("%s, host %q: %v %s", name, tt.host, w.Header(), w.Body)
			}
		}
	}
}

// TestOrigins holds which pages may call (security requirements, S6).
func TestOrigins(t *testing.T) {
	h := web.Protect(web.Options{Loopback: true, Hosts: []string{"docs.example"}, Origins: []string{"https://App.Example"}, Log: quiet},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	tests := []struct {
		host    string
		origins []string
		tls, ok bool
	}{
		{"localhost:8080", nil, false, true},
		{"localhost:8080", []string{"http://localhost:8080"}, false, true},
		{"localhost:8080", []string{"HTTP://LOCALHOST:8080"}, false, true},
		{"localhost:8080", []string{"http://localhost:3000"}, false, false},
		{"localhost:8080", []string{"https://localhost:8080"}, false, false},
		{"docs.example", []string{"https://docs.example"}, true, true},
		{"docs.example", []string{"http://docs.example"}, true, false},
		{"docs.example", []string{"https://app.example"}, true, true},
		{"docs.example", []string{"https://app.example.evil.example"}, true, false},
		{"docs.example", []string{"null"}, true, false},
		{"docs.example", []string{""}, true, false},
		{"docs.example", []string{"*"}, true, false},
		{"docs.example", []string{"https://app.example", "https://evil.example"}, true, false},
	}
	for _, tt := range tests {
		r := httptest.NewRequest("POST", "http://x/", unread{t})
		r.Host = tt.host
		if tt.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if tt.origins != nil {
			r.Header["Origin"] = tt.origins
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if (w.Code == 200) != tt.ok {
			t.Errorf("host %s, origin %q: %d", tt.host, tt.origins, w.Code)
		}
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != "" && (!tt.ok || got != tt.origins[0]) {
			t.Errorf("origin %q gets the cross-origin header %q", tt.origins, got)
		}
	}
}

// TestHeaders holds what every answer carries (security requirements, S9), refusals too.
func TestHeaders(t *testing.T) {
	h := web.Protect(web.Options{Loopback: true, Log: quiet}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { web.NotFound(w) }))
	for _, host := range []string{"localhost", "evil.example"} {
		for _, secure := range []bool{false, true} {
			r := httptest.NewRequest("GET", "http://x/", nil)
			r.Host = host
			if secure {
				r.TLS = &tls.ConnectionState{}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			want := map[string]string{
				"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "Server": "",
				"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Content-Type": "application/json",
				"Strict-Transport-Security": map[bool]string{true: "max-age=31536000"}[secure],
			}
			for name, value := range want {
				if got := w.Header().Get(name); got != value {
					t.Errorf("%s, TLS %v: %s is %q", host, secure, name, got)
				}
			}
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("body %q", w.Body)
			}
		}
	}
	page := web.Protect(web.Options{Loopback: true, Policy: "default-src 'self'", Log: quiet}, http.NotFoundHandler())
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "http://localhost/", nil)
	page.ServeHTTP(w, r)
	if got := w.Header().Get("Content-Security-Policy"); got != "default-src 'self'" {
		t.Errorf("own policy: %q", got)
	}
}

// TestCredentials holds where a key is taken from (context, section 15).
func TestCredentials(t *testing.T) {
	tests := []struct {
		name      string
		auth, own []string
		key       string
		malformed bool
	}{
		{"none", nil, nil, "", false},
		{"bearer", []string{"Bearer tbl_abc"}, nil, "tbl_abc", false},
		{"scheme in other case", []string{"bEARER tbl_abc"}, nil, "tbl_abc", false},
		{"spaces", []string{"Bearer   tbl_abc "}, nil, "tbl_abc", false},
		{"all characters", []string{"Bearer aZ09-._~+/="}, nil, "aZ09-._~+/=", false},
		{"own header", nil, []string{"tbl_abc"}, "tbl_abc", false},
		{"both equal", []string{"Bearer tbl_abc"}, []string{"tbl_abc"}, "tbl_abc", false},
		{"both, different", []string{"Bearer tbl_abc"}, []string{"tbl_abd"}, "", true},
		{"basic", []string{"Basic dXNlcjpwYXNz"}, nil, "", true},
		{"basic beside the own header", []string{"Basic dXNlcjpwYXNz"}, []string{"tbl_abc"}, "", true},
		{"no token", []string{"Bearer"}, nil, "", true},
		{"empty token", []string{"Bearer "}, nil, "", true},
		{"empty", []string{""}, nil, "", true},
		{"two tokens", []string{"Bearer a b"}, nil, "", true},
		{"comma", []string{"Bearer a,Bearer b"}, nil, "", true},
		{"tab", []string{"Bearer\ta"}, nil, "", true},
		{"two headers", []string{"Bearer a", "Bearer a"}, nil, "", true},
		{"two own headers", nil, []string{"a", "a"}, "", true},
		{"empty own header", nil, []string{""}, "", true},
	}
	for _, tt := range tests {
		r := httptest.NewRequest("POST", "http://localhost/mcp?key=x&access_token=y", nil)
		r.RemoteAddr = "192.0.2.7:1234"
		r.Header["X-Forwarded-For"] = []string{"203.0.113.9"}
		r.Header["Forwarded"] = []string{"for=203.0.113.9"}
		if tt.auth != nil {
			r.Header["Authorization"] = tt.auth
		}
		if tt.own != nil {
			r.Header["X-Mcp-Api-Key"] = tt.own
		}
		want := identity.Credentials{Key: tt.key, Malformed: tt.malformed, Addr: "192.0.2.7"}
		if got := web.Credentials(r); got != want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, want)
		}
	}
}

// TestPanic ends one request only, says nothing of its cause, and cannot be taken for a whole answer.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s := httptest.NewUnstartedServer(nil)
	s.Config = web.NewServer(web.Limits{}, web.Protect(web.Options{Loopback: true, Log: logger}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.EscapedPath() {
		case "/before":
			panic("secret")
		case "/after":
			io.WriteString(w, strings.Repeat("x", 10_000))
			panic("secret")
		}
		io.WriteString(w, "fine")
	})), quiet)
	s.Start()
	defer s.Close()
	res, err := s.Client().Get(s.URL + "/before")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 500 || !strings.Contains(string(body), `"internal"`) || strings.Contains(string(body), "secret") {
		t.Errorf("%d %q %v", res.StatusCode, body, err)
	}
	if res, err = s.Client().Get(s.URL + "/after"); err == nil {
		if _, err = io.ReadAll(res.Body); err == nil {
			t.Error("half an answer was taken for a whole one")
		}
	}
	if res, err = s.Client().Get(s.URL + "/other"); err != nil || res.StatusCode != 200 {
		t.Errorf("the server is hurt: %v", err)
	}
	if !strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "correlation=") {
		t.Errorf("log: %s", log.String())
	}
}

// TestLimits cuts slow senders and long headers (security requirements, S10).
func TestLimits(t *testing.T) {
	handled := make(chan error, 1)
	s := httptest.NewUnstartedServer(nil)
	s.Config = web.NewServer(web.Limits{ReadHeader: 300 * time.Millisecond, Read: 600 * time.Millisecond, Idle: 300 * time.Millisecond},
		web.Protect(web.Options{Loopback: true, Log: quiet}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			handled <- err
		})), quiet)
	s.Start()
	defer s.Close()
	tests := []struct{ name, head, drip, status string }{
		{"slow header", "POST / HTTP/1.1\r\nHost: localhost\r\nX: ", "x", ""},
		{"slow body", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", "x", ""},
		{"idle connection", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "", "HTTP/1.1 200"},
		{"long header", "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 33<<10) + "\r\n\r\n", "", "HTTP/1.1 431"},
		{"longest header", "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 31<<10) + "\r\n\r\n", "", "HTTP/1.1 200"},
		{"two lengths", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "", "HTTP/1.1 400"},
		{"length and chunks, hidden", "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "", "HTTP/1.1 501"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "", "HTTP/1.1 400"},
		{"other host in the target", "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "", "HTTP/1.1 403"},
		{"no host", "GET / HTTP/1.0\r\n\r\n", "", "HTTP/1.0 403"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(10 * time.Second))
			io.WriteString(c, tt.head)
			stop := make(chan struct{})
			go func() {
				for tt.drip != "" {
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
						io.WriteString(c, tt.drip)
					}
				}
			}()
			all, err := io.ReadAll(c)
			close(stop)
			if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
				t.Fatal("the connection was not closed")
			}
			if !strings.HasPrefix(string(all), tt.status) {
				t.Errorf("got %.60q", all)
			}
			if tt.name == "slow body" {
				if err := <-handled; err == nil {
					t.Error("the body was taken for whole")
				}
			}
			select {
			case <-handled:
			default:
			}
		})
	}
}

// certificate makes a self-signed one for localhost in files.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// TestTLS refuses what is older than TLS 1.2, speaks HTTP/2 and sends Strict-Transport-Security (S9, S52).
func TestTLS(t *testing.T) {
	certFile, keyFile := certificate(t)
	config, err := web.TLS(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := web.TLS(keyFile, certFile); err == nil {
		t.Error("a key was taken for a certificate")
	}
	server := web.NewServer(web.Limits{}, web.Protect(web.Options{Loopback: true, Log: quiet}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto)
	})), quiet)
	server.TLSConfig = config
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.ServeTLS(l, "", "")
	defer server.Shutdown(context.Background())
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: version, InsecureSkipVerify: true})
		if (err == nil) != ok {
			t.Errorf("version %x: %v", version, err)
		}
		if err == nil {
			c.Close()
		}
	}
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	res, err := client.Get("https://" + l.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	proto, _ := bufio.NewReader(res.Body).ReadString(0)
	if proto != "HTTP/2.0" || res.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("%s %v", proto, res.Header)
	}
}
