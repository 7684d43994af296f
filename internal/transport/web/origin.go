package web

import (
	"net/http"
	"strings"
)

// What a page of a listed origin may send and read. Requests of ours carry Authorization and a JSON type, so a browser
// always asks first.
const (
	pageMethods = "POST, GET, PUT, DELETE"
	pageReads   = "Mcp-Session-Id, WWW-Authenticate, Retry-After"
	pageAge     = "600" // seconds that a browser may keep the answer
)

// pageHeaders are the request headers that a page may set, besides those that begin with Mcp-Param-.
var pageHeaders = []string{
	"authorization", "content-type", "accept", "x-mcp-api-key", "mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name", "last-event-id",
}

// fromPage lets a page of a listed origin read the answer, and answers the question that a browser asks before it
// sends the request; then it returns true. Only the very origin is named, never a wildcard (security requirements,
// S6). Pages of our own origin need none of this.
func (g *guard) fromPage(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || !g.origins[strings.ToLower(origin)] {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", pageReads)
		return false
	}
	h.Set("Access-Control-Allow-Methods", pageMethods)
	h.Set("Access-Control-Allow-Headers", allowedHeaders(r.Header.Get("Access-Control-Request-Headers")))
	h.Set("Access-Control-Max-Age", pageAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}

// allowedHeaders is the part of the asked headers that a page may set.
func allowedHeaders(asked string) string {
	var out []string
	for _, name := range strings.Split(strings.ToLower(asked), ",") {
		name = strings.TrimSpace(name)
		for _, known := range pageHeaders {
			if name == known {
				out = append(out, name)
			}
		}
		if rest, ok := strings.CutPrefix(name, "mcp-param-"); ok && isToken(rest) {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

// isToken tells whether s is made of letters, digits, hyphens and underscores.
func isToken(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}
