package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
)

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limits(func(l *gate.Limits) { l.Rate, l.Burst = 2, 3 }), operation("put", nil))
		for range 3 {
			wantOK(t, w.call(t, "put", `{"id":"a"}`, nil))
		}
		reply := w.call(t, "put", `{"id":"a"}`, nil)
		wantFault(t, reply, fault.RateLimited)
		if wait := reply.Fault.RetryAfter; wait <= 0 || wait > 500*time.Millisecond {
			t.Errorf("retry after %v, want at most 500 ms", wait)
		}
		wantOK(t, w.call(t, "put", `{"id":"a"}`, func(r *gate.Request) { r.Who = who("bob") }))
		wantOK(t, w.call(t, "put", `{"id":"a"}`, func(r *gate.Request) { r.Who.Tenant = "other" }))
		wantOK(t, w.call(t, "put", `{"id":"a"}`, func(r *gate.Request) { r.Again = true }))
		time.Sleep(reply.Fault.RetryAfter)
		wantOK(t, w.call(t, "put", `{"id":"a"}`, nil))
		if _, f := w.View(context.Background(), who("ana"), catalog.All); f == nil || f.Code != fault.RateLimited {
			t.Errorf("a list over the rate: %v", f)
		}
		time.Sleep(time.Hour) // a full bucket again, however long the pause
		for range 3 {
			wantOK(t, w.call(t, "put", `{"id":"a"}`, nil))
		}
		wantFault(t, w.call(t, "put", `{"id":"a"}`, nil), fault.RateLimited)
	})
}

func TestNoRate(t *testing.T) {
	w := newWorld(t, limits(func(l *gate.Limits) { l.Rate = 0 }), operation("put", nil))
	for range 1000 {
		wantOK(t, w.call(t, "put", `{"id":"a"}`, nil))
	}
}

// hanging is an operation that runs until release is closed.
func hanging(name string, release chan struct{}, change func(*catalog.Operation)) *catalog.Operation {
	op := operation(name, runs(func(ctx context.Context, _ *catalog.Call) (catalog.Result, error) {
		select {
		case <-release:
			return okResult(), nil
		case <-ctx.Done():
			return catalog.Result{}, ctx.Err()
		}
	}))
	if change != nil {
		change(op)
	}
	return op
}

// put is a call of the tool put.
func put(name string) gate.Request {
	return gate.Request{Who: who(name), Endpoint: catalog.All, Surface: fault.Tool, Name: "put"}
}

// Calls beyond the places are refused early, and those under way finish (R10).
func TestConcurrency(t *testing.T) {
	tests := []struct {
		name        string
		each, all   int
		bound       int
		who         func(i int) string
		run, refuse int
	}{
		{"of one principal", 2, 10, 0, func(int) string { return "ana" }, 2, 3},
		{"in all", 2, 3, 0, func(i int) string { return fmt.Sprint("user", i) }, 3, 2},
		{"of one operation", 10, 10, 1, func(int) string { return "ana" }, 1, 4},
		{"without limits", 0, 0, 0, func(int) string { return "ana" }, 5, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				op := hanging("put", release, func(op *catalog.Operation) { op.Bounds.Concurrency = tt.bound })
				w := newWorld(t, limits(func(l *gate.Limits) { l.Concurrency, l.TotalConcurrency = tt.each, tt.all }), op, operation("other", nil))
				var wg sync.WaitGroup
				var mu sync.Mutex
				done, refused := 0, 0
				for i := range tt.run + tt.refuse {
					wg.Go(func() {
						begun := time.Now()
						reply := w.Run(context.Background(), put(tt.who(i)))
						mu.Lock()
						defer mu.Unlock()
						if reply.Fault == nil {
							done++
							return
						}
						refused++
						if reply.Fault.Code != fault.Overloaded || reply.Fault.RetryAfter <= 0 || time.Since(begun) > 50*time.Millisecond {
							t.Errorf("%v after %v, want OVERLOADED in under 50 ms, with a time", reply.Fault, time.Since(begun))
						}
					})
				}
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				mu.Lock()
				if refused != tt.refuse || done != 0 {
					t.Errorf("%d refused and %d done, want %d and 0", refused, done, tt.refuse)
				}
				mu.Unlock()
				close(release)
				wg.Wait()
				if done != tt.run {
					t.Errorf("%d done, want %d", done, tt.run)
				}
				wantOK(t, w.call(t, "put", `{"id":"a"}`, nil)) // the places are free again
			})
		})
	}
}

// A call waits a moment for a place.
func TestWaitsForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, limits(func(l *gate.Limits) { l.Concurrency = 1 }), hanging("put", release, nil))
		go w.Run(context.Background(), put("ana"))
		synctest.Wait()
		go func() {
			time.Sleep(10 * time.Millisecond)
			close(release)
		}()
		wantOK(t, w.call(t, "put", `{"id":"a"}`, nil))
	})
}

// Who goes away while waiting gets no place, and takes none with him.
func TestGoneWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, limits(func(l *gate.Limits) { l.Concurrency = 1 }), hanging("put", release, nil))
		go w.Run(context.Background(), put("ana"))
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		wantFault(t, w.Run(ctx, put("ana")), fault.Overloaded)
		close(release)
		synctest.Wait()
		wantOK(t, w.call(t, "put", `{"id":"a"}`, nil))
	})
}

func TestDeadline(t *testing.T) {
	tests := []struct {
		name   string
		change func(*catalog.Operation)
		want   fault.Code
		after  time.Duration
	}{
		{"of a read", readOnly, fault.Busy, 30 * time.Second},
		{"of a read with a bound", func(op *catalog.Operation) { readOnly(op); op.Bounds.Deadline = time.Second }, fault.Busy, time.Second},
		{"of a write", nil, fault.StoreUnavailable, 30 * time.Second},
		{"of a write of another slot", func(op *catalog.Operation) { op.Errors = fault.PlainDialect }, fault.Internal, 30 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil, hanging("put", nil, tt.change))
				begun := time.Now()
				reply := w.call(t, "put", `{"id":"a"}`, nil)
				wantFault(t, reply, tt.want)
				if took := time.Since(begun); took != tt.after {
					t.Errorf("ended after %v, want %v", took, tt.after)
				}
			})
		})
	}
}

// A read whose caller went away did nothing; a write may have.
func TestCancelled(t *testing.T) {
	for _, tt := range []struct {
		change func(*catalog.Operation)
		want   fault.Code
	}{{readOnly, fault.Cancelled}, {nil, fault.StoreUnavailable}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, nil, hanging("put", nil, tt.change))
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				time.Sleep(time.Second)
				cancel()
			}()
			wantFault(t, w.Run(ctx, put("ana")), tt.want)
		})
	}
}

func TestContentBounds(t *testing.T) {
	w := newWorld(t, limits(func(l *gate.Limits) { l.ContentDepth, l.ContentNodes = 4, 20 }),
		operation("put", func(op *catalog.Operation) { op.Content = []string{"payload"} }), operation("plain", nil))
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	many := func(n int) string { return "[" + strings.Repeat("0,", n-2) + "0]" }
	tests := []struct {
		name, tool, in string
		ok             bool
	}{
		{"free content as deep as allowed, counted from itself", "put", `{"id":"a","payload":` + deep(4) + `}`, true},
		{"free content deeper", "put", `{"id":"a","payload":` + deep(5) + `}`, false},
		{"arguments as deep as allowed", "plain", `{"id":"a","payload":` + deep(3) + `}`, true},
		{"arguments deeper", "plain", `{"id":"a","payload":` + deep(4) + `}`, false},
		{"free content as large as allowed", "put", `{"id":"a","payload":` + many(20) + `}`, true},
		{"free content larger", "put", `{"id":"a","payload":` + many(21) + `}`, false},
		{"arguments larger", "plain", `{"id":"a","payload":` + many(20) + `}`, false},
		{"NUL in a name of free content", "put", `{"id":"a","payload":{"\u0000":1}}`, true},
		{"NUL in a name of the arguments", "plain", `{"id":"a","payload":{"\u0000":1}}`, false},
		{"NUL in a name beside free content", "put", `{"\u0000":1}`, false},
		{"no object", "put", `[]`, false},
		{"null", "put", `null`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply := w.call(t, tt.tool, tt.in, nil)
			if tt.ok {
				wantOK(t, reply)
			} else {
				wantFault(t, reply, fault.InvalidRequest)
			}
		})
	}
	absent := w.call(t, "put", `{}`, func(r *gate.Request) { r.In = canonjson.Value{} })
	wantOK(t, absent) // absent arguments are {}
}

// What a message repeats of the caller's own input is short and escaped (S47).
func TestMessagesQuoteLittle(t *testing.T) {
	w := newWorld(t, nil, operation("put", nil))
	long := strings.Repeat("x", 10_000)
	for name, reply := range map[string]gate.Reply{
		"tool":      w.call(t, long, `{}`, nil),
		"prompt":    w.call(t, long, `{}`, func(r *gate.Request) { r.Surface = fault.Prompt }),
		"resource":  w.call(t, long, `{}`, func(r *gate.Request) { r.Surface = fault.Resource }),
		"command":   w.call(t, long, `{}`, func(r *gate.Request) { r.Surface = fault.Command }),
		"argument":  w.call(t, "put", `{"id":"`+long+`"}`, nil),
		"name":      w.call(t, "put", `{"`+long+`":1}`, nil),
		"invisible": w.call(t, "a\u202eb\u0000\n", `{}`, nil),
	} {
		if reply.Fault == nil {
			t.Fatalf("%s: %s", name, describe(reply))
		}
		m := reply.Fault.Message
		if len(m) > 600 || strings.ContainsAny(m, "\n\x00\u202e") {
			t.Errorf("%s: the message has %d bytes: %.200q", name, len(m), m)
		}
	}
}

func TestAuthenticate(t *testing.T) {
	w := newWorld(t, nil, operation("put", nil))
	ctx := context.Background()
	w.auth.who = who("ana")
	if p, f := w.Authenticate(ctx, identity.Credentials{Key: "good", Addr: "1"}); f != nil || p != w.auth.who {
		t.Fatalf("%v, %v", p, f)
	}
	if w.audit.count() != 0 {
		t.Error("a good key is in the audit trail")
	}
	var words []string
	for _, reason := range []string{"unknown key", "revoked key", "no credentials"} {
		w.auth.who, w.auth.reason = nil, reason
		p, f := w.Authenticate(ctx, identity.Credentials{Key: "tbl_SECRET", Addr: reason})
		if p != nil || f == nil || f.Code != fault.UnauthorizedKey {
			t.Fatalf("%v, %v", p, f)
		}
		words = append(words, f.Message)
		if e := w.audit.last(t, true); e.Kind != audit.KindAuth || e.Rule != reason || e.Client != reason || strings.Contains(string(e.Encode()), "SECRET") {
			t.Errorf("entry %+v", e)
		}
	}
	if words[0] != words[1] || words[1] != words[2] {
		t.Errorf("different words: %q", words)
	}
	w.auth.err = errDown
	p, f := w.Authenticate(ctx, identity.Credentials{Key: "good", Addr: "2"})
	if p != nil || f == nil || f.Code != fault.AuthBackend || strings.Contains(f.Message, "SECRET") || !errors.Is(f, errDown) {
		t.Errorf("%v, %v; want AUTH_BACKEND", p, f)
	}
}

// 20 failures of one address in a minute, then a minute's refusal of that address only; one audit entry a minute.
func TestFailedAuthentications(t *testing.T) {
	w := newWorld(t, nil, operation("put", nil))
	ctx := context.Background()
	fail := func(addr string) fault.Code {
		_, f := w.Authenticate(ctx, identity.Credentials{Key: "bad", Addr: addr})
		return f.Code
	}
	w.auth.reason = "wrong key"
	for i := range 20 {
		if got := fail("a"); got != fault.UnauthorizedKey {
			t.Fatalf("failure %d: %s", i+1, got)
		}
	}
	if got := fail("a"); got != fault.RateLimited {
		t.Errorf("failure 21: %s", got)
	}
	// Somebody else behind the same address, with a good key, is not locked out.
	w.auth.who = &identity.Principal{Subject: "user:ana"}
	if p, f := w.Authenticate(ctx, identity.Credentials{Key: "good", Addr: "a"}); p == nil {
		t.Errorf("a good key from a refused address: %v", f)
	}
	w.auth.who = nil
	if got := fail("b"); got != fault.UnauthorizedKey {
		t.Errorf("another address: %s", got)
	}
	if n := w.audit.count(); n != 2 {
		t.Errorf("%d audit entries, want one an address", n)
	}
	w.clock.Advance(time.Minute - 1)
	if got := fail("a"); got != fault.RateLimited {
		t.Errorf("just before the minute is over: %s", got)
	}
	w.clock.Advance(1)
	if got := fail("a"); got != fault.UnauthorizedKey {
		t.Errorf("after the minute: %s", got)
	}
	if e := w.audit.last(t, true); e.Count != 19 {
		t.Errorf("the next entry counts %d failures without one, want 19", e.Count)
	}
	w.clock.Advance(-time.Hour) // a clock set back makes nothing more permissive
	for range 19 {
		fail("a")
	}
	if got := fail("a"); got != fault.RateLimited {
		t.Errorf("after the clock was set back: %s", got)
	}
}

// Requests without any credential try no key: they bring no refusal nearer, and cannot lock an address out.
func TestNoCredentialsLockNobodyOut(t *testing.T) {
	w := newWorld(t, nil, operation("put", nil))
	w.auth.reason = "no credentials"
	for i := range 100 {
		if _, f := w.Authenticate(context.Background(), identity.Credentials{Addr: "a"}); f.Code != fault.UnauthorizedKey {
			t.Fatalf("request %d: %s", i+1, f.Code)
		}
	}
	if n := w.audit.count(); n != 1 {
		t.Errorf("%d audit entries, want one", n)
	}
}
