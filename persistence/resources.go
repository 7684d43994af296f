package persistence

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
)

// jsonMIME is the type of every resource of the slot.
const jsonMIME = "application/json"

// The resources of persistence.v1, section 7.
var (
	capabilitiesResource = catalog.Resource{
		URI: "persistence://capabilities", Name: "capabilities", Title: "Limits and durability",
		Doc: "The limits and the durability of this store.", MIME: jsonMIME,
	}
	headResource = catalog.Resource{
		Template: "persistence://documents/{namespace}/{id}", Name: "document", Title: "Document",
		Doc: "The head of a document.", MIME: jsonMIME, Match: matchHead,
	}
	revisionResource = catalog.Resource{
		Template: "persistence://documents/{namespace}/{id}/revisions/{revision}", Name: "revision", Title: "Revision",
		Doc: "One revision of a document.", MIME: jsonMIME, Match: matchRevision,
	}
)

// scheme is the scheme of the slot's URIs.
const scheme = "persistence://"

// decimal is a revision without sign, leading zero or exponent.
var decimal = regexp.MustCompile(`^[1-9][0-9]{0,15}$`)

// matchHead reads persistence://documents/<namespace>/<id>.
func matchHead(uri string) (canonjson.Value, bool, error) {
	rest, ok := strings.CutPrefix(uri, scheme+"documents/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 2 || !ValidSegment(parts[0]) || !ValidSegment(parts[1]) {
		return canonjson.Value{}, false, nil
	}
	return canonjson.Object(
		canonjson.M("namespace", canonjson.String(parts[0])),
		canonjson.M("id", canonjson.String(parts[1]))), true, nil
}

// matchRevision reads persistence://documents/<namespace>/<id>/revisions/<revision>. It stands last, so any other URI
// of the scheme is ill-formed.
func matchRevision(uri string) (canonjson.Value, bool, error) {
	rest, ours := strings.CutPrefix(uri, scheme)
	if !ours {
		return canonjson.Value{}, false, nil
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 5 || parts[0] != "documents" || parts[3] != "revisions" ||
		!ValidSegment(parts[1]) || !ValidSegment(parts[2]) || !decimal.MatchString(parts[4]) {
		return canonjson.Value{}, false, badURI()
	}
	revision, err := strconv.ParseInt(parts[4], 10, 64)
	if err != nil || revision > MaxSafe {
		return canonjson.Value{}, false, badURI()
	}
	return canonjson.Object(
		canonjson.M("namespace", canonjson.String(parts[1])),
		canonjson.M("id", canonjson.String(parts[2])),
		canonjson.M("revision", canonjson.Int(revision))), true, nil
}

// badURI says which forms exist.
func badURI() *fault.Error {
	return fault.New(fault.InvalidRequest, "the resource URI is not well formed; use persistence://documents/<namespace>/<id> or .../revisions/<revision>")
}
