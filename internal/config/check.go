package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Check holds the rules between keys. Its error is a Problems.
func (c *Config) Check() error {
	k := &checker{c: c}
	if c.Data == "" {
		k.complain("data", errNoData.Error())
	}
	k.binds()
	k.tls()
	k.people()
	if m := c.Models; m != nil {
		if m.Definitions == "" {
			k.complain("models.definitions", "it is needed: a file or folder of model definitions")
		}
		if len(m.Sources) == 0 {
			k.complain("models.sources", "at least one database is needed: sources: {default: \"sqlite:./app.db\"}")
		}
		for name, s := range m.Sources {
			if s.Read == "" {
				k.complain("models.sources."+name, "the address for reads is missing")
			}
		}
	}
	if c.Policy != nil {
		if _, err := policy.New(*c.Policy); err != nil {
			k.policy(err)
		}
	}
	if least := 3*c.Persistence.Limits.MaxDocumentBytes + responseFrame; int64(c.Limits.ResponseBytes) < least {
		k.complain("limits.response_bytes", fmt.Sprintf("a document of persistence.limits.document_bytes, %s, could be written and not read: an answer holds it up to three times, as JSON and once more as escaped text; expected at least %d",
			formatSize(c.Persistence.Limits.MaxDocumentBytes), least))
	}
	return k.problems.sorted()
}

// responseFrame is the room of an answer beside the payload of its document, in bytes: 255 references, twice.
const responseFrame = 256 << 10

// checker gathers problems.
type checker struct {
	c        *Config
	problems Problems
}

// complain records a problem of a key, at the place where it was set.
func (k *checker) complain(path, message string) {
	k.problems = append(k.problems, Problem{k.c.origins[path], path, message})
}

// binds keeps what listens beyond this machine closed (security requirements, S4 and S19).
func (k *checker) binds() {
	c := k.c
	k.bind("listen", c.Listen)
	if c.Transfer.Listen != "" {
		k.bind("transfer.listen", c.Transfer.Listen)
	}
	if c.Ops != "" && !Loopback(c.Ops) && len(c.Hosts) == 0 {
		k.complain("ops", "an address that is not loopback needs the list of names that it is reached by, in hosts")
	}
	k.distinct("ops", c.Ops, "listen", c.Listen)
	k.distinct("transfer.listen", c.Transfer.Listen, "listen", c.Listen)
	k.distinct("transfer.listen", c.Transfer.Listen, "ops", c.Ops)
}

// bind is for an address where keys are asked for.
func (k *checker) bind(key, address string) {
	if Loopback(address) {
		return
	}
	switch c := k.c; {
	case c.Dev:
		k.complain(key, "--dev serves without authentication and refuses an address that is not loopback")
	case !c.Auth.Keys:
		k.complain(key, "an address that is not loopback needs auth.keys: true")
	}
	if !k.c.Dev && len(k.c.Hosts) == 0 {
		k.complain(key, "an address that is not loopback needs the list of names that it is reached by, in hosts")
	}
}

// distinct refuses one address for two listeners. Port 0 is any free one.
func (k *checker) distinct(key, address, other, taken string) {
	if address != "" && address == taken && !strings.HasSuffix(address, ":0") {
		k.complain(key, "it must be another address than "+other)
	}
}

// tls wants both parts or none.
func (k *checker) tls() {
	if (k.c.TLS.Cert == "") != k.c.TLS.Key.IsZero() {
		k.complain("tls", "cert and key belong together; one is missing")
	}
}

// people wants names where a principal is configured.
func (k *checker) people() {
	if l := k.c.Auth.Local; l != nil && l.Subject == "" {
		k.complain("auth.local", "subject is missing")
	} else if l != nil {
		if _, err := identity.Local(l.Subject, l.Roles); err != nil {
			k.complain("auth.local", err.Error())
		}
	}
	f := k.c.Auth.FirstKey
	if f == nil {
		return
	}
	if f.User == "" {
		k.complain("auth.first_key", "user is missing")
	}
	if !k.c.Auth.Keys {
		k.complain("auth.first_key", "it needs auth.keys: true")
	}
}

// policy gives an error of the policy the place of the entry that it names.
func (k *checker) policy(err error) {
	path, _, _ := strings.Cut(err.Error(), ":")
	at, ok := k.c.origins[path]
	for !ok && strings.Contains(path, ".") {
		path = path[:strings.LastIndexByte(path, '.')]
		at, ok = k.c.origins[path]
	}
	k.problems = append(k.problems, Problem{at, "", err.Error()})
}

// Loopback tells whether an address (host:port) is reached from this machine only.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
