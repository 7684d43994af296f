package mcp

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestBudget holds what fits: all together in the limit, one principal in half of it, and anything when it is alone.
func TestBudget(t *testing.T) {
	b := newBudget(1000)
	b.wait = 0
	newHold := func(key string) *hold { return &hold{b: b, key: key} }
	become := func(h *hold, n int, want bool) {
		t.Helper()
		if got := h.become(context.Background(), n); got != want {
			t.Fatalf("%q becomes %d at %d of %d: %v", h.key, n, h.n, b.used, got)
		}
	}
	ana, more, bob, eve := newHold("ana"), newHold("ana"), newHold("bob"), newHold("eve")
	become(ana, 300, true)
	become(more, 200, true)
	become(more, 201, false) // half
	become(bob, 400, true)
	become(eve, 101, false) // all
	become(eve, 100, true)
	become(more, 100, true)
	become(bob, 500, true)
	for _, h := range []*hold{ana, more, bob, eve, ana} { // once more does nothing
		h.release()
	}
	become(ana, 5000, true) // released: not counted
	if b.used != 0 || len(b.by) != 0 {
		t.Errorf("left: %d, %v", b.used, b.by)
	}
	large := newHold("ana")
	become(large, 5000, true)
	become(newHold("bob"), 1, false)
	become(large, 4000, true) // less is always possible
	large.release()
	var none *hold
	become(newHold("bob"), 1, true)
	if !none.become(context.Background(), 1<<40) {
		t.Error("what is not counted is refused")
	}
	none.release()
}

// TestBudgetWait waits for room, which goes to who waits, and never holds more than there is.
func TestBudgetWait(t *testing.T) {
	b := newBudget(400)
	b.wait = time.Minute
	var held, most atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			h := &hold{b: b, key: "ana"}
			if !h.become(context.Background(), 100) {
				t.Error("no room came")
			}
			if n := held.Add(100); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Millisecond)
			held.Add(-100)
			h.release()
		})
	}
	all.Wait()
	if most.Load() > 200 || most.Load() < 100 {
		t.Errorf("held %d at once, half is 200", most.Load())
	}
	ctx, cancel := context.WithCancel(context.Background())
	full := &hold{b: b, key: "ana"}
	full.become(ctx, 400)
	go cancel()
	if (&hold{b: b, key: "bob"}).become(ctx, 100) {
		t.Error("a caller that went away got room")
	}
}
