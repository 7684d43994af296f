// Package identity tells who a caller is: the principal behind an API key, behind the local process, or in
// development mode. It decides nothing; see policy and gate.
package identity

import (
	"strings"

	"github.com/tabellion-mcp/tabellion/policy"
)

// Method is how a principal proved who it is.
type Method string

// The methods that exist.
const (
	MethodStdio Method = "stdio" // the local process, as configured by auth.local
	MethodKey   Method = "key"   // an API key
	MethodDev   Method = "dev"   // --dev on loopback
)

// Principal is an authenticated caller. It is immutable after it has been handed to the gate.
type Principal struct {
	// Subject is the caller's one name, such as "user:ana", "key:7f3a" or "local:me": audit, sealed values and
	// rate limits use it.
	Subject string
	// Subjects are all names that policy assignments match, Subject included: user:, group:, client:, service:,
	// key:, role:, local:.
	Subjects []string
	// Roles are for model role lists. They are mapped from configuration or the key, never invented.
	Roles  []string
	Tenant string // "" where there is only one
	Plan   string // "" is unlimited
	Method Method
	// KeyID is the key's identifier when Method is MethodKey.
	KeyID string
	// Only narrows the principal to these scopes; nil is no narrowing, an empty non-nil slice is nothing at all.
	Only []policy.Scope
	// Decider answers for this principal in place of the server's own policy: the broker connection that the request
	// came on. Nil is the server's policy. Only the gate may call it.
	Decider policy.Decider
}

// UserID is the subject without its kind: "ana" for "user:ana".
func (p *Principal) UserID() string {
	if _, name, ok := strings.Cut(p.Subject, ":"); ok {
		return name
	}
	return p.Subject
}

// RateKey is what rate limits and concurrency are counted by: the tenant and the subject.
func (p *Principal) RateKey() string { return p.Tenant + "\x00" + p.Subject }

// Credentials are what came with a request.
type Credentials struct {
	Key       string // API key as sent; "" when none was
	Malformed bool   // several credentials, or an Authorization header that holds no bearer
	Addr      string // client address without port
}
