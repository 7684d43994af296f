package ops_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/metrics"
	"github.com/tabellion-mcp/tabellion/internal/transport/ops"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// handler is the page of a server with this health, behind the checks that every listener has.
func handler(h ops.Health, m *metrics.Metrics) http.Handler {
	return web.Protect(web.Options{Loopback: true, Log: slog.New(slog.DiscardHandler)},
		ops.Handler(ops.Config{Health: func() ops.Health { return h }, Metrics: m.Handler()}))
}

// TestPages holds what each path answers.
func TestPages(t *testing.T) {
	broken := errors.New("fsync /srv/secret-tenant: input/output error")
	for _, tt := range []struct {
		name, method, path, host string
		health                   ops.Health
		status                   int
		want                     string
	}{
		{"alive", "GET", "/healthz", "127.0.0.1:1", ops.Health{Store: broken}, 200, `{"status":"ok"}`},
		{"ready", "GET", "/readyz", "localhost", ops.Health{}, 200, `{"status":"ready","store":"ok","audit":{"status":"ok","lostEntries":0,"lostReadLines":0}}`},
		{"broken store", "GET", "/readyz", "localhost", ops.Health{Store: broken}, 503, `"status":"not ready","store":"failing"`},
		{"lost reads are shown and hurt nobody", "GET", "/readyz", "localhost", ops.Health{Audit: broken, LostReads: 7, LostStore: 3}, 200, `"audit":{"status":"failing","lostEntries":3,"lostReadLines":7}`},
		{"closing", "GET", "/readyz", "localhost", ops.Health{Closing: true}, 503, `"status":"closing"`},
		{"metrics", "GET", "/metrics", "[::1]:9", ops.Health{}, 200, `tabellion_build_info{version="v"} 1`},
		{"nothing else", "GET", "/debug/pprof/", "localhost", ops.Health{}, 404, "not_found"},
		{"no cleaning", "GET", "//readyz", "localhost", ops.Health{}, 404, "not_found"},
		{"only GET", "POST", "/readyz", "localhost", ops.Health{}, 405, "method_not_allowed"},
		{"no HEAD", "HEAD", "/metrics", "localhost", ops.Health{}, 405, ""},
		{"another host", "GET", "/metrics", "evil.example", ops.Health{}, 403, "host_not_allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, "http://x"+tt.path, nil)
			r.Host = tt.host
			w := httptest.NewRecorder()
			handler(tt.health, metrics.New("v")).ServeHTTP(w, r)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tt.status, tt.want)
			}
			if strings.Contains(w.Body.String(), "secret-tenant") {
				t.Errorf("the page tells the cause: %s", w.Body)
			}
			if w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Error("the headers of every answer are missing")
			}
		})
	}
}

// TestMetrics counts by operation, surface and outcome.
func TestMetrics(t *testing.T) {
	m := metrics.New("v")
	m.Called("persistence.put", fault.Tool, "ok", 3*time.Millisecond)
	m.Called("persistence.put", fault.Tool, "ok", 3*time.Millisecond)
	m.Called("", fault.Tool, "unknown_tool", time.Microsecond)
	m.Refused(fault.UnauthorizedKey)
	m.Gauge("tabellion_store_writable", func() float64 { return 1 })
	r := httptest.NewRequest("GET", "http://localhost/metrics", nil)
	w := httptest.NewRecorder()
	handler(ops.Health{}, m).ServeHTTP(w, r)
	for _, want := range []string{
		`tabellion_calls_total{operation="persistence.put",surface="tool",outcome="ok"} 2`,
		`tabellion_calls_total{operation="",surface="tool",outcome="unknown_tool"} 1`,
		`tabellion_call_seconds_bucket{operation="persistence.put",le="0.0025"} 0`,
		`tabellion_call_seconds_bucket{operation="persistence.put",le="0.005"} 2`,
		`tabellion_refused_total{code="UNAUTHORIZED_KEY"} 1`,
		`tabellion_store_writable 1`,
		`go_goroutines `,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("missing: %s", want)
		}
	}
}
