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
	artifactResource = catalog.Resource{
		Template: "persistence://artifacts/{namespace}/{id}", Name: "artifact", Title: "Artifact",
		Doc: "What is known of an artifact, without its bytes.", MIME: jsonMIME, Match: matchArtifact,
	}
)

// scheme is the scheme of the slot's URIs.
const scheme = "persistence://"

// decimal is a revision without sign, leading zero or exponent.
var decimal = regexp.MustCompile(`^[1-9][0-9]{0,15}$`)

// matchHead reads persistence://documents/<namespace>/<id>.
func matchHead(uri string) (canonjson.Value, bool, error) {
	namespace, id, ok := matchPair(uri, "documents")
	return namedBy(namespace, id), ok, nil
}

// matchPair reads persistence://<kind>/<namespace>/<id>.
func matchPair(uri, kind string) (namespace, id string, ok bool) {
	rest, ok := strings.CutPrefix(uri, scheme+kind+"/")
	namespace, id, pair := strings.Cut(rest, "/")
	return namespace, id, ok && pair && ValidSegment(namespace) && ValidSegment(id)
}

// namedBy is the input of what reads one thing.
func namedBy(namespace, id string, more ...canonjson.Member) canonjson.Value {
	return canonjson.Object(append([]canonjson.Member{
		canonjson.M("namespace", canonjson.String(namespace)),
		canonjson.M("id", canonjson.String(id)),
	}, more...)...)
}

// matchRevision reads persistence://documents/<namespace>/<id>/revisions/<revision>.
func matchRevision(uri string) (canonjson.Value, bool, error) {
	rest, ok := strings.CutPrefix(uri, scheme+"documents/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 4 || parts[2] != "revisions" ||
		!ValidSegment(parts[0]) || !ValidSegment(parts[1]) || !decimal.MatchString(parts[3]) {
		return canonjson.Value{}, false, nil
	}
	revision, err := strconv.ParseInt(parts[3], 10, 64)
	if err != nil || revision > MaxSafe {
		return canonjson.Value{}, false, nil
	}
	return namedBy(parts[0], parts[1], canonjson.M("revision", canonjson.Int(revision))), true, nil
}

// matchArtifact reads persistence://artifacts/<namespace>/<id>. It stands last, so any other URI of the scheme is
// ill-formed.
func matchArtifact(uri string) (canonjson.Value, bool, error) {
	if !strings.HasPrefix(uri, scheme) {
		return canonjson.Value{}, false, nil
	}
	namespace, id, ok := matchPair(uri, "artifacts")
	if !ok {
		return canonjson.Value{}, false, badURI()
	}
	return namedBy(namespace, id), true, nil
}

// badURI says which forms exist.
func badURI() *fault.Error {
	return fault.New(fault.InvalidRequest, "the resource URI is not well formed; use persistence://documents/<namespace>/<id>, .../revisions/<revision>, or persistence://artifacts/<namespace>/<id>")
}
