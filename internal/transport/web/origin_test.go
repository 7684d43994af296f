package web_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/transport/web"
)

// TestPagesOfListedOrigins holds that a browser gets what it needs for a listed origin, and nothing for any other.
func TestPagesOfListedOrigins(t *testing.T) {
	reached := 0
	h := web.Protect(web.Options{Loopback: true, Origins: []string{"https://app.example.org"}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		w.WriteHeader(http.StatusOK)
	}))
	send := func(method, origin, asks, headers string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://127.0.0.1:8635/mcp", nil)
		r.Header.Set("Origin", origin)
		if asks != "" {
			r.Header.Set("Access-Control-Request-Method", asks)
			r.Header.Set("Access-Control-Request-Headers", headers)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	w := send("OPTIONS", "https://app.example.org", "POST", "authorization, content-type, x-evil, mcp-param-region, mcp-param-")
	if w.Code != http.StatusNoContent || reached != 0 {
		t.Errorf("the question: status %d, handler reached %d times", w.Code, reached)
	}
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin":  "https://app.example.org",
		"Access-Control-Allow-Headers": "authorization, content-type, mcp-param-region",
		"Access-Control-Allow-Methods": "POST, GET, PUT, DELETE",
		"Vary":                         "Origin",
		"X-Content-Type-Options":       "nosniff",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if w := send("POST", "https://app.example.org", "", ""); w.Code != http.StatusOK || w.Header().Get("Access-Control-Allow-Origin") != "https://app.example.org" || w.Header().Get("Access-Control-Expose-Headers") == "" {
		t.Errorf("the request: status %d, %v", w.Code, w.Header())
	}
	for _, origin := range []string{"https://app.example.org.evil.example", "https://example.org", "null", "*"} {
		for _, asks := range []string{"", "POST"} {
			w := send("OPTIONS", origin, asks, "authorization")
			if w.Code != http.StatusForbidden || w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("origin %s: status %d, %v", origin, w.Code, w.Header())
			}
		}
	}
	if w := send("OPTIONS", "http://127.0.0.1:8635", "POST", "authorization"); w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Error("our own origin needs no permission, and got one")
	}
}
