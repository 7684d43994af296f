package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/scenario"
	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
	"github.com/tabellion-mcp/tabellion/internal/testkit/verify"
)

// Server reads what a server holds, through a caller, for the verifier.
type Server struct {
	Caller Caller
	// Audit gives the audit rows of writes. Nil: they are not compared.
	Audit func(context.Context) ([]verify.Effect, error)
	// Record gets what the verifier does itself. Nil: nobody looks at the server again.
	Record *history.Recorder
	// Count gives the number of artifacts in Namespace. Nil: it is not known here.
	Count func(context.Context) (int, error)
}

var _ verify.Server = (*Server)(nil)

// Artifacts counts the workload's artifacts.
func (s *Server) Artifacts(ctx context.Context) (n int, known bool, err error) {
	if s.Count == nil {
		return 0, false, nil
	}
	n, err = s.Count(ctx)
	return n, true, err
}

// Artifact reads what is known of an artifact; nil when there is none.
func (s *Server) Artifact(ctx context.Context, name string) (*verify.Artifact, error) {
	namespace, id, _ := strings.Cut(name, "/")
	a, err := s.Caller.Call(ctx, "persistence.getArtifact", fmt.Appendf(nil, `{"namespace":%q,"id":%q}`, namespace, id))
	if err != nil || codeOf(a) == "not_found" {
		return nil, err
	}
	m, err := object(a)
	if err != nil {
		return nil, err
	}
	out := &verify.Artifact{MIME: fmt.Sprint(m["mimeType"])}
	n, _ := m["size"].(json.Number)
	out.Size, _ = n.Int64()
	hash, _ := m["hash"].(map[string]any)
	out.SHA256, _ = hash["value"].(string)
	provenance, _ := m["provenance"].(map[string]any)
	out.Key, _ = provenance["key"].(string)
	return out, nil
}

// Bytes reads the bytes of an artifact.
func (s *Server) Bytes(ctx context.Context, name string) (verify.Bytes, error) {
	res, err := s.Caller.HTTP(ctx, scenario.HTTPRequest{Method: http.MethodGet, Path: "/artifacts/" + name})
	return verify.Bytes{Status: res.Status, Whole: !res.Broken, Size: res.Size, SHA256: res.SHA256}, err
}

// Open tells whether an upload is open.
func (s *Server) Open(ctx context.Context, upload string) (bool, error) {
	a, err := s.Caller.Call(ctx, "persistence.uploadAccess", fmt.Appendf(nil, `{"namespace":%q,"uploadId":%q}`, Namespace, upload))
	if err != nil || codeOf(a) == "not_found" {
		return false, err
	}
	_, err = object(a)
	return true, err
}

// Commit publishes the upload that an operation was about; code is "" when that succeeded. With Record it is an operation
// of the history as any other.
func (s *Server) Commit(ctx context.Context, of history.Op) (code string, err error) {
	op := history.Op{
		Kind: history.Commit, Key: "verify-" + of.UploadID, Upload: of.Upload, UploadID: of.UploadID, Artifact: of.Artifact,
		Content: of.Content, MIME: of.MIME, Size: of.Size,
	}
	if s.Record != nil {
		op.Call = s.Record.Now()
	}
	a, err := s.Caller.Call(ctx, "persistence.commitArtifact", fmt.Appendf(nil, `{"namespace":%q,"uploadId":%q,"idempotencyKey":%q}`, Namespace, of.UploadID, op.Key))
	if err != nil {
		return "", err
	}
	op.Outcome, err = classify(a, &op)
	if s.Record != nil {
		s.Record.Add(op)
	}
	return op.Code, err
}

// codeOf is the code of a business error, or "".
func codeOf(a scenario.Answer) string {
	if !a.IsError {
		return ""
	}
	m, _ := a.Structured.(map[string]any)
	inner, _ := m["error"].(map[string]any)
	code, _ := inner["code"].(string)
	return code
}

// Documents lists the workload's documents.
func (s *Server) Documents(ctx context.Context) ([]string, error) {
	var names []string
	cursor := ""
	for {
		args := fmt.Sprintf(`{"namespace":%q,"includeDeleted":true,"limit":200%s}`, Namespace, cursor)
		a, err := s.Caller.Call(ctx, "persistence.list", []byte(args))
		if err != nil {
			return nil, err
		}
		m, err := object(a)
		if err != nil {
			return nil, err
		}
		items, _ := m["items"].([]any)
		for _, item := range items {
			names = append(names, Namespace+"/"+fmt.Sprint(item.(map[string]any)["id"]))
		}
		next, ok := m["nextCursor"].(string)
		if !ok {
			return names, nil
		}
		cursor = fmt.Sprintf(`,"cursor":%q`, next)
	}
}

// object is the structured content of a success.
func object(a scenario.Answer) (map[string]any, error) {
	m, ok := a.Structured.(map[string]any)
	if a.RPC != nil || a.IsError || !ok {
		return nil, fmt.Errorf("unexpected answer: %s", a)
	}
	return m, nil
}

// Revisions lists all revisions of a document.
func (s *Server) Revisions(ctx context.Context, document string) ([]verify.Revision, error) {
	namespace, id, _ := strings.Cut(document, "/")
	return revisionsOf(ctx, s.Caller, namespace, id)
}

// Effects gives the audit rows.
func (s *Server) Effects(ctx context.Context) ([]verify.Effect, error) {
	if s.Audit == nil {
		return nil, nil
	}
	return s.Audit(ctx)
}

// revisionsOf reads all pages of listRevisions.
func revisionsOf(ctx context.Context, caller Caller, namespace, id string) ([]verify.Revision, error) {
	var out []verify.Revision
	cursor := ""
	for {
		args := fmt.Sprintf(`{"namespace":%q,"id":%q,"limit":200%s}`, namespace, id, cursor)
		a, err := caller.Call(ctx, "persistence.listRevisions", []byte(args))
		if err != nil {
			return nil, err
		}
		m, err := object(a)
		if err != nil {
			return nil, err
		}
		items, _ := m["items"].([]any)
		for _, item := range items {
			out = append(out, revision(item.(map[string]any)))
		}
		next, ok := m["nextCursor"].(string)
		if !ok {
			return out, nil
		}
		cursor = fmt.Sprintf(`,"cursor":%q`, next)
	}
}

// revision reads a document as the verifier sees it.
func revision(m map[string]any) verify.Revision {
	var r verify.Revision
	n, _ := m["revision"].(json.Number)
	r.Number, _ = n.Int64()
	r.Deleted, _ = m["deleted"].(bool)
	payload, _ := m["payload"].(map[string]any)
	r.Content, _ = payload["key"].(string)
	refs, _ := m["references"].([]any)
	for _, ref := range refs {
		f, _ := ref.(map[string]any)
		if f["type"] == "artifact" {
			r.Artifacts = append(r.Artifacts, fmt.Sprintf("%v/%v", f["namespace"], f["id"]))
			continue
		}
		r.Refs = append(r.Refs, fmt.Sprintf("%v/%v@%v", f["namespace"], f["id"], f["revision"]))
	}
	return r
}
