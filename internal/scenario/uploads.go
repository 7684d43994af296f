package scenario

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// begun is an upload that a beginArtifact of the scenario opened.
type begun struct{ as, tool, namespace, upload string }

// note keeps of an answer what later steps and AbortUploads need: where an artifact was begun, and the upload. It does
// so whatever the scenario expects, also when the answer is one that it drops.
func (r *Runner) note(st Step, a Answer) {
	artifact, ok := at(a.Structured, "/artifactId")
	if !ok {
		return
	}
	space, _ := at(a.Structured, "/namespace")
	r.spaces[fmt.Sprint(artifact)] = fmt.Sprint(space)
	upload, ok := at(a.Structured, "/uploadId")
	prefix, begin := strings.CutSuffix(st.Tool, "beginArtifact")
	if !ok || !begin {
		return
	}
	b := begun{st.As, prefix + "abortArtifact", fmt.Sprint(space), fmt.Sprint(upload)}
	if !slices.Contains(r.uploads, b) { // a repeated begin answers the same
		r.uploads = append(r.uploads, b)
	}
}

// AbortUploads aborts what uploads the scenario that ran last has left open, so that they count against no limit of its
// callers. Uploads that are committed, aborted or expired stay as they are: the contract answers not_found
// (persistence.v1, section 4.7). Any other answer is an error, and the rest is aborted all the same.
func (r *Runner) AbortUploads(ctx context.Context) error {
	var problems []error
	for _, b := range r.uploads {
		if err := r.abort(ctx, b); err != nil {
			problems = append(problems, fmt.Errorf("after the scenario: %s of the upload %s as %s: %w", b.tool, b.upload, b.as, err))
		}
	}
	r.uploads = nil
	return errors.Join(problems...)
}

// abort aborts one upload.
func (r *Runner) abort(ctx context.Context, b begun) error {
	args, err := encode(map[string]any{"namespace": b.namespace, "uploadId": b.upload, "idempotencyKey": "end-" + rand.Text()})
	if err != nil {
		return err
	}
	a, err := r.Target.Call(ctx, b.as, b.tool, args)
	if err != nil {
		return err
	}
	if a.RPC == nil && a.IsError {
		return expectError("not_found", a)
	}
	return r.success(b.tool, a)
}
