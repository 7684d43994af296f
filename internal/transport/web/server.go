package web

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Limits bound a server (security requirements, S10). A zero field is its default.
type Limits struct {
	ReadHeader  time.Duration // a request's header must be there after this; default 5 s
	Read        time.Duration // and its whole body after this; default 30 s
	Write       time.Duration // an answer must be written this long after the header was read; default 90 s: body, call and sending
	Idle        time.Duration // a kept connection without a request is closed after this; default 120 s
	HeaderBytes int           // of one request; default 32 KiB
	Streams     int           // HTTP/2 streams of one connection; default 64
	Connections int           // open at once, of a listener (see Bound); default 2048
}

// headerSlop is what net/http adds to MaxHeaderBytes before it refuses.
const headerSlop = 4096

// NewServer makes a server that keeps l. The caller sets TLSConfig (see TLS) and serves it.
func NewServer(l Limits, h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: cmp.Or(l.ReadHeader, 5*time.Second),
		ReadTimeout:       cmp.Or(l.Read, 30*time.Second),
		WriteTimeout:      cmp.Or(l.Write, 90*time.Second),
		IdleTimeout:       cmp.Or(l.Idle, 120*time.Second),
		MaxHeaderBytes:    cmp.Or(l.HeaderBytes, 32<<10) - headerSlop,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: cmp.Or(l.Streams, 64)},
		// OPTIONS * is a request like any other: net/http would answer it without a look at Host and without our headers.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// TLS is the configuration of a listener with this certificate: TLS 1.2 or newer.
func TLS(certFile, keyFile string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
