package persistence

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/policy"
)

// Bounds of a page (persistence.v1, section 4.4).
const (
	defaultPageSize = 50
	// pageBytes is where a page ends, in bytes of its result, never below one entry. The contract's bound is 3 MiB; at
	// this size even a result that is all quotation marks, which goes out once as structured content and once more
	// escaped as text, stays below the 4 MiB of an answer.
	pageBytes  = 5 << 18
	cursorLife = 15 * time.Minute
)

// checkLimit refuses a limit over what this store allows.
func (s *Service) checkLimit(in canonjson.Value) error {
	if limit, ok := in.Get("limit").Int(); ok && limit > int64(s.cfg.Limits.MaxPageSize) {
		return fault.New(fault.InvalidRequest, "limit is %d, at most %d is allowed", limit, s.cfg.Limits.MaxPageSize)
	}
	return nil
}

// pageSize is the limit asked for, or the default.
func (s *Service) pageSize(in canonjson.Value) int {
	if limit, ok := in.Get("limit").Int(); ok {
		return int(limit)
	}
	return min(defaultPageSize, s.cfg.Limits.MaxPageSize)
}

// list answers heads of a namespace. The page is cut first and filtered by access afterwards, so it may be short or
// empty and still have a next one; its cursor does not depend on what was dropped.
func (s *Service) list(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	namespace := namespaceOf(c)
	f := HeadFilter{
		Kind: c.In.Get("kind").Str(), IncludeDeleted: c.In.Get("includeDeleted").Bool(),
		Limit: s.pageSize(c.In), MaxBytes: pageBytes,
	}
	bind := fmt.Appendf(nil, "persistence.list\x00%s\x00%s\x00%t", namespace, f.Kind, f.IncludeDeleted)
	after, err := s.openCursor(bind, c.In)
	if err != nil {
		return catalog.Result{}, err
	}
	f.After = after
	var docs []*Document
	var more bool
	err = s.cfg.Store.View(ctx, func(r Reader) (err error) {
		docs, more, err = r.Heads(namespace, f)
		return err
	})
	if err != nil {
		return catalog.Result{}, readFault(err)
	}
	docs, more = s.cutPage(docs, more)
	next := ""
	if more && len(docs) > 0 {
		next = docs[len(docs)-1].ID
	}
	if docs, err = readable(ctx, c.Access, docs); err != nil {
		return catalog.Result{}, err
	}
	return s.page(bind, docs, next)
}

// cutPage ends a page before pageBytes of result, references and all; the store has bounded payloads only.
func (s *Service) cutPage(docs []*Document, more bool) ([]*Document, bool) {
	bound := pageBytes
	if n := s.cfg.ResponseBytes / 3; n > 0 {
		bound = min(bound, n)
	}
	total := 0
	for i, d := range docs {
		if total += d.resultBytes(); total > bound && i > 0 {
			return docs[:i], true
		}
	}
	return docs, more
}

// resultBytes is how long the document is in a result, never too little: 512 covers the names of all members, the
// times and numbers, 64 the names of a reference's members.
func (d *Document) resultBytes() int {
	n := 512 + len(d.Namespace) + len(d.ID) + 6*len(d.Kind) + 6*len(d.SchemaVersion) + len(d.Payload)
	for _, r := range d.References {
		n += 64 + len(r.Namespace) + len(r.ID)
	}
	return n
}

// readable keeps the documents that the caller may read.
func readable(ctx context.Context, access catalog.Access, docs []*Document) ([]*Document, error) {
	checks := make([]policy.Check, len(docs))
	for i, d := range docs {
		checks[i] = policy.Check{Capability: policy.PersistenceRead, Path: documentPath(shown(d.Namespace), d.ID)}
	}
	allowed, err := access.Allowed(ctx, checks)
	if err != nil {
		return nil, err
	}
	kept := docs[:0]
	for i, d := range docs {
		if allowed[i] {
			kept = append(kept, d)
		}
	}
	return kept, nil
}

// listRevisions answers the revisions of one document that still exist, ascending.
func (s *Service) listRevisions(ctx context.Context, c *catalog.Call) (catalog.Result, error) {
	namespace, id := namespaceOf(c), c.In.Get("id").Str()
	bind := []byte("persistence.listRevisions\x00" + namespace + "\x00" + id)
	last, err := s.openCursor(bind, c.In)
	if err != nil {
		return catalog.Result{}, err
	}
	after, _ := strconv.ParseInt(last, 10, 64) // "" from the start
	var docs []*Document
	var more bool
	err = s.cfg.Store.View(ctx, func(r Reader) error {
		_, ok, err := r.Head(namespace, id)
		if err == nil && !ok {
			err = notFound()
		}
		if err != nil {
			return err
		}
		docs, more, err = r.Revisions(namespace, id, after, s.pageSize(c.In), pageBytes)
		return err
	})
	if err != nil {
		return catalog.Result{}, readFault(err)
	}
	docs, more = s.cutPage(docs, more)
	next := ""
	if more && len(docs) > 0 {
		next = strconv.FormatInt(docs[len(docs)-1].Revision, 10)
	}
	return s.page(bind, docs, next)
}

// badCursor is the one message for every cursor that is not good: its form, an altered or expired one, one of other
// filters or of another tool.
const badCursor = "the cursor is not valid here; start again without it"

// cursorWords makes the gate use it too.
var cursorWords = map[string]string{"cursor": badCursor}

// openCursor gives the last key of the page before, "" without a cursor. Every failure is the same.
func (s *Service) openCursor(bind []byte, in canonjson.Value) (string, error) {
	cursor := in.Get("cursor")
	if cursor.IsAbsent() {
		return "", nil
	}
	plain, err := s.cfg.Cursors.Open(seal.PurposeCursor, bind, cursor.Str())
	if err != nil {
		return "", fault.New(fault.InvalidRequest, badCursor)
	}
	return string(plain), nil
}

// page is the answer that shows docs, with a cursor when next is the last key of a page that is not the last.
func (s *Service) page(bind []byte, docs []*Document, next string) (catalog.Result, error) {
	items := make([]canonjson.Value, len(docs))
	for i, d := range docs {
		items[i] = d.Value()
	}
	m := []canonjson.Member{canonjson.M("items", canonjson.Array(items...))}
	if next != "" {
		cursor, err := s.cfg.Cursors.Seal(seal.PurposeCursor, cursorLife, bind, []byte(next))
		if err != nil {
			return catalog.Result{}, fmt.Errorf("seal cursor: %w", err)
		}
		m = append(m, canonjson.M("nextCursor", canonjson.String(cursor)))
	}
	return catalog.Result{Value: canonjson.Object(m...), Source: "persistence", Count: len(docs)}, nil
}
