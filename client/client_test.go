package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/client"
)

// capabilities is what every scripted server says first.
const capabilities = `{"contract":"persistence.v1","durability":"file-sync","limits":{"maxDocumentBytes":1048576,"maxArtifactBytes":1073741824,"maxReferences":255,"maxPageSize":200,"maxNamespaceBytes":10737418240,"idempotencyRetentionSeconds":604800}}`

// document is a result of put.
const document = `{"namespace":"ns","id":"a","kind":"k","schemaVersion":"1","revision":1,"createdAt":"2042-01-01T00:00:00.000Z","updatedAt":"2042-01-01T00:00:00.000Z","deleted":false,"payload":{"n":1.10,"big":123456789012345678901234567890},"references":[]}`

// step is what a scripted server does with one call.
type step func() (client.Result, error)

// ok answers with a result, refuse with a business failure, lost not at all, and rpc with a JSON-RPC error.
func ok(body string) step {
	return func() (client.Result, error) { return client.Result{Structured: json.RawMessage(body)}, nil }
}

func refuse(code client.Code) step {
	return func() (client.Result, error) {
		body := fmt.Sprintf(`{"error":{"code":%q,"message":"words"}}`, code)
		return client.Result{IsError: true, Structured: json.RawMessage(body), Text: body}, nil
	}
}

func lost() (client.Result, error) { return client.Result{}, io.ErrUnexpectedEOF }

func rpc(code int, data string) step {
	return func() (client.Result, error) {
		return client.Result{}, client.FromRPC(code, "words", json.RawMessage(data))
	}
}

// script is a Caller that answers capabilities, and then goes through its steps. It notes what it was sent.
type script struct {
	steps []step
	names []string
	args  []string
}

func (s *script) CallTool(_ context.Context, name string, arguments json.RawMessage) (client.Result, error) {
	if strings.HasSuffix(name, "capabilities") {
		return ok(capabilities)()
	}
	s.names, s.args = append(s.names, name), append(s.args, string(arguments))
	if len(s.args) > len(s.steps) {
		return client.Result{}, errors.New("the script is at its end")
	}
	return s.steps[len(s.args)-1]()
}

// noted is a client over a script that does not sleep, and the delays that it asked for.
func noted(t *testing.T, s *script, opts client.Options) (*client.Client, *[]time.Duration) {
	t.Helper()
	var delays []time.Duration
	opts.Sleep = func(_ context.Context, d time.Duration) error {
		delays = append(delays, d)
		return nil
	}
	c, err := client.New(t.Context(), s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c, &delays
}

// put is the mutation that the tests below repeat.
var put = client.PutRequest{Namespace: "ns", ID: "a", Kind: "k", SchemaVersion: "1", Payload: json.RawMessage(`{"n":1.10}`)}

func TestAttempts(t *testing.T) {
	dial := func() (client.Result, error) {
		return client.Result{}, &net.OpError{Op: "dial", Err: errors.New("refused")}
	}
	for _, tt := range []struct {
		name     string
		steps    []step
		attempts int
		code     client.Code
		unknown  bool
	}{
		{"at once", []step{ok(document)}, 1, "", false},
		{"busy", []step{refuse(client.Busy), refuse(client.Busy), ok(document)}, 3, "", false},
		{"unavailable", []step{refuse(client.StoreUnavailable), ok(document)}, 2, "", false},
		{"lost", []step{lost, lost, lost, lost, ok(document)}, 5, "", false},
		{"too many calls", []step{rpc(-32010, `{"error":"RATE_LIMITED","retry_after_ms":20}`), ok(document)}, 2, "", false},
		{"conflict", []step{refuse(client.RevisionConflict), ok(document)}, 1, client.RevisionConflict, false},
		{"conflict after lost", []step{lost, refuse(client.RevisionConflict)}, 2, client.RevisionConflict, false},
		{"denied after lost", []step{lost, refuse(client.PolicyDenied)}, 2, client.PolicyDenied, true},
		{"bug after lost", []step{lost, rpc(-32603, ``)}, 2, "", true},
		{"always busy", []step{refuse(client.Busy), refuse(client.Busy), refuse(client.Busy), refuse(client.Busy), refuse(client.Busy), ok(document)}, 5, client.Busy, false},
		{"always lost", []step{lost, lost, lost, lost, lost, ok(document)}, 5, "", true},
		{"lost, then busy", []step{lost, refuse(client.Busy), refuse(client.Busy), refuse(client.Busy), refuse(client.Busy)}, 5, client.Busy, true},
		{"nobody listens", []step{dial, dial, dial, dial, dial}, 5, "", false},
		{"no document", []step{ok(`{"ok":true}`), ok(document)}, 1, "", true},
		{"no JSON", []step{ok(`{`), ok(document)}, 1, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &script{steps: tt.steps}
			c, delays := noted(t, s, client.Options{})
			_, err := c.Put(t.Context(), put)
			if len(s.args) != tt.attempts || len(*delays) != tt.attempts-1 {
				t.Errorf("%d attempts, %d delays, want %d attempts", len(s.args), len(*delays), tt.attempts)
			}
			for _, a := range s.args {
				if a != s.args[0] {
					t.Errorf("attempts differ:\n%s\n%s", s.args[0], a)
				}
			}
			key, unknown := client.Unknown(err)
			if unknown != tt.unknown || unknown && !strings.Contains(s.args[0], key) {
				t.Errorf("unknown is %v with key %q: %v", unknown, key, err)
			}
			if tt.code != "" && !client.IsCode(err, tt.code) {
				t.Errorf("got %v, want %s", err, tt.code)
			}
			if succeeds := tt.attempts == len(tt.steps) && tt.code == "" && !tt.unknown; succeeds != (err == nil) && tt.name != "nobody listens" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestReadsRepeatWithoutUnknown(t *testing.T) {
	s := &script{steps: []step{lost, refuse(client.Busy), lost, lost, lost}}
	c, _ := noted(t, s, client.Options{})
	_, err := c.Get(t.Context(), "ns", "a")
	var e *client.Error
	if !errors.As(err, &e) || e.Unknown || e.Attempts != 5 || !e.Lost() || !errors.Is(err, io.ErrUnexpectedEOF) || e.Op != "get" {
		t.Errorf("got %+v", e)
	}
}

func TestDelaysGrowAndAreBounded(t *testing.T) {
	s := &script{}
	for range 8 {
		s.steps = append(s.steps, refuse(client.Busy))
	}
	s.steps[2] = rpc(-32014, `{"error":"OVERLOADED","retry_after_ms":700}`)
	s.steps[3] = rpc(-32014, `{"error":"OVERLOADED","retry_after_ms":3600000}`)
	c, delays := noted(t, s, client.Options{Retry: client.Retry{Attempts: 8, First: 100 * time.Millisecond, Longest: time.Second}})
	if _, err := c.Put(t.Context(), put); !client.IsCode(err, client.Busy) {
		t.Fatal(err)
	}
	bounds := []struct{ low, high int }{{50, 100}, {100, 200}, {700, 700}, {1000, 1000}, {500, 1000}, {500, 1000}, {500, 1000}}
	if len(*delays) != len(bounds) {
		t.Fatalf("delays %v", *delays)
	}
	for i, d := range *delays {
		if ms := int(d.Milliseconds()); ms < bounds[i].low || ms > bounds[i].high {
			t.Errorf("delay %d is %v, want %v", i, d, bounds[i])
		}
	}
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &script{}
	s.steps = []step{func() (client.Result, error) { cancel(); return lost() }, ok(document)}
	c, _ := noted(t, s, client.Options{})
	_, err := c.Put(ctx, put)
	if _, unknown := client.Unknown(err); !errors.Is(err, context.Canceled) || !unknown || len(s.args) != 1 {
		t.Errorf("after %d attempts: %v", len(s.args), err)
	}
	_, err = c.Put(ctx, put)
	if _, unknown := client.Unknown(err); !errors.Is(err, context.Canceled) || unknown || len(s.args) != 1 {
		t.Errorf("nothing was sent: %v", err)
	}
}

func TestKeys(t *testing.T) {
	s := &script{steps: []step{ok(document), ok(document), ok(document)}}
	c, _ := noted(t, s, client.Options{})
	mine := put
	mine.IdempotencyKey = "mine"
	for _, r := range []client.PutRequest{put, put, mine} {
		if _, err := c.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	form := regexp.MustCompile(`"idempotencyKey":"([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}|mine)"`)
	var keys []string
	for _, a := range s.args {
		m := form.FindStringSubmatch(a)
		if m == nil {
			t.Fatalf("no key of the form: %s", a)
		}
		keys = append(keys, m[1])
	}
	if keys[0] == keys[1] || keys[2] != "mine" {
		t.Errorf("keys %v", keys)
	}
}

func TestPayloadUntouched(t *testing.T) {
	s := &script{steps: []step{ok(document)}}
	c, _ := noted(t, s, client.Options{})
	r := put
	r.Payload = json.RawMessage(`{"n":1.10,"e":1e400,"big":123456789012345678901234567890}`)
	d, err := c.Put(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.args[0], `"payload":`+string(r.Payload)) || !strings.Contains(s.args[0], `"references":[]`) {
		t.Errorf("sent %s", s.args[0])
	}
	if string(d.Payload) != `{"n":1.10,"big":123456789012345678901234567890}` {
		t.Errorf("got %s", d.Payload)
	}
}

func TestBothWaysOfDenial(t *testing.T) {
	for name, st := range map[string]step{
		"result":            refuse(client.PolicyDenied),
		"code only":         rpc(-32001, ``),
		"word":              rpc(-32001, `{"error":"UNAUTHORIZED_KEY"}`),
		"envelope in data":  rpc(-32001, `{"error":{"code":"policy_denied","message":"no"}}`),
		"envelope, by -326": rpc(-32603, `{"error":{"code":"policy_denied","message":"no"}}`),
	} {
		s := &script{steps: []step{st}}
		c, _ := noted(t, s, client.Options{})
		if _, err := c.Get(t.Context(), "ns", "a"); !errors.Is(err, client.PolicyDenied) || client.Retryable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := &script{steps: []step{rpc(-32602, `{"error":{"code":"not_found","message":"no"}}`), rpc(-32601, ``)}}
	c, _ := noted(t, s, client.Options{})
	if _, err := c.Get(t.Context(), "ns", "a"); errors.Is(err, client.PolicyDenied) || !errors.Is(err, client.NotFound) {
		t.Error(err)
	}
	for _, code := range client.Codes {
		if _, err := c.Get(t.Context(), "ns", "a"); errors.Is(err, code) {
			t.Errorf("a fault of the protocol is %s", code)
		}
	}
}

func TestListFollowsCursors(t *testing.T) {
	named := func(id string) string { return strings.Replace(document, `"id":"a"`, `"id":"`+id+`"`, 1) }
	s := &script{steps: []step{
		ok(`{"items":[` + named("a") + `,` + named("b") + `],"nextCursor":"c1"}`),
		lost,
		ok(`{"items":[],"nextCursor":"c2"}`),
		ok(`{"items":[` + named("c") + `]}`),
	}}
	c, _ := noted(t, s, client.Options{})
	var ids []string
	for d, err := range c.List(t.Context(), client.ListRequest{Namespace: "ns", Kind: "k", IncludeDeleted: true, PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.ID)
	}
	if fmt.Sprint(ids) != "[a b c]" {
		t.Errorf("ids %v", ids)
	}
	want := `{"namespace":"ns","kind":"k","includeDeleted":true,"limit":2,"cursor":"c2"}`
	if s.args[3] != want || strings.Contains(s.args[0], "cursor") {
		t.Errorf("sent %s", s.args)
	}
}

func TestListEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		steps []step
		code  client.Code
	}{
		"expired cursor": {[]step{ok(`{"items":[` + document + `],"nextCursor":"c1"}`), refuse(client.InvalidRequest)}, client.InvalidRequest},
		"same page":      {[]step{ok(`{"items":[` + document + `],"nextCursor":"c1"}`), ok(`{"items":[],"nextCursor":"c1"}`)}, ""},
		"null item":      {[]step{ok(`{"items":[` + document + `,null]}`)}, ""},
	} {
		s := &script{steps: tt.steps}
		c, _ := noted(t, s, client.Options{})
		docs, failures := 0, 0
		for _, err := range c.ListRevisions(t.Context(), client.ListRevisionsRequest{Namespace: "ns", ID: "a"}) {
			if err == nil {
				docs++
				continue
			}
			failures++
			if tt.code != "" && !client.IsCode(err, tt.code) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if docs != 1 || failures != 1 || len(s.args) != len(tt.steps) {
			t.Errorf("%s: %d documents, %d failures, %d calls", name, docs, failures, len(s.args))
		}
	}
	s := &script{steps: []step{ok(`{"items":[` + document + `],"nextCursor":"c1"}`)}}
	c, _ := noted(t, s, client.Options{})
	for range c.List(t.Context(), client.ListRequest{Namespace: "ns"}) {
		break
	}
	if len(s.args) != 1 {
		t.Errorf("%d calls after the loop was left", len(s.args))
	}
}

func TestNames(t *testing.T) {
	s := &script{steps: []step{ok(document), ok(document)}}
	c, _ := noted(t, s, client.Options{})
	d, _ := noted(t, s, client.Options{ToolName: client.PortableName})
	for _, c := range []*client.Client{c, d} {
		if _, err := c.Get(t.Context(), "ns", "a"); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(s.names) != "[persistence.get persistence_get]" {
		t.Errorf("names %v", s.names)
	}
}

// caller is a function as a Caller.
type caller func(name string) (client.Result, error)

func (f caller) CallTool(_ context.Context, name string, _ json.RawMessage) (client.Result, error) {
	return f(name)
}

func TestNewRefuses(t *testing.T) {
	other := caller(func(string) (client.Result, error) {
		return ok(strings.Replace(capabilities, "persistence.v1", "persistence.v2", 1))()
	})
	if _, err := client.New(t.Context(), other, client.Options{}); !client.IsCode(err, client.UnsupportedFormat) {
		t.Errorf("another contract: %v", err)
	}
	for _, origin := range []string{"127.0.0.1:3001", "ftp://h", "http://", "http://:1", "http://me@h", "http://h?a=b", "http://h?", "/uploads", "http://h//"} {
		if _, err := client.New(t.Context(), &script{}, client.Options{Transfer: origin}); !client.IsCode(err, client.InvalidRequest) {
			t.Errorf("origin %q: %v", origin, err)
		}
	}
	_, err := client.New(t.Context(), &script{}, client.Options{Transfer: "https://h:1/foo/"})
	if !client.IsCode(err, client.InvalidRequest) || !strings.Contains(err.Error(), "a path, /foo/,") || !strings.HasSuffix(err.Error(), "give https://h:1") {
		t.Errorf("an origin with a path: %v", err)
	}
	c, _ := noted(t, &script{}, client.Options{Transfer: "http://h/"})
	if got := c.Capabilities(); got.Limits.MaxPageSize != 200 || got.Durability != "file-sync" {
		t.Errorf("capabilities %+v", got)
	}
}

func TestTextWithoutStructure(t *testing.T) {
	s := &script{steps: []step{func() (client.Result, error) { return client.Result{Text: document}, nil }}}
	c, _ := noted(t, s, client.Options{})
	if d, err := c.Get(t.Context(), "ns", "a"); err != nil || d.ID != "a" {
		t.Errorf("%v %v", d, err)
	}
}

func TestCallTimeoutIsALostAnswer(t *testing.T) {
	calls := 0
	slow := slowCaller(func(ctx context.Context, name string) (client.Result, error) {
		if strings.HasSuffix(name, "capabilities") {
			return ok(capabilities)()
		}
		if calls++; calls == 1 {
			<-ctx.Done()
			return client.Result{}, ctx.Err()
		}
		return ok(document)()
	})
	c, err := client.New(t.Context(), slow, client.Options{CallTimeout: 10 * time.Millisecond, Retry: client.Retry{First: time.Nanosecond}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), put); err != nil || calls != 2 {
		t.Errorf("%d calls: %v", calls, err)
	}
}

// slowCaller is a function with a context as a Caller.
type slowCaller func(ctx context.Context, name string) (client.Result, error)

func (f slowCaller) CallTool(ctx context.Context, name string, _ json.RawMessage) (client.Result, error) {
	return f(ctx, name)
}
