// Package metrics counts calls and shows them in the text form of Prometheus. Labels hold names of operations, codes
// and surfaces, which are fixed by the program, and never the name of a tenant, a namespace, a document or a caller.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tabellion-mcp/tabellion/fault"
)

// Metrics are the counters of one server. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
}

// buckets are the bounds of a call's time, in seconds: from a cached read to the deadline.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// New makes the counters, with those of the Go runtime and the process beside them.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tabellion_calls_total", Help: "Calls that went through the gate, by outcome: ok, asked, error, or the code of the failure."},
			[]string{"operation", "surface", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tabellion_call_seconds", Help: "Time of calls in the gate.", Buckets: buckets},
			[]string{"operation"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tabellion_refused_total", Help: "Requests that were refused before a call began, by code."},
			[]string{"code"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tabellion_build_info", Help: "Always 1; the label is the version.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(m.calls, m.seconds, m.refused, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Gauge shows a value that is asked for at each look.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Called counts a call. operation is empty when none was reached.
func (m *Metrics) Called(operation string, surface fault.Surface, outcome string, took time.Duration) {
	m.calls.WithLabelValues(operation, string(surface), outcome).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}

// Refused counts a refusal before a call.
func (m *Metrics) Refused(code fault.Code) { m.refused.WithLabelValues(string(code)).Inc() }

// Handler writes the counters.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
}
