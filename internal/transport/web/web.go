// Package web is what every HTTP listener of ours shares: which hosts and origins may call, the headers of every
// answer, timeouts, the credentials of a request, and errors as JSON.
//
//	handler := web.Protect(web.Options{Loopback: true, Log: log}, routes)
//	server := web.NewServer(web.Limits{}, handler)
//	server.Serve(listener)
//
// It decides nothing about access and routes nothing. Routes compare r.URL.EscapedPath() by hand: http.ServeMux
// would answer unclean paths with a redirect, and nothing of ours redirects.
package web

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Options say who may call and what every answer carries.
type Options struct {
	// Loopback allows the names of the machine itself as Host (localhost, 127.0.0.1, [::1]), on any port. It is for
	// listeners that are bound to a loopback address.
	Loopback bool
	// Hosts are further allowed hosts. An entry without a port allows every port.
	Hosts []string
	// Origins are allowed values of the Origin header, as browsers send them: https://example.org. The origin of the
	// request's own allowed host is always allowed. There is no wildcard.
	Origins []string
	// Policy is the Content-Security-Policy; empty is the closed one for answers that no browser shows.
	Policy string
	// Log takes panics. Required.
	Log *slog.Logger
}

// closedPolicy lets a browser load and frame nothing.
const closedPolicy = "default-src 'none'; frame-ancestors 'none'"

// Header values are shared by all answers, so that setting them allocates nothing. Nobody may write into them.
var (
	nosniff    = []string{"nosniff"}
	noStore    = []string{"no-store"}
	noReferrer = []string{"no-referrer"}
	strictTLS  = []string{"max-age=31536000"}
	jsonType   = []string{"application/json"}
)

// guard is the handler that Protect returns.
type guard struct {
	loopback bool
	hosts    map[string]bool
	origins  map[string]bool
	policy   []string
	log      *slog.Logger
	next     http.Handler
}

// Protect wraps next with the checks and headers that every listener needs (security requirements, S5, S6, S9).
// A request for another host, or from another origin, is refused before its body is read. A panic of next ends that
// request only.
func Protect(o Options, next http.Handler) http.Handler {
	g := &guard{loopback: o.Loopback, hosts: set(o.Hosts), origins: set(o.Origins), policy: []string{closedPolicy}, log: o.Log, next: next}
	if o.Policy != "" {
		g.policy = []string{o.Policy}
	}
	return g
}

// set is the set of names in lower case.
func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[strings.ToLower(n)] = true
	}
	return m
}

// ServeHTTP checks the request and passes it on.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["X-Content-Type-Options"] = nosniff
	h["Cache-Control"] = noStore
	h["Referrer-Policy"] = noReferrer
	h["Content-Security-Policy"] = g.policy
	if r.TLS != nil {
		h["Strict-Transport-Security"] = strictTLS
	}
	if !g.hostAllowed(r.Host) {
		refuse(w, "host_not_allowed", "this server does not answer for this host name; add it to the list of hosts")
		return
	}
	if !g.originAllowed(r) {
		refuse(w, "origin_not_allowed", "pages of this origin may not call; add it to the list of origins")
		return
	}
	if g.fromPage(w, r) {
		return
	}
	defer g.recovered(w, r)
	g.next.ServeHTTP(w, r)
}

// refuse answers 403 and closes the connection, so that the body is not read to keep it alive.
func refuse(w http.ResponseWriter, code, message string) {
	w.Header().Set("Connection", "close")
	Problem(w, http.StatusForbidden, code, message)
}

// hostAllowed tells whether host, as sent, is one of ours.
func (g *guard) hostAllowed(host string) bool {
	name, port, ok := splitHost(host)
	if !ok {
		return false
	}
	if g.loopback && (name == "localhost" || name == "127.0.0.1" || name == "[::1]") {
		return true
	}
	return g.hosts[name] || (port != "" && g.hosts[name+":"+port])
}

// splitHost takes a Host header apart: the name in lower case, IPv6 in its brackets, and the port if there is one.
// ok is false for what is no host at all.
func splitHost(host string) (name, port string, ok bool) {
	host = strings.ToLower(host)
	end := strings.IndexByte(host, ':')
	if strings.HasPrefix(host, "[") {
		if end = strings.IndexByte(host, ']') + 1; end == 0 {
			return "", "", false
		}
	}
	if end < 0 {
		end = len(host)
	}
	name, rest := host[:end], host[end:]
	if name == "" {
		return "", "", false
	}
	if rest == "" {
		return name, "", true
	}
	port = rest[1:]
	if rest[0] != ':' || port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "" {
		return "", "", false
	}
	return name, port, true
}

// originAllowed tells whether the page that sent r, if a page did, may call. "null" never may.
func (g *guard) originAllowed(r *http.Request) bool {
	values := r.Header["Origin"]
	if len(values) == 0 {
		return true
	}
	if len(values) > 1 {
		return false
	}
	origin := strings.ToLower(values[0])
	if g.origins[origin] {
		return true
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return origin == scheme+strings.ToLower(r.Host)
}

// recovered turns a panic of a handler into an answer, or breaks the connection off when the answer has begun.
func (g *guard) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	var b [12]byte
	rand.Read(b[:]) // never fails since Go 1.24
	id := hex.EncodeToString(b[:])
	g.log.ErrorContext(r.Context(), "panic in an HTTP handler", "correlation", id, "panic", v, "stack", string(debug.Stack()))
	// When the answer has not begun this is the whole of it, with its length. When it has begun, breaking the
	// connection off makes sure that the client cannot take it for whole.
	Problem(w, http.StatusInternalServerError, "internal", "internal error, report "+id+" to the operator")
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Problem answers with an error that a person or a program can read: {"error":{"code":...,"message":...}}.
func Problem(w http.ResponseWriter, status int, code, message string) {
	body := canonjson.Object(canonjson.M("error", canonjson.Object(
		canonjson.M("code", canonjson.String(code)),
		canonjson.M("message", canonjson.String(message))))).AppendJSON(nil)
	body = append(body, '\n')
	w.Header()["Content-Type"] = jsonType
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}

// MethodNotAllowed answers 405; allow lists the methods that the path has, as "GET, POST".
func MethodNotAllowed(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	Problem(w, http.StatusMethodNotAllowed, "method_not_allowed", "this path answers "+allow+" only")
}

// NotFound answers 404.
func NotFound(w http.ResponseWriter) {
	Problem(w, http.StatusNotFound, "not_found", "there is nothing at this path")
}

// ClientAddr is the address that the connection came from, without the port. X-Forwarded-For and its like are not
// looked at: any client can send them (security requirements, S13).
func ClientAddr(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
