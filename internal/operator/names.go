package operator

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
)

// Parts of input schemas that several operations share. A name is one of persistence.v1, section 3.1.
const (
	nameForm      = `"type":"string","pattern":"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"`
	tenantIn      = `"tenant":{"type":"string","maxLength":128,"description":"Whose namespace it is. Absent: of callers without a tenant."}`
	namespaceFact = `"namespace":{"type":"string"},"tenant":{"type":"string","description":"Absent: of callers without a tenant."}`
	pageIn        = `"after":{"type":"string","maxLength":512,"description":"next of the page before."},
 "limit":{"type":"integer","minimum":1,"maximum":500,"description":"100 when absent."}`
	nextOut = `"next":{"type":"string","description":"after of the next page; absent on the last one."}`
)

// pageSize is how many entries a page has when the caller does not say.
const pageSize = 100

// limitOf reads the size of a page.
func limitOf(in canonjson.Value) int {
	if n, ok := in.Get("limit").Int(); ok {
		return int(n)
	}
	return pageSize
}

// keptName is the name under which a store keeps a tenant's namespace: tenants share nothing (security requirements,
// S29).
func keptName(tenant, namespace string) string {
	if tenant == "" {
		return namespace
	}
	return tenant + ":" + namespace
}

// keptOf is keptName of an input.
func keptOf(in canonjson.Value) string {
	return keptName(in.Get("tenant").Str(), in.Get("namespace").Str())
}

// namespaceMembers show a kept namespace, tenant and name apart.
func namespaceMembers(kept string) []canonjson.Member {
	tenant, name := "", kept
	if i := strings.LastIndexByte(kept, ':'); i >= 0 {
		tenant, name = kept[:i], kept[i+1:]
	}
	return []canonjson.Member{canonjson.M("namespace", canonjson.String(name)), canonjson.M("tenant", text(tenant))}
}

// before is a text that comes before name, and behind every other name that does.
func before(name string) string {
	if name == "" {
		return ""
	}
	last := len(name) - 1
	return name[:last] + string(name[last]-1) + "\x7f" // no name holds a byte beyond z
}

// span is a length of time for people.
var span = regexp.MustCompile(`^([0-9]{1,8})([dhms])$`)

// maxSpan bounds a length of time: a hundred years.
const maxSpan = 100 * 366 * 24 * time.Hour

// parseSpan reads "90d", "12h", "30m" or "10s".
func parseSpan(text string) (time.Duration, bool) {
	m := span.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, _ := strconv.ParseInt(m[1], 10, 64) // at most 8 digits
	unit := map[string]time.Duration{"d": 24 * time.Hour, "h": time.Hour, "m": time.Minute, "s": time.Second}[m[2]]
	if n > int64(maxSpan/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// parseWhen reads a time, or how long before now it was. "" is the zero time.
func parseWhen(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, ok := parseSpan(text); ok {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, fault.New(fault.InvalidRequest, "%s is %s: expected how long ago, such as 1h or 7d, or a time such as 2027-01-31T12:00:00Z", name, catalog.Quote(text, 64))
}
