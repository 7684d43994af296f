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

// Addresses are where a server listens, as host:port with the ports that were bound. Ops and Transfer are "" when there
// is no such listener.
type Addresses struct{ MCP, Ops, Transfer string }

// Listen binds the configured addresses and begins to serve. Close ends it.
func (s *Server) Listen() (Addresses, error) {
	tlsConfig, err := s.tls()
	if err != nil {
		return Addresses{}, err
	}
	var at Addresses
	bound, err := s.bindAll(tlsConfig, &at)
	if err != nil {
		for _, l := range bound {
			err = errors.Join(err, l.Close())
		}
		return Addresses{}, err
	}
	scheme := "http://"
	if tlsConfig != nil {
		scheme = "https://"
	}
	url := scheme + at.MCP
	s.address.Store(&url)
	p := s.parts.Load()
	s.sign(p)
	p.announce()
	s.serve(bound["listen"], s.Handler())
	if l := bound["ops"]; l != nil {
		s.serve(l, s.OpsHandler())
	}
	if l := bound["transfer"]; l != nil {
		s.serve(l, s.TransferHandler())
	}
	return at, nil
}

// bindAll opens the listeners of the configuration, by their keys. On an error it returns those that are open.
func (s *Server) bindAll(tlsConfig *tls.Config, at *Addresses) (map[string]net.Listener, error) {
	bound := map[string]net.Listener{}
	for _, want := range []struct {
		key, address string
		secret, lax  bool
		at           *string
	}{
		{"listen", s.cfg.Listen, true, false, &at.MCP},
		{"ops", s.cfg.Ops, false, false, &at.Ops},
		{"transfer", s.cfg.Transfer.Listen, true, s.cfg.Transfer.IfFree, &at.Transfer},
	} {
		if want.address == "" {
			continue
		}
		l, err := s.bind(want.key, want.address)
		if want.lax && errors.Is(err, syscall.EADDRINUSE) {
			s.log.Warn("the local transfer address is taken; files are sent to and fetched from the main address only", "address", want.address)
			continue
		}
		if err != nil {
			return bound, err
		}
		*want.at = l.Addr().String()
		if want.secret && tlsConfig != nil {
			l = tls.NewListener(l, tlsConfig)
		}
		bound[want.key] = l
	}
	return bound, nil
}

// bind opens the TCP listener of a key of the configuration.
func (s *Server) bind(key, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		name := key
		if key == "transfer" {
			name = "transfer.listen"
		}
		return nil, fmt.Errorf("another program listens on %s already; end it, or choose another address with the key %s or --%s: %w", address, name, key, err)
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

// TransferHandler serves the transfer routes and nothing else.
func (s *Server) TransferHandler() http.Handler {
	return web.Protect(web.Options{
		Loopback: config.Loopback(s.cfg.Transfer.Listen), Hosts: hosts(s.cfg, s.cfg.Transfer.Listen), Origins: s.cfg.Origins, Log: s.log,
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.parts.Load().transfer.ServeHTTP(w, r) }))
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
