package client

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// Document is one revision of a document.
type Document struct {
	Namespace     string          `json:"namespace"`
	ID            string          `json:"id"`
	Kind          string          `json:"kind"`
	SchemaVersion string          `json:"schemaVersion"`
	Revision      int64           `json:"revision"`  // from 1
	CreatedAt     time.Time       `json:"createdAt"` // of revision 1
	UpdatedAt     time.Time       `json:"updatedAt"` // of this revision
	Deleted       bool            `json:"deleted"`   // this revision is a tombstone
	Payload       json.RawMessage `json:"payload"`   // as the server wrote it: numbers are text, and lose nothing
	References    []Reference     `json:"references"`
}

// Kinds of targets.
const (
	typeDocument = "document"
	typeArtifact = "artifact"
)

// Reference is what a document points at. The server keeps its target from being purged. Make one with RefDocument or
// RefArtifact.
type Reference struct {
	Type      string `json:"type"`
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
	Revision  int64  `json:"revision,omitzero"` // of a document
}

// RefDocument refers to one revision of a document, which later revisions do not change.
func RefDocument(namespace, id string, revision int64) Reference {
	return Reference{typeDocument, namespace, id, revision}
}

// RefArtifact refers to a committed artifact.
func RefArtifact(namespace, id string) Reference {
	return Reference{Type: typeArtifact, Namespace: namespace, ID: id}
}

// revisionOf asks for a document: its head when Revision is 0.
type revisionOf struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
	Revision  int64  `json:"revision,omitzero"`
}

// Get reads the newest revision. A logically deleted document is not_found.
func (c *Client) Get(ctx context.Context, namespace, id string) (*Document, error) {
	return c.document(ctx, "get", "", revisionOf{Namespace: namespace, ID: id})
}

// GetRevision reads one revision, counted from 1, also of a document that has been deleted since. A tombstone comes with
// Deleted set.
func (c *Client) GetRevision(ctx context.Context, namespace, id string, revision int64) (*Document, error) {
	if revision < 1 {
		return nil, local("get", InvalidRequest, "revisions are counted from 1; Get reads the newest")
	}
	return c.document(ctx, "get", "", revisionOf{namespace, id, revision})
}

// document calls a tool that gives a document.
func (c *Client) document(ctx context.Context, tool, key string, in any) (*Document, error) {
	var d Document
	if err := c.call(ctx, tool, key, in, &d); err != nil {
		return nil, err
	}
	if d.Revision < 1 {
		return nil, c.malformed(tool, key)
	}
	return &d, nil
}

// malformed is the error of a result that is JSON and not what the tool gives. A mutation may have happened.
func (c *Client) malformed(tool, key string) *Error {
	return &Error{Op: tool, Key: key, Unknown: key != "", Attempts: 1, Message: "the result is not of the contract's form", unusable: true}
}

// PutRequest is a new revision of a document.
type PutRequest struct {
	Namespace     string          `json:"namespace"`
	ID            string          `json:"id"`
	Kind          string          `json:"kind"`
	SchemaVersion string          `json:"schemaVersion"`
	Payload       json.RawMessage `json:"payload"`    // any JSON value; nil is null
	References    []Reference     `json:"references"` // nil is none
	// ExpectedRevision is the revision that this one builds on. 0 creates, and only creates. The number of a tombstone
	// restores.
	ExpectedRevision int64 `json:"expectedRevision"`
	// IdempotencyKey names this mutation. Empty: a new one is made.
	IdempotencyKey string `json:"idempotencyKey"`
}

// Put writes a revision and gives it. revision_conflict when the newest revision is not the expected one: read it,
// merge, and put again on its number. A Put that was repeated after a lost answer gives the revision that it made, also
// when there are newer ones.
func (c *Client) Put(ctx context.Context, r PutRequest) (*Document, error) {
	r.IdempotencyKey = orNewKey(r.IdempotencyKey)
	if r.References == nil {
		r.References = []Reference{}
	}
	return c.document(ctx, "put", r.IdempotencyKey, r)
}

// DeleteRequest names the revision that is to be the last before the tombstone.
type DeleteRequest struct {
	Namespace        string `json:"namespace"`
	ID               string `json:"id"`
	ExpectedRevision int64  `json:"expectedRevision"`
	IdempotencyKey   string `json:"idempotencyKey"` // empty: a new one is made
}

// Delete marks a document as deleted and gives the tombstone, whose number restores it: see PutRequest. Its revisions
// stay readable by number.
func (c *Client) Delete(ctx context.Context, r DeleteRequest) (*Document, error) {
	r.IdempotencyKey = orNewKey(r.IdempotencyKey)
	return c.document(ctx, "delete", r.IdempotencyKey, r)
}

// Target is what Purge removes. Make one with TargetDocument or TargetArtifact.
type Target struct {
	Type     string `json:"type"`
	ID       string `json:"id"`
	Revision int64  `json:"revision,omitzero"`
}

// TargetDocument is one revision that is no longer the newest.
func TargetDocument(id string, revision int64) Target { return Target{typeDocument, id, revision} }

// TargetArtifact is an artifact.
func TargetArtifact(id string) Target { return Target{Type: typeArtifact, ID: id} }

// PurgeRequest names what is to be gone for good.
type PurgeRequest struct {
	Namespace      string `json:"namespace"`
	Target         Target `json:"target"`
	IdempotencyKey string `json:"idempotencyKey"` // empty: a new one is made
}

// Purge removes one old revision or one artifact for good. retention_blocked when it is the newest revision, still young,
// referred to, or when the server keeps everything.
func (c *Client) Purge(ctx context.Context, r PurgeRequest) error {
	r.IdempotencyKey = orNewKey(r.IdempotencyKey)
	var ok struct{}
	return c.call(ctx, "purge", r.IdempotencyKey, r, &ok)
}

// ListRequest says which documents to list.
type ListRequest struct {
	Namespace      string `json:"namespace"`
	Kind           string `json:"kind,omitempty"`          // exactly this kind; empty is every kind
	IncludeDeleted bool   `json:"includeDeleted,omitzero"` // tombstones too
	PageSize       int    `json:"limit,omitzero"`          // documents a call, not in all; 0 is the server's choice
}

// List gives the newest revisions of a namespace's documents that the caller may read, in byte order of their ids. It
// reads page after page while the loop goes on. A document that is there all the while comes exactly once; the list
// may change between pages.
//
// After an error the sequence ends. Pages can be read on for 15 minutes: a loop that stands still for longer gets
// invalid_request, and is to begin anew.
func (c *Client) List(ctx context.Context, r ListRequest) iter.Seq2[*Document, error] {
	type page struct {
		ListRequest
		Cursor string `json:"cursor,omitempty"`
	}
	return c.pages(ctx, "list", func(cursor string) any { return page{r, cursor} })
}

// ListRevisionsRequest says of which document to list the revisions.
type ListRevisionsRequest struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
	PageSize  int    `json:"limit,omitzero"` // revisions a call; 0 is the server's choice
}

// ListRevisions gives the revisions of a document that still exist, ascending, tombstones included. It reads and fails as
// List does.
func (c *Client) ListRevisions(ctx context.Context, r ListRevisionsRequest) iter.Seq2[*Document, error] {
	type page struct {
		ListRevisionsRequest
		Cursor string `json:"cursor,omitempty"`
	}
	return c.pages(ctx, "listRevisions", func(cursor string) any { return page{r, cursor} })
}

// pages follows nextCursor until it is absent. A page may be empty and not the last: the server leaves out what the
// caller may not read after it has cut the page (persistence.v1, section 4.4).
func (c *Client) pages(ctx context.Context, tool string, arguments func(cursor string) any) iter.Seq2[*Document, error] {
	return func(yield func(*Document, error) bool) {
		for cursor := ""; ; {
			var page struct {
				Items      []*Document `json:"items"`
				NextCursor string      `json:"nextCursor"`
			}
			if err := c.call(ctx, tool, "", arguments(cursor), &page); err != nil {
				yield(nil, err)
				return
			}
			for _, d := range page.Items {
				if d == nil || d.Revision < 1 {
					yield(nil, c.malformed(tool, ""))
					return
				}
				if !yield(d, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			if page.NextCursor == cursor { // every cursor is new: this would never end
				yield(nil, &Error{Op: tool, Message: "the server gave the same page twice", unusable: true})
				return
			}
			cursor = page.NextCursor
		}
	}
}
