package tabellion

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/tabellion-mcp/tabellion/internal/config"
	"github.com/tabellion-mcp/tabellion/internal/transport/ops"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// listeners are the HTTP servers that were started.
type listeners struct {
	mu      sync.Mutex
	servers []*http.Server
}

// Listen binds the configured addresses and begins to serve. Close ends it. It returns the address of the MCP
// endpoints and of health and metrics ("" when there is none), with the ports that were bound.
func (s *Server) Listen() (mcpAddr, opsAddr string, err error) {
	main, err := s.bind("listen", s.cfg.Listen)
	if err != nil {
		return "", "", err
	}
	tlsConfig, err := s.tls()
	if err != nil {
		return "", "", errors.Join(err, main.Close())
	}
	scheme := "http://"
	if tlsConfig != nil {
		scheme, main = "https://", tls.NewListener(main, tlsConfig)
	}
	var aside net.Listener
	if s.cfg.Ops != "" {
		if aside, err = s.bind("ops", s.cfg.Ops); err != nil {
			return "", "", errors.Join(err, main.Close())
		}
		opsAddr = aside.Addr().String()
	}
	url := scheme + main.Addr().String()
	s.address.Store(&url)
	p := s.parts.Load()
	s.sign(p)
	p.announce()
	s.serve(main, s.Handler())
	if aside != nil {
		s.serve(aside, s.OpsHandler())
	}
	return main.Addr().String(), opsAddr, nil
}

// bind opens the TCP listener of a key of the configuration.
func (s *Server) bind(key, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program listens on %s already; end it, or choose another address with the key %s or --%s: %w", address, key, key, err)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return web.Bound(l, web.Limits{}), nil
}

// serve runs one HTTP server until Close.
func (s *Server) serve(l net.Listener, h http.Handler) {
	server := web.NewServer(web.Limits{}, h, s.log)
	s.web.mu.Lock()
	defer s.web.mu.Unlock()
	s.web.servers = append(s.web.servers, server)
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("a listener ended: %w", err))
		}
	}()
}

// sign notes in the lock file where this server is, for those who find the folder taken.
func (s *Server) sign(p *parts) {
	url := s.address.Load()
	if url == nil {
		return
	}
	if err := p.store.SetAddress(*url); err != nil {
		s.log.Warn("the lock file does not say where this server is", "error", err)
	}
}

// Failed tells why the server can serve no longer, although nobody closed it: a listener ended, or the store could not
// be opened again because another process has the folder. It is said once.
func (s *Server) Failed() <-chan error { return s.failed }

// fail says it.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// OpsHandler serves /healthz, /readyz and /metrics.
func (s *Server) OpsHandler() http.Handler {
	return web.Protect(web.Options{Loopback: config.Loopback(s.cfg.Ops), Hosts: hosts(s.cfg, s.cfg.Ops), Log: s.log},
		ops.Handler(ops.Config{Health: s.health, Metrics: s.metrics.Handler()}))
}

// hosts are the names that an address is answered for beside those of loopback: the configured ones and, on loopback,
// the address itself, such as 127.0.0.2.
func hosts(cfg *Config, address string) []string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || !config.Loopback(address) {
		return cfg.Hosts
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return append(slices.Clone(cfg.Hosts), host)
}

// tls reads the certificate; nil without one.
func (s *Server) tls() (*tls.Config, error) {
	if s.cfg.TLS.Cert == "" {
		return nil, nil
	}
	cert, err := os.ReadFile(s.cfg.TLS.Cert)
	if err != nil {
		return nil, fmt.Errorf("tls.cert: %w", err)
	}
	key, err := s.cfg.TLS.Key.Reveal(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("tls.key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// close takes no more connections and waits for requests until ctx ends; then it cuts them.
func (l *listeners) close(ctx context.Context) error {
	l.mu.Lock()
	servers := l.servers
	l.mu.Unlock()
	var errs []error
	for _, server := range servers {
		if err := server.Shutdown(ctx); err != nil {
			errs = append(errs, err, server.Close())
		}
	}
	return errors.Join(errs...)
}
