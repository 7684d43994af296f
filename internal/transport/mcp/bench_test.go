package mcp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// discard is a ResponseWriter that keeps nothing.
type discard struct {
	h      http.Header
	status int
}

// Header gives the header.
func (d *discard) Header() http.Header { return d.h }

// Write drops b.
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader keeps the status.
func (d *discard) WriteHeader(status int) { d.status = status }

// BenchmarkCallHandler is one stateless tools/call through door and gate, without a network.
func BenchmarkCallHandler(b *testing.B) {
	r := newRig(b)
	handler := r.http.Config.Handler
	body := callBody("1", "persistence.echo", `{"namespace":"bench","id":"doc-1","payload":{"text":"`+strings.Repeat("x", 200)+`","n":[1,2,3],"ok":true}}`)
	template := httptest.NewRequest("POST", "http://localhost/mcp", nil)
	for name, value := range stateless("tools/call", "persistence.echo") {
		template.Header.Set(name, value)
	}
	template.Header.Set("Content-Type", "application/json")
	template.Header.Set("Accept", "application/json, text/event-stream")
	template.ContentLength = int64(len(body))
	b.ReportAllocs()
	for b.Loop() {
		req := *template
		req.Body = io.NopCloser(strings.NewReader(body))
		w := &discard{h: http.Header{}}
		handler.ServeHTTP(w, &req)
		if w.status != 200 {
			b.Fatal(w.status)
		}
	}
}

// BenchmarkCallHTTP is the same over a real connection, by several clients at once.
func BenchmarkCallHTTP(b *testing.B) {
	r := newRig(b)
	r.http.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	body := callBody("1", "persistence.echo", `{"namespace":"bench","id":"doc-1"}`)
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, _ := http.NewRequest("POST", r.http.URL+"/mcp", strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			for name, value := range stateless("tools/call", "persistence.echo") {
				req.Header.Set(name, value)
			}
			res, err := r.http.Client().Do(req)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	})
}
