package mcp

import (
	"context"
	"sync"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
)

// budget bounds the memory that messages over HTTP hold: a request from before its body is read, its answer until it
// is written. It counts the bytes of messages; what they are decoded into is a small multiple of that. One principal
// gets half at most, so that one who sends or reads slowly leaves the others room.
type budget struct {
	limit int64         // bytes
	wait  time.Duration // how long a message may wait for room

	mu    sync.Mutex
	used  int64
	by    map[string]int64
	freed chan struct{} // closed and replaced when room is freed while somebody waits
	waits int
}

// budgetWait is how long a message may wait for room: a refusal comes in under 50 ms (security requirements, section 3).
const budgetWait = 25 * time.Millisecond

// newBudget makes a budget of so many bytes.
func newBudget(limit int64) *budget {
	return &budget{limit: limit, wait: budgetWait, by: map[string]int64{}, freed: make(chan struct{})}
}

// hold is the part of the budget that one request holds. Its methods may be called at the same time; those of nil
// count nothing.
type hold struct {
	b    *budget
	key  string // the principal's rate key; "" for who has none
	n    int64  // bytes; guarded by b.mu, like over
	over bool   // released: nothing more is counted
}

// become makes h hold n bytes in place of what it held, and waits a little for room when that is more. False means that
// there is none.
func (h *hold) become(ctx context.Context, n int) bool {
	if h == nil {
		return true
	}
	_, ok := h.b.try(h, int64(n))
	if ok || h.b.wait <= 0 {
		return ok
	}
	timer := time.NewTimer(h.b.wait)
	defer timer.Stop()
	h.b.waiting(1)
	defer h.b.waiting(-1)
	for {
		// Once more, because room that was freed before this one was counted as waiting was not told of.
		freed, ok := h.b.try(h, int64(n))
		if ok {
			return true
		}
		select {
		case <-freed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// release gives everything back, for good.
func (h *hold) release() {
	if h == nil {
		return
	}
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	h.over = true
	h.b.add(h, -h.n)
}

// try makes h hold n bytes if there is room; otherwise it gives the channel that tells of room. A message larger than
// all there is finds room when it is alone.
func (b *budget) try(h *hold, n int64) (<-chan struct{}, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.over {
		return nil, true
	}
	others, own := b.used-h.n, b.by[h.key]-h.n
	if n > h.n && ((others > 0 && others+n > b.limit) || (own > 0 && own+n > b.limit/2)) {
		return b.freed, false
	}
	b.add(h, n-h.n)
	return nil, true
}

// add counts n bytes more, or less, for h. The caller holds mu.
func (b *budget) add(h *hold, n int64) {
	h.n += n
	b.used += n
	if b.by[h.key] += n; b.by[h.key] == 0 {
		delete(b.by, h.key)
	}
	if b.waits > 0 && n < 0 {
		close(b.freed)
		b.freed = make(chan struct{})
	}
}

// waiting counts who waits.
func (b *budget) waiting(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits += n
}

// noRoom is the refusal of a message that there is no memory for.
func noRoom() *fault.Error {
	return fault.New(fault.Overloaded, "the server holds as many messages as it may; nothing was done, retry shortly").After(time.Second)
}

// noRoomToAnswer is in place of an answer that there is no memory for until it is sent. The call has run, so it is no
// refusal: clients take those for calls that did nothing.
func noRoomToAnswer() *fault.Error {
	return fault.New(fault.StoreUnavailable, "there is no room to keep the answer until it is sent. What the call did stands: "+
		"retry shortly, a write with the same idempotencyKey").After(time.Second)
}

// quota counts what principals hold open.
type quota struct {
	mu  sync.Mutex
	all int
	by  map[string]int
}

// take counts one more of key; false when key has each, or all principals together have all. An all of 0 bounds
// nothing.
func (q *quota) take(key string, each, all int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.by[key] >= each || (all > 0 && q.all >= all) {
		return false
	}
	if q.by == nil {
		q.by = map[string]int{}
	}
	q.by[key]++
	q.all++
	return true
}

// free counts one less.
func (q *quota) free(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all--
	if q.by[key]--; q.by[key] == 0 {
		delete(q.by, key)
	}
}
