// Package ops answers health and metrics, on a listener apart from the MCP endpoints (security requirements, S11). It
// shows no name of a tenant, a namespace or a document.
//
//	GET /healthz   200 while the process serves
//	GET /readyz    200 when calls can be served, 503 with what is wrong otherwise
//	GET /metrics   the text form of Prometheus
package ops

import (
	"net/http"
	"strconv"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// Health is what /readyz shows.
type Health struct {
	Store     error // nil when the store takes writes
	Audit     error // nil when the audit trail is written
	LostStore int64 // audit entries that the store did not get, since the start
	LostReads int64 // lines of the file of reads that were lost, since the start
	Closing   bool  // the server is shutting down
}

// Ready tells whether calls can be served. A loss in the file of reads is shown and keeps nobody from working
// (middle, D10).
func (h Health) Ready() bool { return h.Store == nil && !h.Closing }

// Config is what the handler needs. All fields are required.
type Config struct {
	Health  func() Health
	Metrics http.Handler
}

// Handler answers the paths. It must be wrapped by web.Protect.
func Handler(c Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer func()
		switch r.URL.EscapedPath() {
		case "/healthz":
			answer = func() { write(w, http.StatusOK, canonjson.Object(canonjson.M("status", canonjson.String("ok")))) }
		case "/readyz":
			answer = func() { ready(w, c.Health()) }
		case "/metrics":
			answer = func() { c.Metrics.ServeHTTP(w, r) }
		default:
			web.NotFound(w)
			return
		}
		if r.Method != http.MethodGet {
			web.MethodNotAllowed(w, http.MethodGet)
			return
		}
		answer()
	})
}

// ready answers /readyz. Causes are for the log: they hold paths, so this page says which part is ill and no more.
func ready(w http.ResponseWriter, h Health) {
	status, word := http.StatusOK, "ready"
	switch {
	case h.Closing:
		status, word = http.StatusServiceUnavailable, "closing"
	case !h.Ready():
		status, word = http.StatusServiceUnavailable, "not ready"
	}
	write(w, status, canonjson.Object(
		canonjson.M("status", canonjson.String(word)),
		canonjson.M("store", canonjson.String(health(h.Store))),
		canonjson.M("audit", canonjson.Object(
			canonjson.M("status", canonjson.String(health(h.Audit))),
			canonjson.M("lostEntries", canonjson.Int(h.LostStore)),
			canonjson.M("lostReadLines", canonjson.Int(h.LostReads))))))
}

// health is a part's state in a word.
func health(err error) string {
	if err != nil {
		return "failing"
	}
	return "ok"
}

// write answers with a JSON body.
func write(w http.ResponseWriter, status int, v canonjson.Value) {
	body := append(v.AppendJSON(nil), '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}
