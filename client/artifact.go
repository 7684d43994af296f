package client

import (
	"context"
	"encoding/json"
	"time"
)

// Hash is the digest of bytes.
type Hash struct {
	Algorithm string `json:"algorithm"` // sha256
	Value     string `json:"value"`     // 64 lower-case hexadecimal characters
}

// SHA256 is the hash with this value, in lower-case hexadecimal.
func SHA256(value string) Hash { return Hash{"sha256", value} }

// Artifact is what is known of committed bytes. It never changes.
type Artifact struct {
	Namespace  string          `json:"namespace"`
	ID         string          `json:"id"`
	MimeType   string          `json:"mimeType"`
	Size       int64           `json:"size"` // in bytes
	Hash       Hash            `json:"hash"`
	CreatedAt  time.Time       `json:"createdAt"`
	Provenance json.RawMessage `json:"provenance"`
}

// Pending is an artifact on its way: begun, and not committed. Most applications need only Client.Upload.
type Pending struct {
	Namespace  string    `json:"namespace"`
	ArtifactID string    `json:"artifactId"` // the artifact's, once it is committed
	UploadID   string    `json:"uploadId"`
	ExpiresAt  time.Time `json:"expiresAt"`
}

// BeginRequest declares the bytes that are to come.
type BeginRequest struct {
	Namespace      string          `json:"namespace"`
	MimeType       string          `json:"mimeType"`
	Size           int64           `json:"size"`
	Hash           Hash            `json:"hash"`
	Provenance     json.RawMessage `json:"provenance"`     // any JSON value; nil is null
	IdempotencyKey string          `json:"idempotencyKey"` // empty: a new one is made
}

// BeginArtifact reserves room for bytes and gives the place to send them to.
func (c *Client) BeginArtifact(ctx context.Context, r BeginRequest) (*Pending, error) {
	r.IdempotencyKey = orNewKey(r.IdempotencyKey)
	return c.pending(ctx, "beginArtifact", r.IdempotencyKey, r)
}

// uploadNamed names an upload; a read has no key.
type uploadNamed struct {
	Namespace      string `json:"namespace"`
	UploadID       string `json:"uploadId"`
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// UploadAccess gives an open upload, when the caller may write it. not_found when it is committed, aborted or expired.
func (c *Client) UploadAccess(ctx context.Context, namespace, uploadID string) (*Pending, error) {
	return c.pending(ctx, "uploadAccess", "", uploadNamed{Namespace: namespace, UploadID: uploadID})
}

// pending calls a tool that gives an upload.
func (c *Client) pending(ctx context.Context, tool, key string, in any) (*Pending, error) {
	var p Pending
	if err := c.call(ctx, tool, key, in, &p); err != nil {
		return nil, err
	}
	if p.UploadID == "" || p.ArtifactID == "" {
		return nil, c.malformed(tool, key)
	}
	return &p, nil
}

// CommitArtifact publishes the bytes that were sent. An empty key is a new one; a commit that is to be repeated after
// this process has ended needs one that the caller keeps.
func (c *Client) CommitArtifact(ctx context.Context, namespace, uploadID, key string) (*Artifact, error) {
	key = orNewKey(key)
	return c.artifact(ctx, "commitArtifact", key, uploadNamed{namespace, uploadID, key})
}

// AbortArtifact ends an open upload and frees what it has reserved.
func (c *Client) AbortArtifact(ctx context.Context, namespace, uploadID, key string) error {
	key = orNewKey(key)
	var ok struct{}
	return c.call(ctx, "abortArtifact", key, uploadNamed{namespace, uploadID, key}, &ok)
}

// GetArtifact gives what is known of an artifact, without its bytes: see Download.
func (c *Client) GetArtifact(ctx context.Context, namespace, id string) (*Artifact, error) {
	return c.artifact(ctx, "getArtifact", "", revisionOf{Namespace: namespace, ID: id})
}

// artifact calls a tool that gives an artifact.
func (c *Client) artifact(ctx context.Context, tool, key string, in any) (*Artifact, error) {
	var a Artifact
	if err := c.call(ctx, tool, key, in, &a); err != nil {
		return nil, err
	}
	if a.ID == "" || a.Hash.Algorithm != "sha256" {
		return nil, c.malformed(tool, key)
	}
	return &a, nil
}
