// Package metrics counts calls and shows them in the text form of Prometheus. Labels hold names of operations, codes
// and surfaces, which are fixed by the program, and never the name of a tenant, a namespace, a document or a caller.
package metrics

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/tabellion-mcp/tabellion/fault"
)

// Metrics are the counters of one server. They are safe for concurrent use.
type Metrics struct {
	set     *metrics.Set
	calls   sync.Map // of call to *metrics.Counter
	seconds sync.Map // of operation to *metrics.PrometheusHistogram
	refused sync.Map // of fault.Code to *metrics.Counter
}

// call is what calls are counted by.
type call struct {
	operation string
	surface   fault.Surface
	outcome   string
}

// buckets are the bounds of a call's time, in seconds: from a cached read to the deadline.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// New makes the counters.
func New(version string) *Metrics {
	m := &Metrics{set: metrics.NewSet()}
	m.Gauge(fmt.Sprintf(`tabellion_build_info{version=%q}`, version), func() float64 { return 1 })
	return m
}

// Gauge shows a value that is asked for at each look. It panics when the name is taken.
func (m *Metrics) Gauge(name string, value func() float64) { m.set.NewGauge(name, value) }

// Called counts a call. operation is empty when none was reached; outcome is ok, asked, error, or the failure's code.
func (m *Metrics) Called(operation string, surface fault.Surface, outcome string, took time.Duration) {
	key := call{operation, surface, outcome}
	counter, ok := m.calls.Load(key)
	if !ok {
		name := fmt.Sprintf(`tabellion_calls_total{operation=%q,surface=%q,outcome=%q}`, operation, surface, outcome)
		counter, _ = m.calls.LoadOrStore(key, m.set.GetOrCreateCounter(name))
	}
	counter.(*metrics.Counter).Inc()
	seconds, ok := m.seconds.Load(operation)
	if !ok {
		name := fmt.Sprintf(`tabellion_call_seconds{operation=%q}`, operation)
		seconds, _ = m.seconds.LoadOrStore(operation, m.set.GetOrCreatePrometheusHistogramExt(name, buckets))
	}
	seconds.(*metrics.PrometheusHistogram).Update(took.Seconds())
}

// Refused counts a refusal before a call.
func (m *Metrics) Refused(code fault.Code) {
	counter, ok := m.refused.Load(code)
	if !ok {
		counter, _ = m.refused.LoadOrStore(code, m.set.GetOrCreateCounter(fmt.Sprintf(`tabellion_refused_total{code=%q}`, code)))
	}
	counter.(*metrics.Counter).Inc()
}

// Handler writes the counters, and those of the process and the Go runtime.
func (m *Metrics) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		m.set.WritePrometheus(w)
		metrics.WriteProcessMetrics(w)
	})
}
