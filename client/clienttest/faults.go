package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/tabellion-mcp/tabellion/client"
)

// faults are what was ordered and has not come yet. The zero value has none.
type faults struct {
	mu        sync.Mutex
	calls     []Call
	failures  []failure
	overtakes []client.PutRequest
	lost      int
	uploads   []int64     // bytes after which the next uploads are cut
	downloads []transform // of the next downloads
}

// failure answers calls instead of the service.
type failure struct {
	tool   string // "": every tool but capabilities
	left   int
	answer func() (client.Result, error)
}

// Call is a call that arrived.
type Call struct {
	As, Tool  string // Tool is the name in the contract: "put"
	Arguments json.RawMessage
}

// Calls are all calls that arrived, also those that were answered by a fault.
func (s *Server) Calls() []Call {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return slices.Clone(s.faults.calls)
}

// Fail answers the next calls of a tool ("put"; "" is any but capabilities) with a business failure. Nothing happens.
func (s *Server) Fail(tool string, code client.Code, times int) {
	body, err := json.Marshal(map[string]any{"error": map[string]string{"code": string(code), "message": "ordered by the test"}})
	if err != nil {
		panic(err) // two strings can be written
	}
	s.faults.add(failure{tool, times, func() (client.Result, error) {
		return client.Result{IsError: true, Structured: body, Text: string(body)}, nil
	}})
}

// FailRPC answers the next calls of a tool with a JSON-RPC error, as something in front of the server would. Nothing
// happens. -32001 is a denial.
func (s *Server) FailRPC(tool string, code, times int) {
	s.faults.add(failure{tool, times, func() (client.Result, error) {
		return client.Result{}, client.FromRPC(code, "ordered by the test", nil)
	}})
}

// Busy answers the next calls of any tool with busy.
func (s *Server) Busy(times int) { s.Fail("", client.Busy, times) }

// LoseAnswers lets the next writes happen and loses their answers. Writes that fail do not count.
func (s *Server) LoseAnswers(times int) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.lost += times
}

// Overtake lets somebody else write a document right before the next put or delete of it arrives, so that this one meets
// a real conflict. r is what the other writes; its ExpectedRevision and key do not matter.
func (s *Server) Overtake(r client.PutRequest) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.overtakes = append(s.faults.overtakes, r)
}

// CutUpload cuts the connection of the next upload after so many bytes of its body. When that is the whole body, the
// upload arrives and its answer is lost.
func (s *Server) CutUpload(afterBytes int64) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.uploads = append(s.faults.uploads, afterBytes)
}

// CutDownload cuts the connection of the next download after so many bytes of its body.
func (s *Server) CutDownload(afterBytes int64) {
	s.faults.change(transform{cut: true, at: afterBytes})
}

// CorruptDownload changes one bit of the next download, in the byte at this offset.
func (s *Server) CorruptDownload(offset int64) { s.faults.change(transform{at: offset}) }

// add orders a failure.
func (f *faults) add(x failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = append(f.failures, x)
}

// change orders what the next download is to meet.
func (f *faults) change(x transform) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.downloads = append(f.downloads, x)
}

// plan is what a call meets.
type plan struct {
	refuse   func() (client.Result, error) // nil: the service answers
	overtake []client.PutRequest           // to be written before
}

// next notes a call and gives what it meets.
func (f *faults) next(as, tool string, arguments json.RawMessage) plan {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, Call{as, tool, slices.Clone(arguments)})
	for i := range f.failures {
		x := &f.failures[i]
		if x.left > 0 && (x.tool == tool || x.tool == "" && tool != "capabilities") {
			x.left--
			return plan{refuse: x.answer}
		}
	}
	var p plan
	if tool == "put" || tool == "delete" {
		var named struct{ Namespace, ID string }
		_ = json.Unmarshal(arguments, &named) // what is no JSON names nothing, and the service refuses it
		f.overtakes = slices.DeleteFunc(f.overtakes, func(r client.PutRequest) bool {
			meets := r.Namespace == named.Namespace && r.ID == named.ID
			if meets {
				p.overtake = append(p.overtake, r)
			}
			return meets
		})
	}
	return p
}

// loses takes one lost answer from the order, for a tool that writes.
func (f *faults) loses(tool string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	writes := slices.Contains([]string{"put", "delete", "purge", "beginArtifact", "commitArtifact", "abortArtifact"}, tool)
	if !writes || f.lost == 0 {
		return false
	}
	f.lost--
	return true
}

// stranger is the caller who overtakes.
const stranger = "somebody-else"

// direct is a Caller that meets no fault.
type direct struct {
	s  *Server
	as string
}

// CallTool implements client.Caller.
func (d direct) CallTool(ctx context.Context, name string, arguments json.RawMessage) (client.Result, error) {
	return d.s.run(ctx, d.as, name, arguments)
}

// overtake writes a document on whatever revision it has.
func (s *Server) overtake(ctx context.Context, r client.PutRequest) error {
	c, err := client.New(ctx, direct{s, stranger}, client.Options{})
	if err != nil {
		return err
	}
	r.ExpectedRevision, r.IdempotencyKey = 0, ""
	for d, err := range c.ListRevisions(ctx, client.ListRevisionsRequest{Namespace: r.Namespace, ID: r.ID}) {
		if client.IsCode(err, client.NotFound) {
			break
		}
		if err != nil {
			return err
		}
		r.ExpectedRevision = d.Revision
	}
	if _, err = c.Put(ctx, r); err != nil {
		return fmt.Errorf("the document that was to overtake: %w", err)
	}
	return nil
}

// transform is what happens to the body of a download: it is cut at a byte, or that byte is changed.
type transform struct {
	cut bool
	at  int64
}

// withFaults lets transfers meet what was ordered for them.
func (s *Server) withFaults(routes http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch cut, change := s.faults.transfer(r.Method); {
		case cut != nil:
			r.Body = &cutBody{r.Body, *cut}
			routes.ServeHTTP(&silent{ResponseWriter: w}, r)
			panic(http.ErrAbortHandler) // the connection ends without an answer
		case change != nil:
			routes.ServeHTTP(&changed{ResponseWriter: w, transform: *change}, r)
		default:
			routes.ServeHTTP(w, r)
		}
	})
}

// transfer takes what was ordered for the next transfer of a method.
func (f *faults) transfer(method string) (cut *int64, change *transform) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case method == http.MethodPut && len(f.uploads) > 0:
		cut, f.uploads = &f.uploads[0], f.uploads[1:]
	case method == http.MethodGet && len(f.downloads) > 0:
		change, f.downloads = &f.downloads[0], f.downloads[1:]
	}
	return cut, change
}

// cutBody ends like a broken connection when left bytes were read.
type cutBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (c *cutBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if c.left <= 0 {
		if _, err := c.ReadCloser.Read(p[:1]); err == io.EOF {
			return 0, io.EOF // it was the whole body
		}
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// silent is an answer that nobody gets.
type silent struct{ http.ResponseWriter }

// Header implements http.ResponseWriter.
func (s *silent) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter.
func (s *silent) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (s *silent) Write(p []byte) (int, error) { return len(p), nil }

// Unwrap gives the connection's deadlines.
func (s *silent) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// changed is an answer whose body is transformed, when it is one of bytes.
type changed struct {
	http.ResponseWriter
	transform
	refused bool // the answer is an error
	done    int64
}

// WriteHeader implements http.ResponseWriter.
func (c *changed) WriteHeader(status int) {
	c.refused = status != http.StatusOK
	c.ResponseWriter.WriteHeader(status)
	if c.cut && c.at == 0 && !c.refused {
		c.hangUp()
	}
}

// Write implements http.ResponseWriter.
func (c *changed) Write(p []byte) (int, error) {
	rest := c.at - c.done
	c.done += int64(len(p))
	if c.refused || rest < 0 || rest >= int64(len(p)) {
		return c.ResponseWriter.Write(p)
	}
	if c.cut {
		_, _ = c.ResponseWriter.Write(p[:rest]) // the connection is about to end anyway
		c.hangUp()
	}
	p = slices.Clone(p)
	p[rest] ^= 1
	return c.ResponseWriter.Write(p)
}

// hangUp sends what was written and ends the connection.
func (c *changed) hangUp() {
	_ = http.NewResponseController(c.ResponseWriter).Flush() // as above
	panic(http.ErrAbortHandler)
}

// Unwrap gives the connection's deadlines.
func (c *changed) Unwrap() http.ResponseWriter { return c.ResponseWriter }
