package web

import (
	"net/http"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/identity"
)

// Credentials takes the key of a request from `Authorization: Bearer <key>` or `X-MCP-API-KEY`. Both may be there
// when they say the same. Several of one header, two that differ and an Authorization header that holds no bearer are
// malformed. The URL is never looked at: it ends up in logs.
func Credentials(r *http.Request) identity.Credentials {
	c := identity.Credentials{Addr: ClientAddr(r)}
	auth, own := r.Header["Authorization"], r.Header["X-Mcp-Api-Key"]
	if len(auth) > 1 || len(own) > 1 {
		c.Malformed = true
		return c
	}
	if len(auth) == 1 {
		key, ok := bearer(auth[0])
		c.Key, c.Malformed = key, !ok
	}
	if len(own) == 1 {
		key := own[0]
		if key == "" || (c.Key != "" && c.Key != key) {
			c.Malformed = true
		}
		if c.Key == "" {
			c.Key = key
		}
	}
	if c.Malformed {
		c.Key = ""
	}
	return c
}

// bearer takes the token from an Authorization header (RFC 6750, section 2.1; the scheme in any case).
func bearer(value string) (token string, ok bool) {
	scheme, token, found := strings.Cut(value, " ")
	token = strings.Trim(token, " ")
	if !found || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", false
	}
	for i := 0; i < len(token); i++ {
		if !tokenByte(token[i]) {
			return "", false
		}
	}
	return token, true
}

// tokenByte tells whether c may stand in a bearer token.
func tokenByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return strings.IndexByte("-._~+/=", c) >= 0
}
