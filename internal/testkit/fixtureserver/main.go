// Command fixtureserver serves the fixtures that the MCP conformance suites call, on the HTTP stack, transport,
// identity and gate of the product. It is for tests only and takes any caller, so it listens on loopback only.
//
//	fixtureserver -listen 127.0.0.1:0 -port-file FILE
//
// It writes its URL to standard output, and the port to FILE once it listens.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/testkit/fixtureserver/fixture"
	"github.com/tabellion-mcp/tabellion/internal/transport/mcp"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// main runs the server until it is interrupted.
func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on; it must be loopback")
	portFile := flag.String("port-file", "", "file that gets the port once the server listens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *portFile); err != nil {
		fmt.Fprintln(os.Stderr, "fixtureserver:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, listen, portFile string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var server *mcp.Server
	parts, err := fixture.New(fixture.Options{
		Open: true, Log: log, Notify: func(c catalog.Change) { server.Notify(c) },
	}, operations()...)
	if err != nil {
		return err
	}
	server = mcp.New(mcp.Config{
		Gate: parts.Gate, Catalog: parts.Catalog, Log: log, SSE: true,
		Info: mcp.Info{Name: "tabellion-fixtures", Version: "0"},
	})
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	addr := l.Addr().(*net.TCPAddr)
	if !addr.IP.IsLoopback() {
		return errors.New("every caller is let in: the address must be loopback")
	}
	h := web.NewServer(web.Limits{}, web.Protect(web.Options{Loopback: true, Log: log}, server.Handler()), log)
	fmt.Printf("http://%s/mcp\n", addr)
	if portFile != "" {
		if err := os.WriteFile(portFile, []byte(strconv.Itoa(addr.Port)), 0o600); err != nil {
			return err
		}
	}
	return serve(ctx, server, h, l)
}

// serve serves l until ctx ends, then closes in order.
func serve(ctx context.Context, server *mcp.Server, h *http.Server, l net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(web.Bound(l, web.Limits{})) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	server.Close(ctx)
	return h.Shutdown(ctx)
}
