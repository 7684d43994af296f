package storetest_test

import (
	"context"
	"io"
	"iter"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/client"
	"github.com/tabellion-mcp/tabellion/client/clienttest"
	"github.com/tabellion-mcp/tabellion/storetest"
)

// twisted is a client with one fault. Each field replaces a part of a client that is right.
type twisted struct {
	*client.Client
	opts     client.Options
	put      func(c *client.Client, ctx context.Context, r client.PutRequest) (*client.Document, error)
	list     func(c *client.Client, ctx context.Context, r client.ListRequest) iter.Seq2[*client.Document, error]
	download func(t twisted, ctx context.Context, namespace, id string, w io.Writer) error
	deaf     bool // tells of no progress
}

func (t twisted) Put(ctx context.Context, r client.PutRequest) (*client.Document, error) {
	if t.put != nil {
		return t.put(t.Client, ctx, r)
	}
	return t.Client.Put(ctx, r)
}

func (t twisted) List(ctx context.Context, r client.ListRequest) iter.Seq2[*client.Document, error] {
	if t.list != nil {
		return t.list(t.Client, ctx, r)
	}
	return t.Client.List(ctx, r)
}

func (t twisted) Download(ctx context.Context, namespace, id string, w io.Writer, progress client.Progress) (*client.Artifact, error) {
	if t.deaf {
		progress = nil
	}
	if t.download == nil {
		return t.Client.Download(ctx, namespace, id, w, progress)
	}
	a, err := t.GetArtifact(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	if err := t.download(t, ctx, namespace, id, w); err != nil {
		return nil, err
	}
	if progress != nil {
		progress(a.Size, a.Size)
	}
	return a, nil
}

// newKeys tries again with another key.
func newKeys(c *client.Client, ctx context.Context, r client.PutRequest) (d *client.Document, err error) {
	once := r
	for range 3 {
		once.IdempotencyKey = client.NewKey()
		if d, err = c.Put(ctx, once); !client.Retryable(err) {
			return d, err
		}
	}
	return d, err
}

// overwrites settles conflicts by writing over them.
func overwrites(c *client.Client, ctx context.Context, r client.PutRequest) (*client.Document, error) {
	d, err := c.Put(ctx, r)
	if !client.IsCode(err, client.RevisionConflict) {
		return d, err
	}
	head, err := c.Get(ctx, r.Namespace, r.ID)
	if err != nil {
		return nil, err
	}
	r.ExpectedRevision, r.IdempotencyKey = head.Revision, ""
	return c.Put(ctx, r)
}

// onePage stops after as many documents as a page has.
func onePage(c *client.Client, ctx context.Context, r client.ListRequest) iter.Seq2[*client.Document, error] {
	return func(yield func(*client.Document, error) bool) {
		n := 0
		for d, err := range c.List(ctx, r) {
			if n++; n > max(r.PageSize, 50) || !yield(d, err) {
				return
			}
		}
	}
}

// trusting takes what comes, from wherever it comes.
func trusting(h *http.Client) func(twisted, context.Context, string, string, io.Writer) error {
	return func(t twisted, ctx context.Context, namespace, id string, w io.Writer) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.opts.Transfer+"/artifacts/"+namespace+"/"+id, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+t.opts.Token)
		res, err := h.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return client.FromRPC(0, res.Status, nil)
		}
		_, err = io.Copy(w, res.Body)
		return err
	}
}

// twists are clients that must fail, and a test of the suite that must see it.
var twists = map[string]struct {
	client twisted
	retry  int // attempts of the client beneath; 0 is the suite's
	seen   string
}{
	"a new key each time":   {twisted{put: newKeys}, 1, "LostAnswer"},
	"gives up at once":      {twisted{}, 1, "LostAnswer"},
	"overwrites conflicts":  {twisted{put: overwrites}, 0, "Conflict"},
	"one page only":         {twisted{list: onePage}, 0, "Pages"},
	"verifies nothing":      {twisted{download: trusting(&http.Client{})}, 0, "CorruptedDownload"},
	"follows redirects":     {twisted{download: trusting(&http.Client{})}, 0, "Redirects"},
	"does not ask again":    {twisted{download: trusting(&http.Client{})}, 0, "CutTransfers"},
	"tells of no progress":  {twisted{deaf: true}, 0, "Transfers"},
	"wide open, every door": {twisted{}, 0, "Denied"},
}

// twistVariable names the fault that TestClientControlled runs the suite with.
const twistVariable = "TABELLION_STORETEST_TWIST"

// TestClientControls runs the client half, in a process of its own, on clients with one fault each: the suite must fail,
// in the test that is there to find that fault. And it must pass on the same machinery without a fault.
func TestClientControls(t *testing.T) {
	run := func(twist, test string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestClientControlled$/^"+test+"$", "-test.v")
		cmd.Env = append(os.Environ(), twistVariable+"="+twist)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for name, twist := range twists {
		t.Run(name, func(t *testing.T) {
			if out, err := run("none", twist.seen); err != nil || !strings.Contains(out, "--- PASS: TestClientControlled/"+twist.seen+" ") {
				t.Errorf("test %s fails without a fault: %v\n%s", twist.seen, err, out)
			}
			if out, err := run(name, twist.seen); err == nil || !strings.Contains(out, "--- FAIL: TestClientControlled/"+twist.seen+" ") {
				t.Errorf("test %s passes (%v)\n%s", twist.seen, err, out)
			}
		})
	}
}

// TestClientControlled is what TestClientControls runs.
func TestClientControlled(t *testing.T) {
	name, ok := os.LookupEnv(twistVariable)
	if !ok {
		return // not a test by itself
	}
	storetest.RunClient(t, storetest.ClientSuite{
		Open: func(t *testing.T) storetest.ClientServer {
			s := clienttest.New(t)
			if name != "wide open, every door" {
				s.Forbid("nobody", "/persistence/**")
			}
			return storetest.ClientServer{Caller: s.Caller, Transfer: s.TransferURL(), Token: s.Token}
		},
		New: func(ctx context.Context, caller client.Caller, opts client.Options) (storetest.Client, error) {
			if n := twists[name].retry; n > 0 {
				opts.Retry.Attempts = n
			}
			c, err := client.New(ctx, caller, opts)
			t := twists[name].client
			t.Client, t.opts = c, opts
			return t, err
		},
	})
}
